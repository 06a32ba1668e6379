"""The npm package `@ag-ui/client` of before 1.0, talking to agents that `AgentApp` serves.

`docs/how-to/from-0.x.md` has a table of what three of its versions make of our streams, so that
who still has such clients knows what an agent may send. Each row stands here for some agents, and
what the clients make of those has to be what the page says.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from aguia import UNSET, ImagePart, TextPart, UrlSource, text_of
from aguia.server import AgentApp, Agents, Run, RunError
from support import REPOSITORY, require_peers
from support_server import node, serve

pytestmark = pytest.mark.unmeasured

VERSIONS: Final = ("0.0.39", "0.0.47", "0.0.59")
PAGE: Final = REPOSITORY / "docs" / "how-to" / "from-0.x.md"

READS: Final = "reads"
FAILS: Final = "fails"
SKIPS: Final = "passes over"
TAKES_FOR_FINISHED: Final = "takes the run for finished"

ASK: Final = {
    "name": "ask_user",
    "description": "Asks the person a question.",
    "parameters": {"type": "object", "properties": {"question": {"type": "string"}}},
}
EAGLE: Final = ImagePart(source=UrlSource(value="https://example.com/eagle.png"))
HELLO: Final = {"id": "u-1", "role": "user", "content": "What do eagles eat?"}
GO_ON: Final = {"id": "u-9", "role": "user", "content": "Go on."}

Turn = dict[str, Any]

# The agents


async def text(run: Run) -> None:
    async with run.text() as first, run.text() as second:
        await second.write("Fish")
        await first.write("Hares")
        await second.write(", I think. 🦅")
    await run.say(f"You have said: {text_of(run.messages[-1].content)}", role="developer")


async def empty_deltas(run: Run) -> None:
    """Models send them, for example with the role of what follows."""
    async with run.text() as answer:
        for token in ("", "Fish", "", "."):
            await answer.write(token)
    async with run.text():
        pass
    async with run.tool_call("look") as call:
        await call.write("")
    await call.result("")


async def chunks(run: Run) -> None:
    await run.emit({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m-1", "delta": ""})
    await run.emit({"type": "TEXT_MESSAGE_CHUNK", "delta": "Fish."})
    call = {"toolCallId": "c-1", "toolCallName": "look", "delta": "{}"}
    await run.emit({"type": "TOOL_CALL_CHUNK", **call})


async def silences(run: Run) -> None:
    await run.say("Wait.")
    await asyncio.sleep(0.1)
    await run.say("Fish.")


async def steps(run: Run) -> None:
    async with run.text() as answer, run.step("think"):
        await answer.write("Fi")
        async with run.step("think again"):
            await answer.write("sh.")


async def state(run: Run) -> None:
    if not run.state:
        run.state = {"eagles": [{"eats": None}, {"eats": None}]}
        await run.say("Both.")
        eats = {"op": "replace", "path": "/eagles/1/eats", "value": "fish"}
        await run.patch_state([eats, {"op": "remove", "path": "/eagles/0"}])
    else:
        await run.say(json.dumps(run.state))


async def tools(run: Run) -> None:
    async with run.text() as answer:
        await answer.write("I ")
        async with run.tool_call("look", {"at": "nest"}) as one, run.tool_call("listen") as other:
            await other.write("{}")
        await answer.write("look.")
    await other.result("nothing")
    await one.result("a fish")
    await run.say("Fish.")


async def parts(run: Run) -> None:
    """The second run is told of the result that the client has kept."""
    if len(run.messages) == 1:
        async with run.tool_call("look", {}) as call:
            pass
        await call.result([TextPart(text="An "), EAGLE, TextPart(text="eagle.")])
    else:
        await run.say(f"Seen: {[m.content for m in run.messages if m.role == 'tool']}")


async def frontend(run: Run) -> None:
    answer = run.tool_result("c-1")
    if answer is None:
        await run.say("I ask.")
        await run.call("ask_user", {"question": "Now?"}, tool_call_id="c-1")
    else:
        await run.say(f"You want it {text_of(answer.content)}.")


async def history(run: Run) -> None:
    call = {"id": "c-1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    seen = [{"type": "text", "text": "An eagle."}, {"type": "image", "source": _url("eagle")}]
    await _restate(
        run,
        {"id": "h-1", "role": "user", "content": "Look."},
        {"id": "h-2", "role": "assistant", "toolCalls": [call]},
        {"id": "h-3", "role": "tool", "toolCallId": "c-1", "content": seen},
        {"id": "h-4", "role": "assistant", "content": "An eagle."},
    )


async def result(run: Run) -> dict[str, str]:
    await run.say("Fish.")
    return {"food": "fish"}


async def failure(run: Run) -> None:
    run.add_usage(model="big", input_tokens=7)
    async with run.text() as answer, run.step("think"):
        await answer.write("Fi")
        raise RunError("No fish left.", code="no_fish")


async def custom(run: Run) -> None:
    async with run.text() as answer:
        await answer.write("Fi")
        await run.custom("example.com/cry", {"loud": True})
        await run.raw({"token": "sh"}, "model")
        await answer.write("sh.")


async def usage(run: Run) -> None:
    run.add_usage(provider="example", model="big", input_tokens=7, output_tokens=2)
    await run.say("Fish.")


async def names(run: Run) -> None:
    async with run.text(name="Rita", metadata={"sure": True}) as answer:
        await answer.write("Fish.")


async def reasoning(run: Run) -> None:
    async with run.text() as answer:
        await answer.write("Fi")
        async with run.reasoning() as thought:
            for token in ("", "Hares", "?"):
                await thought.write(token)
            await thought.encrypted_value("sealed")
        async with run.reasoning_span() as span, span.message() as thought:
            await thought.write("No.")
        await answer.write("sh.")
    async with run.tool_call("look", {}) as call:
        await call.encrypted_value("sealed")
    await call.result("a fish")


async def reasoning_chunks(run: Run) -> None:
    await run.emit({"type": "REASONING_MESSAGE_CHUNK", "messageId": "m-1", "delta": ""})
    await run.emit({"type": "REASONING_MESSAGE_CHUNK", "delta": "Hares?"})


async def activities(run: Run) -> None:
    async with run.text() as answer:
        await answer.write("Fi")
        search = await run.activity("SEARCH", {"found": 1})
        await search.patch([{"op": "replace", "path": "/found", "value": 2}])
        await answer.write("sh.")


async def history_of_both(run: Run) -> None:
    await _restate(
        run,
        {"id": "h-1", "role": "reasoning", "content": "Hares?"},
        {"id": "h-2", "role": "activity", "activityType": "SEARCH", "content": {"found": 2}},
    )


async def subagents(run: Run) -> None:
    async with run.subagent("finder", description="Finds.", subagent_run_id="s-1") as finder:
        async with finder.step("think"), finder.reasoning() as thought:
            await thought.write("Hares?")
        async with finder.tool_call("look", {}) as call:
            pass
        await call.result("a fish")
        await finder.activity("SEARCH", {"found": 1})
        async with finder.subagent("asker", subagent_run_id="s-2") as asker:
            async with finder.text() as one, asker.text() as other:
                await one.write("I ask.")
                await other.write("They say fish.")
            asker.finish({"food": "fish"})
    try:
        async with run.subagent("lost"):
            raise RunError("No eagle there.", code="no_eagle")
    except RunError:
        await run.say("Fish.")


async def attachments(run: Run) -> None:
    content = [{"type": "text", "text": "This."}, {"type": "image", "source": _url("eagle")}]
    await _restate(run, {"id": "h-1", "role": "user", "content": content}, _assistant("An eagle."))


async def handles(run: Run) -> None:
    content = [{"type": "image", "source": {"type": "file", "value": "file-7"}}]
    await _restate(run, {"id": "h-1", "role": "user", "content": content}, _assistant("An eagle."))


async def interrupts(run: Run) -> None:
    answer = run.resume.answer("publish", bool)
    if answer is None:
        await run.say("I have to ask.")
        run.interrupt(
            "approval",
            message="Publish it?",
            response_type=bool,
            expires_at="2999-01-01T00:00:00Z",
            interrupt_id="publish",
            metadata={"pages": 3},
        )
    else:
        await run.say("Published." if answer is True else "Then not.")


async def cancelled(run: Run) -> None:
    async with run.text() as answer:
        await answer.write("Fi")
        run.cancel()
        await asyncio.sleep(60)


async def who(run: Run) -> None:
    """What a client of before 1.0 sends."""
    declares = "no" if run.input.protocol_version is UNSET else "a"
    content = run.messages[-1].content
    assert isinstance(content, list)
    pictures = [part.source.value for part in content if isinstance(part, ImagePart)]
    await run.say(f"{declares} version, {text_of(content)} {pictures}")


def _url(name: str) -> dict[str, str]:
    return {"type": "url", "value": f"https://example.com/{name}.png", "mimeType": "image/png"}


def _assistant(content: str) -> dict[str, str]:
    return {"id": "h-9", "role": "assistant", "content": content}


async def _restate(run: Run, *messages: dict[str, Any]) -> None:
    await run.emit({"type": "MESSAGES_SNAPSHOT", "messages": list(messages)})


# What is looked at


def said(turns: list[Turn]) -> list[str]:
    """The messages that nobody has typed, in short."""
    return [_short(message) for message in turns[-1]["messages"] if message["role"] != "user"]


def _short(message: dict[str, Any]) -> str:
    owner = f" of {message['subagentRunId']}" if "subagentRunId" in message else ""
    content = message.get("content") or ""
    calls = [call["function"] for call in message.get("toolCalls", [])]
    parts = [
        message["role"] + owner + ":",
        content if isinstance(content, str) else json.dumps(content),
        *(call["name"] + call["arguments"] for call in calls),
        "sealed" if "encryptedValue" in json.dumps(message) else "",
    ]
    return " ".join(part for part in parts if part)


def last(turns: list[Turn]) -> dict[str, Any]:
    """The event that ended the last run, without what every one has."""
    return {
        name: value
        for name, value in turns[-1]["last"].items()
        if name not in ("type", "threadId", "runId")
    }


@dataclass(frozen=True)
class Scenario:
    """A conversation with an agent.

    Attributes:
        agent: whom it is held with.
        expects: what `look` finds where all that was said has come over.
        lesser: what it finds where less has, by the word that the page has for that.
        look: given what the turns have come to.
        turns: what is said before each run. After them comes one more, `GO_ON`.
        settings: those of its `AgentApp`.
    """

    agent: Callable[[Run], Any]
    expects: Any = None
    lesser: dict[str, Any] = field(default_factory=dict)
    look: Callable[[list[Turn]], Any] = said
    turns: tuple[Turn, ...] = ({"messages": [HELLO]},)
    settings: dict[str, Any] = field(default_factory=dict)


AGAIN: Final = {"messages": [{"id": "u-2", "role": "user", "content": "And now?"}]}
LOOKED: Final = ["assistant: I look.", 'assistant: look{"at":"nest"}', "assistant: listen{}"]
SEEN: Final = ["assistant: look{}", "tool: An eagle.", "assistant: Seen: ['An eagle.']"]
FED: Final = {"eagles": [{"eats": "fish"}]}

SCENARIOS: Final[dict[str, Scenario]] = {
    "text": Scenario(
        text,
        [
            "assistant: Hares",
            "assistant: Fish, I think. 🦅",
            "developer: You have said: What do eagles eat?",
        ],
    ),
    "empty_deltas": Scenario(
        empty_deltas,
        ["assistant: Fish.", "assistant:", "assistant: look", "tool:"],
    ),
    "chunks": Scenario(chunks, ["assistant: Fish.", "assistant: look{}"]),
    "silences": Scenario(
        silences, ["assistant: Wait.", "assistant: Fish."], settings={"keep_alive": 0.02}
    ),
    "steps": Scenario(steps, ["assistant: Fish."]),
    "state": Scenario(
        state,
        [FED, ["assistant: Both.", f"assistant: {json.dumps(FED)}"]],
        look=lambda turns: [turns[0]["state"], said(turns)],
        turns=({"messages": [HELLO]}, AGAIN),
    ),
    "tools": Scenario(
        tools,
        sorted([*LOOKED, "tool: a fish", "tool: nothing", "assistant: Fish."]),
        # The versions differ in where they put the results of several calls.
        look=lambda turns: sorted(said(turns)),
    ),
    "parts": Scenario(parts, SEEN, turns=({"messages": [HELLO]}, AGAIN)),
    "frontend": Scenario(
        frontend,
        [
            "assistant: I ask.",
            'assistant: ask_user{"question":"Now?"}',
            "tool: later",
            "assistant: You want it later.",
        ],
        turns=(
            {"messages": [HELLO]},
            {"messages": [{"id": "t", "role": "tool", "toolCallId": "c-1", "content": "later"}]},
        ),
    ),
    "history": Scenario(history, ["assistant: look{}", "tool: An eagle.", "assistant: An eagle."]),
    "result": Scenario(result, {"food": "fish"}, look=lambda turns: last(turns)["result"]),
    "failure": Scenario(
        failure,
        ["failed", "No fish left.", "no_fish", ["assistant: Fi"]],
        look=lambda turns: [
            turns[0]["ending"],
            last(turns)["message"],
            last(turns)["code"],
            said(turns),
        ],
    ),
    "custom": Scenario(custom, ["assistant: Fish."]),
    "usage": Scenario(
        usage,
        [
            {
                "provider": "example",
                "model": "big",
                "inputTokens": 7,
                "outputTokens": 2,
                "totalTokens": 9,
            }
        ],
        {SKIPS: None},
        look=lambda turns: last(turns).get("usage"),
    ),
    "names": Scenario(
        names,
        ["Fish.", "Rita", {"sure": True}],
        {SKIPS: ["Fish.", None, None]},
        look=lambda turns: [
            turns[-1]["messages"][-1].get(member) for member in ("content", "name", "metadata")
        ],
    ),
    "reasoning": Scenario(
        reasoning,
        [
            "assistant: Fish.",
            "reasoning: Hares? sealed",
            "reasoning: No.",
            "assistant: look{} sealed",
            "tool: a fish",
        ],
    ),
    "reasoning_chunks": Scenario(reasoning_chunks, ["reasoning: Hares?"]),
    "activities": Scenario(activities, ["assistant: Fish.", 'activity: {"found": 2}']),
    "history_of_both": Scenario(history_of_both, ["reasoning: Hares?", 'activity: {"found": 2}']),
    "subagents": Scenario(
        subagents,
        [
            "reasoning of s-1: Hares?",
            "assistant of s-1: look{}",
            "tool of s-1: a fish",
            'activity of s-1: {"found": 1}',
            "assistant of s-1: I ask.",
            "assistant of s-2: They say fish.",
            "assistant: Fish.",
        ],
    ),
    "attachments": Scenario(attachments, ["assistant: An eagle."]),
    "handles": Scenario(handles, ["assistant: An eagle."]),
    "interrupts": Scenario(
        interrupts,
        [["publish"], ["assistant: I have to ask.", "assistant: Published."]],
        {TAKES_FOR_FINISHED: [None, ["assistant: I have to ask."] * 2]},
        look=lambda turns: [
            turns[0].get("interrupts") and [each["id"] for each in turns[0]["interrupts"]],
            said(turns),
        ],
        turns=(
            {"messages": [HELLO]},
            {
                "messages": [],
                "resume": [{"interruptId": "publish", "status": "resolved", "payload": True}],
            },
        ),
    ),
    "cancelled": Scenario(
        cancelled,
        lesser={TAKES_FOR_FINISHED: ["finished", ["assistant: Fi"]]},
        look=lambda turns: [turns[-1]["ending"], said(turns)],
    ),
    "who": Scenario(
        who,
        ["assistant: no version, What is this? ['https://example.com/eagle.png']"] * 2,
        turns=tuple(
            {
                "messages": [
                    {
                        "id": f"u-{number}",
                        "role": "user",
                        "content": [{"type": "text", "text": "What is this?"}, picture],
                    }
                ]
            }
            for number, picture in enumerate(
                [
                    {
                        "type": "binary",
                        "mimeType": "image/png",
                        "url": "https://example.com/eagle.png",
                    },
                    {"type": "image", "source": _url("eagle")},
                ]
            )
        ),
    ),
}

ROWS: Final = {
    "text, steps, state, tool calls and results, the application's tools, histories, results of "
    "runs, errors, custom and raw events": [
        "text",
        "empty_deltas",
        "chunks",
        "silences",
        "steps",
        "state",
        "tools",
        "parts",
        "frontend",
        "history",
        "result",
        "failure",
        "custom",
    ],
    "usage": ["usage"],
    "names, metadata": ["names"],
    "reasoning, activities": ["reasoning", "reasoning_chunks", "activities", "history_of_both"],
    "subagents": ["subagents"],
    "attachments in a history": ["attachments"],
    "attachments in a history that are files at the provider": ["handles"],
    "interrupts": ["interrupts"],
    "a run that is cancelled": ["cancelled"],
}
"""The rows of the page's table, and the agents that each is about."""

