"""What old peers are sent and how they are read: pure transformations that say what is lost."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from aguia import (
    UNSET,
    AssistantMessage,
    DataSource,
    Event,
    ImagePart,
    Interrupt,
    MalformedEvent,
    MessagesSnapshotEvent,
    ProtocolWarning,
    ReasoningMessageContentEvent,
    RunAgentInput,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    SequenceViolation,
    TextMessageContentEvent,
    TextPart,
    Tool,
    ToolCallArgsEvent,
    ToolCallResultEvent,
    ToolMessage,
    UserMessage,
)
from aguia.pipeline.downgrade import (
    downgrade_input,
    for_client_without_version,
    parse_peer_version,
    without_subagents,
)
from aguia.protocol.shapes import shape_of
from aguia.server import AgentApp, Run
from support_asgi import call, input_body
from support_events import FINISHED, STARTED, Reader, event, plain_events, values_of
from support_streams import Case, well_formed

OLD = (0, 0, 39)
NO_SUBAGENTS = (0, 0, 57)
BEFORE_VERSIONS = (0, 1, 9)
NOW = (1, 0, 0)

PICTURE = ImagePart(source=DataSource(value="AAAA", mime_type="image/png"))


# Versions


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.0.39", (0, 0, 39)),
        ("0.1", (0, 1, 0)),
        ("1.0", (1, 0, 0)),
        ("1.10.2", (1, 10, 2)),
    ],
)
def test_a_peer_version_has_two_or_three_numbers(text: str, version: tuple[int, int, int]) -> None:
    assert parse_peer_version(text) == version


@pytest.mark.parametrize(
    "text", ["", "1", "1.0.0.0", "v1.0", "1.0-rc1", " 1.0", "1.", "\u0661.\u0660"]
)
def test_any_other_text_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="write it as 0.0.39 or 1.0"):
        parse_peer_version(text)


# What is sent


def sent(input: RunAgentInput, peer: tuple[int, int, int]) -> tuple[RunAgentInput, list[str]]:
    warnings: list[ProtocolWarning] = []
    result = downgrade_input(input, peer, warnings.append)
    assert {warning.rule for warning in warnings} <= {"VER-3"}
    return result, [str(warning) for warning in warnings]


def an_input(*messages: Any, **members: Any) -> RunAgentInput:
    return RunAgentInput(
        thread_id="t", run_id="r", protocol_version="1.0", messages=list(messages), **members
    )


TALK = (
    UserMessage(id="u", content=[TextPart(text="What is "), PICTURE, TextPart(text="this?")]),
    AssistantMessage(id="a", subagent_run_id="s"),
    ToolMessage(id="x", tool_call_id="c", content=[PICTURE]),
)


@pytest.mark.parametrize("peer", [OLD, NO_SUBAGENTS, BEFORE_VERSIONS])
def test_no_version_is_declared_to_a_peer_from_before_versions(peer: tuple[int, int, int]) -> None:
    """VER-1."""
    assert sent(an_input(), peer) == (RunAgentInput(thread_id="t", run_id="r", messages=[]), [])


def test_a_current_peer_is_sent_what_is_there() -> None:
    """VER-3: nothing is guessed downward."""
    given = an_input(*TALK, parent_run_id="p")
    assert sent(given, NOW)[0] is given
    assert sent(given, (1, 3, 0)) == (given, [])


def test_tags_go_without_a_word_for_a_peer_from_before_subagents() -> None:
    """VER-3, SUB-1: lossless, since the events flatten into one thread."""
    result, warnings = sent(an_input(*TALK), NO_SUBAGENTS)
    assert warnings == []
    assert [message.subagent_run_id for message in result.messages] == [UNSET] * 3
    assert result.messages[0] is TALK[0]
    assert sent(an_input(*TALK), (0, 0, 58))[0].messages == list(TALK)


def test_parts_become_text_for_a_peer_that_knows_nothing_else() -> None:
    """VER-3: the parts that are lost are named, with their place and what to do."""
    result, warnings = sent(an_input(*TALK, parent_run_id="p"), OLD)
    assert result == RunAgentInput(
        thread_id="t",
        run_id="r",
        messages=[
            UserMessage(id="u", content="What is this?"),
            AssistantMessage(id="a", content=""),
            ToolMessage(id="x", tool_call_id="c", content=""),
        ],
    )
    assert ["'/messages/0/content'" in warnings[0], "'/messages/2/content'" in warnings[1]] == [
        True,
        True,
    ]
    assert "lost: image" in warnings[0]
    assert "upgraded" in warnings[0]
    assert len(warnings) == 2


def test_parts_that_are_all_text_lose_nothing() -> None:
    """VER-3: and so nothing is said; what text parts carry beside their text is a loss."""
    plain = UserMessage(id="u", content=[TextPart(text="a"), TextPart(text="b")])
    assert sent(an_input(plain), OLD)[1] == []
    marked = UserMessage(id="u", content=[TextPart(text="a", metadata={"page": 1})])
    result, warnings = sent(an_input(marked), OLD)
    assert result.messages[0].content == "a"
    assert "metadata" in warnings[0]


@pytest.mark.unmeasured
@settings(max_examples=150, deadline=None)
@given(values_of(shape_of(RunAgentInput)))
def test_a_downgraded_input_is_valid_and_downgrades_no_further(plain: dict[str, Any]) -> None:
    """VER-3: idempotent, pure, ids and order kept."""
    given = msgspec.convert(plain, RunAgentInput)
    for peer in (OLD, NO_SUBAGENTS, BEFORE_VERSIONS, NOW):
        result, _ = sent(given, peer)
        assert sent(result, peer) == (result, [])
        assert msgspec.convert(msgspec.to_builtins(result), RunAgentInput) == result
        assert [m.id for m in result.messages] == [m.id for m in given.messages]
        assert [m.role for m in result.messages] == [m.role for m in given.messages]
    assert msgspec.convert(plain, RunAgentInput) == given


# Reading a peer from before subagents


def plain_reader(**options: Any) -> Reader:
    return Reader(peer_version="0.0.57", **options)


def test_the_events_of_subagents_are_dropped_and_said_so() -> None:
    """VER-3."""
    reader = plain_reader()
    assert (
        reader.feed(
            event("SUBAGENT_STARTED", subagentRunId="s", name="helper"),
            event("SUBAGENT_FINISHED", subagentRunId="s"),
            event("SUBAGENT_STARTED", subagentRunId="s2", name="helper", unknown=1),
            event("SUBAGENT_ERROR", subagentRunId="s2", message="broke"),
        )
        == []
    )
    assert [(w.rule, w.event_type) for w in reader.warnings] == [
        ("VER-3", "SUBAGENT_STARTED"),
        ("VER-3", "SUBAGENT_FINISHED"),
        ("VER-3", "SUBAGENT_STARTED"),
        ("VER-3", "SUBAGENT_ERROR"),
    ]
    assert "dropping SUBAGENT_STARTED" in reader.warnings[0].message


@pytest.mark.parametrize("raw", [False, True], ids=["typed", "raw"])
def test_tags_are_taken_off_everywhere(raw: bool) -> None:
    """VER-3: on events, in snapshots, echoed inputs and interrupts; without a warning."""
    extra = {"unknown": 1} if raw else {}
    tagged = {"id": "m", "role": "assistant", "content": "hi", "subagentRunId": "s"}
    echo = {"threadId": "t", "runId": "r", "messages": [{**tagged, "id": "echo"}]}
    reader = plain_reader(started=False)
    reader.feed(
        {**STARTED, "input": echo, **extra},
        event("TEXT_MESSAGE_START", messageId="n", subagentRunId="s", **extra),
        event("TEXT_MESSAGE_CONTENT", messageId="n", delta="x", subagentRunId="s"),
        event("TEXT_MESSAGE_END", messageId="n", **extra),
        event("MESSAGES_SNAPSHOT", messages=[tagged], **extra),
        event("STATE_SNAPSHOT", snapshot={"subagentRunId": "s"}, subagentRunId="s", **extra),
        {
            **FINISHED,
            "outcome": {
                "type": "interrupt",
                "interrupts": [{"id": "i", "reason": "ask", "subagentRunId": "s"}],
            },
            **extra,
        },
    )
    text = json.dumps([msgspec.to_builtins(each) for each in reader.delivered])
    assert text.count("subagentRunId") == 1
    assert reader.conversation.state == {"subagentRunId": "s"}
    assert {warning.rule for warning in reader.warnings} == ({"PROC-2"} if raw else set())


def test_a_malformed_tag_is_not_repaired() -> None:
    """VER-3, PROC-3."""
    with pytest.raises(MalformedEvent) as caught:
        plain_reader().feed(event("CUSTOM", name="n", value=1, subagentRunId=None))
    assert caught.value.path == "/subagentRunId"


@pytest.mark.parametrize("kind", [[], {}, None, 5, True])
def test_what_has_no_type_is_left_to_enforcement(kind: Any) -> None:
    with pytest.raises(MalformedEvent) as caught:
        plain_reader().feed({"type": kind})
    assert caught.value.path == "/type"


def test_what_a_tag_alone_tells_of_chunks_is_not_lost() -> None:
    """VER-3, CHUNK-7: two subagents in parallel, told apart by their tags."""
    reader = plain_reader()
    reader.feed(
        event("TEXT_MESSAGE_CHUNK", messageId="one", delta="1", subagentRunId="s1"),
        event("TEXT_MESSAGE_CHUNK", messageId="two", delta="2", subagentRunId="s2"),
        event("TEXT_MESSAGE_CHUNK", delta="a", subagentRunId="s1"),
        event("TEXT_MESSAGE_CHUNK", delta="b", subagentRunId="s2", unknown=1),
        event("RAW", event=1, unknown=1),
        event("TEXT_MESSAGE_CHUNK", delta="c", subagentRunId="s1"),
        event("CUSTOM", name="n", value=1, subagentRunId="s2", unknown=1),
        FINISHED,
    )
    assert [(m.id, m.content) for m in reader.conversation.messages] == [
        ("one", "1ac"),
        ("two", "2b"),
    ]
    kinds = [each.type for each in reader.delivered]
    assert kinds.index("TEXT_MESSAGE_END") == kinds.index("CUSTOM") - 1


@pytest.mark.parametrize(
    ("chunk", "error"),
    [
        (event("TEXT_MESSAGE_CHUNK", delta="x"), SequenceViolation),
        (event("TEXT_MESSAGE_CHUNK", messageId="m", delta=5), MalformedEvent),
    ],
)
def test_a_chunk_that_no_stage_admits_is_refused(
    chunk: dict[str, Any], error: type[Exception]
) -> None:
    """PROC-9, CHUNK-2."""
    with pytest.raises(error, match="event 1 TEXT_MESSAGE_CHUNK"):
        plain_reader().feed(chunk)


def test_a_malformed_event_between_chunks_is_refused_as_ever() -> None:
    """PROC-3."""
    reader = plain_reader()
    reader.feed(event("TEXT_MESSAGE_CHUNK", messageId="m", delta="x"))
    with pytest.raises(MalformedEvent) as caught:
        reader.feed(event("CUSTOM", value=1))
    assert caught.value.path == "/name"


def test_a_chunk_of_unknown_type_is_dropped() -> None:
    """PROC-1 and PROC-4, in this stage as in any."""
    reader = plain_reader()
    reader.feed(event("TEXT_MESSAGE_CHUNK", messageId="m", delta="x"))
    assert reader.feed({"type": "NEW"}) == []
    assert reader.rules == ["PROC-1"]


def test_steps_of_one_name_become_one_step() -> None:
    """VER-3, RUN-14: without owners a step of this name is open as long as any was."""
    reader = plain_reader()
    steps = [("STARTED", "a"), ("STARTED", "b"), ("FINISHED", "a"), ("FINISHED", "b")]
    reader.feed(
        *(event(f"STEP_{what}", stepName="s", subagentRunId=owner) for what, owner in steps),
        event("STEP_STARTED", stepName="s"),
        event("STEP_FINISHED", stepName="s"),
        FINISHED,
    )
    kinds = [each.type for each in reader.delivered[1:]]
    assert kinds == ["STEP_STARTED", "STEP_FINISHED"] * 2 + ["RUN_FINISHED"]
    assert [warning.event_type for warning in reader.warnings] == ["STEP_STARTED", "STEP_FINISHED"]


def test_a_step_that_is_opened_twice_is_still_refused() -> None:
    """VER-3, RUN-14: a downgrade hides no defect."""
    reader = plain_reader()
    step = event("STEP_STARTED", stepName="s", subagentRunId="a")
    with pytest.raises(SequenceViolation):
        reader.feed(step, step)


def test_the_downgrade_stands_before_a_programs_own_middleware() -> None:
    seen: list[Any] = []

    def look(item: Any) -> Any:
        seen.append(item)
        return item

    reader = plain_reader(middleware=[look])
    reader.feed(
        event("SUBAGENT_STARTED", subagentRunId="s", name="helper"),
        event("CUSTOM", name="n", value=1, subagentRunId="s"),
    )
    assert len(seen) == 2
    assert seen[1].subagent_run_id is UNSET


def test_a_peer_that_knows_subagents_is_read_as_it_is() -> None:
    assert without_subagents((0, 0, 58), _never) is None
    assert without_subagents(NOW, _never) is None


@pytest.mark.parametrize("version", ["", "latest"])
def test_a_version_that_is_none_is_a_clear_error(version: str) -> None:
    with pytest.raises(ValueError, match="is no version"):
        Reader(peer_version=version)


def _never(warning: ProtocolWarning) -> None:
    raise AssertionError(str(warning))


def _read(case: Case, **options: Any) -> Reader:
    reader = Reader(started=False, input=case.input, **options)
    reader.feed(*case.events)
    reader.end()
    return reader


def _without_tags(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_tags(item) for k, item in value.items() if k != "subagentRunId"}
    return [_without_tags(item) for item in value] if isinstance(value, list) else value


@pytest.mark.unmeasured
@pytest.mark.parametrize("seed", range(150))
def test_a_stream_with_subagents_keeps_its_meaning_without_them(seed: int) -> None:
    """VER-3: any conformant stream is accepted, with the same messages, state and outcome."""
    case = well_formed(seed)
    whole, flat = _read(case), _read(case, peer_version="0.0.57")
    now = [msgspec.to_builtins(message) for message in whole.conversation.messages]
    then = [msgspec.to_builtins(message) for message in flat.conversation.messages]
    assert then == _without_tags(now)
    assert flat.conversation.state == whole.conversation.state
    assert flat.conversation.outcome == whole.conversation.outcome
    assert flat.conversation.pending_tool_calls == whole.conversation.pending_tool_calls
    assert not any(getattr(each, "subagent_run_id", UNSET) for each in flat.delivered)


@pytest.mark.parametrize("seed", range(40))
def test_a_stream_without_subagents_is_read_as_it_is(seed: int) -> None:
    """VER-3: the downgrade changes nothing, reports nothing, and is idempotent."""
    case = well_formed(seed)
    flat = _read(case, peer_version="0.0.57")
    again = Case(case.name, case.input, [msgspec.to_builtins(each) for each in flat.delivered])
    twice = _read(again, peer_version="0.0.57")
    assert twice.delivered == flat.delivered == _read(again).delivered
    assert "VER-3" not in twice.rules


@pytest.mark.unmeasured
@settings(max_examples=200, deadline=None)
@given(plain_events())
def test_an_event_without_tags_passes_as_the_same_object(plain: dict[str, Any]) -> None:
    """VER-3."""
    given = msgspec.convert(plain, Event)
    if given.type.endswith("_CHUNK") or given.type.startswith("SUBAGENT_"):
        return
    read = without_subagents(NO_SUBAGENTS, _never)
    assert read is not None
    (once,) = read(given)  # type: ignore[misc]
    (twice,) = without_subagents(NO_SUBAGENTS, _never)(once)  # type: ignore[arg-type, misc]
    assert twice is once
    if "subagentRunId" not in json.dumps(plain):
        assert once is given


# What a client from before versions is served


def served(event: Event) -> tuple[Event | None, list[ProtocolWarning]]:
    warnings: list[ProtocolWarning] = []
    return for_client_without_version(event, warnings.append), warnings


def result(content: Any) -> ToolCallResultEvent:
    return ToolCallResultEvent(message_id="m", tool_call_id="c", content=content)


def test_the_text_parts_of_a_result_are_concatenated() -> None:
    """TOOL-10, TOOL-11: in order, and without a warning when that is all."""
    given = result([TextPart(text="a"), TextPart(text="b", id="2")])
    assert served(given) == (result("ab"), [])


def test_parts_that_are_lost_are_named_and_nothing_takes_their_place() -> None:
    """TOOL-11."""
    event, (warning,) = served(result([TextPart(text="see"), PICTURE, PICTURE]))
    assert event == result("see")
    assert (warning.rule, warning.path) == ("TOOL-11", "/content")
    assert "image, image" in warning.message
    assert served(result([PICTURE]))[0] == result("")


def test_results_in_a_snapshot_are_flattened_too() -> None:
    """TOOL-11: what a user said stays in parts, as before 1.0."""
    user = UserMessage(id="u", content=[PICTURE])
    tool = ToolMessage(id="m", tool_call_id="c", content=[TextPart(text="a"), PICTURE])
    event, (warning,) = served(MessagesSnapshotEvent(messages=[user, tool]))
    assert event == MessagesSnapshotEvent(
        messages=[user, msgspec.structs.replace(tool, content="a")]
    )
    assert warning.path == "/messages/1/content"


def test_the_calls_that_are_pending_are_not_listed() -> None:
    """FRONT-4: nothing is lost by it, so nothing is said; the outcome itself stays."""
    finished = RunFinishedEvent(thread_id="t", run_id="r")
    for outcome in (
        RunFinishedSuccessOutcome(),
        RunFinishedCancelledOutcome(),
        RunFinishedInterruptOutcome(interrupts=[Interrupt(id="i", reason="r")]),
    ):
        given = msgspec.structs.replace(finished, outcome=outcome)
        assert served(given)[0] is given
    listed = msgspec.structs.replace(
        finished, outcome=RunFinishedSuccessOutcome(pending_tool_call_ids=["c"]), result=1
    )
    expected = msgspec.structs.replace(listed, outcome=RunFinishedSuccessOutcome())
    assert served(listed) == (expected, [])


@pytest.mark.unmeasured
@settings(max_examples=200, deadline=None)
@given(plain_events())
def test_all_else_passes_as_the_same_object(plain: dict[str, Any]) -> None:
    """TOOL-11, VER-3."""
    given = msgspec.convert(plain, Event)
    once, _ = served(given)
    if once is None:
        assert plain["delta"] == ""
        return
    assert served(once) == (once, [])
    if not isinstance(given, ToolCallResultEvent | MessagesSnapshotEvent | RunFinishedEvent):
        assert once is given


@pytest.mark.parametrize("kind", [TextMessageContentEvent, ReasoningMessageContentEvent])
def test_a_delta_that_says_nothing_is_left_out(kind: Any) -> None:
    """STREAM-2: nothing is lost by it, so nothing is said; what carries something stays."""
    assert served(kind(message_id="m", delta="")) == (None, [])
    for delta in (
        kind(message_id="m", delta="x"),
        kind(message_id="m", delta="", metadata={"a": 1}),
        kind(message_id="m", delta="", raw_event={}),
    ):
        assert served(delta) == (delta, [])
    arguments = ToolCallArgsEvent(tool_call_id="c", delta="")
    assert served(arguments) == (arguments, [])


# Serving clients from before 1.0


def tool_answers(content: Any) -> Any:
    async def agent(run: Run) -> None:
        call = run.tool_call("look", tool_call_id="c")
        async with call:
            pass
        await run.emit(
            {
                "type": "TOOL_CALL_RESULT",
                "messageId": "m",
                "toolCallId": "c",
                "content": content,
            }
        )
        await run.emit(
            {
                "type": "MESSAGES_SNAPSHOT",
                "messages": [{"id": "m", "role": "tool", "toolCallId": "c", "content": content}],
            }
        )

    return agent


SEEN: list[dict[str, Any]] = [
    {"type": "text", "text": "a "},
    {"type": "image", "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"}},
    {"type": "text", "text": "cat"},
]


async def contents(app: AgentApp, **members: Any) -> tuple[Any, Any]:
    """The content of the result and of the snapshot's message, as they are on the wire."""
    connection = await call(app, body=input_body(**members))
    events = [json.loads(line[6:]) for line in connection.answer.split(b"\n\n") if line]
    assert events[0]["protocolVersion"] == "1.0"
    by_type = {each["type"]: each for each in events}
    snapshot = by_type["MESSAGES_SNAPSHOT"]["messages"][0]["content"]
    return by_type["TOOL_CALL_RESULT"]["content"], snapshot


