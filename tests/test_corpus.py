"""The corpus that the package brings along, and clients that are asked about it.

Ours passes all of it. The npm client differs in what `tests/peers/corpus-known.json` lists, in
that and in nothing else.
"""

import base64
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import anyio
import pytest

from aguia.protocol.rules import RULES
from aguia.testing import adapter, corpus
from support import REPOSITORY, own_streams, require_peers
from support_cli import aguia

Json = dict[str, Any]

KNOWN: Final = REPOSITORY / "tests" / "peers" / "corpus-known.json"


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "aguia")


# The cases


def test_every_file_is_a_case() -> None:
    assert [case.name for case in corpus.cases()] == list(own_streams())
    assert len(corpus.cases()) > 350
    assert corpus.case("act-not-sent-back").rules == ("ACT-4",)
    with pytest.raises(KeyError, match="no case 'nothing'"):
        corpus.case("nothing")


def test_a_case_is_whole_in_itself() -> None:
    """IN-1: inputs are whole; every expectation is one that a reply is compared in."""
    compared = {"outcome", *(name for names in corpus.FACTS.values() for name in names)}
    for case in corpus.cases():
        assert case.expect.keys() <= compared, case.name
        assert case.outcome in corpus.OUTCOMES
        assert set(case.rules) <= RULES.keys()
        if case.input is not None:
            assert {"threadId", "runId", "messages", "state", "tools"} <= case.input.keys()


def test_a_request_holds_the_stream_in_both_forms() -> None:
    case = corpus.case("stream-deltas-cut-anywhere")
    request = case.request()
    body = b"".join(map(base64.b64decode, request["chunks"]))
    assert len(request["chunks"]) == len(request["events"]) == len(case.stream)
    assert [json.loads(line[6:]) for line in body.split(b"\n") if line] == request["events"]
    pieces = [base64.b64decode(chunk) for chunk in case.request(3)["chunks"]]
    assert b"".join(pieces) == body
    assert {len(piece) for piece in pieces[:-1]} == {3}
    assert json.loads(json.dumps(request)) == request


def test_the_documentation_names_everything_there_is() -> None:
    text = (REPOSITORY / "docs" / "how-to" / "corpus.md").read_text(encoding="utf-8")
    assert f"brings {len(corpus.cases())} streams" in text
    request = corpus.cases()[0].request()
    expectations = {name for case in corpus.cases() for name in case.expect}
    for name in {*request, *corpus.OUTCOMES, *corpus.FACTS, *expectations}:
        assert f"`{name}`" in text, name


# Our client


@pytest.mark.parametrize("split", [None, 5])
def test_our_client_passes_every_case(split: int | None) -> None:
    """Each fact that is known of a case is told, and right."""
    for case in corpus.cases():
        reply = json.loads(json.dumps(adapter.answer(case.request(split))))
        assert corpus.problems(case, reply) == [], case.name
        assert set(case.asks) - {"path"} <= reply.keys(), case.name


def altered(name: str, **members: Any) -> list[str]:
    case = corpus.case(name)
    reply = json.loads(json.dumps(adapter.answer(case.request())))
    assert corpus.problems(case, reply) == []
    return corpus.problems(case, reply | members)


WRONG: Final[list[tuple[str, Json, str]]] = [
    ("act-not-sent-back", {"outcome": "truncated"}, "the stream is truncated, expected accepted"),
    ("act-not-sent-back", {"messages": []}, "messages has 0 elements, expected 2"),
    ("act-not-sent-back", {"warnings": ["oh"]}, 'warned ["oh"], expected silence'),
    ("act-not-sent-back", {"nextRequest": {"messages": []}}, "nextRequest/messages has 0"),
    ("chunk-ambiguous-continuation-fatal", {"rule": "CHUNK-1"}, 'rule is "CHUNK-1", expected'),
    ("chunk-ambiguous-continuation-fatal", {"index": 2}, "index is 2, expected 3"),
    ("act-delta-without-target-warns", {"warnings": []}, "no warning of"),
    (
        "act-delta-without-target-warns",
        {"warnings": [{"rule": "ACT-3", "message": "a-9"}, {"rule": "RUN-1"}]},
        'warned {"rule": "RUN-1"}, which is not expected',
    ),
    ("state-delta-of-the-whole-document", {"state": [0]}, "state is [0], expected"),
    ("front-pending-as-named", {"pendingToolCallIds": []}, "pendingToolCallIds is [], expected"),
    ("int-interrupts-surface-whole", {"interrupts": []}, "interrupts is [], expected"),
    ("run-outcome-cancelled", {"conversationOutcome": "success"}, "conversationOutcome is"),
    ("run-usage-as-reported", {"usage": []}, "usage is [], expected"),
    ("chunk-text-expands", {"events": []}, "delivered [], expected"),
]


