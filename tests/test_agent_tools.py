"""Functions that answer an agent's calls: what is sent, what is asked, and when the runs end."""

import asyncio
import threading
from textwrap import indent
from typing import Any

import httpx
import pytest

from aguia import Agent, HttpAgent, InvalidInput, ProtocolWarning, TextPart
from aguia.client import CANCEL, ToolRequest, tool
from aguia.protocol.messages import ToolMessage
from aguia.server import InProcess, Run
from support_events import event
from support_wire import Script, reply, scripted

pytestmark = pytest.mark.anyio


def call(id_: str, name: str, arguments: str = "{}") -> list[dict[str, Any]]:
    """A tool call without a result."""
    return [
        event("TOOL_CALL_START", toolCallId=id_, toolCallName=name, parentMessageId="calls"),
        event("TOOL_CALL_ARGS", toolCallId=id_, delta=arguments),
        event("TOOL_CALL_END", toolCallId=id_),
    ]


def says(text: str) -> list[dict[str, Any]]:
    """An assistant's message."""
    return [
        event("TEXT_MESSAGE_START", messageId=f"m-{text}", role="assistant"),
        event("TEXT_MESSAGE_CONTENT", messageId=f"m-{text}", delta=text),
        event("TEXT_MESSAGE_END", messageId=f"m-{text}"),
    ]


def answers(sent: dict[str, Any]) -> dict[str, Any]:
    """What an input answers to which call: the content, or the error."""
    return {
        each["toolCallId"]: each.get("error", each["content"])
        for each in sent["messages"]
        if each["role"] == "tool"
    }


def yes(request: ToolRequest) -> bool:
    """Consents to everything."""
    return True


async def test_a_call_is_answered_and_the_agent_goes_on() -> None:
    """FRONT-5: all in one iteration, the function's signature being what is offered."""
    script = Script(
        reply(*call("a", "weather", '{"city":"Porto"}'), usage=[{"inputTokens": 1}]),
        reply(*says("Sunny"), result=1, usage=[{"inputTokens": 2}]),
    )
    async with scripted(script) as agent:

        @agent.tool(read_only=True)
        def weather(city: str, days: int = 1) -> str:
            """The weather in a city.

            Args:
                city: its name.
                days: how many.
            """
            return f"{city}: sun for {days} day"

        stream = agent.run(
            "Hi", forwarded_props={"k": 1}, context=[{"description": "d", "value": "v"}]
        )
        types = [each.type async for each in stream]
        assert weather("Faro") == "Faro: sun for 1 day"
        result = stream.result
    assert types.count("RUN_STARTED") == types.count("RUN_FINISHED") == 2
    offered = script.sent[0]["tools"][0]
    assert (offered["name"], offered["description"]) == ("weather", "The weather in a city.")
    assert offered["parameters"]["required"] == ["city"]
    assert answers(script.sent[1]) == {"a": "Porto: sun for 1 day"}
    # The next run is given the same things.
    for member in ("tools", "forwardedProps", "context", "threadId"):
        assert script.sent[0][member] == script.sent[1][member]
    assert script.sent[0]["runId"] != script.sent[1]["runId"]
    assert (result.outcome, result.text, result.result, result.runs) == ("success", "Sunny", 1, 2)
    assert [each.role for each in result.new_messages] == ["assistant", "tool", "assistant"]
    assert [each.input_tokens for each in result.usage] == [3]
    assert result.pending_calls == []


