"""An ASGI application in this process as a transport."""

import asyncio
import gzip
import logging
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from aguia import (
    Agent,
    ConnectionFailed,
    DecodeError,
    InputRejected,
    RunTimeout,
    TransportError,
    TruncatedRun,
)
from aguia.client import PROTOBUF, SSE, AsgiTransport, Timeouts
from aguia.protocol.events import Event
from aguia.server import AgentApp, Agents, Run
from support_events import FINISHED, STARTED, frame
from support_runs import no_task_left, run_input

pytestmark = pytest.mark.anyio

INPUT: Final = run_input(threadId="t", runId="r")
START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"Content-Type", b"text/event-stream")],
}


async def collect(agent: Agent, content: Any = "Hi") -> list[Event]:
    return [event async for event in agent.run(content)]


async def hello(run: Run) -> None:
    async with run.text() as text:
        await text.write(f"{len(run.messages)} messages")


async def forever(run: Run) -> None:
    async with run.text() as text:
        while True:
            await text.write("on and ")
            await asyncio.sleep(0)


def body(data: bytes = b"", *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


# Whole runs


@pytest.mark.parametrize("accept", [SSE, PROTOBUF])
async def test_an_agent_app_is_called_in_process(accept: str) -> None:
    async with no_task_left(), Agent(AsgiTransport(AgentApp(hello), accept=accept)) as agent:
        await collect(agent)
        await collect(agent, "And now?")
        assert [message.content for message in agent.messages] == [
            *("Hi", "1 messages", "And now?", "3 messages")
        ]


async def test_one_application_of_several_is_reached_by_its_path() -> None:
    async def who(run: Run) -> str:
        return "search"

    agents = Agents(search=who, write=hello)
    async with Agent(AsgiTransport(agents, path="/search")) as agent:
        await collect(agent)
        assert agent.result == "search"
    async with Agent(AsgiTransport(agents, path="/other")) as agent:
        with pytest.raises(InputRejected, match="404: the agents are at /search, /write"):
            await collect(agent)


async def test_what_an_application_is_told_is_what_a_server_tells() -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await AgentApp(hello)(scope, receive, send)

    transport = AsgiTransport(
        app, path="/a b/ü", root_path="/mounted/", headers={"X-Key": "k"}, auth=("me", "pass")
    )
    async with transport, Agent(transport) as agent:
        await collect(agent)
    scope = scopes[1]
    assert scopes[0]["type"] == "lifespan"
    assert scope["path"] == "/mounted/a b/ü"
    assert scope["raw_path"] == b"/mounted/a%20b/%C3%BC"
    assert (scope["root_path"], scope["query_string"]) == ("/mounted", b"")
    assert (scope["type"], scope["method"], scope["scheme"]) == ("http", "POST", "http")
    headers = dict(scope["headers"])
    assert headers[b"x-key"] == b"k"
    assert headers[b"authorization"].startswith(b"Basic ")
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"host"] == b"app"
    assert headers[b"accept-encoding"] == b"identity"
    assert all(name == name.lower() for name in headers)


async def test_nothing_is_packed_that_never_leaves_the_process() -> None:
    app = GZipMiddleware(AgentApp(hello), minimum_size=1)
    async with Agent(AsgiTransport(app)) as agent:
        await collect(agent)
        assert agent.outcome is not None

    async def packing(scope: Scope, receive: Receive, send: Send) -> None:
        packed = gzip.compress(frame(STARTED, FINISHED))
        headers = {"content-encoding": "gzip", "content-type": SSE}
        await Response(packed, headers=headers)(scope, receive, send)

    async with AsgiTransport(packing).open(INPUT) as answer:
        assert b"".join([piece async for piece in answer.body]) == frame(STARTED, FINISHED)


async def test_a_refusal_is_one() -> None:
    app = AgentApp(hello, max_body_bytes=2000)
    async with Agent(AsgiTransport(app)) as agent:
        with pytest.raises(InputRejected, match="larger than 2000 bytes") as caught:
            await collect(agent, "x" * 2000)
        assert caught.value.status == 413
        assert list(agent.messages) == []
        await collect(agent)


async def test_what_is_no_agent_is_none() -> None:
    async with Agent(AsgiTransport(Response("<html>", media_type="text/html"))) as agent:
        with pytest.raises(DecodeError, match="no AG-UI agent"):
            await collect(agent)


@pytest.mark.parametrize(("path", "root"), [("run", ""), ("", ""), ("/run", "mounted")])
def test_a_path_that_is_none_is_refused(path: str, root: str) -> None:
    with pytest.raises(ValueError, match="begins with a slash"):
        AsgiTransport(AgentApp(hello), path=path, root_path=root)


# Streaming


async def test_an_answer_streams_and_a_slow_reader_slows_the_application_down() -> None:
    sent: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        for number in range(100):
            await send(body(b": %d\n\n" % number))
            sent.append(number)
        await send(body(more=False))

    async with AsgiTransport(app).open(INPUT) as answer:
        for read in range(50):
            assert await anext(answer.body) == b": %d\n\n" % read
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(sent) <= read + 2
        assert [piece async for piece in answer.body][-1] == b": 99\n\n"


