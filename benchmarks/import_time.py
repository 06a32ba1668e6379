"""What `import aguia` takes beside `import msgspec`, and the rooms that load when they are used.

python benchmarks/import_time.py
"""

import os
import subprocess
import sys
import tempfile

from measure import Report, Table, best, in_turn, main, rounds

GOAL = 0.060
MODULES = ("msgspec", "aguia", "aguia.client", "aguia.server")


def measure() -> Report:
    report = Report("Import time")
    times = in_turn(rounds(11), **{name: lambda name=name: _seconds(name) for name in MODULES})
    # Of a start the least is what it takes; all above it is the machine's.
    base = best(times["msgspec"])
    extra = best(times["aguia"]) - base
    report.budget(
        "`import aguia`",
        "`import msgspec`",
        "at most 60 ms more",
        f"{extra * 1e3:.0f} ms more",
        extra <= GOAL,
    )
    table = Table(["import", "ms of processor time", "ms more than msgspec"])
    for name in MODULES:
        table.add(f"`{name}`", best(times[name]) * 1e3, (best(times[name]) - base) * 1e3)
    report.text = ["In a new interpreter each time, its own start excluded, bytecode there.", table]
    return report


_bytecode = tempfile.TemporaryDirectory()
"""Where the bytecode is kept, which the round that warms up has written."""


def _seconds(module: str) -> float:
    code = (
        "import time; before = time.process_time(); "
        f"import {module}; print(time.process_time() - before)"
    )
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": _bytecode.name}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return float(answer.stdout)


if __name__ == "__main__":
    main(measure)
