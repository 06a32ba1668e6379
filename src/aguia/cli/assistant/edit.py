"""Changing one text in one file: what it would look like, and doing it in one piece.

What may live here: the only writing that the assistant does. A change is worked out and shown
first (`propose`) and made later (`carry_out`), when somebody has agreed to what they were shown;
the hash of the file's bytes ties the two together. The new bytes are written beside the file
under a name of their own and take its place in one step, so that a crash leaves either the old
file or the new one.

Everything stays in bytes: line ends, byte order marks and what is no UTF-8 stay as they are.
"""

import hashlib
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final

from aguia.cli.assistant.folder import SNIFFED, Folder, FolderError, Parts, Place, clean, shown, why
from aguia.cli.words import plural, size

__all__ = ["MAX_CHANGED", "MAX_DIFF_CHANGES", "Proposal", "carry_out", "propose"]

MAX_CHANGED: Final = 1024 * 1024
"""Files with more bytes than this, before or after the change, are not changed."""

MAX_DIFF_CHANGES: Final = 30
"""A diff shows at most this many changed lines."""

MAX_DIFF_LINE: Final = 400
"""A diff shows at most this many characters of a line."""

CONTEXT: Final = 3
"""How many lines a diff shows around those that change."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that has not been made.

    Attributes:
        path: the file, for showing.
        occurrences: how often the text is found in it.
        version: of the file's bytes as they are now, as `carry_out` takes it.
        diff: the change as a unified diff; it says so when it does not show all of it.
    """

    path: str
    occurrences: int
    version: str
    diff: str


def propose(folder: Folder, path: str, find: str, replacement: str) -> Proposal:
    """What it would mean to put `replacement` in place of every `find` in the file at `path`.

    Raises:
        FolderError: there is no such file, it is none that may be changed, or nothing in it
            would change.
    """
    parts = _own_parts(folder, path)
    try:
        with folder.place(parts[:-1]) as place:
            data, _ = _content(place, parts, path)
    except OSError as error:
        raise FolderError(why(path, error)) from error
    occurrences, changed = _changed(data, find, replacement, path)
    name = shown(parts)
    return Proposal(name, occurrences, _version(data), _diff(name, data, changed))


def carry_out(folder: Folder, path: str, find: str, replacement: str, version: str) -> Proposal:
    """Makes the change that was proposed for this version of the file; returns it.

    Its `diff` is empty. The file keeps its mode and, where that is allowed, its owner.

    Raises:
        FolderError: as `propose`, or the file has changed since; it is then as it was.
    """
    parts = _own_parts(folder, path)
    try:
        with folder.place(parts[:-1]) as place:
            data, status = _content(place, parts, path)
            if _version(data) != version:
                raise _changed_since(path)
            occurrences, changed = _changed(data, find, replacement, path)
            _put_in_place(place, parts[-1], changed, status, path)
    except OSError as error:
        raise FolderError(_not_written(path, error)) from error
    return Proposal(shown(parts), occurrences, _version(changed), "")


def _own_parts(folder: Folder, path: str) -> Parts:
    """The names that lead to the file, none of which is a link."""
    if not folder.writable:
        raise FolderError("I only read this folder, as I was started; I change nothing in it.")
    parts = folder.resolve(path)
    if not parts:
        raise FolderError(f"'{clean(path)}' is a folder.")
    kind = PureWindowsPath if os.name == "nt" else PurePosixPath
    if kind(*parts) != kind(path):
        raise FolderError(
            f"'{clean(path)}' is a link; I change files only by their own name, '{shown(parts)}'."
        )
    return parts


def _content(place: Place, parts: Parts, path: str) -> tuple[bytes, os.stat_result]:
    """The bytes of a file that may be changed, and its status."""
    # Opened for writing as well, although nothing is written here: it tells who may.
    flags = os.O_RDWR | getattr(os, "O_BINARY", 0)
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(place.at(parts[-1]), flags, dir_fd=place.descriptor)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FolderError(f"'{clean(path)}' is no regular file.")
        if not status.st_mode & 0o222:
            raise FolderError(f"'{clean(path)}' is write-protected; I leave it so.")
        if status.st_nlink > 1:
            raise FolderError(
                f"'{clean(path)}' is one of {status.st_nlink} names of the same file; I would only"
                " change one of them."
            )
        data = file.read(MAX_CHANGED + 1)
    if len(data) > MAX_CHANGED:
        raise FolderError(
            f"'{clean(path)}' is larger than {size(MAX_CHANGED)}, too large for me to change."
        )
    if b"\0" in data[:SNIFFED]:
        raise FolderError(f"'{clean(path)}' is a binary file; I only change text.")
    return data, status


