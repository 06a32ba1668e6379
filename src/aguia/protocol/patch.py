"""The shape of JSON Patch documents (RFC 6902), which travel in state and activity deltas.

Operations stay plain dictionaries, as on the wire and as in every other JSON Patch library:
RFC 6902 section 4 lets an operation carry members that it does not define, and those arrive
whole (PROC-6). The typed dictionaries name the members that each operation must have.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypedDict

from msgspec import Meta

__all__ = [
    "OPERATIONS",
    "AddOperation",
    "AnyOperation",
    "CopyOperation",
    "JsonPatch",
    "JsonPatchOperation",
    "JsonPointer",
    "MoveOperation",
    "RemoveOperation",
    "ReplaceOperation",
    "TestOperation",
    "check_patch",
]

JSON_POINTER_PATTERN: Final = "^(/([^/~]|~[01])*)*$"

JsonPointer: TypeAlias = Annotated[str, Meta(pattern=JSON_POINTER_PATTERN)]
"""RFC 6901: empty for the whole document, else tokens that each begin with a slash."""


class AddOperation(TypedDict):
    """Inserts `value` at `path`."""

    op: Literal["add"]
    path: JsonPointer
    value: Any


class RemoveOperation(TypedDict):
    """Removes what is at `path`."""

    op: Literal["remove"]
    path: JsonPointer


class ReplaceOperation(TypedDict):
    """Puts `value` in the place of what is at `path`."""

    op: Literal["replace"]
    path: JsonPointer
    value: Any


# `from` is a keyword, hence the functional form.
MoveOperation = TypedDict(
    "MoveOperation", {"op": Literal["move"], "from": JsonPointer, "path": JsonPointer}
)
MoveOperation.__doc__ = "Removes what is at `from` and adds it at `path`."

CopyOperation = TypedDict(
    "CopyOperation", {"op": Literal["copy"], "from": JsonPointer, "path": JsonPointer}
)
CopyOperation.__doc__ = "Adds at `path` what is at `from`."


class TestOperation(TypedDict):
    """Demands that what is at `path` equals `value`."""

    op: Literal["test"]
    path: JsonPointer
    value: Any


AnyOperation: TypeAlias = (
    AddOperation
    | RemoveOperation
    | ReplaceOperation
    | MoveOperation
    | CopyOperation
    | TestOperation
)

if TYPE_CHECKING:
    JsonPatchOperation: TypeAlias = AnyOperation
else:
    # A decoder can't choose among typed dictionaries; `check_patch` does what it would do.
    JsonPatchOperation = Annotated[dict[str, Any], Meta(extra={"definition": "JsonPatchOperation"})]

JsonPatch: TypeAlias = list[JsonPatchOperation]

OPERATIONS: Final[dict[str, tuple[str, ...]]] = {
    "add": ("value",),
    "remove": (),
    "replace": ("value",),
    "move": ("from",),
    "copy": ("from",),
    "test": ("value",),
}
"""Each operation, and the members that it needs beside `op` and `path`."""

_BAD_ESCAPE: Final = re.compile("~(?![01])")


def check_patch(operations: Sequence[Any]) -> None:
    """Raise `ValueError` at the first operation that is not well formed (STATE-3)."""
    for index, operation in enumerate(operations):
        if not isinstance(operation, dict):
            raise ValueError(f"operation {index} of the patch is not an object")
        op = operation.get("op")
        needed = OPERATIONS.get(op) if isinstance(op, str) else None
        if needed is None:
            raise ValueError(f"operation {index} of the patch has no known 'op'")
        _check_pointer(operation.get("path"), index, "path")
        for member in needed:
            if member == "from":
                _check_pointer(operation.get("from"), index, "from")
            elif member not in operation:
                raise ValueError(f"operation {index} of the patch ({op}) lacks '{member}'")


def _check_pointer(pointer: object, index: int, member: str) -> None:
    if (
        not isinstance(pointer, str)
        or (pointer and pointer[0] != "/")
        or ("~" in pointer and _BAD_ESCAPE.search(pointer))
    ):
        raise ValueError(f"operation {index} of the patch has no JSON Pointer in '{member}'")
