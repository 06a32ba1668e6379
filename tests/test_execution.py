"""Whatever an agent is and does, its stream ends as a stream must."""

import asyncio
import functools
import gc
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import ag_ui.core as official
import pytest

from aguia import RunAgentInput, SequenceViolation
from aguia.protocol.events import (
    CustomEvent,
    StepStartedEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
)
from aguia.server import Agent, Execution, Run, RunError, run_agent
from support_runs import no_task_left, plain, record, run_input

pytestmark = pytest.mark.anyio

GENERIC = "The agent failed. Its log says why."


def event(type_: str, **members: Any) -> dict[str, Any]:
    return {"type": type_, **members}


# Cancellation


async def test_a_run_is_cancelled_from_inside() -> None:
    """RUN-10: everything closed first, and no result."""

    async def agent(run: Run) -> str:
        async with run.step("s"), run.text():
            run.cancel()
            assert run.cancelled
            await asyncio.sleep(60)
        return "never"

    recorded = await record(agent)
    assert recorded.outcome == "cancelled"
    assert "result" not in recorded.terminal


async def test_an_agent_that_cancels_its_run_and_returns_has_not_completed() -> None:
    """RUN-10."""

    async def agent(run: Run) -> str:
        run.cancel()
        return "half"

    recorded = await record(agent)
    assert recorded.outcome == "cancelled"
    assert "result" not in recorded.terminal


async def test_an_agent_that_cancels_its_run_and_fails_has_failed() -> None:
    """RUN-10: stopped on purpose, and not by a failure."""

    async def agent(run: Run) -> None:
        run.cancel()
        raise RunError("broken")

    assert (await record(agent, fails=True)).terminal["message"] == "broken"


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_a_run_is_cancelled_from_outside(where: str) -> None:
    """RUN-10."""

    async def agent(run: Run) -> None:
        async with run.text() as text:
            await text.write("…")
            await asyncio.sleep(60)

    def later(execution: Execution) -> None:
        if where == "loop":
            asyncio.get_running_loop().call_later(0.02, execution.cancel)
        else:
            threading.Timer(0.02, execution.run.cancel).start()

    recorded = await record(agent, on_run=later)
    assert recorded.outcome == "cancelled"
    assert recorded.types == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]


async def test_cancelling_twice_or_too_late_changes_nothing() -> None:
    executions: list[Execution] = []

    async def agent(run: Run) -> None:
        run.cancel()
        run.cancel()
        await asyncio.sleep(60)

    recorded = await record(agent, on_run=executions.append)
    assert recorded.outcome == "cancelled"
    executions[0].cancel()
    executions[0].run.cancel()
    await asyncio.sleep(0)


def test_cancelling_after_the_loop_has_closed_changes_nothing() -> None:
    executions: list[Execution] = []

    async def agent(run: Run) -> None:
        pass

    asyncio.run(record(agent, on_run=executions.append))
    executions[0].cancel()


