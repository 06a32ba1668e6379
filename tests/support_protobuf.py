"""Canonical events for the binary binding, and plain events put on its wire without judging them.

`canonical_events` makes events of every type and with every member that the types of the
protocol have. `python tests/support_protobuf.py` encodes them with the npm reference
implementation and keeps both as `tests/vectors/protobuf.json`.

`put_on_wire` writes any event that the wire can express, valid or not: the counterpart of
what `json.dumps` is for the other binding. It shares no code with the package's encoder but the
generated messages and the form of JSON values.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from aguia.codec import wire_pb2
from aguia.codec.wire_json import encode_struct, encode_value
from aguia.protocol.events import EVENTS, Event
from aguia.protocol.shapes import (
    AnyShape,
    BooleanShape,
    ConstShape,
    EnumShape,
    IntegerShape,
    ListShape,
    MapShape,
    NotNullShape,
    ObjectShape,
    Shape,
    StringShape,
    TextOrListShape,
    UnionShape,
    union_of,
)

__all__ = [
    "UNKNOWN",
    "VECTORS",
    "NotOnTheWire",
    "OnTheWire",
    "canonical_events",
    "length_delimited",
    "put_on_wire",
    "read_vectors",
    "through_the_wire",
    "varint",
]

VECTORS: Final = Path(__file__).resolve().parent / "vectors" / "protobuf.json"

# Canonical events

TEXTS: Final = (
    "text",
    "",
    "água",
    "🦅 and 🧭",
    "\x00",
    "a\u2028b\u2029",
    'quote " and \\',
    "line\r\nline\t",
    "日本語",
    "\ufeff",
    "\U0010ffff\uffff",
    "é\u0301 \u200d",
    "x" * 127,
    "x" * 128,
)

NUMBERS: Final = (
    *(0, -0.0, 1, -1, 127, 128, 2**31, -(2**31) - 1, 2**32, 2**53 - 1, -(2**53) + 1, 2**53),
    *(0.1, -2.5, 1e300, -1e300, 5e-324, 1.7976931348623157e308, 1e21, 123456789.25),
)

JSON: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    *NUMBERS,
    *TEXTS,
    [],
    {},
    [[]],
    [{}],
    {"": ""},
    {"a": {}, "b": [], "c": None, "d": False},
    [None, True, 0, "", [], {}],
    {"constructor": 1, "toString": 2, "hasOwnProperty": 3, "length": 4},
    # JavaScript puts keys that are whole numbers in front, and in ascending order.
    {"1": "a", "2": "b", "10": "c", "z": "d", "a": "e", "01": "f", "-1": "g", "1.5": "h"},
    {"z": 1, "y": {"z": [1, {"b": 2, "a": 3}], "x": None}},
    {"ключ": "🦅", "\x00": "\x00", "a/b": "~", "long" * 50: "x" * 200},
)

NOT_NULL: Final = JSON[1:]
MAPS: Final[tuple[dict[str, Any], ...]] = tuple(value for value in JSON if isinstance(value, dict))

_THOROUGH: Final = frozenset({"STATE_SNAPSHOT", "CUSTOM"})
"""Types in which a place for any JSON value sees all of `JSON`, and elsewhere a few of it."""

EVENT: Final = union_of(Event)

_POINTERS: Final = ("", "/a", "/a~1b/~0/0", "/-", "/ä/🦅", "//")


class _Maker:
    """Makes values of shapes; what there are many of is taken in turn."""

    def __init__(self) -> None:
        self._texts = cycle(TEXTS)
        self._pointers = cycle(_POINTERS)
        self._not_null = cycle(NOT_NULL)
        self._any = cycle(JSON)
        self._maps = cycle(MAPS)
        self.thorough = False

    def values(self, shape: Shape) -> list[Any]:
        """Every kind of value that the shape admits; the last one is the fullest."""
        match shape:
            case AnyShape() | NotNullShape() if self.thorough:
                return list(JSON if isinstance(shape, AnyShape) else NOT_NULL)
            case AnyShape():
                return [next(self._any) for _ in range(3)]
            case NotNullShape():
                return [next(self._not_null) for _ in range(3)]
            case MapShape():
                return list(MAPS) if self.thorough else [next(self._maps) for _ in range(2)]
            case BooleanShape():
                return [False, True]
            case IntegerShape(minimum, maximum):
                return [minimum, maximum, 0, 1_700_000_000_000]
            case StringShape(pattern):
                return [next(self._texts if pattern is None else self._pointers)]
            case EnumShape(values):
                return list(values)
            case ConstShape(value):
                return [value]
            case ListShape(item, min_items):
                items = self.values(item)
                return [items] if min_items else [[], items]
            case TextOrListShape(items):
                return ["", next(self._texts), *self.values(items)]
            case ObjectShape():
                return list(self._objects(shape))
            case UnionShape(options=options):
                return [value for each in options.values() for value in self.values(each)]
        raise TypeError(f"no values of {shape}")

    def _objects(self, shape: ObjectShape) -> Iterator[dict[str, Any]]:
        choices = {name: self.values(member.shape) for name, member in shape.members.items()}
        required = {name for name, member in shape.members.items() if member.required}
        least = {name: choices[name][0] for name in choices if name in required}
        yield least
        for name, values in choices.items():
            for value in values:
                made = {**least, name: value}
                if made != least:
                    yield made
        most = {name: values[-1] for name, values in choices.items()}
        if most != least:
            yield most


def canonical_events() -> list[dict[str, Any]]:
    """Events of every type as plain JSON: each member alone, and all of them together."""
    maker = _Maker()
    events: list[dict[str, Any]] = []
    for kind, shape in union_of(Event).options.items():
        maker.thorough = kind in _THOROUGH
        events += maker.values(shape)
    events += [{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": text} for text in TEXTS]
    return events


def through_the_wire(value: Any, shape: Shape = EVENT) -> Any:
    """What has to come back of a valid event: an empty list can't be told from none.

    That is, where there may be none; and but for the list that a content can be.
    """
    match shape:
        case UnionShape(discriminator, options):
            return through_the_wire(value, options[value[discriminator]])
        case ObjectShape(members=members):
            return {
                name: through_the_wire(item, members[name].shape)
                for name, item in value.items()
                if members[name].required
                or item != []
                or not isinstance(members[name].shape, ListShape)
            }
        case ListShape(item):
            return [through_the_wire(each, item) for each in value]
        case TextOrListShape(items) if isinstance(value, list):
            return through_the_wire(value, items)
    return value


def read_vectors() -> list[dict[str, Any]]:
    """The vectors: `event`, a canonical event, and `hex`, its message on the wire."""
    vectors: list[dict[str, Any]] = json.loads(VECTORS.read_text(encoding="utf-8"))
    return vectors


def write_vectors() -> None:
    """Encode the canonical events with the npm reference implementation and keep them."""
    from support_server import node

    events = canonical_events()
    answer = node("protobuf.mjs", {"encode": events})
    if answer["warnings"] or any("hex" not in each for each in answer["encoded"]):
        raise RuntimeError(f"the reference refuses an event: {answer['warnings'][:3]}")
    lines = [
        json.dumps(
            {"event": event, "hex": encoded["hex"]}, ensure_ascii=True, separators=(",", ":")
        )
        for event, encoded in zip(events, answer["encoded"], strict=True)
    ]
    VECTORS.parent.mkdir(exist_ok=True)
    VECTORS.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


# Any event, put on the wire

UNKNOWN: Final = 99
"""The number of a field, or of an operation, that no version knows."""

_RETIRED: Final = "a retired shape, for which the wire has no form"
_NO_FIELD: Final = "a member that the wire has no field for"
_OPEN: Final = "an open member of a patch operation"
_WRONG: Final = "a value of the wrong JSON type"
_ABSENT: Final = "a required member that is absent"
_EMPTY: Final = "an empty list where there may be none"
_HALF: Final = "half a character"
_INEXACT: Final = "a number that its field can't hold"

_OUTCOMES: Final = ("RUN_FINISHED", "SUBAGENT_FINISHED")
_OF_OUTCOMES: Final = frozenset({"interrupts", "pendingToolCallIds", "interruptIds"})
_OF_THE_WIRE: Final = frozenset({"baseEvent", "contentParts", "activityContent"}) | _OF_OUTCOMES
_REQUIRED_LISTS: Final = frozenset({"messages", "delta", "patch"})


class NotOnTheWire(ValueError):
    """The wire can't express the event; the text says what of it."""


