"""Verification: every row of the table, the phases of a stream, and who owns what."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from aguia import (
    UNSET,
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    Consumer,
    CustomEvent,
    Event,
    FunctionCall,
    MessagesSnapshotEvent,
    ProtocolWarning,
    RawEvent,
    ReasoningEncryptedValueEvent,
    ReasoningEndEvent,
    ReasoningMessage,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunStartedEvent,
    SequenceViolation,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UserMessage,
)
from aguia.pipeline.chunks import CHUNKS
from aguia.pipeline.verification import PHASES, TABLE, Action, Family, OpenItem, Phase, Verifier
from aguia.protocol.events import EVENTS

Tag = Any

STARTED = RunStartedEvent(thread_id="t", run_id="r")
FINISHED = RunFinishedEvent(thread_id="t", run_id="r")
ERROR = RunErrorEvent(message="no")

MAKERS: dict[type[Event], Callable[[str, Tag], Event]] = {
    TextMessageStartEvent: lambda id_, tag: TextMessageStartEvent(
        message_id=id_, subagent_run_id=tag
    ),
    TextMessageContentEvent: lambda id_, tag: TextMessageContentEvent(
        message_id=id_, delta="", subagent_run_id=tag
    ),
    TextMessageEndEvent: lambda id_, tag: TextMessageEndEvent(message_id=id_, subagent_run_id=tag),
    ToolCallStartEvent: lambda id_, tag: ToolCallStartEvent(
        tool_call_id=id_, tool_call_name="f", subagent_run_id=tag
    ),
    ToolCallArgsEvent: lambda id_, tag: ToolCallArgsEvent(
        tool_call_id=id_, delta="", subagent_run_id=tag
    ),
    ToolCallEndEvent: lambda id_, tag: ToolCallEndEvent(tool_call_id=id_, subagent_run_id=tag),
    ToolCallResultEvent: lambda id_, tag: ToolCallResultEvent(
        message_id=id_, tool_call_id="c", content="", subagent_run_id=tag
    ),
    ReasoningStartEvent: lambda id_, tag: ReasoningStartEvent(message_id=id_, subagent_run_id=tag),
    ReasoningEndEvent: lambda id_, tag: ReasoningEndEvent(message_id=id_, subagent_run_id=tag),
    ReasoningMessageStartEvent: lambda id_, tag: ReasoningMessageStartEvent(
        message_id=id_, role="reasoning", subagent_run_id=tag
    ),
    ReasoningMessageContentEvent: lambda id_, tag: ReasoningMessageContentEvent(
        message_id=id_, delta="", subagent_run_id=tag
    ),
    ReasoningMessageEndEvent: lambda id_, tag: ReasoningMessageEndEvent(
        message_id=id_, subagent_run_id=tag
    ),
    ReasoningEncryptedValueEvent: lambda id_, tag: ReasoningEncryptedValueEvent(
        subtype="message", entity_id=id_, encrypted_value="x", subagent_run_id=tag
    ),
    StepStartedEvent: lambda id_, tag: StepStartedEvent(step_name=id_, subagent_run_id=tag),
    StepFinishedEvent: lambda id_, tag: StepFinishedEvent(step_name=id_, subagent_run_id=tag),
    SubagentStartedEvent: lambda id_, _: SubagentStartedEvent(subagent_run_id=id_, name="n"),
    SubagentFinishedEvent: lambda id_, _: SubagentFinishedEvent(subagent_run_id=id_),
    SubagentErrorEvent: lambda id_, _: SubagentErrorEvent(subagent_run_id=id_, message="no"),
    ActivitySnapshotEvent: lambda id_, tag: ActivitySnapshotEvent(
        message_id=id_, activity_type="a", content={}, subagent_run_id=tag
    ),
    ActivityDeltaEvent: lambda id_, tag: ActivityDeltaEvent(
        message_id=id_, activity_type="a", patch=[], subagent_run_id=tag
    ),
    StateSnapshotEvent: lambda _, tag: StateSnapshotEvent(snapshot=1, subagent_run_id=tag),
    StateDeltaEvent: lambda _, tag: StateDeltaEvent(delta=[], subagent_run_id=tag),
    RawEvent: lambda _, tag: RawEvent(event=1, subagent_run_id=tag),
    CustomEvent: lambda _, tag: CustomEvent(name="n", value=1, subagent_run_id=tag),
    MessagesSnapshotEvent: lambda *_: MessagesSnapshotEvent(messages=[]),
    RunStartedEvent: lambda *_: STARTED,
    RunFinishedEvent: lambda *_: FINISHED,
    RunErrorEvent: lambda *_: ERROR,
}


def make(kind: type[Event], id_: str = "i", tag: Tag = UNSET) -> Event:
    """An event of a kind that names an item, with a tag."""
    return MAKERS[kind](id_, tag)


class Stream:
    """A verifier, in a run unless told otherwise, and what it warned of."""

    def __init__(self, *events: Event, started: bool = True, **options: Any) -> None:
        self.warnings: list[ProtocolWarning] = []
        self.verifier = Verifier(self.warnings.append, **options)
        if started:
            self.check(STARTED)
        self.check(*events)

    def check(self, *events: Event) -> None:
        """Let events pass that have to."""
        for each in events:
            self.verifier.check(each)

    def violation(self, raw: Event) -> SequenceViolation:
        """The violation that an event is; it changes nothing."""
        before = self.verifier.phase, self.verifier.open_items()
        with pytest.raises(SequenceViolation) as caught:
            self.verifier.check(raw)
        assert caught.value.event_type == raw.type
        assert (self.verifier.phase, self.verifier.open_items()) == before
        error: SequenceViolation = caught.value
        return error

    def rule(self, raw: Event) -> str | None:
        """The rule that an event breaks."""
        rule: str | None = self.violation(raw).rule
        return rule


def rows(*actions: Action) -> pytest.MarkDecorator:
    """The kinds of event that do this."""
    kinds = [kind for kind, row in TABLE.items() if row.action in actions]
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.type)


def opener_of(family: Family) -> type[Event]:
    """What opens an item of the family."""
    (kind,) = (k for k, row in TABLE.items() if row == (Action.OPENS, family, row.member))
    return kind


def closer_of(family: Family) -> type[Event]:
    """What closes an item of the family."""
    return next(k for k, row in TABLE.items() if row[:2] == (Action.CLOSES, family))


def family_of(kind: type[Event]) -> Family:
    """The family of a row."""
    family = TABLE[kind].family
    assert family is not None
    return family


DISCIPLINE = {
    Family.MESSAGE: "STREAM-1",
    Family.TOOL_CALL: "STREAM-1",
    Family.SPAN: "REAS-2",
    Family.REASONING: "REAS-2",
    Family.STEP: "RUN-14",
    Family.SUBAGENT: "SUB-2",
}
LEFT_OPEN = {
    Family.MESSAGE: "RUN-5",
    Family.TOOL_CALL: "RUN-5",
    Family.SPAN: "REAS-2",
    Family.REASONING: "REAS-2",
    Family.STEP: "RUN-5",
    Family.SUBAGENT: "SUB-2",
}


# The table


def test_every_event_is_in_the_table_or_in_the_phases_or_a_chunk() -> None:
    """EVT-7."""
    run_level = {kind for phase in PHASES.values() for kind in phase}
    assert run_level == {RunStartedEvent, RunFinishedEvent, RunErrorEvent}
    kinds = [*TABLE, *run_level, *CHUNKS]
    assert len(kinds) == len(set(kinds)) == 31
    assert set(kinds) == set(EVENTS.values())
    for kind, row in TABLE.items():
        if row.member:
            assert row.member in kind.__struct_fields__


@rows(Action.OPENS)
def test_what_opens(kind: type[Event]) -> None:
    """STREAM-1, REAS-2, RUN-14, SUB-2: not what is open; other ids and families are free."""
    family = family_of(kind)
    stream = Stream(make(kind))
    assert stream.verifier.open_items() == [OpenItem(family, "i", UNSET)]
    error = stream.violation(make(kind))
    assert error.rule == DISCIPLINE[family]
    assert "'i'" in error.message
    stream.check(make(kind, "j"))
    for other in Family:
        if other not in (family, Family.ACTIVITY):
            stream.check(make(opener_of(other)))
    assert len(stream.verifier.open_items()) == 7


@rows(Action.CONTINUES, Action.CLOSES)
def test_what_continues_or_closes_needs_its_opener(kind: type[Event]) -> None:
    """STREAM-1, REAS-1, REAS-2, RUN-14, SUB-2: of its own family, under its own id."""
    family = family_of(kind)
    others = [
        make(opener_of(other)) for other in DISCIPLINE if other not in (family, Family.SUBAGENT)
    ]
    stream = Stream(*others, make(opener_of(family), "j"))
    error = stream.violation(make(kind))
    assert error.rule == DISCIPLINE[family]
    assert "'i'" in error.message
    stream.check(make(opener_of(family)), make(kind))


@rows(Action.CONTINUES, Action.CLOSES)
def test_nothing_comes_after_the_end(kind: type[Event]) -> None:
    """STREAM-1, REAS-2, RUN-14, SUB-2."""
    family = family_of(kind)
    stream = Stream(make(opener_of(family)), make(closer_of(family)))
    error = stream.violation(make(kind))
    assert error.rule == DISCIPLINE[family]
    if family is not Family.STEP:
        assert "is open any more" in error.message


@rows(Action.OPENS)
def test_what_is_closed_may_be_opened_again(kind: type[Event]) -> None:
    """STREAM-4: all but an invocation of a subagent (SUB-2)."""
    family = family_of(kind)
    stream = Stream(make(kind), make(closer_of(family)))
    if family is Family.SUBAGENT:
        assert stream.rule(make(kind)) == "SUB-2"
    else:
        stream.check(make(kind), make(closer_of(family)), FINISHED)


@rows(Action.OPENS)
def test_what_is_open_when_the_run_finishes(kind: type[Event]) -> None:
    """RUN-5, REAS-2, SUB-2: with any outcome."""
    family = family_of(kind)
    stream = Stream(make(kind), make(kind, "j"))
    cancelled = RunFinishedEvent(thread_id="t", run_id="r", outcome=RunFinishedCancelledOutcome())
    for finish in (FINISHED, cancelled):
        error = stream.violation(finish)
        assert error.rule == LEFT_OPEN[family]
        assert f"the {family.value} 'i' and 1 more is still open" in error.message
    stream.check(make(closer_of(family)))
    assert "'j' is still open" in stream.violation(FINISHED).message
    stream.check(make(closer_of(family), "j"), FINISHED)


@rows(Action.OPENS)
def test_a_failure_ends_what_is_open(kind: type[Event]) -> None:
    """RUN-7, RUN-12, SUB-7: and the next run starts with nothing."""
    stream = Stream(make(kind), ERROR)
    assert stream.verifier.open_items() == []
    stream.check(STARTED)
    assert stream.verifier.open_items() == []
    assert stream.rule(make(closer_of(family_of(kind)))) == DISCIPLINE[family_of(kind)]
    stream.check(make(kind), make(closer_of(family_of(kind))), FINISHED)


@rows(Action.STANDS, Action.MAKES, Action.AMENDS)
def test_what_stands_alone_may_come_anywhere_in_a_run(kind: type[Event]) -> None:
    """STREAM-3, SUB-3, STATE-6: tagged or not, of an unannounced subagent, any number of times."""
    stream = Stream(make(kind), make(kind))
    stream.check(make(kind, "j", "s"), make(TextMessageStartEvent), make(kind, "k"))
    assert len(stream.verifier.open_items()) == 1


def test_families_interleave() -> None:
    """STREAM-3."""
    kinds = [opener_of(family) for family in DISCIPLINE]
    stream = Stream(*(make(kind) for kind in kinds))
    items = stream.verifier.open_items()
    assert [item.family for item in items] == list(DISCIPLINE)
    stream.check(*(make(closer_of(family)) for family in DISCIPLINE), FINISHED)


# The phases

ALLOWED = {
    Phase.BEFORE: {"RUN_STARTED", "RUN_ERROR"},
    Phase.ACTIVE: {"RUN_FINISHED", "RUN_ERROR"},
    Phase.FINISHED: {"RUN_STARTED", "RUN_ERROR"},
    Phase.FAILED: {"RUN_STARTED"},
}


def stream_in(phase: Phase) -> Stream:
    """A stream that stands there."""
    before: dict[Phase, list[Event]] = {
        Phase.BEFORE: [],
        Phase.ACTIVE: [STARTED],
        Phase.FINISHED: [STARTED, FINISHED],
        Phase.FAILED: [STARTED, ERROR],
    }
    stream = Stream(*before[phase], started=False)
    assert stream.verifier.phase is phase
    return stream


@pytest.mark.parametrize("phase", [Phase.BEFORE, Phase.FINISHED, Phase.FAILED])
@pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.type)
def test_outside_a_run_only_its_beginning_may_come(phase: Phase, kind: type[Event]) -> None:
    """RUN-1, RUN-6, RUN-12."""
    stream = stream_in(phase)
    if kind.type in ALLOWED[phase]:
        stream.check(make(kind))
        started = kind is RunStartedEvent
        assert stream.verifier.phase is (Phase.ACTIVE if started else Phase.FAILED)
    else:
        assert stream.rule(make(kind)) == ("RUN-1" if phase is Phase.BEFORE else "RUN-6")


def test_runs_follow_one_another() -> None:
    """RUN-4, RUN-6, RUN-12."""
    stream = Stream()
    assert stream.rule(STARTED) == "RUN-4"
    stream.check(FINISHED, STARTED, ERROR, STARTED, FINISHED, ERROR, STARTED, FINISHED)
    assert stream.verifier.phase is Phase.FINISHED
    assert not stream.warnings


def test_a_run_can_fail_before_it_begins() -> None:
    """RUN-1."""
    stream = Stream(ERROR, started=False)
    assert stream.verifier.phase is Phase.FAILED
    stream.check(STARTED, FINISHED)


@pytest.mark.parametrize("chunk", [kind for kind in EVENTS.values() if kind in CHUNKS])
def test_chunks_have_been_expanded_before(chunk: Any) -> None:
    with pytest.raises(SequenceViolation):
        Stream(chunk())


@pytest.mark.parametrize("member", ["run_id", "thread_id"])
def test_a_finish_agrees_with_its_start(member: str) -> None:
    """RUN-3."""
    stream = Stream()
    error = stream.violation(msgspec.structs.replace(FINISHED, **{member: "x"}))
    assert error.rule == "RUN-3"
    assert "finishes with 'x'" in error.message
    stream.check(FINISHED)


def test_a_start_that_disagrees_is_only_a_warning() -> None:
    """RUN-3: with the input's thread, or with that of an earlier run."""
    stream = Stream(started=False, thread_id="t", run_id="r")
    stream.check(RunStartedEvent(thread_id="x", run_id="r"))
    (warning,) = stream.warnings
    assert (warning.rule, warning.path, warning.event_type) == ("RUN-3", "/threadId", "RUN_STARTED")
    stream.check(RunFinishedEvent(thread_id="x", run_id="r"))
    stream.verifier.end()
    assert len(stream.warnings) == 1
    stream = Stream(FINISHED, RunStartedEvent(thread_id="x", run_id="r2"))
    assert [warning.rule for warning in stream.warnings] == ["RUN-3"]


