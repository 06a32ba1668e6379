"""The binary binding: events as length-prefixed protobuf frames (http-protobuf page).

`encode_event` writes what the reference implementation writes, byte for byte (PB-4).
`decode_event` turns a frame into the plain JSON that the same event would be over SSE, and
judges nothing that enforcement judges (PB-3): an outcome, a role or a patch operation that this
version doesn't know comes out as what it is called, for enforcement to remove (PROC-10).

Needs the official runtime: `pip install 'aguia[protobuf]'`.
"""

from typing import Any, Final, NamedTuple

import msgspec

from aguia.codec.frames import CONTENT_TYPE, encode_frame
from aguia.codec.json import MAX_DEPTH
from aguia.codec.wire_json import (
    WireError,
    check_fields,
    decode_struct,
    decode_value,
    encode_struct,
    encode_value,
    read_tag,
    skip_field,
)
from aguia.protocol.errors import DecodeError
from aguia.protocol.events import EVENTS, Event

try:
    from google.protobuf.message import DecodeError as RuntimeDecodeError
    from google.protobuf.message import Message

    from aguia.codec import wire_pb2
except Exception as _error:
    # A runtime that is older than the generated code says so by an exception of its own.
    raise ImportError(
        "the binary binding needs the protobuf runtime, 5.28.1 or newer:"
        " pip install 'aguia[protobuf]'"
    ) from _error

__all__ = ["CONTENT_TYPE", "decode_event", "encode_event"]

_REQUIRED_LISTS: Final = {
    "MessagesSnapshotEvent.messages",
    "RunAgentInput.messages",
    "StateDeltaEvent.delta",
    "ActivityDeltaEvent.patch",
}
"""Lists that are never absent; an empty one of the others can't be told from an absent one."""

_UNKNOWN: Final = {"type": "unknown to this version"}
"""Stands for a part or source that has no arm here, for enforcement to remove."""

_PARTS_ROLES: Final = {"user", "tool"}


class _Field(NamedTuple):
    """One field of a wire message: its JSON name, its own, and how it travels."""

    json_name: str
    name: str
    repeated: bool
    message: str | None


class _Plan(NamedTuple):
    """The fields of a wire message by their JSON names and by their numbers."""

    by_name: dict[str, _Field]
    by_number: dict[int, _Field]
    texts: dict[str, str]
    lists: list[str]
    """These two are never absent from JSON, though the runtime doesn't list an empty one."""


def _plan(descriptor: Any) -> _Plan:
    plan = _Plan({}, {}, {}, [])
    for each in descriptor.fields:
        repeated = each.is_repeated if hasattr(each, "is_repeated") else each.label == 3
        field = _Field(
            json_name=each.json_name,
            name=each.name,
            repeated=repeated,
            message=each.message_type.name if each.message_type is not None else None,
        )
        plan.by_name[field.json_name] = field
        plan.by_number[each.number] = field
        if f"{descriptor.name}.{each.name}" in _REQUIRED_LISTS:
            plan.lists.append(field.json_name)
        elif not repeated and not each.has_presence and each.type == each.TYPE_STRING:
            plan.texts[field.json_name] = ""
    return plan


def _plans() -> dict[str, _Plan]:
    descriptors = dict(wire_pb2.DESCRIPTOR.message_types_by_name)
    descriptors["Function"] = descriptors["ToolCall"].nested_types_by_name["Function"]
    return {name: _plan(descriptor) for name, descriptor in descriptors.items()}


_PLANS: Final = _plans()

_ARMS: Final = {kind: kind.lower() for kind in EVENTS}
_MESSAGES: Final = {kind: event.__name__ for kind, event in EVENTS.items()}
_ARM_NUMBERS: Final = {
    field.number for field in wire_pb2.DESCRIPTOR.message_types_by_name["Event"].fields
}
_OPERATIONS: Final = wire_pb2.JsonPatchOperationType


