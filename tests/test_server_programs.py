"""Random programs against the run: whatever they do, the stream is one that readers accept.

A program is made from a source of randomness, as nested tuples, and then done. It opens and
nests and runs in parallel, forgets to close, mixes blocks with events and chunks of its own,
breaks rules and catches the refusal or not, changes the state in all ways, raises, cancels, and
writes when the run is long over.
"""

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any, Final

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from aguia import AguiaError, ProtocolViolation, RunAgentInput
from aguia.codec.json import encode
from aguia.server import AgentApp, Run, RunError, Speaker, run_agent
from support_runs import Recorded, plain, record, run_input
from support_server import node, serve

Op = tuple[Any, ...]
Block = list[Op]

SAMPLE: Final = 200

WORDS: Final = ("a", "", "é", "\n", "\ud83e", "\udd85", "🦅", '{"q":', "x" * 30)
ROLES: Final = ("assistant", "assistant", "user", "system", "developer")
LEAVES: Final = (
    *("write", "write", "say", "custom", "raw", "sleep", "usage", "activity", "patch activity"),
    *("state", "state", "state", "set state", "patch state", "bad patch", "flush"),
    *("open", "close", "chunk", "chunk", "late", "result", "frontend", "interrupt", "encrypt"),
    *("forbidden", "spawn"),
)
BLOCKS: Final = (
    *("text", "text", "call", "reasoning", "span", "thought", "step", "subagent", "subagent"),
    *("parallel", "careful", "careful"),
)
PREFIXES: Final = {"text": "t", "call": "c", "thought": "r", "reasoning": "r", "span": "s"}
ENDS: Final = ("raise", "raise run error", "raise odd", "raise cancelled", "cancel", "finish")


