"""HTTP with server-sent events or the binary binding, as a transport (http-sse, http-protobuf)."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import anyio
import httpx
import msgspec

from aguia.client.transports import PROTOBUF, SSE, Answer, Timeouts
from aguia.codec.json import STRICT_FAILURES, encode
from aguia.protocol.errors import (
    ConnectionFailed,
    DecodeError,
    InputRejected,
    RunTimeout,
    TransportError,
    TruncatedRun,
)
from aguia.protocol.input import RunAgentInput

__all__ = ["HttpTransport"]

_MAX_REFUSAL: Final = 64 * 1024
_MAX_MOVES: Final = 5
_SHOWN: Final = 300

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADERS_FOR_ANYONE: Final = frozenset(
    ("accept", "accept-encoding", "content-length", "content-type", "host", "user-agent")
)
"""What goes along when an agent has moved to another host; any other header may be a secret."""


class HttpTransport:
    """HTTP with server-sent events, or the binary binding (http-sse, http-protobuf pages).

    An agent that has moved for good or for now (308, 307) is followed with the whole request,
    though never from HTTPS to HTTP, and without credentials to another host. What a URL holds
    besides its host and path (name and password, query) is sent and never shown in an error.

    Args:
        url: where the agent is.
        headers: sent with every request, for authentication and the like.
        timeouts: see `Timeouts`.
        client: an `httpx.AsyncClient` of the caller's, which stays open when this is closed.
        accept: the bindings that are offered to the agent, `SSE` and `PROTOBUF`. Server-sent
            events always are, since any agent may answer with them. An agent that knows the
            binary binding answers with it when it is offered (PB-1): that saves bytes and, in
            Python, costs time, so it is not offered unless asked for.

    Raises `ValueError` for a header that can't be sent or a binding that doesn't exist, and
    `ImportError` for the binary one without the extra `aguia[protobuf]`.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        client: httpx.AsyncClient | None = None,
        accept: str | Iterable[str] = SSE,
    ) -> None:
        self.url = url
        self._headers = _sendable(headers or {})
        self._accept = _bindings(accept)
        self._timeouts = timeouts or Timeouts()
        self._client = client
        self._own_client = client is None

    @asynccontextmanager
    async def open(self, input: RunAgentInput) -> AsyncIterator[Answer]:
        """POST the input and give the answer's body as it arrives (HTTP-1)."""
        if self._client is None:
            self._client = httpx.AsyncClient()
        response = await self._post(self._client, encode(input))
        try:
            await self._check(response)
            async with aclosing(self._chunks(response)) as body:
                yield Answer(response.headers["content-type"], body)
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close the HTTP client, if it is the transport's own."""
        if self._own_client and self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _post(self, client: httpx.AsyncClient, content: bytes) -> httpx.Response:
        request = self._request(client, content)
        auth: Any = httpx.USE_CLIENT_DEFAULT
        if request.url.userinfo:
            # As a header, so that whoever logs the URLs of requests logs no password.
            auth = httpx.BasicAuth(request.url.username, request.url.password)
            request.url = request.url.copy_with(userinfo=b"")
        response = await self._send(client, request, auth)
        for _ in range(_MAX_MOVES):
            moved = response.next_request
            if response.status_code not in (307, 308) or moved is None:
                break
            if moved.url.scheme not in (request.url.scheme, "https"):
                break
            await response.aclose()
            if not _trusts(request.url, moved.url):
                auth = None
                for name in set(moved.headers) - _HEADERS_FOR_ANYONE:
                    del moved.headers[name]
            request = moved
            response = await self._send(client, request, auth)
        return response

    def _request(self, client: httpx.AsyncClient, content: bytes) -> httpx.Request:
        headers = httpx.Headers(
            {"Content-Type": "application/json", "Accept": ", ".join(self._accept)}
        )
        headers.update(self._headers)
        waits = self._timeouts
        try:
            request = client.build_request(
                "POST",
                self.url,
                content=content,
                headers=headers,
                timeout=httpx.Timeout(
                    connect=waits.connect, read=waits.idle, write=waits.idle, pool=waits.connect
                ),
            )
        except httpx.InvalidURL as error:
            # A password that is not escaped makes a URL invalid, and is then quoted in the reason.
            reason = "" if "@" in self.url else f": {error}"
            raise ConnectionFailed(
                f"'{_shown(self.url)}' is no URL of an agent{reason}; expected one like "
                "http://127.0.0.1:8000/"
            ) from None
        url = request.url
        if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535:
            raise ConnectionFailed(
                f"'{_shown(self.url)}' is no URL of an agent; expected one like "
                "http://127.0.0.1:8000/"
            )
        return request

    async def _send(
        self, client: httpx.AsyncClient, request: httpx.Request, auth: Any
    ) -> httpx.Response:
        where = _shown(request.url)
        waits = self._timeouts
        try:
            return await client.send(request, auth=auth, stream=True, follow_redirects=False)
        except (httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise ConnectionFailed(
                f"no connection to {where} within {waits.connect} seconds"
            ) from error
        except (httpx.ConnectError, httpx.ProxyError, httpx.UnsupportedProtocol) as error:
            raise ConnectionFailed(f"no connection to {where}: {_reason(error)}") from error
        except httpx.TimeoutException as error:
            raise RunTimeout(f"{where} did not answer within {waits.idle} seconds") from error
        except httpx.LocalProtocolError:
            # The reason quotes the header, which may be a credential.
            raise TransportError(
                f"the request to {where} can't be sent: one of its headers is not valid"
            ) from None
        except httpx.InvalidURL:
            raise TransportError(f"{where} has moved to what is no URL") from None
        except httpx.TransportError as error:
            raise TransportError(f"the connection to {where} broke: {_reason(error)}") from error

    async def _check(self, response: httpx.Response) -> None:
        """Raise what an answer means that is no stream of events (HTTP-4)."""
        if "," in response.headers.get("content-encoding", ""):
            # Each coding on top of another multiplies what a few bytes can become.
            raise DecodeError(
                f"{_shown(response.url)} answered in several content codings at once; one is read",
                rule="HTTP-2",
            )
        if not response.is_success:
            raise _refusal(response, await self._beginning(response))
        content_type = response.headers.get("content-type", "nothing")
        if content_type.split(";", 1)[0].strip().lower() not in self._accept:
            raise DecodeError(
                f"{_shown(response.url)} answered with {_cut(content_type)} where "
                f"{' or '.join(self._accept)} belongs; it is no AG-UI agent",
                rule="HTTP-2",
            )

    async def _beginning(self, response: httpx.Response) -> bytes:
        """As much of a refusal's body as is worth reading."""
        body = b""
        with anyio.move_on_after(self._timeouts.idle):
            try:
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) >= _MAX_REFUSAL:
                        break
            except (httpx.TransportError, httpx.DecodingError):
                pass  # the status says enough
        return body[:_MAX_REFUSAL]

    async def _chunks(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        where = _shown(response.url)
        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx.TimeoutException as error:
            raise RunTimeout(
                f"nothing came from {where} for {self._timeouts.idle} seconds"
            ) from error
        except httpx.DecodingError as error:
            raise DecodeError(
                f"the body from {where} is not what its content-encoding says: {_reason(error)}",
                rule="HTTP-2",
            ) from error
        except (httpx.TransportError, httpx.StreamError) as error:
            raise TruncatedRun(
                f"the connection to {where} broke before the run ended: {_reason(error)}"
            ) from error


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a header")
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            # The value itself may be a credential and is not shown.
            raise ValueError(
                f"the value of the header '{name}' can't be sent: expected printable ASCII "
                "without space around it"
            )
    return dict(headers)


def _trusts(old: httpx.URL, new: httpx.URL) -> bool:
    """Whether `new` is the same origin, or the same by HTTPS, and may see credentials."""
    if (old.scheme, old.host, old.port) == (new.scheme, new.host, new.port):
        return True
    upgraded = (old.scheme, old.port, new.scheme, new.port) == ("http", None, "https", None)
    return upgraded and old.host == new.host


def _shown(url: httpx.URL | str) -> str:
    """A URL for people to read, without what may be a secret in it."""
    if isinstance(url, httpx.URL):
        return str(url.copy_with(userinfo=b"", query=None, fragment=None))
    # It may not be possible to parse it, so rather too much goes than too little.
    return re.split(r"[?#]", re.sub(r"(?s)^([a-z]+://)?.*@", r"\1", url), maxsplit=1)[0]


def _reason(error: Exception) -> str:
    return _cut(str(error)) or type(error).__name__


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _refusal(response: httpx.Response, body: bytes) -> InputRejected:
    message, rule, path = _explanation(body)
    if response.next_request is not None:
        message = f"it has moved to {_shown(response.next_request.url)}"
    if not message:
        text = body.decode("utf-8", "replace").strip()
        # A page is for a browser, and a status has a name.
        page = text.startswith("<")
        message = (response.reason_phrase or "no explanation") if page or not text else text
    return InputRejected(_cut(message), status=response.status_code, rule=rule, path=path)


def _explanation(body: bytes) -> tuple[str | None, str | None, str | None]:
    """Message, rule and path of a refusal in JSON, in the forms that servers give it."""
    try:
        said = msgspec.json.decode(body)
    except STRICT_FAILURES:
        return None, None, None
    if isinstance(said, dict):
        for name in ("error", "detail"):
            # Ours is {"error": {…}}; FastAPI says {"detail": "…"} or {"detail": [{…}]}.
            if isinstance(said.get(name), dict | list | str):
                said = said[name]
                break
    if isinstance(said, list) and said and isinstance(said[0], dict):
        # What Pydantic says of each error; the first one is enough to start with.
        first = said[0]
        said = {"message": first.get("msg")}
        if isinstance(first.get("loc"), list):
            steps = [step for step in first["loc"] if step != "body"]
            said["path"] = "".join(f"/{_escaped(step)}" for step in steps)
    if isinstance(said, str):
        said = {"message": said}
    if not isinstance(said, dict):
        return None, None, None
    message, rule, path = said.get("message"), said.get("rule"), said.get("path")
    return (
        message if isinstance(message, str) else None,
        rule if isinstance(rule, str) else None,
        path if isinstance(path, str) else None,
    )


def _escaped(step: object) -> str:
    return str(step).replace("~", "~0").replace("/", "~1")


def _bindings(accept: str | Iterable[str]) -> list[str]:
    """The bindings to offer, each once, server-sent events always among them."""
    offered = [accept] if isinstance(accept, str) else list(accept)
    for binding in offered:
        if binding not in (SSE, PROTOBUF):
            raise ValueError(f"{binding!r} is no binding; there are {SSE} and {PROTOBUF}")
        if binding == PROTOBUF:
            # Its import says what to install where the runtime is missing.
            import aguia.codec.protobuf  # noqa: F401
    return list(dict.fromkeys([*offered, SSE]))
