"""The commands and their arguments; each imports what it needs when it is called."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand

__all__ = ["app"]

app: typer.Typer = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with `aguia demo`. `aguia COMMAND --help` has examples.",
)


class _Command(TyperCommand):
    """A command whose help names its arguments as people do: URL, and not {URL} <str>."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument):
                setattr(parameter, "display_type_rich", _nothing)  # noqa: B010

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind the command's name in the usage."""
        return [
            piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)
        ]


def _nothing(**_: Any) -> None:
    return None


def _examples(*lines: str) -> str:
    """What stands below a command's options, each line as it is."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def _header(help: str) -> Any:
    """The option for headers, which most commands have."""
    return typer.Option("--header", "-H", metavar="'NAME: VALUE'", help=help, show_default=False)


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


@app.command(
    cls=_Command,
    epilog=_examples(
        "aguia serve myagent:agent",
        "aguia serve myagent --port 9000 --expose-errors",
        "aguia serve    # the assistant for the current folder",
    ),
)
def serve(
    agent: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:AGENT",
            help="What to serve: a module, in the current folder or installed, and the name of an"
            " agent function or an AgentApp in it, which is `agent` if it is left out. By default"
            " it is the built-in assistant for the current folder.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="The port to listen on; 0 takes a free one."
        ),
    ] = 8000,
    expose_errors: Annotated[
        bool,
        typer.Option(
            "--expose-errors",
            help="Tell clients what an exception says, for development; an AgentApp has a"
            " setting of its own for it.",
        ),
    ] = False,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="An origin whose web pages may call the agent (CORS), for example"
            " http://localhost:5173; may be repeated, and * is all. An AgentApp has a setting"
            " of its own for it.",
            show_default=False,
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Another name by which the agent may be asked for, for a proxy or a tunnel in"
            " front; may be repeated, and * is any. By default, on an address of this machine"
            " alone, only localhost, 127.0.0.1 and ::1.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve an agent over HTTP. Ctrl-C ends it, with exit code 0."""
    from aguia.cli.serve import serve

    raise typer.Exit(
        serve(
            agent,
            host=host,
            port=port,
            expose_errors=expose_errors,
            allow_origins=allow_origin or (),
            allow_hosts=allow_host or (),
        )
    )


@app.command(
    cls=_Command,
    epilog=_examples(
        "aguia chat http://127.0.0.1:8000/",
        'aguia chat http://127.0.0.1:8000/ "What is in @notes.txt?"',
        "aguia chat http://127.0.0.1:8000/ --tools mytools.py",
    ),
)
def chat(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="Where the agent is, for example http://127.0.0.1:8000/"
        ),
    ],
    message: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MESSAGE",
            help="Say this, and leave when it is answered. Without it you get a prompt;"
            " what is piped in is taken line by line.",
            show_default=False,
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        _header("A header to send along, such as 'Authorization: Bearer ...'; repeatable."),
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


@app.command(cls=_Command)
def demo() -> None:
    """Watch a client talk to an agent over HTTP, then do so yourself.

    The conversation shown is about a few files made for it; yours is about the current folder.
    """
    from aguia.cli.demo import demo

    raise typer.Exit(demo())


