"""This package's client behind the corpus's line protocol: `python -m aguia.testing.adapter`.

It is also what an adapter for another client may look like: one line in, one line out.
"""

import asyncio
import base64
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from aguia.client import Agent, Answer
from aguia.codec.json import encode
from aguia.consumer import Consumer
from aguia.protocol.errors import (
    InvalidInput,
    MalformedEvent,
    ProtocolViolation,
    ProtocolWarning,
    TruncatedRun,
)
from aguia.protocol.input import RunAgentInput

__all__ = ["answer", "main"]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Read the stream of a request, and say what has become of it."""
    reply = _read(request)
    asked = {"request", "nextRequest"} & set(request.get("asks", ()))
    if asked and request["input"] is not None:
        sent = asyncio.run(_send(request))
        reply |= dict(zip(("request", "nextRequest"), sent, strict=False))
    return reply


def _read(request: dict[str, Any]) -> dict[str, Any]:
    warnings: list[ProtocolWarning] = []
    events: list[Any] = []
    reply: dict[str, Any] = {"case": request["case"]}
    consumer = Consumer(
        request["input"], content_type=request["contentType"], on_warning=warnings.append
    )
    conversation = consumer.conversation
    try:
        for chunk in request["chunks"]:
            events.extend(consumer.receive(base64.b64decode(chunk)))
        events.extend(consumer.end())
        reply["outcome"] = "accepted" if conversation.error is None else "failed"
    except TruncatedRun as error:
        reply |= {"outcome": "truncated", "reason": str(error)}
    except ProtocolViolation as error:
        reply |= {"outcome": "rejected", "reason": str(error)}
        reply |= {"rule": error.rule, "index": error.index}
        if isinstance(error, MalformedEvent):
            reply["path"] = error.path
    outcome = conversation.outcome
    return reply | {
        "events": msgspec.to_builtins(events),
        "messages": msgspec.to_builtins(list(conversation.messages)),
        "state": None if conversation.state is msgspec.UNSET else conversation.state,
        "warnings": [
            {"rule": each.rule, "path": each.path, "message": str(each)} for each in warnings
        ],
        "pendingToolCallIds": [call.id for call in conversation.pending_tool_calls],
        "interrupts": msgspec.to_builtins(conversation.interrupts),
        "conversationOutcome": None if outcome is None else outcome.type,
        "usage": msgspec.to_builtins(conversation.usage),
    }


class _Peer:
    """Gives the stream of a request, then empty runs, and keeps what it is sent."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.sent: list[Any] = []
        self._content_type = request["contentType"]
        self._chunks = [base64.b64decode(chunk) for chunk in request["chunks"]]

    @asynccontextmanager
    async def open(self, input: RunAgentInput) -> AsyncIterator[Answer]:
        self.sent.append(json.loads(encode(input)))
        if len(self.sent) == 1:
            yield Answer(self._content_type, _each(self._chunks))
        else:
            run = {"threadId": input.thread_id, "runId": input.run_id}
            yield Answer(
                None, _each([{"type": "RUN_STARTED", **run}, {"type": "RUN_FINISHED", **run}])
            )

    async def close(self) -> None:
        pass


async def _each(items: list[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


async def _send(request: dict[str, Any]) -> list[Any]:
    """What the client sends for the input, and for a further run."""
    given = request["input"]
    peer = _Peer(request)
    agent = Agent(
        peer,
        thread_id=given["threadId"],
        messages=given["messages"],
        state=given["state"],
        tools=given["tools"],
        context=given["context"],
    )
    try:
        async for _ in agent.run(
            [], run_id=given["runId"], forwarded_props=given["forwardedProps"]
        ):
            pass
        async for _ in agent.run([]):
            pass
    except (ProtocolViolation, TruncatedRun, InvalidInput):
        pass  # what was sent until then is told
    return peer.sent


def main() -> None:
    """Answer every line of the standard input with a line on the standard output."""
    logging.getLogger("aguia").setLevel(logging.CRITICAL)
    for line in sys.stdin.buffer:
        reply = json.dumps(answer(json.loads(line)))
        sys.stdout.write(f"{reply}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
