"""The pictures of the processing model: they are current, and the stages run in this order."""

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import processing_pictures
from aguia import Consumer, RunAgentInput
from aguia.codec.sse import SseDecoder
from aguia.conversation import Conversation
from aguia.pipeline.chunks import ChunkExpander
from aguia.pipeline.compatibility import Compatibility
from aguia.pipeline.text import TextJoiner
from aguia.pipeline.verification import Verifier
from aguia.server import InProcess, Run
from aguia.server.stream import EventStream
from aguia.server.writers import SseWriter
from processing_pictures import READING, WRITING, pictures
from support import REPOSITORY

ALL_READING = [stage.name for stage in READING]
LONG_WAY = ["compatibility", "middleware", "enforcement"]


def traced(
    monkeypatch: pytest.MonkeyPatch, places: dict[str, tuple[object, str]]
) -> Callable[[], list[str]]:
    """Take note of which stages are called; what is returned gives them, repeats left out."""
    called: list[str] = []
    for name, (owner, attribute) in places.items():
        original: Any = getattr(owner, attribute)

        def call(*args: Any, name: str = name, original: Any = original, **kwargs: Any) -> Any:
            called.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, attribute, call)

    def take() -> list[str]:
        taken = list(dict.fromkeys(called))
        called.clear()
        return taken

    return take


def test_the_pictures_are_current() -> None:
    for name, svg in pictures().items():
        written = (REPOSITORY / "docs" / "pictures" / name).read_text(encoding="utf-8")
        assert written == svg, f"{name} is not current: run scripts/processing_pictures.py"
    assert processing_pictures.main(["--check"]) == 0


@pytest.mark.parametrize("stage", [*READING, *WRITING], ids=lambda stage: stage.name)
def test_each_stage_is_drawn_and_its_module_exists(stage: processing_pictures.Stage) -> None:
    importlib.import_module(stage.module)
    svg = pictures()["processing.svg" if stage in READING else "processing-writing.svg"]
    assert f">{stage.name}</text>" in svg
    assert f">{stage.note}</text>" in svg


READING_PLACES: dict[str, tuple[object, str]] = {
    "framing": (SseDecoder, "feed"),
    "strict decode": (importlib.import_module("aguia.consumer"), "decode_event"),
    "compatibility": (Compatibility, "translate"),
    "middleware": (importlib.import_module("aguia.consumer"), "run_middleware"),
    "enforcement": (importlib.import_module("aguia.consumer"), "enforce_event"),
    "chunk expansion": (ChunkExpander, "expand"),
    "joining of text": (TextJoiner, "join"),
    "verification": (Verifier, "check"),
    "conversation": (Conversation, "apply"),
}


def test_reading_goes_through_the_stages_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROC-7."""
    assert list(READING_PLACES) == ALL_READING
    take = traced(monkeypatch, READING_PLACES)
    consumer = Consumer()

    # What the schema describes goes straight on.
    list(consumer.receive(b'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n'))
    short = [name for name in ALL_READING if name not in [*LONG_WAY, "joining of text"]]
    assert take() == short

    # What it does not describe goes the long way.
    list(
        consumer.receive(
            b'data: {"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"a","new":1}\n\n'
        )
    )
    assert take() == ALL_READING


def test_with_middleware_all_events_go_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROC-7."""
    take = traced(monkeypatch, READING_PLACES)
    consumer = Consumer(middleware=[lambda event: event])
    list(consumer.receive(b'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n'))
    assert take() == [
        name
        for name in ALL_READING
        if name not in ("compatibility", "enforcement", "joining of text")
    ]
    changed = Consumer(middleware=[lambda event: {**event} if isinstance(event, dict) else event])
    list(changed.receive_event({"type": "RUN_STARTED", "threadId": "t", "runId": "r", "new": 1}))
    assert take()[:3] == ["compatibility", "middleware", "enforcement"]


@pytest.mark.anyio
async def test_writing_goes_through_the_stages_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    places: dict[str, tuple[object, str]] = {
        "structure": (importlib.import_module("aguia.producer"), "_checked"),
        "chunk expansion": (ChunkExpander, "expand"),
        "verification": (Verifier, "check"),
        "stream": (EventStream, "push"),
        "encoding": (SseWriter, "events"),
    }
    assert list(places) == [stage.name for stage in WRITING]

    async def agent(run: Run) -> None:
        take()
        await run.emit({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Hello"})

    take = traced(monkeypatch, places)
    transport = InProcess(agent)
    run_input = RunAgentInput(thread_id="t", run_id="r", messages=[])
    async with transport.open(run_input) as answer:
        body = b"".join([part async for part in answer.body])
    assert b"TEXT_MESSAGE_CHUNK" in body
    assert take() == list(places)
