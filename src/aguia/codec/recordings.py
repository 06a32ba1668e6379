"""Runs that were kept, as lines or as bodies, to what they hold; nothing of it is judged here.

A recording is one of these, and may be packed by gzip:

- JSON Lines as `aguia.middleware.Recorder` writes them: for each run its input and its events,
  each with the time at which it came;
- JSON Lines of events, or one JSON array of them;
- a body of server-sent events, as it came over the wire.

Where no inputs tell runs apart, a `RUN_STARTED` after the end of a run begins the next.
"""

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from aguia.codec.json import convert_event, parse_object
from aguia.codec.sse import SseDecoder
from aguia.protocol.errors import DecodeError

__all__ = [
    "MAX_RECORDING",
    "Recorded",
    "RecordedRun",
    "mapped",
    "mapping",
    "read_lines",
    "read_runs",
]

MAX_RECORDING: Final = 1024 * 1024 * 1024
"""How many bytes a recording may have, unpacked."""

_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"
_SSE_LINES: Final = (b":", b"data:", b"event:", b"id:", b"retry:")
_TERMINAL: Final = ("RUN_FINISHED", "RUN_ERROR")
_BOUNDS: Final = ("RUN_STARTED", "RUN_FINISHED")
_LONGEST: Final = 1e9  # seconds, and no number for which a clock has no place


class Recorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a recording: the input of a run, or an event of it.

    Attributes:
        at: seconds since the run was sent off.
        input: what was sent, as plain JSON; None for an event.
        event: what came, typed where it fits its type; None for an input.
    """

    at: float
    input: dict[str, Any] | None = None
    event: Any = None


class RecordedRun(msgspec.Struct, kw_only=True):
    """What one run was answered with.

    Attributes:
        input: what was sent, as plain JSON, or None where that was not kept.
        events: what came, as plain JSON, each with the seconds since the run was sent off, or
            None where that was not kept. Bytes are the data of what was no JSON object.
    """

    input: dict[str, Any] | None = None
    events: list[tuple[float | None, dict[str, Any] | bytes]] = []


def read_lines(lines: Iterable[bytes]) -> Iterator[Recorded]:
    """Read the lines that a `Recorder` has written.

    Raises `ValueError`, with the number of the line, for what is no line of a recording.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        raw = _object(line, number)
        at, input, event = _timed(raw, number)
        yield Recorded(at=at, input=input, event=None if event is None else _typed(event))


def read_runs(data: bytes) -> list[RecordedRun]:
    """Read a whole recording of any kind.

    A last line that broke off, as when who wrote it was killed, is left out. Raises `ValueError`
    for what is no recording, with the number of the line where there are lines.
    """
    data = _unpacked(data).removeprefix(_BOM)
    beginning = data[:65536].lstrip()
    if not beginning:
        if data.strip():
            raise ValueError("it begins with too much space for a recording")
        return []
    if beginning.startswith(b"["):
        return _split(_array(data))
    if beginning.startswith(b"{"):
        return _from_lines(data.splitlines(keepends=True))
    if beginning.startswith(_SSE_LINES):
        # A body without an event was an answer all the same.
        return _split(_from_body(data)) or [RecordedRun()]
    raise ValueError(
        "it is no recording: expected JSON Lines, a JSON array of events or server-sent events, "
        f"and it begins with {beginning[:16]!r}"
    )


def _unpacked(data: bytes) -> bytes:
    if data.startswith(_GZIP):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                data = packed.read(MAX_RECORDING + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"it is no recording, or cut off: {error}") from None
    if len(data) > MAX_RECORDING:
        raise ValueError(f"it is larger than the {MAX_RECORDING} bytes that a recording may have")
    return data


def _array(data: bytes) -> list[dict[str, Any] | bytes]:
    try:
        # An object around it, so that what reads events reads this as well.
        events = parse_object(b'{"events":' + data + b"}", max_depth=_DEEP)["events"]
    except DecodeError as error:
        raise ValueError(f"it is no JSON array of events: {error.message}") from None
    for index, event in enumerate(events):
        if not isinstance(event, dict):
            raise ValueError(f"what is at /{index} is no event, which is a JSON object")
    return list(events)


