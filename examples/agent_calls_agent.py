"""An agent that has another AG-UI agent do a part of the work, in full view of the user.

    aguia serve agent_calls_agent:researcher --port 8001
    aguia serve agent_calls_agent:editor

Then talk to the editor, from a third terminal: aguia chat http://127.0.0.1:8000/

What the researcher writes, and the tools that it uses, appear as a subagent's while they happen.
RESEARCHER_URL names another agent in its place.
"""

import asyncio
import os

from msgspec.structs import replace

from aguia import (
    AttributableEvent,
    HttpAgent,
    InputRejected,
    StateDeltaEvent,
    StateSnapshotEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TransportError,
    TruncatedRun,
    text_of,
)
from aguia.server import Run, RunError

RESEARCHER_URL = os.environ.get("RESEARCHER_URL", "http://127.0.0.1:8001/")

KEPT_BACK = (
    StateSnapshotEvent,  # the other agent's state is not that of this run
    StateDeltaEvent,
    SubagentStartedEvent,  # what its own subagents say is shown as its own
    SubagentFinishedEvent,
    SubagentErrorEvent,
)


async def editor(run: Run) -> None:
    """Write about the topic that the user names, with the help of the researcher."""
    topic = text_of(run.messages[-1].content)
    try:
        found = await research(run, topic)
    except RunError as error:  # the user has seen that the researcher failed; the run goes on
        await run.say(f"I can't write about {topic}: {error.message}")
    else:
        await run.say(f"All about {topic}: {found}")


async def research(run: Run, topic: str) -> str:
    """What the researcher finds, or a `RunError`; what it does meanwhile is passed on.

    When the run is cancelled, these blocks are left, the connection closes, and the researcher's
    run is cancelled as well.
    """
    async with (
        run.subagent("researcher") as subagent,
        HttpAgent(RESEARCHER_URL) as other,
        other.run(topic) as events,
    ):
        try:
            async for event in events:
                if isinstance(event, AttributableEvent) and not isinstance(event, KEPT_BACK):
                    await run.emit(replace(event, subagent_run_id=subagent.subagent_run_id))
        except (TransportError, InputRejected, TruncatedRun) as error:
            raise RunError("The researcher does not answer.") from error
        result = events.result
        if result.outcome != "success":
            raise RunError(str(result.error or f"The researcher's run was {result.outcome}."))
        subagent.finish(result.text)
        return result.text


async def researcher(run: Run) -> None:
    """An agent like any other, on whichever machine, in whichever language."""
    topic = text_of(run.messages[-1].content)
    if topic == "nothing":
        raise RunError("There is nothing to be found about nothing.")
    async with run.tool_call("search", {"query": topic}) as call:
        await asyncio.sleep(0.2)
    await call.result("2 pages")
    async with run.text() as text:
        for word in ("Two ", "pages ", "praise ", f"{topic}."):
            await text.write(word)
            await asyncio.sleep(0.2)
