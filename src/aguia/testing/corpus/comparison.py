"""What a client says has become of a stream, compared with what has to."""

from collections.abc import Iterable
from typing import Any

from aguia.testing.comparison import ABSENT, at, differences, same, show
from aguia.testing.corpus.cases import OUTCOMES, Case

__all__ = ["NotAReply", "problems"]

_EXACT = ("rule", "index", "path", "pendingToolCallIds", "interrupts", "conversationOutcome")
_LISTS = ("events", "messages", "warnings", "pendingToolCallIds", "interrupts", "usage")


class NotAReply(ValueError):
    """What a client has said is no reply; the text says why."""


def problems(case: Case, reply: Any) -> list[str]:
    """Say in which of the things that a reply tells the client is wrong; [] if in none.

    Args:
        case: that was asked.
        reply: an object with an `outcome`, and any of `FACTS`. What it leaves out is not
            compared.

    Raises `NotAReply`.
    """
    if not isinstance(reply, dict):
        raise NotAReply(f"expected an object, not {show(reply)}")
    outcome = reply.get("outcome")
    if outcome not in OUTCOMES:
        raise NotAReply(f"expected an outcome, one of {', '.join(OUTCOMES)}, not {show(outcome)}")
    for name in _LISTS:
        if name in reply and not isinstance(reply[name], list):
            raise NotAReply(f"expected a list of {name}, not {show(reply[name])}")
    if outcome != case.outcome:
        # The rest follows from it.
        reason = f" ({reply['reason']})" if reply.get("reason") else ""
        return [f"the stream is {outcome}{reason}, expected {case.outcome}"]
    expect = case.expect
    found = []
    if "events" in reply:
        found += _of_events(expect, reply["events"])
    if "messages" in reply:
        messages = reply["messages"]
        if "messages" in expect:
            found += differences(messages, expect["messages"], "messages")
        if "messageCount" in expect and len(messages) != expect["messageCount"]:
            found.append(f"{len(messages)} messages, expected {expect['messageCount']}")
        found += _present(messages, expect.get("messageAbsentPaths", ()), "messages")
    if "state" in reply and "state" in expect and not same(reply["state"], expect["state"]):
        found.append(f"state is {show(reply['state'])}, expected {show(expect['state'])}")
    if "warnings" in reply:
        found += _of_warnings(expect, reply["warnings"])
    for name in (*_EXACT, "usage"):
        if name in reply and name in expect and not same(reply[name], expect[name]):
            found.append(f"{name} is {show(reply[name])}, expected {show(expect[name])}")
    for name in ("request", "nextRequest"):
        if name in reply:
            found += differences(reply[name], expect.get(name, {}), name)
    if "request" in reply:
        found += _present(reply["request"], expect.get("requestAbsentPaths", ()), "request")
    return found


def _of_events(expect: dict[str, Any], events: list[Any]) -> list[str]:
    found = []
    types = [event.get("type") if isinstance(event, dict) else None for event in events]
    if "eventTypes" in expect and types != expect["eventTypes"]:
        found.append(f"delivered {show(types)}, expected {show(expect['eventTypes'])}")
    for absent in expect.get("eventTypesAbsent", ()):
        if absent in types:
            found.append(f"delivered {absent}")
    for path, value in expect.get("eventPaths", {}).items():
        actual = at(events, path)
        if not same(actual, value):
            seen = "missing" if actual is ABSENT else show(actual)
            found.append(f"events.{path} is {seen}, expected {show(value)}")
    found += _present(events, expect.get("eventAbsentPaths", ()), "events")
    if "runError" in expect:
        said = [
            str(event.get("message"))
            for event in events
            if isinstance(event, dict) and event.get("type") == "RUN_ERROR"
        ]
        wanted = expect["runError"]
        if not any(wanted is True or wanted in message for message in said):
            found.append(f"no RUN_ERROR says {show(wanted)}: {show(said)}")
    return found


def _present(value: Any, paths: Iterable[str], place: str) -> list[str]:
    return [f"{place}.{path} is there" for path in paths if at(value, path) is not ABSENT]


def _of_warnings(expect: dict[str, Any], warnings: list[Any]) -> list[str]:
    """A warning that is an object with a rule is compared; of a text alone only that it is one."""
    wanted = expect.get("warnings", ())
    found = []
    if (expect.get("noWarnings") or wanted == []) and warnings:
        found.append(f"warned {show(warnings)}, expected silence")
    for each in wanted:
        if not any(_is(warning, each) for warning in warnings):
            found.append(f"no warning of {show(each)} among {show(warnings)}")
    if wanted:
        for warning in warnings:
            if not any(_is(warning, each) for each in wanted):
                found.append(f"warned {show(warning)}, which is not expected")
    return found


def _is(warning: Any, wanted: dict[str, str]) -> bool:
    if not isinstance(warning, dict) or "rule" not in warning:
        return True
    return (
        warning["rule"] == wanted["rule"]
        and wanted.get("path", warning.get("path")) == warning.get("path")
        and wanted.get("contains", "") in str(warning.get("message", ""))
    )