def test_the_requested_run_has_to_come() -> None:
    """RUN-3: replayed runs carry ids of their own."""
    stream = Stream(FINISHED, thread_id="t", run_id="wanted")
    stream.verifier.end()
    (warning,) = stream.warnings
    assert (warning.rule, warning.event_type) == ("RUN-3", None)
    assert "'wanted'" in warning.message
    stream = Stream(FINISHED, thread_id="t", run_id="wanted")
    stream.check(RunStartedEvent(thread_id="t", run_id="wanted"))
    stream.verifier.end()
    assert not stream.warnings
    failed = Stream(ERROR, started=False, run_id="wanted")
    failed.verifier.end()
    assert not failed.warnings


# Ownership

OWNED = [Family.MESSAGE, Family.TOOL_CALL, Family.SPAN, Family.REASONING]
owned = pytest.mark.parametrize("family", OWNED, ids=lambda family: family.name)


def going_on(family: Family) -> list[type[Event]]:
    """What continues and closes the family's items."""
    return [k for k, row in TABLE.items() if row.family is family and row.action.name[0] == "C"]


@owned
@pytest.mark.parametrize(("owner", "tag"), [("s", "t"), (UNSET, "s")])
def test_a_continuation_of_another_owner_is_fatal(family: Family, owner: Tag, tag: str) -> None:
    """SUB-4: the parent agent is an owner, too."""
    stream = Stream(make(opener_of(family), "i", owner))
    for kind in going_on(family):
        error = stream.violation(make(kind, "i", tag))
        assert error.rule == "SUB-4"
        assert f"'{tag}'" in error.message
    for kind in going_on(family):
        stream.check(make(kind, "i", UNSET))


