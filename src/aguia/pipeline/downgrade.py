"""What a peer that is known to be old is sent, and how its stream is read (VER-3).

Pure transformations: they remove or reshape, they invent nothing and repair nothing that is
malformed. What loses content says so in a warning that names it and what to upgrade.
"""

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from aguia.pipeline.middleware import Item, Middleware, RawExpander
from aguia.pipeline.warn import Warn
from aguia.protocol.common import UNSET, UnsetType
from aguia.protocol.content import ContentPart, TextPart
from aguia.protocol.errors import ProtocolWarning
from aguia.protocol.events import (
    AttributableEvent,
    Event,
    MessagesSnapshotEvent,
    ReasoningMessageContentEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    ToolCallResultEvent,
)
from aguia.protocol.input import RunAgentInput
from aguia.protocol.messages import (
    AssistantMessage,
    Attributable,
    Message,
    ToolMessage,
    UserMessage,
)
from aguia.protocol.outcomes import RunFinishedInterruptOutcome, RunFinishedSuccessOutcome

__all__ = [
    "downgrade_input",
    "flatten",
    "for_client_without_version",
    "parse_peer_version",
    "without_subagents",
]

_VERSION: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})(?:\.([0-9]{1,9}))?")

_TEXT_ONLY: Final = (0, 0, 39)
"""The last version whose messages are text and nothing else."""
_NO_SUBAGENTS: Final = (0, 0, 57)
"""The last version without subagents."""
_VERSIONED: Final = (1, 0, 0)
"""The first version that declares itself."""

_SUBAGENT_EVENTS: Final = (SubagentStartedEvent, SubagentFinishedEvent, SubagentErrorEvent)
_SUBAGENT_TYPES: Final = {event.type for event in _SUBAGENT_EVENTS}

_PROSE: Final = (TextMessageContentEvent, ReasoningMessageContentEvent)
"""Deltas, which are many: a union would take longer to look through than a tuple."""

T = TypeVar("T", bound=msgspec.Struct)
V = TypeVar("V")


