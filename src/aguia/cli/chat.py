"""`aguia chat`: a conversation with any AG-UI agent, from a prompt, a pipe or one argument."""

import asyncio
import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TextIO
from uuid import uuid4

import httpx
import msgspec
from msgspec import UNSET

from aguia.cli.address import headers_of, is_local, shown, url_of
from aguia.cli.answers import WrongAnswer, answer_from, choices, decision, how_to_answer
from aguia.cli.failures import (
    FAILED,
    INTERRUPTED,
    OK,
    UNFINISHED,
    UNREACHABLE,
    explain,
)
from aguia.cli.files import attached, described, with_files
from aguia.cli.forms import Field, Form
from aguia.cli.inputs import declined
from aguia.cli.render import Renderer
from aguia.cli.safe import one_line
from aguia.cli.tools import Consents, load_tools
from aguia.cli.tty import Interrupted, Left, forget_typed, hushed, interactive
from aguia.cli.words import plural
from aguia.client import FunctionTool, HttpAgent
from aguia.protocol.capabilities import AgentCapabilities
from aguia.protocol.content import ContentPart, TextPart
from aguia.protocol.errors import AguiaError, ConnectionFailed
from aguia.protocol.events import Event, RunStartedEvent, ToolCallResultEvent
from aguia.protocol.input import ResumeEntry
from aguia.protocol.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguia.protocol.outcomes import (
    Interrupt,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
)

if TYPE_CHECKING:
    from aguia.cli.prompt import Editor

__all__ = ["Options", "Session", "chat"]

PULSE_SECONDS: Final = 0.1
"""How often what is shown is looked after while nothing arrives."""

TWICE_SECONDS: Final = 2.0
"""Ctrl-C twice within this time leaves."""

LEAVE: Final = ("/quit", "/exit")

COMMAND: Final = re.compile(r"/[A-Za-z][\w-]*(\s|$)")
"""How a line begins that is for the chat; a path such as /etc/hosts is not."""

COMMANDS: Final = {
    "/state": "the shared state, as JSON",
    "/messages": "the conversation so far",
    "/tools": "the tools that the agent is offered, and those it says it has",
    "/image FILE [TEXT]": "send a file along, as @FILE in a message does",
    "/save FILE": "write the conversation to a file, which --load takes up again",
    "/new": "begin a new conversation",
    "/cancel": "answer the agent's question with: never mind",
    "/quit": "leave, as quit, exit and Ctrl-D do; Ctrl-C cancels a run",
}

HELP: Final = "\n".join(
    [
        *(f"{command:<20}{what}" for command, what in COMMANDS.items()),
        "Alt-Enter, or a backslash at the end of a line, begins another line.",
        "Everything else goes to the agent, and so does `help`, which many agents answer.",
    ]
)

FIELD_BY_FIELD: Final = "Enter leaves out what is optional; /cancel drops the question."

WITH_FILE: Final = ("/image", "/save")


@dataclass(frozen=True, slots=True)
class Options:
    """How a chat is held.

    Attributes:
        headers: sent along, each as "Name: value".
        tools: the module or file whose functions are offered to the agent; empty for none.
        allowed: the tools that may run without being asked about.
        load: a conversation that `/save` has written, to go on with.
        plain: text is shown as it comes, and not as Markdown.
        keep_history: what is typed is kept for the next time.
    """

    headers: Sequence[str] = ()
    tools: str = ""
    allowed: Sequence[str] = ()
    load: str = ""
    plain: bool = False
    keep_history: bool = True


def chat(url: str, *, message: str, options: Options) -> int:
    """Talks to the agent at `url`; the exit code is one of those of `aguia.cli.main`."""
    try:
        address, headers = url_of(url), headers_of(options.headers)
        tools = load_tools(options.tools) if options.tools else []
        for name in options.allowed:
            if all(tool.name != name for tool in tools):
                raise ValueError(f"--yes {one_line(name)}: no tool of that name is offered")
        history = _loaded(options.load) if options.load else None
    except ValueError as error:
        sys.stderr.write(f"aguia: {error}\n")
        return UNREACHABLE
    # Warnings are shown where they belong in the conversation, and need not be logged as well.
    logging.getLogger("aguia").setLevel(logging.ERROR)
    try:
        opened = Session(
            address,
            Renderer(markdown=not options.plain),
            headers=headers,
            tools=tools,
            allowed=options.allowed,
            history=history,
            keep_history=options.keep_history,
        )
    except (AguiaError, TypeError, ValueError) as error:
        if history is None:
            raise
        sys.stderr.write(f"aguia: {one_line(options.load)}: {one_line(str(error))}\n")
        return UNREACHABLE
    with opened as session:
        if message.strip():
            return session.say(message, files=True)
        if sys.stdin.isatty():
            session.renderer.note(
                f"Talking to {shown(address)} (/help lists what else you can type)"
            )
            session.greet()
            return session.prompt()
        return session.piped(sys.stdin)


