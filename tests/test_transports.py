"""How a run input reaches an agent over HTTP, and everything that can go wrong on the way."""

import asyncio
import gzip
import json
import logging
import socket
import time
import traceback
import zlib
from collections.abc import Callable
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
from aguia.client import HttpTransport, Timeouts
from aguia.protocol.events import Event
from aguia.server import AgentApp, Run
from support_events import FINISHED, STARTED, frame
from support_wire import (
    HEAD,
    SSE,
    Pieces,
    RawRequest,
    Script,
    chunked,
    raw_server,
    reply,
    scripted,
    whole_run,
)

pytestmark = pytest.mark.anyio

HELLO: Final = [
    {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Olá, "},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "águia"},
    {"type": "TEXT_MESSAGE_END", "messageId": "m"},
]
IDLE: Final = 0.3
QUICK: Final = Timeouts(connect=5, idle=IDLE)


async def collect(agent: HttpAgent, content: Any = "Hi", **options: Any) -> list[Event]:
    """Every event of a run."""
    return [event async for event in agent.run(content, **options)]


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


# The request


async def test_the_request_is_a_post_of_json_that_accepts_events() -> None:
    """HTTP-1: the method, the body and its type, and what is accepted."""
    script = Script(reply())
    async with scripted(script, "http://agent.example/run?team=a") as agent:
        await collect(agent, "Olá")
    (request,) = script.requests
    assert request.method == "POST"
    assert str(request.url) == "http://agent.example/run?team=a"
    assert request.headers.get_list("content-type") == ["application/json"]
    assert request.headers.get_list("accept") == ["text/event-stream"]
    sent = json.loads(request.content.decode("utf-8"))
    assert sent["messages"][0]["content"] == "Olá"


async def test_headers_are_sent_with_every_request() -> None:
    script = Script(reply(), reply())
    async with scripted(script, headers={"Authorization": "Bearer t", "X-Team": "a"}) as agent:
        await collect(agent)
        await collect(agent)
    for request in script.requests:
        assert request.headers["authorization"] == "Bearer t"
        assert request.headers["x-team"] == "a"


async def test_a_header_of_the_callers_takes_the_place_of_ours() -> None:
    """However it is written, and never as a second header beside ours."""
    script = Script(reply())
    async with scripted(script, headers={"accept": "*/*", "CONTENT-TYPE": "text/json"}) as agent:
        await collect(agent)
    (request,) = script.requests
    assert request.headers.get_list("accept") == ["*/*"]
    assert request.headers.get_list("content-type") == ["text/json"]


@pytest.mark.parametrize("value", ["s3cret\n", " s3cret", "s3cret\x00", "s3crét", "a\r\nX: s3cret"])
def test_a_header_that_cannot_be_sent_is_refused_at_once_and_not_shown(value: str) -> None:
    with pytest.raises(ValueError, match="'Authorization'") as caught:
        HttpAgent("http://agent.example/", headers={"Authorization": value})
    assert "s3" not in str(caught.value)


def test_a_name_that_is_no_headers_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="'X Team'"):
        HttpTransport("http://agent.example/", headers={"X Team": "a"})


async def test_name_and_password_of_the_url_travel_as_a_header() -> None:
    script = Script(reply())
    async with scripted(script, "http://me:p%40ss@agent.example/run") as agent:
        await collect(agent)
    (request,) = script.requests
    assert request.headers["authorization"] == httpx.BasicAuth("me", "p@ss")._auth_header
    assert str(request.url) == "http://agent.example/run"
    assert request.headers["host"] == "agent.example"


@pytest.mark.parametrize("of_client", [False, True])
async def test_an_explicit_header_is_not_replaced_by_what_the_url_holds(of_client: bool) -> None:
    script = Script(reply())
    given = {"authorization": "Bearer t"}
    async with (
        httpx.AsyncClient(
            transport=httpx.MockTransport(script), headers=given if of_client else None
        ) as client,
        HttpAgent(
            "http://me:pass@agent.example/run", client=client, headers={} if of_client else given
        ) as agent,
    ):
        await collect(agent)
    (request,) = script.requests
    assert request.headers.get_list("authorization") == ["Bearer t"]
    assert str(request.url) == "http://agent.example/run"


async def test_the_callers_client_brings_its_own_headers_and_authentication() -> None:
    script = Script(reply())
    async with (
        httpx.AsyncClient(
            transport=httpx.MockTransport(script),
            headers={"X-Team": "a"},
            auth=("me", "pass"),
            base_url="http://agent.example/v1",
        ) as client,
        HttpAgent("run", client=client) as agent,
    ):
        await collect(agent)
    (request,) = script.requests
    assert str(request.url) == "http://agent.example/v1/run"
    assert request.headers["x-team"] == "a"
    assert request.headers["authorization"].startswith("Basic ")


