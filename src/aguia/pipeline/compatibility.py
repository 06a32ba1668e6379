"""The always-on boundary for shapes that the protocol has retired; it sees the stream first.

Nothing is translated yet: every raw object passes through as it came (VER-4 is to come).
"""

from collections.abc import Iterable
from typing import Any

__all__ = ["Compatibility"]


class Compatibility:
    """Translates retired shapes into today's, by their shape and not by the peer's version."""

    def translate(self, event: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """The raw events that stand for this one."""
        return (event,)
