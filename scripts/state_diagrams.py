"""Draws the state machine of verification: the phases of a stream, and each family of item.

What is drawn is what `aguia.pipeline.verification` judges by, its `PHASES` and its `TABLE`; the
drawings are made again from it, and a test compares them with those that are there.

    python scripts/state_diagrams.py            write them to docs/pictures
    python scripts/state_diagrams.py --check    exit with 1 when one of them is not as it would be
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from aguia.pipeline import verification
from aguia.pipeline.verification import Action, Family
from drawing import Drawing, main_of, wide

__all__ = ["Edge", "Machine", "State", "diagrams", "draw", "main", "of_family", "of_stream"]


TITLES = {Family.MESSAGE: "Message"}
"""What is drawn of families that have more than their name says: a tool's result is a message."""


@dataclass(frozen=True)
class State:
    """A state, and in a few words what it is."""

    name: str
    note: str = ""


@dataclass(frozen=True)
class Edge:
    """What leads from one state, by its number, to another or to itself; `events` are types."""

    source: int
    target: int
    events: tuple[str, ...]


@dataclass(frozen=True)
class Machine:
    """States in a row, of which the first is where it begins.

    Attributes:
        name: of its file.
        rule: what is broken by an event that no edge admits, or None where nothing is refused.
        notes: said below the drawing.
    """

    name: str
    title: str
    states: Sequence[State]
    edges: Sequence[Edge]
    rule: str | None = None
    notes: Sequence[str] = field(default=())


def of_stream() -> Machine:
    """The phases of a stream."""
    phases = list(verification.PHASES)
    inside = f"{len(verification.TABLE)} other types of event"
    edges: dict[tuple[int, int], list[str]] = defaultdict(list)
    for phase, admitted in verification.PHASES.items():
        for event, following in admitted.items():
            edges[phases.index(phase), phases.index(following)].append(event.type)
    return Machine(
        name="states-stream",
        title="A stream",
        states=[
            State(phase.value, inside if phase is verification.Phase.ACTIVE else "")
            for phase in phases
        ],
        edges=_edges(edges),
        notes=[
            "What has no arrow is refused: RUN-1 before any run, RUN-4 in a run, RUN-6 after one.",
            "A stream that ends before its first run, or in a run, is truncated: RUN-11.",
        ],
    )


def of_family(family: Family) -> Machine:
    """What becomes of an item of this family, in an open run."""
    rows = {
        event.type: row.action for event, row in verification.TABLE.items() if row.family is family
    }
    opens = Action.OPENS in rows.values()
    once = family in verification.ONCE
    if not opens:
        states = [State("unknown"), State("known")]
    elif once:
        states = [State("not announced"), State("active"), State("ended")]
    else:
        states = [State("not open"), State("open")]
    edges: dict[tuple[int, int], list[str]] = defaultdict(list)
    for kind, action in rows.items():
        match action:
            case Action.OPENS:
                edges[0, 1].append(kind)
            case Action.CONTINUES:
                edges[1, 1].append(kind)
            case Action.CLOSES:
                edges[1, 2 if once else 0].append(kind)
            case Action.MAKES if not opens:
                edges[0, 1].append(kind)
                edges[1, 1].append(kind)
            case _:
                for number in range(len(states)):
                    edges[number, number].append(kind)
    rule = verification.DISCIPLINE.get(family)
    notes = []
    if rule is not None:
        left_open = verification.LEFT_OPEN[family]
        notes = [
            f"What has no arrow is refused: {rule}. RUN_FINISHED while it is {states[1].name}: "
            f"{left_open}.",
            "RUN_ERROR ends it: RUN-7.",
        ]
    notes += [
        f"{kind} makes one whole, and opens nothing."
        for kind, action in rows.items()
        if opens and action is Action.MAKES
    ]
    return Machine(
        name=f"states-{family.value.replace(' ', '-')}",
        title=TITLES.get(family, f"{family.value[0].upper()}{family.value[1:]}"),
        states=states,
        edges=_edges(edges),
        rule=rule,
        notes=notes or ["Nothing is refused but a tag that names another owner: SUB-4."],
    )


def _edges(found: dict[tuple[int, int], list[str]]) -> list[Edge]:
    return [Edge(*between, tuple(events)) for between, events in found.items()]


# Drawing

MARGIN = 24
HEIGHT = 46
LINE = 15  # from one line of a label to the next
START = 46  # room for the arrow into the first state
LIFT = 34  # how high the innermost arc goes, and how much higher each further one


