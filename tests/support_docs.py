"""Pages of the documentation as programs: their code blocks, and what running them shows.

A page runs in a folder of its own, from its first block to its last, as a reader would follow it:

- `python` that begins with the comment `# name.py` is written to that file, and appended with
  `# name.py, continued`. One that begins with `# notebook` is a cell: all cells of the page run in
  one process, where `await` stands anywhere, and where `input` is answered by yes. Any other one is
  a program of its own. A block of `text` right behind a cell or a program is what it prints.
- `console` holds commands after `$ `, each followed by what it prints, if that matters; `...`
  stands for anything. A server is left running until the page ends, or until the next one takes
  its port. Behind `aguia chat URL`, what stands after a prompt is typed there: `> `, `field> `
  in a form, `field, yes or no? ` where it decides, `Run tool? ` where consent is asked for.
- `json`, `yaml` and `toml` must parse. These, and all others, are written to the file that they
  name in a comment at their top, or in an HTML comment above them.
- `text` on its own is there to be looked at, and a directive (`{name}`) is run by the build.

The ports 8000 to 8999 are others in each run, so that pages can run side by side.
"""

import fnmatch
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
import yaml
from markdown_it import MarkdownIt

from support_terminal import CTRL_D, ENTER, Terminal

__all__ = [
    "Block",
    "blocks_of",
    "commands_of",
    "matches",
    "missing_commands",
    "page_paths",
    "run_page",
]

SECONDS: Final = 60.0
"""How long a command may take, and a server until it answers."""

COMMENTS: Final = {
    "python": "#", "yaml": "#", "toml": "#", "ini": ";", "nginx": "#", "js": "//", "css": "/*",
}  # fmt: skip
PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}
FILES_ONLY: Final = frozenset({"nginx", "js", "html", "css", "ini"})

_PORT: Final = re.compile(
    r"((?:127\.0\.0\.1:|localhost:|0\.0\.0\.0:|--port[ =]|\blisten |\bport=|http\.server ))"
    r"(8[0-9]{3})\b"
)
_NAME: Final = re.compile(r"[\w./-]*\.[a-z]+")
_SERVER: Final = re.compile(
    r"(?:aguia (?:serve|replay)|uvicorn|nginx|python manage\.py runserver|python -m http\.server)\b"
)
_TYPED: Final = re.compile(r"(\w*>|(?:\w+, )?yes or no\?|Run \w+\?) (.+)")
_EXIT: Final = re.compile(r"\(exit code ([0-9]+)\)")

# Reads cells, one a line as JSON, and says of each what it printed. It stands in the loop that
# is running, as a notebook does, and has what a notebook has: a display, and a person, whose answer
# is always yes.
_NOTEBOOK: Final = """
import ast, asyncio, contextlib, inspect, io, json, sys, traceback


class Shown:
    def update(self, value):
        assert value._repr_html_().startswith("<")


def display(value, display_id=False):
    Shown().update(value)
    return Shown() if display_id else None


def answered(prompt=""):
    print(f"{prompt}yes")
    return "yes"


async def main():
    names = {"__name__": "__main__", "display": display, "input": answered}
    while line := await asyncio.to_thread(sys.stdin.readline):
        printed = io.StringIO()
        failed = None
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                code = compile(json.loads(line), "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                coroutine = eval(code, names)
                if inspect.iscoroutine(coroutine):
                    await coroutine
            except BaseException:
                failed = traceback.format_exc()
        print(json.dumps([printed.getvalue(), failed]), flush=True)


asyncio.run(main())
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, its line in the page, and the file it is for."""

    language: str
    text: str
    line: int
    file: str | None = None
    appends: bool = False

    @property
    def is_cell(self) -> bool:
        """Whether it is a cell of the page's notebook."""
        return self.language == "python" and self.text.startswith("# notebook\n")

    @property
    def is_program(self) -> bool:
        """Whether it is run where it stands."""
        return self.language == "python" and self.file is None


@dataclass(frozen=True)
class Command:
    """A command of a console block, and what stands below it."""

    command: str
    printed: tuple[str, ...]
    line: int

    @property
    def is_server(self) -> bool:
        """Whether it runs until it is stopped."""
        return bool(_SERVER.match(self.command) and "--help" not in self.command) or (
            self.command.endswith(" &")
        )


