"""The JSON Schema made from the types, against the one that the specification publishes."""

import copy
import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import jsonschema
import pytest
from hypothesis import given, settings

from aguia import MalformedEvent, ProtocolWarning
from aguia.codec.json import STRICT_FAILURES, decode_event
from aguia.pipeline.enforcement import enforce_event
from aguia.protocol.events import EVENTS
from aguia.protocol.schema import DEFINITIONS, definitions, json_schema
from support import shared
from support_events import mutated_events

Schema = dict[str, Any]

_WORDS: Final = {"description", "title", "$anchor", "$schema", "$id"}
_KINDS: Final = ("object", "array", "string", "integer", "boolean")


@cache
def published() -> Schema:
    found: Schema = json.loads(shared("spec/schema-1.0.json").read_text(encoding="utf-8"))
    return found


# Two schemas say the same when their normal forms are equal: references resolved, what is
# composed merged into one, words left out. A keyword that nobody here knows is an error.


def normal(schema: Schema, definitions: Schema) -> Schema:
    """Every constraint that a schema makes, in one flat form."""
    out: Schema = {"members": {}, "required": set(), "open": True}
    _merge(out, schema, definitions)
    if "const" in out:
        # What is fixed to one string needs no more said about it.
        assert out.pop("enum", [out["const"]]).count(out["const"]) == 1
        assert out.pop("type", "string") == "string"
    out["required"] = sorted(out["required"])
    return out


def _merge(out: Schema, schema: Schema, definitions: Schema) -> None:
    for keyword, value in schema.items():
        match keyword:
            case "$ref":
                _merge(out, definitions[value.removeprefix("#/$defs/")], definitions)
            case "allOf":
                for part in value:
                    _merge(out, part, definitions)
            case "properties":
                for name, member in value.items():
                    both = out["members"].setdefault(name, {"allOf": []})
                    both["allOf"].append(member)
            case "required":
                out["required"] |= set(value)
            case "additionalProperties" | "unevaluatedProperties":
                assert isinstance(value, bool)
                out["open"] = out["open"] and value
            case "items":
                out["items"] = normal(value, definitions)
            case "oneOf":
                forms = [normal(option, definitions) for option in value]
                out["oneOf"] = sorted(forms, key=lambda form: json.dumps(form, sort_keys=True))
            case "not":
                assert value == {"type": "null"}
                out["notNull"] = True
            case "enum":
                out["enum"] = sorted(value)
            case "type" | "const" | "minimum" | "maximum" | "pattern" | "minItems":
                assert out.setdefault(keyword, value) == value or keyword == "const"
                out[keyword] = value
            case "default" | "contentEncoding":
                out[keyword] = value
            case _:
                assert keyword in _WORDS | {"$defs"}, keyword


def normal_definitions(document: Schema) -> Schema:
    """The normal form of each definition, its members too."""
    definitions = document["$defs"]

    def settle(form: Schema) -> Schema:
        form["members"] = {
            name: settle(normal(member, definitions)) for name, member in form["members"].items()
        }
        if "items" in form:
            settle(form["items"])
        for option in form.get("oneOf", []):
            settle(option)
        if "oneOf" in form:
            form["oneOf"].sort(key=lambda option: json.dumps(option, sort_keys=True))
        return form

    return {name: settle(normal(schema, definitions)) for name, schema in definitions.items()}


@cache
def theirs() -> Schema:
    return normal_definitions(published())


@cache
def ours() -> Schema:
    return normal_definitions(json_schema())


def test_the_definitions_are_the_same_ones() -> None:
    assert sorted(ours()) == sorted(theirs())
    assert json_schema()["$ref"] == published()["$ref"] == "#/$defs/Event"
    assert set(DEFINITIONS) < set(definitions())


@pytest.mark.parametrize("name", sorted(definitions()))
def test_a_definition_says_the_same(name: str) -> None:
    assert ours()[name] == theirs()[name]


def _in(*path: str | int) -> Callable[[Schema], Any]:
    def reach(document: Schema) -> Any:
        found: Any = document["$defs"]
        for key in path:
            found = found[key]
        return found

    return reach


