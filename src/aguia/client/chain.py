"""Middleware around a whole run: who calls whom, and that everything opened is closed."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from aguia.pipeline.middleware import CallNext, Item, RunMiddleware
from aguia.protocol.input import RunAgentInput

__all__ = ["wrapped"]


async def wrapped(
    middleware: Sequence[RunMiddleware], input: RunAgentInput, innermost: CallNext
) -> AsyncGenerator[Item, None]:
    """Iterate what comes out of the first middleware, which goes around the others.

    Close it when it is left early: the runs that middleware has left unfinished are closed
    with it, the outermost first. Raises `TypeError` for what gives no asynchronous iterator.
    """
    opened: list[AsyncIterator[Item]] = []

    def calling(place: int) -> CallNext:
        def call_next(input: RunAgentInput) -> AsyncIterator[Item]:
            if place == len(middleware):
                events = innermost(input)
            else:
                events = _checked(middleware[place], input, calling(place + 1))
            opened.append(events)
            return events

        return call_next

    try:
        async for item in calling(0)(input):
            yield item
    finally:
        for events in opened:
            aclose = getattr(events, "aclose", None)
            if aclose is not None:
                await aclose()


def _checked(
    middleware: RunMiddleware, input: RunAgentInput, call_next: CallNext
) -> AsyncIterator[Item]:
    events: Any = middleware(input, call_next)
    if not hasattr(events, "__aiter__"):
        if inspect.iscoroutine(events):
            events.close()
        raise TypeError(
            f"the middleware {middleware!r} gave {type(events).__name__}: expected an "
            "asynchronous iterator; write an async generator function, with yield"
        )
    iterator: AsyncIterator[Item] = events
    return iterator
