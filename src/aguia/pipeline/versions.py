"""What a peer's declared protocol version means for us (VER-2)."""

import re
from typing import Final

from aguia.protocol.common import PROTOCOL_VERSION

__all__ = ["judge_producer", "parse_version"]

_VERSION: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})")


def parse_version(text: str) -> tuple[int, int] | None:
    """`MAJOR.MINOR` as two numbers, or None when the text is no such version."""
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def judge_producer(declared: str) -> str | None:
    """What to warn of in a producer's declaration, or None when there is nothing to say."""
    version = parse_version(declared)
    if version is None:
        return (
            f"the agent declares the protocol version {declared[:40]!r}, which can't be "
            "interpreted; it is treated like a newer one"
        )
    ours = parse_version(PROTOCOL_VERSION)
    if ours is not None and version > ours:
        return (
            f"the agent speaks protocol {declared}, newer than {PROTOCOL_VERSION}: what it adds "
            "is dropped here; upgrade aguia to receive it"
        )
    return None
