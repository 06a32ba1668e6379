"""The reading side as a whole: bytes in, trusted events and a conversation out."""

import json
import logging
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguia import (
    AguiaError,
    AssistantMessage,
    Consumer,
    CustomEvent,
    DecodeError,
    EventType,
    InvalidInput,
    MalformedEvent,
    ProtocolViolation,
    ProtocolWarning,
    RunAgentInput,
    RunStartedEvent,
    SequenceViolation,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
    TruncatedRun,
    UserMessage,
)
from aguia.codec.json import encode
from support_events import FINISHED, ODD_NAMES, STARTED, Reader, event, frame

Json = dict[str, Any]

CONVERSATION: Final[list[Json]] = [
    {**STARTED, "protocolVersion": "1.0"},
    event("STATE_SNAPSHOT", snapshot={"n": 0}),
    event("REASONING_START", messageId="r"),
    event("REASONING_MESSAGE_CHUNK", messageId="r", delta="hm\u2028"),
    event("REASONING_END", messageId="r"),
    event("TEXT_MESSAGE_START", messageId="m", role="assistant", newer=1),
    event("TEXT_MESSAGE_CONTENT", messageId="m", delta="Olá \ud83e"),
    event("STATE_DELTA", delta=[{"op": "replace", "path": "/n", "value": 1.0}]),
    event("TEXT_MESSAGE_CONTENT", messageId="m", delta="\udd85!"),
    event("TOOL_CALL_CHUNK", toolCallId="c", toolCallName="f", parentMessageId="m", delta="{"),
    event("RAW", event={"any": None}),
    event("TOOL_CALL_CHUNK", delta="}", metadata={"k": 1}),
    event("TEXT_MESSAGE_END", messageId="m", timestamp=1.0),
    event("UNHEARD_OF", messageId="m"),
    event("TOOL_CALL_RESULT", messageId="o", toolCallId="c", content=[{"type": "smell"}]),
    event("ACTIVITY_SNAPSHOT", messageId="a", activityType="x", content={"\n": 1}),
    event("TEXT_MESSAGE_CHUNK", messageId="n", delta="ok"),
    FINISHED,
]


def read_all(data: bytes, cuts: list[int]) -> tuple[Reader, type[AguiaError] | None, str]:
    """Read a body cut at these places; what ended it, and what it said."""
    reader = Reader(started=False)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    try:
        for begin, stop in pairwise(edges):
            reader.read(data[begin:stop])
        reader.end()
    except AguiaError as error:
        return reader, type(error), str(error)
    return reader, None, ""


def outcome_of(reader: Reader) -> Any:
    """Everything that a reader can tell."""
    found = reader.conversation
    return (
        [(type(each), encode(each)) for each in reader.delivered],
        encode(list(found.messages)),
        encode(found.state),
        found.outcome,
        found.pending_tool_calls,
        reader.warnings,
    )


@pytest.mark.unmeasured
@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.integers(0, 10_000), max_size=12),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.integers(0, len(CONVERSATION)),
)
def test_any_split_of_bytes_gives_the_same_events(
    cuts: list[int], line_end: bytes, kept: int
) -> None:
    """HTTP-3, PROC-7: and the same conversation, warnings and end."""
    body = frame(*CONVERSATION[:kept])
    whole, error, said = read_all(body, [])
    framed = b": hello\n\n" + body
    parts, other_error, other_said = read_all(framed.replace(b"\n", line_end), cuts)
    assert outcome_of(parts) == outcome_of(whole)
    assert (other_error, other_said) == (error, said)
    assert (error is TruncatedRun) is (kept < len(CONVERSATION))


