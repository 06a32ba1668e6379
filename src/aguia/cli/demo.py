"""`aguia demo`: the assistant and the client of this package, talking over real HTTP."""

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aguia.cli.chat import Session
from aguia.cli.failures import FAILED, INTERRUPTED, OK, UNFINISHED
from aguia.cli.render import Renderer
from aguia.cli.serve import (
    GRACE_SECONDS,
    LOOPBACK,
    StartError,
    assistant,
    bind,
    server_for,
    url_of,
)
from aguia.cli.words import plural

__all__ = ["demo"]

HOST = "127.0.0.1"

SCRIPT = (
    "tree",
    'find "def receive"',
    "Where is the JSON Patch tested?",
    "count *.py",
)

SCRATCH = """\
The eagle sees a rabbit from three kilometres away.
It has never been known to miss one.
A slow eagle is still an eagle.
"""

CHANGE = (
    'replace "eagle" with "águia" in eagle.txt',
    "yes",
    "read eagle.txt",
)

NOW_YOU = """\
Now you, in {folder}: try `tree` or `find TODO`.
`help` asks the assistant what it can do, /help lists what this chat can; /quit leaves."""


def demo() -> int:
    """Holds a scripted conversation on the current folder, then hands over the prompt.

    Without a terminal it ends there, with 0 if every run succeeded.
    """
    # As for `aguia chat`: warnings are part of what is shown.
    logging.getLogger("aguia").setLevel(logging.ERROR)
    renderer = Renderer()
    try:
        with _served(os.getcwd()) as url, Session(url, renderer) as session:
            renderer.note(f"Serving {os.getcwd()} at {url} and talking to it over HTTP.")
            worst = _hold(session, SCRIPT)
            if worst == INTERRUPTED:
                return worst
            with _scratch_copy() as scratch, _served(scratch) as other:
                renderer.note("Now it changes a file, in a scratch folder that is gone afterwards.")
                with Session(other, renderer) as changing:
                    worst = max(worst, _hold(changing, CHANGE))
            if worst == INTERRUPTED:
                return worst
            runs, events = session.runs + changing.runs, session.events + changing.events
            milliseconds = f"{(session.seconds + changing.seconds) * 1000:,.0f} ms"
            renderer.note(f"{plural(runs, 'run')}, {plural(events, 'event')}, {milliseconds}")
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                renderer.note("This is no terminal, so the prompt that would follow is left out.")
            elif worst == OK:
                renderer.note(NOW_YOU.format(folder=os.getcwd()))
                return session.prompt()
            return worst
    except KeyboardInterrupt:
        renderer.end()
        return INTERRUPTED
    except StartError as error:
        sys.stderr.write(f"aguia: {error}\n")
        return FAILED


def _hold(session: Session, script: tuple[str, ...]) -> int:
    """Says one thing after the other; the worst exit code."""
    worst = OK
    for at, message in enumerate(script, 1):
        session.renderer.user(message)
        code = session.say(message)
        if code == INTERRUPTED:
            return code
        # A question of the agent's is no failure: what comes next in the script answers it.
        worst = max(worst, OK if code == UNFINISHED and at < len(script) else code)
    return worst


@contextmanager
def _scratch_copy() -> Iterator[str]:
    """A folder with a file that may be changed, while the block runs."""
    with tempfile.TemporaryDirectory(prefix="aguia-demo-") as folder:
        Path(folder, "eagle.txt").write_text(SCRATCH, encoding="utf-8")
        yield folder


@contextmanager
def _served(folder: str) -> Iterator[str]:
    """A server for the assistant on a free port, in a thread of this process.

    A thread ends with its process, however that ends, so no server is ever left behind; and
    the socket listens before the thread starts, so nobody can take its port.
    """
    with bind(HOST, 0) as listener:
        server = server_for(assistant(folder, writable=True), hosts=LOOPBACK, own_pages=True)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="aguia-demo", daemon=True
        )
        thread.start()
        try:
            yield url_of(listener, HOST)
        finally:
            server.stop()
            thread.join(GRACE_SECONDS + 2)
