"""Running the application with uvicorn so that it stops in order.

A server that is told to stop knows nothing of runs: it waits for connections to end, and cuts
them when its patience is over. Here the application is told first, so that running runs have
their grace time and then end as cancelled, with a terminal event (RUN-10).
"""

import asyncio
from collections.abc import Callable
from types import FrameType
from typing import Any

from aguia.server.app import AgentApp, Agents
from aguia.server.execution import Agent

try:
    import uvicorn
except ImportError as _error:
    raise ImportError(
        "aguia.server.serve and GracefulServer need uvicorn: pip install 'aguia[cli]'"
    ) from _error

__all__ = ["GracefulServer", "serve"]

_PATIENCE = 5.0
"""Seconds beyond every grace time after which connections are cut."""


class GracefulServer(uvicorn.Server):
    """A uvicorn server that gives the runs of `agents` their grace time when it stops.

    Args:
        config: of uvicorn; its application may wrap or mount the agents.
        agents: whose runs these are.
        grace: seconds that running runs may go on for when the server is told to stop.
        on_stop: is called when it is, with the number of runs that are under way.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        agents: AgentApp | Agents,
        *,
        grace: float = 5.0,
        on_stop: Callable[[int], None] | None = None,
    ) -> None:
        if config.timeout_graceful_shutdown is None:
            config.timeout_graceful_shutdown = int(grace + _PATIENCE) + 1
        super().__init__(config)
        self._agents = agents
        self._grace = grace
        self._on_stop = on_stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def serve(self, sockets: Any = None) -> None:
        """Serve until told to stop; see uvicorn."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; a second signal stops at once."""
        if self._loop is not None and not self.should_exit:
            self._loop.call_soon_threadsafe(self._begin_stopping)
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """Begin to stop, as a signal does. May be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._begin_stopping)
        self.should_exit = True

    def _begin_stopping(self) -> None:
        if self._stopping is None:
            if self._on_stop is not None:
                self._on_stop(self._agents.running)
            self._stopping = asyncio.ensure_future(self._agents.shutdown(self._grace))


def serve(
    agent: Agent | AgentApp | Agents,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    grace: float = 5.0,
) -> None:
    """Serve an agent, or an application of several, until a signal says to stop."""
    app = agent if isinstance(agent, AgentApp | Agents) else AgentApp(agent)
    GracefulServer(uvicorn.Config(app, host=host, port=port), app, grace=grace).run()
