"""The client holds one thread with an agent: what it sends, what it keeps, and how it goes on."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import httpx
import msgspec
import pytest

from aguia import (
    Agent,
    ConnectionFailed,
    DecodeError,
    HttpAgent,
    InputRejected,
    InvalidInput,
    MalformedEvent,
    ProtocolViolation,
    ProtocolWarning,
    RunTimeout,
    SequenceViolation,
    TransportError,
    TruncatedRun,
)
from aguia.client import CANCEL, Answer, AsgiTransport, RunStream, Timeouts
from aguia.middleware import throttle
from aguia.protocol.common import UNSET
from aguia.protocol.content import ImagePart, TextPart, UrlSource
from aguia.protocol.events import Event, RunErrorEvent
from aguia.protocol.input import Context, ResumeEntry, RunAgentInput, Tool
from aguia.protocol.messages import (
    ActivityMessage,
    AssistantMessage,
    ToolMessage,
    UserMessage,
)
from aguia.protocol.outcomes import (
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
)
from aguia.server import AgentApp, Run
from support_events import event, frame, text
from support_server import serve
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
    whole_run,
)

pytestmark = pytest.mark.anyio

Answering = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]


def call(id_: str, arguments: str = "{}") -> list[dict[str, Any]]:
    """A tool call without a result."""
    return [
        event("TOOL_CALL_START", toolCallId=id_, toolCallName="ask"),
        event("TOOL_CALL_ARGS", toolCallId=id_, delta=arguments),
        event("TOOL_CALL_END", toolCallId=id_),
    ]


def broken_off(*events: dict[str, Any]) -> Callable[[httpx.Request], httpx.Response]:
    """An answer whose run starts and never ends."""

    def answer(request: httpx.Request) -> httpx.Response:
        sent = json.loads(request.content)
        start = event("RUN_STARTED", threadId=sent["threadId"], runId=sent["runId"])
        return httpx.Response(200, headers=SSE, content=frame(start, *events))

    return answer


def asks(*interrupts: dict[str, Any]) -> Callable[[httpx.Request], httpx.Response]:
    """An answer whose run stops to ask."""
    found = [{"reason": "approval", **each} for each in interrupts]
    return reply(outcome={"type": "interrupt", "interrupts": found})


def resolved(id_: str, **members: Any) -> dict[str, Any]:
    return {"interruptId": id_, "status": "resolved", **members}


def cancelled(id_: str) -> dict[str, Any]:
    return {"interruptId": id_, "status": "cancelled"}


async def collect(agent: Agent, content: Any = "Hi", **options: Any) -> list[Event]:
    """Every event of a run."""
    return [each async for each in agent.run(content, **options)]


def types(events: list[Event]) -> list[str]:
    return [each.type for each in events]


def said(messages: Any) -> list[tuple[str, Any]]:
    """Role and content of each message."""
    return [(message.role, getattr(message, "content", UNSET)) for message in messages]


# What is said


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        ("Olá", ["Olá"]),
        ("", [""]),
        (None, []),
        ([], []),
        (TextPart(text="a"), [[{"type": "text", "text": "a"}]]),
        ({"type": "text", "text": "a"}, [[{"type": "text", "text": "a"}]]),
        (
            [
                TextPart(text="a"),
                ImagePart(source=UrlSource(value="https://example.com/a.png")),
                {"type": "text", "text": "b", "metadata": {"k": None}},
            ],
            [
                [
                    {"type": "text", "text": "a"},
                    {
                        "type": "image",
                        "source": {"type": "url", "value": "https://example.com/a.png"},
                    },
                    {"type": "text", "text": "b", "metadata": {"k": None}},
                ]
            ],
        ),
        (UserMessage(id="u", content="a"), ["a"]),
        ([UserMessage(id="u", content="a"), UserMessage(id="v", content="b")], ["a", "b"]),
        ({"role": "user", "id": "u", "content": "a"}, ["a"]),
        (
            [{"role": "user", "id": "u", "content": "a"}, UserMessage(id="v", content="b")],
            ["a", "b"],
        ),
        ((UserMessage(id=str(number), content="a") for number in range(2)), ["a", "a"]),
    ],
)
async def test_what_may_be_said(content: Any, sent: list[Any]) -> None:
    """Text, parts and messages, typed or plain; or nothing at all, to run the thread as it is."""
    script = Script(reply(*text("m", "Yes")))
    async with scripted(script) as agent:
        await collect(agent, content)
        assert [message["content"] for message in script.sent[0]["messages"]] == sent
        assert all(message["role"] == "user" for message in script.sent[0]["messages"])
        assert len(agent.messages) == len(sent) + 1
        assert agent.messages[-1].role == "assistant"
        assert len({message.id for message in agent.messages}) == len(sent) + 1


async def test_typed_messages_are_judged_when_they_are_given() -> None:
    """PROC-11: what a thread starts from or is added to, nobody has checked so far."""
    wrong = UserMessage(id="u", content=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput) as caught:
        async with scripted(Script(), messages=[UserMessage(id="a", content="b"), wrong]):
            pass
    assert caught.value.path == "/messages/1/content"
    metadata: dict[str, Any] = {"k": 1}
    async with scripted(Script()) as agent:
        with pytest.raises(InvalidInput):
            agent.messages.append(wrong)
        agent.messages.append(UserMessage(id="u", content="a", metadata=metadata))
        metadata["k"] = object()
        async with agent.run("b") as stream:
            assert stream.input.messages[0].metadata == {"k": 1}


@pytest.mark.parametrize(
    ("content", "path", "rule"),
    [
        ({"role": "user", "content": "a"}, "/messages/0/id", "PROC-3"),
        ({"role": "user", "id": 7, "content": "a"}, "/messages/0/id", "PROC-3"),
        ({"role": "user", "id": "u", "content": None}, "/messages/0/content", "PROC-3"),
        ({"role": 1, "id": "u", "content": "a"}, "/messages/0/role", "PROC-3"),
        ([{"type": "text"}], "/content/0/text", "PROC-3"),
        ([7], "/messages/0", "PROC-3"),
        (b"bytes", "/messages/0", "PROC-3"),
        (UserMessage(id=7, content="a"), "/messages/0/id", "PROC-3"),  # type: ignore[arg-type]
        (
            UserMessage(id="u", content="a", metadata={"k": object()}),
            "/messages/0",
            "PROC-3",
        ),
        ({"role": "user", "id": "old", "content": "a"}, "/messages", "EVT-6"),
        ([UserMessage(id="u", content="a")] * 2, "/messages", "EVT-6"),
    ],
)
async def test_what_may_not_be_said_is_refused_before_anything_is_sent(
    content: Any, path: str, rule: str
) -> None:
    """PROC-11 for what is malformed; EVT-6 for an id that the thread already has."""
    script = Script()
    async with scripted(script, messages=[UserMessage(id="old", content="a")]) as agent:
        before = list(agent.messages)
        with pytest.raises(InvalidInput) as caught:
            agent.run(content)
        assert caught.value.rule == rule
        assert caught.value.path == path
        assert list(agent.messages) == before
    assert script.requests == []


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"tools": [{"name": "ask"}]}, "/tools/0/description"),
        ({"tools": [{"name": "a", "description": "b", "parameters": None}]}, "/tools/0/parameters"),
        ({"context": [{"description": "a", "value": 1}]}, "/context/0/value"),
        ({"forwarded_props": None}, "/forwardedProps"),
        ({"forwarded_props": {"a": object()}}, ""),
        ({"forwarded_props": {"a": float("nan")}}, ""),
        ({"resume": [{"interruptId": "i"}]}, "/resume/0/status"),
        ({"resume": [resolved("i", payload=None)]}, "/resume/0/payload"),
        ({"run_id": 7}, "/runId"),
    ],
)
async def test_a_malformed_input_is_refused_before_anything_is_sent(
    options: dict[str, Any], path: str
) -> None:
    """PROC-11: whatever part of the run input it is in."""
    script = Script()
    async with scripted(script) as agent:
        with pytest.raises(InvalidInput) as caught:
            agent.run("Hi", **options)
        assert caught.value.path == path
        assert list(agent.messages) == []
    assert script.requests == []


async def test_unrecognised_material_is_removed_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """PROC-11: one warning for each, with its path, in the log and for the program."""
    warnings: list[ProtocolWarning] = []
    script = Script(reply())
    message = {"role": "user", "id": "u", "content": [{"type": "hologram"}], "mood": "good"}
    async with scripted(script, on_warning=warnings.append) as agent:
        await collect(
            agent,
            [message, {"role": "oracle", "id": "o", "content": "a"}],
            tools=[{"name": "ask", "description": "Asks.", "colour": "red"}],
            context=[{"description": "a", "value": "b", "weight": 1}],
            resume=[{**resolved("i"), "when": "now"}, {"interruptId": "j", "status": "maybe"}],
        )
    (sent,) = script.sent
    assert sent["messages"] == [{"role": "user", "id": "u", "content": []}]
    assert sent["tools"] == [{"name": "ask", "description": "Asks."}]
    assert sent["context"] == [{"description": "a", "value": "b"}]
    assert sent["resume"] == [resolved("i")]
    assert sorted(str(warning.path) for warning in warnings) == [
        *("/context/0/weight", "/messages/0/content/0", "/messages/0/mood", "/messages/1"),
        *("/resume/0/when", "/resume/1/status", "/tools/0/colour"),
    ]
    assert {warning.rule for warning in warnings} == {"PROC-2"}
    logged = [record for record in caplog.records if record.name == "aguia"]
    assert [record.getMessage() for record in logged] == [str(warning) for warning in warnings]


async def test_what_the_thread_starts_from_is_judged_as_well() -> None:
    """PROC-11, of what a program has kept from an earlier session."""
    warnings: list[ProtocolWarning] = []
    agent = HttpAgent(
        "http://agent.example/",
        messages=[{"role": "user", "id": "u", "content": "a", "mood": "good"}],
        tools=[{"name": "ask", "description": "Asks.", "colour": "red"}],
        on_warning=warnings.append,
    )
    assert list(agent.messages) == [UserMessage(id="u", content="a")]
    assert [warning.path for warning in warnings] == ["/messages/0/mood", "/tools/0/colour"]
    with pytest.raises(InvalidInput, match="'/messages/0/id'"):
        HttpAgent("http://agent.example/", messages=[{"role": "user", "content": "a"}])
    with pytest.raises(InvalidInput, match="'/context/0/value'"):
        HttpAgent("http://agent.example/", context=[{"description": "a"}])


# What is sent


async def test_a_run_input_says_all_that_old_and_new_agents_ask_for() -> None:
    """VER-1, IN-1: the version that we speak, and the members that earlier agents require."""
    script = Script(reply())
    async with scripted(script, thread_id="t") as agent:
        await collect(agent, None, run_id="r")
    assert script.sent == [
        {
            "threadId": "t",
            "runId": "r",
            "protocolVersion": "1.0",
            "messages": [],
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
    ]


async def test_tools_context_and_properties_are_the_agents_unless_the_run_says_otherwise() -> None:
    """IN-1: properties go untouched, nulls inside them included."""
    tool = Tool(name="ask", description="Asks.", parameters={"type": "object"})
    note = Context(description="today", value="Monday")
    script = Script(reply(), reply(), reply())
    async with scripted(script, tools=[tool], context=[note]) as agent:
        await collect(agent)
        await collect(agent, tools=[], context=[], forwarded_props={"a": [None, {"b": None}]})
        await collect(
            agent,
            tools=[{"name": "dig", "description": "Digs."}],
            context=[{"description": "c", "value": "d"}],
            forwarded_props=0,
        )
    first, second, third = script.sent
    assert first["tools"] == [
        {"name": "ask", "description": "Asks.", "parameters": {"type": "object"}}
    ]
    assert first["context"] == [{"description": "today", "value": "Monday"}]
    assert (second["tools"], second["context"]) == ([], [])
    assert second["forwardedProps"] == {"a": [None, {"b": None}]}
    assert third["tools"] == [{"name": "dig", "description": "Digs."}]
    assert third["context"] == [{"description": "c", "value": "d"}]
    assert third["forwardedProps"] == 0


async def test_a_thread_goes_on_from_run_to_run() -> None:
    """INT-6, EVT-6: the same thread, its messages and its state, and a new run id each time."""
    script = Script(
        reply(*text("m1", "One"), event("STATE_SNAPSHOT", snapshot={"n": [1, None]})),
        reply(*text("m2", "Two"), usage=[{"inputTokens": 3}], result={"a": 1}),
        reply(event("STATE_DELTA", delta=[{"op": "add", "path": "/n/-", "value": 2}])),
    )
    async with scripted(script) as agent:
        thread = agent.thread_id
        await collect(agent, "First")
        await collect(agent, "Second")
        assert [each.input_tokens for each in agent.usage] == [3]
        assert agent.result == {"a": 1}
        await collect(agent, None)
        assert agent.usage == []
        assert agent.result is UNSET
        assert agent.state == {"n": [1, None, 2]}
        assert said(agent.messages) == [
            *(("user", "First"), ("assistant", "One"), ("user", "Second"), ("assistant", "Two"))
        ]
        assert agent.thread_id == thread
    first, second, third = script.sent
    assert {each["threadId"] for each in script.sent} == {thread}
    assert len({each["runId"] for each in script.sent}) == 3
    assert [message["content"] for message in third["messages"]] == [
        *("First", "One", "Second", "Two")
    ]
    assert third["messages"][: len(second["messages"])] == second["messages"]
    assert second["messages"][:1] == first["messages"]
    assert (first["state"], second["state"], third["state"]) == (
        {},
        {"n": [1, None]},
        second["state"],
    )


async def test_ids_are_made_up_for_whoever_gives_none() -> None:
    """EVT-6."""
    script = Script(*[reply() for _ in range(4)])
    for _ in range(2):
        async with scripted(script) as agent:
            await collect(agent)
            await collect(agent)
    sent = script.sent
    assert len({each["threadId"] for each in sent}) == 2
    assert len({each["runId"] for each in sent}) == 4
    assert len({message["id"] for each in sent for message in each["messages"]}) == 4


@pytest.mark.parametrize("state", [0, "", False, [], {"a": None}])
async def test_a_state_is_sent_whatever_value_it_has(state: Any) -> None:
    """STATE-1, IN-1."""
    script = Script(reply(), reply(event("STATE_SNAPSHOT", snapshot=state)), reply())
    async with scripted(script, state=state) as agent:
        assert agent.state == state
        for _ in range(3):
            await collect(agent)
        assert agent.state == state
    assert [each["state"] for each in script.sent] == [state] * 3


async def test_a_null_state_is_the_empty_object_to_the_next_run() -> None:
    """IN-1, STATE-2: a run input has no null for it, and both sides start from the same value."""
    delta = event("STATE_DELTA", delta=[{"op": "add", "path": "/a", "value": 1}])
    warnings: list[ProtocolWarning] = []
    script = Script(
        reply(event("STATE_SNAPSHOT", snapshot=None)), httpx.Response(500), reply(delta)
    )
    async with scripted(script, state={"old": 1}, on_warning=warnings.append) as agent:
        await collect(agent)
        assert agent.state is None
        with pytest.raises(InputRejected):
            await collect(agent)
        assert agent.state is None
        await collect(agent)
        assert agent.state == {"a": 1}
    assert [each["state"] for each in script.sent] == [{"old": 1}, {}, {}]
    assert warnings == []


async def test_activity_stays_with_the_application() -> None:
    """ACT-4: activity messages are kept, in their place, and never sent."""
    script = Script(
        reply(
            event("ACTIVITY_SNAPSHOT", messageId="a", activityType="plan", content={"step": 1}),
            *text("m", "Yes"),
        ),
        reply(),
    )
    old = ActivityMessage(id="old", activity_type="plan", content={})
    async with scripted(script, messages=[old]) as agent:
        await collect(agent)
        await collect(agent, [ActivityMessage(id="mine", activity_type="plan", content={})])
        roles = ["activity", "user", "activity", "assistant", "activity"]
        assert [message.role for message in agent.messages] == roles
    assert [[message["role"] for message in each["messages"]] for each in script.sent] == [
        ["user"],
        ["user", "assistant"],
    ]


async def test_encrypted_values_go_back_unmodified() -> None:
    """REAS-4: whatever they hold, on messages and on tool calls."""
    opaque = "c2VjcmV0==\n \"'\\ \u2028🦅 {}"
    script = Script(
        reply(
            event("REASONING_START", messageId="r"),
            event("REASONING_MESSAGE_START", messageId="r", role="reasoning"),
            event("REASONING_MESSAGE_CONTENT", messageId="r", delta="Hm"),
            event("REASONING_MESSAGE_END", messageId="r"),
            event("REASONING_END", messageId="r"),
            *call("c"),
            event(
                "REASONING_ENCRYPTED_VALUE",
                subtype="message",
                entityId="r",
                encryptedValue=opaque,
            ),
            event(
                "REASONING_ENCRYPTED_VALUE",
                subtype="tool-call",
                entityId="c",
                encryptedValue=opaque,
            ),
        ),
        reply(),
    )
    async with scripted(script) as agent:
        await collect(agent)
        await collect(agent, ToolMessage(id="a", tool_call_id="c", content="ok"))
    _, thought, caller, _ = script.sent[1]["messages"]
    assert thought == {"id": "r", "role": "reasoning", "content": "Hm", "encryptedValue": opaque}
    assert caller["toolCalls"][0]["encryptedValue"] == opaque


async def test_whoever_holds_earlier_values_keeps_them() -> None:
    """What was handed out does not change when the thread goes on."""
    script = Script(
        reply(*text("m", "One"), event("STATE_SNAPSHOT", snapshot={"a": {"b": 1}})),
        reply(
            *text("m", "Two"),
            event("STATE_DELTA", delta=[{"op": "replace", "path": "/a/b", "value": 2}]),
        ),
    )
    async with scripted(script) as agent:
        await collect(agent)
        messages, state = list(agent.messages), agent.state
        await collect(agent, None)
        assert said(messages) == [("user", "Hi"), ("assistant", "One")]
        assert state == {"a": {"b": 1}}
        assert said(agent.messages) == [("user", "Hi"), ("assistant", "OneTwo")]
        assert agent.state == {"a": {"b": 2}}


async def test_what_the_caller_goes_on_changing_does_not_change_the_input() -> None:
    script = Script(reply())
    props, content = {"a": [1]}, [TextPart(text="a")]
    async with scripted(script) as agent:
        stream = agent.run(content, forwarded_props=props)
        props["a"].append(2)
        content.clear()
        assert [each.type async for each in stream] == ["RUN_STARTED", "RUN_FINISHED"]
    assert script.sent[0]["forwardedProps"] == {"a": [1]}
    assert script.sent[0]["messages"][0]["content"] == [{"type": "text", "text": "a"}]


# Interrupts


async def test_answers_go_with_the_next_run() -> None:
    """INT-2, INT-6: every interrupt resolved or cancelled; then the thread is free again."""
    script = Script(asks({"id": "i"}, {"id": "j", "message": "Sure?"}), reply(), reply())
    async with scripted(script) as agent:
        await collect(agent)
        assert isinstance(agent.outcome, RunFinishedInterruptOutcome)
        assert [each.id for each in agent.interrupts] == ["i", "j"]
        answers = [resolved("i", payload={"ok": [None]}, metadata={"by": "me"}), cancelled("j")]
        await collect(agent, None, resume=answers)
        assert agent.interrupts == []
        await collect(agent)
    assert script.sent[1]["resume"] == answers
    assert "resume" not in script.sent[0]
    assert "resume" not in script.sent[2]


async def test_answers_may_be_typed() -> None:
    """INT-2."""
    script = Script(asks({"id": "i"}), reply())
    async with scripted(script) as agent:
        await collect(agent)
        entry = ResumeEntry(interrupt_id="i", status="resolved", payload=False)
        await collect(agent, "And more", resume=(each for each in [entry]))
    assert script.sent[1]["resume"] == [resolved("i", payload=False)]
    assert script.sent[1]["messages"][-1]["content"] == "And more"


@pytest.mark.parametrize(
    ("resume", "said"),
    [
        (None, "'i' is open and has no answer"),
        ([], "'i' is open and has no answer"),
        ([resolved("i")], "'j' is open and has no answer"),
        ([resolved("j"), cancelled("k")], "'i' is open and has no answer"),
        ([resolved("i"), {"interruptId": "j", "status": "later"}], "'j' is open"),
        (
            [
                ResumeEntry(interrupt_id="i", status="resolved"),
                ResumeEntry(interrupt_id="j", status="later"),  # type: ignore[arg-type]
            ],
            "'j' is open",
        ),
        ([resolved("i"), cancelled("j"), resolved("j")], "answered twice"),
        ([resolved("i"), cancelled("j"), resolved("k")], "no interrupt 'k' is open"),
    ],
)
async def test_an_interrupt_that_is_not_covered_is_refused_before_anything_is_sent(
    resume: Any, said: str
) -> None:
    """INT-2, INT-5: a client does not go on past what was asked, and nothing reaches the agent."""
    script = Script(asks({"id": "i"}, {"id": "j"}), reply())
    async with scripted(script) as agent:
        await collect(agent)
        before = list(agent.messages)
        with pytest.raises(InvalidInput, match=said) as caught:
            agent.run("Never mind", resume=resume)
        assert (caught.value.rule, caught.value.path) == ("INT-2", "/resume")
        assert len(script.requests) == 1
        assert list(agent.messages) == before
        assert [each.id for each in agent.interrupts] == ["i", "j"]
        await collect(agent, None, resume=[resolved("i"), cancelled("j")])


def _at(moment: datetime) -> str:
    return moment.isoformat()


NOW: Final = datetime.now(UTC)
EAST: Final = timezone(timedelta(hours=14))

EXPIRED: Final[list[Any]] = [
    "2020-01-01T00:00:00Z",
    "2020-01-01T00:00:00.123Z",
    "2020-01-01T00:00:00.123456789+00:00",
    "2020-01-01T00:00:00",
    "2020-01-01 00:00",
    "2020-01-01",
    "20200101T000000Z",
    "0001-01-01T00:00:00+14:00",
    pytest.param(_at(NOW - timedelta(seconds=1)), id="a second ago"),
    pytest.param(_at(NOW.replace(tzinfo=None) - timedelta(seconds=1)), id="so without a zone"),
    pytest.param(_at((NOW - timedelta(minutes=1)).astimezone(EAST)), id="in the east"),
]
OPEN: Final[list[Any]] = [
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-14:00",
    pytest.param(_at(NOW + timedelta(hours=1)), id="in an hour"),
    pytest.param(_at(NOW.replace(tzinfo=None) + timedelta(hours=1)), id="so without a zone"),
    pytest.param(_at((NOW + timedelta(hours=1)).astimezone(EAST)), id="in the east"),
    *("soon", "", "0", "-1", "1577836800", "1577836800000", "2020-13-01T00:00:00Z"),
    *("2020-01-01T25:00:00Z", "2020-01-01T00:00:00+99:00", "9" * 500, "\x00"),
]


@pytest.mark.parametrize("when", EXPIRED)
async def test_an_expired_interrupt_can_only_be_cancelled(when: str) -> None:
    """INT-3: read as a date, in UTC where it names no zone; now or earlier has expired."""
    script = Script(asks({"id": "i", "expiresAt": when}, {"id": "j"}), reply())
    async with scripted(script) as agent:
        await collect(agent)
        with pytest.raises(InvalidInput, match="expired at") as caught:
            agent.run(None, resume=[resolved("i"), resolved("j")])
        assert caught.value.rule == "INT-3"
        assert len(script.requests) == 1
        await collect(agent, None, resume=[cancelled("i"), resolved("j")])
        assert agent.interrupts == []


@pytest.mark.parametrize("when", OPEN)
async def test_an_interrupt_that_has_not_expired_can_be_resolved(when: str) -> None:
    """INT-3: what is no date never expires."""
    script = Script(asks({"id": "i", "expiresAt": when}), reply())
    async with scripted(script) as agent:
        await collect(agent)
        await collect(agent, None, resume=[resolved("i")])
    assert script.sent[1]["resume"] == [resolved("i")]


async def test_an_answer_twice_given_does_not_slip_past_the_expiry() -> None:
    """INT-3."""
    script = Script(asks({"id": "i", "expiresAt": "2020-01-01"}))
    async with scripted(script) as agent:
        await collect(agent)
        with pytest.raises(InvalidInput):
            agent.run(None, resume=[resolved("i"), cancelled("i")])
    assert len(script.requests) == 1


async def test_a_thread_taken_up_again_may_answer_what_it_does_not_know() -> None:
    """INT-2: the interrupts of a run that another program saw are that program's to compare."""
    script = Script(reply())
    async with scripted(script, thread_id="t") as agent:
        await collect(agent, None, resume=[resolved("i")])
    assert script.sent[0]["resume"] == [resolved("i")]