def test_the_whole_conversation() -> None:
    reader, error, _ = read_all(frame(*CONVERSATION), [])
    assert error is None
    assert [each.type for each in reader.delivered] == [
        *("RUN_STARTED", "STATE_SNAPSHOT", "REASONING_START", "REASONING_MESSAGE_START"),
        *("REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END", "REASONING_END"),
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "STATE_DELTA", "TEXT_MESSAGE_CONTENT"),
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "RAW", "TOOL_CALL_ARGS", "TOOL_CALL_END"),
        *("TEXT_MESSAGE_END", "TOOL_CALL_RESULT", "ACTIVITY_SNAPSHOT", "TEXT_MESSAGE_START"),
        *("TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"),
    ]
    assert json.loads(encode(list(reader.conversation.messages))) == [
        {"role": "reasoning", "id": "r", "content": "hm\u2028"},
        {
            "role": "assistant",
            "id": "m",
            "content": "Olá 🦅!",
            "toolCalls": [
                {
                    "id": "c",
                    "type": "function",
                    "function": {"name": "f", "arguments": "{}"},
                    "metadata": {"k": 1},
                }
            ],
        },
        {"role": "tool", "id": "o", "toolCallId": "c", "content": []},
        {"role": "activity", "id": "a", "activityType": "x", "content": {"\n": 1}},
        {"role": "assistant", "id": "n", "content": "ok"},
    ]
    assert reader.conversation.state == {"n": 1}
    assert [(w.rule, w.path, w.index) for w in reader.warnings] == [
        ("PROC-2", "/newer", 5),
        ("PROC-1", None, 13),
        ("PROC-2", "/content/0", 14),
    ]


def test_bytes_and_values_are_judged_alike() -> None:
    """PROC-7: on every path."""
    by_bytes, _, _ = read_all(frame(*CONVERSATION), [])
    for make in (lambda each: each, lambda each: json.loads(json.dumps(each))):
        by_value = Reader(started=False)
        by_value.feed(*map(make, CONVERSATION))
        by_value.end()
        assert outcome_of(by_value) == outcome_of(by_bytes)


def test_typed_events_read_again_give_the_same() -> None:
    """PROC-7: a replay of what was delivered."""
    first, _, _ = read_all(frame(*CONVERSATION), [])
    again = Reader(started=False)
    again.feed(*first.delivered)
    assert again.delivered == first.delivered
    assert again.conversation.messages == first.conversation.messages
    assert not again.warnings


# Iterating


def test_what_an_abandoned_iteration_leaves_comes_next() -> None:
    """Wherever it is abandoned, nothing is lost, doubled or applied twice."""
    whole, _, _ = read_all(frame(*CONVERSATION), [])
    for step in (1, 2, 3, 5):
        reader = Reader(started=False)
        reader.consumer.receive(frame(*CONVERSATION[:7]))
        while True:
            taken = 0
            for each in reader.consumer.receive(b""):
                reader.delivered.append(each)
                taken += 1
                if taken == step:
                    break
            if taken < step:
                break
        reader.read(frame(*CONVERSATION[7:]))
        reader.end()
        assert outcome_of(reader) == outcome_of(whole)


def test_nothing_happens_before_it_is_iterated() -> None:
    consumer = Consumer()
    events = consumer.receive(frame(*CONVERSATION))
    assert consumer.conversation.run_id is None
    assert next(events).type == "RUN_STARTED"
    assert consumer.conversation.run_id == "r"
    assert consumer.conversation.state == {}


def test_an_event_is_applied_when_it_comes() -> None:
    consumer = Consumer()
    texts = [
        consumer.conversation.messages[0].content
        for each in consumer.receive(
            frame(
                STARTED,
                event("TEXT_MESSAGE_CHUNK", messageId="m", delta="a"),
                event("TEXT_MESSAGE_CHUNK", delta="b"),
            )
        )
        if isinstance(each, TextMessageContentEvent)
    ]
    assert texts == ["a", "ab"]


# Violations

BROKEN: Final[dict[str, tuple[Any, type[ProtocolViolation], str | None]]] = {
    "sequence": (event("TEXT_MESSAGE_END", messageId="m"), SequenceViolation, "STREAM-1"),
    "malformed": (event("TEXT_MESSAGE_END", messageId=5), MalformedEvent, "PROC-3"),
    "chunk": (event("TEXT_MESSAGE_CHUNK", delta="x"), SequenceViolation, "CHUNK-2"),
    "no object": ([], DecodeError, "HTTP-2"),
}


