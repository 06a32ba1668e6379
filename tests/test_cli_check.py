"""`aguia check` and `aguia rules` as a person and a script meet them."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest

from aguia.codec import protobuf
from aguia.codec.json import convert_event
from aguia.protocol.rules import RULES
from aguia.testing import assert_conformant
from support_cli import Done, aguia

Json = dict[str, Any]

RUN: Final[Json] = {
    "type": "RUN_STARTED",
    "threadId": "t",
    "runId": "r",
    "protocolVersion": "1.0",
}
END: Final[Json] = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
STRAY: Final[Json] = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x"}
STRAY_END: Final[Json] = {"type": "TEXT_MESSAGE_END", "messageId": "m"}
STEP: Final[Json] = {"type": "STEP_FINISHED", "stepName": "s"}
UNNAMED: Final[Json] = {"type": "CUSTOM", "name": "note", "value": 1}


def lines(*events: Json) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def body(*events: Json) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A recording with one error and one warning."""
    path = tmp_path / "run 1.jsonl"
    path.write_bytes(lines(RUN, STRAY, UNNAMED, STRAY_END, END)[:-1])
    return path


def found(done: Done) -> list[tuple[str, int]]:
    """Rules and events of the findings in the JSON output."""
    return [
        (finding["rule"], finding["event"])
        for source in json.loads(done.out)["sources"]
        for finding in source["findings"]
    ]


# -- text ------------------------------------------------------------------------------


def test_nothing_to_find_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "good.sse"
    path.write_bytes(body(RUN, END))
    done = aguia("check", path)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{path}: 2 events, nothing to complain about\n"


def test_a_finding_names_place_cause_and_page(recorded: Path) -> None:
    done = aguia("check", recorded)
    assert done.code == 1
    assert f"{recorded}: 1 error, 1 warning in 5 events" in done.out
    assert "error STREAM-1  event 1, line 2 TEXT_MESSAGE_CONTENT" in done.out
    assert "    no text message 'm' is open\n" in done.out
    assert "expected start, then content, then end" in done.out
    assert "hint     The start is missing" in done.out
    assert "page     https://docs.ag-ui.com/spec/1.0/basic/patterns/streaming" in done.out
    assert "\x1b" not in done.out


