"""Fixtures for all tests, and what tests import: `require_peers` and `shared`."""

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Generator
from typing import Final

import pytest

from support import require_peers, shared

__all__ = ["anyio_backend", "free_port", "require_peers", "shared"]


MEASURES_CHILDREN: Final = "COVERAGE_PROCESS_CONFIG"
"""What coverage sets, so that processes are measured as well."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is for what a shell started in the background, and the processes that tests start
    # and interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Spare garbage collections all that is there for good: the modules and thousands of tests."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test marked `unmeasured`, and what it starts, without tracing it for coverage.

    A trace takes code two to six times as long. pytest-cov has `no_cover` for this, which in a
    worker of pytest-xdist goes on tracing.
    """
    if item.get_closest_marker("unmeasured") is None:
        return (yield)
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    inherited = os.environ.pop(MEASURES_CHILDREN, None)
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        threading.settrace(of_threads)
        sys.settrace(tracer)
        if inherited is not None:
            os.environ[MEASURES_CHILDREN] = inherited


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, object, object]:
    """Escape halves of characters in a report: a worker of pytest-xdist could not send it."""
    return sendable((yield))


def sendable(value: object) -> object:
    """A copy of plain values whose texts can be written as UTF-8."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {sendable(key): sendable(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(map(sendable, value))
    return value


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run asynchronous tests (marked `anyio`) on asyncio."""
    return "asyncio"


@pytest.fixture
def free_port() -> int:
    """A TCP port of 127.0.0.1 that nothing listened on a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
