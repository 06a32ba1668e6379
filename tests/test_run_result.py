"""What came of a run: the five outcomes, leaving, time limits, `ask`, and the thread afterwards."""

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest

from aguia import (
    Agent,
    AguiaError,
    ConnectionFailed,
    HttpAgent,
    InputRejected,
    InvalidInput,
    RunFailed,
    RunTimeout,
    SequenceViolation,
    TruncatedRun,
)
from aguia.client import Answer, RunResult, RunStream
from aguia.protocol.common import UNSET
from aguia.protocol.content import TextPart
from aguia.protocol.input import RunAgentInput
from aguia.protocol.messages import (
    AssistantMessage,
    FunctionCall,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguia.protocol.outcomes import TokenUsage
from support_events import event, frame, text
from support_wire import (
    HEAD,
    SSE,
    Pieces,
    RawRequest,
    Script,
    chunked,
    raw_server,
    reply,
    scripted,
)

pytestmark = pytest.mark.anyio


def call(id_: str, *, name: str = "ask") -> list[dict[str, Any]]:
    """A tool call without a result."""
    return [
        event("TOOL_CALL_START", toolCallId=id_, toolCallName=name),
        event("TOOL_CALL_ARGS", toolCallId=id_, delta="{}"),
        event("TOOL_CALL_END", toolCallId=id_),
    ]


def broken_off(*events: dict[str, Any]) -> Callable[[httpx.Request], httpx.Response]:
    """An answer whose run starts and never ends."""

    def answer(request: httpx.Request) -> httpx.Response:
        sent = json.loads(request.content)
        start = event("RUN_STARTED", threadId=sent["threadId"], runId=sent["runId"])
        return httpx.Response(200, headers=SSE, content=frame(start, *events))

    return answer


async def read(
    stream: RunStream, said: asyncio.Event | None = None
) -> tuple[list[str], Exception | None]:
    """The types of a run's events, and what it raised; `said` is set at the first text."""
    found: list[str] = []
    try:
        async for each in stream:
            found.append(each.type)
            if said is not None and each.type == "TEXT_MESSAGE_CONTENT":
                said.set()
    except AguiaError as error:
        return found, error
    return found, None


_ENDS: Final[dict[str, tuple[Callable[[], Any], str, type[Exception] | None]]] = {
    "no outcome": (lambda: reply(*text("m", "Hi")), "success", None),
    "success": (lambda: reply(outcome={"type": "success"}), "success", None),
    "an unknown outcome": (lambda: reply(outcome={"type": "paused"}), "success", None),
    "a question": (
        lambda: reply(outcome={"type": "interrupt", "interrupts": [{"id": "i", "reason": "r"}]}),
        "interrupted",
        None,
    ),
    "cancelled": (lambda: reply(outcome={"type": "cancelled"}), "cancelled", None),
    "its own failure": (lambda: broken_off(event("RUN_ERROR", message="No.")), "failed", RunFailed),
    "a failure at once": (
        lambda: httpx.Response(200, headers=SSE, content=frame(event("RUN_ERROR", message="No."))),
        "failed",
        RunFailed,
    ),
    "a violation": (
        lambda: broken_off(event("TEXT_MESSAGE_END", messageId="x")),
        "failed",
        SequenceViolation,
    ),
    "a refusal": (
        lambda: httpx.Response(422, json={"error": {"message": "no"}}),
        "failed",
        InputRejected,
    ),
    "no connection": (lambda: httpx.ConnectError("no"), "failed", ConnectionFailed),
    "no answer": (lambda: httpx.ReadTimeout(""), "failed", RunTimeout),
    "a body that ends": (lambda: broken_off(*text("m", "Half")[:2]), "truncated", TruncatedRun),
    "an empty body": (lambda: httpx.Response(200, headers=SSE), "truncated", TruncatedRun),
    "a reset": (
        lambda: httpx.Response(200, headers=SSE, stream=Pieces([httpx.ReadError("")])),
        "truncated",
        TruncatedRun,
    ),
    "silence": (
        lambda: httpx.Response(200, headers=SSE, stream=Pieces([httpx.ReadTimeout("")])),
        "truncated",
        RunTimeout,
    ),
}


@pytest.mark.parametrize("end", _ENDS)
async def test_each_end_is_one_of_five(end: str) -> None:
    """RUN-8, RUN-9, RUN-10, RUN-11, HTTP-4: and no one of them is taken for another."""
    answer, outcome, kind = _ENDS[end]
    async with scripted(Script(answer()), retries=0) as agent:
        stream = agent.run("Hi")
        _, raised = await read(stream)
        result = stream.result
        assert result.outcome == outcome
        assert type(result.error) is (kind or type(None))
        # A failure that the run reports is no error of the iteration.
        assert raised is (None if kind is RunFailed else result.error)
        assert stream.result is result


@pytest.mark.parametrize("end", _ENDS)
async def test_ask_raises_what_is_no_answer(end: str) -> None:
    """RUN-8: a run that failed raises, one that was interrupted or cancelled does not."""
    answer, outcome, kind = _ENDS[end]
    async with scripted(Script(answer()), retries=0) as agent:
        if kind is None:
            assert (await agent.ask("Hi")).outcome == outcome
        else:
            with pytest.raises(kind):
                await agent.ask("Hi")


async def test_a_result_says_all_that_came_of_a_run() -> None:
    events = [
        event("STEP_STARTED", stepName="s", unknown=1),
        event("STEP_FINISHED", stepName="s"),
        *text("m", "One", " two"),
        *call("c"),
    ]
    usage = [
        {"provider": "p", "model": "m", "inputTokens": 3, "outputTokens": 0},
        {"provider": "p", "model": "n", "inputTokens": 4},
        {"provider": "p", "model": "m", "inputTokens": 5, "totalTokens": 5},
        {"provider": "q", "inputTokens": 1, "outputTokens": 2, "totalTokens": 3},
        {"provider": "q", "inputTokens": 4, "outputTokens": 0, "totalTokens": 4},
    ]
    async with scripted(Script(reply(*events, result={"n": 1}, usage=usage))) as agent:
        result = await agent.ask("Hi")
        assert result.result == {"n": 1}
        assert result.text == "One two"
        assert [message.id for message in result.new_messages] == ["m", "c"]
        assert [each.id for each in result.pending_calls] == ["c"]
        assert [(each.rule, each.path) for each in result.warnings] == [("PROC-2", "/unknown")]
        # USE-1: what nobody has reported stays unreported, and a total is the total of all.
        assert result.usage == [
            TokenUsage(provider="p", model="m", input_tokens=8, output_tokens=0),
            TokenUsage(provider="p", model="n", input_tokens=4),
            TokenUsage(provider="q", input_tokens=5, output_tokens=2, total_tokens=7),
        ]
        assert (result.interrupts, result.error, result.runs) == ([], None, 1)


async def test_a_failure_keeps_its_code_and_what_arrived() -> None:
    """RUN-8: what was delivered stays delivered."""
    answer = broken_off(
        *text("m", "Half"),
        event("RUN_ERROR", message="Out of credit", code="quota", usage=[{"inputTokens": 2}]),
    )
    async with scripted(Script(answer)) as agent:
        with pytest.raises(RunFailed, match="Out of credit") as caught:
            await agent.ask("Hi")
        assert caught.value.code == "quota"
        assert agent.messages[-1].content == "Half"
        assert [each.input_tokens for each in agent.usage] == [2]


async def test_a_result_is_there_only_at_the_end() -> None:
    async with scripted(Script(reply())) as agent:
        stream = agent.run("Hi")
        with pytest.raises(RuntimeError, match="not ended"):
            _ = stream.result
        await anext(stream)
        with pytest.raises(RuntimeError, match="not ended"):
            _ = stream.result


# Leaving


class _Half:
    """A server that starts a run, says half of something and waits; then answers whole runs."""

    def __init__(self, *, silent: bool = False) -> None:
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()
        self._silent = silent

    async def __call__(self, request: RawRequest) -> None:
        run = request.run
        if self.asked.is_set():
            body = frame(
                event("RUN_STARTED", **run), *text("n", "Whole"), event("RUN_FINISHED", **run)
            )
            await request.write(HEAD + chunked(body) + b"0\r\n\r\n")
            return
        self.asked.set()
        if not self._silent:
            start = event("RUN_STARTED", **run)
            half = [*call("c", name="look"), *text("m", "Half")[:2]]
            await request.write(HEAD + chunked(frame(start, *half)))
        await request.gone()
        self.gone.set()


LOOK: Final = {"name": "look", "description": "", "parameters": {}}


@pytest.mark.parametrize("way", ["agent", "stream", "aclose", "timeout", "task"])
@pytest.mark.parametrize("silent", [False, True])
async def test_leaving_counts_as_truncated(way: str, silent: bool) -> None:
    """RUN-11: whatever is waited for; the connection closes, and the thread goes on.

    Calls that were cut off are answered in the next input (FRONT-5).
    """
    half = _Half(silent=silent)
    async with raw_server(half) as server, HttpAgent(server.url, tools=[LOOK]) as agent:
        stream = agent.run("Hi", timeout=1.5 if way == "timeout" else None)
        arrived = asyncio.Event()
        reading = asyncio.create_task(read(stream, arrived))
        async with asyncio.timeout(10):
            await half.asked.wait()
            if not silent:
                await arrived.wait()
        match way:
            case "agent":
                agent.cancel()
            case "stream":
                stream.cancel()
            case "aclose":
                await stream.aclose()
            case "task":
                reading.cancel()
        if way == "task":
            with pytest.raises(asyncio.CancelledError):
                await reading
        else:
            events, error = await reading
            assert type(error) is (RunTimeout if way == "timeout" else type(None))
            assert events[-1:] == ([] if silent else ["TEXT_MESSAGE_CONTENT"])
        assert stream.result.outcome == "truncated"
        assert isinstance(stream.result.error, TruncatedRun | RunTimeout)
        async with asyncio.timeout(5):
            await half.gone.wait()
        # What arrived is kept, and an input that nobody took is not.
        assert [each.role for each in agent.messages] == (
            [] if silent else ["user", "assistant", "assistant"]
        )
        assert (await agent.ask("Again")).text == "Whole"
        cut = [each for each in agent.messages if isinstance(each, ToolMessage)]
        assert [(each.tool_call_id, bool(each.error)) for each in cut] == (
            [] if silent else [("c", True)]
        )


async def test_ask_raises_when_it_is_cancelled() -> None:
    half = _Half()
    async with raw_server(half) as server, HttpAgent(server.url) as agent:
        asking = asyncio.create_task(agent.ask("Hi"))
        await half.asked.wait()
        agent.cancel()
        with pytest.raises(TruncatedRun, match="left"):
            await asking


async def test_a_time_limit_that_is_kept_changes_nothing() -> None:
    async with scripted(Script(reply(*text("m", "Hi")))) as agent:
        assert (await agent.ask("Hi", timeout=60)).text == "Hi"


async def test_cancelling_between_events_gives_no_further_one() -> None:
    async with scripted(Script(reply(*text("m", "a", "b", "c")), reply())) as agent:
        stream = agent.run("Hi")
        found = []
        async for each in stream:
            found.append(each.type)
            if each.type == "TEXT_MESSAGE_CONTENT":
                agent.cancel()
        assert found == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]
        assert stream.result.outcome == "truncated"
        await agent.ask("Again")


