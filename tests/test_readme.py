"""Every Python block of the README runs, and does what the text around it says."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aguia import (
    Consumer,
    ContentPart,
    DataSource,
    HttpAgent,
    ImagePart,
    RunAgentInput,
    RunFinishedInterruptOutcome,
    TextPart,
    UserMessage,
)
from aguia.cli.assistant.frontend import OPEN_FILE
from aguia.cli.tools import load_tools
from aguia.server import AgentApp, Run, run_agent
from support import REPOSITORY
from support_server import serve

pytestmark = pytest.mark.anyio

BLOCKS = re.findall(
    r"^```python\n(.*?)^```$", (REPOSITORY / "README.md").read_text(), re.DOTALL | re.MULTILINE
)
SERVER, WHOLE_AGENT, GENERATOR, CLIENT, SYNC, TOOLS, READER = BLOCKS

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


async def conversation(agent: Any, input: RunAgentInput = INPUT, **settings: Any) -> Any:
    warnings: list[Any] = []
    consumer = Consumer(input, on_warning=warnings.append)
    async for event in run_agent(agent, input, **settings):
        list(consumer.receive_event(event))
    list(consumer.end())
    assert not warnings
    return consumer.conversation


async def test_the_server() -> None:
    found = names(SERVER)
    assert isinstance(found["app"], AgentApp)
    thread = await conversation(found["agent"])
    assert thread.messages[-1].content == "You said: hello"


async def test_the_server_is_sent_an_image() -> None:
    """What is said is the text; the bytes of the image are no words."""
    parts: list[ContentPart] = [
        TextPart(text="hello"),
        ImagePart(source=DataSource(value="AAAA", mime_type="image/png")),
    ]
    input = msgspec.structs.replace(INPUT, messages=[UserMessage(id="m", content=parts)])
    thread = await conversation(names(SERVER)["agent"], input=input)
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


async def test_the_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Calls with consent and without, and a question."""
    (tmp_path / "eagle.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 24)
    monkeypatch.chdir(tmp_path)

    async def asks(run: Run) -> None:
        if run.tool_result("c-1") is None:
            sent = msgspec.to_builtins(run.messages[-1].content)
            assert [part["type"] for part in sent] == ["text", "image"]
            await run.call("weather", {"city": "Faro", "days": 2}, tool_call_id="c-1")
            await run.call("delete", {"path": "a.txt"}, tool_call_id="c-2")
            await run.call("delete", {"path": "a.py"}, tool_call_id="c-3")
        elif not run.resume:
            answers = [run.tool_result(f"c-{number}") for number in (1, 2, 3)]
            await run.say(" ".join(str(answer.content) for answer in answers if answer))
            run.interrupt("approval", response_type=bool, interrupt_id="sure")
        else:
            await run.say(f"You say {run.resume.answer('sure')}.")

    with serve(AgentApp(asks)) as url:
        async with HttpAgent(url) as client:
            await names(TOOLS)["main"](client)
            told = str(client.messages[-2].content)
    assert '{"sunshine hours":16}' in told
    assert told.endswith("Only text files.")
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["delete {'path': 'a.txt'}", "delete {'path': 'a.py'}", "You say True. []"]


def test_the_client_without_async(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(names(SERVER)["app"]) as url:
        names(SYNC.replace("http://127.0.0.1:8000/", url))
    assert capsys.readouterr().out == "success You said: Where is the parser tested?\n"


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


async def test_the_tools_of_the_chat_page(tmp_path: Path) -> None:
    """The functions that it shows are tools, and one is what the assistant calls."""
    page = (REPOSITORY / "docs" / "how-to" / "chat.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    path = tmp_path / "mytools.py"
    path.write_text(block, encoding="utf-8")
    offered = {tool.name: tool for tool in load_tools(str(path))}
    assert list(offered) == [OPEN_FILE, "today"]
    assert list(offered[OPEN_FILE].parameters["properties"]) == ["path"]
    assert offered["today"].read_only


def test_what_is_linked_is_there() -> None:
    text = (REPOSITORY / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (REPOSITORY / target).exists(), target
