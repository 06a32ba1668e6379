"""The probes: what each tries, which rules it tests, and what it expects.

Each is a function whose docstring says what is done. It raises `Failed` where the agent breaks a
rule that binds it, and `Skipped` where the agent can't be led to where the rule matters; what
only should be so is a warning.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from aguia.codec import frames, sse
from aguia.pipeline.versions import parse_version
from aguia.testing.probes.exchange import Exchange, Stream
from aguia.testing.probes.malformed import MALFORMED
from aguia.testing.probes.prober import Failed, Probe, Probing, Skipped, user

__all__ = ["PROBES", "UNKNOWN"]

_Function = Callable[[Probing], Awaitable[None]]

_BOTH: Final = f"{sse.CONTENT_TYPE}, {frames.CONTENT_TYPE}"
_NEWER: Final = "1.99"
_PIXEL: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJg"
    "gg=="
)


def _probe(name: str, *rules: str) -> Callable[[_Function], Probe]:
    def made(function: _Function) -> Probe:
        what = " ".join((function.__doc__ or "").split())
        return Probe(name, rules, what, function)

    return made


# A plain run


@_probe("plain-run", "HTTP-2", "RUN-1", "RUN-2", "RUN-3", "RUN-5", "RUN-11")
async def _plain_run(p: Probing) -> None:
    """An ordinary message is answered by a stream that breaks no rule and ends with its run."""
    assert p.plain is not None
    p.exchanges.append(p.plain)
    if p.plain.media_type == frames.CONTENT_TYPE:
        raise Failed("asked for server-sent events alone, it answers with the binary binding")
    stream = p.served(p.plain, plain=True)
    if stream.failure is not None:
        p.warn(
            f"the run fails: {stream.failure[:200]}; --message TEXT says what the agent can answer"
        )
    p.note(f"{len(stream.events)} events")


@_probe("version-declared", "VER-1", "VER-2")
async def _version_declared(p: Probing) -> None:
    """RUN_STARTED declares the version of the protocol that the agent speaks."""
    stream = p.need_plain_run()
    for event in stream.of_type("RUN_STARTED")[-1:]:
        version = event.get("protocolVersion")
        if version is None:
            raise Failed("RUN_STARTED has no protocolVersion")
        if not isinstance(version, str) or parse_version(version) is None:
            raise Failed(f"RUN_STARTED declares '{str(version)[:40]}', which is no version")
        p.note(f"it speaks {version}")
        return
    raise Skipped("the plain run has no RUN_STARTED")


@_probe("second-turn", "RUN-12", "RUN-13", "EVT-6")
async def _second_turn(p: Probing) -> None:
    """A second run on the same thread, with the first one's messages and state, is served."""
    first = p.need_plain_run()
    stream = await p.serve("a second turn", p.follow_up(first, user(p.settings.message)))
    held = {message["id"]: message for message in first.messages}
    for event in stream.of_type("TEXT_MESSAGE_START", "TEXT_MESSAGE_CHUNK"):
        if held.get(event.get("messageId"), {}).get("role") == "assistant":
            p.warn(f"the message '{event['messageId'][:60]}' of the first run is streamed again")
            return


# What may be there, or be missing


def _member(input: dict[str, Any]) -> None:
    input["somethingNew"] = {"nested": [1, None]}


def _message_member(input: dict[str, Any]) -> None:
    input["messages"][0]["somethingNew"] = True


def _tool_member(input: dict[str, Any]) -> None:
    input["tools"] = [{"name": "aguia_probe_nothing", "description": "Does nothing.", "new": 1}]


def _context_member(input: dict[str, Any]) -> None:
    input["context"] = [{"description": "The weather", "value": "Sunny", "new": [1]}]


def _part_type(input: dict[str, Any]) -> None:
    text = input["messages"][-1]["content"]
    parts = [{"type": "text", "text": text}, {"type": "hologram", "source": {"type": "light"}}]
    input["messages"][-1]["content"] = parts


def _role(input: dict[str, Any]) -> None:
    message = {"id": "probe-narrator", "role": "narrator", "content": "Once upon a time."}
    input["messages"].insert(0, message)


def _resume_status(input: dict[str, Any]) -> None:
    input["resume"] = [{"interruptId": "probe-unknown", "status": "postponed"}]


UNKNOWN: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "a member of the input": _member,
    "a member of a message": _message_member,
    "a member of a tool": _tool_member,
    "a member of a context entry": _context_member,
    "the type of a part": _part_type,
    "the role of a message": _role,
    "the status of a resume entry": _resume_status,
}
"""What nobody knows yet in a run input, and how it gets there."""


