"""Record every decision on a call: a log record and an event on the OpenTelemetry span.

The text of a record names the tool, the call and the decision, and has no argument values above the debug
level. The values are fields of the record (`tool`, `call_id`, `decision`, `effective_input`, `reason`), for a
handler that is trusted with them: they are not redacted.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any, Final

from mcp_toolset.tools.core.call import ToolCall
from mcp_toolset.tools.text.hidden_text import in_log

EVENT: Final = "mcp_toolset.decision"
"""The name of the event on the current span."""

_log = logging.getLogger("mcp_toolset.hooks")


def record(call: ToolCall, decision: str, effective: Any, *, reason: str = "") -> None:
    """Record a decision; nearly free while logging and tracing are off.

    Args:
        call: The call.
        decision: The decision, as the name of its type (`RunNormally`).
        effective: The input that the tool would run with now.
        reason: The text for the model, if the call is refused.
    """
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
    if (trace := sys.modules.get("opentelemetry.trace")) is not None:
        span = trace.get_current_span()
        if span.is_recording():
            span.add_event(EVENT, _attributes(call, decision, effective, reason))


def _attributes(call: ToolCall, decision: str, effective: Any, reason: str) -> dict[str, str]:
    """The fields under the names of OpenTelemetry's conventions for generative AI, where they exist."""
    found = {
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.call.arguments": json.dumps(effective, default=repr),
        "mcp_toolset.decision": decision,
        "mcp_toolset.reason": reason,
    }
    return {key: value for key, value in found.items() if value}