class Session:
    """One thread with one agent, spoken by hand: blocking, and interruptible with Ctrl-C.

    The loop runs only while a run does or something is typed.

    Args:
        url: where the agent is.
        renderer: shows the conversation.
        headers: sent with every request.
        tools: offered to the agent; the person is asked before one runs, unless it only reads.
        allowed: names of tools that are not asked about.
        history: a conversation to go on with, as `Agent.history` gives it.
        keep_history: what is typed is kept in a file for the next time.
    """

    def __init__(
        self,
        url: str,
        renderer: Renderer,
        *,
        headers: dict[str, str] | None = None,
        tools: Sequence[FunctionTool] = (),
        allowed: Iterable[str] = (),
        history: dict[str, Any] | None = None,
        keep_history: bool = True,
    ) -> None:
        self.url = url
        self.renderer = renderer
        self.runs: int = 0
        self.events: int = 0
        self.seconds: float = 0.0
        self._runner = asyncio.Runner()
        # A proxy from the environment has no business with an agent on this machine.
        self._client = httpx.AsyncClient(trust_env=not is_local(url))
        self._headers = headers
        self._tools = tools
        self._keep_history = keep_history
        self._editor: Editor | None = None
        self._consents = Consents(renderer, self._ask_consent if interactive() else None, allowed)
        self._agent = self._new_agent(history)
        self._answers: list[ResumeEntry] = []
        self._question_shown = False  # the open one, right above the prompt
        self._interrupted = float("-inf")  # when Ctrl-C was last pressed
        renderer.call_of = self._call_of
        renderer.read_only = {tool.name for tool in tools if tool.read_only}

    def _new_agent(self, history: dict[str, Any] | None) -> HttpAgent:
        return HttpAgent(
            self.url,
            headers=self._headers,
            client=self._client,
            tools=self._tools,
            consent=self._consents,
            history=history,
            # Ctrl-C is at hand.
            tool_timeout=None,
            on_warning=self.renderer.warning,
        )

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

    def say(self, text: str, *, files: bool = False) -> int:
        """Sends one message, or answers a question, and shows the run; the exit code that fits.

        `files`: what the message mentions as @FILE is sent along.
        """
        if (question := self._question()) is not None:
            answers = self._answer(question, text)
            return self._run([], answers) if answers else UNFINISHED
        try:
            content = with_files(text) if files else text
        except ValueError as error:
            self.renderer.error(str(error))
            return UNREACHABLE
        return self._send(content)

    def prompt(self) -> int:
        """Asks for messages until /quit or Ctrl-D."""
        if interactive():
            self._editor = self._new_editor()
        while True:
            question = self._question()
            try:
                if question is None or self._editor is None:
                    self._ask()
                    self.renderer.before_prompt()
                    line = self._line()
                    self._interrupted = float("-inf")
                    self.renderer.typed()
                    if self._leaves(line.strip()):
                        return OK
                    code = OK
                    if line.strip() and not self._command(line.strip()):
                        code = self.say(line, files=True)
                else:
                    answers = self._filled_in(question)
                    code = self._run([], answers) if answers else OK
                if code == INTERRUPTED:
                    raise Interrupted
            except Left:
                self.renderer.typed()
                return OK
            except (Interrupted, KeyboardInterrupt):
                self.renderer.typed()
                if self._twice():
                    return INTERRUPTED
                self.renderer.note("Ctrl-C once more leaves, and so do Ctrl-D and /quit.")

    def greet(self) -> None:
        """Says what was taken up, and what is asked, where the conversation is not new."""
        if self._agent.messages:
            held = plural(len(self._agent.messages), "message")
            self.renderer.note(f"Going on with {held}; /messages shows them.")
        for question in self._agent.interrupts:
            self.renderer.question(question)
        self._question_shown = len(self._agent.interrupts) == 1

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

    def _new_editor(self) -> "Editor":
        from aguia.cli.prompt import Editor, default_history

        return Editor(
            styled=self.renderer.styled,
            history=default_history() if self._keep_history else None,
            commands=["/help", *(command.split()[0] for command in COMMANDS), "/exit"],
            files=WITH_FILE,
        )

    def _line(self) -> str:
        """What the person says. Raises `Left` and `Interrupted`."""
        if self._editor is not None:
            return self._runner.run(self._editor.message())
        # The prompt is for the person, and the output for whatever reads it.
        sys.stderr.write("> ")
        sys.stderr.flush()
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            raise Interrupted from None
        if not line:
            raise Left
        return line.rstrip("\n")

    def _twice(self) -> bool:
        """Takes note of a Ctrl-C; whether it came right after another."""
        before, self._interrupted = self._interrupted, time.monotonic()
        return self._interrupted - before < TWICE_SECONDS

    # -- commands ----------------------------------------------------------------------

    def _command(self, text: str) -> bool:
        """Does what a line with a slash asks of the chat itself; False if it asks nothing."""
        name, _, rest = text.partition(" ")
        rest = rest.strip()
        match name:
            case "/help" if not rest:
                self.renderer.note(HELP)
            case "/state" if not rest:
                state = None if self._agent.state is UNSET else self._agent.state
                self.renderer.note(_pretty(state))
            case "/messages" if not rest:
                limit = self.renderer.columns - 1 if self.renderer.columns else 160
                lines = [_message_line(message, limit) for message in self._agent.messages]
                self.renderer.note("\n".join(lines) or "No messages yet.")
            case "/tools" if not rest:
                self._show_tools()
            case "/new" if not rest:
                self._agent, self._answers = self._new_agent(None), []
                self.renderer.note("A new conversation.")
            case "/save" if rest:
                self._save(rest)
            case "/image" if rest:
                self._send_file(rest)
            case "/save" | "/image":
                self.renderer.note(f"{name} needs a file, as in: {name} FILE")
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

    def _show_tools(self) -> None:
        """Which tools the agent is offered, and which it declares to have itself."""
        if self._tools:
            self.renderer.note("Offered to the agent:")
        for tool in self._tools:
            how = "runs without asking: it only reads" if tool.read_only else "asks you first"
            about = (tool.description or "").strip().split("\n", 1)[0]
            words = f": {one_line(about)}" if about else ""
            self.renderer.listing([f"  {tool.name}{words} ({how})"])
        if not self._tools:
            self.renderer.note("The agent is offered no tools; --tools offers those of a module.")
        declared = self._capabilities()
        own = declared.tools.items if declared is not None and declared.tools else UNSET
        if own:
            self.renderer.note("The agent's own:")
            self.renderer.listing(
                [f"  {one_line(tool.name, 60)}: {one_line(tool.description)}" for tool in own]
            )

    def _capabilities(self) -> AgentCapabilities | None:
        """What the agent declares of itself; None if it declares nothing (CAP-1)."""
        try:
            return self._runner.run(self._agent.capabilities())
        except AguiaError as error:
            self.renderer.note(f"What the agent declares cannot be read: {one_line(str(error))}")
        except KeyboardInterrupt:
            pass
        return None

    def _send_file(self, rest: str) -> None:
        path, text = _path_and_text(rest)
        if self._question() is not None:
            self.renderer.note("The agent waits for an answer first; /cancel drops its question.")
            return
        try:
            part = attached(path)
        except ValueError as error:
            self.renderer.note(str(error))
            return
        content: list[ContentPart] = [TextPart(text=text)] if text else []
        code = self._send([*content, part])
        if code == INTERRUPTED:
            self._twice()

    def _save(self, rest: str) -> None:
        """Writes the conversation to a file, and over another only if the person says so."""
        name, _ = _path_and_text(rest, whole=True)
        path = Path(name).expanduser()
        text = json.dumps(self._agent.history(), indent=2, ensure_ascii=False)
        data = f"{text}\n".encode("utf-8", "backslashreplace")
        try:
            if path.exists():
                if self._editor is None:
                    self.renderer.note(f"{one_line(name)} is there already; nothing is written.")
                    return
                label = f"Write over {one_line(name, 30)}, yes or no?"
                try:
                    typed = self._runner.run(self._editor.answer(label))
                except (Interrupted, Left):
                    typed = "no"
                self.renderer.typed()
                if typed.strip().casefold() not in ("y", "yes"):
                    self.renderer.note("Nothing is written.")
                    return
            path.write_bytes(data)
        except OSError as error:
            self.renderer.note(f"Cannot write {one_line(name)}: {error.strerror}")
            return
        held = plural(len(self._agent.messages), "message")
        self.renderer.note(f"Saved {held} to {one_line(name)}.")

    # -- one run -----------------------------------------------------------------------

    def _send(self, content: str | Sequence[ContentPart]) -> int:
        if not isinstance(content, str):
            content = list(content)
            along = [described(part) for part in content if not isinstance(part, TextPart)]
            self.renderer.listing([f"with {words}" for words in along], "aside")
        said = UserMessage(id=str(uuid4()), content=content)
        return self._run([*self._refusals(), said])

    def _run(self, messages: Sequence[Message], resume: Sequence[ResumeEntry] = ()) -> int:
        started = time.perf_counter()
        try:
            with hushed():
                return self._runner.run(self._turn(messages, resume))
        except KeyboardInterrupt:
            forget_typed()
            self.renderer.end()
            self.renderer.note("■ Cancelled.")
            return INTERRUPTED
        finally:
            self._answers = []
            self.runs += 1
            self.seconds += time.perf_counter() - started

    async def _turn(self, messages: Sequence[Message], resume: Sequence[ResumeEntry]) -> int:
        agent = self._agent
        pulse = asyncio.create_task(self._pulse())
        answered = {message.id for message in agent.messages if isinstance(message, ToolMessage)}
        self.renderer.begin()
        try:
            async with agent.run(messages, resume=resume or None) as events:
                async for event in events:
                    self.events += 1
                    self._show(event, answered)
        except AguiaError as error:
            self.renderer.end()
            self.renderer.error(explain(error, self.url))
            return UNREACHABLE if isinstance(error, ConnectionFailed) else FAILED
        finally:
            pulse.cancel()
        self._question_shown = len(agent.interrupts) == 1
        for call in self._left_to_chat():
            name = one_line(call.function.name, 60)
            self.renderer.note(f"The agent leaves the tool {name} to this chat, which has none.")
        if agent.error is not None:
            return FAILED
        stopped = (RunFinishedCancelledOutcome, RunFinishedInterruptOutcome)
        return UNFINISHED if isinstance(agent.outcome, stopped) else OK

    def _show(self, event: Event, answered: set[str]) -> None:
        """Shows an event, and before a run that follows what its tools were answered."""
        if isinstance(event, ToolCallResultEvent):
            answered.add(event.message_id)
        if isinstance(event, RunStartedEvent):
            for message in self._agent.messages:
                if isinstance(message, ToolMessage) and message.id not in answered:
                    answered.add(message.id)
                    self.renderer.answered(message)
            self.renderer.begin()
        self.renderer.event(event)

    async def _pulse(self) -> None:
        try:
            while True:
                await asyncio.sleep(PULSE_SECONDS)
                self.renderer.breathe()
        except OSError:
            return  # nobody reads any more, as the next event will find out

    def _refusals(self) -> list[Message]:
        """An answer to each call that the agent left to this chat and no tool of it answered."""
        return [declined(call) for call in self._left_to_chat()]

    def _left_to_chat(self) -> list[ToolCall]:
        """The calls that are the application's to answer; not those that wait for an approval."""
        return [] if self._agent.interrupts else self._agent.pending_tool_calls

    def _call_of(self, call_id: str) -> ToolCall | None:
        """The call of the thread with this id."""
        for message in reversed(self._agent.messages):
            if isinstance(message, AssistantMessage):
                for call in message.tool_calls or ():
                    if call.id == call_id:
                        return call
        return None

    async def _ask_consent(self, label: str) -> str | None:
        """What was typed when asked for consent; None for Ctrl-C and Ctrl-D."""
        editor = self._editor or self._new_editor()
        self.renderer.before_prompt()
        # A word that was typed before there was a question consents to nothing.
        editor.forget_typed()
        try:
            with self.renderer.paused():
                return await editor.answer(label)
        except (Interrupted, Left):
            return None
        finally:
            self.renderer.typed()

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

    def _filled_in(self, question: Interrupt) -> list[ResumeEntry]:
        """Asks for the answer field by field; all answers once they are there (INT-2, INT-7).

        Raises `Left` and `Interrupted`.
        """
        assert self._editor is not None
        if not self._question_shown:
            self.renderer.note(f"? {_words_of(question)}")
        self._question_shown = False
        self._editor.forget_typed()
        form = Form(question.response_schema, question.message or "")
        one = decision(question) is not None or (form.field is not None and not form.field.name)
        self.renderer.note(how_to_answer(question) if one else FIELD_BY_FIELD)
        shown: Field | None = None
        while (field := form.field) is not None:
            # After a command the field is shown again, and its problem is no news any more.
            again = replace(field, problem="") if field is shown else field
            self._show_field(again, expects=not one)
            shown, one = field, False
            self.renderer.before_prompt()
            text = self._runner.run(self._editor.answer(field.label))
            self._interrupted = float("-inf")
            self.renderer.typed()
            if text.strip() == "/cancel":
                return self._answered(ResumeEntry(interrupt_id=question.id, status="cancelled"))
            if text.strip() in LEAVE:
                raise Left
            if text.startswith("/") and self._command(text.strip()):
                if self._question() is not question:
                    return []  # it is another conversation
                continue
            form.answer(text)
        payload = UNSET if form.value is None else form.value
        return self._answered(
            ResumeEntry(interrupt_id=question.id, status="resolved", payload=payload)
        )

    def _show_field(self, field: Field, *, expects: bool) -> None:
        """What is asked for and, if it has not just been said, what it takes."""
        if field.problem:
            self.renderer.note(f"! {one_line(field.problem, 600)}")
        self.renderer.listing([f"  {line}" for line in field.about], "text")
        notes = [field.expects] if expects else []
        if field.default is not UNSET:
            notes.append(f"default: {one_line(_brief(field.default), 80)}")
        elif field.optional:
            notes.append("optional")
        if told := one_line("; ".join(note for note in notes if note), 600):
            self.renderer.listing([f"  ({told})"], "aside")

    def _answer(self, question: Interrupt, text: str) -> list[ResumeEntry]:
        """Takes `text` as the answer to the open question; all answers once they are there."""
        if text.strip() == "/cancel":
            return self._answered(ResumeEntry(interrupt_id=question.id, status="cancelled"))
        try:
            answer = answer_from(question, text)
        except WrongAnswer as error:
            self.renderer.note(f"{error}; /cancel drops the question.")
            return []
        payload = UNSET if answer is None else answer
        return self._answered(
            ResumeEntry(interrupt_id=question.id, status="resolved", payload=payload)
        )

    def _answered(self, entry: ResumeEntry) -> list[ResumeEntry]:
        """Keeps an answer until all questions have theirs; then gives them all."""
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


def _loaded(name: str) -> dict[str, Any]:
    """A conversation that was saved.

    Raises:
        ValueError: there is no such file, or no conversation in it.
    """
    try:
        data = Path(name).expanduser().read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {one_line(name)}: {error.strerror}") from error
    try:
        history: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{one_line(name)} holds no conversation that was saved here: {one_line(str(error))}"
        ) from error
    return history


def _path_and_text(rest: str, *, whole: bool = False) -> tuple[str, str]:
    """A path, in quotation marks where it has spaces, and what follows it."""
    if rest.startswith(('"', "'")) and (end := rest.find(rest[0], 1)) > 0:
        return rest[1:end], rest[end + 1 :].strip()
    if whole or os.path.isfile(os.path.expanduser(rest)):
        return rest, ""
    path, _, text = rest.partition(" ")
    return path, text.strip()


def _brief(value: Any) -> str:
    return value if isinstance(value, str) else _pretty(value).replace("\n", " ")


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
