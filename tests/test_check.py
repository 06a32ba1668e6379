"""The checker: every fault of a stream, each once, and none that a reader would not see."""

import gzip
import io
import json
import tracemalloc
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aguia import Consumer, ProtocolViolation, TruncatedRun
from aguia.codec import protobuf
from aguia.codec.frames import encode_frame
from aguia.codec.json import convert_event
from aguia.protocol.errors import ProtocolWarning
from aguia.protocol.rules import RULES
from aguia.testing import (
    Checker,
    Finding,
    assert_conformant,
    assert_conversation,
    corpus,
)
from aguia.testing.recordings import Format, Frame, Splitter, UnknownFormat, read_blocks, sniff
from support import own_streams, shared
from support_streams import broken, well_formed

Json = dict[str, Any]


def check(events: list[Any], input: Json | None = None, **options: Any) -> list[Finding]:
    checker = Checker(input, **options)
    for event in events:
        checker.receive_event(event)
    checker.end()
    return checker.findings


def check_bytes(data: bytes, input: Json | None = None, **options: Any) -> list[Finding]:
    checker = Checker(input, **{"format": None, **options})
    checker.receive(data)
    checker.end()
    return checker.findings


def errors(findings: list[Finding]) -> list[tuple[str, int | None]]:
    """The errors in the order of the stream, as rule and event."""
    found = [(each.rules[0], each.index) for each in findings if each.severity == "error"]
    return sorted(found, key=lambda error: -1 if error[1] is None else error[1])


def verdict(
    events: list[Any] | bytes, input: Json | None = None, peer: str | None = None
) -> tuple[tuple[str, int | None] | None, list[ProtocolWarning]]:
    """What `Consumer` says of a stream: rule and event of its rejection, and the warnings."""
    warnings: list[ProtocolWarning] = []
    consumer = Consumer(input, peer_version=peer, on_warning=warnings.append)
    try:
        if isinstance(events, bytes):
            list(consumer.receive(events))
        else:
            for event in events:
                list(consumer.receive_event(event))
        list(consumer.end())
    except ProtocolViolation as error:
        return (error.rule or "LIMIT", error.index), warnings
    except TruncatedRun:
        return ("RUN-11", None), warnings
    return None, warnings


def agree(said: tuple[str, int | None] | None, findings: list[Finding]) -> bool:
    """Whether the first error is that for which `Consumer` rejects the stream."""
    found = errors(findings)
    if said is None or not found:
        return said is None and not found
    return found[0] == said or (said == ("RUN-11", None) and found[0][0] == "RUN-11")


# Streams with a known outcome


def _streams() -> list[Any]:
    found = own_streams()
    try:
        for path in sorted(shared("conformance/streams").glob("*.json")):
            found[path.stem] = json.loads(path.read_text(encoding="utf-8"))
    except pytest.skip.Exception:
        pass
    return [pytest.param(stream, id=name) for name, stream in found.items()]


def _input(stream: Json) -> Json | None:
    given = stream.get("input")
    if given is None:
        return None
    first = stream["stream"][0] if stream["stream"] else {}
    ids = {name: first.get(name, name) for name in ("threadId", "runId")}
    return {**ids, "messages": [], **given}


@pytest.mark.parametrize("stream", _streams())
def test_a_stream_with_one_fault_has_one_finding(stream: Json) -> None:
    """The fault that the stream names, and no other for what follows from it (PROC-7)."""
    given, peer = _input(stream), stream.get("client", {}).get("maxProtocolVersion")
    said, warned = verdict(stream["stream"], given, peer)
    found = check(stream["stream"], given, peer_version=peer)
    assert agree(said, found)
    assert len(errors(found)) == (said is not None), found
    # Besides errors, what the reader warns of, and what is doubtful but no fault of reading.
    extra = {each.rule for each in found if each.severity == "warning"} - {
        warning.rule for warning in warned
    }
    doubtful = {"VER-1", "PROC-13", "EVT-1", "META-2", "FRONT-3", "FRONT-6", "TOOL-2", "INT-3"}
    assert extra <= (doubtful if said is None else {"VER-1", "PROC-13"}), found


# Streams that are rejected and have more to find than that, which is of the same event.
MORE_TO_FIND: Final = {
    "proc-malformed-beside-unrecognised-fatal": [("PROC-2", 1, "/messages/0")],
}


@pytest.mark.parametrize("case", corpus.cases(), ids=lambda case: case.name)
def test_a_rejected_stream_of_the_corpus_has_the_finding_that_it_names(case: corpus.Case) -> None:
    """And nothing else, warnings included; one that is accepted has no error (PROC-3, RUN-8)."""
    found = check(list(case.stream), case.input)
    if case.outcome == "accepted":
        assert errors(found) == []
    elif case.outcome == "rejected":
        first, *others = sorted(found, key=lambda finding: finding.severity)
        assert (first.severity, first.rule) == ("error", case.expect["rule"])
        assert first.index == case.expect["index"]
        if "path" in case.expect:
            assert first.path == case.expect["path"]
        assert [(each.rule, each.index, each.path) for each in others] == MORE_TO_FIND.get(
            case.name, []
        )


