"""Prints which rules of the catalogue have a test: a table in Markdown, and counts by family.

A test cites a rule by its id: in a test module, in a test's docstring, body, parameters or in a
comment above it, or among the data that tests are made from; in a stream of the corpus that the
package brings along, as one of its `rules`. The shared conformance streams count as well, where
they are there (`../shared/conformance/rules.tsv`, or below the folder named by `AGUIA_SHARED`).

    python scripts/rule_table.py [--check FAMILY,FAMILY...] [--except RULE,RULE...]

With `--check` it exits with 1 when a rule of these families that binds a consumer has no test,
and names each. Rules after `--except` are not demanded yet; one that does have a test by now
is an error as well, so that the list stays true.
"""

import argparse
import ast
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from aguia.protocol.rules import RULES, Rule

__all__ = ["Citations", "citations", "ids_in", "main", "untested"]

REPOSITORY = Path(__file__).resolve().parent.parent
CORPUS = REPOSITORY / "src" / "aguia" / "testing" / "corpus" / "streams"

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


def untested(cited: Citations, families: Iterable[str]) -> list[Rule]:
    """Return the rules of these families that bind a consumer and that no test cites."""
    wanted = frozenset(families)
    return [
        rule
        for rule in RULES.values()
        if rule.family in wanted and rule.binds != "producer" and rule.id not in cited
    ]


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the counts; return 1 when `--check` finds a rule without a test."""
    parser = argparse.ArgumentParser(description="Shows which rules have a test.")
    parser.add_argument("--check", metavar="FAMILY,FAMILY...", default="")
    parser.add_argument("--except", dest="later", metavar="RULE,RULE...", default="")
    parser.add_argument("--tests", metavar="FOLDER", type=Path, default=REPOSITORY / "tests")
    parser.add_argument("--corpus", metavar="FOLDER", type=Path, default=CORPUS)
    options = parser.parse_args(arguments)
    families = [family for family in options.check.split(",") if family]
    unknown = [family for family in families if family not in FAMILIES]
    if unknown:
        parser.error(f"unknown families: {', '.join(unknown)} (known: {', '.join(FAMILIES)})")
    later = [rule_id for rule_id in options.later.split(",") if rule_id]
    unknown = [rule_id for rule_id in later if rule_id not in RULES]
    if unknown:
        parser.error(f"unknown rules: {', '.join(unknown)}")

    shared = Path(os.environ.get("AGUIA_SHARED") or REPOSITORY.parent / "shared")
    cited = citations(options.tests, options.corpus, shared)
    print(*_table(cited), "", *_counts(cited), sep="\n")

    missing = [rule for rule in untested(cited, families) if rule.id not in later]
    done = [RULES[rule_id] for rule_id in later if rule_id in cited]
    for rules, what in (
        (missing, "bind a consumer and have no test"),
        (done, "have a test and need no exception any more"),
    ):
        if rules:
            print(f"\n{len(rules)} rules {what}:", file=sys.stderr)
            for rule in rules:
                print(f"  {rule.id}: {rule.text}", file=sys.stderr)
    return 1 if missing or done else 0


if __name__ == "__main__":
    sys.exit(main())
