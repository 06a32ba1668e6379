"""The client without async: the same names, methods and arguments as `aguia.client`'s.

    from aguia.sync import HttpAgent

    with HttpAgent("http://127.0.0.1:8000/") as agent:
        print(agent.ask("Where is the parser tested?").text)

Each agent has an event loop of its own in a background thread, so it works in a program without
one, in a notebook, which has one running, and inside of another program's. Events are read and
applied in the thread that iterates them, so that the conversation is always as far as the event
just delivered. An agent may be used from several threads, one run at a time.
"""

import asyncio
import atexit
import copy
import inspect
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar, Unpack, overload

import anyio.to_thread

from aguia import client
from aguia.client import RunResult, Transport
from aguia.client.agent import AgentOptions, HttpAgentOptions, RunOptions, ThreadView
from aguia.client.agent import HttpAgent as AsyncHttpAgent
from aguia.client.run import ClosedRun
from aguia.client.thread import Answers, Content
from aguia.client.tools import Consent, ToolRequest
from aguia.conversation import Conversation
from aguia.protocol.capabilities import AgentCapabilities
from aguia.protocol.errors import TruncatedRun
from aguia.protocol.events import Event
from aguia.protocol.input import RunAgentInput

__all__ = ["Agent", "HttpAgent", "RunStream"]

_LAST_SECONDS: Final = 2.0
"""How long the end of a program waits for connections to be closed."""

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class _Loop:
    """An event loop in a thread of its own, started when it is first needed.

    The thread is a daemon, so that a program ends which has closed nothing; it is told to end
    when the program ends, or when nobody holds this any more.

    Args:
        cleanup: the last thing that runs in the loop.
    """

    def __init__(self, cleanup: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._cleanup = cleanup
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._waited_for: set[Future[Any]] = set()
        self._streams: weakref.WeakSet[client.RunStream] = weakref.WeakSet()

    def run(self, work: Coroutine[Any, Any, T], stream: client.RunStream | None = None) -> T:
        """Run a coroutine to its end and return what it returns, or raise what it raises.

        Interrupted here, as by Ctrl-C, it is cancelled there. A stream that it belongs to is
        closed when the loop ends, if it is still there.
        """
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # The loop before this one may still be closing those that it had.
                self._streams = weakref.WeakSet()
                self._thread = threading.Thread(
                    target=_serve,
                    args=(self._loop, self._streams, self._cleanup),
                    name="aguia.sync",
                    daemon=True,
                )
                self._thread.start()
                weakref.finalize(self, _stop, self._loop).atexit = False
            elif threading.current_thread() is self._thread:
                work.close()
                raise RuntimeError(
                    "this is called from the agent's own event loop, which would wait for itself; "
                    "an asynchronous function uses `aguia.Agent`"
                )
            thread = self._thread
            if stream is not None:
                self._streams.add(stream)
            # As long as nobody else can end the loop: what comes after its end waits for ever.
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._waited_for.add(future)
        try:
            return future.result()
        except CancelledError:
            # By `close`; what it breaks off is settled when the loop has ended.
            if thread is not None:
                thread.join(_LAST_SECONDS)
            raise TruncatedRun("the agent was closed before this had ended") from None
        except BaseException:
            # Ctrl-C; after any other error there is nothing left to cancel.
            future.cancel()
            raise
        finally:
            self._waited_for.discard(future)

    def tell(self, what: Callable[[], None]) -> None:
        """Have something done in the loop's thread, without waiting for it."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(what)
            else:
                what()

    def close(self) -> None:
        """End the loop and its thread. It starts anew if it is needed again."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            waited_for = list(self._waited_for)
        if loop is not None and thread is not None:
            for future in waited_for:
                future.cancel()
            _stop(loop)
            thread.join()


def _serve(
    loop: asyncio.AbstractEventLoop,
    streams: weakref.WeakSet[client.RunStream],
    cleanup: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    thread = threading.current_thread()

    def end() -> None:
        _stop(loop)
        thread.join(_LAST_SECONDS)

    atexit.register(end)
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_finish(streams))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(cleanup())
    finally:
        atexit.unregister(end)
        loop.close()


async def _finish(streams: Iterable[client.RunStream]) -> None:
    """Let end what is about to: connections that are being closed, and runs that are cancelled.

    A stream that was left where it stood is closed as a whole; the loop would close the
    generators in it all at once, each in the way of the other.
    """
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=_LAST_SECONDS / 2)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
    for stream in list(streams):
        await stream.close_after(ClosedRun())


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.call_soon_threadsafe(loop.stop)
    except RuntimeError:
        pass  # it has ended already


class RunStream(Iterator[Event]):
    """A run: an iterator of its events, sent off when its first event is asked for.

    Leave it early by `break`, `close` or at the end of `with`; see `aguia.client.RunStream`.
    """

    def __init__(self, stream: client.RunStream, loop: _Loop) -> None:
        self._stream = stream
        self._loop = loop
        self._ready: Iterator[Event] = iter(())
        self._left = False

    @property
    def input(self) -> RunAgentInput:
        """The input of the run that is under way, or of the last one."""
        return self._stream.input

    @property
    def under_way(self) -> bool:
        """Whether the run has been sent off and has neither ended nor been closed."""
        return self._stream.under_way

    @property
    def conversation(self) -> Conversation:
        """The thread as the events so far have left it."""
        return self._stream.conversation

    @property
    def result(self) -> RunResult:
        """What came of the run. Raises `RuntimeError` before it is over."""
        return self._stream.result

    def cancel(self) -> None:
        """End the run from any thread: whoever iterates it gets no further event, and no error."""
        self._left = True
        self._loop.tell(self._stream.leave)

    def close(self) -> None:
        """Stop reading: the connection closes, and what arrived stays in the thread."""
        self._loop.run(self._stream.aclose())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        stream = self._stream
        while True:
            try:
                try:
                    for event in self._ready:
                        if self._left or stream.left:
                            break
                        return event
                except Exception as error:
                    self._loop.run(stream.close_after(error))
                    raise
                ready = self._loop.run(stream.next_batch(), stream)
            except TruncatedRun as error:
                # The agent may have been closed before the loop came to this.
                stream.settle(error)
                raise
            except Exception:
                raise
            except BaseException:
                # Ctrl-C: what was about to be delivered is lost, and nothing may follow it.
                self._loop.run(stream.aclose())
                raise
            if ready is None:
                raise StopIteration
            self._ready = ready

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._stream)


