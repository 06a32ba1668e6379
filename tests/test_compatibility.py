"""The compatibility boundary: what old peers send becomes what it is called today (VER-4)."""

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguia import (
    AssistantMessage,
    Consumer,
    DocumentPart,
    ImagePart,
    MalformedEvent,
    ProtocolWarning,
    ReasoningMessage,
    SequenceViolation,
    UrlSource,
    UserMessage,
)
from aguia.pipeline.compatibility import (
    RETIRED,
    Compatibility,
    noting,
    upgrade_input,
    upgrade_message,
)
from aguia.protocol.input import RunAgentInput
from aguia.protocol.shapes import shape_of
from support_events import (
    FINISHED,
    STARTED,
    Reader,
    event,
    frame,
    mutated_events,
    plain_events,
    values_of,
)
from support_streams import well_formed


def boundary() -> tuple[Compatibility, list[ProtocolWarning]]:
    warnings: list[ProtocolWarning] = []
    return Compatibility(warnings.append), warnings


def translated(*events: dict[str, Any]) -> list[dict[str, Any]]:
    """The events that stand for these; the originals stay as they are."""
    stage, _ = boundary()
    before = copy.deepcopy(events)
    result = [stage.translate(each) for each in events]
    assert list(events) == list(before)
    return result


# Reasoning that was called thinking

THINKING = (
    event("THINKING_START"),
    event("THINKING_TEXT_MESSAGE_START"),
    event("THINKING_TEXT_MESSAGE_CONTENT", delta="Let me "),
    event("THINKING_TEXT_MESSAGE_CONTENT", delta="check."),
    event("THINKING_TEXT_MESSAGE_END"),
    event("THINKING_END"),
)


def test_thinking_becomes_reasoning() -> None:
    """VER-4: as a span and a message in it, each with one id of its own."""
    start, message, first, second, end, stop = translated(*THINKING)
    assert [each["type"] for each in (start, message, first, second, end, stop)] == [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
    ]
    assert start["messageId"] == stop["messageId"]
    assert message["messageId"] == first["messageId"] == second["messageId"] == end["messageId"]
    assert start["messageId"] != message["messageId"]
    assert message["role"] == "reasoning"


def test_thinking_builds_a_reasoning_message() -> None:
    """VER-4, twice in a run and again in the next one."""
    reader = Reader()
    reader.feed(*THINKING, *THINKING, FINISHED, STARTED, *THINKING, FINISHED)
    reader.end()
    held = list(reader.conversation.messages)
    assert [message.content for message in held] == ["Let me check."] * 3
    assert all(isinstance(message, ReasoningMessage) for message in held)
    assert len({message.id for message in held}) == 3


def test_other_members_of_thinking_stay() -> None:
    """VER-4, META-1: metadata, raw events and timestamps are carried over."""
    members = {"metadata": {"a": 1}, "rawEvent": {"b": 2}, "timestamp": 3, "unknown": 4}
    for each in THINKING:
        (result,) = translated({**each, **members})[-1:]
        assert members.items() <= result.items()


def test_each_kind_is_reported_once_a_stream() -> None:
    """VER-3 and VER-4: the warning names the shape and what to do."""
    reader = Reader()
    reader.feed(*THINKING, *THINKING)
    assert [warning.event_type for warning in reader.warnings] == [
        *("THINKING_START", "THINKING_TEXT_MESSAGE_START", "THINKING_TEXT_MESSAGE_CONTENT"),
        *("THINKING_TEXT_MESSAGE_END", "THINKING_END"),
    ]
    assert set(reader.rules) == {"VER-4"}
    assert "upgrade the agent" in str(reader.warnings[0])
    assert [warning.index for warning in reader.warnings] == [1, 2, 3, 5, 6]


def test_a_title_is_lost_and_said_so_each_time() -> None:
    """VER-3: a loss is named."""
    reader = Reader()
    for title in ("Plan", "Check"):
        reader.feed(event("THINKING_START", title=title), event("THINKING_END"))
    lost = [warning for warning in reader.warnings if warning.path == "/title"]
    assert ["'Plan'" in lost[0].message, "'Check'" in lost[1].message] == [True, True]
    assert "lost" in lost[0].message
    assert not any("removed" in warning.message for warning in reader.warnings)


