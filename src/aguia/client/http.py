"""HTTP with server-sent events, or the binary binding (http-sse, http-protobuf pages)."""

import importlib.util
import logging
import math
import os
import random
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeAlias, cast

import anyio
import httpx
import msgspec

from aguia.client.transports import PROTOBUF, SSE, Answer, Timeouts
from aguia.codec.json import STRICT_FAILURES, encode, parse_object
from aguia.codec.negotiation import media_type_of
from aguia.protocol.errors import (
    ConnectionFailed,
    DecodeError,
    InputRejected,
    RunTimeout,
    TransportError,
    TruncatedRun,
    printable,
)
from aguia.protocol.input import RunAgentInput
from aguia.protocol.pointers import pointer_to

__all__ = ["Auth", "HttpTransport", "Retries", "causes", "shown_url", "words_of"]

_logger: Final = logging.getLogger("aguia")

Auth: TypeAlias = tuple[str, str] | Callable[[httpx.Request], httpx.Request] | httpx.Auth
"""What httpx takes for authentication: name and password, a function, or an `httpx.Auth`."""

_MAX_REFUSAL: Final = 64 * 1024
_MAX_DECLARATION: Final = 1024 * 1024
_MAX_MOVES: Final = 5
_SHOWN: Final = 300

_KEEP_METHOD: Final = (307, 308)
_MOVED: Final = (301, 302, 303, *_KEEP_METHOD)
_LATER: Final = (429, 503)
"""Refusals that ask to come back: no run has started, so asking again starts no second one."""

_NO_CONNECTION: Final = (httpx.ConnectError, httpx.ProxyError, httpx.UnsupportedProtocol)

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADERS_FOR_ANYONE: Final = frozenset(
    ("accept", "accept-encoding", "content-length", "content-type", "host", "user-agent")
)
"""What goes along when an agent has moved to another host; any other header may be a secret."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often to try again, and how long to wait before that.

    It is tried again only where no run can have started: when no connection was made, and when
    the agent answered 429 or 503. A `Retry-After` of an answer is kept to when it is not longer
    than `most`. Else the first wait is `first` and each further one twice as long as the one
    before, `most` at most, and shortened by chance by up to a half, so that clients which
    failed together don't come back together.

    Attributes:
        count: how many further tries there are.
        first, most: seconds.

    Raises `ValueError` for what is no such number.
    """

    count: int = 2
    first: float = 0.25
    most: float = 30.0

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 0:
            raise ValueError(f"the number of retries is 0 at least, not {self.count!r}")
        if not 0 <= self.first <= self.most < math.inf:
            raise ValueError(f"no times to wait: first {self.first} and most {self.most} seconds")

    def wait(self, tries: int, retry_after: str = "") -> float:
        """Seconds to wait after so many tries."""
        asked = _seconds(retry_after)
        if asked is not None and asked <= self.most:
            return asked
        # Beyond some tries it is `most` anyway, and no number for a float.
        longest = min(self.first * 2 ** min(tries - 1, 64), self.most)
        return random.uniform(longest / 2, longest)


