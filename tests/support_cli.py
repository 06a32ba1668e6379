"""The command `aguia` in this process, as a person and a script meet it."""

import io
import logging
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from aguia.cli import main

__all__ = ["Done", "aguia"]


@dataclass
class Done:
    """How the command ended, and what it wrote."""

    code: int
    out: str
    err: str


def aguia(*arguments: str | Path, input: bytes = b"") -> Done:
    """Runs the command to its end in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    logger = logging.getLogger("aguia")
    level = logger.level
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["aguia", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input), "utf-8"))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setenv("COLUMNS", "80")
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            logger.setLevel(level)
    written = [stream.buffer.getvalue().decode() for stream in (out, err)]
    assert "Traceback" not in written[1]
    return Done(int(ended.value.code or 0), *written)