def blocks_of(source: str) -> list[Block]:
    """Return the code blocks of a page in Markdown, in order."""
    found: list[Block] = []
    named: str | None = None
    for token in MarkdownIt().parse(source):
        if token.type == "html_block":
            match = re.search(r"<!-- file: (\S+) -->\s*$", token.content)
            named = match.group(1) if match else None
            continue
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            line = token.map[0] + 1
            language = token.info.strip()
            block = Block(language, token.content, line, named)
            found.append(block if named else _naming_itself(block))
        named = None
    return found


def _naming_itself(block: Block) -> Block:
    first = block.text.partition("\n")[0]
    mark = COMMENTS.get(block.language)
    if mark is None or not first.startswith(f"{mark} "):
        return block
    name, comma, rest = first.removeprefix(f"{mark} ").removesuffix("*/").strip().partition(", ")
    if not _NAME.fullmatch(name) or (comma and rest != "continued"):
        return block
    return replace(block, file=name, appends=bool(comma))


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a console block."""
    found: list[Command] = []
    lines = block.text.splitlines()
    number = 0
    while number < len(lines):
        start = number
        assert lines[start].startswith("$ "), (
            f"line {block.line + 1 + start}: output without command"
        )
        command = lines[start].removeprefix("$ ")
        while command.endswith("\\"):
            number += 1
            command = f"{command[:-1].rstrip()} {lines[number].strip()}"
        number += 1
        printed: list[str] = []
        while number < len(lines) and not lines[number].startswith("$ "):
            printed.append(lines[number])
            number += 1
        while printed and not printed[-1]:
            printed.pop()
        found.append(Command(command, tuple(printed), block.line + 1 + start))
    return found


def matches(expected: Iterable[str], printed: str, *, begins: bool = False) -> bool:
    """Whether what is printed is as expected, or begins so. `...` stands for anything."""
    pattern = "\n".join(line.rstrip() for line in expected)
    parts = [re.escape(part) for part in pattern.split("...")]
    # An ellipsis on a line of its own stands for no line as well.
    regex = ".*".join(parts).replace("\\\n.*\\\n", "\\\n(?:.*\\\n)?")
    text = "\n".join(line.rstrip() for line in printed.splitlines()).rstrip("\n")
    if begins:
        return re.match(rf"{regex}(?:\n|$|(?<=\n))", text, re.DOTALL) is not None
    return re.fullmatch(regex, text, re.DOTALL) is not None


class _Server:
    """A server of the page, from its start until it is stopped."""

    def __init__(self, page: "Page", command: Command, port: int | None) -> None:
        self.command = command
        self.port = port
        self._page = page
        self._log = page.folder.with_name(f"{page.folder.name}-{command.line}.log")
        line = command.command.removesuffix(" &")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=page.folder,
                env=page.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait(self) -> None:
        """Until it answers."""
        until = time.monotonic() + SECONDS
        while not self._answers():
            code = self._process.poll()
            if code is not None and self.port is not None:
                self._page.fail(self.command, f"the server ended with code {code}:\n{self.printed}")
            if time.monotonic() > until:
                self._page.fail(self.command, f"the server does not answer:\n{self.printed}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        if self.port is None:
            first = self.command.printed[:1]
            return not first or matches(first, self.printed, begins=True)
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def stop(self) -> None:
        """By Ctrl-C; then what it has printed is looked at."""
        self._signal(signal.SIGINT)
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._page.fail(self.command, f"Ctrl-C does not end it:\n{self.printed}")
        printed = self.printed
        if self.command.printed and not matches(self.command.printed, printed, begins=True):
            self._page.fail(self.command, _difference(self.command.printed, printed))

    def kill(self) -> None:
        """When there is no time for manners."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


