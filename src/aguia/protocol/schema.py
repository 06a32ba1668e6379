"""The JSON Schema of the protocol, made from the types of this room (`aguia schema`).

The document has the same definitions as the schema that the specification publishes.
"""

from typing import Any, Final

from aguia.protocol import capabilities, content, events, messages, outcomes, patch
from aguia.protocol import input as run_input
from aguia.protocol.common import Metadata, SubagentRunId
from aguia.protocol.shapes import (
    AnyShape,
    BooleanShape,
    ConstShape,
    EnumShape,
    IntegerShape,
    ListShape,
    MapShape,
    Member,
    NotNullShape,
    ObjectShape,
    Shape,
    StringShape,
    TextOrListShape,
    UnionShape,
    shape_of,
)

__all__ = ["DEFINITIONS", "definitions", "json_schema"]

_MODULES: Final = (content, messages, outcomes, run_input, capabilities, events)

_FRAGMENTS: Final[dict[str, tuple[type, tuple[str, Shape] | None]]] = {
    "BaseEvent": (events.BaseEvent, ("type", EnumShape(tuple(events.EVENTS)))),
    "Attributable": (messages.Attributable, None),
    "BaseMessage": (messages.BaseMessage, ("role", StringShape())),
}
"""What others are composed of: open in themselves, with the member that tells users apart."""

_ALIASES: Final[dict[str, Any]] = {
    "Event": events.Event,
    "Message": messages.Message,
    "ContentPart": content.ContentPart,
    "PartSource": content.PartSource,
    "RunFinishedOutcome": outcomes.RunFinishedOutcome,
    "SubagentFinishedOutcome": outcomes.SubagentFinishedOutcome,
    "TextMessageRole": messages.TextMessageRole,
    "ReasoningEncryptedValueSubtype": events.ReasoningEncryptedValueSubtype,
    "JsonPatch": patch.JsonPatch,
    "JsonPatchOperation": patch.JsonPatchOperation,
    "JsonPointer": patch.JsonPointer,
    "AddOperation": patch.AddOperation,
    "RemoveOperation": patch.RemoveOperation,
    "ReplaceOperation": patch.ReplaceOperation,
    "MoveOperation": patch.MoveOperation,
    "CopyOperation": patch.CopyOperation,
    "TestOperation": patch.TestOperation,
    "Metadata": Metadata,
    "SubagentRunId": SubagentRunId,
    "State": Any,
}


def _types() -> dict[str, Any]:
    found: dict[str, Any] = dict(_ALIASES)
    for module in _MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, type) and hasattr(value, "__struct_fields__"):
                found[name] = value
    found.pop("AttributableEvent")  # the schema composes it of two fragments
    return found


DEFINITIONS: Final[dict[str, Any]] = _types()
"""Every definition that is a type of this package, by the schema's name."""


def definitions() -> dict[str, Shape]:
    """The shape of each definition of the schema, by its name."""
    shapes: dict[str, Shape] = {
        "EventType": EnumShape(tuple(kind.value for kind in events.EventType)),
        "Role": EnumShape(tuple(role.value for role in messages.Role)),
    }
    for name, type_ in DEFINITIONS.items():
        if name not in _FRAGMENTS:
            shapes[name] = shape_of(type_)
    for name, (type_, discriminator) in _FRAGMENTS.items():
        shape = shape_of(type_)
        assert isinstance(shape, ObjectShape)
        members = dict(shape.members)
        if discriminator is not None:
            members = {discriminator[0]: Member(discriminator[1], required=True), **members}
        shapes[name] = ObjectShape(name, members, open=True, doc=shape.doc)
    return shapes


def json_schema() -> dict[str, Any]:
    """The whole schema as a JSON Schema document (draft 2020-12) whose root is `Event`."""
    shapes = definitions()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "AG-UI Protocol 1.0, as aguia reads and writes it",
        "$ref": "#/$defs/Event",
        "$defs": {name: _definition(shapes[name], shapes) for name in sorted(shapes)},
    }


def _definition(shape: Shape, shapes: dict[str, Shape]) -> dict[str, Any]:
    if isinstance(shape, ObjectShape):
        return _object(shape, shapes)
    if isinstance(shape, UnionShape):
        return {"oneOf": [{"$ref": f"#/$defs/{option.name}"} for option in shape.options.values()]}
    return _inline(shape, shapes)


def _object(shape: ObjectShape, shapes: dict[str, Shape]) -> dict[str, Any]:
    properties = {
        name: {**_inline(member.shape, shapes), **member.annotations}
        for name, member in shape.members.items()
    }
    schema: dict[str, Any] = {"type": "object", "description": shape.doc, "properties": properties}
    required = [name for name, member in shape.members.items() if member.required]
    if required:
        schema["required"] = required
    if not shape.open:
        schema["additionalProperties"] = False
    return schema


def _inline(shape: Shape, shapes: dict[str, Shape]) -> dict[str, Any]:
    match shape:
        case AnyShape():
            return {}
        case NotNullShape():
            return {"not": {"type": "null"}}
        case MapShape():
            return {"type": "object", "additionalProperties": True}
        case BooleanShape():
            return {"type": "boolean"}
        case IntegerShape(minimum, maximum):
            return {"type": "integer", "minimum": minimum, "maximum": maximum}
        case StringShape(None):
            return {"type": "string"}
        case StringShape(pattern):
            return {"type": "string", "pattern": pattern}
        case EnumShape(values):
            return {"type": "string", "enum": list(values)}
        case ConstShape(value):
            return {"const": value}
        case ListShape(item, min_items):
            schema: dict[str, Any] = {"type": "array", "items": _inline(item, shapes)}
            if min_items:
                schema["minItems"] = min_items
            return schema
        case TextOrListShape(items):
            return {"oneOf": [{"type": "string"}, _inline(items, shapes)]}
        case ObjectShape(name=name):
            return {"$ref": f"#/$defs/{name}"}
        case UnionShape():
            name = next(key for key, value in shapes.items() if value == shape)
            return {"$ref": f"#/$defs/{name}"}
