"""JSON text to values: nothing that is no JSON passes, and every error says where."""

import json
import time
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguia import CustomEvent, DecodeError, EventType, TextMessageEndEvent, UserMessage
from aguia.codec.json import (
    MAX_DEPTH,
    STRICT_FAILURES,
    copy_value,
    decode,
    decode_event,
    encode,
    nests_deeper_than,
    parse_object,
)
from aguia.pipeline.enforcement import enforce_event
from aguia.protocol.content import TextPart
from aguia.protocol.messages import Message
from support_events import json_values


def custom(value: bytes) -> bytes:
    """An event with some JSON text as its value."""
    return b'{"type":"CUSTOM","name":"n","value":' + value + b"}"


def stamped(value: bytes) -> bytes:
    """An event with some JSON text where a whole number belongs."""
    return b'{"type":"TEXT_MESSAGE_END","messageId":"m","timestamp":' + value + b"}"


def strict(frame: bytes) -> Any:
    """The strict decode, or None where it refuses."""
    try:
        return decode_event(frame)
    except STRICT_FAILURES:
        return None


def tolerant(frame: bytes) -> Any:
    """The other path, which must not have to remove anything here."""
    warnings: list[Any] = []
    event = enforce_event(parse_object(frame), warnings.append)
    assert not warnings
    return event


NO_VALUES: Final = [
    *(b"NaN", b"nan", b"Infinity", b"-Infinity", b"1e400", b"-1e400", b"2e308"),
    *(b"1" + b"0" * 400 + b".0", b"9" * 5000, b"-" + b"9" * 5000),
    *(b"01", b"-01", b"00", b"1.", b".5", b"+1", b"1e", b"1e+", b"-", b"--1", b"0x1", b"1_0"),
    *(b"True", b"nul", b"undefined", b"[1,]", b'{"a":1,}', b"{'a':1}", b"{a:1}", b"[1 2]", b""),
    *(b'"\t"', b'"\n"', b'"\x00"', b'"\x1f"', b'"\\x"', b'"\\u12"', b'"\\u00g0"', b'"a', b"'a'"),
    *(b'"\xff"', b'"\xc0\x80"', b'"\xe2\x80"', b'"\xed\xa0\x80"', b'"\xed\xb0\x80"'),
    *(b'"\xed\xa0\xbd\xed\xb8\x80"', b'"\xf4\x90\x80\x80"', b'"\x80"'),
    *(b'{"\xff":1}', b'{"\xed\xa0\x80":1}', b'{"\t":1}', b"/* c */ 1", b"1 // c"),
]


@pytest.mark.parametrize("value", NO_VALUES, ids=repr)
def test_what_is_no_json_passes_nowhere(value: bytes) -> None:
    """HTTP-2: not as a value, not inside one, and not where nobody will look at it."""
    for text in (value, b"[1," + value + b"]", b'{"k":' + value + b"}"):
        assert strict(custom(text)) is None
        with pytest.raises(DecodeError):
            parse_object(custom(text))
        unknown = custom(b'1,"unknown":' + text)
        assert strict(unknown) is None
        with pytest.raises(DecodeError):
            parse_object(unknown)


