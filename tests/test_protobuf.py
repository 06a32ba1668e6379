"""The binary binding: `aguia.codec.protobuf`, `wire_json`, and `Consumer` reading it (PB-2 to 4).

The vectors of `tests/vectors/protobuf.json` are canonical events with the bytes that the npm
reference implementation writes; `test_peers_protobuf.py` proves that they still are.
"""

import json
import math
import struct
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aguia import (
    AguiaError,
    Consumer,
    DecodeError,
    MalformedEvent,
    ProtocolViolation,
    ProtocolWarning,
    TruncatedRun,
)
from aguia.codec import wire_pb2
from aguia.codec.frames import CONTENT_TYPE, encode_frame
from aguia.codec.protobuf import decode_event, encode_event
from aguia.codec.wire_json import (
    WireError,
    decode_struct,
    decode_value,
    encode_struct,
    encode_value,
)
from aguia.protocol.events import EVENTS, CustomEvent, Event
from support import own_streams, shared
from support_events import FINISHED, STARTED, frame, mutated_events, plain_events
from support_protobuf import (
    UNKNOWN,
    NotOnTheWire,
    canonical_events,
    length_delimited,
    put_on_wire,
    read_vectors,
    through_the_wire,
    varint,
)
from support_streams import broken, well_formed

VECTORS: Final = read_vectors()


def _typed(event: Any) -> Event:
    typed: Event = msgspec.convert(event, Event)
    return typed


def _encode(event: Any) -> bytes:
    encoded = encode_event(_typed(event))
    assert encoded[:4] == len(encoded[4:]).to_bytes(4, "big")
    return encoded[4:]


# Canonical events


@pytest.mark.parametrize("kind", EVENTS)
def test_vectors(kind: str) -> None:
    """PB-4: the bytes are the reference's, and what they say is the event."""
    vectors = [vector for vector in VECTORS if vector["event"]["type"] == kind]
    assert vectors
    for vector in vectors:
        event, message = vector["event"], bytes.fromhex(vector["hex"])
        assert _encode(event).hex() == vector["hex"]
        decoded = decode_event(message)
        assert decoded == through_the_wire(event)
        # It is JSON, with whole numbers as such.
        assert _whole_numbers(decoded) == decoded
        assert repr(_whole_numbers(decoded)) == repr(decoded)
        if "-0.0" not in repr(event):
            assert put_on_wire(decoded).message == message


def _whole_numbers(value: Any) -> Any:
    match value:
        case float() if value.is_integer() and abs(value) < 2**53:
            return int(value)
        case list():
            return [_whole_numbers(item) for item in value]
        case dict():
            return {name: _whole_numbers(item) for name, item in value.items()}
    return value


def test_vectors_are_of_the_canonical_events() -> None:
    """`python tests/support_protobuf.py` makes them anew."""
    assert [vector["event"] for vector in VECTORS] == canonical_events()


@given(plain_events())
def test_round_trip(event: dict[str, Any]) -> None:
    """PB-3: what any event holds survives, but for the lists and numbers that the wire lacks."""
    try:
        put_on_wire(through_the_wire(event))
    except NotOnTheWire:
        assume(False)
    message = _encode(event)
    assert decode_event(message) == through_the_wire(event)
    assert put_on_wire(through_the_wire(event)).message == message


# Every stream over both bindings


@dataclass
class Replay:
    """What became of a stream."""

    error: AguiaError | None = None
    events: list[Any] = field(default_factory=list)
    warnings: list[ProtocolWarning] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    state: Any = None
    facts: list[Any] = field(default_factory=list)

    def verdict(self, *, nameless: bool) -> list[Any]:
        """What must be equal; the names of unknown things only where they travelled."""
        error: Any = self.error
        warnings: Any = self.warnings
        if nameless:
            error = error and [
                getattr(error, name, None) for name in ("rule", "index", "event_type", "path")
            ]
            warnings = [
                [each.index, {"PB-2": "PROC-1"}.get(each.rule, each.rule), each.path]
                for each in self.warnings
            ]
        else:
            error = str(error)
        return [type(self.error), error, warnings, *self.rest()]

    def rest(self) -> list[Any]:
        return [self.events, self.messages, self.state, self.facts]


def _replay(given: dict[str, Any], pieces: Iterable[bytes], content_type: str) -> Replay:
    replay = Replay()
    options: dict[str, Any] = {"content_type": content_type, "on_warning": replay.warnings.append}
    if "threadId" in given:
        consumer = Consumer({"messages": [], **given}, **options)
    else:
        known = {"state": given["state"]} if "state" in given else {}
        consumer = Consumer(messages=given.get("messages", ()), **known, **options)
    try:
        for piece in pieces:
            for event in consumer.receive(piece):
                replay.events.append(msgspec.to_builtins(event))
        for event in consumer.end():
            replay.events.append(msgspec.to_builtins(event))
    except (ProtocolViolation, TruncatedRun) as error:
        replay.error = error
    conversation = consumer.conversation
    replay.messages = [msgspec.to_builtins(message) for message in conversation.messages]
    replay.state = conversation.state
    replay.facts = [
        [call.id for call in conversation.pending_tool_calls],
        msgspec.to_builtins(conversation.interrupts),
        conversation.outcome.type if conversation.outcome else None,
        msgspec.to_builtins(conversation.usage),
        conversation.error is not None,
    ]
    return replay


def _both(given: dict[str, Any], events: list[Any]) -> None:
    """Replay the events over both bindings and compare. Raises `NotOnTheWire`."""
    written = [put_on_wire(event) for event in events]
    body = b"".join(encode_frame(each.message) for each in written)
    nameless = any(each.nameless for each in written)
    text = _replay(given, [frame(*events)], "text/event-stream")
    binary = _replay(given, [body], CONTENT_TYPE)
    assert binary.verdict(nameless=nameless) == text.verdict(nameless=nameless)
    pieces = [body[start : start + 5] for start in range(0, len(body), 5)]
    again = _replay(given, pieces, CONTENT_TYPE)
    assert again.verdict(nameless=False) == binary.verdict(nameless=False)


