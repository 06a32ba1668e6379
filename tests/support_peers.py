"""An agent that follows a script, and where two values of JSON differ.

The script is what several clients are given alike: what they are sent differs by nothing, so
what they make of it, and what they send next, can be compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from support_server import canonical

__all__ = ["ABSENT", "Answer", "ScriptedAgent", "differences"]

ABSENT: Final = "(absent)"
"""In the place of a value that one side does not have."""

Answer = list[dict[str, Any]] | int
"""What a run is answered with: events, or the status of a refusal."""

_RUNS: Final = ("RUN_STARTED", "RUN_FINISHED")


@dataclass
class ScriptedAgent:
    """An ASGI application that answers the n-th run posted to a path with the n-th answer.

    A path is `/{who}/{name}`: each who is told the script of that name from its start, so that
    several clients are answered alike. A start and a finish that name no run get the ids of the
    input.

    Attributes:
        scripts: for each name, the answers in order.
        inputs: for each path, the run inputs that came, in order.
    """

    scripts: Mapping[str, Sequence[Answer]]
    inputs: dict[str, list[Any]] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        path = request.url.path
        came = self.inputs.setdefault(path, [])
        script = self.scripts[path.rsplit("/", 1)[1]]
        run_input = await request.json()
        came.append(run_input)
        answer = script[len(came) - 1] if len(came) <= len(script) else 410
        response: Response
        if isinstance(answer, int):
            response = JSONResponse({"detail": "not now"}, answer)
        else:
            ids = {"threadId": run_input["threadId"], "runId": run_input["runId"]}
            body = b"".join(
                b"data: "
                + msgspec.json.encode(ids | event if event["type"] in _RUNS else event)
                + b"\n\n"
                for event in answer
            )
            response = Response(body, media_type="text/event-stream")
        await response(scope, receive, send)


def differences(theirs: Any, ours: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Where two values of JSON differ: a JSON Pointer, and what either has there.

    A member that one side lacks is `ABSENT` there. Lists of things with ids, such as messages,
    differ in the ids that they hold, in order, and then in the things that both hold, whose path
    has the id in it. Other lists differ as a whole unless they are of one length.
    """
    match theirs, ours:
        case dict(), dict():
            return [
                found
                for key in sorted(theirs.keys() | ours.keys())
                for found in differences(
                    theirs.get(key, ABSENT), ours.get(key, ABSENT), f"{path}/{key}"
                )
            ]
        case list(), list() if (theirs or ours) and _have_ids(theirs) and _have_ids(ours):
            by_id = {item["id"]: item for item in theirs}
            others = {item["id"]: item for item in ours}
            both = [id_ for id_ in by_id if id_ in others]
            return differences(list(by_id), list(others), path) + [
                found
                for id_ in both
                for found in differences(by_id[id_], others[id_], f"{path}/{id_}")
            ]
        case list(), list() if len(theirs) == len(ours) and not _are_texts(theirs):
            return [
                found
                for place, pair in enumerate(zip(theirs, ours, strict=True))
                for found in differences(*pair, f"{path}/{place}")
            ]
    return [] if canonical(theirs) == canonical(ours) else [(path, theirs, ours)]


def _have_ids(items: list[Any]) -> bool:
    """Whether these are things that each have an id of their own."""
    ids = [item["id"] for item in items if isinstance(item, dict) and "id" in item]
    return len(set(ids)) == len(items)


def _are_texts(items: list[Any]) -> bool:
    return all(isinstance(item, str) for item in items)
