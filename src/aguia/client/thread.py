"""One thread held with an agent, without I/O: what it holds, and what may be sent next.

An input that leaves here is right: what the agent asked is answered, the calls that it left are
answered, activity stays behind, and what is encrypted goes back as it came (INT-2, FRONT-5,
ACT-4, REAS-4).
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import uuid4

import msgspec

from aguia.client.interrupts import check_resume, resume_entries, waits_for_approval
from aguia.client.tools import failed_answer
from aguia.codec.json import (
    MAX_DEPTH,
    STRICT_FAILURES,
    copy_value,
    decode,
    encode,
    parse_object,
)
from aguia.codec.sse import MAX_FRAME
from aguia.consumer import Consumer
from aguia.conversation import Conversation, InOrder
from aguia.interop.values import Model, plain_model
from aguia.pipeline.compatibility import noting, upgrade_message
from aguia.pipeline.downgrade import downgrade_input, parse_peer_version
from aguia.pipeline.enforcement import enforce_input, enforce_list, enforce_value
from aguia.pipeline.middleware import Middleware
from aguia.pipeline.verification import MAX_OPEN_ITEMS
from aguia.protocol.common import PROTOCOL_VERSION, UNSET
from aguia.protocol.content import ContentPart
from aguia.protocol.errors import DecodeError, InvalidInput, ProtocolWarning
from aguia.protocol.input import Context, ResumeEntry, RunAgentInput, Tool
from aguia.protocol.messages import (
    ActivityMessage,
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguia.protocol.outcomes import (
    Interrupt,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
)

__all__ = ["Answers", "Content", "NextInput", "Request", "Thread"]

Content: TypeAlias = (
    str
    | ContentPart
    | Message
    | Mapping[str, Any]
    | Model
    | Sequence[str | ContentPart | Message | Mapping[str, Any] | Model]
)
"""What may be said: text, content parts, or whole messages.

Parts and messages are typed, plain JSON, or models of the official package.
"""

Answers: TypeAlias = Mapping[str, Any] | Iterable[ResumeEntry | dict[str, Any]]
"""The answers to interrupts: by the interrupt's id, or as entries; see `resume_entries`."""

_MAX_WARNINGS: Final = 1000
"""How many warnings of one run are kept for its result; all of them are told when they come."""

_CUT_OFF: Final = "The run ended before this call was answered. It was not carried out."

_ELSEWHERE: Final = (
    "This thread was forked while the call was being answered in the other one; its answer went "
    "there."
)

_logger: Final = logging.getLogger("aguia")


class Limits(NamedTuple):
    """How much of a stream is read; see `Consumer`."""

    max_event_bytes: int = MAX_FRAME
    max_depth: int = MAX_DEPTH
    max_open_items: int = MAX_OPEN_ITEMS


