"""How the stages of the pipeline report what was lost or looks wrong without ending the run."""

from collections.abc import Callable
from typing import TypeAlias

from aguia.protocol.errors import ProtocolWarning

__all__ = ["Warn"]

Warn: TypeAlias = Callable[[ProtocolWarning], None]
