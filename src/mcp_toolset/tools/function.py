"""`@tool`: a Python function as a tool (L4, L5).

Name, description and parameter descriptions come from the function, its annotations and its
docstring; the function itself stays callable as before.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, overload

import anyio.to_thread

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.signature import FunctionSignature, read_signature
from mcp_toolset.tools.tool import P, R, Tool
from mcp_toolset.tools.view import Executor

__all__ = ["Tool", "runner", "tool"]

_HINTS = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


def runner(function: Callable[..., Any], signature: FunctionSignature) -> Executor:
    """What runs a function from a call: parsed arguments in, a result out."""
    parse, to_result = signature.arguments.parse, signature.returned.to_result

    async def run(call: ToolCall, context: ToolContext) -> ToolResult:
        return to_result(await function(**parse(call, context)), call.name)

    async def run_in_thread(call: ToolCall, context: ToolContext) -> ToolResult:
        return to_result(await _in_thread(function, parse(call, context)), call.name)

    return run if inspect.iscoroutinefunction(function) else run_in_thread


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
    manual: bool = False,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    meta: dict[str, Any] | None = None,
    manual: bool = False,
    timeout: float | None = None,
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
        manual: Leave its calls to the application (A6).
        timeout: Seconds that one call may take (A11).
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
        run = runner(function, signature)
        return Tool(definition, function, signature.place, manual, timeout, run=run)

    if function is None:
        return define
    if not callable(function):
        raise DefinitionError(f"@tool takes a function, not {function!r}")
    return define(function)
