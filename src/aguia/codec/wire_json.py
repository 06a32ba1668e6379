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
    "decode_struct",
    "decode_value",
    "encode_struct",
    "encode_value",
    "read_varint",
    "varint",
]

_pack_double: Final = struct.Struct("<d").pack
_unpack_double: Final = struct.Struct("<d").unpack_from

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
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
    """One JSON value as a google.protobuf.Value."""
    if isinstance(value, str):
        text = _utf8(value)
        return _STRING + varint(len(text)) + text
    if value is None:
        return _NULL
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    if isinstance(value, int | float):
        return _NUMBER + _pack_double(value)
    if isinstance(value, Mapping):
        body = encode_struct(value)
        return _STRUCT + varint(len(body)) + body
    parts: list[bytes] = []
    for item in value:
        encoded = encode_value(item)
        parts += (_FIRST, varint(len(encoded)), encoded)
    body = b"".join(parts)
    return _LIST + varint(len(body)) + body


def encode_struct(members: Mapping[str, Any]) -> bytes:
    """One JSON object as a google.protobuf.Struct, its members in their order."""
    parts: list[bytes] = []
    for name, item in members.items():
        key, value = _utf8(name), encode_value(item)
        head = _FIRST + varint(len(key)) + key if key else b""
        entry = head + _SECOND + varint(len(value)) + value
        parts += (_FIRST, varint(len(entry)), entry)
    return b"".join(parts)


def decode_value(data: bytes, max_depth: int) -> Any:
    """The JSON value in a google.protobuf.Value. Raises `WireError`."""
    value = _value(data, 0, len(data), max_depth)
    if value is _ABSENT:
        raise WireError("a value of no kind")
    return value


def decode_struct(data: bytes, max_depth: int) -> dict[str, Any]:
    """The JSON object in a google.protobuf.Struct. Raises `WireError`."""
    return _struct(data, 0, len(data), max_depth)


def varint(number: int) -> bytes:
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


def _value(data: bytes, start: int, end: int, depth: int) -> Any:
    value: Any = _ABSENT
    at = start
    while at < end:
        tag, at = read_varint(data, at, end)
        field, kind = tag >> 3, tag & 7
        if kind == _BYTES:
            size, at = read_varint(data, at, end)
            stop = at + size
            if stop > end:
                raise WireError("a length beyond the end")
            if field == 3:
                value = _text(data, at, stop)
            elif field in (5, 6):
                if depth == 0:
                    raise WireError("nested too deeply")
                read = _struct if field == 5 else _list
                value = read(data, at, stop, depth - 1)
            at = stop
        elif kind == _FIXED64 and field == 2:
            if at + 8 > end:
                raise WireError("a number beyond the end")
            value = _number(_unpack_double(data, at)[0])
            at += 8
        elif kind == _VARINT and field in (1, 4):
            number, at = read_varint(data, at, end)
            value = None if field == 1 else number != 0
        else:
            at = _skip(data, at, end, kind)
    return value


def _struct(data: bytes, start: int, end: int, depth: int) -> dict[str, Any]:
    members: dict[str, Any] = {}
    at = start
    while at < end:
        tag, at = read_varint(data, at, end)
        if tag != 10:
            at = _skip(data, at, end, tag & 7)
            continue
        size, at = read_varint(data, at, end)
        stop = at + size
        if stop > end:
            raise WireError("a length beyond the end")
        name, value = "", _ABSENT
        while at < stop:
            tag, at = read_varint(data, at, stop)
            if tag in (10, 18):
                size, at = read_varint(data, at, stop)
                if at + size > stop:
                    raise WireError("a length beyond the end")
                if tag == 10:
                    name = _text(data, at, at + size)
                else:
                    value = _value(data, at, at + size, depth)
                at += size
            else:
                at = _skip(data, at, stop, tag & 7)
        if value is not _ABSENT:
            members[name] = value
    return members


def _list(data: bytes, start: int, end: int, depth: int) -> list[Any]:
    items = []
    at = start
    while at < end:
        tag, at = read_varint(data, at, end)
        if tag != 10:
            at = _skip(data, at, end, tag & 7)
            continue
        size, at = read_varint(data, at, end)
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


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends. Raises `WireError`."""
    number = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise WireError("a number of more than 64 bits")
    raise WireError("a number beyond the end")


def _skip(data: bytes, at: int, end: int, kind: int) -> int:
    """Past a field that this version doesn't know."""
    if kind == _VARINT:
        return read_varint(data, at, end)[1]
    if kind == _BYTES:
        size, at = read_varint(data, at, end)
    elif kind in (_FIXED64, _FIXED32):
        size = 8 if kind == _FIXED64 else 4
    else:
        raise WireError("a field of no known form")
    if at + size > end:
        raise WireError("a field beyond the end")
    return at + size
