"""The two servers that `serving.py` compares; it starts them. Prints the port it listens on.

At `/fast` and `/paced` an agent says one message of deltas, at `/idle` it says nothing and stays.
At `/cpu` and `/memory` the process tells what it has used: seconds, and bytes that are resident.
"""

import asyncio
import gc
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from streams import WORDS

DELTAS = 200


def ours() -> ASGIApp:
    from aguia.server import Agents, Run

    async def fast(run: Run) -> None:
        async with run.text() as text:
            for _ in range(DELTAS):
                await text.write(WORDS)

    async def paced(run: Run) -> None:
        async with run.text() as text:
            for _ in range(DELTAS):
                await asyncio.sleep(0)
                await text.write(WORDS)

    async def idle(run: Run) -> None:
        await asyncio.Event().wait()

    return Agents(fast=fast, paced=paced, idle=idle)


def official() -> ASGIApp:
    from ag_ui.core import (
        EventType,
        RunAgentInput,
        RunFinishedEvent,
        RunStartedEvent,
        TextMessageContentEvent,
        TextMessageEndEvent,
        TextMessageStartEvent,
    )
    from ag_ui.encoder import EventEncoder
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    app = FastAPI()

    async def events(run_input: RunAgentInput, pace: str) -> AsyncIterator[str]:
        encoder = EventEncoder()
        thread_id, run_id = run_input.thread_id, run_input.run_id
        yield encoder.encode(
            RunStartedEvent(type=EventType.RUN_STARTED, thread_id=thread_id, run_id=run_id)
        )
        if pace == "idle":
            await asyncio.Event().wait()
        message_id = "msg-1"
        yield encoder.encode(
            TextMessageStartEvent(
                type=EventType.TEXT_MESSAGE_START, message_id=message_id, role="assistant"
            )
        )
        for _ in range(DELTAS):
            if pace == "paced":
                await asyncio.sleep(0)
            yield encoder.encode(
                TextMessageContentEvent(
                    type=EventType.TEXT_MESSAGE_CONTENT, message_id=message_id, delta=WORDS
                )
            )
        yield encoder.encode(
            TextMessageEndEvent(type=EventType.TEXT_MESSAGE_END, message_id=message_id)
        )
        yield encoder.encode(
            RunFinishedEvent(type=EventType.RUN_FINISHED, thread_id=thread_id, run_id=run_id)
        )

    @app.post("/{pace}")
    async def run(pace: str, run_input: RunAgentInput) -> StreamingResponse:
        return StreamingResponse(
            events(run_input, pace), media_type=EventEncoder().get_content_type()
        )

    return app


def telling(app: ASGIApp) -> ASGIApp:
    """The application, with what the process has used beside it."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET":
            gc.collect()
            told = time.process_time() if scope["path"] == "/cpu" else resident()
            await PlainTextResponse(f"{told}")(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


def resident() -> float:
    """Bytes of this process that are in memory (Linux only; elsewhere 0)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * 4096.0


def main() -> None:
    app = telling({"ours": ours, "official": official}[sys.argv[1]]())
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="critical", access_log=False, ws="none", backlog=2048)
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
