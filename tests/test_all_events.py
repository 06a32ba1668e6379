"""One conversation that uses everything the protocol has, over HTTP: all 31 types of events.

The folder assistant holds most of it; what it has no use for is said by scripted scenes. What
counts is what is on the wire: the bytes hold each type, and both our client and the npm
reference client make the same messages and the same state of them.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

import anyio
import msgspec
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aguia import HttpAgent, ProtocolWarning
from aguia.cli.assistant import folder_assistant
from aguia.protocol import events
from aguia.protocol.input import ResumeEntry
from aguia.protocol.messages import ToolMessage
from aguia.server import AgentApp, Run, RunError
from support_server import canonical, node, serve

ALL_TYPES: Final = {event.type for event in get_args(events.Event)}

OPEN_FILE: Final = {
    "name": "open_file",
    "description": "Opens a file in the editor.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}

IMAGE: Final = {"type": "data", "value": "AAAA", "mimeType": "image/png"}


# -- what the assistant has no use for -------------------------------------------------


async def _chunks(run: Run) -> None:
    """Each family in its short form, attributed and not, and continued without an id."""
    async with run.subagent("writer", subagent_run_id="sub-w") as writer:
        for event in (
            {"type": "REASONING_MESSAGE_CHUNK", "messageId": "c-thought", "delta": "Short "},
            {"type": "REASONING_MESSAGE_CHUNK", "delta": "forms."},
            {"type": "TEXT_MESSAGE_CHUNK", "messageId": "c-text", "delta": "In "},
            {
                "type": "TEXT_MESSAGE_CHUNK",
                "messageId": "c-sub",
                "delta": "In parallel.",
                "subagentRunId": "sub-w",
            },
            {"type": "TEXT_MESSAGE_CHUNK", "delta": "short.", "metadata": {"tokens": 2}},
            {
                "type": "TOOL_CALL_CHUNK",
                "toolCallId": "c-call",
                "toolCallName": "draw",
                "parentMessageId": "c-text",
                "delta": '{"what":',
            },
            {"type": "TOOL_CALL_CHUNK", "delta": '"an eagle"}'},
        ):
            await run.emit(event)
        await run.emit(
            {
                "type": "TOOL_CALL_RESULT",
                "messageId": "c-result",
                "toolCallId": "c-call",
                "content": [{"type": "text", "text": "drawn"}, {"type": "image", "source": IMAGE}],
            }
        )
        writer.finish({"words": 2})


async def _rest(run: Run) -> dict[str, Any]:
    """A subagent that fails in another, opaque values, foreign events, a whole state, usage."""
    async with run.subagent("outer", subagent_run_id="sub-o", description="delegates") as outer:
        try:
            async with (
                outer.subagent("inner", subagent_run_id="sub-i") as inner,
                inner.step("try"),
                inner.text(message_id="r-inner") as text,
            ):
                await text.write("I can't ")
                raise RunError("no credit", "quota")
        except RunError:
            await outer.say("It can't.", message_id="r-outer", metadata={"sure": True})
    async with (
        run.reasoning_span(span_id="r-span") as span,
        span.message(message_id="r-thought") as thought,
    ):
        await thought.write("Hidden, mostly.")
        await thought.encrypted_value("opaque+/=")
    async with run.tool_call("noop", "{}", tool_call_id="r-call") as call:
        await call.encrypted_value("kind")
    await call.result("done", message_id="r-result")
    await run.custom("com.example.ping", {"n": None})
    await run.raw({"provider": ["event"]}, source="provider")
    await run.set_state({"all": "new", "n": [1, 2.5, None]})
    run.state["n"].append({"deep": True})
    run.add_usage(provider="example", model="m1", input_tokens=12, output_tokens=3)
    return {"ok": True}


async def _restate(run: Run) -> None:
    """The history again: one message changed, one dropped, one new."""
    kept = [m for m in msgspec.to_builtins(run.messages) if m["id"] != "r-outer"]
    for message in kept:
        if message["id"] == "c-text":
            message["content"] = "In short, restated."
    new = {"id": "s-new", "role": "system", "content": "Be brief."}
    await run.emit({"type": "MESSAGES_SNAPSHOT", "messages": [new, *kept]})
    await run.say("So be it.", message_id="s-text")


async def _fail(run: Run) -> None:
    async with run.text(message_id="f-text") as text:
        await text.write("Now it")
        raise RunError("breaks.", "the_end")


SCENES: Final = {"chunks": _chunks, "rest": _rest, "restate": _restate, "fail": _fail}


# -- the conversation ------------------------------------------------------------------


@dataclass
class Listening:
    """An ASGI application that keeps what another answers: one body a request."""

    app: ASGIApp
    bodies: list[bytes] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = len(self.bodies)
        if scope["type"] == "http":
            self.bodies.append(b"")

        async def heard(message: Message) -> None:
            if message["type"] == "http.response.body":
                self.bodies[place] += message.get("body", b"")
            await send(message)

        await self.app(scope, receive, heard)


@dataclass
class Turn:
    """One run: what it began with, what was on the wire, and what our client made of it."""

    run_id: str
    held: list[Any]
    state: Any
    body: bytes
    seen: list[str]
    messages: list[Any]
    state_after: Any
    pending: list[str]
    outcome: str | None

    @property
    def wire(self) -> list[dict[str, Any]]:
        """The events of the body, whose frames have the plainest form there is."""
        assert b"\r" not in self.body
        *frames, rest = self.body.decode().split("\n\n")
        assert rest == ""
        return [json.loads(frame.removeprefix("data: ")) for frame in frames]


@dataclass
class Conversation:
    """All turns, and what went along with them."""

    turns: list[Turn]
    warnings: list[ProtocolWarning]
    changed: str

    def turn(self, run_id: str) -> Turn:
        return next(turn for turn in self.turns if turn.run_id == run_id)


async def _hold(root: Path) -> Conversation:
    for name, text in {
        "README.md": "# A parser\n",
        "docs/use.md": "Parse it.\n",
        "src/parser.py": "def parse(text):\n    return text\n",
        "tests/test_parser.py": "from parser import parse\n",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    assistant = folder_assistant(str(root))

    async def scripted(run: Run) -> Any:
        return await SCENES.get(run.run_id, assistant)(run)

    app = Listening(AgentApp(scripted))
    warnings: list[ProtocolWarning] = []
    turns: list[Turn] = []
    with serve(app) as url:
        async with HttpAgent(
            url, thread_id="all", tools=[OPEN_FILE], on_warning=warnings.append
        ) as agent:

            async def run(run_id: str, said: Any = None, **options: Any) -> None:
                before = list(agent.messages)
                stream = agent.run(said, run_id=run_id, **options)
                new = stream.input.messages[len([m for m in before if m.role != "activity"]) :]
                state = {} if stream.input.state is msgspec.UNSET else stream.input.state
                seen: list[str] = [event.type async for event in stream]
                turns.append(
                    Turn(
                        run_id=run_id,
                        held=msgspec.to_builtins([*before, *new]),
                        state=state,
                        body=app.bodies[-1],
                        seen=seen,
                        messages=msgspec.to_builtins(list(agent.messages)),
                        state_after=agent.state,
                        pending=[call.id for call in agent.pending_tool_calls],
                        outcome=None if agent.outcome is None else agent.outcome.type,
                    )
                )

            await run("find", "find parse")
            await run("ask", 'replace "parse" with "read" in src/parser.py')
            [interrupt] = agent.interrupts
            answer = ResumeEntry(
                interrupt_id=interrupt.id, status="resolved", payload={"approved": True}
            )
            await run("agreed", resume=[answer])
            await run("open", "open README.md")
            [call] = agent.pending_tool_calls
            opened = ToolMessage(id="opened", tool_call_id=call.id, content="Opened.")
            await run("opened", [opened])
            for scene in SCENES:
                await run(scene, f"now {scene}")
    return Conversation(turns, warnings, (root / "src/parser.py").read_text())


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Conversation:
    return anyio.run(_hold, tmp_path_factory.mktemp("project"))


def test_the_wire_carries_every_type_of_event(conversation: Conversation) -> None:
    """EVT-7, PROC-13: all 31, and nothing else."""
    on_the_wire = {event["type"] for turn in conversation.turns for event in turn.wire}
    assert len(ALL_TYPES) == 31
    assert on_the_wire == ALL_TYPES
    assert conversation.warnings == []


def test_chunks_leave_as_chunks_and_arrive_as_what_they_stand_for(
    conversation: Conversation,
) -> None:
    """CHUNK-1: the server expands nothing; the client, before anybody sees it."""
    turn = conversation.turn("chunks")
    raw = [event["type"] for event in turn.wire]
    assert [raw.count(f"{family}_CHUNK") for family in ("TEXT_MESSAGE", "TOOL_CALL")] == [3, 2]
    assert raw.count("REASONING_MESSAGE_CHUNK") == 2
    for begun in ("TEXT_MESSAGE_START", "TOOL_CALL_START", "REASONING_MESSAGE_START"):
        assert begun not in raw
        assert begun in turn.seen
    assert not any(type_.endswith("_CHUNK") for type_ in turn.seen)
    first = next(event for event in turn.wire if event["type"] == "TEXT_MESSAGE_CHUNK")
    assert first == {"type": "TEXT_MESSAGE_CHUNK", "messageId": "c-text", "delta": "In "}


def test_our_client_builds_the_conversation(conversation: Conversation) -> None:
    """RUN-9, INT-1, FRONT-3, META-1, REAS-4: what is left of it, in the places that count."""
    outcomes = {turn.run_id: turn.outcome for turn in conversation.turns}
    assert outcomes == {
        "find": "success",
        "ask": "interrupt",
        "agreed": "success",
        "open": "success",
        "opened": "success",
        "chunks": "success",
        "rest": "success",
        "restate": "success",
        "fail": None,
    }
    assert conversation.changed == "def read(text):\n    return text\n"
    assert len(conversation.turn("open").pending) == 1
    assert conversation.turn("opened").pending == []
    last = {message["id"]: message for message in conversation.turns[-1].messages}
    assert last["c-text"]["content"] == "In short, restated."
    assert last["c-text"]["toolCalls"][0]["function"]["arguments"] == '{"what":"an eagle"}'
    assert last["c-result"]["content"][1] == {"type": "image", "source": IMAGE}
    assert last["c-sub"]["subagentRunId"] == "sub-w"
    assert last["r-thought"]["encryptedValue"] == "opaque+/="
    assert last["r-inner"]["content"] == "I can't "
    assert last["s-new"]["role"] == "system"
    assert last["f-text"]["content"] == "Now it"
    assert "r-outer" not in last
    assert {"user", "assistant", "tool", "system", "reasoning", "activity"} == {
        message["role"] for message in last.values()
    }
    assert conversation.turns[-1].state_after == {
        "all": "new",
        "n": [1, 2.5, None, {"deep": True}],
    }


def test_the_npm_client_makes_the_same_of_every_stream(conversation: Conversation) -> None:
    """PROC-7: the same events, messages and state, from the bytes that the server sent."""
    cases = [
        {
            "input": {
                "threadId": "all",
                "runId": turn.run_id,
                "messages": turn.held,
                "state": turn.state,
            },
            "events": turn.wire,
        }
        for turn in conversation.turns
    ]
    found = node("replay.mjs", {"cases": cases})
    for turn, theirs in zip(conversation.turns, found["cases"], strict=True):
        assert (theirs["verdict"], theirs.get("error")) == ("completed", None), turn.run_id
        assert theirs["warnings"] == [], turn.run_id
        assert theirs["events"] == turn.seen
        assert canonical(theirs["messages"]) == canonical(turn.messages), turn.run_id
        assert canonical(theirs["state"]) == canonical(turn.state_after), turn.run_id
        if turn.outcome == "success":
            assert theirs["pendingToolCallIds"] == turn.pending
