"""Enforcement: what is unrecognised goes with a warning, what is malformed is fatal."""

import copy
import inspect
import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings

from aguia import (
    AgentCapabilities,
    AssistantMessage,
    Event,
    FunctionCall,
    InvalidInput,
    MalformedEvent,
    Message,
    MessagesSnapshotEvent,
    ProtocolWarning,
    ReasoningMessageStartEvent,
    RunAgentInput,
    RunFinishedEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallResultEvent,
    UserMessage,
)
from aguia.codec.json import STRICT_FAILURES, decode_event, encode, parse_object
from aguia.pipeline.enforcement import enforce_event, enforce_input, enforce_list
from support_events import event, json_values, mutated_events, plain_events


def enforce(raw: dict[str, Any]) -> tuple[Event | None, list[ProtocolWarning]]:
    """The event that comes out, and the warnings."""
    warnings: list[ProtocolWarning] = []
    return enforce_event(raw, warnings.append), warnings


def paths(warnings: list[ProtocolWarning]) -> list[str | None]:
    """Where each warning says that something was."""
    return [warning.path for warning in warnings]


def kept(raw: dict[str, Any]) -> tuple[Any, list[str | None]]:
    """The event that comes out as plain JSON, and the paths of what was removed."""
    found, warnings = enforce(raw)
    assert all(warning.rule == "PROC-2" for warning in warnings) or found is None
    return (None if found is None else json.loads(encode(found))), paths(warnings)


def malformed(raw: dict[str, Any]) -> tuple[str | None, str]:
    """The path and the message of the violation."""
    with pytest.raises(MalformedEvent) as caught:
        enforce(raw)
    assert caught.value.rule == "PROC-3"
    return caught.value.path, caught.value.message


# One verdict on both paths


@pytest.mark.unmeasured
@settings(deadline=None, max_examples=300)
@given(plain_events())
def test_what_strict_decoding_accepts_passes_unchanged(raw: dict[str, Any]) -> None:
    frame = json.dumps(raw).encode()
    strict = decode_event(frame)
    tolerant, warnings = enforce(parse_object(frame))
    assert tolerant == strict
    assert encode(tolerant) == encode(strict)
    assert not warnings


@pytest.mark.unmeasured
@settings(deadline=None, max_examples=400)
@given(mutated_events())
def test_one_verdict_whatever_comes(raw: dict[str, Any]) -> None:
    """PROC-2, PROC-3: where strict decoding refuses, the tolerant path decides."""
    frame = json.dumps(raw).encode()
    before = json.dumps(raw)
    try:
        strict = decode_event(frame)
    except STRICT_FAILURES:
        strict = None
    warnings: list[ProtocolWarning] = []
    violation = tolerant = None
    try:
        tolerant = enforce_event(parse_object(frame), warnings.append)
    except MalformedEvent as error:
        violation = error
    if violation is not None:
        assert strict is None
        assert violation.path is not None
        assert violation.path.startswith("/")
        assert _reaches(raw, violation.path)
        return
    assert json.dumps(raw) == before
    if strict is not None:
        assert tolerant == strict
        assert not warnings
    elif tolerant is None:
        assert [warning.rule for warning in warnings] in (["PROC-1"], ["PROC-4"])
    else:
        # What was let pass is conformant: read again it stands, and nothing goes any more.
        assert decode_event(encode(tolerant)) == tolerant
        again, more = enforce(json.loads(encode(tolerant)))
        assert again == tolerant
        assert not more
        assert all(warning.rule == "PROC-2" for warning in warnings)
        if not warnings:
            assert any(isinstance(leaf, float) for leaf in _leaves(raw))
    for warning in warnings:
        assert warning.path is None or _reaches(raw, warning.path)
        assert warning.stage == "enforcement"
        assert str(warning).isprintable()


def _reaches(raw: Any, pointer: str) -> bool:
    """Whether the pointer names something in the value, or a member missing from it."""
    found = raw
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]
    for place, token in enumerate(tokens):
        if isinstance(found, list):
            found = found[int(token)]
        elif token in found:
            found = found[token]
        else:
            return place == len(tokens) - 1
    return True


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


@pytest.mark.unmeasured
@settings(deadline=None, max_examples=200)
@given(json_values(8))
def test_any_object_is_judged(raw: Any) -> None:
    for made in (raw, {"type": raw}, {"type": "RUN_STARTED", "input": raw}):
        if isinstance(made, dict):
            try:
                enforce(made)
            except MalformedEvent:
                pass  # and nothing else


