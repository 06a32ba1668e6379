"""The npm package `@ag-ui/client`: a real peer of the server, and a reference for the consumer.

Its `HttpAgent` holds conversations with `AgentApp` over HTTP and has to end where `HttpAgent`
ends; and random streams, kept and broken, have to mean the same to it and to `Consumer`.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import anyio
import httpx
import msgspec
import pytest

from aguia import (
    Consumer,
    HttpAgent,
    ProtocolViolation,
    ProtocolWarning,
    RunAgentInput,
    RunFinishedSuccessOutcome,
    TruncatedRun,
)
from aguia.server import AgentApp, Run, RunError
from support import require_peers
from support_server import Recorder, canonical, node, serve
from support_streams import Case, EventJson, broken, well_formed

# A conversation of several turns over HTTP

ASK: Final = {
    "name": "ask_user",
    "description": "Asks the person a question.",
    "parameters": {"type": "object", "properties": {"question": {"type": "string"}}},
}
CONTEXT: Final = [{"description": "the season", "value": "spring"}]
IMAGE: Final = {"type": "url", "value": "https://example.com/porto.png", "mimeType": "image/png"}

TURNS: Final[list[dict[str, Any]]] = [
    {"runId": "plan", "messages": [{"id": "u1", "role": "user", "content": "A trip, please. 🧭"}]},
    {
        "runId": "book",
        "messages": [
            {"id": "a1", "role": "tool", "toolCallId": "plan-ask", "content": '{"city":"Porto"}'}
        ],
        "forwardedProps": {"currency": "EUR"},
    },
    {
        "runId": "look",
        "messages": [
            {
                "id": "u2",
                "role": "user",
                "content": [
                    {"type": "text", "text": "Is it this one?"},
                    {"type": "image", "source": IMAGE, "metadata": {"page": 1}},
                ],
            }
        ],
    },
    {"runId": "again", "messages": [{"id": "u3", "role": "user", "content": "Thank you."}]},
]


async def _plan(run: Run) -> None:
    """Reasoning, a step, a call with a text result, state, and a frontend tool left pending."""
    async with run.reasoning(message_id="plan-thought") as thought:
        await thought.write("Where to? ")
        await thought.write("Ask.")
    await run.set_state({"trip": {"city": None, "stops": []}, "done": False, "e~f/g": 0})
    async with run.step("search"):
        call = run.tool_call("find", tool_call_id="plan-find")
        async with call:
            await call.write('{"season":')
            await call.write('"spring"}')
        await call.result("Porto, Faro", message_id="plan-found")
        await run.patch_state(
            [
                {"op": "add", "path": "/trip/stops/-", "value": {"name": "Porto"}},
                {"op": "add", "path": "/trip/stops/0", "value": {"name": "Faro"}},
            ]
        )
    async with run.text(message_id="plan-text", metadata={"model": "script"}) as text:
        await text.write("I found two. ")
        await text.write("Which one?")
    async with run.tool_call(
        "ask_user",
        '{"question":"Which one?"}',
        tool_call_id="plan-ask",
        parent_message_id="plan-text",
    ):
        pass


async def _book(run: Run) -> None:
    """Takes the person's answer; a call with a result in parts, deltas, a custom event."""
    answer = run.messages[-1]
    assert answer.role == "tool"
    city = json.loads(str(answer.content))["city"]
    call = run.tool_call("map", tool_call_id="book-map", metadata={"tries": 2})
    async with call:
        await call.write(json.dumps({"city": city}))
    await run.emit(
        {
            "type": "TOOL_CALL_RESULT",
            "messageId": "book-mapped",
            "toolCallId": "book-map",
            "content": [
                {"type": "text", "text": "a map"},
                {"type": "image", "source": IMAGE, "metadata": {"zoom": 3}},
            ],
        }
    )
    await run.patch_state(
        [
            {"op": "replace", "path": "/trip/city", "value": city},
            {"op": "move", "from": "/trip/stops/0", "path": "/dropped"},
            {"op": "remove", "path": "/done"},
            {"op": "replace", "path": "/e~0f~1g", "value": [1.5, True, None, ""]},
        ]
    )
    await run.custom("com.example.booked", {"city": city, "props": run.input.forwarded_props})
    async with run.text(message_id="book-text") as text:
        await text.write(f"{city} it is.")


