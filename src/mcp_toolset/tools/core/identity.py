"""The id of a tool, which is stable whatever its public name, and the importable name of its handler."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

DECLARED: Final = "__mcp_toolset_tool__"
"""The attribute of a class declared with `@tool_input` that has its tool."""


def declared_tool(model: object) -> Any:
    """The tool of a class declared with `@tool_input`; a subclass does not inherit it."""
    return vars(model).get(DECLARED) if isinstance(model, type) else None


def default_id(name: str, function: object) -> str:
    """The default id of a tool: stable between processes, whatever prefix the tool gets.

    For a function it is `module:function`, so that two tools of one name in two modules differ;
    else `tool:name`.
    """
    path = _path_of(function)
    if path is None:
        return f"tool:{name}"
    return path if path.rsplit(":", 1)[-1].split(".")[-1] == name else f"{path}#{name}"


def handler_name(handler: object) -> str | None:
    """`module:function` if importing that gives the handler, or the tool made from it."""
    if handler is None or isinstance(handler, str):
        return handler
    path = _path_of(handler)
    if path is None or "<" in path or path.startswith("__main__:"):
        return None
    module, _, steps = path.partition(":")
    found: Any = sys.modules.get(module)
    for step in steps.split("."):
        found = getattr(found, step, None)
    return path if found is handler or getattr(found, "function", None) is handler else None


def _path_of(function: object) -> str | None:
    inner: Any = inspect.unwrap(cast("Callable[..., Any]", function)) if callable(function) else function
    while isinstance(inner, partial):
        inner = inner.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    module, name = getattr(inner, "__module__", None), getattr(inner, "__qualname__", None)
    return f"{module}:{name}" if isinstance(module, str) and isinstance(name, str) else None
