"""Runs an agent for one input and sees to it that its stream ends as a stream must.

Whatever the agent does (return, raise, be cancelled, call `sys.exit`), exactly one terminal
event is the last event of its stream, and no words of an exception reach the client unless the
agent meant them to.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any, Final, TypeAlias

from aguia.producer import Producer
from aguia.protocol.errors import ProtocolViolation
from aguia.protocol.events import Event
from aguia.protocol.outcomes import RunFinishedCancelledOutcome
from aguia.server.run import Run, RunError
from aguia.server.stream import EventStream

__all__ = ["Agent", "execute"]

Agent: TypeAlias = Callable[[Run], Awaitable[Any] | AsyncIterable[Event | dict[str, Any]]]
"""What is served: takes the run and returns a coroutine, or an async iterator of events."""

_logger: Final = logging.getLogger("aguia.server")

_GENERIC: Final = "The agent failed. Its log says why."


async def execute(agent: Agent, producer: Producer, stream: EventStream, run: Run) -> None:
    """Run the agent from `RUN_STARTED` to the terminal event, and close the stream."""
    try:
        stream.push(producer.start())
        try:
            await _call(agent, run)
        except RunError as error:
            stream.push(producer.fail(error.message, error.code))
        except asyncio.CancelledError:
            stream.push(producer.finish(RunFinishedCancelledOutcome()))
            raise
        except ProtocolViolation as error:
            _log(run, f"the agent broke the rule {error.rule}: {error}")
            stream.push(producer.fail(_GENERIC))
        except Exception:
            _log(run, "the agent raised an exception")
            stream.push(producer.fail(_GENERIC))
        except BaseException:
            _log(run, "the agent tried to end the process")
            stream.push(producer.fail(_GENERIC))
        else:
            if not producer.ended:
                stream.push(producer.finish())
    finally:
        stream.close()


async def _call(agent: Agent, run: Run) -> None:
    answer = agent(run)
    if inspect.isawaitable(answer):
        await answer
    elif isinstance(answer, AsyncIterable):
        async for event in answer:
            await run.emit(event)
    else:
        raise TypeError(
            "an agent is a coroutine function or an async generator function; "
            f"this one returned {type(answer).__name__}"
        )


def _log(run: Run, what: str) -> None:
    _logger.exception("run %s of thread %s: %s", run.run_id, run.thread_id, what)
