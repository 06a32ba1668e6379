"""What a stream of verified events builds: the messages, the state and how the last run ended.

Knows what each event means for the conversation, and neither judges whether the event may come
(verification has) nor where it came from. Applying one costs the same in a thread of one
message and of ten thousand.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from aguia.conversation.patch import PatchError, PatchTarget
from aguia.conversation.thread import CallEntry, Entry, InOrder, Messages
from aguia.pipeline.warn import Warn
from aguia.protocol.common import UNSET
from aguia.protocol.errors import ProtocolWarning
from aguia.protocol.events import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    Event,
    MessagesSnapshotEvent,
    ReasoningEncryptedValueEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguia.protocol.messages import (
    ActivityMessage,
    AssistantMessage,
    DeveloperMessage,
    FunctionCall,
    Message,
    ReasoningMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguia.protocol.outcomes import (
    Interrupt,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
    RunFinishedOutcome,
    RunFinishedSuccessOutcome,
    TokenUsage,
)

__all__ = ["Conversation"]

_MESSAGES: Final[dict[str, Callable[..., Message]]] = {
    "developer": DeveloperMessage,
    "system": SystemMessage,
    "assistant": AssistantMessage,
    "user": UserMessage,
}
"""What a text message becomes, by its role (TEXT-2)."""

_KEPT_ROLES: Final = ("activity", "reasoning")
"""Roles whose messages a snapshot without any of that role leaves alone (MSG-1)."""


class Conversation:
    """A conversation as its events have left it.

    Args:
        messages: what the thread holds already.
        state: the value that state deltas amend; `UNSET` is the empty object, and lets the
            first run's echoed input say otherwise (STATE-2).
        warn: is told of what could not be applied.

    Attributes:
        messages: the messages in order, a live view (see `Messages`).
        thread_id, run_id: of the last run that started, or None.
        outcome: how the last run finished, success where it said nothing (RUN-9); None while it
            runs, and when it failed or was cut off.
        error: the last run's own report of its failure, else None.
        result: the value that the last run returned, or `UNSET`.
        usage: the token usage that the last run reported.
        interrupts: what has to be answered before the thread goes on (CONV-4).
    """

    def __init__(
        self,
        messages: Iterable[Message] = (),
        state: Any = UNSET,
        *,
        interrupts: Iterable[Interrupt] = (),
        warn: Warn,
    ) -> None:
        self._warn = warn
        self._entries: InOrder[Entry] = InOrder([])
        self._by_id: dict[str, Entry] = {}
        self._calls: dict[str, CallEntry] = {}
        # The calls that have ever been answered: whatever is said of one later, it was carried
        # out, and is not to be carried out again (FRONT-5).
        self._answered: set[str] = set()
        for message in messages:
            self._append(message)
        self.messages: Messages = Messages(self._entries)
        self._state_given = state is not UNSET
        self._state = PatchTarget(state if self._state_given else {})
        self.thread_id: str | None = None
        self.run_id: str | None = None
        self.outcome: RunFinishedOutcome | None = None
        self.error: RunErrorEvent | None = None
        self.result: Any = UNSET
        self.usage: list[TokenUsage] = []
        self.interrupts: list[Interrupt] = list(interrupts)
        # Those open when the run began, which one that fails after all leaves open (CONV-4).
        self._earlier_interrupts = self.interrupts
        # The calls that this run started, in order, and whether they were closed, until they
        # are answered; and the calls that its outcome named as pending (FRONT-3, FRONT-4).
        self._unanswered: dict[str, bool] = {}
        self._named_pending: list[str] = []
        self.appliers: dict[type[Any], Callable[[Any], None]] = {
            TextMessageStartEvent: self._text_start,
            TextMessageContentEvent: self._text_content,
            TextMessageEndEvent: self._message_end,
            ReasoningMessageStartEvent: self._reasoning_start,
            ReasoningMessageContentEvent: self._text_content,
            ReasoningMessageEndEvent: self._message_end,
            ReasoningEncryptedValueEvent: self._encrypted_value,
            ToolCallStartEvent: self._call_start,
            ToolCallArgsEvent: self._call_args,
            ToolCallEndEvent: self._call_end,
            ToolCallResultEvent: self._call_result,
            StateSnapshotEvent: self._state_snapshot,
            StateDeltaEvent: self._state_delta,
            MessagesSnapshotEvent: self._messages_snapshot,
            ActivitySnapshotEvent: self._activity_snapshot,
            ActivityDeltaEvent: self._activity_delta,
            RunStartedEvent: self._run_started,
            RunFinishedEvent: self._run_finished,
            RunErrorEvent: self._run_error,
        }

    @property
    def state(self) -> Any:
        """The state as it is now; whoever holds it keeps it unchanged."""
        return self._state.value

    @property
    def pending_tool_calls(self) -> list[ToolCall]:
        """The calls of the last run that nobody has answered, in the order they were made.

        As its outcome named them; where it named none, every call that the run started and
        completed and that had no result (FRONT-4). Empty while the run goes on.
        """
        if self.outcome is None and self.error is None:
            return []
        ids = self._named_pending or [id_ for id_, closed in self._unanswered.items() if closed]
        return [
            self._calls[id_].value
            for id_ in ids
            if id_ in self._calls and id_ not in self._answered
        ]

    @property
    def unanswered_tool_calls(self) -> list[ToolCall]:
        """Every call that the last run started and nobody has answered, however the run ended.

        Those that were cut off in the middle of their arguments are among them.
        """
        return [self._calls[id_].value for id_ in self._unanswered if id_ in self._calls]

    def add(self, message: Message) -> None:
        """Add a message that comes from no event: what the application says between runs.

        An answer to a call goes where the call's result would have gone (CONV-1), and the call
        is pending no more. The message's id has to be new.
        """
        if isinstance(message, ToolMessage):
            self._insert_answer(message)
        else:
            self._append(message)

    def apply(self, event: Event) -> None:
        """Apply one event that verification has let pass. Events without effect have none."""
        apply_event = self.appliers.get(type(event))
        if apply_event is not None:
            apply_event(event)

    # Text and reasoning messages

    def _text_start(self, event: TextMessageStartEvent) -> None:
        entry = self._by_id.get(event.message_id)
        if entry is None:
            role = "assistant" if event.role is UNSET else event.role
            entry = self._append(
                _MESSAGES[role](
                    id=event.message_id,
                    content="",
                    name=event.name,
                    subagent_run_id=event.subagent_run_id,
                )
            )
        elif entry.is_activity:
            self._warn_of(
                event,
                "TEXT-3",
                f"the id '{event.message_id}' is an activity message's; its text is dropped",
            )
            return
        if event.metadata is not UNSET:
            entry.merge_metadata(event.metadata)

    def _reasoning_start(self, event: ReasoningMessageStartEvent) -> None:
        entry = self._by_id.get(event.message_id)
        if entry is None:
            entry = self._append(
                ReasoningMessage(
                    id=event.message_id, content="", subagent_run_id=event.subagent_run_id
                )
            )
        elif entry.is_activity:
            self._warn_of(
                event,
                "EVT-6",
                f"the id '{event.message_id}' is an activity message's; its reasoning is dropped",
            )
            return
        elif entry.role != "reasoning":
            self._warn_of(
                event,
                "EVT-6",
                f"the id '{event.message_id}' is a message's with the role {entry.role}, which "
                "the reasoning continues",
            )
        if event.metadata is not UNSET:
            entry.merge_metadata(event.metadata)

    def _text_content(self, event: TextMessageContentEvent | ReasoningMessageContentEvent) -> None:
        # The hot path: what a delta of a message costs.
        entry = self._by_id.get(event.message_id)
        if entry is None:
            self._lost(event, event.message_id)
        elif not entry.is_activity:
            deltas = entry.deltas
            if deltas is not None:
                deltas.append(event.delta)
            else:
                entry.deltas = [event.delta]
                entry.touched = True
            if event.metadata is not UNSET:
                entry.merge_metadata(event.metadata)

    def _message_end(self, event: TextMessageEndEvent | ReasoningMessageEndEvent) -> None:
        entry = self._by_id.get(event.message_id)
        if entry is None:
            if event.metadata is not UNSET:
                self._lost(event, event.message_id)
        elif not entry.is_activity:
            if event.metadata is not UNSET:
                entry.merge_metadata(event.metadata)
            entry.settle()

    def _encrypted_value(self, event: ReasoningEncryptedValueEvent) -> None:
        target: Entry | CallEntry | None
        if event.subtype == "tool-call":
            target = self._calls.get(event.entity_id)
        else:
            target = self._by_id.get(event.entity_id)
            if target is not None and target.is_activity:
                target = None
        if target is None:
            self._warn_of(
                event,
                "REAS-4",
                f"no {event.subtype} '{event.entity_id}' can hold the encrypted value; "
                "it is dropped",
            )
        else:
            target.change(encrypted_value=event.encrypted_value)

    # Tool calls

    def _call_start(self, event: ToolCallStartEvent) -> None:
        if event.tool_call_id not in self._answered:
            self._unanswered[event.tool_call_id] = False
        call = self._calls.get(event.tool_call_id)  # one that is known goes on (CONV-3)
        if call is None:
            call = self._carrier_of(event).add_call(
                ToolCall(
                    id=event.tool_call_id,
                    type="function",
                    function=FunctionCall(name=event.tool_call_name, arguments=""),
                )
            )
            self._calls[event.tool_call_id] = call
        elif call.value.function.name != event.tool_call_name:
            self._warn_of(
                event,
                "STREAM-4",
                f"the call '{event.tool_call_id}' was of the tool '{call.value.function.name}' "
                f"and is now of '{event.tool_call_name}'",
            )
            call.rename(event.tool_call_name)
        if event.metadata is not UNSET:
            call.merge_metadata(event.metadata)

    def _carrier_of(self, event: ToolCallStartEvent) -> Entry:
        """The assistant message that a new call attaches to (TOOL-4)."""
        parent = event.parent_message_id
        id_ = event.tool_call_id
        if parent is not UNSET:
            entry = self._by_id.get(parent)
            if entry is None:
                id_ = parent
            elif entry.role == "assistant":
                return entry
            else:
                self._warn_of(
                    event,
                    "TOOL-4",
                    f"the parent message '{parent}' has the role {entry.role} and can't hold a "
                    "call; the call gets a message of its own",
                )
        entry = self._by_id.get(id_)
        if (
            entry is not None
            and entry.role == "assistant"
            and entry.value.subagent_run_id == event.subagent_run_id
        ):
            return entry
        return self._append(AssistantMessage(id=id_, subagent_run_id=event.subagent_run_id))

    def _call_args(self, event: ToolCallArgsEvent) -> None:
        call = self._calls.get(event.tool_call_id)
        if call is None:
            self._lost(event, event.tool_call_id)
            return
        deltas = call.deltas
        if deltas is not None:
            deltas.append(event.delta)
        else:
            call.deltas = [event.delta]
            call.entry.touched = True
        if event.metadata is not UNSET:
            call.merge_metadata(event.metadata)

    def _call_end(self, event: ToolCallEndEvent) -> None:
        if event.tool_call_id in self._unanswered:
            self._unanswered[event.tool_call_id] = True
        call = self._calls.get(event.tool_call_id)
        if call is None:
            self._lost(event, event.tool_call_id)
        elif event.metadata is not UNSET:
            call.merge_metadata(event.metadata)

    def _call_result(self, event: ToolCallResultEvent) -> None:
        message = ToolMessage(
            id=event.message_id,
            tool_call_id=event.tool_call_id,
            content=event.content,
            metadata=event.metadata,
            subagent_run_id=event.subagent_run_id,
        )
        known = self._by_id.get(event.message_id)
        if known is not None and known.role == "tool":
            # The same result again, as replays send it: the message keeps its place.
            known.set(message)
            self._answer(event.tool_call_id)
            return
        if known is not None:
            self._warn_of(
                event,
                "EVT-6",
                f"the id '{event.message_id}' is a message's with the role {known.role}; the "
                "result becomes a second message of that id",
            )
        self._insert_answer(message)

    def _answer(self, tool_call_id: str) -> None:
        self._unanswered.pop(tool_call_id, None)
        self._answered.add(tool_call_id)

    def _insert_answer(self, message: ToolMessage) -> None:
        self._answer(message.tool_call_id)
        call = self._calls.get(message.tool_call_id)
        if call is None:
            self._append(message)
            return
        # Model providers refuse a history in which a result doesn't follow its call (CONV-1).
        entry = Entry(message)
        self._entries.answer(call.entry, entry)
        self._by_id.setdefault(message.id, entry)

    # State and snapshots

    def _state_snapshot(self, event: StateSnapshotEvent) -> None:
        self._state_given = True
        self._state.replace(event.snapshot)

    def _state_delta(self, event: StateDeltaEvent) -> None:
        try:
            self._state.apply(event.delta)
        except PatchError as error:
            self._warn_of(
                event,
                "STATE-4",
                f"the patch does not apply to the state and is skipped: {error}",
                path=_operation_path("delta", error),
            )

    def _messages_snapshot(self, event: MessagesSnapshotEvent) -> None:
        snapshot = {message.id: message for message in event.messages}
        if len(snapshot) < len(event.messages):
            self._warn_of(
                event,
                "EVT-6",
                "several messages of the snapshot have one id; the last of each is kept",
                path="/messages",
            )
        stated = {message.role for message in event.messages}
        kept: list[Entry] = []
        for entry in self._entries.settled:
            message = snapshot.pop(entry.id, None)
            if message is not None:
                entry.set(message)  # as a whole, so that what it leaves out is gone (REAS-5)
                kept.append(entry)
            elif entry.role in _KEPT_ROLES and entry.role not in stated:
                kept.append(entry)
        kept.extend(Entry(message) for message in snapshot.values())
        self._entries.replace(kept)
        self._by_id = {}
        self._calls = {}
        for entry in kept:
            self._index(entry)

    # Activity

    def _activity_snapshot(self, event: ActivitySnapshotEvent) -> None:
        entry = self._by_id.get(event.message_id)
        replace = event.replace is not False
        if entry is None or (not entry.is_activity and replace):
            message = ActivityMessage(
                id=event.message_id,
                activity_type=event.activity_type,
                content=event.content,
                subagent_run_id=event.subagent_run_id,
            )
            if entry is None:
                entry = self._append(message)
            else:
                self._warn_of(
                    event,
                    "EVT-6",
                    f"the id '{event.message_id}' was a message's with the role {entry.role}, "
                    "which the activity replaces",
                )
                for call in entry.calls:
                    self._calls.pop(call.value.id, None)
                _ = self._entries.settled  # by the roles that were there
                entry.set(message)
                self._entries.note_roles()
        elif not entry.is_activity:
            return
        elif replace:
            # Metadata stays, and who sends it owns it (ACT-2).
            entry.change(
                activity_type=event.activity_type,
                content=event.content,
                subagent_run_id=event.subagent_run_id,
            )
        if event.metadata is not UNSET:
            entry.merge_metadata(event.metadata)

    def _activity_delta(self, event: ActivityDeltaEvent) -> None:
        entry = self._by_id.get(event.message_id)
        if entry is None or not entry.is_activity:
            what = "is no activity message" if entry is not None else "does not exist"
            self._warn_of(
                event, "ACT-3", f"the message '{event.message_id}' {what}; the delta is skipped"
            )
            return
        # A patch that is stale costs the message neither its metadata nor the prior content.
        if event.metadata is not UNSET:
            entry.merge_metadata(event.metadata)
        try:
            entry.patch(event.patch, event.activity_type)
        except PatchError as error:
            self._warn_of(
                event,
                "STATE-4",
                f"the patch does not apply to the activity '{event.message_id}' and is "
                f"skipped: {error}",
                path=_operation_path("patch", error),
            )

    # Runs

    def _run_started(self, event: RunStartedEvent) -> None:
        first = self.run_id is None
        self.thread_id = event.thread_id
        self.run_id = event.run_id
        self.outcome = None
        self.error = None
        self.result = UNSET
        self.usage = []
        self._unanswered = {}
        self._named_pending = []
        self._earlier_interrupts = self.interrupts
        if event.input is not UNSET:
            for message in event.input.messages:
                if message.id not in self._by_id:  # what is held stays as it is (CONV-2)
                    self._append(message)
            if first and not self._state_given and event.input.state is not UNSET:
                self._state.replace(event.input.state)

    def _run_finished(self, event: RunFinishedEvent) -> None:
        outcome = RunFinishedSuccessOutcome() if event.outcome is UNSET else event.outcome
        self.outcome = outcome
        self.result = event.result
        self.usage = [] if event.usage is UNSET else event.usage
        self.interrupts = (
            list(outcome.interrupts) if isinstance(outcome, RunFinishedInterruptOutcome) else []
        )
        if isinstance(outcome, RunFinishedSuccessOutcome):
            named = outcome.pending_tool_call_ids
            for id_ in () if named is UNSET else named:
                if id_ not in self._calls:
                    self._warn_of(
                        event,
                        "FRONT-3",
                        f"the outcome names the pending call '{id_}', which nobody made",
                        path="/outcome/pendingToolCallIds",
                    )
                elif id_ in self._answered:
                    self._warn_of(
                        event,
                        "FRONT-3",
                        f"the outcome names the pending call '{id_}', which has been answered",
                        path="/outcome/pendingToolCallIds",
                    )
                else:
                    self._named_pending.append(id_)

    def _run_error(self, event: RunErrorEvent) -> None:
        if isinstance(self.outcome, RunFinishedSuccessOutcome | RunFinishedCancelledOutcome):
            self.interrupts = self._earlier_interrupts
        self.outcome = None
        self.error = event
        self.result = UNSET
        self.usage = [] if event.usage is UNSET else event.usage

    # The thread

    def _append(self, message: Message) -> Entry:
        entry = Entry(message)
        self._entries.append(entry)
        self._index(entry)
        return entry

    def _index(self, entry: Entry) -> None:
        self._by_id.setdefault(entry.id, entry)
        for call in entry.calls:
            self._calls.setdefault(call.value.id, call)
        if entry.role == "tool":
            message = entry.value
            assert isinstance(message, ToolMessage)
            self._answered.add(message.tool_call_id)

    def _lost(self, event: Event, id_: str) -> None:
        self._warn_of(
            event, "MSG-1", f"'{id_}' is no longer in the conversation; its content is dropped"
        )

    def _warn_of(self, event: Event, rule: str, message: str, path: str | None = None) -> None:
        self._warn(
            ProtocolWarning(
                stage="conversation",
                rule=rule,
                event_type=event.type,
                path=path,
                message=message,
            )
        )


def _operation_path(member: str, error: PatchError) -> str:
    return f"/{member}" if error.index is None else f"/{member}/{error.index}"
