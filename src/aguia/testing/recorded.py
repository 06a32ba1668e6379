"""Checks a recording, sans I/O: the stream in it, or the runs that a recorder kept, one by one.

`aguia record` and `aguia.middleware.Recorder` write the input of each run before its events, so
that a file of theirs holds several streams, and what each of them answers.
"""

from dataclasses import replace
from typing import Any, Final

from aguia.codec.json import parse_object
from aguia.protocol.errors import DecodeError, InvalidInput
from aguia.protocol.input import RunAgentInput
from aguia.testing.checker import Checker
from aguia.testing.recordings import HEAD, Format, Frame, Lines, UnknownFormat, sniff
from aguia.testing.report import Report, report_of

__all__ = ["RecordingChecker"]

MAX_LINE: Final = 64 * 1024 * 1024
"""The largest line of a recorder, in bytes: an input holds all messages of its thread."""

_DEEP: Final = 258  # an event may nest as deep as elsewhere, within one more level


class RecordingChecker:
    """Checks each run of one recording.

    Args:
        source: what the reports call it.
        input: the run input that the stream answers, where the recording holds none.
        format: of the recording; None finds it out from its beginning.
        peer_version, context: as for `Checker`.

    `receive` and `end` raise `UnknownFormat` for what is no recording, or a line that is none of
    it; what was read before is in the reports all the same. Raises what `Checker` raises.
    """

    def __init__(
        self,
        source: str,
        input: RunAgentInput | dict[str, Any] | None = None,
        *,
        format: Format | None = None,
        peer_version: str | None = None,
        context: int = 0,
    ) -> None:
        self._source = source
        self._input = input
        self._format = format
        self._settings: dict[str, Any] = {"peer_version": peer_version, "context": context}
        self._head = b""
        self._lines: Lines | None = None
        self._checker: Checker | None = None
        """Of the run at hand."""
        self._why = ""
        """What could not be read of its input."""
        self._done: list[Report] = []
        # What is wrong with the input, or lacks for the format, is said before anything is read.
        self._first = Checker(
            input, format=None if format == "recorder" else format, **self._settings
        )

    def receive(self, data: bytes) -> None:
        """Take the next bytes of the recording."""
        if self._lines is None and self._checker is None:
            self._head += data
            decided = self._format
            enough = len(self._head) >= HEAD
            if decided is None and (enough or b"\n" in self._head):
                decided = sniff(self._head)
            if decided is None and not enough:
                return
            data = self._begin(decided)
        self._take(data)

    def end(self) -> None:
        """Take note that the recording has ended."""
        if self._lines is None and self._checker is None:
            self._take(self._begin(self._format or sniff(self._head)))
        if self._lines is None:
            assert self._checker is not None
            self._checker.end()
            return
        rest = self._lines.end()
        if rest is not None:
            self._line(rest, whole=False)
        if self._checker is not None:
            self._checker.end()

    def reports(self, unreadable: str = "") -> list[Report]:
        """A report for each run so far; `unreadable`: why there is not more of them.

        They are numbered where there are several.
        """
        if self._checker is None:
            return [Report(self._source, unreadable=unreadable or "it holds no run")]
        last = report_of(self._source, self._checker, unreadable or self._why)
        if self._lines is None:
            return [last]
        reports = [*self._done, last]
        return [
            replace(report, format="recorder", run=number if len(reports) > 1 else None)
            for number, report in enumerate(reports, 1)
        ]

    def _begin(self, format: Format | None) -> bytes:
        data, self._head = self._head, b""
        if format == "recorder":
            self._lines = Lines(MAX_LINE)
        else:
            self._checker = self._first
        return data

    def _take(self, data: bytes) -> None:
        if self._lines is None:
            assert self._checker is not None
            self._checker.receive(data)
            return
        try:
            for frame in self._lines.feed(data):
                self._line(frame)
        except DecodeError as error:
            raise UnknownFormat(f"a line is no line of a recorder: {error.message}") from None

    def _line(self, frame: Frame, *, whole: bool = True) -> None:
        """Take a line; one that is not `whole` may have broken off, and says nothing then."""
        try:
            raw = parse_object(frame.data, _DEEP)
        except DecodeError as error:
            if whole:
                raise _no_line(frame, error.message) from None
            return
        event, input = raw.get("event"), raw.get("input")
        if "type" in raw or not (isinstance(event, dict) or isinstance(input, dict)):
            raise _no_line(frame, "expected an object with 'at' and either 'input' or 'event'")
        if isinstance(event, dict):
            if self._checker is None:
                self._checker = self._first
            self._checker.receive_event(event, frame.line)
            return
        if self._checker is not None:
            self._checker.end()
            self._done.append(report_of(self._source, self._checker, self._why))
        self._why = ""
        try:
            self._checker = Checker(input, **self._settings)
        except InvalidInput as error:
            self._why = f"the input of its run in line {frame.line} is none: {error}"
            self._checker = Checker(**self._settings)


def _no_line(frame: Frame, why: str) -> UnknownFormat:
    return UnknownFormat(f"line {frame.line} is no line of a recorder: {why}")
