"""The one message that travels from the application to the agent (run-input page)."""

from typing import Literal, TypeAlias

from aguia.protocol.common import UNSET, JsonValue, Metadata, UnsetType, WireStruct
from aguia.protocol.messages import Message

__all__ = ["Context", "ResumeEntry", "ResumeStatus", "RunAgentInput", "Tool"]

ResumeStatus: TypeAlias = Literal["resolved", "cancelled"]


class Context(WireStruct, frozen=True, kw_only=True):
    """Something that the application wants the model to see (IN-3)."""

    description: str
    value: str


class Tool(WireStruct, frozen=True, kw_only=True):
    """A frontend tool: the agent may propose a call, the application executes it."""

    name: str
    description: str
    parameters: JsonValue | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET


class ResumeEntry(WireStruct, frozen=True, kw_only=True):
    """The answer to one interrupt, or the word that it was abandoned (INT-2)."""

    interrupt_id: str
    status: ResumeStatus
    payload: JsonValue | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET


class RunAgentInput(WireStruct, frozen=True, kw_only=True):
    """What a run starts from. Absent `tools` and `context` are empty, absent `state` is `{}`."""

    thread_id: str
    run_id: str
    protocol_version: str | UnsetType = UNSET
    parent_run_id: str | UnsetType = UNSET
    state: JsonValue | UnsetType = UNSET
    messages: list[Message]
    tools: list[Tool] | UnsetType = UNSET
    context: list[Context] | UnsetType = UNSET
    forwarded_props: JsonValue | UnsetType = UNSET
    resume: list[ResumeEntry] | UnsetType = UNSET
