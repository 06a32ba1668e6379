"""A JSON value that notices what is changed in it, and says so as one JSON Patch.

`LiveState` hands out dictionaries and lists that behave like any others; changes made anywhere
inside are remembered where they happen, so that finding the patch costs what was touched and
not the size of the whole. What is put in is copied and becomes part of the value; what is taken
out is an ordinary container again, whose changes concern nobody.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self, SupportsIndex

from aguia.codec.json import encode
from aguia.conversation.patch import PatchTarget
from aguia.protocol.patch import JsonPatch, JsonPatchOperation
from aguia.protocol.pointers import escape, steps_of

__all__ = ["LiveState"]

_MISSING: Final[Any] = object()

_SNAPSHOT_OVERHEAD: Final = len('"STATE_SNAPSHOT","snapshot"') - len('"STATE_DELTA","delta"')
"""By how much a snapshot's event is longer than a delta's, their values apart."""


class LiveState:
    """The state of a run on the writing side.

    Args:
        value: what the reader holds, plain JSON; it is not changed.
        plain: turns what a program puts in into plain JSON of its own, or raises `ValueError`
            or `TypeError`.
    """

    def __init__(self, value: Any, plain: Callable[[Any], Any]) -> None:
        self._plain = plain
        self._told = PatchTarget(value)
        self._base = value
        self._value: Any = _MISSING
        self._size = -1

    @property
    def told(self) -> Any:
        """The value as the reader holds it, plain."""
        return self._base

    @property
    def is_out(self) -> bool:
        """Whether somebody has got the value, and may have changed it."""
        return self._value is not _MISSING

    @property
    def value(self) -> Any:
        """The value to read and to change."""
        if self._value is _MISSING:
            self._value = _wrap(self._base, None, self._plain)
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        plain = self._plain(value)
        self._value = _wrap(plain, None, self._plain)
        if isinstance(self._value, _LiveDict | _LiveList):
            self._value._live.touched = True

    def changes(self) -> JsonPatch | None:
        """What the reader has to be told: a patch, or None for "nothing".

        A patch of one operation that replaces the whole document stands for a snapshot, which
        is chosen when it is the shorter way to say it.
        """
        if self._value is _MISSING or not _touched(self._base, self._value):
            return None
        operations: JsonPatch = []
        _compare(self._base, self._value, "", operations)
        if not operations:
            self._settle(self._base)
            return None
        length = len(encode(operations))
        if self._size < 0 or length > self._size // 2:
            whole = _unwrap(self._value)
            self._size = len(encode(whole))
            if length > self._size + _SNAPSHOT_OVERHEAD:
                return [{"op": "replace", "path": "", "value": whole}]
        return operations

    def tell(self, operations: JsonPatch) -> None:
        """Take note that the reader is told these changes, those of `changes` or others.

        Raises `PatchError`, and nothing has changed, when they don't apply to `told`.
        """
        before = self._base
        self._told.apply(operations)
        after = self._told.value
        self._base = after
        if self._value is _MISSING:
            return
        if _touched(before, self._value):
            # These are the changes that were made here; only the memory of them goes.
            self._settle(after)
            return
        # Others' changes: make them here too, in place, for who holds a part of the value.
        steps: JsonPatch = []
        _compare(before, after, "", steps)
        self._value = _replay(self._value, steps, self._plain)
        self._settle(after)

    def replace(self, value: Any) -> None:
        """Take note that the reader is told a whole new value, plain JSON."""
        self._told.replace(value)
        self._base = value
        self._value = _MISSING
        self._size = -1

    def _settle(self, base: Any) -> None:
        """Forget what was touched, now that `base` says the same."""
        if isinstance(self._value, _LiveDict | _LiveList):
            _settle(self._value, base)
        else:
            self._value = base


class _Memory:
    """What a live container remembers beside its members.

    Attributes:
        parent: the memory of the container around it, or None.
        base: the plain container that it began as.
        touched: whether something in it or below has changed since.
        plain: see `LiveState`.
    """

    __slots__ = ("base", "parent", "plain", "touched")

    def __init__(self, parent: "_Memory | None", base: Any, plain: Callable[[Any], Any]) -> None:
        self.parent = parent
        self.base = base
        self.touched = False
        self.plain = plain

    def touch(self) -> None:
        memory: _Memory | None = self
        while memory is not None and not memory.touched:
            memory.touched = True
            memory = memory.parent

    def adopt(self, value: Any) -> Any:
        """Something that a program puts in, as a part of the value."""
        if value is None or type(value) in (str, bool):
            return value
        if isinstance(value, _LiveDict | _LiveList):
            value = _unwrap(value)
        return _wrap(self.plain(value), self, self.plain)


class _LiveDict(dict[str, Any]):
    """A dictionary in a live value."""

    __slots__ = ("_live",)
    _live: _Memory

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"a member's name is a string, not {type(key).__name__}")
        old = self.get(key)
        if old is value and key in self:
            return  # what `state["list"] += […]` ends with
        super().__setitem__(key, self._live.adopt(value))
        _release(old)
        self._live.touch()

    def __delitem__(self, key: str) -> None:
        old = self[key]
        super().__delitem__(key)
        _release(old)
        self._live.touch()

    def pop(self, key: str, *default: Any) -> Any:
        if key in self:
            value = self[key]
            del self[key]
            return value
        return super().pop(key, *default)

    def popitem(self) -> tuple[str, Any]:
        key, value = super().popitem()
        _release(value)
        self._live.touch()
        return key, value

    def clear(self) -> None:
        for value in self.values():
            _release(value)
        super().clear()
        self._live.touch()

    def update(self, *others: Any, **members: Any) -> None:
        for key, value in dict(*others, **members).items():
            self[key] = value

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self, other: Any) -> Self:  # type: ignore[misc, override]
        self.update(other)
        return self

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (dict(self),)


class _LiveList(list[Any]):
    """A list in a live value."""

    __slots__ = ("_live",)
    _live: _Memory

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            replaced = self[index]
            super().__setitem__(index, [self._live.adopt(item) for item in value])
            for old in replaced:
                _release(old)
        else:
            old = self[index]
            if old is value:
                return
            super().__setitem__(index, self._live.adopt(value))
            _release(old)
        self._live.touch()

    def __delitem__(self, index: Any) -> None:
        removed = self[index] if isinstance(index, slice) else [self[index]]
        super().__delitem__(index)
        for old in removed:
            _release(old)
        self._live.touch()

    def append(self, value: Any) -> None:
        super().append(self._live.adopt(value))
        self._live.touch()

    def extend(self, values: Iterable[Any]) -> None:
        super().extend([self._live.adopt(value) for value in values])
        self._live.touch()

    def insert(self, index: SupportsIndex, value: Any) -> None:
        super().insert(index, self._live.adopt(value))
        self._live.touch()

    def pop(self, index: SupportsIndex = -1) -> Any:
        value = super().pop(index)
        _release(value)
        self._live.touch()
        return value

    def remove(self, value: Any) -> None:
        del self[self.index(value)]

    def clear(self) -> None:
        del self[:]

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        try:
            super().sort(key=key, reverse=reverse)
        finally:
            # A sort that fails has moved some of the elements already.
            self._live.touch()

    def reverse(self) -> None:
        super().reverse()
        self._live.touch()

    def __iadd__(self, values: Iterable[Any]) -> Self:  # type: ignore[misc]
        self.extend(values)
        return self

    def __imul__(self, times: SupportsIndex) -> Self:
        self[:] = list(self) * times
        return self

    def copy(self) -> list[Any]:
        return list(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(self),)


def _wrap(value: Any, parent: _Memory | None, plain: Callable[[Any], Any]) -> Any:
    """A live container that begins as the plain one; scalars are what they are."""
    container: _LiveDict | _LiveList
    if isinstance(value, dict):
        memory = _Memory(parent, value, plain)
        container = _LiveDict(
            {
                key: _wrap(item, memory, plain) if isinstance(item, dict | list) else item
                for key, item in value.items()
            }
        )
    elif isinstance(value, list):
        memory = _Memory(parent, value, plain)
        container = _LiveList(
            [
                _wrap(item, memory, plain) if isinstance(item, dict | list) else item
                for item in value
            ]
        )
    else:
        return value
    container._live = memory
    return container


def _unwrap(value: Any) -> Any:
    """The plain value; what was not touched is shared with what the reader holds."""
    if isinstance(value, _LiveDict):
        if not value._live.touched:
            return value._live.base
        return {key: _unwrap(item) for key, item in value.items()}
    if isinstance(value, _LiveList):
        if not value._live.touched:
            return value._live.base
        return [_unwrap(item) for item in value]
    return value


def _release(value: Any) -> None:
    """Let go of a container that is no longer part of the value."""
    if isinstance(value, _LiveDict | _LiveList):
        value._live.parent = None


def _settle(value: "_LiveDict | _LiveList", base: Any) -> None:
    value._live.base = base
    if not value._live.touched:
        return
    value._live.touched = False
    pairs = (
        ((item, base[key]) for key, item in value.items())
        if isinstance(value, _LiveDict)
        else zip(value, base, strict=True)
    )
    for item, counterpart in pairs:
        if isinstance(item, _LiveDict | _LiveList):
            _settle(item, counterpart)


def _touched(base: Any, value: Any) -> bool:
    if isinstance(value, _LiveDict | _LiveList):
        return value._live.touched
    return not _equal(base, value)


def _compare(old: Any, new: Any, path: str, operations: JsonPatch) -> None:
    """Append the operations that make `old` into `new`."""
    if _same(old, new):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            if key not in new:
                operations.append({"op": "remove", "path": f"{path}/{escape(key)}"})
        for key, value in new.items():
            place = f"{path}/{escape(key)}"
            if key not in old:
                operations.append({"op": "add", "path": place, "value": _unwrap(value)})
            else:
                _compare(old[key], value, place, operations)
    elif isinstance(old, list) and isinstance(new, list):
        _compare_lists(old, new, path, operations)
    elif not _equal(old, new):
        operations.append({"op": "replace", "path": path, "value": _unwrap(new)})


def _compare_lists(old: list[Any], new: list[Any], path: str, operations: JsonPatch) -> None:
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and _equal(old[start], new[start]):
        start += 1
    end = 0
    while end < shorter - start and _equal(old[-1 - end], new[-1 - end]):
        end += 1
    old_middle, new_middle = len(old) - start - end, len(new) - start - end
    common = min(old_middle, new_middle)
    for offset in range(common):
        index = start + offset
        _compare(old[index], new[index], f"{path}/{index}", operations)
    for index in range(start + old_middle - 1, start + common - 1, -1):
        operations.append({"op": "remove", "path": f"{path}/{index}"})
    for index in range(start + common, start + new_middle):
        operations.append({"op": "add", "path": f"{path}/{index}", "value": _unwrap(new[index])})


def _same(old: Any, new: Any) -> bool:
    """Whether it is known without looking inside that both are equal."""
    if old is new:
        return True
    return (
        isinstance(new, _LiveDict | _LiveList) and not new._live.touched and new._live.base is old
    )


def _equal(old: Any, new: Any) -> bool:
    """Equality of JSON values: `true` is not `1`, and `1` is `1.0`."""
    if _same(old, new):
        return True
    if isinstance(old, dict):
        return (
            isinstance(new, dict)
            and len(old) == len(new)
            and all(key in new and _equal(value, new[key]) for key, value in old.items())
        )
    if isinstance(old, list):
        return (
            isinstance(new, list)
            and len(old) == len(new)
            and all(_equal(left, right) for left, right in zip(old, new, strict=True))
        )
    if isinstance(old, bool) or isinstance(new, bool):
        return False
    return bool(old == new)


def _replay(value: Any, steps: JsonPatch, plain: Callable[[Any], Any]) -> Any:
    """Make changes that `_compare` found in a live value, in place."""
    for step in steps:
        if step["path"] == "":
            value = _wrap(_value_of(step), None, plain)
            continue
        *above, last = steps_of(step["path"])
        container = value
        for token in above:
            container = container[int(token) if isinstance(container, list) else token]
        key: Any = int(last) if isinstance(container, list) else last
        if step["op"] == "remove":
            del container[key]
        elif step["op"] == "add" and isinstance(container, list):
            container.insert(key, _value_of(step))
        else:
            container[key] = _value_of(step)
    return value


def _value_of(step: JsonPatchOperation) -> Any:
    operation: Mapping[str, Any] = step
    return operation["value"]
