"""The binary binding: events as length-prefixed protobuf frames (http-protobuf page).

`encode_event` writes what the reference implementation writes, byte for byte (PB-4).
`decode_event` turns a frame into the plain JSON that the same event would be over SSE, and
judges nothing that enforcement judges (PB-3): an outcome, a role or a patch operation that this
version doesn't know comes out as what it is called, for enforcement to remove.

Needs the official runtime: `pip install 'aguia[protobuf]'`.
"""

from typing import Any, Final, NamedTuple

import msgspec

from aguia.codec.frames import CONTENT_TYPE, encode_frame
from aguia.codec.json import MAX_DEPTH
from aguia.codec.wire_json import (
    WireError,
    decode_struct,
    decode_value,
    encode_struct,
    encode_value,
    read_varint,
)
from aguia.protocol.errors import DecodeError
from aguia.protocol.events import EVENTS, Event

try:
    from google.protobuf.message import DecodeError as RuntimeDecodeError
    from google.protobuf.message import Message

    from aguia.codec import wire_pb2
except ImportError as error:  # pragma: no cover - the tests have the runtime
    raise ImportError(
        "the binary binding needs the protobuf runtime: pip install 'aguia[protobuf]'"
    ) from error

__all__ = ["CONTENT_TYPE", "decode_event", "encode_event"]

_STRUCTS: Final = {
    "BaseEvent.metadata",
    "ToolCall.metadata",
    "Message.metadata",
    "Message.activity_content",
    "Tool.metadata",
    "ResumeEntry.metadata",
    "ActivitySnapshotEvent.content",
}
"""Members that are google.protobuf.Struct; the other bytes are google.protobuf.Value."""

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
    is_struct: bool
    is_value: bool
    always: bool
    """Whether the wire can't say that it is absent."""


def _plan(descriptor: Any) -> list[_Field]:
    plan = []
    for field in descriptor.fields:
        if field.name == "base_event":
            continue
        full = f"{descriptor.name}.{field.name}"
        repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == 3
        is_bytes = field.type == field.TYPE_BYTES
        plan.append(
            _Field(
                json_name=field.json_name,
                name=field.name,
                repeated=repeated,
                message=field.message_type.name if field.message_type is not None else None,
                is_struct=full in _STRUCTS,
                is_value=is_bytes and full not in _STRUCTS,
                always=full in _REQUIRED_LISTS if repeated else not field.has_presence,
            )
        )
    return plan


def _plans() -> dict[str, dict[str, _Field]]:
    descriptors = dict(wire_pb2.DESCRIPTOR.message_types_by_name)
    descriptors["Function"] = descriptors["ToolCall"].nested_types_by_name["Function"]
    return {
        name: {field.json_name: field for field in _plan(descriptor)}
        for name, descriptor in descriptors.items()
    }


_PLANS: Final = _plans()

_ARMS: Final = {kind: kind.lower() for kind in EVENTS}
_MESSAGES: Final = {kind: event.__name__ for kind, event in EVENTS.items()}
_ARM_NUMBERS: Final = {
    field.number for field in wire_pb2.DESCRIPTOR.message_types_by_name["Event"].fields
}
_OPERATIONS: Final = wire_pb2.JsonPatchOperationType


def encode_event(event: Event) -> bytes:
    """One event as one frame: four bytes of length, and the message."""
    plain: dict[str, Any] = msgspec.to_builtins(event)
    kind = plain.pop("type")
    envelope = wire_pb2.Event()
    target = getattr(envelope, _ARMS[kind])
    base = target.base_event
    base.SetInParent()
    base.type = wire_pb2.EventType.Value(kind)
    for member in ("timestamp", "rawEvent", "metadata"):
        if member in plain:
            _put(base, _PLANS["BaseEvent"][member], plain.pop(member))
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
    plan = _PLANS[name]
    for member, value in _reshaped(name, plain).items():
        field = plan.get(member)
        # Members that the wire has no field for, as a patch operation may have, stay behind.
        if field is not None:
            _put(target, field, value)


