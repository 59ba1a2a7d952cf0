"""`ToolBinding`: a tool as a toolset serves it, ready to run; and selectors, which mean tools."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, ForwardRef, Protocol, TypeVar, Union, runtime_checkable

from mcp_toolset._records import dataclass, replace
from mcp_toolset._rule import fault_of_syntax, slip_in
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError, StoreError, UnknownToolError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import (
    HINTS,
    MAX_NAME_LENGTH,
    Tagged,
    ToolDefinition,
    declared_tool,
    qualified,
)
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import Provenance
from mcp_toolset.tools.validation import SchemaCheck

Executor = Callable[[ToolCall, ToolContext], Awaitable[ToolResult]]  # Runs a call after all checks.

Gate = Callable[[ToolCall, ToolContext], object]
"""Refuses a call by raising; runs before every other check and never waits (fails closed).

If the check lacks something that a store elsewhere has, it raises `StoreMiss` and is made again.
"""

Redirect = Callable[[ToolCall, ToolContext], ToolCall]  # The call that a call of `call_tool` stands for.
Prepare = Callable[[ToolCall, ToolContext], ToolCall]  # Changes a call before its arguments are checked.
Reads = Callable[[ToolCall], Any]  # Parses typed input, or raises `InvalidArgumentsError`.
Explain = Callable[[ToolCall], str]  # How the model can mend arguments that do not fit.

Supplies = Mapping[Any, Any] | Callable[[ToolContext], Mapping[Any, Any]]
"""Values by parameter name or type, or a function that returns them for the context of one call."""

DEFERRED_CATALOG: Final = "the deferred catalog"  # The `place` of the tools that find and call others.

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Personal:
    """A tool whose source lists something else to each caller."""

    # The definition as the source gave it, before rules and verbs, for names and rules.
    shared: ToolDefinition
    # The definition that a caller is listed; `None` if the tool does not exist for that caller.
    own: Callable[[ToolContext], ToolDefinition | None]
    exists: Callable[[ToolContext], bool]  # True if what is made of `shared` is for a caller.

    def wire(self, shown: Mapping[str, Any], own: ToolDefinition) -> dict[str, Any]:
        """An entry of `tools/list` for one caller; what rules or verbs have changed stays as it is."""
        shared, mine = self.shared.to_wire(), own.to_wire()
        wire = dict(shown)
        for key in (shared.keys() | mine.keys()) - {"name"}:
            if wire.get(key) == shared.get(key):
                wire.pop(key, None)
                wire |= {key: mine[key]} if key in mine else {}
        return wire


_log = logging.getLogger("mcp_toolset.tools")


@dataclass(frozen=True, slots=True)
class Contract:
    """The whole definition of a tool that its source lists by a manifest only, and its compiled schemas."""

    listed: ToolDefinition  # The definition that is listed.
    definition: ToolDefinition  # The definition that callers are shown when they resolve the tool.
    arguments: SchemaCheck
    output: SchemaCheck | None

    def under(self, described: ToolDefinition) -> ToolDefinition:
        if described is self.listed:
            return self.definition
        same = described.description == self.listed.description
        return replace(
            self.definition,
            description=self.definition.description if same else described.description,
            title=described.title or self.definition.title,
            annotations=described.annotations,
        )


class HasContract(Protocol):
    """Fetches the contract of a tool."""

    def known(self) -> Contract | None: ...

    async def fetch(self) -> Contract: ...


@dataclass(frozen=True, slots=True)
class CarriedRules:
    """Rules that a tool carries, and its name and former names in the toolset that brings them."""

    rules: Any
    name: str
    former: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolBinding:
    """One tool under its public name, with its handler.

    Attributes:
        name: The public name, unique within a view.
        definition: The tool's definition, under its original name.
        execute: The handler.
        source: The name of the source that the tool comes from: a mount's name, or empty for local tools.
        place: The place of its definition, for messages.
        on: True if it is available by default.
        deferred: True if it is found by search instead of being listed.
        gate: An extra condition on every call, such as a live grant.
        redirect: Set on tools that call another tool by name.
        manual: True if its calls wait for the application's result.
        timeout: Seconds that one call may take, if the tool says so.
        tool_id: A stable id apart from the public name, where the source has one.
        origin: The `Tool` that it was made from, which all verbs keep; selectors compare it.
        capabilities: The capabilities it was granted beyond the default ones; `None` if none were named.
        prepare: Changes a call, with the turn's input, before its arguments are validated.
        provenance: Returns the current provenance of the tool, which may change while it is mounted.
        asked: The name that the toolset requested, if the tool must be served under another name; hooks and
            middleware for the requested name still apply to it.
        own: The tool's name in the rules that its toolset carries, while these rules run; otherwise empty.
        former: The names that it had before prefixes and renames, the oldest first; hooks and middleware for
            one of them still apply to it, see docs/names.md.
        reads: Parses the typed input of a call, if the tool has one; it may refuse what the schema allows.
        supplies: The values for its injected parameters, the innermost first.
        tags: Tags for selectors and policies; clients do not see them.
        metadata: Data for the application; clients do not see it.
        personal: Set on tools that do not exist for every caller, or are described otherwise to some.
        explain: Adds to the error for arguments that do not fit, as the caller sent them.
        carried: The rules that its toolsets carry with them, the outermost first.
        contract: Set on tools that are listed by a manifest: their definition has no schemas.
        arguments: The compiled input schema.
        output: The compiled output schema, if the tool promises one.
    """

    name: str
    definition: ToolDefinition
    execute: Executor
    arguments: SchemaCheck
    output: SchemaCheck | None = None
    source: str = ""
    place: str = ""
    on: bool = True
    deferred: bool = False
    gate: Gate | None = None
    redirect: Redirect | None = None
    manual: bool = False
    timeout: float | None = None
    tool_id: str = ""
    origin: object = field(default=None, compare=False, repr=False)
    capabilities: frozenset[str] | None = None
    prepare: Prepare | None = field(default=None, compare=False, repr=False)
    provenance: Callable[[], Provenance] | None = field(default=None, compare=False, repr=False)
    asked: str = ""
    own: str = ""
    former: tuple[str, ...] = ()
    reads: Reads | None = field(default=None, compare=False, repr=False)
    supplies: tuple[Supplies, ...] = field(default=(), compare=False, repr=False)
    tags: frozenset[str] = frozenset()
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, compare=False, repr=False)
    personal: Personal | None = field(default=None, compare=False, repr=False)
    explain: Explain | None = field(default=None, compare=False, repr=False)
    carried: tuple[CarriedRules, ...] = field(default=(), compare=False, repr=False)
    contract: HasContract | None = field(default=None, compare=False, repr=False)

    def contracted(self) -> ToolBinding:
        """The binding with the tool's schemas. Raises `StoreMiss`: they must be fetched first."""
        if self.contract is None:
            return self
        found = self.contract.known()
        if found is None:
            raise StoreMiss(self.contract.fetch)
        definition = found.under(self.definition)
        return replace(
            self, definition=definition, arguments=found.arguments, output=found.output, contract=None
        )

    @property
    def own_id(self) -> str:
        """The tool's id within its source: the stable id, otherwise the tool's own name."""
        return self.tool_id or self.definition.name

    @property
    def judged_names(self) -> tuple[str, str]:
        """The names that patterns of policies and limits are for: its public name, and what was asked for."""
        return (self.own, "") if self.own else (self.name, self.asked)

    def exists_for(self, context: ToolContext) -> bool:
        """True if its source lists it to a caller."""
        return self.personal is None or self.personal.exists(context)

    def called(self, name: str, execute: Executor | None = None) -> ToolBinding:
        """The binding under another name, run by `execute` if given; rules for the old one still apply."""
        run = self.execute if execute is None else execute
        if name == self.name:
            return self if execute is None else replace(self, execute=run)
        return replace(self, name=name, former=(*self.former, self.name), execute=run)

    def carrying(self, rules: object) -> ToolBinding:
        """The binding with rules around those that it carries; they know tools by their present names."""
        return replace(self, carried=(CarriedRules(rules, self.name, self.former), *self.carried))

    def known_to(self, carried: CarriedRules) -> ToolBinding:
        """The binding under the names by which carried rules know it, and its public name in `carried`."""
        return replace(
            self,
            name=carried.name,
            former=carried.former,
            asked="",
            carried=(CarriedRules(carried.rules, self.name),),
        )

    def supplying(self, context: ToolContext) -> ToolContext:
        """A context with the toolset's values for injected parameters; the outermost toolset wins."""
        for supplies in reversed(self.supplies):
            context = context.injecting(supplies(context) if callable(supplies) else supplies)
        return context

    def misfit(self, call: ToolCall) -> str | None:
        """The message for the model if the arguments of a call do not fit; `None` if they fit."""
        if not self.arguments.is_valid(call.arguments):
            return self.arguments.misfit(call.name, call.arguments)
        try:
            if self.reads is not None:
                self.reads(call)
        except InvalidArgumentsError as fault:
            return str(fault)
        # A validator is the application's code and may raise anything; the model should correct its call.
        except Exception:
            _log.exception("the input of %s could not be read", in_log(call.name))
            return f"Invalid arguments for {call.name}: they could not be read"
        return None

    def to_wire(self) -> dict[str, Any]:
        """The binding as a `tools/list` entry."""
        return self.definition.to_wire(self.name)


