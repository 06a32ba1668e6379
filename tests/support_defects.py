"""A server with known defects, one at a time, to be found by who probes it.

The server is a good one with something in front of it that spoils it. `DEFECTS` says which
probes have to notice what, and how; all others have to pass.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aguia.codec import frames, sse
from aguia.protocol.errors import InvalidInput
from aguia.protocol.input import RunAgentInput
from aguia.server import AgentApp, Run
from aguia.server.intake import read_input

__all__ = ["ANSWERS", "DEFECTS", "Defect", "DefectiveApp", "good_agent"]

ANSWERS: Final = {"tool": "show", "tool_message": "show it", "interrupt_message": "ask me"}
"""What leads the agent to a frontend tool, and to an interrupt."""


async def good_agent(run: Run) -> None:
    """Answers, calls the frontend's tool or asks for approval, as it is told to."""
    waiting = [call for call in run.unanswered_calls if call.function.name == "delete"]
    for call in waiting:
        if run.resume.answer(call.id) is None:
            run.interrupt("approval", message="May I?", tool_call_id=call.id)
    if waiting:
        return
    last = run.messages[-1] if run.messages else None
    content = getattr(last, "content", "")
    if content == "show it" and run.tools:
        await run.call(run.tools[0].name, {"note": "x"})
    elif content == "ask me":
        async with run.tool_call("delete", "{}") as made:
            pass
        run.interrupt("approval", message="May I?", tool_call_id=made.tool_call_id)
    else:
        async with run.text() as text:
            await text.write("Hello.")


Event = dict[str, Any]


def _unchanged(body: bytes) -> bytes | int:
    return body


@dataclass(frozen=True)
class Defect:
    """Something that is wrong with a server.

    Attributes:
        failed, warned, skipped: the probes that have to end so.
        input: sees the body and the `Accept` of a request and returns the body that the good
            server gets, or the status of a refusal.
        event: sees an event and the run input, and returns what goes out instead.
        head: what becomes of the answer's headers.
        line_end: what lines end with.
        stays_open: whether the body is left open.
        breaks_after_leaving: whether the request after a client that left is answered by 500.
        refusal_type: the content type of refusals.
        only: the probes that are worth their time; by default all.
        idle: seconds that a client waits before it comes back.
        agent: in place of the good one.
        accept: in place of the header that came.
    """

    failed: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    input: Callable[[bytes], bytes | int] = _unchanged
    event: Callable[[Event, Event], list[Event]] = lambda event, input: [event]
    head: Callable[[str], str] = lambda content_type: content_type
    line_end: bytes = b"\n"
    stays_open: bool = False
    breaks_after_leaving: bool = False
    refusal_type: str = "text/plain"
    only: tuple[str, ...] = ()
    idle: float = 0.05
    accept: Callable[[str], str] = lambda accept: accept
    agent: Callable[[Run], Any] = good_agent

    @property
    def sees_input(self) -> bool:
        """Whether the defect is in how inputs are taken."""
        return self.input is not _unchanged


@dataclass
class DefectiveApp:
    """An ASGI application with one of the defects at the path of its name."""

    apps: dict[str, ASGIApp] = field(
        default_factory=lambda: {name: AgentApp(each.agent) for name, each in DEFECTS.items()}
    )
    broken: set[str] = field(default_factory=set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] != "http":
            return
        name = scope["path"].strip("/")
        defect = DEFECTS[name]
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        changed = 500 if name in self.broken else defect.input(body)
        if isinstance(changed, int):
            self.broken.discard(name)
            headers = [(b"content-type", defect.refusal_type.encode())]
            await send({"type": "http.response.start", "status": changed, "headers": headers})
            await send({"type": "http.response.body", "body": b"no"})
            return
        try:
            given = json.loads(changed)
        except ValueError:
            given = {}
        waiting = [{"type": "http.request", "body": changed, "more_body": False}]

        async def receive_again() -> Message:
            if waiting:
                return waiting.pop()
            message = await receive()
            left = message["type"] == "http.disconnect" and not out.complete
            if left and defect.breaks_after_leaving:
                self.broken.add(name)
            return message

        out = _Out(defect, given, send)
        headers = [
            (key, defect.accept(value.decode()).encode() if key == b"accept" else value)
            for key, value in scope["headers"]
            if key != b"content-length"
        ]
        await self.apps[name]({**scope, "path": "/", "headers": headers}, receive_again, out.send)
        if defect.stays_open and out.streams:
            while (await receive())["type"] != "http.disconnect":
                pass


