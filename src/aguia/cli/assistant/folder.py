"""Access to one folder, and to nothing outside of it.

What may live here: finding, listing and reading what is under the folder's root; the one way to
change it is in `edit`. It knows nothing of agents, runs or terminals. Everything blocks, so
callers that share a thread with an event loop move it elsewhere; the long ones are generators
that yield None whenever a piece of work is done without anything to show, so that a caller can
stop them at any time.

Three things keep a path inside: what a person wrote is refused when it is absolute or goes
up; its real path has to lie under the root's; and the file is then opened one name at a time
from the root's own descriptor without following links, so that a link put in place after the
check is not followed either. Where the system has no such calls (Windows) the first two have
to do.
"""

import codecs
import errno
import os
import re
import stat
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO, Final, Literal, TypeAlias

from aguia.cli.assistant.ignore import Rules
from aguia.cli.words import size

__all__ = [
    "MAX_DEPTH",
    "MAX_LINE",
    "MAX_READ",
    "MAX_SEARCHED",
    "SNIFFED",
    "Count",
    "Entry",
    "Excerpt",
    "Folder",
    "FolderError",
    "Hit",
    "Parts",
    "Place",
    "Tally",
    "clean",
    "shown",
    "why",
]

MAX_READ: Final = 256 * 1024
"""How many bytes of a file are read for showing it."""

MAX_SEARCHED: Final = 4 * 1024 * 1024
"""Files with more bytes than this are not searched."""

MAX_LINE: Final = 2_000
"""Lines with more characters than this are not searched: data or generated code."""

MAX_DEPTH: Final = 64
"""How many folders deep a walk goes."""

MAX_IGNORE_FILE: Final = 64 * 1024
"""How many bytes of a .gitignore file are read."""

SNIFFED: Final = 8 * 1024
"""A file with a zero byte among this many first bytes is binary, as git sees it."""

HAS_DIR_FD: Final = os.open in os.supports_dir_fd and os.scandir in os.supports_fd

Parts: TypeAlias = tuple[str, ...]
Kind: TypeAlias = Literal["file", "folder", "link", "other"]


class FolderError(Exception):
    """A request that the folder does not grant; its text is for the person who asked."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something found in a folder: the names that lead to it from the root, and its kind."""

    parts: Parts
    kind: Kind

    @property
    def path(self) -> str:
        """The path for showing, relative to the root, with slashes."""
        return shown(self.parts)

    @property
    def name(self) -> str:
        """The last name of the path, for showing."""
        return shown(self.parts[-1:])


@dataclass(frozen=True, slots=True)
class Hit:
    """One line that a search found; lines count from 1."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a file: its text, how many bytes that was, and of how many."""

    path: str
    text: str
    read: int
    size: int

    @property
    def cut(self) -> bool:
        """Whether the file goes on after this text."""
        return self.read < self.size

    @property
    def lines(self) -> int:
        """How many lines the text has; a last one without a line end counts."""
        return self.text.count("\n") + (self.text[-1:] not in ("", "\n"))


@dataclass(frozen=True, slots=True)
class Place:
    """A folder to open what it holds in: by a descriptor where there is one, else by its path."""

    path: str
    descriptor: int | None

    def at(self, name: str) -> str:
        """What to name the entry `name` by, together with `dir_fd=place.descriptor`."""
        return name if self.descriptor is not None else os.path.join(self.path, name)


@dataclass(slots=True)
class Tally:
    """What a search went through, filled in while it runs."""

    searched: int = 0
    binary: int = 0
    too_large: int = 0
    unreadable: int = 0
    hits: int = 0
    files: int = 0


@dataclass(slots=True)
class Count:
    """Files, their lines, and those of them that are binary and hence have no lines."""

    files: int = 0
    lines: int = 0
    binary: int = 0