async def _look(run: Run) -> None:
    """Chunks, a subagent, an activity, encrypted values, and the history restated."""
    for event in (
        {"type": "SUBAGENT_STARTED", "subagentRunId": "sub-1", "name": "eye"},
        {
            "type": "TEXT_MESSAGE_CHUNK",
            "messageId": "look-sub",
            "delta": "It ",
            "subagentRunId": "sub-1",
        },
        {
            "type": "ACTIVITY_SNAPSHOT",
            "messageId": "look-activity",
            "activityType": "LOOK",
            "content": {"seen": 0},
        },
        {"type": "TEXT_MESSAGE_CHUNK", "delta": "is.", "metadata": {"tokens": 2}},
        {
            "type": "ACTIVITY_DELTA",
            "messageId": "look-activity",
            "activityType": "LOOK",
            "patch": [{"op": "replace", "path": "/seen", "value": 1}],
        },
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "sub-1"},
        {
            "type": "REASONING_ENCRYPTED_VALUE",
            "subtype": "message",
            "entityId": "plan-thought",
            "encryptedValue": "opaque+/=",
        },
        {
            "type": "REASONING_ENCRYPTED_VALUE",
            "subtype": "tool-call",
            "entityId": "plan-find",
            "encryptedValue": "kind",
        },
    ):
        await run.emit(event)
    await run.set_state(0)


async def _again(run: Run) -> None:
    """A snapshot that drops a message, renames one and adds one; falsy state in between."""
    await run.emit(
        {
            "type": "MESSAGES_SNAPSHOT",
            "messages": [
                {"id": "again-new", "role": "system", "content": "Be brief."},
                *(
                    msgspec.to_builtins(message)
                    for message in run.messages
                    if message.id not in ("plan-found", "u2", "plan-thought")
                ),
            ],
        }
    )
    await run.set_state({"after": run.state})
    async with run.text(message_id="plan-text") as text:
        await text.write(" Bye.")


SCENES: Final[dict[str, Callable[[Run], Any]]] = {
    "plan": _plan,
    "book": _book,
    "look": _look,
    "again": _again,
}


async def _travel_agent(run: Run) -> None:
    await SCENES[run.run_id](run)


@dataclass
class Held:
    """What is left of a conversation, as plain JSON, after each turn and at its end."""

    messages: list[Any]
    states: list[Any]
    events: list[list[str]]
    pending: list[list[str]]


async def _hold(url: str, warnings: list[ProtocolWarning]) -> Held:
    """The conversation, held by our own client."""
    held = Held([], [], [], [])
    async with HttpAgent(
        url,
        thread_id="trip",
        state={},
        tools=[ASK],
        context=CONTEXT,
        on_warning=warnings.append,
    ) as agent:
        for turn in TURNS:
            stream = agent.run(
                turn["messages"],
                run_id=turn["runId"],
                forwarded_props=turn.get("forwardedProps", {}),
            )
            held.events.append([event.type async for event in stream])
            held.messages.append(msgspec.to_builtins(list(agent.messages)))
            held.states.append(agent.state)
            held.pending.append([call.id for call in agent.pending_tool_calls])
    return held


def _speaks(url: str, **request: Any) -> Any:
    """A conversation held by the npm client; what it gives is in `conversation.mjs`."""
    return node("conversation.mjs", {"url": url, "threadId": "trip", **request})


