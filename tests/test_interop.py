"""Other people's types: what programs hold becomes plain JSON, and plain JSON becomes that."""

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import types
import uuid
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import ag_ui.core as official
import msgspec
import pydantic
import pytest

from aguia import TextPart, sync
from aguia.codec.json import decode_event, encode
from aguia.interop.schemas import convert, schema_of
from aguia.interop.values import plain_event, plain_value
from aguia.protocol.events import CustomEvent, TextMessageStartEvent
from aguia.protocol.messages import UserMessage
from aguia.server import InProcess, Run
from aguia.testing import assert_conformant, assert_conversation
from support_runs import record


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Fraction(float):
    pass


class Members(dict[str, Any]):
    pass


class Items(list[Any]):
    pass


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class City:
    name: str
    at: Point | None = None


class CityStruct(msgspec.Struct, rename="camel"):
    full_name: str
    at: City | None = None


class CityModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)
    full_name: str = pydantic.Field(alias="fullName")
    inside: City | None = None
    tags: set[str] = set()
    founded: datetime.date | None = None


PLAIN: list[Any] = [None, True, 0, -1.5, "ü", [], {}, {"a": [None, {"b": 1}]}]

VALUES: list[tuple[Any, Any]] = [
    *((value, value) for value in PLAIN),
    (2**70, 2**70),
    ((1, (2,)), [1, [2]]),
    (Text("x"), "x"),
    (Number(3), 3),
    (Fraction(1.5), 1.5),
    (Members(a=Text("x")), {"a": "x"}),
    (Items([Number(1)]), [1]),
    (Colour.RED, "red"),
    (Level.LOW, 1),
    ({Colour.RED: Level.LOW, Text("k"): 1}, {"red": 1, "k": 1}),
    (collections.OrderedDict(a=1), {"a": 1}),
    (types.MappingProxyType({"a": City("Faro")}), {"a": {"name": "Faro", "at": None}}),
    (Point(1, 2), [1, 2]),
    (City("Faro", Point(1, 2)), {"name": "Faro", "at": [1, 2]}),
    (CityStruct("Faro", City("Beja")), {"fullName": "Faro", "at": {"name": "Beja", "at": None}}),
    (
        CityModel(fullName="Faro", inside=City("Beja"), tags={"sea"}),
        {
            "fullName": "Faro",
            "inside": {"name": "Beja", "at": None},
            "tags": ["sea"],
            "founded": None,
        },
    ),
    ([{"deep": CityModel(fullName="Faro")}], None),
    (UserMessage(id="u", content="Hi"), {"role": "user", "id": "u", "content": "Hi"}),
    (datetime.datetime(2030, 1, 2, tzinfo=datetime.UTC), "2030-01-02T00:00:00Z"),
    (datetime.date(2030, 1, 2), "2030-01-02"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (decimal.Decimal("1.50"), "1.50"),
    ("half \ud83e", "half \ud83e"),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=lambda value: ascii(value)[:40])
def test_values_of_programs_become_plain_json(value: Any, expected: Any) -> None:
    made = plain_value(value)
    json.dumps(made)
    assert expected is None or made == expected
    assert _plain_types(made)


def _plain_types(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and _plain_types(item) for key, item in value.items())
    if type(value) is list:
        return all(map(_plain_types, value))
    return value is None or type(value) in (str, int, float, bool)


def test_a_plain_value_is_a_copy() -> None:
    value = {"list": [1]}
    made = plain_value(value)
    value["list"].append(2)
    assert made == {"list": [1]}


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _in_itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def _model_in_itself() -> Any:
    class Node(pydantic.BaseModel):
        next: Any = None

    node = Node()
    node.next = node
    return node


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        {"a": [float("-inf")]},
        {1: 2},
        {None: 1},
        {(1, 2): 3},
        object(),
        [object()],
        len,
        City,
        1j,
        _nested(300),
        _nested(50_000),
        _in_itself(),
        _model_in_itself(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_json_form_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        plain_value(value)


# Events


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            {"type": "CUSTOM", "name": "n", "value": City("Faro")},
            {"type": "CUSTOM", "name": "n", "value": {"name": "Faro", "at": None}},
        ),
        (
            types.MappingProxyType({"type": "STEP_STARTED", "stepName": "s"}),
            {"type": "STEP_STARTED", "stepName": "s"},
        ),
        (
            TextMessageStartEvent(message_id="m"),
            {"type": "TEXT_MESSAGE_START", "messageId": "m"},
        ),
        (
            CustomEvent(name="n", value=None),
            {"type": "CUSTOM", "name": "n", "value": None},
        ),
    ],
)
def test_events_become_plain_json(event: Any, expected: dict[str, Any]) -> None:
    assert plain_event(event) == expected


