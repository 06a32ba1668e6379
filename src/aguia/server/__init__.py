"""Serving an agent: the ASGI application, and the run that an agent is given."""

from aguia.server.app import AgentApp, Agents
from aguia.server.execution import Agent, Execution, run_agent
from aguia.server.run import CANCELLED, Cancelled, Resume, Run
from aguia.server.speaker import (
    Activity,
    ReasoningMessageStream,
    ReasoningSpan,
    ReasoningStream,
    RunError,
    Speaker,
    Step,
    Subagent,
    TextStream,
    ToolCallStream,
)

__all__ = [
    "CANCELLED",
    "Activity",
    "Agent",
    "AgentApp",
    "Agents",
    "Cancelled",
    "Execution",
    "ReasoningMessageStream",
    "ReasoningSpan",
    "ReasoningStream",
    "Resume",
    "Run",
    "RunError",
    "Speaker",
    "Step",
    "Subagent",
    "TextStream",
    "ToolCallStream",
    "run_agent",
]
