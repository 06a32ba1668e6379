"""`aguia probe`: the built-in assistant passes, and each known defect is found."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from aguia.cli.serve import assistant
from aguia.protocol.errors import InvalidInput
from aguia.protocol.rules import RULES
from aguia.server.intake import read_input
from aguia.testing import ReplayApp
from aguia.testing.probes import PROBES, NotAnAgent, Prober, ProbeResult, ProbeSettings, select
from aguia.testing.probes.catalogue import UNKNOWN
from aguia.testing.probes.malformed import MALFORMED
from aguia.testing.probes.prober import Probing
from support_defects import ANSWERS, DEFECTS, DefectiveApp
from support_events import FINISHED, STARTED
from support_faults import Silence, faulty, head
from support_server import serve
from test_cli_commands import aguia

MALFORMED_NAMES = tuple(MALFORMED)


async def run(
    url: str, *, only: tuple[str, ...] = (), skip: tuple[str, ...] = (), **settings: Any
) -> list[ProbeResult]:
    """Probe a URL with short times."""
    settings = {"idle": 0.05, "timeout": 20.0, "settle": 1.0, **settings}
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        prober = Prober(client, url, settings=ProbeSettings(**settings))
        return [result async for result in prober.run(select(PROBES, only, skip))]


# -- the built-in assistant ----------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folder")
    (folder / "README.md").write_text("# Eagles\n")
    (folder / "eagle.txt").write_text("an eagle flies\n")
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with serve(assistant(str(folder), writable=True)) as url:
        yield url


LED = (
    *("--tool", "open_file", "--tool-message", "open README.md"),
    *("--interrupt-message", 'replace "eagle" with "hawk" in eagle.txt'),
)


def test_the_built_in_assistant_passes_every_probe_and_skips_none(
    url: str, folder: Path, tmp_path: Path
) -> None:
    evidence, junit = tmp_path / "evidence", tmp_path / "junit.xml"
    kept = ("--evidence", str(evidence), "--junit", str(junit), "--idle", "0.3", "--json")
    done = aguia("probe", url, *LED, *kept)
    assert done.returncode == 0, done.stdout
    document = json.loads(done.stdout)
    assert {probe["name"]: probe["status"] for probe in document["probes"]} == {
        probe.name: "passed" for probe in PROBES
    }
    assert (folder / "eagle.txt").read_text() == "an eagle flies\n"

    # Everything that was sent and that came is there.
    assert json.loads((evidence / "report.json").read_text()) == document
    sent = json.loads((evidence / "plain-run-1.request").read_text())
    answer = (evidence / "plain-run-1.sse").read_text()
    assert sent["runId"] in answer
    facts = json.loads((evidence / "plain-run-1.json").read_text())
    assert (facts["status"], facts["ended"]) == (200, "complete")
    assert (evidence / "accept-protobuf-1.bin").read_bytes()[:1] == b"\x00"
    for probe in document["probes"]:
        assert probe["files"] or probe["name"] == "version-declared"

    suite = ElementTree.parse(junit).getroot()[0]
    assert suite.get("tests") == str(len(PROBES))
    assert suite.get("failures") == suite.get("skipped") == "0"


def test_a_probe_may_begin_with_a_state(url: str, tmp_path: Path) -> None:
    """IN-1: any JSON, save that null is the empty object."""
    file, evidence = tmp_path / "state.json", tmp_path / "evidence"
    for written, sent in (('{"seats": 4}', {"seats": 4}), ("null", {})):
        file.write_text(written)
        kept = ("--state", str(file), "--evidence", str(evidence))
        assert aguia("probe", url, "--only", "plain-run", *kept).returncode == 0
        assert json.loads((evidence / "plain-run-1.request").read_text())["state"] == sent
    file.write_text("{")
    for path, words in ((file, "is no JSON: "), (tmp_path / "nothing", "can't read ")):
        done = aguia("probe", url, "--state", str(path))
        assert done.returncode == 2
        assert words in done.stderr


# -- known defects -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def defective() -> Iterator[str]:
    with serve(DefectiveApp()) as url:
        yield url


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found_by_the_probes_that_look_for_it_and_by_no_other(
    name: str, defective: str
) -> None:
    defect = DEFECTS[name]
    # What happens to answers has nothing to do with what is refused.
    skip = () if defect.sees_input else MALFORMED_NAMES
    results = asyncio.run(
        run(f"{defective}{name}", only=defect.only, skip=skip, idle=defect.idle, **ANSWERS)
    )
    found: dict[str, set[str]] = {"failed": set(), "warned": set(), "skipped": set()}
    for result in results:
        assert "can't be judged" not in str(result.reasons)
        if result.status != "passed":
            found[result.status].add(result.probe.name)
            assert result.reasons
    assert found == {
        "failed": set(defect.failed),
        "warned": set(defect.warned),
        "skipped": set(defect.skipped),
    }, [(each.probe.name, each.status, each.reasons) for each in results]


# -- servers that are no agents, or no good --------------------------------------------------


@pytest.mark.anyio
async def test_a_silent_server_is_given_up_in_time() -> None:
    async with faulty([Silence()]) as server:
        with pytest.raises(NotAnAgent, match="no answer within"):
            await run(server.url, timeout=0.5)
    began = time.monotonic()
    async with faulty([head(), Silence()]) as server:
        results = await run(server.url, timeout=0.5)
    assert time.monotonic() - began < 10
    statuses = {result.probe.name: result.status for result in results}
    assert statuses.pop("plain-run") == "failed"
    assert set(statuses.values()) == {"skipped"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("401 Unauthorized", "401"),
        ("404 Not Found", "404"),
        ("307 Temporary Redirect", "307"),
    ],
)
async def test_what_is_no_agent_is_said_to_be_none(status: str, words: str) -> None:
    async with faulty([head(status, content_type="text/plain", content_length="0")]) as server:
        with pytest.raises(NotAnAgent, match=words):
            await run(server.url)


@pytest.mark.anyio
async def test_a_server_that_refuses_everything_passes_nothing() -> None:
    async with faulty([head("400 Bad", content_type="text/plain", content_length="0")]) as server:
        results = await run(server.url)
    assert results[0].status == "failed"
    assert {result.status for result in results[1:]} == {"skipped"}


def test_whatever_comes_is_judged_and_nothing_breaks_the_probing() -> None:
    odd = [
        {**STARTED, "runId": ["a"], "protocolVersion": {}},
        {"type": "TEXT_MESSAGE_START", "messageId": {"a": 1}},
        {"type": "MESSAGES_SNAPSHOT", "messages": 7},
        {"type": "TOOL_CALL_START", "toolCallId": [], "toolCallName": "aguia_probe_note"},
        {"type": "TOOL_CALL_RESULT", "toolCallId": [1]},
        {**FINISHED, "outcome": {"type": []}},
    ]
    body = b"data: \xff\x1b[2J\n\n" + b"".join(
        b"data: " + json.dumps(each).encode() + b"\n\n" for each in odd
    )
    with serve(ReplayApp(body, mapped=False)) as url:
        results = asyncio.run(run(url, skip=MALFORMED_NAMES))
        done = aguia("probe", url, "--idle", "0", "--skip", "HTTP-4")
    assert results[0].status == "failed"
    assert done.returncode == 1
    assert "\x1b" not in done.stdout


# -- what is sent --------------------------------------------------------------------------


def test_what_has_to_be_refused_is_malformed_and_what_has_to_be_served_is_not() -> None:
    """PROC-12: by this package's own reading, which the specification's examples have tested."""
    probing = Probing(Prober(httpx.AsyncClient(verify=False), "http://x"), 0)
    for family in MALFORMED.values():
        for case in family.cases:
            with pytest.raises(InvalidInput):
                read_input(case.body(probing.input()))
    for change in UNKNOWN.values():
        unknown = probing.input()
        change(unknown)
        read_input(json.dumps(unknown).encode())


def test_every_probe_names_rules_that_exist_and_says_what_it_does() -> None:
    assert len({probe.name for probe in PROBES}) == len(PROBES)
    for probe in PROBES:
        assert probe.rules
        assert set(probe.rules) <= set(RULES)
        assert probe.what.endswith(".")


def test_probes_are_chosen_by_name_by_rule_and_by_family() -> None:
    assert [probe.name for probe in select(PROBES, ["two-runs"], [])] == ["two-runs"]
    assert [probe.name for probe in select(PROBES, ["FRONT"], ["FRONT-5"])] == ["frontend-tool"]
    assert len(select(PROBES, [], ["INT"])) == len(PROBES) - 5
    with pytest.raises(ValueError, match="no probe 'nothing'; there are plain-run"):
        select(PROBES, ["nothing"], [])


# -- the command ---------------------------------------------------------------------------


def test_the_table_says_what_failed_by_which_rule_and_where_the_evidence_is(
    defective: str,
) -> None:
    done = aguia("probe", f"{defective}declares-no-version", "--only", "VER-1", "--skip", "VER-2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "1 probe: 1 passed"
    done = aguia("probe", f"{defective}declares-no-version", "--only", "version-declared")
    assert done.returncode == 1
    assert "✗ version-declared" in done.stdout
    assert "VER-1, VER-2" in done.stdout
    assert "RUN_STARTED has no protocolVersion" in done.stdout
    kept = Path(done.stdout.splitlines()[-1].rpartition(" is in ")[2])
    assert (kept / "report.json").is_file()
    for path in kept.iterdir():
        path.unlink()
    kept.rmdir()


def test_headers_are_sent_and_kept_nowhere(tmp_path: Path, url: str) -> None:
    secret = "Bearer-of-secrets"
    evidence = tmp_path / "e"
    done = aguia(
        *("probe", url, "-H", f"Authorization: {secret}", "--only", "plain-run"),
        *("--evidence", str(evidence)),
    )
    assert done.returncode == 0
    for path in evidence.iterdir():
        assert secret.encode() not in path.read_bytes()


def test_wrong_usage_and_nobody_there(free_port: int, tmp_path: Path, url: str) -> None:
    (tmp_path / "file").write_text("")
    for arguments, words in (
        (["ftp://x"], "is no URL of an agent"),
        (["http://x", "-H", "nonsense"], "no header"),
        (["http://x", "--only", "nothing"], "no probe 'NOTHING'; there are plain-run"),
        ([f"127.0.0.1:{free_port}"], "no connection: Connection refused"),
        ([url, "--evidence", str(tmp_path / "file")], "can't keep evidence there"),
    ):
        done = aguia("probe", *arguments)
        assert done.returncode == 2, done
        assert words in done.stderr
    assert "malformed-nulls" in aguia("probe", "--list").stdout
