"""Asks a client in a process of its own what becomes of each stream, over a line protocol.

A line of JSON goes to the client's standard input for each case, and one comes back from its
standard output. A client that says nothing in time, ends, or says what is no reply has an error
in that case, and is started anew for the next.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import anyio
from anyio.abc import ByteReceiveStream, Process

from aguia.testing.comparison import show
from aguia.testing.corpus.cases import Case
from aguia.testing.corpus.comparison import NotAReply, problems

__all__ = ["CaseResult", "Status", "run_command"]

Status: TypeAlias = Literal["passed", "failed", "error", "known", "skipped"]
"""As expected; not so; no reply; not so, as is known; or the client says that it can't do it."""

MAX_LINE: Final = 64 * 1024 * 1024
"""The largest reply that is read, in bytes."""

GIVE_UP: Final = 5
"""After so many errors one after the other the client is not asked any more."""

_START_SECONDS: Final = 30.0
_END_SECONDS: Final = 2.0
_KEPT_ERRORS: Final = 4096


@dataclass(frozen=True)
class CaseResult:
    """What came of asking a client about one case.

    Attributes:
        case: that was asked.
        status: see `Status`.
        problems: what is wrong; or why there is no reply, why it was skipped or is known.
        reply: of the client, or None.
        seconds: how long it took.
        asked: whether the client was asked at all, and not given up before.
    """

    case: Case
    status: Status
    problems: tuple[str, ...] = ()
    reply: dict[str, Any] | None = None
    seconds: float = 0.0
    asked: bool = True


async def run_command(
    command: Sequence[str],
    cases: Iterable[Case],
    *,
    timeout: float = 10.0,
    split: int | None = None,
    known: Mapping[str, str] | None = None,
    on_result: Callable[[CaseResult], None] | None = None,
) -> list[CaseResult]:
    """Ask a client about each case, one after the other.

    Args:
        command: what starts the client, and its arguments.
        cases: what it is asked.
        timeout: seconds for each case; the first one after a start has 30 more.
        split: as `Case.request`.
        known: by the names of cases, why the client is not expected to pass them. One that
            passes has failed, so that the list stays true.
        on_result: is called with each result as it is there.

    Returns a result for each case, in their order. Raises `OSError` for a command that can't be
    started.
    """
    known = known or {}
    results: list[CaseResult] = []
    errors = 0
    client = _Client(command)
    try:
        for case in cases:
            began = time.monotonic()
            if errors >= GIVE_UP:
                why = f"not asked: {GIVE_UP} errors one after the other"
                result = CaseResult(case, "error", (why,), asked=False)
            else:
                result = await _ask(client, case, timeout, split)
            errors = errors + 1 if result.status == "error" else 0
            result = _judged(result, known.get(case.name), time.monotonic() - began)
            results.append(result)
            if on_result is not None:
                on_result(result)
    finally:
        with anyio.CancelScope(shield=True):
            await client.stop(_END_SECONDS)
    return results


def _error(case: Case, why: str) -> CaseResult:
    return CaseResult(case, "error", (why,))


async def _ask(client: "_Client", case: Case, timeout: float, split: int | None) -> CaseResult:
    seconds = timeout if client.started else timeout + _START_SECONDS
    line = b""
    try:
        with anyio.fail_after(seconds):
            line = await client.ask(json.dumps(case.request(split)).encode())
        reply = _reply(case, line)
        skip = reply.get("skip")
        if isinstance(skip, str):
            return CaseResult(case, "skipped", (skip,), reply)
        found = tuple(problems(case, reply))
        return CaseResult(case, "failed" if found else "passed", found, reply)
    except TimeoutError:
        why = f"no reply within {seconds:g} seconds"
    except _Ended as error:
        why = str(error)
    except NotAReply as error:
        why = f"what came is no reply: {error}"
    said = await client.stop(0)
    return _error(case, f"{why}{said}")


def _reply(case: Case, line: bytes) -> dict[str, Any]:
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        raise NotAReply(f"expected a line of JSON, not {show(_start(line))}") from None
    if not isinstance(reply, dict):
        raise NotAReply(f"expected an object, not {show(reply)}")
    if reply.get("case") != case.name:
        raise NotAReply(f"expected one to the case {case.name}, not to {show(reply.get('case'))}")
    return reply


def _start(line: bytes) -> str:
    return line[:200].decode("utf-8", "replace")


def _judged(result: CaseResult, reason: str | None, seconds: float) -> CaseResult:
    status, said = result.status, result.problems
    if reason is not None and status in ("failed", "error"):
        status, said = "known", (reason, *said)
    elif reason is not None and status == "passed":
        status, said = "failed", (f"it passes, and is listed as known not to: {reason}",)
    return replace(result, status=status, problems=said, seconds=seconds)


class _Ended(Exception):
    """The client has ended."""


class _Client:
    """The process of a client, started when it is first needed."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: Process | None = None
        self._received = b""
        self._errors = b""

    @property
    def started(self) -> bool:
        """Whether it runs and has been asked before."""
        return self._process is not None

    async def ask(self, line: bytes) -> bytes:
        """Send a line, and wait for the next one from the client. Raises `_Ended`."""
        if self._process is None:
            # A session of its own, so that what it starts can be ended with it.
            self._process = await anyio.open_process(self._command, start_new_session=True)
            self._received = self._errors = b""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        async with anyio.create_task_group() as group:
            # A client that complains a lot must not block on that.
            group.start_soon(self._listen, process.stderr)
            answer: bytes | None = None
            wrong: NotAReply | None = None
            try:
                await process.stdin.send(line + b"\n")
                answer = await self._line(process.stdout)
            except NotAReply as error:
                wrong = error
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                pass
            if answer is None and wrong is None:
                # What it said last is still on its way.
                with anyio.move_on_after(_END_SECONDS):
                    await process.wait()
                    await anyio.sleep(0.05)
            group.cancel_scope.cancel()
        if wrong is not None:
            raise wrong
        if answer is None:
            code = process.returncode
            how = "has closed its output" if code is None else f"ended with exit code {code}"
            raise _Ended(f"the client {how}")
        return answer

    async def _listen(self, errors: ByteReceiveStream) -> None:
        try:
            while True:
                self._errors = (self._errors + await errors.receive())[-_KEPT_ERRORS:]
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass

    async def _line(self, output: ByteReceiveStream) -> bytes:
        """The next line that is not blank."""
        while True:
            line, newline, rest = self._received.partition(b"\n")
            if newline:
                self._received = rest
                if line.strip():
                    return line
            elif len(line) > MAX_LINE:
                raise NotAReply(f"it is longer than {MAX_LINE} bytes")
            else:
                self._received += await output.receive()

    async def stop(self, seconds: float) -> str:
        """End the client, which has so long to do it by itself; what it complained of last."""
        process, self._process = self._process, None
        if process is None:
            return ""
        assert process.stdin is not None
        await process.stdin.aclose()
        if seconds:
            with anyio.move_on_after(seconds):
                await process.wait()
        _kill(process)
        await process.wait()
        await process.aclose()
        last = self._errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"; it said: {last}" if last else ""


def _kill(process: Process) -> None:
    """End a process and what it has started."""
    try:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except ProcessLookupError:
        pass
