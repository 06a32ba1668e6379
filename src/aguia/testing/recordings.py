"""Recorded streams: which format some bytes are in, and where one event ends and the next begins.

A recording is what somebody kept of a stream: JSON Lines, a JSON array (or objects one after
another, over several lines), a capture of server-sent events, or a body of the binary binding;
any of them compressed with gzip. Splitting takes as much memory as the largest event.

What `aguia record` and `aguia.middleware.Recorder` write is no stream, but runs with their inputs;
`aguia.testing.recorded` tells them apart.
"""

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import BinaryIO, Final, Literal, NamedTuple, TypeAlias, get_args

from aguia.codec.frames import FrameDecoder
from aguia.codec.sse import MAX_FRAME, SseDecoder
from aguia.protocol.errors import DecodeError

__all__ = [
    "FORMATS",
    "HEAD",
    "Format",
    "Frame",
    "Lines",
    "Splitter",
    "UnknownFormat",
    "read_blocks",
    "sniff",
]

Format: TypeAlias = Literal["sse", "jsonl", "json", "protobuf", "recorder"]
"""How a recording is written; `recorder` is runs with their inputs, line by line."""

FORMATS: Final[tuple[Format, ...]] = get_args(Format)

HEAD: Final = 64 * 1024
"""How many bytes are looked at to find out the format."""

_BLOCK: Final = 64 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS
_BOM: Final = b"\xef\xbb\xbf"
_RECORDED: Final = re.compile(
    rb'\{[ \t]*"at"[ \t]*:[ \t]*[-+.\deE]+[ \t]*,[ \t]*"(?:input|event)"[ \t]*:'
)
_SAVED: Final = re.compile(rb'\{\s*"threadId"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*"messages"\s*:')
_SSE_LINE: Final = re.compile(rb"(?:data|event|id|retry)(?::|\r?\n)|:")


class UnknownFormat(ValueError):
    """What a recording begins with is of no format that can be read."""


class Frame(NamedTuple):
    """The bytes of one event, and the line of the recording on which they begin, if any."""

    data: bytes
    line: int | None


def sniff(head: bytes) -> Format | None:
    """The format of a recording that begins with these bytes, or None when it can't be told."""
    if head[:1] == b"\x00":
        return "protobuf"  # the first byte of a length, which is never that large
    text = head.removeprefix(_BOM).lstrip()
    if text[:1] == b"[":
        return "json"
    if text[:1] == b"{":
        if _SAVED.match(text) or not text[1:].strip():
            return None
        if _RECORDED.match(text):
            return "recorder"  # also where its first line, which holds the input, is a long one
        line, newline, _ = text.partition(b"\n")
        try:
            json.loads(line)
        except (ValueError, RecursionError):
            # Either a line that is broken, or an object that goes on in the next one.
            return "json" if newline and line.rstrip()[-1:] in (b"{", b"[", b",") else "jsonl"
        return "jsonl"
    if _SSE_LINE.match(text):
        return "sse"
    return None


def read_blocks(file: BinaryIO) -> Iterator[bytes]:
    """The bytes of a file from where it stands, in blocks, uncompressed where it is gzip.

    Raises `OSError`, and `EOFError` or `zlib.error` for compressed data that is broken.
    """
    head = file.read(2)
    blocks = chain((head,), iter(partial(file.read, _BLOCK), b""))
    yield from _unpacked(blocks) if head == b"\x1f\x8b" else blocks


def _unpacked(blocks: Iterable[bytes]) -> Iterator[bytes]:
    member = zlib.decompressobj(_GZIP)
    for block in blocks:
        rest = block
        while rest:
            if member.eof:
                # Compressed files may follow one another, with zeros as padding.
                rest = rest.lstrip(b"\x00")
                if not rest:
                    break
                member = zlib.decompressobj(_GZIP)
            # A few bytes can stand for any number: they come out a block at a time.
            yield member.decompress(rest, _BLOCK)
            rest = member.unused_data if member.eof else member.unconsumed_tail
    if not member.eof:
        raise EOFError("it breaks off")


