"""The cost of a hub in each client up to the first call: listed, by our search, by the client's own.

    python benchmarks/clients.py [--json FILE]

The hubs have the first 5, 30 and 500 tools of the composite of 77 tools in `composite.py`, repeated under
other names. Everything that a model reads is counted as in `tokens.py`, with OpenAI's public o200k vocabulary
where the package `bpe-openai` is installed, else as bytes / 4:

- listed: the definitions of all tools; one step, the call. A client that defers tools lists them where its
  entry has the switch that `install` writes.
- search: the four tools with the preview, and one search that shows ten hits and two definitions; two steps.
- client: the client's own search: the names of all tools, and two definitions; two steps. Its own tool, its
  answers and the words around the names are not counted.
- both: our search behind the client's own, where it lists nothing of ours at once: the names of the four
  tools, their definitions, and our search; three steps.

`auto` is what `"surface": "auto"` chooses, which is bold. What a client does not do is `–`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import anyio
from tokens import (
    RESOLVED,
    Count,
    binding_of,
    endless,
    entries_of_composite,
    plain,
    read_of,
    searched,
    shown,
    tokenizer,
)

from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.extensions.surface.clients import CLIENTS, UNKNOWN, decided
from mcp_toolset.extensions.surface.extension import size_of
from mcp_toolset.tools.screen import tokens_of
from mcp_toolset.tools.view import ToolBinding

SIZES = (5, 30, 500)
STEPS = {"listed": 1, "search": 2, "client": 2, "both": 3}
NEWEST = {one.title: one for one in reversed((*CLIENTS, UNKNOWN))}
"""The newest row of each client."""


@dataclass(frozen=True)
class Row:
    """The tokens of each way in one client; `None` for a way that it has not."""

    client: str
    tools: int
    listed: int | None
    search: int | None
    client_search: int | None
    both: int | None
    auto: str


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args(arguments)
    count = tokenizer()
    rows = [
        row for size in SIZES for row in measured(size, count or (lambda text: tokens_of(len(text.encode()))))
    ]
    print(table(rows))
    print("" if count else "\nbytes / 4: bpe-openai is not installed")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


def measured(size: int, count: Count) -> Iterable[Row]:
    """The rows of a hub of so many tools."""
    entries = {plain(entry): entry for entry in entries_of_composite()}
    bindings = [binding_of(entry) for entry in islice(endless(entries), size)]
    wires = [read_of(one) for one in bindings]
    whole, ours = count(shown(wires)), fixed(bindings)
    search = count(anyio.run(searched, bindings))
    loaded = RESOLVED * whole // size
    names = count(shown([one["name"] for one in wires]))
    both = count(shown([one["name"] for one in ours])) + search
    for client in NEWEST.values():
        defers = client.defers_from is not None and size >= client.defers_from
        lists = not defers or (client.defers_from == 1 and client.loads_ours)
        way = decided(client, size, size_of(wires)).way
        yield Row(
            client=client.title,
            tools=size,
            listed=whole if lists and size <= (client.most or size) else None,
            search=None if defers and not client.loads_ours else search,
            client_search=names + loaded if defers else None,
            both=both if defers and not client.loads_ours else None,
            auto="search" if way == "search" else "listed" if lists else "client",
        )


def fixed(bindings: Sequence[ToolBinding]) -> list[dict[str, object]]:
    """The four tools of a hub."""
    catalog = DeferredCatalog(GrantLedger())
    catalog.update(bindings)
    return [read_of(one) for one in catalog.bindings() if not one.deferred]


def table(rows: Iterable[Row]) -> str:
    head = ["| client | tools | listed (1 step) | our search (2) | its own search (2) | both (3) |"]
    body = [
        f"| {row.client} | {row.tools} | "
        + " | ".join(
            cell(row, name, value)
            for name, value in {
                "listed": row.listed,
                "search": row.search,
                "client": row.client_search,
                "both": row.both,
            }.items()
        )
        + " |"
        for row in rows
    ]
    return "\n".join([*head, "|---|---|---|---|---|---|", *body])


def cell(row: Row, name: str, value: int | None) -> str:
    said = "–" if value is None else f"{value:,}"
    return f"**{said}**" if row.auto == name else said


if __name__ == "__main__":
    sys.exit(main())
