"""`DeferredCatalog`: four fixed tools in front of any number of tools behind search.

`search_tools` finds tools, `resolve_tools` grants them, `call_tool` and `call_read_only_tool` run granted
tools. The list that a client sees never changes (server/tools: a list must not vary as a side effect of other
requests), and every call of a deferred tool passes the same gate: when the call arrives, and again right
before the tool runs, since hooks and middleware may take time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, Literal, Protocol

import anyio.lowlevel

from mcp_toolset._records import replace
from mcp_toolset.catalog.deferred.browsing import Browser, fitted
from mcp_toolset.catalog.deferred.findable import (
    FindableTools,
    Hit,
    Reporting,
    Resolution,
    SearchAnswer,
    key_of,
)
from mcp_toolset.catalog.deferred.grant_gate import GrantGate, Resolver
from mcp_toolset.catalog.deferred.preparing import Preparing
from mcp_toolset.catalog.deferred.preview import ServerNote, preview_of
from mcp_toolset.catalog.deferred.tools import (
    SearchRequest,
    call_binding,
    previewing,
    read_binding,
    resolve_binding,
    search_binding,
)
from mcp_toolset.catalog.grants.access import EVERYTHING, Access, AccessPolicy, Visible
from mcp_toolset.catalog.grants.ledger import GrantLedger, ToolGrant
from mcp_toolset.catalog.search.entry import CatalogEntry, SearchListener
from mcp_toolset.catalog.search.index import Scorer, SearchHit, SearchIndex
from mcp_toolset.catalog.search.text import is_english
from mcp_toolset.errors import GrantStoreError, StoreError
from mcp_toolset.tools.binding import StoreMiss, loaded
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import Scrubbing
from mcp_toolset.tools.view import Made, ToolBinding


class IndexKeeping(Protocol):
    """Keeps the index of one server's search."""

    def rest(self, index: SearchIndex, leave_out: Callable[[CatalogEntry], bool]) -> None:
        """Have an empty index begin with its file, and write that, without tools to `leave_out`."""

    def look(self) -> None: ...  # write the index later, if that is worth it; it has read its tools by now

    async def fetch(self) -> None:
        """Take what another replica has made, so that the first search begins with it."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Write for the length of a block; what is worth it by then is written at its end."""
        ...


_ADDED: Final = 16  # the number of tools that are indexed at once: about five milliseconds
_REMOVED: Final = 256  # the number of tools that are removed from the index at once: about as long


