"""Everything that this package raises of its own, and the warnings it gives.

    AguiaError
    ├── ProtocolViolation      the peer broke a rule; the stream is not to be trusted
    │   ├── DecodeError        bytes that are no event at all
    │   ├── MalformedEvent     a known field with a value that the schema rejects
    │   └── SequenceViolation  an event that may not come where it came
    ├── RunFailed              a well-formed stream in which the run reports its own failure
    ├── TruncatedRun           the stream ended and no terminal event had come
    ├── InvalidInput           a run input that the schema or a rule of the protocol rejects
    ├── InputRejected          the agent refused the run input; no run started
    └── TransportError         the agent could not be reached, or fell silent
        ├── ConnectionFailed
        └── RunTimeout

A violation and a run that reports its own failure are never presented as one another (RUN-8).
"""

from msgspec import Struct

__all__ = [
    "AguiaError",
    "ConnectionFailed",
    "DecodeError",
    "InputRejected",
    "InvalidInput",
    "MalformedEvent",
    "ProtocolViolation",
    "ProtocolWarning",
    "RunFailed",
    "RunTimeout",
    "SequenceViolation",
    "TransportError",
    "TruncatedRun",
]


class AguiaError(Exception):
    """Base of every error of this package."""


class ProtocolViolation(AguiaError):
    """The stream broke a rule of the protocol and cannot be trusted any further.

    What had been delivered before it stays delivered.

    Attributes:
        message: what was expected and what came instead.
        rule: the id of the rule in the catalogue (`aguia.protocol.rules`), or None when a limit
            of this package was reached rather than a rule broken.
        index: the number of the offending event in the stream, counted from 0, or None.
        event_type: the `type` of the offending event, or None when it has none.
        path: for a malformed value, a JSON Pointer to it inside the event, else None.
    """

    def __init__(
        self,
        message: str,
        *,
        rule: str | None,
        index: int | None = None,
        event_type: str | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.rule = rule
        self.index = index
        self.event_type = event_type
        self.path = path

    def __str__(self) -> str:
        where = []
        if self.index is not None:
            where.append(f"event {self.index}")
        if self.event_type is not None:
            where.append(self.event_type)
        if self.path is not None:
            where.append(f"at '{self.path}'")
        place = f"{' '.join(where)}: " if where else ""
        rule = f" [{self.rule}]" if self.rule else ""
        return printable(f"{place}{self.message}{rule}")


class DecodeError(ProtocolViolation):
    """Bytes that map to no event: no JSON object, bad UTF-8, nested too deeply, too large."""


class MalformedEvent(ProtocolViolation):
    """A field that the protocol describes, with a value that its schema rejects (PROC-3)."""


class SequenceViolation(ProtocolViolation):
    """An event that is well formed and may not come at this place of the stream."""


class RunFailed(AguiaError):
    """The run ended with `RUN_ERROR`: the agent reports that its own work did not succeed.

    Attributes:
        message: what went wrong, in the agent's words, for a person.
        code: the agent's machine-readable code, or None.
    """

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code

    def __str__(self) -> str:
        code = f" (code {self.code})" if self.code else ""
        return printable(f"{self.message}{code}")


class TruncatedRun(AguiaError):
    """The stream ended before the run did (RUN-11). What had arrived stays delivered."""


class InvalidInput(AguiaError):
    """A run input that is malformed, or that a rule forbids to send.

    Attributes:
        message: what was expected and what was there instead.
        rule: the id of the rule, or None.
        path: a JSON Pointer to the value inside the input, or None.
    """

    def __init__(self, message: str, *, rule: str | None = None, path: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.rule = rule
        self.path = path

    def __str__(self) -> str:
        place = f"at '{self.path}': " if self.path else ""  # the whole input is no place
        rule = f" [{self.rule}]" if self.rule else ""
        return printable(f"{place}{self.message}{rule}")


class TransportError(AguiaError):
    """The agent could not be reached, or the connection to it broke."""


class ConnectionFailed(TransportError):
    """No connection to the agent could be made."""


class RunTimeout(TransportError):
    """The agent did not answer in time, or fell silent in the middle of a run."""


class InputRejected(AguiaError):
    """The agent refused the run input: there is no stream and no run (HTTP-4).

    Attributes:
        message: the agent's explanation, or what the answer was.
        status: the HTTP status, or None where the transport has none.
        rule, path: as the agent's answer named them, else None.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        rule: str | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.rule = rule
        self.path = path

    def __str__(self) -> str:
        status = f"{self.status}: " if self.status is not None else ""
        place = f" (at '{self.path}')" if self.path is not None else ""
        return printable(f"{status}{self.message}{place}")


class ProtocolWarning(Struct, frozen=True, kw_only=True):
    """Something that was lost or looked wrong and did not end the run.

    Attributes:
        stage: the stage of the pipeline that noticed.
        rule: the id of the rule followed.
        message: what was lost or wrong, and why, in one sentence.
        path: a JSON Pointer to what was removed or failed, or None.
        event_type: the `type` of the event concerned, or None.
        index: the number of the event in the stream, counted from 0, or None.
    """

    stage: str
    rule: str
    message: str
    path: str | None = None
    event_type: str | None = None
    index: int | None = None

    def __str__(self) -> str:
        place = f" at '{self.path}'" if self.path is not None else ""
        event = f" ({self.event_type}{place})" if self.event_type is not None else place
        return printable(f"{self.message}{event} [{self.rule}]")


def printable(text: str) -> str:
    """The text with control characters escaped: what a peer sent must not write its own lines."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