class _Out:
    """An answer on its way out, spoilt."""

    def __init__(self, defect: Defect, given: Event, send: Send) -> None:
        self.streams = False
        self.complete = False
        self._defect = defect
        self._given = given
        self._send = send
        self._binary = False
        self._decoder = sse.SseDecoder()

    async def send(self, message: Message) -> None:
        defect = self._defect
        self.complete = message["type"] == "http.response.body" and not message.get("more_body")
        if message["type"] == "http.response.start":
            kind = dict(message["headers"]).get(b"content-type", b"").decode()
            self.streams = kind == sse.CONTENT_TYPE
            headers = [(b"content-type", defect.head(kind).encode())]
            await self._send({**message, "headers": headers})
            return
        if not self.streams:
            await self._send(message)
            return
        out = []
        for data in self._decoder.feed(message.get("body", b"")):
            for event in defect.event(json.loads(data), self._given):
                out.append(b"data: " + json.dumps(event).encode() + 2 * defect.line_end)
        more = message.get("more_body", False)
        if out or not (more or defect.stays_open):
            keep = more or defect.stays_open
            await self._send(
                {"type": "http.response.body", "body": b"".join(out), "more_body": keep}
            )


# The defects


def _accepts_anything(body: bytes) -> bytes | int:
    try:
        read_input(body)
    except InvalidInput as error:
        if error.rule != "VER-2":
            return b'{"threadId": "t", "runId": "r", "messages": []}'
    return body


def _fails_on_malformed(body: bytes) -> bytes | int:
    try:
        read_input(body)
    except InvalidInput:
        return 500
    return body


def _strict(body: bytes) -> bytes | int:
    try:
        msgspec.json.decode(body, type=RunAgentInput)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 422
    return body


def _requires(*names: str) -> Callable[[bytes], bytes | int]:
    def check(body: bytes) -> bytes | int:
        try:
            given = json.loads(body)
        except ValueError:
            return 422
        if not isinstance(given, dict) or any(name not in given for name in names):
            return 422
        return body

    return check


def _knows_one_version(body: bytes) -> bytes | int:
    try:
        version = json.loads(body).get("protocolVersion", "1.0")
    except (ValueError, AttributeError):
        return 400
    return body if version == "1.0" else 400


def _refuses_resume(body: bytes) -> bytes | int:
    return 400 if b"probe-never-raised" in body else body


def _forgets_to_say(event: Event, given: Event) -> list[Event]:
    if event["type"] == "RUN_STARTED":
        event.pop("protocolVersion", None)
    return [event]


def _echoes(event: Event, given: Event) -> list[Event]:
    if event["type"] == "RUN_STARTED" and given.get("protocolVersion") == "1.99":
        event["protocolVersion"] = "1.99"
    return [event]


def _other_ids(event: Event, given: Event) -> list[Event]:
    if event["type"] in ("RUN_STARTED", "RUN_FINISHED"):
        event["runId"] = "mine"
    return [event]


def _no_end(event: Event, given: Event) -> list[Event]:
    return [] if event["type"] == "RUN_FINISHED" else [event]


def _answers_the_tool(event: Event, given: Event) -> list[Event]:
    if event["type"] == "TOOL_CALL_END" and given.get("tools"):
        id_ = event["toolCallId"]
        result = {"messageId": f"r-{id_}", "toolCallId": id_, "content": "done"}
        return [event, {"type": "TOOL_CALL_RESULT", **result}]
    if event["type"] == "RUN_FINISHED":
        outcome = event.get("outcome", {})
        outcome.pop("pendingToolCallIds", None)
    return [event]


def _names_the_wrong_call(event: Event, given: Event) -> list[Event]:
    outcome = event.get("outcome", {})
    if outcome.get("pendingToolCallIds"):
        outcome["pendingToolCallIds"] = ["another"]
    return [event]


def _names_no_call(event: Event, given: Event) -> list[Event]:
    if event["type"] == "RUN_FINISHED":
        event.get("outcome", {}).pop("pendingToolCallIds", None)
    return [event]


async def _abandons(run: Run) -> None:
    if any(call.function.name == "delete" for call in run.unanswered_calls):
        async with run.text() as text:
            await text.write("Never mind.")
    else:
        await good_agent(run)


async def _fails_on_parts(run: Run) -> None:
    if any(isinstance(getattr(message, "content", ""), list) for message in run.messages):
        raise ValueError("no pictures, please")
    await good_agent(run)


async def _fails_on_answers(run: Run) -> None:
    if run.messages and run.messages[-1].role == "tool":
        raise ValueError("what is that?")
    await good_agent(run)


async def _cannot_be_led(run: Run) -> None:
    async with run.text() as text:
        await text.write("Hello.")


_shared: dict[str, Event] = {}


