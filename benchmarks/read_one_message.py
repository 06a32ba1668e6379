"""Bytes to applied conversation, one message of 16,000 deltas: ours against the npm client.

python benchmarks/read_one_message.py
"""

from measure import Report, main
from reading import against_npm
from streams import one_message, sse_body

DELTAS = 16_000


def measure() -> Report:
    report = Report("Reading one long message")
    against_npm(
        report,
        f"bytes to applied conversation, one message of {DELTAS:,} deltas",
        sse_body(one_message(DELTAS)),
        goal=12,
        number=3,
    )
    return report


if __name__ == "__main__":
    main(measure)
