"""An ASGI application in this process as a transport: no server, no socket, yet streamed.

The application is called as a server would call it, and what it sends is read as `HttpTransport`
reads any answer: status, content type, bindings, errors and all. An answer streams, a slow
reader slows the application down, and whoever leaves early is a client that has disconnected.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import anyio
import httpx

from aguia.client.http import Auth, HttpTransport
from aguia.client.transports import SSE, Answer, Timeouts
from aguia.protocol.errors import ConnectionFailed, printable
from aguia.protocol.input import RunAgentInput

__all__ = ["AsgiTransport"]

_logger: Final = logging.getLogger("aguia")

Message: TypeAlias = MutableMapping[str, Any]
App: TypeAlias = Callable[
    [Any, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

_HOST: Final = "http://app"
_VERSIONS: Final = {"version": "3.0", "spec_version": "2.3"}
"""What today's servers say, too: a client that has left is told by `receive`."""


class AsgiTransport:
    """Calls an ASGI application in this process. Needs asyncio.

    `async with` runs the application's lifespan, for one that has work to do when it starts and
    stops; without that it is only called. Either way `close` ends what still runs.

    Args:
        app: the application: an `AgentApp`, or any other.
        path: of the agent, below `root_path`.
        headers, auth, timeouts, accept: see `HttpTransport`. Of the times to wait, that for a
            connection has no meaning.
        root_path: where the application takes itself to be mounted.
        grace: seconds that the end of an answer, or leaving it early, waits for the application
            to return. One that takes longer goes on alone until `close`, as it would in a server.

    Raises `ValueError` for a path without a slash at its beginning, and what `HttpTransport`
    raises.
    """

    def __init__(
        self,
        app: App,
        *,
        path: str = "/",
        headers: Mapping[str, str] | None = None,
        auth: Auth | None = None,
        root_path: str = "",
        timeouts: Timeouts | None = None,
        accept: str | Iterable[str] = SSE,
        grace: float = 1.0,
    ) -> None:
        if not path.startswith("/") or (root_path and not root_path.startswith("/")):
            raise ValueError(f"a path begins with a slash: {path!r} below {root_path!r}")
        self._caller = _Caller(app, root_path.rstrip("/"), grace)
        self._http = HttpTransport(
            str(httpx.URL(_HOST, path=root_path.rstrip("/") + path)),
            headers=headers,
            auth=auth,
            timeouts=timeouts,
            retries=0,
            # Nothing is saved by packing what never leaves the process.
            client=httpx.AsyncClient(
                transport=self._caller, headers={"accept-encoding": "identity"}
            ),
            accept=accept,
        )

    def open(self, input: RunAgentInput) -> AbstractAsyncContextManager[Answer]:
        """POST the input to the application. See `HttpTransport.open` for what is raised.

        An application that raises before it has answered, or doesn't answer at all, is a
        `TransportError`; one that does so in the middle of its answer a `TruncatedRun`. What it
        raised is the cause's cause.
        """
        return self._http.open(input)

    async def capabilities(self, url: str | None = None) -> Any | None:
        """What the agent declares of itself; see `HttpTransport.capabilities`."""
        return await self._http.capabilities(url)

    async def close(self) -> None:
        """End the application's lifespan, if it was begun, and cancel what still runs."""
        await self._caller.stop()

    async def __aenter__(self) -> Self:
        """Begin the application's lifespan; raises `ConnectionFailed` when it can't start."""
        await self._caller.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class _Caller(httpx.AsyncBaseTransport):
    """What stands where httpx has its connections: calls the application for each request."""

    def __init__(self, app: App, root_path: str, grace: float) -> None:
        self._app = app
        self._root_path = root_path
        self._grace = grace
        self._state: dict[str, Any] = {}
        self._lifespan: _Lifespan | None = None
        self._running: dict[asyncio.Task[None], _Exchange] = {}

    async def start(self) -> None:
        """Begin the application's lifespan."""
        if self._lifespan is None:
            lifespan = _Lifespan(self._app, self._state, self._grace)
            await lifespan.start()
            self._lifespan = lifespan

    async def stop(self) -> None:
        """End what still runs, and then the lifespan."""
        for exchange in self._running.values():
            exchange.leave()
        await self._returned()
        for task in self._running:
            task.cancel()
        await self._returned()
        if self._running:
            _logger.error("the application ignores that it is cancelled, and is left alone")
            self._running.clear()
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            await lifespan.stop()
            self._state.clear()

    async def _returned(self) -> None:
        if self._running:
            await asyncio.wait(set(self._running), timeout=self._grace)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _Exchange(await request.aread(), request.extensions["timeout"]["read"])
        task = asyncio.create_task(self._call(self._scope(request), exchange))
        self._running[task] = exchange
        task.add_done_callback(lambda task: self._running.pop(task, None))
        body = _Body(exchange, task, self._grace)
        try:
            status, headers = await exchange.start()
        except BaseException:
            await body.aclose()
            raise
        return httpx.Response(status, headers=headers, stream=body)

    async def _call(self, scope: dict[str, Any], exchange: "_Exchange") -> None:
        error: Exception | None = None
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception as raised:
            error = raised
            if exchange.over:
                # Nobody is there any more who could be told.
                _logger.log(
                    logging.DEBUG if isinstance(raised, OSError) else logging.ERROR,
                    "the application raised an exception after the end of its answer",
                    exc_info=raised,
                )
        finally:
            exchange.returned(error)

    def _scope(self, request: httpx.Request) -> dict[str, Any]:
        return {
            "type": "http",
            "asgi": _VERSIONS,
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "root_path": self._root_path,
            "query_string": request.url.query,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "server": (request.url.host, request.url.port or 80),
            "client": ("127.0.0.1", 0),
            "state": dict(self._state),
        }


