"""The bounded stream between a run and its reader."""

import asyncio

import pytest

from aguia.protocol.events import CustomEvent, Event
from aguia.server.stream import EventStream

pytestmark = pytest.mark.anyio


def events(*names: str) -> list[Event]:
    return [CustomEvent(name=name, value=None) for name in names]


async def test_what_is_waiting_is_taken_at_once_and_in_order() -> None:
    stream = EventStream()
    stream.push(events("a"))
    stream.push([])
    stream.push(events("b", "c"))
    assert await stream.take() == events("a", "b", "c")
    assert stream.count == 3
    assert stream.last == events("c")[0]


async def test_a_reader_waits_for_the_next_events() -> None:
    stream = EventStream()
    reading = asyncio.create_task(stream.take())
    await asyncio.sleep(0)
    assert not reading.done()
    stream.push(events("a"))
    assert await reading == events("a")


async def test_silence_is_an_empty_answer() -> None:
    stream = EventStream()
    assert await stream.take(0.01) == []
    stream.push(events("a"))
    assert await stream.take(0.01) == events("a")


async def test_silence_counts_from_the_last_event() -> None:
    stream = EventStream()
    for name in "abcdef":
        asyncio.get_running_loop().call_later(0.03, stream.push, events(name))
        assert await stream.take(0.1) == events(name)
    began = asyncio.get_running_loop().time()
    assert await stream.take(0.05) == []
    assert asyncio.get_running_loop().time() - began > 0.04


async def test_who_waits_without_a_limit_hears_of_no_silence() -> None:
    stream = EventStream()
    asyncio.get_running_loop().call_later(0.01, stream.push, events("a"))
    assert await stream.take(0.04) == events("a")
    asyncio.get_running_loop().call_later(0.06, stream.push, events("b"))
    assert await stream.take() == events("b")


async def test_the_rest_is_read_before_the_end() -> None:
    stream = EventStream()
    stream.push(events("a"))
    stream.close()
    assert await stream.take() == events("a")
    assert await stream.take() is None
    assert await stream.take(0.01) is None


async def test_a_waiting_reader_learns_of_the_end() -> None:
    stream = EventStream()
    reading = asyncio.create_task(stream.take())
    await asyncio.sleep(0)
    stream.close()
    assert await reading is None


async def test_writers_that_are_ahead_wait_for_the_reader() -> None:
    stream = EventStream(capacity=2)
    stream.push(events("a", "b"))
    await stream.drained()
    written: list[str] = []

    async def write(name: str) -> None:
        stream.push(events(name))
        await stream.drained()
        written.append(name)

    writers = [asyncio.create_task(write(name)) for name in "cde"]
    await asyncio.sleep(0.01)
    assert written == []
    taken = await stream.take()
    assert taken is not None
    assert len(taken) == 5
    await asyncio.gather(*writers)
    assert written == ["c", "d", "e"]


async def test_an_abandoned_stream_holds_nobody_up_and_keeps_nothing() -> None:
    stream = EventStream(capacity=0)
    stream.push(events("a"))
    writer = asyncio.create_task(stream.drained())
    reader = asyncio.create_task(stream.take())
    await asyncio.sleep(0)
    assert await reader == events("a")
    stream.push(events("b"))
    waiting = asyncio.create_task(stream.drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    stream.abandon()
    await asyncio.gather(writer, waiting)
    stream.push(events("c"))
    await stream.drained()
    assert stream.abandoned
    assert stream.count == 3
    assert await stream.take() is None


async def test_a_reader_that_is_cancelled_loses_nothing() -> None:
    stream = EventStream()
    reading = asyncio.create_task(stream.take())
    await asyncio.sleep(0)
    reading.cancel()
    stream.push(events("a"))
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await stream.take() == events("a")
