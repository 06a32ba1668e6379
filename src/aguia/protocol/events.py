"""The 31 events of the protocol, discriminated by their `type` (EVT-1).

`Event` is their union and `EVENTS` maps each type's name to its class.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

from msgspec import Meta

from aguia.protocol.common import (
    UNSET,
    Constants,
    JsonValue,
    Metadata,
    SubagentRunId,
    Timestamp,
    UnsetType,
    WireStruct,
)
from aguia.protocol.content import ContentPart
from aguia.protocol.input import RunAgentInput
from aguia.protocol.messages import Message, TextMessageRole
from aguia.protocol.outcomes import (
    RunFinishedOutcome,
    SubagentFinishedOutcome,
    TokenUsage,
)
from aguia.protocol.patch import JsonPatch, check_patch

__all__ = [
    "EVENTS",
    "ActivityDeltaEvent",
    "ActivitySnapshotEvent",
    "AttributableEvent",
    "BaseEvent",
    "CustomEvent",
    "Event",
    "EventType",
    "MessagesSnapshotEvent",
    "RawEvent",
    "ReasoningEncryptedValueEvent",
    "ReasoningEncryptedValueSubtype",
    "ReasoningEndEvent",
    "ReasoningMessageChunkEvent",
    "ReasoningMessageContentEvent",
    "ReasoningMessageEndEvent",
    "ReasoningMessageStartEvent",
    "ReasoningStartEvent",
    "RunErrorEvent",
    "RunFinishedEvent",
    "RunStartedEvent",
    "StateDeltaEvent",
    "StateSnapshotEvent",
    "StepFinishedEvent",
    "StepStartedEvent",
    "SubagentErrorEvent",
    "SubagentFinishedEvent",
    "SubagentStartedEvent",
    "TextMessageChunkEvent",
    "TextMessageContentEvent",
    "TextMessageEndEvent",
    "TextMessageStartEvent",
    "ToolCallArgsEvent",
    "ToolCallChunkEvent",
    "ToolCallEndEvent",
    "ToolCallResultEvent",
    "ToolCallStartEvent",
]


class EventType(StrEnum):
    """The discriminator of every event, in the schema's order."""

    TEXT_MESSAGE_START = "TEXT_MESSAGE_START"
    TEXT_MESSAGE_CONTENT = "TEXT_MESSAGE_CONTENT"
    TEXT_MESSAGE_END = "TEXT_MESSAGE_END"
    TEXT_MESSAGE_CHUNK = "TEXT_MESSAGE_CHUNK"
    TOOL_CALL_START = "TOOL_CALL_START"
    TOOL_CALL_ARGS = "TOOL_CALL_ARGS"
    TOOL_CALL_END = "TOOL_CALL_END"
    TOOL_CALL_CHUNK = "TOOL_CALL_CHUNK"
    TOOL_CALL_RESULT = "TOOL_CALL_RESULT"
    STATE_SNAPSHOT = "STATE_SNAPSHOT"
    STATE_DELTA = "STATE_DELTA"
    MESSAGES_SNAPSHOT = "MESSAGES_SNAPSHOT"
    ACTIVITY_SNAPSHOT = "ACTIVITY_SNAPSHOT"
    ACTIVITY_DELTA = "ACTIVITY_DELTA"
    RAW = "RAW"
    CUSTOM = "CUSTOM"
    RUN_STARTED = "RUN_STARTED"
    RUN_FINISHED = "RUN_FINISHED"
    RUN_ERROR = "RUN_ERROR"
    STEP_STARTED = "STEP_STARTED"
    STEP_FINISHED = "STEP_FINISHED"
    REASONING_START = "REASONING_START"
    REASONING_MESSAGE_START = "REASONING_MESSAGE_START"
    REASONING_MESSAGE_CONTENT = "REASONING_MESSAGE_CONTENT"
    REASONING_MESSAGE_END = "REASONING_MESSAGE_END"
    REASONING_MESSAGE_CHUNK = "REASONING_MESSAGE_CHUNK"
    REASONING_END = "REASONING_END"
    REASONING_ENCRYPTED_VALUE = "REASONING_ENCRYPTED_VALUE"
    SUBAGENT_STARTED = "SUBAGENT_STARTED"
    SUBAGENT_FINISHED = "SUBAGENT_FINISHED"
    SUBAGENT_ERROR = "SUBAGENT_ERROR"


ReasoningEncryptedValueSubtype: TypeAlias = Literal["tool-call", "message"]
"""What kind of thing an encrypted value belongs to (REAS-4)."""


class BaseEvent(WireStruct, frozen=True, kw_only=True):
    """What every event may carry, whatever its type."""

    timestamp: Timestamp | UnsetType = UNSET
    raw_event: JsonValue | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET


