"""The run that an agent is given: everything it can say, and what it is refused."""

import asyncio
import dataclasses
import datetime
import json
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Literal

import msgspec
import pydantic
import pytest

from aguia import InvalidInput, MalformedEvent, ProtocolViolation, SequenceViolation
from aguia.conversation.patch import PatchError
from aguia.protocol.content import (
    AudioPart,
    ContentPart,
    DataSource,
    DocumentPart,
    FileSource,
    TextPart,
    UrlSource,
)
from aguia.protocol.content import ImagePart as Image
from aguia.protocol.events import StepStartedEvent, TextMessageContentEvent
from aguia.protocol.messages import AssistantMessage, ToolMessage
from aguia.server import CANCELLED, Run, RunError
from support_runs import record, run_input

pytestmark = pytest.mark.anyio

Act = Callable[[Run], Coroutine[Any, Any, None]]

TOOL = {"name": "open_file", "description": "Opens a file.", "parameters": {"type": "object"}}


def event(type_: str, **members: Any) -> dict[str, Any]:
    return {"type": type_, **members}


# Everything that can be said: (what the agent does, the events that come of it)


async def _text(run: Run) -> None:
    async with run.text(role="user", name="Ana", message_id="m", metadata={"k": None}) as text:
        assert text.message_id == "m"
        await text.write("Hel")
        await text.write("lo", metadata={"at": 1})
        text.annotate(model="small")
        text.annotate(tokens=2)


async def _say(run: Run) -> None:
    assert await run.say("Hi", role="system", message_id="m", metadata={"a": 1}) == "m"


async def _streamed_call(run: Run) -> None:
    async with run.tool_call("find", tool_call_id="c", metadata={"a": 1}) as call:
        await call.write('{"q":')
        await call.write("1}", metadata={"b": 2})
        call.annotate(done=True)
    await call.result("found", message_id="r", metadata={"ms": 3})


async def _whole_call(run: Run) -> None:
    await run.say("Looking.", message_id="m")
    async with run.tool_call("find", '{"q": 1}', tool_call_id="c", parent_message_id="m"):
        pass
    async with run.tool_call("find", {"q": "ü", "n": None}, tool_call_id="d") as call:
        pass
    source = UrlSource(value="https://example.com/a.png")
    parts: list[Any] = [
        TextPart(text="one"),
        {"type": "image", "source": {"type": "file", "value": "f"}},
    ]
    await call.result([*parts, Image(source=source, metadata={"page": 1})], message_id="r")


async def _reasoning(run: Run) -> None:
    async with run.reasoning(message_id="t", metadata={"a": 1}) as thought:
        await thought.write("Hm", metadata={"b": 2})
        await thought.encrypted_value("opaque")
        thought.annotate(c=3)


async def _reasoning_apart(run: Run) -> None:
    async with run.reasoning_span(span_id="s", metadata={"a": 1}) as span:
        async with span.message(message_id="t1") as thought:
            await thought.write("one")
        async with run.reasoning_message(message_id="t2", metadata={"b": 2}) as thought:
            await thought.write("two")
        span.annotate(c=3)


async def _encrypted(run: Run) -> None:
    async with run.text(message_id="m") as text:
        await text.encrypted_value("v1")
    async with run.tool_call("find", "", tool_call_id="c") as call:
        await call.encrypted_value("v2")
    await run.encrypted_value("m", "v3", metadata={"a": 1})


async def _steps(run: Run) -> None:
    async with run.step("outer", metadata={"a": 1}) as step, run.step("inner"):
        assert step.name == "outer"
        step.annotate(b=2)


async def _activity(run: Run) -> None:
    activity = await run.activity("PLAN", {"n": 1}, message_id="p", metadata={"a": 1})
    await activity.set({"n": 2}, metadata={"b": 2})
    await activity.patch([{"op": "replace", "path": "/n", "value": 3}], metadata={"c": 3})
    await activity.patch([{"op": "add", "path": "/x", "value": None}], activity_type="DONE")
    kept = await run.activity("OTHER", {}, message_id="p", replace=False)
    assert kept.message_id == "p"


async def _custom_and_raw(run: Run) -> None:
    await run.custom("com.example.a", None, metadata={"a": 1})
    await run.custom("com.example.b", {"x": [1.5, None]})
    await run.raw({"delta": "x"}, "provider", metadata={"b": 2})
    await run.raw(None)


async def _subagents(run: Run) -> None:
    async with run.subagent(
        "outer",
        description="does it",
        subagent_run_id="a",
        parent_message_id="m",
        parent_tool_call_id="c",
        metadata={"k": 1},
    ) as outer:
        await outer.say("from a", message_id="ma")
        async with outer.subagent("inner", subagent_run_id="b") as inner, inner.step("s"):
            await inner.custom("com.example.x", 1)
        outer.annotate(tokens=5)
        outer.finish({"answer": 42})


async def _suspended(run: Run) -> None:
    async with run.subagent("asks", subagent_run_id="a") as sub:
        sub.suspend("i1")
        sub.suspend("i2")
    async with run.subagent("asks", subagent_run_id="b") as sub:
        sub.suspend()
    async with run.subagent("gives nothing", subagent_run_id="c") as sub:
        sub.finish(None)


async def _foreign(run: Run) -> None:
    await run.emit(StepStartedEvent(step_name="s"))
    await run.emit({"type": "STEP_FINISHED", "stepName": "s"})
    await run.emit({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "a"})
    await run.emit({"type": "TEXT_MESSAGE_CHUNK", "delta": "b"})
    await run.emit({"type": "MESSAGES_SNAPSHOT", "messages": []})


