"""The catalogue of rules, and the table of the tests that cite them."""

import json
import re
from pathlib import Path

import pytest

import rule_table
from aguia.protocol.rules import RULES, rule
from support import REPOSITORY, shared


def test_ids_are_unique_and_keyed_by_themselves() -> None:
    source = (REPOSITORY / "src/aguia/protocol/rules.py").read_text(encoding="utf-8")
    written = re.findall(r'^ +"([A-Z]+-\d+)",$', source, re.MULTILINE)
    assert written == list(RULES)
    assert [each.id for each in RULES.values()] == list(RULES)


def test_ids_are_numbered_without_gaps_within_a_family() -> None:
    numbers: dict[str, list[str]] = {}
    for each in RULES.values():
        numbers.setdefault(each.family, []).append(each.id.removeprefix(f"{each.family}-"))
    for found in numbers.values():
        assert found == [str(number) for number in range(1, len(found) + 1)]


def test_texts_are_one_line() -> None:
    for each in RULES.values():
        assert each.text == " ".join(each.text.split())
        assert each.text[0].isupper() or each.text[0] == "`"
        assert each.text.endswith(".")


def test_a_rule_is_found_by_its_id() -> None:
    found = rule("CHUNK-7")
    assert found.id == "CHUNK-7"
    assert found.family == "CHUNK"
    assert found.binds == "both"
    assert found.level == "must"
    assert found.page == "basic/patterns/streaming"


def test_an_unknown_number_is_answered_with_the_family() -> None:
    with pytest.raises(KeyError, match="'USE-9'.*USE-1, USE-2"):
        rule("USE-9")


def test_an_unknown_family_is_answered_with_the_families() -> None:
    with pytest.raises(KeyError, match="'CHNK-7'.*PROC, RUN"):
        rule("CHNK-7")


def test_the_catalogue_is_that_of_the_project() -> None:
    written = shared("protocol.md").read_text(encoding="utf-8")
    assert re.findall(r"^- ([A-Z]+-\d+) ", written, re.MULTILINE) == list(RULES)


@pytest.mark.parametrize("folder", ["src", "tests", "scripts"])
def test_every_cited_rule_exists(folder: str) -> None:
    unknown = []
    for path in sorted((REPOSITORY / folder).rglob("*")):
        if path.suffix not in {".py", ".json", ".mjs", ".js"} or path == Path(__file__).resolve():
            continue
        if "node_modules" in path.parts or path.name == "package-lock.json":
            continue
        for line, cited in rule_table.ids_in(path.read_text(encoding="utf-8")):
            if cited not in RULES:
                unknown.append(f"{path.relative_to(REPOSITORY)}:{line}: {cited}")
    assert unknown == []


def test_what_looks_like_an_id() -> None:
    text = "CHUNK-7, (RUN-14)\nUTF-8 RFC-6902 X-1 id-PROC-3 PROC-3-x TEXT-1."
    assert list(rule_table.ids_in(text)) == [(1, "CHUNK-7"), (1, "RUN-14"), (2, "TEXT-1")]


MODULE = '''"""About CHUNK-1."""

CASES = ["CHUNK-2"]

# CHUNK-3, as
# people read it.
@pytest.mark.parametrize("rule", ["CHUNK-4"])
def test_one(rule):
    """CHUNK-5: text. CHUNK-5 again."""

async def test_two():
    pass  # CHUNK-5
'''


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGUIA_SHARED", str(tmp_path))
    folder = tmp_path / "tests"
    folder.mkdir()
    (tmp_path / "corpus").mkdir()
    (folder / "test_chunks.py").write_text(MODULE, encoding="utf-8")
    (folder / "helpers.py").write_text("# CHUNK-6\n", encoding="utf-8")
    stream = {"rules": ["CHUNK-7"], "stream": []}
    (tmp_path / "corpus" / "own.json").write_text(json.dumps(stream))
    return folder


