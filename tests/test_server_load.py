"""Many slow readers on one process: everybody is served, and memory stays bounded.

Measured in a process of its own, because the largest size that a process ever had cannot be
taken back. `python tests/test_server_load.py` prints the figures.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.types import Message

import aguia
from aguia.server import AgentApp, Run
from support_asgi import Connection, call, input_body

READERS: Final = 200
DELTAS: Final = 2_000
SIZE: Final = 100

MEGABYTE: Final = 1024 * 1024

BOUND: Final = 60
"""Seconds after which something hangs."""

LIMIT: Final = 40 * MEGABYTE
"""By how much the process may grow; all that is written would be more than 80 MB."""


def measure(readers: int) -> dict[str, Any]:
    """Let so many slow clients read one long answer each; give what it took."""
    import resource

    async def agent(run: Run) -> None:
        async with run.text() as text:
            for number in range(DELTAS):
                await text.write(f"{number:0{SIZE}}")

    app = AgentApp(agent)
    read = finished = writes = reading = most = 0

    async def slow(message: Message) -> None:
        nonlocal read, writes, finished
        if message["type"] == "http.response.body":
            read += len(message["body"])
            writes += 1
            finished += b'"RUN_FINISHED"' in message["body"]
            await asyncio.sleep(0.1)

    async def client() -> None:
        nonlocal reading, most
        connection = Connection(app, body=input_body(), on_send=slow, sent=_Nothing())
        reading += 1
        most = max(most, reading)
        await connection.run()
        reading -= 1

    async def together() -> None:
        await client()  # what is only made once is not counted
        async with asyncio.TaskGroup() as group:
            for _ in range(readers):
                group.create_task(client())

    unit = 1 if sys.platform == "darwin" else 1024
    asyncio.run(client())
    read = finished = writes = most = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    began = time.perf_counter()
    asyncio.run(together())
    return {
        "readers": most,
        "finished": finished - 1,
        "read": read,
        "writes": writes,
        "seconds": round(time.perf_counter() - began, 2),
        "grown": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before,
    }


class _Nothing(list[Message]):
    """Keeps no message, as a socket does not."""

    def append(self, message: Message) -> None:
        """Forget it."""


@pytest.mark.unmeasured
@pytest.mark.skipif(sys.platform == "win32", reason="the size of a process as POSIX tells it")
def test_many_slow_readers_are_served_in_bounded_memory() -> None:
    """Back-pressure end to end: each is slow for itself, and the buffers are bounded."""
    here = Path(__file__)
    done = subprocess.run(
        [sys.executable, str(here), str(READERS)],
        env={**os.environ, "PYTHONPATH": str(Path(aguia.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=here.parent,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["readers"] == found["finished"] == READERS
    assert found["read"] > (READERS + 1) * DELTAS * SIZE
    assert found["writes"] < (READERS + 1) * DELTAS / 20, "events in one write"
    assert found["grown"] < LIMIT


@pytest.mark.unmeasured
def test_readers_are_slow_for_themselves_alone() -> None:
    """A quick client beside slow ones has its answer at once."""

    async def agent(run: Run) -> None:
        async with run.text() as text:
            for number in range(1000):
                await text.write(f"{number:0{SIZE}}")

    async def together() -> None:
        never = asyncio.Event()

        async def slow(message: Message) -> None:
            if message["type"] == "http.response.body":
                await never.wait()

        app = AgentApp(agent, grace=0.1)
        running = [
            asyncio.create_task(Connection(app, body=input_body(), on_send=slow).run())
            for _ in range(20)
        ]
        await asyncio.sleep(0.2)
        async with asyncio.timeout(BOUND):
            quick = await call(app)
        assert len(quick.events()) == 1004
        assert not any(each.done() for each in running)
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(together())


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(int((sys.argv[1:] or [str(READERS)])[0]))) + "\n")