SAYINGS: list[tuple[Act, list[dict[str, Any]]]] = [
    (
        _text,
        [
            event(
                "TEXT_MESSAGE_START", messageId="m", role="user", name="Ana", metadata={"k": None}
            ),
            event("TEXT_MESSAGE_CONTENT", messageId="m", delta="Hel"),
            event("TEXT_MESSAGE_CONTENT", messageId="m", delta="lo", metadata={"at": 1}),
            event("TEXT_MESSAGE_END", messageId="m", metadata={"model": "small", "tokens": 2}),
        ],
    ),
    (
        _say,
        [
            event("TEXT_MESSAGE_START", messageId="m", role="system", metadata={"a": 1}),
            event("TEXT_MESSAGE_CONTENT", messageId="m", delta="Hi"),
            event("TEXT_MESSAGE_END", messageId="m"),
        ],
    ),
    (
        _streamed_call,
        [
            event("TOOL_CALL_START", toolCallId="c", toolCallName="find", metadata={"a": 1}),
            event("TOOL_CALL_ARGS", toolCallId="c", delta='{"q":'),
            event("TOOL_CALL_ARGS", toolCallId="c", delta="1}", metadata={"b": 2}),
            event("TOOL_CALL_END", toolCallId="c", metadata={"done": True}),
            event(
                "TOOL_CALL_RESULT",
                messageId="r",
                toolCallId="c",
                content="found",
                metadata={"ms": 3},
            ),
        ],
    ),
    (
        _whole_call,
        [
            event("TEXT_MESSAGE_START", messageId="m", role="assistant"),
            event("TEXT_MESSAGE_CONTENT", messageId="m", delta="Looking."),
            event("TEXT_MESSAGE_END", messageId="m"),
            event("TOOL_CALL_START", toolCallId="c", toolCallName="find", parentMessageId="m"),
            event("TOOL_CALL_ARGS", toolCallId="c", delta='{"q": 1}'),
            event("TOOL_CALL_END", toolCallId="c"),
            event("TOOL_CALL_START", toolCallId="d", toolCallName="find"),
            event("TOOL_CALL_ARGS", toolCallId="d", delta='{"q":"ü","n":null}'),
            event("TOOL_CALL_END", toolCallId="d"),
            event(
                "TOOL_CALL_RESULT",
                messageId="r",
                toolCallId="d",
                content=[
                    {"type": "text", "text": "one"},
                    {"type": "image", "source": {"type": "file", "value": "f"}},
                    {
                        "type": "image",
                        "source": {"type": "url", "value": "https://example.com/a.png"},
                        "metadata": {"page": 1},
                    },
                ],
            ),
        ],
    ),
    (
        _reasoning,
        [
            event("REASONING_START", messageId="t"),
            event("REASONING_MESSAGE_START", messageId="t", role="reasoning", metadata={"a": 1}),
            event("REASONING_MESSAGE_CONTENT", messageId="t", delta="Hm", metadata={"b": 2}),
            event(
                "REASONING_ENCRYPTED_VALUE",
                subtype="message",
                entityId="t",
                encryptedValue="opaque",
            ),
            event("REASONING_MESSAGE_END", messageId="t", metadata={"c": 3}),
            event("REASONING_END", messageId="t"),
        ],
    ),
    (
        _reasoning_apart,
        [
            event("REASONING_START", messageId="s", metadata={"a": 1}),
            event("REASONING_MESSAGE_START", messageId="t1", role="reasoning"),
            event("REASONING_MESSAGE_CONTENT", messageId="t1", delta="one"),
            event("REASONING_MESSAGE_END", messageId="t1"),
            event("REASONING_MESSAGE_START", messageId="t2", role="reasoning", metadata={"b": 2}),
            event("REASONING_MESSAGE_CONTENT", messageId="t2", delta="two"),
            event("REASONING_MESSAGE_END", messageId="t2"),
            event("REASONING_END", messageId="s", metadata={"c": 3}),
        ],
    ),
    (
        _encrypted,
        [
            event("TEXT_MESSAGE_START", messageId="m", role="assistant"),
            event(
                "REASONING_ENCRYPTED_VALUE", subtype="message", entityId="m", encryptedValue="v1"
            ),
            event("TEXT_MESSAGE_END", messageId="m"),
            event("TOOL_CALL_START", toolCallId="c", toolCallName="find"),
            event("TOOL_CALL_ARGS", toolCallId="c", delta=""),
            event(
                "REASONING_ENCRYPTED_VALUE",
                subtype="tool-call",
                entityId="c",
                encryptedValue="v2",
            ),
            event("TOOL_CALL_END", toolCallId="c"),
            event(
                "REASONING_ENCRYPTED_VALUE",
                subtype="message",
                entityId="m",
                encryptedValue="v3",
                metadata={"a": 1},
            ),
        ],
    ),
    (
        _steps,
        [
            event("STEP_STARTED", stepName="outer", metadata={"a": 1}),
            event("STEP_STARTED", stepName="inner"),
            event("STEP_FINISHED", stepName="inner"),
            event("STEP_FINISHED", stepName="outer", metadata={"b": 2}),
        ],
    ),
    (
        _activity,
        [
            event(
                "ACTIVITY_SNAPSHOT",
                messageId="p",
                activityType="PLAN",
                content={"n": 1},
                metadata={"a": 1},
            ),
            event(
                "ACTIVITY_SNAPSHOT",
                messageId="p",
                activityType="PLAN",
                content={"n": 2},
                metadata={"b": 2},
            ),
            event(
                "ACTIVITY_DELTA",
                messageId="p",
                activityType="PLAN",
                patch=[{"op": "replace", "path": "/n", "value": 3}],
                metadata={"c": 3},
            ),
            event(
                "ACTIVITY_DELTA",
                messageId="p",
                activityType="DONE",
                patch=[{"op": "add", "path": "/x", "value": None}],
            ),
            event(
                "ACTIVITY_SNAPSHOT",
                messageId="p",
                activityType="OTHER",
                content={},
                replace=False,
            ),
        ],
    ),
    (
        _custom_and_raw,
        [
            event("CUSTOM", name="com.example.a", value=None, metadata={"a": 1}),
            event("CUSTOM", name="com.example.b", value={"x": [1.5, None]}),
            event("RAW", event={"delta": "x"}, source="provider", metadata={"b": 2}),
            event("RAW", event=None),
        ],
    ),
    (
        _subagents,
        [
            event(
                "SUBAGENT_STARTED",
                subagentRunId="a",
                name="outer",
                description="does it",
                parentMessageId="m",
                parentToolCallId="c",
                metadata={"k": 1},
            ),
            event("TEXT_MESSAGE_START", messageId="ma", role="assistant", subagentRunId="a"),
            event("TEXT_MESSAGE_CONTENT", messageId="ma", delta="from a", subagentRunId="a"),
            event("TEXT_MESSAGE_END", messageId="ma", subagentRunId="a"),
            event("SUBAGENT_STARTED", subagentRunId="b", name="inner", parentSubagentRunId="a"),
            event("STEP_STARTED", stepName="s", subagentRunId="b"),
            event("CUSTOM", name="com.example.x", value=1, subagentRunId="b"),
            event("STEP_FINISHED", stepName="s", subagentRunId="b"),
            event("SUBAGENT_FINISHED", subagentRunId="b"),
            event(
                "SUBAGENT_FINISHED",
                subagentRunId="a",
                result={"answer": 42},
                metadata={"tokens": 5},
            ),
        ],
    ),
    (
        _suspended,
        [
            event("SUBAGENT_STARTED", subagentRunId="a", name="asks"),
            event(
                "SUBAGENT_FINISHED",
                subagentRunId="a",
                outcome={"type": "suspended", "interruptIds": ["i1", "i2"]},
            ),
            event("SUBAGENT_STARTED", subagentRunId="b", name="asks"),
            event("SUBAGENT_FINISHED", subagentRunId="b", outcome={"type": "suspended"}),
            event("SUBAGENT_STARTED", subagentRunId="c", name="gives nothing"),
            event("SUBAGENT_FINISHED", subagentRunId="c"),
        ],
    ),
    (
        _foreign,
        [
            event("STEP_STARTED", stepName="s"),
            event("STEP_FINISHED", stepName="s"),
            event("TEXT_MESSAGE_CHUNK", messageId="m", delta="a"),
            event("TEXT_MESSAGE_CHUNK", delta="b"),
            event("MESSAGES_SNAPSHOT", messages=[]),
        ],
    ),
]


@pytest.mark.parametrize(("act", "expected"), SAYINGS, ids=[act.__name__ for act, _ in SAYINGS])
async def test_what_is_said_is_what_is_sent(act: Act, expected: list[dict[str, Any]]) -> None:
    """TEXT-1, TOOL-1, TOOL-6, TOOL-7, REAS-1, REAS-3, REAS-4, SUB-1, SUB-5, META-1, EVT-4."""
    recorded = await record(act)
    assert recorded.said == expected
    assert recorded.outcome == "success"


async def test_a_run_begins_and_ends_as_its_input_says() -> None:
    """RUN-2, RUN-3, VER-1."""

    async def agent(run: Run) -> None:
        assert (run.thread_id, run.run_id) == ("thread", "run")
        assert run.input.protocol_version == "0.9"

    recorded = await record(agent, run_input(protocolVersion="0.9"))
    assert recorded.events == [
        event("RUN_STARTED", threadId="thread", runId="run", protocolVersion="1.0"),
        event("RUN_FINISHED", threadId="thread", runId="run", outcome={"type": "success"}),
    ]


async def test_what_the_input_holds_is_at_hand() -> None:
    """IN-3: every entry of the context among it, for the model to be given."""

    async def agent(run: Run) -> None:
        assert [message.id for message in run.messages] == ["u"]
        assert [tool.name for tool in run.tools] == ["open_file"]
        assert run.offers("open_file")
        assert not run.offers("open_files")
        assert [each.value for each in run.context] == ["spring"]
        assert run.forwarded_props == {"a": None}
        assert run.principal == "ana"
        assert run.state == {"x": 1}

    await record(
        agent,
        run_input(
            messages=[{"id": "u", "role": "user", "content": "Hi"}],
            tools=[TOOL],
            context=[{"description": "season", "value": "spring"}],
            forwardedProps={"a": None},
            state={"x": 1},
        ),
        principal="ana",
    )

    async def bare(run: Run) -> None:
        assert (run.messages, run.tools, run.context, list(run.resume)) == ([], [], [], [])
        assert run.forwarded_props is None
        assert run.principal is None
        assert run.state == {}

    assert (await record(bare)).outcome == "success"


async def test_ids_are_made_and_no_two_are_alike() -> None:
    """EVT-6."""

    async def agent(run: Run) -> None:
        for _ in range(20):
            async with run.reasoning():
                pass
            async with run.text(), run.tool_call("find"), run.subagent("s"):
                pass
            await run.activity("PLAN", {})

    recorded = await record(agent)
    opened = [
        each.get("messageId") or each.get("toolCallId") or each.get("subagentRunId")
        for each in recorded.said
        if each["type"].endswith(("_START", "_STARTED", "_SNAPSHOT"))
    ]
    assert len(opened) == 20 * 6
    assert len(set(opened)) == 20 * 5  # a reasoning span and its message share theirs


async def test_text_that_is_cut_inside_a_character_arrives_whole() -> None:
    async def agent(run: Run) -> None:
        async with run.text(message_id="m") as text:
            await text.write("\ud83e")
            await text.write("\udd85!")

    recorded = await record(agent)
    assert recorded.conversation.messages[0].content == "🦅!"


# Closing


async def test_blocks_close_in_order_when_the_agent_raises() -> None:
    """RUN-5, RUN-7: the blocks close what they opened on the way out, the run then fails."""

    async def agent(run: Run) -> None:
        async with run.step("s"), run.text(message_id="m"), run.tool_call("f", tool_call_id="c"):
            raise ValueError("secret")

    recorded = await record(agent, fails=True)
    assert recorded.types[-3:] == ["TOOL_CALL_END", "TEXT_MESSAGE_END", "STEP_FINISHED"]


