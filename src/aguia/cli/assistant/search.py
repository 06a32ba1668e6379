"""Searching: one subagent for each top folder, several at once, and progress as an activity."""

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import anyio
import msgspec
from anyio import to_thread

from aguia.cli.assistant.folder import Entry, Hit, Tally, clean
from aguia.cli.assistant.request import ENDINGS
from aguia.cli.assistant.turn import Lines, Turn, batches, json_text
from aguia.cli.words import plural
from aguia.protocol.patch import JsonPatch
from aguia.server import Activity, Run, Speaker, ToolCallStream

__all__ = ["MAX_AT_ONCE", "MAX_HITS", "MAX_SUBAGENTS", "ask", "find"]

MAX_HITS: Final = 200
"""A search ends after this many lines."""

MAX_SUBAGENTS: Final = 24
"""This many top folders get a subagent each; those after them are searched with the top itself."""

MAX_AT_ONCE: Final = 4
"""This many subagents work at once."""

ANSWER_HITS: Final = 12
"""The answer to a question ends after this many lines,"""

ANSWER_HITS_PER_FILE: Final = 3
"""and names at most this many of one file."""

MAX_SHOWN: Final = 160
"""A hit shows at most this many characters of its line."""

PROGRESS_SECONDS: Final = 0.25
"""Progress is told at most this often."""


async def find(turn: Turn, pattern: str) -> dict[str, Any]:
    """Every line that holds the pattern as a word of its own; without any, as part of one."""
    folders = await to_thread.run_sync(turn.folder.folders)
    own, rest = folders[:MAX_SUBAGENTS], folders[MAX_SUBAGENTS:]
    await turn.think(_intention(clean(pattern), len(own), len(rest)))
    turn.begin(f"find {pattern}", "Search the files", "Sum up")
    async with turn.phase(0):
        what = f"the word {quoted((clean(pattern),))}"
        found = await _find(turn, pattern, own, rest, ends=())
        if not found.lines:
            await turn.say(f"No line has {what}. I look inside of words.\n")
            what = quoted((clean(pattern),))
            found = await _find(turn, pattern, own, rest)
    async with turn.phase(1):
        await turn.say(_summary(found, what))
    return {"lines": found.lines, "files": found.files}


async def ask(turn: Turn, question: str, words: tuple[str, ...]) -> dict[str, Any]:
    """The lines that a question may be about, those of the best named files first."""
    await turn.think(
        f"This is a question about {quoted(words)}. I have no model to understand it with, so I "
        "look for lines that have these words, and start with files that are named like them."
    )
    turn.begin(question, "Search the files", "Sum up")
    async with turn.phase(0):
        found = await _best(turn, words, ENDINGS)
        if not found.lines and len(words) > 1:
            words = (max(words, key=len),)
            await turn.say(f"No line has all of them. I try {quoted(words)} alone.\n")
            found = await _best(turn, words, ENDINGS)
        if not found.lines:
            await turn.say(f"No line has the word {quoted(words)}. I look inside of words.\n")
            found = await _best(turn, words)
    async with turn.phase(1):
        await turn.say(_summary(found, quoted(words)))
    return {"lines": found.lines, "files": found.files}


async def _find(
    turn: Turn,
    pattern: str,
    own: list[Entry],
    rest: list[Entry],
    ends: Sequence[str] | None = None,
) -> "_Found":
    names = [folder.name for folder in own]
    search = await _Search.start(turn, (pattern,), MAX_HITS, names, ends=ends)
    top = [turn.folder.walk(depth=1), *map(turn.folder.below, rest)]
    await search.through(turn.run, search.hits(chain.from_iterable(top)))
    await search.in_parallel(own)
    return await search.end()


async def _best(turn: Turn, words: tuple[str, ...], ends: Sequence[str] | None = None) -> "_Found":
    search = await _Search.start(turn, words, ANSWER_HITS, per_file=ANSWER_HITS_PER_FILE, ends=ends)
    await search.through(turn.run, search.hits(None))
    return await search.end()


@dataclass(slots=True)
class _Found:
    """What a search came to."""

    lines: int = 0
    files: int = 0
    searched: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    complete: bool = True