class AttributableEvent(BaseEvent, frozen=True, kw_only=True):
    """An event that can belong to a subagent's work; absent means the parent agent (SUB-1)."""

    subagent_run_id: SubagentRunId | UnsetType = UNSET


class TextMessageStartEvent(
    AttributableEvent, tag_field="type", tag="TEXT_MESSAGE_START", frozen=True, kw_only=True
):
    """Opens a text message; an absent role means assistant (TEXT-1)."""

    type: ClassVar[Literal["TEXT_MESSAGE_START"]] = "TEXT_MESSAGE_START"
    message_id: str
    role: (
        Annotated[TextMessageRole, Meta(extra_json_schema={"default": "assistant"})] | UnsetType
    ) = UNSET
    name: str | UnsetType = UNSET


class TextMessageContentEvent(
    AttributableEvent, tag_field="type", tag="TEXT_MESSAGE_CONTENT", frozen=True, kw_only=True
):
    """Appends to an open text message; an empty delta is legal (STREAM-2)."""

    type: ClassVar[Literal["TEXT_MESSAGE_CONTENT"]] = "TEXT_MESSAGE_CONTENT"
    message_id: str
    delta: str


class TextMessageEndEvent(
    AttributableEvent, tag_field="type", tag="TEXT_MESSAGE_END", frozen=True, kw_only=True
):
    """Closes a text message."""

    type: ClassVar[Literal["TEXT_MESSAGE_END"]] = "TEXT_MESSAGE_END"
    message_id: str


class TextMessageChunkEvent(
    AttributableEvent, tag_field="type", tag="TEXT_MESSAGE_CHUNK", frozen=True, kw_only=True
):
    """Shorthand for start, content and end of a text message (CHUNK-1)."""

    type: ClassVar[Literal["TEXT_MESSAGE_CHUNK"]] = "TEXT_MESSAGE_CHUNK"
    message_id: str | UnsetType = UNSET
    role: TextMessageRole | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class ToolCallStartEvent(
    AttributableEvent, tag_field="type", tag="TOOL_CALL_START", frozen=True, kw_only=True
):
    """Opens a tool call (TOOL-1)."""

    type: ClassVar[Literal["TOOL_CALL_START"]] = "TOOL_CALL_START"
    tool_call_id: str
    tool_call_name: str
    parent_message_id: str | UnsetType = UNSET


class ToolCallArgsEvent(
    AttributableEvent, tag_field="type", tag="TOOL_CALL_ARGS", frozen=True, kw_only=True
):
    """Appends to the text of an open call's arguments (TOOL-2)."""

    type: ClassVar[Literal["TOOL_CALL_ARGS"]] = "TOOL_CALL_ARGS"
    tool_call_id: str
    delta: str


class ToolCallEndEvent(
    AttributableEvent, tag_field="type", tag="TOOL_CALL_END", frozen=True, kw_only=True
):
    """Closes a tool call: its arguments are complete, not necessarily valid (TOOL-3)."""

    type: ClassVar[Literal["TOOL_CALL_END"]] = "TOOL_CALL_END"
    tool_call_id: str


class ToolCallChunkEvent(
    AttributableEvent, tag_field="type", tag="TOOL_CALL_CHUNK", frozen=True, kw_only=True
):
    """Shorthand for start, arguments and end of a tool call (CHUNK-1)."""

    type: ClassVar[Literal["TOOL_CALL_CHUNK"]] = "TOOL_CALL_CHUNK"
    tool_call_id: str | UnsetType = UNSET
    tool_call_name: str | UnsetType = UNSET
    parent_message_id: str | UnsetType = UNSET
    delta: str | UnsetType = UNSET


class ToolCallResultEvent(
    AttributableEvent, tag_field="type", tag="TOOL_CALL_RESULT", frozen=True, kw_only=True
):
    """The answer to a tool call, a message of its own (TOOL-6)."""

    type: ClassVar[Literal["TOOL_CALL_RESULT"]] = "TOOL_CALL_RESULT"
    message_id: str
    tool_call_id: str
    content: str | list[ContentPart]
    role: Literal["tool"] | UnsetType = UNSET


class StateSnapshotEvent(
    AttributableEvent, tag_field="type", tag="STATE_SNAPSHOT", frozen=True, kw_only=True
):
    """Replaces the state (STATE-1)."""

    type: ClassVar[Literal["STATE_SNAPSHOT"]] = "STATE_SNAPSHOT"
    snapshot: Any


class StateDeltaEvent(
    AttributableEvent, tag_field="type", tag="STATE_DELTA", frozen=True, kw_only=True
):
    """Amends the state by a JSON Patch (STATE-2)."""

    type: ClassVar[Literal["STATE_DELTA"]] = "STATE_DELTA"
    delta: JsonPatch

    def __post_init__(self) -> None:
        check_patch(self.delta)