UNFLATTENED: Final = {
    "empty_deltas": [FAILS, FAILS, READS],
    "parts": [FAILS, FAILS, FAILS],
    "frontend": [READS, READS, FAILS],
}
"""What the versions make of agents with `flatten_for_old_clients=False`."""

Held = dict[tuple[str, str], list[Turn]]


@pytest.fixture(scope="module")
def held() -> Held:
    """All conversations with all versions: one server, and one process of Node."""
    require_peers()
    apps = {name: _app(scenario) for name, scenario in SCENARIOS.items()}
    for name in UNFLATTENED:
        apps[f"unflattened_{name}"] = _app(SCENARIOS[name], flatten_for_old_clients=False)
    cases = [(name, version) for name in apps for version in VERSIONS]
    quiet = logging.getLogger("aguia")
    level = quiet.level
    quiet.setLevel(logging.CRITICAL)
    try:
        with serve(Agents(**apps)) as url:
            request = [
                {
                    "client": f"ag-ui-client-{version}",
                    "url": f"{url}{name}",
                    "tools": [ASK],
                    "turns": [*_scenario(name).turns, {"messages": [GO_ON]}],
                }
                for name, version in cases
            ]
            answers = node("old.mjs", {"cases": request})["cases"]
    finally:
        quiet.setLevel(level)
    return dict(zip(cases, answers, strict=True))


