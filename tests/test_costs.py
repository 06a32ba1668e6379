"""What must not grow, counted and not timed: calls, and memory, of the shapes that are many.

A count is the same on every machine, so these hold in a crowded one as well. How long it takes
is for `benchmarks/`.
"""

import asyncio
import gc
import logging
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, Final

import msgspec
import pytest

from aguia import UNSET, Consumer, Message, RunAgentInput, TextMessageContentEvent, UserMessage
from aguia.client.thread import Request, Thread
from aguia.codec.json import encode
from aguia.codec.sse import encode_event
from aguia.conversation.patch import PatchTarget
from aguia.producer import Producer
from aguia.protocol.events import TextMessageStartEvent
from aguia.server import AgentApp, Run
from aguia.server.intake import read_input

DELTAS: Final = 200
INPUT: Final = RunAgentInput(thread_id="t", run_id="r", messages=[], protocol_version="1.0")

START: Final = encode_event({"type": "RUN_STARTED", "threadId": "t", "runId": "r"})
OPEN: Final = encode_event({"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"})
DELTA: Final = encode_event({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "words "})
CLOSE: Final = encode_event({"type": "TEXT_MESSAGE_END", "messageId": "m"})


def calls(work: Callable[[], object]) -> int:
    """How many calls of Python functions `work` makes, resumed generators among them."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    # What other tests have left must not be cleared away, with calls of its own, meanwhile.
    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count - 1  # `work` itself


def allocated(work: Callable[[], object]) -> int:
    """How many bytes `work` has allocated at most, of which nothing was there before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def drain(events: Iterable[object]) -> None:
    for _ in events:
        pass


def reader(messages: int) -> Consumer:
    """A consumer in the middle of a message, in a thread that holds so many others."""
    held: list[Message] = [UserMessage(id=f"h{n}", content="words") for n in range(messages)]
    consumer = Consumer(INPUT, messages=held, judged=True)
    drain(consumer.receive(START + OPEN + DELTA))
    return consumer


def test_a_delta_costs_a_reader_three_calls() -> None:
    """Verification, the conversation, and the iteration itself."""
    consumer = reader(1)
    body = DELTA * DELTAS
    # Splitting the body and beginning to iterate it come once for all of them.
    assert calls(lambda: drain(consumer.receive(body))) <= 3 * DELTAS + 12


def test_a_delta_in_a_piece_of_its_own_costs_few_calls_more() -> None:
    consumer = reader(1)
    one = calls(lambda: drain(consumer.receive(DELTA)))
    assert one <= 10


def test_a_delta_costs_a_writer_few_calls() -> None:
    producer = Producer(INPUT)
    producer.start()
    producer.emit(TextMessageStartEvent(message_id="m"))

    def write() -> None:
        for _ in range(DELTAS):
            for event in producer.emit(TextMessageContentEvent(message_id="m", delta="words ")):
                encode_event(event)

    assert calls(write) <= 8 * DELTAS


@pytest.mark.parametrize("look", [False, True], ids=["unread", "read after each"])
def test_an_event_costs_the_same_in_a_long_thread(look: bool) -> None:
    """Design decision 3: applying an event costs the same in a thread of any length."""

    def read(consumer: Consumer) -> None:
        for _ in consumer.receive(DELTA * DELTAS + CLOSE):
            if look:
                _ = consumer.conversation.messages[-1]

    assert calls(lambda: read(reader(1))) - calls(lambda: reader(1)) == (
        calls(lambda: read(reader(10_000))) - calls(lambda: reader(10_000))
    )
    short, long = reader(1), reader(10_000)
    assert allocated(lambda: read(long)) <= allocated(lambda: read(short)) + 1_000


