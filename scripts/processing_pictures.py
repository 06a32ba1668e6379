"""Draws the processing model: the stages of reading a stream, and those of writing one.

The stages are listed here with the modules that they are in; tests compare the lists with what a
`Consumer` and a `Producer` really do, and in which order.

    python scripts/processing_pictures.py            write the pictures to docs/pictures
    python scripts/processing_pictures.py --check    exit with 1 when one is not as it would be
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from drawing import Drawing, main_of

__all__ = ["READING", "WRITING", "Stage", "main", "pictures"]


class Stage(NamedTuple):
    """One stage: its name, what it does, the module that does it, and what is said beside it."""

    name: str
    note: str
    module: str
    aside: str = ""


READING = (
    Stage("framing", "bytes to frames, however split", "aguia.codec.sse"),
    Stage("strict decode", "a typed event, or no", "aguia.codec.json"),
    Stage("compatibility", "retired shapes translated", "aguia.pipeline.compatibility"),
    Stage("middleware", "yours: sees and changes all", "aguia.pipeline.middleware"),
    Stage("enforcement", "unknown removed, malformed refused", "aguia.pipeline.enforcement"),
    Stage("chunk expansion", "shorthand to start, content, end", "aguia.pipeline.chunks"),
    Stage("joining of text", "halves of characters made whole", "aguia.pipeline.text"),
    Stage("verification", "may it come here?", "aguia.pipeline.verification"),
    Stage("conversation", "messages, state, outcome", "aguia.conversation"),
)

WRITING = (
    Stage(
        "structure",
        "as the schema has it?",
        "aguia.pipeline.enforcement",
        "refused at the line that asks: MalformedEvent",
    ),
    Stage(
        "chunk expansion",
        "only to judge what they stand for",
        "aguia.pipeline.chunks",
        "refused at the line that asks: SequenceViolation",
    ),
    Stage(
        "verification",
        "may it come here?",
        "aguia.pipeline.verification",
        "refused at the line that asks: SequenceViolation",
    ),
    Stage(
        "stream",
        "bounded, in order",
        "aguia.server.stream",
        "an agent that is ahead of its reader waits",
    ),
    Stage(
        "encoding",
        "one frame an event",
        "aguia.server.writers",
        "what has queued up leaves in one write",
    ),
)

MARGIN = 24
HEIGHT = 50
STEP = 78  # from one row to the next
WIDTH = 250
RIGHT = 400  # where the second column begins


def reading() -> str:
    """Reading: the short way straight down, the long one in the second column."""
    drawing = Drawing("Reading a stream: " + ", ".join(stage.name for stage in READING))
    places = {  # the column, and the row
        "framing": (0, 1), "strict decode": (0, 2), "compatibility": (1, 2), "middleware": (1, 3),
        "enforcement": (1, 4), "chunk expansion": (0, 5), "joining of text": (0, 6),
        "verification": (0, 7), "conversation": (0, 8),
    }  # fmt: skip
    lefts = (MARGIN, MARGIN + RIGHT)
    middle = MARGIN + WIDTH / 2
    other = MARGIN + RIGHT + WIDTH / 2

    for stage in READING:
        column, row = places[stage.name]
        _stage(drawing, lefts[column], _top(row), stage)
    drawing.text(middle, _top(0) + 32, "bytes of the body", "name")
    drawing.text(middle, _top(9) + 22, "your code", "name")
    for row in (0, 1, 5, 6, 7, 8):
        start = _top(row) + (40 if row == 0 else HEIGHT)
        drawing.arrow(f"M{middle:g} {start:g}V{_top(row + 1) + (4 if row == 8 else 0):g}")
    drawing.arrow(f"M{middle:g} {_top(2) + HEIGHT:g}V{_top(5):g}")
    drawing.text(middle + 12, _top(4) + 6, "it fits: nothing to", "faint", "start")
    drawing.text(middle + 12, _top(4) + 22, "translate, remove or refuse", "faint", "start")
    drawing.arrow(f"M{MARGIN + WIDTH} {_top(2) + HEIGHT / 2:g}H{MARGIN + RIGHT}")
    drawing.text((MARGIN + WIDTH + MARGIN + RIGHT) / 2, _top(2) + 17, "it does not:", "faint")
    drawing.text((MARGIN + WIDTH + MARGIN + RIGHT) / 2, _top(2) + 42, "as plain JSON", "faint")
    for row in (2, 3):
        drawing.arrow(f"M{other:g} {_top(row) + HEIGHT:g}V{_top(row + 1):g}")
    drawing.arrow(f"M{other:g} {_top(4) + HEIGHT:g}V{_top(5) + HEIGHT / 2:g}H{MARGIN + WIDTH}")
    turn = _top(3) + HEIGHT / 2
    drawing.arrow(f"M{middle:g} {turn:g}H{MARGIN + RIGHT}", "line dashed")
    drawing.text(middle + 12, turn - 9, "where middleware is installed,", "faint", "start")
    drawing.text(middle + 12, turn + 17, "all events go through it", "faint", "start")
    # What a stage refuses a stream with; the others only warn.
    aside = MARGIN + WIDTH + 16
    for row, error in ((1, "DecodeError"), (5, "SequenceViolation"), (7, "SequenceViolation")):
        drawing.text(aside, _top(row) + (17 if row == 5 else 30), error, "code", "start")
    drawing.text(other + 12, _top(4) + HEIGHT + 18, "MalformedEvent", "code", "start")
    drawing.text(aside, _top(8) + 30, "warns, and refuses nothing", "faint", "start")
    return drawing.svg(MARGIN + RIGHT + WIDTH + MARGIN, _top(9) + 22 + MARGIN)


def writing() -> str:
    """Writing, from top to bottom."""
    drawing = Drawing("Writing a stream: " + ", ".join(stage.name for stage in WRITING))
    middle = MARGIN + WIDTH / 2
    last = len(WRITING) + 1
    drawing.text(middle, _top(0) + 32, "what the agent asks for", "name")
    for row, stage in enumerate(WRITING, start=1):
        _stage(drawing, MARGIN, _top(row), stage)
        drawing.text(MARGIN + WIDTH + 16, _top(row) + 30, stage.aside, "faint", "start")
    for row in range(last):
        start = _top(row) + (40 if row == 0 else HEIGHT)
        drawing.arrow(f"M{middle:g} {start:g}V{_top(row + 1) + (4 if row == last - 1 else 0):g}")
    drawing.text(middle, _top(last) + 22, "bytes of the body", "name")
    return drawing.svg(2 * MARGIN + WIDTH + 350, _top(last) + 22 + MARGIN)


def _top(row: int) -> float:
    return STEP * row + MARGIN - 12


def _stage(drawing: Drawing, left: float, top: float, stage: Stage) -> None:
    drawing.box(left, top, WIDTH, HEIGHT)
    drawing.text(left + WIDTH / 2, top + 21, stage.name, "name")
    drawing.text(left + WIDTH / 2, top + 39, stage.note, "faint")


def pictures() -> dict[str, str]:
    """The pictures, by the names of their files."""
    return {"processing.svg": reading(), "processing-writing.svg": writing()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pictures; with `--check`, return 1 when one is not as it would be written."""
    return main_of(pictures, "Draws the processing model.", arguments)


if __name__ == "__main__":
    sys.exit(main())
