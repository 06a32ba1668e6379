"""An agent function as a transport: a client's runs reach it in this process, without HTTP.

What is served and what is judged is the same as over HTTP, which alone is missing. A client
takes it for a transport by what it can do, since neither room knows the other.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec

from aguia.codec.answer import Answer
from aguia.codec.json import encode
from aguia.protocol.capabilities import AgentCapabilities
from aguia.protocol.errors import InputRejected, InvalidInput
from aguia.protocol.input import RunAgentInput
from aguia.server.execution import Agent, Execution, check_agent, check_limits
from aguia.server.intake import declaration, read_input
from aguia.server.writers import SseWriter

__all__ = ["InProcess"]


class InProcess:
    """A transport to an agent function: `aguia.Agent(InProcess(agent))`.

    The agent gets a run input of its own, so that nothing it does to it is done to the
    client's. Whoever leaves an answer early cancels its run, and waits until that has ended.

    Args:
        agent: takes a `Run`; returns a coroutine, or an iterator of events (see `Agent`).
        capabilities: what the agent declares of itself.
        principal: who calls, as `Run.principal`.
        capacity, deadline, max_steps, grace, expose_errors, flatten_for_old_clients: see
            `Execution`.

    Raises `TypeError` or `ValueError` for a setting that can't be right.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        capabilities: AgentCapabilities | Mapping[str, Any] | None = None,
        principal: Any = None,
        capacity: int = 256,
        deadline: float | None = None,
        max_steps: int | None = None,
        grace: float = 5.0,
        expose_errors: bool = False,
        flatten_for_old_clients: bool = True,
    ) -> None:
        check_agent(agent)
        check_limits(capacity=capacity, deadline=deadline, max_steps=max_steps, grace=grace)
        self._agent = agent
        self._capabilities = None if capabilities is None else declaration(capabilities)
        self._settings: dict[str, Any] = {
            "principal": principal,
            "capacity": capacity,
            "deadline": deadline,
            "max_steps": max_steps,
            "grace": grace,
            "expose_errors": expose_errors,
            "flatten_for_old_clients": flatten_for_old_clients,
        }

    @asynccontextmanager
    async def open(self, input: RunAgentInput) -> AsyncIterator[Answer]:
        """Run the agent for an input and give its events as they come (TRANS-1).

        Raises `InputRejected` for an input that an agent is not run for (PROC-12, VER-2).
        """
        try:
            run_input = read_input(encode(input))
        except InvalidInput as error:
            raise InputRejected(error.message, rule=error.rule, path=error.path) from None
        execution = Execution(self._agent, run_input, **self._settings)
        drive = asyncio.create_task(execution.drive())
        try:
            async with aclosing(_body(execution, drive)) as body:
                yield Answer(SseWriter.content_type, body)
        finally:
            execution.events.abandon()
            execution.cancel()
            await asyncio.wait({drive})

    async def capabilities(self) -> Any | None:
        """What the agent declares of itself, as plain JSON, or None."""
        return None if self._capabilities is None else msgspec.json.decode(self._capabilities)

    async def close(self) -> None:
        """Nothing is held that would have to be released."""


async def _body(execution: Execution, drive: asyncio.Task[None]) -> AsyncGenerator[bytes, None]:
    # As bytes, since these are read several times as fast as values that would first have to be
    # copied and proved, and the reader can't be given what the agent still changes.
    writer = SseWriter()
    while (events := await execution.events.take()) is not None:
        if events:
            yield writer.events(events)
    await drive
