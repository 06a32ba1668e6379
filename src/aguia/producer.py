"""The writing side, sans I/O: intentions in, only conforming events out.

`Producer` holds one run. What is asked of it is judged by the state machine that the reading
side uses; what the rules forbid raises where it was asked for, and nothing has been emitted
then. It performs no input or output: whoever drives it sends the events that it returns.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from aguia.codec.json import STRICT_FAILURES, copy_value, decode_event, encode
from aguia.conversation.live import LiveState
from aguia.pipeline.chunks import CHUNKS, ChunkExpander
from aguia.pipeline.enforcement import enforce_event
from aguia.pipeline.verification import Family, OpenItem, Phase, Verifier
from aguia.protocol.common import PROTOCOL_VERSION, UNSET
from aguia.protocol.errors import (
    MalformedEvent,
    ProtocolViolation,
    ProtocolWarning,
    SequenceViolation,
)
from aguia.protocol.events import (
    Event,
    ReasoningEndEvent,
    ReasoningMessageEndEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    TextMessageEndEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguia.protocol.input import RunAgentInput
from aguia.protocol.messages import AssistantMessage
from aguia.protocol.outcomes import (
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
    RunFinishedOutcome,
    RunFinishedSuccessOutcome,
    SubagentFinishedSuspendedOutcome,
    TokenUsage,
)

__all__ = ["Producer"]

_logger: Final = logging.getLogger("aguia")


class Producer:
    """One run of an agent, as the events that it may emit.

    Args:
        input: the run input that is being answered.
        plain: turns a value of the program's into plain JSON of its own, for the state; by
            default it has to be JSON already.

    Every method that emits returns the events to send, in order, and raises
    `SequenceViolation` or `MalformedEvent`, with the rule's id, for what may not be sent.
    Changes made in `state` are emitted before the next event is.
    """

    def __init__(self, input: RunAgentInput, *, plain: Callable[[Any], Any] = copy_value) -> None:
        self.input = input
        self._verifier = Verifier(_log)
        self._chunks = ChunkExpander()
        self._state = LiveState({} if input.state is UNSET else copy_value(input.state), plain)
        self._unanswered: dict[str, None] = {}
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

    def is_open(self, item: OpenItem) -> bool:
        """Whether the item has been opened and not closed."""
        return self._verifier.is_open(item)

    def open_items(self) -> list[OpenItem]:
        """Everything that is open, in the order in which it was opened."""
        return self._verifier.open_items()

    def start(self) -> list[Event]:
        """Open the run (RUN-2, VER-1)."""
        return self._emit(
            RunStartedEvent(
                thread_id=self.input.thread_id,
                run_id=self.input.run_id,
                protocol_version=PROTOCOL_VERSION,
            )
        )

    def emit(self, event: Event) -> list[Event]:
        """Emit an event that this package has built, so that its structure is right."""
        return [*self.flush(), *self._emit(event)]

    def emit_foreign(self, event: Event | Mapping[str, Any]) -> list[Event]:
        """Emit an event that a program has built, typed or as plain JSON.

        Its structure is judged like a peer's: members that the protocol does not describe are
        removed with a warning, malformed ones raise `MalformedEvent`, and so does a type that
        the protocol does not describe (PROC-13). Chunks are judged as what they stand for and
        emitted as they are.
        """
        checked = _checked(event)
        if type(checked) in CHUNKS and self._chunks.lanes:
            # A state event would end the chunk stream that this one may continue (CHUNK-5).
            return self._emit(checked)
        return [*self.flush(), *self._emit(checked)]

    def flush(self) -> list[Event]:
        """Emit what has been changed in `state`, as one delta or, where shorter, a snapshot."""
        if self._verifier.phase is not Phase.ACTIVE:
            return []
        operations = self._state.changes()
        if operations is None:
            return []
        if operations[0]["path"] == "" and operations[0]["op"] == "replace":
            return self._emit(StateSnapshotEvent(snapshot=operations[0]["value"]))
        return self._emit(StateDeltaEvent(delta=operations))

    def finish(
        self,
        outcome: RunFinishedOutcome | None = None,
        *,
        result: Any = UNSET,
        usage: Iterable[TokenUsage] = (),
    ) -> list[Event]:
        """Close what is open, the last opened first, and the run (RUN-5).

        Without an outcome the run succeeded; the calls it leaves unanswered are named.
        """
        events = self.flush()
        self._end_chunk_streams()
        for item in reversed(self.open_items()):
            events += self._emit(_closing(item, outcome))
        if outcome is None:
            pending = self.pending_tool_call_ids
            outcome = RunFinishedSuccessOutcome(pending_tool_call_ids=pending or UNSET)
        events += self._emit(
            RunFinishedEvent(
                thread_id=self.input.thread_id,
                run_id=self.input.run_id,
                outcome=outcome,
                result=result,
                usage=list(usage) or UNSET,
            )
        )
        return events

    def fail(
        self, message: str, code: str | None = None, *, usage: Iterable[TokenUsage] = ()
    ) -> list[Event]:
        """End the run as failed, together with whatever is open (RUN-7)."""
        return self._emit(
            RunErrorEvent(
                message=message,
                code=UNSET if code is None else code,
                usage=list(usage) or UNSET,
            )
        )

    def close_owned_by(self, subagent_run_id: str) -> list[Event]:
        """Close what an invocation has left open, the last opened first."""
        events = self.flush()
        self._end_chunk_streams(subagent_run_id)
        for item in reversed(self.open_items()):
            if item.owner == subagent_run_id:
                events += self._emit(_closing(item, None))
        return events

    def _emit(self, event: Event) -> list[Event]:
        if not self._chunks.lanes and type(event) not in CHUNKS:
            self._take(event)
            return [event]
        before = dict(self._chunks.lanes)
        try:
            for expanded in self._chunks.expand(event):
                self._take(expanded)
        except ProtocolViolation:
            # What was refused has opened nothing.
            lanes = self._chunks.lanes
            for owner, stream in list(lanes.items()):
                if before.get(owner) is not stream:
                    del lanes[owner]
            raise
        return [event]

    def _end_chunk_streams(self, owner: str | None = None) -> None:
        """Take note of the ends that the next event of the run, or of the owner, implies.

        An item that chunks have opened is closed by what follows and not by an event of its
        own: the reader expands it so (CHUNK-5).
        """
        for stream in list(self._chunks.lanes.values()):
            if owner is None or stream.owner == owner:
                for end in self._chunks.close(stream.owner):
                    self._take(end)

    def _take(self, event: Event) -> None:
        """Judge one event, expanded, and take note of what it does."""
        if isinstance(event, ToolCallResultEvent):
            self._refuse_frontend_result(event)
        self._verifier.check(event)
        match event:
            case ToolCallStartEvent():
                if event.tool_call_name in self._frontend:
                    self._frontend_calls.add(event.tool_call_id)
                if event.tool_call_id not in self._answered:
                    self._unanswered[event.tool_call_id] = None
            case ToolCallResultEvent():
                self._unanswered.pop(event.tool_call_id, None)
                self._answered.add(event.tool_call_id)
            case StateSnapshotEvent():
                self._state.replace(event.snapshot)
            case StateDeltaEvent():
                self._state.tell(event.delta)

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


def _checked(event: Event | Mapping[str, Any]) -> Event:
    raw: Any = event if isinstance(event, Mapping) else msgspec.to_builtins(event)
    try:
        copied = copy_value(raw)
    except ValueError as error:
        raise MalformedEvent(str(error), rule="PROC-3", path="") from None
    try:
        return decode_event(encode(copied))
    except STRICT_FAILURES:
        typed = enforce_event(copied, _log)
    if typed is None:
        raise MalformedEvent(
            "the protocol does not describe this event; use CUSTOM for your own",
            rule="PROC-13",
            event_type=str(copied.get("type"))[:80],
        )
    return typed


def _log(warning: ProtocolWarning) -> None:
    _logger.warning("%s", warning)