async def test_the_time_outs_hold_for_the_callers_client_as_well() -> None:
    script = Script(reply(), reply())
    async with scripted(script, timeouts=Timeouts(connect=3, idle=None)) as agent:
        await collect(agent)
    async with scripted(script) as agent:
        await collect(agent)
    assert [request.extensions["timeout"] for request in script.requests] == [
        {"connect": 3, "read": None, "write": None, "pool": 3},
        {"connect": 10.0, "read": 120.0, "write": 120.0, "pool": 10.0},
    ]


async def test_a_client_of_the_callers_stays_open_and_our_own_is_closed() -> None:
    script = Script(reply(), reply())
    async with httpx.AsyncClient(transport=httpx.MockTransport(script)) as client:
        async with HttpAgent("http://agent.example/", client=client) as agent:
            await collect(agent)
        assert not client.is_closed
        await collect(HttpAgent("http://agent.example/", client=client))

    async def answer(request: RawRequest) -> None:
        await request.write(HEAD + chunked(frame({"type": "RUN_STARTED", **request.run})))
        await request.write(chunked(frame({"type": "RUN_FINISHED", **request.run})))
        await request.write(b"0\r\n\r\n")
        await request.gone()
        left.set()

    left = asyncio.Event()
    async with raw_server(answer) as server:
        async with HttpAgent(server.url) as agent:
            await collect(agent)
            assert not left.is_set()  # kept for the next run
        async with asyncio.timeout(5):
            await left.wait()


# An answer that is a stream


@pytest.mark.parametrize(
    "content_type",
    [
        "text/event-stream",
        "text/event-stream; charset=utf-8",
        "Text/Event-Stream;charset=UTF-8",
        " text/event-stream ",
    ],
)
async def test_a_stream_is_known_by_its_content_type(content_type: str) -> None:
    """HTTP-2: parameters and the case of the media type say nothing."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            200, headers={"content-type": content_type}, content=whole_run(request, *HELLO)
        )

    async with scripted(Script(answer)) as agent:
        await collect(agent)
        assert agent.messages[-1].content == "Olá, águia"


@pytest.mark.parametrize("status", [201, 202])
async def test_any_success_with_a_stream_is_one(status: int) -> None:
    """HTTP-4: only an error status rejects the input."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers=SSE, content=whole_run(request))

    async with scripted(Script(answer)) as agent:
        assert types(await collect(agent)) == ["RUN_STARTED", "RUN_FINISHED"]


@pytest.mark.parametrize(
    ("status", "headers", "body", "said"),
    [
        (200, {"content-type": "text/html; charset=utf-8"}, b"<html>Hi</html>", "text/html"),
        (200, {"content-type": "application/json"}, b"{}", "application/json"),
        (200, {"content-type": "text/event-streams"}, b"", "text/event-streams"),
        (200, {}, b"", "nothing"),
        (204, {}, b"", "nothing"),
        (200, {"content-type": "x" * 5000}, b"", "xxx…"),
    ],
)
async def test_what_is_no_stream_of_events_is_no_agent(
    status: int, headers: dict[str, str], body: bytes, said: str
) -> None:
    """HTTP-2: another content type is a decode error that names it, and nothing is read."""
    script = Script(httpx.Response(status, headers=headers, content=body), reply())
    async with scripted(script) as agent:
        with pytest.raises(DecodeError, match="no AG-UI agent") as caught:
            await collect(agent)
        assert caught.value.rule == "HTTP-2"
        assert said in str(caught.value)
        assert len(str(caught.value)) < 600
        assert list(agent.messages) == []
        await collect(agent)


async def test_a_compressed_body_is_read_as_it_arrives() -> None:
    packer = zlib.compressobj(wbits=31)
    head = frame(STARTED, *HELLO[:2])
    first = packer.compress(head) + packer.flush(zlib.Z_SYNC_FLUSH)
    rest = packer.compress(frame(*HELLO[2:], FINISHED)) + packer.flush()
    more = asyncio.Event()
    pieces = [first[at : at + 7] for at in range(0, len(first), 7)]
    body = Pieces([*pieces, more.wait(), *[rest[at : at + 1] for at in range(len(rest))]])
    answer = httpx.Response(200, headers={**SSE, "content-encoding": "gzip"}, stream=body)
    async with scripted(Script(answer), thread_id="t") as agent:
        events = []
        async for event in agent.run("Hi", run_id="r"):
            events.append(event)
            if len(events) == 3:
                more.set()
        assert more.is_set()
        assert types(events) == types_of(STARTED, *HELLO, FINISHED)
        assert agent.messages[-1].content == "Olá, águia"


