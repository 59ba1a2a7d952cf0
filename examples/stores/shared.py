"""Three servers of one service share a rate, cached results, and which tools are switched on."""

import asyncio
import time

from mcp_toolset import RateLimit, ResultCache, Rules, StateStore, Toolset, ToolsetServer, tool
from mcp_toolset.middleware import CacheStore, LimitStore, TokensTaken


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


class Members:
    """A `StateStore`: one row that is updated if it is still what was read."""

    name = "the members"

    def __init__(self) -> None:
        self.text: str | None = None

    async def load(self) -> str | None:
        return self.text

    async def save(self, text: str, before: str | None) -> bool:
        if self.text != before:
            return False
        self.text = text
        return True


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
members: StateStore = Members()


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
