"""The npm package `@ag-ui/client` and `HttpAgent`, given the same scripted agent.

Each scenario is a conversation of several runs, held once with either client over HTTP. After
each run both have to hold the same messages, the same state, the same open interrupts and pending
calls, and to send the same next input. Where they differ, the difference is listed with what
either has and why; a listed difference that is none any more fails, too.
"""

import asyncio
import json
import logging
import re
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import msgspec
import pytest

from aguia import (
    ContentPart,
    HttpAgent,
    ImagePart,
    InputRejected,
    InvalidInput,
    ProtocolViolation,
    ProtocolWarning,
    TextPart,
    TruncatedRun,
    UrlSource,
)
from aguia.client import FunctionTool, tool
from support import require_peers
from support_peers import ABSENT, Answer, ScriptedAgent, differences
from support_server import node, serve

EventJson = dict[str, Any]
MessageJson = dict[str, Any]

ASK: Final = {
    "name": "ask_user",
    "description": "Asks the person a question.",
    "parameters": {"type": "object", "properties": {"question": {"type": "string"}}},
}
LOOK: Final = {
    "name": "look",
    "description": "Looks at a place.",
    "parameters": {"type": "object"},
    "metadata": {"origin": "map"},
}
IMAGE: Final = {"type": "url", "value": "https://example.com/porto.png", "mimeType": "image/png"}
SOUND: Final = {"type": "data", "value": "UklGRg==", "mimeType": "audio/wav"}
FILE: Final = {"type": "file", "value": "file-7", "provider": "example"}

# What an agent says, in short


def _run(*events: EventJson | list[EventJson], **finish: Any) -> list[EventJson]:
    """A whole run; the scripted agent puts in whose it is."""
    flat = [event for item in events for event in (item if isinstance(item, list) else [item])]
    return [
        {"type": "RUN_STARTED", "protocolVersion": "1.0"},
        *flat,
        {"type": "RUN_FINISHED", **finish},
    ]


def _failed(*events: EventJson | list[EventJson], **error: Any) -> list[EventJson]:
    """A run that ends with its failure."""
    return [*_run(*events)[:-1], {"type": "RUN_ERROR", "message": "No seats left.", **error}]


def _text(id: str, *deltas: str, tag: EventJson | None = None, **opener: Any) -> list[EventJson]:
    of = {"messageId": id, **(tag or {})}
    return [
        {"type": "TEXT_MESSAGE_START", **of, **opener},
        *({"type": "TEXT_MESSAGE_CONTENT", **of, "delta": delta} for delta in deltas),
        {"type": "TEXT_MESSAGE_END", **of},
    ]


def _call(
    id: str, name: str, *arguments: str, tag: EventJson | None = None, **opener: Any
) -> list[EventJson]:
    of = {"toolCallId": id, **(tag or {})}
    return [
        {"type": "TOOL_CALL_START", **of, "toolCallName": name, **opener},
        *({"type": "TOOL_CALL_ARGS", **of, "delta": delta} for delta in arguments),
        {"type": "TOOL_CALL_END", **of},
    ]


def _result(call: str, content: Any, **more: Any) -> EventJson:
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": f"{call}-result",
        "toolCallId": call,
        "content": content,
        **more,
    }


def _thought(id: str, *deltas: str, tag: EventJson | None = None) -> list[EventJson]:
    of = {"messageId": id, **(tag or {})}
    return [
        {"type": "REASONING_MESSAGE_START", **of, "role": "reasoning"},
        *({"type": "REASONING_MESSAGE_CONTENT", **of, "delta": delta} for delta in deltas),
        {"type": "REASONING_MESSAGE_END", **of},
    ]


def _sealed(subtype: str, entity: str, value: str) -> EventJson:
    return {
        "type": "REASONING_ENCRYPTED_VALUE",
        "subtype": subtype,
        "entityId": entity,
        "encryptedValue": value,
    }


def _activity(id: str, content: Any, **more: Any) -> EventJson:
    return {
        "type": "ACTIVITY_SNAPSHOT",
        "messageId": id,
        "activityType": "SEARCH",
        "content": content,
        **more,
    }


def _activity_delta(id: str, *patch: EventJson, **more: Any) -> EventJson:
    return {
        "type": "ACTIVITY_DELTA",
        "messageId": id,
        "activityType": "SEARCH",
        "patch": list(patch),
        **more,
    }


def _state(snapshot: Any) -> EventJson:
    return {"type": "STATE_SNAPSHOT", "snapshot": snapshot}


def _delta(*patch: EventJson) -> EventJson:
    return {"type": "STATE_DELTA", "delta": list(patch)}


def _add(path: str, value: Any) -> EventJson:
    return {"op": "add", "path": path, "value": value}


def _history(*messages: MessageJson) -> EventJson:
    return {"type": "MESSAGES_SNAPSHOT", "messages": list(messages)}


def _user(id: str, content: Any) -> MessageJson:
    return {"id": id, "role": "user", "content": content}


def _hello(number: int) -> MessageJson:
    return _user(f"u-{number}", f"Hello {number}")


def _assistant(id: str, **members: Any) -> MessageJson:
    return {"id": id, "role": "assistant", **members}


def _held_call(id: str, name: str, arguments: str = "{}", **more: Any) -> EventJson:
    return {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
        **more,
    }


def _tool(call: str, content: Any, **more: Any) -> MessageJson:
    return {"id": f"{call}-answer", "role": "tool", "toolCallId": call, "content": content, **more}


def _unnamed(message: MessageJson) -> MessageJson:
    """The message without its id, which is then for the client to make up."""
    return {key: value for key, value in message.items() if key != "id"}


def _asks(*interrupts: EventJson) -> EventJson:
    return {"type": "interrupt", "interrupts": list(interrupts)}


def _yes(id: str, **payload: Any) -> EventJson:
    return {"interruptId": id, "status": "resolved", **payload}


def _no(id: str) -> EventJson:
    return {"interruptId": id, "status": "cancelled"}


@dataclass(frozen=True)
class Turn:
    """What the application does before a run, and what the agent answers.

    Attributes:
        answer: events, or an HTTP status.
        says: messages to add to the thread, or what the user says (a message whose id the client
            makes up); where it is None, a message `_hello(n)` in the n-th turn.
        resume, props: go with the input.
        follows: our client makes this run by itself, and with npm the application does.
    """

    answer: Answer
    says: list[MessageJson] | str | None = None
    resume: list[EventJson] | None = None
    props: Any = None
    follows: bool = False


@dataclass(frozen=True)
class Scenario:
    """A conversation; `rules` are those it is about.

    After its turns comes one more, which shows what the last one left: the `closing` turn.
    `tools` are those that the agent is told of; our client may have `functions` for all of them.
    """

    rules: str
    turns: list[Turn]
    closing: Turn = Turn(_run())
    messages: list[MessageJson] = field(default_factory=list)
    state: Any = field(default_factory=dict)
    tools: list[EventJson] = field(default_factory=list)
    context: list[EventJson] = field(default_factory=list)
    functions: list[FunctionTool] = field(default_factory=list)