async def test_a_deadline_cancels_the_run() -> None:
    """RUN-10."""

    async def agent(run: Run) -> None:
        await asyncio.sleep(60)

    began = time.monotonic()
    recorded = await record(agent, deadline=0.05)
    assert recorded.outcome == "cancelled"
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("waits", [True, False])
async def test_a_limit_of_steps_cancels_the_run(waits: bool) -> None:
    """RUN-10: steps of blocks and steps of events; one more than the limit is never sent."""

    async def wait() -> None:
        if waits:
            await asyncio.sleep(0.01)

    async def blocks(run: Run) -> None:
        for index in range(10):
            async with run.step(f"s{index}"):
                await wait()

    async def typed(run: Run) -> None:
        for index in range(10):
            await run.emit(StepStartedEvent(step_name=f"s{index}"))
            await wait()
            await run.emit(event("STEP_FINISHED", stepName=f"s{index}"))

    async def events(run: Run) -> AsyncIterator[Any]:
        for index in range(10):
            yield event("STEP_STARTED", stepName=f"s{index}")
            yield event("STEP_FINISHED", stepName=f"s{index}")
            await wait()

    def plain_events(run: Run) -> Iterator[Any]:
        for index in range(10):
            yield official.StepStartedEvent(step_name=f"s{index}")
            yield official.StepFinishedEvent(step_name=f"s{index}")

    async def tasks(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            for index in range(10):
                group.create_task(task(run, index))

    async def task(run: Run, index: int) -> None:
        async with run.step(f"s{index}"):
            await wait()

    for agent in (blocks, typed, events, plain_events, tasks):
        async with no_task_left():
            recorded = await record(agent, max_steps=3)
        assert recorded.outcome == "cancelled"
        assert recorded.types.count("STEP_STARTED") == 3
        assert recorded.types.count("STEP_FINISHED") == 3
        assert (await record(agent, max_steps=10)).outcome == "success"


async def test_an_agent_that_ignores_the_limit_of_steps_opens_no_more() -> None:
    """RUN-10: what it does besides goes on, until it is cut off."""
    refused = 0

    async def agent(run: Run) -> None:
        nonlocal refused
        for index in range(10):
            try:
                async with run.step(f"s{index}"):
                    pass
            except asyncio.CancelledError:
                refused += 1
        await run.say("Bye.")

    recorded = await record(agent, max_steps=3)
    assert refused == 7
    assert recorded.outcome == "cancelled"
    assert recorded.types.count("STEP_STARTED") == 3
    assert "TEXT_MESSAGE_START" in recorded.types


async def test_an_agent_that_ignores_its_cancellation_is_cut_off() -> None:
    """RUN-6, RUN-10: within its grace, and what it writes later raises."""
    late: list[str | None] = []
    cut_off, over = asyncio.Event(), asyncio.Event()

    async def agent(run: Run) -> None:
        async with run.text(message_id="m") as text:
            run.cancel()
            while not cut_off.is_set():
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    pass
            try:
                await text.write("late")
            except SequenceViolation as error:
                late.append(error.rule)
        over.set()

    try:
        recorded = await record(agent, grace=0.15)
    finally:
        cut_off.set()
    assert recorded.outcome == "cancelled"
    assert recorded.types == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END"]
    await over.wait()
    assert late == ["RUN-6"]


async def test_an_agent_has_its_grace_to_clean_up_in() -> None:
    """RUN-10: what it says meanwhile is sent."""

    async def agent(run: Run) -> None:
        try:
            run.cancel()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            await run.say("Stopped.", message_id="m")

    recorded = await record(agent, grace=1.5)
    assert recorded.conversation.messages[0].content == "Stopped."
    assert recorded.outcome == "cancelled"


async def test_a_driver_that_is_cancelled_ends_the_stream_first() -> None:
    """RUN-10, RUN-11: also when its loop goes down."""

    async def agent(run: Run) -> None:
        async with run.text():
            await asyncio.sleep(60)

    async with no_task_left():
        execution = Execution(agent, run_input())
        drive = asyncio.create_task(execution.drive())
        await execution.events.take()
        drive.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drive
    rest = [plain(each) for each in await execution.events.take() or []]
    assert rest[-1]["outcome"] == {"type": "cancelled"}
    assert await execution.events.take() is None


# One terminal event, whatever happens


async def _raises(run: Run) -> None:
    async with run.text() as text:
        await text.write("a")
        raise ValueError("secret")


async def _exits(run: Run) -> None:
    sys.exit("secret")


async def _raises_generator_exit(run: Run) -> None:
    raise GeneratorExit("secret")


async def _raises_cancelled(run: Run) -> None:
    raise asyncio.CancelledError("secret")


async def _cancels_its_task(run: Run) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel("secret")
    await asyncio.sleep(60)


async def _awaits_what_was_cancelled(run: Run) -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel("secret")
    await future


class Odd(BaseException):
    pass


async def _raises_odd(run: Run) -> None:
    raise Odd("secret")


async def _raises_a_group(run: Run) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_raises(run))


async def _raises_stop(run: Run) -> None:
    raise StopAsyncIteration("secret")


