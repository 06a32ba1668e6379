"""What comes back through a transport, of whichever kind it is (transports page, TRANS-1)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent answered, still arriving.

    Attributes:
        content_type: of a body of bytes, that of server-sent events or of the binary binding;
            None for a body of events.
        body: bytes, split anyhow; or events, typed or as plain JSON, which nobody has judged.
            It ends where the answer ends in order, and raises `TruncatedRun`, a
            `TransportError` or a `DecodeError` where it breaks off.
    """

    content_type: str | None
    body: AsyncIterator[Any]
