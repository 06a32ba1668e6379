"""`aguia check`: what is wrong with a stream, recorded or live, where, and by which rule.

`aguia rules`: the catalogue of rules.
"""

import json
import re
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final

import anyio
import httpx
from rich.console import Console
from rich.text import Text

from aguia import __version__
from aguia.cli.address import headers_of, is_local, shown, url_of
from aguia.cli.inputs import input_of, read_input, said
from aguia.cli.render import STYLES
from aguia.cli.safe import one_line
from aguia.cli.words import plural
from aguia.client import PROTOBUF, HttpTransport
from aguia.codec.negotiation import media_type_of
from aguia.pipeline.downgrade import downgrade_input, parse_peer_version
from aguia.pipeline.warn import log_warning
from aguia.protocol.errors import AguiaError, ProtocolViolation, TruncatedRun
from aguia.protocol.input import RunAgentInput
from aguia.protocol.pointers import steps_of
from aguia.protocol.rules import RULES, Rule, rule
from aguia.testing.checker import Checker
from aguia.testing.findings import Finding, explain, page_of, strictly
from aguia.testing.recorded import RecordingChecker
from aguia.testing.recordings import FORMATS, Format, UnknownFormat, read_blocks
from aguia.testing.report import (
    Report,
    as_json,
    as_junit,
    as_sarif,
    baseline_of,
    matches,
    parse_baseline,
    report_of,
    without_known,
)

__all__ = ["OUTPUTS", "Options", "UsageError", "check", "print_plain", "rule_names", "rules"]

OUTPUTS: Final = ("text", "json", "sarif", "junit")

MESSAGE: Final = "Hello"
"""What is said to an agent by default."""

CONTEXT: Final = 2
"""How many events are shown before and after a culprit."""

WIDTH: Final = 160
"""How many characters of an event are shown."""


_ADDRESS: Final = re.compile(r"(?:[\w.-]+|\[[\da-fA-F:]+\]):\d{1,5}(?:/.*)?")
"""What looks like an agent's address without its scheme, which is a file's name here."""


class UsageError(Exception):
    """The command was used wrongly; the text says how, in one line."""


@dataclass(frozen=True)
class Options:
    """How to check, as the command line says it."""

    format: str = "auto"
    output: str = "text"
    input: Path | None = None
    message: str | None = None
    headers: Sequence[str] = ()
    peer_version: str | None = None
    only: Sequence[str] = ()
    ignore: Sequence[str] = ()
    max_warnings: int | None = None
    strict: bool = False
    baseline: Path | None = None
    write_baseline: Path | None = None


def check(sources: Sequence[str], options: Options) -> int:
    """Checks each source and prints what was found; the exit code.

    0 when nothing is wrong; 1 with errors, or with more warnings than allowed; 2 when the command
    was used wrongly, or a source could not be read.
    """
    try:
        return _check(sources, options)
    except UsageError as error:
        sys.stderr.write(f"aguia: {one_line(str(error), 1000)}\n")
        return 2


def _check(sources: Sequence[str], options: Options) -> int:
    if options.format not in ("auto", *FORMATS):
        raise UsageError(f"no format '{options.format}'; there are auto, {', '.join(FORMATS)}")
    if options.output not in OUTPUTS:
        raise UsageError(f"no output '{options.output}'; there are {', '.join(OUTPUTS)}")
    if sources.count("-") > 1:
        raise UsageError("the standard input can be read once")
    only, ignore = rule_names(options.only), rule_names(options.ignore)
    given = _given(options.input) if options.input is not None else None
    known = _read_baseline(options.baseline) if options.baseline is not None else None
    if options.peer_version is not None:
        try:
            parse_peer_version(options.peer_version)
        except ValueError as error:
            raise UsageError(str(error)) from None
    reports = []
    for report in (each for source in sources for each in _reports(source, options, given)):
        kept = [
            finding
            for finding in (strictly(report.findings) if options.strict else report.findings)
            if (not only or matches(finding, only)) and not matches(finding, ignore)
        ]
        reports.append(replace(report, findings=kept))
    if options.write_baseline is not None:
        try:
            options.write_baseline.write_text(baseline_of(reports), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"can't write {options.write_baseline}: {error.strerror}") from None
        known = parse_baseline(baseline_of(reports))
    if known is not None:
        reports = without_known(reports, known)
    warnings = sum(report.warnings for report in reports)
    too_many = options.max_warnings is not None and warnings > options.max_warnings
    match options.output:
        case "json":
            print_plain(as_json(reports, __version__))
        case "sarif":
            print_plain(as_sarif(reports, __version__))
        case "junit":
            print_plain(as_junit(reports, warnings_fail=too_many))
        case _:
            _print_text(reports, options.max_warnings if too_many else None)
    for report in reports:
        if report.unreadable and options.output != "text":
            name, why = one_line(report.name), one_line(report.unreadable, 1000)
            sys.stderr.write(f"aguia: {name}: {why}\n")
    if any(report.unreadable for report in reports):
        return 2
    return 1 if too_many or any(report.errors for report in reports) else 0


