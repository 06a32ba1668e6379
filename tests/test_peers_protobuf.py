"""The npm packages `@ag-ui/proto` and `@ag-ui/encoder`: the same bytes, and the same events read.

Where they differ from this package is listed here, case by case.
"""

import json
from typing import Any, Final

import msgspec
import pytest
from hypothesis import Phase, given, settings

from aguia import DecodeError
from aguia.codec.protobuf import decode_event, encode_event
from aguia.codec.wire_json import encode_struct, encode_value
from aguia.protocol.events import Event
from support_events import plain_events
from support_protobuf import (
    UNKNOWN,
    canonical_events,
    length_delimited,
    read_vectors,
    through_the_wire,
)
from support_server import canonical, node


def _encode(event: Any) -> bytes:
    typed: Event = msgspec.convert(event, Event)
    return encode_event(typed)


def _as_the_reference_reads(event: dict[str, Any]) -> dict[str, Any]:
    """A valid event as the reference gives it back: an echoed input always has all its lists."""
    read: dict[str, Any] = through_the_wire(event)
    if "input" in read:
        read["input"] = {"tools": [], "context": [], "resume": [], **read["input"]}
    return read


@pytest.mark.unmeasured
def test_vectors_are_what_the_reference_writes() -> None:
    """PB-4: the vectors are made anew, and each side reads what the other wrote."""
    events = canonical_events()
    vectors = read_vectors()
    messages = [_encode(event)[4:].hex() for event in events]
    answer = node("protobuf.mjs", {"encode": events, "decode": messages})
    assert answer["warnings"] == answer["errors"] == []
    assert [each["hex"] for each in answer["encoded"]] == [each["hex"] for each in vectors]
    assert [each["hex"] for each in answer["encoded"]] == messages
    for event, decoded in zip(events, answer["decoded"], strict=True):
        assert canonical(decoded["event"]) == canonical(_as_the_reference_reads(event))


@pytest.mark.unmeasured
def test_bodies_are_what_the_reference_writes() -> None:
    """PB-2 and PB-4: with their frames."""
    events = canonical_events()
    answer = node("protobuf.mjs", {"encode": events})
    assert answer["body"] == b"".join(map(_encode, events)).hex()


def _in_javascript(value: Any) -> Any:
    """JSON as JavaScript holds it: whole-number keys first and ascending, and no `__proto__`."""
    if isinstance(value, list):
        return [_in_javascript(item) for item in value]
    if not isinstance(value, dict):
        return value
    numbers = sorted((key for key in value if _is_index(key)), key=int)
    keys = numbers + [key for key in value if not _is_index(key) and key != "__proto__"]
    return {key: _in_javascript(value[key]) for key in keys}


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdigit() and str(int(key)) == key and int(key) < 2**32 - 1


@pytest.mark.unmeasured
def test_random_events() -> None:
    """PB-3 and PB-4: for a few hundred events that the schema admits."""
    events: list[Any] = []

    @settings(max_examples=250, phases=[Phase.generate], database=None)
    @given(plain_events())
    def collect(event: dict[str, Any]) -> None:
        events.append(_in_javascript(event))

    collect()
    messages = [_encode(event)[4:].hex() for event in events]
    answer = node("protobuf.mjs", {"encode": events, "decode": messages})
    for event, ours, theirs, decoded in zip(
        events, messages, answer["encoded"], answer["decoded"], strict=True
    ):
        assert theirs == {"hex": ours}, event
        # Their number may be the nearest double of a larger one.
        expected = _as_the_reference_reads(event)
        assert _doubles(decoded["event"]) == _doubles(expected)
        assert _doubles(decode_event(bytes.fromhex(theirs["hex"]))) == _doubles(
            through_the_wire(event)
        )


def _doubles(value: Any) -> Any:
    match value:
        case bool():
            return str(value)
        case int():
            return float(value)
        case list():
            return [_doubles(item) for item in value]
        case dict():
            return {name: _doubles(item) for name, item in value.items()}
    return value


def test_keys_that_javascript_reorders() -> None:
    """The reference writes whole-number keys first, as JavaScript lists them; we keep the order.

    Both read either.
    """
    event = {"type": "CUSTOM", "name": "n", "value": {"b": 1, "10": 2, "2": 3}}
    ours = _encode(event)[4:]
    [theirs] = node("protobuf.mjs", {"encode": [event]})["encoded"]
    assert theirs["hex"] != ours.hex()
    assert theirs["hex"] == _encode(_in_javascript(event))[4:].hex()
    assert decode_event(bytes.fromhex(theirs["hex"])) == event
    [decoded] = node("protobuf.mjs", {"decode": [ours.hex()]})["decoded"]
    assert decoded["event"] == event


