"""A deferred catalog: four fixed tools in front of any number of others.

`search_tools` finds, `resolve_tools` grants, `call_tool` and `call_read_only_tool` run what was
granted. The list that a client sees never moves (server/tools: a list must not vary as a side
effect of other requests), and every path to a deferred tool passes the same gate: when a call
comes in, and again right before the tool runs, since hooks and middleware may have taken their time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal, Protocol

from mcp_toolset.catalog.deferred.grant_gate import GrantGate
from mcp_toolset.catalog.deferred.hit_ids import HitIds
from mcp_toolset.catalog.deferred.preview import ServerNote, preview_of
from mcp_toolset.catalog.deferred.tools import (
    MAX_RESOLVED,
    Found,
    Hit,
    HitState,
    Resolution,
    SearchRequest,
    Unavailable,
    call_binding,
    previewing,
    read_binding,
    resolve_binding,
    search_binding,
)
from mcp_toolset.catalog.grants.access import Access, AccessDenied, AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger, GrantRecord, ToolGrant, replay_key
from mcp_toolset.catalog.search.index import CatalogEntry, Scorer, SearchHit, SearchIndex
from mcp_toolset.errors import GrantStoreError
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolContext
from mcp_toolset.tools.core.source import SourceStatus
from mcp_toolset.tools.core.store_miss import StoreMiss, loaded
from mcp_toolset.tools.view.made import Made
from mcp_toolset.tools.view.view import ToolBinding

__all__ = ["MAX_RESOLVED", "Access", "DeferredCatalog", "AccessDenied"]

_NO_SUCH: Final = "no such tool; use the id of a search hit"
_ADDED: Final = 16
"""Tools that are put into the index in one go: some five milliseconds."""

_REMOVED: Final = 256
"""Tools that are taken out of it in one go: as long, or a little longer where all are worded alike."""

_LOOKED_AT: Final = 10
"""Hits among which those are looked for that an unknown id is like."""


class Reporting(Protocol):
    """What tells how it is doing, as a `ToolSource` does."""

    @property
    def status(self) -> SourceStatus:
        """How it is doing."""
        ...


class DeferredCatalog:
    """Deferred bindings behind search and grants; give `bindings()` to a dispatch table."""

    def __init__(
        self,
        ledger: GrantLedger,
        sources: Callable[[], Mapping[str, Reporting]] = dict[str, Reporting],
        *,
        access: Access | None = None,
        scorer: Scorer | Literal["built-in"] | None = "built-in",
        arrive: Callable[[], Awaitable[None]] | None = None,
        deferring: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """Start empty.

        Args:
            ledger: Issues and judges the grants.
            sources: The sources by name, those without a tool so far too, so that absence is data.
            access: Who may have what; everybody everything unless given.
            scorer: As for `SearchIndex`; of this catalog alone.
            deferring: The names of the sources whose tools are behind search, for the preview.
            arrive: Waits a bounded time for sources of which nothing is known yet; asked by each search.

        Raises:
            DefinitionError: `access` is asynchronous; the gate waits for nothing.
        """
        self._ledger = ledger
        self._sources = sources
        self._policy = AccessPolicy(access)
        self._arrive = arrive
        self._deferring = deferring
        self._tools: dict[str, ToolBinding] = {}
        self._held: dict[str, tuple[ToolBinding, str]] = {}
        self._indexed: dict[str, ToolBinding] = {}
        self._made_gated = Made(self._gated)
        self._index = SearchIndex(scorer=scorer)
        self._ids = HitIds()
        self._gate = GrantGate(ledger, self._policy, self._ids)
        self._searching = search_binding(self._search)
        self._fixed = (
            resolve_binding(self._resolve),
            call_binding(self._gate.redirect),
            read_binding(self._gate.redirect_read_only),
        )

    def update(self, bindings: Iterable[ToolBinding], held: Iterable[tuple[ToolBinding, str]] = ()) -> None:
        """Have these deferred tools from now on; only what changed is indexed again.

        Args:
            bindings: What can be resolved and called.
            held: What is found with the state `changed` and the reason, and cannot be had.
        """
        for _ in self.updating(bindings, held):
            pass

    def updating(
        self, bindings: Iterable[ToolBinding], held: Iterable[tuple[ToolBinding, str]] = ()
    ) -> Iterator[None]:
        """Do what `update` does in slices of some milliseconds; it can be searched between any two.

        What is gone is gone at once; what is new or has changed is found from its own slice on.
        """
        tools = {binding.name: binding for binding in bindings}
        kept = {binding.name: (binding, reason) for binding, reason in held}
        gone = sorted(self._indexed.keys() - tools.keys() - kept.keys())
        for name in gone:
            del self._indexed[name]
        self._tools, self._held = tools, kept
        self._gate.tools = tools
        found, before = self._findable(), self._indexed
        self._ids.remove(gone)
        self._ids.add(found[name] for name, binding in before.items() if found[name] is not binding)
        for names in _slices(gone, _REMOVED):
            self._index.remove(names)
            yield
        fresh = [name for name, binding in found.items() if before.get(name) is not binding]
        for some in _slices(fresh, _REMOVED):
            # Together, as a word that many tools have is looked through once for all that go.
            self._index.remove(
                name for name in some if name in before and _differs(before[name], found[name])
            )
            for names in _slices(some, _ADDED):
                self._index.add(
                    CatalogEntry(found[name].definition, name, found[name].source or None) for name in names
                )
                self._ids.add(found[name] for name in names)
                self._indexed.update((name, found[name]) for name in names)
                yield

    @property
    def index(self) -> SearchIndex:
        """The search index over the deferred tools."""
        return self._index

    def digests(self) -> dict[str, str]:
        """The digest of each deferred tool's definition, by public name."""
        return {name: binding.definition.digest for name, binding in self._tools.items()}

    def bindings(self) -> list[ToolBinding]:
        """The four fixed tools, then every deferred tool behind the gate."""
        return [*self.surface(), *self.gated()]

    def surface(self) -> list[ToolBinding]:
        """The four fixed tools."""
        return [previewing(self._searching, self.preview()), *self._fixed]

    def gated(self) -> list[ToolBinding]:
        """Every deferred tool, behind the gate."""
        return self._made_gated.of(self._tools.values())

    def _gated(self, binding: ToolBinding) -> ToolBinding:
        return replace(binding, gate=self._gate.gate, execute=partial(self._gate.run, binding))

    def ungated(self, name: str) -> ToolBinding | None:
        """A deferred tool as it is without a gate, for the host, who needs no grant."""
        return self._tools.get(name)

    def granted(self, context: ToolContext) -> list[ToolBinding]:
        """The tools that the caller's session may also call by name, as they were granted."""
        found = ((grant, self._tools.get(grant.name)) for grant in self._granted(context))
        return [
            binding
            for grant, binding in found
            if binding is not None
            and not self._moved(grant, binding)
            and self._policy.withheld(binding, context) is None
        ]

    def _moved(self, grant: ToolGrant, binding: ToolBinding) -> bool:
        """Whether a tool is not as it was granted; how it has changed, nobody asks here."""
        try:
            return bool(self._ledger.moved(grant, binding))
        except StoreMiss:
            return True

    def preview(self) -> str:
        """What is in the catalog, for a model that has not searched yet; empty when nothing is.

        Every caller reads the same, so it has only what nobody in particular may find.
        """
        hidden = self._policy.hidden(self._tools, LOCAL_CONTEXT)
        withheld = self.withheld_servers()
        notes = {name: self._note_of(name) for name in self._deferring() if name not in withheld}
        ordered = {name: notes[name] for name in self._sources() if name in notes}
        tools = ((tool.source, name) for name, tool in self._tools.items() if name not in hidden)
        return preview_of(tools, ordered)

    def _note_of(self, server: str) -> ServerNote:
        """What the preview says of a server; its state only until it has been ready once."""
        source = self._sources().get(server)
        if source is None:
            return ServerNote()
        status = source.status
        away = status.state != "ready" and (status.remembered or not status.tools)
        return ServerNote(status.state if away else "", status.about)

    def withheld_servers(self) -> frozenset[str]:
        """The deferred servers that nobody in particular may know of: none of whose tools may be found.

        Where there is an access policy, a server of which no tool is known is withheld too.
        """
        if not self._policy:
            return frozenset()
        hidden = self._hidden(LOCAL_CONTEXT)
        shown = {tool.source for name, tool in self._findable().items() if name not in hidden}
        return frozenset(self._deferring()) - shown

    def search(self, query: str, *, server: str | None = None, limit: int = 10) -> list[SearchHit]:
        """What a search finds, for the host: nothing is withheld from it."""
        found = self._index.search(query, server=server, limit=limit)
        return [
            replace(hit, id=self._ids.id_of(hit.name), state=self._state(self._found_tool(hit.name))[0])
            for hit in found
        ]

    def _findable(self) -> dict[str, ToolBinding]:
        """Every tool that a search can find, those held back too."""
        return self._tools | {name: binding for name, (binding, _) in self._held.items()}

    def _hidden(self, context: ToolContext) -> frozenset[str]:
        """The names of the tools that the caller is not to know of."""
        return self._policy.hidden(self._findable(), context)

    def _found_tool(self, name: str) -> ToolBinding:
        return self._held[name][0] if name in self._held else self._tools[name]

    async def _search(self, request: SearchRequest, context: ToolContext) -> Found:
        if self._arrive is not None:
            await self._arrive()
        await self._index.read(request.query)
        # What is withheld and not shown must not use up the places of what is.
        hidden = self._hidden(context)
        found = self._index.search(
            request.query,
            server=request.server,
            limit=request.limit,
            exclude=[*hidden, *(name for id in request.exclude for name in self._ids.named(id))],
            wait=False,
        )
        await self._ledger.know_held(context)
        held = {grant.name: grant for grant in self._granted(context)} if found else {}
        hits = [await loaded(partial(self._hit, hit, held.get(hit.name), context)) for hit in found]
        resolved = await self._resolve([hit.id for hit in hits[: request.resolve]], context)
        unavailable = self._unavailable(request.server, hidden)
        return Found(hits=hits, resolved=resolved, unavailable=unavailable, note=_note(hits, unavailable))

    def _hit(self, hit: SearchHit, grant: ToolGrant | None, context: ToolContext) -> Hit:
        state, reason, retry_in = self._standing(self._found_tool(hit.name), grant, context)
        return Hit(
            id=self._ids.id_of(hit.name),
            signature=hit.signature,
            description=hit.description,
            server=hit.server,
            state=state,
            reason=reason,
            retry_in=retry_in,
            score=round(hit.score, 3),
        )

    def _standing(
        self, binding: ToolBinding, grant: ToolGrant | None, context: ToolContext
    ) -> tuple[HitState, str | None, float | None]:
        """Whether a tool can be had now, why not, and after how many seconds to ask again."""
        withheld = self._policy.withheld(binding, context)
        if withheld is not None:
            return withheld.state, withheld.reason, withheld.retry_in
        state = self._state(binding)
        moved = "" if grant is None or state[1] else self._ledger.moved(grant, binding)
        return ("changed", f"{moved}; resolve it again", None) if moved else state

    def _state(self, binding: ToolBinding) -> tuple[HitState, str | None, float | None]:
        """The same, whoever asks."""
        if binding.name in self._held:
            return "changed", self._held[binding.name][1], None
        source = self._sources().get(binding.source)
        # A call of a tool that the last run knew waits for a server that is starting.
        if source is not None and (status := source.status).state not in ("ready", "starting"):
            return "offline", _offline(binding.source, status), status.retry_in
        return "available", None, None

    def _unavailable(self, server: str | None, hidden: frozenset[str]) -> list[Unavailable]:
        """The servers that a search could not see into; never the same as finding nothing.

        One whose every known tool is hidden from the caller is hidden with them.
        """
        asked = None if server is None else server.casefold()
        secret = {self._found_tool(name).source for name in hidden}
        if secret:
            secret -= {tool.source for name, tool in self._findable().items() if name not in hidden}
        return [
            Unavailable(server=name, state=status.state, reason=status.reason, retry_in=status.retry_in)
            for name, source in self._sources().items()
            if (status := source.status).state != "ready"
            and asked in (None, name.casefold())
            and name not in secret
        ]

    async def _resolve(self, ids: Sequence[str], context: ToolContext) -> list[Resolution]:
        """What becomes of each id, in order; one that comes twice is granted once."""
        if not ids:
            return []
        if self._arrive is not None and not all(self._named(id, context) for id in ids):
            # The tool may be of a server that has not listed its tools yet.
            await self._arrive()
        replay = replay_key(context)
        wanted = {id: self._available(id, context) for id in ids}
        records = await self._records(wanted, context, replay)
        return [await loaded(partial(self._resolution, id, records[id], context)) for id in ids]

    async def _records(
        self, wanted: Mapping[str, ToolBinding | str], context: ToolContext, replay: str
    ) -> dict[str, GrantRecord]:
        known = {id: await self._recorded(id, found, context, replay) for id, found in wanted.items()}
        asked = [(id, found) for id, found in wanted.items() if known[id] is None]
        fresh = iter(await self._ledger.resolve(asked, context, replay) if asked else ())
        return {id: record or next(fresh) for id, record in known.items()}

    async def _recorded(
        self, id: str, found: ToolBinding | str, context: ToolContext, replay: str
    ) -> GrantRecord | None:
        """What came of an id under the caller's replay key, or of the same tool by another id."""
        if not replay:
            return None
        others = () if isinstance(found, str) else sorted(self._ids.spellings(found.name))
        for one in (id, *others):
            if (record := await self._ledger.recall(one, context, replay)) is not None:
                return record
        return None

    def _available(self, id: str, context: ToolContext) -> ToolBinding | str:
        """The tool that an id or a public name stands for, or why it cannot be had."""
        names = self._named(id, context)
        if len(names) > 1:
            return f"several tools have this id; use {' or '.join(map(self._ids.id_of, names))}"
        if not names:
            return self._no_such(id, context)
        binding = self._found_tool(names[0])
        _, reason, _ = self._standing(binding, None, context)
        return reason or binding

    def _named(self, id: str, context: ToolContext) -> list[str]:
        """The public names of the tools that an id may stand for, of those that the caller may know of."""
        return self._ids.named(id, lambda name: not self._policy.hides(self._found_tool(name), context))

    def _no_such(self, id: str, context: ToolContext) -> str:
        """Alike for what is not there and what is hidden; a server that is down may have it."""
        hidden = self._hidden(context)
        near = self._near(id, hidden)
        told = f"no such tool; did you mean {' or '.join(near)}?" if near else _NO_SUCH
        names = ", ".join(one.server for one in self._unavailable(None, hidden))
        return f"{told} ({names} cannot be reached now and may have it)" if names else told

    def _near(self, id: str, hidden: frozenset[str]) -> list[str]:
        """The ids of the tools that somebody may have meant who asks for one that is not there."""
        hits = self._index.search(id, limit=_LOOKED_AT, exclude=hidden, wait=False)
        return self._ids.near(id, [hit.name for hit in hits])

    def _resolution(self, id: str, record: GrantRecord, context: ToolContext) -> Resolution:
        grant = record.grant
        if grant is None:
            found = self._named(id, context)
            binding = self._tools.get(found[0]) if len(found) == 1 else None
            fault = record.reason
        else:
            binding = self._tools.get(grant.name)
            fault = self._ledger.lapsed(grant) or self._ledger.moved(grant, binding)
        if grant is None or fault or binding is None or self._policy.withheld(binding, context) is not None:
            retry_in = None if binding is None else self._standing(binding, None, context)[2]
            reason = fault or _NO_SUCH
            return Resolution(id=id, status="not_available", reason=reason, retry_in=retry_in)
        return Resolution(
            id=id,
            status="granted",
            grant=grant.handle,
            expires_in=self._ledger.remaining(grant),
            definition=binding.to_wire(),
        )

    def _granted(self, context: ToolContext) -> list[ToolGrant]:
        """What the caller holds, for lists and hints only: nothing while the store cannot be read."""
        try:
            return self._ledger.held(context)
        except GrantStoreError:
            return []


def _slices(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


def _differs(one: ToolBinding, other: ToolBinding) -> bool:
    return one.definition is not other.definition and one.definition != other.definition


def _offline(source: str, status: SourceStatus) -> str:
    return f"{source} is {status.state}: {status.reason}" if status.reason else f"{source} is {status.state}"


def _note(hits: Sequence[Hit], unavailable: Sequence[Unavailable]) -> str | None:
    if hits:
        return None
    if unavailable:
        names = ", ".join(one.server for one in unavailable)
        return f"Nothing that can be seen now fits; {names} cannot be reached, so that more may be there."
    return "Nothing in the catalog fits. Try other words, one search for each step."
