"""Characters that a producer cut into two surrogate halves come out whole."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguia import (
    AssistantMessage,
    CustomEvent,
    ReasoningMessageContentEvent,
    TextMessageContentEvent,
    ToolCallArgsEvent,
)
from aguia.codec.json import encode
from support_events import FINISHED, STARTED, Reader, event, frame

EAGLE, HIGH, LOW = "🦅", "\ud83e", "\udd85"

TEXT = ("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TEXT_MESSAGE_CHUNK")
TOOL = ("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_CHUNK")
REASONING = (
    "REASONING_MESSAGE_START",
    "REASONING_MESSAGE_CONTENT",
    "REASONING_MESSAGE_END",
    "REASONING_MESSAGE_CHUNK",
)
FAMILIES = pytest.mark.parametrize("family", [TEXT, TOOL, REASONING], ids=["text", "tool", "reas"])


def named(family: tuple[str, ...], id_: str) -> dict[str, str]:
    """The member that names the item."""
    return {"toolCallId": id_} if family is TOOL else {"messageId": id_}


def opener(family: tuple[str, ...], id_: str) -> dict[str, Any]:
    """What opens the item."""
    extra: dict[str, str] = {}
    if family is not TEXT:
        extra = {"toolCallName": "f"} if family is TOOL else {"role": "reasoning"}
    return event(family[0], **named(family, id_), **extra)


def streamed(
    family: tuple[str, ...], deltas: list[str], id_: str = "i", *, chunked: bool = False
) -> list[dict[str, Any]]:
    """The events of an item with these deltas."""
    if chunked:
        first = {key: value for key, value in opener(family, id_).items() if key != "role"}
        first["type"] = family[3]
        return [first, *(event(family[3], delta=delta) for delta in deltas)]
    contents = [event(family[1], **named(family, id_), delta=delta) for delta in deltas]
    return [opener(family, id_), *contents, event(family[2], **named(family, id_))]


def text_of(reader: Reader, place: int = 0) -> str:
    """The text of the message or of its call."""
    message: Any = reader.conversation.messages[place]
    if isinstance(message, AssistantMessage) and isinstance(message.tool_calls, list):
        return str(message.tool_calls[0].function.arguments)
    assert isinstance(message.content, str)
    return message.content


def deltas_of(reader: Reader) -> list[str]:
    """The deltas that were delivered."""
    return [
        each.delta
        for each in reader.delivered
        if isinstance(
            each, TextMessageContentEvent | ReasoningMessageContentEvent | ToolCallArgsEvent
        )
    ]


def read(events: list[dict[str, Any]], *, by_bytes: bool) -> Reader:
    """A reader that has read a run of these events."""
    reader = Reader(started=False)
    if by_bytes:
        reader.read(frame(STARTED, *events, FINISHED))
    else:
        reader.feed(STARTED, *events, FINISHED)
    reader.end()
    assert not reader.warnings
    return reader


@FAMILIES
@pytest.mark.parametrize("chunked", [False, True], ids=["explicit", "chunked"])
@pytest.mark.parametrize("by_bytes", [False, True], ids=["values", "bytes"])
def test_halves_are_joined(family: tuple[str, ...], chunked: bool, by_bytes: bool) -> None:
    """STREAM-2: every delta that is delivered is whole text."""
    deltas = ["a" + HIGH, LOW + "b" + HIGH, "", LOW, HIGH + LOW, "c"]
    reader = read(streamed(family, deltas, chunked=chunked), by_bytes=by_bytes)
    assert deltas_of(reader) == ["a", EAGLE + "b", "", EAGLE, EAGLE, "c"]
    assert text_of(reader) == f"a{EAGLE}b{EAGLE}{EAGLE}c"
    assert all(encode(each) for each in reader.delivered)


@FAMILIES
@pytest.mark.parametrize("chunked", [False, True], ids=["explicit", "chunked"])
@pytest.mark.parametrize("by_bytes", [False, True], ids=["values", "bytes"])
def test_a_half_that_stays_alone_is_kept(
    family: tuple[str, ...], chunked: bool, by_bytes: bool
) -> None:
    """STREAM-2: it comes before what ends the item, or with the text that follows."""
    events = streamed(family, ["a", HIGH], chunked=chunked)
    reader = read(events, by_bytes=by_bytes)
    assert deltas_of(reader) == ["a", "", HIGH]
    assert text_of(reader) == "a" + HIGH
    assert [each.type for each in reader.delivered[-4:]] == [
        *(family[1], family[1], family[2], "RUN_FINISHED"),
    ]
    alone = [HIGH, "b", LOW, HIGH, HIGH, LOW, LOW]
    reader = read(streamed(family, alone, chunked=chunked), by_bytes=by_bytes)
    assert text_of(reader) == f"{HIGH}b{LOW}{HIGH}{EAGLE}{LOW}"
    assert deltas_of(reader) == ["", HIGH + "b", LOW, "", HIGH, EAGLE, LOW]


def test_items_that_interleave_do_not_mix() -> None:
    """STREAM-3: the same id in three families and two items of one."""
    reader = Reader()
    for family in (TEXT, TOOL, REASONING):
        reader.feed(opener(family, "i"))
    reader.feed(opener(TEXT, "j"), event("TEXT_MESSAGE_CONTENT", messageId="j", delta="j" + HIGH))
    for family in (TEXT, TOOL, REASONING):
        reader.feed(event(family[1], **named(family, "i"), delta=family[0][:2] + HIGH))
    reader.feed(event("CUSTOM", name="n", value=1), event("STATE_SNAPSHOT", snapshot=HIGH))
    for family in (REASONING, TEXT, TOOL):
        reader.feed(event(family[1], **named(family, "i"), delta=LOW + "."))
        reader.feed(event(family[2], **named(family, "i")))
    reader.feed(event("TEXT_MESSAGE_CONTENT", messageId="j", delta=LOW))
    reader.feed(event("TEXT_MESSAGE_END", messageId="j"), FINISHED)
    deltas = deltas_of(reader)
    assert deltas == [
        *("j", "TE", "TO", "RE"),
        *(f"{EAGLE}.", f"{EAGLE}.", f"{EAGLE}.", EAGLE),
    ]
    assert reader.conversation.state == HIGH


def test_metadata_and_attribution_stay_with_the_delta() -> None:
    """META-1, SUB-1."""
    reader = Reader()
    tag = {"subagentRunId": "s"}
    reader.feed({**opener(TEXT, "m"), **tag})
    first, second = reader.feed(
        event("TEXT_MESSAGE_CONTENT", messageId="m", delta=HIGH, metadata={"a": 1}, **tag),
        event("TEXT_MESSAGE_CONTENT", messageId="m", delta=LOW, rawEvent=1, timestamp=5),
    )
    assert json.loads(encode(first)) == event(
        "TEXT_MESSAGE_CONTENT", messageId="m", delta="", metadata={"a": 1}, **tag
    )
    assert json.loads(encode(second)) == event(
        "TEXT_MESSAGE_CONTENT", messageId="m", delta=EAGLE, rawEvent=1, timestamp=5
    )
    reader.feed(event("TEXT_MESSAGE_CONTENT", messageId="m", delta=HIGH))
    added, _ = reader.feed(event("TEXT_MESSAGE_END", messageId="m", **tag))
    assert json.loads(encode(added)) == event("TEXT_MESSAGE_CONTENT", messageId="m", delta=HIGH)


def test_a_new_run_starts_without_halves() -> None:
    """RUN-7, RUN-12."""
    reader = Reader()
    reader.feed(opener(TEXT, "m"), event("TEXT_MESSAGE_CONTENT", messageId="m", delta="a" + HIGH))
    reader.feed(event("RUN_ERROR", message="no"), {**STARTED, "runId": "r2"})
    reader.feed(opener(TEXT, "m"), event("TEXT_MESSAGE_CONTENT", messageId="m", delta=LOW))
    reader.feed(event("TEXT_MESSAGE_END", messageId="m"))
    assert text_of(reader) == "a" + LOW


def test_an_item_that_is_reopened_starts_without_halves() -> None:
    """STREAM-4."""
    reader = Reader()
    reader.feed(*streamed(TEXT, [HIGH]), *streamed(TEXT, [LOW]))
    assert deltas_of(reader) == ["", HIGH, LOW]
    # The message itself may be read as text that joins.
    assert text_of(reader) == HIGH + LOW


def test_halves_elsewhere_are_left_alone() -> None:
    reader = Reader()
    (made,) = reader.feed(event("CUSTOM", name="n" + HIGH, value=[LOW, {HIGH: 1}]))
    assert made == CustomEvent(name="n" + HIGH, value=[LOW, {HIGH: 1}])


@pytest.mark.unmeasured
@settings(deadline=None, max_examples=300)
@given(
    st.text(st.sampled_from([EAGLE, "é", "a", "\U0010ffff", "𐀀"]), max_size=8),
    st.lists(st.integers(0, 40), max_size=6),
    st.sampled_from([TEXT, TOOL, REASONING]),
    st.booleans(),
    st.booleans(),
)
def test_text_cut_anywhere_comes_out_as_that_text(
    text: str, cuts: list[int], family: tuple[str, ...], chunked: bool, by_bytes: bool
) -> None:
    """STREAM-2: what concatenates to valid text is delivered as valid text."""
    units = text.encode("utf-16-le")
    edges = sorted(min(2 * cut, len(units)) for cut in cuts)
    deltas = [
        units[start:stop].decode("utf-16-le", "surrogatepass")
        for start, stop in zip([0, *edges], [*edges, len(units)], strict=True)
    ]
    reader = read(streamed(family, deltas, chunked=chunked), by_bytes=by_bytes)
    assert text_of(reader) == text
    assert "".join(deltas_of(reader)) == text
    assert len(deltas_of(reader)) == len(deltas)
    assert not any("\ud800" <= char <= "\udfff" for each in deltas_of(reader) for char in each)