@pytest.mark.parametrize(
    "frame",
    [
        *(b"", b" ", b"null", b"1", b"1.5", b"[]", b'"a"', b"true", b"[{}]", b"{", b"}"),
        *(custom(b"1") + b"x", custom(b"1") * 2, b"\xef\xbb\xbf" + custom(b"1")),
        *(custom(b"1") + b"\x00", b"\xa0" + custom(b"1"), b"\x0b" + custom(b"1"), b"{}{}"),
    ],
    ids=repr,
)
def test_a_frame_is_one_object_and_nothing_else(frame: bytes) -> None:
    """HTTP-2, EVT-1."""
    assert strict(frame) is None
    with pytest.raises(DecodeError) as caught:
        parse_object(frame)
    assert caught.value.rule == "HTTP-2"


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (custom(b"NaN"), "NaN is no JSON number"),
        (custom(b"1e400"), "the number 1e400 is out of range"),
        (custom(b"9" * 5000), "the number 999999999999999999999999… has more than 4300 digits"),
        (custom(b'"\xff"'), "not UTF-8: invalid start byte at byte 37"),
        (b"\xef\xbb\xbf" + custom(b"1"), "begins with a byte order mark"),
        (custom(b"oops"), 'at character 36, near \'TOM","name":"n","value":oops}\''),
        (custom(b"1") + b"tail", "Extra data at character 38, near"),
        (b"[]", "holds an array where one event, a JSON object, belongs"),
        (b"null", "holds null"),
        (b"true", "holds a boolean"),
        (b"17", "holds a number"),
        (b'"x"', "holds a string"),
        (b"", "Expecting value at character 0"),
    ],
)
def test_errors_say_where(frame: bytes, said: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse_object(frame)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_wide_excerpt_is_not_shown() -> None:
    frame = b'{"a":"' + b"x" * 100_000 + b'" oops}'
    with pytest.raises(DecodeError) as caught:
        parse_object(frame)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((b"0", 0), (b"-0", 0), (b"1.0", 1), (b"-0.0", 0), (b"1e3", 1000), (b"1E+3", 1000)),
        *((b"100e-2", 1), (b"-2.50e1", -25), (b"9007199254740991", 2**53 - 1)),
        *((b"9007199254740991.0", 2**53 - 1), (b"-9007199254740991", 1 - 2**53), (b"1e15", 10**15)),
    ],
)
def test_whole_numbers_may_be_written_in_any_way(text: bytes, value: int) -> None:
    """EVT-1: JSON has one kind of number."""
    event = strict(stamped(text)) or tolerant(stamped(text))
    assert event.timestamp == value
    assert type(event.timestamp) is int
    assert tolerant(stamped(text)) == event


@pytest.mark.parametrize(
    "value",
    [b"9" * 30, b"-" + b"9" * 30, b"18446744073709551616", b"9" * 400, b"-9223372036854775809"],
)
def test_huge_integers_are_kept_as_data(value: bytes) -> None:
    assert strict(custom(value)).value == tolerant(custom(value)).value == int(value)
    assert encode(strict(custom(value))) == custom(value)


def test_small_numbers_become_zero_and_large_fractions_are_rounded() -> None:
    for text in (b"1e-400", b"0.1", b"123456789012345678901234567890.5", b"-0.0", b"5e-324"):
        first, second = strict(custom(text)).value, tolerant(custom(text)).value
        assert repr(first) == repr(second) == repr(float(text))


def test_the_last_of_duplicate_members_counts() -> None:
    """Both paths agree, and a second `type` of another kind never passes for the first."""
    assert strict(custom(b'{"a":1,"a":2}')).value == {"a": 2}
    assert tolerant(custom(b'{"a":1,"a":2}')).value == {"a": 2}
    twice = b'{"type":"CUSTOM","name":"x","name":"n","value":1,"value":2}'
    assert strict(twice) == tolerant(twice) == CustomEvent(name="n", value=2)
    for frame in (
        b'{"type":"RAW","type":"CUSTOM","name":"n","value":1,"event":1}',
        b'{"name":"n","value":1,"type":"CUSTOM","event":1,"type":"RAW"}',
        b'{"type":"CUSTOM","name":"n","value":1,"event":1,"type":"RAW"}',
        b'{"type":"CUSTOM","name":"n","value":1,"type":"NOTHING"}',
        b'{"type":"CUSTOM","name":"n","value":1,"type":null}',
    ):
        assert strict(frame) is None
    same = b'{"type":"CUSTOM","name":"n","value":1,"type":"CUSTOM"}'
    assert strict(same) == tolerant(same)


def test_escaped_names_are_the_same_names() -> None:
    frame = b'{"\\u0074ype":"CUS\\u0054OM","n\\u0061me":"n","value":{"\\u006b":1}}'
    assert strict(frame) == tolerant(frame) == CustomEvent(name="n", value={"k": 1})


