"""How a run input reaches an agent and how its answer comes back (transports page, TRANS-1).

A transport delivers the input first, keeps the order of what comes back, and tells a clean end
from a broken one. It knows nothing of what events mean.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from aguia.codec import frames, sse
from aguia.protocol.input import RunAgentInput

__all__ = ["PROTOBUF", "SSE", "Answer", "Timeouts", "Transport"]

SSE: Final = sse.CONTENT_TYPE
PROTOBUF: Final = frames.CONTENT_TYPE


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent answered: a body of some content type, still arriving."""

    content_type: str
    body: AsyncIterator[bytes]


class Transport(Protocol):
    """Carries one run input to an agent and its answer back."""

    def open(self, input: RunAgentInput) -> AbstractAsyncContextManager[Answer]:
        """Send the input. Raises `InputRejected`, or a `TransportError`."""

    async def close(self) -> None:
        """Release what the transport holds."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds; None waits for ever.

    Attributes:
        connect: for a connection.
        idle: for the next bytes, comments included, once the request has been sent.
    """

    connect: float | None = 10.0
    idle: float | None = 120.0
