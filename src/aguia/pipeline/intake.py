"""The way in for middleware around whole runs: the bytes of one body to events nobody has judged.

`Consumer` reads bodies in one go. Where something stands between the body and the consumer, this
is what stands before it: framing, the strict decode, and the compatibility boundary where that
fails (PROC-7). It knows nothing of what the events mean.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from aguia.codec import frames, sse
from aguia.codec.json import (
    MAX_DEPTH,
    STRICT_FAILURES,
    convert_event,
    decode_event,
    nests_deeper_than,
    parse_object,
)
from aguia.codec.negotiation import media_type_of
from aguia.pipeline.compatibility import Compatibility
from aguia.pipeline.middleware import Item
from aguia.pipeline.warn import Warn
from aguia.protocol.errors import DecodeError, ProtocolViolation, ProtocolWarning, TruncatedRun
from aguia.protocol.events import Event, RunStartedEvent

__all__ = ["Intake"]


class Intake:
    """Reads one body.

    Args:
        content_type: of the body: server-sent events or the binary binding's.
        warn: is told of what the compatibility boundary translates.
        max_event_bytes, max_depth: the largest event, and its deepest nesting, that is read.

    Raises `ValueError` for a content type that it can't read.
    """

    def __init__(
        self,
        content_type: str,
        warn: Warn,
        *,
        max_event_bytes: int = sse.MAX_FRAME,
        max_depth: int = MAX_DEPTH,
    ) -> None:
        media_type = media_type_of(content_type)
        self._framing: sse.SseDecoder | frames.FrameDecoder
        self._decode_binary: Callable[[bytes, int], dict[str, Any] | None] | None = None
        if media_type == sse.CONTENT_TYPE:
            self._framing = sse.SseDecoder(max_event_bytes)
        elif media_type == frames.CONTENT_TYPE:
            from aguia.codec import protobuf

            self._framing = frames.FrameDecoder(max_event_bytes)
            self._decode_binary = protobuf.decode_event
        else:
            raise ValueError(f"can't read the content type {media_type!r}")
        self._warn_of = warn
        self._compatibility = Compatibility(self._warn)
        self._max_event_bytes = max_event_bytes
        self._max_depth = max_depth
        self._index = -1

    def receive(self, data: bytes) -> Iterator[Item]:
        """Take the next bytes and iterate the events that they complete.

        Raises `DecodeError` while being iterated, for what is no event at all.
        """
        for frame in self._framing.feed(data):
            yield from self._read(frame)
        self._framing.check()

    def end(self) -> Iterator[Item]:
        """Take note that the body has ended; iterate the last events, if any.

        Raises `TruncatedRun` when it ended in the middle of an event (RUN-11).
        """
        rest = self._framing.end()
        if rest is not None:
            try:
                parse_object(rest, self._max_depth)
            except DecodeError:
                rest = None
        yield from self._read(rest) if rest is not None else ()
        if self._framing.broken_off:
            raise TruncatedRun(
                f"the stream broke off in the middle of an event, after event {self._index}"
            )

    def _read(self, frame: bytes) -> Iterator[Item]:
        self._index += 1
        try:
            item = self._item(frame)
        except ProtocolViolation as error:
            if error.index is None:
                error.index = self._index
            raise
        if item is not None:
            yield item

    def _item(self, frame: bytes) -> Item | None:
        if len(frame) > self._max_event_bytes:
            raise DecodeError(f"an event is larger than {self._max_event_bytes} bytes", rule=None)
        if self._decode_binary is not None:
            raw = self._decode_binary(frame, self._max_depth)
            if raw is None:
                self._warn(
                    ProtocolWarning(
                        stage="transport",
                        rule="PB-2",
                        message="dropped an event of a kind that has no name in this version; "
                        "a newer one of aguia may know it",
                    )
                )
                return None
            try:
                return self._typed(convert_event(raw))
            except msgspec.ValidationError:
                return self._compatibility.translate(raw)
        if nests_deeper_than(frame, self._max_depth):
            raise DecodeError(f"the frame nests deeper than {self._max_depth} levels", rule=None)
        try:
            return self._typed(decode_event(frame))
        except STRICT_FAILURES:
            return self._compatibility.translate(parse_object(frame, self._max_depth))

    def _typed(self, event: Event) -> Event:
        if isinstance(event, RunStartedEvent):
            self._compatibility.forget()
        return event

    def _warn(self, warning: ProtocolWarning) -> None:
        self._warn_of(msgspec.structs.replace(warning, index=self._index))