# Characters beyond the basic plane, and halves of them

HIGH, LOW = "\\ud83e", "\\udd85"

HALVES: Final = {
    "alone": HIGH,
    "low alone": LOW,
    "high and high": HIGH + HIGH,
    "low and low": LOW + LOW,
    "low and high": LOW + HIGH,
    "high and text": HIGH + "abcdefgh",
    "high and escape": HIGH + "\\n",
    "high and another escape": HIGH + "\\u0041",
    "high and near low": HIGH + "\\udbff",
    "high and beyond low": HIGH + "\\ue000",
    "high and raw": HIGH + "🦅",
    "high before a pair": HIGH + HIGH + LOW,
    "low after a pair": HIGH + LOW + LOW,
    "high at the end": "text" + HIGH,
    "high and backslash": HIGH + "\\\\udd85",
    "high and short": HIGH + "\\u",
    "high and no escape": HIGH + "xudd85",
    "high and other letter": HIGH + "\\bdd85",
}


def _is_whole(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


@pytest.mark.parametrize("text", HALVES.values(), ids=HALVES)
@pytest.mark.parametrize("pattern", ['"{}"', '"{} and more text"', '{{"{}":1}}', '["a","{}"]'])
def test_halves_are_never_paired_wrongly(text: str, pattern: str) -> None:
    """The strict decoder refuses halves; the other path keeps them as they came."""
    frame = custom(pattern.format(text).encode())
    assert strict(frame) is None
    try:
        expected = json.loads(frame)["value"]
    except ValueError:
        with pytest.raises(DecodeError):
            parse_object(frame)
    else:
        kept = tolerant(frame).value
        assert kept == expected
        assert not _is_whole(str(kept) if isinstance(kept, str) else "".join(kept))


@given(st.integers(0xD7F0, 0xE010), st.integers(0xD7F0, 0xE010), st.booleans())
def test_two_escapes_are_read_alike_or_refused(first: int, second: int, in_key: bool) -> None:
    text = f'"\\u{first:04x}\\u{second:04X}"'
    frame = custom((f"{{{text}:0}}" if in_key else text).encode())
    event = strict(frame)
    expected = json.loads(frame)["value"]
    assert tolerant(frame).value == expected
    whole = _is_whole("".join(expected))
    assert (event is not None) is whole
    if event is not None:
        assert event.value == expected


@given(st.lists(st.sampled_from(["\\", "u", "d", "8", "3", "e", "\\ud83e", "\\udd85", '"', "é"])))
def test_any_text_is_read_alike_or_refused(pieces: list[str]) -> None:
    frame = custom(b'"' + "".join(pieces).encode() + b'"')
    event = strict(frame)
    try:
        expected = json.loads(frame)["value"]
    except ValueError:
        assert event is None
        with pytest.raises(DecodeError):
            parse_object(frame)
    else:
        assert tolerant(frame).value == expected
        if event is not None:
            assert event.value == expected
            assert _is_whole(event.value)


def test_halves_can_be_written_again() -> None:
    for text in ("\ud83e", "a\udd85b", "\udd85\ud83e"):
        for value in (text, [text], {text: 1}):
            data = encode(CustomEvent(name="é", value=value))
            assert json.loads(data)["value"] == value
            assert tolerant(data) == CustomEvent(name="é", value=value)
    assert json.loads(encode({"plain": "\ud83e"})) == {"plain": "\ud83e"}
    assert encode(CustomEvent(name="n", value="🦅")) == custom('"🦅"'.encode())


# Depth


def _nested(levels: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    return opening * levels + (b"1" if opening.endswith(b":") else b"") + closing * levels


DEEP: Final = {
    "arrays": _nested(100_000),
    "objects": _nested(100_000, b'{"a":', b"}"),
    "both": _nested(50_000, b'[{"a":', b"}]"),
    "unclosed arrays": b"[" * 100_000,
    "unclosed objects": b'{"a":' * 100_000,
    "wrongly closed": b"[" * 100_000 + b"}" * 100_000,
    "closed too often": b"]" * 100_000,
    "upside down": b"]" * 1000 + b"[" * 1000,
    "after a string of brackets": b'["' + b"]" * 1000 + b'",' + _nested(100_000) + b"]",
}


@pytest.mark.parametrize("value", DEEP.values(), ids=DEEP)
def test_deep_nesting_is_an_error(value: bytes) -> None:
    for frame in (value, custom(value), b'{"unknown":' + value + b"}"):
        assert strict(frame) is None or nests_deeper_than(frame, MAX_DEPTH)
        with pytest.raises(DecodeError):
            parse_object(frame)


@pytest.mark.parametrize("limit", [1, 2, 5, 11, 12, 13, 14, 40, 256])
def test_the_limit_is_exact(limit: int) -> None:
    filler = b'["' + b"[{" * 300 + b'", "\\"[[[", "\\\\"],'
    for deep in (limit - 1, limit, limit + 1):
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            frame = b"[" + filler + _nested(deep - 1, opening, closing) + b"]" if deep else b"1"
            if deep == 1:
                frame = b"[" + b'"[",' * 300 + b"1]"
            json.loads(frame)
            depth = max(deep, 2) if deep > 1 else deep
            assert nests_deeper_than(frame, limit) is (depth > limit), (deep, opening)


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


_bracketed: Final = st.text(st.sampled_from('[]{}"\\n,:'), max_size=8)


@pytest.mark.unmeasured
@given(
    st.recursive(
        _bracketed,
        lambda inner: st.one_of(st.lists(inner), st.dictionaries(_bracketed, inner)),
        max_leaves=20,
    ),
    st.integers(0, 8),
)
def test_depth_is_measured_whatever_strings_hold(value: Any, limit: int) -> None:
    assert nests_deeper_than(json.dumps(value).encode(), limit) is (_depth(value) > limit)


@pytest.mark.unmeasured
def test_depth_is_measured_in_linear_time() -> None:
    """Also of text that is made to be slow: brackets alone, at every depth."""
    began = time.process_time()
    mountain = _nested(250)
    assert not nests_deeper_than(b"[" + b",".join([mountain] * 2000) + b"]", MAX_DEPTH)
    assert nests_deeper_than(b"[" * 2_000_000 + b"]" * 2_000_000, MAX_DEPTH)
    assert nests_deeper_than(b"[" * 2_000_000, MAX_DEPTH)
    nests_deeper_than(b'"' * 2_000_000 + b"[]" * 300, MAX_DEPTH)
    nests_deeper_than(b"\\" * 2_000_000 + b"[]" * 300, MAX_DEPTH)
    assert time.process_time() - began < 5


def test_a_lower_limit_can_be_set() -> None:
    assert parse_object(b'{"a":[[1]]}', 3) == {"a": [[1]]}
    with pytest.raises(DecodeError, match="nests deeper than 2 levels") as caught:
        parse_object(b'{"a":[[1]]}', 2)
    assert caught.value.rule is None


# Values that a program made


def test_a_copy_shares_nothing_that_could_change() -> None:
    value: dict[str, Any] = {"a": [{"b": 1}], "t": ()}
    copied = copy_value(value)
    assert copied == {"a": [{"b": 1}], "t": []}
    value["a"][0]["b"] = 2
    value["a"].append(3)
    assert copied == {"a": [{"b": 1}], "t": []}


@given(json_values(10))
def test_json_is_copied_as_it_is(value: Any) -> None:
    assert copy_value(value) == value
    assert repr(copy_value(value)) == repr(value)


class _Colour(IntEnum):
    RED = 1


class _Text(str):
    __slots__ = ()


class _Number(float):
    __slots__ = ()


def test_subclasses_become_what_they_are_made_of() -> None:
    made = copy_value({_Text("k"): [_Text("v"), EventType.RAW, _Colour.RED, _Number(1.5), True]})
    assert made == {"k": ["v", "RAW", 1, 1.5, True]}
    assert [type(each) for each in made["k"]] == [str, str, int, float, bool]
    assert [type(each) for each in made] == [str]


def test_wire_values_become_plain() -> None:
    message = UserMessage(id="m", content=[TextPart(text="hi")])
    plain = {"role": "user", "id": "m", "content": [{"type": "text", "text": "hi"}]}
    assert copy_value(message) == plain
    assert copy_value({"messages": [message]}) == {"messages": [plain]}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "nan at '' is no JSON number"),
        ({"a": [1, float("-inf")]}, "-inf at '/a/1'"),
        ({"a": {1: 2}}, "the key 1 at '/a' is no string"),
        ({"a": b"x"}, "bytes at '/a' is no JSON value"),
        ({"a": {1, 2}}, "set at '/a' is no JSON value"),
        pytest.param(object(), "object at '' is no JSON value", id="object"),
        (CustomEvent(name="n", value=b"x"), "bytes at '/value'"),
        (CustomEvent(name="n", value=datetime(2026, 1, 1, tzinfo=UTC)), "datetime at '/value'"),
        (CustomEvent(name="n", value=UUID(int=1)), "UUID at '/value'"),
        (CustomEvent(name="n", value=Decimal(1)), "Decimal at '/value'"),
        (CustomEvent(name="n", value={1: 2}), "the key 1 at '/value'"),
        pytest.param(CustomEvent(name="n", value=object()), "object", id="object in an event"),
        (CustomEvent(name="n", value=float("inf")), "inf at '/value'"),
    ],
    ids=repr,
)
def test_what_is_no_json_is_not_copied(value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        copy_value(value)


def test_deep_and_circular_values_are_refused() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    around: dict[str, Any] = {}
    around["self"] = around
    values = [deep, around, {"a": deep}, CustomEvent(name="n", value=deep)]
    for value in [*values, CustomEvent(name="n", value=around)]:
        with pytest.raises(ValueError, match="nests too deeply") as caught:
            copy_value(value)
        assert len(str(caught.value)) < 120
    with pytest.raises(ValueError, match="nests too deeply"):
        copy_value(around, 1_000_000)
    assert copy_value([[1]], 2) == [[1]]
    with pytest.raises(ValueError, match="nests too deeply at '/0'"):
        copy_value([[1]], 1)


# Any type


def test_a_single_type_of_a_union_demands_its_discriminator() -> None:
    for raw in (b'{"messageId":"m"}', b'{"type":"RAW","messageId":"m"}', b'{"type":1}'):
        with pytest.raises(STRICT_FAILURES):
            decode(raw, TextMessageEndEvent)
    with pytest.raises(STRICT_FAILURES):
        decode(b'{"id":"m","content":"x"}', UserMessage)
    assert decode('{"role":"user","id":"m","content":"x"}', UserMessage).id == "m"
    any_message: Any = Message
    found = decode(b'{"role":"user","id":"m","content":"x"}', any_message)
    assert found == UserMessage(id="m", content="x")


@pytest.mark.unmeasured
@settings(max_examples=300)
@given(st.binary(max_size=40))
def test_random_bytes_are_refused_or_read(data: bytes) -> None:
    for frame in (data, custom(data), custom(b'"' + data + b'"')):
        try:
            decode_event(frame)
        except STRICT_FAILURES:
            pass
        said = ""
        try:
            parse_object(frame)
        except DecodeError as error:
            said = str(error)
        assert said.isprintable()


def test_encoding_is_compact_utf8() -> None:
    assert encode({"a": [1, "é", None]}) == '{"a":[1,"é",null]}'.encode()
    assert encode(CustomEvent(name="n", value=1)) == custom(b"1")
    assert msgspec.json.decode(encode("\u2028")) == "\u2028"


def test_a_limit_beyond_what_python_can_do_is_an_error_too() -> None:
    with pytest.raises(DecodeError, match="nests too deeply"):
        parse_object(b'{"a":' + _nested(100_000) + b"}", 1_000_000)
