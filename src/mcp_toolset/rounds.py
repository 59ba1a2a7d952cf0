"""Rounds: the tool calls of one model reply, validated, run in parallel and answered, in a loop of yours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.calls.background import BackgroundWork, EventLog
    from mcp_toolset.extensions.durable_rounds import DurableRounds
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
    from mcp_toolset.extensions.model_loop.tool_round import SuspendedRounds, ToolRound, ToolRoundPlan
    from mcp_toolset.tools.export import ToolRequirement
    from mcp_toolset.tools.input import AnyCall, DecodedCall, HandledInput, RejectedInput
    from mcp_toolset.tools.round_context import RoundContext
    from mcp_toolset.tools.tool import FunctionCall
    from mcp_toolset.tools.view import ToolAvailability

__all__ = [
    "AnyCall",
    "BackgroundWork",
    "CallResult",
    "DecodedCall",
    "DurableRounds",
    "EventLog",
    "FunctionCall",
    "HandledInput",
    "InvalidCall",
    "InvalidCallReason",
    "RejectedInput",
    "RoundCommit",
    "RoundContext",
    "RoundHalt",
    "RoundQuestion",
    "RunReport",
    "SuspendedRounds",
    "ToolAvailability",
    "ToolFailure",
    "ToolRequirement",
    "ToolRound",
    "ToolRoundPlan",
]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
