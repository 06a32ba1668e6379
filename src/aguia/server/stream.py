"""The bounded stream between a run and whoever reads it.

A run writes into it and the response reads from it; neither knows the other (design decision
9). The order of writes is the order of events. A writer that is ahead of its reader waits.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from aguia.protocol.events import Event

__all__ = ["EventStream"]


class EventStream:
    """Events of one run on their way to one reader.

    Args:
        capacity: how many events may be waiting before `drained` makes writers wait.

    Attributes:
        count: how many events have been pushed.
        last: the last of them.
    """

    def __init__(self, capacity: int = 256) -> None:
        self._capacity = capacity
        self._waiting: deque[Event] = deque()
        self._closed = False
        self._abandoned = False
        self._changed: asyncio.Event = asyncio.Event()
        self._space: asyncio.Event = asyncio.Event()
        self.count = 0
        self.last: Event | None = None

    @property
    def abandoned(self) -> bool:
        """Whether the reader has gone away; what is pushed is then dropped."""
        return self._abandoned

    def push(self, events: Sequence[Event]) -> None:
        """Add events without waiting, so that their order is that of the calls."""
        if not events:
            return
        self.count += len(events)
        self.last = events[-1]
        if not self._abandoned:
            self._waiting.extend(events)
            self._changed.set()

    async def drained(self) -> None:
        """Wait until the reader has caught up."""
        if self._abandoned:
            # Nothing else would hold up a writer that does nothing but write, nor cancel it.
            await asyncio.sleep(0)
        while len(self._waiting) > self._capacity and not self._abandoned:
            self._space.clear()
            await self._space.wait()

    def close(self) -> None:
        """Say that no more events will come."""
        self._closed = True
        self._changed.set()

    def abandon(self) -> None:
        """Say that nobody reads any more: writers stop waiting and what they write is dropped."""
        self._abandoned = True
        self._waiting.clear()
        self._changed.set()
        self._space.set()

    async def take(self, timeout: float | None = None) -> list[Event] | None:
        """Everything that is waiting, at once; None when nothing will come any more.

        An empty list after `timeout` seconds without an event.
        """
        while not self._waiting:
            if self._closed or self._abandoned:
                return None
            self._changed.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            except TimeoutError:
                return []
        events = list(self._waiting)
        self._waiting.clear()
        self._space.set()
        return events
