"""What a function's signature and docstring tell an agent, and arguments judged by it."""

import dataclasses
import datetime
import decimal
import enum
import functools
import json
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import jsonschema
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from aguia.interop.docstrings import parse_docstring
from aguia.interop.signatures import ArgumentError, Signature

if TYPE_CHECKING:
    from fractions import Fraction


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class City:
    name: str
    colour: Colour = Colour.RED


class Place(msgspec.Struct, forbid_unknown_fields=True):
    lat: float
    city: City | None = None


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=5)
    born: datetime.date | None = None
    friends: list["Person"] = []


class Options(TypedDict, total=False):
    wide: bool


class Point(NamedTuple):
    x: int
    y: int


Count = NewType("Count", Annotated[int, pydantic.Field(ge=1)])
Counts = TypeAliasType("Counts", list[Count])
Positive = Annotated[int, msgspec.Meta(ge=1, description="How many.")]
Small = Annotated[int, pydantic.Field(le=9, description="Not much.")]


def takes(type_: Any, default: Any = ...) -> Signature:
    """The signature of a function of one parameter `x`."""

    def function(x: Any) -> None: ...

    function.__annotations__["x"] = type_
    if default is not ...:
        function.__defaults__ = (default,)
    return Signature(function)


def refusal(function: Callable[..., Any] | Signature, arguments: Any) -> str:
    signature = function if isinstance(function, Signature) else Signature(function)
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    with pytest.raises(ArgumentError) as caught:
        signature.decode(text)
    return str(caught.value)


def decoded(function: Callable[..., Any] | Signature, arguments: Any) -> dict[str, Any]:
    signature = function if isinstance(function, Signature) else Signature(function)
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return signature.decode(text).values


def attempt(signature: Signature, text: str) -> dict[str, Any] | str:
    """What text is decoded to, or what is said of it."""
    try:
        return signature.decode(text).plain
    except ArgumentError as error:
        return str(error)


# The schema


def weather(
    city: str,
    days: int = 1,
    *,
    unit: Literal["C", "F"] = "C",
    near: City | None = None,
) -> str:
    """Tell the weather.

    It asks the nearest station.

    Args:
        city: where,
            in any language.
        days (int, optional): how far ahead: one to ten.
        unit: of temperature.
        near: a town close by.

    Returns:
        A sentence.
    """
    return f"{city} {days} {unit} {near}"


def test_a_function_tells_its_name_description_and_parameters() -> None:
    signature = Signature(weather)
    assert signature.name == "weather"
    assert signature.description == (
        "Tell the weather.\n\nIt asks the nearest station.\n\nReturns:\n    A sentence."
    )
    assert signature.schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "where, in any language."},
            "days": {
                "type": "integer",
                "default": 1,
                "description": "how far ahead: one to ten.",
            },
            "unit": {"enum": ["C", "F"], "default": "C", "description": "of temperature."},
            "near": {
                "anyOf": [{"$ref": "#/$defs/City"}, {"type": "null"}],
                "default": None,
                "description": "a town close by.",
            },
        },
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {
            "City": {
                "title": "City",
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "colour": {"$ref": "#/$defs/Colour", "default": "red"},
                },
                "required": ["name"],
            },
            "Colour": {"title": "Colour", "enum": ["blue", "red"]},
        },
    }


def test_name_and_description_can_be_given() -> None:
    signature = Signature(weather, name="w", description="Rain or shine.")
    assert (signature.name, signature.description) == ("w", "Rain or shine.")
    assert signature.schema["properties"]["city"]["description"] == "where, in any language."


def test_a_function_without_parameters_takes_the_empty_object() -> None:
    def now() -> str:
        return ""

    signature = Signature(now)
    assert signature.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert signature.description == ""
    assert "there are none" in refusal(now, {"x": 1})


@pytest.mark.parametrize("text", ["", " \n", "{}", " { } "])
def test_no_text_is_no_arguments(text: str) -> None:
    """SEC-1: some providers send nothing for a call without arguments."""
    assert decoded(lambda_named(lambda: None), text) == {}
    assert refusal(weather, text) == "at '': the argument 'city' is missing"


def lambda_named(function: Callable[..., Any]) -> Signature:
    return Signature(function, name="f")


