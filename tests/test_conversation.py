"""What events build: messages, tool calls, state, activity, outcomes, pending work."""

import copy
import json
import random
import time
from typing import Any

import pytest

from aguia import (
    UNSET,
    ActivityMessage,
    AssistantMessage,
    Consumer,
    Conversation,
    Event,
    Interrupt,
    Messages,
    ProtocolWarning,
    ReasoningMessage,
    RunErrorEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
    ToolCallEndEvent,
    ToolMessage,
    UserMessage,
)
from aguia.codec.json import encode
from support_events import FINISHED, STARTED, Reader, event

Json = dict[str, Any]


def plain(value: Any) -> Any:
    """A value as JSON."""
    return json.loads(encode(value))


def messages(reader: Reader) -> list[Json]:
    """The messages as JSON."""
    found: list[Json] = plain(list(reader.conversation.messages))
    return found


def start(id_: str = "m", **more: Any) -> Json:
    """Open a text message."""
    return event("TEXT_MESSAGE_START", messageId=id_, **more)


def delta(text: str, id_: str = "m", **more: Any) -> Json:
    """Extend a text message."""
    return event("TEXT_MESSAGE_CONTENT", messageId=id_, delta=text, **more)


def end(id_: str = "m", **more: Any) -> Json:
    """Close a text message."""
    return event("TEXT_MESSAGE_END", messageId=id_, **more)


def said(text: str, id_: str = "m", **more: Any) -> list[Json]:
    """A whole text message."""
    return [start(id_, **more), delta(text, id_), end(id_)]


def call(id_: str = "c", name: str = "f", args: str = "{}", **more: Any) -> list[Json]:
    """A whole tool call."""
    return [
        event("TOOL_CALL_START", toolCallId=id_, toolCallName=name, **more),
        event("TOOL_CALL_ARGS", toolCallId=id_, delta=args),
        event("TOOL_CALL_END", toolCallId=id_),
    ]


def result(id_: str, call_id: str = "c", content: Any = "ok", **more: Any) -> Json:
    """A tool's result."""
    return event("TOOL_CALL_RESULT", messageId=id_, toolCallId=call_id, content=content, **more)


def made_call(id_: str = "c", name: str = "f", args: str = "{}", **more: Any) -> Json:
    """The call as a message holds it."""
    return {
        "id": id_,
        "type": "function",
        "function": {"name": name, "arguments": args},
        **more,
    }


def snapshot(*found: Json) -> Json:
    """A snapshot of messages."""
    return event("MESSAGES_SNAPSHOT", messages=list(found))


def user(id_: str = "u", content: Any = "hi") -> Json:
    """A user message."""
    return {"role": "user", "id": id_, "content": content}


def assistant(id_: str = "m", **more: Any) -> Json:
    """An assistant message."""
    return {"role": "assistant", "id": id_, **more}


# Text


@pytest.mark.parametrize("role", [None, "assistant", "user", "system", "developer"])
def test_a_message_takes_the_type_of_its_role(role: str | None) -> None:
    """TEXT-1, TEXT-2."""
    reader = Reader()
    more = {} if role is None else {"role": role}
    reader.feed(*said("hello", name="n", subagentRunId="s", **more))
    assert messages(reader) == [
        {
            "role": role or "assistant",
            "id": "m",
            "content": "hello",
            "name": "n",
            "subagentRunId": "s",
        }
    ]


def test_deltas_concatenate_in_arrival_order() -> None:
    """STREAM-2, STREAM-3, EVT-2: empty ones too, and items interleave."""
    reader = Reader()
    reader.feed(start("a"), start("b"))
    for text in ("x", "", "y", "\u2028z"):
        reader.feed(delta(text, "a", timestamp=5), delta(text.upper(), "b", timestamp=1))
    assert [m["content"] for m in messages(reader)] == ["xy\u2028z", "XY\u2028Z"]


def test_what_is_opened_is_there_at_once_and_empty() -> None:
    reader = Reader()
    reader.feed(start())
    assert messages(reader) == [assistant(content="")]


def test_a_reopened_message_goes_on() -> None:
    """STREAM-4, TEXT-3."""
    reader = Reader()
    reader.feed(*said("a"), *said("b"), FINISHED, {**STARTED, "runId": "r2"}, *said("c"))
    assert messages(reader) == [assistant(content="abc")]


@pytest.mark.parametrize(
    ("held", "content"),
    [
        (assistant(), "x"),
        (assistant(content="a"), "ax"),
        (user(content="a"), "ax"),
        (user(content=[]), [{"type": "text", "text": "x"}]),
        (user(content=[{"type": "text", "text": "a"}]), [{"type": "text", "text": "ax"}]),
        (
            user(content=[{"type": "image", "source": {"type": "url", "value": "u"}}]),
            [
                {"type": "image", "source": {"type": "url", "value": "u"}},
                {"type": "text", "text": "x"},
            ],
        ),
    ],
)
def test_a_held_message_is_continued(held: Json, content: Any) -> None:
    """TEXT-3."""
    reader = Reader(messages=[held])
    reader.feed(*said("x", held["id"], role="system"))
    assert messages(reader) == [{**held, "content": content}]


def test_the_message_of_a_call_can_be_given_text() -> None:
    """TEXT-3, TOOL-4."""
    reader = Reader()
    reader.feed(*call(parentMessageId="m"), *said("x"), *call("d"))
    assert messages(reader) == [
        assistant(content="x", toolCalls=[made_call()]),
        assistant("d", toolCalls=[made_call("d")]),
    ]