def _streams(folder: Path) -> dict[str, Any]:
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }


OWN: Final = own_streams()

# What the wire can't express of the streams, and which those are; every other is compared.
NOT_ON_THE_WIRE: Final = {
    # Its fields have types, which the encoder can't but keep to.
    "a value of the wrong JSON type": """
        act-content-not-an-object-fatal evt-null-name-fatal evt-null-raw-source-fatal
        evt-null-replace-fatal evt-null-result-content-fatal evt-null-role-fatal
        evt-null-step-name-fatal evt-timestamp-fractional-fatal evt-timestamp-null-fatal
        evt-timestamp-string-fatal meta-list-fatal meta-null-fatal
        proc-boolean-for-integer-fatal proc-chunk-malformed-role-fatal
        proc-chunk-malformed-timestamp-fatal proc-chunk-null-delta-fatal
        proc-dropped-part-takes-its-faults-along proc-enum-role-not-a-string-fatal
        proc-event-type-missing-fatal proc-event-type-not-a-string-fatal
        proc-malformed-beside-unrecognised-fatal proc-malformed-keeps-what-came-before
        proc-object-for-list-fatal proc-outcome-type-not-a-string-fatal
        proc-outcome-without-type-fatal proc-string-for-boolean-fatal
        proc-string-for-number-fatal proc-unrecognised-element-not-judged
        reas-subtype-not-a-string-fatal state-delta-not-a-list-fatal
        state-delta-op-not-a-string-fatal state-delta-operation-not-an-object-fatal
        state-delta-path-not-a-string-fatal state-delta-unknown-op-not-judged sub-null-tag-fatal
        sub-null-tag-on-chunk-fatal malformed-known-field-fatal unknown-outcome-array-fatal
    """,
    # A reader of the wire skips what it has no field for, and can't name it.
    "a member that the wire has no field for": """
        evt-run-scoped-events-carry-no-tag proc-unknown-properties-each-warned
        proc-unknown-property-deep-stripped proc-unknown-property-in-outcome-stripped
        proc-unknown-property-named-like-an-attribute-stripped
        proc-unknown-property-path-escaped proc-unknown-property-snake-case-stripped
        run-outcome-unknown-is-success unknown-property-stripped
    """,
    "an open member of a patch operation": "proc-open-objects-kept",
    # Text that is absent is empty text there.
    "a required member that is absent": """
        int-interrupts-missing-fatal proc-message-without-role-fatal
        proc-required-field-missing-fatal reas-role-missing-fatal state-delta-op-missing-fatal
        state-delta-path-missing-fatal subagent-started-missing-name-fatal
    """,
    # A list without elements leaves no trace.
    "an empty list where there may be none": "front-pending-derived-from-an-empty-list",
    # UTF-8 has no form for it; whoever writes holds it back until the other half comes.
    "half a character": "stream-arguments-cut-in-a-surrogate-pair stream-deltas-cut-anywhere",
    "a retired shape, for which the wire has no form": "era-0-0-45-thinking-translated",
}


def _reasons(streams: dict[str, Any]) -> dict[str, str]:
    found = {}
    for name, stream in streams.items():
        try:
            for event in stream["stream"]:
                put_on_wire(event)
        except NotOnTheWire as reason:
            found[name] = str(reason)
    return found


def _listed(streams: dict[str, Any]) -> dict[str, str]:
    return {
        name: reason
        for reason, names in NOT_ON_THE_WIRE.items()
        for name in names.split()
        if name in streams
    }


def test_own_streams_that_the_wire_can_not_express() -> None:
    assert _reasons(OWN) == _listed(OWN)


def test_public_streams_that_the_wire_can_not_express() -> None:
    streams = _streams(shared("conformance/streams"))
    assert _reasons(streams) == _listed(streams)
    assert len(_listed(OWN)) + len(_listed(streams)) == len(_listed(OWN | streams))
    assert len(_listed(OWN | streams)) == len(" ".join(NOT_ON_THE_WIRE.values()).split())


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", sorted(OWN.keys() - _listed(OWN)))
def test_own_stream_over_both_bindings(name: str) -> None:
    """PROC-10 and PB-3: the same events, messages, state, verdict and warnings."""
    _both(OWN[name].get("input") or {}, OWN[name]["stream"])


def test_public_streams_over_both_bindings() -> None:
    """PROC-10 and PB-3, for the public streams."""
    streams = _streams(shared("conformance/streams"))
    for name, stream in streams.items():
        if name not in _listed(streams):
            _both(stream.get("input", {}), stream["stream"])


def _without_halves(event: Any) -> Any:
    """The event with a question mark for each half of a character, and no empty list of calls."""
    text = json.dumps(event, ensure_ascii=False).encode(errors="replace").decode()
    whole = json.loads(text)
    if isinstance(whole.get("outcome"), dict) and whole["outcome"].get("pendingToolCallIds") == []:
        del whole["outcome"]["pendingToolCallIds"]
    return whole


@pytest.mark.unmeasured
def test_random_streams_over_both_bindings() -> None:
    """PROC-10, for streams that keep the rules and for such that break one."""
    compared = 0
    for seed in range(40):
        case = well_formed(seed)
        for each in (case, broken(case, seed), broken(case, seed + 1000)):
            try:
                _both(each.input, [_without_halves(event) for event in each.events])
                compared += 1
            except NotOnTheWire as reason:
                # An attribution on an event that takes none
                assert str(reason) == "a member that the wire has no field for"  # noqa: PT017
    assert compared > 105