@pytest.mark.parametrize("event", [None, 5, "text", b"data", [], object(), int])
def test_what_is_no_event_is_refused(event: Any) -> None:
    with pytest.raises(TypeError, match="an event is"):
        plain_event(event)


PATCH: list[Any] = [
    {"op": "replace", "path": "/a", "value": None},
    {"op": "test", "path": "/a", "value": None},
    {"op": "move", "from": "/a", "path": "/b"},
    {"op": "remove", "path": "/b"},
    {"op": "add", "path": "/c", "value": {"d": None}},
]

USER = official.UserMessage(id="u", role="user", content="Hi")

OFFICIAL: list[tuple[Any, dict[str, Any]]] = [
    (
        official.RunStartedEvent(thread_id="t", run_id="r"),
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    ),
    (
        official.RunFinishedEvent(thread_id="t", run_id="r", result={"a": None}),
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "result": {"a": None}},
    ),
    (official.RunErrorEvent(message="m"), {"type": "RUN_ERROR", "message": "m"}),
    (
        official.TextMessageStartEvent(message_id="m", role="user", name="Ana"),
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "user", "name": "Ana"},
    ),
    (
        official.TextMessageContentEvent(
            message_id="m", delta="x", metadata={"a": None}, raw_event={"b": None}, timestamp=5
        ),
        {
            "type": "TEXT_MESSAGE_CONTENT",
            "messageId": "m",
            "delta": "x",
            "metadata": {"a": None},
            "rawEvent": {"b": None},
            "timestamp": 5,
        },
    ),
    (
        official.ToolCallStartEvent(tool_call_id="c", tool_call_name="f"),
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f"},
    ),
    (
        official.ToolCallResultEvent(message_id="m", tool_call_id="c", content="x"),
        {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": "x"},
    ),
    (
        official.StateSnapshotEvent(snapshot=None),
        {"type": "STATE_SNAPSHOT", "snapshot": None},
    ),
    (
        official.StateSnapshotEvent(snapshot={"a": None}),
        {"type": "STATE_SNAPSHOT", "snapshot": {"a": None}},
    ),
    (official.StateDeltaEvent(delta=PATCH), {"type": "STATE_DELTA", "delta": PATCH}),
    (
        official.ActivitySnapshotEvent(message_id="m", activity_type="T", content={"a": None}),
        {
            "type": "ACTIVITY_SNAPSHOT",
            "messageId": "m",
            "activityType": "T",
            "content": {"a": None},
        },
    ),
    (
        official.MessagesSnapshotEvent(messages=[USER]),
        {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "u", "role": "user", "content": "Hi"}]},
    ),
    (
        official.CustomEvent(name="n", value=None),
        {"type": "CUSTOM", "name": "n", "value": None},
    ),
    (
        official.CustomEvent(name="n", value=CityModel(fullName="Faro")),
        {
            "type": "CUSTOM",
            "name": "n",
            "value": {"fullName": "Faro", "inside": None, "tags": [], "founded": None},
        },
    ),
    (official.RawEvent(event=None), {"type": "RAW", "event": None}),
    (
        official.SubagentStartedEvent(subagent_run_id="s", name="n"),
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "n"},
    ),
]


@pytest.mark.parametrize(
    ("event", "expected"), OFFICIAL, ids=[type(event).__name__ for event, _ in OFFICIAL]
)
def test_models_of_the_official_package_become_the_same_json(
    event: Any, expected: dict[str, Any]
) -> None:
    """EVT-4: an optional member that is None stays away, and a null that is data is kept.

    That is also what the official encoder writes, nulls in patches apart.
    """
    plain = plain_event(event)
    # The official package sends the defaults of some members along.
    assert {**plain, **expected} == plain
    assert all(value is not None for key, value in plain.items() if key not in expected)
    decode_event(encode(plain))


