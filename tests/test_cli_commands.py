"""The `aguia` command as a person and a script meet it: real HTTP on loopback.

Servers, signals and terminals are tested with real processes. What is run to its end without
any of these runs in this process: starting an interpreter costs more than most tests.
"""

import importlib
import io
import json
import logging
import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, Final

import httpx
import pytest
import typer.main

from aguia import PROTOCOL_VERSION, __version__
from aguia.cli import check, main, record
from aguia.cli.answers import WrongAnswer, answer_from, decision, how_to_answer
from aguia.cli.app import app
from aguia.cli.failures import explain
from aguia.cli.serve import load
from aguia.protocol.errors import ConnectionFailed
from aguia.protocol.outcomes import Interrupt
from aguia.protocol.schema import json_schema
from aguia.testing.probes import ProbeSettings

SECONDS = 30.0

posix = pytest.mark.skipif(os.name != "posix", reason="signals and terminals as POSIX has them")

AGENTS = """
import asyncio

from dataclasses import dataclass
from enum import Enum

from aguia.server import AgentApp, Run, RunError

number = 5


class Colour(Enum):
    RED = "red"
    QUIT = "quit"


@dataclass
class Order:
    colour: Colour
    number: int
    note: str = ""


async def agent(run: Run) -> None:
    said = run.messages[-1].content if run.messages else ""
    if run.resume:
        said = "resumed"
    match said:
        case "fail":
            raise RunError("no credit", "quota")
        case "crash":
            raise ValueError("a secret detail")
        case "slow":
            async with run.text() as text:
                for _ in range(600):
                    await text.write("tick ")
                    await asyncio.sleep(0.05)
        case "ask":
            await run.emit(
                {
                    "type": "RUN_FINISHED",
                    "threadId": run.thread_id,
                    "runId": run.run_id,
                    "outcome": {
                        "type": "interrupt",
                        "interrupts": [
                            {"id": "i1", "reason": "approval", "message": "Delete it?"},
                            {"id": "i2", "reason": "input", "message": "And how?"},
                        ],
                    },
                }
            )
        case "approve":
            async with run.tool_call("delete", "{}") as call:
                pass
            run.interrupt(
                "approval",
                message="Delete it?",
                tool_call_id=call.tool_call_id,
                response_type=bool,
            )
            members = {"approved": {"type": "boolean"}, "note": {"type": "string"}}
            run.interrupt(
                "approval",
                message="And the rest?",
                response_schema={"type": "object", "properties": members},
            )
        case "choose":
            run.interrupt("input", message="Which colour?\\nThink.", response_type=Colour)
        case "order":
            run.interrupt("input", message="What shall it be?", response_type=Order)
        case "resumed":
            answers = [(e.interrupt_id, e.status, e.payload or None) for e in run.resume]
            async with run.text() as text:
                await text.write(repr(answers))
        case "frontend":
            async with run.tool_call("open_window", "{}"):
                pass
        case "evil":
            async with run.text() as text:
                await text.write("\\x1b[2Jgone\\x07\\n")
        case _:
            tools = [m.content for m in run.messages if m.role == "tool"]
            async with run.text() as text:
                await text.write(f"You said {said!r}; tools said {tools}.")


app = AgentApp(agent, path="/agent")


class Methods:
    async def agent(self, run: Run) -> None:
        async with run.text() as text:
            await text.write("a method")


methods = Methods()
"""


@dataclass
class Done:
    """How the command ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def aguia(*arguments: str, cwd: Path | None = None, input: str = "") -> Done:
    """Runs the command to its end in this process, without a terminal."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    logger = logging.getLogger("aguia")
    before, level = set(sys.modules), logger.level
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["aguia", *arguments])
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "stdin", io.StringIO(input))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        if cwd is not None:
            patch.chdir(cwd)
            importlib.invalidate_caches()
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            logger.setLevel(level)
            for name in set(sys.modules) - before:
                if cwd is not None and str(cwd) in str(getattr(sys.modules[name], "__file__", "")):
                    del sys.modules[name]
    written = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Done(int(ended.value.code or 0), *written)


def process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "aguia", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
    )


def line_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().rstrip("\n")


@contextmanager
def serving(*arguments: str, cwd: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`aguia serve` on a free port: its URL and its process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "aguia", "serve", *arguments, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=cwd,
    )
    try:
        match = re.search(r" at (http://\S+)$", line_of(process.stdout))
        if match is None:
            process.kill()
            pytest.fail(process.communicate()[1])
        yield match[1], process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=SECONDS)


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agents")
    (folder / "agents.py").write_text(AGENTS)
    return folder


