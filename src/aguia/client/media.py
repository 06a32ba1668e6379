"""Media parts of what the user says, from files, bytes and URLs.

    agent.run([TextPart(text="What is on it?"), image("board.jpg")])

Files are read at once, in the calling thread: in a program with an event loop, large ones are
better read with `await asyncio.to_thread(image, path)`.
"""

import binascii
import mimetypes
import os
import re
import stat
from base64 import b64encode
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

from aguia.codec.json import copy_value
from aguia.protocol.common import UNSET, JsonValue, UnsetType
from aguia.protocol.content import (
    AudioPart,
    DataSource,
    DocumentPart,
    FileSource,
    ImagePart,
    PartSource,
    UrlSource,
    VideoPart,
)

__all__ = ["MAX_BYTES", "Kind", "MediaSource", "audio", "document", "file_handle", "image", "video"]

MAX_BYTES: Final = 20 * 1024 * 1024
"""How many bytes a part may hold by default, before base64 adds a third."""

Kind: TypeAlias = Literal["image", "audio", "video", "document"]

MediaSource: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview
"""A path, a URL (`http:`, `https:` or `data:`), or the bytes themselves."""

Part: TypeAlias = ImagePart | AudioPart | VideoPart | DocumentPart
P = TypeVar("P", ImagePart, AudioPart, VideoPart, DocumentPart)


def image(
    source: MediaSource,
    *,
    mime_type: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_bytes: int = MAX_BYTES,
) -> ImagePart:
    """An image for the agent to see.

    Args:
        source: a path, a URL or the bytes. What a path or a `data:` URL names is taken into the
            part. An `http:` or `https:` URL goes as it is, for the agent to fetch. Any other
            string is a path.
        mime_type: overrules what is found out: from the first bytes, else from the name or from
            what a `data:` URL says. With a URL it is optional.
        metadata: sent along; the name of a file is added to it as `filename`.
        max_bytes: how large the content may be; a file that is larger is not read.

    Raises `ValueError` for content that is empty, too large or of another kind, whose type can't
    be told, or that is no regular file; `FileNotFoundError` and other `OSError`s with the path.
    """
    return _part(ImagePart, "image", source, mime_type, metadata, max_bytes)


def audio(
    source: MediaSource,
    *,
    mime_type: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_bytes: int = MAX_BYTES,
) -> AudioPart:
    """A sound recording for the agent to hear; see `image` for what goes in and what is raised."""
    return _part(AudioPart, "audio", source, mime_type, metadata, max_bytes)


def video(
    source: MediaSource,
    *,
    mime_type: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_bytes: int = MAX_BYTES,
) -> VideoPart:
    """A video for the agent to watch; see `image` for what goes in and what is raised."""
    return _part(VideoPart, "video", source, mime_type, metadata, max_bytes)


def document(
    source: MediaSource,
    *,
    mime_type: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_bytes: int = MAX_BYTES,
) -> DocumentPart:
    """A document for the agent to read: anything but an image, a sound or a video.

    See `image` for what goes in and what is raised.
    """
    return _part(DocumentPart, "document", source, mime_type, metadata, max_bytes)