@dataclass(slots=True)
class Folder:
    """One folder, readable, perhaps writable, and closed to the outside.

    Every path that goes in is a person's text, relative to the root; every one that comes out
    is relative to the root with slashes, and valid Unicode whatever the file system holds.
    """

    root: str
    _has_dir_fd: bool = field(default=HAS_DIR_FD, repr=False)
    writable: bool = True

    def __post_init__(self) -> None:
        self.root = os.path.realpath(self.root)

    # -- one file ----------------------------------------------------------------------

    def read(self, path: str, *, limit: int = MAX_READ) -> Excerpt:
        """The text of the file at `path`, at most `limit` bytes of it.

        Bytes that are no UTF-8 come out as replacement characters.

        Raises:
            FolderError: the path leads out, is no file, is binary, or cannot be read.
        """
        parts = self.resolve(path)
        if not parts:
            raise FolderError(f"'{clean(path)}' is a folder; `tree` lists it.")
        try:
            with self._file(parts) as file:
                length = os.fstat(file.fileno()).st_size
                data = file.read(limit + 1)
        except FileNotFoundError as error:
            raise FolderError(f"{why(path, error)}{self._meant(parts)}") from error
        except OSError as error:
            raise FolderError(why(path, error)) from error
        if b"\0" in data[:SNIFFED]:
            raise FolderError(f"'{clean(path)}' is a binary file ({size(length)}).")
        if len(data) <= limit:
            return Excerpt(path=shown(parts), text=_text(data), read=len(data), size=len(data))
        # The cut may go through a character; what is left of it is no character.
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(data[:limit])
        whole = max(length, len(data))
        return Excerpt(path=shown(parts), text=text, read=limit, size=whole)

    def _meant(self, parts: Parts) -> str:
        """The question whether a file was meant whose name has a suffix more, if there is one."""
        try:
            beside = self._list(parts[:-1])
        except OSError:
            return ""
        wanted = parts[-1].casefold()
        for entry in beside:
            if entry.kind == "file" and PurePosixPath(entry.name).stem.casefold() == wanted:
                return f" Is it '{shown(entry.parts)}'?"
        return ""

    def file_at(self, path: str) -> str:
        """The path, for showing, of the regular file that `path` leads to.

        Raises:
            FolderError: the path leads out, or to no file that can be read.
        """
        parts = self.resolve(path)
        try:
            if not parts:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._file(parts).close()
        except OSError as error:
            raise FolderError(why(path, error)) from error
        return shown(parts)

    # -- many files --------------------------------------------------------------------

    def walk(self, path: str = "", *, depth: int = MAX_DEPTH) -> Generator[Entry | None]:
        """Everything under `path`, a folder before what it holds, in the order of names.

        Leaves out `.git` and what .gitignore files name. Links are yielded and not followed.
        Folders that cannot be listed count as empty, except for `path` itself.

        Raises:
            FolderError: `path` leads out or is no folder that can be listed.
        """
        start = self.resolve(path)
        try:
            first = self._list(start)
        except OSError as error:
            raise FolderError(why(path or ".", error)) from error
        yield from self._walk(start, first, depth)

    def below(self, folder: Entry) -> Generator[Entry | None]:
        """Everything in a folder that a walk has found; nothing if it cannot be listed."""
        try:
            first = self._list(folder.parts)
        except OSError:
            return
        yield from self._walk(folder.parts, first, MAX_DEPTH)

    def folders(self) -> list[Entry]:
        """The folders right under the root, in the order of names."""
        return [entry for entry in self.walk(depth=1) if entry and entry.kind == "folder"]

    def _walk(self, start: Parts, first: list[Entry], depth: int) -> Generator[Entry | None]:
        rules = self._rules_above(start)
        waiting = [(entry, rules) for entry in reversed(first)]
        if self._has_rules(first):
            rules = self._with_rules_of(rules, start)
            waiting = [(entry, rules) for entry, _ in waiting]
        while waiting:
            entry, rules = waiting.pop()
            if rules.ignore(entry.parts, folder=entry.kind == "folder"):
                yield None
                continue
            yield entry
            if entry.kind != "folder" or len(entry.parts) - len(start) >= depth:
                continue
            try:
                inside = self._list(entry.parts)
            except OSError:
                continue
            if self._has_rules(inside):
                rules = self._with_rules_of(rules, entry.parts)
            waiting.extend((child, rules) for child in reversed(inside))

    def search(
        self,
        words: Sequence[str],
        tally: Tally,
        *,
        per_file: int | None = None,
        where: Iterable[Entry | None] | None = None,
        ends: Sequence[str] | None = None,
    ) -> Generator[Hit | None]:
        """Lines that hold all of `words`, whatever their case, in the order of the walk.

        `where` is a walk, by default through everything. With `ends` the words have to stand on
        their own, where else they may be parts of others; one of the `ends` may follow them.

        With `per_file` it looks for an answer instead: at most so many lines of a file, a word
        that is part of the file's path need not be in the line as well, and the files with most
        of the words in their path come first. Binary files, files over `MAX_SEARCHED` bytes and
        lines over `MAX_LINE` characters are passed over; `tally` counts.
        """
        folded = [word.casefold() for word in words]
        alone = {} if ends is None else {word: _alone(word, ends) for word in folded}
        files = self.walk() if where is None else where
        if per_file is not None:
            found: list[tuple[int, Entry]] = []
            for entry in files:
                if entry is not None and entry.kind == "file":
                    found.append((len(_named(entry, folded)), entry))
                yield None
            found.sort(key=lambda pair: -pair[0])
            files = [entry for _, entry in found]
        for entry in files:
            if entry is None or entry.kind != "file":
                yield None
                continue
            text = self._searchable(entry.parts, tally)
            yield None
            if text is None:
                continue
            named = _named(entry, folded) if per_file is not None else []
            every = [word for word in folded if word not in named]
            hits = _matching(text, every, folded, alone)
            for count, (number, line) in enumerate(hits, 1):
                tally.hits += 1
                tally.files += count == 1
                yield Hit(path=entry.path, line=number, text=line.rstrip("\r"))
                if count == per_file:
                    break

    def count(self, glob: str, counts: dict[str, Count]) -> Generator[None]:
        """Counts files and lines by suffix into `counts`, for files whose name fits `glob`.

        A glob with a slash is held against the whole path. An empty one fits every file.
        """
        for entry in self.walk():
            yield None
            if entry is None or entry.kind != "file":
                continue
            if glob and not fnmatchcase(entry.path if "/" in glob else entry.name, glob):
                continue
            suffix = PurePosixPath(entry.name).suffix or "(none)"
            row = counts.setdefault(suffix, Count())
            row.files += 1
            try:
                with self._file(entry.parts) as file:
                    yield from _count_lines(file, row)
            except OSError:
                continue

    # -- staying inside ----------------------------------------------------------------

    def resolve(self, path: str) -> Parts:
        """The names that lead from the root to what `path` really is; none for the root.

        Raises:
            FolderError: the path is absolute, goes up, leads out by a link, or into `.git`.
        """
        shown_path = clean(path)
        if "\0" in path:
            raise FolderError("A path cannot hold a zero character.")
        windows = PureWindowsPath(path)
        if path.startswith(("/", "\\")) or windows.drive or windows.root:
            raise FolderError(
                f"'{shown_path}' is an absolute path; I only read below the folder I was started"
                " in, so name it from there."
            )
        if ".." in PurePosixPath(path).parts or ".." in windows.parts:
            raise FolderError(f"'{shown_path}' goes up with '..'; I don't leave my folder.")
        try:
            real = Path(os.path.realpath(Path(self.root, path)))
        except (OSError, ValueError) as error:
            raise FolderError(f"'{shown_path}' is not a path I can use.") from error
        if not real.is_relative_to(self.root):
            raise FolderError(f"'{shown_path}' is a link that leads out of my folder.")
        parts = real.relative_to(self.root).parts
        if _is_git(parts) or _is_git(PurePosixPath(path).parts) or _is_git(windows.parts):
            raise FolderError(f"'{shown_path}' is git's own business; I leave it alone.")
        return parts

    @contextmanager
    def place(self, parts: Parts) -> Iterator[Place]:
        """The folder at `parts`, reached without following a link, while the block runs.

        Raises:
            OSError: as for any open.
        """
        if not self._has_dir_fd:
            yield Place(self._checked(parts), None)
            return
        descriptor = self._open(parts, folder=True)
        try:
            yield Place(str(Path(self.root, *parts)), descriptor)
        finally:
            os.close(descriptor)

    def _open(self, parts: Parts, *, folder: bool = False) -> int:
        """A descriptor of what lies at `parts`, with no link followed on the way to it."""
        if not self._has_dir_fd:
            return os.open(self._checked(parts), os.O_RDONLY | getattr(os, "O_BINARY", 0))
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        for index, part in enumerate(parts):
            # O_NONBLOCK: opening a named pipe must not wait for someone to write to it.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            if folder or index < len(parts) - 1:
                flags |= os.O_DIRECTORY
            try:
                inner = os.open(part, flags, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor

    def _file(self, parts: Parts) -> BinaryIO:
        """The regular file at `parts`, open for reading.

        Raises:
            OSError: as for any open; and when it is something else than a regular file.
        """
        descriptor = self._open(parts)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise OSError(errno.EINVAL, "it is no regular file")

    def _checked(self, parts: Parts) -> str:
        """The path of `parts`, which is no link now (without descriptors no more can be had)."""
        path = str(Path(self.root, *parts))
        if os.path.realpath(path) != path:
            raise OSError(errno.ELOOP, "a link")
        return path

    def _list(self, parts: Parts) -> list[Entry]:
        """What a folder holds, by name, without `.git`."""
        if not self._has_dir_fd:
            with os.scandir(self._checked(parts)) as scan:
                found = [Entry((*parts, item.name), _kind(item)) for item in scan]
        else:
            descriptor = self._open(parts, folder=True)
            try:
                with os.scandir(descriptor) as scan:
                    found = [Entry((*parts, item.name), _kind(item)) for item in scan]
            finally:
                os.close(descriptor)
        found = [entry for entry in found if not _is_git(entry.parts[-1:])]
        found.sort(key=lambda entry: entry.parts)
        return found

    def _searchable(self, parts: Parts, tally: Tally) -> str | None:
        """The text of a file, or None (and a mark in `tally`) when it is not to be searched."""
        try:
            with self._file(parts) as file:
                data = file.read(MAX_SEARCHED + 1)
        except OSError:
            tally.unreadable += 1
            return None
        if len(data) > MAX_SEARCHED:
            tally.too_large += 1
            return None
        if b"\0" in data[:SNIFFED]:
            tally.binary += 1
            return None
        tally.searched += 1
        return _text(data)

    # -- .gitignore --------------------------------------------------------------------

    @staticmethod
    def _has_rules(entries: list[Entry]) -> bool:
        return any(e.parts[-1] == ".gitignore" and e.kind == "file" for e in entries)

    def _with_rules_of(self, rules: Rules, parts: Parts) -> Rules:
        """`rules` and those of the .gitignore file in the folder at `parts`."""
        try:
            with self._file((*parts, ".gitignore")) as file:
                data = file.read(MAX_IGNORE_FILE)
        except OSError:
            return rules
        return rules.with_file(len(parts), _text(data).split("\n"))

    def _rules_above(self, parts: Parts) -> Rules:
        """The rules that the folders above `parts` set for what is in it.

        A folder that is itself ignored and yet asked for by name is shown by its own rules.
        """
        rules = Rules()
        for depth in range(len(parts)):
            rules = self._with_rules_of(rules, parts[:depth])
            if rules.ignore(parts[: depth + 1], folder=True):
                return Rules()
        return rules


def shown(parts: Parts) -> str:
    """A path for showing: names that are no valid Unicode get replacement characters."""
    return os.fsencode("/".join(parts)).decode("utf-8", "replace")


def clean(text: str) -> str:
    """A person's text on one line, short enough to repeat in an answer."""
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    return line if len(line) <= 200 else line[:199] + "…"


def _text(data: bytes) -> str:
    """UTF-8, with replacement characters for what is none; a byte order mark is no text."""
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")


def _named(entry: Entry, words: Sequence[str]) -> list[str]:
    """Those of `words` that the file's path holds; its suffix says nothing of what it is about."""
    path = str(PurePosixPath(entry.path).with_suffix("")).casefold()
    return [word for word in words if word in path]


def _alone(word: str, ends: Sequence[str]) -> re.Pattern[str]:
    """The word where no letter, figure or hyphen makes it a part of another, save for its end."""
    before = r"(?<![^\W_])(?<![^\W_]-)" if word[:1].isalnum() else ""
    after = r"(?![^\W_])(?!-[^\W_])" if word[-1:].isalnum() else ""
    end = f"(?:{'|'.join(map(re.escape, ends))})?" if ends and after else ""
    return re.compile(f"{before}{re.escape(word)}{end}{after}")


def _matching(
    text: str, every: list[str], some: list[str], alone: Mapping[str, re.Pattern[str]]
) -> Iterator[tuple[int, str]]:
    """The lines, and their numbers, with every word of `every` and at least one of `some`.

    Words that have a pattern in `alone` are held against that.
    """

    def has(line: str, word: str) -> bool:
        # The look for the text itself is fast, and does for most lines.
        return word in line and (word not in alone or alone[word].search(line) is not None)

    # One look at the whole text spares the look at each line, for most files.
    whole = text.casefold()
    if not all(word in whole for word in every) or not any(word in whole for word in some):
        return
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) <= MAX_LINE:
            folded = line.casefold()
            if all(has(folded, word) for word in every) and any(has(folded, word) for word in some):
                yield number, line