def types_of(*events: dict[str, Any]) -> list[str]:
    return [event["type"] for event in events]


async def test_a_compressed_body_that_is_cut_is_a_truncated_run() -> None:
    """RUN-11."""
    packed = gzip.compress(frame(STARTED, *HELLO, FINISHED) * 3, mtime=0)
    answer = httpx.Response(
        200, headers={**SSE, "content-encoding": "gzip"}, stream=Pieces([packed[:40]])
    )
    async with scripted(Script(answer)) as agent:
        with pytest.raises(TruncatedRun):
            await collect(agent)


async def test_a_body_that_is_not_packed_as_it_says_is_a_decode_error() -> None:
    """HTTP-2: the bytes map to no event; that is not a lost connection."""
    answer = httpx.Response(
        200, headers={**SSE, "content-encoding": "gzip"}, stream=Pieces([frame(STARTED, FINISHED)])
    )
    async with scripted(Script(answer, reply())) as agent:
        with pytest.raises(DecodeError, match="content-encoding") as caught:
            await collect(agent)
        assert caught.value.rule == "HTTP-2"
        await collect(agent)


async def test_an_agent_app_answers_in_process() -> None:
    """The same client over ASGI, as far as `httpx.ASGITransport` streams."""

    async def agent_function(run: Run) -> None:
        async with run.text() as text:
            await text.write(f"{len(run.messages)} messages")

    transport = httpx.ASGITransport(AgentApp(agent_function, max_body_bytes=2000))
    async with (
        httpx.AsyncClient(transport=transport) as client,
        HttpAgent("http://agent.example/", client=client) as agent,
    ):
        await collect(agent)
        await collect(agent)
        assert [message.content for message in agent.messages] == [
            *("Hi", "1 messages", "Hi", "3 messages")
        ]
        with pytest.raises(InputRejected, match="larger than 2000 bytes") as caught:
            await collect(agent, "x" * 2000)
        assert caught.value.status == 413
        assert len(agent.messages) == 4


# The end of a body

RECORDED: Final = frame(
    STARTED,
    *HELLO[:2],
    {"type": "STATE_SNAPSHOT", "snapshot": {"a": [1, {"b": None}], "é": "\n\n}"}},
    *HELLO[2:],
    FINISHED,
)
FRAMES: Final = [part.removeprefix(b"data: ") for part in RECORDED.split(b"\n\n") if part]
ENDS: Final = [RECORDED.index(part) + len(part) for part in FRAMES]
"""Where the data of each event is complete."""


def _dirty() -> Exception:
    return httpx.RemoteProtocolError("peer closed connection without sending complete message body")


@pytest.mark.unmeasured
@pytest.mark.parametrize("broken", [False, True], ids=["ended", "broken"])
async def test_a_body_cut_at_any_byte_is_whole_or_truncated(broken: bool) -> None:
    """RUN-11: never anything else, and what arrived is kept.

    A connection that breaks after the last event's data has told everything: that run has ended.
    """
    for cut in range(len(RECORDED) + 1):
        body = Pieces([RECORDED[:cut], *([_dirty()] if broken else [])])
        answer = httpx.Response(200, headers=SSE, stream=body)
        seen: list[Event] = []
        failure: AguiaError | None = None
        async with scripted(Script(answer), thread_id="t") as agent:
            try:
                async for event in agent.run("Hi", run_id="r"):
                    seen.append(event)
            except TruncatedRun as error:
                failure = error
            arrived = sum(end <= cut for end in ENDS)
            assert len(seen) == arrived, cut
            assert (failure is None) == (arrived == len(ENDS)), cut
            assert (agent.outcome is not None) == (failure is None), cut
            assert agent.messages[0].role == "user"
            said = "".join(["", "Olá, ", "águia"][: (arrived >= 3) + (arrived >= 5) + 1])
            assert "".join(str(message.content) for message in agent.messages[1:]) == said, cut
            assert bool(agent.state) == (arrived >= 4), cut
            assert body.closed


@pytest.mark.parametrize("how", ["end", "reset"])
@pytest.mark.parametrize("length", [None, 100_000], ids=["chunked", "content-length"])
async def test_a_connection_that_breaks_in_the_middle_truncates(
    how: str, length: int | None
) -> None:
    """RUN-11, over a socket: by an end or a reset, before and after the terminal event."""
    head = HEAD
    if length:
        head = HEAD.replace(b"transfer-encoding: chunked", b"content-length: %d" % length)

    def wrap(data: bytes) -> bytes:
        return data if length else chunked(data)

    async def answer(request: RawRequest) -> None:
        await request.write(head + wrap(frame({"type": "RUN_STARTED", **request.run}, *HELLO[:2])))
        if len(server.requests) == 2:
            await request.write(wrap(frame(*HELLO[2:], {"type": "RUN_FINISHED", **request.run})))
        if how == "reset":
            await asyncio.sleep(0.05)  # a reset throws away what has not been read
            request.reset()

    async with raw_server(answer) as server, HttpAgent(server.url) as agent:
        with pytest.raises(TruncatedRun, match="broke before the run ended") as caught:
            await collect(agent)
        assert server.url in str(caught.value)
        assert agent.messages[-1].content == "Olá, "
        assert agent.outcome is None

        await collect(agent, "Again")
        assert agent.messages[1].content == "Olá, Olá, águia"
        assert agent.outcome is not None


