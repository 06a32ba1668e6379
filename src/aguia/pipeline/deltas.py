"""Joining deltas: several of one item as one, with the same effect on the conversation."""

from typing import Any, TypeAlias, TypeVar

import msgspec

from aguia.protocol.common import UNSET, Metadata, UnsetType
from aguia.protocol.events import (
    BaseEvent,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    ToolCallArgsEvent,
    ToolCallChunkEvent,
)

__all__ = ["Chunk", "Delta", "join", "join_texts", "merge_metadata", "sole_raw_event"]

Delta: TypeAlias = TextMessageContentEvent | ReasoningMessageContentEvent | ToolCallArgsEvent
Chunk: TypeAlias = TextMessageChunkEvent | ReasoningMessageChunkEvent | ToolCallChunkEvent

T = TypeVar("T", bound=Delta | Chunk)


def join(first: T, second: Delta | Chunk) -> T:
    """The first with the delta of the second at its end; both continue one item.

    Metadata merges as in the message (META-1). Of raw events, which mean nothing to the
    protocol (EVT-3), one can be kept: where both have one, neither is. The tag and the
    timestamp are the first one's.
    """
    delta: str | UnsetType
    if first.delta is UNSET or second.delta is UNSET:
        delta = second.delta if first.delta is UNSET else first.delta
    else:
        delta = join_texts(first.delta, second.delta)
    return msgspec.structs.replace(
        first,
        delta=delta,
        metadata=merge_metadata(first.metadata, second.metadata),
        raw_event=sole_raw_event(first, second),
    )


def join_texts(*texts: str) -> str:
    """The texts as one, halves of a character that meet made whole."""
    text = "".join(texts)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def merge_metadata(
    first: Metadata | UnsetType, second: Metadata | UnsetType
) -> Metadata | UnsetType:
    """Metadata of two events as that of one, key by key, the last write winning (META-1)."""
    if first is UNSET or second is UNSET:
        return second if first is UNSET else first
    return {**first, **second}


def sole_raw_event(first: BaseEvent, second: BaseEvent) -> Any:
    """The raw event of the one that has one, or `UNSET`."""
    if first.raw_event is UNSET or second.raw_event is UNSET:
        return second.raw_event if first.raw_event is UNSET else first.raw_event
    return UNSET
