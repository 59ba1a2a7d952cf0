"""`ServedTools`: what a server serves at the moment, compiled from its registry."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.lowlevel

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.dispatch import ToolDispatch
from mcp_toolset.calls.rules import Rules
from mcp_toolset.catalog.registry.registry import ToolRegistry
from mcp_toolset.catalog.registry.state import ToolKey
from mcp_toolset.concurrency.tasks import ThreadEvent, in_worker_if_large
from mcp_toolset.context.connection import identity_of
from mcp_toolset.context.offer_kinds import MountedSource
from mcp_toolset.errors import GrantError, ToolsetError
from mcp_toolset.protocol.eras import STRICTEST, CacheHint, joint_meta, strictest
from mcp_toolset.server.mounts import Sight, Visibility, hidden_rules, unused_patterns
from mcp_toolset.server.offering import Offering, PassingToolset
from mcp_toolset.tools.binding import DEFERRED_CATALOG, ToolNames
from mcp_toolset.tools.call import LOCAL_CONTEXT, Identity, ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.signature import check_supplied
from mcp_toolset.tools.source import SourceStatus, ToolChange, ToolSource, fits
from mcp_toolset.tools.validation import SchemaCheck
from mcp_toolset.tools.view import Made, NameReport, ToolBinding, passed_by

if TYPE_CHECKING:
    from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
    from mcp_toolset.security.policy import Policy


def held_tools(
    statuses: Mapping[str, SourceStatus], *, listing: Container[str]
) -> Iterator[tuple[ToolBinding, str]]:
    """The quarantined tools of the deferred servers, which are not in `listing`, each with the reason."""
    # Their names are `server/tool`, which no public name can be. They have the accepted definition, nothing
    # that the server lists now.
    for source, status in statuses.items():
        for change in status.changes if source not in listing else ():
            if change.held and change.pinned is not None:
                name = f"{source}/{change.name}"
                check = SchemaCheck({}, tool=name, part="inputSchema")
                yield ToolBinding(name, change.pinned, _refused, check, source=source), change.reason


async def _refused(call: ToolCall, context: ToolContext) -> ToolResult:
    raise GrantError(f"{call.name} has changed and is quarantined until a person accepts it")


_log = logging.getLogger("mcp_toolset.pins")


def overridden(bindings: Iterable[ToolBinding], sources: Iterable[ToolSource]) -> Iterator[tuple[str, str]]:
    """Public name and place, such as `description`, of each override over something that has changed."""
    changes = {
        (source.source_name, change.name): (change, served)
        for source in sources
        if isinstance(source, MountedSource)
        for change in source.status.changes
        if (served := source.listed(change.name)) is not None
    }
    for binding in bindings if changes else ():
        found = changes.get((binding.source, binding.definition.name))
        if found is not None:
            change, served = found
            yield from ((binding.name, place) for place in _touched(change, served, binding.definition))


def _touched(change: ToolChange, served: ToolDefinition, shown: ToolDefinition) -> list[str]:
    # It takes long to load and is seldom asked.
    from mcp_toolset.catalog.pins.canonical import canonical
    from mcp_toolset.catalog.pins.differences import compared

    moved = {_place(path) for path in change.differences}
    ours = {_place(difference.path) for difference in compared(canonical(served), canonical(shown))}
    return sorted(moved & ours)


def _place(path: str) -> str:
    """A parameter is one place, and so is each other part of a definition."""
    steps = path.split(".")
    return ".".join(steps[:3] if steps[1:2] == ["properties"] else steps[:1])


Hidden = tuple[tuple[str, frozenset[str]], ...]
"""Hidden tools by source, with the sources' own names."""

Texts = dict[str, ToolDefinition | None]
"""One caller's own definitions in place of shared ones, by public name; `None` for none as yet."""

_NO_TEXTS: Final[Texts] = {}
_SHARED: Final = object()

_LISTS_ALL: Final = "mcp_toolset.lists_all"  # the key of what a client was told once

MAX_LISTS: Final = 256  # lists that are kept at once

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class VisibleTool:
    """A tool that is listed, and its wire form."""

    binding: ToolBinding
    wire: dict[str, Any]


