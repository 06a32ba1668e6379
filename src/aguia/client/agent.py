"""The async client: one agent, one thread.

`HttpAgent` is what most programs need. `Agent` is the same over any transport.
"""

import asyncio
import copy
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypedDict, TypeVar, Unpack, overload

import httpx

from aguia.client.capabilities import read_capabilities
from aguia.client.display import conversation_html, conversation_text
from aguia.client.http import Auth, HttpTransport, Retries, shown_url
from aguia.client.interrupts import resume_entries
from aguia.client.run import ClosedRun, Course, RunResult, RunStream, answerable
from aguia.client.thread import Answers, Content, Limits, Request, Thread
from aguia.client.tools import Consent, FunctionTool, answer_calls, check_timeout
from aguia.client.transports import SSE, DeclaringTransport, Timeouts, Transport
from aguia.codec.json import MAX_DEPTH
from aguia.codec.sse import MAX_FRAME
from aguia.conversation import Conversation, Messages
from aguia.interop.values import Model, plain_model
from aguia.pipeline.enforcement import enforce_list
from aguia.pipeline.middleware import Middleware, RunMiddleware
from aguia.pipeline.verification import MAX_OPEN_ITEMS
from aguia.protocol.capabilities import AgentCapabilities
from aguia.protocol.common import UNSET
from aguia.protocol.errors import (
    DecodeError,
    InputRejected,
    ProtocolWarning,
    TransportError,
)
from aguia.protocol.events import RunErrorEvent
from aguia.protocol.input import Context, Tool
from aguia.protocol.messages import Message, ToolCall, ToolMessage
from aguia.protocol.outcomes import Interrupt, RunFinishedOutcome, TokenUsage

__all__ = [
    "Agent",
    "AgentOptions",
    "HttpAgent",
    "HttpAgentOptions",
    "Offer",
    "RunOptions",
    "ThreadView",
]

F = TypeVar("F", bound=Callable[..., Any])

Offer = Tool | dict[str, Any] | Model | FunctionTool | Callable[..., Any]
"""A tool that is offered: only declared, or with the function that carries it out."""


class AgentOptions(TypedDict, total=False):
    """What an `Agent` may be told, whatever its transport; see there."""

    thread_id: str | None
    messages: Iterable[Message | dict[str, Any] | Model]
    state: Any
    interrupts: Iterable[Interrupt | dict[str, Any]]
    history: Mapping[str, Any] | str | bytes | None
    tools: Iterable[Offer]
    context: Iterable[Context | dict[str, Any]]
    consent: Consent | None
    max_rounds: int
    tool_timeout: float | None
    max_parallel_tools: int
    capabilities: AgentCapabilities | Mapping[str, Any] | str | None
    middleware: Sequence[RunMiddleware]
    event_middleware: Sequence[Middleware | type[Any]]
    peer_version: str | None
    max_event_bytes: int
    max_depth: int
    max_open_items: int
    on_warning: Callable[[ProtocolWarning], None] | None


class HttpAgentOptions(AgentOptions, total=False):
    """What an `HttpAgent` may be told; see there."""

    headers: Mapping[str, str] | None
    auth: Auth | None
    proxy: str | None
    timeouts: Timeouts | None
    retries: int | Retries
    client: httpx.AsyncClient | None
    accept: str | Iterable[str]


class RunOptions(TypedDict, total=False):
    """What a run may be told; see `Agent.run`."""

    tools: Iterable[Offer] | None
    context: Iterable[Context | dict[str, Any]] | None
    state: Any
    forwarded_props: Any
    resume: Answers | None
    run_id: str | None
    timeout: float | None
    force: bool


