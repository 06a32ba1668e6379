"""`aguia probe`: asks a server one thing at a time, and says what it should have done."""

import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import anyio
import httpx
from rich.console import Console
from rich.text import Text

from aguia import __version__
from aguia.cli.address import headers_of, is_local, shown, url_of
from aguia.cli.render import STYLES
from aguia.cli.safe import one_line
from aguia.cli.words import plural
from aguia.codec import frames, sse
from aguia.protocol.errors import printable
from aguia.testing.findings import page_of
from aguia.testing.junit import suite_of
from aguia.testing.probes import (
    PROBES,
    Exchange,
    NotAnAgent,
    Probe,
    Prober,
    ProbeResult,
    ProbeSettings,
    select,
)

__all__ = ["Options", "probe", "probe_list"]

MARKS: Final = {"passed": "✓", "failed": "✗", "warned": "!", "skipped": "-"}
_STYLES: Final = {"passed": "result", "failed": "error", "warned": "warning", "skipped": "aside"}
_WIDTH: Final = max(len(probe.name) for probe in PROBES) + 2
_LONGEST: Final = 600
"""How many characters of a reason are shown."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to probe, as the command line says it.

    Attributes:
        settings: how the agent is led.
        state: a file with the state in place of the settings', or None.
        headers: lines as `Name: value`.
        only, skip: names of probes, ids of rules, or their families.
        json: whether the output is JSON.
        junit: where to write JUnit XML, or None.
        evidence: the folder in which to keep what was sent and what came; None keeps it in a
            temporary folder, and only where a probe fails.
    """

    settings: ProbeSettings
    state: Path | None = None
    headers: Sequence[str] = ()
    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    json: bool = False
    junit: Path | None = None
    evidence: Path | None = None


def probe_list() -> str:
    """All probes for people: name, rules, and what is done."""
    lines = []
    for each in PROBES:
        lines.append(f"{each.name:<{_WIDTH}}{', '.join(each.rules)}")
        lines.append(f"{'':<{_WIDTH}}{each.what}")
    return "\n".join(lines)


def probe(url: str, options: Options) -> int:
    """Probes the server at `url` and prints a table, or JSON; the exit code.

    0 when no probe fails; 1 when one does; 2 when the command was used wrongly, or nothing that
    could be an agent answers at the URL.
    """
    logging.getLogger("aguia").setLevel(logging.ERROR)
    try:
        address, headers = url_of(url), headers_of(options.headers)
        if options.state is not None:
            settings = replace(options.settings, state=_state(options.state))
            options = replace(options, settings=settings)
        chosen = select(PROBES, _names(options.only), _names(options.skip))
        evidence = _Evidence(options.evidence, address)
    except ValueError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"can't keep evidence there: {error.strerror or error}")
    try:
        return anyio.run(_probe, address, headers, chosen, options, evidence)
    except NotAnAgent as error:
        return _refuse(f"nothing to probe at {evidence.url}: {error}")
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        return _refuse(f"can't write: {error}")
    finally:
        evidence.close()


async def _probe(
    url: str,
    headers: dict[str, str],
    chosen: list[Probe],
    options: Options,
    evidence: "_Evidence",
) -> int:
    table = None if options.json else _Table()
    results: list[ProbeResult] = []
    # Two runs at once need two connections, and whoever leaves needs a fresh one afterwards.
    async with httpx.AsyncClient(trust_env=not is_local(url)) as client:
        prober = Prober(client, url, headers=headers, settings=options.settings)
        async for result in prober.run(chosen):
            evidence.keep(result)
            for exchange in result.exchanges:
                if prober.plain is None or exchange is not prober.plain.exchange:
                    exchange.body = b""  # which is kept by now
            results.append(result)
            if table is not None:
                table.row(result)
    failed = any(result.status == "failed" for result in results)
    evidence.settle(keep=failed)
    document = _document(evidence, results)
    evidence.write("report.json", _json(document))
    if options.junit is not None:
        options.junit.write_text(_junit(evidence.url, results), encoding="utf-8")
    if table is None:
        sys.stdout.write(f"{_json(document)}\n")
    else:
        table.summary(results, evidence.folder)
    return 1 if failed else 0


def _names(names: Sequence[str]) -> list[str]:
    """Names as given: several, or one with commas; those of rules in any case."""
    found = [name.strip() for each in names for name in each.split(",") if name.strip()]
    known = {probe.name for probe in PROBES}
    return [name if name in known else name.upper() for name in found]


def _state(path: Path) -> Any:
    """The state in a file; null is the empty object, since a run input has no null (IN-1).

    Raises `ValueError` for what can't be read.
    """
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"can't read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    return {} if state is None else state


def _refuse(why: str) -> int:
    sys.stderr.write(f"aguia: {one_line(why, 1500)}\n")
    return 2


# Evidence


