"""The folder assistant as an agent function: what a run asks for, and who answers it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, Final

from anyio import to_thread

from aguia.cli.assistant.change import replace, settle
from aguia.cli.assistant.folder import MAX_READ, Count, Excerpt, Folder, FolderError, clean
from aguia.cli.assistant.frontend import OPEN_FILE, open_file, report
from aguia.cli.assistant.request import last_user_text, understand
from aguia.cli.assistant.search import ask, find
from aguia.cli.assistant.turn import VERBATIM, Lines, Turn, batches
from aguia.cli.words import plural, size
from aguia.protocol.messages import Message, ToolMessage, UserMessage
from aguia.server import Run

__all__ = ["MAX_ENTRIES", "TREE_DEPTH", "folder_assistant"]

MAX_ENTRIES: Final = 200
"""A tree ends after this many entries."""

TREE_DEPTH: Final = 2
"""How many folders deep a tree goes."""

USAGE: Final = {
    "find": "find PATTERN    the lines with PATTERN as a word, or else inside of one",
    "read": "read FILE       the text of a file",
    "open": "open FILE       has your application open a file, if it can",
}
"""The commands that do nothing without an argument."""

HELP: Final = """\
I know my way around this folder, without a model and without a network:

  {find}
  {read}
  tree [DIR]      what is in the folder
  count [GLOB]    files and lines by suffix, for example: count *.py
{open}  replace X with Y in FILE
                  shows the change and makes it when you agree

Or ask a question, for example: Where is the parser tested?
If this is `aguia chat` or `aguia demo`, /help lists what the chat itself can do.
"""


def folder_assistant(
    root: str = ".", *, writable: bool = True
) -> Callable[[Run], Awaitable[dict[str, Any] | None]]:
    """An agent for `AgentApp` that answers questions about the folder `root`.

    It changes files too, each change after a person has agreed to it, unless `writable` is false.
    """
    folder = Folder(root, writable=writable)

    async def assistant(run: Run) -> dict[str, Any] | None:
        return await _answer(Turn(run, folder))

    return assistant


async def _answer(turn: Turn) -> dict[str, Any] | None:
    """Answers what is new in the messages; the result of the run."""
    new = _new_messages(turn.run.messages)
    reported = await report(turn, new)
    settled = await settle(turn)
    asked = [message for message in new if isinstance(message, UserMessage)]
    if turn.run.interrupts or ((reported or settled) and not asked):
        return None
    message = last_user_text(turn.run.messages)
    request = understand(message)
    if request.verb in USAGE and not request.argument:
        usage = USAGE[request.verb]
        what = usage.split()[1]
        await turn.say(f"{what} is missing. Write it on one line:\n\n  {usage}\n")
        return None
    match request.verb:
        case "find":
            return await find(turn, request.argument)
        case "ask":
            return await ask(turn, request.argument, request.words)
        case "read":
            return await _read(turn, request.argument)
        case "tree":
            return await _tree(turn, request.argument)
        case "count":
            return await _count(turn, request.argument)
        case "replace":
            return await replace(turn, request.argument, request.words)
        case "open":
            return await open_file(turn, request.argument)
        case "help":
            await turn.say(_help(turn))
        case "unknown":
            await turn.say(f"I don't know what to do with “{clean(message)}”.\n\n{_help(turn)}")
    return None


def _help(turn: Turn) -> str:
    """What the assistant can do; `open` only where the application can do its part of it."""
    can_open = turn.run.offers(OPEN_FILE)
    return HELP.format(**{**USAGE, "open": f"  {USAGE['open']}\n" if can_open else ""})


def _new_messages(messages: list[Message]) -> list[Message]:
    """The messages at the end that are no words of the assistant's: what it has not answered."""
    start = len(messages)
    while start and isinstance(messages[start - 1], UserMessage | ToolMessage):
        start -= 1
    return messages[start:]


