"""Every example runs as it says, as a process of its own, and what its agent says is flawless."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from aguia import (
    ActivityMessage,
    Agent,
    AssistantMessage,
    DataSource,
    DeveloperMessage,
    DocumentPart,
    Event,
    FunctionCall,
    HttpAgent,
    ImagePart,
    Interrupt,
    ReasoningMessage,
    StateDeltaEvent,
    SystemMessage,
    TextPart,
    Tool,
    ToolCall,
    ToolMessage,
    UrlSource,
    UserMessage,
)
from aguia.client import CANCEL, HttpTransport
from aguia.server import AgentApp, Run
from aguia.testing import FaultyApp
from aguia.testing.clients import ClientFactory
from support import REPOSITORY, require_peers
from support_cli import aguia
from support_openai import Answer, FakeModel, calls, says
from support_server import serve

pytestmark = [pytest.mark.unmeasured, pytest.mark.anyio]

EXAMPLES: Final = REPOSITORY / "examples"
SECONDS: Final = 30.0
ALWAYS: Final = {"PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1", "NO_PROXY": "127.0.0.1"}


class Server:
    """An example that is being served.

    Attributes:
        url: where it answers.
        process: its process.
    """

    def __init__(self, url: str, process: "subprocess.Popen[bytes]", out: Path, log: Path) -> None:
        self.url = url
        self.process = process
        self._out = out
        self._log = log

    @property
    def printed(self) -> str:
        """What the agents have printed so far, behind what the command says of itself."""
        return self._out.read_text(encoding="utf-8").partition("Ctrl-C ends it.\n")[2]

    @property
    def log(self) -> str:
        """What the process has logged so far."""
        return self._log.read_text(encoding="utf-8")


@contextmanager
def served(arguments: Iterable[str], folder: Path, **environment: str) -> Iterator[Server]:
    """Runs Python in the folder of the examples until the block ends."""
    folder.mkdir()
    out, log = folder / "out", folder / "log"
    with out.open("wb") as out_file, log.open("wb") as log_file:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=EXAMPLES,
            env={**os.environ, **ALWAYS, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=log_file,
        )
    try:
        yield Server(address(process, out, log), process, out, log)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(SECONDS)


def address(process: "subprocess.Popen[bytes]", *files: Path) -> str:
    """The first URL that the process writes about."""
    said = ""
    for _ in range(int(SECONDS / 0.02)):
        said = "".join(file.read_text(encoding="utf-8") for file in files)
        if found := re.search(r"\bhttp://[\d.:]+/?(?=\s)", said):
            return found[0].rstrip("/") + "/"
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        break
    pytest.fail(f"the example does not serve:\n{said}")


Start = Callable[..., Server]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts `aguia serve NAME`, with variables for its environment, until the module's end."""
    with ExitStack() as stack:

        def start(name: str, **environment: str) -> Server:
            folder = tmp_path_factory.mktemp("example") / "files"
            arguments = ["-m", "aguia", "serve", name, "--port", "0"]
            return stack.enter_context(served(arguments, folder, **environment))

        yield start


