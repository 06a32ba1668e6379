"""Whatever a connection does, a run is never taken for more than what arrived of it.

Each fault ends the iteration in bounded time, by an error unless the terminal event had come,
and keeps what came before it.
"""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest

from aguia import (
    AguiaError,
    ConnectionFailed,
    DecodeError,
    HttpAgent,
    InputRejected,
    RunTimeout,
    TransportError,
    TruncatedRun,
)
from aguia.client import PROTOBUF, SSE, Timeouts
from aguia.codec.json import convert_event
from support_events import FINISHED, STARTED, event, frame
from support_faults import (
    CLOSED_HEAD,
    HEAD,
    Drip,
    Forever,
    Plan,
    Reset,
    Silence,
    Wait,
    chunked,
    faulty,
    head,
    moved,
    refusal,
)
from support_wire import Pieces, Script

pytestmark = pytest.mark.anyio

EVENTS: Final = [
    STARTED,
    event("TOOL_CALL_START", toolCallId="call", toolCallName="find"),
    event("TOOL_CALL_ARGS", toolCallId="call", delta='{"q": "\n\n"}'),
    event("TOOL_CALL_END", toolCallId="call"),
    event("TOOL_CALL_RESULT", toolCallId="call", messageId="found", content="1 of 1"),
    event("STATE_SNAPSHOT", snapshot={"a": [1, {"b": None}], "é": "data: {}"}),
    event("TEXT_MESSAGE_START", messageId="m", role="assistant"),
    event("TEXT_MESSAGE_CONTENT", messageId="m", delta="Olá, "),
    event("TEXT_MESSAGE_CONTENT", messageId="m", delta="águia 🦅"),
    event("TEXT_MESSAGE_END", messageId="m"),
    FINISHED,
]
TYPES: Final = [each["type"] for each in EVENTS]
ALL: Final = len(TYPES)
SPOKEN: Final = TYPES.index("TEXT_MESSAGE_CONTENT")
SOME: Final = SPOKEN + 1
STATED: Final = TYPES.index("STATE_SNAPSHOT")

FRAMES: Final = [frame(each) for each in EVENTS]
BODY: Final = b"".join(FRAMES)
QUICK: Final = Timeouts(connect=5, idle=0.3, total=5)


def ends(frames: list[bytes], spare: int = 0) -> list[int]:
    """Where in their body each of the frames is complete, but for `spare` bytes."""
    return [sum(map(len, frames[: number + 1])) - spare for number in range(len(frames))]


SSE_ENDS: Final = ends(FRAMES, 2)  # the data are there, and only the empty line is missing


@dataclass
class Outcome:
    """What became of a run."""

    types: list[str]
    failure: AguiaError | None
    finished: bool


async def attempt(agent: HttpAgent) -> Outcome:
    """Run once; asserts that it doesn't hang, and that what came is kept."""
    types: list[str] = []
    failure: AguiaError | None = None
    stream = agent.run("Hi", run_id="r")
    async with asyncio.timeout(10):
        try:
            async for each in stream:
                types.append(each.type)
        except AguiaError as error:
            failure = error
    assert types == TYPES[: len(types)]
    assert [message.role for message in agent.messages][:1] in ([], ["user"])
    spoken = "".join(["", "Olá, ", "águia 🦅"][: max(0, len(types) - SPOKEN + 1)])
    said = agent.messages[-1].content if len(types) > SPOKEN else ""
    assert said == spoken
    assert bool(agent.state) == (len(types) > STATED)
    finished = agent.outcome is not None
    # Success is told where the terminal event has come, and nowhere else.
    assert finished == (len(types) == len(TYPES)) == (failure is None)
    accepted = len(agent.messages) > 0
    assert stream.result.outcome == (
        "success"
        if failure is None
        else "truncated"
        if accepted and not isinstance(failure, DecodeError)
        else "failed"
    )
    assert stream.result.error is failure
    return Outcome(types, failure, finished)


# Cut at every byte


def _packed() -> bytes:
    # Blocks of their own, as a server makes them that sends each event at once.
    packer = zlib.compressobj(wbits=31)
    pieces = [packer.compress(each) + packer.flush(zlib.Z_SYNC_FLUSH) for each in FRAMES]
    return b"".join(pieces) + packer.flush()


def _unpacked(data: bytes) -> int:
    return len(zlib.decompressobj(wbits=31).decompress(data))


def _binary() -> list[bytes]:
    from aguia.codec import protobuf

    return [protobuf.encode_event(convert_event(each)) for each in EVENTS]


@dataclass
class Kind:
    """A way to send the events: its bytes, headers, and how many of a prefix have arrived."""

    body: bytes
    headers: dict[str, str]
    arrived: Callable[[int], int]


def kind_of(name: str) -> Kind:
    headers = {"content-type": SSE}
    if name == "sse":
        return Kind(BODY, headers, lambda cut: sum(end <= cut for end in SSE_ENDS))
    if name == "gzip":
        packed = _packed()
        return Kind(
            packed,
            {**headers, "content-encoding": "gzip"},
            lambda cut: sum(end <= _unpacked(packed[:cut]) for end in SSE_ENDS),
        )
    frames = _binary()
    places = ends(frames)
    return Kind(
        b"".join(frames), {"content-type": PROTOBUF}, lambda cut: sum(end <= cut for end in places)
    )


