"""Values in a few words: states, patches, results and arguments, as lines about a run say them.

What comes out of here is not yet safe to write, save for `laid_out` and `compact`.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from aguia.cli.safe import clean, one_line
from aguia.cli.words import plural
from aguia.protocol.content import ContentPart, TextPart

__all__ = [
    "brief",
    "changes_of",
    "compact",
    "laid_out",
    "last_of_each",
    "outline",
    "part_words",
    "until",
]

MAX_CHANGES: Final = 6
"""How many members of a state, or operations of a patch, a line shows."""


def until(expires_at: str) -> str:
    """When a question expires, for a person; what is no date, as it is."""
    try:
        moment = datetime.fromisoformat(expires_at)
    except ValueError:
        return f"until {expires_at}"
    left = moment - datetime.now(moment.tzinfo or UTC).replace(tzinfo=moment.tzinfo)
    seconds = left.total_seconds()
    if seconds <= 0:
        return f"no more: it expired at {expires_at}"
    if seconds < 100:
        return f"within {plural(round(seconds), 'second')}"
    if seconds < 6_000:
        return f"within {plural(round(seconds / 60), 'minute')}"
    return f"until {expires_at}"


def laid_out(arguments: str) -> list[str]:
    """The lines of a call's arguments: JSON as it is best read, or the text as it is."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return clean(arguments).split("\n") if arguments.strip() else []
    if value == {}:
        return []
    return clean(json.dumps(value, indent=2, ensure_ascii=False)).split("\n")


def compact(arguments: str) -> str | None:
    """The arguments in one line of JSON; None if they are none."""
    try:
        return one_line(json.dumps(json.loads(arguments), ensure_ascii=False), 10_000)
    except (ValueError, RecursionError):
        return None


def brief(value: Any, limit: int = 40) -> str:
    """A JSON value in a few characters; of lists and objects, how much they hold."""
    if isinstance(value, str):
        value = value if len(value) <= limit else value[: limit - 1] + "…"
    elif isinstance(value, list):
        return "[]" if not value else f"[{plural(len(value), 'item')}]"
    elif isinstance(value, dict):
        return "{}" if not value else f"{{{plural(len(value), 'key')}}}"
    return json.dumps(value, ensure_ascii=False)


def outline(value: Any, limit: int = 40) -> str:
    """A whole state or result: its top-level members, each in a few characters."""
    if not isinstance(value, dict) or not value:
        return brief(value, limit)
    members = [f"{key} = {brief(member)}" for key, member in islice(value.items(), MAX_CHANGES)]
    return _listed(members, len(value))


def changes_of(patch: Sequence[Mapping[str, Any]]) -> str:
    """A JSON Patch: which paths it changes, and to what."""
    changes = []
    for operation in patch[:MAX_CHANGES]:
        path = operation["path"] or "(all)"
        match operation["op"]:
            case "add" | "replace":
                changes.append(f"{path} = {brief(operation['value'])}")
            case "remove":
                changes.append(f"{path} removed")
            case "move" | "copy" as how:
                done = "moved" if how == "move" else "copied"
                changes.append(f"{path} {done} from {operation['from']}")
    return _listed(changes, len(changes) + max(0, len(patch) - MAX_CHANGES)) or "unchanged"


def last_of_each(patch: list[Any]) -> list[Any]:
    """A patch without the operations on a path that a later one replaces."""
    last = {operation["path"]: at for at, operation in enumerate(patch)}
    return [
        operation
        for at, operation in enumerate(patch)
        if operation["op"] != "replace" or last[operation["path"]] == at
    ]


def _listed(some: list[str], of: int) -> str:
    more = f" and {of - len(some)} more" if of > len(some) else ""
    return ", ".join(some) + more


def part_words(part: ContentPart) -> str:
    """A part of a tool's result; what is no text is named and not shown (TOOL-10, TOOL-12)."""
    if isinstance(part, TextPart):
        return part.text
    kind = part.source.mime_type
    return f"[{part.type}{f' {kind}' if kind else ''}]"