@tool(read_only=True)
async def ask_user(question: str) -> str:
    """Asks the person a question."""
    return f"{question} To Porto!"


@tool(read_only=True)
def look() -> list[ContentPart]:
    """Looks at a place."""
    source = UrlSource(value=IMAGE["value"], mime_type=IMAGE["mimeType"])
    return [TextPart(text="a river"), ImagePart(source=source)]


FUNCTIONS: Final = [ask_user, look]

APPROVE: Final = {
    "id": "i-1",
    "reason": "approval",
    "message": "Book it?",
    "responseSchema": {"type": "object", "properties": {"approved": {"type": "boolean"}}},
    "metadata": {"price": 12.5},
}
CHOOSE: Final = {"id": "i-2", "reason": "choice", "expiresAt": "2999-01-01T00:00:00Z"}
EVERYTHING: Final = {"a": None, "b": [1, {"c": "🧭"}], "d": {"e": False}, "": 0}
OWN: Final = {"subagentRunId": "s-1"}

SCENARIOS: Final[dict[str, Scenario]] = {
    "text": Scenario("TEXT-1 STREAM-2", [Turn(_run(_text("m-1", "Olá", "", ", Porto! 🧭")))]),
    "several messages": Scenario(
        "STREAM-3 STREAM-4",
        [
            Turn(
                _run(
                    {"type": "TEXT_MESSAGE_START", "messageId": "m-1"},
                    {"type": "TEXT_MESSAGE_START", "messageId": "m-2"},
                    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m-2", "delta": "two"},
                    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m-1", "delta": "one"},
                    {"type": "TEXT_MESSAGE_END", "messageId": "m-2"},
                    {"type": "TEXT_MESSAGE_END", "messageId": "m-1"},
                    _text("m-3"),
                    _text("m-1", ", and more"),
                )
            ),
            Turn(_run(_text("m-2", " again"))),
        ],
    ),
    "roles and names": Scenario(
        "TEXT-1 TEXT-2",
        [
            Turn(
                _run(
                    _text("m-1", "a", role="assistant", name="Rita"),
                    _text("m-2", "b", role="system"),
                    _text("m-3", "c", role="developer", name="ops"),
                    _text("m-4", "d", role="user", name="João"),
                )
            )
        ],
    ),
    "a tool of the agent": Scenario(
        "TOOL-1 TOOL-6 CONV-1",
        [
            Turn(
                _run(
                    _text("m-1", "I look."),
                    _call("c-1", "find", '{"city":', '"Porto"}'),
                    _text("m-2", "Found."),
                    _result("c-1", "sun"),
                )
            )
        ],
    ),
    "several calls of one message": Scenario(
        "TOOL-4 CONV-1",
        [
            Turn(
                _run(
                    _text("m-1", "I look."),
                    _call("c-1", "find", "{}", parentMessageId="m-1"),
                    _call("c-2", "find", "not {json", parentMessageId="m-1"),
                    _call("c-3", "find", parentMessageId="m-9"),
                    _text("m-2", "Well."),
                    _result("c-2", "two"),
                    _result("c-1", "one"),
                    _result("c-3", "three"),
                    _result("c-9", "of no call"),
                )
            )
        ],
    ),
    "a call within an earlier run's message": Scenario(
        "TOOL-4 TEXT-3",
        [
            Turn(_run(_text("m-1", "I look."))),
            Turn(
                _run(
                    _call("c-1", "find", "{}", parentMessageId="m-1"),
                    _result("c-1", "found"),
                    _call("c-2", "find", "{}", parentMessageId="u-1"),
                    _result("c-2", "found, too"),
                )
            ),
        ],
    ),
    "a call, then text in its message": Scenario(
        "TEXT-3 CONV-3",
        [
            Turn(
                _run(
                    _call("c-1", "find", '{"a"', parentMessageId="m-1"),
                    _text("m-1", "I looked.", role="assistant"),
                    _call("c-1", "find", ":1}", parentMessageId="m-1"),
                    _result("c-1", "found"),
                )
            )
        ],
    ),
    "a frontend tool": Scenario(
        "FRONT-1 FRONT-2 FRONT-3 FRONT-5",
        [
            Turn(
                _run(
                    _text("m-1", "Let me ask."),
                    _call("c-1", "ask_user", '{"question":"Where?"}', parentMessageId="m-1"),
                    outcome={"type": "success", "pendingToolCallIds": ["c-1"]},
                )
            ),
            Turn(_run(_text("m-2", "Porto it is.")), says=[_tool("c-1", "Porto")]),
        ],
        tools=[ASK, LOOK],
        context=[{"description": "the season", "value": "spring"}],
    ),
    "two frontend tools": Scenario(
        "FRONT-4 FRONT-5",
        [
            Turn(
                _run(
                    _call("c-1", "ask_user", '{"question":"Where?"}'),
                    _call("c-2", "find", "{}"),
                    _call("c-3", "look", "{}"),
                    _result("c-2", "found"),
                )
            ),
            Turn(
                _run(_text("m-1", "Thanks.")),
                says=[_tool("c-3", "a river"), _tool("c-1", "Porto"), _user("u-x", "So?")],
            ),
        ],
        tools=[ASK, LOOK],
    ),
    "a frontend tool that fails": Scenario(
        "FRONT-5",
        [
            Turn(_run(_call("c-1", "ask_user", "{}"), outcome={"type": "success"})),
            Turn(
                _run(_call("c-2", "ask_user", "{}")),
                says=[_tool("c-1", "", error="the person said no", metadata={"ms": 3})],
            ),
            Turn(_run(), says=[_tool("c-2", "yes")]),
        ],
        tools=[ASK],
    ),
    "functions for the calls": Scenario(
        "FRONT-5",
        [
            Turn(
                _run(
                    _text("m-1", "Let me see."),
                    _call("c-1", "ask_user", '{"question":"Where?"}', parentMessageId="m-1"),
                    _call("c-2", "look", "{}", parentMessageId="m-1"),
                )
            ),
            Turn(
                _run(_call("c-3", "ask_user", '{"question":"When?"}'), _state({"n": 1})),
                says=[
                    _unnamed(_tool("c-1", "Where? To Porto!")),
                    _unnamed(
                        _tool(
                            "c-2",
                            [
                                {"type": "text", "text": "a river"},
                                {"type": "image", "source": IMAGE},
                            ],
                        )
                    ),
                ],
                follows=True,
            ),
            Turn(
                _run(_text("m-2", "So be it.")),
                says=[_unnamed(_tool("c-3", "When? To Porto!"))],
                follows=True,
            ),
        ],
        tools=[msgspec.to_builtins(function.declaration) for function in FUNCTIONS],
        context=[{"description": "the season", "value": "spring"}],
        functions=FUNCTIONS,
    ),
    "a call that nobody answers": Scenario(
        "FRONT-5",
        [Turn(_run(_call("c-1", "ask_user", "{}"))), Turn(_run())],
        closing=Turn(_run(), says=[_tool("c-1", "Porto")]),
        tools=[ASK],
    ),
    "a call of the agent's own that nobody answers": Scenario(
        "FRONT-6",
        [Turn(_run(_call("c-1", "dig", "{}"))), Turn(_run())],
        closing=Turn(_run(), says=[_tool("c-1", "dug")]),
        tools=[ASK],
    ),
    "a call that its run was cut off in": Scenario(
        "FRONT-5 RUN-7",
        [Turn(_failed(_call("c-1", "ask_user", "{}")))],
        tools=[ASK],
    ),
    "pending calls named wrongly": Scenario(
        "FRONT-3 FRONT-4",
        [
            Turn(
                _run(
                    _call("c-1", "ask_user", "{}", parentMessageId="m-1"),
                    _call("c-2", "ask_user", "{}", parentMessageId="m-1"),
                    outcome={"type": "success", "pendingToolCallIds": ["c-2", "c-9"]},
                )
            )
        ],
        closing=Turn(_run(), says=[_tool("c-1", "x"), _tool("c-2", "y")]),
    ),
    "parts from the user": Scenario(
        "IN-1 TOOL-7",
        [
            Turn(
                _run(_text("m-1", "A river.")),
                says=[
                    _user(
                        "u-1",
                        [
                            {"type": "text", "text": "What is this?"},
                            {"type": "image", "source": IMAGE, "metadata": {"page": 1}},
                            {"type": "audio", "source": SOUND},
                            {"type": "document", "source": FILE},
                            {
                                "type": "video",
                                "source": {"type": "url", "value": "https://v.example/"},
                            },
                        ],
                    )
                ],
            )
        ],
    ),
    "parts in results": Scenario(
        "TOOL-7 TOOL-10",
        [
            Turn(
                _run(
                    _call("c-1", "map", "{}"),
                    _result(
                        "c-1",
                        [
                            {"type": "text", "text": "a map"},
                            {"type": "image", "source": IMAGE, "metadata": {"zoom": 3}},
                            {"type": "document", "source": FILE},
                        ],
                    ),
                    _call("c-2", "map", "{}"),
                    _result("c-2", []),
                    _call("c-3", "ask_user", "{}"),
                )
            ),
            Turn(
                _run(),
                says=[_tool("c-3", [{"type": "audio", "source": SOUND}])],
            ),
        ],
        tools=[ASK],
    ),
    "reasoning": Scenario(
        "REAS-1",
        [
            Turn(
                _run(
                    {"type": "REASONING_START", "messageId": "r-1"},
                    _thought("r-1", "Which ", "city?"),
                    _thought("r-2"),
                    {"type": "REASONING_END", "messageId": "r-1"},
                    _text("m-1", "Porto."),
                    _thought("r-1", " Porto."),
                )
            )
        ],
    ),
    "encrypted values": Scenario(
        "REAS-4",
        [
            Turn(
                _run(
                    _thought("r-1", "Hm."),
                    _sealed("message", "r-1", "opaque+/=\u2028"),
                    _text("m-1", "Ask."),
                    _sealed("message", "m-1", "of the text"),
                    _call("c-1", "ask_user", "{}"),
                    _sealed("tool-call", "c-1", "first"),
                    _sealed("tool-call", "c-1", "last"),
                )
            ),
            Turn(
                _run(
                    _sealed("message", "u-1", "of the user"),
                    _sealed("message", "c-1-answer", "of the answer"),
                ),
                says=[_tool("c-1", "Porto", encryptedValue="ours")],
            ),
        ],
        tools=[ASK],
    ),
    "an encrypted value of nothing": Scenario(
        "REAS-4",
        [
            Turn(
                _run(
                    _activity("a-1", {}),
                    _sealed("message", "nobody", "x"),
                    _sealed("tool-call", "nobody", "x"),
                    _sealed("message", "a-1", "x"),
                )
            )
        ],
    ),
    "activity": Scenario(
        "ACT-1 ACT-3 ACT-4",
        [
            Turn(
                _run(
                    _activity("a-1", {"found": []}),
                    _text("m-1", "Looking."),
                    _activity_delta("a-1", _add("/found/-", "Porto")),
                    _activity("a-2", {"kept": True}),
                )
            ),
            Turn(
                _run(
                    _activity("a-2", {"lost": True}, replace=False),
                    _activity("a-1", {"done": 1}, replace=True, activityType="DONE"),
                    _activity_delta("a-2", _add("/more", 1), activityType="MORE"),
                )
            ),
        ],
    ),
    "an activity that is not there": Scenario(
        "ACT-3",
        [
            Turn(
                _run(
                    _activity_delta("a-1", _add("/x", 1)),
                    _text("m-1", "text"),
                    _activity_delta("m-1", _add("/x", 1)),
                )
            )
        ],
    ),
    "an activity patch that fails": Scenario(
        "ACT-3",
        [
            Turn(
                _run(
                    _activity("a-1", {"x": 1}),
                    _activity_delta("a-1", _add("/y", 1), {"op": "remove", "path": "/z"}),
                )
            )
        ],
    ),
    "state": Scenario(
        "STATE-1 STATE-2",
        [
            Turn(
                _run(
                    _delta(_add("/stops", []), _add("/stops/-", {"name": "Faro"})),
                    _state({"city": "Porto", "stops": [1, 2], "e~f/g": 0}),
                    _delta(
                        {"op": "test", "path": "/city", "value": "Porto"},
                        {"op": "move", "from": "/stops/0", "path": "/first"},
                        {"op": "copy", "from": "/first", "path": "/stops/0"},
                        {"op": "replace", "path": "/e~0f~1g", "value": EVERYTHING},
                        {"op": "remove", "path": "/city"},
                    ),
                )
            ),
            Turn(_run(_delta(_add("/again", True)))),
        ],
        state={"mine": 1},
    ),
    "state that is falsy": Scenario(
        "STATE-1",
        [
            Turn(_run(_state(0))),
            Turn(_run(_state(False))),
            Turn(_run(_state(""))),
            Turn(_run(_state([]), _delta(_add("/0", "whole")))),
        ],
    ),
    "state that is null": Scenario("STATE-1 IN-1", [Turn(_run(_state(None)))]),
    "a patch that fails": Scenario(
        "STATE-4",
        [
            Turn(
                _run(
                    _state({"a": 1}),
                    _delta(_add("/b", 2), {"op": "test", "path": "/a", "value": 2}),
                )
            ),
            Turn(
                _run(
                    _delta(_add("/c", 3), {"op": "remove", "path": "/nowhere"}),
                    _delta(_add("/d", 4)),
                )
            ),
        ],
    ),
    "history restated": Scenario(
        "MSG-1 REAS-5",
        [
            Turn(
                _run(
                    _activity("a-1", {}),
                    _thought("r-1", "Hm."),
                    _sealed("message", "r-1", "kept"),
                    _text("m-1", "one"),
                    _text("m-2", "two"),
                    _sealed("message", "m-2", "withdrawn"),
                )
            ),
            Turn(
                _run(
                    _history(
                        {"id": "s-1", "role": "system", "content": "Be brief."},
                        _assistant("m-2", content="TWO", name="Rita"),
                        _user("u-2", "restated"),
                    ),
                    _text("m-2", "!"),
                    _text("m-3", "three"),
                )
            ),
        ],
    ),
    "a snapshot by the reference's own convention": Scenario(
        "MSG-1 META-2",
        [
            Turn(
                _run(
                    _activity("a-1", {}),
                    {
                        **_history(_hello(1)),
                        "metadata": {"@ag-ui/client": {"authoritativeActivityTypes": None}},
                    },
                )
            )
        ],
    ),
    "reasoning restated": Scenario(
        "MSG-1 REAS-5",
        [
            Turn(
                _run(
                    _thought("r-1", "Hm."),
                    _sealed("message", "r-1", "withdrawn"),
                    _thought("r-2", "gone"),
                    _activity("a-1", {}),
                    _text("m-1", "one"),
                    _history(
                        _hello(1),
                        {"id": "r-1", "role": "reasoning", "content": "Hm."},
                        _assistant("m-1", content="one"),
                    ),
                )
            )
        ],
    ),
    "calls restated": Scenario(
        "MSG-1 FRONT-4",
        [
            Turn(
                _run(
                    _call("c-1", "ask_user", "{}"),
                    _history(
                        _hello(1),
                        _assistant("c-1", toolCalls=[_held_call("c-1", "ask_user", '{"a":1}')]),
                    ),
                )
            ),
            Turn(_run(), says=[_tool("c-1", "Porto")]),
        ],
        tools=[ASK],
    ),
    "metadata": Scenario(
        "META-1",
        [
            Turn(
                _run(
                    _text("m-1", "x", metadata={"a": 1, "deep": {"x": 1}}),
                    {"type": "TEXT_MESSAGE_START", "messageId": "m-2", "metadata": {"a": 1}},
                    {
                        "type": "TEXT_MESSAGE_CONTENT",
                        "messageId": "m-2",
                        "delta": "y",
                        "metadata": {"a": None, "deep": {"y": 2}},
                    },
                    {"type": "TEXT_MESSAGE_END", "messageId": "m-2", "metadata": {"end": True}},
                    _call("c-1", "ask_user", "{}", metadata={"of": "the call"}),
                    _result("c-1", "r", metadata={"of": "the result"}),
                    {
                        "type": "REASONING_MESSAGE_START",
                        "messageId": "r-1",
                        "role": "reasoning",
                        "metadata": {"effort": "low"},
                    },
                    {"type": "REASONING_MESSAGE_END", "messageId": "r-1", "metadata": {"ms": 5}},
                    _activity("a-1", {}, metadata={"a": 1}),
                    _activity("a-1", {}, metadata={"b": 2}),
                    {"type": "STATE_SNAPSHOT", "snapshot": {}, "metadata": {"nowhere": 1}},
                    metadata={"nowhere": 1},
                )
            )
        ],
    ),
    "subagents": Scenario(
        "SUB-1 SUB-2 SUB-5 SUB-6",
        [
            Turn(
                _run(
                    {"type": "SUBAGENT_STARTED", **OWN, "name": "scout"},
                    {
                        "type": "SUBAGENT_STARTED",
                        "subagentRunId": "s-2",
                        "name": "eye",
                        "parentSubagentRunId": "s-1",
                    },
                    _text("m-1", "mine", tag=OWN),
                    _thought("r-1", "hm", tag={"subagentRunId": "s-2"}),
                    _call("c-1", "find", "{}", tag=OWN),
                    _result("c-1", "found", **OWN),
                    _activity("a-1", {}, subagentRunId="s-2"),
                    {"type": "SUBAGENT_ERROR", "subagentRunId": "s-2", "message": "blind"},
                    _text("m-2", "the parent's"),
                    {"type": "SUBAGENT_FINISHED", **OWN},
                    _text("m-3", "nobody announced it", tag={"subagentRunId": "s-3"}),
                )
            ),
            Turn(
                _run(
                    {"type": "SUBAGENT_STARTED", **OWN, "name": "scout"},
                    _text("m-1", ", still", tag=OWN),
                    {
                        "type": "SUBAGENT_FINISHED",
                        **OWN,
                        "outcome": {"type": "suspended", "interruptIds": ["i-1"]},
                    },
                    outcome=_asks({**APPROVE, **OWN}),
                )
            ),
        ],
        closing=Turn(_run(), resume=[_yes("i-1", payload={"approved": True})]),
    ),
    "an interrupt resolved": Scenario(
        "INT-1 INT-2 INT-6 CONV-4",
        [
            Turn(_run(_text("m-1", "May I?"), _state({"a": 1}), outcome=_asks(APPROVE))),
            Turn(
                _run(_text("m-2", "Booked.")),
                says=[],
                resume=[_yes("i-1", payload={"approved": True, "seat": None})],
            ),
        ],
    ),
    "an interrupt cancelled": Scenario(
        "INT-2 INT-3",
        [
            Turn(
                _run(outcome=_asks({**APPROVE, "expiresAt": "2001-01-01T00:00:00Z"})),
            ),
            Turn(_run(_text("m-2", "As you like.")), says=[], resume=[_no("i-1")]),
        ],
    ),
    "two interrupts, asked twice": Scenario(
        "INT-2 INT-5",
        [
            Turn(_run(outcome=_asks(APPROVE, CHOOSE))),
            Turn(
                _run(outcome=_asks(CHOOSE)),
                resume=[_no("i-2"), _yes("i-1", payload={"approved": False})],
            ),
            Turn(_run(), resume=[_yes("i-2", payload="left")]),
        ],
    ),
    "an interrupt about a call": Scenario(
        "INT-1 FRONT-4",
        [
            Turn(
                _run(
                    _call("c-1", "book", '{"seat":1}'),
                    outcome=_asks({**APPROVE, "toolCallId": "c-1"}),
                )
            ),
            Turn(
                _run(_result("c-1", "booked")),
                says=[],
                resume=[_yes("i-1", payload={"approved": True})],
            ),
        ],
    ),
    "an interrupt left open by a failure": Scenario(
        "CONV-4",
        [
            Turn(_run(outcome=_asks(CHOOSE))),
            Turn(_failed(), resume=[_yes("i-2", payload="left")]),
            Turn(_run(_text("m-1", "Left.")), resume=[_yes("i-2", payload="left")]),
        ],
    ),
    "an interrupt whose run fails late": Scenario(
        "CONV-4 RUN-6",
        [
            Turn(_run(outcome=_asks(CHOOSE))),
            Turn(
                [*_run(), {"type": "RUN_ERROR", "message": "Not saved."}],
                resume=[_yes("i-2", payload="left")],
            ),
        ],
        closing=Turn(_run(), resume=[_yes("i-2", payload="left")]),
    ),
    "an interrupt left unanswered": Scenario(
        "INT-2",
        [Turn(_run(outcome=_asks(CHOOSE))), Turn(_run())],
        closing=Turn(_run(), resume=[_no("i-2")]),
    ),
    "an interrupt answered too late": Scenario(
        "INT-3",
        [
            Turn(_run(outcome=_asks({**CHOOSE, "expiresAt": "2001-01-01T00:00:00Z"}))),
            Turn(_run(), says=[], resume=[_yes("i-2", payload="left")]),
        ],
        closing=Turn(_run(), resume=[_no("i-2")]),
    ),
    "an interrupt answered in another form": Scenario(
        "INT-7",
        [
            Turn(_run(outcome=_asks(APPROVE))),
            Turn(_run(), says=[], resume=[_yes("i-1", payload={"approved": "perhaps"})]),
        ],
        closing=Turn(_run(), resume=[_no("i-1")]),
    ),
    "an answer to no question": Scenario(
        "INT-2 INT-4",
        [
            Turn(_run(outcome=_asks(CHOOSE))),
            Turn(_run(), says=[], resume=[_no("i-2"), _no("i-9")]),
        ],
        closing=Turn(_run(), resume=[_no("i-2")]),
    ),
    "two answers to a question": Scenario(
        "INT-2",
        [
            Turn(_run(outcome=_asks(CHOOSE))),
            Turn(_run(), says=[], resume=[_no("i-2"), _yes("i-2", payload="left")]),
        ],
        closing=Turn(_run(), resume=[_no("i-2")]),
    ),
    "a run that fails": Scenario(
        "RUN-7 RUN-8",
        [
            Turn(
                _failed(
                    _state({"kept": True}),
                    _text("m-1", "I will", "…")[:-1],
                    _call("c-1", "book", '{"se')[:-1],
                    code="sold_out",
                    usage=[{"inputTokens": 3}],
                )
            ),
            Turn(_run(_text("m-2", "There is one."))),
        ],
    ),
    "a run that fails at once": Scenario(
        "RUN-1", [Turn([{"type": "RUN_ERROR", "message": "Closed."}])]
    ),
    "a late failure": Scenario(
        "RUN-6",
        [
            Turn(
                [
                    *_run(_call("c-1", "ask_user", "{}"), outcome=_asks(CHOOSE)),
                    {"type": "RUN_ERROR", "message": "Not saved."},
                ]
            )
        ],
        closing=Turn(_run(), says=[_tool("c-1", "x")], resume=[_no("i-2")]),
    ),
    "a run that was cancelled": Scenario(
        "RUN-10",
        [
            Turn(
                _run(
                    _text("m-1", "I was"),
                    _call("c-1", "ask_user", "{}"),
                    outcome={"type": "cancelled"},
                )
            )
        ],
        closing=Turn(_run(), says=[_tool("c-1", "too late", error="cancelled")]),
    ),
    "several runs on one stream": Scenario(
        "RUN-12",
        [
            Turn(
                [
                    {"type": "RUN_STARTED", "runId": "earlier"},
                    *_text("m-0", "replayed"),
                    *_call("c-0", "ask_user", "{}"),
                    _state({"n": 1}),
                    {"type": "RUN_FINISHED", "runId": "earlier", "outcome": _asks(CHOOSE)},
                    *_run(_text("m-1", "new"), _delta(_add("/m", 2)), _call("c-1", "look", "{}")),
                ]
            ),
            Turn([*_failed(_text("m-2", "a")), *_run(_text("m-2", "b"))], says=[_tool("c-1", "")]),
        ],
        tools=[ASK, LOOK],
    ),
    "history in the start of a run": Scenario(
        "CONV-2 MSG-2",
        [
            Turn(
                [
                    {
                        "type": "RUN_STARTED",
                        "parentRunId": "p",
                        "input": {
                            "threadId": "thread",
                            "runId": "r",
                            "messages": [
                                _user("u-0", "earlier"),
                                _user("u-1", "not this"),
                                _assistant("m-0", content="an answer"),
                            ],
                        },
                    },
                    *_run(_text("m-1", "now"))[1:],
                ]
            )
        ],
    ),
    "chunks": Scenario(
        "CHUNK-1 CHUNK-2 CHUNK-3 CHUNK-5 CHUNK-10",
        [
            Turn(
                _run(
                    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m-1", "delta": "On"},
                    {"type": "TEXT_MESSAGE_CHUNK", "delta": "e", "metadata": {"n": 2}},
                    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m-2", "role": "user", "name": "J"},
                    {"type": "RAW", "event": 1},
                    {"type": "TEXT_MESSAGE_CHUNK", "delta": "two"},
                    {"type": "REASONING_MESSAGE_CHUNK", "messageId": "r-1", "delta": "hm"},
                    {
                        "type": "TOOL_CALL_CHUNK",
                        "toolCallId": "c-1",
                        "toolCallName": "ask_user",
                        "parentMessageId": "m-3",
                        "delta": '{"a"',
                    },
                    {"type": "TOOL_CALL_CHUNK", "delta": ":1}", "metadata": {"n": 1}},
                    {
                        "type": "TOOL_CALL_CHUNK",
                        "toolCallId": "c-2",
                        "toolCallName": "look",
                        "parentMessageId": "m-3",
                    },
                )
            )
        ],
        closing=Turn(_run(), says=[_tool("c-1", "x"), _tool("c-2", "y")]),
    ),
    "chunks of two lanes": Scenario(
        "CHUNK-7 CHUNK-8",
        [
            Turn(
                _run(
                    {"type": "SUBAGENT_STARTED", **OWN, "name": "scout"},
                    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m-1", "delta": "a", **OWN},
                    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m-2", "delta": "b"},
                    {"type": "TEXT_MESSAGE_CHUNK", "delta": "B"},
                    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m-1", "delta": "A"},
                    {"type": "SUBAGENT_FINISHED", **OWN},
                    {"type": "TEXT_MESSAGE_CHUNK", "delta": "!"},
                )
            )
        ],
    ),
    "usage and result": Scenario(
        "USE-1 RUN-9",
        [
            Turn(
                _run(
                    _text("m-1", "done"),
                    result={"seat": [1]},
                    usage=[{"provider": "p", "model": "m", "inputTokens": 3, "outputTokens": 4}],
                )
            )
        ],
    ),
    "steps, custom and raw events": Scenario(
        "RUN-14 PROC-13 EVT-1",
        [
            Turn(
                _run(
                    {"type": "STEP_STARTED", "stepName": "plan", "timestamp": 1},
                    {"type": "CUSTOM", "name": "com.example.x", "value": EVERYTHING},
                    {"type": "RAW", "event": None, "source": "model", "rawEvent": [1]},
                    {"type": "STEP_FINISHED", "stepName": "plan"},
                )
            )
        ],
    ),
    "what the application passes on": Scenario(
        "IN-1",
        [
            Turn(_run(), props={"currency": "EUR", "deep": EVERYTHING}),
            Turn(_run(), props=[1, None]),
            Turn(_run(), props=""),
        ],
        tools=[LOOK],
        context=[{"description": "", "value": ""}],
    ),
    "a thread taken up": Scenario(
        "INT-6 ACT-4 CONV-1",
        [Turn(_run(_result("c-1", "found"), _text("m-0", ", and so on")))],
        messages=[
            {"id": "s-0", "role": "system", "content": "Be brief.", "name": "ops"},
            {"id": "d-0", "role": "developer", "content": "Really."},
            {"id": "a-0", "role": "activity", "activityType": "X", "content": {"y": 1}},
            {"id": "r-0", "role": "reasoning", "content": "hm", "encryptedValue": "v"},
            _assistant("m-0", content="I look", toolCalls=[_held_call("c-1", "find")]),
            _user("u-0", "And?"),
        ],
        state=EVERYTHING,
    ),
    "unusual text": Scenario(
        "STREAM-2",
        [
            Turn(
                _run(
                    _text(
                        "m-1", "\u2028\u2029\x85\x00\x7f\ufeff", 'a\nb\r\nc\r"\\"', "\n\ndata: x"
                    ),
                    _text("m-2", "🦅👩‍🚀", "é" * 9000),
                    _call("c-1", "find", '{"\\u0000', '":"\u2028"}'),
                    _result("c-1", "\x00\n"),
                )
            )
        ],
    ),
    "what nobody knows": Scenario(
        "PROC-1 PROC-2 PROC-4",
        [
            Turn(
                _run(
                    {"type": "HOLOGRAM", "messageId": "h"},
                    _text("m-1", "text", colour="blue"),
                    {"type": "CUSTOM", "name": "n", "value": 1, "more": 1},
                    outcome={"type": "victory", "points": 3},
                )
            )
        ],
    ),
    "thinking as it was": Scenario(
        "VER-4",
        [
            Turn(
                _run(
                    {"type": "THINKING_START", "title": "t"},
                    {"type": "THINKING_TEXT_MESSAGE_START"},
                    {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "hm"},
                    {"type": "THINKING_TEXT_MESSAGE_END"},
                    {"type": "THINKING_END"},
                    _text("m-1", "text"),
                )
            )
        ],
    ),
    "a stream that just ends": Scenario(
        "RUN-11", [Turn(_run(_text("m-1", "I was go", "ing"))[:-2])]
    ),
    "a stream against the rules": Scenario(
        "STREAM-1",
        [
            Turn(
                _run(
                    _text("m-1", "so far"),
                    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m-9", "delta": "?"},
                )
            )
        ],
    ),
    "a run of another name": Scenario(
        "RUN-3",
        [
            Turn(
                [
                    {"type": "RUN_STARTED", "runId": "other"},
                    *_text("m-1", "hi"),
                    {"type": "RUN_FINISHED", "runId": "other"},
                ]
            )
        ],
    ),
    "a newer agent": Scenario(
        "VER-2",
        [
            Turn(
                [
                    {"type": "RUN_STARTED", "protocolVersion": "1.9"},
                    *_run(_text("m-1", "hi"))[1:],
                ]
            )
        ],
    ),
    "a refused input": Scenario("HTTP-4", [Turn(422)]),
    "a message whose id is taken": Scenario(
        "EVT-6", [Turn(_run()), Turn(_run(), says=[_hello(1)])]
    ),
    "what the user just says": Scenario(
        "TEXT-1", [Turn(_run(_text("m-1", "Hi.")), says="Hello 🧭")]
    ),
}

