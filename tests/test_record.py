"""`aguia record`: calls an agent and keeps what comes, whatever it is."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from aguia.codec.recordings import read_runs
from aguia.server import AgentApp, Run
from aguia.testing import ReplayApp, ScriptedAgent
from support_events import FINISHED, STARTED, event, frame
from support_server import serve
from test_cli_commands import Done, aguia


def record(app: Any, path: Path, *arguments: str) -> Done:
    """Record from an application into a file."""
    with serve(app) as url:
        return aguia("record", url, str(path), *arguments)


def types(events: Iterable[Any]) -> list[str]:
    return [each["type"] for _, each in events]


def test_runs_of_one_thread_are_kept_with_their_inputs_and_times(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    scripted = ScriptedAgent("one", "two", "three")
    app = AgentApp(scripted)
    done = record(app, path, "-m", "first", "-m", "second")
    assert (done.returncode, done.stdout) == (0, "")
    assert "the run succeeded; kept 5 events" in done.stderr
    first, second = read_runs(path.read_bytes())
    assert first.input is not None
    assert second.input is not None
    assert first.input["threadId"] == second.input["threadId"]
    assert first.input["runId"] != second.input["runId"]
    assert first.input["protocolVersion"] == "1.0"
    contents = [message["content"] for message in second.input["messages"]]
    assert contents == ["first", "one", "second"]
    assert types(first.events)[0] == "RUN_STARTED"
    assert types(first.events)[-1] == "RUN_FINISHED"
    times = [at for at, _ in first.events if at is not None]
    assert times == sorted(times)
    assert 0 <= times[0] < 60

    # What is there is not lost by accident.
    refused = record(app, path)
    assert refused.returncode == 2
    assert "--append adds to it, --force replaces it" in refused.stderr
    assert record(app, path, "--append").returncode == 0
    assert len(read_runs(path.read_bytes())) == 3
    assert record(ReplayApp([[STARTED, FINISHED]]), path, "--force").returncode == 0
    assert len(read_runs(path.read_bytes())) == 1


def test_the_body_can_be_kept_as_it_came(tmp_path: Path) -> None:
    path = tmp_path / "run.sse"
    body = frame(STARTED, event("CUSTOM", name="a.b", value="ü"), FINISHED)
    app = ReplayApp(body, mapped=False)
    record(app, path, "--raw")
    raw = path.read_bytes()
    assert raw.startswith(b'data: {"type":"RUN_STARTED"')
    assert [len(run.events) for run in read_runs(raw)] == [3]
    record(app, path, "--raw", "--append")
    assert path.read_bytes().replace(b"\n\n\n\n", b"\n\n") == raw + raw


def test_what_breaks_the_rules_is_kept_like_anything_else(tmp_path: Path) -> None:
    """PROC-3: the exit code says so; what comes after it is there, too."""
    path = tmp_path / "run.jsonl"
    broken = frame(STARTED, {"type": "CUSTOM", "name": 7}) + b"data: {nothing\n\n"
    body = broken + frame({"type": "NEW"}, FINISHED)
    done = record(ReplayApp(body), path)
    assert done.returncode == 1
    assert "breaks the rule PROC-3 at event 1" in done.stderr
    assert "not in the recording: 1 frame without a JSON object; --raw keeps" in done.stderr
    assert [types(run.events) for run in read_runs(path.read_bytes())] == [
        ["RUN_STARTED", "CUSTOM", "NEW", "RUN_FINISHED"]
    ]


async def _ends(run: Run) -> None:
    match run.messages[-1].content if run.messages else "":
        case "ask":
            run.interrupt("approval", message="May I?")
        case "cancel":
            await run.emit(
                {
                    "type": "RUN_FINISHED",
                    "threadId": run.thread_id,
                    "runId": run.run_id,
                    "outcome": {"type": "cancelled"},
                }
            )
        case "fail":
            raise ValueError("a secret")


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        ("go", 0, "the run succeeded"),
        ("ask", 3, "the run asks for an answer"),
        ("cancel", 3, "the run was cancelled"),
        ("fail", 1, "the run failed: The agent failed"),
    ],
)
def test_the_exit_code_says_how_the_run_ended(
    tmp_path: Path, message: str, code: int, words: str
) -> None:
    done = record(AgentApp(_ends), tmp_path / "x", "-m", message)
    assert done.returncode == code
    assert words in done.stderr


def test_no_message_passes_over_a_question(tmp_path: Path) -> None:
    """INT-2: whoever records can't answer, so what is left to say is not sent."""
    path = tmp_path / "run.jsonl"
    done = record(AgentApp(_ends), path, "-m", "ask", "-m", "go", "-m", "on")
    assert done.returncode == 3
    assert "nobody answers it; 2 messages not sent" in done.stderr
    assert len(read_runs(path.read_bytes())) == 1