def print_plain(text: str) -> None:
    """Writes a document as it is."""
    sys.stdout.write(f"{text}\n")


def rule_names(names: Sequence[str]) -> list[str]:
    """Ids of rules or of their families, as given: several, or one with commas.

    Raises `UsageError` for one that there is not.
    """
    found = [name.strip().upper() for each in names for name in each.split(",") if name.strip()]
    families = {known.family for known in RULES.values()}
    for name in found:
        if name not in families and name != "LIMIT":
            try:
                rule(name)
            except KeyError as error:
                raise UsageError(error.args[0]) from None
    return found


def _given(path: Path) -> RunAgentInput:
    try:
        return read_input(path)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _read_baseline(path: Path) -> Any:
    try:
        return parse_baseline(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path} is no baseline: {error}") from None


# Sources


def _reports(source: str, options: Options, given: RunAgentInput | None) -> list[Report]:
    """A report for each stream of a source."""
    if source.lower().startswith(("http://", "https://")):
        return [anyio.run(_live, source, options, given)]
    format: Format | None = None if options.format == "auto" else options.format  # type: ignore[assignment]
    try:
        checker = RecordingChecker(
            source, given, format=format, peer_version=options.peer_version, context=CONTEXT
        )
        if source == "-":
            return _recorded(sys.stdin.buffer, checker)
        if Path(source).is_dir():
            return [Report(source, unreadable="it is a folder; name the recordings in it")]
        with open(source, "rb") as file:
            return _recorded(file, checker)
    except OSError as error:
        why = error.strerror or str(error)
        if _ADDRESS.fullmatch(source):
            why += f"; for an agent write http://{source}"
        return [Report(source, unreadable=why)]
    except (ValueError, ImportError) as error:
        return [Report(source, unreadable=str(error))]


def _recorded(file: BinaryIO, checker: RecordingChecker) -> list[Report]:
    """What a file holds, as far as it can be read."""
    why = ""
    try:
        for block in read_blocks(file):
            checker.receive(block)
        checker.end()
    except UnknownFormat as error:
        why = str(error)
    except (EOFError, zlib.error) as error:
        why = f"the compressed data is broken: {error}"
    except OSError as error:
        why = error.strerror or str(error)
    return checker.reports(why)


async def _live(url: str, options: Options, given: RunAgentInput | None) -> Report:
    """One run of the agent at a URL, checked as it comes."""
    request = given if given is not None else input_of([said(options.message or MESSAGE)])
    try:
        address, headers = url_of(url), headers_of(options.headers)
    except ValueError as error:
        raise UsageError(str(error)) from None
    source = shown(address)
    version = options.peer_version
    sent = request
    if version is not None:
        sent = downgrade_input(request, parse_peer_version(version), log_warning)
    checker = Checker(request, format="sse", peer_version=version, context=CONTEXT)
    why = ""
    async with httpx.AsyncClient(trust_env=not is_local(address)) as client:
        transport = HttpTransport(address, headers=headers, client=client, retries=0)
        try:
            async with transport.open(sent) as answer:
                if media_type_of(str(answer.content_type)) == PROTOBUF:
                    checker = Checker(
                        request, format="protobuf", peer_version=version, context=CONTEXT
                    )
                try:
                    async for chunk in answer.body:
                        checker.receive(chunk)
                except TruncatedRun:
                    pass  # which is a fault only if the run had not ended
                checker.end()
        except ProtocolViolation as error:
            # It answered with what is no stream at all.
            report = report_of(source, checker)
            return replace(report, findings=[*report.findings, explain(error)])
        except AguiaError as error:
            why = str(error)
    return report_of(source, checker, why)


# For people


def _print_text(reports: Sequence[Report], allowed: int | None) -> None:
    console = Console(file=sys.stdout, soft_wrap=True, highlight=False, markup=False, emoji=False)
    for report in reports:
        _print_report(console, report)
    errors = sum(report.errors for report in reports)
    warnings = sum(report.warnings for report in reports)
    known = sum(report.known for report in reports)
    total = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}"
    if known:
        total += f", {known:,} known by the baseline"
    if len(reports) > 1:
        total += f" in {plural(len(reports), 'stream')}"
    if len(reports) > 1 or known:
        _line(console, total, "error" if errors else "label")
    if allowed is not None:
        _line(console, f"More warnings than the {allowed:,} allowed.", "error")


def _print_report(console: Console, report: Report) -> None:
    name = one_line(report.name)
    if report.source == "-":
        name = f"standard input{name.removeprefix('-')}"
    if report.unreadable:
        _line(console, f"{name}: can't be read: {one_line(report.unreadable, 1000)}", "error")
        if not report.findings:
            return
    what = f"{plural(report.events, 'event')}"
    failure = "" if report.failure is None else f"; the run failed: {one_line(report.failure)}"
    if not report.findings:
        _line(console, f"{name}: {what}, nothing to complain about{failure}", "label")
        return
    counts = f"{plural(report.errors, 'error')}, {plural(report.warnings, 'warning')}"
    _line(console, f"{name}: {counts} in {what}{failure}", "label")
    shown: set[int | None] = set()
    for finding in report.findings:
        _print_finding(console, finding)
        if finding.index not in shown:
            shown.add(finding.index)
            _print_excerpt(console, report, finding)
    if report.omitted:
        _line(console, f"  and {plural(report.omitted, 'further finding')}", "label")
    console.print()