@pytest.mark.parametrize("stream", _streams()[::6])
def test_the_findings_are_the_same_in_every_format(stream: Json) -> None:
    """HTTP-3: how a stream was recorded, and how its bytes were split, changes nothing."""
    events = stream["stream"]
    expected = [_without_line(finding) for finding in check(events)]
    texts = [json.dumps(event).encode() for event in events]
    bodies: dict[Format, bytes] = {
        "sse": b"".join(b"data: " + text + b"\n\n" for text in texts),
        "jsonl": b"".join(text + b"\n" for text in texts),
        "json": json.dumps(events, indent=1).encode(),
    }
    for format, body in bodies.items():
        for size in (7, len(body) or 1):
            checker = Checker(format=format)
            for start in range(0, len(body), size):
                checker.receive(body[start : start + size])
            checker.end()
            found = [_without_line(finding) for finding in checker.findings]
            assert _plain(found) == _plain(expected), format


def _without_line(finding: Finding) -> Json:
    return {name: getattr(finding, name) for name in finding.__struct_fields__ if name != "line"}


def _plain(findings: list[Json]) -> str:
    # What is not JSON at all, `receive_event` calls by another name; ids are made up anew.
    text = json.dumps(findings)
    return "" if "reasoning-" in text else text


# Random streams


@pytest.mark.unmeasured
@pytest.mark.parametrize("block", range(8))
def test_random_streams_get_the_verdict_of_the_reader(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        case = well_formed(seed)
        assert errors(check(case.events, case.input)) == []
        for variant in range(2):
            worse = broken(case, seed * 2 + variant)
            said, _ = verdict(worse.events, worse.input)
            found = check(worse.events, worse.input)
            assert agree(said, found), worse.name
            assert len(errors(found)) <= 5, (worse.name, found)


_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
_quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.unmeasured
@_quick
@given(st.integers(0, 200), st.data())
def test_values_of_any_kind_never_break_the_checker(seed: int, data: st.DataObject) -> None:
    case = well_formed(seed)
    events = deepcopy(case.events)
    for _ in range(data.draw(st.integers(1, 3))):
        target: Any = events
        while True:
            key = data.draw(
                st.sampled_from(sorted(target) if isinstance(target, dict) else range(len(target)))
            )
            inner = target[key]
            if not (isinstance(inner, dict | list) and inner and data.draw(st.booleans())):
                break
            target = inner
        if data.draw(st.booleans()):
            target[key] = data.draw(_JSON)
        else:
            del target[key]
        if not events:
            return
    said, _ = verdict(events, case.input)
    assert agree(said, check(events, case.input))


@pytest.mark.unmeasured
@_quick
@given(st.integers(0, 200), st.data())
def test_broken_bytes_never_break_the_checker(seed: int, data: st.DataObject) -> None:
    events = well_formed(seed).events[:12]
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body)))
        upto = at + data.draw(st.integers(0, 6))
        body = body[:at] + data.draw(st.binary(max_size=4)) + body[upto:]
    said, _ = verdict(body)
    assert agree(said, check_bytes(body, format="sse"))
    for format in ("jsonl", "json", "protobuf"):
        check_bytes(body, format=format)
    try:
        check_bytes(body)
    except UnknownFormat:
        pass


@_quick
@given(st.binary(max_size=60))
@example(b"[" * 60)
@example(b'[{"a":"\\')
@example(b"\x00\x00\x00\x01")
def test_any_bytes_are_judged(body: bytes) -> None:
    for format in ("sse", "jsonl", "json", "protobuf"):
        assert errors(check_bytes(body, format=format))


# One rule broken at a time

INPUT: Final[Json] = {
    "threadId": "t",
    "runId": "r1",
    "messages": [{"id": "u1", "role": "user", "content": "Hello"}],
    "tools": [{"name": "open_window", "description": "Opens a window."}],
}
USAGE: Final = {"model": "tiny", "inputTokens": 5, "outputTokens": 7, "totalTokens": 12}


def _whole() -> list[Json]:
    """A stream in which there is nothing to find, with every family in it."""
    run = {"threadId": "t", "runId": "r1"}
    return [
        {"type": "RUN_STARTED", **run, "protocolVersion": "1.0"},
        {"type": "MESSAGES_SNAPSHOT", "messages": deepcopy(INPUT["messages"])},
        {"type": "STEP_STARTED", "stepName": "plan"},
        {"type": "STATE_SNAPSHOT", "snapshot": {"n": 0}},
        {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/n", "value": 1}]},
        {"type": "REASONING_START", "messageId": "s1"},
        {"type": "REASONING_MESSAGE_START", "messageId": "th1", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "th1", "delta": "Hm."},
        {"type": "REASONING_MESSAGE_END", "messageId": "th1"},
        {
            "type": "REASONING_ENCRYPTED_VALUE",
            "subtype": "message",
            "entityId": "th1",
            "encryptedValue": "x",
        },
        {"type": "REASONING_END", "messageId": "s1"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m1"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "Let me see."},
        {"type": "TEXT_MESSAGE_END", "messageId": "m1"},
        {
            "type": "TOOL_CALL_START",
            "toolCallId": "c1",
            "toolCallName": "find",
            "parentMessageId": "m1",
        },
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '{"q": 1}'},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
        {"type": "TOOL_CALL_RESULT", "messageId": "res1", "toolCallId": "c1", "content": "one"},
        {"type": "SUBAGENT_STARTED", "subagentRunId": "a1", "name": "helper"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m2", "subagentRunId": "a1"},
        {
            "type": "TEXT_MESSAGE_CONTENT",
            "messageId": "m2",
            "delta": "Done.",
            "subagentRunId": "a1",
        },
        {"type": "TEXT_MESSAGE_END", "messageId": "m2"},
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "a1"},
        {
            "type": "ACTIVITY_SNAPSHOT",
            "messageId": "act1",
            "activityType": "PLAN",
            "content": {"n": 0},
        },
        {
            "type": "ACTIVITY_DELTA",
            "messageId": "act1",
            "activityType": "PLAN",
            "patch": [{"op": "replace", "path": "/n", "value": 1}],
        },
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "k1", "delta": "And "},
        {"type": "TEXT_MESSAGE_CHUNK", "delta": "now"},
        {"type": "TOOL_CALL_CHUNK", "toolCallId": "c2", "toolCallName": "open_window"},
        {"type": "TOOL_CALL_CHUNK", "delta": "{}"},
        {"type": "CUSTOM", "name": "com.example.note", "value": None},
        {"type": "RAW", "event": {"any": "thing"}},
        {"type": "STEP_FINISHED", "stepName": "plan"},
        {
            "type": "RUN_FINISHED",
            **run,
            "outcome": {"type": "success", "pendingToolCallIds": ["c2"]},
            "usage": [dict(USAGE)],
        },
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r2", "protocolVersion": "1.0"},
        {
            "type": "RUN_FINISHED",
            "threadId": "t",
            "runId": "r2",
            "outcome": {
                "type": "interrupt",
                "interrupts": [
                    {"id": "i1", "reason": "approval", "expiresAt": "2030-01-01T00:00:00Z"}
                ],
            },
        },
    ]


