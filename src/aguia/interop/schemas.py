"""JSON Schema from Python types, and values of those types from plain JSON.

Understands what msgspec does (built-in types, dataclasses, typed dictionaries, enums, literals,
structs) and pydantic models, which bring their own schema and their own validation.
"""

from typing import Any

import msgspec

__all__ = ["convert", "schema_of"]


def schema_of(type_: Any) -> dict[str, Any]:
    """The JSON Schema of a Python type. Raises `TypeError` for one that has none."""
    model_schema = getattr(type_, "model_json_schema", None)
    if model_schema is not None:
        schema: dict[str, Any] = model_schema()
        return schema
    return msgspec.json.schema(type_)


def convert(value: Any, type_: Any) -> Any:
    """Plain JSON as a value of the type, judged strictly.

    Raises `ValueError`, saying where and what was expected, for JSON that is no such value.
    """
    validate = getattr(type_, "model_validate", None)
    if validate is not None:
        return validate(value)
    return msgspec.convert(value, type_)
