"""What the parent agent and each of its subagents can say in a run.

Everything that is opened here is closed in order, also when the agent raises or is cancelled,
and whatever the rules forbid raises at the line that asks for it (design decision 5).
"""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from uuid import uuid4

from aguia.codec.json import copy_value, encode
from aguia.conversation.patch import PatchError
from aguia.interop.results import plain_content
from aguia.interop.values import plain_value
from aguia.pipeline.verification import Family, OpenItem
from aguia.protocol.common import UNSET, Metadata, UnsetType
from aguia.protocol.errors import AguiaError, SequenceViolation
from aguia.protocol.events import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    CustomEvent,
    Event,
    RawEvent,
    ReasoningEncryptedValueEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguia.protocol.messages import TextMessageRole
from aguia.protocol.outcomes import SubagentFinishedSuspendedOutcome
from aguia.protocol.patch import JsonPatch, check_patch

if TYPE_CHECKING:
    from aguia.server.run import Run

__all__ = [
    "Activity",
    "ReasoningMessageStream",
    "ReasoningSpan",
    "ReasoningStream",
    "RunError",
    "Speaker",
    "Step",
    "Subagent",
    "TextStream",
    "ToolCallStream",
]

_FAILED = "The subagent failed."
_CUT_OFF = "The subagent was cancelled."


class RunError(AguiaError):
    """Raised by an agent to end its run with `RUN_ERROR` and words that the client may see.

    Raised inside a subagent's block it ends that invocation with `SUBAGENT_ERROR`, and the run
    too unless the agent catches it outside the block. Raised `from` another exception, that one
    is in the log when the run ends by it.
    """

    # Also there for subclasses that forget to call `super().__init__`.
    message: str = "The agent failed."
    code: str | None = None

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        # Programs pass exceptions and numbers here, and this must not fail on the way out.
        self.message = str(message)
        self.code = None if code is None else str(code)


