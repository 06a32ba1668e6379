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
        # What the reader waits for: True when there is something to take, False after a silence.
        self._news: asyncio.Future[bool] | None = None
        self._silence = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._space: asyncio.Event = asyncio.Event()
        self.count: int = 0
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
            self._tell()

    @property
    def holds_up(self) -> bool:
        """Whether `drained` would have a writer wait."""
        return self._abandoned or len(self._waiting) > self._capacity

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
        self._tell()
        self._disarm()

    def abandon(self) -> None:
        """Say that nobody reads any more: writers stop waiting and what they write is dropped."""
        self._abandoned = True
        self._waiting.clear()
        self._tell()
        self._disarm()
        self._space.set()

    async def take(self, timeout: float | None = None) -> list[Event] | None:
        """Everything that is waiting, at once; None when nothing will come any more.

        An empty list after `timeout` seconds without an event.
        """
        while not self._waiting:
            if self._closed or self._abandoned:
                return None
            if not await self._wait(timeout):
                return []
        events = list(self._waiting)
        self._waiting.clear()
        self._space.set()
        return events

    async def gather(self, turns: int) -> None:
        """Give those that write so many turns of the event loop, unless no more will come."""
        for _ in range(turns):
            if self._closed or self._abandoned:
                return
            await asyncio.sleep(0)

    async def _wait(self, timeout: float | None) -> bool:
        loop = asyncio.get_running_loop()
        self._news = loop.create_future()
        if timeout is None:
            self._disarm()
        else:
            # One alarm serves many waits, as it looks again how long it was silent when it rings:
            # to set one and take it back for every event is what most of an event would cost.
            self._silence = loop.time() + timeout
            if self._alarm is not None and self._alarm.when() > self._silence:
                self._disarm()
            if self._alarm is None:
                self._alarm = loop.call_at(self._silence, self._ring)
        return await self._news

    def _ring(self) -> None:
        loop = asyncio.get_running_loop()
        self._alarm = None
        if self._news is None or self._news.done():
            return
        if loop.time() >= self._silence:
            self._news.set_result(False)
        else:
            self._alarm = loop.call_at(self._silence, self._ring)

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(True)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
