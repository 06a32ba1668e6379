"""The streams that the benchmarks read: events as plain JSON, and what makes bodies of them."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

from aguia import EVENTS, RunAgentInput
from aguia.codec import protobuf, sse

__all__ = [
    "INPUT",
    "PIECE",
    "WORDS",
    "Events",
    "agentic",
    "binary_body",
    "chunked",
    "many_messages",
    "one_message",
    "pieces",
    "run",
    "run_input",
    "sse_body",
    "state_of",
    "tool_calls",
    "unknown_fields",
]

Events: TypeAlias = list[dict[str, Any]]

WORDS: Final = "some words "
"""A delta of about the size that models give."""

INPUT: Final = {
    "threadId": "thread-1",
    "runId": "run-1",
    "messages": [],
    "state": {},
    "tools": [],
    "context": [],
    "forwardedProps": {},
    "protocolVersion": "1.0",
}

PIECE: Final = 16 * 1024
"""Bytes that arrive at once, as from a socket that is read when there is much to read."""


def run(events: Iterable[dict[str, Any]]) -> Events:
    """A whole run around the events."""
    ids = {"threadId": "thread-1", "runId": "run-1"}
    return [
        {"type": "RUN_STARTED", **ids, "protocolVersion": "1.0"},
        *events,
        {"type": "RUN_FINISHED", **ids, "outcome": {"type": "success"}},
    ]


def _message(id_: str, deltas: int, delta: str = WORDS) -> Iterator[dict[str, Any]]:
    yield {"type": "TEXT_MESSAGE_START", "messageId": id_, "role": "assistant"}
    for _ in range(deltas):
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": id_, "delta": delta}
    yield {"type": "TEXT_MESSAGE_END", "messageId": id_}


def one_message(deltas: int, delta: str = WORDS) -> Events:
    return run(_message("message-1", deltas, delta))


def many_messages(messages: int, deltas: int) -> Events:
    return run(
        event for number in range(messages) for event in _message(f"message-{number}", deltas)
    )


def tool_calls(calls: int, deltas: int) -> Events:
    """Calls with streamed arguments, each with its result."""
    events: Events = []
    for number in range(calls):
        id_ = f"call-{number}"
        events.append({"type": "TOOL_CALL_START", "toolCallId": id_, "toolCallName": "search"})
        parts = ['{"query": "', *("word " for _ in range(deltas - 2)), '"}']
        events += [{"type": "TOOL_CALL_ARGS", "toolCallId": id_, "delta": part} for part in parts]
        events.append({"type": "TOOL_CALL_END", "toolCallId": id_})
        result = {"messageId": f"result-{number}", "toolCallId": id_, "content": "3 hits"}
        events.append({"type": "TOOL_CALL_RESULT", **result, "role": "tool"})
    return run(events)


def agentic(turns: int) -> Events:
    """A mixed run: steps with reasoning, a call and its result, state, activity and text."""
    state = {"plan": [{"title": f"Step {n}", "done": False} for n in range(turns)]}
    activity = {"hits": 0, "sources": []}
    events: Events = [{"type": "STATE_SNAPSHOT", "snapshot": state}]
    for n in range(turns):
        thought, call = {"messageId": f"thought-{n}"}, {"toolCallId": f"call-{n}"}
        events += [
            {"type": "STEP_STARTED", "stepName": f"step-{n}"},
            {"type": "REASONING_START", **thought},
            {"type": "REASONING_MESSAGE_START", **thought, "role": "reasoning"},
            *({"type": "REASONING_MESSAGE_CONTENT", **thought, "delta": WORDS} for _ in range(30)),
            {"type": "REASONING_MESSAGE_END", **thought},
            {"type": "REASONING_END", **thought},
            {"type": "TOOL_CALL_START", **call, "toolCallName": "search"},
            *({"type": "TOOL_CALL_ARGS", **call, "delta": '"word ' + '"'} for _ in range(15)),
            {"type": "TOOL_CALL_END", **call},
            {
                "type": "ACTIVITY_SNAPSHOT",
                "messageId": f"activity-{n}",
                "activityType": "search",
                "content": activity,
            },
            *(
                {
                    "type": "ACTIVITY_DELTA",
                    "messageId": f"activity-{n}",
                    "activityType": "search",
                    "patch": [
                        {"op": "replace", "path": "/hits", "value": hit},
                        {"op": "add", "path": "/sources/-", "value": f"source {hit}"},
                    ],
                }
                for hit in range(3)
            ),
            {
                "type": "TOOL_CALL_RESULT",
                "messageId": f"result-{n}",
                **call,
                "content": "3 hits",
                "role": "tool",
            },
            {
                "type": "STATE_DELTA",
                "delta": [{"op": "replace", "path": f"/plan/{n}/done", "value": True}],
            },
            *_message(f"message-{n}", 40),
            {"type": "STEP_FINISHED", "stepName": f"step-{n}"},
        ]
    return run(events)


def unknown_fields(events: Events) -> Events:
    """The same with a member that no version describes, on every event."""
    return [{**event, "vendorHint": 7} for event in events]


def chunked(events: Events) -> Events:
    """The same text messages, spelled as chunks."""
    out: Events = []
    for event in events:
        match event["type"]:
            case "TEXT_MESSAGE_CONTENT":
                out.append({**event, "type": "TEXT_MESSAGE_CHUNK"})
            case "TEXT_MESSAGE_START" | "TEXT_MESSAGE_END":
                pass
            case _:
                out.append(event)
    return out


def state_of(size: int) -> dict[str, Any]:
    """A state of about `size` bytes of JSON, wide and nested as applications have them."""
    row = {"id": "row-000000", "title": "A title of some words", "done": False, "tags": ["a", "b"]}
    rows = max(1, size // len(msgspec.json.encode(row)))
    table = [{**row, "id": f"row-{n:06}"} for n in range(rows)]
    return {"counter": 0, "document": {"rows": table, "cursor": {"row": 0, "column": 0}}}


def sse_body(events: Events) -> bytes:
    return b"".join(sse.encode_event(event) for event in events)


def binary_body(events: Events) -> bytes:
    return b"".join(
        protobuf.encode_event(msgspec.convert(event, EVENTS[event["type"]])) for event in events
    )


def pieces(body: bytes, size: int = PIECE) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


def run_input(**members: Any) -> RunAgentInput:
    return msgspec.convert({**INPUT, **members}, RunAgentInput)