@pytest.mark.unmeasured
@pytest.mark.parametrize(("name", "broken"), [("sse", False), ("gzip", True), ("protobuf", True)])
async def test_a_run_cut_at_every_byte(name: str, broken: bool) -> None:
    """RUN-11: whole where the terminal event has arrived, else truncated."""
    if name == "protobuf":
        pytest.importorskip("google.protobuf")
    kind = kind_of(name)
    lost = [httpx.RemoteProtocolError("peer closed connection")] if broken else []
    accept = [SSE, PROTOBUF] if name == "protobuf" else SSE
    script = Script()
    async with httpx.AsyncClient(transport=httpx.MockTransport(script)) as client:
        for cut in range(len(kind.body) + 1):
            body = Pieces([kind.body[:cut], *lost])
            script.add(httpx.Response(200, headers=kind.headers, stream=body))
            agent = HttpAgent("http://agent.example/", client=client, thread_id="t", accept=accept)
            outcome = await attempt(agent)
            assert len(outcome.types) == kind.arrived(cut), cut
            assert outcome.failure is None or type(outcome.failure) is TruncatedRun, cut
            assert body.closed


# Over sockets


def wire(framing: str) -> tuple[bytes, bytes, Callable[[bytes], int]]:
    """Head and body on the wire, and how many events a prefix of that body holds."""
    if framing == "chunked":
        body = b"".join(chunked(each) for each in FRAMES) + b"0\r\n\r\n"
        starts = [sum(len(chunked(each)) for each in FRAMES[:n]) for n in range(len(FRAMES))]
        sizes = [len(b"%x\r\n" % len(each)) for each in FRAMES]
        places = [
            start + size + len(each) - 2
            for start, size, each in zip(starts, sizes, FRAMES, strict=True)
        ]
        return HEAD, body, lambda prefix: sum(place <= len(prefix) for place in places)
    first = CLOSED_HEAD
    if framing == "content-length":
        first = head(content_length=str(len(BODY)))
    return first, BODY, lambda prefix: sum(end <= len(prefix) for end in SSE_ENDS)


@asynccontextmanager
async def agent_at(url: str, client: httpx.AsyncClient) -> AsyncIterator[HttpAgent]:
    async with HttpAgent(url, client=client, thread_id="t", timeouts=QUICK, retries=0) as agent:
        yield agent


@pytest.mark.parametrize("fault", ["end", "reset"])
@pytest.mark.parametrize("framing", ["chunked", "content-length", "until-closed"])
async def test_a_connection_cut_around_every_event(framing: str, fault: str) -> None:
    """RUN-11, over sockets: at each event's end and around it, and in the head."""
    first, body, arrived = wire(framing)
    whole = first + body
    boundaries = {
        len(first) + at + step
        for at in range(len(body) + 1)
        if arrived(body[:at]) != arrived(body[: at - 1]) or at == 0
        for step in (-1, 0, 1)
    }
    cuts = sorted({0, 1, 9, len(whole), len(whole) - 1, *boundaries} - {len(whole) + 1})
    if fault == "reset":
        cuts = cuts[::5]
    broken: list[Any] = [Reset(0.01)] if fault == "reset" else []
    async with (
        httpx.AsyncClient() as client,
        faulty(*[[whole[:cut], *broken] for cut in cuts]) as server,
    ):
        for cut in cuts:
            async with agent_at(server.url, client) as agent:
                outcome = await attempt(agent)
            there = arrived(body[: max(0, cut - len(first))])
            if fault == "end":
                assert len(outcome.types) == there, cut
            # What a reset overtakes is lost.
            assert len(outcome.types) <= there, cut
            if cut < len(first):
                assert isinstance(outcome.failure, TransportError), cut
                assert list(agent.messages) == []
            elif outcome.failure is not None:
                assert isinstance(outcome.failure, TruncatedRun | TransportError), cut
    assert len(server.requests) == len(cuts)


GZIP: Final = head(content_encoding="gzip", connection="close")
WHOLE: Final = HEAD + chunked(BODY) + b"0\r\n\r\n"
HALF: Final = chunked(b"".join(FRAMES[:SOME]))
NO_RUN: Final = 0

