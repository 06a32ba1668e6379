"""A conversation as text in a terminal: events go in, lines come out as they stream.

Output is only ever appended, so it reads the same in a terminal, in a pipe and in a file;
without a terminal it holds no escape sequence at all. What an agent sends can neither: its
control characters are made visible before they are written (`Cleaner`, `one_line`).

Subagents that work in parallel would be unreadable if each wrote as it comes. One has the floor
at a time: the events of the others wait, and are shown when it is finished or has been silent
for a moment. The agent itself is heard between any two lines.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from shutil import get_terminal_size
from typing import Any, Final, Literal, TextIO

from msgspec import UNSET, UnsetType
from rich.console import Console
from rich.style import Style

from aguia.cli.words import plural
from aguia.protocol.content import ContentPart, TextPart
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
from aguia.protocol.outcomes import (
    Interrupt,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
    SubagentFinishedSuspendedOutcome,
    TokenUsage,
)

__all__ = ["Cleaner", "Renderer", "one_line"]

MAX_ARGUMENTS: Final = 600
"""How many characters of a call's arguments are shown."""

MAX_RESULT_LINES: Final = 12
"""How many lines of a tool's result are shown."""

MAX_CHANGES: Final = 6
"""How many members of a state, or operations of a patch, a line shows."""

MAX_LINE: Final = 300
"""How many characters a line of the chat's own (a state change, a result) has at most."""

MAX_QUESTION_LINES: Final = 300
"""How many lines of an agent's question are shown."""

SILENCE_SECONDS: Final = 0.5
"""Who says nothing for so long while others wait loses the floor."""

ACTIVITY_SECONDS: Final = 1.0
"""Changes of one activity are shown at most this often."""

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


# What a terminal would act on, and what a person is shown instead. Bidirectional embeddings,
# overrides and isolates reorder what comes after them, so they go; line and paragraph
# separators are no line ends here.
_VISIBLE: Final[dict[int, str]] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)},
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd"),
    **dict.fromkeys((0x2028, 0x2029), " "),
}


