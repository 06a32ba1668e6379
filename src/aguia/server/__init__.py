"""Serving an agent: the ASGI application, and the run that an agent is given."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aguia.server.app import AgentApp, Agents
from aguia.server.execution import Agent, Execution, run_agent
from aguia.server.in_process import InProcess
from aguia.server.run import CANCELLED, Cancelled, InvalidAnswer, Resume, Run
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

if TYPE_CHECKING:
    from aguia.server.serving import GracefulServer, serve

__all__ = [
    "CANCELLED",
    "Activity",
    "Agent",
    "AgentApp",
    "Agents",
    "Cancelled",
    "Execution",
    "GracefulServer",
    "InProcess",
    "InvalidAnswer",
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
    "serve",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # uvicorn comes with the `cli` extra; who serves with another server needs none of it.
        if name in ("GracefulServer", "serve"):
            return getattr(import_module("aguia.server.serving"), name)
        raise AttributeError(f"module 'aguia.server' has no attribute {name!r}")
