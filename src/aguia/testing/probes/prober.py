"""What runs the probes: one after the other, each within its time, each with its evidence."""

import copy
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias
from uuid import uuid4

import anyio
import httpx

from aguia.codec import sse
from aguia.protocol.common import PROTOCOL_VERSION, UNSET
from aguia.testing.findings import Finding
from aguia.testing.probes.exchange import Caller, Exchange, Stream

__all__ = [
    "Failed",
    "NotAnAgent",
    "Probe",
    "ProbeResult",
    "ProbeSettings",
    "ProbeStatus",
    "Prober",
    "Probing",
    "Skipped",
    "select",
    "user",
]

ProbeStatus: TypeAlias = Literal["passed", "failed", "warned", "skipped"]

_logger: Final = logging.getLogger("aguia.testing")

_GONE: Final = (401, 403, 404, 405, 407)
_EXTRA_SECONDS: Final = 5.0
"""How long after the time of its exchanges a probe as a whole is over."""

_BRIEF_SECONDS: Final = 0.1
"""How long bodies are waited for that are known to be left open."""


class NotAnAgent(Exception):
    """Nothing can be probed there; the text says why."""


class Failed(Exception):
    """The agent breaks a rule that binds it."""


class Skipped(Exception):
    """The agent could not be led to where the rule matters."""


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """How an agent is led.

    Attributes:
        message: what makes it answer.
        tool: the name of the frontend tool that is offered to it.
        tool_message: what makes it call that tool.
        interrupt_message: what makes it stop and ask.
        state: the shared state that it begins with, JSON.
        timeout: seconds that one probe may take.
        idle: seconds during which nothing is read, where that is probed, and after which a
            client that has left comes back.
        settle: seconds for which a body may stay open after the end of its run.
    """

    message: str = "Hello! Please answer in one short sentence."
    tool: str = "aguia_probe_note"
    tool_message: str = ""
    interrupt_message: str = ""
    state: Any = field(default_factory=dict)
    timeout: float = 30.0
    idle: float = 2.0
    settle: float = 3.0


@dataclass(frozen=True)
class Probe:
    """One thing that is tried.

    Attributes:
        name: as `plain-run`.
        rules: the ids of the rules that are tested.
        what: what is done and expected, in a sentence.
        run: does it. Returns where all is well; raises `Failed` or `Skipped`.
    """

    name: str
    rules: tuple[str, ...]
    what: str
    run: "Callable[[Probing], Awaitable[None]]" = field(repr=False)


@dataclass
class ProbeResult:
    """How one probe ended.

    Attributes:
        probe: which.
        status: `failed` where a rule that binds is broken, `warned` where it is one that should
            be followed, or where something is doubtful.
        reasons: why, in sentences; of one that passed, what is worth knowing.
        findings: what is wrong with its streams, beyond what those of a plain run have.
        exchanges: what was sent and what came.
        seconds: how long it took.
    """

    probe: Probe
    status: ProbeStatus
    reasons: list[str]
    findings: list[Finding]
    exchanges: list[Exchange]
    seconds: float