_LIMITS: Final = Limits()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of one call of `Agent.run` have in common, judged.

    Attributes:
        tools, context: what is offered.
        forwarded_props: passed to the agent untouched.
    """

    tools: list[Tool]
    context: list[Context]
    forwarded_props: Any


class NextInput(NamedTuple):
    """What the next run is sent.

    Attributes:
        input: the run input.
        held: the messages that the thread holds once it is accepted.
        calls: what has to be answered before it is sent; it is made anew then.
    """

    input: RunAgentInput
    held: list[Message]
    calls: list[ToolCall]


class Thread:
    """The messages and the state of a thread, and how it goes on.

    Args:
        thread_id: names the thread; made up when it isn't given.
        messages, state, interrupts: what it starts from.
        history: the same in one, as `history()` gave it; a dictionary, or JSON text.
        event_middleware, peer_version, limits: see `Consumer`.
        on_warning: is called with each `ProtocolWarning`.

    Raises `InvalidInput` for what no thread can hold, `ValueError` when both a history and a
    part of one are given.
    """

    def __init__(
        self,
        *,
        thread_id: str | None = None,
        messages: Iterable[Message | dict[str, Any] | Model] = (),
        state: Any = UNSET,
        interrupts: Iterable[Interrupt | dict[str, Any]] = (),
        history: Mapping[str, Any] | str | bytes | None = None,
        event_middleware: Sequence[Middleware | type[Any]] = (),
        peer_version: str | None = None,
        limits: Limits = _LIMITS,
        on_warning: Callable[[ProtocolWarning], None] | None = None,
    ) -> None:
        messages, interrupts = [plain_model(each) for each in messages], list(interrupts)
        stored_calls: list[str] = []
        if history is not None:
            if messages or interrupts or state is not UNSET:
                raise ValueError("a history holds messages, state and interrupts; give only it")
            stored = _read_history(history)
            messages, interrupts = stored.get("messages", []), stored.get("interrupts", [])
            state = stored.get("state", UNSET)
            thread_id = thread_id or stored.get("threadId")
            stored_calls = stored.get("pendingToolCallIds", [])
        self.id: str = thread_id or f"thread-{uuid4().hex}"
        self._event_middleware = tuple(event_middleware)
        self._peer_version = peer_version
        self._peer = None if peer_version is None else parse_peer_version(peer_version)
        self.limits = limits
        self._on_warning = on_warning
        self._noted: list[ProtocolWarning] = []
        # A consumer that has read nothing yet judges and holds what the thread starts from. All
        # that is in the conversation, from here on, has been judged, and is not judged again.
        given: list[Any] = [
            enforce_value(message, type(message), self.warn, f"/messages/{index}")
            if isinstance(message, Message)
            else message
            for index, message in enumerate(messages)
        ]
        self.conversation: Conversation = Consumer(
            messages=given, state=state, interrupts=interrupts, on_warning=self._note
        ).conversation
        # The tools that were offered to the last run, by name; None before there was one.
        self._offered: frozenset[str] | None = None
        # The calls that were open when the thread was stored.
        self._stored_calls = frozenset(stored_calls)
        self._run_ids: set[str] = set()
        # The calls that functions are answering at this moment.
        self.in_hand: list[ToolCall] = []

    def append(self, said: Content) -> None:
        """Add to the thread without running it; an answer to a call goes to its call (CONV-1).

        Raises `InvalidInput` for what is no message, and for an id that the thread holds.
        """
        for message in self.said(said):
            self.conversation.add(message)

    def history(self) -> dict[str, Any]:
        """The thread as plain JSON, to be stored and taken up again.

        What the last run left in the middle is stored as it would be sent next, calls that it
        was cut off in are answered by saying so.
        """
        messages, open_calls = self._answered([], self._offered or ())
        return {
            "threadId": self.id,
            "messages": copy_value(messages),
            "state": copy_value(self.conversation.state),
            "interrupts": copy_value(self.conversation.interrupts),
            "pendingToolCallIds": [call.id for call in open_calls],
        }

    def fork(self, thread_id: str | None = None) -> "Thread":
        """Another thread that starts from what this one holds.

        Calls that functions are answering in this one are not answered once more in the other.
        """
        messages, open_calls = self._answered([], self._offered or ())
        elsewhere = [failed_answer(call, _ELSEWHERE) for call in self.in_hand]
        messages = _with_answers(messages, elsewhere)
        other = Thread(
            thread_id=thread_id,
            messages=messages,
            state=self.conversation.state,
            interrupts=self.conversation.interrupts,
            event_middleware=self._event_middleware,
            peer_version=self._peer_version,
            limits=self.limits,
            on_warning=self._on_warning,
        )
        other._stored_calls = frozenset(call.id for call in open_calls)
        return other

    # Warnings

    def warn(self, warning: ProtocolWarning) -> None:
        """Tell of a warning."""
        _logger.warning("%s", warning)
        self._note(warning)

    def take_warnings(self) -> list[ProtocolWarning]:
        """What has been warned of since this was last asked."""
        noted, self._noted = self._noted, []
        return noted

    def _note(self, warning: ProtocolWarning) -> None:
        if len(self._noted) < _MAX_WARNINGS:
            self._noted.append(warning)
        if self._on_warning is not None:
            self._on_warning(warning)

    # What is sent

    def said(self, content: Content | None) -> list[Message]:
        """What is said as messages.

        Raises `InvalidInput` for what is none, for an id that the thread holds already (EVT-6),
        and for a second answer to a call (FRONT-5).
        """
        if content is None:
            return []
        if isinstance(content, str):
            return [UserMessage(id=f"msg-{uuid4().hex}", content=content)]
        content = plain_model(content)
        if isinstance(content, Message | ContentPart | Mapping):
            content = [content]
        if not isinstance(content, Iterable):
            raise TypeError(
                f"what is said is text, content parts or messages, not {type(content).__name__}"
            )
        given: list[Any] = [
            {"type": "text", "text": item} if isinstance(item, str) else plain_model(item)
            for item in content
        ]
        # Parts as they were before 1.0 are upgraded, like the messages that hold them (VER-4).
        note = noting(self.warn, only_losses=True)
        items = upgrade_message({"content": given}, "", note)["content"]
        if items and all(_is_part(item) for item in items):
            parts = enforce_list(items, ContentPart, self.warn, "/content", prove=True)
            return [UserMessage(id=f"msg-{uuid4().hex}", content=parts)]
        items = [
            upgrade_message(item, f"/messages/{index}", note) for index, item in enumerate(items)
        ]
        said: list[Message] = enforce_list(items, Message, self.warn, "/messages", prove=True)
        known = {message.id for message in self.conversation.messages}
        for message in said:
            if message.id in known:
                raise InvalidInput(
                    f"the thread already holds a message with the id '{message.id}'",
                    rule="EVT-6",
                    path="/messages",
                )
            known.add(message.id)
        self._check_answers(said)
        return said

    def _check_answers(self, said: Sequence[Message]) -> None:
        answers = [message for message in said if isinstance(message, ToolMessage)]
        if not answers:
            return
        # Some agents use an id again for another call, which then has an answer of its own.
        left: Counter[str] = Counter()
        made: set[str] = set()
        for message in [*self.conversation.messages, *said]:
            if isinstance(message, AssistantMessage) and message.tool_calls is not UNSET:
                left.update(call.id for call in message.tool_calls)
                made.update(call.id for call in message.tool_calls)
            elif isinstance(message, ToolMessage):
                left[message.tool_call_id] -= 1
        for message in answers:
            if message.tool_call_id in made and left[message.tool_call_id] < 0:
                raise InvalidInput(
                    f"the message '{message.id}' is a second answer to the call "
                    f"'{message.tool_call_id}'",
                    rule="FRONT-5",
                    path="/messages",
                )

    def next_input(
        self,
        request: Request,
        said: Sequence[Message] = (),
        *,
        state: Any = UNSET,
        resume: Answers | None = None,
        run_id: str | None = None,
        force: bool = False,
        answers: Callable[[str], bool] | None = None,
    ) -> NextInput:
        """What the next run is sent.

        Args:
            request: what is offered.
            said: what is said in addition.
            state: in place of the thread's.
            resume: the answers to the open interrupts; see `resume_entries`.
            run_id: names the run; made up when it isn't given.
            force: see `check_resume`.
            answers: whether open calls of a tool, by its name, will be answered before.

        Raises `InvalidInput` for a malformed value (PROC-11), for an interrupt that is not
        covered, has expired or asked for something else (INT-2, INT-3, INT-7), for calls left by
        the last run that nobody answers, which it names (FRONT-5), and for a run id that the
        thread has used (EVT-6).
        """
        if run_id is not None and run_id in self._run_ids:
            raise InvalidInput(
                f"the thread has had a run with the id '{run_id}'", rule="EVT-6", path="/runId"
            )
        entries = enforce_list(resume_entries(resume), ResumeEntry, self.warn, "/resume")
        offered = self._offered
        if offered is None:
            offered = frozenset(tool.name for tool in request.tools)
        held, unanswered = self._answered(said, offered, resuming=bool(entries))
        left = [call for call in unanswered if answers is None or not answers(call.function.name)]
        if left:
            named = ", ".join(f"'{call.id}' of the tool '{call.function.name}'" for call in left)
            raise InvalidInput(
                f"the thread can't go on before each call is answered: {named}; say a "
                "ToolMessage for each, with `error` if it failed or was declined",
                rule="FRONT-5",
                path="/messages",
            )
        new = RunAgentInput(
            thread_id=self.id,
            run_id=run_id or f"run-{uuid4().hex}",
            protocol_version=PROTOCOL_VERSION,
            messages=[],
            state=state,
            # Agents from before 1.0 require these members, empty or not.
            tools=request.tools,
            context=request.context,
            forwarded_props={} if request.forwarded_props is UNSET else request.forwarded_props,
            resume=entries or UNSET,
        )
        new = enforce_input(new, self.warn)
        if state is UNSET:
            # A run input has no null for a state, and an absent one is the empty object (IN-1).
            state = {} if self.conversation.state is None else self.conversation.state
        else:
            state = new.state
        # Activity is the application's own rendering and never travels back (ACT-4).
        checked = msgspec.structs.replace(new, messages=_without_activity(held), state=state)
        self._check_resume(checked, force)
        if not unanswered:
            self._warn_of_answers_to_nothing(checked)
        return NextInput(checked, held, unanswered)

    def copy_of(self, run_input: RunAgentInput) -> RunAgentInput:
        """The same input with nothing in it that the thread holds, for those who may change it."""
        try:
            return decode(encode(run_input), RunAgentInput)
        except (*STRICT_FAILURES, TypeError, ValueError):
            return enforce_input(run_input, self.warn)  # which says where it is no JSON

    def judged(
        self, changed: RunAgentInput, made: RunAgentInput, force: bool = False
    ) -> RunAgentInput:
        """The input that middleware has `changed`, as it may be sent in place of the one `made`.

        Raises `InvalidInput` for a malformed one (PROC-11), one that passes over an interrupt
        (INT-2), and one that keeps a call and loses its answer (FRONT-5).
        """
        changed = enforce_input(changed, self.warn)
        self._check_resume(changed, force)
        lost = _unanswered(changed.messages) - _unanswered(made.messages)
        if lost:
            raise InvalidInput(
                f"middleware has left out the answer to the call '{min(lost)}', and not the call",
                rule="FRONT-5",
                path="/messages",
            )
        return msgspec.structs.replace(changed, messages=_without_activity(changed.messages))

    def fitting(self, run_input: RunAgentInput) -> RunAgentInput:
        """The input as an agent of the version that was said understands it."""
        if self._peer is None:
            return run_input
        return downgrade_input(run_input, self._peer, self.warn)

    def take_up(
        self, run_input: RunAgentInput, held: list[Message], content_type: str | None = None
    ) -> Consumer:
        """Go on with the thread: only an input that was accepted becomes part of it."""
        consumer = Consumer(
            run_input,
            messages=held,
            state={} if run_input.state is UNSET else run_input.state,
            interrupts=self.conversation.interrupts,
            content_type="text/event-stream" if content_type is None else content_type,
            middleware=self._event_middleware,
            peer_version=self._peer_version,
            on_warning=self._note,
            judged=True,
            **self.limits._asdict(),
        )
        self.conversation = consumer.conversation
        self._run_ids.add(run_input.run_id)
        self._offered = frozenset(tool.name for tool in run_input.tools or ())
        return consumer

    @property
    def pending_tool_calls(self) -> list[ToolCall]:
        """The calls that nobody has answered: of the last run (FRONT-4), or of what was stored."""
        if self._offered is not None:
            return self.conversation.pending_tool_calls
        return _dangling(self.conversation.messages, self._stored_calls)

    def open_calls(self, offered: Collection[str]) -> list[ToolCall]:
        """The calls that the application has to answer before the thread goes on (FRONT-5).

        Those of the `offered` tools, any that the run's outcome names as pending (FRONT-3), and
        what was called beside them. A run that leaves only calls of other tools has left its
        own, as when the agent waits for something inside of a tool; so is a call that waits for
        the answer to an interrupt.
        """
        conversation = self.conversation
        outcome = conversation.outcome
        if self._offered is not None and not isinstance(
            outcome, RunFinishedSuccessOutcome | RunFinishedInterruptOutcome
        ):
            return []
        named: Collection[str] = self._stored_calls if self._offered is None else ()
        if isinstance(outcome, RunFinishedSuccessOutcome) and outcome.pending_tool_call_ids:
            named = outcome.pending_tool_call_ids
        left = [
            call
            for call in self.pending_tool_calls
            if not waits_for_approval(call.id, conversation.interrupts)
        ]
        mine = [call for call in left if call.function.name in offered or call.id in named]
        return left if mine and not conversation.interrupts else mine

    def _check_resume(self, run_input: RunAgentInput, force: bool) -> None:
        answers = [] if run_input.resume is UNSET else run_input.resume
        check_resume(answers, self.conversation.interrupts, force=force)

    def _warn_of_answers_to_nothing(self, run_input: RunAgentInput) -> None:
        # Agents from before 1.0 may ask by other means, and take answers all the same.
        if self.conversation.interrupts or self.conversation.outcome is None:
            return
        for entry in run_input.resume or ():
            self.warn(
                ProtocolWarning(
                    stage="client",
                    rule="INT-2",
                    path="/resume",
                    message=f"no interrupt is open, '{entry.interrupt_id}' included; the answer is "
                    "sent all the same, since an agent may have asked by other means",
                )
            )

    def _answered(
        self, said: Sequence[Message], offered: Collection[str], *, resuming: bool = False
    ) -> tuple[list[Message], list[ToolCall]]:
        """All messages with what is said in its place, and the calls that are still open."""
        cut_off = self._cut_off()
        held = list(self.conversation.messages)
        answered = {each.tool_call_id for each in said if isinstance(each, ToolMessage)}
        if not answered and not cut_off:
            held += said
        else:
            answers = [failed_answer(call, _CUT_OFF) for call in cut_off if call.id not in answered]
            held = _with_answers(held, [*said, *answers])
        if self._offered is None and resuming and not self.conversation.interrupts:
            return held, []  # what the answers are for is only known where they go
        return held, [call for call in self.open_calls(offered) if call.id not in answered]

    def _cut_off(self) -> list[ToolCall]:
        """The calls of offered tools in a run that was cancelled, failed or broke off.

        Nobody carries them out, and a history in which a call has no answer is one that model
        providers refuse.
        """
        if self._offered is None or isinstance(
            self.conversation.outcome, RunFinishedSuccessOutcome | RunFinishedInterruptOutcome
        ):
            return []
        return [
            call
            for call in self.conversation.unanswered_tool_calls
            if call.function.name in self._offered
        ]


def _without_activity(messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if not isinstance(message, ActivityMessage)]


def _unanswered(messages: Iterable[Message]) -> set[str]:
    """The calls in these messages that none of them answers."""
    made: set[str] = set()
    answered: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AssistantMessage) and message.tool_calls is not UNSET:
            made.update(call.id for call in message.tool_calls)
    return made - answered


def _dangling(messages: Iterable[Message], known: Collection[str]) -> list[ToolCall]:
    """The calls since the user last spoke that no message answers, in order, and the known ones.

    What lies before that, the thread has long passed over, as far as anybody knows.
    """
    calls: dict[str, ToolCall] = {}
    answered: set[str] = set()
    for message in messages:
        if isinstance(message, UserMessage):
            calls = {id_: call for id_, call in calls.items() if id_ in known}
        elif isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AssistantMessage) and message.tool_calls is not UNSET:
            calls.update((call.id, call) for call in message.tool_calls)
    return [call for id_, call in calls.items() if id_ not in answered]


def _with_answers(held: list[Message], said: Iterable[Message]) -> list[Message]:
    """The messages with what is said after them, each answer after its call (CONV-1)."""
    messages = InOrder(held)
    makers: dict[str, Message] = {}
    for message in held:
        _note_calls(message, makers)
    for message in said:
        carrier = makers.get(message.tool_call_id) if isinstance(message, ToolMessage) else None
        if carrier is None:
            messages.append(message)
            _note_calls(message, makers)
        else:
            messages.answer(carrier, message)
    return messages.settled


def _note_calls(message: Message, makers: dict[str, Message]) -> None:
    """Take note of who makes a call; where an id is used again, the last one counts."""
    if isinstance(message, AssistantMessage) and message.tool_calls is not UNSET:
        makers.update((call.id, message) for call in message.tool_calls)


def _is_part(item: Any) -> bool:
    """Whether this is a content part, and no message, in its typed or its plain form."""
    return isinstance(item, ContentPart) or (
        isinstance(item, dict) and "type" in item and "role" not in item
    )


def _read_history(history: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
    if isinstance(history, str | bytes):
        data = history.encode() if isinstance(history, str) else history
        try:
            history = parse_object(data)
        except DecodeError as error:
            message = error.message.replace("the frame", "it")
            raise InvalidInput(
                f"the history is no JSON object ({message}); give what is in a file, not its name",
                path="",
            ) from None
    if not isinstance(history, Mapping):
        raise TypeError(f"a history is a dictionary or JSON text, not {type(history).__name__}")
    stored = {name: value for name, value in history.items() if value is not None}
    if not isinstance(stored.get("threadId", ""), str):
        raise InvalidInput("expected a string", rule="PROC-3", path="/threadId")
    for name in ("messages", "interrupts", "pendingToolCallIds"):
        if not isinstance(stored.get(name, []), list):
            raise InvalidInput("expected a list", rule="PROC-3", path=f"/{name}")
    for index, id_ in enumerate(stored.get("pendingToolCallIds", [])):
        if not isinstance(id_, str):
            path = f"/pendingToolCallIds/{index}"
            raise InvalidInput("expected a string", rule="PROC-3", path=path)
    return stored
