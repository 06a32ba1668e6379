"""Middleware around whole runs, and what is ready-made of it: filter, throttle, recorder."""

import asyncio
import gc
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest

from aguia import (
    UNSET,
    Agent,
    AguiaError,
    ConnectionFailed,
    Consumer,
    CustomEvent,
    DecodeError,
    Event,
    HttpAgent,
    InputRejected,
    InvalidInput,
    MalformedEvent,
    ProtocolViolation,
    ProtocolWarning,
    RunAgentInput,
    TextMessageContentEvent,
    ToolMessage,
    TruncatedRun,
    UserMessage,
)
from aguia.client import Answer
from aguia.codec.frames import CONTENT_TYPE as PROTOBUF
from aguia.codec.frames import encode_frame
from aguia.middleware import (
    CallNext,
    Item,
    Recorded,
    Recorder,
    ToolCallFilter,
    filter_tool_calls,
    read_recording,
    throttle,
)
from aguia.pipeline.intake import Intake
from support_events import FINISHED, STARTED, Reader, event, frame
from support_streams import Case, broken, well_formed
from support_wire import SSE, Pieces, Script, reply, scripted

INPUT: Final = RunAgentInput(thread_id="t", run_id="r", messages=[])

CUSTOM: Final = event("CUSTOM", name="n", value=1)


def text(delta: str, id_: str = "m", **members: Any) -> dict[str, Any]:
    return event("TEXT_MESSAGE_CONTENT", messageId=id_, delta=delta, **members)


def message(*deltas: str, id_: str = "m") -> list[dict[str, Any]]:
    return [
        event("TEXT_MESSAGE_START", messageId=id_),
        *[text(delta, id_) for delta in deltas],
        event("TEXT_MESSAGE_END", messageId=id_),
    ]


def call(id_: str, name: str, **members: Any) -> list[dict[str, Any]]:
    return [
        event("TOOL_CALL_START", toolCallId=id_, toolCallName=name, **members),
        event("TOOL_CALL_ARGS", toolCallId=id_, delta="{}"),
        event("TOOL_CALL_END", toolCallId=id_),
    ]


def answered(id_: str) -> dict[str, Any]:
    return event("TOOL_CALL_RESULT", messageId=f"result-{id_}", toolCallId=id_, content="42")


async def collect(agent: HttpAgent, content: Any = "Hi", **options: Any) -> list[Event]:
    return [each async for each in agent.run(content, **options)]


async def through(middleware: Any, *steps: Any) -> list[Any]:
    """What a run middleware makes of events; a number among them is a pause in seconds."""

    async def call_next(input: RunAgentInput) -> AsyncIterator[Item]:
        for step in steps:
            if isinstance(step, int | float):
                await asyncio.sleep(step)
            elif isinstance(step, Exception):
                raise step
            else:
                yield typed(step)

    return [each async for each in middleware(INPUT, call_next)]


def typed(plain: Any) -> Any:
    """The event that plain JSON holds, where it fits."""
    try:
        return msgspec.convert(plain, Event)
    except msgspec.ValidationError:
        return plain


def plain(events: list[Any]) -> list[Any]:
    return [msgspec.to_builtins(each) for each in events]


# Around a run


async def nothing(input: RunAgentInput, call_next: CallNext) -> AsyncIterator[Item]:
    async for each in call_next(input):
        yield each


@pytest.mark.anyio
async def test_it_may_change_the_input() -> None:
    """The agent gets the changed input; the thread stays what the application said."""

    async def polite(input: RunAgentInput, call_next: CallNext) -> AsyncIterator[Item]:
        hint = UserMessage(id="hint", content="Be polite.")
        async for each in call_next(
            msgspec.structs.replace(input, messages=[hint, *input.messages], state={"n": 1})
        ):
            yield each

    patch = event("STATE_DELTA", delta=[{"op": "replace", "path": "/n", "value": 2}])
    script = Script(reply(patch, *message("Yes")))
    async with scripted(script, middleware=[polite]) as agent:
        await collect(agent)
        assert [m["content"] for m in script.sent[0]["messages"]] == ["Be polite.", "Hi"]
        assert [m.content for m in agent.messages] == ["Hi", "Yes"]
        assert agent.state == {"n": 2}


@pytest.mark.anyio
async def test_what_it_makes_of_the_input_is_judged_before_it_is_sent() -> None:
    """PROC-11."""

    async def confused(input: RunAgentInput, call_next: CallNext) -> AsyncIterator[Item]:
        async for each in call_next(msgspec.structs.replace(input, thread_id=5)):
            yield each

    script = Script()
    async with scripted(script, middleware=[confused]) as agent:
        with pytest.raises(InvalidInput, match="/threadId"):
            await collect(agent)
    assert script.requests == []


