"""Middleware, which wraps each call: what to write your own with, and what comes with the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.calls.checks import (
        HiddenTextFilter,
        OutputFormatter,
        PermissionChecker,
        SchemaValidator,
        Timeout,
    )
    from mcp_toolset.calls.middleware import CallNext, ToolMiddleware, tool_middleware
    from mcp_toolset.extensions.large_results.extension import LargeResults
    from mcp_toolset.extensions.limits.rate import RateLimit
    from mcp_toolset.extensions.result_cache.result_cache import ResultCache
    from mcp_toolset.extensions.retries.mount import RetryLimit

__all__ = [
    "CallNext",
    "HiddenTextFilter",
    "LargeResults",
    "OutputFormatter",
    "PermissionChecker",
    "RateLimit",
    "ResultCache",
    "RetryLimit",
    "SchemaValidator",
    "Timeout",
    "ToolMiddleware",
    "tool_middleware",
]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
