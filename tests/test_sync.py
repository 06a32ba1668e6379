"""The client without async: the same over every transport, in scripts, threads and notebooks."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from aguia import HttpAgent, InvalidInput, RunFailed, TruncatedRun, client, sync
from aguia.client import CANCEL, AsgiTransport, ToolRequest
from aguia.protocol.input import RunAgentInput
from aguia.protocol.messages import ToolMessage
from aguia.server import AgentApp, InProcess, Run, RunError
from support_events import event
from support_server import serve
from support_wire import Script, reply


def test_the_other_kind_of_block_says_so() -> None:
    """Each kind of agent says which block it is for, and where the other kind is."""
    waiting: Any = HttpAgent("http://127.0.0.1:1/")
    with pytest.raises(TypeError, match=r"`async with`, or aguia\.sync\.HttpAgent"), waiting:
        pass

    async def enter(agent: Any) -> None:
        async with agent:
            pass

    with sync.HttpAgent("http://127.0.0.1:1/") as blocking:
        with pytest.raises(TypeError, match=r"use `with`, or aguia\.HttpAgent"):
            asyncio.run(enter(blocking))
        agents: list[Any] = [waiting, blocking]
        for agent in agents:
            with pytest.raises(AttributeError, match=r"give `state=` to `run` or `ask`"):
                agent.state = {}


async def assistant(run: Run) -> None:
    """Does what the last message asks for."""
    last = run.messages[-1]
    if isinstance(last, ToolMessage):
        async with run.text() as text:
            await text.write(f"The tool says {last.content}")
        return
    if run.resume:
        async with run.text() as text:
            await text.write(f"You say {run.resume.answer('sure')}")
        return
    match last.content:
        case "fail":
            raise RunError("Out of credit", code="quota")
        case "ask":
            run.interrupt("approval", interrupt_id="sure", response_schema={"type": "boolean"})
        case "tool":
            await run.call("add", {"a": 1, "b": 2})
        case "long":
            async with run.text() as text:
                for number in range(100_000):
                    await text.write(f"{number} ")
                    await asyncio.sleep(0.001)
        case _:
            run.state["turns"] = run.state.get("turns", 0) + 1
            async with run.text() as text:
                for word in ("Hello", " ", "you"):
                    await text.write(word)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(AgentApp(assistant, capabilities={"identity": {"name": "It"}})) as found:
        yield found


@pytest.fixture(params=["http", "asgi", "function"])
def agent(request: pytest.FixtureRequest, url: str) -> Iterator[sync.Agent]:
    made: sync.Agent
    match request.param:
        case "http":
            made = sync.HttpAgent(url)
        case "asgi":
            app = AgentApp(assistant, capabilities={"identity": {"name": "It"}})
            made = sync.Agent(AsgiTransport(app))
        case _:
            made = sync.Agent(InProcess(assistant, capabilities={"identity": {"name": "It"}}))
    with made:
        yield made


def test_a_run_is_iterated_and_the_thread_keeps_step(agent: sync.Agent) -> None:
    """The conversation is as far as the event just delivered, and no further."""
    text = ""
    stream = agent.run("Hi")
    for each in stream:
        if each.type == "TEXT_MESSAGE_CONTENT":
            text += each.delta
            assert stream.conversation.messages[-1].content == text
            assert agent.messages[-1].content == text
    assert text == "Hello you"
    assert (stream.result.outcome, stream.result.text) == ("success", text)
    assert agent.state == {"turns": 1}
    assert list(stream) == []


def test_ask_answers_or_raises(agent: sync.Agent) -> None:
    assert agent.ask("Hi").text == "Hello you"
    with pytest.raises(RunFailed, match="Out of credit") as caught:
        agent.ask("fail")
    assert caught.value.code == "quota"
    assert agent.ask("Hi").outcome == "success"


def test_a_question_is_answered(agent: sync.Agent) -> None:
    """INT-2, INT-7."""
    assert agent.ask("ask").outcome == "interrupted"
    with pytest.raises(InvalidInput, match="sure"):
        agent.run("Hi")
    with pytest.raises(InvalidInput, match="boolean"):
        agent.resume({"sure": "yes"})
    stream = agent.resume({"sure": True})
    list(stream)
    assert stream.result.text == "You say True"
    agent.ask("ask")
    assert agent.ask(resume={"sure": CANCEL}).outcome == "success"


def test_functions_run_with_consent_asked_in_a_thread(agent: sync.Agent) -> None:
    """SEC-2: who is asked may take his time, and ask the agent's own loop for something."""
    asked: list[tuple[str, bool]] = []
    loop_thread: list[int] = []

    def consent(request: ToolRequest) -> bool:
        asked.append((request.name, threading.get_ident() in loop_thread))
        return True

    async def where() -> None:
        loop_thread.append(threading.get_ident())

    agent._loop.run(where())
    with sync.Agent(agent._agent._transport, consent=consent) as again:

        @again.tool
        def add(a: int, b: int) -> int:
            return a + b

        assert again.ask("tool").text == "The tool says 3"
        again.consent = None
        assert "nobody can be asked" in again.ask("tool").text
        again.consent = lambda request: "Too late."
        assert "Too late." in again.ask("tool").text
    assert asked == [("add", False)]


