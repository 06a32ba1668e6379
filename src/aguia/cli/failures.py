"""How a command ends, as its exit code, and what went wrong, in one line for a person."""

import ssl
from typing import Final

from aguia.cli.address import shown
from aguia.client.http import causes, words_of
from aguia.protocol.errors import (
    AguiaError,
    ConnectionFailed,
    DecodeError,
    InputRejected,
    InvalidInput,
    ProtocolViolation,
    TruncatedRun,
)

__all__ = ["FAILED", "INTERRUPTED", "OK", "UNFINISHED", "UNREACHABLE", "explain"]

OK: Final = 0
FAILED: Final = 1
UNREACHABLE: Final = 2
UNFINISHED: Final = 3
INTERRUPTED: Final = 130


def explain(error: AguiaError, url: str) -> str:
    """What went wrong with the agent at a URL, and what to do about it; one line for a person.

    What may be a secret in the URL is not in it.
    """
    url = shown(url)
    match error:
        case ConnectionFailed():
            reason, hint = _reason(error)
            return f"Cannot connect to {url}: {reason}. {hint}"
        case InputRejected(status=404 | 405 | 501 as status):
            return f"No agent listens at {url}: it answers {status} to a POST. Check the path."
        case InputRejected(status=401):
            return f"{url} answers 401: it wants credentials; send them with --header."
        case InputRejected(status=403):
            return f"{url} refuses: {error}. Credentials are sent with --header."
        case InputRejected(status=301 | 302 | 303 | 307 | 308 as status):
            return f"{url} answers {status}: it sends elsewhere, and an agent would not; check it."
        case InputRejected():
            rule = f" [{error.rule}]" if error.rule else ""
            return f"The agent refused the request: {error}{rule}"
        case DecodeError(event_type=None, rule="HTTP-2"):
            return f"This is no stream of AG-UI events: {error.message}. Check the URL."
        case ProtocolViolation():
            rule = f" {error.rule}" if error.rule else ""
            event = "" if error.index is None else f" at event {error.index} (counted from 0)"
            kind = f", {error.event_type}" if error.event_type else ""
            path = f" at '{error.path}'" if error.path else ""
            return f"The stream breaks the rule{rule}{event}{kind}: {error.message}{path}"
        case TruncatedRun():
            return f"The run was cut off: {error}"
        case InvalidInput():
            return f"This cannot be sent: {error}"
    return str(error)


_UNTRUSTED: Final = "Whoever runs it has to show one that this machine trusts."
_NO_TLS: Final = "Does it speak http:// instead?"
_SERVE: Final = "`aguia serve` starts an agent."


def _reason(error: BaseException) -> tuple[str, str]:
    """Why a connection failed, in the words of the system where it said any, and what helps."""
    reason = str(error)
    for cause in causes(error):
        # Its numbers are those of the TLS library, and say something else to the system.
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not valid ({cause.verify_message.rstrip('.')})", _UNTRUSTED
        if isinstance(cause, ssl.SSLError):
            said = (cause.reason or "no reason given").lower().replace("_", " ")
            return f"TLS, the secure connection, fails ({said})", _NO_TLS
        reason = words_of(cause) or reason
    return reason.rstrip("."), _SERVE