def _scenario(name: str) -> Scenario:
    return SCENARIOS[name.removeprefix("unflattened_")]


def _app(scenario: Scenario, **settings: Any) -> AgentApp:
    async def agent(run: Run) -> Any:
        if run.messages[-1].content == GO_ON["content"]:
            return await run.say("That was all.")
        return await scenario.agent(run)

    return AgentApp(agent, **scenario.settings, **settings)


def verdict(name: str, turns: list[Turn]) -> str:
    """What a client has made of a scenario, in the page's words where it has some for it."""
    scenario, turns = _scenario(name), turns[:-1]
    for turn in turns:
        if turn["ending"] == "rejected":
            # By the schema, whose findings have codes, and for no other reason.
            return FAILS if '"code": "' in turn["reason"] else f"{name}: {turn['reason']}"
    found = scenario.look(turns)
    if scenario.expects is not None and found == scenario.expects:
        return READS
    words = [word for word, lesser in scenario.lesser.items() if found == lesser]
    return words[0] if words else f"{name}: {found}"


def test_the_clients_make_of_our_streams_what_the_page_says(held: Held) -> None:
    """TOOL-11, FRONT-2, FRONT-4, and all else that they are sent as it is."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(place for place, line in enumerate(lines) if "`@ag-ui/client` |" in line)
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    head, _, *body = rows
    assert tuple(head[1:]) == VERSIONS
    found = {
        title: [
            ", ".join(dict.fromkeys(verdict(name, held[name, version]) for name in names))
            for version in VERSIONS
        ]
        for title, names in ROWS.items()
    }
    assert found == {title: words for title, *words in body}


def test_what_is_held_back_from_them_is_what_they_fail_for(held: Held) -> None:
    """TOOL-11, FRONT-4, STREAM-2."""
    found = {
        name: [verdict(name, held[f"unflattened_{name}", version]) for version in VERSIONS]
        for name in UNFLATTENED
    }
    assert found == UNFLATTENED


def test_the_thread_goes_on_whatever_they_have_made_of_it(held: Held) -> None:
    """What they keep of it, and send with the next input, is an input of ours."""
    ends = {case: (turns[-1]["ending"], said(turns)[-1]) for case, turns in held.items()}
    assert ends == dict.fromkeys(held, ("finished", "assistant: That was all."))


def test_what_they_say_is_understood(held: Held) -> None:
    """VER-1, VER-4: no version, and pictures in the old shape and in today's."""
    found = [verdict("who", held["who", version]) for version in VERSIONS]
    assert found == [READS] * len(VERSIONS)


@pytest.mark.parametrize(
    ("name", "outcome"), [("interrupts", "interrupt"), ("cancelled", "cancelled")]
)
def test_an_outcome_that_is_not_understood_may_be_on_the_event(
    name: str, outcome: str, held: Held
) -> None:
    """INT-1, RUN-10: which an application can go by."""
    ends = [held[name, version][0]["last"] for version in VERSIONS[:2]]
    assert "outcome" not in ends[0]
    assert ends[1]["outcome"]["type"] == outcome
