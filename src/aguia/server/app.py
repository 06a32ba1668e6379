"""The ASGI application that serves an agent: a run input is POSTed, the run streams back.

Follows the http-sse page (HTTP-1 to HTTP-4). Plumbing (requests, JSON answers, CORS) is
Starlette's.
"""

import asyncio
import inspect
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any, Final, Literal

from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from aguia.codec.json import encode
from aguia.codec.negotiation import media_type_of
from aguia.protocol.capabilities import AgentCapabilities
from aguia.protocol.errors import InvalidInput, printable
from aguia.protocol.events import RunErrorEvent
from aguia.server.execution import Agent, Execution, check_agent, check_limits
from aguia.server.intake import declaration, read_input
from aguia.server.writers import Writer, writer_for

__all__ = ["AgentApp", "Agents"]

_logger: Final = logging.getLogger("aguia.server")

MAX_BODY: Final = 32 * 1024 * 1024

_MARGIN: Final = 1.0
"""Seconds that it takes to tell a client how its run ended."""

_TURNS: Final = 4
"""Turns of the event loop between two writes to one client.

With little to do they pass in microseconds. In a busy server they are when the other runs have
their turn, and this one's agent too, so that what it says meanwhile leaves in one write: writing
to sockets is most of what serving costs.
"""

_SHOWN: Final = 200
"""Characters of a refusal's reason, and of its place, that are logged."""

_QUOTED: Final = re.compile(r"(, near |, not the (string|number) ).*", re.DOTALL)
"""What a run input holds is quoted to its sender, and not to the log."""

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._~-]+|\[[0-9a-f:.]+\])(:[0-9]+)?")
_USUAL_PORT: Final = re.compile(r"http://.*:80|https://.*:443")

Authenticate = Callable[[Request], Awaitable[Any] | Any]