class ThreadView:
    """What an agent shows of its thread, with async and without."""

    _thread: Thread

    @property
    def thread_id(self) -> str:
        """The name of the thread."""
        return self._thread.id

    @property
    def conversation(self) -> Conversation:
        """The thread as the events so far have left it."""
        return self._thread.conversation

    @property
    def messages(self) -> Messages:
        """The messages of the thread: a live view while a run goes on, a new one with each run.

        `append` adds to them between runs: text, content parts or a message, typed or as plain
        JSON. The answer to a call takes its place after the call (CONV-1).
        """
        return self._thread.conversation.messages.appending(self._append)

    def _append(self, said: Content) -> None:
        raise NotImplementedError

    @property
    def state(self) -> Any:
        """The shared state."""
        return self._thread.conversation.state

    if not TYPE_CHECKING:

        @state.setter
        def state(self, value: Any) -> None:
            raise AttributeError(
                "the state can't be assigned to; give `state=` to `run` or `ask`, which send it"
            )

    @property
    def outcome(self) -> RunFinishedOutcome | None:
        """How the last run finished; None when it failed or was cut off (RUN-9)."""
        return self._thread.conversation.outcome

    @property
    def error(self) -> RunErrorEvent | None:
        """The last run's own report of its failure (RUN-8)."""
        return self._thread.conversation.error

    @property
    def result(self) -> Any:
        """The value that the last run returned, or `UNSET`."""
        return self._thread.conversation.result

    @property
    def usage(self) -> list[TokenUsage]:
        """The token usage that the last run reported (USE-1)."""
        return self._thread.conversation.usage

    @property
    def interrupts(self) -> list[Interrupt]:
        """What has to be answered before the thread goes on (INT-2); see `resume`."""
        return self._thread.conversation.interrupts

    @property
    def pending_tool_calls(self) -> list[ToolCall]:
        """The calls that nobody has answered (FRONT-4): of the last run, or as they were stored."""
        return self._thread.pending_tool_calls

    def history(self) -> dict[str, Any]:
        """The thread as plain JSON, for a store; `history=` takes it up again.

        Calls that a run was cut off in are answered in it, by saying so.
        """
        return self._thread.history()

    def __repr__(self) -> str:
        return conversation_text(self.messages, self._title)

    def _repr_html_(self) -> str:
        return conversation_html(self.messages, self._title, interrupts=self.interrupts)

    @property
    def _title(self) -> str:
        raise NotImplementedError


