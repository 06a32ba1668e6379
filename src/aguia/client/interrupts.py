"""Answers to interrupts: what a run may be resumed with, judged before anything is sent.

A `responseSchema` comes from the agent, so validating against it is made safe first: no reference
leaves the schema, no regular expression is run (a hostile one never ends, and Python's are not
those of JSON Schema), and the time is bounded. Where that leaves nothing to judge, the schema is
what the protocol calls it, opaque (INT-7), and the answer goes to the agent as it is.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from time import thread_time
from types import FrameType
from typing import Any, Final

from aguia.codec.json import encode
from aguia.interop.values import plain_value
from aguia.protocol.common import UNSET
from aguia.protocol.errors import InvalidInput
from aguia.protocol.input import ResumeEntry
from aguia.protocol.outcomes import Interrupt
from aguia.protocol.pointers import pointer_to

__all__ = ["CANCEL", "check_resume", "resume_entries", "waits_for_approval"]


class _Cancel:
    def __repr__(self) -> str:
        return "CANCEL"


CANCEL: Final = _Cancel()
"""In the place of an answer: the interrupt is abandoned."""

_MAX_NODES: Final = 2_000
_MAX_DEPTH: Final = 40
_MAX_NESTING: Final = 80  # of keywords at work, a reference being one
_FRAMES: Final = 500  # of the stack, as many as these depths can need
_MAX_UNIQUE: Final = 300
_SECONDS: Final = 0.5
"""Processor time for all schemas of one resumption; what is not judged by then goes unjudged."""

_QUOTED: Final = 200


def resume_entries(
    resume: Mapping[str, Any] | Iterable[ResumeEntry | dict[str, Any]] | None,
) -> Iterable[ResumeEntry | dict[str, Any]]:
    """The entries that an application's answers stand for.

    Takes a mapping from each interrupt's id to its answer, or to `CANCEL`; or entries, which are
    returned as they are, unjudged. The answer None becomes an entry without a payload: an
    optional member has no null (EVT-4). Raises `TypeError` for what is neither, and for an
    answer that has no JSON form (`ValueError` for one that is no JSON, such as `NaN`).
    """
    if resume is None:
        return []
    if isinstance(resume, str | ResumeEntry) or not isinstance(resume, Iterable):
        raise TypeError("resume is a mapping of interrupt ids to answers, or a list of ResumeEntry")
    if not isinstance(resume, Mapping):
        return resume
    entries: list[dict[str, Any]] = []
    for id_, answer in resume.items():
        if not isinstance(id_, str):
            raise TypeError(
                "an interrupt is answered by its id, `{interrupt.id: answer}`, and not by "
                f"{type(id_).__name__}"
            )
        entry: dict[str, Any] = {"interruptId": id_, "status": "resolved"}
        if answer is CANCEL:
            entry["status"] = "cancelled"
        elif answer is not None:
            entry["payload"] = plain_value(answer)
        entries.append(entry)
    return entries


def check_resume(
    answers: list[ResumeEntry], interrupts: list[Interrupt], *, force: bool = False
) -> None:
    """Raise `InvalidInput` unless these answers may go to the agent that asked.

    Every open interrupt has one answer (INT-2), one that has expired is cancelled (INT-3), and
    the payload of a resolved one fits the `responseSchema` (INT-7). An absent payload is judged
    as null, which is how null is said in an entry. `pattern`, `patternProperties`, `format` and
    the `unevaluated…` keywords are left to the agent; so is a whole schema that is no JSON
    Schema, is huge, points outside itself or takes too long.

    Args:
        answers: the entries of the run input.
        interrupts: those that are open; with none, the thread is taken to come from a store
            that kept no interrupts, and nothing is compared.
        force: send payloads that don't fit. It lifts no other rule.
    """
    by_id = {entry.interrupt_id: index for index, entry in enumerate(answers)}
    if len(by_id) < len(answers):
        raise InvalidInput("an interrupt is answered twice", rule="INT-2", path="/resume")
    to_judge: list[tuple[int, Interrupt]] = []
    for interrupt in interrupts:
        index = by_id.pop(interrupt.id, None)
        if index is None:
            known = {each.id for each in interrupts}
            strange = next((f"; '{id_}' is none of those" for id_ in by_id if id_ not in known), "")
            raise InvalidInput(
                f"the interrupt '{interrupt.id}' is open and has no answer; resolve it, or cancel "
                f"it by CANCEL{strange}",
                rule="INT-2",
                path="/resume",
            )
        if answers[index].status == "resolved":
            if _expired(interrupt):
                raise InvalidInput(
                    f"the interrupt '{interrupt.id}' expired at {interrupt.expires_at}; it can "
                    "only be cancelled",
                    rule="INT-3",
                    path="/resume",
                )
            if interrupt.response_schema is not UNSET:
                to_judge.append((index, interrupt))
    if by_id and interrupts:
        raise InvalidInput(
            f"no interrupt '{next(iter(by_id))}' is open", rule="INT-2", path="/resume"
        )
    if to_judge and not force:
        _check_payloads(answers, to_judge)


def waits_for_approval(call_id: str, interrupts: Iterable[Interrupt]) -> bool:
    """Whether an open interrupt is about this tool call.

    Such a call waits for the answer to the interrupt; it is not the application's to execute.
    """
    return any(interrupt.tool_call_id == call_id for interrupt in interrupts)


def _expired(interrupt: Interrupt) -> bool:
    """Whether `expires_at`, read as a date, is now or earlier; what is no date never expires."""
    if interrupt.expires_at is UNSET:
        return False
    try:
        moment = datetime.fromisoformat(interrupt.expires_at)
    except ValueError:
        return False
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment <= datetime.now(UTC)


def _check_payloads(answers: list[ResumeEntry], to_judge: list[tuple[int, Interrupt]]) -> None:
    import jsonschema  # noqa: F401  # its loading is not what the time below is for

    deadline = thread_time() + _SECONDS
    for index, interrupt in to_judge:
        payload = answers[index].payload
        found = _misfit(None if payload is UNSET else payload, interrupt.response_schema, deadline)
        if found is not None:
            place, said = found
            absent = "; it has no payload, which stands for null" if payload is UNSET else ""
            raise InvalidInput(
                f"the answer to the interrupt '{interrupt.id}' {said}{absent}",
                rule="INT-7",
                path=f"/resume/{index}/payload{place}",
            )


class _TooMuch(Exception):
    """Judging by the schema takes more time, or goes deeper, than it may."""


def _misfit(payload: Any, schema: Any, deadline: float) -> tuple[str, str] | None:
    """Where the payload doesn't fit the schema, as a JSON Pointer, and what was expected there.

    None for one that fits, and for a schema that can't be judged by.
    """
    from jsonschema.exceptions import best_match

    try:
        validator = _validator(schema, deadline)
        if validator is None:
            return None
        error = best_match(validator.iter_errors(payload))
        if error is None:
            return None
        return pointer_to(error.absolute_path), _expected(error)
    except Exception:
        # No part of a schema that nobody vouches for is a reason not to send the answer:
        # references to nowhere, exceeded bounds, and whatever else the library stumbles over.
        return None


def _validator(schema: Any, deadline: float) -> Any:
    """What judges by the schema, or None where it is none to judge by."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    if not isinstance(schema, dict) or thread_time() > deadline or not _stack_has_room():
        return None
    # The library's way from a dialect to its validator; an unknown dialect has none.
    default: Any = None if "$schema" in schema else Draft202012Validator
    dialect: Any = validator_for(schema, default=default)
    if dialect is None:
        return None
    # Nothing may name the schema or parts of it: names could be those of other documents.
    names = {"$schema", "$id", "id"} if "id" in dialect.META_SCHEMA else {"$schema", "$id"}
    root = {
        member: value
        for member, value in schema.items()
        if member not in names or not isinstance(value, str)
    }
    if not _stands_alone(root, names):
        return None
    dialect.check_schema(root, format_checker=None)
    return _bounded(dialect, deadline)(root, registry=Registry())


