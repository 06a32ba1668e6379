"""Run inputs that commands send: as a person has written them to a file, or of a few words."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from aguia.client.tools import failed_answer
from aguia.pipeline.compatibility import noting, upgrade_input
from aguia.pipeline.enforcement import enforce_input
from aguia.pipeline.warn import log_warning
from aguia.protocol.common import PROTOCOL_VERSION, UNSET
from aguia.protocol.errors import InvalidInput
from aguia.protocol.input import RunAgentInput
from aguia.protocol.messages import Message, ToolCall, ToolMessage, UserMessage

__all__ = ["declined", "input_of", "read_input", "said"]


def said(text: str) -> UserMessage:
    """What the user says, as a message."""
    return UserMessage(id=f"message-{uuid4().hex}", content=text)


def declined(call: ToolCall) -> ToolMessage:
    """The answer to a call that was left to a command which can't carry it out (FRONT-5)."""
    return failed_answer(call, "This client has no such tool.")


def input_of(
    messages: Sequence[Message], *, thread_id: str | None = None, state: Any = UNSET
) -> RunAgentInput:
    """The input of a run that offers no tools, on a new thread unless one is named.

    A state that is null goes as the empty object: a run input has no null for it (IN-1).
    """
    return RunAgentInput(
        thread_id=thread_id or f"thread-{uuid4().hex}",
        run_id=f"run-{uuid4().hex}",
        protocol_version=PROTOCOL_VERSION,
        messages=list(messages),
        # Agents from before 1.0 require these members, empty or not.
        state={} if state is UNSET or state is None else state,
        tools=[],
        context=[],
        forwarded_props={},
    )


def read_input(path: Path) -> RunAgentInput:
    """The run input in a file; ids, version and messages may be left out.

    What the protocol does not describe is left out with a warning in the log. Raises `ValueError`
    for what can't be read, and for what is no run input (PROC-11).
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(data, dict):
            data = {
                "threadId": f"thread-{uuid4().hex}",
                "runId": f"run-{uuid4().hex}",
                "protocolVersion": PROTOCOL_VERSION,
                "messages": [],
                **data,
            }
            data = upgrade_input(data, noting(log_warning))
        return enforce_input(data, log_warning)
    except OSError as error:
        raise ValueError(f"can't read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError, InvalidInput) as error:
        raise ValueError(f"{path} is no run input: {error}") from None