# Where the two differ


@dataclass(frozen=True)
class Known:
    """Where and why the two differ in a scenario.

    `places` has them all: a JSON Pointer into what is compared, and what npm and we have there.
    """

    why: str
    places: list[tuple[str, Any, Any]]


def _sent(run_id: str, *messages: MessageJson, **more: Any) -> EventJson:
    return {
        "threadId": "thread",
        "runId": run_id,
        "protocolVersion": "1.0",
        "messages": list(messages),
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
        **more,
    }


PUT_LAST: Final = "u-1 c-1 c-2 c-2-result c-3 c-3-answer c-1-answer u-x".split()
PUT_IN_PLACE: Final = "u-1 c-1 c-1-answer c-2 c-2-result c-3 c-3-answer u-x".split()
REFUSED_HERE: Final = [
    ("/turns/1/ending", "success", "rejected"),
    ("/turns/1/events", ["RUN_STARTED", "RUN_FINISHED"], []),
]


def _held_back(tool_name: str) -> list[tuple[str, Any, Any]]:
    """A second run that npm sends with the call 'c-1' unanswered, and we don't send."""
    asked = _assistant("c-1", toolCalls=[_held_call("c-1", tool_name)])
    return [
        ("/inputs/run-2", _sent("run-2", _hello(1), asked, _hello(2), tools=[ASK]), ABSENT),
        (
            "/inputs/run-3/messages",
            ["u-1", "c-1", "u-2", "c-1-answer"],
            ["u-1", "c-1", "c-1-answer"],
        ),
        *REFUSED_HERE,
        ("/turns/1/messages", ["u-1", "c-1", "u-2"], ["u-1", "c-1"]),
        ("/turns/1/pending", [], ["c-1"]),
        ("/turns/2/messages", ["u-1", "c-1", "u-2", "c-1-answer"], ["u-1", "c-1", "c-1-answer"]),
    ]


