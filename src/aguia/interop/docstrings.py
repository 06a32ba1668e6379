"""What a docstring says of a function, and of each of its parameters.

Reads the three styles in use: Google (`Args:`), NumPy (`Parameters` underlined), and reST
(`:param city: …`). What looks like none of them is simply description.
"""

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["parse_docstring"]

_SECTION: Final = "(?:other |keyword )?(?:args|arguments|parameters|params)"
_GOOGLE: Final = re.compile(rf"{_SECTION}\s*:\s*", re.IGNORECASE)
_NUMPY: Final = re.compile(rf"{_SECTION}\s*", re.IGNORECASE)
_UNDERLINE: Final = re.compile(r"-{3,}\s*")
_REST: Final = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s+([^:]*?)\s*:(.*)")
_REST_TYPE: Final = re.compile(r":type\s+[^:]+:")
_GOOGLE_ITEM: Final = re.compile(
    r"\s*(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?:\([^:]*?\)|\[[^:]*?\])?\s*:(?:\s+(.*)|$)"
)
_NUMPY_ITEM: Final = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")


def parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description without its sections on parameters, and what those say by parameter.

    Args:
        text: the docstring with its indentation removed, as `inspect.getdoc` gives it.
    """
    kept: list[str] = []
    items: list[tuple[str, list[str]]] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        underlined = at + 1 < len(lines) and _UNDERLINE.fullmatch(lines[at + 1])
        if _NUMPY.fullmatch(line) and underlined:
            end = _end_of_numpy(lines, at + 2)
            items += _items(lines[at + 2 : end], _NUMPY_ITEM)
        elif _GOOGLE.fullmatch(line):
            end = _end_of_indented(lines, at + 1)
            items += _items(lines[at + 1 : end], _GOOGLE_ITEM)
        elif found := _REST.match(line):
            end = _end_of_field(lines, at + 1)
            # The name is the last word: a type may stand before it.
            name = found[1].rpartition(" ")[2]
            items.append((name, [found[2], *lines[at + 1 : end]]))
        elif _REST_TYPE.match(line):
            end = _end_of_field(lines, at + 1)
        else:
            kept.append(line)
            end = at + 1
        at = end
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    said = {}
    for names, words in items:
        meaning = " ".join(" ".join(words).split())
        for name in names.split(","):
            if meaning:
                said[name.strip().lstrip("*")] = meaning
    return description, said


def _end_of_indented(lines: list[str], at: int) -> int:
    while at < len(lines) and (not lines[at].strip() or lines[at][0].isspace()):
        at += 1
    return at


def _end_of_field(lines: list[str], at: int) -> int:
    while at < len(lines) and lines[at][:1].isspace():
        at += 1
    return at


def _end_of_numpy(lines: list[str], at: int) -> int:
    """Where the next underlined title begins."""
    while at < len(lines):
        if lines[at].strip() and at + 1 < len(lines) and _UNDERLINE.fullmatch(lines[at + 1]):
            break
        at += 1
    return at


def _items(lines: list[str], pattern: re.Pattern[str]) -> Iterator[tuple[str, list[str]]]:
    """The names of each item of a section, and the lines that belong to it."""
    filled = [line for line in lines if line.strip()]
    if not filled:
        return
    margin = min(len(line) - len(line.lstrip()) for line in filled)
    names, words = "", list[str]()
    for line in filled:
        found = None if line[margin].isspace() else pattern.fullmatch(line[margin:])
        if found is None:
            words.append(line)
            continue
        yield names, words
        names = found[1]
        words = [found[2] or ""] if found.re.groups > 1 else []
    yield names, words
