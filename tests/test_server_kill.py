"""Real servers that lose their clients, are told to stop, or have to do with unruly agents."""

import asyncio
import os
import signal
import socket
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import uvicorn

import aguia
from aguia import Consumer
from aguia.server import AgentApp, GracefulServer, Run
from support_asgi import input_body
from support_runs import plain

pytestmark = pytest.mark.anyio

BOUND: Final = 4.5
"""Seconds in which everything here has to be over."""

SSE: Final = "text/event-stream"
BINARY: Final = "application/vnd.ag-ui.event+proto"
HEADERS: Final = {"content-type": "application/json", "accept": SSE}


class Odd(BaseException):
    """Nothing that anybody expects."""


async def hello(run: Run) -> None:
    await run.say("Hello.")


async def ticking(run: Run) -> None:
    async with run.step("tick"), run.text(message_id="m") as text:
        while True:
            await text.write("tick ")
            await asyncio.sleep(0.005)


LET_GO: Final = threading.Event()


async def stubborn(run: Run) -> None:
    """Ignores its cancellation until it is told to let go."""
    async with run.text(message_id="m") as text:
        await text.write("I stay.")
        while not LET_GO.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                pass


async def flooding(run: Run) -> None:
    async with run.text(message_id="m") as text:
        while True:
            await text.write("x" * 10_000)


class Watch:
    """An agent around another, that notes when it begins and ends."""

    def __init__(self, agent: Callable[[Run], Any]) -> None:
        self.agent = agent
        self.runs = 0
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, run: Run) -> None:
        self.runs += 1
        self.begun.set()
        try:
            await self.agent(run)
        finally:
            self.ended.set()


@asynccontextmanager
async def serving(
    app: AgentApp, *, grace: float = 0.2, left: int = 0
) -> AsyncIterator[tuple[GracefulServer, str]]:
    """Serve on this loop while the block runs; asserts that it ends, and what tasks it leaves."""
    before = asyncio.all_tasks()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, ws="none", lifespan="on")
    server = GracefulServer(config, app, grace=grace)
    task = asyncio.create_task(server.serve([listener]))
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    try:
        yield server, f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.stop()
        async with asyncio.timeout(BOUND):
            await task
        listener.close()
    for _ in range(5):
        await asyncio.sleep(0)
    tasks = asyncio.all_tasks() - before
    assert len(tasks) == left
    if tasks:
        LET_GO.set()
        await asyncio.wait(tasks)
        LET_GO.clear()


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=2 * BOUND, verify=False)


async def read(url: str, accept: str = SSE, **members: Any) -> bytes:
    """The whole body of a run's answer."""
    async with client() as asking:
        headers = {**HEADERS, "accept": accept}
        answer = await asking.post(url, content=input_body(**members), headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == accept
    return answer.content


def last_of(body: bytes, content_type: str = SSE) -> dict[str, Any]:
    """The last event of a body, which has to be a whole stream."""
    assert content_type == BINARY or body.endswith(b"\n\n")
    consumer = Consumer(content_type=content_type)
    events = [*consumer.receive(body), *consumer.end()]
    return plain(events[-1])


CANCELLED: Final = {
    "type": "RUN_FINISHED",
    "threadId": "thread",
    "runId": "run",
    "outcome": {"type": "cancelled"},
}
FAILED: Final = {"type": "RUN_ERROR", "message": "The agent failed. Its log says why."}


@pytest.mark.parametrize("agent", [ticking, flooding])
async def test_a_client_that_goes_away_ends_its_run(agent: Callable[[Run], Any]) -> None:
    """Also one that has read nothing of a flood."""
    watch = Watch(agent)
    async with serving(AgentApp(watch)) as (_, url), client() as asking:
        async with asking.stream("POST", url, content=input_body(), headers=HEADERS) as answer:
            assert answer.status_code == 200
            await watch.begun.wait()
            await asyncio.sleep(0.05)
            assert not watch.ended.is_set()
        async with asyncio.timeout(BOUND):
            await watch.ended.wait()
        assert (await asking.get(url)).status_code == 405  # the server is still there


async def test_a_connection_that_is_reset_ends_its_run() -> None:
    """A client that dies without a word: no end of the request, a reset and not a close."""
    watch = Watch(ticking)
    async with serving(AgentApp(watch)) as (_, url):
        port = httpx.URL(url).port
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        body = input_body()
        head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        await watch.begun.wait()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        writer.transport.abort()
        async with asyncio.timeout(BOUND):
            await watch.ended.wait()


async def test_a_client_that_goes_away_while_it_sends_starts_no_run() -> None:
    watch = Watch(hello)
    async with serving(AgentApp(watch)) as (_, url):
        _, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        writer.write(head + b'Content-Length: 1000\r\n\r\n{"threadId":')
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        await asyncio.sleep(0.05)
        assert not watch.begun.is_set()


async def test_a_stubborn_agent_is_cut_off_from_its_gone_client() -> None:
    """What is left of it is its own task, which nobody can end."""
    app = AgentApp(stubborn, grace=0.1)
    async with serving(app, left=1) as (_, url), client() as asking:
        async with asking.stream("POST", url, content=input_body(), headers=HEADERS):
            await asyncio.sleep(0.05)
        began = time.monotonic()
        await app.shutdown(0)
        assert time.monotonic() - began < BOUND


@pytest.mark.parametrize("binding", [SSE, BINARY])
async def test_a_server_that_stops_ends_its_runs_in_order(binding: str) -> None:
    """RUN-10: after the grace, each with a whole last frame that is a terminal event."""
    if binding == BINARY:
        pytest.importorskip("aguia.codec.protobuf")
    watch = Watch(ticking)
    async with serving(AgentApp(watch)) as (server, url):
        reading = [asyncio.create_task(read(url, binding)) for _ in range(5)]
        while watch.runs < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        began = time.monotonic()
        server.stop()
        bodies = await asyncio.gather(*reading)
    assert time.monotonic() - began < BOUND
    for body in bodies:
        assert last_of(body, binding) == CANCELLED


async def test_a_server_that_stops_lets_short_runs_end() -> None:
    async def short(run: Run) -> None:
        await asyncio.sleep(0.15)

    watch = Watch(short)
    async with serving(AgentApp(watch), grace=2) as (server, url):
        reading = asyncio.create_task(read(url))
        await watch.begun.wait()
        server.stop()
        assert last_of(await reading)["outcome"] == {"type": "success"}


async def _raises(run: Run) -> None:
    raise Odd("secret")


async def _exits(run: Run) -> None:
    async with run.text():
        sys.exit("secret")


async def _hangs_without_a_word(run: Run) -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    ("agent", "last"), [(_raises, FAILED), (_exits, FAILED), (_hangs_without_a_word, CANCELLED)]
)
async def test_an_unruly_agent_ends_its_own_run_only(
    agent: Callable[[Run], Any], last: dict[str, Any]
) -> None:
    """RUN-7, RUN-10: the server goes on, and other runs with it."""

    async def either(run: Run) -> None:
        await (agent if run.thread_id == "thread" else hello)(run)

    began = time.monotonic()
    async with serving(AgentApp(either, deadline=0.2)) as (_, url):
        unruly, ordinary = await asyncio.gather(read(url), read(url, threadId="other"))
        assert last_of(unruly) == last
        assert last_of(ordinary)["outcome"] == {"type": "success"}
        assert last_of(await read(url, threadId="other"))["type"] == "RUN_FINISHED"
    assert time.monotonic() - began < BOUND