async def test_blocks_close_in_order_when_the_run_is_cancelled() -> None:
    """RUN-10."""

    async def agent(run: Run) -> None:
        async with run.subagent("s", subagent_run_id="a") as sub, sub.reasoning(message_id="t"):
            run.cancel()
            await asyncio.sleep(60)

    recorded = await record(agent)
    assert recorded.types[-3:] == ["REASONING_MESSAGE_END", "REASONING_END", "SUBAGENT_ERROR"]
    assert recorded.said[-1]["code"] == "cancelled"
    assert recorded.outcome == "cancelled"
    assert "result" not in recorded.terminal


async def test_what_is_forgotten_is_closed_the_last_opened_first() -> None:
    """RUN-5: openings by `emit`, and by blocks that are never left."""

    async def agent(run: Run) -> None:
        await run.emit(event("STEP_STARTED", stepName="s"))
        await run.emit(event("TEXT_MESSAGE_START", messageId="m"))
        await run.emit(event("SUBAGENT_STARTED", subagentRunId="a", name="n"))
        await run.subagent("open", subagent_run_id="b").__aenter__()
        await run.tool_call("f", tool_call_id="c").__aenter__()
        await run.reasoning(message_id="t").__aenter__()

    recorded = await record(agent)
    assert recorded.types[-7:] == [
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TOOL_CALL_END",
        "SUBAGENT_FINISHED",
        "SUBAGENT_FINISHED",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
    ]
    assert recorded.outcome == "success"


async def test_a_subagent_that_is_left_takes_what_it_had_open_with_it() -> None:
    """SUB-2, SUB-6: its own things, and those of nobody else."""

    async def agent(run: Run) -> None:
        await run.emit(event("TEXT_MESSAGE_START", messageId="parent"))
        async with run.subagent("s", subagent_run_id="a") as sub:
            await sub.step("s").__aenter__()
            await sub.text(message_id="m").__aenter__()
        await run.emit(event("TEXT_MESSAGE_CONTENT", messageId="parent", delta="on"))

    recorded = await record(agent)
    assert recorded.types == [
        "TEXT_MESSAGE_START",
        "SUBAGENT_STARTED",
        "STEP_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "SUBAGENT_FINISHED",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
    ]


async def test_what_was_closed_by_hand_is_not_closed_again() -> None:
    """STREAM-1."""

    async def agent(run: Run) -> None:
        async with run.text(message_id="m"):
            await run.emit(event("TEXT_MESSAGE_END", messageId="m"))

    recorded = await record(agent)
    assert recorded.types == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END"]
    assert recorded.outcome == "success"


async def test_a_block_that_never_opened_leaves_nothing_open() -> None:
    """RUN-14: an opening that was given up while the reader was slow can be made again."""

    async def agent(run: Run) -> None:
        for _ in range(3):
            try:
                async with asyncio.timeout(0.01):
                    for name in ("a", "b", "c"):
                        await run.custom("com.example.fill", name)
                    async with run.step("s"), run.reasoning(message_id="t"):
                        pass
            except TimeoutError:
                pass

    gate = asyncio.Event()
    asyncio.get_running_loop().call_later(0.2, gate.set)
    recorded = await record(agent, capacity=4, read=gate.wait)
    assert recorded.outcome == "success"
    assert recorded.types.count("STEP_STARTED") == recorded.types.count("STEP_FINISHED")


async def test_half_of_an_opening_that_is_refused_is_taken_back() -> None:
    """REAS-2: the span was opened, the message in it may not be."""

    async def agent(run: Run) -> None:
        async with run.reasoning_message(message_id="t"):
            with pytest.raises(SequenceViolation, match="REAS-2"):
                async with run.reasoning(message_id="t"):
                    pass

    recorded = await record(agent)
    assert recorded.types == [
        "REASONING_MESSAGE_START",
        "REASONING_START",
        "REASONING_END",
        "REASONING_MESSAGE_END",
    ]


# Subagents that fail


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (RunError("No hits.", "empty"), "No hits.", "empty"),
        (ValueError("secret"), "The subagent failed.", None),
        (ExceptionGroup("g", [RunError("No hits.")]), "No hits.", None),
        (ExceptionGroup("g", [RunError("No."), ValueError()]), "The subagent failed.", None),
        (asyncio.CancelledError(), "The subagent was cancelled.", "cancelled"),
    ],
)
async def test_a_subagent_fails_alone(error: BaseException, message: str, code: str | None) -> None:
    """SUB-5: the invocation ends with SUBAGENT_ERROR and the run goes on."""

    async def agent(run: Run) -> None:
        with pytest.raises(type(error)):
            async with run.subagent("s", subagent_run_id="a") as sub, sub.step("x"):
                raise error
        await run.say("Never mind.")

    recorded = await record(agent)
    failed = recorded.said[3]
    assert failed == event("SUBAGENT_ERROR", subagentRunId="a", message=message) | (
        {} if code is None else {"code": code}
    )
    assert recorded.outcome == "success"


