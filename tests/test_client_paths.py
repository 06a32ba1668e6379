"""The built-in assistant called in every way: HTTP and in process, with async and without."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from aguia import Agent, HttpAgent, InvalidInput, sync
from aguia.cli.assistant import folder_assistant
from aguia.client import (
    CANCEL,
    PROTOBUF,
    AsgiTransport,
    Recording,
    RunResult,
    ToolRequest,
    image,
)
from aguia.middleware import Recorder
from aguia.protocol.messages import ToolMessage
from aguia.server import AgentApp, InProcess
from support_server import serve

pytestmark = pytest.mark.anyio

PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 24


class Face:
    """An agent with async or without, talked to in one way."""

    def __init__(self, agent: Agent | sync.Agent) -> None:
        self.agent = agent

    async def ask(self, content: Any = None, **options: Any) -> RunResult:
        if isinstance(self.agent, Agent):
            return await self.agent.ask(content, **options)
        ask = self.agent.ask
        return await anyio.to_thread.run_sync(lambda: ask(content, **options))

    async def resume(self, answers: Any) -> RunResult:
        return await self.ask(resume=answers)

    async def leave_at(self, type_: str, content: str) -> RunResult:
        """Run until an event of this type, and leave."""
        if isinstance(self.agent, Agent):
            async with self.agent.run(content) as stream:
                async for event in stream:
                    if event.type == type_:
                        break
            return stream.result
        run = self.agent.run

        def leave() -> RunResult:
            with run(content) as stream:
                for event in stream:
                    if event.type == type_:
                        break
            return stream.result

        return await anyio.to_thread.run_sync(leave)


Talk = Callable[..., Awaitable[Face]]

WAYS = ["http", "protobuf", "asgi", "function"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, content in {
        "src/parser.py": "def parse(text):\n    return text\n",
        "tests/test_parser.py": "from parser import parse\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


@pytest.fixture(params=[f"{way}-{face}" for way in WAYS for face in ("async", "sync")])
async def face(request: pytest.FixtureRequest, project: Path) -> AsyncIterator[Face]:
    way, kind = request.param.split("-")
    module: Any = sync if kind == "sync" else None
    assistant = folder_assistant(str(project))
    consented: list[ToolRequest] = []

    def consent(request: ToolRequest) -> bool | str:
        consented.append(request)
        return True if request.arguments["path"] != "src/parser.py" else "Not the parser."

    def made(url: str | None = None) -> Any:
        agents = module or __import__("aguia")
        if url is not None:
            accept = PROTOBUF if way == "protobuf" else "text/event-stream"
            return agents.HttpAgent(url, accept=accept, consent=consent)
        transport = AsgiTransport(AgentApp(assistant)) if way == "asgi" else InProcess(assistant)
        return agents.Agent(transport, consent=consent)

    if way in ("http", "protobuf"):
        with serve(AgentApp(assistant)) as url:
            agent = made(url)
            yield Face(agent)
            await _close(agent)
    else:
        agent = made()
        yield Face(agent)
        await _close(agent)


async def _close(agent: Any) -> None:
    if isinstance(agent, Agent):
        await agent.close()
    else:
        await anyio.to_thread.run_sync(agent.close)


async def test_a_whole_conversation(face: Face, project: Path) -> None:
    """FRONT-5, INT-2, SEC-2: text, a question, an approval, a refusal, tools of the client's."""
    agent = face.agent
    opened: list[str] = []

    @agent.tool
    def open_file(path: str) -> str:
        """Open a file where the person is."""
        opened.append(path)
        return f"{path} is open"

    result = await face.ask("find parse")
    assert result.outcome == "success"
    assert "src/parser.py:1: def parse(text):" in str(list(agent.messages))
    assert result.result["lines"] >= 2
    assert [step["status"] for step in agent.state["plan"]] == ["done"] * 2

    # A frontend tool, with consent and without.
    result = await face.ask("open tests/test_parser.py")
    assert (result.outcome, result.runs, opened) == ("success", 2, ["tests/test_parser.py"])
    assert "tests/test_parser.py is open" in result.text
    result = await face.ask("open src/parser.py")
    assert (result.runs, len(opened)) == (2, 1)
    assert "Not the parser." in result.text

    # An approval: refused before it is sent when it does not fit, then declined, then given.
    change = "replace parse with read in src/parser.py"
    result = await face.ask(change)
    assert result.outcome == "interrupted"
    (question,) = result.interrupts
    with pytest.raises(InvalidInput, match="INT-2"):
        await face.ask("And now?")
    with pytest.raises(InvalidInput, match="INT-7"):
        await face.resume({question.id: "yes"})
    assert (await face.resume({question.id: CANCEL})).outcome == "success"
    assert "def parse" in (project / "src/parser.py").read_text()
    (question,) = (await face.ask(change)).interrupts
    assert (await face.resume({question.id: {"approved": True}})).outcome == "success"
    assert "def read" in (project / "src/parser.py").read_text()

    # Leaving in the middle, a picture, a fork, a history.
    left = await face.leave_at("TEXT_MESSAGE_CONTENT", "read src/parser.py")
    assert left.outcome == "truncated"
    assert (await face.ask(["help", image(PIXEL)])).outcome == "success"
    history = agent.history()
    fork = agent.fork()
    assert (await Face(fork).ask("count *.py")).result["files"] == 2
    assert agent.history() == history
    answered = [each.tool_call_id for each in agent.messages if isinstance(each, ToolMessage)]
    assert len(answered) == len(set(answered))
    assert agent.pending_tool_calls == []


async def test_a_recording_of_it_means_the_same(project: Path, tmp_path: Path) -> None:
    """PROC-7: what was recorded over HTTP, played back as a transport."""
    path = tmp_path / "recording.jsonl"
    asked = ["find parse", "tree", "count"]
    with serve(AgentApp(folder_assistant(str(project)))) as url, Recorder(path) as recorder:
        async with HttpAgent(url, middleware=[recorder], thread_id="t") as agent:
            results = [await agent.ask(each) for each in asked]
            state = agent.state
    async with Agent(Recording(path), thread_id="t") as again:
        replayed = [await again.ask(each) for each in asked]
        assert again.state == state
    assert [each.text for each in replayed] == [each.text for each in results]
    assert [each.result for each in replayed] == [each.result for each in results]
