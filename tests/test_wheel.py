"""What is built of the project: what the wheel holds, and that it works by itself once installed.

Each environment here is new, gets the wheel and what it asks for from the package index, and sees
nothing of this folder. The versions are those of requirements/test.txt, so that a release of
somebody else's changes nothing here. Where the index can't be reached these tests are skipped;
with `CI=true` they fail instead.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Final

import pytest

import aguia
from support import REPOSITORY

pytestmark = pytest.mark.unmeasured

SECONDS: Final = 100.0

SOURCE: Final = REPOSITORY / "src"

DATA: Final = ("aguia/py.typed", "aguia/codec/wire.proto", "aguia/codec/wire_pb2.pyi")
"""What the package holds besides modules and the streams of the corpus."""

INFO: Final = f"aguia-{aguia.__version__}.dist-info"

EXTRAS: Final = {"cli", "http2", "protobuf"}

NEEDS_CLI: Final = re.compile(r"aguia\.cli\.\w+|aguia\.server\.serving")
"""Modules that cannot be imported without the extra `cli`: the command, and serving by uvicorn."""

NEEDS_PROTOBUF: Final = {"aguia.codec.protobuf", "aguia.codec.wire_pb2"}

UNREACHABLE: Final = "connection broken by"
"""What pip says of an index that gives no answer."""


# -- building --------------------------------------------------------------------------


def build(what: str, source: Path, into: Path) -> Path:
    """Have hatchling build the "wheel" or the "sdist" of a source tree."""
    code = f"import sys, hatchling.build as b; print(b.build_{what}(sys.argv[1]))"
    into.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", code, into],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return into / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source tree; that takes half a second, so each worker builds its own."""
    return build("wheel", REPOSITORY, tmp_path_factory.mktemp("wheel"))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    streams = (SOURCE / "aguia" / "testing" / "corpus" / "streams").glob("*.json")
    expected = {
        *(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")),
        *(path.relative_to(SOURCE).as_posix() for path in streams),
        *DATA,
        *(f"{INFO}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")),
        f"{INFO}/licenses/LICENSE",
    }
    assert len(expected) > 400
    assert set(contents(wheel)) == expected


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", REPOSITORY, tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    again = build("wheel", tmp_path / f"aguia-{aguia.__version__}", tmp_path / "wheel")
    assert again.name == wheel.name
    assert contents(again) == contents(wheel)


def metadata(wheel: Path) -> Message:
    return Parser().parsestr(contents(wheel)[f"{INFO}/METADATA"].decode())


def test_the_metadata_say_what_the_project_is(wheel: Path) -> None:
    told = metadata(wheel)
    assert (told["Name"], told["Version"]) == ("aguia", aguia.__version__)
    assert told["Requires-Python"] == ">=3.11"
    assert told["License-Expression"] == "MIT"
    assert told["License-File"] == "LICENSE"
    assert told.get_payload() == (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert set(told.get_all("Provides-Extra", ())) == EXTRAS
    needs = {re.split(r"[>=<]", each)[0] for each in told.get_all("Requires-Dist", ())}
    assert "msgspec" in needs
    assert not needs & {"pytest", "hatchling", "sphinx"}
    assert contents(wheel)[f"{INFO}/entry_points.txt"].decode() == (
        "[console_scripts]\naguia = aguia.cli:main\n\n[pytest11]\npytest_aguia = pytest_aguia\n"
    )


# -- environments of its own -----------------------------------------------------------


@dataclass
class Environment:
    """A virtual environment without pip, and an empty folder where its programs run."""

    folder: Path

    @property
    def programs(self) -> Path:
        return self.folder / "venv" / ("Scripts" if os.name == "nt" else "bin")

    @property
    def python(self) -> Path:
        return self.programs / ("python.exe" if os.name == "nt" else "python")

    def install(self, *requirements: str) -> None:
        """Install from the index, with pip from outside."""
        constraints = self.folder / "constraints.txt"
        constraints.write_text(locked(), encoding="utf-8")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "--python", str(self.python), "install", "-q"),
                *("--no-compile", "--only-binary", ":all:", "--retries", "1", "--timeout", "15"),
                *("--constraint", str(constraints), *requirements),
            ],
            cwd=self.folder,
            # Whatever else the machine's pip is told.
            env={
                **surroundings(),
                "PIP_CONSTRAINT": os.devnull,
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                "PIP_NO_INPUT": "1",
                "PIP_REQUIRE_VIRTUALENV": "0",
                "PIP_USER": "0",
            },
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode and UNREACHABLE in done.stderr and os.environ.get("CI") != "true":
            pytest.skip("the package index can't be reached")
        assert done.returncode == 0, done.stderr

    def run(self, *command: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, which ends with this exit code and no traceback."""
        program, *arguments = command
        done = subprocess.run(
            [self.programs / program, *arguments],
            cwd=self.folder,
            env=surroundings(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == code, (command, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def says(self, program: str) -> str:
        """What a Python program prints."""
        return self.run("python", "-c", textwrap.dedent(program)).stdout.strip()

    def unimportable(self) -> set[str]:
        """The modules of the package that cannot be imported."""
        found = json.loads(self.says(MODULES))
        assert found["count"] > 120
        return set(found["failed"])


def surroundings() -> dict[str, str]:
    """The environment variables, but for what makes Python see other folders or measures it."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYTEST", "COV", "VIRTUAL_ENV"))
    }