class Speaker:
    """The parent agent, or one invocation of a subagent.

    Every method that makes something takes `metadata`, any JSON by key, which goes with the
    event that makes it; ids are made up where none is given.
    """

    def __init__(self, run: "Run", owner: str | UnsetType = UNSET) -> None:
        self._run = run
        self._speaks_as = owner

    @property
    def _owner(self) -> str | UnsetType:
        """Whose it is that something is said (SUB-1)."""
        return self._speaks_as

    def text(
        self,
        *,
        role: TextMessageRole = "assistant",
        name: str | None = None,
        message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> "TextStream":
        """A text message: `async with run.text() as text: await text.write("…")` (TEXT-1)."""
        id_ = message_id or new_id("msg")
        return TextStream(
            self._run,
            self._owner,
            id_,
            TextMessageStartEvent(
                message_id=id_,
                role=role,
                name=optional(name),
                subagent_run_id=self._owner,
                metadata=checked_metadata(metadata),
            ),
        )

    async def say(
        self,
        text: str,
        *,
        role: TextMessageRole = "assistant",
        message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> str:
        """A whole text message at once. Returns its id."""
        async with self.text(role=role, message_id=message_id, metadata=metadata) as stream:
            await stream.write(text)
        return stream.message_id

    def tool_call(
        self,
        name: str,
        arguments: str | dict[str, Any] | None = None,
        *,
        tool_call_id: str | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> "ToolCallStream":
        """A call of one of the agent's own tools (TOOL-1).

        Write the text of the arguments inside the `async with`, or give them whole, as text or
        as an object; after it, `result` answers the call.
        """
        id_ = tool_call_id or new_id("call")
        return ToolCallStream(
            self._run,
            self._owner,
            id_,
            ToolCallStartEvent(
                tool_call_id=id_,
                tool_call_name=name,
                parent_message_id=optional(parent_message_id),
                subagent_run_id=self._owner,
                metadata=checked_metadata(metadata),
            ),
            None if arguments is None else arguments_text(arguments),
        )

    def reasoning(
        self, *, message_id: str | None = None, metadata: Metadata | None = None
    ) -> "ReasoningStream":
        """A span of reasoning with one message in it, of the same id (REAS-1)."""
        id_ = message_id or new_id("reasoning")
        return ReasoningStream(self._run, self._owner, id_, checked_metadata(metadata))

    def reasoning_span(
        self, *, span_id: str | None = None, metadata: Metadata | None = None
    ) -> "ReasoningSpan":
        """A span of reasoning, for `reasoning_message`s of their own (REAS-1)."""
        id_ = span_id or new_id("span")
        return ReasoningSpan(self._run, self._owner, id_, checked_metadata(metadata))

    def reasoning_message(
        self, *, message_id: str | None = None, metadata: Metadata | None = None
    ) -> "ReasoningMessageStream":
        """A reasoning message, inside a span or without one."""
        id_ = message_id or new_id("reasoning")
        return ReasoningMessageStream(self._run, self._owner, id_, checked_metadata(metadata))

    async def encrypted_value(
        self,
        entity_id: str,
        value: str,
        *,
        subtype: Literal["message", "tool-call"] = "message",
        metadata: Metadata | None = None,
    ) -> None:
        """A provider's opaque value, which comes back with the message or call (REAS-4)."""
        await self._run.send(
            ReasoningEncryptedValueEvent(
                subtype=subtype,
                entity_id=entity_id,
                encrypted_value=value,
                subagent_run_id=self._owner,
                metadata=checked_metadata(metadata),
            )
        )

    def step(self, name: str, *, metadata: Metadata | None = None) -> "Step":
        """A named phase of the run: `async with run.step("search"): …` (RUN-14)."""
        return Step(self._run, self._owner, name, checked_metadata(metadata))

    async def activity(
        self,
        activity_type: str,
        content: dict[str, Any],
        *,
        message_id: str | None = None,
        replace: bool | None = None,
        metadata: Metadata | None = None,
    ) -> "Activity":
        """Structured progress for a user interface (ACT-1); `replace=False` keeps what is there."""
        id_ = message_id or new_id("activity")
        activity = Activity(self._run, self._owner, id_, activity_type)
        await activity.set(content, replace=replace, metadata=metadata)
        return activity

    async def custom(self, name: str, value: Any, *, metadata: Metadata | None = None) -> None:
        """An event of the application's own; prefix the name with a vendor's or product's."""
        await self._run.send(
            CustomEvent(
                name=name,
                value=plain_value(value),
                subagent_run_id=self._owner,
                metadata=checked_metadata(metadata),
            )
        )

    async def raw(
        self, event: Any, source: str | None = None, *, metadata: Metadata | None = None
    ) -> None:
        """A provider's own event, passed through for who wants to see it."""
        await self._run.send(
            RawEvent(
                event=plain_value(event),
                source=optional(source),
                subagent_run_id=self._owner,
                metadata=checked_metadata(metadata),
            )
        )

    def subagent(
        self,
        name: str,
        *,
        description: str | None = None,
        subagent_run_id: str | None = None,
        parent_tool_call_id: str | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> "Subagent":
        """An invocation of a subagent: `async with run.subagent("researcher") as sub: …`.

        What is said through `sub` belongs to it (SUB-1). Invocations may nest and run in
        parallel. An exception that leaves the block ends the invocation with `SUBAGENT_ERROR`,
        whose words are the agent's only for a `RunError`.
        """
        id_ = subagent_run_id or new_id("subagent")
        return Subagent(
            self._run,
            id_,
            SubagentStartedEvent(
                subagent_run_id=id_,
                name=name,
                description=optional(description),
                parent_subagent_run_id=self._owner,
                parent_tool_call_id=optional(parent_tool_call_id),
                parent_message_id=optional(parent_message_id),
                metadata=checked_metadata(metadata),
            ),
        )


class _Annotated:
    """Something whose closing event can carry metadata."""

    _last_metadata: Metadata | UnsetType = UNSET

    def annotate(self, **metadata: Any) -> None:
        """Metadata that goes with the closing event, such as what is only known at the end."""
        known = {} if self._last_metadata is UNSET else self._last_metadata
        self._last_metadata = {**known, **copy_value(metadata)}


class _Block(_Annotated):
    """Something that an `async with` opens and closes."""

    _written: ClassVar[tuple[str, str]]
    """How a program writes the block, and the rule that asks for it."""

    _entered = False

    def _need_block(self) -> None:
        """Raise `SequenceViolation` when no block has been begun."""
        if not self._entered:
            block, rule = self._written
            raise SequenceViolation(
                f"this has not been opened; write `async with {block}:` and use it inside",
                rule=rule,
            )


class _Item(_Block):
    """Something that opens, is written to and closes."""

    def __init__(self, run: "Run", owner: str | UnsetType) -> None:
        self._run = run
        self._owner = owner

    async def __aenter__(self) -> Self:
        # What was opened before an opening was refused or cancelled has no block to close it.
        closing = [end for end in self._closing() if not self._run.is_open(end[0])]
        try:
            for event in self._opening():
                await self._run.send(event)
        except BaseException:
            for item, end in closing:
                self._run.close(item, end)
            raise
        self._entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for item, event in self._closing():
            self._run.close(item, event)

    def _opening(self) -> Sequence[Event]:
        raise NotImplementedError

    def _closing(self) -> Sequence[tuple[OpenItem, Event]]:
        raise NotImplementedError


class _MessageStream(_Item):
    """A message that is being written. `message_id` names it."""

    _family: ClassVar[Family]
    _content: ClassVar[type[TextMessageContentEvent | ReasoningMessageContentEvent]]
    _end: ClassVar[type[TextMessageEndEvent | ReasoningMessageEndEvent]]

    def __init__(self, run: "Run", owner: str | UnsetType, message_id: str, start: Event) -> None:
        super().__init__(run, owner)
        self.message_id = message_id
        self._start = start

    async def write(self, delta: str, *, metadata: Metadata | None = None) -> None:
        """Append to the message."""
        self._need_block()
        await self._run.send(
            self._content(
                message_id=self.message_id,
                delta=text_of(delta),
                subagent_run_id=self._owner,
                metadata=checked_metadata(metadata),
            )
        )

    async def encrypted_value(self, value: str) -> None:
        """Store a provider's opaque value with the message (REAS-4)."""
        self._need_block()
        await Speaker(self._run, self._owner).encrypted_value(self.message_id, value)

    def _opening(self) -> Sequence[Event]:
        return [self._start]

    def _closing(self) -> Sequence[tuple[OpenItem, Event]]:
        end = self._end(
            message_id=self.message_id,
            subagent_run_id=self._owner,
            metadata=self._last_metadata,
        )
        return [(OpenItem(self._family, self.message_id, self._owner), end)]


class TextStream(_MessageStream):
    """A text message that is being written. `message_id` names it."""

    _written = "run.text() as text", "STREAM-1"
    _family = Family.MESSAGE
    _content = TextMessageContentEvent
    _end = TextMessageEndEvent


class ToolCallStream(_Item):
    """A tool call whose arguments are being written. `tool_call_id` names it."""

    _written = "run.tool_call(…) as call", "STREAM-1"

    def __init__(
        self,
        run: "Run",
        owner: str | UnsetType,
        tool_call_id: str,
        start: ToolCallStartEvent,
        arguments: str | None,
    ) -> None:
        super().__init__(run, owner)
        self.tool_call_id = tool_call_id
        self._start = start
        self._arguments = arguments

    async def write(self, delta: str, *, metadata: Metadata | None = None) -> None:
        """Append to the text of the arguments, which by convention is JSON (TOOL-2)."""
        self._need_block()
        await self._run.send(self._args(delta, metadata))

    async def result(
        self,
        content: Any,
        *,
        message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        """Answer the call, after its block (TOOL-6).

        Text and a list of content parts, typed or plain, go as they are (TOOL-7); anything else
        that has a JSON form goes as its JSON (TOOL-8), and None as the empty text.

        Raises `TypeError` for what has none, and `SequenceViolation` for a call of one of the
        application's tools (FRONT-1).
        """
        self._need_block()
        event: dict[str, Any] = {
            "type": ToolCallResultEvent.type,
            "messageId": message_id or new_id("msg"),
            "toolCallId": self.tool_call_id,
            "content": plain_content(content),
        }
        if self._owner is not UNSET:
            event["subagentRunId"] = self._owner
        if metadata is not None:
            event["metadata"] = metadata
        await self._run.emit(event)

    async def encrypted_value(self, value: str) -> None:
        """Store a provider's opaque value with the call (REAS-4)."""
        self._need_block()
        await Speaker(self._run, self._owner).encrypted_value(
            self.tool_call_id, value, subtype="tool-call"
        )

    def _args(self, delta: str, metadata: Metadata | None = None) -> ToolCallArgsEvent:
        return ToolCallArgsEvent(
            tool_call_id=self.tool_call_id,
            delta=text_of(delta),
            subagent_run_id=self._owner,
            metadata=checked_metadata(metadata),
        )

    def _opening(self) -> Sequence[Event]:
        if self._arguments is None:
            return [self._start]
        return [self._start, self._args(self._arguments)]

    def _closing(self) -> Sequence[tuple[OpenItem, Event]]:
        end = ToolCallEndEvent(
            tool_call_id=self.tool_call_id,
            subagent_run_id=self._owner,
            metadata=self._last_metadata,
        )
        return [(OpenItem(Family.TOOL_CALL, self.tool_call_id, self._owner), end)]


class ReasoningMessageStream(_MessageStream):
    """A reasoning message that is being written. `message_id` names it."""

    _written = "run.reasoning_message() as reasoning", "REAS-2"
    _family = Family.REASONING
    _content = ReasoningMessageContentEvent
    _end = ReasoningMessageEndEvent

    def __init__(
        self,
        run: "Run",
        owner: str | UnsetType,
        message_id: str,
        metadata: Metadata | UnsetType,
    ) -> None:
        start = ReasoningMessageStartEvent(
            message_id=message_id, role="reasoning", subagent_run_id=owner, metadata=metadata
        )
        super().__init__(run, owner, message_id, start)


class ReasoningSpan(_Item):
    """A span of reasoning. `span_id` names it; messages inside have ids of their own."""

    _written = "run.reasoning_span() as span", "REAS-2"

    def __init__(
        self, run: "Run", owner: str | UnsetType, span_id: str, metadata: Metadata | UnsetType
    ) -> None:
        super().__init__(run, owner)
        self.span_id = span_id
        self._metadata = metadata

    def message(self, *, message_id: str | None = None) -> ReasoningMessageStream:
        """A reasoning message inside the span."""
        self._need_block()
        return Speaker(self._run, self._owner).reasoning_message(message_id=message_id)

    def _opening(self) -> Sequence[Event]:
        return [
            ReasoningStartEvent(
                message_id=self.span_id, subagent_run_id=self._owner, metadata=self._metadata
            )
        ]

    def _closing(self) -> Sequence[tuple[OpenItem, Event]]:
        end = ReasoningEndEvent(
            message_id=self.span_id, subagent_run_id=self._owner, metadata=self._last_metadata
        )
        return [(OpenItem(Family.SPAN, self.span_id, self._owner), end)]


class ReasoningStream(ReasoningMessageStream):
    """A span of reasoning and the message in it. `message_id` names both."""

    _written = "run.reasoning() as reasoning", "REAS-2"

    def _opening(self) -> Sequence[Event]:
        start = ReasoningStartEvent(message_id=self.message_id, subagent_run_id=self._owner)
        return [start, *super()._opening()]

    def _closing(self) -> Sequence[tuple[OpenItem, Event]]:
        end = ReasoningEndEvent(message_id=self.message_id, subagent_run_id=self._owner)
        span = OpenItem(Family.SPAN, self.message_id, self._owner)
        return [*super()._closing(), (span, end)]


class Step(_Item):
    """A phase of the run that is under way."""

    def __init__(
        self, run: "Run", owner: str | UnsetType, name: str, metadata: Metadata | UnsetType
    ) -> None:
        super().__init__(run, owner)
        self.name = name
        self._metadata = metadata

    def _opening(self) -> Sequence[Event]:
        return [
            StepStartedEvent(
                step_name=self.name, subagent_run_id=self._owner, metadata=self._metadata
            )
        ]

    def _closing(self) -> Sequence[tuple[OpenItem, Event]]:
        end = StepFinishedEvent(
            step_name=self.name, subagent_run_id=self._owner, metadata=self._last_metadata
        )
        return [(OpenItem(Family.STEP, self.name, self._owner), end)]


class Activity:
    """An activity message. `message_id` names it."""

    def __init__(
        self, run: "Run", owner: str | UnsetType, message_id: str, activity_type: str
    ) -> None:
        self._run = run
        self._owner = owner
        self.message_id = message_id
        self.activity_type: str = activity_type

    async def set(
        self,
        content: dict[str, Any],
        *,
        replace: bool | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        """Replace the content (ACT-1)."""
        await self._run.send(
            ActivitySnapshotEvent(
                message_id=self.message_id,
                activity_type=self.activity_type,
                content=plain_value(content),
                replace=UNSET if replace is None else replace,
                subagent_run_id=self._owner,
                metadata=checked_metadata(metadata),
            )
        )

    async def patch(
        self,
        operations: JsonPatch | Sequence[dict[str, Any]],
        *,
        activity_type: str | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        """Amend the content by a JSON Patch, and the type where one is given (ACT-3).

        Raises `PatchError`, and sends nothing, when it does not apply.
        """
        type_ = activity_type or self.activity_type
        await self._run.send(
            ActivityDeltaEvent(
                message_id=self.message_id,
                activity_type=type_,
                patch=checked_patch(operations),
                subagent_run_id=self._owner,
                metadata=checked_metadata(metadata),
            )
        )
        self.activity_type = type_


class Subagent(Speaker, _Block):
    """One invocation of a subagent. `subagent_run_id` names it."""

    _written = "run.subagent(…) as subagent", "SUB-2"

    def __init__(self, run: "Run", subagent_run_id: str, start: SubagentStartedEvent) -> None:
        super().__init__(run, subagent_run_id)
        self.subagent_run_id = subagent_run_id
        self._start = start
        self._result: Any = UNSET
        self._suspended = False
        self._interrupt_ids: list[str] = []

    @property
    def _owner(self) -> str | UnsetType:
        # An invocation that was never announced would be a legal stream (SUB-3), and a mistake.
        self._need_block()
        return super()._owner

    def finish(self, result: Any) -> None:
        """Give the invocation a result, sent when its block ends."""
        self._result = UNSET if result is None else plain_value(result)

    def suspend(self, *interrupt_ids: str) -> None:
        """End the block as suspended, waiting for these interrupts or a descendant's (SUB-5)."""
        self._suspended = True
        self._interrupt_ids += interrupt_ids

    async def __aenter__(self) -> Self:
        item = OpenItem(Family.SUBAGENT, self.subagent_run_id, UNSET)
        active = self._run.is_open(item)
        try:
            await self._run.send(self._start)
        except BaseException as error:
            if not active:
                self._run.close(item, self._end(error))
            raise
        self._entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        id_ = self.subagent_run_id
        if isinstance(error, Exception):
            # The agent may catch it outside of the block, and nobody would hear of it.
            self._run.log_exception(f"the subagent '{id_}' raised an exception", error)
        self._run.close_owned_by(id_)
        self._run.close(OpenItem(Family.SUBAGENT, id_, UNSET), self._end(error))

    def _end(self, error: BaseException | None) -> Event:
        id_ = self.subagent_run_id
        meant = meant_error(error)
        if meant is not None:
            return self._failed(meant.message, meant.code)
        if isinstance(error, Exception):
            return self._failed(_FAILED)
        if error is not None:
            # Cancelled: the invocation was cut off, together with the run or by the agent.
            return self._failed(_CUT_OFF, "cancelled")
        suspended = SubagentFinishedSuspendedOutcome(interrupt_ids=self._interrupt_ids or UNSET)
        return SubagentFinishedEvent(
            subagent_run_id=id_,
            outcome=suspended if self._suspended else UNSET,
            result=UNSET if self._suspended else self._result,
            metadata=self._last_metadata,
        )

    def _failed(self, message: str, code: str | None = None) -> Event:
        return SubagentErrorEvent(
            subagent_run_id=self.subagent_run_id,
            message=message,
            code=optional(code),
            metadata=self._last_metadata,
        )


def meant_error(error: BaseException | None) -> RunError | None:
    """The `RunError` that an exception is, or that a task group has made a group of."""
    if isinstance(error, BaseExceptionGroup):
        _, others = error.split(RunError)
        return meant_error(error.exceptions[0]) if others is None else None
    return error if isinstance(error, RunError) else None


def new_id(prefix: str) -> str:
    """An id that nobody has used."""
    return f"{prefix}-{uuid4().hex}"


def optional(text: str | None) -> str | UnsetType:
    """`UNSET` for None."""
    return UNSET if text is None else text_of(text)


def checked_metadata(metadata: Metadata | None) -> Metadata | UnsetType:
    """A copy of the metadata, proved to be a JSON object; `UNSET` for None."""
    if metadata is None:
        return UNSET
    copied = copy_value(metadata)
    if not isinstance(copied, dict):
        raise TypeError(f"metadata is a dictionary, not {type(metadata).__name__}")
    return copied


def checked_patch(operations: Sequence[object]) -> JsonPatch:
    """The operations as plain JSON. Raises `PatchError` for what is no JSON Patch."""
    patch: JsonPatch = plain_value(list(operations))
    try:
        check_patch(patch)
    except ValueError as error:
        raise PatchError(str(error)) from None
    return patch


def text_of(value: str) -> str:
    """The string, or `TypeError`: what has to be text is never made into text silently."""
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {type(value).__name__}")
    return value


def arguments_text(arguments: str | dict[str, Any]) -> str:
    """The text of a call's arguments: as given, or an object's JSON."""
    return arguments if isinstance(arguments, str) else encode(plain_value(arguments)).decode()
