"""Middleware: what it sees, in which order it runs, and that what it returns is judged."""

from collections.abc import Iterator
from typing import Any

import pytest

from aguia import (
    Consumer,
    CustomEvent,
    MalformedEvent,
    RawEvent,
    RunStartedEvent,
    TextMessageContentEvent,
)
from aguia.pipeline.middleware import run_middleware
from support_events import FINISHED, STARTED, Reader, event, frame

ODD: Any = 5
CUSTOM = event("CUSTOM", name="n", value=1)


def test_without_any_an_event_passes() -> None:
    made = CustomEvent(name="n", value=1)
    assert run_middleware((), made) == [made]


def test_each_gets_what_the_one_before_it_gave() -> None:
    """PROC-7."""
    seen: list[Any] = []

    def first(item: Any) -> Any:
        seen.append(("first", item))
        return [item, {"type": "B"}]

    def second(item: Any) -> Any:
        seen.append(("second", item))
        return None if item == {"type": "B"} else item

    assert run_middleware((first, second), {"type": "A"}) == [{"type": "A"}]
    assert seen == [("first", {"type": "A"}), ("second", {"type": "A"}), ("second", {"type": "B"})]


def test_it_may_be_a_generator() -> None:
    def twice(item: Any) -> Iterator[Any]:
        yield item
        yield item

    assert run_middleware((twice, twice), {"type": "A"}) == [{"type": "A"}] * 4
    assert run_middleware((lambda _: (), twice), {"type": "A"}) == []


@pytest.mark.parametrize("result", [5, "CUSTOM", b"x", True, object()])
def test_what_is_no_event_is_a_clear_error(result: Any) -> None:
    with pytest.raises(TypeError, match="returned .*expected an event"):
        run_middleware((lambda _: result,), {"type": "A"})


def test_it_sees_typed_events_and_raw_ones_before_anything_is_removed() -> None:
    """PROC-7."""
    seen: list[Any] = []

    def look(item: Any) -> Any:
        seen.append(item)
        return item

    raw = {**CUSTOM, "new": {"a": 1}}
    reader = Reader(middleware=[look])
    seen.clear()
    assert reader.feed(CUSTOM, raw, {"type": "NEW"}) == [CustomEvent(name="n", value=1)] * 2
    assert seen == [CustomEvent(name="n", value=1), raw, {"type": "NEW"}]
    assert reader.rules == ["PROC-2", "PROC-1"]
    seen.clear()
    reader = Reader(middleware=[look])
    assert reader.read(frame(CUSTOM, raw)) == [CustomEvent(name="n", value=1)] * 2
    assert seen[1:] == [CustomEvent(name="n", value=1), raw]


def test_it_sees_chunks_before_they_are_expanded() -> None:
    """PROC-7, CHUNK-1."""
    seen: list[str] = []

    def look(item: Any) -> Any:
        seen.append(item.type)
        return item

    reader = Reader(middleware=[look])
    reader.feed(event("TEXT_MESSAGE_CHUNK", messageId="m", delta="x"), FINISHED)
    assert seen == ["RUN_STARTED", "TEXT_MESSAGE_CHUNK", "RUN_FINISHED"]
    assert [each.type for each in reader.delivered] == [
        *("RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        "RUN_FINISHED",
    ]


def test_it_can_translate_what_enforcement_would_drop() -> None:
    """PROC-7."""

    def translate(item: Any) -> Any:
        if isinstance(item, dict) and item.get("type") == "OLD":
            return {"type": "CUSTOM", "name": "old", "value": item["payload"]}
        return item

    reader = Reader(middleware=[translate])
    assert reader.feed({"type": "OLD", "payload": [1]}) == [CustomEvent(name="old", value=[1])]
    assert not reader.warnings


def test_it_can_drop_and_add() -> None:
    reader = Reader(
        started=False,
        middleware=[
            lambda item: (
                [item, CustomEvent(name="hello", value=None)]
                if isinstance(item, RunStartedEvent)
                else None
                if isinstance(item, RawEvent)
                else item
            )
        ],
    )
    assert len(reader.feed(STARTED, event("RAW", event=1), FINISHED)) == 3


@pytest.mark.parametrize(
    ("made", "path"),
    [
        ({"type": "CUSTOM", "name": "n"}, "/value"),
        ({"type": "CUSTOM", "name": 5, "value": 1}, "/name"),
        (CustomEvent(name=ODD, value=1), "/name"),
        (TextMessageContentEvent(message_id="m", delta=ODD), "/delta"),
        ({"type": "CUSTOM", "name": "n", "value": float("nan")}, ""),
        ({"type": "CUSTOM", "name": "n", "value": {1, 2}}, ""),
        (CustomEvent(name="n", value=b"x"), ""),
        ({}, "/type"),
    ],
)
def test_what_it_returns_is_judged(made: Any, path: str) -> None:
    """PROC-3, PROC-7."""
    reader = Reader(middleware=[lambda item: made if item.type == "CUSTOM" else item])
    with pytest.raises(MalformedEvent) as caught:
        reader.feed(CUSTOM)
    assert caught.value.path == path
    assert caught.value.index == 1


def test_what_it_returns_is_stripped() -> None:
    """PROC-2."""
    reader = Reader(
        middleware=[lambda item: {**CUSTOM, "new": 1} if item.type == "CUSTOM" else item]
    )
    assert reader.feed(CUSTOM) == [CustomEvent(name="n", value=1)]
    assert [warning.path for warning in reader.warnings] == ["/new"]


def test_what_it_keeps_it_may_change_later() -> None:
    held: dict[str, Any] = {"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}}
    reader = Reader(middleware=[lambda item: held if item.type == "CUSTOM" else item])
    reader.feed(CUSTOM)
    held["snapshot"]["a"] = 2
    assert reader.conversation.state == {"a": 1}


def test_several_events_of_one_keep_its_index() -> None:
    reader = Reader(
        middleware=[lambda item: [item, {"type": "NEW"}, item] if item.type == "CUSTOM" else item]
    )
    assert len(reader.feed(CUSTOM)) == 2
    assert [(warning.rule, warning.index) for warning in reader.warnings] == [("PROC-1", 1)]


def test_a_stream_that_lost_an_event_to_a_failure_does_not_go_on() -> None:
    """PROC-7, RUN-8: what middleware failed on is lost, and success is not reported after it."""

    def fails(event: object) -> None:
        raise RuntimeError("broken middleware")

    consumer = Consumer(middleware=[fails])
    with pytest.raises(RuntimeError, match="broken middleware"):
        list(consumer.receive_event({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken middleware"):
            list(consumer.receive_event({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}))
        with pytest.raises(RuntimeError, match="broken middleware"):
            list(consumer.end())
    assert consumer.conversation.outcome is None
