"""Middleware, which wraps each call: what to write your own with, and what comes with the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.calls.middleware.builtin import OutputFormatter, PermissionChecker
    from mcp_toolset.calls.middleware.cache import ResultCache
    from mcp_toolset.calls.middleware.cache_store import CacheStore
    from mcp_toolset.calls.middleware.hidden_text_filter import HiddenTextFilter
    from mcp_toolset.calls.middleware.limit_store import LimitStore, TokensTaken
    from mcp_toolset.calls.middleware.rate import RateLimit
    from mcp_toolset.calls.middleware.retry import RetryLimit
    from mcp_toolset.calls.middleware.timeout import Timeout
    from mcp_toolset.calls.middleware.validator import SchemaValidator
    from mcp_toolset.calls.pipeline.middleware import CallNext, ToolMiddleware, tool_middleware

__all__ = [
    "CacheStore",
    "CallNext",
    "HiddenTextFilter",
    "LimitStore",
    "OutputFormatter",
    "PermissionChecker",
    "RateLimit",
    "ResultCache",
    "RetryLimit",
    "SchemaValidator",
    "Timeout",
    "TokensTaken",
    "ToolMiddleware",
    "tool_middleware",
]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
