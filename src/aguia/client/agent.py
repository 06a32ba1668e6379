"""The async client: one agent, one thread.

`HttpAgent` is what most programs need. `Agent` is the same over any transport.
"""

import logging
import weakref
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import httpx
import msgspec

from aguia.client.chain import wrapped
from aguia.client.http import HttpTransport
from aguia.client.transports import SSE, Timeouts, Transport
from aguia.consumer import Consumer
from aguia.conversation import Conversation, Messages
from aguia.interop.values import plain_value
from aguia.pipeline.compatibility import noting, upgrade_message
from aguia.pipeline.downgrade import downgrade_input, parse_peer_version
from aguia.pipeline.enforcement import enforce_input, enforce_list
from aguia.pipeline.intake import Intake
from aguia.pipeline.middleware import Item, Middleware, RunMiddleware
from aguia.protocol.common import PROTOCOL_VERSION, UNSET
from aguia.protocol.content import ContentPart
from aguia.protocol.errors import InvalidInput, ProtocolWarning, TransportError, TruncatedRun
from aguia.protocol.events import Event, RunErrorEvent
from aguia.protocol.input import Context, ResumeEntry, RunAgentInput, Tool
from aguia.protocol.messages import ActivityMessage, Message, ToolCall, UserMessage
from aguia.protocol.outcomes import Interrupt, RunFinishedOutcome, TokenUsage

__all__ = ["CANCEL", "Agent", "HttpAgent", "RunStream"]


class _Cancel:
    def __repr__(self) -> str:
        return "CANCEL"


CANCEL: Final = _Cancel()
"""In the place of an answer: the interrupt is abandoned."""

_logger: Final = logging.getLogger("aguia")


