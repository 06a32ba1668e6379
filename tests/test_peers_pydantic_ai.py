"""Agents of Pydantic AI, served by its own AG-UI adapter: a real peer of `HttpAgent`.

The models are Pydantic AI's doubles, so that nothing leaves the machine; everything between
them and the client is real: its adapter, Starlette, uvicorn, HTTP on the loopback interface.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest
from ag_ui.core import CustomEvent, StateDeltaEvent, StateSnapshotEvent
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext, ToolReturn
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaThinkingCalls,
    DeltaThinkingPart,
    DeltaToolCall,
    DeltaToolCalls,
    FunctionModel,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.ui import StateDeps
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aguia import Agent as Client
from aguia import (
    AssistantMessage,
    HttpAgent,
    InputRejected,
    ProtocolWarning,
    ReasoningMessage,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguia.client import AsgiTransport
from support_checked import Checked
from support_server import serve

pytestmark = pytest.mark.anyio

ASK: Final = {
    "name": "ask_user",
    "description": "Asks the person a question.",
    "parameters": {
        "type": "object",
        "properties": {"question": {"type": "string"}},
        "required": ["question"],
    },
}

Piece = str | DeltaToolCalls | DeltaThinkingCalls


class Trip(BaseModel):
    """The shared state."""

    city: str = ""
    stops: list[str] = []


def _app(answer: Callable[[Request], Awaitable[Response]]) -> Starlette:
    return Starlette(routes=[Route("/", answer, methods=["POST"])])


def _served(agent: Agent[Any, Any], deps: Callable[[], Any] = lambda: None) -> Starlette:
    """The agent behind its own adapter."""

    async def answer(request: Request) -> Response:
        return await AGUIAdapter.dispatch_request(request, agent=agent, deps=deps())

    return _app(answer)


async def _run(agent: HttpAgent, content: Any = None, **options: Any) -> list[str]:
    return [event.type async for event in agent.run(content, **options)]


def _calls(agent: HttpAgent) -> list[ToolCall]:
    return [
        call
        for message in agent.messages
        if isinstance(message, AssistantMessage) and message.tool_calls
        for call in message.tool_calls
    ]


def _texts(agent: HttpAgent) -> list[str]:
    return [
        message.content
        for message in agent.messages
        if isinstance(message, AssistantMessage) and message.content
    ]


async def test_text_of_two_turns() -> None:
    """RUN-2, TEXT-1, VER-1: a run of text, and a second one that carries the first along."""
    warnings: list[ProtocolWarning] = []
    with serve(_served(Agent(TestModel(custom_output_text="Olá from Porto")))) as url:
        async with HttpAgent(url, on_warning=warnings.append) as agent:
            first = [event async for event in agent.run("Where am I?", run_id="run-1")]
            types = await _run(agent, "And now?")

    started = first[0]
    assert isinstance(started, RunStartedEvent)
    assert (started.thread_id, started.run_id) == (agent.thread_id, "run-1")
    assert started.protocol_version == "1.0"
    assert types[:2] == ["RUN_STARTED", "TEXT_MESSAGE_START"]
    assert types[-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert [message.role for message in agent.messages] == ["user", "assistant"] * 2
    assert _texts(agent) == ["Olá from Porto"] * 2
    assert agent.outcome == RunFinishedSuccessOutcome()
    assert warnings == []


async def test_a_tool_of_the_agent_is_answered_by_the_agent() -> None:
    """TOOL-1, TOOL-6, CONV-1: the result comes in the same run, right after its call."""
    agent_there = Agent(TestModel(seed=1))

    @agent_there.tool_plain
    def weather(city: str) -> dict[str, Any]:
        return {"city": city, "sky": "☀️"}

    warnings: list[ProtocolWarning] = []
    with serve(_served(agent_there)) as url:
        async with HttpAgent(url, on_warning=warnings.append) as agent:
            types = await _run(agent, "How is the weather?")

    (call,) = _calls(agent)
    assert call.function.name == "weather"
    city = json.loads(call.function.arguments)["city"]
    place = next(i for i, item in enumerate(agent.messages) if isinstance(item, ToolMessage))
    result, holder = agent.messages[place], agent.messages[place - 1]
    assert isinstance(result, ToolMessage)
    assert isinstance(holder, AssistantMessage)
    assert holder.tool_calls == [call]
    assert result.tool_call_id == call.id
    assert json.loads(str(result.content)) == {"city": city, "sky": "☀️"}
    assert types.count("TOOL_CALL_RESULT") == 1
    assert agent.pending_tool_calls == []
    assert _texts(agent)[-1].startswith('{"weather":')
    assert warnings == []


async def test_a_frontend_tool_is_left_to_us_and_the_agent_goes_on_with_our_answer() -> None:
    """FRONT-1 to FRONT-5: advertised, called, pending, answered, used.

    The agent's own tool, called in the same breath, is answered there.
    """
    agent_there = Agent(TestModel())

    @agent_there.tool_plain
    def weather(city: str) -> str:
        return f"sun over {city}"

    warnings: list[ProtocolWarning] = []
    with serve(_served(agent_there)) as url:
        async with HttpAgent(url, tools=[ASK], on_warning=warnings.append) as agent:
            await _run(agent, "Plan a trip.")
            (pending,) = agent.pending_tool_calls
            outcome = agent.outcome
            await _run(
                agent, ToolMessage(id="answer", tool_call_id=pending.id, content="Porto, please")
            )

    assert pending.function.name == "ask_user"
    assert "question" in json.loads(pending.function.arguments)
    assert isinstance(outcome, RunFinishedSuccessOutcome)
    assert outcome.pending_tool_call_ids == [pending.id]
    assert {call.function.name for call in _calls(agent)} == {"weather", "ask_user"}
    assert agent.pending_tool_calls == []
    assert json.loads(_texts(agent)[-1])["ask_user"] == "Porto, please"
    assert warnings == []


async def test_state_goes_there_and_comes_back() -> None:
    """STATE-1, STATE-2, IN-1: our state reaches the agent's tool, and its changes reach us."""
    agent_there = Agent(TestModel(), deps_type=StateDeps[Trip])
    seen: list[Trip] = []

    @agent_there.tool
    def go(ctx: RunContext[StateDeps[Trip]]) -> ToolReturn[str]:
        trip = ctx.deps.state
        seen.append(trip.model_copy(deep=True))
        stops = [*trip.stops, trip.city]
        return ToolReturn(
            return_value="gone",
            metadata=[
                StateSnapshotEvent(snapshot={"city": trip.city, "stops": stops}),
                StateDeltaEvent.model_validate(
                    {"delta": [{"op": "replace", "path": "/city", "value": "Faro"}]}
                ),
                CustomEvent(name="com.example.gone", value=None),
            ],
        )

    warnings: list[ProtocolWarning] = []
    with serve(_served(agent_there, lambda: StateDeps(Trip()))) as url:
        async with HttpAgent(url, state={"city": "Porto"}, on_warning=warnings.append) as agent:
            first = await _run(agent, "Go.")
            after_first = agent.state
            # Another thread with that state: a model double calls its tools once a conversation.
            async with HttpAgent(url, state=after_first, on_warning=warnings.append) as other:
                await _run(other, "Go on.")

    assert seen == [Trip(city="Porto"), Trip(city="Faro", stops=["Porto"])]
    assert after_first == {"city": "Faro", "stops": ["Porto"]}
    assert other.state == {"city": "Faro", "stops": ["Porto", "Faro"]}
    assert "CUSTOM" in first
    assert warnings == []