class Agent(ThreadView):
    """An agent, and the one thread that is held with it, one run at a time.

    Args:
        transport: how the agent is reached.
        thread_id: names the conversation; made up when it isn't given.
        messages, state: what the thread starts from.
        interrupts: those that the thread's last run left open, for one taken up from a store.
        history: all of these in one, as `history()` gave them: a dictionary, or JSON text.
        tools: offered to the agent with every run, unless `run` says otherwise: functions (see
            `tool`), which answer the agent's calls by themselves, and declarations, whose calls
            the application answers (FRONT-5).
        context: offered to the agent with every run, unless `run` says otherwise.
        consent: is asked before a function runs that isn't `read_only`; without it, such
            functions are refused (SEC-2). See `Consent`.
        max_rounds: how many runs in a row `run` makes at most, the first one included.
        tool_timeout: seconds that a function may take, unless it has a time of its own; None
            waits for ever.
        max_parallel_tools: how many functions run at a time.
        capabilities: what the agent declares of itself, or the URL where it does, in place of
            what the transport finds.
        middleware: goes around each whole run; `aguia.middleware` has some, ready-made.
        event_middleware: sees each event before enforcement, or classes of it; see `Consumer`.
        peer_version: the version of an agent that is known to be old, such as "0.0.39": it is
            sent what that version understands, and read as it meant it (VER-3).
        max_event_bytes, max_depth, max_open_items: how much of a stream is read; see `Consumer`.
        on_warning: is called with each `ProtocolWarning`; see `Consumer`.

    Raises `InvalidInput` for what the thread can't start from, `ValueError` for a limit that
    can't be kept.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        thread_id: str | None = None,
        messages: Iterable[Message | dict[str, Any] | Model] = (),
        state: Any = UNSET,
        interrupts: Iterable[Interrupt | dict[str, Any]] = (),
        history: Mapping[str, Any] | str | bytes | None = None,
        tools: Iterable[Offer] = (),
        context: Iterable[Context | dict[str, Any]] = (),
        consent: Consent | None = None,
        max_rounds: int = 10,
        tool_timeout: float | None = 60.0,
        max_parallel_tools: int = 8,
        capabilities: AgentCapabilities | Mapping[str, Any] | str | None = None,
        middleware: Sequence[RunMiddleware] = (),
        event_middleware: Sequence[Middleware | type[Any]] = (),
        peer_version: str | None = None,
        max_event_bytes: int = MAX_FRAME,
        max_depth: int = MAX_DEPTH,
        max_open_items: int = MAX_OPEN_ITEMS,
        on_warning: Callable[[ProtocolWarning], None] | None = None,
    ) -> None:
        if max_rounds < 1 or max_parallel_tools < 1:
            raise ValueError("max_rounds and max_parallel_tools are 1 at least")
        if consent is not None and not callable(consent):
            raise TypeError(
                f"consent is a function that is asked about each call, not {type(consent).__name__}"
            )
        check_timeout(tool_timeout)
        self.consent = consent
        self.max_rounds = max_rounds
        self.tool_timeout = tool_timeout
        self.max_parallel_tools = max_parallel_tools
        self._transport = transport
        self._owns_transport = True
        self._middleware = tuple(middleware)
        self._capabilities = capabilities
        self._current: weakref.ref[RunStream] | None = None
        # Runs that were dropped in the middle, and are being closed.
        self._orphans: set[asyncio.Task[None]] = set()
        self._thread = Thread(
            thread_id=thread_id,
            messages=messages,
            state=state,
            interrupts=interrupts,
            history=history,
            event_middleware=event_middleware,
            peer_version=peer_version,
            limits=Limits(max_event_bytes, max_depth, max_open_items),
            on_warning=on_warning,
        )
        self._tools, self._functions = self._offered(tools)
        self._context = enforce_list(context, Context, self._thread.warn, "/context")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    if not TYPE_CHECKING:  # type checkers find the mistake by themselves

        def __enter__(self) -> NoReturn:
            name = type(self).__name__
            raise TypeError(
                f"{name} is asynchronous: use `async with`, or aguia.sync.{name} for `with`"
            )

        __exit__ = __enter__  # without it, `with` would not come to call the other

    async def close(self) -> None:
        """Release the transport, unless it is another agent's; the thread stays readable.

        A run that has not ended is truncated by it.
        """
        if (current := self._under_way()) is not None:
            await current.close_after(ClosedRun())
        if self._orphans:
            await asyncio.wait(self._orphans)
        await self._release()

    async def _release(self) -> None:
        """Release the transport alone, for whoever closes the runs."""
        if self._owns_transport:
            await self._transport.close()

    # The thread

    def fork(self, thread_id: str | None = None) -> Self:
        """Another thread with the same agent that starts from what this one holds.

        It shares the transport, which the first agent closes, and everything else that was set.
        """
        other = copy.copy(self)
        other._owns_transport = False
        other._current = None
        other._orphans = set()
        other._thread = self._thread.fork(thread_id)
        other._functions = dict(self._functions)
        other._tools = list(self._tools)
        return other

    # Tools

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
        """Offer a function to the agent; a decorator, with settings or without.

        For example::

            @agent.tool(read_only=True)
            def weather(city: str) -> str:
                "The weather in a city."

        See `aguia.client.tool` for the settings. The function stays as it is. One that is defined
        anew, as by a notebook's cell that is run again, takes the place of what it was.

        Raises `TypeError` for a function that no schema can be made of, `ValueError` for a name
        that is taken.
        """

        def offer(function: Any) -> Any:
            made = (
                function
                if isinstance(function, FunctionTool)
                else FunctionTool(
                    function,
                    name=name,
                    description=description,
                    read_only=read_only,
                    timeout=timeout,
                )
            )
            self._offer(made)
            return function

        return offer if function is None else offer(function)

    def _offer(self, made: FunctionTool) -> None:
        known = self._functions.get(made.name)
        if known is not None and _is_defined_anew(known.function, made.function):
            self._tools = [tool for tool in self._tools if tool.name != made.name]
        if any(tool.name == made.name for tool in self._tools):
            raise ValueError(f"a tool with the name '{made.name}' is offered already")
        self._tools.append(made.declaration)
        self._functions[made.name] = made

    def _offered(self, tools: Iterable[Offer]) -> tuple[list[Tool], dict[str, FunctionTool]]:
        functions: dict[str, FunctionTool] = {}
        declared: list[Any] = []
        for offered in tools:
            tool: Any = plain_model(offered)
            if isinstance(tool, Tool | dict):
                declared.append(tool)
                continue
            made = tool if isinstance(tool, FunctionTool) else FunctionTool(tool)
            functions[made.name] = made
            declared.append(made.declaration)
        checked: list[Tool] = enforce_list(declared, Tool, self._thread.warn, "/tools")
        names = [tool.name for tool in checked]
        for name in functions:
            if names.count(name) > 1:
                raise ValueError(f"two tools have the name '{name}'")
        return checked, functions

    async def _answer(
        self,
        functions: Mapping[str, FunctionTool],
        calls: list[ToolCall],
        given_up: Callable[[ToolMessage], None],
    ) -> list[ToolMessage]:
        return await answer_calls(
            calls,
            functions,
            consent=self.consent,
            timeout=self.tool_timeout,
            limit=self.max_parallel_tools,
            given_up=given_up,
        )

    # Runs

    def run(
        self,
        content: Content | None = None,
        *,
        tools: Iterable[Offer] | None = None,
        context: Iterable[Context | dict[str, Any]] | None = None,
        state: Any = UNSET,
        forwarded_props: Any = UNSET,
        resume: Answers | None = None,
        run_id: str | None = None,
        timeout: float | None = None,
        force: bool = False,
    ) -> RunStream:
        """Start a run: iterate what is returned for its events, and ask it for its `result`.

        When the run leaves calls of functions that are offered, these answer them and the next
        run starts, all in this one iteration, `max_rounds` times at most. Calls that a thread
        holds already are answered before the first.

        Args:
            content: what the user says (text, or content parts), or messages to append to the
                thread, whose ids have to be new to it; None runs the thread as it stands.
            tools: in place of the agent's own.
            context: in place of the agent's own.
            state: in place of the thread's.
            forwarded_props: passed to the agent untouched.
            resume: the answers to every open interrupt: a mapping from its id to the answer, or
                to `CANCEL` for one that is abandoned; or `ResumeEntry`s.
            run_id: names the run; made up when it isn't given.
            timeout: seconds for all of it, functions and consent included; None is no limit.
            force: sends answers that don't fit their interrupt's `responseSchema`, too.

        Raises `InvalidInput`, before anything is sent, for a malformed input (PROC-11), for an
        interrupt that is not covered, has expired or asked for something else (INT-2, INT-3,
        INT-7), for calls that nobody answers or that are answered twice (FRONT-5), and for a
        `run_id` that the thread has used (EVT-6); `ValueError` for a `timeout` that is no positive
        number; `RuntimeError` while an earlier run of this agent has not ended and has not been
        closed. While being iterated:
        `InputRejected`, a `TransportError`, a `ProtocolViolation` or `TruncatedRun`. A run that
        reports its own failure raises nothing: its `RunErrorEvent` is delivered, and kept in
        `error` and in the result (RUN-8).
        """
        self._refuse_second_run()
        check_timeout(timeout)
        thread = self._thread
        declared, functions = (
            (list(self._tools), self._functions) if tools is None else self._offered(tools)
        )
        # Made once: an iterator could not be read again after calls have been answered.
        entries = list(resume_entries(resume))
        request = Request(
            tools=declared,
            context=self._context
            if context is None
            else enforce_list(context, Context, thread.warn, "/context"),
            forwarded_props=forwarded_props,
        )
        names = {tool.name for tool in declared}
        make = partial(
            thread.next_input,
            request,
            thread.said(content),
            state=state,
            resume=entries,
            run_id=run_id,
            force=force,
            answers=lambda name: answerable(name, functions, names),
        )
        course = Course(
            thread,
            self._transport,
            self._middleware,
            request,
            make(),
            make,
            functions=functions,
            answer=partial(self._answer, functions),
            max_rounds=self.max_rounds,
            timeout=timeout,
            force=force,
        )
        return RunStream(course, self._beginner(), self._orphans)

    async def ask(self, content: Content | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run to the end and return what came of it; takes what `run` takes.

        Raises what `run` raises, and `RunFailed` for a run that reports its own failure. One
        that was interrupted or cancelled returns: see `RunResult.outcome`.
        """
        stream = self.run(content, **options)
        async with stream:
            async for _ in stream:
                pass
        result = stream.result
        if result.error is not None:
            raise result.error
        return result

    def resume(self, answers: Answers, **options: Unpack[RunOptions]) -> RunStream:
        """Go on with an interrupted thread: `run` with the answers to all its interrupts.

            agent.resume({"approve-1": {"approved": True}, "which-2": CANCEL})

        Args:
            answers: a mapping from each interrupt's id to its answer, or to `CANCEL`.
            options: see `run`.
        """
        options["resume"] = answers
        return self.run(**options)

    def cancel(self) -> None:
        """End the run that is under way, if one is: its iteration ends, `ask` raises.

        The connection closes, the run counts as truncated, and what arrived is kept. To be called
        in the event loop's own thread.
        """
        current = self._under_way()
        if current is not None:
            current.cancel()

    def _leave(self) -> None:
        """Have the run that is under way give no further event; see `RunStream.leave`."""
        current = self._under_way()
        if current is not None:
            current.leave()

    def _under_way(self) -> RunStream | None:
        current = self._current() if self._current is not None else None
        return current if current is not None and current.under_way else None

    def _append(self, said: Content) -> None:
        self._refuse_second_run()
        self._thread.append(said)

    def _refuse_second_run(self) -> None:
        current = self._under_way()
        if current is not None:
            raise RuntimeError(
                f"the run '{current.input.run_id}' has not ended: an agent's thread has one run "
                "at a time; iterate that run to its end, or close it"
            )

    def _beginner(self) -> Callable[[RunStream], None]:
        """What a run calls when it takes its first step; raises unless the thread is free."""
        thread = self._thread
        made_for, length = thread.conversation, len(thread.conversation.messages)

        def begin(stream: RunStream) -> None:
            self._refuse_second_run()
            if thread.conversation is not made_for or len(made_for.messages) != length:
                raise RuntimeError(
                    f"the thread has gone on since the run '{stream.input.run_id}' was made; "
                    "make it anew"
                )
            self._current = weakref.ref(stream)

        return begin

    @property
    def _title(self) -> str:
        return f"{type(self).__name__} {self.thread_id}"

    # What the agent declares

    async def capabilities(self) -> AgentCapabilities | None:
        """What the agent declares of itself; None if it declares nothing that can be used.

        What was given as `capabilities`, or what the transport finds: over HTTP the answer to
        GET `…/capabilities`. A declaration informs and never prevents a run, so what can't be
        reached or doesn't validate is ignored with a warning (CAP-1).
        """
        declared: Any = self._capabilities
        try:
            if declared is None and isinstance(self._transport, DeclaringTransport):
                declared = await self._transport.capabilities()
            elif isinstance(declared, str):
                declared = await self._declared_at(declared)
        except (TransportError, InputRejected, DecodeError) as error:
            self._thread.warn(
                ProtocolWarning(
                    stage="capabilities",
                    rule="CAP-1",
                    message=f"the agent's declaration can't be had: {error}",
                )
            )
            return None
        if declared is None:
            return None
        return read_capabilities(declared, self._thread.warn)

    async def _declared_at(self, url: str) -> Any:
        if isinstance(self._transport, HttpTransport):
            return await self._transport.capabilities(url)
        transport = HttpTransport(url)
        try:
            return await transport.capabilities(url)
        finally:
            await transport.close()