async def _hesitates(run: Run) -> None:
    async with run.text() as text:
        await text.write("Hello ")
        await asyncio.sleep(0.15)
        await text.write("you.")


async def _slow(run: Run) -> None:
    _shared["last"] = {"threadId": run.thread_id, "runId": run.run_id}
    await asyncio.sleep(0.02)
    await good_agent(run)


def _mixes_up(event: Event, given: Event) -> list[Event]:
    if event["type"] == "RUN_FINISHED":
        event |= _shared["last"]
    return [event]


def _any_binary(accept: str) -> str:
    return frames.CONTENT_TYPE if frames.CONTENT_TYPE in accept else accept


_MALFORMED: Final = (
    "malformed-body",
    "malformed-missing",
    "malformed-types",
    "malformed-nulls",
    "malformed-messages",
    "malformed-lists",
)

_RESUMING: Final = ("resume-cancelled", "resume-missing")

DEFECTS: Final[dict[str, Defect]] = {
    "none": Defect(),
    "accepts-anything": Defect(failed=_MALFORMED, input=_accepts_anything),
    "crashes-on-malformed": Defect(
        warned=(*_MALFORMED, "version-other-major"), input=_fails_on_malformed
    ),
    "streams-its-refusals": Defect(
        failed=(*_MALFORMED, "version-other-major"),
        input=_fails_on_malformed,
        refusal_type=sse.CONTENT_TYPE,
        only=(*_MALFORMED, "version-other-major"),
    ),
    "knows-no-later-type": Defect(failed=("unknown-members",), input=_strict),
    "requires-what-is-optional": Defect(
        failed=("optional-missing", "version-missing"),
        input=_requires("tools", "protocolVersion"),
    ),
    "knows-one-version": Defect(
        failed=("version-newer", "version-unreadable"), input=_knows_one_version
    ),
    "declares-no-version": Defect(
        failed=("version-declared",), warned=("plain-run",), event=_forgets_to_say
    ),
    "echoes-the-version": Defect(failed=("version-newer",), event=_echoes),
    "has-its-own-run-ids": Defect(failed=("plain-run",), event=_other_ids),
    "never-ends": Defect(
        failed=("plain-run",),
        skipped=("interrupt", *_RESUMING),
        warned=("frontend-tool",),
        event=_no_end,
    ),
    "leaves-the-body-open": Defect(
        failed=("plain-run",),
        only=("plain-run", "second-turn", "version-newer", "frontend-tool", "two-runs"),
        stays_open=True,
    ),
    "ends-lines-with-crlf": Defect(warned=("plain-run",), line_end=b"\r\n"),
    "answers-the-frontend's-tool": Defect(
        failed=("frontend-tool",), warned=("frontend-answer",), event=_answers_the_tool
    ),
    "names-the-wrong-call": Defect(
        failed=("frontend-tool",), warned=("frontend-answer",), event=_names_the_wrong_call
    ),
    "names-no-call": Defect(warned=("frontend-tool", "frontend-answer"), event=_names_no_call),
    "abandons-interrupts": Defect(failed=("resume-missing",), agent=_abandons),
    "refuses-unknown-interrupts": Defect(warned=("resume-unknown",), input=_refuses_resume),
    "fails-on-parts": Defect(
        # Of a part of an unknown type, a list remains.
        failed=("history-parts", "unknown-members"),
        agent=_fails_on_parts,
    ),
    "fails-on-answers": Defect(failed=("frontend-answer",), agent=_fails_on_answers),
    "cannot-be-led": Defect(
        skipped=("frontend-tool", "frontend-answer", "interrupt", *_RESUMING),
        agent=_cannot_be_led,
    ),
    "mixes-up-two-runs": Defect(failed=("two-runs",), event=_mixes_up, agent=_slow),
    "breaks-after-a-client-has-left": Defect(
        failed=("client-leaves",),
        only=("plain-run", "second-turn", "two-runs", "client-leaves", "idle-stream"),
        idle=0.3,
        agent=_hesitates,
        breaks_after_leaving=True,
    ),
    "ignores-qualities": Defect(failed=("accept-sse",), accept=_any_binary),
    "ignores-wildcards": Defect(
        warned=("accept-wildcard",),
        accept=lambda accept: accept if frames.CONTENT_TYPE in accept else sse.CONTENT_TYPE,
    ),
    "names-a-charset": Defect(
        failed=("accept-protobuf",),
        head=lambda kind: f"{kind}; charset=x" if kind == frames.CONTENT_TYPE else kind,
    ),
    "speaks-no-binary": Defect(
        skipped=("accept-protobuf",), accept=lambda accept: sse.CONTENT_TYPE
    ),
}
"""All defects by name, and who has to notice what."""
