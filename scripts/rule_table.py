"""Prints which rules of the catalogue have a test: a table in Markdown, and counts by family.

A test cites a rule by its id: in a test module, in a test's docstring, body, parameters or in a
comment above it, or among the data that tests are made from; in a stream of the corpus that the
package brings along, as one of its `rules`. The shared conformance streams count as well, where
they are there (`../shared/conformance/rules.tsv`, or below the folder named by `AGUIA_SHARED`).

    python scripts/rule_table.py [--check]

With `--check` it exits with 1 when a rule has no test, and names each.

    python scripts/rule_table.py --page

writes the page of the rules, `docs/reference/rules.md`: what each says, where the specification
says it, and the modules and the files of tests that cite it. `rules_page(detailed=True)` names the
tests themselves.
"""

import argparse
import ast
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from aguia.protocol.rules import RULES, Rule

__all__ = ["Citations", "citations", "ids_in", "main", "rules_page", "untested"]

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src" / "aguia"
CORPUS = SOURCE / "testing" / "corpus" / "streams"
PAGE = REPOSITORY / "docs" / "reference" / "rules.md"
SPECIFICATION = "https://docs.ag-ui.com/spec/1.0/"

Citations = dict[str, list[str]]
"""For each rule id, the tests that cite it, each once, in the order of files and lines."""

FAMILIES = list(dict.fromkeys(rule.family for rule in RULES.values()))

# What looks like a rule id. "RFC 6902" and "UTF-8" must not, hence the exceptions.
_ID = re.compile(r"(?<![\w-])(?!UTF-|ISO-|RFC-|SHA-|PDF-)[A-Z]{2,8}-[0-9]{1,3}(?![\w-])")

# These test the catalogue and this table, so ids in them are examples.
_NOT_RULE_TESTS = frozenset({"test_rules.py"})


