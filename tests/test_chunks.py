"""Chunk expansion: the shorthand, its lanes, and what ends it."""

import json
from typing import Any

import pytest

from aguia import SequenceViolation, TruncatedRun
from aguia.codec.json import encode
from aguia.pipeline.chunks import ChunkExpander
from aguia.pipeline.enforcement import enforce_event
from support_events import FINISHED, STARTED, Reader, event

Json = dict[str, Any]


class Lanes:
    """An expander that takes and gives plain JSON."""

    def __init__(self, *events: Json) -> None:
        self.expander = ChunkExpander()
        self.out = self.expand(*events)

    def expand(self, *events: Json) -> list[Json]:
        """What stands for these events."""
        out: list[Json] = []
        for each in events:
            typed = enforce_event(each, lambda _: None)
            assert typed is not None
            out += [json.loads(encode(made)) for made in self.expander.expand(typed)]
        return out

    def violation(self, raw: Json) -> SequenceViolation:
        """The violation that an event is."""
        with pytest.raises(SequenceViolation) as caught:
            self.expand(raw)
        assert caught.value.event_type == raw["type"]
        return caught.value


def text(id_: str | None = None, delta: str | None = None, **more: Any) -> Json:
    """A chunk of a text message; `sub` is its tag."""
    return _chunk("TEXT_MESSAGE_CHUNK", messageId=id_, delta=delta, **more)


def tool(
    id_: str | None = None, name: str | None = None, delta: str | None = None, **more: Any
) -> Json:
    """A chunk of a tool call."""
    return _chunk("TOOL_CALL_CHUNK", toolCallId=id_, toolCallName=name, delta=delta, **more)


def thought(id_: str | None = None, delta: str | None = None, **more: Any) -> Json:
    """A chunk of a reasoning message."""
    return _chunk("REASONING_MESSAGE_CHUNK", messageId=id_, delta=delta, **more)


def _chunk(type_: str, sub: str | None = None, **members: Any) -> Json:
    members["subagentRunId"] = sub
    return event(type_, **{key: value for key, value in members.items() if value is not None})


def ends(*ids: str) -> list[Json]:
    """The ends of text messages."""
    return [event("TEXT_MESSAGE_END", messageId=id_) for id_ in ids]


def test_a_text_message() -> None:
    """CHUNK-1, CHUNK-2: an absent role means assistant."""
    lanes = Lanes(text("m", "a", name="n"), text(delta="b"), text("m"), FINISHED)
    assert lanes.out == [
        event("TEXT_MESSAGE_START", messageId="m", role="assistant", name="n"),
        event("TEXT_MESSAGE_CONTENT", messageId="m", delta="a"),
        event("TEXT_MESSAGE_CONTENT", messageId="m", delta="b"),
        *ends("m"),
        FINISHED,
    ]


def test_a_tool_call() -> None:
    """CHUNK-1."""
    lanes = Lanes(
        tool("c", "f", parentMessageId="p"), tool(delta="{"), tool("c", "f", "}"), STARTED
    )
    assert lanes.out == [
        event("TOOL_CALL_START", toolCallId="c", toolCallName="f", parentMessageId="p"),
        event("TOOL_CALL_ARGS", toolCallId="c", delta="{"),
        event("TOOL_CALL_ARGS", toolCallId="c", delta="}"),
        event("TOOL_CALL_END", toolCallId="c"),
        STARTED,
    ]


def test_a_reasoning_message() -> None:
    """CHUNK-1, REAS-3."""
    lanes = Lanes(thought("r", ""), thought(delta="x"), event("RUN_ERROR", message="no"))
    assert lanes.out == [
        event("REASONING_MESSAGE_START", messageId="r", role="reasoning"),
        event("REASONING_MESSAGE_CONTENT", messageId="r", delta=""),
        event("REASONING_MESSAGE_CONTENT", messageId="r", delta="x"),
        event("REASONING_MESSAGE_END", messageId="r"),
        event("RUN_ERROR", message="no"),
    ]


@pytest.mark.parametrize(
    ("chunk", "member"),
    [
        *((text(delta="a"), "messageId"), (thought(delta="a"), "messageId")),
        *((tool(name="f"), "toolCallId"), (tool("c"), "toolCallName"), (text(), "messageId")),
        (text(delta="a", sub="s"), "messageId"),
    ],
)
def test_a_first_chunk_must_say_what_it_opens(chunk: Json, member: str) -> None:
    """CHUNK-2: no id is invented, whatever else is open."""
    for before in ([], [text("m", sub="x")] if chunk["type"] != "TEXT_MESSAGE_CHUNK" else []):
        error = Lanes(*before).violation(chunk)
        assert error.rule == "CHUNK-2"
        assert f"'{member}'" in error.message


