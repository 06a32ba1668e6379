"""The agent behind the page: it follows a script, and does what an agent can do with a page.

Run it in this folder: aguia serve agent --allow-origin http://127.0.0.1:5173
"""

import asyncio
import re
from typing import Any

from aguia import ToolMessage, text_of
from aguia.server import Run, RunError

STOPS = ("Ribeira", "Livraria Lello", "Serralves")
EUROS = 20

PAUSE = 0.03
"""Seconds between two words; a model takes about as long."""


async def agent(run: Run) -> None:
    """Answer what the run brings: a decision, the result of a tool, or a message."""
    decision = run.resume.answer("book", bool)
    if decision is not None:
        await book(run, agreed=decision is True)  # else it is False, or CANCELLED
        return
    last = run.messages[-1]
    text = text_of(last.content)
    if isinstance(last, ToolMessage):
        await speak(run, f"The page says: {last.error or text}")
        return
    match text.lower().split():
        case ["plan", *_]:
            await plan(run)
        case ["paint", "the", "page", *colour] if run.offers("set_colour"):
            # The page carries it out, and starts the next run with the result.
            await run.call("set_colour", {"colour": " ".join(colour)})
        case ["book", *_]:
            await ask(run)
        case ["count", *_]:
            await speak(run, " ".join(str(number) for number in range(1, 1001)))
        case ["fail"]:
            raise RunError("I was told to fail.", code="told")
        case _:
            await speak(run, f"You said: {text}")


async def speak(run: Run, text: str) -> None:
    """Say it word by word."""
    async with run.text() as message:
        for word in re.findall(r"\s*\S+", text):
            await message.write(word)
            await asyncio.sleep(PAUSE)


async def plan(run: Run) -> None:
    """Fill the state that the page shows: what changes in it is sent by itself."""
    run.state = {"stops": [], "booked": False}
    await speak(run, "Let me see.")
    for name in STOPS:
        run.state["stops"].append({"name": name, "go": True})
        await speak(run, f"{name} is worth a visit.")
    await speak(run, "Untick what you don't like, then tell me to book it.")


async def ask(run: Run) -> None:
    """End the run with a question. The state holds what the person ticked on the page."""
    stops: list[dict[str, Any]] = run.state["stops"] if run.state else []
    names = [stop["name"] for stop in stops if stop["go"]]
    if not names:
        await speak(run, "There is nothing to book. Tell me to plan a day first.")
        return
    run.interrupt(
        "approval",
        message=f"Book {', '.join(names)} for {EUROS * len(names)} euros?",
        response_type=bool,
        interrupt_id="book",
    )


async def book(run: Run, *, agreed: bool) -> None:
    """Do what was asked, if the person agrees."""
    if agreed:
        run.state["booked"] = True
    await speak(run, "It is booked." if agreed else "Then I book nothing.")