def test_a_call_that_is_left_to_the_recorder_is_declined(tmp_path: Path) -> None:
    """FRONT-5, IN-1: the next input answers it, and has no null for a state."""

    async def calls(run: Run) -> None:
        if len(run.messages) == 1:
            await run.emit(event("STATE_SNAPSHOT", snapshot=None))
            await run.emit(event("TOOL_CALL_START", toolCallId="c", toolCallName="ask"))
            await run.emit(event("TOOL_CALL_END", toolCallId="c"))

    given = tmp_path / "input.json"
    tool = {"name": "ask", "description": "Asks."}
    said = {"id": "m", "role": "user", "content": "Hi"}
    given.write_text(json.dumps({"messages": [said], "tools": [tool]}))
    path = tmp_path / "run.jsonl"
    done = record(AgentApp(calls), path, "--input", str(given), "-m", "then")
    assert done.returncode == 0, done.stderr
    _, second = read_runs(path.read_bytes())
    assert second.input is not None
    roles = [message["role"] for message in second.input["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]
    answer = second.input["messages"][2]
    assert (answer["toolCallId"], answer["error"]) == ("c", "This client has no such tool.")
    assert second.input["state"] == {}


def test_a_run_that_breaks_off_is_kept_as_far_as_it_came(tmp_path: Path) -> None:
    """RUN-11."""
    path = tmp_path / "run.jsonl"
    app = ReplayApp([[STARTED, FINISHED]], faults=["cut-after-event:1"])
    done = record(app, path)
    assert done.returncode == 1
    assert "the run was cut off" in done.stderr.lower()
    assert [types(run.events) for run in read_runs(path.read_bytes())] == [["RUN_STARTED"]]


def test_a_silent_server_is_left_when_the_time_is_over(tmp_path: Path) -> None:
    app = ReplayApp([[STARTED, FINISHED]], faults=["stall:1"])
    done = record(app, tmp_path / "x", "--timeout", "0.5")
    assert done.returncode == 1
    assert "limit for all of it" in done.stderr


def test_an_input_can_be_given_and_is_judged_before_anything_is_sent(tmp_path: Path) -> None:
    """PROC-11."""
    scripted = ScriptedAgent("one", repeat=True)
    given = tmp_path / "input.json"
    given.write_text(json.dumps({"threadId": "T", "state": [1], "messages": []}))
    with serve(AgentApp(scripted)) as url:
        assert aguia("record", url, "-", "--input", str(given), "-m", "then").returncode == 0
        assert [each.thread_id for each in scripted.inputs] == ["T", "T"]
        assert [each.state for each in scripted.inputs] == [[1], [1]]
        assert scripted.inputs[1].messages[-1].content == "then"
        for wrong, words in (
            ('{"messages": 7}', "is no run input"),
            ("{", "is no run input"),
            ("[]", "is no run input"),
        ):
            given.write_text(wrong)
            done = aguia("record", url, "-", "--input", str(given))
            assert (done.returncode, done.stdout) == (2, "")
            assert words in done.stderr
        assert len(scripted.inputs) == 2


def test_wrong_usage_and_nobody_there(tmp_path: Path, free_port: int) -> None:
    path = str(tmp_path / "x")
    for arguments, words in (
        (["ftp://x", path], "is no URL of an agent"),
        (["http://user:secret@", path], "is no URL of an agent"),
        (["http://x", path, "-H", "a\nb: c"], "no header"),
        (["http://x", path, "-H", "X-Key: sec\x01ret"], "no header 'X-Key'"),
        (["http://x", str(tmp_path / "no" / "x")], "can't open"),
        (["http://x", path, "--append", "--force"], "choose one"),
        ([f"127.0.0.1:{free_port}", path], "Cannot connect"),
    ):
        done = aguia("record", *arguments)
        assert done.returncode == 2, done
        assert words in done.stderr
        assert "sec" not in done.stderr
