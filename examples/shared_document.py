"""A document that an agent and an application both edit: it is the state that they share.

    aguia serve shared_document     the agent
    python shared_document.py       the application, in another terminal

The agent changes the state and the application sees it happen; the application sends its own
changes with the next run.
"""

import asyncio

from aguia import StateDeltaEvent, StateSnapshotEvent
from aguia.server import Run
from aguia.sync import HttpAgent

# The agent


async def agent(run: Run) -> None:
    """Tidy the document up, line by line."""
    lines: list[str] = run.state.setdefault("lines", [])
    changed = 0
    for index, line in enumerate(lines):
        tidy = tidied(line)
        if tidy != line:
            lines[index] = tidy  # the state is live: this is all it takes to change it
            await run.flush()  # send the change now, as a patch, and not only with what comes next
            changed += 1
            await asyncio.sleep(0.2)  # a model would take its time
    await run.say(f"Lines that I changed: {changed}.")


def tidied(line: str) -> str:
    """The line with a capital letter at its start and a full stop at its end."""
    line = line.strip()
    return f"{line[:1].upper()}{line[1:].removesuffix('.')}." if line else ""


# The application


def main(url: str) -> None:
    """Have the agent work on the document, edit it as well, and have it look again."""
    with HttpAgent(url, state={"lines": ["an eagle sees far.", "it flies high"]}) as agent:
        watch(agent, "Tidy it up.")
        agent_lines: list[str] = agent.state["lines"]
        edited = {"lines": ["The eagle", *agent_lines, "it rarely misses"]}
        watch(agent, "I have added a title and a line.", edited)


def watch(agent: HttpAgent, said: str, document: object = None) -> None:
    """Say something to the agent, and print the document whenever it changes."""
    print("You:", said)
    with agent.run(said, state=document or agent.state) as run:
        for event in run:
            if isinstance(event, StateDeltaEvent | StateSnapshotEvent):
                print("   ", " | ".join(agent.state["lines"]))
    print("Agent:", run.result.text)


if __name__ == "__main__":
    main("http://127.0.0.1:8000/")