class Agent:
    """An agent, and the one thread that is held with it, one run at a time.

    Args:
        transport: how the agent is reached.
        thread_id: names the conversation; made up when it isn't given.
        messages, state: what the thread starts from.
        interrupts: those that the thread's last run left open, for one taken up from a store.
        tools, context: offered to the agent with every run, unless `run` says otherwise.
        middleware: goes around each whole run; `aguia.middleware` has some, ready-made.
        event_middleware: sees each event before enforcement, or classes of it; see `Consumer`.
        peer_version: the version of an agent that is known to be old, such as "0.0.39": it is
            sent what that version understands, and read as it meant it (VER-3).
        on_warning: is called with each `ProtocolWarning`; see `Consumer`.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        thread_id: str | None = None,
        messages: Iterable[Message | dict[str, Any]] = (),
        state: Any = UNSET,
        interrupts: Iterable[Interrupt | dict[str, Any]] = (),
        tools: Iterable[Tool | dict[str, Any]] = (),
        context: Iterable[Context | dict[str, Any]] = (),
        middleware: Sequence[RunMiddleware] = (),
        event_middleware: Sequence[Middleware | type[Middleware]] = (),
        peer_version: str | None = None,
        on_warning: Callable[[ProtocolWarning], None] | None = None,
    ) -> None:
        self.thread_id = thread_id or f"thread-{uuid4().hex}"
        self._transport = transport
        self._middleware = tuple(middleware)
        self._event_middleware = tuple(event_middleware)
        self._peer_version = peer_version
        self._peer = None if peer_version is None else parse_peer_version(peer_version)
        self._on_warning = on_warning
        self._current: weakref.ref[RunStream] | None = None
        # A consumer that has read nothing yet judges and holds what the thread starts from.
        self._conversation = Consumer(
            messages=messages, state=state, interrupts=interrupts, on_warning=on_warning
        ).conversation
        self._tools = enforce_list(tools, Tool, self._warn, "/tools")
        self._context = enforce_list(context, Context, self._warn, "/context")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Release the transport; the thread stays readable."""
        await self._transport.close()

    @property
    def conversation(self) -> Conversation:
        """The thread as the events so far have left it."""
        return self._conversation

    @property
    def messages(self) -> Messages:
        """The messages of the thread: a live view while a run goes on, a new one with each run."""
        return self._conversation.messages

    @property
    def state(self) -> Any:
        """The shared state."""
        return self._conversation.state

    @property
    def outcome(self) -> RunFinishedOutcome | None:
        """How the last run finished; None when it failed or was cut off (RUN-9)."""
        return self._conversation.outcome

    @property
    def error(self) -> RunErrorEvent | None:
        """The last run's own report of its failure (RUN-8)."""
        return self._conversation.error

    @property
    def result(self) -> Any:
        """The value that the last run returned, or `UNSET`."""
        return self._conversation.result

    @property
    def usage(self) -> list[TokenUsage]:
        """The token usage that the last run reported (USE-1)."""
        return self._conversation.usage

    @property
    def interrupts(self) -> list[Interrupt]:
        """What has to be answered before the thread goes on (INT-2)."""
        return self._conversation.interrupts

    @property
    def pending_tool_calls(self) -> list[ToolCall]:
        """The calls of the last run that nobody has answered (FRONT-4)."""
        return self._conversation.pending_tool_calls

    def run(
        self,
        content: str
        | ContentPart
        | Sequence[ContentPart | dict[str, Any]]
        | Message
        | Sequence[Message | dict[str, Any]]
        | dict[str, Any]
        | None = None,
        *,
        tools: Iterable[Tool | dict[str, Any]] | None = None,
        context: Iterable[Context | dict[str, Any]] | None = None,
        forwarded_props: Any = UNSET,
        resume: Mapping[str, Any] | Iterable[ResumeEntry | dict[str, Any]] | None = None,
        run_id: str | None = None,
    ) -> "RunStream":
        """Start a run: iterate what is returned for its events.

        Args:
            content: what the user says (text, or content parts), or messages to append to the
                thread, whose ids have to be new to it; None runs the thread as it stands.
            tools: in place of the agent's own.
            context: in place of the agent's own.
            forwarded_props: passed to the agent untouched.
            resume: the answers to every open interrupt: a mapping from its id to the answer, or
                to `CANCEL` for one that is abandoned; or `ResumeEntry`s.
            run_id: names the run; made up when it isn't given.

        Raises `InvalidInput`, before anything is sent, for a malformed input (PROC-11) and for
        an interrupt that is not covered or has expired (INT-2, INT-3); `RuntimeError` while an
        earlier run of this agent has not ended and has not been closed. While being iterated:
        `InputRejected`, a `TransportError`, a `ProtocolViolation` or `TruncatedRun`. A run that
        reports its own failure raises nothing: its `RunErrorEvent` is delivered and kept in
        `error` (RUN-8).
        """
        self._refuse_second_run(None)
        held = [*self.messages, *self._said(content)]
        answers = enforce_list(_entries(resume), ResumeEntry, self._warn, "/resume")
        run_input = RunAgentInput(
            thread_id=self.thread_id,
            run_id=run_id or f"run-{uuid4().hex}",
            protocol_version=PROTOCOL_VERSION,
            # Activity is the application's own rendering and never travels back (ACT-4).
            messages=[message for message in held if not isinstance(message, ActivityMessage)],
            # Agents from before 1.0 require these members, empty or not.
            state=self._state_to_start_from(),
            tools=self._tools if tools is None else enforce_list(tools, Tool, self._warn, "/tools"),
            context=self._context
            if context is None
            else enforce_list(context, Context, self._warn, "/context"),
            forwarded_props={} if forwarded_props is UNSET else forwarded_props,
            resume=answers or UNSET,
        )
        checked = enforce_input(run_input, self._warn)
        self._check_resume([] if checked.resume is UNSET else checked.resume)
        return RunStream(self, checked, held)

    def _said(self, content: Any) -> list[Message]:
        if content is None:
            return []
        if isinstance(content, str):
            return [UserMessage(id=f"msg-{uuid4().hex}", content=content)]
        if isinstance(content, Message | ContentPart | dict):
            content = [content]
        # Parts as they were before 1.0 are upgraded, like the messages that hold them (VER-4).
        note = noting(self._warn, only_losses=True)
        items = upgrade_message({"content": list(content)}, "", note)["content"]
        if items and all(_is_part(item) for item in items):
            parts = enforce_list(items, ContentPart, self._warn, "/content")
            return [UserMessage(id=f"msg-{uuid4().hex}", content=parts)]
        items = [
            upgrade_message(item, f"/messages/{index}", note) for index, item in enumerate(items)
        ]
        said: list[Message] = enforce_list(items, Message, self._warn, "/messages")
        known = {message.id for message in self.messages}
        for message in said:
            if message.id in known:
                raise InvalidInput(
                    f"the thread already holds a message with the id '{message.id}'",
                    rule="EVT-6",
                    path="/messages",
                )
            known.add(message.id)
        return said

    def _state_to_start_from(self) -> Any:
        # A run input has no null for a state, and an absent one is the empty object (IN-1).
        return {} if self.state is None else self.state

    def _check_resume(self, answers: list[ResumeEntry]) -> None:
        by_id = {entry.interrupt_id: entry for entry in answers}
        if len(by_id) < len(answers):
            raise InvalidInput("an interrupt is answered twice", rule="INT-2", path="/resume")
        for interrupt in self.interrupts:
            entry = by_id.pop(interrupt.id, None)
            if entry is None:
                raise InvalidInput(
                    f"the interrupt '{interrupt.id}' is open and has no answer; resolve or "
                    "cancel it",
                    rule="INT-2",
                    path="/resume",
                )
            if entry.status == "resolved" and _expired(interrupt):
                raise InvalidInput(
                    f"the interrupt '{interrupt.id}' expired at {interrupt.expires_at}; it can "
                    "only be cancelled",
                    rule="INT-3",
                    path="/resume",
                )
        # A thread taken up from a store holds no interrupts to compare the answers with.
        if by_id and self.interrupts:
            raise InvalidInput(
                f"no interrupt '{next(iter(by_id))}' is open", rule="INT-2", path="/resume"
            )

    def _refuse_second_run(self, stream: "RunStream | None") -> None:
        """Raise unless the thread is free for a run, or for this one to take its first step."""
        current = self._current() if self._current is not None else None
        if current is not None and current.under_way:
            raise RuntimeError(
                f"the run '{current.input.run_id}' has not ended: an agent's thread has one run "
                "at a time; iterate that run to its end, or close it"
            )
        if stream is not None:
            if stream.conversation is not self._conversation:
                raise RuntimeError(
                    f"the thread has gone on since the run '{stream.input.run_id}' was made; "
                    "make it anew"
                )
            self._current = weakref.ref(stream)

    def _warn(self, warning: ProtocolWarning) -> None:
        _logger.warning("%s", warning)
        if self._on_warning is not None:
            self._on_warning(warning)

    def _fit(self, run_input: RunAgentInput) -> RunAgentInput:
        """The input as the agent understands it."""
        if self._peer is None:
            return run_input
        return downgrade_input(run_input, self._peer, self._warn)

    def _take_up(
        self, run_input: RunAgentInput, held: list[Message], content_type: str = SSE
    ) -> Consumer:
        """Go on with the thread: only an input that was accepted becomes part of it."""
        consumer = Consumer(
            run_input,
            messages=held,
            state={} if run_input.state is UNSET else run_input.state,
            interrupts=self.interrupts,
            content_type=content_type,
            middleware=self._event_middleware,
            peer_version=self._peer_version,
            on_warning=self._on_warning,
        )
        self._conversation = consumer.conversation
        return consumer

    async def _events(
        self, run_input: RunAgentInput, held: list[Message]
    ) -> AsyncGenerator[Event, None]:
        if self._middleware:
            async with aclosing(self._wrapped_events(run_input, held)) as events:
                async for event in events:
                    yield event
            return
        async with self._transport.open(self._fit(run_input)) as answer:
            consumer = self._take_up(run_input, held, answer.content_type)
            broken: TruncatedRun | TransportError | None = None
            try:
                async for chunk in answer.body:
                    for event in consumer.receive(chunk):
                        yield event
            except (TruncatedRun, TransportError) as error:
                # What it means depends on whether the run had ended by then (RUN-11).
                broken = error
            for event in _end(consumer, broken):
                yield event

    def _judged(self, changed: RunAgentInput) -> RunAgentInput:
        """An input that middleware has changed, as it may be sent (PROC-11, ACT-4, INT-2)."""
        changed = enforce_input(changed, self._warn)
        self._check_resume(changed.resume or [])
        messages = [
            message for message in changed.messages if not isinstance(message, ActivityMessage)
        ]
        return msgspec.structs.replace(changed, messages=messages)

    async def _wrapped_events(
        self, run_input: RunAgentInput, held: list[Message]
    ) -> AsyncGenerator[Event, None]:
        """The same with middleware around it, which may open the transport again, or never."""
        consumer: Consumer | None = None
        under_way = False

        async def innermost(changed: RunAgentInput) -> AsyncGenerator[Item, None]:
            nonlocal consumer
            if changed is not run_input:
                changed = self._judged(changed)
            async with self._transport.open(self._fit(changed)) as answer:
                if not under_way:
                    consumer = self._take_up(changed, held)
                intake = Intake(answer.content_type, self._warn)
                async for chunk in answer.body:
                    for item in intake.receive(chunk):
                        yield item
                for item in intake.end():
                    yield item

        broken: TruncatedRun | TransportError | None = None
        try:
            async with aclosing(wrapped(self._middleware, run_input, innermost)) as items:
                async for item in items:
                    under_way = True
                    if consumer is None:
                        consumer = self._take_up(run_input, held)
                    for event in consumer.receive_event(item):
                        yield event
        except (TruncatedRun, TransportError) as error:
            if consumer is None:
                raise
            broken = error
        for event in _end(consumer or self._take_up(run_input, held), broken):
            yield event