@pytest.mark.anyio
async def test_both_clients_end_with_the_same_conversation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Four turns, among them a frontend tool answered in the second (FRONT-1 to FRONT-5)."""
    app = Recorder(AgentApp(_travel_agent))
    warnings: list[ProtocolWarning] = []
    with serve(app) as url:
        ours = await _hold(url, warnings)
        sent_by_us, app.bodies = app.bodies, []
        npm = await anyio.to_thread.run_sync(
            lambda: _speaks(url, turns=TURNS, tools=[ASK], context=CONTEXT, initialState={})
        )

    assert [turn.get("error") for turn in npm["turns"]] == [None] * len(TURNS)
    assert npm["warnings"] == npm["errors"] == []
    assert warnings == []
    assert [record.message for record in caplog.records if record.name.startswith("aguia")] == []
    for place, turn in enumerate(npm["turns"]):
        assert canonical(turn["messages"]) == canonical(ours.messages[place])
        assert canonical(turn["state"]) == canonical(ours.states[place])
        assert turn["events"] == ours.events[place]
        assert turn["pendingToolCallIds"] == ours.pending[place]
    assert canonical(npm["messages"]) == canonical(ours.messages[-1])

    # The conversation was one: both clients gave the agent the same history to go on from.
    for mine, theirs in zip(sent_by_us, app.bodies, strict=True):
        assert canonical(json.loads(mine)) == canonical(json.loads(theirs))
    assert ours.pending == [["plan-ask"], [], [], []]
    assert npm["turns"][1]["custom"][0]["value"] == {"city": "Porto", "props": {"currency": "EUR"}}
    assert ours.states == [
        {
            "trip": {"city": None, "stops": [{"name": "Faro"}, {"name": "Porto"}]},
            "done": False,
            "e~f/g": 0,
        },
        {
            "trip": {"city": "Porto", "stops": [{"name": "Porto"}]},
            "dropped": {"name": "Faro"},
            "e~f/g": [1.5, True, None, ""],
        },
        0,
        {"after": 0},
    ]


def test_what_the_npm_client_sends_is_accepted_strictly() -> None:
    """IN-1, VER-1, ACT-4: nothing in its run input has to be translated or stripped."""
    app = Recorder(AgentApp(_travel_agent))
    with serve(app) as url:
        _speaks(url, turns=TURNS, tools=[ASK], context=CONTEXT, initialState={})

    assert len(app.bodies) == len(TURNS)
    for body in app.bodies:
        run_input = msgspec.json.decode(body, type=RunAgentInput, strict=True)
        assert run_input.protocol_version == "1.0"
        assert "activity" not in {message.role for message in run_input.messages}


# Failures

BAD_INPUT: Final = json.dumps(
    {"threadId": "trip", "runId": "r", "messages": [{"id": "u1", "role": "user", "content": 5}]}
)


def test_a_run_error_is_a_failed_run_to_the_npm_client() -> None:
    """RUN-8, HTTP-4: the agent's words and code arrive, and what was said before stays."""

    async def agent(run: Run) -> None:
        async with run.text(message_id="m") as text:
            await text.write("I will")
            raise RunError("No seats left.", code="sold_out")

    with serve(AgentApp(agent)) as url:
        said = _speaks(url, turns=[{"runId": "r"}])

    (turn,) = said["turns"]
    assert turn["runError"]["message"] == "No seats left."
    assert turn["runError"]["code"] == "sold_out"
    assert turn["events"][-1] == "RUN_ERROR"
    assert "error" not in turn
    assert said["messages"] == [{"id": "m", "role": "assistant", "content": "I will"}]


def test_an_exception_of_the_agent_does_not_tell_the_npm_client_its_words() -> None:
    """RUN-8: a failed run, and nothing of the exception's text."""

    async def agent(run: Run) -> None:
        raise ValueError("the password is swordfish")

    with serve(AgentApp(agent)) as url:
        said = _speaks(url, turns=[{"runId": "r"}])

    (turn,) = said["turns"]
    assert turn["events"] == ["RUN_STARTED", "RUN_ERROR"]
    assert turn["runError"]["message"]
    assert "swordfish" not in json.dumps(said)


def test_a_refused_input_is_an_error_to_the_npm_client() -> None:
    """HTTP-4, PROC-12: status 400, no stream, and a body that says where and by which rule."""
    with serve(AgentApp(_travel_agent)) as url:
        said = _speaks(url, turns=[{"runId": "r"}], body=BAD_INPUT)

    (turn,) = said["turns"]
    assert turn["events"] == []
    assert turn["error"]["status"] == 400
    assert turn["error"]["payload"]["error"]["path"] == "/messages/0/content"
    assert turn["error"]["payload"]["error"]["rule"] == "PROC-3"
    assert said["messages"] == []


# Text, and time

