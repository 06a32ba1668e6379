"""One delta on a state: ours against `jsonpatch`, on states of 1 KB, 1 MB and 20 MB.

python benchmarks/state_delta.py
"""

import time
from functools import partial
from typing import Any

import jsonpatch

from aguia import Consumer, JsonPatch
from aguia.conversation.patch import PatchTarget
from measure import Report, Table, in_turn, main, median, ratio, rounds
from streams import INPUT, run, sse_body, state_of

SIZES = {"1 KB": 1_000, "1 MB": 1_000_000, "20 MB": 20_000_000}
DELTAS = 5_000
ROWS = 100


def measure() -> Report:
    report = Report("State deltas")
    table = Table(
        [
            "state",
            "µs `jsonpatch`",
            "µs ours",
            "times as fast",
            "µs the first delta",
            "µs bytes to conversation",
            "µs the same, state read after each",
        ]
    )
    ours: dict[str, list[float]] = {}
    for name, size in SIZES.items():
        state = state_of(size)
        times = in_turn(
            rounds(5 if size <= 1_000_000 else 2),
            theirs=partial(_jsonpatch, state, {1_000: 300, 1_000_000: 3}.get(size, 1)),
            ours=partial(_patch, state),
            first=partial(_first, state),
            stream=partial(_stream, state, read=False),
            read=partial(_stream, state, read=True),
        )
        ours[name] = times["ours"]
        faster = ratio(times["theirs"], times["ours"])
        table.add(
            name,
            *(median(times[which]) * 1e6 for which in ("theirs", "ours")),
            faster,
            *(median(times[which]) * 1e6 for which in ("first", "stream", "read")),
        )
        if name == "1 MB":
            report.budget(
                "one delta on a 1 MB state",
                "`jsonpatch`",
                "1,000 times as fast",
                f"{faster:,.0f} times as fast",
                faster >= 1_000,
            )
    grown = median(ours["20 MB"]) / median(ours["1 KB"])
    report.budget(
        "one delta on a 20 MB state",
        "itself, on 1 KB",
        "flat in the state's size",
        f"{grown:.2f} times",
        grown <= 1.2,
    )
    report.text = [
        f"A delta replaces one member of one of {ROWS} rows, which lie all over the state's table; "
        "the containers on its path are the conversation's own then, and are changed in place. "
        "They become its own with the first delta after a snapshot, or after somebody has got hold "
        "of the state: that copies them, which of a table with 200,000 rows is the list of them "
        "(of 1.6 MB, out of 20). A conversation whose state is read after each delta pays that "
        "each time.",
        table,
    ]
    return report


def _delta(state: dict[str, Any], number: int) -> JsonPatch:
    rows = len(state["document"]["rows"])
    row = number % ROWS * max(1, rows // ROWS) % rows
    return [{"op": "replace", "path": f"/document/rows/{row}/done", "value": number % 3}]


def _jsonpatch(state: dict[str, Any], deltas: int) -> float:
    document = state
    before = time.process_time()
    for number in range(deltas):
        document = jsonpatch.apply_patch(document, _delta(state, number))
    return (time.process_time() - before) / deltas


def _patch(state: dict[str, Any]) -> float:
    target = PatchTarget(state)
    for number in range(ROWS):
        target.apply(_delta(state, number))
    before = time.process_time()
    for number in range(DELTAS):
        target.apply(_delta(state, number))
    return (time.process_time() - before) / DELTAS


def _first(state: dict[str, Any]) -> float:
    target = PatchTarget(state)
    before = time.process_time()
    target.apply(_delta(state, 50))
    return time.process_time() - before


def _stream(state: dict[str, Any], *, read: bool) -> float:
    deltas = DELTAS if not read else 50
    consumer = Consumer(INPUT, state=state)
    body = sse_body(
        run({"type": "STATE_DELTA", "delta": _delta(state, number)} for number in range(deltas))
    )
    before = time.process_time()
    for _ in consumer.receive(body):
        if read:
            _ = consumer.conversation.state
    return (time.process_time() - before) / deltas


if __name__ == "__main__":
    main(measure)
