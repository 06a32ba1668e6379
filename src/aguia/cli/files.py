"""Files that the person sends along, named by their path in what they say."""

import os
import re
from collections.abc import Sequence
from typing import Final

from aguia.cli.safe import one_line
from aguia.cli.words import size
from aguia.client import media
from aguia.protocol.content import ContentPart, DataSource, TextPart

__all__ = ["attached", "described", "with_files"]

MENTION: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
"""A path behind an @, in quotation marks where it has spaces."""

SENTENCE_END: Final = ".,;:!?)"

MEDIA: Final = re.compile(
    r"\.(png|jpe?g|gif|webp|heic|bmp|tiff?|pdf|mp3|wav|ogg|mp4|mov|webm)$", re.I
)
"""How the names of files end that nobody mentions without meaning the file."""


def attached(path: str) -> ContentPart:
    """The file at `path` as an image, a sound, a video or a document, by what is in it.

    Raises:
        ValueError: it cannot be read, is too large, or is of no known type. The text is one line.
    """
    place = os.path.expanduser(path)
    fault: Exception | None = None
    for part_of in (media.image, media.audio, media.video, media.document):
        try:
            part: ContentPart = part_of(place)
            return part
        except OSError as error:
            raise ValueError(f"Cannot read {one_line(path)}: {error.strerror}") from error
        except ValueError as error:
            fault = error
    raise ValueError(f"Cannot attach {one_line(path)}: {one_line(str(fault))}") from fault


def described(part: ContentPart) -> str:
    """What goes along, in a few words: `eagle.png, image, 12 KB`."""
    words: list[str] = [part.type]
    if isinstance(part, TextPart):
        return part.type
    if isinstance(part.metadata, dict) and isinstance(name := part.metadata.get("filename"), str):
        words.insert(0, one_line(name, 80))
    if isinstance(part.source, DataSource):
        value = part.source.value
        words.append(size(len(value) // 4 * 3 - value[-2:].count("=")))
    return ", ".join(words)


def with_files(text: str) -> str | Sequence[ContentPart]:
    """What is said, with the files that it mentions as `@path`; just the text if it mentions none.

    What is behind an @ and no file, such as a name, is text.

    Raises:
        ValueError: a file cannot be attached, or is not there although its name ends as a
            picture's does.
    """
    parts: list[ContentPart] = []
    for match in MENTION.finditer(text):
        path: str = match[1] or match[2]
        if not match[1] and not os.path.isfile(os.path.expanduser(path)):
            path = path.rstrip(SENTENCE_END)
        if os.path.isfile(os.path.expanduser(path)):
            parts.append(attached(path))
        elif match[1] or MEDIA.search(path):
            raise ValueError(f"There is no file {one_line(path)}.")
    return [TextPart(text=text), *parts] if parts else text
