"""The cost of defining function tools: this toolkit against FastMCP, and pydantic's schemas alone.

    python benchmarks/definitions.py [--rounds 5] [--tools 1000] [--json FILE]

Every sample defines `--tools` functions that nobody has seen before and lists them once, as entries of a
`tools/list` answer. Peers are measured in interleaved rounds, so compare the ratios. `pydantic` makes the
schema of each function's arguments and nothing else: no result, no check, no list. The base is FastMCP,
or pydantic where that is not installed. `--quick` only shows that everything runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import anyio
from measuring import Figures, Sample, figures, markdown, separate_heaps
from pydantic import Field, TypeAdapter
from reporting import say, surroundings

from mcp_toolset import Toolset, ToolsetServer

QUICK = {"rounds": 1, "tools": 20}
BRIEF = '"""Fetch thing {0} by its identifier."""'
SECTIONS = '''"""Fetch thing {0} by its identifier.

    Args:
        id: What the thing is called.
        limit: How many at most.
        tags: Labels that it must have.
    """'''
DOCSTRINGS = {"one line": BRIEF, "with sections": SECTIONS}
FUNCTION = """
async def tool_{0}(
    id: str,
    limit: Annotated[int, Field(ge=1, le=100, description="Page size")] = 20,
    kind: Literal["a", "b"] = "a",
    tags: list[str] | None = None,
) -> dict[str, int]:
    {1}
    return {{"n": {0}}}
"""

Functions = list[Callable[..., Any]]
Peer = Callable[[Functions], Awaitable[int]]
"""Defines the functions and lists them; gives back how many it listed."""


@dataclass(frozen=True)
class Row:
    """One peer with one kind of docstring."""

    docstring: str
    peer: str
    tools: int
    figures: Figures


async def ours(functions: Functions) -> int:
    async with ToolsetServer(Toolset(*functions)) as server:
        return len(server.tools())


async def pydantic(functions: Functions) -> int:
    adapters = [TypeAdapter(cast("Any", function)) for function in functions]
    return len([adapter.json_schema() for adapter in adapters])


async def fastmcp(functions: Functions) -> int:
    from fastmcp import FastMCP  # pyright: ignore[reportMissingImports]

    server: Any = FastMCP("benchmark")
    for function in functions:
        server.tool(function)
    listed = [tool.to_mcp_tool() for tool in await server.list_tools()]
    return len([tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in listed])


def available() -> tuple[dict[str, Peer], dict[str, str]]:
    """The peers that can run here by name, the base first; and the others with the reason."""
    own: dict[str, Peer] = {"pydantic": pydantic, "ours": ours}
    if importlib.util.find_spec("fastmcp") is None:
        return own, {"fastmcp": "fastmcp is not installed here; scripts/install bench makes .venv-bench"}
    return {"fastmcp": fastmcp, **own}, {}


def functions_with(docstring: str, count: int) -> Functions:
    """Fresh functions: a peer that remembers one it has seen would be measured at remembering."""
    source = "".join(FUNCTION.format(number, docstring.format(number)) for number in range(count))
    names: dict[str, Any] = {"Annotated": Annotated, "Field": Field, "Literal": Literal}
    exec(compile(source, "<benchmark>", "exec", dont_inherit=True), names)
    return [names[f"tool_{number}"] for number in range(count)]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    peers, missing = available()
    for name, reason in missing.items():
        say("definitions", f"{name} is left out: {reason}")
    about = surroundings("definitions", {name: vars(options)[name] for name in ("rounds", "tools", "quick")})
    rows = anyio.run(measured, peers, options)
    print(table(rows, base=next(iter(peers))))
    if options.json:
        flat = [{**asdict(row), **asdict(row.figures)} for row in rows]
        rows_only = [{key: value for key, value in row.items() if key != "figures"} for row in flat]
        report = {**about(), "base": next(iter(peers)), "left_out": missing, "rows": rows_only}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


async def measured(peers: Mapping[str, Peer], options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for kind, docstring in DOCSTRINGS.items():
        say("definitions", f"{options.tools} tools, docstrings {kind}: {', '.join(peers)}")
        samples = await _interleaved(peers, docstring, options)
        base = next(iter(samples.values()))
        rows += [Row(kind, name, options.tools, figures(taken, base)) for name, taken in samples.items()]
    return rows


async def _interleaved(
    peers: Mapping[str, Peer], docstring: str, options: argparse.Namespace
) -> dict[str, list[Sample]]:
    """One sample of each peer in every round; a first, smaller round is thrown away."""
    for peer in peers.values():
        await peer(functions_with(docstring, 10))
    samples: dict[str, list[Sample]] = {name: [] for name in peers}
    for number in range(options.rounds):
        for name in list(peers)[::-1] if number % 2 else peers:
            samples[name].append(await _sample(peers[name], functions_with(docstring, options.tools)))
    return samples


async def _sample(peer: Peer, functions: Functions) -> Sample:
    async with separate_heaps():
        start, cpu = time.perf_counter(), time.process_time()
        listed = await peer(functions)
        wall, spent = time.perf_counter() - start, time.process_time() - cpu
    if listed != len(functions):
        raise RuntimeError(f"{listed} tools were listed instead of {len(functions)}")
    return Sample((wall,), wall, spent)


def table(rows: Sequence[Row], *, base: str) -> str:
    head = ("docstrings", "peer", f"CPU × {base}", "lo–hi", f"time × {base}", "CPU ms", "µs a tool")
    return markdown(head, [_cells(row) for row in rows])


def _cells(row: Row) -> tuple[str, ...]:
    taken = row.figures
    return (
        row.docstring,
        row.peer,
        f"{taken.x_cpu:.2f}",
        f"{taken.x_cpu_lo:.2f}–{taken.x_cpu_hi:.2f}",
        f"{taken.x_p50:.2f}",
        f"{taken.cpu_ms:.0f}",
        f"{1e3 * taken.cpu_ms / row.tools:.0f}",
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument("--tools", type=int, default=1000, help="functions that a sample defines (1000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--quick", action="store_true", help="tiny samples: shows that it runs, no more")
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(QUICK)
    if options.rounds < 1 or options.tools < 1:
        parser.error("--rounds and --tools are positive")
    return options


if __name__ == "__main__":
    sys.exit(main())