@pytest.mark.anyio
async def test_a_client_that_declares_no_version_gets_results_as_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """VER-1, TOOL-11: and 1.0 otherwise; the log says what was lost, for the developer."""
    app = AgentApp(tool_answers(SEEN))
    assert await contents(app) == ("a cat", "a cat")
    said = [record.getMessage() for record in caplog.records if "TOOL-11" in record.getMessage()]
    assert len(said) == 2
    assert "lost: image" in said[0]
    assert "/messages/0/content" in said[1]


@pytest.mark.anyio
async def test_any_other_client_gets_the_parts(caplog: pytest.LogCaptureFixture) -> None:
    """VER-3: nothing is guessed downward, and the setting turns it off."""
    app = AgentApp(tool_answers(SEEN))
    for version in ("1.0", "1.7", "soon"):
        assert await contents(app, protocolVersion=version) == (SEEN, SEEN)
    unflattened = AgentApp(tool_answers(SEEN), flatten_for_old_clients=False)
    assert await contents(unflattened) == (SEEN, SEEN)
    assert not any("TOOL-11" in record.getMessage() for record in caplog.records)


@pytest.mark.anyio
async def test_an_old_client_is_not_told_which_calls_are_pending() -> None:
    """FRONT-3, FRONT-4: one that declares a version is."""

    async def agent(run: Run) -> None:
        await run.call("look", tool_call_id="c")

    async def outcome(**members: Any) -> Any:
        tools = [{"name": "look", "description": "Looks."}]
        connection = await call(AgentApp(agent), body=input_body(tools=tools, **members))
        return json.loads(connection.answer.split(b"\n\n")[-2][6:])["outcome"]

    assert await outcome() == {"type": "success"}
    assert await outcome(protocolVersion="1.0") == {"type": "success", "pendingToolCallIds": ["c"]}