def test_an_activity_message_takes_no_text() -> None:
    """TEXT-3."""
    activity = {"role": "activity", "id": "m", "activityType": "a", "content": {}}
    reader = Reader(messages=[activity])
    reader.feed(start(metadata={"k": 1}), delta("x", metadata={"k": 1}), end(metadata={"k": 1}))
    assert messages(reader) == [activity]
    assert reader.rules == ["TEXT-3"]
    thought = event("REASONING_MESSAGE_START", messageId="m", role="reasoning")
    reader.feed(thought, event("REASONING_MESSAGE_CONTENT", messageId="m", delta="x"))
    assert messages(reader) == [activity]
    assert reader.rules == ["TEXT-3", "EVT-6"]


# Tool calls


def test_a_call_attaches_to_its_parent_or_gets_a_message() -> None:
    """TOOL-1, TOOL-4."""
    reader = Reader()
    reader.feed(*said("x"), *call("a", parentMessageId="m"), *call("b", parentMessageId="m"))
    reader.feed(*call("c", parentMessageId="new", subagentRunId="s"), *call("d", subagentRunId="s"))
    assert messages(reader) == [
        assistant(content="x", toolCalls=[made_call("a"), made_call("b")]),
        assistant("new", subagentRunId="s", toolCalls=[made_call("c")]),
        assistant("d", subagentRunId="s", toolCalls=[made_call("d")]),
    ]


def test_a_parent_that_can_hold_no_call() -> None:
    """TOOL-4."""
    reader = Reader(messages=[user("u")])
    reader.feed(*call(parentMessageId="u"))
    assert messages(reader) == [user("u"), assistant("c", toolCalls=[made_call()])]
    assert reader.rules == ["TOOL-4"]


def test_a_call_whose_id_is_a_messages() -> None:
    """TOOL-4."""
    reader = Reader(messages=[assistant("c", content="x"), user("d")])
    reader.feed(*call("c"), *call("d"))
    assert messages(reader) == [
        assistant("c", content="x", toolCalls=[made_call("c")]),
        user("d"),
        assistant("d", toolCalls=[made_call("d")]),
    ]


def test_arguments_are_text() -> None:
    """TOOL-2, STREAM-2."""
    reader = Reader()
    reader.feed(*call(args='{"broken": '), event("STATE_SNAPSHOT", snapshot=1), FINISHED)
    assert messages(reader)[0]["toolCalls"] == [made_call(args='{"broken": ')]


def test_a_call_started_again_continues() -> None:
    """CONV-3, STREAM-4."""
    reader = Reader()
    reader.feed(*call(args='{"a":'), *call(args="1}", parentMessageId="elsewhere"))
    assert messages(reader) == [assistant("c", toolCalls=[made_call(args='{"a":1}')])]
    reader.feed(*call(name="g", args=""))
    assert messages(reader) == [assistant("c", toolCalls=[made_call(name="g", args='{"a":1}')])]
    assert reader.rules == ["STREAM-4"]


def test_a_result_goes_behind_its_call() -> None:
    """CONV-1, TOOL-6, TOOL-7."""
    parts = [{"type": "text", "text": "x"}]
    reader = Reader()
    reader.feed(*call("a", parentMessageId="m"), *call("b", parentMessageId="m"), *said("x", "n"))
    reader.feed(result("ra", "a", parts, metadata={"k": 1}, subagentRunId="s", role="tool"))
    reader.feed(result("rb", "b"), result("lost", "unknown"))
    assert [m["id"] for m in messages(reader)] == ["m", "ra", "rb", "n", "lost"]
    assert messages(reader)[1] == {
        "role": "tool",
        "id": "ra",
        "toolCallId": "a",
        "content": parts,
        "metadata": {"k": 1},
        "subagentRunId": "s",
    }
    assert not reader.warnings


def place_at_once(thread: list[Json], answers: Json) -> None:
    """Put an answer in its place as CONV-1 says it, however long that takes."""
    made = [
        number
        for number, message in enumerate(thread)
        if any(each["id"] == answers["toolCallId"] for each in message.get("toolCalls", ()))
    ]
    place = len(thread)
    if made:
        place = made[0] + 1
        while place < len(thread) and thread[place]["role"] == "tool":
            place += 1
    thread.insert(place, answers)


@pytest.mark.unmeasured
@pytest.mark.parametrize("seed", range(40))
def test_results_find_their_places_in_any_order(seed: int) -> None:
    """CONV-1: early and late, near and far, looked at in between or not."""
    rng = random.Random(seed)
    reader, expected = Reader(), list[Json]()
    carriers = 0
    for number in range(rng.choice([20, 150, 600])):
        kind = rng.random()
        if kind < 0.3:
            carriers += 1
            reader.feed(*call(f"c{carriers}", parentMessageId=f"m{rng.randint(1, 9)}-{number}"))
            expected.append({"role": "assistant", "toolCalls": [{"id": f"c{carriers}"}]})
        elif kind < 0.4:
            reader.feed(*said("x", f"t{number}"))
            expected.append({"role": "assistant"})
        elif kind < 0.42:
            assert len(reader.conversation.messages) == len(expected)
        else:
            back = rng.choice([0, 0, 1, 3, 200])
            made = f"c{max(0, carriers - rng.randint(0, back))}"  # c0 is nobody's
            reader.feed(result(f"r{number}", made))
            place_at_once(expected, {"role": "tool", "toolCallId": made, "id": f"r{number}"})
    found = messages(reader)
    assert [message["role"] for message in found] == [message["role"] for message in expected]
    results = [message["id"] for message in expected if message["role"] == "tool"]
    assert [message["id"] for message in found if message["role"] == "tool"] == results


