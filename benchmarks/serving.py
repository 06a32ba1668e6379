"""Runs served by one process: ours against FastAPI with the official encoder.

    python benchmarks/serving.py

Each server is a process of its own, uvicorn with its defaults, and this process is the clients:
sockets that only count what comes. Both agents say the same: one message of deltas. What is
compared is the processor time of the server, asked of it before and after; the numbers a second
are the wall clock's and need a machine with nothing else to do.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

from measure import FOLDER, Report, Table, main, ratio, rounds, take_turns
from streams import INPUT

DELTAS = 200
OPEN_RUNS = [1, 10, 100, 1_000]
EVENTS = 20_000
"""About how many events are served for one figure."""
IDLE_RUNS = 1_000


def measure() -> Report:
    report = Report("Serving")
    fast, paced = _table(), _table()
    with _server("ours") as ours, _server("official") as official:
        servers = {"official": official, "ours": ours}
        for pace, table in ("fast", fast), ("paced", paced):
            for runs in OPEN_RUNS:
                found: dict[str, list[_Found]] = {name: [] for name in servers}
                many = runs >= 1_000
                take_turns(
                    rounds(1 if many else 3),
                    {
                        name: partial(_round, port, pace, runs, found[name])
                        for name, port in servers.items()
                    },
                    warm_up=not many,
                )
                more = _add_row(
                    table, runs, {name: them[not many :] for name, them in found.items()}
                )
                if runs == 100:
                    text = "as fast as it can" if pace == "fast" else "one delta at a time"
                    report.budget(
                        f"events served by one process, 100 open runs, an agent that writes {text}",
                        "FastAPI + official encoder",
                        "5 times as many",
                        f"{more:.1f} times as many for the same processor time",
                        more >= 5,
                    )
        memory = Table(["", "KB an idle open run"])
        for title, name in ("FastAPI + official encoder", "official"), ("ours", "ours"):
            memory.add(title, asyncio.run(_idle_memory(servers[name], IDLE_RUNS)) / 1024)
    report.text = [
        f"Runs of {DELTAS} deltas, so many at once; processor time of the server an event, and by "
        "the wall clock events a second and the median time from a request to its first event. "
        "First an agent that writes as fast as it can:",
        fast,
        "Then one that gives the loop a turn before each delta, as one does that waits for a "
        "model, so that every delta is a write of its own:",
        paced,
        f"Memory of a run that is open and says nothing, of {IDLE_RUNS:,}, its connection included "
        "(growth of the server's resident memory):",
        memory,
    ]
    return report


def _table() -> Table:
    heads = ("µs an event", "events/s", "ms to first event")
    return Table(
        [
            "open runs",
            *(f"{head}, {who}" for who in ("peer", "ours") for head in heads),
            "times as many for the same processor time",
        ]
    )


class _Found:
    """What one round has found."""

    def __init__(self, cpu: float, wall: float, first: list[float], events: int) -> None:
        self.cpu = cpu / events
        self.rate = events / wall
        self.first = median(first)


def _add_row(table: Table, runs: int, found: dict[str, list[_Found]]) -> float:
    more = ratio([each.cpu for each in found["official"]], [each.cpu for each in found["ours"]])
    cells: list[Any] = []
    for who in "official", "ours":
        rate = int(median(each.rate for each in found[who]))
        first = median(each.first for each in found[who])
        cells += [median(each.cpu for each in found[who]) * 1e6, rate, first * 1e3]
    table.add(runs, *cells, more)
    return more


def _round(port: int, pace: str, runs: int, found: list[_Found]) -> float:
    result = asyncio.run(_load(port, pace, runs))
    found.append(result)
    return result.cpu


async def _load(port: int, pace: str, runs: int) -> _Found:
    waves = max(1, EVENTS // (runs * (DELTAS + 4)))
    first: list[float] = []
    cpu, began = await _ask(port, "cpu"), time.perf_counter()
    counts = await asyncio.gather(*(_client(port, pace, waves, first) for _ in range(runs)))
    wall = time.perf_counter() - began
    events = sum(counts)
    assert events == runs * waves * (DELTAS + 4), events
    return _Found(await _ask(port, "cpu") - cpu, wall, first, events)


async def _client(port: int, pace: str, waves: int, first: list[float]) -> int:
    events = 0
    for _ in range(waves):
        began = time.perf_counter()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_request(pace))
        tail, told = b"", False
        while data := await reader.read(65536):
            data = tail + data
            frames = data.count(b"\ndata: ")
            if frames and not told:
                told = True
                first.append(time.perf_counter() - began)
            events += frames
            # A mark that is cut in two is counted with what follows.
            cut = data.rfind(b"\n")
            tail = data[cut:] if cut >= 0 and b"\ndata: ".startswith(data[cut:]) else b""
        writer.close()
        await writer.wait_closed()
    return events


def _request(pace: str) -> bytes:
    body = json.dumps(INPUT).encode()
    return (
        f"POST /{pace} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode() + body


async def _ask(port: int, what: str) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /{what} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return float(answer.split(b"\r\n\r\n", 1)[1])


async def _idle_memory(port: int, runs: int) -> float:
    """Bytes that each of `runs` open runs takes, which wait for something that never comes."""
    before = await _ask(port, "memory")
    connections = []
    for _ in range(runs):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_request("idle"))
        await reader.readuntil(b"RUN_STARTED")
        connections.append(writer)
    after = await _ask(port, "memory")
    for writer in connections:
        writer.close()
    return (after - before) / runs


@contextmanager
def _server(which: str) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, str(FOLDER / "serving_servers.py"), which],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    main(measure)
