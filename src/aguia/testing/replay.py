"""A recording as an agent: what was kept is served again, to any client, with faults on demand."""

import logging
import math
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeAlias

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from aguia.codec import sse
from aguia.codec.json import encode
from aguia.codec.negotiation import media_type_of
from aguia.codec.recordings import RecordedRun, mapped, mapping, read_runs
from aguia.interop.values import plain_event
from aguia.protocol.errors import InvalidInput
from aguia.protocol.events import Event
from aguia.protocol.input import RunAgentInput
from aguia.server.intake import read_input
from aguia.testing.faults import BrokenOff, Cut, Fault, FaultInjector, Pause, SseFrames, Steps

__all__ = ["ReplayApp", "Source"]

_logger: Final = logging.getLogger("aguia.testing")

Source: TypeAlias = (
    str | PathLike[str] | bytes | IO[bytes] | Iterable[Iterable[Event | dict[str, Any]]]
)
"""A recording (its path, its bytes or its file), or the events of each run."""

MAX_BODY: Final = 32 * 1024 * 1024


class ReplayApp:
    """An ASGI application that answers each request with the next run of a recording.

    It answers as a server does, whatever was recorded: a run input that is malformed is refused
    (HTTP-4, PROC-12), what was no event is none, and a run that was cut off is cut off again.
    What is sent is not compared with what was sent then. Answers are server-sent events.

    Args:
        source: a recording of any kind that `aguia.client.Recording` takes, or the events of
            each run.
        pace: None plays as fast as the client reads; "original" keeps the recording's own times,
            where it has any; a number is the seconds before each event.
        mapped: whether the ids of the recorded runs and threads are replaced by those of the
            request, so that it is the run asked for which starts and finishes (RUN-3).
        faults: what to spoil in every answer, as `aguia.testing.FAULTS` lists it.
        seed: decides what the faults leave open.
        repeat: begin again after the last run; otherwise a further request gets 410. A thread
            that is played the same run again gets its messages' ids again, and its reader takes
            them for the same messages.

    Attributes:
        inputs: the run inputs that came, in order.

    Raises `ValueError` for what is no recording, no pace or no fault, and `OSError` for a file
    that can't be read.
    """

    def __init__(
        self,
        source: Source,
        *,
        pace: Literal["original"] | float | None = None,
        mapped: bool = True,
        faults: Iterable[Fault | str] = (),
        seed: int = 0,
        repeat: bool = True,
    ) -> None:
        if isinstance(pace, str):
            if pace != "original":
                raise ValueError(f"pace is None, 'original' or a number of seconds, not {pace!r}")
        elif pace is not None and not 0 <= pace < math.inf:
            raise ValueError(f"pace is a number of seconds from 0, not {pace}")
        self.inputs: list[RunAgentInput] = []
        self._runs = _runs(source)
        self._pace = pace
        self._mapped = mapped
        self._injector = FaultInjector(*faults, seed=seed)
        self._repeat = repeat

    @property
    def runs(self) -> int:
        """How many runs the recording has."""
        return len(self._runs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            answer = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            return
        if isinstance(answer, JSONResponse):
            await answer(scope, receive, send)
        else:
            await self._stream(*answer, receive, send)

    async def _answer(self, request: Request) -> JSONResponse | tuple[RunAgentInput, int]:
        """The number of the run that answers a request, or the refusal."""
        if request.method != "POST":
            return _refusal(405, "a run is started by POST", headers={"Allow": "POST"})
        content_type = request.headers.get("content-type", "")
        if media_type_of(content_type) != "application/json":
            return _refusal(415, "the run input is sent as application/json")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return _refusal(413, f"the run input is larger than {MAX_BODY} bytes")
        try:
            run_input = read_input(bytes(body))
        except InvalidInput as error:
            return _refusal(400, error.message, rule=error.rule, path=error.path)
        number = len(self.inputs)
        if not self._runs or (number >= len(self._runs) and not self._repeat):
            return _refusal(410, "the recording has no further run")
        self.inputs.append(run_input)
        return run_input, number

    async def _stream(
        self, run_input: RunAgentInput, number: int, receive: Receive, send: Send
    ) -> None:
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            group.start_soon(watch)
            try:
                await self._play(run_input, number, send)
            except BrokenOff:
                pass  # returning in the middle of an answer is what breaks the connection
            except OSError:
                _logger.info("the client went away")
            group.cancel_scope.cancel()

    async def _play(self, run_input: RunAgentInput, number: int, send: Send) -> None:
        run = self._runs[number % len(self._runs)]
        ids = mapping(run, run_input.thread_id, run_input.run_id) if self._mapped else {}
        headers = [(b"content-type", sse.CONTENT_TYPE.encode()), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        frames = [_frame(event, ids) for _, event in run.events]
        size = sum(map(len, frames))
        steps = Steps(self._injector, SseFrames(), run=number, events=len(frames), size=size)
        began = anyio.current_time()
        for (at, _), frame in zip(run.events, frames, strict=True):
            if self._pace == "original":
                await anyio.sleep_until(began + (at or 0))
            elif self._pace is not None:
                await anyio.sleep(self._pace)
            for step in steps.event(frame):
                await _take(step, send)
        for step in steps.end():
            await _take(step, send)
        await send({"type": "http.response.body", "body": b""})


async def _take(step: Any, send: Send) -> None:
    if isinstance(step, Cut):
        raise BrokenOff("the stream was cut on purpose")
    if isinstance(step, Pause):
        await anyio.sleep(step.seconds)
    else:
        await send({"type": "http.response.body", "body": step, "more_body": True})


def _frame(event: dict[str, Any] | bytes, ids: dict[tuple[str, str], str]) -> bytes:
    if isinstance(event, dict):
        return b"data: " + encode(mapped(event, ids)) + b"\n\n"
    return b"".join(b"data: " + line + b"\n" for line in event.split(b"\n")) + b"\n"


def _runs(source: Source) -> list[RecordedRun]:
    if isinstance(source, bytes):
        return read_runs(source)
    if isinstance(source, str | PathLike):
        return read_runs(Path(source).read_bytes())
    read = getattr(source, "read", None)
    if read is not None:
        content = read()
        if not isinstance(content, bytes):
            raise TypeError("a recording is read from a file that is open in binary mode")
        return read_runs(content)
    assert isinstance(source, Iterable)
    runs = []
    for events in source:
        if isinstance(events, Mapping | bytes | str):
            raise TypeError("give a list of runs, each a list of events")
        runs.append(RecordedRun(events=[(None, plain_event(event)) for event in events]))
    return runs


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def _refusal(
    status: int,
    message: str,
    *,
    rule: str | None = None,
    path: str | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    error = {"message": message, "rule": rule, "path": path}
    content = {"error": {name: value for name, value in error.items() if value is not None}}
    return JSONResponse(content, status, headers)