@pytest.mark.parametrize("caught", [True, False])
async def test_why_a_subagent_failed_is_in_the_log(
    caught: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, whether the agent catches it or not; the client learns nothing of it."""

    async def agent(run: Run) -> None:
        with suppress(ValueError if caught else OSError):
            async with run.subagent("s", subagent_run_id="a\n"), run.subagent("t"):
                raise ValueError("secret")

    recorded = await record(agent, fails=not caught)
    assert "secret" not in str(recorded.events)
    said = [each for each in caplog.records if each.exc_info]
    assert [each.getMessage().partition(": ")[2][:14] for each in said] == ["the subagent '"]
    assert caplog.text.count("ValueError: secret") == 1
    assert caplog.text.count("the agent raised an exception") == (0 if caught else 1)


async def test_what_parallel_subagents_failed_by_is_in_the_log_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scout(run: Run, number: int) -> None:
        async with run.subagent(f"scout {number}"):
            await asyncio.sleep(0)
            raise ValueError(f"number {number}")

    async def agent(run: Run) -> None:
        async with asyncio.TaskGroup() as scouts:
            scouts.create_task(scout(run, 1))
            scouts.create_task(scout(run, 2))

    await record(agent, fails=True)
    for number in (1, 2):
        assert caplog.text.count(f"ValueError: number {number}") == 1
    assert caplog.text.count("the agent raised an exception") == 1


async def test_words_for_the_client_are_not_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Only what led to them is."""

    async def agent(run: Run) -> None:
        with suppress(RunError):
            async with run.subagent("s"):
                raise RunError("No hits.")
        with suppress(RunError):
            async with run.subagent("s"):
                raise RunError("No hits.") from OSError("no index")

    await record(agent)
    assert caplog.text.count("the subagent '") == 1
    assert "OSError: no index" in caplog.text


async def test_subagents_in_parallel_interleave() -> None:
    """SUB-6, STREAM-3."""

    async def work(run: Run, name: str) -> None:
        async with run.subagent(name, subagent_run_id=name) as sub, sub.text() as text:
            for word in "one two three".split():
                await text.write(word)
                await asyncio.sleep(0)

    async def agent(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(work(run, name))

    recorded = await record(agent)
    owners = [each["subagentRunId"] for each in recorded.said]
    assert owners != sorted(owners)
    assert [message.content for message in recorded.conversation.messages] == ["onetwothree"] * 3


# Refused at the line that asks


async def _open_twice(run: Run) -> None:
    async with run.text(message_id="m"), run.text(message_id="m"):
        pass


async def _call_open_twice(run: Run) -> None:
    async with run.tool_call("f", tool_call_id="c"), run.tool_call("f", tool_call_id="c"):
        pass


async def _write_after_the_block(run: Run) -> None:
    async with run.text() as text:
        pass
    await text.write("late")


async def _arguments_after_the_block(run: Run) -> None:
    async with run.tool_call("f") as call:
        pass
    await call.write("late")


async def _reasoning_after_the_block(run: Run) -> None:
    async with run.reasoning() as thought:
        pass
    await thought.write("late")


async def _step_twice(run: Run) -> None:
    async with run.step("s"), run.step("s"):
        pass


async def _span_twice(run: Run) -> None:
    async with run.reasoning_span(span_id="s"), run.reasoning_span(span_id="s"):
        pass


async def _subagent_twice(run: Run) -> None:
    for _ in range(2):
        async with run.subagent("s", subagent_run_id="a"):
            pass


async def _announced_late(run: Run) -> None:
    await run.emit(event("CUSTOM", name="n", value=1, subagentRunId="a"))
    async with run.subagent("s", subagent_run_id="a"):
        pass


async def _parent_unknown(run: Run) -> None:
    await run.emit(
        event("SUBAGENT_STARTED", subagentRunId="a", name="n", parentSubagentRunId="nobody")
    )


async def _of_another(run: Run) -> None:
    async with run.subagent("s", subagent_run_id="a") as sub, run.text(message_id="m"):
        await run.emit(event("TEXT_MESSAGE_CONTENT", messageId="m", delta="x", subagentRunId="a"))
        await sub.say("never")


async def _call_in_anothers_message(run: Run) -> None:
    await run.say("mine", message_id="m")
    async with (
        run.subagent("s") as sub,
        sub.tool_call("f", "{}", parent_message_id="m"),
    ):
        pass


async def _second_start(run: Run) -> None:
    await run.say("x")
    await run.emit(event("RUN_STARTED", threadId="thread", runId="run"))


async def _other_start(run: Run) -> None:
    await run.emit(event("RUN_STARTED", threadId="thread", runId="other"))


async def _finish_with_open(run: Run) -> None:
    async with run.text():
        await run.emit(event("RUN_FINISHED", threadId="thread", runId="run"))


async def _finish_with_open_reasoning(run: Run) -> None:
    async with run.reasoning_message():
        await run.emit(event("RUN_FINISHED", threadId="thread", runId="run"))


async def _finish_with_open_subagent(run: Run) -> None:
    async with run.subagent("s"):
        await run.emit(event("RUN_FINISHED", threadId="thread", runId="run"))


async def _finish_of_another(run: Run) -> None:
    await run.emit(event("RUN_FINISHED", threadId="thread", runId="other"))


async def _wrong_pending(run: Run) -> None:
    async with run.tool_call("f", "{}", tool_call_id="c"):
        pass
    outcome = {"type": "success", "pendingToolCallIds": ["d"]}
    await run.emit(event("RUN_FINISHED", threadId="thread", runId="run", outcome=outcome))


async def _same_interrupts(run: Run) -> None:
    outcome = {"type": "interrupt", "interrupts": [{"id": "i", "reason": "r"}] * 2}
    await run.emit(event("RUN_FINISHED", threadId="thread", runId="run", outcome=outcome))


async def _interrupt_twice(run: Run) -> None:
    run.interrupt("approval", tool_call_id="c")
    run.interrupt("approval", tool_call_id="c")


async def _unknown_type(run: Run) -> None:
    await run.emit(event("THOUGHT", text="x"))


async def _unknown_role(run: Run) -> None:
    async with run.text(role="wizard"):  # type: ignore[arg-type]
        pass


async def _unknown_subtype(run: Run) -> None:
    await run.encrypted_value("m", "v", subtype="thing")  # type: ignore[arg-type]


async def _null_member(run: Run) -> None:
    await run.emit(event("TEXT_MESSAGE_START", messageId="m", name=None))


async def _number_for_an_id(run: Run) -> None:
    async with run.text(message_id=5):  # type: ignore[arg-type]
        pass


async def _list_for_a_content(run: Run) -> None:
    await run.activity("PLAN", [1])  # type: ignore[arg-type]


async def _number_for_a_flag(run: Run) -> None:
    await run.activity("PLAN", {}, replace=1)  # type: ignore[arg-type]


async def _no_json(run: Run) -> None:
    await run.emit(event("CUSTOM", name="n", value=object()))


async def _too_deep(run: Run) -> None:
    value: Any = 1
    for _ in range(256):
        value = [value]
    await run.custom("com.example.deep", value)


async def _chunk_without_id(run: Run) -> None:
    await run.emit(event("TEXT_MESSAGE_CHUNK", delta="x"))


async def _chunk_that_disagrees(run: Run) -> None:
    await run.emit(event("TEXT_MESSAGE_CHUNK", messageId="m", delta="x"))
    await run.emit(event("TEXT_MESSAGE_CHUNK", messageId="m", delta="x", role="user"))


async def _frontend_result(run: Run) -> None:
    id_ = await run.call("open_file", {"path": "a"})
    await run.emit(event("TOOL_CALL_RESULT", messageId="r", toolCallId=id_, content="x"))


async def _frontend_result_of_stream(run: Run) -> None:
    async with run.tool_call("open_file", "{}") as call:
        pass
    await call.result("x")


async def _frontend_result_of_history(run: Run) -> None:
    await run.emit(event("TOOL_CALL_RESULT", messageId="r", toolCallId="old", content="x"))


async def _not_offered(run: Run) -> None:
    await run.call("delete_everything")


REFUSED: list[tuple[str | None, Act]] = [
    ("STREAM-1", _open_twice),
    ("STREAM-1", _call_open_twice),
    ("STREAM-1", _write_after_the_block),
    ("STREAM-1", _arguments_after_the_block),
    ("REAS-2", _reasoning_after_the_block),
    ("REAS-2", _span_twice),
    ("REAS-2", _finish_with_open_reasoning),
    ("RUN-14", _step_twice),
    ("SUB-2", _subagent_twice),
    ("SUB-2", _announced_late),
    ("SUB-2", _parent_unknown),
    ("SUB-2", _finish_with_open_subagent),
    ("SUB-4", _of_another),
    ("TOOL-5", _call_in_anothers_message),
    ("RUN-4", _second_start),
    ("RUN-4", _other_start),
    ("RUN-5", _finish_with_open),
    ("RUN-3", _finish_of_another),
    ("FRONT-3", _wrong_pending),
    ("INT-1", _same_interrupts),
    ("INT-1", _interrupt_twice),
    ("PROC-13", _unknown_type),
    ("PROC-13", _unknown_role),
    ("PROC-13", _unknown_subtype),
    ("PROC-3", _null_member),  # EVT-4
    ("PROC-3", _number_for_an_id),
    ("PROC-3", _list_for_a_content),
    ("PROC-3", _number_for_a_flag),
    ("PROC-3", _no_json),
    (None, _too_deep),
    ("CHUNK-2", _chunk_without_id),
    ("CHUNK-4", _chunk_that_disagrees),
    ("FRONT-1", _frontend_result),
    ("FRONT-1", _frontend_result_of_stream),
    ("FRONT-1", _frontend_result_of_history),
    ("FRONT-6", _not_offered),
]


def _history() -> dict[str, Any]:
    call = {"id": "old", "type": "function", "function": {"name": "open_file", "arguments": "{}"}}
    return {
        "tools": [TOOL],
        "messages": [{"id": "a", "role": "assistant", "toolCalls": [call]}],
    }


@pytest.mark.parametrize(("rule", "act"), REFUSED, ids=[act.__name__ for _, act in REFUSED])
async def test_a_forbidden_move_raises_where_it_is_asked_for(rule: str | None, act: Act) -> None:
    """And nothing has been sent: the agent that catches it goes on with a good stream."""
    caught: list[ProtocolViolation] = []

    async def agent(run: Run) -> None:
        run.state["before"] = "it"
        try:
            await act(run)
        except ProtocolViolation as error:
            caught.append(error)
        run.interrupts.clear()
        await run.say("on", message_id="after")

    recorded = await record(agent, run_input(**_history()))
    assert [error.rule for error in caught] == [rule]
    assert recorded.outcome == "success"
    assert recorded.said[-1] == event("TEXT_MESSAGE_END", messageId="after")
    assert recorded.state == {"before": "it"}


@pytest.mark.parametrize(("rule", "act"), REFUSED, ids=[act.__name__ for _, act in REFUSED])
@pytest.mark.usefixtures("caplog")
async def test_a_forbidden_move_that_nobody_catches_ends_the_run(
    rule: str | None, act: Act, caplog: pytest.LogCaptureFixture
) -> None:
    """The client is told nothing of it, the log everything."""
    recorded = await record(act, run_input(**_history()), fails=True)
    assert recorded.terminal["message"] == "The agent failed. Its log says why."
    assert rule is None or f"broke the rule {rule}" in caplog.text
    assert "run run of thread thread" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        lambda run: run.text(name=5),
        lambda run: run.text(metadata=[1]),
        lambda run: run.text(metadata={"a": object()}),
        lambda run: run.text(metadata={"a": float("nan")}),
        lambda run: run.tool_call("f", arguments={"a": object()}),
        lambda run: run.interrupt(5),
        lambda run: run.interrupt("r", interrupt_id=5),
        lambda run: run.interrupt("r", response_schema=[1]),
        lambda run: run.interrupt("r", response_type=object()),
        lambda run: run.interrupt("r", metadata={1: 2}),
        lambda run: run.add_usage(input_tokens=-1),
        lambda run: run.add_usage(output_tokens=1.5),
        lambda run: run.add_usage(output_tokens=True),
        lambda run: run.add_usage(provider=5),
        lambda run: run.subagent("s").finish(object()),
    ],
)
async def test_a_value_of_the_wrong_type_raises_where_it_is_given(
    wrong: Callable[[Run], Any],
) -> None:
    async def agent(run: Run) -> None:
        with pytest.raises((TypeError, ValueError)):
            wrong(run)

    recorded = await record(agent)
    assert recorded.types == []
    assert recorded.outcome == "success"


_NO_TEXTS: list[Any] = [None, b"x", 5]