@pytest.mark.parametrize(("raw", "kind", "rule"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("alone", [True, False])
def test_what_came_before_a_violation_was_delivered(
    raw: Any, kind: type[ProtocolViolation], rule: str, alone: bool
) -> None:
    """RUN-8."""
    reader = Reader(started=False)
    good = [STARTED, event("CUSTOM", name="n", value=1), event("STATE_SNAPSHOT", snapshot=7)]
    bodies = [frame(*good), frame(raw)] if alone else [frame(*good, raw, FINISHED)]
    *first, last = bodies
    for body in first:
        reader.read(body)
    with pytest.raises(kind) as caught:
        reader.read(last)
    assert [each.type for each in reader.delivered] == ["RUN_STARTED", "CUSTOM", "STATE_SNAPSHOT"]
    assert reader.conversation.state == 7
    assert (caught.value.rule, caught.value.index) == (rule, 3)
    assert "event 3" in str(caught.value)
    assert rule in str(caught.value)
    if kind is not DecodeError:
        assert caught.value.event_type == raw["type"]
    # Afterwards every call raises it again, and nothing more is done.
    calls: list[Callable[[], Any]] = [
        lambda: reader.read(frame(FINISHED)),
        lambda: reader.feed(FINISHED),
        lambda: reader.read(b""),
        reader.end,
    ]
    for again in calls:
        with pytest.raises(kind) as repeated:
            again()
        assert repeated.value is caught.value
    assert len(reader.delivered) == 3
    assert reader.conversation.outcome is None


def test_the_first_event_can_be_the_violation() -> None:
    """RUN-1."""
    with pytest.raises(SequenceViolation) as caught:
        Reader(started=False).read(frame(FINISHED))
    assert (caught.value.rule, caught.value.index) == ("RUN-1", 0)


def test_the_ends_that_a_chunk_implies_come_before_the_violation() -> None:
    """CHUNK-9."""
    reader = Reader()
    reader.feed(event("TEXT_MESSAGE_CHUNK", messageId="m", delta="x"))
    with pytest.raises(SequenceViolation):
        reader.feed(event("TEXT_MESSAGE_END", messageId="m"))
    assert reader.delivered[-1].type == "TEXT_MESSAGE_END"


# The end


@pytest.mark.parametrize("kept", range(1, len(CONVERSATION)))
def test_a_stream_without_terminal_event_is_truncated(kept: int) -> None:
    """RUN-11: nothing is made up, and what arrived stays."""
    reader = Reader(started=False)
    reader.read(frame(*CONVERSATION[:kept]))
    before = outcome_of(reader)
    for _ in range(2):
        with pytest.raises(TruncatedRun) as caught:
            reader.end()
        assert not isinstance(caught.value, ProtocolViolation)
        assert "'r' had not ended" in str(caught.value)
    assert outcome_of(reader) == before
    assert reader.conversation.outcome is None
    assert reader.conversation.error is None


@pytest.mark.parametrize("body", [b"", b"\n\n", b": hello\n\n", b"data: ", b'data: {"type":"RUN_S'])
def test_an_empty_stream_is_truncated(body: bytes) -> None:
    """RUN-11, HTTP-4."""
    reader = Reader(started=False)
    reader.read(body)
    with pytest.raises(TruncatedRun, match="before any event"):
        reader.end()


@pytest.mark.parametrize("last", [FINISHED, event("RUN_ERROR", message="no")])
def test_a_stream_that_ends_well(last: Json) -> None:
    """RUN-8: a run that reports its failure is no truncated one."""
    reader = Reader()
    reader.feed(last)
    assert reader.end() == []
    assert reader.end() == []


@pytest.mark.parametrize("tail", [b"", b"\n", b"\r", b"\r\n"])
def test_a_last_event_without_an_empty_line_counts(tail: bytes) -> None:
    reader = Reader(started=False)
    reader.read(frame(STARTED, FINISHED)[:-2] + tail)
    assert [each.type for each in reader.delivered] == ["RUN_STARTED"]
    assert [each.type for each in reader.end()] == ["RUN_FINISHED"]


def test_a_last_event_without_an_empty_line_is_judged() -> None:
    """PROC-3, RUN-6."""
    for last, rule in ((FINISHED, "RUN-6"), (event("CUSTOM", name=5, value=1), "PROC-3")):
        reader = Reader(started=False)
        reader.read(frame(STARTED, FINISHED, last)[:-2])
        with pytest.raises(ProtocolViolation) as caught:
            reader.end()
        assert caught.value.rule == rule


@pytest.mark.parametrize("cut", [1, 7, 20, 40])
def test_a_body_that_breaks_off_in_an_event(cut: int) -> None:
    """RUN-11: what is cut off is no event; after the end of the run nothing is missing."""
    reader = Reader(started=False)
    reader.read(frame(STARTED) + frame(FINISHED)[:cut])
    with pytest.raises(TruncatedRun):
        reader.end()
    reader = Reader(started=False)
    reader.read(frame(STARTED, FINISHED) + frame(STARTED)[:cut])
    assert reader.end() == []


def test_the_requested_run_is_missed_at_the_end() -> None:
    """RUN-3."""
    request = {"threadId": "t", "runId": "wanted", "messages": []}
    reader = Reader(input=request)
    reader.feed(FINISHED)
    reader.end()
    reader.end()
    assert reader.rules == ["RUN-3"]


# Values from a program


def test_a_plain_event_is_copied() -> None:
    raw = event("STATE_SNAPSHOT", snapshot={"a": [1]}, metadata={"k": [1]})
    reader = Reader()
    (made,) = reader.feed(raw)
    raw["snapshot"]["a"].append(2)
    raw["metadata"]["k"].append(2)
    assert reader.conversation.state == {"a": [1]}
    assert json.loads(encode(made)) == event(
        "STATE_SNAPSHOT", snapshot={"a": [1]}, metadata={"k": [1]}
    )
    assert "type" in raw


def test_a_typed_event_is_copied() -> None:
    value: Json = {"a": [1]}
    reader = Reader()
    reader.feed(StateSnapshotEvent(snapshot=value))
    value["a"].append(2)
    assert reader.conversation.state == {"a": [1]}


def test_members_of_an_enum_are_their_text() -> None:
    reader = Reader()
    assert reader.feed({"type": EventType.CUSTOM, "name": "n", "value": EventType.RAW}) == [
        CustomEvent(name="n", value="RAW")
    ]


ODD: Final[Any] = 5
_around: Final[list[Any]] = []
_around.append(_around)


@pytest.mark.parametrize(
    ("made", "path"),
    [
        (CustomEvent(name=ODD, value=1), "/name"),
        (TextMessageStartEvent(message_id="m", role=ODD), "/role"),
        (event("CUSTOM", name="n"), "/value"),
        (event("CUSTOM", name="n", value=1, timestamp=True), "/timestamp"),
        *((event("CUSTOM", name="n", value=odd), "") for odd in (float("nan"), b"x", {1}, {1: 2})),
        *((CustomEvent(name="n", value=odd), "") for odd in (float("inf"), b"x", {1: 2})),
        pytest.param(CustomEvent(name="n", value=object()), "", id="object"),
        (event("CUSTOM", name="n", value=_around), ""),
        (CustomEvent(name="n", value=_around), ""),
        ({5: 1}, ""),
        (UserMessage(id="u", content="x"), "/type"),
    ],
    ids=repr,
)
def test_what_a_program_gives_is_judged(made: Any, path: str) -> None:
    """PROC-3."""
    reader = Reader()
    with pytest.raises(MalformedEvent) as caught:
        reader.feed(made)
    assert (caught.value.path, caught.value.rule, caught.value.index) == (path, "PROC-3", 1)


@pytest.mark.parametrize("made", [None, 5, "RAW", b"x", [STARTED], True, (), object()])
def test_what_is_no_event_at_all(made: Any) -> None:
    """EVT-1."""
    with pytest.raises(ProtocolViolation):
        Reader().feed(made)


def test_unpaired_halves_in_names_are_unknown_names() -> None:
    """PROC-1, PROC-2."""
    reader = Reader()
    assert reader.feed({"type": "\ud83e"}) == []
    assert len(reader.feed(event("CUSTOM", name="n", value=1, **{"\ud83e": 1}))) == 1
    assert reader.feed(event("TEXT_MESSAGE_START", messageId="m", role="\ud83e")) == [
        TextMessageStartEvent(message_id="m")
    ]
    assert reader.rules == ["PROC-1", "PROC-2", "PROC-2"]


# Limits


@pytest.mark.parametrize("by_bytes", [True, False])
def test_depth_is_limited(by_bytes: bool) -> None:
    def feed(reader: Reader, value: Any, **more: Any) -> None:
        raw = event("CUSTOM", name="n", value=value, **more)
        if by_bytes:
            reader.read(frame(raw))
        else:
            reader.feed(raw)

    feed(Reader(max_depth=4), [[[1]]])
    value: Any
    for value in ([[[[1]]]], [[[{}]]]):
        with pytest.raises(ProtocolViolation, match="nests"):
            feed(Reader(max_depth=4), value)
    deep: Any = 1
    for _ in range(254):
        deep = [deep]
    feed(Reader(), deep)
    with pytest.raises(ProtocolViolation, match="nests"):
        feed(Reader(), [[deep]])
    with pytest.raises(ProtocolViolation, match="nests"):
        feed(Reader(), 1, newer=[[deep]])  # in what would be stripped, too


def test_a_large_event_within_the_limits() -> None:
    reader = Reader()
    reader.read(frame(event("CUSTOM", name="n", value=[{"k": "[{" * 1000}] * 1000)))
    assert reader.delivered[-1].type == "CUSTOM"


# What it is made with


def test_what_the_thread_holds() -> None:
    held: list[Any] = [UserMessage(id="u", content="x")]
    request = RunAgentInput(thread_id="t", run_id="r", messages=held)
    for options in (
        {"input": request},
        {"input": msgspec.to_builtins(request)},
        {"messages": held},
        {"messages": [{"role": "user", "id": "u", "content": "x"}]},
        {"input": {**msgspec.to_builtins(request), "messages": []}, "messages": held},
    ):
        reader = Reader(**options)
        assert reader.conversation.messages == held
        assert not reader.warnings
    reader = Reader(input=request, messages=[AssistantMessage(id="a")])
    assert reader.conversation.messages == [AssistantMessage(id="a")]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"input": {"threadId": "t"}}, "/runId"),
        ({"input": 5}, ""),
        ({"messages": [{"role": "user", "id": 5, "content": "x"}]}, "/messages/0/id"),
        ({"messages": [5]}, "/messages/0"),
        ({"messages": [CustomEvent(name="n", value=1)]}, "/messages/0/role"),
    ],
)
def test_what_it_is_made_with_is_judged(options: Json, path: str) -> None:
    """PROC-11."""
    with pytest.raises(InvalidInput) as caught:
        Consumer(**options)
    assert caught.value.path == path


