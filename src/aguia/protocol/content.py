"""Content parts and their sources: what a user message or a tool result may carry (TOOL-7).

The names that these had before 1.0, `TextInputContent` and the like, still lead to them, with a
`DeprecationWarning`; `RENAMED` lists them, and DEPRECATIONS.md says until when.
"""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta

from aguia.protocol.common import UNSET, JsonValue, UnsetType, WireStruct

__all__ = [
    "AudioPart",
    "ContentPart",
    "DataSource",
    "DocumentPart",
    "FileSource",
    "ImagePart",
    "PartSource",
    "TextPart",
    "UrlSource",
    "VideoPart",
    "text_of",
]


class DataSource(WireStruct, tag_field="type", tag="data", frozen=True, kw_only=True):
    """The bytes of a media part, inline as base64."""

    type: ClassVar[Literal["data"]] = "data"
    value: Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})]
    mime_type: str


class UrlSource(WireStruct, tag_field="type", tag="url", frozen=True, kw_only=True):
    """Where anyone can fetch the bytes of a media part."""

    type: ClassVar[Literal["url"]] = "url"
    value: str
    mime_type: str | UnsetType = UNSET


class FileSource(WireStruct, tag_field="type", tag="file", frozen=True, kw_only=True):
    """A handle that a model provider issued; opaque to everyone else (TOOL-12)."""

    type: ClassVar[Literal["file"]] = "file"
    value: str
    provider: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET


PartSource: TypeAlias = DataSource | UrlSource | FileSource


class TextPart(WireStruct, tag_field="type", tag="text", frozen=True, kw_only=True):
    """A piece of text."""

    type: ClassVar[Literal["text"]] = "text"
    id: str | UnsetType = UNSET
    text: str
    metadata: JsonValue | UnsetType = UNSET


class ImagePart(WireStruct, tag_field="type", tag="image", frozen=True, kw_only=True):
    """An image."""

    type: ClassVar[Literal["image"]] = "image"
    id: str | UnsetType = UNSET
    source: PartSource
    metadata: JsonValue | UnsetType = UNSET


class AudioPart(WireStruct, tag_field="type", tag="audio", frozen=True, kw_only=True):
    """A sound recording."""

    type: ClassVar[Literal["audio"]] = "audio"
    id: str | UnsetType = UNSET
    source: PartSource
    metadata: JsonValue | UnsetType = UNSET


class VideoPart(WireStruct, tag_field="type", tag="video", frozen=True, kw_only=True):
    """A video."""

    type: ClassVar[Literal["video"]] = "video"
    id: str | UnsetType = UNSET
    source: PartSource
    metadata: JsonValue | UnsetType = UNSET


class DocumentPart(WireStruct, tag_field="type", tag="document", frozen=True, kw_only=True):
    """A document, such as a PDF."""

    type: ClassVar[Literal["document"]] = "document"
    id: str | UnsetType = UNSET
    source: PartSource
    metadata: JsonValue | UnsetType = UNSET


ContentPart: TypeAlias = TextPart | ImagePart | AudioPart | VideoPart | DocumentPart


def text_of(content: object) -> str:
    """The text in the content of a message: all of it, or its text parts, a line for each.

    Takes what any message has as its `content`, typed or as plain JSON; "" where there is no text,
    as in a message of images alone.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes | bytearray):
        return ""  # of an activity, or not there
    return "\n".join(text for part in content if (text := _text(part)) is not None)


def _text(part: object) -> str | None:
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, dict) and part.get("type") == "text":
        text = part.get("text")
        return text if isinstance(text, str) else None
    return None


RENAMED: Final[dict[str, str]] = {
    "InputContent": "ContentPart",
    "TextInputContent": "TextPart",
    "ImageInputContent": "ImagePart",
    "AudioInputContent": "AudioPart",
    "VideoInputContent": "VideoPart",
    "DocumentInputContent": "DocumentPart",
    "InputContentSource": "PartSource",
    "InputContentDataSource": "DataSource",
    "InputContentUrlSource": "UrlSource",
    "InputContentPart": "ContentPart",
    "ImageInputPart": "ImagePart",
    "AudioInputPart": "AudioPart",
    "VideoInputPart": "VideoPart",
    "DocumentInputPart": "DocumentPart",
}
"""The names of 0.x, and the present ones that they lead to. What is on the wire is the same."""

if TYPE_CHECKING:
    InputContent: TypeAlias = ContentPart
    TextInputContent: TypeAlias = TextPart
    ImageInputContent: TypeAlias = ImagePart
    AudioInputContent: TypeAlias = AudioPart
    VideoInputContent: TypeAlias = VideoPart
    DocumentInputContent: TypeAlias = DocumentPart
    InputContentSource: TypeAlias = PartSource
    InputContentDataSource: TypeAlias = DataSource
    InputContentUrlSource: TypeAlias = UrlSource
    InputContentPart: TypeAlias = ContentPart
    ImageInputPart: TypeAlias = ImagePart
    AudioInputPart: TypeAlias = AudioPart
    VideoInputPart: TypeAlias = VideoPart
    DocumentInputPart: TypeAlias = DocumentPart
else:

    def __getattr__(name: str) -> Any:
        new = RENAMED.get(name)
        if new is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        warnings.warn(f"{name} is now {new}", DeprecationWarning, stacklevel=2)
        return globals()[new]
