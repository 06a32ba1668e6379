"""What pages say of the code and of figures: compared with the code, and with the figures."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

import pytest

import aguia
import aguia.client
import aguia.server
from support import REPOSITORY

LIMITS: Final = REPOSITORY / "docs" / "reference" / "limits.md"
CONVENTIONS: Final = REPOSITORY / "docs" / "explanation" / "conventions.md"
STRICT_FIRST: Final = REPOSITORY / "docs" / "explanation" / "strict-first.md"

UNITS: Final = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}

WHOSE: Final[dict[str, Any]] = {
    name: getattr(module, name)
    for module in (aguia.server, aguia.client, aguia)
    for name in module.__all__
} | {"Retries": aguia.client.http.Retries, "Execution": aguia.server.Execution}

NO_LIMITS: Final = {
    "aguia.codec.sse.MAX_FRAME": "the default of max_event_bytes",
    "aguia.server.app.MAX_BODY": "the default of max_body_bytes",
    "aguia.client.media.MAX_BYTES": "the default of max_bytes",
    "aguia.protocol.common.MAX_SAFE_INTEGER": "the protocol's",
    "aguia.client.tools._MAX_NAME": "of a name in an error",
    "aguia.interop.schemas._MAX_PROBLEMS": "of an error's text",
    "aguia.interop.schemas._MAX_TEXT": "of an error's text",
    "aguia.interop.signatures._MAX_MESSAGE": "of an error's text",
    "aguia.interop.signatures._MAX_NAME": "of an error's text",
    "aguia.interop.signatures._MAX_NAMED": "of an error's text",
    "aguia.codec.recordings._LONGEST": "no time of a recording lies beyond it",
}
"""Constants that look like limits of what a peer sends, and why they have no row."""


def rows() -> Iterator[tuple[str, list[str]]]:
    """Yield what the page says: a default, and what sets it."""
    for line in LIMITS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] not in ("limit", "---"):
            yield cells[1], re.findall(r"`([^`]+)`", cells[2])


SETTINGS: Final = [(default, setting) for default, settings in rows() for setting in settings]


def value_of(default: str) -> float | None:
    """The number that a default stands for."""
    if default == "none":
        return None
    number, _, unit = default.partition(" ")
    return float(number.replace(",", "")) * UNITS.get(unit, 1)


@pytest.mark.parametrize(("default", "setting"), SETTINGS, ids=[each[1] for each in SETTINGS])
def test_a_default_is_the_codes(default: str, setting: str) -> None:
    option = re.fullmatch(r"([\w.]+)\((\w+)=\)", setting)
    if option is None:
        module, _, name = setting.rpartition(".")
        found = getattr(import_module(module), name)
    else:
        whose, _, method = option[1].partition(".")
        called = getattr(WHOSE[whose], method) if method else WHOSE[whose]
        found = parameters(called)[option[2]].default
    assert found == value_of(default)


def parameters(called: Any) -> dict[str, inspect.Parameter]:
    """What can be given by name, the base's included where options are passed on."""
    found = dict(inspect.signature(called).parameters)
    if inspect.isclass(called) and "options" in found:
        found = parameters(called.__mro__[1]) | found
    return found


def test_no_option_is_missing() -> None:
    """Whatever takes a number by name is a limit, or one of these."""
    page = LIMITS.read_text(encoding="utf-8")
    missing = [
        f"{name}({option.name}=)"
        for name, called in WHOSE.items()
        if (inspect.isclass(called) or inspect.isfunction(called))
        and re.match(r"aguia\.(?!protocol|conversation)", called.__module__)
        for option in inspect.signature(called).parameters.values()
        if re.search(r"\b(int|float)\b", str(option.annotation))
        and option.default is not option.empty
        and f"({option.name}=)" not in page
    ]
    others = ["GracefulServer(on_stop=)", "Recording(pace=)", "RunResult(runs=)", "serve(port=)"]
    assert sorted(missing) == others


def test_no_constant_is_missing() -> None:
    page = LIMITS.read_text(encoding="utf-8")
    package = REPOSITORY / "src" / "aguia"
    found = [
        ".".join(["aguia", *path.relative_to(package).with_suffix("").parts, name])
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] not in ("cli", "testing")
        for name in re.findall(
            r"^(_?(?:MAX|LONGEST)\w*): Final = [\d_* ]+", path.read_text(encoding="utf-8"), re.M
        )
    ]
    assert len(found) > 20
    assert [name for name in found if f"`{name}`" not in page and name not in NO_LIMITS] == []
    assert [name for name in NO_LIMITS if name not in found] == []


def test_the_figures_of_strict_first_are_those_that_were_measured() -> None:
    """Rows of its tables stand in the results as they are."""
    results = (REPOSITORY / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8").splitlines()
    quoted = [
        line
        for line in STRICT_FIRST.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    assert len(quoted) > 6
    assert [line for line in quoted if line not in results] == []


def test_the_sentences_and_prefixes_of_the_conventions_are_the_codes() -> None:
    texts: set[str] = set()
    prefixes: set[str] = set()
    package = REPOSITORY / "src" / "aguia"
    for path in package.rglob("*.py"):
        if path.relative_to(package).parts[0] in ("cli", "testing"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Constant(value=str(text)):
                    texts.add(text)
                case ast.Call(func=ast.Name(id="new_id"), args=[ast.Constant(value=str(prefix))]):
                    prefixes.add(f"{prefix}-")
                case ast.JoinedStr(
                    values=[
                        ast.Constant(value=str(prefix)),
                        ast.FormattedValue(value=ast.Attribute(attr="hex")),
                    ]
                ):
                    prefixes.add(prefix)
    page = " ".join(CONVENTIONS.read_text(encoding="utf-8").split())
    sentences = re.findall(r'`"([^`"]+\.)"`', page)
    assert len(sentences) >= 6
    assert [sentence for sentence in sentences if sentence not in texts] == []
    assert set(re.findall(r"`([a-z]+-)`", page)) == prefixes


def test_the_tests_that_security_names_exist() -> None:
    page = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"\[`(test_\w+)`]\(\.\./(tests/\w+\.py)\)", page)
    assert len(named) > 40
    for name, path in named:
        assert f"def {name}(" in (REPOSITORY / path).read_text(encoding="utf-8"), name
    assert len(named) == page.count("`test_")
