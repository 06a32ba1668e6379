"""Checks a whole stream, sans I/O: every fault of it, and each once.

A reader stops at the first violation. `Checker` sends the events through the same stages in the
same order (PROC-7), notes what they raise and warn of as findings, and mends what the fault left
behind, in the way that makes the least noise: a malformed event still opens or closes what it
names, content of an item that nobody opened opens it, what is left open is closed. What can be
explained by an earlier fault is no finding of its own. So the first error is always the one for
which `Consumer` rejects the stream, and there is one exactly when it does.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from aguia.codec.json import (
    MAX_DEPTH,
    STRICT_FAILURES,
    convert_event,
    copy_value,
    decode_event,
    encode,
    nests_deeper_than,
    parse_object,
)
from aguia.codec.sse import MAX_FRAME
from aguia.conversation import Conversation
from aguia.pipeline.chunks import CHUNKS, ChunkExpander
from aguia.pipeline.compatibility import Compatibility, noting, upgrade_input
from aguia.pipeline.downgrade import parse_peer_version, without_subagents
from aguia.pipeline.enforcement import enforce_event, enforce_input
from aguia.pipeline.middleware import Middleware, run_middleware
from aguia.pipeline.verification import TABLE, Action, Family, OpenItem, Phase, Verifier
from aguia.pipeline.versions import judge_producer
from aguia.protocol.common import UNSET, UnsetType
from aguia.protocol.errors import (
    DecodeError,
    MalformedEvent,
    ProtocolViolation,
    ProtocolWarning,
    SequenceViolation,
)
from aguia.protocol.events import (
    EVENTS,
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    Event,
    MessagesSnapshotEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from aguia.protocol.input import RunAgentInput
from aguia.testing.doubts import Doubt, Doubts
from aguia.testing.findings import MAX_ALSO, PAGES, Finding, explain, page_of
from aguia.testing.recordings import Format, Frame, Splitter, UnknownFormat
from aguia.testing.repair import mend

__all__ = ["Checker"]

MAX_FINDINGS: Final = 1000
"""How many different findings are kept by default; further ones are counted."""

_MAX_FAULTS: Final = 8
"""How many faults of one event are reported."""

_MAX_MENDS: Final = 8
"""How often one event is mended before it is given up."""

_MAX_CARRIED: Final = 100
"""How many open items a run that starts too early takes over."""

_EXCERPT: Final = 2000
"""How many characters of an event an excerpt holds."""

_CONTENTS: Final[dict[type[Any], str]] = {
    TextMessageContentEvent: "message_id",
    ReasoningMessageContentEvent: "message_id",
    ToolCallArgsEvent: "tool_call_id",
}

_STARTS: Final[dict[Family, Callable[..., Event]]] = {
    Family.MESSAGE: lambda id_, tag: TextMessageStartEvent(message_id=id_, subagent_run_id=tag),
    Family.TOOL_CALL: lambda id_, tag: ToolCallStartEvent(
        tool_call_id=id_, tool_call_name="", subagent_run_id=tag
    ),
    Family.SPAN: lambda id_, tag: ReasoningStartEvent(message_id=id_, subagent_run_id=tag),
    Family.REASONING: lambda id_, tag: ReasoningMessageStartEvent(
        message_id=id_, role="reasoning", subagent_run_id=tag
    ),
    Family.STEP: lambda id_, tag: StepStartedEvent(step_name=id_, subagent_run_id=tag),
    Family.SUBAGENT: lambda id_, tag: SubagentStartedEvent(subagent_run_id=id_, name=""),
}
_ENDS: Final[dict[Family, Callable[..., Event]]] = {
    Family.MESSAGE: lambda item: TextMessageEndEvent(message_id=item.id),
    Family.TOOL_CALL: lambda item: ToolCallEndEvent(tool_call_id=item.id),
    Family.SPAN: lambda item: ReasoningEndEvent(message_id=item.id),
    Family.REASONING: lambda item: ReasoningMessageEndEvent(message_id=item.id),
    Family.STEP: lambda item: StepFinishedEvent(step_name=item.id, subagent_run_id=item.owner),
    Family.SUBAGENT: lambda item: SubagentFinishedEvent(subagent_run_id=item.id),
}


class Checker:
    """Checks one stream.

    Args:
        input: the run input that the stream answers, if it is known; it decides what state
            deltas amend, which tools are the frontend's and which run was asked for.
        format: of the bytes given to `receive`; None finds it out from the first of them.
        peer_version: the version of a producer that is known to be old, as for `Consumer`.
        max_event_bytes, max_depth: the largest event, and its deepest nesting, that is read.
        max_findings: how many different findings are kept; further ones are only counted.
        context: how many events before and after a culprit `excerpts` keeps.

    Raises `InvalidInput` for a malformed input and `ImportError` for the binary format without
    the extra `aguia[protobuf]`.

    Attributes:
        findings: what was found so far, in the order of the stream. One that comes again is
            counted in the first of its kind.
        omitted: how many findings were more than `max_findings`.
        excerpts: by the number of a culprit, the events around it: their numbers and JSON text.

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
        self.findings: list[Finding] = []
        self.omitted = 0
        self.excerpts: dict[int, list[tuple[int, str]]] = {}
        self._index = -1
        self._line: int | None = None
        self._known: dict[Any, int] = {}
        self._max_findings = max_findings
        self._max_event_bytes = max_event_bytes
        self._max_depth = max_depth
        self._splitter = Splitter(format, max_event_bytes)
        self._stuck = False
        self._ended = False
        self._carriage_return = False

        self._quiet = 1  # what is wrong with the input concerns no event
        if isinstance(input, dict):
            input = upgrade_input(input, noting(self._warn, only_losses=True))
        self._request = enforce_input(input, self._warn) if input is not None else None
        request = self._request
        self._compatibility = Compatibility(self._warn)
        self._is_old = peer_version is not None
        self._middleware: tuple[Middleware, ...] = ()
        if peer_version is not None:
            old = without_subagents(parse_peer_version(peer_version), self._warn)
            self._middleware = (old,) if old is not None else ()
        self._chunks = ChunkExpander()
        self._verifier = Verifier(
            self._warn,
            thread_id=request.thread_id if request is not None else None,
            run_id=request.run_id if request is not None else None,
        )
        self._conversation = Conversation(
            list(request.messages) if request is not None else (),
            UNSET if request is None else {} if request.state is UNSET else request.state,
            warn=self._warn_of_conversation,
        )
        self._doubts = Doubts(self._doubt, request)
        self._quiet = 0

        # What is known of the run that is under way, beside what the verifier knows.
        self._start: RunStartedEvent | None = None
        self._assumed = False
        """Whether its start was never seen, so that nobody knows its ids."""
        self._superseded: set[str] = set()
        """Runs that had not ended when the next one started, and whether one has ended since."""
        self._ended_late = False
        self._gap = 0
        self._forgiven: set[tuple[Family, str]] = set()
        """Items with a finding: what else is wrong with them follows from it."""
        self._unread = 0
        """Events that nobody can read, each of which may explain one thing that is missing."""
        self._unread_starts: dict[Family, int] = {}
        self._unread_ends: dict[Family, int] = {}
        self._lost_id = False
        """Whether the event at hand has an id that can't be read."""
        self._type: str | None = None
        self._implied: list[Event] = []
        """The ends of chunk streams that the event at hand implies."""
        self._steps: dict[str, str | UnsetType] = {}
        self._written: set[tuple[type[Any], str]] = set()
        self._patches = 0
        self._state_in_doubt = False
        self._messages_in_doubt = False
        self._culprit = -2

        self._context = context
        self._recent: deque[tuple[int, Any]] = deque(maxlen=context + 1)
        self._following: list[tuple[int, list[tuple[int, str]]]] = []

    @property
    def events(self) -> int:
        """How many events the stream has had so far, those included that can't be read."""
        return self._index + 1

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
        """Take the next event as a typed value or as plain JSON; return what is found new."""
        before = len(self.findings)
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
        why = None
        if self._splitter.broken_off:
            why = "the stream broke off in the middle of an event"
        elif self._verifier.phase is Phase.ACTIVE:
            run = (
                f" '{self._start.run_id}'" if self._start is not None and self._start.run_id else ""
            )
            why = f"the stream ended and the run{run} had not ended"
        elif self._verifier.phase is Phase.BEFORE:
            why = "the stream ended before any event had come"
            if self._index >= 0:
                why = "the stream ended before any run had begun"
        if why is None:
            self._quiet += self._assumed
            self._verifier.end()
            self._quiet -= self._assumed
        elif not (self._stuck or self._unread or self._ended_late or self._culprit == self._index):
            # Whoever recorded a stream may well have stopped where it was wrong.
            self._error(ProtocolViolation(why, rule="RUN-11"), key="RUN-11")
        return self.findings[before:]

    # From bytes to events

    def _split(self, frames: Callable[[], Iterator[Frame]]) -> None:
        if self._stuck:
            return
        try:
            for frame in frames():
                self._frame(frame)
        except UnknownFormat:
            raise
        except DecodeError as error:
            # Where the next event would begin, nobody knows.
            self._stuck = True
            self._error(error)

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
        self._index += 1
        self._line = line
        self._type = None
        self._lost_id = False
        if self._context:
            self._recent.append((self._index, event))
            for last, excerpt in self._following:
                if self._index <= last:
                    excerpt.append((self._index, _text_of(event)))
            self._following = [each for each in self._following if self._index < each[0]]

    def _unreadable(self, error: ProtocolViolation) -> None:
        self._error(error)
        self._unread += 1
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
                self._error(error)
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
        self._give_up(kind)

    def _give_up(self, kind: Any) -> None:
        """Take note of an event that can't even be mended."""
        event_type: Any = EVENTS.get(kind) if isinstance(kind, str) else None
        self._messages_in_doubt = self._state_in_doubt = True
        if event_type is None or event_type in (RunStartedEvent, RunFinishedEvent, RunErrorEvent):
            self._unread += 1
        else:
            self._unread_item(event_type)

    def _count(self, counts: dict[Family, int], family: Family | None) -> None:
        if family is not None:
            counts[family] = counts.get(family, 0) + 1

    def _unread_item(self, event_type: type[Any]) -> None:
        row = TABLE.get(event_type)
        if row is not None and row.action is Action.OPENS:
            self._count(self._unread_starts, row.family)
        elif row is not None and row.action is Action.CLOSES:
            self._count(self._unread_ends, row.family)

    def _take(self, event: Any, mended: set[str] | None = None) -> None:
        """Take an event that fits its type; `mended`: which of its members are not its own."""
        self._type = event.type
        # What was malformed is lost, so that what builds on it may not apply.
        loses = mended is not None and isinstance(event, _BUILT_UPON)
        if loses:
            self._messages_in_doubt = self._state_in_doubt = True
        if mended is None:
            self._doubts.source(event)
        else:
            row = TABLE.get(type(event))
            if row is not None and row.member and _wire_name(event, row.member) in mended:
                self._unread_item(type(event))
                return
            if isinstance(event, RunStartedEvent | RunFinishedEvent):
                self._lost_id = not mended.isdisjoint({"runId", "threadId"})
            # A chunk is not known to have had an id, or none.
            self._lost_id = self._lost_id or type(event) in CHUNKS
        if isinstance(event, RunStartedEvent):
            self._compatibility.forget()
            if event.protocol_version is not UNSET:
                self._judge_version(event)
        for _ in range(_MAX_MENDS):
            try:
                expanded = self._chunks.expand(event)
            except SequenceViolation as error:
                event = self._mend_chunk(event, error)
                if event is None:
                    return
            else:
                self._implied = expanded[:-1]
                for each in expanded:
                    self._judge(each)
                break
        if loses:
            self._messages_in_doubt = self._state_in_doubt = True

    def _judge_version(self, event: RunStartedEvent) -> None:
        warning = judge_producer(str(event.protocol_version))
        if warning is not None:
            self._warn(
                ProtocolWarning(
                    stage="compatibility",
                    rule="VER-2",
                    event_type=event.type,
                    path="/protocolVersion",
                    message=warning,
                )
            )

    def _mend_chunk(self, chunk: Any, error: SequenceViolation) -> Any:
        """Report what is wrong with a chunk; the chunk as it can be taken, or None."""
        is_tool = chunk.type == "TOOL_CALL_CHUNK"
        member = "tool_call_id" if is_tool else "message_id"
        family = _CHUNK_FAMILIES[chunk.type]
        id_ = getattr(chunk, member)
        if ("RUN-6", self._gap) in self._known and self._verifier.phase is not Phase.ACTIVE:
            self._error(error, key=("RUN-6", self._gap))
            return None
        if chunk.subagent_run_id is not UNSET:
            self._forgiven.add((Family.SUBAGENT, chunk.subagent_run_id))
        match error.rule:
            case "CHUNK-2":
                if self._lost_id:
                    pass
                elif self._unread_starts.get(family, 0) > 0:
                    self._unread_starts[family] -= 1
                elif self._unread:
                    self._unread -= 1
                else:
                    self._error(error, key=("CHUNK-2", chunk.type, id_ is UNSET))
                changes: dict[str, Any] = {}
                if id_ is UNSET:
                    changes[member] = id_ = f"(no id, event {self._index})"
                if is_tool and chunk.tool_call_name is UNSET:
                    changes["tool_call_name"] = ""
                self._forgiven.add((family, id_))
                return msgspec.structs.replace(chunk, **changes)
            case "CHUNK-4":
                if (family, id_) not in self._forgiven:
                    self._error(error, key=("CHUNK-4", error.message))
                openers = ("tool_call_name", "parent_message_id", "role", "name")
                return msgspec.structs.replace(
                    chunk, **{name: UNSET for name in openers if hasattr(chunk, name)}
                )
            case "CHUNK-8":
                self._error(error, key=("CHUNK-8", family, id_, chunk.subagent_run_id))
                return msgspec.structs.replace(chunk, subagent_run_id=UNSET)
        self._error(error, key=(error.rule, chunk.type))
        return None

    # Verification, and what to do about what it refuses

    def _judge(self, event: Event) -> None:
        """Verify an event; where it may not come, report it, mend the matter, and try again."""
        following: Any = event
        # Nobody knows which thread a run without a start was of.
        unknown = self._assumed and isinstance(event, RunStartedEvent)
        for _ in range(_MAX_MENDS):
            self._quiet += unknown
            try:
                self._verifier.check(following)
            except SequenceViolation as error:
                mended = self._recover(following, error)
                if mended is None:
                    break
                following = mended
            else:
                self._accept(following)
                break
            finally:
                self._quiet -= unknown
        if self._culprit == self._index:
            self._forgive(following)

    def _forgive(self, event: Any) -> None:
        """What else is wrong with the item of an event that has an error follows from it."""
        for end in self._implied:
            # Chunks that would have continued what the event has ended begin it anew.
            self._count(self._unread_starts, TABLE[type(end)].family)
        row = TABLE.get(type(event))
        if row is not None and row.family is not None:
            id_ = getattr(event, row.member)
            self._forgiven.add((row.family, id_))
            if row.family in (Family.SPAN, Family.REASONING):
                # These two are often taken for one.
                self._forgiven.add((Family.SPAN, id_))
                self._forgiven.add((Family.REASONING, id_))

    def _accept(self, event: Any) -> None:
        """Take note of an event that may come where it came, or was made to."""
        kind = type(event)
        if kind is RunStartedEvent:
            self._begin(event)
        elif kind is MessagesSnapshotEvent:
            self._written.clear()
            self._messages_in_doubt = False
        elif kind is StateSnapshotEvent:
            self._state_in_doubt = False
            self._patches += 1
        elif kind is StepStartedEvent:
            self._steps[event.step_name] = event.subagent_run_id
        elif kind is StepFinishedEvent:
            self._steps.pop(event.step_name, None)
        elif kind is RunFinishedEvent or kind is RunErrorEvent:
            self._unread = 0
        member = _CONTENTS.get(kind)
        if not self._quiet:
            self._doubts.verified(event, (self._index, self._line))
        if member is not None:
            # That the item is there has to be found out once; its text need not be kept.
            key = (kind, getattr(event, member))
            if key in self._written:
                return
            self._written.add(key)
            event = msgspec.structs.replace(event, delta="")
        self._conversation.apply(event)

    def _begin(self, event: RunStartedEvent) -> None:
        self._start = event
        self._assumed = self._lost_id
        self._forgiven.clear()
        self._unread_starts.clear()
        self._unread_ends.clear()
        self._written.clear()
        self._steps.clear()
        self._unread = 0
        self._gap += 1

    def _recover(self, event: Any, error: SequenceViolation) -> Any:
        """Report what is wrong with an event, if that is news, and mend the matter.

        Returns the event to try next, or None to go on without it.
        """
        if self._verifier.phase is not Phase.ACTIVE:
            return self._recover_outside(event, error)
        if isinstance(event, RunStartedEvent):
            return self._recover_start(event, error)
        if isinstance(event, RunFinishedEvent):
            return self._recover_finish(event, error)
        if error.rule in ("SUB-4", "TOOL-5"):
            return self._recover_owner(event, error)
        return self._recover_item(event, error)

    def _recover_outside(self, event: Any, error: SequenceViolation) -> Any:
        """Something that came before the first run, or after the end of one."""
        for owner in list(self._chunks.lanes):
            self._chunks.close(owner)
        if self._unread:
            self._unread -= 1  # the start of the run may have been in it
        elif error.rule == "RUN-1":
            self._error(error)
        else:
            late = isinstance(event, RunFinishedEvent) and event.run_id in self._superseded
            row = TABLE.get(type(event))
            # The end of what was left open shows that it is the finish that came too early.
            known = row is not None and (row.family, getattr(event, row.member, "")) in (
                self._forgiven
            )
            if not late and not known:
                self._error(error, key=("RUN-6", self._gap))
            return None
        self._silently(
            RunStartedEvent(
                thread_id=self._request.thread_id if self._request is not None else "",
                run_id=self._request.run_id if self._request is not None else "",
            )
        )
        self._assumed = True
        return event

    def _recover_start(self, event: RunStartedEvent, error: SequenceViolation) -> None:
        """A run that starts while another goes on: what is open stays open, and is forgiven."""
        current = self._start
        assumed, lost = self._assumed, self._lost_id
        if not assumed:
            if self._unread:
                self._unread -= 1
            elif not self._ended_late:
                self._error(error, key=("RUN-4", event.run_id))
            self._ended_late = False
            if current is not None and (current.run_id == event.run_id or lost):
                return
            if current is not None:
                self._superseded.add(current.run_id)
        items = self._verifier.open_items()
        if len(items) > _MAX_CARRIED:
            return
        forgiven = set(self._forgiven)
        self._silently(RunErrorEvent(message=""), apply=False)
        self._silently(event)
        self._assumed = lost
        for item in items:
            self._open(item.family, item.id, item.owner)
        self._forgiven = forgiven
        if not assumed:
            self._forgiven |= {(item.family, item.id) for item in items}

    def _recover_finish(self, event: RunFinishedEvent, error: SequenceViolation) -> Any:
        if error.rule == "RUN-3":
            assert self._start is not None
            if event.run_id in self._superseded:
                self._ended_late = True
                return None
            if not self._assumed and not self._lost_id:
                if self._unread:
                    self._unread -= 1
                else:
                    self._error(error, key=("RUN-3", self._gap))
            return msgspec.structs.replace(
                event, run_id=self._start.run_id, thread_id=self._start.thread_id
            )
        items = self._verifier.open_items()
        excused = [item for item in items if self._is_excused(item)]
        if excused:
            # What is left will be named by the next try.
            for item in excused:
                self._close(item)
            return event
        names = ", ".join(f"the {item.family.value} '{item.id[:80]}'" for item in items[:10])
        more = f" and {len(items) - 10} more" if len(items) > 10 else ""
        verb = "is" if len(items) == 1 else "are"
        error.message = f"{names}{more} {verb} still open"
        self._error(error, key=("RUN-5", self._gap))
        for item in items:
            self._close(item)
            self._forgiven.add((item.family, item.id))
        return event

    def _is_excused(self, item: OpenItem) -> bool:
        """Whether an earlier fault explains that this is still open."""
        if (item.family, item.id) in self._forgiven:
            return True
        if self._unread_ends.get(item.family, 0) > 0:
            self._unread_ends[item.family] -= 1
            return True
        if self._unread:
            self._unread -= 1
            return True
        return False

    def _recover_owner(self, event: Any, error: SequenceViolation) -> Any:
        """An event with the tag of somebody else: it goes on as its item's owner's."""
        row = TABLE[type(event)]
        tag = event.subagent_run_id
        id_ = getattr(event, row.member)
        key = ("owner", row.family, id_, tag, self._gap)
        if key in self._known or row.family is None or (row.family, id_) not in self._forgiven:
            self._error(error, key=key)
        if tag is not UNSET:
            self._forgiven.add((Family.SUBAGENT, tag))
        if tag is not UNSET:
            return msgspec.structs.replace(event, subagent_run_id=UNSET)
        if isinstance(event, ToolCallStartEvent):
            return msgspec.structs.replace(event, parent_message_id=UNSET)
        return None

    def _recover_item(self, event: Any, error: SequenceViolation) -> Any:
        """Something that is open and should not be, or should be and is not."""
        row = TABLE[type(event)]
        family = row.family
        assert family is not None
        id_ = getattr(event, row.member)
        opens = row.action is Action.OPENS
        parent = getattr(event, "parent_subagent_run_id", UNSET)
        if not self._follows(family, id_, self._unread_ends if opens else self._unread_starts) and (
            (Family.SUBAGENT, parent) not in self._forgiven
        ):
            related: tuple[str, ...] = ()
            for end in self._implied:
                ended = TABLE[type(end)]
                if ended.family is family and getattr(end, ended.member) == id_:
                    related = ("CHUNK-9",)
            self._error(error, key=(error.rule, family, id_, self._gap), related=related)
            # It may have been meant for another item, which is then missing it.
            if opens:
                self._count(self._unread_starts, family)
            elif row.action is Action.CLOSES:
                self._count(self._unread_ends, family)
        self._forgiven.add((family, id_))
        if family is Family.SUBAGENT:
            # Without its parent it can start; anything else that is wrong it can't get over.
            if opens and parent is not UNSET:
                return msgspec.structs.replace(event, parent_subagent_run_id=UNSET)
            return None
        if row.action is Action.CONTINUES:
            self._open(family, id_, event.subagent_run_id)
            return event
        if family is Family.STEP and not opens:
            owner = self._steps.pop(id_, event.subagent_run_id)
            if owner != event.subagent_run_id:
                return msgspec.structs.replace(event, subagent_run_id=owner)
        return None

    def _follows(self, family: Family, id_: str, unread: dict[Family, int]) -> bool:
        """Whether an earlier fault explains what is wrong with this item."""
        if (family, id_) in self._forgiven:
            return True
        if unread.get(family, 0) > 0:
            unread[family] -= 1
            return True
        if self._unread:
            self._unread -= 1
            return True
        return False

    def _open(self, family: Family, id_: str, owner: str | UnsetType) -> None:
        for tag in (owner, UNSET):
            try:
                self._silently(_STARTS[family](id_, tag))
            except SequenceViolation:
                continue
            return

    def _close(self, item: OpenItem) -> None:
        self._silently(_ENDS[item.family](item))

    def _silently(self, event: Event, *, apply: bool = True) -> None:
        """Verify and apply an event of ours, without a word about it."""
        self._quiet += 1
        try:
            self._verifier.check(event)
            if apply:
                self._accept(event)
        finally:
            self._quiet -= 1

    # Findings

    def _error(
        self,
        error: ProtocolViolation,
        *,
        key: Any = None,
        related: tuple[str, ...] = (),
    ) -> None:
        self._doubts.unsure = True
        if isinstance(error, SequenceViolation) and self._culprit == self._index:
            return  # the event has an error already
        self._culprit = self._index
        finding = explain(error)
        if related:
            finding = msgspec.structs.replace(finding, related=(*finding.related, *related))
        self._add(finding, key)

    def _warn(self, warning: ProtocolWarning) -> None:
        if not self._quiet:
            self._add(explain(warning), None)

    def _warn_of_conversation(self, warning: ProtocolWarning) -> None:
        if self._quiet or warning.rule == "FRONT-3":
            return  # which `Doubts` says better
        key: Any = (warning.rule, warning.event_type, warning.message)
        if warning.rule == "STATE-4" and warning.event_type == "STATE_DELTA":
            if self._state_in_doubt:
                return
            # What the next patches amend is then not what their writer thought.
            key = ("STATE-4", self._patches)
        elif self._messages_in_doubt:
            return
        self._add(explain(warning), key)

    def _doubt(self, doubt: Doubt) -> None:
        if doubt.rule == "VER-1" and self._is_old:
            return  # as was known
        index, line = doubt.place
        self._add(
            Finding(
                severity="warning",
                rule=doubt.rule,
                related=doubt.related,
                message=doubt.message,
                seen=doubt.message,
                expected=doubt.expected,
                hint=doubt.hint,
                page=f"{PAGES}{doubt.page}" if doubt.page is not None else page_of(doubt.rule),
                event_type=self._type if index is None else None,
                path=doubt.path,
                index=index,
                line=line,
            ),
            ("doubt", doubt.rule, doubt.path, doubt.topic),
        )

    def _add(self, finding: Finding, key: Any) -> None:
        if key is None:
            key = (
                finding.severity,
                finding.rule,
                finding.event_type,
                _without_numbers(finding.path),
                finding.expected,
            )
        known = self._known.get(key)
        index = self._index if finding.index is None else finding.index
        if known is not None:
            first = self.findings[known]
            also = first.also
            if len(also) < MAX_ALSO and index not in (first.index, *also):
                also = (*also, index)
            self.findings[known] = msgspec.structs.replace(first, count=first.count + 1, also=also)
            return
        if len(self.findings) >= self._max_findings:
            self.omitted += 1
            return
        self._known[key] = len(self.findings)
        run_id = self._start.run_id if self._start is not None and not self._assumed else None
        self.findings.append(
            msgspec.structs.replace(
                finding,
                index=None if index < 0 else index,
                line=self._line if finding.line is None else finding.line,
                run_id=run_id or None,
            )
        )
        if self._context and index not in self.excerpts:
            excerpt = [(number, _text_of(event)) for number, event in self._recent]
            self.excerpts[index] = excerpt
            self._following.append((index + self._context, excerpt))