@pytest.mark.anyio
async def test_it_may_filter_rewrite_and_add() -> None:
    """PROC-7: what it gives is judged like what a peer sends."""
    warnings: list[ProtocolWarning] = []

    async def loud(input: RunAgentInput, call_next: CallNext) -> AsyncIterator[Item]:
        async for each in call_next(input):
            if isinstance(each, CustomEvent):
                continue
            if isinstance(each, TextMessageContentEvent):
                yield msgspec.structs.replace(each, delta=each.delta.upper())
                yield {**CUSTOM, "new": 1}
            else:
                yield each

    script = Script(reply(CUSTOM, *message("yes")))
    async with scripted(script, middleware=[loud], on_warning=warnings.append) as agent:
        events = await collect(agent)
        assert [m.content for m in agent.messages] == ["Hi", "YES"]
    assert [each.type for each in events].count("CUSTOM") == 1
    assert [warning.rule for warning in warnings] == ["PROC-2"]


@pytest.mark.anyio
async def test_what_it_gives_may_be_refused() -> None:
    """PROC-3."""

    async def wrong(input: RunAgentInput, call_next: CallNext) -> AsyncIterator[Item]:
        async for each in call_next(input):
            yield each
            yield text(5)  # type: ignore[arg-type]

    script = Script(reply())
    async with scripted(script, middleware=[wrong]) as agent:
        with pytest.raises(MalformedEvent):
            await collect(agent)


@pytest.mark.anyio
async def test_the_first_goes_around_the_others() -> None:
    """PROC-7: typed events where the strict decode succeeded, raw objects where not."""
    seen: list[tuple[str, Any]] = []

    def watch(name: str) -> Any:
        async def watching(input: RunAgentInput, call_next: CallNext) -> AsyncIterator[Item]:
            seen.append((name, "begins"))
            async for each in call_next(input):
                seen.append((name, type(each).__name__))
                yield each
            seen.append((name, "ends"))

        return watching

    script = Script(reply({"type": "NEW"}))
    async with scripted(script, middleware=[watch("outer"), watch("inner")]) as agent:
        await collect(agent)
    assert seen == [
        ("outer", "begins"),
        ("inner", "begins"),
        ("inner", "RunStartedEvent"),
        ("outer", "RunStartedEvent"),
        ("inner", "dict"),
        ("outer", "dict"),
        ("inner", "RunFinishedEvent"),
        ("outer", "RunFinishedEvent"),
        ("inner", "ends"),
        ("outer", "ends"),
    ]


@pytest.mark.anyio
async def test_it_sees_retired_shapes_translated() -> None:
    """PROC-7, VER-4: the boundary comes first, and says so with the event's number."""
    seen: list[Any] = []
    warnings: list[ProtocolWarning] = []

    async def look(input: RunAgentInput, call_next: CallNext) -> AsyncIterator[Item]:
        async for each in call_next(input):
            seen.append(each["type"] if isinstance(each, dict) else each.type)
            yield each

    script = Script(reply(event("THINKING_START"), event("THINKING_END")))
    async with scripted(script, middleware=[look], on_warning=warnings.append) as agent:
        await collect(agent)
    assert seen[1:3] == ["REASONING_START", "REASONING_END"]
    assert [(warning.rule, warning.index) for warning in warnings] == [("VER-4", 1), ("VER-4", 2)]


async def retry(input: RunAgentInput, call_next: CallNext) -> AsyncIterator[Item]:
    """Tries three times, as long as nothing has come."""
    for attempt in range(3):
        came = False
        try:
            async for each in call_next(input):
                came = True
                yield each
        except AguiaError:
            if came or attempt == 2:
                raise
        else:
            return


@pytest.mark.anyio
async def test_it_may_try_again_before_the_first_event() -> None:
    """The thread holds what was said once, however often it was tried."""
    script = Script(
        httpx.ConnectError("no"),
        httpx.Response(503, text="busy"),
        reply(*message("Yes")),
    )
    async with scripted(script, middleware=[retry]) as agent:
        await collect(agent)
        assert len(script.requests) == 3
        assert [m.content for m in agent.messages] == ["Hi", "Yes"]


