"""JSON text to wire values and back, without reading or writing anything.

`decode_event` is the strict path: one typed decode, closed objects, no coercion. When it
refuses a frame, `parse_object` reads the same frame as plain JSON for the stages that judge
what it holds. Both refuse what is no JSON at all (RFC 8259): `NaN`, infinities, bad UTF-8.
"""

import json
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from itertools import accumulate
from typing import Any, Final, Never, TypeVar, Union, cast
from uuid import UUID

import msgspec

from aguia.protocol.errors import DecodeError
from aguia.protocol.events import EVENTS, Event

__all__ = [
    "MAX_DEPTH",
    "STRICT_FAILURES",
    "convert_event",
    "copy_value",
    "decode",
    "decode_event",
    "encode",
    "nests_deeper_than",
    "parse_object",
]

MAX_DEPTH: Final = 256
"""How deep objects and arrays may be nested by default."""

STRICT_FAILURES: Final = (msgspec.DecodeError, RecursionError)
"""What `decode_event` and `decode` raise when they refuse their input."""

_EXCERPT: Final = 24
_MAX_DIGITS: Final = 4300  # as many as the strict decoder reads, the sign among them
_TOO_SMALL: Final = -(10 ** (_MAX_DIGITS - 1))
_TOO_LARGE: Final = 10**_MAX_DIGITS

T = TypeVar("T")

decode_event: Final = msgspec.json.Decoder[Event](Event).decode
"""One JSON object, as bytes or text, to the event it holds; raises one of `STRICT_FAILURES`."""

_encode: Final = msgspec.json.Encoder().encode


def convert_event(raw: dict[str, Any]) -> Event:
    """The event in a plain object, judged as strictly; raises `msgspec.ValidationError`.

    `UnicodeEncodeError` comes of half a surrogate pair where a pattern is to be matched.
    """
    # Converting to the whole union would take it apart each time.
    kind = raw.get("type")
    event_type = EVENTS.get(kind) if isinstance(kind, str) else None
    if event_type is None:
        raise msgspec.ValidationError("no known type")
    event: Event = msgspec.convert(raw, event_type)
    return event


class _NoOther(msgspec.Struct, tag_field="type", tag=" "):
    """Makes a union of a single tagged type, so that the decoder demands the tag."""


class _NoOtherRole(msgspec.Struct, tag_field="role", tag=" "):
    """The same for messages."""


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    config = getattr(type_, "__struct_config__", None)
    if config is not None and config.tag_field is not None:
        other = _NoOtherRole if config.tag_field == "role" else _NoOther
        return msgspec.json.Decoder(Union[type_, other])  # noqa: UP007
    return msgspec.json.Decoder(type_)


def decode(data: bytes | str, type_: type[T]) -> T:
    """Decode one JSON document strictly as `type_`, a wire type or an alias of several.

    Raises one of `STRICT_FAILURES`. Closed objects refuse members they don't describe,
    nothing is coerced, and a discriminator is required even where it could be inferred.
    """
    value: T = _decoder(cast("Any", type_)).decode(data)
    return value