@dataclass
class OnTheWire:
    """A message, and whether the name of something unknown in it was lost on the way."""

    message: bytes
    nameless: bool = False


def length_delimited(number: int, content: bytes) -> bytes:
    """A field of bytes, text or a message, as it is on the wire."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    """A number as the wire has it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def put_on_wire(event: Any) -> OnTheWire:
    """Any event as a message, valid or not. Raises `NotOnTheWire`."""
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise NotOnTheWire(_WRONG)
    plain = dict(event)
    kind = plain.pop("type")
    if kind.startswith("THINKING_"):
        raise NotOnTheWire(_RETIRED)
    if kind not in EVENTS:
        return OnTheWire(length_delimited(UNKNOWN, b""), nameless=True)
    if plain.keys() & _OF_THE_WIRE:
        raise NotOnTheWire(_NO_FIELD)
    envelope = wire_pb2.Event()
    target = getattr(envelope, kind.lower())
    writer = _Writer()
    base = {
        name: plain.pop(name) for name in ("timestamp", "rawEvent", "metadata") if name in plain
    }
    target.base_event.SetInParent()
    target.base_event.type = wire_pb2.EventType.Value(kind)
    writer.members(target.base_event, base, frozenset({"type"}))
    if kind in _OUTCOMES:
        _flatten(plain)
    elif kind == "TOOL_CALL_RESULT":
        if "content" not in plain:
            raise NotOnTheWire(_ABSENT)
        _spread(plain, ("content", "contentParts"))
        if plain.get("contentParts") == []:
            del plain["contentParts"]  # comes back, since a result always has a content
    writer.members(target, plain, frozenset({"baseEvent", "outcome"}))
    return OnTheWire(envelope.SerializeToString(), writer.nameless)