def encode_event(event: Event) -> bytes:
    """One event as one frame: four bytes of length, and the message.

    Raises `ValueError` for a number that is beyond the range of a double.
    """
    plain: dict[str, Any] = msgspec.to_builtins(event)
    kind = plain.pop("type")
    envelope = wire_pb2.Event()
    target = getattr(envelope, _ARMS[kind])
    base = target.base_event
    base.SetInParent()
    base.type = wire_pb2.EventType.Value(kind)
    for member in ("timestamp", "rawEvent", "metadata"):
        if member in plain:
            _put(base, _PLANS["BaseEvent"].by_name[member], plain.pop(member))
    _flatten(kind, plain)
    _fill(target, _MESSAGES[kind], plain)
    return encode_frame(envelope.SerializeToString())


def _flatten(kind: str, plain: dict[str, Any]) -> None:
    """Reshape what the wire carries in another form than JSON does."""
    if kind in ("RUN_FINISHED", "SUBAGENT_FINISHED") and "outcome" in plain:
        outcome = plain.pop("outcome")
        plain["outcome"] = outcome.pop("type")
        plain.update(outcome)
    elif kind == "TOOL_CALL_RESULT" and not isinstance(plain["content"], str):
        plain["contentParts"] = plain.pop("content")


def _fill(target: Any, name: str, plain: dict[str, Any]) -> None:
    fields = _PLANS[name].by_name
    for member, value in _reshaped(name, plain).items():
        field = fields.get(member)
        # Members that the wire has no field for, as a patch operation may have, stay behind.
        if field is not None:
            _put(target, field, value)


def _put(target: Any, field: _Field, value: Any) -> None:
    if field.repeated:
        items = getattr(target, field.name)
        if field.message is None:
            items.extend([_whole(item) for item in value])
        else:
            for item in value:
                _fill(items.add(), field.message, item)
    elif field.message is None:
        setattr(target, field.name, _whole(value) if isinstance(value, str) else value)
    else:
        inner = getattr(target, field.name)
        inner.SetInParent()
        if field.message == "Value":
            inner.MergeFromString(encode_value(value))
        elif field.message == "Struct":
            inner.MergeFromString(encode_struct(value))
        else:
            _fill(inner, field.message, value)


def _reshaped(name: str, plain: dict[str, Any]) -> dict[str, Any]:
    if name in ("InputContent", "InputContentSource"):
        return {plain["type"]: {key: item for key, item in plain.items() if key != "type"}}
    if name == "Message":
        content = plain.get("content")
        if isinstance(content, list | dict):
            carrier = "contentParts" if isinstance(content, list) else "activityContent"
            plain = {key: item for key, item in plain.items() if key != "content"}
            return {**plain, carrier: content}
    elif name == "JsonPatchOperation":
        return {**plain, "op": _OPERATIONS.Value(plain["op"].upper())}
    return plain


