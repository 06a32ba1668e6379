"""Server-sent events: the same frames however the bytes are framed and split."""

import json
import time
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguia import Consumer, CustomEvent, DecodeError
from aguia.codec.sse import MAX_FRAME, SseDecoder, encode_comment, encode_event
from support_events import STARTED, event, frame


def read(body: bytes, cuts: tuple[int, ...] = ()) -> list[bytes]:
    """The frames of a body that arrives cut at the given places, and what it broke off with."""
    decoder = SseDecoder()
    frames = []
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for start, stop in pairwise(edges):
        frames += decoder.feed(body[start:stop])
        decoder.check()
    rest = decoder.end()
    return frames if rest is None else [*frames, b"broken off: " + rest]


def feed_all(decoder: SseDecoder, pieces: list[bytes]) -> None:
    """Feed and check piece by piece."""
    for piece in pieces:
        decoder.feed(piece)
        decoder.check()


def receive_all(consumer: Consumer, pieces: list[bytes]) -> int:
    """How many events come of the pieces."""
    return sum(len(list(consumer.receive(piece))) for piece in pieces)


BYTES: Final = st.one_of(
    st.text(st.sampled_from("ab:{ \u2028\u2029\x85\x0b\x0c\x00\ufeff🦅"), max_size=6).map(
        lambda text: text.encode()
    ),
    st.binary(max_size=6).map(lambda data: data.replace(b"\r", b"").replace(b"\n", b"")),
    st.sampled_from([b"", b" ", b"data: x", b": x", b'{"type":"RAW"}']),
)
OTHER_LINES: Final = st.one_of(
    BYTES.map(lambda data: b":" + data),
    BYTES.map(lambda data: b"event: " + data),
    BYTES.map(lambda data: b"id:" + data),
    st.sampled_from(
        [b"retry: 10", b"id", b"event", b"datax: y", b"dat: y", b" data: y", b"data : y"]
    ),
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A body framed in every way that the grammar admits, and the frames that it holds."""
    lines: list[bytes] = []
    frames: list[bytes] = []
    for data in draw(st.lists(st.lists(BYTES, max_size=3), max_size=5)):
        for part in data:
            lines += draw(st.lists(OTHER_LINES, max_size=2))
            spellings = [b"data: " + part]
            if not part.startswith(b" "):
                spellings.append(b"data:" + part)
            if not part:
                spellings.append(b"data")
            lines.append(draw(st.sampled_from(spellings)))
        lines += draw(st.lists(OTHER_LINES, max_size=2))
        lines += [b""] * draw(st.integers(1, 3))
        if b"\n".join(data):
            frames.append(b"\n".join(data))
    body = b"\xef\xbb\xbf" if draw(st.booleans()) else b""
    one_end = draw(st.sampled_from([b"\n", b"\r", b"\r\n", None]))
    before = b""
    for line in lines:
        ends = [b"\r", b"\r\n", b"\n"] if one_end is None else [one_end]
        if not line and before == b"\r" and b"\n" in ends:
            ends.remove(b"\n")  # the two would be one line end
        before = draw(st.sampled_from(ends))
        body += line + before
    return body, frames


@pytest.mark.unmeasured
@settings(max_examples=200, deadline=None)
@given(bodies(), st.lists(st.integers(0, 10_000), max_size=6))
def test_any_framing_split_anyhow_gives_the_same_frames(
    made: tuple[bytes, list[bytes]], cuts: list[int]
) -> None:
    """HTTP-3."""
    body, frames = made
    assert read(body, tuple(cuts)) == frames
    assert read(body, tuple(range(len(body)))) == frames


def test_only_line_ends_end_lines() -> None:
    """HTTP-3."""
    for odd in ("\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e", "\x00"):
        data = f"a{odd}b{odd}{odd}c".encode()
        assert read(b"data: " + data + b"\n\n") == [data]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_join_and_one_space_goes(end: bytes) -> None:
    """HTTP-3."""
    lines = (b"data: a", b"data:b", b"data:  c", b"data", b"data: ", b": x", b"id: 1", b"data: d")
    body = end.join([*lines, b"", b"data: e", b"", b""])
    assert read(body) == [b"a\nb\n c\n\n\nd", b"e"]
    for cut in range(len(body)):
        assert read(body, (cut,)) == [b"a\nb\n c\n\n\nd", b"e"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"data:\n\n", b"data: \n\n", b"data\n\n", b"data: \n\ndata: \n\n", b"\n\n\n\n", b"\r\r"),
        *(b": a\n\n", b"id: 1\n\n", b"event: x\nretry: 5\n\n", b"\xef\xbb\xbf\n\n"),
        *(b"data: \r\n\r\n", b"x\n\n", b":\n:\n\n"),
    ],
)
def test_events_without_data_are_no_frames(body: bytes) -> None:
    """HTTP-3."""
    assert read(body) == []
    assert read(body, tuple(range(len(body)))) == []
    assert read(body + b"data: 1\n\n") == [b"1"]
    assert read(b"data: 1\n\n" + body + b"data: 2\n\n") == [b"1", b"2"]


def test_a_byte_order_mark_counts_only_at_the_beginning() -> None:
    mark = b"\xef\xbb\xbf"
    assert read(mark + b"data: 1\n\n") == [b"1"]
    assert read(mark + mark + b"data: 1\n\ndata: 2\n\n") == [b"2"]
    assert read(b"data: 1\n\n" + mark + b"data: 2\n\n") == [b"1"]
    assert read(b"data: " + mark + b"\n\n") == [mark]
    assert read(mark[:2]) == []
    assert read(mark[:2] + b"data: 1\n\n") == []


def test_a_body_that_breaks_off() -> None:
    assert read(b"data: 1\n\ndata: 2") == [b"1", b"broken off: 2"]
    assert read(b"data: 1\n\ndata: 2\n") == [b"1", b"broken off: 2"]
    assert read(b"data: 1\n\ndata: 2\r") == [b"1", b"broken off: 2"]
    assert read(b"data: 1\n\n: 2\nid: 3\n") == [b"1"]
    assert read(b"") == []
    decoder = SseDecoder()
    decoder.feed(b"data: 1")
    assert decoder.end() == b"1"
    assert decoder.end() is None


@pytest.mark.unmeasured
def test_megabyte_events_in_small_pieces_are_linear_work() -> None:
    payload = b"x" * 4_000_000
    body = b"data: " + payload + b"\n\n"
    for size in (1, 7, 64):
        part = body if size == 64 else body[: size * 300_000]
        decoder = SseDecoder()
        began = time.process_time()
        frames = []
        for start in range(0, len(part), size):
            frames += decoder.feed(part[start : start + size])
        # Work that grows with the square would take minutes.
        assert time.process_time() - began < 8
        assert frames == ([payload] if size == 64 else [])


def test_many_small_events_in_one_piece_are_linear_work() -> None:
    body = b"data: 1\n\n" * 200_000
    began = time.process_time()
    assert len(read(body)) == 200_000
    assert len(read(body, tuple(range(0, len(body), 1000)))) == 200_000
    assert time.process_time() - began < 8


@pytest.mark.unmeasured
@pytest.mark.parametrize(
    "piece", [b": keep-alive\n", b": keep-alive\n\n", b":", b":x", b"\n", b"\r"]
)
def test_endless_comments_do_not_grow_the_buffer(piece: bytes) -> None:
    """HTTP-3: comments at any cadence, also one that never ends."""
    decoder = SseDecoder(max_frame=100)
    began = time.process_time()
    for _ in range(2000):
        assert decoder.feed(piece * 100) == []
        decoder.check()
    assert time.process_time() - began < 8
    assert decoder.feed(b"\n\ndata: 1\n\n") == [b"1"]


def test_an_unfinished_comment_stays_a_comment() -> None:
    decoder = SseDecoder()
    for piece in (b": a", b" data: 1", b"\r", b"\ndata: ", b"2\n", b":data: 3", b"\n"):
        assert decoder.feed(piece) == []
    assert decoder.feed(b"\n") == [b"2"]


def test_an_event_over_the_limit_is_refused_before_it_is_whole() -> None:
    decoder = SseDecoder(max_frame=1000)
    decoder.feed(b"data: ")
    with pytest.raises(DecodeError, match="larger than 1000 bytes") as caught:
        feed_all(decoder, [b"x" * 100] * 33)
    assert caught.value.rule is None


@pytest.mark.parametrize("size", [10, 50, 100, 250, 300, 5000])
def test_the_limit_holds_however_the_event_comes(size: int) -> None:
    small = frame(STARTED)
    large = frame(event("CUSTOM", name="n", value="x" * size))
    limit = max(len(small), len(large) - 10)
    for cut in (0, 1, len(large) // 2, len(large)):
        consumer = Consumer(max_event_bytes=limit)
        assert len(list(consumer.receive(small))) == 1
        if len(large) - len(b"data: \n\n") <= limit:
            continue
        with pytest.raises(DecodeError, match=f"larger than {limit} bytes"):
            receive_all(consumer, [large[:cut], large[cut:]])
        with pytest.raises(DecodeError, match=f"larger than {limit} bytes"):
            list(consumer.receive(small))


def test_the_limit_is_exact_however_the_event_comes() -> None:
    data = json.dumps(STARTED).encode()
    body = b": comment\nid: 1\ndata: " + data + b"\n\n"
    for limit, passes in ((len(data), True), (len(data) - 1, False)):
        for size in (1, 5, len(body)):
            consumer = Consumer(max_event_bytes=limit)
            pieces = [body[start : start + size] for start in range(0, len(body), size)]
            if passes:
                assert receive_all(consumer, pieces) == 1
            else:
                with pytest.raises(DecodeError, match="larger than"):
                    receive_all(consumer, pieces)
    assert MAX_FRAME == 64 * 1024 * 1024


@pytest.mark.parametrize("line", [b": comment\n", b"id: 1\n", b"data\n", b"data: x", b"event: x"])
def test_an_event_that_never_ends_is_refused(line: bytes) -> None:
    decoder = SseDecoder(max_frame=1000)
    decoder.feed(b"data: {\n")
    with pytest.raises(DecodeError, match="larger than 1000 bytes"):
        feed_all(decoder, [line * 10] * 100)


def test_what_is_written_is_read() -> None:
    """HTTP-2: LF line ends, one event a frame."""
    made = CustomEvent(name="a\nb\r\u2028", value="\n\n")
    data = encode_event(made)
    assert data.startswith(b'data: {"type":"CUSTOM"')
    assert data.endswith(b"}\n\n")
    assert b"\r" not in data
    assert data.count(b"\n") == 2
    consumer = Consumer()
    list(consumer.receive(frame(STARTED)))
    assert list(consumer.receive(data)) == [made]


def test_comments_are_written_on_one_line() -> None:
    assert encode_comment() == b": \n\n"
    assert encode_comment("a\nb\rc\r\nd é") == ": a b c  d é\n\n".encode()
    assert read(encode_comment("data: x\ndata: y") + b"data: 1\n\n") == [b"1"]
