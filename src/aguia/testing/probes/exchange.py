"""One request to an agent and its answer, as bytes, and what a reader makes of them.

Whatever the agent does, an exchange ends within its time and its size, and is there to be
looked at; nothing is raised for an answer that is none.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import anyio
import httpx
import msgspec

from aguia.client.http import causes, words_of
from aguia.codec import frames, sse
from aguia.codec.json import parse_object
from aguia.codec.negotiation import media_type_of
from aguia.consumer import Consumer
from aguia.conversation import Conversation
from aguia.protocol.errors import AguiaError, DecodeError
from aguia.testing.checker import Checker
from aguia.testing.findings import Finding

__all__ = ["MAX_BODY", "Caller", "Ending", "Exchange", "Stream"]

MAX_BODY: Final = 8 * 1024 * 1024
"""How many bytes of an answer are read."""

_PIECES: Final = 10_000

Ending: TypeAlias = Literal[
    "complete", "left", "open", "broken", "timeout", "too large", "no answer"
]
"""How an answer ended; `left` means by us."""


@dataclass
class Exchange:
    """One request and its answer.

    Attributes:
        label: what was asked, in a few words.
        request, sent: the body of the request, and the headers that matter.
        input: the run input in it, as plain JSON, or None where it holds none.
        status, headers: of the answer; None and nothing without one.
        body, pieces: what came; and after how many seconds how many bytes.
        ended, problem: how it ended, and why.
        seconds: how long it took.
    """

    label: str
    request: bytes
    sent: dict[str, str]
    input: dict[str, Any] | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    pieces: list[tuple[float, int]] = field(default_factory=list)
    ended: Ending = "no answer"
    problem: str = ""
    seconds: float = 0.0

    @property
    def content_type(self) -> str:
        """The content type of the answer, as it was sent."""
        return self.headers.get("content-type", "")

    @property
    def media_type(self) -> str:
        """The content type without parameters."""
        return media_type_of(self.content_type)

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream of events, of either binding."""
        return self.media_type in (sse.CONTENT_TYPE, frames.CONTENT_TYPE)

    @property
    def answer(self) -> str:
        """What came, in a few words."""
        if self.status is None:
            return self.problem or "no answer"
        kind = f" and {self.media_type}" if self.media_type else ""
        return f"{self.status}{kind}"


class Stream:
    """What a reader makes of an exchange that is a stream.

    Attributes:
        exchange: whose stream it is.
        events: as plain JSON; what is no event is left out.
        findings: of `Checker`.
        conversation: as `Consumer` builds it, as far as it gets.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        binary = exchange.media_type == frames.CONTENT_TYPE
        self.events: list[dict[str, Any]] = _events(exchange.body, binary)
        checker = Checker(exchange.input, format="protobuf" if binary else "sse")
        checker.receive(exchange.body)
        if exchange.ended == "complete":
            checker.end()
        self.findings: list[Finding] = checker.findings
        self.conversation: Conversation = _conversation(exchange)

    def of_type(self, *types: str) -> list[dict[str, Any]]:
        """The events of some types."""
        return [event for event in self.events if event.get("type") in types]

    @property
    def last(self) -> dict[str, Any]:
        """The last event, empty without one."""
        return self.events[-1] if self.events else {}

    @property
    def is_over(self) -> bool:
        """Whether the last event ends a run."""
        return self.last.get("type") in ("RUN_FINISHED", "RUN_ERROR")

    @property
    def failure(self) -> str | None:
        """What the `RUN_ERROR` at its end says, or None."""
        if self.last.get("type") != "RUN_ERROR":
            return None
        return str(self.last.get("message", ""))

    @property
    def outcome(self) -> str:
        """The type of the outcome of a run that finished; `success` where it names none."""
        outcome = self.last.get("outcome")
        return str(outcome.get("type")) if isinstance(outcome, dict) else "success"

    @property
    def messages(self) -> list[Any]:
        """The conversation's messages as the next input has them: without activities (ACT-4)."""
        plain = msgspec.to_builtins(list(self.conversation.messages))
        return [message for message in plain if message["role"] != "activity"]


def _events(body: bytes, binary: bool) -> list[dict[str, Any]]:
    events = []
    if binary:
        from aguia.codec import protobuf

        for frame in frames.FrameDecoder().feed(body):
            try:
                event = protobuf.decode_event(frame)
            except DecodeError:
                continue
            if event is not None:
                events.append(event)
        return events
    decoder = sse.SseDecoder()
    for data in decoder.feed(body):
        try:
            events.append(parse_object(data))
        except DecodeError:
            pass
    return events


