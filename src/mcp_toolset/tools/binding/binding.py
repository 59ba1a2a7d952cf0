"""`ToolBinding`: one tool under its public name, with its handler; `StoreMiss`: what its gate lacks."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import InvalidArgumentsError, StoreError
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.core.source import Provenance
from mcp_toolset.tools.schema.validation import SchemaCheck
from mcp_toolset.tools.text.hidden_text import in_log

Executor = Callable[[ToolCall, ToolContext], Awaitable[ToolResult]]  # Runs a call after all checks.

Gate = Callable[[ToolCall, ToolContext], None]
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
        place: Where it was defined, for messages.
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
        "the copies of this server's stores expire before a call can use them; set a longer max_age"
    )
