"""A model behind the chat completions API, for tests: it says what it is told to say.

Its answers come in the pieces that the real API streams, and it refuses what that refuses.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

__all__ = ["Answer", "FakeModel", "calls", "says"]

PATH: Final = "/v1/chat/completions"
LONGEST_ID: Final = 40

USAGE: Final = {
    "prompt_tokens": 20,
    "completion_tokens": 7,
    "total_tokens": 27,
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 3, "audio_tokens": 0},
}


@dataclass
class Answer:
    """What the model says to one request.

    Attributes:
        deltas: the pieces, in order.
        finish_reason: why it stops; None breaks off without a word.
        status: of a refusal in place of an answer.
        error: sent in the stream after the pieces, in place of an end.
        cut: whether the connection breaks after the pieces.
        waits: whether it goes on only when the client has gone.
        usage: sent at the end.
    """

    deltas: Sequence[Mapping[str, Any]] = ()
    finish_reason: str | None = "stop"
    status: int = 200
    error: str | None = None
    cut: bool = False
    waits: bool = False
    usage: Mapping[str, Any] | None = field(default_factory=lambda: USAGE)


def says(*words: str, **options: Any) -> Answer:
    """An answer of text, in these pieces."""
    first = {"role": "assistant", "content": "", "refusal": None}
    return Answer([first, *({"content": word} for word in words)], **options)


def calls(*pieces: Mapping[str, Any], text: Iterable[str] = (), **options: Any) -> Answer:
    """An answer that calls tools: each piece is what stands in `tool_calls`."""
    answer = says(*text, finish_reason="tool_calls", **options)
    answer.deltas = [*answer.deltas, *({"tool_calls": [piece]} for piece in pieces)]
    return answer


class FakeModel:
    """An ASGI application that answers the n-th request with the n-th answer.

    Attributes:
        answers: what is left to say.
        requests: the bodies that came, in order.
        left: how many clients have gone before their answer had ended.
    """

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[dict[str, Any]] = []
        self.left = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        body = await request.json()
        self.requests.append(body)
        answer = self.answers.pop(0)
        wrong = refused(request, body)
        if wrong is not None:
            answer = Answer(status=400)
        if answer.status != 200:
            error = {"message": wrong or "not now", "type": "x", "param": None, "code": None}
            # Only what the answer says is to happen: no second request by itself.
            refusal = JSONResponse(
                {"error": error}, answer.status, headers={"x-should-retry": "false"}
            )
            await refusal(scope, receive, send)
            return
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream; charset=utf-8")],
            }
        )
        for delta in answer.deltas:
            await send(chunk(body["model"], [choice(delta)]))
            await asyncio.sleep(0)
        if answer.waits:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.left += 1
            return
        if answer.cut:
            return  # the server then breaks the connection, since the body has no end
        if answer.error is not None:
            await send(line({"error": {"message": answer.error, "type": "server_error"}}))
        elif answer.finish_reason is not None:
            await send(chunk(body["model"], [choice({}, answer.finish_reason)]))
            if answer.usage is not None:
                await send(chunk(body["model"], [], answer.usage))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


def choice(delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def chunk(model: str, choices: list[Any], usage: Mapping[str, Any] | None = None) -> Message:
    return line(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": f"{model}-2026-01-01",
            "system_fingerprint": None,
            "choices": choices,
            "usage": usage,
        }
    )


def line(value: Any) -> Message:
    data = json.dumps(value, separators=(",", ":")).encode()
    return {"type": "http.response.body", "body": b"data: " + data + b"\n\n", "more_body": True}


def refused(request: Request, body: Mapping[str, Any]) -> str | None:
    """Why the real API would answer 400, or None."""
    if request.url.path != PATH or request.headers["authorization"] != "Bearer test-key":
        return f"nothing for you at {request.url.path}"
    if body["stream"] is not True or body["stream_options"] != {"include_usage": True}:
        return "expected a stream with usage"
    if body.get("tools") == []:
        return "[] is too short - 'tools'"
    open_calls: list[str] = []
    for index, message in enumerate(body["messages"]):
        where = f"messages[{index}]"
        role, content = message["role"], message.get("content")
        if role == "tool":
            if message["tool_call_id"] not in open_calls:
                return f"{where}: messages with role 'tool' must be a response to tool calls"
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return f"{where}: tool_call_ids did not have response messages: {open_calls}"
        if role not in ("system", "user", "assistant", "tool"):
            return f"{where}: {role} is not one of the roles"
        if content == [] or (content is None and not message.get("tool_calls")):
            return f"{where}: content is required"
        if role != "user" and isinstance(content, list):
            return f"{where}: expected text"
        for call in message.get("tool_calls", ()):
            if call["id"] in open_calls or not 0 < len(call["id"]) <= LONGEST_ID:
                return f"{where}: the id of a call is none"
            json.loads(call["function"]["arguments"])
            open_calls.append(call["id"])
    return f"the last calls have no response: {open_calls}" if open_calls else None