async def test_who_leaves_at_the_last_event_has_seen_the_end() -> None:
    """RUN-9: the run had ended, whatever the connection goes on to do."""
    async with scripted(Script(reply(result=1))) as agent:
        async with agent.run("Hi") as stream:
            async for each in stream:
                if each.type == "RUN_FINISHED":
                    break
        assert (stream.result.outcome, stream.result.result) == ("success", 1)


async def test_cancelling_when_nothing_runs_does_nothing() -> None:
    async with scripted(Script(reply(), reply())) as agent:
        agent.cancel()
        await agent.ask("Hi")
        agent.cancel()
        assert (await agent.ask("Hi")).outcome == "success"


async def test_a_run_that_nobody_holds_is_gone_at_once() -> None:
    """Without the collector of cycles: a loop that was left must not keep a connection."""
    half = _Half()
    async with raw_server(half) as server, HttpAgent(server.url) as agent:
        gc.disable()
        try:
            async for each in agent.run("Hi"):
                if each.type == "TEXT_MESSAGE_CONTENT":
                    break
            async with asyncio.timeout(5):
                await half.gone.wait()
        finally:
            gc.enable()


async def test_who_leaves_at_the_last_event_keeps_its_usage() -> None:
    """USE-1: nothing is lost that has arrived."""
    async with scripted(Script(reply(usage=[{"inputTokens": 3}]))) as agent:
        async with agent.run("Hi") as stream:
            async for each in stream:
                if each.type == "RUN_FINISHED":
                    break
        assert stream.result.usage == [TokenUsage(input_tokens=3)]


