"""A conversation in a notebook: what is shown, and that what it says can't become markup."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguia.client import conversation_html, conversation_text, image
from aguia.consumer import Consumer
from aguia.protocol.content import (
    ContentPart,
    DataSource,
    DocumentPart,
    FileSource,
    ImagePart,
    TextPart,
    UrlSource,
)
from aguia.protocol.messages import (
    ActivityMessage,
    AssistantMessage,
    DeveloperMessage,
    FunctionCall,
    Message,
    ReasoningMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguia.protocol.outcomes import Interrupt

ALLOWED: dict[str, set[str]] = {
    "div": {"class", "style", "dir"},
    "pre": {"style"},
    "code": set(),
    "details": set(),
    "summary": set(),
    "img": {"alt", "style", "src"},
}


class Page(HTMLParser):
    """The text of a fragment, and its images; refuses what is not on the list above."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.images: list[dict[str, str | None]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        found = dict(attrs)
        assert set(found) <= ALLOWED[tag]
        assert len(found) == len(attrs)
        style = found.get("style") or ""
        assert style.isascii()
        assert "url" not in style
        if tag == "img":
            source = found["src"]
            assert source is not None
            assert re.fullmatch(
                r"data:image/(png|jpeg|gif|webp);base64,[\w+/]+={0,2}", source, re.A
            )
            self.images.append(found)
        else:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError("a declaration")

    def handle_pi(self, data: str) -> None:
        raise AssertionError("a processing instruction")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError("a declaration")


def page(*messages: Message, **settings: Any) -> Page:
    return Page(conversation_html(messages, "Agent", **settings))


def user(*content: ContentPart) -> UserMessage:
    return UserMessage(id="u", content=list(content))


def call(name: str, arguments: str, id_: str = "c") -> ToolCall:
    return ToolCall(id=id_, type="function", function=FunctionCall(name=name, arguments=arguments))


def everything(text: str) -> list[Message]:
    """A message of each kind, with the text wherever text can be."""
    source = DataSource(value="aGk", mime_type="image/png")
    parts: list[ContentPart] = [
        TextPart(text=text),
        ImagePart(source=source, metadata={"filename": text}),
        ImagePart(source=DataSource(value=text, mime_type="image/png")),
        ImagePart(source=DataSource(value="aGk", mime_type=text)),
        DocumentPart(source=UrlSource(value=text, mime_type=text)),
        DocumentPart(source=FileSource(value=text, provider=text)),
    ]
    return [
        DeveloperMessage(id=text, content=text, name=text),
        SystemMessage(id="s", content=text),
        UserMessage(id="u", content=parts, name=text),
        ReasoningMessage(id="r", content=text),
        AssistantMessage(id="a", content=text, tool_calls=[call(text, text)], name=text),
        ToolMessage(id="t", tool_call_id=text, content=text, error=text),
        ToolMessage(id="v", tool_call_id="c", content=parts),
        ActivityMessage(id="p", activity_type=text, content={text: [text]}),
    ]


def test_each_kind_of_message_is_shown() -> None:
    shown = page(
        SystemMessage(id="s", content="Be brief."),
        UserMessage(id="u", content="Where is <b>it</b> & why?\n  Here?", name="Ana"),
        ReasoningMessage(id="r", content="Let me see."),
        AssistantMessage(id="a", content="I look.", tool_calls=[call("grep", '{"for": "it"}')]),
        ToolMessage(id="t", tool_call_id="c", content="line 5", error="not all"),
        ActivityMessage(id="p", activity_type="plan", content={"step": 1}),
    )
    for said in (
        *("Agent", "system", "Be brief.", "user Ana", "Where is <b>it</b> & why?\n  Here?"),
        *("reasoning", "Let me see.", "assistant", "I look.", "calls grep", '{"for": "it"}'),
        *("tool answers c", "line 5", "failed", "not all", "activity plan", '{"step":1}'),
    ):
        assert said in shown.text
    html = conversation_html([ReasoningMessage(id="r", content="Let me see.")], "Agent")
    assert "<details><summary>reasoning</summary>" in html
    assert "no messages" in page().text


def test_what_waits_for_an_answer_is_shown() -> None:
    """INT-2."""
    shown = page(
        interrupts=[
            Interrupt(id="i", reason="approval", message="Pay <5>?"),
            Interrupt(id="j-1", reason="input"),
        ]
    )
    assert "waits for an answer approvalPay <5>?" in shown.text
    assert "waits for an answer inputj-1" in shown.text
    assert "no messages" not in shown.text


def test_a_live_thread_can_be_shown() -> None:
    consumer = Consumer()
    for event in (
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hel"},
    ):
        list(consumer.receive_event(event))
    messages = consumer.conversation.messages
    assert "Hel" in Page(conversation_html(messages, "Agent")).text
    assert (
        conversation_text(messages, "Agent") == "<Agent: 1 message, the last from assistant: Hel>"
    )


def test_a_long_thread_is_cut() -> None:
    messages = [UserMessage(id=f"u{n}", content=f"[{n}]") for n in range(1_062)]
    shown = page(*messages)
    assert "… 1,012 earlier messages" in shown.text
    assert "[1011]" not in shown.text
    assert "[1012]" in shown.text
    assert "[1061]" in shown.text
    assert "… 1 earlier message" in page(*messages[:51]).text
    assert "earlier" not in page(*messages[:50]).text


def test_long_texts_and_lists_are_cut() -> None:
    large = "<&>" * 1_000_000
    calls = [call(large, large) for _ in range(25)]
    parts: list[ContentPart] = [TextPart(text=large) for _ in range(22)]
    html = conversation_html(
        [
            *everything(large),
            AssistantMessage(id="a", content="", tool_calls=calls),
            user(*parts),
        ],
        "Agent",
    )
    assert len(html) < 2_000_000
    text = Page(html).text
    assert "… 2,996,000 more characters" in text
    assert "… 5 more" in text
    assert "… 2 more" in text


