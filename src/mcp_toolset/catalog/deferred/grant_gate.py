"""`GrantGate`: checks the grant of every call of a deferred tool, by whatever name or tool it is called."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, cast

import anyio

from mcp_toolset.catalog.deferred.findable import FindableTools, Resolution, of_away
from mcp_toolset.catalog.deferred.preparing import (
    HOLDERS,
    CallReading,
    explained,
    inner_readings,
    key_of,
    next_call,
    plain,
    query_of,
    readings_of,
)
from mcp_toolset.catalog.grants.access import AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger, GrantRecord, ToolGrant, replay_key
from mcp_toolset.catalog.search.index import SearchIndex
from mcp_toolset.errors import CallError, GrantError, GrantStoreError, InvalidArgumentsError, UnknownToolError
from mcp_toolset.tools.argument_repair import repairs_of, with_repairs
from mcp_toolset.tools.binding import HasContract, StoreMiss, loaded
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.python_stub import python_stub
from mcp_toolset.tools.result import InputRequired, ToolResult
from mcp_toolset.tools.validation import SchemaCheck
from mcp_toolset.tools.view import ToolBinding

_UNNEEDED: Final = frozenset(("outputSchema", "execution", "icons", "_meta", "title"))
_TOLD: Final = ("readOnlyHint", "destructiveHint")
_EMPTY: Final[tuple[object, ...]] = (None, {}, [], "")
_MAPS: Final = ("properties", "$defs", "definitions")
_LISTS: Final = ("anyOf", "oneOf", "allOf")
_DEEPEST: Final = 16  # levels of a schema that are looked at; what is deeper stays as it is


def needed(definition: Mapping[str, Any]) -> dict[str, Any]:
    """A definition without what is empty, and without what only programs read."""
    hints: Mapping[str, Any] = definition.get("annotations") or {}
    kept = {key: value for key, value in definition.items() if key not in _UNNEEDED}
    kept["annotations"] = {key: hints[key] for key in _TOLD if hints.get(key) is not None}
    kept["inputSchema"] = {
        key: value for key, value in _plain(kept["inputSchema"], None, 0).items() if key != "title"
    }
    return {key: value for key, value in kept.items() if value not in _EMPTY}


def _plain(schema: Mapping[str, Any], name: str | None, depth: int) -> dict[str, Any]:
    """A schema without its dialect, and without titles that only repeat the name of a property."""
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$schema" or (key == "title" and _is_repeated(value, name)):
            continue
        if key in ("description", "required", "default") and value in (None, [], ""):
            continue
        found[key] = value if depth == _DEEPEST else _part(key, value, name, depth + 1)
    return found


def _part(key: str, value: Any, name: str | None, depth: int) -> Any:
    if key in _MAPS and isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return {each: _schema(part, each, depth) for each, part in table.items()}
    if key in _LISTS and isinstance(value, list | tuple):
        return [_schema(part, name, depth) for part in cast("list[Any]", value)]
    return _schema(value, name, depth) if key == "items" else value


def _schema(value: Any, name: str | None, depth: int) -> Any:
    return _plain(cast("Mapping[str, Any]", value), name, depth) if isinstance(value, Mapping) else value


def _is_repeated(title: object, name: str | None) -> bool:
    if name is None or not isinstance(title, str):
        return False
    return title.replace(" ", "").casefold() == name.replace("_", "").casefold()


_NO_SUCH: Final = "no such tool; use the id of a search hit"
_SEARCH: Final = next_call("search_tools", {"query": query_of("")})
_COMPARED: Final = 5_000  # names with which an unknown id is compared where some tools are hidden
_LOOKED_AT: Final = 10  # hits among which those are looked for that an unknown id is like


class Resolver:
    """Grants the tools that a caller asks for by id, or says why it cannot have them."""

    def __init__(
        self,
        shown: FindableTools,
        ledger: GrantLedger,
        index: SearchIndex,
        arrive: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._shown = shown
        self._ledger = ledger
        self._index = index
        self._arrive = arrive

    async def resolve(
        self, ids: Sequence[str], context: ToolContext, *, stubs: bool = False
    ) -> list[Resolution]:
        """The outcome for each id, in order; one that comes twice is granted once."""
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
        """The ids of tools with names like that of one that does not exist."""
        # What the search finds depends on the words of all tools, so that it would tell of hidden ones: where
        # tools may be hidden, names are compared with those that the caller may see.
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


_MAX_READINGS: Final = 8  # readings of one call that are compared


class GrantGate:
    """Admits calls of deferred tools by their grants: when they arrive, and right before they run."""

    def __init__(self, ledger: GrantLedger, policy: AccessPolicy, shown: FindableTools) -> None:
        self._ledger = ledger
        self._policy = policy
        self._shown = shown
        self._ids = shown.ids

    def gate(self, call: ToolCall, context: ToolContext) -> None:
        self._admitted(call, context)

    def _admitted(self, call: ToolCall, context: ToolContext) -> ToolGrant:
        """The grant of a call; without a valid one the same error as for a tool that does not exist."""
        try:
            grant = self._found(call.grant or call.name, context)
        except GrantStoreError:
            raise UnknownToolError(call.name) from None
        except StoreMiss as miss:
            raise StoreMiss(partial(_unknown_unless, miss, call.name)) from None
        if grant is None or grant.name != call.name:
            raise UnknownToolError(call.name)
        self._check(grant, context)
        return grant

    def _check(self, grant: ToolGrant, context: ToolContext) -> None:
        binding = self._shown.tools.get(grant.name)
        if binding is None and (held := self._shown.why_held(grant, context)):
            raise GrantError(held)
        try:
            self._ledger.check(grant, binding)
        except GrantError as fault:
            again = next_call("resolve_tools", {"ids": [grant.name]})
            gone = next_call("search_tools", {"query": query_of(grant.name)})
            raise GrantError(f"{fault}\n{gone if binding is None else again}") from None

    def _found(self, reference: str, context: ToolContext) -> ToolGrant | None:
        grant = self._ledger.find(reference, context) or self._by_id(reference, context)
        binding = None if grant is None else self._shown.tools.get(grant.name)
        if binding is not None and self._policy.withheld(binding, context) is not None:
            return None
        return grant

    def _by_id(self, id: str, context: ToolContext) -> ToolGrant | None:
        names = self._ids.named(id, lambda name: name != id)
        return self._ledger.find(names[0], context) if len(names) == 1 else None

    async def run(self, binding: ToolBinding, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a call if it is still granted, and count its use; see `gate` for what it raises."""
        try:
            grant = self._admitted(call, context)
        except StoreMiss as miss:
            grant = await loaded(partial(self._admitted, call, context), miss)
        self._ledger.used(grant)
        if grant.uses is None:
            return await binding.execute(call, context)
        if not await self._ledger.spend(grant):
            raise GrantError(
                f"the grant for {grant.name} is used up; search for it and resolve it again\n"
                f"{next_call('resolve_tools', {'ids': [grant.name]})}"
            )
        try:
            result = await binding.execute(call, context)
        except InputRequired:
            await self._ledger.refund(grant)
            raise
        # A round trip to the client (2026-07-28) ends with the use that it began with.
        if not result.is_complete:
            await self._ledger.refund(grant)
        return result

    def redirect(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """The call that a call of `call_tool` stands for."""
        return self._verified(call, context)[1]

    def redirect_read_only(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """The same for `call_read_only_tool`, which takes tools that change nothing."""
        grant, redirected = self._verified(call, context)
        if not _changes_nothing(self._shown.tools[grant.name].definition):
            following = {"grant": redirected.grant, "arguments": redirected.arguments}
            raise GrantError(
                f"{grant.name} is not annotated as read-only; use call_tool\n"
                f"{next_call('call_tool', following)}"
            )
        return redirected

    def verified(self, reference: str, context: ToolContext) -> ToolGrant:
        return self._verified(ToolCall("call_tool", {"grant": reference}), context)[0]

    def _verified(self, call: ToolCall, context: ToolContext) -> tuple[ToolGrant, ToolCall]:
        reference: str = call.arguments["grant"]
        grant = self._found(reference, context)
        if grant is None and (clean := plain(reference)) != reference:
            grant = self._found(clean, context)
            if grant is not None:
                marked = {**call.arguments, "grant": clean}
                call, reference = with_repairs(call, marked, ["grant is without the marks around it"]), clean
        if grant is None:
            named = plain(reference)
            if self._shown.is_listed(named, context):
                raise GrantError(self._shown.direct(named))
            raise GrantError(self._shown.why_held_now(named, context) or _no_grant(named))
        self._check(grant, context)
        binding = self._shown.tools[grant.name].contracted()
        arguments: dict[str, Any] = call.arguments.get("arguments") or {}
        if not binding.arguments.is_valid(arguments):
            reading = self._inner(binding, grant, reference, arguments)
            if reading is not None:
                arguments = reading.arguments
                call = with_repairs(call, {"grant": reference, "arguments": arguments}, reading.done)
        return grant, ToolCall(grant.name, arguments, call.id, call.original, reference, call.repairs)

    def _inner(
        self, binding: ToolBinding, grant: ToolGrant, reference: str, arguments: dict[str, Any]
    ) -> CallReading | None:
        """What was meant by arguments that do not fit: the same ones, without another object around them."""
        if _fits(binding, arguments):
            return None
        readings = inner_readings(reference, arguments, self._names(grant) | {reference})
        return next((one for one in readings if _fits(binding, one.arguments)), None)

    def prepare(self, check: SchemaCheck, call: ToolCall, context: ToolContext) -> ToolCall:
        """A call of a calling tool as it was meant, if what was sent can be read in one way only."""
        if check.is_valid(call.arguments):
            return call
        readings = readings_of(call.arguments)[:_MAX_READINGS]
        granted = [(one, grant) for one in readings if (grant := self._named(one.reference, context))]
        kept = [one for one, grant in granted if {plain(value) for value in one.beside} <= self._names(grant)]
        chosen = self._chosen(call.name, kept, context) or self._closest(kept or readings, context)
        if chosen is None:
            return call
        meant = {"grant": plain(chosen.reference) or chosen.reference, "arguments": chosen.arguments}
        return with_repairs(call, meant, chosen.done) if check.is_valid(meant) else call

    def _closest(self, readings: Sequence[CallReading], context: ToolContext) -> CallReading | None:
        fits = partial(self._fits, context=context, known=False, sure=False)
        plain_ones = (one for one in readings if not any(key_of(key) in HOLDERS for key in one.arguments))
        return next((one for one in plain_ones if not fits(one)), None)

    def _named(self, reference: str, context: ToolContext) -> ToolGrant | None:
        return self._found(reference, context) or self._found(plain(reference), context)

    def _names(self, grant: ToolGrant) -> set[str]:
        names = {grant.source, grant.handle, grant.name}
        if grant.name in self._shown.tools:
            names |= self._ids.spellings(grant.name) | {self._shown.tools[grant.name].definition.name}
        return names

    def _chosen(self, name: str, readings: Sequence[CallReading], context: ToolContext) -> CallReading | None:
        for known in (True, False):
            fitting = [one for one in readings if self._fits(one, context, known=known)]
            different = _different(fitting)
            if len(different) > 1:
                raise InvalidArgumentsError(_two_readings(name, different[:2]))
            if different:
                return different[0]
        return None

    def _fits(self, reading: CallReading, context: ToolContext, *, known: bool, sure: bool = True) -> bool:
        """True if the arguments fit the tool, which lists their names (`known`), doubtful ones (`sure`)."""
        grant = self._named(reading.reference, context)
        listed = None if grant is None else self._shown.tools.get(grant.name)
        if listed is None or not _fits(binding := listed.contracted(), reading.arguments):
            return False
        properties: Mapping[str, Any] = binding.definition.input_schema.get("properties") or {}
        must = reading.arguments.keys() if known else reading.doubtful if sure else ()
        return properties.keys() >= set(must)

    def explained(self, binding: ToolBinding, call: ToolCall) -> str:
        calls = "call_read_only_tool" if _changes_nothing(binding.definition) else "call_tool"
        calls = calls if call.grant else call.name
        if binding.contract is not None and binding.contract.known() is not None:
            binding = binding.contracted()
        return explained(binding.definition, binding.arguments, calls, call, call.grant)


async def _unknown_unless(miss: StoreMiss, name: str) -> None:
    """Fetch what was missing; if it cannot be had, the tool is as unknown as to anybody without a grant."""
    try:
        await miss.load()
    except GrantStoreError:
        raise UnknownToolError(name) from None


def _no_grant(reference: str) -> str:
    told = f"no live grant for {reference!r}; find the tool with search_tools, then resolve_tools"
    if not reference:
        return f"{told}\n{next_call('search_tools', {'query': query_of('')})}"
    return f"{told}\n{next_call('resolve_tools', {'ids': [reference]})}"


def _fits(binding: ToolBinding, arguments: dict[str, Any]) -> bool:
    if binding.arguments.is_valid(arguments):
        return True
    if binding.prepare is None:
        return False
    return binding.arguments.is_valid(repairs_of(binding.definition.input_schema, arguments)[0])


def _different(readings: Iterable[CallReading]) -> list[CallReading]:
    found: dict[str, CallReading] = {}
    for one in readings:
        meant = [plain(one.reference), one.arguments]
        found.setdefault(json.dumps(meant, sort_keys=True, default=str), one)
    return list(found.values())


def _two_readings(name: str, readings: Sequence[CallReading]) -> str:
    calls = [next_call(name, {"grant": one.reference, "arguments": one.arguments}) for one in readings]
    return "Invalid arguments: they can be read in two ways; send the one you mean\n" + "\nor ".join(calls)


def _changes_nothing(definition: ToolDefinition) -> bool:
    """True if a tool says that it changes nothing, and does not say the opposite as well."""
    return definition.read_only and (definition.annotations or {}).get("destructiveHint") is not True
