"""The drawings of the state machine: they are current, they follow the table, and they are true."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

import state_diagrams
from aguia.pipeline import verification
from aguia.pipeline.verification import PHASES, TABLE, Action, Family, Phase, Transition, Verifier
from aguia.protocol.errors import ProtocolWarning, SequenceViolation
from aguia.protocol.events import (
    CustomEvent,
    Event,
    RawEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StepFinishedEvent,
)
from state_diagrams import Machine, diagrams, draw, of_family, of_stream
from support import REPOSITORY

PICTURES = REPOSITORY / "docs" / "pictures"

FILLED: dict[str, Any] = {
    "delta": "",
    "tool_call_name": "f",
    "tool_call_id": "c",
    "message_id": "m",
    "role": "reasoning",
    "content": "",
    "activity_type": "a",
    "patch": [],
    "name": "n",
    "value": None,
    "message": "no",
    "thread_id": "t",
    "run_id": "r",
}


def made(kind: type[Any], **members: Any) -> Event:
    """An event of this type, with what it requires."""
    fills = {
        each.name: FILLED[each.name]
        for each in msgspec.structs.fields(kind)
        if each.required and each.name not in members
    }
    event: Event = kind(**fills, **members)
    return event


def ignored(warning: ProtocolWarning) -> None:
    """Takes a warning."""


def path_to(machine: Machine, state: int) -> list[str]:
    """The types of events that lead from the first state to this one."""
    paths: dict[int, list[str]] = {0: []}
    while state not in paths:
        for edge in machine.edges:
            if edge.source in paths and edge.target not in paths:
                paths[edge.target] = [*paths[edge.source], edge.events[0]]
    return paths[state]


def every_case() -> Iterator[Any]:
    """Each event of each family, in each state."""
    for family in Family:
        machine = of_family(family)
        for number, state in enumerate(machine.states):
            for kind, row in TABLE.items():
                if row.family is family:
                    name = f"{family.value}-{state.name}-{kind.type}".replace(" ", "-")
                    yield pytest.param(family, number, kind, id=name)


def test_the_drawings_are_current(tmp_path: Path) -> None:
    made_now = diagrams()
    assert {path.name for path in PICTURES.glob("states-*.svg")} == set(made_now)
    for name, svg in made_now.items():
        written = (PICTURES / name).read_text(encoding="utf-8")
        assert written == svg, f"{name} is not current: run scripts/state_diagrams.py"
    assert state_diagrams.main(["--check"]) == 0


def test_drawings_are_written_and_what_is_not_current_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pictures"
    assert state_diagrams.main(["--folder", str(folder), "--check"]) == 1
    assert not folder.exists()
    assert state_diagrams.main(["--folder", str(folder)]) == 0
    assert state_diagrams.main(["--folder", str(folder), "--check"]) == 0
    (folder / "states-step.svg").write_text("", encoding="utf-8")
    capsys.readouterr()
    assert state_diagrams.main(["--folder", str(folder), "--check"]) == 1
    printed = capsys.readouterr().out
    assert "states-step.svg: not current" in printed
    assert "states-stream.svg" not in printed


def test_a_change_of_the_table_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    before = diagrams()
    monkeypatch.setitem(
        TABLE, StepFinishedEvent, Transition(Action.CONTINUES, Family.STEP, "step_name")
    )
    monkeypatch.setitem(TABLE, RawEvent, Transition(Action.CLOSES, Family.TOOL_CALL))
    after = diagrams()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"states-step.svg", "states-tool-call.svg"}
    assert "STEP_FINISHED from open to open" in after["states-step.svg"]
    assert "TOOL_CALL_END, RAW from open to not open" in after["states-tool-call.svg"]


def test_a_change_of_the_phases_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    before = draw(of_stream())
    monkeypatch.setitem(PHASES[Phase.FAILED], RunErrorEvent, Phase.FINISHED)
    after = draw(of_stream())
    assert after != before
    assert "RUN_ERROR from after a failed run to after a finished run" in after


def test_a_family_that_may_be_opened_once_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "ONCE", frozenset({Family.SUBAGENT, Family.STEP}))
    assert [state.name for state in of_family(Family.STEP).states][-1] == "ended"


@pytest.mark.parametrize(("family", "state", "kind"), list(every_case()))
def test_the_machine_does_what_is_drawn(family: Family, state: int, kind: type[Event]) -> None:
    """STREAM-1, STREAM-4, REAS-1, REAS-2, RUN-14, SUB-2: every edge, and every one that is not."""
    machine = of_family(family)
    kinds: dict[str, type[Event]] = {each.type: each for each in TABLE}
    verifier = Verifier(ignored)
    verifier.check(made(RunStartedEvent))

    def named(kind: type[Event]) -> Event:
        return made(kind, **{TABLE[kind].member: "i"})

    for leading in path_to(machine, state):
        verifier.check(named(kinds[leading]))
    drawn = [edge for edge in machine.edges if edge.source == state and kind.type in edge.events]
    assert len(drawn) <= 1
    if not drawn:
        with pytest.raises(SequenceViolation) as caught:
            verifier.check(named(kind))
        assert caught.value.rule == machine.rule
        return
    verifier.check(named(kind))
    # Whether it is open now is what the state that the edge leads to says.
    is_open = drawn[0].target == 1 and machine.rule is not None
    assert bool(verifier.open_items()) == is_open
    if is_open:
        with pytest.raises(SequenceViolation) as caught:
            verifier.check(made(RunFinishedEvent))
        assert caught.value.rule == verification.LEFT_OPEN[family]
        assert f"{verification.LEFT_OPEN[family]}." in machine.notes[0]
        verifier.check(made(RunErrorEvent))
    else:
        verifier.check(made(RunFinishedEvent))
    assert verifier.open_items() == []


@pytest.mark.parametrize("state", range(len(PHASES)))
@pytest.mark.parametrize(
    "kind", [RunStartedEvent, RunFinishedEvent, RunErrorEvent, CustomEvent], ids=lambda k: k.type
)
def test_the_phases_do_what_is_drawn(state: int, kind: type[Event]) -> None:
    """RUN-1, RUN-4, RUN-6."""
    machine = of_stream()
    kinds: dict[str, type[Event]] = {
        each.type: each for each in (RunStartedEvent, RunFinishedEvent, RunErrorEvent)
    }
    verifier = Verifier(ignored)
    for leading in path_to(machine, state):
        verifier.check(made(kinds[leading]))
    assert verifier.phase.value == machine.states[state].name
    drawn = [edge for edge in machine.edges if edge.source == state and kind.type in edge.events]
    event = made(kind)
    if drawn:
        verifier.check(event)
        assert verifier.phase.value == machine.states[drawn[0].target].name
    elif machine.states[state].note and kind is CustomEvent:
        verifier.check(event)
        assert verifier.phase.value == machine.states[state].name
    else:
        with pytest.raises(SequenceViolation) as caught:
            verifier.check(event)
        assert str(caught.value.rule) in machine.notes[0]


@pytest.mark.parametrize(("name", "svg"), list(diagrams().items()), ids=diagrams())
def test_what_is_drawn_lies_inside_and_does_not_overlap(name: str, svg: str) -> None:
    root = ElementTree.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    taken: list[tuple[float, float, float, float]] = []
    for each in root.iter("{http://www.w3.org/2000/svg}text"):
        words, kind = each.text or "", each.attrib.get("class", "words")
        room = len(words) * (7.25 if kind == "code" else 6.0)
        left = float(each.attrib["x"]) - (room / 2 if each.attrib["text-anchor"] == "middle" else 0)
        base = float(each.attrib["y"])
        assert left >= 0, words
        assert left + room <= width, words
        assert 10 <= base <= height, words
        for other in taken:
            apart = left >= other[2] or left + room <= other[0]
            assert apart or abs(base - other[3]) >= 11, words
        taken.append((left, base - 11, left + room, base))
    assert taken
