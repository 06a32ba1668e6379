"""`ReplayApp` and `aguia replay`: a recording as an agent, with faults on demand."""

import asyncio
import gzip
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aguia.client import AsgiTransport, HttpAgent
from aguia.client.agent import Agent
from aguia.middleware import Recorder
from aguia.protocol.errors import InputRejected, ProtocolViolation, TruncatedRun
from aguia.server import AgentApp
from aguia.testing import ReplayApp, ScriptedAgent
from support_asgi import Connection, call, input_body
from support_events import FINISHED, STARTED, event, frame
from test_cli_commands import SECONDS, aguia, posix

TEXT = [
    event("TEXT_MESSAGE_START", messageId="m"),
    event("TEXT_MESSAGE_CONTENT", messageId="m", delta="one"),
    event("TEXT_MESSAGE_END", messageId="m"),
]
RUN = [STARTED, *TEXT, FINISHED]
SECOND = [{**STARTED, "runId": "r2"}, {**FINISHED, "runId": "r2"}]


def lines(*runs: list[dict[str, Any]], step: float = 0.0) -> bytes:
    """A recording with inputs and times."""
    written = []
    for events in runs:
        ids = {name: events[0][name] for name in ("threadId", "runId")}
        written.append({"at": 0.0, "input": {**ids, "messages": []}})
        written += [{"at": step * number, "event": each} for number, each in enumerate(events, 1)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in written)


@pytest.mark.anyio
async def test_what_a_recorder_wrote_is_served_again_with_the_callers_ids(tmp_path: Path) -> None:
    """RUN-3."""
    path = tmp_path / "runs.jsonl"
    scripted = ScriptedAgent("the first answer", "the second answer")
    with Recorder(path) as recorder:
        async with Agent(AsgiTransport(AgentApp(scripted)), middleware=[recorder]) as agent:
            await agent.ask("a")
            await agent.ask("b")
    app = ReplayApp(path)
    assert app.runs == 2
    for thread in ("one thread", "another"):
        async with Agent(AsgiTransport(app), thread_id=thread) as agent:
            for text in ("the first answer", "the second answer"):
                result = await agent.ask("again")
                assert (result.outcome, result.text, result.warnings) == ("success", text, [])
    assert [each.thread_id for each in app.inputs] == ["one thread"] * 2 + ["another"] * 2


@pytest.mark.anyio
@pytest.mark.parametrize(
    "source",
    [
        frame(*RUN),
        json.dumps(RUN).encode(),
        b"\n".join(json.dumps(each).encode() for each in RUN),
        gzip.compress(frame(*RUN)),
        lines(RUN),
        [RUN],
    ],
    ids=["sse", "array", "lines", "gzip", "recorder", "events"],
)
async def test_any_recording_can_be_served(source: Any) -> None:
    connection = await call(ReplayApp(source), body=input_body(threadId="T", runId="R"))
    assert connection.answer_headers["content-type"] == "text/event-stream"
    ids = {"threadId": "T", "runId": "R"}
    assert connection.answer == frame(*[{**RUN[0], **ids}, *TEXT, {**RUN[-1], **ids}]).replace(
        b'": "', b'":"'
    ).replace(b'", "', b'","')


@pytest.mark.anyio
async def test_ids_are_kept_where_that_is_wanted() -> None:
    connection = await call(ReplayApp([RUN], mapped=False), body=input_body(runId="other"))
    assert b'"runId":"r"' in connection.answer


@pytest.mark.anyio
async def test_what_was_no_event_is_none_again_and_what_was_malformed_is() -> None:
    """PROC-3."""
    body = frame(STARTED) + b"data: {not\ndata: json\n\n" + frame({**TEXT[0], "messageId": 7})
    connection = await call(ReplayApp(body))
    assert b"data: {not\ndata: json\n\n" in connection.answer
    assert b'"messageId":7' in connection.answer


@pytest.mark.anyio
async def test_bad_requests_get_an_error_status_and_no_stream() -> None:
    """HTTP-4, PROC-12."""
    app = ReplayApp([RUN], repeat=False)
    for status, request in (
        (405, {"method": "GET"}),
        (415, {"headers": {"content-type": "text/plain"}}),
        (400, {"body": b"{"}),
        (400, {"body": b'{"threadId": 7, "runId": "r", "messages": []}'}),
        (200, {}),
        (410, {}),
    ):
        connection = await call(app, **request)
        assert connection.status == status
        assert connection.complete
        if status != 200:
            assert connection.error["message"]
    assert len(app.inputs) == 1