@owned
def test_a_tag_that_agrees_or_is_left_out_is_accepted(family: Family) -> None:
    """SUB-3, SUB-4."""
    for tag in ("s", UNSET):
        stream = Stream(make(opener_of(family), "i", "".join(["", "s"])))
        assert stream.verifier.open_items() == [OpenItem(family, "i", "s")]
        stream.check(*(make(kind, "i", tag) for kind in going_on(family)), FINISHED)


@owned
def test_ownership_lasts_across_close_and_reopen(family: Family) -> None:
    """SUB-4, STREAM-4."""
    opener, closer = opener_of(family), closer_of(family)
    for owner, other in (("s", "t"), (UNSET, "s")):
        stream = Stream(make(opener, "i", owner), make(closer))
        assert stream.rule(make(opener, "i", other)) == "SUB-4"
        stream.check(make(opener, "i", UNSET))
        assert stream.verifier.open_items()[0].owner == owner
        assert stream.rule(make(closer, "i", other)) == "SUB-4"
        stream.check(make(closer, "i", owner))


@owned
def test_ownership_ends_with_the_run(family: Family) -> None:
    """RUN-12."""
    stream = Stream(make(opener_of(family), "i", "s"), make(closer_of(family)), FINISHED, STARTED)
    stream.check(make(opener_of(family), "i", "t"))


