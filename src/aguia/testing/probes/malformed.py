"""Run inputs that no agent may run: each kind of malformed, and the cases of each."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["MALFORMED", "Case", "Family"]


@dataclass(frozen=True)
class Case:
    """One way to be malformed.

    Attributes:
        label: what is wrong, in a few words.
        spoil: takes a valid input and spoils it, or returns the bytes to send in its place.
    """

    label: str
    spoil: Callable[[dict[str, Any]], bytes | None]

    def body(self, input: dict[str, Any]) -> bytes:
        """What is sent."""
        instead = self.spoil(input)
        return json.dumps(input).encode() if instead is None else instead


@dataclass(frozen=True)
class Family:
    """Cases that are malformed in the same way, and the rules that have them refused."""

    what: str
    rules: tuple[str, ...]
    cases: tuple[Case, ...]


def _bytes(label: str, body: bytes) -> Case:
    return Case(label, lambda input: body)


def _set(label: str, *path: Any, value: Any) -> Case:
    """A member that is given a value; the path leads to it from the input."""

    def spoil(input: dict[str, Any]) -> None:
        place: Any = input
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return Case(label, spoil)


def _null(name: str) -> Case:
    return _set(f"{name} is null", name, value=None)


def _without(name: str) -> Case:
    def spoil(input: dict[str, Any]) -> None:
        del input[name]

    return Case(f"no {name}", spoil)


def _message(label: str, **members: Any) -> Case:
    """A message in front of the others."""

    def spoil(input: dict[str, Any]) -> None:
        input["messages"].insert(0, members)

    return Case(label, spoil)


def _part(label: str, **members: Any) -> Case:
    return _set(label, "messages", -1, "content", value=[{"type": "text", "text": "x"}, members])


def _call(label: str, **members: Any) -> Case:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    call = {name: value for name, value in {**call, **members}.items() if value is not ...}
    return _message(label, id="probe-c", role="assistant", toolCalls=[call])


def _cut(input: dict[str, Any]) -> bytes:
    return json.dumps(input).encode()[:-1]


def _latin(input: dict[str, Any]) -> bytes:
    input["messages"][-1]["content"] = "água"
    return json.dumps(input, ensure_ascii=False).encode("latin-1")


MALFORMED: Final[dict[str, Family]] = {
    "malformed-body": Family(
        "A body that is no JSON object is refused with an error status and no stream.",
        ("HTTP-4", "PROC-12"),
        (
            _bytes("an empty body", b""),
            Case("JSON that is cut off", _cut),
            Case("text that is no UTF-8", _latin),
            _bytes("an array", b"[]"),
            _bytes("a string", b'"hello"'),
            _bytes("null", b"null"),
        ),
    ),
    "malformed-missing": Family(
        "An input without a member that is required is refused.",
        ("HTTP-4", "PROC-12", "IN-1"),
        (
            _without("threadId"),
            _without("runId"),
            _without("messages"),
            _message("a message without id", role="user", content="x"),
            _message("a message without role", id="probe-m", content="x"),
            _message("a message of the user without content", id="probe-m", role="user"),
            _message("a tool message without toolCallId", id="probe-m", role="tool", content="x"),
        ),
    ),
    "malformed-types": Family(
        "An input in which a known member has a value of the wrong type is refused.",
        ("HTTP-4", "PROC-3", "PROC-12"),
        (
            _set("threadId is a number", "threadId", value=7),
            _set("runId is an object", "runId", value={}),
            _set("messages is an object", "messages", value={}),
            _set("messages is a text", "messages", value="hello"),
            _set("a message is a text", "messages", value=["hello"]),
            _set("tools is an object", "tools", value={}),
            _set("context is a text", "context", value="sunny"),
            _set("resume is an object", "resume", value={}),
            _set("protocolVersion is a number", "protocolVersion", value=1.0),
            _set("parentRunId is a number", "parentRunId", value=7),
        ),
    ),
    "malformed-nulls": Family(
        "An input with null for an optional member, which is to be left out instead, is refused.",
        ("HTTP-4", "EVT-4", "PROC-12"),
        (
            _null("tools"),
            _null("context"),
            _null("state"),
            _null("resume"),
            _null("protocolVersion"),
            _null("parentRunId"),
            _set("the name of a message is null", "messages", -1, "name", value=None),
            _message("content is null", id="probe-m", role="assistant", content=None),
        ),
    ),
    "malformed-messages": Family(
        "An input with malformed values deep inside its messages is refused.",
        ("HTTP-4", "PROC-3", "PROC-5", "PROC-12"),
        (
            _set("a content that is a number", "messages", -1, "content", value=7),
            _set("a role that is a number", "messages", -1, "role", value=7),
            _set("metadata that is a text", "messages", -1, "metadata", value="x"),
            _part("a part without type", text="x"),
            _part("a text part without text", type="text"),
            _part("an image without source", type="image"),
            _part("an image without bytes", type="image", source={"type": "data"}),
            _call("a tool call of another type", type="procedure"),
            _call("a tool call without function", function=...),
            _call("arguments that are no text", function={"name": "f", "arguments": {"a": 1}}),
        ),
    ),
    "malformed-lists": Family(
        "An input with malformed tools, context or resume entries is refused.",
        ("HTTP-4", "PROC-3", "PROC-12"),
        (
            _set("a tool without name", "tools", value=[{"description": "x"}]),
            _set("a tool without description", "tools", value=[{"name": "x"}]),
            _set("a tool that is a text", "tools", value=["x"]),
            _set("a context entry without value", "context", value=[{"description": "x"}]),
            _set(
                "a context value that is an object",
                "context",
                value=[{"description": "x", "value": {}}],
            ),
            _set("a resume entry without status", "resume", value=[{"interruptId": "x"}]),
            _set("a resume entry without interruptId", "resume", value=[{"status": "cancelled"}]),
        ),
    ),
}
"""The families, by the names of their probes."""