async def test_nothing_runs_without_consent_and_the_agent_is_told() -> None:
    """SEC-2: nobody to ask is no consent, and neither is anything but True."""
    ran: list[str] = []

    def delete(name: str) -> None:
        ran.append(name)

    async def decide(request: ToolRequest) -> Any:
        asked.append((request.name, request.arguments))
        return {"x": True, "y": False, "z": "Not that one."}[request.arguments["name"]]

    asked: list[Any] = []
    made = [each for id_ in "xyz" for each in call(id_, "delete", f'{{"name":"{id_}"}}')]
    for consent in (None, decide):
        script = Script(reply(*made), reply())
        async with scripted(script, tools=[delete], consent=consent) as agent:
            await agent.ask("Hi")
        told = answers(script.sent[1])
        assert all(message["error"] for message in script.sent[1]["messages"] if "error" in message)
        if consent is None:
            assert ran == []
            assert len(told) == 3
        else:
            assert ran == ["x"]
            assert told["x"] == ""
            assert "Not that one." in told["z"]
    assert asked == [("delete", {"name": id_}) for id_ in "xyz"]


async def test_what_can_not_run_is_answered_by_an_error() -> None:
    """FRONT-5, FRONT-6, SEC-1: and the agent may do better in the next run."""

    @tool(read_only=True)
    def double(n: int) -> int:
        return 2 * n

    @tool(read_only=True)
    def fail() -> None:
        raise LookupError("no such row")

    script = Script(
        reply(
            *call("json", "double", '{"n":'),
            *call("type", "double", '{"n":"1"}'),
            *call("more", "double", '{"n":1,"m":2}'),
            *call("name", "triple", '{"n":1}'),
            *call("fail", "fail"),
            *call("good", "double", '{"n":21}'),
        ),
        reply(*call("again", "double", '{"n":4}')),
        reply(*says("Done")),
    )
    async with scripted(script, tools=[double, fail]) as agent:
        result = await agent.ask("Hi")
    told = answers(script.sent[1])
    assert told["good"] == "42"
    assert "JSON" in told["json"]
    assert "n" in told["type"]
    assert "m" in told["more"]
    assert "triple" in told["name"]
    assert told["fail"] == "LookupError: no such row"
    failed = [each for each in agent.messages if isinstance(each, ToolMessage) and each.error]
    assert [each.tool_call_id for each in failed] == ["json", "type", "more", "name", "fail"]
    assert answers(script.sent[2])["again"] == "8"
    assert (result.text, result.runs) == ("Done", 3)


async def test_results_may_be_parts() -> None:
    """TOOL-7."""

    @tool(read_only=True)
    async def look() -> list[TextPart]:
        await asyncio.sleep(0)
        return [TextPart(text="seen")]

    script = Script(reply(*call("a", "look")), reply())
    async with scripted(script, tools=[look]) as agent:
        await agent.ask("Hi")
    assert answers(script.sent[1]) == {"a": [{"type": "text", "text": "seen"}]}


async def test_calls_run_side_by_side_up_to_a_limit() -> None:
    at_once = most = 0

    @tool(read_only=True)
    async def work() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1

    made = [each for number in range(6) for each in call(str(number), "work")]
    async with scripted(Script(reply(*made), reply()), tools=[work], max_parallel_tools=3) as agent:
        await agent.ask("Hi")
    assert most == 3


async def test_a_function_that_takes_too_long_is_given_up() -> None:
    @tool(read_only=True)
    async def hang() -> None:
        await asyncio.sleep(3600)

    @tool(read_only=True, timeout=0.01)
    def block() -> None:
        release.wait(30)

    release = threading.Event()
    script = Script(reply(*call("a", "hang"), *call("b", "block")), reply())
    try:
        async with scripted(script, tools=[hang, block], tool_timeout=0.05) as agent:
            await agent.ask("Hi")
    finally:
        release.set()
    told = answers(script.sent[1])
    assert "0.05 s" in told["a"]
    assert "0.01 s" in told["b"]


