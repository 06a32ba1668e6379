"""The directive `command-help`: what `aguia COMMAND --help` prints, as the command has it now.

```{command-help} corpus run
```
"""

from typing import Any

import typer.main
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from aguia.cli.app import app as command_line

__all__ = ["CommandHelp", "commands", "help_of", "setup"]

WIDTH = 88


class CommandHelp(SphinxDirective):
    """Shows a command's help."""

    optional_arguments = 8

    def run(self) -> list[nodes.Node]:
        """Return the help as it is printed."""
        text = help_of(self.arguments)
        return [nodes.literal_block(text, text, language="text")]


def commands() -> list[list[str]]:
    """The names of all commands, those of a group each with the group's before its own."""
    found: list[list[str]] = []

    def walk(command: Any, names: list[str]) -> None:
        children = getattr(command, "commands", {})
        if names and not children:
            found.append(names)
        for name, child in children.items():
            walk(child, [*names, name])

    walk(typer.main.get_command(command_line), [])
    return found


def help_of(names: list[str]) -> str:
    """What a command prints with `--help`."""
    command: Any = typer.main.get_command(command_line)
    context = command.make_context("aguia", [], resilient_parsing=True, max_content_width=WIDTH)
    for name in names:
        command = command.commands[name]
        context = type(context)(
            command, parent=context, info_name=name, max_content_width=WIDTH, terminal_width=WIDTH
        )
    return str(command.get_help(context)).rstrip()


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