def test_a_span_shares_its_owner_with_the_message_inside() -> None:
    """SUB-4, REAS-1: not what is open."""
    stream = Stream(make(ReasoningStartEvent, "i", "s"))
    assert stream.rule(make(ReasoningMessageContentEvent, "i", "s")) == "REAS-2"
    assert stream.rule(make(ReasoningMessageStartEvent, "i", "t")) == "SUB-4"
    stream.check(make(ReasoningMessageStartEvent, "i", "s"), make(ReasoningEndEvent, "i", "s"))
    assert stream.rule(FINISHED) == "REAS-2"


def test_steps_are_their_owners() -> None:
    """RUN-14."""
    stream = Stream(make(StepStartedEvent), make(StepStartedEvent, "i", "s"))
    assert stream.rule(make(StepStartedEvent, "i", "s")) == "RUN-14"
    error = stream.violation(make(StepFinishedEvent, "i", "t"))
    assert error.rule == "RUN-14"
    assert "it is open under" in error.message
    stream.check(make(StepFinishedEvent))
    assert stream.verifier.open_items() == [OpenItem(Family.STEP, "i", "s")]
    error = stream.violation(make(StepFinishedEvent))
    assert "it is open under the subagent 's'" in error.message
    stream.check(make(StepFinishedEvent, "i", "s"), FINISHED)