def test_another_call_needs_its_own_name() -> None:
    """CHUNK-2, CHUNK-3."""
    assert Lanes(tool("c", "f")).violation(tool("d")).rule == "CHUNK-2"


def test_an_empty_id_is_an_id() -> None:
    """EVT-6."""
    assert Lanes(text("", "a"), text("", "b")).out[0]["messageId"] == ""


def test_another_id_closes_and_opens() -> None:
    """CHUNK-3, CHUNK-5."""
    lanes = Lanes(text("m", "a"))
    assert lanes.expand(text("n", "b")) == [
        *ends("m"),
        event("TEXT_MESSAGE_START", messageId="n", role="assistant"),
        event("TEXT_MESSAGE_CONTENT", messageId="n", delta="b"),
    ]
    assert [each["type"] for each in lanes.expand(text("m"), tool("c", "f"), thought("m"))] == [
        *("TEXT_MESSAGE_END", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "TOOL_CALL_START"),
        *("TOOL_CALL_END", "REASONING_MESSAGE_START"),
    ]


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (text("m"), {"role": "user"}),
        (text("m", role="user"), {"role": "assistant"}),
        (text("m"), {"name": "n"}),
        (text("m", name="n"), {"name": "N"}),
        (tool("c", "f"), {"toolCallName": "g"}),
        (tool("c", "f"), {"parentMessageId": "p"}),
        (tool("c", "f", parentMessageId="p"), {"parentMessageId": "q"}),
    ],
)
@pytest.mark.parametrize("by_id", [True, False])
def test_a_repeat_must_agree(first: Json, more: Json, by_id: bool) -> None:
    """CHUNK-4: also with what its opener left out."""
    named: Json = {key: first[key] for key in ("messageId", "toolCallId") if key in first}
    chunk: Json = {"type": first["type"], **(named if by_id else {}), **more}
    error = Lanes(first).violation(chunk)
    assert error.rule == "CHUNK-4"
    (member,) = more
    assert member in error.message


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (text("m"), {"role": "assistant"}),
        (text("m", role="user", name="n"), {"role": "user", "name": "n"}),
        (tool("c", "f", parentMessageId="p"), {"toolCallName": "f", "parentMessageId": "p"}),
    ],
)
def test_a_repeat_that_agrees_is_accepted(first: Json, more: Json) -> None:
    """CHUNK-4."""
    assert Lanes(first).expand({"type": first["type"], "delta": "x", **more})[0]["delta"] == "x"