def file_handle(
    value: str,
    provider: str | None = None,
    *,
    kind: Kind = "document",
    mime_type: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Part:
    """A file that already lies at a model provider, by the handle that the provider gave out.

    Args:
        value: the handle; nobody but the provider makes anything of it (TOOL-12).
        provider: who gave it out, such as "openai"; sent in lower case, as `TokenUsage` has it.
        kind: what the file is: "image", "audio", "video" or "document".
        mime_type: its type, where it is known.
        metadata: sent along; the place for an expiry.

    Raises `ValueError` for an empty handle, an unknown kind and a type of another kind.
    """
    if not isinstance(value, str) or not value:
        raise ValueError("a file handle is a string that is not empty")
    if kind not in _PARTS:
        raise ValueError(f"a file handle's kind is one of {', '.join(_PARTS)}, not {kind!r}")
    type_ = UNSET if mime_type is None else _checked(mime_type, kind)
    source = FileSource(value=value, provider=(provider or "").lower() or UNSET, mime_type=type_)
    return _PARTS[kind](source=source, metadata=_metadata(metadata, None))


_PARTS: Final[dict[str, type[Part]]] = {
    "image": ImagePart,
    "audio": AudioPart,
    "video": VideoPart,
    "document": DocumentPart,
}


def _part(
    part: type[P],
    kind: Kind,
    source: MediaSource,
    mime_type: str | None,
    metadata: Mapping[str, Any] | None,
    max_bytes: int,
) -> P:
    explicit = None if mime_type is None else _checked(mime_type, kind)
    filename: str | None = None
    found: PartSource
    if isinstance(source, bytes | bytearray | memoryview):
        found = _data(bytes(source), kind, explicit, None, max_bytes)
    elif isinstance(source, str) and _WEB.match(source):
        found = _url(source, kind, explicit)
    elif isinstance(source, str) and source[:5].lower() == "data:":
        content, declared = _data_url(source, max_bytes)
        found = _data(content, kind, explicit, declared, max_bytes)
    elif isinstance(source, str | os.PathLike):
        path = os.fsdecode(source)
        content = _read(path, max_bytes)
        # A name that is not in the system's encoding must not break the JSON around it.
        filename = os.fsencode(os.path.basename(path)).decode("utf-8", "replace")
        found = _data(content, kind, explicit, _type_of_name(filename), max_bytes, repr(path))
    else:
        raise TypeError(f"{kind}() takes a path, a URL or bytes, not {type(source).__name__}")
    return part(source=found, metadata=_metadata(metadata, filename))


def _metadata(given: Mapping[str, Any] | None, filename: str | None) -> JsonValue | UnsetType:
    metadata = {} if filename is None else {"filename": filename}
    if given is not None:
        metadata |= copy_value(given)
    elif not metadata:
        return UNSET
    return metadata


# What is there


def _read(path: str, max_bytes: int) -> bytes:
    """The content of a regular file, of which no more is read than may be sent."""
    if len(path) > _LONGEST_PATH:
        raise ValueError(
            f"no path has {len(path):,} characters; content is passed as bytes or a data: URL"
        )
    try:
        found = os.stat(path)
        _check_file(path, found, max_bytes)
        with open(path, "rb", opener=_open) as file:
            # It may have become another, or have grown.
            _check_file(path, os.fstat(file.fileno()), max_bytes)
            content = file.read(max_bytes + 1)
    except FileNotFoundError as error:
        if "://" not in path:
            raise
        raise FileNotFoundError(
            error.errno,
            "no such file (only http:, https: and data: URLs are URLs here; "
            "file_handle() is for what lies at a provider)",
            path,
        ) from None
    _check_size(len(content), max_bytes, repr(path))
    return content


_LONGEST_PATH: Final = 4_096


def _open(path: str, flags: int) -> int:
    # Not to be kept waiting by a pipe that has taken the file's place.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check_file(path: str, found: os.stat_result, max_bytes: int) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise ValueError(f"{path!r} is a directory, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path!r} is no regular file")
    _check_size(found.st_size, max_bytes, repr(path))


def _check_size(size: int, max_bytes: int, what: str) -> None:
    if size > max_bytes:
        raise ValueError(f"{what} is larger than the {max_bytes:,} bytes that max_bytes allows")


def _data_url(url: str, max_bytes: int) -> tuple[bytes, str]:
    """The content of a `data:` URL, and the type that it declares."""
    head, comma, text = url[5:].partition(",")
    if not comma:
        raise ValueError("a data: URL has a comma before its content")
    declared, semicolon, last = head.rpartition(";")
    encoded = semicolon != "" and last.strip().lower() == "base64"
    if not encoded:
        declared = head
    content = unquote_to_bytes(text)
    if encoded:
        content = b"".join(content.split())
        _check_size(len(content) * 3 // 4 - 2, max_bytes, "the data: URL")
        content = content.rstrip(b"=")
        try:
            content = binascii.a2b_base64(content + b"=" * (-len(content) % 4), strict_mode=True)
        except binascii.Error as error:
            raise ValueError(f"the data: URL holds no base64: {error}") from None
    declared = declared.strip()
    if declared.startswith(";"):
        declared = f"text/plain{declared}"
    return content, declared or "text/plain"


def _url(url: str, kind: Kind, explicit: str | None) -> UrlSource:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        raise ValueError(f"the URL can't be read: {error}") from None
    if not host:
        raise ValueError("the URL names no host")
    if any(char.isspace() or not char.isprintable() for char in url):
        raise ValueError("the URL holds white space or control characters; percent-encode them")
    type_ = explicit or _type_of_name(parts.path)
    # What a path looks like proves nothing, so it neither refuses nor misleads.
    if type_ is None or not _fits(type_, kind):
        return UrlSource(value=url)
    return UrlSource(value=url, mime_type=type_)


def _data(
    content: bytes,
    kind: Kind,
    explicit: str | None,
    named: str | None,
    max_bytes: int,
    what: str = "the content",
) -> DataSource:
    if not content:
        raise ValueError(f"{what} is empty")
    _check_size(len(content), max_bytes, what)
    type_ = explicit
    if type_ is None:
        sniffed = _sniffed(content)
        # One container may hold several kinds: the first is what it most often is.
        type_ = next((each for each in sniffed if _fits(each, kind)), None)
        type_ = _checked(type_ or (sniffed[0] if sniffed else named), kind, what)
    return DataSource(value=b64encode(content).decode("ascii"), mime_type=type_)


# What type it has

_WEB: Final = re.compile("https?://", re.IGNORECASE)
_TYPE: Final = re.compile(r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}", re.ASCII)


def _checked(type_: str | None, kind: Kind, what: str = "") -> str:
    """The MIME type, if it is one and of this kind."""
    if type_ is None:
        raise ValueError(f"the type of {what} can't be told; pass its mime_type")
    essence = type_.partition(";")[0].strip()
    if not _TYPE.fullmatch(essence) or not type_.isprintable():
        raise ValueError(f"{type_[:80]!r} is no MIME type, such as 'image/png'")
    if not _fits(essence, kind):
        right = _kind_of(essence)
        given = f"{what} is {essence}" if what else f"{essence} was given"
        raise ValueError(f"{given}, which is no {kind}; use {right}()")
    return type_.strip()


def _fits(type_: str, kind: Kind) -> bool:
    return _kind_of(type_) == kind


def _kind_of(type_: str) -> str:
    family = type_.partition("/")[0].strip().lower()
    return family if family in ("image", "audio", "video") else "document"


_NAMES: Final = {
    ".avif": "image/avif",
    ".csv": "text/csv",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".flac": "audio/flac",
    ".heic": "image/heic",
    ".heif": "image/heif",
    ".jsonl": "application/jsonl",
    ".m4a": "audio/mp4",
    ".md": "text/markdown",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".wav": "audio/wav",
    ".webm": "video/webm",
    ".webp": "image/webp",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
"""What `mimetypes` does not know, or says differently from one system to the next."""


def _type_of_name(name: str) -> str | None:
    suffix = PurePath(name).suffix.lower()
    if suffix in _NAMES:
        return _NAMES[suffix]
    type_, encoding = mimetypes.guess_type(f"file{suffix}")
    # What is compressed is not of the type that its content has.
    return type_ if encoding is None else None


_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"\x00\x00\x01\x00", "image/vnd.microsoft.icon"),
    (b"\x00\x00\x00\x0cJXL \r\n\x87\n", "image/jxl"),
    (b"%PDF-", "application/pdf"),
    (b"{\\rtf", "application/rtf"),
    (b"fLaC\x00", "audio/flac"),
    (b"MThd\x00\x00\x00\x06", "audio/midi"),
    (b"\x00\x00\x01\xba", "video/mpeg"),
    (b"\x00\x00\x01\xb3", "video/mpeg"),
)
_RIFF: Final = {b"WAVE": "audio/wav", b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}
_BRANDS: Final = {
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"hevc": "image/heic",
    b"hevx": "image/heic",
    b"mif1": "image/heif",
    b"msf1": "image/heif",
    b"qt  ": "video/quicktime",
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
}


def _sniffed(content: bytes) -> tuple[str, ...]:
    """The types that the first bytes speak for, the likeliest first; none for what is unknown."""
    head = content[:64]
    for magic, type_ in _MAGIC:
        if head.startswith(magic):
            return (type_,)
    if head.startswith(b"RIFF") and head[8:12] in _RIFF:
        return (_RIFF[head[8:12]],)
    if head[4:8] == b"ftyp":
        brand = _BRANDS.get(head[8:12])
        return (brand,) if brand else ("video/mp4", "audio/mp4")
    if head.startswith(b"OggS\x00"):
        return ("audio/ogg", "video/ogg")
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        subtype = "webm" if b"webm" in head else "x-matroska"
        return (f"video/{subtype}", f"audio/{subtype}")
    # The weak ones, made certain by what else a header holds.
    if head.startswith(b"BM") and head[6:10] == b"\x00" * 4:
        return ("image/bmp",)
    if head.startswith(b"ID3") and len(head) > 9 and head[3] < 0x10 and max(head[6:10]) < 0x80:
        return ("audio/mpeg",)
    if len(head) > 2 and head[0] == 0xFF:
        if head[1] & 0xF6 == 0xF0:
            return ("audio/aac",)
        # Neither the layer nor the bit rate nor the sampling rate is a reserved value.
        if head[1] & 0xE6 == 0xE2 and head[2] & 0xF0 != 0xF0 and head[2] & 0x0C != 0x0C:
            return ("audio/mpeg",)
    return ()
