"""The pytest plugin, in projects of its users (made by pytest's own `pytester`)."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Final

import pytest

# The projects' tests run in this process: so the package is imported once, and not for each.
import aguia.testing.clients  # noqa: F401
from support import REPOSITORY

pytest_plugins = ["pytester"]

AGENTS: Final = '''
import asyncio
import json

import pytest

from aguia.server import AgentApp

anyio = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def polite(run):
    await run.say(f"Hello, {run.messages[-1].content}!")


def body(*events):
    """An application that says this, right or wrong."""

    async def app(scope, receive, send):
        sent = b""
        while True:
            message = await receive()
            sent += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked = json.loads(sent)
        ids = {"threadId": asked["threadId"], "runId": asked["runId"]}
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in events:
            if event["type"].startswith("RUN_") and event["type"] != "RUN_ERROR":
                event = ids | event
            if event["type"] == "RAISE":
                raise RuntimeError("in the middle")
            data = b"data: " + json.dumps(event).encode() + b"\\n\\n"
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


START = {"type": "RUN_STARTED", "protocolVersion": "1.0"}
END = {"type": "RUN_FINISHED"}
CHUNK = {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m"}
STRAY = {"type": "TEXT_MESSAGE_END", "messageId": "m"}
# Who reads this has nothing to complain about: it is no fault of reading.
UNNAMED = {"type": "CUSTOM", "name": "note", "value": 1}
'''


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose tests may import the agents above, without other people's plugins."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(agents=AGENTS)
    return pytester


def run(project: pytest.Pytester, tests: str, *arguments: str) -> pytest.RunResult:
    project.makepyfile(f"from agents import *\n\n{tests}")
    return project.runpytest_inprocess(
        "-p", "pytest_aguia", "-p", "anyio", "-p", "no:cacheprovider", *arguments
    )


def test_the_plugin_brings_nothing_along_until_it_is_used() -> None:
    """It is loaded in every project, and so imports nothing but pytest."""
    code = (
        "import sys, pytest; before = set(sys.modules); import pytest_aguia;"
        " print(*set(sys.modules) - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["pytest_aguia"]


def test_the_plugin_is_announced_under_its_own_name() -> None:
    """So that `-p pytest_aguia` and the entry point are one plugin."""
    import tomllib

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    (entry,) = project["project"]["entry-points"]["pytest11"].items()
    assert entry == ("pytest_aguia", "pytest_aguia")
    assert EntryPoint(entry[0], entry[1], "pytest11").load().agui_client is not None
    assert (
        "src/pytest_aguia.py" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    )


def test_clients_of_functions_applications_and_transports(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
from aguia.client import AsgiTransport
from starlette.applications import Starlette
from starlette.routing import Mount


@anyio
@pytest.mark.parametrize("make", [
    lambda: polite,
    lambda: AgentApp(polite),
    lambda: AsgiTransport(AgentApp(polite)),
    lambda: body(START, CHUNK | {"delta": "Hello, "}, CHUNK | {"delta": "you!"}, END),
])
async def test_answers(agui_client, make):
    async with agui_client(make(), thread_id="t") as client:
        assert (await client.ask("you")).text == "Hello, you!"
        assert client.thread_id == "t"
    assert agui_client.findings == []


@anyio
async def test_a_mounted_agent(agui_client):
    app = Starlette(routes=[Mount("/agent", AgentApp(polite))])
    result = await agui_client(app, path="/agent/").ask("you")
    assert result.text == "Hello, you!"


def test_without_async(agui_client):
    assert agui_client.sync(polite).ask("you").text == "Hello, you!"


def test_with_a_loop_of_ones_own(agui_client):
    assert asyncio.run(agui_client(polite).ask("you")).text == "Hello, you!"


@pytest.mark.parametrize("agent", [None, "agent", lambda a, b: None])
def test_what_is_no_agent(agui_client, agent):
    with pytest.raises(TypeError, match="an agent function, which takes a run"):
        agui_client(agent)
""",
    )
    result.assert_outcomes(passed=10)


def test_an_agent_that_breaks_a_rule_fails_the_test(project: pytest.Pytester) -> None:
    """In its call, not in its teardown; also where the client minds nothing, or less."""
    result = run(
        project,
        """
import aguia


@anyio
async def test_rejected(agui_client):
    with pytest.raises(aguia.ProtocolViolation):
        await agui_client(body(START, STRAY, END)).ask("you")


@anyio
async def test_left_early(agui_client):
    client = agui_client(body(START, UNNAMED, STRAY))
    try:
        async for _ in client.run("you"):
            pass
    except aguia.AguiaError:
        pass


def test_truncated(agui_client):
    with pytest.raises(aguia.TruncatedRun):
        agui_client.sync(body(START)).ask("you")


def test_broken_off(agui_client):
    with pytest.raises(aguia.AguiaError):
        agui_client.sync(body(START, {"type": "RAISE"})).ask("you")


def test_that_fails_by_itself(agui_client):
    agui_client.sync(body(START, STRAY, END)).ask("you")


@anyio
async def test_the_second_run(agui_client):
    agent = agui_client(polite)
    await agent.ask("you")
    with pytest.raises(aguia.ProtocolViolation):
        await agui_client(body(START, STRAY, END)).ask("you")
""",
    )
    result.assert_outcomes(failed=6)
    result.stdout.fnmatch_lines(
        [
            "*test_rejected*",
            "the stream of run 1 breaks the protocol:",
            "error STREAM-1 event 1, line 3 TEXT_MESSAGE_END*",
            "  expected: *",
        ]
    )
    result.stdout.fnmatch_lines(["error RUN-11 *"])
    result.stdout.fnmatch_lines(["*- Captured aguia call -*", "the stream of run 1 breaks*"])


