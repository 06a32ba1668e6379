"""`aguia demo`: the assistant and the client of this package, talking over real HTTP."""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aguia.cli.chat import FAILED, INTERRUPTED, OK, Session
from aguia.cli.render import Renderer
from aguia.cli.serve import (
    GRACE_SECONDS,
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
            worst = OK
            for message in SCRIPT:
                renderer.user(message)
                code = session.say(message)
                if code == INTERRUPTED:
                    return code
                worst = max(worst, code)
            milliseconds = f"{session.seconds * 1000:,.0f} ms"
            renderer.note(
                f"{plural(session.runs, 'run')}, {plural(session.events, 'event')}, {milliseconds}"
            )
            if worst == OK and sys.stdin.isatty() and sys.stdout.isatty():
                renderer.note("Now you: try `read README.md`, or `help`; /quit leaves.")
                return session.prompt()
            return worst
    except KeyboardInterrupt:
        renderer.end()
        return INTERRUPTED
    except StartError as error:
        sys.stderr.write(f"aguia: {error}\n")
        return FAILED


@contextmanager
def _served(folder: str) -> Iterator[str]:
    """A server for the assistant on a free port, in a thread of this process.

    A thread ends with its process, however that ends, so no server is ever left behind; and
    the socket listens before the thread starts, so nobody can take its port.
    """
    with bind(HOST, 0) as listener:
        server = server_for(assistant(folder), local_only=True)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="aguia-demo", daemon=True
        )
        thread.start()
        try:
            yield url_of(listener, HOST)
        finally:
            server.stop()
            thread.join(GRACE_SECONDS + 2)
