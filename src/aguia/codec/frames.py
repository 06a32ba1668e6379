"""The framing of the binary binding: four bytes of length, big-endian, and that many bytes.

Knows nothing of what a frame holds, and needs no protobuf runtime.
"""

from typing import Final

from aguia.codec.sse import MAX_FRAME
from aguia.protocol.errors import DecodeError

__all__ = ["CONTENT_TYPE", "FrameDecoder", "encode_frame"]

CONTENT_TYPE: Final = "application/vnd.ag-ui.event+proto"

_HEADER: Final = 4


def encode_frame(message: bytes) -> bytes:
    """One message as one frame."""
    return len(message).to_bytes(_HEADER, "big") + message


class FrameDecoder:
    """Cuts a body into messages, however the bytes were split (PB-2).

    `feed` gives the messages that its bytes complete; `check` raises `DecodeError` as soon as
    the header of a frame announces more than a frame may have; `broken_off` tells whether the
    body ended in the middle of one.
    """

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._buffer = bytearray()
        self._too_large = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes of the body and return the messages they complete."""
        if self._too_large:
            return []
        buffer = self._buffer
        buffer += data
        frames: list[bytes] = []
        start, size = 0, len(buffer)
        while size - start >= _HEADER:
            length = int.from_bytes(buffer[start : start + _HEADER], "big")
            if length > self._max_frame:
                self._too_large = length
                buffer.clear()
                return frames
            stop = start + _HEADER + length
            if stop > size:
                break
            frames.append(bytes(buffer[start + _HEADER : stop]))
            start = stop
        if start:
            del buffer[:start]
        return frames

    def check(self) -> None:
        """Raise `DecodeError` when a frame is larger than it may be."""
        if self._too_large:
            raise DecodeError(
                f"an event of {self._too_large} bytes is larger than {self._max_frame}", rule=None
            )

    def end(self) -> bytes | None:
        """What the body broke off in can't be read: None always, see `broken_off`."""
        return None

    @property
    def broken_off(self) -> bool:
        """Whether the body so far ends in the middle of a frame."""
        return bool(self._buffer)