async def test_a_run_is_iterated_by_one_task_at_a_time() -> None:
    """The second is refused, and the first goes on."""
    half = _Half()
    async with raw_server(half) as server, HttpAgent(server.url) as agent:
        stream = agent.run("Hi")
        said = asyncio.Event()
        first = asyncio.create_task(read(stream, said))
        await said.wait()
        with pytest.raises(RuntimeError, match="another task"):
            await anext(stream)
        assert stream.under_way
        await stream.aclose()
        # Whoever closes may go on at once.
        assert not stream.under_way
        assert (await first)[1] is None
        assert stream.result.outcome == "truncated"


async def test_a_run_is_closed_by_several_tasks() -> None:
    half = _Half()
    async with raw_server(half) as server, HttpAgent(server.url) as agent:
        stream = agent.run("Hi")
        await anext(stream)
        await asyncio.gather(*[stream.aclose() for _ in range(3)])
        assert stream.result.outcome == "truncated"
        await half.gone.wait()


async def test_after_cancelling_the_thread_goes_on_at_once() -> None:
    """Also where nobody waits for the next event."""
    async with scripted(Script(reply(*text("m", "Hi")), reply())) as agent:
        stream = agent.run("Hi")
        await anext(stream)
        agent.cancel()
        assert stream.result.outcome == "truncated"
        assert (await agent.ask("Again")).outcome == "success"
        assert await read(stream) == ([], None)


