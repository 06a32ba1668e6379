"""The ASGI application: where it is found, what it refuses, and how it streams."""

import asyncio
import functools
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message

from aguia import RunFinishedEvent
from aguia.protocol.capabilities import AgentCapabilities, IdentityCapabilities
from aguia.protocol.outcomes import RunFinishedCancelledOutcome
from aguia.server import AgentApp, Agents, InProcess, Run
from support_asgi import Connection, call, input_body
from support_runs import no_task_left

pytestmark = pytest.mark.anyio

WHOLE = ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
WHOLE += ["RUN_FINISHED"]


async def hello(run: Run) -> None:
    await run.say("Hello.", message_id="m")


async def until_cancelled(run: Run) -> None:
    async with run.text(message_id="m") as text:
        await text.write("Wait.")
        await asyncio.sleep(60)


def cancelled(connection: Connection) -> bool:
    last = connection.events()[-1]
    return isinstance(last, RunFinishedEvent) and isinstance(
        last.outcome, RunFinishedCancelledOutcome
    )


# Where it is found


@pytest.mark.parametrize("path", ["/", "", "/anything", "/a/b/"])
async def test_alone_it_answers_whatever_path_leads_to_it(path: str) -> None:
    """HTTP-2: 200, an event stream, and nothing that would hold it up."""
    async with no_task_left():
        connection = await call(AgentApp(hello), path=path)
    assert connection.status == 200
    assert connection.types == WHOLE
    assert connection.complete
    assert connection.answer_headers == {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }


async def test_frames_are_one_data_line_each_with_lf() -> None:
    """HTTP-2."""

    async def agent(run: Run) -> None:
        await run.say("a\r\nb\n\u2028c")

    answer = (await call(AgentApp(agent))).answer
    frames = answer.split(b"\n\n")
    assert frames.pop() == b""
    assert len(frames) == 5
    for frame in frames:
        assert frame.startswith(b"data: {")
        assert b"\n" not in frame
        assert b"\r" not in frame
        json.loads(frame[6:])


ROUTED: list[tuple[ASGIApp, list[str], list[str]]] = [
    (AgentApp(hello, path="/agent"), ["/agent", "/agent/"], ["/", "/agent/x", "/agents"]),
    (AgentApp(hello, path="/"), ["/", ""], ["/agent"]),
    (AgentApp(hello, path="/deep/agent/"), ["/deep/agent", "/deep/agent/"], ["/deep"]),
    (
        Starlette(routes=[Mount("/agent", AgentApp(hello))]),
        ["/agent", "/agent/", "/agent/x"],
        ["/"],
    ),
    (
        Starlette(routes=[Mount("/api", AgentApp(hello, path="/agent"))]),
        ["/api/agent", "/api/agent/"],
        ["/agent", "/api", "/api/", "/api/agent/x"],
    ),
    (Starlette(routes=[Mount("/", AgentApp(hello))]), ["/", "/x"], []),
    (Starlette(routes=[Route("/agent", AgentApp(hello))]), ["/agent"], ["/", "/agent/x"]),
    (Starlette(routes=[Route("/agent/", AgentApp(hello))]), ["/agent/"], ["/"]),
    (
        Starlette(routes=[Mount("/a", routes=[Mount("/b", AgentApp(hello, path="/c"))])]),
        ["/a/b/c"],
        ["/a/c", "/b/c", "/c"],
    ),
    (Agents(search=hello, write=AgentApp(hello)), ["/search", "/write/"], ["/", "/searching"]),
    (
        Starlette(routes=[Mount("/agents", Agents(search=hello))]),
        ["/agents/search", "/agents/search/"],
        ["/search", "/agents", "/agents/", "/agents/write"],
    ),
]


async def follow(app: ASGIApp, path: str) -> Connection:
    connection = await call(app, path=path)
    if connection.status == 307:  # Starlette's own redirection to the path with a slash
        location = connection.answer_headers["location"]
        connection = await call(app, path=location.removeprefix("http://127.0.0.1:8000"))
    return connection


@pytest.mark.parametrize(
    ("app", "path"), [(app, path) for app, found, _ in ROUTED for path in found]
)
async def test_it_is_found_alone_mounted_and_routed(app: ASGIApp, path: str) -> None:
    connection = await follow(app, path)
    assert connection.status == 200
    assert connection.types == WHOLE


@pytest.mark.parametrize(("app", "path"), [(app, path) for app, _, lost in ROUTED for path in lost])
async def test_elsewhere_it_is_not_found(app: ASGIApp, path: str) -> None:
    assert (await follow(app, path)).status == 404


