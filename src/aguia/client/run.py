"""A run as the application sees it: its events, one by one, and what came of it at the end.

Where the agent has functions for the calls that a run leaves, one `RunStream` is a run and those
that follow it: the calls are answered, and the next run starts, until nothing is left to answer.
"""

import asyncio
import logging
import math
import warnings
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

import anyio
import msgspec

from aguia.client.chain import wrapped
from aguia.client.thread import NextInput, Request, Thread
from aguia.client.tools import FunctionTool
from aguia.client.transports import Transport
from aguia.consumer import Consumer
from aguia.conversation import Conversation
from aguia.pipeline.intake import Intake
from aguia.pipeline.middleware import Item, RunMiddleware
from aguia.protocol.common import UNSET
from aguia.protocol.errors import (
    ProtocolWarning,
    RunFailed,
    RunTimeout,
    TransportError,
    TruncatedRun,
    printable,
)
from aguia.protocol.events import Event
from aguia.protocol.input import RunAgentInput
from aguia.protocol.messages import AssistantMessage, Message, ToolCall, ToolMessage
from aguia.protocol.outcomes import (
    Interrupt,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
    TokenUsage,
)

__all__ = ["ClosedRun", "Course", "Outcome", "RunResult", "RunStream", "answerable"]

T = TypeVar("T")

_logger: Final = logging.getLogger("aguia")

Outcome: TypeAlias = Literal["success", "interrupted", "cancelled", "failed", "truncated"]
"""What can become of a run; see `RunResult`."""


Answering: TypeAlias = Callable[
    [list[ToolCall], Callable[[ToolMessage], None]], Awaitable[list[ToolMessage]]
]
"""Answers calls; the second argument is `given_up` of `answer_calls`."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run, with the runs that answered the agent's calls.

    Attributes:
        outcome: one of five different things:

            - "success": the agent finished (RUN-9);
            - "interrupted": it stopped to ask, see `interrupts` (INT-1);
            - "cancelled": it was stopped on purpose, where it runs (RUN-10);
            - "failed": it reported its own failure (RUN-8), it was not to be had, or its
              stream broke a rule; `error` says which;
            - "truncated": it took the input, and its stream ended before the run did, because
              the connection broke, a time limit passed, or the application left (RUN-11).
        result: the value that the agent returned, or `UNSET`.
        usage: the tokens that were used, one entry for each provider and model, over all runs.
        new_messages: what the agent said, and the answers to its calls, in the thread's order.
        pending_calls: the calls that are left for the application to answer (FRONT-4).
        interrupts: what has to be answered before the thread goes on (INT-2).
        warnings: what was lost or looked wrong and ended nothing; the first 1,000.
        error: why the outcome is "failed" or "truncated", else None.
        runs: how many runs the agent has begun.
    """

    outcome: Outcome
    result: Any = UNSET
    usage: list[TokenUsage] = []
    new_messages: list[Message] = []
    pending_calls: list[ToolCall] = []
    interrupts: list[Interrupt] = []
    warnings: list[ProtocolWarning] = []
    error: Exception | None = None
    runs: int = 0

    @property
    def text(self) -> str:
        """The text of the last thing that the agent said, empty if it said nothing."""
        for message in reversed(self.new_messages):
            if isinstance(message, AssistantMessage) and message.content:
                return message.content
        return ""


class ClosedRun(TruncatedRun):
    """The agent was closed before the run had ended."""

    def __init__(self) -> None:
        super().__init__("the agent was closed before the run had ended")


class _Left(Exception):
    """The application has left the run."""