CHANGES: Final[list[tuple[str, Callable[[Schema], Any], Callable[[Any], Any]]]] = [
    ("Tool", _in("Tool", "required"), lambda found: found.remove("name")),
    ("Tool", _in("Tool", "required"), lambda found: found.append("metadata")),
    ("Tool", _in("Tool"), lambda found: found.update(additionalProperties=True)),
    ("Tool", _in("Tool", "properties"), lambda found: found.update(extra={})),
    ("Tool", _in("Tool", "properties"), lambda found: found.pop("metadata")),
    ("Tool", _in("Tool", "properties", "parameters"), lambda found: found.clear()),
    ("RawEvent", _in("RawEvent", "properties", "timestamp"), lambda f: f.update(minimum=0)),
    ("RawEvent", _in("RawEvent", "properties", "timestamp"), lambda f: f.update(maximum=1)),
    ("RawEvent", _in("RawEvent", "properties", "type"), lambda f: f.update(const="CUSTOM")),
    ("RawEvent", _in("RawEvent", "properties", "source"), lambda f: f.update(type="integer")),
    ("JsonPointer", _in("JsonPointer"), lambda found: found.update(pattern="^/")),
    ("JsonPointer", _in("JsonPointer"), lambda found: found.pop("pattern")),
    ("Role", _in("Role", "enum"), lambda found: found.append("narrator")),
    ("Role", _in("Role", "enum"), lambda found: found.remove("tool")),
    ("ContentPart", _in("ContentPart", "oneOf"), lambda found: found.pop()),
    ("AddOperation", _in("AddOperation"), lambda f: f.update(additionalProperties=False)),
    ("BaseEvent", _in("BaseEvent"), lambda found: found.update(additionalProperties=False)),
    (
        "RunFinishedInterruptOutcome",
        _in("RunFinishedInterruptOutcome", "properties", "interrupts"),
        lambda found: found.pop("minItems"),
    ),
    (
        "ActivitySnapshotEvent",
        _in("ActivitySnapshotEvent", "properties", "replace"),
        lambda found: found.pop("default"),
    ),
    (
        "ActivitySnapshotEvent",
        _in("ActivitySnapshotEvent", "properties", "content"),
        lambda found: found.update(additionalProperties=False),
    ),
    (
        "DataSource",
        _in("DataSource", "properties", "value"),
        lambda found: found.pop("contentEncoding"),
    ),
    (
        "UserMessage",
        _in("UserMessage", "properties", "content", "oneOf"),
        lambda found: found.pop(0),
    ),
]


@pytest.mark.parametrize(
    ("name", "reach", "change"),
    [pytest.param(*change, id=f"{index}-{change[0]}") for index, change in enumerate(CHANGES)],
)
def test_the_comparison_can_fail(
    name: str, reach: Callable[[Schema], Any], change: Callable[[Any], Any]
) -> None:
    changed = copy.deepcopy(json_schema())
    change(reach(changed))
    assert normal_definitions(changed)[name] != ours()[name]


def test_the_document_is_a_schema_with_words() -> None:
    document = json_schema()
    jsonschema.Draft202012Validator.check_schema(document)
    json.dumps(document, allow_nan=False)
    for name, schema in document["$defs"].items():
        if schema.get("type") == "object" and schema.get("properties"):
            assert schema["description"].endswith("."), name
    assert all(kind in _KINDS for kind in _types_in(document))


def _types_in(schema: Any) -> list[str]:
    found = []
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str) and schema["type"] != "null":
            found.append(schema["type"])
        for value in schema.values():
            found += _types_in(value)
    elif isinstance(schema, list):
        for value in schema:
            found += _types_in(value)
    return found


@cache
def _validator(name: str, own: bool) -> jsonschema.Draft202012Validator:
    document = json_schema() if own else published()
    return jsonschema.Draft202012Validator(
        {"$ref": f"#/$defs/{name}", "$defs": document["$defs"]},
    )


def _valid(name: str, raw: Any, *, own: bool = True) -> bool:
    return bool(_validator(name, own).is_valid(raw))


def test_documents_are_judged_by_it() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
    message = {"role": "assistant", "id": "m", "toolCalls": [call]}
    assert _valid("Message", message)
    assert not _valid("Message", {**message, "role": "narrator"})
    assert not _valid("Message", {**message, "toolCalls": [{**call, "type": "other"}]})
    assert _valid("Event", {"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "/a"}]})
    assert not _valid("Event", {"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "a"}]})
    assert not _valid("Event", {"type": "STATE_DELTA"})


def test_published_documents_are_judged_right_by_it() -> None:
    seen = 0
    for path in shared("spec/fixtures").glob("*/*/*.json"):
        raw = json.loads(path.read_text(encoding="utf-8"))
        assert _valid(path.parts[-3], raw) is (path.parts[-2] == "valid"), path
        seen += 1
    assert seen > 200


@pytest.mark.unmeasured
@settings(deadline=None, max_examples=250)
@given(mutated_events())
def test_decoding_and_the_schema_agree(raw: dict[str, Any]) -> None:
    """PROC-3: what passes unchanged is what the schema admits, of both schemas."""
    name = raw.get("type") if isinstance(raw, dict) else None
    kind = EVENTS.get(name) if isinstance(name, str) else None
    if kind is None:
        with pytest.raises(STRICT_FAILURES):
            decode_event(json.dumps(raw).encode())
        return
    valid = _valid(kind.__name__, raw)
    try:
        assert valid is _valid(kind.__name__, raw, own=False)
    except pytest.skip.Exception:
        pass  # a clone alone has only its own schema
    warnings: list[ProtocolWarning] = []
    try:
        passed = enforce_event(raw, warnings.append) is not None and not warnings
    except MalformedEvent:
        passed = False
    assert passed is valid
    try:
        decode_event(json.dumps(raw).encode())
    except STRICT_FAILURES:
        # Strictly decoded, a whole number has to be written as one.
        assert not valid or any(isinstance(number, float) for number in _leaves(raw))
    else:
        assert valid


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]