@pytest.fixture(scope="module")
def url(agents: Path) -> Iterator[str]:
    with serving("agents:agent", cwd=agents) as (url, _):
        yield url


# -- the command itself ----------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["", "serve", "chat", "check", "rules", "probe", "record", "replay", "corpus", "corpus run"],
)
def test_help_is_written_for_people(command: str) -> None:
    """Nothing of it is cut, and no type or name of the code's own is in it."""
    done = aguia(*command.split(), "--help")
    assert done.returncode == 0
    assert not re.search(r"<\w+|\{\w+|\[\[", done.stdout), done.stdout
    listed = done.stdout.partition("Commands:")[2]
    assert "..." not in listed


def _commands(group: Any, *names: str) -> Iterator[tuple[list[str], Any]]:
    """All commands with the names that they are called by."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, *names, name)
        else:
            yield [*names, name], command


EXAMPLES: Final = [
    line.strip().partition("  ")[0].partition(" > ")[0]
    for _, command in _commands(typer.main.get_command(app))
    for line in (command.epilog or "").splitlines()[2:]
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_help_are_right(example: str) -> None:
    program, *words = shlex.split(example)
    assert program == "aguia"
    [(names, command)] = [
        (names, command)
        for names, command in _commands(typer.main.get_command(app))
        if words[: len(names)] == names
    ]
    command.make_context(" ".join(names), words[len(names) :])  # refuses what it does not take


def test_every_command_has_an_example_and_defaults_are_told() -> None:
    without = [
        names for names, command in _commands(typer.main.get_command(app)) if not command.epilog
    ]
    assert without == [["demo"], ["schema"]]
    for command, message in (
        ("check", check.MESSAGE),
        ("probe", ProbeSettings().message),
        ("probe", ProbeSettings().tool),
        ("record", record.MESSAGE),
    ):
        told = " ".join(aguia(command, "--help").stdout.split())
        assert f"[default: {message}]" in told


def test_version_and_help() -> None:
    asked = process("--version")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout == f"aguia {__version__} (AG-UI {PROTOCOL_VERSION})\n"
    told = aguia("--help")
    assert told.returncode == 0
    for command in ("serve", "chat", "demo", "probe", "record", "replay", "schema"):
        assert command in told.stdout


def test_schema_is_the_schema_of_the_types() -> None:
    printed = aguia("schema")
    assert printed.returncode == 0
    assert json.loads(printed.stdout) == json.loads(json.dumps(json_schema()))


def test_wrong_usage_is_said_without_a_traceback() -> None:
    for arguments in (["bogus"], ["chat"], ["serve", "--port", "high"], ["serve", "--port", "1e5"]):
        done = aguia(*arguments)
        assert done.returncode == 2, arguments
        assert "Error" in done.stderr
        assert "Traceback" not in done.stderr


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util as u\n"
        "found = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'typer' else found(name, *a)\n"
        "from aguia.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "aguia: the command needs typer: pip install 'aguia[cli]'\n"


def test_starting_up_loads_no_server_client_or_renderer() -> None:
    code = (
        "import sys, aguia.cli, aguia.cli.app\n"
        "print([m for m in ('uvicorn', 'httpx', 'starlette', 'rich', 'pathspec') "
        "if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert done.stdout == "[]\n"


# -- serve -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("nowhere:agent", 2, "no module 'nowhere'"),
        ("agents.deeper:agent", 2, "no module 'agents.deeper'"),
        ("agents:agant", 2, "the module 'agents' has no 'agant'; it has agent"),
        ("agents:number", 2, "is an int"),
        ("agents:Methods", 2, "'agents:Methods' is a class; name a function that takes a Run"),
        ("agents:AgentApp", 2, "'agents:AgentApp' is a class"),
        (
            "odd:nothing",
            2,
            "takes a Run, and nothing() can't be called with one argument: too many",
        ),
        (
            "web:app",
            2,
            "'web:app' is an ASGI application, which a server of its own runs: uvicorn web:app",
        ),
        ("web:plain", 2, "is an ASGI application"),
        ("agents.py:agent", 2, "leave out .py: an agent is named as a module, agents:agent"),
        ("agents.py", 2, "leave out .py"),
        (
            "./inner/agents.py:one",
            2,
            "leave out .py: an agent is named as a module, inner.agents:one",
        ),
        ("/inner/agents.py:one", 2, "does not look like module:agent"),
        ("agents", 0, ""),
        ("no such:thing", 2, "does not look like module:agent"),
        ("broken:agent", 2, "ZeroDivisionError: division by zero"),
        ("crooked:agent", 2, "SyntaxError"),
        ("needy:agent", 2, "No module named 'not_installed'"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    agents: Path, name: str, code: int, words: str
) -> None:
    (agents / "broken.py").write_text("\n1 / 0\n")
    (agents / "odd.py").write_text("async def nothing(): ...\n")
    (agents / "web.py").write_text(
        "from starlette.applications import Starlette\n"
        "app = Starlette()\n"
        "async def plain(scope, receive, send): ...\n"
    )
    (agents / "crooked.py").write_text("def (:\n")
    (agents / "needy.py").write_text("import not_installed\n")
    if code == 0:
        with serving(name, cwd=agents) as (url, _):
            assert "You said" in aguia("chat", url, "hi").stdout
        return
    done = aguia("serve", name, "--port", "0", cwd=agents)
    assert done.returncode == code
    assert words in done.stderr
    assert done.stderr.startswith("aguia: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_the_place_of_an_error_in_the_module_is_named(agents: Path) -> None:
    (agents / "broken.py").write_text("\n1 / 0\n")
    assert "broken.py, line 2" in aguia("serve", "broken", "--port", "0", cwd=agents).stderr


@pytest.mark.parametrize("name", ["agents:app", "agents:methods.agent"])
def test_an_application_and_a_method_are_served_as_well(agents: Path, name: str) -> None:
    with serving(name, cwd=agents) as (url, _):
        path = "agent" if name == "agents:app" else ""
        done = aguia("chat", url + path, "hi")
        assert done.returncode == 0
        assert done.stdout.strip()
        if path:
            wrong = aguia("chat", url + "elsewhere", "hi")
            assert wrong.returncode == 1
            assert "answers 404 to a POST. Check the path." in wrong.stderr


def test_exceptions_are_told_to_clients_if_one_asks_for_it(agents: Path) -> None:
    with serving("agents", "--expose-errors", cwd=agents) as (url, _):
        done = aguia("chat", url, "crash")
        assert done.returncode == 1
        assert "a secret detail" in done.stderr
    refused = aguia("serve", "agents:app", "--expose-errors", "--port", "0", cwd=agents)
    assert refused.returncode == 2
    assert "AgentApp(..., expose_errors=True)" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_pages_of_an_origin_may_call_if_one_says_so(agents: Path) -> None:
    origins = ["http://localhost:5173", "https://app.example.com"]
    options = [option for origin in origins for option in ("--allow-origin", origin)]
    with serving("agents", *options, cwd=agents) as (url, _):
        for origin in (*origins, "https://evil.example.com"):
            asked = {"origin": origin, "access-control-request-method": "POST"}
            answer = httpx.options(url, headers=asked, verify=False)
            allowed = answer.headers.get("access-control-allow-origin")
            assert allowed == (origin if origin in origins else None)
    for name, origin, words in (
        ("agents:app", origins[0], "AgentApp(..., allow_origins=['http://localhost:5173'])"),
        ("agents", "http://localhost:5173/", "'http://localhost:5173/' is no origin"),
    ):
        refused = aguia("serve", name, "--allow-origin", origin, "--port", "0", cwd=agents)
        assert refused.returncode == 2
        assert words in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_a_port_in_use_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = aguia("serve", "--port", str(port), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"aguia: port {port} on 127.0.0.1 is in use by another program; choose another with"
        " --port, or 0 for a free one\n"
    )


@pytest.mark.parametrize("host", ["203.0.113.7", "nosuchhost.invalid", "a..b"])
def test_a_foreign_address_is_one_line(tmp_path: Path, host: str) -> None:
    done = aguia("serve", "--host", host, "--port", "0", cwd=tmp_path)
    assert done.returncode == 1
    assert f"'{host}' is no address" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_plain_function_is_served_with_a_word_of_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain_agents.py").write_text(
        "def plain(run): return 'hi'\ndef told(run) -> 'Awaitable[None]': ...\n"
        "def generator(run): yield {}\nasync def agent(run): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    load("plain_agents:plain")
    assert capsys.readouterr().err.startswith(
        "aguia: mind that 'plain_agents:plain' is neither async nor a generator: "
    )
    for name in ("told", "generator", "agent"):
        load(f"plain_agents:{name}")
    assert capsys.readouterr().err == ""


@posix
def test_ctrl_c_ends_the_server_with_0_and_without_a_traceback(agents: Path) -> None:
    with serving("agents:agent", cwd=agents) as (url, process):
        assert line_of(process.stdout) == f"Talk to it with: aguia chat {url}"
        client = subprocess.Popen(
            [sys.executable, "-m", "aguia", "chat", url, "slow"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        assert client.stdout is not None
        assert client.stdout.read(4) == "tick"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        assert err == ""
        assert out.endswith("Waiting for 1 run to end; Ctrl-C once more does not wait.\n")
        _, err = client.communicate(timeout=SECONDS)
        assert client.returncode == 3, "told as cancelled, and so neither success nor failure"
        assert "Traceback" not in err


def test_the_assistant_serves_its_folder_to_this_machine_only(tmp_path: Path) -> None:
    """A page that points its own host name at 127.0.0.1 gets no answer, nor does any other page."""
    (tmp_path / "note.txt").write_text("a needle\n")
    with serving(cwd=tmp_path) as (url, _):
        assert "note.txt:1: a needle" in aguia("chat", url, "find", "needle").stdout
        refused = aguia("chat", "--header", "Host: evil.example", url, "find", "needle")
        assert refused.returncode == 1
        assert "needle" not in refused.stdout
        assert "421" in refused.stderr
        for origin in ("https://evil.example", "http://127.0.0.1.evil.example", "null", "http://["):
            refused = aguia("chat", "--header", f"Origin: {origin}", url, "find", "needle")
            assert refused.returncode == 1
            assert "needle" not in refused.stdout
            assert "403" in refused.stderr
        allowed = aguia("chat", "--header", "Origin: http://localhost:3000", url, "tree")
        assert allowed.returncode == 0


def test_an_agent_on_this_machine_answers_to_no_name_but_this_machines(tmp_path: Path) -> None:
    """A page that points its own host name at 127.0.0.1 gets no answer, unless that is allowed."""
    (tmp_path / "mine.py").write_text("async def agent(run):\n    await run.say('Hello')\n")

    def answer(url: str, host: str) -> tuple[int, str]:
        done = aguia("chat", "--header", f"Host: {host}", url, "Hi")
        return done.returncode, done.stdout + done.stderr

    with serving("mine", cwd=tmp_path) as (url, _):
        for host in ("localhost", "LOCALHOST:3000", "127.0.0.1", "[::1]:8000"):
            assert answer(url, host) == (0, "Hello\n"), host
        for host in (
            "evil.example",
            "127.0.0.1.evil.example",
            "evil.example:80",
            "[",
            "a@localhost",
        ):
            code, said = answer(url, host)
            assert (code, "Hello" in said) == (1, False), host
            assert "421" in said
            assert "--allow-host" in said
    with serving("mine", "--allow-host", "Agent.example", cwd=tmp_path) as (url, _):
        assert answer(url, "agent.example") == (0, "Hello\n")
        assert answer(url, "evil.example")[0] == 1
    with serving("mine", "--allow-host", "*", cwd=tmp_path) as (url, _):
        assert answer(url, "evil.example") == (0, "Hello\n")


def test_beyond_this_machine_the_assistant_only_reads(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a needle\n")
    with serving("--host", "0.0.0.0", cwd=tmp_path) as (url, process):
        assert "can read the files" in line_of(process.stdout)
        told = aguia("chat", url, "replace needle with pin in note.txt")
        assert told.returncode == 0
        assert "I only read this folder" in told.stdout


# -- chat ------------------------------------------------------------------------------


def test_one_message_one_answer(url: str) -> None:
    done = aguia("chat", url, "hello", "there")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "You said 'hello there'; tools said [].\n"


def test_the_scheme_may_be_left_out(url: str) -> None:
    assert aguia("chat", url.removeprefix("http://"), "hi").returncode == 0


def test_each_line_that_is_piped_in_is_a_message(url: str) -> None:
    done = aguia("chat", url, input="one\n\n  two  \n/state\n/messages\n/quit\nthree\n")
    assert done.returncode == 0
    assert done.stdout == (
        "> one\nYou said 'one'; tools said [].\n\n"
        "> two\nYou said 'two'; tools said [].\n\n"
        "> /state\n{}\n\n"
        "> /messages\nuser: one\nassistant: You said 'one'; tools said [].\n"
        "user: two\nassistant: You said 'two'; tools said [].\n"
    )


def test_the_worst_of_several_runs_is_the_exit_code(url: str) -> None:
    """RUN-8: a failure is surfaced; the conversation can go on."""
    done = aguia("chat", url, input="fail\nhi\n")
    assert done.returncode == 1
    assert done.stderr == "✗ The run failed: no credit (code quota)\n"
    assert "You said 'hi'" in done.stdout


def test_a_crash_is_a_failure_without_details(url: str) -> None:
    done = aguia("chat", url, "crash")
    assert done.returncode == 1
    assert done.stderr.startswith("✗ The run failed: ")
    assert "secret" not in done.stdout + done.stderr


def test_control_characters_do_not_come_through(url: str) -> None:
    done = aguia("chat", url, "evil")
    assert done.stdout == "␛[2Jgone␇\n"


def test_questions_of_the_agent_are_shown_and_answered(url: str) -> None:
    """INT-2: every interrupt is answered before the thread goes on."""
    assert aguia("chat", url, "ask").returncode == 3
    done = aguia("chat", url, input='ask\n{"sure": true}\n/cancel\n')
    assert "? The agent asks (approval): Delete it?" in done.stdout
    assert "And: And how?" in done.stdout
    assert "[('i1', 'resolved', {'sure': True}), ('i2', 'cancelled', None)]" in done.stdout


def test_a_question_for_yes_or_no_takes_these_words(url: str) -> None:
    """INT-7: the answer has the form that is asked for, a boolean or an object with one."""
    done = aguia("chat", url, input="approve\nperhaps\nY\nno\n")
    assert "? The agent asks (approval): Delete it?" in done.stdout
    assert "That is neither yes nor no" in done.stdout
    assert "And: And the rest?" in done.stdout
    assert "'resolved', True)" in done.stdout
    assert "'resolved', {'approved': False})" in done.stdout
    assert "leaves the tool" not in done.stdout, "the call waits for the approval"


def test_an_answer_of_another_form_is_told_and_not_sent(url: str) -> None:
    """INT-7: what does not fit leaves the question open."""
    lines = ["order", "red", '{"colour": "blue", "number": 1}', '{"colour": "red"}']
    done = aguia("chat", url, input="\n".join([*lines, '{"colour": "red", "number": 2}']))
    assert done.returncode == 3
    expected = '{"colour": "quit" | "red", "number": integer, "note": string (optional)}'
    assert f"That does not fit: expected a JSON object {expected}; /cancel" in done.stdout
    assert 'That does not fit: colour must be "quit" | "red"; /cancel' in done.stdout
    assert "That does not fit: number is missing, integer; /cancel" in done.stdout
    assert "'resolved', {'colour': 'red', 'number': 2})" in done.stdout
    assert done.stderr == ""


NESTED = {
    "$ref": "#/$defs/A",
    "$defs": {
        "A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}, "l": {}}},
        "B": {"type": "array", "items": {"enum": ["x", 1]}},
    },
}
EITHER = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
ENDLESS = {"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}] * 9}}}


@pytest.mark.parametrize(
    ("schema", "text", "answer"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, '"5"', "5"),
        ({"type": "integer"}, " 5 ", 5),
        ({"type": "number"}, "5.5", 5.5),
        ({"type": ["number", "null"]}, "null", None),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "false", False),
        ({"enum": ["a b", "c"]}, "a b", "a b"),
        ({"enum": ["a b", "c"]}, '"c"', "c"),
        ({"enum": [1, "2"]}, "2", "2"),
        (EITHER, "7", 7),
        (NESTED, '{"b": ["x", 1], "l": 0, "more": 0}', {"b": ["x", 1], "l": 0, "more": 0}),
        (ENDLESS, "x", "x"),
        ({}, "x y", "x y"),
        ({}, "[1", "[1"),
        ({}, "[" * 100_000, "[" * 100_000),
        ({"type": "colour"}, "{}", {}),
        ({"type": 5, "enum": 5, "anyOf": 5, "properties": 5, "required": 5}, "{}", {}),
        ({"type": "array", "items": 5}, "[1]", [1]),
    ],
)
def test_what_is_typed_is_read_as_the_question_asks(
    schema: dict[str, Any], text: str, answer: Any
) -> None:
    """INT-7: by the simple parts of a schema, whatever else is in it."""
    interrupt = Interrupt(id="i", reason="input", response_schema=schema)
    assert how_to_answer(interrupt).endswith("/cancel drops the question.")
    read = answer_from(interrupt, text)
    assert (read, type(read)) == (answer, type(answer))


@pytest.mark.parametrize(
    ("schema", "text", "told"),
    [
        ({"type": "integer"}, "5.5", "expected integer"),
        ({"type": "integer"}, "true", "expected integer"),
        ({"type": "number"}, "NaN", "expected number"),
        ({"type": "number"}, "five", "expected number"),
        ({"type": "boolean"}, "5", "neither yes nor no"),
        ({"enum": ["a b", "c"]}, "d", "expected a b | c"),
        ({"enum": [1, "2"]}, "true", "expected 1 | 2"),
        ({"const": "go"}, "stop", "expected go"),
        (EITHER, "x", "expected integer | null"),
        (NESTED, '{"b": ["x", 2]}', 'b[1] must be "x" | 1'),
        (NESTED, '{"b": 2}', 'b must be ["x" | 1, …]'),
        (NESTED, "x", 'a JSON object {"b": ["x" | 1, …] (optional), "l": any JSON (optional)}'),
        ({"type": "object", "required": [5, "a"]}, "{}", "a is missing"),
    ],
)
def test_what_does_not_fit_is_said_with_what_would(
    schema: dict[str, Any], text: str, told: str
) -> None:
    """INT-7."""
    with pytest.raises(WrongAnswer, match=re.escape(told)):
        answer_from(Interrupt(id="i", reason="input", response_schema=schema), text)


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"type": "boolean"}, True),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "boolean"}}}, True),
        ({"type": "object", "properties": {"go": {"type": "boolean"}}}, {"go": True}),
        (
            {
                "type": "object",
                "properties": {"approved": {"type": "boolean"}, "why": {"type": "string"}},
                "required": ["approved"],
            },
            {"approved": True},
        ),
        (
            {
                "type": "object",
                "properties": {"approved": {"type": "boolean"}, "why": {"type": "string"}},
                "required": ["approved", "why"],
            },
            None,
        ),
        ({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {}}}, None),
        ({"type": "object", "properties": {"approved": {"type": "string"}}}, None),
        ({"type": "object", "properties": {}}, None),
        ({"type": "object", "properties": 5}, None),
        ({"type": "object", "properties": {"a": 5}}, None),
        ({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": 5}, None),
        ({"$ref": 5}, None),
        ({"$ref": "#/$defs/A", "$defs": 5}, None),
        ({"$ref": "#/$defs/A", "$defs": {"A": 5}}, None),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, None),
        ({"type": "string"}, None),
        ({}, None),
    ],
)
def test_which_questions_are_for_yes_or_no(schema: dict[str, Any], answer: Any) -> None:
    """INT-7: whatever a schema holds, it is only read."""
    decide = decision(Interrupt(id="i", reason="approval", response_schema=schema))
    assert (None if decide is None else decide(True)) == answer


def test_what_looks_like_a_command_of_the_chat_is_not_sent(url: str) -> None:
    done = aguia("chat", url, input="/satte now\n/cancel\n/help\n/etc/hosts\nexit\nhi\n")
    assert done.returncode == 0
    assert "/satte is an unknown command, /help lists them." in done.stdout
    assert "The agent asks nothing that could be cancelled." in done.stdout
    assert "so does `help`" in done.stdout
    assert done.stdout.count("You said") == 1
    assert "You said '/etc/hosts'" in done.stdout


@pytest.mark.parametrize("word", ["quit", "exit", "/quit", "/exit"])
def test_these_words_leave(url: str, word: str) -> None:
    done = aguia("chat", url, input=f"{word}\nhi\n")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_word_that_leaves_can_be_a_choice(url: str) -> None:
    done = aguia("chat", url, input="choose\nquit\n")
    assert "'resolved', 'quit')" in done.stdout


def test_calls_of_tools_that_the_chat_has_not_are_refused(url: str) -> None:
    """FRONT-5: each pending call gets a tool message, and a refusal says so."""
    done = aguia("chat", url, input="frontend\nhi\n")
    assert "The agent leaves the tool open_window to this chat, which has none." in done.stdout
    assert "You said 'hi'; tools said ['This client has no such tool.']." in done.stdout
    assert done.returncode == 0


TOOLS = """
def open_window() -> str:
    "Opens a window."
    return "opened"