class _Stop(BaseException):
    pass


async def test_an_event_is_not_skipped_when_the_program_is_to_end_in_it() -> None:
    """RUN-11: a run that lost an event is no success."""

    def stop(warning: Any) -> None:
        raise _Stop

    script = Script(reply(event("NOBODY_KNOWS"), *text("m", "Hi")))
    async with scripted(script, on_warning=stop) as agent:
        stream = agent.run("Hi")
        with pytest.raises(_Stop):
            await read(stream)
        assert await read(stream) == ([], None)
        assert stream.result.outcome == "truncated"


async def test_a_runs_id_is_new_to_the_thread() -> None:
    """EVT-6: once an agent has taken it."""
    script = Script(httpx.Response(422), reply(), reply())
    async with scripted(script) as agent:
        with pytest.raises(InputRejected):
            await agent.ask("Hi", run_id="r")
        await agent.ask("Hi", run_id="r")
        with pytest.raises(InvalidInput) as caught:
            agent.run("Hi", run_id="r")
        assert (caught.value.rule, caught.value.path) == ("EVT-6", "/runId")


# Calls that are left


ASK: Final = {"name": "ask", "description": "Asks."}


def answer(id_: str, call_id: str = "c") -> dict[str, Any]:
    """What the application answers to a call."""
    return {"role": "tool", "id": id_, "toolCallId": call_id, "content": "Yes"}


async def test_a_call_is_answered_once() -> None:
    """FRONT-5."""
    async with scripted(Script(reply(*call("c")), reply()), tools=[ASK]) as agent:
        await agent.ask("Hi")
        with pytest.raises(InvalidInput) as caught:
            agent.run([answer("a"), answer("b")])
        assert (caught.value.rule, caught.value.path) == ("FRONT-5", "/messages")
        agent.messages.append(answer("a"))
        with pytest.raises(InvalidInput, match="second answer"):
            agent.messages.append(answer("b"))
        assert (await agent.ask()).outcome == "success"


