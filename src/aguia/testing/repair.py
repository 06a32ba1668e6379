"""Mending a malformed event, so that a check can go on behind it.

What the schema rejects is left out where it is optional, and replaced by the plainest value that
the schema accepts where it is required. Nobody is given the result as an event of the stream: it
only keeps account of what is open.
"""

from typing import Any

from aguia.protocol.events import Event
from aguia.protocol.pointers import steps_of
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

__all__ = ["mend"]


def mend(raw: dict[str, Any], path: str) -> str | None:
    """Change `raw` so that what is at `path`, a JSON Pointer, is no longer malformed.

    Returns the member of the event that got a value of ours because it is required, "" when none
    did, and None when nothing could be done.
    """
    kind = raw.get("type")
    if not isinstance(kind, str) or not path.startswith("/"):
        return None
    shape: Shape | None = union_of(Event).options.get(kind)
    steps = steps_of(path)
    value: Any = raw
    for step in steps[:-1]:
        shape = _inside(shape, value, step)
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    last = steps[-1]
    inner = _inside(shape, value, last)
    if isinstance(value, list):
        if inner is None or not last.isdigit() or int(last) >= len(value):
            return None
        value[int(last)] = _plainest(inner)
        return ""
    if not isinstance(value, dict):
        return None
    if isinstance(shape, UnionShape) and last == shape.discriminator:
        # Nobody can say what the object was meant to be.
        value.clear()
        value.update(_plainest(shape))
        return ""
    held = _object(shape, value)
    member = held.members.get(last) if held is not None else None
    if member is None:
        return None
    if not member.required:
        if last not in value:
            return None
        del value[last]
        return ""
    value[last] = _plainest(member.shape)
    return last if value is raw else ""


def _object(shape: Shape | None, value: dict[str, Any]) -> ObjectShape | None:
    match shape:
        case ObjectShape():
            return shape
        case UnionShape(discriminator, options):
            tag = value.get(discriminator)
            return options.get(tag) if isinstance(tag, str) else None
    return None


def _inside(shape: Shape | None, value: Any, step: str) -> Shape | None:
    """The shape of what is one step inside."""
    match shape:
        case ListShape(item):
            return item
        case TextOrListShape(items):
            return items.item
        case ObjectShape() | UnionShape() if isinstance(value, dict):
            held = _object(shape, value)
            member = held.members.get(step) if held is not None else None
            return member.shape if member is not None else None
    return None


def _plainest(shape: Shape) -> Any:
    """The plainest value of a shape."""
    match shape:
        case StringShape() | NotNullShape() | TextOrListShape():
            return ""
        case IntegerShape(minimum, _):
            return max(minimum, 0)
        case BooleanShape():
            return False
        case EnumShape(values):
            return values[0]
        case ConstShape(value):
            return value
        case ListShape(item, min_items):
            return [_plainest(item) for _ in range(min_items)]
        case MapShape():
            return {}
        case ObjectShape(_, members):
            return {
                name: _plainest(member.shape) for name, member in members.items() if member.required
            }
        case UnionShape(_, options):
            return _plainest(next(iter(options.values())))
        case AnyShape():
            return None
    raise TypeError(f"no value of {shape}")
