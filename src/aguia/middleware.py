"""Middleware to install, ready-made, and the types of the two kinds.

Run middleware goes around the whole runs of a client's agent, `Agent(middleware=[…])`:

- `filter_tool_calls`: leaves out the calls of some tools;
- `throttle`: merges deltas, so that a screen is drawn a few times a second and not for each token;
- `Recorder`: keeps what comes and when, to be read back by `read_recording`.

Event middleware sees single events, `Consumer(middleware=[…])` and
`Agent(event_middleware=[…])`; `ToolCallFilter` is the filter in that form. Both kinds stand
before enforcement, and what they give is judged like what a peer sends (PROC-7).
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from os import PathLike
from types import TracebackType
from typing import IO, Any, Final, Self

import msgspec

from aguia.codec.json import encode
from aguia.codec.recordings import Recorded, read_lines
from aguia.pipeline.deltas import Chunk, Delta, join
from aguia.pipeline.middleware import CallNext, Item, Middleware, RunMiddleware
from aguia.pipeline.tools import ToolCallFilter
from aguia.protocol.common import UNSET
from aguia.protocol.events import ToolCallArgsEvent
from aguia.protocol.input import RunAgentInput

__all__ = [
    "CallNext",
    "Item",
    "Middleware",
    "Recorded",
    "Recorder",
    "RunMiddleware",
    "ToolCallFilter",
    "filter_tool_calls",
    "read_recording",
    "throttle",
]


def filter_tool_calls(
    *, allow: Iterable[str] | None = None, deny: Iterable[str] | None = None
) -> RunMiddleware:
    """Leave out the calls of tools by name: all but those to `allow`, or those to `deny`.

    With a call go its arguments, its result and its encrypted value; the message that carries
    it stays. Raises `ValueError` unless exactly one of the two is given.
    """
    allow = None if allow is None else _several(allow)
    deny = None if deny is None else _several(deny)
    ToolCallFilter(allow=allow, deny=deny)

    async def filtered(input: RunAgentInput, call_next: CallNext) -> AsyncGenerator[Item, None]:
        keep = ToolCallFilter(allow=allow, deny=deny)
        async for event in call_next(input):
            for kept in keep(event):
                yield kept

    return filtered


def _several(names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise TypeError(f"give several names of tools, as in [{names!r}]")
    return list(names)


# Throttling

_END: Final[Any] = object()

_AHEAD: Final = 64
"""How many events may be read ahead of whoever takes the throttled ones."""


def throttle(seconds: float) -> RunMiddleware:
    """Merge the deltas that come for one item within a time window.

    The first delta after a quiet moment is given at once; what follows is gathered for `seconds`
    at most and given as one delta an item, metadata merged. Any other event is given when it
    comes, after what has been gathered, so that the order of everything else stays. Of the raw
    events of merged deltas the only one is kept, or none. Needs asyncio.

    Raises `ValueError` for a window that is not longer than nothing.
    """
    if not seconds > 0:
        raise ValueError(f"a time window is longer than 0 seconds, and not {seconds}")

    async def throttled(input: RunAgentInput, call_next: CallNext) -> AsyncGenerator[Item, None]:
        queue: asyncio.Queue[Any] = asyncio.Queue(_AHEAD)
        reading = asyncio.create_task(_read(call_next(input), queue))
        gathered = _Gathered()
        opens = 0.0  # when the next delta may be given
        clock = asyncio.get_running_loop().time
        try:
            while True:
                if gathered and clock() >= opens:
                    opens = clock() + seconds
                    for merged in gathered.take():
                        yield merged
                try:
                    async with asyncio.timeout_at(opens if gathered else None):
                        event = await queue.get()
                except TimeoutError:
                    continue
                if isinstance(event, Delta | Chunk):
                    if not gathered and clock() >= opens:
                        opens = clock() + seconds
                        yield event
                        continue
                    if gathered.add(event):
                        continue
                for merged in gathered.take():
                    yield merged
                if event is _END:
                    return
                if isinstance(event, _Raised):
                    raise event.error
                if isinstance(event, Delta | Chunk):
                    gathered.add(event)
                else:
                    yield event
        finally:
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.exception()

    return throttled


class _Raised:
    """What ended a stream instead of its end."""

    def __init__(self, error: Exception) -> None:
        self.error = error


async def _read(events: AsyncIterator[Item], queue: asyncio.Queue[Any]) -> None:
    """Move events into the queue, and how they end."""
    try:
        async for event in events:
            await queue.put(event)
    except Exception as error:
        await queue.put(_Raised(error))
    else:
        await queue.put(_END)
    finally:
        # In the task that has been reading, as cancel scopes demand.
        aclose = getattr(events, "aclose", None)
        if aclose is not None:
            await aclose()


class _Gathered:
    """Deltas that wait: one an item, or one chunk."""

    def __init__(self) -> None:
        self._waiting: dict[Any, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take(self) -> list[Item]:
        taken = list(self._waiting.values())
        self._waiting.clear()
        return taken

    def add(self, event: Any) -> bool:
        """Gather a delta; False when what waits has to go first."""
        if isinstance(event, Chunk):
            return self._add_chunk(event)
        id_ = event.tool_call_id if isinstance(event, ToolCallArgsEvent) else event.message_id
        key = (type(event), id_)
        if None in self._waiting:
            return False  # the chunk's stream ends here
        first = self._waiting.get(key)
        if first is not None:
            owner = first.subagent_run_id
            if UNSET not in (owner, event.subagent_run_id) and owner != event.subagent_run_id:
                return False
            joined = join(first, event)
            if owner is UNSET:
                joined = msgspec.structs.replace(joined, subagent_run_id=event.subagent_run_id)
            event = joined
        self._waiting[key] = event
        return True

    def _add_chunk(self, event: Chunk) -> bool:
        first = self._waiting.get(None)
        if self._waiting and (first is None or not _continues(event, first)):
            return False
        self._waiting[None] = event if first is None else join(first, event)
        return True


def _continues(chunk: Chunk, first: Chunk) -> bool:
    """Whether a chunk that comes right after another surely continues the same item."""
    if type(chunk) is not type(first) or chunk.subagent_run_id != first.subagent_run_id:
        return False
    return all(
        getattr(chunk, member) in (UNSET, getattr(first, member))
        for member in ("message_id", "role", "name", *_TOOL_MEMBERS)
        if hasattr(chunk, member)
    )


_TOOL_MEMBERS: Final = ("tool_call_id", "tool_call_name", "parent_message_id")


# Recording


class Recorder:
    """Run middleware that writes what is sent and what comes into a file, as JSON Lines.

    Each line is an object with `at`, seconds since the run began, and either `input` or
    `event`. Runs follow one another in the order in which their events come.

    Args:
        target: a path, whose file is appended to, or a binary file, which stays open on `close`.
    """

    def __init__(self, target: str | PathLike[str] | IO[bytes]) -> None:
        self._own = False
        self._file: IO[bytes]
        if isinstance(target, str | PathLike):
            self._file, self._own = open(target, "ab"), True  # noqa: SIM115
        else:
            self._file = target

    async def __call__(
        self, input: RunAgentInput, call_next: CallNext
    ) -> AsyncGenerator[Item, None]:
        """Record one run."""
        began = time.monotonic()
        self._write(began, input=input)
        try:
            async for event in call_next(input):
                self._write(began, event=event)
                yield event
        finally:
            self._file.flush()

    def _write(self, began: float, **what: Any) -> None:
        line = encode({"at": round(time.monotonic() - began, 6), **what})
        self._file.write(line + b"\n")

    def close(self) -> None:
        """Close the file that was opened here."""
        if self._own:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_recording(source: str | PathLike[str] | IO[bytes]) -> Iterator[Recorded]:
    """Read what a `Recorder` has written, line by line.

    Raises `ValueError`, with the number of the line, for what is no line of a recording.
    """
    if isinstance(source, str | PathLike):
        with open(source, "rb") as file:
            yield from read_lines(file)
    else:
        yield from read_lines(source)
