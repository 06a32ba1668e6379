"""Runs an agent for one input and sees to it that its stream ends as a stream must.

Whatever the agent does (return, raise, hang, be cancelled and ignore it, call `sys.exit`),
exactly one terminal event is the last event of its stream, and no words of an exception reach
the client unless the agent meant them to. Nothing here knows a connection.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import anyio.to_thread

from aguia.interop.values import plain_value
from aguia.pipeline.enforcement import enforce_input
from aguia.pipeline.warn import log_warning
from aguia.producer import Producer
from aguia.protocol.common import UNSET
from aguia.protocol.errors import ProtocolViolation, printable
from aguia.protocol.events import Event, RunErrorEvent, RunFinishedEvent
from aguia.protocol.input import RunAgentInput
from aguia.protocol.outcomes import RunFinishedCancelledOutcome, RunFinishedInterruptOutcome
from aguia.server.run import InvalidAnswer, Run
from aguia.server.speaker import meant_error
from aguia.server.stream import EventStream

__all__ = ["Agent", "Execution", "check_agent", "check_limits", "run_agent"]

Agent: TypeAlias = Callable[[Run], Awaitable[Any] | AsyncIterable[Any] | Iterable[Any]]
"""What is served: takes the run and returns a coroutine, or an iterator of events.

