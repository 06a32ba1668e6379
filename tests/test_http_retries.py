"""What the HTTP transport does besides sending once: try again, wait, authenticate, declare."""

import asyncio
import json
import logging
import ssl
import sys
import time
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
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
from aguia.client import HttpTransport, Retries, Timeouts
from aguia.protocol.events import Event
from support_events import STARTED, frame
from support_faults import Drip, Forever, Reset, Silence, Wait, faulty, head, refusal
from support_wire import HEAD, SSE, Pieces, RawRequest, Script, chunked, raw_server, reply, scripted

pytestmark = pytest.mark.anyio

AT_ONCE: Final = Retries(2, first=0, most=0)
URL: Final = "http://agent.example/run"
SECRET: Final = "s3cret"


async def collect(agent: HttpAgent) -> list[Event]:
    return [event async for event in agent.run("Hi")]


def later(status: int = 503, **headers: str) -> httpx.Response:
    return httpx.Response(status, headers={k.replace("_", "-"): v for k, v in headers.items()})


# Trying again


@pytest.mark.parametrize(
    "failures",
    [
        [httpx.ConnectError("refused"), httpx.ConnectTimeout("")],
        [httpx.PoolTimeout(""), httpx.ProxyError("502 Bad Gateway")],
        [later(503), later(429)],
        [httpx.ConnectError("refused"), later(503, retry_after="0")],
    ],
    ids=["no connection", "no place", "later", "both"],
)
async def test_what_cannot_have_started_a_run_is_tried_again(
    failures: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="aguia")
    script = Script(*failures, reply())
    async with scripted(script, retries=AT_ONCE) as agent:
        await collect(agent)
        assert agent.outcome is not None
    assert len(script.requests) == 3
    assert len({request.content for request in script.requests}) == 1
    told = [record.getMessage() for record in caplog.records if "trying again" in record.message]
    assert [line.partition("trying again")[2][-9:] for line in told] == [" (1 of 2)", " (2 of 2)"]
    assert all(URL in line for line in told)


@pytest.mark.parametrize(
    "failure",
    [
        *[later(status) for status in (400, 401, 403, 404, 408, 409, 425, 500, 502, 504)],
        *[httpx.ReadError(""), httpx.WriteError(""), httpx.RemoteProtocolError("hung up")],
        *[httpx.ReadTimeout(""), httpx.WriteTimeout(""), httpx.UnsupportedProtocol("no such")],
        httpx.Response(200, headers=SSE, stream=Pieces([])),
        httpx.Response(200, headers=SSE, stream=Pieces([b": hi\n\n", httpx.ReadError("")])),
        httpx.Response(200, html="<html>"),
    ],
    ids=lambda value: getattr(value, "status_code", None) or type(value).__name__,
)
async def test_what_may_have_started_a_run_is_not_tried_again(failure: Any) -> None:
    """Nor what can't be better the next time."""
    script = Script(failure, reply())
    async with scripted(script, retries=AT_ONCE) as agent:
        with pytest.raises(AguiaError):
            await collect(agent)
    assert len(script.requests) == 1


async def test_a_stream_that_broke_off_is_not_entered_again() -> None:
    """HTTP-5: whatever its events' ids are, the thread goes on by a run of its own."""
    begun = b"id: 7\nretry: 1\n" + frame(STARTED)
    broken = httpx.Response(200, headers=SSE, stream=Pieces([begun, httpx.ReadError("")]))
    script = Script(broken, reply())
    async with scripted(script, retries=AT_ONCE) as agent:
        with pytest.raises(TruncatedRun):
            await collect(agent)
        assert len(script.requests) == 1
        await collect(agent)
    first, second = script.requests
    assert "last-event-id" not in second.headers
    assert json.loads(first.content)["runId"] != json.loads(second.content)["runId"]


async def test_a_certificate_that_is_not_trusted_is_not_tried_again() -> None:
    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = OSError()
    error.__cause__.__context__ = ssl.SSLCertVerificationError("self-signed certificate")
    script = Script(error, reply())
    async with scripted(script, retries=AT_ONCE) as agent:
        with pytest.raises(ConnectionFailed, match="certificate"):
            await collect(agent)
    assert len(script.requests) == 1