def _conversation(exchange: Exchange) -> Conversation:
    consumer = Consumer(
        exchange.input, content_type=exchange.media_type, on_warning=lambda warning: None
    )
    try:
        for _ in consumer.receive(exchange.body):
            pass
        for _ in consumer.end():
            pass
    except AguiaError:
        pass  # the checker says what is wrong with it
    return consumer.conversation


class _Ends:
    """Whether the last event that has come ends a run."""

    def __init__(self, media_type: str) -> None:
        self.over = False
        self._decoder = sse.SseDecoder() if media_type == sse.CONTENT_TYPE else None

    def feed(self, data: bytes) -> None:
        found = self._decoder.feed(data) if self._decoder is not None else []
        if found:
            try:
                self.over = parse_object(found[-1]).get("type") in ("RUN_FINISHED", "RUN_ERROR")
            except DecodeError:
                self.over = False


class Caller:
    """Makes requests to one agent, bounded in time and size.

    Args:
        client: what they are made with.
        url: of the agent.
        headers: sent with every request.
    """

    def __init__(self, client: httpx.AsyncClient, url: str, headers: Mapping[str, str]) -> None:
        self._client = client
        self._url = url
        self._headers = dict(headers)

    async def call(
        self,
        label: str,
        body: bytes,
        *,
        input: dict[str, Any] | None = None,
        accept: str = sse.CONTENT_TYPE,
        deadline: float,
        pause: float = 0.0,
        glance: bool = False,
        settle: float = 3.0,
    ) -> Exchange:
        """POST a body and read the answer.

        Args:
            label: what is asked, in a few words.
            body: what is sent.
            input: the run input in it.
            accept: the header.
            deadline: the time of anyio's clock at which it has to be over.
            pause: seconds during which nothing is read, after the first piece of the answer.
            glance: whether to leave after the first piece.
            settle: seconds after which a body that is still open after the end of its run counts
                as left open.
        """
        sent = {"Content-Type": "application/json", "Accept": accept}
        exchange = Exchange(label=label, request=body, sent=sent, input=input)
        began = time.monotonic()
        with anyio.CancelScope(deadline=deadline) as scope:
            try:
                await self._read(exchange, began, pause, glance, settle)
            except (httpx.HTTPError, httpx.StreamError) as error:
                exchange.ended = "no answer" if exchange.status is None else "broken"
                words = [said for cause in causes(error) if (said := words_of(cause))]
                reason = words[0] if words else str(error) or type(error).__name__
                refused = isinstance(error, httpx.ConnectError)
                what = "no connection" if refused else "the connection broke"
                exchange.problem = f"{what}: {reason}"
        exchange.seconds = time.monotonic() - began
        if scope.cancelled_caught:
            waited = f"{exchange.seconds:.0f} seconds"
            if exchange.status is None:
                exchange.ended, exchange.problem = "no answer", f"no answer within {waited}"
            else:
                exchange.ended, exchange.problem = "timeout", f"no end within {waited}"
        return exchange

    async def _read(
        self, exchange: Exchange, began: float, pause: float, glance: bool, settle: float
    ) -> None:
        headers = {"Accept-Encoding": "identity", **self._headers, **exchange.sent}
        request = self._client.stream(
            "POST",
            self._url,
            content=exchange.request,
            headers=headers,
            timeout=None,
            follow_redirects=False,
        )
        async with request as response:
            exchange.status = response.status_code
            exchange.headers = {name.lower(): value for name, value in response.headers.items()}
            body = bytearray()
            ends = _Ends(exchange.media_type)
            pieces = response.aiter_bytes()
            try:
                while True:
                    piece = None
                    # Where a run has ended, nothing may follow for long.
                    with anyio.move_on_after(settle if ends.over else None) as settling:
                        piece = await anext(pieces, None)
                    if settling.cancelled_caught:
                        exchange.ended = "open"
                        exchange.problem = "the body stays open after the end of the run"
                        return
                    if piece is None:
                        exchange.ended = "complete"
                        return
                    if len(exchange.pieces) < _PIECES:
                        exchange.pieces.append((round(time.monotonic() - began, 6), len(piece)))
                    body += piece
                    ends.feed(piece)
                    if glance:
                        exchange.ended = "left"
                        return
                    if len(body) > MAX_BODY:
                        exchange.ended = "too large"
                        exchange.problem = f"the answer is larger than {MAX_BODY} bytes"
                        return
                    await anyio.sleep(pause)
                    pause = 0.0
            finally:
                # What has come is kept, however it ends.
                exchange.body = bytes(body[:MAX_BODY])
