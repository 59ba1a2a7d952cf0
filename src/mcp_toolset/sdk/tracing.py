"""Spans of requests to servers of the SDK in this process: those that the SDK gives by its middleware."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, cast

from mcp.server._otel import OpenTelemetryMiddleware

from mcp_toolset.sdk.errors import from_sdk, to_sdk
from mcp_toolset.sdk.models import ServerMiddleware, ServerRequestContext

__all__ = ["in_server_span", "only_traces"]

_SPANS: Final = OpenTelemetryMiddleware()

Answer = Callable[[ServerRequestContext[Any, Any]], Awaitable[dict[str, Any]]]


def in_server_span(answer: Answer) -> Answer:
    """How a request is answered, within the span that the SDK gives it."""

    async def within(request: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        return await to_sdk(answer(request))

    async def spanned(request: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        return await from_sdk(cast("Awaitable[dict[str, Any]]", _SPANS(request, within)))

    return spanned


def only_traces(middleware: Iterable[ServerMiddleware[Any]]) -> bool:
    """Whether a server's middleware is the SDK's tracing and nothing else."""
    return all(type(each) is OpenTelemetryMiddleware for each in middleware)