async def test_a_clean_end_before_any_event_is_a_truncated_run() -> None:
    """RUN-11: also the empty answer; 200 alone is no success (HTTP-4)."""
    empty = httpx.Response(200, headers=SSE, content=b"")
    idle = httpx.Response(200, headers=SSE, content=b": keep-alive\n\n")
    async with scripted(Script(empty, idle, reply())) as agent:
        for _ in range(2):
            with pytest.raises(TruncatedRun, match="before any event"):
                await collect(agent, None)
            assert agent.outcome is None
        await collect(agent)


# Silence


async def test_an_agent_that_falls_silent_times_out() -> None:
    """What had arrived stays; the error says how long nothing came, and from where."""

    async def answer(request: RawRequest) -> None:
        await request.write(
            HEAD + chunked(frame({"type": "RUN_STARTED", **request.run}, *HELLO[:2]))
        )
        await request.gone()
        left.set()

    left = asyncio.Event()
    async with raw_server(answer) as server, HttpAgent(server.url, timeouts=QUICK) as agent:
        with pytest.raises(RunTimeout, match="0.3 seconds") as caught:
            await collect(agent)
        assert server.url in str(caught.value)
        assert isinstance(caught.value, TransportError)
        assert agent.messages[-1].content == "Olá, "
        assert agent.outcome is None
        async with asyncio.timeout(5):
            await left.wait()


async def test_an_agent_that_never_answers_times_out() -> None:
    async with (
        raw_server(RawRequest.gone) as server,
        HttpAgent(server.url, timeouts=QUICK) as agent,
    ):
        with pytest.raises(RunTimeout, match="did not answer within 0.3 seconds"):
            await collect(agent)
        assert list(agent.messages) == []


async def test_comments_are_signs_of_life() -> None:
    """HTTP-3: a comment is passed over, and shows that the agent is still there."""

    async def answer(request: RawRequest) -> None:
        await request.write(HEAD + chunked(frame({"type": "RUN_STARTED", **request.run})))
        for _ in range(6):
            await asyncio.sleep(IDLE / 3)
            await request.write(chunked(b": keep-alive\n\n"))
        await request.write(chunked(frame({"type": "RUN_FINISHED", **request.run})))
        await request.write(b"0\r\n\r\n")

    async with raw_server(answer) as server, HttpAgent(server.url, timeouts=QUICK) as agent:
        assert types(await collect(agent)) == ["RUN_STARTED", "RUN_FINISHED"]


async def test_a_slow_reader_is_no_silent_agent() -> None:
    """The clock runs only while the client waits for bytes."""

    async def answer(request: RawRequest) -> None:
        await request.write(HEAD + chunked(frame({"type": "RUN_STARTED", **request.run})))
        await request.write(chunked(frame({"type": "RUN_FINISHED", **request.run})))
        await request.write(b"0\r\n\r\n")

    async with raw_server(answer) as server, HttpAgent(server.url, timeouts=QUICK) as agent:
        async for _ in agent.run("Hi"):
            await asyncio.sleep(IDLE + 0.1)
        assert agent.outcome is not None


async def test_silence_after_the_end_of_the_run_is_no_failure() -> None:
    """RUN-11: a run with its terminal event has ended, though the body was left open."""

    async def answer(request: RawRequest) -> None:
        await request.write(HEAD + chunked(frame({"type": "RUN_STARTED", **request.run})))
        await request.write(chunked(frame({"type": "RUN_FINISHED", **request.run})))
        await request.gone()

    async with raw_server(answer) as server, HttpAgent(server.url, timeouts=QUICK) as agent:
        assert types(await collect(agent)) == ["RUN_STARTED", "RUN_FINISHED"]
        assert agent.outcome is not None
        await collect(agent)


# No connection


async def test_a_refused_connection(free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}/run"
    async with HttpAgent(url, retries=0) as agent:
        with pytest.raises(ConnectionFailed, match="no connection to") as caught:
            await collect(agent)
        assert url in str(caught.value)
        assert isinstance(caught.value.__cause__, httpx.ConnectError)
        assert list(agent.messages) == []


