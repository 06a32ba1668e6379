"""Checks a whole stream, sans I/O: every fault of it, and each once.

A reader stops at the first violation. `Checker` sends the events through the same stages in the
same order (PROC-7), notes what they raise and warn of as findings, and mends what the fault left
behind, in the way that makes the least noise: a malformed event still opens or closes what it
names, content of an item that nobody opened opens it, what is left open is closed. What can be
explained by an earlier fault is no finding of its own. So the first error is always the one for
which `Consumer` rejects the stream, and there is one exactly when it does.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from aguia.codec.json import (
    MAX_DEPTH,
    STRICT_FAILURES,
    convert_event,
    copy_value,
    decode_event,
    nests_deeper_than,
    parse_object,
)
from aguia.codec.sse import MAX_FRAME
from aguia.conversation import Conversation
from aguia.interop.values import plain_model
from aguia.pipeline.compatibility import Compatibility, noting, upgrade_input
from aguia.pipeline.downgrade import parse_peer_version, without_subagents
from aguia.pipeline.enforcement import enforce_event, enforce_input
from aguia.pipeline.middleware import Middleware, run_middleware
from aguia.pipeline.verification import Phase
from aguia.pipeline.versions import judge_producer
from aguia.protocol.common import UNSET
from aguia.protocol.errors import (
    DecodeError,
    MalformedEvent,
    ProtocolViolation,
    ProtocolWarning,
)
from aguia.protocol.events import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    Event,
    MessagesSnapshotEvent,
    ReasoningMessageContentEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    ToolCallArgsEvent,
)
from aguia.protocol.input import RunAgentInput
from aguia.testing.collector import Collector
from aguia.testing.doubts import Doubt, Doubts
from aguia.testing.findings import PAGES, Finding, explain, page_of
from aguia.testing.recordings import Format, Frame, Splitter
from aguia.testing.recovery import Recovery
from aguia.testing.repair import mend

__all__ = ["Checker"]

MAX_FINDINGS: Final = 1000
"""How many different errors, and how many warnings, are kept by default."""

_MAX_FAULTS: Final = 8
"""How many faults of one event are reported."""

_CONTENTS: Final[dict[type[Any], str]] = {
    TextMessageContentEvent: "message_id",
    ReasoningMessageContentEvent: "message_id",
    ToolCallArgsEvent: "tool_call_id",
}

"""The events whose text is not kept, and the attribute that names their item."""

_BUILT_UPON: Final = (
    MessagesSnapshotEvent,
    StateSnapshotEvent,
    StateDeltaEvent,
    ActivitySnapshotEvent,
    ActivityDeltaEvent,
    RunStartedEvent,
)
"""Events whose content decides whether later ones apply."""


class Checker:
    """Checks one stream.

    Args:
        input: the run input that the stream answers, if it is known; it decides what state
            deltas amend, which tools are the frontend's and which run was asked for.
        format: of the bytes given to `receive`; None finds it out from the first of them.
        peer_version: the version of a producer that is known to be old, as for `Consumer`.
        max_event_bytes, max_depth: the largest event, and its deepest nesting, that is read.
        max_findings: how many different errors, and how many warnings, are kept; further ones
            are only counted.
        context: how many events before and after a culprit `excerpts` keeps.

    Raises `InvalidInput` for a malformed input and `ImportError` for the binary format without
    the extra `aguia[protobuf]`.

    Memory is bounded by the largest event and the number of ids, however long the stream is.
    """

    def __init__(
        self,
        input: RunAgentInput | dict[str, Any] | None = None,
        *,
        format: Format | None = "sse",
        peer_version: str | None = None,
        max_event_bytes: int = MAX_FRAME,
        max_depth: int = MAX_DEPTH,
        max_findings: int = MAX_FINDINGS,
        context: int = 0,
    ) -> None:
        self._max_event_bytes = max_event_bytes
        self._max_depth = max_depth
        self._splitter = Splitter(format, max_event_bytes)
        if format == "protobuf":
            # Its import says what to install where the runtime is missing.
            import aguia.codec.protobuf  # noqa: F401
        self._stuck = False
        """Whether nobody knows any more where events begin."""
        self._ended = False
        self._carriage_return = False
        self._found = Collector(max_findings, context)

        if isinstance(input, dict):
            input = upgrade_input(input, noting(_ignore))
        request = enforce_input(input, _ignore) if input is not None else None
        self._compatibility = Compatibility(self._warn)
        self._is_old = peer_version is not None
        self._middleware: tuple[Middleware, ...] = ()
        if peer_version is not None:
            old = without_subagents(parse_peer_version(peer_version), self._warn)
            self._middleware = (old,) if old is not None else ()
        self._recovery = Recovery(self._found, self._warn, self._accept, request)
        self._conversation = Conversation(
            list(request.messages) if request is not None else (),
            UNSET if request is None else {} if request.state is UNSET else request.state,
            warn=self._warn_of_conversation,
        )
        self._doubts = Doubts(self._doubt, request)

        self._quiet = False
        """Whether what the conversation says of the event at hand is nobody's fault."""
        self._written: set[tuple[type[Any], str]] = set()
        """The items that are written to, and are known to be in the conversation."""
        self._snapshots = 0
        self._state_in_doubt = False
        """Whether a fault has lost something of the state, so that patches may not apply."""
        self._messages_in_doubt = False
        """The same for messages and activities."""

    @property
    def findings(self) -> list[Finding]:
        """What was found so far."""
        return self._found.findings

    @property
    def omitted(self) -> int:
        """How many findings were too many to keep."""
        return self._found.omitted

    @property
    def excerpts(self) -> dict[int, list[tuple[int, str]]]:
        """By the number of a culprit, the events around it: their numbers and JSON text."""
        return self._found.excerpts

    @property
    def events(self) -> int:
        """How many events the stream has had so far, those included that can't be read."""
        return self._found.index + 1

    @property
    def failure(self) -> str | None:
        """What the last run says of its failure, or None while it has not failed (RUN-8).

        That a run fails breaks no rule, so it is no finding.
        """
        error = self._conversation.error
        return None if error is None else error.message

    @property
    def format(self) -> Format | None:
        """The format of the bytes, or None while it isn't known."""
        return self._splitter.format

    def receive(self, data: bytes) -> list[Finding]:
        """Take the next bytes of a recording or a body; return what is found new in them.

        Raises `UnknownFormat` when the format was to be found out and can't be.
        """
        before = len(self.findings)
        self._split(lambda: self._splitter.feed(data))
        if b"\r" in data and not self._carriage_return and self.format == "sse":
            self._carriage_return = True
            self._doubt(
                Doubt(
                    "HTTP-2",
                    "lines of the body end with CR or CR LF",
                    "lines that end with LF alone",
                    "Readers may accept the others and need not.",
                )
            )
        return self.findings[before:]

    def receive_event(self, event: Any, line: int | None = None) -> list[Finding]:
        """Take the next event; return what is found new.

        Typed, as plain JSON, or a model of the official package.
        """
        before = len(self.findings)
        event = plain_model(event)
        self._next(event, line)
        try:
            raw = copy_value(event, self._max_depth)
            if not isinstance(raw, dict):
                raise DecodeError("an event is a JSON object", rule="EVT-1")
        except DecodeError as error:
            self._unreadable(error)
        except ValueError as error:
            self._unreadable(MalformedEvent(str(error), rule="PROC-3", path=""))
        else:
            try:
                typed = convert_event(raw)
            except (msgspec.ValidationError, UnicodeEncodeError):
                self._from_raw(raw)
            else:
                self._from_typed(typed)
        return self.findings[before:]

    def end(self) -> list[Finding]:
        """Take note that the stream has ended; return what is found by that."""
        before = len(self.findings)
        if self._ended:
            return []
        self._ended = True
        self._split(self._splitter.end)
        why = self._truncation()
        if why is None:
            self._recovery.end()
        elif not (self._stuck or self._found.faulty or self._recovery.explains_truncation):
            # Whoever recorded a stream may well have stopped where it was wrong.
            self._found.error(ProtocolViolation(why, rule="RUN-11"), key="RUN-11")
        return self.findings[before:]

    def _truncation(self) -> str | None:
        """What the stream, which has ended, lacks at its end (RUN-11)."""
        if self._splitter.broken_off:
            return "the stream broke off in the middle of an event"
        match self._recovery.phase:
            case Phase.ACTIVE:
                run_id = self._recovery.run_id
                run = f"the run '{run_id}'" if run_id is not None else "the run"
                return f"the stream ended and {run} had not ended"
            case Phase.BEFORE:
                what = "run had begun" if self.events else "event had come"
                return f"the stream ended before any {what}"
        return None

    # From bytes to events

    def _split(self, frames: Callable[[], Iterator[Frame]]) -> None:
        if self._stuck:
            return
        try:
            for frame in frames():
                self._frame(frame)
        except DecodeError as error:
            # Where the next event would begin, nobody knows.
            self._stuck = True
            self._found.error(error)

    def _frame(self, frame: Frame) -> None:
        data = frame.data
        self._next(data, frame.line)
        try:
            if len(data) > self._max_event_bytes:
                raise DecodeError(
                    f"an event is larger than {self._max_event_bytes} bytes", rule=None
                )
            if self.format == "protobuf":
                self._from_binary(data)
                return
            if len(data) > self._max_depth and nests_deeper_than(data, self._max_depth):
                raise DecodeError(
                    f"the frame nests deeper than {self._max_depth} levels", rule=None
                )
            try:
                event = decode_event(data)
            except STRICT_FAILURES:
                self._from_raw(parse_object(data, self._max_depth))
            else:
                self._from_typed(event)
        except DecodeError as error:
            self._unreadable(error)

    def _from_binary(self, data: bytes) -> None:
        from aguia.codec import protobuf

        raw = protobuf.decode_event(data, self._max_depth)
        if raw is None:
            self._warn(
                ProtocolWarning(
                    stage="transport",
                    rule="PB-2",
                    message="an event of a kind that has no name in this version",
                )
            )
            return
        try:
            event = convert_event(raw)
        except msgspec.ValidationError:
            self._from_raw(raw)
        else:
            self._from_typed(event)

    def _next(self, event: Any, line: int | None) -> None:
        if self._found.faulty:
            self._doubts.unsure = True
        self._found.next(event, line)

    def _unreadable(self, error: ProtocolViolation) -> None:
        self._found.error(error)
        self._recovery.unread()
        self._messages_in_doubt = self._state_in_doubt = True

    # From events to what verification can judge

    def _from_raw(self, raw: dict[str, Any]) -> None:
        for item in run_middleware(self._middleware, self._compatibility.translate(raw)):
            self._enforce(item)

    def _from_typed(self, event: Event) -> None:
        if not self._middleware:
            self._take(event)
            return
        for item in run_middleware(self._middleware, event):
            if item is event:
                self._take(event)
            else:
                self._enforce(item)

    def _enforce(self, item: Any) -> None:
        """Find what is malformed in an event, all of it, and go on with what is left."""
        raw: Any = copy_value(item) if self._middleware else item
        kind = raw.get("type")
        lost: set[str] = set()
        told: list[ProtocolWarning] = []
        last = None
        for _ in range(_MAX_FAULTS):
            told.clear()
            try:
                event = enforce_event(raw, told.append)
            except MalformedEvent as error:
                if error.path == last:
                    break
                last = error.path
                self._found.error(error)
                member = mend(raw, error.path or "")
                if member is None:
                    break
                lost.add(member)
            else:
                for warning in told:
                    self._warn(warning)
                if event is not None:
                    self._take(event, lost if last is not None else None)
                return
        # It can't even be mended.
        self._recovery.unread(kind)
        self._messages_in_doubt = self._state_in_doubt = True

    def _take(self, event: Any, mended: set[str] | None = None) -> None:
        """Take an event that fits its type; `mended`: which of its members are not its own."""
        self._found.event_type = event.type
        if mended is None:
            self._doubts.source(event)
        if isinstance(event, RunStartedEvent):
            self._compatibility.forget()
            warning = judge_producer(event)
            if warning is not None:
                self._warn(warning)
        # What was malformed is lost, so that what builds on it may not apply.
        loses = mended is not None and isinstance(event, _BUILT_UPON)
        if loses:
            self._messages_in_doubt = self._state_in_doubt = True
        self._recovery.take(event, mended)
        if loses:
            self._messages_in_doubt = self._state_in_doubt = True

    # What events mean, as far as it can be wrong

    def _accept(self, event: Event, ours: bool) -> None:
        """Apply an event that may come where it came; of `ours` nobody hears."""
        kind = type(event)
        if kind is RunStartedEvent:
            self._found.run_id = self._recovery.run_id
            self._written.clear()
        elif kind is MessagesSnapshotEvent:
            self._written.clear()
            self._messages_in_doubt = False
        elif kind is StateSnapshotEvent:
            self._state_in_doubt = False
            self._snapshots += 1
        if not ours:
            self._doubts.unsure = self._doubts.unsure or self._found.faulty
            self._doubts.verified(event, (self._found.index, self._found.line))
        member = _CONTENTS.get(kind)
        if member is not None:
            # That the item is there has to be found out once; its text need not be kept.
            key = (kind, getattr(event, member))
            if key in self._written:
                return
            self._written.add(key)
            event = msgspec.structs.replace(event, delta="")
        self._quiet = ours
        self._conversation.apply(event)
        self._quiet = False

    # Findings

    def _warn(self, warning: ProtocolWarning) -> None:
        self._found.add(explain(warning))

    def _warn_of_conversation(self, warning: ProtocolWarning) -> None:
        if self._quiet or warning.rule == "FRONT-3":
            return  # which `Doubts` says better
        key: Any = (warning.rule, warning.event_type, warning.message)
        if warning.rule == "STATE-4" and warning.event_type == "STATE_DELTA":
            if self._state_in_doubt:
                return
            # What the next patches amend is then not what their writer thought.
            key = ("STATE-4", self._snapshots)
        elif self._messages_in_doubt:
            return
        self._found.add(explain(warning), key)

    def _doubt(self, doubt: Doubt) -> None:
        if doubt.rule == "VER-1" and self._is_old:
            return  # as was known
        index, line = doubt.place
        self._found.add(
            Finding(
                severity="warning",
                rule=doubt.rule,
                related=doubt.related,
                message=doubt.message,
                seen=doubt.message,
                expected=doubt.expected,
                hint=doubt.hint,
                must=doubt.must,
                page=f"{PAGES}{doubt.page}" if doubt.page is not None else page_of(doubt.rule),
                event_type=self._found.event_type if index is None else None,
                path=doubt.path,
                index=index,
                line=line,
            ),
            ("doubt", doubt.rule, doubt.path, doubt.topic),
        )


def _ignore(_: ProtocolWarning) -> None:
    pass