class _Exchange:
    """One request and its answer, between the application's task and the reader's.

    One piece of the body waits here at most; the application waits to send the next.
    """

    def __init__(self, body: bytes, idle: float | None) -> None:
        self._request: bytes | None = body
        self._idle = idle
        self._start: tuple[int, list[tuple[bytes, bytes]]] | None = None
        self._piece: bytes | None = None
        self._complete = False
        self._returned = False
        self._error: Exception | None = None
        self._over = asyncio.Event()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether the application has no reader any more, or has said everything."""
        return self._over.is_set()

    # What the application is given

    async def receive(self) -> Message:
        if self._request is not None:
            body, self._request = self._request, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        kind = message["type"]
        expected = "http.response.start" if self._start is None else "http.response.body"
        if kind != expected or self._complete:
            raise RuntimeError(f"an application does not send {kind} at this place of its answer")
        if kind == "http.response.start":
            headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
            self._start = message["status"], headers
        else:
            while self._piece is not None and not self.over:
                self._taken.clear()
                await self._taken.wait()
            if self.over:
                raise OSError("nobody reads the answer any more")
            self._piece = bytes(message.get("body", b"")) or None
            if not message.get("more_body", False):
                self._complete = True
                self._over.set()
        self._arrived.set()

    def returned(self, error: Exception | None) -> None:
        """Take note that the application has returned, or what it raised."""
        self._error = error
        self._returned = True
        self._arrived.set()

    # What the reader does

    async def start(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """The beginning of the answer: its status and headers."""
        while self._start is None:
            if self._returned:
                raise self._broken("before it had answered")
            await self._wait()
        return self._start

    async def take(self) -> bytes | None:
        """The next piece of the body, or None at its end."""
        while self._piece is None:
            if self._complete:
                return None
            if self._returned:
                raise self._broken("in the middle of its answer")
            await self._wait()
        piece, self._piece = self._piece, None
        self._taken.set()
        return piece

    def leave(self) -> None:
        """Say that nobody reads any more."""
        self._over.set()
        self._taken.set()

    async def _wait(self) -> None:
        self._arrived.clear()
        with anyio.move_on_after(self._idle) as scope:
            await self._arrived.wait()
        if scope.cancelled_caught:
            raise httpx.ReadTimeout("")

    def _broken(self, when: str) -> httpx.RemoteProtocolError:
        if self._error is None:
            return httpx.RemoteProtocolError(f"the application returned {when}")
        broken = httpx.RemoteProtocolError(
            f"the application raised {type(self._error).__name__} {when}"
        )
        broken.__cause__ = self._error
        return broken


class _Body(httpx.AsyncByteStream):
    """The body of an answer, for httpx."""

    def __init__(self, exchange: _Exchange, task: asyncio.Task[None], grace: float) -> None:
        self._exchange = exchange
        self._task = task
        self._grace = grace

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._exchange.take()) is not None:
            yield piece

    async def aclose(self) -> None:
        self._exchange.leave()
        await asyncio.wait({self._task}, timeout=self._grace)


class _Lifespan:
    """The application's start and stop, in a task of its own."""

    def __init__(self, app: App, state: dict[str, Any], grace: float) -> None:
        self._app = app
        self._state = state
        self._grace = grace
        self._asked: asyncio.Queue[Message] = asyncio.Queue()
        self._said: asyncio.Queue[Message | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())
        try:
            answer = await self._ask("lifespan.startup")
        except BaseException:
            self._task.cancel()
            raise
        if answer is not None and answer["type"] == "lifespan.startup.failed":
            await self._end()
            # Some send a whole traceback, of which the last line says what was wrong.
            reason = str(answer.get("message", "")).strip().rpartition("\n")[2]
            raise ConnectionFailed(f"the application could not start: {printable(reason)}")

    async def stop(self) -> None:
        if self._task is not None and not self._task.done():
            answer = await self._ask("lifespan.shutdown")
            if answer is not None and answer["type"] == "lifespan.shutdown.failed":
                _logger.error("the application could not stop: %s", answer.get("message", ""))
        await self._end()

    async def _ask(self, what: str) -> Message | None:
        """Tell the application; None when it has returned, as one that knows no lifespan does."""
        self._asked.put_nowait({"type": what})
        return await self._said.get()

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": _VERSIONS, "state": self._state}
        try:
            await self._app(scope, self._asked.get, self._said.put)
        except Exception as error:
            _logger.debug("the application has no lifespan: %s", type(error).__name__)
        finally:
            self._said.put_nowait(None)

    async def _end(self) -> None:
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=self._grace)
            self._task.cancel()