def ids_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number, from 1, and the text of everything that looks like a rule id."""
    for number, line in enumerate(text.splitlines(), start=1):
        for match in _ID.finditer(line):
            yield number, match.group()


def citations(tests: Path, corpus: Path, shared: Path | None = None) -> Citations:
    """Collect what the test modules below `tests`, the corpus and the shared streams cite."""
    found: Citations = {}

    def cite(rule_id: str, test: str) -> None:
        known = found.setdefault(rule_id, [])
        if test not in known:
            known.append(test)

    for module in sorted(tests.rglob("test_*.py")):
        inside = module.relative_to(tests)
        if "node_modules" in inside.parts or module.name in _NOT_RULE_TESTS:
            continue
        for rule_id, function in _cited_in_module(module.read_text(encoding="utf-8")):
            cite(rule_id, f"{inside.as_posix()}::{function}" if function else inside.as_posix())
    for stream in sorted(corpus.glob("*.json")):
        for rule_id in _cited_in_stream(stream):
            cite(rule_id, f"corpus {stream.stem}")
    table = shared / "conformance" / "rules.tsv" if shared else None
    if table is not None and table.is_file():
        for row in table.read_text(encoding="utf-8").splitlines()[1:]:
            name, _, rule_ids = row.partition("\t")
            for _, rule_id in ids_in(rule_ids):
                cite(rule_id, f"shared {name}")
    return found


def _cited_in_module(source: str) -> Iterator[tuple[str, str | None]]:
    """Yield each cited id with the test function that cites it, None for data of the module.

    The module's docstring says what the module is about, and is no test.
    """
    tree = ast.parse(source)
    owners: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test"
        ):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            owners.update(dict.fromkeys(range(first, (node.end_lineno or first) + 1), node.name))
    lines = source.splitlines()
    for number in range(len(lines) - 1, 0, -1):  # a comment belongs to what it stands above
        if lines[number - 1].lstrip().startswith("#") and number + 1 in owners:
            owners.setdefault(number, owners[number + 1])
    about = 0
    if ast.get_docstring(tree, clean=False) is not None:
        about = tree.body[0].end_lineno or 0
    for number, rule_id in ids_in(source):
        if number > about:
            yield rule_id, owners.get(number)


def _cited_in_stream(path: Path) -> list[str]:
    document = json.loads(path.read_text(encoding="utf-8"))
    rules = document.get("rules", []) if isinstance(document, dict) else []
    if not isinstance(rules, list) or not all(isinstance(each, str) for each in rules):
        raise SystemExit(f"{path}: 'rules' must be a list of rule ids")
    return rules


def untested(cited: Citations) -> list[Rule]:
    """Return the rules that no test cites."""
    return [rule for rule in RULES.values() if rule.id not in cited]


def _table(cited: Citations) -> Iterator[str]:
    yield "| rule | binds | level | tests |"
    yield "| --- | --- | --- | --- |"
    for rule in RULES.values():
        tests = cited.get(rule.id, [])
        shown = ", ".join(f"`{test}`" for test in tests[:3])
        more = f" and {len(tests) - 3} more" if len(tests) > 3 else ""
        yield f"| {rule.id} | {rule.binds} | {rule.level} | {shown}{more} |"


def _counts(cited: Citations) -> Iterator[str]:
    yield "| family | rules | tested | bind a consumer | of these tested |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    groups = {family: [r for r in RULES.values() if r.family == family] for family in FAMILIES}
    for name, rules in [*groups.items(), ("all", list(RULES.values()))]:
        reading = [rule for rule in rules if rule.binds != "producer"]
        yield (
            f"| {name} | {len(rules)} | {sum(rule.id in cited for rule in rules)} "
            f"| {len(reading)} | {sum(rule.id in cited for rule in reading)} |"
        )


# The page

_FAMILIES = {
    "EVT": "Events and identifiers",
    "PROC": "Processing",
    "RUN": "Runs and steps",
    "USE": "Token usage",
    "STREAM": "Starts, contents and ends",
    "CHUNK": "Chunks",
    "TEXT": "Text messages",
    "TOOL": "Tool calls",
    "FRONT": "Tools of the application",
    "SEC": "Consent and untrusted content",
    "REAS": "Reasoning",
    "STATE": "State",
    "MSG": "Snapshots of messages",
    "ACT": "Activity",
    "META": "Metadata",
    "INT": "Interrupts",
    "SUB": "Subagents",
    "IN": "Run input",
    "VER": "Versions",
    "CAP": "Capabilities",
    "HTTP": "Server-sent events",
    "PB": "The binary binding",
    "TRANS": "Transports",
    "CONV": "Where the specification is silent",
}

_STAGES = {
    "codec/": "decoding",
    "pipeline/compatibility": "compatibility",
    "pipeline/versions": "compatibility",
    "pipeline/middleware": "middleware",
    "pipeline/tools": "middleware",
    "pipeline/enforcement": "enforcement",
    "pipeline/chunks": "chunk expansion",
    "pipeline/verification": "verification",
    "pipeline/downgrade": "what old peers get",
    "pipeline/": "reading",
    "conversation/": "conversation",
    "consumer": "reading",
    "producer": "writing",
    "interop/": "tool functions",
    "server/": "server",
    "client/": "client",
    "testing/": "checks",
    "cli/": "command line",
    "protocol/": "types",
    "": "client",
}
"""What is done in a module, by the beginning of its path."""


_ABOUT = """\
The {count} rules of AG-UI 1.0 as this project numbers them, in its own words. Errors and warnings
name them by their ids, as in `[CHUNK-7]`. `aguia rules CHUNK-7` prints one, and
`aguia.protocol.rules.rule("CHUNK-7")` returns it.

Each says how strongly it binds and whom: who emits events, who reads them, or both. Then come the
page of the specification that it stands on; *where* in the package it is at work, by
[the stages of the processing model](../explanation/processing.md) and the other parts; and the
files of *tests* that cite it, *corpus* being [streams with a known outcome](../how-to/corpus.md).

