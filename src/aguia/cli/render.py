"""A conversation as text in a terminal: events go in, lines come out as they stream.

Without a terminal, output is only ever appended and holds no escape sequence at all, so it reads
the same in a pipe and in a file. In a terminal what the agent says is laid out as Markdown, and
what of it is still growing, a paragraph or a tool's arguments, is redrawn in its place. What an
agent sends can write no escape sequence in either: see `aguia.cli.safe`.

Subagents that work in parallel would be unreadable if each wrote as it comes. One has the floor
at a time: the events of the others wait, and are shown when it is finished or has been silent
for a moment. The agent itself is heard between any two lines.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

from msgspec import UNSET, UnsetType
from rich.console import Console
from rich.style import Style
from rich.text import Text

from aguia.cli.brief import (
    brief,
    changes_of,
    compact,
    laid_out,
    last_of_each,
    outline,
    part_words,
    until,
)
from aguia.cli.live import Line, Live
from aguia.cli.safe import MAX_LINE, Cleaner, clean, one_line
from aguia.cli.words import plural
from aguia.protocol.content import ContentPart
from aguia.protocol.errors import ProtocolWarning
from aguia.protocol.events import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    CustomEvent,
    Event,
    MessagesSnapshotEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
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
from aguia.protocol.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguia.protocol.outcomes import (
    Interrupt,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
    SubagentFinishedSuspendedOutcome,
    TokenUsage,
)

if TYPE_CHECKING:
    from aguia.cli.markdown import MarkdownLines, Painter, WrappedLines

__all__ = ["Renderer"]

MAX_ARGUMENTS: Final = 600
"""How many characters of a call's arguments are shown."""

MAX_CARD_LINES: Final = 16
"""How many lines of a call's arguments are shown when they are laid out."""

MAX_LAID_OUT: Final = 20_000
"""Arguments of more characters are not laid out."""

MAX_RESULT_LINES: Final = 12
"""How many lines of a tool's result are shown."""

MIN_COLUMNS: Final = 20
"""A terminal that is narrower breaks the lines itself."""

MAX_QUESTION_LINES: Final = 300
"""How many lines of an agent's question are shown."""

SILENCE_SECONDS: Final = 0.5
"""Who says nothing for so long while others wait loses the floor."""

ACTIVITY_SECONDS: Final = 1.0
"""Changes of one activity are shown at most this often."""

FRAME_SECONDS: Final = 0.04
"""What is redrawn is so at most this often."""

FRAME_SHARE: Final = 5
"""Laying out takes at most one part in so many of the time, however long that takes."""

WAITING_SECONDS: Final = 1.0
"""After so long without a sign of the agent, it is said that it is waited for."""

PLAIN_TEXT: Final = "text/plain"
"""The `mimeType` in the metadata of a message that is no Markdown."""

STYLES: Final = {
    "text": "",
    "user": "bold cyan",
    "label": "bold",
    "card": "bold yellow",
    "arguments": "yellow",
    "result": "green",
    "state": "dim",
    "step": "blue",
    "aside": "dim",
    "reasoning": "dim italic",
    "error": "bold red",
    "warning": "yellow",
    "added": "green",
    "removed": "red",
    "place": "cyan",
}


