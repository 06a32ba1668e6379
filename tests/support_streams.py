"""Random streams of events that keep the rules, and ways to break them by one event.

Everything is made from a seed, so that a stream that fails a test can be made again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import jsonpatch

__all__ = ["Case", "EventJson", "broken", "well_formed"]

Json = Any
EventJson = dict[str, Any]
Owner = str | None

_WORDS: Final = (
    "plan",
    "Ω",
    "naïve ",
    "\n",
    '"quoted"',
    "",
    "🦅",
    "\u2028",
    "\x00",
    "a\\b",
    "日本",
)
_ROLES: Final = ("assistant", "assistant", "user", "system", "developer")
_KEYS: Final = ("a", "b", "c/d", "e~f", "0", "", "ключ")
_IDS: Final = ("messageId", "toolCallId", "entityId", "parentMessageId", "stepName", "threadId")
_GHOSTS: Final = ("ghost-1", "ghost-2")
"""Subagents whose work is attributed and that nobody announces (SUB-3)."""


@dataclass
class Case:
    """What a run starts from, and the events that answer it, all as plain JSON."""

    name: str
    input: dict[str, Any]
    events: list[EventJson]


@dataclass
class _Item:
    """Something that streams, or has streamed, under an id."""

    kind: str
    id: str
    owner: Owner
    opener: dict[str, Any]
    half: str = ""


@dataclass
class _Held:
    """A message that the conversation holds, as far as a writer has to know it."""

    role: str
    owner: Owner
    calls: list[str] = field(default_factory=list)


# By kind: the members that name an item, and the types that open, continue and close it.
_NAMED: Final = {"text": "messageId", "tool": "toolCallId", "reasoning": "messageId"}
_TYPES: Final = {
    "text": ("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
    "tool": ("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"),
    "reasoning": (
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
    ),
    "span": ("REASONING_START", "", "REASONING_END"),
}
_CHUNK: Final = {
    "text": "TEXT_MESSAGE_CHUNK",
    "tool": "TOOL_CALL_CHUNK",
    "reasoning": "REASONING_MESSAGE_CHUNK",
}


def well_formed(seed: int) -> Case:
    """A stream of one to three runs that keeps every rule."""
    return _Writer(Random(seed)).write(f"seed {seed}")


def broken(case: Case, seed: int) -> Case:
    """The same stream with one event lost, repeated, out of place, or mistaken about itself."""
    random = Random(seed)
    events = list(case.events)
    at = random.randrange(len(events))
    match random.choice(("drop", "repeat", "repeat later", "swap", "swap far", "retag", "rename")):
        case "drop":
            what = f"event {at} dropped"
            del events[at]
        case "repeat":
            what = f"event {at} repeated"
            events.insert(at, events[at])
        case "repeat later":
            to = random.randrange(at, len(events)) + 1
            what = f"event {at} repeated at {to}"
            events.insert(to, events[at])
        case "swap":
            to = min(at + 1, len(events) - 1)
            what = f"events {at} and {to} swapped"
            events[at], events[to] = events[to], events[at]
        case "retag":
            # Where an item is opened again, its owner is the one thing that counts.
            again = [place for place in range(len(events)) if _reopens(events, place)]
            at = random.choice(again) if again else at
            tags = {event.get("subagentRunId") for event in events} | {_GHOSTS[0]}
            tag = random.choice(sorted(tags - {events[at].get("subagentRunId")}, key=str))
            what = f"event {at} attributed to {tag}"
            events[at] = _with(events[at], "subagentRunId", tag)
        case "rename":
            named = [key for key in _IDS if key in events[at]]
            key = random.choice(named) if named else "messageId"
            ids = [event[key] for event in events if key in event]
            what = f"event {at} given another {key}"
            if named:
                events[at] = _with(events[at], key, random.choice(ids))
        case _:
            to = random.randrange(len(events))
            what = f"events {at} and {to} swapped"
            events[at], events[to] = events[to], events[at]
    return Case(f"{case.name}, {what}", case.input, events)


class _Writer:
    """Writes one stream, and remembers what it has said so far."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.events: list[EventJson] = []
        self.count = 0
        self.messages: dict[str, _Held] = {}
        self.owner_of_call: dict[str, Owner] = {}
        self.state: Json = {}
        self.activities: dict[str, tuple[Json, Owner]] = {}
        self._new_run()

    def _new_run(self) -> None:
        self.open: list[_Item] = []
        self.past: list[_Item] = []
        self.lanes: dict[Owner, _Item] = {}
        self.steps: list[tuple[Owner, str]] = []
        self.active: list[str] = []
        self.ended: list[str] = []
        self.calls: list[str] = []
        self.answered: set[str] = set()
        # What this run has said of owners; earlier runs' messages have none in it.
        self.owned: dict[str, Owner] = {}

    def write(self, name: str) -> Case:
        random = self.random
        held = [self._message() for _ in range(random.randrange(4))]
        self.state = self._value(0) if random.random() < 0.5 else {}
        if not isinstance(self.state, dict):
            self.state = {"value": self.state}
        start = {"threadId": "thread", "runId": "run-1", "messages": held, "state": self.state}
        for number in range(1, random.choice((1, 1, 1, 2, 3)) + 1):
            self._run(f"run-{number}")
        return Case(name, start, self.events)

    def _run(self, run_id: str) -> None:
        random = self.random
        self._new_run()
        start: EventJson = {"type": "RUN_STARTED", "threadId": "thread", "runId": run_id}
        if random.random() < 0.5:
            start["protocolVersion"] = "1.0"
        if random.random() < 0.2:
            echoed = [self._message() for _ in range(random.randrange(3))]
            start["input"] = {"threadId": "thread", "runId": run_id, "messages": echoed}
            for message in echoed:
                self._own(message, authoritative=False)
        self._emit(start)
        steps: list[tuple[Callable[[], None], int]] = [
            (self._open_text, 4),
            (self._open_tool, 4),
            (self._open_span, 1),
            (self._open_reasoning, 2),
            (self._write, 14),
            (self._close, 7),
            (self._open_chunks, 5),
            (self._continue_chunks, 10),
            (self._result, 4),
            (self._start_step, 2),
            (self._finish_step, 2),
            (self._set_state, 2),
            (self._patch_state, 4),
            (self._set_activity, 2),
            (self._patch_activity, 3),
            (self._encrypt, 3),
            (self._restate, 1),
            (self._start_subagent, 2),
            (self._end_subagent, 1),
            (self._stand, 2),
        ]
        moves = [move for move, _ in steps]
        weights = [weight for _, weight in steps]
        for move in random.choices(moves, weights, k=random.randrange(4, 50)):
            move()
        self._end(run_id)

    def _end(self, run_id: str) -> None:
        random = self.random
        for item in self.open:
            self._whole(item)
        if random.random() < 0.1:
            self._emit({"type": "RUN_ERROR", "message": "it broke", "code": "broken"})
            return
        while self.open or self.steps or self.active:
            random.choice((self._close, self._finish_step, self._end_subagent))()
        end: EventJson = {"type": "RUN_FINISHED", "threadId": "thread", "runId": run_id}
        pending = [id_ for id_ in self.calls if id_ not in self.answered]
        match random.choice(("", "", "success", "named", "cancelled", "interrupt")):
            case "success":
                end["outcome"] = {"type": "success"}
            case "named":
                end["outcome"] = {"type": "success", "pendingToolCallIds": pending}
            case "cancelled":
                end["outcome"] = {"type": "cancelled"}
            case "interrupt":
                end["outcome"] = {
                    "type": "interrupt",
                    "interrupts": [{"id": self._id("interrupt"), "reason": "approval"}],
                }
        if random.random() < 0.2:
            end["result"] = self._value(1) or "done"
        self._emit(end)
        if random.random() < 0.05:
            self._emit({"type": "RUN_ERROR", "message": "too late"})

    # Saying things

    def _emit(self, event: EventJson) -> None:
        """Send an event, and forget the chunk streams that it ends (CHUNK-5)."""
        random = self.random
        type_ = event["type"]
        if type_.startswith("RUN_") or type_ == "MESSAGES_SNAPSHOT":
            for owner in list(self.lanes):
                self._leave(owner)
        elif type_ in ("SUBAGENT_FINISHED", "SUBAGENT_ERROR"):
            self._leave(event["subagentRunId"])
        elif not (
            type_ in ("RAW", "REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED")
            or type_.startswith("ACTIVITY_")
            or type_.endswith("_CHUNK")
        ):
            self._leave(event.get("subagentRunId"))
        if random.random() < 0.15:
            event["metadata"] = {
                random.choice(_KEYS): self._value(1) for _ in range(random.randrange(3))
            }
        if random.random() < 0.05:
            event["timestamp"] = random.randrange(2**40)
        if random.random() < 0.05:
            event["rawEvent"] = self._value(1) or {"provider": "x"}
        self.events.append(event)

    def _leave(self, owner: Owner) -> None:
        item = self.lanes.pop(owner, None)
        if item is not None:
            self.past.append(item)

    def _tagged(self, event: EventJson, owner: Owner, *, required: bool = True) -> EventJson:
        """The event with its owner's tag, which a continuation may leave out."""
        if owner is not None and (required or self.random.random() < 0.7):
            event["subagentRunId"] = owner
        return event

    def _owner(self) -> Owner:
        """Who does the next thing: mostly the parent."""
        random = self.random
        if random.random() < 0.55:
            return None
        return random.choice((*self.active, *self.ended[-1:], *_GHOSTS))

    def _id(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}-{self.count}"

    def _text(self) -> str:
        return "".join(self.random.choices(_WORDS, k=self.random.randrange(1, 4)))

    def _delta(self, item: _Item) -> str:
        """Text for an item, now and then cut in the middle of a character."""
        text = item.half + self._text()
        item.half = ""
        if self.random.random() < 0.05:
            text += "\ud83d"
            item.half = "\ude00"
        return text

    def _whole(self, item: _Item) -> None:
        if item.half:
            self._write_to(item, item.half)
            item.half = ""

    def _value(self, depth: int) -> Json:
        random = self.random
        kinds = 6 if depth > 2 else 9
        match random.randrange(kinds):
            case 0:
                return random.choice((None, True, False))
            case 1:
                return random.choice((0, 1, -5, 2**40, 1.5, 0.25))
            case 2 | 3 | 4 | 5:
                return random.choice(_WORDS)
            case 6:
                return [self._value(depth + 1) for _ in range(random.randrange(4))]
        return {key: self._value(depth + 1) for key in random.sample(_KEYS, random.randrange(4))}

    def _message(self) -> dict[str, Any]:
        """A new message that no event has streamed."""
        random = self.random
        role = random.choice((*_ROLES, "tool", "reasoning", "activity"))
        message: dict[str, Any] = {"id": self._id("given"), "role": role}
        if role == "activity":
            content = {"done": 0}
            message |= {"activityType": "PLAN", "content": content}
            self.activities[message["id"]] = (content, None)
        elif role == "tool":
            message |= {"toolCallId": "call-elsewhere", "content": self._content()}
        elif role == "assistant" and random.random() < 0.5:
            call = self._id("call")
            message["toolCalls"] = [_call(call, "{}")]
            self.owner_of_call[call] = None
        else:
            message["content"] = self._text()
        self.messages[message["id"]] = _Held(
            role, None, [call["id"] for call in message.get("toolCalls", [])]
        )
        return message

    def _content(self) -> Json:
        random = self.random
        if random.random() < 0.6:
            return self._text()
        parts: list[Json] = [{"type": "text", "text": self._text()}]
        source = {"type": "url", "value": "https://example.com/a.png", "mimeType": "image/png"}
        parts.append({"type": "image", "source": source, "metadata": {"page": 1}})
        return random.sample(parts, random.randrange(3))

    # Items

    def _reopened(self, kind: str) -> _Item | None:
        """Something that was closed in this run, to be opened again (STREAM-4)."""
        if self.random.random() > 0.15:
            return None
        taken = {(item.kind, item.id) for item in (*self.open, *self.lanes.values())}
        closed = [item for item in self.past if item.kind == kind and (kind, item.id) not in taken]
        if not closed:
            return None
        return self.random.choice(closed)

    def _open_item(self, item: _Item, *, again: bool) -> None:
        self._emit(
            self._tagged(
                {"type": _TYPES[item.kind][0], **item.opener}, item.owner, required=not again
            )
        )
        self.open.append(item)

    def _new_text(self) -> _Item:
        random = self.random
        owner = self._owner()
        opener: dict[str, Any] = {"messageId": self._id("text")}
        role = "assistant"
        if random.random() < 0.6:
            role = random.choice(_ROLES)
            opener["role"] = role
        if random.random() < 0.2:
            opener["name"] = "Ada"
        self._hold(opener["messageId"], role, owner)
        return _Item("text", opener["messageId"], owner, opener)

    def _hold(self, id_: str, role: str, owner: Owner) -> None:
        self.messages[id_] = _Held(role, owner)
        self.owned[id_] = owner

    def _open_text(self) -> None:
        again = self._reopened("text")
        self._open_item(again or self._new_text(), again=again is not None)

    def _new_tool(self) -> _Item:
        """A call, on its own or attached to a message, known or not (TOOL-4)."""
        random = self.random
        owner = self._owner()
        id_ = self._id("call")
        opener: dict[str, Any] = {"toolCallId": id_, "toolCallName": random.choice(("find", "ask"))}
        carrier = id_
        chance = random.random()
        known = [
            key
            for key, message in self.messages.items()
            if self.owned.get(key, owner) == owner
            and message.owner == owner
            and (message.role == "assistant" or chance < 0.03)
        ]
        if known and chance < 0.5:
            parent = random.choice(known)
            opener["parentMessageId"] = parent
            carrier = parent if self.messages[parent].role == "assistant" else id_
        elif chance < 0.65:
            carrier = opener["parentMessageId"] = self._id("parent")
        if carrier not in self.messages:
            self.messages[carrier] = _Held("assistant", owner)
        self.messages[carrier].calls.append(id_)
        self.owner_of_call[id_] = owner
        self.calls.append(id_)
        return _Item("tool", id_, owner, opener)

    def _open_tool(self) -> None:
        again = self._reopened("tool")
        self._open_item(again or self._new_tool(), again=again is not None)

    def _open_span(self) -> None:
        again = self._reopened("span")
        id_ = self._id("span")
        self._open_item(
            again or _Item("span", id_, self._owner(), {"messageId": id_}), again=again is not None
        )

    def _new_reasoning(self) -> _Item:
        """A reasoning message, now and then with the id of the span around it (REAS-1)."""
        spans = [item for item in self.open if item.kind == "span"]
        owner, id_ = self._owner(), self._id("thought")
        if spans and self.random.random() < 0.6:
            span = self.random.choice(spans)
            if span.id not in self.messages:
                owner, id_ = span.owner, span.id
        self.messages[id_] = _Held("reasoning", owner)
        self.owned[id_] = owner
        return _Item("reasoning", id_, owner, {"messageId": id_, "role": "reasoning"})

    def _open_reasoning(self) -> None:
        again = self._reopened("reasoning")
        self._open_item(again or self._new_reasoning(), again=again is not None)

    def _write(self) -> None:
        items = [item for item in self.open if item.kind != "span"]
        if items:
            item = self.random.choice(items)
            self._write_to(item, self._delta(item))

    def _write_to(self, item: _Item, delta: str) -> None:
        event = {"type": _TYPES[item.kind][1], _NAMED[item.kind]: item.id, "delta": delta}
        self._emit(self._tagged(event, item.owner, required=False))

    def _close(self) -> None:
        if self.open:
            item = self.random.choice(self.open)
            self._whole(item)
            self.open.remove(item)
            self.past.append(item)
            named = _NAMED.get(item.kind, "messageId")
            event = {"type": _TYPES[item.kind][2], named: item.id}
            self._emit(self._tagged(event, item.owner, required=False))

    # Chunks

    def _open_chunks(self) -> None:
        kind = self.random.choice(("text", "text", "tool", "reasoning"))
        again = self._reopened(kind)
        new = {"text": self._new_text, "tool": self._new_tool, "reasoning": self._new_reasoning}
        item = again or new[kind]()
        event = {"type": _CHUNK[kind], **item.opener}
        if kind == "reasoning":
            del event["role"]
        if self.random.random() < 0.7:
            event["delta"] = item.half + self._text()
            item.half = ""
        self._tagged(event, item.owner, required=again is None)
        lane = event.get("subagentRunId")
        self._leave(lane)
        self._emit(event)
        self.lanes[lane] = item

    def _continue_chunks(self) -> None:
        """Continue a chunk stream, by name or by whatever leaves no doubt (CHUNK-7)."""
        random = self.random
        if not self.lanes:
            self._open_chunks()
            return
        lane = random.choice(list(self.lanes))
        item = self.lanes[lane]
        event: EventJson = {"type": _CHUNK[item.kind]}
        if random.random() < 0.85:
            event["delta"] = self._text()
        same = [owner for owner, other in self.lanes.items() if other.kind == item.kind]
        doubtful = len(same) > 1 and lane is not None
        tag = lane is not None and (random.random() < 0.6)
        if tag:
            event["subagentRunId"] = lane
        if random.random() < 0.5 or (doubtful and not tag):
            event[_NAMED[item.kind]] = item.id
            if random.random() < 0.3:
                event = {**item.opener, **event}
                if item.kind == "reasoning":
                    del event["role"]
        self._emit(event)

    # Everything else

    def _result(self) -> None:
        random = self.random
        open_calls = {item.id for item in self.open} | {item.id for item in self.lanes.values()}
        known = [
            call
            for message in self.messages.values()
            for call in message.calls
            if call not in open_calls
        ]
        call = random.choice(known) if known else "call-elsewhere"
        owner = self._owner()
        id_ = self._id("result")
        event = {
            "type": "TOOL_CALL_RESULT",
            "messageId": id_,
            "toolCallId": call,
            "content": self._content(),
        }
        if random.random() < 0.5:
            event["role"] = "tool"
        self.answered.add(call)
        self._hold(id_, "tool", owner)
        self._emit(self._tagged(event, owner))

    def _start_step(self) -> None:
        step = (self._owner(), self.random.choice(("search", "read", "write")))
        if step not in self.steps:
            self.steps.append(step)
            self._emit(self._tagged({"type": "STEP_STARTED", "stepName": step[1]}, step[0]))

    def _finish_step(self) -> None:
        if self.steps:
            step = self.random.choice(self.steps)
            self.steps.remove(step)
            self._emit(self._tagged({"type": "STEP_FINISHED", "stepName": step[1]}, step[0]))

    def _set_state(self) -> None:
        value = self._value(0) if self.random.random() < 0.3 else {"plan": [], "n": self._value(0)}
        self.state = value
        self._emit(self._tagged({"type": "STATE_SNAPSHOT", "snapshot": value}, self._owner()))

    def _patch_state(self) -> None:
        patch, self.state = self._patch(self.state)
        self._emit(self._tagged({"type": "STATE_DELTA", "delta": patch}, self._owner()))

    def _patch(self, document: Json) -> tuple[list[Json], Json]:
        """Operations that apply to a document one after the other, and what comes of it.

        Now and then the last one does not apply, and then nothing comes of any (STATE-4).
        """
        random = self.random
        patch: list[Json] = []
        now = document
        for _ in range(random.randrange(1, 4)):
            operation = self._operation(now)
            now = jsonpatch.apply_patch(now, [operation])
            patch.append(operation)
        if random.random() < 0.15:
            patch.append(
                random.choice(
                    (
                        {"op": "test", "path": "", "value": "something else"},
                        {"op": "remove", "path": "/not there"},
                        {"op": "replace", "path": "/not there", "value": 1},
                        {"op": "add", "path": "/not there/at all", "value": 1},
                        {"op": "copy", "from": "/not there", "path": "/a"},
                    )
                )
            )
            now = document
        return patch, now

    def _operation(self, document: Json) -> Json:
        random = self.random
        places = list(_places(document, ""))
        holders = [(path, value) for path, value in places if isinstance(value, dict | list)]
        inner = [(path, value) for path, value in places if path]
        kind = random.choice(("add", "add", "replace", "remove", "test", "copy", "move"))
        if kind == "add" and holders:
            path, value = random.choice(holders)
            key = (
                _escaped(random.choice((*_KEYS, "new")))
                if isinstance(value, dict)
                else random.choice(("-", str(len(value)), "0"))
            )
            return {"op": "add", "path": f"{path}/{key}", "value": self._value(1)}
        if kind in ("replace", "remove") and inner:
            path, _ = random.choice(inner)
            operation = {"op": kind, "path": path}
            if kind == "replace":
                operation["value"] = self._value(1)
            return operation
        if kind in ("copy", "move") and inner and isinstance(document, dict):
            # The target is no place inside the source, whatever the source is.
            return {"op": kind, "from": random.choice(inner)[0], "path": "/moved"}
        path, value = random.choice(places)
        return {"op": "test", "path": path, "value": value}

    def _set_activity(self) -> None:
        random = self.random
        owner = self._owner()
        replace = random.random() < 0.7
        known = list(self.activities)
        id_ = random.choice(known) if known and random.random() < 0.5 else self._id("activity")
        content = {"steps": [], "done": random.randrange(5)}
        event: EventJson = {
            "type": "ACTIVITY_SNAPSHOT",
            "messageId": id_,
            "activityType": random.choice(("PLAN", "SEARCH")),
            "content": content,
        }
        if not replace or random.random() < 0.3:
            event["replace"] = replace
        self._emit(self._tagged(event, owner))
        held = self.messages.get(id_)
        if held is None or replace:
            self.activities[id_] = (content, owner)
            self._hold(id_, "activity", owner)
        else:
            # The owner that is on record for this run is the one that is kept.
            self.owned.setdefault(id_, owner)
            self.activities[id_] = (self.activities[id_][0], self.owned[id_])

    def _patch_activity(self) -> None:
        if not self.activities:
            return
        id_ = self.random.choice(list(self.activities))
        content, _ = self.activities[id_]
        patch, content = self._patch(content)
        owner = self.owned.get(id_, self._owner())
        self.activities[id_] = (content, self.activities[id_][1])
        event = {
            "type": "ACTIVITY_DELTA",
            "messageId": id_,
            "activityType": self.random.choice(("PLAN", "SEARCH")),
            "patch": patch,
        }
        self._emit(self._tagged(event, owner, required=False))

    def _encrypt(self) -> None:
        """A value to be stored with a message or a call, known or not (REAS-4)."""
        random = self.random
        calls = [call for message in self.messages.values() for call in message.calls]
        event: EventJson = {"type": "REASONING_ENCRYPTED_VALUE", "encryptedValue": self._text()}
        if calls and random.random() < 0.4:
            event |= {"subtype": "tool-call", "entityId": random.choice(calls)}
        else:
            ids = [*self.messages, "nobody"]
            event |= {"subtype": "message", "entityId": random.choice(ids)}
        self._emit(event)

    def _restate(self) -> None:
        """A snapshot of some of the messages, and of some that are new (MSG-1)."""
        random = self.random
        for item in self.open:
            self._whole(item)
        open_ids = {item.id for item in (*self.open, *self.lanes.values())}
        stated: list[dict[str, Any]] = []
        for id_, held in self.messages.items():
            busy = id_ in open_ids or not open_ids.isdisjoint(held.calls)
            if not busy and random.random() < 0.3:
                continue
            message = self._restated(id_, held)
            if message is not None:
                stated.append(message)
        random.shuffle(stated)
        known = len(stated)
        stated.extend(self._message() for _ in range(random.randrange(2)))
        roles = {message["role"] for message in stated}
        self.messages = {
            id_: held
            for id_, held in self.messages.items()
            if any(message["id"] == id_ for message in stated)
            or (held.role in ("activity", "reasoning") and held.role not in roles)
        }
        self.activities = {
            id_: value for id_, value in self.activities.items() if id_ in self.messages
        }
        for message in stated[:known]:
            self.messages[message["id"]].calls = [
                call["id"] for call in message.get("toolCalls", [])
            ]
        for message in stated:
            self._own(message, authoritative=True)
        self.past = [item for item in self.past if item.kind == "span"]
        self._emit({"type": "MESSAGES_SNAPSHOT", "messages": stated})

    def _restated(self, id_: str, held: _Held) -> dict[str, Any] | None:
        message: dict[str, Any] = {"id": id_, "role": held.role}
        if held.owner is not None:
            message["subagentRunId"] = held.owner
        if held.role == "activity":
            message |= {"activityType": "PLAN", "content": self.activities[id_][0]}
        elif held.role == "tool":
            message |= {"toolCallId": "call-elsewhere", "content": self._content()}
        else:
            if held.role != "assistant" or self.random.random() < 0.7:
                message["content"] = self._text()
            calls = [
                _call(call, self._text())
                for call in held.calls
                if self.owner_of_call[call] == held.owner
            ]
            if calls:
                message["toolCalls"] = calls
        return message

    def _own(self, message: dict[str, Any], *, authoritative: bool) -> None:
        if authoritative or message["id"] not in self.owned:
            self.owned[message["id"]] = message.get("subagentRunId")

    def _start_subagent(self) -> None:
        random = self.random
        id_ = self._id("sub")
        event: EventJson = {"type": "SUBAGENT_STARTED", "subagentRunId": id_, "name": "helper"}
        others = [*self.active, *self.ended]
        if others and random.random() < 0.5:
            event["parentSubagentRunId"] = random.choice(others)
        if self.calls and random.random() < 0.3:
            event["parentToolCallId"] = random.choice(self.calls)
        self._emit(event)
        self.active.append(id_)

    def _end_subagent(self) -> None:
        if not self.active:
            return
        random = self.random
        id_ = random.choice(self.active)
        self.active.remove(id_)
        self.ended.append(id_)
        event: EventJson = {"type": "SUBAGENT_FINISHED", "subagentRunId": id_}
        match random.randrange(4):
            case 0:
                event = {"type": "SUBAGENT_ERROR", "subagentRunId": id_, "message": "it broke"}
            case 1:
                event["outcome"] = {"type": "suspended", "interruptIds": ["interrupt-1"]}
            case 2:
                event["result"] = self._value(1) or "done"
        self._emit(event)

    def _stand(self) -> None:
        event: EventJson = {"type": "CUSTOM", "name": "com.example.note", "value": self._value(0)}
        if self.random.random() < 0.5:
            event = {"type": "RAW", "event": self._value(0), "source": "provider"}
        self._emit(self._tagged(event, self._owner()))


def _reopens(events: list[EventJson], place: int) -> bool:
    """Whether an event opens what another of its type has opened before."""
    event = events[place]
    names = [(key, event[key]) for key in _IDS if key in event]
    return event["type"].endswith("_START") and any(
        earlier["type"] == event["type"] and earlier.get(key) == value
        for key, value in names[:1]
        for earlier in events[:place]
    )


def _with(event: EventJson, key: str, value: str | None) -> EventJson:
    """The event with another value of a member, None for no such member."""
    rest = {name: item for name, item in event.items() if name != key}
    return rest if value is None else {**rest, key: value}


def _call(id_: str, arguments: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": "find", "arguments": arguments}}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _places(value: Json, path: str) -> list[tuple[str, Json]]:
    """Every place in a document: its JSON Pointer and what is there."""
    places = [(path, value)]
    match value:
        case dict():
            for key, item in value.items():
                places += _places(item, f"{path}/{_escaped(key)}")
        case list():
            for index, item in enumerate(value):
                places += _places(item, f"{path}/{index}")
    return places
