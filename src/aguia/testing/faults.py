"""Faults on demand: what a stream looks like when the network, or its producer, is broken.

A fault is written as text, as on the command line of `aguia replay`: `drop:3`, `stall:2:0.5`.
Events are counted from 0, as findings count them; where no number is given, the seed decides.
The same seed makes the same faults.

    FaultInjector("drop:1").events(events)
    FaultInjector("corrupt:2").body(body)
    FaultyApp(app, "cut-after-event:3")

What is between two events in a body (comments, blank lines) is left as it is.
"""

import random
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aguia.codec import frames, sse
from aguia.codec.json import encode, parse_object
from aguia.codec.negotiation import media_type_of
from aguia.interop.values import plain_event
from aguia.protocol.errors import DecodeError
from aguia.protocol.events import Event

__all__ = [
    "FAULTS",
    "BrokenOff",
    "Cut",
    "Fault",
    "FaultInjector",
    "FaultyApp",
    "Pause",
    "SseFrames",
    "Step",
    "Steps",
]

FAULTS: Final[dict[str, str]] = {
    "cut-after-event:N": "the connection breaks after N events",
    "cut-after-byte:N": "the connection breaks after N bytes of the body",
    "stall:N:SECONDS": "silence before event N, for an hour unless SECONDS are given",
    "duplicate:N": "event N comes twice",
    "reorder:N": "event N comes after the one that follows it",
    "drop:N": "event N never comes",
    "corrupt:N": "the bytes of event N can't be read any more",
    "unknown-event:N": "before event N comes one of a type that nobody knows",
    "wrong-type:N": "a member of event N has a value of the wrong type",
    "drip:SECONDS": "the body comes byte by byte, every 0.01 seconds or as given",
}
"""Every fault as it is written, and what it does."""

Kind: TypeAlias = Literal[
    "cut-after-event",
    "cut-after-byte",
    "stall",
    "duplicate",
    "reorder",
    "drop",
    "corrupt",
    "unknown-event",
    "wrong-type",
    "drip",
]

_KINDS: Final = tuple(text.partition(":")[0] for text in FAULTS)
_STALL_SECONDS: Final = 3600.0
_DRIP_SECONDS: Final = 0.01
_MOST_SECONDS: Final = 86400.0
_EVENTS: Final = 8
"""Among how many events a fault without a number chooses when nobody knows how many come."""
_BYTES: Final = 512

UNKNOWN_EVENT: Final = {"type": "EVENT_OF_A_LATER_VERSION", "note": "nobody knows this yet"}

_OPEN: Final = frozenset({"type", "value", "snapshot", "event", "rawEvent", "metadata", "result"})
"""Members that may hold anything, or without which it would be another event."""


class BrokenOff(ConnectionError):
    """The stream breaks here, without an end."""


class Pause(NamedTuple):
    """Say nothing for so many seconds."""

    seconds: float


