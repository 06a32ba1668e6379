"""Lines from the person at the terminal: an editor with a history, and plain questions.

The editor is `prompt_toolkit`'s. Nothing that comes from an agent is ever given to it to parse:
labels are plain text, and it shows control characters as such.
"""

import os
import stat
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import DummyHistory, FileHistory, History, InMemoryHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth, create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle

from aguia.cli.tty import Interrupted, Left, forget_typed

__all__ = ["Editor", "default_history"]

MAX_HISTORY_BYTES: Final = 1_000_000
"""A history that is larger is cut to its newer half."""

MAX_LABEL: Final = 60


def default_history() -> Path:
    """Where what was typed is kept: in the folder for the state of a user's programs."""
    folder = os.environ.get("XDG_STATE_HOME", "")
    base = Path(folder) if os.path.isabs(folder) else Path("~/.local/state").expanduser()
    return base / "aguia" / "history"


class Editor:
    """Asks for lines on the terminal.

    `history` is the file that what was said is kept in, for no eyes but the user's; None keeps
    it in memory. `commands` are the commands to complete, `files` those of them that take the path
    of a file.
    """

    def __init__(
        self,
        *,
        styled: bool,
        history: Path | None = None,
        commands: Sequence[str] = (),
        files: Sequence[str] = (),
    ) -> None:
        output = create_output(sys.stdout)
        if isinstance(output, Vt100_Output):
            # Where the cursor is matters to menus, and there are none. A terminal that answers
            # the question late would have its answer typed into the next line.
            output.enable_cpr = False
        shared: dict[str, Any] = {
            "input": create_input(sys.stdin),
            "output": output,
            "color_depth": None if styled else ColorDepth.DEPTH_1_BIT,
            "enable_suspend": True,
            "interrupt_exception": Interrupted,
            "eof_exception": Left,
        }
        kept: History = InMemoryHistory() if history is None else _KeptHistory(history)
        self._mark: StyleAndTextTuples = [("bold ansicyan" if styled else "", "> ")]
        self._message: PromptSession[str] = PromptSession(
            **shared,
            history=kept,
            multiline=True,
            prompt_continuation="  ",
            completer=_Commands(commands, files),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            enable_open_in_editor=True,
            key_bindings=_keys(multiline=True),
        )
        self._answer: PromptSession[str] = PromptSession(
            **shared, history=DummyHistory(), key_bindings=_keys(multiline=False)
        )

    async def message(self) -> str:
        """What the person says, of one line or several.

        Raises:
            Interrupted: Ctrl-C.
            Left: Ctrl-D.
        """
        return await self._message.prompt_async(self._mark)

    async def answer(self, label: str) -> str:
        """One line that answers a question; `label` stands before it. Raises as `message`."""
        mark = " " if label.endswith("?") else "> "
        return await self._answer.prompt_async([("bold", f"{label[:MAX_LABEL]}{mark}")])

    def forget_typed(self) -> None:
        """Forgets what was typed before there was a question that it could answer."""
        clear_typeahead(self._answer.app.input)
        clear_typeahead(self._message.app.input)
        forget_typed()


# -- keys ------------------------------------------------------------------------------


def _keys(*, multiline: bool) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("c-c")
    @keys.add(Keys.SIGINT)
    def take_back(event: KeyPressEvent) -> None:
        """Takes back what is typed, or else interrupts."""
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=Interrupted())

    if multiline:

        @keys.add("enter")
        def enter(event: KeyPressEvent) -> None:
            """Sends what is typed; after a backslash, begins another line."""
            typed: Buffer = event.current_buffer
            if typed.document.text_before_cursor.endswith("\\"):
                typed.delete_before_cursor()
                typed.newline(copy_margin=False)
            else:
                typed.validate_and_handle()

        @keys.add("escape", "enter")
        def another_line(event: KeyPressEvent) -> None:
            """Begins another line."""
            event.current_buffer.newline(copy_margin=False)

    return keys


class _Commands(Completer):
    """Completes the chat's commands, and paths behind them and behind an @."""

    def __init__(self, commands: Sequence[str], files: Sequence[str]) -> None:
        self._commands = commands
        self._files = tuple(f"{command} " for command in files)
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        """What could stand where the cursor is."""
        text = document.text_before_cursor
        if text.startswith("/") and not any(space in text for space in " \n"):
            for command in self._commands:
                if command.startswith(text):
                    yield Completion(command, start_position=-len(text))
            return
        word = text.rsplit(None, 1)[-1] if text and not text[-1].isspace() else ""
        if text.startswith(self._files):
            path = text.split(" ", 1)[1].lstrip()
        elif word.startswith("@"):
            path = word[1:]
        else:
            return
        yield from self._paths.get_completions(Document(path), event)


# -- history ---------------------------------------------------------------------------


class _KeptHistory(FileHistory):
    """A history in a file of the user's own; where that fails, one for this time only."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """What was typed before, the newest first."""
        try:
            self._shorten()
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Appends what was typed."""
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)
            place = os.open(self._path, flags, 0o600)
            try:
                if stat.S_ISREG(os.fstat(place).st_mode):
                    if hasattr(os, "fchmod"):
                        os.fchmod(place, 0o600)
                    lines = "".join(f"+{line}\n" for line in string.split("\n"))
                    os.write(place, f"\n# \n{lines}".encode("utf-8", "replace"))
            finally:
                os.close(place)

    def _shorten(self) -> None:
        if self._path.stat().st_size <= MAX_HISTORY_BYTES:
            return
        kept = self._path.read_bytes()[-MAX_HISTORY_BYTES // 2 :]
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        place = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(place, "wb") as file:
            # An entry begins behind an empty line.
            file.write(kept[max(0, kept.find(b"\n\n") + 1) :])
        os.replace(beside, self._path)
