"""The text in what a message holds."""

from typing import Any

import pytest

from aguia import UNSET, DataSource, ImagePart, TextPart, text_of

IMAGE = ImagePart(source=DataSource(value="AAAA", mime_type="image/png"))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Hello", "Hello"),
        ("", ""),
        ([TextPart(text="What"), IMAGE, TextPart(text="is this?")], "What\nis this?"),
        ([{"type": "text", "text": "plain"}, {"type": "image", "source": {}}], "plain"),
        ([{"type": "text", "text": 5}, {"type": "text"}, None], ""),
        ([IMAGE], ""),
        ([], ""),
        (UNSET, ""),
        (None, ""),
        ({"plan": ["look"]}, ""),
        (b"bytes", ""),
    ],
)
def test_the_text_of_a_message(content: Any, text: str) -> None:
    """Whatever kind of message it is of: TOOL-7, and the content of activities."""
    assert text_of(content) == text
