"""Runs that were kept, played back as a transport (PROC-7: judged like what a peer sends)."""

import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal

import anyio
from anyio.lowlevel import checkpoint

from aguia.client.transports import Answer
from aguia.codec.json import parse_object
from aguia.codec.recordings import RecordedRun, mapped, mapping, read_runs
from aguia.protocol.errors import TransportError
from aguia.protocol.input import RunAgentInput

__all__ = ["Recording"]


class Recording:
    """Answers each run with the next one of a recording: `aguia.Agent(Recording("runs.jsonl"))`.

    What kind of recording it is, is found by looking: JSON Lines of
    `aguia.middleware.Recorder`; JSON Lines, or a JSON array, of events; a body of server-sent
    events as it came over the wire. Each may be packed by gzip. Where no inputs tell runs apart,
    a `RUN_STARTED` after the end of a run begins the next.

    A recorded run plays as it came: one that was cut off is cut off again, and what was no
    event is none. What is sent is not compared with what was sent then.

    Args:
        source: a path, the bytes themselves, or a binary file, which is read from where it is
            and stays open.
        pace: None plays as fast as the events are taken; "original" keeps the recording's own
            times, where it has any (those of a `Recorder`); a number is the seconds before each
            event, whatever the times were.
        mapped: whether the ids of the recorded run and thread are replaced by those of the run
            that is played to, so that it is this run which starts and finishes (RUN-3).

    Raises `ValueError` for what is no recording, and `OSError` for a file that can't be read.
    """

    def __init__(
        self,
        source: str | PathLike[str] | bytes | IO[bytes],
        *,
        pace: Literal["original"] | float | None = None,
        mapped: bool = True,
    ) -> None:
        if isinstance(pace, str):
            if pace != "original":
                raise ValueError(f"pace is None, 'original' or a number of seconds, not {pace!r}")
        elif pace is not None and not 0 <= pace < math.inf:
            raise ValueError(f"pace is a number of seconds from 0, not {pace}")
        self._pace = pace
        self._mapped = mapped
        self._runs = read_runs(_content(source))
        self._next = 0

    @property
    def runs_left(self) -> int:
        """How many runs have not been played yet."""
        return len(self._runs) - self._next

    @asynccontextmanager
    async def open(self, input: RunAgentInput) -> AsyncIterator[Answer]:
        """Play the next run; raises `TransportError` after the last."""
        if not self.runs_left:
            raise TransportError("the recording has no further run")
        run = self._runs[self._next]
        self._next += 1
        async with aclosing(self._play(run, input)) as events:
            yield Answer(None, events)

    async def capabilities(self) -> Any | None:
        """None: a recording declares nothing."""
        return None

    async def close(self) -> None:
        """Nothing is held that would have to be released."""

    async def _play(self, run: RecordedRun, input: RunAgentInput) -> AsyncGenerator[Any, None]:
        ids = mapping(run, input.thread_id, input.run_id) if self._mapped else {}
        began = anyio.current_time()
        for at, event in run.events:
            if self._pace is None or (at is None and self._pace == "original"):
                await checkpoint()
            elif self._pace == "original":
                await anyio.sleep_until(began + (at or 0))
            else:
                await anyio.sleep(self._pace)
            yield mapped(parse_object(event) if isinstance(event, bytes) else event, ids)


def _content(source: str | PathLike[str] | bytes | IO[bytes]) -> bytes:
    if isinstance(source, bytes):
        return source
    if isinstance(source, str | PathLike):
        return Path(source).read_bytes()
    content = source.read()
    if not isinstance(content, bytes):
        raise TypeError("a recording is read from a file that is open in binary mode")
    return content