def test_leaving_early_leaves_the_thread_usable(agent: sync.Agent) -> None:
    """RUN-11: by break, by closing, at the end of a block, and by cancelling from elsewhere."""
    for each in agent.run("long"):
        if each.type == "TEXT_MESSAGE_CONTENT":
            break
    with agent.run("long") as stream:
        next(stream)
    assert stream.result.outcome == "truncated"
    stream = agent.run("long")
    next(stream)
    stream.close()
    assert list(stream) == []
    stream = agent.run("long")
    next(stream)
    timer = threading.Timer(0.05, agent.cancel)
    timer.start()
    for _ in stream:
        pass
    assert stream.result.outcome == "truncated"
    threading.Timer(0.05, agent.cancel).start()
    with pytest.raises(TruncatedRun):
        agent.ask("long")
    assert agent.ask("Hi").text == "Hello you"


def test_one_run_at_a_time(agent: sync.Agent) -> None:
    stream = agent.run("Hi")
    next(stream)
    with pytest.raises(RuntimeError, match="one run"):
        agent.run("Hi")
    list(stream)


def test_everything_else_is_as_with_async(agent: sync.Agent) -> None:
    agent.messages.append("Before")
    agent.ask("Hi")
    fork = agent.fork("other")
    fork.ask("Hi")
    fork.close()
    assert (agent.state, fork.state) == ({"turns": 1}, {"turns": 2})
    assert fork.thread_id == "other"
    declared = agent.capabilities()
    assert declared is not None
    assert declared.identity
    assert declared.identity.name == "It"
    with sync.Agent(agent._agent._transport, history=agent.history()) as again:
        assert list(again.messages) == list(agent.messages)
    assert agent.thread_id in repr(agent)
    assert "Hello you" in agent._repr_html_()


def test_every_method_of_the_agent_has_its_twin() -> None:
    """Two classes, one way to do a thing."""
    for twin, original in ((sync.Agent, client.Agent), (sync.HttpAgent, client.HttpAgent)):
        url = "http://127.0.0.1:1/"
        made = (
            HttpAgent(url) if original is client.HttpAgent else client.Agent(InProcess(assistant))
        )
        public = {name for name in dir(made) if not name.startswith("_")} - {"url"}
        assert public - {name for name in dir(twin) if not name.startswith("_")} == set()
    twins = {"cancel", "conversation", "input", "result", "under_way"}
    assert twins <= set(dir(client.RunStream))
    assert twins <= set(dir(sync.RunStream))


@pytest.mark.anyio
async def test_it_works_inside_of_a_running_loop(url: str) -> None:
    """As in a notebook."""
    asyncio.get_running_loop()
    with sync.HttpAgent(url) as agent:
        assert agent.ask("Hi").text == "Hello you"


def test_agents_work_side_by_side_in_threads(url: str) -> None:
    def talk(_: int) -> str:
        with sync.HttpAgent(url) as agent:
            return "".join(agent.ask("Hi").text for _ in range(3))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(talk, range(16))) == {"Hello you" * 3}


