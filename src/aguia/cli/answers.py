"""What answer an agent's question asks for, said to a person, and what they typed as that answer.

Only what is simple in a JSON Schema is looked at: choices, types, members of objects, items of
lists and references to the schema's own definitions. What else a schema asks for, the agent
judges. A schema comes from outside, so nothing in it is taken for granted, not even that it ends.
"""

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from aguia.cli.render import one_line
from aguia.protocol.outcomes import Interrupt

__all__ = ["WrongAnswer", "answer_from", "choices", "decision", "how_to_answer"]

MAX_DEPTH: Final = 4
"""How deep into a schema an answer is checked; what lies deeper is taken as it is."""

MAX_TOLD_DEPTH: Final = 3
"""How deep into a schema what it takes is told in words."""

MAX_OPTIONS: Final = 20
"""Up to how many alternatives each is tried, and of how many members it is told what they take."""

MAX_TOLD: Final = 600
"""How many characters what is expected takes at most."""

WORDS: Final = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == value // 1,
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


class WrongAnswer(ValueError):
    """What was typed is not what the agent asks for; the text says what is, in one line."""


def how_to_answer(interrupt: Interrupt) -> str:
    """What the question takes as its answer, in one line."""
    if decision(interrupt) is not None:
        return "Answer yes or no; /cancel drops the question."
    expected = _told(interrupt.response_schema, interrupt.response_schema)
    if not expected:
        return "Your answer goes to the agent, as JSON if it is JSON; /cancel drops the question."
    return f"Expected: {one_line(expected, MAX_TOLD)}; /cancel drops the question."


def answer_from(interrupt: Interrupt, text: str) -> Any:
    """What `text` means as an answer to the question (INT-2, INT-7).

    To a question for yes or no these words are the answer, in the form that it asks for;
    otherwise it is JSON if that is what fits, and else text.

    Raises:
        WrongAnswer: it is nothing that the question takes.
    """
    decide = decision(interrupt)
    if decide is not None and (decided := WORDS.get(text.strip().casefold())) is not None:
        return decide(decided)
    schema = interrupt.response_schema
    meanings: list[Any] = [text.strip()]
    try:
        meanings.insert(0, msgspec.json.decode(text))
    except (ValueError, RecursionError):
        pass  # no JSON, and so text
    faults = [_fault(value, schema, schema) for value in meanings]
    for value, fault in zip(meanings, faults, strict=True):
        if not fault:
            return value
    if decide is not None:
        raise WrongAnswer("That is neither yes nor no")
    raise WrongAnswer(f"That does not fit: {one_line(faults[0], MAX_TOLD)}")


def choices(interrupt: Interrupt) -> list[Any]:
    """The values that the question lets choose from; none if it takes others."""
    return _choices(_resolved(interrupt.response_schema, interrupt.response_schema))


def decision(interrupt: Interrupt) -> Callable[[bool], Any] | None:
    """What makes a yes or no into the answer that is asked for; None if it asks for more.

    That is a boolean, or an object that needs nothing but one: `approved`, or its only member.
    """
    root = interrupt.response_schema
    schema = _resolved(root, root)
    if schema.get("type") == "boolean":
        return lambda answer: answer
    members = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(members, dict):
        return None
    only = next(iter(members)) if len(members) == 1 else None
    name = "approved" if "approved" in members else only
    needs = schema.get("required", [])
    if name is None or not isinstance(needs, list) or any(other != name for other in needs):
        return None
    if _resolved(members[name], root).get("type") != "boolean":
        return None
    return lambda answer: {name: answer}


# -- reading a schema ------------------------------------------------------------------


def _resolved(schema: Any, root: Any) -> dict[str, Any]:
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


def _choices(schema: dict[str, Any]) -> list[Any]:
    if "const" in schema:
        return [schema["const"]]
    options = schema.get("enum")
    return options if isinstance(options, list) else []


def _alternatives(schema: dict[str, Any]) -> list[Any]:
    """The schemas of which one is enough."""
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, list) and len(options) <= MAX_OPTIONS:
            return options
    return []


def _types(schema: dict[str, Any]) -> list[str]:
    """The types that a value may have; none if any, or one that is not known, will do."""
    types = schema.get("type")
    types = types if isinstance(types, list) else [types]
    return types if all(isinstance(name, str) and name in TYPES for name in types) else []


def _members(schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The members of an object that are named, and the names of those that it needs."""
    members, needs = schema.get("properties"), schema.get("required")
    return (
        members if isinstance(members, dict) else {},
        [name for name in needs if isinstance(name, str)] if isinstance(needs, list) else [],
    )


# -- checking an answer ----------------------------------------------------------------


def _fault(value: Any, schema: Any, root: Any, where: str = "", depth: int = 0) -> str:
    """What does not fit in a value, and what would; empty if it fits."""
    schema = _resolved(schema, root)
    if depth == MAX_DEPTH:
        return ""
    options, types = _choices(schema), _types(schema)
    alternatives = _alternatives(schema)
    if (
        (options and not any(_same(value, option) for option in options))
        or (types and not any(TYPES[name](value) for name in types))
        or (
            alternatives
            and all(_fault(value, other, root, where, depth + 1) for other in alternatives)
        )
    ):
        expected = _told(schema, root, nested=bool(where))
        return f"{where} must be {expected}" if where else f"expected {expected}"
    if isinstance(value, dict):
        members, needs = _members(schema)
        for name in needs:
            if name not in value:
                missing = f"{where}.{name}" if where else name
                kind = _told(members.get(name), root, nested=True)
                return f"{missing} is missing{f', {kind}' if kind else ''}"
        for name, item in value.items():
            if name in members:
                place = f"{where}.{name}" if where else name
                if fault := _fault(item, members[name], root, place, depth + 1):
                    return fault
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            if fault := _fault(item, schema["items"], root, f"{where}[{index}]", depth + 1):
                return fault
    return ""


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, where true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


# -- saying what is expected -----------------------------------------------------------


def _told(schema: Any, root: Any, *, nested: bool = False, depth: int = 0) -> str:
    """What a schema takes, in words; empty if it says nothing that can be told.

    `nested`: it is for a part of JSON, and so text has its quotation marks.
    """
    schema = _resolved(schema, root)
    if options := _choices(schema):
        return " | ".join(_shown(option, nested) for option in options)
    if alternatives := _alternatives(schema):
        if depth == MAX_TOLD_DEPTH:
            return ""
        told = [_told(other, root, nested=nested, depth=depth + 1) for other in alternatives]
        return " | ".join(dict.fromkeys(told)) if all(told) else ""
    types = _types(schema)
    members, needs = _members(schema)
    if types == ["object"] and members and depth < MAX_TOLD_DEPTH:
        parts = []
        for name, member in list(members.items())[:MAX_OPTIONS]:
            kind = _told(member, root, nested=True, depth=depth + 1) or "any JSON"
            optional = "" if name in needs else " (optional)"
            parts.append(f"{_shown(name, True)}: {kind}{optional}")
        return f"{'' if nested else 'a JSON object '}{{{', '.join(parts)}}}"
    if types == ["array"] and depth < MAX_TOLD_DEPTH:
        kind = _told(schema.get("items"), root, nested=True, depth=depth + 1) or "any JSON"
        return f"{'' if nested else 'a JSON list '}[{kind}, …]"
    return " | ".join(types)


def _shown(value: Any, quoted: bool) -> str:
    if isinstance(value, str) and value.strip() and not quoted:
        return value
    return json.dumps(value, ensure_ascii=False)
