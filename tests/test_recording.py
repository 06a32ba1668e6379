"""Recordings played back as a transport."""

import asyncio
import gzip
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from aguia import (
    Agent,
    AguiaError,
    Consumer,
    DecodeError,
    ProtocolWarning,
    SequenceViolation,
    TransportError,
    TruncatedRun,
)
from aguia.client import DeclaringTransport, Recording
from aguia.middleware import Recorder, read_recording
from aguia.protocol.events import Event
from aguia.server import InProcess, Run
from support_events import FINISHED, STARTED, event, frame
from support_runs import run_input

pytestmark = pytest.mark.anyio

HELLO: Final = [
    STARTED,
    event("TEXT_MESSAGE_START", messageId="m", role="assistant"),
    event("TEXT_MESSAGE_CONTENT", messageId="m", delta="Olá, "),
    event("TEXT_MESSAGE_CONTENT", messageId="m", delta="águia"),
    event("TEXT_MESSAGE_END", messageId="m"),
    FINISHED,
]
AGAIN: Final = [{**STARTED, "runId": "r2"}, {**FINISHED, "runId": "r2"}]


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def recorded(*events: Any, step: float = 0.0) -> bytes:
    """As a recorder writes it: the input of a run, and its events."""
    sent = {"threadId": "t", "runId": "r", "messages": []}
    timed = [{"at": number * step, "event": each} for number, each in enumerate(events, 1)]
    return lines({"at": 0, "input": sent}, *timed)


KINDS: Final[dict[str, Callable[..., bytes]]] = {
    "recorder": recorded,
    "lines": lines,
    "array": lambda *events: json.dumps(events, indent=1).encode(),
    "body": lambda *events: b": hello\n\n" + frame(*events),
}


async def collect(agent: Agent, **options: Any) -> list[Event]:
    return [event async for event in agent.run("Hi", **options)]


async def play(source: Any, **options: Any) -> list[Any]:
    """What the transport itself gives for one run."""
    async with Recording(source, **options).open(run_input()) as answer:
        assert answer.content_type is None
        return [event async for event in answer.body]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_kind_a_recording_is_of_is_found_by_looking(
    kind: str, packed: bool, tmp_path: Path
) -> None:
    data = KINDS[kind](*HELLO)
    data = gzip.compress(data) if packed else data
    path = tmp_path / "recording"
    path.write_bytes(data)
    warnings: list[ProtocolWarning] = []
    with path.open("rb") as file:
        for source in (path, str(path), data, file):
            async with Agent(Recording(source), on_warning=warnings.append) as agent:
                assert [event.type for event in await collect(agent)] == [
                    each["type"] for each in HELLO
                ]
                assert agent.messages[-1].content == "Olá, águia"
                assert agent.outcome is not None
        assert not file.closed
    assert warnings == []


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf" + lines(*HELLO), b"\n\r\n" + lines(*HELLO)])
async def test_what_stands_before_the_beginning_is_passed_over(data: bytes) -> None:
    assert len(await play(data)) == len(HELLO)


async def test_what_a_recorder_writes_is_played_back(tmp_path: Path) -> None:
    async def agent_function(run: Run) -> str:
        async with run.text() as text:
            await text.write(f"{len(run.messages)} messages")
        run.state["said"] = len(run.messages)
        return "done"

    path = tmp_path / "runs.jsonl"
    with Recorder(path) as recorder:
        async with Agent(InProcess(agent_function), middleware=[recorder]) as agent:
            await collect(agent)
            await collect(agent)
            first = [message.content for message in agent.messages], agent.state
    recording = Recording(path)
    assert recording.runs_left == 2
    async with Agent(recording) as agent:
        await collect(agent)
        assert recording.runs_left == 1
        await collect(agent)
        assert ([message.content for message in agent.messages], agent.state) == first
        assert agent.result == "done"
    assert len(list(read_recording(path))) == 2 + 2 * 6


@pytest.mark.parametrize("kind", KINDS)
async def test_each_run_plays_the_next_and_then_none_is_left(kind: str) -> None:
    first, second = KINDS[kind](*HELLO), KINDS[kind](*AGAIN)
    data = KINDS[kind](*HELLO, *AGAIN) if kind == "array" else first + second
    async with Agent(Recording(data)) as agent:
        assert len(await collect(agent)) == len(HELLO)
        assert len(await collect(agent)) == len(AGAIN)
        for _ in range(2):
            with pytest.raises(TransportError, match="the recording has no further run"):
                await collect(agent)
    transport: DeclaringTransport = Recording(b"")
    assert await transport.capabilities() is None
    await transport.close()


async def test_a_run_that_was_left_is_played_and_the_next_one_follows() -> None:
    recording = Recording(lines(*HELLO, *AGAIN))
    async with Agent(recording) as agent:
        async with agent.run("Hi") as stream:
            await anext(stream)
        assert [event.type for event in await collect(agent)] == ["RUN_STARTED", "RUN_FINISHED"]