# PROC-1: unknown events


def test_an_unknown_event_is_dropped_with_a_warning() -> None:
    """PROC-1: whatever else it holds."""
    found, warnings = enforce({"type": "HOLOGRAM_START", "messageId": 5, "metadata": None})
    assert found is None
    (warning,) = warnings
    assert (warning.rule, warning.event_type, warning.path) == ("PROC-1", "HOLOGRAM_START", None)
    assert "'HOLOGRAM_START'" in str(warning)


def test_a_long_or_ugly_type_is_shown_safely() -> None:
    """PROC-1."""
    _, (warning,) = enforce({"type": "x\n\x1b[31m\ud800" + "y" * 10_000})
    assert len(str(warning)) < 400
    assert str(warning).isprintable()


@pytest.mark.parametrize("raw", [{}, {"type": None}, {"type": 1}, {"type": ["RAW"]}, {"type": {}}])
def test_an_event_without_a_type_is_malformed(raw: dict[str, Any]) -> None:
    """EVT-1, PROC-5: a discriminator that is no string."""
    path, message = malformed(raw)
    assert path == "/type"
    assert message.startswith("'type' ")


# PROC-2 and PROC-4: what goes, by its position

START = event("TEXT_MESSAGE_START", messageId="m")
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
PART = {"type": "text", "text": "hi"}
MEDIA: dict[str, Any] = {"type": "image", "source": {"type": "url", "value": "u"}}


def message(**members: Any) -> dict[str, Any]:
    """A user message."""
    return {"role": "user", "id": "u", "content": "x", **members}


def snapshot(*messages: Any) -> dict[str, Any]:
    """A snapshot of messages."""
    return event("MESSAGES_SNAPSHOT", messages=list(messages))


def test_unknown_members_go_everywhere_below_too() -> None:
    """PROC-2."""
    raw = snapshot(
        message(new=1),
        {"role": "assistant", "id": "a", "toolCalls": [{**CALL, "new": {}, "metadata": {"k": 1}}]},
        message(content=[{**PART, "new": None}, {**MEDIA, "source": {**MEDIA["source"], "n": 1}}]),
    )
    raw["new"] = []
    found, removed = kept(raw)
    assert removed == [
        "/messages/0/new",
        "/messages/1/toolCalls/0/new",
        "/messages/2/content/0/new",
        "/messages/2/content/1/source/n",
        "/new",
    ]
    assert found == snapshot(
        message(),
        {"role": "assistant", "id": "a", "toolCalls": [{**CALL, "metadata": {"k": 1}}]},
        message(content=[PART, MEDIA]),
    )


def test_paths_are_json_pointers() -> None:
    """PROC-2: with `~` and `/` escaped, in the order of the document."""
    _, warnings = enforce({**START, "a/b": 1, "m~n": 1, "~1": 1, "": 1, "ä\n": 1})
    assert paths(warnings) == ["/a~1b", "/m~0n", "/~01", "/", "/ä\n"]
    assert [warning.event_type for warning in warnings] == ["TEXT_MESSAGE_START"] * 5


@pytest.mark.parametrize("name", ["__proto__", "constructor", "toString", "hasOwnProperty"])
def test_names_that_mean_something_elsewhere_are_names(name: str) -> None:
    """PROC-2, PROC-6: unknown where objects are closed, data where they are open."""
    assert kept({**START, name: {}}) == (START, [f"/{name}"])
    metadata = {name: {"a": None}}
    assert kept({**START, "metadata": metadata}) == ({**START, "metadata": metadata}, [])


