"""Server-sent events: bytes to frames and events to bytes (http-sse page, HTTP-2 and HTTP-3).

Knows the framing and nothing of what a frame holds. Lines end with LF, CR or CRLF and with
nothing else; fields other than `data` and comments are passed over.
"""

from typing import Any, Final

from aguia.codec.json import encode
from aguia.protocol.errors import DecodeError

__all__ = ["CONTENT_TYPE", "MAX_FRAME", "SseDecoder", "encode_comment", "encode_event"]

CONTENT_TYPE: Final = "text/event-stream"

MAX_FRAME: Final = 64 * 1024 * 1024
"""How many bytes one event may have by default."""

_BOM: Final = b"\xef\xbb\xbf"


def encode_event(event: Any) -> bytes:
    """One event as one SSE frame with LF line ends."""
    return b"data: " + encode(event) + b"\n\n"


def encode_comment(text: str = "") -> bytes:
    """A comment frame, which every reader passes over; keeps idle connections open."""
    return b": " + text.replace("\r", " ").replace("\n", " ").encode() + b"\n\n"


class SseDecoder:
    """Cuts a body into the data of its events, however the bytes were split.

    `feed` gives the frames that its bytes complete; `check` raises `DecodeError` when the lines
    of the unfinished event are more than a frame of `max_frame` bytes needs (the whole frames
    are for the caller to measure); `end` gives what the body broke off with.
    """

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._buffer = bytearray()
        self._searched = 0
        self._after_cr = False
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes of the body and return the data of the events they complete."""
        if not self._started:
            data = self._skip_byte_order_mark(data)
        if self._after_cr or b"\r" in data:
            data = self._unify_line_ends(data)
        buffer = self._buffer
        if not buffer:
            # The usual case, in which a chunk ends where a frame ends, copies nothing.
            end = data.rfind(b"\n\n")
            if end >= 0:
                frames = _frames(data[:end])
                buffer += data[end + 2 :]
                self._searched = 0
                return frames
            buffer += data
        else:
            buffer += data
            end = buffer.rfind(b"\n\n", max(0, self._searched - 1))
            if end >= 0:
                frames = _frames(bytes(buffer[:end]))
                del buffer[: end + 2]
                self._searched = 0
                return frames
        self._drop_comments()
        self._searched = len(buffer)
        return []

    def check(self) -> None:
        """Raise `DecodeError` when the unfinished event is already too large."""
        # Field names, comments and line ends take some room besides the data.
        if len(self._buffer) > 2 * self._max_frame + 1024:
            raise DecodeError(f"an event is larger than {self._max_frame} bytes", rule=None)

    def end(self) -> bytes | None:
        """The data of the event that the body broke off in, if there is any."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return _data(rest)

    @property
    def broken_off(self) -> bool:
        """Never: an event that the body broke off in is none, and nothing of it counts."""
        return False

    def _skip_byte_order_mark(self, data: bytes) -> bytes:
        head = bytes(self._buffer) + data
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._buffer[:] = head
            return b""
        self._started = True
        self._buffer.clear()
        return head.removeprefix(_BOM)

    def _unify_line_ends(self, data: bytes) -> bytes:
        if self._after_cr and data:
            self._after_cr = False
            # The line end was already counted when its CR came.
            data = data.removeprefix(b"\n")
        if data.endswith(b"\r"):
            self._after_cr = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _drop_comments(self) -> None:
        buffer = self._buffer
        while buffer.startswith(b":"):
            end = buffer.find(b"\n")
            if end < 0:
                # What is left of an unfinished comment only has to look like one.
                del buffer[1:]
                return
            del buffer[: end + 1]


def _frames(block: bytes) -> list[bytes]:
    if block.startswith(b"data: "):
        # Nearly every block is nothing but events of one data line each.
        frames = block[6:].split(b"\n\ndata: ")
        if block.count(b"\n") == 2 * (len(frames) - 1):
            return frames if all(frames) else [data for data in frames if data]
    return [data for event in block.split(b"\n\n") if (data := _data(event))]


def _data(event: bytes) -> bytes | None:
    lines = []
    for line in event.split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if lines else None
