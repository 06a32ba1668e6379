"""`compact`: fewer events, the same conversation."""

import json
import logging
from collections.abc import Iterable
from random import Random
from typing import Any

import msgspec
import pytest

from aguia import (
    UNSET,
    Consumer,
    Event,
    MalformedEvent,
    ProtocolViolation,
    ProtocolWarning,
    SequenceViolation,
    compact,
)
from support_events import FINISHED, STARTED, event
from support_streams import Case, broken, well_formed


def compacted(*events: Any) -> list[dict[str, Any]]:
    """What a run of these events becomes, without its first and last event."""
    result = compact([STARTED, *events, FINISHED])
    return [msgspec.to_builtins(each) for each in result[1:-1]]


def read(case_input: Any, events: Iterable[Any], *, end: bool = True) -> tuple[list[Any], Any]:
    """What a consumer delivers, and all that its conversation says afterwards."""
    consumer = Consumer(case_input)
    delivered = [each for event_ in events for each in consumer.receive_event(event_)]
    if end:
        delivered += consumer.end()
    held = consumer.conversation
    return delivered, msgspec.to_builtins(
        {
            "messages": list(held.messages),
            "state": held.state,
            "outcome": held.outcome,
            "error": held.error,
            "result": None if held.result is UNSET else held.result,
            "usage": held.usage,
            "pending": held.pending_tool_calls,
            "interrupts": held.interrupts,
            "run": [held.thread_id, held.run_id],
        }
    )


# Deltas


def text(delta: str, id_: str = "m", **members: Any) -> dict[str, Any]:
    return event("TEXT_MESSAGE_CONTENT", messageId=id_, delta=delta, **members)


def start(id_: str = "m", **members: Any) -> dict[str, Any]:
    return event("TEXT_MESSAGE_START", messageId=id_, **members)


def end(id_: str = "m", **members: Any) -> dict[str, Any]:
    return event("TEXT_MESSAGE_END", messageId=id_, **members)


def custom(**members: Any) -> dict[str, Any]:
    return event("CUSTOM", name="n", value=1, **members)


def test_deltas_of_one_item_become_one() -> None:
    """STREAM-2: for text, reasoning and arguments alike."""
    reasoning = event("REASONING_MESSAGE_START", messageId="r", role="reasoning")
    call = event("TOOL_CALL_START", toolCallId="c", toolCallName="f")
    assert compacted(
        start(),
        text("a"),
        text("b"),
        text("c"),
        end(),
        reasoning,
        event("REASONING_MESSAGE_CONTENT", messageId="r", delta="d"),
        event("REASONING_MESSAGE_CONTENT", messageId="r", delta="e"),
        event("REASONING_MESSAGE_END", messageId="r"),
        call,
        event("TOOL_CALL_ARGS", toolCallId="c", delta='{"a"'),
        event("TOOL_CALL_ARGS", toolCallId="c", delta=":1}"),
        event("TOOL_CALL_END", toolCallId="c"),
    ) == [
        start(),
        text("abc"),
        end(),
        reasoning,
        event("REASONING_MESSAGE_CONTENT", messageId="r", delta="de"),
        event("REASONING_MESSAGE_END", messageId="r"),
        call,
        event("TOOL_CALL_ARGS", toolCallId="c", delta='{"a":1}'),
        event("TOOL_CALL_END", toolCallId="c"),
    ]


def test_items_that_interleave_are_each_joined_where_they_began() -> None:
    """STREAM-3: all else keeps its place."""
    assert compacted(
        start("m"), start("n"), text("1"), custom(), text("x", "n"), text("2"), text("y", "n")
    ) == [start("m"), start("n"), text("12"), custom(), text("xy", "n")]


def test_metadata_is_that_of_all_the_last_write_winning() -> None:
    """META-1."""
    assert compacted(
        start(),
        text("a", metadata={"k": 1, "l": 1}),
        text("b"),
        text("c", metadata={"k": 2}),
        end(metadata={"k": 3}),
    ) == [start(), text("abc", metadata={"k": 2, "l": 1}), end(metadata={"k": 3})]


def test_of_raw_events_the_only_one_is_kept() -> None:
    """EVT-3."""
    assert compacted(start(), text("a"), text("b", rawEvent=1), text("c"), end())[1] == text(
        "abc", rawEvent=1
    )
    for count in (2, 3):
        deltas = [text("a", rawEvent=each) for each in range(1, count + 1)]
        assert compacted(start(), *deltas, end())[1] == text("a" * count)
    assert compacted(custom(rawEvent=1), start(rawEvent=2), end(rawEvent=3)) == [
        custom(rawEvent=1),
        start(rawEvent=2),
        end(rawEvent=3),
    ]


