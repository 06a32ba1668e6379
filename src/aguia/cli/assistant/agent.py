"""The folder assistant as an agent function: what it says and does in one run.

The work on files happens in a thread, a twentieth of a second at a time: the server's loop
stays free, hits leave as they are found, and a cancelled run stops at the next piece.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec
from anyio import to_thread

from aguia.cli.assistant.folder import (
    MAX_READ,
    Count,
    Excerpt,
    Folder,
    FolderError,
    Tally,
    clean,
)
from aguia.cli.assistant.request import last_user_text, understand
from aguia.cli.words import plural, size
from aguia.protocol.patch import JsonPatch
from aguia.server import Run

__all__ = ["MAX_ENTRIES", "MAX_HITS", "TREE_DEPTH", "folder_assistant"]

MAX_HITS: Final = 200
"""A search ends after this many lines."""

ANSWER_HITS: Final = 12
"""The answer to a question ends after this many lines,"""

ANSWER_HITS_PER_FILE: Final = 3
"""and names at most this many of one file."""

MAX_SHOWN: Final = 160
"""A hit shows at most this many characters of its line."""

MAX_ENTRIES: Final = 200
"""A tree ends after this many entries."""

TREE_DEPTH: Final = 2
"""How many folders deep a tree goes."""

BATCH_SECONDS: Final = 0.05
"""How long the thread works before the run is looked after again."""

HELP: Final = """\
I know my way around this folder, without a model and without a network:

  find PATTERN    the lines that contain PATTERN, whatever its case
  read FILE       the text of a file
  tree [DIR]      what is in the folder
  count [GLOB]    files and lines by suffix, for example: count *.py