class ListVariants:
    """The lists of one table: one object for all callers who see the same, made on first use."""

    def __init__(
        self,
        shown: Sequence[VisibleTool] = (),
        varying: Mapping[str, MountedSource] | None = None,
        policy: Policy | None = None,
        searching: Callable[[Identity | None], ToolBinding] | None = None,
    ) -> None:
        self.policy = policy  # hides tools from callers
        self._shown = shown
        self._varying = varying or {}
        self._searching = searching
        self._found: dict[Hashable, dict[str, Any]] = {}
        self._lists: dict[Hashable, list[dict[str, Any]]] = {}
        # What is listed to single clients alone is told to these alone.
        self._common = self._hidden_from(LOCAL_CONTEXT)
        self.personal = [each for each in shown if each.binding.personal is not None]

    def renewed(self) -> ListVariants:
        """The same tools, after the status of a source has changed; previews stay as they were."""
        renewed = ListVariants(self._shown, self._varying, self.policy, self._searching)
        renewed._found = self._found
        return renewed

    def of(self, context: ToolContext) -> list[dict[str, Any]]:
        hidden = self._hidden_from(context)
        return self._list(hidden, context.identity, self._texts(context) if self.personal else _NO_TEXTS)

    def _hidden_from(self, context: ToolContext) -> Hidden:
        return tuple(
            (name, names) for name, source in self._varying.items() if (names := source.hidden_from(context))
        )

    def _texts(self, context: ToolContext) -> Texts:
        found: Texts = {}
        for each in self.personal:
            personal = each.binding.personal
            own = None if personal is None else personal.own(context)
            if personal is not None and own is not None and own.digest != personal.shared.digest:
                found[each.binding.name] = own if personal.exists(context) else None
        return found

    def unknown_to(self, context: ToolContext) -> list[MountedSource]:
        """The sources of which it has still to be found out what they list to a caller."""
        return [source for source in self._varying.values() if source.unknown_to(context)]

    def may_differ(self, before: ListVariants) -> bool:
        if self.policy is None and before.policy is None:
            return self.differs(before, None)
        return self.policy is not before.policy or self._shown is not before._shown

    def differs(self, before: ListVariants, identity: Identity | None) -> bool:
        """True if a caller without sessions of its own with the sources sees another list than before."""
        return self._list(self._common, identity) != before._list(before._common, identity)

    def _list(
        self, hidden: Hidden, identity: Identity | None, texts: Texts = _NO_TEXTS
    ) -> list[dict[str, Any]]:
        said = tuple((name, own and own.digest) for name, own in texts.items())
        key = (hidden, None if self.policy is None else self.policy.group(identity), said)
        known = self._lists.get(key)
        if known is None:
            if len(self._lists) >= MAX_LISTS:
                self._lists.clear()
            aside = dict(hidden)
            known = self._lists[key] = [
                self._wire(each, identity, texts)
                for each in self._shown
                if texts.get(each.binding.name, _SHARED) is not None
                and each.binding.definition.name not in aside.get(each.binding.source, _NONE)
                and (self.policy is None or self.policy.decide(each.binding, identity).kind != "deny")
            ]
        return known

    def _wire(self, each: VisibleTool, identity: Identity | None, texts: Texts) -> dict[str, Any]:
        own = texts.get(each.binding.name)
        if own is not None and each.binding.personal is not None:
            return each.binding.personal.wire(each.wire, own)
        if self.policy is None or self._searching is None or each.binding.place != DEFERRED_CATALOG:
            return each.wire
        group = self.policy.group(identity)
        if group not in self._found:
            self._found[group] = self._searching(identity).to_wire()
        found = self._found[group]
        return found if found["name"] == each.wire["name"] else each.wire


_T = TypeVar("_T")


