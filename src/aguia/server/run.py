"""The run that an agent is given: what it was asked, and how it answers.

Nothing here knows a socket: what is said goes into a bounded stream, and whoever reads that is
none of the run's business (design decision 9).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import msgspec

from aguia.interop.results import plain_content
from aguia.interop.schemas import convert, schema_of
from aguia.interop.values import plain_event, plain_value
from aguia.pipeline.verification import OpenItem
from aguia.producer import Producer
from aguia.protocol.common import UNSET, Metadata
from aguia.protocol.content import ContentPart, FileSource, TextPart
from aguia.protocol.errors import InvalidInput, SequenceViolation, printable
from aguia.protocol.events import Event, StateDeltaEvent, StateSnapshotEvent, StepStartedEvent
from aguia.protocol.input import Context, ResumeEntry, RunAgentInput, Tool
from aguia.protocol.messages import AssistantMessage, Message, ToolCall, ToolMessage
from aguia.protocol.outcomes import Interrupt, TokenUsage
from aguia.protocol.patch import JsonPatch
from aguia.server.speaker import (
    Speaker,
    arguments_text,
    checked_metadata,
    checked_patch,
    meant_error,
    new_id,
    optional,
    text_of,
)
from aguia.server.stream import EventStream

__all__ = ["CANCELLED", "Cancelled", "InvalidAnswer", "Resume", "Run"]

T = TypeVar("T")

_logger: Final = logging.getLogger("aguia.server")


class Cancelled:
    """The answer to an interrupt that the application abandoned."""

    def __repr__(self) -> str:
        return "CANCELLED"


CANCELLED: Final = Cancelled()


class InvalidAnswer(InvalidInput):
    """An answer to an interrupt that is not what was asked for.

    Unless the agent catches it, it ends the run with `RUN_ERROR` and these words, since it is
    the client's to mend.
    """


class Resume(Sequence[ResumeEntry]):
    """The answers that this run was given to the interrupts of the one before it (INT-2).

    A sequence of the input's entries, in order. `answer` reads one; the entries that nobody
    has asked for or looked at when the run ends named interrupts that the agent doesn't know
    (INT-4).
    """

    def __init__(self, entries: Sequence[ResumeEntry]) -> None:
        self._entries = list(entries)
        self._by_id = {entry.interrupt_id: entry for entry in entries}
        self._asked: set[str] = set()

    @overload
    def answer(self, interrupt_id: str) -> Any: ...
    @overload
    def answer(self, interrupt_id: str, type: type[T]) -> T | Cancelled | None: ...
    def answer(self, interrupt_id: str, type: Any = Any) -> Any:
        """The answer to one interrupt, as a value of `type` where one is given.

        `CANCELLED` when it was abandoned, None when the input has no entry for it: then the
        interrupt is as open as before, and what it asked for must not be done (INT-5).

        Raises `InvalidAnswer` for a payload that is no such value.
        """
        self._asked.add(interrupt_id)
        entry = self._by_id.get(interrupt_id)
        if entry is None:
            return None
        if entry.status == "cancelled":
            return CANCELLED
        try:
            return convert(None if entry.payload is UNSET else entry.payload, type)
        except (ValueError, TypeError) as error:
            raise InvalidAnswer(
                f"the answer to '{interrupt_id}' doesn't fit: {error}",
                path=f"/resume/{self._entries.index(entry)}/payload",
            ) from None

    @property
    def unknown(self) -> list[ResumeEntry]:
        """The entries that nobody has asked for or looked at so far."""
        return [entry for entry in self._entries if entry.interrupt_id not in self._asked]

    @overload
    def __getitem__(self, index: int) -> ResumeEntry: ...
    @overload
    def __getitem__(self, index: slice) -> list[ResumeEntry]: ...
    def __getitem__(self, index: int | slice) -> ResumeEntry | list[ResumeEntry]:
        found = self._entries[index]
        for entry in found if isinstance(found, list) else [found]:
            self._asked.add(entry.interrupt_id)
        return found

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ResumeEntry]:
        return (self[index] for index in range(len(self)))


class Run(Speaker):
    """One run: the input that asked for it, and the events that answer it.

    Attributes:
        input: the run input as the client sent it.
        messages, tools, context: the input's lists, empty where it has none.
        resume: the answers to the interrupts of the run before, see `Resume`.
        principal: what the application's authentication made of the request, else None.
        result: what the run returns; also the value that the agent function returns.
        cancelled: whether the run is being cancelled, for agents that work in a thread.
        interrupts: what the run has asked so far, see `interrupt`.
    """

    def __init__(
        self,
        producer: Producer,
        stream: EventStream,
        *,
        principal: Any = None,
        max_steps: int | None = None,
        on_cancel: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(self)
        self._producer = producer
        self._stream = stream
        self._on_cancel = on_cancel
        self._steps_left = max_steps
        self._usage: dict[tuple[Any, Any], TokenUsage] = {}
        self._left: set[str] = set()
        self.interrupts: list[Interrupt] = producer.interrupts
        self.input: RunAgentInput = producer.input
        self.messages: list[Message] = self.input.messages
        self.tools: list[Tool] = self.input.tools or []
        self.context: list[Context] = self.input.context or []
        self.resume: Resume = Resume(self.input.resume or [])
        self.principal = principal
        self.result: Any = UNSET
        self.cancelled: bool = False
        self._logged: deque[BaseException] = deque(maxlen=64)

    @property
    def thread_id(self) -> str:
        """The conversation that the run belongs to."""
        return self.input.thread_id

    @property
    def run_id(self) -> str:
        """The id that the client gave this run."""
        return self.input.run_id

    @property
    def label(self) -> str:
        """The run and its thread in words for a log: the client chose the ids."""
        return printable(f"run {self.run_id[:80]} of thread {self.thread_id[:80]}")

    @property
    def ids(self) -> dict[str, str]:
        """`thread_id` and `run_id` for a log record's `extra`, as `label` has them.

        The records of `aguia.server` about a run carry them, and the one that tells of its end
        `outcome`, `events` and `seconds` besides, and `code` where it failed with one.
        """
        return {
            "thread_id": printable(self.thread_id[:80]),
            "run_id": printable(self.run_id[:80]),
        }

    def log_exception(self, what: str, error: BaseException) -> None:
        """Log an exception, with its traceback the first time that it comes by.

        A `RunError` has its words for the client, so only what led to it is for the log.
        """
        meant = meant_error(error)
        if meant is not None and meant.__cause__ is None:
            return
        # What a task group has made a group of has come by one by one.
        new = [each for each in _leaves(error) if not any(each is old for old in self._logged)]
        _logger.log(
            logging.ERROR if meant is None else logging.WARNING,
            "%s: %s",
            self.label,
            printable(what),
            exc_info=error if new else None,
            extra=self.ids,
        )
        self._logged += new

    @property
    def forwarded_props(self) -> Any:
        """What the application passes through, or None."""
        props = self.input.forwarded_props
        return None if props is UNSET else props

    # State

    if TYPE_CHECKING:
        # Of a property, type checkers take what was last assigned for the type.
        state: Any
        """The shared state, a live value: change it anywhere inside, or assign a new one."""
    else:

        @property
        def state(self) -> Any:
            """The shared state, a live value.

            Change it anywhere inside, or assign a new one: what changed is sent before the next
            event, by `flush`, and at the end of the run, as one delta or, where that is shorter,
            a snapshot.
            """
            return self._producer.state

        @state.setter
        def state(self, value: Any) -> None:
            self._producer.state = value

    async def flush(self) -> None:
        """Send what has been changed in `state` now."""
        await self._push(self._producer.flush())

    async def set_state(self, value: Any) -> None:
        """Send a whole new state (STATE-1): JSON, a dataclass, a struct or a pydantic model."""
        await self.send(StateSnapshotEvent(snapshot=plain_value(value)))

    async def patch_state(self, operations: JsonPatch | Sequence[object]) -> None:
        """Send a JSON Patch of the state as it is given (STATE-2).

        Raises `PatchError`, and sends nothing, when it does not apply.
        """
        await self.send(StateDeltaEvent(delta=checked_patch(operations)))

    # The application's tools

    def offers(self, tool_name: str) -> bool:
        """Whether the application offers a tool of this name, so that it may be called."""
        return any(tool.name == tool_name for tool in self.tools)

    async def call(
        self,
        tool_name: str,
        arguments: str | dict[str, Any] | None = None,
        *,
        tool_call_id: str | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
        force: bool = False,
    ) -> str:
        """Ask the application to carry out one of its own tools; returns the call's id.

        The answer can only come with a later run's input, where `tool_result` finds it, so
        return from the agent once nothing is left that doesn't need it (FRONT-2). Several
        calls may be left; the run's outcome names them (FRONT-3).

        Raises `SequenceViolation` for a tool that the input does not offer (FRONT-6), unless
        forced.
        """
        if not force and not self.offers(tool_name):
            raise SequenceViolation(
                f"the application offers no tool '{tool_name}'",
                rule="FRONT-6",
                event_type="TOOL_CALL_START",
            )
        async with self.tool_call(
            tool_name,
            arguments_text({} if arguments is None else arguments),
            tool_call_id=tool_call_id,
            parent_message_id=parent_message_id,
            metadata=metadata,
        ) as call:
            self._left.add(call.tool_call_id)
        return call.tool_call_id

    @property
    def forgotten_calls(self) -> dict[str, str]:
        """The calls of this run that lack a result and were not left to the application by `call`.

        The names of their tools, none of which the application offers, by the calls' ids.
        """
        calls = self._producer.forgotten_calls
        return {id_: name for id_, name in calls.items() if id_ not in self._left}

    def tool_result(self, tool_call_id: str) -> ToolMessage | None:
        """The answer that the input's messages hold to a call, or None."""
        for message in reversed(self.messages):
            if isinstance(message, ToolMessage) and message.tool_call_id == tool_call_id:
                return message
        return None

    @property
    def unanswered_calls(self) -> list[ToolCall]:
        """The calls in the input's messages that have no answer there, in order.

        One that waits for approval and has no entry in `resume` either must not be carried
        out: ask again by `interrupt` (INT-5).
        """
        answered = {
            message.tool_call_id for message in self.messages if isinstance(message, ToolMessage)
        }
        return [
            call
            for message in self.messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls or ()
            if call.id not in answered
        ]

    async def answer(
        self,
        tool_call_id: str,
        content: Any,
        *,
        message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        """Answer a call of one of the agent's own tools, also one of an earlier run (TOOL-6).

        `ToolCallStream.result` is the same for a call made here, and takes the same content.
        Raises `SequenceViolation` for a call of one of the application's tools (FRONT-1).
        """
        event: dict[str, Any] = {
            "type": "TOOL_CALL_RESULT",
            "messageId": message_id or new_id("msg"),
            "toolCallId": text_of(tool_call_id),
            "content": plain_content(content),
        }
        if metadata is not None:
            event["metadata"] = metadata
        await self.emit(event)

    # Content

    def usable(
        self,
        content: str | Sequence[ContentPart],
        *,
        kinds: Collection[str] = ("text",),
        providers: Collection[str] = (),
    ) -> list[ContentPart]:
        """The parts of a message's content, or of a tool's result, that a model can take.

        Args:
            content: text, or content parts.
            kinds: the types of part that the model takes.
            providers: those whose file handles it can resolve; a handle that names no provider
                is taken when any is given.

        What is left out is logged as a warning and never fails the run (IN-2, TOOL-9). A result
        of which nothing is left is still answered, with an empty string.
        """
        if isinstance(content, str):
            return [TextPart(text=content)]
        parts = []
        for part in content:
            why = _unusable(part, kinds, providers)
            if why is None:
                parts.append(part)
            else:
                _logger.warning(
                    "%s: left out %s [IN-2]", self.label, printable(why), extra=self.ids
                )
        return parts

    # Interrupts

    def interrupt(
        self,
        reason: str,
        *,
        message: str | None = None,
        tool_call_id: str | None = None,
        response_type: Any = None,
        response_schema: dict[str, Any] | None = None,
        expires_at: Any = None,
        interrupt_id: str | None = None,
        subagent_run_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> Interrupt:
        """Ask something of the outside: the run ends with it when the agent returns (INT-1).

        Args:
            reason: what kind of question it is, an open string.
            message: the question, for a person.
            tool_call_id: the call that an approval is about.
            response_type: the Python type that the answer has to have; its JSON Schema
                becomes the interrupt's `responseSchema` (INT-7).
            response_schema: that schema itself, in place of a type.
            expires_at: a datetime or a string after which nobody can answer (INT-3).
            interrupt_id: names it; by default the call's id, else it is made up.
            subagent_run_id: the invocation that it was raised in.
            metadata: goes with the interrupt.

        Raises `SequenceViolation` for an id that this run has asked with already.
        """
        id_ = text_of(interrupt_id or tool_call_id or new_id("interrupt"))
        if any(known.id == id_ for known in self.interrupts):
            raise SequenceViolation(
                f"this run asks with the id '{id_}' already",
                rule="INT-1",
                event_type="RUN_FINISHED",
            )
        if response_type is not None:
            response_schema = schema_of(response_type)
        if response_schema is not None and not isinstance(response_schema, dict):
            raise TypeError(f"a schema is a dictionary, not {type(response_schema).__name__}")
        interrupt = Interrupt(
            id=id_,
            reason=text_of(reason),
            message=optional(message),
            tool_call_id=optional(tool_call_id),
            response_schema=UNSET if response_schema is None else plain_value(response_schema),
            expires_at=UNSET if expires_at is None else str(plain_value(expires_at)),
            subagent_run_id=optional(subagent_run_id),
            metadata=checked_metadata(metadata),
        )
        self.interrupts.append(interrupt)
        return interrupt

    # The end of the run

    def add_usage(
        self,
        *,
        provider: str | None = None,
        model: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        cached_input_tokens: int | None = None,
        cache_write_input_tokens: int | None = None,
    ) -> None:
        """Count the tokens of one model call, summed by provider and model (USE-1).

        Prompt and generated tokens are totals, of which the other three are parts. What the
        provider didn't report stays absent. Raises `ValueError` for what is no number of tokens.
        """
        counts = {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "reasoning_tokens": reasoning_tokens,
            "cached_input_tokens": cached_input_tokens,
            "cache_write_input_tokens": cache_write_input_tokens,
        }
        known = self._usage.get((provider, model)) or TokenUsage(
            provider=optional(provider), model=optional(model)
        )
        sums: dict[str, Any] = {}
        for name, count in counts.items():
            if count is not None:
                if type(count) is not int or count < 0:
                    raise ValueError(f"{name} is a number of tokens, not {count!r}")
                before = getattr(known, name)
                sums[name] = count if before is UNSET else before + count
        known = msgspec.structs.replace(known, **sums)
        if known.input_tokens is not UNSET and known.output_tokens is not UNSET:
            known = msgspec.structs.replace(
                known, total_tokens=known.input_tokens + known.output_tokens
            )
        self._usage[provider, model] = known

    @property
    def usage(self) -> list[TokenUsage]:
        """What `add_usage` has counted, one entry a provider and model."""
        return list(self._usage.values())

    def cancel(self) -> None:
        """Stop the run on purpose: it closes in order and ends as cancelled (RUN-10).

        May be called from anywhere, other threads included.
        """
        self.cancelled = True
        if self._on_cancel is not None:
            self._on_cancel()

    # Events

    async def emit(self, event: Any) -> None:
        """Any event, chunks included: typed, plain, or a model of the official package.

        Judged like everything else; raises `MalformedEvent` or `SequenceViolation`.
        """
        if not isinstance(event, msgspec.Struct | dict):
            event = plain_event(event)
        kind = event.get("type") if isinstance(event, dict) else getattr(event, "type", None)
        if kind == StepStartedEvent.type:
            self._refuse_step_too_many()
        await self._push(self._producer.emit_foreign(event))

    async def send(self, event: Event) -> None:
        """An event that this package has built, so that its structure is right."""
        if isinstance(event, StepStartedEvent):
            self._refuse_step_too_many()
        await self._push(self._producer.emit(event))

    def is_open(self, item: OpenItem) -> bool:
        """Whether the item has been opened and not closed."""
        return self._producer.is_open(item)

    def close(self, item: OpenItem, event: Event) -> None:
        """Send the end of an item, unless the run's own end has closed it already.

        Never waits, because it also runs while the agent is being cancelled.
        """
        if self._producer.is_open(item):
            self._stream.push(self._producer.emit(event))

    def close_owned_by(self, subagent_run_id: str) -> None:
        """Close what an invocation has left open, the last opened first."""
        self._stream.push(self._producer.close_owned_by(subagent_run_id))

    def _refuse_step_too_many(self) -> None:
        """Cancel the run where a step begins that it may not have, before that is sent.

        Raised here, since an agent that never waits would send all its steps before the
        cancellation reached it.
        """
        if self._steps_left == 0 and not self._producer.ended:
            self.cancel()
            raise asyncio.CancelledError("the run has opened as many steps as it may (max_steps)")

    async def _push(self, events: list[Event]) -> None:
        self._stream.push(events)
        if self._steps_left is not None:
            self._steps_left -= sum(isinstance(event, StepStartedEvent) for event in events)
        if self._stream.holds_up:
            await self._stream.drained()


def _unusable(part: ContentPart, kinds: Collection[str], providers: Collection[str]) -> str | None:
    """Why a part can't be used, or None when it can."""
    if part.type not in kinds:
        return f"a part of the type {part.type}, which the model does not take"
    if isinstance(part, TextPart) or not isinstance(part.source, FileSource):
        return None
    provider = part.source.provider
    if provider is UNSET:
        return None if providers else "a file handle of an unnamed provider"
    return None if provider in providers else f"a file handle of the provider {provider}"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """An exception, or those that a group of them holds."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