MAX_LOADS: Final = 16  # Times that one check may lack something; a call lacks at most some eight things.

_T = TypeVar("_T")


class StoreMiss(Exception):
    """Control flow: a gate, which never waits, lacks something; `loaded` fetches it and asks again."""

    def __init__(self, load: Callable[[], Awaitable[object]]) -> None:
        super().__init__("something has to be fetched first")
        self.load = load


async def loaded(ask: Callable[[], _T], miss: StoreMiss | None = None) -> _T:
    if miss is None:
        try:
            return ask()
        except StoreMiss as first:
            miss = first
    for _ in range(MAX_LOADS):
        await miss.load()
        try:
            return ask()
        except StoreMiss as again:
            miss = again
    raise StoreError(
        "the copies of this server's stores expire before a call can use them; set a longer cache_ttl"
    )


if TYPE_CHECKING:
    from enum import Enum

    from _typeshed import DataclassInstance
    from pydantic import BaseModel

    from mcp_toolset.tools.tool import Tool

    InputClass = type[BaseModel] | type[DataclassInstance] | type[Enum] | type[Mapping[str, object]]
    """A class that can be declared with `@tool_input`."""

    ToolSelector = str | Tool[..., Any] | InputClass | FunctionType | Tagged
    """A tool's public name; the tool itself, such as the attribute of a class toolset; or what it was made
    from: a declared input class, a function."""
else:
    _Tool = ForwardRef("Tool[..., Any]", module="mcp_toolset.tools.tool")
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
    if colon and f"{hint}Hint" in HINTS.values():
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
    """Resolves names to the tools of one view.

    Former names that have referred to a tool are noted in `holding`, with the identities of the tools. They
    refer to these also in later views with this `holding`, in which another tool has the name.
    """

    __slots__ = ("_bindings", "_holding", "_reached", "_table")

    def __init__(
        self, bindings: Iterable[ToolBinding], holding: dict[str, set[object]] | None = None
    ) -> None:
        self._bindings = list(bindings)
        self._holding = holding
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
        found = _first(now.get(name, []), had := before.get(name, []))
        if had and self._holding is not None:
            held = self._holding.setdefault(name, set())
            meant = {one.name for one in found}
            held.update(identity(one) for one in had if one.name in meant)
            found += [one for one in had if identity(one) in held and one.name not in meant]
        return found

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
        return [*(now or before)]
    taking = {one.source for one in now}
    return [*now, *(one for one in before if one.source not in taking)]
