"""JSON values in the wire form of google.protobuf.Value, Struct and ListValue.

Members keep their order in both directions, and nesting is limited by this package rather than
by the protobuf runtime. A JSON number is a double on that wire: whole ones within the range
that doubles keep exact come back as `int`.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

from aguia.protocol.common import MAX_SAFE_INTEGER

__all__ = [
    "WireError",
    "check_fields",
    "decode_struct",
    "decode_value",
    "encode_struct",
    "encode_value",
    "read_tag",
    "skip_field",
]

_pack_double: Final = struct.Struct("<d").pack
_unpack_double: Final = struct.Struct("<d").unpack_from

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_GROUP: Final = 3
_GROUP_END: Final = 4
_FIXED32: Final = 5

# Tags are the field's number and its wire type.
_NULL: Final = b"\x08\x00"
_NUMBER: Final = b"\x11"
_STRING: Final = b"\x1a"
_TRUE: Final = b"\x20\x01"
_FALSE: Final = b"\x20\x00"
_STRUCT: Final = b"\x2a"
_LIST: Final = b"\x32"
_FIRST: Final = b"\x0a"
_SECOND: Final = b"\x12"

_ABSENT: Final[Any] = object()


class WireError(ValueError):
    """Bytes that are no such message."""


def encode_value(value: Any) -> bytes:
    """One JSON value as a google.protobuf.Value. Raises `ValueError` for what no double holds."""
    if isinstance(value, str):
        text = _utf8(value)
        size = len(text)
        return b"\x1a%c%b" % (size, text) if size < 128 else _STRING + _varint(size) + text
    if value is None:
        return _NULL
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    if isinstance(value, int | float):
        return _NUMBER + _pack_double(_double(value))
    if isinstance(value, Mapping):
        body = encode_struct(value)
        return _STRUCT + _varint(len(body)) + body
    parts: list[bytes] = []
    for item in value:
        encoded = encode_value(item)
        parts += (_FIRST, _varint(len(encoded)), encoded)
    body = b"".join(parts)
    return _LIST + _varint(len(body)) + body


def encode_struct(members: Mapping[str, Any]) -> bytes:
    """One JSON object as a google.protobuf.Struct, its members in their order."""
    parts: list[bytes] = []
    for name, item in members.items():
        key, value = _utf8(name), encode_value(item)
        key_size, size = len(key), len(value)
        if key_size > 0 and key_size + size < 124:
            # The usual case, in which every length is one byte
            entry = (key_size + size + 4, key_size, key, size, value)
            parts.append(b"\n%c\n%c%b\x12%c%b" % entry)
            continue
        head = _FIRST + _varint(key_size) + key if key else b""
        whole = head + _SECOND + _varint(size) + value
        parts += (_FIRST, _varint(len(whole)), whole)
    return b"".join(parts)


def decode_value(data: bytes, depth: int) -> Any:
    """The JSON value in a google.protobuf.Value, nested at most `depth` levels deep.

    Raises `WireError`.
    """
    value = _value(data, 0, len(data), depth)
    if value is _ABSENT:
        raise WireError("a value of no kind")
    return value


def decode_struct(data: bytes, depth: int) -> dict[str, Any]:
    """The JSON object in a google.protobuf.Struct, itself one level. Raises `WireError`."""
    if depth < 1:
        raise WireError("nested too deeply")
    return _struct(data, 0, len(data), depth - 1)


def read_tag(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The tag of the field that begins at `at`, and where its content does. Raises `WireError`."""
    if at < end and 8 <= data[at] < 0x80:
        return data[at], at + 1
    tag, at = _read_varint(data, at, end)
    if not 8 <= tag < 1 << 32:
        raise WireError("a field with a number that no field has")
    return tag, at


def skip_field(data: bytes, at: int, end: int, tag: int) -> int:
    """Where the field ends whose content begins at `at`. Raises `WireError`."""
    open_groups: list[int] = []
    while True:
        kind = tag & 7
        if kind == _VARINT:
            at = _read_varint(data, at, end)[1]
        elif kind == _BYTES:
            size, at = _read_varint(data, at, end)
            at += size
        elif kind == _FIXED64:
            at += 8
        elif kind == _FIXED32:
            at += 4
        elif kind == _GROUP:
            open_groups.append(tag >> 3)
        elif kind != _GROUP_END or not open_groups or open_groups.pop() != tag >> 3:
            raise WireError("a field of no known form")
        if at > end:
            raise WireError("a field beyond the end")
        if not open_groups:
            return at
        tag, at = read_tag(data, at, end)


def check_fields(data: bytes) -> None:
    """Raise `WireError` unless a field's content, its length in front, is a message's fields."""
    _, at = _read_varint(data, 0, len(data))
    while at < len(data):
        tag, at = read_tag(data, at, len(data))
        at = skip_field(data, at, len(data), tag)