class Cleaner:
    """Makes streamed text safe to write, whatever way it is cut into deltas.

    Tabs and line feeds stay; CR LF is one line feed. A surrogate pair that was cut in two comes
    out as its character.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, delta: str) -> str:
        """The text to write for the next delta."""
        text = self._held + delta
        self._held = ""
        # The last character may be the first half of something.
        if text and (text[-1] == "\r" or "\ud800" <= text[-1] <= "\udbff"):
            text, self._held = text[:-1], text[-1]
        return _clean(text)

    def end(self) -> str:
        """What is left to write when no delta follows."""
        text, self._held = self._held, ""
        return _clean(text)


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """Text that is safe to write within a line: no line ends, at most `limit` characters."""
    # What is cut away need not be cleaned: this may be megabytes.
    flat = _clean(text[: limit + 1]).replace("\n", "⏎").replace("\t", " ")
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


class Renderer:
    """Writes a conversation to `out`, and what went wrong in it to `err`.

    `styled` says whether escape sequences for colours may be written; by default they are
    where the stream is a terminal that wants them (`NO_COLOR`, `TERM=dumb`). `columns` is the
    width of the terminal, 0 where `out` is none. `clock` gives seconds.
    """

    def __init__(
        self,
        out: TextIO | None = None,
        err: TextIO | None = None,
        *,
        styled: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.out = sys.stdout if out is None else out
        self.err = sys.stderr if err is None else err
        self.styled = _wants_colours(self.out) if styled is None else styled
        self._err_styled = _wants_colours(self.err) if styled is None else styled
        self._styles = {name: Style.parse(style) for name, style in STYLES.items()}
        self.columns = max(40, get_terminal_size().columns) if self.out.isatty() else 0
        self._at_start = True  # of a line
        self._blank_lines = 0  # that the text ends with and that are only written if it goes on
        self._block = ""  # what the last lines belong to; an empty line sets blocks apart
        self._open = ""  # the id of what the line that is being written belongs to
        self._items: dict[str, _Item] = {}
        self._agents: dict[str, str] = {}
        self._tools: dict[str, str] = {}  # of the calls of all runs: one may be answered later
        self._clock = clock
        self._floor: str | None = None  # who has it: a subagent, "" the agent itself, or nobody
        self._spoke = 0.0  # when that one was last heard
        self._active: set[str] = set()  # subagents that are announced and not finished
        self._speaking: dict[str, int] = {}  # how many messages and calls each one has open
        self._waiting: dict[str, list[Event]] = {}  # what each one has said without the floor
        self._activities: dict[str, _Activity] = {}

    # -- what the chat says itself -----------------------------------------------------

    def user(self, text: str) -> None:
        """Echoes a message of the user's that was not typed at a prompt."""
        self._begin("user")
        self._write("> ", "user")
        self._write(f"{_clean(text)}\n", "label")

    def before_prompt(self) -> None:
        """Makes room for a prompt."""
        self._begin("user")
        self.out.flush()

    def typed(self, *, newline: bool = False) -> None:
        """Takes note that the user ended a line at the prompt; or ends it, when he left it."""
        self._at_start = not newline
        self._finish_line()

    def note(self, text: str) -> None:
        """A line of the chat's own."""
        self._begin("note")
        self._write(f"{_clean(text)}\n", "aside")

    def error(self, text: str) -> None:
        """A line that says what went wrong."""
        self._complain(f"✗ {text}", "error")

    def warning(self, warning: ProtocolWarning) -> None:
        """A line that says what was lost without ending the run."""
        self._complain(f"! {warning}", "warning")

    def end(self) -> None:
        """Ends the run's output, wherever in it the run broke off."""
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
        self._finish_line()
        self._items.clear()
        self.out.flush()

    # -- what the agent sends ----------------------------------------------------------

    def event(self, event: Event) -> None:
        """Writes what the event adds to the conversation, now or when it is its turn."""
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
        if self._waiting and self._clock() - self._spoke >= SILENCE_SECONDS:
            self._floor = None
            self._hear_waiting()
        self._show_activities(due=self._clock())
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
            return self._at_start
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
            elif self._floor and self._at_start and "" in self._waiting:
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
                name = event.name or ""
                role = "" if event.role in (UNSET, "assistant") else str(event.role)
                key = f"text {event.message_id}"
                self._items[key] = _Item(
                    key,
                    "text",
                    label=one_line(name or role, 60),
                    owner=self._owner(event),
                )
            case ReasoningMessageStartEvent():
                key = f"reasoning {event.message_id}"
                self._items[key] = _Item(key, "reasoning", "thinking", owner=self._owner(event))
            case ToolCallStartEvent():
                name = self._tools[event.tool_call_id] = one_line(event.tool_call_name, 60)
                key = f"call {event.tool_call_id}"
                item = _Item(key, "call", label=name, owner=self._owner(event))
                self._items[key] = item
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
                self._result(event)
            case StateSnapshotEvent():
                self._aside(f"≡ state: {_outline(event.snapshot)}", "state")
            case StateDeltaEvent():
                self._aside(f"≡ state: {_changes(event.delta)}", "state")
            case ActivitySnapshotEvent():
                self._activities.pop(event.message_id, None)
                self._aside(f"◇ {event.activity_type}: {_outline(event.content)}", "state")
            case ActivityDeltaEvent():
                activity = self._activities.setdefault(event.message_id, _Activity())
                activity.label = event.activity_type
                activity.changes = _last_of_each([*activity.changes, *event.patch])
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
                    how += f": {_outline(event.result)}"
                self._aside(f"◆ {self._agent(event.subagent_run_id)} {how}", "step")
            case SubagentErrorEvent():
                self._aside(
                    f"◆ {self._agent(event.subagent_run_id)} failed: {event.message}", "error"
                )
            case MessagesSnapshotEvent():
                self._aside(f"≡ messages: {len(event.messages)} restated", "state")
            case CustomEvent():
                self._aside(f"◇ {event.name}: {_brief(event.value)}", "aside")
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

    def _finished(self, event: RunFinishedEvent) -> None:
        self.end()
        if event.result is not UNSET:
            self._aside(f"= result: {_outline(event.result, 200)}", "result")
        match event.outcome:
            case RunFinishedCancelledOutcome():
                self._aside("■ The agent stopped the run before it was complete.", "warning")
            case RunFinishedInterruptOutcome():
                for interrupt in event.outcome.interrupts:
                    self._question(interrupt)
        self._usage(event.usage)

    def _question(self, interrupt: Interrupt) -> None:
        """What the agent asks; of a diff in it, the lines are coloured as such."""
        said, _, more = (interrupt.message or "").replace("\r\n", "\n").partition("\n")
        self._aside(f"? The agent asks ({interrupt.reason}): {said}".rstrip(), "warning", rows=4)
        lines = more.strip("\n").split("\n") if more.strip() else []
        is_diff = any(line.startswith("@@ ") for line in lines)
        for line in lines[:MAX_QUESTION_LINES]:
            self._aside(line, _diff_style(line) if is_diff else "text", rows=4)
        if len(lines) > MAX_QUESTION_LINES:
            self._aside(f"… {plural(len(lines) - MAX_QUESTION_LINES, 'more line')}", "aside")

    def _show_activities(self, *, due: float | None = None) -> None:
        """Shows the changes that are held back: all, or between lines those due by this time."""
        if due is not None and not self._at_start:
            return
        for activity in self._activities.values():
            if activity.changes and (due is None or due - activity.shown >= ACTIVITY_SECONDS):
                changes, activity.changes = activity.changes, []
                activity.shown = self._clock()
                self._aside(f"◇ {activity.label}: {_changes(changes)}", "state")

    def _usage(self, usage: list[TokenUsage] | UnsetType) -> None:
        for entry in usage or ():
            counts = [
                f"{count:,} {way}"
                for count, way in ((entry.input_tokens, "in"), (entry.output_tokens, "out"))
                if count is not UNSET
            ]
            model = f" ({entry.model})" if entry.model else ""
            self._aside(f"tokens: {', '.join(counts) or 'not reported'}{model}", "aside")

    def _result(self, event: ToolCallResultEvent) -> None:
        if event.subagent_run_id is UNSET:
            self._show_activities()
        under_its_card = self._block == "aside" and self._open == f"end call {event.tool_call_id}"
        name = "" if under_its_card else f"{self._tools.get(event.tool_call_id, 'result')}: "
        content = event.content
        text = content if isinstance(content, str) else " ".join(map(_part, content))
        lines = text[: MAX_RESULT_LINES * MAX_LINE].strip().split("\n")
        self._aside(f"└ {name}{lines[0].rstrip()}", "result", rows=2)
        for line in lines[1:MAX_RESULT_LINES]:
            self._aside(f"  {line.rstrip()}", "result")
        if (more := text.strip().count("\n") + 1 - MAX_RESULT_LINES) > 0:
            self._aside(f"  … {more:,} more line{'' if more == 1 else 's'}", "aside")

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
            if item.cut:
                self._stream(item, "")
                self._write(f"… and {item.cut:,} more characters", "aside")
            if self._open == key:
                self._finish_line()
                self._open = f"end {key}"
        elif self._open == key:
            self._finish_line()

    def _stream(self, item: "_Item", text: str) -> None:
        """Goes on with a message or a call, on a line of its own if another was between."""
        if item.kind != "call" and not item.begun:
            text = text.lstrip("\n")
            if not text:
                return
        if self._open != item.key:
            self._begin("aside" if item.kind == "call" else item.key)
            self._open = item.key
            again = "… " if item.begun else ""
            if item.kind == "call":
                self._write(f"  ● {item.owner}{again}{item.label} ", "card")
            elif item.owner or item.label or again:
                mark = f"{item.label}: " if item.label else ""
                self._write(
                    f"{again}{item.owner}{mark}",
                    "reasoning" if item.kind == "reasoning" else "label",
                )
            item.begun = True
        if item.kind == "call":
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
    length: int = 0  # of a call's arguments so far
    cut: int = 0  # how much of it is not shown
    cleaner: Cleaner = field(default_factory=Cleaner)


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


