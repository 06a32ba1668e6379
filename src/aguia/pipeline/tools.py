"""Filtering tool calls by name: what is left of a stream when some tools' calls are not wanted."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from aguia.pipeline.middleware import Item, RawExpander
from aguia.pipeline.warn import Warn, log_warning
from aguia.protocol.common import UNSET
from aguia.protocol.events import (
    MessagesSnapshotEvent,
    ReasoningEncryptedValueEvent,
    RunFinishedEvent,
    RunStartedEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguia.protocol.messages import AssistantMessage, Message, ToolMessage
from aguia.protocol.outcomes import RunFinishedSuccessOutcome

__all__ = ["ToolCallFilter"]

_logger: Final = logging.getLogger("aguia")


class ToolCallFilter:
    """Middleware for one stream: drops the calls of some tools, with all that belongs to them.

    That is a call's start, arguments and end, in both forms, its result, its encrypted value,
    its place among the pending calls, and the call and its answer in a `MESSAGES_SNAPSHOT`. The
    message that carries it stays. Which calls are dropped is known for one run at a time.
    """

    def __init__(
        self,
        *,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] | None = None,
        warn: Warn | None = None,
    ) -> None:
        self._wanted = _wanted(allow, deny)
        self._chunks = RawExpander(warn or log_warning)
        self._dropped: set[str] = set()
        self._kept: set[str] = set()

    def __call__(self, event: Item) -> list[Item]:
        """Return what is left of an event, with the ends of chunk streams that it implies."""
        return [
            kept
            for item in self._chunks.expand(event)
            if (kept := self._filtered(item)) is not None
        ]

    def _filtered(self, item: Item) -> Item | None:
        return self._raw(item) if isinstance(item, dict) else self._typed(item)

    def _typed(self, event: Any) -> Item | None:
        match event:
            case RunStartedEvent():
                self._begin()
            case ToolCallStartEvent():
                return event if self._starts(event.tool_call_id, event.tool_call_name) else None
            case ToolCallArgsEvent() | ToolCallEndEvent() | ToolCallResultEvent():
                return None if event.tool_call_id in self._dropped else event
            case ReasoningEncryptedValueEvent(subtype="tool-call"):
                return None if event.entity_id in self._dropped else event
            case RunFinishedEvent(outcome=RunFinishedSuccessOutcome() as outcome):
                named = outcome.pending_tool_call_ids
                if named is not UNSET and not self._dropped.isdisjoint(named):
                    left = [id_ for id_ in named if id_ not in self._dropped]
                    outcome = msgspec.structs.replace(outcome, pending_tool_call_ids=left)
                    return msgspec.structs.replace(event, outcome=outcome)
            case MessagesSnapshotEvent():
                messages = self._messages(event.messages)
                if messages != event.messages:
                    return msgspec.structs.replace(event, messages=messages)
        item: Item = event
        return item

    def _begin(self) -> None:
        self._dropped.clear()
        self._kept.clear()

    def _starts(self, id_: str, name: str) -> bool:
        """Take note of a call that is started, and say whether it is wanted."""
        wanted = self._wanted(name)
        into, out_of = (self._kept, self._dropped) if wanted else (self._dropped, self._kept)
        into.add(id_)
        out_of.discard(id_)
        return wanted

    def _restates(self, id_: str, name: str) -> bool:
        """The same for one in a snapshot; what it was called when it started counts."""
        if id_ in self._dropped or id_ in self._kept:
            return id_ in self._kept
        return self._starts(id_, name)

    def _messages(self, messages: list[Message]) -> list[Message]:
        kept = [self._without_calls(message) for message in messages]
        return [
            message
            for message in kept
            if not (isinstance(message, ToolMessage) and message.tool_call_id in self._dropped)
        ]

    def _without_calls(self, message: Message) -> Message:
        if not isinstance(message, AssistantMessage) or message.tool_calls is UNSET:
            return message
        made = message.tool_calls
        calls = [call for call in made if self._restates(call.id, call.function.name)]
        if len(calls) == len(made):
            return message
        return msgspec.structs.replace(message, tool_calls=calls or UNSET)

    def _raw(self, event: dict[str, Any]) -> Item | None:
        """The same for what fits no type; malformed as it may be, it is not judged here."""
        match event:
            case {"type": "RUN_STARTED"}:
                self._begin()
            case {"type": "TOOL_CALL_START", "toolCallId": str(id_), "toolCallName": str(name)}:
                return event if self._starts(id_, name) else None
            case {
                "type": "TOOL_CALL_ARGS" | "TOOL_CALL_END" | "TOOL_CALL_RESULT",
                "toolCallId": str(id_),
            }:
                return None if id_ in self._dropped else event
            case {
                "type": "REASONING_ENCRYPTED_VALUE",
                "subtype": "tool-call",
                "entityId": str(id_),
            }:
                return None if id_ in self._dropped else event
            case {
                "type": "RUN_FINISHED",
                "outcome": {"pendingToolCallIds": list(named), **rest},
            }:
                left = [id_ for id_ in named if not (isinstance(id_, str) and id_ in self._dropped)]
                return {**event, "outcome": {**rest, "pendingToolCallIds": left}}
            case {"type": "MESSAGES_SNAPSHOT", "messages": list(messages)}:
                return {**event, "messages": self._raw_messages(messages)}
        return event

    def _raw_messages(self, messages: list[Any]) -> list[Any]:
        kept = [self._without_raw_calls(message) for message in messages]
        return [message for message in kept if not self._answers_dropped(message)]

    def _without_raw_calls(self, message: Any) -> Any:
        match message:
            case {"role": "assistant", "toolCalls": list(made)}:
                calls = [call for call in made if self._wants_raw(call)]
                if calls:
                    return {**message, "toolCalls": calls}
                return {name: value for name, value in message.items() if name != "toolCalls"}
        return message

    def _wants_raw(self, call: Any) -> bool:
        match call:
            case {"id": str(id_), "function": {"name": str(name)}}:
                return self._restates(id_, name)
        return True

    def _answers_dropped(self, message: Any) -> bool:
        match message:
            case {"role": "tool", "toolCallId": str(id_)}:
                return id_ in self._dropped
        return False


def _wanted(allow: Iterable[str] | None, deny: Iterable[str] | None) -> Callable[[str], bool]:
    if (allow is None) == (deny is None):
        raise ValueError("give either the tools to allow or those to deny")
    for names in (allow, deny):
        if isinstance(names, str):
            raise TypeError(f"give several names of tools, as in [{names!r}]")
    allowed = None if allow is None else frozenset(allow)
    denied = frozenset(deny or ())
    return lambda name: name not in denied if allowed is None else name in allowed
