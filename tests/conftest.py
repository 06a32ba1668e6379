"""Fixtures for all tests, and what tests import: `require_peers` and `shared`."""

import signal
import socket

import pytest

from support import require_peers, shared

__all__ = ["anyio_backend", "free_port", "require_peers", "shared"]


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is for what a shell started in the background, and the processes that tests start
    # and interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
