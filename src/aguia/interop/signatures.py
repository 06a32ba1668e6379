"""A function as a tool sees it: what it takes, as JSON Schema, and its arguments out of JSON.

Nothing is called here and nothing is sent. What comes in is text that a model wrote (SEC-1):
it is read once, judged strictly against the parameters' types, and what is wrong with it is
said with its place, briefly, without repeating what was given.
"""

import functools
import inspect
import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, Never, get_type_hints

from aguia.codec.json import MAX_DEPTH, copy_value, nests_deeper_than
from aguia.interop.docstrings import parse_docstring
from aguia.interop.schemas import Mismatch, converter, schema_of, shorten
from aguia.interop.values import plain_value
from aguia.protocol.common import MAX_SAFE_INTEGER
from aguia.protocol.pointers import pointer_to

__all__ = ["ArgumentError", "Arguments", "Signature"]

_MAX_NAMED: Final = 10
_MAX_NAME: Final = 60
_MAX_MESSAGE: Final = 2000


class ArgumentError(ValueError):
    """The text of a call's arguments, which is no JSON or doesn't fit the parameters (SEC-1).

    Its message says where (JSON Pointers) and what was expected, for the model to read.
    """


class Arguments(NamedTuple):
    """The arguments of one call.

    Attributes:
        plain: as plain JSON; nobody else holds this copy.
        values: the same as values of the parameters' types, to be passed by name.
    """

    plain: dict[str, Any]
    values: dict[str, Any]


class _Parameter(NamedTuple):
    convert: Callable[[Any], Any]
    schema: dict[str, Any]
    required: bool


