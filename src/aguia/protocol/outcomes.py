"""How runs and subagents end: outcomes, the interrupts that a run stops for, token usage."""

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from msgspec import Meta

from aguia.protocol.common import (
    UNSET,
    Count,
    Metadata,
    UnsetType,
    WireStruct,
)
from aguia.protocol.messages import Attributable

__all__ = [
    "Interrupt",
    "RunFinishedCancelledOutcome",
    "RunFinishedInterruptOutcome",
    "RunFinishedOutcome",
    "RunFinishedSuccessOutcome",
    "SubagentFinishedOutcome",
    "SubagentFinishedSuccessOutcome",
    "SubagentFinishedSuspendedOutcome",
    "TokenUsage",
]


class Interrupt(Attributable, frozen=True, kw_only=True):
    """Something that a run asks of the outside, answered by the next run's `resume` (INT-1)."""

    id: str
    reason: str
    message: str | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    response_schema: dict[str, Any] | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET

    def __hash__(self) -> int:
        # Its schema and metadata are no reason to keep it out of sets and from under keys.
        return hash(self.id)


class RunFinishedSuccessOutcome(
    WireStruct, tag_field="type", tag="success", frozen=True, kw_only=True
):
    """The run completed; the named tool calls are left for the application (FRONT-3)."""

    type: ClassVar[Literal["success"]] = "success"
    pending_tool_call_ids: list[str] | UnsetType = UNSET


class RunFinishedInterruptOutcome(
    WireStruct, tag_field="type", tag="interrupt", frozen=True, kw_only=True
):
    """The run stopped to ask; `interrupts` is never empty."""

    type: ClassVar[Literal["interrupt"]] = "interrupt"
    interrupts: Annotated[list[Interrupt], Meta(min_length=1)]


class RunFinishedCancelledOutcome(
    WireStruct, tag_field="type", tag="cancelled", frozen=True, kw_only=True
):
    """The run was stopped on purpose before it completed (RUN-10)."""

    type: ClassVar[Literal["cancelled"]] = "cancelled"


RunFinishedOutcome: TypeAlias = (
    RunFinishedSuccessOutcome | RunFinishedInterruptOutcome | RunFinishedCancelledOutcome
)


class SubagentFinishedSuccessOutcome(
    WireStruct, tag_field="type", tag="success", frozen=True, kw_only=True
):
    """The invocation completed."""

    type: ClassVar[Literal["success"]] = "success"


class SubagentFinishedSuspendedOutcome(
    WireStruct, tag_field="type", tag="suspended", frozen=True, kw_only=True
):
    """The invocation waits for outside input; a later run may continue its id (SUB-5)."""

    type: ClassVar[Literal["suspended"]] = "suspended"
    interrupt_ids: list[str] | UnsetType = UNSET


SubagentFinishedOutcome: TypeAlias = (
    SubagentFinishedSuccessOutcome | SubagentFinishedSuspendedOutcome
)


class TokenUsage(WireStruct, frozen=True, kw_only=True):
    """Tokens of one provider and model in one run. Absent is not reported, not zero (USE-1)."""

    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    input_tokens: Count | UnsetType = UNSET
    output_tokens: Count | UnsetType = UNSET
    total_tokens: Count | UnsetType = UNSET
    reasoning_tokens: Count | UnsetType = UNSET
    cached_input_tokens: Count | UnsetType = UNSET
    cache_write_input_tokens: Count | UnsetType = UNSET
