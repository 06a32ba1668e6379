"""The wire values: closed, immutable, never coerced, absent is `UNSET`."""

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aguia
from aguia import UNSET, InvalidInput, ProtocolWarning
from aguia.codec.json import STRICT_FAILURES, decode, decode_event, encode
from aguia.pipeline.enforcement import enforce_event, enforce_list
from aguia.protocol import common, events
from aguia.protocol.schema import DEFINITIONS, definitions
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
    shape_of,
    union_of,
)
from support import shared
from support_events import ODD_NAMES, plain_events, values_of

SHAPES: Final = definitions()

CLOSED: Final = sorted(
    name
    for name, shape in SHAPES.items()
    if isinstance(shape, ObjectShape) and not shape.open and name in DEFINITIONS
)
"""Every object that the schema closes."""


def _sample(shape: Shape, *, whole: bool) -> Any:
    """The smallest value of a shape, or one with every member."""
    match shape:
        case AnyShape():
            return None
        case NotNullShape():
            return [None, {"a": None}] if whole else 0
        case MapShape():
            return {"k": None, "toString": 1} if whole else {}
        case BooleanShape():
            return False
        case IntegerShape(minimum, maximum):
            return maximum if whole else minimum
        case StringShape(None):
            return "é" if whole else ""
        case StringShape():
            return "/a~1b" if whole else ""
        case EnumShape(values):
            return values[-1 if whole else 0]
        case ConstShape(value):
            return value
        case ListShape(item, min_items):
            return [_sample(item, whole=whole) for _ in range(2 if whole else min_items)]
        case TextOrListShape(items):
            return _sample(items, whole=True) if whole else ""
        case ObjectShape(members=members):
            return {
                name: _sample(member.shape, whole=whole)
                for name, member in members.items()
                if whole or member.required
            }
        case UnionShape(options=options):
            return _sample(next(iter(options.values())), whole=whole)
    raise TypeError(shape)


def _read(name: str, raw: Any) -> Any:
    return decode(json.dumps(raw).encode(), DEFINITIONS[name])


def _refused(name: str, raw: Any) -> bool:
    try:
        _read(name, raw)
    except STRICT_FAILURES:
        return True
    return False


def _object_shape(name: str) -> ObjectShape:
    shape = SHAPES[name]
    assert isinstance(shape, ObjectShape)
    return shape


def test_there_are_31_events_and_7_messages() -> None:
    """EVT-1: every event type has a class, named by the schema."""
    assert len(events.EVENTS) == len(events.EventType) == 31
    assert list(events.EVENTS) == [kind.value for kind in events.EventType]
    assert all(kind.type == name for name, kind in events.EVENTS.items())
    assert len(aguia.Role) == 7
    assert set(union_of(aguia.Message).options) == {role.value for role in aguia.Role}


def test_every_definition_is_a_public_name() -> None:
    """A type carries the schema's name; only the fragments are composed away."""
    aliases = {"State", "Metadata", "SubagentRunId"}
    assert set(DEFINITIONS) - aliases <= {*aguia.__all__, "AttributableEvent"}


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("whole", [False, True], ids=["least", "whole"])
def test_round_trip(name: str, whole: bool) -> None:
    raw = _sample(SHAPES[name], whole=whole)
    value = _read(name, raw)
    assert isinstance(value, DEFINITIONS[name])
    assert json.loads(encode(value)) == raw
    assert decode(encode(value), DEFINITIONS[name]) == value
    if not whole:
        optional = [m for m in value.__struct_fields__ if getattr(value, m) is UNSET]
        required = sum(m.required for m in _object_shape(name).members.values())
        tagged = value.__struct_config__.tag is not None
        assert len(optional) + required == len(value.__struct_fields__) + tagged
        assert all(f"{m}=" not in repr(value) for m in optional)


@pytest.mark.parametrize("name", CLOSED)
def test_members_are_immutable(name: str) -> None:
    value = _read(name, _sample(SHAPES[name], whole=True))
    for member in value.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(value, member, UNSET)
    with pytest.raises(AttributeError):
        value.another = 1