async def test_an_answer_to_what_nobody_asked_is_sent_with_a_warning() -> None:
    """INT-2: an answer names an interrupt of the run before; old agents ask by other means."""
    told: list[ProtocolWarning] = []
    script = Script(reply(), reply())
    async with scripted(script, on_warning=told.append) as agent:
        await collect(agent)
        await collect(agent, None, resume=[resolved("i")])
    assert [(each.rule, each.path) for each in told] == [("INT-2", "/resume")]
    assert "'i'" in told[0].message
    assert script.sent[1]["resume"] == [resolved("i")]


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(broken_off(event("RUN_ERROR", message="No.")), id="run error"),
        pytest.param(broken_off(), id="truncated"),
        pytest.param(broken_off(event("TEXT_MESSAGE_END", messageId="x")), id="violation"),
        pytest.param(httpx.Response(409), id="rejected"),
        pytest.param(httpx.ConnectError("no"), id="no connection"),
    ],
)
async def test_interrupts_stay_open_when_the_run_that_answers_them_fails(
    failure: Answering,
) -> None:
    """CONV-4: until a run has finished, they have to be answered."""
    script = Script(asks({"id": "i"}), failure, reply())
    async with scripted(script) as agent:
        await collect(agent)
        try:
            await collect(agent, None, resume=[resolved("i")])
        except (TruncatedRun, SequenceViolation, InputRejected, TransportError):
            pass
        assert [each.id for each in agent.interrupts] == ["i"]
        with pytest.raises(InvalidInput, match="INT-2"):
            agent.run("Go on")
        await collect(agent, None, resume=[resolved("i")])
        assert agent.interrupts == []