"""


def test_a_tool_runs_without_a_terminal_only_if_it_was_named(url: str, tmp_path: Path) -> None:
    """SEC-2: without consent a call is refused; FRONT-5: the agent is told."""
    (tmp_path / "mine.py").write_text(TOOLS)
    refused = aguia("chat", "--tools", "mine.py", url, "frontend", cwd=tmp_path)
    assert refused.returncode == 0
    assert "└ ✗ Refused" in refused.stdout
    assert "--yes" in refused.stdout
    done = aguia("chat", "--tools", "mine", "--yes", "open_window", url, "frontend", cwd=tmp_path)
    assert "  ● open_window {}\n  └ opened\n" in done.stdout
    assert "tools said ['opened']" in done.stdout
    wrong = aguia("chat", "--tools", "mine.py", "--yes", "opn", url, "frontend", cwd=tmp_path)
    assert wrong.returncode == 2
    assert wrong.stderr == "aguia: --yes opn: no tool of that name is offered\n"


def test_a_conversation_is_saved_and_gone_on_with(url: str, tmp_path: Path) -> None:
    lines = "hi\n/save talk.json\n/save talk.json\n/save\n/save no/where.json\n/new\n/messages\n"
    done = aguia("chat", url, input=lines, cwd=tmp_path)
    assert done.returncode == 0
    for told in (
        "Saved 2 messages to talk.json.",
        "talk.json is there already; nothing is written.",
        "/save needs a file, as in: /save FILE",
        "Cannot write no/where.json: No such file or directory",
        "No messages yet.",
    ):
        assert told in done.stdout
    saved = json.loads((tmp_path / "talk.json").read_text())
    assert saved["messages"][0]["content"] == "hi"
    again = aguia("chat", "--load", "talk.json", url, input="/messages\n", cwd=tmp_path)
    assert "user: hi\nassistant: You said 'hi'; tools said [].\n" in again.stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read talk.json: No such file or directory"),
        ("[", "talk.json holds no conversation"),
        ("[1]", "talk.json holds no conversation"),
        ('{"messages": [{"role": "user"}]}', "talk.json"),
        ('{"messages": 5, "threadId": {}}', "talk.json"),
    ],
)
def test_what_is_no_saved_conversation_is_refused(
    tmp_path: Path, content: str | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "talk.json").write_text(content)
    done = aguia("chat", "--load", "talk.json", "http://127.0.0.1:9/", "hi", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("aguia: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_files_are_sent_from_an_argument_and_by_command(url: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\x00" * 20)
    assert "ImagePart" in aguia("chat", url, "see", "@a.png", cwd=tmp_path).stdout
    assert "ImagePart" in aguia("chat", url, input="/image a.png what is it\n", cwd=tmp_path).stdout
    piped = aguia("chat", url, input="see @a.png\n", cwd=tmp_path)
    assert "You said 'see @a.png'" in piped.stdout, "what is piped in names no files"
    missing = aguia("chat", url, "see", "@b.png", cwd=tmp_path)
    assert missing.returncode == 2
    assert missing.stderr == "✗ There is no file b.png.\n"


def test_an_agent_that_declares_nothing_is_no_obstacle(url: str) -> None:
    """CAP-1: what is not declared is no obstacle."""
    done = aguia("chat", url, input="/tools\nhi\n")
    assert "The agent is offered no tools; --tools offers those of a module." in done.stdout
    assert "You said 'hi'" in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["ftp://127.0.0.1/", "x"],
        ["http://", "x"],
        ["http://[::1", "x"],
        ["http://127.0.0.1:99999999/", "x"],
        ["--header", "nonsense", "http://127.0.0.1/", "x"],
        ["--header", "A: b\nC: d", "http://127.0.0.1/", "x"],
        ["--header", "Authorization password", "http://127.0.0.1/", "x"],
        ["http://me:password@127.0.0.1:99999999/", "x"],
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(arguments: list[str]) -> None:
    done = aguia("chat", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("aguia: ")
    assert done.stderr.count("\n") == 1
    assert "password" not in done.stderr


def test_nobody_there_is_one_line_and_exit_code_2(free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}/"
    done = aguia("chat", url, "x")
    assert done.returncode == 2
    assert done.stderr == (
        f"✗ Cannot connect to {url}: Connection refused. `aguia serve` starts an agent.\n"
    )
    piped = aguia("chat", url, input="x\ny\n")
    assert piped.returncode == 2
    assert piped.stderr.count("\n") == 1
    # What may be a secret in an address is used and not shown.
    secret = url.replace("://", "://me:password@") + "?key=hidden"
    assert aguia("chat", secret, "x").stderr == done.stderr


def test_tls_to_a_server_without_it(url: str) -> None:
    done = aguia("chat", url.replace("http://", "https://"), "x")
    assert done.returncode == 2
    assert "TLS, the secure connection, fails (" in done.stderr
    assert done.stderr.endswith("). Does it speak http:// instead?\n")


def test_a_certificate_that_nobody_trusts() -> None:
    untrusted = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED]")
    untrusted.verify_message = "self-signed certificate"
    failed = ConnectionFailed("no connection")
    failed.__cause__ = untrusted
    assert explain(failed, "https://agent.example/?key=hidden") == (
        "Cannot connect to https://agent.example/: its certificate is not valid (self-signed"
        " certificate). Whoever runs it has to show one that this machine trusts."
    )


def test_a_host_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
    done = aguia("chat", "http://nosuchhost.invalid/", "x")
    assert done.returncode == 2
    assert "there is no such host" in done.stderr


def test_a_proxy_of_the_environment_does_not_stand_between(
    url: str, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port}")
    assert aguia("chat", url, "x").returncode == 0


STREAMS: dict[str, list[dict[str, Any]]] = {
    "/truncated": [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "half"},
    ],
    "/violation": [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x"},
    ],
    "/malformed": [{"type": "RUN_STARTED", "threadId": "t", "runId": 5}],
    "/newer": [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "colour": 1},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ],
}


class OtherServer(BaseHTTPRequestHandler):
    """Answers a POST as its path says; most are no agents, or bad ones."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.strip("/").isdigit():
            self.send_response(int(self.path.strip("/")))
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/html":
            self.answer("text/html; charset=utf-8", b"<html>Hello</html>")
        elif self.path == "/text":
            self.answer("text/event-stream", b"data: hello\n\n")
        elif self.path == "/gone":
            self.close_connection = True
        else:
            frames = [f"data: {json.dumps(event)}\n\n" for event in STREAMS[self.path]]
            self.answer("text/event-stream", "".join(frames).encode())

    def do_GET(self) -> None:
        declared = {"tools": {"items": [{"name": "dig\x1b", "description": "Digs.\nDeep."}]}}
        self.answer("application/json", json.dumps(declared).encode())

    def answer(self, content_type: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def other_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), OtherServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/404", ["answers 404", "Check the path"]),
        ("/405", ["answers 405", "Check the path"]),
        ("/501", ["answers 501", "Check the path"]),
        ("/401", ["answers 401", "--header"]),
        ("/301", ["answers 301"]),
        ("/500", ["500"]),
        ("/html", ["text/html; charset=utf-8", "text/event-stream", "Check the URL"]),
        ("/text", ["not JSON", "'hello'"]),
        ("/gone", ["broke"]),
        ("/truncated", ["cut off"]),
        ("/violation", ["STREAM-1", "event 1", "TEXT_MESSAGE_CONTENT"]),
        ("/malformed", ["PROC-3", "event 0", "RUN_STARTED", "/runId"]),
    ],
)
def test_what_goes_wrong_is_one_clear_line(other_server: str, path: str, words: list[str]) -> None:
    """HTTP-4, RUN-11, PROC-3: each kind of failure is told as what it is."""
    done = aguia("chat", other_server + path, "x")
    assert done.returncode == 1
    *warnings, told = done.stderr.splitlines()
    assert told.startswith("✗ ")
    for word in words:
        assert word in told
    assert all(line.startswith("! ") for line in warnings)
    assert done.stdout == ("half\n" if path == "/truncated" else "")