# Images


def test_a_small_raster_image_is_shown() -> None:
    """TOOL-7: one that travels inline."""
    png = image(b"\x89PNG\r\n\x1a\n" + b"\x00" * 22, metadata={"filename": 'a"b.png'})
    shown = page(user(png))
    assert isinstance(png.source, DataSource)
    assert [(each["alt"], each["src"]) for each in shown.images] == [
        ('a"b.png', f"data:image/png;base64,{png.source.value}")
    ]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (image("https://a.example/x.png"), "image: image/png, https://a.example/x.png"),
        (ImagePart(source=UrlSource(value="javascript:alert(1)")), "javascript:alert(1)"),
        (
            ImagePart(source=DataSource(value="aGkh", mime_type="image/svg+xml")),
            "image: image/svg+xml, 3 bytes",
        ),
        (ImagePart(source=DataSource(value='" onerror="', mime_type="image/png")), "image/png"),
        (ImagePart(source=DataSource(value="", mime_type="image/png")), "0 bytes"),
        (ImagePart(source=DataSource(value="aGkh", mime_type="IMAGE/PNG")), "3 bytes"),
        (
            ImagePart(source=DataSource(value="A" * 4_000_000, mime_type="image/png")),
            "image/png, 3,000,000 bytes",
        ),
        (
            DocumentPart(
                source=DataSource(value="aGkh", mime_type="image/png"),
                metadata={"filename": "a.png"},
            ),
            "document: a.png, image/png, 3 bytes",
        ),
    ],
)
def test_other_media_are_described(part: Any, said: str) -> None:
    """TOOL-12: nothing is loaded, and nothing is a link."""
    shown = page(user(part))
    assert shown.images == []
    assert said in shown.text


def test_a_handle_is_not_shown() -> None:
    """TOOL-12: nobody but its provider makes anything of it."""
    source = FileSource(value="secret-handle", provider="openai")
    shown = page(user(DocumentPart(source=source), DocumentPart(source=FileSource(value="x-y-z"))))
    assert "document: a file at openai" in shown.text
    assert "a file at the provider" in shown.text
    assert "secret-handle" not in shown.text
    assert "x-y-z" not in shown.text


def test_images_share_a_bound() -> None:
    part = ImagePart(source=DataSource(value="A" * 1_500_000, mime_type="image/png"))
    assert len(page(user(*[part] * 9)).images) == 5


# What others say is text


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "</div></pre></details><script>",
        '"><img src=x onerror=alert(1)>',
        "' onmouseover='x",
        "<!-- ",
        "<![CDATA[",
        "<?php",
        "]]>",
        "&lt;&#60;",
        "</style>",
        "\x00<b>",
        "$\\href{x}{y}$",
    ],
)
def test_hostile_text_stays_text(text: str) -> None:
    """SEC-3: what is said is data."""
    shown = page(*everything(text), interrupts=[Interrupt(id=text, reason=text, message=text)])
    assert shown.text.count(text.replace("\x00", "\ufffd")) > 10


@settings(deadline=None)
@given(text=st.text(alphabet=st.characters() | st.sampled_from("<>&\"'/=!-;{}$\\"), min_size=1))
def test_no_text_breaks_out_of_its_place(text: str) -> None:
    """SEC-3: only the elements and attributes of this module come out, whole, and valid UTF-8."""
    shown = page(*everything(text), interrupts=[Interrupt(id="i", reason=text)])
    assert len(shown.images) >= 2
    conversation_html(everything(text), text).encode()


def test_half_a_surrogate_pair_does_not_break_the_notebook() -> None:
    html = conversation_html(everything("a\ud83d<"), "\udca9")
    assert "a?&lt;" in html
    html.encode()


def test_a_notebook_does_not_read_mathematics_into_the_text() -> None:
    """Nor the links that mathematics may have."""
    assert 'class="tex2jax_ignore mathjax_ignore"' in conversation_html([], "Agent")


# In one line


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (list, "<Agent: 0 messages>"),
        (
            lambda: [UserMessage(id="u", content="a\n  b\x1b[31m\u202e")],
            "<Agent: 1 message, the last from user: a b\\x1b[31m\\u202e>",
        ),
        (
            lambda: [UserMessage(id="u", content="x" * 61)] * 2,
            f"<Agent: 2 messages, the last from user: {'x' * 60}…>",
        ),
        (
            lambda: [user(TextPart(text="See"), image("https://a.example/b"))],
            "<Agent: 1 message, the last from user: See (image)>",
        ),
        (
            lambda: [AssistantMessage(id="a", tool_calls=[call("f", ""), call("g", "", "d")])],
            "<Agent: 1 message, the last from assistant: calls f, calls g>",
        ),
        (
            lambda: [AssistantMessage(id="a")],
            "<Agent: 1 message, the last from assistant>",
        ),
        (
            lambda: [ActivityMessage(id="p", activity_type="plan", content={})],
            "<Agent: 1 message, the last from activity: plan>",
        ),
    ],
)
def test_a_thread_in_one_line(make: Callable[[], list[Message]], expected: str) -> None:
    assert conversation_text(make(), "Agent") == expected


@settings(deadline=None)
@given(text=st.text())
def test_the_line_is_one_line_whatever_is_said(text: str) -> None:
    for message in everything(text):
        line = conversation_text([message], text)
        assert line.isprintable()
        assert len(line) < 2_000
        assert msgspec.json.decode(msgspec.json.encode(line)) == line
