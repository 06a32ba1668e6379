"""A server on the loopback interface that answers as it is told to, faults included.

Each request gets the next plan: a list of steps, taken in order. Bytes are written as they are,
so that a plan may hold any HTTP, or none. When a plan is over, the connection is closed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from support_wire import HEAD, RawRequest, RawServer, chunked, raw_server

__all__ = [
    "CLOSED_HEAD",
    "HEAD",
    "Drip",
    "For",
    "Forever",
    "Plan",
    "Reset",
    "Silence",
    "Step",
    "Wait",
    "chunked",
    "faulty",
    "head",
    "moved",
    "refusal",
]


@dataclass(frozen=True)
class Wait:
    """Write nothing for some seconds."""

    seconds: float


@dataclass(frozen=True)
class Drip:
    """Write the data byte by byte."""

    data: bytes
    every: float = 0.0


@dataclass(frozen=True)
class Forever:
    """Write the data again and again."""

    data: bytes
    every: float


@dataclass(frozen=True)
class Silence:
    """Keep the connection open and say nothing until the client has gone."""


@dataclass(frozen=True)
class Reset:
    """Break the connection by a reset, once the client has had time to read what came."""

    after: float = 0.02


@dataclass(frozen=True)
class For:
    """Write what is made from the request, as where its ids are to be repeated."""

    make: Callable[[RawRequest], bytes]


Step: TypeAlias = bytes | Wait | Drip | Forever | Silence | Reset | For
Plan: TypeAlias = Sequence[Step]

CLOSED_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
"""The head of a body that ends where the connection does."""


def head(status: str = "200 OK", **headers: str) -> bytes:
    """The head of an answer; underscores in the names of headers stand for dashes."""
    headers = {"content_type": "text/event-stream", **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


def refusal(status: str, body: bytes = b"", **headers: str) -> bytes:
    """A whole answer that refuses."""
    length = str(len(body))
    return head(status, content_type="text/plain", content_length=length, **headers) + body


def moved(status: str, location: str) -> bytes:
    """A whole answer that sends the client elsewhere."""
    return refusal(status, location=location)


@asynccontextmanager
async def faulty(*plans: Plan) -> AsyncIterator[RawServer]:
    """Serve the plans, one a request, the last of them again and again."""
    left = list(plans)

    async def answer(request: RawRequest) -> None:
        plan = left.pop(0) if len(left) > 1 else left[0]
        for step in plan:
            await _take(step, request)

    async with raw_server(answer) as server:
        yield server


async def _take(step: Step, request: RawRequest) -> None:
    match step:
        case bytes():
            await request.write(step)
        case For(make):
            await request.write(make(request))
        case Wait(seconds):
            await asyncio.sleep(seconds)
        case Drip(data, every):
            for at in range(len(data)):
                await request.write(data[at : at + 1])
                await asyncio.sleep(every)
        case Forever(data, every):
            while True:
                await request.write(data)
                await asyncio.sleep(every)
        case Silence():
            await request.gone()
        case Reset(after):
            await asyncio.sleep(after)
            request.reset()