@pytest.mark.parametrize(
    "raw",
    [
        event("RAW", event={"new": 1, "type": 5}, metadata={"k": None, "ag-ui": 1}),
        event("CUSTOM", name="n", value={"type": None}, rawEvent={"x": [None]}),
        event("STATE_SNAPSHOT", snapshot={"role": 5, "toString": 1}),
        event(
            "STATE_DELTA", delta=[{"op": "remove", "path": "/a", "value": 1, "from": 5, "x": {}}]
        ),
        event("ACTIVITY_SNAPSHOT", messageId="m", activityType="a", content={"type": 5}),
        event(
            "RUN_STARTED",
            threadId="t",
            runId="r",
            input={
                "threadId": "t",
                "runId": "r",
                "messages": [],
                "state": {"any": None},
                "forwardedProps": {"any": None},
                "tools": [{"name": "n", "description": "", "parameters": {"any": None}}],
                "resume": [{"interruptId": "i", "status": "resolved", "payload": {"any": None}}],
            },
        ),
        event(
            "RUN_FINISHED",
            threadId="t",
            runId="r",
            result={"any": None},
            outcome={
                "type": "interrupt",
                "interrupts": [{"id": "i", "reason": "r", "responseSchema": {"any": None}}],
            },
        ),
    ],
    ids=lambda raw: raw["type"],
)
def test_open_objects_keep_everything(raw: dict[str, Any]) -> None:
    """PROC-6."""
    found, warnings = enforce({**raw, "unknown": 1})
    assert json.loads(encode(found)) == raw
    assert paths(warnings) == ["/unknown"]


def test_capabilities_keep_what_is_theirs() -> None:
    """PROC-6, CAP-1."""
    raw = {"custom": {"a": None}, "identity": {"metadata": {"b": None}, "new": 1}, "subAgents": []}
    warnings: list[ProtocolWarning] = []
    (found,) = enforce_list([raw], AgentCapabilities, warnings.append)
    assert found.custom == {"a": None}
    assert found.identity.metadata == {"b": None}
    assert paths(warnings) == ["/0/identity/new", "/0/subAgents"]


def test_in_an_optional_position_the_member_goes() -> None:
    """PROC-4, PROC-5."""
    assert kept({**START, "role": "narrator"}) == (START, ["/role"])
    finished = event("RUN_FINISHED", threadId="t", runId="r")
    assert kept({**finished, "outcome": {"type": "exploded", "x": 1}}) == (finished, ["/outcome"])
    ended = event("SUBAGENT_FINISHED", subagentRunId="s")
    assert kept({**ended, "outcome": {"type": "vanished"}}) == (ended, ["/outcome"])
    chunk = event("TEXT_MESSAGE_CHUNK", messageId="m", delta="x")
    assert kept({**chunk, "role": "tool"}) == (chunk, ["/role"])


def test_in_a_list_the_element_goes() -> None:
    """PROC-4."""
    raw = event("STATE_DELTA", delta=[{"op": "jump"}, {"op": "remove", "path": ""}, {"op": ""}])
    assert kept(raw) == (
        event("STATE_DELTA", delta=[{"op": "remove", "path": ""}]),
        ["/delta/0", "/delta/2"],
    )
    result = event("TOOL_CALL_RESULT", messageId="m", toolCallId="c", content=[{"type": "smell"}])
    assert kept(result) == ({**result, "content": []}, ["/content/0"])
    assert kept(snapshot({"role": "narrator"}, message())) == (snapshot(message()), ["/messages/0"])


def test_in_a_required_position_what_contains_it_goes() -> None:
    """PROC-4: a part whose source is of an unknown kind goes from its list."""
    odd = {"type": "image", "source": {"type": "telepathy", "value": 5}, "new": 1}
    assert kept(snapshot(message(content=[odd, PART]))) == (
        snapshot(message(content=[PART])),
        ["/messages/0/content/0"],
    )
    result = event("TOOL_CALL_RESULT", messageId="m", toolCallId="c", content=[PART, odd])
    assert kept(result) == ({**result, "content": [PART]}, ["/content/1"])


def test_the_cascade_ends_at_an_optional_member_or_a_list() -> None:
    """PROC-4: deep inside an echoed input, nothing above the list is touched."""
    request = {"threadId": "t", "runId": "r", "messages": []}
    started = event("RUN_STARTED", threadId="t", runId="r", input=request)
    odd = {"interruptId": "i", "status": "postponed", "payload": 1}
    fine = {"interruptId": "j", "status": "resolved"}
    found, warnings = enforce({**started, "input": {**request, "resume": [odd, fine]}})
    assert json.loads(encode(found)) == {**started, "input": {**request, "resume": [fine]}}
    assert paths(warnings) == ["/input/resume/0"]
    assert "'postponed'" in warnings[0].message


def test_an_event_that_needs_it_goes_whole() -> None:
    """PROC-4, REAS-4."""
    raw = event("REASONING_ENCRYPTED_VALUE", subtype="step", entityId="m", encryptedValue="x")
    found, (warning,) = enforce({**raw, "new": 1})
    assert found is None
    assert (warning.rule, warning.path) == ("PROC-4", "/subtype")
    assert warning.event_type == "REASONING_ENCRYPTED_VALUE"
    assert "'step'" in warning.message


