"""The always-on boundary for shapes that the protocol has retired; it sees the stream first.

Retired shapes are recognised by their shape, not by the peer's version: on a stream of today
every translation here does nothing. Whatever the boundary does not know passes through
untouched, for the stages behind it to judge (VER-4). `RETIRED` is the registry of what is
translated, and DEPRECATIONS.md shows it.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import uuid4

from aguia.pipeline.warn import Warn
from aguia.protocol.errors import ProtocolWarning

__all__ = [
    "EXPIRY",
    "RETIRED",
    "Compatibility",
    "Note",
    "Retired",
    "noting",
    "upgrade_input",
    "upgrade_message",
]

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
        "id; a part that has nothing else",
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

    def translate(self, event: Raw) -> Raw:
        """The raw event that stands for this one; the same object where nothing is retired."""
        kind = event.get("type")
        if not isinstance(kind, str):
            return event
        note = noting(self._warn, kind, self._told)
        if kind.startswith("THINKING_"):
            event = self._thinking(kind, event, note)
            kind = event["type"]
        event = _without_nulls(event, ("rawEvent", *_NULLS.get(kind, ())), "", note)
        if kind == "MESSAGES_SNAPSHOT":
            event = _mapped(
                event, "messages", "", lambda item, path: upgrade_message(item, path, note)
            )
        elif kind == "RUN_STARTED":
            self.forget()
            if isinstance(event.get("input"), dict):
                upgraded = upgrade_input(event["input"], note, "/input")
                if upgraded is not event["input"]:
                    event = {**event, "input": upgraded}
        return event

    def forget(self) -> None:
        """Take note that a run begins, which continues nothing of the one before it.

        To be called for a start that needed no translation; `translate` does it otherwise.
        """
        self._span = self._message = None

    def _thinking(self, kind: str, event: Raw, note: "Note") -> Raw:
        match kind:
            case "THINKING_START":
                self._span = _new_id()
                translated = {**event, "type": "REASONING_START", "messageId": self._span}
            case "THINKING_TEXT_MESSAGE_START":
                self._message = _new_id()
                translated = {
                    **event,
                    "type": "REASONING_MESSAGE_START",
                    "messageId": self._message,
                    "role": "reasoning",
                }
            case "THINKING_TEXT_MESSAGE_CONTENT":
                id_ = _continued(self._message, note)
                translated = {**event, "type": "REASONING_MESSAGE_CONTENT", "messageId": id_}
            case "THINKING_TEXT_MESSAGE_END":
                id_ = _continued(self._message, note)
                self._message = None
                translated = {**event, "type": "REASONING_MESSAGE_END", "messageId": id_}
            case "THINKING_END":
                id_ = _continued(self._span, note)
                self._span = None
                translated = {**event, "type": "REASONING_END", "messageId": id_}
            case _:
                return event
        note(f"translated the retired {kind} to {translated['type']}; upgrade the agent", "")
        title = translated.pop("title", None) if kind == "THINKING_START" else None
        if title is not None:
            said = f" '{title[:40]}'" if isinstance(title, str) else ""
            note(
                f"the title{said} of the span is lost: reasoning has no place for it",
                "/title",
                lost=True,
            )
        return translated


def _new_id() -> str:
    return f"reasoning-{uuid4().hex}"


def _continued(id_: str | None, note: "Note") -> str:
    """The id of what a continuation continues; a new one where nothing has been opened."""
    if id_ is not None:
        return id_
    made = _new_id()
    note(
        f"nothing that it could continue has been opened; it is given the id '{made}', which "
        "nothing has either",
        "",
        lost=True,
    )
    return made


class Note(Protocol):
    """What is told of translations."""

    def __call__(self, message: str, path: str, *, lost: bool = False) -> None:
        """Take what happened, the path where, and whether something was lost by it."""


def noting(
    warn: Warn,
    event_type: str | None = None,
    told: set[tuple[str, str]] | None = None,
    *,
    only_losses: bool = False,
) -> Note:
    """Notes as warnings to `warn`.

    A translation is worth a warning once, since old peers send nothing else: `told` remembers
    which have been given. What is lost by one is said each time. Of a program's own values
    `only_losses` are worth a word.
    """
    told = set() if told is None else told

    def note(message: str, path: str, *, lost: bool = False) -> None:
        if not lost:
            if only_losses:
                return
            if (event_type or "", message) in told:
                return
            told.add((event_type or "", message))
        warn(
            ProtocolWarning(
                stage="compatibility",
                rule="VER-4",
                event_type=event_type,
                path=path or None,
                message=message,
            )
        )

    return note


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
    modern: set[tuple[str, ...]] | None = None
    for index, part in enumerate(parts):
        place = f"{path}/content/{index}"
        if not isinstance(part, dict):
            result.append(part)
        elif part.get("type") == "binary":
            if modern is None:
                modern = {key for each in parts for key in _keys_of(each)}
            result += _media_parts(part, modern, place, note)
        elif part.get("type") in _MEDIA:
            result.append(_without_nulls(part, ("metadata",), place, note))
        else:
            result.append(part)
    if len(result) == len(parts) and all(
        new is old for new, old in zip(result, parts, strict=True)
    ):
        return message
    return {**message, "content": result}


def _media_parts(part: Raw, modern: set[tuple[str, ...]], path: str, note: Note) -> list[Raw]:
    """The media part that a binary part stands for; none where one beside it says the same.

    `modern` holds the keys of those beside it.
    """
    mime_type = part.get("mimeType")
    if not isinstance(mime_type, str):
        return [part]
    data, url, handle = part.get("data"), part.get("url"), part.get("id")
    said = f" '{handle[:40]}'" if isinstance(handle, str) else ""
    if not data and not url:
        note(
            f"a binary part that has only an id{said} can't be translated and is lost; "
            "give it data or a url",
            path,
            lost=True,
        )
        return [part]
    family = mime_type.partition("/")[0].lower()
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
    if any(key in modern for key in _keys_of(media)[-1:]):
        note(f"dropped a retired binary part that a part of the type {media['type']} repeats", path)
        return []
    note(f"translated the retired binary part to a part of the type {media['type']}", path)
    if handle:
        note(
            f"the id{said} of a binary part is lost: media parts have no place for it",
            f"{path}/id",
            lost=True,
        )
    return [media]


def _keys_of(part: Any) -> list[tuple[str, ...]]:
    """What a modern media part holds, without the name of its file and with it, if it has one.

    Empty for what is no such part, so that nothing is taken for its repetition.
    """
    if not isinstance(part, dict) or part.get("type") not in _MEDIA:
        return []
    source, metadata = part.get("source"), part.get("metadata")
    if not isinstance(source, dict):
        return []
    key = (part["type"], *(source.get(member) for member in ("type", "value", "mimeType")))
    if not all(isinstance(each, str) for each in key):
        return []
    name = metadata.get("filename") if isinstance(metadata, dict) else None
    return [key, (*key, name)] if isinstance(name, str) else [key]


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