async def test_a_host_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    async with HttpAgent("http://nowhere.example/", retries=0) as agent:
        with pytest.raises(ConnectionFailed, match="nowhere.example.*Name or service not known"):
            await collect(agent)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("127.0.0.1:8000/", "'127.0.0.1:8000/' is no URL"),
        ("localhost:8000", "'localhost:8000' is no URL"),
        ("/run", "'/run' is no URL"),
        ("", "'' is no URL"),
        ("ftp://agent.example/", "'ftp://agent.example/' is no URL"),
        ("http:///run", "is no URL"),
        ("http://", "is no URL"),
        ("http://agent.example:x/", "'http://agent.example:x/' is no URL of an agent: Invalid"),
        ("http://agent.example:65536/", "is no URL"),
        ("http://[::1/", "is no URL"),
        ("http://agent.example/\n", "is no URL"),
    ],
)
async def test_a_url_that_is_none(url: str, shown: str) -> None:
    async with HttpAgent(url) as agent:
        with pytest.raises(ConnectionFailed) as caught:
            await collect(agent)
        assert shown in str(caught.value)
        assert "expected one like http://127.0.0.1:8000/" in str(caught.value)


@pytest.mark.parametrize(
    ("raised", "expected", "said"),
    [
        (httpx.ConnectTimeout(""), ConnectionFailed, "within 10.0 seconds"),
        (httpx.PoolTimeout(""), ConnectionFailed, "within 10.0 seconds"),
        (httpx.ConnectError(""), ConnectionFailed, "ConnectError"),
        (httpx.ProxyError("407 Who are you"), ConnectionFailed, "407 Who are you"),
        (httpx.ReadTimeout(""), RunTimeout, "within 120.0 seconds"),
        (httpx.WriteTimeout(""), RunTimeout, "within 120.0 seconds"),
        (httpx.ReadError(""), TransportError, "ReadError"),
        (httpx.RemoteProtocolError("x" * 5000), TransportError, "xxx…"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_each_failure_to_send_has_its_own_error(
    raised: Exception, expected: type[AguiaError], said: str
) -> None:
    async with scripted(Script(raised, reply())) as agent:
        with pytest.raises(TransportError) as caught:
            await collect(agent)
        assert type(caught.value) is expected
        assert said in str(caught.value)
        assert len(str(caught.value)) < 600
        assert list(agent.messages) == []
        await collect(agent)
        assert len(agent.messages) == 1


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"", id="hang up"),
        pytest.param(b"ssh 2.0-OpenSSH_9.6\r\n", id="another protocol"),
        pytest.param(b"\x00\xff" * 400, id="noise"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-t", id="half a head"),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, id="endless head"),
    ],
)
async def test_a_server_that_speaks_no_http(garbage: bytes) -> None:
    async def answer(request: RawRequest) -> None:
        await request.write(garbage)

    async with raw_server(answer) as server, HttpAgent(server.url) as agent:
        with pytest.raises(TransportError, match="broke") as caught:
            await collect(agent)
        assert not isinstance(caught.value, ConnectionFailed | RunTimeout)
        assert len(str(caught.value)) < 600
        assert list(agent.messages) == []


@pytest.mark.parametrize(
    "garbage", [b"zz\r\n", b"\x00", b"ffffffffffffffffffffffffff\r\n"], ids=["chunk", "nul", "size"]
)
async def test_a_body_that_is_no_http_truncates(garbage: bytes) -> None:
    """RUN-11."""

    async def answer(request: RawRequest) -> None:
        await request.write(HEAD + chunked(frame({"type": "RUN_STARTED", **request.run})) + garbage)

    async with raw_server(answer) as server, HttpAgent(server.url) as agent:
        with pytest.raises(TruncatedRun):
            await collect(agent)


# Rejected input


def _json(status: int, value: Any) -> httpx.Response:
    return httpx.Response(status, json=value)


@pytest.mark.parametrize(
    ("answer", "message", "rule", "path"),
    [
        (
            _json(400, {"error": {"message": "no", "rule": "PROC-12", "path": "/messages/0"}}),
            *("no", "PROC-12", "/messages/0"),
        ),
        (_json(400, {"error": {"message": "no", "rule": 7, "path": None}}), "no", None, None),
        (_json(401, {"error": "who are you?"}), "who are you?", None, None),
        (_json(403, {"message": "not you"}), "not you", None, None),
        (_json(401, {"detail": "Not authenticated"}), "Not authenticated", None, None),
        (
            _json(
                422,
                {"detail": [{"type": "m", "loc": ["body", "messages", 0, "a/b"], "msg": "Wanted"}]},
            ),
            *("Wanted", None, "/messages/0/a~1b"),
        ),
        (_json(422, [{"loc": ["threadId"], "msg": "Wanted"}]), "Wanted", None, "/threadId"),
        (_json(422, {"detail": [{"msg": "Wanted", "loc": "body"}]}), "Wanted", None, None),
        (_json(422, {"detail": []}), '{"detail":[]}', None, None),
        (_json(422, {"detail": [3]}), '{"detail":[3]}', None, None),
        (_json(400, "just so"), "just so", None, None),
        (_json(400, 17), "17", None, None),
        (_json(400, {"error": {"code": 1}}), '{"error":{"code":1}}', None, None),
        (httpx.Response(404, text="Not Found"), "Not Found", None, None),
        (httpx.Response(405, text=""), "Method Not Allowed", None, None),
        (httpx.Response(502, html="<html><h1>x</h1></html>"), "Bad Gateway", None, None),
        (httpx.Response(500, content=b"\xff\xfe"), "\ufffd\ufffd", None, None),
        (httpx.Response(599), "no explanation", None, None),
        (httpx.Response(400, content=b"[" * 60_000), "[" * 300 + "…", None, None),
        (_json(400, {"message": "x" * 9000}), "x" * 300 + "…", None, None),
        (
            httpx.Response(500, headers={"content-encoding": "gzip"}, stream=Pieces([b"no gzip"])),
            *("Internal Server Error", None, None),
        ),
        (
            httpx.Response(500, stream=Pieces([b"It bro", httpx.ReadError("")])),
            *("It bro", None, None),
        ),
        (httpx.Response(304), "Not Modified", None, None),
    ],
)
async def test_a_refusal_says_what_the_agent_said(
    answer: httpx.Response, message: str, rule: str | None, path: str | None
) -> None:
    """HTTP-4: an error status is rejected input, whatever the body looks like."""
    async with scripted(Script(answer)) as agent:
        with pytest.raises(InputRejected) as caught:
            await collect(agent)
    error = caught.value
    assert error.status == answer.status_code
    assert (error.message, error.rule, error.path) == (message, rule, path)
    assert str(error).startswith(f"{answer.status_code}: ")
    assert answer.is_closed


async def test_of_an_endless_refusal_only_the_beginning_is_read() -> None:
    async def answer(request: RawRequest) -> None:
        await request.write(HEAD.replace(b"200 OK", b"500 Oh No") + chunked(b"It broke. "))
        try:
            while True:
                await request.write(chunked(b"x" * 10_000))
                written.append(10_000)
        finally:
            left.set()

    written: list[int] = []
    left = asyncio.Event()
    async with raw_server(answer) as server, HttpAgent(server.url) as agent:
        with pytest.raises(InputRejected, match="It broke. xxx") as caught:
            await collect(agent)
        assert caught.value.status == 500
        assert len(caught.value.message) <= 301
        async with asyncio.timeout(5):
            await left.wait()


async def test_a_refusal_that_drips_does_not_hold_up() -> None:
    async def answer(request: RawRequest) -> None:
        await request.write(HEAD.replace(b"200 OK", b"503 Wait") + chunked(b"Later"))
        while True:
            await asyncio.sleep(0.03)
            await request.write(chunked(b"."))

    async with (
        raw_server(answer) as server,
        HttpAgent(server.url, timeouts=QUICK, retries=0) as agent,
    ):
        started = time.monotonic()
        with pytest.raises(InputRejected, match="503: Later"):
            await collect(agent)
        assert time.monotonic() - started < 5


# An agent that has moved


def moved(status: int, location: str) -> httpx.Response:
    return httpx.Response(status, headers={"location": location})


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("location", ["/v2?x=1", "http://agent.example/v2?x=1", "v2?x=1"])
async def test_a_moved_agent_is_followed_with_the_whole_request(status: int, location: str) -> None:
    script = Script(moved(status, location), reply(*HELLO))
    headers = {"Authorization": "Bearer t", "X-Key": "k", "Cookie": "id=1; b=2"}
    async with scripted(script, headers=headers) as agent:
        await collect(agent)
        assert agent.messages[-1].content == "Olá, águia"
    first, second = script.requests
    assert second.method == "POST"
    assert str(second.url) == "http://agent.example/v2?x=1"
    assert second.content == first.content
    for name in ("content-type", "accept", "authorization", "x-key", "cookie"):
        assert second.headers[name] == first.headers[name]
    assert second.extensions["timeout"] == first.extensions["timeout"]


@pytest.mark.parametrize("how", ["headers", "client", "jar"])
async def test_cookies_go_along_as_they_were_given(how: str) -> None:
    """A header as it is; what is in the client's jar as the agent has changed it."""
    answer = httpx.Response(307, headers={"location": "/v2", "set-cookie": "id=2; Path=/"})
    script = Script(answer, reply())
    async with (
        httpx.AsyncClient(
            transport=httpx.MockTransport(script),
            headers={"Cookie": "id=1"} if how == "client" else None,
        ) as client,
        HttpAgent(
            "http://agent.example/run",
            client=client,
            headers={"cookie": "id=1"} if how == "headers" else None,
        ) as agent,
    ):
        if how == "jar":
            client.cookies.set("id", "1", domain="agent.example")
        await collect(agent)
    sent = [request.headers.get_list("cookie") for request in script.requests]
    assert sent == [["id=1"], ["id=2" if how == "jar" else "id=1"]]


async def test_a_cookie_does_not_come_back_once_it_was_left_out() -> None:
    """Of the agent's own origin again, on the way by another's."""
    there = moved(307, "http://other.example/")
    script = Script(there, moved(307, "/more"), moved(307, "http://agent.example/run"), reply())
    async with scripted(script, headers={"Cookie": "id=1"}) as agent:
        await collect(agent)
    assert ["cookie" in request.headers for request in script.requests] == [True, *[False] * 3]


async def test_a_moved_agent_is_followed_over_a_socket() -> None:
    async def answer(request: RawRequest) -> None:
        if request.path == "/":
            await request.write(
                b"HTTP/1.1 307 Moved\r\nlocation: /there/\r\ncontent-length: 0\r\n"
                b"connection: close\r\n\r\n"
            )
            return
        run = request.run
        await request.write(HEAD + chunked(frame({"type": "RUN_STARTED", **run})))
        await request.write(chunked(frame({"type": "RUN_FINISHED", **run})) + b"0\r\n\r\n")

    async with raw_server(answer) as server, HttpAgent(server.url) as agent:
        await collect(agent)
        assert [request.path for request in server.requests] == ["/", "/there/"]
        assert server.requests[0].body == server.requests[1].body != b""


@pytest.mark.parametrize(
    "location",
    [
        "https://other.example/run",
        "http://agent.example:8080/run",
        "http://sub.agent.example/",
        "//other.example/run",
    ],
)
@pytest.mark.parametrize("how", ["header", "url", "client"])
async def test_credentials_go_to_no_other_origin(location: str, how: str) -> None:
    script = Script(moved(307, location), moved(307, "/again"), reply())
    secret = {"Authorization": "Bearer s3cret", "X-Api-Key": "s3cret", "Cookie": "id=s3cret"}
    async with (
        httpx.AsyncClient(
            transport=httpx.MockTransport(script),
            auth=("me", "s3cret") if how == "client" else None,
            headers=secret if how == "client" else None,
        ) as client,
        HttpAgent(
            f"http://{'me:s3cret@' if how == 'url' else ''}agent.example/run",
            client=client,
            headers=secret if how == "header" else None,
        ) as agent,
    ):
        await collect(agent)
    first, *others = script.requests
    assert "authorization" in first.headers
    for request in others:
        assert request.url.host != "agent.example" or request.url.port == 8080
        assert set(request.headers) <= {
            *("accept", "accept-encoding", "connection", "content-length", "content-type"),
            *("host", "user-agent"),
        }
        assert request.headers["host"] == request.url.netloc.decode()
        assert request.content == first.content


async def test_credentials_go_along_to_the_same_host_by_https() -> None:
    script = Script(moved(308, "https://agent.example/run"), reply())
    async with scripted(script, headers={"Authorization": "Bearer t"}) as agent:
        await collect(agent)
    assert script.requests[1].url.scheme == "https"
    assert script.requests[1].headers["authorization"] == "Bearer t"


async def test_a_moved_agent_is_not_followed_out_of_https() -> None:
    script = Script(moved(307, "http://agent.example/run"))
    async with scripted(script, "https://agent.example/run") as agent:
        with pytest.raises(InputRejected, match="moved to http://agent.example/run"):
            await collect(agent)
    assert len(script.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303])
