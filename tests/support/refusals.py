"""The result of a call that a rule refuses."""

from __future__ import annotations

from typing import Any

from mcp_toolset import HookSet, Reject, Rules, ToolCall, ToolResult, Toolset, tool


@tool
def knock() -> str:
    """Knock."""
    return "come in"


async def refusal(reason: str = "closed") -> ToolResult:
    hooks = HookSet()

    @hooks.execution("knock")
    async def refuse(call: ToolCall, input: Any) -> Reject:
        return Reject(reason, "policy")

    return await Toolset(knock).execute("knock", rules=Rules(hooks))


def waits(result: ToolResult) -> float | None:
    """The seconds after which a program is told to call again."""
    return (result.wire.get("_meta") or {}).get("mcp-toolset/retry", {}).get("after")
