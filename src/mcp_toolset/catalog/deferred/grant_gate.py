"""`GrantGate`: checks the grant of every call, whether it comes by `call_tool` or by the name of the tool."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from mcp_toolset.catalog.deferred import preparing
from mcp_toolset.catalog.deferred.findable import FindableTools
from mcp_toolset.catalog.grants.access import AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger, ToolGrant
from mcp_toolset.errors import GrantError, GrantStoreError, InvalidArgumentsError, UnknownToolError
from mcp_toolset.tools.argument_repair import repairs_of, with_repairs
from mcp_toolset.tools.binding import StoreMiss, loaded
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import InputRequired, ToolResult
from mcp_toolset.tools.validation import SchemaCheck
from mcp_toolset.tools.view import ToolBinding

_MAX_READINGS: Final = 8  # readings of one call that are compared


class GrantGate:
    """Checks the grants of calls of deferred tools: when they arrive, and right before they run."""

    def __init__(self, ledger: GrantLedger, policy: AccessPolicy, findable: FindableTools) -> None:
        self._ledger = ledger
        self._policy = policy
        self._findable = findable
        self._ids = findable.ids

    def gate(self, call: ToolCall, context: ToolContext) -> ToolGrant:
        """The valid grant of a call; without one, the same error as for a tool that does not exist."""
        try:
            grant = self._found(call.grant or call.name, context)
        except GrantStoreError:
            raise UnknownToolError(call.name) from None
        except StoreMiss as miss:
            raise StoreMiss(partial(_fetched_or_unknown, miss, call.name)) from None
        if grant is None or grant.name != call.name:
            raise UnknownToolError(call.name)
        self._check(grant, context)
        return grant

    def _check(self, grant: ToolGrant, context: ToolContext) -> None:
        """Refuse a grant that is not valid now; the error says how to get a new one."""
        binding = self._findable.tools.get(grant.name)
        if binding is None and (held := self._findable.why_held(grant, context)):
            raise GrantError(held)
        try:
            self._ledger.check(grant, binding)
        except GrantError as fault:
            again = preparing.next_call("resolve_tools", {"ids": [grant.name]})
            gone = preparing.next_call("search_tools", {"query": preparing.query_of(grant.name)})
            raise GrantError(f"{fault}\n{gone if binding is None else again}") from None

    def _found(self, reference: str, context: ToolContext) -> ToolGrant | None:
        """The caller's grant by its handle, its tool's name or id; `None` if a policy withholds the tool."""
        grant = self._ledger.find(reference, context) or self._by_id(reference, context)
        binding = None if grant is None else self._findable.tools.get(grant.name)
        if binding is not None and self._policy.withheld(binding, context) is not None:
            return None
        return grant

    def _by_id(self, id: str, context: ToolContext) -> ToolGrant | None:
        names = self._ids.named(id, lambda name: name != id)
        return self._ledger.find(names[0], context) if len(names) == 1 else None

    async def run(self, binding: ToolBinding, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a call if it is still granted, and count its use; see `gate` for what it raises."""
        try:
            grant = self.gate(call, context)
        except StoreMiss as miss:
            grant = await loaded(partial(self.gate, call, context), miss)
        self._ledger.used(grant)
        if grant.uses is None:
            return await binding.execute(call, context)
        if not await self._ledger.spend(grant):
            raise GrantError(
                f"the grant for {grant.name} is used up; search for it and resolve it again\n"
                f"{preparing.next_call('resolve_tools', {'ids': [grant.name]})}"
            )
        try:
            result = await binding.execute(call, context)
        except InputRequired:
            await self._ledger.refund(grant)
            raise
        # The repeated call of a round trip (2026-07-28) counts as the same use.
        if not result.is_complete:
            await self._ledger.refund(grant)
        return result

    def redirect(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """The call of the granted tool, from a call of `call_tool`."""
        return self._verified(call, context)[1]

    def redirect_read_only(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """Like `redirect`, for `call_read_only_tool`: refuse a tool that may change something."""
        grant, redirected = self._verified(call, context)
        if not _changes_nothing(self._findable.tools[grant.name].definition):
            following = {"grant": redirected.grant, "arguments": redirected.arguments}
            raise GrantError(
                f"{grant.name} is not annotated as read-only; use call_tool\n"
                f"{preparing.next_call('call_tool', following)}"
            )
        return redirected

    def verified(self, reference: str, context: ToolContext) -> ToolGrant:
        """The valid grant of a reference; it raises the errors of `redirect`."""
        return self._verified(ToolCall("call_tool", {"grant": reference}), context)[0]

    def _verified(self, call: ToolCall, context: ToolContext) -> tuple[ToolGrant, ToolCall]:
        """The grant of a call of `call_tool`, and the call of its tool; simple mistakes are repaired."""
        reference: str = call.arguments["grant"]
        grant = self._found(reference, context)
        if grant is None and (clean := preparing.plain(reference)) != reference:
            grant = self._found(clean, context)
            if grant is not None:
                marked = {**call.arguments, "grant": clean}
                call, reference = with_repairs(call, marked, ["grant is without the marks around it"]), clean
        if grant is None:
            raise self._without_grant(preparing.plain(reference), context)
        self._check(grant, context)
        binding = self._findable.tools[grant.name].contracted()
        arguments: dict[str, Any] = call.arguments.get("arguments") or {}
        if not binding.arguments.is_valid(arguments):
            reading = self._unwrapped(binding, grant, reference, arguments)
            if reading is not None:
                arguments = reading.arguments
                call = with_repairs(call, {"grant": reference, "arguments": arguments}, reading.done)
        return grant, ToolCall(grant.name, arguments, call.id, call.original, reference, call.repairs)

    def _without_grant(self, reference: str, context: ToolContext) -> GrantError:
        """The error for a reference that names no grant of the caller."""
        if self._findable.is_listed(reference, context):
            return GrantError(self._findable.direct(reference))
        return GrantError(self._findable.why_held_now(reference, context) or _no_grant(reference))

    def _unwrapped(
        self, binding: ToolBinding, grant: ToolGrant, reference: str, arguments: dict[str, Any]
    ) -> preparing.CallReading | None:
        """The arguments without a wrapper object around them, if they fit the tool only then."""
        if _fits(binding, arguments):
            return None
        readings = preparing.inner_readings(reference, arguments, self._names(grant) | {reference})
        return next((one for one in readings if _fits(binding, one.arguments)), None)

    def prepare(self, check: SchemaCheck, call: ToolCall, context: ToolContext) -> ToolCall:
        """Repair the arguments of `call_tool`, if they can be read in one way only."""
        if check.is_valid(call.arguments):
            return call
        readings = preparing.readings_of(call.arguments)[:_MAX_READINGS]
        granted = [(one, grant) for one in readings if (grant := self._grant_of(one.reference, context))]
        kept = [
            one
            for one, grant in granted
            if {preparing.plain(value) for value in one.beside} <= self._names(grant)
        ]
        chosen = self._chosen(call.name, kept, context) or self._closest(kept or readings, context)
        if chosen is None:
            return call
        meant = {
            "grant": preparing.plain(chosen.reference) or chosen.reference,
            "arguments": chosen.arguments,
        }
        return with_repairs(call, meant, chosen.done) if check.is_valid(meant) else call

    def _closest(
        self, readings: Sequence[preparing.CallReading], context: ToolContext
    ) -> preparing.CallReading | None:
        """A reading whose arguments do not fit its tool, for the error; none with a wrapper object."""
        fits = partial(self._fits, context=context, known=False, sure=False)
        plain_ones = (
            one
            for one in readings
            if not any(preparing.key_of(key) in preparing.HOLDERS for key in one.arguments)
        )
        return next((one for one in plain_ones if not fits(one)), None)

    def _grant_of(self, reference: str, context: ToolContext) -> ToolGrant | None:
        return self._found(reference, context) or self._found(preparing.plain(reference), context)

    def _names(self, grant: ToolGrant) -> set[str]:
        """The texts by which a model may name a granted tool: its grant, server, names and ids."""
        names = {grant.source, grant.grant, grant.name}
        if grant.name in self._findable.tools:
            names |= self._ids.spellings(grant.name) | {self._findable.tools[grant.name].definition.name}
        return names

    def _chosen(
        self, name: str, readings: Sequence[preparing.CallReading], context: ToolContext
    ) -> preparing.CallReading | None:
        """The only reading that fits; an error if two different readings do."""
        for known in (True, False):
            fitting = [one for one in readings if self._fits(one, context, known=known)]
            different = _different(fitting)
            if len(different) > 1:
                raise InvalidArgumentsError(_two_readings(name, different[:2]))
            if different:
                return different[0]
        return None

    def _fits(
        self, reading: preparing.CallReading, context: ToolContext, *, known: bool, sure: bool = True
    ) -> bool:
        """True if a reading's arguments fit its tool.

        Args:
            reading: A reading of the call.
            context: The caller.
            known: True if the schema must have all names of the arguments.
            sure: True if it must have at least the doubtful names.
        """
        grant = self._grant_of(reading.reference, context)
        listed = None if grant is None else self._findable.tools.get(grant.name)
        if listed is None or not _fits(binding := listed.contracted(), reading.arguments):
            return False
        properties: Mapping[str, Any] = binding.definition.input_schema.get("properties") or {}
        must = reading.arguments.keys() if known else reading.doubtful if sure else ()
        return properties.keys() >= set(must)

    def explained(self, binding: ToolBinding, call: ToolCall) -> str:
        """The text after an error of arguments: how the tool is called correctly."""
        calls = "call_read_only_tool" if _changes_nothing(binding.definition) else "call_tool"
        calls = calls if call.grant else call.name
        if binding.contract is not None and binding.contract.known() is not None:
            binding = binding.contracted()
        return preparing.explained(binding.definition, binding.arguments, calls, call, call.grant)


async def _fetched_or_unknown(miss: StoreMiss, name: str) -> None:
    """Fetch missing data; if the store fails, raise the error for a tool without a grant."""
    try:
        await miss.load()
    except GrantStoreError:
        raise UnknownToolError(name) from None


def _no_grant(reference: str) -> str:
    told = f"no live grant for {reference!r}; find the tool with search_tools, then resolve_tools"
    if not reference:
        return f"{told}\n{preparing.next_call('search_tools', {'query': preparing.query_of('')})}"
    return f"{told}\n{preparing.next_call('resolve_tools', {'ids': [reference]})}"


def _fits(binding: ToolBinding, arguments: dict[str, Any]) -> bool:
    """True if arguments are valid for a tool, as they are or after repairs."""
    if binding.arguments.is_valid(arguments):
        return True
    if binding.prepare is None:
        return False
    return binding.arguments.is_valid(repairs_of(binding.definition.input_schema, arguments)[0])


def _different(readings: Iterable[preparing.CallReading]) -> list[preparing.CallReading]:
    """The readings without duplicates."""
    found: dict[str, preparing.CallReading] = {}
    for one in readings:
        meant = [preparing.plain(one.reference), one.arguments]
        found.setdefault(json.dumps(meant, sort_keys=True, default=str), one)
    return list(found.values())


def _two_readings(name: str, readings: Sequence[preparing.CallReading]) -> str:
    calls = [
        preparing.next_call(name, {"grant": one.reference, "arguments": one.arguments}) for one in readings
    ]
    return "Invalid arguments: they can be read in two ways; send the one you mean\n" + "\nor ".join(calls)


def _changes_nothing(definition: ToolDefinition) -> bool:
    """True if a tool is annotated as read-only, and not as destructive as well."""
    return definition.read_only and (definition.annotations or {}).get("destructiveHint") is not True