async def test_each_piece_arrives_before_the_next_is_made() -> None:
    go = asyncio.Event()

    async def agent_function(run: Run) -> None:
        async with run.text() as text:
            await text.write("one")
            await go.wait()
            await text.write("two")

    async with Agent(AsgiTransport(AgentApp(agent_function))) as agent:
        async for event in agent.run("Hi"):
            if event.type == "TEXT_MESSAGE_CONTENT":
                go.set()
        assert agent.messages[-1].content == "onetwo"


async def test_leaving_early_is_a_client_that_has_gone() -> None:
    """What runs is over when the one who left goes on."""
    received: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(body(frame(STARTED)))
        received.append((await receive())["type"])
        received.append((await receive())["type"])

    async with no_task_left(), Agent(AsgiTransport(app), thread_id="t") as agent:
        async with agent.run("Hi", run_id="r") as stream:
            await anext(stream)
        assert received == ["http.request", "http.disconnect"]


async def test_leaving_early_cancels_the_run_of_an_agent_app() -> None:
    app = AgentApp(forever, max_runs=1)
    async with no_task_left(), Agent(AsgiTransport(app)) as agent:
        for _ in range(3):
            async with agent.run("Hi") as stream:
                async for event in stream:
                    if event.type == "TEXT_MESSAGE_CONTENT":
                        break