class Signature:
    """What can be told of a function by its signature and its docstring.

    A parameter's description comes from `Annotated` (`msgspec.Meta`, `pydantic.Field`), else
    from the docstring. A default goes into the schema where it has a JSON form that the type
    takes: whatever a signature shows, the agent is told. Arguments that `functools.partial` has
    bound are not shown, and an agent can't replace them.

    Args:
        function: a function, a bound method, a partial or any other callable; its arguments are
            passed by name. A parameter without annotation takes any JSON.
        name: in place of the function's own.
        description: in place of what the docstring says.

    Raises `TypeError` for a function that can't be called with a JSON object's members, or
    has a parameter whose type has no JSON Schema, and says which and what to do.

    Attributes:
        name: what the function is called.
        description: the docstring without its section on parameters; "" where there is none.
        schema: the JSON Schema of the arguments' object, which stands on its own. It is closed
            (`additionalProperties: false`) unless the function takes `**kwargs`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"a tool is made of a function, not of {type(function).__name__}")
        core, self._bound = _unwrap(function)
        self.name: str = _name_of(core) if name is None else name
        if not isinstance(self.name, str) or not self.name:
            raise TypeError("a tool's name is a string that is not empty")
        described, said = parse_docstring(_docstring(core))
        self.description: str = described if description is None else description
        self._parameters: dict[str, _Parameter] = {}
        self._others: _Parameter | None = None
        self._read(function, core, said)
        self.schema: dict[str, Any] = self._schema()

    def decode(self, text: str) -> Arguments:
        """The arguments in the text of a call: a JSON object, or nothing, which means `{}`.

        Strict: no string is taken for a number, no unknown argument is let through. A whole
        number may be written as `1.0`, and of two members of one name the last one counts, as
        JSON readers have it. Raises `ArgumentError`, and whatever a parameter's own validation
        raises that is no `ValueError`.
        """
        given = _parse(text)
        problems: list[tuple[str, str]] = []
        values: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            if name not in given:
                if parameter.required:
                    problems.append(("", f"the argument '{name}' is missing"))
                continue
            self._convert(name, given[name], parameter, values, problems)
        for name in given:
            if name in self._parameters:
                continue
            if self._others is None or name in self._bound:
                problems.append((pointer_to([_brief(name)]), self._no_such_argument()))
            else:
                self._convert(name, given[name], self._others, values, problems)
        if problems:
            shown = [f"at '{place}': {said}" for place, said in sorted(problems)[:_MAX_NAMED]]
            if len(problems) > _MAX_NAMED:
                shown.append(f"and {len(problems) - _MAX_NAMED} more")
            raise ArgumentError(shorten("; ".join(shown), _MAX_MESSAGE))
        return Arguments(copy_value(given), values)

    def _convert(
        self,
        name: str,
        value: Any,
        parameter: _Parameter,
        values: dict[str, Any],
        problems: list[tuple[str, str]],
    ) -> None:
        try:
            values[name] = parameter.convert(value)
        except Mismatch as error:
            start = pointer_to([_brief(name)])
            problems += [(start + place, said) for place, said in error.problems]

    def _no_such_argument(self) -> str:
        if not self._parameters:
            return "no such argument; there are none"
        names = [f"'{name}'" for name in self._parameters]
        more = ", …" if len(names) > _MAX_NAMED else ""
        return f"no such argument; there are {', '.join(names[:_MAX_NAMED])}{more}"

    # Making it

    def _read(
        self, function: Callable[..., Any], core: Callable[..., Any], said: dict[str, str]
    ) -> None:
        try:
            parameters = inspect.signature(function).parameters
        except (ValueError, TypeError, NameError) as error:
            raise TypeError(f"the tool '{self.name}' shows no signature: {error}") from None
        for index, parameter in enumerate(parameters.values()):
            if parameter.name in self._bound:
                continue
            match parameter.kind:
                case parameter.POSITIONAL_ONLY:
                    self._refuse(
                        parameter.name,
                        "is positional-only, and arguments come by name; remove the '/'",
                    )
                case parameter.VAR_POSITIONAL:
                    self._refuse(
                        f"*{parameter.name}",
                        "takes arguments without names, and arguments come by name; take a list",
                    )
            untyped = parameter.annotation is parameter.empty
            if index == 0 and untyped and parameter.name in ("self", "cls"):
                self._refuse(
                    parameter.name,
                    "belongs to a method; make the tool of a bound method, such as "
                    f"instance.{self.name}",
                )
            made = self._parameter(parameter, core, said.get(parameter.name))
            if parameter.kind is parameter.VAR_KEYWORD:
                self._others = made
            else:
                self._parameters[parameter.name] = made

    def _parameter(
        self, parameter: inspect.Parameter, core: Callable[..., Any], description: str | None
    ) -> _Parameter:
        default = parameter.default
        if type(default).__module__ == "pydantic.fields":
            self._refuse(
                parameter.name, "has a Field for its default; put it into Annotated[…, Field(…)]"
            )
        type_ = self._type_of(parameter, core)
        try:
            schema = schema_of(type_)
            convert = converter(type_)
        except Exception as error:  # whatever a library makes of a type that it doesn't know
            self._refuse(parameter.name, f"has a type without a JSON Schema: {error}")
        if description is not None:
            schema.setdefault("description", description)
        required = default is parameter.empty
        if not required:
            try:
                plain = plain_value(default)
                convert(plain)
            except Exception:  # what has no JSON form is a default for Python alone
                pass
            else:
                schema["default"] = plain
        return _Parameter(convert, schema, required)

    def _type_of(self, parameter: inspect.Parameter, core: Callable[..., Any]) -> Any:
        annotation = parameter.annotation
        if annotation is parameter.empty or annotation is object:
            return Any
        # One by one, so that names known to type checkers alone do no harm elsewhere.
        holder = SimpleNamespace(__annotations__={"it": annotation})
        try:
            type_ = get_type_hints(holder, _globals(core), include_extras=True)["it"]
        except Exception as error:
            self._refuse(
                parameter.name,
                f"has an annotation that can't be resolved ({error}); what it names has to be "
                "defined in the function's module, outside of functions and TYPE_CHECKING",
            )
        return Any if type_ is object else type_

    def _refuse(self, parameter: str, why: str) -> Never:
        raise TypeError(f"the parameter '{parameter}' of the tool '{self.name}' {why}") from None

    def _schema(self) -> dict[str, Any]:
        definitions: dict[str, Any] = {}
        properties = {
            name: _hoist(parameter.schema, definitions)
            for name, parameter in self._parameters.items()
        }
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        required = [name for name, parameter in self._parameters.items() if parameter.required]
        if required:
            schema["required"] = required
        schema["additionalProperties"] = (
            False if self._others is None else _hoist(self._others.schema, definitions) or True
        )
        if definitions:
            schema["$defs"] = definitions
        return schema


# The function


def _unwrap(function: Callable[..., Any]) -> tuple[Callable[..., Any], frozenset[str]]:
    """What a partial is made of, and the names of the arguments that it binds."""
    bound: set[str] = set()
    while isinstance(function, functools.partial):
        bound |= function.keywords.keys()
        function = function.func
    return function, frozenset(bound)


def _name_of(core: Callable[..., Any]) -> str:
    name: str = getattr(core, "__name__", type(core).__name__)
    if not name.isidentifier():
        raise TypeError(f"a tool made of {name} needs a name: pass name=…")
    return name


def _docstring(core: Callable[..., Any]) -> str:
    if not hasattr(core, "__name__"):  # an instance with __call__
        return inspect.getdoc(type(core).__call__) or inspect.getdoc(type(core)) or ""
    return inspect.getdoc(core) or ""


def _globals(core: Callable[..., Any]) -> dict[str, Any]:
    """The names that the function's annotations were written with."""
    core = inspect.unwrap(core)
    for place in (core, type(core).__call__):
        found = getattr(place, "__globals__", None)
        if found is not None:
            return dict(found)
    module = sys.modules.get(getattr(core, "__module__", None) or "")
    return dict(vars(module)) if module is not None else {}


