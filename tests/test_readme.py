"""Every Python block of the README runs, and does what the text around it says."""

import re
from typing import Any

import pytest

from aguia import Consumer, HttpAgent, RunAgentInput, RunFinishedInterruptOutcome, UserMessage
from aguia.server import AgentApp, Run, run_agent
from support import REPOSITORY
from support_server import serve

pytestmark = pytest.mark.anyio

BLOCKS = re.findall(
    r"^```python\n(.*?)^```$", (REPOSITORY / "README.md").read_text(), re.DOTALL | re.MULTILINE
)
SERVER, WHOLE_AGENT, GENERATOR, CLIENT, ANSWERS, READER = BLOCKS

INPUT = RunAgentInput(
    thread_id="t",
    run_id="r",
    messages=[UserMessage(id="m", content="hello")],
    protocol_version="1.0",
)


def names(block: str) -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": "readme"}
    exec(compile(block, "README.md", "exec"), found)
    return found


async def conversation(agent: Any, **settings: Any) -> Any:
    warnings: list[Any] = []
    consumer = Consumer(INPUT, on_warning=warnings.append)
    async for event in run_agent(agent, INPUT, **settings):
        list(consumer.receive_event(event))
    list(consumer.end())
    assert not warnings
    return consumer.conversation


async def test_the_server() -> None:
    found = names(SERVER)
    assert isinstance(found["app"], AgentApp)
    thread = await conversation(found["agent"])
    assert thread.messages[-1].content == "You said: hello"


async def test_the_agent_that_says_everything() -> None:
    agent = names(WHOLE_AGENT)["agent"]
    thread = await conversation(agent)
    assert isinstance(thread.outcome, RunFinishedInterruptOutcome)
    assert [interrupt.id for interrupt in thread.interrupts] == ["sure"]
    assert thread.state == {"plan": [{"step": "look", "done": True}]}
    assert thread.messages[-1].content == "A page about three eagles."
    guest = await conversation(agent, principal="guest")
    assert guest.error.message == "Guests may not publish."
    assert guest.error.code == "guest"


async def test_the_generator() -> None:
    thread = await conversation(names(GENERATOR)["agent"])
    assert thread.messages[-1].content == "Hello there."


async def test_the_answers() -> None:
    """Both kinds, each over two runs."""
    with serve(AgentApp(names(WHOLE_AGENT)["agent"])) as url:
        async with HttpAgent(url) as client:
            await names(ANSWERS)["main"](client)
            assert client.messages[-1].content == "Published."
            assert client.result == {"published": 1}

    async def asks(run: Run) -> None:
        answer = run.tool_result("c-1")
        if answer is None:
            await run.call("weather", tool_call_id="c-1")
        else:
            await run.say(f"It is {answer.content}.")

    with serve(AgentApp(asks)) as url:
        async with HttpAgent(url) as client:
            await names(ANSWERS)["main"](client)
            assert client.messages[-1].content == "It is sunny."


async def test_the_client(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(names(SERVER)["app"]) as url:
        block = CLIENT.replace("http://127.0.0.1:8000/", url).replace("asyncio.run(main())", "")
        await names(block)["main"]()
    printed = capsys.readouterr().out
    assert "RunStartedEvent(" in printed
    assert printed.endswith("You said: Where is the parser tested? {}\n")


async def test_the_reader(capsys: pytest.CaptureFixture[str]) -> None:
    names(READER)
    assert capsys.readouterr().out.endswith("\nr\n")


def test_what_is_linked_is_there() -> None:
    text = (REPOSITORY / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (REPOSITORY / target).exists(), target