@pytest.mark.anyio
async def test_an_accepted_input_stays_in_the_thread_when_nothing_came() -> None:
    """RUN-11: also one that was tried again."""
    dropped = httpx.Response(200, headers=SSE, stream=Pieces([httpx.ReadError("gone")]))
    script = Script(dropped, httpx.Response(200, headers=SSE, content=b""))
    script.add(httpx.Response(200, headers=SSE, content=b""), reply(*message("Yes")))
    async with scripted(script, middleware=[retry]) as agent:
        # An empty body ends in order, as far as middleware can see.
        with pytest.raises(TruncatedRun):
            await collect(agent)
        assert len(script.requests) == 2
        assert [m.content for m in agent.messages] == ["Hi"]


@pytest.mark.anyio
async def test_an_input_that_was_refused_does_not() -> None:
    """HTTP-4, as without middleware."""
    script = Script(httpx.Response(400, text="no"), httpx.ConnectError("no"))
    async with scripted(script, middleware=[nothing]) as agent:
        with pytest.raises(InputRejected):
            await collect(agent)
        with pytest.raises(ConnectionFailed):
            await collect(agent)
        assert list(agent.messages) == []


@pytest.mark.anyio
async def test_it_may_answer_without_the_agent() -> None:
    """A cache, say. A stream without a terminal event is truncated, whoever made it (RUN-11)."""

    async def cache(input: RunAgentInput, call_next: CallNext) -> AsyncIterator[Item]:
        run = {"threadId": input.thread_id, "runId": input.run_id}
        if input.messages[-1].content == "Hi":
            for each in ({**STARTED, **run}, *message("Cached"), {**FINISHED, **run}):
                yield each

    script = Script()
    async with scripted(script, middleware=[cache]) as agent:
        await collect(agent)
        assert [m.content for m in agent.messages] == ["Hi", "Cached"]
        with pytest.raises(TruncatedRun, match="before any event"):
            await collect(agent, "And?")
    assert script.requests == []


@pytest.mark.anyio
@pytest.mark.parametrize("pieces", [[b"data: {"], [frame(STARTED), httpx.ReadError("gone")]])
async def test_a_stream_that_breaks_off_is_truncated(pieces: list[Any]) -> None:
    """RUN-11."""
    script = Script(httpx.Response(200, headers=SSE, stream=Pieces(pieces)))
    async with scripted(script, middleware=[nothing]) as agent:
        with pytest.raises(TruncatedRun):
            await collect(agent)


@pytest.mark.anyio
async def test_what_is_no_event_is_refused_with_its_number() -> None:
    """HTTP-2."""
    script = Script(httpx.Response(200, headers=SSE, content=frame(STARTED) + b"data: {]\n\n"))
    async with scripted(script, middleware=[nothing]) as agent:
        with pytest.raises(DecodeError) as caught:
            await collect(agent)
    assert caught.value.index == 1


