"""Three servers of one service share a rate, cached results, and which tools are switched on."""

import asyncio
import time
from itertools import count
from math import inf

from mcp_toolset import RateLimit, ResultCache, Rules, Toolset, ToolsetServer, tool
from mcp_toolset.middleware import CacheStore, LimitStore, TokensTaken
from mcp_toolset.shared import Entry, Put, Store


class Limits:
    """A `LimitStore`: one script in Redis, one transaction in a database."""

    name = "the limits"

    def __init__(self) -> None:
        self.buckets: dict[str, tuple[float, float]] = {}

    async def take(self, key: str, *, calls: int, per_seconds: float, wanted: int) -> TokensTaken:
        now, rate = time.time(), calls / per_seconds
        tokens, filled = self.buckets.get(key, (calls, now))
        tokens = min(calls, tokens + (now - filled) * rate)
        taken = min(int(tokens), wanted)
        self.buckets[key] = (tokens - taken, now)
        return TokensTaken(taken, wait=(1 - tokens) / rate if not taken else 0)


class Results:
    """A `CacheStore`: `GET`, and `SET` with an expiry."""

    name = "the results"

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    async def load(self, key: str) -> bytes | None:
        return self.values.get(key)

    async def save(self, key: str, value: bytes, *, seconds: float) -> None:
        self.values[key] = value


class Table(Store):
    """A `Store`: here a table in memory, in a database one with these columns."""

    name = "the table"

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], tuple[Entry, float]] = {}
        self.tags = count(1)

    async def get(self, *places: tuple[str, str]) -> list[Entry | None]:
        rows = [self.rows.get(place) for place in places]
        return [row[0] if row and row[1] > time.time() else None for row in rows]

    async def write(self, *puts: Put, synced: bool = True, tell: bytes = b"") -> list[Entry | None] | None:
        standing = await self.get(*((put.shelf, put.name) for put in puts))
        tags = [0 if entry is None else entry.tag for entry in standing]
        if any(put.known not in (None, tag) for put, tag in zip(puts, tags, strict=True)):
            return standing
        for put in puts:
            self.rows.pop((put.shelf, put.name), None)
            if put.value is not None:
                until = inf if put.seconds is None else time.time() + put.seconds
                self.rows[put.shelf, put.name] = Entry(put.value, put.tag or next(self.tags)), until
        return None

    async def names(self, shelf: str) -> list[str]:
        return []  # the journal and grants list their entries, by the `at` of each

    async def lives(self, owner: str) -> bool:
        return False  # the journal and processes ask


@tool(read_only=True)
def rate_of(currency: str) -> str:
    """The rate of a currency."""
    print("asked the bank")
    return f"{currency}: 1.1"


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


limits: LimitStore = Limits()
results: CacheStore = Results()
members = Table()


def process() -> ToolsetServer:
    """What each process of the service makes."""
    rules = Rules(
        middleware=[ResultCache(60, store=results)],
        tool_middleware={"pay": [RateLimit(3, 3600, store=limits)]},
    )
    return ToolsetServer(Toolset(rate_of, pay), rules=rules, state=members)


async def main() -> None:
    async with process() as first:
        for amount in (1, 2):
            print((await first.call_tool("pay", {"amount": amount})).text)
        print((await first.call_tool("rate_of", {"currency": "EUR"})).text)
    async with process() as second:
        print((await second.call_tool("pay", {"amount": 3})).text)
        print((await second.call_tool("pay", {"amount": 4})).is_error)
        print((await second.call_tool("rate_of", {"currency": "EUR"})).text)
        await second.choose({"pay": False})
    async with process() as third:
        print([tool["name"] for tool in third.tools()])


if __name__ == "__main__":
    asyncio.run(main())