class _Evidence:
    """A folder with what was sent and what came, a few files for each request."""

    def __init__(self, folder: Path | None, url: str) -> None:
        self.url = printable(shown(url))
        self.folder: Path | None
        self._own = folder is None
        if folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="aguia-probe-"))
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self.folder = folder
        self.files: dict[str, list[str]] = {}

    def keep(self, result: ProbeResult) -> None:
        """Write what a probe has sent and got."""
        name = result.probe.name
        self.files[name] = []
        for number, exchange in enumerate(result.exchanges, 1):
            stem = f"{name}-{number}"
            self.write(f"{stem}.request", exchange.request)
            body = f"{stem}{_SUFFIXES.get(exchange.media_type, '.body')}"
            self.write(body, exchange.body)
            self.write(f"{stem}.json", _json(_facts(exchange, self.url)))
            self.files[name].append(body)

    def settle(self, *, keep: bool) -> None:
        """Decide whether a folder that nobody asked for stays."""
        if self._own and keep:
            self._own = False
        self.close()

    def write(self, name: str, content: bytes | str) -> None:
        """Write a file, if there is a folder still."""
        if self.folder is not None:
            data = content.encode("utf-8", "replace") if isinstance(content, str) else content
            (self.folder / name).write_bytes(data)

    def close(self) -> None:
        """Remove the folder that nobody needs."""
        if self._own and self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


_SUFFIXES: Final = {sse.CONTENT_TYPE: ".sse", frames.CONTENT_TYPE: ".bin"}


def _facts(exchange: Exchange, url: str) -> dict[str, Any]:
    # Headers that the caller has given may be secrets, and are not here.
    return {
        "label": exchange.label,
        "url": url,
        "request": {"headers": exchange.sent},
        "status": exchange.status,
        "headers": exchange.headers,
        "ended": exchange.ended,
        "problem": exchange.problem,
        "seconds": round(exchange.seconds, 3),
        "pieces": exchange.pieces,
    }


# What is said


class _Table:
    """The results as they come, a row each, and how many there were of each kind."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True, emoji=False)

    def row(self, result: ProbeResult) -> None:
        style = STYLES[_STYLES[result.status]]
        text = Text()
        text.append(f"{MARKS[result.status]} {result.probe.name:<{_WIDTH}}", style=style)
        text.append(", ".join(result.probe.rules), style=STYLES["aside"])
        if result.status == "passed" and result.reasons:
            said = one_line("; ".join(result.reasons), 200)
            text.append(f"  {said}", style=STYLES["aside"])
        self._console.print(text)
        if result.status == "passed":
            return
        if result.status != "skipped":
            self._console.print(Text(f"    {result.probe.what}", style=STYLES["aside"]))
        for reason in result.reasons:
            self._console.print(Text(f"    {one_line(reason, _LONGEST)}", style=style))

    def summary(self, results: list[ProbeResult], folder: Path | None) -> None:
        counts = [
            f"{count} {status}"
            for status in MARKS
            if (count := sum(result.status == status for result in results))
        ]
        self._console.print(Text(f"{plural(len(results), 'probe')}: {', '.join(counts)}"))
        if folder is not None:
            self._console.print(Text(f"What was sent and what came is in {one_line(str(folder))}"))


def _document(evidence: _Evidence, results: list[ProbeResult]) -> dict[str, Any]:
    counts = {status: sum(result.status == status for result in results) for status in MARKS}
    return {
        "tool": {"name": "aguia", "version": __version__},
        "url": evidence.url,
        "evidence": None if evidence.folder is None else str(evidence.folder),
        **counts,
        "probes": [
            {
                "name": result.probe.name,
                "rules": list(result.probe.rules),
                "pages": sorted({page for rule in result.probe.rules if (page := page_of(rule))}),
                "what": result.probe.what,
                "status": result.status,
                "reasons": result.reasons,
                "seconds": round(result.seconds, 3),
                "findings": [str(finding) for finding in result.findings],
                "files": evidence.files.get(result.probe.name, []),
            }
            for result in results
        ],
    }


def _json(document: Any) -> str:
    return json.dumps(document, indent=2)


def _junit(url: str, results: list[ProbeResult]) -> str:
    """The results as JUnit XML, one test case for each probe; a warning is output."""
    cases = []
    for result in results:
        case = ElementTree.Element(
            "testcase",
            classname="aguia.probe",
            name=result.probe.name,
            time=f"{result.seconds:.3f}",
        )
        text = "\n".join(printable(reason) for reason in result.reasons)
        match result.status:
            case "failed":
                attributes = {"type": result.probe.rules[0], "message": text.partition("\n")[0]}
                ElementTree.SubElement(case, "failure", attributes).text = text
            case "skipped":
                ElementTree.SubElement(case, "skipped", message=text)
            case _ if text:
                ElementTree.SubElement(case, "system-out").text = text
        cases.append(case)
    return suite_of(f"aguia probe {url}", cases)
