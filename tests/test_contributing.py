"""What CONTRIBUTING.md says of the repository is so; its commands are run by `test_docs`."""

import re
import tomllib
from typing import Final

import pytest

from aguia.protocol.rules import RULES
from support import REPOSITORY

PAGE: Final = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")

MADE: Final = {"build", "dist", "htmlcov"}
"""Folders that tools make."""


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    [text] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return str(text)


def first_cells(title: str) -> list[str]:
    """What the rows of a section's table begin with, where that is code."""
    return re.findall(r"^\| `([^`]+)` \|", section(title), re.MULTILINE)


def test_each_folder_is_listed() -> None:
    folders = {path.name for path in REPOSITORY.iterdir() if path.is_dir()}
    folders = {name for name in folders - MADE if not name.startswith((".", "_"))}
    assert set(first_cells("The repository")) == folders


def test_the_rooms_are_in_their_order() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    [rooms] = [
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["id"] == "rooms"
    ]
    layers = [re.findall(r"\w+", layer) for layer in rooms]
    assert first_cells("The package") == [room for layer in layers for room in layer]
    assert ["client", "server", "middleware"] in layers


def test_what_it_names_is_there() -> None:
    named = set(re.findall(r"`((?:[\w.-]+/)+[\w.*-]+|[\w.-]+\.(?:md|toml|py|proto))", PAGE))
    named -= {"build/docs", "../shared"}
    folders = (".", "src/aguia", "src/aguia/testing", "src", "tests", "src/aguia/codec")
    assert len(named) > 40
    for name in named:
        found = any(any((REPOSITORY / folder).glob(name)) for folder in folders)
        made = name == "tests/peers/node_modules"
        assert found or made, name


@pytest.mark.parametrize("path", first_cells("Adding a rule"))
def test_the_rule_that_it_follows_lives_there(path: str) -> None:
    """RUN-14."""
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    assert "RUN-14" in text
    assert RULES["RUN-14"].binds == "both"


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("src/aguia/pipeline/verification.py", "TABLE DISCIPLINE _step_started _step_finished"),
        ("src/aguia/testing/findings.py", "_EXPECTED _HINTS"),
        ("tests/test_check.py", "MUTATIONS"),
        ("src/aguia/codec/frames.py", "feed check broken_off"),
        ("src/aguia/server/writers.py", "Writer writer_for"),
    ],
)
def test_the_names_in_modules_are_right(path: str, names: str) -> None:
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    for name in names.split():
        assert f"`{name}`" in PAGE
        assert re.search(rf"^ *(?:def |class )?{name}\b[(:]", text, re.MULTILINE), name