@pytest.mark.parametrize("follows", [False, True])
async def test_a_redirect_that_would_lose_the_request_is_reported(
    status: int, follows: bool
) -> None:
    """HTTP-1: a run is started by POST, which these would turn into a GET."""
    script = Script(moved(status, "/login?token=s3cret"))
    async with (
        httpx.AsyncClient(
            transport=httpx.MockTransport(script), follow_redirects=follows
        ) as client,
        HttpAgent("http://agent.example/run", client=client) as agent,
    ):
        with pytest.raises(InputRejected) as caught:
            await collect(agent)
    assert len(script.requests) == 1
    assert str(caught.value) == f"{status}: it has moved to http://agent.example/login"


async def test_an_agent_that_keeps_moving_is_given_up() -> None:
    script = Script(*[moved(307, f"/{number}") for number in range(20)])
    async with scripted(script) as agent:
        with pytest.raises(InputRejected, match="307: it has moved to http://agent.example/5"):
            await collect(agent)
    assert len(script.requests) == 6


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("http://agent.example:x/", TransportError),
        ("ftp://agent.example/", InputRejected),
        ("mailto:me@agent.example", TransportError),
    ],
)
async def test_a_location_that_leads_nowhere(location: str, expected: type[AguiaError]) -> None:
    async with scripted(Script(moved(307, location))) as agent:
        with pytest.raises(expected):
            await collect(agent)


