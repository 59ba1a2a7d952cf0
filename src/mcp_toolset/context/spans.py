"""Spans of requests: `server_span` around one that is served, `SentRequest` around one that is sent.

Names and attributes are those of OpenTelemetry's conventions for MCP. OpenTelemetry is imported by the
program that collects traces, because a variable of its environment names a provider (`provide`), or by a
server with a `TraceSampler`; otherwise nothing is imported, and there are no spans.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, cast

from pydantic_core import ValidationError

from mcp_toolset.calls.decision import OTEL, TRACER, watched
from mcp_toolset.calls.observers import NAME, Observation, TraceSampler
from mcp_toolset.concurrency.tasks import CancelledError
from mcp_toolset.context.connection import RequestContext
from mcp_toolset.errors import UpstreamProtocolError, UpstreamTimeoutError
from mcp_toolset.protocol.json_rpc import INVALID_PARAMS, MCPError, RequestTimedOut

_PROVIDER: Final = "OTEL_PYTHON_TRACER_PROVIDER"
"""The variable that names a provider: OpenTelemetry makes that one when it is first asked for one."""

_CALL: Final = "tools/call"


def provide() -> None:
    """Make OpenTelemetry's provider that the environment names, if it names one."""
    if os.environ.get(_PROVIDER):
        with suppress(ImportError):
            from opentelemetry import trace

            trace.get_tracer_provider()


def trace_ids() -> dict[str, str]:
    if not watched():
        return {}
    current: Any = sys.modules[OTEL].get_current_span().get_span_context()
    if not current.is_valid:
        return {}
    return {"trace": f"{current.trace_id:032x}", "span": f"{current.span_id:016x}"}


async def server_span(
    work: Awaitable[dict[str, Any]], request: RequestContext, traces: TraceSampler | None = None
) -> dict[str, Any]:
    """The result of `work`, within a span that continues the client's trace; `traces` may make the spans."""
    from opentelemetry import trace

    tracer: Any = trace.get_tracer(NAME) if traces is None else traces.tracer
    token = None if traces is None else TRACER.set(tracer)
    if traces is not None:
        traces.active += 1
    method, target = request.method, _target(request.params)
    span = tracer.start_as_current_span(
        f"{method} {target}" if target else method,
        kind=trace.SpanKind.SERVER,
        attributes=_attributes(request, target),
        context=_context_in((request.params or {}).get("_meta")),
        record_exception=False,
        set_status_on_exception=False,
    )
    try:
        with span as current:
            try:
                result = await work
            # Whatever a request fails by belongs into its span.
            except (Exception, CancelledError) as fault:
                _note(current, fault)
                raise
            if method == _CALL and result.get("isError") is True:
                _note_tool_error(current)
            return result
    finally:
        if token is not None and traces is not None:
            traces.active -= 1
            TRACER.reset(token)


class SentRequest:
    """The span of a request that is sent; its `params` have the trace context in `_meta`."""

    __slots__ = ("_method", "_span", "params")

    def __init__(self, method: str, params: Mapping[str, Any] | None) -> None:
        from opentelemetry import trace
        from opentelemetry.propagate import inject

        self._method = method
        target = _target(params)
        tracer: Any = TRACER.get() or trace.get_tracer(NAME)
        # It is not made the current one, which would cost a third more: nothing else is traced within it.
        self._span: Any = tracer.start_span(
            method if target is None else f"{method} {target}",
            kind=trace.SpanKind.CLIENT,
            attributes=_named(method, target),
        )
        meta: dict[str, Any] = dict((params or {}).get("_meta") or {})
        inject(meta, trace.set_span_in_context(self._span))
        self.params: Mapping[str, Any] | None = {**(params or {}), "_meta": meta} if meta else params

    def __enter__(self) -> SentRequest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if fault is not None:
            _note(self._span, fault)
        self._span.end()

    def answered(self, result: dict[str, Any]) -> dict[str, Any]:
        if self._method == _CALL and result.get("isError") is True:
            _note_tool_error(self._span)
        return result


def note_sent(
    seen: Observation,
    server: str,
    method: str,
    params: Mapping[str, Any],
    answer: Mapping[str, Any] | None,
    seconds: float,
) -> None:
    error = "tool_error" if answer is not None and "isError" in answer and answer["isError"] is True else ""
    if answer is None and (fault := sys.exc_info()[1]) is not None:
        error = error_of(fault)
    tool = params["name"] if method == _CALL else ""
    seen.sent = (*seen.sent, ((method, tool, server, error), seconds))


def session_digest(session: str) -> str:
    """A digest in place of a session's id, which may be all that its owner shows."""
    from hashlib import sha256

    return sha256(session.encode()).hexdigest()[:16]


def _target(params: Mapping[str, Any] | None) -> str | None:
    name = params.get("name") if params else None
    return name if isinstance(name, str) else None


def _named(method: str, target: str | None) -> dict[str, str]:
    made = {"mcp.method.name": method}
    if method == _CALL:
        made["gen_ai.operation.name"] = "execute_tool"
        if target is not None:
            made["gen_ai.tool.name"] = target
    elif method == "prompts/get" and target is not None:
        made["gen_ai.prompt.name"] = target
    return made


def _attributes(request: RequestContext, target: str | None) -> dict[str, str]:
    made = _named(request.method, target)
    made["mcp.protocol.version"] = request.protocol_version
    made["network.transport"] = "pipe" if request.http is None else "tcp"
    if request.request_id is not None:
        made["jsonrpc.request.id"] = str(request.request_id)
    if (session := request.connection.session_id) is not None:
        made["mcp.session.id"] = session_digest(session)
    return made


def _context_in(meta: object) -> Any:
    from opentelemetry.propagate import extract
    from opentelemetry.trace import get_current_span

    if not meta or not isinstance(meta, Mapping):
        return None
    # What a client sends there may be anything.
    with suppress(ValueError, TypeError):
        context = extract(cast("Mapping[str, Any]", meta))
        if get_current_span(context).get_span_context().is_valid:
            return context
    return None


def error_of(fault: BaseException) -> str:
    if isinstance(fault, RequestTimedOut | UpstreamTimeoutError):
        return "timeout"
    if isinstance(fault, MCPError | UpstreamProtocolError):
        return str(fault.code)
    return "cancelled" if isinstance(fault, CancelledError) else type(fault).__qualname__


def _note_tool_error(span: Any) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", "tool_error")
    span.set_status(StatusCode.ERROR)


def _note(span: Any, fault: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    if isinstance(fault, ValidationError):
        # Its text holds what the client sent.
        fault = MCPError(INVALID_PARAMS, "Invalid request parameters")
    error = error_of(fault)
    span.set_attribute("error.type", error)
    if isinstance(fault, MCPError) and error == str(fault.code):
        span.set_attribute("rpc.response.status_code", error)
    # The text of an error may quote arguments: it is for a program that collects traces itself.
    if TRACER.get() is not None or isinstance(fault, CancelledError):
        span.set_status(StatusCode.ERROR)
    elif isinstance(fault, MCPError):
        span.set_status(StatusCode.ERROR, fault.message)
    else:
        span.record_exception(fault)
        span.set_status(StatusCode.ERROR, str(fault))