def test_every_official_event_can_be_emitted() -> None:
    """Each class is one of the types that the strict decoder knows."""
    kinds = {
        model.model_fields["type"].default.value
        for name, model in vars(official).items()
        if name.endswith("Event") and name not in ("BaseEvent", "Event")
    }
    assert len(kinds) == 31


def test_models_are_read_and_judged_where_tests_take_events() -> None:
    events = [
        official.RunStartedEvent(thread_id="t", run_id="r", protocol_version="1.0"),
        official.TextMessageStartEvent(message_id="m"),
        official.TextMessageContentEvent(message_id="m", delta="Hello"),
        official.TextMessageEndEvent(message_id="m"),
        official.RunFinishedEvent(thread_id="t", run_id="r"),
    ]
    assert_conformant(events, warnings=True)
    assert_conversation(events, texts=["Hello"], outcome="success")
    with pytest.raises(AssertionError, match="STREAM-1 event 1"):
        assert_conformant([events[0], *events[2:]])


def test_a_client_takes_models_for_what_is_said_and_offered() -> None:
    seen = []

    async def agent(run: Run) -> None:
        seen.append((run.messages, run.tools))
        await run.say("Hello")

    tool = official.Tool(name="look", description="Looks.", parameters={"type": "object"})
    part = official.TextPart(type="text", text="And now?")
    with sync.Agent(InProcess(agent), messages=[USER], tools=[tool]) as client:
        client.ask(official.UserMessage(id="u-2", role="user", content="What is new?"))
        client.ask([part, "Well?"])
    (first, tools), (second, _) = seen
    assert [message.content for message in first] == ["Hi", "What is new?"]
    assert [tool.name for tool in tools] == ["look"]
    assert second[-1].content == [TextPart(text="And now?"), TextPart(text="Well?")]


# Schemas


class Choice(TypedDict):
    city: str


@pytest.mark.parametrize(
    ("type_", "value", "expected", "wrong"),
    [
        (bool, True, True, "true"),
        (int, 5, 5, 5.5),
        (str, "x", "x", 5),
        (list[int], [1], [1], ["1"]),
        (Literal["a", "b"], "a", "a", "c"),
        (Colour, "red", Colour.RED, "blue"),
        (City, {"name": "Faro"}, City("Faro"), {"name": 5}),
        (CityStruct, {"fullName": "Faro"}, CityStruct("Faro"), {"full_name": "Faro"}),
        (CityModel, {"fullName": "Faro"}, CityModel(fullName="Faro"), {}),
        (Choice, {"city": "Faro"}, {"city": "Faro"}, {}),
        (int | None, None, None, "x"),
        (Annotated[int, msgspec.Meta(ge=1)], 1, 1, 0),
        (Any, {"a": None}, {"a": None}, None),
    ],
)
def test_a_type_gives_a_schema_and_judges_values(
    type_: Any, value: Any, expected: Any, wrong: Any
) -> None:
    """INT-7."""
    schema = schema_of(type_)
    json.dumps(schema)
    assert isinstance(schema, dict)
    assert convert(value, type_) == expected
    if type_ is not Any:
        with pytest.raises(ValueError, match=r"."):
            convert(wrong, type_)


@pytest.mark.parametrize("type_", [object(), 5, "int", lambda: None, object, list[complex]])
def test_what_has_no_schema_is_told_what_has(type_: Any) -> None:
    with pytest.raises(TypeError, match=r"^[Tt]ype .* is not supported; a dataclass or .* Any"):
        schema_of(type_)


@pytest.mark.anyio
async def test_an_agent_speaks_all_of_it() -> None:
    async def agent(run: Run) -> Any:
        run.state = CityModel(fullName="Faro")
        await run.custom("com.example.city", {"city": CityStruct("Faro")})
        await run.raw(City("Faro"))
        await run.activity("CITY", {"city": CityModel(fullName="Beja")})
        async with run.tool_call("find", {"near": City("Faro"), "colour": Colour.RED}) as call:
            pass
        await call.result([official.TextPart(type="text", text="x")])
        return CityModel(fullName="Faro")

    recorded = await record(agent)
    assert recorded.terminal["result"]["fullName"] == "Faro"
    assert recorded.said[4]["type"] == "TOOL_CALL_START"
