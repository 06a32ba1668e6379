"""`aguia chat`: a conversation with any AG-UI agent, from a prompt, a pipe or one argument."""

import asyncio
import json
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, TextIO
from uuid import uuid4

import httpx
import msgspec
from msgspec import UNSET

from aguia.cli.answers import WrongAnswer, answer_from, choices, how_to_answer
from aguia.cli.render import Renderer, one_line
from aguia.client import HttpAgent
from aguia.protocol.errors import (
    AguiaError,
    ConnectionFailed,
    DecodeError,
    InputRejected,
    InvalidInput,
    ProtocolViolation,
    TruncatedRun,
)
from aguia.protocol.input import ResumeEntry
from aguia.protocol.messages import Message, ToolCall, ToolMessage, UserMessage
from aguia.protocol.outcomes import (
    Interrupt,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
)

__all__ = ["Session", "chat", "explain"]

OK: Final = 0
FAILED: Final = 1
UNREACHABLE: Final = 2
UNFINISHED: Final = 3
INTERRUPTED: Final = 130

PULSE_SECONDS: Final = 0.2
"""How often what is shown is looked after while nothing arrives."""

LEAVE: Final = ("/quit", "/exit")

COMMAND: Final = re.compile(r"/[A-Za-z][\w-]*(\s|$)")
"""How a line begins that is for the chat; a path such as /etc/hosts is not."""

COMMANDS: Final = """\
/state      the shared state, as JSON
/messages   the conversation so far
/cancel     answer the agent's question with: never mind
/quit       leave, as quit, exit and Ctrl-D do; Ctrl-C cancels a run
Everything else goes to the agent, and so does `help`, which many agents answer."""


def chat(url: str, *, message: str, headers: Sequence[str]) -> int:
    """Talks to the agent at `url`; the exit code is one of those of `aguia.cli.main`."""
    try:
        address, fields = _address(url), dict(_field(header) for header in headers)
    except ValueError as error:
        sys.stderr.write(f"aguia: {error}\n")
        return UNREACHABLE
    # Warnings are shown where they belong in the conversation, and need not be logged as well.
    logging.getLogger("aguia").setLevel(logging.ERROR)
    with Session(address, Renderer(), headers=fields) as session:
        if message.strip():
            return session.say(message)
        if sys.stdin.isatty():
            session.renderer.note(f"Talking to {address} (/help lists what else you can type)")
            return session.prompt()
        return session.piped(sys.stdin)


