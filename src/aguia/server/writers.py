"""Events on their way into a response: one writer a binding, one object a stream."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from aguia.codec import frames, sse
from aguia.codec.negotiation import admits
from aguia.pipeline.text import TextJoiner
from aguia.protocol.events import Event

try:
    from aguia.codec import protobuf
except ImportError:  # the extra `aguia[protobuf]` is not installed: its binding isn't offered
    HAS_PROTOBUF = False
else:
    HAS_PROTOBUF = True

__all__ = ["HAS_PROTOBUF", "BinaryWriter", "SseWriter", "Writer", "writer_for"]

_KEEP_ALIVE: Final = sse.encode_comment("keep-alive")


class Writer(Protocol):
    """Writes the events of one stream in one binding."""

    content_type: str

    def events(self, events: Sequence[Event]) -> bytes:
        """The events, in order. Raises `ValueError` for what the binding can't express."""

    def silence(self) -> bytes:
        """What tells a waiting reader that the connection lives; empty if nothing does."""


class SseWriter:
    """Server-sent events (HTTP-2)."""

    content_type = sse.CONTENT_TYPE

    def events(self, events: Sequence[Event]) -> bytes:
        """See `Writer`."""
        return b"".join([sse.encode_event(event) for event in events])

    def silence(self) -> bytes:
        """See `Writer`."""
        return _KEEP_ALIVE


class BinaryWriter:
    """Length-prefixed protobuf (PB-2). That binding knows no comments."""

    content_type = frames.CONTENT_TYPE

    def __init__(self) -> None:
        # Protobuf text is UTF-8, which can't hold half a character: halves are joined here.
        self._text = TextJoiner()

    def events(self, events: Sequence[Event]) -> bytes:
        """See `Writer`."""
        return b"".join(
            [protobuf.encode_event(whole) for event in events for whole in self._text.join(event)]
        )

    def silence(self) -> bytes:
        """See `Writer`."""
        return b""


def writer_for(accept: Iterable[str]) -> Writer:
    """The writer for a client's `Accept` headers: the binary one when they admit it (PB-1)."""
    if HAS_PROTOBUF and admits(accept, frames.CONTENT_TYPE):
        return BinaryWriter()
    return SseWriter()
