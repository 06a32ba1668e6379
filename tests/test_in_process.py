"""An agent function as a transport, without HTTP."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from aguia import Agent, InputRejected, RunAgentInput, UserMessage
from aguia.client import SSE, DeclaringTransport
from aguia.protocol.common import UNSET
from aguia.protocol.events import Event
from aguia.server import InProcess, Run
from support_runs import no_task_left, run_input

pytestmark = pytest.mark.anyio

INPUT: Final = run_input(threadId="t", runId="r")


async def collect(agent: Agent, content: Any = "Hi", **options: Any) -> list[Event]:
    return [event async for event in agent.run(content, **options)]


def types(events: list[Event]) -> list[str]:
    return [event.type for event in events]


async def hello(run: Run) -> str:
    async with run.text() as text:
        await text.write(f"{len(run.messages)} messages")
    return "done"


async def test_a_thread_is_held_with_a_function() -> None:
    """TRANS-1, PROC-7: what comes is verified, expanded and applied as over HTTP."""
    async with no_task_left(), Agent(InProcess(hello), state={"a": 1}) as agent:
        events = await collect(agent)
        assert types(events) == [
            *("RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
            "RUN_FINISHED",
        ]
        await collect(agent, "And now?")
        assert [message.content for message in agent.messages] == [
            *("Hi", "1 messages", "And now?", "3 messages")
        ]
        assert agent.result == "done"
        assert agent.state == {"a": 1}


async def test_generators_of_plain_events_are_agents_as_well() -> None:
    async def chunks(run: Run) -> AsyncIterator[Any]:
        yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Olá"}

    def in_a_thread(run: Run) -> Iterator[Any]:
        yield {"type": "CUSTOM", "name": "n", "value": None}

    async with Agent(InProcess(chunks)) as agent:
        await collect(agent)
        assert agent.messages[-1].content == "Olá"
    async with Agent(InProcess(in_a_thread)) as agent:
        assert "CUSTOM" in types(await collect(agent))


async def test_the_agent_has_an_input_of_its_own() -> None:
    async def spoiling(run: Run) -> None:
        given: Any = run.input
        given.messages.clear()
        given.forwarded_props["a"].append(2)
        given.state["b"].append(1)

    props: dict[str, Any] = {"a": [1]}
    async with Agent(InProcess(spoiling), state={"b": []}) as agent:
        stream = agent.run("Hi", forwarded_props=props)
        async for _ in stream:
            pass
        assert props == {"a": [1]}
        assert stream.input.messages != []
        assert agent.state == {"b": []}
        assert len(agent.messages) == 1


async def test_events_come_as_they_are_made() -> None:
    go = asyncio.Event()

    async def waiting(run: Run) -> None:
        async with run.text() as text:
            await text.write("one")
            await go.wait()

    async with asyncio.timeout(5), Agent(InProcess(waiting)) as agent:
        async for event in agent.run("Hi"):
            if event.type == "TEXT_MESSAGE_CONTENT":
                go.set()


async def test_a_slow_reader_slows_the_agent_down() -> None:
    written: list[int] = []

    async def fast(run: Run) -> None:
        async with run.text() as text:
            for number in range(200):
                await text.write("x")
                written.append(number)

    async with InProcess(fast, capacity=4).open(INPUT) as answer:
        assert answer.content_type == SSE
        await anext(answer.body)
        await asyncio.sleep(0.01)
        assert len(written) <= 8
        rest = b"".join([chunk async for chunk in answer.body])
        assert rest.count(b"TEXT_MESSAGE_CONTENT") > 190
        assert rest.count(b"RUN_FINISHED") == 1


@pytest.mark.parametrize("when", ["during", "before"])
async def test_leaving_early_cancels_the_run(when: str) -> None:
    """As a client does that disconnects; the run is over when the one who left goes on."""
    seen: list[str] = []

    async def endless(run: Run) -> None:
        try:
            async with run.text() as text:
                while True:
                    await text.write("on and ")
        finally:
            seen.append("cancelled" if run.cancelled else "stopped")

    async with no_task_left():
        transport = InProcess(endless)
        async with transport.open(INPUT) as answer:
            if when == "during":
                for _ in range(5):
                    await anext(answer.body)
            else:
                await asyncio.sleep(0.01)
        assert seen == ["cancelled"]
        async with Agent(transport) as agent, agent.run("Hi") as stream:
            await anext(stream)
        assert seen == ["cancelled", "cancelled"]


async def test_what_a_run_says_to_nobody_keeps_nobody_waiting() -> None:
    """Its last words have no reader, and it must not wait for one."""
    ended: list[str] = []

    async def talkative(run: Run) -> None:
        try:
            async with run.text() as text:
                while True:
                    await text.write("on and ")
        finally:
            await run.custom("test.end", None)
            ended.append("by itself")

    async with InProcess(talkative, capacity=1).open(INPUT) as answer:
        await anext(answer.body)
    assert ended == ["by itself"]


async def test_a_reader_that_is_cancelled_cancels_the_run() -> None:
    seen: list[bool] = []

    async def asleep(run: Run) -> None:
        try:
            await asyncio.sleep(20)
        finally:
            seen.append(run.cancelled)

    async with no_task_left(), Agent(InProcess(asleep)) as agent:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await collect(agent)
        assert seen == [True]


async def test_an_agent_that_fails_says_so_and_shows_nothing() -> None:
    """RUN-8: its failure is reported, and its words stay here unless they may go."""

    async def failing(run: Run) -> None:
        raise LookupError("s3cret")

    async with no_task_left(), Agent(InProcess(failing)) as agent:
        assert types(await collect(agent)) == ["RUN_STARTED", "RUN_ERROR"]
        assert agent.error is not None
        assert "s3cret" not in agent.error.message
    async with Agent(InProcess(failing, expose_errors=True)) as agent:
        await collect(agent)
        assert agent.error is not None
        assert agent.error.message == "LookupError: s3cret"


async def test_settings_are_those_of_an_execution() -> None:
    async def slow(run: Run) -> None:
        assert run.principal == "me"
        await asyncio.sleep(20)

    async with asyncio.timeout(5), Agent(InProcess(slow, principal="me", deadline=0.05)) as agent:
        await collect(agent)
        assert agent.outcome is not None
        assert agent.outcome.type == "cancelled"


@pytest.mark.parametrize(
    ("changed", "rule", "path"),
    [
        ({"protocol_version": "2.0"}, "VER-2", "/protocolVersion"),
        ({"messages": [UserMessage(id=7, content="Hi")]}, "PROC-3", "/messages/0/id"),  # type: ignore[arg-type]
        ({"thread_id": UNSET}, "PROC-3", "/threadId"),
    ],
)
async def test_an_input_that_is_refused_starts_no_run(
    changed: dict[str, Any], rule: str, path: str
) -> None:
    """PROC-12, VER-2: as a server refuses it, without a status."""
    runs: list[Run] = []

    async def agent(run: Run) -> None:
        runs.append(run)

    members = {"thread_id": "t", "run_id": "r", "messages": [], **changed}
    transport = InProcess(agent)
    async with no_task_left():
        with pytest.raises(InputRejected) as caught:
            async with transport.open(RunAgentInput(**members)):
                raise AssertionError("it was accepted")
    assert (caught.value.status, caught.value.rule, caught.value.path) == (None, rule, path)
    assert runs == []


async def test_capabilities_are_those_given() -> None:
    transport: DeclaringTransport = InProcess(hello, capabilities={"custom": {"a": [None]}})
    declared = await transport.capabilities()
    assert declared == {"custom": {"a": [None]}}
    declared["custom"].clear()
    assert await transport.capabilities() == {"custom": {"a": [None]}}
    assert await InProcess(hello).capabilities() is None
    await transport.close()


def test_settings_that_cannot_be_right_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match="a function that takes a Run, not str"):
        InProcess("agent")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="above 0, or None, not 0"):
        InProcess(hello, deadline=0)
    with pytest.raises(ValueError, match="not as the schema has them"):
        InProcess(hello, capabilities={"tools": 7})
