"""Pieces of a drawing as SVG: boxes, arrows and words on a card.

The card has a colour of its own, light or dark as the reader's system is, so that a drawing can
be read on any page. Nothing in it depends on how wide a font really is: what has to fit is set
in a font of fixed width, or is given room to spare.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

__all__ = ["PICTURES", "Drawing", "main_of", "wide"]

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
"""Where the pictures of the pages are."""

_STYLE = """\
.card { fill: #ffffff; stroke: #d0d7de }
.box { fill: #f6f8fa; stroke: #57606a; stroke-width: 1.5 }
.line { fill: none; stroke: #57606a; stroke-width: 1.5 }
.dashed { stroke-dasharray: 5 4 }
.tip { fill: #57606a }
text { fill: #1f2328; font: 13px system-ui, sans-serif }
.title { font-weight: 600; font-size: 15px }
.name { font-weight: 600 }
.faint { fill: #57606a; font-size: 12px }
.code { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace }
@media (prefers-color-scheme: dark) {
  .card { fill: #161b22; stroke: #30363d }
  .box { fill: #21262d; stroke: #9198a1 }
  .line { stroke: #9198a1 }
  .tip { fill: #9198a1 }
  text { fill: #e6edf3 }
  .faint { fill: #9198a1 }
}"""

_WIDTHS = {"code": 7.3, "name": 7.8, "words": 7.0, "faint": 6.5}
"""How wide a character is in each font: exactly, or on average and rather too much."""


def wide(text: str, kind: str = "code") -> float:
    """How much room a text takes."""
    return len(text) * _WIDTHS[kind]


class Drawing:
    """Collects shapes; `svg` puts them together.

    Attributes:
        title: what the drawing shows; said to whoever can't see it.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._shapes: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str = "box") -> None:
        """A rectangle with round corners; its upper left corner is at (x, y)."""
        self._shapes.append(
            f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" '
            f'height="{_n(height)}" rx="8"/>'
        )

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> None:
        """One line of text, whose base line is at y."""
        as_kind = f' class="{kind}"' if kind else ""
        self._shapes.append(
            f'<text{as_kind} x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def dot(self, x: float, y: float) -> None:
        """Where something begins."""
        self._shapes.append(f'<circle class="tip" cx="{_n(x)}" cy="{_n(y)}" r="5"/>')

    def arrow(self, path: str, kind: str = "line") -> None:
        """A line along a path of SVG, with a tip at its end."""
        self._shapes.append(f'<path class="{kind}" d="{path}" marker-end="url(#tip)"/>')

    def svg(self, width: float, height: float) -> str:
        """The drawing, of this size."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" '
                f'width="{_n(width)}" height="{_n(height)}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>\n{_STYLE}\n</style>",
                '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
                'markerHeight="7" orient="auto-start-reverse">'
                '<path class="tip" d="M0 0L10 5L0 10z"/></marker>',
                f'<rect class="card" x="0.5" y="0.5" width="{_n(width - 1)}" '
                f'height="{_n(height - 1)}" rx="10"/>',
                *self._shapes,
                "</svg>\n",
            ]
        )


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def main_of(
    draw: Callable[[], Mapping[str, str]], about: str, arguments: Sequence[str] | None = None
) -> int:
    """The command of a script whose pictures are those that `draw` gives, by their file names.

    Writes those that are not there as they would be; with `--check` it only names them, and
    returns 1 if there are any.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--folder", type=Path, default=PICTURES)
    options = parser.parse_args(arguments)
    stale = 0
    for name, svg in draw().items():
        path = options.folder / name
        if path.is_file() and path.read_text(encoding="utf-8") == svg:
            continue
        stale += 1
        if options.check:
            print(f"{path}: not current")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(svg, encoding="utf-8")
            print(f"{path}: written")
    return 1 if options.check and stale else 0
