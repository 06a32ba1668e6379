"""Chunk expansion: the shorthand becomes start, content and end (streaming page, CHUNK-1 to 11).

Knows the chunk streams that are being assembled, one a lane, and nothing of what is open
otherwise: whether the events that come out may come is for verification to judge.

A lane is an owner, the parent agent (`UNSET`) or one subagent, and holds at most one stream,
because a continuation that names nothing can only mean "the same as before".
"""

from dataclasses import dataclass
from typing import Any, Final

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

CHUNKS: Final = frozenset({TextMessageChunkEvent, ToolCallChunkEvent, ReasoningMessageChunkEvent})
"""The types that expansion replaces."""

_TEXT: Final = "text message"
_TOOL: Final = "tool call"
_REASONING: Final = "reasoning message"

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

# The explicit events that name an item which a chunk stream could be assembling (CHUNK-9).
_EXPLICIT: Final[dict[type[Any], tuple[str, str]]] = {
    TextMessageStartEvent: (_TEXT, "message_id"),
    TextMessageContentEvent: (_TEXT, "message_id"),
    TextMessageEndEvent: (_TEXT, "message_id"),
    ToolCallStartEvent: (_TOOL, "tool_call_id"),
    ToolCallArgsEvent: (_TOOL, "tool_call_id"),
    ToolCallEndEvent: (_TOOL, "tool_call_id"),
    ReasoningMessageStartEvent: (_REASONING, "message_id"),
    ReasoningMessageContentEvent: (_REASONING, "message_id"),
    ReasoningMessageEndEvent: (_REASONING, "message_id"),
}


