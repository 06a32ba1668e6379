"""The messages of a thread while events build them.

A message handed out is immutable. What arrives for it is gathered beside it and becomes a new
value when somebody looks, so that a delta costs the same in a short message and in a long one,
and whoever holds an earlier value keeps it unchanged.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar, overload

import msgspec

from aguia.conversation.patch import PatchError, PatchTarget, apply
from aguia.protocol.common import UNSET, Metadata, UnsetType
from aguia.protocol.content import ContentPart, TextPart
from aguia.protocol.messages import ActivityMessage, AssistantMessage, Message, ToolCall
from aguia.protocol.patch import JsonPatch

__all__ = ["CallEntry", "Entry", "InOrder", "Messages"]


class CallEntry:
    """One tool call: its value so far, and what arrived since.

    Attributes:
        entry: the message that holds it.
        deltas: text that arrived for the arguments, None when none did; whoever makes the list
            sets `touched` of the entry.
    """

    __slots__ = ("_base", "_changes", "deltas", "entry")

    def __init__(self, call: ToolCall, entry: "Entry") -> None:
        self.entry: Entry = entry
        self._base = call
        self.deltas: list[str] | None = None
        self._changes: dict[str, Any] | None = None

    def change(self, **members: Any) -> None:
        """Set members of the call."""
        self._changes = members if self._changes is None else {**self._changes, **members}
        self.entry.touched = True

    def merge_metadata(self, metadata: Metadata) -> None:
        """Merge key by key, the last write winning, into the call itself (META-1)."""
        if self._changes is not None and "metadata" in self._changes:
            self._changes["metadata"].update(metadata)  # which nobody has seen so far
        else:
            self.change(metadata=_merged(self._base.metadata, metadata))

    @property
    def value(self) -> ToolCall:
        """The call as it is now."""
        changes = self._changes
        if self.deltas is not None:
            changes = {} if changes is None else changes
            function = changes.get("function", self._base.function)
            changes["function"] = msgspec.structs.replace(
                function, arguments=function.arguments + "".join(self.deltas)
            )
        if changes is not None:
            self._base = msgspec.structs.replace(self._base, **changes)
            self._changes = self.deltas = None
        return self._base

    def rename(self, name: str) -> None:
        """Give the call another tool's name."""
        self.change(function=msgspec.structs.replace(self.value.function, name=name))


_NO_CALLS: Final[list[CallEntry]] = []
"""Stands for the calls of every message without any; never added to."""


class Entry:
    """One message of the thread: its value so far, and what arrived since.

    Attributes:
        deltas: text that arrived for the message, None when none did; whoever makes the list
            sets `touched`.
        calls: the tool calls that the message holds.
        is_activity: whether it is an activity message, which takes no text.
        touched: whether anything arrived since `value` was last read.
    """

    # A thread has many of these: what most of them don't need is made when it is needed.
    __slots__ = ("_base", "_changes", "_patched", "calls", "deltas", "is_activity", "touched")

    def __init__(self, message: Message) -> None:
        self.set(message)

    def set(self, message: Message) -> None:
        """Become this message."""
        self._base = message
        self._changes: dict[str, Any] | None = None
        self._patched: PatchTarget | None = None
        self.deltas: list[str] | None = None
        self.is_activity: bool = isinstance(message, ActivityMessage)
        self.calls: list[CallEntry] = _NO_CALLS
        self.touched: bool = False
        if isinstance(message, AssistantMessage) and message.tool_calls is not UNSET:
            self.calls = [CallEntry(call, self) for call in message.tool_calls]

    @property
    def id(self) -> str:
        """The message's id, which never changes."""
        return self._base.id

    @property
    def role(self) -> str:
        """The message's role, which changes only by `set`."""
        return self._base.role

    def change(self, **members: Any) -> None:
        """Set members of the message."""
        self._changes = members if self._changes is None else {**self._changes, **members}
        if "content" in members:
            self._patched = None
        self.touched = True

    def patch(self, operations: JsonPatch, activity_type: str) -> None:
        """Patch the content of this activity message, and name its type.

        Raises `PatchError`, and nothing has changed, when that does not apply.
        """
        target = self._patched
        if target is None:
            target = PatchTarget(getattr(self.value, "content", None))
        if all(operation["path"] for operation in operations):
            target.apply(operations)
        else:
            # The whole content is put in place of itself, which may be by something else.
            content = apply(target.value, operations)
            if not isinstance(content, dict):
                raise PatchError("the content of an activity has to stay an object")
            target.replace(content)
        self._patched = target
        self.touched = True
        if activity_type != getattr(self._base, "activity_type", None) or self._changes:
            self.change(activity_type=activity_type)

    def merge_metadata(self, metadata: Metadata) -> None:
        """Merge key by key, the last write winning, without recursion (META-1)."""
        if self._changes is not None and "metadata" in self._changes:
            self._changes["metadata"].update(metadata)  # which nobody has seen so far
        else:
            self.change(metadata=_merged(self._base.metadata, metadata))

    def add_call(self, call: ToolCall) -> CallEntry:
        """Append a tool call to this assistant message."""
        entry = CallEntry(call, self)
        if self.calls:
            self.calls.append(entry)
        else:
            self.calls = [entry]
        self.touched = True
        return entry

    def settle(self) -> None:
        """Take note that the message is complete: its text takes less room in one piece.

        Only the first time, since putting a long text together again and again is what an agent
        that closes its message after each delta would cost.
        """
        if self.deltas is None or getattr(self._base, "content", UNSET) != "":
            return
        if self._changes is None and not self.calls:
            # The usual case, in which it has nothing but text.
            self._base = msgspec.structs.replace(self._base, content="".join(self.deltas))
            self.deltas = None
            self.touched = False
        else:
            _ = self.value

    @property
    def value(self) -> Message:
        """The message as it is now."""
        if not self.touched:
            return self._base
        self.touched = False
        changes = {} if self._changes is None else self._changes
        if self.deltas is not None:
            changes["content"] = _extended(getattr(self._base, "content", UNSET), self.deltas)
        elif self._patched is not None:
            changes["content"] = self._patched.value
        self._changes = self.deltas = None
        if self.calls:
            changes["tool_calls"] = [call.value for call in self.calls]
        self._base = msgspec.structs.replace(self._base, **changes)
        return self._base


