"""mcp-toolset: a bridge between typed toolsets and the Model Context Protocol.

The names below are the public interface. Each name is loaded at its first use, so `import mcp_toolset`
loads neither the protocol nor the search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.calls.background import BackgroundWork, EventLog
    from mcp_toolset.calls.checks import (
        HiddenTextFilter,
        OutputFormatter,
        PermissionChecker,
        SchemaValidator,
        SessionState,
        Timeout,
    )
    from mcp_toolset.calls.decision import Complete, Reject, RunNormally, rejection_reason
    from mcp_toolset.calls.hooks import HookSet
    from mcp_toolset.calls.middleware import CallNext, ToolMiddleware, tool_middleware
    from mcp_toolset.calls.observers import CallObserver, CallReport
    from mcp_toolset.calls.rules import Descriptions, Rules
    from mcp_toolset.catalog.grants.access import AccessDenied
    from mcp_toolset.catalog.grants.ledger import GrantLedger, ToolGrant
    from mcp_toolset.catalog.grants.store import SqliteGrantStore
    from mcp_toolset.catalog.pins.policy import PinPolicy
    from mcp_toolset.catalog.registry.registry import SourceHandle, StateReport, ToolRegistry
    from mcp_toolset.catalog.registry.state import RegistryEntry, RegistryState
    from mcp_toolset.catalog.search.index import SearchHit, SearchIndex
    from mcp_toolset.errors import ToolsetError
    from mcp_toolset.extensions.dynamic_tools import (
        DynamicToolset,
        ManifestProvider,
        ToolManifest,
        ToolProvider,
    )
    from mcp_toolset.extensions.limits.rate import RateLimit
    from mcp_toolset.extensions.model_loop.calls import (
        CallResult,
        InvalidCall,
        InvalidCallReason,
        RoundCommit,
        RoundHalt,
        RoundQuestion,
        RunReport,
        ToolFailure,
    )
    from mcp_toolset.extensions.model_loop.tool_round import ToolRound, ToolRoundPlan
    from mcp_toolset.extensions.processes.extension import Processes
    from mcp_toolset.extensions.result_cache.result_cache import ResultCache
    from mcp_toolset.extensions.retries.mount import RetryLimit
    from mcp_toolset.hub.toolset import toolset_from_config
    from mcp_toolset.protocol.eras import CacheHint
    from mcp_toolset.server.handler_context import PendingCall
    from mcp_toolset.server.mounts import ReloadReport
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.serving.serve import serve
    from mcp_toolset.tools.binding import ToolBinding, ToolSelector
    from mcp_toolset.tools.call import Identity, SessionEvent, SessionSnapshot, ToolCall, ToolContext
    from mcp_toolset.tools.compact import compact_listing, help_text
    from mcp_toolset.tools.definition import ToolDefinition, tagged
    from mcp_toolset.tools.export import ToolRequirement
    from mcp_toolset.tools.from_schema import ToolBuilder
    from mcp_toolset.tools.function_offers import Prompts, Resources
    from mcp_toolset.tools.input import (
        AnyCall,
        DecodedCall,
        HandledInput,
        InputTool,
        RejectedInput,
        ToolInput,
        tool_input,
    )
    from mcp_toolset.tools.result import (
        AskUser,
        ElicitationAnswer,
        Halt,
        SampledMessage,
        ToolResult,
        file_block,
        image_block,
    )
    from mcp_toolset.tools.round_context import RoundContext
    from mcp_toolset.tools.services import Process, ProcessEvent, RunningProcess, SamplingRequest
    from mcp_toolset.tools.signature import Injected
    from mcp_toolset.tools.source import PromptProvider, Reference, ResourceProvider, SourceStatus
    from mcp_toolset.tools.tool import FunctionCall, Tool, tool
    from mcp_toolset.tools.toolset import Toolset
    from mcp_toolset.tools.transform import ArgumentTransform, Turns, turn_from_meta
    from mcp_toolset.tools.view import ToolAvailability, ToolView
    from mcp_toolset.transports.http.limits import HttpLimits
    from mcp_toolset.upstream.toolset import RemoteToolset

__version__: Final = "0.1.0"

__all__ = [
    "AccessDenied",
    "AnyCall",
    "ArgumentTransform",
    "AskUser",
    "BackgroundWork",
    "CacheHint",
    "CallNext",
    "CallObserver",
    "CallReport",
    "CallResult",
    "Complete",
    "DecodedCall",
    "Descriptions",
    "DynamicToolset",
    "ElicitationAnswer",
    "EventLog",
    "FunctionCall",
    "GrantLedger",
    "Halt",
    "HandledInput",
    "HiddenTextFilter",
    "HookSet",
    "HttpLimits",
    "Identity",
    "Injected",
    "InputTool",
    "InvalidCall",
    "InvalidCallReason",
    "ManifestProvider",
    "OutputFormatter",
    "PendingCall",
    "PermissionChecker",
    "PinPolicy",
    "Process",
    "ProcessEvent",
    "Processes",
    "PromptProvider",
    "Prompts",
    "RateLimit",
    "Reference",
    "RegistryEntry",
    "RegistryState",
    "Reject",
    "RejectedInput",
    "ReloadReport",
    "RemoteToolset",
    "ResourceProvider",
    "Resources",
    "ResultCache",
    "RetryLimit",
    "RoundCommit",
    "RoundContext",
    "RoundHalt",
    "RoundQuestion",
    "Rules",
    "RunNormally",
    "RunReport",
    "RunningProcess",
    "SampledMessage",
    "SamplingRequest",
    "SchemaValidator",
    "SearchHit",
    "SearchIndex",
    "SessionEvent",
    "SessionSnapshot",
    "SessionState",
    "SourceHandle",
    "SourceStatus",
    "SqliteGrantStore",
    "StateReport",
    "Timeout",
    "Tool",
    "ToolAvailability",
    "ToolBinding",
    "ToolBuilder",
    "ToolCall",
    "ToolContext",
    "ToolDefinition",
    "ToolFailure",
    "ToolGrant",
    "ToolInput",
    "ToolManifest",
    "ToolMiddleware",
    "ToolProvider",
    "ToolRegistry",
    "ToolRequirement",
    "ToolResult",
    "ToolRound",
    "ToolRoundPlan",
    "ToolSelector",
    "ToolView",
    "Toolset",
    "ToolsetError",
    "ToolsetServer",
    "Turns",
    "compact_listing",
    "file_block",
    "help_text",
    "image_block",
    "rejection_reason",
    "serve",
    "tagged",
    "tool",
    "tool_input",
    "tool_middleware",
    "toolset_from_config",
    "turn_from_meta",
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
    "serving",
    "shared",
    "telemetry",
    "testing",
)

if not TYPE_CHECKING:  # hidden from type checkers, so that they report a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__), namespaces=_NAMESPACES)