class MessagesSnapshotEvent(
    BaseEvent, tag_field="type", tag="MESSAGES_SNAPSHOT", frozen=True, kw_only=True
):
    """The messages that the producer owns, in order (MSG-1)."""

    type: ClassVar[Literal["MESSAGES_SNAPSHOT"]] = "MESSAGES_SNAPSHOT"
    messages: list[Message]


class ActivitySnapshotEvent(
    AttributableEvent, tag_field="type", tag="ACTIVITY_SNAPSHOT", frozen=True, kw_only=True
):
    """Creates an activity message or replaces its content (ACT-1)."""

    type: ClassVar[Literal["ACTIVITY_SNAPSHOT"]] = "ACTIVITY_SNAPSHOT"
    message_id: str
    activity_type: str
    content: dict[str, Any]
    replace: Annotated[bool, Meta(extra_json_schema={"default": True})] | UnsetType = UNSET


class ActivityDeltaEvent(
    AttributableEvent, tag_field="type", tag="ACTIVITY_DELTA", frozen=True, kw_only=True
):
    """Amends an activity message's content by a JSON Patch (ACT-3)."""

    type: ClassVar[Literal["ACTIVITY_DELTA"]] = "ACTIVITY_DELTA"
    message_id: str
    activity_type: str
    patch: JsonPatch

    def __post_init__(self) -> None:
        check_patch(self.patch)


class RawEvent(AttributableEvent, tag_field="type", tag="RAW", frozen=True, kw_only=True):
    """A provider's own event, passed through untranslated."""

    type: ClassVar[Literal["RAW"]] = "RAW"
    event: Any
    source: str | UnsetType = UNSET


class CustomEvent(AttributableEvent, tag_field="type", tag="CUSTOM", frozen=True, kw_only=True):
    """An application's own event."""

    type: ClassVar[Literal["CUSTOM"]] = "CUSTOM"
    name: str
    value: Any


class RunStartedEvent(BaseEvent, tag_field="type", tag="RUN_STARTED", frozen=True, kw_only=True):
    """Opens a run (RUN-2)."""

    type: ClassVar[Literal["RUN_STARTED"]] = "RUN_STARTED"
    thread_id: str
    run_id: str
    protocol_version: str | UnsetType = UNSET
    parent_run_id: str | UnsetType = UNSET
    input: RunAgentInput | UnsetType = UNSET


class RunFinishedEvent(BaseEvent, tag_field="type", tag="RUN_FINISHED", frozen=True, kw_only=True):
    """Closes a run that did not fail; an absent outcome means success (RUN-9)."""

    type: ClassVar[Literal["RUN_FINISHED"]] = "RUN_FINISHED"
    thread_id: str
    run_id: str
    result: JsonValue | UnsetType = UNSET
    outcome: RunFinishedOutcome | UnsetType = UNSET
    usage: list[TokenUsage] | UnsetType = UNSET


class RunErrorEvent(BaseEvent, tag_field="type", tag="RUN_ERROR", frozen=True, kw_only=True):
    """Ends a run that failed, with whatever was open (RUN-7)."""

    type: ClassVar[Literal["RUN_ERROR"]] = "RUN_ERROR"
    message: str
    code: str | UnsetType = UNSET
    usage: list[TokenUsage] | UnsetType = UNSET


class StepStartedEvent(
    AttributableEvent, tag_field="type", tag="STEP_STARTED", frozen=True, kw_only=True
):
    """Opens a step: a label over a span of the stream (RUN-14)."""

    type: ClassVar[Literal["STEP_STARTED"]] = "STEP_STARTED"
    step_name: str


class StepFinishedEvent(
    AttributableEvent, tag_field="type", tag="STEP_FINISHED", frozen=True, kw_only=True
):
    """Closes a step of the same owner and name (RUN-14)."""

    type: ClassVar[Literal["STEP_FINISHED"]] = "STEP_FINISHED"
    step_name: str


class ReasoningStartEvent(
    AttributableEvent, tag_field="type", tag="REASONING_START", frozen=True, kw_only=True
):
    """Opens a span of reasoning, which is no message (REAS-1)."""

    type: ClassVar[Literal["REASONING_START"]] = "REASONING_START"
    message_id: str


class ReasoningMessageStartEvent(
    AttributableEvent,
    tag_field="type",
    tag="REASONING_MESSAGE_START",
    frozen=True,
    kw_only=True,
    metaclass=Constants,
):
    """Opens a reasoning message; its role is fixed (REAS-3)."""

    _constants: ClassVar[dict[str, str]] = {"role": "reasoning"}

    type: ClassVar[Literal["REASONING_MESSAGE_START"]] = "REASONING_MESSAGE_START"
    message_id: str
    if TYPE_CHECKING:
        role: Literal["reasoning"] = "reasoning"
    else:
        role: Literal["reasoning"]


