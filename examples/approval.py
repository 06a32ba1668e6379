"""An agent that asks before it sends a mail, and a program that has a person decide.

    aguia serve approval        the agent
    python approval.py          the program, in another terminal

The agent's run ends with the question, and the next run brings the answer.
"""

import json
from dataclasses import dataclass

from aguia import Interrupt, ToolCall
from aguia.server import Run
from aguia.sync import HttpAgent


@dataclass
class Decision:
    """What the person answers; the question carries its JSON Schema."""

    approved: bool
    reason: str = ""


# The agent


async def agent(run: Run) -> None:
    """Propose a mail; send it once a person has approved it."""
    proposed = [call for call in run.unanswered_calls if call.function.name == "send_mail"]
    for call in proposed:
        await decide(run, call)
    if proposed:
        return
    mail = {"to": "ana@example.com", "text": "Lunch at noon?"}  # a model would write it
    async with run.tool_call("send_mail", mail) as made:
        pass
    ask(run, made.tool_call_id, mail)


async def decide(run: Run, call: ToolCall) -> None:
    """Do what the person has decided about a call."""
    # From the client, like all messages: what it must not be able to send has to be refused here.
    mail = json.loads(call.function.arguments)
    match run.resume.answer(call.id, Decision):
        case Decision(approved=True):
            await run.answer(call.id, send_mail(**mail))
            await run.say(f"The mail to {mail['to']} is on its way.")
        case Decision(reason=reason):
            await run.answer(call.id, f"The person does not want it sent. {reason}")
            await run.say("I have not sent it.")
        case None:  # not answered: the question stands
            ask(run, call.id, mail)
        case _:  # CANCELLED: the person has left the question
            await run.answer(call.id, "The person did not decide.")
            await run.say("Then I leave it.")


def ask(run: Run, tool_call_id: str, mail: dict[str, str]) -> None:
    """End the run with the question whether the mail may be sent."""
    run.interrupt(
        "approval",
        message=f"Send this to {mail['to']}?\n  {mail['text']}",
        tool_call_id=tool_call_id,
        response_type=Decision,
    )


def send_mail(to: str, text: str) -> str:
    """Send a mail; here it only appears in the agent's terminal."""
    print(f"To {to}: {text}")
    return "Sent."


# The program


def main(url: str) -> None:
    """Talk to the agent, and have its questions answered until it has none."""
    with HttpAgent(url) as agent:
        result = agent.ask("Invite Ana to lunch.")
        while result.outcome == "interrupted":
            result = agent.ask(resume={asked.id: decision(asked) for asked in result.interrupts})
        print(result.text)


def decision(asked: Interrupt) -> Decision:
    """What the person at the terminal decides."""
    print(asked.message)
    reply = input("Type yes, or why not: ")
    return Decision(approved=True) if reply == "yes" else Decision(approved=False, reason=reply)


if __name__ == "__main__":
    main("http://127.0.0.1:8000/")
