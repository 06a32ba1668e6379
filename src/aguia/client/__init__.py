"""Calling an agent: the async client, and how it reaches the agent."""

from aguia.client.agent import Agent, HttpAgent
from aguia.client.asgi import AsgiTransport
from aguia.client.capabilities import read_capabilities
from aguia.client.display import conversation_html, conversation_text
from aguia.client.http import Auth, HttpTransport, Retries
from aguia.client.interrupts import CANCEL, waits_for_approval
from aguia.client.media import MAX_BYTES, audio, document, file_handle, image, video
from aguia.client.recording import Recording
from aguia.client.run import Outcome, RunResult, RunStream
from aguia.client.tools import Consent, FunctionTool, ToolRequest, answer_calls, tool
from aguia.client.transports import (
    PROTOBUF,
    SSE,
    Answer,
    DeclaringTransport,
    Timeouts,
    Transport,
)

__all__ = [
    "CANCEL",
    "MAX_BYTES",
    "PROTOBUF",
    "SSE",
    "Agent",
    "Answer",
    "AsgiTransport",
    "Auth",
    "Consent",
    "DeclaringTransport",
    "FunctionTool",
    "HttpAgent",
    "HttpTransport",
    "Outcome",
    "Recording",
    "Retries",
    "RunResult",
    "RunStream",
    "Timeouts",
    "ToolRequest",
    "Transport",
    "answer_calls",
    "audio",
    "conversation_html",
    "conversation_text",
    "document",
    "file_handle",
    "image",
    "read_capabilities",
    "tool",
    "video",
    "waits_for_approval",
]
