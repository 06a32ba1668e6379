"""The simple parts of a JSON Schema: what it takes, in words, and whether a value fits.

Only what is simple is looked at: choices, types, limits, members of objects, items of lists and
references to the schema's own definitions. What else a schema asks for, the agent judges. A
schema comes from outside, so nothing in it is taken for granted, not even that it ends.
"""

import json
from collections.abc import Callable
from typing import Any, Final

__all__ = [
    "alternatives",
    "choices_of",
    "expected",
    "fault",
    "is_number",
    "members",
    "resolved",
    "same",
    "types_of",
]

MAX_DEPTH: Final = 4
"""How deep into a schema an answer is checked; what lies deeper is taken as it is."""

MAX_TOLD_DEPTH: Final = 3
"""How deep into a schema what it takes is told in words."""

MAX_OPTIONS: Final = 20
"""Up to how many alternatives each is tried, and of how many members it is told what they take."""


def is_number(value: Any) -> bool:
    """Whether this is a number of JSON, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: is_number(value) and value == value // 1,
    "number": is_number,
    "string": lambda value: isinstance(value, str),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


# -- reading a schema ------------------------------------------------------------------


def resolved(schema: Any, root: Any) -> dict[str, Any]:
    """A schema, or the definition in `root` that it refers to; empty for what is none."""
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if reference is None:
            return schema
        definitions = root.get("$defs")
        if not isinstance(reference, str) or not isinstance(definitions, dict):
            return {}
        schema = definitions.get(reference.removeprefix("#/$defs/"))
    return {}


def choices_of(schema: dict[str, Any]) -> list[Any]:
    """The values of which it has to be one; none if it may be others."""
    if "const" in schema:
        return [schema["const"]]
    options = schema.get("enum")
    return options if isinstance(options, list) else []


def alternatives(schema: dict[str, Any]) -> list[Any]:
    """The schemas of which one is enough."""
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, list) and len(options) <= MAX_OPTIONS:
            return options
    return []


def types_of(schema: dict[str, Any]) -> list[str]:
    """The types that a value may have; none if any, or one that is not known, will do."""
    types = schema.get("type")
    types = types if isinstance(types, list) else [types]
    return types if all(isinstance(name, str) and name in TYPES for name in types) else []


def members(schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The members of an object that are named, and the names of those that it needs."""
    named, needs = schema.get("properties"), schema.get("required")
    return (
        named if isinstance(named, dict) else {},
        [name for name in needs if isinstance(name, str)] if isinstance(needs, list) else [],
    )


# -- checking an answer ----------------------------------------------------------------


def fault(value: Any, schema: Any, root: Any, where: str = "", depth: int = 0) -> str:
    """What does not fit in a value, and what would; empty if it fits."""
    schema = resolved(schema, root)
    if depth == MAX_DEPTH:
        return ""
    options, types = choices_of(schema), types_of(schema)
    others = alternatives(schema)
    if (
        (options and not any(same(value, option) for option in options))
        or (types and not any(TYPES[name](value) for name in types))
        or (others and all(fault(value, other, root, where, depth + 1) for other in others))
    ):
        wanted = expected(schema, root, nested=bool(where))
        return f"{where} must be {wanted}" if where else f"expected {wanted}"
    if (limits := _limits(schema, value)) and not _within(schema, value):
        return f"{where} must be {limits}" if where else f"expected {limits}"
    if isinstance(value, dict):
        named, needs = members(schema)
        for name in needs:
            if name not in value:
                missing = f"{where}.{name}" if where else name
                kind = expected(named.get(name), root, nested=True)
                return f"{missing} is missing{f', {kind}' if kind else ''}"
        for name, item in value.items():
            if name in named:
                place = f"{where}.{name}" if where else name
                if found := fault(item, named[name], root, place, depth + 1):
                    return found
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            if found := fault(item, schema["items"], root, f"{where}[{index}]", depth + 1):
                return found
    return ""


def _bounds(schema: dict[str, Any], value: Any) -> tuple[Any, Any, Any, Any]:
    """The least and the most that a schema wants of a value, and what it has to be beyond."""
    names: dict[Any, tuple[str, ...]] = {
        str: ("minLength", "maxLength"),
        list: ("minItems", "maxItems"),
        float: ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    }
    kind: Any = float if is_number(value) else type(value)
    found = [schema.get(name) for name in names.get(kind, ())]
    found += [None] * (4 - len(found))
    low, high, above, below = (bound if is_number(bound) else None for bound in found)
    return low, high, above, below


def _within(schema: dict[str, Any], value: Any) -> bool:
    low, high, above, below = _bounds(schema, value)
    amount = value if is_number(value) else len(value)
    return (
        (low is None or amount >= low)
        and (high is None or amount <= high)
        and (above is None or amount > above)
        and (below is None or amount < below)
    )


def _limits(schema: dict[str, Any], value: Any) -> str:
    """How large such a value may be, in words; empty if the schema says nothing of it."""
    low, high, above, below = _bounds(schema, value)
    if low is not None and high is not None:
        words = f"from {low} to {high}"
    else:
        words = " and ".join(
            f"{how} {bound}"
            for how, bound in (
                ("at least", low),
                ("at most", high),
                ("more than", above),
                ("less than", below),
            )
            if bound is not None
        )
    units: dict[Any, str] = {str: " characters long", list: " items long"}
    unit = units.get(type(value), "")
    return f"{words}{unit}" if words else ""


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, where true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


# -- saying what is expected -----------------------------------------------------------


def expected(schema: Any, root: Any, *, nested: bool = False, depth: int = 0) -> str:
    """What a schema takes, in words; empty if it says nothing that can be told.

    `nested`: it is for a part of JSON, and so text has its quotation marks.
    """
    schema = resolved(schema, root)
    if options := choices_of(schema):
        return " | ".join(_shown(option, nested) for option in options)
    if others := alternatives(schema):
        if depth == MAX_TOLD_DEPTH:
            return ""
        told = [expected(other, root, nested=nested, depth=depth + 1) for other in others]
        return " | ".join(dict.fromkeys(told)) if all(told) else ""
    types = types_of(schema)
    named, needs = members(schema)
    if types == ["object"] and named and depth < MAX_TOLD_DEPTH:
        parts = []
        for name, member in list(named.items())[:MAX_OPTIONS]:
            kind = expected(member, root, nested=True, depth=depth + 1) or "any JSON"
            optional = "" if name in needs else " (optional)"
            parts.append(f"{_shown(name, True)}: {kind}{optional}")
        return f"{'' if nested else 'a JSON object '}{{{', '.join(parts)}}}"
    if types == ["array"] and depth < MAX_TOLD_DEPTH:
        kind = expected(schema.get("items"), root, nested=True, depth=depth + 1) or "any JSON"
        return f"{'' if nested else 'a JSON list '}[{kind}, …]"
    words = []
    for name in types:
        sample: Any = {"string": "", "integer": 0, "number": 0.0, "array": []}.get(name)
        limits = _limits(schema, sample)
        words.append(f"{name} {limits}" if limits else name)
    return " | ".join(words)


def _shown(value: Any, quoted: bool) -> str:
    if isinstance(value, str) and value.strip() and not quoted:
        return value
    return json.dumps(value, ensure_ascii=False)
