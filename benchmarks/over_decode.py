"""Bytes to conversation against the strict msgspec decode of the same frames alone.

python benchmarks/over_decode.py
"""

from functools import partial

from aguia.codec.sse import SseDecoder
from measure import Report, Table, in_turn, main, median, ratio, rounds, seconds
from reading import decode_alone, ours
from streams import agentic, many_messages, one_message, pieces, sse_body, tool_calls

STREAMS = {
    "one message of 20,000 deltas": one_message(20_000),
    "1,000 messages of 20 deltas": many_messages(1_000, 20),
    "400 tool calls of 40 deltas": tool_calls(400, 40),
    "a mixed run of 150 turns": agentic(150),
}


def measure() -> Report:
    report = Report("What the rules cost beside the decoder")
    table = Table(["stream", "µs an event, decode alone", "µs an event, to conversation", "times"])
    worst = 0.0
    for name, events in STREAMS.items():
        body = sse_body(events)
        parts, frames = pieces(body), SseDecoder().feed(body)
        times = in_turn(
            rounds(15),
            decode=partial(seconds, partial(decode_alone, frames)),
            ours=partial(ours, parts),
        )
        over = ratio(times["ours"], times["decode"])
        worst = max(worst, over)
        table.add(name, *(median(times[who]) / len(frames) * 1e6 for who in times), over)
    report.budget(
        "bytes to conversation",
        "the strict msgspec decode alone",
        "at most 5 times its cost",
        f"{worst:.1f} times for the dearest of these streams",
        worst <= 5,
    )
    report.text = [
        "To conversation is everything: framing, decode, verification, the conversation, each "
        "event handed out, and all messages read in the end.",
        table,
    ]
    return report


if __name__ == "__main__":
    main(measure)
