"""`PermissionChecker` and `OutputFormatter`: middleware for permissions and for output limits."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, Literal

import anyio

from mcp_toolset.calls.middleware.text_limit import cut
from mcp_toolset.calls.pipeline.decision import Reject
from mcp_toolset.calls.pipeline.middleware import CallNext
from mcp_toolset.calls.pipeline.rejection import rejection
from mcp_toolset.errors import CallError, CannotAskError, DefinitionError
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult

Permission = Literal["allow", "deny", "ask"]
Policy = Callable[[ToolCall], "Permission | Awaitable[Permission]"]

ASK_DEADLINE: Final = 300.0
"""The default seconds that the user has for an answer; without an answer the call is refused."""


_NO_FIELDS: Final[dict[str, Any]] = {"type": "object", "properties": {}}


class PermissionChecker:
    """Asks a policy about every call: allow, deny, or ask the user."""

    def __init__(self, policy: Policy, *, ask_deadline: float = ASK_DEADLINE) -> None:
        """Use `policy(call)`, sync or async, which returns `"allow"`, `"deny"` or `"ask"`.

        Any other answer denies the call, and so does a user who does not answer within `ask_deadline`
        seconds.
        """
        self._policy = policy
        self._ask_deadline = ask_deadline

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        """Run the call if it is allowed."""
        answer = self._policy(call)
        permission = await answer if inspect.isawaitable(answer) else answer
        if permission == "allow":
            return await next()
        if permission == "ask":
            # On 2026-07-28 the question ends the call here, and the repeated call has the answer.
            obstacle: str | None = f"there was no answer within {self._ask_deadline:g} s"
            with anyio.move_on_after(self._ask_deadline):
                obstacle = await _obstacle(call, context)
            if obstacle is None:
                return await next()
            if obstacle:
                return rejection(Reject(_unasked(call.name, obstacle), "policy"))
        return rejection(Reject(f"{call.name} is not permitted by the policy of this server", "policy"))


async def _obstacle(call: ToolCall, context: ToolContext) -> str | None:
    """Why a call may not run: `None` if it may, empty if the user refused, else the reason."""
    question = f"Allow the call of {call.name} with {call.arguments!r}?"
    try:
        return None if (await context.elicit(question, _NO_FIELDS)).accepted else ""
    except CannotAskError as fault:
        return fault.obstacle
    except CallError:
        return ""


def _unasked(name: str, obstacle: str) -> str:
    return (
        f"{name} did not run: the policy of this server has the user asked about this call, and {obstacle}; "
        "use a client that shows questions (elicitation), or have the policy allow the call"
    )


class OutputFormatter:
    """Limits the number of characters in a result, so that it does not fill a model's context.

    Text is cut between characters as a reader counts them, never inside one. Structured content is
    never cut: a part of it would be invalid, or valid and untrue. If it is too long it is left out, and a
    note says so, unless the tool's output schema requires it: clients fail a call without it (server/tools,
    "Output Schema"), so then it stays whole next to the cut text.
    """

    def __init__(self, max_length: int) -> None:
        """Allow `max_length` characters of text in a result, over all its blocks, and of structured JSON.

        Raises:
            DefinitionError: the limit is not positive.
        """
        if max_length < 1:
            raise DefinitionError(f"OutputFormatter needs a positive number of characters, not {max_length}")
        self._limit = max_length

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        """Run the call and shorten its result if it is too long."""
        result = await next()
        if not result.is_complete:
            return result
        blocks, lost = cut(result.content, self._limit)
        is_long = "structuredContent" in result.wire and _json_length(result.structured) > self._limit
        is_promised = next.definition.output_schema is not None and not result.is_error
        if not lost and (not is_long or is_promised):
            return result
        wire = dict(result.wire)
        if is_long and not is_promised:
            del wire["structuredContent"]
        note = _note(lost, dropped=is_long and not is_promised, kept="structuredContent" in wire)
        return replace(result, wire={**wire, "content": [*blocks, {"type": "text", "text": note}]})


def _note(lost: int, *, dropped: bool, kept: bool) -> str:
    parts = [f"{lost} characters were cut off"] if lost else []
    if dropped:
        parts.append("the structured content was too long and is left out")
    elif kept:
        parts.append("the structured content is whole")
    return f"[{'; '.join(parts)}; ask for less]"


def _json_length(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