class _Binary:
    """A transport whose agent answers in the binary binding."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    @asynccontextmanager
    async def open(self, input: RunAgentInput) -> AsyncIterator[Answer]:
        pieces = [self.body[at : at + 5] for at in range(0, len(self.body), 5)]
        yield Answer(PROTOBUF, aiter(Pieces(pieces)))

    async def close(self) -> None:
        pass


@pytest.mark.anyio
async def test_the_binary_binding_goes_through_it_too() -> None:
    """PB-3: typed events, raw ones translated, and what has no name is dropped with a warning."""
    pytest.importorskip("google.protobuf")
    from aguia.codec import protobuf

    seen: list[Any] = []
    warnings: list[ProtocolWarning] = []

    async def look(input: RunAgentInput, call_next: CallNext) -> AsyncIterator[Item]:
        async for each in call_next(input):
            seen.append(each)
            yield each

    start, finish = typed(STARTED), typed(FINISHED)
    unnamed = b"\xfa\x7f\x00"
    frames_ = [protobuf.encode_event(each) for each in (start, finish)]
    body = frames_[0] + encode_frame(unnamed) + frames_[1]
    async with Agent(
        _Binary(body), thread_id="t", middleware=[look], on_warning=warnings.append
    ) as agent:
        events = [each async for each in agent.run("Hi", run_id="r")]
        assert seen == events == [start, finish]
        assert [(warning.rule, warning.index) for warning in warnings] == [("PB-2", 1)]
    async with Agent(_Binary(frames_[0] + b"\x00\x00"), thread_id="t", middleware=[look]) as agent:
        with pytest.raises(TruncatedRun):
            [_ async for _ in agent.run("Hi", run_id="r")]


def test_what_comes_in_is_limited() -> None:
    """As for a consumer: the largest event, and how deep it nests."""
    for data, why in (
        (b"data: " + b" " * 90 + b"{}\n\n", "larger than 80"),
        (b"data: " + b" " * 3000, "larger than 80"),
        (b'data: {"type":"CUSTOM","value":[[[[]]]]}\n\n', "deeper than 4"),
    ):
        intake = Intake(SSE["content-type"], print, max_event_bytes=80, max_depth=4)
        with pytest.raises(DecodeError, match=why):
            list(intake.receive(data))
    with pytest.raises(ValueError, match="can't read the content type 'text/html'"):
        Intake("text/html; charset=utf-8", print)


def test_an_event_that_the_body_ends_with_counts() -> None:
    """As for a consumer: a body may end without the blank line after its last event."""
    for tail, count in ((b"", 2), (b"\n", 2), (b"\ndata: {", 1)):
        intake = Intake(SSE["content-type"], print)
        body = frame(STARTED) + frame(CUSTOM).rstrip() + tail
        assert len([*intake.receive(body), *intake.end()]) == count
        consumer = Consumer()
        assert len(list(consumer.receive(body))) + len(_rest(consumer)) == count


def _rest(consumer: Consumer) -> list[Event]:
    """What the end of the body brings, before the run turns out to be truncated."""
    rest: list[Event] = []
    try:
        for each in consumer.end():
            rest.append(each)
    except TruncatedRun:
        pass
    return rest


def test_binary_events_that_fit_no_type_are_translated() -> None:
    """PB-3, VER-4."""
    pytest.importorskip("google.protobuf")
    from aguia.codec import protobuf

    null: Any = None
    frame_ = protobuf.encode_event(CustomEvent(name="n", value=1, raw_event=null))
    warnings: list[ProtocolWarning] = []
    (item,) = Intake(PROTOBUF, warnings.append).receive(frame_)
    assert item == CUSTOM
    assert [warning.rule for warning in warnings] == ["VER-4"]


@pytest.mark.anyio
@pytest.mark.parametrize("leave", ["early", "middleware"])
async def test_everything_is_closed_when_a_run_is_left(leave: str) -> None:
    ended: list[str] = []

    async def outer(input: RunAgentInput, call_next: CallNext) -> AsyncIterator[Item]:
        try:
            async for each in call_next(input):
                yield each
                if leave == "middleware":
                    return
        finally:
            ended.append("outer")

    async def inner(input: RunAgentInput, call_next: CallNext) -> AsyncIterator[Item]:
        try:
            async for each in call_next(input):
                yield each
        finally:
            ended.append("inner")

    never = asyncio.Event()
    body = Pieces([frame(STARTED, *message("a")), never.wait()])
    script = Script(httpx.Response(200, headers=SSE, stream=body))
    async with scripted(script, middleware=[outer, inner, throttle(1)]) as agent:
        async with agent.run("Hi", run_id="r") as stream:
            if leave == "early":
                await anext(stream)
            else:
                with pytest.raises(TruncatedRun):
                    [_ async for _ in stream]
        assert ended == ["outer", "inner"]
        assert body.closed
    gc.collect()


@pytest.mark.anyio
async def test_a_function_that_is_no_generator_is_a_clear_error() -> None:
    async def forgot(input: RunAgentInput, call_next: CallNext) -> None:
        return

    script = Script()
    async with scripted(script, middleware=[forgot]) as agent:
        with pytest.raises(TypeError, match="write an async generator function"):
            await collect(agent)


@pytest.mark.anyio
async def test_its_own_errors_come_through() -> None:
    async def breaks(input: RunAgentInput, call_next: CallNext) -> AsyncIterator[Item]:
        async for each in call_next(input):
            yield each
            raise LookupError("mine")

    script = Script(reply())
    async with scripted(script, middleware=[breaks]) as agent:
        with pytest.raises(LookupError, match="mine"):
            await collect(agent)


@pytest.mark.anyio
async def test_a_class_of_event_middleware_is_made_anew_for_each_run() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def __call__(self, item: Item) -> Item:
            self.count += 1
            return {**CUSTOM, "value": self.count} if isinstance(item, CustomEvent) else item

    script = Script(reply(CUSTOM), reply(CUSTOM))
    async with scripted(script, event_middleware=[Counter]) as agent:
        for _ in range(2):
            events = await collect(agent)
            assert [each.value for each in events if isinstance(each, CustomEvent)] == [2]


@pytest.mark.unmeasured
@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(40))
async def test_a_stream_means_the_same_through_it(seed: int) -> None:
    """PROC-7: one verdict, the same events and the same thread, whole streams and broken ones."""
    case = well_formed(seed) if seed % 2 else broken(well_formed(seed), seed)
    results = [await _whole(case, middleware) for middleware in ([], [nothing])]
    assert results[0] == results[1]


async def _whole(case: Case, middleware: list[Any]) -> Any:
    script = Script(httpx.Response(200, headers=SSE, content=frame(*case.events)))
    warnings: list[ProtocolWarning] = []
    events: list[Event] = []
    error = None
    async with scripted(
        script,
        middleware=middleware,
        on_warning=warnings.append,
        thread_id="thread",
        messages=case.input["messages"],
        state=case.input["state"],
    ) as agent:
        answers = [
            ToolMessage(id=f"answer-{each.id}", tool_call_id=each.id, content="")
            for each in agent.pending_tool_calls
        ]
        try:
            async for each in agent.run(answers, run_id="run-1"):
                events.append(each)
        except (ProtocolViolation, TruncatedRun) as caught:
            error = str(caught)
        return events, error, list(agent.messages), agent.state, agent.outcome, warnings


# The filter


CALLS: Final = [
    event("TEXT_MESSAGE_START", messageId="m"),
    *call("1", "search", parentMessageId="m"),
    event("REASONING_ENCRYPTED_VALUE", subtype="tool-call", entityId="1", encryptedValue="x"),
    answered("1"),
    *call("2", "delete", parentMessageId="m"),
    event("REASONING_ENCRYPTED_VALUE", subtype="tool-call", entityId="2", encryptedValue="x"),
    event("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="2", encryptedValue="x"),
    answered("2"),
    event("TEXT_MESSAGE_END", messageId="m"),
]


def filtered(*events: Any, **names: Any) -> list[Any]:
    keep = ToolCallFilter(**names)
    return plain([kept for each in events for kept in keep(typed(each))])


@pytest.mark.parametrize("names", [{"allow": ["search"]}, {"deny": ["delete", "other"]}])
def test_a_filtered_call_goes_with_all_that_is_its_own(names: dict[str, Any]) -> None:
    """The message that carries it stays, and so does what belongs to another call."""
    kept = filtered(*CALLS, **names)
    assert kept == [each for each in CALLS if "2" not in _call_of(each)]


def _call_of(each: dict[str, Any]) -> str:
    if each.get("subtype") == "message":
        return ""
    return str(each.get("toolCallId", each.get("entityId", "")))


def test_raw_events_are_filtered_alike() -> None:
    """Decision 1: what the strict decode refuses comes as it is."""
    raw = [{**each, "new": 1} for each in CALLS]
    assert filtered(*raw, deny=["delete"]) == [each for each in raw if "2" not in _call_of(each)]


@pytest.mark.parametrize("extra", [{}, {"new": 1}], ids=["typed", "raw"])
def test_chunks_of_a_filtered_call_go_too(extra: dict[str, Any]) -> None:
    """CHUNK-3, CHUNK-5: also those that name nothing; what surrounds them stays whole."""
    chunks = [
        event("TEXT_MESSAGE_CHUNK", messageId="m", delta="a", **extra),
        event("TOOL_CALL_CHUNK", toolCallId="1", toolCallName="delete", delta="{", **extra),
        event("TOOL_CALL_CHUNK", delta="}", **extra),
        event("TOOL_CALL_CHUNK", toolCallId="2", toolCallName="search", delta="{", **extra),
        event("TOOL_CALL_CHUNK", delta="}", **extra),
        {**FINISHED, **extra},
    ]
    reader = Reader(middleware=[ToolCallFilter(deny=["delete"])])
    reader.feed(*chunks)
    reader.end()
    calls = [
        (each.id, each.function.arguments)
        for held in reader.conversation.messages
        for each in getattr(held, "tool_calls", UNSET) or ()
    ]
    assert calls == [("2", "{}")]
    assert reader.conversation.messages[0].content == "a"


def test_a_run_begins_anew() -> None:
    """Per run: an id may be another call's in the next one."""
    kept = filtered(
        STARTED, *call("1", "delete"), FINISHED, STARTED, answered("1"), deny=["delete"]
    )
    assert kept == [STARTED, FINISHED, STARTED, answered("1")]
    raw = {**STARTED, "new": 1}
    assert filtered(raw, *call("1", "delete"), raw, answered("1"), deny=["delete"])[2:] == [
        answered("1")
    ]