@pytest.mark.parametrize(("retries", "tries"), [(0, 1), (1, 2), (AT_ONCE, 3)])
async def test_the_last_failure_is_the_one_that_is_told(retries: int | Retries, tries: int) -> None:
    script = Script(*[httpx.ConnectError(f"failure {number}") for number in range(1, 9)])
    async with scripted(script, retries=retries) as agent:
        with pytest.raises(ConnectionFailed, match=f"failure {tries}$"):
            await collect(agent)
        assert list(agent.messages) == []
    assert len(script.requests) == tries
    script = Script(*[httpx.Response(503, text=f"busy {number}") for number in range(1, 9)])
    async with scripted(script, retries=AT_ONCE) as agent:
        with pytest.raises(InputRejected, match="503: busy 3"):
            await collect(agent)


async def test_tries_go_over_a_socket_with_the_same_request() -> None:
    run = [HEAD, chunked(frame(STARTED))]
    busy = refusal("503 Busy", b"no", retry_after="0")
    async with (
        faulty([busy], [refusal("429 Slowly")], run) as server,
        HttpAgent(server.url.replace("//", f"//me:{SECRET}@"), retries=AT_ONCE) as agent,
    ):
        with pytest.raises(TruncatedRun):
            await collect(agent)
    assert len(server.requests) == 3
    assert len({request.body for request in server.requests}) == 1
    assert len({request.headers["authorization"] for request in server.requests}) == 1


async def test_each_failed_connection_is_a_try_of_its_own(free_port: int) -> None:
    async with HttpAgent(f"http://127.0.0.1:{free_port}/", retries=AT_ONCE) as agent:
        with pytest.raises(ConnectionFailed):
            await collect(agent)


def test_waits_grow_and_differ_and_have_a_limit() -> None:
    retries = Retries(9, first=1, most=5)
    for tries, longest in [(1, 1), (2, 2), (3, 4), (4, 5), (5000, 5)]:
        waits = {retries.wait(tries) for _ in range(50)}
        assert all(longest / 2 <= wait <= longest for wait in waits)
        assert len(waits) > 1


@pytest.mark.parametrize(
    "asked",
    [
        *["", "soon", "-1", "1.5", "6", "9" * 500, "Wed, 99 Foo 2099"],
        "Mon, 01 Jan 2020 00:00:00 +" + "9" * 30,
        "99 Jan 00:00:00 - 99999999992020",
    ],
)
def test_a_retry_after_that_is_none_or_too_long_is_not_waited_for(asked: str) -> None:
    assert 0.5 <= Retries(first=1, most=5).wait(1, asked) <= 1


def test_a_retry_after_is_kept_to() -> None:
    retries = Retries(first=1, most=5)
    assert [retries.wait(4, asked) for asked in ("0", "3", "5")] == [0, 3, 5]
    soon = datetime.now(UTC) + timedelta(seconds=4)
    assert 1 < retries.wait(1, format_datetime(soon, usegmt=True)) <= 4
    assert retries.wait(1, "Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retries.wait(1, "Wed, 21 Oct 2015 07:28:00") == 0


@pytest.mark.parametrize(
    "settings", [{"count": -1}, {"count": True}, {"count": 1.5}, {"first": -1}, {"first": 31}]
)
def test_retries_that_are_none_are_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="retries|times to wait"):
        Retries(**settings)
    with pytest.raises(ValueError, match="not -1"):
        HttpTransport(URL, retries=-1)


# All of the time


@pytest.mark.parametrize("body", ["silent", "comments", "drip", "packed", "waiting", "refused"])
async def test_no_exchange_takes_longer_than_all_the_time_there_is(body: str) -> None:
    """Whatever keeps it alive: comments are signs of life, and not for ever."""
    plans: dict[str, Any] = {
        "silent": [Silence()],
        "comments": [HEAD, Forever(chunked(b":\n\n"), 0.02)],
        "drip": [HEAD, Drip(chunked(b"data: " + b"x" * 5000), 0.02)],
        "packed": [head(content_encoding="gzip"), Forever(b"\x1f\x8b\x08\x08" + b"x" * 9, 0.02)],
        "waiting": [refusal("503 Busy", retry_after="20")],
        "refused": [head("400 No", content_length="999"), Forever(b"x", 0.02)],
    }
    timeouts = Timeouts(total=0.3)
    async with faulty(plans[body]) as server, HttpAgent(server.url, timeouts=timeouts) as agent:
        began = time.monotonic()
        async with asyncio.timeout(5):
            with pytest.raises(RunTimeout, match="not ended after 0.3 seconds") as caught:
                await collect(agent)
        assert time.monotonic() - began > 0.2
        assert server.url in str(caught.value)
        assert agent.outcome is None


