"""The ASGI application that serves an agent: a run input is POSTed, the run streams back.

Follows the http-sse page (HTTP-1 to HTTP-4). Plumbing (requests, JSON answers) is Starlette's.
"""

import asyncio
import logging
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from aguia.codec import sse
from aguia.codec.json import STRICT_FAILURES, decode, nests_deeper_than, parse_object
from aguia.pipeline.enforcement import enforce_input
from aguia.pipeline.versions import parse_version
from aguia.producer import Producer
from aguia.protocol.common import PROTOCOL_VERSION, UNSET
from aguia.protocol.errors import DecodeError, InvalidInput, ProtocolWarning
from aguia.protocol.input import RunAgentInput
from aguia.server.execution import Agent, execute
from aguia.server.run import Run
from aguia.server.stream import EventStream

__all__ = ["AgentApp"]

_logger: Final = logging.getLogger("aguia.server")

MAX_BODY: Final = 32 * 1024 * 1024
MAX_DEPTH: Final = 256


class AgentApp:
    """Serves one agent as an ASGI application.

    Args:
        agent: takes a `Run` and returns a coroutine, or an async iterator of events.
        path: the only path that is answered, or None to answer whatever path leads here, as
            under a `Mount` or a `Route`.
        keep_alive: seconds of silence after which a comment keeps the connection open.
        max_body_bytes: the largest run input that is read.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        path: str | None = None,
        keep_alive: float = 15.0,
        max_body_bytes: int = MAX_BODY,
    ) -> None:
        self._agent = agent
        self._path = path
        self._keep_alive = keep_alive
        self._max_body = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"an agent is served over HTTP, not {scope['type']}")
        request = Request(scope, receive)
        try:
            run_input = await self._read_input(request)
        except _Refused as refusal:
            await refusal.response(scope, receive, send)
            return
        await self._stream_run(run_input, receive, send)

    async def _read_input(self, request: Request) -> RunAgentInput:
        if self._path is not None and request.url.path.rstrip("/") != self._path.rstrip("/"):
            raise _Refused(404, f"the agent is at {self._path}")
        if request.method != "POST":
            raise _Refused(405, "a run is started by POST", headers={"Allow": "POST"})
        content_type = request.headers.get("content-type", "application/json")
        if content_type.split(";", 1)[0].strip().lower() != "application/json":
            raise _Refused(415, "the run input is sent as application/json")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._max_body:
                raise _Refused(413, f"the run input is larger than {self._max_body} bytes")
        return _parse(bytes(body))

    async def _stream_run(self, run_input: RunAgentInput, receive: Receive, send: Send) -> None:
        stream = EventStream()
        producer = Producer(run_input)
        run = Run(producer, stream)
        task = asyncio.create_task(execute(self._agent, producer, stream, run))
        listener = asyncio.create_task(_until_disconnect(receive, stream))
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [
                        (b"content-type", sse.CONTENT_TYPE.encode()),
                        (b"cache-control", b"no-cache"),
                        (b"x-accel-buffering", b"no"),
                    ],
                }
            )
            while (events := await stream.take(self._keep_alive)) is not None:
                body = (
                    b"".join([sse.encode_event(event) for event in events])
                    if events
                    else sse.encode_comment("keep-alive")
                )
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except OSError:
            _logger.info("run %s: the client went away", run.run_id)
        finally:
            stream.abandon()
            listener.cancel()
            task.cancel()
            await asyncio.wait({task, listener})


async def _until_disconnect(receive: Receive, stream: EventStream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.abandon()


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _parse(body: bytes) -> RunAgentInput:
    """The run input in a body, judged by PROC-12 and VER-2."""
    try:
        if nests_deeper_than(body, MAX_DEPTH):
            raise _Refused(400, f"the run input nests deeper than {MAX_DEPTH} levels", path="")
        run_input = decode(body, RunAgentInput)
    except STRICT_FAILURES:
        try:
            run_input = enforce_input(parse_object(body, MAX_DEPTH), _log)
        except DecodeError as error:
            raise _Refused(
                400, error.message.replace("frame", "body"), rule=error.rule, path=""
            ) from None
        except InvalidInput as error:
            raise _Refused(400, error.message, rule=error.rule, path=error.path) from None
    _check_version(run_input)
    return run_input


def _check_version(run_input: RunAgentInput) -> None:
    if run_input.protocol_version is UNSET:
        return
    theirs, ours = parse_version(run_input.protocol_version), parse_version(PROTOCOL_VERSION)
    if theirs is None or ours is None:
        _logger.warning(
            "the client declares the protocol version %r, which can't be interpreted [VER-2]",
            run_input.protocol_version[:40],
        )
    elif theirs[0] != ours[0]:
        raise _Refused(
            400,
            f"this agent speaks protocol {PROTOCOL_VERSION}, not {run_input.protocol_version}",
            rule="VER-2",
            path="/protocolVersion",
        )
    elif theirs > ours:
        _logger.warning(
            "the client speaks protocol %s, newer than %s; what it adds is not understood [VER-2]",
            run_input.protocol_version,
            PROTOCOL_VERSION,
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
        error: dict[str, Any] = {"message": message}
        if rule is not None:
            error["rule"] = rule
        if path is not None:
            error["path"] = path
        self.response: Response = JSONResponse({"error": error}, status, headers)


def _log(warning: ProtocolWarning) -> None:
    _logger.warning("%s", warning)