def _is_defined_anew(old: Any, new: Any) -> bool:
    """Whether these are one function of the main module, where what is defined again replaces."""
    places = {
        (getattr(each, "__module__", None), getattr(each, "__qualname__", "<locals>"))
        for each in (old, new)
    }
    ((module, name), *others) = places
    return not others and module == "__main__" and "<locals>" not in name


class HttpAgent(Agent):
    """An agent at a URL. See `Agent` for what they have in common.

    Args:
        url: where the agent answers.
        headers: sent with every request.
        auth: name and password, or what else `httpx` takes.
        proxy: the URL of a proxy, in place of what the environment names.
        timeouts: how long to wait for what; they hold for a client of the caller's, too.
        retries: how often a request that can't have had an effect is sent again.
        client: an `httpx.AsyncClient` of the caller's, with its proxies, certificates and
            authentication; it stays open when the agent is closed.
        accept: the bindings that are offered to the agent; see `HttpTransport`.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: Auth | None = None,
        proxy: str | None = None,
        timeouts: Timeouts | None = None,
        retries: int | Retries = 2,
        client: httpx.AsyncClient | None = None,
        accept: str | Iterable[str] = SSE,
        **options: Unpack[AgentOptions],
    ) -> None:
        super().__init__(
            HttpTransport(
                url,
                headers=headers,
                auth=auth,
                proxy=proxy,
                timeouts=timeouts,
                retries=retries,
                client=client,
                accept=accept,
            ),
            **options,
        )
        self.url = url

    @property
    def _title(self) -> str:
        return f"{type(self).__name__} {shown_url(self.url)} {self.thread_id}"