async def test_the_time_limit_never_stops_whoever_reads() -> None:
    """It ends the reading, also where each piece is taken in a task of its own."""
    async with (
        faulty([HEAD, chunked(frame(STARTED)), Silence()]) as server,
        HttpAgent(server.url, timeouts=Timeouts(total=0.3), thread_id="t") as agent,
    ):
        stream = agent.run("Hi", run_id="r")
        first = await asyncio.create_task(anext(stream))
        assert first.type == "RUN_STARTED"
        await asyncio.sleep(0.4)
        with pytest.raises(RunTimeout, match="0.3 seconds"):
            await asyncio.create_task(anext(stream))


async def test_an_end_in_time_is_an_end() -> None:
    """RUN-11: what comes after the terminal event may take all the time it likes."""

    async def answer(request: RawRequest) -> None:
        run = request.run
        await request.write(HEAD + chunked(frame({"type": "RUN_STARTED", **run})))
        await request.write(chunked(frame({"type": "RUN_FINISHED", **run})))
        await request.gone()

    async with (
        raw_server(answer) as server,
        HttpAgent(server.url, timeouts=Timeouts(total=0.3)) as agent,
    ):
        assert len(await collect(agent)) == 2


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
@pytest.mark.parametrize("name", ["connect", "idle", "total"])
def test_time_limits_that_are_none_are_refused(name: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=f"{name} is a number of seconds above 0"):
        Timeouts(**{name: seconds})


async def test_leaving_while_it_waits_to_try_again() -> None:
    script = Script(later(503, retry_after="20"), reply())
    async with scripted(script, retries=1) as agent:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await collect(agent)
    assert len(script.requests) == 1


# Authentication and proxies


class _Signed(httpx.Auth):
    def auth_flow(self, request: httpx.Request) -> Any:
        request.headers["X-Signature"] = f"{len(request.content)}"
        yield request


async def test_authentication_goes_along() -> None:
    script = Script(later(503), reply(), reply())
    async with scripted(script, auth=("me", "pass"), retries=AT_ONCE) as agent:
        await collect(agent)
    async with scripted(script, auth=_Signed()) as agent:
        await collect(agent)
    basic = httpx.BasicAuth("me", "pass")._auth_header
    assert [request.headers.get("authorization") for request in script.requests] == [
        *(basic, basic, None)
    ]
    assert script.requests[2].headers["x-signature"] == str(len(script.requests[2].content))


async def test_authentication_goes_before_what_the_url_holds_and_to_no_other_origin() -> None:
    script = Script(
        httpx.Response(307, headers={"location": "/there"}),
        httpx.Response(307, headers={"location": "http://other.example/"}),
        reply(),
    )
    async with scripted(script, "http://a:b@agent.example/", auth=("me", SECRET)) as agent:
        await collect(agent)
    basic = httpx.BasicAuth("me", SECRET)._auth_header
    assert [request.headers.get("authorization") for request in script.requests] == [
        *(basic, basic, None)
    ]


@pytest.mark.parametrize("auth", [["me", SECRET], ("me", SECRET, 1), ("me", 7), SECRET])
def test_authentication_that_is_none_is_refused_and_not_shown(auth: Any) -> None:
    with pytest.raises(TypeError, match="auth is") as caught:
        HttpTransport(URL, auth=auth)
    assert SECRET not in str(caught.value)


async def test_a_proxy_is_asked_with_its_own_credentials() -> None:
    async def answer(request: RawRequest) -> None:
        await request.write(HEAD + chunked(frame({"type": "RUN_STARTED", **request.run})))
        await request.write(chunked(frame({"type": "RUN_FINISHED", **request.run})))
        await request.write(b"0\r\n\r\n")

    async with (
        raw_server(answer) as server,
        HttpAgent(URL, proxy=server.url.replace("//", f"//me:{SECRET}@")) as agent,
    ):
        await collect(agent)
    (request,) = server.requests
    assert request.path == URL
    assert request.headers["proxy-authorization"] == httpx.BasicAuth("me", SECRET)._auth_header
    assert "authorization" not in request.headers