KNOWN: Final = {
    "two frontend tools": Known(
        "CONV-1: an answer stands after its call, where model providers look for it; npm leaves it"
        " where the application put it.",
        [
            ("/inputs/run-2/messages", PUT_LAST, PUT_IN_PLACE),
            ("/inputs/run-3/messages", [*PUT_LAST, "m-1", "u-3"], [*PUT_IN_PLACE, "m-1", "u-3"]),
            ("/turns/1/messages", [*PUT_LAST, "m-1"], [*PUT_IN_PLACE, "m-1"]),
            ("/turns/2/messages", [*PUT_LAST, "m-1", "u-3"], [*PUT_IN_PLACE, "m-1", "u-3"]),
        ],
    ),
    "a call that nobody answers": Known(
        "A thread that goes on answers the application's calls first (FRONT-5); npm sends it"
        " without.",
        _held_back("ask_user"),
    ),
    "a call of the agent's own that nobody answers": Known(
        "CONV-1: one that is answered after all has its answer after it; npm leaves it at the end.",
        [
            (
                "/inputs/run-3/messages",
                ["u-1", "c-1", "u-2", "c-1-answer"],
                ["u-1", "c-1", "c-1-answer", "u-2"],
            ),
            (
                "/turns/2/messages",
                ["u-1", "c-1", "u-2", "c-1-answer"],
                ["u-1", "c-1", "c-1-answer", "u-2"],
            ),
        ],
    ),
    "a call that its run was cut off in": Known(
        "Nobody carries it out, and a history in which a call has no answer is one that providers"
        " refuse: we answer by saying so, npm sends it as it is.",
        [
            ("/inputs/run-2/messages", ["u-1", "c-1", "u-2"], ["u-1", "c-1", "made-1", "u-2"]),
            ("/turns/1/messages", ["u-1", "c-1", "u-2"], ["u-1", "c-1", "made-1", "u-2"]),
        ],
    ),
    "pending calls named wrongly": Known(
        "A call that was never made cannot be answered: we leave it out, and say so.",
        [
            ("/turns/0/pending", ["c-2", "c-9"], ["c-2"]),
            ("/turns/0/warned", False, True),
        ],
    ),
    "an encrypted value of nothing": Known(
        "REAS-4 has a consumer warn that the value is lost; npm drops it silently.",
        [("/turns/0/warned", False, True)],
    ),
    "a snapshot by the reference's own convention": Known(
        "npm reads metadata of its own that takes activities back; the specification has none.",
        [
            ("/turns/0/messages", ["u-1"], ["u-1", "a-1"]),
            ("/turns/1/messages", ["u-1", "u-2"], ["u-1", "a-1", "u-2"]),
        ],
    ),
    "state that is null": Known(
        "A run input has no null for a state. npm leaves it out, we send what absence means (IN-1),"
        " and go on from it.",
        [("/inputs/run-2/state", ABSENT, {}), ("/turns/1/state", None, {})],
    ),
    "an interrupt whose run fails late": Known(
        "A late failure counts as a failed run (RUN-6), which leaves the question open (CONV-4);"
        " npm takes it for answered.",
        [("/turns/1/interrupts", [], ["i-2"])],
    ),
    "an interrupt left unanswered": Known(
        "Neither sends the run; npm keeps the message that was to go with it, we keep the thread.",
        [
            ("/inputs/run-3/messages", ["u-1", "u-2", "u-3"], ["u-1", "u-3"]),
            ("/turns/1/messages", ["u-1", "u-2"], ["u-1"]),
            ("/turns/2/messages", ["u-1", "u-2", "u-3"], ["u-1", "u-3"]),
        ],
    ),
    "an interrupt answered in another form": Known(
        "We hold the answer against the form that was asked for (INT-7); npm sends it unseen.",
        [
            (
                "/inputs/run-2",
                _sent("run-2", _hello(1), resume=[_yes("i-1", payload={"approved": "perhaps"})]),
                ABSENT,
            ),
            *REFUSED_HERE,
            ("/turns/1/interrupts", [], ["i-1"]),
        ],
    ),
    "an answer to no question": Known(
        "npm sends it, and the agent may proceed without it (INT-4); it is a slip, and we say so.",
        [
            (
                "/inputs/run-2",
                _sent("run-2", _hello(1), resume=[_no("i-2"), _no("i-9")]),
                ABSENT,
            ),
            *REFUSED_HERE,
            ("/turns/1/interrupts", [], ["i-2"]),
        ],
    ),
    "two answers to a question": Known(
        "npm sends both and leaves it to the agent which one counts; we ask which one is meant.",
        [
            (
                "/inputs/run-2",
                _sent("run-2", _hello(1), resume=[_no("i-2"), _yes("i-2", payload="left")]),
                ABSENT,
            ),
            *REFUSED_HERE,
            ("/turns/1/interrupts", [], ["i-2"]),
        ],
    ),
    "a stream that just ends": Known(
        "RUN-11: the run was cut off. npm says nothing, and its promise resolves.",
        [("/turns/0/ending", "silence", "truncated")],
    ),
    "a stream against the rules": Known(
        "What came before the violation was delivered and stays; npm drops what it has read and"
        " not yet applied.",
        [
            ("/inputs/run-2/messages", ["u-1", "u-2"], ["u-1", "m-1", "u-2"]),
            (
                "/turns/0/events",
                ["RUN_STARTED"],
                [
                    "RUN_STARTED",
                    "TEXT_MESSAGE_START",
                    "TEXT_MESSAGE_CONTENT",
                    "TEXT_MESSAGE_END",
                ],
            ),
            ("/turns/0/messages", ["u-1"], ["u-1", "m-1"]),
            ("/turns/1/messages", ["u-1", "u-2"], ["u-1", "m-1", "u-2"]),
        ],
    ),
    "a run of another name": Known(
        "RUN-3: the requested run echoes the input's id; npm does not compare them.",
        [("/turns/0/warned", False, True)],
    ),
    "a refused input": Known(
        "A message that was never accepted is not part of the thread; npm keeps it there.",
        [
            ("/inputs/run-2/messages", ["u-1", "u-2"], ["u-2"]),
            ("/turns/0/messages", ["u-1"], []),
            ("/turns/1/messages", ["u-1", "u-2"], ["u-2"]),
        ],
    ),
    "a message whose id is taken": Known(
        "EVT-6: a message's id is its own in the thread; npm holds, and sends, two of one id.",
        [
            ("/inputs/run-2", _sent("run-2", _hello(1), _hello(1)), ABSENT),
            ("/inputs/run-3/messages", [_hello(1), _hello(1), _hello(3)], [_hello(1), _hello(3)]),
            *REFUSED_HERE,
            ("/turns/1/messages", [_hello(1), _hello(1)], [_hello(1)]),
            ("/turns/2/messages", [_hello(1), _hello(1), _hello(3)], [_hello(1), _hello(3)]),
        ],
    ),
}