def steps(work: Callable[[], object]) -> int:
    """How many instructions of the interpreter `work` takes."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return note

    before = sys.gettrace()
    gc.collect()
    gc.disable()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def many_results_of_one_call(count: int) -> Iterator[dict[str, Any]]:
    yield {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f"}
    yield {"type": "TEXT_MESSAGE_START", "messageId": "m"}
    for number in range(count):
        yield {
            "type": "TOOL_CALL_RESULT", "messageId": f"r{number}", "toolCallId": "c", "content": "",
        }  # fmt: skip


def results_of_calls_long_past(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"type": "TOOL_CALL_START", "toolCallId": f"c{number}", "toolCallName": "f"}
    for number in range(count):
        yield {
            "type": "TOOL_CALL_RESULT", "messageId": f"r{number}", "toolCallId": f"c{number}",
            "content": "",
        }  # fmt: skip


def chunks_of_many_subagents(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {
            "type": "TEXT_MESSAGE_CHUNK", "messageId": f"m{number}", "delta": "a",
            "subagentRunId": f"s{number}",
        }  # fmt: skip
    yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "p", "delta": "a"}
    for number in range(count):
        yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": f"m{number}", "delta": "a"}
        yield {"type": "TEXT_MESSAGE_CHUNK", "delta": "a"}


@pytest.mark.unmeasured
@pytest.mark.parametrize(
    "shape", [many_results_of_one_call, results_of_calls_long_past, chunks_of_many_subagents]
)
def test_no_shape_of_stream_costs_more_than_its_length(
    shape: Callable[[int], Iterator[dict[str, Any]]],
) -> None:
    """What a peer sends twice as much of costs twice as much."""

    def read(count: int) -> int:
        body = START + b"".join(map(encode_event, shape(count)))
        consumer = Consumer(INPUT)

        def work() -> None:
            drain(consumer.receive(body))
            assert len(consumer.conversation.messages) > count

        return steps(work)

    read(10)  # what is made once
    assert read(800) <= 2.2 * read(400)


@pytest.mark.parametrize("where", ["run input", "snapshot"])
def test_no_message_costs_more_than_its_length(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even one of many parts of a retired kind, any of which others might repeat."""
    caplog.set_level(logging.CRITICAL)

    def read(count: int) -> int:
        kind = {"type": "binary", "mimeType": "image/png"}
        parts = [
            part
            for number in range(count)
            for part in (
                {**kind, "data": f"A{number}"},
                {"type": "image", "source": {"type": "url", "value": f"https://x/{number}"}},
            )
        ]
        message = {"id": "m", "role": "user", "content": parts}
        if where == "run input":
            body = encode({"threadId": "t", "runId": "r", "messages": [message]})
            return steps(lambda: read_input(body))
        event = encode_event({"type": "MESSAGES_SNAPSHOT", "messages": [message]})
        consumer = Consumer(INPUT)
        return steps(lambda: drain(consumer.receive(START + event)))

    read(10)
    assert read(400) <= 2.2 * read(200)


def test_metadata_that_nobody_has_seen_is_added_to() -> None:
    """A message of many events with metadata is not copied with each."""
    consumer = reader(0)

    def merge(number: int) -> None:
        more = {**msgspec.json.decode(DELTA[6:]), "metadata": {f"k{number}": number}}
        drain(consumer.receive(encode_event(more)))

    for number in range(1_000):
        merge(number)
    few = allocated(lambda: merge(1_000))
    assert few < 10_000
    seen = consumer.conversation.messages[-1].metadata
    assert seen == {f"k{number}": number for number in range(1_001)}
    merge(1_001)
    assert len(seen) == 1_001  # whoever holds an earlier message keeps it unchanged
    last = consumer.conversation.messages[-1].metadata
    assert last is not UNSET
    assert len(last) == 1_002


def test_a_writer_costs_the_same_after_many_messages() -> None:
    def said(messages: int) -> Producer:
        producer = Producer(INPUT)
        producer.start()
        for number in range(messages):
            producer.emit(TextMessageStartEvent(message_id=f"m{number}"))
        return producer

    def write(producer: Producer) -> None:
        for _ in range(DELTAS):
            producer.emit(TextMessageContentEvent(message_id="m0", delta="words "))

    few, many = said(1), said(2_000)
    assert calls(lambda: write(many)) == calls(lambda: write(few))
    assert allocated(lambda: write(many)) <= allocated(lambda: write(few)) + 1_000


def state(rows: int) -> dict[str, Any]:
    return {"table": {"rows": [{"id": n, "done": False} for n in range(rows)]}, "other": {}}


