"""ASGI connections made by hand, so that a test sees and delays every message."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message

from aguia import Consumer, ProtocolWarning
from aguia.protocol.events import Event

__all__ = ["Connection", "call", "input_body"]


def input_body(**members: Any) -> bytes:
    """The body of a run input with an empty thread, its members in camelCase."""
    return json.dumps({"threadId": "thread", "runId": "run", "messages": [], **members}).encode()


@dataclass
class Connection:
    """One HTTP request to an application, and all that it answers.

    Attributes:
        body: the request's body, or its pieces.
        on_send: awaited before each message of the answer is taken, as by a slow socket.
        gone: set it to go away; the application is then told so.
        sent: the messages of the answer, as they came.
    """

    app: ASGIApp
    method: str = "POST"
    path: str = "/"
    body: bytes | Iterable[bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)
    root_path: str = ""
    query: str = ""
    on_send: Callable[[Message], Awaitable[None]] | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    sent: list[Message] = field(default_factory=list)

    async def run(self) -> "Connection":
        """Call the application, until it returns."""
        pieces = [self.body] if isinstance(self.body, bytes) else list(self.body)
        headers = {"content-type": "application/json", **self.headers}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.root_path + self.path,
            "raw_path": (self.root_path + self.path).encode(),
            "root_path": self.root_path,
            "query_string": self.query.encode(),
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in headers.items()
            ],
            "server": ("127.0.0.1", 8000),
            "client": ("127.0.0.1", 5000),
        }

        async def receive() -> Message:
            if pieces:
                piece = pieces.pop(0)
                return {"type": "http.request", "body": piece, "more_body": bool(pieces)}
            await self.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if self.on_send is not None:
                await self.on_send(message)
            self.sent.append(message)

        await self.app(scope, receive, send)
        return self

    @property
    def status(self) -> int:
        """The status of the answer."""
        status: int = self.sent[0]["status"]
        return status

    @property
    def answer_headers(self) -> dict[str, str]:
        """The headers of the answer, their names in lower case."""
        return {name.decode().lower(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def writes(self) -> list[bytes]:
        """The pieces of the answer's body that are not empty."""
        return [message["body"] for message in self.sent[1:] if message.get("body")]

    @property
    def answer(self) -> bytes:
        """The answer's body."""
        return b"".join(self.writes)

    @property
    def complete(self) -> bool:
        """Whether the answer has been ended."""
        return len(self.sent) > 1 and not self.sent[-1].get("more_body", False)

    @property
    def error(self) -> dict[str, Any]:
        """What a refusal says."""
        error: dict[str, Any] = json.loads(self.answer)["error"]
        assert isinstance(error["message"], str)
        return error

    def events(self) -> list[Event]:
        """The events of the answer, which has to be a whole stream that nobody warns of."""
        warnings: list[ProtocolWarning] = []
        consumer = Consumer(on_warning=warnings.append)
        events = [*consumer.receive(self.answer), *consumer.end()]
        assert [str(warning) for warning in warnings] == []
        return events

    @property
    def types(self) -> list[str]:
        """The types of these events."""
        return [event.type for event in self.events()]


async def call(app: ASGIApp, **request: Any) -> Connection:
    """Make one request, by default that of an empty run input, and wait for the answer's end."""
    request.setdefault("body", input_body())
    async with asyncio.timeout(10):
        return await Connection(app, **request).run()
