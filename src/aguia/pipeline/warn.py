"""How the stages of the pipeline report what was lost or looks wrong without ending the run."""

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from aguia.protocol.errors import ProtocolWarning

__all__ = ["Warn", "log_warning"]

Warn: TypeAlias = Callable[[ProtocolWarning], None]

_logger: Final = logging.getLogger("aguia")


def log_warning(warning: ProtocolWarning) -> None:
    """Tell the `aguia` logger and nobody else."""
    _logger.warning("%s", warning)
