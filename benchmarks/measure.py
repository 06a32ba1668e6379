"""What the benchmarks share: measuring in turns, medians, budgets, tables, and what it ran on.

A benchmark gives a `Report`; run alone it prints it, and `benchmarks/run` puts all of them into
`RESULTS.md`. Times are processor time unless a table says otherwise: a machine with other work
on it makes them longer, but no ratio of two that were measured in turns wrong.
"""

import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

__all__ = [
    "FOLDER",
    "Report",
    "Table",
    "best",
    "in_turn",
    "machine",
    "main",
    "median",
    "npm_version",
    "peers_folder",
    "ratio",
    "rounds",
    "seconds",
    "take_turns",
]

FOLDER: Final = Path(__file__).resolve().parent


def rounds(number: int) -> int:
    """How many rounds to measure: `number`, or 1 with `AGUIA_BENCH_QUICK` set, to try a script."""
    return 1 if os.environ.get("AGUIA_BENCH_QUICK") else number


def seconds(work: Callable[[], object], number: int = 1) -> float:
    """The processor time of one call of `work`, out of `number` calls in a row."""
    gc.collect()
    before = time.process_time()
    for _ in range(number):
        work()
    return (time.process_time() - before) / number


def in_turn(number: int, **contenders: Callable[[], float]) -> dict[str, list[float]]:
    """See `take_turns`."""
    return take_turns(number, contenders)


def take_turns(
    number: int, contenders: Mapping[str, Callable[[], float]], *, warm_up: bool = True
) -> dict[str, list[float]]:
    """Measure each of `contenders`, which give seconds, once a round.

    They take turns in being first, so that what drifts while all this runs favours nobody. A
    round before the first warms up and doesn't count, unless it is left out.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for round_ in range(-warm_up, number):
        for name in order:
            measured = contenders[name]()
            if round_ >= 0:
                times[name].append(measured)
        order.append(order.pop(0))
    return times


def median(times: Sequence[float]) -> float:
    return statistics.median(times)


def best(times: Sequence[float]) -> float:
    return min(times)


def ratio(slower: Sequence[float], faster: Sequence[float]) -> float:
    """How many times as long: the median of the rounds' own ratios."""
    return statistics.median(a / b for a, b in zip(slower, faster, strict=True))


@dataclass
class Table:
    """One table: `columns` are its head, numbers are aligned to the right."""

    columns: list[str]
    rows: list[list[Any]] = field(default_factory=list)

    def add(self, *cells: Any) -> None:
        self.rows.append(list(cells))

    def markdown(self) -> str:
        numeric = [
            all(_is_number(row[place]) for row in self.rows) for place in range(len(self.columns))
        ]
        rule = ["--:" if right else "---" for right in numeric]
        lines = [self.columns, rule, *([_cell(cell) for cell in row] for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass
class Report:
    """What one benchmark has found.

    Attributes:
        title: what was measured.
        text: paragraphs and tables, in order.
        budgets: rows of the table of budgets: the work, against what, the goal in words, the
            figure in words, and whether the goal was met.
    """

    title: str
    text: list[str | Table] = field(default_factory=list)
    budgets: list[tuple[str, str, str, str, bool]] = field(default_factory=list)

    def budget(self, work: str, against: str, goal: str, figure: str, met: bool) -> None:
        self.budgets.append((work, against, goal, figure, met))

    def markdown(self) -> str:
        parts = [f"## {self.title}"]
        for work, against, goal, figure, met in self.budgets:
            parts.append(
                f"Budget: {work}, against {against}: {goal}. Measured: {figure}, "
                f"{'met' if met else '**missed**'}."
            )
        parts += [part if isinstance(part, str) else part.markdown() for part in self.text]
        return "\n\n".join(parts) + "\n"


def main(measure: Callable[[], Report]) -> None:
    """What each script ends with: print the report, or write it to the file that is named."""
    report = measure()
    print(report.markdown())
    if len(sys.argv) > 1:
        found = {"markdown": report.markdown(), "budgets": report.budgets}
        Path(sys.argv[1]).write_text(json.dumps(found))


def machine() -> str:
    """The machine and the versions that were measured, in a few lines."""
    packages = [
        f"{name} {version(name)}"
        for name in (
            *("msgspec", "starlette", "uvicorn", "protobuf"),
            *("ag-ui-protocol", "pydantic", "fastapi", "jsonpatch"),
        )
        if _is_installed(name)
    ]
    return "\n".join(
        (
            f"- {_processor()}, {os.cpu_count()} processors, {platform.system()} "
            f"{platform.machine()}",
            f"- {platform.python_implementation()} {platform.python_version()}, "
            f"aguia {version('aguia')} ({_commit()})",
            f"- {', '.join(packages)}",
            f"- Node {_said('node', '--version')}, @ag-ui/client {npm_version('@ag-ui/client')}",
        )
    )


def peers_folder() -> Path:
    """The folder with the npm peers' `node_modules`."""
    given = os.environ.get("AGUIA_PEERS")
    return Path(given).parent if given else FOLDER.parent / "tests" / "peers"


def npm_version(name: str) -> str:
    try:
        manifest = (peers_folder() / "node_modules" / name / "package.json").read_text()
    except OSError:
        return "(not installed)"
    return str(json.loads(manifest)["version"])


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "processor of an unknown kind"


def _commit() -> str:
    return _said("git", "-C", str(FOLDER), "describe", "--always", "--dirty")


def _said(*command: str) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "(unknown)"
    return answer.stdout.strip()


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float)


def _cell(cell: Any) -> str:
    match cell:
        case int():
            return f"{cell:,}"
        case float() if abs(cell) >= 100:
            return f"{cell:,.0f}"
        case float() if abs(cell) >= 10:
            return f"{cell:.1f}"
        case float():
            return f"{cell:.2f}"
    return str(cell)
