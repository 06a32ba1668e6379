"""Chunk expansion: the shorthand becomes start, content and end (streaming page, CHUNK-1 to 11).

Knows the chunk streams that are being assembled, one a lane, and nothing of what is open
otherwise: whether the events that come out may come is for verification to judge.

A lane is an owner, the parent agent (`UNSET`) or one subagent, and holds at most one stream,
because a continuation that names nothing can only mean "the same as before".
"""

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, field

from aguia.pipeline.verification import Family
from aguia.protocol.common import UNSET, UnsetType
from aguia.protocol.errors import SequenceViolation
from aguia.protocol.events import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    Event,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningEncryptedValueEvent,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallChunkEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)

__all__ = ["CHUNKS", "ChunkExpander"]

Owner = str | UnsetType

CHUNKS: Final[frozenset[type[Any]]] = frozenset(
    {TextMessageChunkEvent, ToolCallChunkEvent, ReasoningMessageChunkEvent}
)
"""The types that expansion replaces."""

# What leaves every chunk stream open (CHUNK-6), and what ends them all (CHUNK-5); anything else
# ends the one of its own lane.
_CLOSE_NOTHING: Final = frozenset(
    {
        RawEvent,
        ActivitySnapshotEvent,
        ActivityDeltaEvent,
        ReasoningEncryptedValueEvent,
        SubagentStartedEvent,
    }
)
_CLOSE_EVERY_LANE: Final = frozenset(
    {RunStartedEvent, RunFinishedEvent, RunErrorEvent, MessagesSnapshotEvent}
)


class _Form(Struct, frozen=True, kw_only=True):
    """How the chunks of one family are spelled out."""

    family: Family
    id: str
    """The attribute that names the item."""
    start: Callable[..., Event]
    content: Callable[..., Event]
    end: Callable[..., Event]
    required: tuple[str, ...] = ()
    """What the first chunk needs beside the id (CHUNK-2)."""
    opener: tuple[str, ...] = ()
    """What the opener establishes for those that follow (CHUNK-4)."""
    absent: dict[str, str] = field(default_factory=dict)
    """What an absent member of the opener means."""
    fixed: dict[str, str] = field(default_factory=dict)
    """What the start has and no chunk."""


_FORMS: Final[dict[type[Any], _Form]] = {
    TextMessageChunkEvent: _Form(
        family=Family.MESSAGE,
        id="message_id",
        start=TextMessageStartEvent,
        content=TextMessageContentEvent,
        end=TextMessageEndEvent,
        opener=("role", "name"),
        absent={"role": "assistant"},
    ),
    ToolCallChunkEvent: _Form(
        family=Family.TOOL_CALL,
        id="tool_call_id",
        start=ToolCallStartEvent,
        content=ToolCallArgsEvent,
        end=ToolCallEndEvent,
        required=("tool_call_name",),
        opener=("tool_call_name", "parent_message_id"),
    ),
    ReasoningMessageChunkEvent: _Form(
        family=Family.REASONING,
        id="message_id",
        start=ReasoningMessageStartEvent,
        content=ReasoningMessageContentEvent,
        end=ReasoningMessageEndEvent,
        fixed={"role": "reasoning"},
    ),
}

_EXPLICIT: Final[dict[Any, _Form]] = {
    event: form for form in _FORMS.values() for event in (form.start, form.content, form.end)
}
"""The explicit events that name an item which a chunk stream could be assembling (CHUNK-9)."""


class _Stream(Struct, frozen=True):
    """What one lane is assembling, and what its opener established (CHUNK-4)."""

    form: _Form
    id: str
    owner: Owner
    established: dict[str, str | UnsetType]


