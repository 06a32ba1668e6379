"""Gathers what is found in one stream: where it is, and whether it is news.

Knows the event at hand and the ones around it, and nothing of what is wrong with it.
"""

from collections import deque
from typing import Any, Final

import msgspec

from aguia.codec.json import encode
from aguia.protocol.errors import ProtocolViolation, SequenceViolation
from aguia.testing.findings import Finding, explain

__all__ = ["Collector"]

MAX_ALSO: Final = 20
"""How many further events a finding names."""

_EXCERPT: Final = 2000
"""How many characters of an event an excerpt holds."""


class Collector:
    """The findings of one stream.

    Attributes:
        findings: what was found, in the order in which it was.
        omitted: how many findings were too many to keep.
        excerpts: by the number of a culprit, the events around it: their numbers and JSON text.
        index, line: the number and the line of the event at hand.
        event_type: its type, once that is known.
        run_id: the run that is under way, or None.
        faulty: whether the event at hand has an error.
    """

    def __init__(self, max_findings: int, context: int) -> None:
        self.findings: list[Finding] = []
        self.omitted: int = 0
        self.excerpts: dict[int, list[tuple[int, str]]] = {}
        self.index: int = -1
        self.line: int | None = None
        self.event_type: str | None = None
        self.run_id: str | None = None
        self.faulty: bool = False
        self._max_findings = max_findings
        self._kept = {"error": 0, "warning": 0}
        self._known: dict[Any, int] = {}
        self._context = context
        self._recent: deque[tuple[int, Any]] = deque(maxlen=context + 1)
        self._following: list[tuple[int, list[tuple[int, str]]]] = []

    def next(self, event: Any, line: int | None) -> None:
        """Go on to the next event: bytes, plain JSON or a typed value."""
        self.index += 1
        self.line = line
        self.event_type = None
        self.faulty = False
        if self._context:
            self._recent.append((self.index, event))
            for last, excerpt in self._following:
                if self.index <= last:
                    excerpt.append((self.index, _text_of(event)))
            self._following = [each for each in self._following if self.index < each[0]]

    def has(self, key: Any) -> bool:
        """Whether there is a finding with this key."""
        return key in self._known

    def error(
        self, error: ProtocolViolation, *, key: Any = None, related: tuple[str, ...] = ()
    ) -> None:
        """Take an error about the event at hand.

        `related` are further rules that it breaks. What is out of place in an event that has an
        error already follows from that one.
        """
        if self.faulty and isinstance(error, SequenceViolation):
            return
        self.faulty = True
        finding = explain(error)
        if related:
            finding = msgspec.structs.replace(finding, related=(*finding.related, *related))
        self.add(finding, key)

    def add(self, finding: Finding, key: Any = None) -> None:
        """Take a finding; one with a known key is counted in the first of its kind.

        Without a key those are of one kind that are about the same member of the same type.
        """
        if key is None:
            key = (
                finding.severity,
                finding.rule,
                finding.event_type,
                finding.general_path,
                finding.expected,
            )
        known = self._known.get(key)
        index = self.index if finding.index is None else finding.index
        if known is not None:
            first = self.findings[known]
            also = first.also
            if len(also) < MAX_ALSO and index not in (first.index, *also):
                also = (*also, index)
            self.findings[known] = msgspec.structs.replace(first, count=first.count + 1, also=also)
            return
        if self._kept[finding.severity] >= self._max_findings:
            self.omitted += 1
            return
        self._kept[finding.severity] += 1
        self._known[key] = len(self.findings)
        self.findings.append(
            msgspec.structs.replace(
                finding,
                index=None if index < 0 else index,
                line=self.line if finding.line is None else finding.line,
                run_id=self.run_id,
            )
        )
        if self._context and index not in self.excerpts:
            excerpt = [(number, _text_of(event)) for number, event in self._recent]
            self.excerpts[index] = excerpt
            self._following.append((index + self._context, excerpt))


def _text_of(event: Any) -> str:
    """An event as the text of an excerpt."""
    if isinstance(event, bytes):
        return event[: 4 * _EXCERPT].decode("utf-8", "replace")[:_EXCERPT]
    try:
        return encode(event).decode()[:_EXCERPT]
    except (TypeError, ValueError, RecursionError):
        return repr(event)[:_EXCERPT]