@dataclass
class Page:
    """A page that is being run."""

    name: str
    folder: Path
    terminal: Callable[..., Terminal]
    environment: dict[str, str]
    ports: dict[str, int] = field(default_factory=dict)
    servers: list[_Server] = field(default_factory=list)
    notebook: "subprocess.Popen[str] | None" = None

    def fail(self, where: Command | Block, why: str) -> NoReturn:
        what = f"$ {where.command}" if isinstance(where, Command) else where.language
        pytest.fail(f"{self.name}:{where.line}: {what}\n{why}", pytrace=False)

    def run(self, blocks: list[Block]) -> None:
        """Run the blocks in order."""
        blocks = [replace(each, text=self._with_free_ports(each.text)) for each in blocks]
        for number, block in enumerate(blocks):
            following = blocks[number + 1] if number + 1 < len(blocks) else None
            expected = (
                following.text.splitlines() if following and following.language == "text" else None
            )
            if block.file is not None:
                self._write(block, block.file)
            elif block.is_cell:
                self._check(block, self._run_cell(block), expected)
            elif block.is_program:
                self._check(block, self._run_program(block), expected)
            elif block.language == "console":
                for command in commands_of(block):
                    self._run_command(command)

    def stop(self) -> None:
        """Stop what is running, and look at what it has printed."""
        while self.servers:
            self.servers[-1].stop()
            self.servers.pop()

    def close(self) -> None:
        """End what is left."""
        for server in self.servers:
            server.kill()
        if self.notebook is not None:
            self.notebook.kill()
            self.notebook.communicate()

    def _with_free_ports(self, text: str) -> str:
        return _PORT.sub(lambda match: f"{match[1]}{self._port(match[2])}", text)

    def _port(self, written: str) -> int:
        if written not in self.ports:
            self.ports[written] = _free_port()
        return self.ports[written]

    def _write(self, block: Block, name: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = block.text.partition("\n")[2].lstrip("\n") if block.appends else block.text
        with path.open("a" if block.appends else "w", encoding="utf-8") as file:
            file.write(f"\n\n{text}" if block.appends else text)
        if block.language == "python":
            compile(path.read_text(encoding="utf-8"), str(path), "exec")

    def _run_program(self, block: Block) -> str:
        return self._output_of(block, [sys.executable, "-c", block.text], 0)

    def _output_of(self, where: Command | Block, arguments: list[str], code: int) -> str:
        """What a process prints, which has to end in time and with this code."""
        try:
            done = subprocess.run(
                arguments,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            self.fail(where, f"it did not end:\n{(late.stdout or b'').decode(errors='replace')}")
        printed = done.stdout.decode(errors="replace")
        if done.returncode != code:
            self.fail(where, f"exit code {done.returncode}, not {code}:\n{printed}")
        return printed

    def _run_cell(self, block: Block) -> str:
        if self.notebook is None:
            self.notebook = subprocess.Popen(
                [sys.executable, "-c", _NOTEBOOK],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
            )
        assert self.notebook.stdin is not None
        assert self.notebook.stdout is not None
        self.notebook.stdin.write(f"{json.dumps(block.text)}\n")
        self.notebook.stdin.flush()
        printed, failed = json.loads(self.notebook.stdout.readline())
        if failed:
            self.fail(block, f"{printed}{failed}")
        return str(printed)

    def _check(self, block: Block, printed: str, expected: list[str] | None) -> None:
        if expected is not None and not matches(expected, printed):
            self.fail(block, _difference(expected, printed))

    def _run_command(self, command: Command) -> None:
        if command.is_server:
            self._serve(command)
        elif command.command.startswith("aguia chat ") and any(map(_TYPED.match, command.printed)):
            self._talk(command)
        else:
            self._run_to_its_end(command)

    def _serve(self, command: Command) -> None:
        line = command.command
        if re.match(r"aguia (?:serve|replay)\b|uvicorn\b", line) and "--port" not in line:
            line = re.sub(r"^(aguia \w+|uvicorn)", rf"\1 --port {self._port('8000')}", line)
        port = self._port_of(line)
        if port is not None:
            for server in [server for server in self.servers if server.port == port]:
                server.stop()
                self.servers.remove(server)
        started = _Server(self, replace(command, command=line), port)
        self.servers.append(started)
        started.wait()

    def _port_of(self, line: str) -> int | None:
        """The first of the page's ports that the command names, or a file that it names."""
        texts = [line]
        for word in shlex.split(line.removesuffix(" &")):
            path = self.folder / word
            if path.is_file():
                texts.append(path.read_text(encoding="utf-8"))
        known = set(self.ports.values())
        for text in texts:
            for number in re.findall(r"\b[0-9]{5}\b", text):
                if int(number) in known:
                    return int(number)
        return None

    def _run_to_its_end(self, command: Command) -> None:
        expected = list(command.printed)
        code = 0
        if expected and (match := _EXIT.fullmatch(expected[-1])):
            code = int(match.group(1))
            expected.pop()
        printed = self._output_of(command, ["bash", "-c", command.command], code)
        if expected and not matches(expected, printed):
            self.fail(command, _difference(expected, printed))

    def _talk(self, command: Command) -> None:
        arguments = shlex.split(command.command)[1:]
        environment = {"HOME": self.environment["HOME"], "PATH": self.environment["PATH"]}
        terminal = self.terminal(*arguments, cwd=self.folder, env=environment, columns=100, rows=60)
        seen: list[str] = []
        for line in command.printed:
            typed = _TYPED.fullmatch(line)
            if typed is not None:
                self._appear(command, terminal, seen)
                terminal.at_prompt(typed[1])
                terminal.type(typed[2], ENTER)
            seen.append(line)
        self._appear(command, terminal, seen)
        terminal.at_prompt()
        terminal.type(CTRL_D)
        code = terminal.ends()
        if code:
            self.fail(command, f"exit code {code}:\n{terminal.text}")

    def _appear(self, command: Command, terminal: Terminal, lines: list[str]) -> None:
        """Wait until these lines are on the screen in this order, whatever is in between."""
        wanted = [line.rstrip() for line in lines if line.strip() and line.strip() != "..."]

        def seen(text: str) -> bool:
            there = iter(text.splitlines())
            return all(
                any(fnmatch.fnmatchcase(line.rstrip(), _glob(want)) for line in there)
                for want in wanted
            )

        terminal.wait_until(seen, f"{self.name}:{command.line}: {wanted}")


def _glob(line: str) -> str:
    return re.sub(r"([\[?*])", r"[\1]", line).replace("...", "*")


def _difference(expected: Iterable[str], printed: str) -> str:
    wanted = "\n".join(expected)
    return f"--- the page says\n{wanted}\n--- it prints\n{printed}\n---"


def _free_port() -> int:
    # Below the range from which connections get theirs, so that none of them takes it.
    while True:
        port = random.randint(10_000, 32_000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def check_language(block: Block) -> None:
    """Raise `AssertionError` for a block that would not be run, and should be."""
    where = f"line {block.line}"
    assert block.language, f"{where}: a code block without a language"
    known = {"python", "console", "text", *PARSERS, *FILES_ONLY}
    if re.fullmatch(r"\{[a-z-]+\}.*", block.language):
        return
    assert block.language in known, f"{where}: nothing runs {block.language!r}"
    if block.language in PARSERS:
        PARSERS[block.language](block.text)
    if block.language in FILES_ONLY:
        assert block.file, f"{where}: a block of {block.language!r} has to name its file"


def run_page(path: Path, name: str, folder: Path, terminal: Callable[..., Terminal]) -> None:
    """Run the blocks of a page in `folder`, and fail where one does not do what the page says."""
    blocks = blocks_of(path.read_text(encoding="utf-8"))
    for block in blocks:
        check_language(block)
    home = folder.with_name(f"{folder.name}-home")
    home.mkdir()
    environment = {
        **{key: value for key, value in os.environ.items() if not _is_ours(key)},
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "PYTHONUNBUFFERED": "1",
    }
    if (folder / "src" / "aguia").is_dir():  # a copy of the repository
        environment["PYTHONPATH"] = str(folder / "src")
    page = Page(name, folder, terminal, environment)
    try:
        page.run(blocks)
        page.stop()
    finally:
        page.close()


def _is_ours(variable: str) -> bool:
    """Whether a variable of the environment is about these tests."""
    return variable.startswith(("COV", "PYTEST", "AGUIA_")) or variable == "CI"


def missing_commands(path: Path) -> Iterator[str]:
    """Yield the commands that the page uses and that are not installed."""
    for block in blocks_of(path.read_text(encoding="utf-8")):
        if block.language == "console":
            for command in commands_of(block):
                word = shlex.split(command.command)[0]
                if word in ("nginx", "curl", "node", "npm") and shutil.which(word) is None:
                    yield word


def page_paths(repository: Path) -> list[Path]:
    """Return the pages that people read, by their names."""
    found: list[Any] = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    found += [path for path in repository.glob("[A-Z]*.md") if path.name != "README.md"]
    found += (repository / "examples").rglob("*.md")
    return sorted(path for path in found if "node_modules" not in path.parts)