def test_one_agent_is_used_from_several_threads(url: str) -> None:
    """One run at a time: the others are refused, and none is lost or mixed up."""
    with sync.HttpAgent(url) as agent:
        done: list[str] = []

        def talk(_: int) -> None:
            for _ in range(200):
                try:
                    done.append(agent.ask("Hi").text)
                except RuntimeError:
                    time.sleep(0.005)
                else:
                    return

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(talk, range(4)))
        assert done == ["Hello you"] * 4
        assert agent.state == {"turns": 4}


def test_a_client_of_the_callers_is_used() -> None:
    script = Script(reply(event("STATE_SNAPSHOT", snapshot=1)))
    http = httpx.AsyncClient(transport=httpx.MockTransport(script))
    with sync.HttpAgent("http://agent.example/", client=http, headers={"x": "y"}) as agent:
        agent.ask("Hi")
        assert agent.state == 1
    assert script.requests[0].headers["x"] == "y"


def test_the_loop_ends_with_the_agent_and_starts_again(url: str) -> None:
    agent = sync.HttpAgent(url)
    threads = threading.active_count()
    agent.ask("Hi")
    assert threading.active_count() == threads + 1
    agent.close()
    assert threading.active_count() == threads
    assert agent.messages[-1].content == "Hello you"
    agent.ask("Hi")
    assert agent.state == {"turns": 2}
    agent.close()
    agent.close()


def test_an_agent_that_nobody_holds_takes_its_thread_along(url: str) -> None:
    before = set(threading.enumerate())
    agent = sync.HttpAgent(url)
    agent.ask("Hi")
    (thread,) = set(threading.enumerate()) - before
    del agent
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_waiting_in_the_loop_for_the_loop_is_refused(url: str) -> None:
    with sync.HttpAgent(url) as agent:

        async def consent(request: ToolRequest) -> bool:
            with pytest.raises(RuntimeError, match="own event loop"):
                agent.capabilities()
            return True

        with sync.Agent(InProcess(assistant), consent=consent) as other:
            other._loop = agent._loop

            @other.tool
            def add(a: int, b: int) -> int:
                return a + b

            assert other.ask("tool").text == "The tool says 3"


SCRIPT = """
    import signal
    import sys
    from aguia.sync import HttpAgent

    # Whoever started this may have had it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    agent = HttpAgent(sys.argv[1])
    for event in agent.run(sys.argv[2]):
        print(event.type, flush=True)
        if len(sys.argv) > 3 and event.type == "TEXT_MESSAGE_CONTENT":
            break
    print("end", flush=True)
"""


def script(tmp_path: Path) -> list[str]:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    return [sys.executable, "-W", "error", str(path)]


