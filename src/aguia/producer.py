"""The writing side, sans I/O: intentions in, only conforming events out.

`Producer` holds one run. What is asked of it is judged by the state machine that the reading
side uses; what the rules forbid raises where it was asked for, and nothing has been emitted
then. It performs no input or output: whoever drives it sends the events that it returns.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, get_args

import msgspec

from aguia.codec.json import (
    MAX_DEPTH,
    STRICT_FAILURES,
    copy_value,
    decode_event,
    encode,
    nests_deeper_than,
    parse_object,
)
from aguia.conversation.live import LiveState
from aguia.conversation.patch import PatchError, apply
from aguia.pipeline.chunks import CHUNKS, ChunkExpander
from aguia.pipeline.compatibility import RETIRED
from aguia.pipeline.downgrade import for_client_without_version
from aguia.pipeline.enforcement import enforce_event
from aguia.pipeline.verification import Family, OpenItem, Phase, Verifier
from aguia.pipeline.warn import log_warning
from aguia.protocol.common import PROTOCOL_VERSION, UNSET, UnsetType
from aguia.protocol.errors import (
    AguiaError,
    MalformedEvent,
    ProtocolWarning,
    SequenceViolation,
)
from aguia.protocol.events import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    Event,
    MessagesSnapshotEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguia.protocol.input import RunAgentInput
from aguia.protocol.messages import ActivityMessage, AssistantMessage, ToolMessage
from aguia.protocol.outcomes import (
    Interrupt,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
    RunFinishedOutcome,
    RunFinishedSuccessOutcome,
    SubagentFinishedSuspendedOutcome,
    TokenUsage,
)
from aguia.protocol.patch import JsonPatch

__all__ = ["Producer"]

_logger: Final = logging.getLogger("aguia")

_TYPES: Final = frozenset(event.type for event in get_args(Event))

_RETIRED: Final = {each.shape: each.replacement for each in RETIRED if each.replacement in _TYPES}

_UNDESCRIBED: Final = "the protocol does not describe this event; use CUSTOM for your own"

_CONTENTS: Final[frozenset[type[Any]]] = frozenset(
    (TextMessageContentEvent, ReasoningMessageContentEvent, ToolCallArgsEvent)
)
"""Deltas, which are many: their ids name what is open, and their text is checked where it comes."""


class Producer:
    """One run of an agent, as the events that it may emit.

    Args:
        input: the run input that is being answered.
        plain: turns a value of the program's into plain JSON of its own, for the state; by
            default it has to be JSON already.
        flatten_for_old_clients: whether a client that declares no protocol version, one from
            before versions existed, gets tool results as text, with a warning when parts are
            lost (TOOL-11), an outcome that does not list the pending calls (FRONT-4), and no
            empty deltas of text and reasoning.
        judged: whether the input has been judged and is nobody else's to change: its state is
            taken as it is then, which for a large one is most of what a short run costs.

    Attributes:
        interrupts: what the run has asked of the outside so far; it has to end with them.

    Every method that emits returns the events to send, in order, and raises
    `SequenceViolation` or `MalformedEvent`, with the rule's id, for what may not be sent, and
    `PatchError` for a patch that does not apply. Changes made in `state` are emitted before the
    next event is; when that event is refused they come out of the next call.
    """

    def __init__(
        self,
        input: RunAgentInput,
        *,
        plain: Callable[[Any], Any] = copy_value,
        flatten_for_old_clients: bool = True,
        judged: bool = False,
    ) -> None:
        self.input = input
        self._flattens = flatten_for_old_clients and input.protocol_version is UNSET
        self._verifier = Verifier(log_warning)
        self._chunks = ChunkExpander()
        self._out: list[Event] = []
        self._fresh = False
        self._activities: dict[str, dict[str, Any]] = {}
        self._openers: dict[tuple[Family, str], tuple[Any, ...]] = {}
        self.interrupts: list[Interrupt] = []
        state = {} if input.state is UNSET else input.state
        self._state = LiveState(state if judged else copy_value(state), plain)
        self._unanswered: dict[str, str] = {}  # the names of the tools by the calls' ids
        self._stated_answers: set[str] = set()
        self._answered: set[str] = set()
        self._frontend = {tool.name for tool in input.tools or ()}
        self._frontend_calls: set[str] = set()

    @property
    def state(self) -> Any:
        """The shared state, to read and to change (STATE-2)."""
        return self._state.value

    @state.setter
    def state(self, value: Any) -> None:
        self._state.value = value

    @property
    def ended(self) -> bool:
        """Whether the terminal event has been emitted."""
        return self._verifier.phase in (Phase.FINISHED, Phase.FAILED)

    @property
    def pending_tool_call_ids(self) -> list[str]:
        """The calls made in this run that have no result in it, in order (FRONT-3)."""
        return list(self._unanswered)

    @property
    def forgotten_calls(self) -> dict[str, str]:
        """Of the pending calls those whose answer nobody else owes: the tools' names by id.

        They are of no tool that the application offers, and no snapshot holds an answer to them.
        """
        return {
            id_: name
            for id_, name in self._unanswered.items()
            if id_ not in self._frontend_calls and id_ not in self._stated_answers
        }

    def is_open(self, item: OpenItem) -> bool:
        """Whether the item has been opened and not closed; nothing is once the run has ended."""
        return not self.ended and self._verifier.is_open(item)

    def open_items(self) -> list[OpenItem]:
        """Everything that is open, in the order in which it was opened."""
        return self._verifier.open_items()

    def start(self) -> list[Event]:
        """Open the run (RUN-2, VER-1)."""
        self._emit(
            RunStartedEvent(
                thread_id=self.input.thread_id,
                run_id=self.input.run_id,
                protocol_version=PROTOCOL_VERSION,
            )
        )
        return self._sent()

    def emit(self, event: Event) -> list[Event]:
        """Emit an event that this package has built of what a program gave it.

        Raises `MalformedEvent` when that was not what the protocol describes: nothing is
        removed here to make it fit.
        """
        if type(event) not in _CONTENTS:
            _prove(event)
        elif not (self._out or self._chunks.lanes or self._state.is_out):
            # What nearly all events are: a delta, with nothing to be said before it.
            self._verifier.check(event)
            self._fresh = False
            if self._flattens and for_client_without_version(event, log_warning) is None:
                return []
            return [event]
        self._flush()
        self._emit(event)
        return self._sent()

    def emit_foreign(self, event: Event | Mapping[str, Any]) -> list[Event]:
        """Emit an event that a program has built, typed or as plain JSON.

        Its structure is judged like a peer's: members that the protocol does not describe are
        removed with a warning, malformed ones raise `MalformedEvent`, and so does a type that
        the protocol does not describe (PROC-13). Chunks are judged as what they stand for and
        emitted as they are.
        """
        checked = _checked(event)
        if isinstance(checked, RunStartedEvent) and self._restates(checked):
            return self._sent()
        if type(checked) not in CHUNKS or not self._chunks.lanes:
            # A state event would end the chunk stream that a chunk may continue (CHUNK-5).
            self._flush()
        self._emit(checked)
        return self._sent()

    def flush(self) -> list[Event]:
        """Emit what has been changed in `state`, as one delta or, where shorter, a snapshot."""
        self._flush()
        return self._sent()

    def finish(
        self,
        outcome: RunFinishedOutcome | None = None,
        *,
        result: Any = UNSET,
        usage: Iterable[TokenUsage] = (),
    ) -> list[Event]:
        """Close what is open, the last opened first, and the run (RUN-5).

        Without an outcome the run succeeded; the calls it leaves unanswered are named. Raises
        `MalformedEvent` for what is no outcome, result or usage; the run goes on then.
        """
        self._flush()
        self._end_chunk_streams()
        for item in reversed(self.open_items()):
            self._emit(_closing(item, outcome))
        if outcome is None:
            pending = self.pending_tool_call_ids
            outcome = RunFinishedSuccessOutcome(pending_tool_call_ids=pending or UNSET)
        finished = RunFinishedEvent(
            thread_id=self.input.thread_id,
            run_id=self.input.run_id,
            outcome=outcome,
            result=result,
            usage=list(usage) or UNSET,
        )
        _prove(finished)
        self._emit(finished)
        return self._sent()

    def fail(
        self, message: str, code: str | None = None, *, usage: Iterable[TokenUsage] = ()
    ) -> list[Event]:
        """End the run as failed, together with whatever is open (RUN-7)."""
        failed = RunErrorEvent(
            message=message,
            code=UNSET if code is None else code,
            usage=list(usage) or UNSET,
        )
        _prove(failed)
        try:
            self._flush()
        except Exception as error:
            # Whatever it is, the run still has to end.
            _logger.error("the last changes of the state can't be sent: %s", error)
        self._emit(failed)
        return self._sent()

    def close_owned_by(self, subagent_run_id: str) -> list[Event]:
        """Close what an invocation has left open, the last opened first."""
        self._flush()
        self._end_chunk_streams(subagent_run_id)
        for item in reversed(self.open_items()):
            if item.owner == subagent_run_id:
                self._emit(_closing(item, None))
        return self._sent()

    def _sent(self) -> list[Event]:
        """What has been emitted and not been given out."""
        events, self._out = self._out, []
        if not self._flattens:
            return events
        changed = (for_client_without_version(event, log_warning) for event in events)
        return [event for event in changed if event is not None]

    def _flush(self) -> None:
        if self._verifier.phase is not Phase.ACTIVE:
            return
        operations = self._state.changes()
        if operations is None:
            return
        event: Event = StateDeltaEvent(delta=operations)
        if operations[0]["path"] == "" and operations[0]["op"] == "replace":
            event = StateSnapshotEvent(snapshot=operations[0]["value"])
        _prove(event)
        self._emit(event, operations)

    def _restates(self, event: RunStartedEvent) -> bool:
        """Whether an agent that writes its own events begins with the start that was emitted.

        Raises `SequenceViolation` for a start of another run, while this one goes on.
        """
        if self._verifier.phase is Phase.ACTIVE:
            for member, its, asked in (
                ("threadId", event.thread_id, self.input.thread_id),
                ("runId", event.run_id, self.input.run_id),
            ):
                if its != asked:
                    raise SequenceViolation(
                        f"its {member} '{its[:80]}' is not the input's, '{asked[:80]}', so it "
                        "would begin another run, and this one has not ended",
                        rule="RUN-4",
                        event_type=event.type,
                    )
        return self._fresh

    def _emit(self, event: Event, operations: JsonPatch | None = None) -> None:
        """Take the event, and let it out; with `operations` it tells what `state` has become."""
        if not self._chunks.lanes and type(event) not in CHUNKS:
            self._take(event, operations)
            self._out.append(event)
            return
        before = dict(self._chunks.lanes)
        try:
            for expanded in self._chunks.expand(event):
                self._take(expanded, operations)
        except AguiaError:
            # What was refused has opened nothing, and has ended nothing for the reader either.
            self._chunks.restore(before)
            for stream in before.values():
                family = stream.form.family
                if not self._verifier.is_open(OpenItem(family, stream.id, stream.owner)):
                    self._verifier.check(_opening(family, stream.id, stream.owner))
            raise
        self._out.append(event)

    def _end_chunk_streams(self, owner: str | None = None) -> None:
        """Take note of the ends that the next event of the run, or of the owner, implies.

        An item that chunks have opened is closed by what follows and not by an event of its
        own: the reader expands it so (CHUNK-5).
        """
        for stream in list(self._chunks.lanes.values()):
            if owner is None or stream.owner == owner:
                for end in self._chunks.close(stream.owner):
                    self._take(end)

    def _take(self, event: Event, operations: JsonPatch | None = None) -> None:
        """Judge one event, expanded, and take note of what it does."""
        if type(event) in _CONTENTS:
            self._verifier.check(event)
            self._fresh = False
            return
        match event:
            case ToolCallResultEvent():
                self._refuse_frontend_result(event)
            case MessagesSnapshotEvent():
                self._refuse_made_up_answers(event)
            case TextMessageStartEvent() | ToolCallStartEvent():
                self._agree_with_opener(event)
            case RunFinishedEvent():
                self._judge_outcome(event)
            case RunStartedEvent() | RunErrorEvent() if self.ended:
                raise SequenceViolation(
                    "the run has ended, and this was one run",
                    rule="RUN-6",
                    event_type=event.type,
                )
        self._verifier.check(event)
        self._fresh = isinstance(event, RunStartedEvent)
        match event:
            case ToolCallStartEvent():
                if event.tool_call_name in self._frontend:
                    self._frontend_calls.add(event.tool_call_id)
                if event.tool_call_id not in self._answered:
                    self._unanswered[event.tool_call_id] = event.tool_call_name
            case ToolCallResultEvent():
                self._unanswered.pop(event.tool_call_id, None)
                self._answered.add(event.tool_call_id)
            case StateSnapshotEvent() | StateDeltaEvent() if operations is not None:
                self._state.tell(operations)
            case StateSnapshotEvent():
                self._state.replace(event.snapshot)
            case StateDeltaEvent():
                self._state.tell(event.delta)
            case ActivitySnapshotEvent() if event.replace is not False:
                self._activities[event.message_id] = event.content
            case ActivityDeltaEvent() if event.message_id in self._activities:
                content = apply(self._activities[event.message_id], event.patch)
                if not isinstance(content, dict):
                    raise PatchError("the content of an activity has to stay an object")
                self._activities[event.message_id] = content
            case MessagesSnapshotEvent():
                self._stated_answers.update(
                    message.tool_call_id
                    for message in event.messages
                    if isinstance(message, ToolMessage)
                )
                stated = {
                    message.id: message.content
                    for message in event.messages
                    if isinstance(message, ActivityMessage)
                }
                if stated:  # one without any leaves those alone that the reader holds (MSG-1)
                    self._activities = stated

    def _judge_outcome(self, event: RunFinishedEvent) -> None:
        """Refuse an outcome that says what is not so."""
        rule = why = None
        asked = {interrupt.id for interrupt in self.interrupts}
        match event.outcome:
            case RunFinishedCancelledOutcome():
                pass
            case RunFinishedInterruptOutcome(interrupts=interrupts) if asked - {
                interrupt.id for interrupt in interrupts
            }:
                rule, why = "INT-1", "the outcome leaves out what the run has asked"
            case RunFinishedSuccessOutcome() | UnsetType() if asked:
                rule, why = "INT-1", "a run that has asked something has not succeeded"
            case RunFinishedSuccessOutcome(pending_tool_call_ids=list(ids)):
                if ids != self.pending_tool_call_ids:
                    rule, why = "FRONT-3", "the pending calls are those that have no result"
            case RunFinishedInterruptOutcome(interrupts=interrupts):
                if len({interrupt.id for interrupt in interrupts}) < len(interrupts):
                    rule, why = "INT-1", "two interrupts have the same id"
        if why is not None:
            raise SequenceViolation(why, rule=rule, event_type=event.type)

    def _agree_with_opener(self, event: TextMessageStartEvent | ToolCallStartEvent) -> None:
        """Refuse to reopen an item as something else than it was (STREAM-4)."""
        key: tuple[Family, str]
        opener: tuple[Any, ...]
        if isinstance(event, TextMessageStartEvent):
            key = Family.MESSAGE, event.message_id
            opener = ("assistant" if event.role is UNSET else event.role, event.name)
        else:
            key = Family.TOOL_CALL, event.tool_call_id
            opener = (event.tool_call_name, event.parent_message_id)
        was = self._openers.setdefault(key, opener)
        if was != opener:
            raise SequenceViolation(
                f"the {key[0].value} '{key[1]}' was opened with {_listed(was)}, "
                f"and this says {_listed(opener)}",
                rule="STREAM-4",
                event_type=event.type,
            )

    def _refuse_made_up_answers(self, event: MessagesSnapshotEvent) -> None:
        for index, message in enumerate(event.messages):
            if isinstance(message, ToolMessage) and message.tool_call_id in self._frontend_calls:
                raise SequenceViolation(
                    f"message {index} answers the call '{message.tool_call_id}' of a tool of the "
                    "application's, which alone answers it",
                    rule="FRONT-1",
                    event_type=event.type,
                )

    def _refuse_frontend_result(self, event: ToolCallResultEvent) -> None:
        id_ = event.tool_call_id
        if id_ in self._frontend_calls or (
            id_ not in self._unanswered and _called_before(id_, self._frontend, self.input)
        ):
            raise SequenceViolation(
                f"the call '{id_}' is of a tool of the application's, which alone answers it",
                rule="FRONT-1",
                event_type=event.type,
            )


def _listed(values: tuple[Any, ...]) -> str:
    return " and ".join("nothing" if value is UNSET else repr(value) for value in values)


def _called_before(id_: str, tools: set[str], input: RunAgentInput) -> bool:
    """Whether the history holds a call of one of these tools with this id."""
    return any(
        call.id == id_ and call.function.name in tools
        for message in input.messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls or ()
    )


def _closing(item: OpenItem, outcome: RunFinishedOutcome | None) -> Event:
    """The event that closes an item before the run ends in this way."""
    match item.family:
        case Family.MESSAGE:
            return TextMessageEndEvent(message_id=item.id, subagent_run_id=item.owner)
        case Family.TOOL_CALL:
            return ToolCallEndEvent(tool_call_id=item.id, subagent_run_id=item.owner)
        case Family.SPAN:
            return ReasoningEndEvent(message_id=item.id, subagent_run_id=item.owner)
        case Family.REASONING:
            return ReasoningMessageEndEvent(message_id=item.id, subagent_run_id=item.owner)
        case Family.STEP:
            return StepFinishedEvent(step_name=item.id, subagent_run_id=item.owner)
        case Family.SUBAGENT if isinstance(outcome, RunFinishedCancelledOutcome):
            # An invocation that was cut off has neither succeeded nor been suspended.
            return SubagentErrorEvent(
                subagent_run_id=item.id, message="The run was cancelled.", code="cancelled"
            )
        case Family.SUBAGENT if isinstance(outcome, RunFinishedInterruptOutcome):
            return SubagentFinishedEvent(
                subagent_run_id=item.id, outcome=SubagentFinishedSuspendedOutcome()
            )
        case Family.SUBAGENT:
            return SubagentFinishedEvent(subagent_run_id=item.id)
    raise TypeError(f"{item.family} is never open")


def _opening(family: Family, id_: str, owner: str | UnsetType) -> Event:
    match family:
        case Family.MESSAGE:
            return TextMessageStartEvent(message_id=id_, subagent_run_id=owner)
        case Family.TOOL_CALL:
            return ToolCallStartEvent(tool_call_id=id_, tool_call_name="", subagent_run_id=owner)
    return ReasoningMessageStartEvent(message_id=id_, role="reasoning", subagent_run_id=owner)


def _prove(event: Event) -> None:
    """Raise `MalformedEvent` for a typed event whose attributes are not what its type says."""
    try:
        frame = encode(event)
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedEvent(
            f"{event.type} is no JSON: {error}", rule="PROC-3", event_type=event.type
        ) from None
    if nests_deeper_than(frame, MAX_DEPTH):
        raise MalformedEvent(
            f"the event nests deeper than {MAX_DEPTH} levels, and readers refuse that",
            rule=None,
            event_type=event.type,
        )
    if isinstance(event, StateSnapshotEvent):
        return  # any JSON is a state
    try:
        decode_event(frame)
    except STRICT_FAILURES:
        removed: list[ProtocolWarning] = []
        enforce_event(parse_object(frame), removed.append)
        for warning in removed:
            raise MalformedEvent(
                warning.message, rule="PROC-13", event_type=event.type, path=warning.path
            ) from None


def _checked(event: Event | Mapping[str, Any]) -> Event:
    raw: Any = event if isinstance(event, Mapping) else msgspec.to_builtins(event)
    try:
        copied = copy_value(raw)
    except ValueError as error:
        raise MalformedEvent(str(error), rule="PROC-3", path="") from None
    try:
        return decode_event(encode(copied))
    except STRICT_FAILURES:
        _refuse_unknown_type(copied.get("type"))
        typed = enforce_event(copied, log_warning)
    if typed is None:
        raise MalformedEvent(_UNDESCRIBED, rule="PROC-13", event_type=copied["type"])
    return typed


def _refuse_unknown_type(type_: Any) -> None:
    """Raise `MalformedEvent` for a type of event that there is not, with the one that is meant."""
    if isinstance(type_, str) and type_ not in _TYPES:
        if type_ in _RETIRED:
            raise MalformedEvent(
                f"the protocol has retired this event; use {_RETIRED[type_]}",
                rule="PROC-13",
                event_type=type_,
            )
        meant = get_close_matches(type_[:80].upper(), _TYPES, 1, 0.8)
        raise MalformedEvent(
            f"there is no such event; did you mean {meant[0]}?" if meant else _UNDESCRIBED,
            rule="PROC-13",
            event_type=type_[:80],
        )
