"""Agents run in this process, and what a strict reader makes of their streams."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from aguia import Consumer, Conversation, ProtocolWarning, RunAgentInput
from aguia.codec import sse
from aguia.protocol.events import Event
from aguia.server import Agent, Execution, Run

__all__ = ["TERMINAL", "Recorded", "no_task_left", "plain", "record", "run_input"]

TERMINAL: Final = ("RUN_FINISHED", "RUN_ERROR")


def run_input(**members: Any) -> RunAgentInput:
    """A run input of today with an empty thread, its members in camelCase."""
    raw = {"threadId": "thread", "runId": "run", "messages": [], "protocolVersion": "1.0"}
    raw |= members
    return msgspec.convert(raw, RunAgentInput)


def plain(event: Event) -> dict[str, Any]:
    """An event as it is on the wire."""
    frame = sse.encode_event(event)
    value: dict[str, Any] = json.loads(frame.removeprefix(b"data: "))
    return value


@asynccontextmanager
async def no_task_left() -> AsyncIterator[None]:
    """Assert that the block leaves no task behind that was not there before."""
    before = asyncio.all_tasks()
    yield
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() - before == set()


@dataclass
class Recorded:
    """A whole stream, and the conversation that the reader built of it.

    Attributes:
        events: what the agent's run emitted, as plain JSON.
        conversation: what `Consumer` made of their bytes.
        warnings: what it warned of.
        state: what `run.state` was in the end, for a strict reading.
    """

    events: list[dict[str, Any]]
    conversation: Conversation
    warnings: list[ProtocolWarning] = field(default_factory=list)
    state: Any = None

    @property
    def types(self) -> list[str]:
        """The types between RUN_STARTED and the terminal event."""
        return [event["type"] for event in self.events[1:-1]]

    @property
    def said(self) -> list[dict[str, Any]]:
        """The events between RUN_STARTED and the terminal event."""
        return self.events[1:-1]

    @property
    def terminal(self) -> dict[str, Any]:
        """The last event."""
        return self.events[-1]

    @property
    def outcome(self) -> str:
        """How the run ended: an outcome's type, or "error"."""
        if self.terminal["type"] == "RUN_ERROR":
            return "error"
        outcome = self.terminal.get("outcome", {"type": "success"})
        kind: str = outcome["type"]
        return kind


async def record(
    agent: Agent,
    input: RunAgentInput | None = None,
    *,
    fails: bool | None = False,
    strict: bool = True,
    on_run: Callable[[Execution], None] | None = None,
    read: Callable[[], Any] | None = None,
    limit: float = 10.0,
    **settings: Any,
) -> Recorded:
    """Run an agent, and read its stream's bytes strictly.

    Asserts what every stream has to be: one that `Consumer` accepts, with exactly one terminal
    event, which is the last, and RUN_ERROR exactly where the agent `fails` (None: either); with
    `strict` also without a warning, and leaving the reader with the state that the run has.
    `read` is awaited after each read, as by a slow reader; all of it has to be over after `limit`
    seconds.
    """
    input = run_input() if input is None else input
    execution = Execution(agent, input, **settings)
    if on_run is not None:
        on_run(execution)
    warnings: list[ProtocolWarning] = []
    consumer = Consumer(input, on_warning=warnings.append)
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(limit):
        drive = asyncio.create_task(execution.drive())
        while (taken := await execution.events.take()) is not None:
            for event in taken:
                events.append(plain(event))
                list(consumer.receive(sse.encode_event(event)))
            if read is not None:
                await read()
        await drive
    list(consumer.end())
    terminals = [index for index, event in enumerate(events) if event["type"] in TERMINAL]
    assert terminals == [len(events) - 1], [event["type"] for event in events]
    run: Run = execution.run
    state = json.loads(json.dumps(run.state)) if strict else None
    recorded = Recorded(events, consumer.conversation, warnings, state)
    if fails is not None:
        assert (recorded.outcome == "error") == fails, recorded.terminal
    if strict:
        assert [str(warning) for warning in warnings] == []
        assert recorded.conversation.state == recorded.state
    return recorded
