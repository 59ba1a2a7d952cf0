"""mcp-toolset: a bridge between typed toolsets and the Model Context Protocol.

The names below are the public interface. They are loaded when first used: `import mcp_toolset`
loads neither the wire nor the search.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp_toolset.bridge.remote import RemoteToolset
    from mcp_toolset.bridge.serve import serve
    from mcp_toolset.bridge.server import ToolsetServer
    from mcp_toolset.calls.builtin import OutputFormatter, PermissionChecker
    from mcp_toolset.calls.cache import ResultCache
    from mcp_toolset.calls.decision import Complete, Reject, RunNormally
    from mcp_toolset.calls.hooks import HookSet
    from mcp_toolset.calls.middleware import Next, ToolMiddleware, tool_middleware
    from mcp_toolset.calls.rate import RateLimit
    from mcp_toolset.calls.rejection import rejection_reason
    from mcp_toolset.calls.retry import RetryLimit
    from mcp_toolset.calls.rounds import ToolRound, ToolRoundPlan
    from mcp_toolset.calls.timeout import Timeout
    from mcp_toolset.calls.validator import SchemaValidator
    from mcp_toolset.catalog.grants import ToolGrant
    from mcp_toolset.catalog.search import SearchHit, SearchIndex
    from mcp_toolset.errors import ToolsetError
    from mcp_toolset.tools.availability import ToolAvailability, ToolSelector
    from mcp_toolset.tools.call import ToolCall, ToolContext
    from mcp_toolset.tools.definition import ToolDefinition
    from mcp_toolset.tools.function import tool
    from mcp_toolset.tools.result import ToolResult
    from mcp_toolset.tools.tool import Tool
    from mcp_toolset.tools.toolset import Toolset
    from mcp_toolset.tools.view import ToolView

__version__: Final = "0.1.0"

__all__ = [
    "Complete",
    "HookSet",
    "Next",
    "OutputFormatter",
    "PermissionChecker",
    "RateLimit",
    "Reject",
    "RemoteToolset",
    "ResultCache",
    "RetryLimit",
    "RunNormally",
    "SchemaValidator",
    "SearchHit",
    "SearchIndex",
    "Timeout",
    "Tool",
    "ToolAvailability",
    "ToolCall",
    "ToolContext",
    "ToolDefinition",
    "ToolGrant",
    "ToolMiddleware",
    "ToolResult",
    "ToolRound",
    "ToolRoundPlan",
    "ToolSelector",
    "ToolView",
    "Toolset",
    "ToolsetError",
    "ToolsetServer",
    "rejection_reason",
    "serve",
    "tool",
    "tool_middleware",
]

_HOMES: Final = {
    "Complete": "calls.decision",
    "HookSet": "calls.hooks",
    "Next": "calls.middleware",
    "OutputFormatter": "calls.builtin",
    "PermissionChecker": "calls.builtin",
    "RateLimit": "calls.rate",
    "Reject": "calls.decision",
    "RemoteToolset": "bridge.remote",
    "ResultCache": "calls.cache",
    "RetryLimit": "calls.retry",
    "RunNormally": "calls.decision",
    "SchemaValidator": "calls.validator",
    "SearchHit": "catalog.search",
    "SearchIndex": "catalog.search",
    "Timeout": "calls.timeout",
    "Tool": "tools.tool",
    "ToolAvailability": "tools.availability",
    "ToolCall": "tools.call",
    "ToolContext": "tools.call",
    "ToolDefinition": "tools.definition",
    "ToolGrant": "catalog.grants",
    "ToolMiddleware": "calls.middleware",
    "ToolResult": "tools.result",
    "ToolRound": "calls.rounds",
    "ToolRoundPlan": "calls.rounds",
    "ToolSelector": "tools.availability",
    "ToolView": "tools.view",
    "Toolset": "tools.toolset",
    "ToolsetError": "errors",
    "ToolsetServer": "bridge.server",
    "rejection_reason": "calls.rejection",
    "serve": "bridge.serve",
    "tool": "tools.function",
    "tool_middleware": "calls.middleware",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its home on first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, "__version__"])