@pytest.mark.unmeasured
@given(mutated_events())
def test_mutated_event_over_both_bindings(event: Any) -> None:
    """PROC-3 to 5 and 10: enforcement judges the same of both, and says the same."""
    try:
        _both({}, [STARTED, event])
    except NotOnTheWire:
        assume(False)


def test_stream_events_arrive_as_they_were() -> None:
    """What is put on the wire for these tests is the event and not something like it."""
    for stream in OWN.values():
        for event in stream["stream"]:
            try:
                written = put_on_wire(event)
            except NotOnTheWire:
                continue
            if not written.nameless:
                assert decode_event(written.message) == event
                try:
                    typed = _typed(event)
                except msgspec.ValidationError:
                    continue
                assert encode_event(typed)[4:] == written.message


# Messages built by hand

BASE: Final = 1
_CUSTOM: Final = 11
_CONTENT: Final = 2


def _custom(value: bytes) -> bytes:
    """A CUSTOM event whose value is these bytes."""
    base = length_delimited(BASE, b"\x08\x0a")
    name = length_delimited(2, b"n")
    return length_delimited(_CUSTOM, base + name + length_delimited(3, value))


def _content(rest: bytes) -> bytes:
    """A TEXT_MESSAGE_CONTENT event with these bytes after its base."""
    return length_delimited(_CONTENT, length_delimited(BASE, b"\x08\x01") + rest)


_TEXT: Final = length_delimited(2, b"m") + length_delimited(3, b"d")
_EVENT: Final = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "d"}


def test_content_by_hand() -> None:
    assert decode_event(_content(_TEXT)) == _EVENT
    assert decode_event(_content(b"")) == {**_EVENT, "messageId": "", "delta": ""}


@pytest.mark.parametrize(
    "unknown",
    [
        length_delimited(UNKNOWN, b"\xff\xff"),
        b"\x98\x06\x01",  # a number
        b"\x99\x06" + bytes(8),
        b"\x9d\x06" + bytes(4),
        b"\x9b\x06\x9b\x06\x08\x01\x9c\x06\x9c\x06",  # groups
        b"\x98\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
)
def test_unknown_fields_are_skipped(unknown: bytes) -> None:
    """PROC-2: protobuf skips them, at every level and beside the kind of event too."""
    assert decode_event(unknown + _content(_TEXT)) == _EVENT
    assert decode_event(_content(_TEXT) + unknown) == _EVENT
    assert decode_event(_content(unknown + _TEXT + unknown)) == _EVENT
    number = b"\x11" + struct.pack("<d", 1)
    entry = length_delimited(1, b"k") + unknown + length_delimited(2, unknown + number)
    members = unknown + length_delimited(1, entry + unknown) + unknown
    items = unknown + length_delimited(1, number + unknown) + unknown
    for value, expected in (
        (length_delimited(5, members), {"k": 1}),
        (length_delimited(6, items), [1]),
    ):
        decoded = decode_event(_custom(unknown + value + unknown))
        assert decoded == {"type": "CUSTOM", "name": "n", "value": expected}


@pytest.mark.parametrize(
    "message",
    [
        length_delimited(UNKNOWN, b""),
        length_delimited(32, _TEXT),
        length_delimited(32, length_delimited(BASE, b"\x08\x63")) * 2,
        length_delimited(32, b"") + length_delimited(33, b""),
        b"\x98\x06\x01" + length_delimited(UNKNOWN, b""),
        length_delimited(UNKNOWN, b"\x0b\x0b\x0c\x0c\x0d\0\0\0\0\x09" + bytes(8)),
    ],
)
def test_unknown_kind_is_dropped(message: bytes) -> None:
    """PROC-1 and PB-2: an event of a kind that this version has no arm for is passed over."""
    assert decode_event(message) is None


@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        b"\x00",
        b"\x0f",
        b"\x0a",
        b"\x0a\x05a",
        b"\x08",
        b"\x09\0",
        b"\x0d\0\0\0",
        b"\x0b",
        b"\x0c",
        b"\x0b\x14",
        b"\x08" + b"\xff" * 9 + b"\x02",
        b"\x08" + b"\x80" * 10 + b"\x00",
        b"\xf8\xff\xff\xff\x1f\x00",
        b"plain text",
    ],
)
def test_unknown_kind_that_is_no_message(content: bytes) -> None:
    """PB-2: only what is a message is passed over; other bytes are fatal."""
    with pytest.raises(DecodeError) as caught:
        decode_event(length_delimited(UNKNOWN, content))
    assert caught.value.rule == "PB-2"


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"", "no event in the frame"),
        (b"\x98\x06\x01", "no event in the frame"),
        (b"\x10\x01", "no event in the frame"),  # the arm as a number
        (b"\x10\x01" + length_delimited(UNKNOWN, b""), "no event in the frame"),
        (length_delimited(_CONTENT, b""), "without its base"),
        (length_delimited(_CONTENT, _TEXT), "without its base"),
        (length_delimited(_CONTENT, length_delimited(BASE, b"") + _TEXT), "says it is another"),
        (length_delimited(_CONTENT, length_delimited(BASE, b"\x08\x63")), "says it is another"),
        (length_delimited(1, length_delimited(BASE, b"\x08\x01")), "says it is another"),
        (_content(_TEXT) + _custom(b"\x08\0"), "several kinds"),
        (_content(_TEXT) + b"\x18\x01", "several kinds"),
        (_content(_TEXT) + b"\x00", "the frame is no event"),
        (_content(_TEXT) + b"\xff", "the frame is no event"),
        (_content(_TEXT)[:-1], "the frame is no event"),
        (_content(_TEXT)[1:], "the frame is no event"),
        (b"data: {}", "the frame is no event"),
        (b"\x0b", "the frame is no event"),
        (b"\x0c", "the frame is no event"),
        (_content(length_delimited(3, b"\xff")), "the frame is no event"),
        (_content(length_delimited(3, b"\xed\xa0\x80")), "the frame is no event"),
        (length_delimited(_CONTENT, b"\xff"), "the frame is no event"),
        (
            length_delimited(_CUSTOM, length_delimited(BASE, b"\x08\x0a\x22\x03abc")),
            "the frame is no event",
        ),
    ],
)
def test_no_event(message: bytes, says: str) -> None:
    """PB-2: what doesn't decode is fatal, and says why."""
    with pytest.raises(DecodeError, match=says) as caught:
        decode_event(message)
    assert caught.value.rule == "PB-2"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x98\x06\x01",  # no kind
        length_delimited(6, length_delimited(1, b"")),  # an element of no kind
        length_delimited(3, b"\xff"),
        length_delimited(3, b"\xed\xa0\x80"),
        length_delimited(5, length_delimited(1, length_delimited(1, b"\xff") + b"\x12\x02\x08\0")),
        b"\x1a\x05a",
        b"\x2a\x7f",
        b"\x11" + bytes(7),
        length_delimited(5, b"\x0a\x05"),
        length_delimited(5, length_delimited(1, b"\x0a\x05k")),
        length_delimited(6, b"\x0a\x05"),
        length_delimited(6, length_delimited(1, b"\x00\x00")),
        length_delimited(6, length_delimited(1, b"\x0f")),
        length_delimited(6, length_delimited(1, b"\x20" + b"\xff" * 10)),
        length_delimited(6, b"\x0b"),
    ],
)
def test_no_value(value: bytes) -> None:
    """PB-2: JSON that is none is fatal."""
    with pytest.raises(DecodeError) as caught:
        decode_event(_custom(value))
    assert caught.value.rule == "PB-2"
    with pytest.raises(WireError):
        decode_value(value, 9)