async def test_the_runs_end_at_the_limit_and_the_next_one_goes_on() -> None:
    """FRONT-5: what was not run is left open, named, and run first the next time."""
    ran: list[int] = []

    @tool(read_only=True)
    def more() -> int:
        ran.append(1)
        return len(ran)

    script = Script(*[reply(*call(str(n), "more")) for n in range(3)], reply(*says("Done")))
    warnings: list[ProtocolWarning] = []
    async with scripted(script, tools=[more], max_rounds=2, on_warning=warnings.append) as agent:
        result = await agent.ask("Hi")
        assert (result.outcome, result.runs, len(ran)) == ("success", 2, 1)
        assert [each.id for each in result.pending_calls] == ["1"]
        assert [each.stage for each in warnings] == [each.stage for each in result.warnings]
        assert [each.rule for each in warnings] == ["FRONT-5"]
        result = await agent.ask("Go on")
        assert (result.text, result.runs, len(ran)) == ("Done", 2, 3)
    # The call of before is answered in its place, and then the user speaks.
    assert [each["role"] for each in script.sent[2]["messages"]][-3:] == ["tool", "tool", "user"]


async def test_a_stored_threads_calls_are_answered_first() -> None:
    """FRONT-5."""
    async with scripted(Script(reply(*call("a", "double", '{"n":1}')))) as agent:
        await agent.ask("Hi")
        history = agent.history()

    @tool(read_only=True)
    def double(n: int) -> int:
        return 2 * n

    script = Script(reply(*says("Done")))
    async with scripted(script, history=history, tools=[double]) as again:
        stream = again.run("And?")
        assert (await _types(stream))[0] == "RUN_STARTED"
        assert stream.input.messages[-2].content == "2"
    assert answers(script.sent[0]) == {"a": "2"}
    assert script.sent[0]["messages"][-1]["content"] == "And?"


async def test_calls_of_tools_that_are_only_declared_are_the_applications() -> None:
    """FRONT-5: what has a function is answered, the rest is left, and nothing is sent before."""

    @tool(read_only=True)
    def mine() -> str:
        return "1"

    declared = {"name": "yours", "description": "", "parameters": {}}
    script = Script(reply(*call("a", "mine"), *call("b", "yours")), reply())
    async with scripted(script, tools=[mine, declared]) as agent:
        result = await agent.ask("Hi")
        assert [each.id for each in result.pending_calls] == ["b"]
        with pytest.raises(InvalidInput, match="'b' of the tool 'yours'"):
            agent.run()
        await agent.ask([ToolMessage(id="r", tool_call_id="b", content="2")])
    assert answers(script.sent[1]) == {"a": "1", "b": "2"}


async def test_calls_are_answered_also_where_the_agent_waits_for_an_answer() -> None:
    """INT-2: the next step is the application's, and then everything is there."""

    @tool(read_only=True)
    def mine() -> str:
        return "1"

    asked = {"id": "i", "reason": "approval", "toolCallId": "b"}
    script = Script(
        reply(
            *call("a", "mine"),
            *call("b", "mine"),
            outcome={"type": "interrupt", "interrupts": [asked]},
        ),
        reply(),
    )
    async with scripted(script, tools=[mine]) as agent:
        result = await agent.ask("Hi")
        assert (result.outcome, result.runs) == ("interrupted", 1)
        assert [each.id for each in result.pending_calls] == ["b"]
        async for _ in agent.resume({"i": CANCEL}):
            pass
    assert answers(script.sent[1]) == {"a": "1"}


async def test_a_failed_run_runs_nothing() -> None:
    """RUN-8, TOOL-3: what a run leaves that came to nothing is not acted on."""
    ran: list[int] = []

    @tool(read_only=True)
    def mine() -> None:
        ran.append(1)

    for end in ({"outcome": {"type": "cancelled"}},):
        script = Script(reply(*call("a", "mine"), **end), reply())
        async with scripted(script, tools=[mine]) as agent:
            assert (await agent.ask("Hi")).outcome == "cancelled"
            await agent.ask("Again")
        assert list(answers(script.sent[1])) == ["a"]
    assert ran == []