def test_what_goes_takes_its_own_flaws_along_in_any_order() -> None:
    """PROC-4: malformed or unknown things inside of what is dropped count no more."""
    raw = {"subtype": "step", "entityId": 5, "encryptedValue": None, "new": 1}
    for names in (list(raw), list(reversed(raw))):
        made = event("REASONING_ENCRYPTED_VALUE", **{name: raw[name] for name in names})
        found, warnings = enforce(made)
        assert found is None
        assert [warning.rule for warning in warnings] == ["PROC-4"]


def test_a_list_that_must_not_be_empty_must_not_become_empty() -> None:
    """INT-1, PROC-3."""
    finished = event("RUN_FINISHED", threadId="t", runId="r")
    outcome = {"type": "interrupt", "interrupts": []}
    path, said = malformed({**finished, "outcome": outcome})
    assert path == "/outcome/interrupts"
    assert "1 elements" in said
    path, _ = malformed({**finished, "outcome": {"type": "interrupt"}})
    assert path == "/outcome/interrupts"


# PROC-3 and PROC-5: what is malformed


@pytest.mark.parametrize(
    ("raw", "path", "said"),
    [
        ({**START, "messageId": 5}, "/messageId", "must be a string, not the number 5"),
        ({**START, "messageId": None}, "/messageId", "not null"),
        (event("TEXT_MESSAGE_START"), "/messageId", "'messageId' is required and missing"),
        ({**START, "name": None}, "/name", "must be a string, not null"),
        ({**START, "role": None}, "/role", "must be one of assistant, developer, system, user"),
        ({**START, "role": ["user"]}, "/role", "not an array"),
        ({**START, "metadata": None}, "/metadata", "must be an object, not null"),
        ({**START, "metadata": [1]}, "/metadata", "must be an object, not an array"),
        ({**START, "rawEvent": None}, "/rawEvent", "must be a value, not null"),
        ({**START, "timestamp": "1"}, "/timestamp", "must be a whole number, not the string '1'"),
        ({**START, "timestamp": True}, "/timestamp", "not true"),
        ({**START, "timestamp": 1.5}, "/timestamp", "not the number 1.5"),
        ({**START, "timestamp": 2**53}, "/timestamp", "must be between -9007199254740991 and"),
        ({**START, "timestamp": -(2.0**53)}, "/timestamp", "must be between"),
        (snapshot(5), "/messages/0", "must be an object, not the number 5"),
        (snapshot({"id": "m"}), "/messages/0/role", "'role' is required and missing"),
        (snapshot({"role": 5, "id": "m"}), "/messages/0/role", "must be a string"),
        (snapshot(message(content=None)), "/messages/0/content", "a string or an array, not null"),
        (snapshot(message(content=[5])), "/messages/0/content/0", "must be an object"),
        (snapshot(message(content=[{}])), "/messages/0/content/0/type", "required and missing"),
        (
            snapshot({"role": "assistant", "id": "a", "toolCalls": [{**CALL, "type": "other"}]}),
            "/messages/0/toolCalls/0/type",
            "must be 'function', not the string 'other'",
        ),
        (
            event("REASONING_MESSAGE_START", messageId="m", role="assistant"),
            "/role",
            "must be 'reasoning', not the string 'assistant'",
        ),
        (
            event("TOOL_CALL_RESULT", messageId="m", toolCallId="c", content="", role="user"),
            "/role",
            "must be 'tool', not the string 'user'",
        ),
        (
            event("REASONING_ENCRYPTED_VALUE", subtype=5, entityId="m", encryptedValue="x"),
            "/subtype",
            "must be one of message, tool-call",
        ),
        (event("STATE_DELTA", delta={}), "/delta", "must be an array, not an object"),
        (event("STATE_DELTA", delta=[1]), "/delta/0", "must be an object"),
        (event("STATE_DELTA", delta=[{"path": ""}]), "/delta/0/op", "required and missing"),
        (event("STATE_DELTA", delta=[{"op": 5}]), "/delta/0/op", "must be a string"),
        (event("STATE_DELTA", delta=[{"op": "add", "path": ""}]), "/delta/0/value", "missing"),
        (
            event("STATE_DELTA", delta=[{"op": "remove", "path": "a"}]),
            "/delta/0/path",
            "must be a JSON Pointer, not the string 'a'",
        ),
        (event("STATE_DELTA", delta=[{"op": "remove", "path": "\n"}]), "/delta/0/path", "Pointer"),
        (event("STATE_DELTA", delta=[{"op": "remove", "path": "/~"}]), "/delta/0/path", "Pointer"),
        (
            event("ACTIVITY_SNAPSHOT", messageId="m", activityType="a", content={}, replace=0),
            "/replace",
            "must be a boolean, not the number 0",
        ),
        (
            event("ACTIVITY_SNAPSHOT", messageId="m", activityType="a", content="x"),
            "/content",
            "must be an object, not the string 'x'",
        ),
        (
            event("RUN_ERROR", message="x", usage=[{"inputTokens": -1}]),
            "/usage/0/inputTokens",
            "must be between 0 and 9007199254740991",
        ),
        (event("RUN_FINISHED", threadId="t", runId="r", outcome=None), "/outcome", "not null"),
        (
            event("RUN_FINISHED", threadId="t", runId="r", outcome=[]),
            "/outcome",
            "must be an object, not an array",
        ),
        (
            event("RUN_STARTED", threadId="t", runId="r", input={"threadId": "t", "messages": []}),
            "/input/runId",
            "required and missing",
        ),
    ],
)
def test_malformed_values_are_fatal_and_say_where(raw: Any, path: str, said: str) -> None:
    """PROC-3, PROC-5, EVT-4, REAS-3, STATE-3."""
    found, message_ = malformed(raw)
    assert found == path
    assert said in message_
    with pytest.raises(STRICT_FAILURES):
        decode_event(json.dumps(raw).encode())