@pytest.mark.parametrize("name", CLOSED)
def test_closed_objects_refuse_what_they_do_not_describe(name: str) -> None:
    """PROC-2: strictly decoded, so that enforcement is what removes it, with a warning."""
    raw = _sample(SHAPES[name], whole=False)
    for member in ODD_NAMES:
        assert _refused(name, {**raw, member: 1})
        warnings: list[ProtocolWarning] = []
        (kept,) = enforce_list([{**raw, member: 1}], DEFINITIONS[name], warnings.append)
        assert kept == _read(name, raw)
        pointer = member.replace("~", "~0").replace("/", "~1")
        assert [(w.rule, w.path) for w in warnings] == [("PROC-2", f"/0/{pointer}")]


@pytest.mark.parametrize("name", CLOSED)
def test_required_members_are_required(name: str) -> None:
    """PROC-3."""
    raw = _sample(SHAPES[name], whole=True)
    for member, described in _object_shape(name).members.items():
        rest = {key: value for key, value in raw.items() if key != member}
        assert _refused(name, rest) is described.required
        if described.required:
            with pytest.raises(InvalidInput, match="is required and missing") as caught:
                enforce_list([rest], DEFINITIONS[name], lambda _: None)
            assert caught.value.path == f"/0/{member}"


def _wrong_values(shape: Shape) -> list[Any]:
    """Values of each other JSON type, and those just out of bounds."""
    all_kinds: list[Any] = [None, True, 7.5, "x", [], {}]
    match shape:
        case AnyShape():
            return []
        case NotNullShape():
            return [None]
        case BooleanShape():
            return [None, 0, 1, "true", [], {}]
        case IntegerShape(minimum, maximum):
            return [None, True, 7.5, "1", [], {}, minimum - 1, maximum + 1]
        case ConstShape():
            return [None, True, 7, "x", [], {}]
        case StringShape(None):
            return [None, True, 7, [], {}]
        case StringShape():
            return [None, True, 7, [], {}, "a", "/~", "/~2", "\n"]
        case EnumShape():
            return [None, True, 7, [], {}]
        case ListShape(min_items=least):
            return [None, True, 7, "x", {}, [7.5], *([[]] if least else [])]
        case TextOrListShape():
            return [None, True, 7, {}, [7.5]]
        case MapShape() | ObjectShape() | UnionShape():
            return [kind for kind in all_kinds if kind != {}]
    raise TypeError(shape)


@pytest.mark.parametrize("name", CLOSED)
def test_no_member_takes_a_wrong_value_and_none_is_coerced(name: str) -> None:
    """PROC-3, EVT-4: wrong types, bounds and whole nulls are malformed, with a path."""
    raw = _sample(SHAPES[name], whole=True)
    discriminator = _object_shape(name).discriminator
    for member, described in _object_shape(name).members.items():
        for wrong in _wrong_values(described.shape):
            if discriminator and member == discriminator[0] and isinstance(wrong, str):
                continue  # another member of the union, or of none: judged where unions are
            changed = {**raw, member: wrong}
            assert _refused(name, changed), (member, wrong)
            with pytest.raises(InvalidInput) as caught:
                enforce_list([changed], DEFINITIONS[name], lambda _: None)
            assert caught.value.rule == "PROC-3"
            assert (caught.value.path or "").startswith(f"/0/{member}"), (member, wrong)


@pytest.mark.parametrize("name", ["TextMessageStartEvent", "ReasoningEncryptedValueEvent"])
def test_an_enum_refuses_what_it_does_not_name(name: str) -> None:
    """PROC-5."""
    raw = _sample(SHAPES[name], whole=True)
    for member, described in _object_shape(name).members.items():
        if isinstance(described.shape, EnumShape):
            assert _refused(name, {**raw, member: "nobody"})


@pytest.mark.unmeasured
@settings(deadline=None, max_examples=150)
@given(plain_events())
def test_random_events_round_trip(raw: dict[str, Any]) -> None:
    value = decode_event(json.dumps(raw).encode())
    assert json.loads(encode(value)) == raw
    assert decode_event(encode(value)) == value
    assert msgspec.convert(raw, aguia.Event) == value