@app.command(
    cls=_Command,
    epilog=_examples(
        'aguia check http://127.0.0.1:8000/ -m "What can you do?"',
        "aguia check recordings/*.jsonl --strict --max-warnings 0",
        "aguia check run.jsonl -o sarif > run.sarif",
    ),
)
def check(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="Recordings (what `aguia record` writes, JSON Lines, a JSON array, server-sent"
            " events, a binary body; also gzipped), - for the standard input, or URLs of agents,"
            " which are asked to run once.",
            show_default=False,
        ),
    ],
    format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="What the recordings are: recorder, jsonl, json, sse or protobuf; auto finds out.",
        ),
    ] = "auto",
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FORMAT", help="How to print: text, json, sarif or junit."
        ),
    ] = "text",
    input: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The run input that the streams answer, as JSON; `aguia record` keeps it.",
            show_default=False,
        ),
    ] = None,
    message: Annotated[
        str | None,
        typer.Option(
            "--message",
            "-m",
            metavar="TEXT",
            help="What to say to an agent, where no --input is given.  [default: Hello]",
            show_default=False,
        ),
    ] = None,
    header: Annotated[
        list[str] | None, _header("A header to send along to an agent; repeatable.")
    ] = None,
    peer_version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="The version of a producer that is known to be old, such as 0.0.57.",
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
        typer.Option(
            min=0,
            metavar="N",
            help="Fail if there are more warnings than this; otherwise warnings never fail.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="What an agent must not do is an error, also where no client may reject it.",
        ),
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A file of findings that are known already.", show_default=False
        ),
    ] = None,
    write_baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write what is found to such a file.", show_default=False
        ),
    ] = None,
) -> None:
    """Find what is wrong with a stream, where, and by which rule.

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
        strict=strict,
        baseline=baseline,
        write_baseline=write_baseline,
    )
    raise typer.Exit(check(source, options))


@app.command(cls=_Command, epilog=_examples("aguia rules CHUNK-7", "aguia rules INT SUB"))
def rules(
    rule: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID",
            help="Rules, such as CHUNK-7, or families of rules, such as CHUNK; by default all.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FORMAT", help="text or json.")
    ] = "text",
) -> None:
    """Print the rules of the protocol that errors and findings name."""
    from aguia.cli.check import rules

    raise typer.Exit(rules(rule or (), output=output))


def _probe_list(wanted: bool) -> None:
    if wanted:
        from aguia.cli.probe import probe_list

        typer.echo(probe_list())
        raise typer.Exit


@app.command(
    cls=_Command,
    epilog=_examples(
        "aguia probe http://127.0.0.1:8000/",
        "aguia probe http://127.0.0.1:8000/ --only HTTP --only malformed-body",
        'aguia probe http://127.0.0.1:8000/ --interrupt-message "Publish it"',
    ),
)
def probe(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the agent is.")],
    message: Annotated[
        str | None,
        typer.Option(
            "--message",
            "-m",
            metavar="TEXT",
            help="What makes the agent answer.  [default: Hello! Please answer in one short"
            " sentence.]",
            show_default=False,
        ),
    ] = None,
    tool: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What the tool is called that is offered to it.  [default: aguia_probe_note]",
            show_default=False,
        ),
    ] = None,
    tool_message: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="What makes it call that tool; without it, no probe has it do so.",
            show_default=False,
        ),
    ] = None,
    interrupt_message: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="What makes it stop and ask; without it, no probe has it do so.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The shared state to begin with, as JSON.  [default: {}]",
            show_default=False,
        ),
    ] = None,
    header: Annotated[
        list[str] | None, _header("A header to send along; repeatable. It is not kept.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Run only these probes, by their names, rules or families of rules; repeatable.",
            show_default=False,
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave these out; repeatable.", show_default=False),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Seconds that one probe may take.")
    ] = 30.0,
    idle: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="Seconds for which an idle client reads nothing."
        ),
    ] = 2.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write JUnit XML there too.", show_default=False),
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep what was sent and what came in this folder. By default it is kept in a"
            " temporary one, and only if a probe fails.",
            show_default=False,
        ),
    ] = None,
    _: Annotated[
        bool,
        typer.Option("--list", help="List the probes.", callback=_probe_list, is_eager=True),
    ] = False,
) -> None:
    """Talk to a server and judge what it does.

    It gets plain, odd and malformed inputs, tools and versions. The agent is run a few dozen times,
    and does what it is told: tell it nothing that does harm.

    Exit codes: 0 no probe failed; 1 one did; 2 wrong usage, or nothing to probe at the URL.
    """
    from aguia.cli.probe import Options, probe
    from aguia.testing.probes import ProbeSettings

    usual = ProbeSettings()
    settings = ProbeSettings(
        message=message or usual.message,
        tool=tool or usual.tool,
        tool_message=tool_message or "",
        interrupt_message=interrupt_message or "",
        timeout=timeout,
        idle=idle,
    )
    options = Options(
        settings=settings,
        state=state,
        headers=header or (),
        only=only or (),
        skip=skip or (),
        json=json,
        junit=junit,
        evidence=evidence,
    )
    raise typer.Exit(probe(url, options))


@app.command(
    cls=_Command,
    epilog=_examples(
        "aguia record http://127.0.0.1:8000/ run.jsonl",
        'aguia record http://127.0.0.1:8000/ run.jsonl -m "Hello" -m "And now?"',
    ),
)
def record(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the agent is.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Where to write it; - is the standard output.")
    ],
    message: Annotated[
        list[str] | None,
        typer.Option(
            "--message",
            "-m",
            metavar="TEXT",
            help="What to say; repeatable, for several runs of one thread.  [default: Hello! What"
            " can you do?]",
            show_default=False,
        ),
    ] = None,
    input: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A run input as JSON, sent before any message.", show_default=False
        ),
    ] = None,
    header: Annotated[
        list[str] | None, _header("A header to send along; repeatable. It is not recorded.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Keep the body as it came, without inputs and times.")
    ] = False,
    append: Annotated[bool, typer.Option("--append", help="Add to what the file holds.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Seconds that a run may take.")
    ] = 600.0,
) -> None:
    """Call an agent and keep what comes, and when.

    That is for replay, check and tests. The recording is JSON Lines: the input and each event with
    its time. What breaks the rules is recorded like anything else.

    Exit codes: 0 the last run succeeded; 1 it failed, broke a rule, broke off or was refused; 2
    wrong usage, or nothing answers at the URL; 3 it was cancelled, or asks for an answer; 130
    Ctrl-C.
    """
    from aguia.cli.record import record

    code = record(
        url,
        file,
        messages=message or (),
        input=input,
        headers=header or (),
        raw=raw,
        append=append,
        force=force,
        timeout=timeout,
    )
    raise typer.Exit(code)


def _fault_list(wanted: bool) -> None:
    if wanted:
        from aguia.cli.replay import fault_list

        typer.echo(fault_list())
        raise typer.Exit


@app.command(
    cls=_Command,
    epilog=_examples(
        "aguia replay run.jsonl",
        "aguia replay run.jsonl --pace 0 --fault drop:3",
    ),
)
def replay(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A recording: JSON Lines, a JSON array of events or server-sent events, also"
            " gzipped.",
        ),
    ],
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="The port to listen on; 0 takes a free one."
        ),
    ] = 8000,
    pace: Annotated[
        str,
        typer.Option(
            metavar="PACE",
            help="The seconds between two events, or `original` for the recorded times; 0 is as"
            " fast as it goes.",
        ),
    ] = "original",
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FAULT",
            help="What to spoil in every answer, such as drop:3 (the first event is 0); repeatable."
            " --list-faults lists them.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="N", help="Makes the choices that a fault without a number leaves open."
        ),
    ] = 0,
    keep_ids: Annotated[
        bool,
        typer.Option("--keep-ids", help="Keep the recorded run and thread ids."),
    ] = False,
    once: Annotated[
        bool,
        typer.Option("--once", help="Refuse requests (410) after the last recorded run."),
    ] = False,
    _: Annotated[
        bool,
        typer.Option("--list-faults", help="List the faults.", callback=_fault_list, is_eager=True),
    ] = False,
) -> None:
    """Serve a recording as an agent, with faults on demand. Ctrl-C ends it, with exit code 0."""
    from aguia.cli.replay import replay

    code = replay(
        file,
        host=host,
        port=port,
        pace=pace,
        faults=fault or (),
        seed=seed,
        keep_ids=keep_ids,
        once=once,
    )
    raise typer.Exit(code)


@app.command(cls=_Command)
def schema() -> None:
    """Print the JSON Schema of the protocol."""
    import json

    from aguia.protocol.schema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


corpus: typer.Typer = typer.Typer(
    no_args_is_help=True, help="Streams with a known outcome, to test any client with."
)
app.add_typer(corpus, name="corpus")

_Names = Annotated[
    list[str] | None,
    typer.Option(
        "--case",
        metavar="NAME",
        help="Only cases of this name, in which * stands for anything; repeatable.",
        show_default=False,
    ),
]
_Rules = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="ID",
        help="Only cases that show these rules, or families of rules; repeatable.",
        show_default=False,
    ),
]


@corpus.command("list", cls=_Command, epilog=_examples("aguia corpus list --rule CHUNK"))
def list_cases(
    case: _Names = None,
    rule: _Rules = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FORMAT", help="text or json.")
    ] = "text",
) -> None:
    """Print the cases: names, what becomes of the stream, rules."""
    from aguia.cli.corpus import Options, list_cases

    raise typer.Exit(list_cases(Options(case or (), rule or (), output)))


@corpus.command(cls=_Command, epilog=_examples("aguia corpus export streams"))
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where to; it is made if it isn't there.")
    ],
    case: _Names = None,
    rule: _Rules = None,
) -> None:
    """Write the cases into a folder, a file of JSON for each."""
    from aguia.cli.corpus import Options, export

    raise typer.Exit(export(folder, Options(case or (), rule or ())))


@corpus.command(
    cls=_Command,
    context_settings={"allow_interspersed_args": False},
    epilog=_examples(
        "aguia corpus run -- node adapter.mjs",
        "aguia corpus run --rule INT --known known.json -- ./adapter",
    ),
)
def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND",
            help="What starts the client: a program that answers lines of JSON on its standard"
            " input with lines on its standard output; the documentation of the corpus says what"
            " is in them.",
            show_default=False,
        ),
    ],
    case: _Names = None,
    rule: _Rules = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FORMAT", help="How to print: text, json or junit."),
    ] = "text",
    timeout: Annotated[
        float, typer.Option(min=0.001, metavar="SECONDS", help="Seconds for each case.")
    ] = 10.0,
    split: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BYTES",
            help="Cut the streams into pieces of so many bytes; by default one for each event.",
            show_default=False,
        ),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file of cases that the client is known to fail: an object of JSON from the"
            " name of each to the reason.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Ask a client what becomes of each stream, and compare.

    Exit codes: 0 as expected; 1 not so, or no reply; 2 wrong usage, or a client that can't be
    started or gives no reply.
    """
    from aguia.cli.corpus import Options, run

    options = Options(case or (), rule or (), output, timeout, split, known)
    raise typer.Exit(run(command, options))