def test_what_is_unknown_in_it_is_stripped_with_a_warning() -> None:
    """PROC-11."""
    warnings: list[ProtocolWarning] = []
    consumer = Consumer(
        {"threadId": "t", "runId": "r", "messages": [], "newer": 1},
        messages=[{"role": "narrator"}],
        on_warning=warnings.append,
    )
    assert [(w.rule, w.path, w.index) for w in warnings] == [
        ("PROC-2", "/newer", None),
        ("PROC-2", "/messages/0", None),
    ]
    assert consumer.conversation.messages == []


@pytest.mark.parametrize(
    "content_type", ["text/event-stream", "Text/Event-Stream; charset=utf-8", " text/event-stream "]
)
def test_content_types_that_it_reads(content_type: str) -> None:
    """HTTP-2."""
    assert list(Consumer(content_type=content_type).receive(frame(STARTED)))


@pytest.mark.parametrize(
    "content_type", ["text/html", "", "application/json", "text/event-streams"]
)
def test_content_types_that_it_does_not_read(content_type: str) -> None:
    """HTTP-2."""
    with pytest.raises(ValueError, match="can't read the content type"):
        Consumer(content_type=content_type)


# Warnings


def test_warnings_are_logged_and_can_be_silenced(caplog: pytest.LogCaptureFixture) -> None:
    """PROC-1: and reach `on_warning` either way."""
    warnings: list[ProtocolWarning] = []
    consumer = Consumer(on_warning=warnings.append)
    with caplog.at_level(logging.WARNING, logger="aguia"):
        list(consumer.receive(frame(STARTED, {"type": "NEW\nline\x1b[0m"})))
    (record,) = caplog.records
    assert record.name == "aguia"
    assert record.getMessage().startswith(
        r"dropped an event of the unknown type 'NEW\nline\x1b[0m'"
    )
    caplog.clear()
    with caplog.at_level(logging.ERROR, logger="aguia"):
        list(consumer.receive(frame({"type": "NEW"})))
    assert not caplog.records
    assert [(w.rule, w.index, w.stage) for w in warnings] == [
        ("PROC-1", 1, "enforcement"),
        ("PROC-1", 2, "enforcement"),
    ]
    list(Consumer().receive(frame(STARTED, {"type": "NEW"})))