# Tool calls that are left to the application

ANSWERED: Final = [
    *call("agents own"),
    event("TOOL_CALL_RESULT", messageId="r", toolCallId="agents own", content="done"),
]


@pytest.mark.parametrize(
    ("finish", "pending"),
    [
        ({}, ["a", "b"]),
        ({"outcome": {"type": "success"}}, ["a", "b"]),
        ({"outcome": {"type": "success", "pendingToolCallIds": []}}, ["a", "b"]),
        ({"outcome": {"type": "success", "pendingToolCallIds": ["b"]}}, ["b"]),
        (
            {"outcome": {"type": "interrupt", "interrupts": [{"id": "i", "reason": "x"}]}},
            ["a", "b"],
        ),
    ],
)
async def test_calls_without_a_result_are_pending(
    finish: dict[str, Any], pending: list[str]
) -> None:
    """FRONT-4: as the outcome names them, else as the stream tells, interrupted or not."""
    async with scripted(Script(reply(*call("a"), *ANSWERED, *call("b"), **finish))) as agent:
        assert agent.pending_tool_calls == []
        await collect(agent)
        assert [each.id for each in agent.pending_tool_calls] == pending


async def test_pending_calls_are_answered_by_tool_messages() -> None:
    """FRONT-5, TOOL-7, CONV-1: each call has its answer, in text or parts, right after it."""
    script = Script(reply(*call("a", '{"q":1}'), *call("b")), reply(*text("m", "Thanks")))
    async with scripted(script) as agent:
        await collect(agent)
        first, second = agent.pending_tool_calls
        assert (first.function.name, first.function.arguments) == ("ask", '{"q":1}')
        await collect(
            agent,
            [
                ToolMessage(id="ra", tool_call_id=first.id, content=[TextPart(text="42")]),
                ToolMessage(id="rb", tool_call_id=second.id, content="No.", error="declined"),
            ],
        )
        assert agent.pending_tool_calls == []
    sent = script.sent[1]["messages"]
    assert [message["role"] for message in sent] == ["user", *["assistant", "tool"] * 2]
    assert sent[2::2] == [
        {
            "id": "ra",
            "role": "tool",
            "toolCallId": "a",
            "content": [{"type": "text", "text": "42"}],
        },
        {"id": "rb", "role": "tool", "toolCallId": "b", "content": "No.", "error": "declined"},
    ]


