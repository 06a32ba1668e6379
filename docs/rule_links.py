"""Rule ids, as `INT-2`, lead to the page of the rules wherever pages and docstrings cite them."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from aguia.protocol.rules import RULES

__all__ = ["link_rules", "setup"]

PAGE = "reference/rules"

_ID = re.compile(r"(?<![\w-])([A-Z]{2,8}-[0-9]{1,3})(?![\w-])")


def link_rules(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Turn the rule ids of a page into links, but for titles, code and what is a link already."""
    if docname == PAGE:
        return
    for text in list(doctree.findall(nodes.Text)):
        parent = text.parent
        if any(
            isinstance(each, nodes.title | nodes.literal | nodes.literal_block | nodes.reference)
            for each in ancestors(text)
        ):
            continue
        pieces = _ID.split(text.astext())
        if not any(piece in RULES for piece in pieces[1::2]):
            continue
        uri = app.builder.get_relative_uri(docname, PAGE)
        found: list[nodes.Node] = []
        for number, piece in enumerate(pieces):
            if number % 2 and piece in RULES:
                target = f"{uri}#{piece.lower()}"
                found.append(nodes.reference("", piece, internal=True, refuri=target))
            elif piece:
                found.append(nodes.Text(piece))
        parent.replace(text, found)


def ancestors(node: nodes.Node) -> list[nodes.Node]:
    """The nodes that a node is in, the nearest first."""
    found: list[nodes.Node] = []
    while (node := node.parent) is not None:
        found.append(node)
    return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Have the links made once everything else of a page is."""
    app.connect("doctree-resolved", link_rules)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