def _entries(
    resume: Mapping[str, Any] | Iterable[ResumeEntry | dict[str, Any]] | None,
) -> Iterable[ResumeEntry | dict[str, Any]]:
    """The entries that an application's answers stand for."""
    if resume is None:
        return []
    if isinstance(resume, str | ResumeEntry) or not isinstance(resume, Iterable):
        raise TypeError("resume is a mapping of interrupt ids to answers, or a list of ResumeEntry")
    if not isinstance(resume, Mapping):
        return resume
    entries: list[dict[str, Any]] = []
    for id_, answer in resume.items():
        entry: dict[str, Any] = {"interruptId": id_, "status": "resolved"}
        if answer is CANCEL:
            entry["status"] = "cancelled"
        elif answer is not None:
            entry["payload"] = plain_value(answer)
        entries.append(entry)
    return entries


def _end(consumer: Consumer, broken: TruncatedRun | TransportError | None) -> Iterator[Event]:
    """The last events of a body; raises what broke it off, if the run had not ended."""
    try:
        yield from consumer.end()
    except TruncatedRun:
        if broken is not None:
            raise broken from broken.__cause__
        raise


class RunStream(AsyncIterator[Event]):
    """One run: an async iterator of its events, sent off when its first event is asked for.

    Attributes:
        input: the run input, before middleware and what an old agent needs change it.
        conversation: the thread that the run was made for.
    """

    def __init__(self, agent: Agent, input: RunAgentInput, held: list[Message]) -> None:
        self.input = input
        self.conversation = agent.conversation
        self._agent = agent
        self._started = False
        self._over = False
        self._events = agent._events(input, held)

    @property
    def under_way(self) -> bool:
        """Whether the run has been sent off and has neither ended nor been closed."""
        return self._started and not self._over

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if not self._started:
            self._agent._refuse_second_run(self)
            self._started = True
        try:
            return await anext(self._events)
        except BaseException:
            # Whatever comes through, the end included, is the last that comes.
            self._over = True
            raise

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
        await self._events.aclose()
        self._over = True


