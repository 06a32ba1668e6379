"""The `aguia` command: serve an agent, talk to one, see both at work."""

import importlib.util
import os
import sys

__all__ = ["main"]

NEEDED = ("markdown_it", "pathspec", "prompt_toolkit", "rich", "typer", "uvicorn")
"""What the extra `cli` brings along, by the names of the modules."""


def main() -> None:
    """Runs the command with the process's arguments, and ends the process.

    Exit codes: 0 all went well; 1 the run failed, broke a rule, broke off or was refused, or the
    server could not start; 2 the command was used wrongly or nothing answers at the URL; 3 the
    run ended and neither succeeded nor failed (it was cancelled, or asks for an answer); 130
    interrupted with Ctrl-C.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        needs = f"the command needs {', '.join(missing)}: pip install 'aguia[cli]'"
        sys.stderr.write(f"aguia: {needs}\n")
        raise SystemExit(2)

    from aguia.cli.app import app

    # What agents write may not fit into the terminal's encoding; that is no reason to stop.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="aguia")
    except BrokenPipeError:
        # Whoever read the output has gone. Python would complain again when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