Or ask a question, for example: Where is the parser tested?
"""

T = TypeVar("T")

Answer = Callable[[dict[str, Any]], Awaitable[None]]
"""Gives a tool call its result."""


def folder_assistant(root: str = ".") -> Callable[[Run], Awaitable[None]]:
    """An agent for `AgentApp` that answers questions about the folder `root`."""
    folder = Folder(root)

    async def assistant(run: Run) -> None:
        await _Turn(run, folder).answer(last_user_text(run.messages))

    return assistant


@dataclass(slots=True)
class _Found:
    """What a search came to, as its tool call tells it."""

    lines: int = 0
    files: int = 0
    searched: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    complete: bool = True


class _Turn:
    """One run of the assistant, and how far its plan is."""

    def __init__(self, run: Run, folder: Folder) -> None:
        self.run = run
        self.folder = folder
        self.plan: list[str] = []
        self.unsaid: JsonPatch = []  # of the state, until the next delta

    async def answer(self, message: str) -> None:
        request = understand(message)
        match request.verb:
            case "find":
                await self.find(request.argument)
            case "ask":
                await self.ask(request.argument, request.words)
            case "read":
                await self.read(request.argument)
            case "tree":
                await self.tree(request.argument)
            case "count":
                await self.count(request.argument)
            case "help":
                await self.say(HELP)
            case "unknown":
                await self.say(f"I don't know what to do with “{clean(message)}”.\n\n{HELP}")
        if self.unsaid:
            await self.run.patch_state(self.unsaid)

    # -- the requests ------------------------------------------------------------------

    async def find(self, pattern: str) -> None:
        await self.begin(f"find {pattern}", "Search the files", "Sum up")
        async with self.phase(0):
            found = await self.search((pattern,))
        async with self.phase(1):
            await self.say(_summary(found, (clean(pattern),)))

    async def ask(self, question: str, words: tuple[str, ...]) -> None:
        await self.begin(question, "Pick the words to look for", "Search the files", "Sum up")
        async with self.phase(0):
            await self.say(f"I look for {_quoted(words)}.\n")
        async with self.phase(1):
            found = await self.search(words, per_file=ANSWER_HITS_PER_FILE)
            if not found.lines and len(words) > 1:
                words = (max(words, key=len),)
                await self.say(f"No line has all of them. I try {_quoted(words)} alone.\n")
                found = await self.search(words, per_file=ANSWER_HITS_PER_FILE)
        async with self.phase(2):
            await self.say(_summary(found, words))

    async def read(self, path: str) -> None:
        await self.begin(f"read {path}", "Open the file", "Show it")
        excerpt: Excerpt | None = None
        async with self.phase(0) as failed:
            answer = await self.call("read_file", {"path": path})
            try:
                excerpt = await to_thread.run_sync(self.folder.read, path)
            except FolderError as error:
                failed()
                await self.refuse(answer, error)
            else:
                facts = {"path": excerpt.path, "bytes": excerpt.size, "lines": excerpt.lines}
                await answer({**facts, "complete": not excerpt.cut})
        if excerpt is None:
            return
        async with self.phase(1):
            async with self.run.text() as text:
                for piece in _pieces(excerpt.text or "The file is empty.\n"):
                    await text.write(piece)
            if excerpt.cut:
                await self.say(f"I stop after {size(MAX_READ)} of {size(excerpt.size)}.\n")

    async def tree(self, path: str) -> None:
        await self.begin(f"tree {path}".strip(), "List the folder", "Sum up")
        seen = {"file": 0, "folder": 0, "link": 0, "other": 0}
        complete = False
        async with self.phase(0) as failed:
            answer = await self.call("tree", {"folder": path or ".", "depth": TREE_DEPTH})
            try:
                top = len(await to_thread.run_sync(self.folder.resolve, path))
                async with (
                    _Lines(self.run) as lines,
                    aclosing(_batches(self.folder.walk(path, depth=TREE_DEPTH))) as entries,
                ):
                    async for entry in entries:
                        if sum(seen.values()) >= MAX_ENTRIES:
                            break
                        seen[entry.kind] += 1
                        await lines.write(
                            _tree_line(entry.name, entry.kind, len(entry.parts) - top)
                        )
                    else:
                        complete = True
            except FolderError as error:
                failed()
                return await self.refuse(answer, error)
            await answer({**seen, "complete": complete})
        async with self.phase(1):
            rest = "" if complete else f" I stop after {MAX_ENTRIES} entries."
            what = f"{plural(seen['file'], 'file')} and {plural(seen['folder'], 'folder')}"
            await self.say(f"{what}, looking {TREE_DEPTH} folders deep.{rest}\n")
        return None

    async def count(self, glob: str) -> None:
        await self.begin(f"count {glob}".strip(), "Count files and lines", "Sum up")
        counts: dict[str, Count] = {}
        async with self.phase(0):
            answer = await self.call("count", {"glob": glob or "*"})
            pieces: AsyncGenerator[None] = _batches(self.folder.count(glob, counts))
            async with aclosing(pieces):
                async for _ in pieces:
                    pass
            rows = sorted(counts.items(), key=lambda item: (-item[1].lines, item[0]))
            await answer({suffix: {"files": c.files, "lines": c.lines} for suffix, c in rows})
        async with self.phase(1):
            if not rows:
                return await self.say("No file fits.\n")
            table = [f"{'suffix':<12}{'files':>8}{'lines':>10}\n"]
            for suffix, c in [*rows, ("together", _sum(counts.values()))]:
                name = suffix if len(suffix) < 12 else suffix[:10] + "…"
                table.append(f"{name:<12}{c.files:>8,}{c.lines:>10,}\n")
            if binary := _sum(counts.values()).binary:
                table.append(f"{plural(binary, 'file')} binary, and so without lines.\n")
            await self.say("".join(table))
        return None

    # -- what they share ---------------------------------------------------------------

    async def begin(self, task: str, *plan: str) -> None:
        """Puts the task and its plan into the state, the first step already running."""
        self.plan = list(plan)
        steps = [{"step": step, "status": "pending"} for step in plan]
        steps[0]["status"] = "running"
        state = self.run.state
        if isinstance(state, dict) and isinstance(state.get("plan"), list):
            await self.run.patch_state(
                [
                    {"op": "add", "path": "/task", "value": clean(task)},
                    {"op": "replace", "path": "/plan", "value": steps},
                ]
            )
        else:
            kept = state if isinstance(state, dict) else {}
            await self.run.set_state({**kept, "task": clean(task), "plan": steps})

    @asynccontextmanager
    async def phase(self, index: int) -> AsyncIterator[Callable[[], None]]:
        """One step of the plan; yields a function that says it failed."""
        status = "done"

        def failed() -> None:
            nonlocal status
            status = "failed"

        place = f"/plan/{index}/status"
        if index:
            delta: JsonPatch = [*self.unsaid, {"op": "replace", "path": place, "value": "running"}]
            await self.run.patch_state(delta)
        async with self.run.step(self.plan[index]):
            yield failed
        self.unsaid = [{"op": "replace", "path": place, "value": status}]

    async def search(self, words: tuple[str, ...], *, per_file: int | None = None) -> _Found:
        """Searches as a tool call; hits stream as text while the call waits for its result."""
        most = MAX_HITS if per_file is None else ANSWER_HITS
        limits = {} if per_file is None else {"per_file": per_file}
        answer = await self.call("search", {"words": words, **limits})
        tally = Tally()
        found = _Found()
        files = set[str]()
        hits = self.folder.search(words, tally, per_file=per_file)
        async with _Lines(self.run) as lines, aclosing(_batches(hits)) as batches:
            async for hit in batches:
                if found.lines == most:
                    found.complete = False
                    break
                found.lines += 1
                files.add(hit.path)
                text = hit.text.strip()
                text = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
                await lines.write(f"{hit.path}:{hit.line}: {text}\n")
        found.files, found.searched = len(files), tally.searched
        skipped = {
            "binary": tally.binary,
            "too large": tally.too_large,
            "unreadable": tally.unreadable,
        }
        found.skipped = {why: count for why, count in skipped.items() if count}
        facts: dict[str, Any] = msgspec.to_builtins(found)
        await answer({name: value for name, value in facts.items() if value != {}})
        return found

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        """Makes a tool call, its arguments in several deltas; returns what takes its result."""
        text = _json(arguments)
        async with self.run.tool_call(name) as call:
            for start in range(0, len(text), 12):
                await call.write(text[start : start + 12])

        async def answer(result: dict[str, Any]) -> None:
            await call.result(_json(result))

        return answer

    async def refuse(self, answer: Answer, error: FolderError) -> None:
        """Answers a call that the folder did not grant."""
        await answer({"error": str(error)})
        await self.say(f"{error}\n")

    async def say(self, words: str) -> None:
        async with self.run.text() as text:
            for line in words.splitlines(keepends=True):
                await text.write(line)


class _Lines:
    """A text message that is opened by its first line, so that there is none without lines."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.stack = AsyncExitStack()
        self.text: Any = None

    async def __aenter__(self) -> "_Lines":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stack.__aexit__(kind, error, traceback)

    async def write(self, line: str) -> None:
        if self.text is None:
            self.text = await self.stack.enter_async_context(self.run.text())
        await self.text.write(line)


