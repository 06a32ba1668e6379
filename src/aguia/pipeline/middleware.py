"""Middleware: what a program installs to observe, translate or rewrite the stream.

It runs before enforcement (PROC-7), so it sees material that enforcement would remove. It is
given a typed event where the strict decode succeeded and the raw object where it did not, and
what it returns is judged like anything else.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from aguia.protocol.events import BaseEvent, Event

__all__ = ["Middleware", "run_middleware"]

Middleware: TypeAlias = Callable[
    [Event | dict[str, Any]],
    "Event | dict[str, Any] | Iterable[Event | dict[str, Any]] | None",
]
"""Takes one event and gives the events that stand for it: one, several, or None for none."""


def run_middleware(
    chain: Sequence[Middleware], event: Event | dict[str, Any]
) -> list[Event | dict[str, Any]]:
    """Send one event through the chain, in order, and return what comes out."""
    events: list[Event | dict[str, Any]] = [event]
    for middleware in chain:
        passed: list[Event | dict[str, Any]] = []
        for item in events:
            result = middleware(item)
            if result is None:
                continue
            if isinstance(result, BaseEvent | dict):
                passed.append(result)
            elif isinstance(result, str | bytes) or not isinstance(result, Iterable):
                raise TypeError(
                    f"the middleware {middleware!r} returned {type(result).__name__}: expected an "
                    "event, several in an iterable, or None"
                )
            else:
                passed.extend(result)
        events = passed
    return events