async def test_text_that_is_no_text_is_refused() -> None:
    async def agent(run: Run) -> None:
        async with run.text() as text, run.tool_call("f") as call, run.reasoning() as thought:
            for stream in (text, call, thought):
                for value in _NO_TEXTS:
                    with pytest.raises(TypeError, match="expected a string"):
                        await stream.write(value)

    recorded = await record(agent)
    assert not [kind for kind in recorded.types if kind.endswith(("_CONTENT", "_ARGS"))]


async def test_a_patch_of_an_activity_that_does_not_apply_sends_nothing() -> None:
    """ACT-3: the reader would skip it, so the writer is told."""

    async def agent(run: Run) -> None:
        activity = await run.activity("PLAN", {"n": 1})
        for operations in (
            [{"op": "remove", "path": "/nope"}],
            [{"op": "replace", "path": "", "value": 5}],
            [{"op": "add", "path": "/a", "value": 1}, {"op": "test", "path": "/n", "value": 2}],
        ):
            with pytest.raises(PatchError):
                await activity.patch(operations)
        for malformed in ([{"op": "levitate", "path": "/n"}], [{"path": 5}], [5]):
            with pytest.raises(PatchError):
                await activity.patch(malformed)  # type: ignore[arg-type]
        await activity.patch([{"op": "replace", "path": "/n", "value": 2}])

    recorded = await record(agent)
    assert recorded.types == ["ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA"]


async def test_an_activity_follows_a_snapshot_of_the_messages() -> None:
    """MSG-1: what the snapshot says of it is what the next patch is of."""

    async def agent(run: Run) -> None:
        activity = await run.activity("PLAN", {"n": 1}, message_id="p")
        restated = {"id": "p", "role": "activity", "activityType": "PLAN", "content": {"m": 1}}
        await run.emit(event("MESSAGES_SNAPSHOT", messages=[restated]))
        with pytest.raises(PatchError):
            await activity.patch([{"op": "replace", "path": "/n", "value": 2}])
        await activity.patch([{"op": "replace", "path": "/m", "value": 2}])

    assert (await record(agent)).outcome == "success"


async def test_after_its_end_a_run_takes_nothing_more() -> None:
    """RUN-6: late writes raise, also that of an error."""
    late: list[str | None] = []

    async def agent(run: Run) -> None:
        async with run.text(message_id="m") as text:
            pass
        await run.emit(event("RUN_FINISHED", threadId="thread", runId="run"))
        for act in (
            lambda: text.write("x"),
            lambda: run.say("x"),
            lambda: run.set_state({}),
            lambda: run.emit(event("RUN_ERROR", message="x")),
            lambda: run.emit(event("RUN_STARTED", threadId="thread", runId="next")),
            lambda: run.emit(event("RUN_FINISHED", threadId="thread", runId="run")),
        ):
            with pytest.raises(SequenceViolation) as caught:
                await act()
            late.append(caught.value.rule)
        run.state["late"] = True
        await run.flush()

    recorded = await record(agent, strict=False)
    assert late == ["RUN-6"] * 6
    assert recorded.types == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END"]
    assert recorded.conversation.state == {}


async def test_an_agent_may_end_its_run_itself(caplog: pytest.LogCaptureFixture) -> None:
    """RUN-7: and its blocks, which are left afterwards, don't mind."""

    async def agent(run: Run) -> None:
        async with run.step("s"), run.subagent("s") as sub, sub.text():
            await run.emit(event("RUN_ERROR", message="Out of paper.", code="paper"))

    recorded = await record(agent, fails=True)
    assert recorded.terminal == event("RUN_ERROR", message="Out of paper.", code="paper")
    assert recorded.types == ["STEP_STARTED", "SUBAGENT_STARTED", "TEXT_MESSAGE_START"]
    assert caplog.text == ""


async def test_chunks_go_on_where_they_were_after_a_refusal() -> None:
    """CHUNK-4, CHUNK-5: what a refused event would have ended goes on."""

    async def agent(run: Run) -> None:
        await run.emit(event("TEXT_MESSAGE_CHUNK", messageId="m", delta="a"))
        with pytest.raises(SequenceViolation, match="STREAM-1"):
            await run.emit(event("TEXT_MESSAGE_END", messageId="nobody"))
        with pytest.raises(SequenceViolation, match="CHUNK-4"):
            await run.emit(event("TEXT_MESSAGE_CHUNK", messageId="m", delta="b", role="user"))
        with pytest.raises(PatchError):
            await run.patch_state([{"op": "remove", "path": "/x"}])
        await run.emit(event("TEXT_MESSAGE_CHUNK", delta="b"))
        await run.emit(event("TOOL_CALL_CHUNK", toolCallId="c", toolCallName="f"))
        with pytest.raises(SequenceViolation, match="STREAM-1"):
            await run.emit(event("TEXT_MESSAGE_CONTENT", messageId="m", delta="x"))
        await run.emit(event("TOOL_CALL_CHUNK", delta="{}"))
        await run.emit(event("REASONING_MESSAGE_CHUNK", messageId="t", delta="h"))
        with pytest.raises(SequenceViolation, match="RUN-14"):
            await run.emit(event("STEP_FINISHED", stepName="s"))
        await run.emit(event("REASONING_MESSAGE_CHUNK", delta="m"))

    recorded = await record(agent)
    first, second, third = recorded.conversation.messages
    assert first.content == "ab"
    assert isinstance(second, AssistantMessage)
    assert second.tool_calls
    assert second.tool_calls[0].function.arguments == "{}"
    assert third.content == "hm"


async def test_chunks_of_a_subagent_end_with_its_block() -> None:
    """CHUNK-5."""

    async def agent(run: Run) -> None:
        async with run.subagent("s", subagent_run_id="a"):
            await run.emit(event("TEXT_MESSAGE_CHUNK", messageId="m", delta="x", subagentRunId="a"))
        await run.emit(event("MESSAGES_SNAPSHOT", messages=[]))
        await run.emit(event("TEXT_MESSAGE_CHUNK", messageId="n", delta="y"))

    recorded = await record(agent)
    assert recorded.types == [
        "SUBAGENT_STARTED",
        "TEXT_MESSAGE_CHUNK",
        "SUBAGENT_FINISHED",
        "MESSAGES_SNAPSHOT",
        "TEXT_MESSAGE_CHUNK",
    ]


# State


async def test_changes_of_the_live_state_go_before_the_next_event() -> None:
    """STATE-2: one minimal patch, before what follows, and at the end."""

    async def agent(run: Run) -> None:
        run.state["plan"][0]["done"] = True
        run.state["plan"][1]["done"] = True
        await run.custom("com.example.a", 1)
        run.state["count"] += 1
        await run.flush()
        await run.flush()
        run.state["plan"].append({"done": False})

    state = {"plan": [{"done": False}, {"done": False}], "count": 0, "pad": "x" * 500}
    recorded = await record(agent, run_input(state=state))
    assert recorded.said == [
        event(
            "STATE_DELTA",
            delta=[
                {"op": "replace", "path": "/plan/0/done", "value": True},
                {"op": "replace", "path": "/plan/1/done", "value": True},
            ],
        ),
        event("CUSTOM", name="com.example.a", value=1),
        event("STATE_DELTA", delta=[{"op": "replace", "path": "/count", "value": 1}]),
        event("STATE_DELTA", delta=[{"op": "add", "path": "/plan/2", "value": {"done": False}}]),
    ]


async def test_a_snapshot_is_sent_where_it_is_shorter() -> None:
    """STATE-1, and whoever holds the state may go on changing it."""

    async def agent(run: Run) -> None:
        state = run.state
        inner = state["inner"]
        for name in "abcdef":
            state[name] = 1
        for name in "uvwxyz":
            del state[name]
        await run.flush()
        inner["n"] = 2
        state["late"] = True
        await run.flush()
        assert run.state is state

    before = {"inner": {"n": 1}, **dict.fromkeys("uvwxyz", 0)}
    recorded = await record(agent, run_input(state=before))
    assert recorded.said[0] == event(
        "STATE_SNAPSHOT", snapshot={"inner": {"n": 1}, **dict.fromkeys("abcdef", 1)}
    )
    assert recorded.state == {"inner": {"n": 2}, "late": True, **dict.fromkeys("abcdef", 1)}


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, [1], "text", {"a": {"b": []}}])
async def test_any_json_is_a_state(value: Any) -> None:
    """STATE-1: assigned or sent."""

    async def assigning(run: Run) -> None:
        run.state = value

    async def setting(run: Run) -> None:
        await run.set_state(value)
        assert run.state == value

    start = run_input(state={"other": 1})
    assert (await record(assigning, start)).state == value
    assert (await record(setting, start)).state == value


@dataclasses.dataclass
class Trip:
    city: str
    stops: list["Trip"] = dataclasses.field(default_factory=list)


class TripStruct(msgspec.Struct):
    city: str
    stops: list["TripStruct"] = []


class TripModel(pydantic.BaseModel):
    city: str
    stops: list["TripModel"] = []