def parse_peer_version(text: str) -> tuple[int, int, int]:
    """`MAJOR.MINOR` or `MAJOR.MINOR.PATCH` as numbers. Raises `ValueError` for what is neither."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no version; write it as 0.0.39 or 1.0")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def downgrade_input(input: RunAgentInput, peer: tuple[int, int, int], warn: Warn) -> RunAgentInput:
    """The run input as a peer of this version understands it."""
    if peer >= _VERSIONED:
        return input
    # An old parser could refuse a member that it doesn't know (VER-1).
    changes: dict[str, Any] = {"protocol_version": UNSET}
    messages = input.messages
    if peer <= _NO_SUBAGENTS:
        messages = _changed(messages, _untagged)
    if peer <= _TEXT_ONLY:
        changes["parent_run_id"] = UNSET
        messages = _changed(messages, lambda message, index: _as_text(message, index, warn))
    return msgspec.structs.replace(input, messages=messages, **changes)


def flatten(
    content: str | list[ContentPart], path: str, warn: Callable[[str, str], None], reader: str
) -> str:
    """Content parts as the text that a reader of strings gets: the text parts, in order.

    What is lost is named to `warn`, with its path; nothing takes its place (TOOL-10, TOOL-11).
    """
    if isinstance(content, str):
        return content
    lost: list[str] = [part.type for part in content if not isinstance(part, TextPart)]
    if any(isinstance(part, TextPart) and part.metadata is not UNSET for part in content):
        lost.append("the metadata of text")
    if lost:
        warn(f"{reader} gets text only; lost: {', '.join(lost)}", path)
    return "".join(part.text for part in content if isinstance(part, TextPart))


def for_client_without_version(event: Event, warn: Warn) -> Event | None:
    """The event as a client from before versions existed reads it, or None for one it goes without.

    Tool results are text (TOOL-11), and the outcome does not list the calls that are pending: the
    last of those clients refuse the member, and all of them derive it from the stream (FRONT-4).
    An empty delta adds nothing (STREAM-2), and the older ones end the run for it. The same object
    where there is nothing to change.
    """
    if isinstance(event, _PROSE):
        if event.delta or event.metadata is not UNSET or event.raw_event is not UNSET:
            return event
        return None
    if isinstance(event, ToolCallResultEvent):
        if isinstance(event.content, str):
            return event
        content = _result_as_text(event.content, "/content", event, warn)
        return msgspec.structs.replace(event, content=content)
    if isinstance(event, RunFinishedEvent):
        outcome = event.outcome
        if not isinstance(outcome, RunFinishedSuccessOutcome) or not outcome.pending_tool_call_ids:
            return event
        return msgspec.structs.replace(event, outcome=RunFinishedSuccessOutcome())
    if isinstance(event, MessagesSnapshotEvent):

        def changed(message: Message, index: int) -> Message:
            if not isinstance(message, ToolMessage) or isinstance(message.content, str):
                return message
            path = f"/messages/{index}/content"
            content = _result_as_text(message.content, path, event, warn)
            return msgspec.structs.replace(message, content=content)

        messages = _changed(event.messages, changed)
        if messages is not event.messages:
            return msgspec.structs.replace(event, messages=messages)
    return event


def _result_as_text(content: list[ContentPart], path: str, event: Event, warn: Warn) -> str:
    def note(text: str, place: str) -> None:
        warn(
            ProtocolWarning(
                stage="downgrade",
                rule="TOOL-11",
                event_type=event.type,
                path=place,
                message=text,
            )
        )

    reader = "a client that declares no protocol version, which should be upgraded,"
    return flatten(content, path, note, reader)


def _as_text(message: Message, index: int, warn: Warn) -> Message:
    def note(text: str, place: str) -> None:
        warn(ProtocolWarning(stage="downgrade", rule="VER-3", path=place, message=text))

    if isinstance(message, UserMessage | ToolMessage) and not isinstance(message.content, str):
        text = flatten(
            message.content,
            f"/messages/{index}/content",
            note,
            "an agent of version 0.0.39 or older, which should be upgraded,",
        )
        return msgspec.structs.replace(message, content=text)
    if isinstance(message, AssistantMessage) and message.content is UNSET:
        # The old schema requires the member; an empty text adds no meaning.
        return msgspec.structs.replace(message, content="")
    return message


def without_subagents(peer: tuple[int, int, int], warn: Warn) -> Middleware | None:
    """How the events of a peer from before subagents are read; None for one that knows them.

    To be made anew for each stream.
    """
    return None if peer > _NO_SUBAGENTS else _WithoutSubagents(warn)


class _WithoutSubagents:
    """Drops the events of subagents, and takes the tags off what is left.

    Chunks are expanded first: what a subagent's chunk continues is told by its tag alone.
    """

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._chunks = RawExpander(warn)
        # Who has each step open: steps are per owner, and without tags there is one owner.
        self._steps: dict[str, set[Any]] = {}

    def __call__(self, event: Item) -> list[Item]:
        return [kept for item in self._chunks.expand(event) for kept in self._read(item)]

    def _read(self, event: Item) -> list[Item]:
        kind = event.get("type") if isinstance(event, dict) else event.type
        if not isinstance(kind, str):
            return [event]
        if kind in _SUBAGENT_TYPES:
            self._drop(
                kind, "the agent is read as one from before subagents; unpin its version to keep it"
            )
            return []
        if kind == "RUN_STARTED":
            self._steps.clear()
        elif kind in ("STEP_STARTED", "STEP_FINISHED") and not self._steps_once(kind, event):
            return []
        return [_untagged_raw(event) if isinstance(event, dict) else _untagged_event(event)]

    def _steps_once(self, kind: str, event: Item) -> bool:
        """Whether a step event is kept: of several owners' steps of one name only the union is."""
        if isinstance(event, dict):
            name, owner = event.get("stepName"), event.get("subagentRunId", UNSET)
        else:
            assert isinstance(event, StepStartedEvent | StepFinishedEvent)
            name, owner = event.step_name, event.subagent_run_id
        if not isinstance(name, str) or not isinstance(owner, str | UnsetType):
            return True
        owners = self._steps.setdefault(name, set())
        if kind == "STEP_STARTED":
            repeats = bool(owners) and owner not in owners
            owners.add(owner)
        else:
            known = owner in owners
            owners.discard(owner)
            repeats = known and bool(owners)
        if repeats:
            self._drop(kind, f"without subagents the step '{name}' is already open")
        return not repeats

    def _drop(self, kind: str, why: str) -> None:
        self._warn(
            ProtocolWarning(
                stage="downgrade",
                rule="VER-3",
                event_type=kind,
                message=f"dropping {kind}: {why}",
            )
        )


def _untagged_event(event: Event) -> Event:
    if isinstance(event, AttributableEvent):
        return _without_tag(event)
    match event:
        case MessagesSnapshotEvent(messages=messages):
            untagged = _changed(messages, _untagged)
            if untagged is not messages:
                return msgspec.structs.replace(event, messages=untagged)
        case RunStartedEvent(input=RunAgentInput(messages=messages) as input):
            untagged = _changed(messages, _untagged)
            if untagged is not messages:
                changed = msgspec.structs.replace(input, messages=untagged)
                return msgspec.structs.replace(event, input=changed)
        case RunFinishedEvent(
            outcome=RunFinishedInterruptOutcome(interrupts=interrupts) as outcome
        ):
            free = _changed(interrupts, lambda interrupt, _: _without_tag(interrupt))
            if free is not interrupts:
                return msgspec.structs.replace(
                    event, outcome=msgspec.structs.replace(outcome, interrupts=free)
                )
    return event


def _untagged(message: Message, _: int) -> Message:
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
    # A tag that is no string is malformed, and that is for enforcement to say.
    if isinstance(value, dict) and isinstance(value.get("subagentRunId"), str):
        return {name: item for name, item in value.items() if name != "subagentRunId"}
    return value


def _changed(items: list[V], change: Callable[[V, int], V]) -> list[V]:
    """The list with each element changed; itself when none was."""
    changed = [change(item, index) for index, item in enumerate(items)]
    same = all(new is old for new, old in zip(changed, items, strict=True))
    return items if same else changed
