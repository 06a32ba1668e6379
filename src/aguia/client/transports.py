"""How a run input reaches an agent and how its answer comes back (transports page, TRANS-1).

A transport delivers the input first, keeps the order of what comes back, and tells a clean end
from a broken one. It knows nothing of events.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import httpx
import msgspec

from aguia.codec import sse
from aguia.codec.json import encode
from aguia.protocol.errors import (
    ConnectionFailed,
    DecodeError,
    InputRejected,
    RunTimeout,
    TransportError,
    TruncatedRun,
)
from aguia.protocol.input import RunAgentInput

__all__ = ["Answer", "HttpTransport", "Timeouts", "Transport"]

_MAX_REFUSAL: Final = 64 * 1024
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent answered: a body of some content type, still arriving."""

    content_type: str
    body: AsyncIterator[bytes]


class Transport(Protocol):
    """Carries one run input to an agent and its answer back."""

    def open(self, input: RunAgentInput) -> AbstractAsyncContextManager[Answer]:
        """Send the input. Raises `InputRejected`, or a `TransportError`."""

    async def close(self) -> None:
        """Release what the transport holds."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds; None waits for ever.

    Attributes:
        connect: for a connection.
        idle: for the next bytes, comments included, once the request has been sent.
    """

    connect: float | None = 10.0
    idle: float | None = 120.0


class HttpTransport:
    """HTTP with server-sent events (http-sse page).

    Args:
        url: where the agent is.
        headers: sent with every request, for authentication and the like.
        timeouts: see `Timeouts`.
        client: an `httpx.AsyncClient` of the caller's, which stays open when this is closed.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        self.url = url
        self._headers = dict(headers or {})
        self._timeouts = timeouts or Timeouts()
        self._client = client
        self._own_client = client is None

    @asynccontextmanager
    async def open(self, input: RunAgentInput) -> AsyncIterator[Answer]:
        """POST the input and give the answer's body as it arrives (HTTP-1)."""
        if self._client is None:
            self._client = httpx.AsyncClient()
        waits = self._timeouts
        try:
            request = self._client.build_request(
                "POST",
                self.url,
                content=encode(input),
                headers={
                    "Content-Type": "application/json",
                    "Accept": sse.CONTENT_TYPE,
                    **self._headers,
                },
                timeout=httpx.Timeout(
                    connect=waits.connect, read=waits.idle, write=waits.idle, pool=waits.connect
                ),
            )
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError) as error:
            raise ConnectionFailed(f"'{self.url}' is no URL of an agent: {error}") from None
        response = await self._send(request)
        try:
            await self._check(response)
            yield Answer(response.headers["content-type"], self._chunks(response))
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close the HTTP client, if it is the transport's own."""
        if self._own_client and self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _send(self, request: httpx.Request) -> httpx.Response:
        assert self._client is not None
        try:
            return await self._client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            raise ConnectionFailed(f"no connection to {self.url}: {error}") from error
        except httpx.TimeoutException as error:
            raise RunTimeout(
                f"{self.url} did not answer within {self._timeouts.idle} seconds"
            ) from error
        except httpx.TransportError as error:
            raise TransportError(f"the connection to {self.url} broke: {error}") from error

    async def _check(self, response: httpx.Response) -> None:
        """Raise what an answer means that is no stream of events (HTTP-4)."""
        if response.status_code != httpx.codes.OK:
            raise _refusal(response, await _beginning(response))
        content_type = response.headers.get("content-type", "nothing")
        if content_type.split(";", 1)[0].strip().lower() != sse.CONTENT_TYPE:
            raise DecodeError(
                f"{self.url} answered with {content_type} where {sse.CONTENT_TYPE} belongs; "
                "it is no AG-UI agent",
                rule="HTTP-2",
            )

    async def _chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx.TimeoutException as error:
            raise RunTimeout(
                f"nothing came from {self.url} for {self._timeouts.idle} seconds"
            ) from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise TruncatedRun(f"the connection broke before the run ended: {error}") from error


async def _beginning(response: httpx.Response) -> bytes:
    body = b""
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) >= _MAX_REFUSAL:
                break
    except (httpx.TransportError, httpx.DecodingError):
        pass  # the status says enough
    return body[:_MAX_REFUSAL]


def _refusal(response: httpx.Response, body: bytes) -> InputRejected:
    said: dict[str, Any] = {}
    try:
        value = msgspec.json.decode(body)
        error = value.get("error") if isinstance(value, dict) else None
        said = error if isinstance(error, dict) else value if isinstance(value, dict) else {}
    except msgspec.DecodeError:
        pass
    message = said.get("message") or said.get("detail")
    if not isinstance(message, str):
        text = body.decode("utf-8", "replace").strip()
        message = text[:_SHOWN] if text and not text.startswith("<") else response.reason_phrase
    rule, path = said.get("rule"), said.get("path")
    return InputRejected(
        message,
        status=response.status_code,
        rule=rule if isinstance(rule, str) else None,
        path=path if isinstance(path, str) else None,
    )