def test_a_message_that_is_restated_in_between_is_not_joined_across_it() -> None:
    """MSG-1."""
    restated = event(
        "MESSAGES_SNAPSHOT", messages=[{"id": "m", "role": "assistant", "content": "new"}]
    )
    events = (start(), text("a"), restated, text("b"), text("c"), end())
    assert compacted(*events) == [start(), text("a"), restated, text("bc"), end()]


def test_an_item_that_is_opened_again_stays_in_two_pieces() -> None:
    """STREAM-4."""
    events = (start(), text("a"), end(), start(), text("b"), end())
    assert compacted(*events) == [*events]


def test_an_empty_delta_is_still_there() -> None:
    """STREAM-2: it makes a message without content one with none."""
    assert compacted(start(), text(""), text(""), end()) == [start(), text(""), end()]


def test_characters_that_were_cut_in_two_are_whole() -> None:
    """The halves of a surrogate pair meet in one delta."""
    (_, joined, _) = compact([start(), text("a\ud83e"), text("\udd85b"), end()])[0:3]
    assert joined == msgspec.convert(text("a🦅b"), Event)
    (_, alone, _) = compact([start(), text("a\ud83e"), text("b"), end()])[0:3]
    assert alone.delta == "a\ud83eb"  # type: ignore[union-attr]


# Chunks


def chunk(**members: Any) -> dict[str, Any]:
    return event("TEXT_MESSAGE_CHUNK", **members)


def test_chunks_of_one_item_become_one() -> None:
    """CHUNK-1, CHUNK-3: a whole message in a single event."""
    assert compacted(
        chunk(messageId="m", role="user", timestamp=5), chunk(delta="a"), chunk(delta="b")
    ) == [chunk(messageId="m", role="user", delta="ab", timestamp=5)]
    assert compacted(
        event("TOOL_CALL_CHUNK", toolCallId="c", toolCallName="f", metadata={"a": 1}),
        event("RAW", event=1),
        event("TOOL_CALL_CHUNK", delta="{", metadata={"b": 2}),
        event("TOOL_CALL_CHUNK", toolCallId="c", delta="}"),
    ) == [
        event(
            "TOOL_CALL_CHUNK",
            toolCallId="c",
            toolCallName="f",
            delta="{}",
            metadata={"a": 1, "b": 2},
        ),
        event("RAW", event=1),
    ]


def test_a_chunk_that_adds_nothing_goes() -> None:
    """CHUNK-10."""
    assert compacted(chunk(messageId="m", delta="a"), chunk(), chunk(messageId="m")) == [
        chunk(messageId="m", delta="a")
    ]


def test_what_a_chunk_continues_is_named_where_it_can_no_longer_be_told() -> None:
    """CHUNK-7."""
    odd = event("ACTIVITY_SNAPSHOT", messageId="m", activityType="A", content={}, subagentRunId="s")
    assert compacted(chunk(messageId="m", delta="a", subagentRunId="s"), odd, chunk(delta="b")) == [
        chunk(messageId="m", delta="a", subagentRunId="s"),
        odd,
        chunk(messageId="m", delta="b", subagentRunId="s"),
    ]


def test_the_event_that_ends_a_chunk_stream_stays_where_it_matters() -> None:
    """CHUNK-4, CHUNK-5: the second opening names another tool, and may not become a chunk."""
    call = event("TOOL_CALL_CHUNK", toolCallId="c", toolCallName="f", delta="a")
    other = {**call, "toolCallName": "g"}
    first, second = (
        event("STATE_DELTA", delta=[{"op": "add", "path": "/a", "value": value}])
        for value in (1, 2)
    )
    whole = event("STATE_SNAPSHOT", snapshot={})
    events = (whole, first, call, second, other)
    assert compacted(*events) == [
        {**whole, "snapshot": {"a": 1}},
        call,
        second,
        other,
    ]
    assert compacted(whole, first, call, second) == [{**whole, "snapshot": {"a": 2}}, call]


def test_chunks_that_a_consumer_would_refuse_are_refused() -> None:
    """CHUNK-2."""
    with pytest.raises(SequenceViolation):
        compacted(chunk(delta="a"))


# State


def snapshot(value: Any, **members: Any) -> dict[str, Any]:
    return event("STATE_SNAPSHOT", snapshot=value, **members)


def patch(*operations: tuple[Any, ...], **members: Any) -> dict[str, Any]:
    names = ("op", "path", "value")
    delta = [dict(zip(names, operation, strict=False)) for operation in operations]
    return event("STATE_DELTA", delta=delta, **members)


def test_deltas_are_folded_into_the_snapshot_before_them() -> None:
    """STATE-2."""
    assert compacted(
        snapshot({"a": 1, "b": [1]}),
        patch(("replace", "/a", 2)),
        custom(),
        patch(("add", "/b/-", 2), ("remove", "/a")),
    ) == [snapshot({"b": [1, 2]}), custom()]


