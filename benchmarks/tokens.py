"""What a model reads of a catalog: everything listed, the preview with search, and the compact listing.

    python benchmarks/tokens.py [--catalog tools.jsonl …] [--json FILE]

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
from search import DEVELOPMENT_SETS, entries_of, renamed

from mcp_toolset.calls.pipeline.dispatch import ToolDispatch
from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.catalog.search.index import CatalogEntry
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.export.compact import compact_listing
from mcp_toolset.tools.schema.validation import checks_of
from mcp_toolset.tools.view.view import ToolBinding, ToolView

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
    entries = {plain(entry): entry for path in options.catalog for entry in entries_of(path)}
    count = tokenizer()
    rows = [row for size in SIZES for row in measured(list(islice(endless(entries), size)), count)]
    print(table(rows))
    print("" if count else "\nwithout tokens: bpe-openai is not installed")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


def measured(entries: Sequence[CatalogEntry], count: Count | None) -> Iterable[Row]:
    bindings = [binding_of(entry) for entry in entries]
    read = {
        "listed": shown([binding.to_wire() for binding in bindings]),
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
    surface = [binding.to_wire() for binding in catalog.bindings() if not binding.deferred]
    asked = {"query": STEP, "limit": HITS, "resolve": RESOLVED}
    answer = await dispatch.call(ToolCall("search_tools", asked), Session())
    return shown(surface) + shown(answer.structured)


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
    options = parser.parse_args(arguments)
    options.catalog = options.catalog or [DEVELOPMENT_SETS / name for name in CATALOGS]
    missing = [path for path in options.catalog if not path.is_file()]
    if missing:
        parser.error(f"no such file: {missing[0]}; give --catalog FILE")
    return options


if __name__ == "__main__":
    sys.exit(main())