@_probe("unknown-members", "PROC-2", "PROC-5", "PROC-12")
async def _unknown_members(p: Probing) -> None:
    """Members, parts, roles and statuses that nobody knows are passed over, and the run served."""
    p.need_plain_run()
    whole = p.input()
    for change in UNKNOWN.values():
        change(whole)
    exchange = await p.call("all of it unknown at once", whole)
    try:
        p.served(exchange)
    except Failed as failed:
        # Which of them is it?
        wrong = []
        for what, change in UNKNOWN.items():
            single = p.input()
            change(single)
            try:
                p.served(await p.call(f"unknown: {what}", single))
            except Failed:
                wrong.append(what)
        raise Failed(f"unknown is {', '.join(wrong)}" if wrong else str(failed)) from None


@_probe("optional-missing", "IN-1")
async def _optional_missing(p: Probing) -> None:
    """An input without tools, context, state and forwardedProps is served as an empty one."""
    p.need_plain_run()
    bare = p.input()
    for name in ("tools", "context", "state", "forwardedProps"):
        del bare[name]
    try:
        await p.serve("without any of them", bare)
    except Failed as failed:
        wrong = []
        for name in ("tools", "context", "state", "forwardedProps"):
            single = p.input()
            del single[name]
            try:
                await p.serve(f"without {name}", single)
            except Failed:
                wrong.append(name)
        raise Failed(f"it can't do without {', '.join(wrong)}" if wrong else str(failed)) from None


@_probe("any-json", "IN-1", "EVT-4")
async def _any_json(p: Probing) -> None:
    """State and forwardedProps may be any JSON, with null inside of it, and context be there."""
    p.need_plain_run()
    context = [{"description": "The weather", "value": "Sunny"}]
    await p.serve(
        "objects with null", p.input(context=context, state={"a": None}, forwardedProps={"b": None})
    )
    await p.serve("a list and a text", p.input(state=[1, None, "x"], forwardedProps="text"))


# Versions


@_probe("version-newer", "VER-2", "VER-1")
async def _version_newer(p: Probing) -> None:
    """A newer minor version is served, and answered with the agent's own and not with an echo."""
    p.need_plain_run()
    stream = await p.serve(f"version {_NEWER}", p.input(protocolVersion=_NEWER))
    for event in stream.of_type("RUN_STARTED"):
        if event.get("protocolVersion") == _NEWER:
            raise Failed(f"RUN_STARTED repeats the client's {_NEWER} for the agent's own version")


@_probe("version-unreadable", "VER-2")
async def _version_unreadable(p: Probing) -> None:
    """A version that can't be interpreted is taken for a newer one, and served."""
    p.need_plain_run()
    for version in ("1.0-beta.7", "next", ""):
        await p.serve(f"version '{version}'", p.input(protocolVersion=version))


@_probe("version-missing", "VER-1", "IN-1")
async def _version_missing(p: Probing) -> None:
    """A client from before versions were declared is served."""
    p.need_plain_run()
    old = p.input()
    del old["protocolVersion"]
    await p.serve("without a version", old)


@_probe("version-other-major", "VER-2", "HTTP-4")
async def _version_other_major(p: Probing) -> None:
    """Another major version is served, or refused before any run starts."""
    p.need_plain_run()
    exchange = await p.call("version 2.0", p.input(protocolVersion="2.0"))
    if exchange.status is not None and exchange.status >= 400:
        p.refused(exchange)
        p.note(f"refused with {exchange.status}")
        return
    if exchange.is_stream and [event["type"] for event in Stream(exchange).events] == ["RUN_ERROR"]:
        p.warn("refused by RUN_ERROR in a stream; over HTTP an error status says it")
        return
    p.served(exchange)
    p.note("served")


# The history


def _history() -> list[dict[str, Any]]:
    call = {
        "id": "probe-call-1",
        "type": "function",
        "function": {"name": "aguia_probe_weather", "arguments": '{"city": "Lisbon"}'},
    }
    return [
        {"id": "probe-1", "role": "system", "content": "You are friendly."},
        {"id": "probe-2", "role": "developer", "content": "Answer briefly.", "name": "dev"},
        {"id": "probe-3", "role": "user", "content": "How is the weather?", "name": "Ana"},
        {"id": "probe-4", "role": "reasoning", "content": "I look.", "encryptedValue": "b3BhcXVl"},
        {"id": "probe-5", "role": "assistant", "content": "I look.", "toolCalls": [call]},
        {
            "id": "probe-6",
            "role": "tool",
            "toolCallId": "probe-call-1",
            "content": "Sunny",
            "metadata": {"source": "probe"},
        },
        {"id": "probe-7", "role": "assistant", "content": "It is sunny."},
    ]


