"""The writing side without a loop: intentions in, only conforming events out."""

import re
from typing import Any

import pytest

from aguia import Consumer, MalformedEvent, SequenceViolation, TokenUsage
from aguia.conversation.patch import PatchError
from aguia.pipeline.verification import Family, OpenItem
from aguia.producer import Producer
from aguia.protocol.common import UNSET
from aguia.protocol.events import (
    CustomEvent,
    Event,
    RunFinishedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepStartedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguia.protocol.outcomes import (
    Interrupt,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
)
from support_runs import plain, run_input


class Writer:
    """A producer, and a strict reader of all that comes out of it."""

    def __init__(self, **members: Any) -> None:
        self.input = run_input(**members)
        self.producer = Producer(self.input)
        self.warnings: list[Any] = []
        self.consumer = Consumer(self.input, on_warning=self.warnings.append)
        self.events: list[dict[str, Any]] = []
        self.take(self.producer.start())

    def take(self, events: list[Event]) -> list[str]:
        """Read events, and return their types."""
        for event in events:
            self.events.append(plain(event))
            list(self.consumer.receive_event(event))
        assert self.warnings == []
        return [event.type for event in events]

    def end(self) -> None:
        """The reader is content, and holds the state that the producer has."""
        list(self.consumer.end())
        assert self.consumer.conversation.state == self.producer.state


def custom() -> Event:
    return CustomEvent(name="com.example.x", value=1)


def test_a_run_from_start_to_finish() -> None:
    """RUN-1, RUN-2, VER-1, EVT-4."""
    writer = Writer(state={"a": 1})
    assert writer.take(writer.producer.emit(custom())) == ["CUSTOM"]
    assert not writer.producer.ended
    assert writer.take(writer.producer.finish(result={"a": None})) == ["RUN_FINISHED"]
    assert writer.producer.ended
    writer.end()
    assert writer.events[0]["protocolVersion"] == "1.0"
    assert writer.events[-1]["result"] == {"a": None}
    assert "usage" not in writer.events[-1]


def test_nothing_comes_before_the_start() -> None:
    """RUN-1."""
    producer = Producer(run_input())
    producer.state["a"] = 1
    assert producer.flush() == []
    with pytest.raises(SequenceViolation, match="RUN-1"):
        producer.emit(custom())


def test_a_run_starts_once() -> None:
    """RUN-4."""
    writer = Writer()
    with pytest.raises(SequenceViolation, match="RUN-4"):
        writer.producer.start()


def test_an_agent_that_writes_its_own_events_may_restate_the_start() -> None:
    """RUN-4: as the first thing that it says, and of the same run."""
    start = {"type": "RUN_STARTED", "threadId": "thread", "runId": "run"}
    assert Writer().producer.emit_foreign(start) == []
    for member, asked in (("runId", "run"), ("threadId", "thread")):
        said = f"its {member} 'other' is not the input's, '{asked}'.*RUN-4"
        with pytest.raises(SequenceViolation, match=said):
            Writer().producer.emit_foreign(start | {member: "other"})
    writer = Writer()
    writer.producer.emit(custom())
    with pytest.raises(SequenceViolation, match="RUN-4"):
        writer.producer.emit_foreign(start)


def test_changes_of_the_state_come_first() -> None:
    """STATE-2."""
    writer = Writer(state={"a": 1, "pad": "x" * 100})
    writer.producer.state["a"] = 2
    assert writer.take(writer.producer.emit(custom())) == ["STATE_DELTA", "CUSTOM"]
    writer.producer.state["a"] = 3
    assert writer.take(writer.producer.flush()) == ["STATE_DELTA"]
    assert writer.take(writer.producer.flush()) == []
    writer.producer.state = "short"
    assert writer.take(writer.producer.finish()) == ["STATE_SNAPSHOT", "RUN_FINISHED"]
    writer.end()


def test_changes_before_a_refused_event_are_not_lost() -> None:
    """They come out of the next call."""
    writer = Writer()
    writer.producer.state["a"] = 1
    with pytest.raises(SequenceViolation, match="STREAM-1"):
        writer.producer.emit(TextMessageContentEvent(message_id="m", delta="x"))
    writer.producer.state["b"] = 2
    kinds = writer.take(writer.producer.emit(custom()))
    assert kinds[-1] == "CUSTOM"
    assert set(kinds[:-1]) <= {"STATE_SNAPSHOT", "STATE_DELTA"}
    writer.take(writer.producer.finish())
    writer.end()


def test_explicit_state_events_and_live_changes() -> None:
    """STATE-1, STATE-2: whoever holds a part of the state goes on with it after a patch."""
    writer = Writer(state={"list": []})
    held = writer.producer.state["list"]
    patch: Any = [{"op": "add", "path": "/list/-", "value": 1}]
    writer.take(writer.producer.emit(StateDeltaEvent(delta=patch)))
    assert held == [1]
    held.append(2)
    writer.take(writer.producer.emit(StateSnapshotEvent(snapshot={"list": [9]})))
    assert writer.producer.state == {"list": [9]}
    bad: Any = [{"op": "remove", "path": "/nope"}]
    with pytest.raises(PatchError):
        writer.producer.emit(StateDeltaEvent(delta=bad))
    writer.take(writer.producer.finish())
    writer.end()


def test_a_snapshot_made_of_changes_keeps_the_state_alive() -> None:
    writer = Writer(state=dict.fromkeys("abcdefgh", 0))
    held = writer.producer.state
    for name in "abcdefgh":
        del held[name]
    assert writer.take(writer.producer.flush()) == ["STATE_SNAPSHOT"]
    held["later"] = True
    writer.take(writer.producer.finish())
    writer.end()
    assert writer.consumer.conversation.state == {"later": True}


def test_open_items_are_known_until_the_end() -> None:
    writer = Writer()
    item = OpenItem(Family.MESSAGE, "m", UNSET)
    assert not writer.producer.is_open(item)
    writer.take(writer.producer.emit(TextMessageStartEvent(message_id="m")))
    assert writer.producer.is_open(item)
    assert writer.producer.open_items() == [item]
    writer.take(writer.producer.fail("no"))
    assert not writer.producer.is_open(item)
    assert writer.producer.open_items() == []
    writer.end()


def test_a_failed_run_closes_nothing_and_tells_the_state() -> None:
    """RUN-7."""
    writer = Writer()
    writer.take(writer.producer.emit(StepStartedEvent(step_name="s")))
    writer.producer.state["a"] = 1
    usage = [TokenUsage(model="m", input_tokens=1)]
    kinds = writer.take(writer.producer.fail("Out of paper.", "paper", usage=usage))
    assert kinds == ["STATE_SNAPSHOT", "RUN_ERROR"]
    assert writer.events[-1] == {
        "type": "RUN_ERROR",
        "message": "Out of paper.",
        "code": "paper",
        "usage": [{"model": "m", "inputTokens": 1}],
    }
    writer.end()


@pytest.mark.parametrize(
    ("outcome", "last"),
    [
        (None, {"type": "SUBAGENT_FINISHED", "subagentRunId": "a"}),
        (
            RunFinishedCancelledOutcome(),
            {
                "type": "SUBAGENT_ERROR",
                "subagentRunId": "a",
                "message": "The run was cancelled.",
                "code": "cancelled",
            },
        ),
        (
            RunFinishedInterruptOutcome(interrupts=[Interrupt(id="i", reason="r")]),
            {
                "type": "SUBAGENT_FINISHED",
                "subagentRunId": "a",
                "outcome": {"type": "suspended"},
            },
        ),
    ],
)
def test_what_is_open_is_closed_before_the_finish(outcome: Any, last: dict[str, Any]) -> None:
    """RUN-5, RUN-10, SUB-2: each with the tag of its owner, the last opened first."""
    writer = Writer()
    for event in (
        SubagentStartedEvent(subagent_run_id="a", name="n"),
        StepStartedEvent(step_name="s", subagent_run_id="a"),
        TextMessageStartEvent(message_id="m", subagent_run_id="a"),
        StepStartedEvent(step_name="s"),
    ):
        writer.take(writer.producer.emit(event))
    writer.take(writer.producer.finish(outcome))
    assert writer.events[-5:-1] == [
        {"type": "STEP_FINISHED", "stepName": "s"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m", "subagentRunId": "a"},
        {"type": "STEP_FINISHED", "stepName": "s", "subagentRunId": "a"},
        last,
    ]
    writer.end()


def test_calls_without_a_result_are_pending() -> None:
    """FRONT-3: those of this run, in order, also when the result came first."""
    writer = Writer()

    def start(id_: str) -> None:
        writer.take(writer.producer.emit(ToolCallStartEvent(tool_call_id=id_, tool_call_name="f")))

    def answer(id_: str) -> None:
        result = ToolCallResultEvent(message_id=f"r-{id_}", tool_call_id=id_, content="")
        writer.take(writer.producer.emit(result))

    answer("early")
    for id_ in ("a", "b", "early", "c"):
        start(id_)
    answer("b")
    assert writer.producer.pending_tool_call_ids == ["a", "c"]
    writer.take(writer.producer.finish())
    assert writer.events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["a", "c"]}
    writer.end()


@pytest.mark.parametrize(
    "event",
    [
        CustomEvent(name="n", value=object()),
        CustomEvent(name=5, value=1),  # type: ignore[arg-type]
        StepStartedEvent(step_name=None),  # type: ignore[arg-type]
        TextMessageStartEvent(message_id="m", role="tool"),  # type: ignore[arg-type]
        TextMessageStartEvent(message_id="m", metadata=[]),  # type: ignore[arg-type]
        RunFinishedEvent(thread_id="thread", run_id="run", result=None),  # type: ignore[arg-type]  # EVT-4
    ],
)
def test_a_typed_event_with_wrong_attributes_is_refused(event: Event) -> None:
    writer = Writer()
    with pytest.raises(MalformedEvent):
        writer.producer.emit(event)
    writer.take(writer.producer.finish())
    writer.end()


@pytest.mark.parametrize(
    "ending",
    [
        {"result": object()},
        {"result": None},  # EVT-4
        {"usage": [TokenUsage(input_tokens=-1)]},
        {"outcome": RunFinishedInterruptOutcome(interrupts=[])},  # INT-1
        {"outcome": RunFinishedInterruptOutcome(interrupts=[Interrupt(id="i", reason="r")] * 2)},
    ],
)
def test_a_run_does_not_end_with_what_is_malformed(ending: dict[str, Any]) -> None:
    """The run goes on, and can still be ended."""
    writer = Writer()
    with pytest.raises((MalformedEvent, SequenceViolation)):
        writer.producer.finish(**ending)
    assert not writer.producer.ended
    writer.take(writer.producer.fail("It failed."))
    writer.end()


def test_half_a_character_is_text() -> None:
    writer = Writer()
    writer.take(writer.producer.emit(CustomEvent(name="n", value={"half": "\ud83e"})))
    writer.take(writer.producer.emit(TextMessageStartEvent(message_id="m", name="\ud83e")))
    writer.take(writer.producer.finish())
    writer.end()


@pytest.mark.parametrize(
    ("event", "rule"),
    [
        ({"type": "SHINY"}, "PROC-13"),
        ({"type": 5}, "PROC-3"),
        ({}, "PROC-3"),
        ({"type": "CUSTOM", "name": "n", "value": float("nan")}, "PROC-3"),
        ({"type": "CUSTOM", "name": "n"}, "PROC-3"),
        ({"type": "TEXT_MESSAGE_START", "messageId": "m", "role": None}, "PROC-3"),
        # An event whose own required member is unrecognisable would be dropped whole (PROC-4).
        (
            {
                "type": "REASONING_ENCRYPTED_VALUE",
                "subtype": "thing",
                "entityId": "m",
                "encryptedValue": "v",
            },
            "PROC-13",
        ),
    ],
)
def test_a_foreign_event_is_judged_like_a_peers(event: dict[str, Any], rule: str) -> None:
    with pytest.raises(MalformedEvent) as caught:
        Writer().producer.emit_foreign(event)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("type_", "advice"),
    [
        ("TEXT_MESAGE_CHUNK", "did you mean TEXT_MESSAGE_CHUNK?"),
        ("state_snapshot", "did you mean STATE_SNAPSHOT?"),
        ("THINKING_START", "has retired this event; use REASONING_START"),
        ("THINKING_END", "use REASONING_END"),
        ("THINKING_TEXT_MESSAGE_START", "use REASONING_MESSAGE_START"),
        ("THINKING_TEXT_MESSAGE_CONTENT", "use REASONING_MESSAGE_CONTENT"),
        ("THINKING_TEXT_MESSAGE_END", "use REASONING_MESSAGE_END"),
        ("SHINY", "use CUSTOM for your own"),
    ],
)
def test_an_unknown_type_is_answered_with_the_one_that_was_meant(
    type_: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    """PROC-13; and what is written here is no matter of a newer version."""
    with pytest.raises(MalformedEvent, match=re.escape(advice)):
        Writer().producer.emit_foreign({"type": type_})
    assert not caplog.records


def test_a_foreign_event_is_copied() -> None:
    """Whoever made it may go on changing it."""
    writer = Writer()
    event: dict[str, Any] = {"type": "STATE_SNAPSHOT", "snapshot": {"list": []}}
    events = writer.producer.emit_foreign(event)
    event["snapshot"]["list"].append(1)
    writer.producer.state["list"].append(2)
    assert plain(events[0])["snapshot"] == {"list": []}


def test_events_keep_what_they_said_when_the_state_changes() -> None:
    """An event that waits for its reader is not changed by what the agent does meanwhile."""
    writer = Writer()
    writer.producer.state["a"] = {"b": [1]}
    first = writer.producer.flush()
    writer.producer.state["a"]["b"].append(2)
    second = writer.producer.flush()
    writer.producer.state["a"]["b"][0] = 9
    for events in (first, second, writer.producer.finish()):
        writer.take(events)
    writer.end()
    assert writer.consumer.conversation.state == {"a": {"b": [9, 2]}}


def test_a_state_does_not_cut_a_chunk_stream() -> None:
    """CHUNK-5: changes wait while a chunk may be continued, and are not lost."""
    writer = Writer()
    chunk = {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "a"}
    writer.producer.state["n"] = 1
    kinds = writer.take(writer.producer.emit_foreign(chunk))
    assert kinds == ["STATE_SNAPSHOT", "TEXT_MESSAGE_CHUNK"]
    writer.producer.state["n"] = 2
    more = {"type": "TEXT_MESSAGE_CHUNK", "delta": "b"}
    assert writer.take(writer.producer.emit_foreign(more)) == ["TEXT_MESSAGE_CHUNK"]
    kinds = writer.take(writer.producer.finish())
    assert kinds == ["STATE_SNAPSHOT", "RUN_FINISHED"]
    writer.end()
    assert writer.consumer.conversation.messages[0].content == "ab"
