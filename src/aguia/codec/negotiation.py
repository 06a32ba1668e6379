"""Which binding a client's `Accept` admits (PB-1), and which one an answer is in.

By RFC 9110's rules for media types and ranges.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["admits", "media_type_of"]

# A quoted string, which may hold separators, or else one character; one without an end goes on
# to the end of its header.
_PIECES: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?$)|[^",;]++|[,;]', re.DOTALL)
_QUALITY: Final = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")


def admits(accept: Iterable[str], media_type: str) -> bool:
    """Whether `Accept` headers admit a media type with a quality above zero.

    The type is given without parameters, so a range that asks for some doesn't match it. The
    most specific range that matches decides; ranges of equal specificity, the best of them.
    What is malformed is passed over. No header admits nothing: a client that can read a
    binding has to say so.
    """
    main, _, sub = media_type.lower().partition("/")
    specificity = {f"{main}/{sub}": 3, f"{main}/*": 2, "*/*": 1}
    best = (0, 0.0)
    for header in accept:
        for kind, *parameters in _ranges(header):
            place = specificity.get(kind.lower(), 0)
            quality = _quality(parameters)
            if place and quality is not None:
                best = max(best, (place, quality))
    return best[1] > 0


def media_type_of(content_type: str) -> str:
    """The media type that a content type names, in lower case and without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def _ranges(header: str) -> Iterator[list[str]]:
    """The ranges of a header, each as its type and then its parameters."""
    parts: list[str] = []
    text: list[str] = []
    for piece in [*_PIECES.findall(header), ","]:
        if piece in (",", ";"):
            parts.append("".join(text).strip())
            text.clear()
        else:
            text.append(piece)
        if piece == ",":
            yield parts
            parts = []


def _quality(parameters: list[str]) -> float | None:
    """The `q` among a range's parameters, 1 without one.

    None for a malformed one, and for parameters of the type itself, which stand before it.
    """
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.lower() == "q":
            return float(value) if _QUALITY.fullmatch(value) else None
        if parameter:
            return None
    return 1.0
