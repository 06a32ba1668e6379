"""A conversation as a notebook shows it, and in one line.

Everything in a conversation comes from elsewhere, so all of it is text here: escaped, without
links, and nothing is loaded from anywhere. The colours are those of the page around it, light or
dark.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from aguia.codec.json import encode
from aguia.protocol.content import (
    ContentPart,
    DataSource,
    ImagePart,
    PartSource,
    TextPart,
    UrlSource,
)
from aguia.protocol.errors import printable
from aguia.protocol.messages import (
    ActivityMessage,
    AssistantMessage,
    Message,
    ReasoningMessage,
    ToolCall,
    ToolMessage,
)
from aguia.protocol.outcomes import Interrupt

__all__ = ["conversation_html", "conversation_text"]

_MESSAGES: Final = 50
_ITEMS: Final = 20  # calls or parts of one message
_TEXT: Final = 4_000
_NAME: Final = 120
_IMAGE: Final = 2_000_000  # characters of base64
_IMAGES: Final = 8_000_000  # of all of them

_RASTER: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def conversation_html(
    messages: Sequence[Message], title: str, *, interrupts: Iterable[Interrupt] = ()
) -> str:
    """The thread as a fragment of HTML, for `_repr_html_`.

    Shows the last 50 messages, long texts cut, reasoning folded, tool calls with their
    arguments, small raster images that travel inline, and the interrupts that are open. URLs
    and file handles are not links (TOOL-12), and no script and no style sheet is in it.
    """
    shown = list(messages[-_MESSAGES:])
    left_out = len(messages) - len(shown)
    images = _Images()
    body = "".join(_message(each, images) for each in shown)
    asked = "".join(
        _block(_label("waits for an answer", each.reason), _text(each.message or each.id))
        for each in list(interrupts)[:_ITEMS]
    )
    earlier = _note(f"… {left_out:,} earlier {_noun(left_out)}") if left_out else ""
    empty = "" if shown or asked else _note("no messages")
    # The classes keep a notebook from reading mathematics, and with it links, into the text.
    return (
        f'<div class="tex2jax_ignore mathjax_ignore" style="{_OUTER}">'
        f'<div style="font-weight:600;margin-bottom:.4em">{_clean(title, _NAME)}</div>'
        f"{earlier}{body}{asked}{empty}</div>"
    )


def conversation_text(messages: Sequence[Message], title: str) -> str:
    """The thread in one line, for `repr`: how many messages, and how the last one begins."""
    count = f"{len(messages):,} {_noun(len(messages))}"
    if not messages:
        return printable(f"<{title}: {count}>")
    last = messages[-1]
    said = " ".join(_plain(last).split())
    begins = f": {said[:60]}{'…' if len(said) > 60 else ''}" if said else ""
    return printable(f"<{title}: {count}, the last from {last.role}{begins}>")


def _noun(count: int) -> str:
    return "message" if count == 1 else "messages"


def _plain(message: Message) -> str:
    """What a message says, as far as it is text; enough of it for one line."""
    content = message.content
    if isinstance(content, str) and content:
        return content[: 10 * _NAME]
    if isinstance(content, list):
        return " ".join(
            part.text[:_NAME] if isinstance(part, TextPart) else f"({part.type})"
            for part in content[:_ITEMS]
        )
    if isinstance(message, AssistantMessage):
        return ", ".join(
            f"calls {call.function.name[:_NAME]}" for call in (message.tool_calls or [])[:_ITEMS]
        )
    return message.activity_type[:_NAME] if isinstance(message, ActivityMessage) else ""


# Pieces of HTML: each takes text from anywhere, and returns what is safe to put together.

_OUTER: Final = "font-family:system-ui,sans-serif;font-size:.95em;line-height:1.45;max-width:60em"
_BLOCK: Final = "border-left:.25em solid rgba(128,128,128,.45);padding:.1em .7em;margin:.5em 0"
_FAINT: Final = "opacity:.7;font-size:.9em"
_PRE: Final = (
    "white-space:pre-wrap;overflow-wrap:anywhere;margin:.2em 0;padding:.3em .5em;"
    "background:rgba(128,128,128,.12);color:inherit;font-size:.9em"
)
_SAID: Final = "white-space:pre-wrap;overflow-wrap:anywhere"
_PICTURE: Final = "display:block;max-width:100%;max-height:20em;margin:.2em 0"


class _Images:
    """How much room is left for images that are shown."""

    def __init__(self) -> None:
        self.left = _IMAGES

    def takes(self, source: PartSource) -> bool:
        """Whether this is an image that may be shown, and there is room for it."""
        if (
            not isinstance(source, DataSource)
            or source.mime_type not in _RASTER
            or len(source.value) > min(_IMAGE, self.left)
            or not _BASE64.fullmatch(source.value)
        ):
            return False
        self.left -= len(source.value)
        return True


def _message(message: Message, images: _Images) -> str:
    if isinstance(message, ReasoningMessage):
        text = _text(message.content)
        return _block("", f"<details><summary>reasoning</summary>{text}</details>")
    if isinstance(message, ToolMessage):
        failed = f"{_label('failed', '')}{_text(message.error)}" if message.error else ""
        content = _content(message.content, images)
        return _block(_label("tool answers", message.tool_call_id), f"{content}{failed}")
    if isinstance(message, ActivityMessage):
        content = _pre(encode(message.content).decode())
        return _block(_label("activity", message.activity_type), content)
    name = message.name or ""
    if isinstance(message, AssistantMessage):
        calls = message.tool_calls or []
        inner = _text(message.content or "") + "".join(_call(each) for each in calls[:_ITEMS])
        return _block(_label("assistant", name), inner + _more(len(calls)))
    return _block(_label(message.role, name), _content(message.content, images))


def _content(content: str | list[ContentPart], images: _Images) -> str:
    if isinstance(content, str):
        return _text(content)
    return "".join(_part(part, images) for part in content[:_ITEMS]) + _more(len(content))


def _part(part: ContentPart, images: _Images) -> str:
    if isinstance(part, TextPart):
        return _text(part.text)
    source = part.source
    if isinstance(part, ImagePart) and images.takes(source):
        type_ = escape(source.mime_type or "")
        return (
            f'<img alt="{_clean(_filename(part.metadata), _NAME)}" style="{_PICTURE}" '
            f'src="data:{type_};base64,{escape(source.value)}">'
        )
    return _note(f"{part.type}: {_described(part.metadata, source)}")


def _described(metadata: Any, source: PartSource) -> str:
    facts = [_filename(metadata), (source.mime_type or "")[:_NAME]]
    if isinstance(source, DataSource):
        facts.append(f"{len(source.value) * 3 // 4:,} bytes")
    elif isinstance(source, UrlSource):
        facts.append(source.value[: 2 * _NAME])
    else:
        facts.append(f"a file at {source.provider or 'the provider'}")
    return ", ".join(fact for fact in facts if fact)


def _filename(metadata: Any) -> str:
    name = metadata.get("filename") if isinstance(metadata, dict) else None
    return name[:_NAME] if isinstance(name, str) else ""


def _call(call: ToolCall) -> str:
    arguments = call.function.arguments
    return _label("calls", call.function.name) + (_pre(arguments) if arguments else "")


def _more(count: int) -> str:
    return _note(f"… {count - _ITEMS:,} more") if count > _ITEMS else ""


def _block(head: str, inner: str) -> str:
    return f'<div style="{_BLOCK}">{head}{inner}</div>'


def _label(what: str, name: str) -> str:
    named = f" <code>{_clean(name, _NAME)}</code>" if name else ""
    return f'<div style="{_FAINT}">{_clean(what, _NAME)}{named}</div>'


def _note(text: str) -> str:
    return f'<div style="{_FAINT}">{_clean(text, 4 * _NAME)}</div>'


def _text(text: str) -> str:
    return f'<div dir="auto" style="{_SAID}">{_clean(text, _TEXT)}</div>' if text else ""


def _pre(text: str) -> str:
    return f'<pre style="{_PRE}">{_clean(text, _TEXT)}</pre>'


def _clean(text: str, limit: int) -> str:
    """The text as HTML that says just this text, cut where it gets long."""
    cut = text[:limit]
    left_out = len(text) - len(cut)
    # Half a surrogate pair would break the UTF-8 of the notebook.
    cut = cut.encode("utf-8", "replace").decode().translate(_CONTROLS)
    return escape(cut) + (f" … {left_out:,} more characters" if left_out else "")


_CONTROLS: Final = dict.fromkeys(
    [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"], "\ufffd"
)