class ServedTools:
    """The members of a registry: described, bound, gated, as one table that calls and lists are read off."""

    def __init__(
        self,
        registry: ToolRegistry,
        catalog: Callable[[], DeferredCatalog],
        bound: Callable[[ToolBinding], ToolBinding],
        apps: Offering,
        visibility: Visibility,
        *,
        rules: Rules,
        own_hint: CacheHint = STRICTEST,
        promises: bool = True,
        beside: Sequence[ToolBinding] = (),
        lists_all: Callable[[ToolContext], bool | None] | None = None,
    ) -> None:
        self.registry = registry
        self._make_catalog = catalog
        self._catalog: DeferredCatalog | None = None
        self.defers = registry.defers  # whether some of it is behind search
        self.has_own = False  # whether some tool is the application's own, and not a mounted server's
        self.table: Mapping[str, ToolBinding] = {}  # everything that can be called, by public name
        self.wire: list[dict[str, Any]] = []  # of a client without grants
        self.moved = ThreadEvent()  # set whenever it was compiled anew
        self._bound = bound
        self._apps = apps
        self.visibility = visibility  # the policy, and what it hides from each caller
        # What was made of each tool; a source that has not changed is not compiled again.
        self._made_addressed = Made(apps.with_app)
        self._made_bound = Made(bound)
        self._made_shown = Made(self._shown_as)
        self._made_whole = Made(self._shown_as)
        self._made_gated = Made(registry.gated)
        self._rules = rules
        self._holding: dict[str, set[object]] = {}
        self._named = ToolNames(())
        self.report = NameReport(rules.strict)  # the names, in rules and in verbs, that stand for no tool
        self._own_hint = own_hint
        self._promises = promises
        self._beside_search = beside
        self._asked = lists_all
        self.varies_by_client = lists_all is not None  # some clients may be listed what others search
        self._hints: Sequence[Callable[[], CacheHint | None]] = ()
        self.dispatch = ToolDispatch((), rules=rules)
        self._check_late: Callable[[], None] | None = None
        self.lists = ListVariants()  # what is listed to each kind of caller; replaced as `wire` is
        self._whole = ListVariants()  # the same for clients that are listed everything
        self._list_meta: Mapping[str, Any] = {}
        self._shown: list[VisibleTool] = []
        self._by_name: tuple[list[VisibleTool], dict[str, VisibleTool]] = (self._shown, {})
        self._varying: Mapping[str, MountedSource] = {}
        self.is_personal = False
        """True if some mount lists to each caller what is that caller's own."""
        self._differing = False
        self._overridden = frozenset[tuple[str, str]]()  # what the log has said to have moved
        self._compiling = anyio.Lock()
        self._settled: object = None

    @property
    def catalog(self) -> DeferredCatalog:
        if self._catalog is None:
            self._catalog = self._make_catalog()
        return self._catalog

    async def compile(self) -> None:
        """Serve the members as they are now; one after the other, so that the last stays."""
        # A big catalog is compiled beside what is served, so that calls go on meanwhile: in a worker thread,
        # and what search holds in slices.
        async with self._compiling:
            settled = self._settlement()
            await self._beside(self.registry.refresh)
            members = self.registry.bindings()
            self.defers = self.registry.defers
            policy = self.visibility.wanted()
            names = await self._beside(partial(self._checked, members, policy))
            described = await self._rules.described(members, names)
            bound = await self._beside(partial(self._bind, described))
            # From here on nothing is refused: the new policy holds, also for tools that are served already.
            self.visibility.sight = Sight(policy, [*bound, *self._held(bound)], self.visibility.sight)
            await self._fill_catalog(bound)
            compiled = await self._beside(partial(self._compiled, bound))
            sources = self.registry.sources().values()
            self._hints = [
                source.list_hint if isinstance(source, MountedSource) else lambda: STRICTEST
                for source in sources
            ]
            self._list_meta = self._joint_meta(lambda name: False)
            self.has_own = any(not binding.source for binding in bound)
            whole = self._made_whole.of(bound) if self.varies_by_client and self.defers else []
            self.table, self._named, self.dispatch, self._shown = compiled
            self._varying = {
                name: source
                for name, source in self.registry.sources().items()
                if isinstance(source, MountedSource)
            }
            self.is_personal = any(one.is_personal for one in self._varying.values())
            self.lists = self._listing(policy)
            self._whole = ListVariants(whole, self._varying, policy)
            self.wire = self.lists.of(LOCAL_CONTEXT)
            self._settled = settled
            self.moved.set()

    async def take_statuses(self) -> bool:
        """Take in that only the status of sources has changed; `False` if that may need a compilation."""
        async with self._compiling:
            if self._settlement() != self._settled:
                return False
            self.lists, self._whole = self.lists.renewed(), self._whole.renewed()
            self.wire = self._same(self.lists.of(LOCAL_CONTEXT))
            self.moved.set()
            return True

    def _listing(self, policy: Policy | None) -> ListVariants:
        searching = self.catalog.previewing if policy is not None and self.defers else None
        self._differing = policy is not None or bool(self._varying)
        return ListVariants(self._shown, self._varying, policy, searching)

    def _same(self, wire: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return self.wire if self.wire == wire else wire

    def _settlement(self) -> object:
        statuses = self.statuses()
        starting = frozenset(name for name, status in statuses.items() if status.state == "starting")
        return starting, {name: (status.changes, status.set_aside) for name, status in statuses.items()}

    def check_again(self) -> None:
        """Report the names that fit nothing, by what is known beside tools now."""
        if self._check_late is not None:
            self._check_late()

    def _checked(self, members: Sequence[ToolBinding], policy: Policy | None) -> ToolNames:
        """Hold the names that rules and verbs were given against the members."""
        self._check_late = partial(self._checked_late, members, policy)
        fixed = [*self.catalog.fixed(), *self._beside_search] if self.defers else ()
        names = ToolNames([*members, *fixed], self._holding)
        known = self.registry.known_tools()
        every = [*members, *self._held(())]
        things = self.visibility.extensions
        beside = things.judged, things.unjudged
        unused = unused_patterns(policy, known, every, *beside) if policy is not None else []
        guarding = (
            one for guard in self._rules.guards if (one := getattr(guard, "policy", None)) is not None
        )
        for each in (*(() if policy is None else (policy,)), *guarding):
            unused += hidden_rules(each, known, every)
        unused += [*self.visibility.unused_limits(known, every), *self._rules.unused(known, every)]
        uses = self._rules.uses()
        unused += passed_by(uses, fixed)
        self.report.look(uses, names, known, [*self.registry.unbound(), *unused])
        self._rules.require_fitting(members, names)
        for binding in members:
            check_supplied(binding)
        return names

    def _checked_late(self, members: Sequence[ToolBinding], policy: Policy | None) -> None:
        """Say what is wrong with a hook that was registered while calls are served."""
        try:
            self._checked(members, policy)
        except ToolsetError as fault:
            _log.warning("%s", in_log(fault))

    async def _beside(self, work: Callable[[], _T]) -> _T:
        listed = sum(status.tools for status in self.statuses().values())
        return await in_worker_if_large(work, max(listed, len(self.table)))

    def _bind(self, described: Sequence[ToolBinding]) -> list[ToolBinding]:
        now = frozenset(overridden(described, self.registry.sources().values()))
        for name, place in sorted(now - self._overridden):
            _log.warning(
                "%s: its %s is overridden here, and has changed at the server since; check that your text is "
                "still right",
                name,
                place,
            )
        self._overridden = now
        addressed = self._made_addressed.of((one for one in described if one.on), self._apps.places())
        return self._made_bound.of(addressed)

    async def _fill_catalog(self, bound: Sequence[ToolBinding]) -> None:
        if not self.defers:
            if self._catalog is not None:
                self._catalog.update(())
            return
        held = self._quarantined(bound)
        deferred = (binding for binding in bound if binding.deferred)
        listed = (binding for binding in bound if not binding.deferred)
        for _ in self.catalog.updating(deferred, held, listed):
            await anyio.lowlevel.checkpoint()

    def _quarantined(self, bound: Iterable[ToolBinding]) -> Iterator[tuple[ToolBinding, str]]:
        listing = {binding.source for binding in bound if not binding.deferred}
        for binding, reason in held_tools(self.statuses(), listing=listing):
            # A policy's patterns are for the name that it has when it is not held back.
            asked = self.registry.name_of(ToolKey(binding.source, binding.definition.name))
            yield replace(binding, asked=asked), reason

    def _held(self, bound: Iterable[ToolBinding]) -> list[ToolBinding]:
        return [binding for binding, _ in self._quarantined(bound)]

    def judged(self) -> list[ToolBinding]:
        """The tools that patterns are held against: all members, and those that are held back."""
        return [*self.registry.bindings(), *self._held(())]

    def _compiled(
        self, bound: Sequence[ToolBinding]
    ) -> tuple[Mapping[str, ToolBinding], ToolNames, ToolDispatch, list[VisibleTool]]:
        """The whole table; the gate goes around what runs a tool, so that it is asked again right before."""
        shown = self._made_shown.of(one for one in bound if not one.deferred)
        table = [one.binding for one in shown]
        if self.defers:
            fixed = [*map(self._bound, self.catalog.fixed()), *self._beside_search]
            shown += [VisibleTool(one, self._wire(one)) for one in fixed]
            table += [*fixed, *self._made_gated.of(self.catalog.gated())]
        names = ToolNames(table, self._holding)
        dispatch = ToolDispatch(
            table, rules=self.visibility.rules(), names=names, before=self.dispatch, renewed=self._check_late
        )
        return {binding.name: binding for binding in table}, names, dispatch, shown

    def _shown_as(self, binding: ToolBinding) -> VisibleTool:
        gated = self.registry.gated(binding)
        return VisibleTool(gated, self._wire(gated))

    def _wire(self, binding: ToolBinding) -> dict[str, Any]:
        wire = binding.to_wire()
        return wire if self._promises else {key: wire[key] for key in wire if key != "outputSchema"}

    def wire_like(self, binding: ToolBinding) -> dict[str, Any] | None:
        """The wire form of a listed tool with this name and definition, for a view; `None` without one."""
        if self._by_name[0] is not self._shown:
            self._by_name = (self._shown, {one.binding.name: one for one in self._shown})
        known = self._by_name[1].get(binding.name)
        return None if known is None or known.binding.definition is not binding.definition else known.wire

    def passing(self) -> MountedSource | None:
        """The server behind a bridge that serves it alone, with `unlisted="pass"`: it gets unlisted calls.

        `None` while a second source, a verb, a rule of names or a policy stands before it.
        """
        # A rule that knows tools by their names and definitions cannot judge a tool that is not listed.
        registry = self.registry
        if len(registry.sources()) != 1 or registry.chooses or self.visibility.policy is not None:
            return None
        found = (each.passing() for each in registry.toolsets() if fits(each, PassingToolset))
        return next((source for source in found if source is not None), None)

    async def compiled_by_now(self) -> None:
        async with self._compiling:
            return

    def call(self, call: ToolCall, context: ToolContext) -> Awaitable[ToolResult]:
        """Run one call through the table as it stands now (a change does not touch it)."""
        if call.name not in self.table and (source := self.passing()) is not None:
            if (binding := source.passed(call.name)) is not None:
                bound = self._bound(binding)
                # Rules know the tool by its name, as they know listed ones.
                names = ToolNames([*self.table.values(), bound], self._holding)
                dispatch = ToolDispatch([bound], rules=self.visibility.rules(), names=names)
                return dispatch.call(call, context)
        return self.dispatch.call(call, context)

    async def call_ungranted(self, call: ToolCall, context: ToolContext) -> ToolResult:
        binding = self.catalog.ungated(call.name) if self.defers else None
        if binding is None:
            return await self.call(call, context)
        gated = self.registry.gated(binding)
        return await ToolDispatch([gated], rules=self.visibility.rules(), names=self._named).call(
            call, context
        )

    def lists_all(self, context: ToolContext) -> bool:
        """True if a client is listed the tools behind search, and calls them without a grant."""
        return self._asked is not None and bool(self._answer_for(context))

    def searches(self, context: ToolContext) -> bool:
        """True if it is settled that a client is not listed the tools behind search."""
        return self._asked is None or self._answer_for(context) is False

    def _answer_for(self, context: ToolContext) -> bool | None:
        if self._asked is None or not self.defers:
            return False
        return context.settled(_LISTS_ALL, partial(self._asked, context))

    def listed_to(self, context: ToolContext) -> list[dict[str, Any]]:
        if self._asked is not None and self.lists_all(context):
            return self._whole.of(context)
        return self.lists.of(context) if self._differing else self.wire

    def lists_some(self, source: str) -> bool:
        """True if a mount's tools are listed, and not all behind search; one without tools is."""
        own = [binding for binding in self.table.values() if binding.source == source]
        return self.varies_by_client or not own or any(not binding.deferred for binding in own)

    def list_meta(self, identity: Identity | None) -> Mapping[str, Any]:
        if self.visibility.policy is None or not self._list_meta:
            return self._list_meta
        return self._joint_meta(lambda name: self.visibility.hides_server(name, identity))

    def _joint_meta(self, hides: Callable[[str], bool]) -> Mapping[str, Any]:
        sources = self.registry.sources().items()
        return joint_meta(
            source.list_meta()
            for name, source in sources
            if isinstance(source, MountedSource) and not hides(name)
        )

    def granted(self, context: ToolContext) -> list[dict[str, Any]]:
        if context.session is None or not self.defers or self.lists_all(context):
            return []
        return [self._wire(binding) for binding in self.catalog.granted(context)]

    def list_hint(self) -> CacheHint:
        """The cache hint of the list of tools: the strictest of its parts (2026-07-28, caching)."""
        # Where there are grants, or rules for some callers, it is one client's: it depends on who asks.
        parts = [part for ask in self._hints if (part := ask()) is not None]
        if self.has_own:
            parts.append(self._own_hint)
        whole = strictest(parts).in_seconds()
        differs = self.defers or self.visibility.varies
        return CacheHint(whole.ttl_ms, "private") if differs else whole

    def input_schema(self, name: str, scope: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The input schema of a listed tool, for the checks of headers of a request of this ASGI scope."""
        # They come before the gate, so a deferred or hidden tool has none here: a difference between its
        # answer and that for an unknown tool would tell that it exists.
        binding = self.table.get(name)
        if binding is None or binding.deferred:
            return None
        if self.visibility.policy is not None and self.visibility.hides(binding, identity_of(scope)):
            return None
        return binding.definition.input_schema

    def deferred_digests(self) -> dict[str, str]:
        return self.catalog.digests() if self.defers else {}

    def preview(self, identity: Identity | None) -> str | None:
        return self.catalog.preview(identity) if self.defers else None

    def statuses(self) -> dict[str, SourceStatus]:
        return {name: source.status for name, source in self.registry.sources().items()}
