"""The reading side, sans I/O: bytes in, trusted events and a conversation out.

`Consumer` runs every event through the whole processing model in its order (PROC-7): framing,
strict decode, and where that fails compatibility and enforcement; then chunk expansion,
verification and the conversation. It performs no input or output and needs no event loop.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from aguia.codec import frames, sse
from aguia.codec.json import (
    MAX_DEPTH,
    STRICT_FAILURES,
    convert_event,
    copy_value,
    decode_event,
    nests_deeper_than,
    parse_object,
)
from aguia.codec.negotiation import media_type_of
from aguia.conversation import Conversation
from aguia.pipeline.chunks import ChunkExpander
from aguia.pipeline.compatibility import (
    Compatibility,
    noting,
    upgrade_input,
    upgrade_message,
)
from aguia.pipeline.downgrade import parse_peer_version, without_subagents
from aguia.pipeline.enforcement import enforce_event, enforce_input, enforce_list
from aguia.pipeline.middleware import Middleware, run_middleware
from aguia.pipeline.text import TextJoiner
from aguia.pipeline.verification import MAX_OPEN_ITEMS, Phase, Verifier
from aguia.pipeline.versions import judge_producer
from aguia.protocol.common import UNSET
from aguia.protocol.errors import (
    DecodeError,
    InvalidInput,
    MalformedEvent,
    ProtocolViolation,
    ProtocolWarning,
    TruncatedRun,
)
from aguia.protocol.events import Event, RunStartedEvent
from aguia.protocol.input import RunAgentInput
from aguia.protocol.messages import Message
from aguia.protocol.outcomes import Interrupt

__all__ = ["Consumer"]

_logger: Final = logging.getLogger("aguia")


class Consumer:
    """Reads one stream of events and builds the conversation from it.

    Args:
        input: the run input that the stream answers, if it is known: what the thread holds
            and the state that deltas amend come from it, unless the next two say otherwise.
        messages: what the thread holds already, in place of the input's messages if there are any.
        state: the state that the run starts from, in place of the input's.
        interrupts: those that an earlier run left open (CONV-4).
        content_type: of the body that `receive` is given: server-sent events, or with the
            extra `aguia[protobuf]` the binary binding's.
        middleware: callables that see each event before enforcement, or classes of such
            callables, of which each stream gets its own; see `aguia.pipeline.middleware`.
        peer_version: the version of a peer that is known to be old, such as "0.0.57"; its
            stream is read as that version meant it (VER-3).
        on_warning: is called with each `ProtocolWarning`. Warnings go to the `aguia` logger
            as well; `logging.getLogger("aguia").setLevel(logging.ERROR)` silences that.
        max_event_bytes, max_depth: the largest event, and its deepest nesting, that is read.
        max_open_items: how many messages, calls, steps and the like may be open at once.
        judged: whether input, messages, state and interrupts are typed, and have been judged by
            whoever gives them, like those of an earlier stream: they are taken as they are
            then, which in a long thread is most of what reading a short stream costs.

    Raises `ValueError` for a content type that it can't read, `ImportError` for the binary one
    without its extra, and `InvalidInput` for plain
    values that are no valid wire values.

    What was delivered before a violation has been yielded and applied before the exception
    is raised; afterwards every call raises that violation again.
    """

    def __init__(
        self,
        input: RunAgentInput | dict[str, Any] | None = None,
        *,
        messages: Iterable[Message | dict[str, Any]] = (),
        state: Any = UNSET,
        interrupts: Iterable[Interrupt | dict[str, Any]] = (),
        content_type: str = sse.CONTENT_TYPE,
        middleware: Sequence[Middleware | type[Any]] = (),
        peer_version: str | None = None,
        on_warning: Callable[[ProtocolWarning], None] | None = None,
        max_event_bytes: int = sse.MAX_FRAME,
        max_depth: int = MAX_DEPTH,
        max_open_items: int = MAX_OPEN_ITEMS,
        judged: bool = False,
    ) -> None:
        media_type = media_type_of(content_type)
        if media_type not in (sse.CONTENT_TYPE, frames.CONTENT_TYPE):
            raise ValueError(
                f"can't read the content type {media_type!r}, only {sse.CONTENT_TYPE} "
                f"and {frames.CONTENT_TYPE}"
            )
        self._on_warning = on_warning
        self._waiting: deque[bytes | Event | dict[str, Any]] = deque()
        self._taken = 0  # how many events have come in, those that wait among them
        request: RunAgentInput | None
        held: list[Message]
        asked: list[Interrupt]
        if judged and not isinstance(input, dict):
            request, held, asked = input, list(messages), list(interrupts)  # type: ignore[arg-type]
        else:
            request = self._judge_input(input)
            held = self._judge_messages(messages)
            asked = enforce_list(interrupts, Interrupt, self._warn, "/interrupts")
            if state is not UNSET:
                try:
                    state = copy_value(state, max_depth)
                except ValueError as error:
                    raise InvalidInput(str(error), rule="PROC-3", path="/state") from None
        if request is not None:
            held = held or list(request.messages)
            if state is UNSET:
                state = {} if request.state is UNSET else request.state
        self._max_event_bytes = max_event_bytes
        self._max_depth = max_depth
        # A frame that is no longer than this can break neither limit.
        self._small = min(max_event_bytes, max_depth)
        self._framing: sse.SseDecoder | frames.FrameDecoder
        self._decode_binary: Callable[[bytes, int], dict[str, Any] | None] | None = None
        if media_type == sse.CONTENT_TYPE:
            self._framing = sse.SseDecoder(max_event_bytes)
        else:
            # Loaded only here, since the protobuf runtime is an extra.
            from aguia.codec import protobuf

            self._framing = frames.FrameDecoder(max_event_bytes)
            self._decode_binary = protobuf.decode_event
        self._compatibility = Compatibility(self._warn)
        chain: list[Middleware] = []
        if peer_version is not None:
            old = without_subagents(parse_peer_version(peer_version), self._warn)
            if old is not None:
                chain.append(old)
        # A class is middleware with a state of its own for each stream.
        chain += [item() if isinstance(item, type) else item for item in middleware]
        self._middleware = tuple(chain)
        self._chunks = ChunkExpander()
        self._text = TextJoiner()
        self._verifier = Verifier(
            self._warn,
            thread_id=request.thread_id if request is not None else None,
            run_id=request.run_id if request is not None else None,
            max_open_items=max_open_items,
        )
        self.conversation: Conversation = Conversation(
            held,
            state,
            interrupts=asked,
            warn=self._warn,
        )
        self._current: Iterator[Event] | None = None
        self._ended = False
        self._failure: Exception | None = None

    # What a program has stored may be from before 1.0, like what a peer sends (VER-4).

    def _judge_input(self, input: RunAgentInput | dict[str, Any] | None) -> RunAgentInput | None:
        if input is None:
            return None
        if isinstance(input, dict):
            input = upgrade_input(input, noting(self._warn, only_losses=True))
        return enforce_input(input, self._warn)

    def _judge_messages(self, messages: Iterable[Message | dict[str, Any]]) -> list[Message]:
        note = noting(self._warn, only_losses=True)
        given = [
            upgrade_message(message, f"/messages/{index}", note)
            for index, message in enumerate(messages)
        ]
        return enforce_list(given, Message, self._warn, "/messages")

    def receive(self, data: bytes | bytearray | memoryview) -> Iterator[Event]:
        """Take the next bytes of the body, split anyhow; iterate the events they complete.

        The events come expanded, verified and already applied to the conversation. What an
        abandoned iteration leaves over comes first out of the next call's. Raises a
        `ProtocolViolation` while being iterated.
        """
        if not isinstance(data, bytes):
            if not isinstance(data, bytearray | memoryview):
                raise TypeError(f"a body is bytes, not {type(data).__name__}")
            data = bytes(data)
        if self._failure is None:
            frames_ = self._framing.feed(data)
            self._taken += len(frames_)
            self._waiting.extend(frames_)
        return self._drain(self._framing.check)

    def receive_event(self, event: Event | dict[str, Any]) -> Iterator[Event]:
        """Take the next event as a typed value or as plain JSON; iterate like `receive`.

        A plain value is copied, so the caller may go on changing it.
        """
        self._taken += 1
        self._waiting.append(event)
        return self._drain(None)

    def end(self) -> Iterator[Event]:
        """Take note that the body has ended; iterate the last events, if any.

        Raises `TruncatedRun` while being iterated when no terminal event has come (RUN-11).
        """
        rest = self._framing.end()
        if rest is not None and self._failure is None:
            try:
                parse_object(rest, self._max_depth)
            except DecodeError:
                pass  # the body broke off in the middle of an event
            else:
                self._taken += 1
                self._waiting.append(rest)
        return self._drain(self._finish)

    @property
    def _index(self) -> int:
        """The index in the stream of the event that is being read, or was read last."""
        return self._taken - len(self._waiting) - 1

    def _finish(self) -> None:
        if self._ended:
            return
        if self._framing.broken_off:
            raise TruncatedRun(
                f"the stream broke off in the middle of an event, after event {self._index}"
            )
        if self._verifier.phase is Phase.ACTIVE:
            raise TruncatedRun(
                f"the stream ended after event {self._index} and the run "
                f"'{self.conversation.run_id}' had not ended"
            )
        if self._verifier.phase is Phase.BEFORE:
            raise TruncatedRun("the stream ended before any event had come")
        self._ended = True
        self._verifier.end()

    def _drain(self, at_end: Callable[[], None] | None) -> Iterator[Event]:
        if self._failure is not None:
            raise self._failure
        check = self._verifier.check
        apply = self.conversation.apply
        check_for = self._verifier.checks.get
        apply_for = self.conversation.appliers.get
        lanes = self._chunks.lanes
        halves = self._text.halves
        staged = bool(self._middleware)
        small = self._small
        binary = self._decode_binary is not None
        waiting = self._waiting
        take = waiting.popleft
        try:
            while True:
                if self._current is not None:
                    for event in self._current:
                        check(event)
                        apply(event)
                        yield event
                    self._current = None
                if not waiting:
                    break
                frame = take()
                if binary or type(frame) is not bytes:
                    self._current = self._from_other(frame)
                    continue
                if len(frame) > small:
                    self._check_size(frame)
                try:
                    event = decode_event(frame)
                except STRICT_FAILURES:
                    self._current = self._from_frame(frame)
                    continue
                kind = type(event)
                check_event = check_for(kind)
                if check_event is None or staged or lanes or halves:
                    self._current = self._from_typed(event)
                    continue
                # Nothing between the decoder and verification has anything to do with it; what
                # always has, chunks and the start of a run, is not in the table.
                check_event(event)
                apply_event = apply_for(kind)
                if apply_event is not None:
                    apply_event(event)
                yield event
            if at_end is not None:
                at_end()
        except ProtocolViolation as error:
            if error.index is None:
                error.index = max(self._index, 0)
            self._failure = error
            raise
        except Exception as error:
            # Middleware, or whoever is warned, has failed: the event it was about is lost, and a
            # stream that lost one must not go on as if nothing had happened.
            self._failure = error
            raise

    def _check_size(self, frame: bytes) -> None:
        if len(frame) > self._max_event_bytes:
            raise DecodeError(f"an event is larger than {self._max_event_bytes} bytes", rule=None)
        if nests_deeper_than(frame, self._max_depth):
            raise DecodeError(f"the frame nests deeper than {self._max_depth} levels", rule=None)

    # From what came in to events that verification can judge

    def _from_frame(self, frame: bytes) -> Iterator[Event]:
        yield from self._from_raw(parse_object(frame, self._max_depth))

    def _from_other(self, item: bytes | Event | dict[str, Any]) -> Iterator[Event]:
        return self._from_binary(item) if type(item) is bytes else self._from_program(item)

    def _from_binary(self, frame: bytes) -> Iterator[Event]:
        assert self._decode_binary is not None
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
            return
        try:
            event = convert_event(raw)
        except msgspec.ValidationError:
            yield from self._from_raw(raw)
        else:
            yield from self._from_typed(event)

    def _from_program(self, value: Any) -> Iterator[Event]:
        raw = self._plain(value)
        try:
            event = convert_event(raw)
        except (msgspec.ValidationError, UnicodeEncodeError):
            yield from self._from_raw(raw)
        else:
            yield from self._from_typed(event, whole=False)

    def _plain(self, value: Any) -> dict[str, Any]:
        # A typed value is only as good as who made it, since nobody checks its attributes then.
        try:
            raw = copy_value(value, self._max_depth)
        except ValueError as error:
            raise MalformedEvent(str(error), rule="PROC-3", path="") from None
        if not isinstance(raw, dict):
            raise DecodeError("an event is a JSON object", rule="EVT-1")
        return raw

    def _from_raw(self, raw: dict[str, Any]) -> Iterator[Event]:
        for item in run_middleware(self._middleware, self._compatibility.translate(raw)):
            yield from self._enforced(item)

    def _from_typed(self, event: Event, *, whole: bool = True) -> Iterator[Event]:
        if not self._middleware:
            yield from self._expanded(event, whole=whole)
            return
        for item in run_middleware(self._middleware, event):
            if item is event:
                yield from self._expanded(event, whole=whole)
            else:
                yield from self._enforced(item)

    def _enforced(self, item: Any) -> Iterator[Event]:
        # What has been in the hands of middleware may hold anything, and others may hold it.
        raw = self._plain(item) if self._middleware else item
        event = enforce_event(raw, self._warn)
        if event is not None:
            yield from self._expanded(event, whole=False)

    def _expanded(self, event: Event, *, whole: bool) -> Iterator[Event]:
        """Expand chunks; `whole` promises that no text in the event is half a character."""
        if isinstance(event, RunStartedEvent):
            self._text.forget()
            self._compatibility.forget()
            warning = judge_producer(event)
            if warning is not None:
                self._warn(warning)
        for expanded in self._chunks.expand(event):
            if whole and not self._text.halves:
                yield expanded
            else:
                yield from self._text.join(expanded)

    def _warn(self, warning: ProtocolWarning) -> None:
        if warning.index is None and self._index >= 0:
            warning = msgspec.structs.replace(warning, index=self._index)
        _logger.warning("%s", warning)
        if self._on_warning is not None:
            self._on_warning(warning)
