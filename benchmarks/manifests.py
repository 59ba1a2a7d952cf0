"""A provider of manifests: what it costs to list them, to search them, to resolve one and to call it.

    python benchmarks/manifests.py [--tools 100000] [--words] [--keep FOLDER] [--json FILE]

In one process, without a wire. With `--keep` the index of the search is kept in a folder: a second run with
the same folder begins with what the first has left. Times are CPU seconds of the process, memory is what the
process has more than before. The contracts are fetched from a dictionary, so that a resolution shows our
share alone.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
from measuring import markdown
from reporting import say, surroundings

from mcp_toolset import (
    DynamicToolset,
    ManifestProvider,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolManifest,
    ToolResult,
    ToolsetServer,
)

VERBS = "create delete list update export archive count merge find approve".split()
NOUNS = "invoice order ticket page branch message contract payment article visit".split()
PLACES = "Aachen Basel Cadiz Dover Esbjerg Faro Genoa Hull Izmir Jena".split()


class Offices(ManifestProvider):
    """One tool for each verb, noun, place and office."""

    def __init__(self, tools: int) -> None:
        self.manifests = [_manifest(number) for number in range(tools)]
        self.unit = "integer"

    async def list_manifests(self) -> list[ToolManifest]:
        return self.manifests

    async def resolve(self, name: str) -> ToolDefinition:
        schema = {"type": "object", "properties": {"number": {"type": self.unit}}, "required": ["number"]}
        return ToolDefinition(name, f"Work on {name}.", schema)

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text("done")


def _manifest(number: int) -> ToolManifest:
    verb, noun, place = VERBS[number % 10], NOUNS[number // 10 % 10], PLACES[number // 100 % 10]
    office = number // 1000
    return ToolManifest(
        f"{verb}_{noun}_{place.lower()}_{office}", f"{verb.title()} the {noun} of office {office} in {place}."
    )


class Client(ToolContext):
    """A caller with a session."""

    session = "one"


class Steps:
    """The steps of the run, each with its CPU seconds and the memory after it."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, float]] = []
        self._before = _memory()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure one step."""
        began = time.process_time()
        yield
        self.rows.append((name, time.process_time() - began, _memory() - self._before))


def _memory() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measured(tools: int, *, words: bool, keep: Path | None = None) -> list[tuple[str, float, float]]:
    """All steps, and that the changed tool is refused."""
    provider = Offices(tools)
    steps = Steps()
    toolset = DynamicToolset(provider, name="offices")
    with steps.step("list the manifests"):
        await toolset.refresh()
    server = ToolsetServer(
        toolset, scorer=None if words else "built-in", keep=False if keep is None else keep
    )
    with steps.step("open a server, tools indexed"):
        await server.__aenter__()

    async def ask(name: str, **arguments: object) -> ToolResult:
        return await server.call(ToolCall(name, arguments), Client())

    with steps.step("first search"):
        found = (await ask("search_tools", query="approve the payment of office 7 in Genoa")).structured
    with steps.step("next search"):
        await ask("search_tools", query="export a contract in Hull")
    if keep is not None:
        with steps.step("until the index is kept"), anyio.fail_after(300):
            while not [*keep.glob("*.index")]:  # noqa: ASYNC110, ASYNC240
                await anyio.sleep(0.1)
    with steps.step("resolve one"):
        [granted] = (await ask("resolve_tools", ids=[found["hits"][0]["id"]])).structured["tools"]
    call = {"grant": granted["grant"], "arguments": {"number": 1}}
    with steps.step("call it"):
        done = await ask("call_tool", **call)
    provider.unit = "string"
    with steps.step("its contract has changed: refused"):
        refused = await ask("call_tool", **call)
    one = provider.manifests[tools // 2]
    provider.manifests[tools // 2] = ToolManifest(one.name, f"{one.summary} Only on Mondays.")
    with steps.step("list again, one manifest changed"):
        await toolset.refresh()
        await server.settled()
    with steps.step("search after that"):
        again = await ask("search_tools", query="only on Mondays")
    await server.__aexit__(None, None, None)
    if done.is_error or not refused.is_error or one.name not in again.text:
        raise RuntimeError(f"a step went wrong: {done.text}; {refused.text}; {again.text}")
    return steps.rows


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=100_000)
    parser.add_argument("--words", action="store_true", help="search by words alone")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the index of the search there")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    about = surroundings("manifests", {"tools": options.tools, "words": options.words})
    rows = anyio.run(lambda: measured(options.tools, words=options.words, keep=options.keep))
    shown = [(name, f"{1000 * seconds:,.1f}", f"{memory:,.0f}") for name, seconds, memory in rows]
    say("manifests", markdown(("step", "CPU, ms", "memory, MB"), shown))
    if options.json is not None:
        options.json.write_text(json.dumps({**about(), "steps": rows}, indent=1))


if __name__ == "__main__":
    main()