def test_warnings_of_every_stage_carry_the_index() -> None:
    reader = Reader(started=False)
    reader.read(
        frame(
            {**STARTED, "protocolVersion": "9.9"},
            event("CUSTOM", name="n", value=1, newer=1),
            event("STATE_DELTA", delta=[{"op": "remove", "path": "/x"}]),
            FINISHED,
            {**STARTED, "threadId": "u"},
        )
    )
    assert [(w.index, w.stage, w.rule) for w in reader.warnings] == [
        (0, "compatibility", "VER-2"),
        (1, "enforcement", "PROC-2"),
        (2, "conversation", "STATE-4"),
        (4, "verification", "RUN-3"),
    ]
    assert [w.path for w in reader.warnings] == [
        *("/protocolVersion", "/newer", "/delta/0", "/threadId"),
    ]


def test_events_are_counted_whatever_becomes_of_them() -> None:
    reader = Reader(started=False)
    reader.read(frame(STARTED, {"type": "NEW"}, event("TEXT_MESSAGE_CHUNK", messageId="m")))
    reader.read(b": comment\n\ndata:\n\n")
    with pytest.raises(ProtocolViolation) as caught:
        reader.read(frame(event("TEXT_MESSAGE_CHUNK", messageId=5)))
    assert caught.value.index == 3