def test_pieces_are_merged() -> None:
    """Protobuf: of a field that comes twice the last counts, messages and lists are merged."""
    assert decode_event(_content(length_delimited(2, b"x") + _TEXT)) == _EVENT
    halves = _content(length_delimited(2, b"m")) + length_delimited(
        _CONTENT, length_delimited(3, b"d")
    )
    assert decode_event(halves) == _EVENT
    members = [encode_value({"a": 1, "b": 1}), encode_value({"b": 2, "c": 3})]
    merged = {"a": 1, "b": 2, "c": 3}
    # in one value, in a value that comes twice, in an event that comes twice
    assert decode_value(b"".join(members), 9) == merged
    expected = {"type": "CUSTOM", "name": "n", "value": merged}
    twice = length_delimited(_CUSTOM, length_delimited(3, members[1]))
    assert decode_event(_custom(b"".join(members))) == expected
    assert decode_event(_custom(members[0]) + twice) == expected
    # metadata
    metadata = b"\x08\x01" + length_delimited(4, encode_struct({"a": 1}))
    metadata += length_delimited(4, encode_struct({"b": 2}))
    decoded = decode_event(length_delimited(_CONTENT, length_delimited(BASE, metadata)))
    assert decoded is not None
    assert decoded["metadata"] == {"a": 1, "b": 2}
    # lists, and the value of one member
    assert decode_value(encode_value([1]) + encode_value([2]), 9) == [1, 2]
    entry = length_delimited(2, encode_value({"a": 1})) + length_delimited(
        2, encode_value({"b": 2})
    )
    assert decode_value(length_delimited(5, length_delimited(1, entry)), 9) == {
        "": {"a": 1, "b": 2}
    }


def test_last_kind_of_a_value_counts() -> None:
    """Protobuf: setting one member of a oneof clears the others."""
    kinds: list[Any] = [None, 1, "text", True, False, {"a": 1}, [1]]
    for first in kinds:
        for last in kinds:
            if type(first) is not type(last):
                both = encode_value(first) + encode_value(last)
                assert decode_value(both, 9) == last
                again = encode_value(last) + both
                assert decode_value(again, 9) == last
    # A known number in another form is an unknown field.
    assert decode_value(encode_value(1) + b"\x2d" + bytes(4), 9) == 1


def test_member_without_value_is_none() -> None:
    """As the reference has it: a member of no kind is absent."""
    entry = length_delimited(1, b"k")
    members = length_delimited(1, entry) + length_delimited(1, entry + length_delimited(2, b""))
    assert decode_struct(members, 9) == {}


def test_repeated_member_keeps_its_place() -> None:
    twice = encode_struct({"a": 1, "b": 2}) + encode_struct({"a": 3})
    assert list(decode_struct(twice, 9).items()) == [("a", 3), ("b", 2)]


@pytest.mark.unmeasured
def test_long_chains_of_pieces_take_linear_time() -> None:
    pieces = encode_value({"a": 1}) * 20_000
    assert decode_value(pieces, 9) == {"a": 1}
    assert len(decode_value(encode_value([1]) * 20_000, 9)) == 20_000


# Outcomes, contents, operations, lists


def _decoded(message: Any) -> dict[str, Any]:
    decoded = decode_event(message.SerializeToString())
    assert decoded is not None
    return decoded


def _finished(**members: Any) -> dict[str, Any]:
    event = wire_pb2.Event()
    event.run_finished.base_event.type = wire_pb2.RUN_FINISHED
    for name, value in members.items():
        if isinstance(value, list):
            getattr(event.run_finished, name).extend(value)
        else:
            setattr(event.run_finished, name, value)
    return _decoded(event)


