"""The outcome of checking streams: one report for each, and what machines are told of them.

JSON for programs, SARIF 2.1.0 for code scanning, JUnit XML for test reports. A baseline is the
list of findings that are known already.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree

from aguia.protocol.errors import printable
from aguia.protocol.rules import RULES, Rule
from aguia.testing.checker import Checker
from aguia.testing.findings import Finding, page_of
from aguia.testing.junit import suite_of
from aguia.testing.recordings import Format

__all__ = [
    "Report",
    "as_json",
    "as_junit",
    "as_sarif",
    "as_text",
    "baseline_of",
    "matches",
    "parse_baseline",
    "report_of",
    "without_known",
]

_BASELINE_VERSION: Final = 1
_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"

Baseline = Counter[tuple[str, str, str, str]]
"""How many findings of a source, rule, event type and path are known."""


@dataclass(frozen=True)
class Report:
    """What checking one stream has found.

    Attributes:
        source: the name of the stream: a path, a URL without what may be secret in it, `-`.
        run: the number of the run in the source, counted from 1, where that holds several.
        findings: in the order of the stream.
        events: how many events the stream has.
        format: of the recording, or None where there was none to tell.
        omitted: how many findings were too many to keep.
        known: how many findings a baseline has hidden.
        failure: what the last run says of its failure, or None where it has not failed.
        unreadable: why the source could not be read, or not to its end; else "".
        excerpts: by the number of a culprit, the events around it.
    """

    source: str
    findings: Sequence[Finding] = ()
    events: int = 0
    format: Format | None = None
    omitted: int = 0
    known: int = 0
    failure: str | None = None
    unreadable: str = ""
    excerpts: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    run: int | None = None

    @property
    def name(self) -> str:
        """The source and, where it holds several, the run."""
        return self.source if self.run is None else f"{self.source}, run {self.run}"

    @property
    def errors(self) -> int:
        """How many different errors were found."""
        return sum(finding.severity == "error" for finding in self.findings)

    @property
    def warnings(self) -> int:
        """How many different warnings were found."""
        return len(self.findings) - self.errors


def report_of(source: str, checker: Checker, unreadable: str = "") -> Report:
    """What a checker has found so far, as the report on a source."""
    ordered = sorted(checker.findings, key=lambda finding: _order(finding, checker.events))
    return Report(
        source=source,
        findings=ordered,
        events=checker.events,
        format=checker.format,
        omitted=checker.omitted,
        failure=checker.failure,
        unreadable=unreadable,
        excerpts=checker.excerpts,
    )


def _order(finding: Finding, events: int) -> tuple[int, bool]:
    return (events if finding.index is None else finding.index, finding.severity == "warning")


def matches(finding: Finding, names: Iterable[str]) -> bool:
    """Whether one of the names, ids of rules or of their families, is that of the finding."""
    rules = {*finding.rules, *(rule.partition("-")[0] for rule in finding.rules)}
    return not rules.isdisjoint(names)


# Baselines


def _key(source: str, finding: Finding) -> tuple[str, str, str, str]:
    # Numbers and ids differ from recording to recording, these don't.
    kind = finding.event_type or ""
    return (_uri(source), finding.rules[0], kind, finding.general_path)


def baseline_of(reports: Iterable[Report]) -> str:
    """The findings of all reports as the text of a baseline file."""
    keys = Counter(_key(report.source, each) for report in reports for each in report.findings)
    listed = [
        {"source": source, "rule": rule, "eventType": kind, "path": path, "count": count}
        for (source, rule, kind, path), count in sorted(keys.items())
    ]
    return json.dumps({"version": _BASELINE_VERSION, "findings": listed}, indent=2) + "\n"


def parse_baseline(text: str) -> Baseline:
    """Read the text of a baseline file; raises `ValueError` that says what is wrong with it."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    if not isinstance(data, dict) or data.get("version") != _BASELINE_VERSION:
        raise ValueError(f"expected an object with the version {_BASELINE_VERSION}")
    known: Baseline = Counter()
    findings = data.get("findings")
    for number, entry in enumerate(findings if isinstance(findings, list) else [None]):
        match entry:
            case {
                "source": str(source),
                "rule": str(rule),
                "eventType": str(kind),
                "path": str(path),
                "count": int(count),
            }:
                known[source, rule, kind, path] += count
            case _:
                raise ValueError(f"finding {number} is none: {json.dumps(entry)[:80]}")
    return known


def without_known(reports: Iterable[Report], known: Baseline) -> list[Report]:
    """The reports without the findings that a baseline knows; of more than it knows, the last."""
    left = Counter(known)
    result = []
    for report in reports:
        kept = []
        for finding in report.findings:
            key = _key(report.source, finding)
            if left[key] > 0:
                left[key] -= 1
            else:
                kept.append(finding)
        hidden = len(report.findings) - len(kept)
        result.append(replace(report, findings=kept, known=report.known + hidden))
    return result


# For people, without colours


def as_text(finding: Finding) -> str:
    """A finding in a few lines, with nothing in them that a terminal would act on."""
    lines = [str(finding)]
    if finding.seen != finding.message:
        lines.append(f"  seen: {finding.seen}")
    lines.append(f"  expected: {finding.expected}")
    if finding.hint:
        lines.append(f"  hint: {finding.hint}")
    if finding.page is not None:
        lines.append(f"  page: {finding.page}")
    return "\n".join(printable(line) for line in lines)


