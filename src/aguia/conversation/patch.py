"""JSON Patch (RFC 6902) and JSON Pointer (RFC 6901) over plain Python values (STATE-2, ACT-3).

A document is what a JSON decoder returns: `dict`, `list`, `str`, `int`, `float`, `bool`, `None`.
Patching copies the containers on the way to what changes, and nothing else; the rest is shared
with the document before. So whoever holds an earlier document keeps it as it was, and a patch
that fails leaves nothing behind.

`apply` patches one document once. `PatchTarget` takes many patches in a row: a container that
it has copied, and that nobody else can see, it changes in place the next time, so that a delta
costs the depth of its path and not the width of the containers on it.

Three things that the RFCs leave open:

- Removing the whole document (`remove` with the path "") is an error, as in most libraries:
  what would be left is no JSON value. `replace` it with `null` instead.
- A replaced object member keeps its place among the members, an added one comes last.
- `copy` shares as well: the same container is then in two places, which no later patch confuses.
  But a few copies of a document into itself would describe one too large to ever be written, so
  the size of what one patch copies is limited (`max_copied`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from aguia.protocol.errors import AguiaError
from aguia.protocol.patch import OPERATIONS
from aguia.protocol.pointers import unescape

__all__ = ["MAX_COPIED", "PatchError", "PatchTarget", "apply"]

MAX_COPIED: Final = 4_000_000
"""How much the `copy` operations of one patch may copy: values, and characters of the strings
and member names among them, which is about the size of their JSON text."""

_BAD_ESCAPE: Final = re.compile("~(?![01])")
_SHOWN: Final = 60  # characters of a pointer or a value that an error message shows

_Owned: TypeAlias = dict[int, "_Owned"]
"""For an owned container: its children that are owned as well, by identity. See `PatchTarget`."""


class PatchError(AguiaError):
    """A patch that does not apply to its document, or is no patch. Nothing has changed.

    Attributes:
        reason: what was expected and what was there instead.
        index: the number of the operation in the patch, counted from 0, or None when the fault
            is in no single operation.
        operation: that operation as it was given, or None.
    """

    def __init__(self, reason: str, *, index: int | None = None, operation: Any = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.index = index
        self.operation = operation

    def __str__(self) -> str:
        if self.index is None:
            return self.reason
        return f"operation {self.index}{_describe(self.operation)}: {self.reason}"


def apply(
    document: Any, operations: Sequence[Mapping[str, Any]], max_copied: int = MAX_COPIED
) -> Any:
    """Return what `operations`, done in order, make of `document`.

    `document` and all that is in it stay as they are. The result shares with it what did not
    change, and shares the values of the operations: none of these may be changed afterwards.

    Raises:
        PatchError: an operation is malformed, can't be done, or is a `test` that fails.
    """
    target = PatchTarget(document, max_copied)
    target.apply(operations)
    return target.value


class PatchTarget:
    """A document that takes patch after patch.

    Args:
        value: the document to begin with. It stays as it is.
        max_copied: how much the `copy` operations of one patch may copy, see `MAX_COPIED`.

    Not for use by several threads at once.
    """

    # A container is owned when this target made it and there is exactly one way to see it: from
    # its parent, which is owned too. Only owned containers are changed in place. They form a tree
    # that hangs on the root, and `_owned` is that tree: None when not even the root is owned.
    # A child is noted under its id and not its key, so that shifting the elements of an array
    # costs nothing here. Hence the rule that keeps this sound: a child that leaves its parent
    # leaves the parent's note first. That also drops what was noted below it.

    __slots__ = ("_max_copied", "_owned", "_value")

    def __init__(self, value: Any = None, max_copied: int = MAX_COPIED) -> None:
        self._value = value
        self._owned: _Owned | None = None
        self._max_copied = max_copied

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy must not believe that it owns the same containers.
        return PatchTarget, (self.value, self._max_copied)

    @property
    def value(self) -> Any:
        """The document as it is now, not to be changed. Later patches make another.

        Reading it hands the document out, so that the next patch copies the containers on its
        path again. Read it when it is wanted and not after every patch.
        """
        self._owned = None
        return self._value

    def replace(self, value: Any) -> None:
        """Put another document in the place of the present one (STATE-1). It stays as it is."""
        self._value = value
        self._owned = None

    def apply(self, operations: Sequence[Mapping[str, Any]]) -> None:
        """Do all the operations, in order, or none of them.

        The values of the operations become part of the document and may not be changed
        afterwards; neither will this target change them.

        Raises:
            PatchError: an operation is malformed, can't be done, or is a `test` that fails.
        """
        if not isinstance(operations, list):
            _check_array(operations)
        before = self._value
        owned_before = self._owned is not None
        # When nothing is owned yet, putting the root back undoes all. Else what is done in place
        # must be undone, unless there is only one operation: one that fails has done nothing.
        log = _Log() if owned_before and len(operations) > 1 else None
        budget = self._max_copied
        index = 0
        operation: Any = None
        try:
            for operation in operations:
                if not isinstance(operation, dict):
                    _check_object(operation)
                op = operation["op"]
                path = operation["path"]
                if not isinstance(path, str):
                    raise PatchError(f"'path' is {_kind(path)}, not a JSON Pointer in a string")
                if op == "replace":
                    self._replace(path, operation["value"], log)
                elif op == "add":
                    self._add(path, operation["value"], None, log)
                elif op == "remove":
                    self._remove(path, log)
                elif op == "test":
                    self._test(path, operation["value"])
                elif op == "move":
                    self._move(_from(operation), path, log)
                elif op == "copy":
                    budget = self._copy(_from(operation), path, log, budget)
                else:
                    raise PatchError("'op' is none of the six operations")
                index += 1
        except BaseException as error:
            if not owned_before:
                self.replace(before)
            elif log is not None and (log.steps or self._value is not before):
                log.undo()
                self.replace(before)
            if isinstance(error, KeyError):  # of an operation, all other look-ups are guarded
                raise PatchError(f"it has no {error}", index=index, operation=operation) from None
            if isinstance(error, PatchError):
                error.index = index
                error.operation = operation
            raise

    def _reach(self, pointer: str, log: "_Log | None") -> tuple[Any, _Owned, str]:
        """The container that has what `pointer` names, owned with all above it, and the key.

        `pointer` names something in the document, not all of it.
        """
        tokens = _tokens(pointer)
        last = tokens.pop()
        owned = self._owned
        if owned is None:
            self._value = _unshared(self._value, "the document")
            self._owned = owned = {}
        container = self._value
        for token in tokens:
            key: Any
            if type(container) is dict:
                key = token
                try:
                    child = container[key]
                except KeyError:
                    raise _no_member(token) from None
            else:
                key = _index(token, len(container))
                child = container[key]
            below = owned.get(id(child))
            if below is None:
                if log is not None:
                    log.steps.append((_PUT, container, key, child))
                container[key] = child = _unshared(child, token)
                owned[id(child)] = below = {}
            container = child
            owned = below
        return container, owned, last

    def _replace(self, path: str, value: Any, log: "_Log | None") -> None:
        if not path:
            self.replace(value)
            return
        key: Any
        container, owned, key = self._reach(path, log)
        if type(container) is dict:
            try:
                old = container[key]
            except KeyError:
                raise _no_member(key) from None
        else:
            key = _index(key, len(container))
            old = container[key]
        owned.pop(id(old), None)
        container[key] = value
        if log is not None:
            log.steps.append((_PUT, container, key, old))

    def _add(self, path: str, value: Any, value_owned: _Owned | None, log: "_Log | None") -> None:
        """Add a value. `value_owned` is its note when it moves here and is owned."""
        if not path:
            self._value = value
            self._owned = value_owned
            return
        key: Any
        container, owned, key = self._reach(path, log)
        if type(container) is dict:
            if key in container:
                old = container[key]
                owned.pop(id(old), None)
                if log is not None:
                    log.steps.append((_PUT, container, key, old))
            elif log is not None:
                log.steps.append((_DELETE, container, key, None))
            container[key] = value
        else:
            size = len(container)
            key = size if key == "-" else _index(key, size, size + 1)
            container.insert(key, value)
            if log is not None:
                log.steps.append((_DELETE, container, key, None))
        if value_owned is not None:
            owned[id(value)] = value_owned

    def _remove(self, path: str, log: "_Log | None") -> None:
        if not path:
            raise PatchError("the whole document can't be removed, only replaced")
        key: Any
        container, owned, key = self._reach(path, log)
        if type(container) is dict:
            if key not in container:
                raise _no_member(key)
            if log is not None:
                log.keep_order(container)
                log.steps.append((_PUT, container, key, container[key]))
        else:
            key = _index(key, len(container))
            if log is not None:
                log.steps.append((_INSERT, container, key, container[key]))
        owned.pop(id(container[key]), None)
        del container[key]

    def _move(self, source: str, path: str, log: "_Log | None") -> None:
        if path == source:
            self._find(source)
            return
        # Every place has just one pointer, so comparing the texts is enough.
        if not source or path.startswith(source + "/"):
            raise PatchError("a value can't be moved into itself")
        key: Any
        container, owned, key = self._reach(source, log)
        if type(container) is dict:
            # Adding comes first, because it may fail. That makes no difference for an object:
            # the new place is not inside the value, and no other place depends on the member.
            if key not in container:
                raise _no_member(key)
            value = container[key]
            self._add(path, value, owned.pop(id(value), None), log)
            if log is not None:
                log.keep_order(container)
                log.steps.append((_PUT, container, key, value))
            del container[key]
        else:
            # In an array the places shift, so the value must be gone when it is added.
            key = _index(key, len(container))
            value = container[key]
            value_owned = owned.pop(id(value), None)
            del container[key]
            if log is not None:
                log.steps.append((_INSERT, container, key, value))
            try:
                self._add(path, value, value_owned, log)
            except BaseException:
                if log is None:
                    container.insert(key, value)
                raise

    def _copy(self, source: str, path: str, log: "_Log | None", budget: int) -> int:
        """Copy, and return what is left of the budget for copies."""
        # Two places will show the value, so it is owned no more, before the path is reached: that
        # may lead into the value itself.
        value = self._find(source, release=True)
        budget -= _size(value, budget)
        if budget < 0:
            raise PatchError(f"the patch copies too much (more than {self._max_copied})")
        self._add(path, value, None, log)
        return budget

    def _test(self, path: str, expected: Any) -> None:
        value = self._find(path)
        if not _equal(value, expected):
            found, wanted = _show(value), _show(expected)
            if found == wanted:
                raise PatchError(f"found {found}, but its content is not as expected")
            raise PatchError(f"found {found}, expected {wanted}")

    def _find(self, pointer: str, release: bool = False) -> Any:
        """The value at a pointer; with `release` it is owned no more."""
        value = self._value
        above: _Owned | None = None
        owned = self._owned
        name = "the document"
        for token in _tokens(pointer) if pointer else ():
            if isinstance(value, dict):
                if token not in value:
                    raise _no_member(token)
                value = value[token]
            elif isinstance(value, list):
                value = value[_index(token, len(value))]
            else:
                raise _no_container(name, value)
            above = owned
            owned = None if owned is None else owned.get(id(value))
            name = token
        if release and owned is not None:
            if above is None:
                self._owned = None
            else:
                del above[id(value)]
        return value


# The steps of a log: what undoes a change in a container at a key.
_PUT, _DELETE, _INSERT, _ORDER = range(4)


class _Log:
    """How to undo what the operations of a patch have changed in place."""

    __slots__ = ("_ordered", "steps")

    def __init__(self) -> None:
        self.steps: list[tuple[int, Any, Any, Any]] = []
        self._ordered: set[int] = set()

    def keep_order(self, container: dict[str, Any]) -> None:
        """To be called before a member is removed: put back, it would be the last one."""
        if id(container) not in self._ordered:
            self._ordered.add(id(container))
            self.steps.append((_ORDER, container, list(container), None))

    def undo(self) -> None:
        for what, container, key, old in reversed(self.steps):
            if what == _PUT:
                container[key] = old
            elif what == _DELETE:
                del container[key]
            elif what == _INSERT:
                container.insert(key, old)
            else:
                members = [(name, container[name]) for name in key]
                container.clear()
                container.update(members)


def _check_array(operations: object) -> None:
    if not isinstance(operations, Sequence) or isinstance(operations, str | bytes):
        raise PatchError(f"a patch is an array of operations, not {_kind(operations)}")


def _check_object(operation: object) -> None:
    if not isinstance(operation, Mapping):
        raise PatchError(f"an operation is an object, not {_kind(operation)}")


def _from(operation: Mapping[str, Any]) -> str:
    source = operation["from"]
    if not isinstance(source, str):
        raise PatchError(f"'from' is {_kind(source)}, not a JSON Pointer in a string")
    return source


def _tokens(pointer: str) -> list[str]:
    """The tokens of a pointer, at least one: `pointer` is not empty."""
    if pointer[0] != "/":
        raise PatchError(f"{_quote(pointer)} is no JSON Pointer: it does not begin with '/'")
    tokens = pointer[1:].split("/")
    if "~" in pointer:
        if _BAD_ESCAPE.search(pointer):
            raise PatchError(f"{_quote(pointer)} is no JSON Pointer: '~' comes without 0 or 1")
        return [unescape(token) for token in tokens]
    return tokens


def _index(token: str, size: int, limit: int | None = None) -> int:
    """The index that a token names in an array of `size` elements, less than `limit`."""
    # `isdecimal` is true for the digits of every script. An index of 20 digits is beyond the end
    # of any array, and Python refuses to read thousands of them.
    if token.isdecimal() and token.isascii() and (token[0] != "0" or token == "0"):
        if len(token) < 20:
            index = int(token)
            if index < (size if limit is None else limit):
                return index
        raise PatchError(f"index {_shorten(token)} is beyond the end of an array of {size}")
    if token == "-":
        raise PatchError("'-' is the place after the last element, where there is nothing")
    raise PatchError(f"{_quote(token)} is no index of an array")


def _unshared(value: Any, name: str) -> Any:
    """A new container with the same content, always a plain `dict` or `list`."""
    if isinstance(value, dict):
        return value.copy() if type(value) is dict else dict(value)
    if isinstance(value, list):
        return value.copy() if type(value) is list else list(value)
    raise _no_container(name, value)


def _no_member(name: str) -> PatchError:
    return PatchError(f"there is no member {_quote(name)}")


def _no_container(name: str, value: Any) -> PatchError:
    where = name if name == "the document" else _quote(name)
    return PatchError(f"{where} is {_kind(value)} and has nothing inside")


def _equal(left: Any, right: Any) -> bool:
    """Equality by RFC 6902 section 4.6. Without recursion: depth is the peer's choice."""
    pairs = [(left, right)]
    while pairs:
        left, right = pairs.pop()
        if left is right:
            continue
        if isinstance(left, dict):
            if not isinstance(right, dict) or len(left) != len(right):
                return False
            for name, value in left.items():
                if name not in right:
                    return False
                pairs.append((value, right[name]))
        elif isinstance(left, list):
            if not isinstance(right, list) or len(left) != len(right):
                return False
            pairs.extend(zip(left, right, strict=True))
        elif isinstance(left, bool) or isinstance(right, bool):
            return False  # for Python true is 1
        elif left != right:
            return False
    return True