def _changed(data: bytes, find: str, replacement: str, path: str) -> tuple[int, bytes]:
    """How often the text is there, and the bytes with the other one in its place."""
    try:
        old, new = find.encode(), replacement.encode()
    except UnicodeEncodeError as error:
        raise FolderError("Half a character is no text that a file can hold.") from error
    if not old or b"\n" in old + new:
        raise FolderError("I replace text within lines; there has to be some, on one line.")
    if old == new:
        raise FolderError("That would change nothing: both texts are the same.")
    count = data.count(old)
    if not count:
        other = old.lower() in data.lower()
        hint = "; it is there in other upper and lower case, which counts" if other else ""
        raise FolderError(f"“{clean(find)}” is not in '{clean(path)}'{hint}.")
    if len(data) + count * (len(new) - len(old)) > MAX_CHANGED:
        raise FolderError(f"That would make '{clean(path)}' larger than {size(MAX_CHANGED)}.")
    return count, data.replace(old, new)


def _put_in_place(place: Place, name: str, data: bytes, before: os.stat_result, path: str) -> None:
    """Writes a new file and lets it take the place of the one whose status was `before`."""
    # A name of its own, so that two changes at once don't meet; short, for any file system.
    new = place.at(f".aguia-{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(new, flags, 0o600, dir_fd=place.descriptor)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            _dress(descriptor, before)
            os.fsync(descriptor)
        now = os.stat(place.at(name), dir_fd=place.descriptor, follow_symlinks=False)
        if _identity(now) != _identity(before):
            raise _changed_since(path)
        os.replace(new, place.at(name), src_dir_fd=place.descriptor, dst_dir_fd=place.descriptor)
    except BaseException:
        with suppress(OSError):
            os.unlink(new, dir_fd=place.descriptor)
        raise
    if place.descriptor is not None:
        # That the new file has the name is to outlast a crash, too.
        with suppress(OSError):
            os.fsync(place.descriptor)


def _dress(descriptor: int, like: os.stat_result) -> None:
    """Gives an open file the owner, as far as that is allowed, and the mode of another."""
    if hasattr(os, "fchown"):
        now = os.fstat(descriptor)
        if (now.st_uid, now.st_gid) != (like.st_uid, like.st_gid):
            with suppress(PermissionError):
                os.fchown(descriptor, like.st_uid, like.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode))


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """What differs when a file has been written to, or another has taken its place."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)


def _changed_since(path: str) -> FolderError:
    return FolderError(
        f"'{clean(path)}' has changed since the change was shown; I leave it as it is."
    )


def _not_written(path: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
        return why(path, error)
    return f"'{clean(path)}' cannot be changed: {error.strerror or type(error).__name__}."


def _version(data: bytes) -> str:
    """Tells these bytes from others, in few enough characters to be shown to a person."""
    return hashlib.sha256(data).hexdigest()[:16]


# -- the diff --------------------------------------------------------------------------


def _diff(name: str, before: bytes, after: bytes) -> str:
    """A unified diff of two versions that differ within lines, and so have equally many."""
    old, new = _lines(before), _lines(after)
    changed = [at for at, line in enumerate(old) if line != new[at]]
    lines = [f"--- a/{name}", f"+++ b/{name}"]
    for hunk in _hunks(changed, len(old)):
        place = f"{hunk.start + 1},{len(hunk)}"
        lines.append(f"@@ -{place} +{place} @@")
        at = hunk.start
        while at < hunk.stop:
            end = at
            while end < hunk.stop and old[end] != new[end]:
                end += 1
            for index in range(at, end):
                lines += _marked("-", old[index], other=new[index])
            for index in range(at, end):
                lines += _marked("+", new[index], other=old[index])
            if end < hunk.stop:
                lines += _marked(" ", old[end])
            at = end + 1
    if more := len(changed[MAX_DIFF_CHANGES:]):
        lines.append(f"… and {plural(more, 'more changed line')}")
    return "\n".join(lines) + "\n"


def _hunks(changed: list[int], length: int) -> list[range]:
    """The lines that a diff shows, given those that change."""
    if len(changed) > MAX_DIFF_CHANGES:
        length = changed[MAX_DIFF_CHANGES]
    hunks: list[range] = []
    for at in changed[:MAX_DIFF_CHANGES]:
        start, stop = max(0, at - CONTEXT), min(length, at + CONTEXT + 1)
        if hunks and start <= hunks[-1].stop:
            start = hunks.pop().start
        hunks.append(range(start, stop))
    return hunks


def _lines(data: bytes) -> list[str]:
    """Lines with their line feeds; what is no UTF-8 is replaced."""
    *whole, rest = data.split(b"\n")
    lines = [line + b"\n" for line in whole] + ([rest] if rest else [])
    return [line.decode("utf-8", "replace") for line in lines]


def _marked(mark: str, line: str, *, other: str = "") -> list[str]:
    """A line of a diff, and the one after it that says the file has no line feed there.

    Of a long line, what is shown has the first place in which it is not like the other.
    """
    bare = line.removesuffix("\n")
    if len(bare) > MAX_DIFF_LINE:
        pairs = enumerate(zip(line, other, strict=False))
        differ = next((at for at, (mine, theirs) in pairs if mine != theirs), 0)
        start = max(0, differ - MAX_DIFF_LINE // 2)
        cut = bare[start : start + MAX_DIFF_LINE]
        bare = f"{'…' if start else ''}{cut}{'…' if start + len(cut) < len(bare) else ''}"
    return [f"{mark}{bare}"] + ([] if line.endswith("\n") else ["\\ No newline at end of file"])
