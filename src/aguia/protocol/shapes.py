"""The structure of the wire values as data, read off the types of this room.

The strict decoder needs none of it. Two others do: enforcement, which walks a value that the
strict decoder refused (`aguia.pipeline.enforcement`), and the JSON Schema that
`aguia schema` prints (`aguia.protocol.schema`). Both follow the types, so they can't disagree.
"""

from functools import cache
from typing import Any, TypeAlias, get_args

import msgspec
import msgspec.inspect as inspect

from aguia.protocol import patch

__all__ = [
    "AnyShape",
    "BooleanShape",
    "ConstShape",
    "EnumShape",
    "IntegerShape",
    "ListShape",
    "MapShape",
    "Member",
    "NotNullShape",
    "ObjectShape",
    "Shape",
    "StringShape",
    "TextOrListShape",
    "UnionShape",
    "shape_of",
    "union_of",
]


class AnyShape(msgspec.Struct, frozen=True):
    """Any JSON value."""


class NotNullShape(msgspec.Struct, frozen=True):
    """Any JSON value but `null`."""


class MapShape(msgspec.Struct, frozen=True):
    """An object that is open by key; its members are data."""


class BooleanShape(msgspec.Struct, frozen=True):
    """`true` or `false`."""


class IntegerShape(msgspec.Struct, frozen=True):
    """A whole number within bounds."""

    minimum: int
    maximum: int


class StringShape(msgspec.Struct, frozen=True):
    """A string, perhaps of a pattern."""

    pattern: str | None = None


class EnumShape(msgspec.Struct, frozen=True):
    """One of several strings; any other string is unrecognised, not malformed (PROC-5)."""

    values: tuple[str, ...]


class ConstShape(msgspec.Struct, frozen=True):
    """One fixed string that discriminates nothing; any other value is malformed (PROC-5)."""

    value: str


class ListShape(msgspec.Struct, frozen=True):
    """A list of one kind of thing."""

    item: "Shape"
    min_items: int = 0


class TextOrListShape(msgspec.Struct, frozen=True):
    """A string, or a list."""

    items: ListShape


class Member(msgspec.Struct, frozen=True):
    """One member of an object, and what annotates it without constraining it."""

    shape: "Shape"
    required: bool
    annotations: dict[str, Any] = msgspec.field(default_factory=dict)


class ObjectShape(msgspec.Struct, frozen=True):
    """An object with named members, closed unless `open`."""

    name: str
    members: dict[str, Member]
    open: bool = False
    discriminator: tuple[str, str] | None = None
    doc: str = ""


class UnionShape(msgspec.Struct, frozen=True):
    """Several objects, told apart by the string under one member."""

    discriminator: str
    options: dict[str, ObjectShape]


Shape: TypeAlias = (
    AnyShape
    | NotNullShape
    | MapShape
    | BooleanShape
    | IntegerShape
    | StringShape
    | EnumShape
    | ConstShape
    | ListShape
    | TextOrListShape
    | ObjectShape
    | UnionShape
)

_JSON_VALUE_TYPES = {
    inspect.StrType,
    inspect.IntType,
    inspect.FloatType,
    inspect.BoolType,
    inspect.ListType,
    inspect.DictType,
}


@cache
def shape_of(type_: Any) -> Shape:
    """The shape of a wire type: a struct, a typed dictionary or an alias from this room."""
    return _read(inspect.type_info(type_))


def union_of(alias: Any) -> UnionShape:
    """The shape of a union alias such as `Event`, `Message` or `ContentPart`."""
    shape = shape_of(alias)
    if not isinstance(shape, UnionShape):
        raise TypeError(f"{alias} is no union of tagged objects")
    return shape


def _read(info: inspect.Type) -> Shape:
    match info:
        case inspect.Metadata(extra={"definition": "JsonPatchOperation"}):
            return _operations()
        case inspect.Metadata(type=inner):
            return _read(inner)
        case inspect.AnyType():
            return AnyShape()
        case inspect.DictType():
            return MapShape()
        case inspect.BoolType():
            return BooleanShape()
        case inspect.IntType(ge=int() as minimum, le=int() as maximum):
            return IntegerShape(minimum, maximum)
        case inspect.StrType(pattern=pattern):
            return StringShape(pattern)
        case inspect.LiteralType(values=(str() as only,)):
            return ConstShape(only)
        case inspect.LiteralType(values=values):
            return EnumShape(tuple(str(value) for value in values))
        case inspect.ListType(item_type=item, min_length=min_length):
            return ListShape(_read(item), min_length or 0)
        case inspect.StructType() | inspect.TypedDictType():
            return _object(info)
        case inspect.UnionType(types=types):
            return _union(types)
    raise TypeError(f"no shape for {info}")


def _object(info: inspect.StructType | inspect.TypedDictType) -> ObjectShape:
    members: dict[str, Member] = {}
    discriminator: tuple[str, str] | None = None
    if isinstance(info, inspect.StructType) and info.tag_field is not None:
        discriminator = (info.tag_field, str(info.tag))
        members[info.tag_field] = Member(ConstShape(str(info.tag)), required=True)
    for item in info.fields:
        annotations: dict[str, Any] = {}
        if isinstance(item.type, inspect.Metadata):
            annotations = item.type.extra_json_schema or {}
        members[item.encode_name] = Member(_read(item.type), item.required, annotations)
    return ObjectShape(
        name=info.cls.__name__,
        members=members,
        open=isinstance(info, inspect.TypedDictType),
        discriminator=discriminator,
        doc=(info.cls.__doc__ or "").strip().split("\n")[0],
    )


def _union(types: tuple[inspect.Type, ...]) -> Shape:
    if {type(info) for info in types} == _JSON_VALUE_TYPES:
        return NotNullShape()
    shapes = [_read(info) for info in types]
    match shapes:
        case [StringShape(pattern=None), ListShape() as items]:
            return TextOrListShape(items)
    options: dict[str, ObjectShape] = {}
    member = ""
    for shape in shapes:
        if not isinstance(shape, ObjectShape) or shape.discriminator is None:
            raise TypeError(f"no shape for a union with {shape}")
        member, tag = shape.discriminator
        options[tag] = shape
    return UnionShape(member, options)


def _operations() -> UnionShape:
    operations: dict[str, ObjectShape] = {}
    for operation in get_args(patch.AnyOperation):
        shape = shape_of(operation)
        assert isinstance(shape, ObjectShape)
        op = shape.members["op"].shape
        assert isinstance(op, ConstShape)
        operations[op.value] = shape
    return UnionShape("op", operations)