def _line(console: Console, text: str, style: str) -> None:
    console.print(Text(text, STYLES[style]))


def _print_finding(console: Console, finding: Finding) -> None:
    console.print()
    line = Text("  ")
    line.append(f"{finding.severity} {finding.rules[0]}", STYLES[finding.severity])
    line.append(f"  {one_line(finding.place)}", STYLES["place"])
    if finding.related:
        line.append(f"  (also {', '.join(finding.related)})", STYLES["aside"])
    console.print(line)
    console.print(Text(f"    {one_line(finding.message, 1000)}"))
    if finding.count > 1:
        others = ", ".join(str(index) for index in finding.also)
        where = f"; also at event {others}" if others else ""
        more = " …" if others and finding.count > len(finding.also) + 1 else ""
        console.print(Text(f"    {finding.count:,} times{where}{more}", STYLES["aside"]))
    rows = [("seen", finding.seen)] if finding.seen != finding.message else []
    rows += [("expected", finding.expected), ("hint", finding.hint), ("page", finding.page or "")]
    for label, value in rows:
        if value:
            row = Text(f"    {label:<9}", STYLES["aside"])
            row.append(one_line(value, 1000), STYLES["text"])
            console.print(row)


def _print_excerpt(console: Console, report: Report, finding: Finding) -> None:
    """The events around a culprit, which is marked, and in it the member at its path."""
    for number, text in report.excerpts.get(-1 if finding.index is None else finding.index, ()):
        culprit = number == finding.index
        start, stop = _member(text, finding.path) if culprit else (0, 0)
        # What is marked has to be within what is shown.
        skip = max(0, stop - WIDTH + 20)
        flat = one_line(text[skip : skip + WIDTH + 1], WIDTH)
        row = Text("  > " if culprit else "    ", STYLES["error"])
        row.append(f"{number:>6} ", STYLES["aside"])
        row.append("…" if skip else "")
        row.append(flat, STYLES["text"] if culprit else STYLES["aside"])
        console.print(row)
        if stop > start:
            mark = " " * (11 + bool(skip) + start - skip) + "^" * (stop - start)
            console.print(Text(mark, STYLES["error"]))


def _member(text: str, path: str | None) -> tuple[int, int]:
    """Where in the text of an event the member stands that a path leads to, or (0, 0)."""
    at = 0
    found = (0, 0)
    for step in steps_of(path or ""):
        name = json.dumps(step, ensure_ascii=False)
        place = text.find(f"{name}:", at)
        if place < 0:
            place = text.find(f"{name} :", at)
        if place >= 0:
            found = (place, place + len(name))
            at = place + len(name)
        elif not step.isdigit():
            return (0, 0)
    # Wide and invisible characters would move the mark away from what it marks.
    return found if text[: found[1]].isascii() and text[: found[1]].isprintable() else (0, 0)


# The catalogue


def rules(names: Sequence[str] = (), *, output: str = "text") -> int:
    """Prints the catalogue, or rules and families of it; 0, or 2 when there is no such rule."""
    try:
        if output not in ("text", "json"):
            raise UsageError(f"no output '{output}'; there are text, json")
        found = list(RULES.values())
        if names:
            wanted = rule_names(names)
            found = [known for known in found if known.id in wanted or known.family in wanted]
    except UsageError as error:
        sys.stderr.write(f"aguia: {one_line(str(error), 1000)}\n")
        return 2
    if output == "json":
        print_plain(json.dumps([_rule_as_json(known) for known in found], indent=2))
        return 0
    console = Console(file=sys.stdout, soft_wrap=True, highlight=False, markup=False, emoji=False)
    family = ""
    for known in found:
        if not names and known.family != family:
            if family:
                console.print()
            family = known.family
        _print_rule(console, known, whole=bool(names))
    return 0


def _print_rule(console: Console, known: Rule, *, whole: bool) -> None:
    binds = "producer and consumer" if known.binds == "both" else known.binds
    line = Text(f"{known.id:<10}", STYLES["label"])
    if not whole:
        line.append(f"{known.level:<7}{known.binds:<9} ", STYLES["aside"])
        line.append(known.text)
        console.print(line)
        return
    line.append(f"{binds} {known.level}", STYLES["aside"])
    console.print(line)
    console.print(Text(known.text))
    page = page_of(known.id)
    if page is None:
        page = "the specification is silent; this is what the reference client does"
    console.print(Text(page, STYLES["aside"]))


def _rule_as_json(known: Rule) -> dict[str, Any]:
    return {
        "id": known.id,
        "binds": known.binds,
        "level": known.level,
        "text": known.text,
        "page": page_of(known.id),
    }