def test_the_culprit_is_marked_in_an_excerpt(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(lines(RUN, {**UNNAMED, "name": 5}, END))
    shown = aguia("check", path).out.splitlines()
    [at] = [number for number, line in enumerate(shown) if line.startswith("  > ")]
    assert shown[at] == '  >      1 {"type": "CUSTOM", "name": 5, "value": 1}'
    assert shown[at + 1].strip() == "^^^^^^"
    assert shown[at][shown[at + 1].index("^") :].startswith('"name"')
    assert shown[at - 1].startswith("         0 {")
    assert shown[at + 2].startswith("         2 {")


def test_a_culprit_deep_in_a_long_event_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    event = {**UNNAMED, "name": "a." + "x" * 5000, "value": 1}
    path.write_bytes(lines(RUN, {**UNNAMED, "rawEvent": "x" * 900, "timestamp": "now"}, event, END))
    shown = aguia("check", path).out.splitlines()
    [at] = [number for number, line in enumerate(shown) if line.startswith("  > ")]
    assert shown[at][shown[at + 1].index("^") :].startswith('"timestamp"')
    assert all(len(line) < 400 for line in shown)


def test_what_a_stream_holds_never_reaches_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "evil.jsonl"
    evil = "\x1b[2J\x07\u202e\n\r"
    path.write_bytes(
        lines(RUN, {**STRAY, "messageId": evil}, {**STEP, "stepName": evil}, {"type": evil}, END)
        + b'{"type": "\x1b[31m'
    )
    for output in ("text", "json", "sarif", "junit"):
        done = aguia("check", path, "-o", output)
        assert done.code == 1
        for character in "\x1b\x07\u202e\r":
            assert character not in done.out + done.err, output


def test_several_streams_are_summed_up(tmp_path: Path, recorded: Path) -> None:
    path = tmp_path / "good.jsonl"
    path.write_bytes(lines(RUN, END))
    done = aguia("check", path, recorded)
    assert done.code == 1
    assert done.out.endswith("1 error, 1 warning in 2 streams\n")


# -- sources ---------------------------------------------------------------------------


def test_every_format_is_found_out(tmp_path: Path) -> None:
    events = (RUN, STRAY, STRAY_END, END)
    path = tmp_path / "recording"
    binary = b"".join(protobuf.encode_event(convert_event(event)) for event in events)
    for data in (
        lines(*events),
        json.dumps(events).encode(),
        json.dumps(events, indent=2).encode(),
        body(*events),
        binary,
        gzip.compress(body(*events)),
    ):
        path.write_bytes(data)
        assert found(aguia("check", path, "-o", "json")) == [("STREAM-1", 1)]
        assert found(aguia("check", "-", "-o", "json", input=data)) == [("STREAM-1", 1)]
    path.write_bytes(binary)
    assert aguia("check", path, "--format", "jsonl").code == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"hello world\n", "it begins with 'hello world"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "record the body alone"),
        (gzip.compress(lines(RUN, END) * 50, mtime=0)[:40], "the compressed data is broken"),
        (b"\x1f\x8bnonsense", "gzipped"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "recording"
    path.write_bytes(data)
    done = aguia("check", path)
    assert done.code == 2
    assert f"{path}: can't be read: " in done.out
    assert words in done.out or words == "gzipped"
    assert words in aguia("check", path, "-o", "json").err or words == "gzipped"


def test_missing_files_and_folders_are_said(tmp_path: Path) -> None:
    done = aguia("check", tmp_path / "nothing", tmp_path)
    assert done.code == 2
    assert f"{tmp_path / 'nothing'}: can't be read: No such file" in done.out
    assert "it is a folder" in done.out


def test_an_agent_without_its_scheme_is_told_of_it() -> None:
    """`aguia chat` takes one so; here it could be a file."""
    for source in ("localhost:8000", "127.0.0.1:8000/run", "[::1]:8000"):
        done = aguia("check", source)
        assert done.code == 2
        assert f"No such file or directory; for an agent write http://{source}\n" in done.out
    assert "for an agent" not in aguia("check", "run.jsonl").out


def test_an_empty_recording_is_a_truncated_run(tmp_path: Path) -> None:
    """RUN-11."""
    done = aguia("check", "-")
    assert done.code == 1
    assert "the stream ended before any event had come" in done.out


def test_the_input_that_a_recording_answers_can_be_given(tmp_path: Path) -> None:
    path, given = tmp_path / "run.jsonl", tmp_path / "input.json"
    delta = {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/n", "value": 2}]}
    path.write_bytes(lines(RUN, delta, END))
    given.write_text(json.dumps({"threadId": "t", "runId": "r", "state": {"n": 1}}))
    assert found(aguia("check", path, "-o", "json")) == [("STATE-4", 1)]
    assert found(aguia("check", path, "--input", given, "-o", "json")) == []


# -- machines --------------------------------------------------------------------------


def test_json_holds_every_member_of_a_finding(recorded: Path) -> None:
    done = aguia("check", recorded, "--output", "json")
    assert done.code == 1
    data = json.loads(done.out)
    assert (data["errors"], data["warnings"]) == (1, 1)
    [source] = data["sources"]
    assert (source["source"], source["format"], source["events"]) == (str(recorded), "jsonl", 5)
    error = source["findings"][0]
    assert error["severity"] == "error"
    assert (error["event"], error["line"], error["runId"]) == (1, 2, "r")
    assert error["message"] == "no text message 'm' is open"
    for name in ("seen", "expected", "hint", "page"):
        assert error[name]


def test_sarif_is_what_code_scanning_reads(recorded: Path, tmp_path: Path) -> None:
    other = tmp_path / "missing"
    log = json.loads(aguia("check", recorded, other, "-o", "sarif").out)
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    [run] = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "aguia"
    assert [rule["id"] for rule in driver["rules"]] == ["STREAM-1", "PROC-13"]
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"] == RULES[rule["id"]].text
        assert rule["helpUri"].startswith("https://")
        assert rule["defaultConfiguration"]["level"] in ("error", "warning")
    assert len(run["results"]) == 2
    for result, level, line in zip(run["results"], ("error", "warning"), (2, 3), strict=True):
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] == level
        assert result["message"]["text"]
        [location] = result["locations"]
        physical = location["physicalLocation"]
        assert physical["region"] == {"startLine": line}
        assert physical["artifactLocation"]["uri"] == recorded.as_uri()
        assert result["partialFingerprints"]
    [invocation] = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "missing" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_junit_has_a_case_for_each_stream(recorded: Path, tmp_path: Path) -> None:
    good, warned = tmp_path / 'a<&">.jsonl', tmp_path / "warned.jsonl"
    good.write_bytes(lines(RUN, END))
    warned.write_bytes(lines(RUN, UNNAMED, END))
    sources = (good, recorded, warned, tmp_path / "missing")
    root = ElementTree.fromstring(aguia("check", *sources, "-o", "junit").out)
    assert root.tag == "testsuites"
    assert root.attrib == {"tests": "4", "failures": "1", "errors": "1", "skipped": "0"}
    cases = root.findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == [str(source) for source in sources]
    assert [[child.tag for child in case] for case in cases] == [
        [],
        ["failure"],
        ["system-out"],
        ["error"],
    ]
    failure = cases[1].find("failure")
    assert failure is not None
    assert failure.get("type") == "STREAM-1"
    assert "no text message 'm' is open" in (failure.text or "")
    strict = aguia("check", warned, "-o", "junit", "--max-warnings", "0")
    assert strict.code == 1
    assert ElementTree.fromstring(strict.out).get("failures") == "1"


# -- what counts -----------------------------------------------------------------------


def test_rules_and_families_can_be_chosen_and_left_out(recorded: Path) -> None:
    def of(*arguments: str) -> tuple[int, list[str]]:
        done = aguia("check", recorded, "-o", "json", *arguments)
        return done.code, [rule for rule, _ in found(done)]

    assert of() == (1, ["STREAM-1", "PROC-13"])
    assert of("--rule", "STREAM-1") == (1, ["STREAM-1"])
    assert of("--rule", "proc") == (0, ["PROC-13"])
    assert of("--rule", "PROC,STREAM", "--ignore", "PROC-13") == (1, ["STREAM-1"])
    assert of("--ignore", "STREAM", "--ignore", "PROC") == (0, [])
    wrong = aguia("check", recorded, "--rule", "stream-9")
    assert wrong.code == 2
    assert wrong.err.startswith("aguia: no rule 'STREAM")


def test_what_an_agent_must_not_do_is_an_error_strictly(tmp_path: Path) -> None:
    path = tmp_path / "unversioned.jsonl"
    unversioned = {name: value for name, value in RUN.items() if name != "protocolVersion"}
    path.write_bytes(lines(unversioned, UNNAMED, END))
    assert aguia("check", path).code == 0
    done = aguia("check", path, "--strict", "-o", "json")
    assert done.code == 1
    assert [rule for rule, _ in found(done)] == ["VER-1", "PROC-13"]


def test_warnings_fail_when_there_are_too_many(tmp_path: Path) -> None:
    path = tmp_path / "warned.jsonl"
    path.write_bytes(lines(RUN, UNNAMED, {**UNNAMED, "name": "other"}, END))
    assert aguia("check", path).code == 0
    assert aguia("check", path, "--max-warnings", "2").code == 0
    done = aguia("check", path, "--max-warnings", "1")
    assert done.code == 1
    assert "More warnings than the 1 allowed." in done.out


def test_a_baseline_hides_what_is_known_and_nothing_else(recorded: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "known.json"
    assert aguia("check", recorded, "--write-baseline", baseline).code == 0
    done = aguia("check", recorded, "--baseline", baseline)
    assert done.code == 0
    assert "2 known by the baseline" in done.out
    # Other ids and places, and a fault of a new kind.
    recorded.write_bytes(
        lines(
            RUN,
            UNNAMED,
            {**STRAY, "messageId": "n"},
            {**STRAY_END, "messageId": "n"},
            STEP,
            END,
        )
    )
    done = aguia("check", recorded, "--baseline", baseline, "-o", "json")
    assert done.code == 1
    assert found(done) == [("RUN-14", 4)]
    # The same fault once more than is known.
    recorded.write_bytes(lines(RUN, STRAY, {**STRAY, "messageId": "n"}, END))
    assert found(aguia("check", recorded, "--baseline", baseline, "-o", "json")) == [
        ("STREAM-1", 2)
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "xml"], "no format 'xml'; there are auto, sse"),
        (["--output", "html"], "no output 'html'; there are text, json"),
        (["--baseline", "{tmp}/none.json"], "can't read"),
        (["--baseline", "{tmp}/wrong.json"], "is no baseline: expected an object"),
        (["--input", "{tmp}/wrong.json"], "is no run input: "),
        (["--input", "{tmp}/none.json"], "can't read"),
        (["--write-baseline", "{tmp}/no/folder.json"], "can't write"),
        (["--peer-version", "old"], "old"),
        (["-", "-"], "the standard input can be read once"),
    ],
)
def test_wrong_usage_is_said_in_one_line(
    recorded: Path, tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "wrong.json").write_text("[1]")
    done = aguia(
        "check", recorded, *(argument.replace("{tmp}", str(tmp_path)) for argument in arguments)
    )
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("aguia: ")
    assert words in done.err
    assert done.err.count("\n") == 1


