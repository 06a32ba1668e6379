"""Middleware: what a program installs to observe, translate or rewrite the stream.

It runs before enforcement (PROC-7), so it sees material that enforcement would remove. It is
given a typed event where the strict decode succeeded and the raw object where it did not, and
what it returns is judged like anything else.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from aguia.codec.json import copy_value
from aguia.pipeline.chunks import ChunkExpander
from aguia.pipeline.enforcement import enforce_event
from aguia.pipeline.warn import Warn
from aguia.protocol.errors import MalformedEvent, ProtocolWarning
from aguia.protocol.events import BaseEvent, Event
from aguia.protocol.input import RunAgentInput

__all__ = ["CallNext", "Item", "Middleware", "RawExpander", "RunMiddleware", "run_middleware"]

Item: TypeAlias = Event | dict[str, Any]
"""An event that nobody has judged: typed where it fits its type, else the raw object."""

Middleware: TypeAlias = Callable[[Item], "Item | Iterable[Item] | None"]
"""Takes one event and gives the events that stand for it: one, several, or None for none.

A class of such callables, made without arguments, has a state of its own for each stream.
"""

CallNext: TypeAlias = Callable[[RunAgentInput], AsyncIterator[Item]]
"""Runs what is inside of a run middleware, in the end the agent itself."""


RunMiddleware: TypeAlias = Callable[[RunAgentInput, CallNext], AsyncIterator[Item]]
"""Wraps whole runs of a client's agent: an async generator function.

It may change the input, filter, add and rewrite events, record, or call `call_next` again as
long as it has given no event:

    async def watch(input, call_next):
        async for event in call_next(input):
            yield event
"""


def run_middleware(chain: Sequence[Middleware], event: Item) -> list[Item]:
    """Send one event through the chain, in order, and return what comes out."""
    events: list[Item] = [event]
    for middleware in chain:
        passed: list[Item] = []
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


_CHUNK_TYPES: Final = ("TEXT_MESSAGE_CHUNK", "TOOL_CALL_CHUNK", "REASONING_MESSAGE_CHUNK")


class RawExpander:
    """Expands chunks before enforcement, for middleware that follows single items (PROC-8).

    Members that the protocol does not describe are lost on a chunk, with a warning, and a
    malformed one raises `MalformedEvent` here already (PROC-9). Other events pass as they are.
    """

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._chunks = ChunkExpander()

    def expand(self, item: Item) -> list[Item]:
        """The events that stand for this one, with the ends that its arrival implies."""
        if not isinstance(item, dict):
            return [*self._chunks.expand(item)]
        is_chunk = item.get("type") in _CHUNK_TYPES
        if not is_chunk and not self._chunks.lanes:
            return [item]
        try:
            raw = copy_value(item)
            event = enforce_event(raw, self._warn if is_chunk else _ignore)
        except ValueError:
            return [item]  # no JSON, as the next stage will say
        except MalformedEvent:
            if is_chunk:
                raise
            return [item]
        if event is None:
            return [] if is_chunk else [item]
        expanded: list[Item] = [*self._chunks.expand(event)]
        return expanded if is_chunk else [*expanded[:-1], item]


def _ignore(warning: ProtocolWarning) -> None:
    pass