async def _batches(work: Generator[T | None]) -> AsyncGenerator[T]:
    """What `work` yields but for None, done in a thread a piece at a time."""
    stopped = False

    def piece() -> tuple[list[T], bool]:
        until = time.monotonic() + BATCH_SECONDS
        found: list[T] = []
        for item in work:
            if item is not None:
                found.append(item)
            if stopped or time.monotonic() >= until:
                return found, False
        return found, True

    try:
        done = False
        while not done:
            found, done = await to_thread.run_sync(piece)
            for item in found:
                yield item
    finally:
        # A run that is cancelled leaves its thread behind, in the middle of a piece. It stops at
        # the next item, and the last reference to `work` closes it.
        stopped = True


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _pieces(text: str, length: int = 2_000) -> list[str]:
    return [text[start : start + length] for start in range(0, len(text), length)]


def _tree_line(name: str, kind: str, depth: int) -> str:
    mark = {"folder": "/", "link": " (a link, not followed)", "other": " (no regular file)"}
    return f"{'  ' * (depth - 1)}{name}{mark.get(kind, '')}\n"


def _sum(counts: Any) -> Count:
    total = Count()
    for count in counts:
        total.files += count.files
        total.lines += count.lines
        total.binary += count.binary
    return total


def _quoted(words: tuple[str, ...]) -> str:
    quoted = [f"“{word}”" for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def _summary(found: _Found, words: tuple[str, ...]) -> str:
    """A search in a sentence or two."""
    searched = f"{plural(found.searched, 'file')} searched"
    if not found.lines:
        return f"No line has {_quoted(words)}: {searched}.\n"
    where = f"{plural(found.lines, 'line')} in {plural(found.files, 'file')}"
    rest = "" if found.complete else f" There may be more: I stop after {found.lines} lines."
    return f"{where} with {_quoted(words)}, {searched}.{rest}\n"