# -- live ------------------------------------------------------------------------------


@contextmanager
def serving(data: bytes, status: int = 200, kind: str = "text/event-stream") -> Iterator[Any]:
    """An agent that answers with these bytes; yields its URL and what it was sent."""
    sent: list[tuple[str | None, Json]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            sent.append((self.headers.get("X-Key"), json.loads(self.rfile.read(size))))
            run = {name: sent[-1][1][name] for name in ("threadId", "runId")}
            answer = data.replace(b'"t"', json.dumps(run["threadId"]).encode())
            answer = answer.replace(b'"r"', json.dumps(run["runId"]).encode())
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/agent", sent
        finally:
            server.shutdown()
            thread.join()


def test_a_live_agent_is_asked_and_checked(tmp_path: Path) -> None:
    with serving(body(RUN, STRAY, STRAY_END, END)) as (url, sent):
        done = aguia("check", url, "--message", "How are you?", "-H", "X-Key: secret", "-o", "json")
        assert done.code == 1
        assert found(done) == [("STREAM-1", 1)]
        assert json.loads(done.out)["sources"][0]["source"] == url
        key, input = sent[0]
        assert key == "secret"
        assert input["protocolVersion"] == "1.0"
        assert input["messages"][0]["content"] == "How are you?"
        given = tmp_path / "input.json"
        given.write_text(json.dumps({"threadId": "t7", "state": {"n": 1}}))
        assert aguia("check", url, "--input", given).code == 1
        assert (sent[1][1]["threadId"], sent[1][1]["state"]) == ("t7", {"n": 1})


def test_a_live_agent_that_keeps_the_rules_passes() -> None:
    with serving(body(RUN, END)) as (url, _):
        done = aguia("check", url)
        assert done.code == 0, done.out
        assert done.out == f"{url}: 2 events, nothing to complain about\n"


def test_an_answer_that_is_no_stream_is_a_finding() -> None:
    """HTTP-2."""
    with serving(b"<html>", kind="text/html") as (url, _):
        done = aguia("check", url)
    assert done.code == 1
    assert "error HTTP-2" in done.out
    assert "text/html" in done.out


def test_an_agent_that_refuses_or_is_not_there_can_not_be_read(free_port: int) -> None:
    with serving(b'{"error": "no credit"}', 402, "application/json") as (url, _):
        done = aguia("check", url.replace("://", "://me:password@") + "?key=hidden")
    assert done.code == 2
    assert "can't be read: 402: no credit" in done.out
    assert "password" not in done.out + done.err
    assert "hidden" not in done.out + done.err
    done = aguia("check", f"http://127.0.0.1:{free_port}/")
    assert done.code == 2
    assert "no connection to" in done.out
    done = aguia("check", f"http://127.0.0.1:{free_port}/", "-H", "Authorization secret")
    assert done.code == 2
    assert done.err == "aguia: that is no header; write it as 'Name: value'\n"


def test_an_agent_of_this_machine_is_asked_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port}")
    with serving(body(RUN, END)) as (url, _):
        assert aguia("check", url).code == 0


