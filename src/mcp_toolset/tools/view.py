"""`ToolView`: a frozen table from public name to `ToolBinding`; `ToolAvailability`: what a model sees of it.

Names are never parsed at call time: the table maps them back to tools.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from importlib import import_module
from itertools import groupby
from operator import attrgetter, is_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, Self, TypeVar

from mcp_toolset._index import mend, needed
from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError, NameConflictError, UnknownNameError
from mcp_toolset.tools.binding import (
    EVERY_TOOL,
    NameUse,
    ToolBinding,
    ToolGroup,
    ToolNames,
    ToolSelector,
    loaded,
    names_of,
    public_name_of,
    resolve_all,
)
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext, require_context
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import ToolSource

if TYPE_CHECKING:
    from mcp_toolset.tools.export import Export, Provider, ToolRequirement


M = TypeVar("M")

_SOURCE: Final = attrgetter("source")


@dataclass(frozen=True, slots=True)
class Each:
    """A step that depends on its tool only, so that its result can be cached, and the rules that it adds."""

    step: Callable[[ToolBinding], ToolBinding | None]
    rules: AnyRules | None = None

    def __call__(self, binding: ToolBinding) -> ToolBinding | None:
        return self.step(binding)


def same(ones: Sequence[object], others: Sequence[object]) -> bool:
    return len(ones) == len(others) and all(map(is_, ones, others))


def distinct(bindings: list[ToolBinding]) -> list[ToolBinding]:
    if len(set(map(id, bindings))) == len(bindings):
        return bindings
    seen: set[int] = set()
    return [replace(one) if id(one) in seen or seen.add(id(one)) else one for one in bindings]


def by_source(bindings: Iterable[ToolBinding]) -> Iterator[tuple[str, list[ToolBinding]]]:
    return ((source, list(run)) for source, run in groupby(bindings, _SOURCE))


class Made(Generic[M]):
    """The result of `make` for each tool."""

    __slots__ = ("_given", "_make", "_runs")

    def __init__(self, make: Callable[[ToolBinding], M]) -> None:
        self._make = make
        self._given: object = None
        self._runs: dict[tuple[str, int], tuple[list[ToolBinding], list[M]]] = {}

    def of(self, bindings: Iterable[ToolBinding], given: object = None) -> list[M]:
        before: dict[Any, tuple[list[ToolBinding], list[M]]] = self._runs if self._given == given else {}
        runs: dict[tuple[str, int], tuple[list[ToolBinding], list[M]]] = {}
        counts: dict[str, int] = {}
        made: list[M] = []
        for source, tools in by_source(bindings):
            counts[source] = place = counts.get(source, 0) + 1
            known = before.get((source, place))
            if known is None or not same(known[0], tools):
                known = (tools, self._anew(tools, known))
            runs[source, place] = known
            made += known[1]
        self._runs, self._given = runs, given
        return made

    def _anew(self, tools: list[ToolBinding], known: tuple[list[ToolBinding], list[M]] | None) -> list[M]:
        if known is None:
            return list(map(self._make, tools))
        # Cached results hold their tools, so that no other tool can get the id of one of them.
        kept = dict(zip(map(id, known[0]), known[1], strict=True))
        return [kept[id(tool)] if id(tool) in kept else self._make(tool) for tool in tools]


_log = logging.getLogger("mcp_toolset.names")


@dataclass(frozen=True, slots=True)
class UnboundName:
    """A name that matches no tool, or several tools that had it before."""

    name: str  # The name as it was given.
    where: str  # Where it was given, such as `hooks.execution`.
    near: tuple[str, ...] = ()  # The public names that it may have been meant for.
    waiting: tuple[str, ...] = ()  # The mounted servers that are not ready and may have the tool.
    # The fault; `caller` is a tool that calls another one, which rules are asked about, and `hidden` one
    # whose tools the rules of all servers allow before.
    kind: Literal["unknown", "pattern", "moved", "ambiguous", "server", "caller", "hidden"] = "unknown"
    server: str = ""  # The mounted server of all the tools, if there is only one.
    starting: tuple[str, ...] = ()  # Those of `waiting` that are still starting.

    @property
    def is_settled(self) -> bool:
        """True if it is to be told now: no server that may have the tool is starting, and its own is up."""
        return not self.starting and not (self.server and self.waiting)

    @property
    def reason(self) -> str:
        if self.kind == "ambiguous":
            return f"several tools had this name: use {' or '.join(self.near)}, or give the tool itself"
        if self.kind == "moved":
            return f"no tool fits this pattern any more: the names are {', '.join(self.near)} now"
        if self.kind == "caller":
            return "it calls another tool, and rules are asked about that one: name that tool, or `*`"
        if self.kind == "hidden":
            return f"the rules of each server are asked before it and allow {self.near[0]!r}: write it there"
        if self.kind == "server":
            near = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
            return f"no such server is mounted{near}"
        fault = "no tool fits this pattern" if self.kind == "pattern" else "there is no such tool"
        fault += f" of server {self.server!r}" if self.server else ""
        if not self.is_settled:
            return f"{fault} so far; not listed yet: {', '.join(self.waiting)}"
        near = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
        away = f" ({', '.join(self.waiting)} cannot be reached now and may have it)" if self.waiting else ""
        return f"{fault}{near}{away}"

    def __str__(self) -> str:
        effect = "" if self.kind == "ambiguous" else " has no effect"
        return f"{self.where}({self.name!r}){effect}: {self.reason}"


@dataclass(frozen=True, slots=True)
class KnownTools:
    """The tools that names are resolved against."""

    # Returns every tool, also those that are filtered out or switched off.
    everything: Callable[[], Iterable[ToolBinding]]
    sources: Sequence[ToolSource] = ()  # Sources that may add tools.
    # True if these tools are a part of a larger toolset, so that no name counts as missing.
    is_part: bool = False
    # Returns the names that were given to verbs and match no tool.
    verbs: Callable[[], Iterable[UnboundName]] = tuple[UnboundName, ...]
    grows: bool = False  # True if sources may come later, as those of a file do that is read again.

    @property
    def is_closed(self) -> bool:
        """True if no tools can be added later."""
        return not self.sources and not self.grows

    @property
    def waiting(self) -> tuple[str, ...]:
        return tuple(one.source_name for one in self.sources if not one.status.is_up)

    @property
    def starting(self) -> tuple[str, ...]:
        return tuple(one.source_name for one in self.sources if one.status.is_starting)

    def missing(self, use: NameUse, near: Iterable[str]) -> UnboundName:
        kind = "pattern" if use.is_pattern else "unknown"
        return UnboundName(use.name, use.where, tuple(near), self.waiting, kind, starting=self.starting)


def unbound(uses: Iterable[NameUse], names: ToolNames, known: KnownTools) -> list[UnboundName]:
    """The names that match no tool, each once; `known` is asked about names that match none of `names`."""
    found: dict[tuple[str, str], UnboundName] = {}
    every: ToolNames | None = None
    for use in uses:
        if use.name == EVERY_TOOL:
            continue
        if names.reached(use):
            if names.is_ambiguous(use):
                near = tuple(sorted(names.reached(use)))
                found[use.where, use.name] = UnboundName(use.name, use.where, near, kind="ambiguous")
            continue
        if moved := names.moved(use):
            found[use.where, use.name] = UnboundName(use.name, use.where, tuple(moved), kind="moved")
            continue
        every = every or ToolNames(known.everything())
        if not every.reached(use):
            found[use.where, use.name] = known.missing(use, names.near(use) or every.near(use))
    return list(found.values())


_DECIDING: Final = ("hooks.execution", "hooks.result", "tool_middleware")


def passed_by(uses: Iterable[NameUse], bindings: Iterable[ToolBinding]) -> list[UnboundName]:
    callers = {one.name for one in bindings if one.redirect is not None}
    found = (use for use in uses if use.name in callers and use.where in _DECIDING)
    return [UnboundName(use.name, use.where, kind="caller") for use in found]


@dataclass(slots=True)
class NameReport:
    """Reports names that match no tool: once each, and again after they matched one.

    Where all tools are known, because nothing is mounted, such a name is an error, and a pattern without
    matches is a warning. Mounted servers may add the tool later: once all have started, the name is a
    warning. A rule for a server that is not mounted is an error. A name that matched a tool before is a
    warning at most. `strict` turns every warning into an error, or with `False` every error into a warning.
    """

    strict: bool | None = None
    found: tuple[UnboundName, ...] = ()
    _told: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    _bound: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def look(
        self, uses: Iterable[NameUse], names: ToolNames, known: KnownTools, verbs: Iterable[UnboundName] = ()
    ) -> None:
        if known.is_part:
            return
        uses = list(uses)
        self.take([*unbound(uses, names, known), *verbs], is_closed=known.is_closed)
        missing = {(one.where, one.name) for one in self.found}
        self._bound |= {(use.where, use.name) for use in uses} - missing

    def take(self, found: Iterable[UnboundName], *, is_closed: bool) -> None:
        """Report names that were found missing; `is_closed` says that no tools can be added later."""
        self.found = tuple(found)
        errors = [one for one in self.found if self._is_error(one, is_closed)]
        if errors:
            raise UnknownNameError("; ".join(map(str, errors)))
        settled = {_key(one): one for one in self.found if one.is_settled}
        for key, one in settled.items():
            if key not in self._told:
                _log.warning("%s", in_log(one))
        # A server that starts again is no reason to report the same name twice.
        self._told = (self._told | settled.keys()) & set(map(_key, self.found))

    def _is_error(self, one: UnboundName, is_closed: bool) -> bool:
        if self.strict is False or one.waiting or (one.where, one.name) in self._bound:
            return False
        is_slip = one.kind != "pattern" or bool(one.near)
        return self.strict is True or one.kind == "server" or (is_closed and is_slip)


def _key(one: UnboundName) -> tuple[str, str, str]:
    return one.where, one.name, one.server


@dataclass(frozen=True, slots=True)
class ToolAvailability:
    """A selection of tools, resolved against a toolset before anything is sent to a model.

    A selector is a public name, a `Tool`, or a nested toolset, which selects all its tools, on or off.
    """

    kind: Literal["default", "all", "only", "default_plus"] = "default"
    selectors: tuple[ToolSelector | ToolGroup, ...] = ()

    @classmethod
    def default(cls) -> ToolAvailability:
        """Every tool that is on."""
        return cls()

    @classmethod
    def all(cls) -> ToolAvailability:
        """Every tool, on or off."""
        return cls("all")

    @classmethod
    def only(cls, *selectors: ToolSelector | ToolGroup) -> ToolAvailability:
        """Only these tools, on or off."""
        return cls("only", selectors)

    @classmethod
    def default_plus(cls, *selectors: ToolSelector | ToolGroup) -> ToolAvailability:
        """Every tool that is on, and then these, each once."""
        return cls("default_plus", selectors)

    def resolve(self, table: Mapping[str, ToolBinding]) -> list[str]:
        """The available public names, given all tools; raises `UnknownToolError` for an unknown selector."""
        picked = resolve_all(self.selectors, table)
        if self.kind == "all":
            return list(table)
        if self.kind == "only":
            return picked
        on = [name for name, binding in table.items() if binding.on]
        return list(dict.fromkeys([*on, *picked]))


class Describes(Protocol):
    """Changes the texts of tools: a `HookSet`, `Rules` or `Descriptions`."""

    async def describe(self, view: ToolView, /) -> list[ToolBinding]: ...


class AnyRules(ABC):
    """Rules as toolsets and typed calls use them: `Rules`."""

    @abstractmethod
    async def run(self, view: ToolView, call: ToolCall, context: ToolContext, /) -> ToolResult: ...

    @property
    @abstractmethod
    def only_hooks(self) -> Any:
        """The hooks, if the rules have nothing else; raises `DefinitionError` otherwise."""

    @abstractmethod
    def check_carried(self, view: ToolView) -> None: ...

    @abstractmethod
    def missing(self, view: ToolView) -> list[Any]: ...

    @abstractmethod
    def denies(self, binding: ToolBinding) -> bool: ...

    @abstractmethod
    def none(self) -> AnyRules: ...


class ToolView(Mapping[str, ToolBinding]):
    """A flat, frozen table of tools by public name, in the order they are listed."""

    __slots__ = ("_known", "_names", "_table", "left_out")

    def __init__(
        self,
        bindings: Iterable[ToolBinding],
        *,
        known: KnownTools | None = None,
        left_out: tuple[str, ...] = (),
    ) -> None:
        """Freeze `bindings`; `NameConflictError` if two tools have the same name.

        Args:
            bindings: The tools.
            known: All tools that names may refer to, if `bindings` are some of them, also in derived views.
            left_out: The deferred tools that were left out, so that an export does not lose them unseen.
        """
        table: dict[str, ToolBinding] = {}
        for binding in bindings:
            other = table.setdefault(binding.name, binding)
            if other is not binding:
                raise NameConflictError(conflict_message(other, binding))
        self._table = MappingProxyType(table)
        self._known = known
        self.left_out = left_out
        self._names: ToolNames | None = None

    @property
    def names(self) -> ToolNames:
        """Resolves names to the tools of the view."""
        if self._names is None:
            self._names = ToolNames(self._table.values())
        return self._names

    @property
    def known_tools(self) -> KnownTools:
        """All tools that names may refer to: those of the toolset that the view was made from."""
        return self._known or KnownTools(self._table.values)

    def knows(self, name: str) -> bool:
        """True if a tool of the view's toolset has this name, also if it is off, deferred or filtered."""
        known = (*self.left_out, *(one.name for one in self.known_tools.everything()))
        return name in self or name in known

    def __getitem__(self, selector: ToolSelector) -> ToolBinding:
        return self._table[public_name_of(selector, self._table)]

    def get(self, selector: ToolSelector, default: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The binding of a name or a tool, or `default`."""
        return self[selector] if selector in self else default

    def __contains__(self, selector: object) -> bool:
        return bool(names_of(selector, self._table))

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"ToolView({', '.join(self._table)})"

    def select(self, availability: ToolAvailability) -> Self:
        """The part of the view that `availability` makes available, in its order."""
        chosen = availability.resolve(self._table)
        left_out = () if availability.kind == "only" else self.left_out
        return type(self)((self._table[name] for name in chosen), known=self.known_tools, left_out=left_out)

    def describe(self, selector: ToolSelector, text: str | None) -> Self:
        """The view with another description for one tool; the last description for a tool wins."""
        chosen = self[selector]
        described = replace(chosen, definition=chosen.definition.described(text))
        found = (described if binding is chosen else binding for binding in self._table.values())
        return type(self)(found, known=self.known_tools, left_out=self.left_out)

    async def with_texts(self, by: Describes) -> Self:
        """The view with new texts for its tools: from hooks, from rules, or from `Descriptions`.

        A tool whose hook fails is left out, as on a server; `UnknownNameError` if a text is for no tool.
        """
        return type(self)(await by.describe(self), known=self.known_tools, left_out=self.left_out)

    async def execute(
        self,
        selector: ToolSelector,
        arguments: dict[str, Any] | None = None,
        context: ToolContext = LOCAL_CONTEXT,
        *,
        rules: object = None,
    ) -> ToolResult:
        """Run one tool from JSON arguments, which are checked like those of a served call.

        Without rules the tool's own exceptions propagate. With `rules`, or if its toolset carries some, it
        runs as on a server: through their middleware and hooks, and a failure is an error result.

        Raises:
            UnknownToolError: it is not in the view.
            InvalidArgumentsError: the arguments do not fit; nothing ran.
            UnknownNameError: a rule is for a tool that does not exist.
        """
        require_context(context)
        binding = self[selector]
        if rules is None and binding.carried:
            rules = binding.carried[0].rules.none()
        if rules is not None:
            return await rules_of(rules).run(self, ToolCall(binding.name, arguments or {}), context)
        return await execute(binding, arguments or {}, context)

    def definitions(self) -> list[ToolDefinition]:
        """The definitions, in order."""
        return [binding.definition for binding in self._table.values()]

    def export(
        self,
        provider: Provider,
        *,
        requirement: ToolRequirement | None = None,
        strict: bool = False,
        deferred: bool | None = None,
    ) -> Export:
        """The tools and the tool choice for one request, with the table that decodes its answer.

        Args:
            provider: `openai` (chat completions), `openai_responses`, `anthropic` or `gemini`.
            requirement: True if the model must call a tool, and which; optional by default.
            strict: Have the provider enforce each schema that its strict mode can express; the tools
                with other schemas are sent unchanged.
            deferred: Deferred tools are offered through the provider's own search, if it has one (Anthropic,
                OpenAI Responses). `False` leaves them out; with `True`, they are left out where there is no
                such search. See docs/provider-search.md.

        Raises:
            DefinitionError: the requirement cannot be met by these tools, the provider is unknown, or
                deferred tools would be lost and `deferred` does not say that this is meant.
        """
        return _forms().export(
            self, provider, requirement=requirement, strict=strict, deferred=deferred, left_out=self.left_out
        )

    def to_openai(self) -> list[Any]:
        """The tools in the form of OpenAI's chat completions.

        As for all providers, `DefinitionError` if a name must be altered, or deferred tools cannot be found.
        Raises `DefinitionError` if a name must be altered, or if deferred tools cannot be found.
        """
        return _forms().plain_tools(self, "openai", self.left_out)

    def to_openai_responses(self) -> list[Any]:
        """The tools in the form of OpenAI's Responses, deferred tools behind its tool search."""
        return _forms().plain_tools(self, "openai_responses", self.left_out)

    def to_anthropic(self) -> list[Any]:
        """The tools in the form of Anthropic's Messages, deferred tools behind its tool search."""
        return _forms().plain_tools(self, "anthropic", self.left_out)

    def to_gemini(self) -> list[Any]:
        """The tools in the form of Gemini's requests."""
        return _forms().plain_tools(self, "gemini", self.left_out)


