"""The command on a terminal of its own, as a person has it: what is typed, and what is seen.

Starting an interpreter and importing what a chat needs takes longer than most conversations. So
one process does that once, and each terminal gets a fork of it.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyte
import pytest

__all__ = ["CTRL_C", "CTRL_D", "ENTER", "UP", "Origin", "Terminal", "origin_of_terminals"]

SECONDS: Final = 30.0

ENTER: Final = "\r"
CTRL_C: Final = "\x03"
CTRL_D: Final = "\x04"
UP: Final = "\x1b[A"

ORIGIN: Final = """
import fcntl, importlib, json, os, signal, sys, termios


def main():
    for name in ("app", "chat", "demo", "markdown", "prompt"):
        importlib.import_module(f"aguia.cli.{name}")
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            done, status = os.waitpid(request["poll"], os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if done else None
            print(json.dumps(code), flush=True)
        elif not os.fork():
            return begin(**request)


def begin(arguments, terminal, folder, environment):
    os.setsid()
    inner = os.open(terminal, os.O_RDWR)
    fcntl.ioctl(inner, termios.TIOCSCTTY, 0)
    print(os.getpid(), flush=True)
    for place in range(3):
        os.dup2(inner, place)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.__stderr__ = open(2, "w", 1, encoding="utf-8", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["aguia", *arguments]
    sys.path[0] = ""
    from aguia.cli import main

    main()


main()
"""


class Origin:
    """The process that terminals get forks of."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", ORIGIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock = threading.Lock()

    def ask(self, **request: Any) -> Any:
        """What it answers."""
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(f"{json.dumps(request)}\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """Ends it."""
        self._process.communicate(timeout=SECONDS)

    @contextmanager
    def terminals(self) -> Iterator[Callable[..., "Terminal"]]:
        """Starts commands on terminals; what is left of them ends with the block."""
        with ExitStack() as stack:

            def start(*arguments: str, **options: Any) -> Terminal:
                terminal = Terminal(self, *arguments, **options)
                stack.callback(terminal.close)
                return terminal

            yield start


@contextmanager
def origin_of_terminals() -> Iterator[Origin]:
    """An `Origin` while the block runs."""
    origin = Origin()
    try:
        yield origin
    finally:
        origin.close()


class Terminal:
    """A command on a pseudo-terminal, and the screen that shows what it writes.

    `raw` is all that was written, as it came, and `text` what a person sees of it now.
    """

    def __init__(
        self,
        origin: Origin,
        *arguments: str,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        columns: int = 80,
        rows: int = 40,
    ) -> None:
        import pty

        self._origin = origin
        self._pty, inner = pty.openpty()
        self._news = threading.Condition()
        self._screen = pyte.HistoryScreen(columns, rows, history=5_000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self._code: int | None = None
        self.raw = b""
        self.resize(columns, rows)
        environment = {**os.environ, "TERM": "xterm-256color"}
        for name in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE"):
            environment.pop(name, None)
        self.pid: int = origin.ask(
            arguments=arguments,
            terminal=os.ttyname(inner),
            folder=str(cwd or Path.cwd()),
            environment={**environment, **(env or {})},
        )
        os.close(inner)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):
            while data := os.read(self._pty, 65_536):
                with self._news:
                    self.raw += data
                    self._stream.feed(data)
                    self._news.notify_all()

    @property
    def text(self) -> str:
        """What is on the screen, and what has scrolled off it at the top."""
        with self._news:
            above = [
                "".join(line[column].data for column in range(self._screen.columns))
                for line in self._screen.history.top
            ]
            lines = [*above, *self._screen.display]
        return "\n".join(line.rstrip() for line in lines).rstrip()

    def wait_for(self, words: str, *, times: int = 1) -> str:
        """Waits until `words` are seen so often; what is seen then."""
        return self.wait_until(lambda text: text.count(words) >= times, repr(words))

    def wait_until(self, seen: Callable[[str], bool], what: str) -> str:
        """Waits until what is seen is as wanted; what is seen then."""
        until = time.monotonic() + SECONDS
        known = -1
        while time.monotonic() < until:
            over = self._poll() is not None
            if over:
                self._reader.join(1)
            if len(self.raw) != known:
                known = len(self.raw)
                if seen(text := self.text):
                    return text
            if over:
                break
            with self._news:
                self._news.wait_for(lambda: len(self.raw) != known, 0.2)  # noqa: B023
        pytest.fail(f"{what} did not appear in\n{self.text}\n{self.raw[-1000:]!r}")

    def at_prompt(self, prompt: str = ">") -> str:
        """Waits until the last line is this prompt with nothing behind it; what is seen then."""
        return self.wait_until(
            lambda text: text.rpartition("\n")[2] == prompt, f"the prompt {prompt!r}"
        )

    def type(self, *keys: str) -> None:
        """Types, one key or more at a time."""
        for key in keys:
            os.write(self._pty, key.encode())

    def say(self, words: str, prompt: str = ">") -> None:
        """Types a line at the prompt, and waits for the prompt first."""
        self.at_prompt(prompt)
        self.type(words, ENTER)

    def paste(self, text: str) -> None:
        """Pastes, as terminals mark it."""
        self.type(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, rows: int) -> None:
        """Changes the size of the terminal."""
        import fcntl
        import struct
        import termios

        with self._news:
            self._screen.resize(rows, columns)
        fcntl.ioctl(self._pty, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def interrupt(self) -> None:
        """Sends the signal that Ctrl-C makes."""
        os.kill(self.pid, signal.SIGINT)

    def _poll(self) -> int | None:
        if self._code is None:
            self._code = self._origin.ask(poll=self.pid)
        return self._code

    def ends(self) -> int:
        """Waits for the end; the exit code."""
        until = time.monotonic() + SECONDS
        while (code := self._poll()) is None:
            if time.monotonic() > until:
                pytest.fail(f"it did not end:\n{self.text}")
            time.sleep(0.01)
        self._reader.join(SECONDS)
        return code

    def close(self) -> None:
        """Ends what is left of it."""
        if self._poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.ends()
        self._reader.join(SECONDS)
        os.close(self._pty)