async def test_a_late_failure_belongs_to_its_run() -> None:
    """RUN-6."""
    failed = event("RUN_ERROR", message="late")
    recording = Recording(lines(*HELLO, failed, failed, *AGAIN))
    assert recording.runs_left == 2


# Ids


@pytest.mark.parametrize("kind", KINDS)
async def test_ids_become_those_of_the_run_that_is_played_to(kind: str) -> None:
    """RUN-3."""
    sent = {"threadId": "t", "runId": "r", "messages": []}
    started = {**STARTED, "input": sent, "parentRunId": "r"}
    data = KINDS[kind](started, event("CUSTOM", name="n", value={"runId": "r"}), FINISHED)
    events = await play(data)
    run = {"threadId": "thread", "runId": "run"}
    assert events[0] == {**started, **run, "input": {**run, "messages": []}}
    assert events[1]["value"] == {"runId": "r"}
    assert events[2] == {**FINISHED, **run}
    assert await play(data, mapped=False) == [
        *(started, event("CUSTOM", name="n", value={"runId": "r"}), FINISHED)
    ]


async def test_only_the_run_that_was_asked_for_gets_the_ids() -> None:
    """RUN-3: an earlier run that an answer repeats carries its own."""
    sent = {"threadId": "t", "runId": "r2", "messages": []}
    events = [{"at": 0, "event": each} for each in (*HELLO, *AGAIN)]
    played = await play(lines({"at": 0, "input": sent}, *events))
    bounds = [(each["threadId"], each["runId"]) for each in played if "threadId" in each]
    assert bounds == [("thread", "r")] * 2 + [("thread", "run")] * 2


async def test_ids_that_disagreed_go_on_disagreeing() -> None:
    """RUN-3: a recording repairs nothing."""
    agent = Agent(Recording(lines(STARTED, {**FINISHED, "runId": "another"})))
    with pytest.raises(SequenceViolation) as caught:
        await collect(agent)
    assert caught.value.rule == "RUN-3"


# Faults play as they came


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_that_was_cut_off_is_cut_off_again(kind: str) -> None:
    """RUN-11."""
    async with Agent(Recording(KINDS[kind](*HELLO[:3]))) as agent:
        with pytest.raises(TruncatedRun):
            await collect(agent)
        assert agent.messages[-1].content == "Olá, "


async def test_a_run_that_was_never_answered() -> None:
    sent = {"at": 0, "input": {"threadId": "t", "runId": "r", "messages": []}}
    async with Agent(Recording(lines(sent, sent))) as agent:
        for _ in range(2):
            with pytest.raises(TruncatedRun, match="before any event"):
                await collect(agent)


@pytest.mark.parametrize("kind", ["recorder", "lines"])
async def test_a_last_line_that_broke_off_is_left_out(kind: str) -> None:
    data = KINDS[kind](*HELLO)
    last = data.rindex(b"\n", 0, -1) + 1
    for cut in range(last, len(data) - 1):
        async with Agent(Recording(data[:cut])) as agent:
            with pytest.raises(TruncatedRun):
                await collect(agent)
            assert agent.messages[-1].content == "Olá, águia"


@pytest.mark.unmeasured
async def test_a_body_cut_at_any_byte_plays_what_had_arrived() -> None:
    """RUN-11: with the verdict that the bytes themselves get."""
    data = frame(*HELLO)
    for cut in range(6, len(data) + 1):
        consumer = Consumer()
        expected = [each.type for each in consumer.receive(data[:cut])]
        try:
            for each in consumer.end():
                expected.append(each.type)
            whole = True
        except TruncatedRun:
            whole = False
        assert whole == (cut >= len(data) - 2)
        seen: list[str] = []
        agent = Agent(Recording(data[:cut]))
        try:
            async for each in agent.run("Hi"):
                seen.append(each.type)
            assert whole, cut
        except TruncatedRun:
            assert not whole, cut
        assert seen == expected, cut


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (b"data: {oh no\n\n", DecodeError),
        (b"data: [1]\n\n", DecodeError),
        (b"data: \xff\n\n", DecodeError),
        (frame(event("TEXT_MESSAGE_END", messageId="other")), SequenceViolation),
        (frame(event("TEXT_MESSAGE_END", messageId=7)), AguiaError),
    ],
)
async def test_what_was_no_event_is_none(bad: bytes, error: type[AguiaError]) -> None:
    """PROC-7: what is played is judged like what a peer sends, where it comes."""
    async with Agent(Recording(frame(*HELLO[:3]) + bad + frame(*HELLO[3:]))) as agent:
        with pytest.raises(error):
            await collect(agent)
        assert agent.messages[-1].content == "Olá, "


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_unknown_or_old_is_read_as_over_a_wire(kind: str) -> None:
    """PROC-1, VER-4: the compatibility boundary and enforcement see it."""
    old = [event("THINKING_START"), event("THINKING_END"), event("NEW_KIND")]
    warnings: list[ProtocolWarning] = []
    agent = Agent(Recording(KINDS[kind](STARTED, *old, FINISHED)), on_warning=warnings.append)
    events = await collect(agent)
    assert [each.type for each in events] == [
        *("RUN_STARTED", "REASONING_START", "REASONING_END", "RUN_FINISHED")
    ]
    assert {warning.rule for warning in warnings} >= {"PROC-1", "VER-4"}


