"""Code mode: one task of three calls over 200 rows as round trips, as code, and as code in FastMCP.

    python benchmarks/code.py [--quick] [--pause SECONDS] [--json FILE]

All clients and servers are in one process. Each round takes every way in turn, in the opposite order in odd
rounds; a ratio is the median of those within a round. With `--pause` every call comes some time after the
one before it, as those of a model do. Tokens are what a model writes and reads, by OpenAI's
public o200k vocabulary (`bpe-openai`). FastMCP's `CodeMode` is measured where `fastmcp` is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from tokens import tokenizer

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.orders import CODE, OFFICE, ROWS

from mcp_toolset import ToolsetServer

TOOLS = ("orders_list", "rates_get", "report_save")
Way = Callable[[], Awaitable[Any]]


@dataclass(frozen=True)
class Row:
    """One way: median milliseconds, the ratio to our code with the same snippet, and tokens, if counted."""

    way: str
    p50_ms: float
    ratio: float
    written: int | None = None
    read: int | None = None


class Exchanged:
    """Calls of one client, with what a model has written and read of the last task."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.written: list[str] = []
        self.read: list[str] = []

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        result = await self.client.call_tool(name, arguments)
        assert not result.is_error, result
        self.written.append(json.dumps(arguments, separators=(",", ":")))
        self.read += [getattr(block, "text", "") for block in result.content]
        return result.structured_content


@asynccontextmanager
async def ours() -> AsyncGenerator[tuple[Exchanged, list[str]]]:
    server = ToolsetServer(OFFICE.deferred(code=True))
    async with server, Client(server.lowlevel) as client:
        found = await client.call_tool("resolve_tools", {"ids": list(TOOLS), "stubs": True})
        yield Exchanged(client), [one["grant"] for one in (found.structured_content or {})["tools"]]


async def trips(one: Exchanged, grants: Sequence[str]) -> None:
    """The task in three round trips, with the arithmetic that a model would do in its head."""
    one.written, one.read = [], []
    got = await one.call("call_tool", {"grant": grants[0], "arguments": {"month": "2026-11"}})
    rates = (await one.call("call_tool", {"grant": grants[1], "arguments": {"base": "EUR"}}))["rates"]
    sums: dict[str, float] = {}
    for order in got["orders"]:
        if order["status"] != "paid":
            key = f"{order['country']}/{order['status']}"
            sums[key] = sums.get(key, 0) + order["amount"] * rates[order["currency"]]
    rows = [{"key": key, "eur": round(value, 2)} for key, value in sorted(sums.items())]
    arguments = {"title": "Open and late, November", "rows": rows}
    await one.call("call_tool", {"grant": grants[2], "arguments": arguments})


async def coded(one: Exchanged, grants: Sequence[str], code: str = CODE) -> None:
    one.written, one.read = [], []
    await one.call("run_code", {"code": code, "grants": list(grants)})


@asynccontextmanager
async def fastmcp() -> AsyncGenerator[dict[str, Callable[[str], Awaitable[Any]]]]:
    """FastMCP's server behind its own client, and behind the SDK's, which ours is measured with."""
    from fastmcp import Client as FastMCPClient  # pyright: ignore[reportMissingImports]
    from fastmcp import FastMCP  # pyright: ignore[reportMissingImports]
    from fastmcp.experimental.transforms.code_mode import CodeMode  # pyright: ignore[reportMissingImports]

    server = FastMCP("orders", transforms=[CodeMode()])

    @server.tool
    def orders_list(month: str, limit: int = 200) -> dict[str, Any]:
        return {"orders": ROWS[:limit], "total": len(ROWS)}

    @server.tool
    def rates_get(base: str) -> dict[str, Any]:
        return {"base": base, "rates": {"EUR": 1.0, "CHF": 1.07, "JPY": 0.0061}}

    @server.tool
    def report_save(title: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {"saved": title, "rows": len(rows)}

    # It has no public name for the server of the SDK within.
    async with FastMCPClient(server) as client, Client(server._mcp_server) as plain:
        yield {
            "FastMCP execute": lambda code: client.call_tool("execute", {"code": code}),
            "FastMCP execute, SDK client": lambda code: plain.call_tool("execute", {"code": code}),
        }


_CALL = re.compile(rf"({'|'.join(TOOLS)})\((.*?)\)")


def for_fastmcp(code: str) -> str:
    """The same snippet with `call_tool` in place of the functions."""
    return _CALL.sub(r"call_tool('\1', dict(\2))", code)


async def sampled(way: Way, times: int, pause: float = 0.0) -> list[float]:
    found: list[float] = []
    for _ in range(times):
        if pause:
            await anyio.sleep(pause)
        began = time.perf_counter()
        await way()
        found.append((time.perf_counter() - began) * 1000)
    return found


async def measured(rounds: int, times: int, pause: float) -> list[Row]:
    count = tokenizer()
    async with AsyncExitStack() as stack:
        one, grants = await stack.enter_async_context(ours())
        ways: dict[str, Way] = {
            "three call_tool": lambda: trips(one, grants),
            "run_code": lambda: coded(one, grants),
            "run_code, empty": lambda: coded(one, grants, "1 + 1"),
        }
        if find_spec("fastmcp"):
            theirs = for_fastmcp(CODE)
            for name, execute in (await stack.enter_async_context(fastmcp())).items():
                ways[name] = partial(execute, theirs)
                ways[f"{name}, empty"] = partial(execute, "1 + 1")
        tokens: dict[str, tuple[int, int]] = {}
        for name, way in ways.items():
            await sampled(way, 2)
            if count and not name.startswith("FastMCP"):
                tokens[name] = (count("".join(one.written)), count("".join(one.read)))
        samples: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(rounds):
            order = list(ways.items())
            for name, way in order if turn % 2 == 0 else reversed(order):
                samples[name].append(statistics.median(await sampled(way, times, pause)))
    rows: list[Row] = []
    for name, taken in samples.items():
        base = samples["run_code, empty" if name.endswith("empty") else "run_code"]
        ratio = statistics.median(mine / ours for mine, ours in zip(taken, base, strict=True))
        rows.append(Row(name, statistics.median(taken), ratio, *tokens.get(name, (None, None))))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--pause", type=float, default=0.0, metavar="SECONDS", help="before each call")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = anyio.run(measured, *((2, 5) if options.quick else (21, 8)), options.pause)
    print(
        f"load {os.getloadavg()[0]:.1f}\n\n| way | p50 ms | ratio | written | read |\n|---|--:|--:|--:|--:|"
    )
    for row in rows:
        shown = ["" if value is None else str(value) for value in (row.written, row.read)]
        print(f"| {row.way} | {row.p50_ms:.2f} | {row.ratio:.1f} | {' | '.join(shown)} |")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
