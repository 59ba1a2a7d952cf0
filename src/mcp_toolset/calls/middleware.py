"""`ToolMiddleware`: code around a call that may observe, change, answer or refuse it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import FunctionType
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from mcp_toolset._records import replace
from mcp_toolset._rule import require_one_form
from mcp_toolset.errors import DefinitionError, StateError
from mcp_toolset.tools.binding import Gate, NameUse, ToolBinding
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult

Run = Callable[[ToolCall, ToolContext], Awaitable[ToolResult]]


class CallNext:
    """The rest of the chain, including the tool. It can be called once.

    Attributes:
        definition: The tool's definition, for middleware that depends on its hints or schemas.
        given: The result of the rest of the chain, once it was called.
        names: The names that refer to the tool, its public name first; see docs/names.md.
    """

    __slots__ = ("_call", "_check", "_context", "_run", "_used", "definition", "given", "names")

    def __init__(
        self,
        run: Run,
        call: ToolCall,
        context: ToolContext,
        check: Callable[[ToolCall], None],
        definition: ToolDefinition,
        names: tuple[str, ...] = (),
    ) -> None:
        self.definition = definition
        self.names = names or (call.name,)
        self._run = run
        self._call = call
        self._context = context
        self._check = check
        self._used = False
        self.given: ToolResult | None = None

    async def __call__(self, call: ToolCall | None = None) -> ToolResult:
        """Run the call, or an edited one; edits of its arguments in place count too.

        Raises:
            StateError: it was called before.
            InvalidArgumentsError: the arguments do not fit now.
        """
        if self._used:
            raise StateError("next was already used; a middleware may run the rest of the chain once")
        self._used = True
        passed = self._call if call is None else call
        if passed.sent is None and self._call.sent is not None:
            # A call that middleware has built belongs to the same request.
            passed = replace(passed, sent=self._call.sent, recorded=self._call.recorded)
        self._check(passed)
        self.given = await self._run(passed, self._context)
        return self.given


class ToolMiddleware(Protocol):
    """Any callable with this signature."""

    async def __call__(self, call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        """Handle a call: answer it, or pass it on with `await next()`."""
        ...


@runtime_checkable
class Guard(Protocol):
    """Decides by the tool and the caller, such as a policy; asked once for each tool of a frozen table.

    A guard may have these methods, too:

    - `recorded(binding, run)`: wraps the tool itself, inside the layers of all guards.
    - `replaying(binding)`: middleware outside of these layers that sets `ToolCall.recorded`.
    - `denies(binding)`: true if the guard denies a tool to every caller.
    - `unused(bindings)`: pairs of a place and a pattern, for the patterns that fit none of these tools.
    - `of(binding, identity)`: the limits of a caller, each with `key`, `value` and `place`.
    """

    def gate(self, binding: ToolBinding) -> Gate | None:
        """A check before every other stage of the chain; `None` without one."""

    def layers(self, binding: ToolBinding) -> Sequence[ToolMiddleware]:
        """Layers inside all middleware and hooks, right before the tool, outermost first."""
        ...


@runtime_checkable
class NamesTools(Protocol):
    """Middleware that takes names of tools, such as `Timeout(5, per_tool={"search": 60})`."""

    def tool_names(self) -> Iterable[NameUse]: ...


_M = TypeVar("_M", bound=Callable[[ToolCall, ToolContext, CallNext], Awaitable[ToolResult]])


def tool_middleware(function: _M) -> _M:
    """Mark an async function as middleware; type checkers then check its signature."""
    layer: Any = check_middleware(function)
    if isinstance(layer, FunctionType):
        # False until an object takes the function as a rule; see `_rule.take`.
        cast("Any", layer)._is_taken = False
    return function


def check_middleware(layer: _M) -> _M:
    candidate = cast("object", layer)
    shown = getattr(candidate, "__qualname__", None) or repr(candidate)
    expected = "middleware is an `async def` of (call, context, next), or an object with such a `__call__`"
    if isinstance(candidate, type):
        raise DefinitionError(f"{expected}, not the class {shown}; give an object: {shown}(…)")
    if not callable(candidate):
        raise DefinitionError(f"{expected}, not {candidate!r}")
    require_one_form(candidate)
    # A lambda may return the awaitable of the next layer.
    functions = (candidate, type(candidate).__call__)
    if (
        not any(map(inspect.iscoroutinefunction, functions))
        and getattr(candidate, "__name__", "") != "<lambda>"
    ):
        raise DefinitionError(f"{expected}; {shown} is not async, so its result cannot be awaited")
    try:
        signature = inspect.signature(candidate)
    except ValueError:
        return layer
    parameters = list(signature.parameters)
    try:
        signature.bind(None, None, None)
    except TypeError:
        raise DefinitionError(f"{expected}; {shown} takes {signature}") from None
    order = {name: place for place, name in enumerate(("call", "context", "next"))}
    if any(order.get(name, place) != place for place, name in enumerate(parameters)):
        raise DefinitionError(f"{expected}, in this order; {shown} takes {signature}")
    return layer
