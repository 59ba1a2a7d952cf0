"""`RunNormally`, `Complete` and `Reject`: what a hook may decide about a call, its record and its result."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from math import ceil
from typing import Any, Final, Literal, cast

from mcp_toolset._records import dataclass
from mcp_toolset._rule import require_given
from mcp_toolset.errors import RetrySuggestedError, ToolsetError
from mcp_toolset.tools.call import ToolCall
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import ToolResult, encodable

RejectionSource = Literal["hook", "policy"]


@dataclass(frozen=True, slots=True)
class RunNormally:
    """Run the call with this input: the hook's input or an edited one, which is checked again."""

    input: Any


@dataclass(frozen=True, slots=True)
class Complete:
    """Answer the call with this output in place of the tool; no later hook runs."""

    output: Any

    def __post_init__(self) -> None:
        require_given("Complete", __name__)

    def result(self) -> ToolResult:
        """The output as a result."""
        if isinstance(self.output, ToolResult):
            return self.output
        if isinstance(self.output, str):
            return ToolResult.of_text(self.output)
        return ToolResult.of_structured(self.output)


@dataclass(frozen=True, slots=True)
class Reject:
    """Refuse the call; the model reads the reason, a text, and no later hook runs."""

    reason: str
    source: RejectionSource = "hook"

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"Reject takes a reason for the model, a text, not {self.reason!r}")
        require_given("Reject", __name__)


Decision = RunNormally | Complete | Reject


REJECTION_META_KEY: Final = "mcp-toolset/rejection"


@dataclass(frozen=True, slots=True)
class RejectionReason:
    """Why a call was refused, and by which rule."""

    reason: str
    source: RejectionSource


def rejection(decision: Reject) -> ToolResult:
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


RETRY_META_KEY: Final = "mcp-toolset/retry"


def error_result(fault: ToolsetError) -> ToolResult:
    result = ToolResult.of_error(str(fault))
    return suggesting(result, fault.after) if isinstance(fault, RetrySuggestedError) else result


def suggesting(result: ToolResult, after: float) -> ToolResult:
    meta: Any = result.wire.get("_meta") or {}
    return ToolResult({**result.wire, "_meta": {**meta, RETRY_META_KEY: {"after": after}}})


def in_tenths(seconds: float) -> float:
    """A wait in tenths of a second, rounded up, so that a caller who waits so long has waited enough."""
    return max(1, ceil(round(seconds * 10, 9))) / 10


EVENT: Final = "mcp_toolset.decision"  # The name of the event on the current span.

TRACER: Final[ContextVar[Any]] = ContextVar("mcp_toolset_tracer", default=None)
"""Makes the spans of the current request, if an observer of a server sends them on: see `TraceSampler`."""

OTEL: Final = "opentelemetry.trace"
PROVIDER: Final = "_TRACER_PROVIDER"
_MODULES: Final = sys.modules
_log = logging.getLogger("mcp_toolset.hooks")


def tracing() -> bool:
    """True if the program collects traces: else spans would go nowhere."""
    # The public way to ask reads the environment each time, which costs as much as parsing a message. The
    # module has no provider yet while another thread imports it.
    return OTEL in _MODULES and PROVIDER in (of := _MODULES[OTEL].__dict__) and of[PROVIDER] is not None


def watched() -> bool:
    if TRACER.get() is not None:
        return True
    # As `tracing`, without a further function call for each request.
    return OTEL in _MODULES and PROVIDER in (of := _MODULES[OTEL].__dict__) and of[PROVIDER] is not None


def record(call: ToolCall, decision: str, effective: Any, *, reason: str = "") -> None:
    """Record a decision, by the name of its type; nearly free while logging and tracing are off."""
    if _log.isEnabledFor(logging.INFO):
        fields = {
            "tool": call.name,
            "call_id": call.id,
            "decision": decision,
            "effective_input": effective,
            "reason": reason,
        }
        _log.info(
            "%s (call %s): %s", in_log(call.name), in_log(call.id or "-"), in_log(decision), extra=fields
        )
        _log.debug("%s (call %s): effective input %r", in_log(call.name), in_log(call.id or "-"), effective)
    # If OpenTelemetry was never imported there is no span.
    if (trace := sys.modules.get(OTEL)) is not None:
        span = trace.get_current_span()
        if span.is_recording():
            # A program that collects traces itself has asked for what they hold; a collector has not.
            told = effective if TRACER.get() is None else None
            span.add_event(EVENT, _attributes(call, decision, told, reason))


def _attributes(call: ToolCall, decision: str, effective: Any, reason: str) -> dict[str, str]:
    attributes = {
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.call.arguments": "" if effective is None else json.dumps(effective, default=repr),
        "mcp_toolset.decision": decision,
        "mcp_toolset.reason": reason,
    }
    return {key: value for key, value in attributes.items() if value}