async def test_a_server_that_sits_below_a_prefix() -> None:
    """The `root_path` that a proxy strips or a server is told of."""
    app = AgentApp(hello, path="/agent")
    assert (await call(app, path="/agent", root_path="/api")).status == 200
    assert (await call(Agents(a=hello), path="/a", root_path="/api")).status == 200


async def test_in_fastapi() -> None:
    fastapi = pytest.importorskip("fastapi")
    app = fastapi.FastAPI()
    app.mount("/mounted", AgentApp(hello))
    app.add_route("/routed", AgentApp(hello), methods=["POST"])
    for path in ("/mounted", "/mounted/", "/routed"):
        assert (await follow(app, path)).types == WHOLE


async def test_as_the_answer_of_an_endpoint_that_knows_who_asks() -> None:
    """What the framework's dependencies found becomes the principal; what they hold, lasts."""
    fastapi = pytest.importorskip("fastapi")
    told: list[Any] = []

    async def agent(run: Run) -> None:
        told.append(run.principal)
        await run.say("Hello.", message_id="m")

    async def store() -> AsyncIterator[str]:
        yield "store"
        told.append("closed")

    def asks_nobody(request: Request) -> None:
        raise AssertionError

    agents = AgentApp(
        agent, path="/elsewhere", authenticate=asks_nobody, max_runs=1, capabilities={}
    )

    async def chat(request: Request, tasks: Any, store: str, body: Any) -> Response:
        tasks.add_task(told.append, "task")
        told.append(body["runId"])  # the framework has read it, and the agent can all the same
        return agents.response(request, (request.headers["x-name"], store))

    chat.__annotations__.update(
        tasks=fastapi.BackgroundTasks,
        store=Annotated[str, fastapi.Depends(store)],
        body=dict[str, Any],
    )
    app = fastapi.FastAPI()
    app.post("/agent")(chat)
    assert list(app.openapi()["paths"]) == ["/agent"]

    connection = await call(app, path="/agent", headers={"x-name": "ana"})
    assert connection.types == WHOLE
    assert connection.complete
    assert told == ["run", ("ana", "store"), "task", "closed"]
    malformed = input_body(messages={})
    refused = await call(app, path="/agent", headers={"x-name": "ana"}, body=malformed)
    assert refused.status == 400
    assert refused.error["path"] == "/messages"
    assert (await call(app, path="/agent", headers={"x-name": "ana"}, method="GET")).status == 405
    await agents.shutdown(0)
    assert (await call(app, path="/agent", headers={"x-name": "ana"})).status == 503


async def test_an_endpoint_of_any_method_answers_runs_alone() -> None:
    agents = AgentApp(hello, capabilities={})

    async def chat(request: Request) -> Response:
        return agents.response(request)

    app = Starlette(routes=[Route("/agent", chat, methods=["GET", "POST"])])
    refused = await call(app, path="/agent", method="GET")
    assert refused.status == 405
    assert refused.answer_headers["allow"] == "POST"
    assert (await call(app, path="/agent")).types == WHOLE


async def test_other_names_say_where_the_agents_are() -> None:
    connection = await call(Agents(search=hello, write=hello), path="/nobody")
    assert connection.status == 404
    assert connection.error["message"] == "the agents are at /search, /write"


async def test_a_lifespan_and_a_websocket() -> None:
    async def connect(app: ASGIApp, kind: str, *messages: str) -> list[str]:
        sent: list[str] = []
        incoming = [{"type": message} for message in messages]

        async def receive() -> Message:
            return incoming.pop(0)

        async def send(message: Message) -> None:
            sent.append(message["type"])

        await app({"type": kind, "path": "/", "headers": []}, receive, send)
        return sent

    events = ("lifespan.startup", "lifespan.shutdown")
    for app in (AgentApp(hello), AgentApp(hello, allow_origins=["*"]), Agents(a=hello)):
        assert await connect(app, "lifespan", *events) == [f"{each}.complete" for each in events]
        assert await connect(app, "websocket", "websocket.connect") == ["websocket.close"]
        assert (await call(app, path="/a")).status == 503
        starting = asyncio.create_task(connect(app, "lifespan", "lifespan.startup"))
        await asyncio.sleep(0)
        assert (await call(app, path="/a")).status == 200  # a server that starts it again
        with pytest.raises(IndexError):
            await starting
        with pytest.raises(RuntimeError, match="served over HTTP"):
            await connect(app, "telnet")
    assert await connect(Agents(), "lifespan", *events) == [f"{each}.complete" for each in events]


