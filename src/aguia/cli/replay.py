"""`aguia replay`: serves a recording as an agent, with faults on demand."""

import logging
import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import uvicorn

from aguia.cli.safe import one_line
from aguia.cli.serve import StartError, bind, url_of
from aguia.cli.words import plural
from aguia.testing.faults import FAULTS, Fault
from aguia.testing.replay import ReplayApp

__all__ = ["fault_list", "replay"]

_GRACE_SECONDS = 1


def fault_list() -> str:
    """The faults there are, a line each, for people."""
    return "\n".join(f"{form:<22}{what}" for form, what in FAULTS.items())


def replay(
    file: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    pace: str = "original",
    faults: Sequence[str] = (),
    seed: int = 0,
    keep_ids: bool = False,
    once: bool = False,
) -> int:
    """Serves the recording until Ctrl-C; the exit code.

    0 after Ctrl-C; 1 when it cannot listen; 2 when the file is no recording, or the command was
    used wrongly.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").addFilter(_expected)
    try:
        app = ReplayApp(
            file,
            pace=_pace(pace),
            mapped=not keep_ids,
            faults=[Fault.parse(fault) for fault in faults],
            seed=seed,
            repeat=not once,
        )
        if not app.runs:
            raise ValueError("it holds no run")
    except OSError as error:
        return _refuse(f"can't read {file}: {error.strerror or error}")
    except ValueError as error:
        return _refuse(f"{file}: {error}")
    try:
        listener = bind(host, port)
    except StartError as error:
        sys.stderr.write(f"aguia: {error}\n")
        return error.code
    with listener:
        url = url_of(listener, host)
        spoilt = f" with {', '.join(faults)}" if faults else ""
        _say(f"Replaying {file}, {plural(app.runs, 'run')}{spoilt}, at {url}")
        _say(f"Talk to it with: aguia chat {url}")
        _say("Ctrl-C ends it.")
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            ws="none",
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        # uvicorn ends in order and then raises the signal again.
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
    return 0


def _expected(record: logging.LogRecord) -> bool:
    """All but what uvicorn says of a connection that was broken on purpose."""
    return "without completing response" not in str(record.msg)


def _pace(text: str) -> Literal["original"] | float | None:
    if text == "original":
        return "original"
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"the pace is 'original' or seconds between events, not '{text[:40]}'")
    return seconds or None


def _say(line: str) -> None:
    sys.stdout.write(f"{one_line(line, 1000)}\n")
    sys.stdout.flush()


def _refuse(why: str) -> int:
    sys.stderr.write(f"aguia: {one_line(why, 1500)}\n")
    return 2
