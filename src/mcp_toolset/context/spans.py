"""OpenTelemetry spans of requests: `server_span` around one that is served, `client_span` around one sent.

OpenTelemetry is imported by the program that collects traces, or because a variable of its environment
names a provider (`provide`). While neither is so, there are no spans, and nothing is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, cast

from pydantic_core import ValidationError

from mcp_toolset.protocol.json_rpc import INVALID_PARAMS, MCPError

_PROVIDER: Final = "OTEL_PYTHON_TRACER_PROVIDER"
"""The variable that names a provider: OpenTelemetry makes that one when it is first asked for one."""

_NAME: Final = "mcp-python-sdk"
"""The name under which the spans of MCP requests are known to collectors, those of the SDK too."""

_API: Final = "opentelemetry.trace"


def provide() -> None:
    """Have OpenTelemetry make the provider that the environment names, if it names one."""
    if os.environ.get(_PROVIDER):
        with suppress(ImportError):
            from opentelemetry import trace

            trace.get_tracer_provider()


def tracing() -> bool:
    """Whether a program collects traces: else spans would go nowhere."""
    # The public way to ask reads the environment each time, which costs as much as parsing a message.
    return getattr(sys.modules.get(_API), "_TRACER_PROVIDER", None) is not None


async def server_span(
    work: Awaitable[dict[str, Any]],
    method: str,
    params: Mapping[str, Any] | None,
    *,
    request_id: object,
    version: str,
) -> dict[str, Any]:
    """The result of `work`, which answers a request, within a span that continues the client's trace."""
    from opentelemetry import trace

    target = _target(params)
    span = _tracer().start_as_current_span(
        f"{method} {target}" if target else method,
        kind=trace.SpanKind.SERVER,
        attributes=_attributes(method, target, request_id, version),
        context=_context_in((params or {}).get("_meta")),
        record_exception=False,
        set_status_on_exception=False,
    )
    with span as current:
        try:
            result = await work
        # Whatever a request fails by belongs into its span.
        except Exception as fault:
            _note(current, fault)
            raise
        if method == "tools/call" and result.get("isError") is True:
            current.set_attribute("error.type", "tool_error")
            current.set_status(trace.StatusCode.ERROR)
        return result


@contextmanager
def client_span(method: str, params: Mapping[str, Any] | None) -> Generator[dict[str, Any]]:
    """The span of a request that is sent; yields its parameters with the trace context in `_meta`."""
    from opentelemetry import trace
    from opentelemetry.propagate import inject

    stamped = dict(params or {})
    target = _target(params)
    name = f"MCP send {method} {target}" if target is not None else f"MCP send {method}"
    # It is not made the current one, which would cost a third more: nothing else is traced within it.
    span = _tracer().start_span(name, kind=trace.SpanKind.CLIENT, attributes={"mcp.method.name": method})
    try:
        meta: dict[str, Any] = dict(stamped.get("_meta") or {})
        inject(meta, trace.set_span_in_context(span))
        if meta:
            stamped["_meta"] = meta
        yield stamped
    # Whatever the request failed by belongs into its span.
    except Exception as fault:
        span.record_exception(fault)
        span.set_status(trace.StatusCode.ERROR, f"{type(fault).__name__}: {fault}")
        raise
    finally:
        span.end()


def _tracer() -> Any:
    from opentelemetry import trace

    return trace.get_tracer(_NAME)


def _target(params: Mapping[str, Any] | None) -> str | None:
    name = params.get("name") if params else None
    return name if isinstance(name, str) else None


def _attributes(method: str, target: str | None, request_id: object, version: str) -> dict[str, str]:
    made = {"mcp.method.name": method, "mcp.protocol.version": version}
    if request_id is not None:
        made["jsonrpc.request.id"] = str(request_id)
    if method == "tools/call":
        made["gen_ai.operation.name"] = "execute_tool"
        if target is not None:
            made["gen_ai.tool.name"] = target
    elif method == "prompts/get" and target is not None:
        made["gen_ai.prompt.name"] = target
    return made


def _context_in(meta: object) -> Any:
    """The client's trace in the `_meta` of a request; `None` where the current trace goes on."""
    from opentelemetry.propagate import extract
    from opentelemetry.trace import get_current_span

    if not meta or not isinstance(meta, Mapping):
        return None
    # What a client sends there may be anything.
    with suppress(ValueError, TypeError):
        found = extract(cast("Mapping[str, Any]", meta))
        if get_current_span(found).get_span_context().is_valid:
            return found
    return None


def _note(span: Any, fault: Exception) -> None:
    from opentelemetry.trace import StatusCode

    if isinstance(fault, ValidationError):
        # Its text holds what the client sent.
        fault = MCPError(INVALID_PARAMS, "Invalid request parameters")
    if isinstance(fault, MCPError):
        code = str(fault.code)
        span.set_attributes({"error.type": code, "rpc.response.status_code": code})
        span.set_status(StatusCode.ERROR, fault.message)
        return
    span.set_attribute("error.type", type(fault).__qualname__)
    span.record_exception(fault)
    span.set_status(StatusCode.ERROR, str(fault))