# The schema


def _hoist(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema without its `$defs`, which are added to those of the whole."""
    own: dict[str, Any] = schema.get("$defs", {})
    schema = {key: value for key, value in schema.items() if key != "$defs"}
    if all(definitions.get(name, body) == body for name, body in own.items()):
        definitions.update(own)
        return schema
    # Types of one name that differ, here or in what they lead to: all of these get new names.
    number = 2
    while any(f"{name}_{number}" in definitions for name in own):
        number += 1
    names = {f"#/$defs/{name}": f"#/$defs/{name}_{number}" for name in own}
    for name, body in own.items():
        definitions[f"{name}_{number}"] = _renamed(body, names)
    renamed: dict[str, Any] = _renamed(schema, names)
    return renamed


_DATA: Final = ("const", "default", "enum", "examples")
_NAMED: Final = ("properties", "patternProperties", "dependentSchemas")


def _renamed(schema: Any, names: dict[str, str]) -> Any:
    if isinstance(schema, list):
        return [_renamed(item, names) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$ref":
            result[key] = names.get(value, value)
        elif key == "mapping":
            result[key] = {tag: names.get(target, target) for tag, target in value.items()}
        elif key in _DATA:
            result[key] = value
        elif key in _NAMED:
            result[key] = {name: _renamed(item, names) for name, item in value.items()}
        else:
            result[key] = _renamed(value, names)
    return result


# The arguments


def _parse(text: str) -> dict[str, Any]:
    if not text or text.isspace():
        return {}  # how some providers write that there are no arguments
    # A half of a surrogate pair becomes its escape, which is what it stands for in a string.
    data = text.encode("utf-8", "backslashreplace")
    if nests_deeper_than(data, MAX_DEPTH):
        raise ArgumentError(f"the arguments nest deeper than {MAX_DEPTH} levels")
    try:
        value = copy_value(json.loads(data.decode(), parse_float=_number))
    except json.JSONDecodeError as error:
        raise ArgumentError(
            f"the arguments are not JSON: {error.msg} at character {error.pos}"
        ) from None
    except ValueError as error:
        raise ArgumentError(shorten(f"the arguments are not JSON: {error}", _MAX_MESSAGE)) from None
    if not isinstance(value, dict):
        raise ArgumentError("the arguments are not a JSON object")
    return value


def _number(text: str) -> int | float:
    """The number, whole where it is: a JSON Schema's integers include 1.0."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) <= MAX_SAFE_INTEGER else number


def _brief(name: str) -> str:
    return shorten(name, _MAX_NAME)
