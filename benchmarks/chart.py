"""A chart of a cost over sizes that grow tenfold, as SVG."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

__all__ = ["Series", "chart"]

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 72, 48

COLOURS: Final = ("#1f6feb", "#c2410c", "#15803d", "#7e22ce")


@dataclass
class Series:
    """One line: `points` are sizes and costs, in order."""

    name: str
    points: Sequence[tuple[float, float]]


def chart(title: str, unit: str, *series: Series) -> str:
    """The lines over one axis of sizes, from nothing up to twice the highest cost.

    The upper half is empty on purpose: a line that is flat must not look steep.
    """
    sizes = [size for line in series for size, _ in line.points]
    top = _round_up(2 * max(cost for line in series for _, cost in line.points))
    first, last = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes)))

    def across(size: float) -> float:
        share = (math.log10(size) - first) / max(1, last - first)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def up(cost: float) -> float:
        return HEIGHT - BOTTOM - cost / top * (HEIGHT - TOP - BOTTOM)

    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="13">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            _text(LEFT, 24, f"{title}, {unit}", size=16),
            *_legend(series),
            *(_gridline(up(top * part / 4), _number(top * part / 4)) for part in range(5)),
            *(
                _text(across(10**power), HEIGHT - BOTTOM + 22, f"{10**power:,}", anchor="middle")
                for power in range(first, last + 1)
            ),
            *(
                shape
                for line, colour in zip(series, COLOURS, strict=False)
                for shape in _line([(across(x), up(y)) for x, y in line.points], colour)
            ),
            "</svg>\n",
        ]
    )


def _legend(series: Sequence[Series]) -> Iterator[str]:
    left = float(LEFT)
    for line, colour in zip(series, COLOURS, strict=False):
        yield f'<rect x="{left:.0f}" y="40" width="12" height="12" fill="{colour}"/>'
        yield _text(left + 18, 51, line.name)
        left += 18 + 8 * len(line.name) + 24


def _gridline(height: float, label: str) -> str:
    return (
        f'<path d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        f"{_text(LEFT - 8, height + 4, label, anchor='end')}"
    )


def _line(points: Sequence[tuple[float, float]], colour: str) -> Iterator[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'


def _text(x: float, y: float, text: str, *, size: int = 13, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="#333">{escape(text)}</text>'
    )


def _round_up(cost: float) -> float:
    step = 10.0 ** math.floor(math.log10(cost))
    return math.ceil(cost / step) * step


def _number(cost: float) -> str:
    return f"{cost:.2f}".rstrip("0").rstrip(".")