UNUSUAL: Final = {
    "emoji": ["🦅👩‍🚀", "🇵🇹"],
    "line ends that are none": ["a\u2028b\u2029c", "\u0085d\x0be\x0c"],
    "line ends": ["a\nb\r\nc\rd", "\n\n", "data: x\n\ndata: y"],
    "escapes": ["\x00\x01\x1f\x7f", '"\\"', "\\u0000", "</script>"],
    "byte order mark": ["\ufeff", "a\ufeff"],
    "half characters": ["eagle \ud83e", "\udd85!"],
    "nothing": ["", ""],
    "a megabyte": ["é" * 250_000, "x" * 500_000],
}


@pytest.mark.anyio
async def test_unusual_text_arrives_as_it_was_written() -> None:
    """STREAM-2, HTTP-3: text, arguments and state, with both clients."""

    async def agent(run: Run) -> None:
        for name, deltas in UNUSUAL.items():
            async with run.text(message_id=name) as text:
                for delta in deltas:
                    await text.write(delta)
            async with run.tool_call("f", tool_call_id=f"call {name}") as call:
                for delta in deltas:
                    await call.write(delta)
        await run.set_state({name: "".join(deltas) for name, deltas in STATE.items()})

    STATE = {name: deltas for name, deltas in UNUSUAL.items() if name != "half characters"}
    with serve(AgentApp(agent)) as url:
        async with HttpAgent(url, thread_id="trip") as ours:
            async for _ in ours.run(run_id="r"):
                pass
        npm = await anyio.to_thread.run_sync(lambda: _speaks(url, turns=[{"runId": "r"}]))

    assert npm["turns"][0].get("error") is None
    assert npm["errors"] == npm["warnings"] == []
    expected = {name: _joined(deltas) for name, deltas in UNUSUAL.items()}
    for messages in (npm["messages"], msgspec.to_builtins(list(ours.messages))):
        texts = {item["id"]: item["content"] for item in messages if "content" in item}
        calls = [call for item in messages for call in item.get("toolCalls", ())]
        assert texts == expected
        assert [call["function"]["arguments"] for call in calls] == list(expected.values())
    assert npm["state"] == ours.state == {name: expected[name] for name in STATE}


def _joined(deltas: list[str]) -> str:
    """Deltas as one text, in which two halves of a character are that character."""
    return "".join(deltas).encode("utf-16", "surrogatepass").decode("utf-16")


@pytest.mark.anyio
async def test_a_slow_stream_is_kept_alive_and_read() -> None:
    """HTTP-3: comments in the pauses, which neither client takes for anything."""

    async def agent(run: Run) -> None:
        async with run.text(message_id="m") as text:
            for delta in ("slowly", " but", " surely"):
                await anyio.sleep(0.12)
                await text.write(delta)

    with serve(AgentApp(agent, keep_alive=0.03)) as url:
        async with HttpAgent(url, thread_id="trip") as ours:
            async for _ in ours.run(run_id="r"):
                pass
        npm = await anyio.to_thread.run_sync(lambda: _speaks(url, turns=[{"runId": "r"}]))
        async with httpx.AsyncClient() as client:
            raw = await client.post(
                url,
                json={"threadId": "t", "runId": "r", "messages": []},
                headers={"accept": "text/event-stream"},
            )

    assert raw.text.count("\n:") + raw.text.startswith(":") >= 3
    said = [{"id": "m", "role": "assistant", "content": "slowly but surely"}]
    assert npm["messages"] == msgspec.to_builtins(list(ours.messages)) == said
    assert npm["warnings"] == npm["errors"] == []
    assert "error" not in npm["turns"][0]


# The same streams, read by the npm client and by `Consumer`

WELL_FORMED: Final = 150
BROKEN: Final = 250


@dataclass
class Reading:
    """What a reader makes of a stream.

    The verdict is "failed" when it rejects the stream, "truncated" when the last run has no
    terminal event, else "completed". `pending` is None where the last run was no success.
    """

    verdict: str
    messages: Any
    state: Any
    events: list[str]
    pending: list[str] | None
    reason: str
    rule: str | None = None