@pytest.mark.unmeasured
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_random_values_of_every_definition_round_trip(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(CLOSED))
    raw = data.draw(values_of(SHAPES[name]))
    assert json.loads(encode(_read(name, raw))) == raw


def test_absent_is_unset_and_null_only_where_null_is_data() -> None:
    """EVT-4."""
    value = decode_event(b'{"type":"CUSTOM","name":"n","value":null,"metadata":{"k":null}}')
    assert isinstance(value, aguia.CustomEvent)
    assert value.value is None
    assert value.metadata == {"k": None}
    assert value.timestamp is UNSET
    assert value.raw_event is UNSET
    assert encode(aguia.TextMessageEndEvent(message_id="m")) == (
        b'{"type":"TEXT_MESSAGE_END","messageId":"m"}'
    )
    for type_, member in [("RAW", "event"), ("CUSTOM", "value"), ("STATE_SNAPSHOT", "snapshot")]:
        extra = {"name": "n"} if type_ == "CUSTOM" else {}
        kept = decode_event(json.dumps({"type": type_, member: None, **extra}).encode())
        assert getattr(kept, member) is None


def test_run_scoped_events_have_no_place_for_a_tag() -> None:
    """EVT-5."""
    for type_ in ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"):
        assert "subagent_run_id" not in events.EVENTS[type_].__struct_fields__
    tagged = [
        kind for kind in events.EVENTS.values() if "subagent_run_id" in kind.__struct_fields__
    ]
    assert len(tagged) == 27


def test_values_are_made_by_name_only() -> None:
    kind: Any = aguia.ToolCallArgsEvent
    with pytest.raises(TypeError):
        kind("c", "{}")
    with pytest.raises(TypeError, match="delta"):
        kind(tool_call_id="c")


def test_a_patch_is_checked_where_it_is_made() -> None:
    """STATE-3."""
    operations: Any
    for operations, said in [
        ([1], "operation 0 of the patch is not an object"),
        ([{"op": "add", "path": "", "value": 1}, {"op": "jump", "path": ""}], "operation 1"),
        ([{"op": ["add"], "path": ""}], "no known 'op'"),
        ([{"op": "remove"}], "'path'"),
        ([{"op": "remove", "path": "a"}], "'path'"),
        ([{"op": "remove", "path": "/~"}], "'path'"),
        ([{"op": "move", "path": ""}], "'from'"),
        ([{"op": "add", "path": ""}], "lacks 'value'"),
    ]:
        with pytest.raises(ValueError, match=said):
            aguia.StateDeltaEvent(delta=operations)
        with pytest.raises(ValueError, match=said):
            aguia.ActivityDeltaEvent(
                message_id="m",
                activity_type="a",
                patch=operations,
            )


def test_operations_keep_members_that_the_rfc_does_not_define() -> None:
    """PROC-6."""
    raw = b'{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/a","value":1,"why":null}]}'
    assert encode(decode_event(raw)) == raw


def test_shapes_of_what_is_no_wire_type_are_refused() -> None:
    for odd in (int, tuple[int, str], int | str, set[str]):
        with pytest.raises(TypeError, match="no shape"):
            shape_of(odd)
    with pytest.raises(TypeError, match="no union"):
        union_of(aguia.TextPart)


def test_limits_of_numbers() -> None:
    """EVT-1."""
    assert common.MAX_SAFE_INTEGER == 9007199254740991
    for edge in (common.MAX_SAFE_INTEGER, -common.MAX_SAFE_INTEGER):
        raw = {"type": "TEXT_MESSAGE_END", "messageId": "m", "timestamp": edge}
        assert decode_event(json.dumps(raw).encode()).timestamp == edge


# The documents that the specification publishes


