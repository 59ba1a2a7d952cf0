"""Selectors, by which an application refers to tools, and `ToolNames`, which resolves them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Final, ForwardRef, Protocol, Union, runtime_checkable

from mcp_toolset._records import dataclass
from mcp_toolset._rule import fault_of_syntax, slip_in
from mcp_toolset.errors import DefinitionError, UnknownToolError
from mcp_toolset.tools.binding.binding import ToolBinding
from mcp_toolset.tools.core.definition import Tagged, ToolDefinition
from mcp_toolset.tools.core.names import MAX_NAME_LENGTH, declared_tool, qualified

if TYPE_CHECKING:
    from enum import Enum

    from pydantic import BaseModel

    class _IsDataclass(Protocol):
        __dataclass_fields__: ClassVar[dict[str, Any]]

    InputClass = type[BaseModel] | type[_IsDataclass] | type[Enum] | type[Mapping[str, object]]
    """A class that can be declared with `@tool_input`."""

    class DeclaredTool(Protocol):
        """A `Tool`."""

        @property
        def definition(self) -> ToolDefinition: ...

        @property
        def waits(self) -> bool: ...

        def bind(self) -> ToolBinding: ...

    ToolSelector = str | DeclaredTool | InputClass | FunctionType | Tagged
    """A tool's public name; the tool itself, such as the attribute of a class toolset; or what it was made
    from: a declared input class, a function."""
else:
    _Tool = ForwardRef("Tool[..., Any]", module="mcp_toolset.tools.declare.tool")
    ToolSelector = Union[str, _Tool, type, FunctionType, Tagged]  # noqa: UP007

MAX_NEAR: Final = 3  # The number of close matches that an error names.


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
    own = [public for public, binding in table.items() if binding.definition.name == name]
    lowered = {public.lower(): public for public in table}
    # Imported here, because only a mistake needs it.
    from difflib import get_close_matches

    close = [lowered[match] for match in get_close_matches(name.lower(), lowered, MAX_NEAR)]
    return list(dict.fromkeys([*own, *close]))[:MAX_NEAR]


def means(selector: object, binding: ToolBinding) -> bool:
    if isinstance(selector, Tagged):
        return selector.tags <= binding.tags
    origin: Any = binding.origin
    return origin is not None and (selector is origin or selector is getattr(origin, "declared", origin))


def own_name(selector: object) -> str | None:
    if isinstance(selector, str):
        return selector
    tool = declared_tool(selector) or selector
    name: object = tool.__name__ if isinstance(tool, FunctionType) else getattr(tool, "name", None)
    return name if isinstance(name, str) else None


EVERY_TOOL: Final = "*"  # The pattern for every tool.

KEPT: Final = qualified("_" * MAX_NAME_LENGTH, "").rindex("_")
"""The number of characters of a long name before the digest that keeps it apart from others."""

_MAGIC: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class NameUse:
    """A name, a pattern or a tool for which a hook, middleware, limit or the like was given."""

    name: str  # The name or the pattern; for a tool or a toolset, its name.
    where: str  # Where it was given, for messages, such as `hooks.execution`.
    tool: object = field(default=None, compare=False)  # The tool or the toolset itself, if that was given.

    @property
    def is_pattern(self) -> bool:
        return self.tool is None and bool(_MAGIC.search(self.name))


def use_of(selector: object, where: str) -> NameUse | None:
    if isinstance(selector, str):
        if fault := fault_of_syntax(selector) or _fault_of(selector):
            raise DefinitionError(f"{where}({selector!r}) {fault[0]}; {fault[1]}")
        return NameUse(selector, where) if selector else None
    name = own_name(selector)
    if isinstance(selector, ToolGroup) and not isinstance(selector, type):
        return NameUse(name or repr(selector), where, selector)
    return NameUse(name, where, selector) if name else None


def _fault_of(selector: str) -> tuple[str, str] | None:
    hint, colon, rest = selector.partition(":")
    if selector != selector.strip() or not selector.isprintable():
        return "has blanks at an end or hidden characters, and so fits nothing", "remove them"
    if colon and hint == "tag":
        return "is no name of a tool", f'write tagged("{rest}"), without quotation marks around it'
    if colon and hint in ("destructive", "readOnly", "idempotent", "openWorld"):
        return "is no name of a tool", "hints are for policies and limits; name the tools, or give Policy(…)"
    return None


def matches(pattern: str, name: str) -> bool:
    """True if a name or pattern matches a name; a long name may have been cut within its prefixes."""
    if pattern == name:
        return True
    if not _MAGIC.search(pattern):
        return False
    head = pattern[:-1]
    if pattern.endswith(EVERY_TOOL) and not _MAGIC.search(head):
        return name.startswith(head[:KEPT])
    return fnmatchcase(name, pattern)


class ToolNames:
    """Resolves names to the tools of one view."""

    __slots__ = ("_bindings", "_reached", "_table")

    def __init__(self, bindings: Iterable[ToolBinding]) -> None:
        self._bindings = list(bindings)
        self._reached: dict[tuple[str, int], tuple[NameUse, frozenset[str]]] = {}
        self._table: tuple[Mapping[str, list[ToolBinding]], Mapping[str, list[ToolBinding]]] | None = None

    def __iter__(self) -> Iterator[str]:
        return (one.name for one in self._bindings)

    def __len__(self) -> int:
        return len(self._bindings)

    def __contains__(self, name: object) -> bool:
        return any(one.name == name for one in self._bindings)

    def __repr__(self) -> str:
        return f"ToolNames({', '.join(self)})"

    def reached(self, use: NameUse) -> frozenset[str]:
        # The cache keeps the use, so that no other tool can get this id.
        key = (use.name, id(use.tool))
        known = self._reached.get(key)
        if known is None:
            found = self._of_tool(use.tool) if use.tool is not None else frozenset[str]()
            known = (use, found or frozenset(one.name for one in self._meant(use.name)))
            self._reached[key] = known
        return known[1]

    def is_ambiguous(self, use: NameUse) -> bool:
        return (
            use.tool is None
            and not use.is_pattern
            and not self._tables[0].get(use.name)
            and len(self._tables[1].get(use.name, ())) > 1
        )

    def exact(self, binding: ToolBinding) -> tuple[str, ...]:
        return tuple(
            name
            for name in names_had(binding)
            if name == binding.name or any(one.name == binding.name for one in self._named(name))
        )

    def moved(self, use: NameUse) -> list[str]:
        """The public names of the tools that a pattern matched before a prefix or a rename."""
        before = self._tables[1].items() if use.is_pattern else ()
        return sorted({one.name for known, those in before if matches(use.name, known) for one in those})

    def near(self, use: NameUse) -> list[str]:
        if use.is_pattern:
            return slip_in(use.name, self)
        return near_names(use.name, {one.name: one for one in self._bindings})

    def _of_tool(self, tool: object) -> frozenset[str]:
        if isinstance(tool, ToolGroup):
            return self._of_group(tool.identities())
        found = frozenset(names_of(tool, {one.name: one for one in self._bindings}))
        id = getattr(tool, "id", "")
        return found or frozenset(one.name for one in self._bindings if id and one.tool_id == id)

    def _of_group(self, names: Mapping[object, frozenset[str]]) -> frozenset[str]:
        """The tools of a toolset; of a tool that is here twice, the one that had its name in the toolset."""
        found: dict[object, list[ToolBinding]] = {}
        for one in self._bindings:
            if (key := identity(one)) in names:
                found.setdefault(key, []).append(one)
        return frozenset(
            one.name
            for key, those in found.items()
            for one in [each for each in those if not names[key].isdisjoint(names_had(each))] or those
        )

    def _meant(self, name: str) -> list[ToolBinding]:
        if not _MAGIC.search(name):
            return self._named(name)
        return [one for known, those in self._tables[0].items() if matches(name, known) for one in those]

    def _named(self, name: str) -> list[ToolBinding]:
        now, before = self._tables
        return _first(now.get(name, []), before.get(name, []))

    @property
    def _tables(self) -> tuple[Mapping[str, list[ToolBinding]], Mapping[str, list[ToolBinding]]]:
        if self._table is None:
            now: dict[str, list[ToolBinding]] = {}
            before: dict[str, list[ToolBinding]] = {}
            for one in self._bindings:
                # What the protocol made of a server's own name, which no verb has changed, is no other name.
                own = one.definition.name if one.source and not one.former else one.name
                for name in {one.name, one.asked or one.name, own}:
                    now.setdefault(name, []).append(one)
                for name in {*one.former, one.definition.name} - {one.name, one.asked, own}:
                    before.setdefault(name, []).append(one)
            self._table = (now, before)
        return self._table


def names_had(binding: ToolBinding) -> list[str]:
    had = (binding.name, binding.asked, *reversed(binding.former), binding.definition.name)
    return [name for name in dict.fromkeys(had) if name]


def _first(now: list[ToolBinding], before: list[ToolBinding]) -> list[ToolBinding]:
    """The tools that have a name; those that had it, if no local tool has it: a server may give any name."""
    if not now or any(not one.source for one in now):
        return now or before
    return [*now, *(one for one in before if not one.source)]