def _raises_at_once(run: Run) -> Any:
    raise ValueError("secret")


def _returns_nothing(run: Run) -> Any:
    return None


def _returns_a_number(run: Run) -> Any:
    return 5


def _returns_text(run: Run) -> Any:
    return "RUN_FINISHED"


def _returns_a_dictionary(run: Run) -> Any:
    return {"type": "RUN_FINISHED"}


async def _returns_no_json(run: Run) -> Any:
    return object()


async def _returns_itself(run: Run) -> Any:
    value: list[Any] = []
    value.append(value)
    return value


async def _sets_no_json(run: Run) -> None:
    run.result = {1: 2}


async def _appends_junk(run: Run) -> None:
    run.interrupts.append("junk")  # type: ignore[arg-type]


async def _yields_junk(run: Run) -> AsyncIterator[Any]:
    yield 5


async def _yields_none(run: Run) -> AsyncIterator[Any]:
    yield None


async def _yields_out_of_order(run: Run) -> AsyncIterator[Any]:
    yield event("TEXT_MESSAGE_CONTENT", messageId="m", delta="x")


async def _yields_and_raises(run: Run) -> AsyncIterator[Any]:
    yield event("TEXT_MESSAGE_START", messageId="m")
    raise ValueError("secret")


async def _resists_being_closed(run: Run) -> AsyncIterator[Any]:
    try:
        yield event("STEP_FINISHED", stepName="never opened")
    except GeneratorExit:
        yield event("STEP_STARTED", stepName="too late")


def _sync_raises(run: Run) -> Iterator[Any]:
    yield event("TEXT_MESSAGE_START", messageId="m")
    raise ValueError("secret")


def _sync_exits(run: Run) -> Iterator[Any]:
    yield event("TEXT_MESSAGE_START", messageId="m")
    sys.exit("secret")


def _sync_stops(run: Run) -> Iterator[Any]:
    yield event("TEXT_MESSAGE_START", messageId="m")
    raise StopIteration("secret")


FAILING: list[Agent] = [
    _raises,
    _exits,
    _raises_generator_exit,
    _raises_cancelled,
    _cancels_its_task,
    _awaits_what_was_cancelled,
    _raises_odd,
    _raises_a_group,
    _raises_stop,
    _raises_at_once,
    _returns_nothing,
    _returns_a_number,
    _returns_text,
    _returns_a_dictionary,
    _returns_no_json,
    _returns_itself,
    _sets_no_json,
    _appends_junk,
    _yields_junk,
    _yields_none,
    _yields_out_of_order,
    _yields_and_raises,
    _resists_being_closed,
    _sync_raises,
    _sync_exits,
    _sync_stops,
]


