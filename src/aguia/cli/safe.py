"""Text from outside made safe to write to a terminal: nothing in it acts, everything is seen.

A terminal obeys control characters wherever they come from, and bidirectional overrides make
text look like other text. Both are made visible here, before anything is written (SEC-3).
"""

from typing import Final

__all__ = ["MAX_LINE", "Cleaner", "clean", "one_line"]

MAX_LINE: Final = 300
"""How many characters a line of the chat's own (a state change, a result) has at most."""

# What a terminal would act on, and what a person is shown instead. Bidirectional embeddings,
# overrides and isolates reorder what comes after them, so they go; line and paragraph
# separators are no line ends here.
_VISIBLE: Final[dict[int, str]] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)},
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
    **dict.fromkeys((0x061C, 0x200E, 0x200F), "\ufffd"),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd"),
    **dict.fromkeys((0x2028, 0x2029), " "),
}


class Cleaner:
    """Makes streamed text safe to write, whatever way it is cut into deltas.

    Tabs and line feeds stay; CR LF is one line feed. A surrogate pair that was cut in two comes
    out as its character.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, delta: str) -> str:
        """The text to write for the next delta."""
        text = self._held + delta
        self._held = ""
        # The last character may be the first half of something.
        if text and (text[-1] == "\r" or "\ud800" <= text[-1] <= "\udbff"):
            text, self._held = text[:-1], text[-1]
        return clean(text)

    def end(self) -> str:
        """What is left to write when no delta follows."""
        text, self._held = self._held, ""
        return clean(text)


def clean(text: str) -> str:
    """Text that is safe to write, with its tabs and line ends."""
    text = text.replace("\r\n", "\n")
    if text.isascii() and text.isprintable():
        return text
    # Two halves of a pair next to each other are one character.
    return (
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").translate(_VISIBLE)
    )


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """Text that is safe to write within a line: no line ends, at most `limit` characters."""
    # What is cut away need not be cleaned: this may be megabytes.
    flat = clean(text[: limit + 1]).replace("\n", "⏎").replace("\t", " ")
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
