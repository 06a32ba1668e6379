"""The framing of the binary binding: `aguia.codec.frames` (PB-2)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aguia import DecodeError
from aguia.codec.frames import CONTENT_TYPE, FrameDecoder, encode_frame

MESSAGES = st.lists(st.binary(max_size=40), max_size=6)


def _split(body: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    return [body[start:end] for start, end in pairwise(places)]


def test_media_type() -> None:
    """PB-1: the response's type is exactly this."""
    assert CONTENT_TYPE == "application/vnd.ag-ui.event+proto"


@pytest.mark.parametrize(
    ("message", "frame"),
    [
        (b"", b"\0\0\0\0"),
        (b"a", b"\0\0\0\1a"),
        (b"x" * 258, b"\0\0\1\2" + b"x" * 258),
    ],
)
def test_length_is_four_bytes_with_the_high_one_first(message: bytes, frame: bytes) -> None:
    """PB-2: an unsigned 32-bit big-endian length, and that many bytes."""
    assert encode_frame(message) == frame
    assert FrameDecoder().feed(frame) == [message]


@given(MESSAGES, st.lists(st.integers(0, 400), max_size=12))
def test_any_split(messages: list[bytes], cuts: list[int]) -> None:
    """PB-2: any split and any merge of frames gives the same messages."""
    decoder = FrameDecoder()
    found = []
    for piece in _split(b"".join(map(encode_frame, messages)), cuts):
        found += decoder.feed(piece)
        decoder.check()
    assert found == messages
    assert not decoder.broken_off
    assert decoder.end() is None


@given(MESSAGES, st.binary(min_size=1, max_size=20), st.integers(1, 23))
def test_broken_off(messages: list[bytes], last: bytes, kept: int) -> None:
    """PB-2: a body that ends anywhere in a frame, its header too, is broken off."""
    frame = encode_frame(last)
    decoder = FrameDecoder()
    whole = b"".join(map(encode_frame, messages))
    assert decoder.feed(whole + frame[: min(kept, len(frame) - 1)]) == messages
    assert decoder.broken_off
    assert decoder.end() is None


def test_messages_come_as_soon_as_they_are_whole() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(encode_frame(b"one") + b"\0\0") == [b"one"]
    assert decoder.broken_off
    assert decoder.feed(b"\0\3tw") == []
    assert decoder.feed(b"o" + encode_frame(b"")) == [b"two", b""]
    assert not decoder.broken_off
    assert decoder.feed(b"") == []


def test_messages_are_of_their_own() -> None:
    """A buffer that is used again changes nothing that was given."""
    data = bytearray(encode_frame(b"one"))
    [message] = FrameDecoder().feed(bytes(data))
    data[4:] = b"two"
    assert type(message) is bytes
    assert message == b"one"


@pytest.mark.parametrize("length", [11, 2**31, 2**32 - 1])
def test_too_large_is_refused_by_its_header(length: int) -> None:
    """PB-2: nothing of the frame is kept, and what came before it still counts."""
    decoder = FrameDecoder(max_frame=10)
    header = length.to_bytes(4, "big")
    assert decoder.feed(encode_frame(b"0123456789") + header[:3]) == [b"0123456789"]
    decoder.check()
    assert decoder.feed(header[3:]) == []
    for _ in range(2):
        with pytest.raises(DecodeError, match=f"an event of {length} bytes is larger than 10"):
            decoder.check()
    assert decoder.feed(b"x" * 100) == []
    assert not decoder.broken_off


def test_default_limit() -> None:
    decoder = FrameDecoder()
    decoder.feed((64 * 1024 * 1024).to_bytes(4, "big"))
    decoder.check()
    decoder = FrameDecoder()
    decoder.feed((64 * 1024 * 1024 + 1).to_bytes(4, "big"))
    with pytest.raises(DecodeError):
        decoder.check()


def test_large_message_in_small_pieces() -> None:
    message = bytes(range(256)) * 4096
    frame = encode_frame(message)
    decoder = FrameDecoder()
    found: list[bytes] = []
    for start in range(0, len(frame), 997):
        found += decoder.feed(frame[start : start + 997])
    assert found == [message]