def test_results_that_wait_for_their_places_are_there_for_what_follows() -> None:
    """CONV-1, MSG-1: a snapshot and an activity in an answer's place find them, too."""
    far = [each for number in range(50) for each in said("x", f"t{number}")]
    reader = Reader()
    reader.feed(*call("a", parentMessageId="m"), *far, result("r1", "a"), result("r2", "a"))
    state = event("ACTIVITY_SNAPSHOT", messageId="r1", activityType="t", content={})
    reader.feed(state, result("r3", "a"))
    assert [m["id"] for m in messages(reader)][:4] == ["m", "r3", "r1", "r2"]
    reader = Reader()
    reader.feed(*call("a", parentMessageId="m"), *far, result("r1", "a"))
    kept = [m for m in messages(reader) if m["id"] in ("m", "r1", "t7")]
    reader.feed(result("r2", "a"), event("MESSAGES_SNAPSHOT", messages=kept))
    assert [m["id"] for m in messages(reader)] == ["m", "r1", "t7"]
    reader.feed(result("r4", "a"))
    assert [m["id"] for m in messages(reader)] == ["m", "r1", "r4", "t7"]


def test_a_result_that_comes_again_replaces() -> None:
    """CONV-1."""
    reader = Reader()
    reader.feed(*call(), result("r", content="one"), *said("x"), result("r", content="two"))
    assert [m.get("content") for m in messages(reader)] == [None, "two", "x"]


def test_a_result_with_the_id_of_another_message_is_added() -> None:
    """TOOL-6, EVT-6."""
    reader = Reader()
    reader.feed(*said("x"), *call(), result("m"))
    assert [m["role"] for m in messages(reader)] == ["assistant", "assistant", "tool"]
    reader.feed(*said("y"))
    assert [m.get("content") for m in messages(reader)] == ["xy", None, "ok"]


# What is pending


def pending(reader: Reader) -> list[str]:
    """The ids of the pending calls."""
    return [found.id for found in reader.conversation.pending_tool_calls]


def finished(**outcome: Any) -> Json:
    """A run's end with an outcome."""
    return {**FINISHED, "outcome": outcome}


def test_pending_calls_are_derived() -> None:
    """FRONT-4: those that were started, completed and not answered, in order, at the end."""
    reader = Reader()
    reader.feed(*call("a"), *call("b"), *call("c"), result("r", "b"))
    assert pending(reader) == []
    reader.feed(FINISHED)
    assert pending(reader) == ["a", "c"]
    assert reader.conversation.pending_tool_calls[0].function.arguments == "{}"
    reader.feed({**STARTED, "runId": "r2"})
    assert pending(reader) == []
    reader.feed(FINISHED | {"runId": "r2"})
    assert pending(reader) == []


@pytest.mark.parametrize(
    "outcome",
    [
        {"type": "success"},
        {"type": "success", "pendingToolCallIds": []},
        {"type": "interrupt", "interrupts": [{"id": "i", "reason": "r"}]},
        {"type": "cancelled"},
    ],
)
def test_they_are_derived_for_every_outcome_that_names_none(outcome: Json) -> None:
    """FRONT-4."""
    reader = Reader()
    reader.feed(*call("a"), result("r", "a"), *call("b"), finished(**outcome))
    assert pending(reader) == ["b"]


def test_they_are_as_named() -> None:
    """FRONT-3: and a name that nobody made is told."""
    reader = Reader()
    reader.feed(*call("a"), *call("b"))
    reader.feed(finished(type="success", pendingToolCallIds=["b", "nobody"]))
    assert pending(reader) == ["b"]
    (warning,) = reader.warnings
    assert (warning.rule, warning.path) == ("FRONT-3", "/outcome/pendingToolCallIds")
    assert "'nobody'" in warning.message


def test_a_failed_run_leaves_calls_that_were_complete() -> None:
    """FRONT-4, TOOL-3."""
    reader = Reader()
    reader.feed(*call("a"), *call("b")[:2], event("RUN_ERROR", message="no"))
    assert pending(reader) == ["a"]


def test_an_answered_call_that_is_reopened_stays_answered() -> None:
    """FRONT-4, TOOL-6."""
    reader = Reader()
    reader.feed(*call(), result("r"), *call(), FINISHED)
    assert pending(reader) == []


def test_a_call_that_the_thread_has_answered_is_not_pending_again() -> None:
    """FRONT-5: neither made once more nor named; the others are pending as if nobody had."""
    held = [
        assistant("x", toolCalls=[made_call("a")]),
        {"role": "tool", "id": "r", "toolCallId": "a", "content": ""},
    ]
    reader = Reader(messages=held)
    reader.feed(*call("a"), *call("b"), finished(type="success", pendingToolCallIds=["a"]))
    assert pending(reader) == ["b"]
    (warning,) = reader.warnings
    assert (warning.rule, warning.path) == ("FRONT-3", "/outcome/pendingToolCallIds")
    assert "answered" in warning.message


