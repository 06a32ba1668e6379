"""The last lines on a terminal, redrawn in place until they are left for good.

Only what differs is written, in one piece: what stands does not flicker. Lines that would leave
the screen at its top are left as they are, for no terminal lets one draw above it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Line", "Live"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it is written, with its colours, and how many cells of the terminal it takes."""

    written: str
    cells: int


class Live:
    """Lines at the end of what is written to a terminal, below which the cursor stands.

    `write` takes the text, and `size` gives the columns and rows of the terminal, which may
    change at any time.
    """

    def __init__(self, write: Callable[[str], object], size: Callable[[], tuple[int, int]]) -> None:
        self._write = write
        self._size = size
        self._shown: list[Line] = []
        self._left = 0  # how many lines at the beginning of the block are out of reach

    @property
    def empty(self) -> bool:
        """Whether nothing is there that could be redrawn."""
        return not self._shown and not self._left

    def draw(self, lines: Sequence[Line]) -> None:
        """Shows these lines in the place of those that were shown before."""
        columns, rows = self._size()
        new = list(lines[self._left :])
        same = 0
        while same < min(len(new), len(self._shown)) and new[same] == self._shown[same]:
            same += 1
        stale = self._shown[same:]
        # A terminal that became narrower has broken lines in two.
        up = sum(max(1, -(-line.cells // max(1, columns))) for line in stale)
        parts = [f"\x1b[{up}A\r"] if up else []
        parts += [f"{line.written}\x1b[K\n" for line in new[same:]]
        if stale:
            parts.append("\x1b[J")
        if parts:
            self._write("".join(parts))
        over = max(0, len(new) - max(1, rows - 1))
        self._shown = new[over:]
        self._left += over

    def leave(self) -> None:
        """Leaves what is shown as it is, for good."""
        self._shown = []
        self._left = 0

    def clear(self) -> None:
        """Takes away what is shown, as far as it can be reached."""
        self.draw([])
        self.leave()