def _read_here(case: Case, *, framed: bool) -> Reading:
    """The stream through `Consumer`, as bytes of a body or event by event."""
    consumer = Consumer(case.input)
    events: list[str] = []
    verdict, reason, rule = "completed", "", None
    try:
        for event in case.events:
            if framed:
                came = consumer.receive(f"data: {json.dumps(event)}\n\n".encode())
            else:
                came = consumer.receive_event(event)
            events.extend(item.type for item in came)
        events.extend(item.type for item in consumer.end())
    except TruncatedRun as error:
        verdict, reason = "truncated", str(error)
    except ProtocolViolation as error:
        verdict, reason, rule = "failed", str(error), error.rule
    thread = consumer.conversation
    return Reading(
        verdict=verdict,
        messages=msgspec.to_builtins(list(thread.messages)),
        state=thread.state,
        events=events,
        pending=[call.id for call in thread.pending_tool_calls]
        if isinstance(thread.outcome, RunFinishedSuccessOutcome)
        else None,
        reason=reason,
        rule=rule,
    )


def _read_there(cases: list[Case]) -> list[Reading]:
    """The streams through the npm client, all in one process."""
    request = {"cases": [{"input": case.input, "events": case.events} for case in cases]}
    return [
        Reading(
            verdict=found["verdict"],
            messages=found["messages"],
            state=found["state"],
            events=found["events"],
            pending=found.get("pendingToolCallIds"),
            reason=found.get("error", ""),
        )
        for found in node("replay.mjs", request)["cases"]
    ]


def _differences(theirs: Reading, ours: Reading) -> list[str]:
    """The aspects in which two readings differ.

    Of a rejected stream only the verdict counts: the npm client drops what it had not applied.
    """
    if theirs.verdict != ours.verdict:
        return ["verdict"]
    if theirs.verdict == "failed":
        return []
    differing = [
        aspect
        for aspect in ("messages", "state", "events")
        if canonical(getattr(theirs, aspect)) != canonical(getattr(ours, aspect))
    ]
    if None not in (theirs.pending, ours.pending) and theirs.pending != ours.pending:
        differing.append("pending")
    return differing


# Every difference that a random stream may show, and why it is right to differ: what differs,
# and whether the stream has the reason for it.


def _announced_late(case: Case, theirs: Reading, ours: Reading) -> bool:
    """SUB-2: what was attributed before its announcement is a violation; npm lets it pass."""
    return ours.rule == "SUB-2" and theirs.verdict != "failed"


def _finish_disagrees(case: Case, theirs: Reading, ours: Reading) -> bool:
    """RUN-3: a finish that disagrees with its start is a violation; npm does not compare."""
    return ours.rule == "RUN-3" and theirs.verdict != "failed"


def _forms_are_mixed(case: Case, theirs: Reading, ours: Reading) -> bool:
    """CHUNK-9: an explicit event from another lane ends the shorthand that holds its id.

    npm ends it only from the same lane, and takes the event for a part of the item.
    """
    chunked = {
        (event["type"].removesuffix("_CHUNK"), event.get(key))
        for event in case.events
        for key in ("messageId", "toolCallId")
        if event["type"].endswith("_CHUNK")
    }
    return any(
        (event["type"].rsplit("_", 1)[0], event.get(key)) in chunked
        for event in case.events
        for key in ("messageId", "toolCallId")
        if event.get(key) is not None and event["type"].endswith(("_START", "_CONTENT", "_ARGS"))
    )


def _message_of_a_call(case: Case, theirs: Reading, ours: Reading) -> bool:
    """TOOL-5, SUB-4: the message that a call brings about belongs to the call's owner.

    npm knows no owner of it, and puts another owner's call or text into it.
    """
    parents = {
        event["parentMessageId"]
        for event in case.events
        if event["type"] in ("TOOL_CALL_START", "TOOL_CALL_CHUNK") and "parentMessageId" in event
    }
    said = str(ours.reason)
    return (
        theirs.verdict == "completed"
        and any(f"'{parent}'" in said for parent in parents)
        and ("[TOOL-5]" in said or "[SUB-4]" in said)
    )


