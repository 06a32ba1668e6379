"""Tools that a chat offers, and files that it sends along, without a terminal."""

import io
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aguia.cli.files import attached, with_files
from aguia.cli.render import Renderer
from aguia.cli.tools import Consents, load_tools
from aguia.client import FunctionTool, ToolRequest
from aguia.protocol.content import AudioPart, DocumentPart, ImagePart, TextPart
from aguia.protocol.messages import FunctionCall, ToolCall

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 20

# -- which functions are tools ---------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


MODULE = """
from os.path import basename
from aguia.client import tool

NUMBER = 5

def one(text: str) -> str:
    "One."

async def two() -> None: ...

@tool(name="third", read_only=True)
def three() -> str: ...

def _four() -> None: ...

class Five: ...
"""


def names(name: str) -> list[str]:
    return [tool.name for tool in load_tools(name)]


def test_the_functions_of_a_module_are_tools(folder: Path) -> None:
    (folder / "plain_tools.py").write_text(MODULE)
    assert names("plain_tools.py") == ["one", "two", "third"]
    assert names("plain_tools") == ["one", "two", "third"]
    (folder / "listed_tools.py").write_text(f"{MODULE}\n__all__ = ['basename', 'three', 'NUMBER']")
    assert names(str(folder / "listed_tools.py")) == ["basename", "third"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "there is no file tools_x.py for --tools"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def (:", "SyntaxError: "),
        ("import not_there_at_all", "No module named 'not_there_at_all'"),
        ("x = 1", "has no tools"),
        ("def one(*texts: object) -> None: ...\n", "one cannot be a tool: "),
        (
            "from aguia.client import tool\ndef one() -> None: ...\n"
            "@tool(name='one')\ndef two() -> None: ...\n",
            "two tools have the name one",
        ),
    ],
)
def test_what_offers_no_tools_is_said_in_one_line(
    folder: Path, source: str | None, words: str
) -> None:
    if source is not None:
        (folder / "tools_x.py").write_text(source)
    with pytest.raises(ValueError, match=re.escape(words)) as failed:
        load_tools("tools_x.py")
    assert "\n" not in str(failed.value)


def test_a_module_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ValueError, match="there is no module nowhere_at_all for --tools"):
        load_tools("nowhere_at_all")


# -- consent ---------------------------------------------------------------------------


def write(text: str) -> str:
    """Writes."""
    return text


def request(arguments: dict[str, Any]) -> ToolRequest:
    call = ToolCall(id="c", type="function", function=FunctionCall(name="write", arguments="{}"))
    return ToolRequest(call=call, tool=FunctionTool(write), arguments=arguments)


def typing(*lines: str | None) -> Callable[[str], Awaitable[str | None]]:
    left = list(lines)

    async def ask(label: str) -> str | None:
        assert label == "Run write?"
        return left.pop(0)

    return ask


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("typed", "verdict"),
    [
        (["y"], True),
        ([" YES "], True),
        (["n"], False),
        (["No"], False),
        ([None], False),
        (["", " ", "y"], True),
        (["yesterday"], "yesterday"),
        (["it is\x1b wrong"], "it is\x1b wrong"),
    ],
)
async def test_only_a_clear_yes_allows(typed: list[str | None], verdict: bool | str) -> None:
    """SEC-2."""
    out = io.StringIO()
    consents = Consents(Renderer(out, out), typing(*typed))
    assert await consents(request({"text": "x"})) == verdict
    assert '"text": "x"' in out.getvalue()


@pytest.mark.anyio
async def test_always_is_for_this_tool_and_this_chat() -> None:
    """SEC-2."""
    out = io.StringIO()
    consents = Consents(Renderer(out, out), typing("a"))
    assert await consents(request({})) is True
    assert await consents(request({})) is True, "nothing is asked"
    assert await Consents(Renderer(out, out), typing("n"))(request({})) is False


@pytest.mark.anyio
async def test_where_nobody_can_be_asked_only_what_was_allowed_runs() -> None:
    """SEC-2."""
    out = io.StringIO()
    verdict = await Consents(Renderer(out, out), None)(request({}))
    assert isinstance(verdict, str)
    assert "--yes" in verdict
    assert await Consents(Renderer(out, out), None, ["other", "write"])(request({})) is True
    assert out.getvalue() == ""


@pytest.mark.anyio
async def test_arguments_that_nobody_can_look_at_are_refused() -> None:
    """SEC-2: what is agreed to has been shown, all of it."""
    out = io.StringIO()
    consents = Consents(Renderer(out, out), typing())
    assert isinstance(await consents(request({"text": ["x"] * 1_000})), str)
    assert isinstance(await consents(request({"text": "x" * 100_000})), str)


@pytest.mark.anyio
async def test_what_is_asked_cannot_act_on_the_terminal() -> None:
    """SEC-3."""
    out = io.StringIO()
    consents = Consents(Renderer(out, out), typing("n"))
    await consents(request({"\x1b[2J\u202e": "\x9b\x07\u2066"}))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out.getvalue())


# -- files -----------------------------------------------------------------------------


def test_a_file_is_sent_as_what_it_is(folder: Path) -> None:
    (folder / "misnamed.txt").write_bytes(PNG)
    (folder / "notes.md").write_text("# notes")
    (folder / "sound.wav").write_bytes(b"RIFF\x00\x00\x00\x00WAVEfmt ")
    assert isinstance(attached("misnamed.txt"), ImagePart)
    assert isinstance(attached("notes.md"), DocumentPart)
    assert isinstance(attached("sound.wav"), AudioPart)


@pytest.mark.parametrize("path", ["missing.png", ".", "unknown.xyzzy", "empty.png"])
def test_what_cannot_be_sent_is_said_in_one_line(folder: Path, path: str) -> None:
    (folder / "unknown.xyzzy").write_bytes(b"\x00\x01\x02")
    (folder / "empty.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"^Cannot (read|attach) ") as failed:
        attached(path)
    assert "\n" not in str(failed.value)


def test_files_are_mentioned_by_their_path(folder: Path) -> None:
    (folder / "a.png").write_bytes(PNG)
    (folder / "an eagle.png").write_bytes(PNG)
    said = 'see @a.png, and (@a.png) or @"an eagle.png".'
    text, *parts = list(with_files(said))
    assert text == TextPart(text=said)
    assert [type(part) for part in parts] == [ImagePart, ImagePart]
    for plain in ("ask @ada about a@b.png and @", "@dataclass", "see @."):
        assert with_files(plain) == plain
    for missing in ("see @b.png", 'see @"b"', "@b.PDF!"):
        with pytest.raises(ValueError, match="There is no file"):
            with_files(missing)