def test_key_that_the_reference_loses() -> None:
    """A member named `__proto__` is data; the reference neither writes nor reads it."""
    event = {"type": "CUSTOM", "name": "n", "value": {"__proto__": {"a": 1}, "b": 2}}
    ours = _encode(event)[4:]
    answer = node("protobuf.mjs", {"encode": [event], "decode": [ours.hex()]})
    without = {**event, "value": {"b": 2}}
    assert answer["encoded"] == [{"hex": _encode(without)[4:].hex()}]
    assert answer["decoded"] == [{"event": without}]
    assert decode_event(ours) == event


# Messages that no encoder writes

_BASE: Final = length_delimited(1, b"\x08\x01")
_TEXT: Final = length_delimited(2, b"m") + length_delimited(3, b"d")
_CONTENT: Final = length_delimited(2, _BASE + _TEXT)
_NUMBER: Final = b"\x98\x06\x01"
_NAMED: Final = length_delimited(1, b"\x08\x0a") + length_delimited(2, b"n")


def _custom(value: bytes) -> bytes:
    return length_delimited(11, _NAMED + length_delimited(3, value))


def _user(*parts: bytes) -> bytes:
    base = length_delimited(1, b"\x08\x08")
    message = length_delimited(1, b"m") + length_delimited(2, b"user")
    for part in parts:
        message += length_delimited(8, part)
    return length_delimited(9, base + length_delimited(2, message))


_PART: Final = length_delimited(1, length_delimited(1, b"text"))

ODD: Final = {
    "whole": _CONTENT,
    "an unknown field in front": _NUMBER + _CONTENT,
    "an unknown field behind": _CONTENT + length_delimited(UNKNOWN, b"\xff"),
    "unknown fields inside": length_delimited(2, _NUMBER + _BASE + _NUMBER + _TEXT + _NUMBER),
    "a group of unknown fields": b"\x9b\x06\x08\x01\x9c\x06" + _CONTENT,
    "a group with another end": b"\x9b\x06\x08\x01\xa4\x06" + _CONTENT,
    "an unknown kind": length_delimited(32, _BASE),
    "an empty unknown kind": length_delimited(UNKNOWN, b""),
    "several unknown kinds": length_delimited(32, b"") + length_delimited(33, b""),
    "an unknown kind that is no message": length_delimited(32, b"\xff"),
    "an unknown kind with field 0": length_delimited(32, b"\x00\x00"),
    "an unknown kind with a group": length_delimited(32, b"\x0b\x08\x01\x0c"),
    "an unknown kind with an open group": length_delimited(32, b"\x0b\x08\x01"),
    "an unknown kind with 65 bits": length_delimited(32, b"\x08" + b"\xff" * 9 + b"\x02"),
    "an unknown kind with a long tag": length_delimited(32, b"\xf8\xff\xff\xff\x1f\x00"),
    "an unknown number alone": _NUMBER,
    "a known kind as a number": b"\x10\x01",
    "a known kind as a number and an unknown one": b"\x10\x01" + length_delimited(32, b""),
    "nothing": b"",
    "no base": length_delimited(2, _TEXT),
    "another base": length_delimited(2, length_delimited(1, b"\x08\x02") + _TEXT),
    "an unknown base": length_delimited(2, length_delimited(1, b"\x08\x63") + _TEXT),
    "two kinds": _CONTENT + _custom(encode_value(1)),
    "garbage behind": _CONTENT + b"\xff",
    "field 0 behind": _CONTENT + b"\x00",
    "cut": _CONTENT[:-1],
    "twice": _CONTENT + _CONTENT,
    "in two halves": length_delimited(2, _BASE + length_delimited(2, b"m"))
    + length_delimited(2, length_delimited(3, b"d")),
    "a text twice": length_delimited(2, _BASE + length_delimited(2, b"x") + _TEXT),
    "a base in two halves": length_delimited(2, _BASE + length_delimited(1, b"\x10\x05") + _TEXT),
    "metadata in two halves": length_delimited(
        2,
        length_delimited(1, b"\x08\x01" + length_delimited(4, encode_struct({"a": 1, "b": 1})))
        + length_delimited(1, length_delimited(4, encode_struct({"b": 2, "c": 3})))
        + _TEXT,
    ),
    "a value twice": length_delimited(
        11,
        _NAMED
        + length_delimited(3, encode_value({"a": 1}))
        + length_delimited(3, encode_value({"b": 2})),
    ),
    "an object in two halves": _custom(encode_value({"a": 1}) + encode_value({"b": 2})),
    "a list in two halves": _custom(encode_value([1]) + encode_value([2])),
    "an object, then a list": _custom(encode_value({"a": 1}) + encode_value([2])),
    "an object around a number": _custom(
        encode_value({"a": 1}) + encode_value(1) + encode_value({"b": 2})
    ),
    "two numbers": _custom(encode_value(1) + encode_value(2)),
    "a member in two halves": _custom(
        length_delimited(
            5,
            length_delimited(
                1,
                length_delimited(1, b"k")
                + length_delimited(2, encode_value({"a": 1}))
                + length_delimited(2, encode_value({"b": 2})),
            ),
        )
    ),
    "a member twice": _custom(
        length_delimited(5, encode_struct({"a": 1, "b": 2}) + encode_struct({"a": 3}))
    ),
    "a member without value": _custom(
        length_delimited(5, length_delimited(1, length_delimited(1, b"k")))
    ),
    "a member of no kind": _custom(
        length_delimited(5, length_delimited(1, length_delimited(1, b"k") + b"\x12\0"))
    ),
    "unknown fields in a value": _custom(_NUMBER + encode_value(1) + _NUMBER),
    "a known field of a value in another form": _custom(encode_value(1) + b"\x2d" + bytes(4)),
    "a part in two halves": _user(_PART + length_delimited(1, length_delimited(2, b"id"))),
    "a long number": length_delimited(2, length_delimited(1, b"\x08\x81\x80\x00") + _TEXT),
    "two contents in a message": length_delimited(
        9,
        length_delimited(1, b"\x08\x08")
        + length_delimited(
            2,
            length_delimited(2, b"user")
            + length_delimited(3, b"text")
            + length_delimited(8, _PART),
        ),
    ),
    "two contents in a result": length_delimited(
        22,
        length_delimited(1, b"\x08\x15")
        + length_delimited(5, b"text")
        + length_delimited(7, _PART),
    ),
    "a large timestamp": length_delimited(
        2, length_delimited(1, b"\x08\x01\x10" + b"\xff" * 7 + b"\x7f") + _TEXT
    ),
    "no text": length_delimited(2, _BASE + length_delimited(3, b"\xff")),
    "no text in a value": _custom(length_delimited(3, b"\xff")),
    "a value of no kind": _custom(b""),
    "an element of no kind": _custom(length_delimited(6, length_delimited(1, b""))),
    "NaN": _custom(b"\x11" + b"\0\0\0\0\0\0\xf8\x7f"),
    "two kinds of part": _user(_PART + length_delimited(2, b"")),
    "an unknown kind of part": _user(_PART, length_delimited(UNKNOWN, b"")),
    "parts of an assistant": length_delimited(
        9,
        length_delimited(1, b"\x08\x08")
        + length_delimited(2, length_delimited(2, b"assistant") + length_delimited(8, _PART)),
    ),
}