MADE = ToolCall(id="c", function=FunctionCall(name="f", arguments="{}"))


@pytest.mark.parametrize(
    ("value", "member", "path"),
    [
        (
            MessagesSnapshotEvent(messages=[AssistantMessage(id="m", tool_calls=[MADE])]),
            ("type", "function"),
            "/messages/0/toolCalls/0/type",
        ),
        (ReasoningMessageStartEvent(message_id="m"), ("role", "reasoning"), "/role"),
    ],
    ids=["the type of a call", "the role of a reasoning message"],
)
def test_a_constant_need_not_be_given_but_is_sent_and_demanded(
    value: Event, member: tuple[str, str], path: str
) -> None:
    """PROC-5: a program leaves out the member; on the wire, one that lacks is malformed."""
    frame = encode(value)
    assert decode_event(frame) == value
    text = '"{}":"{}",'.format(*member)
    plain = frame.decode()[:-1] + ","  # wherever the member stands, a comma is behind it
    assert plain.count(text) == 1
    for changed in ("", f'"{member[0]}":"other",', f'"{member[0]}":null,'):
        raw = plain.replace(text, changed)[:-1] + "}"
        with pytest.raises(STRICT_FAILURES):
            decode_event(raw.encode())
        assert malformed(json.loads(raw))[0] == path


def test_a_constant_shows_as_a_default() -> None:
    assert inspect.signature(ToolCall).parameters["type"].default == "function"
    assert inspect.signature(ToolCall).parameters["id"].default is inspect.Parameter.empty
    with pytest.raises(TypeError, match="Missing required argument 'id'"):
        ToolCall(function=MADE.function)  # type: ignore[call-arg]
    assert ToolCall(id="c", type="function", function=MADE.function) == MADE
    assert pickle.loads(pickle.dumps(MADE)) == copy.copy(MADE) == MADE


def test_the_first_flaw_is_told_and_what_went_before_is_warned_of() -> None:
    warnings: list[ProtocolWarning] = []
    raw = {**START, "new": 1, "name": None, "role": "narrator", "timestamp": "x"}
    with pytest.raises(MalformedEvent) as caught:
        enforce_event(raw, warnings.append)
    assert caught.value.path == "/name"
    assert caught.value.event_type == "TEXT_MESSAGE_START"
    assert paths(warnings) == ["/new", "/role"]


def test_a_malformed_value_beside_an_unknown_one_is_fatal() -> None:
    """PROC-3: stripping the one does not excuse the other."""
    assert malformed({**START, "role": "narrator", "messageId": 5})[0] == "/messageId"


def test_whole_numbers_may_come_as_floats() -> None:
    """EVT-1: and bounds hold for them too."""
    found, warnings = enforce({**START, "timestamp": 1e3})
    assert found == TextMessageStartEvent(message_id="m", timestamp=1000)
    assert not warnings
    assert malformed({**START, "timestamp": 1e300})[0] == "/timestamp"


