"""Real servers and real Node processes for the tests that talk to other implementations."""

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from support import REPOSITORY, require_peers

__all__ = ["Recorder", "canonical", "node", "serve"]

_START: Final = 10.0
_NODE: Final = 60.0


@contextmanager
def serve(app: ASGIApp) -> Iterator[str]:
    """Serve an ASGI application on a free port of 127.0.0.1 while the block runs.

    Gives the URL of its root. The server has its own thread and event loop, so that a test may
    block, or run an event loop of its own. Raises `RuntimeError` when it does not start.
    """
    # Named as TCP, since asyncio turns off the delay of small writes only where it is told so.
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_level="warning", log_config=None, ws="none", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + _START
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("the server did not start")
            time.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(_START)
        listener.close()


@dataclass
class Recorder:
    """An ASGI application that keeps the bodies of the requests to another.

    Attributes:
        app: who answers.
        bodies: one for each request, as it came.
    """

    app: ASGIApp
    bodies: list[bytes] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the connection on, and keep what is read from it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        place = len(self.bodies)
        self.bodies.append(b"")

        async def recorded() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                self.bodies[place] += message.get("body", b"")
            return message

        await self.app(scope, recorded, send)


def node(script: str, request: Any) -> Any:
    """Run a script of `tests/peers` under Node: JSON in, JSON out.

    The script is given the folder of the npm peers; without them the test is skipped (see
    `require_peers`). Raises `RuntimeError` with what Node said when the script fails.
    """
    folder: Path = require_peers()
    done = subprocess.run(
        ["node", str(REPOSITORY / "tests" / "peers" / script), str(folder)],
        input=json.dumps(request).encode(),
        capture_output=True,
        timeout=_NODE,
        check=False,
        env={**os.environ, "NODE_OPTIONS": ""},
    )
    if done.returncode != 0:
        raise RuntimeError(f"{script} failed:\n{done.stderr.decode('utf-8', 'replace')[-4000:]}")
    return json.loads(done.stdout)


def canonical(value: Any) -> str:
    """A JSON value as text that is equal exactly for equal JSON.

    The order of members does not count, and a whole number written as a fraction is the same
    number, as JavaScript and JSON Schema have it. `true` is not `1`, and two halves of a
    character that were never joined are not that character.
    """
    text = json.dumps(_whole(value), sort_keys=True, indent=1, ensure_ascii=False)
    return text.encode("ascii", "backslashreplace").decode()


def _whole(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_whole(item) for item in value]
        case dict():
            return {key: _whole(item) for key, item in value.items()}
    return value