async def test_a_history_of_several_turns_is_read_there_as_it_was_written() -> None:
    """CONV-1, REAS-4, FRONT-5: the agent's model is given what it said before, and what we said.

    That is in order, and each thing once: text, reasoning, arguments and results.
    """
    histories: list[list[ModelMessage]] = []

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Piece]:
        histories.append(messages)
        answers = [
            part
            for message in messages
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
        match len(answers):
            case 0:
                yield {0: DeltaThinkingPart(content="Which ", signature="sealed")}
                yield {0: DeltaThinkingPart(content="city?")}
                yield "One moment: "
                yield "I ask. 🧭"
                yield {1: DeltaToolCall(name="ask_user", tool_call_id="ask-1")}
                yield {1: DeltaToolCall(json_args='{"question":')}
                yield {1: DeltaToolCall(json_args='"Where?"}')}
            case 1:
                yield {0: DeltaToolCall(name="weather", json_args='{"city":"Porto"}')}
            case _:
                yield f"{answers[-1].content}, in {answers[0].content}."

    agent_there = Agent(FunctionModel(stream_function=model))

    @agent_there.tool_plain
    def weather(city: str) -> str:
        return f"sun over {city}"

    warnings: list[ProtocolWarning] = []
    with serve(_served(agent_there)) as url:
        async with HttpAgent(url, tools=[ASK], on_warning=warnings.append) as agent:
            first = await _run(agent, "Plan a trip.")
            (pending,) = agent.pending_tool_calls
            second = await _run(
                agent, ToolMessage(id="a", tool_call_id=pending.id, content="Porto")
            )
            await _run(agent, "Again?")

    assert pending.id == "ask-1"
    assert json.loads(pending.function.arguments) == {"question": "Where?"}
    assert "REASONING_MESSAGE_CONTENT" in first
    assert "TOOL_CALL_RESULT" in second
    thoughts = [item for item in agent.messages if isinstance(item, ReasoningMessage)]
    assert [thought.content for thought in thoughts] == ["Which city?"]
    assert _texts(agent)[:2] == ["One moment: I ask. 🧭", "sun over Porto, in Porto."]
    assert warnings == []

    # The last run's model was given all that went before, in order and each thing once.
    last = [part for message in histories[-1] for part in message.parts]
    assert [type(part) for part in last] == [
        UserPromptPart,
        ThinkingPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        ToolCallPart,
        ToolReturnPart,
        TextPart,
        UserPromptPart,
    ]
    said = [part.content for part in last if isinstance(part, TextPart | ThinkingPart)]
    assert said == ["Which city?", "One moment: I ask. 🧭", "sun over Porto, in Porto."]
    assert [part.args_as_dict() for part in last if isinstance(part, ToolCallPart)] == [
        {"question": "Where?"},
        {"city": "Porto"},
    ]
    assert [part.content for part in last if isinstance(part, ToolReturnPart)] == [
        "Porto",
        "sun over Porto",
    ]
    (thought,) = [part for part in last if isinstance(part, ThinkingPart)]
    assert thought.signature == "sealed"
    assert all(isinstance(message, ModelRequest | ModelResponse) for message in histories[-1])


async def test_an_agent_that_fails_reports_a_run_error() -> None:
    """RUN-8: its failure is delivered, kept, and not raised as a violation."""

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Piece]:
        yield "I will"
        raise RuntimeError("the model is out")

    warnings: list[ProtocolWarning] = []
    with serve(_served(Agent(FunctionModel(stream_function=model)))) as url:
        async with HttpAgent(url, on_warning=warnings.append) as agent:
            types = await _run(agent, "Go.")

    assert types[-1] == "RUN_ERROR"
    assert agent.error is not None
    assert agent.error.message == "the model is out"
    assert agent.outcome is None
    assert _texts(agent) == ["I will"]
    assert warnings == []