Mutation = Callable[[list[Json]], None]


def place(events: list[Json], kind: str, number: int = 0) -> int:
    return [index for index, event in enumerate(events) if event["type"] == kind][number]


def change(kind: str, number: int = 0, **members: Any) -> Mutation:
    """Give an event other members; `...` takes one away."""

    def mutate(events: list[Json]) -> None:
        event = events[place(events, kind, number)]
        event.update(members)
        for name in [name for name, value in members.items() if value is ...]:
            del event[name]

    return mutate


def drop(kind: str, number: int = 0) -> Mutation:
    def mutate(events: list[Json]) -> None:
        del events[place(events, kind, number)]

    return mutate


def insert(before: str, *more: Json, number: int = 0) -> Mutation:
    def mutate(events: list[Json]) -> None:
        at = place(events, before, number)
        events[at:at] = [dict(event) for event in more]

    return mutate


def append(*more: Json) -> Mutation:
    return lambda events: events.extend(dict(event) for event in more)


def both(*mutations: Mutation) -> Mutation:
    def mutate(events: list[Json]) -> None:
        for mutation in mutations:
            mutation(events)

    return mutate


def _message(id_: str, text: str, **opener: Any) -> list[Json]:
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": id_, **opener},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": id_, "delta": text},
        {"type": "TEXT_MESSAGE_END", "messageId": id_},
    ]


def _chunk(**members: Any) -> Json:
    return {"type": "TEXT_MESSAGE_CHUNK", **members}


def _call(id_: str, **members: Any) -> Json:
    return {"type": "TOOL_CALL_START", "toolCallId": id_, "toolCallName": "find", **members}


def _delta(operation: Json) -> Mutation:
    return change("STATE_DELTA", delta=[operation])