class Prober:
    """Probes one agent.

    Args:
        client: makes the requests; follows no proxy where that is not wanted.
        url: of the agent.
        headers: sent along, for authentication and the like.
        settings: how the agent is led.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        settings: ProbeSettings | None = None,
    ) -> None:
        self.settings: ProbeSettings = settings or ProbeSettings()
        self.known: set[tuple[str | None, ...]] = set()
        """What a plain run has already shown to be wrong."""
        self.plain: Stream | None = None
        """The plain run, where there is one."""
        self.speaks_binary: bool | None = None
        self._caller = Caller(client, url, headers or {})

    async def run(self, probes: Iterable[Probe]) -> AsyncIterator[ProbeResult]:
        """Run the probes and give their results; a plain run comes first in any case.

        Raises `NotAnAgent` where no plain run can be had for reasons that have nothing to do
        with the protocol: nobody answers, or wants credentials.
        """
        first = Probing(self, self._deadline())
        exchange = await first.call("a plain run", first.input())
        if exchange.status is None:
            raise NotAnAgent(exchange.problem)
        if exchange.status in _GONE or 300 <= exchange.status < 400:
            where = exchange.headers.get("location", "")
            raise NotAnAgent(f"it answers {exchange.status}{' and ' * bool(where)}{where}")
        first.plain = exchange
        try:
            first.need_plain_run()
        except (Skipped, ImportError):
            pass  # the probes will say so
        for probe in probes:
            yield await self._probe(probe, exchange)

    async def _probe(self, probe: Probe, plain: Exchange) -> ProbeResult:
        probing = Probing(self, self._deadline(), plain)
        began = anyio.current_time()
        status: ProbeStatus = "passed"
        try:
            with anyio.fail_after(self.settings.timeout + _EXTRA_SECONDS):
                await probe.run(probing)
            if probing.warnings:
                status = "warned"
        except Skipped as skipped:
            status = "skipped"
            probing.warnings = [str(skipped)]
        except Failed as failed:
            status = "failed"
            probing.warnings.insert(0, str(failed))
        except TimeoutError:
            status = "failed"
            probing.warnings.insert(0, f"it took longer than {self.settings.timeout:g} seconds")
        except ImportError as error:
            status = "skipped"
            probing.warnings = [f"what came can't be read here: {error}"]
        except Exception as error:
            # Whatever a server comes up with, the other probes are for them to say.
            status = "failed"
            probing.warnings.insert(0, f"what came can't be judged: {type(error).__name__}")
            _logger.debug("the probe %s broke", probe.name, exc_info=error)
        return ProbeResult(
            probe=probe,
            status=status,
            reasons=probing.warnings or probing.notes,
            findings=probing.findings,
            exchanges=probing.exchanges,
            seconds=anyio.current_time() - began,
        )

    def _deadline(self) -> float:
        return anyio.current_time() + self.settings.timeout

    async def call(self, label: str, body: bytes, **options: Any) -> Exchange:
        """Make one request."""
        return await self._caller.call(label, body, **options)


class Probing:
    """One probe under way: makes the requests and judges what comes.

    Attributes:
        settings: how the agent is led.
        plain: the exchange of the plain run.
        exchanges, findings: what goes into the result.
        warnings, notes: sentences of which the first kind makes the probe warn.
    """

    def __init__(self, prober: Prober, deadline: float, plain: Exchange | None = None) -> None:
        self.prober = prober
        self.settings: ProbeSettings = prober.settings
        self.plain = plain
        self.exchanges: list[Exchange] = []
        self.findings: list[Finding] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self._deadline = deadline

    # What is sent

    def input(self, text: str | None = None, **members: Any) -> dict[str, Any]:
        """A run input on a thread of its own with one message, and these members in camelCase."""
        content = self.settings.message if text is None else text
        return {
            "threadId": f"probe-thread-{uuid4().hex}",
            "runId": f"probe-run-{uuid4().hex}",
            "protocolVersion": PROTOCOL_VERSION,
            "messages": [user(content)],
            "tools": [],
            "context": [],
            "state": self.settings.state,
            "forwardedProps": {},
            **members,
        }

    def follow_up(
        self, stream: Stream, *messages: dict[str, Any], **members: Any
    ) -> dict[str, Any]:
        """The input of the run after another one, on the same thread."""
        before = stream.exchange.input or {}
        state = stream.conversation.state
        again: dict[str, Any] = {
            **before,
            "runId": f"probe-run-{uuid4().hex}",
            "messages": [*stream.messages, *messages],
            **members,
        }
        again.pop("state", None)
        if state is not None and state is not UNSET:
            again["state"] = state
        return again

    async def call(self, label: str, input: Any, **options: Any) -> Exchange:
        """POST a run input, or whatever is in its place: bytes are sent as they are."""
        body = input if isinstance(input, bytes) else json.dumps(input).encode()
        kept = copy.deepcopy(input) if isinstance(input, dict) else None
        options.setdefault("accept", sse.CONTENT_TYPE)
        known = ("open",) in self.prober.known
        options["settle"] = _BRIEF_SECONDS if known else self.settings.settle
        exchange = await self.prober.call(
            label, body, input=kept, deadline=self._deadline, **options
        )
        self.exchanges.append(exchange)
        return exchange

    async def serve(self, label: str, input: dict[str, Any], **options: Any) -> Stream:
        """POST a run input that has to be served, and judge the answer."""
        return self.served(await self.call(label, input, **options))

    # What is made of it

    def need_plain_run(self) -> Stream:
        """The plain run's stream; skips where there is none to compare with."""
        prober = self.prober
        if prober.plain is None and self.plain is not None and _is_served(self.plain):
            stream = Stream(self.plain)
            prober.known = {_key(finding) for finding in stream.findings}
            prober.known |= {(wrong,) for wrong in _wrong_ids(stream)}
            if stream.is_over:
                prober.known.add((self.plain.ended,))
            prober.plain = stream
        if prober.plain is None:
            raise Skipped(f"a plain run is not served: {self.plain.answer if self.plain else ''}")
        if prober.plain.exchange.ended == "timeout" and not prober.plain.is_over:
            raise Skipped("a plain run does not end")
        return prober.plain

    def warn(self, text: str) -> None:
        """Note something that makes the probe warn."""
        self.warnings.append(text)

    def note(self, text: str) -> None:
        """Note something that is worth knowing."""
        self.notes.append(text)

    def served(self, exchange: Exchange, *, plain: bool = False) -> Stream:
        """The stream of a run that had to be served; raises `Failed` where it was not, or badly.

        What is wrong with a plain run as well is held against the plain run alone.
        """
        if exchange.status == 429:
            raise Skipped("it answers 429: it is asked too often")
        if not _is_served(exchange):
            raise Failed(f"{exchange.label}: expected 200 and a stream, got {exchange.answer}")
        stream = Stream(exchange)
        known: set[tuple[str | None, ...]] = set() if plain else self.prober.known
        found = [finding for finding in stream.findings if _key(finding) not in known]
        self.findings += found
        errors = [finding for finding in found if finding.severity == "error"]
        if exchange.ended != "complete" and (exchange.ended,) not in known:
            raise Failed(f"{exchange.label}: {exchange.problem}")
        if errors:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            raise Failed(f"{exchange.label}: {errors[0]}{more}")
        wrong = [name for name in _wrong_ids(stream) if (name,) not in known]
        if wrong:
            names = " and ".join(wrong)
            raise Failed(f"{exchange.label}: RUN_STARTED has another {names} than the input")
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            self.warn(f"{exchange.label}: {found[0]}{more}")
        if not plain and stream.failure is not None and self.need_plain_run().failure is None:
            raise Failed(f"{exchange.label}: the run fails: {stream.failure[:200]}")
        return stream

    def refused(self, exchange: Exchange) -> None:
        """Judge the answer to an input that has to be refused; raises `Failed`."""
        status = exchange.status
        if status == 429:
            raise Skipped("it answers 429: it is asked too often")
        if status is None:
            raise Failed(f"{exchange.label}: expected an error status, got {exchange.answer}")
        if status < 400:
            raise Failed(f"{exchange.label}: expected an error status, got {exchange.answer}")
        if exchange.is_stream:
            raise Failed(f"{exchange.label}: the error status {status} comes with a stream")
        if status >= 500:
            self.warn(f"{exchange.label}: {status} speaks of an accident; 400 says what is wrong")