def test_outcome_of_a_run() -> None:
    """RUN-9 and PB-3: flattened on the wire; an unknown outcome reaches enforcement."""
    bare = {"type": "RUN_FINISHED", "threadId": "", "runId": ""}
    ask = wire_pb2.Interrupt(id="i", reason="why")
    asked = [{"id": "i", "reason": "why"}]
    assert _finished() == bare
    assert _finished(outcome="success") == {**bare, "outcome": {"type": "success"}}
    assert _finished(outcome="cancelled")["outcome"] == {"type": "cancelled"}
    assert _finished(outcome="interrupt")["outcome"] == {"type": "interrupt", "interrupts": []}
    assert _finished(outcome="interrupt", interrupts=[ask])["outcome"]["interrupts"] == asked
    assert _finished(outcome="success", pending_tool_call_ids=["c"])["outcome"] == {
        "type": "success",
        "pendingToolCallIds": ["c"],
    }
    assert _finished(outcome="paused", interrupts=[ask], pending_tool_call_ids=["c"])[
        "outcome"
    ] == {"type": "paused", "interrupts": asked, "pendingToolCallIds": ["c"]}
    # Without an outcome they belong to nothing, and enforcement says so.
    assert _finished(interrupts=[ask]) == {**bare, "interrupts": asked}