@pytest.mark.parametrize("agent", FAILING, ids=lambda agent: agent.__name__)
async def test_a_failure_is_told_once_and_without_its_words(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """RUN-7, RUN-8: the client gets one generic RUN_ERROR, the log has all of it."""
    async with no_task_left():
        recorded = await record(agent, fails=True)
    gc.collect()
    assert recorded.terminal == event("RUN_ERROR", message=GENERIC)
    assert "secret" not in str(recorded.events)
    failures = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert len(failures) == 1
    assert failures[0].name == "aguia.server"
    assert failures[0].getMessage().startswith("run run of thread thread: the agent ")
    if agent is not _cancels_its_task:  # that left no exception
        assert failures[0].exc_info is not None


@pytest.mark.parametrize("agent", [_raises, _exits, _sync_raises, _raises_cancelled])
async def test_errors_are_exposed_when_that_is_asked_for(agent: Agent) -> None:
    recorded = await record(agent, fails=True, expose_errors=True)
    kind, _, words = recorded.terminal["message"].partition(": ")
    assert kind in ("ValueError", "SystemExit", "CancelledError")
    assert words == "secret"


def test_a_keyboard_interrupt_ends_the_run_and_goes_on_to_the_server() -> None:
    """RUN-7."""
    executions: list[Execution] = []

    async def agent(run: Run) -> None:
        async with run.text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(record(agent, on_run=executions.append))
    stream = executions[0].events
    assert stream.last is not None
    assert plain(stream.last) == event("RUN_ERROR", message=GENERIC)
    assert stream.count == 4


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RunError("No paper.", "paper"), {"message": "No paper.", "code": "paper"}),
        (RunError("No paper."), {"message": "No paper."}),
        (RunError(""), {"message": ""}),
        (RunError(ValueError("words"), 404), {"message": "words", "code": "404"}),  # type: ignore[arg-type]
        (RunError("half \ud83e"), {"message": "half \ud83e"}),
    ],
)
async def test_a_run_error_is_what_the_client_is_told(
    error: RunError, expected: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """RUN-7."""

    async def agent(run: Run) -> None:
        async with run.text():
            raise error

    with caplog.at_level(logging.INFO, "aguia.server"):
        recorded = await record(agent, fails=True)
    assert recorded.terminal == event("RUN_ERROR", **expected)
    [end] = caplog.records
    code = expected.get("code")
    assert vars(end)["outcome"] == "error"
    assert vars(end).get("code") == code
    said = f"error '{code}' after" if code else "error after"
    assert f"run run of thread thread: {said} 4 events" in end.getMessage()
    assert "No paper" not in caplog.text


@pytest.mark.parametrize("in_group", [False, True])
async def test_what_led_to_a_run_error_is_in_the_log(
    in_group: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """RUN-7: the client is told the words, and whoever runs the agent sees the cause."""

    async def agent(run: Run) -> None:
        try:
            raise ValueError("secret")
        except ValueError as error:
            meant = RunError("No paper.")
            meant.__cause__ = error
        raise ExceptionGroup("g", [meant]) if in_group else meant

    recorded = await record(agent, fails=True)
    assert recorded.terminal == event("RUN_ERROR", message="No paper.")
    [logged] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert logged.getMessage() == "run run of thread thread: the agent reported a failure"
    assert "ValueError: secret" in caplog.text


async def test_a_run_error_comes_through_a_task_group() -> None:
    async def failing() -> None:
        raise RunError("No paper.")

    async def agent(run: Run) -> None:
        async with asyncio.TaskGroup() as outer:
            async with asyncio.TaskGroup() as group:
                group.create_task(failing())
                group.create_task(failing())
            outer.create_task(asyncio.sleep(0))

    recorded = await record(agent, fails=True)
    assert recorded.terminal["message"] == "No paper."


async def test_a_group_that_holds_more_than_run_errors_says_nothing() -> None:
    async def agent(run: Run) -> None:
        raise ExceptionGroup("g", [RunError("No paper."), ValueError("secret")])

    assert (await record(agent, fails=True)).terminal["message"] == GENERIC


async def test_each_run_leaves_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Ids, how it ended, how many events, how long; and no content."""

    async def agent(run: Run) -> None:
        await run.say("private")

    with caplog.at_level(logging.INFO, "aguia.server"):
        await record(agent)
    assert len(caplog.records) == 1
    message = caplog.records[0].getMessage()
    assert message.startswith("run run of thread thread: success after 5 events in 0.")
    assert "private" not in caplog.text
    told = vars(caplog.records[0])
    assert (told["thread_id"], told["run_id"]) == ("thread", "run")
    assert (told["outcome"], told["events"]) == ("success", 5)
    assert 0 < told["seconds"] < 60


# Kinds of agents


def _chunk(text: str, **members: Any) -> dict[str, Any]:
    return event("TEXT_MESSAGE_CHUNK", delta=text, **members)


async def _async_generator(run: Run) -> AsyncIterator[Any]:
    yield TextMessageStartEvent(message_id="m")
    yield event("TEXT_MESSAGE_CONTENT", messageId="m", delta="a")
    await asyncio.sleep(0)
    yield TextMessageContentEvent(message_id="m", delta="b")
    yield event("TEXT_MESSAGE_END", messageId="m")


def _sync_generator(run: Run) -> Iterator[Any]:
    assert threading.current_thread() is not threading.main_thread()
    yield TextMessageStartEvent(message_id="m")
    time.sleep(0.01)
    yield event("TEXT_MESSAGE_CONTENT", messageId="m", delta="ab")
    yield event("TEXT_MESSAGE_END", messageId="m")


class _PlainIterator:
    """An asynchronous iterator that can't be closed."""

    def __init__(self, *events: Any) -> None:
        self.events = list(events)

    def __aiter__(self) -> "_PlainIterator":
        return self

    async def __anext__(self) -> Any:
        if not self.events:
            raise StopAsyncIteration
        return self.events.pop(0)


def _iterator(run: Run) -> _PlainIterator:
    return _PlainIterator(_chunk("a", messageId="m"), TextMessageChunkEvent(delta="b"))


def _list(run: Run) -> list[Any]:
    return [_chunk("a", messageId="m"), _chunk("b")]


async def _coroutine_of_a_generator(run: Run) -> AsyncIterator[Any]:
    await asyncio.sleep(0)
    return _async_generator(run)


class _Callable:
    async def __call__(self, run: Run) -> None:
        await run.say("ab", message_id="m")


async def _with_settings(tone: str, run: Run) -> None:
    await run.say(tone, message_id="m")


async def _official(run: Run) -> AsyncIterator[Any]:
    yield official.RunStartedEvent(thread_id="thread", run_id="run")
    yield official.TextMessageStartEvent(message_id="m", role="assistant")
    yield official.TextMessageContentEvent(message_id="m", delta="ab")
    yield official.TextMessageEndEvent(message_id="m")
    yield official.RunFinishedEvent(thread_id="thread", run_id="run")


def _official_chunks(run: Run) -> Iterator[Any]:
    yield official.TextMessageChunkEvent(message_id="m", delta="a")
    yield official.TextMessageChunkEvent(delta="b")


KINDS: list[Agent] = [
    _async_generator,
    _sync_generator,
    _iterator,
    _list,
    _coroutine_of_a_generator,
    _Callable(),
    functools.partial(_with_settings, "ab"),
    _official,
    _official_chunks,
]


@pytest.mark.parametrize("agent", KINDS, ids=lambda agent: getattr(agent, "__name__", "object"))
async def test_an_agent_may_be_written_in_many_ways(agent: Agent) -> None:
    """CHUNK-1, PROC-13: coroutines, iterators of any kind, and anybody's events."""
    recorded = await record(agent)
    assert [message.content for message in recorded.conversation.messages] == ["ab"]
    assert recorded.outcome == "success"


async def test_an_iterator_may_use_the_run_as_well() -> None:
    async def agent(run: Run) -> AsyncIterator[Any]:
        run.state["a"] = 1
        yield event("STEP_STARTED", stepName="s")
        async with run.text(message_id="m") as text:
            await text.write("x")
            yield CustomEvent(name="com.example.x", value=1)
        run.result = "done"

    recorded = await record(agent)
    assert recorded.types == [
        "STATE_SNAPSHOT",
        "STEP_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "CUSTOM",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
    ]
    assert recorded.terminal["result"] == "done"


async def test_what_an_iterator_leaves_open_is_closed() -> None:
    """RUN-5."""

    async def agent(run: Run) -> AsyncIterator[Any]:
        yield StepStartedEvent(step_name="s")
        yield event("REASONING_START", messageId="r")
        yield _chunk("a", messageId="m")

    recorded = await record(agent)
    assert recorded.types[-2:] == ["REASONING_END", "STEP_FINISHED"]


async def test_a_wrong_event_closes_the_generator_where_it_stands() -> None:
    closed: list[str] = []

    async def asynchronous(run: Run) -> AsyncIterator[Any]:
        try:
            yield event("STEP_FINISHED", stepName="s")
        finally:
            closed.append("async")

    def synchronous(run: Run) -> Iterator[Any]:
        try:
            yield event("STEP_FINISHED", stepName="s")
        finally:
            closed.append("sync")

    for agent in (asynchronous, synchronous):
        await record(agent, fails=True)
    assert closed == ["async", "sync"]


async def test_a_wrong_event_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """RUN-14: the rule and the ids, and nothing of it to the client."""

    async def agent(run: Run) -> AsyncIterator[Any]:
        yield event("TEXT_MESSAGE_START", messageId="m")
        yield event("STEP_FINISHED", stepName="s")

    recorded = await record(agent, fails=True)
    assert recorded.types == ["TEXT_MESSAGE_START"]
    assert recorded.terminal["message"] == GENERIC
    assert "run run of thread thread: the agent broke the rule RUN-14" in caplog.text
    assert "the step 's' of the parent agent is not open" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        event("TEXT_MESSAGE_CHUNK", delta="no id"),  # CHUNK-2
        event("TEXT_MESSAGE_START"),  # PROC-3
        event("STEP_STARTED", stepName=None),  # EVT-4
        event("SOMETHING_ELSE"),  # PROC-13
        official.TextMessageContentEvent(message_id="m", delta="x"),  # STREAM-1
        official.TextMessageStartEvent.model_construct(message_id=5),
        StepStartedEvent(step_name=5),  # type: ignore[arg-type]
        "data: {}",
        [],
    ],
    ids=str,
)
async def test_a_wrong_event_ends_the_run(wrong: Any) -> None:
    async def agent(run: Run) -> AsyncIterator[Any]:
        yield wrong
        yield event("STEP_STARTED", stepName="never")

    recorded = await record(agent, fails=True)
    assert recorded.types == []