class AgentApp:
    """Serves one agent as an ASGI application: alone, under a `Mount`, or as a `Route`.

    Args:
        agent: takes a `Run`; returns a coroutine, or an iterator of events (see `Agent`).
        path: the only path that is answered, counted from where the application is mounted, or
            None to answer whatever path leads here.
        capabilities: what the agent declares of itself, answered to `GET …/capabilities`
            beside the run endpoint. (Where it is found is this package's convention.)
        authenticate: sees the request before its body is read and returns the principal, which
            becomes `run.principal`, or an awaitable of it; refuses by raising Starlette's
            `HTTPException` with 401 or 403. A principal of None is anonymous.
        max_runs: how many runs each principal may have at once, or None.
        on_disconnect: what a client that goes away means: "cancel" the run, or "continue" it
            with nobody reading.
        deadline, max_steps, grace, expose_errors: see `Execution`.
        flatten_for_old_clients: whether clients from before versions existed get tool results
            as text, no list of pending calls, and no empty deltas; see `Producer`.
        keep_alive: seconds of silence after which a comment keeps the connection open, or None
            for no comments.
        capacity: how many events may wait for a slow client before its agent has to.
        max_body_bytes: the largest run input that is read.
        body_timeout: seconds in which a run input has to arrive, or None to wait for ever.
        allow_origins: origins whose pages may call the agent (CORS), as browsers write them:
            "https://example.com", "http://localhost:5173"; "*" for all.

    Raises `TypeError` or `ValueError` for a setting that can't be right.

    Under `Mount("/agent", app)` Starlette answers `/agent` by a redirect to `/agent/`, which
    browsers don't follow across origins: call it with the slash, or use `Agents`, or a `Route`.
    Servers tell the outermost application alone that they stop: where this one is part of
    another, that one's lifespan ends with `await app.shutdown(0)`.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        path: str | None = None,
        capabilities: AgentCapabilities | Mapping[str, Any] | None = None,
        authenticate: Authenticate | None = None,
        max_runs: int | None = None,
        on_disconnect: Literal["cancel", "continue"] = "cancel",
        deadline: float | None = None,
        max_steps: int | None = None,
        grace: float = 5.0,
        expose_errors: bool = False,
        flatten_for_old_clients: bool = True,
        keep_alive: float | None = 15.0,
        capacity: int = 256,
        max_body_bytes: int = MAX_BODY,
        body_timeout: float | None = 60.0,
        allow_origins: str | Iterable[str] = (),
    ) -> None:
        _check_settings(agent, path, authenticate, max_runs, on_disconnect, max_body_bytes)
        _check_seconds(body_timeout=body_timeout, keep_alive=keep_alive)
        check_limits(capacity=capacity, deadline=deadline, max_steps=max_steps, grace=grace)
        self._agent = agent
        self._path = path
        self._capabilities = None if capabilities is None else declaration(capabilities)
        self._authenticate = authenticate
        self._max_runs = max_runs
        self._continue = on_disconnect == "continue"
        self._grace = grace
        self._settings: dict[str, Any] = {
            "capacity": capacity,
            "deadline": deadline,
            "max_steps": max_steps,
            "grace": grace,
            "expose_errors": expose_errors,
            "flatten_for_old_clients": flatten_for_old_clients,
        }
        self._keep_alive = keep_alive
        self._max_body = max_body_bytes
        self._body_timeout = body_timeout
        self._runs: set[Execution] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._busy: Counter[Hashable] = Counter()
        self._closing = False
        origins = [allow_origins] if isinstance(allow_origins, str) else list(allow_origins)
        for origin in origins:
            _check_origin(origin)
        self._answer: ASGIApp = self._http
        if origins:
            self._answer = CORSMiddleware(
                self._http,
                allow_origins=origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
            )

    @property
    def running(self) -> int:
        """How many runs are under way."""
        return len(self._runs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            raise RuntimeError(f"an agent is served over HTTP, not {scope['type']}")

    def response(self, request: Request, principal: Any = None) -> Response:
        """The answer of an endpoint that has found out by itself who asks.

        For example, with FastAPI::

            @app.post("/agent")
            async def chat(
                request: Request, user: Annotated[User, Depends(current_user)]
            ) -> Response:
                return agent_app.response(request, user)

        The endpoint's own dependencies do what `authenticate` would, which is not asked; nor do
        `path`, `capabilities` and `allow_origins` count.

        Args:
            request: what the endpoint was given.
            principal: becomes `run.principal`.
        """
        return _Answer(self, request, principal)

    async def shutdown(self, grace: float | None = None) -> None:
        """Refuse new runs (503), give the running ones `grace` seconds, then cancel them.

        Returns when every run has ended in order and its client has been told, or when a client
        that reads nothing has had its own grace time. Servers don't say early enough that they
        are stopping; whoever runs one calls this, as `aguia.server.serve` does.
        """
        self._closing = True
        try:
            async with asyncio.timeout(self._grace if grace is None else grace):
                await self._idle.wait()
        except TimeoutError:
            for execution in list(self._runs):
                execution.cancel()
        try:
            async with asyncio.timeout(2 * self._grace + _MARGIN):
                await self._idle.wait()
        except TimeoutError:
            _logger.error("%d clients do not read how their runs ended", len(self._runs))

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._closing = False
            else:
                await self.shutdown(0)
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _http(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        known: tuple[Request, Any] | None = None,
    ) -> None:
        """Answer a request, of which an endpoint may know already who asks."""
        request, principal = known or (Request(scope, receive), None)
        try:
            if known is not None:
                self._refuse_unless_post(request)
            else:
                answer = await self._quick_answer(request)
                if answer is not None:
                    await answer(scope, receive, send)
                    return
                principal = await self._principal(request)
            body = await self._body(request)
            try:
                run_input = read_input(body)
            except InvalidInput as error:
                raise _Refused(400, error.message, rule=error.rule, path=error.path) from None
            self._refuse_when_closing()
            key = _key(principal)
            if self._max_runs is not None and self._busy[key] >= self._max_runs:
                raise _Refused(
                    429,
                    f"{self._max_runs} runs at once are the limit",
                    headers={"Retry-After": "1"},
                )
        except _Refused as refusal:
            refusal.log()
            await refusal.response(scope, receive, send)
            return
        except ClientDisconnect:
            return
        execution = Execution(
            self._agent, run_input, principal=principal, judged=True, **self._settings
        )
        self._busy[key] += 1
        self._runs.add(execution)
        self._idle.clear()
        try:
            await self._stream(
                execution, writer_for(request.headers.getlist("accept")), receive, send
            )
        finally:
            self._runs.discard(execution)
            self._busy[key] -= 1
            if not self._busy[key]:
                del self._busy[key]
            if not self._runs:
                self._idle.set()

    async def _quick_answer(self, request: Request) -> Response | None:
        """The answer to whatever asks for no run; None for what asks for one."""
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        declares = self._capabilities is not None and path.endswith("/capabilities")
        if self._path is not None:
            base = self._path.rstrip("/")
            declares = declares and path == f"{base}/capabilities"
            if not declares and path.rstrip("/") != base:
                raise _Refused(404, f"the agent is at {self._path}")
        if declares:
            if request.method not in ("GET", "HEAD"):
                raise _Refused(405, "capabilities are read by GET", headers={"Allow": "GET"})
            await self._principal(request)
            return Response(self._capabilities, media_type="application/json")
        self._refuse_unless_post(request)
        return None

    def _refuse_unless_post(self, request: Request) -> None:
        if request.method != "POST":
            raise _Refused(405, "a run is started by POST", headers={"Allow": "POST"})
        self._refuse_when_closing()

    def _refuse_when_closing(self) -> None:
        if self._closing:
            raise _Refused(503, "the server is shutting down", headers={"Retry-After": "5"})

    async def _principal(self, request: Request) -> Any:
        if self._authenticate is None:
            return None
        try:
            principal = self._authenticate(request)
            return await principal if inspect.isawaitable(principal) else principal
        except HTTPException as error:
            raise _Refused(
                error.status_code, error.detail, headers=dict(error.headers or {})
            ) from None

    async def _body(self, request: Request) -> bytes:
        # Required, since a page of another origin may send a request without one unasked.
        content_type = request.headers.get("content-type", "")
        if media_type_of(content_type) != "application/json":
            raise _Refused(415, "the run input is sent as application/json")
        length = request.headers.get("content-length", "")
        too_large = _Refused(413, f"the run input is larger than {self._max_body} bytes")
        if length.isascii() and length.isdigit() and int(length[:20]) > self._max_body:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._body_timeout):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > self._max_body:
                        raise too_large
        except TimeoutError:
            raise _Refused(
                408, f"the run input did not arrive within {self._body_timeout:g} seconds"
            ) from None
        return bytes(body)

    async def _stream(
        self, execution: Execution, writer: Writer, receive: Receive, send: Send
    ) -> None:
        drive = asyncio.create_task(execution.drive())
        listener = asyncio.create_task(_until_disconnect(receive, execution))
        gone = False
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [
                        (b"content-type", writer.content_type.encode()),
                        (b"cache-control", b"no-cache"),
                        (b"x-accel-buffering", b"no"),
                    ],
                }
            )
            await self._send_events(execution, writer, send)
            gone = execution.events.abandoned
        except OSError:
            gone = True
        except asyncio.CancelledError:
            # The server is going down and waits for nobody: end the run in order, and let the
            # client see it if its connection still stands.
            execution.cancel()
            await asyncio.wait({drive}, timeout=self._grace)
            try:
                async with asyncio.timeout(self._grace):
                    await self._send_events(execution, writer, send)
            except (TimeoutError, OSError):
                pass
            raise
        finally:
            listener.cancel()
            if gone:
                run = execution.run
                _logger.info("%s: the client went away", run.label, extra=run.ids)
            execution.events.abandon()
            if not (gone and self._continue):
                execution.cancel()
            await asyncio.wait({drive, listener})

    async def _send_events(self, execution: Execution, writer: Writer, send: Send) -> None:
        while (events := await execution.events.take(self._keep_alive)) is not None:
            # What has queued up while the socket was busy leaves in one write.
            try:
                body = writer.events(events) if events else writer.silence()
            except ValueError as error:
                run = execution.run
                _logger.error("%s: can't be written: %s", run.label, error, extra=run.ids)
                execution.cancel()
                failure = RunErrorEvent(message="The agent sent what this binding can't express.")
                body = writer.events([failure])
                execution.events.abandon()
                await send({"type": "http.response.body", "body": body})
                return
            del events  # while the socket is busy, they would double what a slow reader costs
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
                await execution.events.gather(_TURNS)
        if not execution.events.abandoned:
            await send({"type": "http.response.body", "body": b""})


class _Answer(Response):
    """A run of an agent as the answer of somebody else's endpoint."""

    def __init__(self, app: AgentApp, request: Request, principal: Any) -> None:
        super().__init__()
        self._app = app
        self._known = (request, principal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app._http(scope, receive, send, self._known)
        if self.background is not None:  # what FastAPI's dependencies have asked for
            await self.background()


class Agents:
    """Serves several agents under one server, each at the path of its name.

    `Agents(search=search, write=AgentApp(write, deadline=60))` answers at `/search` and
    `/write`.
    """

    def __init__(self, **agents: Agent | AgentApp) -> None:
        self.apps: dict[str, AgentApp] = {
            name: agent if isinstance(agent, AgentApp) else AgentApp(agent)
            for name, agent in agents.items()
        }

    @property
    def running(self) -> int:
        """How many runs are under way, of all agents."""
        return sum(app.running for app in self.apps.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] != "http":
            first = next(iter(self.apps.values()), None)
            if first is not None and scope["type"] != "lifespan":
                await first(scope, receive, send)
                return
            await self._lifespan(receive, send)
            return
        root = scope.get("root_path", "")
        inner = scope["path"].removeprefix(root).strip("/")
        app = self.apps.get(inner.split("/", 1)[0])
        if app is None:
            names = ", ".join(f"/{name}" for name in self.apps)
            refusal = _Refused(404, f"the agents are at {names}")
            refusal.log()
            await refusal.response(scope, receive, send)
            return
        await app(scope, receive, send)

    async def shutdown(self, grace: float | None = None) -> None:
        """See `AgentApp.shutdown`."""
        await asyncio.gather(*(app.shutdown(grace) for app in self.apps.values()))

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                for app in self.apps.values():
                    app._closing = False
            else:
                await self.shutdown(0)
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


async def _until_disconnect(receive: Receive, execution: Execution) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    execution.events.abandon()


def _key(principal: Any) -> Hashable:
    """What a principal is counted by: itself, or its words, as those of a dictionary of claims."""
    try:
        hash(principal)
    except TypeError:
        return repr(principal)
    key: Hashable = principal
    return key


def _check_settings(
    agent: Any,
    path: str | None,
    authenticate: Any,
    max_runs: int | None,
    on_disconnect: str,
    max_body_bytes: int,
) -> None:
    """Raise for settings with which every request would fail."""
    check_agent(agent)
    if authenticate is not None and not callable(authenticate):
        raise TypeError(f"authenticate is a function, not {type(authenticate).__name__}")
    if path is not None and not path.startswith("/"):
        raise ValueError(f"path begins with a slash: {path!r}")
    if max_runs is not None and max_runs < 1:
        raise ValueError(f"max_runs is 1 at least, not {max_runs}")
    if on_disconnect not in ("cancel", "continue"):
        raise ValueError(f"on_disconnect is 'cancel' or 'continue', not {on_disconnect!r}")
    if max_body_bytes < 1:
        raise ValueError(f"max_body_bytes is 1 at least, not {max_body_bytes}")


def _check_seconds(**settings: float | None) -> None:
    for name, seconds in settings.items():
        if seconds is not None and not seconds > 0:
            raise ValueError(f"{name} is a number of seconds above 0, or None, not {seconds}")


def _check_origin(origin: str) -> None:
    """Raise for what no browser sends as an origin, hence would never be allowed."""
    if not isinstance(origin, str):
        raise TypeError(f"an origin is a string, not {type(origin).__name__}")
    if origin in ("*", "null"):
        return
    if not _ORIGIN.fullmatch(origin) or _USUAL_PORT.fullmatch(origin):
        raise ValueError(
            f"{origin!r} is no origin, which is a scheme and a host, in small letters, and a port"
            " where it is not the usual one: https://example.com, http://localhost:5173"
        )


class _Refused(Exception):
    """A request that starts no run (HTTP-4)."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        rule: str | None = None,
        path: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self._status = status
        self._rule = rule
        self._path = path
        error: dict[str, Any] = {"message": message}
        if rule is not None:
            error["rule"] = rule
        if path is not None:
            error["path"] = path
        content = encode({"error": error})
        self.response: Response = Response(
            content, status, headers, media_type=JSONResponse.media_type
        )

    def log(self) -> None:
        """Tell the log, which has no run to tell of; what was sent stays out of it."""
        place = f" (at '{_cut(self._path)}')" if self._path else ""
        rule = "" if self._rule is None else f" [{self._rule}]"
        extra: dict[str, Any] = {"status": self._status}
        if self._rule is not None:
            extra["rule"] = self._rule
        if self._path is not None:
            extra["path"] = printable(_cut(self._path))
        _logger.info(
            "refused a request with %d: %s%s%s",
            self._status,
            printable(_cut(_QUOTED.sub("", str(self)))),
            printable(place),
            rule,
            extra=extra,
        )


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
