"""What an agent is given and what it declares, judged the same way however it is served."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from aguia.codec.json import (
    MAX_DEPTH,
    STRICT_FAILURES,
    decode,
    encode,
    nests_deeper_than,
    parse_object,
)
from aguia.pipeline.compatibility import noting, upgrade_input
from aguia.pipeline.enforcement import enforce_input
from aguia.pipeline.versions import parse_version
from aguia.pipeline.warn import log_warning
from aguia.protocol.capabilities import AgentCapabilities
from aguia.protocol.common import PROTOCOL_VERSION, UNSET
from aguia.protocol.errors import DecodeError, InvalidInput, ProtocolWarning
from aguia.protocol.input import RunAgentInput

__all__ = ["declaration", "read_input"]

_logger: Final = logging.getLogger("aguia.server")

_WARNINGS: Final = 20
"""How many warnings about one run input are logged."""


def declaration(capabilities: AgentCapabilities | Mapping[str, Any]) -> bytes:
    """What an agent declares, as JSON; raises `ValueError` for what the schema refuses."""
    try:
        return encode(decode(encode(capabilities), AgentCapabilities))
    except STRICT_FAILURES as error:
        raise ValueError(f"the capabilities are not as the schema has them: {error}") from None


def read_input(body: bytes) -> RunAgentInput:
    """The run input in a body, judged by PROC-12 and VER-2.

    Raises `InvalidInput` for one that is malformed, is none, or is of a version of the protocol
    that is not spoken here.
    """
    try:
        if nests_deeper_than(body, MAX_DEPTH):
            raise InvalidInput(f"the run input nests deeper than {MAX_DEPTH} levels", path="")
        run_input = decode(body, RunAgentInput)
    except STRICT_FAILURES:
        warn = _Capped()
        try:
            run_input = enforce_input(
                upgrade_input(parse_object(body, MAX_DEPTH), noting(warn)), warn
            )
        except DecodeError as error:
            message = error.message.replace("frame", "body").replace("one event", "a run input")
            raise InvalidInput(message, rule=error.rule, path="") from None
    _check_version(run_input)
    return run_input


class _Capped:
    """Logs the first warnings of an input, and no line for each of a hostile one's thousands."""

    def __init__(self) -> None:
        self._left = _WARNINGS

    def __call__(self, warning: ProtocolWarning) -> None:
        self._left -= 1
        if self._left >= 0:
            log_warning(warning)
        elif self._left == -1:
            _logger.warning("more of the run input was removed than is told here")


def _check_version(run_input: RunAgentInput) -> None:
    if run_input.protocol_version is UNSET:
        return
    theirs, ours = parse_version(run_input.protocol_version), parse_version(PROTOCOL_VERSION)
    if theirs is None or ours is None:
        _logger.warning(
            "the client declares the protocol version %r, which can't be interpreted [VER-2]",
            run_input.protocol_version[:40],
        )
    elif theirs[0] != ours[0]:
        raise InvalidInput(
            f"this agent speaks protocol {PROTOCOL_VERSION}, not {run_input.protocol_version}",
            rule="VER-2",
            path="/protocolVersion",
        )
    elif theirs > ours:
        _logger.warning(
            "the client speaks protocol %s, newer than %s; what it adds is not understood [VER-2]",
            run_input.protocol_version,
            PROTOCOL_VERSION,
        )
