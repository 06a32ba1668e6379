"""Verification: whether an event may come at its place in the stream.

One state machine for both roles, and it does not know which one it serves: a consumer raises
what a producer refuses. It holds which items are open and who owns them, for one run at a
time; it must not know how events arrive or what they build. Chunks have been expanded before.

`TABLE` says for each event what it opens, continues, closes or stands beside, and by which
member it names the item; the phases of a stream are below it. The diagrams of the
documentation are drawn from both.
"""

from collections.abc import Callable
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from aguia.pipeline.warn import Warn
from aguia.protocol.common import UNSET, UnsetType
from aguia.protocol.errors import ProtocolWarning, SequenceViolation
from aguia.protocol.events import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    CustomEvent,
    Event,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningEncryptedValueEvent,
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
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguia.protocol.messages import ActivityMessage, AssistantMessage, Message, ReasoningMessage

__all__ = [
    "DISCIPLINE",
    "LEFT_OPEN",
    "MAX_OPEN_ITEMS",
    "ONCE",
    "PHASES",
    "TABLE",
    "Action",
    "Family",
    "OpenItem",
    "Phase",
    "Transition",
    "Verifier",
]

MAX_OPEN_ITEMS: Final = 10_000
"""How many items a run may have open at once by default."""

Owner: TypeAlias = str | UnsetType
"""A subagent invocation, or `UNSET` for the parent agent."""


class Phase(Enum):
    """Where a stream stands between its runs."""

    BEFORE = "before the first run"
    ACTIVE = "in a run"
    FINISHED = "after a finished run"
    FAILED = "after a failed run"


PHASES: Final[dict[Phase, dict[type[Event], Phase]]] = {
    Phase.BEFORE: {RunStartedEvent: Phase.ACTIVE, RunErrorEvent: Phase.FAILED},
    Phase.ACTIVE: {RunFinishedEvent: Phase.FINISHED, RunErrorEvent: Phase.FAILED},
    Phase.FINISHED: {RunStartedEvent: Phase.ACTIVE, RunErrorEvent: Phase.FAILED},
    Phase.FAILED: {RunStartedEvent: Phase.ACTIVE},
}
"""The run-level events that each phase admits, and the phase that follows (RUN-1, 4, 6)."""


class Family(Enum):
    """The kinds of item that an id can name; each is a namespace of its own (REAS-1)."""

    MESSAGE = "text message"
    TOOL_CALL = "tool call"
    SPAN = "reasoning span"
    REASONING = "reasoning message"
    STEP = "step"
    SUBAGENT = "subagent"
    ACTIVITY = "activity message"

    if not TYPE_CHECKING:
        # Members are compared by identity, so they can be hashed by it, which costs no call.
        __hash__ = object.__hash__


class Action(Enum):
    """What an event does to the item that it names."""

    OPENS = "opens"
    CONTINUES = "continues"
    CLOSES = "closes"
    MAKES = "makes"
    """Brings the item about in one go, so that its owner is known and nothing is open."""
    AMENDS = "amends"
    """Needs nothing open; only its tag has to agree with the owner, if there is one."""
    STANDS = "stands alone"
    """May come anywhere in a run (STREAM-3)."""


class Transition(NamedTuple):
    """One row of the table."""

    action: Action
    family: Family | None = None
    member: str = ""


