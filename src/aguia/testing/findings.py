"""What a check finds: one value for each fault, with what was seen, what belongs there, and why.

`explain` turns what the stages of the pipeline raise and warn of into findings. Beside it stand
the tables of what each rule expects and of what usually causes a fault of its kind.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from msgspec import Struct, structs

from aguia.protocol.errors import MalformedEvent, ProtocolViolation, ProtocolWarning
from aguia.protocol.rules import RULES

__all__ = ["PAGES", "Finding", "Severity", "explain", "page_of", "strictly"]

Severity: TypeAlias = Literal["error", "warning"]
"""An error ends the run for every conforming reader; a warning is lost material, or a doubt."""

PAGES: Final = "https://docs.ag-ui.com/spec/1.0/"
"""Where the pages of the specification are."""


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault of a stream.

    Attributes:
        severity: see `Severity`.
        rule: the id of the rule, as the reading side names it; None for a limit of this package.
        related: narrower rules that the same fault breaks.
        message: what is wrong, in one sentence.
        seen, expected: what was there, and what belongs there.
        hint: the likely cause, or "".
        page: the address of the page of the specification, or None.
        index: the number of the event in the stream, counted from 0; None for the whole stream.
        event_type: the `type` of the event, or None.
        path: a JSON Pointer to the culprit inside the event, or None.
        run_id: the run that was under way, or None.
        line: the line of the recording, counted from 1, or None where it has none.
        count: how often the same was found, and `also` the numbers of the next such events.
        must: whether it is a warning though a producer must not do it: no reader may reject it.
    """

    severity: Severity
    rule: str | None
    message: str
    seen: str
    expected: str
    hint: str = ""
    page: str | None = None
    index: int | None = None
    event_type: str | None = None
    path: str | None = None
    run_id: str | None = None
    related: tuple[str, ...] = ()
    line: int | None = None
    count: int = 1
    also: tuple[int, ...] = ()
    must: bool = False

    @property
    def rules(self) -> tuple[str, ...]:
        """All rules that the fault breaks, the one that names it first; `LIMIT` for a limit."""
        return (self.rule or "LIMIT", *self.related)

    @property
    def general_path(self) -> str:
        """The path as that of the same fault in any element of the same lists; "" without one."""
        steps = (self.path or "").split("/")
        return "/".join("*" if step.isdigit() else step for step in steps)

    @property
    def place(self) -> str:
        """Where it is, for people: event, line, type and path."""
        parts = []
        if self.index is not None:
            parts.append(f"event {self.index}")
        if self.line is not None:
            parts.append(f"line {self.line}")
        where = ", ".join(parts)
        if self.event_type is not None:
            where = f"{where} {self.event_type}".lstrip()
        if self.path:
            where = f"{where} at {self.path}".lstrip()
        return where or "the stream"

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.severity} {self.rules[0]} {self.place}: {self.message}{times}"


def strictly(findings: Iterable[Finding]) -> list[Finding]:
    """The same, where what a producer must not do is an error, whoever may reject it or not."""
    return [
        structs.replace(finding, severity="error") if finding.must else finding
        for finding in findings
    ]


def page_of(rule_id: str | None) -> str | None:
    """The address of the page where a rule stands, or None where there is none."""
    rule = RULES.get(rule_id) if rule_id is not None else None
    return f"{PAGES}{rule.page}" if rule is not None and rule.page is not None else None


def explain(problem: ProtocolViolation | ProtocolWarning) -> Finding:
    """The finding for what a stage raised, or warned of. Run, line and place are the caller's."""
    severity: Severity = "error" if isinstance(problem, ProtocolViolation) else "warning"
    seen, expected = _sides(problem)
    return Finding(
        severity=severity,
        rule=problem.rule,
        related=_narrower(problem),
        message=problem.message,
        seen=seen,
        expected=expected,
        hint=hint_for(problem),
        page=page_of(problem.rule),
        index=problem.index,
        event_type=problem.event_type,
        path=problem.path,
    )


