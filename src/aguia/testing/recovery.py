"""Verification that goes on behind a violation, with the least noise from what follows.

Reports what the state machine refuses, once, and then mends the matter by events of its own that
nobody hears of: content of an item that nobody opened opens it, what is left open is closed, an
event with the tag of somebody else goes on as its item's owner's. An item that has had a finding
is forgiven whatever else is wrong with it in that run, and an event that nobody could read may
explain one thing that is missing.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from aguia.pipeline.chunks import CHUNKS, ChunkExpander
from aguia.pipeline.verification import TABLE, Action, Family, OpenItem, Phase, Verifier
from aguia.pipeline.warn import Warn
from aguia.protocol.common import UNSET, UnsetType
from aguia.protocol.errors import ProtocolWarning, SequenceViolation
from aguia.protocol.events import (
    EVENTS,
    Event,
    ReasoningEndEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from aguia.protocol.input import RunAgentInput
from aguia.testing.collector import Collector

__all__ = ["Recovery"]

_MAX_MENDS: Final = 8
"""How often one event is mended before it is given up."""

_MAX_CARRIED: Final = 100
"""How many open items a run that starts too early takes over."""

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


_CHUNK_FAMILIES: Final = {
    "TEXT_MESSAGE_CHUNK": Family.MESSAGE,
    "TOOL_CALL_CHUNK": Family.TOOL_CALL,
    "REASONING_MESSAGE_CHUNK": Family.REASONING,
}


class Recovery:
    """Chunk expansion and verification of one stream, to its end whatever is wrong with it.

    Args:
        found: takes the errors.
        warn: takes what the state machine warns of.
        accept: is given each event that may come where it came, or was made to; and whether it
            is one of ours, of which nobody should hear.
        request: the run input that the stream answers, if it is known.
    """

    def __init__(
        self,
        found: Collector,
        warn: Warn,
        accept: Callable[[Event, bool], None],
        request: RunAgentInput | None,
    ) -> None:
        self._found = found
        self._warn_of = warn
        self._tell = accept
        self._thread_id = request.thread_id if request is not None else None
        self._run_id = request.run_id if request is not None else None
        self._chunks = ChunkExpander()
        self._verifier = Verifier(self._warn, thread_id=self._thread_id, run_id=self._run_id)
        self._quiet = 0

        self._start: RunStartedEvent | None = None
        self._assumed = False
        """Whether the run's start was never seen, so that nobody knows its ids."""
        self._runs = 0
        self._superseded: set[str] = set()
        """Runs that had not ended when the next one started."""
        self._ended_late = False
        """Whether one of them has ended since."""
        self._forgiven: set[tuple[Family, str]] = set()
        self._unread = 0
        """How many events of the run nobody could read."""
        self._unread_starts: dict[Family, int] = {}
        self._unread_ends: dict[Family, int] = {}
        self._lost_id = False
        """Whether the event at hand has an id that can't be read."""
        self._implied: list[Event] = []
        """The ends of chunk streams that the event at hand implies."""
        self._steps: dict[str, str | UnsetType] = {}
        """Who has opened the steps that are open, by name."""

    @property
    def phase(self) -> Phase:
        """Where the stream stands."""
        return self._verifier.phase

    @property
    def run_id(self) -> str | None:
        """The run that is under way, or the last one, where that is known."""
        return None if self._start is None or self._assumed else self._start.run_id

    @property
    def explains_truncation(self) -> bool:
        """Whether a run in a run explains that this one has no end: the other has had it."""
        return self._ended_late

    def take(self, event: Any, mended: set[str] | None = None) -> None:
        """Take the next event, chunks included.

        `mended`: for one that was malformed, which of its members are not its own.
        """
        self._lost_id = False
        if mended is not None:
            row = TABLE.get(type(event))
            if row is not None and row.member and _wire_name(event, row.member) in mended:
                self._unread_item(type(event))
                return
            # Of a chunk nobody knows whether it had an id.
            self._lost_id = type(event) in CHUNKS or (
                isinstance(event, RunStartedEvent | RunFinishedEvent)
                and not mended.isdisjoint({"runId", "threadId"})
            )
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
                return

    def unread(self, kind: Any = None) -> None:
        """Take note of an event that nobody can read, but perhaps for its type."""
        event_type: Any = EVENTS.get(kind) if isinstance(kind, str) else None
        if event_type in (None, RunStartedEvent, RunFinishedEvent, RunErrorEvent):
            self._unread += 1
        else:
            self._unread_item(event_type)

    def end(self) -> None:
        """Take note that the stream has ended, and ended well."""
        if not self._assumed:
            self._verifier.end()

    def _warn(self, warning: ProtocolWarning) -> None:
        if not self._quiet:
            self._warn_of(warning)

    def _count(self, counts: dict[Family, int], family: Family | None) -> None:
        if family is not None:
            counts[family] = counts.get(family, 0) + 1

    def _unread_item(self, event_type: type[Any]) -> None:
        row = TABLE.get(event_type)
        if row is not None and row.action is Action.OPENS:
            self._count(self._unread_starts, row.family)
        elif row is not None and row.action is Action.CLOSES:
            self._count(self._unread_ends, row.family)

    # Chunks

    def _mend_chunk(self, chunk: Any, error: SequenceViolation) -> Any:
        """Report what is wrong with a chunk; the chunk as it can be taken, or None."""
        is_tool = chunk.type == "TOOL_CALL_CHUNK"
        member = "tool_call_id" if is_tool else "message_id"
        family = _CHUNK_FAMILIES[chunk.type]
        id_ = getattr(chunk, member)
        if self._found.has(("RUN-6", self._runs)) and self._verifier.phase is not Phase.ACTIVE:
            self._found.error(error, key=("RUN-6", self._runs))
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
                    self._found.error(error, key=("CHUNK-2", chunk.type, id_ is UNSET))
                changes: dict[str, Any] = {}
                if id_ is UNSET:
                    changes[member] = id_ = f"(no id, event {self._found.index})"
                if is_tool and chunk.tool_call_name is UNSET:
                    changes["tool_call_name"] = ""
                self._forgiven.add((family, id_))
                return msgspec.structs.replace(chunk, **changes)
            case "CHUNK-4":
                if (family, id_) not in self._forgiven:
                    self._found.error(error, key=("CHUNK-4", error.message))
                openers = ("tool_call_name", "parent_message_id", "role", "name")
                return msgspec.structs.replace(
                    chunk, **{name: UNSET for name in openers if hasattr(chunk, name)}
                )
            case "CHUNK-8":
                self._found.error(error, key=("CHUNK-8", family, id_, chunk.subagent_run_id))
                return msgspec.structs.replace(chunk, subagent_run_id=UNSET)
        self._found.error(error, key=(error.rule, chunk.type))
        return None

    # Verification

    def _judge(self, event: Event) -> None:
        """Verify an event; where it may not come, report it, mend the matter, and try again."""
        following: Any = event
        for _ in range(_MAX_MENDS):
            try:
                self._check(following)
            except SequenceViolation as error:
                mended = self._recover(following, error)
                if mended is None:
                    break
                following = mended
            else:
                self._accept(following)
                break
        if self._found.faulty:
            self._forgive(following)

    def _check(self, event: Any) -> None:
        # Nobody knows which thread a run without a start was of.
        unknown = self._assumed and isinstance(event, RunStartedEvent)
        self._quiet += unknown
        try:
            self._verifier.check(event)
        finally:
            self._quiet -= unknown

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
        match event:
            case RunStartedEvent():
                self._begin(event)
            case RunFinishedEvent() | RunErrorEvent():
                self._unread = 0
            case StepStartedEvent():
                self._steps[event.step_name] = event.subagent_run_id
            case StepFinishedEvent():
                self._steps.pop(event.step_name, None)
        self._tell(event, self._quiet > 0)

    def _begin(self, event: RunStartedEvent) -> None:
        self._start = event
        self._assumed = self._lost_id
        self._forgiven.clear()
        self._unread_starts.clear()
        self._unread_ends.clear()
        self._steps.clear()
        self._unread = 0
        self._runs += 1

    # What to do about what the state machine refuses

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
            self._found.error(error)
        else:
            late = isinstance(event, RunFinishedEvent) and event.run_id in self._superseded
            row = TABLE.get(type(event))
            # The end of what was left open shows that it is the finish that came too early.
            known = row is not None and (row.family, getattr(event, row.member, "")) in (
                self._forgiven
            )
            if not late and (not known or self._found.has(("RUN-6", self._runs))):
                self._found.error(error, key=("RUN-6", self._runs))
            return None
        self._silently(RunStartedEvent(thread_id=self._thread_id or "", run_id=self._run_id or ""))
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
                self._found.error(error, key=("RUN-4", event.run_id))
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
                    self._found.error(error, key=("RUN-3", self._runs))
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
        self._found.error(error, key=("RUN-5", self._runs))
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
        key = ("owner", row.family, id_, tag, self._runs)
        if self._found.has(key) or row.family is None or (row.family, id_) not in self._forgiven:
            self._found.error(error, key=key)
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
            self._found.error(error, key=(error.rule, family, id_, self._runs), related=related)
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


def _wire_name(event: Any, attribute: str) -> str:
    place = event.__struct_fields__.index(attribute)
    return str(event.__struct_encode_fields__[place])