def test_a_call_that_a_snapshot_removed_is_not_pending() -> None:
    """MSG-1."""
    reader = Reader()
    reader.feed(*call("a"), *call("b"), snapshot(assistant("x", toolCalls=[made_call("b")])))
    reader.feed(FINISHED)
    assert pending(reader) == ["b"]


# Reasoning


def test_reasoning_messages() -> None:
    """REAS-1: a span is no message."""
    reader = Reader()
    reader.feed(
        event("REASONING_START", messageId="span"),
        event("REASONING_MESSAGE_START", messageId="r", role="reasoning", subagentRunId="s"),
        event("REASONING_MESSAGE_CONTENT", messageId="r", delta="hm", metadata={"k": 1}),
        event("REASONING_MESSAGE_END", messageId="r", metadata={"k": 2}),
        event("REASONING_END", messageId="span"),
    )
    assert messages(reader) == [
        {
            "role": "reasoning",
            "id": "r",
            "content": "hm",
            "metadata": {"k": 2},
            "subagentRunId": "s",
        }
    ]


def test_reasoning_on_another_message() -> None:
    """EVT-6."""
    reader = Reader(messages=[assistant(content="a")])
    reader.feed(
        event("REASONING_MESSAGE_START", messageId="m", role="reasoning"),
        event("REASONING_MESSAGE_CONTENT", messageId="m", delta="b"),
    )
    assert messages(reader) == [assistant(content="ab")]
    assert reader.rules == ["EVT-6"]


def encrypted(id_: str, subtype: str = "message") -> Json:
    """An encrypted value."""
    return event("REASONING_ENCRYPTED_VALUE", subtype=subtype, entityId=id_, encryptedValue="🔒")


def test_encrypted_values_are_stored_with_what_they_name() -> None:
    """REAS-4: and returned as they came."""
    thought = {"role": "reasoning", "id": "r", "content": ""}
    tool = {"role": "tool", "id": "o", "toolCallId": "c", "content": ""}
    reader = Reader(messages=[user(), thought, tool])
    reader.feed(*call(), *(encrypted(id_) for id_ in ("u", "r", "o")), encrypted("c", "tool-call"))
    assert messages(reader) == [
        {**user(), "encryptedValue": "🔒"},
        {**thought, "encryptedValue": "🔒"},
        {**tool, "encryptedValue": "🔒"},
        assistant("c", toolCalls=[made_call(encryptedValue="🔒")]),
    ]
    assert not reader.warnings


def test_encrypted_values_without_a_place_are_told() -> None:
    """REAS-4."""
    activity = {"role": "activity", "id": "a", "activityType": "x", "content": {}}
    reader = Reader(messages=[activity])
    reader.feed(*call())
    before = messages(reader)
    reader.feed(encrypted("a"), encrypted("nobody"), encrypted("nobody", "tool-call"))
    assert messages(reader) == before
    assert reader.rules == ["REAS-4"] * 3


def test_a_snapshot_can_withdraw_an_encrypted_value() -> None:
    """REAS-5."""
    reader = Reader(messages=[user()])
    reader.feed(encrypted("u"), snapshot(user()))
    assert messages(reader) == [user()]


# State


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, {"a": {"b": None}}, "x", 1.5])
def test_a_snapshot_replaces_the_state(value: Any) -> None:
    """STATE-1: whatever it is."""
    reader = Reader(state={"old": 1})
    reader.feed(event("STATE_SNAPSHOT", snapshot=value))
    assert reader.conversation.state == value
    assert type(reader.conversation.state) is type(value)


def patch(*operations: Any, **more: Any) -> Json:
    """A state delta."""
    return event("STATE_DELTA", delta=list(operations), **more)


def add(path: str, value: Any = 1) -> Json:
    """An operation."""
    return {"op": "add", "path": path, "value": value}


REQUEST: Json = {"threadId": "t", "runId": "r", "messages": []}


@pytest.mark.parametrize(
    ("options", "echoed", "baseline"),
    [
        ({}, None, {}),
        ({}, {}, {}),
        ({}, {"state": {"e": 1}}, {"e": 1}),
        ({"state": {"s": 1}}, {"state": {"e": 1}}, {"s": 1}),
        ({"state": {}}, {"state": {"e": 1}}, {}),
        ({"input": REQUEST}, {"state": {"e": 1}}, {}),
        ({"input": {**REQUEST, "state": {"i": 1}}}, None, {"i": 1}),
        ({"input": {**REQUEST, "state": {"i": 1}}, "state": {"s": 1}}, None, {"s": 1}),
    ],
)
def test_where_deltas_begin(options: Json, echoed: Json | None, baseline: Json) -> None:
    """STATE-2, IN-1."""
    reader = Reader(started=False, **options)
    more = {} if echoed is None else {"input": {**REQUEST, **echoed}}
    reader.feed({**STARTED, **more}, patch(add("/x")))
    assert reader.conversation.state == {**baseline, "x": 1}


def test_state_persists_across_runs() -> None:
    """RUN-12, STATE-2: and a later echoed input does not replace it."""
    reader = Reader()
    reader.feed(patch(add("/a")), FINISHED)
    reader.feed(
        {**STARTED, "runId": "r2", "input": {**REQUEST, "state": {"e": 1}}}, patch(add("/b"))
    )
    assert reader.conversation.state == {"a": 1, "b": 1}