def test_a_call_that_begins_again_with_another_name_is_another() -> None:
    kept = filtered(*call("1", "delete"), *call("1", "search"), answered("1"), deny=["delete"])
    assert kept == [*call("1", "search"), answered("1")]


@pytest.mark.parametrize("extra", [{}, {"new": 1}], ids=["typed", "raw"])
def test_filtered_calls_are_not_pending(extra: dict[str, Any]) -> None:
    """FRONT-3."""
    end = {
        **FINISHED,
        "outcome": {"type": "success", "pendingToolCallIds": ["1", "2"]},
        **extra,
    }
    *_, kept = filtered(*call("1", "search"), *call("2", "delete"), end, deny=["delete"])
    assert kept["outcome"] == {"type": "success", "pendingToolCallIds": ["1"]}
    assert filtered(FINISHED, deny=["delete"]) == [FINISHED]


def _restated(id_: str, *names: str, **members: Any) -> dict[str, Any]:
    calls = [
        {"id": f"{id_}-{name}", "type": "function", "function": {"name": name, "arguments": ""}}
        for name in names
    ]
    made = {"toolCalls": calls} if names else {}
    return {"id": id_, "role": "assistant", **made, **members}


@pytest.mark.parametrize("extra", [{}, {"new": 1}], ids=["typed", "raw"])
def test_a_snapshot_does_not_bring_them_back(extra: dict[str, Any]) -> None:
    """MSG-1: the call and its answer go; the message stays."""
    answer = {"id": "x", "role": "tool", "toolCallId": "b-delete", "content": "done"}
    (kept,) = filtered(
        event(
            "MESSAGES_SNAPSHOT",
            messages=[
                _restated("a", "search", "delete", content="both"),
                _restated("b", "delete"),
                answer,
                {**answer, "id": "y", "toolCallId": "a-search"},
                {"id": "u", "role": "user", "content": "thanks"},
            ],
            **extra,
        ),
        deny=["delete"],
    )
    assert kept["messages"] == [
        _restated("a", "search", content="both"),
        _restated("b"),
        {**answer, "id": "y", "toolCallId": "a-search"},
        {"id": "u", "role": "user", "content": "thanks"},
    ]