@pytest.mark.parametrize(("name", "members", "words"), WRONG)
def test_a_reply_that_is_wrong_is_said_to_be_so(name: str, members: Json, words: str) -> None:
    (problem, *_) = altered(name, **members)
    assert words in problem


def test_what_a_reply_leaves_out_is_not_compared() -> None:
    """And of a warning that names no rule, only that there is one."""
    case = corpus.case("act-delta-without-target-warns")
    assert corpus.problems(case, {"outcome": "accepted"}) == []
    assert corpus.problems(case, {"outcome": "accepted", "warnings": ["no such activity"]}) == []


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ([], "expected an object"),
        ({}, "expected an outcome, one of accepted, failed, rejected, truncated, not null"),
        ({"outcome": "fine"}, 'not "fine"'),
        ({"outcome": "accepted", "events": {}}, "expected a list of events"),
    ],
)
def test_what_is_no_reply_is_refused(reply: Any, words: str) -> None:
    with pytest.raises(corpus.NotAReply, match=words):
        corpus.problems(corpus.cases()[0], reply)


# Clients in processes of their own

CLIENT: Final = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    name = request["case"]
    reply = {"case": name, "outcome": "accepted"}
    if name == NAME:
        ACT
    print(json.dumps(reply), flush=True)
"""


@pytest.fixture
def three() -> list[corpus.Case]:
    """Cases of which the second one will be the trouble."""
    return [case for case in corpus.cases() if case.outcome == "accepted"][:3]


def run(tmp_path: Path, cases: list[corpus.Case], act: str, **options: Any) -> list[Any]:
    """What a client is found to do that does something in the second case."""
    script = tmp_path / "client.py"
    code = CLIENT.replace("NAME", repr(cases[1].name)).replace("ACT", act)
    script.write_text(code, encoding="utf-8")

    async def ask() -> list[corpus.CaseResult]:
        return await corpus.run_command([sys.executable, str(script)], cases, **options)

    return anyio.run(ask)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("sys.exit(3)", "the client ended with exit code 3"),
        ("sys.exit('no such thing')", "exit code 1; it said: no such thing"),
        ("os.close(1); time.sleep(60)", "the client has closed its output"),
        ("print('hello')", 'what came is no reply: expected a line of JSON, not "hello"'),
        ("reply = []", "what came is no reply: expected an object, not []"),
        ("reply['case'] = 'x'", "is no reply: expected one to the case"),
        ("reply['outcome'] = 1", "what came is no reply: expected an outcome"),
    ],
)
def test_a_client_that_fails_is_reported_and_started_anew(
    tmp_path: Path, three: list[corpus.Case], act: str, words: str
) -> None:
    first, second, third = run(tmp_path, three, act)
    assert (first.status, third.status) == ("passed", "passed")
    assert second.status == "error"
    assert words in second.problems[0]


def test_a_client_that_says_nothing_is_ended(tmp_path: Path, three: list[corpus.Case]) -> None:
    """With what it has started; what it was late with is no reply to the next case."""
    act = (
        "import subprocess; child = subprocess.Popen(['sleep', '60']);"
        " print(child.pid, file=sys.stderr, flush=True); time.sleep(60)"
    )
    results = run(tmp_path, three, act, timeout=0.7)
    assert [result.status for result in results] == ["passed", "error", "passed"]
    said = results[1].problems[0]
    assert said.startswith("no reply within 0.7 seconds; it said: ")
    child = int(said.rpartition(" ")[2])
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _runs(child):
        time.sleep(0.02)
    assert not _runs(child)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][:1]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


def test_a_client_that_only_fails_is_not_asked_for_ever(
    tmp_path: Path, three: list[corpus.Case]
) -> None:
    cases = [three[1]] * 8
    results = run(tmp_path, cases, "sys.exit(1)")
    assert {result.status for result in results} == {"error"}
    assert [result.problems[0] for result in results[5:]] == [
        "not asked: 5 errors one after the other"
    ] * 3


def test_a_client_that_complains_a_lot_is_read(tmp_path: Path, three: list[corpus.Case]) -> None:
    results = run(tmp_path, three, "sys.stderr.write('x' * 1_000_000)", timeout=20)
    assert [result.status for result in results] == ["passed"] * 3


def test_cases_can_be_skipped_and_known(tmp_path: Path, three: list[corpus.Case]) -> None:
    """A known case that passes has failed, so that the list stays true."""
    known = {three[1].name: "not done yet"}
    (_, skipped, _) = run(tmp_path, three, "reply = {'case': name, 'skip': 'no such transport'}")
    assert (skipped.status, skipped.problems) == ("skipped", ("no such transport",))
    (_, wrong, _) = run(tmp_path, three, "reply['outcome'] = 'rejected'", known=known)
    assert wrong.status == "known"
    assert wrong.problems[0] == "not done yet"
    (_, passed, _) = run(tmp_path, three, "pass", known=known)
    assert passed.status == "failed"
    assert "it passes, and is listed" in passed.problems[0]


# The command


def test_the_command_asks_our_client() -> None:
    done = aguia(
        *("corpus", "run", "--rule", "CHUNK", "--split", "7", "--", sys.executable),
        *("-m", "aguia.testing.adapter"),
    )
    assert (done.code, done.err) == (0, "")
    count = sum(any(rule.startswith("CHUNK-") for rule in c.rules) for c in corpus.cases())
    assert done.out == f"{count} cases: {count} passed\n"


def test_the_command_reports_for_people_and_machines(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(
        CLIENT.replace("NAME", "'act-not-sent-back'").replace(
            "ACT", "reply = {'case': name, 'outcome': 'rejected', 'reason': 'no \\x1b[31m'}"
        ),
        encoding="utf-8",
    )
    chosen = ("--case", "act-not-*", "--case", "act-created-in-sequence")
    client = (sys.executable, script)
    text = aguia("corpus", "run", *chosen, *client)
    assert text.code == 1
    assert "failed  act-not-sent-back  ACT-4" in text.out
    assert "the stream is rejected (no " in text.out
    assert "\x1b" not in text.out
    assert text.out.endswith("2 cases: 1 passed, 1 failed\n")

    found = json.loads(aguia("corpus", "run", "-o", "json", *chosen, *client).out)
    assert found["counts"] == {"passed": 1, "failed": 1, "error": 0, "known": 0, "skipped": 0}
    (failed,) = [result for result in found["results"] if result["status"] == "failed"]
    assert failed["case"] == "act-not-sent-back"
    assert failed["reply"]["outcome"] == "rejected"

    known = tmp_path / "known.json"
    known.write_text('{"act-not-sent-back": "why not"}', encoding="utf-8")
    done = aguia("corpus", "run", "-o", "junit", *chosen, "--known", known, *client)
    assert done.code == 0
    suite = ElementTree.fromstring(done.out)[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "0", "1")
    (reason,) = suite.iter("skipped")
    assert reason.get("message") == "why not"


def test_a_client_that_never_answers_is_said_once() -> None:
    for command in (("-c", "raise SystemExit('no such file')"), ("nosuch.py",)):
        done = aguia("corpus", "run", "--", sys.executable, *command)
        assert done.code == 2
        assert done.out.count("\n") < 10
        assert done.out.count("no such file" if "-c" in command else "nosuch.py") == 1
        assert done.err == "aguia: the client gives no reply, and is not asked any more\n"
    machine = aguia("corpus", "run", "-o", "json", "--", sys.executable, "nosuch.py")
    assert (machine.code, machine.out) == (2, "")
    assert "and is not asked any more: the client ended with exit code 2" in machine.err


def test_a_client_that_dies_on_the_way_is_said_once(tmp_path: Path) -> None:
    chosen = [case for case in corpus.cases() if any(r.startswith("ACT-") for r in case.rules)]
    script = tmp_path / "client.py"
    script.write_text(
        CLIENT.replace("NAME", "name")
        .replace("ACT", "name == FIRST or sys.exit(3)")
        .replace("FIRST", repr(chosen[0].name))
    )
    done = aguia("corpus", "run", "--rule", "ACT", "--", sys.executable, script)
    assert done.code == 1
    assert done.out.count("ended with exit code 3") == 1
    assert done.out.count("not asked: 5 errors one after the other") == 1
    assert done.out.count("\n") < 12


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--case", "none-*", "x"), "no case is of this name and rule"),
        (("run", "--rule", "NONE", "x"), "NONE"),
        (("run", "-o", "sarif", "x"), "no output 'sarif'; there are text, json, junit"),
        (("run", "--", "/nowhere/client"), "can't start /nowhere/client: No such file"),
        (("run", "--known", "/nowhere/known.json", "x"), "can't read /nowhere/known.json"),
        (("export", "/dev/null/x"), "can't write"),
        (("list", "-o", "junit"), "no output 'junit'; there are text, json"),
    ],
)
def test_wrong_usage_is_said_in_one_line(arguments: tuple[str, ...], words: str) -> None:
    done = aguia("corpus", *arguments)
    assert done.code == 2
    assert words in done.err
    assert done.err.startswith("aguia: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "holds no object of names and reasons"),
        ('{"no-such-case": "x"}', "names no case: no-such-case"),
    ],
)
def test_a_list_of_known_cases_is_checked(tmp_path: Path, text: str, words: str) -> None:
    known = tmp_path / "known.json"
    known.write_text(text, encoding="utf-8")
    done = aguia("corpus", "run", "--known", known, "x")
    assert done.code == 2
    assert words in done.err


def test_cases_are_listed_and_exported(tmp_path: Path) -> None:
    text = aguia("corpus", "list", "--rule", "CHUNK-7").out
    assert "chunk-ambiguous-continuation-fatal  rejected  CHUNK-7\n    with two" in text
    listed = json.loads(aguia("corpus", "list", "-o", "json").out)
    assert [each["case"] for each in listed] == list(own_streams())

    done = aguia("corpus", "export", tmp_path / "made" / "here")
    assert done.out.startswith(f"{len(listed)} cases in ")
    written = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((tmp_path / "made" / "here").iterdir())
    }
    assert written == own_streams()


# Another client


def test_the_npm_client_differs_where_it_is_known_to_and_nowhere_else() -> None:
    """Its adapter is some 80 lines; each difference has its reason in `corpus-known.json`."""
    modules = require_peers()
    adapter = REPOSITORY / "tests" / "peers" / "corpus.mjs"
    known = json.loads(KNOWN.read_text(encoding="utf-8"))
    done = aguia("corpus", "run", "-o", "json", "--known", KNOWN, "--", "node", adapter, modules)
    found = json.loads(done.out)
    wrong = {
        result["case"]: result["problems"]
        for result in found["results"]
        if result["status"] not in ("passed", "known")
    }
    assert wrong == {}
    assert done.code == 0
    assert found["counts"]["known"] == len(known)


def test_the_differences_of_the_npm_client_are_documented() -> None:
    text = (REPOSITORY / "docs" / "reference" / "peers.md").read_text(encoding="utf-8")
    known = json.loads(KNOWN.read_text(encoding="utf-8"))
    assert f"Of the {len(corpus.cases())} streams" in text
    assert f"reads {len(corpus.cases()) - len(known)} as expected" in text
    for name, reason in known.items():
        assert corpus.case(name).reference == reason
        (row,) = [line for line in text.splitlines() if f"`{name}`" in line]
        assert row.endswith(f"| {reason} |")