`scripts/rule_table.py --page` makes this page, and a test makes it again."""


def rules_page(tests: Path = REPOSITORY / "tests", *, detailed: bool = False) -> str:
    """The page of all rules, as Markdown; `detailed` names tests and not only their files."""
    cited = citations(tests, CORPUS)
    modules = _modules()
    lines = [
        "# The rules",
        "",
        *_ABOUT.format(count=len(RULES)).splitlines(),
        "",
        *(
            f"- [{title}](#{family.lower()}-{_slug(title)}): {_range(family)}"
            for family, title in _FAMILIES.items()
        ),
    ]
    for family, title in _FAMILIES.items():
        lines += ["", f"## {family}: {title}"]
        for rule in RULES.values():
            if rule.family == family:
                lines += ["", f"### {rule.id}", "", *_described(rule, cited, modules, detailed)]
    return "\n".join(lines) + "\n"


def _range(family: str) -> str:
    ids = [rule.id for rule in RULES.values() if rule.family == family]
    return f"{ids[0]} to {ids[-1]}" if len(ids) > 2 else " and ".join(ids)


def _slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _described(
    rule: Rule, cited: Citations, modules: dict[str, list[str]], detailed: bool
) -> Iterator[str]:
    whom = {"both": "producers and consumers"}.get(rule.binds, f"{rule.binds}s")
    page = (
        f"[{rule.page}]({SPECIFICATION}{rule.page})" if rule.page else "the specification is silent"
    )
    yield rule.text
    yield ""
    yield f"- **{rule.level}**, {whom}; {page}"
    stages: dict[str, str] = {}
    for module in modules.get(rule.id, []):
        stages.setdefault(_stage(module), f"../../src/aguia/{module}")
    if stages:
        yield f"- where: {', '.join(f'[{name}]({path})' for name, path in stages.items())}"
    tests = cited.get(rule.id, [])
    streams = [test for test in tests if test.startswith("corpus ")]
    shown = _tests([test for test in tests if test not in streams], detailed)
    if streams:
        corpus = "[corpus](../../src/aguia/testing/corpus/streams)"
        shown.append(f"{corpus} ({len(streams)} streams)" if detailed else corpus)
    yield f"- tests: {', '.join(shown) or 'none'}"


def _tests(tests: list[str], detailed: bool) -> list[str]:
    """The first few, of the file with the most of them first, and that there are more."""
    files = Counter(test.partition("::")[0] for test in tests)
    tests = sorted(tests, key=lambda test: -files[test.partition("::")[0]])
    names = list(dict.fromkeys(tests if detailed else (test.partition("::")[0] for test in tests)))
    most = 5 if detailed else 3
    shown = [f"[{name}](../../tests/{name.partition('::')[0]})" for name in names[:most]]
    if len(names) > most:
        shown.append(f"{len(names) - most} more" if detailed else "others")
    return shown


def _stage(module: str) -> str:
    return next(stage for path, stage in _STAGES.items() if module.startswith(path))


def _modules() -> dict[str, list[str]]:
    """For each rule the modules that name it in their code, else those that speak of it.

    What checks others, or shows, is named as well where its code does, behind the rest.
    """
    named: dict[str, list[str]] = {}
    told: dict[str, list[str]] = {}
    checks: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).as_posix()
        if module == "protocol/rules.py":
            continue
        source = path.read_text(encoding="utf-8")
        for rule_id in dict.fromkeys(rule_id for _, rule_id in ids_in(source)):
            quoted = f'"{rule_id}"' in source
            if module.startswith(("testing/", "cli/")):
                if quoted:
                    checks.setdefault(rule_id, []).append(module)
            else:
                (named if quoted else told).setdefault(rule_id, []).append(module)
    return {
        rule_id: [*(named.get(rule_id) or told.get(rule_id, [])), *checks.get(rule_id, [])]
        for rule_id in RULES
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the counts; return 1 when `--check` finds a rule without a test."""
    parser = argparse.ArgumentParser(description="Shows which rules have a test.")
    parser.add_argument("--check", action="store_true", help="fail when a rule has no test")
    parser.add_argument("--tests", metavar="FOLDER", type=Path, default=REPOSITORY / "tests")
    parser.add_argument("--corpus", metavar="FOLDER", type=Path, default=CORPUS)
    parser.add_argument("--page", action="store_true", help=f"only write {PAGE.name}")
    options = parser.parse_args(arguments)
    if options.page:
        PAGE.write_text(rules_page(options.tests), encoding="utf-8")
        return 0
    shared = Path(os.environ.get("AGUIA_SHARED") or REPOSITORY.parent / "shared")
    cited = citations(options.tests, options.corpus, shared)
    print(*_table(cited), "", *_counts(cited), sep="\n")

    missing = untested(cited) if options.check else []
    if missing:
        print(f"\n{len(missing)} rules have no test:", file=sys.stderr)
        for rule in missing:
            print(f"  {rule.id}: {rule.text}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
