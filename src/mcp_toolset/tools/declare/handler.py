"""Handlers of tools that are defined by a schema: functions of `(arguments)` or `(arguments, context)`.

A sync handler runs in a worker thread. One that is given by its name is imported at the first call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any, Final, Protocol, cast, runtime_checkable

import anyio.to_thread

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.binding.binding import Executor
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.signature import JSON, Returned

Handler = Callable[..., Any] | str  # A function of `(arguments[, context])`, or its name `module:function`.


_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@runtime_checkable
class _Runs(Protocol):
    """A tool that a handler's name refers to; it parses the arguments itself."""

    run: Executor | None


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """How a schema's tool reads the handler's first argument from a call, and makes its result."""

    read: Callable[[ToolCall], Any]
    returned: Returned = JSON

    def executor(self, handler: Handler, tool: str) -> Executor:
        if not isinstance(handler, str):
            return self._runner(handler, tool)
        check_handler_name(handler, tool)
        found: list[Executor] = []

        async def run(call: ToolCall, context: ToolContext) -> ToolResult:
            if not found:
                found.append(self._resolved(handler, tool))
            return await found[0](call, context)

        return run

    def _resolved(self, name: str, tool: str) -> Executor:
        handler = resolve_handler(name, tool)
        if not isinstance(handler, _Runs):
            return self._runner(handler, tool)
        if handler.run is None:
            raise DefinitionError(
                f"tool {tool!r}: handler {name!r} is a tool without a handler; name a function"
            )
        return handler.run

    def _runner(self, handler: Callable[..., Any], tool: str) -> Executor:
        answer = answering(handler, tool)

        async def run(call: ToolCall, context: ToolContext) -> ToolResult:
            return self.returned.to_result(await answer(self.read(call), context), call.name)

        return run


def answering(handler: Callable[..., Any], tool: str) -> Callable[[Any, ToolContext], Awaitable[Any]]:
    takes_context = _takes_context(handler, tool)

    async def answer(input: Any, context: ToolContext) -> Any:
        given = (input, context) if takes_context else (input,)
        if is_async(handler):
            return await handler(*given)
        value = await anyio.to_thread.run_sync(partial(handler, *given), abandon_on_cancel=True)
        return await value if inspect.isawaitable(value) else value

    return answer


def arguments_reader(schema: Mapping[str, Any]) -> Callable[[ToolCall], dict[str, Any]]:
    properties: dict[str, Any] = schema.get("properties", {})
    defaults = {
        name: cast("Any", item["default"])
        for name, item in properties.items()
        if isinstance(item, dict) and "default" in item
    }

    def read(call: ToolCall) -> dict[str, Any]:
        absent = {name: deepcopy(value) for name, value in defaults.items() if name not in call.arguments}
        return {**call.arguments, **absent}

    return read


def is_async(handler: Callable[..., Any]) -> bool:
    inner = cast("partial[Any]", handler).func if isinstance(handler, partial) else handler
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


def check_handler_name(name: str, tool: str) -> str:
    if not _NAME.fullmatch(name):
        raise DefinitionError(
            f"tool {tool!r}: a handler is a function or named as 'package.module:function', not {name!r}"
        )
    return name


def resolve_handler(name: str, tool: str) -> Callable[..., Any]:
    """Import the function of a name. Importing runs code: use only names that you trust."""
    module, _, path = name.partition(":")
    where = f"tool {tool!r}: handler {name!r} cannot be loaded"
    try:
        found: Any = import_module(module)
    except ImportError as fault:
        raise DefinitionError(f"{where}: {fault}; install the module or correct the name") from fault
    for step in path.split("."):
        if not hasattr(found, step):
            raise DefinitionError(
                f"{where}: {getattr(found, '__name__', found)!r} has no {step!r}; correct the name"
            )
        found = getattr(found, step)
    if not callable(found):
        raise DefinitionError(f"{where}: it is {type(found).__name__}, not a function; correct the name")
    return found


def _takes_context(handler: Callable[..., Any], tool: str) -> bool:
    where = f"tool {tool!r}: handler {getattr(handler, '__qualname__', repr(handler))}"
    if not callable(handler):
        raise DefinitionError(f"{where} cannot be called; give a function or its name as 'module:function'")
    try:
        parameters = inspect.signature(handler).parameters.values()
    except ValueError:
        raise DefinitionError(f"{where} has no signature that can be read; wrap it in a function") from None
    needed = [item for item in parameters if item.default is item.empty and item.kind in _POSITIONAL]
    takes = [item for item in parameters if item.kind in (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL)]
    named = [
        item.name for item in parameters if item.kind is item.KEYWORD_ONLY and item.default is item.empty
    ]
    if not takes or len(needed) > 2 or named:
        raise DefinitionError(f"{where} must take (arguments) or (arguments, context); wrap it in a function")
    return len(needed) == 2
