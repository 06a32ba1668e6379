"""The memory of a conversation against the size of its text.

python benchmarks/memory.py
"""

import gc
import tracemalloc
from collections.abc import Sequence

from aguia import Consumer
from measure import Report, Table, main
from streams import INPUT, many_messages, one_message, pieces, sse_body

STREAMS = {
    "one message of 20,000 deltas": one_message(20_000),
    "1,000 messages of 20 deltas": many_messages(1_000, 20),
    "100 messages of 1,000 deltas": many_messages(100, 1_000),
    "10,000 messages of 2 deltas": many_messages(10_000, 2),
}


def measure() -> Report:
    report = Report("Memory of a conversation")
    table = Table(["stream", "KB of text", "KB held", "times", "KB at most while reading", "times"])
    for name, events in STREAMS.items():
        text = sum(len(event.get("delta", "")) for event in events)
        held, most = _memory(pieces(sse_body(events)))
        table.add(name, *(n / 1024 for n in (text, held)), held / text, most / 1024, most / text)
    report.text = [
        "What Python has allocated (`tracemalloc`) beyond what a `Consumer` takes that has read "
        "nothing. The deltas of a message lie side by side until it ends or somebody reads it, "
        "and in one piece from then on; a short string takes about 50 bytes beside its text.",
        table,
    ]
    return report


def _memory(parts: Sequence[bytes]) -> tuple[int, int]:
    """Bytes of the conversation in the end, and the most that reading it took."""
    gc.collect()
    tracemalloc.start()
    try:
        consumer = Consumer(INPUT)
        before = tracemalloc.get_traced_memory()[0]
        for part in parts:
            for _ in consumer.receive(part):
                pass
        gc.collect()
        after, most = tracemalloc.get_traced_memory()
        assert consumer.conversation.outcome is not None
    finally:
        tracemalloc.stop()
    return after - before, most - before


if __name__ == "__main__":
    main(measure)