class RunStream(AsyncIterator[Event]):
    """A run: an async iterator of its events, sent off when its first event is asked for.

    Made by `Agent.run`. Leave it early by `cancel`, `aclose` or at the end of `async with`: the
    connection closes, what arrived stays in the thread, and the thread can go on.
    """

    def __init__(
        self,
        course: "Course",
        begin: Callable[["RunStream"], None],
        orphans: "set[asyncio.Task[None]]",
    ) -> None:
        self._course = course
        self._begin = begin
        self._orphans = orphans
        self._loop: asyncio.AbstractEventLoop | None = None
        self._batches = course.batches()
        self._ready: Iterator[Event] = iter(())
        self._tried = self._started = False
        # Whether a task is in there, waiting for a batch or closing, and whether it is closing.
        self._busy = self._closing = False
        self._settled: anyio.Event | None = None
        self._result: RunResult | None = None

    @property
    def input(self) -> RunAgentInput:
        """The input of the run that is under way, or of the last one.

        As it is before middleware and what an old agent needs change it.
        """
        return self._course.input

    @property
    def under_way(self) -> bool:
        """Whether the run has been sent off and has neither ended nor been closed."""
        return self._started and self._result is None

    @property
    def conversation(self) -> Conversation:
        """The thread as the events so far have left it."""
        return self._course.thread.conversation

    @property
    def result(self) -> RunResult:
        """What came of the run. Raises `RuntimeError` before it is over."""
        if self._result is None:
            raise RuntimeError(
                "the run has not ended; iterate it to its end, or close it, and then ask"
            )
        return self._result

    @property
    def left(self) -> bool:
        """Whether the application has cancelled the run."""
        return self._course.left

    def cancel(self) -> None:
        """End the run from here: whoever iterates it gets no further event, and no error.

        To be called in the event loop's own thread.
        """
        self.leave()
        if not self._busy:
            self.settle(None)

    def leave(self) -> None:
        """Give no further event, and wake whoever waits for one; the run is over after that.

        `cancel` without the result, which only whoever reads the events can tell. To be called
        in the event loop's own thread.
        """
        self._course.leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while True:
            try:
                for event in self._ready:
                    if self.left:
                        break
                    return event
            except Exception as error:
                await self.close_after(error)
                raise
            except BaseException:
                # The program is to end, and this event is lost: nothing may follow it.
                self.cancel()
                raise
            ready = await self.next_batch()
            if ready is None:
                raise StopAsyncIteration
            self._ready = ready

    async def next_batch(self) -> Iterator[Event] | None:
        """Wait for the next bytes and give the events in them; None at the end of the run.

        The events are read and applied while they are iterated, which has to be done before
        this is called again. `async for` does both. Raises `RuntimeError` while another task
        waits here; while one closes the run, this waits for that and tells how it ended.
        """
        if self._closing:
            await self._until_settled()
        elif self._busy:
            raise RuntimeError("another task waits for the next event of this run")
        if self._result is not None:
            if isinstance(self._result.error, ClosedRun):
                raise self._result.error
            if self._course.left:
                await self.close_after(None)
            return None
        if not self._started:
            self._tried = True
            self._begin(self)
            self._started = True
            self._loop = _running_loop()
        if self._course.left:
            await self.close_after(None)
            return None
        self._busy = True
        try:
            return await anext(self._batches)
        except StopAsyncIteration:
            if not self._course.complete:
                # An event loop that ends closes what is being iterated in it.
                lost = TruncatedRun("the event loop ended before the run had")
                self.settle(lost)
                raise lost from None
            self.settle(None)
        except _Left:
            self.settle(self._course.closed)
            if self._course.closed is not None:
                raise self._course.closed from None
        except BaseException as error:
            self.settle(error)
            raise
        finally:
            self._busy = False
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop reading: the connection closes, and what arrived stays in the thread."""
        await self.close_after(None)

    async def close_after(self, error: Exception | None) -> None:
        """Close the connection, since iterating a batch has raised this. `async for` does it."""
        if self._busy:
            # Another task waits for the next event, or closes: it is that task which closes.
            self._course.closed = error
            self._course.leave()
            await self._until_settled()
            return
        self._busy = self._closing = True
        self._course.left = True  # what has been read and not been given stays with us
        try:
            await self._batches.aclose()
        finally:
            self._busy = self._closing = False
            self.settle(error)

    async def _until_settled(self) -> None:
        if self._result is None:
            self._settled = self._settled or anyio.Event()
            await self._settled.wait()

    def settle(self, error: BaseException | None) -> None:
        """Take note that the run is over, and of what has ended it. Reading it does that."""
        if self._result is None:
            self._result = self._course.result(error)
            if self._settled is not None:
                self._settled.set()

    def __repr__(self) -> str:
        state = "not begun" if not self._started else "under way"
        if self._result is not None:
            state = self._result.outcome
        return printable(f"<{type(self).__name__} {self.input.run_id[:80]}: {state}>")

    def __del__(self) -> None:
        if not self._tried and self._result is None:
            warnings.warn(
                "a run was made and never begun: iterate it, or use `ask`", RuntimeWarning, 2
            )
        if self._loop is not None and self._result is None and not self._loop.is_closed():
            # Left where it stood, and dropped. It is closed as a whole: the loop would close
            # the generators in it each by itself, one in the way of the other.
            _close_in(self._loop, self._batches, self._orphans)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # of another library's kind, which closes what is dropped by itself
        return None


def _close_in(
    loop: asyncio.AbstractEventLoop,
    batches: AsyncGenerator[Any, None],
    orphans: "set[asyncio.Task[None]]",
) -> None:
    def begin() -> None:
        task = loop.create_task(_closed(batches))
        orphans.add(task)
        task.add_done_callback(orphans.discard)

    if _running_loop() is loop:
        begin()
    else:
        loop.call_soon_threadsafe(begin)


async def _closed(batches: AsyncGenerator[Any, None]) -> None:
    try:
        await batches.aclose()
    except Exception as error:
        # Nobody is there any more who could be told.
        _logger.debug("closing a run that was dropped failed: %s", error)


class Course:
    """A run and those that follow it: what is sent, and what comes, in batches.

    Apart from `RunStream`, so that a stream which nobody holds any more is gone at once, and its
    connection with it.

    Args:
        thread: what the runs go on with.
        transport, middleware: how they reach the agent.
        request, input, held: what is sent first; see `Thread.next_input`.
        calls: what has to be answered before, and `again` makes the input then.
        functions: what can answer calls.
        answer: answers them.
        max_rounds: how many runs there are at most.
        timeout: seconds for all of it.
        force: see `check_resume`.
    """

    def __init__(
        self,
        thread: Thread,
        transport: Transport,
        middleware: Sequence[RunMiddleware],
        request: Request,
        next_input: NextInput,
        again: Callable[[], NextInput],
        *,
        functions: Mapping[str, FunctionTool],
        answer: Answering,
        max_rounds: int,
        timeout: float | None,
        force: bool,
    ) -> None:
        self.thread = thread
        self.input: RunAgentInput = next_input.input
        self.left: bool = False
        self.closed: Exception | None = None  # why it is left, where that is an error
        self._transport = transport
        self._middleware = middleware
        self._request = request
        self._held = next_input.held
        self._calls = next_input.calls
        self._again = again
        self._functions = functions
        self._answer = answer
        self._max_rounds = max_rounds
        self._timeout = timeout
        self._force = force
        self._deadline = math.inf
        self._late = False
        self._scope: anyio.CancelScope | None = None
        self._accepted = False  # whether the agent has taken the input of the present run
        self._answering = False
        self.complete: bool = False  # whether all runs have come to their end
        self._runs = 0
        self._usage: list[TokenUsage] = []  # of the runs before the present one
        self._known = {message.id for message in self._held}
        self._warnings = thread.take_warnings()

    def leave(self) -> None:
        """Give up what is waited for; nothing more will come."""
        self.left = True
        if self._scope is not None:
            self._scope.cancel()

    async def batches(self) -> AsyncGenerator[Iterator[Event], None]:
        """The events of all the runs; each batch has to be iterated before the next is asked for.

        Raises what breaks a run off, and `_Left`.
        """
        thread = self.thread
        if self._timeout is not None:
            self._deadline = anyio.current_time() + self._timeout
        if self._calls:
            await self._answer_calls()
            self.input, self._held, self._calls = self._again()
        while True:
            self._accepted = False
            exchange = self._wrapped_exchange() if self._middleware else self._exchange()
            async with aclosing(exchange) as batches:
                async for batch in batches:
                    yield batch
            self._calls, others = self._open_calls()
            if not self._calls:
                break
            if self._runs >= self._max_rounds:
                thread.warn(
                    ProtocolWarning(
                        stage="client",
                        rule="FRONT-5",
                        message=f"the agent calls tools after {self._runs} runs as well; these "
                        "calls are left open, and the next `run()` begins with them",
                    )
                )
                break
            await self._answer_calls()
            if others or thread.conversation.interrupts:
                break  # the next step is the application's
            self.input, self._held, self._calls = thread.next_input(self._request)
            self._usage += thread.conversation.usage
        self.complete = True

    def _open_calls(self) -> tuple[list[ToolCall], list[ToolCall]]:
        """The calls that are answered here, and those that are left to the application."""
        offered = {tool.name for tool in self._request.tools}
        mine: list[ToolCall] = []
        others: list[ToolCall] = []
        for call in self.thread.open_calls(offered):
            answers = answerable(call.function.name, self._functions, offered)
            (mine if answers else others).append(call)
        return mine, others

    async def _answer_calls(self) -> None:
        calls, self._calls = self._calls, []
        self._answering = True
        append = self.thread.conversation.add  # they are made here, and need no judging
        self.thread.in_hand = calls
        try:
            for message in await self._within(lambda: self._answer(calls, append)):
                append(message)
        finally:
            self.thread.in_hand = []
        self._answering = False

    async def _exchange(self) -> AsyncGenerator[Iterator[Event], None]:
        """One run."""
        opening = self._transport.open(self.thread.fitting(self.input))
        async with AsyncExitStack() as stack:
            answer = await self._within(lambda: stack.enter_async_context(opening))
            consumer = self._take_up(answer.content_type)
            receive: Callable[[Any], Iterator[Event]] = (
                consumer.receive_event if answer.content_type is None else consumer.receive
            )
            broken: TruncatedRun | TransportError | None = None
            body: AsyncIterator[Any] = aiter(answer.body)
            while True:
                try:
                    item = await self._within(lambda: anext(body))
                except StopAsyncIteration:
                    break
                except (TruncatedRun, TransportError) as error:
                    # What it means depends on whether the run had ended by then (RUN-11).
                    broken = error
                    break
                yield receive(item)
            yield _last_events(consumer, broken)

    async def _wrapped_exchange(self) -> AsyncGenerator[Iterator[Event], None]:
        """One run with middleware around it, which may open the transport again, or never."""
        thread = self.thread
        # Middleware may change what is in it, too, and the thread is not to change with that.
        run_input = thread.copy_of(self.input)
        consumer: Consumer | None = None
        under_way = False

        async def innermost(changed: RunAgentInput) -> AsyncGenerator[Item, None]:
            nonlocal consumer
            if changed is not run_input:
                changed = thread.judged(changed, run_input, self._force)
            async with self._transport.open(thread.fitting(changed)) as answer:
                if not under_way:
                    consumer = self._take_up(None, changed)
                if answer.content_type is None:
                    async for item in answer.body:
                        yield item
                    return
                intake = Intake(
                    answer.content_type,
                    thread.warn,
                    max_event_bytes=thread.limits.max_event_bytes,
                    max_depth=thread.limits.max_depth,
                )
                async for chunk in answer.body:
                    for item in intake.receive(chunk):
                        yield item
                for item in intake.end():
                    yield item

        broken: TruncatedRun | TransportError | None = None
        async with aclosing(wrapped(self._middleware, run_input, innermost)) as items:
            while True:
                try:
                    item = await self._within(lambda: anext(items))
                except StopAsyncIteration:
                    break
                except (TruncatedRun, TransportError) as error:
                    if consumer is None:
                        raise
                    broken = error
                    break
                under_way = True
                if consumer is None:
                    consumer = self._take_up(None)
                yield consumer.receive_event(item)
        yield _last_events(consumer or self._take_up(None), broken)

    def _take_up(self, content_type: str | None, changed: RunAgentInput | None = None) -> Consumer:
        if not self._accepted:
            self._accepted = True
            self._runs += 1
        return self.thread.take_up(changed or self.input, self._held, content_type)

    async def _within(self, wait: Callable[[], Awaitable[T]]) -> T:
        """Wait for something as long as the run is wanted and its time has not passed.

        Raises `_Left` or `RunTimeout`. No scope spans a `yield`, so each wait has its own.
        """
        with anyio.CancelScope(deadline=self._deadline) as scope:
            self._scope = scope
            try:
                if self.left:
                    raise _Left
                return await wait()
            finally:
                self._scope = None
        if self.left:
            raise _Left
        self._late = True
        raise RunTimeout(f"the run took longer than the {self._timeout:g} seconds it was given")

    # What came of it

    def result(self, error: BaseException | None) -> RunResult:
        """What came of the runs.

        Args:
            error: what ended them; None if nothing did, or the application has left.
        """
        thread, conversation = self.thread, self.thread.conversation
        outcome, reason = self._outcome(error)
        # A run that was not accepted has left the thread as the one before it did.
        usage = [*self._usage, *(conversation.usage if self._accepted else ())]
        begun = self._runs > 0
        return RunResult(
            outcome=outcome,
            result=conversation.result if self._accepted else UNSET,
            usage=_summed(usage),
            new_messages=[
                message
                for message in conversation.messages
                if begun and message.id not in self._known
            ],
            pending_calls=thread.pending_tool_calls if begun else [],
            interrupts=list(conversation.interrupts),
            warnings=[*self._warnings, *thread.take_warnings()],
            error=reason,
            runs=self._runs,
        )

    def _outcome(self, error: BaseException | None) -> tuple[Outcome, Exception | None]:
        if isinstance(error, Exception):
            cut_off = isinstance(error, TruncatedRun | TransportError) and self._accepted
            return "truncated" if cut_off or self._late else "failed", error
        conversation = self.thread.conversation
        if self._accepted and conversation.error is not None:
            failure = conversation.error
            code = None if failure.code is UNSET else failure.code
            return "failed", RunFailed(failure.message, code)
        # Who leaves at the last event has seen the end, unless there are calls to answer.
        answering = self._answering or bool(self._open_calls()[0])
        ended = self.complete or (conversation.outcome is not None and not answering)
        if not self._accepted or not ended:
            return "truncated", TruncatedRun("the application left the run before it ended")
        match conversation.outcome:
            case RunFinishedInterruptOutcome():
                return "interrupted", None
            case RunFinishedCancelledOutcome():
                return "cancelled", None
        return "success", None


def answerable(name: str, functions: Mapping[str, FunctionTool], offered: Collection[str]) -> bool:
    """Whether a call of this tool is answered here.

    Where there are functions, calls of what nobody has offered are answered too, by an error
    (FRONT-6); those of tools that are only declared are the application's.
    """
    return name in functions or (bool(functions) and name not in offered)


def _last_events(
    consumer: Consumer, broken: TruncatedRun | TransportError | None
) -> Iterator[Event]:
    """The last events of a body; raises what broke it off, if the run had not ended."""
    try:
        yield from consumer.end()
    except TruncatedRun:
        if broken is not None:
            raise broken from broken.__cause__
        raise


def _summed(usage: Iterable[TokenUsage]) -> list[TokenUsage]:
    """One entry for each provider and model; what nobody has reported stays so (USE-1)."""
    sums: dict[tuple[Any, Any], dict[str, Any]] = {}
    without_total: set[tuple[Any, Any]] = set()
    for entry in usage:
        key = (entry.provider, entry.model)
        total = sums.setdefault(key, {})
        for name, value in msgspec.structs.asdict(entry).items():
            if isinstance(value, int):
                total[name] = total.get(name, 0) + value
        if entry.total_tokens is UNSET:
            without_total.add(key)
    for key in without_total:
        # The total of some runs would be less than what all of them have used.
        sums[key].pop("total_tokens", None)
    return [
        TokenUsage(provider=provider, model=model, **total)
        for (provider, model), total in sums.items()
    ]