async def test_halves_of_a_character_come_together() -> None:
    halves = [rb'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"\ud83e"}']
    halves.append(halves[0].replace(b"d83e", b"dd85"))
    data = lines(*HELLO[:2]) + b"\n".join(halves) + b"\n" + lines(*HELLO[4:])
    async with Agent(Recording(data)) as agent:
        await collect(agent)
        assert agent.messages[-1].content == "🦅"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"hello", "it is no recording: expected .* begins with b'hello'"),
        (b"\x00\x01", "it is no recording"),
        (b"[1]", "what is at /0 is no event"),
        (b"[" + lines(STARTED) + b", []]", "what is at /1 is no event"),
        (b"[{]", "no JSON array of events"),
        (b'[{"a": NaN}]', "NaN is no JSON number"),
        (b"[]}", "no JSON array of events"),
        (b'[]}, "a": {', "no JSON array of events"),
        (b"[" * 1000, "nests deeper"),
        (lines(STARTED) + b"{oh no\n", "line 2 is no line of a recording: the frame is not JSON"),
        (b"{oh no", "line 1 is no line"),
        (lines(STARTED) + b"[]\n", "line 2 is no line"),
        (lines({"event": STARTED}), "line 1 .*: it has no time 'at'"),
        (lines({"at": "now", "event": STARTED}), "it has no time 'at'"),
        (lines({"at": 1e300, "event": STARTED}), "it has no time 'at'"),
        (lines({"at": 1}), "neither an input nor an event"),
        (lines({"at": 1, "event": STARTED, "input": {}}), "neither an input nor an event"),
        (recorded() + lines(STARTED), "some of its lines are events"),
        (gzip.compress(lines(*HELLO))[:-9], "cut off"),
        (b"\x1f\x8bhello there", "no recording, or cut off"),
        (b" " * 70000 + lines(*HELLO), "too much space"),
    ],
)
def test_what_is_no_recording_is_refused_at_once(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Recording(data)


@pytest.mark.parametrize("data", [b"", b" \n\n"])
async def test_an_empty_recording_has_no_run(data: bytes) -> None:
    with pytest.raises(TransportError, match="no further run"):
        await play(data)


def test_what_packs_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aguia.codec.recordings.MAX_RECORDING", 5000)
    with pytest.raises(ValueError, match="larger than the 5000 bytes"):
        Recording(gzip.compress(b" " * 100_000))
    with pytest.raises(ValueError, match="larger than the 5000 bytes"):
        Recording(b" " * 5001)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Recording(tmp_path / "nothing")
    with pytest.raises(TypeError, match="binary mode"):
        Recording(io.StringIO("{}"))  # type: ignore[arg-type]


# Pace


async def test_a_recording_keeps_its_own_times() -> None:
    """Counted from the beginning, so that a slow reader is not slowed down twice."""
    began = time.monotonic()
    async with Recording(recorded(*HELLO, step=0.05), pace="original").open(run_input()) as answer:
        arrived = [time.monotonic() - began async for _ in answer.body]
    assert all(at >= 0.05 * number - 0.01 for number, at in enumerate(arrived, 1))
    assert arrived[-1] < 2
    async with Recording(recorded(*HELLO, step=0.05), pace="original").open(run_input()) as answer:
        began = time.monotonic()
        async for _ in answer.body:
            await asyncio.sleep(0.05)
    assert time.monotonic() - began < 0.55


@pytest.mark.parametrize("kind", KINDS)
async def test_a_number_is_the_seconds_before_each_event(kind: str) -> None:
    began = time.monotonic()
    await play(KINDS[kind](*HELLO), pace=0.02)
    assert 0.1 < time.monotonic() - began < 2


async def test_without_a_pace_nothing_waits_and_others_get_their_turn() -> None:
    turns: list[int] = []

    async def others() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    began = time.monotonic()
    await play(recorded(*HELLO, step=100))
    await play(lines(*HELLO), pace="original")
    assert time.monotonic() - began < 2
    task.cancel()
    assert len(turns) >= len(HELLO)


@pytest.mark.parametrize("pace", [-1, float("nan"), float("inf"), "fast"])
def test_a_pace_that_is_none_is_refused(pace: Any) -> None:
    with pytest.raises(ValueError, match="pace is"):
        Recording(b"", pace=pace)
