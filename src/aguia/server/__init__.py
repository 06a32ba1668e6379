"""Serving an agent: the ASGI application, and the run that an agent is given."""

from aguia.server.app import AgentApp
from aguia.server.execution import Agent
from aguia.server.run import (
    ReasoningStream,
    Run,
    RunError,
    Step,
    TextStream,
    ToolCallStream,
)

__all__ = [
    "Agent",
    "AgentApp",
    "ReasoningStream",
    "Run",
    "RunError",
    "Step",
    "TextStream",
    "ToolCallStream",
]