class HttpAgent(Agent):
    """An agent at a URL. See `Agent` for what they have in common.

    Args:
        url: where the agent answers.
        headers: sent with every request.
        timeouts: how long to wait for what; they hold for a client of the caller's, too.
        client: an `httpx.AsyncClient` of the caller's, with its proxies, certificates and
            authentication; it stays open when the agent is closed.
        accept: the bindings that are offered to the agent; see `HttpTransport`.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        client: httpx.AsyncClient | None = None,
        accept: str | Iterable[str] = SSE,
        thread_id: str | None = None,
        messages: Iterable[Message | dict[str, Any]] = (),
        state: Any = UNSET,
        interrupts: Iterable[Interrupt | dict[str, Any]] = (),
        tools: Iterable[Tool | dict[str, Any]] = (),
        context: Iterable[Context | dict[str, Any]] = (),
        middleware: Sequence[RunMiddleware] = (),
        event_middleware: Sequence[Middleware | type[Middleware]] = (),
        peer_version: str | None = None,
        on_warning: Callable[[ProtocolWarning], None] | None = None,
    ) -> None:
        super().__init__(
            HttpTransport(url, headers=headers, timeouts=timeouts, client=client, accept=accept),
            thread_id=thread_id,
            messages=messages,
            state=state,
            interrupts=interrupts,
            tools=tools,
            context=context,
            middleware=middleware,
            event_middleware=event_middleware,
            peer_version=peer_version,
            on_warning=on_warning,
        )
        self.url = url


def _is_part(item: Any) -> bool:
    """Whether this is a content part, and no message, in its typed or its plain form."""
    return isinstance(item, ContentPart) or (
        isinstance(item, dict) and "type" in item and "role" not in item
    )


def _expired(interrupt: Interrupt) -> bool:
    """Whether `expires_at`, read as a date, is now or earlier; what is no date never expires."""
    if interrupt.expires_at is UNSET:
        return False
    try:
        moment = datetime.fromisoformat(interrupt.expires_at)
    except ValueError:
        return False
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment <= datetime.now(UTC)