def _size(value: Any, limit: int) -> int:
    """How much a value is, as `MAX_COPIED` counts; or, beyond `limit`, something beyond it."""
    size = 0
    values = [value]
    while values and size <= limit:
        value = values.pop()
        size += 1
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict):
            size += sum(map(len, value))
            values.extend(value.values())
        elif isinstance(value, list):
            values.extend(value)
    return size


def _describe(operation: Any) -> str:
    """An operation in brackets, as far as it can be named."""
    if not isinstance(operation, Mapping):
        return ""
    op, source, path = (operation.get(member) for member in ("op", "from", "path"))
    if not isinstance(op, str):
        return ""
    words = [op if op in OPERATIONS else _quote(op)]
    if op in ("move", "copy") and isinstance(source, str):
        words += [_quote(source), "to"]
    if isinstance(path, str):
        words.append(_quote(path))
    return f" ({' '.join(words)})"


def _show(value: Any) -> str:
    """A value for a message: whole if it is short, and never long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f"the string {_quote(value)}"
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() < 200):
        return repr(value)
    if isinstance(value, dict):
        return f"an object of {len(value)} members"
    if isinstance(value, list):
        return f"an array of {len(value)} elements"
    return _kind(value)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return f"a Python {type(value).__name__}"


_KINDS: Final = (
    (bool, "a boolean"),
    (int | float, "a number"),
    (str, "a string"),
    (list, "an array"),
    (dict, "an object"),
)


def _quote(text: str) -> str:
    return repr(_shorten(text))  # which also escapes what can't be printed


def _shorten(text: str) -> str:
    """A text of at most `_SHOWN` characters: its end says as much as its beginning."""
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    return f"{text[:half]}…{text[1 - half :]}"