MUTATIONS: Final[dict[str, Mutation]] = {
    "EVT-1": change("TEXT_MESSAGE_START", timestamp=1.5),
    "EVT-4": change("TEXT_MESSAGE_START", name=None),
    "EVT-5": change("MESSAGES_SNAPSHOT", subagentRunId="a1"),
    "EVT-6": both(change("RUN_STARTED", 1, runId="r1"), change("RUN_FINISHED", 1, runId="r1")),
    "PROC-1": change("RAW", type="RAWISH"),
    "PROC-2": change("CUSTOM", colour="red"),
    "PROC-3": change("TEXT_MESSAGE_CONTENT", delta=5),
    "PROC-4": change("REASONING_ENCRYPTED_VALUE", subtype="audio"),
    "PROC-5": change("TEXT_MESSAGE_START", role="moderator"),
    "PROC-13": change("CUSTOM", type="NOTE"),
    "RUN-1": drop("RUN_STARTED"),
    "RUN-2": change("RUN_STARTED", protocolVersion=...),
    "RUN-3": change("RUN_FINISHED", runId="another"),
    "RUN-4": drop("RUN_FINISHED"),
    "RUN-5": drop("TEXT_MESSAGE_END"),
    "RUN-6": append({"type": "CUSTOM", "name": "com.example.late", "value": 1}),
    "RUN-7": append({"type": "RUN_ERROR", "message": 7}),
    "RUN-9": change("RUN_FINISHED", outcome={"type": "perhaps"}),
    "RUN-10": change("RUN_FINISHED", 1, outcome={"type": "cancelled"}, result={"half": 1}),
    "RUN-11": drop("RUN_FINISHED", 1),
    "RUN-13": insert("CUSTOM", *_message("u1", "Hello", role="user")),
    "RUN-14": change("STEP_FINISHED", stepName="plan b"),
    "USE-1": change("RUN_FINISHED", usage=[{**USAGE, "totalTokens": 13}]),
    "STREAM-1": drop("TEXT_MESSAGE_START"),
    "STREAM-4": insert("CUSTOM", *_message("m1", "!", role="system")),
    "CHUNK-2": change("TEXT_MESSAGE_CHUNK", messageId=...),
    "CHUNK-4": change("TEXT_MESSAGE_CHUNK", 1, role="user"),
    "CHUNK-7": insert(
        "CUSTOM",
        _chunk(messageId="x", subagentRunId="a", delta="1"),
        _chunk(messageId="y", subagentRunId="b", delta="2"),
        _chunk(delta="whose?"),
    ),
    "CHUNK-8": change("TEXT_MESSAGE_CHUNK", 1, messageId="k1", subagentRunId="b"),
    "CHUNK-9": change("TEXT_MESSAGE_CHUNK", 1, type="TEXT_MESSAGE_CONTENT", messageId="k1"),
    "TEXT-1": change("TEXT_MESSAGE_START", role="narrator"),
    "TEXT-3": insert("CUSTOM", *_message("act1", "text")),
    "TOOL-1": drop("TOOL_CALL_START"),
    "TOOL-2": change("TOOL_CALL_ARGS", delta='{"q": '),
    "TOOL-4": change("TOOL_CALL_START", parentMessageId="u1"),
    "TOOL-5": insert(
        "CUSTOM",
        _call("c3", parentMessageId="m1", subagentRunId="b"),
        {"type": "TOOL_CALL_END", "toolCallId": "c3"},
        {"type": "TOOL_CALL_RESULT", "messageId": "res3", "toolCallId": "c3", "content": ""},
    ),
    "TOOL-7": change("TOOL_CALL_RESULT", content=17),
    "TOOL-13": change("TOOL_CALL_RESULT", content=[{"type": "ReasoningPart", "text": "x"}]),
    "FRONT-1": both(
        insert(
            "CUSTOM",
            {"type": "TOOL_CALL_RESULT", "messageId": "n", "toolCallId": "c2", "content": "x"},
        ),
        change("RUN_FINISHED", outcome={"type": "success"}),
    ),
    "FRONT-2": change(
        "RUN_FINISHED",
        outcome={"type": "interrupt", "interrupts": [{"id": "i", "reason": "input"}]},
    ),
    "FRONT-3": change("RUN_FINISHED", outcome={"type": "success"}),
    "FRONT-6": change("TOOL_CALL_CHUNK", toolCallName="open_door"),
    "REAS-2": drop("REASONING_MESSAGE_START"),
    "REAS-3": change("REASONING_MESSAGE_START", role="assistant"),
    "REAS-4": change("REASONING_ENCRYPTED_VALUE", entityId="nobody"),
    "STATE-3": _delta({"op": "increase", "path": "/n"}),
    "STATE-4": _delta({"op": "remove", "path": "/m"}),
    "MSG-1": insert("TEXT_MESSAGE_CONTENT", {"type": "MESSAGES_SNAPSHOT", "messages": []}),
    "ACT-3": drop("ACTIVITY_SNAPSHOT"),
    "META-1": change("TEXT_MESSAGE_CHUNK", 1, delta="n", metadata={"trace": "x" * 2000}),
    "META-2": change("TEXT_MESSAGE_START", metadata={"ag-ui": 1}),
    "INT-1": change("RUN_FINISHED", 1, outcome={"type": "interrupt", "interrupts": []}),
    "INT-3": change(
        "RUN_FINISHED",
        1,
        outcome={
            "type": "interrupt",
            "interrupts": [{"id": "i", "reason": "input", "expiresAt": "soon"}],
        },
    ),
    "SUB-1": change("TEXT_MESSAGE_CONTENT", 1, subagentRunId=None),
    "SUB-2": drop("SUBAGENT_STARTED"),
    "SUB-4": change("TEXT_MESSAGE_CONTENT", 1, subagentRunId="b"),
    "IN-1": change("RUN_STARTED", input={"threadId": "t", "runId": "r1"}),
    "VER-1": change("RUN_STARTED", protocolVersion=...),
    "VER-2": change("RUN_STARTED", protocolVersion="2.7"),
    "VER-4": insert("CUSTOM", {"type": "THINKING_START"}, {"type": "THINKING_END"}),
}
"""For each rule that the events of a stream can show broken, a way to break it."""

OF_BYTES: Final = frozenset({"HTTP-2", "PB-2"})
"""Rules that only the bytes of a stream can show broken."""

NOT_SHOWN: Final = {
    "How a reader treats what it reads": {
        "EVT": "2 3 7",
        "PROC": "6 7 8 9 10 11",
        "RUN": "8",
        "CHUNK": "1",
        "TOOL": "3 10",
        "FRONT": "4 5",
        "SEC": "1 2 3",
        "STATE": "1",
        "MSG": "2",
        "ACT": "1 2 4",
        "HTTP": "1 3",
        "PB": "3",
        "CONV": "1 2 3 4",
        "TEXT": "2",
        "INT": "2",
        "REAS": "5",
    },
    "What a legal stream does; breaking it is breaking a rule above": {
        "RUN": "12",
        "STREAM": "2 3",
        "CHUNK": "3 5 6 10 11",
        "TOOL": "6 12",
        "REAS": "1",
        "STATE": "2 6",
        "SUB": "3 5 6 7",
        "INT": "6 7",
    },
    "What is between the agent and its input, its models and earlier runs": {
        "PROC": "12",
        "USE": "2",
        "TOOL": "8 9 11",
        "STATE": "5",
        "INT": "4 5",
        "IN": "2 3",
        "VER": "3",
        "CAP": "1",
        "HTTP": "4 5",
        "PB": "1 4",
        "TRANS": "1",
    },
}
"""Why the other rules can't be seen broken in a stream; families and numbers."""