# How a run ends


async def test_a_run_without_an_outcome_was_a_success() -> None:
    """RUN-9, USE-1: and what it returned and used is there afterwards."""
    usage = [{"provider": "p", "model": "m", "inputTokens": 3, "outputTokens": 4}]
    script = Script(reply(result=[1, None], usage=usage), reply(outcome={"type": "abandoned"}))
    warnings: list[ProtocolWarning] = []
    async with scripted(script, on_warning=warnings.append) as agent:
        assert (agent.outcome, agent.error, agent.result, agent.usage) == (None, None, UNSET, [])
        await collect(agent)
        assert agent.outcome == RunFinishedSuccessOutcome()
        assert agent.result == [1, None]
        (used,) = agent.usage
        assert (used.provider, used.input_tokens, used.total_tokens) == ("p", 3, UNSET)
        await collect(agent)
        assert agent.outcome == RunFinishedSuccessOutcome()
        assert [warning.path for warning in warnings] == ["/outcome"]


async def test_a_cancelled_run_is_neither_success_nor_failure() -> None:
    """RUN-10."""
    async with scripted(Script(reply(outcome={"type": "cancelled"}))) as agent:
        await collect(agent)
        assert agent.outcome == RunFinishedCancelledOutcome()
        assert agent.error is None


async def test_a_run_that_reports_its_failure_raises_nothing() -> None:
    """RUN-7, RUN-8: the report is delivered, kept, and taken back by the next run."""
    failed = event("RUN_ERROR", message="No model.", code="E1", usage=[{"inputTokens": 3}])
    script = Script(
        broken_off(*text("m", "One")[:2], failed),
        httpx.Response(200, headers=SSE, content=frame(failed)),
        reply(),
    )
    async with scripted(script) as agent:
        events = await collect(agent)
        assert types(events) == [
            *("RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "RUN_ERROR")
        ]
        assert isinstance(agent.error, RunErrorEvent)
        assert (agent.error.message, agent.error.code) == ("No model.", "E1")
        assert agent.outcome is None
        assert [each.input_tokens for each in agent.usage] == [3]
        assert said(agent.messages) == [("user", "Hi"), ("assistant", "One")]

        assert types(await collect(agent, None)) == ["RUN_ERROR"]
        assert agent.error is not None

        await collect(agent, None)
        assert agent.error is None
        assert agent.outcome is not None


async def test_a_late_failure_takes_the_success_back() -> None:
    """RUN-6, RUN-8."""

    def answer(request: httpx.Request) -> httpx.Response:
        body = whole_run(request, *text("m", "Yes")) + frame(event("RUN_ERROR", message="Lost."))
        return httpx.Response(200, headers=SSE, content=body)

    async with scripted(Script(answer)) as agent:
        outcomes = [agent.outcome async for _ in agent.run("Hi")]
        assert outcomes[-2:] == [RunFinishedSuccessOutcome(), None]
        assert agent.error is not None
        assert agent.error.message == "Lost."
        assert said(agent.messages) == [("user", "Hi"), ("assistant", "Yes")]


@pytest.mark.parametrize(
    ("bad", "kind", "rule"),
    [
        (event("TEXT_MESSAGE_END", messageId="x"), SequenceViolation, "STREAM-1"),
        (event("TEXT_MESSAGE_CONTENT", messageId="m", delta=7), MalformedEvent, "PROC-3"),
        (["no", "event"], DecodeError, "HTTP-2"),
    ],
)
async def test_a_violation_is_raised_after_what_came_before_it(
    bad: Any, kind: type[ProtocolViolation], rule: str
) -> None:
    """RUN-8, PROC-3: the events before it are delivered and applied; nothing after it is read."""
    start = event("RUN_STARTED", threadId="t", runId="r")
    said_before = text("m", "One", "Two")[:3]
    body = Pieces([frame(start, *said_before, bad, *text("n", "Three")), frame(*text("o", "Four"))])
    answer = httpx.Response(200, headers=SSE, stream=body)
    async with scripted(Script(answer, reply()), thread_id="t") as agent:
        stream = agent.run("Hi", run_id="r")
        seen = [await anext(stream) for _ in range(4)]
        with pytest.raises(kind) as caught:
            await anext(stream)
        assert types(seen) == ["RUN_STARTED", "TEXT_MESSAGE_START", *["TEXT_MESSAGE_CONTENT"] * 2]
        assert (caught.value.index, caught.value.rule) == (4, rule)
        assert said(agent.messages) == [("user", "Hi"), ("assistant", "OneTwo")]
        assert (agent.outcome, agent.error) == (None, None)
        assert body.closed
        await collect(agent)


async def test_several_runs_on_one_stream_leave_the_last_ones_outcome() -> None:
    """RUN-12: a replay ahead of the run that was asked for."""

    def answer(request: httpx.Request) -> httpx.Response:
        run = {"threadId": json.loads(request.content)["threadId"], "runId": "old"}
        past = [event("RUN_STARTED", **run), *text("m", "Once"), event("RUN_FINISHED", **run)]
        body = frame(*past) + whole_run(request, *text("n", "Now"), outcome={"type": "cancelled"})
        return httpx.Response(200, headers=SSE, content=body)

    async with scripted(Script(answer)) as agent:
        await collect(agent)
        assert said(agent.messages)[1:] == [("assistant", "Once"), ("assistant", "Now")]
        assert agent.outcome == RunFinishedCancelledOutcome()


# The thread after a failure

_REFUSALS: Final[dict[str, Callable[[], httpx.Response | Exception]]] = {
    "400": lambda: httpx.Response(400, json={"error": {"message": "no"}}),
    "404": lambda: httpx.Response(404),
    "500": lambda: httpx.Response(500, html="<html>"),
    "no connection": lambda: httpx.ConnectError("no"),
    "no answer": lambda: httpx.ReadTimeout(""),
    "no agent": lambda: httpx.Response(200, html="<html>"),
}


@pytest.mark.parametrize("refusal", _REFUSALS)
async def test_an_input_that_no_agent_took_leaves_the_thread_as_it_was(refusal: str) -> None:
    """HTTP-4: there was no run. The message is not kept, and trying again does not double it."""
    script = Script(
        reply(
            *text("m", "One"),
            event("STATE_SNAPSHOT", snapshot={"n": 1}),
            *call("c"),
            usage=[{"inputTokens": 3}],
        )
    )
    script.add(_REFUSALS[refusal](), _REFUSALS[refusal](), reply())
    async with scripted(script) as agent:
        await collect(agent, "First")
        conversation = agent.conversation
        before = list(agent.messages)
        answer = ToolMessage(id="r", tool_call_id="c", content="Found.")
        message = UserMessage(id="u", content="Second")
        for _ in range(2):
            with pytest.raises((InputRejected, TransportError, DecodeError)):
                await collect(agent, [answer, message])
            assert agent.conversation is conversation
            assert list(agent.messages) == before
            assert agent.state == {"n": 1}
            assert agent.outcome == RunFinishedSuccessOutcome()
            assert [each.id for each in agent.pending_tool_calls] == ["c"]
            assert [each.input_tokens for each in agent.usage] == [3]
        await collect(agent, [answer, message])
        assert list(agent.messages) == [*before, answer, message]
    assert len(script.requests) == 4
    assert [each["id"] for each in script.sent[-1]["messages"]].count("u") == 1
    assert len({each["runId"] for each in script.sent}) == 4


_FAILURES: Final[dict[str, Callable[[], Answering]]] = {
    **_REFUSALS,
    "run error": lambda: broken_off(event("RUN_ERROR", message="No.")),
    "truncated": lambda: broken_off(*text("x", "Half")[:2]),
    "reset": lambda: httpx.Response(200, headers=SSE, stream=Pieces([httpx.ReadError("")])),
    "silent": lambda: httpx.Response(200, headers=SSE, stream=Pieces([httpx.ReadTimeout("")])),
    "violation": lambda: broken_off(event("TEXT_MESSAGE_END", messageId="x")),
    "no json": lambda: httpx.Response(200, headers=SSE, content=b"data: {\n\n"),
    "bad gzip": lambda: httpx.Response(
        200, headers={**SSE, "content-encoding": "gzip"}, stream=Pieces([b"no gzip"])
    ),
}


@pytest.mark.parametrize("failure", _FAILURES)
async def test_an_agent_is_usable_after_each_failure(failure: str) -> None:
    """RUN-11: the thread goes on from what arrived."""
    script = Script(_FAILURES[failure](), reply(*text("m", "Yes")))
    async with scripted(script) as agent:
        try:
            await collect(agent, "First")
        except (InputRejected, TransportError, DecodeError, TruncatedRun, SequenceViolation):
            assert agent.outcome is None
        taken = failure not in _REFUSALS
        assert [message.content for message in agent.messages][:1] == ["First"][:taken]
        await collect(agent, "Second")
        assert agent.outcome == RunFinishedSuccessOutcome()
        assert agent.error is None
        assert said(agent.messages)[-2:] == [("user", "Second"), ("assistant", "Yes")]
    contents = [message.get("content") for message in script.sent[1]["messages"]]
    assert contents.count("First") == taken
    assert contents[-1] == "Second"


async def test_a_message_that_was_taken_is_not_said_again() -> None:
    """EVT-6: after a run that was cut off the thread holds the message; None goes on from there."""
    message = UserMessage(id="u", content="Hi")
    async with scripted(Script(broken_off(), reply(*text("m", "Yes")))) as agent:
        with pytest.raises(TruncatedRun):
            await collect(agent, message)
        with pytest.raises(InvalidInput, match="already holds a message with the id 'u'"):
            agent.run(message)
        await collect(agent, None)
        assert said(agent.messages) == [("user", "Hi"), ("assistant", "Yes")]


# Leaving early


async def _half(request: RawRequest) -> None:
    """Starts a run, says something, and then waits for the client to go."""
    start = event("RUN_STARTED", **request.run)
    await request.write(HEAD + chunked(frame(start, *text("m", "Half")[:2])))
    await request.gone()


class _Left:
    """A server that first answers with half a run, and then with whole ones."""

    def __init__(self) -> None:
        self.seen = asyncio.Event()

    async def __call__(self, request: RawRequest) -> None:
        if not self.seen.is_set():
            await _half(request)
            self.seen.set()
            return
        run = request.run
        body = frame(event("RUN_STARTED", **run), *text("n", "Whole"), event("RUN_FINISHED", **run))
        await request.write(HEAD + chunked(body) + b"0\r\n\r\n")

    async def wait(self) -> None:
        async with asyncio.timeout(5):
            await self.seen.wait()


async def _leave_by_break(agent: HttpAgent) -> None:
    async for each in agent.run("Hi"):
        if each.type == "TEXT_MESSAGE_CONTENT":
            break


async def _leave_by_closing(agent: HttpAgent) -> None:
    stream = agent.run("Hi")
    async for each in stream:
        if each.type == "TEXT_MESSAGE_CONTENT":
            await stream.aclose()
    assert [each async for each in stream] == []


async def _leave_a_block(agent: HttpAgent) -> None:
    async with agent.run("Hi") as stream:
        async for each in stream:
            if each.type == "TEXT_MESSAGE_CONTENT":
                break


async def _leave_by_an_error(agent: HttpAgent) -> None:
    async def read() -> None:
        async for each in agent.run("Hi"):
            if each.type == "TEXT_MESSAGE_CONTENT":
                raise LookupError

    with pytest.raises(LookupError):
        await read()


async def _leave_by_cancelling(agent: HttpAgent) -> None:
    arrived = asyncio.Event()

    async def read() -> None:
        async for each in agent.run("Hi"):
            if each.type == "TEXT_MESSAGE_CONTENT":
                arrived.set()

    task = asyncio.create_task(read())
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _leave_by_a_time_limit(agent: HttpAgent) -> None:
    async def read() -> None:
        async with asyncio.timeout(None) as limit:
            async for each in agent.run("Hi"):
                if each.type == "TEXT_MESSAGE_CONTENT":
                    limit.reschedule(asyncio.get_running_loop().time())

    with pytest.raises(TimeoutError):
        await read()


async def _leave_by_forgetting(agent: HttpAgent) -> None:
    stream = agent.run("Hi")
    for _ in range(3):
        await anext(stream)
    del stream


@pytest.mark.parametrize(
    "leave",
    [
        _leave_by_break,
        _leave_by_closing,
        _leave_a_block,
        _leave_by_an_error,
        _leave_by_cancelling,
        _leave_by_a_time_limit,
        _leave_by_forgetting,
    ],
)
async def test_leaving_early_closes_the_connection(
    leave: Callable[[HttpAgent], Any],
) -> None:
    """The agent sees that nobody reads, what arrived is kept, and the thread goes on (RUN-11)."""
    left = _Left()
    async with raw_server(left) as server, HttpAgent(server.url) as agent:
        await leave(agent)
        assert said(agent.messages) == [("user", "Hi"), ("assistant", "Half")]
        assert agent.outcome is None
        stream = agent.run("Again")  # at once: the thread is free
        await left.wait()
        assert [each.type async for each in stream][-1] == "RUN_FINISHED"
        assert said(agent.messages)[2:] == [("user", "Again"), ("assistant", "Whole")]


async def test_leaving_before_the_answer_takes_nothing_into_the_thread() -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def answer(request: RawRequest) -> None:
        asked.set()
        await request.gone()
        left.set()

    async with raw_server(answer) as server, HttpAgent(server.url) as agent:
        task = asyncio.create_task(collect(agent))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert list(agent.messages) == []
        async with asyncio.timeout(5):
            await left.wait()


async def test_a_run_that_was_never_begun_is_told_of() -> None:
    """Like a coroutine that nobody has awaited."""
    agent = HttpAgent("http://agent.example/")
    with pytest.warns(RuntimeWarning, match="never begun"):
        agent.run("Hi")


async def test_closing_a_run_that_was_never_begun_sends_nothing() -> None:
    script = Script(reply())
    async with scripted(script) as agent:
        async with agent.run("Hi"):
            pass
        assert script.requests == []
        assert list(agent.messages) == []
        await collect(agent)


async def test_closing_twice_and_after_the_end_does_nothing() -> None:
    async with scripted(Script(reply())) as agent:
        async with agent.run("Hi") as stream:
            async for _ in stream:
                pass
            await stream.aclose()
        await stream.aclose()
        assert agent.outcome is not None


async def test_an_agent_app_hears_that_its_reader_has_left() -> None:
    """Over a real server: the run is cancelled, though it would go on for ever."""
    stopped = threading.Event()

    async def endless(run: Run) -> None:
        try:
            async with run.text() as message:
                while True:
                    await message.write("…")
                    await asyncio.sleep(0.01)
        finally:
            stopped.set()

    with serve(AgentApp(endless)) as url:
        async with HttpAgent(url) as agent:
            async for each in agent.run("Hi"):
                if each.type == "TEXT_MESSAGE_CONTENT":
                    break
            assert await asyncio.to_thread(stopped.wait, 5)


async def test_closing_the_agent_in_the_middle_cuts_the_run_off() -> None:
    """RUN-11."""
    left = _Left()
    async with raw_server(left) as server, HttpAgent(server.url) as agent:
        stream = agent.run("Hi")
        for _ in range(3):
            await anext(stream)
        await agent.close()
        with pytest.raises(TruncatedRun):
            await anext(stream)
        await left.wait()
        assert said(agent.messages) == [("user", "Hi"), ("assistant", "Half")]


# One run at a time


async def test_a_second_run_is_refused_while_one_is_under_way() -> None:
    """And does no harm to the first."""
    script = Script(reply(*text("m", "Yes")))
    refused = 0
    async with scripted(script) as agent:
        async for _ in agent.run("Hi", run_id="first"):
            with pytest.raises(RuntimeError, match="'first' has not ended.*one run at a time"):
                agent.run("And now?")
            refused += 1
        assert refused == 5
        assert said(agent.messages) == [("user", "Hi"), ("assistant", "Yes")]
    assert len(script.requests) == 1


async def test_a_run_made_earlier_does_not_begin_while_another_is_under_way() -> None:
    script = Script(reply(), reply())
    async with scripted(script) as agent:
        early, first = agent.run("Early"), agent.run("First")
        await anext(first)
        assert (first.under_way, early.under_way) == (True, False)
        with pytest.raises(RuntimeError, match="has not ended"):
            await anext(early)
        assert [each.type async for each in first] == ["RUN_FINISHED"]
        assert not first.under_way
        # It was made from a thread that has gone on since, and would undo what was said.
        with pytest.raises(RuntimeError, match="the thread has gone on.*make it anew"):
            await anext(early)
        assert len(script.requests) == 1
        await collect(agent, "Late")
        assert said(agent.messages) == [("user", "First"), ("user", "Late")]


async def test_a_run_that_was_never_begun_is_in_nobodys_way() -> None:
    script = Script(httpx.Response(500), reply())
    async with scripted(script) as agent:
        unused, failing, other = agent.run("A"), agent.run("B"), agent.run("C")
        with pytest.raises(InputRejected):
            await anext(failing)
        # Nothing came of that one, so this one still fits the thread.
        assert [each.type async for each in other] == ["RUN_STARTED", "RUN_FINISHED"]
        assert said(agent.messages) == [("user", "C")]
        assert not unused.under_way
        await unused.aclose()


@pytest.mark.parametrize("failure", _FAILURES)
async def test_the_thread_is_free_once_a_run_has_failed(failure: str) -> None:
    """While the failed run is still at hand."""
    async with scripted(Script(_FAILURES[failure](), reply())) as agent:
        stream: RunStream = agent.run("Hi")
        try:
            async for _ in stream:
                pass
        except (InputRejected, TransportError, DecodeError, TruncatedRun, SequenceViolation):
            pass
        assert not stream.under_way
        await collect(agent)
        assert [each async for each in stream] == []


async def test_several_agents_work_side_by_side() -> None:
    """Each with its own thread, over clients of their own and over a shared one."""
    together = asyncio.Barrier(12)

    async def answer(request: RawRequest) -> None:
        sent = json.loads(request.body)
        run = request.run
        await request.write(HEAD + chunked(frame(event("RUN_STARTED", **run))))
        async with asyncio.timeout(5):
            await together.wait()
        echo = sent["messages"][-1]["content"]
        body = frame(*text(f"m{len(sent['messages'])}", echo), event("RUN_FINISHED", **run))
        await request.write(chunked(body) + b"0\r\n\r\n")

    async def hold(agent: HttpAgent, name: str) -> list[tuple[str, Any]]:
        async with agent:
            await collect(agent, f"{name} one")
            await collect(agent, f"{name} two")
            return said(agent.messages)

    async with raw_server(answer) as server, httpx.AsyncClient() as shared:
        threads = await asyncio.gather(
            *(hold(HttpAgent(server.url), f"own {number}") for number in range(6)),
            *(hold(HttpAgent(server.url, client=shared), f"our {number}") for number in range(6)),
        )
    for number, thread in enumerate(threads):
        name = f"own {number}" if number < 6 else f"our {number - 6}"
        assert thread == [
            (role, f"{name} {turn}") for turn in ("one", "two") for role in ("user", "assistant")
        ]


# Other transports


class _InProcess:
    """A transport without a wire: bodies by the piece, or an error (TRANS-1)."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.inputs: list[RunAgentInput] = []
        self.open_now = 0
        self.closed = False

    @asynccontextmanager
    async def open(self, input: RunAgentInput) -> AsyncIterator[Answer]:
        self.inputs.append(input)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        self.open_now += 1
        try:
            yield Answer("text/event-stream", aiter(Pieces(answer)))
        finally:
            self.open_now -= 1

    async def capabilities(self) -> None:
        return None

    async def close(self) -> None:
        self.closed = True


async def test_an_agent_over_another_transport() -> None:
    """TRANS-1: the input goes first, order is kept, and each way to fail has its own error."""
    run = {"threadId": "t", "runId": "r"}
    head, tail = frame(event("RUN_STARTED", **run)), frame(event("RUN_FINISHED", **run))
    transport = _InProcess(
        InputRejected("full", status=None),
        [head, TransportError("the bus is gone")],
        [head, *[bytes([byte]) for byte in frame(*text("m", "Yes"))], tail],
        [head, tail, RunTimeout("nothing for 5 seconds")],
        [head],
    )
    async with Agent(transport, thread_id="t") as agent:
        with pytest.raises(InputRejected, match="^full$"):
            await collect(agent, run_id="r")
        assert list(agent.messages) == []
        with pytest.raises(TransportError, match="the bus is gone"):
            await collect(agent, run_id="r")
        await collect(agent, None)
        assert said(agent.messages) == [("user", "Hi"), ("assistant", "Yes")]
        await collect(agent, None)
        assert agent.outcome is not None
        with pytest.raises(TruncatedRun):
            await collect(agent, None)
        assert transport.open_now == 0
        assert [len(each.messages) for each in transport.inputs] == [1, 1, 1, 2, 2]
    assert transport.closed
    assert len(agent.messages) == 2  # the thread stays readable


async def test_middleware_sees_what_the_agent_sends() -> None:
    """PROC-7: before enforcement, so that it can translate what we would not understand."""

    def translate(item: Any) -> Any:
        if isinstance(item, dict) and item.get("type") == "SAID":
            return text("m", item["words"])
        return item

    script = Script(reply({"type": "SAID", "words": "Yes"}))
    async with scripted(script, event_middleware=[translate]) as agent:
        await collect(agent)
        assert said(agent.messages) == [("user", "Hi"), ("assistant", "Yes")]


async def test_a_log_of_warnings_can_be_silenced(caplog: pytest.LogCaptureFixture) -> None:
    """By the level of the logger; the program's own callback still hears them."""
    warnings: list[ProtocolWarning] = []
    caplog.set_level(logging.ERROR, logger="aguia")
    async with scripted(Script(reply()), on_warning=warnings.append) as agent:
        await collect(agent, {"role": "user", "id": "u", "content": "a", "mood": "good"})
    assert len(warnings) == 1
    assert caplog.records == []


async def test_time_limits_and_address_are_those_given() -> None:
    agent = HttpAgent("http://agent.example/", timeouts=Timeouts(connect=1, idle=2))
    assert agent.url == "http://agent.example/"
    async with scripted(Script(httpx.ConnectTimeout("")), timeouts=Timeouts(connect=1.5)) as agent:
        with pytest.raises(ConnectionFailed, match="1.5 seconds"):
            await collect(agent)


async def test_messages_of_the_assistant_may_open_a_thread() -> None:
    greeting = AssistantMessage(id="g", content="How can I help?")
    script = Script(reply())
    async with scripted(script, messages=[greeting], state={"a": 1}) as agent:
        await collect(agent)
        assert agent.messages[0] is greeting or agent.messages[0] == greeting
    assert [message["role"] for message in script.sent[0]["messages"]] == ["assistant", "user"]
    assert script.sent[0]["state"] == {"a": 1}


async def test_a_thread_taken_up_from_a_store_knows_its_open_interrupts() -> None:
    """INT-2: coverage is checked before anything is sent, also in another process."""
    agent = HttpAgent("http://agent.example/", interrupts=[{"id": "i-1", "reason": "approval"}])
    assert [interrupt.id for interrupt in agent.interrupts] == ["i-1"]
    with pytest.raises(InvalidInput) as refused:
        agent.run("go on")
    assert refused.value.rule == "INT-2"
    with pytest.raises(InvalidInput):
        HttpAgent("http://agent.example/", interrupts=[{"id": 5, "reason": "approval"}])


async def test_what_middleware_makes_of_an_input_is_judged_like_any() -> None:
    """ACT-4, INT-2: no activity is sent, and no interrupt is passed over."""
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        run = {"threadId": sent[-1]["threadId"], "runId": sent[-1]["runId"]}
        lines = [{"type": "RUN_STARTED", **run}, {"type": "RUN_FINISHED", **run}]
        body = "".join(f"data: {json.dumps(line)}\n\n" for line in lines)
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=body)

    activity = ActivityMessage(id="a", activity_type="plan", content={})
    entry = ResumeEntry(interrupt_id="i-1", status="cancelled")

    async def adds(input: RunAgentInput, call_next: Any) -> Any:
        changed = msgspec.structs.replace(input, messages=[*input.messages, activity])
        async for item in call_next(changed):
            yield item

    async def forgets(input: RunAgentInput, call_next: Any) -> Any:
        async for item in call_next(msgspec.structs.replace(input, resume=[])):
            yield item

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        agent = HttpAgent("http://agent.example/", client=client, middleware=[adds])
        async for _ in agent.run("hi"):
            pass
        assert [message["role"] for message in sent[0]["messages"]] == ["user"]

        agent = HttpAgent(
            "http://agent.example/",
            client=client,
            middleware=[forgets],
            interrupts=[{"id": "i-1", "reason": "approval"}],
        )
        with pytest.raises(InvalidInput) as refused:
            async for _ in agent.run("hi", resume=[entry]):
                pass
        assert refused.value.rule == "INT-2"
        assert len(sent) == 1


