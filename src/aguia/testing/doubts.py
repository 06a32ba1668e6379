"""What is legal and doubtful, or breaks a rule that no reader can enforce.

A reader lets these pass; who writes an agent wants to know of them. Looks at the events of one
stream as they come and remembers what is needed for one run at a time, besides ids.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from aguia.codec.json import encode
from aguia.pipeline.deltas import join_texts
from aguia.protocol.common import UNSET, UnsetType
from aguia.protocol.events import (
    CustomEvent,
    Event,
    MessagesSnapshotEvent,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallChunkEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguia.protocol.input import RunAgentInput
from aguia.protocol.messages import AssistantMessage, Message
from aguia.protocol.outcomes import (
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    TokenUsage,
)

__all__ = ["Doubt", "Doubts"]

_SECONDS: Final = 100_000_000_000
"""Milliseconds below this are before 1973, seconds below it before the year 5138."""

_MICROSECONDS: Final = 100_000_000_000_000
"""Milliseconds above this are after the year 5138."""

_SMALL_DELTA: Final = 4
_LARGE_EXTRAS: Final = 1024
_MAX_TEXT: Final = 256 * 1024

_DELTAS: Final = frozenset(
    {
        TextMessageContentEvent,
        TextMessageChunkEvent,
        ReasoningMessageContentEvent,
        ReasoningMessageChunkEvent,
        ToolCallArgsEvent,
        ToolCallChunkEvent,
    }
)


Place: TypeAlias = tuple[int | None, int | None]
"""The number of an event, and its line."""


class Doubt(NamedTuple):
    """Something doubtful: by which rule, what it is, what would not be, and why it matters."""

    rule: str
    message: str
    expected: str
    hint: str
    path: str | None = None
    related: tuple[str, ...] = ()
    page: str | None = None
    topic: str = ""
    """What makes two doubts of one rule different ones; one that comes again is counted."""
    place: Place = (None, None)
    """Where it is, if not in the event that is being looked at."""
    must: bool = False
    """Whether a producer must not do it, and it is certain that it does."""


@dataclass(slots=True)
class _Call:
    name: str
    parent: str | UnsetType
    text: list[str] | None = field(default_factory=list)
    size: int = 0
    bad: str = ""
    """How the arguments begin, if they are no JSON, and `place` where they ended."""
    place: Place = (None, None)


class Doubts:
    """Looks at one stream; `tell` is given each doubt about the event that is being looked at.

    Attributes:
        unsure: whether the run has an error already, which makes what is missing at its end no
            news; the checker sets it, and a run's start clears it.
    """

    def __init__(self, tell: Callable[[Doubt], None], request: RunAgentInput | None) -> None:
        self.unsure: bool = False
        self._tell = tell
        self._tools = (
            {tool.name for tool in request.tools}
            if request is not None and request.tools is not UNSET
            else None
        )
        self._runs: set[tuple[str, str]] = set()
        self._openers: dict[str, tuple[str, str | UnsetType]] = {}
        self._held: dict[str, str] = {}
        self._copies: dict[str, list[str]] = {}
        self._calls: dict[str, _Call] = {}
        self._answered: set[str] = set()
        self._old_calls: set[str] = set()
        self._place: Place = (None, None)
        self._dispatch: dict[type[Any], Callable[[Any], None]] = {
            RunStartedEvent: self._run_started,
            RunFinishedEvent: self._run_finished,
            RunErrorEvent: self._run_error,
            TextMessageStartEvent: self._text_start,
            TextMessageContentEvent: self._text_content,
            TextMessageEndEvent: self._text_end,
            ToolCallStartEvent: self._call_start,
            ToolCallArgsEvent: self._call_args,
            ToolCallEndEvent: self._call_end,
            ToolCallResultEvent: self._call_result,
            MessagesSnapshotEvent: self._messages_snapshot,
        }
        if request is not None:
            self._hold(request.messages)

    def source(self, event: Event) -> None:
        """Look at an event as it came, chunks included."""
        if event.timestamp is not UNSET:
            self._timestamp(event.timestamp)
        if event.metadata is not UNSET and "ag-ui" in event.metadata:
            self._tell(
                Doubt(
                    "META-2",
                    "the metadata has the key 'ag-ui', which is reserved",
                    "keys of the application's own",
                    "The protocol may give that key a meaning; choose another.",
                    "/metadata/ag-ui",
                )
            )
        if type(event) in _DELTAS:
            self._delta(event)
        elif isinstance(event, CustomEvent):
            self._custom(event)
        elif isinstance(event, RunStartedEvent) and event.protocol_version is UNSET:
            self._tell(
                Doubt(
                    "VER-1",
                    "RUN_STARTED declares no protocolVersion",
                    "the producer's own version, such as 1.0",
                    "A reader takes such an agent for one from before 1.0.",
                    "/protocolVersion",
                    related=("RUN-2",),
                    must=True,
                )
            )

    def verified(self, event: Event, place: Place) -> None:
        """Look at an event that may come where it came, chunks expanded."""
        self._place = place
        look = self._dispatch.get(type(event))
        if look is not None:
            look(event)

    # Single events

    def _timestamp(self, timestamp: int) -> None:
        if _SECONDS // 1000 <= timestamp < _SECONDS:
            unit = "seconds"
        elif timestamp >= _MICROSECONDS:
            unit = "microseconds or finer"
        else:
            return
        self._tell(
            Doubt(
                "EVT-1",
                f"the timestamp {timestamp} looks like {unit}",
                "milliseconds since the epoch",
                "Clocks of Python and Unix count seconds: multiply by 1000 and round.",
                "/timestamp",
                topic=unit,
            )
        )

    def _delta(self, event: Any) -> None:
        if event.delta is UNSET or len(event.delta) > _SMALL_DELTA:
            return
        for member, path in ((event.metadata, "/metadata"), (event.raw_event, "/rawEvent")):
            if member is UNSET or not member:
                continue
            size = len(encode(member))
            if size >= _LARGE_EXTRAS:
                self._tell(
                    Doubt(
                        "META-1",
                        f"a delta of {len(event.delta)} characters carries {size} bytes of "
                        f"{path[1:]}",
                        "little beside each delta",
                        "Send what concerns the whole message once, with its start or end.",
                        path,
                        topic=f"{event.type}{path}",
                    )
                )

    def _custom(self, event: CustomEvent) -> None:
        if not any(sign in event.name for sign in ".:/"):
            self._tell(
                Doubt(
                    "PROC-13",
                    f"the custom event's name '{event.name[:80]}' has no prefix",
                    "a name that begins with the vendor or application, as com.example.name",
                    "Names without a prefix are the protocol's, and two parties may collide.",
                    "/name",
                    page="events/passthrough",
                    topic=event.name[:80],
                )
            )

    # Runs

    def _run_started(self, event: RunStartedEvent) -> None:
        key = (event.thread_id, event.run_id)
        if key in self._runs:
            self._tell(
                Doubt(
                    "EVT-6",
                    f"the runId '{event.run_id}' was a run's of this thread already",
                    "a new runId for each run of a thread",
                    "A replayed run keeps its id, but it is restated as snapshots (RUN-13).",
                    "/runId",
                    topic=event.run_id,
                    must=True,
                )
            )
        self._runs.add(key)
        self.unsure = False
        self._openers.clear()
        self._copies.clear()
        self._old_calls.update(self._calls)
        self._calls.clear()
        self._answered.clear()
        if event.input is not UNSET:
            self._hold(event.input.messages)

    def _run_finished(self, event: RunFinishedEvent) -> None:
        self._usage(event.usage)
        outcome = event.outcome
        if isinstance(outcome, RunFinishedCancelledOutcome) and event.result is not UNSET:
            self._tell(
                Doubt(
                    "RUN-10",
                    "a cancelled run has a result",
                    "no result with the cancelled outcome",
                    "What a stopped run had so far belongs in its messages or state.",
                    "/result",
                )
            )
        if self.unsure:
            return
        if not isinstance(outcome, RunFinishedCancelledOutcome):
            self._arguments()
        pending = [id_ for id_ in self._calls if id_ not in self._answered]
        if isinstance(outcome, RunFinishedInterruptOutcome):
            self._interrupts(outcome, pending)
        elif not isinstance(outcome, RunFinishedCancelledOutcome):
            self._pending(outcome, pending)

    def _pending(self, outcome: RunFinishedSuccessOutcome | UnsetType, pending: list[str]) -> None:
        named = UNSET if outcome is UNSET else outcome.pending_tool_call_ids
        path = "/outcome/pendingToolCallIds"
        if named is UNSET or (not named and pending):
            if pending:
                self._tell(
                    Doubt(
                        "FRONT-3",
                        f"the run leaves {_listed(pending)} without a result and does not name "
                        "what is pending",
                        "pendingToolCallIds on the success outcome: the calls without a result, "
                        "in the order made",
                        "Name the calls that the frontend is to answer, and answer the others.",
                        path if outcome is not UNSET else "/outcome",
                    )
                )
        elif named != pending:
            self._tell(
                Doubt(
                    "FRONT-3",
                    f"pendingToolCallIds names {_listed(named)}, and without a result are "
                    f"{_listed(pending)}",
                    "exactly the calls of this run without a result, in the order made",
                    "Derive the list from the calls that were made, not from the tools.",
                    path,
                    must=True,
                )
            )
        if self._tools is not None:
            for id_ in pending:
                if self._calls[id_].name not in self._tools:
                    self._tell(
                        Doubt(
                            "FRONT-6",
                            f"the call '{id_}' is left to the frontend, which offered no tool "
                            f"'{self._calls[id_].name[:80]}'",
                            "calls of tools that the input offers",
                            "The model made up a tool, or the agent did not run one of its own.",
                            topic=self._calls[id_].name[:80],
                        )
                    )

    def _interrupts(self, outcome: RunFinishedInterruptOutcome, pending: list[str]) -> None:
        seen: set[str] = set()
        for number, interrupt in enumerate(outcome.interrupts):
            path = f"/outcome/interrupts/{number}"
            if interrupt.id in seen:
                self._tell(
                    Doubt(
                        "INT-1",
                        f"two interrupts have the id '{interrupt.id}'",
                        "an id of its own for each interrupt of a run",
                        "Answers name the interrupt by its id; two of one id can't be answered.",
                        f"{path}/id",
                        must=True,
                    )
                )
            seen.add(interrupt.id)
            if interrupt.expires_at is not UNSET and not _is_date(interrupt.expires_at):
                self._tell(
                    Doubt(
                        "INT-3",
                        f"expiresAt is '{interrupt.expires_at[:40]}', which is no date and time",
                        "a date and time as 2026-01-31T12:00:00Z",
                        "A reader that can't read the date can't tell when an answer is late.",
                        f"{path}/expiresAt",
                    )
                )
        asked = {interrupt.tool_call_id for interrupt in outcome.interrupts}
        for id_ in pending:
            name = self._calls[id_].name
            if self._tools is not None and name in self._tools and id_ not in asked:
                self._tell(
                    Doubt(
                        "FRONT-2",
                        f"the run is interrupted while the frontend owes the answer to '{id_}'",
                        "success, with the call named as pending",
                        "A frontend tool is left by ending the run, not by an interrupt.",
                        "/outcome",
                        topic=id_,
                    )
                )

    def _run_error(self, event: RunErrorEvent) -> None:
        self._usage(event.usage)

    def _usage(self, usage: list[TokenUsage] | UnsetType) -> None:
        seen: set[tuple[Any, Any]] = set()
        for number, entry in enumerate(usage or ()):
            problem = ""
            key = (entry.provider, entry.model)
            if key in seen:
                problem = "two entries are of one provider and model"
            seen.add(key)
            for part, whole in (
                ("reasoning_tokens", "output_tokens"),
                ("cached_input_tokens", "input_tokens"),
                ("cache_write_input_tokens", "input_tokens"),
            ):
                less, more = getattr(entry, part), getattr(entry, whole)
                if less is not UNSET and more is not UNSET and less > more:
                    problem = f"{_camel(part)} is {less} and {_camel(whole)} is {more}"
            counts = (entry.input_tokens, entry.output_tokens, entry.total_tokens)
            if UNSET not in counts and counts[0] + counts[1] != counts[2]:  # type: ignore[operator]
                problem = f"totalTokens is {counts[2]}, not {counts[0]} + {counts[1]}"
            if problem:
                self._tell(
                    Doubt(
                        "USE-1",
                        problem,
                        "one entry per provider and model; parts within their totals; "
                        "totalTokens = inputTokens + outputTokens",
                        "Providers count differently: add cached and reasoning tokens to the "
                        "totals where yours leaves them out.",
                        f"/usage/{number}",
                    )
                )

    # Items

    def _text_start(self, event: TextMessageStartEvent) -> None:
        opener = ("assistant" if event.role is UNSET else event.role, event.name)
        known = self._openers.setdefault(event.message_id, opener)
        if known != opener:
            self._tell(
                Doubt(
                    "STREAM-4",
                    f"the message '{event.message_id}' was opened as {_say(known)} and is opened "
                    f"again as {_say(opener)}",
                    "the same role and name when a message is opened again",
                    "Another speaker's message needs an id of its own.",
                    topic=event.message_id,
                    must=True,
                )
            )
        if self._held.get(event.message_id):
            self._copies[event.message_id] = []

    def _text_content(self, event: TextMessageContentEvent) -> None:
        copy = self._copies.get(event.message_id)
        if copy is not None:
            copy.append(event.delta)

    def _text_end(self, event: TextMessageEndEvent) -> None:
        copy = self._copies.pop(event.message_id, None)
        if copy and "".join(copy) == self._held[event.message_id]:
            self._tell(
                Doubt(
                    "RUN-13",
                    f"the message '{event.message_id}', which the thread holds, is streamed again",
                    "history as MESSAGES_SNAPSHOT, if at all",
                    "A reader appends the text to the message that it holds, so it stands twice.",
                    topic=event.message_id,
                    must=True,
                )
            )

    def _call_start(self, event: ToolCallStartEvent) -> None:
        call = self._calls.get(event.tool_call_id)
        if call is None:
            call = _Call(event.tool_call_name, event.parent_message_id)
            self._calls[event.tool_call_id] = call
            if event.tool_call_id in self._old_calls:
                call.text = None  # what comes now continues arguments that are not here
            return
        call.text = None
        call.bad = ""
        if event.parent_message_id not in (UNSET, call.parent):
            self._tell(
                Doubt(
                    "STREAM-4",
                    f"the call '{event.tool_call_id}' is opened again under another message",
                    "the same tool name and parentMessageId when a call is opened again",
                    "Another call needs an id of its own.",
                    "/parentMessageId",
                    topic=event.tool_call_id,
                    must=True,
                )
            )

    def _call_args(self, event: ToolCallArgsEvent) -> None:
        call = self._calls.get(event.tool_call_id)
        if call is not None and call.text is not None:
            call.text.append(event.delta)
            call.size += len(event.delta) + 8
            if call.size > _MAX_TEXT:
                call.text = None

    def _call_end(self, event: ToolCallEndEvent) -> None:
        call = self._calls.get(event.tool_call_id)
        if call is None or call.text is None:
            return
        text = join_texts(*call.text)
        call.text = None
        if text.strip():
            try:
                msgspec.json.decode(text.encode("utf-8", "replace"))
            except (ValueError, RecursionError):
                call.bad = text[:60]
                call.place = self._place

    def _arguments(self) -> None:
        for id_, call in self._calls.items():
            if call.bad:
                self._tell(
                    Doubt(
                        "TOOL-2",
                        f"the arguments of the call '{id_}' of {call.name[:80]} are no JSON: "
                        f"{call.bad}",
                        "arguments that whoever runs the tool can read as JSON",
                        "It is legal, and a tool that takes JSON can't be run; were the deltas "
                        "sent twice, or cut?",
                        topic=id_,
                        place=call.place,
                    )
                )

    def _call_result(self, event: ToolCallResultEvent) -> None:
        self._answered.add(event.tool_call_id)
        call = self._calls.get(event.tool_call_id)
        if call is not None and self._tools is not None and call.name in self._tools:
            self._tell(
                Doubt(
                    "FRONT-1",
                    f"the agent answers its call of '{call.name[:80]}', a tool of the frontend's",
                    "no result for a frontend tool: the next run's input brings it",
                    "End the run and name the call as pending.",
                    topic=event.tool_call_id,
                    must=True,
                )
            )

    def _messages_snapshot(self, event: MessagesSnapshotEvent) -> None:
        self._openers.clear()
        self._held.clear()
        self._hold(event.messages)

    def _hold(self, messages: list[Message]) -> None:
        for message in messages:
            content = getattr(message, "content", UNSET)
            if isinstance(content, str):
                self._held[message.id] = content
            if isinstance(message, AssistantMessage):
                self._old_calls.update(call.id for call in message.tool_calls or ())


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _listed(ids: list[str]) -> str:
    if not ids:
        return "nothing"
    shown = ", ".join(f"'{id_[:40]}'" for id_ in ids[:3])
    return shown if len(ids) <= 3 else f"{shown} and {len(ids) - 3} more"


def _say(opener: tuple[str, str | UnsetType]) -> str:
    role, name = opener
    return role if name is UNSET else f"{role} '{name[:40]}'"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