@_probe("history-roles", "IN-1", "TOOL-7", "REAS-4")
async def _history_roles(p: Probing) -> None:
    """A history with messages of every role that clients send is served."""
    p.need_plain_run()
    await p.serve("every role", p.input(messages=[*_history(), user(p.settings.message)]))


@_probe("history-parts", "IN-2", "TOOL-7", "TOOL-9", "TOOL-12")
async def _history_parts(p: Probing) -> None:
    """Parts of every kind and source are used or skipped, in messages and tool results."""
    p.need_plain_run()
    url = {"type": "url", "value": "https://agent.invalid/probe", "mimeType": "audio/wav"}
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "source": {"type": "data", "value": _PIXEL, "mimeType": "image/png"}},
        {"type": "audio", "source": url},
        {"type": "video", "source": {**url, "mimeType": "video/mp4"}},
        {"type": "document", "source": {"type": "file", "value": "probe-file", "provider": "x"}},
    ]
    history = _history()
    history[2]["content"] = parts
    history[5]["content"] = [{"type": "text", "text": "Sunny"}, *parts[1:]]
    await p.serve("every part", p.input(messages=[*history, user(p.settings.message)]))


@_probe("history-activity", "IN-1", "ACT-4")
async def _history_activity(p: Probing) -> None:
    """An activity message, which clients should have left out and which is valid, does no harm."""
    p.need_plain_run()
    activity = {"id": "probe-a", "role": "activity", "activityType": "plan", "content": {"a": 1}}
    messages = [*_history()[:3], activity, *_history()[6:], user(p.settings.message)]
    try:
        await p.serve("an activity message", p.input(messages=messages))
    except Failed as failed:
        p.warn(str(failed))


# Frontend tools


async def _tool_run(p: Probing) -> tuple[Stream, list[str]]:
    """A run that is led to call the frontend tool, and the ids of these calls."""
    p.need_plain_run()
    name = p.settings.tool
    tool: dict[str, Any] = {
        "name": name,
        "description": "Shows a short note to the person in front of the application.",
        "parameters": {"type": "object", "properties": {"note": {"type": "string"}}},
    }
    if name != type(p.settings)().tool:
        tool["description"], tool["parameters"] = "A tool of the application's.", {"type": "object"}
    said = p.settings.tool_message or f"Call the tool {name} now, with the note 'hello'."
    stream = await p.serve("a frontend tool on offer", p.input(said, tools=[tool]))
    ids = [
        event["toolCallId"]
        for event in stream.of_type("TOOL_CALL_START", "TOOL_CALL_CHUNK")
        if event.get("toolCallName") == name and isinstance(event.get("toolCallId"), str)
    ]
    ids = list(dict.fromkeys(ids))
    if not ids:
        raise Skipped(
            f"the agent does not call the tool '{name}' when told “{said[:80]}”; --tool NAME and "
            "--tool-message TEXT say what leads it there"
        )
    return stream, ids


def _tool_results(stream: Stream) -> dict[str, list[str]]:
    """Which calls the run answers, and by what."""
    found: dict[str, list[str]] = {}
    for event in stream.of_type("TOOL_CALL_RESULT"):
        found.setdefault(str(event.get("toolCallId")), []).append("TOOL_CALL_RESULT")
    for event in stream.of_type("MESSAGES_SNAPSHOT"):
        for message in event.get("messages") or ():
            if isinstance(message, dict) and message.get("role") == "tool":
                found.setdefault(str(message.get("toolCallId")), []).append("MESSAGES_SNAPSHOT")
    return found


@_probe("frontend-tool", "FRONT-1", "FRONT-2", "FRONT-3")
async def _frontend_tool(p: Probing) -> None:
    """A call of an offered tool is left unanswered, the run succeeds and names what is pending."""
    stream, ids = await _tool_run(p)
    results = _tool_results(stream)
    for id_ in ids:
        if id_ in results:
            raise Failed(f"the agent answers its call of the frontend tool, by {results[id_][0]}")
    if stream.outcome != "success":
        raise Failed(f"the run that leaves a call to the frontend ends as {stream.outcome}")
    called = [
        event["toolCallId"]
        for event in stream.of_type("TOOL_CALL_START", "TOOL_CALL_CHUNK")
        if isinstance(event.get("toolCallId"), str)
    ]
    pending = [id_ for id_ in dict.fromkeys(called) if id_ not in results]
    outcome = stream.last.get("outcome")
    named = outcome.get("pendingToolCallIds") if isinstance(outcome, dict) else None
    if not named:
        p.warn("the outcome has no pendingToolCallIds that name the call")
    elif named != pending:
        raise Failed(f"pendingToolCallIds names {named}, and pending are {pending}")