class Cut(NamedTuple):
    """Break the connection."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: what happens, see `FAULTS`.
        at: the number of the event, or how many events or bytes come before it; None lets the
            seed decide.
        seconds: how long, for those that take time; None takes the usual time.
    """

    kind: Kind
    at: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"there is no fault '{self.kind}'; there are {', '.join(FAULTS)}")
        if self.at is not None and self.at < 0:
            raise ValueError(f"{self.kind}: what comes before it is counted from 0, not {self.at}")
        if self.seconds is not None and not 0 <= self.seconds <= _MOST_SECONDS:
            raise ValueError(f"{self.kind}: no number of seconds: {self.seconds}")

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Read a fault as `FAULTS` writes them; raises `ValueError` that says what is expected."""
        kind, *rest = text.strip().split(":")
        form = next((form for form in FAULTS if form.partition(":")[0] == kind), None)
        if form is None:
            raise ValueError(f"there is no fault '{kind[:40]}'; there are {', '.join(FAULTS)}")
        names = form.split(":")[1:]
        if len(rest) > len(names):
            raise ValueError(f"'{text[:60]}' says too much; write it as {form}")
        given = dict(zip(names, rest, strict=False))
        try:
            at = int(given["N"]) if given.get("N") else None
            seconds = float(given["SECONDS"]) if given.get("SECONDS") else None
        except ValueError:
            raise ValueError(f"'{text[:60]}' holds no number; write it as {form}") from None
        return cls(cast(Kind, kind), at, seconds)

    def __str__(self) -> str:
        number = "" if self.at is None else f":{self.at}"
        return f"{self.kind}{number}{'' if self.seconds is None else f':{self.seconds:g}'}"


Step: TypeAlias = Any | Pause | Cut
"""What comes next: an event (in the form in which it was given), silence, or the end of it all."""


class FaultInjector:
    """Puts faults into streams.

    Args:
        faults: those that every stream gets, as text or as `Fault`.
        seed: decides what the faults leave open.

    Raises `ValueError` for what is no fault.
    """

    def __init__(self, *faults: Fault | str, seed: int = 0) -> None:
        self.faults: tuple[Fault, ...] = tuple(
            Fault.parse(each) if isinstance(each, str) else each for each in faults
        )
        self.seed = seed

    def events(self, events: Iterable[Event | dict[str, Any]], *, run: int = 0) -> list[Any]:
        """The events with the faults, as plain JSON; what takes time takes none.

        A corrupted event is a string, which is none. `run` is the number of the stream, with
        which the seed changes. Raises `ValueError` for a cut that counts bytes.
        """
        if any(fault.kind == "cut-after-byte" for fault in self.faults):
            raise ValueError("events have no bytes that could be counted")
        given = [plain_event(event) for event in events]
        steps = Steps(self, _Values(), run=run, events=len(given))
        done: list[Any] = []
        for event in (*given, None):
            for step in steps.end() if event is None else steps.event(event):
                if isinstance(step, Cut):
                    return done
                if not isinstance(step, Pause):
                    done.append(step)
        return done

    def body(self, body: bytes, content_type: str = sse.CONTENT_TYPE, *, run: int = 0) -> bytes:
        """The bytes of a body with the faults; what takes time takes none."""
        blocks = list(_whole(body, content_type))
        count = sum(is_event for is_event, _ in blocks)
        steps = Steps(self, _wire(content_type), run=run, events=count, size=len(body))
        done = bytearray()
        for is_event, data in (*blocks, (False, None)):
            for step in _steps(steps, is_event, data):
                if isinstance(step, Cut):
                    return bytes(done)
                if not isinstance(step, Pause):
                    done += step
        return bytes(done)

    async def stream(
        self,
        body: AsyncIterable[bytes],
        content_type: str = sse.CONTENT_TYPE,
        *,
        run: int = 0,
    ) -> AsyncIterator[bytes]:
        """A body with the faults, as it comes; raises `BrokenOff` where it is cut."""
        blocks = _blocks(content_type)
        steps = Steps(self, _wire(content_type), run=run)
        async for data in body:
            for block in blocks.feed(data):
                async for piece in _taken(_steps(steps, *block)):
                    yield piece
        for last in ((False, blocks.rest()), (False, None)):
            async for piece in _taken(_steps(steps, *last)):
                yield piece


async def _taken(steps: Iterator[Step]) -> AsyncIterator[bytes]:
    for step in steps:
        if isinstance(step, Cut):
            raise BrokenOff("the stream was cut on purpose")
        if isinstance(step, Pause):
            await anyio.sleep(step.seconds)
        else:
            yield step


def _steps(steps: "Steps", is_event: bool, data: bytes | None) -> Iterator[Step]:
    if data is None:
        return steps.end()
    return steps.event(data) if is_event else steps.between(data)


# What one stream goes through


class Wire(Protocol):
    """How events are written, and so how one is spoilt."""

    def corrupted(self, event: Any, chance: random.Random) -> Any: ...

    def mistyped(self, event: Any, chance: random.Random) -> Any: ...

    def unknown(self) -> Any: ...


class Steps:
    """One stream under faults: events go in, and what is to be done about them comes out.

    Args:
        injector: whose faults these are.
        wire: how its events are written.
        run: the number of the stream.
        events, size: how many events and bytes there will be, where that is known.
    """

    def __init__(
        self,
        injector: FaultInjector,
        wire: Wire,
        *,
        run: int = 0,
        events: int = _EVENTS,
        size: int = _BYTES,
    ) -> None:
        self._wire = wire
        self._chance = random.Random(f"{injector.seed}/{run}")
        self._here: dict[int, list[Fault]] = {}
        self._number = 0
        self._bytes = 0
        self._cut_byte: int | None = None
        self._drip: float | None = None
        self._held: list[Any] = []
        self._over = False
        for fault in injector.faults:
            self._place(fault, events, size)

    def _place(self, fault: Fault, events: int, size: int) -> None:
        at = fault.at
        match fault.kind:
            case "drip":
                self._drip = _DRIP_SECONDS if fault.seconds is None else fault.seconds
                return
            case "cut-after-byte":
                at = self._chance.randrange(max(size, 1)) if at is None else at
                self._cut_byte = at if self._cut_byte is None else min(at, self._cut_byte)
                return
        at = self._chance.randrange(max(events, 1)) if at is None else at
        self._here.setdefault(at, []).append(fault)

    def event(self, event: Any) -> Iterator[Step]:
        """Take the next event."""
        if self._over:
            return
        here = self._here.get(self._number, [])
        self._number += 1
        yield from self._before(here)
        kinds = [fault.kind for fault in here]
        if "wrong-type" in kinds:
            event = self._wire.mistyped(event, self._chance)
        if "corrupt" in kinds:
            event = self._wire.corrupted(event, self._chance)
        several = [] if "drop" in kinds else [event] * (1 + kinds.count("duplicate"))
        if "reorder" in kinds and not self._held:
            self._held = several
            return
        held, self._held = self._held, []
        for each in (*several, *held):
            yield from self._out(each)

    def between(self, data: bytes) -> Iterator[Step]:
        """Take bytes that are no event."""
        if data and not self._over:
            yield from self._out(data)

    def end(self) -> Iterator[Step]:
        """Take note that there is no more."""
        if self._over:
            return
        held, self._held = self._held, []
        for each in held:
            yield from self._out(each)
        yield from self._before(self._here.get(self._number, []))

    def _before(self, here: list[Fault]) -> Iterator[Step]:
        for fault in here:
            if self._over:
                return
            match fault.kind:
                case "stall":
                    yield Pause(_STALL_SECONDS if fault.seconds is None else fault.seconds)
                case "unknown-event":
                    yield from self._out(self._wire.unknown())
                case "cut-after-event":
                    self._over = True
                    yield Cut()

    def _out(self, event: Any) -> Iterator[Step]:
        if self._over:
            return
        if not isinstance(event, bytes):
            if self._drip is not None:
                yield Pause(self._drip)
            yield event
            return
        rest = None if self._cut_byte is None else self._cut_byte - self._bytes
        cut = rest is not None and rest <= len(event)
        data = event[:rest] if cut else event
        self._bytes += len(data)
        if self._drip is None:
            if data:
                yield data
        else:
            for at in range(len(data)):
                yield Pause(self._drip)
                yield data[at : at + 1]
        if cut:
            self._over = True
            yield Cut()


# How events are written


def _mistyped(event: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    names = sorted(
        name for name, value in event.items() if isinstance(value, str) and name not in _OPEN
    )
    if not names:
        return {**event, "timestamp": "now"}
    return {**event, chance.choice(names): 7}


class _Values:
    """Events as plain JSON."""

    def corrupted(self, event: Any, chance: random.Random) -> Any:
        text = event if isinstance(event, str) else encode(event).decode("utf-8", "replace")
        return text[: chance.randrange(1, len(text))] if len(text) > 1 else "{"

    def mistyped(self, event: Any, chance: random.Random) -> Any:
        return _mistyped(event, chance)

    def unknown(self) -> Any:
        return dict(UNKNOWN_EVENT)


class SseFrames:
    """Events as server-sent events."""

    def corrupted(self, event: bytes, chance: random.Random) -> bytes:
        """The event with a byte in it that JSON has no place for."""
        # A control character stands nowhere in JSON, wherever chance puts it.
        start = event.find(b"data:") + 5
        stop = max(len(event.rstrip(b"\r\n")), start + 1)
        at = chance.randrange(start, stop)
        return event[:at] + b"\x00" + event[at + 1 :]

    def mistyped(self, event: bytes, chance: random.Random) -> bytes:
        """The event with a member of the wrong type."""
        found = sse.SseDecoder().feed(event)
        try:
            raw = parse_object(found[0])
        except (DecodeError, IndexError):
            return event
        return sse.encode_event(_mistyped(raw, chance))

    def unknown(self) -> bytes:
        """An event of a type that nobody knows."""
        return sse.encode_event(UNKNOWN_EVENT)


class _BinaryFrames:
    """Events as frames of the binary binding, which can't hold a value of the wrong type."""

    def corrupted(self, event: bytes, chance: random.Random) -> bytes:
        # Wire type 7 exists nowhere.
        return frames.encode_frame(b"\x07" + event[5:])

    def mistyped(self, event: bytes, chance: random.Random) -> bytes:
        return self.corrupted(event, chance)

    def unknown(self) -> bytes:
        # An empty message in the arm 1000 of the envelope.
        return frames.encode_frame(b"\xc2\x3e\x00")