def test_a_snapshot_drops_what_came_before_it() -> None:
    """STATE-1: also deltas whose base is not known."""
    assert compacted(
        patch(("add", "/a", 1)), snapshot(1), custom(), patch(("replace", "", 2)), snapshot(None)
    ) == [custom(), snapshot(None)]


def test_deltas_without_a_known_base_stay_as_they_are() -> None:
    """STATE-5: a snapshot would claim to know what nobody has said."""
    events = (patch(("add", "/a", 1)), patch(("add", "/b", 2)))
    assert compacted(*events) == [*events]


def test_deltas_of_a_later_run_are_joined_and_stay_deltas() -> None:
    """RUN-12: the state persists, and what it is has been said in the run before."""
    runs = [
        *(STARTED, snapshot({"a": 1}), FINISHED),
        *(STARTED, patch(("add", "/b", 1)), patch(("add", "/c", 1)), FINISHED),
    ]
    assert [msgspec.to_builtins(each) for each in compact(runs)] == [
        *(STARTED, snapshot({"a": 1}), FINISHED),
        *(STARTED, patch(("add", "/b", 1), ("add", "/c", 1)), FINISHED),
    ]


def test_a_patch_that_does_not_apply_keeps_its_place_and_its_failure() -> None:
    """STATE-4: what comes after it may well have made it apply."""
    failing = patch(("test", "/a", 2))
    events = (
        snapshot({"a": 0}),
        patch(("replace", "/a", 1)),
        failing,
        patch(("replace", "/a", 2)),
        patch(("add", "/b", 3)),
    )
    assert compacted(*events) == [
        snapshot({"a": 1}),
        failing,
        patch(("replace", "/a", 2), ("add", "/b", 3)),
    ]
    assert compacted(snapshot(1), failing, snapshot(2)) == [snapshot(2)]


def test_patches_that_copy_are_not_joined() -> None:
    """How much one patch may copy is limited."""
    copies = event("STATE_DELTA", delta=[{"op": "copy", "from": "/a", "path": "/b"}])
    later = [STARTED, copies, patch(("add", "/c", 1)), copies, FINISHED]
    result = compact([STARTED, snapshot({"a": 1}), FINISHED, *later])
    assert [msgspec.to_builtins(each) for each in result[3:]] == later


def test_what_changes_of_several_make_is_attributed_to_nobody() -> None:
    """STATE-6."""
    assert compacted(
        snapshot({}, subagentRunId="s"), patch(("add", "/a", 1), subagentRunId="s")
    ) == [snapshot({"a": 1}, subagentRunId="s")]
    assert compacted(snapshot({}, subagentRunId="s"), patch(("add", "/a", 1))) == [
        snapshot({"a": 1})
    ]


def test_the_events_that_went_in_are_not_changed() -> None:
    given = [STARTED, snapshot({"a": [1]}), patch(("add", "/a/-", 2)), FINISHED]
    typed = [msgspec.convert(each, Event) for each in given]
    before = json.dumps(given)
    compact(given)
    compact(typed)
    assert json.dumps(given) == before
    assert [msgspec.to_builtins(each) for each in typed] == given


# Activity


def activity(content: Any, **members: Any) -> dict[str, Any]:
    return event(
        "ACTIVITY_SNAPSHOT", messageId="m", **{"activityType": "A", **members}, content=content
    )


def activity_patch(*operations: tuple[Any, ...], **members: Any) -> dict[str, Any]:
    names = ("op", "path", "value")
    delta = [dict(zip(names, operation, strict=False)) for operation in operations]
    return event("ACTIVITY_DELTA", messageId="m", **{"activityType": "A", **members}, patch=delta)


def test_activity_is_folded_into_its_snapshot() -> None:
    """ACT-1, ACT-2, ACT-3: content and type are the last ones, metadata that of all."""
    assert compacted(
        activity({"n": 0}, metadata={"a": 1}),
        activity_patch(("replace", "/n", 1), activityType="B"),
        custom(),
        activity({"n": 2}, metadata={"b": 2}),
        activity({"n": 9}, replace=False, metadata={"a": 3}),
        activity_patch(("add", "/m", 3), activityType="C"),
    ) == [activity({"n": 2, "m": 3}, activityType="C", metadata={"a": 3, "b": 2}), custom()]


def test_activity_of_which_nothing_is_known_stays() -> None:
    """ACT-1, ACT-3."""
    events = (
        activity_patch(("replace", "/n", 1)),
        activity({"n": 0}, replace=False),
        activity_patch(("replace", "/n", 2)),
        activity_patch(("replace", "/n", 3)),
    )
    assert compacted(*events) == [*events]


