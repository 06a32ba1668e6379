"""What the npm packages write, by the rules: `@ag-ui/encoder`, and what `@ag-ui/client` rewrites.

The same for the bridges of LangGraph and Pydantic AI is where these are tested. What is known of
each is in `docs/reference/peers.md`.
"""

import base64
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from aguia import compact
from aguia.testing import Checker
from support import require_peers
from support_server import node
from support_streams import Case, well_formed

SEEDS: Final = 75

Faults = Counter[tuple[str, str, str | None]]


@dataclass
class Written:
    """A random stream that keeps the rules, its own faults, and what the packages make of it."""

    case: Case
    faults: Faults
    bodies: dict[str, str | None]

    def of(self, kind: str, format: Any = "sse") -> Faults:
        """The faults of a body."""
        body = self.bodies[kind]
        assert body is not None, self.case.name
        checker = Checker(self.case.input, format=format)
        checker.receive(base64.b64decode(body))
        return faults(checker)


@pytest.fixture(scope="module")
def written() -> list[Written]:
    require_peers()
    cases = [well_formed(seed) for seed in range(SEEDS)]
    answer = node("streams.mjs", {"cases": [case.events for case in cases]})
    return [
        Written(case, of_events(case, case.events), bodies)
        for case, bodies in zip(cases, answer["cases"], strict=True)
    ]


def faults(checker: Checker) -> Faults:
    checker.end()
    return Counter((each.severity, each.rules[0], each.path) for each in checker.findings)


def of_events(case: Case, events: Iterable[Any]) -> Faults:
    checker = Checker(case.input)
    for event in events:
        checker.receive_event(event)
    return faults(checker)


@pytest.mark.parametrize(
    ("kind", "format"), [("sse", "sse"), ("binary", "protobuf"), ("expanded", "sse")]
)
def test_what_is_right_is_written_right(written: list[Written], kind: str, format: str) -> None:
    """HTTP-2, PB-2, CHUNK-1: no fault that the events did not have, which have no error."""
    for each in written:
        assert not any(severity == "error" for severity, _, _ in each.faults)
        assert each.of(kind, format) == each.faults, each.case.name
    assert sum(len(each.case.events) for each in written) > 1000


# What compacting a stream breaks, by moving events past others that they depend on.
MOVED: Final = {
    "RUN-6": "past the end of their run",
    "SUB-2": "before the announcement of their subagent",
    "SUB-4": "to another owner's item of that id",
    "CHUNK-2": "away from the item that a chunk continues",
    "REAS-2": "out of the reasoning that was open",
}


def test_compacted_streams_are_for_storing_not_for_sending(written: list[Written]) -> None:
    """RUN-6, SUB-2, SUB-4, CHUNK-2, REAS-2: what is interleaved is not kept so. Here it is."""
    found: Faults = Counter()
    for each in written:
        found += each.of("compacted") - each.faults
        ours = of_events(each.case, compact(each.case.events))
        assert ours <= each.faults, each.case.name
    assert {rule for severity, rule, _ in found if severity == "error"} == MOVED.keys()