async def test_a_cancelled_generator_is_closed() -> None:
    """RUN-10: also one that waits, and one that works in a thread."""
    closed: list[str] = []
    both = threading.Event()

    async def asynchronous(run: Run) -> AsyncIterator[Any]:
        try:
            yield event("STEP_STARTED", stepName="s")
            await asyncio.sleep(60)
        finally:
            closed.append("async")

    def synchronous(run: Run) -> Iterator[Any]:
        try:
            yield event("STEP_STARTED", stepName="s")
            while not run.cancelled:
                time.sleep(0.01)
        finally:
            closed.append("sync")
            both.set()

    for agent in (asynchronous, synchronous):
        recorded = await record(agent, deadline=0.05, grace=0.3)
        assert recorded.outcome == "cancelled"
        assert recorded.types == ["STEP_STARTED", "STEP_FINISHED"]
    await asyncio.to_thread(both.wait, 2)
    assert closed == ["async", "sync"]


async def test_a_thread_that_hangs_does_not_hold_up_the_end() -> None:
    """RUN-10."""
    release = threading.Event()

    def agent(run: Run) -> Iterator[Any]:
        yield event("STEP_STARTED", stepName="s")
        release.wait(10)
        yield event("STEP_STARTED", stepName="late")

    began = time.monotonic()
    recorded = await record(agent, deadline=0.05, grace=0.1)
    assert time.monotonic() - began < 5
    assert recorded.outcome == "cancelled"
    release.set()


