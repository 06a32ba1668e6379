"""Compaction: the same conversation from fewer events, for storing a stream.

Deltas of one item become one, where the first of them stood; state and activity deltas are
folded into the snapshot before them, or joined; a state snapshot drops the state events of its
run that came before it. Everything else stays as it is and where it is: what comes out is what
went in with events left out and others grown, so it passes verification wherever that did.

Two deltas are joined only when nothing between them touches what they change, and patches only
when the value that they apply to is known and they do: a patch that doesn't apply stays in its
place, where it has no effect still.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import msgspec

from aguia.codec.json import convert_event
from aguia.conversation.patch import PatchError, PatchTarget, apply
from aguia.pipeline.chunks import CHUNKS, ChunkExpander
from aguia.pipeline.deltas import join_texts, merge_metadata
from aguia.pipeline.enforcement import enforce_event
from aguia.protocol.common import UNSET
from aguia.protocol.errors import ProtocolWarning, SequenceViolation
from aguia.protocol.events import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    Event,
    MessagesSnapshotEvent,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallChunkEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguia.protocol.messages import ActivityMessage

__all__ = ["compact"]

_logger: Final = logging.getLogger("aguia")

_Key: TypeAlias = tuple[str, str]
"""A family and an id. The families that name messages share their ids."""

_TEXT, _REASONING, _TOOL, _ACTIVITY = "text", "reasoning", "tool", "activity"
_MESSAGES: Final = (_TEXT, _REASONING, _ACTIVITY)

_OPENS: Final[dict[type[Any], tuple[str, str]]] = {
    TextMessageStartEvent: (_TEXT, "message_id"),
    ReasoningMessageStartEvent: (_REASONING, "message_id"),
    ToolCallStartEvent: (_TOOL, "tool_call_id"),
}
_CONTINUES: Final[dict[type[Any], tuple[str, str]]] = {
    TextMessageContentEvent: (_TEXT, "message_id"),
    ReasoningMessageContentEvent: (_REASONING, "message_id"),
    ToolCallArgsEvent: (_TOOL, "tool_call_id"),
}
_CLOSES: Final[dict[type[Any], tuple[str, str]]] = {
    TextMessageEndEvent: (_TEXT, "message_id"),
    ReasoningMessageEndEvent: (_REASONING, "message_id"),
    ToolCallEndEvent: (_TOOL, "tool_call_id"),
}


def compact(
    events: Iterable[Event | dict[str, Any]],
    *,
    on_warning: Callable[[ProtocolWarning], None] | None = None,
) -> list[Event]:
    """Return fewer events that build the same conversation, in as many runs.

    Takes what a consumer delivered, or the events as a producer sent them, typed or as plain
    JSON, chunks included: of one run or several, whole or cut off. What comes out is never
    longer, and compacting it again changes nothing. Where several events become one it carries
    the metadata of all, and the `raw_event` of the only one that had one.

    `on_warning` is told of what the protocol does not describe in plain JSON, which is left out;
    such warnings go to the `aguia` logger as well. Raises `MalformedEvent` for plain JSON that is
    no event, and `SequenceViolation` for chunks that a consumer would reject.
    """

    def warn(warning: ProtocolWarning) -> None:
        _logger.warning("%s", warning)
        if on_warning is not None:
            on_warning(warning)

    typed = [event for each in events if (event := _typed(each, warn)) is not None]
    compacted = _Compaction(keep_closers=False).run(typed)
    if any(type(event) in CHUNKS for event in typed):
        # Chunk streams are ended by what follows them, which may be gone now. That matters only
        # where the chunks that are left would mean other items.
        wanted = _items(typed)
        try:
            same = _items(compacted) == wanted
        except SequenceViolation:
            same = False
        if not same:
            compacted = _Compaction(keep_closers=True).run(typed)
    return compacted


def _typed(event: Event | dict[str, Any], warn: Callable[[ProtocolWarning], None]) -> Event | None:
    if not isinstance(event, dict):
        return event
    try:
        return convert_event(event)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return enforce_event(event, warn)


def _items(events: Iterable[Event]) -> dict[tuple[int, str, str], list[bool]]:
    """For each item of each run, in order, whether it is opened (True) or closed."""
    found: dict[tuple[int, str, str], list[bool]] = {}
    chunks = ChunkExpander()
    run = 0
    for event in events:
        for expanded in chunks.expand(event):
            kind = type(expanded)
            run += kind is RunStartedEvent
            named = _OPENS.get(kind) or _CLOSES.get(kind)
            if named is not None:
                key = (run, named[0], getattr(expanded, named[1]))
                found.setdefault(key, []).append(kind in _OPENS)
    return found


class _Entry:
    """An event that comes out, and what has been added to it."""

    __slots__ = ("changes", "closer", "dropped", "event", "operations", "texts")

    def __init__(self, event: Event, *, closer: bool) -> None:
        self.event: Any = event
        self.closer = closer
        self.dropped = False
        self.texts: list[str] = []
        self.operations: list[Any] = []
        self.changes: dict[str, Any] = {}

    def absorb(self, event: Any, **changes: Any) -> None:
        """Stand for another event as well, with these members changed."""
        self.changes.update(changes)
        if event.metadata is not UNSET:
            old = self.changes.get("metadata", self.event.metadata)
            self.changes["metadata"] = merge_metadata(old, event.metadata)
        if event.raw_event is not UNSET:
            old = self.changes.get("raw_event", self.event.raw_event)
            # Once there were two, none is the sole one any more.
            first = old is UNSET and "raw_event" not in self.changes
            self.changes["raw_event"] = event.raw_event if first else UNSET

    def result(self) -> Event:
        event: Event = self.event
        changes = self.changes
        if self.texts:
            start = getattr(event, "delta", UNSET)
            changes["delta"] = join_texts("" if start is UNSET else start, *self.texts)
        if self.operations:
            member = "patch" if isinstance(event, ActivityDeltaEvent) else "delta"
            changes[member] = [*getattr(event, member), *self.operations]
        return msgspec.structs.replace(event, **changes) if changes else event


class _Compaction:
    """One pass over a stream.

    With `keep_closers` no event goes that ends a chunk stream, so that each ends where it did.
    """

    def __init__(self, *, keep_closers: bool) -> None:
        self._keep_closers = keep_closers
        self._out: list[_Entry] = []
        self._chunks = ChunkExpander()
        # What the next delta of an item can be joined to.
        self._last: dict[_Key, _Entry] = {}
        # The state, where the stream has stated it; the entry that changes of it can go into;
        # and the state events of this run that are still there.
        self._state: PatchTarget | None = None
        self._state_entry: _Entry | None = None
        self._state_entries: list[_Entry] = []
        self._activities: dict[str, dict[str, Any]] = {}

    def run(self, events: Iterable[Event]) -> list[Event]:
        """The events that are left of these."""
        for event in events:
            expanded = self._chunks.expand(event)
            if isinstance(
                event, TextMessageChunkEvent | ToolCallChunkEvent | ReasoningMessageChunkEvent
            ):
                self._chunk(event, expanded)
            else:
                self._take(event, closer=self._keep_closers and len(expanded) > 1)
        self._state_is_told()
        return [entry.result() for entry in self._out if not entry.dropped]

    def _keep(self, event: Event, *, closer: bool = False) -> _Entry:
        entry = _Entry(event, closer=closer)
        self._out.append(entry)
        return entry

    def _touch(self, key: _Key) -> None:
        """Take note that an event is about this item: the same id elsewhere is not left alone."""
        if key[0] != _TOOL:
            for family in _MESSAGES:
                if family != key[0]:
                    self._last.pop((family, key[1]), None)

    def _take(self, event: Event, *, closer: bool) -> None:
        kind = type(event)
        match event:
            case _ if kind in _CONTINUES:
                family, member = _CONTINUES[kind]
                self._delta(event, (family, getattr(event, member)), closer)
            case _ if kind in _OPENS or kind in _CLOSES:
                family, member = _OPENS.get(kind) or _CLOSES[kind]
                key = (family, getattr(event, member))
                self._touch(key)
                self._last.pop(key, None)
                self._keep(event)
            case ToolCallResultEvent():
                for family in _MESSAGES:
                    self._last.pop((family, event.message_id), None)
                self._keep(event)
            case StateSnapshotEvent():
                self._state_snapshot(event, closer)
            case StateDeltaEvent():
                self._state_delta(event, closer)
            case ActivitySnapshotEvent():
                self._activity_snapshot(event)
            case ActivityDeltaEvent():
                self._activity_delta(event)
            case MessagesSnapshotEvent():
                self._last.clear()
                stated = {message.id: message for message in event.messages}
                self._activities = {
                    id_: message.content
                    for id_, message in stated.items()
                    if isinstance(message, ActivityMessage)
                }
                self._keep(event)
            case RunStartedEvent() | RunFinishedEvent() | RunErrorEvent():
                self._last.clear()
                self._state_is_told()
                self._state_entries = []
                self._keep(event)
            case _:
                self._keep(event)

    # Deltas and chunks

    def _delta(self, event: Any, key: _Key, closer: bool) -> None:
        self._touch(key)
        entry = self._last.get(key)
        if entry is None or closer:
            self._last[key] = self._keep(event)
        else:
            entry.absorb(event)
            entry.texts.append(event.delta)

    def _chunk(self, chunk: Any, expanded: list[Event]) -> None:
        """Keep a chunk that opens an item, and join to it those that continue it."""
        # The last event is of the chunk, if any is: the ends that it implies come first.
        last: Any = expanded[-1] if expanded else None
        kind = type(last)
        opened = next((each for each in reversed(expanded) if type(each) in _OPENS), None)
        if opened is not None:
            family, member = _OPENS[type(opened)]
            key = (family, getattr(opened, member))
            self._touch(key)
            self._last[key] = self._keep(chunk)
        elif kind in _CONTINUES:
            family, member = _CONTINUES[kind]
            key = (family, getattr(last, member))
            self._touch(key)
            entry = self._last.get(key)
            if entry is not None:
                entry.absorb(chunk)
                entry.texts.append(last.delta)
            else:
                # What it continues is named, since it may have been left to the place.
                owner = last.subagent_run_id
                self._last[key] = self._keep(
                    type(chunk)(
                        **{member: key[1]},
                        delta=chunk.delta,
                        timestamp=chunk.timestamp,
                        raw_event=chunk.raw_event,
                        metadata=chunk.metadata,
                        subagent_run_id=owner,
                    )
                )

    # State

    def _state_is_told(self) -> None:
        """Put what the state has become into the snapshot that was to tell it; start anew."""
        entry, self._state_entry = self._state_entry, None
        if (
            entry is not None
            and self._state is not None
            and isinstance(entry.event, StateSnapshotEvent)
            and entry.changes
        ):
            entry.changes["snapshot"] = self._state.value

    def _state_snapshot(self, event: StateSnapshotEvent, closer: bool) -> None:
        self._state_entry = None
        self._state = PatchTarget(event.snapshot)
        entry = self._keep(event, closer=closer)
        for earlier in self._state_entries:
            earlier.dropped = not earlier.closer
        self._state_entries = [each for each in self._state_entries if each.closer]
        self._state_entries.append(entry)
        self._state_entry = entry

    def _state_delta(self, event: StateDeltaEvent, closer: bool) -> None:
        state, entry = self._state, self._state_entry
        joins = entry is not None and self._joins(event, entry, closer)
        if not joins:
            self._state_is_told()
        if state is not None:
            try:
                state.apply(event.delta)
            except PatchError:
                # It stays, and what comes after it stays after it.
                self._state_is_told()
                self._state_entries.append(self._keep(event, closer=closer))
                return
        if entry is not None and joins:
            # Changes of several are attributed to nobody in particular.
            entry.absorb(
                event,
                subagent_run_id=_owner(entry) if _owner(entry) == event.subagent_run_id else UNSET,
            )
            if not isinstance(entry.event, StateSnapshotEvent):
                entry.operations += event.delta
            return
        entry = self._keep(event, closer=closer)
        self._state_entries.append(entry)
        self._state_entry = entry if state is not None else None

    def _joins(self, event: StateDeltaEvent, entry: _Entry, closer: bool) -> bool:
        """Whether a delta that applies may go into the entry."""
        # Which chunk stream a state event ends is a matter of its tag.
        if self._keep_closers and (closer or _owner(entry) != event.subagent_run_id):
            return False
        return isinstance(entry.event, StateSnapshotEvent) or not _copies(
            event.delta, entry.operations, entry.event.delta
        )

    # Activity

    def _activity_snapshot(self, event: ActivitySnapshotEvent) -> None:
        key = (_ACTIVITY, event.message_id)
        self._touch(key)
        entry = self._last.get(key)
        if event.replace is False:
            if entry is not None:
                entry.absorb(event)  # it exists, so that only the metadata counts
            else:
                self._keep(event)
            return
        self._activities[event.message_id] = event.content
        if (
            entry is not None
            and isinstance(entry.event, ActivitySnapshotEvent)
            and entry.event.subagent_run_id == event.subagent_run_id
        ):
            entry.absorb(event, content=event.content, activity_type=event.activity_type)
        else:
            self._last[key] = self._keep(event)

    def _activity_delta(self, event: ActivityDeltaEvent) -> None:
        key = (_ACTIVITY, event.message_id)
        content = self._activities.get(event.message_id)
        if content is None:
            self._keep(event)
            return
        try:
            patched = apply(content, event.patch)
            if not isinstance(patched, dict):
                raise PatchError("the content of an activity is an object")
        except PatchError:
            self._last.pop(key, None)
            self._keep(event)
            return
        self._activities[event.message_id] = patched
        entry = self._last.get(key)
        if entry is None:
            self._last[key] = self._keep(event)
        elif isinstance(entry.event, ActivitySnapshotEvent):
            entry.absorb(event, content=patched, activity_type=event.activity_type)
        elif _copies(event.patch, entry.operations, entry.event.patch):
            self._last[key] = self._keep(event)
        else:
            entry.absorb(event, activity_type=event.activity_type)
            entry.operations += event.patch


def _owner(entry: _Entry) -> Any:
    return entry.changes.get("subagent_run_id", entry.event.subagent_run_id)


def _copies(*patches: list[Any]) -> bool:
    """Whether any operation copies: how much one patch may copy is limited."""
    return any(operation["op"] == "copy" for patch in patches for operation in patch)
