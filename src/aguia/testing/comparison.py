"""Whether two JSON values are equal, and where one lacks what the other names."""

import json
from typing import Any, Final

__all__ = ["ABSENT", "at", "differences", "same", "show"]

ABSENT: Final = object()
"""What `at` finds where there is nothing."""

_SHOWN: Final = 300
"""How many characters of a value are shown."""


def same(actual: Any, wanted: Any) -> bool:
    """Whether two JSON values are equal; 1 is 1.0, and true is no 1."""
    if isinstance(actual, bool) or isinstance(wanted, bool):
        return actual is wanted
    if isinstance(actual, dict) and isinstance(wanted, dict):
        return actual.keys() == wanted.keys() and all(
            same(actual[name], value) for name, value in wanted.items()
        )
    if isinstance(actual, list) and isinstance(wanted, list):
        return len(actual) == len(wanted) and all(map(same, actual, wanted))
    return bool(actual == wanted)


def differences(actual: Any, wanted: Any, place: str) -> list[str]:
    """Where `actual` lacks what `wanted` names: objects by their members, lists as a whole.

    What is said begins with `place`, the name of the value.
    """
    if isinstance(wanted, dict) and isinstance(actual, dict):
        found = []
        for name, value in wanted.items():
            if name not in actual:
                found.append(f"{place}/{name} is missing, expected {show(value)}")
            else:
                found += differences(actual[name], value, f"{place}/{name}")
        return found
    if isinstance(wanted, list) and isinstance(actual, list) and len(wanted) == len(actual):
        return [
            difference
            for number, value in enumerate(wanted)
            for difference in differences(actual[number], value, f"{place}/{number}")
        ]
    if isinstance(wanted, list) and isinstance(actual, list):
        return [f"{place} has {len(actual)} elements, expected {len(wanted)}: {show(actual)}"]
    return [] if same(actual, wanted) else [f"{place} is {show(actual)}, expected {show(wanted)}"]


def at(value: Any, path: str) -> Any:
    """The value at a dotted path such as `1.message.role`, or `ABSENT`."""
    for step in path.split("."):
        if isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return ABSENT
    return value


def show(value: Any) -> str:
    """A JSON value as text, cut where it is long."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
