"""Every rule of AG-UI 1.0 that this project follows, as data.

Errors and warnings name a rule by its id (`CHUNK-7`), and so do comments, tests and pages; here
is what each id means, in this project's words, whom it binds, how strongly, and on which page
of the public specification it stands. The order is that of the specification, by family.
"""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

__all__ = ["RULES", "Binds", "Level", "Rule", "rule"]

Binds: TypeAlias = Literal["producer", "consumer", "both"]
"""Whom a rule binds: who emits events, who reads them, or both."""

Level: TypeAlias = Literal["must", "should", "may"]
"""How strongly; of a rule that says several things, the strongest of them."""


class Rule(Struct, frozen=True):
    """One rule of the protocol.

    Attributes:
        id: what errors, warnings, tests and pages cite, as `CHUNK-7`.
        binds: whom it binds.
        level: how strongly it binds.
        text: the rule, in one line.
        page: the page of the specification, as a path below `/spec/1.0/`; None where the
            specification is silent and this project agrees with the reference client.
    """

    id: str
    binds: Binds
    level: Level
    text: str
    page: str | None

    @property
    def family(self) -> str:
        """The part of the id that names its subject, as `CHUNK`."""
        return self.id.partition("-")[0]


def rule(rule_id: str) -> Rule:
    """Return the rule with this id.

    Raises:
        KeyError: there is no such rule; the message names the ids of the family, or the families.
    """
    found = RULES.get(rule_id)
    if found is not None:
        return found
    family = rule_id.partition("-")[0]
    near = [known.id for known in RULES.values() if known.family == family]
    if near:
        raise KeyError(f"no rule {rule_id!r}; the {family} rules are {', '.join(near)}")
    families = dict.fromkeys(known.family for known in RULES.values())
    raise KeyError(f"no rule {rule_id!r}; the families are {', '.join(families)}")


