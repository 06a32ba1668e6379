"""Scripted agents: what a client's tests talk to instead of a model."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any, TypeAlias

from aguia.protocol.events import Event
from aguia.protocol.input import RunAgentInput
from aguia.server import Run, RunError

__all__ = ["Script", "ScriptedAgent"]

Script: TypeAlias = str | BaseException | Iterable[Event | dict[str, Any]] | Callable[[Run], Any]
"""How one run is answered: a text; an exception to raise; events; or an agent function, which is
a coroutine function or an asynchronous generator function."""


class ScriptedAgent:
    """An agent function that answers its n-th run with the n-th script, and keeps the inputs.

    For `AgentApp`, `InProcess` and whatever else takes an agent. The events of a script are
    those between the start and the end of a run; a `RUN_FINISHED` or `RUN_ERROR` may be the
    last. They have to keep the rules: streams that don't are played by `ReplayApp`.

    Args:
        scripts: how the runs are answered, see `Script`.
        repeat: begin again after the last one; otherwise a further run fails with the code
            `script-over`.

    Attributes:
        inputs: the run inputs that came.
    """

    def __init__(self, *scripts: Script, repeat: bool = False) -> None:
        self._scripts = [
            list(script) if isinstance(script, Iterable) and not isinstance(script, str) else script
            for script in scripts
        ]
        self._repeat = repeat
        self.inputs: list[RunAgentInput] = []

    async def __call__(self, run: Run) -> Any:
        """Answer one run."""
        number = len(self.inputs)
        self.inputs.append(run.input)
        if self._repeat and self._scripts:
            number %= len(self._scripts)
        if number >= len(self._scripts):
            runs = "1 run" if len(self._scripts) == 1 else f"{len(self._scripts)} runs"
            raise RunError(f"the script has {runs} and no more", "script-over")
        script = self._scripts[number]
        if isinstance(script, BaseException):
            raise script
        if isinstance(script, str):
            async with run.text() as text:
                await text.write(script)
            return None
        if isinstance(script, list):
            return _each(script)
        answer = script(run)
        return answer if isinstance(answer, AsyncIterable) else await answer


async def _each(events: list[Any]) -> AsyncIterator[Any]:
    for event in events:
        yield event