FAULTS: Final[dict[str, tuple[Plan, type[AguiaError] | None, int]]] = {
    # whole runs, however they come
    "slowly": ([Wait(0.1), HEAD, Wait(0.1), chunked(BODY), Wait(0.1), b"0\r\n\r\n"], None, ALL),
    "byte by byte": ([Drip(WHOLE)], None, ALL),
    "with comments": ([HEAD, chunked(b":\n\n"), chunked(BODY), chunked(b": bye\n\n")], None, ALL),
    "packed": ([GZIP, gzip.compress(BODY)], None, ALL),
    "packed byte by byte": ([GZIP, Drip(gzip.compress(BODY))], None, ALL),
    "after a continue": ([b"HTTP/1.1 100 Continue\r\n\r\n", WHOLE], None, ALL),
    "and no end": ([HEAD, chunked(BODY), Silence()], None, ALL),
    "and a reset": ([HEAD, chunked(BODY), Reset()], None, ALL),
    "and garbage": ([HEAD, chunked(BODY), b"\x00 what?\r\n"], None, ALL),
    "and another answer": ([WHOLE, WHOLE], None, ALL),
    # broken off
    "cut": ([HEAD, HALF], TruncatedRun, SOME),
    "reset": ([HEAD, HALF, Reset()], TruncatedRun, SOME),
    "ended": ([HEAD, HALF, b"0\r\n\r\n"], TruncatedRun, SOME),
    "empty": ([HEAD, b"0\r\n\r\n"], TruncatedRun, 0),
    "nothing": ([CLOSED_HEAD], TruncatedRun, 0),
    "too little": ([head(content_length="9999"), BODY[:-9]], TruncatedRun, ALL - 1),
    "less than there is": (
        [head(content_length=str(len(b"".join(FRAMES[:SOME])))), BODY],
        *(TruncatedRun, SOME),
    ),
    "garbage": ([HEAD, HALF, b"zz\r\n"], TruncatedRun, SOME),
    "packed and cut": ([GZIP, _packed()[:-60]], TruncatedRun, ALL - 3),
    # silent
    "silent": ([Silence()], RunTimeout, NO_RUN),
    "silent in its head": ([HEAD[:20], Silence()], RunTimeout, NO_RUN),
    "silent before an event": ([HEAD, Silence()], RunTimeout, 0),
    "half open": ([HEAD, HALF, Silence()], RunTimeout, SOME),
    "in an event": ([HEAD, HALF, b"40\r\ndata: {", Silence()], RunTimeout, SOME),
    # refused, and what is no agent
    "hung up": ([], TransportError, NO_RUN),
    "reset at once": ([Reset()], TransportError, NO_RUN),
    "another protocol": ([b"220 mail.example ESMTP\r\n"], TransportError, NO_RUN),
    "noise": ([b"\x00\xff" * 400], TransportError, NO_RUN),
    "endless head": ([b"HTTP/1.1 200 OK\r\n", Forever(b"x: y\r\n" * 999, 0)], AguiaError, NO_RUN),
    "refused": ([refusal("400 No", b"no")], InputRejected, NO_RUN),
    "refused slowly": ([head("400 No", content_length="99"), Silence()], InputRejected, NO_RUN),
    "refused and reset": (
        [head("403 No", content_length="99"), b"no", Reset()],
        *(InputRejected, NO_RUN),
    ),
    "broken": ([refusal("500 Oh No")], InputRejected, NO_RUN),
    "busy": ([refusal("503 Busy")], InputRejected, NO_RUN),
    "a page": ([head(content_type="text/html"), b"<html>"], DecodeError, NO_RUN),
    "moved in a circle": ([moved("307 Moved", "/")], InputRejected, NO_RUN),
    "moved to a page": ([moved("302 Found", "/login")], InputRejected, NO_RUN),
    "moved to nobody": ([moved("308 Moved", "http://127.0.0.1:1/")], ConnectionFailed, NO_RUN),
    "moved to no place": ([moved("307 Moved", "http://x:y:z/")], TransportError, NO_RUN),
    # no events
    "not packed": ([GZIP, BODY], DecodeError, 0),
    "no JSON": ([HEAD, HALF, chunked(b"data: {oh no\n\n")], DecodeError, SOME),
    "no UTF-8": ([HEAD, HALF, chunked(b'data: {"type": "\xff"}\n\n')], DecodeError, SOME),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_each_fault_has_its_error_and_none_hangs(name: str) -> None:
    """RUN-11, HTTP-2, HTTP-4."""
    plan, error, events = FAULTS[name]
    async with (
        httpx.AsyncClient() as client,
        faulty(plan) as server,
        agent_at(server.url, client) as agent,
    ):
        outcome = await attempt(agent)
        assert len(outcome.types) == events
        if error is None:
            assert outcome.finished
        else:
            assert isinstance(outcome.failure, error), outcome.failure
            assert isinstance(outcome.failure, RunTimeout) == (error is RunTimeout)
            assert len(str(outcome.failure)) < 600


async def test_an_agent_goes_on_after_any_fault() -> None:
    """What broke is not in the way of the next run on the same thread and client."""
    broken = [plan for plan, error, _ in FAULTS.values() if error in (TruncatedRun, TransportError)]
    async with (
        httpx.AsyncClient() as client,
        faulty(*broken, [WHOLE]) as server,
        agent_at(server.url, client) as agent,
    ):
        for number in range(len(broken)):
            with pytest.raises((TruncatedRun, TransportError)):
                [each async for each in agent.run(None, run_id=f"broken-{number}")]
        assert [each.type async for each in agent.run(None, run_id="r")] == TYPES
        assert agent.outcome is not None