def test_outcome_of_a_subagent() -> None:
    """SUB-5 and PB-3."""
    event = wire_pb2.Event()
    finished = event.subagent_finished
    finished.base_event.type = wire_pb2.SUBAGENT_FINISHED
    finished.subagent_run_id = "s"
    bare = {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"}
    assert _decoded(event) == bare
    finished.interrupt_ids.append("i")
    assert _decoded(event) == {**bare, "interruptIds": ["i"]}
    for outcome in ("suspended", "success", "waiting"):
        finished.outcome = outcome
        assert _decoded(event)["outcome"] == {"type": outcome, "interruptIds": ["i"]}


def test_content_of_a_result() -> None:
    """TOOL-7: text or parts, in two fields."""
    event = wire_pb2.Event()
    result = event.tool_call_result
    result.base_event.type = wire_pb2.TOOL_CALL_RESULT
    assert _decoded(event)["content"] == []
    result.content_parts.add().text.text = "part"
    assert _decoded(event)["content"] == [{"type": "text", "text": "part"}]
    result.content = ""
    with pytest.raises(DecodeError, match="more than one content"):
        _decoded(event)
    del result.content_parts[:]
    assert _decoded(event)["content"] == ""


def _snapshot(**members: Any) -> tuple[Any, Any]:
    event = wire_pb2.Event()
    event.messages_snapshot.base_event.type = wire_pb2.MESSAGES_SNAPSHOT
    message = event.messages_snapshot.messages.add(id="m", **members)
    return event, message


def test_content_of_a_message() -> None:
    """PB-3: which content a role may have is for enforcement to judge; only one there is."""
    for role in ("user", "tool"):
        assert _decoded(_snapshot(role=role)[0])["messages"][0]["content"] == []
    for role in ("assistant", "developer", "system", "activity", "reasoning", "narrator", ""):
        assert _decoded(_snapshot(role=role)[0])["messages"] == [{"id": "m", "role": role}]
        event, message = _snapshot(role=role)
        message.content_parts.add().text.text = "part"
        assert _decoded(event)["messages"][0]["content"] == [{"type": "text", "text": "part"}]
        message.content = ""
        with pytest.raises(DecodeError, match="more than one content"):
            _decoded(event)
    event, message = _snapshot(role="user")
    message.activity_content.SetInParent()
    assert _decoded(event)["messages"][0]["content"] == {}
    message.content = "text"
    with pytest.raises(DecodeError, match="more than one content"):
        _decoded(event)


def _warned(*events: Any) -> tuple[list[Any], list[ProtocolWarning]]:
    """What a consumer makes of wire messages, and what it warns of."""
    warnings: list[ProtocolWarning] = []
    consumer = Consumer(content_type=CONTENT_TYPE, on_warning=warnings.append)
    body = encode_frame(_encode(STARTED))
    for event in events:
        message = event if isinstance(event, bytes) else event.SerializeToString()
        body += encode_frame(message)
    delivered = [msgspec.to_builtins(event) for event in consumer.receive(body)]
    return delivered[1:], warnings


def test_unknown_role_removes_the_message() -> None:
    """PROC-4, 5 and 10: with the path that it has over the other binding."""
    event, _ = _snapshot(role="narrator", content="x")
    event.messages_snapshot.messages.add(id="n", role="system", content="y")
    [delivered], [warning] = _warned(event)
    assert [message["id"] for message in delivered["messages"]] == ["n"]
    assert (warning.rule, warning.path) == ("PROC-2", "/messages/0")


def test_unknown_part_and_source() -> None:
    """PROC-4 and TOOL-7: the part goes, and the part whose required source goes."""
    event, message = _snapshot(role="user")
    message.content_parts.add().text.text = "kept"
    message.content_parts.add()
    message.content_parts.add().image.source.SetInParent()
    message.content_parts.add().MergeFromString(length_delimited(UNKNOWN, b""))
    source = message.content_parts.add().video.source
    source.MergeFromString(length_delimited(UNKNOWN, b""))
    [delivered], warnings = _warned(event)
    assert delivered["messages"][0]["content"] == [{"type": "text", "text": "kept"}]
    assert [warning.path for warning in warnings] == [
        "/messages/0/content/1",
        "/messages/0/content/2",
        "/messages/0/content/3",
        "/messages/0/content/4",
    ]
    assert {warning.rule for warning in warnings} == {"PROC-2"}


def test_part_without_source_is_malformed() -> None:
    """PROC-3."""
    event, message = _snapshot(role="user")
    message.content_parts.add().image.SetInParent()
    with pytest.raises(MalformedEvent) as caught:
        _warned(event)
    assert caught.value.path == "/messages/0/content/0/source"


@pytest.mark.parametrize("number", [6, 99, -1, 2**31 - 1])
def test_unknown_operation(number: int) -> None:
    """STATE-3: an operation with a number that has no name is dropped from the patch."""
    event = wire_pb2.Event()
    event.state_delta.base_event.type = wire_pb2.STATE_DELTA
    known = event.state_delta.delta.add(op=wire_pb2.ADD, path="/a")
    known.value.MergeFromString(encode_value(1))
    unknown = event.state_delta.delta.add(path="/b")
    unknown.MergeFromString(b"\x08" + varint(number % 2**64))
    [delivered], [warning] = _warned(event)
    assert delivered["delta"] == [{"op": "add", "path": "/a", "value": 1}]
    assert (warning.rule, warning.path) == ("PROC-2", "/delta/1")


def test_operation_without_value_or_source_is_malformed() -> None:
    """STATE-3: what the wire can leave out is missed."""
    for op, path in ((wire_pb2.TEST, "/delta/0/value"), (wire_pb2.MOVE, "/delta/0/from")):
        event = wire_pb2.Event()
        event.state_delta.base_event.type = wire_pb2.STATE_DELTA
        event.state_delta.delta.add(op=op, path="/a")
        with pytest.raises(MalformedEvent) as caught:
            _warned(event)
        assert caught.value.path == path


def test_open_members_of_operations_stay_behind() -> None:
    """PB-3: the wire has no field for them; the operation arrives without."""
    delta = [{"op": "add", "path": "/a", "value": 1, "note": "x"}]
    assert decode_event(_encode({"type": "STATE_DELTA", "delta": delta})) == {
        "type": "STATE_DELTA",
        "delta": [{"op": "add", "path": "/a", "value": 1}],
    }


def test_lists_that_are_never_absent() -> None:
    for kind, member in (
        ("MESSAGES_SNAPSHOT", "messages"),
        ("STATE_DELTA", "delta"),
    ):
        assert decode_event(_encode({"type": kind, member: []})) == {"type": kind, member: []}
    first = _decoded(_snapshot(role="system", content="")[0])
    first["messages"].append("changed")
    assert decode_event(_encode({"type": "MESSAGES_SNAPSHOT", "messages": []})) == {
        "type": "MESSAGES_SNAPSHOT",
        "messages": [],
    }


def test_echoed_input_with_empty_lists() -> None:
    """An empty list of tools can't be told from none, so there is none."""
    lists: dict[str, Any] = {"tools": [], "context": [], "resume": []}
    echoed = {"threadId": "t", "runId": "r", "messages": []}
    event = {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "input": {**echoed, **lists}}
    assert decode_event(_encode(event)) == {**event, "input": echoed}


# Numbers, text, nesting


@pytest.mark.parametrize("value", [2**53 - 1, -(2**53) + 1, 0, 1, -1, 10**15])
def test_whole_numbers_come_back_as_such(value: int) -> None:
    decoded = decode_value(encode_value(value), 9)
    assert (decoded, type(decoded)) == (value, int)
    decoded = decode_value(encode_value(float(value)), 9)
    assert (decoded, type(decoded)) == (value, int)


def test_minus_zero_is_zero() -> None:
    assert math.copysign(1, decode_value(encode_value(-0.0), 9)) == 1


def test_numbers_beyond_what_doubles_keep_exact() -> None:
    assert decode_value(encode_value(2**53 + 1), 9) == 2**53
    assert type(decode_value(encode_value(2**53), 9)) is float
    assert decode_value(encode_value(1e300), 9) == 1e300
    assert decode_value(encode_value(10**300), 9) == 1e300


@pytest.mark.parametrize("value", [10**400, -(10**400), [2**1024], {"a": 10**5000}])
def test_number_that_no_double_holds(value: Any) -> None:
    with pytest.raises(ValueError, match="beyond the range of a double"):
        encode_event(CustomEvent(name="n", value=value))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_number_that_json_has_not(value: float) -> None:
    """PB-2: neither written nor read."""
    with pytest.raises(ValueError, match="no JSON number"):
        encode_event(CustomEvent(name="n", value=[value]))
    number = b"\x11" + struct.pack("<d", value)
    for wire in (number, length_delimited(6, length_delimited(1, number))):
        with pytest.raises(DecodeError, match="no JSON number"):
            decode_event(_custom(wire))


@pytest.mark.parametrize(("timestamp", "fatal"), [(2**53 - 1, False), (2**53, True)])
def test_timestamp_beyond_its_bounds_is_malformed(timestamp: int, fatal: bool) -> None:
    """EVT-1 and PROC-3: the wire holds larger numbers than the schema."""
    for sign in (1, -1):
        event = wire_pb2.Event()
        event.text_message_start.base_event.timestamp = sign * timestamp
        if fatal:
            with pytest.raises(MalformedEvent) as caught:
                _warned(event)
            assert caught.value.path == "/timestamp"
        else:
            [delivered], _ = _warned(event)
            assert delivered["timestamp"] == sign * timestamp


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("\ud83e", "\ufffd"),
        ("x\udd85", "x\ufffd"),
        ("a\ud83eb", "a\ufffdb"),
        ("\udd85\ud83e", "\ufffd\ufffd"),
        ("\ud83e\udd85", "🦅"),
        ("\ud83e\ud83e\udd85", "\ufffd🦅"),
    ],
)
def test_half_a_character(text: str, whole: str) -> None:
    """UTF-8 has no form for it; two halves side by side are the character."""
    event = CustomEvent(name=text, value={text: [text]})
    assert decode_event(encode_event(event)[4:]) == {
        "type": "CUSTOM",
        "name": whole,
        "value": {whole: [whole]},
    }
    ids = {"type": "RUN_FINISHED", "threadId": text, "runId": text}
    outcome = {"type": "success", "pendingToolCallIds": [text]}
    decoded = decode_event(encode_event(_typed({**ids, "outcome": outcome}))[4:])
    assert decoded is not None
    assert decoded["outcome"]["pendingToolCallIds"] == [whole]