_NOT: Final = re.compile(r"(?:'type' )?must be (.+), not (.+)", re.DOTALL)
_MISSING: Final = re.compile(r"('.+') is required and missing", re.DOTALL)


def _sides(problem: ProtocolViolation | ProtocolWarning) -> tuple[str, str]:
    message = problem.message
    if isinstance(problem, MalformedEvent):
        if match := _NOT.fullmatch(message):
            return match[2], match[1]
        if match := _MISSING.fullmatch(message):
            return f"no {match[1]}", f"the member {match[1]}, which is required"
        if message.startswith("must "):
            return "a value out of bounds", message.removeprefix("must ")
    expected = _EXPECTED.get(problem.rule or "")
    if expected is None:
        rule = RULES.get(problem.rule or "")
        expected = rule.text if rule is not None else "an event within the limits of the reader"
    return message, expected


_EXPECTED: Final[dict[str, str]] = {
    "HTTP-2": "one event, a JSON object in UTF-8",
    "PB-2": "frames of a 4-byte length and one encoded event of a known kind",
    "EVT-1": "an event: a JSON object with a type",
    "PROC-1": "one of the 31 event types, spelled as the specification does",
    "PROC-2": "only members and values that the protocol describes",
    "PROC-4": "a value that the protocol describes, without which the event can't be read",
    "RUN-1": "RUN_STARTED, or RUN_ERROR, as the first event",
    "RUN-3": "the same runId and threadId from the run's start to its end",
    "RUN-4": "RUN_FINISHED or RUN_ERROR before the next RUN_STARTED",
    "RUN-5": "an end for everything that the run opened, before RUN_FINISHED",
    "RUN-6": "nothing but RUN_STARTED after the end of a run (or a late RUN_ERROR)",
    "RUN-11": "RUN_FINISHED or RUN_ERROR before the stream ends",
    "RUN-14": "STEP_STARTED and STEP_FINISHED in pairs, by name and owner",
    "STREAM-1": "start, then content, then end, for each id",
    "STREAM-4": "the opener's role and name, or tool name and parent, when an id is opened again",
    "REAS-2": "start, then content, then end, for each id, and all ended before RUN_FINISHED",
    "REAS-4": "the id of a message, or of a tool call, that the conversation holds",
    "CHUNK-2": "messageId on a first chunk; toolCallId and toolCallName on a first tool chunk",
    "CHUNK-4": "the value that the first chunk established, or none",
    "CHUNK-7": "an id or a subagentRunId that tells which stream the chunk continues",
    "CHUNK-8": "the tag of the subagent that opened the item, or none",
    "SUB-2": "SUBAGENT_STARTED first, once in a run, with a known parent, and an end for it",
    "SUB-4": "the tag of the subagent that opened the item, or none",
    "TOOL-5": "a call with the attribution of the message that carries it",
    "STATE-4": "a patch that applies to the state as it is",
    "ACT-3": "an ACTIVITY_SNAPSHOT with that id before its deltas",
    "TOOL-4": "an assistant message as the parent of a call",
    "TEXT-3": "an id that no activity message has",
    "EVT-6": "an id of its own for each thing that is named",
    "MSG-1": "a snapshot that holds the messages which are still written to",
    "VER-2": "a version such as 1.0",
    "VER-4": "the shape that has replaced the retired one",
}