IN_LANE = [
    event("TEXT_MESSAGE_START", messageId="x"),
    event("TEXT_MESSAGE_CONTENT", messageId="x", delta=""),
    event("TEXT_MESSAGE_END", messageId="x"),
    event("TOOL_CALL_START", toolCallId="x", toolCallName="f"),
    event("TOOL_CALL_ARGS", toolCallId="x", delta=""),
    event("TOOL_CALL_END", toolCallId="x"),
    event("TOOL_CALL_RESULT", messageId="x", toolCallId="y", content=""),
    event("STATE_SNAPSHOT", snapshot=1),
    event("STATE_DELTA", delta=[]),
    event("CUSTOM", name="n", value=1),
    event("STEP_STARTED", stepName="x"),
    event("STEP_FINISHED", stepName="x"),
    event("REASONING_START", messageId="x"),
    event("REASONING_END", messageId="x"),
    event("REASONING_MESSAGE_START", messageId="x", role="reasoning"),
    event("REASONING_MESSAGE_CONTENT", messageId="x", delta=""),
    event("REASONING_MESSAGE_END", messageId="x"),
]
EVERY_LANE = [
    *(STARTED, FINISHED),
    event("RUN_ERROR", message="no"),
    event("MESSAGES_SNAPSHOT", messages=[]),
]
NOTHING = [
    event("RAW", event=1),
    event("ACTIVITY_SNAPSHOT", messageId="m", activityType="a", content={}),
    event("ACTIVITY_DELTA", messageId="m", activityType="a", patch=[]),
    event("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="m", encryptedValue="x"),
    event("SUBAGENT_STARTED", subagentRunId="s", name="n"),
]


def by_type(raw: Any) -> str:
    """Name a case."""
    return str(raw["type"])


def both_lanes() -> Lanes:
    """A message of the parent's and one of a subagent's, in the making."""
    return Lanes(text("m"), text("n", sub="s"), text("o", sub="t"))


@pytest.mark.parametrize("raw", IN_LANE, ids=by_type)
def test_what_arrives_in_the_lane_ends_the_stream(raw: Json) -> None:
    """CHUNK-5: in its lane and in no other."""
    assert both_lanes().expand(raw) == [*ends("m"), raw]
    tagged = {**raw, "subagentRunId": "s"}
    (end,) = ends("n")
    assert both_lanes().expand(tagged) == [{**end, "subagentRunId": "s"}, tagged]
    other = {**raw, "subagentRunId": "nobody"}
    assert both_lanes().expand(other) == [other]


@pytest.mark.parametrize("raw", EVERY_LANE, ids=by_type)
def test_run_level_events_end_every_stream(raw: Json) -> None:
    """CHUNK-5: in opening order."""
    lanes = Lanes(text("n", sub="s"), tool("c", "f"), thought("r", sub="t"))
    out = lanes.expand(raw)
    assert [each["type"] for each in out[:-1]] == [
        *("TEXT_MESSAGE_END", "TOOL_CALL_END", "REASONING_MESSAGE_END"),
    ]
    assert [each.get("subagentRunId") for each in out[:-1]] == ["s", None, "t"]
    assert out[-1] == raw
    assert not lanes.expander.lanes


@pytest.mark.parametrize("raw", NOTHING, ids=by_type)
def test_what_stands_aside_ends_nothing(raw: Json) -> None:
    """CHUNK-6: tagged or not."""
    lanes = both_lanes()
    tagged = raw if raw["type"] == "SUBAGENT_STARTED" else {**raw, "subagentRunId": "s"}
    assert lanes.expand(raw, tagged) == [raw, tagged]
    assert lanes.expand(text(delta="x"))[0]["messageId"] == "m"


@pytest.mark.parametrize(
    "raw",
    [
        event("SUBAGENT_FINISHED", subagentRunId="s"),
        event("SUBAGENT_ERROR", subagentRunId="s", message="no"),
    ],
    ids=by_type,
)
def test_a_subagents_end_ends_its_stream(raw: Json) -> None:
    """CHUNK-5, SUB-6: and nobody else's."""
    (end,) = ends("n")
    lanes = both_lanes()
    assert lanes.expand(raw) == [{**end, "subagentRunId": "s"}, raw]
    assert sorted(map(str, lanes.expander.lanes)) == ["UNSET", "t"]
    assert lanes.expand(raw) == [raw]


def test_an_untagged_continuation_goes_to_the_parent() -> None:
    """CHUNK-7."""
    lanes = both_lanes()
    (content,) = lanes.expand(text(delta="x"))
    assert content == event("TEXT_MESSAGE_CONTENT", messageId="m", delta="x")


def test_else_to_the_sole_stream_of_its_kind() -> None:
    """CHUNK-7: and carries its owner's tag."""
    lanes = Lanes(text("n", sub="s"), tool("c", "f", sub="t"), thought("r"))
    assert lanes.expand(text(delta="x"), tool(delta="{")) == [
        event("TEXT_MESSAGE_CONTENT", messageId="n", delta="x", subagentRunId="s"),
        event("TOOL_CALL_ARGS", toolCallId="c", delta="{", subagentRunId="t"),
    ]


def test_else_it_is_ambiguous() -> None:
    """CHUNK-7."""
    lanes = Lanes(text("n", sub="s"), text("o", sub="t"), tool("c", "f"))
    assert lanes.violation(text(delta="x")).rule == "CHUNK-7"
    assert lanes.expand(text(delta="x", sub="t"))[0]["messageId"] == "o"


def test_a_tag_names_its_lane_and_no_other() -> None:
    """CHUNK-7."""
    lanes = Lanes(text("m"), text("n", sub="s"))
    assert lanes.expand(text(delta="x", sub="s"))[0]["messageId"] == "n"
    assert lanes.violation(text(delta="x", sub="t")).rule == "CHUNK-2"


def test_an_id_is_continued_where_it_is_open() -> None:
    """CHUNK-8."""
    lanes = both_lanes()
    assert lanes.expand(text("n", "x"), text("o", "y", sub="t"), text("m", "z")) == [
        event("TEXT_MESSAGE_CONTENT", messageId="n", delta="x", subagentRunId="s"),
        event("TEXT_MESSAGE_CONTENT", messageId="o", delta="y", subagentRunId="t"),
        event("TEXT_MESSAGE_CONTENT", messageId="m", delta="z"),
    ]


@pytest.mark.parametrize(("id_", "tag"), [("n", "t"), ("m", "s"), ("o", "s")])
def test_a_tag_that_disagrees_is_fatal(id_: str, tag: str) -> None:
    """CHUNK-8: with the parent's lane as well."""
    assert both_lanes().violation(text(id_, sub=tag)).rule == "CHUNK-8"


def test_the_same_id_of_another_kind_is_another_item() -> None:
    """CHUNK-8, REAS-1."""
    lanes = Lanes(text("m", sub="s"))
    assert [each["type"] for each in lanes.expand(thought("m", "x"))] == [
        *("REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"),
    ]
    assert sorted(map(str, lanes.expander.lanes)) == ["UNSET", "s"]


@pytest.mark.parametrize("place", range(len(IN_LANE)), ids=[by_type(raw) for raw in IN_LANE])
def test_an_explicit_event_with_the_id_ends_the_shorthand(place: int) -> None:
    """CHUNK-9: whatever lane it is in, if it names that kind of item."""
    raw = IN_LANE[place]
    family = raw["type"].rsplit("_", 1)[0]
    opens = {
        "TEXT_MESSAGE": text("x", sub="s"),
        "TOOL_CALL": tool("x", "f", sub="s"),
        "REASONING_MESSAGE": thought("x", sub="s"),
    }
    for kind, opener in opens.items():
        out = Lanes(opener).expand(raw)
        names_it = kind == family and raw["type"] != "TOOL_CALL_RESULT"
        assert [each["type"] for each in out] == [
            *([f"{kind}_END"] if names_it else []),
            raw["type"],
        ]
        if names_it:
            assert out[0]["subagentRunId"] == "s"


def test_mixing_forms_is_then_a_malformed_sequence() -> None:
    """CHUNK-9, STREAM-1."""
    for raw in (
        event("TEXT_MESSAGE_CONTENT", messageId="m", delta="x"),
        event("TEXT_MESSAGE_END", messageId="m"),
    ):
        reader = Reader()
        reader.feed(text("m", "a"))
        with pytest.raises(SequenceViolation) as caught:
            reader.feed(raw)
        assert caught.value.rule == "STREAM-1"
        assert reader.delivered[-1].type == "TEXT_MESSAGE_END"
    reader = Reader()
    reader.feed(event("TEXT_MESSAGE_START", messageId="m"))
    with pytest.raises(SequenceViolation) as caught:
        reader.feed(text("m", "a"))
    assert caught.value.rule == "STREAM-1"


def test_metadata_rides_on_everything_made_from_its_chunk() -> None:
    """CHUNK-10: and never on the end of what came before."""
    lanes = Lanes(text("m", "a", metadata={"k": 1}, rawEvent={"x": 1}))
    assert lanes.out == [
        event("TEXT_MESSAGE_START", messageId="m", role="assistant", metadata={"k": 1}),
        event(
            "TEXT_MESSAGE_CONTENT",
            messageId="m",
            delta="a",
            metadata={"k": 1},
            rawEvent={"x": 1},
        ),
    ]
    out = lanes.expand(tool("c", "f", "{", metadata={"k": 2}))
    assert [each.get("metadata") for each in out] == [None, {"k": 2}, {"k": 2}]
    out = lanes.expand(thought("r", "x", metadata={"k": 3}, rawEvent=3))
    assert [each.get("metadata") for each in out] == [None, {"k": 3}, {"k": 3}]
    assert [each.get("rawEvent") for each in out] == [None, None, 3]


@pytest.mark.parametrize(
    ("first", "empty"),
    [(text("m"), text()), (tool("m", "f"), tool()), (thought("m"), thought())],
)
def test_what_a_chunk_without_delta_says(first: Json, empty: Json) -> None:
    """CHUNK-10: content comes for what nothing else would carry."""
    assert len(Lanes(first).out) == 1
    assert len(Lanes({**first, "metadata": {"k": 1}}).out) == 1
    (_, content) = Lanes({**first, "rawEvent": 1}).out
    assert (content["delta"], content["rawEvent"]) == ("", 1)
    lanes = Lanes(first)
    assert lanes.expand(empty) == []
    (content,) = lanes.expand({**empty, "metadata": {"k": 1}})
    assert (content["delta"], content["metadata"]) == ("", {"k": 1})
    (content,) = lanes.expand({**empty, "rawEvent": 0})
    assert (content["delta"], content["rawEvent"]) == ("", 0)
    (content,) = lanes.expand({**empty, "delta": ""})
    assert content["delta"] == ""


def test_a_timestamp_is_the_chunks_own() -> None:
    """PROC-8."""
    lanes = Lanes(text("m", "a", timestamp=5), text(delta="b", timestamp=6))
    assert all("timestamp" not in each for each in lanes.out)


def test_the_end_of_the_stream_closes_nothing() -> None:
    """CHUNK-11, RUN-11."""
    reader = Reader()
    reader.feed(text("m", "a"))
    with pytest.raises(TruncatedRun):
        reader.end()
    assert [each.type for each in reader.delivered] == [
        *("RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"),
    ]


def test_other_events_pass_as_they_are() -> None:
    expander = ChunkExpander()
    made = enforce_event(IN_LANE[0], lambda _: None)
    assert made is not None
    assert expander.expand(made)[0] is made