def test_an_old_agent_is_asked_as_it_understands(tmp_path: Path) -> None:
    """VER-1, VER-3: it is sent no version, and what it can't hold is left out with a warning."""
    given = tmp_path / "input.json"
    image = {"type": "image", "source": {"type": "url", "value": "https://agent.example/a.png"}}
    said = {"id": "m", "role": "user", "content": [{"type": "text", "text": "Hi"}, image]}
    given.write_text(json.dumps({"messages": [said]}))
    with serving(body(RUN, END)) as (url, sent):
        done = aguia("check", url, "--input", given, "--peer-version", "0.0.39")
        assert done.code == 0
        aguia("check", url, "--input", given)
    old, new = (input for _, input in sent)
    assert "protocolVersion" not in old
    assert old["messages"][0]["content"] == "Hi"
    assert new["protocolVersion"] == "1.0"
    assert new["messages"][0]["content"] == said["content"]


def test_what_an_input_says_that_nobody_knows_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """PROC-11."""
    given = tmp_path / "input.json"
    given.write_text('{"theadId": "t"}')
    with serving(body(RUN, END)) as (url, sent):
        assert aguia("check", url, "--input", given).code == 0
    assert "theadId" not in sent[0][1]
    assert "/theadId" in caplog.text


# -- rules -----------------------------------------------------------------------------