def test_a_call_belongs_to_its_message() -> None:
    """TOOL-5."""
    message = make(TextMessageStartEvent, "m", "s")
    call = ToolCallStartEvent(tool_call_id="c", tool_call_name="f", parent_message_id="m")
    tagged = msgspec.structs.replace(call, subagent_run_id="t")
    stream = Stream(message)
    assert stream.rule(tagged) == "TOOL-5"
    stream.check(call)
    assert stream.verifier.open_items()[1].owner == "s"
    assert stream.rule(make(ToolCallArgsEvent, "c", "t")) == "SUB-4"
    stream.check(make(ToolCallEndEvent, "c", "s"))
    stream = Stream(make(TextMessageStartEvent, "m"))
    assert stream.rule(tagged) == "TOOL-5"
    stream = Stream(tagged)  # a parent that nobody knows settles nothing
    assert stream.verifier.open_items()[0].owner == "t"


def test_a_call_reopened_under_another_message_is_judged() -> None:
    """SUB-4, STREAM-4."""
    stream = Stream(
        make(ToolCallStartEvent, "c", "s"),
        make(ToolCallEndEvent, "c"),
        make(TextMessageStartEvent, "m", "t"),
    )
    again = ToolCallStartEvent(tool_call_id="c", tool_call_name="f", parent_message_id="m")
    assert stream.rule(again) == "SUB-4"


