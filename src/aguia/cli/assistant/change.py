"""Replacing text in a file: shown first, asked for, and done when the answer is yes.

Nothing is kept between the run that asks and the one that is answered: the call's arguments,
which come back with the messages, say what to do and to which bytes. An answer that says yes is
the only thing that has a file written; without an answer the question is asked again (INT-5).
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from anyio import to_thread

from aguia.cli.assistant.edit import Proposal, carry_out, propose
from aguia.cli.assistant.folder import FolderError, clean
from aguia.cli.assistant.turn import Turn, json_text
from aguia.cli.words import plural
from aguia.protocol.errors import InvalidInput
from aguia.protocol.messages import ToolCall
from aguia.server import Cancelled

__all__ = ["PATIENCE", "Approval", "replace", "settle"]

PATIENCE: Final = timedelta(hours=1)
"""How long a question stands. The file may change meanwhile, and then nothing is written."""

PLAN: Final = ("Find the text", "Ask for approval", "Write the file")

USAGE: Final = """\
Write it on one line, with quotes around what has spaces in it:

  replace X with Y in FILE
  replace "two words" with "three of them" in "my notes.txt"
"""


class Approval(msgspec.Struct, frozen=True):
    """The answer to the question whether a change is to be made."""

    approved: bool


class _Order(msgspec.Struct, frozen=True):
    """The arguments of a call: what to put in place of what, in this version of a file."""

    file: str
    find: str
    replace: str
    version: str

    @property
    def task(self) -> str:
        return f"replace “{self.find}” with “{self.replace}” in {self.file}"


async def replace(turn: Turn, path: str, words: tuple[str, ...]) -> dict[str, Any] | None:
    """Shows what would change and asks; nothing is written in this run."""
    if not words:
        await turn.say(USAGE)
        return None
    find, replacement = words
    await turn.think(
        f"I show what would change in {clean(path)}, and write nothing before somebody agrees."
    )
    turn.begin(f"replace “{find}” with “{replacement}” in {path}", *PLAN)
    wanted: dict[str, Any] = {"file": path, "find": find, "replace": replacement}
    async with turn.phase(0) as ended:
        try:
            proposal = await to_thread.run_sync(propose, turn.folder, path, find, replacement)
        except FolderError as error:
            ended("failed")
            answer = await turn.call("replace", wanted)
            await turn.refuse(answer, error)
            return {"replaced": 0}
    async with turn.phase(1) as ended:
        order = _Order(proposal.path, find, replacement, proposal.version)
        call = await turn.make_call("replace", msgspec.to_builtins(order))
        _ask(turn, call.tool_call_id, _question(order, proposal))
        ended("waiting")
    return None


async def settle(turn: Turn) -> bool:
    """Deals with the changes that were asked about and not answered; whether there were any."""
    # A tool of the application's that has the same name is the application's to answer.
    names = {"replace", "folder_replace"} - {tool.name for tool in turn.run.tools}
    orders = [call for call in turn.run.unanswered_calls if call.function.name in names]
    for call in orders:
        await _settle(turn, call)
    return bool(orders)


async def _settle(turn: Turn, call: ToolCall) -> None:
    try:
        order = msgspec.json.decode(call.function.arguments, type=_Order)
    except msgspec.DecodeError:
        order = None
    why = ""
    try:
        answer = turn.run.resume.answer(call.id, Approval)
    except InvalidInput as error:
        # An answer of another form approves nothing, and declines nothing.
        answer, why = None, f"I could not use the answer ({error.message}). "
    turn.begin(order.task if order else "replace", *PLAN, done=1 if answer is None else 2)
    if answer is None:
        async with turn.phase(1) as ended:
            await turn.say(f"{why}Before anything else: is the change to be made?\n")
            _ask(turn, call.id, await _question_again(turn, order))
            ended("waiting")
        return
    if isinstance(answer, Cancelled) or not answer.approved:
        turn.skip(2, "declined")
        how = "The question was dropped" if isinstance(answer, Cancelled) else "It was declined"
        await _answer(turn, call.id, {"replaced": 0, "declined": how})
        await turn.say(f"{how}, so I changed nothing.\n")
        return
    async with turn.phase(2) as ended:
        try:
            if order is None:
                raise FolderError("I cannot read what the call asks for, and changed nothing.")
            done = await to_thread.run_sync(
                carry_out, turn.folder, order.file, order.find, order.replace, order.version
            )
        except FolderError as error:
            ended("failed")
            await _answer(turn, call.id, {"replaced": 0, "error": str(error)})
            await turn.say(f"{error}\n")
            return
        await _answer(turn, call.id, {"replaced": done.occurrences, "file": done.path})
        await turn.say(
            f"Done: {plural(done.occurrences, 'occurrence')} of “{clean(order.find)}” replaced in "
            f"{done.path}.\n"
        )
        turn.run.result = {"replaced": done.occurrences}


def _ask(turn: Turn, call_id: str, question: str) -> None:
    turn.run.interrupt(
        "approval",
        message=question,
        tool_call_id=call_id,
        response_type=Approval,
        expires_at=datetime.now(UTC).replace(microsecond=0) + PATIENCE,
    )


def _question(order: _Order, proposal: Proposal) -> str:
    return (
        f"Shall I replace {plural(proposal.occurrences, 'occurrence')} of “{clean(order.find)}” "
        f"with “{clean(order.replace)}” in {proposal.path}?\n\n{proposal.diff}"
    )


async def _question_again(turn: Turn, order: _Order | None) -> str:
    """The question, as things stand now."""
    if order is None:
        return "I cannot read what the call asks for. Whatever you answer, I write nothing."
    try:
        proposal = await to_thread.run_sync(
            propose, turn.folder, order.file, order.find, order.replace
        )
    except FolderError as error:
        return f"{error} Whatever you answer, I write nothing."
    if proposal.version != order.version:
        return (
            f"'{proposal.path}' has changed since the change was shown. Whatever you answer, I "
            "write nothing; decline, and ask again."
        )
    return _question(order, proposal)


async def _answer(turn: Turn, call_id: str, result: dict[str, Any]) -> None:
    """The result of a call that an earlier run has made (TOOL-6)."""
    await turn.run.emit(
        {
            "type": "TOOL_CALL_RESULT",
            "messageId": f"result-{call_id}",
            "toolCallId": call_id,
            "content": json_text(result),
        }
    )