def test_what_counts_is_chosen(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
import aguia


@pytest.mark.parametrize(
    "options", [{"check": False}, {"ignore": ["STREAM-1"]}, {"ignore": ["STREAM"]}]
)
def test_not_minded(agui_client, options):
    with pytest.raises(aguia.ProtocolViolation):
        agui_client.sync(body(START, STRAY, END), **options).ask("you")


def test_warnings_are_not_minded(agui_client):
    agui_client.sync(body(START, UNNAMED, END)).ask("you")
    assert [finding.rule for finding in agui_client.findings] == ["PROC-13"]


def test_warnings_are_minded(agui_client):
    agui_client.sync(body(START, UNNAMED, END), warnings=True).ask("you")


def test_an_old_agent_is_known_to_be_one(agui_client):
    old = body({"type": "RUN_STARTED"}, END)
    agui_client.sync(old, warnings=True, peer_version="0.0.53").ask("you")


@pytest.mark.parametrize("way", ["break", "cancel"])
@anyio
async def test_leaving_a_run_is_nobodys_fault(agui_client, way):
    async with agui_client(body(START, UNNAMED, END)) as client:
        async with client.run("you") as events:
            async for _ in events:
                if way == "break":
                    break
                client.cancel()


@anyio
async def test_the_binary_binding(agui_client):
    from aguia.client import PROTOBUF, AsgiTransport

    transport = AsgiTransport(AgentApp(polite), accept=[PROTOBUF])
    assert (await agui_client(transport).ask("you")).text == "Hello, you!"
    assert agui_client.findings == []
""",
    )
    result.assert_outcomes(passed=8, failed=1)
    result.stdout.fnmatch_lines(["warning PROC-13 *"])


def test_streams_can_have_faults(project: pytest.Pytester) -> None:
    """What the application does then is what is tested: the faults are not the agent's."""
    result = run(
        project,
        """
import aguia


@anyio
@pytest.mark.parametrize("agent", [polite, AgentApp(polite)])
async def test_a_broken_connection(agui_client, agent):
    with pytest.raises(aguia.TruncatedRun):
        await agui_client(agent, faults=["cut-after-event:2"]).ask("you")


def test_without_async(agui_client):
    with pytest.raises(aguia.ProtocolViolation):
        agui_client.sync(polite, faults=["drop:0"], seed=1).ask("you")


def test_what_is_no_fault(agui_client):
    with pytest.raises(ValueError, match="there is no fault 'fire'"):
        agui_client(polite, faults=["fire"])
    from aguia.server import InProcess

    with pytest.raises(TypeError, match="faults are put into"):
        agui_client(InProcess(polite), faults=["drop:0"])
""",
    )
    result.assert_outcomes(passed=4)


def test_scripted_agents_and_streams(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
@anyio
async def test_a_script(agui_client, scripted_agent):
    agent = scripted_agent("Hello.", [{"type": "CUSTOM", "name": "a.b", "value": 1}], ValueError())
    client = agui_client(agent)
    assert (await client.ask("one")).text == "Hello."
    assert [event.type async for event in client.run("two")][1] == "CUSTOM"
    events = [event async for event in client.run("three")]
    assert events[-1].type == "RUN_ERROR"
    assert [given.messages[-1].content for given in agent.inputs] == ["one", "two", "three"]


RUN = {"threadId": "t", "runId": "r"}


def test_a_stream_that_is_right(check_stream):
    check_stream([START | RUN, END | RUN])


def test_a_stream_that_is_wrong(check_stream):
    check_stream(b"data: " + json.dumps(START | RUN).encode() + b"\\n\\n")
""",
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["E*AssertionError: the stream breaks the protocol:"])


def test_unittest_and_skipped_tests_are_as_ever(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
import unittest


class Case(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def client(self, agui_client):
        self.client = agui_client.sync

    def test_right(self):
        assert self.client(polite).ask("you").text == "Hello, you!"

    def test_wrong(self):
        self.client(body(START, UNNAMED, END), warnings=True).ask("you")


def test_skipped(agui_client):
    pytest.skip("not today")


@pytest.mark.xfail(strict=True)
def test_expected_to_fail(agui_client):
    agui_client.sync(body(START, UNNAMED, END), warnings=True).ask("you")


def test_without_fixtures():
    pass
""",
    )
    result.assert_outcomes(passed=2, failed=1, skipped=1, xfailed=1)
