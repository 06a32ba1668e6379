"""Plain JSON out of the values that programs hold: dataclasses, structs, pydantic models.

Nothing is imported for it: a pydantic model is known by its `model_dump`, so that models of
the official `ag_ui.core` package are understood wherever they are installed.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from aguia.codec.json import copy_value

__all__ = ["plain_event", "plain_value"]

_REQUIRED_PAYLOADS: Final = {
    "STATE_SNAPSHOT": "snapshot",
    "CUSTOM": "value",
    "RAW": "event",
}
"""Members that are required and may be null (EVT-4)."""


def plain_value(value: Any) -> Any:
    """A copy of `value` as plain JSON.

    Takes JSON values, dataclasses, msgspec structs, pydantic models, and containers of them.
    Raises `ValueError` or `TypeError` for what has no JSON form, `NaN` included.
    """
    return copy_value(msgspec.to_builtins(value, str_keys=False, enc_hook=_dump))


def plain_event(event: Any) -> dict[str, Any]:
    """An event as plain JSON: a mapping, a struct of this package or a pydantic model.

    A pydantic model's unset optional members are None and stay away (EVT-4); a required
    payload that is None is null. Raises `TypeError` for what is no event at all.
    """
    dump = getattr(event, "model_dump", None)
    if dump is not None:
        plain: dict[str, Any] = dump(mode="json", by_alias=True, exclude_none=True)
        payload = _REQUIRED_PAYLOADS.get(str(plain.get("type")))
        if payload is not None:
            plain[payload] = dump(mode="json", by_alias=True, include={payload}).get(payload)
        return plain
    if isinstance(event, msgspec.Struct | Mapping):
        value = plain_value(event)
        if isinstance(value, dict):
            return value
    raise TypeError(
        f"an event is a typed event, a dictionary or a model, not {type(event).__name__}"
    )


def _dump(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} has no JSON form")
