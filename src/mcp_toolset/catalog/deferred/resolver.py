"""`FindableTools`: what a caller may find; `Resolver`: from the ids of hits to grants, each id by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from mcp_toolset.catalog.deferred.hit_ids import HitIds
from mcp_toolset.catalog.deferred.tools import HitState, Resolution, Unavailable
from mcp_toolset.catalog.grants.access import AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger, GrantRecord, ToolGrant, replay_key
from mcp_toolset.catalog.search.index import SearchIndex
from mcp_toolset.tools.binding.binding import loaded
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.source import SourceStatus
from mcp_toolset.tools.view.view import ToolBinding

MAX_GROUPS: Final = 64
"""Groups of callers whose hidden tools are remembered."""


class Reporting(Protocol):
    """What tells how it is doing, as a `ToolSource` does."""

    @property
    def status(self) -> SourceStatus:
        """How it is doing."""
        ...


class FindableTools:
    """The deferred tools, those held back included, and what stands in the way of each.

    Attributes:
        tools: What can be resolved and called, by public name.
        held: What is found and cannot be had, with the reason.
        ids: The ids by which tools are found.
        policy: Who may have what.
    """

    def __init__(
        self, ledger: GrantLedger, policy: AccessPolicy, sources: Callable[[], Mapping[str, Reporting]]
    ) -> None:
        """Start empty; `sources` are all servers by name, those without a tool so far too."""
        self.tools: dict[str, ToolBinding] = {}
        self.held: dict[str, tuple[ToolBinding, str]] = {}
        self.ids = HitIds()
        self.policy = policy
        self._ledger = ledger
        self._sources = sources
        self._hidden: dict[Hashable, frozenset[str]] = {}
        self._is_personal = False

    def changed(self, tools: dict[str, ToolBinding], held: dict[str, tuple[ToolBinding, str]]) -> None:
        """Have other tools."""
        self.tools, self.held = tools, held
        self._hidden = {}
        self._is_personal = any(tool.personal is not None for tool in self.every().values())

    def every(self) -> dict[str, ToolBinding]:
        """Every tool that a search can find, those held back too."""
        return self.tools | {name: binding for name, (binding, _) in self.held.items()}

    def hidden(self, context: ToolContext) -> frozenset[str]:
        """The names of the tools that the caller is not to know of."""
        group = self.policy.visible.group(context.identity)
        if group is None and not (self.policy or self._is_personal):
            return frozenset()
        if self.policy or self._is_personal or group is None:
            return self.policy.hidden(self.every(), context)
        if group not in self._hidden:
            if len(self._hidden) >= MAX_GROUPS:
                self._hidden = {}
            self._hidden[group] = self.policy.hidden(self.every(), context)
        return self._hidden[group]

    def found(self, name: str) -> ToolBinding:
        """A tool that a search has found, by its public name."""
        return self.held[name][0] if name in self.held else self.tools[name]

    def named(self, id: str, context: ToolContext) -> list[str]:
        """The public names of the tools that an id may stand for, of those that the caller may know of."""
        return self.ids.named(id, lambda name: not self.policy.hides(self.found(name), context))

    def standing(
        self, binding: ToolBinding, grant: ToolGrant | None, context: ToolContext
    ) -> tuple[HitState, str | None, float | None]:
        """Whether a tool can be had now, why not, and after how many seconds to ask again."""
        withheld = self.policy.withheld(binding, context)
        if withheld is not None:
            return withheld.state, withheld.reason, withheld.retry_in
        state = self.state(binding)
        moved = "" if grant is None or state[1] else self._ledger.moved(grant, binding)
        return ("changed", f"{moved}; resolve it again", None) if moved else state

    def state(self, binding: ToolBinding) -> tuple[HitState, str | None, float | None]:
        """The same without regard to the caller: its policy and its grants."""
        if binding.name in self.held:
            return "changed", self.held[binding.name][1], None
        source = self._sources().get(binding.source)
        # A call of a tool that the last run knew waits for a server that is starting.
        if source is not None and not ((status := source.status).is_up or status.state == "starting"):
            return "offline", _offline(binding.source, status), status.retry_in
        return "available", None, None

    def unavailable(
        self, server: str | None, hidden: frozenset[str], context: ToolContext
    ) -> list[Unavailable]:
        """The servers that a search could not see into; never the same as finding nothing.

        One whose every known tool is hidden from the caller is hidden with them.
        """
        hides = self.policy.visible.hides_server
        asked = None if server is None else server.casefold()
        secret = {self.found(name).source for name in hidden}
        if secret:
            secret -= {tool.source for name, tool in self.every().items() if name not in hidden}
        return [
            Unavailable(server=name, state=status.state, reason=status.reason, retry_in=status.retry_in)
            for name, source in self._sources().items()
            if not (status := source.status).is_up
            and asked in (None, name.casefold())
            and name not in secret
            and not hides(name, context.identity)
        ]


def _offline(source: str, status: SourceStatus) -> str:
    return f"{source} is {status.state}: {status.reason}" if status.reason else f"{source} is {status.state}"


_NO_SUCH: Final = "no such tool; use the id of a search hit"
_LOOKED_AT: Final = 10
"""Hits among which those are looked for that an unknown id is like."""


class Resolver:
    """Grants the tools that a caller asks for by id, or says why it cannot have them."""

    def __init__(
        self,
        shown: FindableTools,
        ledger: GrantLedger,
        index: SearchIndex,
        arrive: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """Resolve ids of `shown`; `arrive` waits a bounded time for servers that have not listed yet."""
        self._shown = shown
        self._ledger = ledger
        self._index = index
        self._arrive = arrive

    async def resolve(self, ids: Sequence[str], context: ToolContext) -> list[Resolution]:
        """What becomes of each id, in order; one that comes twice is granted once."""
        if not ids:
            return []
        if self._arrive is not None and not all(self._shown.named(id, context) for id in ids):
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
        others = () if isinstance(found, str) else sorted(self._shown.ids.spellings(found.name))
        for one in (id, *others):
            if (record := await self._ledger.recall(one, context, replay)) is not None:
                return record
        return None

    def _available(self, id: str, context: ToolContext) -> ToolBinding | str:
        """The tool that an id or a public name stands for, or why it cannot be had."""
        names = self._shown.named(id, context)
        if len(names) > 1:
            return f"several tools have this id; use {' or '.join(map(self._shown.ids.id_of, names))}"
        if not names:
            return self._no_such(id, context)
        binding = self._shown.found(names[0])
        _, reason, _ = self._shown.standing(binding, None, context)
        return reason or binding

    def _no_such(self, id: str, context: ToolContext) -> str:
        """Alike for what is not there and what is hidden; a server that is down may have it."""
        hidden = self._shown.hidden(context)
        near = self._near(id, hidden)
        told = f"no such tool; did you mean {' or '.join(near)}?" if near else _NO_SUCH
        names = ", ".join(one.server for one in self._shown.unavailable(None, hidden, context))
        return f"{told} ({names} cannot be reached now and may have it)" if names else told

    def _near(self, id: str, hidden: frozenset[str]) -> list[str]:
        """The ids of tools with names like that of one that does not exist."""
        hits = self._index.search(id, limit=_LOOKED_AT, exclude=hidden, wait=False)
        return self._shown.ids.near(id, [hit.name for hit in hits])

    def _resolution(self, id: str, record: GrantRecord, context: ToolContext) -> Resolution:
        grant = record.grant
        if grant is None:
            found = self._shown.named(id, context)
            binding = self._shown.tools.get(found[0]) if len(found) == 1 else None
            fault = record.reason
        else:
            binding = self._shown.tools.get(grant.name)
            fault = self._ledger.lapsed(grant) or self._ledger.moved(grant, binding)
        if (
            grant is None
            or fault
            or binding is None
            or self._shown.policy.withheld(binding, context) is not None
        ):
            retry_in = None if binding is None else self._shown.standing(binding, None, context)[2]
            reason = fault or _NO_SUCH
            return Resolution(id=id, status="not_available", reason=reason, retry_in=retry_in)
        return Resolution(
            id=id,
            status="granted",
            grant=grant.handle,
            expires_in=self._ledger.remaining(grant),
            definition=binding.to_wire(),
        )