class HttpTransport:
    """HTTP with server-sent events, or the binary binding (http-sse, http-protobuf pages).

    An agent that has moved for good or for now (308, 307) is followed with the whole request,
    though never from HTTPS to HTTP, and without credentials to another host. What a URL holds
    besides its host and path (name and password, query) is sent and never shown in an error. Of
    several credentials `auth` counts, else an `Authorization` among the headers, else the URL's.

    Args:
        url: where the agent is.
        headers: sent with every request, for authentication and the like.
        auth: sent with every request to the agent's own host; see `Auth`.
        proxy: the URL of a proxy. Without one, the environment's are used.
        timeouts: see `Timeouts`.
        retries: how many further tries there are where a try can't have started a run, or
            `Retries`; 0 for none.
        client: an `httpx.AsyncClient` of the caller's, which stays open when this is closed.
            The transport's own speaks HTTP/2 where `h2` is installed (`aguia[http2]`) and the
            agent offers it.
        accept: the bindings that are offered to the agent, `SSE` and `PROTOBUF`. Server-sent
            events always are, since any agent may answer with them. An agent that knows the
            binary binding answers with it when it is offered (PB-1): that saves bytes and, in
            Python, costs time, so it is not offered unless asked for.

    Raises `ValueError` for a header that can't be sent, a proxy that is none or is given
    together with a client, and a binding that doesn't exist; `TypeError` for authentication
    that is none; `ImportError` for the binary binding without the extra `aguia[protobuf]`, and
    for a SOCKS proxy without `httpx[socks]`.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: Auth | None = None,
        proxy: str | None = None,
        timeouts: Timeouts | None = None,
        retries: int | Retries = 2,
        client: httpx.AsyncClient | None = None,
        accept: str | Iterable[str] = SSE,
    ) -> None:
        if proxy is not None and client is not None:
            raise ValueError("a proxy is a setting of the client: give one of the two")
        self.url = url
        self._headers = _sendable(headers or {})
        self._auth = _auth(auth)
        self._proxy = None if proxy is None else _proxy(proxy)
        self._accept = _bindings(accept)
        self._timeouts = timeouts or Timeouts()
        self._retries = retries if isinstance(retries, Retries) else Retries(retries)
        self._client = client
        self._own_client = client is None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {shown_url(self.url)}>"

    @asynccontextmanager
    async def open(self, input: RunAgentInput) -> AsyncIterator[Answer]:
        """POST the input and give the answer's body as it arrives (HTTP-1)."""
        headers = {"Content-Type": "application/json", "Accept": ", ".join(self._accept)}
        request = self._request("POST", self.url, headers, encode(input))
        auth = self._credentials(request)
        deadline = self._deadline()
        response: httpx.Response | None = None
        try:
            # No scope is open at a `yield`: whoever iterates may leave in another task.
            with anyio.CancelScope(deadline=deadline) as scope:
                response = await self._answer(request, auth)
                await self._check(response)
            if scope.cancelled_caught or response is None:
                raise self._too_long(request)
            async with aclosing(self._chunks(response, deadline)) as body:
                yield Answer(response.headers["content-type"], body)
        finally:
            if response is not None:
                await response.aclose()

    async def capabilities(self, url: str | None = None) -> Any | None:
        """What the agent declares of itself, by GET; None where nothing is found (404, 405).

        Args:
            url: where the declaration is, absolute or relative to the agent's URL. By default it
                is `capabilities` below that URL, which is this package's convention. Headers and
                authentication go along to the agent's own origin only.

        Raises `TransportError`, `InputRejected` for a refusal, and `DecodeError` for what is no
        JSON object or is larger than a megabyte.
        """
        request, auth = self._beside(url)
        declaration: Any = None
        with anyio.CancelScope(deadline=self._deadline()) as scope:
            declaration = await self._declaration(request, auth)
        if scope.cancelled_caught:
            raise self._too_long(request)
        return declaration

    async def close(self) -> None:
        """Close the HTTP client, if it is the transport's own."""
        if self._own_client and self._client is not None:
            await self._client.aclose()
            self._client = None

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(http2=_knows_http2(), proxy=self._proxy)
        return self._client

    def _deadline(self) -> float:
        total = self._timeouts.total
        return math.inf if total is None else anyio.current_time() + total

    def _too_long(self, request: httpx.Request) -> RunTimeout:
        return RunTimeout(
            f"the answer from {shown_url(request.url)} had not ended after "
            f"{self._timeouts.total} seconds, the limit for all of it"
        )

    # The request

    def _request(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> httpx.Request:
        waits = self._timeouts
        # However a header of the caller's is written, it takes the place of ours.
        sent = httpx.Headers(headers)
        sent.update(self._headers)
        try:
            request = self._http().build_request(
                method,
                url,
                content=content,
                headers=sent,
                timeout=httpx.Timeout(
                    connect=waits.connect, read=waits.idle, write=waits.idle, pool=waits.connect
                ),
            )
        except httpx.InvalidURL as error:
            # A password that is not escaped makes a URL invalid, and is then quoted in the reason.
            reason = "" if "@" in url else f": {error}"
            raise ConnectionFailed(
                f"'{shown_url(url)}' is no URL of an agent{reason}; expected one like "
                "http://127.0.0.1:8000/"
            ) from None
        found = request.url
        if found.scheme not in ("http", "https") or not found.host or (found.port or 0) > 65535:
            raise ConnectionFailed(
                f"'{shown_url(url)}' is no URL of an agent; expected one like http://127.0.0.1:8000/"
            )
        return request

    def _credentials(self, request: httpx.Request) -> Any:
        """What to authenticate the request with; its URL is rid of what it holds of that."""
        auth: Any = httpx.USE_CLIENT_DEFAULT if self._auth is None else self._auth
        if request.url.userinfo:
            if self._auth is None and "authorization" not in request.headers:
                # As a header, so that whoever logs the URLs of requests logs no password.
                auth = httpx.BasicAuth(request.url.username, request.url.password)
            request.url = request.url.copy_with(userinfo=b"")
        return auth

    def _beside(self, url: str | None) -> tuple[httpx.Request, Any]:
        """The request for the agent's declaration, and what to authenticate it with."""
        agent = self._request("GET", self.url, {}).url
        if url is None:
            path, _, query = agent.raw_path.partition(b"?")
            path = path.rstrip(b"/") + b"/capabilities"
            url = str(agent.copy_with(raw_path=path + (b"?" + query if query else b"")))
        else:
            try:
                url = str(agent.join(url))
            except httpx.InvalidURL:
                pass  # said below
        request = self._request("GET", url, {})
        # What the caller says of the body of a run, and of its answer, is of no use here.
        request.headers.pop("content-type", None)
        request.headers["accept"] = "application/json"
        if _trusts(agent, request.url):
            if not request.url.userinfo:
                request.url = request.url.copy_with(userinfo=agent.userinfo)
            return request, self._credentials(request)
        _strip(request)
        auth = None
        if request.url.userinfo:
            auth = httpx.BasicAuth(request.url.username, request.url.password)
            request.url = request.url.copy_with(userinfo=b"")
        return request, auth

    # The exchange

    async def _answer(self, request: httpx.Request, auth: Any) -> httpx.Response:
        """Send the request, and again while that is safe and may help."""
        tries = 0
        while True:
            tries += 1
            retry_after = ""
            try:
                response = await self._follow(request, auth)
            except ConnectionFailed as error:
                if tries > self._retries.count or not _may_pass(error):
                    raise
                failure = str(error)
            else:
                if tries > self._retries.count or response.status_code not in _LATER:
                    return response
                await response.aclose()
                retry_after = response.headers.get("retry-after", "")
                failure = f"{shown_url(response.url)} answered {response.status_code}"
            wait = self._retries.wait(tries, retry_after)
            _logger.info(
                "%s; trying again in %.2f s (%d of %d)", failure, wait, tries, self._retries.count
            )
            await anyio.sleep(wait)

    async def _follow(self, request: httpx.Request, auth: Any) -> httpx.Response:
        """Send the request to where the agent is now, with the method that it has."""
        follows = _KEEP_METHOD if request.method == "POST" else _MOVED
        response = await self._send(request, auth)
        for _ in range(_MAX_MOVES):
            moved = response.next_request
            if response.status_code not in follows or moved is None:
                break
            if moved.url.scheme not in (request.url.scheme, "https"):
                break
            await response.aclose()
            if not _trusts(request.url, moved.url):
                auth = None
                _strip(moved)
            elif (cookie := self._given_cookie()) and request.headers.get("cookie") == cookie:
                # httpx leaves it out of every request that follows, and knows only its own.
                moved.headers["cookie"] = cookie
            request = moved
            response = await self._send(request, auth)
        return response

    def _given_cookie(self) -> str | None:
        """The cookies that the caller gave as a header, other than those of the client's jar."""
        given: str | None = httpx.Headers(self._headers).get("cookie")
        return given or self._http().headers.get("cookie")

    async def _send(self, request: httpx.Request, auth: Any) -> httpx.Response:
        where = shown_url(request.url)
        through = "" if self._proxy is None else f" through the proxy {shown_url(self._proxy.url)}"
        waits = self._timeouts
        try:
            return await self._http().send(request, auth=auth, stream=True, follow_redirects=False)
        except (httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise ConnectionFailed(
                f"no connection to {where}{through} within {waits.connect} seconds"
            ) from error
        except _NO_CONNECTION as error:
            raise ConnectionFailed(
                f"no connection to {where}{through}: {_reason(error)}"
            ) from error
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
        _check_coding(response)
        if not response.is_success:
            raise _refusal(response, await self._beginning(response))
        content_type = response.headers.get("content-type", "nothing")
        if media_type_of(content_type) not in self._accept:
            raise DecodeError(
                f"{shown_url(response.url)} answered with {_cut(content_type)} where "
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

    async def _chunks(
        self, response: httpx.Response, deadline: float
    ) -> AsyncGenerator[bytes, None]:
        where = shown_url(response.url)
        try:
            async with aclosing(cast("AsyncGenerator[bytes]", response.aiter_bytes())) as chunks:
                while True:
                    with anyio.CancelScope(deadline=deadline) as scope:
                        chunk = await anext(chunks, None)
                    if scope.cancelled_caught:
                        raise self._too_long(response.request)
                    if chunk is None:
                        return
                    yield chunk
                    # Reading that never has to wait would never be cancelled.
                    if anyio.current_time() > deadline:
                        raise self._too_long(response.request)
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

    async def _declaration(self, request: httpx.Request, auth: Any) -> Any | None:
        response = await self._answer(request, auth)
        where = shown_url(response.url)
        try:
            if response.status_code in (404, 405):
                return None
            _check_coding(response)
            if not response.is_success:
                raise _refusal(response, await self._beginning(response))
            body = bytearray()
            async with aclosing(self._chunks(response, math.inf)) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > _MAX_DECLARATION:
                        raise DecodeError(
                            f"what {where} declares is larger than {_MAX_DECLARATION} bytes",
                            rule=None,
                        )
        except TruncatedRun as error:
            raise TransportError(
                f"the connection to {where} broke before it had said what the agent declares"
            ) from error
        finally:
            await response.aclose()
        try:
            return parse_object(bytes(body))
        except DecodeError as error:
            raise DecodeError(
                f"{where} declares no capabilities: {error.message.replace('frame', 'body')}",
                rule=error.rule,
            ) from None


def _may_pass(error: ConnectionFailed) -> bool:
    """Whether the next try may succeed where this one failed."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError | httpx.UnsupportedProtocol):
            return False
        cause = cause.__cause__ or cause.__context__
    return True


def _seconds(retry_after: str) -> float | None:
    """What a `Retry-After` asks for, which is seconds or a date; None where it is neither."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:20])
    try:
        moment = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):  # a year, or a time zone, of too many digits
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _knows_http2() -> bool:
    return importlib.util.find_spec("h2") is not None


def _auth(auth: Any) -> Any:
    """Authentication as httpx takes it, or an error that doesn't show it."""
    if auth is None or isinstance(auth, httpx.Auth) or callable(auth):
        return auth
    if isinstance(auth, tuple) and len(auth) == 2 and all(isinstance(part, str) for part in auth):
        return httpx.BasicAuth(*auth)
    raise TypeError("auth is a name and a password, a function of a request, or an httpx.Auth")


def _proxy(url: str) -> httpx.Proxy:
    try:
        proxy = httpx.Proxy(url)
        if not proxy.url.host:
            raise ValueError("no host")
    except (ValueError, httpx.InvalidURL):
        raise ValueError(
            f"'{shown_url(url)}' is no URL of a proxy; expected one like http://127.0.0.1:3128"
        ) from None
    if proxy.url.scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
        raise ImportError("a SOCKS proxy needs what httpx[socks] installs")
    return proxy


def _check_coding(response: httpx.Response) -> None:
    if "," in response.headers.get("content-encoding", ""):
        # Each coding on top of another multiplies what a few bytes can become.
        raise DecodeError(
            f"{shown_url(response.url)} answered in several content codings at once; one is read",
            rule="HTTP-2",
        )


def _strip(request: httpx.Request) -> None:
    """Leave out of a request what may be a secret, for whom it isn't meant."""
    for name in set(request.headers) - _HEADERS_FOR_ANYONE:
        del request.headers[name]


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


def shown_url(url: httpx.URL | str) -> str:
    """A URL for people to read, without what may be a secret in it."""
    if isinstance(url, httpx.URL):
        return str(url.copy_with(userinfo=b"", query=None, fragment=None))
    # It may not be possible to parse it, so rather too much goes than too little.
    return re.split(r"[?#]", re.sub(r"(?s)^([a-z]+://)?.*@", r"\1", url), maxsplit=1)[0]


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came of, the nearest first; of a group its first member."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup):  # one for each address that was tried
            cause = cause.exceptions[0]
        yield cause
        cause = cause.__cause__ or cause.__context__


def words_of(cause: BaseException) -> str | None:
    """What the system says of its error; None for one that is not the system's."""
    if isinstance(cause, socket.gaierror):
        return f"there is no such host ({cause.strerror})"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno)
    return None


def _reason(error: Exception) -> str:
    """Why a connection failed or broke, in the words of the system where it said any."""
    reason = str(error) or type(error).__name__
    for cause in causes(error):
        if isinstance(cause, ssl.SSLError):
            reason = str(cause)
            if getattr(cause, "reason", None) == "WRONG_VERSION_NUMBER":
                reason = "it does not speak TLS there; is it http and not https?"
        else:
            reason = words_of(cause) or reason
    return printable(_cut(reason))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _refusal(response: httpx.Response, body: bytes) -> InputRejected:
    message, rule, path = _explanation(body)
    if response.next_request is not None:
        message = f"it has moved to {shown_url(response.next_request.url)}"
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
            said["path"] = pointer_to(step for step in first["loc"] if step != "body")
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