# Without HTTP


async def test_run_agent_gives_the_events_and_ends_with_the_run() -> None:
    async def agent(run: Run) -> None:
        await run.say("Hi", message_id="m")

    kinds = [each.type async for each in run_agent(agent, run_input())]
    assert kinds == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]


async def test_leaving_run_agent_early_cancels_the_run() -> None:
    ended: list[str] = []

    async def agent(run: Run) -> None:
        try:
            while True:
                await run.custom("com.example.tick", None)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with no_task_left():
        events = run_agent(agent, run_input(), capacity=4)
        async for each in events:
            if each.type == "CUSTOM":
                break
        await events.aclose()  # type: ignore[attr-defined]
    assert ended == ["cancelled"]


async def test_an_agent_is_no_further_ahead_than_the_stream_allows() -> None:
    """Back-pressure: the capacity, and one event for each that writes."""
    written = 0

    async def write(run: Run) -> None:
        nonlocal written
        for _ in range(50):
            await run.custom("com.example.tick", None)
            written += 1

    async def agent(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(write(run))

    execution = Execution(agent, run_input(), capacity=10)
    drive = asyncio.create_task(execution.drive())
    ahead: list[int] = []
    read = 0
    while (taken := await execution.events.take()) is not None:
        read += len(taken)
        for _ in range(5):
            await asyncio.sleep(0)
        ahead.append(written - read)
    await drive
    assert written == 150
    assert len(ahead) > 5
    assert max(ahead) <= 10 + 3


async def test_the_principal_is_passed_on() -> None:
    seen: list[Any] = []

    async def agent(run: Run) -> None:
        seen.append(run.principal)

    await record(agent, principal={"name": "Ana"})
    assert seen == [{"name": "Ana"}]


async def test_runs_do_not_know_of_one_another() -> None:
    """One process, many runs at once: each has its own state, ids and end."""

    def counting(input: RunAgentInput) -> Callable[[Run], Any]:
        async def agent(run: Run) -> None:
            for _ in range(20):
                run.state["n"] += 1
                await run.custom("com.example.tick", run.run_id)

        return agent

    inputs = [run_input(runId=f"r{n}", state={"n": n}) for n in range(20)]
    results = await asyncio.gather(*(record(counting(each), each) for each in inputs))
    for n, recorded in enumerate(results):
        assert recorded.state == {"n": n + 20}
        assert {e["value"] for e in recorded.said if e["type"] == "CUSTOM"} == {f"r{n}"}


async def test_an_answer_that_does_not_fit_is_the_clients_to_mend() -> None:
    """INT-7: the client is told what was expected."""

    async def agent(run: Run) -> None:
        run.resume.answer("buy", bool)

    entry = {"interruptId": "buy", "status": "resolved", "payload": "maybe"}
    recorded = await record(agent, run_input(resume=[entry]), fails=True)
    assert recorded.terminal["code"] == "invalid-answer"
    assert "'buy'" in recorded.terminal["message"]
    assert "bool" in recorded.terminal["message"]


class _Forgetful(RunError):
    def __init__(self, number: int) -> None:
        self.number = number


class _Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "settings", "message"),
    [
        (_Forgetful(3), {}, "The agent failed."),
        (_Unreadable(), {"expose_errors": True}, "_Unreadable"),
        (_Unreadable(), {}, "The agent failed. Its log says why."),
    ],
)
async def test_an_exception_that_cannot_be_read_ends_the_run_all_the_same(
    error: Exception, settings: dict[str, Any], message: str
) -> None:
    """RUN-7: exactly one terminal event, whatever was raised."""

    async def agent(run: Run) -> None:
        raise error

    recorded = await record(agent, fails=True, **settings)
    assert recorded.terminal["message"] == message