def locked() -> str:
    """The versions that the tests run against, as constraints."""
    text = (REPOSITORY / "requirements" / "test.txt").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^[\w.-]+==[^\\\n]+", text, re.MULTILINE))


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    made = Environment(tmp_path)
    venv = [sys.executable, "-m", "venv", "--without-pip", str(made.folder / "venv")]
    subprocess.run(venv, env=surroundings(), check=True, timeout=SECONDS)
    return made


MODULES: Final = """
    import importlib, json, pkgutil, aguia

    found = pkgutil.walk_packages(aguia.__path__, "aguia.", onerror=lambda name: None)
    names = [module.name for module in found if module.name != "aguia.__main__"]
    failed = []
    for name in ["pytest_aguia", *names]:
        try:
            importlib.import_module(name)
        except ImportError:
            failed.append(name)
    print(json.dumps({"count": len(names), "failed": failed}))
"""

LOADED: Final = """
    import sys

    before = set(sys.modules)
    import aguia

    names = {name.partition(".")[0] for name in set(sys.modules) - before}
    print(*sorted(names - sys.stdlib_module_names))
"""

TALK: Final = """
    from aguia import sync
    from aguia.server import InProcess, Run

    async def agent(run: Run) -> None:
        await run.say(f"You said: {run.messages[-1].content}")

    with sync.Agent(InProcess(agent)) as client:
        print(client.ask("hello").text)
"""

HELLO: Final = """
    import socket, threading
    from aguia import ConnectionFailed
    from aguia.sync import HttpAgent

    def answer():
        connection, _ = listener.accept()
        with connection:
            print(b"\\x02h2" in connection.recv(4096))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer).start()
        with HttpAgent(f"https://127.0.0.1:{listener.getsockname()[1]}/", retries=0) as agent:
            try:
                agent.ask("hello")
            except ConnectionFailed:
                pass
"""
"""Prints whether a client offers HTTP/2, as it does while it begins a secure connection."""

BINARY: Final = """
    from aguia import Consumer, RunStartedEvent
    from aguia.codec.frames import CONTENT_TYPE
    from aguia.codec.protobuf import encode_event

    sent = RunStartedEvent(thread_id="t", run_id="r", protocol_version="1.0")
    print([*Consumer(content_type=CONTENT_TYPE).receive(encode_event(sent))] == [sent])
"""

REFUSALS: Final = """
    import aguia, aguia.server
    from aguia.codec.frames import CONTENT_TYPE

    for attempt in (
        lambda: aguia.Consumer(content_type=CONTENT_TYPE),
        lambda: aguia.server.serve,
    ):
        try:
            attempt()
        except ImportError as error:
            print(error)
"""