def test_the_catalogue_is_printed() -> None:
    done = aguia("rules")
    assert done.code == 0
    for rule in RULES.values():
        assert f"\n{rule.id:<10}" in f"\n{done.out}"
        assert rule.text in done.out


def test_one_rule_and_a_family_are_printed_with_their_page() -> None:
    done = aguia("rules", "chunk-7")
    assert done.code == 0
    assert done.out.startswith("CHUNK-7   producer and consumer must\nA lane is an owner")
    assert "https://docs.ag-ui.com/spec/1.0/basic/patterns/streaming" in done.out
    family = aguia("rules", "USE").out
    assert "USE-1" in family
    assert "USE-2" in family
    assert "the specification is silent" in aguia("rules", "CONV-1").out
    several = aguia("rules", "chunk-7", "USE").out
    assert "USE-1" in several
    assert "CHUNK-7 " in several


def test_a_run_that_failed_is_said_to_have(tmp_path: Path) -> None:
    """RUN-8: it breaks no rule, and yet nobody wants to overlook it."""
    path = tmp_path / "failed.jsonl"
    started = {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}
    error = {"type": "RUN_ERROR", "message": "No \x1b[2Jcredit."}
    path.write_text(f"{json.dumps(started)}\n{json.dumps(error)}\n")
    done = aguia("check", path)
    assert done.code == 0
    assert "nothing to complain about; the run failed: No" in done.out
    assert "\x1b" not in done.out
    [source] = json.loads(aguia("check", path, "-o", "json").out)["sources"]
    assert source["failure"] == "No \x1b[2Jcredit."


def test_an_unknown_rule_is_answered_with_those_there_are() -> None:
    done = aguia("rules", "chunk-99")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("aguia: no rule 'CHUNK-")
    assert "; the CHUNK rules are CHUNK-1, CHUNK-2" in done.err
    assert aguia("rules", "-o", "xml").code == 2


def test_the_catalogue_can_be_read_by_programs() -> None:
    listed = json.loads(aguia("rules", "-o", "json").out)
    assert [rule["id"] for rule in listed] == list(RULES)
    assert listed[0]["page"] == "https://docs.ag-ui.com/spec/1.0/basic/index"


# -- what a recorder writes ------------------------------------------------------------


def recorder_lines(*runs: tuple[Json | None, list[Json]]) -> bytes:
    """Runs as `aguia record` and `Recorder` write them."""
    parts: list[Json] = []
    for given, events in runs:
        parts += [{"at": 0, "input": given}] if given is not None else []
        parts += [{"at": 0.5 + number, "event": event} for number, event in enumerate(events)]
    return lines(*parts)


def asked(run: str, **members: Any) -> Json:
    return {"threadId": "t", "runId": run, "protocolVersion": "1.0", "messages": [], **members}


DELTA: Final[Json] = {
    "type": "STATE_DELTA",
    "delta": [{"op": "replace", "path": "/n", "value": 2}],
}


def test_what_the_command_has_recorded_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with serving(body(RUN, STRAY, STRAY_END, END)) as (url, _):
        aguia("record", url, path, "-m", "Hello")
    done = aguia("check", path)
    assert done.code == 1
    assert f"{path}: 1 error, 0 warnings in 4 events" in done.out
    assert "error STREAM-1  event 1, line 3 TEXT_MESSAGE_CONTENT" in done.out