def test_a_script_that_closes_nothing_ends(url: str, tmp_path: Path) -> None:
    """Also in the middle of a run."""
    for arguments in (["Hi"], ["long", "break"]):
        done = subprocess.run(
            [*script(tmp_path), url, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1] == "end"


@pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them")
def test_ctrl_c_ends_a_script(url: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*script(tmp_path), url, "long"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("TEXT_MESSAGE_CONTENT"):
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode != 0
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_closing_from_elsewhere_ends_a_run(url: str) -> None:
    """RUN-11."""
    agent = sync.HttpAgent(url)
    stream = agent.run("long")
    next(stream)
    threading.Timer(0.05, agent.close).start()
    with pytest.raises(TruncatedRun):
        for _ in stream:
            pass
    assert stream.result.outcome == "truncated"


def test_a_run_whose_agent_was_closed_is_no_success(url: str) -> None:
    """RUN-11: also between two events, with nobody waiting."""
    agent = sync.HttpAgent(url)
    stream = agent.run("long")
    while next(stream).type != "TEXT_MESSAGE_CONTENT":
        pass
    agent.close()
    with agent, pytest.raises(TruncatedRun):
        list(stream)
    assert stream.result.outcome == "truncated"


def test_agents_are_closed_while_others_use_them() -> None:
    """What comes after the end of the loop would wait for ever."""
    agent = sync.Agent(InProcess(assistant))
    ended = threading.Event()

    def ask() -> None:
        for _ in range(50):
            try:
                agent.ask("Hi")
            except TruncatedRun:
                pass
        ended.set()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    until = time.monotonic() + 30
    while not ended.wait(0.001) and time.monotonic() < until:
        agent.close()
    assert ended.is_set()
    agent.close()


class _SlowToClose:
    """A transport whose runs start and go no further, and which takes its time to close."""

    def __init__(self) -> None:
        self.closing = threading.Event()

    @asynccontextmanager
    async def open(self, input: RunAgentInput) -> AsyncIterator[client.Answer]:
        async def body() -> AsyncIterator[Any]:
            yield event("RUN_STARTED", threadId=input.thread_id, runId=input.run_id)
            await asyncio.sleep(3600)

        try:
            yield client.Answer(None, body())
        finally:
            self.closing.set()
            await asyncio.sleep(0.3)

    async def close(self) -> None:
        pass


def test_a_loop_that_ends_leaves_the_next_ones_runs_alone() -> None:
    """The agent is used again while the loop from before is still closing its runs."""
    transport = _SlowToClose()

    def read() -> None:
        with pytest.raises(TruncatedRun):
            held.ask("Hi")

    with sync.Agent(transport) as held:
        reading = threading.Thread(target=read)
        reading.start()
        while not list(held.messages):
            time.sleep(0.001)
        closing = threading.Thread(target=held.close)
        closing.start()
        assert transport.closing.wait(10)
        stream = held.fork().run("Hi")
        next(stream)
        closing.join()
        reading.join()
        assert stream.under_way


class _SlowToForget(_SlowToClose):
    """A transport that has left something open in the loop of its first run."""

    @asynccontextmanager
    async def open(self, input: RunAgentInput) -> AsyncIterator[client.Answer]:
        async def lasting() -> AsyncIterator[None]:
            try:
                yield
            finally:
                self.closing.set()
                await asyncio.sleep(0.3)

        async def body() -> AsyncIterator[Any]:
            run = {"threadId": input.thread_id, "runId": input.run_id}
            yield event("RUN_STARTED", **run)
            yield event("RUN_FINISHED", **run)

        if not self.closing.is_set():
            self.left_open = lasting()
            await anext(self.left_open)
        yield client.Answer(None, body())


def test_a_loop_that_has_closed_its_runs_leaves_those_of_the_next_one_alone() -> None:
    transport = _SlowToForget()
    with sync.Agent(transport) as agent:
        agent.ask("Hi")
        closing = threading.Thread(target=agent.close, daemon=True)
        closing.start()
        assert transport.closing.wait(10)
        stream = agent.run("Hi")
        next(stream)
        closing.join(10)
        assert not closing.is_alive()
        assert stream.under_way
        list(stream)
        assert stream.result.outcome == "success"


def test_after_cancelling_there_is_no_further_event() -> None:
    """Neither of those that have arrived already, nor where the run has not begun."""
    script = Script(reply(event("CUSTOM", name="a", value=1), event("CUSTOM", name="b", value=2)))
    with sync.HttpAgent(
        "http://agent.example/", client=httpx.AsyncClient(transport=httpx.MockTransport(script))
    ) as agent:
        stream = agent.run("Hi")
        stream.cancel()
        assert list(stream) == []
        stream = agent.run("Hi")
        next(stream)
        stream.cancel()
        assert list(stream) == []
        assert stream.result.outcome == "truncated"


def test_an_interrupted_event_is_not_skipped() -> None:
    """RUN-11: who is interrupted in the middle of an event has lost it, and the run with it."""

    def interrupt(warning: Any) -> None:
        raise KeyboardInterrupt

    script = Script(reply({"type": "NOBODY_KNOWS"}), reply())
    with sync.HttpAgent(
        "http://agent.example/",
        client=httpx.AsyncClient(transport=httpx.MockTransport(script)),
        on_warning=interrupt,
    ) as agent:
        stream = agent.run("Hi")
        with pytest.raises(KeyboardInterrupt):
            list(stream)
        assert (list(stream), stream.result.outcome) == ([], "truncated")
        assert agent.ask("Again").outcome == "success"


def test_options_are_passed_on() -> None:
    sent: list[Any] = []

    async def show(run: Run) -> None:
        sent.append((run.forwarded_props, [tool.name for tool in run.tools], run.state))

    with sync.Agent(InProcess(show), state={"a": 1}) as agent:
        agent.ask("Hi", forwarded_props=1, tools=[{"name": "t", "description": ""}])
        agent.ask("Hi", state={"b": 2})
    assert sent == [(1, ["t"], {"a": 1}), ({}, [], {"b": 2})]
