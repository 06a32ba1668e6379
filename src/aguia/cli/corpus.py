"""`aguia corpus`: streams with a known outcome, and any client asked what becomes of them."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from rich.console import Console
from rich.text import Text

from aguia import __version__
from aguia.cli.check import UsageError, print_plain, rule_names
from aguia.cli.render import STYLES
from aguia.cli.safe import one_line
from aguia.cli.words import plural
from aguia.testing.corpus import Case, CaseResult, cases, run_command
from aguia.testing.corpus.cases import text_of
from aguia.testing.corpus.report import as_json, as_junit, counts, described

__all__ = ["OUTPUTS", "Options", "export", "list_cases", "run"]

OUTPUTS: Final = ("text", "json", "junit")

_STYLE: Final = {"failed": "error", "error": "error", "known": "aside", "skipped": "aside"}


@dataclass(frozen=True)
class Options:
    """Which cases, and how, as the command line says it."""

    names: Sequence[str] = ()
    rules: Sequence[str] = ()
    output: str = "text"
    timeout: float = 10.0
    split: int | None = None
    known: Path | None = None


def list_cases(options: Options) -> int:
    """Prints the cases; the exit code."""
    try:
        chosen = _chosen(options, ("text", "json"))
    except UsageError as error:
        return _wrong(error)
    if options.output == "json":
        print_plain(json.dumps([described(case) for case in chosen], indent=2))
        return 0
    for case in chosen:
        print_plain(f"{case.name}  {case.outcome}  {','.join(case.rules)}")
        print_plain(f"    {case.description}")
    return 0


def export(folder: Path, options: Options) -> int:
    """Writes the files of the cases into a folder, which is made; the exit code."""
    try:
        chosen = _chosen(options, ("text",))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for case in chosen:
                (folder / f"{case.name}.json").write_text(text_of(case.name), encoding="utf-8")
        except OSError as error:
            where = error.filename or folder
            raise UsageError(f"can't write {where}: {error.strerror}") from None
    except UsageError as error:
        return _wrong(error)
    print_plain(f"{plural(len(chosen), 'case')} in {one_line(str(folder))}")
    return 0


def run(command: Sequence[str], options: Options) -> int:
    """Asks a client about each case, and prints what came of it; the exit code.

    0 when it passes what it has not skipped; 1 when it doesn't; 2 when the command was used
    wrongly, or the client can't be started or gives no reply.
    """
    try:
        chosen = _chosen(options, OUTPUTS)
        known = _read_known(options.known) if options.known is not None else {}
        console = Console(
            file=sys.stdout, soft_wrap=True, highlight=False, markup=False, emoji=False
        )
        shown = _Shown(console) if options.output == "text" else None
        try:
            results = anyio.run(
                partial(
                    run_command,
                    command,
                    chosen,
                    timeout=options.timeout,
                    split=options.split,
                    known=known,
                    on_result=shown,
                )
            )
        except OSError as error:
            raise UsageError(f"can't start {command[0]}: {error.strerror}") from None
        left = sum(not result.asked for result in results)
        if left and not any(result.reply for result in results):
            why = f": {results[0].problems[-1]}" if shown is None else ""
            raise UsageError(f"the client gives no reply, and is not asked any more{why}")
    except UsageError as error:
        return _wrong(error)
    match options.output:
        case "json":
            print_plain(as_json(results, __version__))
        case "junit":
            print_plain(as_junit(results))
        case _:
            _print_counts(console, results)
    return 1 if any(result.status in ("failed", "error") for result in results) else 0


def _wrong(error: UsageError) -> int:
    sys.stderr.write(f"aguia: {one_line(str(error), 1000)}\n")
    return 2


def _chosen(options: Options, outputs: Sequence[str]) -> list[Case]:
    if options.output not in outputs:
        raise UsageError(f"no output '{options.output}'; there are {', '.join(outputs)}")
    wanted = set(rule_names(options.rules))
    chosen = [
        case
        for case in cases()
        if (not options.names or any(fnmatchcase(case.name, name) for name in options.names))
        and (not wanted or any({rule, rule.partition("-")[0]} & wanted for rule in case.rules))
    ]
    if not chosen:
        raise UsageError("no case is of this name and rule; `aguia corpus list` prints all")
    return chosen


def _read_known(path: Path) -> dict[str, str]:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON: {error}") from None
    if not isinstance(known, dict) or not all(isinstance(why, str) for why in known.values()):
        raise UsageError(f"{path} holds no object of names and reasons")
    strange = sorted(known.keys() - {case.name for case in cases()})
    if strange:
        raise UsageError(f"{path} names no case: {', '.join(strange)}")
    return known


# For people


class _Shown:
    """Prints results as they come; what is wrong with several in a row is said once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: CaseResult | None = None

    def __call__(self, result: CaseResult) -> None:
        last, self._last = self._last, result
        same = last is not None and last.problems == result.problems
        if result.status == "passed" or (same and not result.asked):
            return
        _print_result(self._console, result, briefly=same)


def _print_result(console: Console, result: CaseResult, *, briefly: bool) -> None:
    line = Text(f"{result.status:<8}", STYLES[_STYLE[result.status]])
    line.append(result.case.name, STYLES["text"])
    line.append(f"  {', '.join(result.case.rules)}", STYLES["aside"])
    console.print(line)
    for problem in result.problems if not briefly else ():
        console.print(Text(f"        {one_line(problem, 1000)}"))


def _print_counts(console: Console, results: Sequence[CaseResult]) -> None:
    found = counts(results)
    parts = [f"{count:,} {status}" for status, count in found.items() if count]
    style = "error" if found["failed"] or found["error"] else "label"
    console.print(Text(f"{plural(len(results), 'case')}: {', '.join(parts)}", STYLES[style]))
