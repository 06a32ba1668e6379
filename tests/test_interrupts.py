"""Answers to interrupts: coverage, expiry, and the form that the agent asked for."""

import inspect
import socket
import sys
from datetime import UTC, datetime, timedelta
from time import thread_time
from typing import Any

import pytest

from aguia.client import waits_for_approval
from aguia.client.interrupts import CANCEL, check_resume, resume_entries
from aguia.protocol.common import UNSET
from aguia.protocol.errors import InvalidInput
from aguia.protocol.input import ResumeEntry
from aguia.protocol.outcomes import Interrupt

FORM: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "amount": {"type": "integer", "minimum": 1, "maximum": 100},
        "by": {"enum": ["card", "cash"]},
        "tags/all": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "uniqueItems": True},
    },
    "required": ["approved"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string", "minLength": 2}},
}


def asked(id_: str = "i", schema: Any = UNSET, **members: Any) -> Interrupt:
    return Interrupt(id=id_, reason="input", response_schema=schema, **members)


def resolved(payload: Any = UNSET, id_: str = "i") -> ResumeEntry:
    return ResumeEntry(interrupt_id=id_, status="resolved", payload=payload)


def cancelled(id_: str = "i") -> ResumeEntry:
    return ResumeEntry(interrupt_id=id_, status="cancelled")


def judge(payload: Any, schema: Any, **settings: Any) -> None:
    check_resume([resolved(payload)], [asked(schema=schema)], **settings)


# Entries


def test_answers_become_entries() -> None:
    """INT-2, EVT-4: `CANCEL` abandons, and None is no payload."""
    assert resume_entries(None) == []
    assert resume_entries({"a": {"n": (1, None)}, "b": CANCEL, "c": None, "d": False}) == [
        {"interruptId": "a", "status": "resolved", "payload": {"n": [1, None]}},
        {"interruptId": "b", "status": "cancelled"},
        {"interruptId": "c", "status": "resolved"},
        {"interruptId": "d", "status": "resolved", "payload": False},
    ]
    entries = [resolved()]
    assert resume_entries(entries) is entries
    assert repr(CANCEL) == "CANCEL"


@pytest.mark.parametrize("wrong", ["yes", resolved(), 5])
def test_what_is_no_list_of_answers_is_refused(wrong: Any) -> None:
    """INT-2."""
    with pytest.raises(TypeError, match="mapping of interrupt ids"):
        resume_entries(wrong)


