"""AG-UI 1.0 for Python: serve an agent, call any agent, by the rules of the protocol.

The values of the protocol and the reading side are here. What does input and output loads when
it is first used: `HttpAgent` and `Agent` (the client), and `aguia.server` (the server).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aguia import protocol
from aguia.consumer import Consumer
from aguia.conversation import Conversation, Messages
from aguia.protocol import *

if TYPE_CHECKING:
    from aguia.client import Agent, HttpAgent

__version__ = "0.1.0"

__all__ = ["Agent", "Consumer", "Conversation", "HttpAgent", "Messages", "__version__"]
__all__ += protocol.__all__

_CLIENT = ("Agent", "HttpAgent")


def __getattr__(name: str) -> Any:
    if name in _CLIENT:
        return getattr(import_module("aguia.client"), name)
    raise AttributeError(f"module 'aguia' has no attribute {name!r}")
