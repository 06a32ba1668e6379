"""What a peer's declared protocol version means for us (VER-2)."""

import re
from typing import Final

from aguia.protocol.common import PROTOCOL_VERSION, UNSET
from aguia.protocol.errors import ProtocolWarning
from aguia.protocol.events import RunStartedEvent

__all__ = ["judge_producer", "parse_version"]

_VERSION: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})")


def parse_version(text: str) -> tuple[int, int] | None:
    """`MAJOR.MINOR` as two numbers, or None when the text is no such version."""
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def judge_producer(start: RunStartedEvent) -> ProtocolWarning | None:
    """What to warn of in a producer's declaration, or None when there is nothing to say."""
    declared = start.protocol_version
    if declared is UNSET:
        return None
    version, ours = parse_version(declared), parse_version(PROTOCOL_VERSION)
    if version is None:
        message = (
            f"the agent declares the protocol version {declared[:40]!r}, which can't be "
            "interpreted; it is treated like a newer one"
        )
    elif ours is not None and version > ours:
        message = (
            f"the agent speaks protocol {declared}, newer than {PROTOCOL_VERSION}: what it adds "
            "is dropped here; upgrade aguia to receive it"
        )
    else:
        return None
    return ProtocolWarning(
        stage="compatibility",
        rule="VER-2",
        event_type=start.type,
        path="/protocolVersion",
        message=message,
    )