def _clean(text: str) -> str:
    text = text.replace("\r\n", "\n")
    if text.isascii() and text.isprintable():
        return text
    # Two halves of a pair next to each other are one character.
    return (
        text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").translate(_VISIBLE)
    )


def _brief(value: Any, limit: int = 40) -> str:
    """A JSON value in a few characters; of lists and objects, how much they hold."""
    if isinstance(value, str):
        value = value if len(value) <= limit else value[: limit - 1] + "…"
    elif isinstance(value, list):
        return "[]" if not value else f"[{plural(len(value), 'item')}]"
    elif isinstance(value, dict):
        return "{}" if not value else f"{{{plural(len(value), 'key')}}}"
    return json.dumps(value, ensure_ascii=False)


def _outline(value: Any, limit: int = 40) -> str:
    """A whole state or result: its top-level members, each in a few characters."""
    if not isinstance(value, dict) or not value:
        return _brief(value, limit)
    members = [f"{key} = {_brief(member)}" for key, member in islice(value.items(), MAX_CHANGES)]
    return _listed(members, len(value))


def _changes(patch: Sequence[Mapping[str, Any]]) -> str:
    """A JSON Patch: which paths it changes, and to what."""
    changes = []
    for operation in patch[:MAX_CHANGES]:
        path = operation["path"] or "(all)"
        match operation["op"]:
            case "add" | "replace":
                changes.append(f"{path} = {_brief(operation['value'])}")
            case "remove":
                changes.append(f"{path} removed")
            case "move" | "copy" as how:
                done = "moved" if how == "move" else "copied"
                changes.append(f"{path} {done} from {operation['from']}")
    return _listed(changes, len(changes) + max(0, len(patch) - MAX_CHANGES)) or "unchanged"


def _last_of_each(patch: list[Any]) -> list[Any]:
    """A patch without the operations on a path that a later one replaces."""
    last = {operation["path"]: at for at, operation in enumerate(patch)}
    return [
        operation
        for at, operation in enumerate(patch)
        if operation["op"] != "replace" or last[operation["path"]] == at
    ]


def _diff_style(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return "place"
    return {"+": "added", "-": "removed"}.get(line[:1], "text")


def _listed(some: list[str], of: int) -> str:
    more = f" and {of - len(some)} more" if of > len(some) else ""
    return ", ".join(some) + more


def _part(part: ContentPart) -> str:
    """A part of a tool's result; what is no text is named and not shown (TOOL-10, TOOL-12)."""
    if isinstance(part, TextPart):
        return part.text
    kind = part.source.mime_type
    return f"[{part.type}{f' {kind}' if kind else ''}]"
