"""Questions of an agent's as a form: one field after the other, as their schema asks for them.

Sans I/O: a form says which field is next and is told what was typed, whoever asks and types.
What it takes from a schema is what `aguia.cli.answers` understands; what is too deep or too
clever for fields is asked for as JSON. An answer that is JSON for the whole form is taken as
such. A schema comes from outside (INT-7): nothing in it is taken for granted.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from aguia.cli.answers import WORDS, WrongAnswer
from aguia.cli.safe import one_line
from aguia.cli.schemas import (
    alternatives,
    choices_of,
    expected,
    fault,
    is_number,
    members,
    resolved,
    same,
    types_of,
)
from aguia.protocol.common import UNSET

__all__ = ["Field", "Form"]

MAX_DEPTH: Final = 4
"""Objects within objects are asked for by field so deep; what is deeper, as JSON."""

MAX_FIELDS: Final = 50
"""An object with more members is asked for as JSON."""

MAX_CHOICES: Final = 30
"""So many choices are listed."""

SIMPLE: Final = {"string", "integer", "number", "boolean", "null"}


@dataclass(frozen=True, slots=True)
class Field:
    """One thing to be asked.

    Attributes:
        name: what it is called, with dots for what is in an object; empty for the whole answer.
        about: what else there is to say about it, in lines that are safe to write.
        expects: what it takes, in a few words.
        optional: whether it may be left empty.
        default: what leaving it empty means, or `UNSET`.
        problem: why what was typed before did not do; empty the first time.
        decides: whether it takes yes or no and nothing else.
    """

    name: str
    about: tuple[str, ...] = ()
    expects: str = ""
    optional: bool = False
    default: Any = UNSET
    problem: str = ""
    decides: bool = False

    @property
    def label(self) -> str:
        """What stands before the place to type."""
        name = one_line(self.name, 40)
        if self.decides:
            # The name alone, such as "approved", would read as if it were so.
            return f"{name}, yes or no?" if name else "yes or no?"
        return name or "answer"


class Form:
    """The fields of one answer, asked for one at a time.

    `field` is the next one to ask for, None when all are there; then `value` is the answer.
    `said` is the question in words, which the title of its schema need not repeat.
    """

    def __init__(self, schema: Any, said: str = "") -> None:
        self._root = schema
        self._said = said
        self._fields = self._asked(schema, "", (), 0)
        self._whole = True  # whether what is typed may be the whole answer
        self.value: Any = UNSET
        self.field: Field | None = None
        self._advance(None)

    def answer(self, text: str) -> None:
        """Takes what was typed for the field; what does not fit is asked for once more."""
        if self._whole and text.lstrip().startswith("{"):
            try:
                whole = _json(text)
                if not fault(whole, self._root, self._root):
                    self.value, self.field = whole, None
                    return
            except ValueError:
                pass  # it is what the field makes of it
        self._advance(text)

    def _advance(self, text: str | None) -> None:
        try:
            self.field = next(self._fields) if text is None else self._fields.send(text)
        except StopIteration as done:
            self.value, self.field = done.value, None
        self._whole = self._whole and (text is None or bool(self.field and self.field.problem))

    # -- what is asked -----------------------------------------------------------------

    def _asked(
        self, schema: Any, name: str, about: tuple[str, ...], depth: int, *, optional: bool = False
    ) -> Generator[Field, str, Any]:
        """Asks for what a schema takes; returns it, or `UNSET` for what is left out."""
        schema = resolved(schema, self._root)
        about = (*about, *_said_of(schema, "" if depth else self._said))
        default = schema.get("default", UNSET)
        if default is not UNSET and fault(default, schema, self._root):
            default = UNSET
        field = Field(name, about, optional=optional, default=default)
        options = choices_of(schema)
        if "const" in schema and name and not optional:
            return schema["const"]
        if options:
            return (yield from self._choice(field, options))
        either = [resolved(other, self._root) for other in alternatives(schema)]
        if either and depth <= MAX_DEPTH:
            return (yield from self._either(field, schema, either, depth))
        types = types_of(schema)
        named, _ = members(schema)
        if types == ["object"] and named and depth < MAX_DEPTH and len(named) <= MAX_FIELDS:
            return (yield from self._object(field, schema, depth))
        if types == ["array"] and _is_simple(schema.get("items"), self._root):
            return (yield from self._list(field, schema))
        return (yield from self._text(field, schema))

    def _choice(self, field: Field, options: list[Any]) -> Generator[Field, str, Any]:
        # Numbers to choose by would be mistaken for numbers that can be chosen.
        numbered = not any(is_number(option) for option in options)
        shown = [one_line(_shown(option), 80) for option in options]
        lines = [
            f"{index}. {text}" if numbered else text
            for index, text in enumerate(shown[:MAX_CHOICES], 1)
        ]
        if len(options) > MAX_CHOICES:
            lines.append(f"… and {len(options) - MAX_CHOICES} more")
        of = f"1 to {len(options)}, or the words" if numbered else "one of these"
        field = replace(field, about=(*field.about, *lines), expects=of)
        problem = "That is none of the choices"
        while True:
            text = yield field
            if not text.strip():
                if field.default is not UNSET or field.optional:
                    return field.default
                field = replace(field, problem="One of the choices is needed")
                continue
            wanted = text.strip()
            for option, words in zip(options, shown, strict=True):
                if wanted == words or (isinstance(option, str) and wanted == option):
                    return option
            for option, words in zip(options, shown, strict=True):
                if wanted.casefold() == words.casefold():
                    return option
            try:
                value = _json(wanted)
            except ValueError:
                value = UNSET
            for option in options:
                if value is not UNSET and same(value, option):
                    return option
            if numbered and wanted.isdecimal() and 0 < int(wanted[:9]) <= len(options):
                return options[int(wanted) - 1]
            field = replace(field, problem=problem)

    def _either(
        self, field: Field, schema: dict[str, Any], either: list[dict[str, Any]], depth: int
    ) -> Generator[Field, str, Any]:
        others = [other for other in either if types_of(other) != ["null"]]
        if len(others) == 1 and len(either) > 1:
            # That, or nothing.
            value = yield from self._asked(
                {"default": None, **others[0], **_kept(schema)},
                field.name,
                field.about,
                depth + 1,
                optional=True,
            )
            return None if value is UNSET and not field.optional else value
        constant = [choices_of(other) for other in either]
        if all(len(options) == 1 for options in constant):
            return (yield from self._choice(field, [options[0] for options in constant]))
        if all(_is_simple(other, self._root) for other in either) or depth >= MAX_DEPTH:
            return (yield from self._text(field, schema))
        titles = [
            one_line(str(other.get("title") or expected(other, self._root) or "something else"), 80)
            for other in either
        ]
        if len(set(titles)) < len(titles):
            titles = [f"{title} ({index})" for index, title in enumerate(titles, 1)]
        title = yield from self._choice(replace(field, default=UNSET), list(titles))
        if title is UNSET:
            return UNSET
        return (yield from self._asked(either[titles.index(title)], field.name, (), depth + 1))

    def _object(
        self, field: Field, schema: dict[str, Any], depth: int
    ) -> Generator[Field, str, Any]:
        if field.optional and field.name:
            ask = replace(field, expects="fill it in", default=False, optional=False)
            if not (yield from self._yes_or_no(ask)):
                return UNSET
        about = field.about if not (field.optional and field.name) else ()
        named, needs = members(schema)
        # What decides comes first: an approval before the remarks on it.
        first = [name for name in named if name in needs] or [
            name for name in named if name == "approved"
        ]
        answer: dict[str, Any] = {}
        for name in [*first, *(name for name in named if name not in first)]:
            path = f"{field.name}.{name}" if field.name else name
            is_needed = name in needs or (not needs and len(named) == 1)
            value = yield from self._asked(
                named[name], path, about, depth + 1, optional=not is_needed
            )
            about = ()
            if value is not UNSET:
                answer[name] = value
        # What is needed and not described is for the agent to miss, or to be given as JSON.
        return answer

    def _yes_or_no(self, field: Field) -> Generator[Field, str, Any]:
        field = replace(field, decides=True)
        while True:
            text = (yield field).strip().casefold()
            if not text and (field.default is not UNSET or field.optional):
                return field.default
            if text in WORDS:
                return WORDS[text]
            field = replace(field, problem="That is neither yes nor no")

    def _list(self, field: Field, schema: dict[str, Any]) -> Generator[Field, str, Any]:
        items = schema.get("items")
        kind = expected(items, self._root) or "anything"
        field = replace(field, expects=f"{kind}; several with commas between, or a JSON list")
        while True:
            text = (yield field).strip()
            if not text:
                if field.default is not UNSET or field.optional:
                    return field.default
                values: Any = []
            else:
                try:
                    values = _json(text)
                except ValueError:
                    values = text
                if not isinstance(values, list):
                    parts = [part.strip() for part in text.split(",")]
                    values = [self._meant(part, items) for part in parts if part]
            if not (problem := fault(values, schema, self._root)):
                return values
            field = replace(field, problem=_capital(problem))

    def _text(self, field: Field, schema: dict[str, Any]) -> Generator[Field, str, Any]:
        """Asks for a value in one line: text, a number, or JSON."""
        if types_of(schema) == ["boolean"]:
            return (yield from self._yes_or_no(field))
        told = expected(schema, self._root)
        field = replace(field, expects="text" if told == "string" else told or "text or JSON")
        while True:
            text = (yield field).strip()
            if not text:
                if field.default is not UNSET or field.optional:
                    return field.default
                field = replace(field, problem="An answer is needed")
                continue
            value = self._meant(text, schema)
            if not (problem := fault(value, schema, self._root)):
                return value
            field = replace(field, problem=_capital(problem))

    def _meant(self, text: str, schema: Any) -> Any:
        """What was typed, as the schema takes it: JSON where that fits, and else the text."""
        if types_of(resolved(schema, self._root)) == ["boolean"]:
            return WORDS.get(text.casefold(), text)
        try:
            value = _json(text)
        except ValueError:
            return text
        return text if fault(value, schema, self._root) else value


def _json(text: str) -> Any:
    """What the text says as JSON. Raises `ValueError` if it is none."""
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise WrongAnswer("That is nested too deep") from error


def _kept(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: schema[name] for name in ("default",) if name in schema}


def _is_simple(schema: Any, root: Any) -> bool:
    """Whether what a schema takes is one word or one line."""
    schema = resolved(schema, root)
    if options := choices_of(schema):
        return not any(isinstance(option, dict | list) for option in options)
    types = types_of(schema)
    return bool(types) and set(types) <= SIMPLE


def _said_of(schema: dict[str, Any], said: str) -> tuple[str, ...]:
    """The words that a schema has about itself, without those that were said before."""
    about = [None if said else schema.get("title"), schema.get("description")]
    return tuple(
        one_line(words, 300)
        for words in about
        if isinstance(words, str) and words and words not in said
    )


def _shown(value: Any) -> str:
    return (
        value if isinstance(value, str) and value.strip() else msgspec.json.encode(value).decode()
    )


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