@_probe("frontend-answer", "FRONT-5", "INT-6", "TOOL-7")
async def _frontend_answer(p: Probing) -> None:
    """The next run, whose input brings the answer to the call, is served."""
    stream, _ = await _tool_run(p)
    answers = [
        {
            "id": f"probe-answer-{call.id}",
            "role": "tool",
            "toolCallId": call.id,
            "content": "The person has seen it.",
        }
        for call in stream.conversation.pending_tool_calls
    ]
    await p.serve("the tool's answer", p.follow_up(stream, *answers))


# Interrupts


async def _interrupted(p: Probing) -> Stream:
    """A run that is led to an interrupt."""
    p.need_plain_run()
    said = p.settings.interrupt_message or "Stop now and ask for my approval before you go on."
    stream = await p.serve("a run that asks", p.input(said))
    if stream.outcome != "interrupt":
        raise Skipped(
            f"the agent does not stop and ask when told “{said[:80]}”; --interrupt-message TEXT "
            "says what leads it there"
        )
    return stream


@_probe("interrupt", "INT-1")
async def _interrupt(p: Probing) -> None:
    """A run that stops to ask ends with the interrupt outcome, each interrupt with its own id."""
    stream = await _interrupted(p)
    ids = [interrupt.id for interrupt in stream.conversation.interrupts]
    if len(set(ids)) != len(ids):
        raise Failed(f"the interrupts' ids are not unique: {ids}")
    if not ids:
        raise Failed("the interrupt outcome holds no interrupt that a reader could answer")
    p.note(f"{len(ids)} asked")


@_probe("resume-cancelled", "INT-2", "INT-6")
async def _resume_cancelled(p: Probing) -> None:
    """A run that resumes with every interrupt cancelled is served."""
    stream = await _interrupted(p)
    resume = [
        {"interruptId": interrupt.id, "status": "cancelled"}
        for interrupt in stream.conversation.interrupts
    ]
    resumed = await p.serve("all cancelled", p.follow_up(stream, resume=resume))
    p.note(f"it ends as {resumed.outcome}")


@_probe("resume-missing", "INT-5")
async def _resume_missing(p: Probing) -> None:
    """An input that passes over an open interrupt is refused, or asked again; never a success."""
    stream = await _interrupted(p)
    exchange = await p.call("no resume entry", p.follow_up(stream, user(p.settings.message)))
    if exchange.status is not None and exchange.status >= 400:
        p.refused(exchange)
        p.note(f"refused with {exchange.status}")
        return
    again = Stream(exchange)
    if exchange.is_stream and again.failure is not None:
        p.note("refused by RUN_ERROR")
        return
    p.served(exchange)
    if again.outcome == "interrupt":
        p.note("it asks again")
        return
    open_calls = {interrupt.tool_call_id for interrupt in stream.conversation.interrupts}
    unanswered = {call.id for call in stream.conversation.pending_tool_calls}
    if open_calls & unanswered:
        raise Failed(
            f"the run ends as {again.outcome} although the messages hold a call that waits for "
            "approval and has no answer"
        )
    p.warn(
        f"the run ends as {again.outcome}; right only for an agent that keeps nothing between runs"
    )


@_probe("resume-unknown", "INT-4")
async def _resume_unknown(p: Probing) -> None:
    """Resume entries for interrupts that nobody has raised are passed over."""
    p.need_plain_run()
    resume = [
        {"interruptId": "probe-never-raised", "status": "resolved", "payload": {"a": 1}},
        {"interruptId": "probe-never-raised-2", "status": "cancelled"},
    ]
    try:
        await p.serve("unknown interrupts", p.input(resume=resume))
    except Failed as failed:
        p.warn(str(failed))


# Bindings


@_probe("accept-protobuf", "PB-1", "PB-2")
async def _accept_protobuf(p: Probing) -> None:
    """Who accepts the binary binding gets it, whole, or gets server-sent events."""
    p.need_plain_run()
    exchange = await p.call("both bindings accepted", p.input(), accept=_BOTH)
    p.prober.speaks_binary = exchange.media_type == frames.CONTENT_TYPE
    if p.prober.speaks_binary and exchange.content_type != frames.CONTENT_TYPE:
        raise Failed(f"the content type is '{exchange.content_type}', which is not exact")
    p.served(exchange)
    if not p.prober.speaks_binary:
        raise Skipped("it answers with server-sent events; the binary binding is optional")