def test_each_run_of_a_recorder_is_checked_with_its_own_input(tmp_path: Path) -> None:
    """STATE-4: what a delta amends stands in the input of its run."""
    path = tmp_path / "runs.jsonl"
    second = [{**RUN, "runId": "r2"}, DELTA, {**END, "runId": "r2"}]
    path.write_bytes(
        recorder_lines(
            (asked("r", state={"n": 1}), [RUN, DELTA, END]),
            (asked("r2", state={"m": "long " * 30_000}), second),
        )
    )
    done = aguia("check", path)
    assert done.code == 0
    assert f"{path}, run 1: 3 events, nothing to complain about\n" in done.out
    assert f"{path}, run 2: 0 errors, 1 warning in 3 events\n" in done.out
    assert "warning STATE-4  event 1, line 7 STATE_DELTA" in done.out
    assert done.out.endswith("0 errors, 1 warning in 2 streams\n")
    for data in (path.read_bytes(), gzip.compress(path.read_bytes())):
        sources = json.loads(aguia("check", "-", "-o", "json", input=data).out)["sources"]
        assert [(each["run"], each["format"]) for each in sources] == [
            (1, "recorder"),
            (2, "recorder"),
        ]
    [result] = json.loads(aguia("check", path, "-o", "sarif").out)["runs"][0]["results"]
    [place] = result["locations"]
    assert place["physicalLocation"]["region"] == {"startLine": 7}
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "runs/2/events/1/delta/0"
    cases = ElementTree.fromstring(aguia("check", path, "-o", "junit").out).iter("testcase")
    assert [case.get("name") for case in cases] == [f"{path}, run 1", f"{path}, run 2"]


def test_a_long_input_is_no_other_format(tmp_path: Path) -> None:
    """The first line of a long thread is longer than what a format is found out from."""
    path = tmp_path / "runs.jsonl"
    path.write_bytes(recorder_lines((asked("r", state={"m": "x" * 300_000}), [RUN, END])))
    assert aguia("check", path).out == f"{path}: 2 events, nothing to complain about\n"


def test_a_run_of_a_recorder_that_was_cut_off(tmp_path: Path) -> None:
    """RUN-11: also where its writer was killed in the middle of a line."""
    path = tmp_path / "runs.jsonl"
    whole = recorder_lines((None, [RUN, UNNAMED]), (asked("r"), [RUN, END]))
    path.write_bytes(recorder_lines((asked("r"), [RUN])) + whole + b'{"at": 2, "event": {"ty')
    done = aguia("check", path, "--rule", "RUN")
    assert done.code == 1
    assert "run 1: 2 errors, 0 warnings in 3 events" in done.out
    assert "error RUN-4  event 1, line 3 RUN_STARTED" in done.out
    assert "error RUN-11  event 2, line 4" in done.out
    assert "run 2: 2 events, nothing to complain about" in done.out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"type": "RUN_STARTED"}\n', "line 4 is no line of a recorder: expected an object"),
        (b"hello\n", "line 4 is no line of a recorder: "),
        (b'{"at": 1, "input": {"threadId": 5}}\n', "the input of its run in line 4 is none"),
    ],
)
def test_a_line_that_is_none_of_a_recorder_is_said(tmp_path: Path, line: bytes, words: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(recorder_lines((asked("r"), [RUN, END])) + line)
    done = aguia("check", path)
    assert done.code == 2
    assert words in done.out
    assert "STREAM" not in done.out
    empty = aguia("check", "-", "--format", "recorder", input=b"\n")
    assert "it holds no run" in empty.out


def test_a_saved_conversation_is_no_stream(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    saved: Json = {"threadId": "t", "messages": [], "state": None, "interrupts": []}
    path.write_text(json.dumps(saved, indent=2))
    done = aguia("check", path)
    assert done.code == 2
    assert "it is a conversation, as /save in `aguia chat`" in done.out


def test_the_runs_of_a_recorder_can_be_asserted_to_be_right() -> None:
    good = (asked("r"), [RUN, END])
    assert_conformant(recorder_lines(good, good))
    with pytest.raises(AssertionError, match="run 2 breaks the protocol:\nerror STREAM-1 event 1"):
        assert_conformant(recorder_lines(good, (asked("r"), [RUN, STRAY, STRAY_END, END])))
