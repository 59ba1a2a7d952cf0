"""What a model reads of a catalog: everything listed, the preview with search, and the compact listing.

    python benchmarks/tokens.py [--catalog tools.jsonl …] [--json FILE]
    python benchmarks/tokens.py --surface [--catalog tools.jsonl --servers git,files] [--json FILE]

`--surface` counts what the four tools themselves cost over the composite of 77 tools in `composite.py`, or
over some servers of a catalog. Run it with another version of the package for the figures of that version.

`listed` is the `tools/list` of every tool. `search` is the `tools/list` of a deferred catalog (its four
tools, with the preview) and, for one step of a task, a search with its ten hits and the full definitions of
the two tools that are resolved. `compact` is the listing of stubs. Bytes of JSON as sent, and tokens by
OpenAI's public o200k vocabulary where the package `bpe-openai`, which carries it, is installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
from composite import SERVERS, definitions
from search import DEVELOPMENT_SETS, entries_of, renamed

from mcp_toolset.calls.dispatch import ToolDispatch
from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.catalog.search.index import CatalogEntry
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.compact import compact_listing
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.validation import checks_of
from mcp_toolset.tools.view import ToolBinding, ToolView

SIZES = (50, 500, 5_000)
CATALOGS = ("catalog_livemcp.jsonl", "catalog_toucan.jsonl")
STEP = "convert the address into geographic coordinates"
HITS, RESOLVED = 10, 2
PART = 20_000
UNCHECKED = checks_of(ToolDefinition("unchecked"))[0]

Count = Callable[[str], int]


@dataclass(frozen=True)
class Row:
    """What one way of showing a catalog costs; `less` is per cent of tokens saved (of bytes without them)."""

    tools: int
    way: str
    bytes: int
    tokens: int | None
    less: float


class Session(ToolContext):
    """A caller that may hold grants."""

    session = "benchmark"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.surface:
        some = [one for path in options.catalog or () for one in entries_of(path)]
        chosen = [one for one in some if not options.servers or one.server in options.servers.split(",")]
        print(surface_table(chosen or entries_of_composite(), tokenizer()))
        return 0
    entries = {plain(entry): entry for path in options.catalog for entry in entries_of(path)}
    count = tokenizer()
    rows = [row for size in SIZES for row in measured(list(islice(endless(entries), size)), count)]
    print(table(rows))
    print("" if count else "\nwithout tokens: bpe-openai is not installed")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


QUERIES = (
    "commit the staged files",
    "read a file",
    "click on a button of the page",
    "search the knowledge graph",
    "find an issue about a bug",
    "delete rows of a table",
    "search the web for news",
    "list the branches of a repository",
    "create something new",
    "get information about a file",
)


async def surface(bindings: Sequence[ToolBinding]) -> dict[str, str]:
    """What a model reads of the four tools, by what it does."""
    catalog = DeferredCatalog(GrantLedger())
    catalog.update(bindings)
    dispatch = ToolDispatch(catalog.bindings())

    async def answer(name: str, **arguments: Any) -> str:
        return shown((await dispatch.call(ToolCall(name, arguments), Session())).structured)

    ids = [hit.id for hit in catalog.search(QUERIES[0])][:2]
    searches = [await answer("search_tools", query=query, limit=HITS) for query in QUERIES]
    return {
        "everything listed": shown([read_of(one) for one in catalog.bindings() if not one.deferred]),
        "a search of ten, the largest": max(searches, key=len),
        "a search of ten, the median": sorted(searches, key=len)[len(searches) // 2],
        "a search that resolves its first hit": await answer("search_tools", query=QUERIES[0], resolve=1),
        "resolving two tools": await answer("resolve_tools", ids=ids),
        "an id that does not exist": await answer("resolve_tools", ids=["no_such_tool"]),
    }


def entries_of_composite() -> list[CatalogEntry]:
    return [
        CatalogEntry(definition, f"{server}_{definition.name}", server)
        for server in SERVERS
        for definition in definitions(server)
    ]


def surface_table(entries: Sequence[CatalogEntry], count: Count | None) -> str:
    read = anyio.run(surface, [binding_of(entry) for entry in entries])
    body = [
        f"| {name} | {count(text) if count else '–'} | {len(text.encode()):,} |"
        for name, text in read.items()
    ]
    return "\n".join([f"| {len(entries)} tools | tokens | bytes |", "|---|---|---|", *body])


def measured(entries: Sequence[CatalogEntry], count: Count | None) -> Iterable[Row]:
    bindings = [binding_of(entry) for entry in entries]
    read = {
        "listed": shown([read_of(binding) for binding in bindings]),
        "search": anyio.run(searched, bindings),
        "compact": shown([stub.to_wire() for stub in compact_listing(ToolView(bindings))]),
    }
    sizes = {way: (len(text.encode()), count(text) if count else None) for way, text in read.items()}
    whole_bytes, whole_tokens = sizes["listed"]
    for way, (size, tokens) in sizes.items():
        kept = tokens / whole_tokens if tokens and whole_tokens else size / whole_bytes
        yield Row(len(entries), way, size, tokens, 100 * (1 - kept))


async def searched(bindings: Sequence[ToolBinding]) -> str:
    """All that a model reads for one step: the four tools, the hits, and the tools it resolves."""
    catalog = DeferredCatalog(GrantLedger())
    catalog.update(bindings)
    dispatch = ToolDispatch(catalog.bindings())
    surface = [read_of(binding) for binding in catalog.bindings() if not binding.deferred]
    asked = {"query": STEP, "limit": HITS, "resolve": RESOLVED}
    answer = await dispatch.call(ToolCall("search_tools", asked), Session())
    return shown(surface) + shown(answer.structured)


def read_of(binding: ToolBinding) -> dict[str, Any]:
    """The definition as a model reads it: `_meta` is for its client."""
    return {key: value for key, value in binding.to_wire().items() if key != "_meta"}


def binding_of(entry: CatalogEntry) -> ToolBinding:
    return ToolBinding(
        plain(entry), entry.definition, _never, UNCHECKED, source=entry.server or "", deferred=True
    )


def plain(entry: CatalogEntry) -> str:
    return entry.public_name.replace("/", "_")


async def _never(call: ToolCall, context: ToolContext) -> ToolResult:
    raise NotImplementedError("nothing is called here")


def endless(entries: dict[str, CatalogEntry]) -> Iterable[CatalogEntry]:
    yield from entries.values()
    copy = 0
    while True:
        copy += 1
        yield from (renamed(entry, str(copy)) for entry in entries.values())


def tokenizer() -> Count | None:
    if not find_spec("bpe_openai"):
        return None
    vocabulary = import_module("bpe_openai").get_encoding("o200k_base")
    # In parts, since it refuses long texts; a part ends inside a token at most once in thousands.
    return lambda text: sum(
        len(vocabulary.encode(text[start : start + PART])) for start in range(0, len(text), PART)
    )


def shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def table(rows: Iterable[Row]) -> str:
    body = [
        f"| {row.tools} | {row.way} | {row.bytes:,} | "
        f"{'–' if row.tokens is None else f'{row.tokens:,}'} | {row.less:.1f} |"
        for row in rows
    ]
    return "\n".join(["| tools | way | bytes | tokens | % less |", "|---|---|---|---|---|", *body])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catalog", type=Path, action="append", metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--surface", action="store_true", help="what the four tools themselves cost")
    parser.add_argument("--servers", metavar="NAMES", help="with --surface: some servers of the catalog")
    options = parser.parse_args(arguments)
    if options.surface:
        return options
    options.catalog = options.catalog or [DEVELOPMENT_SETS / name for name in CATALOGS]
    missing = [path for path in options.catalog if not path.is_file()]
    if missing:
        parser.error(f"no such file: {missing[0]}; give --catalog FILE")
    return options


if __name__ == "__main__":
    sys.exit(main())
