"""Plain JSON out of the values that programs hold: dataclasses, structs, pydantic models.

Nothing is imported for it: a pydantic model is known by its `model_dump`, so that models of
the official `ag_ui.core` package are understood wherever they are installed.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from aguia.codec.json import copy_value

__all__ = ["Model", "plain_event", "plain_model", "plain_value"]


class Model(Protocol):
    """A pydantic model, such as those of the official `ag_ui.core` package."""

    def model_dump(self, *, mode: str, by_alias: bool) -> dict[str, Any]:
        """Return its members as plain JSON."""


def plain_value(value: Any) -> Any:
    """A copy of `value` as plain JSON.

    Takes JSON values, dataclasses, msgspec structs, pydantic models, and containers of them.
    Raises `ValueError` or `TypeError` for what has no JSON form, `NaN` included.
    """
    try:
        return copy_value(msgspec.to_builtins(value, str_keys=False, enc_hook=_dump))
    except RecursionError:
        raise ValueError("the value nests too deeply, or in itself") from None


def plain_event(event: Any) -> dict[str, Any]:
    """An event as plain JSON: a mapping, a struct of this package or a pydantic model.

    A pydantic model's optional members that are None stay away, and a required one that is
    None is null (EVT-4). Raises `TypeError` for what is no event at all.
    """
    plain = plain_model(event)
    if isinstance(plain, msgspec.Struct | Mapping):
        value = plain if plain is not event else plain_value(event)
        if isinstance(value, dict):
            return value
    advice = ""
    if isinstance(event, str | bytes):
        advice = ": give the event itself, not its encoded text; text alone is said by run.say"
    raise TypeError(
        f"an event is a typed event, a dictionary or a model, not {type(event).__name__}{advice}"
    )


def plain_model(value: Any) -> Any:
    """A pydantic model of something on the wire as plain JSON; anything else as it is.

    Its optional members that are None stay away, and a required one that is None is null (EVT-4).
    """
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        return value
    plain: dict[str, Any] = dump(mode="json", by_alias=True)
    _drop_unset(value, plain)
    return plain


def _drop_unset(value: Any, plain: Any) -> None:
    """Take out of a model's plain form the optional members that it has no value for."""
    fields = getattr(type(value), "model_fields", None)
    if fields is not None:
        for name, field in fields.items():
            member = field.serialization_alias or field.alias or name
            item = getattr(value, name)
            if item is None and not field.is_required():
                plain.pop(member, None)
            elif field.annotation is not Any:  # what is anything is data, nulls included
                _drop_unset(item, plain.get(member))
    elif isinstance(value, list | tuple) and isinstance(plain, list):
        for item, counterpart in zip(value, plain, strict=False):
            _drop_unset(item, counterpart)


def _dump(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json", by_alias=True)
    # Subclasses that programs have made.
    if isinstance(value, str | int | float):
        return copy_value(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
