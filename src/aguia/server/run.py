"""The run that an agent is given: what it was asked, and everything that it can say.

Whatever an agent opens here is closed in order, also when it raises, and whatever the rules
forbid raises at the line that asks for it (design decision 5). Nothing here knows a socket.
"""

from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

from aguia.codec.json import copy_value
from aguia.pipeline.verification import Family
from aguia.producer import Producer
from aguia.protocol.common import UNSET, Metadata, UnsetType
from aguia.protocol.content import ContentPart
from aguia.protocol.errors import AguiaError
from aguia.protocol.events import (
    CustomEvent,
    Event,
    RawEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguia.protocol.input import Context, ResumeEntry, RunAgentInput, Tool
from aguia.protocol.messages import Message, TextMessageRole
from aguia.protocol.patch import JsonPatch
from aguia.server.stream import EventStream

__all__ = ["ReasoningStream", "Run", "RunError", "Step", "TextStream", "ToolCallStream"]


class RunError(AguiaError):
    """Raised by an agent to end its run with `RUN_ERROR` and words that the client may see."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Run:
    """One run: the input that asked for it, and the events that answer it.

    Attributes:
        input: the run input as the client sent it.
        messages, tools, context, resume: the input's lists, empty where it has none.
        principal: what the application's authentication made of the request, else None.
    """

    def __init__(self, producer: Producer, stream: EventStream, principal: Any = None) -> None:
        self._producer = producer
        self._stream = stream
        self.input: RunAgentInput = producer.input
        self.messages: list[Message] = self.input.messages
        self.tools: list[Tool] = _list(self.input.tools)
        self.context: list[Context] = _list(self.input.context)
        self.resume: list[ResumeEntry] = _list(self.input.resume)
        self.principal = principal

    @property
    def thread_id(self) -> str:
        """The conversation that the run belongs to."""
        return self.input.thread_id

    @property
    def run_id(self) -> str:
        """The id that the client gave this run."""
        return self.input.run_id

    @property
    def state(self) -> Any:
        """The shared state as the client holds it after everything sent so far."""
        return self._producer.state

    def text(
        self,
        *,
        role: TextMessageRole = "assistant",
        name: str | None = None,
        message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> "TextStream":
        """A text message: `async with run.text() as text: await text.write("…")` (TEXT-1)."""
        return TextStream(self, role, name, message_id or _new_id("msg"), metadata)

    def tool_call(
        self,
        name: str,
        arguments: str | None = None,
        *,
        tool_call_id: str | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> "ToolCallStream":
        """A call of one of the agent's own tools (TOOL-1).

        Write the text of the arguments inside the `async with`, or give it whole; after it,
        `result` answers the call.
        """
        return ToolCallStream(
            self, name, arguments, tool_call_id or _new_id("call"), parent_message_id, metadata
        )

    def reasoning(self, *, message_id: str | None = None) -> "ReasoningStream":
        """A span of reasoning with one message in it (REAS-1)."""
        return ReasoningStream(self, message_id or _new_id("reasoning"))

    def step(self, name: str) -> "Step":
        """A named phase of the run: `async with run.step("search"): …` (RUN-14)."""
        return Step(self, name)

    async def set_state(self, value: Any) -> None:
        """Replace the shared state (STATE-1). `value` is any JSON value; it is copied."""
        await self._send(StateSnapshotEvent(snapshot=copy_value(value)))

    async def patch_state(self, operations: JsonPatch) -> None:
        """Amend the shared state by a JSON Patch (STATE-2).

        Raises `PatchError`, and sends nothing, when the patch does not apply.
        """
        await self._send(StateDeltaEvent(delta=copy_value(operations)))

    async def custom(self, name: str, value: Any) -> None:
        """An event of the application's own; prefix the name with a vendor's or product's."""
        await self._send(CustomEvent(name=name, value=copy_value(value)))

    async def raw(self, event: Any, source: str | None = None) -> None:
        """A provider's own event, passed through for who wants to see it."""
        await self._send(RawEvent(event=copy_value(event), source=_optional(source)))

    async def emit(self, event: Event | dict[str, Any]) -> None:
        """Any event, typed or plain, judged like everything else. Chunks are expanded."""
        self._stream.push(self._producer.emit_foreign(event))
        await self._stream.drained()

    async def _send(self, event: Event) -> None:
        self._stream.push(self._producer.emit(event))
        await self._stream.drained()

    def _close(self, family: Family, id_: str, event: Event) -> None:
        """Send the end of an item, unless the run's own end has closed it already.

        Never waits, because it also runs while the agent is being cancelled.
        """
        if self._producer.is_open(family, id_):
            self._stream.push(self._producer.emit(event))


class TextStream:
    """A text message that is being written. `message_id` names it."""

    def __init__(
        self,
        run: Run,
        role: TextMessageRole,
        name: str | None,
        message_id: str,
        metadata: Metadata | None,
    ) -> None:
        self._run = run
        self._role = role
        self._name = name
        self._metadata = metadata
        self.message_id = message_id

    async def __aenter__(self) -> Self:
        await self._run._send(
            TextMessageStartEvent(
                message_id=self.message_id,
                role=self._role,
                name=_optional(self._name),
                metadata=_metadata(self._metadata),
            )
        )
        return self

    async def write(self, delta: str) -> None:
        """Append to the message."""
        await self._run._send(
            TextMessageContentEvent(message_id=self.message_id, delta=_text(delta))
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run._close(
            Family.MESSAGE, self.message_id, TextMessageEndEvent(message_id=self.message_id)
        )


class ToolCallStream:
    """A tool call whose arguments are being written. `tool_call_id` names it."""

    def __init__(
        self,
        run: Run,
        name: str,
        arguments: str | None,
        tool_call_id: str,
        parent_message_id: str | None,
        metadata: Metadata | None,
    ) -> None:
        self._run = run
        self._name = name
        self._arguments = arguments
        self._parent_message_id = parent_message_id
        self._metadata = metadata
        self.tool_call_id = tool_call_id

    async def __aenter__(self) -> Self:
        await self._run._send(
            ToolCallStartEvent(
                tool_call_id=self.tool_call_id,
                tool_call_name=self._name,
                parent_message_id=_optional(self._parent_message_id),
                metadata=_metadata(self._metadata),
            )
        )
        if self._arguments is not None:
            await self.write(self._arguments)
        return self

    async def write(self, delta: str) -> None:
        """Append to the text of the arguments, which by convention is JSON (TOOL-2)."""
        await self._run._send(ToolCallArgsEvent(tool_call_id=self.tool_call_id, delta=_text(delta)))

    async def result(
        self, content: str | list[ContentPart], *, message_id: str | None = None
    ) -> None:
        """Answer the call with text or with content parts (TOOL-6, TOOL-7)."""
        await self._run.emit(
            ToolCallResultEvent(
                message_id=message_id or _new_id("msg"),
                tool_call_id=self.tool_call_id,
                content=content,
            )
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run._close(
            Family.TOOL_CALL, self.tool_call_id, ToolCallEndEvent(tool_call_id=self.tool_call_id)
        )


class ReasoningStream:
    """A span of reasoning and the message in it. `message_id` names both."""

    def __init__(self, run: Run, message_id: str) -> None:
        self._run = run
        self.message_id = message_id

    async def __aenter__(self) -> Self:
        await self._run._send(ReasoningStartEvent(message_id=self.message_id))
        await self._run._send(
            ReasoningMessageStartEvent(message_id=self.message_id, role="reasoning")
        )
        return self

    async def write(self, delta: str) -> None:
        """Append to the reasoning."""
        await self._run._send(
            ReasoningMessageContentEvent(message_id=self.message_id, delta=_text(delta))
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run._close(
            Family.REASONING,
            self.message_id,
            ReasoningMessageEndEvent(message_id=self.message_id),
        )
        self._run._close(
            Family.SPAN, self.message_id, ReasoningEndEvent(message_id=self.message_id)
        )


class Step:
    """A phase of the run that is under way."""

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self.name = name

    async def __aenter__(self) -> Self:
        await self._run._send(StepStartedEvent(step_name=self.name))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run._close(Family.STEP, self.name, StepFinishedEvent(step_name=self.name))


T = TypeVar("T")


def _list(items: list[T] | UnsetType) -> list[T]:
    return [] if items is UNSET else items


def _optional(text: str | None) -> str | UnsetType:
    return UNSET if text is None else text


def _metadata(metadata: Metadata | None) -> Metadata | UnsetType:
    return UNSET if metadata is None else copy_value(metadata)


def _text(delta: str) -> str:
    if not isinstance(delta, str):
        raise TypeError(f"a delta is a string, not {type(delta).__name__}")
    return delta


def _new_id(prefix: str) -> str:
    return f"{prefix}-{uuid4().hex}"