def test_the_tools_that_an_agent_declares_are_listed(other_server: str) -> None:
    """CAP-1."""
    done = aguia("chat", other_server + "/newer", input="/tools\n")
    assert "The agent's own:\n  dig␛: Digs.⏎Deep.\n" in done.stdout
    assert done.returncode == 0


def test_warnings_are_shown_once_and_do_not_fail_the_run(other_server: str) -> None:
    """PROC-2: what is stripped is named."""
    done = aguia("chat", other_server + "/newer", "x")
    assert done.returncode == 0
    assert sum("/colour" in line for line in done.stderr.splitlines()) == 1


@posix
def test_ctrl_c_cancels_a_run_given_as_argument(url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "aguia", "chat", url, "slow"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(4) == "tick"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert out.endswith("\n■ Cancelled.\n")
    assert err == ""


@posix
def test_a_reader_that_leaves_early_is_no_error(url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "aguia", "chat", url, "slow"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(4) == "tick"
        process.stdout.close()
        assert process.wait(SECONDS) == 1
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


# -- demo ------------------------------------------------------------------------------


def test_the_demo_holds_its_conversation_and_ends(tmp_path: Path) -> None:
    """It is the same in every folder, and leaves that alone."""
    for number in range(300):
        (tmp_path / f"eagle{number}.txt").write_text("an eagle\n")
    done = aguia("demo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") < 60
    for line in (
        "> find eagle",
        "  ● search ",
        "  ◇ search: ",
        "[birds] birds/owl.txt:1: The owl has met an eagle, once.",
        "  ? The agent asks (approval): Shall I replace 2 occurrences",
        "  -The eagle sees",
        "  +The águia sees",
        "> yes",
        "Done: 2 occurrences",
    ):
        assert f"\n{line}" in done.stdout
    assert done.stdout.count("thinking: ") == 2
    assert len(os.listdir(tmp_path)) == 300
    assert re.search(
        r"\n3 runs, \d+ events, \d+ ms\n"
        r"This is no terminal, so the prompt that would follow is left out\.\n$",
        done.stdout,
    )
    assert "\x1b" not in done.stdout


@posix
def test_ctrl_c_ends_the_demo_wherever_it_is(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "aguia", "demo"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
    ) as process:
        assert line_of(process.stdout).startswith("An agent is served at ")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in err