# For machines


def as_json(reports: Sequence[Report], version: str) -> str:
    """All reports as one JSON document."""
    document = {
        "tool": {"name": "aguia", "version": version},
        "errors": sum(report.errors for report in reports),
        "warnings": sum(report.warnings for report in reports),
        "sources": [
            {
                "source": report.source,
                **({"run": report.run} if report.run is not None else {}),
                "format": report.format,
                "events": report.events,
                "errors": report.errors,
                "warnings": report.warnings,
                "omitted": report.omitted,
                "known": report.known,
                **({"failure": report.failure} if report.failure is not None else {}),
                **({"unreadable": report.unreadable} if report.unreadable else {}),
                "findings": [_plain(finding) for finding in report.findings],
            }
            for report in reports
        ],
    }
    return json.dumps(document, indent=2)


def _plain(finding: Finding) -> dict[str, Any]:
    return {
        "severity": finding.severity,
        "rule": finding.rule,
        "related": list(finding.related),
        "message": finding.message,
        "seen": finding.seen,
        "expected": finding.expected,
        "hint": finding.hint or None,
        "page": finding.page,
        "event": finding.index,
        "line": finding.line,
        "eventType": finding.event_type,
        "path": finding.path,
        "runId": finding.run_id,
        "count": finding.count,
        "also": list(finding.also),
    }


def as_sarif(reports: Sequence[Report], version: str) -> str:
    """All reports as one SARIF 2.1.0 log."""
    ids = list(dict.fromkeys(finding.rules[0] for report in reports for finding in report.findings))
    numbers = {rule_id: number for number, rule_id in enumerate(ids)}
    results = [
        _sarif_result(report, finding, numbers) for report in reports for finding in report.findings
    ]
    notifications = [
        {"level": "error", "message": {"text": printable(f"{report.name}: {report.unreadable}")}}
        for report in reports
        if report.unreadable
    ]
    log = {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "aguia",
                        "version": version,
                        "rules": [_sarif_rule(rule_id) for rule_id in ids],
                    }
                },
                "invocations": [
                    {
                        "executionSuccessful": not notifications,
                        "toolExecutionNotifications": notifications,
                    }
                ],
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }
    return json.dumps(log, indent=2)


def _sarif_rule(rule_id: str) -> dict[str, Any]:
    rule: Rule | None = RULES.get(rule_id)
    text = rule.text if rule is not None else "A limit of the reader, not of the protocol."
    level = "warning" if rule is not None and rule.level != "must" else "error"
    described: dict[str, Any] = {
        "id": rule_id,
        "shortDescription": {"text": text},
        "defaultConfiguration": {"level": level},
    }
    page = page_of(rule_id)
    if page is not None:
        described["helpUri"] = page
    return described


def _sarif_result(report: Report, finding: Finding, numbers: dict[str, int]) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(report.source)}}
    if finding.line is not None:
        physical["region"] = {"startLine": finding.line}
    location: dict[str, Any] = {"physicalLocation": physical}
    if finding.index is not None:
        run = "" if report.run is None else f"runs/{report.run}/"
        name = f"{run}events/{finding.index}{finding.path or ''}"
        location["logicalLocations"] = [{"fullyQualifiedName": name, "kind": "element"}]
    hint = f" {finding.hint}" if finding.hint else ""
    text = f"{finding.message}. Expected: {finding.expected}.{hint}"
    return {
        "ruleId": finding.rules[0],
        "ruleIndex": numbers[finding.rules[0]],
        "level": finding.severity,
        "message": {"text": printable(text)},
        "locations": [location],
        "occurrenceCount": finding.count,
        "partialFingerprints": {"aguia/v1": "|".join(_key(report.source, finding))},
        "properties": {
            "event": finding.index,
            "eventType": finding.event_type,
            "path": finding.path,
            "related": list(finding.related),
        },
    }


def _uri(source: str) -> str:
    if source == "-":
        return "stdin"
    if "://" in source:
        return quote(source, safe=":/?#[]@!$&'()*+,;=%~")
    path = PurePath(source)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def as_junit(reports: Sequence[Report], *, warnings_fail: bool = False) -> str:
    """All reports as JUnit XML, one test case for each stream.

    A stream with errors has failed, with `warnings_fail` also one with warnings; the rest of what
    was found is its output. One that can't be read is an error.
    """
    cases = []
    for report in reports:
        case = ElementTree.Element("testcase", classname="aguia.check", name=_xml(report.name))
        lines = "\n".join(as_text(finding) for finding in report.findings)
        if report.unreadable:
            ElementTree.SubElement(case, "error", message=_xml(report.unreadable))
        elif report.errors or (warnings_fail and report.warnings):
            first = report.findings[0]
            if report.errors:
                first = next(each for each in report.findings if each.severity == "error")
            attributes = {"type": first.rules[0], "message": _xml(str(first))}
            ElementTree.SubElement(case, "failure", attributes).text = _xml(lines)
            lines = ""
        if lines:
            ElementTree.SubElement(case, "system-out").text = _xml(lines)
        cases.append(case)
    return suite_of("aguia check", cases)


def _xml(text: str) -> str:
    """The text with nothing in it that XML can't hold."""
    return "\n".join(printable(line) for line in text.split("\n"))