class DeferredCatalog:
    """Deferred bindings behind search and grants; give `bindings()` to a dispatch table."""

    def __init__(
        self,
        ledger: GrantLedger,  # issues and judges the grants
        sources: Callable[[], Mapping[str, Reporting]] = dict[str, Reporting],
        *,
        access: Access | None = None,  # the access policy; by default every caller has access to every tool
        visible: Visible = EVERYTHING,  # what the policy of the server lets each caller know of
        scorer: Scorer | Literal["built-in"] | None = "built-in",  # for this catalog only
        arrive: Callable[[], Awaitable[None]] | None = None,  # waits a bounded time for sources without tools
        deferring: Callable[[], Collection[str]] = frozenset,  # the sources behind search
        listed_to: Callable[[ToolContext], Collection[str]] = lambda context: (),  # names of listed tools
        listener: SearchListener | None = None,  # what is told of searches
        keeper: IndexKeeping | None = None,  # by default the index is built anew by each process
    ) -> None:
        self._ledger = ledger
        self._sources = sources
        self._policy = AccessPolicy(access, visible)
        self._shown = FindableTools(ledger, self._policy, sources, listed_to)
        self._arrive = arrive
        self._deferring = deferring
        self._indexed: dict[str, ToolBinding] = {}
        self._made_gated = Made(self._gated)
        self._index = SearchIndex(scorer=scorer)
        self._keeper = keeper
        if keeper is not None:
            keeper.rest(self._index, self._is_private)
        self._resolver = Resolver(self._shown, ledger, self._index, arrive)
        self._browser = Browser(self._shown, self._index, listener)
        self._listener = listener
        self._gate = GrantGate(ledger, self._policy, self._shown)
        preparing = Preparing(self._shown.knows)
        self._searching = search_binding(self._search, preparing)
        self._fixed = (
            resolve_binding(self._resolve, preparing),
            call_binding(self._gate.redirect, self._gate.prepare),
            read_binding(self._gate.redirect_read_only, self._gate.prepare),
        )

    def update(
        self,
        bindings: Iterable[ToolBinding],  # the tools that can be resolved and called
        held: Iterable[tuple[ToolBinding, str]] = (),  # quarantined, with the reason
        listed: Iterable[ToolBinding] = (),  # found, and called by name
    ) -> None:
        for _ in self.updating(bindings, held, listed):
            pass

    def updating(
        self,
        bindings: Iterable[ToolBinding],
        held: Iterable[tuple[ToolBinding, str]] = (),
        listed: Iterable[ToolBinding] = (),
    ) -> Iterator[None]:
        """Like `update`, in steps of some milliseconds; searches can run between two steps."""
        # Removed tools are gone at once; new and changed tools are found from their own step on.
        tools = {binding.name: binding for binding in bindings}
        kept = {binding.name: (binding, reason) for binding, reason in held}
        beside = {binding.name: binding for binding in listed if binding.personal is None}
        gone = sorted(self._indexed.keys() - tools.keys() - kept.keys() - beside.keys())
        for name in gone:
            del self._indexed[name]
        self._shown.changed(tools, kept, beside)
        found, before = self._shown.findable(), self._indexed
        self._shown.ids.remove([*gone, *beside])
        self._shown.ids.add(
            found[name]
            for name, binding in before.items()
            if found[name] is not binding and name not in beside
        )
        for names in _slices(gone, _REMOVED):
            self._index.remove(names)
            yield
        fresh = [name for name, binding in found.items() if before.get(name) is not binding]
        # A hub that is only listed never reads the words of its tools.
        later = not before
        for some in _slices(fresh, _REMOVED):
            # All at once, so that the posting of a common word is scanned once for all removed tools.
            self._index.remove(
                name for name in some if name in before and _differs(before[name], found[name])
            )
            for names in _slices(some, _ADDED):
                some_found = [found[name] for name in names]
                entries = [CatalogEntry(one.definition, one.name, one.source or None) for one in some_found]
                self._index.add(entries, later=later)
                self._shown.ids.add(found[name] for name in names if name not in beside)
                self._indexed.update((name, found[name]) for name in names)
                yield

    @property
    def index(self) -> SearchIndex:
        return self._index

    def _is_private(self, entry: CatalogEntry) -> bool:
        """True if a tool is one caller's own, or quotes a secret of its server, and so is in no file."""
        binding = self._shown.tools.get(entry.public_name) or self._shown.listed.get(entry.public_name)
        source = self._sources().get(entry.server or "")
        if binding is None or binding.personal is not None:
            return True
        return isinstance(source, Scrubbing) and any(source.scrubbed(text) != text for text in entry.texts())

    def digests(self) -> dict[str, str]:
        return {name: binding.definition.digest for name, binding in self._shown.tools.items()}

    def bindings(self) -> list[ToolBinding]:
        return [*self.surface(), *self.gated()]

    def surface(self) -> list[ToolBinding]:
        return [self.previewing(None), *self._fixed]

    def previewing(self, identity: Identity | None) -> ToolBinding:
        hidden = self._policy.hidden_in_texts(self._shown.tools, identity)
        shown = (tool.definition for name, tool in self._shown.tools.items() if name not in hidden)
        english = is_english(definition.description or "" for definition in shown)
        return previewing(self._searching, self._preview_without(hidden, identity), english=english)

    def gated(self) -> list[ToolBinding]:
        return self._made_gated.of(self._shown.tools.values())

    def _gated(self, binding: ToolBinding) -> ToolBinding:
        explain = partial(self._gate.explained, binding)
        run = partial(self._gate.run if self._listener is None else self._run, binding)
        return replace(binding, gate=self._gate.gate, execute=run, explain=explain)

    async def in_scope(self, references: Sequence[str] | None, context: ToolContext) -> Mapping[str, str]:
        """The tools granted by `references`, or by all grants: name, and what its grant is found by."""
        if references is None:
            await self._ledger.know_held(context)
            return {binding.name: binding.name for binding in self.granted(context)}
        found = [(await loaded(partial(self._gate.verified, one, context)), one) for one in references]
        return {grant.name: reference for grant, reference in found}

    def ungated(self, name: str) -> ToolBinding | None:
        return self._shown.tools.get(name)

    def granted(self, context: ToolContext) -> list[ToolBinding]:
        found = ((grant, self._shown.tools.get(grant.name)) for grant in self._granted(context))
        return [
            binding
            for grant, binding in found
            if binding is not None
            and not self._moved(grant, binding)
            and self._policy.withheld(binding, context) is None
        ]

    def _moved(self, grant: ToolGrant, binding: ToolBinding) -> bool:
        """True if a tool differs from the one that was granted; the kind of difference does not count."""
        try:
            return bool(self._ledger.moved(grant, binding))
        except StoreMiss:
            return True

    def preview(self, identity: Identity | None = None) -> str:
        """What is in the catalog, for a model that has not searched yet; empty for an empty catalog."""
        # Every caller of a group reads the same text, so it names only tools that each of them may find.
        return self._preview_without(self._policy.hidden_in_texts(self._shown.tools, identity), identity)

    def _preview_without(self, hidden: AbstractSet[str], identity: Identity | None) -> str:
        withheld = self.withheld_servers(identity)
        notes = {name: self._note_of(name) for name in self._deferring() if name not in withheld}
        ordered = {name: notes[name] for name in self._sources() if name in notes}
        tools = ((tool.source, name) for name, tool in self._shown.tools.items() if name not in hidden)
        return preview_of(tools, ordered)

    def _note_of(self, server: str) -> ServerNote:
        source = self._sources().get(server)
        if source is None:
            return ServerNote()
        status = source.status
        away = not status.is_up and (status.remembered or not status.tools)
        return ServerNote(status.state if away else "", status.about)

    def withheld_servers(self, identity: Identity | None) -> frozenset[str]:
        """The deferred servers of which no tool may be shown to every caller of the group of one."""
        # With an access function, a server whose tools are unknown is withheld too.
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
        hidden = frozenset[str]() if context is None else self._shown.hidden(context)
        hidden |= self._shown.listed.keys()
        found = self._index.search(query, server=server, limit=limit, hidden=hidden)
        return [
            replace(
                hit,
                id=self._shown.ids.id_of(hit.name),
                state=self._shown.state(self._shown.found(hit.name))[0],
            )
            for hit in found
        ]

    async def _search(self, request: SearchRequest, context: ToolContext) -> SearchAnswer:
        if self._arrive is not None:
            await self._arrive()
        for _ in self._index.catch_up():
            await anyio.lowlevel.checkpoint()
        if self._keeper is not None:
            self._keeper.look()
        await self._index.read(request.query)
        # Tools that are withheld must not count against the limit of hits.
        hidden = self._shown.hidden(context)
        page = self._browser.page(request, hidden, context)
        await self._ledger.know_held(context)
        held = {grant.name: grant for grant in self._granted(context)} if page.found else {}
        hits = [await self._hit_of(hit, held.get(hit.name), context) for hit in page.found]
        wanted = [hit.id for hit in hits if hit.state != "listed"][: request.resolve]
        if self._listener is not None:
            self._listener.searched(
                context, request.query, [self._shown.key_of(hit.name) for hit in page.found]
            )
        resolved = await self._resolve(wanted, context)
        return SearchAnswer(
            hits=fitted(hits), resolved=resolved, unavailable=page.unavailable, note=page.note
        )

    async def _resolve(
        self, ids: Sequence[str], context: ToolContext, *, stubs: bool = False
    ) -> list[Resolution]:
        done = await self._resolver.resolve(ids, context, stubs=stubs)
        if self._listener is not None:
            names = ((one.grant or "").rpartition(".")[0] for one in done)
            for name in names:
                if name in self._shown.tools:
                    self._listener.resolved(context, self._shown.key_of(name))
        return done

    async def _run(self, binding: ToolBinding, call: ToolCall, context: ToolContext) -> ToolResult:
        result = await self._gate.run(binding, call, context)
        if self._listener is not None and _succeeded(binding, result):
            self._listener.called(context, key_of(binding))
        return result

    async def _hit_of(self, hit: SearchHit, grant: ToolGrant | None, context: ToolContext) -> Hit:
        try:
            return await loaded(partial(self._browser.hit, hit, grant, context))
        except StoreError:
            return self._browser.hit(hit, None, context)

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


def _succeeded(binding: ToolBinding, result: ToolResult) -> bool:
    """True if a call has an answer that is no error and fits what the tool promises."""
    if result.is_error or not result.is_complete:
        return False
    return binding.output is None or binding.output.is_valid(result.wire.get("structuredContent"))