@pytest.mark.parametrize("tag", ["s", "unannounced"])
def test_state_is_the_runs_whoever_sends_it(tag: str) -> None:
    """STATE-6."""
    reader = Reader()
    reader.feed(event("STATE_SNAPSHOT", snapshot={"a": 1}, subagentRunId=tag))
    reader.feed(patch(add("/b"), subagentRunId=tag), patch(add("/c")))
    assert reader.conversation.state == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({"op": "remove", "path": "/none"}, "no member 'none'"),
        ({"op": "test", "path": "/a", "value": True}, "found 1, expected true"),
        ({"op": "add", "path": "/a/b", "value": 1}, "nothing inside"),
    ],
)
def test_a_patch_that_does_not_apply_changes_nothing(operation: Json, why: str) -> None:
    """STATE-4: the run goes on, and the next patches and snapshots count."""
    reader = Reader(state={"a": 1})
    before = reader.conversation.state
    reader.feed(patch(add("/x"), operation, add("/y")))
    assert reader.conversation.state == {"a": 1} == before
    (warning,) = reader.warnings
    assert (warning.rule, warning.path, warning.stage) == ("STATE-4", "/delta/1", "conversation")
    assert why in warning.message
    reader.feed(patch(add("/z")), event("STATE_SNAPSHOT", snapshot=[]), patch(add("/-")), FINISHED)
    assert reader.conversation.state == [1]


def test_an_operation_of_an_unknown_kind_is_left_out() -> None:
    """STATE-3."""
    reader = Reader()
    reader.feed(patch({"op": "increment", "path": "/a"}, add("/b")))
    assert reader.conversation.state == {"b": 1}
    assert [(w.rule, w.path) for w in reader.warnings] == [("PROC-2", "/delta/0")]


def test_who_holds_a_state_keeps_it() -> None:
    reader = Reader(state={"list": [1, {"deep": 1}], "other": {"x": 1}})
    held = [reader.conversation.state]
    kept = [copy.deepcopy(held[0])]
    for operation in (
        add("/list/1/deep", 2),
        add("/list/-", 3),
        {"op": "move", "from": "/list", "path": "/moved"},
        {"op": "copy", "from": "/moved", "path": "/copied"},
        add("/copied/0", 9),
        {"op": "remove", "path": "/moved/0"},
        {"op": "replace", "path": "", "value": {"other": 1}},
    ):
        reader.feed(patch(operation), patch(add("/tick")))
        held.append(reader.conversation.state)
        kept.append(copy.deepcopy(held[-1]))
    assert held == kept
    assert held[1]["other"] is held[0]["other"]


def test_the_events_values_stay_as_they_are() -> None:
    reader = Reader()
    (first,) = reader.feed(event("STATE_SNAPSHOT", snapshot={"a": {"b": 1}}))
    (second,) = reader.feed(patch(add("/c", {"d": 1})))
    reader.feed(patch(add("/a/b", 2), add("/c/d", 2)))
    assert plain(first)["snapshot"] == {"a": {"b": 1}}
    assert plain(second)["delta"][0]["value"] == {"d": 1}
    assert reader.conversation.state == {"a": {"b": 2}, "c": {"d": 2}}


# Snapshots of messages


def activity(id_: str = "a", **content: Any) -> Json:
    """An activity message."""
    return {"role": "activity", "id": id_, "activityType": "x", "content": content}


def reasoning(id_: str = "r", text: str = "hm") -> Json:
    """A reasoning message."""
    return {"role": "reasoning", "id": id_, "content": text}


def test_a_snapshot_reconciles_by_id() -> None:
    """MSG-1."""
    reader = Reader(messages=[user("u1"), assistant("a1", content="x"), user("u2")])
    reader.feed(snapshot(assistant("new1"), user("u2", "two"), user("u1", "one"), user("new2")))
    assert messages(reader) == [
        user("u1", "one"),
        user("u2", "two"),
        assistant("new1"),
        user("new2"),
    ]
    reader.feed(snapshot())
    assert messages(reader) == []


@pytest.mark.parametrize(
    ("stated", "kept"),
    [
        ([], ["a", "r"]),
        ([user("x")], ["a", "r", "x"]),
        ([activity("b")], ["r", "b"]),
        ([reasoning("s")], ["a", "s"]),
        ([activity("b"), reasoning("s")], ["b", "s"]),
        ([activity("a")], ["a", "r"]),
    ],
)
def test_activity_and_reasoning_stay_unless_stated(stated: list[Json], kept: list[str]) -> None:
    """MSG-1."""
    reader = Reader(messages=[activity(), user("u"), reasoning()])
    reader.feed(snapshot(*stated))
    assert [m["id"] for m in messages(reader)] == kept


def test_a_snapshot_replaces_wholesale() -> None:
    """MSG-1: also the role, and the calls of a message."""
    reader = Reader()
    reader.feed(*call("c", parentMessageId="m"), *said("x", metadata={"k": 1}))
    reader.feed(snapshot(user("m", "now mine")))
    assert messages(reader) == [user("m", "now mine")]
    reader.feed(result("o"))
    assert messages(reader)[-1]["id"] == "o"
    reader.feed(snapshot(user("m"), assistant("n", toolCalls=[made_call("c", args="{")])))
    reader.feed(event("TOOL_CALL_START", toolCallId="c", toolCallName="f"))
    reader.feed(event("TOOL_CALL_ARGS", toolCallId="c", delta="}"))
    assert messages(reader)[-1] == assistant("n", toolCalls=[made_call("c", args="{}")])


