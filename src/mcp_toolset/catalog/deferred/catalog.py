"""`DeferredCatalog`: four fixed tools in front of any number of tools behind search.

`search_tools` finds tools, `resolve_tools` grants them, `call_tool` and `call_read_only_tool` run granted
tools. The list that a client sees never changes (server/tools: a list must not vary as a side effect of other
requests), and every call of a deferred tool passes the same gate: when the call arrives, and again right
before the tool runs, since hooks and middleware may take time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal

from mcp_toolset.catalog.deferred.grant_gate import GrantGate
from mcp_toolset.catalog.deferred.preview import ServerNote, preview_of
from mcp_toolset.catalog.deferred.resolver import FindableTools, Reporting, Resolver
from mcp_toolset.catalog.deferred.tools import (
    MAX_RESOLVED,
    Found,
    Hit,
    SearchRequest,
    Unavailable,
    call_binding,
    previewing,
    read_binding,
    resolve_binding,
    search_binding,
)
from mcp_toolset.catalog.grants.access import EVERYTHING, Access, AccessDenied, AccessPolicy, Visible
from mcp_toolset.catalog.grants.ledger import GrantLedger, ToolGrant
from mcp_toolset.catalog.search.index import CatalogEntry, Scorer, SearchHit, SearchIndex
from mcp_toolset.errors import GrantStoreError, StoreError
from mcp_toolset.tools.binding.binding import StoreMiss, loaded
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.identity import Identity
from mcp_toolset.tools.view.made import Made
from mcp_toolset.tools.view.view import ToolBinding

__all__ = ["MAX_RESOLVED", "Access", "DeferredCatalog", "AccessDenied"]

_ADDED: Final = 16
"""The number of tools that are indexed at once: about five milliseconds."""

_REMOVED: Final = 256
"""The number of tools that are removed from the index at once: about as long."""


class DeferredCatalog:
    """Deferred bindings behind search and grants; give `bindings()` to a dispatch table."""

    def __init__(
        self,
        ledger: GrantLedger,
        sources: Callable[[], Mapping[str, Reporting]] = dict[str, Reporting],
        *,
        access: Access | None = None,
        visible: Visible = EVERYTHING,
        scorer: Scorer | Literal["built-in"] | None = "built-in",
        arrive: Callable[[], Awaitable[None]] | None = None,
        deferring: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """Start empty.

        Args:
            ledger: Issues and judges the grants.
            sources: The sources by name, also those without a tool so far.
            access: The access policy; by default every caller has access to every tool.
            visible: What the policy of the server lets each caller know of.
            scorer: As for `SearchIndex`; for this catalog only.
            deferring: The names of the sources whose tools are behind search, for the preview.
            arrive: Waits a bounded time for sources whose tools are unknown; called by each search.

        Raises:
            DefinitionError: `access` is asynchronous; the gate cannot wait.
        """
        self._ledger = ledger
        self._sources = sources
        self._policy = AccessPolicy(access, visible)
        self._shown = FindableTools(ledger, self._policy, sources)
        self._arrive = arrive
        self._deferring = deferring
        self._indexed: dict[str, ToolBinding] = {}
        self._made_gated = Made(self._gated)
        self._index = SearchIndex(scorer=scorer)
        self._resolver = Resolver(self._shown, ledger, self._index, arrive)
        self._gate = GrantGate(ledger, self._policy, self._shown.ids)
        self._searching = search_binding(self._search)
        self._fixed = (
            resolve_binding(self._resolver.resolve),
            call_binding(self._gate.redirect),
            read_binding(self._gate.redirect_read_only),
        )

    def update(self, bindings: Iterable[ToolBinding], held: Iterable[tuple[ToolBinding, str]] = ()) -> None:
        """Set the deferred tools; only changes are indexed.

        Args:
            bindings: The tools that can be resolved and called.
            held: Quarantined tools: found with the state `changed` and the reason, not callable.
        """
        for _ in self.updating(bindings, held):
            pass

    def updating(
        self, bindings: Iterable[ToolBinding], held: Iterable[tuple[ToolBinding, str]] = ()
    ) -> Iterator[None]:
        """Like `update`, in steps of some milliseconds; searches can run between two steps.

        Removed tools are gone at once; new and changed tools are found from their own step on.
        """
        tools = {binding.name: binding for binding in bindings}
        kept = {binding.name: (binding, reason) for binding, reason in held}
        gone = sorted(self._indexed.keys() - tools.keys() - kept.keys())
        for name in gone:
            del self._indexed[name]
        self._shown.changed(tools, kept)
        self._gate.tools = tools
        found, before = self._shown.every(), self._indexed
        self._shown.ids.remove(gone)
        self._shown.ids.add(found[name] for name, binding in before.items() if found[name] is not binding)
        for names in _slices(gone, _REMOVED):
            self._index.remove(names)
            yield
        fresh = [name for name, binding in found.items() if before.get(name) is not binding]
        for some in _slices(fresh, _REMOVED):
            # All at once, so that the posting of a common word is scanned once for all removed tools.
            self._index.remove(
                name for name in some if name in before and _differs(before[name], found[name])
            )
            for names in _slices(some, _ADDED):
                self._index.add(
                    CatalogEntry(found[name].definition, name, found[name].source or None) for name in names
                )
                self._shown.ids.add(found[name] for name in names)
                self._indexed.update((name, found[name]) for name in names)
                yield

    @property
    def index(self) -> SearchIndex:
        """The search index over the deferred tools."""
        return self._index

    def digests(self) -> dict[str, str]:
        """The digest of each deferred tool's definition, by public name."""
        return {name: binding.definition.digest for name, binding in self._shown.tools.items()}

    def bindings(self) -> list[ToolBinding]:
        """The four fixed tools, then every deferred tool behind the gate."""
        return [*self.surface(), *self.gated()]

    def surface(self) -> list[ToolBinding]:
        """The four fixed tools."""
        return [self.previewing(None), *self._fixed]

    def previewing(self, identity: Identity | None) -> ToolBinding:
        """`search_tools`, as the group of a caller sees it."""
        return previewing(self._searching, self.preview(identity))

    def gated(self) -> list[ToolBinding]:
        """Every deferred tool, behind the gate."""
        return self._made_gated.of(self._shown.tools.values())

    def _gated(self, binding: ToolBinding) -> ToolBinding:
        return replace(binding, gate=self._gate.gate, execute=partial(self._gate.run, binding))

    def ungated(self, name: str) -> ToolBinding | None:
        """A deferred tool without its gate, for the host, who needs no grant."""
        return self._shown.tools.get(name)

    def granted(self, context: ToolContext) -> list[ToolBinding]:
        """The granted tools that the caller's session may also call by name."""
        found = ((grant, self._shown.tools.get(grant.name)) for grant in self._granted(context))
        return [
            binding
            for grant, binding in found
            if binding is not None
            and not self._moved(grant, binding)
            and self._policy.withheld(binding, context) is None
        ]

    def _moved(self, grant: ToolGrant, binding: ToolBinding) -> bool:
        """Whether a tool differs from the one that was granted; the kind of difference does not count."""
        try:
            return bool(self._ledger.moved(grant, binding))
        except StoreMiss:
            return True

    def preview(self, identity: Identity | None = None) -> str:
        """What is in the catalog, for a model that has not searched yet; empty for an empty catalog.

        Every caller of a group reads the same text, so it names only tools that each of them may find.
        """
        hidden = self._policy.hidden_in_texts(self._shown.tools, identity)
        withheld = self.withheld_servers(identity)
        notes = {name: self._note_of(name) for name in self._deferring() if name not in withheld}
        ordered = {name: notes[name] for name in self._sources() if name in notes}
        tools = ((tool.source, name) for name, tool in self._shown.tools.items() if name not in hidden)
        return preview_of(tools, ordered)

    def _note_of(self, server: str) -> ServerNote:
        """The preview of one server; only its state until it has been ready once."""
        source = self._sources().get(server)
        if source is None:
            return ServerNote()
        status = source.status
        away = not status.is_up and (status.remembered or not status.tools)
        return ServerNote(status.state if away else "", status.about)

    def withheld_servers(self, identity: Identity | None) -> frozenset[str]:
        """The deferred servers of which no tool may be shown to every caller of the group of one.

        With an access function, a server whose tools are unknown is withheld too.
        """
        deferring = frozenset(self._deferring())
        secret = {name for name in deferring if self._policy.visible.hides_server(name, identity)}
        if not self._policy:
            return frozenset(secret)
        every = self._shown.every()
        hidden = self._policy.hidden_in_texts(every, identity)
        return deferring - {tool.source for name, tool in every.items() if name not in hidden} | secret

    def search(
        self, query: str, *, server: str | None = None, limit: int = 10, context: ToolContext | None = None
    ) -> list[SearchHit]:
        """The results of a search for the host: nothing is withheld, unless it is for a caller."""
        hidden = frozenset[str]() if context is None else self._shown.hidden(context)
        found = self._index.search(query, server=server, limit=limit, hidden=hidden)
        return [
            replace(
                hit,
                id=self._shown.ids.id_of(hit.name),
                state=self._shown.state(self._shown.found(hit.name))[0],
            )
            for hit in found
        ]

    async def _search(self, request: SearchRequest, context: ToolContext) -> Found:
        if self._arrive is not None:
            await self._arrive()
        await self._index.read(request.query)
        # Tools that are withheld must not count against the limit of hits.
        hidden = self._shown.hidden(context)
        found = self._index.search(
            request.query,
            server=request.server,
            limit=request.limit,
            exclude=[name for id in request.exclude for name in self._shown.ids.named(id)],
            hidden=hidden,
            wait=False,
        )
        await self._ledger.know_held(context)
        held = {grant.name: grant for grant in self._granted(context)} if found else {}
        hits = [await self._hit_of(hit, held.get(hit.name), context) for hit in found]
        resolved = await self._resolver.resolve([hit.id for hit in hits[: request.resolve]], context)
        unavailable = self._shown.unavailable(request.server, hidden, context)
        return Found(hits=hits, resolved=resolved, unavailable=unavailable, note=_note(hits, unavailable))

    async def _hit_of(self, hit: SearchHit, grant: ToolGrant | None, context: ToolContext) -> Hit:
        """A hit; without the grant's data if the grant store cannot be reached."""
        try:
            return await loaded(partial(self._hit, hit, grant, context))
        except StoreError:
            return self._hit(hit, None, context)

    def _hit(self, hit: SearchHit, grant: ToolGrant | None, context: ToolContext) -> Hit:
        state, reason, retry_in = self._shown.standing(self._shown.found(hit.name), grant, context)
        return Hit(
            id=self._shown.ids.id_of(hit.name),
            signature=hit.signature,
            description=hit.description,
            server=hit.server,
            state=state,
            reason=reason,
            retry_in=retry_in,
            score=round(hit.score, 3),
        )

    def _granted(self, context: ToolContext) -> list[ToolGrant]:
        """The caller's grants, for lists and hints only: empty if the store cannot be read."""
        try:
            return self._ledger.held(context)
        except GrantStoreError:
            return []


def _slices(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


def _differs(one: ToolBinding, other: ToolBinding) -> bool:
    return one.definition is not other.definition and one.definition != other.definition


def _note(hits: Sequence[Hit], unavailable: Sequence[Unavailable]) -> str | None:
    if hits:
        return None
    if unavailable:
        names = ", ".join(one.server for one in unavailable)
        return f"Nothing that can be seen now fits; {names} cannot be reached, so that more may be there."
    return "Nothing in the catalog fits. Try other words, one search for each step."
