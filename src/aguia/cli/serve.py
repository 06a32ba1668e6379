"""`aguia serve`: finds the agent, binds the port, and runs the server until it is stopped."""

import errno
import importlib
import inspect
import logging
import os
import socket
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, TypedDict, Unpack, cast
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from aguia.cli.words import plural
from aguia.server import Agent, AgentApp, Agents, GracefulServer
from aguia.server.execution import is_asgi

__all__ = [
    "GRACE_SECONDS",
    "LOOPBACK",
    "StartError",
    "assistant",
    "bind",
    "load",
    "serve",
    "server_for",
    "url_of",
]

LOOPBACK = ("127.0.0.1", "localhost", "::1")

GRACE_SECONDS = 1.0
"""How long runs that are under way may go on once the server is told to stop."""


class _Settings(TypedDict, total=False):
    """What the command line says of an application that it makes."""

    expose_errors: bool
    allow_origins: Sequence[str]


class StartError(Exception):
    """The server cannot start; the text says why, in one line, and `code` is the exit code."""

    def __init__(self, message: str, *, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def serve(
    agent: str | None,
    *,
    host: str,
    port: int,
    expose_errors: bool = False,
    allow_origins: Sequence[str] = (),
    allow_hosts: Sequence[str] = (),
) -> int:
    """Serves `agent` ("module:name", or the folder assistant) until Ctrl-C; the exit code.

    `expose_errors`: clients are told what an exception says. `allow_origins`: whose web pages may
    call the agent; the folder assistant answers those of this machine alone. `allow_hosts`: by
    which other names the server may be asked for where only this machine reaches it; "*" is any.

    0 after Ctrl-C, which is how a server ends; 1 when it cannot listen; 2 when there is no such
    agent.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(name)s: %(message)s")
    try:
        local = host in LOOPBACK
        settings: _Settings = {"expose_errors": expose_errors, "allow_origins": allow_origins}
        agents = (
            assistant(os.getcwd(), writable=local, **settings)
            if agent is None
            else load(agent, **settings)
        )
        listener = bind(host, port)
    except StartError as error:
        sys.stderr.write(f"aguia: {error}\n")
        return error.code
    with listener:
        url = url_of(listener, host)
        what = f"the folder {os.getcwd()}" if agent is None else agent
        _say(f"Serving {what} at {url}")
        if agent is None and host not in LOOPBACK:
            _say("Mind that whoever reaches this address can read the files of this folder;")
            _say("nobody can change them, which the assistant only does for this machine.")
        _say(f"Talk to it with: aguia chat {url}")
        _say("Ctrl-C ends it.")
        # uvicorn ends in order and then raises the signal again.
        with suppress(KeyboardInterrupt):
            server_for(
                agents,
                hosts=[*LOOPBACK, *allow_hosts] if local and "*" not in allow_hosts else None,
                own_pages=agent is None,
                on_stop=_waits,
            ).run(sockets=[listener])
    if sys.stdout.isatty():
        _say("")  # the terminal has written ^C, and what follows belongs on a line of its own
    return 0


def _waits(runs: int) -> None:
    if runs:
        _say(f"Waiting for {plural(runs, 'run')} to end; Ctrl-C once more does not wait.")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def assistant(folder: str, *, writable: bool, **settings: Unpack[_Settings]) -> AgentApp:
    """The folder assistant as an application; `writable`: it may change files when told to."""
    from aguia.cli.assistant import folder_assistant

    return _app(folder_assistant(folder, writable=writable), settings)


def load(name: str, **settings: Unpack[_Settings]) -> AgentApp | Agents:
    """The application for "module:name": an agent function, or an application as it is.

    Raises:
        StartError: there is no such module or name, what it names is no agent, or it is an
            application, which has its own say in the settings.
    """
    module_name, _, attribute = name.partition(":")
    attribute = attribute or "agent"
    stem = module_name.removesuffix(".py")
    if stem != module_name:
        stem = stem.removeprefix("./").replace("/", ".")
        if all(part.isidentifier() for part in stem.split(".")):
            raise _no_agent(f"leave out .py: an agent is named as a module, {stem}:{attribute}")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise _no_agent(f"'{name}' does not look like module:agent, for example myagent:agent")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        value: Any = importlib.import_module(module_name)
    except Exception as error:
        raise _no_agent(_import_failure(module_name, error)) from error
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise _no_agent(f"the module '{module_name}' has no '{attribute}'{_hint(value)}")
        value = getattr(value, part)
    if isinstance(value, AgentApp | Agents):
        if settings.get("expose_errors"):
            raise _no_agent(
                f"'{name}' is {_kind(value)}, which --expose-errors does not reach; write"
                " AgentApp(..., expose_errors=True)"
            )
        if origins := settings.get("allow_origins"):
            raise _no_agent(
                f"'{name}' is {_kind(value)}, which --allow-origin does not reach; write"
                f" AgentApp(..., allow_origins={list(origins)})"
            )
        return value
    if isinstance(value, type):
        raise _no_agent(
            f"'{name}' is a class; name a function that takes a Run, or an AgentApp made of one"
        )
    if not callable(value):
        raise _no_agent(
            f"'{name}' is {_kind(value)}; an agent is a function that takes a Run, or an AgentApp"
        )
    if _is_asgi(value):
        raise _no_agent(
            f"'{name}' is an ASGI application, which a server of its own runs: uvicorn"
            f" {module_name}:{attribute}"
        )
    try:
        app = _app(cast(Agent, value), settings)
    except TypeError as error:
        raise _no_agent(f"'{name}': {error}") from error
    if _is_plain(value):
        sys.stderr.write(
            f"aguia: mind that '{name}' is neither async nor a generator: unless what it returns"
            " is a coroutine or an iterator of events, every run of it fails\n"
        )
    return app


def _app(agent: Agent, settings: _Settings) -> AgentApp:
    try:
        return AgentApp(agent, **settings)
    except ValueError as error:
        raise StartError(str(error), code=2) from error


def _is_asgi(value: Callable[..., Any]) -> bool:
    try:
        return is_asgi(inspect.signature(value))
    except (TypeError, ValueError):
        return False  # of what is written in C there may be nothing to see


def _is_plain(value: Any) -> bool:
    """Whether this is a function that by itself gives a run nothing to await or to iterate.

    It may still return what another function makes, so that nobody can know before it runs.
    """
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if not inspect.isfunction(value) or any(is_of(value) for is_of in kinds):
        return False
    return inspect.signature(value).return_annotation in (inspect.Signature.empty, None, "None")


def _no_agent(message: str) -> StartError:
    return StartError(message, code=2)


def _import_failure(module_name: str, error: Exception) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and f"{module_name}.".startswith(f"{missing}."):
        return (
            f"there is no module '{missing}' to import, here in {os.getcwd()} or installed; name"
            " the agent as module:agent"
        )
    if isinstance(error, SyntaxError):
        place = f"{error.filename}, line {error.lineno}"
    else:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename}, line {frame.lineno}"
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"importing '{module_name}' failed: {type(error).__name__}: {text} ({place})"


def _hint(module: Any) -> str:
    """Names of the module that could have been meant."""
    own = getattr(module, "__name__", "")
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and not isinstance(value, type)
        and (getattr(value, "__module__", None) == own or isinstance(value, AgentApp | Agents))
    ]
    return f"; it has {', '.join(names[:5])}" if names else ""


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens on `host` and `port` (0: a free one).

    Raises:
        StartError: the port is taken, or the address is none of this machine's.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise StartError(f"'{host}' is no address that this machine knows") from error
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            # Without it a server cannot come back at once on the port that it just left.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise StartError(_bind_failure(host, port, error)) from error
    return listener


def _bind_failure(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"port {port} on {host} is in use by another program; choose another with --port,"
                " or 0 for a free one"
            )
        case errno.EACCES:
            return f"port {port} is not for you to listen on; choose one from 1024 on with --port"
        case errno.EADDRNOTAVAIL:
            return f"'{host}' is no address of this machine"
    return f"cannot listen on {host}, port {port}: {error.strerror}"


def url_of(listener: socket.socket, host: str) -> str:
    """The URL to reach what `listener` serves, for a person on this machine."""
    port = listener.getsockname()[1]
    name = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/"


class _Guard:
    """Answers only requests that name one of `hosts`, and with `own_pages` no foreign web pages."""

    def __init__(self, app: ASGIApp, hosts: Collection[str], *, own_pages: bool) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._own_pages = own_pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host = _host_of(f"//{headers.get('host', '')}")
            origin = headers.get("origin")
            if host not in self._hosts:
                app = PlainTextResponse(
                    "This server does not answer to that name; --allow-host adds a name.", 421
                )
            elif self._own_pages and origin is not None and _host_of(origin) not in LOOPBACK:
                app = PlainTextResponse("Web pages of other hosts are not answered here.", 403)
        await app(scope, receive, send)


def _host_of(url: str) -> str | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return None if "@" in parts.netloc else parts.hostname


def server_for(
    agents: AgentApp | Agents,
    *,
    hosts: Collection[str] | None = None,
    own_pages: bool = False,
    on_stop: Callable[[int], None] | None = None,
) -> GracefulServer:
    """A server that says nothing of its own unless something is wrong.

    With `hosts` it answers only requests that name one of them as their host. Without that a web
    page could point a host name of its own at 127.0.0.1, and use what is served there. With
    `own_pages` it answers no pages but this machine's: any other could send a request blindly,
    and agree to a change that nobody has seen.

    `on_stop` is told how many runs are under way when the server is told to stop.
    """
    config = uvicorn.Config(
        agents if hosts is None else _Guard(agents, hosts, own_pages=own_pages),
        log_config=None,
        log_level="warning",
        access_log=False,
        ws="none",
    )
    return GracefulServer(config, agents, grace=GRACE_SECONDS, on_stop=on_stop)
