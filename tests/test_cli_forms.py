"""Questions of an agent's as forms: which fields a schema makes, and what is typed into them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguia.cli.forms import Field, Form
from aguia.cli.schemas import expected, fault
from aguia.protocol.common import UNSET


def filled(schema: Any, *typed: str) -> tuple[Any, list[Field]]:
    """The answer that is typed so, and the fields that were asked for."""
    form, fields = Form(schema), []
    for text in typed:
        assert form.field is not None, f"nothing is asked for any more, but {text!r} is typed"
        fields.append(form.field)
        form.answer(text)
    assert form.field is None, f"{form.field} is still asked for"
    return form.value, fields


def problem_with(schema: Any, text: str) -> str:
    form = Form(schema)
    form.answer(text)
    assert form.field is not None, f"{form.value!r} was taken"
    return form.field.problem


NULLABLE = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
SHAPES = {
    "oneOf": [
        {
            "title": "circle",
            "type": "object",
            "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
            "required": ["kind", "radius"],
        },
        {
            "title": "square",
            "type": "object",
            "properties": {"kind": {"const": "square"}, "side": {"type": "number"}},
            "required": ["kind", "side"],
        },
    ]
}
PERSON = {
    "type": "object",
    "properties": {
        "nick": {"type": "string"},
        "name": {"type": "string"},
        "home": {"$ref": "#/$defs/Home"},
    },
    "required": ["name"],
    "$defs": {
        "Home": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "number": {"type": "integer"}},
            "required": ["street", "number"],
        }
    },
}


@pytest.mark.parametrize(
    ("schema", "typed", "answer"),
    [
        ({}, ["some words"], "some words"),
        ({}, ["[1, 2]"], [1, 2]),
        (UNSET, ["5"], 5),
        ({"type": "string"}, ["5"], "5"),
        ({"type": "string", "default": "x"}, [""], "x"),
        ({"type": "boolean"}, ["Y"], True),
        ({"type": "boolean"}, ["no"], False),
        ({"type": "boolean", "default": True}, [""], True),
        ({"type": "integer"}, [" 7 "], 7),
        ({"type": "number"}, ["7.5"], 7.5),
        ({"enum": ["red", "blue"]}, ["2"], "blue"),
        ({"enum": ["red", "blue"]}, ["RED"], "red"),
        ({"enum": ["2", "1"]}, ["1"], "1"),
        ({"enum": [3, 2, 1]}, ["1"], 1),
        ({"enum": [True, None, "x"]}, ["null"], None),
        ({"enum": [{"a": 1}, [2]]}, ["1"], {"a": 1}),
        ({"const": "go"}, ["1"], "go"),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, ["b"], "b"),
        (NULLABLE, ["5"], 5),
        (NULLABLE, [""], None),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, ["x"], "x"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, ["4"], 4),
        (SHAPES, ["square", "2"], {"kind": "square", "side": 2}),
        ({"type": "array", "items": {"type": "string"}}, ["a, b"], ["a", "b"]),
        ({"type": "array", "items": {"type": "string"}}, ['["a, b"]'], ["a, b"]),
        ({"type": "array", "items": {"type": "integer"}}, ["1,2"], [1, 2]),
        ({"type": "array", "items": {"type": "integer"}}, [""], []),
        ({"type": "array", "items": {"type": "boolean"}}, ["yes, no"], [True, False]),
        ({"type": "array", "items": {"type": "object"}}, ['[{"a": 1}]'], [{"a": 1}]),
        ({"type": "object"}, ['{"a": 1}'], {"a": 1}),
        (PERSON, ["Ada", "", "no"], {"name": "Ada"}),
        (
            PERSON,
            ["Ada", "A", "yes", "Rua", "5"],
            {"name": "Ada", "nick": "A", "home": {"street": "Rua", "number": 5}},
        ),
        (PERSON, ['{"name": "Ada", "more": 1}'], {"name": "Ada", "more": 1}),
        (
            {"type": "object", "properties": {"approved": {"type": "boolean"}}},
            ["y"],
            {"approved": True},
        ),
    ],
)
def test_what_is_typed_becomes_the_answer(schema: Any, typed: list[str], answer: Any) -> None:
    """INT-7: in the form that the schema describes."""
    value, _ = filled(schema, *typed)
    assert (value, type(value)) == (answer, type(answer))


@pytest.mark.parametrize(
    ("schema", "text", "problem"),
    [
        ({"type": "integer"}, "x", "Expected integer"),
        ({"type": "integer", "minimum": 1}, "0", "Expected integer at least 1"),
        ({"type": "number", "exclusiveMaximum": 1}, "1", "Expected number less than 1"),
        ({"type": "integer", "minimum": 1, "maximum": 3}, "4", "Expected integer from 1 to 3"),
        ({"type": "string", "minLength": 2}, "x", "Expected at least 2 characters long"),
        ({"type": "boolean"}, "perhaps", "That is neither yes nor no"),
        ({"enum": ["a", "b"]}, "3", "That is none of the choices"),
        ({"enum": ["a", "b"]}, "", "One of the choices is needed"),
        ({"type": "string"}, "", "An answer is needed"),
        ({"type": "array", "items": {"type": "integer"}}, "1,x", "[1] must be integer"),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "a",
            "Expected at least 2 items long",
        ),
        ({"type": "object"}, "x", "Expected object"),
    ],
)
def test_what_does_not_fit_is_asked_for_again(schema: Any, text: str, problem: str) -> None:
    """INT-7."""
    assert problem_with(schema, text) == problem


def test_only_the_field_that_was_wrong_is_asked_for_again() -> None:
    value, fields = filled(
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
        "1",
        "x",
        "2",
    )
    assert value == {"a": 1, "b": 2}
    assert [(field.name, bool(field.problem)) for field in fields] == [
        ("a", False),
        ("b", False),
        ("b", True),
    ]


def test_what_is_needed_comes_first_and_names_say_where_it_belongs() -> None:
    _, fields = filled(PERSON, "Ada", "", "yes", "Rua", "5")
    assert [(field.name, field.optional) for field in fields] == [
        ("name", False),
        ("nick", True),
        ("home", False),
        ("home.street", False),
        ("home.number", False),
    ]


def test_a_decision_comes_before_the_remarks_on_it() -> None:
    schema = {
        "type": "object",
        "properties": {"note": {"type": "string"}, "approved": {"type": "boolean"}},
    }
    value, fields = filled(schema, "yes", "")
    assert [field.name for field in fields] == ["approved", "note"]
    assert value == {"approved": True}


def test_a_field_says_what_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 2, "title": "Count", "description": "How\x1bmany"}
        },
        "required": ["n"],
    }
    field = Form(schema).field
    assert field is not None
    assert field.about == ("Count", "How␛many")
    assert field.expects == "integer at least 2"
    assert Form({"enum": ["a", "b"]}).field == Field(
        "", ("1. a", "2. b"), expects="1 to 2, or the words"
    )


def test_what_is_deep_or_large_is_asked_for_as_json() -> None:
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(8):
        deep = {"type": "object", "properties": {"in": deep}, "required": ["in"]}
    form = Form(deep)
    assert form.field is not None
    assert form.field.name == "in.in.in.in"
    wide = {"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(60)}}
    assert filled(wide, '{"p1": 5}')[0] == {"p1": 5}


ENDLESS = {
    "$ref": "#/$defs/A",
    "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}},
}
INNER = {
    "$ref": "#/$defs/A",
    "$defs": {
        "A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"]}
    },
}


@pytest.mark.parametrize("schema", [ENDLESS, INNER, {"$ref": "#"}, {"anyOf": []}, {"enum": []}])
def test_a_schema_without_an_end_makes_a_form_with_one(schema: Any) -> None:
    form = Form(schema)
    for _ in range(20):
        if form.field is None:
            break
        form.answer('{"a": 1}')
    assert form.field is None or form.field.problem


keywords = st.sampled_from(
    "type enum const anyOf oneOf properties required items default title description minimum "
    "maxLength minItems $ref $defs approved".split()
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
words = st.sampled_from(["object", "array", "string", "integer", "boolean", "null", "#/$defs/type"])
schemas = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keywords, inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=200, deadline=None)
@given(schemas, st.lists(st.text(max_size=6) | st.sampled_from(["1", "y", "", "{}"]), max_size=12))
def test_whatever_a_schema_holds_it_is_only_read(schema: Any, typed: list[str]) -> None:
    """INT-7: a schema is the agent's, and no reason to crash or to hang."""
    form = Form(schema)
    for text in typed:
        if form.field is None:
            break
        assert form.field.label
        form.answer(text)
    expected(schema, schema)
    fault(form.value, schema, schema)


def test_what_takes_yes_or_no_says_so_where_it_is_typed() -> None:
    """A name such as `approved` alone would read as if it were so already."""
    approval = {
        "title": "Approval",
        "description": "Shall it be sent?",
        "type": "object",
        "properties": {"approved": {"type": "boolean"}},
    }
    for said, about in (
        ("", ("Approval", "Shall it be sent?")),
        ("Sure?", ("Shall it be sent?",)),
        ("Mail to Ada. Shall it be sent?", ()),
    ):
        field = Form(approval, said).field
        assert field is not None
        assert (field.label, field.about) == ("approved, yes or no?", about)
    field = Form({"type": "boolean", "title": "Sure"}, "Go on?").field
    assert field is not None
    assert (field.label, field.about, field.expects) == ("yes or no?", (), "")