class Splitter:
    """Cuts a recording into events, however its bytes come.

    Args:
        format: of the recording; None finds it out from its beginning.
        max_frame: the largest event, in bytes.

    `feed` and `end` give the events; both raise `UnknownFormat`, and `DecodeError` for an
    unfinished event that is too large already. After `end`, `broken_off` tells whether the
    recording stops inside of an event.
    """

    def __init__(self, format: Format | None = None, max_frame: int = MAX_FRAME) -> None:
        self.format = format
        self.broken_off: bool = False
        self._max_frame = max_frame
        self._head = b""
        self._cut: _Cut | None = None

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take the next bytes; iterate the events that they complete."""
        if self._cut is None:
            self._head += data
            if self.format is None:
                decided = sniff(self._head) if b"\n" in self._head else None
                if decided is None and len(self._head) < HEAD:
                    return
            data = self._begin()
        assert self._cut is not None
        yield from self._cut.feed(data)

    def end(self) -> Iterator[Frame]:
        """Take note that there is no more; iterate the last events."""
        if self._cut is None:
            if not self._head.strip():
                return
            data = self._begin()
            assert self._cut is not None
            yield from self._cut.feed(data)
        rest = self._cut.end()
        if rest is not None:
            try:
                whole = isinstance(json.loads(rest.data), dict)
            except (ValueError, RecursionError):
                whole = False
            if whole:
                yield rest
            elif self.format != "sse":
                # What server-sent events break off in is no event, and says nothing (HTTP-3).
                self.broken_off = True
        self.broken_off = self.broken_off or self._cut.broken_off

    def _begin(self) -> bytes:
        data, self._head = self._head, b""
        if self.format is None:
            self.format = sniff(data)
        match self.format:
            case "sse":
                self._cut = _Sse(self._max_frame)
            case "jsonl":
                self._cut = Lines(self._max_frame)
            case "json":
                self._cut = _Values(self._max_frame)
            case "protobuf":
                self._cut = _Binary(self._max_frame)
            case "recorder":
                raise UnknownFormat(
                    "it holds runs with their inputs, as `aguia record` writes them, and is not "
                    "one stream; `aguia check` checks each of them"
                )
            case _:
                raise UnknownFormat(_unknown(data))
        return data


def _unknown(data: bytes) -> str:
    start = data[:24].decode("utf-8", "replace")
    if start.startswith("HTTP/"):
        return "it begins with the headers of an HTTP response; record the body alone"
    if _SAVED.match(data.removeprefix(_BOM).lstrip()):
        return (
            "it is a conversation, as /save in `aguia chat` and `Agent.history` keep it, and no "
            "stream of events; `aguia chat --load` goes on with it"
        )
    return (
        f"it begins with {start!r}, which is no JSON Lines, JSON array, server-sent events or "
        "binary body"
    )


class _Sse:
    """Server-sent events, line by line, so that the line of each is known."""

    broken_off = False

    def __init__(self, max_frame: int) -> None:
        self._decoder = SseDecoder(max_frame)
        self._line = 1
        self._head = b""
        """How the line that is being read begins."""
        self._first: int | None = None

    def feed(self, data: bytes) -> Iterator[Frame]:
        lines = data.split(b"\n")
        last = len(lines) - 1
        for number, piece in enumerate(lines):
            if len(self._head) < 4:
                self._head = (self._head + piece)[:4]
            if self._first is None and self._head == b"data":
                self._first = self._line
            whole = number < last
            for frame in self._decoder.feed(piece + b"\n" if whole else piece):
                yield Frame(frame, self._first or self._line)
            if whole:
                if self._head in (b"", b"\r"):
                    self._first = None
                self._line += 1
                self._head = b""
        self._decoder.check()

    def end(self) -> Frame | None:
        rest = self._decoder.end()
        return Frame(rest, self._first) if rest is not None else None


class Lines:
    """One JSON text a line; empty lines count for nothing."""

    broken_off = False

    def __init__(self, max_frame: int) -> None:
        """`max_frame` is the longest line, in bytes."""
        self._max_frame = max_frame
        self._parts: list[bytes] = []
        self._held = 0
        self._line = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take the next bytes; iterate the lines that they complete."""
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._line += 1
            text = b"".join((*self._parts, piece)) if self._parts else piece
            self._parts.clear()
            self._held = 0
            frame = self._frame(text)
            if frame is not None:
                yield frame
        if rest:
            self._parts.append(rest)
            self._held += len(rest)
            _check_size(self._held, self._max_frame)

    def end(self) -> Frame | None:
        """The last line, if no line end follows it."""
        self._line += 1
        return self._frame(b"".join(self._parts))

    def _frame(self, text: bytes) -> Frame | None:
        if self._line == 1:
            text = text.removeprefix(_BOM)
        text = text.strip()
        return Frame(text, self._line) if text else None


