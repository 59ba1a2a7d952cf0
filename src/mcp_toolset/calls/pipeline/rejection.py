"""The standard form of a rejection: a tool result with a marker that programs can read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from mcp_toolset.calls.pipeline.decision import Reject, RejectionSource
from mcp_toolset.tools.core.result import ToolResult, encodable

REJECTION_META_KEY: Final = "mcp-toolset/rejection"


@dataclass(frozen=True, slots=True)
class RejectionReason:
    """Why a call was refused, and by which rule."""

    reason: str
    source: RejectionSource


def rejection(decision: Reject) -> ToolResult:
    """A refusal as a result that a model can read and a program can recognise."""
    reason = encodable(decision.reason)
    return ToolResult(
        {
            "content": [{"type": "text", "text": f"Rejected: {reason}"}],
            "isError": True,
            "_meta": {REJECTION_META_KEY: {"reason": reason, "source": decision.source}},
        }
    )


def rejection_reason(result: ToolResult) -> RejectionReason | None:
    """The reason of a refusal, or `None` if the result is not a refusal."""
    meta: Any = result.wire.get("_meta")
    marker: Any = cast("dict[str, Any]", meta).get(REJECTION_META_KEY) if isinstance(meta, dict) else None
    if not isinstance(marker, dict):
        return None
    fields = cast("dict[str, Any]", marker)
    return RejectionReason(
        str(fields.get("reason", "")), "policy" if fields.get("source") == "policy" else "hook"
    )
