"""`ToolMiddleware`: code around a call that may look, change, answer or refuse (N2, N3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from mcp_toolset.errors import NextConsumedError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult

Run = Callable[[ToolCall, ToolContext], Awaitable[ToolResult]]


class Next:
    """The remainder of the chain, the tool included. It can be used once.

    Attributes:
        definition: What the tool says of itself, for middleware that depends on its hints or schemas.
        given: What the rest of the chain came to, once it was used.
    """

    __slots__ = ("_call", "_check", "_context", "_run", "_used", "definition", "given")

    def __init__(
        self,
        run: Run,
        call: ToolCall,
        context: ToolContext,
        check: Callable[[ToolCall], None],
        definition: ToolDefinition,
    ) -> None:
        """Hold the rest of the chain for one call."""
        self.definition = definition
        self._run = run
        self._call = call
        self._context = context
        self._check = check
        self._used = False
        self.given: ToolResult | None = None

    async def __call__(self, call: ToolCall | None = None) -> ToolResult:
        """Go on with the call, or with an edited one; arguments edited in place count too.

        Raises:
            NextConsumedError: it was used before.
            InvalidArgumentsError: the arguments, as they are now, do not fit.
        """
        if self._used:
            raise NextConsumedError("next was already used; a middleware may run the rest of the chain once")
        self._used = True
        going_on = self._call if call is None else call
        self._check(going_on)
        self.given = await self._run(going_on, self._context)
        return self.given


class ToolMiddleware(Protocol):
    """Anything that can be called so."""

    async def __call__(self, call: ToolCall, context: ToolContext, next: Next) -> ToolResult:
        """Handle a call: answer it, or hand it on with `await next()`."""
        ...


_M = TypeVar("_M", bound=Callable[[ToolCall, ToolContext, Next], Awaitable[ToolResult]])


def tool_middleware(function: _M) -> _M:
    """Mark an async function as middleware; a type checker then holds it to the signature."""
    return function