Iterators may be synchronous, and are then run in a thread; they may give events of this
package, plain dictionaries or models of the official one.
"""

_logger: Final = logging.getLogger("aguia.server")

_GENERIC: Final = "The agent failed. Its log says why."
_EXHAUSTED: Final[Any] = object()


def check_agent(agent: Any) -> None:
    """Raise `TypeError` for what can be no agent, since no run could ever call it."""
    if not callable(agent):
        raise TypeError(f"an agent is a function that takes a Run, not {type(agent).__name__}")
    try:
        signature = inspect.signature(agent)
    except (TypeError, ValueError):
        return  # of what is written in C there may be nothing to see
    try:
        signature.bind(object())
    except TypeError as error:
        if is_asgi(signature):
            raise TypeError(
                "an agent is a function that takes a Run, and this is an ASGI application"
            ) from None
        name = getattr(agent, "__qualname__", type(agent).__name__)
        raise TypeError(
            f"an agent is a function that takes a Run, and {name}{signature} can't be called with "
            f"one argument: {error}"
        ) from None


def is_asgi(signature: inspect.Signature) -> bool:
    """Whether this is how an ASGI application is called, such as FastAPI's and Starlette's."""
    return list(signature.parameters) == ["scope", "receive", "send"]


def check_limits(
    *, capacity: int, deadline: float | None, max_steps: int | None, grace: float
) -> None:
    """Raise `ValueError` for limits that no run could keep."""
    if capacity < 0:
        raise ValueError(f"capacity is a number of events, 0 at least, not {capacity}")
    if deadline is not None and not deadline > 0:
        raise ValueError(f"deadline is a number of seconds above 0, or None, not {deadline}")
    if max_steps is not None and max_steps < 0:
        raise ValueError(f"max_steps is 0 at least, or None, not {max_steps}")
    if not grace >= 0:
        raise ValueError(f"grace is a number of seconds, 0 at least, not {grace}")


@dataclass(frozen=True, slots=True)
class _Failure:
    """How the run fails: what the client is told."""

    message: str
    code: str | None = None


class Execution:
    """One run of an agent, from its input to the end of its stream.

    Args:
        agent: what is run.
        input: the run input.
        principal: passed on as `Run.principal`.
        capacity: how many events may wait for the reader before the agent has to.
        deadline: seconds after which the run is cancelled, or None.
        max_steps: how many steps the run may open, or None; it is cancelled where it would open
            one more, which is not sent.
        grace: seconds that the agent has to stop in when it is cancelled.
        expose_errors: whether the client is told an exception's type and words.
        flatten_for_old_clients, judged: see `Producer`.

    Raises `ValueError` for a limit that can't be right.

    `events` is the stream to read, `drive` the coroutine to run beside it.
    """

    def __init__(
        self,
        agent: Agent,
        input: RunAgentInput,
        *,
        principal: Any = None,
        capacity: int = 256,
        deadline: float | None = None,
        max_steps: int | None = None,
        grace: float = 5.0,
        expose_errors: bool = False,
        flatten_for_old_clients: bool = True,
        judged: bool = False,
    ) -> None:
        check_limits(capacity=capacity, deadline=deadline, max_steps=max_steps, grace=grace)
        self._agent = agent
        self._deadline = deadline
        self._grace = grace
        self._expose_errors = expose_errors
        self._loop = asyncio.get_running_loop()
        self._cancel_asked = asyncio.Event()
        self._producer = Producer(
            input,
            plain=plain_value,
            flatten_for_old_clients=flatten_for_old_clients,
            judged=judged,
        )
        self.events: EventStream = EventStream(capacity)
        self.run: Run = Run(
            self._producer,
            self.events,
            principal=principal,
            max_steps=max_steps,
            on_cancel=self.cancel,
        )

    def cancel(self) -> None:
        """Ask the run to end as cancelled (RUN-10). May be called from any thread."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._cancel_asked.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel_asked.set)

    async def drive(self) -> None:
        """Run the agent and end its stream. Never raises what the agent raised.

        When it is cancelled itself, the run ends as cancelled before that goes on.
        """
        began = time.monotonic()
        self.events.push(self._producer.start())
        task = asyncio.create_task(self._call())
        asked = asyncio.create_task(self._cancel_asked.wait())
        try:
            await asyncio.wait(
                {task, asked}, timeout=self._deadline, return_when=asyncio.FIRST_COMPLETED
            )
            if not task.done():
                await self._stop(task)
                self._end(None, cancelled=True)
            elif task.cancelled():
                if self._cancel_asked.is_set():
                    self._end(None, cancelled=True)
                else:
                    self._end(self._failure(None, "cancelled its own task"))
            elif task.exception() is None:
                failure = task.result()
                # One that asked for its cancellation and returned has not completed.
                asked_for = failure is None and self._cancel_asked.is_set()
                self._end(failure, cancelled=asked_for)
            elif not self._producer.ended:
                # An exception that could not even be read.
                self._end(self._failure(task.exception(), "failed, and so did telling of it"))
        except asyncio.CancelledError:
            task.cancel()
            self._end(None, cancelled=True)
            raise
        finally:
            asked.cancel()
            self.events.close()
            self._report(time.monotonic() - began)

    async def _call(self) -> _Failure | None:
        """Run the agent; what it raised becomes a value, so that nothing else sees it."""
        try:
            result = await self._answer()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if self._cancel_asked.is_set() or (task is not None and task.cancelling()):
                raise
            return self._failure(error, "raised CancelledError and nobody had cancelled it")
        except ProtocolViolation as error:
            return self._failure(error, f"broke the rule {error.rule}")
        except InvalidAnswer as error:
            return _Failure(error.message, "invalid-answer")
        except Exception as error:
            meant = meant_error(error)
            if meant is not None:
                self.run.log_exception("the agent reported a failure", error)
                return _Failure(meant.message, meant.code)
            return self._failure(error, "raised an exception")
        except BaseException as error:
            # An agent doesn't get to end the server; a keyboard interrupt is for the server.
            failure = self._failure(error, "tried to end the process")
            if isinstance(error, KeyboardInterrupt):
                self._end(failure)
                raise
            return failure
        if result is not None and self.run.result is UNSET:
            self.run.result = result
        return None

    async def _answer(self) -> Any:
        answer = self._agent(self.run)
        if inspect.isawaitable(answer):
            answer = await answer
            if not isinstance(answer, AsyncIterable):
                return answer
        if isinstance(answer, AsyncIterable):
            try:
                async for event in answer:
                    await self.run.emit(event)
            finally:
                aclose = getattr(answer, "aclose", None)
                if aclose is not None:
                    await aclose()
        elif isinstance(answer, Iterable) and not isinstance(answer, str | bytes | dict):
            await self._emit_from_thread(iter(answer))
        else:
            raise TypeError(
                "an agent is a coroutine function or a generator function of events; this one "
                f"returned {type(answer).__name__}"
            )
        return None

    async def _emit_from_thread(self, events: Iterator[Any]) -> None:
        run_sync = anyio.to_thread.run_sync
        try:
            while True:
                event = await run_sync(next, events, _EXHAUSTED, abandon_on_cancel=True)
                if event is _EXHAUSTED:
                    return
                await self.run.emit(event)
        finally:
            close = getattr(events, "close", None)
            if close is not None and not getattr(events, "gi_running", False):
                await run_sync(close, abandon_on_cancel=True)

    async def _stop(self, task: asyncio.Task[Any]) -> None:
        """Cancel the agent; one that ignores it is cut off when its grace is over."""
        self.run.cancelled = True
        for _ in range(3):
            task.cancel()
            await asyncio.wait({task}, timeout=self._grace / 3)
            if task.done():
                return
        _logger.error(
            "%s: the agent ignored its cancellation and was cut off",
            self.run.label,
            extra=self.run.ids,
        )

    def _end(self, failure: _Failure | None, *, cancelled: bool = False) -> None:
        """The terminal event, unless the agent has emitted one itself."""
        if self._producer.ended:
            return
        try:
            events = self._ending(failure, cancelled)
        except Exception as error:
            failure = self._failure(error, "left what no run can end with")
            events = self._producer.fail(failure.message)
        self.events.push(events)

    def _ending(self, failure: _Failure | None, cancelled: bool) -> list[Event]:
        run, producer = self.run, self._producer
        if failure is not None:
            events = producer.fail(failure.message, failure.code, usage=run.usage)
        elif cancelled:
            events = producer.finish(RunFinishedCancelledOutcome(), usage=run.usage)
        else:
            for entry in run.resume.unknown:
                _logger.warning(
                    "%s: nobody looked at the answer to '%s' (run.resume.answer), so it is passed "
                    "over [INT-4]",
                    run.label,
                    printable(entry.interrupt_id),
                    extra=run.ids,
                )
            outcome = (
                RunFinishedInterruptOutcome(interrupts=run.interrupts) if run.interrupts else None
            )
            result = run.result
            result = UNSET if result is None or result is UNSET else plain_value(result)
            events = producer.finish(outcome, result=result, usage=run.usage)
        return events

    def _failure(self, error: BaseException | None, what: str) -> _Failure:
        if error is None:
            _logger.error("%s: the agent %s", self.run.label, what, extra=self.run.ids)
        else:
            self.run.log_exception(f"the agent {what}", error)
        if self._expose_errors and error is not None:
            try:
                return _Failure(f"{type(error).__name__}: {error}")
            except Exception:
                return _Failure(type(error).__name__)
        return _Failure(_GENERIC)

    def _warn_of_forgotten_calls(self) -> None:
        """Say which calls the agent has not answered, since the client will not be able to."""
        for id_, name in self.run.forgotten_calls.items():
            _logger.warning(
                "%s: the call '%s' of the tool '%s' has no result, and the application offers no "
                "such tool; is `await call.result(…)` missing? The thread can't go on before "
                "the call is answered [FRONT-5]",
                self.run.label,
                printable(id_[:80]),
                printable(name[:80]),
                extra=self.run.ids,
            )

    def _report(self, seconds: float) -> None:
        terminal = self.events.last
        ended: str = "error"
        if isinstance(terminal, RunFinishedEvent):
            ended = "success" if terminal.outcome is UNSET else terminal.outcome.type
        if ended == "success":
            self._warn_of_forgotten_calls()
        extra: dict[str, Any] = {
            **self.run.ids,
            "outcome": ended,
            "events": self.events.count,
            "seconds": seconds,
        }
        if isinstance(terminal, RunErrorEvent) and terminal.code is not UNSET:
            # Its words are for the client; its code is what tells failures apart.
            extra["code"] = printable(terminal.code[:80])
            ended = f"{ended} '{extra['code']}'"
        _logger.info(
            "%s: %s after %d events in %.3f s",
            self.run.label,
            ended,
            self.events.count,
            seconds,
            extra=extra,
        )


async def run_agent(
    agent: Agent, input: RunAgentInput | dict[str, Any], **settings: Any
) -> AsyncIterator[Event]:
    """Run an agent in this process and iterate its events, without HTTP.

    `settings` are those of `Execution`. Leaving the iteration early cancels the run. Raises
    `InvalidInput` for a plain input that is none.
    """
    execution = Execution(agent, enforce_input(input, log_warning), **settings)
    task = asyncio.create_task(execution.drive())
    try:
        while (events := await execution.events.take()) is not None:
            for event in events:
                yield event
        await task
    finally:
        execution.events.abandon()
        execution.cancel()
        await asyncio.wait({task})