class _Values:
    """The elements of one JSON array, or JSON values one after another, over any lines."""

    broken_off = False
    _STRUCTURE: Final = re.compile(rb'["\[\]{},]')
    _IN_STRING: Final = re.compile(rb'["\\]')

    def __init__(self, max_frame: int) -> None:
        self._max_frame = max_frame
        self._buffer = bytearray()
        self._at = 0
        self._start = 0
        self._line = 1
        self._depth = 0
        self._floor: int | None = None
        """The depth at which the elements stand: 1 in an array, 0 without one."""
        self._in_string = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        buffer = self._buffer
        buffer += data
        if self._floor is None and not self._begin():
            return
        floor = self._floor
        size = len(buffer)
        while self._at < size:
            if self._in_string:
                match = self._IN_STRING.search(buffer, self._at)
                if match is None:
                    self._at = size
                elif match[0] == b"\\":
                    self._at = match.end() + 1
                else:
                    self._in_string = False
                    self._at = match.end()
                continue
            match = self._STRUCTURE.search(buffer, self._at)
            if match is None:
                self._at = size
                continue
            self._at = match.end()
            match match[0]:
                case b'"':
                    self._in_string = True
                case b"[" | b"{":
                    self._depth += 1
                case b",":
                    if self._depth == floor:
                        yield from self._cut(self._at - 1)
                case _:
                    self._depth -= 1
                    if self._depth < 0:
                        self._depth = 0
                    if self._depth == 0:
                        # The end of the array, or of one of several values.
                        yield from self._cut(self._at - floor if floor else self._at)
        del buffer[: self._start]
        self._at -= self._start
        self._start = 0
        _check_size(len(buffer), self._max_frame)

    def _begin(self) -> bool:
        text = self._buffer.lstrip(_BOM).lstrip()
        if not text:
            return False
        self._floor = 1 if text.startswith(b"[") else 0
        start = len(self._buffer) - len(text) + self._floor
        self._at = start
        self._depth = self._floor
        self._move(start)
        return True

    def _cut(self, stop: int) -> Iterator[Frame]:
        text = bytes(self._buffer[self._start : stop])
        lead = len(text) - len(text.lstrip())
        self._move(self._start + lead)
        line = self._line
        self._move(self._at)
        text = text.strip()
        if text:
            yield Frame(text, line)

    def _move(self, to: int) -> None:
        self._line += self._buffer.count(b"\n", self._start, to)
        self._start = to

    def end(self) -> Frame | None:
        rest = bytes(self._buffer).strip()
        return Frame(rest, self._line) if rest else None


class _Binary:
    """Frames of the binary binding."""

    def __init__(self, max_frame: int) -> None:
        self._decoder = FrameDecoder(max_frame)

    def feed(self, data: bytes) -> Iterator[Frame]:
        for frame in self._decoder.feed(data):
            yield Frame(frame, None)
        self._decoder.check()

    def end(self) -> Frame | None:
        return None

    @property
    def broken_off(self) -> bool:
        return self._decoder.broken_off


_Cut: TypeAlias = _Sse | Lines | _Values | _Binary


def _check_size(held: int, max_frame: int) -> None:
    if held > 2 * max_frame + 1024:
        raise DecodeError(f"an event is larger than {max_frame} bytes", rule=None)
