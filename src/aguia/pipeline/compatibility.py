"""The always-on boundary for shapes that the protocol has retired; it sees the stream first.

Retired shapes are recognised by their shape, not by the peer's version: on a stream of today
every translation here does nothing. Whatever the boundary does not know passes through
untouched, for the stages behind it to judge (VER-4). `RETIRED` is the registry of what is
translated, and DEPRECATIONS.md shows it.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import uuid4

from aguia.pipeline.warn import Warn
from aguia.protocol.errors import ProtocolWarning

__all__ = ["RETIRED", "Compatibility", "Retired", "upgrade_input", "upgrade_message"]

Raw: TypeAlias = dict[str, Any]

EXPIRY: Final = "2027-09-17"
"""The day until which the protocol's project keeps its own translations."""


class Retired(NamedTuple):
    """A shape that old peers still send."""

    shape: str
    until: str
    """The last version that described it."""
    replacement: str
    lost: str
    """What the translation can't carry over, or ""."""
    module: str = "aguia.pipeline.compatibility"
    expiry: str = EXPIRY


RETIRED: Final[tuple[Retired, ...]] = (
    Retired("THINKING_START", "0.0.45", "REASONING_START", "title"),
    Retired("THINKING_TEXT_MESSAGE_START", "0.0.45", "REASONING_MESSAGE_START", ""),
    Retired("THINKING_TEXT_MESSAGE_CONTENT", "0.0.45", "REASONING_MESSAGE_CONTENT", ""),
    Retired("THINKING_TEXT_MESSAGE_END", "0.0.45", "REASONING_MESSAGE_END", ""),
    Retired("THINKING_END", "0.0.45", "REASONING_END", ""),
    Retired(
        "a content part of the type binary",
        "0.0.47",
        "an image, audio, video or document part",
        "a part that has only an id",
    ),
    Retired("TOOL_CALL_START.parentMessageId: null", "0.1", "absent", ""),
    Retired("TOOL_CALL_CHUNK.parentMessageId: null", "0.1", "absent", ""),
    Retired("RUN_FINISHED.outcome: null", "0.1", "absent", ""),
    Retired("RUN_FINISHED.result: null", "0.1", "absent", ""),
    Retired("SUBAGENT_FINISHED.result: null", "0.1", "absent", ""),
    Retired("rawEvent: null on any event", "0.1", "absent", ""),
    Retired("metadata: null on a media part", "0.1", "absent", ""),
    Retired("RunAgentInput.forwardedProps: null", "0.1", "absent", ""),
    Retired("Tool.parameters: null", "0.1", "absent", ""),
    Retired("ResumeEntry.payload: null", "0.1", "absent", ""),
)

_NULLS: Final[dict[str, tuple[str, ...]]] = {
    "TOOL_CALL_START": ("parentMessageId",),
    "TOOL_CALL_CHUNK": ("parentMessageId",),
    "RUN_FINISHED": ("outcome", "result"),
    "SUBAGENT_FINISHED": ("result",),
}
"""Members that were once tolerated as null, beside `rawEvent` on every event."""

_MEDIA: Final = ("image", "audio", "video", "document")


