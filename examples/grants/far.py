"""Grants in a place that has to be waited for, shared by two servers of one service."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio

from mcp_toolset import GrantLedger, Toolset, ToolsetServer, tool
from mcp_toolset.grants import CachedGrants, GrantFilter, GrantRecord, ToolGrant


class Database:
    """An `AsyncGrantStore`. Here it is a dictionary; yours sends one request in each method."""

    name = "the grants database"

    def __init__(self) -> None:
        self.grants: dict[str, ToolGrant] = {}
        self.outcomes: list[GrantRecord] = []
        self.definitions: dict[str, Mapping[str, Any]] = {}
        self.requests = 0

    async def round_trip(self) -> None:
        self.requests += 1
        await anyio.sleep(0.01)

    async def save(
        self, records: Sequence[GrantRecord], definitions: Mapping[str, Mapping[str, Any]]
    ) -> list[GrantRecord]:
        await self.round_trip()
        self.definitions.update(definitions)
        return [self.recorded_now(record) or self.add(record) for record in records]

    def add(self, record: GrantRecord) -> GrantRecord:
        self.outcomes.append(record)
        if (grant := record.grant) is not None:
            self.grants[grant.key] = grant if grant.owner else replace(grant, handle="")
        return record

    def recorded_now(self, wanted: GrantRecord) -> GrantRecord | None:
        same = (
            one
            for one in self.outcomes
            if (one.owner, one.replay, one.id) == (wanted.owner, wanted.replay, wanted.id)
        )
        return next(map(self.current, same), None) if wanted.replay else None

    def current(self, record: GrantRecord) -> GrantRecord:
        return record if record.grant is None else replace(record, grant=self.grants.get(record.grant.key))

    async def find(self, owner: str, key: str, name: str) -> ToolGrant | None:
        await self.round_trip()
        named = [one for one in self.grants.values() if owner and (one.owner, one.name) == (owner, name)]
        return self.grants.get(key) or (named[-1] if named else None)

    async def held(self, owner: str) -> list[ToolGrant]:
        await self.round_trip()
        return list({one.name: one for one in self.grants.values() if one.owner == owner}.values())

    async def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        await self.round_trip()
        return self.recorded_now(GrantRecord(owner, replay, id, at=0, expires=0))

    async def records(self, owner: str | None = None) -> list[GrantRecord]:
        await self.round_trip()
        return [self.current(one) for one in self.outcomes if owner in (None, one.owner)]

    async def definition(self, digest: str) -> Mapping[str, Any] | None:
        await self.round_trip()
        return self.definitions.get(digest)

    async def take(self, key: str) -> bool:
        await self.round_trip()
        # Nothing may come between these lines: a transaction, or one statement, in a database.
        grant = self.grants.get(key)
        if grant is None or grant.revoked or grant.uses == 0:
            return False
        if grant.uses is not None:
            self.grants[key] = replace(grant, uses=grant.uses - 1)
        return True

    async def give_back(self, key: str) -> None:
        await self.round_trip()
        grant = self.grants.get(key)
        if grant is not None and grant.uses is not None:
            self.grants[key] = replace(grant, uses=grant.uses + 1)

    async def revoke(self, which: GrantFilter) -> int:
        await self.round_trip()
        meant = [one for one in self.grants.values() if which.fits(one) and not one.revoked]
        self.grants.update({one.key: replace(one, revoked=True) for one in meant})
        return len(meant)


@tool
def archive(number: int) -> str:
    """Find an invoice in the archive."""
    return f"invoice {number}"


database = Database()


def process() -> ToolsetServer:
    """What each process of the service makes; `max_age` bounds how long a grant outlives its end here."""
    return ToolsetServer(
        Toolset(archive).deferred(), grants=GrantLedger(CachedGrants(database, max_age=10, timeout=2))
    )


async def main() -> None:
    async with process() as first, process() as second:
        resolved = await first.call_tool("resolve_tools", {"ids": ["archive"]})
        call = {"grant": resolved.structured["tools"][0]["grant"], "arguments": {"number": 7}}
        for _ in range(3):
            before = database.requests
            result = await second.call_tool("call_tool", call)
            print(result.text, "after", database.requests - before, "requests")
        print(await second.grants.revoke_async(handle=call["grant"]), "taken back")
        print((await second.call_tool("call_tool", call)).text)


if __name__ == "__main__":
    asyncio.run(main())