def _varint(number: int) -> bytes:
    """A non-negative number in the variable-length form of protobuf."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _utf8(text: str) -> bytes:
    """UTF-8, with the replacement character for half a character, which UTF-8 can't express."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return whole.encode()


def _double(number: float) -> float:
    try:
        double = float(number)
    except OverflowError:
        raise ValueError("a whole number beyond the range of a double") from None
    if double - double != 0:
        raise ValueError(f"{double} is no JSON number")
    return double


def _value(data: bytes, start: int, end: int, depth: int) -> Any:
    """The value, or `_ABSENT`; of several kinds the last counts, and pieces of one are merged."""
    if end - start > 1 and data[start + 1] < 0x80:
        # The usual case: one field that fills the value, its length one byte
        tag, at = data[start], start + 2
        if at + data[start + 1] == end:
            if tag == 0x1A:
                return _text(data, at, end)
            if tag in (0x2A, 0x32) and depth > 0:
                return (_struct if tag == 0x2A else _list)(data, at, end, depth - 1)
        if at == end and tag in (0x08, 0x20):
            return None if tag == 0x08 else data[start + 1] != 0
    if end - start == 9 and data[start] == 0x11:
        return _number(_unpack_double(data, start + 1)[0])
    value: Any = _ABSENT
    nested = 0  # the field of the object or array that came last,
    pieces: list[bytes] = []  # and what came of it
    at = start
    while at < end:
        tag, at = read_tag(data, at, end)
        field, kind = tag >> 3, tag & 7
        if kind == _BYTES and field in (3, 5, 6):
            size, at = _read_varint(data, at, end)
            stop = at + size
            if stop > end:
                raise WireError("a length beyond the end")
            if field == 3:
                nested, value = 0, _text(data, at, stop)
            else:
                if field != nested:
                    nested, pieces = field, []
                if stop == end and not pieces:
                    break  # the usual case, in which nothing has to be copied
                pieces.append(data[at:stop])
            at = stop
        elif kind == _FIXED64 and field == 2:
            if at + 8 > end:
                raise WireError("a number beyond the end")
            nested, value = 0, _number(_unpack_double(data, at)[0])
            at += 8
        elif kind == _VARINT and field in (1, 4):
            number, at = _read_varint(data, at, end)
            nested, value = 0, None if field == 1 else number != 0
        else:
            at = skip_field(data, at, end, tag)
    if not nested:
        return value
    if depth < 1:
        raise WireError("nested too deeply")
    if pieces:
        data = b"".join(pieces)
        at, end = 0, len(data)
    read = _struct if nested == 5 else _list
    return read(data, at, end, depth - 1)


def _struct(data: bytes, start: int, end: int, depth: int) -> dict[str, Any]:
    members: dict[str, Any] = {}
    at = start
    while at < end:
        tag, at = read_tag(data, at, end)
        if tag != 10:
            at = skip_field(data, at, end, tag)
            continue
        size, at = _read_varint(data, at, end)
        stop = at + size
        if stop > end:
            raise WireError("a length beyond the end")
        name = ""
        pieces: list[tuple[int, int]] = []
        while at < stop:
            tag, at = read_tag(data, at, stop)
            if tag not in (10, 18):
                at = skip_field(data, at, stop, tag)
                continue
            size, at = _read_varint(data, at, stop)
            if at + size > stop:
                raise WireError("a length beyond the end")
            if tag == 10:
                name = _text(data, at, at + size)
            else:
                pieces.append((at, at + size))
            at += size
        if len(pieces) == 1:
            value = _value(data, *pieces[0], depth)
        else:
            merged = b"".join(data[first:last] for first, last in pieces)
            value = _value(merged, 0, len(merged), depth)
        if value is not _ABSENT:
            members[name] = value
    return members


def _list(data: bytes, start: int, end: int, depth: int) -> list[Any]:
    items = []
    at = start
    while at < end:
        tag, at = read_tag(data, at, end)
        if tag != 10:
            at = skip_field(data, at, end, tag)
            continue
        size, at = _read_varint(data, at, end)
        if at + size > end:
            raise WireError("a length beyond the end")
        value = _value(data, at, at + size, depth)
        if value is _ABSENT:
            raise WireError("an element of no kind")
        items.append(value)
        at += size
    return items


def _number(number: float) -> int | float:
    if number - number != 0:
        raise WireError(f"{number} is no JSON number")
    if number.is_integer() and -MAX_SAFE_INTEGER <= number <= MAX_SAFE_INTEGER:
        return int(number)
    return number


def _text(data: bytes, start: int, end: int) -> str:
    try:
        return data[start:end].decode()
    except UnicodeDecodeError:
        raise WireError("a string that is not UTF-8") from None


def _read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends. Raises `WireError`."""
    if at < end and data[at] < 0x80:
        return data[at], at + 1
    number = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 64:
                break
            return number, at
        shift += 7
        if shift > 63:
            break
    else:
        raise WireError("a number beyond the end")
    raise WireError("a number of more than 64 bits")
