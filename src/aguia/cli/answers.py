"""What answer an agent's question asks for, said to a person, and what they typed as that answer.

An answer is one line here; `aguia.cli.forms` asks for it field by field. What a schema takes is
in `aguia.cli.schemas`.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from aguia.cli.safe import one_line
from aguia.cli.schemas import choices_of, expected, fault, resolved
from aguia.protocol.outcomes import Interrupt

__all__ = ["WORDS", "WrongAnswer", "answer_from", "choices", "decision", "how_to_answer"]

MAX_TOLD: Final = 600
"""How many characters what is expected takes at most."""

WORDS: Final = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


class WrongAnswer(ValueError):
    """What was typed is not what the agent asks for; the text says what is, in one line."""


def how_to_answer(interrupt: Interrupt) -> str:
    """What the question takes as its answer, in one line."""
    if decision(interrupt) is not None:
        return "Answer yes or no; /cancel drops the question."
    wanted = expected(interrupt.response_schema, interrupt.response_schema)
    if not wanted:
        return "Your answer goes to the agent, as JSON if it is JSON; /cancel drops the question."
    return f"Expected: {one_line(wanted, MAX_TOLD)}; /cancel drops the question."


def answer_from(interrupt: Interrupt, text: str) -> Any:
    """What `text` means as an answer to the question (INT-2, INT-7).

    To a question for yes or no these words are the answer, in the form that it asks for;
    otherwise it is JSON if that is what fits, and else text.

    Raises:
        WrongAnswer: it is nothing that the question takes.
    """
    decide = decision(interrupt)
    if decide is not None and (decided := WORDS.get(text.strip().casefold())) is not None:
        return decide(decided)
    schema = interrupt.response_schema
    meanings: list[Any] = [text.strip()]
    try:
        meanings.insert(0, msgspec.json.decode(text))
    except (ValueError, RecursionError):
        pass  # no JSON, and so text
    faults = [fault(value, schema, schema) for value in meanings]
    for value, found in zip(meanings, faults, strict=True):
        if not found:
            return value
    if decide is not None:
        raise WrongAnswer("That is neither yes nor no")
    raise WrongAnswer(f"That does not fit: {one_line(faults[0], MAX_TOLD)}")


def choices(interrupt: Interrupt) -> list[Any]:
    """The values that the question lets choose from; none if it takes others."""
    return choices_of(resolved(interrupt.response_schema, interrupt.response_schema))


def decision(interrupt: Interrupt) -> Callable[[bool], Any] | None:
    """What makes a yes or no into the answer that is asked for; None if it asks for more.

    That is a boolean, or an object that needs nothing but one: `approved`, or its only member.
    """
    root = interrupt.response_schema
    schema = resolved(root, root)
    if schema.get("type") == "boolean":
        return lambda answer: answer
    named = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(named, dict):
        return None
    only = next(iter(named)) if len(named) == 1 else None
    name = "approved" if "approved" in named else only
    needs = schema.get("required", [])
    if name is None or not isinstance(needs, list) or any(other != name for other in needs):
        return None
    if resolved(named[name], root).get("type") != "boolean":
        return None
    return lambda answer: {name: answer}
