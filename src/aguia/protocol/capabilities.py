"""What an agent declares of itself before a run. Omitted is undeclared, not unsupported (CAP-1)."""

from typing import Any

from aguia.protocol.common import UNSET, Count, Metadata, UnsetType, WireStruct
from aguia.protocol.input import Tool

__all__ = [
    "AgentCapabilities",
    "ExecutionCapabilities",
    "HumanInTheLoopCapabilities",
    "IdentityCapabilities",
    "MultiAgentCapabilities",
    "MultimodalCapabilities",
    "MultimodalInputCapabilities",
    "MultimodalOutputCapabilities",
    "OutputCapabilities",
    "ReasoningCapabilities",
    "StateCapabilities",
    "SubagentInfo",
    "ToolsCapabilities",
    "TransportCapabilities",
]


class SubagentInfo(WireStruct, frozen=True, kw_only=True):
    """A subagent that the agent can invoke."""

    name: str
    description: str | UnsetType = UNSET


class IdentityCapabilities(WireStruct, frozen=True, kw_only=True):
    """Who the agent is."""

    name: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    documentation_url: str | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET


class TransportCapabilities(WireStruct, frozen=True, kw_only=True):
    """How the agent can be reached."""

    streaming: bool | UnsetType = UNSET
    websocket: bool | UnsetType = UNSET
    http_binary: bool | UnsetType = UNSET
    push_notifications: bool | UnsetType = UNSET
    resumable: bool | UnsetType = UNSET


class ToolsCapabilities(WireStruct, frozen=True, kw_only=True):
    """The agent's own tools, and whether it takes the application's."""

    supported: bool | UnsetType = UNSET
    items: list[Tool] | UnsetType = UNSET
    parallel_calls: bool | UnsetType = UNSET
    client_provided: bool | UnsetType = UNSET


class OutputCapabilities(WireStruct, frozen=True, kw_only=True):
    """Forms of output beyond text."""

    structured_output: bool | UnsetType = UNSET
    supported_mime_types: list[str] | UnsetType = UNSET


class StateCapabilities(WireStruct, frozen=True, kw_only=True):
    """Which state events the agent sends, and what it remembers."""

    snapshots: bool | UnsetType = UNSET
    deltas: bool | UnsetType = UNSET
    memory: bool | UnsetType = UNSET
    persistent_state: bool | UnsetType = UNSET


class MultiAgentCapabilities(WireStruct, frozen=True, kw_only=True):
    """Delegation to other agents."""

    supported: bool | UnsetType = UNSET
    delegation: bool | UnsetType = UNSET
    handoffs: bool | UnsetType = UNSET
    subagents: list[SubagentInfo] | UnsetType = UNSET


class ReasoningCapabilities(WireStruct, frozen=True, kw_only=True):
    """Whether and how the agent shows its reasoning."""

    supported: bool | UnsetType = UNSET
    streaming: bool | UnsetType = UNSET
    encrypted: bool | UnsetType = UNSET


class MultimodalInputCapabilities(WireStruct, frozen=True, kw_only=True):
    """Kinds of content that the agent can take."""

    image: bool | UnsetType = UNSET
    audio: bool | UnsetType = UNSET
    video: bool | UnsetType = UNSET
    pdf: bool | UnsetType = UNSET
    file: bool | UnsetType = UNSET


class MultimodalOutputCapabilities(WireStruct, frozen=True, kw_only=True):
    """Kinds of content that the agent can produce."""

    image: bool | UnsetType = UNSET
    audio: bool | UnsetType = UNSET


class MultimodalCapabilities(WireStruct, frozen=True, kw_only=True):
    """Content other than text, in and out."""

    input: MultimodalInputCapabilities | UnsetType = UNSET
    output: MultimodalOutputCapabilities | UnsetType = UNSET


class ExecutionCapabilities(WireStruct, frozen=True, kw_only=True):
    """Limits of a run; `max_execution_time` in milliseconds."""

    code_execution: bool | UnsetType = UNSET
    sandboxed: bool | UnsetType = UNSET
    max_iterations: Count | UnsetType = UNSET
    max_execution_time: Count | UnsetType = UNSET


class HumanInTheLoopCapabilities(WireStruct, frozen=True, kw_only=True):
    """Ways in which a person can take part in a run."""

    supported: bool | UnsetType = UNSET
    approvals: bool | UnsetType = UNSET
    interventions: bool | UnsetType = UNSET
    feedback: bool | UnsetType = UNSET
    interrupts: bool | UnsetType = UNSET
    approve_with_edits: bool | UnsetType = UNSET


class AgentCapabilities(WireStruct, frozen=True, kw_only=True):
    """Everything that an agent declares, by category; `custom` is open by key."""

    identity: IdentityCapabilities | UnsetType = UNSET
    transport: TransportCapabilities | UnsetType = UNSET
    tools: ToolsCapabilities | UnsetType = UNSET
    output: OutputCapabilities | UnsetType = UNSET
    state: StateCapabilities | UnsetType = UNSET
    multi_agent: MultiAgentCapabilities | UnsetType = UNSET
    reasoning: ReasoningCapabilities | UnsetType = UNSET
    multimodal: MultimodalCapabilities | UnsetType = UNSET
    execution: ExecutionCapabilities | UnsetType = UNSET
    human_in_the_loop: HumanInTheLoopCapabilities | UnsetType = UNSET
    custom: dict[str, Any] | UnsetType = UNSET
