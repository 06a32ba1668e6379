"""Calling an agent: the async client, and how it reaches the agent."""

from aguia.client.agent import CANCEL, Agent, HttpAgent, RunStream
from aguia.client.asgi import AsgiTransport
from aguia.client.http import Auth, HttpTransport, Retries
from aguia.client.recording import Recording
from aguia.client.tools import Consent, FunctionTool, ToolRequest, answer_calls, tool
from aguia.client.transports import PROTOBUF, SSE, Answer, Timeouts, Transport

__all__ = [
    "CANCEL",
    "PROTOBUF",
    "SSE",
    "Agent",
    "Answer",
    "AsgiTransport",
    "Auth",
    "Consent",
    "FunctionTool",
    "HttpAgent",
    "HttpTransport",
    "Recording",
    "Retries",
    "RunStream",
    "Timeouts",
    "ToolRequest",
    "Transport",
    "answer_calls",
    "tool",
]