@pytest.mark.parametrize("title", [5, ["a"], "x" * 500])
def test_odd_titles_are_lost_quietly_too(title: Any) -> None:
    reader = Reader()
    reader.feed(event("THINKING_START", title=title), event("THINKING_END"))
    assert [warning.path for warning in reader.warnings if warning.path] == ["/title"]
    assert all(len(warning.message) < 150 for warning in reader.warnings)


def test_a_title_that_is_null_is_no_loss() -> None:
    assert translated(event("THINKING_START", title=None))[0].keys() == {"type", "messageId"}


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        ("THINKING_TEXT_MESSAGE_CONTENT", {"delta": "x"}),
        ("THINKING_TEXT_MESSAGE_END", {}),
        ("THINKING_END", {}),
    ],
)
def test_a_continuation_of_nothing_says_what_becomes_of_it(
    kind: str, members: dict[str, Any]
) -> None:
    """VER-4, REAS-2: it gets an id, the warning names it, and it is refused with that id."""
    reader = Reader()
    with pytest.raises(SequenceViolation) as caught:
        reader.feed(event(kind, **members))
    said = next(w for w in reader.warnings if "nothing that it could continue" in w.message)
    made = re.search("'(reasoning-[0-9a-f]+)'", said.message)
    assert made is not None
    assert made[1] in caught.value.message
    assert caught.value.rule == "REAS-2"


@pytest.mark.parametrize("typed", [True, False], ids=["typed", "raw"])
def test_a_new_run_continues_nothing_of_the_one_before(typed: bool) -> None:
    """VER-4, RUN-12: also where the start needed no translation."""
    start = STARTED if typed else {**STARTED, "unknown": 1}
    reader = Reader(started=False)
    reader.feed(start, *THINKING[:3], event("RUN_ERROR", message="broke"), start)
    with pytest.raises(SequenceViolation):
        reader.feed(THINKING[2])
    assert any("nothing that it could continue" in each.message for each in reader.warnings)


def test_a_malformed_thinking_event_is_not_repaired() -> None:
    """PROC-3, VER-3."""
    reader = Reader()
    reader.feed(*THINKING[:2])
    with pytest.raises(MalformedEvent) as caught:
        reader.feed(event("THINKING_TEXT_MESSAGE_CONTENT", delta=5))
    assert caught.value.path == "/delta"


def test_other_names_that_begin_alike_pass_untouched() -> None:
    """VER-4, PROC-1."""
    odd = event("THINKING_ALOUD", title="x", rawEvent=1)
    assert translated(odd)[0] is odd
    reader = Reader()
    reader.feed(odd)
    assert reader.rules == ["PROC-1"]


# Nulls


NULLS: list[tuple[dict[str, Any], str]] = [
    (event("TOOL_CALL_START", toolCallId="c", toolCallName="f", parentMessageId=None), "p"),
    (event("TOOL_CALL_CHUNK", toolCallId="c", toolCallName="f", parentMessageId=None), "p"),
    ({**FINISHED, "outcome": None}, "outcome"),
    ({**FINISHED, "result": None}, "result"),
    (event("SUBAGENT_FINISHED", subagentRunId="s", result=None), "result"),
    (event("CUSTOM", name="n", value=None, rawEvent=None), "rawEvent"),
]


@pytest.mark.parametrize(("given", "member"), NULLS, ids=lambda value: str(value)[:40])
def test_a_null_that_was_tolerated_is_absent(given: dict[str, Any], member: str) -> None:
    """VER-4, EVT-4: with a warning that names the place."""
    stage, warnings = boundary()
    result = stage.translate(given)
    gone = given.keys() - result.keys()
    assert len(gone) == 1
    assert next(iter(gone)).startswith(member)
    assert [warning.path for warning in warnings] == [f"/{next(iter(gone))}"]
    assert given.items() >= result.items()


def test_several_nulls_of_one_event_go_together() -> None:
    """VER-4: also where a type and a null are retired at once."""
    reader = Reader()
    reader.feed(*THINKING[:5], {**THINKING[5], "rawEvent": None})
    reader.feed({**FINISHED, "outcome": None, "result": None, "rawEvent": None})
    reader.end()
    outcome = reader.conversation.outcome
    assert outcome is not None
    assert outcome.type == "success"