async def test_a_service_that_refuses_is_told_from_an_agent_that_fails() -> None:
    """HTTP-4: an error status is a rejected input, and the thread stays as it was."""

    async def refuse(request: Request) -> Response:
        return Response('{"detail":"no key"}', 401, media_type="application/json")

    with serve(_app(refuse)) as url:
        async with HttpAgent(url, messages=[UserMessage(id="u", content="Hi")]) as agent:
            with pytest.raises(InputRejected, match="no key") as caught:
                await _run(agent, "Go.")

    assert caught.value.status == 401
    assert [message.id for message in agent.messages] == ["u"]


async def test_its_streams_break_no_rule_and_leave_no_doubt() -> None:
    """REAS-1, STATE-1, STATE-2, TOOL-6: thoughts, a tool of its own, state and an event."""

    async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Piece]:
        if len(messages) == 1:
            yield {0: DeltaThinkingPart(content="Which ", signature="sealed")}
            yield {0: DeltaThinkingPart(content="city?")}
            yield "One moment."
            yield {1: DeltaToolCall(name="go", json_args="{}")}
        else:
            yield "Gone."

    agent_there = Agent(FunctionModel(stream_function=model))

    @agent_there.tool_plain
    def go() -> ToolReturn[str]:
        patch = {"delta": [{"op": "replace", "path": "/city", "value": "Faro"}]}
        return ToolReturn(
            return_value="gone",
            metadata=[
                StateSnapshotEvent(snapshot={"city": "Porto"}),
                StateDeltaEvent.model_validate(patch),
                CustomEvent(name="com.example.gone", value=None),
            ],
        )

    checked = Checked(_served(agent_there))
    async with Client(AsgiTransport(checked)) as agent:
        result = await agent.ask("Go.")
    assert (result.outcome, result.text) == ("success", "Gone.")
    assert agent.state == {"city": "Faro"}
    assert len(checked.checkers) == 1
    assert checked.findings == []