_BUILT_UPON: Final = (
    MessagesSnapshotEvent,
    StateSnapshotEvent,
    StateDeltaEvent,
    ActivitySnapshotEvent,
    ActivityDeltaEvent,
    RunStartedEvent,
)
"""Events whose content decides whether later ones apply."""

_CHUNK_FAMILIES: Final = {
    "TEXT_MESSAGE_CHUNK": Family.MESSAGE,
    "TOOL_CALL_CHUNK": Family.TOOL_CALL,
    "REASONING_MESSAGE_CHUNK": Family.REASONING,
}


def _wire_name(event: Any, attribute: str) -> str:
    place = event.__struct_fields__.index(attribute)
    return str(event.__struct_encode_fields__[place])


def _without_numbers(path: str | None) -> str | None:
    """A path as that of the same fault in another element of the same list."""
    if path is None:
        return None
    return "/".join("*" if step.isdigit() else step for step in path.split("/"))


def _text_of(event: Any) -> str:
    """An event as the text of an excerpt."""
    if isinstance(event, bytes):
        return event[: 4 * _EXCERPT].decode("utf-8", "replace")[:_EXCERPT]
    try:
        return encode(event).decode()[:_EXCERPT]
    except (TypeError, ValueError, RecursionError):
        return repr(event)[:_EXCERPT]
