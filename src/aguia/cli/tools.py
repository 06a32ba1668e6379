"""Tools of the person's own that a chat offers to the agent, and their consent to each call."""

import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from aguia.cli.render import Renderer
from aguia.cli.safe import one_line
from aguia.client import FunctionTool, ToolRequest

__all__ = ["Consents", "load_tools"]

MAX_LINES: Final = 400
MAX_CHARACTERS: Final = 20_000
"""Larger arguments are not shown whole, and so cannot be consented to."""

NOT_ASKED: Final = (
    "Nobody is there to allow it: this chat has no terminal, or no --yes for the tool."
)


def load_tools(name: str) -> list[FunctionTool]:
    """The tools of a module, named as such or as a file: its public functions.

    Those are the functions that its `__all__` names, or without one those that are defined in it
    and begin with no underscore; and what is a `FunctionTool` already.

    Raises:
        ValueError: there is no such module, importing it fails, or it has no tools. The text is
            one line.
    """
    module = _module(name)
    named = getattr(module, "__all__", None)
    names = named if named is not None else [key for key in vars(module) if key[0] != "_"]
    tools: dict[str, FunctionTool] = {}
    for key in names:
        value: Any = getattr(module, key, None)
        if inspect.isfunction(value) and (named is not None or value.__module__ == module.__name__):
            try:
                value = FunctionTool(value)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"{name}: {key} cannot be a tool: {one_line(str(error))}"
                ) from error
        if not isinstance(value, FunctionTool):
            continue
        if tools.get(value.name, value) is not value:
            raise ValueError(f"{name}: two tools have the name {value.name}")
        tools[value.name] = value
    if not tools:
        raise ValueError(f"{name} has no tools: a tool is a function of it without an underscore")
    return list(tools.values())


def _module(name: str) -> ModuleType:
    try:
        if name.endswith(".py") or os.sep in name:
            return _from_file(Path(name).expanduser())
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return importlib.import_module(name)
    except ValueError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f" ({place.filename}, line {place.lineno})"
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise ValueError(f"there is no module {one_line(name)} for --tools") from error
        if isinstance(error, SyntaxError):
            where = f" ({error.filename}, line {error.lineno})"
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ValueError(
            f"the tools of {one_line(name)} cannot be imported: "
            f"{type(error).__name__}: {one_line(said)}{where}"
        ) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"there is no file {one_line(str(path))} for --tools")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{one_line(str(path))} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Annotations are looked up in the module by its name.
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


class Consents:
    """Asks the person for each call of a tool that does more than read (SEC-2).

    `ask` gives the line that was typed for a label, None for Ctrl-C and Ctrl-D; it is itself None
    where nobody can be asked. `allowed` are the tools that need not be asked for.
    """

    def __init__(
        self,
        renderer: Renderer,
        ask: Callable[[str], Awaitable[str | None]] | None,
        allowed: Iterable[str] = (),
    ) -> None:
        self._renderer = renderer
        self._ask = ask
        self._allowed = set(allowed)

    async def __call__(self, request: ToolRequest) -> bool | str:
        """Whether the call may be made; a text is the reason why not."""
        name = request.tool.name
        if name in self._allowed:
            return True
        if self._ask is None:
            return NOT_ASKED
        text = json.dumps(request.arguments, indent=2, ensure_ascii=False)
        lines = text.split("\n")
        about = (request.tool.description or "").strip().split("\n", 1)[0]
        self._renderer.listing([f"? The agent wants to run {one_line(name, 80)}"], "warning")
        if about:
            self._renderer.listing([f"  {one_line(about)}"], "aside")
        self._renderer.listing([f"  {line}" for line in _within(lines)], "arguments")
        if len(text) > MAX_CHARACTERS or len(lines) > MAX_LINES:
            self._renderer.listing([f"  … Refused: it has {len(text):,} characters."], "error")
            return "The arguments are too long for the user to look at."
        self._renderer.note(
            "y runs it, a always does in this chat, n refuses, other words say why not"
        )
        while True:
            typed = await self._ask(f"Run {one_line(name, 40)}?")
            if typed is None:
                return False
            match typed.strip().casefold():
                case "":
                    continue
                case "y" | "yes":
                    return True
                case "a" | "always":
                    self._allowed.add(name)
                    return True
                case "n" | "no":
                    return False
            return typed.strip()


def _within(lines: list[str]) -> list[str]:
    """The lines, as far as they are shown."""
    shown, left = [], MAX_CHARACTERS
    for line in lines[:MAX_LINES]:
        shown.append(line[:left])
        left -= len(line)
        if left <= 0:
            break
    return shown