class Agent(ThreadView):
    """An agent, and the one thread that is held with it; see `aguia.Agent`, also for what it takes.

    A `consent` that is no asynchronous function is asked in a thread of its own, and may wait
    for a person.
    """

    def __init__(self, transport: Transport, **options: Unpack[AgentOptions]) -> None:
        self._set_up(client.Agent(transport, **options))

    def _set_up(self, agent: client.Agent) -> None:
        self._agent = agent
        self._thread = agent._thread
        # Each loop closes its own runs; by then the agent may have one in the next loop.
        self._loop = _Loop(agent._release)
        self._owns_loop = True
        self.consent = agent.consent

    @property
    def consent(self) -> Consent | None:
        """What is asked before a function runs that isn't read-only; see `aguia.Agent`."""
        return self._consent

    @consent.setter
    def consent(self, consent: Consent | None) -> None:
        self._consent = consent
        self._agent.consent = None if consent is None else _in_a_thread(consent)

    @property
    def max_rounds(self) -> int:
        """How many runs in a row `run` makes at most."""
        return self._agent.max_rounds

    @max_rounds.setter
    def max_rounds(self, rounds: int) -> None:
        self._agent.max_rounds = rounds

    @property
    def tool_timeout(self) -> float | None:
        """Seconds that a function may take, unless it has a time of its own."""
        return self._agent.tool_timeout

    @tool_timeout.setter
    def tool_timeout(self, seconds: float | None) -> None:
        self._agent.tool_timeout = seconds

    @property
    def max_parallel_tools(self) -> int:
        """How many functions run at a time."""
        return self._agent.max_parallel_tools

    @max_parallel_tools.setter
    def max_parallel_tools(self, number: int) -> None:
        self._agent.max_parallel_tools = number

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # type checkers find the mistake by themselves

        async def __aenter__(self) -> NoReturn:
            name = type(self).__name__
            raise TypeError(
                f"this {name} is synchronous: use `with`, or aguia.{name} in `async with`"
            )

        __aexit__ = __aenter__  # without it, `async with` would not come to call the other

    def close(self) -> None:
        """Release the transport and end the event loop, unless they are another agent's."""
        if self._owns_loop:
            self._loop.close()

    def fork(self, thread_id: str | None = None) -> Self:
        """Another thread with the same agent; see `aguia.Agent.fork`."""
        other = copy.copy(self)
        other._agent = self._agent.fork(thread_id)
        other._thread = other._agent._thread
        other._owns_loop = False
        return other

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        read_only: bool = False,
        timeout: float | None = None,
    ) -> Callable[[F], F]: ...
    def tool(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        read_only: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Offer a function to the agent; a decorator. See `aguia.Agent.tool`."""
        offer = self._agent.tool(
            name=name, description=description, read_only=read_only, timeout=timeout
        )
        return offer if function is None else offer(function)

    def run(self, content: Content | None = None, **options: Unpack[RunOptions]) -> RunStream:
        """Start a run: iterate what is returned for its events. See `aguia.Agent.run`."""
        return RunStream(self._agent.run(content, **options), self._loop)

    def ask(self, content: Content | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run to the end and return what came of it. See `aguia.Agent.ask`."""
        return self._loop.run(self._agent.ask(content, **options))

    def resume(self, answers: Answers, **options: Unpack[RunOptions]) -> RunStream:
        """Go on with an interrupted thread. See `aguia.Agent.resume`."""
        return RunStream(self._agent.resume(answers, **options), self._loop)

    def cancel(self) -> None:
        """End the run that is under way, if one is, from any thread. See `aguia.Agent.cancel`."""
        self._loop.tell(self._agent._leave)

    def capabilities(self) -> AgentCapabilities | None:
        """What the agent declares of itself. See `aguia.Agent.capabilities`."""
        return self._loop.run(self._agent.capabilities())

    def _append(self, said: Content) -> None:
        self._agent._append(said)

    @property
    def _title(self) -> str:
        return self._agent._title


class HttpAgent(Agent):
    """An agent at a URL; see `aguia.HttpAgent`, also for what it takes.

    An `httpx.AsyncClient` of the caller's belongs to this agent's event loop from then on.
    """

    def __init__(self, url: str, **options: Unpack[HttpAgentOptions]) -> None:
        self._set_up(AsyncHttpAgent(url, **options))
        self.url = url


def _in_a_thread(consent: Consent) -> Consent:
    """The same consent, asked outside of the event loop, unless it is made for one."""
    if inspect.iscoroutinefunction(consent):
        return consent

    async def asked(request: ToolRequest) -> bool | str:
        answer = await anyio.to_thread.run_sync(consent, request, abandon_on_cancel=True)
        return await answer if inspect.isawaitable(answer) else answer

    return asked