_HINTS: Final[tuple[tuple[str, str, str], ...]] = (
    # rule, a pattern found in "TYPE path message", the likely cause
    (
        "PROC-3",
        "not null",
        "The serialiser writes null for what is absent; leave the member out "
        "(exclude_none in Pydantic, an omitted property in JavaScript).",
    ),
    (
        "PROC-3",
        "/timestamp must be a whole number, not the string",
        "Send milliseconds since the epoch as a number, not a date as text.",
    ),
    ("PROC-3", "/timestamp must", "Round the clock's milliseconds to a whole number."),
    ("PROC-3", "/type", "Each frame has to be one event with its type; is it wrapped in another?"),
    (
        "PROC-3",
        "/role must be 'reasoning'",
        "A reasoning message has one role, reasoning; it is no assistant message.",
    ),
    ("PROC-3", "not the number", "An id or a text has to be sent as a string; convert it."),
    (
        "PROC-3",
        "must be a string, not an (object|array)",
        "Structured values are sent as text: encode them as JSON first.",
    ),
    (
        "PROC-3",
        "is required and missing",
        "Members are written in camelCase on the wire; is it there in snake_case, or left out "
        "because it is empty?",
    ),
    ("PROC-3", "", "The value does not fit the schema; `aguia schema` prints it."),
    ("PROC-1", "", "Is it a spelling mistake, a newer version's event, or one for CUSTOM?"),
    (
        "PROC-2",
        "member '[a-z]+(_[a-z]+)+'",
        "Members are written in camelCase on the wire; this one is in snake_case.",
    ),
    (
        "PROC-2",
        "/subagentRunId",
        "Run-scoped events belong to the run and to no subagent: send them untagged.",
    ),
    ("PROC-2", "", "Readers lose it. What is your own belongs in metadata, RAW or CUSTOM."),
    ("PROC-4", "", "The whole event is lost to readers; is the value of a newer version?"),
    (
        "HTTP-2",
        "not JSON",
        "Was the event cut, or written over several lines without a `data:` for each?",
    ),
    ("HTTP-2", "not UTF-8", "Encode the stream as UTF-8."),
    ("HTTP-2", "an array", "Send one event per frame, not a list of them."),
    ("PB-2", "", "Is it another message type, or a frame with a wrong length before it?"),
    ("RUN-1", "", "Emit RUN_STARTED before anything else, also before the first snapshot."),
    ("RUN-3", "finishes", "RUN_FINISHED must repeat the ids of its own RUN_STARTED."),
    ("RUN-3", "", "Answer with the threadId and runId of the run input, not with new ones."),
    ("RUN-4", "", "The run before it lacks its RUN_FINISHED, or RUN_STARTED is sent twice."),
    (
        "RUN-5",
        "",
        "An end event is missing, perhaps on a path that returns early or fails.",
    ),
    (
        "RUN-6",
        "has failed",
        "An error handler ends the run and the code after it goes on; stop after RUN_ERROR.",
    ),
    ("RUN-6", "", "Something still writes after RUN_FINISHED; wait for it before finishing."),
    (
        "RUN-11",
        "",
        "The agent stopped, or the recording did, before the run ended; a failing agent has to "
        "send RUN_ERROR.",
    ),
    ("RUN-14", "already open", "A step of that name is running; finish it, or name this one."),
    ("RUN-14", "it is open under", "Send the same subagentRunId as with STEP_STARTED."),
    ("RUN-14", "", "STEP_FINISHED has to name a step exactly as STEP_STARTED did."),
    ("STREAM-1", "already open", "Is the start sent twice, or an id used for two things?"),
    ("STREAM-1", "any more", "The item was ended already; chunks end when something else comes."),
    ("STREAM-1", "", "The start is missing, or came with another id."),
    ("REAS-2", "already open", "Is the start sent twice, or an id used for two things?"),
    ("REAS-2", "still open", "REASONING_END or REASONING_MESSAGE_END is missing."),
    ("REAS-2", "", "Spans and messages are apart: each needs a start of its own kind."),
    (
        "CHUNK-2",
        "",
        "Give the id on every chunk: other events (text, tools, steps, state, custom) end a "
        "chunk stream, and the next chunk is a first one again.",
    ),
    ("CHUNK-4", "", "Send role, name or tool name on the first chunk only, or always the same."),
    ("CHUNK-7", "", "With subagents in parallel each chunk needs its id or its subagentRunId."),
    ("CHUNK-8", "", "An id was reused by another subagent, or the tag is that of another."),
    ("SUB-2", "still open", "SUBAGENT_FINISHED or SUBAGENT_ERROR is missing."),
    ("SUB-2", "already", "Each invocation needs an id of its own, also of the same subagent."),
    ("SUB-2", "before its announcement", "Send SUBAGENT_STARTED before the subagent's events."),
    ("SUB-2", "", "SUBAGENT_STARTED is missing, or came with another id."),
    ("SUB-4", "", "An id was reused by another subagent, or the tag is that of another."),
    ("TOOL-5", "", "parentMessageId names a message of somebody else."),
    (
        "STATE-4",
        "",
        "The agent's picture of the state is not the reader's: start from the input's state, or "
        "send a STATE_SNAPSHOT first. For a recording, give its run input.",
    ),
    ("ACT-3", "", "Send ACTIVITY_SNAPSHOT first; for a recording, give its run input."),
    ("REAS-4", "", "The value has to come after what it belongs to, with that id."),
    ("VER-2", "", "Set protocolVersion to the version of the specification, such as 1.0."),
    ("VER-4", "", "The agent's library is from before 1.0; upgrade it."),
    ("TEXT-3", "", "Give the text message an id of its own."),
    ("TOOL-4", "", "parentMessageId has to name an assistant message; leave it out otherwise."),
    ("EVT-6", "", "Make a new id for each thing, also across kinds of messages."),
    ("STREAM-4", "", "Another call needs an id of its own."),
    ("MSG-1", "", "A MESSAGES_SNAPSHOT left out a message that was still being written."),
)


