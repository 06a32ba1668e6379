"""The contenders in reading a body: ours, the strict decode alone, and the npm client."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from aguia import Consumer, Conversation
from aguia.codec import sse
from aguia.codec.json import decode_event
from measure import (
    FOLDER,
    Report,
    Table,
    median,
    npm_version,
    peers_folder,
    ratio,
    rounds,
    seconds,
    take_turns,
)
from streams import INPUT, PIECE, one_message, pieces, sse_body

__all__ = [
    "NpmClient",
    "against_npm",
    "characters",
    "decode_alone",
    "npm_client",
    "ours",
    "read",
    "read_watching",
]


def read(parts: Sequence[bytes], content_type: str = sse.CONTENT_TYPE) -> Conversation:
    """Bytes to applied conversation, every event handed out, the messages looked at in the end."""
    consumer = Consumer(INPUT, content_type=content_type)
    for part in parts:
        for _ in consumer.receive(part):
            pass
    for _ in consumer.end():
        pass
    for _ in consumer.conversation.messages:
        pass
    return consumer.conversation


def read_watching(parts: Sequence[bytes], look: Callable[[Conversation], object]) -> None:
    """The same with somebody who looks at the conversation after every event."""
    consumer = Consumer(INPUT)
    for part in parts:
        for _ in consumer.receive(part):
            look(consumer.conversation)


def decode_alone(frames: Sequence[bytes]) -> None:
    """The strict msgspec decode of frames that have been cut already, and nothing else."""
    for frame in frames:
        decode_event(frame)


def characters(conversation: Conversation) -> int:
    return sum(len(getattr(message, "content", "") or "") for message in conversation.messages)


class NpmClient:
    """The npm reference client in a Node process of its own, which is asked for one run a line."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder

    def seconds(self, body: bytes, size: int) -> float:
        """Processor time for one run: `body` in pieces of `size` bytes. What it read is checked."""
        path = self._folder / "body"
        path.write_bytes(body)
        request = {"body": str(path), "bytes": size, "input": INPUT}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the npm client has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"the npm client failed: {answer['error']}")
        self.messages: int = answer["messages"]
        self.characters: int = answer["characters"]
        return float(answer["seconds"])


@contextmanager
def npm_client(warm_up: bytes) -> Iterator[NpmClient]:
    """Start the client and let it read `warm_up` a few times, so that its code is compiled."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            ["node", "--expose-gc", str(FOLDER / "npm_client.mjs"), str(peers_folder())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            client = NpmClient(process, Path(folder))
            for _ in range(3):
                client.seconds(warm_up, PIECE)
            yield client
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def ours(parts: Sequence[bytes], content_type: str = sse.CONTENT_TYPE) -> float:
    return seconds(lambda: read(parts, content_type))


def against_npm(report: Report, work: str, body: bytes, *, goal: int, number: int) -> None:
    """Measure one body, and tell of it as of a row of the budgets."""
    parts = pieces(body)
    conversation = read(parts)
    events = body.count(b"\n\n")
    with npm_client(sse_body(one_message(500))) as client:
        # Node has been warmed up, and a round of it may take long.
        times = take_turns(
            rounds(number),
            {"theirs": partial(client.seconds, body, PIECE), "ours": partial(ours, parts)},
            warm_up=False,
        )
        assert client.messages == len(conversation.messages)
        assert client.characters == characters(conversation)
    faster = ratio(times["theirs"], times["ours"])
    report.budget(
        work,
        f"npm client {npm_version('@ag-ui/client')}",
        f"{goal} times as fast",
        f"{faster:,.0f} times as fast",
        faster >= goal,
    )
    table = Table(["", "seconds", "µs an event"])
    table.add("npm client", median(times["theirs"]), median(times["theirs"]) / events * 1e6)
    table.add("ours", median(times["ours"]), median(times["ours"]) / events * 1e6)
    report.text = [
        f"{events:,} events, {len(body):,} bytes in pieces of {PIECE:,}. Both end with the same "
        "messages. The npm client is `HttpAgent.runAgent` on a response that is in memory, after "
        "a warm-up: processor time of its process for the run, start-up excluded.",
        table,
    ]
