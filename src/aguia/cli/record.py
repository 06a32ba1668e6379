"""`aguia record`: calls an agent and keeps what comes, whatever it is."""

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

import anyio
import httpx

from aguia.cli.address import headers_of, is_local, url_of
from aguia.cli.failures import (
    FAILED,
    INTERRUPTED,
    OK,
    UNFINISHED,
    UNREACHABLE,
    explain,
)
from aguia.cli.inputs import declined, input_of, read_input, said
from aguia.cli.safe import one_line
from aguia.cli.words import plural, size
from aguia.client import HttpTransport, Timeouts
from aguia.codec.json import encode, parse_object
from aguia.codec.sse import SseDecoder
from aguia.consumer import Consumer
from aguia.conversation import Conversation
from aguia.protocol.errors import AguiaError, ConnectionFailed, DecodeError
from aguia.protocol.input import RunAgentInput
from aguia.protocol.messages import ActivityMessage

__all__ = ["record"]

MESSAGE: Final = "Hello! What can you do?"
"""What is said to an agent when nobody says what to say."""


def record(
    url: str,
    file: str,
    *,
    messages: Sequence[str] = (),
    input: Path | None = None,
    headers: Sequence[str] = (),
    raw: bool = False,
    append: bool = False,
    force: bool = False,
    timeout: float = 600.0,
) -> int:
    """Calls the agent at `url`, once for each message, and writes what comes to `file`.

    `file` may be `-`. `input` is the run input of the first call, a file. `raw` keeps the body
    as it came over the wire. The exit code is one of those of `aguia.cli.main`, by how the last
    run ended.
    """
    try:
        address, fields = url_of(url), headers_of(headers)
        first = None if input is None else read_input(input)
        out = _open(file, append=append, force=force)
    except ValueError as error:
        return _complain(str(error), UNREACHABLE)
    except OSError as error:
        return _complain(f"can't open {file}: {error.strerror or error}", UNREACHABLE)
    # How the run ended is said here, and what readers lose is said by `aguia check`.
    logging.getLogger("aguia").setLevel(logging.ERROR)
    says = list(messages) or ([MESSAGE] if first is None else [])
    recorder = _Recorder(address, fields, out, raw=raw, timeout=timeout)
    try:
        return anyio.run(recorder.record, first, says)
    except KeyboardInterrupt:
        return _complain("interrupted; what has come is kept", INTERRUPTED)
    except OSError as error:
        return _complain(f"can't write {file}: {error.strerror or error}", FAILED)
    finally:
        if out is not sys.stdout.buffer:
            out.close()


class _Recorder:
    """Runs of one thread, one after another, into one file."""

    def __init__(
        self, url: str, headers: dict[str, str], out: IO[bytes], *, raw: bool, timeout: float
    ) -> None:
        self._url = url
        self._headers = headers
        self._out = out
        self._raw = raw
        self._timeout = timeout

    async def record(self, first: RunAgentInput | None, messages: list[str]) -> int:
        run_input = first if first is not None else input_of([said(messages.pop(0))])
        while True:
            code, built = await self._run(run_input)
            if not messages or code in (FAILED, UNREACHABLE):
                return code
            if built.interrupts:
                # Only a person can answer, and no input may pass over the question (INT-2).
                left = plural(len(messages), "message")
                return _complain(f"nobody answers it; {left} not sent", code)
            for call in built.pending_tool_calls:
                built.add(declined(call))
            held = [each for each in built.messages if not isinstance(each, ActivityMessage)]
            run_input = input_of(
                [*held, said(messages.pop(0))], thread_id=run_input.thread_id, state=built.state
            )

    async def _run(self, run_input: RunAgentInput) -> tuple[int, Conversation]:
        """One run: its exit code, and the conversation after it."""
        consumer = Consumer(run_input, on_warning=_silent)
        error: AguiaError | None = None
        kept = _Kept(self._out, self._raw)
        kept.input(run_input)
        try:
            async with httpx.AsyncClient(trust_env=not is_local(self._url)) as client:
                transport = HttpTransport(
                    self._url,
                    headers=self._headers,
                    client=client,
                    timeouts=Timeouts(idle=self._timeout, total=self._timeout),
                )
                async with transport.open(run_input) as answer:
                    async for data in answer.body:
                        kept.body(data)
                        # What comes after a fault is kept as well.
                        error = error or _judge(consumer, data)
            error = error or _judge(consumer, None)
        except AguiaError as raised:
            error = error or raised
        finally:
            kept.end()
        code, how = _outcome(consumer, error, self._url)
        came = f"{plural(kept.events, 'event')}, {size(kept.bytes)}"
        _complain(f"{how}; kept {came}", code)
        if kept.lost:
            _complain(
                f"not in the recording: {plural(kept.lost, 'frame')} without a JSON object; --raw "
                "keeps the body as it is",
                code,
            )
        return code, consumer.conversation