_DEEP: Final = 258  # an event may nest as deep as elsewhere, within two more levels


def _from_body(data: bytes) -> list[dict[str, Any] | bytes]:
    decoder = SseDecoder()
    frames = decoder.feed(data)
    rest = decoder.end()
    events: list[dict[str, Any] | bytes] = []
    for frame in frames:
        try:
            events.append(parse_object(frame))
        except DecodeError:
            events.append(frame)
    if rest is not None:
        try:
            events.append(parse_object(rest))
        except DecodeError:
            pass  # the body broke off in the middle of an event
    return events


def _from_lines(lines: list[bytes]) -> list[RecordedRun]:
    runs: list[RecordedRun] = []
    plain: list[dict[str, Any] | bytes] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            raw = _object(line, number)
        except ValueError:
            if number == len(lines) and number > 1 and not line.endswith(b"\n"):
                break
            raise
        if "type" in raw:
            plain.append(raw)
            continue
        at, input, event = _timed(raw, number)
        if event is None or not runs:
            runs.append(RecordedRun(input=input))
        if event is not None:
            runs[-1].events.append((at, event))
    if runs and plain:
        raise ValueError("some of its lines are events, and others are those of a recorder")
    return runs or _split(plain)


def _split(events: list[dict[str, Any] | bytes]) -> list[RecordedRun]:
    runs: list[RecordedRun] = []
    ended = True
    for event in events:
        kind = event.get("type") if isinstance(event, dict) else None
        if not runs or (ended and kind == "RUN_STARTED"):
            runs.append(RecordedRun())
            ended = False
        ended = ended or kind in _TERMINAL
        runs[-1].events.append((None, event))
    return runs


def _object(line: bytes, number: int) -> dict[str, Any]:
    try:
        return parse_object(line)
    except DecodeError as error:
        raise ValueError(f"line {number} is no line of a recording: {error.message}") from None


def _timed(
    raw: dict[str, Any], number: int
) -> tuple[float, dict[str, Any] | None, dict[str, Any] | None]:
    at, input, event = (raw.get(name) for name in ("at", "input", "event"))
    if isinstance(at, bool) or not isinstance(at, int | float) or not -_LONGEST < at < _LONGEST:
        raise ValueError(f"line {number} is no line of a recording: it has no time 'at'")
    if isinstance(event, dict):
        if not isinstance(input, dict):
            return at, None, event
    elif isinstance(input, dict):
        return at, input, None
    raise ValueError(
        f"line {number} is no line of a recording: it has neither an input nor an event"
    )


def _typed(event: dict[str, Any]) -> Any:
    try:
        return convert_event(event)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return event


# Whose run it is when a recording is played


def mapping(run: RecordedRun, thread_id: str, run_id: str) -> dict[tuple[str, str], str]:
    """For the recorded run's ids, under the members that hold them, those of another run."""
    asked: Any = run.input
    if asked is None:
        asked = next((event for _, event in run.events if _is(event, "RUN_STARTED")), {})
    ids = {"threadId": thread_id, "runId": run_id}
    return {(name, asked[name]): ids[name] for name in ids if isinstance(asked.get(name), str)}


def mapped(event: dict[str, Any], ids: dict[tuple[str, str], str]) -> dict[str, Any]:
    """The event with the ids that `mapping` gives, where it is one that starts or ends a run."""
    if not ids or not _is(event, *_BOUNDS):
        return event
    event = _with_ids(event, ids)
    if isinstance(event.get("input"), dict):
        event["input"] = _with_ids(event["input"], ids)
    return event


def _with_ids(holder: dict[str, Any], ids: dict[tuple[str, str], str]) -> dict[str, Any]:
    new = {name: id_ for (name, old), id_ in ids.items() if holder.get(name) == old}
    return {**holder, **new}


def _is(event: Any, *types: str) -> bool:
    return isinstance(event, dict) and event.get("type") in types