async def test_a_redirect_without_a_location_is_a_refusal() -> None:
    async with scripted(Script(httpx.Response(307))) as agent:
        with pytest.raises(InputRejected, match="307: Temporary Redirect"):
            await collect(agent)


# Secrets

SECRET: Final = "s3cret"


def _failures() -> dict[str, Callable[[], httpx.Response | Exception]]:
    return {
        "refused": lambda: httpx.ConnectError("All connection attempts failed"),
        "slow": lambda: httpx.ConnectTimeout(""),
        "silent": lambda: httpx.ReadTimeout(""),
        "broken": lambda: httpx.ReadError(""),
        "header": lambda: httpx.LocalProtocolError(f"Illegal header value b'Bearer {SECRET}\\n'"),
        "rejected": lambda: httpx.Response(400, text="no"),
        "moved": lambda: moved(302, f"https://u:{SECRET}@other.example/?k={SECRET}#{SECRET}"),
        "page": lambda: httpx.Response(200, html="<html>"),
        "cut": lambda: httpx.Response(200, headers=SSE, stream=Pieces([frame(STARTED), _dirty()])),
        "mute": lambda: httpx.Response(
            200, headers=SSE, stream=Pieces([frame(STARTED), httpx.ReadTimeout("")])
        ),
        "packed": lambda: httpx.Response(
            200, headers={**SSE, "content-encoding": "gzip"}, content=None, stream=Pieces([b"no"])
        ),
    }


