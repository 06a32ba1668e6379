"""Tools, consent and interrupts of the client with agents of Pydantic AI.

The agents are served by Pydantic AI's own adapter, over HTTP on the loopback interface and in
process. Their models are doubles: what a model was given, and what it asks for, is the test's.
`test_peers_pydantic_ai` has the bare protocol with the same peer.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import BinaryContent, CallDeferred, DeferredToolRequests, ImageUrl, RunContext
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.ui import StateDeps
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aguia import Agent, HttpAgent, InvalidInput, ProtocolWarning, RunFailed, ToolMessage
from aguia.client import CANCEL, AsgiTransport, ToolRequest, image, tool
from support_checked import Checked
from support_server import serve

pytestmark = pytest.mark.anyio

Piece = str | DeltaToolCalls


class Trip(BaseModel):
    """The shared state."""

    city: str = ""
    days: int = 0


# The agent: its model does what the user says


async def _model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Piece]:
    parts = [part for message in messages for part in message.parts]
    prompts = [part for part in parts if isinstance(part, UserPromptPart)]
    answers = [part for part in parts if isinstance(part, ToolReturnPart)]
    said = prompts[-1].content
    if not isinstance(said, str):
        for item in said:
            match item:
                case ImageUrl():
                    yield f"[picture at {item.url}]"
                case BinaryContent():
                    yield f"[{item.media_type} of {len(item.data)} bytes]"
                case str():
                    yield item
        return
    name, *calls = said.split(" | ")
    if name == "call" and len(answers) < len(calls):
        # One after the other, or in the last part, all that are left at once.
        for place, call in enumerate(calls[len(answers)].split(" & ")):
            tool_name, arguments = call.split(" ", 1)
            id_ = f"call-{len(answers) + place}"
            yield {place: DeltaToolCall(name=tool_name, json_args=arguments, tool_call_id=id_)}
        return
    if name == "fail":
        yield "I will"
        raise RuntimeError("the model is out")
    yield "; ".join(str(answer.content) for answer in answers) or f"You said: {said}"


def _pydantic_agent() -> PydanticAgent[StateDeps[Trip], Any]:
    agent = PydanticAgent(
        FunctionModel(stream_function=_model),
        deps_type=StateDeps[Trip],
        output_type=[str, DeferredToolRequests],
    )

    @agent.tool_plain(requires_approval=True)
    def book(city: str) -> str:
        return f"booked {city}"

    @agent.tool_plain
    def print_ticket() -> str:
        raise CallDeferred

    @agent.tool
    def where(ctx: RunContext[StateDeps[Trip]]) -> str:
        return f"{ctx.deps.state.days} days in {ctx.deps.state.city}"

    return agent


async def _answer(request: Request) -> Response:
    return await AGUIAdapter.dispatch_request(
        request, agent=_pydantic_agent(), deps=StateDeps(Trip())
    )


APP: Final = Starlette(routes=[Route("/", _answer, methods=["POST"])])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(APP) as url:
        yield url


Open = Callable[..., AbstractAsyncContextManager[Agent]]


@pytest.fixture(params=["http", "asgi"])
def open_agent(request: pytest.FixtureRequest) -> Open:
    """Makes a client of the agent, over HTTP or in process."""
    if request.param == "asgi":
        return lambda **options: Agent(AsgiTransport(APP), **options)
    url: str = request.getfixturevalue("url")
    return lambda **options: HttpAgent(url, **options)


# The application: its tools and the person in front of it


@dataclass
class Person:
    """Consents as told, and remembers what was asked."""

    says: bool | str = True
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def __call__(self, request: ToolRequest) -> bool | str:
        self.asked.append((request.name, request.arguments))
        return self.says


async def ask_user(question: str, choices: list[str] | None = None) -> dict[str, Any]:
    """Asks the person a question.

    Args:
        question: what is asked.
        choices: what can be answered.
    """
    return {"question": question, "answer": choices[0] if choices else "yes"}


async def test_text(open_agent: Open) -> None:
    """RUN-9, VER-1: a run of text, and its result."""
    warnings: list[ProtocolWarning] = []
    async with open_agent(on_warning=warnings.append) as agent:
        result = await agent.ask("hello")

    assert (result.outcome, result.text, result.runs) == ("success", "You said: hello", 1)
    assert [message.role for message in result.new_messages] == ["assistant"]
    assert warnings == result.warnings == []


async def test_a_tool_is_called_allowed_answered_and_its_result_used(open_agent: Open) -> None:
    """FRONT-1 to FRONT-5, SEC-1, SEC-2: one `ask`, two runs, and the person was asked."""
    person = Person()
    warnings: list[ProtocolWarning] = []
    async with open_agent(tools=[ask_user], consent=person, on_warning=warnings.append) as agent:
        result = await agent.ask('call | ask_user {"question":"Where?","choices":["Porto","Faro"]}')

    assert person.asked == [("ask_user", {"question": "Where?", "choices": ["Porto", "Faro"]})]
    assert (result.outcome, result.runs) == ("success", 2)
    assert json.loads(result.text.replace("'", '"')) == {"question": "Where?", "answer": "Porto"}
    assert [message.role for message in agent.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert result.pending_calls == agent.pending_tool_calls == []
    assert warnings == []


async def test_tools_are_called_one_after_the_other(open_agent: Open) -> None:
    """FRONT-5: each answer starts the next run, until the agent has what it wants."""
    async with open_agent() as agent:

        @agent.tool(read_only=True)
        def add(a: int, b: int) -> int:
            """Adds two numbers."""
            return a + b

        result = await agent.ask(
            'call | add {"a":1,"b":2} | add {"a":30,"b":4} | add {"a":500,"b":6}'
        )

    assert (result.text, result.runs) == ("3; 34; 506", 4)


async def test_several_calls_of_one_run_are_answered_together(open_agent: Open) -> None:
    """FRONT-2, FRONT-5, CONV-1: all answered before the next run, in the order of the calls."""
    person = Person()

    @tool(read_only=True)
    async def look(place: Literal["river", "sea"]) -> str:
        """Looks at a place."""
        return f"the {place} is blue"

    async with open_agent(tools=[ask_user, look], consent=person) as agent:
        result = await agent.ask(
            'call | look {"place":"sea"} & ask_user {"question":"So?"} & look {"place":"river"}'
        )

    # The model goes by the number of answers, and has all three in its second run.
    assert result.runs == 2
    assert [name for name, _ in person.asked] == ["ask_user"]
    answers = [message for message in agent.messages if isinstance(message, ToolMessage)]
    assert [answer.tool_call_id for answer in answers] == ["call-0", "call-1", "call-2"]
    assert answers[0].content == "the sea is blue"
    assert answers[2].content == "the river is blue"
    assert "yes" in result.text


@pytest.mark.parametrize("says", [False, "not today"])
async def test_a_refusal_is_told_to_the_agent(open_agent: Open, says: bool | str) -> None:
    """SEC-2, FRONT-5: the function does not run, and the model is told why."""
    ran: list[str] = []

    async def delete(path: str) -> str:
        """Deletes a file."""
        ran.append(path)
        return "gone"

    async with open_agent(tools=[delete], consent=Person(says)) as agent:
        result = await agent.ask('call | delete {"path":"/"}')

    assert ran == []
    (answer,) = [message for message in agent.messages if isinstance(message, ToolMessage)]
    assert answer.error
    assert result.outcome == "success"
    assert "did not allow" in result.text
    assert (says is False) or ("not today" in result.text)


async def test_without_anybody_to_ask_only_reading_is_done(open_agent: Open) -> None:
    """SEC-2: no consent, no side effect; the agent hears of it and goes on."""
    async with open_agent(tools=[ask_user]) as agent:
        result = await agent.ask('call | ask_user {"question":"Where?"}')

    assert "needs consent" in result.text
    assert result.outcome == "success"


async def test_arguments_that_do_not_fit_are_corrected_by_the_model(open_agent: Open) -> None:
    """SEC-1, FRONT-5: the model is told what is wrong, and calls again."""
    person = Person()
    async with open_agent(tools=[ask_user], consent=person) as agent:
        result = await agent.ask(
            'call | ask_user {"query":"Where?"} | ask_user {"question":"Where?"}'
        )

    # Only what fits was shown to the person.
    assert person.asked == [("ask_user", {"question": "Where?"})]
    first, second = [message for message in agent.messages if isinstance(message, ToolMessage)]
    assert first.error
    assert "question" in str(first.content)
    assert not second.error
    assert (result.outcome, result.runs) == ("success", 3)


async def test_arguments_that_are_no_json_end_the_run_there(open_agent: Open) -> None:
    """TOOL-2, RUN-8: Pydantic AI parses them itself, answers the call, and fails the run.

    So the application never sees such a call, and the thread goes on from the failure.
    """
    person = Person()
    async with open_agent(tools=[ask_user], consent=person) as agent:
        stream = agent.run('call | ask_user {"question": Where')
        types = [event.type async for event in stream]
        after = await agent.ask("hello")

    assert types[-1] == "RUN_ERROR"
    assert stream.result.outcome == "failed"
    assert isinstance(stream.result.error, RunFailed)
    assert person.asked == []
    assert after.outcome == "success"


async def test_a_tool_that_fails_is_an_answer(open_agent: Open) -> None:
    """FRONT-5: the model hears of the exception, and of no traceback."""

    @tool(read_only=True)
    def look(place: str) -> str:
        """Looks at a place."""
        raise LookupError(f"no {place} here")

    async with open_agent(tools=[look]) as agent:
        result = await agent.ask('call | look {"place":"sea"}')

    assert result.text == "LookupError: no sea here"


async def test_a_call_that_only_the_application_can_answer(open_agent: Open) -> None:
    """FRONT-3, FRONT-5: a tool that is only declared is left to it; nothing goes on before."""
    declared = {"name": "pick", "description": "Picks a place.", "parameters": {"type": "object"}}
    async with open_agent(tools=[declared]) as agent:
        first = await agent.ask("call | pick {}")
        (call,) = first.pending_calls
        with pytest.raises(InvalidInput) as refused:
            agent.run("hello?")
        second = await agent.ask(ToolMessage(id="a", tool_call_id=call.id, content="Porto"))

    assert (first.outcome, first.runs, call.function.name) == ("success", 1, "pick")
    assert refused.value.rule == "FRONT-5"
    assert second.text == "Porto"


async def test_a_deferred_tool_of_the_agent_is_left_pending(open_agent: Open) -> None:
    """FRONT-3, FRONT-6: Pydantic AI leaves it as it leaves a frontend tool; who has it answers."""
    async with open_agent() as agent:
        first = await agent.ask("call | print_ticket {}")
        (call,) = first.pending_calls
        second = await agent.ask(ToolMessage(id="a", tool_call_id=call.id, content="printed"))

    assert call.function.name == "print_ticket"
    assert (first.outcome, second.outcome) == ("success", "success")
    assert second.text == "printed"


async def test_a_deferred_tool_that_is_none_of_ours_is_answered_so(open_agent: Open) -> None:
    """FRONT-6, SEC-1: where functions answer the calls, one that nobody offered gets an error."""
    async with open_agent(tools=[ask_user], consent=Person()) as agent:
        result = await agent.ask("call | print_ticket {}")

    assert (result.outcome, result.runs) == ("success", 2)
    assert "no tool 'print_ticket'" in result.text


# Approval: Pydantic AI asks by interrupts


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"approved": True}, "booked Porto"),
        ({"approved": True, "editedArgs": {"city": "Lisboa"}}, "booked Lisboa"),
        ({"approved": False, "reason": "too dear"}, "too dear"),
        (CANCEL, "Cancelled by user."),
    ],
    ids=["approved", "edited", "denied", "cancelled"],
)
async def test_an_approval_is_asked_for_and_given(open_agent: Open, answer: Any, text: str) -> None:
    """INT-1, INT-2, INT-7: the tool waits for the answer, and runs where the agent runs."""
    warnings: list[ProtocolWarning] = []
    async with open_agent(on_warning=warnings.append) as agent:
        first = await agent.ask('call | book {"city":"Porto"}')
        (asked,) = first.interrupts
        with pytest.raises(InvalidInput) as refused:
            agent.run("hello?")
        stream = agent.resume({asked.id: answer})
        async for _ in stream:
            pass

    assert first.outcome == "interrupted"
    assert (asked.reason, asked.tool_call_id) == ("tool_call", "call-0")
    assert asked.message == 'Approve book({"city":"Porto"})?'
    assert refused.value.rule == "INT-2"
    assert (stream.result.outcome, stream.result.text) == ("success", text)
    assert agent.interrupts == []
    assert warnings == []


async def test_an_answer_of_another_form_is_held_back(open_agent: Open) -> None:
    """INT-7: the form that was asked for is checked here; sent all the same, the run fails."""
    async with open_agent() as agent:
        first = await agent.ask('call | book {"city":"Porto"}')
        (asked,) = first.interrupts
        with pytest.raises(InvalidInput) as refused:
            agent.resume({asked.id: {"approved": "perhaps"}})
        stream = agent.resume({asked.id: {"approved": "perhaps"}}, force=True)
        async for _ in stream:
            pass
        # A failed run leaves the question open (CONV-4).
        last = await agent.ask(resume={asked.id: {"approved": True}})

    assert refused.value.rule == "INT-7"
    assert stream.result.outcome == "failed"
    assert "responseSchema" in str(stream.result.error)
    assert last.text == "booked Porto"


async def test_two_approvals_are_answered_at_once(open_agent: Open) -> None:
    """INT-2: each by its id, one approved and one abandoned."""
    async with open_agent() as agent:
        first = await agent.ask('call | book {"city":"Porto"} & book {"city":"Faro"}')
        by_call = {asked.tool_call_id: asked.id for asked in first.interrupts}
        second = await agent.ask(
            resume={by_call["call-0"]: CANCEL, by_call["call-1"]: {"approved": True}}
        )

    assert sorted(second.text.split("; ")) == ["Cancelled by user.", "booked Faro"]


async def test_an_approval_and_a_tool_of_ours_in_one_run(open_agent: Open) -> None:
    """INT-2, FRONT-4, FRONT-5: the call is answered here, the question by the person."""
    person = Person()
    async with open_agent(tools=[ask_user], consent=person) as agent:
        first = await agent.ask('call | book {"city":"Porto"} & ask_user {"question":"Sure?"}')
        (asked,) = first.interrupts
        second = await agent.ask(resume={asked.id: {"approved": True}})

    assert first.outcome == "interrupted"
    assert [name for name, _ in person.asked] == ["ask_user"]
    assert second.outcome == "success"
    assert "booked Porto" in second.text
    assert "Sure?" in second.text


async def test_an_open_question_outlives_the_program(open_agent: Open) -> None:
    """INT-6: a thread put away as JSON is taken up by another client, and answered there."""
    async with open_agent() as agent:
        await agent.ask('call | book {"city":"Porto"}')
        stored = json.dumps(agent.history())
    async with open_agent(history=stored) as other:
        result = await other.ask(resume={other.interrupts[0].id: {"approved": True}})

    assert other.thread_id == agent.thread_id
    assert result.text == "booked Porto"


# What else travels


async def test_pictures_reach_the_model(open_agent: Open) -> None:
    """IN-1: by URL and as bytes."""
    async with open_agent() as agent:
        result = await agent.ask(
            [
                "What is this? ",
                image("https://example.com/porto.png"),
                image(b"\x89PNG\r\n\x1a\n", mime_type="image/png"),
            ]
        )

    assert result.text == "What is this? [picture at https://example.com/porto.png]" + (
        "[image/png of 8 bytes]"
    )


async def test_state_reaches_the_tools_of_the_agent(open_agent: Open) -> None:
    """IN-1, STATE-2: the thread's state, and one given for the run alone."""
    async with open_agent(state={"city": "Porto", "days": 2}) as agent:
        first = await agent.ask("call | where {}")
        second = await agent.ask("call | x {} | where {}", state={"city": "Faro", "days": 7})

    assert first.text == "2 days in Porto"
    assert second.text.endswith("7 days in Faro")


