"""The directive `public-names`: the reference of the public names of a module.

    ```{public-names} aguia.server
    ```

documents what the module lists in `__all__`, under the names that they are imported by. With
`:from: aguia.protocol.events` only what that module lists as well, so that a package's many names
can be on several pages; `:names:` gives them one by one.

Classes and functions are autodoc's. Two kinds of value have more in their source than autodoc
finds at run time: aliases of types and constants, which have no docstring of their own, and the
values of the protocol, whose fields read better as they are written.
"""

import ast
import inspect
import re
import sys
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import msgspec
from docutils import nodes
from docutils.parsers.rst import Parser, directives
from docutils.utils import new_document
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

__all__ = ["PublicNames", "public_names", "setup"]

LONGEST_VALUE = 200
"""Characters of a constant's source that are shown."""


class PublicNames(SphinxDirective):
    """Documents public names with autodoc."""

    required_arguments = 1
    option_spec: ClassVar = {"from": directives.unchanged, "names": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """Return what is to be said of each name."""
        [place] = self.arguments
        module = import_module(place)
        lines = [f".. py:currentmodule:: {place}", ""]
        for name in public_names(place, self.options.get("from"), self.options.get("names")):
            lines += described(place, name, getattr(module, name))
        # The page around this is Markdown; autodoc speaks reStructuredText.
        document = new_document(f"{self.env.docname}:{place}", self.state.document.settings)
        document.reporter = self.state.document.reporter
        Parser().parse("\n".join(lines), document)
        return list(document.children)


def public_names(place: str, home: str | None = None, names: str | None = None) -> list[str]:
    """The names that a `public-names` directive documents."""
    if names is not None:
        return names.split()
    listed = import_module(home or place).__all__
    return [name for name in listed if not name.startswith("__")]


def described(place: str, name: str, value: Any) -> list[str]:
    """The directives, as lines, that document one name of a module."""
    if inspect.isclass(value):
        return [f".. autoclass:: {place}.{name}", ""]
    if inspect.isroutine(value):
        return [f".. autofunction:: {place}.{name}", ""]
    source, docstring = assignment(name, value)
    lines = [f".. py:data:: {name}"]
    if source and len(source) <= LONGEST_VALUE:
        lines.append(f"   :value: {source}")
    return [*lines, "", *(f"   {line}" for line in docstring.splitlines()), ""]


def assignment(name: str, value: Any) -> tuple[str, str]:
    """Where a module of the package assigns a name: the source of its value, and its docstring.

    Both are empty for what comes from elsewhere, as `UNSET` from msgspec.
    """
    for module_name in sorted(sys.modules):
        module = sys.modules[module_name]
        if module_name.partition(".")[0] != "aguia" or getattr(module, name, None) is not value:
            continue
        body = parsed(module_name).body
        for node, following in zip(body, [*body[1:], None], strict=True):
            match node:
                case ast.Assign(targets=[ast.Name(id=found)], value=expression):
                    pass
                case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as expression):
                    pass
                case _:
                    continue
            if found == name:
                match following:
                    case ast.Expr(value=ast.Constant(value=str(docstring))):
                        return ast.unparse(expression), inspect.cleandoc(docstring)
                return ast.unparse(expression), ""
    return "", ""


@cache
def parsed(module_name: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(inspect.getsource(sys.modules[module_name]))


def fields_as_written(
    app: Sphinx, kind: str, name: str, value: Any, options: Any, signature: Any, returns: Any
) -> tuple[str, str | None] | None:
    """For a value of the protocol, its own fields; what its bases have is said at these."""
    if not (inspect.isclass(value) and issubclass(value, msgspec.Struct)):
        return None
    found = []
    for node in parsed(value.__module__).body:
        if isinstance(node, ast.ClassDef) and node.name == value.__name__:
            for line in node.body:
                match line:
                    case ast.AnnAssign(target=ast.Name(id=field), annotation=annotation):
                        if field in value.__struct_fields__:
                            default = f" = {ast.unparse(line.value)}" if line.value else ""
                            found.append(f"{field}: {ast.unparse(plain(annotation))}{default}")
    return f"(*, {', '.join(found)})" if found else "()", None


def plural_of_code(
    app: Sphinx, kind: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Let `Interrupt`s end a word, which reStructuredText has an own way to write."""
    lines[:] = [re.sub(r"(?<!`)(`[^`]+`)(?=[a-z])", r"\1\\ ", line) for line in lines]


def plain(annotation: ast.expr) -> ast.expr:
    """A type without what only the decoder needs, and without `UnsetType`: the default says it."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, *_])):
            return plain(kind)
        case ast.BinOp(left=kind, right=ast.Name(id="UnsetType")):
            return plain(kind)
    return annotation


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive, and what it wants of autodoc."""
    app.add_directive("public-names", PublicNames)
    app.connect("autodoc-process-signature", fields_as_written)
    app.connect("autodoc-process-docstring", plural_of_code)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