ECHO: dict[str, Any] = {
    **STARTED,
    "input": {
        "threadId": "t",
        "runId": "r",
        "state": {"a": None},
        "forwardedProps": None,
        "tools": [{"name": "f", "description": "d", "parameters": None}],
        "resume": [{"interruptId": "i", "status": "cancelled", "payload": None}],
        "messages": [
            {
                "id": "u",
                "role": "user",
                "content": [
                    {
                        "type": "image",
                        "source": {"type": "url", "value": "https://example.com/a"},
                        "metadata": None,
                    },
                    {"type": "binary", "mimeType": "application/pdf", "data": "AAAA"},
                ],
            }
        ],
    },
}


def test_an_echoed_input_is_translated_too() -> None:
    """VER-4: its nulls, and the parts of its messages; a null that is data stays."""
    reader = Reader(started=False)
    (started,) = reader.feed(ECHO)
    echoed = msgspec.to_builtins(started)["input"]
    assert echoed["state"] == {"a": None}
    assert "forwardedProps" not in echoed
    assert echoed["tools"] == [{"name": "f", "description": "d"}]
    assert echoed["resume"] == [{"interruptId": "i", "status": "cancelled"}]
    (message,) = reader.conversation.messages
    assert isinstance(message, UserMessage)
    assert [type(part) for part in message.content] == [ImagePart, DocumentPart]
    assert sorted(str(warning.path) for warning in reader.warnings) == [
        "/input/forwardedProps",
        "/input/messages/0/content/0/metadata",
        "/input/messages/0/content/1",
        "/input/resume/0/payload",
        "/input/tools/0/parameters",
    ]


@pytest.mark.parametrize(
    "given",
    [
        event("TEXT_MESSAGE_START", messageId="m", role=None),
        event("TEXT_MESSAGE_CHUNK", messageId=None, delta="x"),
        event("TOOL_CALL_CHUNK", toolCallId=None, toolCallName="f"),
        event("CUSTOM", name="n", value=1, metadata=None),
        event("RUN_ERROR", message="m", code=None),
        {**FINISHED, "usage": None},
    ],
    ids=lambda each: str(each)[9:60],
)
def test_any_other_null_stays_malformed(given: dict[str, Any]) -> None:
    """EVT-4, PROC-3: the boundary repairs nothing that was never described."""
    with pytest.raises(MalformedEvent):
        Reader().feed(given)


# Binary parts


def binary(**members: Any) -> dict[str, Any]:
    return {"type": "binary", **members}


def parts(*content: Any) -> tuple[list[Any], list[str]]:
    """The parts of a message after the boundary, and its warnings."""
    warnings: list[ProtocolWarning] = []
    message = {"id": "u", "role": "user", "content": list(content)}
    result = upgrade_message(message, "/messages/0", noting(warnings.append))
    return result["content"], [warning.message for warning in warnings]


@pytest.mark.parametrize(
    ("mime_type", "family"),
    [
        ("image/png", "image"),
        ("audio/wav", "audio"),
        ("video/mp4", "video"),
        ("application/pdf", "document"),
        ("text/plain", "document"),
        ("IMAGE/PNG", "image"),
        ("imagery/x", "document"),
        ("", "document"),
    ],
)
def test_a_binary_part_becomes_media_by_its_type(mime_type: str, family: str) -> None:
    """VER-4."""
    (part,), warnings = parts(binary(mimeType=mime_type, url="https://example.com/a"))
    assert part == {
        "type": family,
        "source": {"type": "url", "value": "https://example.com/a", "mimeType": mime_type},
    }
    assert len(warnings) == 1
    assert family in warnings[0]


def test_data_comes_before_a_url_and_a_file_name_goes_to_the_metadata() -> None:
    """VER-4."""
    (part,), _ = parts(binary(mimeType="image/png", data="AAAA", url="u", filename="a.png"))
    assert part == {
        "type": "image",
        "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"},
        "metadata": {"filename": "a.png"},
    }


