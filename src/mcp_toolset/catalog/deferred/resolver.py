"""`Resolver`: from the ids of hits to grants, each id by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

import anyio

from mcp_toolset.catalog.deferred.answers import Resolution, of_away
from mcp_toolset.catalog.deferred.findable import FindableTools
from mcp_toolset.catalog.deferred.needed import needed
from mcp_toolset.catalog.deferred.next_call import next_call, query_of
from mcp_toolset.catalog.grants.ledger import GrantLedger, GrantRecord, replay_key
from mcp_toolset.catalog.search.index import SearchIndex
from mcp_toolset.errors import CallError
from mcp_toolset.tools.binding.binding import HasContract, loaded
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.view.python_stub import python_stub
from mcp_toolset.tools.view.view import ToolBinding

_NO_SUCH: Final = "no such tool; use the id of a search hit"
_SEARCH: Final = next_call("search_tools", {"query": query_of("")})
_COMPARED: Final = 5_000
"""Names with which an unknown id is compared where some tools are hidden."""

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

    async def resolve(
        self, ids: Sequence[str], context: ToolContext, *, stubs: bool = False
    ) -> list[Resolution]:
        """What becomes of each id, in order; one that comes twice is granted once.

        Args:
            ids: The ids of hits.
            context: The caller.
            stubs: Whether a Python stub stands in place of each definition.
        """
        if not ids:
            return []
        if self._arrive is not None and not all(self._shown.named(id, context) for id in ids):
            # The tool may be of a server that has not listed its tools yet.
            await self._arrive()
        replay = replay_key(context)
        wanted = {id: self._available(id, context) for id in ids}
        await _fetch_contracts(wanted)
        records = await self._records(wanted, context, replay)
        return [await loaded(partial(self._resolution, id, records[id], context, stubs)) for id in ids]

    async def _records(
        self, wanted: Mapping[str, ToolBinding | str], context: ToolContext, replay: str
    ) -> dict[str, GrantRecord]:
        known = {id: await self._recorded(id, found, context, replay) for id, found in wanted.items()}
        if not replay:
            await self._ledger.know_held(context)
            known = {id: self._live(id, found, context) for id, found in wanted.items()}
        asked = [(id, found) for id, found in wanted.items() if known[id] is None]
        fresh = iter(await self._ledger.resolve(asked, context, replay) if asked else ())
        return {id: record or next(fresh) for id, record in known.items()}

    def _live(self, id: str, found: ToolBinding | str, context: ToolContext) -> GrantRecord | None:
        """A grant that the caller holds for the tool as it is, and that lasts half its time or longer."""
        if isinstance(found, str):
            return None
        for grant in self._ledger.held(context):
            same = (grant.name, grant.digest) == (found.name, found.definition.digest)
            if same and grant.handle and grant.uses is None and not self._ledger.moved(grant, found):
                if 2 * self._ledger.remaining(grant) >= grant.expires - grant.issued:
                    return GrantRecord(grant.owner, "", id, grant.issued, grant.expires, grant)
        return None

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
            ids = list(map(self._shown.ids.id_of, names))
            following = next_call("resolve_tools", {"ids": ids})
            return f"several tools have this id; use {' or '.join(ids)}\n{following}"
        if not names:
            return self._no_such(id, context)
        binding = self._shown.found(names[0])
        _, reason, _ = self._shown.standing(binding, None, context)
        return reason or binding

    def _no_such(self, id: str, context: ToolContext) -> str:
        """Alike for what is not there and what is hidden; a server that is down may have it."""
        if self._shown.is_listed(id, context):
            return self._shown.direct(id)
        hidden = self._shown.hidden(context)
        near = self._near(id, hidden, context)
        told = f"no such tool; did you mean {' or '.join(near)}?" if near else _NO_SUCH
        away = of_away(self._shown.unavailable(None, hidden, context))
        may_have = f" ({away})" if away else ""
        return f"{told}{may_have}\n{next_call('resolve_tools', {'ids': near[:1]}) if near else _SEARCH}"

    def _near(self, id: str, hidden: frozenset[str], context: ToolContext) -> list[str]:
        """The ids of tools with names like that of one that does not exist.

        What the search finds depends on the words of all tools, so that it would tell of hidden ones: where
        tools may be hidden, names are compared with those that the caller may see.
        """
        if self._shown.may_hide(context):
            others = hidden | self._shown.listed.keys()
            seen = (name for name in self._shown.every() if name not in others)
            return self._shown.ids.near(id, islice(seen, _COMPARED))
        hits = self._index.search(id, limit=_LOOKED_AT, exclude=self._shown.listed.keys(), wait=False)
        return self._shown.ids.near(id, [hit.name for hit in hits])

    def _resolution(
        self, id: str, record: GrantRecord, context: ToolContext, stubs: bool = False
    ) -> Resolution:
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
            reason = fault or f"{_NO_SUCH}\n{_SEARCH}"
            return Resolution(id=id, status="not_available", reason=reason, retry_in=retry_in)
        binding = binding.contracted()
        return Resolution(
            id=id,
            status="granted",
            grant=grant.handle,
            expires_in=self._ledger.remaining(grant),
            definition=None if stubs else needed(binding.to_wire()),
            stub=python_stub(binding.name, binding.definition) if stubs else None,
        )


async def _fetch_contracts(wanted: dict[str, ToolBinding | str]) -> None:
    """Replace the tools that are listed by manifests: by the tools with their schemas, or by why not."""
    async with anyio.create_task_group() as fetching:
        for id, found in wanted.items():
            if not isinstance(found, str) and found.contract is not None:
                fetching.start_soon(_fetch_contract, id, found, found.contract, wanted)


async def _fetch_contract(
    id: str, found: ToolBinding, contract: HasContract, wanted: dict[str, ToolBinding | str]
) -> None:
    try:
        await contract.fetch()
        wanted[id] = found.contracted()
    except CallError as fault:
        wanted[id] = str(fault)