def _put(target: Any, field: _Field, value: Any) -> None:
    if field.message is not None:
        if field.repeated:
            items = getattr(target, field.name)
            for item in value:
                _fill(items.add(), field.message, item)
        else:
            inner = getattr(target, field.name)
            inner.SetInParent()
            _fill(inner, field.message, value)
    elif field.repeated:
        getattr(target, field.name).extend([_whole(item) for item in value])
    elif field.is_struct:
        setattr(target, field.name, encode_struct(value))
    elif field.is_value:
        setattr(target, field.name, encode_value(value))
    else:
        setattr(target, field.name, _whole(value) if isinstance(value, str) else value)


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

    None for an event of a kind that this version has no arm for (PB-2): it has no name here.
    Raises `DecodeError` for bytes that are no such message.
    """
    try:
        arms = _arms(frame)
        envelope = wire_pb2.Event.FromString(frame)
        if arms and not arms & _ARM_NUMBERS:
            return None
        if len(arms) != 1:
            raise WireError(f"{len(arms)} kinds of event in one frame")
        arm = envelope.WhichOneof("event")
        if arm is None:
            raise WireError("no event in the frame")
        kind = arm.upper()
        message = getattr(envelope, arm)
        if not message.HasField("base_event"):
            raise WireError("an event without its base")
        base = message.base_event
        if base.type != wire_pb2.EventType.Value(kind):
            raise WireError(f"an event of the kind {kind} that says it is another")
        event: dict[str, Any] = {"type": kind}
        if base.HasField("timestamp"):
            event["timestamp"] = base.timestamp
        if base.HasField("raw_event"):
            event["rawEvent"] = decode_value(base.raw_event, max_depth)
        if base.HasField("metadata"):
            event["metadata"] = decode_struct(base.metadata, max_depth)
        event.update(_read(message, _MESSAGES[kind], max_depth))
    except (WireError, RuntimeDecodeError) as error:
        raise DecodeError(f"the frame is no event: {error}", rule="PB-2") from None
    return _unflattened(kind, event)


def _arms(frame: bytes) -> set[int]:
    """The numbers of the fields of the envelope; there is one in a frame that is an event."""
    numbers: set[int] = set()
    at, end = 0, len(frame)
    while at < end:
        tag, at = read_varint(frame, at, end)
        if tag & 7 != 2 or tag < 8:
            raise WireError("a field of no known form")
        size, at = read_varint(frame, at, end)
        at += size
        numbers.add(tag >> 3)
    if at > end:
        raise WireError("a length beyond the end")
    return numbers


def _read(message: Message, name: str, max_depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for field in _PLANS[name].values():
        value = getattr(message, field.name)
        if field.repeated:
            if value or field.always:
                plain[field.json_name] = (
                    list(value)
                    if field.message is None
                    else [_item(item, field.message, max_depth) for item in value]
                )
        elif field.always:
            plain[field.json_name] = value
        elif message.HasField(field.name):
            if field.message is not None:
                value = _item(value, field.message, max_depth)
            elif field.is_struct:
                value = decode_struct(value, max_depth)
            elif field.is_value:
                value = decode_value(value, max_depth)
            plain[field.json_name] = value
    return plain


def _item(message: Any, name: str, max_depth: int) -> dict[str, Any]:
    if name in ("InputContent", "InputContentSource"):
        arm = message.WhichOneof("part" if name == "InputContent" else "source")
        if arm is None:
            return dict(_UNKNOWN)
        field = _PLANS[name][arm]
        assert field.message is not None
        return {"type": arm, **_item(getattr(message, arm), field.message, max_depth)}
    plain = _read(message, name, max_depth)
    if name == "Message":
        _merge_content(plain)
    elif name == "JsonPatchOperation":
        op = plain["op"]
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
            raise DecodeError("the frame is no event: two contents in a result", rule="PB-2")
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
