"""How the documentation is built: Sphinx, pages in Markdown, the reference from docstrings."""

import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scripts")]

import aguia  # noqa: E402

project = "aguia"
author = "The aguia authors"
project_copyright = "the aguia authors"
version = release = aguia.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "command_help",
    "linked_pictures",
    "public_names",
    "rule_links",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
# A short name in a signature may be that of several public things; it leads to one of them.
suppress_warnings = ["myst.xref_ambiguous", "ref.python"]

# Pages: links as GitHub understands them, anchors included.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# Docstrings: what stands in backquotes is code, and a link where it is a public name.
default_role = "py:obj"
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"aguia {version}"
html_static_path: list[str] = []
html_copy_source = False
html_show_sphinx = False

# Pages link to files beside them, as GitHub shows them. What lies outside of this folder is no page
# of the site: either a page here includes it, or it goes along as a file.
INCLUDED = {
    "CHANGELOG.md": "/changelog.md",
    "CONTRIBUTING.md": "/contributing.md",
    "DEPRECATIONS.md": "/reference/deprecations.md",
    "benchmarks/RESULTS.md": "/reference/benchmarks.md",
    "examples/README.md": "/examples.md",
}


def lead_out(app: Sphinx, docname: str, source: list[str]) -> None:
    """Rewrite a page's links to what lies outside of the documentation."""
    page = HERE / docname

    def rewritten(match: re.Match[str]) -> str:
        words, path, anchor = match.groups()
        target = (page.parent / path).resolve()
        if target.is_relative_to(HERE) or not target.is_relative_to(HERE.parent):
            return match.group()
        inside = target.relative_to(HERE.parent).as_posix()
        if inside in INCLUDED:
            return f"[{words}]({INCLUDED[inside]}{anchor or ''})"
        if target.is_file():
            return f"[{words}](path:{os.path.relpath(target, page.parent)})"
        return words

    source[0] = re.sub(r"(?<!!)\[([^]]*)\]\((\.\.[^)#\s]*)(#[^)\s]*)?\)", rewritten, source[0])


def setup(app: Sphinx) -> None:
    """Have the links rewritten."""
    app.connect("source-read", lead_out)