@pytest.mark.parametrize("kind", [Trip, TripStruct, TripModel])
async def test_a_state_may_be_an_object_of_the_programs(kind: Any) -> None:
    expected = {"city": "Porto", "stops": [{"city": "Faro", "stops": []}]}

    async def agent(run: Run) -> None:
        await run.set_state(kind(city="Porto", stops=[kind(city="Faro")]))
        assert run.state == expected
        run.state["stops"].append(kind(city="Lisboa"))
        run.state["stops"][1]["city"] = "Braga"
        await run.custom("com.example.trip", {"trip": kind(city="Évora")})
        run.state = {"trip": kind(city="Beja")}

    recorded = await record(agent)
    assert recorded.said[0] == event("STATE_SNAPSHOT", snapshot=expected)
    assert recorded.said[1]["delta"] == [
        {"op": "add", "path": "/stops/1", "value": {"city": "Braga", "stops": []}}
    ]
    assert recorded.said[2]["value"] == {"trip": {"city": "Évora", "stops": []}}
    assert recorded.state == {"trip": {"city": "Beja", "stops": []}}


async def test_an_explicit_patch_and_the_live_state_agree() -> None:
    """STATE-2: what is changed first is sent first."""

    async def agent(run: Run) -> None:
        held = run.state["list"]
        run.state["a"] = 1
        await run.patch_state([{"op": "replace", "path": "/a", "value": 2}])
        assert run.state["a"] == 2
        await run.patch_state(({"op": "add", "path": "/list/-", "value": Trip("Faro")},))
        assert held == [{"city": "Faro", "stops": []}]
        held[0]["city"] = "Porto"

    recorded = await record(agent, run_input(state={"list": [], "pad": "x" * 200}))
    assert [each["delta"][0]["path"] for each in recorded.said] == [
        "/a",
        "/a",
        "/list/-",
        "/list/0/city",
    ]
    assert recorded.state["a"] == 2


async def test_a_patch_that_does_not_apply_sends_nothing() -> None:
    """STATE-2, STATE-5: atomic, and the state is as before."""

    async def agent(run: Run) -> None:
        for operations in (
            [{"op": "add", "path": "/b", "value": 1}, {"op": "remove", "path": "/nope"}],
            [{"op": "test", "path": "/a", "value": 2}],
        ):
            with pytest.raises(PatchError):
                await run.patch_state(operations)
        for malformed in ([{"op": "levitate", "path": "/a"}], [{"op": "add", "path": "a"}], [5]):
            with pytest.raises(PatchError):
                await run.patch_state(malformed)
        assert run.state == {"a": 1}

    recorded = await record(agent, run_input(state={"a": 1}))
    assert recorded.types == []


async def test_without_a_state_a_run_starts_from_an_empty_object() -> None:
    """STATE-2, STATE-5, IN-1."""

    async def agent(run: Run) -> None:
        await run.patch_state([{"op": "add", "path": "/a", "value": 1}])

    assert (await record(agent)).conversation.state == {"a": 1}


async def test_the_last_changes_are_sent_when_the_run_fails_or_is_cancelled() -> None:
    async def failing(run: Run) -> None:
        run.state["a"] = 1
        raise RunError("no")

    async def cancelled(run: Run) -> None:
        run.state["a"] = 1
        run.cancel()

    for agent in (failing, cancelled):
        recorded = await record(agent, fails=agent is failing)
        assert recorded.conversation.state == {"a": 1}


async def test_the_input_is_not_changed_with_the_state() -> None:
    given = run_input(state={"list": [1]})

    async def agent(run: Run) -> None:
        run.state["list"].append(2)

    assert (await record(agent, given)).state == {"list": [1, 2]}
    assert given.state == {"list": [1]}


@pytest.mark.parametrize("depth", [300, 3000])
async def test_a_state_that_no_reader_can_read_fails_the_run(depth: int) -> None:
    """What was nested beyond every limit is not sent, and the run still ends as runs do."""

    async def agent(run: Run) -> None:
        inner = run.state
        for _ in range(depth):
            inner["a"] = {}
            inner = inner["a"]

    recorded = await record(agent, fails=True, strict=False)
    assert recorded.types == []


async def test_values_that_programs_make_of_strings_and_numbers_are_plain() -> None:
    class Text(str):
        __slots__ = ()

    class Number(int):
        pass

    async def agent(run: Run) -> None:
        run.state["text"] = Text("x")
        run.state["number"] = Number(3)
        run.state["big"] = 2**70

    assert (await record(agent)).conversation.state == {"text": "x", "number": 3, "big": 2**70}


# The application's tools, over two runs


async def test_a_frontend_tool_is_called_in_one_run_and_answered_in_the_next() -> None:
    """FRONT-1, FRONT-2, FRONT-3: exactly the calls without a result, in order."""
    ids: list[str] = []

    async def first(run: Run) -> None:
        async with run.tool_call("own", "{}") as own:
            pass
        ids.append(await run.call("open_file", {"path": "a"}, metadata={"k": 1}))
        ids.append(await run.call("open_file", '{"path": "b"}', tool_call_id="b"))
        ids.append(await run.call("open_file"))
        await own.result("done")

    asked = run_input(tools=[TOOL])
    recorded = await record(first, asked)
    assert recorded.terminal["outcome"] == {"type": "success", "pendingToolCallIds": ids}
    assert [call.id for call in recorded.conversation.pending_tool_calls] == ids
    arguments = [each["delta"] for each in recorded.said if each["type"] == "TOOL_CALL_ARGS"]
    assert arguments == ["{}", '{"path":"a"}', '{"path": "b"}', "{}"]

    async def second(run: Run) -> None:
        answer = run.tool_result(ids[0])
        assert isinstance(answer, ToolMessage)
        assert answer.content == "content of a"
        refused = run.tool_result("b")
        assert refused is not None
        assert refused.error == "refused"
        assert run.tool_result(ids[2]) is None
        assert [call.id for call in run.unanswered_calls] == [ids[2]]

    messages = [msgspec.to_builtins(message) for message in recorded.conversation.messages]
    answers = [
        {"id": "t1", "role": "tool", "toolCallId": ids[0], "content": "content of a"},
        {"id": "t2", "role": "tool", "toolCallId": "b", "content": "", "error": "refused"},
    ]
    again = await record(second, run_input(tools=[TOOL], messages=[*messages, *answers]))
    assert again.terminal["outcome"] == {"type": "success"}


async def test_a_tool_that_is_not_offered_can_be_forced() -> None:
    """FRONT-6."""

    async def agent(run: Run) -> None:
        await run.call("hidden", force=True, tool_call_id="c")

    recorded = await record(agent)
    assert recorded.terminal["outcome"] == {"type": "success", "pendingToolCallIds": ["c"]}