def test_there_is_nothing_to_find_in_the_whole_stream() -> None:
    assert check(_whole(), INPUT) == []


@pytest.mark.parametrize("rule", MUTATIONS)
def test_a_broken_rule_is_found(rule: str) -> None:
    """One rule broken in a stream that keeps them all, found by its id, and nothing after it."""
    events = _whole()
    MUTATIONS[rule](events)
    found = check(events, INPUT)
    assert any(rule in each.rules for each in found), found
    said, _ = verdict(events, INPUT)
    assert agree(said, found)
    assert len(errors(found)) == (said is not None), found
    for each in found:
        assert each.seen
        assert each.expected
        assert each.hint
        assert each.page is not None
        assert each.page.startswith("https://")
        assert each.index is not None


def test_every_rule_that_a_stream_can_show_has_a_mutation() -> None:
    not_shown = {
        f"{family}-{number}"
        for families in NOT_SHOWN.values()
        for family, numbers in families.items()
        for number in numbers.split()
    }
    assert MUTATIONS.keys() | OF_BYTES | not_shown == RULES.keys()
    assert MUTATIONS.keys() & not_shown == set()


def test_bytes_that_are_no_event_are_found() -> None:
    """HTTP-2 and PB-2."""
    lines = [json.dumps(event).encode() for event in _whole()]
    lines[7] = b'{"type": "REASONING_MESSAGE_CONTENT", "messageId":'
    found = check_bytes(b"\n".join(lines), INPUT)
    assert [(each.rule, each.index, each.line) for each in found] == [("HTTP-2", 7, 8)]
    frames = [protobuf.encode_event(convert_event(event)) for event in _binary()]
    assert check_bytes(b"".join(frames)) == []
    frames[1] = encode_frame(b"\xff\xff\xff")
    assert errors(check_bytes(b"".join(frames))) == [("PB-2", 1)]


def _binary() -> list[Any]:
    run = {"threadId": "t", "runId": "r"}
    return [
        {"type": "RUN_STARTED", **run, "protocolVersion": "1.0"},
        {"type": "CUSTOM", "name": "com.example.note", "value": 1},
        {"type": "RUN_FINISHED", **run},
    ]


def test_line_ends_that_readers_need_not_take_are_found() -> None:
    """HTTP-2: the producer ends its lines with LF."""
    body = b"".join(b"data: " + json.dumps(each).encode() + b"\r\n\r\n" for each in _binary())
    assert [(each.rule, each.severity) for each in check_bytes(body)] == [("HTTP-2", "warning")]


# One cause, one finding

RUN: Final[Json] = {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}
END: Final[Json] = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
TEXT: Final[list[Json]] = _message("m", "Hi")

