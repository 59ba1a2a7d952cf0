"""Rounds: the tool calls of one model reply, validated, run in parallel and answered, in a loop of yours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.calls.background import BackgroundWork, EventLog
    from mcp_toolset.extensions.durable_rounds import DurableRounds
    from mcp_toolset.extensions.model_loop.calls import CallResult
    from mcp_toolset.extensions.model_loop.tool_round import SuspendedRounds, ToolRound
    from mcp_toolset.extensions.model_loop.tool_search import ToolSearch
    from mcp_toolset.tools.export import ToolRequirement
    from mcp_toolset.tools.input import DecodedCall, RejectedInput
    from mcp_toolset.tools.round_context import RoundContext
    from mcp_toolset.tools.tool import FunctionCall
    from mcp_toolset.tools.view import ToolAvailability

__all__ = [
    "BackgroundWork",
    "CallResult",
    "DecodedCall",
    "DurableRounds",
    "EventLog",
    "FunctionCall",
    "RejectedInput",
    "RoundContext",
    "SuspendedRounds",
    "ToolAvailability",
    "ToolRequirement",
    "ToolRound",
    "ToolSearch",
]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