def test_an_id_alone_cant_be_translated_and_says_so() -> None:
    """VER-4, VER-3, PROC-4: the part is removed from its list, and both are told."""
    reader = Reader()
    content = [{"type": "text", "text": "see"}, binary(mimeType="image/png", id="file-7")]
    reader.feed(
        event("MESSAGES_SNAPSHOT", messages=[{"id": "u", "role": "user", "content": content}])
    )
    said = reader.warnings[0]
    assert (said.rule, said.path) == ("VER-4", "/messages/0/content/1")
    assert "'file-7'" in said.message
    assert reader.rules == ["VER-4", "PROC-2"]
    assert len(reader.conversation.messages[0].content) == 1  # type: ignore[arg-type]


def test_an_id_beside_data_is_a_loss() -> None:
    """VER-3."""
    _, warnings = parts(binary(mimeType="image/png", data="AAAA", id="file-7"))
    assert any("'file-7'" in warning and "lost" in warning for warning in warnings)


IMAGE = {"type": "url", "value": "https://example.com/a", "mimeType": "image/png"}


@pytest.mark.parametrize("first", [True, False])
def test_a_part_that_mirrors_a_modern_one_is_dropped(first: bool) -> None:
    """VER-4: wherever it stands; agents sent both for a while."""
    modern = {"type": "image", "source": IMAGE}
    legacy = binary(mimeType="image/png", url="https://example.com/a")
    content, warnings = parts(*((legacy, modern) if first else (modern, legacy)))
    assert content == [modern]
    assert "repeats" in warnings[0]


@pytest.mark.parametrize(
    "modern",
    [
        {"type": "image", "source": {**IMAGE, "value": "https://example.com/b"}},
        {"type": "image", "source": {**IMAGE, "mimeType": "image/jpeg"}},
        {"type": "document", "source": IMAGE},
        {"type": "image", "source": IMAGE, "metadata": {"filename": "b.png"}},
        {"type": "image", "source": IMAGE},
        {"type": "image", "source": None},
        "image",
    ],
)
def test_a_part_that_says_something_else_stays(modern: Any) -> None:
    """VER-4: a file name is data, too."""
    legacy = binary(mimeType="image/png", url="https://example.com/a", filename="a.png")
    content, _ = parts(modern, legacy)
    assert len(content) == 2
    assert content[0] is modern


def test_parts_that_repeat_each_other_all_stay() -> None:
    legacy = binary(mimeType="image/png", url="https://example.com/a")
    assert len(parts(legacy, legacy)[0]) == 2


@pytest.mark.parametrize("mime_type", [None, 5, ["image/png"]])
def test_a_part_without_a_type_of_media_is_left_to_enforcement(mime_type: Any) -> None:
    part = binary(mimeType=mime_type, data="AAAA")
    assert parts(part) == ([part], [])


def test_malformed_data_is_not_repaired() -> None:
    """PROC-3, VER-3."""
    message = {"id": "u", "role": "user", "content": [binary(mimeType="image/png", data=5)]}
    with pytest.raises(MalformedEvent) as caught:
        Reader().feed(event("MESSAGES_SNAPSHOT", messages=[message]))
    assert caught.value.path == "/messages/0/content/0/source/value"


def test_a_snapshot_with_binary_parts_builds_media_messages() -> None:
    """VER-4."""
    reader = Reader()
    content = [binary(mimeType="image/png", url="https://example.com/a", filename="a.png")]
    reader.feed(
        event(
            "MESSAGES_SNAPSHOT",
            messages=[
                {"id": "u", "role": "user", "content": content},
                {"id": "a", "role": "assistant", "content": "seen"},
            ],
        )
    )
    assert list(reader.conversation.messages) == [
        UserMessage(
            id="u",
            content=[
                ImagePart(
                    source=UrlSource(value="https://example.com/a", mime_type="image/png"),
                    metadata={"filename": "a.png"},
                )
            ],
        ),
        AssistantMessage(id="a", content="seen"),
    ]


# Every way in, and nothing but the retired


@pytest.mark.parametrize("how", ["bytes", "dicts"])
def test_it_stands_on_every_way_in(how: str) -> None:
    """PROC-7, VER-4."""
    warnings: list[ProtocolWarning] = []
    consumer = Consumer(on_warning=warnings.append)
    events = [ECHO, *THINKING, {**FINISHED, "outcome": None}]
    if how == "bytes":
        list(consumer.receive(frame(*events)))
    else:
        for each in events:
            list(consumer.receive_event(each))
    list(consumer.end())
    assert len(consumer.conversation.messages) == 2
    assert {warning.rule for warning in warnings} == {"VER-4"}