ENCRYPTED: Final[Json] = {
    "type": "REASONING_ENCRYPTED_VALUE",
    "subtype": "message",
    "entityId": "m",
    "encryptedValue": "x",
}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param(
            [RUN, {**TEXT[0], "messageId": 5}, TEXT[1], TEXT[2], END],
            [("PROC-3", 1)],
            id="a start without an id that can be read",
        ),
        pytest.param(
            [RUN, TEXT[0], TEXT[1], {**TEXT[2], "messageId": None}, END],
            [("PROC-3", 3)],
            id="an end without an id that can be read",
        ),
        pytest.param(
            [RUN, {**TEXT[0], "role": 1}, *TEXT[1:], END],
            [("PROC-3", 1)],
            id="a malformed start opens what it names",
        ),
        pytest.param(
            [RUN, *[{**TEXT[1], "delta": None}] * 3, END],
            [("PROC-3", 1)],
            id="the same fault again is counted",
        ),
        pytest.param(
            [RUN, TEXT[1], TEXT[1], TEXT[2], END],
            [("STREAM-1", 1)],
            id="content that nobody opened",
        ),
        pytest.param(
            [RUN, TEXT[0], TEXT[0], TEXT[1], TEXT[2], TEXT[2], END],
            [("STREAM-1", 2)],
            id="a message that is sent twice at once",
        ),
        pytest.param(
            [RUN, TEXT[0], TEXT[1], {**TEXT[2], "messageId": "n"}, END],
            [("STREAM-1", 3)],
            id="an end with another id",
        ),
        pytest.param(
            [RUN, TEXT[0], _call("c"), END],
            [("RUN-5", 3)],
            id="all that is left open",
        ),
        pytest.param(
            [RUN, TEXT[0], TEXT[1], END, TEXT[2]],
            [("RUN-5", 3)],
            id="a finish that comes too early",
        ),
        pytest.param(
            [RUN, END, *TEXT, END],
            [("RUN-6", 2)],
            id="all that comes after the end",
        ),
        pytest.param(
            [*TEXT, END],
            [("RUN-1", 0)],
            id="a run without a start",
        ),
        pytest.param(
            [TEXT[0], RUN, *TEXT[1:], END],
            [("RUN-1", 0)],
            id="a run that starts late",
        ),
        pytest.param(
            [{**RUN, "threadId": 3}, *TEXT, END],
            [("PROC-3", 0)],
            id="a start whose ids can't be read",
        ),
        pytest.param(
            [RUN, TEXT[0], RUN, *TEXT[1:], END],
            [("RUN-4", 2)],
            id="a start that is sent twice",
        ),
        pytest.param(
            [RUN, {**RUN, "runId": "s"}, *TEXT, {**END, "runId": "s"}, END],
            [("RUN-4", 1)],
            id="a run in a run",
        ),
        pytest.param(
            [RUN, *TEXT, {**RUN, "runId": "s"}, END, *TEXT, {**END, "runId": "s"}],
            [("RUN-4", 4)],
            id="a finish after the next start",
        ),
        pytest.param(
            [RUN, {**RUN, "runId": "s"}, *TEXT, END],
            [("RUN-4", 1)],
            id="a run in a run that ends by the outer one's id",
        ),
        pytest.param(
            [RUN, TEXT[0], {**RUN, "runId": "s"}, {**END, "runId": "s"}],
            [("RUN-4", 2)],
            id="what is open in a run that has no end",
        ),
        pytest.param(
            [{**RUN, "protocolVersion": None}, *TEXT, END],
            [("PROC-3", 0)],
            id="a malformed version is none",
        ),
        pytest.param(
            [RUN, *TEXT[1:], ENCRYPTED, END],
            [("STREAM-1", 1)],
            id="what belongs to a message that nobody opened",
        ),
        pytest.param(
            [RUN, {"type": "TEXT_MESSAGE_CHUNK", "delta": "x"}, _chunk(delta="y"), END],
            [("CHUNK-2", 1)],
            id="chunks without an id",
        ),
        pytest.param(
            [RUN, {**TEXT[0], "subagentRunId": "a"}]
            + [{**TEXT[1], "subagentRunId": "b"}] * 3
            + [{**TEXT[2], "subagentRunId": "b"}, END],
            [("SUB-4", 2)],
            id="everything with another tag",
        ),
        pytest.param(
            [
                RUN,
                {"type": "STEP_STARTED", "stepName": "s", "subagentRunId": "a"},
                {"type": "STEP_FINISHED", "stepName": "s"},
                END,
            ],
            [("RUN-14", 2)],
            id="a step of somebody else",
        ),
        pytest.param(
            [RUN, {"type": 5}, TEXT[1], TEXT[2], END],
            [("PROC-3", 1)],
            id="what nobody can read may have been the start",
        ),
        pytest.param(
            [
                RUN,
                {"type": "STATE_SNAPSHOT"},
                {"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "/n"}]},
                END,
            ],
            [("PROC-3", 1)],
            id="a patch to a state that was lost",
        ),
    ],
)
def test_what_follows_from_a_fault_is_no_finding(
    events: list[Json], expected: list[tuple[str, int]]
) -> None:
    found = check(events)
    assert [(each.rule, each.index) for each in found if each.rule != "EVT-6"] == expected


def test_faults_that_have_nothing_to_do_with_each_other_are_all_found() -> None:
    events = [
        RUN,
        {**TEXT[0], "role": None, "name": 5},
        TEXT[1],
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": ""},
        {"type": "STEP_FINISHED", "stepName": "s"},
        {"type": "STATE_DELTA", "delta": {}},
        TEXT[2],
        _call("open"),
        END,
        {"type": "CUSTOM", "name": "com.example.late", "value": 1},
        {**RUN, "runId": "r2"},
        {**END, "runId": "r3"},
        {**RUN, "runId": "r4"},
        {"type": 5},
        *TEXT,
    ]
    assert errors(check(events)) == [
        ("PROC-3", 1),
        ("PROC-3", 1),
        ("STREAM-1", 3),
        ("RUN-14", 4),
        ("PROC-3", 5),
        ("RUN-5", 8),
        ("RUN-6", 9),
        ("RUN-3", 11),
        ("PROC-3", 13),
        ("RUN-11", 16),
    ]


def test_a_finding_says_where_what_and_why() -> None:
    [found] = check(
        [RUN, *TEXT[:2], {**TEXT[1], "delta": 4}, {**TEXT[1], "delta": 4}, TEXT[2], END]
    )
    assert found.severity == "error"
    assert found.rule == "PROC-3"
    assert (found.index, found.event_type, found.path) == (3, "TEXT_MESSAGE_CONTENT", "/delta")
    assert (found.seen, found.expected) == ("the number 4", "a string")
    assert found.run_id == "r"
    assert (found.count, found.also) == (2, (4,))
    assert "string" in found.hint
    assert found.page == "https://docs.ag-ui.com/spec/1.0/basic/processing"
    assert str(found) == (
        "error PROC-3 event 3 TEXT_MESSAGE_CONTENT at /delta: "
        "must be a string, not the number 4 (2 times)"
    )


def test_the_likely_cause_depends_on_the_fault() -> None:
    [wrong_case] = [
        each
        for each in check([RUN, {"type": "STEP_STARTED", "step_name": "s"}, END])
        if each.severity == "error"
    ]
    assert "snake_case" in wrong_case.hint
    [null] = check([RUN, {**TEXT[0], "name": None}, *TEXT[1:], END])
    assert "exclude_none" in null.hint
    assert null.related == ("EVT-4",)


