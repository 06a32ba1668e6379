"""Building a text delta and encoding it as an SSE frame: ours against the official encoder.

python benchmarks/encode_delta.py
"""

from ag_ui.core import EventType
from ag_ui.core import TextMessageContentEvent as OfficialContent
from ag_ui.encoder import EventEncoder

from aguia import RunAgentInput, TextMessageContentEvent, TextMessageStartEvent
from aguia.codec.sse import encode_event
from aguia.producer import Producer
from measure import Report, Table, in_turn, main, median, ratio, rounds, seconds
from streams import WORDS, run_input

EVENTS = 20_000


def measure() -> Report:
    encoder = EventEncoder()
    producer = _speaking(run_input())

    def ours() -> bytes:
        return encode_event(TextMessageContentEvent(message_id="message-1", delta=WORDS))

    def judged() -> bytes:
        event = TextMessageContentEvent(message_id="message-1", delta=WORDS)
        return b"".join([encode_event(out) for out in producer.emit(event)])

    def official() -> str:
        event = OfficialContent(
            type=EventType.TEXT_MESSAGE_CONTENT, message_id="message-1", delta=WORDS
        )
        return encoder.encode(event)

    assert ours() == judged() == official().encode()
    times = in_turn(
        rounds(7),
        official=lambda: seconds(official, EVENTS),
        ours=lambda: seconds(ours, EVENTS),
        judged=lambda: seconds(judged, EVENTS),
    )
    report = Report("Encoding a text delta")
    faster = ratio(times["official"], times["ours"])
    report.budget(
        "build and encode a text delta as an SSE frame",
        "official `EventEncoder`",
        "10 times as fast",
        f"{faster:.1f} times as fast",
        faster >= 10,
    )
    table = Table(["", "µs an event", "times as fast"])
    for name, title in (
        ("official", "official model and `EventEncoder`"),
        ("ours", "ours, event and `encode_event`"),
        ("judged", "ours, judged by the `Producer` as well"),
    ):
        table.add(title, median(times[name]) * 1e6, ratio(times["official"], times[name]))
    report.text = [f"{EVENTS:,} events a round; the bytes are the same.", table]
    return report


def _speaking(request: RunAgentInput) -> Producer:
    producer = Producer(request)
    producer.start()
    producer.emit(TextMessageStartEvent(message_id="message-1"))
    return producer


if __name__ == "__main__":
    main(measure)
