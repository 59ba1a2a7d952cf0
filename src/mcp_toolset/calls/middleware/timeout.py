"""`Timeout`: middleware that cancels a tool that takes too long, and tells the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import anyio

from mcp_toolset.calls.pipeline.middleware import CallNext
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.view.tool_names import NameUse


class Timeout:
    """Gives every call a number of seconds for everything inside this middleware.

    An async tool and a call of a mounted server are cancelled. A sync tool cannot be cancelled, so its late
    result is dropped. The time in which a user answers a tool's question counts.
    """

    def __init__(self, seconds: float, *, per_tool: Mapping[str, float | None] | None = None) -> None:
        """Allow `seconds` for a call.

        Args:
            seconds: The limit of every tool without its own limit.
            per_tool: Limits of single tools, in seconds, by name (docs/names.md); `None` means no limit.

        Raises:
            DefinitionError: a limit is not positive.
        """
        self._seconds = _positive(seconds, "a call")
        self._per_tool = {
            name: None if own is None else _positive(own, name) for name, own in (per_tool or {}).items()
        }

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        """Run the call, or cancel it when its time is over."""
        seconds = self._limit(next.names) if self._per_tool else self._seconds
        with anyio.move_on_after(seconds):
            return await next()
        return ToolResult.of_error(f"{call.name} gave no answer within {seconds:g} s and was stopped")

    def tool_names(self) -> Iterable[NameUse]:
        """The names in `per_tool`."""
        return [NameUse(name, "Timeout") for name in self._per_tool]

    def _limit(self, names: Iterable[str]) -> float | None:
        own = [self._per_tool[name] for name in names if name in self._per_tool]
        return own[0] if own else self._seconds


def _positive(seconds: float, what: str) -> float:
    if not seconds > 0:
        raise DefinitionError(f"Timeout needs a positive number of seconds for {what}, not {seconds!r}")
    return float(seconds)