@pytest.mark.unmeasured
def test_findings_and_memory_are_bounded() -> None:
    checker = Checker(max_findings=10)
    checker.receive_event(RUN)
    for number in range(30):
        checker.receive_event({**TEXT[1], "messageId": f"m{number}"})
    assert len(checker.findings) == 10
    assert checker.omitted == 20
    # Warnings leave room for errors.
    named = [{"type": "CUSTOM", "name": f"note {number}", "value": 1} for number in range(9)]
    found = check([RUN, *named, TEXT[1], TEXT[2], END], max_findings=5)
    assert [each.severity for each in found] == ["warning"] * 5 + ["error"]
    line = json.dumps({**TEXT[1], "delta": "x" * 400}).encode() + b"\n"
    checker = Checker(format="jsonl", context=2)
    checker.receive(json.dumps(RUN).encode() + b"\n" + json.dumps(TEXT[0]).encode() + b"\n")
    checker.receive(line)
    tracemalloc.start()
    for _ in range(100):
        checker.receive(line * 100)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert checker.events == 10_003
    assert size < 40_000


def test_too_large_and_too_deep_events_are_findings() -> None:
    big = json.dumps({**TEXT[1], "delta": "x" * 3000}).encode()
    body = b"\n".join(json.dumps(each).encode() for each in (RUN, TEXT[0])) + b"\n" + big + b"\n"
    found = check_bytes(body, max_event_bytes=1000)
    assert [(each.rule, each.rules[0], each.index) for each in found] == [(None, "LIMIT", 2)]
    deep = b'{"type": "RAW", "event": ' + b"[" * 300 + b"]" * 300 + b"}\n"
    assert errors(check_bytes(body.replace(big, deep))) == [("LIMIT", 2)]
    endless = Checker(format="jsonl", max_event_bytes=1000)
    for _ in range(10):
        endless.receive(b"x" * 1000)
    assert len(endless.findings) == 1


def test_excerpts_hold_the_events_around_a_culprit() -> None:
    checker = Checker(context=1)
    for event in (RUN, *TEXT, TEXT[2], END, END):
        checker.receive_event(event)
    checker.end()
    assert [index for index, _ in checker.excerpts[4]] == [3, 4, 5]
    assert json.loads(checker.excerpts[4][1][1]) == TEXT[2]


# Recordings


@pytest.mark.parametrize(
    ("head", "format"),
    [
        (b'{"type": "RUN_STARTED"}\n{"type"', "jsonl"),
        (b'\xef\xbb\xbf\n {"type": "RUN_STARTED"}\n', "jsonl"),
        (b'{"type": broken}\n{"type": "X"}', "jsonl"),
        (b'{\n  "type": "RUN_STARTED"\n}\n{', "json"),
        (b'[{"type": "RUN_STARTED"},', "json"),
        (b"data: {}\n\n", "sse"),
        (b": hello\n\ndata: {}\n\n", "sse"),
        (b"event: message\r\ndata:{}\r\n\r\n", "sse"),
        (b"\x00\x00\x00\x05abcde", "protobuf"),
        (b"HTTP/1.1 200 OK\r\n", None),
        (b"<html>", None),
        (b"hello: world\n", None),
    ],
)
def test_formats_are_found_out(head: bytes, format: str | None) -> None:
    assert sniff(head) == format


def test_what_no_format_fits_is_refused_with_its_beginning() -> None:
    with pytest.raises(UnknownFormat, match="headers of an HTTP response"):
        check_bytes(b"HTTP/1.1 200 OK\r\n\r\n")
    with pytest.raises(UnknownFormat, match="'hello'"):
        check_bytes(b"hello")


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_events_are_cut_out_with_their_lines(size: int) -> None:
    recordings: dict[Format, bytes] = {
        "jsonl": b'\n{"a": 1}\n\n  {"b": 2}\r\n{"c": 3}',
        "json": b'\n[\n{"a": 1},{"b":\n 2}\n,\n{"c": "\\"]}"}]\n',
        "sse": b': hi\ndata: {"a": 1}\n\nid: 1\ndata: {"b":\ndata: 2}\n\n\ndata: {"c": 3}\n\n',
    }
    lines: dict[Format, list[int]] = {"jsonl": [2, 4, 5], "json": [3, 3, 6], "sse": [2, 5, 9]}
    for format, data in recordings.items():
        splitter = Splitter()
        frames: list[Frame] = []
        for start in range(0, len(data), size):
            frames += splitter.feed(data[start : start + size])
        frames += splitter.end()
        assert splitter.format == format
        assert [sorted(json.loads(frame.data)) for frame in frames] == [["a"], ["b"], ["c"]]
        assert [frame.line for frame in frames] == lines[format]


def test_a_recording_that_breaks_off_is_a_truncated_run() -> None:
    """RUN-11, whatever the format; what was whole counts."""
    events = [RUN, *TEXT]
    texts = [json.dumps(event).encode() for event in events]
    half = json.dumps(END).encode()[:20]
    for body in (
        b"\n".join(texts) + b"\n" + half,
        b"[" + b",".join(texts) + b"," + half,
        b"".join(b"data: " + text + b"\n\n" for text in texts) + b"data: " + half,
        b"".join(protobuf.encode_event(convert_event(event)) for event in events) + b"\0\0\0\x09x",
    ):
        assert errors(check_bytes(body)) == [("RUN-11", 3)], body
    # The last line end is nobody's fault.
    assert check_bytes(b"\n".join([*texts, json.dumps(END).encode()])) == []


