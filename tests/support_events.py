"""Events to test with: a reader that keeps what came out, and values made from their shapes."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from hypothesis import strategies as st

from aguia import Consumer, ProtocolWarning
from aguia.protocol.events import Event
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
    union_of,
)

__all__ = [
    "FINISHED",
    "ODD_NAMES",
    "STARTED",
    "Reader",
    "call",
    "event",
    "frame",
    "json_values",
    "mutated_events",
    "plain_events",
    "text",
    "values_of",
]

STARTED: Final = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
FINISHED: Final = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}

ODD_NAMES: Final = ("__proto__", "constructor", "toString", "a/b", "m~n", "", "ä", "\n", "type2")


def event(type_: str, **members: Any) -> dict[str, Any]:
    """An event as plain JSON, its members in camelCase."""
    return {"type": type_, **members}


def text(message_id: str, *deltas: str, **start: Any) -> list[dict[str, Any]]:
    """The events of a text message."""
    return [
        event("TEXT_MESSAGE_START", messageId=message_id, **start),
        *(event("TEXT_MESSAGE_CONTENT", messageId=message_id, delta=delta) for delta in deltas),
        event("TEXT_MESSAGE_END", messageId=message_id),
    ]


def call(call_id: str, name: str, *deltas: str) -> list[dict[str, Any]]:
    """The events of a tool call."""
    return [
        event("TOOL_CALL_START", toolCallId=call_id, toolCallName=name),
        *(event("TOOL_CALL_ARGS", toolCallId=call_id, delta=delta) for delta in deltas),
        event("TOOL_CALL_END", toolCallId=call_id),
    ]


def frame(*events: Any) -> bytes:
    """Events as a body of server-sent events."""
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events)


class Reader:
    """A consumer, everything that it delivered, and everything that it warned of."""

    def __init__(self, *, started: bool = True, **options: Any) -> None:
        self.warnings: list[ProtocolWarning] = []
        self.delivered: list[Event] = []
        self.consumer = Consumer(on_warning=self.warnings.append, **options)
        self.conversation = self.consumer.conversation
        if started:
            self.feed(STARTED)

    def feed(self, *events: Any) -> list[Event]:
        """Take events and return what comes of them; what came before an error is kept."""
        start = len(self.delivered)
        for each in events:
            for delivered in self.consumer.receive_event(each):
                self.delivered.append(delivered)
        return self.delivered[start:]

    def read(self, data: bytes) -> list[Event]:
        """Take bytes and return what comes of them."""
        start = len(self.delivered)
        for delivered in self.consumer.receive(data):
            self.delivered.append(delivered)
        return self.delivered[start:]

    def end(self) -> list[Event]:
        """End the body and return what still comes."""
        start = len(self.delivered)
        for delivered in self.consumer.end():
            self.delivered.append(delivered)
        return self.delivered[start:]

    @property
    def rules(self) -> list[str]:
        """The rule of each warning."""
        return [warning.rule for warning in self.warnings]


_numbers: Final = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, -0.0, 1.0, 2**53]),
)
_text: Final = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.sampled_from(["", "a/b", "~", "\u2028", "\x00", "🦅"]),
)


def json_values(max_leaves: int = 4) -> st.SearchStrategy[Any]:
    """Any JSON value."""
    return st.recursive(
        st.one_of(st.none(), st.booleans(), _numbers, _text),
        lambda inner: st.one_of(
            st.lists(inner, max_size=2), st.dictionaries(_text, inner, max_size=2)
        ),
        max_leaves=max_leaves,
    )


_pointers: Final = st.lists(
    st.text(st.sampled_from("ab0-é\n"), max_size=3).flatmap(
        lambda text: st.sampled_from([text, text + "~0", "~1" + text])
    ),
    max_size=3,
).map(lambda tokens: "".join(f"/{token}" for token in tokens))


def values_of(shape: Shape) -> st.SearchStrategy[Any]:
    """Plain JSON that the shape admits."""
    match shape:
        case AnyShape():
            return json_values()
        case NotNullShape():
            return json_values().filter(lambda value: value is not None)
        case MapShape():
            return st.dictionaries(st.one_of(st.sampled_from(ODD_NAMES), _text), json_values(2))
        case BooleanShape():
            return st.booleans()
        case IntegerShape(minimum, maximum):
            return st.one_of(
                st.integers(minimum, maximum), st.sampled_from([minimum, maximum, max(0, minimum)])
            )
        case StringShape(None):
            return _text
        case StringShape():
            return _pointers
        case EnumShape(values):
            return st.sampled_from(values)
        case ConstShape(value):
            return st.just(value)
        case ListShape(item, min_items):
            return st.lists(values_of(item), min_size=min_items, max_size=2)
        case TextOrListShape(items):
            return st.one_of(_text, values_of(items))
        case ObjectShape(members=members):
            return st.fixed_dictionaries(
                {name: values_of(each.shape) for name, each in members.items() if each.required},
                optional={
                    name: values_of(each.shape)
                    for name, each in members.items()
                    if not each.required
                },
            )
        case UnionShape(options=options):
            return st.one_of([values_of(option) for option in options.values()])
    raise TypeError(f"no values of {shape}")


@cache
def plain_events() -> st.SearchStrategy[dict[str, Any]]:
    """Events of every type that the schema admits, as plain JSON."""
    return values_of(union_of(Event))


_ODD: Final[list[Any]] = [
    *(None, True, 0, 1.0, 1.5, -1, 2**53, 1e300, "", "nobody", "tool", "/a", "~2"),
    *([], [None], {}, {"type": "nobody"}, {"op": "increment"}, {"role": "nobody"}),
]

_odd: Final = st.sampled_from([json.dumps(value) for value in _ODD])


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
    yield above
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*above, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places(item, (*above, index))


@st.composite
def mutated_events(draw: st.DrawFn) -> dict[str, Any]:
    """Events with one to three changes at random places, which may break them or not."""
    raw: dict[str, Any] = json.loads(json.dumps(draw(plain_events())))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(list(_places(raw))))
        holder: Any = raw
        for key in place[:-1]:
            holder = holder[key]
        found = holder[place[-1]] if place else holder
        change = draw(st.sampled_from(["replace", "remove", "add"]))
        if change == "add" and isinstance(found, dict):
            found[draw(st.sampled_from(ODD_NAMES))] = json.loads(draw(_odd))
        elif change == "remove" and place:
            del holder[place[-1]]
        elif place:
            holder[place[-1]] = json.loads(draw(_odd))
    return raw
