"""mcp-toolset: a bridge between typed toolsets and the Model Context Protocol.

The names below are the public interface. Each name is loaded at its first use, so `import mcp_toolset`
loads neither the protocol nor the search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.calls.checks import SessionState
    from mcp_toolset.calls.decision import Complete, Reject, RunNormally, rejection_reason
    from mcp_toolset.calls.hooks import HookSet
    from mcp_toolset.calls.observers import CallReport
    from mcp_toolset.calls.rules import Descriptions, Rules
    from mcp_toolset.catalog.pins.policy import PinPolicy
    from mcp_toolset.catalog.registry.registry import ToolRegistry
    from mcp_toolset.errors import ToolsetError
    from mcp_toolset.extensions.dynamic_tools import (
        DynamicToolset,
        ManifestProvider,
        ToolManifest,
        ToolProvider,
    )
    from mcp_toolset.extensions.openapi.toolset import OpenAPIToolset
    from mcp_toolset.extensions.processes.extension import Processes
    from mcp_toolset.hub.toolset import load_toolset
    from mcp_toolset.protocol.eras import CacheHint
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.serving.serve import serve
    from mcp_toolset.tools.binding import ToolBinding
    from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
    from mcp_toolset.tools.compact import compact_listing, help_text
    from mcp_toolset.tools.definition import ToolDefinition, tagged
    from mcp_toolset.tools.from_schema import ToolBuilder
    from mcp_toolset.tools.function_offers import Prompts, Resources
    from mcp_toolset.tools.input import InputTool, ToolInput, tool_input
    from mcp_toolset.tools.result import AskUser, Halt, SampledMessage, ToolResult, file_block, image_block
    from mcp_toolset.tools.services import RunningProcess, SamplingRequest
    from mcp_toolset.tools.signature import Injected
    from mcp_toolset.tools.source import Reference, SourceStatus
    from mcp_toolset.tools.tool import Tool, tool
    from mcp_toolset.tools.toolset import Toolset
    from mcp_toolset.tools.view import ToolView
    from mcp_toolset.transports.http.budgets import HttpLimits
    from mcp_toolset.upstream.toolset import RemoteToolset

__version__: Final = "0.1.0"

__all__ = [
    "AskUser",
    "CacheHint",
    "CallReport",
    "Complete",
    "Descriptions",
    "DynamicToolset",
    "Halt",
    "HookSet",
    "HttpLimits",
    "Identity",
    "Injected",
    "InputTool",
    "ManifestProvider",
    "OpenAPIToolset",
    "PinPolicy",
    "Processes",
    "Prompts",
    "Reference",
    "Reject",
    "RemoteToolset",
    "Resources",
    "Rules",
    "RunNormally",
    "RunningProcess",
    "SampledMessage",
    "SamplingRequest",
    "SessionState",
    "SourceStatus",
    "Tool",
    "ToolBinding",
    "ToolBuilder",
    "ToolCall",
    "ToolContext",
    "ToolDefinition",
    "ToolInput",
    "ToolManifest",
    "ToolProvider",
    "ToolRegistry",
    "ToolResult",
    "ToolView",
    "Toolset",
    "ToolsetError",
    "ToolsetServer",
    "compact_listing",
    "file_block",
    "help_text",
    "image_block",
    "load_toolset",
    "rejection_reason",
    "serve",
    "tagged",
    "tool",
    "tool_input",
]

_NAMESPACES: Final = (
    "arguments",
    "audit",
    "auth",
    "code",
    "config",
    "errors",
    "extending",
    "grants",
    "journal",
    "middleware",
    "policy",
    "rounds",
    "search",
    "shared",
    "telemetry",
    "testing",
)

if not TYPE_CHECKING:  # hidden from type checkers, so that they report a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__), namespaces=_NAMESPACES)
