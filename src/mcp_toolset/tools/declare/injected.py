"""`Injected`: dependency injection, parameters that the application supplies and the model never sees.

A value is looked up by the parameter's name, else by its type. A value of the call's context wins over one
that a toolset injects, and an outer toolset wins over the ones inside it: the host decides last.
"""

from __future__ import annotations

import inspect
import types
from typing import Annotated, Any, Union, get_args, get_origin

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import DefinitionError, StateError
from mcp_toolset.tools.binding.binding import Supplies, ToolBinding
from mcp_toolset.tools.core.call import InjectingContext, ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult


class Injected:
    """Marks a parameter that the application supplies: `database: Annotated[Database, Injected]`."""


@dataclass(frozen=True, slots=True)
class InjectedParameter:
    """One injected parameter.

    Attributes:
        name: The parameter's name.
        kinds: The types to look its value up by if its name is not found.
        shown: Its type, for messages.
        optional: Whether the function has a default for it.
    """

    name: str
    kinds: tuple[Any, ...]
    shown: str
    optional: bool

    def supply(self, keywords: dict[str, Any], call: ToolCall, context: ToolContext) -> None:
        """Add the value to the keywords of a call, unless the function's default applies."""
        supplied = context.injected
        for key in (self.name, *self.kinds):
            if key in supplied:
                keywords[self.name] = supplied[key]
                return
        if not self.optional:
            raise StateError(
                f"tool {call.name!r} needs {self.name!r} ({self.shown}), which was not supplied; give the "
                f"toolset or the tool .injecting({{{self.name!r}: …}}), or run it with context.injecting(…)"
            )


def check_supplied(binding: ToolBinding) -> None:
    """Check that something supplies what a local tool needs; a function may supply anything.

    Raises:
        DefinitionError: a parameter without a default is not supplied.
    """
    signature: Any = getattr(binding.origin, "signature", None)
    needed: tuple[InjectedParameter, ...] = () if signature is None else signature.arguments.injected
    tables = [one for one in binding.supplies if not callable(one)]
    if binding.source or len(tables) < len(binding.supplies):
        return
    for one in needed:
        if not one.optional and not any(key in table for table in tables for key in (one.name, *one.kinds)):
            raise DefinitionError(
                f"tool {binding.name!r} needs {one.name!r} ({one.shown}), which nothing supplies, so calls "
                f"would fail; give the toolset or the tool .injecting({{{one.name!r}: …}})"
            )


def injected_parameter(parameter: inspect.Parameter, annotation: Any) -> InjectedParameter | None:
    """The parameter as an injected one, if its annotation says so."""
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
    """`context` with the values of `supplies`."""
    return InjectingContext(context, supplies(context) if callable(supplies) else supplies)


def with_injected(binding: ToolBinding, supplies: Supplies) -> ToolBinding:
    """The binding with values for its handler's injected parameters; a mounted tool ignores them."""
    if binding.source:
        return binding
    run = binding.execute

    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        return await run(call, injecting(context, supplies))

    return replace(binding, execute=execute, supplies=(*binding.supplies, supplies))
