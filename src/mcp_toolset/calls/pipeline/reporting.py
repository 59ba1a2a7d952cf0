"""The end of an observed call: one place reports every call to observers and to the current span.

`ToolDispatch.call` reports every call that it runs: served, made by the program that owns a server, or of a
round. A round reports the calls that never run. Without observers, a call does nothing here.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import Token
from time import perf_counter, time
from typing import Any, Final

from mcp_toolset.calls.pipeline.call_report import CallReport, client_label, outcome_of
from mcp_toolset.calls.pipeline.decision import OTEL, TRACER, tracing
from mcp_toolset.calls.pipeline.observers import (
    CURRENT,
    CallFacts,
    DigestingObserver,
    Listeners,
    Observation,
    Sampler,
    tell,
)
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult

NAME: Final = "mcp_toolset"
"""The name under which collectors know what this package measures."""

_ATTRIBUTES: Final = (
    "gen_ai.tool.name",
    "mcp_toolset.outcome",
    "gen_ai.tool.call.id",
    "mcp_toolset.called",
    "mcp_toolset.server",
    "mcp_toolset.reason",
    "mcp_toolset.decisions",
)
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
_EXECUTED: Final = "execute_tool"
_OPERATION: Final = {"gen_ai.operation.name": _EXECUTED}


def ended(
    seen: Observation,
    token: Token[Observation | None],
    listeners: Listeners | None,
    call: ToolCall,
    context: ToolContext,
    result: ToolResult | None,
) -> None:
    """Report the outcome of a call to the observers and the current span."""
    CURRENT.reset(token)
    otel = _tracing(listeners)
    if otel is not None:
        _trace(otel, seen, call, context, result)
    if listeners is None:
        return
    for log in listeners.logs:
        if otel is not None or not _is_noted(log, seen, call, context, result):
            tell((log.note,), facts_of(seen, call, context, result))
    for counter in listeners.counters:
        counter.count_call(seen, context, result)
    if listeners.observers:
        tell(listeners.observers, report_of(seen, call, context, result))


def _is_noted(
    log: DigestingObserver, seen: Observation, call: ToolCall, context: ToolContext, result: ToolResult | None
) -> bool:
    """Whether a log has taken a call of which there is nothing special to say: nearly all are such calls."""
    binding = seen.binding
    if result is None or binding is None or seen.fault is not None or seen.rule or seen.decisions or call.id:
        return False
    if seen.usage:
        return False
    wire = result.wire
    if "_meta" in wire or result.ask is not None or wire.get("resultType", "complete") != "complete":
        return False
    if context.round or "traceparent" in context.meta:
        return False
    common = (
        call.name,
        binding.name,
        binding.source,
        context.principal,
        context.protocol_version,
        context.session,
        client_label(context),
        id(context.identity),
    )
    outcome = "error" if wire.get("isError") is True else "result"
    return log.note_plain(common, seen.arguments, outcome, seen.ran, perf_counter() - seen.began)


def report_of(
    seen: Observation, call: ToolCall, context: ToolContext, result: ToolResult | None
) -> CallReport:
    return CallReport(*facts_of(seen, call, context, result))


def facts_of(seen: Observation, call: ToolCall, context: ToolContext, result: ToolResult | None) -> CallFacts:
    outcome, reason = outcome_of(seen.fault, result)
    binding, duration = seen.binding, perf_counter() - seen.began
    return CallFacts._make(
        (
            call.name,
            "" if binding is None else binding.name,
            "" if binding is None else binding.source,
            outcome,
            reason,
            seen.ran,
            seen.decisions,
            call.id,
            context.round,
            context.session,
            context.principal,
            client_label(context),
            context.protocol_version,
            time() - duration,
            duration,
            context.identity,
            seen.arguments,
            seen.rule,
            _trace_of(context),
            seen.repairs,
            seen.usage,
        )
    )


def extra_of(call: ToolCall, context: ToolContext, server: str) -> dict[str, object]:
    """What a log record about a call has in its `extra`: see `serving.log_lines`."""
    found = {"tool": call.name, "server": server, "client": client_label(context)}
    return {
        **found,
        "id": call.id or context.request_id,
        "trace": _trace_of(context),
        "kept_level": logging.WARNING,
    }


def span_of(
    call: ToolCall, context: ToolContext, listeners: Listeners | None
) -> AbstractContextManager[object] | None:
    """The span of a call that is not all of a client's request, if it is traced."""
    tracer = TRACER.get() if listeners is not None and listeners.times else None
    if tracer is None and tracing():
        tracer = sys.modules[OTEL].get_tracer(NAME)
    if tracer is not None:
        return tracer.start_as_current_span(f"{_EXECUTED} {call.name}", attributes=_OPERATION)
    traces = None if listeners is None else listeners.traces
    if traces is not None and not context.is_inner and traces.sampled(context.meta):
        return _sampled_span(call, traces)
    return None


@contextmanager
def _sampled_span(call: ToolCall, traces: Sampler) -> Generator[None]:
    """The first span of a trace, of a call without a client."""
    token = TRACER.set(traces.tracer)
    traces.active += 1
    try:
        with traces.tracer.start_as_current_span(f"{_EXECUTED} {call.name}", attributes=_OPERATION):
            yield
    finally:
        traces.active -= 1
        TRACER.reset(token)


def _trace_of(context: ToolContext) -> str:
    """The id of the current trace, or of the client's (W3C Trace Context); empty without one."""
    otel: Any = sys.modules[OTEL] if TRACER.get() is not None or tracing() else None
    if otel is not None and (current := otel.get_current_span().get_span_context()).is_valid:
        return f"{current.trace_id:032x}"
    if (sent := context.meta.get("traceparent")) is None:
        return ""
    parts = str(sent).split("-")
    return parts[1] if len(parts) == 4 and _TRACE_ID.fullmatch(parts[1]) else ""


def _tracing(listeners: Listeners | None) -> Any:
    """OpenTelemetry's module of traces, if a tracer provider is set, or the server traces the call."""
    traces = None if listeners is None else listeners.traces
    own = traces is not None and traces.active and TRACER.get() is not None
    return sys.modules[OTEL] if own or tracing() else None


def _trace(
    otel: Any, seen: Observation, call: ToolCall, context: ToolContext, result: ToolResult | None
) -> None:
    """Set the tool, its server and the outcome on the current span, by OpenTelemetry's conventions."""
    if not (span := otel.get_current_span()).is_recording():
        return
    outcome, reason = outcome_of(seen.fault, result)
    tool, server = (call.name, "") if seen.binding is None else (seen.binding.name, seen.binding.source)
    called = call.name if tool != call.name else ""
    if called and (context.is_inner or context.protocol_version is None):
        span.update_name(f"{_EXECUTED} {tool}")
    decisions = ",".join(seen.decisions)
    values = (tool, outcome, call.id, called, server, reason, decisions)
    span.set_attributes({key: value for key, value in zip(_ATTRIBUTES, values, strict=True) if value})