TESTS: Final = """
    from aguia.server import Run


    async def polite(run: Run) -> None:
        await run.say(f"Hello, {run.messages[-1].content}!")


    def test_greets(agui_client):
        assert agui_client.sync(polite).ask("you").text == "Hello, you!"


    def test_stands_in(agui_client, scripted_agent):
        assert agui_client.sync(scripted_agent("Hello!")).ask("hi").text == "Hello!"
"""

AGENT: Final = """
    async def agent(run):
        await run.say(f"You said: {run.messages[-1].content}")
"""


def test_the_package_alone(wheel: Path, environment: Environment) -> None:
    """A client, a server and every module but for those of extras; those say what to install."""
    environment.install(str(wheel))
    # msgspec takes typing_extensions where it is there, which others need on older Pythons.
    assert set(environment.says(LOADED).split()) - {"typing_extensions"} == {"aguia", "msgspec"}
    assert environment.says(TALK) == "You said: hello"
    assert environment.says(HELLO) == "False"

    left = environment.unimportable()
    assert left >= NEEDS_PROTOBUF | {"pytest_aguia", "aguia.server.serving", "aguia.cli.app"}
    others = left - NEEDS_PROTOBUF - {"pytest_aguia"}
    assert {name for name in others if not NEEDS_CLI.fullmatch(name)} == set()

    needs = (
        "aguia: the command needs markdown_it, pathspec, prompt_toolkit, rich, typer, uvicorn:"
        " pip install 'aguia[cli]'\n"
    )
    assert environment.run("python", "-m", "aguia", "--help", code=2).stderr == needs
    assert environment.run("aguia", "--version", code=2).stderr == needs

    binary, serving = environment.says(REFUSALS).splitlines()
    assert serving.endswith("need uvicorn: pip install 'aguia[cli]'")
    # What is installed is what the advice is about, also where no index has the package.
    advice = re.search(r"pip install '(.+)'$", binary)
    assert advice is not None, binary
    environment.install(advice[1], "pytest")
    assert environment.says(BINARY) == "True"

    # pytest finds the plugin by itself.
    (environment.folder / "test_agents.py").write_text(textwrap.dedent(TESTS), encoding="utf-8")
    assert "2 passed" in environment.run("pytest", "-q").stdout


def test_the_extra_cli(wheel: Path, environment: Environment) -> None:
    """The command, and what is served by it answers."""
    environment.install(f"{wheel}[cli]")
    assert environment.unimportable() == NEEDS_PROTOBUF | {"pytest_aguia"}
    assert environment.run("aguia", "--version").stdout.startswith(f"aguia {aguia.__version__} ")
    assert "chat" in environment.run("python", "-m", "aguia", "--help").stdout
    streams = environment.run("aguia", "corpus", "list", "--rule", "INT-1", "-o", "json").stdout
    assert len(json.loads(streams)) > 1

    (environment.folder / "hello.py").write_text(textwrap.dedent(AGENT), encoding="utf-8")
    with subprocess.Popen(
        [environment.programs / "aguia", "serve", "hello:agent", "--port", "0"],
        cwd=environment.folder,
        env=surroundings(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            url = line.split()[-1]
            assert url.startswith("http://127.0.0.1:"), line
            assert "You said: hi" in environment.run("aguia", "chat", url, "hi").stdout
        finally:
            server.terminate()


def test_the_extra_http2(wheel: Path, environment: Environment) -> None:
    environment.install(f"{wheel}[http2]")
    assert environment.says(HELLO) == "True"


def test_the_extra_protobuf(wheel: Path, environment: Environment) -> None:
    environment.install(f"{wheel}[protobuf]")
    assert environment.says(BINARY) == "True"
    assert not environment.unimportable() & NEEDS_PROTOBUF


def test_the_lock_names_what_is_needed(wheel: Path) -> None:
    """Else the environments would be made of what is newest, and not of what is tested."""
    needs = {
        re.split(r"[>=<\[; ]", each)[0] for each in metadata(wheel).get_all("Requires-Dist", ())
    }
    pinned = set(re.findall(r"^([\w.-]+)==", locked(), re.MULTILINE))
    assert needs <= pinned