def test_what_is_streaming_goes_on_in_what_a_snapshot_restates() -> None:
    """MSG-1."""
    reader = Reader()
    reader.feed(start(), delta("a"), *call(parentMessageId="m")[:2])
    reader.feed(snapshot(assistant(content="A", toolCalls=[made_call(args="[")])))
    reader.feed(delta("b"), event("TOOL_CALL_ARGS", toolCallId="c", delta="]"))
    assert messages(reader) == [assistant(content="Ab", toolCalls=[made_call(args="[]")])]


def test_what_is_streaming_is_lost_with_what_a_snapshot_drops() -> None:
    """MSG-1."""
    reader = Reader()
    reader.feed(start(), *call()[:2], snapshot(user()))
    reader.feed(delta("b"), end(metadata={"k": 1}), *call()[1:], FINISHED)
    assert messages(reader) == [user()]
    assert reader.rules == ["MSG-1"] * 4
    assert pending(reader) == []


def test_ids_that_come_twice_in_a_snapshot() -> None:
    """EVT-6: the last one counts, at the first one's place."""
    reader = Reader()
    reader.feed(snapshot(user("u", "one"), user("v"), user("u", "two")))
    assert messages(reader) == [user("u", "two"), user("v")]


# Activity


def shown(id_: str = "a", type_: str = "x", content: Any = None, **more: Any) -> Json:
    """An activity snapshot."""
    return event(
        "ACTIVITY_SNAPSHOT",
        messageId=id_,
        activityType=type_,
        content={} if content is None else content,
        **more,
    )


def amended(*operations: Json, id_: str = "a", type_: str = "x", **more: Any) -> Json:
    """An activity delta."""
    return event(
        "ACTIVITY_DELTA", messageId=id_, activityType=type_, patch=list(operations), **more
    )


def test_an_activity_takes_its_place_and_is_replaced_there() -> None:
    """ACT-1, ACT-2, META-1."""
    reader = Reader()
    first = shown(content={"n": 1}, metadata={"a": 1, "b": 1}, subagentRunId="s")
    reader.feed(*said("x"), first, *said("y", "n"), shown("a", "y", {"m": 2}, metadata={"b": 2}))
    assert messages(reader)[1] == {
        **activity(m=2),
        "activityType": "y",
        "metadata": {"a": 1, "b": 2},
    }
    assert [m["id"] for m in messages(reader)] == ["m", "a", "n"]


def test_replace_false_leaves_what_stands() -> None:
    """ACT-1, ACT-2: and creates where nothing stands."""
    reader = Reader()
    reader.feed(shown(content={"n": 1}, replace=False, subagentRunId="s"))
    reader.feed(shown("a", "y", {"n": 2}, replace=False, metadata={"k": 1}, subagentRunId="s"))
    assert messages(reader) == [
        {**activity(n=1), "subagentRunId": "s", "metadata": {"k": 1}},
    ]


@pytest.mark.parametrize("replace", [None, True, False])
def test_an_activity_with_the_id_of_another_message(replace: bool | None) -> None:
    """ACT-1."""
    reader = Reader(messages=[assistant("a", content="x", toolCalls=[made_call()])])
    more: Json = {} if replace is None else {"replace": replace}
    reader.feed(shown(**more))
    if replace is False:
        assert messages(reader)[0]["role"] == "assistant"
    else:
        assert messages(reader) == [activity()]
        reader.feed(result("o"))
        assert [m["id"] for m in messages(reader)] == ["a", "o"]


def test_a_delta_amends_and_retypes() -> None:
    """ACT-3."""
    reader = Reader()
    (first,) = reader.feed(shown(content={"list": [1], "o": {}}))
    held = reader.conversation.messages[0]
    reader.feed(amended(add("/list/-", 2), type_="y", metadata={"k": 1}))
    assert messages(reader) == [
        {**activity(list=[1, 2], o={}), "activityType": "y", "metadata": {"k": 1}}
    ]
    assert plain(held) == activity(list=[1], o={})
    assert plain(first)["content"] == {"list": [1], "o": {}}


@pytest.mark.parametrize("id_", ["nobody", "u"])
def test_a_delta_without_an_activity_is_skipped(id_: str) -> None:
    """ACT-3."""
    reader = Reader(messages=[user()])
    reader.feed(amended(add("/x"), id_=id_, metadata={"k": 1}))
    assert messages(reader) == [user()]
    assert reader.rules == ["ACT-3"]


@pytest.mark.parametrize(
    "operation",
    [{"op": "remove", "path": "/no"}, {"op": "replace", "path": "", "value": [1]}],
)
def test_a_delta_that_does_not_apply_changes_nothing_but_metadata(operation: Json) -> None:
    """STATE-4, ACT-3, META-1."""
    reader = Reader()
    reader.feed(shown(content={"n": 1}))
    reader.feed(amended(add("/m"), operation, type_="y", metadata={"k": 1}))
    assert messages(reader) == [{**activity(n=1), "metadata": {"k": 1}}]
    assert reader.rules == ["STATE-4"]
    assert (reader.warnings[0].path or "").startswith("/patch")


# Metadata