# What it refuses


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_other_methods_are_refused(method: str) -> None:
    """HTTP-1, HTTP-4."""
    connection = await call(AgentApp(hello), method=method)
    assert connection.status == 405
    assert connection.answer_headers["allow"] == "POST"
    assert connection.answer_headers["content-type"] == "application/json"
    assert "POST" in connection.error["message"]


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("", 415),
    ],
)
async def test_a_body_of_another_type_is_refused(content_type: str, status: int) -> None:
    """HTTP-1."""
    connection = await call(AgentApp(hello), headers={"content-type": content_type})
    assert connection.status == status
    assert status == 200 or "application/json" in connection.error["message"]


MESSAGE = {"id": "m", "role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("body", "path", "said"),
    [
        (b"", "", "not JSON"),
        (b"{", "", "not JSON"),
        (b"null", "", "null where a run input"),
        (b"[]", "", "an array where a run input"),
        (b'"text"', "", "a string where a run input"),
        (b"\xff\xfe", "", "not UTF-8"),
        (b"\xef\xbb\xbf" + input_body(), "", "the body begins with a byte order mark"),
        (b'{"a": NaN}', "", "NaN"),
        (b'{"a": 1e999}', "", "out of range"),
        (b'{"a": ' + b"1" * 5000 + b"}", "", "digits"),
        (b"[" * 100_000, "", "deeper than 256"),
        (b'{"state": ' + b'{"a":' * 300 + b"1" + b"}" * 301, "", "deeper than 256"),
        (b"{}", "/threadId", "required"),
        (input_body(threadId=None), "/threadId", "string"),
        (input_body(threadId=5), "/threadId", "string"),
        (input_body(runId=["x"]), "/runId", "string"),
        (input_body(messages=None), "/messages", "an array"),
        (input_body(messages={}), "/messages", "an array"),
        (input_body(messages=[5]), "/messages/0", "object"),
        (input_body(messages=[MESSAGE, {"id": "x", "role": "user"}]), "/messages/1/content", ""),
        (input_body(messages=[{**MESSAGE, "role": 5}]), "/messages/0/role", "string"),
        (input_body(messages=[{**MESSAGE, "content": 5}]), "/messages/0/content", ""),
        (input_body(messages=[{**MESSAGE, "content": [{"type": "text"}]}]), None, "required"),
        (input_body(tools=[{"name": "t"}]), "/tools/0/description", "required"),
        (input_body(tools=None), "/tools", "an array"),
        (input_body(context=[{"description": "d", "value": 5}]), "/context/0/value", "string"),
        (input_body(parentRunId=None), "/parentRunId", "null"),
        (input_body(state=None), "/state", "null"),
        (
            input_body(resume=[{"interruptId": "i", "status": 1}]),
            "/resume/0/status",
            "cancelled, resolved",
        ),
        (input_body(protocolVersion=1), "/protocolVersion", "string"),
    ],
)
async def test_a_malformed_input_is_refused_with_its_place(
    body: bytes, path: str | None, said: str
) -> None:
    """PROC-12, HTTP-4, EVT-4: before RUN_STARTED, with path, rule and what was expected."""
    started: list[Run] = []

    async def agent(run: Run) -> None:
        started.append(run)

    connection = await call(AgentApp(agent), body=body)
    assert connection.status == 400
    assert started == []
    assert connection.answer_headers["content-type"] == "application/json"
    if path is not None:
        assert connection.error["path"] == path
    assert said in connection.error["message"]
    assert "frame" not in connection.error["message"]
    if path != "":
        assert connection.error["rule"] == "PROC-3"


async def test_what_is_unknown_in_an_input_is_removed_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """PROC-12, PROC-4, PROC-5, PROC-6: and the run proceeds with the rest."""
    seen: list[Run] = []

    async def agent(run: Run) -> None:
        seen.append(run)

    body = input_body(
        mood="good",
        messages=[
            {**MESSAGE, "mood": 1},
            {"id": "n", "role": "wizard", "content": "x"},
            {"id": "o", "role": "user", "content": [{"type": "smell"}]},
        ],
        resume=[{"interruptId": "i", "status": "postponed"}],
        tools=[{"name": "t", "description": "d", "parameters": {"anything": None}}],
    )
    connection = await call(AgentApp(agent), body=body)
    assert connection.status == 200
    run = seen[0]
    assert [message.id for message in run.messages] == ["m", "o"]
    assert list(run.resume) == []
    assert run.tools[0].parameters == {"anything": None}
    for path in ("/mood", "/messages/0/mood", "/messages/1", "/messages/2/content/0", "/resume/0"):
        assert f"'{path}" in caplog.text