def test_long_values_are_shown_short() -> None:
    for value in ("x" * 10_000, int("9" * 4000), ["x"] * 10_000):
        _, message_ = malformed({**START, "metadata": value})
        assert len(message_) < 120
    path, _ = malformed({**START, "metadata": {}, "name": {"x" * 1000: 1}})
    assert path == "/name"


# Run input


def test_input_is_cleaned() -> None:
    """PROC-11, PROC-12."""
    raw = {
        "threadId": "t",
        "runId": "r",
        "messages": [message(new=1), {"role": "narrator", "id": "n"}],
        "resume": [{"interruptId": "i", "status": "unheard"}],
        "new": 1,
    }
    warnings: list[ProtocolWarning] = []
    found = enforce_input(raw, warnings.append)
    assert found.messages == [UserMessage(id="u", content="x")]
    assert found.resume == []
    assert paths(warnings) == ["/messages/0/new", "/messages/1", "/resume/0", "/new"]
    assert {warning.rule for warning in warnings} == {"PROC-2"}
    assert {warning.event_type for warning in warnings} == {None}


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"threadId": "t", "messages": []}, "/runId"),
        ({"threadId": 5, "runId": "r", "messages": []}, "/threadId"),
        ({"threadId": "t", "runId": "r", "messages": [5]}, "/messages/0"),
        ({"threadId": "t", "runId": "r", "messages": [], "state": None}, "/state"),
        (
            {"threadId": "t", "runId": "r", "messages": [], "forwardedProps": None},
            "/forwardedProps",
        ),
        ({"threadId": "t", "runId": "r", "messages": [], "state": float("nan")}, ""),
        ({"threadId": "t", "runId": "r", "messages": {1}}, ""),
        ([], ""),
        ("x", ""),
    ],
)
def test_malformed_input_is_refused(raw: Any, path: str) -> None:
    """PROC-11, PROC-12, IN-1."""
    with pytest.raises(InvalidInput) as caught:
        enforce_input(raw, lambda _: None)
    assert caught.value.path == path
    assert caught.value.rule == "PROC-3"


def test_typed_input_is_judged_like_plain() -> None:
    """PROC-11: attributes are whatever a program assigned."""
    typed = RunAgentInput(thread_id="t", run_id="r", messages=[UserMessage(id="u", content="x")])
    assert enforce_input(typed, lambda _: None) == typed
    odd: Any = [5]
    with pytest.raises(InvalidInput) as caught:
        enforce_input(RunAgentInput(thread_id="t", run_id="r", messages=odd), lambda _: None)
    assert caught.value.path == "/messages/0"
    mixed = {"threadId": "t", "runId": "r", "messages": [UserMessage(id="u", content="x")]}
    assert enforce_input(mixed, lambda _: None) == typed


def test_input_is_copied() -> None:
    state = {"a": [1]}
    raw = {"threadId": "t", "runId": "r", "messages": [], "state": state}
    found = enforce_input(raw, lambda _: None)
    state["a"].append(2)
    assert found.state == {"a": [1]}


def test_lists_take_typed_and_plain_values() -> None:
    typed = UserMessage(id="u", content="x")
    warnings: list[ProtocolWarning] = []
    found = enforce_list([typed, message(new=1), {"role": "x"}], Message, warnings.append, "/m")
    assert found[0] is typed
    assert found == [typed, typed]
    assert paths(warnings) == ["/m/1/new", "/m/2"]
    for wrong, path in [
        (5, "/m/0"),
        (None, "/m/0"),
        (message(id=None), "/m/0/id"),
        (START, "/m/0/role"),
        (TextMessageStartEvent(message_id="m"), "/m/0/role"),
        ({1: 2}, "/m/0"),
    ]:
        with pytest.raises(InvalidInput) as caught:
            enforce_list([wrong], Message, lambda _: None, "/m")
        assert caught.value.path == path


def test_what_comes_out_is_typed() -> None:
    found, _ = enforce(
        event("RUN_FINISHED", threadId="t", runId="r", outcome={"type": "cancelled"})
    )
    assert isinstance(found, RunFinishedEvent)
    found, _ = enforce(event("TOOL_CALL_RESULT", messageId="m", toolCallId="c", content=[MEDIA]))
    assert isinstance(found, ToolCallResultEvent)