def _result_given_again(case: Case, theirs: Reading, ours: Reading) -> bool:
    """EVT-6: a result under the id of a tool message that is held already restates it.

    npm then holds two messages of one id.
    """
    results = [event["messageId"] for event in case.events if event["type"] == "TOOL_CALL_RESULT"]
    ids = [message["id"] for message in theirs.messages]
    return len(set(results)) < len(results) or len(set(ids)) < len(ids)


def _pending_call_withdrawn(case: Case, theirs: Reading, ours: Reading) -> bool:
    """FRONT-4: a call that a snapshot has taken out of the conversation is not pending.

    Nobody could answer it. npm goes on naming its id.
    """
    held = {call["id"] for message in ours.messages for call in message.get("toolCalls", ())}
    return ours.pending == [id_ for id_ in theirs.pending or () if id_ in held]


def _result_takes_an_id(case: Case, theirs: Reading, ours: Reading) -> bool:
    """EVT-6, SUB-4: a result under the id of a text message does not change whose that one is.

    npm takes the result's owner for the message's, and rejects what its opener goes on to say.
    """
    results = {event["messageId"] for event in case.events if event["type"] == "TOOL_CALL_RESULT"}
    texts = {event.get("messageId") for event in case.events if "TEXT_MESSAGE" in event["type"]}
    return theirs.verdict == "failed" and not results.isdisjoint(texts)


def _text_after_parts(case: Case, theirs: Reading, ours: Reading) -> bool:
    """TEXT-3: text that continues a message of parts is its last part; npm drops the parts."""
    parted = {item["id"] for item in ours.messages if isinstance(item.get("content"), list)}
    return any(
        item["id"] in parted and isinstance(item["content"], str) for item in theirs.messages
    )


def _half_alone(case: Case, theirs: Reading, ours: Reading) -> bool:
    """Half a character waits here for its other half, and comes later when none does."""
    said = json.dumps([theirs.messages, ours.messages], ensure_ascii=False)
    return any("\ud800" <= character <= "\udfff" for character in said)


