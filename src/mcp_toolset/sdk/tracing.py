"""Spans of requests: the SDK's own around a request that is served, `client_span` around one that is sent.

The SDK's tracing (`mcp.server._otel`) and OpenTelemetry's own provider are private.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

from mcp.server._otel import OpenTelemetryMiddleware
from opentelemetry import trace
from opentelemetry.propagate import inject

from mcp_toolset.sdk.errors import from_sdk, to_sdk
from mcp_toolset.sdk.models import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext

__all__ = [
    "client_span",
    "in_server_span",
    "only_traces",
    "tracing",
    "when_traced",
]

_SPANS: Final = OpenTelemetryMiddleware()
_TRACER: Final = trace.get_tracer("mcp-python-sdk")
"""Under the name that the SDK's own spans of requests have."""


def tracing() -> bool:
    """Whether somebody collects traces: else spans would go nowhere."""
    # `get_tracer_provider` reads the environment each time, which costs as much as parsing a message.
    return trace._TRACER_PROVIDER is not None  # pyright: ignore[reportPrivateUsage]


@contextmanager
def client_span(method: str, params: Mapping[str, Any] | None) -> Generator[dict[str, Any]]:
    """The span of a request that is sent; yields its parameters with the trace context in `_meta`."""
    stamped = dict(params or {})
    target = stamped.get("name")
    name = f"MCP send {method} {target}" if isinstance(target, str) else f"MCP send {method}"
    # It is not made the current one, which would cost a third more: nothing else is traced within it.
    span = _TRACER.start_span(name, kind=trace.SpanKind.CLIENT, attributes={"mcp.method.name": method})
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


def when_traced(middleware: ServerMiddleware[Any]) -> ServerMiddleware[Any]:
    """The SDK's tracing, passed by while no tracer provider is set: its spans would go nowhere.

    Trace context still travels: it is a part of `_meta` and is forwarded with it.
    """
    if not isinstance(middleware, OpenTelemetryMiddleware):
        return middleware
    # The first look sets the provider that the environment names, if it names one.
    trace.get_tracer_provider()

    async def traced(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if tracing():
            return await middleware(ctx, call_next)
        return await call_next(ctx)

    return traced


def in_server_span(
    answer: Callable[[ServerRequestContext[Any, Any]], Awaitable[dict[str, Any]]],
) -> Callable[[ServerRequestContext[Any, Any]], Awaitable[dict[str, Any]]]:
    """How a request is answered, within the span that the SDK gives it, if somebody collects traces."""
    if not tracing():
        return answer

    async def raising(request: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        return await to_sdk(answer(request))

    async def spanned(request: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        return cast("dict[str, Any]", await from_sdk(_SPANS(request, raising)))

    return spanned


def only_traces(middleware: Iterable[ServerMiddleware[Any]]) -> bool:
    """Whether a server's middleware is the SDK's tracing and nothing else."""
    return all(type(each) is OpenTelemetryMiddleware for each in middleware)
