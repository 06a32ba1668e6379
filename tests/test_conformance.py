"""Whole streams with their expected outcome, replayed through `Consumer`.

The project's own streams are the corpus that the package brings along, and `docs/how-to/corpus.md`
describes their files. The public ones of the protocol are replayed too where they are at hand;
of what a file expects they know less, and their `outcome` is `completed`, or `failed` when the
stream is rejected.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest

from aguia import (
    AguiaError,
    Consumer,
    HttpAgent,
    MalformedEvent,
    ProtocolViolation,
    ProtocolWarning,
    TruncatedRun,
)
from aguia.protocol.rules import RULES
from aguia.testing.comparison import ABSENT, at, differences, same
from support import own_streams, shared

Stream = dict[str, Any]


def _folder(path: str) -> Path | None:
    """Return shared data, or None where it is missing: a parametrised test can't skip itself."""
    try:
        return shared(path)
    except pytest.skip.Exception:
        return None


PUBLIC: Final = _folder("conformance")


def _public() -> dict[str, Stream]:
    found = {}
    for path in sorted((PUBLIC / "streams").glob("*.json")) if PUBLIC is not None else ():
        found[path.stem] = stream = json.loads(path.read_text(encoding="utf-8"))
        if stream["expect"]["outcome"] == "failed":
            stream["expect"]["outcome"] = "rejected"  # the word of the project's own
    return found


OWN_STREAMS: Final = own_streams()
PUBLIC_STREAMS: Final = _public()

# A public stream that pins a defect of the reference client, by its own description: what the
# specification asks for is that the unknown role is stripped (PROC-5).
CORRECTED: Final[dict[str, dict[str, Any]]] = {
    "unknown-enum-value-role-fatal": {
        "outcome": "completed",
        "warnings": ["/role"],
        "eventAbsentPaths": ["1.role"],
        "messages": [
            {
                "id": "m-unknown-role",
                "role": "assistant",
                "content": "the role above is the only defect in this stream",
            }
        ],
    }
}

# Warnings that the public streams quote in the reference client's words, and the rule by which
# ours is known.
FOREIGN_WORDS: Final = {"Failed to apply state patch": "STATE-4", "cannot interpret": "VER-2"}

# The same of warnings that are due when the input is sent, and not when the stream is read.
WORDS_OF_SENDING: Final = {"DROPS non-text parts": "VER-3"}

MADE_UP: Final = re.compile("reasoning-[0-9a-f]{32}")
"""An id that the compatibility boundary makes, another one for each stream that is read."""


def _params(streams: Iterable[str], kind: str) -> list[Any]:
    names = list(streams)
    if not names:
        missing = pytest.mark.skip(reason="no shared data beside the repository")
        return [pytest.param("", id=f"{kind}:none", marks=missing)]
    return [pytest.param(name, id=f"{kind}:{name}") for name in names]


# Replaying


@dataclass
class Replay:
    """What became of a stream."""

    error: AguiaError | None = None
    events: list[Any] = field(default_factory=list)
    warnings: list[ProtocolWarning] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    state: Any = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        if self.error is None:
            return "failed" if self.facts["failed"] else "accepted"
        return "truncated" if isinstance(self.error, TruncatedRun) else "rejected"

    def verdict(self) -> list[Any]:
        """Everything that must not depend on how the events arrived."""
        error = self.error
        return [
            type(error),
            *_with_plain_ids(
                [
                    str(error) if isinstance(error, ProtocolViolation) else None,
                    self.events,
                    self.messages,
                    self.state,
                    msgspec.to_builtins(self.warnings),
                    self.facts,
                ],
                {},
            ),
        ]


def _with_plain_ids(value: Any, names: dict[str, str]) -> Any:
    """Write the ids that were made up as numbers, in the order in which they appear."""
    match value:
        case str():
            return MADE_UP.sub(lambda id_: names.setdefault(id_[0], f"made-{len(names)}"), value)
        case list():
            return [_with_plain_ids(item, names) for item in value]
        case dict():
            return {key: _with_plain_ids(item, names) for key, item in value.items()}
    return value