def _whole(text: str) -> str:
    """The text, with the replacement character for half a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def decode_event(frame: bytes, max_depth: int = MAX_DEPTH) -> dict[str, Any] | None:
    """The event in a frame's message, as plain JSON that nobody has judged.

    `max_depth` is how deep the event's objects and arrays may be nested, itself included.
    None for an event of a kind that this version has no arm for (PB-2): it has no name here.
    Raises `DecodeError` for bytes that are no such message.
    """
    try:
        envelope = wire_pb2.Event.FromString(frame)
        if not _names_known_kind(frame):
            return None
        arm = envelope.WhichOneof("event")
        if arm is None:
            raise WireError("no event in the frame")
        kind = arm.upper()
        message = getattr(envelope, arm)
        event = _read(message, _MESSAGES[kind], max_depth - 1)
        base = event.pop("baseEvent", None)
        if base is None:
            raise WireError("an event without its base")
        if base.pop("type", 0) != wire_pb2.EventType.Value(kind):
            raise WireError(f"an event of the kind {kind} that says it is another")
        return {"type": kind, **base, **_unflattened(kind, event)}
    except (WireError, RuntimeDecodeError, UnicodeDecodeError) as error:
        # The runtime that is written in Python alone lets bad UTF-8 through as the last of these.
        raise DecodeError(f"the frame is no event: {error}", rule="PB-2") from None
    except RecursionError:
        raise DecodeError("the frame nests too deeply", rule=None) from None


def _names_known_kind(frame: bytes) -> bool:
    """Whether the envelope holds a kind of event that this version knows.

    False promises that what it holds instead is a message. Raises `WireError` for several kinds,
    or none. Other fields beside a known kind are for protobuf to ignore, as everywhere.
    """
    known: set[int] = set()
    unknown: list[bytes] = []
    at, end = 0, len(frame)
    while at < end:
        tag, start = read_tag(frame, at, end)
        at = skip_field(frame, start, end, tag)
        if tag >> 3 in _ARM_NUMBERS:
            known.add(tag >> 3)
        elif tag & 7 == 2:
            unknown.append(frame[start:at])
    if len(known) > 1:
        raise WireError("several kinds of event in one frame")
    if not known and not unknown:
        raise WireError("no event in the frame")
    if not known:
        for field in unknown:
            check_fields(field)
    return bool(known)


def _read(message: Message, name: str, depth: int) -> dict[str, Any]:
    if depth < 0:
        raise WireError("nested too deeply")
    plan = _PLANS[name]
    plain: dict[str, Any] = dict(plan.texts)
    for member in plan.lists:
        plain[member] = []
    fields = plan.by_number
    for descriptor, value in message.ListFields():
        field = fields[descriptor.number]
        read: Any = value
        if field.message is None:
            if field.repeated:
                read = list(value)
        elif field.repeated:
            read = [_item(item, field.message, depth - 2) for item in value]
        elif field.message == "Value":
            read = decode_value(value.SerializeToString(), depth)
        elif field.message == "Struct":
            read = decode_struct(value.SerializeToString(), depth)
        elif field.message == "BaseEvent":
            read = _read(value, "BaseEvent", depth)
        else:
            read = _item(value, field.message, depth - 1)
        plain[field.json_name] = read
    return plain


def _item(message: Any, name: str, depth: int) -> dict[str, Any]:
    if name in ("InputContent", "InputContentSource"):
        arm = message.WhichOneof("part" if name == "InputContent" else "source")
        if arm is None:
            return dict(_UNKNOWN)
        field = _PLANS[name].by_name[arm]
        assert field.message is not None
        return {"type": arm, **_read(getattr(message, arm), field.message, depth)}
    plain = _read(message, name, depth)
    if name == "Message":
        _merge_content(plain)
    elif name == "JsonPatchOperation":
        op = plain.get("op", 0)
        known = _OPERATIONS.values()
        plain["op"] = _OPERATIONS.Name(op).lower() if op in known else str(op)
    return plain


def _merge_content(message: dict[str, Any]) -> None:
    """Put the one content that a message has where JSON has it."""
    carried = [name for name in ("content", "contentParts", "activityContent") if name in message]
    if len(carried) > 1:
        raise WireError("a message with more than one content")
    if carried:
        message["content"] = message.pop(carried[0])
    elif message["role"] in _PARTS_ROLES:
        message["content"] = []


def _unflattened(kind: str, event: dict[str, Any]) -> dict[str, Any]:
    if kind == "TOOL_CALL_RESULT":
        parts = event.pop("contentParts", [])
        if parts and "content" in event:
            raise WireError("a result with more than one content")
        event.setdefault("content", parts)
    elif kind in ("RUN_FINISHED", "SUBAGENT_FINISHED"):
        outcome = event.pop("outcome")
        if outcome:
            event["outcome"] = {"type": outcome}
            for member in ("interrupts", "pendingToolCallIds", "interruptIds"):
                if member in event:
                    event["outcome"][member] = event.pop(member)
            if outcome == "interrupt":
                event["outcome"].setdefault("interrupts", [])
    return event