class Renderer:
    """Writes a conversation to `out`, and what went wrong in it to `err`.

    `styled` says whether escape sequences for colours may be written; by default they are
    where the stream is a terminal that wants them (`NO_COLOR`, `TERM=dumb`). `live` says whether
    what grows is redrawn in place; by default it is in a terminal that can. `markdown`: in such
    a terminal, what the agent says is laid out. `columns` is the width of the terminal, 0 where
    `out` is none. `clock` gives seconds. `call_of` finds the tool call with an id, to show it
    with a question that is about it; `read_only` names the tools that run without asking.
    """

    def __init__(
        self,
        out: TextIO | None = None,
        err: TextIO | None = None,
        *,
        styled: bool | None = None,
        live: bool | None = None,
        markdown: bool = True,
        clock: Callable[[], float] = time.monotonic,
        call_of: Callable[[str], ToolCall | None] = lambda _: None,
    ) -> None:
        self.out: TextIO = sys.stdout if out is None else out
        self.err: TextIO = sys.stderr if err is None else err
        self.styled: bool = _wants_colours(self.out) if styled is None else styled
        self.call_of = call_of
        self.read_only: Set[str] = frozenset()
        self._err_styled = _wants_colours(self.err) if styled is None else styled
        self._styles = {name: Style.parse(style) for name, style in STYLES.items()}
        self._markdown = markdown
        self._live: Live | None = None
        if _can_redraw(self.out) if live is None else live:
            self._live = Live(self.out.write, self._size)
        self._at_start = True  # of a line, with nothing left to be redrawn
        self._blank_lines = 0  # that the text ends with and that are only written if it goes on
        self._block = ""  # what the last lines belong to; an empty line sets blocks apart
        self._open = ""  # the id of what the line that is being written belongs to
        self._items: dict[str, _Item] = {}
        self._agents: dict[str, str] = {}
        self._tools: dict[str, str] = {}  # of the calls of all runs: one may be answered later
        self._said: set[str] = set()  # the messages of all runs, which a snapshot may restate
        self._last_call = ""  # the id of the call that the run has shown last
        self._clock = clock
        self._floor: str | None = None  # who has it: a subagent, "" the agent itself, or nobody
        self._spoke = 0.0  # when that one was last heard
        self._active: set[str] = set()  # subagents that are announced and not finished
        self._speaking: dict[str, int] = {}  # how many messages and calls each one has open
        self._waiting: dict[str, list[Event]] = {}  # what each one has said without the floor
        self._activities: dict[str, _Activity] = {}
        self._stale = False  # whether more has come than is drawn
        self._next_frame = 0.0  # when the next may be drawn
        self._idle_since: float | None = None  # when something last came in the run under way
        self._paused = False
        self._patience = False  # whether it says that the agent is waited for

    @property
    def columns(self) -> int:
        """The width of the terminal; 0 where `out` is none."""
        return max(MIN_COLUMNS, self._size()[0]) if self.out.isatty() else 0

    @cached_property
    def _painter(self) -> "Painter":
        # What lays out Markdown takes its time to load, and a pipe has no use for it.
        from aguia.cli.markdown import Painter

        return Painter(styled=self.styled)

    @property
    def _between(self) -> bool:
        """Whether nothing that was begun is in the way of something else."""
        return self._at_start or self._patience

    def _size(self) -> tuple[int, int]:
        """The columns and rows of the terminal, as they are now."""
        try:
            columns, rows = os.get_terminal_size(self.out.fileno())
        except (OSError, ValueError):
            columns, rows = 0, 0
        # A terminal of nobody's, such as one that a program made, may not know its size.
        return columns or _number("COLUMNS", 80), rows or _number("LINES", 24)

    # -- what the chat says itself -----------------------------------------------------

    def user(self, text: str) -> None:
        """Echoes a message of the user's that was not typed at a prompt."""
        self._begin("user")
        self._write("> ", "user")
        self._write(f"{clean(text)}\n", "label")

    def before_prompt(self) -> None:
        """Makes room for a prompt."""
        self._begin("user")
        self.out.flush()

    def typed(self) -> None:
        """Takes note that a line at the prompt has ended."""
        self._at_start = True

    def note(self, text: str) -> None:
        """A line of the chat's own, or several."""
        self.listing(clean(text).split("\n"), "aside")

    def error(self, text: str) -> None:
        """A line that says what went wrong."""
        self._complain(f"✗ {text}", "error")

    def warning(self, warning: ProtocolWarning) -> None:
        """A line that says what was lost without ending the run."""
        self._complain(f"! {warning}", "warning")

    def begin(self) -> None:
        """Takes note that a run begins, which may be silent for a while."""
        self._idle_since = self._clock()
        self._last_call = ""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While the block runs, nothing is written because time passes: someone else writes."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            self.begin()

    def answered(self, message: ToolMessage) -> None:
        """How this side answered a call that the agent left to it."""
        if message.error:
            self._result(message.tool_call_id, f"✗ {message.error}", style="error")
        else:
            self._result(message.tool_call_id, message.content)
        self.out.flush()

    def listing(self, lines: Sequence[str], style: str = "text") -> None:
        """Lines of the chat's own, broken between words where the terminal is too narrow."""
        self._begin("note")
        columns = self.columns
        for line in lines:
            text = clean(line).replace("\n", " ").replace("\t", "    ")
            parts = [text]
            if columns and len(text) >= columns:
                parts = [line.written for line in self._painter.lay_out(Text(text), columns - 1)]
            for part in parts:
                self._write(f"{part}\n", style)

    def end(self) -> None:
        """Ends the run's output, wherever in it the run broke off."""
        self._idle_since = None
        while self._waiting:
            self._floor = None
            self._hear_waiting()
        self._floor = None
        self._active.clear()
        self._speaking.clear()
        self._show_activities()
        self._activities.clear()
        for item in self._items.values():
            if item.kind != "call" and (rest := item.cleaner.end()):
                self._stream(item, rest)
            if item.lines is not None:
                self._end_lines(item)
        self._finish_line()
        self._items.clear()
        self.out.flush()

    # -- what the agent sends ----------------------------------------------------------

    def event(self, event: Event) -> None:
        """Writes what the event adds to the conversation, now or when it is its turn."""
        if self._idle_since is not None:
            self._idle_since = self._clock()
        speaker = getattr(event, "subagent_run_id", UNSET) or ""
        if isinstance(event, SubagentStartedEvent):
            self._agents[speaker] = one_line(event.name, 60)
        if self._may_speak(speaker, event):
            self._speak(speaker, event)
            self._hear_waiting()
        else:
            self._waiting.setdefault(speaker, []).append(event)
        self.breathe()
        self.out.flush()

    def breathe(self) -> None:
        """Shows what is due by the time that has passed; to be called now and then."""
        if self._paused:
            return
        if self._waiting and self._clock() - self._spoke >= SILENCE_SECONDS:
            self._floor = None
            self._hear_waiting()
        self._show_activities(due=self._clock())
        if self._stale:
            self._draw()
        self._wait()
        self.out.flush()

    # -- who is heard ------------------------------------------------------------------

    def _may_speak(self, speaker: str, event: Event) -> bool:
        if isinstance(event, RunFinishedEvent | RunErrorEvent):
            return True
        if speaker in self._waiting:
            return False  # what it said before comes first
        if self._floor in (None, speaker):
            return True
        if not speaker:
            return self._between
        # The subagent of the one that has the floor works for it.
        return (
            isinstance(event, SubagentStartedEvent) and event.parent_subagent_run_id == self._floor
        )

    def _speak(self, speaker: str, event: Event) -> None:
        match event:
            case SubagentStartedEvent():
                self._active.add(speaker)
            case SubagentFinishedEvent() | SubagentErrorEvent():
                self._active.discard(speaker)
                self._speaking.pop(speaker, None)
            case TextMessageStartEvent() | ReasoningMessageStartEvent() | ToolCallStartEvent():
                self._speaking[speaker] = self._speaking.get(speaker, 0) + 1
            case TextMessageEndEvent() | ReasoningMessageEndEvent() | ToolCallEndEvent():
                self._speaking[speaker] = self._speaking.get(speaker, 1) - 1
        self._show(event)
        if speaker in self._active or self._speaking.get(speaker, 0) > 0:
            self._floor = speaker
        elif self._floor == speaker:
            self._floor = None
        if self._floor in (None, speaker):
            self._spoke = self._clock()

    def _hear_waiting(self) -> None:
        """Lets those who wait speak, as long as the floor is free; the agent itself sooner."""
        while self._waiting:
            if self._floor is None:
                speaker = "" if "" in self._waiting else next(iter(self._waiting))
            elif self._floor and self._between and "" in self._waiting:
                speaker = ""
            elif self._floor in self._waiting:
                speaker = self._floor
            else:
                return
            events = self._waiting.pop(speaker)
            begun, *rest = events
            if isinstance(begun, SubagentStartedEvent) and len(rest) == 1:
                events = rest  # it only began and ended, and the end says it all
            for event in events:
                self._speak(speaker, event)

    # -- what an event looks like ------------------------------------------------------

    def _show(self, event: Event) -> None:
        match event:
            case TextMessageStartEvent():
                self._said.add(event.message_id)
                name = event.name or ""
                role = "" if event.role in (UNSET, "assistant") else str(event.role)
                key = f"text {event.message_id}"
                self._items[key] = _Item(
                    key,
                    "text",
                    label=one_line(name or role, 60),
                    owner=self._owner(event),
                    lines=self._markdown_for(event),
                )
            case ReasoningMessageStartEvent():
                key = f"reasoning {event.message_id}"
                item = _Item(key, "reasoning", "thinking", owner=self._owner(event))
                item.lines = self._wrapped_for(item)
                self._items[key] = item
            case ToolCallStartEvent():
                name = self._tools[event.tool_call_id] = one_line(event.tool_call_name, 60)
                key = f"call {event.tool_call_id}"
                mark = " (reads only)" if event.tool_call_name in self.read_only else ""
                item = _Item(key, "call", label=f"{name}{mark}", owner=self._owner(event))
                self._items[key] = item
                self._last_call = event.tool_call_id
                self._stream(item, "")
            case TextMessageContentEvent():
                self._feed(f"text {event.message_id}", event.delta)
            case ReasoningMessageContentEvent():
                self._feed(f"reasoning {event.message_id}", event.delta)
            case ToolCallArgsEvent():
                self._feed(f"call {event.tool_call_id}", event.delta)
            case TextMessageEndEvent():
                self._close(f"text {event.message_id}")
            case ReasoningMessageEndEvent():
                self._close(f"reasoning {event.message_id}")
            case ToolCallEndEvent():
                self._close(f"call {event.tool_call_id}")
            case ToolCallResultEvent():
                if event.subagent_run_id is UNSET:
                    self._show_activities()
                self._result(event.tool_call_id, event.content)
            case StateSnapshotEvent():
                self._aside(f"≡ state: {outline(event.snapshot)}", "state")
            case StateDeltaEvent():
                self._aside(f"≡ state: {changes_of(event.delta)}", "state")
            case ActivitySnapshotEvent():
                self._activities.pop(event.message_id, None)
                self._aside(f"◇ {event.activity_type}: {outline(event.content)}", "state")
            case ActivityDeltaEvent():
                activity = self._activities.setdefault(event.message_id, _Activity())
                activity.label = event.activity_type
                activity.changes = last_of_each([*activity.changes, *event.patch])
                self._show_activities(due=self._clock())
            case StepFinishedEvent():
                self._show_activities()
            case StepStartedEvent():
                self._aside(f"▸ {self._owner(event)}{event.step_name}", "step")
            case SubagentStartedEvent():
                about = f": {event.description}" if event.description else ""
                self._aside(f"◆ {event.name} starts{about}", "step")
            case SubagentFinishedEvent():
                suspended = isinstance(event.outcome, SubagentFinishedSuspendedOutcome)
                how = "waits for an answer" if suspended else "is done"
                if event.result is not UNSET:
                    how += f": {outline(event.result)}"
                self._aside(f"◆ {self._agent(event.subagent_run_id)} {how}", "step")
            case SubagentErrorEvent():
                self._aside(
                    f"◆ {self._agent(event.subagent_run_id)} failed: {event.message}", "error"
                )
            case MessagesSnapshotEvent():
                self._aside(f"≡ messages: {len(event.messages)} restated", "state")
                for message in _answers(event.messages):
                    if message.id not in self._said:
                        self._whole(message)
            case CustomEvent():
                self._aside(f"◇ {event.name}: {brief(event.value)}", "aside")
            case RunFinishedEvent():
                self._finished(event)
            case RunErrorEvent():
                self.end()
                code = f" (code {event.code})" if event.code else ""
                self.error(f"The run failed: {event.message}{code}")
                self._usage(event.usage)
            case _:
                # Nothing to see: the start of a span, what only providers understand.
                pass

    def _whole(self, message: AssistantMessage) -> None:
        """What a message says that comes as a whole."""
        id_ = message.id
        self._show(TextMessageStartEvent(message_id=id_, name=message.name))
        self._show(TextMessageContentEvent(message_id=id_, delta=message.content or ""))
        self._show(TextMessageEndEvent(message_id=id_))

    def _finished(self, event: RunFinishedEvent) -> None:
        self.end()
        if event.result is not UNSET:
            self._aside(f"= result: {outline(event.result, 200)}", "result")
        match event.outcome:
            case RunFinishedCancelledOutcome():
                self._aside("■ The agent stopped the run before it was complete.", "warning")
            case RunFinishedInterruptOutcome():
                asked = event.outcome.interrupts
                for interrupt in asked:
                    # The only question, about the call right above it, need not show that again.
                    plain = len(asked) == 1 and interrupt.tool_call_id == self._last_call
                    self.question(interrupt, with_call=not plain)
        self._usage(event.usage)

    def question(self, interrupt: Interrupt, *, with_call: bool = True) -> None:
        """What the agent asks, and about which call; a diff in it is coloured as such."""
        said, _, more = (interrupt.message or "").replace("\r\n", "\n").partition("\n")
        self._aside(f"? The agent asks ({interrupt.reason}): {said}".rstrip(), "warning", rows=4)
        lines = more.strip("\n").split("\n") if more.strip() else []
        is_diff = any(line.startswith("@@ ") for line in lines)
        for line in lines[:MAX_QUESTION_LINES]:
            self._aside(line, _diff_style(line) if is_diff else "text", rows=4)
        if len(lines) > MAX_QUESTION_LINES:
            self._aside(f"… {plural(len(lines) - MAX_QUESTION_LINES, 'more line')}", "aside")
        about = interrupt.tool_call_id
        if with_call and about is not UNSET and (call := self.call_of(about)) is not None:
            self._call(call)
        if interrupt.expires_at is not UNSET:
            self._aside(f"to be answered {until(interrupt.expires_at)}", "aside")

    def _show_activities(self, *, due: float | None = None) -> None:
        """Shows the changes that are held back: all, or between lines those due by this time."""
        if due is not None and not self._between:
            return
        for activity in self._activities.values():
            if activity.changes and (due is None or due - activity.shown >= ACTIVITY_SECONDS):
                changes, activity.changes = activity.changes, []
                activity.shown = self._clock()
                self._aside(f"◇ {activity.label}: {changes_of(changes)}", "state")

    def _usage(self, usage: list[TokenUsage] | UnsetType) -> None:
        for entry in usage or ():
            counts = [
                f"{count:,} {way}"
                for count, way in ((entry.input_tokens, "in"), (entry.output_tokens, "out"))
                if count is not UNSET
            ]
            model = f" ({entry.model})" if entry.model else ""
            self._aside(f"tokens: {', '.join(counts) or 'not reported'}{model}", "aside")

    def _result(
        self, call_id: str, content: str | Sequence[ContentPart], *, style: str = "result"
    ) -> None:
        under_its_card = self._block == "aside" and self._open == f"end call {call_id}"
        name = "" if under_its_card else f"{self._tools.get(call_id, 'result')}: "
        text = content if isinstance(content, str) else " ".join(map(part_words, content))
        lines = text[: MAX_RESULT_LINES * MAX_LINE].strip().split("\n")
        self._aside(f"└ {name}{lines[0].rstrip()}", style, rows=2)
        for line in lines[1:MAX_RESULT_LINES]:
            self._aside(f"  {line.rstrip()}", style)
        if (more := text.strip().count("\n") + 1 - MAX_RESULT_LINES) > 0:
            self._aside(f"  … {more:,} more line{'' if more == 1 else 's'}", "aside")

    def _call(self, call: ToolCall) -> None:
        """A call that a question is about, with its arguments."""
        name, arguments = one_line(call.function.name, 60), call.function.arguments
        flat = compact(arguments)
        if flat is not None and len(name) + len(flat) + 12 < (self.columns or MAX_LINE):
            self._aside(f"about {name} {flat}", "card")
            return
        self._aside(f"about {name}", "card")
        lines = laid_out(arguments)
        for line in lines[:MAX_CARD_LINES]:
            self._aside(f"    {line}", "arguments", rows=2)
        if (more := len(lines) - MAX_CARD_LINES) > 0:
            self._aside(f"    … {plural(more, 'more line')}", "aside")

    # -- messages and calls that stream ------------------------------------------------

    def _feed(self, key: str, delta: str) -> None:
        if (item := self._items.get(key)) is not None and (text := item.cleaner.feed(delta)):
            self._stream(item, text)

    def _close(self, key: str) -> None:
        item = self._items.get(key)
        if item is None:
            return
        if rest := item.cleaner.end():
            self._stream(item, rest)
        if item.kind == "call":
            if self._live is not None:
                self._end_card(item)
            elif item.cut:
                self._stream(item, "")
                self._write(f"… and {item.cut:,} more characters", "aside")
            if self._open == key:
                self._finish_line()
                self._open = f"end {key}"
            return
        if item.lines is not None:
            self._end_lines(item)
        if self._open == key:
            self._finish_line()

    def _stream(self, item: "_Item", text: str) -> None:
        """Goes on with a message or a call, on a line of its own if another was between."""
        if item.kind != "call" and not item.begun:
            text = text.lstrip("\n")
            if not text:
                return
        redrawn = self._live is not None and (item.kind == "call" or item.lines is not None)
        if self._open != item.key:
            self._begin("aside" if item.kind == "call" else item.key)
            self._open = item.key
            if not redrawn or item.kind != "call":
                self._introduce(item)
            item.again, item.begun = item.begun, True
            item.blank = False
        if redrawn:
            self._grow(item, text)
        elif item.kind == "call":
            fits = text[: max(0, MAX_ARGUMENTS - item.length)]
            item.length += len(text)
            item.cut += len(text) - len(fits)
            self._write(fits.replace("\n", "\n      "), "arguments")
        else:
            bare = text.rstrip("\n")
            ends = len(text) - len(bare)
            if bare:
                self._write("\n" * self._blank_lines + bare, item.kind)
                self._blank_lines = 0
            if ends and self._at_start:
                self._blank_lines += ends
            elif ends:
                self._write("\n")
                self._blank_lines = ends - 1

    def _introduce(self, item: "_Item") -> None:
        """Who says what follows, and that it goes on, where that is not plain."""
        again = "… " if item.begun else ""
        if item.kind == "call":
            self._write(f"  ● {item.owner}{again}{item.label} ", "card")
        elif item.owner or item.label or again:
            mark = f"{item.label}: " if item.label else ""
            style = "reasoning" if item.kind == "reasoning" else "label"
            line = f"{again}{item.owner}{mark}"
            if item.lines is None:
                self._write(line, style)
            elif item.kind == "text":
                self._write(f"{line.rstrip()}\n", style)

    # -- what is redrawn while it grows ------------------------------------------------

    def _markdown_for(self, event: TextMessageStartEvent) -> "MarkdownLines | None":
        """What lays out a message; None if it is shown as it comes."""
        metadata = event.metadata
        plain = isinstance(metadata, dict) and metadata.get("mimeType") == PLAIN_TEXT
        if plain or not self._markdown or self._live is None:
            return None
        from aguia.cli.markdown import MarkdownLines

        return MarkdownLines(self._painter)

    def _wrapped_for(self, item: "_Item") -> "WrappedLines | None":
        """What breaks the lines of a message between words; None without a terminal."""
        if self._live is None:
            return None
        from aguia.cli.markdown import WrappedLines

        first = f"{item.owner}{item.label}: "
        return WrappedLines(self._painter, self._styles[item.kind], first)

    def _grow(self, item: "_Item", text: str) -> None:
        if item.lines is not None:
            item.lines.feed(text)
        else:
            # Of arguments that are too long to be laid out, the beginning is shown.
            item.arguments += text[: max(0, MAX_LAID_OUT - len(item.arguments))]
            item.length += len(text)
        self._at_start = False
        self._stale = True
        self._draw()

    def _draw(self, *, now: bool = False) -> None:
        """Draws what is open as it is by now, but not more often than the eye can follow."""
        item = self._items.get(self._open)
        if self._live is None or item is None or not self._stale:
            return
        began = self._clock()
        if not now and began < self._next_frame:
            return
        self._stale = False
        if item.lines is not None:
            width = self.columns - 1 if self.columns else 79
            for block in item.lines.take(width):
                self._draw_block(item, block)
            rest = item.lines.rest(width)
            self._live.draw(_apart(rest) if item.blank else rest)
        else:
            self._live.draw(self._card(item, one_line(item.new, MAX_ARGUMENTS)))
        took = self._clock() - began
        self._next_frame = began + max(FRAME_SECONDS, FRAME_SHARE * took)

    def _draw_block(self, item: "_Item", block: list[Line]) -> None:
        assert self._live is not None
        if block:
            self._live.draw(_apart(block) if item.blank else block)
            self._live.leave()
            item.blank = item.kind == "text"

    def _settle(self) -> None:
        """Leaves what is drawn as it is, complete to here, since something else comes."""
        if self._live is None:
            return
        item = self._items.get(self._open)
        if item is None or item.closed or (item.kind != "call" and item.lines is None):
            return
        if item.kind == "call" and not item.shown and compact(item.arguments) is not None:
            self._live.draw(self._whole_card(item))
            self._stale, item.shown = False, len(item.arguments)
        self._draw(now=True)
        self._live.leave()
        if item.lines is not None:
            item.lines.split()
        elif len(item.new) <= MAX_ARGUMENTS:  # else something was cut, and comes in the end
            item.shown = len(item.arguments)
        self._at_start = True

    def _end_lines(self, item: "_Item") -> None:
        """Draws what a message ends with."""
        assert self._live is not None
        assert item.lines is not None
        if item.closed:
            return
        if self._open != item.key and item.begun:
            # Others had the last word, and there may be nothing left to say.
            item.closed = True
            return
        width = self.columns - 1 if self.columns else 79
        for block in item.lines.end(width):
            self._draw_block(item, block)
        self._stale, item.closed = False, True
        self._at_start = True

    def _end_card(self, item: "_Item") -> None:
        """Draws a call with all of its arguments, laid out, or with what others interrupted."""
        assert self._live is not None
        if self._open != item.key and item.begun and not item.new:
            item.closed = True  # others had the last word, and there is nothing left to say
            return
        self._stream(item, "")
        if item.shown:
            self._live.draw(self._card(item, one_line(item.new, MAX_ARGUMENTS)))
        else:
            self._live.draw(self._whole_card(item))
        self._live.leave()
        self._stale, item.closed = False, True
        self._at_start = True

    def _whole_card(self, item: "_Item") -> list[Line]:
        lines = laid_out(item.arguments)
        flat = compact(item.arguments) if lines else item.arguments.strip()[:2]
        head = len(item.owner) + len(item.label) + 6
        if flat is not None and head + len(flat) < (self.columns or 80):
            return self._card(item, flat)
        shown = self._card(item, "")
        for line in lines[:MAX_CARD_LINES]:
            shown += self._lines(f"      {one_line(line, 2 * (self.columns or 80))}", "arguments")
        cut = item.length - len(item.arguments)
        if (more := len(lines) - MAX_CARD_LINES) > 0:
            shown += self._lines(f"      … {plural(more, 'more line')}", "aside")
        elif cut:
            shown += self._lines(f"      … and {cut:,} more characters", "aside")
        return shown

    def _card(self, item: "_Item", arguments: str) -> list[Line]:
        again = "… " if item.again else ""
        text = Text.assemble(
            (f"  ● {item.owner}{again}{item.label} ", self._styles["card"]),
            (arguments, self._styles["arguments"]),
        )
        return self._painter.lay_out(text, (self.columns or 80) - 1)

    def _lines(self, text: str, style: str) -> list[Line]:
        return self._painter.lay_out(Text(text, self._styles[style]), (self.columns or 80) - 1)

    def _wait(self) -> None:
        """Says how long the agent has been silent, until it says something."""
        if self._live is None or self._idle_since is None or not self._between:
            return
        seconds = self._clock() - self._idle_since
        if seconds >= WAITING_SECONDS:
            self._patience = True
            self._at_start = False
            self._live.draw(self._lines(f"  … {seconds:.0f} s", "aside"))

    def _owner(self, event: Any) -> str:
        """How the work of a subagent is marked; nothing for the agent itself (SUB-1)."""
        name = event.subagent_run_id
        return "" if name is UNSET else f"[{self._agent(name)}] "

    def _agent(self, subagent_run_id: str) -> str:
        return self._agents.get(subagent_run_id) or one_line(subagent_run_id, 20)

    # -- lines -------------------------------------------------------------------------

    def _aside(self, text: str, style: str, *, rows: int = 1) -> None:
        """A line about the run, between what is said in it; in a terminal, at most `rows` long."""
        self._begin("aside")
        limit = rows * self.columns - 3 if self.columns else MAX_LINE
        self._write(f"  {one_line(text, limit)}\n", style)

    def _complain(self, text: str, style: str) -> None:
        self._finish_line()
        self._blank_lines, self._open, self._block = 0, "", "aside"
        self.out.flush()
        line = one_line(text, 2 * MAX_LINE)
        self.err.write(self._styles[style].render(line) if self._err_styled else line)
        self.err.write("\n")
        self.err.flush()

    def _begin(self, block: str) -> None:
        """Starts a line of another block, set apart by an empty one where it helps."""
        self._finish_line()
        before = self._block
        # What is said about a run is indented, and needs no empty line besides.
        indented = "aside" in (before, block) and not {before, block} & {"user", "note"}
        if before not in ("", "user", block) and not indented:
            self._write("\n")
        self._blank_lines, self._open, self._block = 0, "", block

    def _finish_line(self) -> None:
        if self._patience and self._live is not None:
            self._patience = False
            self._live.clear()
            self._at_start = True
        if not self._at_start:
            self._settle()
        if not self._at_start:
            self._write("\n")

    def _write(self, text: str, style: str = "text") -> None:
        if text:
            self._at_start = text.endswith("\n")
            self.out.write(self._styles[style].render(text) if self.styled else text)


