"""The cases of the corpus, as they are in the package: one file of JSON for each."""

import base64
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from aguia.codec.sse import CONTENT_TYPE

__all__ = ["FACTS", "LINE_PROTOCOL", "OUTCOMES", "Case", "case", "cases", "text_of"]

LINE_PROTOCOL: Final = 1
"""The version of the line protocol."""

OUTCOMES: Final = ("accepted", "failed", "rejected", "truncated")
"""What becomes of a stream: its last run ended, by a RUN_FINISHED or a RUN_ERROR; the client
rejects it; or it ends without an end of its run (RUN-8, RUN-11)."""

FACTS: Final[dict[str, tuple[str, ...]]] = {
    "events": ("eventTypes", "eventTypesAbsent", "eventPaths", "eventAbsentPaths", "runError"),
    "messages": ("messages", "messageCount", "messageAbsentPaths"),
    "state": ("state",),
    "warnings": ("warnings", "noWarnings"),
    "rule": ("rule",),
    "index": ("index",),
    "path": ("path",),
    "pendingToolCallIds": ("pendingToolCallIds",),
    "interrupts": ("interrupts",),
    "conversationOutcome": ("conversationOutcome",),
    "usage": ("usage",),
    "request": ("request", "requestAbsentPaths"),
    "nextRequest": ("nextRequest",),
}
"""What a reply may say besides its outcome, and the expectations that each is compared with."""


@dataclass(frozen=True)
class Case:
    """One stream and what has to become of it.

    Attributes:
        name: of the case; the first word is its area.
        description: what it shows, in one sentence.
        rules: the ids of the rules that it shows.
        input: the run input that the stream answers, whole; None where the client knows of none.
        stream: its events, as they are sent.
        expect: what has to become of it, as `docs/how-to/corpus.md` describes it.
        reference: how the reference client differs, where it does, else "".
    """

    name: str
    description: str
    rules: tuple[str, ...]
    input: dict[str, Any] | None
    stream: tuple[Any, ...]
    expect: dict[str, Any]
    reference: str = ""

    @property
    def outcome(self) -> str:
        """What becomes of the stream: one of `OUTCOMES`."""
        outcome: str = self.expect["outcome"]
        return outcome

    @property
    def asks(self) -> tuple[str, ...]:
        """The facts that are known of this case, and that a reply is compared in."""
        return tuple(
            fact for fact, names in FACTS.items() if not self.expect.keys().isdisjoint(names)
        )

    def frames(self) -> list[bytes]:
        """The events as server-sent events, the bytes of each by itself."""
        return [_frame(event) for event in self.stream]

    def request(self, split: int | None = None) -> dict[str, Any]:
        """What a client is asked, as one line of the line protocol says it.

        Args:
            split: cuts the body into pieces of so many bytes; None gives an event a piece.
        """
        chunks = self.frames()
        if split is not None:
            body = b"".join(chunks)
            chunks = [body[start : start + split] for start in range(0, len(body), split)]
        return {
            "version": LINE_PROTOCOL,
            "case": self.name,
            "contentType": CONTENT_TYPE,
            "input": self.input,
            "chunks": [base64.b64encode(chunk).decode() for chunk in chunks],
            "events": list(self.stream),
            "asks": list(self.asks),
        }


def _frame(event: Any) -> bytes:
    """An event as a frame; half a surrogate pair can only travel as an escape."""
    try:
        text = json.dumps(event, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        text = json.dumps(event).encode()
    return b"data: " + text + b"\n\n"


@cache
def cases() -> tuple[Case, ...]:
    """All cases, by their names in alphabetical order."""
    return tuple(map(_read, _texts().values()))


def case(name: str) -> Case:
    """The case of a name; raises `KeyError` where there is none."""
    return _read(text_of(name))


def text_of(name: str) -> str:
    """The file of a case, as it is; raises `KeyError` where there is none."""
    text = _texts().get(name)
    if text is None:
        raise KeyError(f"the corpus has no case '{name}'")
    return text


@cache
def _texts() -> dict[str, str]:
    folder = files("aguia.testing.corpus") / "streams"
    return {
        file.name.removesuffix(".json"): file.read_text(encoding="utf-8")
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".json")
    }


def _read(text: str) -> Case:
    document = json.loads(text)
    stream = document["stream"]
    return Case(
        name=document["name"],
        description=document["description"],
        rules=tuple(document["rules"]),
        input=_input(document.get("input", {}), stream),
        stream=tuple(stream),
        expect=document["expect"],
        reference=document.get("reference", ""),
    )


def _input(given: dict[str, Any] | None, stream: list[Any]) -> dict[str, Any] | None:
    """The whole of an input of which a file has what matters; the first event names the run."""
    if given is None:
        return None
    first = next((event for event in stream if isinstance(event, dict) and "runId" in event), {})
    return {
        "threadId": first.get("threadId", "thread-1"),
        "runId": first.get("runId", "run-1"),
        "protocolVersion": "1.0",
        "messages": [],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
        **given,
    }
