"""Joins characters that a producer cut in two.

Providers cut text anywhere, also between the two halves of a surrogate pair: one delta then
ends with the first half, escaped, and the next begins with the second. The first half is held
back until its other half comes, so that every delta passed on is whole text. A half that stays
alone is passed on as it came.
"""

from typing import Final

import msgspec

from aguia.protocol.events import (
    Event,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
)

__all__ = ["TextJoiner"]

_ITEMS: Final = {
    TextMessageContentEvent: ("text", "message_id"),
    TextMessageEndEvent: ("text", "message_id"),
    ReasoningMessageContentEvent: ("reasoning", "message_id"),
    ReasoningMessageEndEvent: ("reasoning", "message_id"),
    ToolCallArgsEvent: ("tool", "tool_call_id"),
    ToolCallEndEvent: ("tool", "tool_call_id"),
}


class TextJoiner:
    """Holds the half characters of the items that are streaming.

    Attributes:
        halves: what is held back, by the kind and the id of its item.
    """

    def __init__(self) -> None:
        self.halves: dict[tuple[str, str], str] = {}

    def join(self, event: Event) -> list[Event]:
        """The event with its delta made whole, and what has to be said before it."""
        item = _ITEMS.get(type(event))
        if item is None:
            return [event]
        key = (item[0], getattr(event, item[1]))
        half = self.halves.pop(key, "")
        if not isinstance(
            event, TextMessageContentEvent | ReasoningMessageContentEvent | ToolCallArgsEvent
        ):
            return [_content_before(event, half), event] if half else [event]
        delta = half + event.delta
        if not delta.isascii():
            delta = _pair(delta)
            if "\ud800" <= delta[-1] <= "\udbff":
                self.halves[key] = delta[-1]
                delta = delta[:-1]
        return [msgspec.structs.replace(event, delta=delta) if delta != event.delta else event]

    def forget(self) -> None:
        """Drop what is held: the run that it belonged to is over."""
        self.halves.clear()


def _pair(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _content_before(event: Event, half: str) -> Event:
    match event:
        case TextMessageEndEvent():
            return TextMessageContentEvent(message_id=event.message_id, delta=half)
        case ReasoningMessageEndEvent():
            return ReasoningMessageContentEvent(message_id=event.message_id, delta=half)
        case ToolCallEndEvent():
            return ToolCallArgsEvent(tool_call_id=event.tool_call_id, delta=half)
    raise TypeError(f"{event.type} ends nothing")