DIFFERENT: Final = {
    "a large timestamp": "the reference refuses it; left to enforcement, which does too",
    "no text": "the reference replaces what is no UTF-8; we refuse it, as over the other binding",
    "no text in a value": "the same",
    "a value of no kind": "the reference takes it for absent",
    "an element of no kind": "the reference takes it for null",
    "NaN": "the reference passes it on; JSON has no such number",
    "two kinds of part": "the reference refuses; to protobuf the last one counts",
    "an unknown kind of part": "the reference drops it; left to enforcement, which says where",
    "parts of an assistant": "the reference refuses it; left to enforcement, which does too",
}


def _ours(message: bytes) -> dict[str, Any]:
    try:
        event = decode_event(message)
    except DecodeError:
        return {"error": ""}
    return {"unknown": True} if event is None else {"event": event}


@pytest.mark.unmeasured
def test_messages_that_no_encoder_writes() -> None:
    """PB-2 and PB-3: the same verdict, and the same event, but for what is listed."""
    decoded = node("protobuf.mjs", {"decode": [message.hex() for message in ODD.values()]})
    different = set()
    for (name, message), theirs in zip(ODD.items(), decoded["decoded"], strict=True):
        if "error" in theirs:
            theirs["error"] = ""
        if canonical(_ours(message)) != canonical(theirs):
            different.add(name)
    assert different == set(DIFFERENT)


def test_half_a_character() -> None:
    """Both write the replacement character for it."""
    event = {"type": "CUSTOM", "name": "a\ud83e", "value": {"\udd85": ["b\ud83ec", "\ud83e\udd85"]}}
    answer = node("protobuf.mjs", {"encode": [json.loads(json.dumps(event))]})
    assert answer["encoded"] == [{"hex": _encode(event)[4:].hex()}]