def _flatten(plain: dict[str, Any]) -> None:
    if "outcome" not in plain:
        return
    outcome = plain.pop("outcome")
    if not isinstance(outcome, dict) or not isinstance(outcome.get("type"), str):
        raise NotOnTheWire(_WRONG)
    if outcome["type"] == "":
        raise NotOnTheWire("an outcome without a name")
    rest = {name: value for name, value in outcome.items() if name != "type"}
    if rest.keys() - _OF_OUTCOMES:
        raise NotOnTheWire(_NO_FIELD)
    if outcome["type"] == "interrupt":
        if "interrupts" not in rest:
            raise NotOnTheWire(_ABSENT)
        if rest["interrupts"] == []:
            del rest["interrupts"]  # comes back, since that outcome always has them
    plain.update(rest, outcome=outcome["type"])


def _spread(plain: dict[str, Any], carriers: tuple[str, ...]) -> None:
    """Move a content to the field that carries what it is."""
    content = plain.pop("content")
    for carrier, type_ in zip(carriers, (str, list, dict), strict=False):
        if isinstance(content, type_):
            plain[carrier] = content
            return
    raise NotOnTheWire(_WRONG)


def _repeated(field: Any) -> bool:
    # The runtime tells it in another way since version 6.
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == 3)


class _Writer:
    """Fills messages, and remembers whether something lost its name."""

    def __init__(self) -> None:
        self.nameless = False

    def members(
        self, target: Any, plain: dict[str, Any], absent: frozenset[str] = frozenset()
    ) -> None:
        """Fill a message; `absent` names fields that are for others to fill."""
        fields = {field.json_name: field for field in target.DESCRIPTOR.fields}
        name = target.DESCRIPTOR.name
        if name == "Message":
            plain = self._message(plain)
        for member, value in plain.items():
            if member not in fields:
                raise NotOnTheWire(_OPEN if name == "JsonPatchOperation" else _NO_FIELD)
            self._member(target, fields[member], value)
        for member, field in fields.items():
            required = member in _REQUIRED_LISTS if _repeated(field) else not field.has_presence
            if required and member not in plain and member not in absent:
                raise NotOnTheWire(_ABSENT)

    def _message(self, plain: dict[str, Any]) -> dict[str, Any]:
        if plain.keys() & _OF_THE_WIRE:
            raise NotOnTheWire(_NO_FIELD)
        has_parts = plain.get("role") in ("user", "tool")
        plain = dict(plain)
        if "content" in plain:
            _spread(plain, ("content", "contentParts", "activityContent"))
            if has_parts and plain.get("contentParts") == []:
                del plain["contentParts"]  # comes back, since these roles always have one
        elif has_parts:
            raise NotOnTheWire(_ABSENT)
        return plain

    def _member(self, target: Any, field: Any, value: Any) -> None:
        if _repeated(field):
            if not isinstance(value, list):
                raise NotOnTheWire(_WRONG)
            if not value and field.json_name not in _REQUIRED_LISTS:
                raise NotOnTheWire(_EMPTY)
            items = getattr(target, field.name)
            for item in value:
                if field.message_type is None:
                    items.append(_text(item))
                else:
                    self._inner(items.add(), item)
        elif field.message_type is not None:
            inner = getattr(target, field.name)
            inner.SetInParent()
            self._inner(inner, value)
        elif field.enum_type is not None:
            setattr(target, field.name, self._operation(value))
        elif field.type == field.TYPE_STRING:
            setattr(target, field.name, _text(value))
        elif field.type == field.TYPE_BOOL:
            if not isinstance(value, bool):
                raise NotOnTheWire(_WRONG)
            setattr(target, field.name, value)
        else:
            if isinstance(value, bool) or not isinstance(value, int | float) or value % 1:
                raise NotOnTheWire(_WRONG)
            if not -(2**63) <= value < 2**63:
                raise NotOnTheWire(_INEXACT)
            setattr(target, field.name, int(value))

    def _inner(self, target: Any, value: Any) -> None:
        name = target.DESCRIPTOR.name
        if name == "Value":
            target.MergeFromString(encode_value(_json(value)))
            return
        if not isinstance(value, dict):
            raise NotOnTheWire(_WRONG)
        if name == "Struct":
            target.MergeFromString(encode_struct(_json(value)))
        elif name in ("InputContent", "InputContentSource"):
            self._arm(target, value)
        else:
            self.members(target, value)

    def _arm(self, target: Any, value: dict[str, Any]) -> None:
        kind = value.get("type")
        if not isinstance(kind, str):
            raise NotOnTheWire(_WRONG)
        if kind == "binary":
            raise NotOnTheWire(_RETIRED)
        if kind not in target.DESCRIPTOR.fields_by_name:
            self.nameless = True
            target.MergeFromString(length_delimited(UNKNOWN, b""))
            return
        inner = getattr(target, kind)
        inner.SetInParent()
        self.members(inner, {name: item for name, item in value.items() if name != "type"})

    def _operation(self, value: Any) -> int:
        if not isinstance(value, str):
            raise NotOnTheWire(_WRONG)
        names = wire_pb2.JsonPatchOperationType.keys()
        if value in (name.lower() for name in names):
            return int(wire_pb2.JsonPatchOperationType.Value(value.upper()))
        self.nameless = True
        return UNKNOWN


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise NotOnTheWire(_WRONG)
    _json(value)
    return value


def _json(value: Any) -> Any:
    """The JSON value, if doubles and UTF-8 can hold it."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise NotOnTheWire(_HALF) from None
    _exact(value)
    return value


def _exact(value: Any) -> None:
    match value:
        case bool():
            return
        case int():
            try:
                exact = int(float(value)) == value
            except OverflowError:
                exact = False
            if not exact:
                raise NotOnTheWire(_INEXACT)
        case list():
            for item in value:
                _exact(item)
        case dict():
            for item in value.values():
                _exact(item)


if __name__ == "__main__":
    write_vectors()
