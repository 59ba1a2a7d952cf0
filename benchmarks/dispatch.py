"""The cost of a call between `call_tool` and the function: this toolkit's dispatch against FastMCP's.

    python benchmarks/dispatch.py [--rounds 7] [--budget 0.15] [--tools 10,1000,10000] [--depth 1,10]

The tool is local, async, takes two integers and gives one, as a structured result. `ours` passes the gate,
the compiled argument check, one middleware, one hook and the output check; `ours_served` is the same by
`ToolsetServer.call_tool`, without a gate. Their hook awaits nothing, so that no deadline is set for it; that
of `ours_awaiting`, in all else `ours_served`, awaits a function. The base, `fastmcp`, is `FastMCP.call_tool`
on a server with ten tools and nothing else, whatever the case; `fastmcp_alike` has the tools and nesting of
the case. All are measured in interleaved rounds: compare the ratios. `--quick` only shows that it all runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import anyio
from measuring import Call, Figures, figures, interleaved, markdown, separate_heaps
from reporting import say, surroundings

from mcp_toolset import (
    HookSet,
    RunNormally,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.calls.dispatch import ToolDispatch
from mcp_toolset.middleware import CallNext, tool_middleware

QUICK = {"rounds": 2, "budget": 0.01, "tools": [10, 30], "depth": [1, 3]}
ARGUMENTS = {"a": 20, "b": 22}
ANSWER = {"result": 42}
BASE_TOOLS = 10

Peer = Callable[[int, int], AbstractAsyncContextManager[Call]]
"""Opens a way to call one of so many tools, nested so deep."""


@dataclass(frozen=True)
class Row:
    """One peer in one case."""

    tools: int
    depth: int
    peer: str
    figures: Figures


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@asynccontextmanager
async def ours(tools: int, depth: int) -> AsyncGenerator[Call]:
    bindings = _nested(tools, depth).bindings()
    gated = [replace(binding, gate=_open_gate) for binding in bindings]
    dispatch = ToolDispatch(gated, hooks=_one_hook(), middleware=[pass_on])
    name = bindings[-1].name

    async def call() -> None:
        _expect((await dispatch.call(ToolCall(name, dict(ARGUMENTS)))).structured)

    yield call


@asynccontextmanager
async def ours_served(tools: int, depth: int) -> AsyncGenerator[Call]:
    async with _served(_one_hook(), tools, depth) as call:
        yield call


@asynccontextmanager
async def ours_awaiting(tools: int, depth: int) -> AsyncGenerator[Call]:
    async with _served(_one_awaiting_hook(), tools, depth) as call:
        yield call


@asynccontextmanager
async def _served(hooks: HookSet, tools: int, depth: int) -> AsyncGenerator[Call]:
    server = ToolsetServer(_nested(tools, depth), hooks=hooks, middleware=[pass_on])
    async with server:
        name = server.tools()[-1]["name"]

        async def call() -> None:
            _expect((await server.call_tool(name, dict(ARGUMENTS))).structured)

        yield call


def _nested(tools: int, depth: int) -> Toolset:
    made: list[Tool[..., Any]] = [tool(name=f"add_{number}")(add) for number in range(tools)]
    toolset = Toolset(*made)
    for _ in range(depth - 1):
        toolset = Toolset(toolset.prefixed("n"))
    return toolset


def _one_hook() -> HookSet:
    hooks = HookSet()

    @hooks.execution("*")
    async def run_all(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        return RunNormally(input)

    return hooks


def _one_awaiting_hook() -> HookSet:
    hooks = HookSet()

    @hooks.execution("*")
    async def run_all(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        return await _looked_at(input)

    return hooks


async def _looked_at(input: dict[str, Any]) -> RunNormally:
    return RunNormally(input)


@tool_middleware
async def pass_on(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
    return await next()


def _open_gate(call: ToolCall, context: ToolContext) -> None:
    """Let everybody through."""


@asynccontextmanager
async def fastmcp(tools: int, depth: int) -> AsyncGenerator[Call]:
    async with fastmcp_alike(BASE_TOOLS, 1) as call:
        yield call


@asynccontextmanager
async def fastmcp_alike(tools: int, depth: int) -> AsyncGenerator[Call]:
    from fastmcp import FastMCP  # pyright: ignore[reportMissingImports]

    server: Any = FastMCP("benchmark")
    for number in range(tools):
        server.tool(add, name=f"add_{number}")
    for _ in range(depth - 1):
        inner, server = server, FastMCP("benchmark")
        server.mount(inner, namespace="n")
    name = "n_" * (depth - 1) + f"add_{tools - 1}"

    async def call() -> None:
        _expect((await server.call_tool(name, dict(ARGUMENTS))).structured_content)

    yield call


def _expect(structured: object) -> None:
    """Anything but the sum fails the run, for errors are quick and would look good."""
    if structured != ANSWER:
        raise RuntimeError(f"the tool answered {structured!r} instead of {ANSWER!r}")


def available() -> tuple[dict[str, Peer], dict[str, str]]:
    """The peers that can run here by name, the base first; and the others with the reason."""
    own: dict[str, Peer] = {"ours": ours, "ours_served": ours_served, "ours_awaiting": ours_awaiting}
    if importlib.util.find_spec("fastmcp") is None:
        reason = "fastmcp is not installed here; scripts/install bench makes .venv-bench"
        return own, dict.fromkeys(("fastmcp", "fastmcp_alike"), reason)
    return {"fastmcp": fastmcp, "fastmcp_alike": fastmcp_alike, **own}, {}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    peers, missing = available()
    for name, reason in missing.items():
        say("dispatch", f"{name} is left out: {reason}")
    about = surroundings("dispatch", {name: vars(options)[name] for name in ("rounds", "budget", "quick")})
    rows = anyio.run(measured, peers, options)
    base = next(iter(peers))
    print(table(rows, base=base))
    if options.json:
        report = {**about(), "base": base, "left_out": missing, "rows": [_flat(row) for row in rows]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


async def measured(peers: Mapping[str, Peer], options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for tools in options.tools:
        for depth in options.depth:
            say("dispatch", f"{tools} tools, {depth} deep: {', '.join(peers)}")
            rows += await case(peers, tools, depth, options)
    return rows


async def case(peers: Mapping[str, Peer], tools: int, depth: int, options: argparse.Namespace) -> list[Row]:
    async with AsyncExitStack() as stack:
        calls = {name: await stack.enter_async_context(peer(tools, depth)) for name, peer in peers.items()}
        async with separate_heaps():
            samples = await interleaved(calls, at_once=1, rounds=options.rounds, seconds=options.budget)
    base = next(iter(samples.values()))
    return [Row(tools, depth, name, figures(taken, base)) for name, taken in samples.items()]


def table(rows: Sequence[Row], *, base: str) -> str:
    head = ("tools", "depth", "peer", f"p50 × {base}", "lo–hi", f"CPU × {base}", "p50 µs")
    return markdown(head, [_cells(row) for row in rows])


def _cells(row: Row) -> tuple[str, ...]:
    taken = row.figures
    return (
        f"{row.tools:,}",
        str(row.depth),
        row.peer,
        f"{taken.x_p50:.3f}",
        f"{taken.x_p50_lo:.3f}–{taken.x_p50_hi:.3f}",
        f"{taken.x_cpu:.3f}",
        f"{1e3 * taken.p50_ms:.1f}",
    )


def _flat(row: Row) -> dict[str, Any]:
    flat = asdict(row)
    return {**flat, **flat.pop("figures")}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (7)")
    parser.add_argument("--budget", type=float, default=0.15, help="seconds per peer and round (0.15)")
    parser.add_argument("--tools", type=_counts, default=[10, 1_000, 10_000], metavar="10,1000,10000")
    parser.add_argument("--depth", type=_counts, default=[1, 10], metavar="1,10", help="nesting; 1 is flat")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--quick", action="store_true", help="tiny samples: shows that it runs, no more")
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(QUICK)
    if options.rounds < 1 or options.budget <= 0 or min([*options.tools, *options.depth]) < 1:
        parser.error("--rounds, --budget, --tools and --depth are positive")
    return options


def _counts(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip()]


if __name__ == "__main__":
    sys.exit(main())