RULES: Final[dict[str, Rule]] = {
    each.id: each
    for each in (
        Rule(
            "EVT-1",
            "both",
            "must",
            "Every event is a JSON object with a `type`, one of 31 values, and optionally a "
            "`timestamp` (an integer within ±(2^53-1), by convention milliseconds since the "
            "epoch), a `rawEvent` (any JSON but null) and `metadata`.",
            "basic/index",
        ),
        Rule(
            "EVT-2",
            "consumer",
            "must",
            "Events are never ordered by `timestamp`; the order of arrival is the order.",
            "basic/index",
        ),
        Rule(
            "EVT-3",
            "consumer",
            "must",
            "No behaviour is derived from `rawEvent`.",
            "basic/index",
        ),
        Rule(
            "EVT-4",
            "both",
            "must",
            "An optional field without a value is left out, never `null`; a whole optional field "
            "that is `null` is malformed. A `null` under a key of an open object is data and is "
            "kept, and a required payload may be `null`.",
            "basic/index",
        ),
        Rule(
            "EVT-5",
            "both",
            "must",
            "Run-scoped events (`RUN_STARTED`, `RUN_FINISHED`, `RUN_ERROR`, `MESSAGES_SNAPSHOT`) "
            "carry no `subagentRunId`.",
            "basic/index",
        ),
        Rule(
            "EVT-6",
            "both",
            "must",
            "Ids are opaque: nothing parses them. A `runId` is not reused within a thread, and a "
            "`messageId` is unique within its thread.",
            "basic/index",
        ),
        Rule(
            "EVT-7",
            "consumer",
            "must",
            "All eight families of events are accepted, also by a consumer that has no use for "
            "one.",
            "basic/index",
        ),
        Rule(
            "PROC-1",
            "consumer",
            "must",
            "An event of an unknown type does not abort the run: it is dropped, and a warning "
            "should name the type.",
            "basic/processing",
        ),
        Rule(
            "PROC-2",
            "consumer",
            "must",
            "An unknown property or an unrecognised union member does not abort the run: it is "
            "stripped, and a warning should name the path removed.",
            "basic/processing",
        ),
        Rule(
            "PROC-3",
            "consumer",
            "must",
            "A known field with a value that the schema rejects is fatal: never repaired, "
            "coerced, defaulted or ignored.",
            "basic/processing",
        ),
        Rule(
            "PROC-4",
            "consumer",
            "must",
            "How far stripping goes: in an optional position the field goes; in a required "
            "position the value that contains it goes, cascading upwards; in a list the element "
            "goes and the list stays. An event whose own required field is unrecognisable is "
            "dropped whole.",
            "basic/processing",
        ),
        Rule(
            "PROC-5",
            "consumer",
            "must",
            "A string that a closed set of several strings or a union's discriminator does not "
            "name is unrecognised, not malformed; a non-string there is malformed. A fixed value "
            "that discriminates nothing, with any other value in its place, is malformed.",
            "basic/processing",
        ),
        Rule(
            "PROC-6",
            "consumer",
            "must",
            "Objects that the schema leaves open keep members that they don't describe, without a"
            " warning: metadata, activity content, a tool's `parameters`, `responseSchema`, "
            "state, JSON Patch operations, capabilities' `custom`.",
            "basic/processing",
        ),
        Rule(
            "PROC-7",
            "consumer",
            "must",
            "The order is transport, compatibility, middleware, enforcement, chunk expansion, "
            "verification, application, on every path. Nothing unrecognised reaches the "
            "application; everything reaches middleware.",
            "basic/processing",
        ),
        Rule(
            "PROC-8",
            "consumer",
            "may",
            "A middleware chain may expand chunks between its stages; unknown fields on a chunk "
            "may then be lost, but never its deltas, opener fields, metadata, `rawEvent` and "
            "attribution. A chunk's `timestamp` is not carried onto what is synthesised.",
            "basic/processing",
        ),
        Rule(
            "PROC-9",
            "consumer",
            "must",
            "A malformed chunk is rejected by whichever stage meets it first; no stage repairs or"
            " hides it.",
            "basic/processing",
        ),
        Rule(
            "PROC-10",
            "consumer",
            "must",
            "The same stream gets the same verdict over SSE and over protobuf, except where "
            "protobuf cannot express an absence or a frame's arm is unknown.",
            "basic/processing",
        ),
        Rule(
            "PROC-11",
            "consumer",
            "must",
            "In an outgoing run input unrecognised material is removed, with a warning; a "
            "malformed known field is fatal before anything is sent.",
            "basic/processing",
        ),
        Rule(
            "PROC-12",
            "producer",
            "must",
            "In an incoming run input unrecognised material is stripped, with a warning, and the "
            "run proceeds; a malformed known field is refused before `RUN_STARTED`.",
            "basic/processing",
        ),
        Rule(
            "PROC-13",
            "producer",
            "must",
            "Only event types that the specification describes are emitted; `CUSTOM` and `RAW` "
            "are the extension points.",
            "basic/processing",
        ),
        Rule(
            "RUN-1",
            "both",
            "must",
            "A stream begins with `RUN_STARTED` or `RUN_ERROR`; anything else first is a "
            "violation.",
            "events/lifecycle",
        ),
        Rule(
            "RUN-2",
            "producer",
            "must",
            "`RUN_STARTED` carries the input's `threadId`, the run's `runId` and the producer's "
            "own `protocolVersion`; it may echo `input` and `parentRunId`.",
            "events/lifecycle",
        ),
        Rule(
            "RUN-3",
            "both",
            "must",
            "A run's `RUN_STARTED` and `RUN_FINISHED` agree on `runId` and `threadId`; the "
            "requested run echoes the input's `runId`, a replayed run carries its own, and all "
            "runs on a stream carry the input's `threadId`. A finish that disagrees with its own "
            "start is fatal; a start that differs from the input or from an earlier run's thread "
            "is a warning.",
            "events/lifecycle",
        ),
        Rule(
            "RUN-4",
            "both",
            "must",
            "No `RUN_STARTED` comes while a run is active; one that does is fatal.",
            "events/lifecycle",
        ),
        Rule(
            "RUN-5",
            "both",
            "must",
            "Everything opened (messages, tool calls, reasoning spans and messages, steps, "
            "subagents) is closed before `RUN_FINISHED`; anything left open is fatal.",
            "events/lifecycle",
        ),
        Rule(
            "RUN-6",
            "both",
            "must",
            "After `RUN_FINISHED` only `RUN_STARTED` (a new run) or `RUN_ERROR` (a late failure: "
            "the run counts as failed) may follow, and after `RUN_ERROR` only `RUN_STARTED`; "
            "anything else is fatal.",
            "events/lifecycle",
        ),
        Rule(
            "RUN-7",
            "both",
            "must",
            "`RUN_ERROR` ends whatever was open, without closing events. Its `message` is for a "
            "person, its `code` an open string, its `usage` optional.",
            "events/lifecycle",
        ),
        Rule(
            "RUN-8",
            "consumer",
            "must",
            "A `RUN_ERROR` is well formed: the failure is surfaced and no success reported; it is"
            " never presented as a stream that the consumer rejected, nor the reverse. What was "
            "delivered stays delivered.",
            "events/lifecycle",
        ),
        Rule(
            "RUN-9",
            "both",
            "must",
            "An absent outcome and the success outcome both mean success. A producer never sends "
            "an undescribed outcome; an unrecognised one is stripped, hence success.",
            "events/lifecycle",
        ),
        Rule(
            "RUN-10",
            "both",
            "must",
            "A run that is stopped on purpose before completion ends with `RUN_FINISHED` and the "
            "cancelled outcome, everything closed first and without a `result`; one that cannot "
            "close in order ends with `RUN_ERROR`. A consumer presents a cancelled run neither as"
            " success nor as failure.",
            "events/lifecycle",
        ),
        Rule(
            "RUN-11",
            "consumer",
            "must",
            "A stream that ends without a terminal event is a truncated run: no `RUN_FINISHED` is"
            " synthesised, no success is reported, and what arrived stays.",
            "events/lifecycle",
        ),
        Rule(
            "RUN-12",
            "both",
            "must",
            "Several runs may follow one another on one stream; messages accumulate and state "
            "persists across them, and the tracking of open items starts anew.",
            "events/lifecycle",
        ),
        Rule(
            "RUN-13",
            "producer",
            "must",
            "History is restated as snapshots, not streamed again.",
            "events/lifecycle",
        ),
        Rule(
            "RUN-14",
            "both",
            "must",
            "A step name that is open is not opened again, and one that was never opened is not "
            "finished; steps belong to an owner (the parent or a subagent) and may overlap "
            "anything.",
            "events/lifecycle",
        ),
        Rule(
            "USE-1",
            "both",
            "must",
            "`usage` has one entry per provider and model. `inputTokens` are all prompt tokens "
            "and `outputTokens` all generated tokens; `cachedInputTokens`, "
            "`cacheWriteInputTokens` and `reasoningTokens` are parts of those totals; "
            "`totalTokens` is their sum. An absent count was not reported and is not zero.",
            "events/lifecycle",
        ),
        Rule(
            "USE-2",
            "producer",
            "must",
            "A run accounts for the calls of its subagents, and not for child runs "
            "(`parentRunId`) or the runs that it resumes.",
            "events/lifecycle",
        ),
        Rule(
            "STREAM-1",
            "both",
            "must",
            "An id that is open is not opened, and no content or end comes for an id that is not "
            "open; either is fatal.",
            "basic/patterns/streaming",
        ),
        Rule(
            "STREAM-2",
            "both",
            "must",
            "Deltas concatenate in the order of arrival; an empty delta is legal.",
            "basic/patterns/streaming",
        ),
        Rule(
            "STREAM-3",
            "both",
            "must",
            "Families interleave freely, and standalone events may come anywhere within an open "
            "run.",
            "basic/patterns/streaming",
        ),
        Rule(
            "STREAM-4",
            "both",
            "must",
            "A closed message or call may be opened again with the same id, by the same owner, "
            "with the same role and name, or the same tool name and parent: its content appends.",
            "basic/patterns/streaming",
        ),
        Rule(
            "CHUNK-1",
            "consumer",
            "must",
            "Chunks are expanded into start, content and end before verification.",
            "basic/patterns/streaming",
        ),
        Rule(
            "CHUNK-2",
            "both",
            "must",
            "The first text or reasoning chunk carries `messageId`, the first tool chunk "
            "`toolCallId` and `toolCallName`; otherwise it is a violation, and no id is invented."
            " An absent text role means `assistant`.",
            "basic/patterns/streaming",
        ),
        Rule(
            "CHUNK-3",
            "both",
            "must",
            "A later chunk may omit the id; one that names another id closes the open item and "
            "opens a new one.",
            "basic/patterns/streaming",
        ),
        Rule(
            "CHUNK-4",
            "both",
            "must",
            "A continuation that repeats an opener field (`role`, `name`, `toolCallName`, "
            "`parentMessageId`) repeats the same value, also where omission established it; a "
            "different one is fatal.",
            "basic/patterns/streaming",
        ),
        Rule(
            "CHUNK-5",
            "consumer",
            "must",
            "The end is synthesised when a chunk opens a different item in the same lane; when a "
            "message, tool-call, step, state, custom or reasoning event arrives in the lane; when"
            " a run-level event (`RUN_*`, `MESSAGES_SNAPSHOT`) arrives, which closes every lane "
            "in opening order; and when the owning subagent terminates, which closes its lane.",
            "basic/patterns/streaming",
        ),
        Rule(
            "CHUNK-6",
            "consumer",
            "must",
            "`RAW`, `ACTIVITY_*`, `REASONING_ENCRYPTED_VALUE` and `SUBAGENT_STARTED` close "
            "nothing.",
            "basic/patterns/streaming",
        ),
        Rule(
            "CHUNK-7",
            "both",
            "must",
            "A lane is an owner (the parent, or one `subagentRunId`) and holds one chunk stream. "
            "A continuation with neither id nor tag goes to the parent's open stream of its kind,"
            " else to the sole open stream of its kind; with several, none of them the parent's, "
            "it is ambiguous and fatal.",
            "basic/patterns/streaming",
        ),
        Rule(
            "CHUNK-8",
            "both",
            "must",
            "A chunk that names an id which is open in some lane continues there; a tag that "
            "disagrees with that lane is fatal.",
            "basic/patterns/streaming",
        ),
        Rule(
            "CHUNK-9",
            "both",
            "must",
            "An explicit event with an id that a chunk stream is assembling ends the shorthand "
            "and is then judged by the rules of explicit events: mixing the forms is a malformed "
            "sequence.",
            "basic/patterns/streaming",
        ),
        Rule(
            "CHUNK-10",
            "consumer",
            "must",
            "A chunk's metadata rides on every event made from it, never on the end that closes "
            "the previous item; its `rawEvent` rides on the content event. A continuation with "
            "metadata alone is legal, and its metadata still lands.",
            "basic/patterns/streaming",
        ),
        Rule(
            "CHUNK-11",
            "consumer",
            "must",
            "The stream's end without a terminal event closes nothing: the run is truncated.",
            "basic/patterns/streaming",
        ),
        Rule(
            "TEXT-1",
            "both",
            "must",
            "An absent role means `assistant`; the roles are developer, system, assistant and "
            "user, and `name` labels the speaker.",
            "events/text-messages",
        ),
        Rule(
            "TEXT-2",
            "consumer",
            "must",
            "The assembled message takes the type of its role and keeps `name`.",
            "events/text-messages",
        ),
        Rule(
            "TEXT-3",
            "consumer",
            "must",
            "A start that names a message which the conversation already holds (made by a tool "
            "call's `parentMessageId`, a snapshot or the input) continues it; one that names an "
            "activity message warns and builds nothing.",
            "events/text-messages",
        ),
        Rule(
            "TOOL-1",
            "both",
            "must",
            "`TOOL_CALL_START` opens a call (`toolCallId`, `toolCallName`, optional "
            "`parentMessageId`), `TOOL_CALL_ARGS` extends and `TOOL_CALL_END` closes it; they are"
            " matched by `toolCallId`.",
            "events/tool-calls",
        ),
        Rule(
            "TOOL-2",
            "both",
            "must",
            "The argument text is text: the protocol does not validate it, and malformed JSON in "
            "it never ends the run.",
            "events/tool-calls",
        ),
        Rule(
            "TOOL-3",
            "consumer",
            "must",
            "Arguments are not acted on before `TOOL_CALL_END`. Closing means complete, not valid.",
            "events/tool-calls",
        ),
        Rule(
            "TOOL-4",
            "consumer",
            "must",
            "A call attaches to the assistant message that `parentMessageId` names, which is "
            "created when not known; without one it gets an assistant message of its own, under "
            "the call's id.",
            "events/tool-calls",
        ),
        Rule(
            "TOOL-5",
            "both",
            "must",
            "A call agrees with the attribution of its parent message.",
            "events/tool-calls",
        ),
        Rule(
            "TOOL-6",
            "both",
            "must",
            "`TOOL_CALL_RESULT` is a message of its own (`messageId`, role tool) and does not "
            "reopen the call. It may come in the same run, or never, as for a frontend tool.",
            "events/tool-calls",
        ),
        Rule(
            "TOOL-7",
            "both",
            "must",
            "A result's `content` is a string or an ordered list of parts (text, image, audio, "
            "video, document), where media parts have a `data`, `url` or `file` source. The tool "
            "message has the identical form and travels unchanged into the next input.",
            "events/tool-calls",
        ),
        Rule(
            "TOOL-8",
            "producer",
            "must",
            "Structured results are serialised into text; there is no JSON part. What a part "
            "doesn't model goes into its `metadata`.",
            "events/tool-calls",
        ),
        Rule(
            "TOOL-9",
            "producer",
            "must",
            "A part that the model cannot take is dropped and the call still answered, with an "
            "empty string when every part was dropped; the run never fails over it.",
            "events/tool-calls",
        ),
        Rule(
            "TOOL-10",
            "consumer",
            "should",
            "A consumer that can only hold strings renders a list of parts as its text parts "
            "concatenated in order, and says that it lost the rest.",
            "events/tool-calls",
        ),
        Rule(
            "TOOL-11",
            "producer",
            "must",
            "For a peer known to predate parts a result may be flattened to its text parts, with "
            "a warning when parts were lost, and never with a placeholder.",
            "events/tool-calls",
        ),
        Rule(
            "TOOL-12",
            "both",
            "must",
            "A `file` source's `value` is opaque: never fetched, parsed or shown as a link.",
            "events/tool-calls",
        ),
        Rule(
            "TOOL-13",
            "producer",
            "must",
            "The names `ReasoningPart`, `ToolCallPart` and `AssistantPart` are reserved: nothing "
            "emits them.",
            "events/tool-calls",
        ),
        Rule(
            "FRONT-1",
            "producer",
            "must",
            "A frontend tool call is never answered by the producer itself: no result event, no "
            "made-up tool message.",
            "events/tool-calls",
        ),
        Rule(
            "FRONT-2",
            "producer",
            "must",
            "A run with unanswered frontend calls ends with success or no outcome, never "
            "interrupted, and promptly once nothing is left that doesn't need a result; several "
            "calls may be left.",
            "events/tool-calls",
        ),
        Rule(
            "FRONT-3",
            "producer",
            "must",
            "`pendingToolCallIds` on the success outcome should be sent, and names exactly the "
            "calls started in this run and without a result in it, in the order made.",
            "events/tool-calls",
        ),
        Rule(
            "FRONT-4",
            "consumer",
            "must",
            'An absent or empty list is not "nothing pending": what is pending is every call '
            "started and not answered in the run, on an interrupted run, too.",
            "events/tool-calls",
        ),
        Rule(
            "FRONT-5",
            "consumer",
            "must",
            "A continuing thread answers every pending call first: one tool message per call, "
            "keyed by `toolCallId`; a failure is a tool message with `error`, and a refusal says "
            "so.",
            "events/tool-calls",
        ),
        Rule(
            "FRONT-6",
            "both",
            "should",
            "Only advertised frontend tools are called. A call that names another is no "
            "violation, and is not executed without the vetting that a new tool would get.",
            "events/tool-calls",
        ),
        Rule(
            "SEC-1",
            "consumer",
            "must",
            "Arguments are untrusted: validated against the declared parameter schema when there "
            "is one, and never interpolated into a shell, a query or markup.",
            "events/tool-calls",
        ),
        Rule(
            "SEC-2",
            "consumer",
            "must",
            "Consent should come before side effects; an unapproved call is never presented as "
            "approved.",
            "events/tool-calls",
        ),
        Rule(
            "SEC-3",
            "consumer",
            "must",
            "Text in results is data, never instruction or protocol material.",
            "events/tool-calls",
        ),
        Rule(
            "REAS-1",
            "both",
            "must",
            "Spans (`REASONING_START`, `REASONING_END`) and reasoning messages are separate "
            "namespaces, each with the discipline of opening and closing; an id may be both.",
            "events/reasoning",
        ),
        Rule(
            "REAS-2",
            "both",
            "must",
            "Orphaned content, message end or span end, reopening what is open, and anything left"
            " open at `RUN_FINISHED` are fatal.",
            "events/reasoning",
        ),
        Rule(
            "REAS-3",
            "both",
            "must",
            "The `role` of `REASONING_MESSAGE_START` is required and always `reasoning`; anything"
            " else is malformed, hence fatal.",
            "events/reasoning",
        ),
        Rule(
            "REAS-4",
            "consumer",
            "must",
            "A `REASONING_ENCRYPTED_VALUE` is opaque: stored on the message or tool call that it "
            "names and returned unmodified in later input. An unknown entity or an activity "
            "message should warn and is never fatal; an unknown `subtype` string drops the event "
            "with a warning.",
            "events/reasoning",
        ),
        Rule(
            "REAS-5",
            "consumer",
            "must",
            "A `MESSAGES_SNAPSHOT` that restates a message without its encrypted value withdraws "
            "the value.",
            "events/reasoning",
        ),
        Rule(
            "STATE-1",
            "consumer",
            "must",
            "`STATE_SNAPSHOT` replaces the state, without merging, by any JSON value, null and "
            "other falsy ones included.",
            "events/state",
        ),
        Rule(
            "STATE-2",
            "both",
            "must",
            "`STATE_DELTA` is an RFC 6902 patch against the current value, its operations in "
            "order, all or nothing; at a run's start that value is the input's `state`, or `{}`.",
            "events/state",
        ),
        Rule(
            "STATE-3",
            "consumer",
            "must",
            "An operation with an unknown `op` string is dropped from the patch with a warning; a"
            " structurally malformed patch (not an array, a member missing or of the wrong type, "
            "a bad pointer) is fatal.",
            "events/state",
        ),
        Rule(
            "STATE-4",
            "consumer",
            "must",
            "Of a well-formed patch that doesn't apply, a failing `test` included, nothing is "
            "kept; a warning says what failed and why, the run goes on with the prior value, and "
            "the next snapshot is adopted regardless.",
            "events/state",
        ),
        Rule(
            "STATE-5",
            "producer",
            "must",
            "A snapshot should come whenever the baseline cannot be assured; no delta comes "
            "without a baseline.",
            "events/state",
        ),
        Rule(
            "STATE-6",
            "both",
            "must",
            "State is the run's: a `subagentRunId` on a state event is provenance only.",
            "events/state",
        ),
        Rule(
            "MSG-1",
            "consumer",
            "must",
            "In a `MESSAGES_SNAPSHOT` a message with a known id replaces in place; unknown ones "
            "are appended in snapshot order; held messages that are absent are dropped, except "
            "activity and reasoning messages, unless the snapshot itself holds any of that role.",
            "basic/patterns/snapshots",
        ),
        Rule(
            "MSG-2",
            "consumer",
            "must",
            "Ownership is established by the messages of a snapshot and, as history, by those of "
            "`RUN_STARTED.input`.",
            "basic/patterns/snapshots",
        ),
        Rule(
            "ACT-1",
            "consumer",
            "must",
            "An activity snapshot creates the message at its place in the sequence, or replaces "
            "content and `activityType`; with `replace: false` it leaves an existing one as it "
            "stands.",
            "events/activity",
        ),
        Rule(
            "ACT-2",
            "consumer",
            "must",
            "A replacement keeps the accumulated metadata, which goes on merging, and sets the "
            "attribution anew, also to absent; with `replace: false` the owner is kept.",
            "events/activity",
        ),
        Rule(
            "ACT-3",
            "consumer",
            "must",
            "A delta patches content and sets `activityType`; on a missing or non-activity "
            "message it is skipped, should warn, and is never fatal.",
            "events/activity",
        ),
        Rule(
            "ACT-4",
            "consumer",
            "must",
            "Activity messages are removed from the `messages` that are sent.",
            "events/activity",
        ),
        Rule(
            "META-1",
            "consumer",
            "must",
            "Metadata merges key by key, the last write wins, without recursion, into the text "
            "message, the reasoning message, the tool call itself (not its message), the tool "
            "message of a result, or the activity message. Other events' metadata lands nowhere.",
            "basic/metadata",
        ),
        Rule(
            "META-2",
            "both",
            "must",
            "The metadata key `ag-ui` is reserved for the protocol.",
            "basic/metadata",
        ),
        Rule(
            "INT-1",
            "producer",
            "must",
            "A run that stops to ask ends with the interrupt outcome and at least one interrupt, "
            "ids unique within the run, and never as success.",
            "basic/patterns/interrupt-resume",
        ),
        Rule(
            "INT-2",
            "consumer",
            "must",
            "The next input's `resume` covers every interrupt of the most recent interrupted run,"
            " each resolved (with a `payload`) or cancelled; an input that leaves one uncovered "
            "is refused before anything is sent.",
            "basic/patterns/interrupt-resume",
        ),
        Rule(
            "INT-3",
            "consumer",
            "must",
            "An interrupt that has expired (`expiresAt`, read as a date, is now or earlier) can "
            "only be cancelled.",
            "basic/patterns/interrupt-resume",
        ),
        Rule(
            "INT-4",
            "producer",
            "should",
            "An entry that names an unknown interrupt is passed over, with a warning.",
            "basic/patterns/interrupt-resume",
        ),
        Rule(
            "INT-5",
            "producer",
            "must",
            "An interrupt that is known to be open and is not covered is never acted on and never"
            " treated as abandoned: the input is refused, or what is covered runs and the run "
            "ends with the interrupt outcome again.",
            "basic/patterns/interrupt-resume",
        ),
        Rule(
            "INT-6",
            "both",
            "must",
            "A resumed run has the same `threadId`, and messages and state carry on; usage "
            "doesn't.",
            "basic/patterns/interrupt-resume",
        ),
        Rule(
            "INT-7",
            "consumer",
            "must",
            "`responseSchema` describes the form of the answer, opaquely; a consumer can build a "
            "form from it.",
            "basic/patterns/interrupt-resume",
        ),
        Rule(
            "SUB-1",
            "both",
            "must",
            "`subagentRunId` attributes what a subagent produces; absent means the parent, and it"
            " is never null.",
            "events/subagents",
        ),
        Rule(
            "SUB-2",
            "both",
            "must",
            "An announced invocation is announced before anything attributed to it, not while it "
            "is active, not again once finished in this run, under a parent "
            "(`parentSubagentRunId`) that was announced, and is closed before the run finishes; "
            "anything else is fatal.",
            "events/subagents",
        ),
        Rule(
            "SUB-3",
            "consumer",
            "must",
            "Attribution without an announcement is accepted.",
            "events/subagents",
        ),
        Rule(
            "SUB-4",
            "both",
            "must",
            "A continuation whose tag disagrees with its opener's owner is fatal (messages, "
            "reasoning, tool calls, activity deltas, encrypted values); one without a tag is "
            "accepted. Ownership lasts for the run, across closing and reopening.",
            "events/subagents",
        ),
        Rule(
            "SUB-5",
            "both",
            "must",
            "`SUBAGENT_ERROR` ends the invocation, not the run. A `SUBAGENT_FINISHED` without an "
            "outcome is a success; a suspended one may name interrupts, and a later run may "
            "continue its id.",
            "events/subagents",
        ),
        Rule(
            "SUB-6",
            "both",
            "must",
            "Invocations run in parallel and interleave; the end of one closes nothing of "
            "another's.",
            "events/subagents",
        ),
        Rule(
            "SUB-7",
            "both",
            "must",
            "`RUN_ERROR` abandons all open invocations.",
            "events/subagents",
        ),
        Rule(
            "IN-1",
            "both",
            "must",
            "`threadId`, `runId` and `messages` are required; absent `tools` and `context` are "
            "empty, an absent `state` is `{}`; `forwardedProps` is any JSON but a whole null and "
            "is passed on untouched.",
            "basic/run-input",
        ),
        Rule(
            "IN-2",
            "producer",
            "must",
            "A content part that the producer cannot use (no vision, a foreign or expired file "
            "handle) is skipped, never fatal.",
            "basic/run-input",
        ),
        Rule(
            "IN-3",
            "producer",
            "should",
            "Every `context` entry is made available to the model.",
            "basic/run-input",
        ),
        Rule(
            "VER-1",
            "both",
            "must",
            "A consumer declares its version on `RunAgentInput.protocolVersion`, unless the peer "
            "is known to predate the field; a producer declares its own on `RUN_STARTED`, without"
            " echoing.",
            "basic/versioning",
        ),
        Rule(
            "VER-2",
            "both",
            "must",
            "A version is `MAJOR.MINOR`, compared as numbers; one that cannot be interpreted "
            "counts as newer. A newer peer is served or read on, with a warning; a producer may "
            "refuse, before `RUN_STARTED`, only a major line that it doesn't implement.",
            "basic/versioning",
        ),
        Rule(
            "VER-3",
            "both",
            "must",
            "A downgrade for an older peer is a pure transformation: a lossless one may be "
            "silent, a lossy one warns of what was lost and why; it invents no meaning and "
            "repairs nothing malformed.",
            "basic/versioning",
        ),
        Rule(
            "VER-4",
            "both",
            "must",
            "Retired shapes are translated at the always-on boundary with a warning: `THINKING_*`"
            " to reasoning, legacy `binary` parts to media parts, and nulls that were once "
            "tolerated to absent. A registry lists each with its replacement, the place of "
            "translation and its expiry.",
            "basic/versioning",
        ),
        Rule(
            "CAP-1",
            "both",
            "must",
            "An omitted capability is undeclared, not unsupported; the stream is authoritative; a"
            " rejected or absent declaration never prevents a run, unknown members never make it "
            "invalid, `custom` and `identity.metadata` keep everything, and `subAgents` is not "
            "read.",
            "basic/capabilities",
        ),
        Rule(
            "HTTP-1",
            "consumer",
            "must",
            "A run is a POST of a JSON body with `Content-Type: application/json`, and `Accept: "
            "text/event-stream` plus the protobuf type when it can be read.",
            "basic/transports/http-sse",
        ),
        Rule(
            "HTTP-2",
            "producer",
            "must",
            "The answer is 200 with `text/event-stream` and one event per SSE event, with LF line"
            " ends; the body is closed after the last terminal event.",
            "basic/transports/http-sse",
        ),
        Rule(
            "HTTP-3",
            "consumer",
            "must",
            "`event:`, `id:`, `retry:` and comment lines are ignored, multi-line `data:` is "
            "joined, and any split of the bytes is tolerated; CR and CRLF may be accepted.",
            "basic/transports/http-sse",
        ),
        Rule(
            "HTTP-4",
            "both",
            "must",
            "Rejected input is an HTTP error status with no stream; a failure after opening "
            "travels as `RUN_ERROR`. A 200 alone is not success.",
            "basic/transports/http-sse",
        ),
        Rule(
            "HTTP-5",
            "both",
            "must",
            "There is no resumption of a stream in this binding.",
            "basic/transports/http-sse",
        ),
        Rule(
            "PB-1",
            "producer",
            "must",
            "The media type is `application/vnd.ag-ui.event+proto`; it should be the answer "
            "whenever `Accept` admits it with q > 0, wildcards included, else SSE is; the "
            "response's type is exactly that.",
            "basic/transports/http-protobuf",
        ),
        Rule(
            "PB-2",
            "both",
            "must",
            "A frame is a 4-byte unsigned big-endian length, then one encoded event. Any split or"
            " merge of frames is tolerated; a body that ends inside a frame is a truncated run; a"
            " frame that doesn't decode is fatal; an unknown envelope arm is dropped with a "
            "warning.",
            "basic/transports/http-protobuf",
        ),
        Rule(
            "PB-3",
            "consumer",
            "must",
            "Decoded events enter the same pipeline; open payloads (outcome, metadata, state, "
            "`rawEvent`) survive to enforcement, and the binding rejects nothing that enforcement"
            " would judge.",
            "basic/transports/http-protobuf",
        ),
        Rule(
            "PB-4",
            "producer",
            "must",
            "The encoded bytes equal the reference implementation's for the canonical events.",
            "basic/transports/http-protobuf",
        ),
        Rule(
            "TRANS-1",
            "both",
            "must",
            "A custom transport keeps order, delivers the input first, tells a clean end from "
            "truncation and has a path for rejected input; one that carries JSON frames one event"
            " object per frame.",
            "basic/transports/index",
        ),
        Rule(
            "CONV-1",
            "consumer",
            "should",
            "A tool result goes directly after the assistant message that holds its call, after "
            "tool messages already there; without a known owner it is appended.",
            None,
        ),
        Rule(
            "CONV-2",
            "consumer",
            "should",
            "Messages of `RUN_STARTED.input` with ids not yet held are appended; held ones stay "
            "as they are.",
            None,
        ),
        Rule(
            "CONV-3",
            "consumer",
            "should",
            "A tool call that is started again with a known id continues the existing call.",
            None,
        ),
        Rule(
            "CONV-4",
            "consumer",
            "should",
            "After a run, the pending interrupts are those of its interrupt outcome, else none; a"
            " run that fails or is truncated leaves the earlier ones open.",
            None,
        ),
    )
}
"""All rules by id, in the order of the specification."""
