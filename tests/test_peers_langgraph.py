"""Graphs of LangGraph, served by the official `ag-ui-langgraph` bridge: a peer of `HttpAgent`.

The chat model is a double, so that nothing leaves the machine; the graph, its checkpoints, the
bridge, FastAPI, uvicorn and HTTP on the loopback interface are real.
"""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import pytest
from ag_ui.core import Interrupt, ResumeEntry
from ag_ui_langgraph import (  # type: ignore[import-untyped]
    LangGraphAgent,
    add_langgraph_fastapi_endpoint,
)
from fastapi import FastAPI
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCallChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from aguia import (
    Agent,
    AssistantMessage,
    CustomEvent,
    Event,
    HttpAgent,
    InvalidInput,
    ProtocolWarning,
    RawEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    ToolCallResultEvent,
    ToolMessage,
)
from aguia.client import CANCEL, AsgiTransport, ToolRequest
from support_checked import Checked
from support_server import serve

pytestmark = [
    pytest.mark.anyio,
    # The bridge asks a graph for its schemas by names that LangGraph has given up.
    pytest.mark.filterwarnings("ignore:`?get_config_jsonschema:DeprecationWarning"),
]

APPROVAL: Final = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}},
    "required": ["approved"],
}


# The graphs


class Model(BaseChatModel):
    """A chat model that follows what the last message says."""

    @property
    def _llm_type(self) -> str:
        return "double"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        whole, *more = [chunk.message for chunk in self._stream(messages, stop, run_manager)]
        for chunk in more:
            whole = whole + chunk
        return ChatResult(generations=[ChatGeneration(message=whole)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _says(messages):
            generated = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                run_manager.on_llm_new_token(str(chunk.content), chunk=generated)
            yield generated


def _says(messages: Sequence[BaseMessage]) -> Iterator[AIMessageChunk]:
    last = messages[-1]
    if last.type == "tool":
        yield AIMessageChunk(content="Then: ")
        answers = [str(message.content) for message in messages if message.type == "tool"]
        yield AIMessageChunk(content="; ".join(answers))
        yield AIMessageChunk(
            content="",
            usage_metadata={"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
            response_metadata={"finish_reason": "stop"},
        )
        return
    match last.content:
        case "weather":
            yield from _calls("weather", '{"city":', '"Porto"}')
        case "book":
            yield AIMessageChunk(content="I'll book.")
            yield from _calls("book", '{"city":"Porto"}')
        case "ask":
            yield from _calls("ask_user", '{"question":', '"Where?"}')
        case "ask badly":
            yield from _calls("ask_user", '{"question": Where')
        case "think":
            yield AIMessageChunk(content=[{"type": "thinking", "thinking": "Hm", "index": 0}])
            yield AIMessageChunk(content=[{"type": "thinking", "thinking": ", well.", "index": 0}])
            yield AIMessageChunk(content=[{"type": "text", "text": "So.", "index": 1}])
        case "fail":
            raise RuntimeError("the model is out")
        case str():
            yield AIMessageChunk(content="Olá, ")
            yield AIMessageChunk(content="Porto! 🧭")
        case parts:
            yield AIMessageChunk(content=json.dumps(parts))


def _calls(name: str, *arguments: str) -> Iterator[AIMessageChunk]:
    opener = ToolCallChunk(id=f"call-{name}", name=name, args="", index=0)
    yield AIMessageChunk(content="", tool_call_chunks=[opener])
    for delta in arguments:
        more = ToolCallChunk(id=None, name=None, args=delta, index=0)
        yield AIMessageChunk(content="", tool_call_chunks=[more])


def weather(city: str) -> str:
    """Says how the weather is."""
    return f"sun over {city}"


def book(city: str) -> str:
    """Books a seat, once a person has agreed."""
    answer = interrupt(
        {
            "reason": "approval",
            "message": f"Book {city}?",
            "toolCallId": "call-book",
            "responseSchema": APPROVAL,
        }
    )
    return f"{city}: {json.dumps(answer, sort_keys=True)}"


class State(MessagesState):
    """What the graph keeps: messages, the client's tools, and the shared state."""

    tools: list[Any]
    city: str
    visits: int


async def _chat(state: State) -> dict[str, Any]:
    said = await Model().ainvoke(state["messages"])
    return {"messages": [said], "visits": state.get("visits", 0) + 1}


def _next(state: State) -> str:
    said = state["messages"][-1]
    assert isinstance(said, AIMessage)
    # A tool that the client advertised is the client's to run: the graph ends there.
    frontend = {item["name"] for item in state.get("tools", [])}
    ours = [call for call in said.tool_calls if call["name"] not in frontend]
    return "tools" if ours else END


def _assistant() -> Any:
    """A chat with tools, one of which asks before it acts."""
    graph = StateGraph(State)
    graph.add_node("chat", _chat)
    graph.add_node("tools", ToolNode([weather, book]))
    graph.add_edge(START, "chat")
    graph.add_conditional_edges("chat", _next)
    graph.add_edge("tools", "chat")
    return graph.compile(checkpointer=InMemorySaver())


def _fork() -> Any:
    """Two nodes at once, each of which asks."""

    def left(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(f"left: {interrupt('left?')}", id="left")]}

    def right(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(f"right: {interrupt('right?')}", id="right")]}

    graph = StateGraph(State)
    graph.add_node("left", left)
    graph.add_node("right", right)
    graph.add_edge(START, "left")
    graph.add_edge(START, "right")
    return graph.compile(checkpointer=InMemorySaver())


class ById(LangGraphAgent):  # type: ignore[misc]
    """A bridge that tells LangGraph which answer belongs to which interrupt."""

    def _build_command_from_agui_resume(
        self, entries: list[ResumeEntry], *, open_interrupts: list[Interrupt] | None = None
    ) -> Command[Any]:
        return Command(resume={entry.interrupt_id: entry.payload for entry in entries})


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """The graphs behind the bridge, each at a path of its own."""
    app = FastAPI()
    for path, agent in {
        "/plain": LangGraphAgent(name="plain", graph=_assistant()),
        "/asks": LangGraphAgent(
            name="asks", graph=_assistant(), emit_interrupt_outcome=True, emit_raw_events=False
        ),
        "/fork": LangGraphAgent(name="fork", graph=_fork(), emit_interrupt_outcome=True),
        "/by-id": ById(name="by-id", graph=_fork(), emit_interrupt_outcome=True),
    }.items():
        add_langgraph_fastapi_endpoint(app, agent, path)
    return app


@pytest.fixture(scope="module")
def served(app: FastAPI) -> Iterator[str]:
    with serve(app) as url:
        yield url


Open = Callable[..., AbstractAsyncContextManager[Agent]]


@pytest.fixture(params=["http", "asgi"])
def open_agent(request: pytest.FixtureRequest, app: FastAPI) -> Open:
    """Makes a client of the graph at a path, over HTTP or in process."""
    if request.param == "asgi":
        return lambda path, **options: Agent(AsgiTransport(app, path=path), **options)
    served: str = request.getfixturevalue("served")
    return lambda path, **options: HttpAgent(served + path[1:], **options)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """The bridge logs the failures that it reports, with their tracebacks."""
    caplog.set_level(logging.CRITICAL, "ag_ui_langgraph")


# What the client sees of them


async def _run(agent: Agent, content: Any = None, **options: Any) -> list[Event]:
    return [event async for event in agent.run(content, **options)]


def _texts(agent: HttpAgent) -> list[str]:
    return [
        message.content
        for message in agent.messages
        if isinstance(message, AssistantMessage) and message.content
    ]


def _results(agent: HttpAgent) -> list[Any]:
    return [item.content for item in agent.messages if isinstance(item, ToolMessage)]


async def test_text_of_two_turns(served: str) -> None:
    """TEXT-1, MSG-1: streamed, restated by a snapshot without a change, and remembered there.

    The bridge also passes on every event of LangGraph's own (RAW); it declares no version.
    """
    warnings: list[ProtocolWarning] = []
    async with HttpAgent(f"{served}plain", on_warning=warnings.append) as agent:
        first = await _run(agent, "hello", run_id="run-1")
        streamed = list(agent.messages)
        second = await _run(agent, "hello again")

    started = first[0]
    assert isinstance(started, RunStartedEvent)
    assert (started.thread_id, started.run_id) == (agent.thread_id, "run-1")
    assert not started.protocol_version
    deltas = [event.delta for event in first if event.type == "TEXT_MESSAGE_CONTENT"]
    assert deltas == ["Olá, ", "Porto! 🧭"]
    assert any(isinstance(event, RawEvent) for event in first)
    assert [event.type for event in second if event.type.startswith("STEP")] == [
        "STEP_STARTED",
        "STEP_FINISHED",
    ]
    assert [message.role for message in agent.messages] == ["user", "assistant"] * 2
    assert list(agent.messages)[:2] == streamed
    assert agent.state["visits"] == 2
    assert agent.outcome == RunFinishedSuccessOutcome()
    assert warnings == []


async def test_state_goes_there_and_comes_back(served: str) -> None:
    """STATE-1, IN-1: the graph's state is the shared state, its messages in LangChain's form."""
    warnings: list[ProtocolWarning] = []
    async with HttpAgent(
        f"{served}asks", state={"city": "Porto", "visits": 40}, on_warning=warnings.append
    ) as agent:
        await _run(agent, "hello")

    assert agent.state["city"] == "Porto"
    assert agent.state["visits"] == 41
    assert [message["type"] for message in agent.state["messages"]] == ["human", "ai"]
    assert warnings == []


async def test_a_tool_of_the_graph_is_answered_by_the_graph(served: str) -> None:
    """TOOL-1, TOOL-6, USE-1: the result comes in the same run, and the model's usage with it.

    A snapshot then restates the result under another id. By MSG-1 that message is new, and so
    comes after what the client holds, as it does in the npm client.
    """
    warnings: list[ProtocolWarning] = []
    async with HttpAgent(f"{served}asks", on_warning=warnings.append) as agent:
        events = await _run(agent, "weather")

    (result,) = [event for event in events if isinstance(event, ToolCallResultEvent)]
    assert (result.tool_call_id, result.content) == ("call-weather", "sun over Porto")
    assert [message.role for message in agent.messages] == [
        "user",
        "assistant",
        "assistant",
        "tool",
    ]
    assert _texts(agent) == ["Then: sun over Porto"]
    assert _results(agent) == ["sun over Porto"]
    assert result.message_id not in {message.id for message in agent.messages}
    assert agent.pending_tool_calls == []
    (usage,) = agent.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (5, 2, 7)
    assert warnings == []


async def test_reasoning_is_read(served: str) -> None:
    """REAS-1: a model's thinking is a reasoning message of its own, kept over the snapshot."""
    warnings: list[ProtocolWarning] = []
    async with HttpAgent(f"{served}asks", on_warning=warnings.append) as agent:
        await _run(agent, "think")
        await _run(agent, "hello")

    assert [message.role for message in agent.messages] == [
        "user",
        "reasoning",
        "assistant",
        "user",
        "assistant",
    ]
    assert agent.messages[1].content == "Hm, well."
    assert _texts(agent)[0] == "So."
    assert warnings == []


async def test_pictures_reach_the_model(served: str) -> None:
    """IN-1: media of a user message arrive as the content that LangChain has for them."""
    async with HttpAgent(f"{served}asks") as agent:
        await _run(
            agent,
            [
                {"type": "text", "text": "What is this?"},
                {"type": "image", "source": {"type": "url", "value": "https://example.com/p.png"}},
                {
                    "type": "image",
                    "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"},
                },
            ],
        )

    (seen,) = [json.loads(text) for text in _texts(agent)]
    assert seen == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "https://example.com/p.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]


