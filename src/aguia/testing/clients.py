"""Clients of agents in this process, whose streams are checked as they pass."""

import inspect
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Unpack

from aguia import sync
from aguia.client import PROTOBUF, Agent, Answer, AsgiTransport, Transport
from aguia.client.agent import AgentOptions
from aguia.codec.negotiation import media_type_of
from aguia.protocol.errors import DecodeError, TransportError, TruncatedRun
from aguia.protocol.input import RunAgentInput
from aguia.server import AgentApp, InProcess
from aguia.testing.assertions import complaint
from aguia.testing.checker import Checker
from aguia.testing.faults import Fault, FaultyApp
from aguia.testing.findings import Finding

__all__ = ["ClientFactory"]


class ClientFactory:
    """Makes clients of agents in this process, and checks what the agents say.

    The fixture `agui_client` of the pytest plugin: a test whose agents break a rule fails, also
    where the client did not mind.
    """

    def __init__(self) -> None:
        self._watches: list[_Watch] = []
        self._to_close: list[sync.Agent] = []

    def __call__(
        self,
        agent: Any,
        *,
        check: bool = True,
        ignore: Iterable[str] = (),
        warnings: bool = False,
        path: str = "/",
        faults: Iterable[Fault | str] = (),
        seed: int = 0,
        **options: Unpack[AgentOptions],
    ) -> Agent:
        """Make a client.

        Args:
            agent: an agent function, an ASGI application, or a transport.
            check: whether the streams of its runs are checked.
            ignore: ids of rules, or of their families, that may be broken.
            warnings: whether warnings count as well.
            path: of the agent in an application.
            faults: what its streams get, as `aguia.testing.FAULTS` lists it, for a test of what
                the application does then; such streams are not checked.
            seed: decides what the faults leave open.
            options: see `aguia.Agent`.

        It may be used as `async with`; when its runs are over it holds nothing that would have
        to be released.

        Raises `TypeError` for what is no agent, or for faults in a transport's streams, and
        `ValueError` for what is no fault.
        """
        transport = _transport(agent, path, tuple(faults), seed)
        if check and not faults:
            transport = self._watched(transport, ignore, warnings, options)
        return Agent(transport, **options)

    def sync(
        self,
        agent: Any,
        *,
        check: bool = True,
        ignore: Iterable[str] = (),
        warnings: bool = False,
        path: str = "/",
        faults: Iterable[Fault | str] = (),
        seed: int = 0,
        **options: Unpack[AgentOptions],
    ) -> sync.Agent:
        """Make a client without async, which is closed at the end of the test."""
        transport = _transport(agent, path, tuple(faults), seed)
        if check and not faults:
            transport = self._watched(transport, ignore, warnings, options)
        made = sync.Agent(transport, **options)
        self._to_close.append(made)
        return made

    @property
    def findings(self) -> list[Finding]:
        """What was found in all streams, whether it counts or not."""
        return [
            finding
            for watch in self._watches
            for checker in watch.checkers
            for finding in checker.findings
        ]

    @property
    def complaint(self) -> str:
        """What is wrong with the streams so far, in words; "" if nothing is."""
        return "\n".join(said for watch in self._watches if (said := watch.complaint()))

    def close(self) -> None:
        """Close what needs it."""
        for agent in self._to_close:
            agent.close()

    def _watched(
        self,
        transport: Transport,
        ignore: Iterable[str],
        warnings: bool,
        options: AgentOptions,
    ) -> Transport:
        watch = _Watch(transport, tuple(ignore), warnings, options.get("peer_version"))
        self._watches.append(watch)
        return watch


def _transport(agent: Any, path: str, faults: tuple[Fault | str, ...], seed: int) -> Transport:
    if callable(getattr(agent, "open", None)) and callable(getattr(agent, "close", None)):
        if faults:
            raise TypeError("faults are put into the streams of a function or an application")
        found: Transport = agent
        return found
    if _takes(agent, "run"):
        if not faults:
            return InProcess(agent)
        agent, path = AgentApp(agent), "/"
    if _takes(agent, "scope", "receive", "send"):
        return AsgiTransport(FaultyApp(agent, *faults, seed=seed) if faults else agent, path=path)
    raise TypeError(
        "expected an agent function, which takes a run; an ASGI application, which takes scope, "
        f"receive and send; or a transport; not {type(agent).__name__}"
    )


def _takes(agent: Any, *arguments: str) -> bool:
    if not callable(agent):
        return False
    try:
        inspect.signature(agent).bind(*arguments)
    except TypeError:
        return False
    return True


class _Watch:
    """A transport through which another one's answers pass, each past a checker."""

    def __init__(
        self,
        transport: Transport,
        ignore: tuple[str, ...],
        warnings: bool,
        peer_version: str | None,
    ) -> None:
        self.checkers: list[Checker] = []
        self._transport = transport
        self._ignore = ignore
        self._warnings = warnings
        self._peer_version = peer_version

    @asynccontextmanager
    async def open(self, input: RunAgentInput) -> AsyncIterator[Answer]:
        async with self._transport.open(input) as answer:
            binary = media_type_of(str(answer.content_type)) == PROTOBUF
            checker = Checker(
                input,
                format="protobuf" if binary else "sse",
                peer_version=self._peer_version,
            )
            self.checkers.append(checker)
            yield Answer(answer.content_type, _passing(answer.body, checker))

    async def close(self) -> None:
        await self._transport.close()

    async def capabilities(self) -> Any | None:
        ask = getattr(self._transport, "capabilities", None)
        return None if ask is None else await ask()

    def complaint(self) -> str:
        """What is wrong with the streams that count."""
        said = []
        for number, checker in enumerate(self.checkers, start=1):
            found = complaint(checker, ignore=self._ignore, warnings=self._warnings)
            if found:
                said.append(f"the stream of run {number} breaks the protocol:\n{found}")
        return "\n".join(said)


async def _passing(body: AsyncIterator[Any], checker: Checker) -> AsyncIterator[Any]:
    """What passes is checked; whoever leaves early is not told that the stream has no end."""
    try:
        async for piece in body:
            if isinstance(piece, bytes):
                checker.receive(piece)
            else:
                checker.receive_event(piece)
            yield piece
    except (TruncatedRun, TransportError, DecodeError):
        checker.end()
        raise
    checker.end()
