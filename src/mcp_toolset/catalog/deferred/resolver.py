"""`Resolver`: answers `resolve_tools` with a grant for each id, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, cast

import anyio

from mcp_toolset.catalog.deferred.findable import FindableTools, Resolution, servers_missing
from mcp_toolset.catalog.deferred.preparing import next_call, query_of
from mcp_toolset.catalog.grants.ledger import GrantLedger, GrantRecord, replay_key
from mcp_toolset.catalog.search.index import SearchIndex
from mcp_toolset.errors import CallError
from mcp_toolset.tools.binding import HasContract, loaded
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.python_stub import python_stub
from mcp_toolset.tools.view import ToolBinding

_UNNEEDED: Final = frozenset(("outputSchema", "execution", "icons", "_meta", "title"))
_SHOWN_HINTS: Final = ("readOnlyHint", "destructiveHint")
_EMPTY: Final[tuple[object, ...]] = (None, {}, [], "")
_MAPS: Final = ("properties", "$defs", "definitions")
_LISTS: Final = ("anyOf", "oneOf", "allOf")
_DEEPEST: Final = 16  # levels of a schema that are made compact; deeper ones are left unchanged


def compact(definition: Mapping[str, Any]) -> dict[str, Any]:
    """A definition without empty members, and without members that only programs read."""
    hints: Mapping[str, Any] = definition.get("annotations") or {}
    kept = {key: value for key, value in definition.items() if key not in _UNNEEDED}
    kept["annotations"] = {key: hints[key] for key in _SHOWN_HINTS if hints.get(key) is not None}
    kept["inputSchema"] = {
        key: value for key, value in _compact_schema(kept["inputSchema"], None, 0).items() if key != "title"
    }
    return {key: value for key, value in kept.items() if value not in _EMPTY}


def _compact_schema(schema: Mapping[str, Any], name: str | None, depth: int) -> dict[str, Any]:
    """A schema without its dialect, and without titles that only repeat the name of a property."""
    compact: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$schema" or (key == "title" and _is_repeated(value, name)):
            continue
        if key in ("description", "required", "default") and value in (None, [], ""):
            continue
        compact[key] = value if depth == _DEEPEST else _compact_member(key, value, name, depth + 1)
    return compact


def _compact_member(key: str, value: Any, name: str | None, depth: int) -> Any:
    if key in _MAPS and isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return {each: _compact_value(part, each, depth) for each, part in table.items()}
    if key in _LISTS and isinstance(value, list | tuple):
        return [_compact_value(part, name, depth) for part in cast("list[Any]", value)]
    return _compact_value(value, name, depth) if key == "items" else value


def _compact_value(value: Any, name: str | None, depth: int) -> Any:
    return (
        _compact_schema(cast("Mapping[str, Any]", value), name, depth)
        if isinstance(value, Mapping)
        else value
    )


def _is_repeated(title: object, name: str | None) -> bool:
    if name is None or not isinstance(title, str):
        return False
    return title.replace(" ", "").casefold() == name.replace("_", "").casefold()


_NO_SUCH: Final = "no such tool; use the id of a search hit"
_SEARCH: Final = next_call("search_tools", {"query": query_of("")})
_COMPARED: Final = 5_000  # names that an unknown id is compared with, if some tools are hidden
_LOOKED_AT: Final = 10  # hits that an unknown id is compared with


class Resolver:
    """Answers `resolve_tools`: a grant for each id, or the reason why there is none."""

    def __init__(
        self,
        findable: FindableTools,
        ledger: GrantLedger,
        index: SearchIndex,
        arrive: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._findable = findable
        self._ledger = ledger
        self._index = index
        self._arrive = arrive

    async def resolve(
        self, ids: Sequence[str], context: ToolContext, *, stubs: bool = False
    ) -> list[Resolution]:
        """The outcome for each id, in order; a repeated id gets one grant."""
        if not ids:
            return []
        if self._arrive is not None and not all(self._findable.named(id, context) for id in ids):
            # A server that has not listed its tools yet may have the tool.
            await self._arrive()
        replay = replay_key(context)
        wanted = {id: self._available(id, context) for id in ids}
        await _fetch_contracts(wanted)
        records = await self._records(wanted, context, replay)
        return [await loaded(partial(self._resolution, id, records[id], context, stubs)) for id in ids]

    async def _records(
        self, wanted: Mapping[str, ToolBinding | str], context: ToolContext, replay: str
    ) -> dict[str, GrantRecord]:
        """The record of each id: an earlier one of the same request, a valid grant, or a new one."""
        known = {id: await self._recorded(id, found, context, replay) for id, found in wanted.items()}
        if not replay:
            await self._ledger.know_held(context)
            known = {id: self._live(id, found, context) for id, found in wanted.items()}
        asked = [(id, found) for id, found in wanted.items() if known[id] is None]
        fresh = iter(await self._ledger.resolve(asked, context, replay) if asked else ())
        return {id: record or next(fresh) for id, record in known.items()}

    def _live(self, id: str, found: ToolBinding | str, context: ToolContext) -> GrantRecord | None:
        """The caller's grant for the unchanged tool, if at least half of its lifetime is left."""
        if isinstance(found, str):
            return None
        for grant in self._ledger.held(context):
            same = (grant.name, grant.digest) == (found.name, found.definition.digest)
            if same and grant.grant and grant.uses is None and not self._ledger.moved(grant, found):
                if 2 * self._ledger.remaining(grant) >= grant.expires - grant.issued:
                    return GrantRecord(grant.owner, "", id, grant.issued, grant.expires, grant)
        return None

    async def _recorded(
        self, id: str, found: ToolBinding | str, context: ToolContext, replay: str
    ) -> GrantRecord | None:
        """The record that an earlier try of this request has for an id, or for another id of its tool."""
        if not replay:
            return None
        others = () if isinstance(found, str) else sorted(self._findable.ids.spellings(found.name))
        for one in (id, *others):
            if (record := await self._ledger.recall(one, context, replay)) is not None:
                return record
        return None

    def _available(self, id: str, context: ToolContext) -> ToolBinding | str:
        """The tool of an id, or the reason why there is no grant for it."""
        names = self._findable.named(id, context)
        if len(names) > 1:
            ids = list(map(self._findable.ids.id_of, names))
            following = next_call("resolve_tools", {"ids": ids})
            return f"several tools have this id; use {' or '.join(ids)}\n{following}"
        if not names:
            return self._no_such(id, context)
        binding = self._findable.found(names[0])
        _, reason, _ = self._findable.standing(binding, None, context)
        return reason or binding

    def _no_such(self, id: str, context: ToolContext) -> str:
        """The reason for an unknown id; it is the same for a hidden tool, so that it reveals nothing."""
        if self._findable.is_listed(id, context):
            return self._findable.direct(id)
        hidden = self._findable.hidden(context)
        near = self._near(id, hidden, context)
        reason = f"no such tool; did you mean {' or '.join(near)}?" if near else _NO_SUCH
        away = servers_missing(self._findable.unavailable(None, hidden, context))
        may_have = f" ({away})" if away else ""
        return f"{reason}{may_have}\n{next_call('resolve_tools', {'ids': near[:1]}) if near else _SEARCH}"

    def _near(self, id: str, hidden: frozenset[str], context: ToolContext) -> list[str]:
        """The ids of tools with names like an unknown id."""
        # A search ranks by the words of all tools, which would reveal hidden ones. So if tools may be hidden,
        # the id is compared only with the names that the caller may see.
        if self._findable.may_hide(context):
            others = hidden | self._findable.listed.keys()
            seen = (name for name in self._findable.every() if name not in others)
            return self._findable.ids.near(id, islice(seen, _COMPARED))
        hits = self._index.search(id, limit=_LOOKED_AT, exclude=self._findable.listed.keys(), wait=False)
        return self._findable.ids.near(id, [hit.name for hit in hits])

    def _resolution(
        self, id: str, record: GrantRecord, context: ToolContext, stubs: bool = False
    ) -> Resolution:
        """The answer for one id: the grant of its record, unless the tool cannot be called any more."""
        grant = record.grant
        if grant is None:
            tool = self._findable.named(id, context)
            binding = self._findable.tools.get(tool[0]) if len(tool) == 1 else None
            fault = record.reason
        else:
            binding = self._findable.tools.get(grant.name)
            fault = self._ledger.lapsed(grant) or self._ledger.moved(grant, binding)
        if (
            grant is None
            or fault
            or binding is None
            or self._findable.policy.withheld(binding, context) is not None
        ):
            retry_in = None if binding is None else self._findable.standing(binding, None, context)[2]
            reason = fault or f"{_NO_SUCH}\n{_SEARCH}"
            return Resolution(id=id, status="not_available", reason=reason, retry_in=retry_in)
        binding = binding.contracted()
        return Resolution(
            id=id,
            status="granted",
            grant=grant.grant,
            expires_in=self._ledger.remaining(grant),
            definition=None if stubs else compact(binding.to_wire()),
            stub=python_stub(binding.name, binding.definition) if stubs else None,
        )


async def _fetch_contracts(wanted: dict[str, ToolBinding | str]) -> None:
    """Fetch the schemas of tools that a manifest lists; if that fails, the reason replaces the tool."""
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
