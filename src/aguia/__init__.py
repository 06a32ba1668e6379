"""AG-UI 1.0 for Python: serve an agent, call any agent, by the rules of the protocol.

The values of the protocol and the reading side are here. What does input and output loads when
it is first used: `HttpAgent` and `Agent` (the client), and `aguia.server` (the server).
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aguia.consumer import Consumer
from aguia.conversation import Conversation, Messages, PatchError
from aguia.conversation.compact import compact
from aguia.protocol import (
    capabilities,
    common,
    content,
    errors,
    events,
    input,
    messages,
    outcomes,
    patch,
)
from aguia.protocol.capabilities import *
from aguia.protocol.common import *
from aguia.protocol.content import *
from aguia.protocol.errors import *
from aguia.protocol.events import *
from aguia.protocol.input import *
from aguia.protocol.messages import *
from aguia.protocol.outcomes import *
from aguia.protocol.patch import *

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Consumer",
    "Conversation",
    "HttpAgent",
    "Messages",
    "PatchError",
    "__version__",
    "compact",
]
__all__ += capabilities.__all__
__all__ += common.__all__
__all__ += content.__all__
__all__ += errors.__all__
__all__ += events.__all__
__all__ += input.__all__
__all__ += messages.__all__
__all__ += outcomes.__all__
__all__ += patch.__all__

if TYPE_CHECKING:
    from aguia.client import Agent, HttpAgent
    from aguia.protocol.content import AudioInputContent as AudioInputContent
    from aguia.protocol.content import AudioInputPart as AudioInputPart
    from aguia.protocol.content import DocumentInputContent as DocumentInputContent
    from aguia.protocol.content import DocumentInputPart as DocumentInputPart
    from aguia.protocol.content import ImageInputContent as ImageInputContent
    from aguia.protocol.content import ImageInputPart as ImageInputPart
    from aguia.protocol.content import InputContent as InputContent
    from aguia.protocol.content import InputContentDataSource as InputContentDataSource
    from aguia.protocol.content import InputContentPart as InputContentPart
    from aguia.protocol.content import InputContentSource as InputContentSource
    from aguia.protocol.content import InputContentUrlSource as InputContentUrlSource
    from aguia.protocol.content import TextInputContent as TextInputContent
    from aguia.protocol.content import VideoInputContent as VideoInputContent
    from aguia.protocol.content import VideoInputPart as VideoInputPart
else:

    def __getattr__(name: str) -> Any:
        if name in ("Agent", "HttpAgent"):
            return getattr(import_module("aguia.client"), name)
        if name in content.RENAMED:
            new = content.RENAMED[name]
            warnings.warn(f"{name} is now {new}", DeprecationWarning, stacklevel=2)
            return globals()[new]
        raise AttributeError(f"module 'aguia' has no attribute {name!r}")
