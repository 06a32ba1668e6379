"""DEPRECATIONS.md says what the code does, and the names of 0.x lead where it says."""

import re
import subprocess
import sys
import warnings
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

import aguia
from aguia.pipeline.compatibility import EXPIRY, RETIRED
from aguia.protocol import content
from aguia.protocol.content import RENAMED
from support import REPOSITORY


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its two first lines."""
    text = (REPOSITORY / "DEPRECATIONS.md").read_text(encoding="utf-8")
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def test_the_registry_of_retired_shapes_is_that_of_the_code() -> None:
    """VER-4: each with its replacement, where it is translated, and when that expires."""
    assert rows("Retired shapes") == [
        [shape, until, replacement, lost, f"`{module}`", expiry]
        for shape, until, replacement, lost, module, expiry in RETIRED
    ]


def test_the_registry_names_modules_and_days_that_exist() -> None:
    """VER-4."""
    for retired in RETIRED:
        import_module(retired.module)
        date.fromisoformat(retired.expiry)
        assert re.fullmatch(r"[0-9]+(\.[0-9]+)+", retired.until)


def test_the_old_names_are_those_of_the_code() -> None:
    assert rows("Old names") == [[f"`{old}`", f"`{new}`", EXPIRY] for old, new in RENAMED.items()]


@pytest.mark.parametrize("module", [aguia, content], ids=["aguia", "content"])
@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_is_the_same_type_and_says_so(module: object, old: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is now {RENAMED[old]}") as caught:
        found = getattr(module, old)
    assert found is getattr(content, RENAMED[old])
    assert [Path(warning.filename) for warning in caught] == [Path(__file__)]


def test_what_old_names_lead_to_works_as_ever() -> None:
    with pytest.warns(DeprecationWarning, match="is now"):
        from aguia import ImageInputContent, InputContent, InputContentUrlSource
    part = ImageInputContent(source=InputContentUrlSource(value="https://example.com/a.png"))
    assert type(part) is aguia.ImagePart
    assert type(part) in get_args(InputContent)


def test_a_name_that_nothing_ever_had_is_none() -> None:
    for module in (aguia, content):
        with pytest.raises(AttributeError, match="has no attribute 'InputContents'"):
            _ = module.InputContents


def test_star_imports_bring_no_old_name_and_no_warning() -> None:
    code = "from aguia import *; from aguia.protocol.content import *; print(*sorted(globals()))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert set(done.stdout.split()) & RENAMED.keys() == set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dir(aguia)
