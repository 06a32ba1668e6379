"""What a tool returned, as the content of the answer to its call.

A tool's function returns what suits it. Text stays text and content parts stay parts (TOOL-7);
anything else becomes the text of its JSON, since there is no part for it (TOOL-8).
"""

from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec

from aguia.codec.json import encode
from aguia.interop.values import plain_value
from aguia.protocol.content import ContentPart, TextPart

__all__ = ["plain_content", "typed_content"]

_TYPES: Final = frozenset(part.type for part in get_args(ContentPart))


def typed_content(result: Any) -> str | list[ContentPart]:
    """The content that a result makes, with parts where the result is one or a list with some.

    Only typed parts count: a dictionary is data. Raises `TypeError` for what has no JSON form.
    """
    if isinstance(result, ContentPart):
        return [_typed_part(result)]
    if isinstance(result, list | tuple) and any(isinstance(item, ContentPart) for item in result):
        return [_typed_part(item) for item in result]
    return _text(result)


def plain_content(result: Any) -> str | list[Any]:
    """The content that a result makes, as plain JSON that has yet to be judged.

    Parts may be dictionaries or models too: a list that holds nothing else, or text besides, is
    a list of parts. One without members says nothing, and is no list to show (TOOL-9). Raises
    `TypeError` for what has no JSON form.
    """
    if isinstance(result, ContentPart):
        return [plain_value(result)]
    if not isinstance(result, list | tuple):
        return _text(result)
    if not result:
        return ""
    parts = [item for item in result if _is_part(item)]
    rest = [item for item in result if not (isinstance(item, str) or _is_part(item))]
    if any(isinstance(item, ContentPart) for item in parts) or (parts and not rest):
        return [
            {"type": "text", "text": item} if isinstance(item, str) else plain_value(item)
            for item in result
        ]
    return _text(result)


def _is_part(item: Any) -> bool:
    """Whether something says that it is a part, by its `type`."""
    type_ = item.get("type") if isinstance(item, Mapping) else getattr(item, "type", None)
    return isinstance(type_, str) and type_ in _TYPES


def _typed_part(item: Any) -> ContentPart:
    if isinstance(item, str):
        return TextPart(text=str.__str__(item))
    try:
        # What is in a typed part, nobody has checked.
        part: ContentPart = msgspec.convert(plain_value(item), ContentPart)
    except (ValueError, TypeError) as error:
        raise TypeError(
            f"the tool's result holds {type(item).__name__} where a content part belongs: {error}"
        ) from error
    return part


def _text(result: Any) -> str:
    if result is None:
        return ""
    if isinstance(result, str):
        return str.__str__(result)
    try:
        return encode(plain_value(result)).decode()
    except Exception as error:
        raise TypeError(f"the tool's result has no JSON form: {error}") from error
