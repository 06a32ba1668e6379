"""Opening a file where the person is: by a tool of the application's, if it offers one."""

from typing import Any, Final

import msgspec
from anyio import to_thread

from aguia.cli.assistant.folder import FolderError, clean
from aguia.cli.assistant.turn import Turn
from aguia.protocol.content import TextPart
from aguia.protocol.messages import AssistantMessage, Message, ToolCall, ToolMessage

__all__ = ["OPEN_FILE", "open_file", "report"]

OPEN_FILE: Final = "open_file"
"""The application's tool that opens a file; its argument `path` is relative to the folder."""

PLAN: Final = ("Find the file", "Leave it to the application")


async def open_file(turn: Turn, path: str) -> dict[str, Any] | None:
    """Leaves a call of the tool to the application, which answers with its next run."""
    await turn.think(
        f"I cannot open windows myself. If the application offers a tool named {OPEN_FILE}, I "
        f"call it for {clean(path)}."
    )
    turn.begin(f"open {path}", *PLAN)
    async with turn.phase(0) as ended:
        try:
            found = await to_thread.run_sync(turn.folder.file_at, path)
        except FolderError as error:
            ended("failed")
            await turn.say(f"{error}\n")
            return {"opened": False}
    async with turn.phase(1) as ended:
        if not turn.run.offers(OPEN_FILE):
            ended("failed")
            await turn.say(
                f"Your application offers no tool named {OPEN_FILE}, so I cannot open {found} "
                f"for you. `read {found}` shows it here.\n"
            )
            return {"opened": False}
        await turn.run.call(OPEN_FILE, {"path": found})
        ended("waiting")
    return None


async def report(turn: Turn, new: list[Message]) -> bool:
    """Says what the application answered to such calls; whether it has answered any."""
    answers = [
        (call, message)
        for message in new
        if isinstance(message, ToolMessage)
        if (call := _call_of(turn, message.tool_call_id)) is not None
    ]
    for call, message in answers:
        path = _path_of(call)
        turn.begin(f"open {path}", *PLAN, done=1)
        async with turn.phase(1) as ended:
            if message.error:
                ended("failed")
                await turn.say(f"The application did not open {path}: {clean(message.error)}\n")
            else:
                said = clean(_text(message)) or "nothing more"
                await turn.say(f"The application reports for {path}: {said}\n")
    return bool(answers)


def _call_of(turn: Turn, tool_call_id: str) -> ToolCall | None:
    """The call of `open_file` with this id, as the messages hold it."""
    return next(
        (
            call
            for message in turn.run.messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls or ()
            if call.id == tool_call_id and call.function.name == OPEN_FILE
        ),
        None,
    )


def _path_of(call: ToolCall) -> str:
    try:
        path = msgspec.json.decode(call.function.arguments, type=dict[str, Any]).get("path")
    except msgspec.DecodeError:
        path = None
    return clean(path) if isinstance(path, str) else "the file"


def _text(message: ToolMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return " ".join(part.text for part in message.content if isinstance(part, TextPart))
