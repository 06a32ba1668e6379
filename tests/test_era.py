"""Old peers, read by the npm client and by ours: the same thread, and the same input sent.

The npm client is pinned to a peer's version as its users do it, by a subclass; ours by
`peer_version`. Both hold one conversation over SSE with each of many random old streams.
"""

import json
import logging
import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

import httpx
import msgspec
import pytest

from aguia import HttpAgent, ProtocolViolation, ProtocolWarning
from aguia.pipeline.compatibility import upgrade_message
from support import require_peers
from support_eras import VERSIONS, OldCase, old_stream
from support_server import canonical, node

CASES: Final = 200

_MADE: Final = re.compile(
    "reasoning-[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)


@dataclass
class Held:
    """What a client sent and what it was left with; ids that it made up are numbered."""

    sent: Any
    messages: Any
    state: Any
    events: list[str]
    error: str | None
    warnings: list[str]


def _numbered(value: Any) -> Any:
    names: dict[str, str] = {}
    text = json.dumps(value)
    return json.loads(_MADE.sub(lambda id_: names.setdefault(id_[0], f"#{len(names)}"), text))


def _there(cases: list[OldCase]) -> list[Held]:
    request = {
        "cases": [
            {
                "input": case.input,
                "events": case.events,
                **({"version": case.version} if case.version is not None else {}),
            }
            for case in cases
        ]
    }
    return [
        Held(
            found["sent"],
            _numbered(_upgraded(found["messages"])),
            found["state"],
            found["events"],
            found.get("error"),
            found["warnings"],
        )
        for found in node("era.mjs", request)["cases"]
    ]


def _upgraded(messages: list[Any]) -> list[Any]:
    """The messages with the parts that npm leaves as they were given, and upgrades when sending.

    What it sends is compared as it is, so that this hides nothing.
    """
    result = []
    for message in messages:
        upgraded = upgrade_message(message, "", lambda text, path, lost=False: None)
        if isinstance(upgraded.get("content"), list):
            parts = [part for part in upgraded["content"] if part["type"] != "binary"]
            upgraded = {**upgraded, "content": parts}
        result.append(upgraded)
    return result


async def _here(case: OldCase) -> Held:
    sent: list[Any] = []
    warnings: list[ProtocolWarning] = []
    events: list[str] = []
    error = None

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in case.events)
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=body)

    async with (
        httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client,
        HttpAgent(
            "http://agent.example/",
            client=client,
            thread_id=case.input["threadId"],
            messages=case.input["messages"],
            state=case.input["state"],
            tools=case.input["tools"],
            peer_version=case.version,
            on_warning=warnings.append,
        ) as agent,
    ):
        try:
            async for event in agent.run(run_id=case.input["runId"]):
                events.append(event.type)
        except ProtocolViolation as caught:
            error = str(caught)
        return Held(
            sent[0],
            _numbered(msgspec.to_builtins(list(agent.messages))),
            agent.state,
            events,
            error,
            [str(warning) for warning in warnings],
        )


def _text_after_parts(theirs: Any, ours: Any) -> bool:
    """TEXT-3: text that continues a message of parts is its last part; npm drops the parts."""
    return isinstance(theirs.get("content"), str) and isinstance(ours.get("content"), list)


@pytest.fixture(scope="module")
def held_there() -> list[tuple[OldCase, Held]]:
    require_peers()
    cases = [old_stream(seed) for seed in range(CASES)]
    return list(zip(cases, _there(cases), strict=True))


@pytest.mark.unmeasured
@pytest.mark.anyio
async def test_old_streams_mean_the_same_to_both(
    held_there: list[tuple[OldCase, Held]], caplog: pytest.LogCaptureFixture
) -> None:
    """VER-1, VER-3, VER-4: retired shapes and pins, through both clients."""
    caplog.set_level(logging.ERROR, "aguia")
    differing = []
    nothing: dict[str, Any] = {}
    for case, npm in held_there:
        ours = await _here(case)
        assert ours.error is None, f"{case.name}: {ours.error}"
        if npm.error is not None:
            # Without tags, steps of several owners may share a name: npm refuses that.
            assert npm.error.startswith("Step "), f"{case.name}: {npm.error}"
            assert case.version is not None
            continue
        for aspect in ("sent", "messages", "state", "events"):
            there, here = getattr(npm, aspect), getattr(ours, aspect)
            if aspect == "messages":
                here = [
                    theirs if _text_after_parts(theirs, message) else message
                    for theirs, message in zip_longest(there, here, fillvalue=nothing)
                ]
            if canonical(there) != canonical(here):
                differing.append(f"{case.name}: {aspect}\n{there}\n{here}")
        if bool(npm.warnings) != bool(ours.warnings):
            differing.append(f"{case.name}: {npm.warnings} but {ours.warnings}")
    assert differing == []


@pytest.mark.unmeasured
def test_the_streams_show_what_they_are_for() -> None:
    """Every pin, and every retired shape, many times over."""
    cases = [old_stream(seed) for seed in range(CASES)]
    assert {case.version for case in cases} == set(VERSIONS)
    text = json.dumps([case.events for case in cases])
    for shape in (
        *("THINKING_START", "THINKING_TEXT_MESSAGE_CONTENT", '"title"', '"binary"'),
        *('"parentMessageId": null', '"outcome": null', '"result": null', '"rawEvent": null'),
        *('"forwardedProps": null', '"parameters": null', '"payload": null', '"metadata": null'),
        *("SUBAGENT_STARTED", '"subagentRunId"', "_CHUNK"),
    ):
        assert text.count(shape) > 3, shape
    assert json.dumps([case.input for case in cases]).count('"binary"') > 100
