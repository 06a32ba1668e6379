"""Enforcement: nothing unrecognised passes, and no known field with a wrong value (PROC-1 to 6).

The strict decoder has already refused what comes here. This stage finds out why, by walking
the raw value along the shape of its type: material that the protocol does not describe is
removed with a warning, a described field with a value that its schema rejects is fatal.
How much goes with an unrecognised value depends on where it sits: an optional member goes
alone, a required one takes the object around it along, an element of a list goes and leaves
the list (PROC-4).
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from aguia.codec.json import copy_value
from aguia.pipeline.warn import Warn
from aguia.protocol.errors import InvalidInput, MalformedEvent, ProtocolWarning
from aguia.protocol.events import EVENTS, Event
from aguia.protocol.input import RunAgentInput
from aguia.protocol.pointers import escape
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
    shape_of,
    union_of,
)

__all__ = ["enforce_event", "enforce_input", "enforce_list", "enforce_value"]

_DROP: Final[Any] = object()
"""Stands for a value that is unrecognised where it is."""


def enforce_event(raw: dict[str, Any], warn: Warn) -> Event | None:
    """The typed event that `raw` holds once what is unrecognised has been removed.

    Returns None when the event is dropped whole. Raises `MalformedEvent` for a value that the
    schema rejects. Every removal is reported to `warn`, with its path.
    """
    shapes = union_of(Event)
    kind = raw.get("type", _DROP)
    if not isinstance(kind, str):
        said = "is required and missing" if kind is _DROP else f"must be a string, not {_say(kind)}"
        raise MalformedEvent(f"'type' {said}", rule="PROC-3", path="/type")
    shape = shapes.options.get(kind)
    if shape is None:
        warn(
            ProtocolWarning(
                stage="enforcement",
                rule="PROC-1",
                event_type=kind[:80],
                message=f"dropped an event of the unknown type '{kind[:80]}'; "
                "a newer version of aguia may know it",
            )
        )
        return None
    walk = _Walk()
    cleaned = walk.object(raw, shape, "")
    for path, removed in walk.removed:
        warn(
            ProtocolWarning(
                stage="enforcement",
                rule="PROC-2",
                event_type=kind,
                path=path,
                message=f"removed {removed}, which the protocol does not describe",
            )
        )
    if walk.errors:
        path, message = walk.errors[0]
        raise MalformedEvent(message, rule="PROC-3", event_type=kind, path=path)
    if cleaned is _DROP:
        path, removed = walk.cause
        warn(
            ProtocolWarning(
                stage="enforcement",
                rule="PROC-4",
                event_type=kind,
                path=path,
                message=f"dropped the event, which can't be read without {removed}",
            )
        )
        return None
    return _convert(cleaned, kind)


def enforce_input(value: RunAgentInput | Mapping[str, Any], warn: Warn) -> RunAgentInput:
    """The run input that `value` holds once what is unrecognised has been removed (PROC-11, 12).

    Takes the typed form too, whose attributes nobody has checked. Raises `InvalidInput` with a
    path for what the schema rejects, or what is no JSON at all.
    """
    raw = _raw(value)
    if not isinstance(raw, dict):
        raise InvalidInput("a run input is a JSON object", rule="PROC-3", path="")
    request: RunAgentInput = _enforced(raw, RunAgentInput, "", warn)
    return request


def enforce_list(
    values: Iterable[Any], type_: Any, warn: Warn, path: str = "", *, prove: bool = False
) -> list[Any]:
    """Each of `values` as a `type_`, a wire type or a union of them.

    Typed values pass as they are, unless they have to be proved as well: nobody has checked the
    attributes of those that a program has made. What is unrecognised in plain ones is removed,
    with a warning; `InvalidInput` is raised for what the schema rejects, with its path.
    """
    result = []
    for index, value in enumerate(values):
        place = f"{path}/{index}"
        item = value
        if prove or not isinstance(value, type_):
            item = _enforced(_raw(value, place), type_, place, warn)
        if item is not _DROP:
            result.append(item)
    return result


def enforce_value(value: Any, type_: Any, warn: Warn, path: str = "") -> Any:
    """One value as a `type_`, a struct of the wire, judged as `enforce_input` judges the input.

    Takes the typed form too, whose attributes nobody has checked. Raises `InvalidInput` with a
    path for what the schema rejects, or what is no JSON at all. `type_` has no required member
    that can be unrecognised.
    """
    return _enforced(_raw(value, path), type_, path, warn)


def _raw(value: Any, path: str = "") -> Any:
    try:
        return copy_value(value)
    except ValueError as error:
        raise InvalidInput(str(error), rule="PROC-3", path=path) from None


def _enforced(raw: Any, type_: Any, path: str, warn: Warn) -> Any:
    walk = _Walk()
    cleaned = walk.value(raw, shape_of(type_), path)
    removed = walk.removed if cleaned is not _DROP else [walk.cause]
    for place, what in removed:
        warn(
            ProtocolWarning(
                stage="enforcement",
                rule="PROC-2",
                path=place,
                message=f"removed {what}, which the protocol does not describe",
            )
        )
    if walk.errors:
        place, message = walk.errors[0]
        raise InvalidInput(message, rule="PROC-3", path=place)
    return cleaned if cleaned is _DROP else msgspec.convert(cleaned, type_)


def _convert(cleaned: dict[str, Any], kind: str) -> Event:
    try:
        return msgspec.convert(cleaned, EVENTS[kind])
    except msgspec.ValidationError as error:
        raise MalformedEvent(str(error), rule="PROC-3", event_type=kind, path="") from None


class _Walk:
    """One walk over one value: what it removed, what it found malformed, why it dropped."""

    def __init__(self) -> None:
        self.removed: list[tuple[str, str]] = []
        self.errors: list[tuple[str, str]] = []
        self.cause = ("", "")

    def value(self, value: Any, shape: Shape, path: str) -> Any:
        """The value without what is unrecognised in it, or `_DROP`."""
        match shape:
            case StringShape(None):
                if isinstance(value, str):
                    return value
                return self._wrong(path, "a string", value)
            case ObjectShape():
                return self.object(value, shape, path)
            case UnionShape():
                return self._union(value, shape, path)
            case ListShape():
                return self._list(value, shape, path)
            case TextOrListShape(items):
                if isinstance(value, str):
                    return value
                if isinstance(value, list):
                    return self._list(value, items, path)
                return self._wrong(path, "a string or an array", value)
            case IntegerShape(minimum, maximum):
                return self._integer(value, minimum, maximum, path)
            case BooleanShape():
                return value if isinstance(value, bool) else self._wrong(path, "a boolean", value)
            case MapShape():
                return value if isinstance(value, dict) else self._wrong(path, "an object", value)
            case NotNullShape():
                return value if value is not None else self._wrong(path, "a value", value)
            case EnumShape(values):
                if not isinstance(value, str):
                    return self._wrong(path, f"one of {', '.join(values)}", value)
                if value in values:
                    return value
                # Of a closed set, one that nobody has named yet is unrecognised (PROC-5).
                self.cause = (path, f"the value {_quote(value)}")
                return _DROP
            case ConstShape(only):
                return value if value == only else self._wrong(path, f"'{only}'", value)
            case StringShape(str() as pattern):
                if isinstance(value, str) and _compiled(pattern).fullmatch(value):
                    return value
                return self._wrong(path, "a JSON Pointer", value)
            case AnyShape():
                return value
        raise TypeError(f"no walk for {shape}")

    def object(self, value: Any, shape: ObjectShape, path: str) -> Any:
        """Walk the members of an object; see `value`."""
        if not isinstance(value, dict):
            return self._wrong(path, "an object", value)
        marks = len(self.removed), len(self.errors)
        members = shape.members
        result = {}
        for name, item in value.items():
            member = members.get(name)
            place = f"{path}/{escape(name)}"
            if member is None:
                if shape.open:
                    result[name] = item
                else:
                    self.removed.append((place, f"the member {_quote(name)}"))
                continue
            kept = self.value(item, member.shape, place)
            if kept is not _DROP:
                result[name] = kept
            elif member.required:
                # What was noted inside goes with the object that held it.
                del self.removed[marks[0] :]
                del self.errors[marks[1] :]
                return _DROP
            else:
                self.removed.append((place, self.cause[1]))
        for name, member in members.items():
            if member.required and name not in value:
                self.errors.append((f"{path}/{name}", f"'{name}' is required and missing"))
        return result

    def _union(self, value: Any, shape: UnionShape, path: str) -> Any:
        if not isinstance(value, dict):
            return self._wrong(path, "an object", value)
        name = shape.discriminator
        if name not in value:
            self.errors.append((f"{path}/{name}", f"'{name}' is required and missing"))
            return value
        tag = value[name]
        if not isinstance(tag, str):
            return self._wrong(f"{path}/{name}", "a string", tag)
        option = shape.options.get(tag)
        if option is None:
            self.cause = (path, f"a value whose {name} is {_quote(tag)}")
            return _DROP
        return self.object(value, option, path)

    def _list(self, value: Any, shape: ListShape, path: str) -> Any:
        if not isinstance(value, list):
            return self._wrong(path, "an array", value)
        result = []
        for index, item in enumerate(value):
            place = f"{path}/{index}"
            kept = self.value(item, shape.item, place)
            if kept is _DROP:
                self.removed.append((place, self.cause[1]))
            else:
                result.append(kept)
        if len(result) < shape.min_items:
            self.errors.append((path, f"must have {shape.min_items} elements at least"))
        return result

    def _integer(self, value: Any, minimum: int, maximum: int, path: str) -> Any:
        # JSON has one kind of number: 1.0 is a whole one, however it was written.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            return self._wrong(path, "a whole number", value)
        if not minimum <= value <= maximum:
            self.errors.append((path, f"must be between {minimum} and {maximum}"))
        return value

    def _wrong(self, path: str, expected: str, value: Any) -> Any:
        self.errors.append((path, f"must be {expected}, not {_say(value)}"))
        return value


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _quote(text: str) -> str:
    return f"'{text}'" if len(text) <= 40 else f"'{text[:40]}…'"


def _say(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {str(value)[:24]}"
        case str():
            return f"the string {_quote(value)}"
        case list():
            return "an array"
    return "an object"