def test_a_snapshot_of_a_call_that_goes_on_changes_nothing() -> None:
    """MSG-1: the name it was started with counts."""
    start, args, end = call("a-search", "delete")
    restated = event("MESSAGES_SNAPSHOT", messages=[_restated("a", "search")])
    assert filtered(start, restated, args, end, deny=["delete"]) == [
        event("MESSAGES_SNAPSHOT", messages=[_restated("a")])
    ]
    start, args, end = call("a-delete", "search")
    restated = event("MESSAGES_SNAPSHOT", messages=[_restated("a", "delete")])
    events = [start, restated, args, end]
    assert filtered(*events, deny=["delete"]) == events


def test_what_is_malformed_is_left_to_be_refused() -> None:
    """PROC-3."""
    odd = [
        event("TOOL_CALL_START", toolCallId=5, toolCallName="delete"),
        event("TOOL_CALL_ARGS", toolCallId=None, delta="x"),
        event("MESSAGES_SNAPSHOT", messages=[5, {"role": "assistant", "toolCalls": [5]}]),
        {**FINISHED, "outcome": {"type": "success", "pendingToolCallIds": [5, {}]}},
        {"type": []},
    ]
    assert filtered(*odd, deny=["delete"]) == odd


@pytest.mark.parametrize("names", [{}, {"allow": ["a"], "deny": ["b"]}])
def test_one_list_of_names_is_needed(names: dict[str, Any]) -> None:
    for make in (ToolCallFilter, filter_tool_calls):
        with pytest.raises(ValueError, match="either"):
            make(**names)


def test_a_single_name_is_no_list() -> None:
    for make in (ToolCallFilter, filter_tool_calls):
        with pytest.raises(TypeError, match="several names"):
            make(deny="delete")


@pytest.mark.anyio
async def test_the_filter_around_a_run() -> None:
    """Each run has one of its own, also when names come from an iterator."""
    script = Script(reply(*CALLS), reply(*CALLS))
    names = iter(["delete"])
    async with scripted(script, middleware=[filter_tool_calls(deny=names)]) as agent:
        for _ in range(2):
            events = await collect(agent)
            started = [each for each in events if each.type == "TOOL_CALL_START"]
            assert [each.tool_call_name for each in started] == ["search"]


