"""Pictures that lead to themselves: `[![what it shows](a.svg)](a.svg)`.

On a small screen a picture is small, and a touch shows it whole. By itself Sphinx would have the
reader's browser save the file instead of showing it.
"""

from docutils import nodes
from sphinx.addnodes import download_reference
from sphinx.application import Sphinx

__all__ = ["setup"]


def lead_to_itself(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Have a picture that is a link to a file lead to the picture on the page."""
    for link in list(doctree.findall(download_reference)):
        for image in link.findall(nodes.image):
            file = app.env.images[image["uri"]][1]
            uri = f"{'../' * docname.count('/')}_images/{file}"
            link.replace_self(nodes.reference("", "", image, refuri=uri, internal=True))


def setup(app: Sphinx) -> None:
    """Look at each page before it is written."""
    app.connect("doctree-resolved", lead_to_itself)