def draw(machine: Machine) -> str:
    """The machine as SVG: states in a row, arrows ahead above and back below."""
    drawing = Drawing(f"{machine.title}: {'; '.join(_in_words(machine))}")
    names = [_two_lines(state) for state in machine.states]
    widths = [max(96, 24 + max(wide(line, "name") for line in lines)) for lines in names]
    next_to = {edge.source: edge for edge in machine.edges if edge.target == edge.source + 1}
    loops = [edge for edge in machine.edges if edge.target == edge.source]
    arcs_above = [edge for edge in machine.edges if edge.target > edge.source + 1]
    arcs_below = [edge for edge in machine.edges if edge.target < edge.source]

    lefts = [float(MARGIN + START)]
    for number, edge_width in enumerate(widths[:-1]):
        edge = next_to.get(number)
        gap = 30 + _widest(edge.events) if edge else 80
        # Labels of loops hang over, and must not touch.
        over = sum(
            max(0, _widest(loop.events) - widths[loop.source]) / 2
            for loop in loops
            if loop.source in (number, number + 1)
        )
        lefts.append(lefts[-1] + edge_width + max(gap, over + 16))
    centres = [left + width / 2 for left, width in zip(lefts, widths, strict=True)]

    above = max(
        [0]
        + [_height(edge, arcs_above) + LINE * len(edge.events) for edge in arcs_above]
        + [38 + LINE * len(edge.events) for edge in loops]
        # A label may be higher than the state that it stands beside.
        + [LINE * len(edge.events) + 8 - HEIGHT // 2 for edge in next_to.values()]
    )
    below = max(
        [0] + [_height(edge, arcs_below) + LINE * len(edge.events) + 4 for edge in arcs_below]
    )
    top = MARGIN + 28 + above
    bottom = top + HEIGHT

    drawing.text(MARGIN, MARGIN + 10, machine.title, "title", "start")
    drawing.dot(MARGIN + 8, top + HEIGHT / 2)
    drawing.arrow(f"M{MARGIN + 8} {top + HEIGHT / 2:g}H{lefts[0]:g}")
    for state, lines, left, width, centre in zip(
        machine.states, names, lefts, widths, centres, strict=True
    ):
        drawing.box(left, top, width, HEIGHT)
        for place, line in enumerate(lines):
            kind = "faint" if line == state.note else "name"
            drawing.text(centre, top + (28 if len(lines) == 1 else 20 + 17 * place), line, kind)
    for number, edge in next_to.items():
        start, stop = lefts[number] + widths[number], lefts[number + 1]
        drawing.arrow(f"M{start:g} {top + HEIGHT / 2:g}H{stop:g}")
        _label(drawing, (start + stop) / 2, top + HEIGHT / 2 - 7, edge.events, upwards=True)
    for edge in loops:
        x = centres[edge.source]
        drawing.arrow(
            f"M{x - 14:g} {top}C{x - 30:g} {top - 44} {x + 30:g} {top - 44} {x + 14:g} {top}"
        )
        _label(drawing, x, top - 38, edge.events, upwards=True)
    for arcs, level, sign in ((arcs_above, top, -1), (arcs_below, bottom, 1)):
        ports = _ports(arcs, lefts, widths)
        for edge in arcs:
            x1, x2 = ports[edge.source, edge], ports[edge.target, edge]
            height = _height(edge, arcs)
            drawn = level + sign * height * 4 / 3  # the curve goes three quarters of the way
            drawing.arrow(f"M{x1:g} {level}C{x1:g} {drawn:g} {x2:g} {drawn:g} {x2:g} {level}")
            y = level + sign * height + (16 if sign > 0 else -6)
            _label(drawing, (x1 + x2) / 2, y, edge.events, upwards=sign < 0)

    y = bottom + below + 30
    for note in machine.notes:
        drawing.text(MARGIN, y, note, "faint", "start")
        y += 18
    right = max(
        lefts[-1] + widths[-1],
        *(centres[loop.source] + _widest(loop.events) / 2 for loop in loops),
        0,
    )
    width = MARGIN + max(right, MARGIN + max(wide(note, "faint") for note in machine.notes))
    return drawing.svg(width, y)


def _two_lines(state: State) -> list[str]:
    """What a state's box says: its name, in two lines where it is long, or name and note."""
    if state.note:
        return [state.name, state.note]
    if len(state.name) <= 14:
        return [state.name]
    words = state.name.split()
    return [" ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])]


def _widest(events: Iterable[str]) -> float:
    return max(wide(event) for event in events)


def _height(edge: Edge, arcs: Sequence[Edge]) -> float:
    """How high an arc goes: each that it goes over is inside of it, label and all."""
    left, right = sorted((edge.source, edge.target))
    inside = [
        _height(each, arcs) + LINE * len(each.events) + 4
        for each in arcs
        if each != edge
        and left <= min(each.source, each.target)
        and max(each.source, each.target) <= right
    ]
    return max([LIFT, *(height + 10 for height in inside)])


def _ports(
    arcs: Sequence[Edge], lefts: Sequence[float], widths: Sequence[float]
) -> dict[tuple[int, Edge], float]:
    """Where each arc meets its states, so that none crosses another."""
    found = {}
    for number, (left, width) in enumerate(zip(lefts, widths, strict=True)):
        others = [
            (edge.target if edge.source == number else edge.source, edge)
            for edge in arcs
            if number in (edge.source, edge.target)
        ]
        to_left = sorted((each for each in others if each[0] < number), key=lambda e: -e[0])
        to_right = sorted((each for each in others if each[0] > number), key=lambda e: -e[0])
        places = [*to_left, *to_right]
        for place, (_, edge) in enumerate(places, start=1):
            found[number, edge] = left + width * place / (len(places) + 1)
    return found


def _label(drawing: Drawing, x: float, y: float, events: Sequence[str], *, upwards: bool) -> None:
    lines = list(events)
    first = y - LINE * (len(lines) - 1) if upwards else y
    for place, line in enumerate(lines):
        drawing.text(x, first + LINE * place, line, "code")


def _in_words(machine: Machine) -> Iterable[str]:
    for edge in machine.edges:
        source, target = machine.states[edge.source].name, machine.states[edge.target].name
        yield f"{', '.join(edge.events)} from {source} to {target}"


def diagrams() -> dict[str, str]:
    """All drawings, by the names of their files."""
    machines = [of_stream(), *(of_family(family) for family in Family)]
    return {f"{machine.name}.svg": draw(machine) for machine in machines}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the drawings; with `--check`, return 1 when one is not as it would be written."""
    return main_of(diagrams, "Draws the state machine of verification.", arguments)


if __name__ == "__main__":
    sys.exit(main())