def program(random: Random, size: int) -> Block:
    """Some operations, with up to about `size` of them in all."""
    block: Block = []
    while size > 0:
        kind = random.random()
        if kind < 0.35 and size > 2:
            inner = random.randrange(1, size)
            name = random.choice(BLOCKS)
            if name == "parallel":
                branches = [program(random, inner // 2) for _ in range(2)]
                block.append(("parallel", branches))
            else:
                block.append((name, random.randrange(32), program(random, inner)))
            size -= inner + 1
        elif kind > 0.98:
            block.append((random.choice(ENDS),))
            size -= 1
        else:
            block.append((random.choice(LEAVES), random.randrange(1 << 16)))
            size -= 1
    return block


class Odd(BaseException):
    """Nothing that anybody expects."""


class Doing:
    """A program that is being done.

    Ids of blocks come from small pools, one for each family, so that they meet again.
    """

    def __init__(self, run: Run, tasks: list[asyncio.Task[None]]) -> None:
        self.run = run
        self.tasks = tasks
        self.closed: list[Any] = []
        self.held: list[Any] = []
        self.activities: list[Any] = []
        self.finished: list[bool] = []
        self.late = False

    async def do(self, block: Block, speaker: Speaker, stream: Any = None) -> None:
        for op in block:
            await self.one(op, speaker, stream)

    async def one(self, op: Op, speaker: Speaker, stream: Any) -> None:
        run = self.run
        match op:
            case ("parallel", branches):
                async with asyncio.TaskGroup() as group:
                    for branch in branches:
                        group.create_task(self.do(branch, speaker, stream))
            case ("careful", _, block):
                try:
                    await self.do(block, speaker, stream)
                except (AguiaError, ValueError, ExceptionGroup):
                    await asyncio.sleep(0)
            case (name, n, block):
                with self.mostly_careful(n // 4):
                    async with self.block(name, n % 4, speaker) as (inner, opened):
                        await self.do(block, inner, opened)
            case ("raise",):
                raise ValueError("secret")
            case ("raise run error",):
                raise RunError("It broke.", "broken")
            case ("raise odd",):
                raise Odd("secret")
            case ("raise cancelled",):
                raise asyncio.CancelledError("secret")
            case ("cancel",):
                run.cancel()
                await asyncio.sleep(0)
            case ("finish",):
                self.finished.append(True)
                try:
                    await run.emit({"type": "RUN_FINISHED", "threadId": "thread", "runId": "run"})
                except ProtocolViolation:
                    self.finished.pop()
            case ("spawn", n):
                again = program(Random(n), 4)
                self.tasks.append(asyncio.create_task(self.later(again, n % 3)))
            case (name, n):
                with self.mostly_careful(n):
                    await self.leaf(name, n, speaker, stream)

    @contextlib.contextmanager
    def mostly_careful(self, n: int) -> Iterator[None]:
        """Catch what the run refuses, seven times in eight, since programs would be short else."""
        try:
            yield
        except AguiaError:
            if n % 8 == 0:
                raise

    async def later(self, block: Block, turns: int) -> None:
        """A task that nobody waits for; what it writes may be late."""
        for _ in range(turns * 5):
            await asyncio.sleep(0)
        late = Doing(self.run, [])
        late.closed, late.finished, late.late = self.closed, self.finished, True
        with contextlib.suppress(BaseException):
            await late.do(block, self.run)

    @contextlib.asynccontextmanager
    async def block(self, name: str, n: int, speaker: Speaker) -> AsyncIterator[tuple[Any, Any]]:
        own = None if n > 1 else f"{PREFIXES.get(name, name)}{n}"
        match name:
            case "text":
                role: Any = ROLES[n]
                opened: Any = speaker.text(role=role, message_id=own, metadata={"n": n})
            case "call":
                arguments: Any = (None, "{", {"n": n}, None)[n]
                opened = speaker.tool_call("find", arguments, tool_call_id=own)
            case "reasoning":
                opened = speaker.reasoning(message_id=own)
            case "span":
                opened = speaker.reasoning_span(span_id=own)
            case "thought":
                opened = speaker.reasoning_message(message_id=own)
            case "step":
                opened = speaker.step(f"step {n % 2}")
            case _:
                opened = speaker.subagent("helper", subagent_run_id=own)
        async with opened:
            if n == 3:
                opened.annotate(n=n)
            if name == "subagent":
                if n == 2:
                    opened.suspend()
                opened.finish({"n": n} if n else None)
                yield opened, None
            else:
                yield speaker, opened
        self.closed.append(opened)

    async def leaf(self, name: str, n: int, speaker: Speaker, stream: Any) -> None:
        run = self.run
        owner = {} if speaker is run else {"subagentRunId": speaker.subagent_run_id}  # type: ignore[attr-defined]
        match name:
            case "write" if hasattr(stream, "write"):
                await stream.write(WORDS[n % len(WORDS)])
            case "write" | "sleep":
                await asyncio.sleep(0)
            case "say":
                await speaker.say(WORDS[n % len(WORDS)])
            case "custom":
                await speaker.custom("com.example.x", {"n": n}, metadata={"m": None})
            case "raw":
                await speaker.raw([n, None], "provider")
            case "usage":
                run.add_usage(model=f"m{n % 2}", input_tokens=n)
            case "activity":
                own = f"activity{n % 2}" if n % 3 else None
                replace = (None, True, False)[n % 3] if own is not None else None
                activity = await speaker.activity("PLAN", {"list": []}, message_id=own)
                await activity.set({"list": [n]}, replace=replace)
                self.activities.append(activity)
            case "patch activity" if self.activities:
                operation = {"op": "add", "path": "/list/-", "value": n}
                bad = {"op": "remove", "path": "/nope"}
                await self.activities[-1].patch([operation, bad][: 1 + n % 2])
            case "state" if not (
                self.finished or self.late
            ):  # what is changed later is nobody's state
                self.change(Random(n))
            case "set state":
                await run.set_state(_value(Random(n), 2))
            case "patch state":
                value = _value(Random(n), 1)
                operations: list[Any] = [{"op": "replace", "path": "", "value": {"k": value}}]
                if isinstance(run.state, dict):
                    operations = [{"op": "add", "path": "/new", "value": value}]
                await run.patch_state(operations)
            case "bad patch":
                await run.patch_state([{"op": "remove", "path": "/never/there"}])
            case "flush":
                await run.flush()
            case "open":
                await run.emit([*_opens(n % 2)][n % 5] | owner)
            case "close":
                await run.emit([*_closes(n % 2)][n % 5] | owner)
            case "chunk":
                await run.emit(_chunk(n) | owner)
            case "late" if self.closed:
                closed = self.closed[n % len(self.closed)]
                if hasattr(closed, "write"):
                    await closed.write("late")
            case "result":
                for each in self.closed:
                    if hasattr(each, "result"):
                        await each.result("done" if n % 2 else [{"type": "text", "text": "x"}])
                        break
            case "frontend":
                await run.call("open_file", {"n": n})
            case "interrupt":
                run.interrupt("approval", interrupt_id=f"i{n % 3}", response_type=bool)
            case "encrypt" if hasattr(stream, "encrypted_value"):
                await stream.encrypted_value("opaque")
            case "forbidden":
                await run.emit(FORBIDDEN[n % len(FORBIDDEN)])

    def change(self, random: Random) -> None:
        """Change something somewhere in the live state, or in a part that was kept from it."""
        run = self.run
        value = run.state
        if self.held and random.random() < 0.2:
            value = random.choice(self.held)
        while isinstance(value, dict | list) and value and random.random() < 0.6:
            inner = random.choice(list(value.values()) if isinstance(value, dict) else value)
            if not isinstance(inner, dict | list):
                break
            value = inner
        if random.random() < 0.3:
            self.held.append(value)
        made = _value(random, 2)
        match value:
            case dict() if value and random.random() < 0.3:
                value.pop(random.choice(list(value)))
            case dict():
                value[random.choice("abc/")] = made
            case list() if value and random.random() < 0.5:
                match random.randrange(4):
                    case 0:
                        del value[random.randrange(len(value))]
                    case 1:
                        value.reverse()
                    case 2:
                        value[random.randrange(len(value))] = made
                    case _:
                        value[:] = [*value[1:], made]
            case list():
                value.append(made)
            case _:
                run.state = {"a": made}


FORBIDDEN: Final[list[dict[str, Any]]] = [
    {"type": "RUN_STARTED", "threadId": "thread", "runId": "other"},
    {"type": "RUN_FINISHED", "threadId": "thread", "runId": "other"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "nobody", "delta": "x"},
    {"type": "TEXT_MESSAGE_START"},
    {"type": "SUBAGENT_FINISHED", "subagentRunId": "nobody"},
    {"type": "SOMETHING_ELSE"},
    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "k0", "role": "system", "delta": "x"},
    {"type": "STEP_FINISHED", "stepName": "nothing"},
]


def _opens(n: int) -> Iterator[dict[str, Any]]:
    yield {"type": "TEXT_MESSAGE_START", "messageId": f"t{n}"}
    yield {"type": "TOOL_CALL_START", "toolCallId": f"c{n}", "toolCallName": "find"}
    yield {"type": "REASONING_MESSAGE_START", "messageId": f"r{n}", "role": "reasoning"}
    yield {"type": "STEP_STARTED", "stepName": f"step {n}"}
    yield {"type": "REASONING_START", "messageId": f"s{n}"}


def _closes(n: int) -> Iterator[dict[str, Any]]:
    yield {"type": "TEXT_MESSAGE_END", "messageId": f"t{n}"}
    yield {"type": "TOOL_CALL_END", "toolCallId": f"c{n}"}
    yield {"type": "REASONING_MESSAGE_END", "messageId": f"r{n}"}
    yield {"type": "STEP_FINISHED", "stepName": f"step {n}"}
    yield {"type": "REASONING_END", "messageId": f"s{n}"}


def _chunk(n: int) -> dict[str, Any]:
    delta = WORDS[n % len(WORDS)]
    named = n % 3 > 0
    match n % 5:
        case 0 | 1 | 2:
            chunk = {"type": "TEXT_MESSAGE_CHUNK", "delta": delta}
            return chunk | {"messageId": f"k{n % 2}"} if named else chunk
        case 3:
            chunk = {"type": "TOOL_CALL_CHUNK", "delta": delta}
            return chunk | {"toolCallId": f"l{n % 2}", "toolCallName": "find"} if named else chunk
        case _:
            chunk = {"type": "REASONING_MESSAGE_CHUNK", "delta": delta}
            return chunk | {"messageId": f"q{n % 2}"} if named else chunk


def _value(random: Random, depth: int) -> Any:
    match random.randrange(6 if depth else 3):
        case 0:
            return random.choice([None, True, False, 0, 1, 1.5, -1])
        case 1 | 2:
            return random.choice(["", "a", "b/c", "~", "é" * 20])
        case 3:
            return {key: _value(random, depth - 1) for key in random.sample("abc~", 2)}
        case _:
            return [_value(random, depth - 1) for _ in range(random.randrange(3))]


def given_input(random: Random) -> RunAgentInput:
    tool = {"name": "open_file", "description": "Opens a file."}
    members: dict[str, Any] = {"tools": [tool]}
    if random.random() < 0.7:
        state = _value(random, 2)
        if state is not None:
            members["state"] = state
    return run_input(**members)


async def done(random: Random, *, read: Any = None) -> Recorded:
    """Make a program, do it, and read its stream strictly."""
    block = program(random, random.randrange(1, 70))
    input = given_input(random)
    capacity = random.choice([0, 1, 3, 256])
    patience = random.choice([None, 0.0, 0.0002])
    tasks: list[asyncio.Task[None]] = []
    with contextlib.suppress(Exception):
        note(f"{input.state!r} {block!r}")

    async def slow() -> None:
        await asyncio.sleep(patience or 0)

    async def agent(run: Run) -> Any:
        await Doing(run, tasks).do(block, run)
        return {"done": True}

    try:
        return await record(
            agent,
            input,
            fails=None,
            read=None if patience is None else slow,
            capacity=capacity,
            grace=0.3,
            max_steps=random.choice([None, None, 3]),
        )
    finally:
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Refusals are logged by the hundred."""
    loggers = [logging.getLogger(name) for name in ("aguia", "aguia.server")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.mark.unmeasured
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.randoms(use_true_random=False))
def test_whatever_a_program_does_its_stream_is_accepted(random: Random) -> None:
    """RUN-1, RUN-5, RUN-6, STREAM-1, CHUNK-5, SUB-2, SUB-4, STATE-2: without a warning.

    With exactly one terminal event, which is the last, and the state that the run has.
    """
    recorded = asyncio.run(done(random))
    assert "secret" not in json.dumps(recorded.events)


@pytest.fixture(scope="module")
def sample() -> list[tuple[RunAgentInput, Recorded]]:
    """Streams of some hundred programs, the same in every run of the tests."""
    found = []
    logging.disable(logging.CRITICAL)
    for seed in range(SAMPLE):
        random = Random(seed)
        state = random.getstate()
        recorded = asyncio.run(done(random))
        random.setstate(state)
        program(random, random.randrange(1, 70))
        found.append((given_input(random), recorded))
    logging.disable(logging.NOTSET)
    return found


@pytest.mark.unmeasured
def test_the_sample_is_of_all_kinds(sample: list[tuple[RunAgentInput, Recorded]]) -> None:
    outcomes = {recorded.outcome for _, recorded in sample}
    assert outcomes == {"success", "error", "cancelled", "interrupt"}
    kinds = {event["type"] for _, recorded in sample for event in recorded.events}
    assert len(kinds) == 30  # all but MESSAGES_SNAPSHOT


@pytest.mark.unmeasured
def test_the_reference_client_accepts_every_stream(
    sample: list[tuple[RunAgentInput, Recorded]],
) -> None:
    """All of the sample in one Node process, with the state that the run has."""
    cases = [
        {"input": {"state": {}} | msgspec.to_builtins(input), "events": recorded.events}
        for input, recorded in sample
    ]
    answers = node("replay.mjs", {"cases": cases})["cases"]
    rejected = [
        (seed, answer.get("error"))
        for seed, answer in enumerate(answers)
        if answer["verdict"] != "completed"
    ]
    assert rejected == []
    for (_, recorded), answer in zip(sample, answers, strict=True):
        assert answer["state"] == recorded.state


# The same over HTTP


@pytest.mark.unmeasured
@pytest.mark.anyio
async def test_a_program_gives_the_same_events_over_http_and_in_process() -> None:
    """HTTP-2, PROC-7: for a few programs, over a real server and without any."""
    programs = {}
    for seed in range(400):
        random = Random(seed)
        block = program(random, 25)
        text = repr(block)
        if not any(word in text for word in ("cancel", "spawn", "parallel", "odd")):
            programs[f"run{seed}"] = (block, given_input(random))
        if len(programs) == 25:
            break
    assert len(programs) == 25

    async def agent(run: Run) -> Any:
        await Doing(run, []).do(programs[run.run_id][0], run)
        return "done"

    with serve(AgentApp(agent)) as url:
        for run_id, (_, input) in programs.items():
            asked = msgspec.structs.replace(input, run_id=run_id)
            here = [plain(event) async for event in run_agent(agent, asked)]
            assert _made_alike(await _over_http(url, asked)) == _made_alike(here)


async def _over_http(url: str, input: RunAgentInput) -> list[dict[str, Any]]:
    """The frames as they were sent, and not what a reader makes of their chunks."""
    async with httpx.AsyncClient() as client:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        answer = await client.post(url, content=encode(input), headers=headers)
    assert answer.status_code == 200
    assert answer.content.endswith(b"\n\n")
    frames = answer.content.removesuffix(b"\n\n").split(b"\n\n")
    return [json.loads(frame.removeprefix(b"data: ")) for frame in frames]


def _made_alike(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events with one name for all ids that are made up anew each time."""
    text = json.dumps(events)
    alike: list[dict[str, Any]] = json.loads(re.sub(r'"[a-z]+-[0-9a-f]{32}"', '"made"', text))
    return alike