def encode(value: Any) -> bytes:
    """A wire value, or plain JSON, as compact UTF-8 JSON.

    A half of a surrogate pair can't be written in UTF-8; text that holds one is escaped.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value)
        return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode()


def parse_object(frame: bytes, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """Read a frame as one JSON object whose content nobody has judged yet.

    Raises `DecodeError` that shows where the frame stops being one.
    """
    try:
        text = frame.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"the frame is not UTF-8: {error.reason} at byte {error.start}", rule="HTTP-2"
        ) from None
    if text.startswith("\ufeff"):
        raise DecodeError(
            "the frame begins with a byte order mark, which JSON does not have: write it in UTF-8 "
            "without one",
            rule="HTTP-2",
        )
    if nests_deeper_than(frame, max_depth):
        raise DecodeError(f"the frame nests deeper than {max_depth} levels", rule=None)
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise DecodeError(
            f"the frame is not JSON: {error.msg} at character {error.pos}{_near(text, error.pos)}",
            rule="HTTP-2",
        ) from None
    except RecursionError:
        raise DecodeError("the frame nests too deeply", rule=None) from None
    except ValueError as error:
        raise DecodeError(f"the frame is not JSON: {error}", rule="HTTP-2") from None
    if not isinstance(value, dict):
        raise DecodeError(
            f"the frame holds {_kind(value)} where one event, a JSON object, belongs",
            rule="HTTP-2",
        )
    return value


def nests_deeper_than(frame: bytes, limit: int) -> bool:
    """Whether the JSON text nests objects and arrays deeper than `limit`.

    Text that is no JSON may get either answer; the parser refuses it anyhow. Works in few
    passes over the bytes, whatever they hold: it stands before the decoding of every large frame.
    """
    if len(frame) <= limit or frame.count(b"[") + frame.count(b"{") <= limit:
        return False
    if b"\\" in frame:
        frame = frame.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = b"".join(frame.split(b'"')[::2]).translate(_STEPS, _NO_BRACKETS)
    depth = 0
    while brackets and depth < _QUICK_PASSES:
        # Each pass takes the innermost level away, and of ordinary text nothing is left soon.
        brackets = brackets.replace(_PAIR, b"")
        depth += 1
    return depth + max(accumulate(memoryview(brackets).cast("b")), default=0) > limit


_QUICK_PASSES: Final = 12
_PAIR: Final = b"\x01\xff"  # one level up and, as a signed byte, one down
_STEPS: Final = bytes.maketrans(b"[{]}", _PAIR[:1] * 2 + _PAIR[1:] * 2)
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")


def copy_value(value: Any, max_depth: int = MAX_DEPTH) -> Any:
    """A deep copy of a JSON value that some program made, proved to be JSON on the way.

    Wire values come out in their plain form, tuples as arrays, and members of a `StrEnum` or
    other subclasses as what they are made of. Raises `ValueError` with a JSON Pointer to what
    is no JSON: other types, keys that are no strings, `NaN` and infinities, nesting beyond
    `max_depth`.
    """
    try:
        return _copy(value, max_depth, "")
    except RecursionError:
        raise ValueError("the value nests too deeply") from None


# What is no JSON must not become some on the way to plain values.
_NO_JSON: Final = (bytes, bytearray, date, datetime, time, timedelta, Decimal, UUID)


def _copy(value: Any, depth: int, path: str) -> Any:
    match value:
        case bool() | None:
            return value
        case str():
            return value if type(value) is str else str.__str__(value)
        case int():
            if not _TOO_SMALL < value < _TOO_LARGE:
                raise ValueError(f"the whole number at '{path}' has too many digits")
            return value if type(value) is int else int.__int__(value)
        case float():
            if value - value != 0:
                raise ValueError(f"{value} at '{path}' is no JSON number")
            return value if type(value) is float else float.__float__(value)
        case Mapping():
            if depth == 0:
                raise ValueError(f"the value nests too deeply at '{_shorten(path)}'")
            result = {}
            for key, item in value.items():
                if not isinstance(key, str):
                    raise ValueError(f"the key {key!r} at '{path}' is no string")
                name = key if type(key) is str else str.__str__(key)
                result[name] = _copy(item, depth - 1, f"{path}/{name}")
            return result
        case list() | tuple():
            if depth == 0:
                raise ValueError(f"the value nests too deeply at '{_shorten(path)}'")
            return [_copy(item, depth - 1, f"{path}/{index}") for index, item in enumerate(value)]
        case msgspec.Struct():
            try:
                plain = msgspec.to_builtins(value, builtin_types=_NO_JSON)
            except TypeError as error:
                raise ValueError(f"{error} (in what is at '{path}')") from None
            return _copy(plain, depth, path)
    raise ValueError(f"{type(value).__name__} at '{path}' is no JSON value")


def _shorten(path: str) -> str:
    return path if len(path) <= 2 * _EXCERPT else f"{path[: 2 * _EXCERPT]}…"


def _near(text: str, position: int) -> str:
    excerpt = text[max(0, position - _EXCERPT) : position + _EXCERPT]
    return f", near {excerpt!r}" if excerpt else ""


def _no_constant(name: str) -> Never:
    raise ValueError(f"{name} is no JSON number")


def _whole(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"the number {text[:_EXCERPT]}… has more than {_MAX_DIGITS} digits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"the number {text[:_EXCERPT]} is out of range")
    return number


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
    return "something"
