"""Random streams as peers from before 1.0 sent them, made of those that keep today's rules."""

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from support_streams import EventJson, well_formed

__all__ = ["VERSIONS", "OldCase", "old_stream"]

VERSIONS: Final = (None, "0.0.39", "0.0.45", "0.0.47", "0.0.57", "0.0.58", "0.1.0", "1.0.0")

_MIME_TYPES: Final = ("image/png", "audio/wav", "video/mp4", "application/pdf", "text/plain")


@dataclass
class OldCase:
    """What a run starts from, the events that answer it, and what the peer is pinned to."""

    name: str
    version: str | None
    input: dict[str, Any]
    events: list[EventJson] = field(default_factory=list)


def old_stream(seed: int) -> OldCase:
    """A stream with retired shapes in it, and an input with some in its messages."""
    random = Random(seed)
    case = well_formed(seed)
    version = VERSIONS[seed % len(VERSIONS)]
    events: list[EventJson] = []
    waiting: list[EventJson] = []
    for event in case.events:
        type_ = event["type"]
        if type_ == "RUN_FINISHED":
            # Whatever is open has to close before the run does.
            events += waiting
            waiting = []
        elif type_ == "RUN_ERROR":
            waiting = []
        elif type_ == "RUN_STARTED":
            waiting = _thinking(random) if random.random() < 0.7 else []
        elif waiting and _ends_chunks(event) and random.random() < 0.6:
            events.append(waiting.pop(0))
        events.append(_aged(random, event))
    messages = [_aged_message(random, message) for message in case.input["messages"]]
    messages += [_said(random, number) for number in range(random.randrange(4))]
    # The user speaks last: what was called before that, the thread has passed over (FRONT-5).
    messages.append({"id": "said-last", "role": "user", "content": _parts(random)})
    tools = [{"name": "find", "description": "Finds."}] * random.randrange(2)
    return OldCase(
        f"{case.name}, {version}",
        version,
        {**case.input, "messages": messages, "tools": tools},
        events,
    )


def _ends_chunks(event: EventJson) -> bool:
    """Whether the parent's chunk stream ends here anyhow, as reasoning ends it (CHUNK-5)."""
    return (
        "subagentRunId" not in event
        and event["type"].startswith(
            ("TEXT_MESSAGE_", "TOOL_CALL_", "STATE_", "STEP_", "CUSTOM", "REASONING_MESSAGE_")
        )
        and not event["type"].endswith("_CHUNK")
    )


def _thinking(random: Random) -> list[EventJson]:
    events: list[EventJson] = [{"type": "THINKING_START"}]
    if random.random() < 0.4:
        events[0]["title"] = "Working"
    for _ in range(random.randrange(3)):
        events.append({"type": "THINKING_TEXT_MESSAGE_START"})
        for _ in range(random.randrange(3)):
            delta = random.choice(("hm", "", "Ω "))
            events.append({"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": delta})
        events.append({"type": "THINKING_TEXT_MESSAGE_END"})
    events.append({"type": "THINKING_END"})
    for event in events:
        if random.random() < 0.1:
            event["metadata"] = {"old": random.randrange(3)}
        if random.random() < 0.1:
            event["rawEvent"] = random.choice((None, {"provider": "x"}))
    return events


def _aged(random: Random, event: EventJson) -> EventJson:
    event = dict(event)
    type_ = event["type"]
    if type_ in ("TOOL_CALL_START", "TOOL_CALL_CHUNK") and random.random() < 0.5:
        event.setdefault("parentMessageId", None)
    if type_ == "RUN_FINISHED" and random.random() < 0.6:
        event.setdefault("outcome", None)
    if type_ in ("RUN_FINISHED", "SUBAGENT_FINISHED") and random.random() < 0.5:
        event.setdefault("result", None)
    if random.random() < 0.1:
        event.setdefault("rawEvent", None)
    if type_ == "MESSAGES_SNAPSHOT":
        event["messages"] = [_aged_message(random, message) for message in event["messages"]]
    if type_ == "RUN_STARTED" and "input" in event:
        echo = dict(event["input"])
        echo["messages"] = [_aged_message(random, message) for message in echo["messages"]]
        if random.random() < 0.5:
            echo["forwardedProps"] = None
            echo["tools"] = [{"name": "f", "description": "d", "parameters": None}]
            echo["resume"] = [{"interruptId": "i", "status": "resolved", "payload": None}]
        event["input"] = echo
    return event


def _aged_message(random: Random, message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "user" and random.random() < 0.7:
        return {**message, "content": _parts(random)}
    return message


def _said(random: Random, number: int) -> dict[str, Any]:
    """A message that the application sends."""
    role = random.choice(("user", "user", "tool", "assistant"))
    message: dict[str, Any] = {"id": f"said-{number}", "role": role, "content": _parts(random)}
    if role == "tool":
        message["toolCallId"] = "call-elsewhere"
    if role == "assistant":
        del message["content"]
    if random.random() < 0.3:
        message["subagentRunId"] = "sub-before"
    return message


def _parts(random: Random) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for _ in range(random.randrange(4)):
        mime_type = random.choice(_MIME_TYPES)
        match random.choice(("text", "media", "binary", "binary", "mirror")):
            case "text":
                parts.append({"type": "text", "text": random.choice(("What is ", "this?", ""))})
            case "media":
                parts.append(_media(random, mime_type))
            case "binary":
                parts.append(_binary(random, mime_type))
            case "mirror":
                parts.append({"type": "binary", "mimeType": "image/png", "data": "AAAA"})
                source = {"type": "data", "value": "AAAA", "mimeType": "image/png"}
                parts.append({"type": "image", "source": source})
    return parts


def _binary(random: Random, mime_type: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "binary", "mimeType": mime_type}
    if random.random() < 0.5:
        part["url"] = "https://example.com/old"
    if random.random() < 0.4:
        part["data"] = "BBBB"
    if random.random() < 0.3:
        part["filename"] = "old.bin"
    if len(part) == 2 or random.random() < 0.1:
        part["id"] = "file-7"
    return part


def _media(random: Random, mime_type: str) -> dict[str, Any]:
    part: dict[str, Any] = {
        "type": random.choice(("image", "document")),
        "source": {"type": "url", "value": "https://example.com/new", "mimeType": mime_type},
    }
    if random.random() < 0.5:
        part["metadata"] = random.choice((None, {"page": 1}))
    return part