def _stack_has_room() -> bool:
    """Whether the recursion limit is out of reach; the library's native parts panic at it."""
    frame: FrameType | None = sys._getframe()
    depth = 0
    while frame is not None:
        frame = frame.f_back
        depth += 1
    return depth + _FRAMES < sys.getrecursionlimit()


def _stands_alone(root: dict[str, Any], names: set[str]) -> bool:
    """Whether the schema is small, and refers to nothing but its own parts."""
    nodes, level = 0, [root]
    for _ in range(_MAX_DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                for member, item in value.items():
                    if isinstance(item, str) and (
                        member in names or (member in _REFERENCES and not item.startswith("#"))
                    ):
                        return False
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        nodes += len(inner)
        if nodes > _MAX_NODES:
            return False
        if not inner:
            return True
        level = inner
    return False


_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")

# The last two search through references on their own, outside the bound.
_LEFT_OUT: Final = ("pattern", "patternProperties", "unevaluatedItems", "unevaluatedProperties")


def _bounded(dialect: Any, deadline: float) -> Any:
    """The validator of a dialect, with keywords that can neither hang nor run past the bounds."""
    from jsonschema.validators import extend

    nesting = 0

    def bounded(keyword: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        def judge(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            nonlocal nesting
            if nesting >= _MAX_NESTING or thread_time() > deadline:
                raise _TooMuch
            nesting += 1
            try:
                yield from keyword(validator, value, instance, schema) or ()
            finally:
                nesting -= 1

        return judge

    def nothing(*_: Any) -> None:
        return None

    def other_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        # Which ones are other is for the patterns to say.
        if "patternProperties" in schema:
            return None
        return keywords["additionalProperties"](validator, value, instance, schema)

    def unique(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        # Each is compared with each.
        if isinstance(instance, list) and len(instance) > _MAX_UNIQUE:
            return None
        return keywords["uniqueItems"](validator, value, instance, schema)

    keywords: dict[str, Any] = dict(dialect.VALIDATORS)
    safe = {**keywords, **dict.fromkeys(_LEFT_OUT, nothing)}
    safe |= {"additionalProperties": other_properties, "uniqueItems": unique}
    safe = {name: bounded(keyword) for name, keyword in safe.items()}
    return extend(dialect, safe)  # type: ignore[no-untyped-call]


def _expected(error: Any) -> str:
    """What a failed keyword demands, without the answer in it, which may be a secret."""
    value = error.validator_value
    match error.validator:
        case None:
            return "has a value where none may be"
        case "type":
            types = value if isinstance(value, list) else [value]
            needs = error.schema.get("required") if value == "object" else None
            named = ", ".join(_quote(name) for name in needs) if isinstance(needs, list) else ""
            members = f" with {_short(named)}" if named else ""
            return f"must be of the type {' or '.join(_quote(each) for each in types)}{members}"
        case "required":
            missing = [name for name in value if name not in error.instance]
            return f"lacks {', '.join(_quote(name) for name in missing)}"
        case "enum":
            return f"must be one of {_short(', '.join(_quote(each) for each in value))}"
        case "const":
            return f"must be {_quote(value)}"
        case "additionalProperties" if value is False:
            known = ", ".join(_quote(name) for name in error.schema.get("properties", {}))
            return (
                f"may have no other members than {_short(known)}"
                if known
                else "may have no members"
            )
        case "anyOf" | "oneOf" | "allOf" | "not" | "contains":
            return f"does not fit what '{error.validator}' demands in the responseSchema"
    return f"does not fit '{error.validator}': {_quote(value)} in the responseSchema"


def _quote(value: Any) -> str:
    return _short(f"'{value}'" if isinstance(value, str) else encode(value).decode())


def _short(text: str) -> str:
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"
