"""The boundary between a client and however its agent is reached (transports page, TRANS-1).

A transport delivers the input first, keeps the order of what comes back, and tells a clean end
from a broken one. It knows nothing of what events mean.
"""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from aguia.codec import frames, sse
from aguia.codec.answer import Answer
from aguia.protocol.input import RunAgentInput

__all__ = ["PROTOBUF", "SSE", "Answer", "DeclaringTransport", "Timeouts", "Transport"]

SSE: Final = sse.CONTENT_TYPE
"""The binding of server-sent events."""

PROTOBUF: Final = frames.CONTENT_TYPE
"""The binary binding (PB-1), for which the extra `aguia[protobuf]` is needed."""


class Transport(Protocol):
    """Carries one run input to an agent and its answer back."""

    def open(self, input: RunAgentInput) -> AbstractAsyncContextManager[Answer]:
        """Send the input.

        Raises `InputRejected`, a `TransportError`, or a `DecodeError` for an answer that is none
        of an agent's. Leaving the context tells the agent that nobody reads any more.

        The context is entered under a time limit that does not hold for the rest of it, so it must
        not leave a cancel scope or a task group of its own open.
        """

    async def close(self) -> None:
        """Release what the transport holds."""


@runtime_checkable
class DeclaringTransport(Transport, Protocol):
    """A transport that can also be asked what the agent declares of itself."""

    async def capabilities(self) -> Any | None:
        """The declaration, as plain JSON; None where the agent declares nothing.

        Raises `TransportError`, `InputRejected` or `DecodeError`.
        """


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds; None waits for ever.

    Attributes:
        connect: for a connection.
        idle: for the next bytes, comments included, once the request has been sent.
        total: for the whole exchange, from the first attempt to send to the end of the body.

    Raises `ValueError` for what is no number of seconds above 0.
    """

    connect: float | None = 10.0
    idle: float | None = 120.0
    total: float | None = 3600.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise ValueError(f"{name} is a number of seconds above 0, or None, not {seconds}")