class _Kept:
    """What is written of one run: lines as `aguia.middleware.Recorder` has them, or the body."""

    def __init__(self, out: IO[bytes], raw: bool) -> None:
        self.events = 0
        self.bytes = 0
        self.lost = 0
        self._out = out
        self._raw = raw
        self._decoder = SseDecoder()
        self._began = time.monotonic()

    def input(self, run_input: RunAgentInput) -> None:
        if not self._raw:
            self._line(input=run_input)
        elif self._out.seekable() and self._out.tell():
            # However the run before it ended, this one begins with an event of its own.
            self._out.write(b"\n\n")

    def body(self, data: bytes) -> None:
        self.bytes += len(data)
        if self._raw:
            self._out.write(data)
        for frame in self._decoder.feed(data):
            self._event(frame)
        self._decoder.check()
        self._out.flush()

    def end(self) -> None:
        # An event that the body broke off in is none.
        self._out.flush()

    def _event(self, frame: bytes) -> None:
        try:
            event = parse_object(frame)
        except DecodeError:
            self.lost += not self._raw
            return
        self.events += 1
        if not self._raw:
            self._line(event=event)

    def _line(self, **what: Any) -> None:
        at = round(time.monotonic() - self._began, 6)
        self._out.write(encode({"at": at, **what}) + b"\n")


def _judge(consumer: Consumer, data: bytes | None) -> AguiaError | None:
    try:
        for _ in consumer.end() if data is None else consumer.receive(data):
            pass
    except AguiaError as error:
        return error
    return None


def _outcome(consumer: Consumer, error: AguiaError | None, url: str) -> tuple[int, str]:
    """The exit code for how a run ended, and that in words."""
    if error is not None:
        unreachable = isinstance(error, ConnectionFailed)
        return UNREACHABLE if unreachable else FAILED, explain(error, url).rstrip(".")
    conversation = consumer.conversation
    if conversation.error is not None:
        return FAILED, f"the run failed: {conversation.error.message}"
    outcome = conversation.outcome
    match None if outcome is None else outcome.type:
        case "interrupt":
            return UNFINISHED, "the run asks for an answer"
        case "cancelled":
            return UNFINISHED, "the run was cancelled"
    return OK, "the run succeeded"


def _silent(_: Any) -> None:
    pass


def _open(file: str, *, append: bool, force: bool) -> IO[bytes]:
    if file == "-":
        return sys.stdout.buffer
    if append and force:
        raise ValueError("--append keeps what the file holds and --force doesn't: choose one")
    try:
        return open(file, "ab" if append else "wb" if force else "xb")
    except FileExistsError:
        raise ValueError(
            f"{file} is there already; --append adds to it, --force replaces it"
        ) from None


def _complain(text: str, code: int) -> int:
    """Says it to the person; what was recorded may be what goes to the standard output."""
    sys.stderr.write(f"aguia: {one_line(text, 1500)}\n")
    return code