TABLE: Final[dict[type[Event], Transition]] = {
    TextMessageStartEvent: Transition(Action.OPENS, Family.MESSAGE, "message_id"),
    TextMessageContentEvent: Transition(Action.CONTINUES, Family.MESSAGE, "message_id"),
    TextMessageEndEvent: Transition(Action.CLOSES, Family.MESSAGE, "message_id"),
    ToolCallStartEvent: Transition(Action.OPENS, Family.TOOL_CALL, "tool_call_id"),
    ToolCallArgsEvent: Transition(Action.CONTINUES, Family.TOOL_CALL, "tool_call_id"),
    ToolCallEndEvent: Transition(Action.CLOSES, Family.TOOL_CALL, "tool_call_id"),
    ToolCallResultEvent: Transition(Action.MAKES, Family.MESSAGE, "message_id"),
    ReasoningStartEvent: Transition(Action.OPENS, Family.SPAN, "message_id"),
    ReasoningEndEvent: Transition(Action.CLOSES, Family.SPAN, "message_id"),
    ReasoningMessageStartEvent: Transition(Action.OPENS, Family.REASONING, "message_id"),
    ReasoningMessageContentEvent: Transition(Action.CONTINUES, Family.REASONING, "message_id"),
    ReasoningMessageEndEvent: Transition(Action.CLOSES, Family.REASONING, "message_id"),
    ReasoningEncryptedValueEvent: Transition(Action.AMENDS, None, "entity_id"),
    StepStartedEvent: Transition(Action.OPENS, Family.STEP, "step_name"),
    StepFinishedEvent: Transition(Action.CLOSES, Family.STEP, "step_name"),
    SubagentStartedEvent: Transition(Action.OPENS, Family.SUBAGENT, "subagent_run_id"),
    SubagentFinishedEvent: Transition(Action.CLOSES, Family.SUBAGENT, "subagent_run_id"),
    SubagentErrorEvent: Transition(Action.CLOSES, Family.SUBAGENT, "subagent_run_id"),
    ActivitySnapshotEvent: Transition(Action.MAKES, Family.ACTIVITY, "message_id"),
    ActivityDeltaEvent: Transition(Action.AMENDS, Family.ACTIVITY, "message_id"),
    StateSnapshotEvent: Transition(Action.STANDS),
    StateDeltaEvent: Transition(Action.STANDS),
    RawEvent: Transition(Action.STANDS),
    CustomEvent: Transition(Action.STANDS),
    MessagesSnapshotEvent: Transition(Action.STANDS),
}
"""What each event of an open run does (EVT-7).

Run-level events are in `PHASES`, and chunks are no more.
"""

DISCIPLINE: Final[dict[Family, str]] = {
    Family.MESSAGE: "STREAM-1",
    Family.TOOL_CALL: "STREAM-1",
    Family.SPAN: "REAS-2",
    Family.REASONING: "REAS-2",
    Family.STEP: "RUN-14",
    Family.SUBAGENT: "SUB-2",
}
"""The rule that forbids what the table does not allow of an item; activities are always free."""

LEFT_OPEN: Final[dict[Family, str]] = {
    Family.MESSAGE: "RUN-5",
    Family.TOOL_CALL: "RUN-5",
    Family.SPAN: "REAS-2",
    Family.REASONING: "REAS-2",
    Family.STEP: "RUN-5",
    Family.SUBAGENT: "SUB-2",
}
"""The rule that forbids to finish a run with an item open."""

ONCE: Final[frozenset[Family]] = frozenset({Family.SUBAGENT})
"""Of these an item that was closed is not opened again in its run (SUB-2), as others may be."""


class OpenItem(NamedTuple):
    """An item that has been opened and not closed."""

    family: Family
    id: str
    owner: Owner


_ABSENT: Final[Any] = object()

_Check: TypeAlias = Callable[[Any], None]