async def _read(turn: Turn, path: str) -> dict[str, Any]:
    await turn.think(f"I open {clean(path)} and show the text in it.")
    turn.begin(f"read {path}", "Open the file", "Show it")
    excerpt: Excerpt | None = None
    async with turn.phase(0) as ended:
        answer = await turn.call("read_file", {"path": path})
        try:
            excerpt = await to_thread.run_sync(turn.folder.read, path)
        except FolderError as error:
            ended("failed")
            await turn.refuse(answer, error)
            return {"lines": 0}
        facts = {"path": excerpt.path, "bytes": excerpt.size, "lines": excerpt.lines}
        await answer({**facts, "complete": not excerpt.cut})
    async with turn.phase(1):
        metadata = None if path.lower().endswith(".md") else VERBATIM
        async with turn.run.text(metadata=metadata) as text:
            for piece in _pieces(excerpt.text or "The file is empty.\n"):
                await text.write(piece)
        if excerpt.cut:
            await turn.say(f"I stop after {size(MAX_READ)} of {size(excerpt.size)}.\n")
    return {"lines": excerpt.lines}


async def _tree(turn: Turn, path: str) -> dict[str, Any]:
    await turn.think(
        f"I list what is there, {TREE_DEPTH} folders deep, and leave out what git does."
    )
    turn.begin(f"tree {path}".strip(), "List the folder", "Sum up")
    seen = {"file": 0, "folder": 0, "link": 0, "other": 0}
    async with turn.phase(0) as ended:
        answer = await turn.call("tree", {"folder": path or ".", "depth": TREE_DEPTH})
        try:
            complete = await _draw(turn, path, seen)
        except FolderError as error:
            ended("failed")
            await turn.refuse(answer, error)
            return {"files": 0, "folders": 0}
        await answer({**seen, "complete": complete})
    async with turn.phase(1):
        rest = "" if complete else f" I stop after {MAX_ENTRIES} entries."
        what = f"{plural(seen['file'], 'file')} and {plural(seen['folder'], 'folder')}"
        await turn.say(f"{what}, looking {TREE_DEPTH} folders deep.{rest}\n")
    return {"files": seen["file"], "folders": seen["folder"]}


async def _draw(turn: Turn, path: str, seen: dict[str, int]) -> bool:
    """Draws the tree and counts into `seen`; whether that is all of it."""
    top = len(await to_thread.run_sync(turn.folder.resolve, path))
    walk = turn.folder.walk(path, depth=TREE_DEPTH)
    async with Lines(turn.run) as lines, aclosing(batches(walk)) as pieces:
        async for piece in pieces:
            for entry in piece:
                if sum(seen.values()) >= MAX_ENTRIES:
                    return False
                seen[entry.kind] += 1
                await lines.write(_tree_line(entry.name, entry.kind, len(entry.parts) - top))
    return True


async def _count(turn: Turn, glob: str) -> dict[str, Any]:
    which = f"the files that fit {clean(glob)}" if glob else "every file"
    await turn.think(f"I go through {which} once and count lines by suffix.")
    turn.begin(f"count {glob}".strip(), "Count files and lines", "Sum up")
    counts: dict[str, Count] = {}
    async with turn.phase(0):
        answer = await turn.call("count", {"glob": glob or "*"})
        pieces: AsyncGenerator[list[None]] = batches(turn.folder.count(glob, counts))
        async with aclosing(pieces):
            async for _ in pieces:
                pass
        rows = sorted(counts.items(), key=lambda item: (-item[1].lines, item[0]))
        await answer({suffix: {"files": c.files, "lines": c.lines} for suffix, c in rows})
    total = _sum(counts.values())
    async with turn.phase(1):
        if rows:
            table = [f"{'suffix':<12}{'files':>8}{'lines':>10}\n"]
            for suffix, c in [*rows, ("together", total)]:
                name = suffix if len(suffix) < 12 else suffix[:10] + "…"
                table.append(f"{name:<12}{c.files:>8,}{c.lines:>10,}\n")
            if total.binary:
                table.append(f"{plural(total.binary, 'file')} binary, and so without lines.\n")
            await turn.say("".join(table))
        else:
            await turn.say("No file fits.\n")
    return {"files": total.files, "lines": total.lines}


def _pieces(text: str, length: int = 2_000) -> list[str]:
    return [text[start : start + length] for start in range(0, len(text), length)]


def _tree_line(name: str, kind: str, depth: int) -> str:
    mark = {"folder": "/", "link": " (a link, not followed)", "other": " (no regular file)"}
    return f"{'  ' * (depth - 1)}{name}{mark.get(kind, '')}\n"


def _sum(counts: Iterable[Count]) -> Count:
    total = Count()
    for count in counts:
        total.files += count.files
        total.lines += count.lines
        total.binary += count.binary
    return total
