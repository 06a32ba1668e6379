"""Which binding a client's `Accept` admits: `aguia.codec.negotiation` (PB-1)."""

import pytest

from aguia.codec.frames import CONTENT_TYPE
from aguia.codec.negotiation import admits

ADMITTED = [
    "application/vnd.ag-ui.event+proto",
    "text/event-stream, application/vnd.ag-ui.event+proto",
    "application/vnd.ag-ui.event+proto, text/event-stream",
    # Relative qualities are not consulted, only whether there is one.
    "text/event-stream;q=1, application/vnd.ag-ui.event+proto;q=0.001",
    "application/vnd.ag-ui.event+proto;q=1",
    "application/vnd.ag-ui.event+proto;q=1.000",
    "application/vnd.ag-ui.event+proto;q=0.5",
    "application/vnd.ag-ui.event+proto;q=0.999",
    # Wildcards
    "*/*",
    "application/*",
    "text/event-stream, */*;q=0.1",
    "text/*;q=0, */*",
    "*/*;q=0, application/*",
    "*/*;q=0, application/*;q=0, application/vnd.ag-ui.event+proto",
    "application/vnd.ag-ui.event+proto, */*;q=0",
    # Of equal ranges the best
    "*/*;q=0, */*",
    "application/vnd.ag-ui.event+proto;q=0, application/vnd.ag-ui.event+proto;q=0.1",
    # Case, white space, empty items
    "APPLICATION/VND.AG-UI.EVENT+PROTO",
    "Application/*;Q=0.5",
    "  application/vnd.ag-ui.event+proto  ;  q=0.5  ",
    "\tapplication/vnd.ag-ui.event+proto\t;\tq=0.5\t",
    ",,, application/vnd.ag-ui.event+proto,, ,",
    "application/vnd.ag-ui.event+proto;",
    "application/vnd.ag-ui.event+proto;;q=1;",
    # What follows the quality is no parameter of the range
    "application/vnd.ag-ui.event+proto;q=1;level=2",
    "application/vnd.ag-ui.event+proto;q=0.5;q=0",
    # Quoted strings
    'text/plain;x="a, */*;q=0", application/vnd.ag-ui.event+proto',
    'text/plain;x="\\", */*;q=0", application/vnd.ag-ui.event+proto',
    'text/plain;x="\\\\", */*',
    # What is malformed is passed over
    "application/vnd.ag-ui.event+proto, */*;q=x",
    "application/vnd.ag-ui.event+proto;q=2, */*",
    "garbage, /, ;q=0, application/vnd.ag-ui.event+proto",
]

REFUSED = [
    "",
    " ",
    ",",
    ";",
    "text/event-stream",
    "application/json",
    "text/*",
    "application/vnd.ag-ui.event",
    "application/vnd.ag-ui.event+protobuf",
    "application/vnd.ag-ui.event+json",
    "xapplication/vnd.ag-ui.event+proto",
    "application/vnd.ag-ui.event+proto/x",
    "application",
    "*",
    "*/vnd.ag-ui.event+proto",
    "application/vnd*",
    # No quality
    "application/vnd.ag-ui.event+proto;q=0",
    "application/vnd.ag-ui.event+proto;q=0.0",
    "application/vnd.ag-ui.event+proto;q=0.000",
    "application/vnd.ag-ui.event+proto;Q=0",
    "*/*;q=0",
    "application/*;q=0",
    # The most specific range decides
    "*/*, application/*;q=0",
    "application/*, application/vnd.ag-ui.event+proto;q=0",
    "application/vnd.ag-ui.event+proto;q=0, */*",
    "*/*, application/*, application/vnd.ag-ui.event+proto;q=0, text/event-stream",
    # Malformed qualities
    "application/vnd.ag-ui.event+proto;q=2",
    "application/vnd.ag-ui.event+proto;q=1.001",
    "application/vnd.ag-ui.event+proto;q=1.1",
    "application/vnd.ag-ui.event+proto;q=-1",
    "application/vnd.ag-ui.event+proto;q=+1",
    "application/vnd.ag-ui.event+proto;q=",
    "application/vnd.ag-ui.event+proto;q",
    "application/vnd.ag-ui.event+proto;q=x",
    "application/vnd.ag-ui.event+proto;q=nan",
    "application/vnd.ag-ui.event+proto;q=inf",
    "application/vnd.ag-ui.event+proto;q=1e-1",
    "application/vnd.ag-ui.event+proto;q=0_1",
    "application/vnd.ag-ui.event+proto;q=.5",
    "application/vnd.ag-ui.event+proto;q=0.1234",
    "application/vnd.ag-ui.event+proto;q=\u0660.\u0665",
    'application/vnd.ag-ui.event+proto;q="1"',
    "*; q=.2, */*; q=.2",
    # Parameters that the type doesn't have
    "application/vnd.ag-ui.event+proto;version=2",
    "application/vnd.ag-ui.event+proto;version=2;q=1",
    'application/vnd.ag-ui.event+proto;x="a;q=1"',
    # Quoted strings
    'text/plain;x="a, application/vnd.ag-ui.event+proto"',
    'text/plain;x="\\", */*"',
    'text/plain;x=", application/vnd.ag-ui.event+proto',
]


@pytest.mark.parametrize("accept", ADMITTED)
def test_admitted(accept: str) -> None:
    """PB-1: answered in the binary binding."""
    assert admits([accept], CONTENT_TYPE)


@pytest.mark.parametrize("accept", REFUSED)
def test_refused(accept: str) -> None:
    """PB-1: answered as server-sent events."""
    assert not admits([accept], CONTENT_TYPE)


def test_no_header() -> None:
    """PB-1: a client that can read the binding says so."""
    assert not admits([], CONTENT_TYPE)


def test_several_headers() -> None:
    """PB-1: several headers are one list."""
    assert admits(["text/event-stream", CONTENT_TYPE], CONTENT_TYPE)
    assert admits(["", "*/*;q=0", "", "application/*"], CONTENT_TYPE)
    assert not admits(["*/*", f"{CONTENT_TYPE};q=0"], CONTENT_TYPE)
    assert not admits(["text/html", "image/png"], CONTENT_TYPE)
    # An unfinished string ends with its header.
    assert admits(['text/plain;x="', CONTENT_TYPE], CONTENT_TYPE)


def test_any_type_can_be_asked_for() -> None:
    assert admits(["text/event-stream"], "text/event-stream")
    assert admits(["TEXT/*"], "Text/Event-Stream")
    assert not admits(["application/*"], "text/event-stream")


@pytest.mark.unmeasured
def test_long_headers_take_linear_time() -> None:
    """Whatever a client sends is read in one pass."""
    for accept in (
        '"' * 100_000,
        "a/b;" * 100_000,
        "\\" * 100_000,
        'x="\\' * 50_000,
        "," * 200_000,
    ):
        assert not admits([accept], CONTENT_TYPE)