def _fixtures(kind: str) -> list[Any]:
    try:
        folder = shared("spec/fixtures")
    except pytest.skip.Exception:
        missing = pytest.mark.skip(reason="no shared data beside the repository")
        return [pytest.param(None, id="none", marks=missing)]
    found = sorted(folder.glob(f"*/{kind}/*.json"))
    return [pytest.param(path, id=f"{path.parts[-3]}-{path.stem}") for path in found]


UNRECOGNISED: Final = {
    "AgentCapabilities/old-subagents-key": "/0/multiAgent/subAgents",
    "FileSource/reference-record": "/0/reference",
    "MessagesSnapshotEvent/role-shaped-like-a-tool-message": "/0/messages/0",
    "MessagesSnapshotEvent/role-shaped-like-an-activity-message": "/0/messages/0",
    "MessagesSnapshotEvent/role-shaped-like-an-assistant-message": "/0/messages/0",
    "MessagesSnapshotEvent/unknown-role": "/0/messages/0",
    "MultiAgentCapabilities/old-subagents-key": "/0/subAgents",
    "ReasoningEncryptedValueEvent/unknown-subtype": "/0/subtype",
    "ResumeEntry/unknown-status": "/0/status",
    "RunFinishedEvent/outcome-cancelled-carrying-interrupts": "/0/outcome/interrupts",
    "RunFinishedEvent/outcome-interrupt-carrying-pending-tool-call-ids": (
        "/0/outcome/pendingToolCallIds"
    ),
    "RunFinishedEvent/outcome-success-carrying-interrupts": "/0/outcome/interrupts",
    "StateDeltaEvent/patch-unknown-op": "/0/delta/0",
    "SubagentFinishedEvent/outcome-success-carrying-interrupt-ids": "/0/outcome/interruptIds",
    "TextMessageEndEvent/unknown-property": "/0/somethingNewer",
    "ToolCallResultEvent/content-part-unknown-type": "/0/content/0",
    "ToolMessage/content-part-unknown-type": "/0/content/0",
    "UserMessage/legacy-binary-part": "/0/content/0",
    "UserMessage/part-shaped-like-media-with-unknown-type": "/0/content/0",
    "UserMessage/part-shaped-like-text-with-unknown-type": "/0/content/0",
}
"""Invalid documents that hold something unrecognised, and what goes; the others are malformed."""


@pytest.mark.parametrize("path", _fixtures("valid"))
def test_valid_documents_are_accepted(path: Path) -> None:
    """PROC-3, EVT-4: and by the tolerant path just so, without a warning."""
    data = path.read_bytes()
    type_ = DEFINITIONS[path.parts[-3]]
    value = decode(data, type_)
    raw = json.loads(data)
    assert json.loads(encode(value)) == raw
    warnings: list[ProtocolWarning] = []
    assert enforce_list([raw], type_, warnings.append) == [value]
    assert not warnings
    if path.parts[-3].endswith("Event"):
        assert decode_event(data) == value
        assert enforce_event(raw, warnings.append) == value
        assert not warnings


@pytest.mark.parametrize("path", _fixtures("invalid"))
def test_invalid_documents_are_refused(path: Path) -> None:
    """PROC-2, PROC-3, PROC-5: and the tolerant path strips or rejects, saying where."""
    data = path.read_bytes()
    name = path.parts[-3]
    type_ = DEFINITIONS[name]
    with pytest.raises(STRICT_FAILURES):
        decode(data, type_)
    if name.endswith("Event"):
        with pytest.raises(STRICT_FAILURES):
            decode_event(data)
    warnings: list[ProtocolWarning] = []
    removed = UNRECOGNISED.get(f"{name}/{path.stem}")
    if removed is None:
        with pytest.raises(InvalidInput) as caught:
            enforce_list([json.loads(data)], type_, warnings.append)
        assert caught.value.rule == "PROC-3"
        assert (caught.value.path or "").startswith("/0/")
        assert not warnings
    else:
        for kept in enforce_list([json.loads(data)], type_, warnings.append):
            assert decode(encode(kept), type_) == kept
        assert [(warning.rule, warning.path) for warning in warnings] == [("PROC-2", removed)]
