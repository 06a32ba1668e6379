"""The pages for people: every code block runs and shows what the page says, every link leads on."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from command_help import commands
from public_names import MODULES, public_names
from support import REPOSITORY, missing
from support_docs import blocks_of, commands_of, matches, missing_commands, page_paths, run_page
from support_terminal import Origin, Terminal, origin_of_terminals

PAGES: Final = {path.relative_to(REPOSITORY).as_posix(): path for path in page_paths(REPOSITORY)}

RUN_ELSEWHERE: Final = {"examples/frontend/README.md"}
"""Pages whose commands have a test of their own: by `tests/test_frontend.py`, in a browser."""

IN_A_COPY: Final = {"CONTRIBUTING.md"}
"""Pages whose commands are for the folder of the repository. They run in a copy of it."""

NOT_COPIED: Final = (".*", "__pycache__", "build", "dist", "htmlcov", "node_modules")


POSIX: Final = pytest.mark.skipif(os.name != "posix", reason="commands as a POSIX shell has them")


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    with origin_of_terminals() as origin:
        yield origin


@pytest.fixture
def terminal(origin: Origin) -> Iterator[Callable[..., Terminal]]:
    with origin.terminals() as start:
        yield start


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that a page runs in."""
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


@POSIX
@pytest.mark.unmeasured
@pytest.mark.parametrize("name", sorted(PAGES.keys() - RUN_ELSEWHERE))
def test_its_blocks_run(name: str, terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    absent = sorted(set(missing_commands(PAGES[name])))
    if absent:
        missing(f"not installed: {', '.join(absent)}")
    folder = tmp_path / "page"
    if name in IN_A_COPY:
        shutil.copytree(REPOSITORY, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
    else:
        folder.mkdir()
    run_page(PAGES[name], name, folder, terminal)


@pytest.mark.parametrize("name", PAGES)
def test_its_links_lead_on(name: str) -> None:
    """To files that are there, and to headings in them; elsewhere by https alone."""
    page = PAGES[name]
    for target in links_of(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            assert target.startswith(("https://", "http://127.0.0.1")), target
            continue
        path, _, anchor = unquote(target).partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{target}: there is no {linked}"
        assert linked.is_relative_to(REPOSITORY), f"{target}: leaves the repository"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors_of(linked.read_text(encoding="utf-8")), target


INCLUDING: Final = {
    "docs/changelog.md",
    "docs/contributing.md",
    "docs/examples.md",
    "docs/reference/deprecations.md",
}
"""Pages of the site that are another file of the repository as a whole."""


@pytest.mark.parametrize("name", sorted(PAGES.keys() - INCLUDING))
def test_it_has_one_title(name: str) -> None:
    tokens = MarkdownIt().parse(PAGES[name].read_text(encoding="utf-8"))
    levels = [int(token.tag[1]) for token in tokens if token.type == "heading_open"]
    assert levels[:1] == [1]
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))


def links_of(source: str) -> Iterator[str]:
    """Yield where links and pictures of a page lead, those in HTML as well."""
    for token in MarkdownIt().enable("table").parse(source):
        for inner in (token, *(token.children or ())):
            for attribute in ("href", "src"):
                if attribute in inner.attrs:
                    yield str(inner.attrs[attribute])
            if inner.type in ("html_block", "html_inline"):
                yield from re.findall(r'(?:href|src|srcset)="([^"]*)"', inner.content)


def anchors_of(source: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    tokens = MarkdownIt().parse(source)
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            words = "".join(map(text_of_token, inline.children or ()))
            slug = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
            anchor, number = slug, 0
            while anchor in found:
                number += 1
                anchor = f"{slug}-{number}"
            found.add(anchor)
    return found


def text_of_token(token: Token) -> str:
    return token.content if token.type in ("text", "code_inline") else ""


# The reference names everything.


def test_every_public_name_is_in_the_reference() -> None:
    documented: dict[str, list[str]] = {}
    for path in (REPOSITORY / "docs" / "reference" / "api").glob("*.md"):
        for block in blocks_of(path.read_text(encoding="utf-8")):
            match = re.fullmatch(r"\{public-names\} (\S+)", block.language)
            if match:
                options = dict(re.findall(r"^:(\w+): (.*)$", block.text, re.MULTILINE))
                names = public_names(match[1], options.get("from"), options.get("names"))
                documented.setdefault(match[1], []).extend(names)
    assert set(documented) == set(MODULES)
    elsewhere = {"Agent", "HttpAgent"}  # of aguia.client
    for module, names in documented.items():
        left_out = elsewhere if module == "aguia" else set()
        assert sorted(names) == sorted(set(public_names(module)) - left_out), module


def test_every_command_is_in_the_reference() -> None:
    page = (REPOSITORY / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    shown = [block.language for block in blocks_of(page)]
    assert shown == [f"{{command-help}} {' '.join(names)}" for names in commands()]


# What runs the blocks has to fail where a page is wrong.


def page_of(tmp_path: Path, *blocks: str) -> Path:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n" + "\n\n".join(blocks) + "\n", encoding="utf-8")
    return page


def fence(language: str, *lines: str) -> str:
    return "\n".join([f"```{language}", *lines, "```"])


RIGHT: Final = {
    "a program": [fence("python", "print(1 + 1)"), fence("text", "2")],
    "a file": [
        fence("python", "# a.py", "x = 1"),
        fence("python", "# a.py, continued", "print(x)"),
        fence("console", "$ python a.py", "1", "$ python a.py; exit 3", "1", "(exit code 3)"),
    ],
    "cells": [
        fence("python", "# notebook", "import asyncio", "await asyncio.sleep(0)", "x = 2"),
        fence("python", "# notebook", "print(x)"),
        fence("text", "2"),
    ],
    "a file in a comment": [
        "<!-- file: a.json -->",
        fence("json", "{}"),
        fence("console", "$ cat a.json", "{}"),
    ],
    "any lines": [fence("console", "$ printf 'a\\nb\\nc\\nd\\n'", "a", "...", "d")],
    "no lines at all": [fence("console", "$ printf 'a\\nd\\n'", "a", "...", "d")],
    "a server": [
        fence("console", "$ python -m http.server 8123"),
        fence("console", "$ curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8123/", "200"),
    ],
    "a talk": [
        fence("console", "$ aguia serve", "Serving ... at http://127.0.0.1:8000/"),
        fence("console", "$ aguia chat http://127.0.0.1:8000/", "> help", "...", "> /nothing"),
    ],
    "a consent": [
        fence(
            "python", "# mine.py", "def open_file(path: str) -> str:", "    return 'It is open.'"
        ),
        fence("console", "$ touch a.txt", "$ aguia serve"),
        fence(
            "console",
            "$ aguia chat http://127.0.0.1:8000/ --tools mine.py",
            "> open a.txt",
            "Run open_file? yes",
            "The application reports for a.txt: It is open.",
        ),
    ],
}

WRONG: Final = {
    "an output": [fence("python", "print(1 + 1)"), fence("text", "3")],
    "an exception": [fence("python", "1 / 0")],
    "a syntax error in a file": [fence("python", "# a.py", "x = = 1")],
    "an exception in a cell": [fence("python", "# notebook", "1 / 0")],
    "an output of a cell": [fence("python", "# notebook", "print(1)"), fence("text", "2")],
    "a command": [fence("console", "$ false")],
    "what a command prints": [fence("console", "$ echo a", "b")],
    "an exit code": [fence("console", "$ true", "(exit code 1)")],
    "no language": [fence("", "x")],
    "an unknown language": [fence("cobol", "x")],
    "indented code": ["    x = 1"],
    "JSON": [fence("json", "{")],
    "a server that ends": [fence("console", "$ aguia serve nothing:agent --port 8001")],
    "what a server prints": [fence("console", "$ aguia serve", "Served")],
    "an unnamed file": [fence("nginx", "events {}")],
    "what an agent says": [
        fence("console", "$ aguia serve"),
        fence("console", '$ aguia chat http://127.0.0.1:8000/ "help"', "No."),
    ],
}


@POSIX
@pytest.mark.unmeasured
@pytest.mark.parametrize("what", RIGHT)
def test_a_right_page_passes(
    what: str, terminal: Callable[..., Terminal], folder: Path, tmp_path: Path
) -> None:
    run_page(page_of(tmp_path, *RIGHT[what]), "page.md", folder, terminal)


@POSIX
@pytest.mark.unmeasured
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_page_fails(
    what: str, terminal: Callable[..., Terminal], folder: Path, tmp_path: Path
) -> None:
    page = page_of(tmp_path, *WRONG[what])
    with pytest.raises((AssertionError, ValueError, SyntaxError, pytest.fail.Exception)):
        run_page(page, "page.md", folder, terminal)


def test_commands_and_what_they_print() -> None:
    [block] = blocks_of(fence("console", "$ a \\", "    b", "c", "", "$ d &"))
    first, second = commands_of(block)
    assert (first.command, first.printed, first.line) == ("a b", ("c",), 2)
    assert (second.command, second.is_server) == ("d &", True)


def test_what_is_printed_has_to_match_as_a_whole() -> None:
    assert matches(["a", "b"], "a\nb\n")
    assert not matches(["a"], "a\nb\n")
    assert not matches(["a"], "ab")
    assert matches(["a"], "a\nb\n", begins=True)
    assert not matches(["a"], "ab\n", begins=True)
    assert matches(["a ... c"], "a b c")