def test_middleware_comes_after_it() -> None:
    """PROC-7."""
    seen: list[Any] = []

    def look(item: Any) -> Any:
        seen.append(item["type"] if isinstance(item, dict) else item.type)
        return item

    Reader(middleware=[look]).feed(*THINKING)
    assert [kind for kind in seen if "THINKING" in kind] == []


def test_every_retired_shape_of_the_registry_is_translated() -> None:
    """VER-4: each row is put to the test by its words."""
    for retired in RETIRED:
        stage, warnings = boundary()
        given = _example(retired.shape)
        result = stage.translate(given)
        assert result != given, retired.shape
        assert warnings, retired.shape
        if retired.replacement.isupper():
            assert result["type"] == retired.replacement


def _example(shape: str) -> dict[str, Any]:
    """An event with the retired shape that a row of the registry names."""
    holder, _, null = shape.removesuffix(": null").partition(".")
    match holder:
        case _ if holder.startswith("THINKING_"):
            return event(holder)
        case "rawEvent: null on any event":
            return event("CUSTOM", name="n", value=1, rawEvent=None)
        case "RunAgentInput":
            return {**STARTED, "input": {"messages": [], null: None}}
        case "Tool" | "ResumeEntry":
            member = {"Tool": "tools", "ResumeEntry": "resume"}[holder]
            return {**STARTED, "input": {"messages": [], member: [{null: None}]}}
        case _ if null:
            return event(holder, **{null: None})
    part = (
        {"type": "image", "metadata": None}
        if holder.startswith("metadata")
        else binary(mimeType="image/png", data="AAAA")
    )
    return event("MESSAGES_SNAPSHOT", messages=[{"role": "user", "content": [part]}])


@pytest.mark.unmeasured
@settings(max_examples=300, deadline=None)
@given(plain_events())
def test_what_the_schema_admits_passes_as_the_same_object(plain: dict[str, Any]) -> None:
    """VER-4: on a stream of today the boundary does nothing."""
    stage, warnings = boundary()
    assert stage.translate(plain) is plain
    assert warnings == []


@pytest.mark.unmeasured
@settings(max_examples=150, deadline=None)
@given(values_of(shape_of(RunAgentInput)))
def test_an_input_of_today_passes_as_the_same_object(plain: dict[str, Any]) -> None:
    """VER-4."""
    warnings: list[ProtocolWarning] = []
    assert upgrade_input(plain, noting(warnings.append)) is plain
    assert warnings == []


_odd = st.one_of(
    mutated_events(),
    st.sampled_from([*THINKING, ECHO, *(given for given, _ in NULLS)]),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["MESSAGES_SNAPSHOT", "RUN_STARTED", [], None, 5]),
            "messages": st.sampled_from(
                [None, [None], [{}], [{"content": [None, {}, {"type": []}, {"type": "binary"}]}]]
            ),
            "input": st.sampled_from([None, [], {"messages": 5, "tools": {}, "resume": [None]}]),
        }
    ),
)


@pytest.mark.unmeasured
@settings(max_examples=400, deadline=None)
@given(_odd)
def test_it_changes_nothing_twice_and_nothing_in_place(given_event: dict[str, Any]) -> None:
    """VER-3: idempotent and pure, whatever comes."""
    stage, _ = boundary()
    before = json.dumps(given_event)
    once = stage.translate(given_event)
    assert json.dumps(given_event) == before
    assert stage.translate(once) == once


@pytest.mark.parametrize("seed", range(60))
def test_a_conformant_stream_is_read_as_without_it(seed: int) -> None:
    """VER-4: nothing is changed, and nothing reported."""
    case = well_formed(seed)

    def read(change: Callable[[dict[str, Any]], dict[str, Any]]) -> tuple[Any, ...]:
        reader = Reader(started=False, input=case.input)
        for each in case.events:
            reader.feed(change(each))
        return reader.delivered, list(reader.conversation.messages), reader.warnings

    stage, warnings = boundary()
    assert read(stage.translate) == read(lambda plain: plain)
    assert warnings == []
