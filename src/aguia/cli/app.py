"""The commands and their arguments; each imports what it needs when it is called."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from aguia import PROTOCOL_VERSION, __version__

        typer.echo(f"aguia {__version__} (AG-UI {PROTOCOL_VERSION})")
        raise typer.Exit


@app.callback()
def _aguia(
    _: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """AG-UI 1.0: serve an agent, talk to one, check a stream, see it all at work."""


@app.command()
def serve(
    agent: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:AGENT",
            help="What to serve, for example myagent:agent; the current folder is importable."
            " The name of the agent is `agent` if it is left out: myagent is myagent:agent."
            " By default the built-in assistant for the current folder.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")
    ] = 8000,
    expose_errors: Annotated[
        bool,
        typer.Option(
            "--expose-errors",
            help="Tell clients what an exception says, for development; an AgentApp has a"
            " setting of its own for it.",
        ),
    ] = False,
) -> None:
    """Serve an agent over HTTP. Ctrl-C ends it, with exit code 0."""
    from aguia.cli.serve import serve

    raise typer.Exit(serve(agent, host=host, port=port, expose_errors=expose_errors))


@app.command()
def chat(
    url: Annotated[
        str, typer.Argument(help="Where the agent is, for example http://127.0.0.1:8000/")
    ],
    message: Annotated[
        list[str] | None,
        typer.Argument(
            help="Say this, and leave when it is answered. Without it you get a prompt;"
            " what is piped in is taken line by line.",
            show_default=False,
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="'NAME: VALUE'",
            help="A header to send along, such as 'Authorization: Bearer ...'; repeatable.",
            show_default=False,
        ),
    ] = None,
    tools: Annotated[
        str,
        typer.Option(
            "--tools",
            metavar="MODULE|FILE.py",
            help="Offer the functions of a Python module to the agent as tools. You are asked"
            " before one runs.",
            show_default=False,
        ),
    ] = "",
    yes: Annotated[
        list[str] | None,
        typer.Option(
            "--yes",
            metavar="TOOL",
            help="Run this tool without asking, also where nobody can be asked; repeatable.",
            show_default=False,
        ),
    ] = None,
    load: Annotated[
        str,
        typer.Option(metavar="FILE", help="Go on with what /save has written.", show_default=False),
    ] = "",
    plain: Annotated[
        bool, typer.Option("--plain", help="Show text as it comes, and not as Markdown.")
    ] = False,
    no_history: Annotated[
        bool, typer.Option("--no-history", help="Do not keep what is typed for the next time.")
    ] = False,
) -> None:
    """Talk to any AG-UI agent in the terminal.

    In a message, @FILE sends a file along.

    Exit codes: 0 answered; 1 the run failed, broke a rule, broke off or was refused; 2 wrong
    usage, or nothing answers at the URL; 3 cancelled by the agent, or it asks for an answer;
    130 Ctrl-C.
    """
    from aguia.cli.chat import Options, chat

    options = Options(
        headers=header or [],
        tools=tools,
        allowed=yes or [],
        load=load,
        plain=plain,
        keep_history=not no_history,
    )
    raise typer.Exit(chat(url, message=" ".join(message or []), options=options))


@app.command()
def demo() -> None:
    """Watch server and client talk about the current folder."""
    from aguia.cli.demo import demo

    raise typer.Exit(demo())


@app.command()
def check(
    source: Annotated[
        list[str],
        typer.Argument(
            help="Recordings (JSON Lines, a JSON array, server-sent events, a binary body; also"
            " gzipped), - for the standard input, or URLs of agents, which are asked to run once.",
            show_default=False,
        ),
    ],
    format: Annotated[
        str,
        typer.Option(help="Of the recordings: auto (found out), jsonl, json, sse or protobuf."),
    ] = "auto",
    output: Annotated[
        str, typer.Option("--output", "-o", help="How to print: text, json, sarif or junit.")
    ] = "text",
    input: Annotated[
        Path | None,
        typer.Option(help="The run input that the streams answer, as JSON.", show_default=False),
    ] = None,
    message: Annotated[
        str | None,
        typer.Option(help="What to say to an agent, in place of an input.", show_default=False),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="'NAME: VALUE'",
            help="A header to send along to an agent; repeatable.",
            show_default=False,
        ),
    ] = None,
    peer_version: Annotated[
        str | None,
        typer.Option(
            help="The version of a producer that is known to be old, as 0.0.57.",
            show_default=False,
        ),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Report only these rules, or families of rules; repeatable.",
            show_default=False,
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Do not report these rules, or families of rules; repeatable.",
            show_default=False,
        ),
    ] = None,
    max_warnings: Annotated[
        int | None,
        typer.Option(min=0, help="Fail with more warnings than these in all.", show_default=False),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="A file of findings that are known already.", show_default=False),
    ] = None,
    write_baseline: Annotated[
        Path | None,
        typer.Option(help="Write what is found to such a file.", show_default=False),
    ] = None,
) -> None:
    """Find what is wrong with a stream of events, where, and by which rule.

    Exit codes: 0 nothing is wrong; 1 errors, or more warnings than allowed; 2 wrong usage, or a
    source that can't be read.
    """
    from aguia.cli.check import Options, check

    options = Options(
        format=format,
        output=output,
        input=input,
        message=message,
        headers=header or (),
        peer_version=peer_version,
        only=rule or (),
        ignore=ignore or (),
        max_warnings=max_warnings,
        baseline=baseline,
        write_baseline=write_baseline,
    )
    raise typer.Exit(check(source, options))


@app.command()
def rules(
    rule: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="A rule, as CHUNK-7, or a family of rules, as CHUNK; by default all of them.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="text or json.")] = "text",
) -> None:
    """Print the rules of the protocol that errors and findings name."""
    from aguia.cli.check import rules

    raise typer.Exit(rules(rule, output=output))


@app.command()
def schema() -> None:
    """Print the JSON Schema of the protocol."""
    import json

    from aguia.protocol.schema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))