# Whatever comes


def survive(data: bytes, rng: random.Random) -> None:
    """Read a body in random pieces: nothing but this package's errors may come of it."""
    consumer = Consumer(max_event_bytes=100_000)
    begin = 0
    try:
        while begin < len(data):
            stop = begin + rng.choice([1, 10, 100, 10_000])
            for _ in consumer.receive(data[begin:stop]):
                pass
            begin = stop
        for _ in consumer.end():
            pass
    except AguiaError as error:
        said = str(error)
        assert said.isprintable()
    encode(list(consumer.conversation.messages))
    encode(consumer.conversation.state)
    assert consumer.conversation.pending_tool_calls is not None


@pytest.mark.unmeasured
@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200), st.randoms(use_true_random=False))
def test_random_bytes_do_no_harm(data: bytes, rng: random.Random) -> None:
    survive(data, rng)
    survive(b"data: " + data + b"\n\n", rng)
    survive(frame(STARTED) + b"data: " + data.replace(b"\n", b"") + b"\n\n", rng)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_streams_do_no_harm(seed: int) -> None:
    """PROC-3: bytes flipped, removed, repeated and swapped; events dropped and reordered."""
    rng = random.Random(seed)
    for _ in range(15):
        events = list(CONVERSATION)
        for _ in range(rng.randrange(4)):
            place = rng.randrange(len(events))
            match rng.randrange(4):
                case 0:
                    del events[place]
                case 1:
                    events.insert(rng.randrange(len(events)), events[place])
                case 2:
                    rng.shuffle(events)
                case _:
                    name = rng.choice([*ODD_NAMES, *events[place]])
                    odd: Any = rng.choice([None, 1, -1.5, "x", [], {}, True, "\ud83e", [[]], 2**60])
                    events[place] = {**events[place], name: odd}
        body = bytearray(frame(*events))
        for _ in range(rng.randrange(4)):
            place = rng.randrange(len(body))
            match rng.randrange(4):
                case 0:
                    body[place] = rng.randrange(256)
                case 1:
                    del body[place : place + rng.randrange(30)]
                case 2:
                    body[place:place] = body[place : place + rng.randrange(30)]
                case _:
                    body[place:place] = rng.choice(
                        [b"\n", b"\r", b"\xff", b'"', b"{", b"\\u", b"]"]
                    )
        survive(bytes(body), rng)


@pytest.mark.unmeasured
@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(CONVERSATION), max_size=12), st.data())
def test_events_in_any_order_do_no_harm(events: list[Json], data: st.DataObject) -> None:
    """A violation is told the same by bytes and by values."""
    outcomes: list[Any] = []
    for by_bytes in (True, False):
        reader = Reader(started=False)
        try:
            if by_bytes:
                reader.read(frame(STARTED, *events))
            else:
                reader.feed(STARTED, *events)
            reader.end()
        except AguiaError as error:
            outcomes.append((type(error), str(error), outcome_of(reader)))
        else:
            outcomes.append((None, "", outcome_of(reader)))
    assert outcomes[0] == outcomes[1]


def test_a_run_can_be_read_event_by_event_without_a_start() -> None:
    """RUN-1."""
    reader = Reader(started=False)
    with pytest.raises(SequenceViolation):
        reader.feed(event("CUSTOM", name="n", value=1))
    assert isinstance(Reader().delivered[0], RunStartedEvent)


def test_a_body_is_bytes_of_any_kind_and_nothing_else() -> None:
    frame = b'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n'
    for body in (frame, bytearray(frame), memoryview(frame)):
        assert [event.type for event in Consumer().receive(body)] == ["RUN_STARTED"]
    with pytest.raises(TypeError, match="a body is bytes, not str"):
        Consumer().receive(frame.decode())  # type: ignore[arg-type]