def test_a_patch_of_an_activity_that_does_not_apply_keeps_its_place() -> None:
    """ACT-3, STATE-4: its metadata counts all the same."""
    failing = activity_patch(("test", "/n", 5), metadata={"a": 1})
    not_an_object = activity_patch(("replace", "", 5))
    events = (activity({"n": 0}), failing, not_an_object, activity_patch(("replace", "/n", 5)))
    assert compacted(*events) == [*events]


def test_an_activity_that_changes_hands_stays_in_two_events() -> None:
    """ACT-2: the tag may not come before the subagent is announced."""
    events = (
        activity({"n": 0}),
        event("SUBAGENT_STARTED", subagentRunId="s", name="helper"),
        activity({"n": 1}, subagentRunId="s"),
        event("SUBAGENT_FINISHED", subagentRunId="s"),
    )
    assert compacted(*events) == [*events]


def test_a_restated_activity_is_known_again() -> None:
    """MSG-1."""
    restated = event(
        "MESSAGES_SNAPSHOT",
        messages=[{"id": "m", "role": "activity", "activityType": "A", "content": {"n": 7}}],
    )
    one, two = activity_patch(("add", "/a", 1)), activity_patch(("add", "/b", 2))
    assert compacted(activity({"n": 0}), restated, one, two) == [
        activity({"n": 0}),
        restated,
        activity_patch(("add", "/a", 1), ("add", "/b", 2)),
    ]
    copies = event(
        "ACTIVITY_DELTA",
        messageId="m",
        activityType="A",
        patch=[{"op": "copy", "from": "/n", "path": "/o"}],
    )
    assert compacted(restated, one, copies, two) == [restated, one, copies, two]


# Whole streams


def test_a_run_that_failed_with_everything_open() -> None:
    """RUN-7."""
    failed = event("RUN_ERROR", message="broke")
    events = [STARTED, start(), text("a"), text("b"), custom(), text("c"), failed]
    assert [msgspec.to_builtins(each) for each in compact(events)] == [
        *(STARTED, start(), text("abc"), custom(), failed)
    ]


def test_nothing_is_nothing() -> None:
    assert compact([]) == []


def test_what_the_protocol_does_not_describe_is_left_out_and_said_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """PROC-1, PROC-2."""
    warnings: list[ProtocolWarning] = []
    with caplog.at_level(logging.WARNING, "aguia"):
        result = compact([{"type": "NEW"}, custom(new=1)], on_warning=warnings.append)
    assert [msgspec.to_builtins(each) for each in result] == [custom()]
    assert [warning.rule for warning in warnings] == ["PROC-1", "PROC-2"]
    assert len(caplog.records) == 2


def test_what_is_no_event_is_refused() -> None:
    """PROC-3."""
    with pytest.raises(MalformedEvent, match="/delta"):
        compact([text(5)])  # type: ignore[arg-type]


def _is_compacted_well(case: Case, *, end: bool) -> None:
    """The same conversation from no more events, and nothing left to do."""
    delivered, wanted = read(case.input, case.events, end=end)
    for given in (case.events, delivered):
        result = compact(given)
        assert len(result) <= len(given)
        assert read(case.input, result, end=end)[1] == wanted
        assert compact(result) == result
        plain = [msgspec.to_builtins(each) for each in result]
        assert read(case.input, plain, end=end)[1] == wanted


@pytest.mark.unmeasured
@pytest.mark.parametrize("seed", range(250))
def test_a_conformant_stream(seed: int) -> None:
    """RUN-12 and all else: one to three runs, failed ones among them, in every form."""
    _is_compacted_well(well_formed(seed), end=True)


@pytest.mark.unmeasured
@pytest.mark.parametrize("seed", range(150))
def test_a_stream_that_was_cut_off(seed: int) -> None:
    """RUN-11."""
    case = well_formed(seed)
    cut = Random(seed).randrange(1, len(case.events))
    _is_compacted_well(Case(case.name, case.input, case.events[:cut]), end=False)


@pytest.mark.unmeasured
@pytest.mark.parametrize("seed", range(150))
def test_what_was_delivered_of_a_rejected_stream(seed: int) -> None:
    case = broken(well_formed(seed), seed)
    delivered: list[Event] = []
    consumer = Consumer(case.input)
    try:
        for each in case.events:
            delivered += consumer.receive_event(each)
    except ProtocolViolation:
        pass
    plain = [msgspec.to_builtins(each) for each in delivered]
    _is_compacted_well(Case(case.name, case.input, plain), end=False)


@pytest.mark.unmeasured
def test_a_long_message_takes_one_pass() -> None:
    """Sixteen thousand deltas, in a time that grows with them and not with their square."""
    deltas = [text("four", metadata={"n": number}) for number in range(16_000)]
    result = compact([STARTED, start(), *deltas, end(), FINISHED])
    assert len(result) == 5
    assert result[2].delta == "four" * 16_000  # type: ignore[union-attr]
    assert result[2].metadata == {"n": 15_999}
