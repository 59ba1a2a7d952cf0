"""Middleware that comes with the package: permissions and output limits."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from mcp_toolset.calls.decision import Reject
from mcp_toolset.calls.middleware import Next
from mcp_toolset.calls.rejection import rejection
from mcp_toolset.errors import CallError, DefinitionError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.result import ToolResult

Permission = Literal["allow", "deny", "ask"]
Policy = Callable[[ToolCall], "Permission | Awaitable[Permission]"]


class PermissionChecker:
    """Asks a policy about every call: allow, deny, or ask the person at the client (N4)."""

    def __init__(self, policy: Policy) -> None:
        """Use `policy(call)`, sync or async, which returns `"allow"`, `"deny"` or `"ask"`."""
        self._policy = policy

    async def __call__(self, call: ToolCall, context: ToolContext, next: Next) -> ToolResult:
        """Run the call if it is allowed."""
        answer = self._policy(call)
        permission = await answer if inspect.isawaitable(answer) else answer
        if permission == "allow":
            return await next()
        if permission == "ask" and await _confirmed(call, context):
            return await next()
        return rejection(Reject(f"{call.name} is not permitted by the policy of this server", "policy"))


async def _confirmed(call: ToolCall, context: ToolContext) -> bool:
    question: dict[str, Any] = {
        "mode": "form",
        "message": f"Allow the call of {call.name} with {call.arguments!r}?",
        "requestedSchema": {"type": "object", "properties": {}},
    }
    try:
        answer = await context.request("elicitation/create", question)
    except CallError:
        return False
    return answer.get("action") == "accept"


class OutputFormatter:
    """Keeps results within a number of characters, so that they do not fill a model's context (N5)."""

    def __init__(self, max_length: int) -> None:
        """Allow `max_length` characters of text in a result, over all its blocks.

        Raises:
            DefinitionError: the limit is not positive.
        """
        if max_length < 1:
            raise DefinitionError(f"OutputFormatter needs a positive number of characters, not {max_length}")
        self._limit = max_length

    async def __call__(self, call: ToolCall, context: ToolContext, next: Next) -> ToolResult:
        """Run the call and cut its text; structured content that says more than fits is dropped whole."""
        result = await next()
        total = sum(len(block.get("text", "")) for block in result.content)
        if total <= self._limit:
            return result
        wire = {**result.wire, "content": self._cut(result)}
        if "structuredContent" in wire:
            del wire["structuredContent"]
        return ToolResult(wire)

    def _cut(self, result: ToolResult) -> list[dict[str, Any]]:
        left = self._limit
        blocks: list[dict[str, Any]] = []
        dropped = 0
        for block in result.content:
            text = block.get("text")
            if not isinstance(text, str):
                blocks.append(dict(block))
                continue
            kept, left, dropped = text[:left], max(0, left - len(text)), dropped + max(0, len(text) - left)
            if kept:
                blocks.append({**block, "text": kept})
        note = f"[{dropped} characters were cut off; ask for less]"
        return [*blocks, {"type": "text", "text": note}]