def _count_lines(file: BinaryIO, row: Count) -> Generator[None]:
    last = b"\n"
    while block := file.read(1024 * 1024):
        if file.tell() == len(block) and b"\0" in block[:SNIFFED]:
            row.binary += 1
            return
        row.lines += block.count(b"\n")
        last = block[-1:]
        yield None
    # A last line without a line end is a line.
    row.lines += last != b"\n"


def _kind(item: os.DirEntry[str]) -> Kind:
    if item.is_symlink() or (hasattr(item, "is_junction") and item.is_junction()):
        return "link"
    if item.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if item.is_file(follow_symlinks=False) else "other"


def _is_git(names: Parts) -> bool:
    return any(name.casefold() == ".git" for name in names)


def why(path: str, error: OSError) -> str:
    """What keeps a file from being opened, for the person who named it."""
    name = clean(path)
    if isinstance(error, FileNotFoundError):
        return f"There is no '{name}' in this folder."
    if isinstance(error, PermissionError):
        return f"I am not allowed to open '{name}'."
    if isinstance(error, NotADirectoryError):
        return f"'{name}' is not a folder."
    if isinstance(error, IsADirectoryError):
        return f"'{name}' is a folder; `tree` lists it."
    if error.errno == errno.ELOOP:
        return f"'{name}' is a link that I cannot follow."
    return f"'{name}' cannot be opened: {error.strerror or type(error).__name__}."