def hint_for(problem: ProtocolViolation | ProtocolWarning) -> str:
    """What probably causes such a fault, or ""."""
    text = f"{problem.event_type or ''} {problem.path or ''} {problem.message}"
    for rule, pattern, hint in _HINTS:
        if rule == problem.rule and re.search(pattern, text):
            return hint
    return ""


_RUN_SCOPED: Final = ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT")
_RESERVED_PARTS: Final = ("'ReasoningPart'", "'ToolCallPart'", "'AssistantPart'")


def _narrower(problem: ProtocolViolation | ProtocolWarning) -> tuple[str, ...]:
    """The rules that say in particular what the general one, which names the fault, says."""
    kind, path, message = problem.event_type, problem.path or "", problem.message
    related: list[str] = []
    if problem.rule == "PROC-1":
        related.append("PROC-13")
    elif problem.rule == "STREAM-1" and (kind or "").startswith("TOOL_CALL_"):
        related.append("TOOL-1")
    elif problem.rule in ("PROC-2", "PROC-3", "PROC-4"):
        if path == "/subagentRunId" and kind in _RUN_SCOPED:
            related.append("EVT-5")
        if problem.rule != "PROC-3" and re.search("(the value|a value whose)", message):
            related.append("PROC-5")
            if kind == "RUN_FINISHED" and path == "/outcome":
                related.append("RUN-9")
        if message.startswith("must be '"):
            related.append("PROC-5")
        if message.endswith("not null"):
            related.append("EVT-4")
        if path in ("/type", "/timestamp", "/rawEvent", "/metadata"):
            related.append("EVT-1")
        if kind == "REASONING_MESSAGE_START" and path == "/role":
            related.append("REAS-3")
        if (kind == "STATE_DELTA" and path.startswith("/delta")) or (
            kind == "ACTIVITY_DELTA" and path.startswith("/patch")
        ):
            related.append("STATE-3")
        if kind == "RUN_FINISHED" and path.startswith("/outcome/interrupts"):
            related.append("INT-1")
        if kind == "RUN_ERROR" and path in ("/message", "/code"):
            related.append("RUN-7")
        if kind == "RUN_STARTED" and path.startswith("/input"):
            related.append("IN-1")
        if kind == "RUN_STARTED" and path in ("/threadId", "/runId"):
            related.append("RUN-2")
        if path == "/subagentRunId" and message.endswith("not null"):
            related.append("SUB-1")
        if (kind or "").startswith("TEXT_MESSAGE_") and path == "/role":
            related.append("TEXT-1")
        if kind == "TOOL_CALL_RESULT" and path.startswith("/content"):
            related.append("TOOL-7")
        if any(name in message for name in _RESERVED_PARTS):
            related.append("TOOL-13")
    return tuple(related)