class _Search:
    """One search, by the assistant itself or with subagents: what they share.

    It is a tool call: hits stream as text while the call waits for its result.
    """

    def __init__(
        self,
        turn: Turn,
        words: tuple[str, ...],
        most: int,
        per_file: int | None,
        ends: Sequence[str] | None,
        call: ToolCallStream,
        progress: "_Progress",
    ) -> None:
        self._turn = turn
        self._words = words
        self._most = most
        self._per_file = per_file
        self._ends = ends
        self._call = call
        self._progress = progress
        self._tallies: list[Tally] = []
        self._lines = 0
        self._files: set[str] = set()
        self._complete = True

    @classmethod
    async def start(
        cls,
        turn: Turn,
        words: tuple[str, ...],
        most: int,
        folders: Iterable[str] = (),
        *,
        per_file: int | None = None,
        ends: Sequence[str] | None = None,
    ) -> "_Search":
        """Makes the call, and begins to tell of the progress, in these folders apart."""
        limits = {} if per_file is None else {"per_file": per_file}
        call = await turn.make_call("search", {"words": words, **limits})
        progress = await _Progress.start(turn.run, folders)
        return cls(turn, words, most, per_file, ends, call, progress)

    def hits(self, where: Iterable[Entry | None] | None) -> tuple[Tally, Generator[Hit | None]]:
        """The work of looking through these entries (None: all), and what counts it."""
        tally = Tally()
        self._tallies.append(tally)
        return tally, self._turn.folder.search(
            self._words, tally, per_file=self._per_file, where=where, ends=self._ends
        )

    async def through(
        self, speaker: Speaker, work: tuple[Tally, Generator[Hit | None]], folder: str | None = None
    ) -> int:
        """Does the work and streams its hits as the speaker's; how many they were."""
        tally, hits = work
        count = 0
        async with Lines(speaker) as lines, aclosing(batches(hits)) as pieces:
            async for piece in pieces:
                for hit in piece:
                    if self._lines == self._most:
                        self._complete = False
                        return count
                    self._lines += 1
                    self._files.add(hit.path)
                    count += 1
                    text = hit.text.strip()
                    text = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
                    await lines.write(f"{hit.path}:{hit.line}: {text}\n")
                await self._tell(tally, count, folder)
        return count

    async def in_parallel(self, folders: list[Entry]) -> None:
        """Has a subagent look through each of the folders, `MAX_AT_ONCE` at a time."""
        turns = anyio.Semaphore(MAX_AT_ONCE)

        async def scout(folder: Entry) -> None:
            async with turns:
                if self._lines == self._most:
                    self._complete = False
                    return
                async with self._turn.run.subagent(
                    folder.name, parent_tool_call_id=self._call.tool_call_id
                ) as sub:
                    tally, work = self.hits(self._turn.folder.below(folder))
                    count = await self.through(sub, (tally, work), folder.name)
                    sub.finish({"files": tally.searched, "hits": count})
                await self._tell(tally, count, folder.name, done=True)

        async with anyio.create_task_group() as group:
            for folder in folders:
                group.start_soon(scout, folder)

    async def end(self) -> _Found:
        """Answers the call; what was found."""
        skipped = {
            "binary": sum(tally.binary for tally in self._tallies),
            "too large": sum(tally.too_large for tally in self._tallies),
            "unreadable": sum(tally.unreadable for tally in self._tallies),
        }
        found = _Found(
            lines=self._lines,
            files=len(self._files),
            searched=sum(tally.searched for tally in self._tallies),
            skipped={why: count for why, count in skipped.items() if count},
            complete=self._complete,
        )
        await self._progress.tell(found.searched, found.lines, now=True)
        facts: dict[str, Any] = msgspec.to_builtins(found)
        await self._call.result(
            json_text({name: value for name, value in facts.items() if value != {}})
        )
        return found

    async def _tell(
        self, tally: Tally, count: int, folder: str | None, *, done: bool = False
    ) -> None:
        if folder is not None:
            self._progress.folders[folder] = {
                "files": tally.searched,
                "hits": count,
                "done": done,
            }
        searched = sum(tally.searched for tally in self._tallies)
        await self._progress.tell(searched, self._lines)


class _Progress:
    """How far a search is, as an activity message that patches keep up to date."""

    def __init__(self, activity: Activity, told: dict[str, Any]) -> None:
        self.folders: dict[str, dict[str, Any]] = dict(told["folders"])
        self._activity = activity
        self._told = told
        self._at = time.monotonic()

    @classmethod
    async def start(cls, run: Run, folders: Iterable[str]) -> "_Progress":
        """The message, before anything is found."""
        waiting = {name: {"files": 0, "hits": 0, "done": False} for name in folders}
        content = {"files": 0, "hits": 0, "folders": waiting}
        return cls(await run.activity("search", content), content)

    async def tell(self, files: int, hits: int, *, now: bool = False) -> None:
        """Sends what has changed, unless the last time was a moment ago."""
        if not now and time.monotonic() - self._at < PROGRESS_SECONDS:
            return
        content = {"files": files, "hits": hits, "folders": dict(self.folders)}
        patch: JsonPatch = list(_changes(self._told, content, ""))
        # Noted before it is sent, which takes time that others may come here in.
        self._told, self._at = content, time.monotonic()
        if patch:
            await self._activity.patch(patch)


def _changes(told: dict[str, Any], content: dict[str, Any], path: str) -> Iterator[Any]:
    """The operations that make one content into the other, which has the same members."""
    for name, value in content.items():
        place = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if isinstance(value, dict):
            yield from _changes(told[name], value, place)
        elif value != told[name]:
            yield {"op": "replace", "path": place, "value": value}


def _intention(pattern: str, folders: int, rest: int) -> str:
    """What `find` is about to do."""
    if not folders:
        return f"I look for “{pattern}” in every file here; there are no folders to share out."
    several = f" and {MAX_AT_ONCE} at a time" if folders > MAX_AT_ONCE else ""
    who = f"{folders} subagents look for “{pattern}”, one a folder{several}"
    if folders == 1:
        who = f"A subagent looks for “{pattern}” in the folder here"
    others = f" and in the {plural(rest, 'folder')} after those" if rest else ""
    return f"{who}, and I in the files at the top{others}."


def quoted(words: Iterable[str]) -> str:
    """Words in quotation marks, as a list in a sentence."""
    *most, last = [f"“{word}”" for word in words]
    return f"{', '.join(most)} and {last}" if most else last


def _summary(found: _Found, what: str) -> str:
    """A search in a sentence or two."""
    searched = f"{plural(found.searched, 'file')} searched"
    if not found.lines:
        return f"No line has {what}: {searched}.\n"
    where = f"{plural(found.lines, 'line')} in {plural(found.files, 'file')}"
    rest = "" if found.complete else f" There may be more: I stop after {found.lines} lines."
    return f"{where} with {what}, {searched}.{rest}\n"