class ReasoningMessageContentEvent(
    AttributableEvent, tag_field="type", tag="REASONING_MESSAGE_CONTENT", frozen=True, kw_only=True
):
    """Appends to an open reasoning message."""

    type: ClassVar[Literal["REASONING_MESSAGE_CONTENT"]] = "REASONING_MESSAGE_CONTENT"
    message_id: str
    delta: str


class ReasoningMessageEndEvent(
    AttributableEvent, tag_field="type", tag="REASONING_MESSAGE_END", frozen=True, kw_only=True
):
    """Closes a reasoning message."""

    type: ClassVar[Literal["REASONING_MESSAGE_END"]] = "REASONING_MESSAGE_END"
    message_id: str


class ReasoningMessageChunkEvent(
    AttributableEvent, tag_field="type", tag="REASONING_MESSAGE_CHUNK", frozen=True, kw_only=True
):
    """Shorthand for start, content and end of a reasoning message (CHUNK-1)."""

    type: ClassVar[Literal["REASONING_MESSAGE_CHUNK"]] = "REASONING_MESSAGE_CHUNK"
    message_id: str | UnsetType = UNSET
    delta: str | UnsetType = UNSET


class ReasoningEndEvent(
    AttributableEvent, tag_field="type", tag="REASONING_END", frozen=True, kw_only=True
):
    """Closes a span of reasoning."""

    type: ClassVar[Literal["REASONING_END"]] = "REASONING_END"
    message_id: str


class ReasoningEncryptedValueEvent(
    AttributableEvent, tag_field="type", tag="REASONING_ENCRYPTED_VALUE", frozen=True, kw_only=True
):
    """An opaque value, stored with the message or call it names (REAS-4)."""

    type: ClassVar[Literal["REASONING_ENCRYPTED_VALUE"]] = "REASONING_ENCRYPTED_VALUE"
    subtype: ReasoningEncryptedValueSubtype
    entity_id: str
    encrypted_value: str


class SubagentStartedEvent(
    BaseEvent, tag_field="type", tag="SUBAGENT_STARTED", frozen=True, kw_only=True
):
    """Announces an invocation of a subagent (SUB-2)."""

    type: ClassVar[Literal["SUBAGENT_STARTED"]] = "SUBAGENT_STARTED"
    subagent_run_id: SubagentRunId
    name: str
    description: str | UnsetType = UNSET
    parent_subagent_run_id: SubagentRunId | UnsetType = UNSET
    parent_tool_call_id: str | UnsetType = UNSET
    parent_message_id: str | UnsetType = UNSET


class SubagentFinishedEvent(
    BaseEvent, tag_field="type", tag="SUBAGENT_FINISHED", frozen=True, kw_only=True
):
    """Closes an invocation; an absent outcome means success (SUB-5)."""

    type: ClassVar[Literal["SUBAGENT_FINISHED"]] = "SUBAGENT_FINISHED"
    subagent_run_id: SubagentRunId
    result: JsonValue | UnsetType = UNSET
    outcome: SubagentFinishedOutcome | UnsetType = UNSET


class SubagentErrorEvent(
    BaseEvent, tag_field="type", tag="SUBAGENT_ERROR", frozen=True, kw_only=True
):
    """Ends an invocation that failed, not the run (SUB-5)."""

    type: ClassVar[Literal["SUBAGENT_ERROR"]] = "SUBAGENT_ERROR"
    subagent_run_id: SubagentRunId
    message: str
    code: str | UnsetType = UNSET


Event: TypeAlias = (
    TextMessageStartEvent
    | TextMessageContentEvent
    | TextMessageEndEvent
    | TextMessageChunkEvent
    | ToolCallStartEvent
    | ToolCallArgsEvent
    | ToolCallEndEvent
    | ToolCallChunkEvent
    | ToolCallResultEvent
    | StateSnapshotEvent
    | StateDeltaEvent
    | MessagesSnapshotEvent
    | ActivitySnapshotEvent
    | ActivityDeltaEvent
    | RawEvent
    | CustomEvent
    | RunStartedEvent
    | RunFinishedEvent
    | RunErrorEvent
    | StepStartedEvent
    | StepFinishedEvent
    | ReasoningStartEvent
    | ReasoningMessageStartEvent
    | ReasoningMessageContentEvent
    | ReasoningMessageEndEvent
    | ReasoningMessageChunkEvent
    | ReasoningEndEvent
    | ReasoningEncryptedValueEvent
    | SubagentStartedEvent
    | SubagentFinishedEvent
    | SubagentErrorEvent
)
"""Any of the 31 events."""

EVENTS: Final[dict[str, type[Event]]] = {event.type: event for event in get_args(Event)}
"""Each event type's name and the class that holds its events."""