KNOWN: Final[dict[str, tuple[Callable[[Case, Reading, Reading], bool], ...]]] = {
    "verdict": (
        _announced_late,
        _finish_disagrees,
        _forms_are_mixed,
        _message_of_a_call,
        _result_takes_an_id,
    ),
    "messages": (_result_given_again, _forms_are_mixed, _text_after_parts, _half_alone),
    "events": (_forms_are_mixed, _half_alone),
    "pending": (_pending_call_withdrawn,),
    "state": (),
}


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Random streams warn by the thousand: keep that out of the log."""
    caplog.set_level(logging.ERROR, "aguia")


@pytest.fixture(scope="module")
def readings() -> list[tuple[Case, Reading]]:
    """All random streams with what the npm client makes of them: the whole ones come first."""
    require_peers()
    whole = [well_formed(seed) for seed in range(WELL_FORMED)]
    cases = whole + [broken(whole[seed % WELL_FORMED], seed) for seed in range(BROKEN)]
    return list(zip(cases, _read_there(cases), strict=True))


def _unknown(case: Case, theirs: Reading, ours: Reading) -> list[str]:
    """What differs without a known reason, in words."""
    return [
        f"{case.name}: {aspect}: npm {theirs.verdict} {theirs.reason}, here {ours.verdict} "
        f"{ours.reason}"
        for aspect in _differences(theirs, ours)
        if not any(known(case, theirs, ours) for known in KNOWN[aspect])
    ]


@pytest.mark.unmeasured
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("framed", [True, False], ids=["bytes", "events"])
def test_well_formed_streams_mean_the_same_to_both(
    readings: list[tuple[Case, Reading]], framed: bool
) -> None:
    """All families, explicit and chunked, interleaved: completed, with the same outcome."""
    differing = []
    for case, theirs in readings[:WELL_FORMED]:
        ours = _read_here(case, framed=framed)
        assert theirs.verdict == ours.verdict == "completed", f"{case.name}: {theirs} {ours}"
        differing += _unknown(case, theirs, ours)
    assert differing == []


@pytest.mark.unmeasured
@pytest.mark.usefixtures("quiet")
def test_broken_streams_get_the_same_verdict_from_both(
    readings: list[tuple[Case, Reading]],
) -> None:
    """One event lost, repeated, out of place or mistaken: both see it, or both go on alike."""
    differing = []
    verdicts = set()
    for case, theirs in readings[WELL_FORMED:]:
        ours = _read_here(case, framed=True)
        verdicts.add(ours.verdict)
        differing += _unknown(case, theirs, ours)
    assert differing == []
    assert verdicts == {"completed", "truncated", "failed"}


# The known differences one by one, each in the shortest stream that shows it


@dataclass(frozen=True)
class Difference:
    """A stream between RUN_STARTED and RUN_FINISHED that the two readers judge differently."""

    events: tuple[EventJson, ...]
    theirs: str
    ours: str
    rule: str | None = None
    finish: str = "run"


def _chunk(**members: Any) -> EventJson:
    return {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "a", **members}


def _explicit(what: str, **members: Any) -> EventJson:
    return {"type": f"TEXT_MESSAGE_{what}", "messageId": "m", **members}


DIFFERENCES: Final = {
    # A string that an enumeration does not name is unrecognised and goes (PROC-5); npm says
    # of itself that failing on it is a defect.
    "unknown role": Difference(
        (_explicit("START", role="wizard"), _explicit("END")), "failed", "completed"
    ),
    # EVT-1 requires a type of every event, also of those that a program hands over; npm
    # requires it of frames alone, and drops the event here.
    "no type": Difference(({"messageId": "m"},), "completed", "failed", "PROC-3"),
    "type is no string": Difference(({"type": 1},), "completed", "failed", "PROC-3"),
    # The subagents page: "before any event attributed to it".
    "announced late": Difference(
        (
            {"type": "CUSTOM", "name": "n", "value": 1, "subagentRunId": "s"},
            {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "n"},
            {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"},
        ),
        "completed",
        "failed",
        "SUB-2",
    ),
    "finish of another run": Difference((), "completed", "failed", "RUN-3", finish="other"),
    # Chunked and explicit form of one item, from two lanes: the explicit event ends the
    # shorthand and is then judged by itself, as it is within one lane.
    "mixed forms, content": Difference(
        (_chunk(subagentRunId="s"), _explicit("CONTENT", delta="b")),
        "completed",
        "failed",
        "STREAM-1",
    ),
    # The first call brings the message about, and so says whose it is.
    "another owner's call in a message": Difference(
        (
            {
                "type": "TOOL_CALL_START",
                "toolCallId": "c-1",
                "toolCallName": "look",
                "parentMessageId": "m",
            },
            {"type": "TOOL_CALL_END", "toolCallId": "c-1"},
            {
                "type": "TOOL_CALL_START",
                "toolCallId": "c-2",
                "toolCallName": "look",
                "parentMessageId": "m",
                "subagentRunId": "s",
            },
            {"type": "TOOL_CALL_END", "toolCallId": "c-2"},
        ),
        "completed",
        "failed",
        "TOOL-5",
    ),
    "mixed forms, start": Difference(
        (_chunk(subagentRunId="s"), _explicit("START"), _explicit("END")), "failed", "completed"
    ),
}


@pytest.fixture(scope="module")
def differing() -> dict[str, tuple[Case, Reading]]:
    cases = []
    for name, difference in DIFFERENCES.items():
        run = {"threadId": "thread", "runId": "run"}
        events = [
            {"type": "RUN_STARTED", **run},
            *difference.events,
            {"type": "RUN_FINISHED", "threadId": "thread", "runId": difference.finish},
        ]
        cases.append(Case(name, {**run, "messages": [], "state": {}}, events))
    return {case.name: (case, found) for case, found in zip(cases, _read_there(cases), strict=True)}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_known_differences_are_as_described(
    name: str, differing: dict[str, tuple[Case, Reading]]
) -> None:
    """PROC-5, EVT-1, SUB-2, RUN-3, TOOL-5, CHUNK-9: when one goes, its line does too."""
    difference = DIFFERENCES[name]
    case, theirs = differing[name]
    ours = _read_here(case, framed=False)
    assert theirs.verdict == difference.theirs
    assert (ours.verdict, ours.rule) == (difference.ours, difference.rule)
