"""The seven messages of a conversation, discriminated by their role."""

from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from aguia.protocol.common import (
    UNSET,
    Constants,
    Metadata,
    SubagentRunId,
    UnsetType,
    WireStruct,
)
from aguia.protocol.content import ContentPart

__all__ = [
    "ActivityMessage",
    "AssistantMessage",
    "Attributable",
    "BaseMessage",
    "DeveloperMessage",
    "FunctionCall",
    "Message",
    "ReasoningMessage",
    "Role",
    "SystemMessage",
    "TextMessageRole",
    "ToolCall",
    "ToolMessage",
    "UserMessage",
]


class Role(StrEnum):
    """Every role that a message of a conversation may have."""

    DEVELOPER = "developer"
    SYSTEM = "system"
    ASSISTANT = "assistant"
    USER = "user"
    TOOL = "tool"
    ACTIVITY = "activity"
    REASONING = "reasoning"


TextMessageRole: TypeAlias = Literal["developer", "system", "assistant", "user"]
"""The roles that a streamed text message may take; absent means assistant (TEXT-1)."""


class Attributable(WireStruct, frozen=True, kw_only=True):
    """Something that can belong to a subagent's work; absent means the parent agent (SUB-1)."""

    subagent_run_id: SubagentRunId | UnsetType = UNSET


class BaseMessage(Attributable, frozen=True, kw_only=True):
    """What the text messages have in common."""

    id: str
    name: str | UnsetType = UNSET
    encrypted_value: str | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET


class FunctionCall(WireStruct, frozen=True, kw_only=True):
    """The tool's name and the text of its arguments, which nobody has validated (TOOL-2)."""

    name: str
    arguments: str


class ToolCall(WireStruct, frozen=True, kw_only=True, metaclass=Constants):
    """One call of a tool, held by the assistant message that made it."""

    _constants: ClassVar[dict[str, str]] = {"type": "function"}

    id: str
    if TYPE_CHECKING:
        type: Literal["function"] = "function"
    else:
        type: Literal["function"]
    function: FunctionCall
    encrypted_value: str | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET


class DeveloperMessage(BaseMessage, tag_field="role", tag="developer", frozen=True, kw_only=True):
    """An instruction of the application's developer."""

    role: ClassVar[Literal["developer"]] = "developer"
    content: str


class SystemMessage(BaseMessage, tag_field="role", tag="system", frozen=True, kw_only=True):
    """A system instruction."""

    role: ClassVar[Literal["system"]] = "system"
    content: str


class AssistantMessage(BaseMessage, tag_field="role", tag="assistant", frozen=True, kw_only=True):
    """What the agent said, and the tool calls it made; either may be absent."""

    role: ClassVar[Literal["assistant"]] = "assistant"
    content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class UserMessage(BaseMessage, tag_field="role", tag="user", frozen=True, kw_only=True):
    """What the user said: text, or an ordered list of parts."""

    role: ClassVar[Literal["user"]] = "user"
    content: str | list[ContentPart]


class ToolMessage(Attributable, tag_field="role", tag="tool", frozen=True, kw_only=True):
    """The answer to one tool call: text or parts, and `error` when the tool failed (FRONT-5)."""

    role: ClassVar[Literal["tool"]] = "tool"
    id: str
    content: str | list[ContentPart]
    tool_call_id: str
    error: str | UnsetType = UNSET
    encrypted_value: str | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET


class ActivityMessage(Attributable, tag_field="role", tag="activity", frozen=True, kw_only=True):
    """Structured progress for a user interface; never sent back to the agent (ACT-4)."""

    role: ClassVar[Literal["activity"]] = "activity"
    id: str
    activity_type: str
    content: dict[str, Any]
    metadata: Metadata | UnsetType = UNSET


class ReasoningMessage(Attributable, tag_field="role", tag="reasoning", frozen=True, kw_only=True):
    """What the model thought, as far as its provider shows it."""

    role: ClassVar[Literal["reasoning"]] = "reasoning"
    id: str
    content: str
    encrypted_value: str | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET


Message: TypeAlias = (
    DeveloperMessage
    | SystemMessage
    | AssistantMessage
    | UserMessage
    | ToolMessage
    | ActivityMessage
    | ReasoningMessage
)