def test_activities_have_owners() -> None:
    """SUB-4, ACT-2."""
    snapshot = make(ActivitySnapshotEvent, "a", "s")
    stream = Stream(snapshot, make(ActivityDeltaEvent, "a", "s"), make(ActivityDeltaEvent, "a"))
    assert stream.rule(make(ActivityDeltaEvent, "a", "t")) == "SUB-4"
    kept = msgspec.structs.replace(make(ActivitySnapshotEvent, "a", "t"), replace=False)
    stream.check(kept)
    assert stream.rule(make(ActivityDeltaEvent, "a", "t")) == "SUB-4"
    stream.check(make(ActivitySnapshotEvent, "a", "t"), make(ActivityDeltaEvent, "a", "t"))
    assert stream.rule(make(ActivityDeltaEvent, "a", "s")) == "SUB-4"
    stream.check(make(ActivitySnapshotEvent, "a"))
    assert stream.rule(make(ActivityDeltaEvent, "a", "t")) == "SUB-4"
    made = msgspec.structs.replace(make(ActivitySnapshotEvent, "b", "t"), replace=False)
    stream.check(made, make(ActivityDeltaEvent, "b", "t"), make(ActivityDeltaEvent, "unknown", "x"))


def test_encrypted_values_agree_with_what_they_name() -> None:
    """SUB-4, REAS-4."""

    def value(id_: str, tag: Tag, subtype: Any = "message") -> Event:
        return ReasoningEncryptedValueEvent(
            subtype=subtype, entity_id=id_, encrypted_value="x", subagent_run_id=tag
        )

    stream = Stream(
        make(TextMessageStartEvent, "m", "s"),
        make(ReasoningMessageStartEvent, "r", "s"),
        make(ToolCallStartEvent, "c", "s"),
        make(TextMessageEndEvent, "m"),
    )
    for id_, subtype in (("m", "message"), ("r", "message"), ("c", "tool-call")):
        assert stream.rule(value(id_, "t", subtype)) == "SUB-4"
        stream.check(value(id_, "s", subtype), value(id_, UNSET, subtype))
    stream.check(value("c", "t"), value("m", "t", "tool-call"), value("unknown", "t"))


def test_a_result_is_a_message_of_its_owner() -> None:
    """TOOL-6, SUB-4."""
    stream = Stream(make(ToolCallResultEvent, "m", "s"))
    assert stream.rule(make(TextMessageStartEvent, "m", "t")) == "SUB-4"


CALL = ToolCall(id="c", type="function", function=FunctionCall(name="f", arguments=""))
HISTORY: list[Any] = [
    AssistantMessage(id="m", tool_calls=[CALL], subagent_run_id="s"),
    ReasoningMessage(id="r", content="", subagent_run_id="s"),
    ActivityMessage(id="a", activity_type="x", content={}, subagent_run_id="s"),
    UserMessage(id="u", content=""),
    ToolMessage(id="o", tool_call_id="c", content="", subagent_run_id="s"),
]
CONTINUATIONS = [
    (TextMessageStartEvent, "m"),
    (TextMessageStartEvent, "u"),
    (TextMessageStartEvent, "o"),
    (ReasoningMessageStartEvent, "r"),
    (ToolCallStartEvent, "c"),
    (ActivityDeltaEvent, "a"),
]


@pytest.mark.parametrize(
    ("kind", "id_"), CONTINUATIONS, ids=lambda case: getattr(case, "type", case)
)
@pytest.mark.parametrize("echoed", [False, True], ids=["snapshot", "input"])
def test_snapshots_say_who_owns_what(kind: type[Event], id_: str, echoed: bool) -> None:
    """MSG-2."""
    if echoed:
        request = RunAgentInput(thread_id="t", run_id="r", messages=HISTORY)
        stream = Stream(started=False)
        stream.check(RunStartedEvent(thread_id="t", run_id="r", input=request))
    else:
        stream = Stream(MessagesSnapshotEvent(messages=HISTORY))
    assert stream.rule(make(kind, id_, "t")) == "SUB-4"
    stream.check(make(kind, id_, UNSET if id_ == "u" else "s"))


def test_a_snapshot_can_change_an_owner() -> None:
    """MSG-2."""
    stream = Stream(make(TextMessageStartEvent, "m", "t"), make(TextMessageEndEvent, "m"))
    stream.check(MessagesSnapshotEvent(messages=HISTORY))
    assert stream.rule(make(TextMessageStartEvent, "m", "t")) == "SUB-4"
    stream.check(make(TextMessageStartEvent, "m", "s"))


# Subagents


