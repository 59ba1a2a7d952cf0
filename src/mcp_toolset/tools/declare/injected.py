"""`Injected`: parameters that the model never sees, supplied by the surroundings of a call.

A value is found by the parameter's name, else by its type. What came with the call itself goes
before what a toolset injects, and an outer toolset before the ones inside it: the host has the last
word.
"""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass, replace
from typing import Annotated, Any, Union, get_args, get_origin

from mcp_toolset.errors import StateError
from mcp_toolset.tools.binding.binding import Supplies, ToolBinding
from mcp_toolset.tools.core.call import InjectingContext, ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult


class Injected:
    """Marks a parameter as supplied by the application: `database: Annotated[Database, Injected]`."""


@dataclass(frozen=True, slots=True)
class InjectedParameter:
    """One parameter that the surroundings supply.

    Attributes:
        name: The parameter's name.
        kinds: The types that its value is found by when the name is not there.
        shown: Its type, for messages.
        optional: Whether the function has a default for it.
    """

    name: str
    kinds: tuple[Any, ...]
    shown: str
    optional: bool

    def supply(self, keywords: dict[str, Any], call: ToolCall, context: ToolContext) -> None:
        """Add the value to the keywords of a call; the function's own default stands in for it.

        Raises:
            StateError: nothing supplies it, and there is no default.
        """
        supplied = context.injected
        for key in (self.name, *self.kinds):
            if key in supplied:
                keywords[self.name] = supplied[key]
                return
        if not self.optional:
            raise StateError(
                f"tool {call.name!r} needs {self.name!r} ({self.shown}) and nobody supplied it; give the "
                f"toolset or the tool .injecting({{{self.name!r}: …}}), or run it with context.injecting(…)"
            )


def injected_parameter(parameter: inspect.Parameter, annotation: Any) -> InjectedParameter | None:
    """The parameter as one that is injected, if its annotation says so."""
    if get_origin(annotation) is not Annotated:
        return None
    kind, *notes = get_args(annotation)
    if not any(note is Injected or isinstance(note, Injected) for note in notes):
        return None
    union = get_origin(kind) in (Union, types.UnionType)
    kinds = tuple(item for item in get_args(kind) if item is not type(None)) if union else (kind,)
    shown = inspect.formatannotation(kind)
    return InjectedParameter(parameter.name, kinds, shown, parameter.default is not parameter.empty)


def injecting(context: ToolContext, supplies: Supplies) -> ToolContext:
    """`context` with what `supplies` has for it."""
    return InjectingContext(context, supplies(context) if callable(supplies) else supplies)


def with_injected(binding: ToolBinding, supplies: Supplies) -> ToolBinding:
    """The binding with values supplied to its handler; a mounted tool has no use for them."""
    if binding.source:
        return binding
    run = binding.execute

    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        return await run(call, injecting(context, supplies))

    return replace(binding, execute=execute, supplies=(*binding.supplies, supplies))