async def test_a_failure_is_the_outcome(open_agent: Open) -> None:
    """RUN-8: `ask` raises it, `run` delivers it; what was said before stays."""
    async with open_agent() as agent:
        with pytest.raises(RunFailed, match="the model is out"):
            await agent.ask("fail")
        stream = agent.run("fail")
        types = [event.type async for event in stream]

    assert types[-1] == "RUN_ERROR"
    assert (stream.result.outcome, stream.result.text) == ("failed", "I will")
    assert isinstance(stream.result.error, RunFailed)


# Every fault that is found, none of which a reader would reject; the reasons are in
# `docs/reference/peers.md`.
DOUBTS: Final = {
    ("warning", "FRONT-3", "RUN_FINISHED"),  # the calls that are pending are in another order
    ("warning", "FRONT-6", "RUN_FINISHED"),  # a deferred tool of the agent's own is left to us
}


async def test_its_streams_break_no_rule_and_what_is_doubtful_is_known() -> None:
    """FRONT-3, FRONT-6: the faults are these two, and both are warnings."""
    checked = Checked(APP)
    for said in (
        "hello",
        "fail",
        'call | ask_user {"question":"Where?"}',
        'call | ask_user {"question":"Where?"} & print_ticket {} | where {}',
        "call | where {}",
        "call | print_ticket {}",
    ):
        async with Agent(AsgiTransport(checked), tools=[ask_user], consent=Person()) as agent:
            async for _ in agent.run(said):
                pass
    for answer in ({"approved": True}, CANCEL):
        async with Agent(AsgiTransport(checked)) as agent:
            async for _ in agent.run('call | book {"city":"Porto"}'):
                pass
            async for _ in agent.resume({asked.id: answer for asked in agent.interrupts}):
                pass

    assert len(checked.checkers) == 13
    assert checked.faults == DOUBTS
