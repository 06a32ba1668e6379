"""What a peer that is known to be old is sent, and how its stream is read (VER-3).

Pure transformations: they remove or reshape, they invent nothing and repair nothing that is
malformed. What loses content says so in a warning that names it and what to upgrade.
"""

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from aguia.pipeline.warn import Warn
from aguia.protocol.common import UNSET
from aguia.protocol.content import TextPart
from aguia.protocol.errors import ProtocolWarning
from aguia.protocol.events import (
    AttributableEvent,
    Event,
    MessagesSnapshotEvent,
    RunFinishedEvent,
    RunStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
)
from aguia.protocol.input import RunAgentInput
from aguia.protocol.messages import (
    AssistantMessage,
    Attributable,
    Message,
    ToolMessage,
    UserMessage,
)
from aguia.protocol.outcomes import RunFinishedInterruptOutcome

__all__ = ["downgrade_input", "flatten", "parse_peer_version", "without_subagents"]

_VERSION: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})(?:\.([0-9]{1,9}))?")

_TEXT_ONLY: Final = (0, 0, 39)
"""The last version whose messages are text and nothing else."""
_NO_SUBAGENTS: Final = (0, 0, 57)
"""The last version without subagents."""
_VERSIONED: Final = (1, 0, 0)
"""The first version that declares itself."""

_SUBAGENT_EVENTS: Final = (SubagentStartedEvent, SubagentFinishedEvent, SubagentErrorEvent)
_SUBAGENT_TYPES: Final = {event.type for event in _SUBAGENT_EVENTS}

T = TypeVar("T", bound=msgspec.Struct)


def parse_peer_version(text: str) -> tuple[int, int, int]:
    """`MAJOR.MINOR` or `MAJOR.MINOR.PATCH` as numbers. Raises `ValueError` for what is neither."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no version; write it as 0.0.39 or 1.0")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def downgrade_input(input: RunAgentInput, peer: tuple[int, int, int], warn: Warn) -> RunAgentInput:
    """The run input as a peer of this version understands it."""
    changes: dict[str, Any] = {}
    if peer < _VERSIONED:
        # An old parser could refuse a member that it doesn't know (VER-1).
        changes["protocol_version"] = UNSET
    messages = input.messages
    if peer <= _NO_SUBAGENTS:
        messages = [_untagged(message) for message in messages]
    if peer <= _TEXT_ONLY:
        changes["parent_run_id"] = UNSET
        messages = [
            _as_text(message, f"/messages/{index}", warn) for index, message in enumerate(messages)
        ]
    return msgspec.structs.replace(input, messages=messages, **changes)


def flatten(content: Any, path: str, warn: Callable[[str, str], None], reader: str) -> str:
    """Content parts as the text that a reader of strings gets: the text parts, in order.

    What is lost is named to `warn`, with its path; nothing takes its place (TOOL-10, TOOL-11).
    """
    if isinstance(content, str):
        return content
    lost = [part.type for part in content if not isinstance(part, TextPart)]
    if lost:
        warn(f"{reader} gets text only; lost: {', '.join(lost)}", path)
    return "".join(part.text for part in content if isinstance(part, TextPart))


def _as_text(message: Message, path: str, warn: Warn) -> Message:
    def note(text: str, place: str) -> None:
        warn(ProtocolWarning(stage="downgrade", rule="VER-3", path=place, message=text))

    if isinstance(message, UserMessage | ToolMessage) and not isinstance(message.content, str):
        text = flatten(
            message.content,
            f"{path}/content",
            note,
            "an agent of version 0.0.39 or older, which should be upgraded,",
        )
        return msgspec.structs.replace(message, content=text)
    if isinstance(message, AssistantMessage) and message.content is UNSET:
        # The old schema requires the member; an empty text adds no meaning.
        return msgspec.structs.replace(message, content="")
    return message


def without_subagents(
    peer: tuple[int, int, int], warn: Warn
) -> Callable[[Event | dict[str, Any]], Event | dict[str, Any] | None] | None:
    """How the events of a peer from before subagents are read, as middleware.

    None for a peer that knows them.
    """
    if peer > _NO_SUBAGENTS:
        return None

    def read(event: Event | dict[str, Any]) -> Event | dict[str, Any] | None:
        kind = event.get("type") if isinstance(event, dict) else event.type
        if kind in _SUBAGENT_TYPES:
            warn(
                ProtocolWarning(
                    stage="downgrade",
                    rule="VER-3",
                    event_type=str(kind),
                    message=f"dropping {kind}: the agent is read as one from before subagents; "
                    "unpin its version to keep it",
                )
            )
            return None
        return _untagged_raw(event) if isinstance(event, dict) else _untagged_event(event)

    return read


def _untagged_event(event: Event) -> Event:
    if isinstance(event, AttributableEvent):
        return _without_tag(event)
    match event:
        case MessagesSnapshotEvent():
            messages = [_untagged(message) for message in event.messages]
            return msgspec.structs.replace(event, messages=messages)
        case RunStartedEvent(input=RunAgentInput() as input):
            messages = [_untagged(message) for message in input.messages]
            return msgspec.structs.replace(
                event, input=msgspec.structs.replace(input, messages=messages)
            )
        case RunFinishedEvent(outcome=RunFinishedInterruptOutcome() as outcome):
            interrupts = [_without_tag(interrupt) for interrupt in outcome.interrupts]
            return msgspec.structs.replace(
                event, outcome=msgspec.structs.replace(outcome, interrupts=interrupts)
            )
    return event


def _untagged(message: Message) -> Message:
    return _without_tag(message)


def _without_tag(value: T) -> T:
    if isinstance(value, AttributableEvent | Attributable) and value.subagent_run_id is not UNSET:
        return msgspec.structs.replace(value, subagent_run_id=UNSET)
    return value


def _untagged_raw(event: dict[str, Any]) -> dict[str, Any]:
    event = _pop(event)
    if isinstance(event.get("messages"), list):
        event = {**event, "messages": [_pop(message) for message in event["messages"]]}
    for outer, inner in (("input", "messages"), ("outcome", "interrupts")):
        holder = event.get(outer)
        if isinstance(holder, dict) and isinstance(holder.get(inner), list):
            items = [_pop(item) for item in holder[inner]]
            event = {**event, outer: {**holder, inner: items}}
    return event


def _pop(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get("subagentRunId"), str):
        return {name: item for name, item in value.items() if name != "subagentRunId"}
    return value
