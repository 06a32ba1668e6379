"""Assertions for tests of agents: a stream keeps the rules, and builds this conversation."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from aguia.consumer import Consumer
from aguia.conversation import Conversation
from aguia.interop.values import Model, plain_model
from aguia.protocol.common import UNSET
from aguia.protocol.errors import AguiaError
from aguia.protocol.events import Event
from aguia.protocol.input import RunAgentInput
from aguia.testing.checker import Checker
from aguia.testing.comparison import differences, same, show
from aguia.testing.findings import strictly
from aguia.testing.recorded import RecordingChecker
from aguia.testing.report import Report, as_text, matches, report_of

__all__ = ["assert_conformant", "assert_conversation", "complaint"]

_SHOWN: Final = 10
"""How many findings a failure shows."""


def assert_conformant(
    events: Iterable[Event | dict[str, Any] | Model] | bytes,
    input: RunAgentInput | dict[str, Any] | None = None,
    *,
    ignore: Iterable[str] = (),
    warnings: bool = False,
    strict: bool = False,
) -> None:
    """Assert that a stream breaks no rule that a client has to enforce.

    What a producer must not do and no client may reject, such as answering a tool of the
    application's itself (FRONT-1), counts where this is asked to be `strict`.

    Args:
        events: the stream: events, typed, as plain JSON or as models of the official package; or
            the bytes of a body or recording. Of a recording that holds several runs, each is
            checked.
        input: the run input that it answers, where a recording does not hold it.
        ignore: ids of rules, or of their families, that may be broken.
        warnings: whether warnings count as well.
        strict: whether all that a producer must not do counts, as it should for an agent of
            your own.

    Raises `AssertionError` that lists the findings.
    """
    __tracebackhide__ = True
    if isinstance(events, bytes):
        recording = RecordingChecker("the stream", input)
        recording.receive(events)
        recording.end()
        reports = recording.reports()
    else:
        checker = Checker(input)
        for event in events:
            checker.receive_event(event)
        checker.end()
        reports = [report_of("the stream", checker)]
    found = [
        f"{report.name} breaks the protocol:\n{said}"
        for report in reports
        if (
            said := report.unreadable
            or complaint(report, ignore=ignore, warnings=warnings, strict=strict)
        )
    ]
    if found:
        raise AssertionError("\n".join(found))


def complaint(
    checker: Checker | Report,
    *,
    ignore: Iterable[str] = (),
    warnings: bool = False,
    strict: bool = False,
) -> str:
    """What a checker has found so far, in words; "" if nothing of it counts.

    Args:
        checker: of a stream, or the report on one.
        ignore: as for `assert_conformant`.
        warnings: likewise.
        strict: likewise.
    """
    ignored = tuple(ignore)
    found = [
        finding
        for finding in (strictly(checker.findings) if strict else checker.findings)
        if (warnings or finding.severity == "error") and not matches(finding, ignored)
    ]
    if not found:
        return ""
    more = len(found) + checker.omitted - _SHOWN
    lines = [as_text(finding) for finding in found[:_SHOWN]]
    if more > 0:
        lines.append(f"and {more} more")
    return "\n".join(lines)


def assert_conversation(
    events: Iterable[Event | dict[str, Any] | Model] | bytes,
    *,
    input: RunAgentInput | dict[str, Any] | None = None,
    messages: Iterable[Any] | None = None,
    texts: Iterable[str] | None = None,
    state: Any = UNSET,
    outcome: str | None = None,
    pending: Iterable[str] | None = None,
    interrupts: Iterable[str] | None = None,
) -> Conversation:
    """Assert what a stream builds, as a reader sees it; what isn't given isn't compared.

    Args:
        events: the stream: events, typed, as plain JSON or as models of the official package; or
            the bytes of an SSE body.
        input: the run input that it answers.
        messages: the messages afterwards. Each needs the members that are named, and may have
            more, in objects inside of it too; lists have to be as long.
        texts: the texts of the messages of the assistant that have one.
        state: the state afterwards, the whole of it.
        outcome: how the last run ended: `success`, `interrupt`, `cancelled` or `error`.
        pending: the names of the tools whose calls are left to the frontend, in order.
        interrupts: the ids of the interrupts that are open.

    Returns the conversation, for further questions. Raises `AssertionError` where it is another,
    and for a stream that a reader rejects.
    """
    __tracebackhide__ = True
    consumer = Consumer(input)
    try:
        if isinstance(events, bytes):
            for _ in consumer.receive(events):
                pass
        else:
            for event in events:
                for _ in consumer.receive_event(plain_model(event)):
                    pass
        for _ in consumer.end():
            pass
    except AguiaError as error:
        raise AssertionError(f"a reader rejects the stream: {error}") from None
    built = consumer.conversation
    problems = []
    if messages is not None:
        wanted = [_plain(message) for message in messages]
        problems += differences(_plain(list(built.messages)), wanted, "messages")
    if texts is not None:
        said = [
            message.content
            for message in built.messages
            if message.role == "assistant" and isinstance(message.content, str) and message.content
        ]
        problems += differences(said, list(texts), "texts")
    if state is not UNSET and not same(built.state, _plain(state)):
        problems.append(f"the state is {show(built.state)}, expected {show(_plain(state))}")
    if outcome is not None:
        ended = "error" if built.outcome is None else built.outcome.type
        if ended != outcome:
            said_error = f" ({built.error.message})" if built.error is not None else ""
            problems.append(f"the outcome is {ended}{said_error}, expected {outcome}")
    if pending is not None:
        names = [call.function.name for call in built.pending_tool_calls]
        problems += differences(names, list(pending), "pending")
    if interrupts is not None:
        ids = [interrupt.id for interrupt in built.interrupts]
        problems += differences(ids, list(interrupts), "interrupts")
    if problems:
        text = "\n".join(f"  {problem}" for problem in problems)
        raise AssertionError(f"the stream builds another conversation:\n{text}")
    return built


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)
