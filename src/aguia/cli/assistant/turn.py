"""What every answer of the assistant is made of: its plan, its tool calls, its words.

The work on files happens in a thread, a twentieth of a second at a time: the server's loop
stays free, what is found leaves as it is found, and a cancelled run stops at the next piece.
"""

import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec
from anyio import to_thread

from aguia.cli.assistant.folder import Folder, FolderError, clean
from aguia.server import Run, Speaker, TextStream, ToolCallStream

__all__ = ["VERBATIM", "Answer", "Lines", "Turn", "batches", "json_text"]

BATCH_SECONDS: Final = 0.05
"""How long the thread works before the run is looked after again."""

VERBATIM: Final = {"mimeType": "text/plain"}
"""The metadata of words that are no Markdown, so that names such as `__init__.py` stay whole."""

T = TypeVar("T")

Answer = Callable[[dict[str, Any]], Awaitable[None]]
"""Gives a tool call its result."""


class Turn:
    """One run of the assistant, and how far its plan is."""

    def __init__(self, run: Run, folder: Folder) -> None:
        self.run = run
        self.folder = folder

    # -- the plan ----------------------------------------------------------------------

    def begin(self, task: str, *plan: str, done: int = 0) -> None:
        """Puts the task and its plan into the state, with so many of its steps done already."""
        steps = [
            {"step": step, "status": "done" if index < done else "pending"}
            for index, step in enumerate(plan)
        ]
        if not isinstance(self.run.state, dict):
            self.run.state = {}
        self.run.state["task"] = clean(task)
        self.run.state["plan"] = steps

    @asynccontextmanager
    async def phase(self, index: int) -> AsyncIterator[Callable[[str], None]]:
        """One step of the plan; yields a function that says how it ended, if not as done."""
        step = self.run.state["plan"][index]
        step["status"] = "running"
        status = "done"

        def ended(how: str) -> None:
            nonlocal status
            status = how

        async with self.run.step(step["step"]):
            yield ended
        step["status"] = status

    def skip(self, index: int, why: str) -> None:
        """Marks a step of the plan that is not taken."""
        self.run.state["plan"][index]["status"] = why

    # -- words and calls ---------------------------------------------------------------

    async def think(self, words: str) -> None:
        """Reasons aloud, before anything is done."""
        async with self.run.reasoning() as thought:
            for word in re.findall(r"\S+\s*", words):
                await thought.write(word)

    async def say(self, words: str) -> None:
        """Says something, line by line."""
        async with self.run.text(metadata=VERBATIM) as text:
            for line in words.splitlines(keepends=True):
                await text.write(line)

    def tool_name(self, name: str) -> str:
        """What a tool of the assistant's is called in this run.

        The application may offer one of the same name, which it alone would answer (FRONT-1).
        """
        return f"folder_{name}" if self.run.offers(name) else name

    async def make_call(self, name: str, arguments: dict[str, Any]) -> ToolCallStream:
        """Makes a tool call, its arguments in several deltas."""
        text = json_text(arguments)
        async with self.run.tool_call(self.tool_name(name)) as call:
            for start in range(0, len(text), 12):
                await call.write(text[start : start + 12])
        return call

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        """Makes a tool call and returns what takes its result."""
        call = await self.make_call(name, arguments)

        async def answer(result: dict[str, Any]) -> None:
            await call.result(json_text(result))

        return answer

    async def refuse(self, answer: Answer, error: FolderError) -> None:
        """Answers a call that the folder did not grant."""
        await answer({"error": str(error)})
        await self.say(f"{error}\n")


class Lines:
    """A text message that is opened by its first line, so that there is none without lines."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._stack = AsyncExitStack()
        self._text: TextStream | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    async def write(self, line: str) -> None:
        """Appends a line, which brings its own line end."""
        if self._text is None:
            self._text = await self._stack.enter_async_context(
                self._speaker.text(metadata=VERBATIM)
            )
        await self._text.write(line)


async def batches(work: Generator[T | None]) -> AsyncGenerator[list[T]]:
    """What `work` yields but for None, done in a thread; a list, maybe empty, for each piece."""
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
            yield found
    finally:
        # A run that is cancelled leaves its thread behind, in the middle of a piece. It stops at
        # the next item, and the last reference to `work` closes it.
        stopped = True


def json_text(value: Any) -> str:
    """A value as JSON."""
    return msgspec.json.encode(value).decode()
