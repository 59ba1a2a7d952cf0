"""`GrantGate`: checks the grant of every call of a deferred tool, by whatever name or tool it is called."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from mcp_toolset.catalog.deferred.findable import FindableTools
from mcp_toolset.catalog.deferred.next_call import explained, next_call, query_of
from mcp_toolset.catalog.deferred.slips import HOLDERS, Reading, inner_readings, key_of, plain, readings_of
from mcp_toolset.catalog.grants.access import AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger, ToolGrant
from mcp_toolset.errors import GrantError, GrantStoreError, InvalidArgumentsError, UnknownToolError
from mcp_toolset.tools.binding.binding import StoreMiss, loaded
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.result import InputRequired, ToolResult
from mcp_toolset.tools.schema.argument_repair import repairs_of, with_repairs
from mcp_toolset.tools.schema.validation import SchemaCheck
from mcp_toolset.tools.view.view import ToolBinding

_MAX_READINGS: Final = 8
"""Readings of one call that are compared."""


class GrantGate:
    """Admits calls of deferred tools by their grants: when they arrive, and right before they run."""

    def __init__(self, ledger: GrantLedger, policy: AccessPolicy, shown: FindableTools) -> None:
        self._ledger = ledger
        self._policy = policy
        self._shown = shown
        self._ids = shown.ids

    def gate(self, call: ToolCall, context: ToolContext) -> None:
        """Refuse a call without a grant, when it arrives."""
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
        """Refuse a grant that is no longer valid, with the way on."""
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
        """The caller's grant, if the access policy allows the tool."""
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
    ) -> Reading | None:
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
        kept = [one for one, grant in granted if self._says_again(one, grant)]
        chosen = self._chosen(call.name, kept, context) or self._closest(kept or readings, context)
        if chosen is None:
            return call
        meant = {"grant": plain(chosen.reference) or chosen.reference, "arguments": chosen.arguments}
        return with_repairs(call, meant, chosen.done) if check.is_valid(meant) else call

    def _closest(self, readings: Sequence[Reading], context: ToolContext) -> Reading | None:
        """A reading for the sake of its error: it must not run."""
        fits = partial(self._fits, context=context, known=False, sure=False)
        plain_ones = (one for one in readings if not any(key_of(key) in HOLDERS for key in one.arguments))
        return next((one for one in plain_ones if not fits(one)), None)

    def _named(self, reference: str, context: ToolContext) -> ToolGrant | None:
        return self._found(reference, context) or self._found(plain(reference), context)

    def _says_again(self, reading: Reading, grant: ToolGrant) -> bool:
        """Whether what a reading leaves out names the tool of the grant, and nothing else."""
        return {plain(value) for value in reading.beside} <= self._names(grant)

    def _names(self, grant: ToolGrant) -> set[str]:
        """What names the tool of a grant, or its server."""
        names = {grant.source, grant.handle, grant.name}
        if grant.name in self._shown.tools:
            names |= self._ids.spellings(grant.name) | {self._shown.tools[grant.name].definition.name}
        return names

    def _chosen(self, name: str, readings: Sequence[Reading], context: ToolContext) -> Reading | None:
        """The only reading that fits its tool; `None` if none does."""
        for known in (True, False):
            fitting = [one for one in readings if self._fits(one, context, known=known)]
            different = _different(fitting)
            if len(different) > 1:
                raise InvalidArgumentsError(_two_readings(name, different[:2]))
            if different:
                return different[0]
        return None

    def _fits(self, reading: Reading, context: ToolContext, *, known: bool, sure: bool = True) -> bool:
        """Whether the arguments of a reading fit its tool.

        Args:
            reading: The reading.
            context: The caller's.
            known: Whether the tool must list each of their names.
            sure: Whether it must list those that may have been meant to name a tool.
        """
        grant = self._named(reading.reference, context)
        listed = None if grant is None else self._shown.tools.get(grant.name)
        if listed is None or not _fits(binding := listed.contracted(), reading.arguments):
            return False
        properties: Mapping[str, Any] = binding.definition.input_schema.get("properties") or {}
        must = reading.arguments.keys() if known else reading.doubtful if sure else ()
        return properties.keys() >= set(must)

    def explained(self, binding: ToolBinding, call: ToolCall) -> str:
        """What follows the faults of arguments of a deferred tool: the signature, and the next call."""
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
    """The same for what does not exist, was not granted, and was granted to another caller."""
    told = f"no live grant for {reference!r}; find the tool with search_tools, then resolve_tools"
    if not reference:
        return f"{told}\n{next_call('search_tools', {'query': query_of('')})}"
    return f"{told}\n{next_call('resolve_tools', {'ids': [reference]})}"


def _fits(binding: ToolBinding, arguments: dict[str, Any]) -> bool:
    """Whether arguments fit a tool, repaired as they are where the tool has its arguments repaired."""
    if binding.arguments.is_valid(arguments):
        return True
    if binding.prepare is None:
        return False
    return binding.arguments.is_valid(repairs_of(binding.definition.input_schema, arguments)[0])


def _different(readings: Iterable[Reading]) -> list[Reading]:
    """The first reading of those that mean the same call."""
    found: dict[str, Reading] = {}
    for one in readings:
        meant = [plain(one.reference), one.arguments]
        found.setdefault(json.dumps(meant, sort_keys=True, default=str), one)
    return list(found.values())


def _two_readings(name: str, readings: Sequence[Reading]) -> str:
    calls = [next_call(name, {"grant": one.reference, "arguments": one.arguments}) for one in readings]
    return "Invalid arguments: they can be read in two ways; send the one you mean\n" + "\nor ".join(calls)


def _changes_nothing(definition: ToolDefinition) -> bool:
    """Whether a tool says that it changes nothing, and does not say the opposite as well."""
    return definition.read_only and (definition.annotations or {}).get("destructiveHint") is not True