@pytest.mark.anyio
async def test_the_pace_is_the_recordings_own_or_any() -> None:
    async def seconds(**options: Any) -> float:
        began = time.monotonic()
        await call(ReplayApp(lines(RUN, step=0.06), **options))
        return time.monotonic() - began

    assert await seconds() < 0.25
    assert await seconds(pace="original") >= 0.28
    assert await seconds(pace=0.06) >= 0.28
    for pace in ("fast", -1.0, float("nan")):
        with pytest.raises(ValueError, match="pace is"):
            ReplayApp([RUN], pace=pace)  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_a_client_that_leaves_ends_a_run_that_stalls() -> None:
    connection = Connection(ReplayApp([RUN], faults=["stall:2"]), body=input_body())

    async def leave(message: Any) -> None:
        if b"TEXT_MESSAGE_START" in message.get("body", b""):
            connection.gone.set()

    connection.on_send = leave
    async with asyncio.timeout(10):
        await connection.run()
    assert not connection.complete


@pytest.mark.anyio
async def test_faults_spoil_every_answer_and_the_seed_decides_what_they_leave_open() -> None:
    """RUN-11."""
    async with Agent(AsgiTransport(ReplayApp([RUN], faults=["cut-after-event:3"]))) as agent:
        for _ in range(2):
            with pytest.raises(TruncatedRun):
                await agent.ask("hi")
    async with Agent(AsgiTransport(ReplayApp([RUN], faults=["corrupt"]))) as agent:
        with pytest.raises(ProtocolViolation):
            await agent.ask("hi")

    async def answers(seed: int) -> list[bytes]:
        app = ReplayApp([RUN], faults=["drop"], seed=seed)
        return [(await call(app)).answer for _ in range(6)]

    assert await answers(1) == await answers(1)
    assert len(set(await answers(1))) > 1


@pytest.mark.anyio
async def test_a_broken_connection_is_left_incomplete() -> None:
    connection = await call(ReplayApp([RUN], faults=["cut-after-byte:30"]))
    assert len(connection.answer) == 30
    assert not connection.complete


def test_what_is_no_recording_is_refused() -> None:
    with pytest.raises(ValueError, match="it is no recording"):
        ReplayApp(b"hello")
    with pytest.raises(TypeError, match="a list of runs"):
        ReplayApp(RUN)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there is no fault 'explode'"):
        ReplayApp([RUN], faults=["explode"])


# -- the command ---------------------------------------------------------------------------


@contextmanager
def replaying(*arguments: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """`aguia replay` on a free port: its URL and its process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "aguia", "replay", *arguments, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        match = re.search(r" at (http://\S+)$", process.stdout.readline().rstrip("\n"))
        if match is None:
            process.kill()
            pytest.fail(process.communicate()[1])
        yield match[1], process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=SECONDS)


@posix
def test_the_command_serves_a_recording_until_ctrl_c(tmp_path: Path) -> None:
    path = tmp_path / "run.sse"
    path.write_bytes(frame(*RUN, *SECOND))

    async def talk(url: str) -> None:
        async with HttpAgent(url, retries=0) as agent:
            with pytest.raises(TruncatedRun):
                await agent.ask("hi")
            # The second run has two events, and is over before it could be cut.
            assert (await agent.ask("hi")).outcome == "success"
            with pytest.raises(InputRejected):
                await agent.ask("hi")

    arguments = ("--pace", "0", "--fault", "cut-after-event:3", "--once")
    with replaying(str(path), *arguments) as (url, process):
        asyncio.run(talk(url))
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.jsonl"], "can't read missing.jsonl: No such file"),
        (["text.txt"], "text.txt: it is no recording"),
        (["empty.jsonl"], "empty.jsonl: it holds no run"),
        (["run.sse", "--pace", "fast"], "the pace is 'original' or seconds between events"),
        (["run.sse", "--fault", "explode"], "there is no fault 'explode'"),
    ],
)
def test_the_command_says_what_is_wrong_with_its_use(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "text.txt").write_text("hello\x1b[2J\n")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "run.sse").write_bytes(frame(*RUN))
    done = aguia("replay", *arguments, "--port", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "\x1b" not in done.stderr


def test_the_command_lists_the_faults() -> None:
    done = aguia("replay", "--list-faults")
    assert done.returncode == 0
    assert "stall:N:SECONDS" in done.stdout