@_probe("accept-wildcard", "PB-1")
async def _accept_wildcard(p: Probing) -> None:
    """Who accepts anything gets a stream, of the binary binding where the agent speaks it."""
    p.need_plain_run()
    for accept in ("*/*", "application/*, text/event-stream;q=0.1"):
        exchange = await p.call(f"Accept: {accept}", p.input(), accept=accept)
        p.served(exchange)
        if p.prober.speaks_binary and exchange.media_type == sse.CONTENT_TYPE:
            p.warn(f"'{accept}' admits the binary binding, and server-sent events come")


@_probe("accept-sse", "PB-1", "HTTP-2")
async def _accept_sse(p: Probing) -> None:
    """Who refuses the binary binding, by a quality of zero, gets server-sent events."""
    p.need_plain_run()
    accept = f"{sse.CONTENT_TYPE}, {frames.CONTENT_TYPE};q=0"
    exchange = await p.call(f"Accept: {accept}", p.input(), accept=accept)
    if exchange.media_type == frames.CONTENT_TYPE:
        raise Failed("the binary binding comes although it is refused")
    p.served(exchange)


# Connections


@_probe("two-runs", "TRANS-1", "RUN-2")
async def _two_runs(p: Probing) -> None:
    """Two runs at once, on two threads, are both served, each with its own ids."""
    p.need_plain_run()
    found: list[Exchange] = []

    async def one(label: str) -> None:
        found.append(await p.call(label, p.input()))

    async with anyio.create_task_group() as group:
        group.start_soon(one, "the one of two")
        group.start_soon(one, "the other of two")
    ids: list[set[str]] = []
    for exchange in found:
        stream = p.served(exchange)
        ids.append({str(event["messageId"]) for event in stream.events if event.get("messageId")})
    if shared := ids[0] & ids[1]:
        p.note(f"both threads have a message '{sorted(shared)[0][:60]}'")


@_probe("client-leaves", "TRANS-1", "HTTP-5")
async def _client_leaves(p: Probing) -> None:
    """After a client that leaves in the middle, the same thread is served a new run."""
    p.need_plain_run()
    left = await p.call("leaves early", p.input(), glance=True)
    if left.status != 200:
        p.served(left)
    # That nobody reads any more has to come to the server's notice.
    await anyio.sleep(min(p.settings.idle, p.settings.timeout / 3))
    again = {**(left.input or {}), "runId": p.input()["runId"]}
    await p.serve("the run after it", again)


@_probe("idle-stream", "TRANS-1", "RUN-11")
async def _idle_stream(p: Probing) -> None:
    """A client that reads nothing for a while gets the whole stream afterwards."""
    p.need_plain_run()
    idle = min(p.settings.idle, p.settings.timeout / 3)
    await p.serve("not read for a while", p.input(), pause=idle)
    p.note(f"after {idle:g} s")


# Inputs that have to be refused


def _malformed(name: str) -> Probe:
    family = MALFORMED[name]

    async def run(p: Probing) -> None:
        p.need_plain_run()
        wrong = []
        for case in family.cases:
            body = case.body(p.input())
            try:
                p.refused(await p.call(case.label, body, glance=True))
            except Failed as failed:
                wrong.append(str(failed))
        if wrong:
            more = f" (and {len(wrong) - 1} more of {len(family.cases)})" if wrong[1:] else ""
            raise Failed(f"{wrong[0]}{more}")
        p.note(f"{len(family.cases)} refused")

    return Probe(name, family.rules, family.what, run)


PROBES: Final[tuple[Probe, ...]] = (
    _plain_run,
    _version_declared,
    _second_turn,
    _unknown_members,
    _optional_missing,
    _any_json,
    *map(_malformed, MALFORMED),
    _version_newer,
    _version_unreadable,
    _version_missing,
    _version_other_major,
    _history_roles,
    _history_parts,
    _history_activity,
    _frontend_tool,
    _frontend_answer,
    _interrupt,
    _resume_cancelled,
    _resume_missing,
    _resume_unknown,
    _accept_protobuf,
    _accept_wildcard,
    _accept_sse,
    _two_runs,
    _client_leaves,
    _idle_stream,
)
"""All probes, in the order in which they run."""