def test_a_state_delta_costs_the_depth_of_its_path() -> None:
    """Design decision 3: no copy of the state, and none of the containers that are its own."""

    def patch(target: PatchTarget) -> None:
        for number in range(DELTAS):
            target.apply([{"op": "replace", "path": "/table/rows/7/done", "value": number}])

    small, large = PatchTarget(state(100)), PatchTarget(state(20_000))
    for target in (small, large):
        patch(target)  # from now on the containers on the path are the target's
    assert calls(lambda: patch(large)) == calls(lambda: patch(small))
    assert allocated(lambda: patch(large)) <= allocated(lambda: patch(small)) + 1_000


def test_an_activity_delta_costs_the_depth_of_its_path() -> None:
    """The same for what an activity message shows, as long as nobody looks."""

    def shown(rows: int) -> Consumer:
        consumer = Consumer(INPUT)
        snapshot = {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "list"}
        drain(consumer.receive(START + encode_event({**snapshot, "content": state(rows)})))
        return consumer

    patch = [{"op": "replace", "path": "/table/rows/7/done", "value": True}]
    delta = {"type": "ACTIVITY_DELTA", "messageId": "a", "activityType": "list", "patch": patch}

    def change(consumer: Consumer) -> None:
        drain(consumer.receive(encode_event(delta) * DELTAS))

    small, large = shown(100), shown(20_000)
    for consumer in (small, large):
        change(consumer)
    assert calls(lambda: change(large)) == calls(lambda: change(small))
    assert allocated(lambda: change(large)) <= allocated(lambda: change(small)) + 1_000


def test_a_state_that_is_looked_at_costs_its_path_and_nothing_beside_it() -> None:
    target = PatchTarget(state(20_000))
    before = target.value
    path = allocated(
        lambda: target.apply([{"op": "replace", "path": "/table/rows/7/done", "value": True}])
    )
    # One list of so many references, and three objects; the rows stay the ones they were.
    assert path < 20_000 * 8 + 10_000
    assert target.value["table"]["rows"][8] is before["table"]["rows"][8]


def test_a_message_that_has_ended_takes_the_room_of_its_text() -> None:
    """Deltas of a few characters take many times as much room as one text."""
    consumer = reader(1)

    def read() -> None:
        for number in range(20):
            id_ = f'"messageId":"m{number}"'.encode()
            many = (OPEN + DELTA * DELTAS + CLOSE).replace(b'"messageId":"m"', id_)
            drain(consumer.receive(many))

    text = 20 * DELTAS * len("words ")
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        read()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held < 2 * text + 20 * 2_000


def test_a_run_begins_without_judging_what_the_thread_holds_again() -> None:
    """Of a thread's messages each has been judged when it came; a run looks at it and no more."""

    def begin(thread: Thread) -> None:
        request = Request(tools=[], context=[], forwarded_props={})
        next_input = thread.next_input(request, thread.said("hello"))
        thread.take_up(next_input.input, next_input.held)

    def thread(messages: int) -> Thread:
        held = [UserMessage(id=f"h{n}", content="words") for n in range(messages)]
        thread = Thread(thread_id="t", messages=held)
        begin(thread)
        return thread

    short, long = thread(10), thread(1_010)
    more = calls(lambda: begin(long)) - calls(lambda: begin(short))
    assert more <= 12 * 1_000


def test_an_agent_that_writes_often_is_sent_in_few_writes() -> None:
    """Design decision 6, where every write to a socket costs as much as many events."""

    async def agent(run: Run) -> None:
        async with run.text() as text:
            for _ in range(DELTAS):
                await asyncio.sleep(0)
                await text.write("words ")

    writes = []

    async def send(message: Any) -> None:
        writes.append(message)

    requests = iter([{"type": "http.request", "body": encode_event(INPUT)[6:]}])

    async def receive() -> Any:
        for request in requests:
            return request
        return await asyncio.Event().wait()

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": [(b"content-type", b"application/json")],
        "query_string": b"",
    }
    asyncio.run(AgentApp(agent)(scope, receive, send))
    body = b"".join(write.get("body", b"") for write in writes)
    assert body.count(b"TEXT_MESSAGE_CONTENT") == DELTAS
    assert len(writes) < DELTAS / 2