async def test_a_function_that_is_defined_anew_takes_its_own_place() -> None:
    """As by a notebook's cell that is run again; any other of the name is refused."""
    cell = """
@agent.tool(read_only=True)
def weather(city: str) -> str:
    return "{}"
"""
    script = Script(reply(*call("a", "weather", '{"city":"Porto"}')), reply(*says("So")))
    async with scripted(script) as agent:
        for answer in ("Sunny", "Rain"):
            exec(cell.format(answer), {"__name__": "__main__", "agent": agent})
        await agent.ask("The weather?")
        assert [each["name"] for each in script.sent[0]["tools"]] == ["weather"]
        assert answers(script.sent[1]) == {"a": "Rain"}
        for name in ("__main__", "another"):
            other = cell if name == "another" else f"def scope():\n{indent(cell, ' ')}\nscope()"
            with pytest.raises(ValueError, match="offered already"):
                exec(other, {"__name__": name, "agent": agent})


async def test_tools_may_be_those_of_one_run() -> None:
    @tool(read_only=True)
    def one() -> str:
        return "1"

    @tool(read_only=True)
    def two() -> str:
        return "2"

    script = Script(reply(*call("a", "two")), reply(), reply())
    async with scripted(script, tools=[one]) as agent:
        await agent.ask("Hi", tools=[two])
        await agent.ask("Again")
    assert [[each["name"] for each in sent["tools"]] for sent in script.sent] == [
        ["two"],
        ["two"],
        ["one"],
    ]
    assert answers(script.sent[1]) == {"a": "2"}


async def test_names_are_taken_once() -> None:
    def one() -> None: ...

    with pytest.raises(ValueError, match="one"):
        HttpAgent("http://127.0.0.1:1/", tools=[one, {"name": "one", "description": ""}])
    agent = HttpAgent("http://127.0.0.1:1/", tools=[one])
    with pytest.raises(ValueError, match="one"):
        agent.tool(one)
    agent.tool(name="other")(one)
    # A fork has its own.
    fork = agent.fork()
    fork.tool(name="third")(one)
    agent.tool(name="third")(one)


async def test_leaving_while_functions_run_keeps_what_they_did() -> None:
    """FRONT-5, SEC-2: a function that has run is not run again, and the agent hears of it."""
    ran: list[str] = []
    running, quickly = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def quick() -> str:
        ran.append("quick")
        quickly.set()
        return "done"

    @tool(read_only=True)
    async def slow() -> None:
        ran.append("slow")
        running.set()
        await asyncio.sleep(3600)

    def unasked() -> None:
        ran.append("unasked")

    async def decide(request: ToolRequest) -> bool:
        if "cancelled" not in ran:
            await asyncio.sleep(3600)
        return False

    script = Script(
        reply(*call("a", "quick"), *call("b", "slow"), *call("c", "unasked")),
        reply(*says("Fine")),
    )
    async with scripted(
        script, tools=[quick, slow, unasked], consent=decide, max_parallel_tools=2
    ) as agent:
        stream = agent.run("Hi")
        reading = asyncio.create_task(_types(stream))
        await running.wait()
        await quickly.wait()
        agent.cancel()
        await reading
        ran.append("cancelled")
        assert stream.result.outcome == "truncated"
        assert [each.id for each in agent.pending_tool_calls] == ["c"]
        result = await agent.ask("Never mind")
    assert ran == ["quick", "slow", "cancelled"]
    told = answers(script.sent[1])
    assert told["a"] == "done"
    assert "gave up" in told["b"]
    assert "did not allow" in told["c"]
    assert result.text == "Fine"


@pytest.mark.parametrize("again", [call("a", "act", ""), []], ids=["made", "named"])
async def test_a_call_that_was_answered_is_not_carried_out_again(again: list[Any]) -> None:
    """FRONT-5, SEC-2: whatever a later run says of it."""
    ran: list[int] = []

    @tool
    def act() -> None:
        ran.append(1)

    named = {"type": "success", "pendingToolCallIds": ["a"]}
    script = Script(reply(*call("a", "act")), reply(*again, outcome=named))
    async with scripted(script, tools=[act], consent=yes) as agent:
        result = await agent.ask("Hi")
    assert (ran, result.runs, result.pending_calls) == ([1], 2, [])