def test_metadata_merges_key_by_key() -> None:
    """META-1, META-2: the last write wins, nulls are data, nothing is merged below."""
    reader = Reader()
    reader.feed(
        start(metadata={"a": {"x": 1}, "b": 1, "ag-ui": {"p": 1}}),
        delta("t", metadata={"a": {"y": 2}}),
        end(metadata={"b": None, "__proto__": 1}),
    )
    assert messages(reader)[0]["metadata"] == {
        "a": {"y": 2},
        "b": None,
        "ag-ui": {"p": 1},
        "__proto__": 1,
    }


def test_a_calls_metadata_lands_on_the_call() -> None:
    """META-1."""
    reader = Reader()
    opened, args, ended = call()
    reader.feed(opened | {"metadata": {"a": 1}}, args | {"metadata": {"b": 1}})
    reader.feed(ended | {"metadata": {"a": 2}}, result("o", metadata={"r": 1}))
    assert messages(reader) == [
        assistant("c", toolCalls=[made_call(metadata={"a": 2, "b": 1})]),
        {"role": "tool", "id": "o", "toolCallId": "c", "content": "ok", "metadata": {"r": 1}},
    ]
    reader.feed(opened | {"metadata": {"c": 3}})
    assert messages(reader)[0]["toolCalls"][0]["metadata"] == {"a": 2, "b": 1, "c": 3}


def test_metadata_of_other_events_lands_nowhere() -> None:
    """META-1, EVT-3."""
    reader = Reader(started=False, messages=[user()])
    more: Json = {"metadata": {"k": 1}, "rawEvent": {"type": "RUN_ERROR"}, "timestamp": 1}
    reader.feed(
        STARTED | more,
        event("CUSTOM", name="n", value=1, **more),
        event("RAW", event=1, **more),
        event("STEP_STARTED", stepName="s", **more),
        event("STEP_FINISHED", stepName="s", **more),
        event("STATE_SNAPSHOT", snapshot={}, **more),
        event("STATE_DELTA", delta=[], **more),
        snapshot(user()) | more,
        event("REASONING_START", messageId="x", **more),
        event("REASONING_END", messageId="x", **more),
        encrypted("u") | more,
        event("SUBAGENT_STARTED", subagentRunId="s", name="n", **more),
        event("SUBAGENT_FINISHED", subagentRunId="s", **more),
        FINISHED | more,
    )
    assert messages(reader) == [{**user(), "encryptedValue": "🔒"}]
    assert reader.conversation.state == {}
    assert not reader.warnings


# Runs


def test_how_a_run_ended() -> None:
    """RUN-9, RUN-10, USE-1."""
    reader = Reader()
    assert reader.conversation.outcome is None
    assert [reader.conversation.result] == [UNSET]
    usage = [{"model": "m", "inputTokens": 0}]
    reader.feed({**FINISHED, "result": [1], "usage": usage})
    assert plain(reader.conversation.outcome) == {"type": "success"}
    assert reader.conversation.result == [1]
    assert plain(reader.conversation.usage) == usage
    assert reader.conversation.usage[0].output_tokens is UNSET
    reader.feed({**STARTED, "runId": "r2", "parentRunId": "r"})
    assert (reader.conversation.thread_id, reader.conversation.run_id) == ("t", "r2")
    assert reader.conversation.outcome is None
    assert reader.conversation.result is UNSET
    assert reader.conversation.usage == []
    reader.feed(finished(type="cancelled") | {"runId": "r2"})
    assert plain(reader.conversation.outcome) == {"type": "cancelled"}
    assert reader.conversation.error is None


def test_an_unknown_outcome_is_success() -> None:
    """RUN-9."""
    reader = Reader()
    reader.feed(finished(type="evaporated"))
    assert plain(reader.conversation.outcome) == {"type": "success"}
    assert reader.rules == ["PROC-2"]


@pytest.mark.parametrize("late", [False, True])
def test_a_failure_is_never_success(late: bool) -> None:
    """RUN-6, RUN-7, RUN-8."""
    reader = Reader()
    reader.feed(start(), delta("a"), *([end(), {**FINISHED, "result": 1}] if late else []))
    reader.feed(event("RUN_ERROR", message="no", code="E", usage=[{"inputTokens": 5}]))
    assert reader.conversation.outcome is None
    assert isinstance(reader.conversation.error, RunErrorEvent)
    assert reader.conversation.result is UNSET
    assert plain(reader.conversation.usage) == [{"inputTokens": 5}]
    assert messages(reader) == [assistant(content="a")]
    reader.feed({**STARTED, "runId": "r2"})
    assert reader.conversation.error is None


ASKED = finished(type="interrupt", interrupts=[{"id": "i", "reason": "why"}])


def test_interrupts_stay_open_until_a_run_finishes() -> None:
    """CONV-4."""
    earlier = Interrupt(id="old", reason="r")
    reader = Reader(interrupts=[earlier])

    def opened() -> list[str]:
        return [each.id for each in reader.conversation.interrupts]

    assert opened() == ["old"]
    reader.feed(event("RUN_ERROR", message="no"), STARTED)
    assert opened() == ["old"]
    reader.feed(ASKED)
    assert opened() == ["i"]
    reader.feed(STARTED, event("RUN_ERROR", message="no"))
    assert opened() == ["i"]
    reader.feed(STARTED, FINISHED)
    assert opened() == []
    reader.feed(STARTED, ASKED, STARTED, finished(type="cancelled"))
    assert opened() == []