def user(content: Any) -> dict[str, Any]:
    """A message of the user's."""
    return {"id": f"probe-message-{uuid4().hex}", "role": "user", "content": content}


def select(probes: Collection[Probe], only: Iterable[str], skip: Iterable[str]) -> list[Probe]:
    """The probes whose names, or rules, or families of rules, are asked for and not left out.

    Raises `ValueError` for a name that fits none.
    """
    chosen = set(only)
    left_out = set(skip)
    for name in (*chosen, *left_out):
        if not any(_fits(probe, {name}) for probe in probes):
            raise ValueError(
                f"no probe '{name}'; there are {', '.join(probe.name for probe in probes)}"
            )
    return [
        probe
        for probe in probes
        if (not chosen or _fits(probe, chosen)) and not _fits(probe, left_out)
    ]


def _fits(probe: Probe, names: Collection[str]) -> bool:
    families = {rule.partition("-")[0] for rule in probe.rules}
    return not {probe.name, *probe.rules, *families}.isdisjoint(names)


def _is_served(exchange: Exchange) -> bool:
    return exchange.status == 200 and exchange.is_stream


def _wrong_ids(stream: Stream) -> list[str]:
    """The ids of the run that was asked for which its start does not carry (RUN-2)."""
    asked = stream.exchange.input or {}
    start = next(iter(stream.of_type("RUN_STARTED")[-1:]), asked)
    return [name for name in ("threadId", "runId") if start.get(name) != asked.get(name)]


def _key(finding: Finding) -> tuple[str | None, ...]:
    return (finding.severity, finding.rule, finding.event_type, finding.general_path)