async def test_a_call_that_nobody_answers_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Else the client hears of it, at its next run, which it may not begin (FRONT-5)."""

    async def agent(run: Run) -> None:
        async with run.tool_call("answered") as call:
            pass
        await call.result("done")
        async with run.tool_call("stated", tool_call_id="c-1"):
            pass
        answer = {"id": "m", "role": "tool", "toolCallId": "c-1", "content": "done"}
        await run.emit(event("MESSAGES_SNAPSHOT", messages=[*_messages(run), answer]))
        async with run.tool_call("open_file"):
            pass
        await run.call("open_file")
        await run.call("hidden", force=True)
        async with run.tool_call("forgot\nten", tool_call_id="c-2"):
            pass
        await run.emit(event("TOOL_CALL_CHUNK", toolCallId="c-3", toolCallName="chunked"))

    await record(agent, run_input(tools=[TOOL]), strict=False)
    told = [each.getMessage() for each in caplog.records if each.name == "aguia.server"]
    assert told == [
        f"run run of thread thread: the call '{id_}' of the tool '{name}' has no result, and the "
        "application offers no such tool; is `await call.result(…)` missing? The thread can't go "
        "on before the call is answered [FRONT-5]"
        for id_, name in (("c-2", "forgot\\nten"), ("c-3", "chunked"))
    ]


def _messages(run: Run) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(message) for message in run.messages]


@pytest.mark.parametrize("ending", ["interrupt", "cancelled", "error"])
async def test_calls_of_a_run_that_did_not_succeed_are_not_told_of(
    ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(run: Run) -> None:
        async with run.tool_call("delete", tool_call_id="c"):
            pass
        match ending:
            case "interrupt":
                run.interrupt("approval", tool_call_id="c")
            case "cancelled":
                run.cancel()
            case "error":
                raise RunError("no")

    recorded = await record(agent, fails=None)
    assert recorded.outcome == ending
    assert "has no result" not in caplog.text


async def test_a_call_that_waits_for_approval_is_never_carried_out_without_an_answer() -> None:
    """INT-5: in the messages, with neither result nor entry, it is asked for again."""
    carried_out: list[str] = []

    async def agent(run: Run) -> None:
        for call in run.unanswered_calls:
            answer = run.resume.answer(call.id, bool)
            if answer is None:
                run.interrupt("approval", tool_call_id=call.id, response_type=bool)
            elif answer is True:
                carried_out.append(call.id)
                await run.emit(
                    event("TOOL_CALL_RESULT", messageId="r", toolCallId=call.id, content="ok")
                )

    def calls(*ids: str) -> list[dict[str, Any]]:
        return [
            {"id": id_, "type": "function", "function": {"name": "delete", "arguments": "{}"}}
            for id_ in ids
        ]

    history = [{"id": "a", "role": "assistant", "toolCalls": calls("x", "y", "z")}]
    resume = [
        {"interruptId": "y", "status": "resolved", "payload": True},
        {"interruptId": "z", "status": "cancelled"},
    ]
    recorded = await record(agent, run_input(messages=history, resume=resume))
    assert carried_out == ["y"]
    assert recorded.outcome == "interrupt"
    assert [each["id"] for each in recorded.terminal["outcome"]["interrupts"]] == ["x"]


# Interrupts, over two runs


@dataclasses.dataclass
class Decision:
    approve: bool
    reason: str = ""


class DecisionModel(pydantic.BaseModel):
    approve: bool
    reason: str = ""


async def test_an_interrupt_asks_and_the_next_run_hears() -> None:
    """INT-1, INT-2, INT-6, INT-7."""
    when = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)

    async def asking(run: Run) -> None:
        asked = run.interrupt(
            "approval",
            message="Delete it?",
            tool_call_id="c",
            response_type=Decision,
            expires_at=when,
            subagent_run_id="s",
            metadata={"diff": None},
        )
        assert asked.id == "c"
        run.interrupt("choice", interrupt_id="i", response_schema={"enum": ["a"]})
        free = run.interrupt("free")
        assert free.id not in ("c", "i")
        assert run.interrupts == [*run.interrupts[:2], free]

    recorded = await record(asking)
    first, second, third = recorded.terminal["outcome"]["interrupts"]
    schema = first.pop("responseSchema")
    assert first == {
        "id": "c",
        "reason": "approval",
        "message": "Delete it?",
        "toolCallId": "c",
        "expiresAt": "2030-01-01T00:00:00Z",
        "subagentRunId": "s",
        "metadata": {"diff": None},
    }
    assert schema["$defs"]["Decision"]["required"] == ["approve"]
    assert second == {"id": "i", "reason": "choice", "responseSchema": {"enum": ["a"]}}
    assert third["reason"] == "free"

    async def hearing(run: Run) -> None:
        assert len(run.resume) == 3
        assert run.resume.answer("c", Decision) == Decision(True, "old")
        assert run.resume.answer("c", DecisionModel) == DecisionModel(approve=True, reason="old")
        assert run.resume.answer("c") == {"approve": True, "reason": "old"}
        assert run.resume.answer("i", Decision) is CANCELLED
        assert repr(CANCELLED) == "CANCELLED"
        assert run.resume.answer("nobody", Decision) is None
        assert run.resume.answer(third["id"]) is None
        assert run.resume[1].status == "cancelled"
        assert [entry.interrupt_id for entry in run.resume[:2]] == ["c", "i"]

    resume = [
        {"interruptId": "c", "status": "resolved", "payload": {"approve": True, "reason": "old"}},
        {"interruptId": "i", "status": "cancelled"},
        {"interruptId": third["id"], "status": "resolved"},
    ]
    assert (await record(hearing, run_input(resume=resume))).outcome == "success"


@pytest.mark.parametrize("type_", [Decision, DecisionModel, Literal["yes", "no"], int, bool])
async def test_an_answer_of_the_wrong_form_says_where_it_is(type_: Any) -> None:
    async def agent(run: Run) -> None:
        with pytest.raises(InvalidInput, match="'i' doesn't fit") as caught:
            run.resume.answer("i", type_)
        assert caught.value.path == "/resume/1/payload"
        with pytest.raises(InvalidInput, match="'empty' doesn't fit") as caught:
            run.resume.answer("empty", type_)
        assert "at ''" not in str(caught.value)  # the whole answer is no place

    resume = [
        {"interruptId": "empty", "status": "resolved"},
        {"interruptId": "i", "status": "resolved", "payload": {"approve": "maybe"}},
    ]
    assert (await record(agent, run_input(resume=resume))).outcome == "success"


async def test_an_answer_to_an_unknown_interrupt_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """INT-4: with a warning, and the run goes on."""

    async def agent(run: Run) -> None:
        run.resume.answer("known")
        assert [entry.interrupt_id for entry in run.resume.unknown] == ["stale"]

    resume = [
        {"interruptId": "known", "status": "resolved", "payload": 1},
        {"interruptId": "stale", "status": "resolved", "payload": 1},
    ]
    recorded = await record(agent, run_input(resume=resume))
    assert recorded.outcome == "success"
    assert [each.getMessage() for each in caplog.records if "INT-4" in each.getMessage()] == [
        "run run of thread thread: nobody looked at the answer to 'stale' (run.resume.answer), so "
        "it is passed over [INT-4]"
    ]


async def test_an_entry_that_was_looked_at_is_not_unknown() -> None:
    """INT-4: an agent may read the answers in its own way."""

    async def agent(run: Run) -> None:
        assert len(run.resume.unknown) == 3
        assert run.resume[0].interrupt_id == "a"
        assert [entry.interrupt_id for entry in run.resume.unknown] == ["b", "c"]
        assert [entry.interrupt_id for entry in run.resume] == ["a", "b", "c"]
        assert run.resume.unknown == []

    entries = [{"interruptId": id_, "status": "cancelled"} for id_ in "abc"]
    assert (await record(agent, run_input(resume=entries))).outcome == "success"


async def test_an_interrupted_run_leaves_no_subagent_behind() -> None:
    """INT-1, SUB-5: what is still open is suspended."""

    async def agent(run: Run) -> None:
        await run.subagent("s", subagent_run_id="a").__aenter__()
        run.interrupt("approval", interrupt_id="i")

    recorded = await record(agent)
    assert recorded.said[-1] == event(
        "SUBAGENT_FINISHED", subagentRunId="a", outcome={"type": "suspended"}
    )


# Usage and result


async def test_usage_is_summed_by_provider_and_model() -> None:
    """USE-1: absent is not reported, and never zero."""

    async def agent(run: Run) -> None:
        run.add_usage(provider="p", model="m", input_tokens=10, output_tokens=2)
        run.add_usage(provider="p", model="m", input_tokens=5, cached_input_tokens=4)
        run.add_usage(model="m", output_tokens=0, reasoning_tokens=0)
        run.add_usage(provider="p", cache_write_input_tokens=7)
        assert len(run.usage) == 3

    recorded = await record(agent)
    assert recorded.terminal["usage"] == [
        {
            "provider": "p",
            "model": "m",
            "inputTokens": 15,
            "outputTokens": 2,
            "totalTokens": 17,
            "cachedInputTokens": 4,
        },
        {"model": "m", "outputTokens": 0, "reasoningTokens": 0},
        {"provider": "p", "cacheWriteInputTokens": 7},
    ]


@pytest.mark.parametrize("how", ["raise", "cancel", "interrupt"])
async def test_usage_is_told_however_the_run_ends(how: str) -> None:
    async def agent(run: Run) -> None:
        run.add_usage(model="m", input_tokens=1)
        if how == "raise":
            raise ValueError
        if how == "cancel":
            run.cancel()
        else:
            run.interrupt("r")

    recorded = await record(agent, fails=how == "raise")
    assert recorded.terminal["usage"] == [{"model": "m", "inputTokens": 1}]


@pytest.mark.parametrize("value", [0, False, "", [], {"a": None}, Trip("Faro"), "text"])
async def test_what_the_agent_returns_is_the_runs_result(value: Any) -> None:
    async def returning(run: Run) -> Any:
        return value

    async def setting(run: Run) -> Any:
        run.result = value
        return "not this"

    expected = {"city": "Faro", "stops": []} if isinstance(value, Trip) else value
    for agent in (returning, setting):
        recorded = await record(agent)
        assert recorded.terminal["result"] == expected
        assert recorded.conversation.result == expected


async def test_nothing_returned_is_no_result() -> None:
    """EVT-4."""

    async def agent(run: Run) -> None:
        run.result = None

    assert "result" not in (await record(agent)).terminal


async def test_warnings_of_what_is_removed_go_to_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """PROC-13: a member that the protocol does not describe is not sent."""

    async def agent(run: Run) -> None:
        await run.emit(event("STEP_STARTED", stepName="s", mood="good"))

    with caplog.at_level(logging.WARNING):
        recorded = await record(agent)
    assert recorded.said[0] == event("STEP_STARTED", stepName="s")
    assert "'/mood'" in caplog.text


async def test_a_typed_event_with_wrong_attributes_is_refused() -> None:
    async def agent(run: Run) -> None:
        with pytest.raises(MalformedEvent) as caught:
            await run.emit(TextMessageContentEvent(message_id="m", delta=5))  # type: ignore[arg-type]
        assert caught.value.path == "/delta"
        with pytest.raises(MalformedEvent):
            await run.emit({"no": "type"})
        with pytest.raises(TypeError, match="an event is"):
            await run.emit("RUN_FINISHED")

    assert json.dumps((await record(agent)).types) == "[]"


async def test_what_a_model_cannot_take_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """IN-2, TOOL-9: skipped with a warning, never fatal; what is left keeps its order."""
    parts: list[ContentPart] = [
        TextPart(text="look"),
        Image(source=UrlSource(value="https://example.com/a.png")),
        AudioPart(source=DataSource(value="AA==", mime_type="audio/wav")),
        DocumentPart(source=FileSource(value="f-1", provider="openai")),
        DocumentPart(source=FileSource(value="f-2", provider="other")),
        DocumentPart(source=FileSource(value="f-3")),
    ]
    seen: list[list[str]] = []

    async def agent(run: Run) -> None:
        seen.append([part.type for part in run.usable(parts)])
        seen.append([part.type for part in run.usable(parts, kinds=("text", "image"))])
        documents = run.usable(parts, kinds=("document",), providers=("openai",))
        seen.append([part.source.value for part in documents if isinstance(part, DocumentPart)])
        seen.append([part.type for part in run.usable("words")])
        seen.append([part.type for part in run.usable(parts[2:3])])

    assert (await record(agent)).outcome == "success"
    assert seen == [["text"], ["text", "image"], ["f-1", "f-3"], ["text"], []]
    assert "a file handle of the provider other" in caplog.text
    assert "[IN-2]" in caplog.text


async def test_a_call_of_an_earlier_run_can_be_answered() -> None:
    """TOOL-6; but never one of the application's (FRONT-1)."""

    async def agent(run: Run) -> None:
        await run.answer("call-1", "done", message_id="m-2", metadata={"k": 1})
        with pytest.raises(SequenceViolation) as refused:
            await run.answer("call-2", "no")
        assert refused.value.rule == "FRONT-1"

    calls = [
        {"id": "call-1", "type": "function", "function": {"name": "own", "arguments": "{}"}},
        {"id": "call-2", "type": "function", "function": {"name": "theirs", "arguments": "{}"}},
    ]
    recorded = await record(
        agent,
        run_input(
            messages=[{"id": "m-1", "role": "assistant", "toolCalls": calls}],
            tools=[{"name": "theirs", "description": "The application's."}],
        ),
    )
    assert recorded.said == [
        event(
            "TOOL_CALL_RESULT",
            messageId="m-2",
            toolCallId="call-1",
            content="done",
            metadata={"k": 1},
        )
    ]