def _turns(scenario: Scenario) -> list[dict[str, Any]]:
    """The turns in the form in which `scripted.mjs` takes them."""
    turns = []
    for number, turn in enumerate([*scenario.turns, scenario.closing], 1):
        says = [_hello(number)] if turn.says is None else turn.says
        plain: dict[str, Any] = {"runId": f"run-{number}", "messages": says}
        if isinstance(turn.says, str):
            # The id is for the client to make up: `scripted.mjs` does it, and so does `run`.
            plain["messages"] = [{"role": "user", "content": turn.says}]
        if turn.props is not None:
            plain["forwardedProps"] = turn.props
        if turn.resume is not None:
            plain["resume"] = turn.resume
        turns.append(plain)
    return turns


def _merged(turns: list[Any], scenario: Scenario) -> list[Any]:
    """The turns as our client has them: one with those that follow it by themselves."""
    merged: list[Any] = []
    for turn, found in zip([*scenario.turns, scenario.closing], turns, strict=True):
        before = merged.pop()["events"] if turn.follows else []
        merged.append({**found, "events": before + found["events"]})
    return merged


async def _turn(agent: HttpAgent, turn: dict[str, Any], warned: list[ProtocolWarning]) -> Any:
    """One run by our client, and what its user sees after it."""
    warned.clear()
    events: list[str] = []
    try:
        props = {"forwarded_props": turn["forwardedProps"]} if "forwardedProps" in turn else {}
        said = turn["messages"]
        stream = agent.run(
            said[0]["content"] if said and "id" not in said[0] else said,
            run_id=turn["runId"],
            resume=turn.get("resume"),
            **props,
        )
        async for event in stream:
            events.append(event.type)
    except InputRejected:
        ending = "refused"
    except TruncatedRun:
        ending = "truncated"
    except (InvalidInput, ProtocolViolation):
        ending = "rejected"
    else:
        ending = "error" if agent.error is not None else "success"
        if agent.outcome is not None:
            ending = msgspec.to_builtins(agent.outcome)["type"]
    return {
        "ending": ending,
        "events": events,
        "messages": msgspec.to_builtins(list(agent.messages)),
        "state": agent.state,
        "interrupts": msgspec.to_builtins(agent.interrupts),
        "pending": [call.id for call in agent.pending_tool_calls],
        "warned": bool(warned),
    }