def _nested(levels: int, kind: str) -> bytes:
    """A Value of lists, or of objects, in one another, made from the inside out."""
    heads: list[bytes] = [b"\x08\0"]
    size = 2
    for _ in range(levels):
        tags = b"\x0a\x32" if kind == "list" else b"\x12\x0a\x2a"
        for tag in tags:
            head = bytes((tag,)) + varint(size)
            heads.append(head)
            size += len(head)
    return b"".join(reversed(heads))


def _value(levels: int, kind: str) -> Any:
    value: Any = None
    for _ in range(levels):
        value = [value] if kind == "list" else {"": value}
    return value


@pytest.mark.unmeasured
@pytest.mark.parametrize("kind", ["list", "object"])
def test_nesting(kind: str) -> None:
    """200 levels are fine, and 256 with the event's own; more are refused, however many."""
    event = CustomEvent(name="n", value=_value(200, kind))
    message = encode_event(event)[4:]
    assert message == _custom(_nested(200, kind))
    assert decode_event(message) == {"type": "CUSTOM", "name": "n", "value": event.value}
    assert decode_event(_custom(_nested(255, kind))) is not None
    for levels in (256, 1000, 100_000):
        with pytest.raises(DecodeError, match="nested too deeply"):
            decode_event(_custom(_nested(levels, kind)))


@pytest.mark.unmeasured
@pytest.mark.parametrize("kind", ["list", "object"])
def test_nesting_beyond_the_interpreters_limit(kind: str) -> None:
    """A limit that is set too high still ends in an error of ours."""
    for levels in (1_000, 100_000):
        with pytest.raises(DecodeError, match="nests too deeply"):
            decode_event(_custom(_nested(levels, kind)), 10**9)


def _places(value: Any) -> list[Any]:
    """Events that hold a value in various places."""
    ids = {"threadId": "t", "runId": "r"}
    part = {"type": "text", "text": "x", "metadata": value}
    user = {"id": "m", "role": "user", "content": [part]}
    activity = {"id": "a", "role": "activity", "activityType": "x", "content": {"a": value}}
    return [
        {"type": "STATE_SNAPSHOT", "snapshot": value},
        {"type": "RAW", "event": value, "metadata": {"a": value}},
        {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "", "value": value}]},
        {"type": "MESSAGES_SNAPSHOT", "messages": [user]},
        {"type": "MESSAGES_SNAPSHOT", "messages": [activity]},
        {"type": "RUN_STARTED", **ids, "input": {**ids, "messages": [user], "state": value}},
    ]


@pytest.mark.parametrize("levels", range(6))
def test_nesting_counts_the_same_over_both_bindings(levels: int) -> None:
    """PROC-10: the place of a value in its event counts."""
    for event in _places(_value(levels, "list")):
        for limit in range(1, 14):
            text = Consumer(max_depth=limit)
            binary = Consumer(content_type=CONTENT_TYPE, max_depth=limit)
            outcomes = []
            for consumer, body in (
                (text, frame(event)),
                (binary, encode_frame(put_on_wire(event).message)),
            ):
                try:
                    list(consumer.receive(body))
                except DecodeError:
                    outcomes.append("too deep")
                except ProtocolViolation:
                    outcomes.append("no start")
                else:
                    outcomes.append("fine")
            assert outcomes[0] == outcomes[1], (event, limit)


# Anything at all

_MESSAGES: Final = [bytes.fromhex(vector["hex"]) for vector in VECTORS if len(vector["hex"]) < 600]


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    """A message with bytes changed, lost, or taken from another one."""
    message = bytearray(draw(st.sampled_from(_MESSAGES)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(message)))
        change = draw(st.sampled_from(["set", "drop", "insert", "splice"]))
        if change == "set" and place < len(message):
            message[place] = draw(st.integers(0, 255))
        elif change == "drop":
            del message[place : place + draw(st.integers(1, 4))]
        elif change == "insert":
            message[place:place] = draw(st.binary(min_size=1, max_size=4))
        else:
            other = draw(st.sampled_from(_MESSAGES))
            message[place:] = other[draw(st.integers(0, len(other))) :]
    return bytes(message)


@given(st.one_of(_mutated(), st.binary(max_size=60)))
def test_any_bytes(message: bytes) -> None:
    """PB-2: an event, or a kind that is unknown, or an error of ours."""
    try:
        decoded = decode_event(message)
    except DecodeError:
        return
    if decoded is not None:
        assert decoded["type"] in EVENTS
        json.dumps(decoded, allow_nan=False, ensure_ascii=False).encode()


@given(st.lists(st.one_of(_mutated(), st.sampled_from(_MESSAGES)), max_size=4))
def test_any_messages_in_a_stream(messages: list[bytes]) -> None:
    """PB-3: whatever comes is judged like plain JSON that says the same."""
    events = []
    for message in messages:
        try:
            event = decode_event(message)
        except DecodeError:
            return
        if event is None:
            return
        events.append(event)
    body = b"".join(map(encode_frame, [_encode(STARTED), *messages]))
    text = _replay({}, [frame(STARTED, *events)], "text/event-stream")
    binary = _replay({}, [body], CONTENT_TYPE)
    assert binary.verdict(nameless=False) == text.verdict(nameless=False)


# The consumer