def test_an_echoed_input_adds_what_is_missing() -> None:
    """CONV-2."""
    reader = Reader(started=False, messages=[user("u", "mine")])
    held = [user("u", "theirs"), user("v"), assistant("w", toolCalls=[made_call()])]
    reader.feed({**STARTED, "input": {**REQUEST, "messages": held}}, result("o"))
    assert [m["id"] for m in messages(reader)] == ["u", "v", "w", "o"]
    assert messages(reader)[0] == user("u", "mine")


# What is handed out


def test_who_holds_a_message_keeps_it() -> None:
    reader = Reader()
    steps = [
        *said("a"),
        *call(parentMessageId="m"),
        *call("d", parentMessageId="m", args="[]"),
        encrypted("m"),
        encrypted("c", "tool-call"),
        start(metadata={"k": 1}),
        delta("b"),
        snapshot(assistant(content="new")),
    ]
    held, kept = [], []
    for step in steps:
        reader.feed(step)
        held.append(list(reader.conversation.messages))
        kept.append(plain(held[-1]))
    assert [plain(each) for each in held] == kept
    assert kept[-1] == [assistant(content="new")]


def test_what_did_not_change_is_the_same_value() -> None:
    reader = Reader(messages=[user(str(number)) for number in range(5)])
    before = list(reader.conversation.messages)
    reader.feed(*said("x"))
    after = list(reader.conversation.messages)
    assert all(old is new for old, new in zip(before, after, strict=False))
    assert reader.conversation.messages[5] is after[5]
    reader.feed(*call(parentMessageId="m"), *call("d", parentMessageId="m"))
    first = reader.conversation.messages[5]
    assert isinstance(first, AssistantMessage)
    reader.feed(event("TOOL_CALL_START", toolCallId="d", toolCallName="f"))
    reader.feed(event("TOOL_CALL_ARGS", toolCallId="d", delta="x"))
    second = reader.conversation.messages[5]
    assert isinstance(second, AssistantMessage)
    assert isinstance(first.tool_calls, list)
    assert isinstance(second.tool_calls, list)
    assert first.tool_calls[0] is second.tool_calls[0]
    assert first.tool_calls[1] is not second.tool_calls[1]


def test_messages_are_a_live_sequence() -> None:
    reader = Reader(messages=[user("u")])
    view = reader.conversation.messages
    assert isinstance(view, Messages)
    assert view == [UserMessage(id="u", content="hi")]
    assert view == (UserMessage(id="u", content="hi"),)
    assert view != [UserMessage(id="v", content="hi")]
    assert view != []
    assert view != "x"
    assert view != 5
    reader.feed(*said("x"))
    assert len(view) == 2
    assert [each.id for each in view] == ["u", "m"]
    assert [each.id for each in view[1:]] == ["m"]
    assert view[-1].id == "m"
    assert view == Reader(messages=list(view)).conversation.messages
    assert repr(view) == repr(list(view))
    assert view.index(view[1]) == 1
    assert view[0] in view
    with pytest.raises(IndexError):
        view[2]
    with pytest.raises(TypeError):
        hash(view)
    reader.feed(snapshot(user("z")))
    assert [each.id for each in view] == ["z"]


def test_events_without_effect_have_none() -> None:
    """EVT-7, RUN-11."""
    warnings: list[ProtocolWarning] = []
    conversation = Conversation(warn=warnings.append)
    events: list[Event] = [
        TextMessageContentEvent(message_id="m", delta="x"),
        ToolCallEndEvent(tool_call_id="c"),
    ]
    for each in events:
        conversation.apply(each)
    assert conversation.messages == []
    assert [warning.rule for warning in warnings] == ["MSG-1", "MSG-1"]
    conversation.apply(TextMessageStartEvent(message_id="m"))
    assert conversation.messages == [AssistantMessage(id="m", content="")]
    assert conversation.pending_tool_calls == []


@pytest.mark.unmeasured
def test_a_delta_costs_the_same_in_a_long_thread() -> None:
    """Work that grew with the thread, or with the message, would take minutes."""
    held = [user(str(number)) for number in range(20_000)]
    reader = Reader(messages=held)
    reader.feed(start())
    made = TextMessageContentEvent(message_id="m", delta="x" * 100)
    apply = reader.conversation.apply
    began = time.process_time()
    for _ in range(100_000):
        apply(made)
    for _ in range(200):
        apply(made)
        assert reader.conversation.messages[-1].id == "m"
    assert time.process_time() - began < 8
    last = reader.conversation.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert len(last.content or "") == 100 * 100_200


def test_roles_of_what_is_built() -> None:
    reader = Reader(messages=[user(), activity(), reasoning()])
    kinds = [type(each) for each in reader.conversation.messages]
    assert kinds == [UserMessage, ActivityMessage, ReasoningMessage]
    reader.feed(result("o"))
    assert isinstance(reader.conversation.messages[-1], ToolMessage)


def test_a_run_that_fails_after_it_finished_leaves_earlier_interrupts_open() -> None:
    """CONV-4, RUN-6."""
    earlier = Interrupt(id="i-1", reason="approval")
    consumer = Consumer(interrupts=[earlier])
    run = {"threadId": "t", "runId": "r"}
    for each in (
        {"type": "RUN_STARTED", **run},
        {"type": "RUN_FINISHED", **run},
        {"type": "RUN_ERROR", "message": "late"},
    ):
        list(consumer.receive_event(each))
    assert consumer.conversation.interrupts == [earlier]
    assert consumer.conversation.outcome is None