def _forms() -> Any:
    return needed("forms", "exports to model providers are")


def required_view(given: object, where: str) -> ToolView:
    if isinstance(given, ToolView):
        return given
    kind = type(given).__name__
    way = (
        "give toolset.view()" if hasattr(given, "view") and hasattr(given, "bindings") else "give a ToolView"
    )
    if hasattr(given, "provider"):
        way = mend("export", way)
    raise DefinitionError(f"{where} takes the view of the tools that were offered, not a {kind}: {way}")


def rules_of(rule: object) -> AnyRules:
    """`Rules.of`, which knows every form of a rule; its room is above this one and is loaded at first use."""
    return import_module("mcp_toolset.calls.rules").Rules.of(rule)


async def execute(binding: ToolBinding, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    """Run one binding: gate, preparation and argument check (`InvalidArgumentsError`), then the tool."""
    require_context(context)
    call = ToolCall(binding.name, arguments)
    if binding.gate is not None:
        await loaded(partial(binding.gate, call, context))
    if binding.prepare is not None:
        call = binding.prepare(call, context)
    if not binding.arguments.is_valid(call.arguments):
        raise InvalidArgumentsError(binding.arguments.misfit(call.name, call.arguments))
    return await binding.execute(call, context)


def conflict_message(first: ToolBinding, second: ToolBinding) -> str:
    places = f"{first.place or 'one toolset'} and {second.place or 'another'}"
    mend = "rename one or give a toolset a prefix with .prefixed()"
    return f"two tools are named {first.name!r}: {places}; {mend}"
