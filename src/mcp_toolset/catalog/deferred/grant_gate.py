"""`GrantGate`: checks the grant of every call of a deferred tool, by whatever name or tool it is called."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mcp_toolset.catalog.deferred.hit_ids import HitIds
from mcp_toolset.catalog.grants.access import AccessPolicy
from mcp_toolset.catalog.grants.ledger import GrantLedger, ToolGrant
from mcp_toolset.errors import GrantError, GrantStoreError, UnknownToolError
from mcp_toolset.tools.binding.binding import StoreMiss, loaded
from mcp_toolset.tools.core.asking import InputRequired
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.view.view import ToolBinding


class GrantGate:
    """Admits calls of deferred tools by their grants: when they arrive, and right before they run.

    Attributes:
        tools: The present deferred tools by public name.
    """

    def __init__(self, ledger: GrantLedger, policy: AccessPolicy, ids: HitIds) -> None:
        """Start without tools."""
        self.tools: Mapping[str, ToolBinding] = {}
        self._ledger = ledger
        self._policy = policy
        self._ids = ids

    def gate(self, call: ToolCall, context: ToolContext) -> None:
        """Refuse a call without a grant, when it arrives.

        Raises:
            UnknownToolError: the caller has no valid grant.
            GrantError: the tool has changed since it was granted.
            StoreMiss: the store must be awaited, and the grant is not cached.
        """
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
        self._ledger.check(grant, self.tools.get(grant.name))
        return grant

    def _found(self, reference: str, context: ToolContext) -> ToolGrant | None:
        """The caller's grant, if the access policy allows the tool."""
        grant = self._ledger.find(reference, context) or self._by_id(reference, context)
        binding = None if grant is None else self.tools.get(grant.name)
        if binding is not None and self._policy.withheld(binding, context) is not None:
            return None
        return grant

    def _by_id(self, id: str, context: ToolContext) -> ToolGrant | None:
        """The caller's grant for the tool that an id stands for."""
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
            raise GrantError(f"the grant for {grant.name} is used up; search for it and resolve it again")
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
        """The call that a call of `call_tool` stands for.

        Raises:
            GrantError: the grant is not there, or not for the tool as it is by now.
        """
        return _standing_for(call, self._verified(call, context))

    def redirect_read_only(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """The same for `call_read_only_tool`, which takes tools that change nothing."""
        grant = self._verified(call, context)
        if not _changes_nothing(self.tools[grant.name].definition):
            raise GrantError(f"{grant.name} is not annotated as read-only; use call_tool")
        return _standing_for(call, grant)

    def _verified(self, call: ToolCall, context: ToolContext) -> ToolGrant:
        reference: str = call.arguments["grant"]
        grant = self._found(reference, context)
        if grant is None:
            raise GrantError(
                f"no live grant for {reference!r}; find the tool with search_tools, then resolve_tools"
            )
        self._ledger.check(grant, self.tools.get(grant.name))
        return grant


async def _unknown_unless(miss: StoreMiss, name: str) -> None:
    """Fetch what was missing; if it cannot be had, the tool is as unknown as to anybody without a grant."""
    try:
        await miss.load()
    except GrantStoreError:
        raise UnknownToolError(name) from None


def _standing_for(call: ToolCall, grant: ToolGrant) -> ToolCall:
    arguments: dict[str, Any] = call.arguments.get("arguments") or {}
    return ToolCall(grant.name, arguments, call.id, grant=call.arguments["grant"])


def _changes_nothing(definition: ToolDefinition) -> bool:
    """Whether a tool says that it changes nothing, and does not say the opposite as well."""
    return definition.read_only and (definition.annotations or {}).get("destructiveHint") is not True
