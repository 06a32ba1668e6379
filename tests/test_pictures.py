"""The pictures of the documentation: made again, each is what is committed."""

import os
import re
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

import demo_picture
from support import REPOSITORY

PICTURES: Final = REPOSITORY / "docs" / "pictures"

posix = pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals as POSIX has them")


@posix
def test_the_picture_of_the_demo_is_current(tmp_path: Path) -> None:
    assert demo_picture.main([str(tmp_path / "demo.svg")]) == 0
    drawn = (tmp_path / "demo.svg").read_text(encoding="utf-8")
    kept = (PICTURES / "demo.svg").read_text(encoding="utf-8")
    assert words(drawn) == words(kept), "the demo says something else: run scripts/pictures"
    assert drawn == kept, "it is drawn differently: run scripts/pictures"


def words(svg: str) -> list[str]:
    """The lines of a picture without colours and places."""
    lines = re.split(r"<text [^>]*>\s*</text>|\n", re.sub(r"&#160;", " ", svg))
    return [text for line in lines if (text := re.sub(r"<[^>]*>", "", line).rstrip())]


def test_what_a_terminal_shows_in_the_end_is_drawn() -> None:
    """Lines that are redrawn count once; colours stay."""
    bold = "\x1b[1mthree\x1b[0m"
    written = f"one\r\ntwo\r\nthr\r\n\x1b[2A\rTWO\x1b[K\r\n{bold}\x1b[K\r\n\x1b[J> yes\r\n"
    assert demo_picture.screen(written) == ["one", "TWO", bold, "> yes", ""]
    assert demo_picture.plain(bold) == "three"


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_loads_nothing(path: Path) -> None:
    """It is shown as an image, where scripts do not run and nothing may be fetched."""
    svg = path.read_text(encoding="utf-8")
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("viewBox")
    assert {each.tag.rpartition("}")[2] for each in root.iter()}.isdisjoint(
        {"script", "image", "a"}
    )
    assert not re.search(r"@import|@font-face|url\((?!['\"]?#)|href=['\"](?!#)", svg)