# Processes of their own, told by signals


SERVER: Final = """
import asyncio, sys, time
import uvicorn
from aguia.server import AgentApp, Run, serve

async def ticking(run):
    async with run.step("tick"), run.text(message_id="m") as text:
        while True:
            await text.write("tick ")
            await asyncio.sleep(0.005)

async def stubborn(run):
    async with run.text(message_id="m") as text:
        while True:
            try:
                await text.write("I stay. ")
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                pass

async def interrupting(run):
    async with run.text(message_id="m") as text:
        await text.write("Bye.")
        await asyncio.sleep(0.1)
        raise KeyboardInterrupt

agent = globals()[sys.argv[1]]
app = AgentApp(agent, grace=0.3)
if sys.argv[2] == "serve":
    serve(app, port=int(sys.argv[3]), grace=0.2)
else:
    config = uvicorn.Config(app, port=int(sys.argv[3]), timeout_graceful_shutdown=1)
    uvicorn.Server(config).run()
"""


@asynccontextmanager
async def process(
    path: Path, port: int, agent: str, how: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    script = path / "server.py"
    script.write_text(textwrap.dedent(SERVER))
    source = str(Path(aguia.__file__).parent.parent)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script), agent, how, str(port)),
        env={**os.environ, "PYTHONPATH": source},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(15):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    assert child.returncode is None
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    break
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
@pytest.mark.parametrize(
    ("agent", "how", "number"),
    [
        ("ticking", "serve", signal.SIGTERM),
        ("ticking", "serve", signal.SIGINT),
        ("ticking", "uvicorn", signal.SIGTERM),
        ("stubborn", "serve", signal.SIGTERM),
        ("stubborn", "uvicorn", signal.SIGTERM),
        ("interrupting", "serve", None),
    ],
)
async def test_a_process_that_is_told_to_stop_ends_its_streams(
    tmp_path: Path, free_port: int, agent: str, how: str, number: signal.Signals | None
) -> None:
    """RUN-7, RUN-10, RUN-11: the last frame is whole and terminal, and the process ends."""
    url = f"http://127.0.0.1:{free_port}/"
    async with process(tmp_path, free_port, agent, how) as child:
        reading = [asyncio.create_task(read(url)) for _ in range(3)]
        if number is not None:
            await asyncio.sleep(0.3)
            child.send_signal(number)
        began = time.monotonic()
        bodies = await asyncio.gather(*reading)
        async with asyncio.timeout(2 * BOUND):
            await child.wait()
        assert time.monotonic() - began < 2 * BOUND
    if number is not None:
        assert [last_of(body) for body in bodies] == [CANCELLED] * 3
    else:
        # One of them has interrupted the process; that one failed, and the others were stopped.
        ends = [last_of(body) for body in bodies]
        assert FAILED in ends
        assert all(end in (FAILED, CANCELLED) for end in ends)