def test_gzip_is_read_as_what_it_holds() -> None:
    body = b"\n".join(json.dumps(event).encode() for event in (RUN, *TEXT, END))
    assert b"".join(read_blocks(io.BytesIO(gzip.compress(body)))) == body
    assert b"".join(read_blocks(io.BytesIO(body))) == body
    assert b"".join(read_blocks(io.BytesIO(b""))) == b""
    halves = gzip.compress(body[:50]) + gzip.compress(body[50:]) + b"\0" * 512
    assert b"".join(read_blocks(io.BytesIO(halves))) == body
    with pytest.raises(EOFError):
        list(read_blocks(io.BytesIO(halves[:-600])))
    bomb = gzip.compress(b"\n" * 5_000_000)
    assert max(map(len, read_blocks(io.BytesIO(bomb)))) <= 65536


def test_an_old_producer_that_is_known_to_be_one_need_not_say_so() -> None:
    """VER-1."""
    run = {name: value for name, value in RUN.items() if name != "protocolVersion"}
    assert [each.rule for each in check([run, END])] == ["VER-1"]
    assert check([run, END], peer_version="0.0.57") == []


# Assertions


def test_a_conformant_stream_passes() -> None:
    assert_conformant(_whole(), INPUT, warnings=True)
    assert_conformant(b"\n".join(json.dumps(event).encode() for event in _whole()), INPUT)
    assert_conformant([RUN, TEXT[1], END], ignore=["STREAM", "RUN-5"])


def test_a_stream_with_faults_fails_with_all_of_them() -> None:
    with pytest.raises(AssertionError) as failed:
        assert_conformant([RUN, {**TEXT[1], "messageId": "\x1b[2J"}, TEXT[0], END])
    text = str(failed.value)
    assert "error STREAM-1 event 1 TEXT_MESSAGE_CONTENT: no text message '\\x1b[2J' is open" in text
    assert "error RUN-5 event 3" in text
    assert "hint: The start is missing" in text
    assert "page: https://" in text
    unnamed = [RUN, {"type": "CUSTOM", "name": "x", "value": 1}, END]
    assert_conformant(unnamed)
    with pytest.raises(AssertionError, match="PROC-13"):
        assert_conformant(unnamed, warnings=True)


MUSTS: Final = ("FRONT-1", "FRONT-3", "INT-1", "EVT-6", "VER-1", "STREAM-4", "RUN-13")
"""Rules that bind who emits, and by which no reader may reject a stream."""


@pytest.mark.parametrize("rule", MUSTS)
def test_what_a_producer_must_not_do_fails_where_it_is_asked_for(rule: str) -> None:
    """Every one of these passes, and fails strictly; what it only should not do does neither."""
    assert RULES[rule].level == "must" or rule == "FRONT-3"  # whose list, when sent, must be exact
    events = _whole()
    outcomes: dict[str, Any] = {
        "FRONT-3": {"type": "success", "pendingToolCallIds": ["nobody"]},
        "INT-1": {"type": "interrupt", "interrupts": [{"id": "i", "reason": "r"}] * 2},
    }
    if rule in outcomes:
        change("RUN_FINISHED", outcome=outcomes[rule])(events)
    else:
        MUTATIONS[rule](events)
    assert_conformant(events, INPUT)
    with pytest.raises(AssertionError, match=rule):
        assert_conformant(events, INPUT, strict=True)
    assert_conformant([RUN, {"type": "CUSTOM", "name": "x", "value": 1}, END], strict=True)


def test_a_conversation_is_compared_by_what_is_named() -> None:
    built = assert_conversation(
        _whole()[: place(_whole(), "RUN_FINISHED") + 1],
        input=INPUT,
        messages=[
            {"role": "user"},
            {"role": "reasoning", "content": "Hm."},
            {"id": "m1", "toolCalls": [{"function": {"name": "find"}}]},
            {"role": "tool", "content": "one"},
            {"subagentRunId": "a1"},
            {"content": {"n": 1}},
            {"content": "And now"},
            {"toolCalls": [{"id": "c2"}]},
        ],
        texts=["Let me see.", "Done.", "And now"],
        state={"n": 1},
        outcome="success",
        pending=["open_window"],
        interrupts=[],
    )
    assert built.run_id == "r1"
    assert_conversation(_whole(), outcome="interrupt", interrupts=["i1"])


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({"messages": []}, "messages has 1 elements, expected 0"),
        ({"messages": [{"role": "user"}]}, 'messages/0/role is "assistant", expected "user"'),
        ({"messages": [{"name": "Ada"}]}, "messages/0/name is missing"),
        ({"texts": ["Ho"]}, 'texts/0 is "Hi", expected "Ho"'),
        ({"state": {"n": 1}}, 'the state is {}, expected {"n": 1}'),
        ({"outcome": "cancelled"}, "the outcome is success, expected cancelled"),
        ({"pending": ["find"]}, "pending has 0 elements"),
        ({"interrupts": ["i"]}, "interrupts has 0 elements"),
    ],
)
def test_another_conversation_is_said_to_be_one(expected: Json, words: str) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_conversation([RUN, *TEXT, END], **expected)
    assert words in str(failed.value)


def test_a_stream_that_is_rejected_builds_nothing() -> None:
    with pytest.raises(AssertionError, match="a reader rejects the stream: .*STREAM-1"):
        assert_conversation([RUN, TEXT[1]])
    with pytest.raises(AssertionError, match="had not ended"):
        assert_conversation([RUN, *TEXT])
    error = {"type": "RUN_ERROR", "message": "no credit"}
    assert_conversation([RUN, error], outcome="error")
    with pytest.raises(AssertionError, match=r"the outcome is error \(no credit\)"):
        assert_conversation([RUN, error], outcome="success")
