"""What an event costs when the thread, or its message, is long already.

Draws `docs/pictures/cost.svg`.

python benchmarks/thread_length.py
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from aguia import Consumer, Message, UserMessage
from aguia.client.thread import Request, Thread
from chart import Series, chart
from measure import FOLDER, Report, Table, main, median, ratio, rounds, take_turns
from streams import INPUT, WORDS, many_messages, one_message, pieces, sse_body

THREADS = [1, 10, 100, 1_000, 10_000]
LENGTHS = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]
DELTAS = 4_000
READ = 200
"""How many deltas there are where somebody reads the message after each."""


def measure() -> Report:
    report = Report("The length of the thread and of the message")
    body = sse_body(one_message(DELTAS))
    threads = _in_turn(lambda size: lambda: _deltas(_thread(size), body, DELTAS), THREADS)
    whole = sse_body(many_messages(200, 20))
    messages = _in_turn(lambda size: lambda: _deltas(_thread(size), whole, 200 * 22), THREADS)
    watched = _in_turn(
        lambda size: lambda: _deltas(_thread(size), body, DELTAS, look=_last), THREADS
    )
    starts = _in_turn(lambda size: lambda: _next_run(_thread(size)), THREADS, number=5)
    lengths = _in_turn(lambda size: lambda: _long_message(size, DELTAS), LENGTHS, number=5)
    reading = _in_turn(lambda size: lambda: _long_message(size, READ, look=_last), LENGTHS, 3)

    grown = max(ratio(times[10_000], times[1]) for times in (threads, messages))
    report.budget(
        "cost an event in a thread of 10,000 messages",
        "itself, thread of 1",
        "at most 1.2 times",
        f"{grown:.2f} times",
        grown <= 1.2,
    )
    table = Table(
        [
            "messages in the thread",
            "µs a delta",
            "µs an event, new messages of 20 deltas",
            "µs a delta, last message read after each",
            "ms to begin a run",
        ]
    )
    for size in THREADS:
        table.add(
            size,
            median(threads[size]) * 1e6,
            median(messages[size]) * 1e6,
            median(watched[size]) * 1e6,
            median(starts[size]) * 1e3,
        )
    longer = Table(["characters in the message", "µs a delta", "µs a delta, read after each"])
    for size in LENGTHS:
        longer.add(size, median(lengths[size]) * 1e6, median(reading[size]) * 1e6)
    report.text = [
        "To begin a run is to judge what is said, make the run input and take up what the agent "
        "answers; it looks at every message once, since the input holds all of them.",
        table,
        "Who reads a message after each delta gets its whole text each time, as a string of "
        "Python's: that is one copy of so many characters, and the only thing that grows.",
        longer,
        "[![Cost an event](cost.svg)](cost.svg)",
    ]
    (FOLDER.parent / "docs" / "pictures" / "cost.svg").write_text(
        chart(
            "Cost of an event",
            "µs",
            Series("messages in the thread", _points(threads)),
            Series("characters in the message", _points(lengths)),
        )
    )
    return report


def _in_turn(
    make: Callable[[int], Callable[[], float]], sizes: Sequence[int], number: int = 9
) -> dict[int, list[float]]:
    times = take_turns(rounds(number), {str(size): make(size) for size in sizes})
    return {int(name): measured for name, measured in times.items()}


def _points(times: dict[int, list[float]]) -> list[tuple[float, float]]:
    return [(size, median(measured) * 1e6) for size, measured in times.items()]


def _thread(size: int) -> list[Message]:
    return [UserMessage(id=f"held-{number}", content=WORDS * 20) for number in range(size)]


def _last(consumer: Consumer) -> object:
    return consumer.conversation.messages[-1]


def _deltas(
    held: list[Message], body: bytes, events: int, look: Callable[[Consumer], Any] | None = None
) -> float:
    """Seconds an event; the consumer is made, and holds its messages, before that is measured."""
    consumer = Consumer(INPUT, messages=held)
    parts = pieces(body)
    before = time.process_time()
    for part in parts:
        for _ in consumer.receive(part):
            if look is not None:
                look(consumer)
    return (time.process_time() - before) / events


def _long_message(size: int, deltas: int, look: Callable[[Consumer], Any] | None = None) -> float:
    """Seconds a delta of a message that has `size` characters already."""
    consumer = Consumer(INPUT)
    start, *rest = one_message(deltas)
    head = [start, *one_message(1, "x" * size)[1:3]]
    for _ in consumer.receive(sse_body(head)):
        pass
    _last(consumer)
    parts = pieces(sse_body(rest[1:-2]))
    before = time.process_time()
    for part in parts:
        for _ in consumer.receive(part):
            if look is not None:
                look(consumer)
    return (time.process_time() - before) / deltas


def _next_run(held: list[Message]) -> float:
    """Seconds to begin a run: the client's thread, without what the transport takes."""
    thread = Thread(thread_id="thread-1", messages=held)
    request = Request(tools=[], context=[], forwarded_props={})
    next_input = thread.next_input(request, thread.said("hello"))
    consumer = thread.take_up(next_input.input, next_input.held)
    for _ in consumer.receive(sse_body(one_message(3))):
        pass
    before = time.process_time()
    next_input = thread.next_input(request, thread.said("and now?"))
    thread.take_up(next_input.input, next_input.held)
    return time.process_time() - before


if __name__ == "__main__":
    main(measure)
