"""Other streams than those of the budgets: ours against the npm client, and against itself.

python benchmarks/workloads.py
"""

import logging
from collections.abc import Callable
from functools import partial

from aguia import Conversation
from aguia.codec import frames
from measure import Report, Table, in_turn, main, median, ratio, rounds, seconds, take_turns
from reading import npm_client, ours, read_watching
from streams import (
    PIECE,
    Events,
    agentic,
    binary_body,
    chunked,
    many_messages,
    one_message,
    pieces,
    sse_body,
    tool_calls,
    unknown_fields,
)

BESIDE_NPM = {
    "tool calls: 100 of 40 deltas": tool_calls(100, 40),
    "a mixed run of 30 turns": agentic(30),
    "4,000 deltas": one_message(4_000),
    "4,000 deltas, an unknown member on every event": unknown_fields(one_message(4_000)),
    "4,000 deltas as chunks": chunked(one_message(4_000)),
}


def measure() -> Report:
    logging.getLogger("aguia").setLevel(logging.ERROR)  # a warning for each unknown member
    report = Report("Other streams")
    report.text = [
        "Beside the npm client:",
        _beside_npm(),
        "The same conversation in other ways, each against the plain one, "
        "which is explicit events, over SSE, in pieces of 16 KB, nothing looked at:",
        _other_ways(),
    ]
    return report


def _beside_npm() -> Table:
    table = Table(["stream", "µs an event, npm client", "µs an event, ours", "times as fast"])
    with npm_client(sse_body(one_message(500))) as client:
        for name, events in BESIDE_NPM.items():
            body = sse_body(events)
            parts = pieces(body)
            times = in_turn(
                rounds(3),
                theirs=partial(client.seconds, body, PIECE),
                ours=partial(ours, parts),
            )
            cells = (median(times[who]) / len(events) * 1e6 for who in times)
            table.add(name, *cells, ratio(times["theirs"], times["ours"]))
    return table


def _other_ways() -> Table:
    table = Table(["way", "one message of 8,000 deltas", "times", "400 of 20 deltas", "times"])
    columns = [_ways(one_message(8_000)), _ways(many_messages(400, 20))]
    for name in columns[0]:
        cells: list[float] = []
        for ways in columns:
            cells += [median(ways[name]) * 1e6, ratio(ways[name], ways["plain"])]
        table.add(name, *cells)
    return table


def _ways(events: Events) -> dict[str, list[float]]:
    """Microseconds an event of the explicit stream, for each way."""
    body = sse_body(events)
    binary, as_chunks = binary_body(events), sse_body(chunked(events))
    tolerant = sse_body(unknown_fields(events))
    single = [part + b"\n\n" for part in body.split(b"\n\n")[:-1]]
    ways: dict[str, Callable[[], float]] = {
        "plain": lambda: ours(pieces(body)),
        "each event in a piece of its own": lambda: ours(single),
        "chunks": lambda: ours(pieces(as_chunks)),
        "protobuf": lambda: ours(pieces(binary), frames.CONTENT_TYPE),
        "an unknown member on every event": lambda: ours(pieces(tolerant)),
        "the last message read after every event": lambda: _watched(body, _last),
        "all messages read after every event": lambda: _watched(body, _all),
        "the state read after every event": lambda: _watched(body, _state),
    }
    measured = take_turns(rounds(5), ways)
    return {name: [time / len(events) for time in times] for name, times in measured.items()}


def _watched(body: bytes, look: Callable[[Conversation], object]) -> float:
    return seconds(lambda: read_watching(pieces(body), look))


def _last(conversation: Conversation) -> object:
    return conversation.messages[-1] if conversation.messages else None


def _all(conversation: Conversation) -> object:
    return list(conversation.messages)


def _state(conversation: Conversation) -> object:
    return conversation.state


if __name__ == "__main__":
    main(measure)
