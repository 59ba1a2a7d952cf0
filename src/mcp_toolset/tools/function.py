"""`@tool`: a Python function as a tool (L4, L5).

Name, description and parameter descriptions come from the function, its annotations and its
docstring; the function itself stays callable as before.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Unpack, overload

import anyio.to_thread

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.options import ToolOptions, annotations_of, checked
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.signature import FunctionSignature, read_signature
from mcp_toolset.tools.tool import P, R, Tool
from mcp_toolset.tools.view import Executor

__all__ = ["Tool", "runner", "tool"]


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
    *, name: str | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Unpack[ToolOptions]
) -> Any:
    """Make a tool of a sync or async function.

    A sync function runs in a worker thread, so that it never blocks the event loop. A parameter
    annotated with `ToolContext` or `Annotated[T, Injected]` is supplied by the surroundings and
    hidden from the model (L5).

    Args:
        function: The function, when used as a bare decorator.
        name: The tool's name; the function's own unless given.
        **options: See `ToolOptions`. The description is the docstring's text and the id is
            `module:function` unless given.

    Raises:
        DefinitionError: a parameter has no annotation, or its type has no JSON Schema; the message
            names the function, the parameter and the mend.
    """
    checked("tool()", options)

    def define(function: Callable[..., Any]) -> Tool[..., Any]:
        if isinstance(function, staticmethod):  # `@tool` over `@staticmethod`, in a class toolset (L7).
            function = function.__func__
        signature = read_signature(function, name)
        definition = ToolDefinition(
            name=signature.name,
            description=options.get("description") or signature.description,
            input_schema=signature.arguments.schema,
            output_schema=signature.returned.schema,
            title=options.get("title"),
            annotations=annotations_of(options),
            meta=options.get("meta"),
        )
        return Tool(
            definition,
            function,
            signature.place,
            options.get("manual", False),
            options.get("timeout"),
            options.get("id", ""),
            run=runner(function, signature),
        )

    if function is None:
        return define
    if not callable(function):
        raise DefinitionError(f"@tool takes a function, not {function!r}")
    return define(function)