class Session:
    """One thread with one agent, spoken by hand: blocking, and interruptible with Ctrl-C.

    The loop runs only while a run does, so that the prompt belongs to the main thread, and
    with it the line editor and Ctrl-C.
    """

    def __init__(
        self, url: str, renderer: Renderer, *, headers: dict[str, str] | None = None
    ) -> None:
        self.url = url
        self.renderer = renderer
        self.runs = 0
        self.events = 0
        self.seconds = 0.0
        self._runner = asyncio.Runner()
        # A proxy from the environment has no business with an agent on this machine.
        local = httpx.URL(url).host in ("localhost", "127.0.0.1", "::1")
        self._client = httpx.AsyncClient(trust_env=not local)
        self._agent = HttpAgent(
            url, headers=headers, client=self._client, on_warning=renderer.warning
        )
        self._answers: list[ResumeEntry] = []
        self._question_shown = False  # the open one, right above the prompt

    def __enter__(self) -> "Session":
        self._runner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._runner.run(self._client.aclose())
        finally:
            self._runner.__exit__(kind, error, traceback)

    # -- ways of talking ---------------------------------------------------------------

    def say(self, text: str) -> int:
        """Sends one message and shows the run; the exit code that fits."""
        if (question := self._question()) is None:
            messages = [*self._refusals(), UserMessage(id=str(uuid4()), content=text)]
            return self._run(messages)
        answers = self._answer(question, text)
        return self._run([], answers) if answers else UNFINISHED

    def prompt(self) -> int:
        """Asks for messages until /quit or Ctrl-D."""
        while True:
            self._ask()
            self.renderer.before_prompt()
            try:
                line = _input(self.renderer)
            except EOFError:
                self.renderer.typed(newline=True)
                return OK
            except KeyboardInterrupt:
                self.renderer.typed(newline=True)
                continue
            self.renderer.typed()
            if self._leaves(line.strip()):
                return OK
            if line.strip() and not self._command(line.strip()):
                self.say(line)

    def piped(self, lines: TextIO) -> int:
        """Takes each line as a message; the worst exit code of them."""
        worst = OK
        try:
            for line in lines:
                text = line.strip()
                if not text:
                    continue
                if self._leaves(text):
                    break
                self.renderer.user(text)
                if not self._command(text):
                    worst = max(worst, code := self.say(text))
                    if code in (UNREACHABLE, INTERRUPTED):
                        return code
        except KeyboardInterrupt:
            return INTERRUPTED
        return worst

    def _command(self, text: str) -> bool:
        """Does what a line with a slash asks of the chat itself; False if it asks nothing."""
        match text:
            case "/help":
                self.renderer.note(COMMANDS)
            case "/state":
                state = None if self._agent.state is UNSET else self._agent.state
                self.renderer.note(_pretty(state))
            case "/messages":
                limit = self.renderer.columns - 1 if self.renderer.columns else 160
                lines = [_message_line(message, limit) for message in self._agent.messages]
                self.renderer.note("\n".join(lines) or "No messages yet.")
            case "/cancel" if self._agent.interrupts:
                return False  # it is an answer
            case "/cancel":
                self.renderer.note("The agent asks nothing that could be cancelled.")
            case _ if COMMAND.match(text):
                name = one_line(text.split(maxsplit=1)[0], 60)
                self.renderer.note(f"{name} is an unknown command, /help lists them.")
            case _:
                return False
        return True

    def _leaves(self, text: str) -> bool:
        """Whether a line ends the conversation; a choice that the agent offers does not."""
        if text in ("quit", "exit"):
            return (question := self._question()) is None or text not in choices(question)
        return text in LEAVE

    # -- one run -----------------------------------------------------------------------

    def _run(self, messages: Sequence[Message], resume: Sequence[ResumeEntry] = ()) -> int:
        started = time.perf_counter()
        try:
            return self._runner.run(self._turn(messages, resume))
        except KeyboardInterrupt:
            self.renderer.end()
            self.renderer.note("■ Cancelled.")
            return INTERRUPTED
        finally:
            self.runs += 1
            self.seconds += time.perf_counter() - started

    async def _turn(self, messages: Sequence[Message], resume: Sequence[ResumeEntry]) -> int:
        agent = self._agent
        pulse = asyncio.create_task(self._pulse())
        try:
            async with agent.run(messages, resume=resume or None) as events:
                async for event in events:
                    self.events += 1
                    self.renderer.event(event)
        except AguiaError as error:
            self.renderer.end()
            self.renderer.error(explain(error, self.url))
            return UNREACHABLE if isinstance(error, ConnectionFailed) else FAILED
        finally:
            pulse.cancel()
        self._answers = []
        self._question_shown = len(agent.interrupts) == 1
        for call in self._left_to_chat():
            name = one_line(call.function.name, 60)
            self.renderer.note(f"The agent leaves the tool {name} to this chat, which has none.")
        if agent.error is not None:
            return FAILED
        stopped = (RunFinishedCancelledOutcome, RunFinishedInterruptOutcome)
        return UNFINISHED if isinstance(agent.outcome, stopped) else OK

    async def _pulse(self) -> None:
        try:
            while True:
                await asyncio.sleep(PULSE_SECONDS)
                self.renderer.breathe()
        except OSError:
            return  # nobody reads any more, as the next event will find out

    def _refusals(self) -> list[Message]:
        """An answer to each call that the agent left to this chat, which has no tools (FRONT-5)."""
        why = "This client has no such tool."
        return [
            ToolMessage(id=str(uuid4()), tool_call_id=call.id, content=why, error=why)
            for call in self._left_to_chat()
        ]

    def _left_to_chat(self) -> list[ToolCall]:
        """The calls that are the application's to answer; not those that wait for an approval."""
        return [] if self._agent.interrupts else self._agent.pending_tool_calls

    # -- the agent's questions ---------------------------------------------------------

    def _question(self) -> Interrupt | None:
        """The next open question; None if there is none."""
        asked = self._agent.interrupts
        return asked[len(self._answers)] if asked else None

    def _ask(self) -> None:
        """Says before a prompt which question is open, if one is, and what answers it."""
        if (question := self._question()) is None:
            return
        if not self._question_shown:
            self.renderer.note(f"? {_words_of(question)}")
        self._question_shown = False
        self.renderer.note(how_to_answer(question))

    def _answer(self, question: Interrupt, text: str) -> list[ResumeEntry]:
        """Takes `text` as the answer to the open question; all answers once they are there."""
        if text.strip() == "/cancel":
            entry = ResumeEntry(interrupt_id=question.id, status="cancelled")
        else:
            try:
                answer = answer_from(question, text)
            except WrongAnswer as error:
                self.renderer.note(f"{error}; /cancel drops the question.")
                return []
            payload = UNSET if answer is None else answer
            entry = ResumeEntry(interrupt_id=question.id, status="resolved", payload=payload)
        self._answers.append(entry)
        if len(self._answers) < len(self._agent.interrupts):
            following = self._agent.interrupts[len(self._answers)]
            self.renderer.note(f"And: {_words_of(following)}")
            self._question_shown = True
            return []
        answers, self._answers = self._answers, []
        return answers