async def test_an_id_that_an_agent_uses_again_has_an_answer_for_each_call() -> None:
    held = [
        AssistantMessage(id=f"m{n}", tool_calls=[ToolCall(id="c", type="function", function=made)])
        for n, made in enumerate([FunctionCall(name="ask", arguments="{}")] * 2)
    ]
    async with scripted(Script(reply())) as agent:
        for message in held:
            agent.messages.append(message)
        agent.messages.append(answer("a"))
        agent.messages.append(answer("b"))
        with pytest.raises(InvalidInput, match="second answer"):
            agent.messages.append(answer("d"))


async def test_a_call_stays_open_behind_what_is_said_before_its_answer() -> None:
    """FRONT-5: also in a history, and in a fork."""
    async with scripted(Script(reply(*call("c")), reply()), tools=[ASK]) as agent:
        await agent.ask("Hi")
        agent.messages.append("And another thing")
        stored = HttpAgent(agent.url, history=agent.history())
        for each in (agent, agent.fork(), stored, stored.fork()):
            assert [pending.id for pending in each.pending_tool_calls] == ["c"]


async def test_a_thread_does_not_go_on_before_each_call_is_answered() -> None:
    """FRONT-5: refused before anything is sent, naming the calls."""
    script = Script(reply(*call("a"), *call("b")), reply(*text("m", "Thanks")))
    async with scripted(script, tools=[{**LOOK, "name": "ask"}]) as agent:
        await agent.ask("Hi")
        with pytest.raises(InvalidInput, match="'a' of the tool 'ask', 'b'") as caught:
            agent.run("And?")
        assert caught.value.rule == "FRONT-5"
        with pytest.raises(InvalidInput, match="each call is answered: 'b'"):
            agent.run([ToolMessage(id="r", tool_call_id="a", content="1")])
        agent.messages.append(ToolMessage(id="r", tool_call_id="a", content="1"))
        assert [each.id for each in agent.pending_tool_calls] == ["b"]
        agent.messages.append({"role": "tool", "id": "s", "toolCallId": "b", "content": "2"})
        assert agent.pending_tool_calls == []
        await agent.ask("And?")
    assert len(script.sent) == 2
    # CONV-1: each answer directly follows its call.
    assert [each["id"] for each in script.sent[1]["messages"][1:-1]] == ["a", "r", "b", "s"]


async def test_answers_to_the_calls_of_one_message_keep_their_order() -> None:
    """CONV-1: an answer goes behind those that are there."""
    events = [
        {**each, "parentMessageId": "m"} if each["type"] == "TOOL_CALL_START" else each
        for each in [*call("a"), *call("b")]
    ]
    script = Script(reply(*events), reply())
    async with scripted(script, tools=[{**LOOK, "name": "ask"}]) as agent:
        await agent.ask("Hi")
        answers = [ToolMessage(id=f"to-{id_}", tool_call_id=id_, content="") for id_ in "ab"]
        await agent.ask(answers)
    assert [each["id"] for each in script.sent[1]["messages"][1:]] == ["m", "to-a", "to-b"]


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_calls_of_a_run_that_came_to_nothing_are_answered_by_saying_so(end: str) -> None:
    """FRONT-5: the thread goes on as it is; tools that the agent runs are its own matter."""
    made = [*call("a"), *call("b", name="internal")]
    first = (
        broken_off(*made, event("RUN_ERROR", message="No."))
        if end == "failed"
        else reply(*made, outcome={"type": "cancelled"})
    )
    script = Script(first, reply())
    async with scripted(script, tools=[{**LOOK, "name": "ask"}]) as agent:
        await read(agent.run("Hi"))
        await agent.ask("Again")
    answers = [each for each in script.sent[1]["messages"] if each["role"] == "tool"]
    assert [(each["toolCallId"], each["content"]) for each in answers] == [
        ("a", answers[0]["error"])
    ]


