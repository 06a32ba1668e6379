"""JSON Schema from Python types, and values of those types from plain JSON.

Understands what msgspec does (built-in types, dataclasses, typed dictionaries, enums, literals,
structs). A type in which pydantic occurs, models or `Field` annotations, is left to pydantic as a
whole, for its schema as for its validation; pydantic is imported for such a type only.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from aguia.protocol.pointers import pointer_to

__all__ = ["Mismatch", "convert", "converter", "schema_of", "shorten"]

_MAX_PROBLEMS: Final = 10
_MAX_TEXT: Final = 200
_PLACE: Final = re.compile(r"(.*) - at `(?:(key)` in `)?\$(.*)`", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]|(\[\.\.\.\])")


class Mismatch(ValueError):
    """JSON that is no value of a type.

    Attributes:
        problems: what is wrong, as pairs of a JSON Pointer and what was expected there; ten at
            most.
    """

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        self.problems: list[tuple[str, str]] = [
            (shorten(place, _MAX_TEXT), shorten(message, _MAX_TEXT))
            for place, message in problems[:_MAX_PROBLEMS]
        ]
        super().__init__(
            "; ".join(f"at '{place}': {text}" if place else text for place, text in self.problems)
        )


def schema_of(type_: Any) -> dict[str, Any]:
    """The JSON Schema of a Python type. Raises `TypeError` for one that has none."""
    if _is_for_pydantic(type_):
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            schema: dict[str, Any] = TypeAdapter(type_).json_schema()
        except PydanticUserError as error:
            raise TypeError(str(error.message).partition("\n")[0]) from None
        return schema
    try:
        return msgspec.json.schema(type_)
    except TypeError as error:
        # Before its last line it tells callers of msgspec's what they could pass besides.
        said = str(error).splitlines()[-1]
        raise TypeError(f"{said}; a dataclass or a TypedDict is, and Any for any JSON") from None


def convert(value: Any, type_: Any) -> Any:
    """Plain JSON as a value of the type, judged strictly: a "1" is no number.

    Raises `ValueError`, saying where and what was expected, for JSON that is no such value;
    `TypeError` for a type that can't be decoded.
    """
    return converter(type_)(value)


def converter(type_: Any) -> Callable[[Any], Any]:
    """What `convert` does for one type, prepared to be done often.

    Raises `TypeError` for a type that can't be decoded. What is returned raises `Mismatch`, and
    whatever a model's own validation raises.
    """
    convert = _by_pydantic(type_) if _is_for_pydantic(type_) else _by_msgspec(type_)

    def checked(value: Any) -> Any:
        try:
            return convert(value)
        except UnicodeEncodeError:
            problem = "expected text, got half of a character (a surrogate without its pair)"
        raise Mismatch([("", problem)])

    return checked


def shorten(text: str, limit: int) -> str:
    """The text, cut to a number of characters with an ellipsis where it is longer."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


# By msgspec


def _by_msgspec(type_: Any) -> Callable[[Any], Any]:
    msgspec.json.Decoder(type_)  # refuses what msgspec.convert would refuse with the first value

    def convert(value: Any) -> Any:
        try:
            return msgspec.convert(value, type_, str_keys=True)
        except msgspec.ValidationError as error:
            message = str(error)
        raise Mismatch([_located(message, type_)])

    return convert


def _located(message: str, type_: Any) -> tuple[str, str]:
    """The place, as a JSON Pointer, and the rest of a message of msgspec's."""
    steps: list[str | int] = []
    found = _PLACE.fullmatch(message)
    if found is not None:
        message = found[1]
        within = "one of its keys" if found[2] else ""
        for name, index, member in _STEP.findall(found[3]):
            if member:
                # Which one is not said, and neither is what is below it a place without it.
                within = "one of its members"
                break
            steps.append(int(index) if index else name)
        if within:
            message = f"{message} (in {within})"
    if message.startswith("Invalid enum value"):
        # What was given instead is not repeated.
        choices = ", ".join(json.dumps(each) for each in _choices(type_, steps))
        message = f"expected one of {choices or 'the values that are allowed here'}"
    return pointer_to(steps), message[:1].lower() + message[1:]