@pytest.mark.unmeasured
@pytest.mark.parametrize("seed", range(60))
def test_what_is_left_of_a_stream_keeps_the_rules(seed: int) -> None:
    """Every conformant stream stays one, without any call of the tool."""
    case = well_formed(seed)
    consumer = Consumer(case.input, middleware=[ToolCallFilter(deny=["ask"])])
    delivered = [each for given in case.events for each in consumer.receive_event(given)]
    list(consumer.end())
    names = [each.tool_call_name for each in delivered if each.type == "TOOL_CALL_START"]
    assert "ask" not in names
    everything = Consumer(case.input, middleware=[ToolCallFilter(deny=[])])
    untouched = Consumer(case.input)
    for given in case.events:
        assert list(everything.receive_event(given)) is not None
        list(untouched.receive_event(given))
    assert list(everything.conversation.messages) == list(untouched.conversation.messages)


# The throttle


@pytest.mark.anyio
async def test_deltas_within_a_window_are_merged() -> None:
    """The first is given at once, the others as one, with the metadata of all (META-1)."""
    given = plain(
        await through(
            throttle(60),
            *(text("a"), text("b", metadata={"n": 1}), text("c", metadata={"n": 2, "o": 3})),
            CUSTOM,
            text("d"),
        )
    )
    assert given == [text("a"), text("bc", metadata={"n": 2, "o": 3}), CUSTOM, text("d")]


@pytest.mark.anyio
async def test_items_that_stream_in_parallel_are_merged_each() -> None:
    args = event("TOOL_CALL_ARGS", toolCallId="m", delta="x")
    thought = event("REASONING_MESSAGE_CONTENT", messageId="m", delta="y")
    given = plain(
        await through(throttle(60), CUSTOM, text("0"), *[text("a"), args, thought] * 3, CUSTOM)
    )
    assert given == [
        CUSTOM,
        text("0"),
        text("aaa"),
        {**args, "delta": "xxx"},
        {**thought, "delta": "yyy"},
        CUSTOM,
    ]


@pytest.mark.anyio
async def test_all_else_keeps_its_order_and_waits_for_nothing() -> None:
    steps = [text("a"), text("b"), CUSTOM, {"type": "NEW"}, {**text("c"), "new": 1}, text("d")]
    given = await through(throttle(60), *steps)
    assert plain(given) == steps


@pytest.mark.unmeasured
@pytest.mark.anyio
async def test_nothing_waits_longer_than_the_window() -> None:
    """Also when nothing comes any more, and when deltas come without a pause."""
    clock = asyncio.get_running_loop().time
    came: list[tuple[float, Any]] = []

    async def call_next(input: RunAgentInput) -> AsyncIterator[Item]:
        for delta in "abc":
            yield typed(text(delta))
        await asyncio.sleep(0.8)
        yield typed(text("d"))
        await asyncio.sleep(0.8)

    began = clock()
    async for each in throttle(0.1)(INPUT, call_next):
        came.append((clock() - began, getattr(each, "delta", None)))
    assert [delta for _, delta in came] == ["a", "bc", "d"]
    assert came[0][0] < 0.5
    assert 0.09 < came[1][0] < 0.75
    assert 0.79 < came[2][0] < 1.5


@pytest.mark.anyio
async def test_a_stream_without_pauses_comes_in_portions() -> None:
    deltas = [text("x")] * 2_000
    given = await through(throttle(0.005), *deltas)
    assert "".join(each.delta for each in given) == "x" * 2_000
    assert len(given) < 1_000


@pytest.mark.anyio
async def test_chunks_are_merged_where_they_continue_for_sure() -> None:
    """CHUNK-3, CHUNK-7."""
    chunk = event("TEXT_MESSAGE_CHUNK", messageId="m", role="user", delta="a")
    more = event("TEXT_MESSAGE_CHUNK", delta="b")
    other = event("TEXT_MESSAGE_CHUNK", messageId="n", delta="c")
    tagged = event("TEXT_MESSAGE_CHUNK", delta="d", subagentRunId="s")
    tool = event("TOOL_CALL_CHUNK", toolCallId="c", toolCallName="f")
    steps = [text("0"), chunk, more, more, other, tagged, tool, more, text("1"), chunk]
    assert plain(await through(throttle(60), *steps)) == [
        text("0"),
        {**chunk, "delta": "abb"},
        *(other, tagged, tool, more, text("1"), chunk),
    ]