class Verifier:
    """The state machine of one stream. `check` every event in order.

    With `thread_id` and `run_id` of the run input, a stream that answers another one is
    reported to `warn` (RUN-3). `max_open_items` is how many items may be open at once.
    """

    def __init__(
        self,
        warn: Warn,
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        max_open_items: int = MAX_OPEN_ITEMS,
    ) -> None:
        self._phase = Phase.BEFORE
        self._warn = warn
        self._max_open = max_open_items
        self._thread_id = thread_id
        self._run_id = run_id
        self._run_seen = run_id is None
        self._start: RunStartedEvent | None = None
        # Open items by family: id to owner (a step's id is its owner and name). Owners outlive
        # their items, because an id can be named again before the run is over (SUB-4).
        self._open: dict[Family, dict[Any, Owner]] = {family: {} for family in Family}
        self._owners: dict[Family, dict[str, Owner]] = {family: {} for family in Family}
        # A span and the message inside it may share an id, and then share their owner.
        self._owners[Family.SPAN] = self._owners[Family.REASONING]
        self._opened: dict[tuple[Family, Any], None] = {}
        self._ended_subagents: set[str] = set()
        self._tags: set[str] = set()
        self._table: dict[type[Any], _Check] = {
            event: self._check_for(event, row) for event, row in TABLE.items()
        }
        # What may come now without changing the phase: the table in a run, nothing outside.
        # One look-up in it is all that the phase costs an event of a run.
        self.checks: dict[type[Any], _Check] = {}

    @property
    def phase(self) -> Phase:
        """Where the stream stands."""
        return self._phase

    def check(self, event: Event) -> None:
        """Raise `SequenceViolation` when the event may not come here, else take note of it."""
        check = self.checks.get(type(event))
        if check is not None:
            check(event)
        else:
            self._run_level(event)

    def is_open(self, item: OpenItem) -> bool:
        """Whether the item has been opened and not closed."""
        key = (item.owner, item.id) if item.family is Family.STEP else item.id
        return key in self._open[item.family]

    def open_items(self) -> list[OpenItem]:
        """Everything that is open, in the order in which it was opened."""
        items = []
        for family, key in self._opened:
            id_ = key[1] if family is Family.STEP else key
            owner = UNSET if family is Family.SUBAGENT else self._open[family][key]
            items.append(OpenItem(family, id_, owner))
        return items

    def end(self) -> None:
        """Take note that the stream has ended; warns when the requested run never came."""
        if not self._run_seen and self._start is not None:
            self._warn(
                ProtocolWarning(
                    stage="verification",
                    rule="RUN-3",
                    message=f"no run on the stream had the requested runId '{self._run_id}'",
                )
            )

    # Run-level events

    def _run_level(self, event: Event) -> None:
        kind = type(event)
        following = PHASES[self._phase].get(kind)
        if following is None:
            raise self._out_of_phase(event)
        if isinstance(event, RunStartedEvent):
            self._begin(event)
        elif isinstance(event, RunFinishedEvent):
            self._finish(event)
        else:
            # A failure ends whatever was open (RUN-7, SUB-7).
            self._opened.clear()
            for open_items in self._open.values():
                open_items.clear()
        self._phase = following
        self.checks.clear()
        if following is Phase.ACTIVE:
            self.checks.update(self._table)

    def _out_of_phase(self, event: Event) -> SequenceViolation:
        match self._phase:
            case Phase.BEFORE:
                rule, why = "RUN-1", "a stream begins with RUN_STARTED or RUN_ERROR"
            case Phase.ACTIVE:
                rule, why = "RUN-4", "the run before it has not ended"
            case Phase.FINISHED:
                rule, why = "RUN-6", "the run has finished; a new run begins with RUN_STARTED"
            case _:
                rule, why = "RUN-6", "the run has failed; only RUN_STARTED may follow"
        return SequenceViolation(why, rule=rule, event_type=event.type)

    def _begin(self, event: RunStartedEvent) -> None:
        thread = self._thread_id
        if thread is None and self._start is not None:
            thread = self._start.thread_id
        if thread is not None and event.thread_id != thread:
            self._warn(
                ProtocolWarning(
                    stage="verification",
                    rule="RUN-3",
                    event_type=event.type,
                    path="/threadId",
                    message=f"the run names the thread '{event.thread_id}', "
                    f"and the stream is about '{thread}'",
                )
            )
        self._start = event
        self._run_seen = self._run_seen or event.run_id == self._run_id
        for family in Family:
            self._open[family].clear()
            self._owners[family].clear()
        self._opened.clear()
        self._ended_subagents.clear()
        self._tags.clear()
        if event.input is not UNSET:
            self._own(event.input.messages, authoritative=False)

    def _finish(self, event: RunFinishedEvent) -> None:
        start = self._start
        if start is not None:
            for member, was, now in (
                ("runId", start.run_id, event.run_id),
                ("threadId", start.thread_id, event.thread_id),
            ):
                if was != now:
                    raise SequenceViolation(
                        f"the run started with the {member} '{was}' and finishes with '{now}'",
                        rule="RUN-3",
                        event_type=event.type,
                    )
        if self._opened:
            items = self.open_items()
            first = items[0]
            more = f" and {len(items) - 1} more" if len(items) > 1 else ""
            raise SequenceViolation(
                f"the {first.family.value} '{first.id}'{more} is still open",
                rule=LEFT_OPEN[first.family],
                event_type=event.type,
            )

    # Events of an open run: one check each, made from its row of the table

    def _check_for(self, kind: type[Event], row: Transition) -> _Check:
        special: dict[type[Any], _Check] = {
            ToolCallStartEvent: self._tool_call_start,
            ToolCallResultEvent: self._tool_call_result,
            ActivitySnapshotEvent: self._activity_snapshot,
            ReasoningEncryptedValueEvent: self._encrypted_value,
            MessagesSnapshotEvent: self._messages_snapshot,
            SubagentStartedEvent: self._subagent_started,
            StepStartedEvent: self._step_started,
            StepFinishedEvent: self._step_finished,
        }
        if kind in special:
            return special[kind]
        if row.family is None:
            return self._stands
        id_of = attrgetter(row.member)
        match row.action:
            case Action.OPENS:
                return self._opens(row.family, id_of)
            case Action.CONTINUES:
                return self._continues(row.family, id_of)
            case Action.CLOSES if row.family in ONCE:
                return self._subagent_ended
            case Action.CLOSES:
                return self._closes(row.family, id_of)
            case Action.AMENDS:
                return self._amends(row.family, id_of)
        raise TypeError(f"no check for {row}")

    def _opens(self, family: Family, id_of: Callable[[Any], str]) -> _Check:
        def check(event: Any) -> None:
            self._open_item(event, family, id_of(event), event.subagent_run_id)

        return check

    def _continues(self, family: Family, id_of: Callable[[Any], str]) -> _Check:
        get_owner = self._open[family].get
        absent = _ABSENT

        # The hot path: one look-up for each delta of each item. Owner and tag are both `UNSET`
        # while the parent agent speaks, which is the usual case.
        def check_message(event: Any) -> None:
            owner = get_owner(event.message_id, absent)
            if owner is not UNSET or event.subagent_run_id is not UNSET:
                self._continue_checked(event, family, event.message_id, owner)

        def check(event: Any) -> None:
            owner = get_owner(event.tool_call_id, absent)
            if owner is not UNSET or event.subagent_run_id is not UNSET:
                self._continue_checked(event, family, event.tool_call_id, owner)

        return check if family is Family.TOOL_CALL else check_message

    def _continue_checked(self, event: Any, family: Family, id_: str, owner: Owner) -> None:
        if owner is _ABSENT:
            raise self._not_open(event, family, id_)
        tag = event.subagent_run_id
        if tag is not UNSET:
            if tag != owner:
                raise _disagrees(event, family, id_, owner)
            self._tags.add(tag)

    def _closes(self, family: Family, id_of: Callable[[Any], str]) -> _Check:
        open_items = self._open[family]

        def check(event: Any) -> None:
            id_ = id_of(event)
            owner = open_items.get(id_, _ABSENT)
            if owner is not UNSET or event.subagent_run_id is not UNSET:
                self._continue_checked(event, family, id_, owner)
            del open_items[id_]
            del self._opened[family, id_]

        return check

    def _amends(self, family: Family, id_of: Callable[[Any], str]) -> _Check:
        owners = self._owners[family]

        def check(event: Any) -> None:
            self._agree(event, family, id_of(event), owners)
            self._stands(event)

        return check

    def _stands(self, event: Any) -> None:
        # A tag need not have been announced (SUB-3), and says nothing of who owns state (STATE-6).
        tag = event.subagent_run_id
        if tag is not UNSET:
            self._tags.add(tag)

    def _open_item(self, event: Any, family: Family, id_: str, owner: Owner) -> None:
        """Open an item for `owner`, who keeps it when the id was theirs before (STREAM-4)."""
        open_items = self._open[family]
        if id_ in open_items:
            raise SequenceViolation(
                f"the {family.value} '{id_}' is already open",
                rule=DISCIPLINE[family],
                event_type=event.type,
            )
        self._check_room(event)
        owners = self._owners[family]
        known = owners.get(id_, _ABSENT)
        if known is _ABSENT:
            owners[id_] = known = owner
        elif owner is not UNSET and owner != known:
            raise _disagrees(event, family, id_, known)
        open_items[id_] = known
        self._opened[family, id_] = None
        if event.subagent_run_id is not UNSET:
            self._tags.add(event.subagent_run_id)

    def _check_room(self, event: Event) -> None:
        if len(self._opened) >= self._max_open:
            raise SequenceViolation(
                f"{self._max_open} items are open already, and no more may be",
                rule=None,
                event_type=event.type,
            )

    def _agree(self, event: Any, family: Family, id_: str, owners: dict[str, Owner]) -> None:
        tag = event.subagent_run_id
        if tag is not UNSET:
            owner = owners.get(id_, _ABSENT)
            if owner is not _ABSENT and tag != owner:
                raise _disagrees(event, family, id_, owner)

    def _tool_call_start(self, event: ToolCallStartEvent) -> None:
        # A call belongs to the message that carries it and has no owner of its own (TOOL-5).
        owner: Owner = event.subagent_run_id
        parent = event.parent_message_id
        if parent is not UNSET:
            carrier = self._owners[Family.MESSAGE].get(parent, _ABSENT)
            if carrier is not _ABSENT:
                if owner is not UNSET and owner != carrier:
                    raise SequenceViolation(
                        f"the message '{parent}' that carries the call belongs to "
                        f"{_say(carrier)}, and the call is tagged as {_say(owner)}'s",
                        rule="TOOL-5",
                        event_type=event.type,
                    )
                owner = carrier
                known = self._owners[Family.TOOL_CALL].get(event.tool_call_id, _ABSENT)
                if known is not _ABSENT and known != owner:
                    raise _disagrees(event, Family.TOOL_CALL, event.tool_call_id, known)
        self._open_item(event, Family.TOOL_CALL, event.tool_call_id, owner)
        if parent is not UNSET:
            # The message that comes about with the call is the call's owner's.
            self._owners[Family.MESSAGE].setdefault(parent, owner)

    def _tool_call_result(self, event: ToolCallResultEvent) -> None:
        self._owners[Family.MESSAGE][event.message_id] = event.subagent_run_id
        self._stands(event)

    def _activity_snapshot(self, event: ActivitySnapshotEvent) -> None:
        owners = self._owners[Family.ACTIVITY]
        if event.replace is not False or event.message_id not in owners:
            owners[event.message_id] = event.subagent_run_id
        self._stands(event)

    def _encrypted_value(self, event: ReasoningEncryptedValueEvent) -> None:
        families = (
            (Family.TOOL_CALL,)
            if event.subtype == "tool-call"
            else (Family.MESSAGE, Family.REASONING)
        )
        for family in families:
            if event.entity_id in self._owners[family]:
                self._agree(event, family, event.entity_id, self._owners[family])
                break
        self._stands(event)

    def _messages_snapshot(self, event: MessagesSnapshotEvent) -> None:
        self._own(event.messages, authoritative=True)

    def _own(self, messages: list[Message], *, authoritative: bool) -> None:
        """Note who owns the messages of a snapshot, or of an echoed input (MSG-2)."""
        for message in messages:
            if isinstance(message, ReasoningMessage):
                family = Family.REASONING
            elif isinstance(message, ActivityMessage):
                family = Family.ACTIVITY
            else:
                family = Family.MESSAGE
            self._own_item(family, message.id, message.subagent_run_id, authoritative)
            if isinstance(message, AssistantMessage):
                for call in message.tool_calls or ():
                    self._own_item(
                        Family.TOOL_CALL, call.id, message.subagent_run_id, authoritative
                    )

    def _own_item(self, family: Family, id_: str, owner: Owner, authoritative: bool) -> None:
        if authoritative:
            self._owners[family][id_] = owner
            # One that is open goes on under the owner that it now has in the conversation.
            if id_ in self._open[family]:
                self._open[family][id_] = owner
        else:
            self._owners[family].setdefault(id_, owner)

    def _subagent_started(self, event: SubagentStartedEvent) -> None:
        id_ = event.subagent_run_id
        active = self._open[Family.SUBAGENT]
        parent = event.parent_subagent_run_id
        why = None
        if id_ in active:
            why = f"the subagent '{id_}' is already active"
        elif id_ in self._ended_subagents:
            why = f"the subagent '{id_}' has already ended in this run; ids are not reused"
        elif id_ in self._tags:
            why = f"events attributed to '{id_}' came before its announcement"
        elif parent is not UNSET and parent not in active and parent not in self._ended_subagents:
            why = f"the parent invocation '{parent}' has not been announced in this run"
        if why is not None:
            raise SequenceViolation(why, rule="SUB-2", event_type=event.type)
        self._check_room(event)
        active[id_] = parent
        self._opened[Family.SUBAGENT, id_] = None

    def _subagent_ended(self, event: SubagentFinishedEvent | SubagentErrorEvent) -> None:
        id_ = event.subagent_run_id
        if id_ not in self._open[Family.SUBAGENT]:
            raise self._not_open(event, Family.SUBAGENT, id_)
        del self._open[Family.SUBAGENT][id_]
        del self._opened[Family.SUBAGENT, id_]
        self._ended_subagents.add(id_)

    def _step_started(self, event: StepStartedEvent) -> None:
        key = (event.subagent_run_id, event.step_name)
        steps = self._open[Family.STEP]
        if key in steps:
            raise SequenceViolation(
                f"the step '{event.step_name}' of {_say(event.subagent_run_id)} is already open",
                rule="RUN-14",
                event_type=event.type,
            )
        self._check_room(event)
        steps[key] = event.subagent_run_id
        self._opened[Family.STEP, key] = None
        self._stands(event)

    def _step_finished(self, event: StepFinishedEvent) -> None:
        key = (event.subagent_run_id, event.step_name)
        steps = self._open[Family.STEP]
        if key not in steps:
            others = [owner for owner, name in steps if name == event.step_name]
            hint = f"; it is open under {_say(others[0])}" if others else ""
            raise SequenceViolation(
                f"the step '{event.step_name}' of {_say(event.subagent_run_id)} is not open{hint}",
                rule="RUN-14",
                event_type=event.type,
            )
        del steps[key]
        del self._opened[Family.STEP, key]

    def _not_open(self, event: Event, family: Family, id_: str) -> SequenceViolation:
        known = self._ended_subagents if family is Family.SUBAGENT else self._owners[family]
        before = " any more" if id_ in known else ""
        return SequenceViolation(
            f"no {family.value} '{id_}' is open{before}",
            rule=DISCIPLINE[family],
            event_type=event.type,
        )


def _disagrees(event: Any, family: Family, id_: str, owner: Owner) -> SequenceViolation:
    return SequenceViolation(
        f"the {family.value} '{id_}' belongs to {_say(owner)}, "
        f"and this event is tagged as {_say(event.subagent_run_id)}'s",
        rule="SUB-4",
        event_type=event.type,
    )


def _say(owner: Owner) -> str:
    return "the parent agent" if owner is UNSET else f"the subagent '{owner}'"