def test_citations_name_the_test(tests: Path) -> None:
    assert rule_table.citations(tests, tests.parent / "corpus") == {
        "CHUNK-2": ["test_chunks.py"],
        "CHUNK-3": ["test_chunks.py::test_one"],
        "CHUNK-4": ["test_chunks.py::test_one"],
        "CHUNK-5": ["test_chunks.py::test_one", "test_chunks.py::test_two"],
        "CHUNK-7": ["corpus own"],
    }


def test_shared_streams_are_cited_too(tests: Path, tmp_path: Path) -> None:
    (tmp_path / "conformance").mkdir()
    table = "stream\trule (any of)\nleft-open\tSUB-2,RUN-5\n"
    (tmp_path / "conformance" / "rules.tsv").write_text(table, encoding="utf-8")
    cited = rule_table.citations(tests, tmp_path / "corpus", tmp_path)
    assert cited["SUB-2"] == cited["RUN-5"] == ["shared left-open"]


def test_a_rule_without_a_test_fails_the_check(
    tests: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--tests", str(tests), "--corpus", str(tests.parent / "corpus")]
    assert rule_table.main([*arguments, "--check"]) == 1
    printed = capsys.readouterr()
    assert "| CHUNK-4 | both | must | `test_chunks.py::test_one` |" in printed.out
    assert "CHUNK-6: `RAW`" in printed.err
    assert "CHUNK-5" not in printed.err
    assert rule_table.main(arguments) == 0


def test_every_rule_is_demanded_whomever_it_binds() -> None:
    everything = {each.id: ["test"] for each in RULES.values()}
    assert rule_table.untested(everything) == []
    del everything["INT-2"], everything["IN-3"]
    assert {each.id for each in rule_table.untested(everything)} == {"INT-2", "IN-3"}


def test_a_stream_with_rules_that_are_no_list_is_named(tests: Path) -> None:
    (tests.parent / "corpus" / "bad.json").write_text('{"rules": "CHUNK-1"}')
    with pytest.raises(SystemExit, match=r"bad\.json: 'rules' must be a list"):
        rule_table.citations(tests, tests.parent / "corpus")


def test_the_page_of_the_rules_is_current() -> None:
    """What it says of tests has to be true, and need not be of the tests that came last."""
    written = rule_table.PAGE.read_text(encoding="utf-8")
    tests = re.compile(r"^- tests: (.*)$", re.MULTILINE)
    current = rule_table.rules_page()
    again = "run scripts/rule_table.py --page"
    assert tests.sub("", written) == tests.sub("", current), again
    cited = rule_table.citations(REPOSITORY / "tests", rule_table.CORPUS)
    for each, line in zip(RULES, tests.findall(written), strict=True):
        files = {test.partition("::")[0] for test in cited.get(each, [])}
        corpus = {name for name in files if name.startswith("corpus ")}
        named = set(re.findall(r"\[(test_\w+\.py)]", line))
        assert named <= files, f"{each}: {again}"
        assert bool(named) == bool(files - corpus), f"{each}: {again}"
        assert ("[corpus]" in line) == bool(corpus), f"{each}: {again}"
        assert ", others" not in line or files - corpus > named, f"{each}: {again}"
        assert (line == "none") == (not files), f"{each}: {again}"


def test_the_page_names_modules_and_tests(tests: Path) -> None:
    page = rule_table.rules_page(tests)
    described = page.partition("### CHUNK-5\n")[2].partition("###")[0]
    assert "where: [chunk expansion](../../src/aguia/pipeline/chunks.py)" in described
    assert "[test_chunks.py](../../tests/test_chunks.py)" in described
    assert "[corpus](../../src/aguia/testing/corpus/streams)" in described
    page = rule_table.rules_page(tests, detailed=True)
    described = page.partition("### CHUNK-5\n")[2].partition("###")[0]
    assert "[test_chunks.py::test_one](../../tests/test_chunks.py), " in described
    assert re.search(r"\[corpus]\([^)]*\) \(\d+ streams\)", described)


def test_every_family_has_its_title() -> None:
    page = rule_table.rules_page()
    for family in rule_table.FAMILIES:
        assert f"\n## {family}: " in page