@pytest.mark.parametrize("outcome", [None, {"type": "success"}])
async def test_a_run_that_has_asked_cannot_say_that_it_succeeded(outcome: Any) -> None:
    """INT-1, also for an agent that writes its own terminal event."""

    async def agent(run: Run) -> None:
        run.interrupt("approval", interrupt_id="sure")
        finished = event("RUN_FINISHED", threadId="thread", runId="run")
        with pytest.raises(SequenceViolation) as refused:
            await run.emit(finished if outcome is None else {**finished, "outcome": outcome})
        assert refused.value.rule == "INT-1"

    recorded = await record(agent)
    assert recorded.outcome == "interrupt"


async def test_a_snapshot_does_not_answer_the_applications_tools() -> None:
    """FRONT-1: no made-up tool message either."""

    async def agent(run: Run) -> None:
        id_ = await run.call("open_file", {})
        answer = {"id": "m", "role": "tool", "toolCallId": id_, "content": "made up"}
        with pytest.raises(SequenceViolation) as refused:
            await run.emit(event("MESSAGES_SNAPSHOT", messages=[answer]))
        assert refused.value.rule == "FRONT-1"

    assert (await record(agent, run_input(tools=[TOOL]))).outcome == "success"


async def test_what_is_reopened_is_what_it_was() -> None:
    """STREAM-4: the same role and name, the same tool and parent."""

    async def agent(run: Run) -> None:
        for _ in range(2):
            async with run.text(message_id="m", name="Ana") as text:
                await text.write("a")
            async with run.tool_call("look", "{}", tool_call_id="c", parent_message_id="m"):
                pass
        for reopened in (
            run.text(message_id="m"),
            run.text(message_id="m", name="Ana", role="user"),
            run.tool_call("find", tool_call_id="c", parent_message_id="m"),
            run.tool_call("look", tool_call_id="c"),
        ):
            with pytest.raises(SequenceViolation) as refused:
                await reopened.__aenter__()
            assert refused.value.rule == "STREAM-4"

    recorded = await record(agent)
    assert recorded.outcome == "success"
    assert not recorded.warnings


async def test_a_result_of_which_nothing_is_left_is_still_an_answer() -> None:
    """TOOL-9: the empty string."""

    async def agent(run: Run) -> None:
        async with run.tool_call("look", "{}") as call:
            pass
        image = Image(source=UrlSource(value="https://example.com/a.png"))
        await call.result(run.usable([image]))

    (result,) = [e for e in (await record(agent)).said if e["type"] == "TOOL_CALL_RESULT"]
    assert result["content"] == ""


@dataclasses.dataclass
class Row:
    name: str


IMAGE = {"type": "image", "source": {"type": "file", "value": "f"}}


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ("text", "text"),
        (None, ""),
        ([], ""),
        ({"deleted": 1, "note": "ü"}, '{"deleted":1,"note":"ü"}'),
        (True, "true"),
        (1.5, "1.5"),
        ([1, None], "[1,null]"),
        (["a", "b"], '["a","b"]'),
        (Row("a"), '{"name":"a"}'),
        ([Row("a")], '[{"name":"a"}]'),
        ([{"type": "invoice"}], '[{"type":"invoice"}]'),
        ([IMAGE, {"type": "invoice"}], None),
        ({"type": "text", "text": "a"}, '{"type":"text","text":"a"}'),
        (TextPart(text="a"), [{"type": "text", "text": "a"}]),
        ((TextPart(text="a"), IMAGE), [{"type": "text", "text": "a"}, IMAGE]),
        (["Here:", IMAGE], [{"type": "text", "text": "Here:"}, IMAGE]),
    ],
)
async def test_a_result_may_be_anything_that_has_a_json_form(result: Any, content: Any) -> None:
    """TOOL-7: parts stay parts. TOOL-8: what is structured becomes text."""

    async def agent(run: Run) -> None:
        async with run.tool_call("look", "{}", tool_call_id="c") as call:
            pass
        await call.result(result)
        await run.answer("c", result)

    said = (await record(agent)).said
    results = [each["content"] for each in said if each["type"] == "TOOL_CALL_RESULT"]
    expected = json.dumps(result, separators=(",", ":")) if content is None else content
    assert results == [expected, expected]


async def test_a_result_without_a_json_form_is_refused() -> None:
    async def agent(run: Run) -> None:
        async with run.tool_call("look", "{}") as call:
            pass
        for result in (object(), {"at": float("nan")}):
            with pytest.raises(TypeError, match="result has no JSON form"):
                await call.result(result)
        with pytest.raises(MalformedEvent, match="source"):
            await call.result([{"type": "image"}])
        await call.result("done")

    await record(agent)


@pytest.mark.parametrize(
    ("use", "block"),
    [
        (lambda run: run.text().write("x"), "run.text() as text"),
        (lambda run: run.text().encrypted_value("x"), "run.text() as text"),
        (lambda run: run.tool_call("t").write("{}"), "run.tool_call(…) as call"),
        (lambda run: run.tool_call("t").result("x"), "run.tool_call(…) as call"),
        (lambda run: run.tool_call("t").encrypted_value("x"), "run.tool_call(…) as call"),
        (lambda run: run.reasoning().write("x"), "run.reasoning() as reasoning"),
        (lambda run: run.reasoning_message().write("x"), "run.reasoning_message() as reasoning"),
        (lambda run: run.reasoning_span().message().write("x"), "run.reasoning_span() as span"),
        (lambda run: run.subagent("s").say("x"), "run.subagent(…) as subagent"),
        (lambda run: run.subagent("s").custom("n", 1), "run.subagent(…) as subagent"),
        (lambda run: run.subagent("s").subagent("t"), "run.subagent(…) as subagent"),
    ],
)
async def test_what_was_not_opened_says_how_to_open_it(
    use: Callable[[Run], Coroutine[Any, Any, None]], block: str
) -> None:
    async def agent(run: Run) -> None:
        with pytest.raises(SequenceViolation) as refused:
            await use(run)
        assert f"write `async with {block}:`" in str(refused.value)

    assert (await record(agent)).types == []