def _is_binary(content_type: str) -> bool:
    return media_type_of(content_type) == frames.CONTENT_TYPE


def _wire(content_type: str) -> Wire:
    return _BinaryFrames() if _is_binary(content_type) else SseFrames()


class _SseBlocks:
    """Cuts a body of server-sent events into what is an event and what is none, byte for byte."""

    _BLANK: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)+")
    _DATA: Final = re.compile(rb"^data(?::|\r?$)", re.MULTILINE)

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[tuple[bool, bytes]]:
        self._buffer += data
        found = []
        start = 0
        for blank in self._BLANK.finditer(self._buffer):
            if blank.end() == len(self._buffer) and self._buffer.endswith(b"\r"):
                break  # half a line end, perhaps
            block = self._buffer[start : blank.end()]
            found.append((self._DATA.search(block) is not None, block))
            start = blank.end()
        self._buffer = self._buffer[start:]
        return found

    def rest(self) -> bytes:
        rest, self._buffer = self._buffer, b""
        return rest


class _BinaryBlocks:
    """Cuts a body of the binary binding into its frames, length and all."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[tuple[bool, bytes]]:
        self._buffer += data
        found = []
        while len(self._buffer) >= 4:
            stop = 4 + int.from_bytes(self._buffer[:4], "big")
            if stop > len(self._buffer):
                break
            found.append((True, self._buffer[:stop]))
            self._buffer = self._buffer[stop:]
        return found

    def rest(self) -> bytes:
        rest, self._buffer = self._buffer, b""
        return rest


def _blocks(content_type: str) -> _SseBlocks | _BinaryBlocks:
    return _BinaryBlocks() if _is_binary(content_type) else _SseBlocks()


def _whole(body: bytes, content_type: str) -> Iterator[tuple[bool, bytes]]:
    blocks = _blocks(content_type)
    yield from blocks.feed(body)
    if rest := blocks.rest():
        yield False, rest


# Around an application


class FaultyApp:
    """An ASGI application whose streams have faults. Whatever is no stream stays as it is.

    A cut makes the application return in the middle of its answer, at which a server breaks the
    connection; the application within is told that its client has gone.

    Args:
        app: the application.
        faults: those that its streams get, as text or as `Fault`.
        seed: decides what the faults leave open.
        runs: the numbers of the streams that get them, counted from 0; None for all.

    Attributes:
        count: how many streams there have been.
    """

    def __init__(
        self,
        app: ASGIApp,
        *faults: Fault | str,
        seed: int = 0,
        runs: Container[int] | None = None,
    ) -> None:
        self.app = app
        self.count: int = 0
        self._injector = FaultInjector(*faults, seed=seed)
        self._runs = runs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _FaultyAnswer(self._begin, receive, send)
        try:
            await self.app(scope, answer.receive, answer.send)
        except Exception:
            if not answer.cut:
                raise

    def _begin(self, content_type: str) -> Steps | None:
        if not content_type.lower().startswith((sse.CONTENT_TYPE, frames.CONTENT_TYPE)):
            return None
        run, self.count = self.count, self.count + 1
        if self._runs is not None and run not in self._runs:
            return None
        return Steps(self._injector, _wire(content_type), run=run)


class _FaultyAnswer:
    """One answer on its way out."""

    def __init__(self, begin: Callable[[str], Steps | None], receive: Receive, send: Send) -> None:
        self.cut = False
        self._begin = begin
        self._receive = receive
        self._send = send
        self._gone = anyio.Event()
        self._steps: Steps | None = None
        self._blocks: _SseBlocks | _BinaryBlocks = _SseBlocks()

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._gone.set()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
            content_type = dict(headers).get(b"content-type", b"").decode("latin-1")
            self._steps = self._begin(content_type)
            if self._steps is not None:
                self._blocks = _blocks(content_type)
                headers = [header for header in headers if header[0] != b"content-length"]
                message = {**message, "headers": headers}
        steps = self._steps
        if message["type"] != "http.response.body" or steps is None:
            await self._send(message)
            return
        for is_event, data in self._blocks.feed(message.get("body", b"")):
            await self._take(_steps(steps, is_event, data))
        if not message.get("more_body", False):
            await self._take(steps.between(self._blocks.rest()))
            await self._take(steps.end())
            await self._send({"type": "http.response.body", "body": b""})

    async def _take(self, steps: Iterator[Step]) -> None:
        if self.cut:
            raise BrokenOff("the stream was cut on purpose")
        for step in steps:
            if isinstance(step, Cut):
                self.cut = True
                raise BrokenOff("the stream was cut on purpose")
            if isinstance(step, Pause):
                with anyio.move_on_after(step.seconds):
                    await self._gone.wait()
                    raise BrokenOff("the client has gone")
            else:
                await self._send({"type": "http.response.body", "body": step, "more_body": True})
