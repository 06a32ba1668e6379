"""Reading what an agent declares of itself, from wherever the application got it."""

from typing import Any

import msgspec

from aguia.codec.json import MAX_DEPTH, nests_deeper_than
from aguia.pipeline.enforcement import enforce_value
from aguia.pipeline.warn import Warn
from aguia.protocol.capabilities import AgentCapabilities
from aguia.protocol.common import UNSET
from aguia.protocol.errors import InvalidInput, ProtocolWarning

__all__ = ["read_capabilities"]


def read_capabilities(value: Any, warn: Warn) -> AgentCapabilities | None:
    """The declaration in `value`, or None where there is none that can be used (CAP-1).

    Takes plain JSON, as a dictionary or as text or bytes of it, and `AgentCapabilities`, whose
    attributes are judged, too. None, `UNSET` and JSON's null are no declaration. Members that
    the protocol does not describe are dropped with a warning, `custom` and `identity.metadata`
    keep all of theirs. A described member with a value that the schema rejects makes the whole
    unusable: a warning of the stage "capabilities" says where. Raises nothing: no declaration,
    and no bad one, is a reason not to run.
    """
    try:
        if isinstance(value, str | bytes | bytearray):
            value = _parsed(value)
        if value is None or value is UNSET:
            return None
        found: AgentCapabilities | None = enforce_value(
            value, AgentCapabilities, lambda warning: _drop(warning, warn)
        )
    except InvalidInput as error:
        warn(
            ProtocolWarning(
                stage="capabilities",
                rule="CAP-1",
                path=error.path,
                message=f"the agent's capabilities can't be used: {error.message}",
            )
        )
        return None
    return found


def _drop(warning: ProtocolWarning, warn: Warn) -> None:
    warn(msgspec.structs.replace(warning, stage="capabilities", rule="CAP-1"))


def _parsed(text: str | bytes | bytearray) -> Any:
    """The text as plain JSON; raises `InvalidInput` for what is none."""
    try:
        data = text.encode() if isinstance(text, str) else bytes(text)
        if nests_deeper_than(data, MAX_DEPTH):
            raise InvalidInput(f"they nest deeper than {MAX_DEPTH} levels", path="")
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"they are not JSON: {error}", path="") from None
