"""What exists on the wire: typed values, their errors and the catalogue of rules."""

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

__all__: list[str] = []
__all__ += capabilities.__all__
__all__ += common.__all__
__all__ += content.__all__
__all__ += errors.__all__
__all__ += events.__all__
__all__ += input.__all__
__all__ += messages.__all__
__all__ += outcomes.__all__
__all__ += patch.__all__
