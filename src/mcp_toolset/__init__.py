"""mcp-toolset: a bridge between typed toolsets and the Model Context Protocol.

The names below are the public interface. They are loaded when first used: `import mcp_toolset`
loads neither the wire nor the search.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp_toolset.bridge.caching import CacheHint
    from mcp_toolset.bridge.hub import toolset_from_config
    from mcp_toolset.bridge.limits import HttpLimits
    from mcp_toolset.bridge.manual import PendingCall
    from mcp_toolset.bridge.reloadable import ReloadReport
    from mcp_toolset.bridge.remote import RemoteToolset
    from mcp_toolset.bridge.serve import serve
    from mcp_toolset.bridge.server import ToolsetServer
    from mcp_toolset.calls.background import BackgroundWork
    from mcp_toolset.calls.builtin import OutputFormatter, PermissionChecker
    from mcp_toolset.calls.cache import ResultCache
    from mcp_toolset.calls.call_result import CallResult, RoundHalt, RoundQuestion, RunReport, ToolFailure
    from mcp_toolset.calls.clean_text import TextCleaner
    from mcp_toolset.calls.decision import Complete, Reject, RunNormally
    from mcp_toolset.calls.events import EventLog
    from mcp_toolset.calls.hooks import HookSet
    from mcp_toolset.calls.issue import IssueReason, RoundIssue
    from mcp_toolset.calls.middleware import Next, ToolMiddleware, tool_middleware
    from mcp_toolset.calls.rate import RateLimit
    from mcp_toolset.calls.rejection import rejection_reason
    from mcp_toolset.calls.retry import RetryLimit
    from mcp_toolset.calls.round_commit import RoundCommit
    from mcp_toolset.calls.rounds import ToolRound, ToolRoundPlan
    from mcp_toolset.calls.rules import Rules
    from mcp_toolset.calls.timeout import Timeout
    from mcp_toolset.calls.validator import SchemaValidator
    from mcp_toolset.catalog.access import Withheld
    from mcp_toolset.catalog.grants import GrantLedger, ToolGrant
    from mcp_toolset.catalog.pins import PinPolicy
    from mcp_toolset.catalog.registry import SourceHandle, StateReport, ToolRegistry
    from mcp_toolset.catalog.search import SearchHit, SearchIndex
    from mcp_toolset.catalog.sqlite_grants import SqliteGrantStore
    from mcp_toolset.catalog.state import ToolEntry, ToolState
    from mcp_toolset.errors import ToolsetError
    from mcp_toolset.tools.asking import Answer, Sample
    from mcp_toolset.tools.availability import ToolAvailability
    from mcp_toolset.tools.builder import ToolBuilder
    from mcp_toolset.tools.call import ToolCall, ToolContext
    from mcp_toolset.tools.capability import SessionEvent, SessionSnapshot
    from mcp_toolset.tools.compact import compact_listing, help_text
    from mcp_toolset.tools.definition import ToolDefinition
    from mcp_toolset.tools.descriptions import Descriptions
    from mcp_toolset.tools.function import tool
    from mcp_toolset.tools.injected import Injected
    from mcp_toolset.tools.input import input_tool, tool_input
    from mcp_toolset.tools.loop_context import LoopContext
    from mcp_toolset.tools.outcome import AskUser, Halt
    from mcp_toolset.tools.prompts import Prompts
    from mcp_toolset.tools.provider import DynamicToolset, ToolProvider
    from mcp_toolset.tools.requirement import ToolRequirement
    from mcp_toolset.tools.result import ToolResult
    from mcp_toolset.tools.selector import ToolSelector
    from mcp_toolset.tools.tags import tagged
    from mcp_toolset.tools.tool import Tool
    from mcp_toolset.tools.toolset import Toolset
    from mcp_toolset.tools.transform import ArgumentTransform, default, describe, hide, rename
    from mcp_toolset.tools.turn import Turns, turn_from_meta
    from mcp_toolset.tools.typed_call import AnyCall, DecodedCall, FunctionCall, HandledInput, RejectedInput
    from mcp_toolset.tools.view import ToolView

__version__: Final = "0.1.0"

__all__ = [
    "Answer",
    "AnyCall",
    "ArgumentTransform",
    "AskUser",
    "BackgroundWork",
    "CacheHint",
    "CallResult",
    "Complete",
    "DecodedCall",
    "Descriptions",
    "DynamicToolset",
    "EventLog",
    "FunctionCall",
    "GrantLedger",
    "Halt",
    "HandledInput",
    "HookSet",
    "HttpLimits",
    "Injected",
    "IssueReason",
    "LoopContext",
    "Next",
    "OutputFormatter",
    "PendingCall",
    "PermissionChecker",
    "PinPolicy",
    "Prompts",
    "RateLimit",
    "Reject",
    "RejectedInput",
    "ReloadReport",
    "RemoteToolset",
    "ResultCache",
    "RetryLimit",
    "RoundCommit",
    "RoundHalt",
    "RoundIssue",
    "RoundQuestion",
    "Rules",
    "RunNormally",
    "RunReport",
    "Sample",
    "SchemaValidator",
    "SearchHit",
    "SearchIndex",
    "SessionEvent",
    "SessionSnapshot",
    "SourceHandle",
    "SqliteGrantStore",
    "StateReport",
    "TextCleaner",
    "Timeout",
    "Tool",
    "ToolAvailability",
    "ToolBuilder",
    "ToolCall",
    "ToolContext",
    "ToolDefinition",
    "ToolEntry",
    "ToolFailure",
    "ToolGrant",
    "ToolMiddleware",
    "ToolProvider",
    "ToolRegistry",
    "ToolRequirement",
    "ToolResult",
    "ToolRound",
    "ToolRoundPlan",
    "ToolSelector",
    "ToolState",
    "ToolView",
    "Toolset",
    "ToolsetError",
    "ToolsetServer",
    "Turns",
    "Withheld",
    "compact_listing",
    "default",
    "describe",
    "help_text",
    "hide",
    "input_tool",
    "rejection_reason",
    "rename",
    "serve",
    "tagged",
    "tool",
    "tool_input",
    "tool_middleware",
    "toolset_from_config",
    "turn_from_meta",
]

_HOMES: Final = {
    "Answer": "tools.asking",
    "AnyCall": "tools.typed_call",
    "ArgumentTransform": "tools.transform",
    "AskUser": "tools.outcome",
    "BackgroundWork": "calls.background",
    "CacheHint": "bridge.caching",
    "CallResult": "calls.call_result",
    "Complete": "calls.decision",
    "DecodedCall": "tools.typed_call",
    "Descriptions": "tools.descriptions",
    "DynamicToolset": "tools.provider",
    "EventLog": "calls.events",
    "FunctionCall": "tools.typed_call",
    "GrantLedger": "catalog.grants",
    "Halt": "tools.outcome",
    "HandledInput": "tools.typed_call",
    "HookSet": "calls.hooks",
    "HttpLimits": "bridge.limits",
    "Injected": "tools.injected",
    "IssueReason": "calls.issue",
    "LoopContext": "tools.loop_context",
    "Next": "calls.middleware",
    "OutputFormatter": "calls.builtin",
    "PendingCall": "bridge.manual",
    "PermissionChecker": "calls.builtin",
    "PinPolicy": "catalog.pins",
    "Prompts": "tools.prompts",
    "RateLimit": "calls.rate",
    "Reject": "calls.decision",
    "RejectedInput": "tools.typed_call",
    "ReloadReport": "bridge.reloadable",
    "RemoteToolset": "bridge.remote",
    "ResultCache": "calls.cache",
    "RetryLimit": "calls.retry",
    "RoundCommit": "calls.round_commit",
    "RoundHalt": "calls.call_result",
    "RoundIssue": "calls.issue",
    "RoundQuestion": "calls.call_result",
    "Rules": "calls.rules",
    "RunNormally": "calls.decision",
    "RunReport": "calls.call_result",
    "Sample": "tools.asking",
    "SchemaValidator": "calls.validator",
    "SearchHit": "catalog.search",
    "SearchIndex": "catalog.search",
    "SessionEvent": "tools.capability",
    "SessionSnapshot": "tools.capability",
    "SourceHandle": "catalog.registry",
    "SqliteGrantStore": "catalog.sqlite_grants",
    "StateReport": "catalog.registry",
    "TextCleaner": "calls.clean_text",
    "Timeout": "calls.timeout",
    "Tool": "tools.tool",
    "ToolAvailability": "tools.availability",
    "ToolBuilder": "tools.builder",
    "ToolCall": "tools.call",
    "ToolContext": "tools.call",
    "ToolDefinition": "tools.definition",
    "ToolEntry": "catalog.state",
    "ToolFailure": "calls.call_result",
    "ToolGrant": "catalog.grants",
    "ToolMiddleware": "calls.middleware",
    "ToolProvider": "tools.provider",
    "ToolRegistry": "catalog.registry",
    "ToolRequirement": "tools.requirement",
    "ToolResult": "tools.result",
    "ToolRound": "calls.rounds",
    "ToolRoundPlan": "calls.rounds",
    "ToolSelector": "tools.selector",
    "ToolState": "catalog.state",
    "ToolView": "tools.view",
    "Toolset": "tools.toolset",
    "ToolsetError": "errors",
    "ToolsetServer": "bridge.server",
    "Turns": "tools.turn",
    "Withheld": "catalog.access",
    "compact_listing": "tools.compact",
    "default": "tools.transform",
    "describe": "tools.transform",
    "help_text": "tools.compact",
    "hide": "tools.transform",
    "input_tool": "tools.input",
    "rejection_reason": "calls.rejection",
    "rename": "tools.transform",
    "serve": "bridge.serve",
    "tagged": "tools.tags",
    "tool": "tools.function",
    "tool_input": "tools.input",
    "tool_middleware": "calls.middleware",
    "toolset_from_config": "bridge.hub",
    "turn_from_meta": "tools.turn",
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
