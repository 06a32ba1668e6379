"""Frontend tools: functions of the application that an agent may propose to call (FRONT-5).

A tool is made of a function. `answer_calls` then does with the calls that a run has left what the
protocol asks of an application: it judges the arguments (SEC-1), asks for consent before anything
with side effects (SEC-2), runs what is allowed, and answers every call, whatever happens.
"""

import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial, update_wrapper
from typing import Any, Final, TypeAlias, overload
from uuid import uuid4

import anyio
import anyio.to_thread
import msgspec

from aguia.interop.results import typed_content
from aguia.interop.schemas import shorten
from aguia.interop.signatures import ArgumentError, Signature
from aguia.protocol.errors import printable
from aguia.protocol.input import Tool
from aguia.protocol.messages import ToolCall, ToolMessage

__all__ = [
    "Consent",
    "FunctionTool",
    "ToolRequest",
    "answer_calls",
    "check_timeout",
    "failed_answer",
    "tool",
]

_logger: Final = logging.getLogger("aguia")

_MAX_TEXT: Final = 2000  # characters of an error, and of the reason for a refusal
_MAX_NAME: Final = 100


class FunctionTool:
    """A function, offered to agents as a tool.

    Args:
        function: a coroutine function, or an ordinary one, which is run in a thread. Its
            signature and docstring tell what the tool does and takes: see
            `aguia.interop.signatures`. It returns text, a content part or a list of parts, or
            anything else that has a JSON form; None is the empty text.
        name, description: in place of the function's own.
        read_only: the tool changes nothing, anywhere, and may run without anybody's consent.
        timeout: seconds that a call may take, in place of the general time-out; `math.inf` for
            no end.

    Raises `TypeError` for a function that no tool can be made of, saying why; `ValueError` for a
    time-out that is no positive number.

    Attributes:
        function: the function itself; calling the tool calls it.
        name, description: what the agent is told.
        parameters: the JSON Schema of the arguments.
        signature: judges a call's arguments by it.
        read_only, timeout: as given.
        declaration: what goes to the agent.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        read_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        if not isinstance(read_only, bool):
            raise TypeError(f"read_only is True or False, not {type(read_only).__name__}")
        check_timeout(timeout)
        self.signature: Signature = Signature(function, name=name, description=description)
        called = function
        while isinstance(called, partial):
            called = called.func
        for kind in (called, type(called).__call__):
            if inspect.isgeneratorfunction(kind) or inspect.isasyncgenfunction(kind):
                raise TypeError(
                    f"the tool '{self.signature.name}' is a generator; a tool returns its result "
                    "as a whole"
                )
        update_wrapper(self, function, updated=())
        self.function = function
        self.name: str = self.signature.name
        self.description: str = self.signature.description
        self.parameters: dict[str, Any] = self.signature.schema
        self.read_only = read_only
        self.timeout = timeout
        self.declaration: Tool = Tool(
            name=self.name, description=self.description, parameters=self.parameters
        )
        self._is_async = any(
            inspect.iscoroutinefunction(kind) for kind in (called, type(called).__call__)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"FunctionTool({self.name!r}, read_only={self.read_only})"

    async def run(self, values: Mapping[str, Any]) -> Any:
        """What the function returns for these arguments, whose types are as it expects them.

        An ordinary function runs in a thread of its own, which is left behind, still working,
        when this is cancelled; Python waits for it when the program ends.
        """
        if self._is_async:
            return await self.function(**values)
        result, error = await anyio.to_thread.run_sync(
            _caught,
            self.function,
            values,
            abandon_on_cancel=True,
            # Threads that hang must not take the places of others.
            limiter=anyio.CapacityLimiter(1),
        )
        if error is not None:
            raise error
        return await result if inspect.isawaitable(result) else result


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    timeout: float | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    timeout: float | None = None,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a `FunctionTool` of a function: `@tool`, or `@tool(read_only=True)` and the like."""
    make = partial(
        FunctionTool, name=name, description=description, read_only=read_only, timeout=timeout
    )
    return make if function is None else make(function)


class ToolRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for consent: its arguments fit, and nothing has been run.

    Attributes:
        call: the call as the agent made it.
        tool: the tool that it would run.
        arguments: plain JSON, judged. What is done to this copy changes nothing about the call.
            Its texts come from the agent: escape them where they are shown.
    """

    call: ToolCall
    tool: FunctionTool
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.name

    @property
    def read_only(self) -> bool:
        """Whether the tool declares that it changes nothing."""
        return self.tool.read_only


Consent: TypeAlias = Callable[[ToolRequest], bool | str | Awaitable[bool | str]]
"""Decides on a call: True allows it; False refuses it, and so does a text, which says why.

An ordinary function is called on the event loop and must not block it; a coroutine function may
take its time.
"""


async def answer_calls(
    calls: Sequence[ToolCall],
    tools: Mapping[str, FunctionTool],
    *,
    consent: Consent | None,
    timeout: float | None,
    limit: int,
    given_up: Callable[[ToolMessage], None] | None = None,
) -> list[ToolMessage]:
    """Run the calls that may run, and answer every one, in the order of the calls (FRONT-5).

    Whatever keeps a call from its result becomes an answer with `error`, whose content says the
    same: an unknown tool, arguments that are no JSON or don't fit (SEC-1), a refusal (SEC-2), an
    exception, of which the agent is told type and message, and a time-out.

    Args:
        calls: the pending calls.
        tools: by name, those that may be called.
        consent: asked for each call of a tool that is not read-only, for one at a time, in the
            order of the calls, while those already allowed run. Only True allows; anything else,
            an exception included, refuses. None refuses them all: nobody can be asked.
        timeout: seconds that a call may take once it runs, unless its tool says otherwise; None
            for no end. A coroutine is cancelled then; a thread is left behind, and so the
            function may still have its effects after the agent was told that time was up.
        limit: how many calls run at the same time.
        given_up: when this is cancelled, or a function is about to end the program, is given
            the answers that are there by then, and one for each call that was running, in the
            order of the calls: what a function has done is done, and the agent has to hear of it.
    """
    check_timeout(timeout)
    if limit < 1:
        raise ValueError(f"at least one call has to run at a time, not {limit}")
    answers: dict[int, ToolMessage] = {}
    begun: set[int] = set()
    places = anyio.Semaphore(limit)
    waiting: list[tuple[int, ToolRequest, dict[str, Any]]] = []

    async def run(index: int, request: ToolRequest, values: dict[str, Any]) -> None:
        async with places:
            begun.add(index)
            answers[index] = await _answer(request, values, timeout)

    async def ask() -> None:
        for index, request, values in waiting:
            refusal = await _refusal(request, consent)
            if refusal is None:
                group.start_soon(run, index, request, values)
            else:
                answers[index] = failed_answer(request.call, refusal)

    try:
        async with anyio.create_task_group() as group:
            for index, call in enumerate(calls):
                found = tools.get(call.function.name)
                judged = _judge(call, found)
                if isinstance(judged, ToolMessage):
                    answers[index] = judged
                elif judged[0].read_only:
                    group.start_soon(run, index, *judged)
                else:
                    waiting.append((index, *judged))
            # In a task of its own: a cancellation from outside then reaches it through the group,
            # and is not taken for one that comes from within.
            group.start_soon(ask)
    except BaseException as error:
        for index, call in enumerate(calls):
            answer = answers.get(index)
            if answer is None and index in begun:
                answer = failed_answer(
                    call, "Cancelled: the application gave up while the tool ran; it may be done"
                )
            if answer is not None and given_up is not None:
                given_up(answer)
        # Besides a cancellation, only what is to end the program comes here, and it does so
        # under its own name.
        if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            raise error.exceptions[0] from None
        raise
    return [answers[index] for index in range(len(calls))]


def _judge(
    call: ToolCall, found: FunctionTool | None
) -> tuple[ToolRequest, dict[str, Any]] | ToolMessage:
    """The call with its arguments decoded, or the answer that it deserves instead."""
    name = printable(shorten(call.function.name, _MAX_NAME))
    if found is None:
        return failed_answer(call, f"UnknownTool: the application has no tool '{name}' to run")
    try:
        plain, values = found.signature.decode(call.function.arguments)
    except ArgumentError as error:
        return failed_answer(call, f"InvalidArguments: {error}")
    except Exception as error:  # a type's own validation may raise anything
        _logger.warning("judging the arguments of the tool '%s' failed", name, exc_info=error)
        return failed_answer(call, f"InvalidArguments: {_said(error)}")
    return ToolRequest(call=call, tool=found, arguments=plain), values


async def _refusal(request: ToolRequest, consent: Consent | None) -> str | None:
    """Why the call may not run, or None when it was allowed."""
    if consent is None:
        return "Refused: this tool needs consent, and nobody can be asked; it was not run"
    name = printable(request.name)
    try:
        decision: Any = consent(request)
        if inspect.isawaitable(decision):
            decision = await decision
    except anyio.get_cancelled_exc_class():
        if _is_cancelled():
            raise
        _logger.warning("asking for consent to the tool '%s' was cancelled", name)
        return "Refused: asking for consent failed; the tool was not run"
    except Exception as error:
        _logger.warning("asking for consent to the tool '%s' failed", name, exc_info=error)
        return "Refused: asking for consent failed; the tool was not run"
    if decision is True:
        return None
    refusal = "Refused: the user did not allow this call; it was not run"
    if isinstance(decision, str) and decision:
        return f"{refusal}. The reason given: {shorten(decision, _MAX_TEXT)}"
    if not isinstance(decision, str | bool):
        _logger.warning(
            "consent to the tool '%s' was answered with %s, and only True allows a call",
            name,
            type(decision).__name__,
        )
    return refusal


async def _answer(
    request: ToolRequest, values: dict[str, Any], timeout: float | None
) -> ToolMessage:
    call = request.call
    name = printable(request.name)
    allowed = timeout if request.tool.timeout is None else request.tool.timeout
    try:
        with anyio.move_on_after(allowed) as scope:
            content = typed_content(await request.tool.run(values))
            return ToolMessage(id=f"msg-{uuid4().hex}", tool_call_id=call.id, content=content)
    except anyio.get_cancelled_exc_class():
        if _is_cancelled():
            raise
        _logger.warning("the tool '%s' was cancelled from within", name)
        return failed_answer(call, "Cancelled: the tool gave up its work")
    except Exception as error:
        _logger.warning("the tool '%s' failed", name, exc_info=error)
        return failed_answer(call, _said(error))
    assert scope.cancelled_caught
    _logger.warning("the tool '%s' timed out after %g seconds", name, allowed)
    return failed_answer(call, f"TimeoutError: the tool timed out after {allowed:g} seconds")


def _is_cancelled() -> bool:
    """Whether it was this task that was cancelled, and not something that it waited for."""
    return anyio.current_effective_deadline() == -math.inf


def _caught(
    function: Callable[..., Any], values: Mapping[str, Any]
) -> tuple[Any, Exception | None]:
    # Some exceptions can't travel through a future as they are, StopIteration above all.
    try:
        return function(**values), None
    except Exception as error:
        return None, error


def failed_answer(call: ToolCall, error: str) -> ToolMessage:
    """The answer to a call that has no result, for the reason given (FRONT-5)."""
    return ToolMessage(id=f"msg-{uuid4().hex}", tool_call_id=call.id, content=error, error=error)


def _said(error: Exception) -> str:
    """Type and message of an exception, never where it came from."""
    try:
        message = str(error)
    except Exception:  # an exception that can't even be printed
        message = ""
    name = type(error).__name__
    return shorten(f"{name}: {message}" if message else name, _MAX_TEXT)


def check_timeout(timeout: float | None) -> None:
    """Raise `ValueError` for a time-out that is neither None nor a positive number of seconds."""
    if timeout is not None and not timeout > 0:
        raise ValueError(f"a time-out is a positive number of seconds, not {timeout}")