async def _converse(url: str, scenario: Scenario, client: httpx.AsyncClient) -> list[Any]:
    """The whole scenario, held by our client."""
    warned: list[ProtocolWarning] = []
    async with HttpAgent(
        url,
        client=client,
        thread_id="thread",
        messages=scenario.messages,
        state=scenario.state,
        tools=scenario.functions or scenario.tools,
        context=scenario.context,
        on_warning=warned.append,
    ) as agent:
        return [
            await _turn(agent, turn, warned)
            for turn, said in zip(
                _turns(scenario), [*scenario.turns, scenario.closing], strict=True
            )
            if not said.follows
        ]


def _by_run(inputs: list[Any]) -> dict[str, Any]:
    """The inputs by the names of their runs; one that the client has named is "run-N", too."""
    by_run = {}
    for number, run_input in enumerate(inputs, 1):
        named = re.fullmatch(r"run-\d\d?", run_input["runId"])
        name = run_input["runId"] if named else f"run-{number}"
        assert name not in by_run
        by_run[name] = {**run_input, "runId": name}
    return by_run


def _without_made_up_ids(held: dict[str, Any], scenario: Scenario) -> Any:
    """The same with "made-1", "made-2" and so on for the ids that are not in the scenario."""
    turns = [*scenario.turns, scenario.closing]
    script = json.dumps(msgspec.to_builtins([turns, scenario.messages, _turns(scenario)]))
    lists = [turn["messages"] for turn in held["turns"]]
    lists += [run_input["messages"] for run_input in held["inputs"].values()]
    ids = dict.fromkeys(message["id"] for messages in lists for message in messages)
    made = [id_ for id_ in ids if json.dumps(id_) not in script]
    return _renamed(held, {id_: f"made-{number}" for number, id_ in enumerate(made, 1)})