@dataclass(slots=True)
class _Item:
    """A message or call that streams: `key` tells it apart, `label` and `owner` introduce it."""

    key: str
    kind: Literal["text", "reasoning", "call"]
    label: str
    owner: str
    begun: bool = False
    again: bool = False  # whether it has been introduced before
    blank: bool = False  # whether an empty line comes before its next block
    closed: bool = False
    lines: "MarkdownLines | WrappedLines | None" = None
    arguments: str = ""
    length: int = 0  # of a call's arguments so far
    shown: int = 0  # how much of them stands above what has interrupted them
    cut: int = 0  # how much of it is not shown
    cleaner: Cleaner = field(default_factory=Cleaner)

    @property
    def new(self) -> str:
        """The arguments that do not stand above already."""
        return self.arguments[self.shown :]


def _answers(messages: Sequence[Message]) -> list[AssistantMessage]:
    """What has been said to the user's last message; the chat has seen what was before."""
    found: list[AssistantMessage] = []
    for message in messages:
        if isinstance(message, UserMessage):
            found = []
        elif isinstance(message, AssistantMessage) and message.content:
            found.append(message)
    return found


@dataclass(slots=True)
class _Activity:
    """The changes of an activity that have not been shown, and when others last were."""

    label: str = ""
    changes: list[Any] = field(default_factory=list)
    shown: float = float("-inf")


def _wants_colours(stream: TextIO) -> bool:
    console = Console(file=stream)
    colours = console.color_system in ("standard", "256", "truecolor")
    return console.is_terminal and colours and not console.no_color


def _can_redraw(stream: TextIO) -> bool:
    """Whether it is a terminal on which the cursor can be moved."""
    console = Console(file=stream)
    return console.is_terminal and not console.is_dumb_terminal and stream.isatty()


def _number(variable: str, default: int) -> int:
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() and 0 < int(value) < 10_000 else default


def _apart(lines: list[Line]) -> list[Line]:
    """The same lines, set apart by an empty one."""
    return [Line("", 0), *lines] if lines else []


def _diff_style(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return "place"
    return {"+": "added", "-": "removed"}.get(line[:1], "text")