async def test_a_proxy_that_is_not_there_is_named_without_its_credentials(free_port: int) -> None:
    proxy = f"http://me:{SECRET}@127.0.0.1:{free_port}"
    transport = HttpTransport(URL, proxy=proxy, retries=0)
    with pytest.raises(ConnectionFailed) as caught:
        await transport.capabilities()
    await transport.close()
    assert f"no connection to {URL}/capabilities through the proxy " in str(caught.value)
    assert f"http://127.0.0.1:{free_port}" in str(caught.value)
    text = "".join(traceback.format_exception(caught.value)) + repr(transport)
    assert SECRET not in text


@pytest.mark.parametrize(
    "proxy",
    [
        f"ftp://me:{SECRET}@proxy",
        f"me:{SECRET}@proxy",
        "",
        f"http://me:{SECRET}@proxy:x",
        "http://",
    ],
)
def test_a_proxy_that_is_none_is_refused_and_not_shown(proxy: str) -> None:
    with pytest.raises(ValueError, match="is no URL of a proxy") as caught:
        HttpTransport(URL, proxy=proxy)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


async def test_a_proxy_is_no_setting_beside_a_client() -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(ValueError, match="give one of the two"):
            HttpTransport(URL, proxy="http://127.0.0.1:1", client=client)


def test_a_transport_shows_where_it_leads_and_no_secret() -> None:
    transport = HttpTransport(f"http://me:{SECRET}@agent.example/run?key={SECRET}")
    assert repr(transport) == f"<HttpTransport {URL}>"


@pytest.mark.parametrize("installed", [True, False])
async def test_http_2_is_offered_where_it_is_installed(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "h2", None)
    hellos: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hellos.append(await reader.read(4096))
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with HttpAgent(f"https://127.0.0.1:{port}/", retries=0) as agent:
            with pytest.raises(ConnectionFailed):
                await collect(agent)
    assert (b"\x02h2" in hellos[0]) == installed


# Capabilities


async def declared(script: Script, url: str = URL, at: str | None = None, **options: Any) -> Any:
    async with httpx.AsyncClient(transport=httpx.MockTransport(script)) as client:
        return await HttpTransport(url, client=client, **options).capabilities(at)


def declaration(value: Any = None) -> httpx.Response:
    return httpx.Response(200, json={"custom": {"a": None}} if value is None else value)


@pytest.mark.parametrize(
    ("url", "at", "asked"),
    [
        ("http://agent.example", None, "http://agent.example/capabilities"),
        ("http://agent.example/", None, "http://agent.example/capabilities"),
        (
            "http://agent.example/a/run/?team=b",
            None,
            "http://agent.example/a/run/capabilities?team=b",
        ),
        ("http://agent.example/a%2Fb#x", None, "http://agent.example/a%2Fb/capabilities"),
        ("http://agent.example/run", "/about", "http://agent.example/about"),
        ("http://agent.example/a/run", "about?x=1", "http://agent.example/a/about?x=1"),
        ("http://agent.example/run", "https://b.example/c", "https://b.example/c"),
    ],
)
async def test_a_declaration_is_asked_for_where_it_is(url: str, at: str, asked: str) -> None:
    script = Script(declaration())
    assert await declared(script, url, at) == {"custom": {"a": None}}
    (request,) = script.requests
    assert (request.method, str(request.url).partition("#")[0]) == ("GET", asked)
    assert request.headers.get_list("accept") == ["application/json"]
    assert "content-type" not in request.headers
    assert request.content == b""


@pytest.mark.parametrize("at", [None, "/about", "http://agent.example/about"])
async def test_credentials_go_along_to_the_agents_own_origin(at: str | None) -> None:
    ways: list[tuple[str, dict[str, Any]]] = [
        (URL, {"headers": {"X-Key": SECRET, "Accept": "*/*"}, "auth": ("me", SECRET)}),
        (f"http://me:{SECRET}@agent.example/", {"headers": {"X-Key": SECRET}}),
    ]
    for url, options in ways:
        script = Script(declaration())
        await declared(script, url, at, **options)
        (request,) = script.requests
        assert request.headers["x-key"] == SECRET
        assert request.headers["authorization"] == httpx.BasicAuth("me", SECRET)._auth_header
        assert SECRET not in str(request.url)
        assert request.headers["accept"] == "application/json"