async def test_an_interrupted_run_leaves_the_agents_own_calls_alone() -> None:
    """INT-2, FRONT-5: a call that waits for an approval is answered by `resume`."""
    asked = {"id": "i", "reason": "approval", "toolCallId": "a"}
    script = Script(
        reply(
            *call("a"),
            *call("b", name="internal"),
            *call("c"),
            outcome={"type": "interrupt", "interrupts": [asked]},
        ),
        reply(),
    )
    async with scripted(script, tools=[{**LOOK, "name": "ask"}]) as agent:
        assert (await agent.ask("Hi")).outcome == "interrupted"
        assert [each.id for each in agent.pending_tool_calls] == ["a", "b", "c"]
        with pytest.raises(InvalidInput, match="'c' of the tool 'ask'"):
            agent.resume({"i": True})
        agent.messages.append(ToolMessage(id="r", tool_call_id="c", content="1"))
        stream = agent.resume({"i": True})
        await read(stream)
        assert stream.result.outcome == "success"
    assert script.sent[1]["resume"] == [{"interruptId": "i", "status": "resolved", "payload": True}]


# The thread


async def test_what_is_appended_is_part_of_the_thread() -> None:
    script = Script(reply())
    async with scripted(script) as agent:
        agent.messages.append("One")
        agent.messages.append([TextPart(text="Two"), "Three"])
        agent.messages.append(AssistantMessage(id="x", content="Four"))
        with pytest.raises(InvalidInput, match="'x'"):
            agent.messages.append(UserMessage(id="x", content="Again"))
        with pytest.raises(InvalidInput):
            agent.messages.append({"role": "user"})
        await agent.ask("Five")
    assert [each["content"] for each in script.sent[0]["messages"]] == [
        "One",
        [{"type": "text", "text": "Two"}, {"type": "text", "text": "Three"}],
        "Four",
        "Five",
    ]


async def test_nothing_is_appended_while_a_run_goes_on() -> None:
    async with scripted(Script(reply(*text("m", "Hi")))) as agent:
        stream = agent.run("Hi")
        await anext(stream)
        with pytest.raises(RuntimeError, match="has not ended"):
            agent.messages.append("More")
        await read(stream)


async def test_a_run_made_before_something_was_appended_does_not_begin() -> None:
    async with scripted(Script(reply())) as agent:
        stream = agent.run("Hi")
        agent.messages.append("More")
        with pytest.raises(RuntimeError, match="has gone on"):
            await anext(stream)