def test_an_invocation_is_announced_once_and_before_its_work() -> None:
    """SUB-2."""
    announce = make(SubagentStartedEvent, "s")
    for work in (
        make(TextMessageStartEvent, "m", "s"),
        make(ToolCallStartEvent, "m", "s"),
        make(StateSnapshotEvent, "", "s"),
        make(StateDeltaEvent, "", "s"),
        make(CustomEvent, "", "s"),
        make(RawEvent, "", "s"),
        make(StepStartedEvent, "m", "s"),
        make(ActivitySnapshotEvent, "m", "s"),
        make(ActivityDeltaEvent, "m", "s"),
        make(ToolCallResultEvent, "m", "s"),
        make(ReasoningStartEvent, "m", "s"),
        make(ReasoningMessageStartEvent, "m", "s"),
        make(ReasoningEncryptedValueEvent, "m", "s"),
    ):
        stream = Stream(work)
        error = stream.violation(announce)
        assert error.rule == "SUB-2"
        assert "before its announcement" in error.message
        stream.check(make(SubagentStartedEvent, "other"))
        Stream(announce, work)
    stream = Stream(announce, make(SubagentErrorEvent, "s"))
    assert "ids are not reused" in stream.violation(announce).message
    stream = Stream(announce, make(SubagentFinishedEvent, "s"), FINISHED, STARTED, announce)


def test_what_continues_history_is_work_as_well() -> None:
    """SUB-2: the message is known to be the subagent's from a snapshot."""
    stream = Stream(MessagesSnapshotEvent(messages=HISTORY), make(TextMessageStartEvent, "m"))
    stream.check(make(TextMessageContentEvent, "m", "".join(["", "s"])))
    assert stream.rule(make(SubagentStartedEvent, "s")) == "SUB-2"


def test_a_parent_invocation_has_to_be_known() -> None:
    """SUB-2."""
    child = SubagentStartedEvent(subagent_run_id="c", name="n", parent_subagent_run_id="s")
    stream = Stream()
    error = stream.violation(child)
    assert error.rule == "SUB-2"
    assert "'s'" in error.message
    stream.check(make(SubagentStartedEvent, "s"), child)
    stream = Stream(make(SubagentStartedEvent, "s"), make(SubagentFinishedEvent, "s"), child)
    myself = SubagentStartedEvent(subagent_run_id="x", name="n", parent_subagent_run_id="x")
    assert stream.rule(myself) == "SUB-2"


def test_invocations_run_in_parallel() -> None:
    """SUB-5, SUB-6: one's end closes nothing of another's."""
    stream = Stream(
        make(SubagentStartedEvent, "s"),
        make(SubagentStartedEvent, "t"),
        make(TextMessageStartEvent, "m", "t"),
        make(SubagentErrorEvent, "s"),
        make(TextMessageContentEvent, "m", "t"),
        make(TextMessageEndEvent, "m", "t"),
        make(CustomEvent, "", "s"),
        make(SubagentFinishedEvent, "t"),
        FINISHED,
    )
    assert not stream.warnings


def test_the_message_that_a_call_brings_about_belongs_to_the_calls_owner() -> None:
    """TOOL-5, SUB-4: for another call in it, and for text on it."""
    first = {
        "type": "TOOL_CALL_START",
        "toolCallId": "c-1",
        "toolCallName": "look",
        "parentMessageId": "m",
        "subagentRunId": "s-1",
    }
    for second, rule in (
        ({**first, "toolCallId": "c-2", "subagentRunId": "s-2"}, "TOOL-5"),
        ({"type": "TEXT_MESSAGE_START", "messageId": "m", "subagentRunId": "s-2"}, "SUB-4"),
    ):
        consumer = Consumer()
        list(consumer.receive_event({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}))
        list(consumer.receive_event(first))
        with pytest.raises(SequenceViolation) as refused:
            list(consumer.receive_event(second))
        assert refused.value.rule == rule


# A limit of this package's


@pytest.mark.parametrize(
    "kind", [kind for kind, row in TABLE.items() if row.action is Action.OPENS]
)
def test_no_more_is_open_than_may_be(kind: type[Event]) -> None:
    """Whatever is opened; the limit is no rule, and what closes makes room again."""
    stream = Stream(max_open_items=2)
    stream.check(make(TextMessageStartEvent, "first"), make(kind, "second"))
    error = stream.violation(make(kind, "third"))
    assert error.rule is None
    assert "2 items are open already" in error.message
    stream.check(make(TextMessageEndEvent, "first"), make(kind, "third"))