class _Stop(BaseException):
    pass


async def test_a_function_that_ends_the_program_leaves_the_others_answers() -> None:
    """FRONT-5, SEC-2: what has been carried out is not carried out again."""
    ran: list[str] = []

    @tool(read_only=True)
    async def act() -> str:
        ran.append("act")
        return "done"

    @tool(read_only=True)
    async def leave() -> None:
        await asyncio.sleep(0.01)
        raise _Stop

    script = Script(reply(*call("a", "act"), *call("b", "leave")), reply())
    async with scripted(script, tools=[act, leave]) as agent:
        with pytest.raises(_Stop):
            await agent.ask("Hi")
        await agent.ask("Again")
    assert ran == ["act"]
    assert answers(script.sent[1])["a"] == "done"
    assert "may be done" in answers(script.sent[1])["b"]


async def test_a_function_may_ask_a_fork() -> None:
    """FRONT-5: the call that is being answered is not answered in the fork as well."""
    ran: list[str] = []
    script = Script(reply(*call("a", "look_up")), reply(*says("inner")), reply(*says("outer")))
    async with scripted(script, consent=yes) as agent:

        @agent.tool
        async def look_up() -> str:
            ran.append("look_up")
            assert len(ran) == 1  # else it would go on for ever
            return (await agent.fork().ask("What?")).text

        result = await agent.ask("Hi")
    assert (ran, result.text) == (["look_up"], "outer")
    assert "forked" in answers(script.sent[1])["a"]
    assert answers(script.sent[2]) == {"a": "inner"}


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
async def test_a_time_limit_that_is_none_is_refused_where_it_is_given(seconds: float) -> None:
    async with scripted(Script()) as agent:
        with pytest.raises(ValueError, match="positive number of seconds"):
            agent.run("Hi", timeout=seconds)
        with pytest.raises(ValueError, match="positive number of seconds"):
            HttpAgent(agent.url, tool_timeout=seconds)


async def _types(stream: Any) -> list[str]:
    return [each.type async for each in stream]


async def test_a_time_limit_holds_for_functions_and_consent_too() -> None:
    async def never(request: ToolRequest) -> bool:
        await asyncio.sleep(3600)
        return True

    def risky() -> None: ...

    async with scripted(Script(reply(*call("a", "risky"))), tools=[risky], consent=never) as agent:
        stream = agent.run("Hi", timeout=0.1)
        with pytest.raises(Exception, match="0.1 seconds"):
            await _types(stream)
        assert stream.result.outcome == "truncated"


async def test_a_refused_second_round_is_a_failure() -> None:
    """HTTP-4: the agent did not take the answers, which are kept and sent with the next run."""

    @tool(read_only=True)
    def mine() -> str:
        return "1"

    script = Script(reply(*call("a", "mine")), httpx.Response(500), reply(*says("Now")))
    async with scripted(script, tools=[mine], retries=0) as agent:
        stream = agent.run("Hi")
        with pytest.raises(Exception, match="500"):
            await _types(stream)
        assert (stream.result.outcome, stream.result.runs) == ("failed", 1)
        assert agent.messages[-1].content == "1"
        assert (await agent.ask()).text == "Now"
    assert answers(script.sent[2]) == {"a": "1"}


async def test_an_agent_function_in_process_uses_the_clients_functions() -> None:
    """TRANS-1: the same without HTTP, with an agent of ours."""

    async def assistant(run: Run) -> None:
        last = run.messages[-1]
        if isinstance(last, ToolMessage):
            async with run.text() as text:
                await text.write(f"It is {last.content}")
        else:
            await run.call("clock", {"zone": "UTC"})

    async with Agent(InProcess(assistant)) as agent:

        @agent.tool(read_only=True)
        def clock(zone: str) -> str:
            return f"noon in {zone}"

        assert (await agent.ask("What time is it?")).text == "It is noon in UTC"