@pytest.mark.parametrize("failure", _failures())
async def test_no_error_shows_a_secret(failure: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the credentials of the URL, nor its query, nor a header, in any text or log."""
    caplog.set_level(logging.DEBUG)
    url = f"http://me:{SECRET}@agent.example/run?key={SECRET}#{SECRET}"
    headers = {"Authorization": f"Bearer {SECRET}", "X-Api-Key": SECRET}
    async with scripted(Script(_failures()[failure]()), url, headers=headers) as agent:
        with pytest.raises(AguiaError) as caught:
            await collect(agent)
    text = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert SECRET not in text
    assert "no connection" not in text or "http://agent.example/run" in text
    assert SECRET not in "".join(
        record.getMessage() for record in caplog.records if record.name.startswith("aguia")
    )
    # The HTTP client logs the URLs of its requests, and what it is given holds no password.
    assert f"me:{SECRET}" not in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        f"http://me:{SECRET}@agent.example:x/",
        f"http://me:{SECRET}/#x@agent.example/",
        f"http://me:{SECRET}?x@agent.example/",
        f"ftp://me:{SECRET}@agent.example/?{SECRET}",
        f"http://agent.example:x/?key={SECRET}",
        f"me:{SECRET}@agent.example",
        f"/run?key={SECRET}#{SECRET}",
        f"http://me:{SECRET}@agent.example:99999/",
    ],
)
async def test_a_url_that_is_none_shows_no_secret(url: str) -> None:
    async with HttpAgent(url) as agent:
        with pytest.raises(ConnectionFailed) as caught:
            await collect(agent)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


async def test_a_bad_header_of_the_callers_client_is_not_shown() -> None:
    """The HTTP library quotes a header that it refuses to write."""
    async with (
        raw_server(RawRequest.gone) as server,
        httpx.AsyncClient(headers={"Authorization": f"Bearer {SECRET}\n"}) as client,
        HttpAgent(server.url, client=client) as agent,
    ):
        with pytest.raises(TransportError, match="headers is not valid") as caught:
            await collect(agent)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("status", [200, 400])
async def test_codings_on_top_of_each_other_are_refused_unread(status: int) -> None:
    """Each multiplies what a few bytes can become."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            status,
            headers={"content-type": "text/event-stream", "content-encoding": "gzip, gzip"},
            stream=httpx.ByteStream(b"never read"),
        )

    async with (
        httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client,
        HttpAgent("http://agent.example/", client=client) as agent,
    ):
        with pytest.raises(DecodeError, match="several content codings"):
            async for _ in agent.run("hi"):
                pass