class _HasRole(Protocol):
    @property
    def role(self) -> str: ...


T = TypeVar("T", bound=_HasRole)

_NEAR: Final = 32
"""How far from the end an answer's place is looked for when the answer comes."""


class InOrder(Generic[T]):
    """Messages in order, each answer to a call after the call's message (CONV-1).

    Nearly every answer has its place near the end. One that has not waits until somebody looks
    and is then put there with all others that wait, in one pass: how far back an agent answers
    costs nothing, nor does how often.

    Args:
        items: the messages, or what stands for them; they are looked at by `settled` alone.
    """

    def __init__(self, items: list[T]) -> None:
        self._items = items
        # The last message that is no answer: its answers are all at the end.
        self._last: T | None = None
        self._late: dict[int, list[T]] = {}
        self.note_roles()

    @property
    def settled(self) -> list[T]:
        """The messages, with every answer in its place."""
        if self._late:
            self._place()
        return self._items

    def append(self, item: T) -> None:
        """Add a message at the end."""
        self._items.append(item)
        if item.role != "tool":
            self._last = item

    def answer(self, carrier: T, item: T) -> None:
        """Add an answer to a call that a message of these, `carrier`, holds."""
        items = self._items
        if carrier is self._last:
            items.append(item)
            return
        for place in range(len(items) - 1, max(-1, len(items) - 1 - _NEAR), -1):
            if items[place] is carrier:
                behind = place + 1
                while behind < len(items) and items[behind].role == "tool":
                    behind += 1
                items.insert(behind, item)
                return
        self._late.setdefault(id(carrier), []).append(item)

    def replace(self, items: list[T]) -> None:
        """Hold these instead."""
        self._items[:] = items
        self._late.clear()
        self.note_roles()

    def note_roles(self) -> None:
        """Take note that messages may have other roles than before."""
        self._last = next((item for item in reversed(self._items) if item.role != "tool"), None)

    def _place(self) -> None:
        placed: list[T] = []
        waiting: list[T] = []
        for item in self._items:
            if waiting and item.role != "tool":
                placed += waiting
                waiting = []
            placed.append(item)
            waiting += self._late.pop(id(item), ())
        self._items[:] = placed + waiting


class Messages(Sequence[Message]):
    """The messages of a conversation, in order: a live view, equal to a list of its elements.

    `list(messages)` takes a copy that stays as it is; so does every single message.
    """

    __slots__ = ("_append", "_entries")

    def __init__(
        self, entries: InOrder[Entry], append: Callable[[Any], None] | None = None
    ) -> None:
        self._entries = entries
        self._append = append

    def appending(self, append: Callable[[Any], None]) -> "Messages":
        """The same view for somebody who may add to it, by means of `append`."""
        return Messages(self._entries, append)

    def append(self, message: Any) -> None:
        """Add a message, where whoever gave this view takes one; see `Agent.messages`.

        Raises `TypeError` where nobody does: what a stream builds is the stream's alone.
        """
        if self._append is None:
            raise TypeError("these messages are what a stream has built; nothing can be added")
        self._append(message)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [entry.value for entry in self._entries.settled[index]]
        return self._entries.settled[index].value

    def __len__(self) -> int:
        return len(self._entries.settled)

    def __iter__(self) -> Iterator[Message]:
        for entry in self._entries.settled:
            yield entry.value if entry.touched else entry._base

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, str):
            return len(self) == len(other) and all(
                mine == theirs for mine, theirs in zip(self, other, strict=True)
            )
        return NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


def _merged(old: Metadata | UnsetType, new: Metadata) -> Metadata:
    return {**new} if old is UNSET else {**old, **new}


def _extended(
    content: str | list[ContentPart] | UnsetType, deltas: list[str]
) -> str | list[ContentPart]:
    text = "".join(deltas)
    if isinstance(content, list):
        # Text that is streamed on to a message of parts becomes its last part.
        if content and isinstance(content[-1], TextPart):
            last = msgspec.structs.replace(content[-1], text=content[-1].text + text)
            return [*content[:-1], last]
        return [*content, TextPart(text=text)]
    return text if content is UNSET else content + text