@pytest.mark.anyio
async def test_a_tag_that_disagrees_is_still_seen() -> None:
    """SUB-4: merging hides nothing that is to be refused."""
    mine, yours, nobody = (
        text("x", **tag) for tag in ({"subagentRunId": "a"}, {"subagentRunId": "b"}, {})
    )
    given = plain(await through(throttle(60), CUSTOM, text("0"), nobody, mine, yours, nobody))
    assert given == [
        CUSTOM,
        text("0"),
        {**mine, "delta": "xx"},
        {**yours, "delta": "xx"},
    ]


@pytest.mark.anyio
async def test_an_error_comes_after_what_was_gathered() -> None:
    """What arrived stays delivered (RUN-8)."""
    came: list[Any] = []

    async def call_next(input: RunAgentInput) -> AsyncIterator[Item]:
        for delta in "abc":
            yield typed(text(delta))
        raise TruncatedRun("gone")

    async def take() -> None:
        async for each in throttle(60)(INPUT, call_next):
            came.append(each.delta)  # type: ignore[union-attr]

    with pytest.raises(TruncatedRun, match="gone"):
        await take()
    assert came == ["a", "bc"]


@pytest.mark.anyio
async def test_a_reader_that_leaves_leaves_nothing_behind() -> None:
    closed: list[bool] = []

    async def call_next(input: RunAgentInput) -> AsyncIterator[Item]:
        try:
            while True:
                yield typed(text("x"))
        finally:
            closed.append(True)

    before = asyncio.all_tasks()
    events: Any = throttle(60)(INPUT, call_next)
    await anext(events)
    await asyncio.sleep(0.01)
    await events.aclose()
    assert closed == [True]
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_window_is_longer_than_nothing(seconds: float) -> None:
    with pytest.raises(ValueError, match="longer than 0"):
        throttle(seconds)


@pytest.mark.unmeasured
@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(40))
async def test_a_throttled_stream_means_the_same(seed: int) -> None:
    """Whole streams and broken ones: the same verdict, the same thread."""
    case = well_formed(seed) if seed % 2 else broken(well_formed(seed), seed)
    before = await _whole(case, [])
    after = await _whole(case, [throttle(60)])
    assert len(after[0]) <= len(before[0])
    assert after[2:5] == before[2:5]
    assert (after[1] is None) == (before[1] is None)


# The recorder


@pytest.mark.anyio
async def test_what_was_recorded_is_read_back(tmp_path: Path) -> None:
    """What was sent, what came (typed or raw), and when."""
    path = tmp_path / "runs.jsonl"
    script = Script(reply(*message("Yes"), {"type": "NEW"}), reply())
    with Recorder(path) as recorder:
        async with scripted(script, middleware=[recorder]) as agent:
            await collect(agent)
            await collect(agent)
    lines = list(read_recording(path))
    assert [line.input for line in lines if line.input is not None] == script.sent
    first = [line.event for line in lines[1:8]]
    assert [type(each).__name__ for each in first] == [
        *("RunStartedEvent", "TextMessageStartEvent", "TextMessageContentEvent"),
        *("TextMessageEndEvent", "dict", "RunFinishedEvent", "NoneType"),
    ]
    assert all(0 <= line.at < 5 for line in lines)
    assert [line.at for line in lines[:7]] == sorted(line.at for line in lines[:7])
    for line in path.read_text(encoding="utf-8").splitlines():
        assert json.loads(line).keys() in ({"at", "input"}, {"at", "event"})


@pytest.mark.anyio
async def test_a_recording_goes_on_in_its_file_and_a_stream_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    for _ in range(2):
        with Recorder(str(path)) as recorder:
            await through(recorder, CUSTOM)
    assert len(list(read_recording(path))) == 4
    file = io.BytesIO()
    with Recorder(file) as recorder, pytest.raises(TruncatedRun):
        await through(recorder, CUSTOM, text("a\ud83d"), TruncatedRun("gone"))
    file.seek(0)
    assert [each.event for each in read_recording(file)][1:] == [
        typed(CUSTOM),
        typed(text("a\ud83d")),
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "JSON"),
        (b"[]", "JSON object"),
        (b'{"at":1}', "neither"),
        (b'{"at":1,"event":{},"input":{}}', "neither"),
        (b'{"event":{}}', "no time"),
        (b'{"at":true,"event":{}}', "no time"),
    ],
)
def test_a_line_that_is_none_is_named(line: bytes, why: str) -> None:
    source = io.BytesIO(b'{"at":0,"event":{"type":"NEW"}}\n\n' + line + b"\n")
    lines = read_recording(source)
    assert next(lines) == Recorded(at=0, event={"type": "NEW"})
    with pytest.raises(ValueError, match=f"line 3 is no line of a recording.*{why}"):
        next(lines)