def _choices(type_: Any, steps: list[str | int]) -> list[Any]:
    """The values that a type's schema lists for a place, as far as that can be told."""
    try:
        schema = schema_of(type_)
    except TypeError:  # a type may have values and no schema
        return []
    names = schema.get("$defs", {})
    for step in [*steps, None]:
        branches = list(_branches(schema, names))
        if step is None:
            return [value for branch in branches for value in branch.get("enum", ())]
        member = "items" if isinstance(step, int) else "properties"
        found = [branch[member] for branch in branches if isinstance(branch.get(member), dict)]
        if isinstance(step, str):
            found = [properties[step] for properties in found if step in properties]
        if len(found) != 1:
            break
        schema = found[0]
    return []


def _branches(schema: dict[str, Any], names: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in schema:
        schema = names.get(schema["$ref"].rpartition("/")[2], {})
    if "anyOf" not in schema:
        yield schema
    for branch in schema.get("anyOf", ()):
        yield from _branches(branch, names)


# By pydantic


def _by_pydantic(type_: Any) -> Callable[[Any], Any]:
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticUserError

    try:
        validate = TypeAdapter(type_).validate_json
    except PydanticUserError as error:
        raise TypeError(str(error.message).partition("\n")[0]) from None

    def convert(value: Any) -> Any:
        try:
            # As JSON, since strictly judged a date in a Python value is no string.
            return validate(msgspec.json.encode(value), strict=True)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
        raise Mismatch(
            [
                (_pointer(each["loc"], value, each["type"] == "missing"), each["msg"])
                for each in found[:_MAX_PROBLEMS]
            ]
        )

    return convert


def _pointer(location: tuple[str | int, ...], value: Any, missing: bool) -> str:
    """The JSON Pointer in a location of pydantic's, which also names branches of unions."""
    steps: list[str | int] = []
    for index, step in enumerate(location):
        try:
            value = value[step]
        except (TypeError, LookupError):
            if not (missing and index == len(location) - 1):
                continue
        steps.append(step)
    return pointer_to(steps)


# Which of the two


def _is_for_pydantic(type_: Any) -> bool:
    families = set(_families(type_, set()))
    if len(families) > 1:
        raise TypeError(
            "it mixes types of msgspec (Struct, Meta) with types of pydantic (models, Field), and "
            "neither understands the other's; use one of them"
        )
    return families == {"pydantic"}


def _families(type_: Any, seen: set[Any]) -> Iterator[str]:
    """Whose own types and annotations occur in a type: "pydantic", "msgspec", or neither."""
    origin = get_origin(type_)
    for note in type_.__metadata__ if origin is Annotated else ():
        if isinstance(note, msgspec.Meta):
            yield "msgspec"
        elif type(note).__module__.partition(".")[0] in ("pydantic", "annotated_types"):
            yield "pydantic"
    if origin is Literal:
        return
    for part in get_args(type_)[: 1 if origin is Annotated else None]:
        yield from _families(part, seen)
    kind = origin or type_
    is_named = hasattr(kind, "__value__") or hasattr(kind, "__supertype__")
    if not (isinstance(kind, type) or is_named) or kind in seen:
        return
    seen.add(kind)
    if is_named:  # an alias or a new type stands for another
        yield from _families(getattr(kind, "__value__", None), seen)
        yield from _families(getattr(kind, "__supertype__", None), seen)
        return
    if hasattr(kind, "__get_pydantic_core_schema__") or hasattr(kind, "__pydantic_core_schema__"):
        yield "pydantic"
        return
    is_struct = issubclass(kind, msgspec.Struct)
    if is_struct:
        yield "msgspec"
    if is_struct or dataclasses.is_dataclass(kind) or is_typeddict(kind) or _is_named_tuple(kind):
        try:
            members = get_type_hints(kind, include_extras=True)
        except Exception:  # names that nothing defines: whoever makes the schema says so
            return
        for member in members.values():
            yield from _families(member, seen)


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")
