"""`aguia demo`: the assistant and the client of this package, talking over real HTTP."""

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

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

HOST: Final = "127.0.0.1"

SAMPLE: Final = {
    "sky.md": "The eagle sees what the owl hears, says the eagle.\n",
    "birds/owl.txt": "The owl has met an eagle, once.\n",
    "fish/pike.txt": "The pike waits. The eagle waits longer.\n",
}
"""The files that the conversation is about, the same wherever it is held."""

SCRIPT: Final = (
    "find eagle",
    'replace "eagle" with "águia" in sky.md',
    "yes",
)

BEGINNING: Final = """\
An agent is served at {url}, and this is a client that talks to it over HTTP.
≡ shared state   ▸ step   ● tool call   └ its result   ◇ activity   ◆ subagent   = run's result"""

NOW_YOU: Final = """\
That was about a folder of samples, which is gone. Now you: the same agent, at {url},
about {folder}, where a yes to a change writes to your files. Try `tree` or `count`.
`help` asks it what it can do, /help lists what this chat can; /quit leaves."""


def demo() -> int:
    """Holds a scripted conversation about a sample folder, then hands over the prompt.

    At the prompt it is about the current folder. Without a terminal it ends before that, with 0
    if every run succeeded.
    """
    # As for `aguia chat`: warnings are part of what is shown.
    logging.getLogger("aguia").setLevel(logging.ERROR)
    renderer = Renderer()
    try:
        with _sample() as sample, _served(sample) as url, Session(url, renderer) as session:
            renderer.note(BEGINNING.format(url=url))
            worst = _hold(session, SCRIPT)
            if worst == INTERRUPTED:
                return worst
            counts = f"{plural(session.runs, 'run')}, {plural(session.events, 'event')}"
            renderer.note(f"{counts}, {session.seconds * 1000:,.0f} ms")
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            renderer.note("This is no terminal, so the prompt that would follow is left out.")
        elif worst == OK:
            folder = os.getcwd()
            with _served(folder) as url, Session(url, renderer) as session:
                renderer.note(NOW_YOU.format(url=url, folder=folder))
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
def _sample() -> Iterator[str]:
    """A folder with the sample in it, while the block runs."""
    with tempfile.TemporaryDirectory(prefix="aguia-demo-") as folder:
        for name, text in SAMPLE.items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
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