class Compatibility:
    """Translates the retired shapes of one stream. Remembers the ids it makes for its spans."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._told: set[tuple[str, str]] = set()
        self._span: str | None = None
        self._message: str | None = None

    def translate(self, event: Raw) -> Iterable[Raw]:
        """The raw events that stand for this one."""
        kind = event.get("type")
        if not isinstance(kind, str):
            return (event,)
        if kind.startswith("THINKING_"):
            event = self._thinking(kind, event)
            kind = event["type"]
        event = _without_nulls(event, ("rawEvent", *_NULLS.get(kind, ())), "", self._note(kind))
        if kind == "MESSAGES_SNAPSHOT":
            event = _mapped(
                event,
                "messages",
                "",
                lambda item, path: upgrade_message(item, path, self._note(kind)),
            )
        elif kind == "RUN_STARTED":
            self._span = self._message = None
            if isinstance(event.get("input"), dict):
                upgraded = upgrade_input(event["input"], self._note(kind), "/input")
                if upgraded is not event["input"]:
                    event = {**event, "input": upgraded}
        return (event,)

    def _thinking(self, kind: str, event: Raw) -> Raw:
        match kind:
            case "THINKING_START":
                self._span = f"reasoning-{uuid4().hex}"
                translated = {**event, "type": "REASONING_START", "messageId": self._span}
            case "THINKING_TEXT_MESSAGE_START":
                self._message = f"reasoning-{uuid4().hex}"
                translated = {
                    **event,
                    "type": "REASONING_MESSAGE_START",
                    "messageId": self._message,
                    "role": "reasoning",
                }
            case "THINKING_TEXT_MESSAGE_CONTENT":
                id_ = self._continued(kind, self._message)
                translated = {**event, "type": "REASONING_MESSAGE_CONTENT", "messageId": id_}
            case "THINKING_TEXT_MESSAGE_END":
                id_ = self._continued(kind, self._message)
                self._message = None
                translated = {**event, "type": "REASONING_MESSAGE_END", "messageId": id_}
            case "THINKING_END":
                id_ = self._continued(kind, self._span)
                self._span = None
                translated = {**event, "type": "REASONING_END", "messageId": id_}
            case _:
                return event
        self._note(kind)(
            f"translated the retired {kind} to {translated['type']}; upgrade the agent", ""
        )
        title = translated.pop("title", None) if kind == "THINKING_START" else None
        if title is not None:
            self._note(kind)(
                "the title of the span is lost: reasoning has no place for it",
                "/title",
                lost=True,
            )
        return translated

    def _continued(self, kind: str, id_: str | None) -> str:
        if id_ is not None:
            return id_
        made = f"reasoning-{uuid4().hex}"
        self._note(kind)(
            f"nothing that it could continue has been opened; it is given the id '{made}', which "
            "nothing has either",
            "",
            lost=True,
        )
        return made

    def _note(self, kind: str) -> "Note":
        def note(message: str, path: str, *, lost: bool = False) -> None:
            if not lost:
                # Old agents send nothing else: once a stream is enough to know.
                if (kind, message) in self._told:
                    return
                self._told.add((kind, message))
            self._warn(
                ProtocolWarning(
                    stage="compatibility",
                    rule="VER-4",
                    event_type=kind,
                    path=path or None,
                    message=message,
                )
            )

        return note


class Note(Protocol):
    """Takes what happened, the path where, and whether something was lost by it."""

    def __call__(self, message: str, path: str, *, lost: bool = False) -> None: ...


def upgrade_input(value: Raw, note: Note, path: str = "") -> Raw:
    """A raw run input with its retired shapes translated; the same object where it has none."""
    value = _without_nulls(value, ("forwardedProps",), path, note)
    for member, null in (("tools", "parameters"), ("resume", "payload")):

        def absent(item: Any, place: str, null: str = null) -> Any:
            return _without_nulls(item, (null,), place, note)

        value = _mapped(value, member, path, absent)
    upgraded: Raw = _mapped(
        value, "messages", path, lambda item, place: upgrade_message(item, place, note)
    )
    return upgraded


def upgrade_message(message: Any, path: str, note: Note) -> Any:
    """A raw message with its retired content parts translated; the same object without any."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    parts = message["content"]
    result: list[Any] = []
    for index, part in enumerate(parts):
        place = f"{path}/content/{index}"
        if not isinstance(part, dict):
            result.append(part)
        elif part.get("type") == "binary":
            result += _media_parts(part, parts, place, note)
        elif part.get("type") in _MEDIA:
            result.append(_without_nulls(part, ("metadata",), place, note))
        else:
            result.append(part)
    if len(result) == len(parts) and all(
        new is old for new, old in zip(result, parts, strict=True)
    ):
        return message
    return {**message, "content": result}


def _media_parts(part: Raw, parts: list[Any], path: str, note: Note) -> list[Raw]:
    """The media part that a binary part stands for; none where one beside it says the same."""
    mime_type = part.get("mimeType")
    if not isinstance(mime_type, str):
        return [part]
    data, url = part.get("data"), part.get("url")
    if not data and not url:
        note(
            "a binary part that has only an id can't be translated; give it data or a url",
            path,
            lost=True,
        )
        return [part]
    family = mime_type.split("/", 1)[0]
    media: Raw = {
        "type": family if family in ("image", "audio", "video") else "document",
        "source": {
            "type": "data" if data else "url",
            "value": data or url,
            "mimeType": mime_type,
        },
    }
    name = part.get("filename")
    if name:
        media["metadata"] = {"filename": name}
    note(f"translated the retired binary part to a part of the type {media['type']}", path)
    return [] if any(_says_the_same(other, media) for other in parts) else [media]


def _says_the_same(part: Any, media: Raw) -> bool:
    """Whether a modern part already holds what a translated one would."""
    if not isinstance(part, dict) or part.get("type") != media["type"]:
        return False
    if part.get("source") != media["source"]:
        return False
    wanted = media.get("metadata")
    return wanted is None or (
        isinstance(part.get("metadata"), dict)
        and part["metadata"].get("filename") == wanted["filename"]
    )


def _without_nulls(value: Any, members: tuple[str, ...], path: str, note: Note) -> Any:
    if not isinstance(value, dict):
        return value
    nulls = [name for name in members if name in value and value[name] is None]
    if not nulls:
        return value
    for name in nulls:
        note(f"read a '{name}' that is null as absent", f"{path}/{name}")
    return {name: item for name, item in value.items() if name not in nulls}


def _mapped(value: Any, member: str, path: str, change: Callable[[Any, str], Any]) -> Any:
    """The object with each element of one of its lists changed; itself when none was."""
    if not isinstance(value, dict) or not isinstance(value.get(member), list):
        return value
    items = value[member]
    changed = [change(item, f"{path}/{member}/{index}") for index, item in enumerate(items)]
    if all(new is old for new, old in zip(changed, items, strict=True)):
        return value
    return {**value, member: changed}