@pytest.mark.anyio
async def test_an_old_client_is_sent_no_empty_deltas() -> None:
    """STREAM-2: however the agent says them; one that declares a version is."""

    async def agent(run: Run) -> None:
        async with run.text(message_id="m") as text:
            for delta in ("", "a", ""):
                await text.write(delta)
            run.state = {"b": 1}
            await text.write("")
            await run.emit({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": ""})

    async def deltas(**members: Any) -> list[str]:
        connection = await call(AgentApp(agent), body=input_body(**members))
        events = [json.loads(line[6:]) for line in connection.answer.split(b"\n\n") if line]
        assert [each["type"] for each in events].count("STATE_SNAPSHOT") == 1
        return [each["delta"] for each in events if each["type"] == "TEXT_MESSAGE_CONTENT"]

    assert await deltas() == ["a"]
    assert await deltas(protocolVersion="1.0") == ["", "a", "", "", ""]


@pytest.mark.anyio
async def test_results_that_are_text_are_served_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    """TOOL-11."""
    assert await contents(AgentApp(tool_answers("cat"))) == ("cat", "cat")
    assert await contents(AgentApp(tool_answers([]))) == ("", "")
    assert caplog.records == []


@pytest.mark.anyio
async def test_an_old_clients_input_is_upgraded(caplog: pytest.LogCaptureFixture) -> None:
    """VER-4, PROC-12: binary parts and tolerated nulls, with a warning, before it is judged."""
    received: list[RunAgentInput] = []

    async def agent(run: Run) -> None:
        received.append(run.input)

    part = {"type": "binary", "mimeType": "image/png", "data": "AAAA", "filename": "a.png"}
    await call(
        AgentApp(agent),
        body=input_body(
            messages=[{"id": "u", "role": "user", "content": [part]}],
            forwardedProps=None,
            tools=[{"name": "f", "description": "d", "parameters": None}],
        ),
    )
    (given,) = received
    assert given.messages == [
        UserMessage(
            id="u",
            content=[msgspec.structs.replace(PICTURE, metadata={"filename": "a.png"})],
        )
    ]
    assert given.forwarded_props is UNSET
    assert given.tools == [Tool(name="f", description="d")]
    said = [record.getMessage() for record in caplog.records]
    assert sum("VER-4" in each for each in said) == 3
