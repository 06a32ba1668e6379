"""The terminal itself: whether a person is there, and what they type when nobody asked."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

try:
    import termios
except ImportError:  # pragma: no cover - Windows
    termios = None  # type: ignore[assignment]

__all__ = ["Interrupted", "Left", "forget_typed", "hushed", "interactive"]


class Interrupted(Exception):
    """Ctrl-C, where there was nothing typed that it could take back."""


class Left(Exception):
    """Ctrl-D, or the end of what is typed."""


def interactive() -> bool:
    """Whether a person both sees what is written and answers it."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def hushed() -> Iterator[None]:
    """While the block runs, what is typed is not shown in the midst of what is written.

    It is kept for the next prompt. Ctrl-C works.
    """
    if termios is None or not interactive():
        yield
        return
    inner = sys.stdin.fileno()
    try:
        before = termios.tcgetattr(inner)
    except termios.error:
        yield
        return
    quiet = list(before)
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(inner, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(inner, termios.TCSANOW, before)


def forget_typed() -> None:
    """Forgets what was typed and not read yet."""
    if termios is not None:
        with suppress(termios.error, ValueError, OSError):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