def program(name: str, url: str, typed: str = "") -> str:
    """What the program in an example prints when it talks to the agent at the URL."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}; {name}.main({url!r})"],
        cwd=EXAMPLES,
        env={**os.environ, "PYTHONUTF8": "1"},
        input=typed,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def watched(
    agui_client: ClientFactory, url: str, headers: dict[str, str] | None = None, **options: Any
) -> Agent:
    """A client whose test fails for anything that the agent should not say, doubts included."""
    transport = HttpTransport(url, headers=headers, retries=0)
    return agui_client(transport, warnings=True, **options)


async def events_of(agent: Agent, *said: Any, **options: Any) -> list[Event]:
    return [event async for event in agent.run(*said, **options)]


def types(events: Iterable[Event], owner: str | None = None) -> list[str]:
    """The types of the events that belong to an owner."""
    return [
        event.type for event in events if (getattr(event, "subagent_run_id", None) or None) == owner
    ]


# The folder


def test_the_table_names_every_example() -> None:
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| \[(\S+\.py)\]\(\./\1\) \|", table, re.MULTILINE)
    assert sorted(named) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_says_how_to_run_it(path: Path) -> None:
    """By commands of its docstring that name it, and are those of the table."""
    source = path.read_text(encoding="utf-8")
    docstring = source.split('"""')[1]
    [row] = [
        line
        for line in (EXAMPLES / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| [{path.name}]")
    ]
    commands = re.findall(r"`([^`]+)`", row.split("|")[3])
    assert commands
    for command in commands:
        assert command in docstring
    assert all(len(line) <= 100 for line in source.splitlines())


def pyright(*arguments: str) -> Any:
    """What pyright reports, as JSON; it knows the packages that this Python has."""
    folder = Path(sys.executable).parent
    done = subprocess.run(
        [str(require_peers() / ".bin" / "pyright"), "--outputjson", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        encoding="utf-8",
        timeout=110,  # before the test is taken for one that hangs
        check=False,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_pyright() -> None:
    """Strictly, as a stranger's editor sees the examples and the package."""
    found = pyright("--project", "pyproject.toml")
    assert found["generalDiagnostics"] == []
    programs = [path for path in EXAMPLES.rglob("*.py") if "node_modules" not in path.parts]
    assert found["summary"]["filesAnalyzed"] == len(programs)


def test_pyright_knows_every_type_of_the_package() -> None:
    found = pyright("--verifytypes", "aguia", "--ignoreexternal")["typeCompleteness"]
    unknown = [
        f"{symbol['name']}: {trouble['message']}"
        for symbol in found["symbols"]
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]
        for trouble in symbol["diagnostics"]
    ]
    assert unknown == []
    assert found["completenessScore"] == 1


@pytest.mark.parametrize(
    "name", ["hello", "approval", "shared_document", "agent_calls_agent:researcher"]
)
def test_a_check_finds_nothing(name: str, start: Start) -> None:
    done = aguia("check", "--strict", "--max-warnings", "0", start(name).url)
    assert done.code == 0, done.out


# hello


async def test_hello(start: Start, agui_client: ClientFactory) -> None:
    agent = watched(agui_client, start("hello").url)
    events = await events_of(agent, "How are you?")
    assert types(events).count("TEXT_MESSAGE_CONTENT") == 3
    assert agent.messages[-1].content == "You said: How are you?"


# approval


@pytest.fixture(scope="module")
def approval(start: Start) -> Server:
    return start("approval")


def test_a_person_approves(approval: Server) -> None:
    before = approval.printed
    printed = program("approval", approval.url, "yes\n")
    assert printed == (
        "Send this to ana@example.com?\n  Lunch at noon?\n"
        "Type yes, or why not: The mail to ana@example.com is on its way.\n"
    )
    assert approval.printed == f"{before}To ana@example.com: Lunch at noon?\n"


def test_a_person_does_not_approve(approval: Server) -> None:
    before = approval.printed
    printed = program("approval", approval.url, "too late\n")
    assert printed.endswith("I have not sent it.\n")
    assert approval.printed == before


async def test_what_a_person_answers_goes_with_the_call(
    approval: Server, agui_client: ClientFactory
) -> None:
    agent = watched(agui_client, approval.url)
    result = await agent.ask("Invite Ana.")
    [asked] = result.interrupts
    assert asked.response_schema
    assert asked.tool_call_id == asked.id
    await agent.ask(resume={asked.id: {"approved": False, "reason": "Too late."}})
    [answer] = [message for message in agent.messages if isinstance(message, ToolMessage)]
    assert answer.tool_call_id == asked.id
    assert answer.content == "The person does not want it sent. Too late."


async def invitation(agui_client: ClientFactory, url: str) -> tuple[Agent, Interrupt]:
    """A client, and what the agent has asked it before it sends anything."""
    agent = watched(agui_client, url)
    [asked] = (await agent.ask("Invite Ana.")).interrupts
    return agent, asked


async def test_a_person_who_leaves_the_question_sends_nothing(
    approval: Server, agui_client: ClientFactory
) -> None:
    before = approval.printed
    agent, asked = await invitation(agui_client, approval.url)
    result = await agent.ask(resume={asked.id: CANCEL})
    assert result.text == "Then I leave it."
    assert agent.messages[-2].content == "The person did not decide."
    assert approval.printed == before


async def test_a_question_without_an_answer_is_asked_again(
    approval: Server, agui_client: ClientFactory
) -> None:
    """INT-5: also for a client that has forgotten that it was asked."""
    before = approval.printed
    agent, asked = await invitation(agui_client, approval.url)
    forgetful = watched(agui_client, approval.url, messages=list(agent.messages))
    result = await forgetful.ask("And?")
    assert [each.id for each in result.interrupts] == [asked.id]
    assert approval.printed == before


async def test_an_answer_of_another_form_is_refused(
    approval: Server, agui_client: ClientFactory
) -> None:
    before = approval.printed
    agent, asked = await invitation(agui_client, approval.url)
    await events_of(agent, resume={asked.id: "yes"}, force=True)
    assert agent.error is not None
    assert agent.error.code == "invalid-answer"
    assert approval.printed == before


# shared_document


def test_both_edit_the_document(start: Start) -> None:
    printed = program("shared_document", start("shared_document").url)
    assert printed.splitlines() == [
        "You: Tidy it up.",
        "    An eagle sees far. | it flies high",
        "    An eagle sees far. | It flies high.",
        "Agent: Lines that I changed: 2.",
        "You: I have added a title and a line.",
        "    The eagle. | An eagle sees far. | It flies high. | it rarely misses",
        "    The eagle. | An eagle sees far. | It flies high. | It rarely misses.",
        "Agent: Lines that I changed: 2.",
    ]


async def test_what_changes_is_what_is_sent(start: Start, agui_client: ClientFactory) -> None:
    lines = ["The first line is long enough to notice.", "the last"]
    agent = watched(agui_client, start("shared_document").url, state={"lines": lines})
    events = await events_of(agent, "Tidy it up.")
    [delta] = [event for event in events if isinstance(event, StateDeltaEvent)]
    assert delta.delta == [{"op": "replace", "path": "/lines/1", "value": "The last."}]


# agent_calls_agent


@pytest.fixture(scope="module")
def editor(start: Start) -> Server:
    researcher = start("agent_calls_agent:researcher")
    return start("agent_calls_agent:editor", RESEARCHER_URL=researcher.url)


async def test_what_the_other_agent_does_is_passed_on(
    editor: Server, agui_client: ClientFactory
) -> None:
    agent = watched(agui_client, editor.url)
    events = await events_of(agent, "eagles")
    [started] = [event for event in events if event.type == "SUBAGENT_STARTED"]
    assert started.name == "researcher"
    assert types(events, started.subagent_run_id) == [
        "SUBAGENT_STARTED",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        *["TEXT_MESSAGE_CONTENT"] * 4,
        "TEXT_MESSAGE_END",
        "SUBAGENT_FINISHED",
    ]
    [finished] = [event for event in events if event.type == "SUBAGENT_FINISHED"]
    assert finished.result == "Two pages praise eagles."
    assert agent.messages[-1].content == "All about eagles: Two pages praise eagles."


async def test_its_failure_is_the_subagents(editor: Server, agui_client: ClientFactory) -> None:
    agent = watched(agui_client, editor.url)
    events = await events_of(agent, "nothing")
    [failed] = [event for event in events if event.type == "SUBAGENT_ERROR"]
    assert failed.message == "There is nothing to be found about nothing."
    assert agent.messages[-1].content == f"I can't write about nothing: {failed.message}"


async def talkative(run: Run) -> None:
    """What a subagent can say, and what is the other run's own."""
    run.state["mine"] = 1
    await run.flush()
    async with run.step("read"), run.reasoning() as thought:
        await thought.write("Hm.")
    await run.activity("progress", {"done": 1})
    async with run.subagent("helper") as helper:
        await helper.say("I help.")
    await run.say("Enough.")


async def asking(run: Run) -> None:
    run.interrupt("approval", message="May I?")


@contextmanager
def editor_of(researcher: Any, start: Start) -> Iterator[Server]:
    with serve(researcher) as url:
        yield start("agent_calls_agent:editor", RESEARCHER_URL=url)


async def test_all_that_it_says_is_the_subagents(start: Start, agui_client: ClientFactory) -> None:
    with editor_of(AgentApp(talkative), start) as editor:
        agent = watched(agui_client, editor.url)
        events = await events_of(agent, "eagles")
    [started] = [event for event in events if event.type == "SUBAGENT_STARTED"]
    owned = types(events, started.subagent_run_id)
    for expected in ("STEP_STARTED", "REASONING_MESSAGE_CONTENT", "ACTIVITY_SNAPSHOT"):
        assert expected in owned
    said = [
        message.content
        for message in agent.messages
        if isinstance(message, AssistantMessage)
        and message.subagent_run_id == started.subagent_run_id
    ]
    assert said == ["I help.", "Enough."]
    assert agent.state == {}
    assert agent.messages[-1].content == "All about eagles: Enough."


def nobody(request: Request) -> None:
    raise HTTPException(403)


@pytest.mark.parametrize(
    ("researcher", "words"),
    [
        (FaultyApp(AgentApp(talkative), "cut-after-event:8"), "The researcher does not answer."),
        (AgentApp(talkative, authenticate=nobody), "The researcher does not answer."),
        (AgentApp(asking), "The researcher's run was interrupted."),
    ],
    ids=["broken off", "refuses", "asks"],
)
async def test_the_run_goes_on_without_an_answer(
    researcher: Any, words: str, start: Start, agui_client: ClientFactory
) -> None:
    with editor_of(researcher, start) as editor:
        agent = watched(agui_client, editor.url)
        events = await events_of(agent, "eagles")
    [failed] = [event for event in events if event.type == "SUBAGENT_ERROR"]
    assert failed.message == words
    assert agent.messages[-1].content == f"I can't write about eagles: {words}"


async def test_the_other_agent_is_cancelled_as_well(
    start: Start, agui_client: ClientFactory
) -> None:
    cancelled = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def slow(run: Run) -> None:
        async with run.text() as text:
            await text.write("I am ")
            try:
                await asyncio.sleep(SECONDS)
            finally:
                loop.call_soon_threadsafe(cancelled.set)

    with editor_of(AgentApp(slow), start) as editor:
        agent = watched(agui_client, editor.url)
        async with agent.run("eagles") as run:
            async for event in run:
                if event.type == "TEXT_MESSAGE_CONTENT":
                    break
        async with asyncio.timeout(SECONDS / 2):
            await cancelled.wait()


# openai_model


@pytest.fixture(scope="module")
def model() -> Iterator[tuple[FakeModel, str]]:
    model = FakeModel()
    with serve(model) as url:
        yield model, f"{url}v1"


@pytest.fixture(scope="module")
def served_model(model: tuple[FakeModel, str], start: Start) -> Server:
    return start(
        "openai_model",
        OPENAI_BASE_URL=model[1],
        OPENAI_API_KEY="test-key",
        OPENAI_MODEL="test-model",
    )


class Talk:
    """A client of the example, and the model behind it."""

    def __init__(self, agent: Agent, model: FakeModel, server: Server) -> None:
        self.agent = agent
        self.model = model
        self.server = server

    async def __call__(self, *answers: Answer, said: Any = "Hello", **options: Any) -> list[Event]:
        """The events of a run in which the model gives these answers, all of them."""
        self.model.requests.clear()
        self.model.answers[:] = answers
        events = await events_of(self.agent, said, **options)
        assert not self.model.answers
        return events

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The messages of the last request, without the instructions."""
        messages: list[dict[str, Any]] = self.model.requests[-1]["messages"]
        return messages[1:]


@pytest.fixture
def talk(
    agui_client: ClientFactory, model: tuple[FakeModel, str], served_model: Server
) -> Callable[..., Talk]:
    def make(**options: Any) -> Talk:
        return Talk(watched(agui_client, served_model.url, **options), model[0], served_model)

    return make


Talks = Callable[..., Talk]


async def test_the_model_talks(talk: Talks) -> None:
    """Word by word, with the tokens that it took, and with the context that is offered."""
    hello = talk(context=[{"description": "The user's town", "value": "Faro"}])
    events = await hello(says("Hello", " Ana", "."))
    deltas = [event.delta for event in events if event.type == "TEXT_MESSAGE_CONTENT"]
    assert deltas == ["Hello", " Ana", "."]
    [usage] = hello.agent.usage
    assert msgspec.to_builtins(usage) == {
        "model": "test-model",
        "inputTokens": 20,
        "outputTokens": 7,
        "totalTokens": 27,
        "cachedInputTokens": 4,
        "reasoningTokens": 3,
    }
    [request] = hello.model.requests
    assert request["model"] == "test-model"
    assert offered(request) == ["now"]
    instructions, said = request["messages"]
    assert instructions["role"] == "system"
    assert instructions["content"].endswith("\n\nThe user's town: Faro")
    assert said == {"role": "user", "content": "Hello"}


async def test_a_model_that_reports_no_tokens(talk: Talks) -> None:
    hello = talk()
    await hello(says("Hello.", usage=None))
    assert hello.agent.usage == []
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    await hello(says("Hello.", usage=usage))
    assert hello.agent.usage[0].total_tokens == 3


def weather(city: str, days: int = 1) -> str:
    """The weather in a city.

    Args:
        city: its name.
        days: how many days ahead.
    """
    return f"{days} days of sun in {city}"


def begun(index: int, id: str | None, name: str = "weather", arguments: str = "") -> dict[str, Any]:
    return {
        "index": index,
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def offered(request: dict[str, Any]) -> list[str]:
    """The names of the tools that the model may call."""
    return [tool["function"]["name"] for tool in request["tools"]]


def more(index: int, arguments: str) -> dict[str, Any]:
    return {"index": index, "function": {"arguments": arguments}}


async def test_the_model_calls_the_applications_tools(talk: Talks) -> None:
    """In pieces, several at once; the results go back, and the model goes on."""
    forecast = talk()
    forecast.agent.tool(read_only=True)(weather)
    events = await forecast(
        calls(
            begun(0, "call_a"),
            more(0, '{"ci'),
            more(0, 'ty":"Faro"}'),
            begun(1, "call_b", arguments='{"city":'),
            more(1, '"Braga","days":2}'),
            text=["Let me ", "see."],
        ),
        says("Sun."),
    )
    assert [event.delta for event in events if event.type == "TOOL_CALL_ARGS"] == [
        '{"ci',
        'ty":"Faro"}',
        '{"city":',
        '"Braga","days":2}',
    ]
    first, second = forecast.model.requests
    assert offered(first) == ["now", "weather"]
    tool = first["tools"][1]
    assert tool["type"] == "function"
    assert tool["function"]["name"] == "weather"
    assert tool["function"]["description"].startswith("The weather in a city.")
    assert tool["function"]["parameters"]["required"] == ["city"]
    assert second["tools"] == first["tools"]
    assert forecast.sent == [
        {"role": "user", "content": "Hello"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                call("call_a", '{"city":"Faro"}'),
                call("call_b", '{"city":"Braga","days":2}'),
            ],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "1 days of sun in Faro"},
        {"role": "tool", "tool_call_id": "call_b", "content": "2 days of sun in Braga"},
    ]
    assert forecast.agent.messages[-1].content == "Sun."


def call(id: str, arguments: str = '{"city":"Faro"}') -> dict[str, Any]:
    return {
        "id": id,
        "type": "function",
        "function": {"name": "weather", "arguments": arguments},
    }


@pytest.mark.parametrize(
    "pieces",
    [
        [begun(0, "a"), begun(1, "b"), more(0, '{"city":"A"}'), more(1, '{"city":"B"}')],
        [begun(0, "a", arguments='{"city":"A"}'), begun(0, "b", arguments='{"city":"B"}')],
        [begun(0, "", arguments='{"city":"A"}'), begun(0, "", arguments='{"city":"B"}')],
        [begun(0, None, arguments='{"city":"A"}'), begun(1, None, arguments='{"city":"B"}')],
        [begun(0, "a", arguments='{"city":"A"}'), begun(1, "a", arguments='{"city":"B"}')],
    ],
    ids=["interleaved", "one index", "empty ids", "no ids", "one id"],
)
async def test_models_that_number_their_calls_in_their_own_way(
    pieces: list[dict[str, Any]], talk: Talks
) -> None:
    """Twice in a thread, so that ids that come again are met as well."""
    forecast = talk(tools=[tool_of(weather)])
    for _ in range(2):
        await forecast(calls(*pieces), says("Sun."))
        results = [message["content"] for message in forecast.sent if message["role"] == "tool"]
        assert results[-2:] == ["1 days of sun in A", "1 days of sun in B"]
    ids = [message["tool_call_id"] for message in forecast.sent if message["role"] == "tool"]
    assert len(set(ids)) == 4


# Its own tools


def results(messages: Iterable[dict[str, Any]]) -> dict[str, str]:
    """What the model was told of its calls, by their ids."""
    return {
        message["tool_call_id"]: message["content"]
        for message in messages
        if message["role"] == "tool"
    }


async def test_the_model_calls_tools_of_the_agent(talk: Talks) -> None:
    """In one run, in several rounds, with the results in the stream and in the next run."""
    clock = talk()
    events = await clock(
        calls(
            begun(0, "call_a", "now", '{"utc_'),
            more(0, 'offset":-2}'),
            begun(1, "call_b", "now"),
            text=["Let me ", "see."],
        ),
        calls(begun(0, "call_a", "now", '{"utc_offset":5.5}')),  # an id that has been used
        says("It is late."),
    )
    assert types(events).count("RUN_STARTED") == 1
    first, _, last = clock.model.requests
    own = first["tools"][0]["function"]
    assert own["description"] == "The date and the time."
    assert own["parameters"]["properties"]["utc_offset"]["default"] == 0
    said = results(last["messages"])
    west, here, east = said.values()
    assert (west[-6:], here[-6:], east[-6:]) == ("-02:00", "+00:00", "+05:30")
    assert [message["role"] for message in clock.sent] == [
        *["user", "assistant", "tool", "tool", "assistant", "tool"]
    ]
    assert clock.sent[1]["content"] == "Let me see."
    assert [call["function"]["arguments"] for call in clock.sent[1]["tool_calls"]] == [
        '{"utc_offset":-2}',
        "{}",
    ]
    streamed = {
        message.tool_call_id: message.content
        for message in clock.agent.messages
        if isinstance(message, ToolMessage)
    }
    assert streamed == said
    assert clock.agent.pending_tool_calls == []
    assert clock.agent.messages[-1].content == "It is late."
    [usage] = clock.agent.usage
    assert usage.input_tokens == 3 * 20
    before = clock.sent
    await clock(says("Good night."), said="Good night.")
    assert clock.sent == [
        *before,
        {"role": "assistant", "content": "It is late."},
        {"role": "user", "content": "Good night."},
    ]


async def test_it_calls_tools_of_both(talk: Talks) -> None:
    """FRONT-1, FRONT-2: the agent's own is carried out, and the application's ends the run."""
    both = talk(tools=[Tool(name="weather", description="The weather.")])
    events = await both(
        calls(begun(0, "call_w", arguments='{"city":"Faro"}'), begun(1, "call_n", "now"))
    )
    assert types(events).count("TOOL_CALL_RESULT") == 1
    assert [pending.id for pending in both.agent.pending_tool_calls] == ["call_w"]
    both.agent.messages.append(ToolMessage(id="m", tool_call_id="call_w", content="Sun."))
    await both(says("It is sunny and late."), said=None)
    said = results(both.sent)
    assert list(said) == ["call_w", "call_n"]
    assert said["call_w"] == "Sun."
    assert said["call_n"].endswith("+00:00")


async def test_what_goes_wrong_with_its_own_tools_is_told_to_the_model(talk: Talks) -> None:
    """In words that say nothing of what is inside."""
    clock = talk()
    await clock(
        calls(
            begun(0, "call_a", "now", '{"utc_offset":30}'),
            begun(1, "call_b", "now", '{"utc_offset":"noon"}'),
            begun(2, "call_c", "now", "[]"),
            begun(3, "call_d", "later", "{}"),
        ),
        says("I can't tell."),
    )
    said = results(clock.sent)
    assert said["call_a"] == "The tool failed."
    assert said["call_b"].startswith("The arguments don't fit: at '/utc_offset': ")
    assert said["call_c"].startswith("The arguments don't fit: ")
    assert said["call_d"] == "There is no tool of this name."
    assert "the tool now failed\n" in clock.server.log
    assert "ValueError: offset must be a timedelta strictly between" in clock.server.log
    assert clock.agent.error is None


async def test_the_applications_tool_stands_in_for_one_of_the_agents(talk: Talks) -> None:
    """FRONT-1: where both have one of a name, the agent answers no call of it."""
    clock = talk(tools=[Tool(name="now", description="The user's own clock.")])
    await clock(calls(begun(0, "call_n", "now")))
    [request] = clock.model.requests
    [tool] = request["tools"]
    assert tool["function"]["description"] == "The user's own clock."
    assert [pending.id for pending in clock.agent.pending_tool_calls] == ["call_n"]


async def test_a_model_that_never_has_enough(talk: Talks) -> None:
    clock = talk()
    await clock(*(calls(begun(0, f"call_{n}", "now")) for n in range(10)))
    assert clock.agent.error is not None
    assert clock.agent.error.code == "too-many-rounds"
    assert clock.agent.pending_tool_calls == []


def tool_of(function: Callable[..., Any]) -> Any:
    from aguia.client import tool

    return tool(read_only=True)(function)


async def test_a_tool_without_parameters_and_a_call_without_arguments(talk: Talks) -> None:
    clock = talk(tools=[Tool(name="clock", description="The time.")])
    await clock(calls(begun(0, "call_c", name="clock")))
    tool = clock.model.requests[-1]["tools"][1]
    assert tool["function"] == {"name": "clock", "description": "The time."}
    assert [pending.id for pending in clock.agent.pending_tool_calls] == ["call_c"]
    clock.agent.messages.append(ToolMessage(id="m", tool_call_id="call_c", content="noon"))
    await clock(says("It is noon."), said=None)
    assert clock.sent[-2]["tool_calls"][0]["function"] == {"name": "clock", "arguments": "{}"}


async def test_the_model_sees_images(talk: Talks) -> None:
    look = talk()
    await look(
        says("A dot."),
        said=[
            "What is this?",
            ImagePart(source=DataSource(value="AAAA", mime_type="image/png")),
            ImagePart(source=UrlSource(value="https://example.com/a.png")),
            DocumentPart(source=UrlSource(value="https://example.com/a.pdf")),
        ],
    )
    assert look.sent == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            ],
        }
    ]
    assert "left out a part of the type document" in look.server.log
    await look(says("Nothing."), said=[DocumentPart(source=UrlSource(value="https://a.b/c"))])
    assert look.sent[-1] == {"role": "user", "content": ""}


async def test_a_long_conversation(talk: Talks) -> None:
    """All roles; calls that were answered late, by an error, by an image, or not at all."""

    def made(*ids: str) -> list[ToolCall]:
        function = FunctionCall(name="weather", arguments='{"city":"Faro"}')
        return [ToolCall(id=id_, function=function) for id_ in ids]

    history = [
        SystemMessage(id="1", content="Be brief."),
        DeveloperMessage(id="2", content="Say sir."),
        UserMessage(id="3", content="Weather?", name="Ana María"),
        ReasoningMessage(id="4", content="Hm."),
        AssistantMessage(id="5", tool_calls=made("a", "b")),
        AssistantMessage(id="6", content="And here?", tool_calls=made("c")),
        ToolMessage(id="7", tool_call_id="c", content="", error="no service"),
        ToolMessage(id="8", tool_call_id="b", content=[image_part(), TextPart(text="Fog.")]),
        ToolMessage(id="9", tool_call_id="a", content="Sun."),
        ActivityMessage(id="10", activity_type="progress", content={}),
        AssistantMessage(id="11"),
        AssistantMessage(id="12", content="Sun and fog, sir."),
        AssistantMessage(id="13", tool_calls=made("d")),
        ToolMessage(id="14", tool_call_id="of nobody", content="?"),
    ]
    weeks = talk(messages=history)
    await weeks(says("Good night."), said="Good night.")
    assert weeks.sent == [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "Say sir."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "Sun."},
        {"role": "tool", "tool_call_id": "b", "content": "Fog."},
        {"role": "assistant", "content": "And here?", "tool_calls": [call("c")]},
        {"role": "tool", "tool_call_id": "c", "content": "no service"},
        {"role": "assistant", "content": "Sun and fog, sir."},
        {"role": "assistant", "content": None, "tool_calls": [call("d")]},
        {"role": "tool", "tool_call_id": "d", "content": "This call was not carried out."},
        {"role": "user", "content": "Good night."},
    ]


def image_part() -> ImagePart:
    return ImagePart(source=DataSource(value="AAAA", mime_type="image/png"))


GENERIC: Final = "The agent failed. Its log says why."


@pytest.mark.parametrize(
    ("answer", "message", "code", "logged"),
    [
        (
            Answer(status=429),
            "The model takes no more questions for now.",
            "rate-limit",
            "RateLimitError",
        ),
        (
            Answer(status=503),
            "The model is not available just now.",
            "unavailable",
            "InternalServerError",
        ),
        (
            says("I", cut=True),
            "The model is not available just now.",
            "unavailable",
            "APIConnectionError",
        ),
        (Answer(status=401), GENERIC, None, "AuthenticationError: Error code: 401 - not now"),
        (Answer(status=400), GENERIC, None, "BadRequestError: Error code: 400 - not now"),
        (says("I", error="It burns."), GENERIC, None, "APIError: It burns."),
        (says("I", finish_reason=None), "The model broke off its answer.", None, ""),
        (
            says("I", finish_reason="length"),
            "The answer became too long and stops here.",
            "length",
            "",
        ),
        (
            calls(begun(0, "call_z", arguments='{"ci'), cut=True),
            "The model is not available just now.",
            "unavailable",
            "APIConnectionError",
        ),
    ],
)
async def test_a_model_that_fails(
    answer: Answer, message: str, code: str | None, logged: str, talk: Talks
) -> None:
    """The user is told what the user can make something of, and the log the rest."""
    fails = talk(tools=[Tool(name="weather", description="The weather.")])
    before = len(fails.server.log)
    events = await fails(answer)
    assert fails.agent.error is not None
    assert fails.agent.error.message == message
    assert (fails.agent.error.code or None) == code
    assert logged in fails.server.log[before:]
    said = [event for event in events if event.type == "TEXT_MESSAGE_CONTENT"]
    assert len(said) == (1 if answer.deltas and "tool_calls" not in answer.deltas[-1] else 0)
    # The thread goes on, whatever was cut off.
    await fails(says("Here I am."), said="Are you there?")
    assert fails.agent.messages[-1].content == "Here I am."


async def test_the_model_stops_when_nobody_listens(talk: Talks) -> None:
    endless = talk()
    before = endless.model.left
    endless.model.answers[:] = [says("And", waits=True)]
    async with endless.agent.run("Tell me everything.") as run:
        async for event in run:
            if event.type == "TEXT_MESSAGE_CONTENT":
                break
    async with asyncio.timeout(SECONDS / 2):
        while endless.model.left == before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_what_the_environment_lacks_is_named() -> None:
    environment = {name: value for name, value in os.environ.items() if "OPENAI" not in name}
    for given, missing in [({}, "OPENAI_MODEL"), ({"OPENAI_MODEL": "m"}, "OPENAI_API_KEY")]:
        done = subprocess.run(
            [sys.executable, "-m", "aguia", "serve", "openai_model", "--port", "0"],
            cwd=EXAMPLES,
            env={**environment, **given},
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 2
        assert missing in done.stderr


# fastapi_two_agents

ANA: Final = {"Authorization": "Bearer token-of-ana"}


@contextmanager
def application(folder: Path, *, grace: float = 0.2) -> Iterator[Server]:
    program = f"import fastapi_two_agents; fastapi_two_agents.main(port=0, grace={grace})"
    with served(["-c", program], folder / "application") as server:
        yield server


def test_the_application_and_its_agents(tmp_path: Path) -> None:
    """Its sign-in and CORS hold for both; its OpenAPI page knows its own routes only."""
    preflight = {
        "Origin": "http://localhost:3000",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    with application(tmp_path) as server, httpx.Client(base_url=server.url) as client:
        assert client.get("me").status_code == 401
        assert client.get("me", headers=ANA).json() == {"name": "Ana"}
        assert list(client.get("openapi.json").json()["paths"]) == ["/me"]
        assert client.get("docs").status_code == 200
        for path in ("me", "agents/greeter", "agents/counter"):
            allowed = client.options(path, headers=preflight)
            assert allowed.status_code == 200
            assert allowed.headers["access-control-allow-origin"] == preflight["Origin"]
            other = client.options(path, headers={**preflight, "Origin": "http://evil.example"})
            assert other.status_code == 400
        refused = client.post("agents/greeter", json={}, headers={"Origin": preflight["Origin"]})
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.headers["access-control-allow-origin"] == preflight["Origin"]
        assert client.post("agents/nobody", json={}, headers=ANA).status_code == 422
        assert client.post("agents/greeter", json={}, headers=ANA).status_code == 400


async def test_the_agents_know_who_asks(tmp_path: Path, agui_client: ClientFactory) -> None:
    with application(tmp_path) as server:
        url = f"{server.url}agents/greeter"
        assert (await watched(agui_client, url, ANA).ask("Hi")).text == "Hello Ana!"
        rui = {"Authorization": "Bearer token-of-rui"}
        assert (await watched(agui_client, url, rui).ask("Hi")).text == "Hello Rui!"


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
async def test_runs_end_in_order_when_the_application_stops(
    tmp_path: Path, agui_client: ClientFactory
) -> None:
    with application(tmp_path) as server:
        agent = watched(agui_client, f"{server.url}agents/counter", ANA)
        async with agent.run("Count.") as run:
            async for event in run:
                if event.type == "TEXT_MESSAGE_CONTENT":
                    server.process.send_signal(signal.SIGTERM)
        assert run.result.outcome == "cancelled"
        server.process.wait(SECONDS)
        assert "Application shutdown complete" in server.log
        assert "Traceback" not in server.log


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
async def test_and_with_uvicorn_alone(tmp_path: Path, agui_client: ClientFactory) -> None:
    arguments = ["-m", "uvicorn", "fastapi_two_agents:app", "--port", "0"]
    arguments += ["--timeout-graceful-shutdown", "1"]
    with served(arguments, tmp_path / "application") as server:
        agent = watched(agui_client, f"{server.url}agents/counter", ANA)
        async with agent.run("Count.") as run:
            async for event in run:
                if event.type == "TEXT_MESSAGE_CONTENT":
                    server.process.send_signal(signal.SIGTERM)
        assert run.result.outcome == "cancelled"
        server.process.wait(SECONDS)


async def test_http_agent_is_what_programs_use(start: Start) -> None:
    """The client that the tests watch is, but for the watching, the one of everybody."""
    async with HttpAgent(start("hello").url) as agent:
        assert (await agent.ask("x")).text == "You said: x"
