"""A catalog in front of grants that are kept in another process, on a clock that the test sets."""

from __future__ import annotations

from typing import Any

import anyio
from tests.catalog.test_deferred import deferred
from tests.support.calling import Caller, tool_table

from mcp_toolset import Rules, ToolCall, ToolContext, ToolResult
from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
from mcp_toolset.catalog.grants.cached_grants import CachedGrants
from mcp_toolset.catalog.grants.store import StoredGrants
from mcp_toolset.grants import GrantLedger

READ = deferred("read_invoice", text="Read an invoice.", read_only=True)
SESSION, ANN, NOBODY = Caller(session="one"), Caller(principal="ann"), Caller()
TTL = 1000.0
RAN = 'read_invoice {"n": 1}'
"""The answer of the tool."""


class Desk:
    """One process with a catalog: its copy of the store, on a clock that the test sets."""

    def __init__(self, store: Any, rules: Rules | None = None, **ledger: Any) -> None:
        self.now = 100.0
        self.store = store
        self.copy = CachedGrants(StoredGrants(store), ttl=TTL, clock=lambda: self.now)
        self.ledger = GrantLedger(self.copy, **ledger)
        self.catalog = DeferredCatalog(self.ledger)
        self.catalog.update([READ])
        self.dispatch = tool_table(self.catalog.bindings(), rules=rules)

    async def call(self, name: str, context: ToolContext = ANN, /, **arguments: Any) -> ToolResult:
        with anyio.fail_after(30):
            return await self.dispatch.call(ToolCall(name, arguments), context)

    async def grant(self, context: ToolContext = ANN) -> str:
        found = await self.call("resolve_tools", context, ids=["read_invoice"])
        return found.structured["tools"][0]["grant"]

    async def read(self, grant: str, context: ToolContext = ANN) -> str:
        return (await self.call("call_tool", context, grant=grant, arguments={"n": 1})).text
