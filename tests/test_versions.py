"""What a producer's declared version means for the reader."""

import pytest

from aguia import MalformedEvent, RunStartedEvent
from aguia.pipeline.versions import judge_producer, parse_version
from aguia.protocol.common import PROTOCOL_VERSION
from support_events import STARTED, Reader


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.0", (1, 0)), ("1.10", (1, 10)), ("10.2", (10, 2)), ("0.0", (0, 0)), ("01.0", (1, 0))],
)
def test_versions_are_two_numbers(text: str, version: tuple[int, int]) -> None:
    """VER-2."""
    assert parse_version(text) == version


def judged(text: str) -> str | None:
    """What is said of a producer that declares this version."""
    start = RunStartedEvent(thread_id="t", run_id="r", protocol_version=text)
    warning = judge_producer(start)
    return None if warning is None else warning.message


NO_VERSIONS = [
    *("", "1", "1.", ".1", "1.0.0", "v1.0", "1.0 ", " 1.0", "1.0\n", "-1.0", "1,0", "1.x", "one"),
    *("\u0661.\u0660", "1.0-beta", "1" * 5000 + ".0", "1." + "9" * 5000),
]


@pytest.mark.parametrize("text", NO_VERSIONS, ids=lambda text: repr(text[:12]))
def test_anything_else_is_no_version(text: str) -> None:
    """VER-2."""
    assert parse_version(text) is None
    said = judged(text)
    assert said is not None
    assert "can't be interpreted" in said
    assert len(said) < 200


@pytest.mark.parametrize("text", ["0.9", "0.10", "1.0", "1.00", "01.00", PROTOCOL_VERSION])
def test_our_own_and_older_ones_are_quiet(text: str) -> None:
    """VER-2."""
    assert judged(text) is None


@pytest.mark.parametrize("text", ["1.1", "01.1", "1.10", "2.0", "10.0"])
def test_newer_ones_are_served_with_a_warning(text: str) -> None:
    """VER-2: compared as numbers."""
    said = judged(text)
    assert said is not None
    assert text in said
    assert "upgrade" in said
    reader = Reader(started=False)
    assert len(reader.feed({**STARTED, "protocolVersion": text})) == 1
    (warning,) = reader.warnings
    assert (warning.rule, warning.stage, warning.path) == (
        *("VER-2", "compatibility", "/protocolVersion"),
    )
    assert (warning.event_type, warning.index) == ("RUN_STARTED", 0)


def test_a_version_that_is_no_string_is_malformed_and_none_is_fine() -> None:
    """VER-1, PROC-3."""
    reader = Reader()
    assert not reader.warnings
    for odd in (None, 1.0, [1, 0]):
        with pytest.raises(MalformedEvent) as caught:
            Reader(started=False).feed({**STARTED, "protocolVersion": odd})
        assert caught.value.path == "/protocolVersion"