@dataclass(slots=True)
class _Stream:
    """What one lane is assembling, and what its opener established (CHUNK-4)."""

    kind: str
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

    def expand(self, event: Event) -> list[Event]:
        """The events that stand for this one, with the ends that its arrival implies.

        Raises `SequenceViolation` for a chunk that opens without what opening requires
        (CHUNK-2), contradicts its opener (CHUNK-4), has no single referent (CHUNK-7) or
        continues another owner's stream (CHUNK-8).
        """
        match event:
            case TextMessageChunkEvent():
                return self._text(event)
            case ToolCallChunkEvent():
                return self._tool(event)
            case ReasoningMessageChunkEvent():
                return self._reasoning(event)
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
            lane = self._lane_holding(explicit[0], getattr(event, explicit[1]))
            if lane is not None:
                ends += self.close(lane.owner)
        return ends

    def close(self, owner: Owner) -> list[Event]:
        """Close the lane of this owner: the end of what it was assembling, if anything."""
        stream = self.lanes.pop(owner, None)
        if stream is None:
            return []
        if stream.kind == _TEXT:
            return [TextMessageEndEvent(message_id=stream.id, subagent_run_id=owner)]
        if stream.kind == _TOOL:
            return [ToolCallEndEvent(tool_call_id=stream.id, subagent_run_id=owner)]
        return [ReasoningMessageEndEvent(message_id=stream.id, subagent_run_id=owner)]

    def _lane_holding(self, kind: str, id_: str) -> _Stream | None:
        for stream in self.lanes.values():
            if stream.id == id_ and stream.kind == kind:
                return stream
        return None

    def _text(self, chunk: TextMessageChunkEvent) -> list[Event]:
        owner = self._lane_of(chunk, _TEXT, chunk.message_id)
        out: list[Event] = []
        stream = self._continued(owner, _TEXT, chunk.message_id)
        if stream is None:
            id_ = _required(chunk, chunk.message_id, "messageId")
            out += self.close(owner)
            role = "assistant" if chunk.role is UNSET else chunk.role
            stream = _Stream(_TEXT, id_, owner, {"role": role, "name": chunk.name})
            self.lanes[owner] = stream
            out.append(
                TextMessageStartEvent(
                    message_id=id_,
                    role=role,
                    name=chunk.name,
                    subagent_run_id=owner,
                    metadata=chunk.metadata,
                )
            )
        else:
            _agree(chunk, stream, "role", chunk.role)
            _agree(chunk, stream, "name", chunk.name)
        if _has_content(chunk, opened=bool(out)):
            out.append(
                TextMessageContentEvent(
                    message_id=stream.id,
                    delta="" if chunk.delta is UNSET else chunk.delta,
                    subagent_run_id=owner,
                    metadata=chunk.metadata,
                    raw_event=chunk.raw_event,
                )
            )
        return out

    def _tool(self, chunk: ToolCallChunkEvent) -> list[Event]:
        owner = self._lane_of(chunk, _TOOL, chunk.tool_call_id)
        out: list[Event] = []
        stream = self._continued(owner, _TOOL, chunk.tool_call_id)
        if stream is None:
            id_ = _required(chunk, chunk.tool_call_id, "toolCallId")
            name = _required(chunk, chunk.tool_call_name, "toolCallName")
            out += self.close(owner)
            stream = _Stream(
                _TOOL,
                id_,
                owner,
                {"toolCallName": name, "parentMessageId": chunk.parent_message_id},
            )
            self.lanes[owner] = stream
            out.append(
                ToolCallStartEvent(
                    tool_call_id=id_,
                    tool_call_name=name,
                    parent_message_id=chunk.parent_message_id,
                    subagent_run_id=owner,
                    metadata=chunk.metadata,
                )
            )
        else:
            _agree(chunk, stream, "toolCallName", chunk.tool_call_name)
            _agree(chunk, stream, "parentMessageId", chunk.parent_message_id)
        if _has_content(chunk, opened=bool(out)):
            out.append(
                ToolCallArgsEvent(
                    tool_call_id=stream.id,
                    delta="" if chunk.delta is UNSET else chunk.delta,
                    subagent_run_id=owner,
                    metadata=chunk.metadata,
                    raw_event=chunk.raw_event,
                )
            )
        return out

    def _reasoning(self, chunk: ReasoningMessageChunkEvent) -> list[Event]:
        owner = self._lane_of(chunk, _REASONING, chunk.message_id)
        out: list[Event] = []
        stream = self._continued(owner, _REASONING, chunk.message_id)
        if stream is None:
            id_ = _required(chunk, chunk.message_id, "messageId")
            out += self.close(owner)
            stream = _Stream(_REASONING, id_, owner, {})
            self.lanes[owner] = stream
            out.append(
                ReasoningMessageStartEvent(
                    message_id=id_,
                    role="reasoning",
                    subagent_run_id=owner,
                    metadata=chunk.metadata,
                )
            )
        if _has_content(chunk, opened=bool(out)):
            out.append(
                ReasoningMessageContentEvent(
                    message_id=stream.id,
                    delta="" if chunk.delta is UNSET else chunk.delta,
                    subagent_run_id=owner,
                    metadata=chunk.metadata,
                    raw_event=chunk.raw_event,
                )
            )
        return out

    def _continued(self, owner: Owner, kind: str, id_: str | UnsetType) -> _Stream | None:
        """The stream of the lane when a chunk of this kind and id continues it (CHUNK-3)."""
        stream = self.lanes.get(owner)
        if stream is not None and stream.kind == kind and (id_ is UNSET or id_ == stream.id):
            return stream
        return None

    def _lane_of(self, chunk: Event, kind: str, id_: str | UnsetType) -> Owner:
        """The lane that a chunk belongs to (CHUNK-7, CHUNK-8)."""
        tag: Owner = getattr(chunk, "subagent_run_id", UNSET)
        if id_ is not UNSET:
            stream = self._lane_holding(kind, id_)
            if stream is None:
                return tag
            if tag is not UNSET and tag != stream.owner:
                raise SequenceViolation(
                    f"the {kind} '{id_}' is being assembled for {_say(stream.owner)}, "
                    f"and this chunk is tagged as {_say(tag)}'s",
                    rule="CHUNK-8",
                    event_type=chunk.type,
                )
            return stream.owner
        if tag is not UNSET:
            return tag
        owners = [stream.owner for stream in self.lanes.values() if stream.kind == kind]
        if UNSET in owners or not owners:
            return UNSET
        if len(owners) > 1:
            raise SequenceViolation(
                f"{len(owners)} subagents have a {kind} in the making and this chunk names "
                "neither an id nor a subagent",
                rule="CHUNK-7",
                event_type=chunk.type,
            )
        return owners[0]


def _required(chunk: Event, value: str | UnsetType, member: str) -> str:
    if value is UNSET:
        raise SequenceViolation(
            f"the first chunk of an item must carry '{member}'; there is nothing open that it "
            "could continue",
            rule="CHUNK-2",
            event_type=chunk.type,
        )
    return value


def _agree(chunk: Event, stream: _Stream, member: str, value: str | UnsetType) -> None:
    if value is UNSET or value == stream.established[member]:
        return
    was = stream.established[member]
    opened = f"{member} {was!r}" if was is not UNSET else f"no {member}"
    raise SequenceViolation(
        f"the {stream.kind} '{stream.id}' was opened with {opened}, and this chunk says {value!r}",
        rule="CHUNK-4",
        event_type=chunk.type,
    )


def _has_content(
    chunk: TextMessageChunkEvent | ToolCallChunkEvent | ReasoningMessageChunkEvent, *, opened: bool
) -> bool:
    """Whether the chunk needs a content event (CHUNK-10).

    It does for its delta, for its raw event, and for its metadata where no start carries that.
    """
    if chunk.delta is not UNSET or chunk.raw_event is not UNSET:
        return True
    return chunk.metadata is not UNSET and not opened


def _say(owner: Owner) -> str:
    return "the parent agent" if owner is UNSET else f"the subagent '{owner}'"
