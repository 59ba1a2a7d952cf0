"""Selectors: how an application refers to a tool or a group of tools, in any toolset or view.

A selector is a tool's public name, the `Tool` itself, or the object that the tool was made from: a class
declared with `@tool_input`, or a function. Tools and objects are compared by identity with the entries of a
compiled view, whatever names nesting and verbs gave them: names are never parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Final, ForwardRef, Protocol, Union, runtime_checkable

from mcp_toolset.errors import DefinitionError, UnknownToolError
from mcp_toolset.tools.core.names import declared_tool
from mcp_toolset.tools.core.options import Tagged

if TYPE_CHECKING:
    from enum import Enum

    from pydantic import BaseModel

    from mcp_toolset.tools.binding.binding import ToolBinding
    from mcp_toolset.tools.core.definition import ToolDefinition

    class _IsDataclass(Protocol):
        __dataclass_fields__: ClassVar[dict[str, Any]]

    InputClass = type[BaseModel] | type[_IsDataclass] | type[Enum] | type[Mapping[str, object]]
    """A class that can be declared with `@tool_input`."""

    class DeclaredTool(Protocol):
        """A `Tool`."""

        @property
        def definition(self) -> ToolDefinition: ...

        @property
        def waits(self) -> bool:
            """Whether its calls wait for the application's result."""
            ...

        def bind(self) -> ToolBinding:
            """The tool as an entry of a view."""
            ...

    ToolSelector = str | DeclaredTool | InputClass | FunctionType | Tagged
    """A tool's public name; the tool itself, such as the attribute of a class toolset; or what it was made
    from: a declared input class, a function."""
else:
    _Tool = ForwardRef("Tool[..., Any]", module="mcp_toolset.tools.declare.tool")
    ToolSelector = Union[str, _Tool, type, FunctionType, Tagged]  # noqa: UP007

MAX_NEAR: Final = 3
"""The number of close matches that an error names."""


@runtime_checkable
class ToolGroup(Protocol):
    """A nested toolset as a selector of all its tools."""

    def identities(self) -> Mapping[object, frozenset[str]]:
        """The keys that identify its tools wherever they are nested, each with its names in the group."""
        ...


def identity(binding: ToolBinding) -> object:
    """The key of a tool that no verb changes: the `Tool`, or its source and original name."""
    return id(binding.origin) if binding.origin is not None else (binding.source, binding.definition.name)


def names_of(selector: object, table: Mapping[str, ToolBinding]) -> list[str]:
    """The public names that a selector's tool has in a view: usually one."""
    if isinstance(selector, str):
        return [selector] if selector in table else []
    return [name for name, binding in table.items() if means(selector, binding)]


def public_name_of(selector: object, table: Mapping[str, ToolBinding]) -> str:
    names = names_of(selector, table)
    if len(names) == 1:
        return names[0]
    if names:
        raise DefinitionError(
            f"this tool has {len(names)} names here, {', '.join(names)}; select it by one of the names"
        )
    raise unknown(selector, table)


def group_names(group: ToolGroup, table: Mapping[str, ToolBinding]) -> list[str]:
    """The public names of all tools of a nested toolset, in the view's order."""
    wanted = group.identities()
    found: dict[object, str] = {}
    for name, binding in table.items():
        key = identity(binding)
        if key in wanted and found.setdefault(key, name) != name:
            raise DefinitionError(
                f"{group!r} is here more than once, as {found[key]} and {name}; select its tools by name"
            )
    if wanted and not found:
        raise UnknownToolError(repr(group), "; none of its tools is here")
    return list(found.values())


def resolve_all(selectors: Iterable[object], table: Mapping[str, ToolBinding]) -> list[str]:
    """The public names that selectors and groups refer to, each once, in their order."""
    names: list[str] = []
    for selector in selectors:
        if isinstance(selector, ToolGroup):
            names.extend(group_names(selector, table))
        elif isinstance(selector, Tagged):
            names.extend(names_of(selector, table))
        else:
            names.append(public_name_of(selector, table))
    return list(dict.fromkeys(names))


def unknown(selector: object, table: Mapping[str, ToolBinding]) -> Exception:
    """The error for a selector that matches nothing in a view, with close matches."""
    name = own_name(selector)
    if name is None:
        return DefinitionError(
            "a tool is selected by its public name or by the tool itself, or by what it was made of: a "
            f"function, or a class that @tool_input has declared; not by {selector!r}"
        )
    if not isinstance(selector, str) and name in table:
        return UnknownToolError(
            name, "; another tool has this name here, so select by the name to mean that one"
        )
    near = near_names(name, table)
    return UnknownToolError(name, f"; did you mean {' or '.join(near)}?" if near else "")


def near_names(name: str, table: Mapping[str, ToolBinding]) -> list[str]:
    """The public names that `name` may have been meant for: the same tool with a prefix first."""
    own = [public for public, binding in table.items() if binding.definition.name == name]
    lowered = {public.lower(): public for public in table}
    # Imported here, because only a mistake needs it.
    from difflib import get_close_matches

    close = [lowered[match] for match in get_close_matches(name.lower(), lowered, MAX_NEAR)]
    return list(dict.fromkeys([*own, *close]))[:MAX_NEAR]


def means(selector: object, binding: ToolBinding) -> bool:
    """Whether a selector that is not a name refers to a tool: the tool itself, or what it was made from."""
    if isinstance(selector, Tagged):
        return selector.tags <= binding.tags
    origin: Any = binding.origin
    return origin is not None and (selector is origin or selector is getattr(origin, "declared", origin))


def own_name(selector: object) -> str | None:
    """The name of a selector: its text, or the name of its tool or of the object that a tool is made from."""
    if isinstance(selector, str):
        return selector
    tool = declared_tool(selector) or selector
    name: object = tool.__name__ if isinstance(tool, FunctionType) else getattr(tool, "name", None)
    return name if isinstance(name, str) else None