async def test_a_history_goes_out_and_in_again() -> None:
    """INT-2, REAS-4: with everything that the next input needs."""
    first = reply(
        *text("m", "Hi"),
        event("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="m", encryptedValue="x"),
        event("STATE_SNAPSHOT", snapshot={"n": None}),
        event("ACTIVITY_SNAPSHOT", messageId="v", activityType="p", content={"a": 1}),
        outcome={"type": "interrupt", "interrupts": [{"id": "i", "reason": "r"}]},
    )
    async with scripted(Script(first)) as agent:
        await agent.ask("Hi")
        stored = json.dumps(agent.history())
        kept = agent.history()
    for history in (stored, stored.encode(), json.loads(stored)):
        script = Script(reply())
        async with scripted(script, history=history) as again:
            assert again.history() == kept
            with pytest.raises(InvalidInput, match="'i'"):
                again.run("And?")
            stream = again.resume({"i": "yes"})
            await read(stream)
        sent = script.sent[0]
        assert sent["threadId"] == kept["threadId"]
        assert sent["state"] == {"n": None}
        assert [each.get("encryptedValue") for each in sent["messages"]] == [None, "x"]


async def test_a_stored_thread_knows_its_open_calls() -> None:
    """FRONT-5: also when it is taken up without the tools."""
    async with scripted(Script(reply(*call("a"))), tools=[{**LOOK, "name": "ask"}]) as agent:
        await agent.ask("Hi")
        history = agent.history()
        assert history["pendingToolCallIds"] == ["a"]
    script = Script(reply())
    async with scripted(script, history=history) as again:
        assert [each.id for each in again.pending_tool_calls] == ["a"]
        with pytest.raises(InvalidInput, match="'a'"):
            again.run("And?")
        await again.ask([ToolMessage(id="r", tool_call_id="a", content="1")])
        assert again.pending_tool_calls == []


async def test_a_call_of_the_agents_own_is_left_to_it() -> None:
    """FRONT-4, FRONT-5: a call of a tool that nobody offered, unless the outcome names it."""
    ended = {"outcome": {"type": "success", "pendingToolCallIds": ["a"]}}
    for finish, refused in (({}, False), (ended, True)):
        async with scripted(Script(reply(*call("a"), **finish), reply())) as agent:
            await agent.ask("Hi")
            assert [each.id for each in agent.pending_tool_calls] == ["a"]
            if refused:
                with pytest.raises(InvalidInput, match="'a'"):
                    agent.run("And?")
            else:
                await agent.ask("And?")


@pytest.mark.parametrize(
    ("history", "where"),
    [
        ("[]", ""),
        ("{", ""),
        ({"messages": {}}, "/messages"),
        ({"threadId": 1}, "/threadId"),
        ({"pendingToolCallIds": "a"}, "/pendingToolCallIds"),
        ({"pendingToolCallIds": ["a", 1]}, "/pendingToolCallIds/1"),
        ({"messages": [{"role": "user", "id": 1, "content": ""}]}, "/messages/0/id"),
        ({"interrupts": [{"id": "i"}]}, "/interrupts/0/reason"),
    ],
)
async def test_what_is_no_history_is_refused(history: Any, where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        HttpAgent("http://127.0.0.1:1/", history=history)
    assert caught.value.path == where


async def test_a_history_is_not_mixed_with_its_parts() -> None:
    with pytest.raises(ValueError, match="only"):
        HttpAgent("http://127.0.0.1:1/", history={}, messages=[UserMessage(id="u", content="")])


async def test_a_fork_goes_its_own_way() -> None:
    script = Script(
        reply(*text("m", "Hi"), event("STATE_SNAPSHOT", snapshot={"n": [1]})),
        reply(
            *text("a", "A"), event("STATE_DELTA", delta=[{"op": "add", "path": "/n/-", "value": 2}])
        ),
        reply(*text("b", "B")),
    )
    async with scripted(script) as agent:
        await agent.ask("Hi")
        fork = agent.fork()
        named = agent.fork("mine")
        assert named.thread_id == "mine"
        assert fork.thread_id not in (agent.thread_id, "mine")
        await fork.ask("To the fork")
        assert fork.state == {"n": [1, 2]}
        assert agent.state == {"n": [1]}
        await fork.close()  # the transport is the first one's
        await agent.ask("To the first")
        assert [each.content for each in agent.messages] == ["Hi", "Hi", "To the first", "B"]
        assert [each.content for each in fork.messages] == ["Hi", "Hi", "To the fork", "A"]
    assert [each["threadId"] for each in script.sent] == [
        agent.thread_id,
        fork.thread_id,
        agent.thread_id,
    ]


async def test_a_state_may_be_given_with_a_run() -> None:
    """IN-1, STATE-2."""
    delta = event("STATE_DELTA", delta=[{"op": "replace", "path": "/n", "value": 2}])
    script = Script(reply(delta))
    async with scripted(script, state={"old": True}) as agent:
        await agent.ask("Hi", state={"n": 1})
        assert script.sent[0]["state"] == {"n": 1}
        assert agent.state == {"n": 2}


async def test_a_representation_is_short_and_stable() -> None:
    async with scripted(Script(reply(*text("m", "Hi")), reply()), thread_id="t-1") as agent:
        empty = repr(agent)
        await agent.ask("Hello <b>")
        assert repr(agent) == repr(agent)
        assert repr(agent) != empty
        assert "t-1" in repr(agent)
        assert "example" in repr(agent)
        assert len(repr(agent)) < 300
        html = agent._repr_html_()
        assert "Hello &lt;b&gt;" in html


async def test_a_result_reads_well() -> None:
    async with scripted(Script(reply(*text("m", "Hi")))) as agent:
        assert isinstance(result := await agent.ask("Hi"), RunResult)
        assert "success" in repr(result)


class _Typed:
    """A transport that brings events and no bytes."""

    def open(self, input: RunAgentInput) -> Any:
        from contextlib import asynccontextmanager

        from aguia.client import Answer

        @asynccontextmanager
        async def opened() -> Any:
            async def body() -> Any:
                run = {"threadId": input.thread_id, "runId": input.run_id}
                yield event("RUN_STARTED", **run)
                for each in text("m", "Hi"):
                    yield each
                yield event("RUN_FINISHED", **run)

            yield Answer(None, body())

        return opened()

    async def close(self) -> None:
        pass

    async def capabilities(self, url: str | None = None) -> Any:
        return {"custom": {"url": url}}


async def test_a_transport_may_bring_events() -> None:
    """TRANS-1, PROC-7: they are judged like what comes as bytes."""
    async with Agent(_Typed()) as agent:
        assert (await agent.ask("Hi")).text == "Hi"

        async def through(input: Any, call_next: Any) -> Any:
            async for each in call_next(input):
                yield each

    async with Agent(_Typed(), middleware=[through]) as agent:
        assert (await agent.ask("Hi")).text == "Hi"
        assert agent.result is UNSET


# What beginners do


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: HttpAgent("http://127.0.0.1:1/").run(3), "text, content parts or messages"),  # type: ignore[arg-type]
        (lambda: HttpAgent("http://127.0.0.1:1/", history=[]), "dictionary or JSON text"),  # type: ignore[arg-type]
        (lambda: HttpAgent("http://127.0.0.1:1/", consent=True), "consent is a function"),  # type: ignore[arg-type]
    ],
)
def test_what_is_of_the_wrong_kind_is_said_where_it_is_given(
    wrong: Callable[[], Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        wrong()


async def test_a_file_name_is_no_history() -> None:
    with pytest.raises(InvalidInput, match="not its name"):
        HttpAgent("http://127.0.0.1:1/", history="talk.json")


async def test_leaving_the_agent_closes_its_run() -> None:
    """RUN-11: and an error of the application's passes through."""
    half = _Half()
    async with raw_server(half) as server:
        stream: RunStream

        async def fail() -> None:
            nonlocal stream
            async with HttpAgent(server.url) as agent:
                stream = agent.run("Hi")
                async for _ in stream:
                    raise LookupError

        with pytest.raises(LookupError):
            await fail()
        async with asyncio.timeout(5):
            await half.gone.wait()
        assert stream.result.outcome == "truncated"
        assert "truncated" in repr(stream)
        with pytest.raises(TruncatedRun, match="closed"):
            await anext(stream)


ENDS_QUIETLY: Final = """
import asyncio, sys
from aguia import HttpAgent

async def main():
    agent = HttpAgent(sys.argv[1])
    stream = agent.run("Hi") if "held" in sys.argv else None
    async for event in stream or agent.run("Hi"):
        if event.type == "TEXT_MESSAGE_CONTENT":
            break
    if "closed" in sys.argv:
        await agent.close()

asyncio.run(main(), debug=False)
"""


@pytest.mark.parametrize("how", [(), ("held",), ("closed",), ("held", "closed")])
async def test_a_program_that_leaves_a_run_ends_without_noise(how: tuple[str, ...]) -> None:
    half = _Half()
    async with raw_server(half) as server:
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-c", ENDS_QUIETLY, server.url, *how],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    assert (output.decode(), process.returncode) == ("", 0)


async def test_whoever_asks_while_the_agent_is_being_closed_is_told_that_it_was_cut_off() -> None:
    """RUN-11: closing takes its time, and what is asked meanwhile waits for it."""
    released = asyncio.Event()

    class Slow:
        """A transport whose connection takes long to close."""

        @asynccontextmanager
        async def open(self, input: RunAgentInput) -> AsyncIterator[Answer]:
            async def body() -> AsyncIterator[bytes]:
                yield frame(event("RUN_STARTED", threadId=input.thread_id, runId=input.run_id))
                await asyncio.sleep(60)

            try:
                yield Answer("text/event-stream", body())
            finally:
                await released.wait()

        async def close(self) -> None:
            pass

    agent = Agent(Slow())
    stream = agent.run("Hi")
    await anext(stream)
    closing = asyncio.create_task(agent.close())
    await asyncio.sleep(0)
    asking = asyncio.create_task(anext(stream))
    await asyncio.sleep(0.01)
    assert not asking.done()
    released.set()
    with pytest.raises(TruncatedRun):
        await asking
    await closing
    assert stream.result.outcome == "truncated"