class ChunkExpander:
    """Turns chunks into the events they stand for.

    Attributes:
        lanes: the chunk streams being assembled, by owner. While it is empty, `expand` gives
            back every event that is no chunk as it is.
    """

    def __init__(self) -> None:
        self.lanes: dict[Owner, _Stream] = {}
        # The lanes again, by what they assemble: there may be as many as a peer likes.
        self._by_item: dict[tuple[Family, str], _Stream] = {}
        self._by_family: dict[Family, dict[Owner, None]] = {family: {} for family in Family}

    def expand(self, event: Event) -> list[Event]:
        """The events that stand for this one, with the ends that its arrival implies.

        Raises `SequenceViolation` for a chunk that opens without what opening requires
        (CHUNK-2), contradicts its opener (CHUNK-4), has no single referent (CHUNK-7) or
        continues another owner's stream (CHUNK-8).
        """
        form = _FORMS.get(type(event))
        if form is not None:
            return self._spelled_out(event, form)
        if not self.lanes:
            return [event]
        return [*self._ends_before(event), event]

    def _ends_before(self, event: Event) -> list[Event]:
        kind = type(event)
        if kind in _CLOSE_NOTHING:
            return []
        if kind in _CLOSE_EVERY_LANE:
            return [end for owner in list(self.lanes) for end in self.close(owner)]
        if isinstance(event, SubagentFinishedEvent | SubagentErrorEvent):
            return self.close(event.subagent_run_id)
        ends = self.close(getattr(event, "subagent_run_id", UNSET))
        explicit = _EXPLICIT.get(kind)
        if explicit is not None:
            stream = self._holding(explicit, getattr(event, explicit.id))
            if stream is not None:
                ends += self.close(stream.owner)
        return ends

    def close(self, owner: Owner) -> list[Event]:
        """Close the lane of this owner: the end of what it was assembling, if anything."""
        stream = self.lanes.pop(owner, None)
        if stream is None:
            return []
        del self._by_item[stream.form.family, stream.id]
        del self._by_family[stream.form.family][owner]
        return [stream.form.end(**{stream.form.id: stream.id}, subagent_run_id=owner)]

    def restore(self, lanes: dict[Owner, Any]) -> None:
        """Go back to these lanes, a copy of what `lanes` was: what came since was refused."""
        self.lanes.clear()
        self._by_item.clear()
        for family in Family:
            self._by_family[family].clear()
        for stream in lanes.values():
            self._assemble(stream)

    def _assemble(self, stream: _Stream) -> None:
        self.lanes[stream.owner] = stream
        self._by_item[stream.form.family, stream.id] = stream
        self._by_family[stream.form.family][stream.owner] = None

    def _holding(self, form: _Form, id_: str) -> _Stream | None:
        """The stream that assembles this item, in whatever lane."""
        return self._by_item.get((form.family, id_))

    def _spelled_out(self, chunk: Any, form: _Form) -> list[Event]:
        id_ = getattr(chunk, form.id)
        owner = self._lane_of(chunk, form, id_)
        out: list[Event] = []
        stream = self.lanes.get(owner)
        if stream is None or stream.form is not form or id_ not in (UNSET, stream.id):
            # It continues nothing (CHUNK-3), so it opens.
            for name in (form.id, *form.required):
                _require(chunk, name)
            out += self.close(owner)
            established = {
                name: form.absent.get(name, UNSET) if value is UNSET else value
                for name in form.opener
                for value in (getattr(chunk, name),)
            }
            stream = _Stream(form, id_, owner, established)
            self._assemble(stream)
            out.append(
                form.start(
                    **{form.id: id_},
                    **established,
                    **form.fixed,
                    subagent_run_id=owner,
                    metadata=chunk.metadata,
                )
            )
            opened = True
        else:
            for name in form.opener:
                _agree(chunk, stream, name)
            opened = False
        # A content event carries the delta, the raw event and, where no start does, the metadata
        # (CHUNK-10).
        if (
            chunk.delta is not UNSET
            or chunk.raw_event is not UNSET
            or (chunk.metadata is not UNSET and not opened)
        ):
            out.append(
                form.content(
                    **{form.id: stream.id},
                    delta="" if chunk.delta is UNSET else chunk.delta,
                    subagent_run_id=owner,
                    metadata=chunk.metadata,
                    raw_event=chunk.raw_event,
                )
            )
        return out

    def _lane_of(self, chunk: Any, form: _Form, id_: str | UnsetType) -> Owner:
        """The lane that a chunk belongs to (CHUNK-7, CHUNK-8)."""
        tag: Owner = chunk.subagent_run_id
        if id_ is not UNSET:
            stream = self._holding(form, id_)
            if stream is None:
                return tag
            if tag is not UNSET and tag != stream.owner:
                raise SequenceViolation(
                    f"the {form.family.value} '{id_}' is being assembled for "
                    f"{_say(stream.owner)}, and this chunk is tagged as {_say(tag)}'s",
                    rule="CHUNK-8",
                    event_type=chunk.type,
                )
            return stream.owner
        if tag is not UNSET:
            return tag
        owners = self._by_family[form.family]
        if UNSET in owners or not owners:
            return UNSET
        if len(owners) > 1:
            raise SequenceViolation(
                f"{len(owners)} subagents have a {form.family.value} in the making and this "
                "chunk names neither an id nor a subagent",
                rule="CHUNK-7",
                event_type=chunk.type,
            )
        return next(iter(owners))


def _require(chunk: Any, name: str) -> None:
    if getattr(chunk, name) is UNSET:
        raise SequenceViolation(
            f"the first chunk of an item must carry '{_wire_name(chunk, name)}'; there is nothing "
            "open that it could continue",
            rule="CHUNK-2",
            event_type=chunk.type,
        )


def _agree(chunk: Any, stream: _Stream, name: str) -> None:
    value = getattr(chunk, name)
    was = stream.established[name]
    if value is UNSET or value == was:
        return
    member = _wire_name(chunk, name)
    opened_with = f"{member} {was!r}" if was is not UNSET else f"no {member}"
    raise SequenceViolation(
        f"the {stream.form.family.value} '{stream.id}' was opened with {opened_with}, "
        f"and this chunk says {value!r}",
        rule="CHUNK-4",
        event_type=chunk.type,
    )


def _wire_name(chunk: Any, name: str) -> str:
    names = dict(zip(chunk.__struct_fields__, chunk.__struct_encode_fields__, strict=True))
    return str(names[name])


def _say(owner: Owner) -> str:
    return "the parent agent" if owner is UNSET else f"the subagent '{owner}'"
