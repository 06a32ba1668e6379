"""The fault injector: what each fault does to events, to bodies and to an application."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.responses import Response

from aguia import Consumer, sync
from aguia.client import PROTOBUF, AsgiTransport, HttpAgent
from aguia.client.agent import Agent
from aguia.client.transports import Timeouts
from aguia.codec import protobuf
from aguia.codec.frames import FrameDecoder
from aguia.codec.json import convert_event
from aguia.protocol.errors import AguiaError, ProtocolViolation, RunFailed, RunTimeout, TruncatedRun
from aguia.server import AgentApp, InProcess
from aguia.testing import FAULTS, BrokenOff, Fault, FaultInjector, FaultyApp, ScriptedAgent
from support_asgi import Connection, call, input_body
from support_events import FINISHED, STARTED, event, frame
from support_server import serve

EVENTS = [
    STARTED,
    event("TEXT_MESSAGE_START", messageId="m", role="assistant"),
    event("TEXT_MESSAGE_CONTENT", messageId="m", delta="a"),
    event("TEXT_MESSAGE_CONTENT", messageId="m", delta="b"),
    event("TEXT_MESSAGE_END", messageId="m"),
    FINISHED,
]


def texts(body: bytes) -> list[Any]:
    """The data of the frames of a body, parsed where they are JSON."""
    found: list[Any] = []
    for block in body.split(b"\n\n"):
        if block.startswith(b"data: "):
            try:
                found.append(json.loads(block[6:]))
            except ValueError:
                found.append(block[6:])
    return found


def read(body: bytes) -> AguiaError | None:
    """What a reader makes of a body."""
    consumer = Consumer(on_warning=lambda warning: None)
    try:
        for _ in consumer.receive(body):
            pass
        for _ in consumer.end():
            pass
    except AguiaError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("fault", "order"),
    [
        ("drop:2", [0, 1, 3, 4, 5]),
        ("duplicate:2", [0, 1, 2, 2, 3, 4, 5]),
        ("reorder:3", [0, 1, 2, 4, 3, 5]),
        ("reorder:5", [0, 1, 2, 3, 4, 5]),
        ("cut-after-event:2", [0, 1]),
        ("cut-after-event:0", []),
        ("cut-after-event:6", [0, 1, 2, 3, 4, 5]),
        ("stall:2:60", [0, 1, 2, 3, 4, 5]),
        ("drip:60", [0, 1, 2, 3, 4, 5]),
        ("drop:99", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_fault_changes_the_order_of_events_and_of_frames_alike(
    fault: str, order: list[int]
) -> None:
    wanted = [EVENTS[number] for number in order]
    injector = FaultInjector(fault)
    assert injector.events(EVENTS) == wanted
    assert injector.body(frame(*EVENTS)) == frame(*wanted)


def test_an_unknown_event_comes_in_between_and_is_passed_over() -> None:
    injector = FaultInjector("unknown-event:2")
    events = injector.events(EVENTS)
    body = injector.body(frame(*EVENTS))
    assert events[:2] + events[3:] == EVENTS
    assert texts(body) == events
    assert read(body) is None


def test_a_value_of_the_wrong_type_is_malformed() -> None:
    """PROC-3."""
    for number in range(len(EVENTS)):
        injector = FaultInjector(f"wrong-type:{number}")
        body = injector.body(frame(*EVENTS))
        assert len(texts(body)) == len(EVENTS)
        error = read(body)
        assert isinstance(error, ProtocolViolation)
        assert (error.rule, error.index) == ("PROC-3", number)
        assert injector.events(EVENTS) == texts(body)


def test_a_corrupt_event_is_none_wherever_chance_hits_it() -> None:
    for seed in range(30):
        injector = FaultInjector("corrupt:2", seed=seed)
        error = read(injector.body(frame(*EVENTS)))
        assert isinstance(error, ProtocolViolation)
        assert error.index == 2
        assert isinstance(injector.events(EVENTS)[2], str)


def test_a_cut_after_bytes_counts_what_is_between_events_too() -> None:
    body = b": hello\n\n" + frame(*EVENTS)
    for count in (0, 3, 9, 50, len(body) - 1, len(body)):
        assert FaultInjector(f"cut-after-byte:{count}").body(body) == body[:count]
    with pytest.raises(ValueError, match="events have no bytes"):
        FaultInjector("cut-after-byte:3").events(EVENTS)


def test_what_is_no_event_is_neither_counted_nor_touched() -> None:
    body = b": one\n\n" + frame(STARTED) + b"\n: two\r\n\r\nretry: 5\n\n" + frame(FINISHED)
    assert FaultInjector().body(body) == body
    assert FaultInjector("drop:1").body(body) == body[: -len(frame(FINISHED))]


def test_several_faults_go_together() -> None:
    injector = FaultInjector("drop:1", "duplicate:4", Fault("cut-after-event", 5))
    assert injector.events(EVENTS) == [EVENTS[0], EVENTS[2], EVENTS[3], EVENTS[4], EVENTS[4]]


def test_the_seed_decides_what_a_fault_leaves_open_and_always_the_same() -> None:
    def dropped(seed: int, run: int = 0) -> int:
        left = FaultInjector("drop", seed=seed).events(EVENTS, run=run)
        assert len(left) == len(EVENTS) - 1
        return next((at for at, each in enumerate(left) if each != EVENTS[at]), len(EVENTS) - 1)

    assert [dropped(seed) for seed in range(20)] == [dropped(seed) for seed in range(20)]
    assert len({dropped(seed) for seed in range(20)}) > 2
    assert len({dropped(0, run) for run in range(20)}) > 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("explode", "there is no fault 'explode'; there are cut-after-event:N"),
        ("drop:x", "holds no number; write it as drop:N"),
        ("drop:-1", "counted from 0"),
        ("drop:1:2", "says too much"),
        ("stall:1:nan", "no number of seconds"),
        ("drip:-1", "no number of seconds"),
    ],
)
def test_what_is_no_fault_is_refused_with_what_is_expected(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FaultInjector(text)


def test_every_fault_of_the_list_can_be_read_and_written() -> None:
    for form in FAULTS:
        text = form.replace("SECONDS", "2.5").replace("N", "3")
        assert str(Fault.parse(text)) == text


@pytest.mark.anyio
async def test_a_stream_of_any_split_is_spoilt_like_the_whole_body() -> None:
    body = b": hi\n\n" + frame(*EVENTS)
    injector = FaultInjector("drop:1", "corrupt:3", "unknown-event:4", "drip:0", seed=7)

    async def pieces(size: int) -> AsyncIterator[bytes]:
        for at in range(0, len(body), size):
            yield body[at : at + size]

    # How much comes decides what a fault leaves open; these faults leave only a place open.
    for size in (1, 7, 4096):
        came = [piece async for piece in injector.stream(pieces(size))]
        assert b"".join(came) == injector.body(body)
        assert max(map(len, came)) == 1
    with pytest.raises(BrokenOff):
        async for _ in FaultInjector("cut-after-byte:9").stream(pieces(5)):
            pass


def test_a_binary_body_is_spoilt_frame_by_frame() -> None:
    """PB-2."""
    written = [protobuf.encode_event(convert_event(each)) for each in EVENTS]
    body = b"".join(written)

    def spoilt(fault: str) -> list[bytes]:
        return FrameDecoder().feed(FaultInjector(fault).body(body, PROTOBUF))

    assert len(spoilt("drop:2")) == len(EVENTS) - 1
    assert spoilt("duplicate:0")[0] == spoilt("duplicate:0")[1]
    assert protobuf.decode_event(spoilt("unknown-event:1")[1]) is None
    for fault in ("corrupt:1", "wrong-type:1"):
        with pytest.raises(ProtocolViolation):
            protobuf.decode_event(spoilt(fault)[1])


# -- around an application ---------------------------------------------------------------


def app(*faults: str, **options: Any) -> FaultyApp:
    agent = ScriptedAgent("hello there", repeat=True)
    return FaultyApp(AgentApp(agent, capabilities={"identity": {"name": "x"}}), *faults, **options)


@pytest.mark.anyio
async def test_an_application_is_cut_off_over_asgi() -> None:
    """RUN-11."""
    async with Agent(AsgiTransport(app("cut-after-event:2"))) as agent:
        result = agent.run("hi")
        with pytest.raises(TruncatedRun):
            async for _ in result:
                pass
        assert result.result.outcome == "truncated"


@pytest.mark.anyio
async def test_only_the_streams_that_are_named_have_faults() -> None:
    faulty = app("drop:0", runs={1})
    async with Agent(AsgiTransport(faulty)) as agent:
        assert (await agent.ask("hi")).text == "hello there"
        with pytest.raises(ProtocolViolation) as raised:
            await agent.ask("again")
        assert raised.value.rule == "RUN-1"
        assert (await agent.ask("and again")).text == "hello there"
    assert faulty.count == 3


@pytest.mark.anyio
async def test_what_is_no_stream_passes_unchanged() -> None:
    transport = AsgiTransport(app("cut-after-byte:0"))
    async with transport:
        assert await transport.capabilities() == {"identity": {"name": "x"}}


@pytest.mark.anyio
async def test_a_stall_is_silence_until_the_client_has_had_enough() -> None:
    timeouts = Timeouts(idle=0.2)
    async with Agent(AsgiTransport(app("stall:2"), timeouts=timeouts)) as agent:
        async with asyncio.timeout(10):
            with pytest.raises(RunTimeout):
                await agent.ask("hi")


@pytest.mark.anyio
async def test_a_client_that_leaves_ends_a_stall() -> None:
    connection = Connection(app("stall:2"), body=input_body())

    async def leave(message: Any) -> None:
        if b"TEXT_MESSAGE_START" in message.get("body", b""):
            connection.gone.set()

    connection.on_send = leave
    async with asyncio.timeout(10):
        await connection.run()
    assert not connection.complete


@pytest.mark.anyio
async def test_a_length_that_is_no_longer_true_is_not_sent() -> None:
    whole = Response(frame(*EVENTS), media_type="text/event-stream")
    connection = await call(FaultyApp(whole, "drop:2"))
    assert connection.answer == frame(*EVENTS[:2], *EVENTS[3:])
    assert "content-length" not in connection.answer_headers


@pytest.mark.anyio
async def test_a_server_breaks_the_connection_where_the_application_is_cut() -> None:
    with serve(app("cut-after-byte:100")) as url:
        async with HttpAgent(url) as agent:
            with pytest.raises(TruncatedRun):
                await agent.ask("hi")


# -- scripted agents ---------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_scripted_agent_answers_run_after_run_and_keeps_the_inputs() -> None:
    async def shout(run: Any) -> None:
        async with run.text() as text:
            await text.write(run.messages[-1].content.upper())

    scripted = ScriptedAgent(
        "one",
        [event("CUSTOM", name="x.y", value=1)],
        shout,
        [{**FINISHED, "threadId": "T", "runId": "R", "outcome": {"type": "cancelled"}}],
        ValueError("a secret"),
    )
    async with Agent(AsgiTransport(AgentApp(scripted)), thread_id="T") as agent:
        assert (await agent.ask("first")).text == "one"
        assert [e.type async for e in agent.run("second")] == [
            "RUN_STARTED",
            "CUSTOM",
            "RUN_FINISHED",
        ]
        assert (await agent.ask("third")).text == "THIRD"
        assert (await agent.ask("fourth", run_id="R")).outcome == "cancelled"
        for code in (None, "script-over"):
            result = agent.run("more")
            async for _ in result:
                pass
            assert result.result.outcome == "failed"
            assert getattr(result.result.error, "code", "none") == code
    assert len(scripted.inputs) == 6
    assert scripted.inputs[2].messages[-1].content == "third"


@pytest.mark.parametrize(("runs", "words"), [(1, "1 run"), (2, "2 runs"), (0, "0 runs")])
def test_a_script_that_is_over_says_how_long_it_was(runs: int, words: str) -> None:
    agent = ScriptedAgent(*["Hello."] * runs)
    with sync.Agent(InProcess(agent)) as client:
        for _ in range(runs):
            client.ask("Hi")
        with pytest.raises(RunFailed, match=f"the script has {words} and no more") as failed:
            client.ask("Hi")
    assert failed.value.code == "script-over"