@pytest.mark.parametrize(
    ("type_", "schema"),
    [
        (Any, {}),
        (object, {}),
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (float, {"type": "number"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (datetime.date, {"type": "string", "format": "date"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (decimal.Decimal, {"type": "string", "format": "decimal"}),
        (Positive, {"type": "integer", "minimum": 1, "description": "How many."}),
        (Small, {"type": "integer", "maximum": 9, "description": "Not much."}),
        ("list[int]", {"type": "array", "items": {"type": "integer"}}),
    ],
)
def test_types_have_their_schemas(type_: Any, schema: dict[str, Any]) -> None:
    assert takes(type_).schema["properties"]["x"] == schema


def test_what_an_annotation_says_comes_before_the_docstring() -> None:
    def f(a: Positive, b: Small) -> None:
        """Do.

        :param a: not this.
        :param b: nor this.
        """

    properties = Signature(f).schema["properties"]
    assert properties["a"]["description"] == "How many."
    assert properties["b"]["description"] == "Not much."


@pytest.mark.parametrize(
    ("type_", "default", "shown"),
    [
        (int, 5, 5),
        (Colour, Colour.RED, "red"),
        (set[int], {1}, [1]),
        (City | None, City("Faro"), {"name": "Faro", "colour": "red"}),
        (Person | None, Person(name="Ana"), {"name": "Ana", "born": None, "friends": []}),
        (datetime.date, datetime.date(2030, 1, 2), "2030-01-02"),
        (int, None, ...),  # null is no integer
        (float, float("nan"), ...),
        (Any, object(), ...),
        (int | msgspec.UnsetType, msgspec.UNSET, ...),
    ],
)
def test_defaults_are_shown_where_json_has_them(type_: Any, default: Any, shown: Any) -> None:
    schema = takes(type_, default).schema
    assert "required" not in schema
    assert schema["properties"]["x"].get("default", ...) == shown
    assert decoded(takes(type_, default), {}) == {}


def _city_of_elsewhere() -> type:
    @dataclasses.dataclass
    class City:
        zip: int
        next: Colour | None = None

    return City


def test_definitions_of_one_name_are_kept_apart() -> None:
    other = _city_of_elsewhere()

    def f(a: City, b: Any, c: list[City], d: Person, e: list[Person], f: Any) -> None: ...

    f.__annotations__.update(b=other, f=_city_of_elsewhere() | None)
    schema = Signature(f).schema
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    good = {
        "a": {"name": "Faro"},
        "b": {"zip": 1, "next": "red"},
        "c": [{"name": "Faro"}],
        "d": {"name": "Ana", "friends": [{"name": "Rui"}]},
        "e": [],
        "f": {"zip": 1},
    }
    assert validator.is_valid(good)
    assert decoded(f, good)["b"] == other(1, Colour.RED)
    assert not validator.is_valid({**good, "a": good["b"]})
    assert not validator.is_valid({**good, "b": good["a"]})
    assert not validator.is_valid({**good, "b": {"zip": 1, "next": "green"}})
    assert not validator.is_valid({**good, "d": {"name": "Ana", "friends": [{}]}})


def test_a_model_whose_data_look_like_references_keeps_its_data() -> None:
    class Cat(pydantic.BaseModel):
        kind: Literal["cat"] = "cat"
        default: str = "#/$defs/Cat"

    class Dog(pydantic.BaseModel):
        kind: Literal["dog"]

    first: Any = Cat
    second: Any = type("Cat", (Cat,), {"__doc__": "Another."})

    def f(a: Any, b: Any) -> None: ...

    pets: Any = Annotated[first | Dog, pydantic.Field(discriminator="kind")]
    others: Any = Annotated[second | Dog, pydantic.Field(discriminator="kind")]
    f.__annotations__.update(a=pets, b=others)
    schema = Signature(f).schema
    assert schema["properties"]["a"]["discriminator"]["mapping"]["cat"] == "#/$defs/Cat"
    assert schema["properties"]["b"]["discriminator"]["mapping"]["cat"] == "#/$defs/Cat_2"
    changed = schema["$defs"]["Cat_2"]
    assert changed["description"] == "Another."
    assert changed["properties"]["default"]["default"] == "#/$defs/Cat"
    jsonschema.Draft202012Validator(schema).validate({"a": {"kind": "cat"}, "b": {"kind": "dog"}})


def test_a_default_that_looks_like_a_reference_stays_as_it_is() -> None:
    default = {"$ref": "#/$defs/City"}

    def f(a: City, b: Any = default) -> None: ...

    f.__annotations__["b"] = list[_city_of_elsewhere()] | dict[str, str]  # type: ignore[misc]
    shown = Signature(f).schema["properties"]["b"]
    assert shown["default"] == default
    assert {"type": "array", "items": {"$ref": "#/$defs/City_2"}} in shown["anyOf"]


# Functions of all kinds


class Shop:
    """A shop."""

    def find(self, name: str, *, most: "int | None" = None) -> str:
        """Find a thing."""
        return f"{name} {most}"

    def __call__(self, thing: "Colour") -> str:
        """Buy a thing."""
        return thing.value


def test_bound_methods_partials_and_callables_are_understood() -> None:
    method = Signature(Shop().find)
    assert (method.name, method.description) == ("find", "Find a thing.")
    assert list(method.schema["properties"]) == ["name", "most"]

    instance = Signature(Shop())
    assert (instance.name, instance.description) == ("Shop", "Buy a thing.")
    assert decoded(instance, {"thing": "red"}) == {"thing": Colour.RED}

    bound = Signature(functools.partial(functools.partial(weather, unit="F"), "Faro"))
    assert (bound.name, bound.description[:16]) == ("weather", "Tell the weather")
    assert list(bound.schema["properties"]) == ["days", "near"]

    assert Signature(City).schema["properties"]["colour"]["default"] == "red"

    @functools.wraps(weather)
    def wrapped(*args: Any, **kwargs: Any) -> str:
        return weather(*args, **kwargs)

    assert Signature(wrapped).schema == Signature(weather).schema


def test_what_a_partial_binds_is_neither_shown_nor_replaced() -> None:
    """SEC-1: a key bound by the application is none of the agent's business."""

    def fetch(url: str, key: str, **headers: str) -> None: ...

    signature = Signature(functools.partial(fetch, key="secret", host="mine"))
    assert "secret" not in json.dumps(signature.schema)
    assert "no such argument" in refusal(signature, {"url": "x", "key": "other"})
    assert "no such argument" in refusal(signature, {"url": "x", "host": "other"})
    assert decoded(signature, {"url": "x", "b": "1", "a": "2"}) == {"url": "x", "b": "1", "a": "2"}


def test_keywords_without_names_open_the_schema() -> None:
    def f(a: int, **others: float) -> None: ...

    signature = Signature(f)
    assert signature.schema["additionalProperties"] == {"type": "number"}
    assert decoded(f, {"a": 1, "b": 2}) == {"a": 1, "b": 2.0}
    assert refusal(f, {"a": 1, "b/c": "2"}) == "at '/b~1c': expected `float`, got `str`"
    assert lambda_named(lambda **others: None).schema["additionalProperties"] is True


def _positional(a: int, /) -> None: ...


def _rest(*words: str) -> None: ...


def _callback(then: Callable[[], None]) -> None: ...


def _late(x: "Fraction") -> None: ...


def _mixed(x: list[Place | Annotated[int, pydantic.Field(ge=1)]]) -> None: ...


def _mixed_inside(x: list[Person] | dict[str, Place]) -> None: ...


def _field(x: int = pydantic.Field(5)) -> None: ...


def _two_classes(x: City | Place) -> None: ...


def _foreign(x: tuple[Person, Callable[[], int]]) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_positional, "the parameter 'a' of the tool '_positional' is positional-only.*remove"),
        (_rest, "the parameter '\\*words' of the tool '_rest' .*take a list"),
        (_callback, "the parameter 'then' of the tool '_callback' has a type without a JSON"),
        (_foreign, "the parameter 'x' of the tool '_foreign' has a type without a JSON"),
        (_late, "the parameter 'x' .* can't be resolved .*'Fraction'"),
        (_mixed, "'x' of the tool '_mixed' .*mixes types of msgspec"),
        (_mixed_inside, "mixes types of msgspec"),
        (_field, "'x' .*Annotated"),
        (_two_classes, "the parameter 'x' of the tool '_two_classes' "),
        (Shop.find, "'self' .*bound method"),
        (lambda x: x, "needs a name"),
        (5, "not of int"),
        (max, "'max'"),
    ],
)
def test_a_function_that_can_be_no_tool_is_refused_at_once(function: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Signature(function)


def test_a_name_that_only_type_checkers_know_harms_nothing_elsewhere() -> None:
    def f(x: int) -> "Fraction":
        raise NotImplementedError

    assert decoded(f, {"x": 1}) == {"x": 1}


@pytest.mark.parametrize("name", ["", 5])
def test_a_name_is_text(name: Any) -> None:
    with pytest.raises(TypeError, match="name"):
        Signature(weather, name=name)


# Arguments


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (int, 5, 5),
        (int, 5.0, 5),  # an integer of JSON Schema
        (float, 5, 5.0),
        (bool, True, True),
        (str, "ü\n", "ü\n"),
        (Colour | None, "blue", Colour.BLUE),
        (City, {"name": "Faro", "colour": "blue"}, City("Faro", Colour.BLUE)),
        (Place, {"lat": 1.5, "city": {"name": "Faro"}}, Place(1.5, City("Faro"))),
        (Person, {"name": "Ana", "born": "2000-01-02"}, None),
        (list[Person] | None, [{"name": "Ana"}], [Person(name="Ana")]),
        (Options, {"wide": True}, {"wide": True}),
        (Point, [1, 2], Point(1, 2)),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (set[int], [1, 1], {1}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (datetime.date, "2000-01-02", datetime.date(2000, 1, 2)),
        (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
        (uuid.UUID, str(uuid.UUID(int=5)), uuid.UUID(int=5)),
        (bytes, "aGk=", b"hi"),
        (Any, {"a": [None, 2**70]}, {"a": [None, 2**70]}),
        (Small, 9, 9),
        (Counts, [1, 2], [1, 2]),
        (Count, 2, 2),
    ],
)
def test_arguments_become_values_of_the_types(type_: Any, value: Any, expected: Any) -> None:
    arguments = takes(type_).decode(json.dumps({"x": value}))
    assert arguments.plain == {"x": value}
    made = arguments.values["x"]
    if expected is None:
        assert made == Person(name="Ana", born=datetime.date(2000, 1, 2))
    else:
        assert made == expected
        assert type(made) is type(expected)


@pytest.mark.parametrize(
    ("type_", "value", "said"),
    [
        (int, "1", "at '/x': expected `int`, got `str`"),
        (int, True, "at '/x': expected `int`, got `bool`"),
        (int, 1.5, "at '/x': expected `int`, got `float`"),
        (str, 1, "at '/x': expected `str`, got `int`"),
        (str, None, "at '/x': expected `str`, got `null`"),
        (bool, "true", "at '/x': expected `bool`, got `str`"),
        (Positive, 0, "at '/x': expected `int` >= 1"),
        (list[int], [1, "a"], "at '/x/1': expected `int`, got `str`"),
        (dict[str, list[int]], {"a": ["b"]}, "at '/x': expected `int`, got `str` (in one of its"),
        (dict[int, int], {"a": 1}, "at '/x': expected `int`, got `str` (in one of its keys)"),
        (City, {"name": 5}, "at '/x/name': expected `str`, got `int`"),
        (City, {}, "at '/x': object missing required field `name`"),
        (Place, {"lat": 1, "alt": 2}, "at '/x': object contains unknown field `alt`"),
        (Literal["a", "b"], "c", """at '/x': expected one of "a", "b\""""),
        (
            list[City],
            [{"name": "", "colour": "c"}],
            """at '/x/0/colour': expected one of "blue",""",
        ),
        (dict[str, Colour], {"a": "c"}, "at '/x': expected one of the values that are allowed"),
        (list[Colour | None] | None, ["c"], """at '/x/0': expected one of "blue", "red\""""),
        (Counts, [2, 0], "at '/x/1': Input should be greater than or equal to 1"),
        (Count, "1", "at '/x': Input should be a valid integer"),
        (Person, {"name": 5}, "at '/x/name': Input should be a valid string"),
        (Person, {"name": "longer"}, "at '/x/name': String should have at most 5 characters"),
        (Person, {"name": "Ana", "friends": [{}]}, "at '/x/friends/0/name': Field required"),
        (
            list[Person] | int,
            [{"name": 5}],
            "at '/x': Input should be a valid integer; at '/x/0/name': Input should be a valid str",
        ),
        (Small, 10, "at '/x': Input should be less than or equal to 9"),
        (Small, "9", "at '/x': Input should be a valid integer"),
        (datetime.date, "today", "at '/x': invalid RFC3339"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_place_and_reason(
    type_: Any, value: Any, said: str
) -> None:
    """SEC-1."""
    assert refusal(takes(type_), {"x": value}).startswith(said)


def test_all_that_is_wrong_is_said_at_once() -> None:
    """SEC-1."""
    assert refusal(weather, {"days": "1", "unit": "K", "towns": 1}) == (
        "at '': the argument 'city' is missing; "
        "at '/days': expected `int`, got `str`; "
        "at '/towns': no such argument; there are 'city', 'days', 'unit', 'near'; "
        """at '/unit': expected one of "C", "F\""""
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "the arguments are not JSON: .* at character 1"),
        ("x" * 5000, "the arguments are not JSON: Expecting value at character 0$"),
        ('{"city": "a"} {', "the arguments are not JSON: Extra data"),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('"{}"', "not a JSON object"),
        ('{"city": NaN}', "no JSON number"),
        ('{"city": 1e999}', "no JSON number"),
        ('{"city": -Infinity}', "no JSON number"),
        ('{"city": ' + "1" * 5000 + "}", "not JSON"),
        ('{"city": ' + "[" * 300 + "]" * 300 + "}", "nest deeper than 256"),
        ("[" * 200_000, "nest deeper than 256"),
        ("\x00", "not JSON"),
        ("\ufeff{}", "not JSON"),
        ("\ud83e", "not JSON"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_text_that_is_no_object_is_refused(text: str, said: str) -> None:
    """SEC-1."""
    with pytest.raises(ArgumentError, match=said) as caught:
        Signature(weather).decode(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("type_", [Colour, Person, datetime.date, str | None, list[Person]])
def test_half_a_character_is_text_or_is_refused(type_: Any) -> None:
    """SEC-1: whatever judges the text, half a surrogate pair ends in no other error."""
    for text in ('{"x": "\\ud83e"}', '{"x": "\ud83e"}', '{"x": {"name": "\\ud83e"}}'):
        made = attempt(takes(type_), text)
        assert made == {"x": "\ud83e"} if isinstance(made, dict) else "at '/x" in made
    assert decoded(takes(str), '{"x": "\ud83e\udd85"}') == {"x": "🦅"}


def test_of_two_members_of_one_name_the_last_counts_for_all() -> None:
    """SEC-2: what is shown to a person is what the function gets."""
    arguments = takes(int).decode('{"x": 1, "x": 2}')
    assert arguments.plain == arguments.values == {"x": 2}


def test_the_plain_arguments_are_a_copy() -> None:
    """SEC-2."""
    arguments = takes(Any).decode('{"x": [1]}')
    arguments.plain["x"].append(2)
    assert arguments.values == {"x": [1]}


def test_a_refusal_is_short_and_repeats_no_values() -> None:
    """SEC-1: a secret in a wrong place doesn't travel on with the error."""
    secret = "hunter2" * 100

    def f(a: int, b: Person, c: Small, d: list[City]) -> None: ...

    given = {
        "a": secret,
        "b": {"name": secret, "born": secret},
        "c": secret,
        "d": [secret] * 100,
    }
    assert "hunter2" not in refusal(f, given)
    many = {f"{index}{secret}": 1 for index in range(1000)}
    assert len(refusal(f, many)) <= 2000
    wrong = {"a": 1, "b": {"name": "", "friends": [5] * 1000}, "c": 1, "d": []}
    assert len(refusal(f, wrong)) <= 2000


def test_what_a_types_own_validation_raises_is_told_or_passed_on() -> None:
    class Even(msgspec.Struct):
        n: int

        def __post_init__(self) -> None:
            if self.n == 7:
                raise KeyError("seven")
            if self.n % 2:
                raise ValueError("it is odd")

    class Odd(pydantic.BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def check(cls, n: int) -> int:
            if n % 2 == 0:
                raise ValueError("it is even")
            return n

    assert refusal(takes(list[Even]), {"x": [{"n": 1}]}) == "at '/x/0': it is odd"
    assert refusal(takes(Odd), {"x": {"n": 2}}) == "at '/x/n': Value error, it is even"
    with pytest.raises(KeyError):
        takes(Even).decode('{"x": {"n": 7}}')


# Docstrings

GOOGLE = """Find a thing.

Args:
  name: what it is called,
    or was.

    Even long ago.
  *words (list[tuple[str, int]], optional): the rest
  a, b: both
  empty:
Raises:
  KeyError: when there is none.
"""

NUMPY = """Find a thing.

Parameters
----------
name : str, optional
    what it is called,
    or was.

    Even long ago.
*words
    the rest
a, b : int
    both
empty

Raises
------
KeyError
    when there is none.
"""

REST = """Find a thing.

:param name: what it is called,
    or was.

:type name: str
:param list[str] words: the rest
:keyword a, b: both
:param empty:
:raises KeyError: when there is none.
"""


@pytest.mark.parametrize(("text", "style"), [(GOOGLE, "g"), (NUMPY, "n"), (REST, "r")])
def test_three_styles_of_docstrings_are_read(text: str, style: str) -> None:
    description, said = parse_docstring(text)
    assert description.startswith("Find a thing.\n\n")
    assert description.endswith("when there is none.")
    assert "both" not in description
    assert "name" not in description
    more = "" if style == "r" else " Even long ago."
    named = {"words": "the rest", "a": "both", "b": "both"}
    if style == "r":
        named = {"words": "the rest", "b": "both"}
    assert {"name": f"what it is called, or was.{more}", **named}.items() <= said.items()
    assert "empty" not in said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "One line: that's all.",
        "Note:\n    Args are few.",
        "Args are few.\n\n    Parameters: none",
        "Parameters\n\nnone",
    ],
)
def test_a_docstring_without_sections_is_description(text: str) -> None:
    assert parse_docstring(text) == (text, {})


@given(st.text(alphabet="Args: \n-x(),*:param\t", max_size=60))
def test_no_docstring_breaks_the_parser(text: str) -> None:
    description, said = parse_docstring(text)
    assert len(description) <= len(text)
    assert all(said.values())


# Whatever comes

SIMPLE: list[Any] = [
    Any,
    str,
    int,
    float,
    bool,
    None,
    int | None,
    list[int],
    dict[str, bool],
    Literal["a", "b", 3],
    str | int | list[str],
    tuple[int, str],
    Annotated[str, msgspec.Meta(min_length=1, max_length=3)],
    Annotated[float, msgspec.Meta(ge=0, lt=10)],
    Annotated[list[bool], msgspec.Meta(max_length=2)],
    Colour,
    City,
    Place,
    Options,
    list[City] | None,
]

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-20, 20)
    | st.floats(-20, 20)
    | st.sampled_from([0.0, 1.0, 1.5, 10, "", "a", "b", "red", "Faro", "four"])
)
NAMES = st.sampled_from(["x", "y", "z", "name", "colour", "lat", "city", "wide", "q"])


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(children, max_size=3) | st.dictionaries(NAMES, children, max_size=3)


VALUES = st.recursive(LEAVES, containers, max_leaves=6)


@pytest.mark.unmeasured
@settings(deadline=None)
@given(
    types=st.lists(st.sampled_from(SIMPLE), min_size=1, max_size=3),
    arguments=st.dictionaries(st.sampled_from(["x", "y", "z", "q"]), VALUES, max_size=3),
)
def test_decoding_agrees_with_the_schema(types: list[Any], arguments: dict[str, Any]) -> None:
    """SEC-1: what the declared schema allows is let through, and nothing else."""

    def f(x: Any, y: Any = None, z: Any = None) -> None: ...

    f.__annotations__.update(zip(["x", "y", "z"], types, strict=False))
    signature = Signature(f)
    jsonschema.Draft202012Validator.check_schema(signature.schema)
    allowed = jsonschema.Draft202012Validator(signature.schema).is_valid(arguments)
    try:
        made = signature.decode(json.dumps(arguments))
    except ArgumentError:
        assert not allowed
    else:
        assert allowed
        assert made.plain == arguments
        assert made.values.keys() == arguments.keys()


ALL_TYPES: list[Any] = [
    *SIMPLE,
    Person,
    Small,
    list[Person] | int,
    datetime.datetime,
    datetime.timedelta,
    decimal.Decimal,
    uuid.UUID,
    bytes,
    dict[int, float],
    set[str],
    Annotated[str, msgspec.Meta(pattern="^a")],
    Annotated[str, pydantic.Field(pattern="^a")],
]
SIGNATURES = [takes(type_) for type_ in ALL_TYPES]

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=5),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(NAMES | st.text(max_size=3), children, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.unmeasured
@given(
    signature=st.sampled_from(SIGNATURES),
    text=st.one_of(
        ANYTHING.map(json.dumps),
        ANYTHING.map(lambda value: json.dumps({"x": value})),
        ANYTHING.map(lambda value: json.dumps({"x": value}, ensure_ascii=False)),
        st.text(st.characters(codec=None)),
        st.text(alphabet='{}[]":,x1e.-\\u d8', max_size=20),
    ),
)
def test_decoding_raises_nothing_but_its_own_error(signature: Signature, text: str) -> None:
    """SEC-1."""
    made = attempt(signature, text)
    assert isinstance(made, dict) or len(made) <= 2000
