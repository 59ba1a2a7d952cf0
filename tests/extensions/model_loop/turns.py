"""Assistant messages and rounds for the tests of rounds."""

from __future__ import annotations

from typing import Any

from mcp_toolset import HookSet, ToolView
from mcp_toolset.extensions.model_loop.tool_round import ToolRoundPlan
from mcp_toolset.rounds import ToolRound


def turn(*calls: tuple[str, str, str]) -> dict[str, Any]:
    """A chat completion's message that makes calls of (id, name, arguments as JSON)."""
    made = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, name, arguments in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


async def planned(
    view: ToolView, *calls: tuple[str, str, str], hooks: HookSet | None = None
) -> ToolRoundPlan:
    return await ToolRound.from_openai(turn(*calls), view).apply(hooks or HookSet())


def told(messages: list[dict[str, Any]]) -> dict[str, str]:
    """What the model is told for each call."""
    return {message["tool_call_id"]: message["content"] for message in messages[1:]}