def _renamed(value: Any, names: dict[str, str]) -> Any:
    match value:
        case str():
            return names.get(value, value)
        case list():
            return [_renamed(item, names) for item in value]
        case dict():
            return {key: _renamed(item, names) for key, item in value.items()}
    return value


@dataclass(frozen=True)
class Held:
    """What came of one scenario with either client."""

    theirs: dict[str, Any]
    ours: dict[str, Any]
    reasons: list[str | None]


@pytest.fixture(scope="module")
def held() -> dict[str, Held]:
    """All scenarios with both clients: one server, and one process of Node."""
    require_peers()
    names = list(SCENARIOS)
    agent = ScriptedAgent(
        {
            str(place): [turn.answer for turn in [*SCENARIOS[name].turns, SCENARIOS[name].closing]]
            for place, name in enumerate(names)
        }
    )
    quiet = logging.getLogger("aguia")
    level = quiet.level
    quiet.setLevel(logging.CRITICAL)
    try:
        with serve(agent) as url:
            cases = [
                {
                    "url": f"{url}npm/{place}",
                    "threadId": "thread",
                    "messages": SCENARIOS[name].messages,
                    "state": SCENARIOS[name].state,
                    "tools": SCENARIOS[name].tools,
                    "context": SCENARIOS[name].context,
                    "turns": _turns(SCENARIOS[name]),
                }
                for place, name in enumerate(names)
            ]
            theirs = node("scripted.mjs", {"cases": cases})["cases"]

            async def all_here() -> list[list[Any]]:
                # One client for all: each of its own would read the certificates again.
                async with httpx.AsyncClient() as client:
                    return [
                        await _converse(f"{url}here/{place}", SCENARIOS[name], client)
                        for place, name in enumerate(names)
                    ]

            ours = asyncio.run(all_here())
    finally:
        quiet.setLevel(level)
    found = {}
    for place, (name, scenario) in enumerate(SCENARIOS.items()):
        theirs[place] = _merged(theirs[place], scenario)
        reasons = [turn.pop("reason", None) for turn in theirs[place]]
        for there, here in zip(theirs[place], ours[place], strict=True):
            # npm names the pending calls of a run that finished, and of no other.
            if "pending" not in there:
                del here["pending"]
        there = {"turns": theirs[place], "inputs": _by_run(agent.inputs[f"/npm/{place}"])}
        here = {"turns": ours[place], "inputs": _by_run(agent.inputs[f"/here/{place}"])}
        found[name] = Held(
            _without_made_up_ids(there, scenario),
            _without_made_up_ids(here, scenario),
            reasons,
        )
    return found


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", SCENARIOS)
def test_both_clients_end_with_the_same(name: str, held: dict[str, Held]) -> None:
    """After each run the same messages, state, interrupts and pending calls; the same next input.

    The rules that each scenario is about stand in it.
    """
    found = held[name]
    known = KNOWN[name].places if name in KNOWN else []
    assert differences(found.theirs, found.ours) == known, found.reasons


def test_a_difference_is_seen() -> None:
    """The comparison itself: types, order, what is missing, and where."""
    theirs = {"a": [{"id": "x", "n": 1}, {"id": "y"}], "b": [1, "t"], "c": None}
    ours = {"a": [{"id": "y", "n": 0}, {"id": "x", "n": True}], "b": [1.0, ""], "d": {}}
    assert differences(theirs, ours) == [
        ("/a", ["x", "y"], ["y", "x"]),
        ("/a/x/n", 1, True),
        ("/a/y/n", ABSENT, 0),
        ("/b/1", "t", ""),
        ("/c", None, ABSENT),
        ("/d", ABSENT, {}),
    ]
    assert differences(theirs, theirs) == []
    assert differences({"a": []}, {"a": [{"id": "x"}]}) == [("/a", [], ["x"])]


def test_each_known_difference_belongs_to_a_scenario() -> None:
    assert KNOWN.keys() <= SCENARIOS.keys()