async def test_middleware_does_not_leave_a_call_without_its_answer() -> None:
    """FRONT-5: it may shorten a history, by whole calls."""

    def without(*roles: str) -> Any:
        async def shortens(input: RunAgentInput, call_next: Any) -> Any:
            kept = [message for message in input.messages if message.role not in roles]
            async for item in call_next(msgspec.structs.replace(input, messages=kept)):
                yield item

        return shortens

    script = Script(reply(*call("c")), reply(*text("m", "Thanks")))
    answer = ToolMessage(id="r", tool_call_id="c", content="1")
    async with scripted(script) as agent:
        await collect(agent, "Hi")
        history = {**agent.history(), "pendingToolCallIds": ["c"]}
    async with scripted(script, history=history, middleware=[without("tool")]) as agent:
        with pytest.raises(InvalidInput, match="left out the answer to the call 'c'") as refused:
            await collect(agent, [answer])
        assert refused.value.rule == "FRONT-5"
    assert len(script.sent) == 1
    both = without("tool", "assistant")
    async with scripted(script, history=history, middleware=[both]) as agent:
        await collect(agent, [answer])
    assert [message["role"] for message in script.sent[1]["messages"]] == ["user"]


async def test_answers_may_be_given_as_a_mapping() -> None:
    """INT-2: by the interrupt's id; `CANCEL` abandons."""
    open_ones = [{"id": "a", "reason": "q"}, {"id": "b", "reason": "q"}, {"id": "c", "reason": "q"}]
    agent = HttpAgent("http://agent.example/", interrupts=open_ones)
    async with agent.run(resume={"a": {"n": [1, None]}, "b": CANCEL, "c": None}) as run:
        assert run.input.resume == [
            ResumeEntry(interrupt_id="a", status="resolved", payload={"n": [1, None]}),
            ResumeEntry(interrupt_id="b", status="cancelled"),
            ResumeEntry(interrupt_id="c", status="resolved"),
        ]
    for wrong in ("yes", ResumeEntry(interrupt_id="a", status="cancelled"), 5):
        with pytest.raises(TypeError, match="mapping of interrupt ids"):
            agent.run(resume=wrong)  # type: ignore[arg-type]


# Limits


@pytest.mark.parametrize("middleware", [(), (throttle(0.01),)])
@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"max_event_bytes": 2000}, "larger than 2000 bytes"),
        ({"max_depth": 8}, "deeper than 8 levels"),
        ({"max_open_items": 1}, "1 items are open already"),
    ],
)
async def test_how_much_of_a_stream_is_read_can_be_limited(
    limit: dict[str, Any], said: str, middleware: Any
) -> None:
    deep: Any = "x" * 3000
    for _ in range(10):
        deep = [deep]

    async def agent(run: Run) -> None:
        await run.say("It begins")
        async with run.text() as one, run.text() as two:
            await one.write("a")
            await two.write("b")
            await run.custom("deep", deep)

    async with Agent(AsgiTransport(AgentApp(agent)), middleware=middleware, **limit) as client:
        for thread in (client, client.fork()):
            with pytest.raises(ProtocolViolation, match=said):
                await thread.ask("Hi")
            assert "It begins" in [message.content for message in thread.messages]
    async with Agent(AsgiTransport(AgentApp(agent)), middleware=middleware) as client:
        assert (await client.ask("Hi")).outcome == "success"
