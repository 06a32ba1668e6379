"""What the wire values share: one struct base, and the scalar types with their bounds.

Everything in this room is structure. What a value means, and in which order events may
come, is the business of `aguia.pipeline` and `aguia.conversation`.
"""

from inspect import Signature
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeAlias

from msgspec import UNSET, Meta, Struct, StructMeta, UnsetType

__all__ = [
    "MAX_SAFE_INTEGER",
    "PROTOCOL_VERSION",
    "UNSET",
    "Count",
    "JsonValue",
    "Metadata",
    "SubagentRunId",
    "Timestamp",
    "UnsetType",
    "WireStruct",
]

PROTOCOL_VERSION: Final = "1.0"
"""The protocol version this package speaks (VER-1)."""

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exact."""

JsonValue: TypeAlias = str | int | float | bool | list[Any] | dict[str, Any]
"""Any JSON value but a whole `null`: what an optional field of free form may hold (EVT-4)."""

Metadata: TypeAlias = dict[str, Any]
"""Open by key; a `null` under a key is data (META-1)."""

SubagentRunId: TypeAlias = str
"""An opaque handle of one subagent invocation; absent means the parent agent (SUB-1)."""

Timestamp: TypeAlias = Annotated[int, Meta(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER)]
"""By convention milliseconds since the Unix epoch; never used for ordering (EVT-2)."""

Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_SAFE_INTEGER)]
"""A number of tokens, iterations or milliseconds."""


class WireStruct(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename="camel",
    repr_omit_defaults=True,
):
    """Base of every object that the schema closes.

    Immutable, so that whoever holds a value keeps it as it was; `msgspec.structs.replace`
    makes a changed copy. An optional field without a value is `UNSET`, never `None`, and is
    left out when encoded (EVT-4). Attributes are snake_case, the wire is camelCase.
    """


class Constants(StructMeta):
    """Metaclass of an object with a required member that can have one value only.

    A program need not give that member, which `_constants` has: it is filled in. What is decoded
    must hold it, as the schema says, since a decoder does not come by here. A default would make
    it optional there too, and so would a tag outside of a union.
    """

    _constants: ClassVar[dict[str, str]]

    # Type checkers see a member with a default instead, and check the other arguments as ever.
    if not TYPE_CHECKING:

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return super().__call__(*args, **{**cls._constants, **kwargs})

        @property
        def __signature__(cls) -> Signature:
            given = super().__signature__
            constants = cls._constants
            return given.replace(
                parameters=[
                    parameter.replace(default=constants.get(name, parameter.default))
                    for name, parameter in given.parameters.items()
                ]
            )
