"""An application whose streams are checked as they leave it: what a peer says, by the rules."""

import json
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aguia.testing import Checker, Finding

__all__ = ["Checked"]


@dataclass
class Checked:
    """Passes everything on, and checks each stream that answers a run input.

    Attributes:
        app: what is checked.
        checkers: one for each stream.
    """

    app: ASGIApp
    checkers: list[Checker] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """What was found in all streams."""
        return [finding for checker in self.checkers for finding in checker.findings]

    @property
    def faults(self) -> set[tuple[str, str, str]]:
        """The same without what differs from run to run: severity, rule and type of event."""
        return {(each.severity, each.rules[0], each.event_type or "") for each in self.findings}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asked = b""
        checker: Checker | None = None

        async def receiving() -> Message:
            nonlocal asked
            message = await receive()
            asked += message.get("body", b"")
            return message

        async def sending(message: Message) -> None:
            nonlocal checker
            if message["type"] == "http.response.start":
                headers: Any = dict(message.get("headers", ()))
                if headers.get(b"content-type", b"").startswith(b"text/event-stream"):
                    checker = Checker(json.loads(asked))
                    self.checkers.append(checker)
            elif checker is not None:
                checker.receive(message.get("body", b""))
                if not message.get("more_body", False):
                    checker.end()
            await send(message)

        await self.app(scope, receiving, sending)
