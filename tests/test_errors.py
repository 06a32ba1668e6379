"""What errors and warnings hold, and how they read."""

import pickle
from typing import Any

import pytest

import aguia
from aguia import (
    AguiaError,
    ConnectionFailed,
    DecodeError,
    InputRejected,
    InvalidInput,
    MalformedEvent,
    ProtocolViolation,
    ProtocolWarning,
    RunFailed,
    RunTimeout,
    SequenceViolation,
    TransportError,
    TruncatedRun,
)
from aguia.protocol import errors


def test_one_base_and_the_kinds_below_it() -> None:
    """RUN-8: a violation is no failed run, and the reverse."""
    named = [getattr(errors, name) for name in errors.__all__ if name != "ProtocolWarning"]
    assert all(issubclass(error, AguiaError) for error in named)
    assert all(getattr(aguia, error.__name__) is error for error in named)
    for violation in (DecodeError, MalformedEvent, SequenceViolation):
        assert issubclass(violation, ProtocolViolation)
    for other in (RunFailed, TruncatedRun, InvalidInput, InputRejected, TransportError):
        assert not issubclass(other, ProtocolViolation)
        assert not issubclass(ProtocolViolation, other)
    assert issubclass(ConnectionFailed, TransportError)
    assert issubclass(RunTimeout, TransportError)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            MalformedEvent("no", rule="PROC-3", index=4, event_type="RAW", path="/a"),
            "event 4 RAW at '/a': no [PROC-3]",
        ),
        (MalformedEvent("no", rule="PROC-3", path=""), "at '': no [PROC-3]"),
        (SequenceViolation("no", rule="RUN-1", event_type="RAW"), "RAW: no [RUN-1]"),
        (DecodeError("no", rule=None, index=0), "event 0: no"),
        (DecodeError("no", rule=None), "no"),
        (RunFailed("no"), "no"),
        (RunFailed("no", "E1"), "no (code E1)"),
        (TruncatedRun("no"), "no"),
        (InvalidInput("no"), "no"),
        (InvalidInput("no", rule="INT-2", path="/resume"), "at '/resume': no [INT-2]"),
        (InputRejected("no"), "no"),
        (InputRejected("no", status=400, path="/a", rule="PROC-3"), "400: no (at '/a')"),
        (ConnectionFailed("no"), "no"),
    ],
)
def test_errors_read_well(error: AguiaError, text: str) -> None:
    assert str(error) == text


def test_warnings_read_well() -> None:
    warning = ProtocolWarning(stage="enforcement", rule="PROC-2", message="lost", path="/a")
    assert str(warning) == "lost at '/a' [PROC-2]"
    with_event = ProtocolWarning(
        stage="enforcement", rule="PROC-2", message="lost", path="/a", event_type="RAW", index=3
    )
    assert str(with_event) == "lost (RAW at '/a') [PROC-2]"
    bare = ProtocolWarning(stage="verification", rule="RUN-3", message="odd")
    assert str(bare) == "odd [RUN-3]"
    frozen: Any = bare
    with pytest.raises(AttributeError):
        frozen.rule = "RUN-4"


def test_what_a_peer_wrote_makes_no_lines_of_its_own() -> None:
    ugly = "a\nb\r\x1b[31m\u2028\ud800é🦅"
    shown = r"a\nb\r\x1b[31m\u2028\ud800é🦅"
    violation = MalformedEvent(ugly, rule="PROC-3", path=f"/{ugly}")
    assert str(violation) == f"at '/{shown}': {shown} [PROC-3]"
    assert violation.message == ugly
    warning = ProtocolWarning(stage="s", rule="PROC-2", message=ugly, path=f"/{ugly}")
    assert str(warning) == f"{shown} at '/{shown}' [PROC-2]"
    assert warning.path == f"/{ugly}"


def test_attributes_are_there() -> None:
    violation = SequenceViolation("no", rule="RUN-1", index=2, event_type="RAW", path=None)
    assert (violation.message, violation.rule, violation.index) == ("no", "RUN-1", 2)
    assert (violation.event_type, violation.path) == ("RAW", None)
    failed = RunFailed("no", "E")
    assert (failed.message, failed.code) == ("no", "E")
    rejected = InputRejected("no", status=422, rule="PROC-3", path="/a")
    assert (rejected.message, rejected.status, rejected.rule, rejected.path) == (
        *("no", 422, "PROC-3", "/a"),
    )
    invalid = InvalidInput("no", rule="INT-2", path="/a")
    assert (invalid.message, invalid.rule, invalid.path) == ("no", "INT-2", "/a")


@pytest.mark.parametrize(
    "error", [RunFailed("no", "E"), InvalidInput("no"), InputRejected("no"), TruncatedRun("no")]
)
def test_errors_survive_another_process(error: AguiaError) -> None:
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert str(copied).startswith("no")


def test_what_a_peer_says_writes_no_lines_of_its_own() -> None:
    """Attributes keep the peer's words as they are; what is printed has no control characters."""
    words = "line\n\x1b[31mred"
    for error in (
        errors.RunFailed(words, code="a\nb"),
        errors.InvalidInput(words, path="/a\nb"),
        errors.InputRejected(words, status=400, path="/a\nb"),
        errors.DecodeError(words, rule="HTTP-2"),
    ):
        assert error.message == words
        assert str(error).isprintable()