def _words_of(question: Interrupt) -> str:
    """What an agent asks, in one line; the rest of it was shown when it came."""
    return one_line((question.message or question.reason).strip().split("\n", 1)[0])


def explain(error: AguiaError, url: str) -> str:
    """What went wrong, and what to do about it, in one line for a person."""
    match error:
        case ConnectionFailed():
            return f"Cannot connect to {url}: {_reason(error)}. `aguia serve` starts an agent."
        case InputRejected(status=404 | 405 as status):
            return f"No agent listens at {url}: it answers {status} to a POST. Check the path."
        case InputRejected(status=401 | 403 as status):
            return f"{url} answers {status}: it wants credentials; send them with --header."
        case InputRejected(status=301 | 302 | 303 | 307 | 308 as status):
            return f"{url} answers {status}: it sends elsewhere, and an agent would not; check it."
        case InputRejected():
            rule = f" [{error.rule}]" if error.rule else ""
            return f"The agent refused the request: {error}{rule}"
        case DecodeError(event_type=None, rule="HTTP-2"):
            return f"This is no stream of AG-UI events: {error.message}. Check the URL."
        case ProtocolViolation():
            rule = f" {error.rule}" if error.rule else ""
            event = "" if error.index is None else f" at event {error.index} (counted from 0)"
            kind = f", {error.event_type}" if error.event_type else ""
            path = f" at '{error.path}'" if error.path else ""
            return f"The stream breaks the rule{rule}{event}{kind}: {error.message}{path}"
        case TruncatedRun():
            return f"The run was cut off: {error}"
        case InvalidInput():
            return f"This cannot be sent: {error}"
    return str(error)


def _reason(error: BaseException) -> str:
    """Why a connection failed, in the words of the system where it said any."""
    reason = str(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup):  # one for each address that was tried
            cause = cause.exceptions[0]
        if isinstance(cause, socket.gaierror):
            reason = f"there is no such host ({cause.strerror})"
        elif isinstance(cause, OSError) and cause.errno:
            reason = os.strerror(cause.errno)
        cause = cause.__cause__ or cause.__context__
    return reason.rstrip(".")


def _address(url: str) -> str:
    """The URL of an agent, with the scheme that was left out.

    Raises:
        ValueError: it is no HTTP URL.
    """
    address = url if "://" in url else f"http://{url}"
    try:
        parsed = httpx.URL(address)
    except httpx.InvalidURL as error:
        raise ValueError(f"'{one_line(url)}' is no URL: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > 65535:
        raise ValueError(
            f"'{one_line(url)}' is no URL of an agent; write it as http://127.0.0.1:8000/"
        )
    return address


def _field(header: str) -> tuple[str, str]:
    name, colon, value = header.partition(":")
    if not colon or not name.strip() or not (header.isascii() and header.isprintable()):
        raise ValueError(f"'{one_line(header)}' is no header; write it as 'Name: value'")
    return name.strip(), value.strip()


def _input(renderer: Renderer) -> str:
    """One line from the terminal, with line editing where there is any."""
    if not sys.stdout.isatty():
        # The prompt is for the person, and the output for whatever reads it.
        sys.stderr.write("> ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")
    try:
        import readline
    except ImportError:  # pragma: no cover - Windows
        return input("> ")
    del readline  # importing it is what gives input() an editor
    # The editor has to know which characters of the prompt take no room.
    return input("\001\033[1;36m\002> \001\033[0m\002" if renderer.styled else "> ")


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _message_line(message: Message, limit: int) -> str:
    built = msgspec.to_builtins(message)
    content = built.get("content", "")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    calls = [
        f"{call['function']['name']} {call['function']['arguments']}"
        for call in built.get("toolCalls", ())
    ]
    return one_line(f"{built['role']}: {' '.join([text.strip(), *calls]).strip()}", limit)
