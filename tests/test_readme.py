"""What the first programs that people see do beyond what their pages show.

That their blocks run, and print what stands below them, is what test_docs.py shows.
"""

from typing import Any

import msgspec
import pytest

from aguia import (
    Consumer,
    ContentPart,
    DataSource,
    ImagePart,
    RunAgentInput,
    RunFinishedInterruptOutcome,
    TextPart,
    UserMessage,
)
from aguia.server import run_agent
from support import REPOSITORY
from support_docs import blocks_of

pytestmark = pytest.mark.anyio

INPUT = RunAgentInput(
    thread_id="t",
    run_id="r",
    messages=[UserMessage(id="m", content="hello")],
    protocol_version="1.0",
)


def agent_of(page: str, file: str) -> Any:
    """The agent in a file that a page shows."""
    source = (REPOSITORY / page).read_text(encoding="utf-8")
    [text] = [block.text for block in blocks_of(source) if block.file == file]
    found: dict[str, Any] = {"__name__": file.removesuffix(".py")}
    exec(compile(text, file, "exec"), found)
    return found["agent"]


async def conversation(agent: Any, input: RunAgentInput = INPUT, **settings: Any) -> Any:
    warnings: list[Any] = []
    consumer = Consumer(input, on_warning=warnings.append)
    async for event in run_agent(agent, input, **settings):
        list(consumer.receive_event(event))
    list(consumer.end())
    assert not warnings
    return consumer.conversation


async def test_the_first_server_is_sent_an_image() -> None:
    """What is said is the text; the bytes of the image are no words."""
    parts: list[ContentPart] = [
        TextPart(text="hello"),
        ImagePart(source=DataSource(value="AAAA", mime_type="image/png")),
    ]
    input = msgspec.structs.replace(INPUT, messages=[UserMessage(id="m", content=parts)])
    thread = await conversation(agent_of("README.md", "hello.py"), input=input)
    assert thread.messages[-1].content == "You said: hello"


async def test_the_agent_that_says_everything() -> None:
    agent = agent_of("docs/tour.md", "publisher.py")
    thread = await conversation(agent)
    assert isinstance(thread.outcome, RunFinishedInterruptOutcome)
    assert [interrupt.id for interrupt in thread.interrupts] == ["sure"]
    assert thread.state == {"plan": [{"step": "look", "done": True}]}
    assert thread.messages[-1].content == "A page about three eagles."
    guest = await conversation(agent, principal="guest")
    assert guest.error.message == "Guests may not publish."
    assert guest.error.code == "guest"
