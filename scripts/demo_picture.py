"""Makes the picture of the demo: what `aguia demo` writes to a terminal, as an SVG file.

    python scripts/demo_picture.py docs/pictures/demo.svg

The command runs on a pseudo-terminal, and what stands on it in the end is drawn. Only the port is
replaced, and what comes after the conversation (how long it took) is left out, so that the picture
is the same every time. It refers to no font and nothing else that would have to be loaded.
"""

import argparse
import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

__all__ = ["main", "picture"]

COLUMNS: Final = 100

SECONDS: Final = 60.0

DEMO: Final = """
import math
from aguia.cli import main, render
from aguia.cli.assistant import search

# On a busy machine an agent that takes longer would tell of its progress in between.
search.PROGRESS_SECONDS = render.SILENCE_SECONDS = math.inf
main()
"""

FONTS: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

LAST: Final = re.compile(r"\d+ runs, ")
"""What follows the conversation begins like this."""


def picture() -> str:
    """The picture as SVG."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=COLUMNS,
        force_terminal=True,
        color_system="truecolor",
    )
    lines = screen(written())
    end = next(number for number, line in enumerate(lines) if LAST.match(plain(line)))
    for line in lines[: end - 1]:
        text = Text.from_ansi(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", line))
        console.print(text, no_wrap=True, crop=False, soft_wrap=True)
    svg = console.export_svg(title="aguia demo", unique_id="demo")
    for needless in (
        r"\s*<!--.*?-->",
        r"\s*@font-face \{.*?\}",
        r"\s*font-variant-east-asian: [^;]+;",
    ):
        svg = re.sub(needless, "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;]+;", f"font-family: {FONTS};", svg)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def written() -> str:
    """All that the demo writes to a terminal of its own."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 200, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONUTF8": "1"}
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "LINES"):
        environment.pop(name, None)
    # Its input is no terminal, so that it ends where the prompt would come.
    with subprocess.Popen(
        [sys.executable, "-c", DEMO, "demo"],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        os.close(theirs)
        data = b""
        while True:
            try:
                data += (more := os.read(ours, 65_536))
            except OSError:  # how Linux says that nobody has the terminal any more
                break
            if not more:
                break
        os.close(ours)
        _, complaints = process.communicate(timeout=SECONDS)
    if process.returncode or complaints:
        raise RuntimeError(f"the demo failed: {complaints.decode()}")
    return data.decode()


def screen(written: str) -> list[str]:
    """The lines that a terminal shows in the end, with their colours.

    The cursor goes up only to write whole lines anew, so that lines are all there is to follow.
    """
    lines, at, fresh = [""], 0, True
    for part in re.split(r"(\x1b\[\d*[A-LN-Za-ln-z]|\r|\n)", written):
        match part[:1], part[-1:]:
            case "\r", _:
                fresh = True
            case "\n", _:
                at, fresh = at + 1, True
                if at == len(lines):
                    lines.append("")
            case "\x1b", "A":
                at -= int(part[2:-1] or 1)
            case "\x1b", "J":
                del lines[at:]
                lines.append("")
            case "\x1b", "K":
                if fresh:
                    lines[at] = ""
            case _ if part:
                lines[at] = part if fresh else lines[at] + part
                fresh = False
    return lines


def plain(line: str) -> str:
    """A line without its colours."""
    return re.sub(r"\x1b\[[\d;]*m", "", line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the picture to a file."""
    parser = argparse.ArgumentParser(description="Makes the picture of the demo.")
    parser.add_argument("file", metavar="FILE", type=Path)
    file = parser.parse_args(arguments).file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(picture(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
