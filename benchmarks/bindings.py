"""The two HTTP bindings compared: bytes on the wire, and the time to write and to read an event.

    python benchmarks/bindings.py > docs/reference/bindings.md

Everything is measured in one run, several rounds each, medians. Reading goes from the bytes of
one frame to the typed event, as the reading side does it.
"""

import platform
import statistics
import timeit
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import msgspec

from aguia import EVENTS, Event
from aguia.codec import protobuf, sse
from aguia.codec.frames import FrameDecoder
from aguia.codec.json import decode_event

ROUNDS: Final = 7
SECONDS: Final = 0.02

PLAN: Final = {
    "plan": [
        {"id": f"s{n}", "title": "A step", "done": n % 2 == 0, "cost": n * 1.5} for n in range(30)
    ]
}
MESSAGES: Final = [
    {"id": f"m{n}", "role": ("user", "assistant")[n % 2], "content": "Words of a message. " * 6}
    for n in range(20)
]

EVENTS_TO_WRITE: Final[dict[str, dict[str, Any]]] = {
    "a text delta": {
        "type": "TEXT_MESSAGE_CONTENT",
        "messageId": "msg-1234",
        "delta": "some words ",
    },
    "a delta of arguments": {"type": "TOOL_CALL_ARGS", "toolCallId": "call-1", "delta": '{"q":'},
    "a start of a call": {
        "type": "TOOL_CALL_START",
        "toolCallId": "call-1",
        "toolCallName": "find",
        "parentMessageId": "msg-1234",
    },
    "a result": {
        "type": "TOOL_CALL_RESULT",
        "messageId": "msg-2",
        "toolCallId": "call-1",
        "content": "found it",
    },
    "a state delta": {
        "type": "STATE_DELTA",
        "delta": [{"op": "replace", "path": "/plan/3/done", "value": True}],
    },
    "a state of 2 KB": {"type": "STATE_SNAPSHOT", "snapshot": PLAN},
    "a snapshot of 20 messages": {"type": "MESSAGES_SNAPSHOT", "messages": MESSAGES},
    "a finish with usage": {
        "type": "RUN_FINISHED",
        "threadId": "t-1",
        "runId": "r-1",
        "outcome": {"type": "success"},
        "usage": [{"model": "m", "inputTokens": 10, "outputTokens": 20}],
    },
}


def microseconds(work: Callable[[], object]) -> float:
    """The median time of one call."""
    once = timeit.timeit(work, number=20) / 20
    number = max(1, int(SECONDS / (once + 1e-9)))
    return statistics.median(timeit.repeat(work, number=number, repeat=ROUNDS)) / number * 1e6


def read_binary(frame: bytes) -> Event:
    (message,) = FrameDecoder().feed(frame)
    raw = protobuf.decode_event(message)
    assert raw is not None
    return msgspec.convert(raw, EVENTS[raw["type"]])


def read_sse(frame: bytes) -> Event:
    (data,) = sse.SseDecoder().feed(frame)
    return decode_event(data)


def main() -> None:
    print("# The bindings compared\n")
    print(
        "Made by `benchmarks/bindings.py`. Times are microseconds an event, medians of one run.\n"
    )
    print(
        f"Python {platform.python_version()}, msgspec {version('msgspec')}, "
        f"protobuf {version('protobuf')}, {platform.machine()}.\n"
    )
    print(
        "| event | bytes SSE | bytes binary | write SSE | write binary | ratio | read SSE | "
        "read binary | ratio |"
    )
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: |")
    for name, plain in EVENTS_TO_WRITE.items():
        event: Event = msgspec.convert(plain, EVENTS[plain["type"]])
        text, binary = sse.encode_event(event), protobuf.encode_event(event)
        assert read_binary(binary) == read_sse(text) == event
        write = (
            microseconds(partial(sse.encode_event, event)),
            microseconds(partial(protobuf.encode_event, event)),
        )
        read = (
            microseconds(partial(read_sse, text)),
            microseconds(partial(read_binary, binary)),
        )
        print(
            f"| {name} | {len(text)} | {len(binary)} | {write[0]:.2f} | {write[1]:.2f} | "
            f"{write[1] / write[0]:.1f} | {read[0]:.2f} | {read[1]:.2f} | {read[1] / read[0]:.1f} |"
        )
    print(
        "\nServer-sent events cost less time in Python, since msgspec reads and writes JSON faster "
        "than\nany Python code can build protobuf messages; the binary binding saves bytes on "
        "small events.\nThe client therefore offers it only where it is asked to."
    )


if __name__ == "__main__":
    main()