async def test_a_number_that_nobody_can_write_is_refused_where_it_is_put() -> None:
    async def agent(run: Run) -> None:
        with pytest.raises(ValueError, match="too many digits"):
            run.state["n"] = 10**4300
        with pytest.raises(ValueError, match="too many digits"):
            await run.custom("com.example.x", [-(10**4299)])
        run.state["n"] = [10**4300 - 1, 1 - 10**4299]

    recorded = await record(agent)
    assert recorded.conversation.state == {"n": [10**4300 - 1, 1 - 10**4299]}


async def test_what_a_client_calls_its_run_writes_no_lines_into_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def agent(run: Run) -> None:
        raise ZeroDivisionError

    await record(agent, run_input(runId="r\x1b]0;x\x07\nERROR: forged"), fails=True)
    for line in caplog.messages:
        assert line.isprintable()


@pytest.mark.parametrize("text", ['data: {"type":"CUSTOM"}\n\n', "Hello.", b"{}"])
async def test_text_is_no_event_and_it_is_said_what_is(
    text: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(run: Run) -> AsyncIterator[Any]:
        yield text

    assert (await record(agent, fails=True)).terminal == event("RUN_ERROR", message=GENERIC)
    assert "give the event itself, not its encoded text; text alone is said by" in caplog.text
