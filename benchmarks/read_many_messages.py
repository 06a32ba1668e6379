"""Bytes to applied conversation, 1,000 messages of 20 deltas: ours against the npm client.

python benchmarks/read_many_messages.py
"""

from measure import Report, main
from reading import against_npm
from streams import many_messages, sse_body


def measure() -> Report:
    report = Report("Reading many messages")
    against_npm(
        report,
        "bytes to applied conversation, thread of 1,000 messages of 20 deltas",
        sse_body(many_messages(1000, 20)),
        goal=100,
        number=2,
    )
    return report


if __name__ == "__main__":
    main(measure)
