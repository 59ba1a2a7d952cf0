"""`@tool`: a Python function as a tool (L4, L5).

Name, description and parameter descriptions come from the function, its annotations and its
docstring; the function itself stays callable as before.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

import anyio.to_thread

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.signature import Arguments, Returned, read_signature
from mcp_toolset.tools.validation import SchemaCheck, checks_of
from mcp_toolset.tools.view import ToolBinding

P = ParamSpec("P")
R = TypeVar("R")

_HINTS = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


@dataclass(frozen=True, repr=False)
class Tool(Generic[P, R]):
    """An immutable tool: a definition and the function that does the work (O1).

    Calling a `Tool` calls the function, unchanged. `execute` runs it from JSON arguments.
    """

    definition: ToolDefinition
    function: Callable[P, R] = field(compare=False)
    place: str = ""
    _arguments: Arguments = field(kw_only=True, compare=False)
    _returned: Returned = field(kw_only=True, compare=False)
    _checks: tuple[SchemaCheck, SchemaCheck | None] = field(kw_only=True, compare=False)

    def __post_init__(self) -> None:
        """Take over the function's identity, so that tools document like functions."""
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            object.__setattr__(self, attribute, getattr(self.function, attribute, None))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """The tool by name and signature; never the function (O8)."""
        return (
            f"Tool({self.definition.name!r}, {', '.join(self.definition.input_schema.get('properties', {}))})"
        )

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.definition.name

    def bind(self) -> ToolBinding:
        """The tool as an entry of a view."""
        arguments, output = self._checks
        return ToolBinding(self.name, self.definition, self._run, arguments, output, place=self.place)

    async def execute(
        self, arguments: dict[str, Any] | None = None, context: ToolContext = LOCAL_CONTEXT
    ) -> ToolResult:
        """Run the tool from JSON arguments; its own exceptions propagate (O6).

        Raises:
            InvalidArgumentsError: the arguments do not fit.
        """
        return await self._run(ToolCall(self.name, arguments or {}), context)

    async def _run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        arguments = self._arguments.parse(call, context)
        if inspect.iscoroutinefunction(self.function):
            value = await cast("Awaitable[Any]", self.function(**arguments))  # pyright: ignore[reportCallIssue]
        else:
            value = await _in_thread(cast("Callable[..., Any]", self.function), arguments)
        return self._returned.to_result(value, self.name)


async def _in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    value = await anyio.to_thread.run_sync(partial(function, **arguments), abandon_on_cancel=True)
    return await value if inspect.isawaitable(value) else value


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    meta: dict[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    meta: dict[str, Any] | None = None,
    **hints: bool | None,
) -> Any:
    """Make a tool of a sync or async function.

    A sync function runs in a worker thread, so that it never blocks the event loop. A parameter
    annotated with `ToolContext` is supplied by the surroundings and hidden from the model (L5).

    Args:
        function: The function, when used as a bare decorator.
        name: The tool's name; the function's own unless given.
        title: A name for people.
        description: What the tool does; the docstring's text unless given.
        meta: The definition's `_meta`.
        **hints: `read_only`, `destructive`, `idempotent`, `open_world`: the behaviour annotations.

    Raises:
        DefinitionError: a parameter has no annotation, or its type has no JSON Schema; the message
            names the function, the parameter and the mend.
    """
    unknown = hints.keys() - _HINTS.keys()
    if unknown:
        raise TypeError(f"tool() got an unexpected keyword argument {sorted(unknown)[0]!r}")

    def define(function: Callable[..., Any]) -> Tool[..., Any]:
        signature = read_signature(function, name)
        definition = ToolDefinition(
            name=signature.name,
            description=description or signature.description,
            input_schema=signature.arguments.schema,
            output_schema=signature.returned.schema,
            title=title,
            annotations={_HINTS[key]: value for key, value in hints.items() if value is not None} or None,
            meta=meta,
        )
        return Tool(
            definition,
            function,
            place=signature.place,
            _arguments=signature.arguments,
            _returned=signature.returned,
            _checks=checks_of(definition),
        )

    if function is None:
        return define
    if not callable(function):
        raise DefinitionError(f"@tool takes a function, not {function!r}")
    return define(function)