def _frame(event: Any) -> bytes:
    """Write an event as an SSE frame; half a surrogate pair can only travel as an escape."""
    try:
        text = json.dumps(event, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        text = json.dumps(event).encode()
    return b"data: " + text + b"\n\n"


def _body(stream: Stream) -> bytes:
    return b"".join(map(_frame, stream["stream"]))


def _consumer(stream: Stream, warnings: list[ProtocolWarning]) -> Consumer:
    given = dict(stream.get("input") or {})
    options: dict[str, Any] = {"peer_version": _pin(stream), "on_warning": warnings.append}
    if "threadId" in given:
        return Consumer({"messages": [], **given}, **options)
    known = {"state": given["state"]} if "state" in given else {}
    return Consumer(messages=given.get("messages", ()), **options, **known)


def _pin(stream: Stream) -> str | None:
    """Return the version that the peer is known to speak, where it is an old one."""
    pin: str | None = stream.get("client", {}).get("maxProtocolVersion")
    return pin


def _replay(stream: Stream, how: str) -> Replay:
    """Read a stream as one `body`, one `byte` at a time, in awkward `pieces`, or as `dicts`."""
    replay = Replay()
    consumer = _consumer(stream, replay.warnings)
    batches: Iterable[Any]
    if how == "dicts":
        batches = (consumer.receive_event(event) for event in stream["stream"])
    else:
        body = _body(stream)
        size = {"body": len(body) or 1, "byte": 1, "pieces": 7}[how]
        batches = (
            consumer.receive(body[start : start + size]) for start in range(0, len(body), size)
        )
    try:
        for batch in batches:
            replay.events.extend(msgspec.to_builtins(event) for event in batch)
        replay.events.extend(msgspec.to_builtins(event) for event in consumer.end())
    except (ProtocolViolation, TruncatedRun) as error:
        replay.error = error
    conversation = consumer.conversation
    replay.messages = [msgspec.to_builtins(message) for message in conversation.messages]
    replay.state = conversation.state
    replay.facts = {
        "pendingToolCallIds": [call.id for call in conversation.pending_tool_calls],
        "interrupts": msgspec.to_builtins(conversation.interrupts),
        "conversationOutcome": conversation.outcome.type if conversation.outcome else None,
        "usage": msgspec.to_builtins(conversation.usage),
        "failed": conversation.error is not None,
    }
    return replay


# Comparing


def _matches(warning: ProtocolWarning, expected: str | dict[str, str]) -> bool:
    if isinstance(expected, str):
        rule = FOREIGN_WORDS.get(expected)
        return expected in str(warning) if rule is None else warning.rule == rule
    return (
        warning.rule == expected["rule"]
        and expected.get("path", warning.path) == warning.path
        and expected.get("contains", "") in str(warning)
    )


def _problems(expect: dict[str, Any], replay: Replay) -> list[str]:
    """Say what of the expectations, of either kind of stream, did not come true."""
    found: list[str] = []
    wanted = expect["outcome"]
    if replay.outcome not in (("accepted", "failed") if wanted == "completed" else (wanted,)):
        found.append(f"outcome is {replay.outcome} ({replay.error!r}) and not {expect['outcome']}")
    found += _problems_of_events(expect, replay)
    if expect.get("noWarnings") and replay.warnings:
        found.append(f"warnings: {[str(warning) for warning in replay.warnings]}")
    for wanted in expect.get("warnings", ()):
        if isinstance(wanted, str) and wanted in WORDS_OF_SENDING:
            continue
        if not any(_matches(warning, wanted) for warning in replay.warnings):
            found.append(f"no warning {wanted} among {[str(each) for each in replay.warnings]}")
    if "messageCount" in expect and len(replay.messages) != expect["messageCount"]:
        found.append(f"{len(replay.messages)} messages instead of {expect['messageCount']}")
    if "messages" in expect:
        found += differences(replay.messages, expect["messages"], "messages")
    if "state" in expect:
        found += differences(replay.state, expect["state"], "state")
    return found


def _problems_of_events(expect: dict[str, Any], replay: Replay) -> list[str]:
    found = []
    types = [event["type"] for event in replay.events]
    if "eventTypes" in expect and types != expect["eventTypes"]:
        found.append(f"delivered {types} instead of {expect['eventTypes']}")
    for absent in expect.get("eventTypesAbsent", ()):
        if absent in types:
            found.append(f"delivered {absent}")
    for path, value in expect.get("eventPaths", {}).items():
        actual = at(replay.events, path)
        if not same(actual, value):
            found.append(f"event {path} is {actual!r} instead of {value!r}")
    for path in expect.get("eventAbsentPaths", ()):
        if at(replay.events, path) is not ABSENT:
            found.append(f"event {path} is there")
    if "runError" in expect:
        said = [event["message"] for event in replay.events if event["type"] == "RUN_ERROR"]
        wanted = expect["runError"]
        if not any(wanted is True or wanted in message for message in said):
            found.append(f"no RUN_ERROR says {wanted!r}: {said}")
    return found


def _own_problems(expect: dict[str, Any], replay: Replay) -> list[str]:
    """Say what of the expectations that only the project's own streams have did not come true."""
    found = []
    error = replay.error
    if expect["outcome"] == "rejected" and isinstance(error, ProtocolViolation):
        if (error.rule, error.index) != (expect["rule"], expect["index"]):
            found.append(f"rejected for {error.rule} at {error.index}: {error}")
        if isinstance(error, MalformedEvent) and error.path is None:
            found.append(f"a malformed event without a path: {error}")
        if "path" in expect and error.path != expect["path"]:
            found.append(f"the path is {error.path!r} instead of {expect['path']!r}")
    if "warnings" in expect:
        for warning in replay.warnings:
            if not any(_matches(warning, wanted) for wanted in expect["warnings"]):
                found.append(f"unexpected warning: {warning}")
    for path in expect.get("messageAbsentPaths", ()):
        if at(replay.messages, path) is not ABSENT:
            found.append(f"message {path} is there")
    if "state" in expect and not same(replay.state, expect["state"]):
        found.append(f"the state is {replay.state!r} instead of {expect['state']!r}")
    for fact in ("pendingToolCallIds", "interrupts", "conversationOutcome", "usage"):
        if fact in expect and not same(replay.facts[fact], expect[fact]):
            found.append(f"{fact} is {replay.facts[fact]!r} instead of {expect[fact]!r}")
    types = [event["type"] for event in replay.events]
    if ("RUN_ERROR" in types) != ("runError" in expect) and "index" not in expect:
        found.append("a RUN_ERROR that is not expected, or the reverse")
    # A failed run and a rejected stream are different things (RUN-8).
    if replay.facts["failed"] != (types[-1:] == ["RUN_ERROR"]):
        found.append("the conversation's error is not that of the last run")
    return found


# The streams


@pytest.mark.parametrize("name", _params(OWN_STREAMS, "own"))
def test_own_stream(name: str) -> None:
    stream = OWN_STREAMS[name]
    expect = stream["expect"]
    replay = _replay(stream, "body")
    assert _problems(expect, replay) + _own_problems(expect, replay) == []


@pytest.mark.parametrize("name", _params(PUBLIC_STREAMS, "public"))
def test_public_stream(name: str) -> None:
    stream = PUBLIC_STREAMS[name]
    expect = CORRECTED[name] if name in CORRECTED else stream["expect"]
    replay = _replay(stream, "body")
    assert _problems(expect, replay) == []
    if expect["outcome"] == "rejected":
        assert isinstance(replay.error, ProtocolViolation)
        assert replay.error.rule in _public_rules()[name]


def _public_rules() -> dict[str, list[str]]:
    assert PUBLIC is not None
    lines = (PUBLIC / "rules.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return {name: rules.split(",") for name, rules in (line.split("\t") for line in lines)}


@pytest.mark.unmeasured
@pytest.mark.parametrize("how", ["byte", "pieces", "dicts"])
@pytest.mark.parametrize("name", _params(OWN_STREAMS, "own") + _params(PUBLIC_STREAMS, "public"))
def test_same_verdict_however_it_arrives(name: str, how: str) -> None:
    """HTTP-3 and PROC-7: splits of the bytes, and the way in, change nothing."""
    stream = OWN_STREAMS.get(name) or PUBLIC_STREAMS[name]
    assert _replay(stream, how).verdict() == _replay(stream, "body").verdict()


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", _params(OWN_STREAMS, "own") + _params(PUBLIC_STREAMS, "public"))
def test_same_verdict_the_long_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROC-7: what the strict decoder takes is judged as if it had refused it."""
    stream = OWN_STREAMS.get(name) or PUBLIC_STREAMS[name]
    strict_first = _replay(stream, "body").verdict()
    frames = 0

    def refuse(frame: bytes) -> Any:
        nonlocal frames
        frames += 1
        raise msgspec.DecodeError

    monkeypatch.setattr("aguia.consumer.decode_event", refuse)
    assert _replay(stream, "body").verdict() == strict_first
    assert frames or not stream["stream"]


# What a client sends

_SENT: Final = ("request", "requestAbsentPaths", "nextRequest")


def _that_send(streams: dict[str, Stream]) -> list[str]:
    return [name for name, stream in streams.items() if any(k in stream["expect"] for k in _SENT)]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "name",
    _params(_that_send(OWN_STREAMS), "own") + _params(_that_send(PUBLIC_STREAMS), "public"),
)
async def test_request(name: str) -> None:
    stream = OWN_STREAMS.get(name) or PUBLIC_STREAMS[name]
    expect = stream["expect"]
    sent: list[Any] = []
    warnings: list[ProtocolWarning] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        body = _body(stream)
        if len(sent) > 1:
            run = {"threadId": sent[-1]["threadId"], "runId": sent[-1]["runId"]}
            body = _frame({"type": "RUN_STARTED", **run}) + _frame({"type": "RUN_FINISHED", **run})
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    given = stream.get("input", {})
    known = {"state": given["state"]} if "state" in given else {}
    first = stream["stream"][0]
    transport = httpx.MockTransport(answer)
    async with (
        httpx.AsyncClient(transport=transport) as client,
        HttpAgent(
            "http://agent.example/",
            client=client,
            thread_id=first["threadId"],
            messages=given.get("messages", ()),
            tools=given.get("tools", ()),
            peer_version=_pin(stream),
            on_warning=warnings.append,
            **known,
        ) as agent,
    ):
        async for _ in agent.run([], run_id=first["runId"]):
            pass
        if "nextRequest" in expect:
            async for _ in agent.run([]):
                pass
    assert differences(sent[0], expect.get("request", {}), "request") == []
    assert differences(sent[-1], expect.get("nextRequest", {}), "nextRequest") == []
    for path in expect.get("requestAbsentPaths", ()):
        assert at(sent[0], path) is ABSENT
    for wanted in expect.get("warnings", ()):
        if isinstance(wanted, str) and wanted in WORDS_OF_SENDING:
            assert WORDS_OF_SENDING[wanted] in {warning.rule for warning in warnings}
    if expect.get("noWarnings"):
        assert warnings == []


# The files themselves

_EXPECTED: Final = frozenset(
    {
        "outcome",
        "rule",
        "index",
        "path",
        "runError",
        "eventTypes",
        "eventTypesAbsent",
        "eventPaths",
        "eventAbsentPaths",
        "warnings",
        "noWarnings",
        "messageCount",
        "messages",
        "messageAbsentPaths",
        "state",
        "request",
        "requestAbsentPaths",
        "nextRequest",
        "pendingToolCallIds",
        "interrupts",
        "conversationOutcome",
        "usage",
    }
)
_MEMBERS: Final = frozenset(
    {
        "name",
        "area",
        "description",
        "rules",
        "kill",
        "reference",
        "input",
        "stream",
        "expect",
    }
)


@pytest.mark.parametrize("name", _params(OWN_STREAMS, "own"))
def test_own_stream_is_in_the_format(name: str) -> None:
    stream = OWN_STREAMS[name]
    expect = stream["expect"]
    assert stream.keys() <= _MEMBERS
    assert expect.keys() <= _EXPECTED
    assert stream["name"] == name
    assert name.startswith(f"{stream['area']}-")
    assert stream["description"]
    assert stream["kill"]
    assert stream["rules"]
    assert set(stream["rules"]) <= RULES.keys()
    if expect["outcome"] == "rejected":
        assert 0 <= expect["index"] < len(stream["stream"])
        assert expect["rule"] in RULES
    else:
        # Whether a stream is quiet is part of every expectation.
        assert ("warnings" in expect) != ("noWarnings" in expect)


def test_own_stream_names_are_the_public_ones_of_nobody() -> None:
    assert OWN_STREAMS.keys() & PUBLIC_STREAMS.keys() == set()