async def test_a_graph_that_fails_reports_a_run_error(served: str) -> None:
    """RUN-8: the failure is the run's own report, and the thread goes on after it."""
    async with HttpAgent(f"{served}asks") as agent:
        events = await _run(agent, "fail")
        assert events[-1].type == "RUN_ERROR"
        assert agent.error is not None
        assert agent.error.message == "the model is out"
        assert agent.outcome is None
        await _run(agent, "hello")

    assert _texts(agent) == ["Olá, Porto! 🧭"]
    assert agent.error is None


# Tools of the application


async def test_a_tool_of_ours_is_called_and_the_graph_goes_on(open_agent: Open) -> None:
    """FRONT-1, FRONT-2, FRONT-5, SEC-2: the graph ends at the call, and goes on with the answer."""
    asked: list[tuple[str, dict[str, Any]]] = []

    async def consent(request: ToolRequest) -> bool:
        asked.append((request.name, request.arguments))
        return True

    warnings: list[ProtocolWarning] = []
    async with open_agent("/asks", consent=consent, on_warning=warnings.append) as agent:

        @agent.tool
        async def ask_user(question: str) -> str:
            """Asks the person a question."""
            return f"{question} To Porto!"

        result = await agent.ask("ask")

    assert asked == [("ask_user", {"question": "Where?"})]
    assert (result.outcome, result.runs, result.text) == ("success", 2, "Then: Where? To Porto!")
    assert [message.role for message in agent.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [usage.total_tokens for usage in result.usage] == [7]
    assert warnings == []


async def test_a_refusal_is_told_to_the_graph(open_agent: Open) -> None:
    """SEC-2, FRONT-5: nobody could be asked, so the tool did not run, and the model hears it."""
    async with open_agent("/asks") as agent:

        @agent.tool
        async def ask_user(question: str) -> str:
            raise AssertionError("this was not allowed")

        result = await agent.ask("ask")

    assert result.outcome == "success"
    assert result.text.startswith("Then: Refused")


async def test_arguments_that_are_no_json_are_refused_all_the_same(open_agent: Open) -> None:
    """TOOL-2, MSG-1, SEC-1: LangChain mends them, here to none, and the snapshot restates that.

    So what the function would be called with is not what was streamed, and it still doesn't fit:
    the model is told what is missing.
    """
    async with open_agent("/asks") as agent:

        @agent.tool(read_only=True)
        async def ask_user(question: str) -> str:
            raise AssertionError("these are no arguments")

        stream = agent.run("ask badly")
        deltas = [event.delta async for event in stream if event.type == "TOOL_CALL_ARGS"]

    assert deltas == ['{"question": Where']
    (call,) = [call for item in agent.messages for call in getattr(item, "tool_calls", None) or ()]
    assert call.function.arguments == "{}"
    assert (stream.result.outcome, stream.result.runs) == ("success", 2)
    assert "'question' is missing" in stream.result.text


# Interrupts


async def test_an_interrupt_is_answered_and_the_graph_goes_on(served: str) -> None:
    """INT-1, INT-2, INT-6, INT-7: asked for by `emit_interrupt_outcome`, the 1.0 outcome.

    The graph stops within its tool, names the call and the form of the answer, and goes on there
    with what the person said.
    """
    warnings: list[ProtocolWarning] = []
    async with HttpAgent(f"{served}asks", on_warning=warnings.append) as agent:
        await _run(agent, "book")
        outcome = agent.outcome
        (asked,) = agent.interrupts
        with pytest.raises(InvalidInput, match=asked.id) as refused:
            agent.run("Never mind.")
        resumed = await _run(agent, resume={asked.id: {"approved": True}})

    assert isinstance(outcome, RunFinishedInterruptOutcome)
    assert (asked.reason, asked.message) == ("approval", "Book Porto?")
    assert asked.tool_call_id == "call-book"
    assert asked.response_schema == APPROVAL
    assert refused.value.rule == "INT-2"
    (result,) = [event for event in resumed if isinstance(event, ToolCallResultEvent)]
    assert result.content == 'Porto: {"approved": true}'
    assert _texts(agent) == ["I'll book.", 'Then: Porto: {"approved": true}']
    assert agent.interrupts == []
    assert agent.outcome == RunFinishedSuccessOutcome()
    assert warnings == []


async def test_an_interrupt_that_is_cancelled_reaches_the_graph(served: str) -> None:
    """INT-2: the bridge hands the graph a mark in the place of an answer."""
    async with HttpAgent(f"{served}asks") as agent:
        await _run(agent, "book")
        (asked,) = agent.interrupts
        await _run(agent, resume={asked.id: CANCEL})

    (result,) = _results(agent)
    assert json.loads(result.removeprefix("Porto: ")) == {
        "__agui_cancelled__": True,
        "interrupt_id": asked.id,
    }
    assert agent.interrupts == []


async def test_a_thread_with_an_open_interrupt_is_taken_up_elsewhere(served: str) -> None:
    """INT-6: another client that is given the thread answers what the first was asked."""
    async with HttpAgent(f"{served}asks") as agent:
        await _run(agent, "book")
    async with HttpAgent(
        f"{served}asks",
        thread_id=agent.thread_id,
        messages=agent.messages,
        state=agent.state,
        interrupts=agent.interrupts,
    ) as other:
        await _run(other, resume={other.interrupts[0].id: {"approved": False}})

    assert _results(other) == ['Porto: {"approved": false}']


async def test_an_interrupt_as_it_was_before_the_outcome(served: str) -> None:
    """PROC-13: by default the bridge says it in a custom event, and the run succeeds.

    Then the client holds no interrupt, but a call that nobody has answered: the application reads
    `on_interrupt`, says something for the call, which the graph does not read, and answers with
    `command.resume` among the forwarded properties. A run without that is asked again.
    """
    warnings: list[ProtocolWarning] = []
    async with HttpAgent(f"{served}plain", on_warning=warnings.append) as agent:
        asked = await _run(agent, "book")
        outcome, interrupts = agent.outcome, agent.interrupts
        again = await _run(agent, ToolMessage(id="a", tool_call_id="call-book", content="asked"))
        await _run(agent, forwarded_props={"command": {"resume": {"approved": True}}})

    for events in (asked, again):
        (custom,) = [event for event in events if isinstance(event, CustomEvent)]
        assert custom.name == "on_interrupt"
        assert json.loads(custom.value)["message"] == "Book Porto?"
    assert outcome == RunFinishedSuccessOutcome()
    assert interrupts == []
    assert _results(agent) == ['Porto: {"approved": true}']
    assert _texts(agent)[-1] == 'Then: Porto: {"approved": true}'
    assert warnings == []


async def test_an_interrupt_as_it_was_takes_an_answer_of_today(served: str) -> None:
    """INT-2: the bridge takes `resume` also where it has not told of the interrupt."""
    async with HttpAgent(f"{served}plain") as agent:
        await _run(agent, "book")
        await _run(
            agent,
            ToolMessage(id="a", tool_call_id="call-book", content="asked"),
            resume={"the only one": {"approved": True}},
        )

    assert _results(agent) == ['Porto: {"approved": true}']


async def test_two_interrupts_at_once(served: str) -> None:
    """INT-1, INT-2, CONV-4: both are asked; LangGraph wants the answers by id.

    The bridge gives it one answer for all, which LangGraph refuses: the run fails, and both stay
    open. A bridge that passes the ids on (`ById`) is all it takes.
    """
    async with HttpAgent(f"{served}fork") as agent:
        await _run(agent, "Where to?")
        questions = {asked.message: asked.id for asked in agent.interrupts}
        await _run(agent, resume=dict.fromkeys(questions.values(), "yes"))
        assert agent.error is not None
        assert "multiple pending interrupts" in agent.error.message
        assert {asked.message for asked in agent.interrupts} == questions.keys()

    async with HttpAgent(f"{served}by-id") as agent:
        await _run(agent, "Where to?")
        questions = {asked.message: asked.id for asked in agent.interrupts}
        await _run(agent, resume={questions["left?"]: "no", questions["right?"]: "yes"})

    assert questions.keys() == {"left?", "right?"}
    assert _texts(agent) == ["left: no", "right: yes"]
    assert agent.interrupts == []


# What its streams are like, by the rules

ASK_USER: Final = {"name": "ask_user", "description": "Asks the person.", "parameters": {}}

# Every fault that is found, none of which a reader would reject; the reasons are in
# `docs/reference/peers.md`.
DOUBTS: Final = {
    ("warning", "VER-1", "RUN_STARTED"),  # it declares no version
    ("warning", "FRONT-3", "RUN_FINISHED"),  # the success outcome is left out, and what is pending
    # By default an interrupt is a custom event of LangGraph's own, and a call without a result.
    ("warning", "PROC-13", "CUSTOM"),
    ("warning", "FRONT-6", "RUN_FINISHED"),
    ("warning", "TOOL-2", ""),  # our model's own doing: the arguments are passed on as they came
}


async def test_its_streams_break_no_rule_and_what_is_doubtful_is_known(app: FastAPI) -> None:
    """VER-1, FRONT-3, PROC-13, FRONT-6, TOOL-2: the faults are these, and all of them warnings."""
    checked = Checked(app)

    def open_checked(path: str) -> Agent:
        return Agent(AsgiTransport(checked, path=path))

    for path in ("/plain", "/asks"):
        for said in ("hello", "weather", "think", "ask badly", "fail"):
            async with open_checked(path) as agent:
                await _run(agent, said, tools=[ASK_USER])
        async with open_checked(path) as agent:

            @agent.tool(read_only=True)
            async def ask_user(question: str) -> str:
                return f"{question} To Porto!"

            result = await agent.ask("ask")
            assert result.runs == 2

    async with open_checked("/plain") as agent:
        await _run(agent, "book")
        answer = ToolMessage(id="a", tool_call_id="call-book", content="asked")
        await _run(agent, answer, forwarded_props={"command": {"resume": {"approved": True}}})
    async with open_checked("/asks") as agent:
        await _run(agent, "book")
        await _run(agent, resume={agent.interrupts[0].id: {"approved": True}})
    for path in ("/fork", "/by-id"):
        async with open_checked(path) as agent:
            await _run(agent, "Where to?")
            await _run(agent, resume={asked.id: "yes" for asked in agent.interrupts})

    assert len(checked.checkers) == 22
    assert checked.faults == DOUBTS
