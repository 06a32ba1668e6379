"""Runs the benchmarks, each in a process of its own, and writes what they found.

`benchmarks/run` starts it, in an environment that has the peers.
"""

import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from measure import FOLDER, Table, machine

SCRIPTS = [
    "encode_delta",
    "read_one_message",
    "read_many_messages",
    "thread_length",
    "state_delta",
    "serving",
    "over_decode",
    "import_time",
    "workloads",
    "memory",
]

PICTURE = "(../docs/pictures/cost.svg)"
"""Where `thread_length` draws what it shows, as seen from RESULTS.md."""


def main() -> None:
    only = sys.argv[1:]
    unknown = set(only) - set(SCRIPTS)
    if unknown:
        sys.exit(f"error: no benchmark is called {', '.join(sorted(unknown))}")
    began = time.monotonic()
    reports = [run(name) for name in only or SCRIPTS]
    if only:
        print("\n".join(report["markdown"] for report in reports))
        return
    text = results(reports, time.monotonic() - began)
    (FOLDER / "RESULTS.md").write_text(text)
    bindings = subprocess.run(
        [sys.executable, str(FOLDER / "bindings.py")], check=True, capture_output=True, text=True
    )
    (FOLDER.parent / "docs" / "reference" / "bindings.md").write_text(bindings.stdout)
    print(text)


def run(name: str) -> dict[str, Any]:
    print(f"==> {name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        subprocess.run(
            [sys.executable, str(FOLDER / f"{name}.py"), str(found)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        report: dict[str, Any] = json.loads(found.read_text())
        return report


def results(reports: list[dict[str, Any]], seconds: float) -> str:
    budgets = Table(["work", "against", "goal", "measured", ""])
    for report in reports:
        for work, against, goal, figure, met in report["budgets"]:
            budgets.add(work, against, goal, figure, "met" if met else "**missed**")
    return (
        "\n\n".join(
            [
                "# What the benchmarks measured",
                f"Made by `benchmarks/run` on {datetime.now(UTC):%Y-%m-%d}, in "
                f"{seconds / 60:.0f} minutes. Each row is measured in one run, ours and the peer "
                "in turn, several rounds; figures are medians, ratios the medians of the rounds' "
                "ratios. Times are processor time unless a table says otherwise.",
                machine(),
                "## Budgets",
                budgets.markdown(),
                *(report["markdown"].strip().replace("(cost.svg)", PICTURE) for report in reports),
            ]
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
