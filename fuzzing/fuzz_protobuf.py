"""Throws mutated bytes at the binary binding, until something other than an error of ours comes.

Run by hand, from the repository's root, with the package and `atheris` installed:

    python fuzzing/fuzz_protobuf.py FOLDER -max_total_time=300

FOLDER keeps the inputs that reached new code; when it is empty, the vectors of the tests are
put there to start from. What follows it are options of libFuzzer. The input's first byte chooses
what reads the rest: 0 the decoder of single messages, else a consumer that is given pieces of
that many bytes.
"""

import json
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports():
    import msgspec

    from aguia import Consumer, DecodeError, ProtocolViolation, TruncatedRun
    from aguia.codec.frames import CONTENT_TYPE, encode_frame
    from aguia.codec.protobuf import decode_event, encode_event
    from aguia.protocol.events import EVENTS

VECTORS = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "protobuf.json"


def read_message(message: bytes) -> None:
    """One message: an event that is JSON, and that says the same once written and read again."""
    try:
        event = decode_event(message)
    except DecodeError:
        return
    if event is None:
        return
    json.dumps(event, allow_nan=False, ensure_ascii=False).encode()
    try:
        typed = msgspec.convert(event, EVENTS[event["type"]])
    except msgspec.ValidationError:
        return
    again = decode_event(encode_event(typed)[4:])
    assert again == event, (event, again)


def read_body(body: bytes, size: int) -> None:
    """A body in pieces, through the whole consumer."""
    consumer = Consumer(content_type=CONTENT_TYPE, max_event_bytes=1 << 16)
    try:
        for start in range(0, len(body), size):
            for _ in consumer.receive(body[start : start + size]):
                pass
        for _ in consumer.end():
            pass
    except (ProtocolViolation, TruncatedRun):
        pass


def test_one_input(data: bytes) -> None:
    """What libFuzzer calls."""
    if not data:
        return
    if data[0] == 0:
        read_message(data[1:])
    else:
        read_body(data[1:], data[0])


def seed(folder: Path) -> None:
    """Put the vectors into an empty folder: each message, and all events of a type as a body."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        return
    bodies: dict[str, bytes] = {}
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    start = next(each for each in vectors if each["event"]["type"] == "RUN_STARTED")
    for number, vector in enumerate(vectors):
        message = bytes.fromhex(vector["hex"])
        kind = vector["event"]["type"]
        if len(message) < 2000:
            (folder / f"message-{number}").write_bytes(b"\0" + message)
            first = encode_frame(bytes.fromhex(start["hex"]))
            bodies[kind] = bodies.get(kind, b"\x07" + first) + encode_frame(message)
    for kind, body in bodies.items():
        (folder / f"body-{kind}").write_bytes(body)


if __name__ == "__main__":
    folders = [Path(each) for each in sys.argv[1:] if not each.startswith("-")]
    if len(folders) != 1:
        sys.exit(__doc__)
    seed(folders[0])
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