@pytest.mark.parametrize(
    ("version", "status", "warned"),
    [
        ("1.0", 200, False),
        ("1.7", 200, True),
        ("1.10", 200, True),
        ("one", 200, True),
        ("", 200, True),
        ("1.0.0", 200, True),
        ("2.0", 400, False),
        ("0.9", 400, False),
    ],
)
async def test_versions_of_clients(
    version: str, status: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """VER-2: only another major line is refused, and what can't be interpreted is as newer."""
    connection = await call(AgentApp(hello), body=input_body(protocolVersion=version))
    assert connection.status == status
    assert ("VER-2" in caplog.text) == warned
    if status == 400:
        assert connection.error["path"] == "/protocolVersion"
        assert connection.error["rule"] == "VER-2"


async def test_a_body_over_the_limit_is_refused_by_its_header_and_by_its_length() -> None:
    """HTTP-4: 413, whatever the header says."""
    app = AgentApp(hello, max_body_bytes=200)
    announced = await call(app, headers={"content-length": "201"})
    assert announced.status == 413
    assert "200 bytes" in announced.error["message"]
    for headers in ({}, {"content-length": "5"}, {"content-length": "many"}):
        streamed = await call(app, headers=headers, body=(b" " * 50 for _ in range(10)))
        assert streamed.status == 413
    huge = await call(app, headers={"content-length": "9" * 5000})
    assert huge.status == 413
    pieces = [bytes([byte]) for byte in input_body()]
    assert (await call(app, body=pieces)).status == 200


async def test_a_body_that_does_not_come_is_given_up() -> None:
    """A client that sends slowly, or nothing, holds no place for ever."""
    sent: list[Message] = []
    pieces = [b"{", b'"threadId"']

    async def receive() -> Message:
        if pieces:
            return {"type": "http.request", "body": pieces.pop(0), "more_body": True}
        await asyncio.sleep(60)
        raise AssertionError("nobody waits so long")

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    await AgentApp(hello, body_timeout=0.05)(scope, receive, send)
    assert sent[0]["status"] == 408
    assert b"did not arrive within 0.05 seconds" in sent[1]["body"]


async def test_a_client_that_goes_away_while_it_sends_is_no_error() -> None:
    connection = Connection(AgentApp(hello), body=[])
    connection.gone.set()
    await connection.run()
    assert connection.sent == []


async def _who(request: Request) -> Any:
    match request.headers.get("authorization"):
        case None:
            raise HTTPException(401, "who are you?", headers={"WWW-Authenticate": "Bearer"})
        case "Bearer ana":
            return {"name": "Ana"}
        case "Bearer nobody":
            return None
    raise HTTPException(403, "not you")


async def test_who_asks_is_asked_first() -> None:
    """401 and 403 before the body is read, and the principal goes to the run."""
    seen: list[Any] = []

    async def agent(run: Run) -> None:
        seen.append(run.principal)

    app = AgentApp(agent, authenticate=_who, capabilities={})
    unknown = await call(app, body=b"not even read")
    assert unknown.status == 401
    assert unknown.answer_headers["www-authenticate"] == "Bearer"
    assert unknown.error["message"] == "who are you?"
    assert (await call(app, headers={"authorization": "Bearer eve"})).status == 403
    assert (await call(app, headers={"authorization": "Bearer ana"})).status == 200
    assert (await call(app, headers={"authorization": "Bearer nobody"})).status == 200
    assert seen == [{"name": "Ana"}, None]
    assert (await call(app, method="GET", path="/capabilities")).status == 401
    allowed = await call(
        app, method="GET", path="/capabilities", headers={"authorization": "Bearer ana"}
    )
    assert allowed.status == 200


@pytest.mark.parametrize("kind", [str, lambda name: {"sub": name}, lambda name: ("k", [name])])
async def test_each_principal_has_so_many_runs_at_once(kind: Any) -> None:
    """429, with when to come back; whoever it is, hashable or not."""
    release = asyncio.Event()

    async def agent(run: Run) -> None:
        await release.wait()

    async def who(request: Request) -> Any:
        return kind(request.headers["x-name"])

    app = AgentApp(agent, authenticate=who, max_runs=2)

    def start(name: str) -> asyncio.Task[Connection]:
        return asyncio.create_task(call(app, headers={"x-name": name}))

    running = [start("ana"), start("ana"), start("eve")]
    await asyncio.sleep(0.02)
    refused = await start("ana")
    assert refused.status == 429
    assert refused.answer_headers["retry-after"] == "1"
    assert "2 runs" in refused.error["message"]
    release.set()
    assert [connection.status for connection in await asyncio.gather(*running)] == [200] * 3
    assert (await start("ana")).status == 200


async def test_capabilities_are_found_beside_the_run() -> None:
    """CAP-1: in the schema's shape, and only where they were declared."""
    declared = AgentCapabilities(identity=IdentityCapabilities(name="folder"), custom={"a": None})
    for capabilities in (declared, {"identity": {"name": "folder"}, "custom": {"a": None}}):
        app = AgentApp(hello, capabilities=capabilities)
        connection = await call(app, method="GET", path="/capabilities")
        assert connection.status == 200
        assert connection.answer_headers["content-type"] == "application/json"
        assert json.loads(connection.answer) == {
            "identity": {"name": "folder"},
            "custom": {"a": None},
        }
        refused = await call(app, path="/capabilities")
        assert refused.status == 405
        assert refused.answer_headers["allow"] == "GET"
    at = AgentApp(hello, path="/agent", capabilities=declared)
    assert (await call(at, method="GET", path="/agent/capabilities")).status == 200
    assert (await call(at, method="GET", path="/capabilities")).status == 404
    mounted = Starlette(routes=[Mount("/x", at)])
    assert (await call(mounted, method="GET", path="/x/agent/capabilities")).status == 200
    named = Agents(a=AgentApp(hello, capabilities=declared), b=hello)
    assert (await call(named, method="GET", path="/a/capabilities")).status == 200
    assert (await call(named, method="GET", path="/b/capabilities")).status == 405
    assert (await call(AgentApp(hello), method="GET", path="/capabilities")).status == 405


async def test_a_declaration_of_the_wrong_shape_is_refused_at_once() -> None:
    """CAP-1: one's own."""
    with pytest.raises(Exception, match="identity"):
        AgentApp(hello, capabilities={"identity": 5})


# How it streams


async def test_silence_is_broken_by_a_comment() -> None:
    """HTTP-3: which every reader passes over."""

    async def agent(run: Run) -> None:
        await asyncio.sleep(0.12)

    connection = await call(AgentApp(agent, keep_alive=0.03))
    assert connection.writes.count(b": keep-alive\n\n") >= 2
    assert connection.types == ["RUN_STARTED", "RUN_FINISHED"]


async def test_events_that_wait_for_a_busy_socket_leave_in_one_write() -> None:
    async def agent(run: Run) -> None:
        async with run.text() as text:
            for number in range(100):
                await text.write(f"{number} ")
                await asyncio.sleep(0)

    async def busy(message: Message) -> None:
        await asyncio.sleep(0.05)

    connection = await call(AgentApp(agent), on_send=busy)
    assert len(connection.events()) == 104
    assert len(connection.writes) < 6


async def test_events_are_not_held_back_for_company() -> None:
    """One that comes alone leaves alone."""

    async def agent(run: Run) -> None:
        for _ in range(3):
            await run.custom("com.example.tick", None)
            await asyncio.sleep(0.02)

    connection = await call(AgentApp(agent))
    assert len(connection.writes) >= 4


async def test_a_slow_client_slows_its_agent_down() -> None:
    """Back-pressure: the agent is ahead by the capacity, and by what the socket has taken."""
    written = 0
    ahead: list[int] = []

    async def agent(run: Run) -> None:
        nonlocal written
        async with run.text() as text:
            for _ in range(200):
                await text.write("x")
                written += 1

    connection = Connection(AgentApp(agent, capacity=10), body=input_body())

    async def slow(message: Message) -> None:
        await asyncio.sleep(0.001)
        ahead.append(written - connection.answer.count(b"TEXT_MESSAGE_CONTENT"))

    connection.on_send = slow
    await connection.run()
    assert len(connection.events()) == 204
    assert max(ahead) <= 2 * (10 + 1)  # one load is on its way while the next one fills


async def test_a_client_that_goes_away_cancels_its_run() -> None:
    ended: list[str] = []

    async def agent(run: Run) -> None:
        try:
            await until_cancelled(run)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with no_task_left():
        connection = Connection(AgentApp(agent), body=input_body())
        asyncio.get_running_loop().call_later(0.05, connection.gone.set)
        began = time.monotonic()
        await connection.run()
    assert time.monotonic() - began < 4
    assert ended == ["cancelled"]
    assert not connection.complete


async def test_a_client_that_goes_away_may_leave_its_run_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    written: list[int] = []

    async def agent(run: Run) -> None:
        for number in range(300):
            await run.custom("com.example.tick", number)
            written.append(number)
            if number == 5:
                await asyncio.sleep(0.05)

    async with no_task_left():
        app = AgentApp(agent, on_disconnect="continue", capacity=4)
        connection = Connection(app, body=input_body())
        asyncio.get_running_loop().call_later(0.02, connection.gone.set)
        with caplog.at_level(logging.INFO, "aguia.server"):
            await connection.run()
    assert len(written) == 300
    assert "the client went away" in caplog.text
    assert "success after 302 events" in caplog.text
    for record in caplog.records:
        assert vars(record).items() >= {"thread_id": "thread", "run_id": "run"}.items()


@pytest.mark.parametrize("error", [OSError("broken pipe"), RuntimeError("middleware")])
async def test_a_socket_that_breaks_ends_the_run(error: Exception) -> None:
    async def broken(message: Message) -> None:
        if message["type"] == "http.response.body":
            raise error

    connection = Connection(AgentApp(until_cancelled), body=input_body(), on_send=broken)
    async with no_task_left():
        if isinstance(error, OSError):
            await connection.run()
        else:
            with pytest.raises(RuntimeError, match="middleware"):
                await connection.run()


async def test_an_agent_that_never_waits_is_cancelled_with_its_client() -> None:
    """A writer that does nothing but write must not hold the loop when nobody reads any more."""

    async def agent(run: Run) -> None:
        while True:
            await run.custom("com.example.tick", None)

    async with no_task_left(), asyncio.timeout(5):
        connection = Connection(AgentApp(agent), body=input_body())
        asyncio.get_running_loop().call_later(0.05, connection.gone.set)
        await connection.run()


# CORS

ORIGIN = {"origin": "https://app.example.com"}


async def test_pages_of_other_origins_may_ask_when_allowed() -> None:
    app = AgentApp(hello, allow_origins=["https://app.example.com"], capabilities={})
    preflight = await call(
        app,
        method="OPTIONS",
        headers={
            **ORIGIN,
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type, authorization",
        },
    )
    assert preflight.status == 200
    headers = preflight.answer_headers
    assert headers["access-control-allow-origin"] == "https://app.example.com"
    assert "POST" in headers["access-control-allow-methods"]
    assert "authorization" in headers["access-control-allow-headers"]
    allowed = await call(app, headers=ORIGIN)
    assert allowed.types == WHOLE
    assert allowed.answer_headers["access-control-allow-origin"] == "https://app.example.com"
    refusal = await call(app, headers=ORIGIN, body=b"{")
    assert refusal.status == 400
    assert refusal.answer_headers["access-control-allow-origin"] == "https://app.example.com"
    other = await call(app, headers={"origin": "https://evil.example.com"})
    assert "access-control-allow-origin" not in other.answer_headers


async def test_without_origins_there_is_no_cors() -> None:
    connection = await call(AgentApp(hello), headers=ORIGIN)
    assert "access-control-allow-origin" not in connection.answer_headers
    everyone = await call(AgentApp(hello, allow_origins=["*"]), headers=ORIGIN)
    assert everyone.answer_headers["access-control-allow-origin"] == "*"


# Shutdown


async def test_shutdown_gives_runs_their_grace_and_refuses_new_ones() -> None:
    """503, and the running run ends by itself."""
    app = AgentApp(lambda run: asyncio.sleep(0.1))
    running = asyncio.create_task(call(app))
    await asyncio.sleep(0.02)
    stopping = asyncio.create_task(app.shutdown(2))
    await asyncio.sleep(0)
    refused = await call(app)
    assert refused.status == 503
    assert refused.answer_headers["retry-after"] == "5"
    await stopping
    assert not cancelled(await running)


async def test_shutdown_cancels_what_outlives_its_grace() -> None:
    """RUN-10: in order, and told to the client."""
    app = AgentApp(until_cancelled)
    running = [asyncio.create_task(call(app)) for _ in range(3)]
    await asyncio.sleep(0.02)
    began = time.monotonic()
    await app.shutdown(0.05)
    assert time.monotonic() - began < 4
    for task in running:
        assert cancelled(await task)


async def test_shutdown_of_several_agents() -> None:
    apps = Agents(a=until_cancelled, b=until_cancelled)
    running = [asyncio.create_task(call(apps, path=path)) for path in ("/a", "/b")]
    await asyncio.sleep(0.02)
    await apps.shutdown(0)
    for task in running:
        assert cancelled(await task)


async def test_shutdown_of_an_idle_application_is_immediate() -> None:
    app = AgentApp(hello)
    await call(app)
    began = time.monotonic()
    await app.shutdown()
    assert time.monotonic() - began < 4


async def test_a_client_that_reads_nothing_does_not_hold_up_the_shutdown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stuck(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(60)

    app = AgentApp(until_cancelled, grace=0.05)
    connection = Connection(app, body=input_body(), on_send=stuck)
    running = asyncio.create_task(connection.run())
    await asyncio.sleep(0.02)
    began = time.monotonic()
    await app.shutdown(0.05)
    assert time.monotonic() - began < 4
    assert "1 clients do not read" in caplog.text
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_slow_upload_does_not_slip_past_the_shutdown() -> None:
    """503: the body was on its way when the server began to stop."""
    app = AgentApp(until_cancelled)
    arrived = asyncio.Event()
    pieces = iter([input_body()[:20], input_body()[20:]])
    first = True

    async def receive() -> Message:
        nonlocal first
        if not first:
            await arrived.wait()
        first = False
        piece = next(pieces, None)
        return {"type": "http.request", "body": piece, "more_body": not arrived.is_set()}

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    running = asyncio.create_task(app(scope, receive, send))
    await asyncio.sleep(0.01)
    await app.shutdown(0)
    arrived.set()
    await running
    assert sent[0]["status"] == 503


async def test_a_request_that_the_server_cuts_still_ends_in_order() -> None:
    """RUN-10: the task of the connection is cancelled, as a server does that is in a hurry."""
    async with no_task_left():
        connection = Connection(AgentApp(until_cancelled), body=input_body())
        running = asyncio.create_task(connection.run())
        await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert cancelled(connection)
    assert connection.complete


@pytest.mark.parametrize(
    "settings",
    [
        {"path": "run"},
        {"authenticate": "x"},
        {"max_runs": 0},
        {"deadline": -1},
        {"body_timeout": 0},
        {"keep_alive": 0},
        {"keep_alive": -1.0},
        {"keep_alive": float("nan")},
        {"grace": -1},
        {"max_steps": -1},
        {"capacity": -1},
        {"max_body_bytes": 0},
        {"on_disconnect": "stop"},
        {"capabilities": {"nope": 1}},
        {"allow_origins": [None]},
    ],
)
def test_settings_that_cannot_be_right_are_refused_at_once(settings: dict[str, Any]) -> None:
    async def agent(run: Run) -> None:
        pass

    with pytest.raises((TypeError, ValueError)):
        AgentApp(agent, **settings)
    if settings.keys() <= {"capacity", "deadline", "grace", "max_steps"}:
        with pytest.raises(ValueError, match=next(iter(settings))):
            InProcess(agent, **settings)


async def test_settings_at_their_limit_are_kept_to() -> None:
    async def agent(run: Run) -> None:
        await run.say("Hello.")
        async with run.step("s"):
            await asyncio.sleep(60)

    app = AgentApp(agent, grace=0, capacity=0, max_steps=0)
    async with no_task_left():
        connection = await call(app, body=input_body())
    assert cancelled(connection)
    assert "STEP_STARTED" not in connection.types


async def test_without_keep_alive_silence_stays_silent() -> None:
    async def agent(run: Run) -> None:
        await asyncio.sleep(0.1)

    chatty = await call(AgentApp(agent, keep_alive=0.01))
    silent = await call(AgentApp(agent, keep_alive=None))
    assert b": keep-alive" in chatty.answer
    assert b"keep-alive" not in silent.answer
    assert silent.types == ["RUN_STARTED", "RUN_FINISHED"]


@pytest.mark.parametrize(
    ("origin", "sent_by_browsers"),
    [
        ("https://app.example.com", True),
        ("http://localhost:5173", True),
        ("http://[::1]:8000", True),
        ("capacitor://localhost", True),
        ("https://xn--bcher-kva.example", True),
        ("null", True),
        ("*", True),
        ("http://localhost:5173/", False),
        ("https://app.example.com/chat", False),
        ("https://App.example.com", False),
        ("https://bücher.example", False),
        ("http://app.example.com:80", False),
        ("https://app.example.com:443", False),
        ("https://*.example.com", False),
        ("localhost:5173", False),
        ("app.example.com", False),
        ("", False),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused_at_once(
    origin: str, sent_by_browsers: bool
) -> None:
    if sent_by_browsers:
        AgentApp(hello, allow_origins=[origin])
        return
    with pytest.raises(ValueError, match="is no origin, which is a scheme and a host"):
        AgentApp(hello, allow_origins=[origin])


@pytest.mark.parametrize("agent", ["hello:agent", None, 5])
def test_what_is_no_agent_is_refused_at_once(agent: Any) -> None:
    with pytest.raises(TypeError, match="an agent is a function"):
        AgentApp(agent)


async def test_authentication_may_be_synchronous_and_one_origin_a_string() -> None:
    seen: list[Any] = []

    async def agent(run: Run) -> None:
        seen.append(run.principal)

    app = AgentApp(agent, authenticate=lambda request: "ana", allow_origins="https://a.example")
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as client:
        response = await client.post(
            "/",
            json={"threadId": "t", "runId": "r", "messages": []},
            headers={"origin": "https://a.example"},
        )
    assert response.headers["access-control-allow-origin"] == "https://a.example"
    assert seen == ["ana"]


async def test_a_hostile_input_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """PROC-12: what was removed is told, up to a number."""

    async def agent(run: Run) -> None:
        pass

    messages = [{"id": f"m{n}", "role": "user", "content": "", "x": 1} for n in range(500)]
    transport = httpx.ASGITransport(AgentApp(agent))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as client:
        body = {"threadId": "t", "runId": "r", "messages": messages}
        response = await client.post("/", json=body)
    assert response.status_code == 200
    told = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 21
    assert "more of the run input" in told[-1].getMessage()


async def no_parameter() -> None: ...


async def asgi(scope: Any, receive: Any, send: Any) -> None: ...


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        (no_parameter, "can't be called with one argument"),
        (asgi, "this is an ASGI application"),
        (Starlette(), "this is an ASGI application"),
    ],
)
async def test_what_no_run_can_call_is_refused_at_once(agent: Any, said: str) -> None:
    for made in (AgentApp, InProcess):
        with pytest.raises(TypeError, match=said):
            made(agent)
    app = AgentApp(functools.partial(asgi, receive=None, send=None))
    assert app.running == 0


async def test_a_refusal_leaves_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """HTTP-4: status, reason, rule and place, and nothing of what was sent."""

    def authenticate(request: Request) -> str:
        if request.headers.get("authorization") == "Bearer secret":
            raise HTTPException(403, "not for you")
        return "ana"

    app = AgentApp(hello, authenticate=authenticate, max_body_bytes=100, path="/agent")
    wrong = "must be a string (at '/runId') [PROC-3]"
    requests: list[tuple[dict[str, Any], int, str]] = [
        ({"method": "GET"}, 405, "a run is started by POST"),
        ({"path": "/secret"}, 404, "the agent is at /agent"),
        ({"headers": {"authorization": "Bearer secret"}}, 403, "not for you"),
        ({"headers": {"content-type": "x/secret"}}, 415, "the run input is sent as"),
        ({"body": b"secret" * 50}, 413, "the run input is larger than 100 bytes"),
        ({"body": b'{"secret'}, 400, "the body is not JSON: Unterminated string"),
        ({"body": b'{"threadId":"t","runId":1}'}, 400, wrong),
        ({"body": b'{"threadId":"secret","runId":["x"]}'}, 400, "must be a string, not an array"),
        ({"body": b'{"threadId":"t","runId":"r","messages":"secret"}'}, 400, "must be an array"),
    ]
    for request, status, said in requests:
        caplog.clear()
        with caplog.at_level(logging.INFO, "aguia.server"):
            connection = await call(app, **{"path": "/agent", **request})
        assert connection.status == status
        [record] = caplog.records
        assert (record.name, record.levelname) == ("aguia.server", "INFO")
        assert f"refused a request with {status}: {said}" in record.getMessage()
        assert "secret" not in caplog.text
        assert vars(record)["status"] == status
        assert vars(record).get("rule") == connection.error.get("rule")
    with caplog.at_level(logging.INFO, "aguia.server"):
        await call(Agents(a=hello), path="/b")
    assert "refused a request with 404: the agents are at /a" in caplog.text
