"""Peers of the client that misbehave on purpose: answers made by hand, and raw TCP servers."""

import asyncio
import gc
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from aguia import HttpAgent
from support_events import frame

__all__ = [
    "HEAD",
    "SSE",
    "Pieces",
    "RawRequest",
    "RawServer",
    "Script",
    "chunked",
    "raw_server",
    "reply",
    "scripted",
    "whole_run",
]

SSE: Final = {"content-type": "text/event-stream"}
URL: Final = "http://agent.example/run"

Piece = bytes | Exception | Awaitable[Any]
Answer = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]


class Pieces(httpx.AsyncByteStream):
    """A body that arrives in pieces: an exception breaks it, an awaitable makes it wait.

    Attributes:
        closed: whether the client has closed it.
    """

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._pieces = list(pieces)
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, bytes):
                yield piece
            elif isinstance(piece, Exception):
                raise piece
            else:
                await piece

    async def aclose(self) -> None:
        self.closed = True


def whole_run(request: httpx.Request, *events: dict[str, Any], **finish: Any) -> bytes:
    """The body of a run that answers the request: the events between its start and its end."""
    sent = json.loads(request.content)
    run = {"threadId": sent["threadId"], "runId": sent["runId"]}
    return frame({"type": "RUN_STARTED", **run}, *events, {"type": "RUN_FINISHED", **run, **finish})


def reply(*events: dict[str, Any], **finish: Any) -> Callable[[httpx.Request], httpx.Response]:
    """An answer with a whole run; `finish` are members of its last event."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers=SSE, content=whole_run(request, *events, **finish))

    return answer


class Script:
    """Answers the requests of a client one after another, and keeps them.

    Attributes:
        requests: those that came.
    """

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else answer(request)

    def add(self, *answers: Answer) -> None:
        """Have more to answer."""
        self._answers += answers

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The run inputs that came."""
        return [json.loads(request.content) for request in self.requests]


@asynccontextmanager
async def scripted(script: Script, url: str = URL, **options: Any) -> AsyncIterator[HttpAgent]:
    """An agent that the script answers; it tries everything once, unless told otherwise."""
    options.setdefault("retries", 0)
    async with (
        httpx.AsyncClient(transport=httpx.MockTransport(script)) as client,
        HttpAgent(url, client=client, **options) as agent,
    ):
        yield agent


HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def chunked(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@dataclass
class RawRequest:
    """An HTTP request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def run(self) -> dict[str, str]:
        """The ids that a run which answers the request has to carry."""
        sent = json.loads(self.body)
        return {"threadId": sent["threadId"], "runId": sent["runId"]}

    async def write(self, data: bytes) -> None:
        """Write to the client, and wait until it has left."""
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        try:
            while await self.reader.read(4096):
                pass
        except ConnectionError:
            pass

    def reset(self) -> None:
        """Break the connection with a reset, not with an end."""
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@dataclass
class RawServer:
    """A TCP server on the loopback interface.

    Attributes:
        url: of its root.
        requests: those that came.
    """

    url: str = ""
    requests: list[RawRequest] = field(default_factory=list)


@asynccontextmanager
async def raw_server(
    answer: Callable[[RawRequest], Awaitable[None]],
) -> AsyncIterator[RawServer]:
    """Serve by hand: `answer` writes what it likes, and the connection closes when it returns."""
    found = RawServer()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            request = await _read(reader, writer)
            found.requests.append(request)
            await answer(request)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        yield found
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
        # What the client has left open is reported now, and in the test that left it.
        gc.collect()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> RawRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    start, *lines = head.rstrip().split("\r\n")
    method, path, _ = start.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return RawRequest(method, path, headers, body, reader, writer)