async def test_an_application_that_only_sends_is_stopped_when_nobody_reads() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b": on and on\n\n"

    async def careless(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        try:
            while True:
                await send(body(b": on and on\n\n"))
        finally:
            ended.set()

    ended = asyncio.Event()
    for app in (StreamingResponse(endless(), media_type=SSE), careless):
        async with no_task_left():
            async with AsgiTransport(app).open(INPUT) as answer:
                await anext(answer.body)
            await asyncio.sleep(0.01)  # the HTTP library's own generators close
    assert ended.is_set()


async def test_an_application_that_goes_on_alone_does_until_the_end() -> None:
    """As one that continues without a reader does; leaving waits for it only so long."""
    ended: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        try:
            await asyncio.sleep(20)
        finally:
            ended.append("cancelled")

    transport = AsgiTransport(app, grace=0.05)
    async with no_task_left(), asyncio.timeout(5):
        async with transport.open(INPUT):
            pass
        assert ended == []
        await transport.close()
        assert ended == ["cancelled"]


async def test_an_application_that_ignores_its_end_holds_nobody_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        while not gone.is_set():
            try:
                await gone.wait()
            except asyncio.CancelledError:
                pass

    transport = AsgiTransport(app, grace=0.05)
    async with asyncio.timeout(5):
        async with transport.open(INPUT):
            pass
        await transport.close()
        assert "ignores that it is cancelled" in caplog.text
        gone.set()
        await asyncio.sleep(0.01)


async def test_work_after_the_answer_is_done() -> None:
    done: list[int] = []

    async def endpoint(request: Request) -> Response:
        return Response(
            frame(STARTED, FINISHED), media_type=SSE, background=BackgroundTask(done.append, 1)
        )

    app = Starlette(routes=[Route("/", endpoint, methods=["POST"])])
    async with Agent(AsgiTransport(app), thread_id="t") as agent:
        [event async for event in agent.run("Hi", run_id="r")]
        assert done == [1]


# Applications that break


async def test_an_application_that_raises_before_it_answers() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise LookupError("no model")

    async with no_task_left(), Agent(AsgiTransport(app)) as agent:
        with pytest.raises(TransportError, match="raised LookupError before it had") as caught:
            await collect(agent)
        assert "LookupError: no model" in "".join(traceback.format_exception(caught.value))
        assert list(agent.messages) == []


async def test_an_application_that_raises_in_the_middle() -> None:
    """RUN-11: what had arrived stays."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(body(frame(STARTED)))
        raise LookupError("no model")

    async with no_task_left(), Agent(AsgiTransport(app), thread_id="t") as agent:
        with pytest.raises(TruncatedRun, match="raised LookupError in the middle") as caught:
            [event async for event in agent.run("Hi", run_id="r")]
        assert "LookupError: no model" in "".join(traceback.format_exception(caught.value))
        assert agent.conversation.run_id == "r"


async def test_an_application_that_returns_too_early() -> None:
    async def mute(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()

    async def short(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send(body(frame(STARTED)))

    async with no_task_left(), asyncio.timeout(5):
        async with Agent(AsgiTransport(mute)) as agent:
            with pytest.raises(TransportError, match="returned before it had answered"):
                await collect(agent)
        async with Agent(AsgiTransport(short)) as agent:
            with pytest.raises(TruncatedRun, match="returned in the middle of its answer"):
                await collect(agent)


async def test_an_application_that_falls_silent() -> None:
    async def mute(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await receive()

    async def pausing(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await mute(scope, receive, send)

    timeouts = Timeouts(idle=0.1)
    async with no_task_left(), asyncio.timeout(5):
        async with Agent(AsgiTransport(mute, timeouts=timeouts)) as agent:
            with pytest.raises(RunTimeout, match="did not answer within 0.1 seconds"):
                await collect(agent)
        async with Agent(AsgiTransport(pausing, timeouts=timeouts)) as agent:
            with pytest.raises(RunTimeout, match="nothing came from http://app/ for 0.1"):
                await collect(agent)
        endless = AsgiTransport(AgentApp(forever), timeouts=Timeouts(total=0.2))
        async with Agent(endless) as agent:
            with pytest.raises(RunTimeout, match="not ended after 0.2 seconds"):
                await collect(agent)


async def test_being_cancelled_before_the_answer_tells_the_application() -> None:
    told = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await receive()
        told.set()

    async with no_task_left(), Agent(AsgiTransport(app)) as agent:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await collect(agent)
        assert told.is_set()


@pytest.mark.parametrize(
    "messages",
    [
        [body(b"x")],
        [START, START],
        [START, body(more=False), body(b"x")],
        [{"type": "http.response.push"}],
        [{"type": "http.response.start"}],
        [{**START, "headers": [("content-type", "text/html")]}],
    ],
)
async def test_what_an_application_may_not_send_is_refused_where_it_does(
    messages: list[Any],
) -> None:
    raised: list[Exception] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            for message in messages:
                await send(message)
        except Exception as error:
            raised.append(error)
            raise

    with pytest.raises((TransportError, TruncatedRun)):
        await collect(Agent(AsgiTransport(app)))
    assert len(raised) == 1


async def test_what_breaks_after_the_answer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(frame(STARTED, FINISHED), media_type=SSE)(scope, receive, send)
        raise LookupError("no log")

    async with Agent(AsgiTransport(app), thread_id="t") as agent:
        [event async for event in agent.run("Hi", run_id="r")]
        assert agent.outcome is not None
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "LookupError: no log" in caplog.text


# Capabilities


async def test_capabilities_are_those_of_the_application() -> None:
    app = AgentApp(hello, capabilities={"custom": {"a": None}}, path="/run")
    transport = AsgiTransport(app, path="/run")
    assert await transport.capabilities() == {"custom": {"a": None}}
    assert await transport.capabilities("/run/capabilities") == {"custom": {"a": None}}
    assert await AsgiTransport(AgentApp(hello)).capabilities() is None
    assert await AsgiTransport(Agents(a=app), path="/b").capabilities() is None
    mounted = Starlette(routes=[Mount("/agent", AgentApp(hello, capabilities={}))])
    assert await AsgiTransport(mounted, path="/agent/").capabilities() == {}


# Lifespan


async def test_the_lifespan_is_run_by_async_with() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, str]]:
        seen.append("start")
        yield {"model": "m"}
        seen.append("stop")

    async def endpoint(request: Request) -> Response:
        seen.append(request.state.model)
        return Response(frame(STARTED, FINISHED), media_type=SSE)

    app = Starlette(routes=[Route("/", endpoint, methods=["POST"])], lifespan=lifespan)
    async with no_task_left():
        for _ in range(2):
            transport = AsgiTransport(app)
            async with transport, Agent(transport, thread_id="t") as agent:
                [event async for event in agent.run("Hi", run_id="r")]
        await AsgiTransport(app).close()
    assert seen == ["start", "m", "stop"] * 2


async def test_an_application_that_cannot_start() -> None:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        raise LookupError("no\x1b model")
        yield

    async with no_task_left():
        with pytest.raises(ConnectionFailed, match=r"could not start: LookupError: no\\x1b model$"):
            async with AsgiTransport(Starlette(lifespan=lifespan)):
                raise AssertionError("it started")


async def test_an_application_without_a_lifespan_is_called_all_the_same() -> None:
    async def raising(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        await AgentApp(hello)(scope, receive, send)

    async def returning(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await AgentApp(hello)(scope, receive, send)

    for app in (raising, returning):
        transport = AsgiTransport(app)
        async with no_task_left(), asyncio.timeout(5), transport, Agent(transport) as agent:
            await collect(agent)
            assert agent.outcome is not None


async def test_an_application_that_fails_to_stop_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.failed", "message": "the disk is full"})
        await asyncio.sleep(20)

    async with asyncio.timeout(5), no_task_left(), AsgiTransport(app, grace=0.05):
        pass
    assert "could not stop: the disk is full" in caplog.text


async def test_runs_that_are_under_way_end_with_the_transport() -> None:
    """Like clients that have gone, so that nobody's patience has to run out."""
    app = AgentApp(forever)
    transport = AsgiTransport(app)
    async with no_task_left():
        async with asyncio.timeout(4), transport:
            stream = Agent(transport).run("Hi")
            assert (await anext(stream)).type == "RUN_STARTED"
            await transport.close()
            with pytest.raises(TruncatedRun):
                [event async for event in stream]
        await stream.aclose()


async def test_another_client_may_be_made_of_the_same_application() -> None:
    app = AgentApp(hello)
    first, second = AsgiTransport(app), AsgiTransport(app)
    async with Agent(first) as one, Agent(second) as two:
        await asyncio.gather(collect(one), collect(two))
        await first.close()
        await collect(one)
        await collect(two)