# Coverage and expiry


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([], "'i' is open and has no answer"),
        ([resolved()], "'j' is open and has no answer"),
        ([resolved(), cancelled("j"), cancelled("j")], "answered twice"),
        ([resolved(), cancelled("j"), resolved(id_="k")], "no interrupt 'k' is open"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_every_interrupt_has_one_answer(answers: list[ResumeEntry], said: str, force: bool) -> None:
    """INT-2: whatever is forced."""
    with pytest.raises(InvalidInput, match=said) as refused:
        check_resume(answers, [asked("i"), asked("j")], force=force)
    assert (refused.value.rule, refused.value.path) == ("INT-2", "/resume")
    check_resume([cancelled("j"), resolved()], [asked("i"), asked("j")], force=force)


@pytest.mark.parametrize("schema", [UNSET, FORM])
def test_an_interrupt_is_answered_by_its_id(schema: Any) -> None:
    interrupt = asked(schema=schema)
    assert {interrupt, asked(schema=schema)} == {interrupt}
    answers: Any = {interrupt: True}
    with pytest.raises(TypeError, match="by its id, .*, and not by Interrupt"):
        resume_entries(answers)


def test_without_known_interrupts_nothing_is_compared() -> None:
    """INT-2: those of a run that another program saw are that program's to compare."""
    check_resume([resolved({"a": 1})], [])
    with pytest.raises(InvalidInput, match="twice"):
        check_resume([resolved(), cancelled()], [])


@pytest.mark.parametrize("force", [False, True])
def test_an_expired_interrupt_can_only_be_cancelled(force: bool) -> None:
    """INT-3: in UTC where no zone is named; what is no date never expires."""
    now = datetime.now(UTC)
    for past in ("2020-01-01", "2020-01-01T00:00:00Z", now.isoformat()):
        with pytest.raises(InvalidInput, match="can only be cancelled") as refused:
            check_resume([resolved()], [asked(expires_at=past)], force=force)
        assert refused.value.rule == "INT-3"
        check_resume([cancelled()], [asked(expires_at=past)], force=force)
    for ahead in ((now + timedelta(hours=1)).isoformat(), "9999-12-31", "soon", ""):
        check_resume([resolved()], [asked(expires_at=ahead)], force=force)


# The form of an answer


@pytest.mark.parametrize(
    "payload",
    [
        {"approved": True},
        {"approved": False, "amount": 100, "by": "card", "tags/all": ["ab", "cd"]},
        {"approved": False, "amount": 5.0},
    ],
)
def test_an_answer_of_the_form_asked_for_passes(payload: Any) -> None:
    """INT-7."""
    judge(payload, FORM)


@pytest.mark.parametrize(
    ("payload", "path", "said"),
    [
        ("hunter2", "", "must be of the type 'object'"),
        ({}, "", "lacks 'approved'"),
        ({"approved": "hunter2"}, "/approved", "must be of the type 'boolean'"),
        ({"approved": True, "amount": 0}, "/amount", "does not fit 'minimum': 1"),
        ({"approved": True, "by": "hunter2"}, "/by", "must be one of 'card', 'cash'"),
        (
            {"approved": True, "hunter2": 1},
            "",
            "no other members than 'approved', 'amount', 'by', 'tags/all'",
        ),
        ({"approved": True, "tags/all": ["ab", "x"]}, "/tags~1all/1", "does not fit 'minLength'"),
        ({"approved": True, "tags/all": ["ab", "ab"]}, "/tags~1all", "does not fit 'uniqueItems'"),
    ],
)
def test_an_answer_of_another_form_is_refused_with_its_place(
    payload: Any, path: str, said: str
) -> None:
    """INT-7: what was expected is said, and never the answer itself, which may be a secret."""
    with pytest.raises(InvalidInput) as refused:
        check_resume(
            [cancelled("j"), resolved(payload)], [asked(schema=FORM), asked("j", schema=False)]
        )
    assert refused.value.rule == "INT-7"
    assert refused.value.path == f"/resume/1/payload{path}"
    assert said in str(refused.value)
    assert "the answer to the interrupt 'i'" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    judge(payload, FORM, force=True)


@pytest.mark.parametrize(
    ("payload", "schema", "said"),
    [
        (1, {"const": {"a": None}}, 'must be {"a":null}'),
        (1, {"type": ["string", "null"]}, "must be of the type 'string' or 'null'"),
        ([1], {"items": False}, "does not fit 'items': false"),
        ({"a": 1}, {"properties": {"a": False}}, "has a value where none may be"),
        ({"a": 1}, {"additionalProperties": False}, "may have no members"),
        ({"a": 1}, {"additionalProperties": {"type": "string"}}, "must be of the type 'string'"),
        (1, {"not": {"type": "integer"}}, "does not fit what 'not' demands"),
        (5, {"oneOf": [{"minimum": 1}, {"minimum": 2}]}, "what 'oneOf' demands"),
        ("x", {"enum": ["y" * 500]}, "…"),
        (1, {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"}, "'string'"),
        (1, {"$schema": "http://json-schema.org/draft-04/schema", "type": "string"}, "'string'"),
        (1, {"$id": "https://a.example/b", "type": "string"}, "'string'"),
        (1, {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, "'string'"),
        (1, {"$ref": "#a", "$defs": {"a": {"$anchor": "a", "type": "string"}}}, "'string'"),
        ({"n": {"n": 1}}, {"properties": {"n": {"$ref": "#"}}, "type": "object"}, "'object'"),
        ({"id": 1}, {"properties": {"id": {"type": "string"}}}, "'string'"),
        ({"$ref": 1}, {"properties": {"$ref": {"type": "string"}}}, "'string'"),
        (1, {"type": "string", "pattern": r"^\p{L}+("}, "'string'"),
        ({"pattern": 1}, {"properties": {"pattern": {"type": "string"}}}, "'string'"),
    ],
)
def test_the_words_of_json_schema_are_understood(payload: Any, schema: Any, said: str) -> None:
    """INT-7."""
    with pytest.raises(InvalidInput) as refused:
        judge(payload, schema)
    assert refused.value.rule == "INT-7"
    assert said in str(refused.value)


def test_no_payload_is_judged_as_null() -> None:
    """INT-7, EVT-4: it is how null is said."""
    judge(UNSET, {"type": ["object", "null"]})
    judge(UNSET, {})
    with pytest.raises(InvalidInput, match="it has no payload, which stands for null") as refused:
        judge(UNSET, FORM)
    assert (refused.value.rule, refused.value.path) == ("INT-7", "/resume/0/payload")
    judge(UNSET, FORM, force=True)
    check_resume([cancelled()], [asked(schema=FORM)])


@pytest.mark.parametrize(
    "schema",
    [
        "string",
        ["a"],
        {"type": "text"},
        {"type": 5},
        {"properties": [1]},
        {"minimum": "1"},
        {"required": "a"},
        {"$schema": "https://a.example/dialect", "type": "string"},
        {"$schema": 5, "type": "string"},
        {"$schema": ["a"], "type": "string"},
        {"$schema": "http://[", "type": "string"},
        {"$ref": "#/nowhere"},
        {"$ref": "#nowhere"},
        {"$ref": "#/type", "type": ["string"]},
        {"$ref": "#/properties", "properties": {"$schema": {"type": "string"}}},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$dynamicRef": "#nowhere"},
    ],
)
def test_a_schema_that_is_none_judges_nothing(schema: Any) -> None:
    """INT-7: it is opaque, and the agent's to make sense of."""
    judge(5, schema)


def test_nothing_is_fetched_for_a_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """INT-7: a reference out of the schema makes it opaque."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    for schema in (
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "other.json#/a"},
        {"$id": "http://127.0.0.1:9/", "$ref": "schema"},
        {"properties": {"a": {"$ref": "//127.0.0.1/a"}}, "type": "string"},
        {"$dynamicRef": "http://127.0.0.1:9/schema"},
        {"$schema": "http://127.0.0.1:9/schema", "type": "string"},
        {"allOf": [{"$id": "http://127.0.0.1:9/"}], "type": "string"},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
    ):
        judge(5, schema)


def _chain(length: int) -> dict[str, Any]:
    """Each of the definitions asks for the next one twice."""
    links = {
        f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2}
        for number in range(length)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{length}": {"type": "integer"}}}


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


SLOW = "^(a+)+$"


@pytest.mark.parametrize(
    ("payload", "schema"),
    [
        pytest.param("a" * 40 + "!", {"pattern": SLOW}, id="pattern"),
        pytest.param({"a" * 40 + "!": 1}, {"patternProperties": {SLOW: False}}, id="names"),
        pytest.param(
            {"a" * 40 + "!": 1},
            {"patternProperties": {SLOW: {}}, "additionalProperties": False},
            id="other names",
        ),
        pytest.param(
            {"a" * 40 + "!": 1},
            {"patternProperties": {SLOW: {}}, "unevaluatedProperties": False},
            id="unevaluated names",
        ),
        pytest.param(
            {"a" * 40 + "!": 1}, {"propertyNames": {"pattern": SLOW}}, id="pattern for names"
        ),
        pytest.param(
            "a" * 40 + "!",
            {"allOf": [{"$schema": "http://json-schema.org/draft-07/schema#", "pattern": SLOW}]},
            id="dialect of a part",
        ),
        pytest.param(
            "a" * 40 + "!",
            {
                "$ref": "https://json-schema.org/draft/2020-12/schema",
                "$defs": {"a": {"$dynamicAnchor": "meta", "pattern": SLOW}},
            },
            id="by way of the metaschema",
        ),
        pytest.param(5, {"pattern": "(" * 5_000}, id="pattern that is none"),
        pytest.param(5, _chain(30), id="doubling references"),
        pytest.param(5, _chain(100), id="long way of references"),
        pytest.param(
            {"a": 1}, {**_chain(30), "unevaluatedProperties": False}, id="doubling, unevaluated"
        ),
        pytest.param(5, _deep(200), id="deep"),
        pytest.param(5, _deep(50_000), id="deeper than the stack"),
        pytest.param(-1, {"enum": list(range(100_000))}, id="long"),
        pytest.param(
            [{"a": number % 20_000} for number in range(20_001)],
            {"uniqueItems": True},
            id="many items",
        ),
        pytest.param(
            "x" * 1_000_000, {"anyOf": [{"type": "null"}, {"minimum": 5}] * 300}, id="large answer"
        ),
        pytest.param(10**4000, {"multipleOf": 1e-300}, id="large number"),
    ],
)
def test_a_hostile_schema_neither_hangs_nor_crashes(payload: Any, schema: Any) -> None:
    """INT-7: judging is bounded, and what can't be judged goes to the agent."""
    before = thread_time()
    judge(payload, schema)
    assert thread_time() - before < 10


def test_many_hostile_schemas_share_one_bound() -> None:
    """INT-7."""
    before = thread_time()
    schema = _chain(30)
    ids = [f"i{number}" for number in range(30)]
    check_resume([resolved(5, id_) for id_ in ids], [asked(id_, schema) for id_ in ids])
    assert thread_time() - before < 10


def test_an_answer_that_nests_deeply_does_not_crash() -> None:
    """INT-7."""
    schema = {"type": ["array", "boolean"], "items": {"$ref": "#"}}

    def nested(levels: int) -> Any:
        return [nested(levels - 1)] if levels else "x"

    for levels in range(100, 250, 10):
        judge(nested(levels), schema)
    with pytest.raises(InvalidInput, match="must be of the type 'array' or 'boolean'") as refused:
        judge(nested(20), schema)
    assert refused.value.path == "/resume/0/payload" + "/0" * 20


def test_a_caller_that_is_deep_in_its_own_stack_is_no_trouble() -> None:
    """INT-7: there is no room to judge in, so nothing is judged."""

    def call(levels: int) -> None:
        if levels:
            call(levels - 1)
        else:
            judge("x", FORM)

    call(sys.getrecursionlimit() - len(inspect.stack(0)) - 100)
    with pytest.raises(InvalidInput):
        call(20)


def test_many_unlike_items_are_told_apart() -> None:
    """INT-7: those that can't be sorted are compared one by one, up to a number."""
    items = [{"a": number} for number in range(200)]
    judge(items, {"uniqueItems": True})
    with pytest.raises(InvalidInput, match="uniqueItems"):
        judge([*items, {"a": 0}], {"uniqueItems": True})


# Calls


def test_a_call_that_an_interrupt_names_waits() -> None:
    """FRONT-4, SEC-2: it is not the application's to execute before it is answered."""
    interrupts = [asked("i"), asked("j", tool_call_id="c")]
    assert waits_for_approval("c", interrupts)
    assert not waits_for_approval("i", interrupts)
    assert not waits_for_approval("c", [])