async def test_no_credentials_go_to_another_origin() -> None:
    for url in (URL, f"http://me:{SECRET}@agent.example/?key={SECRET}"):
        script = Script(declaration(), declaration())
        async with httpx.AsyncClient(
            transport=httpx.MockTransport(script),
            headers={"X-Client": SECRET},
            auth=("me", SECRET),
        ) as client:
            transport = HttpTransport(
                url, client=client, headers={"X-Key": SECRET}, auth=("me", SECRET)
            )
            await transport.capabilities("http://other.example/")
            await transport.capabilities("http://its:own@agent.example:8080/")
        for request in script.requests:
            assert SECRET not in str(request.headers) + str(request.url)
        assert "authorization" not in script.requests[0].headers
        assert (
            script.requests[1].headers["authorization"]
            == httpx.BasicAuth("its", "own")._auth_header
        )


@pytest.mark.parametrize("status", [404, 405])
async def test_an_agent_that_declares_nothing(status: int) -> None:
    """CAP-1: that is no failure."""
    assert await declared(Script(httpx.Response(status, html="<html>"))) is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_declaration_that_has_moved_is_read_there(status: int) -> None:
    script = Script(httpx.Response(status, headers={"location": "/there"}), declaration())
    assert await declared(script) is not None
    assert [request.method for request in script.requests] == ["GET", "GET"]


async def test_asking_is_tried_again() -> None:
    script = Script(httpx.ConnectError("refused"), later(503), declaration())
    assert await declared(script, retries=AT_ONCE) is not None


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (httpx.Response(401, text="Who are you?"), InputRejected, "401: Who are you"),
        (httpx.Response(500), InputRejected, "500: Internal Server Error"),
        (httpx.Response(200, html="<html>"), DecodeError, "declares no capabilities: the body is"),
        (httpx.Response(204), DecodeError, "not JSON"),
        (httpx.Response(200, json=[1]), DecodeError, "holds an array"),
        (httpx.Response(200, content=b"[" * 500), DecodeError, "nests deeper"),
        (httpx.Response(200, content=b'{"a":NaN}'), DecodeError, "NaN"),
        (httpx.Response(200, content=b" " * 1048577), DecodeError, "larger than 1048576 bytes"),
        (
            httpx.Response(200, stream=Pieces([b'{"tools"', httpx.ReadError("reset")])),
            *(TransportError, "broke before it had said"),
        ),
        (httpx.Response(200, stream=Pieces([httpx.ReadTimeout("")])), RunTimeout, "nothing came"),
        (
            httpx.Response(200, headers={"content-encoding": "gzip, br"}, stream=Pieces([])),
            *(DecodeError, "several content codings"),
        ),
        (
            httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Pieces([b"no"])),
            *(DecodeError, "content-encoding"),
        ),
        (httpx.ReadError(""), TransportError, "broke"),
    ],
)
async def test_a_declaration_that_is_none(answer: Any, error: type[AguiaError], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        await declared(Script(answer))
    assert URL in str(caught.value) or isinstance(caught.value, InputRejected)
    if isinstance(answer, httpx.Response):
        assert answer.is_closed


@pytest.mark.parametrize("at", ["ftp://agent.example/", "http://x:y:z/", "mailto:me"])
async def test_a_url_that_is_none_is_no_place_for_a_declaration(at: str) -> None:
    with pytest.raises(ConnectionFailed, match="is no URL"):
        await declared(Script(), at=at)


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        ([Silence()], RunTimeout),
        ([head(content_type="application/json"), Forever(b" ", 0.02)], RunTimeout),
        ([head(content_length="100"), b"{", Reset()], TransportError),
        ([Wait(0.01)], TransportError),
    ],
    ids=["silence", "drip", "reset", "hang up"],
)
async def test_asking_never_hangs(plan: Any, error: type[AguiaError]) -> None:
    async with faulty(plan) as server, asyncio.timeout(5):
        transport = HttpTransport(server.url, timeouts=Timeouts(idle=0.3, total=0.5))
        with pytest.raises(error):
            await transport.capabilities()
        await transport.close()