def _consumer(**options: Any) -> Consumer:
    return Consumer(content_type=CONTENT_TYPE, **options)


def _body(*events: Any) -> bytes:
    return b"".join(encode_frame(_encode(event)) for event in events)


@pytest.mark.parametrize(
    "content_type", [CONTENT_TYPE, CONTENT_TYPE.upper(), f" {CONTENT_TYPE} ; charset=utf-8"]
)
def test_content_type(content_type: str) -> None:
    """PB-1: the parser is chosen by the response's type."""
    consumer = Consumer(content_type=content_type)
    events = list(consumer.receive(_body(STARTED, FINISHED)))
    assert [event.type for event in events] == ["RUN_STARTED", "RUN_FINISHED"]
    assert list(consumer.end()) == []


@pytest.mark.parametrize("kept", range(1, 12))
def test_body_that_ends_in_a_frame_is_truncated(kept: int) -> None:
    """PB-2 and RUN-11: even when what came before it was whole."""
    for before in ([STARTED], [STARTED, FINISHED]):
        consumer = _consumer()
        events = list(consumer.receive(_body(*before) + _body(FINISHED)[:kept]))
        assert len(events) == len(before)
        with pytest.raises(TruncatedRun, match="broke off in the middle of an event"):
            list(consumer.end())


def test_body_that_ends_too_early_is_truncated() -> None:
    """RUN-11."""
    consumer = _consumer()
    with pytest.raises(TruncatedRun, match="before any event"):
        list(consumer.end())
    consumer = _consumer()
    list(consumer.receive(_body(STARTED)))
    with pytest.raises(TruncatedRun, match="had not ended"):
        list(consumer.end())


@pytest.mark.parametrize("bad", [b"", b"\xff", b"data: {}"])
def test_frame_that_does_not_decode_is_fatal(bad: bytes) -> None:
    """PB-2: what came before it was delivered and applied."""
    consumer = _consumer()
    snapshot = {"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}}
    events: list[str] = []
    reading = consumer.receive(_body(STARTED, snapshot) + encode_frame(bad))
    with pytest.raises(DecodeError) as caught:
        events.extend(event.type for event in reading)
    assert (caught.value.rule, caught.value.index) == ("PB-2", 2)
    assert events == ["RUN_STARTED", "STATE_SNAPSHOT"]
    assert consumer.conversation.state == {"a": 1}
    with pytest.raises(DecodeError):
        list(consumer.receive(_body(FINISHED)))


def test_unknown_kind_warns() -> None:
    """PROC-1 and PB-2: dropped with a warning, and the run goes on; it opens and closes nothing."""
    unknown = length_delimited(UNKNOWN, b"")
    chunk = {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "a"}
    warnings: list[ProtocolWarning] = []
    consumer = _consumer(on_warning=warnings.append)
    body = encode_frame(unknown) + _body(STARTED, chunk) + encode_frame(unknown)
    events = [*consumer.receive(body + _body({**chunk, "delta": "b"}, FINISHED)), *consumer.end()]
    assert [event.type for event in events] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert [(each.stage, each.rule, each.index) for each in warnings] == [
        ("transport", "PB-2", 0),
        ("transport", "PB-2", 3),
    ]
    assert "no name in this version" in str(warnings[0])


def test_too_large_frame() -> None:
    """The limit holds for each frame, before anything of it is kept."""
    consumer = _consumer(max_event_bytes=100)
    with pytest.raises(DecodeError, match="an event of 4294967295 bytes is larger than 100"):
        list(consumer.receive(_body(STARTED) + b"\xff\xff\xff\xff"))
    assert consumer.conversation.run_id == "r"


def test_middleware_sees_everything() -> None:
    """PROC-7: a typed event where it is valid, and plain JSON where it is not."""
    seen: list[Any] = []

    def watch(event: Any) -> Any:
        seen.append(event)
        return event

    consumer = _consumer(middleware=[watch])
    odd = {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "narrator"}
    body = _body(STARTED) + encode_frame(put_on_wire(odd).message)
    assert len(list(consumer.receive(body))) == 2
    assert seen == [_typed(STARTED), odd]


# Without the runtime

_WITHOUT: Final = r"""
import sys
sys.modules["google.protobuf"] = None
import asyncio
import httpx
import aguia
import aguia.cli
from aguia import Consumer, HttpAgent
from aguia.codec import frames, negotiation
from aguia.server import AgentApp, Run

assert "aguia.codec.wire_pb2" not in sys.modules

async def agent(run: Run) -> None:
    async with run.text() as text:
        await text.write("still here")

async def talk():
    client = httpx.AsyncClient(transport=httpx.ASGITransport(AgentApp(agent)))
    async with client, HttpAgent("http://agent.example/", client=client) as speaker:
        async for _ in speaker.run("anyone?"):
            pass
        assert speaker.messages[-1].content == "still here"

asyncio.run(talk())
assert list(Consumer().receive(b'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n'))
try:
    Consumer(content_type=frames.CONTENT_TYPE)
except ImportError as error:
    print(error)
"""


def test_without_the_runtime() -> None:
    """Only the binary binding needs the extra, and it says what to install."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'aguia[protobuf]'" in done.stdout


_OLD: Final = """
from google.protobuf import runtime_version
runtime_version.MAJOR, runtime_version.MINOR = 5, 27
import aguia.server
from aguia import Consumer
from aguia.codec import frames
try:
    Consumer(content_type=frames.CONTENT_TYPE)
except ImportError as error:
    print(error)
"""


def test_a_runtime_that_is_too_old_is_as_good_as_none() -> None:
    """A server starts beside it, and offers server-sent events alone."""
    done = subprocess.run(
        [sys.executable, "-c", _OLD], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "5.28.1 or newer: pip install 'aguia[protobuf]'" in done.stdout
