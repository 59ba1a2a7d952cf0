"""The rate of changed descriptions that are held: harmless ones (false alarms) and poisoned ones (misses).

    python benchmarks/changed_texts.py FOLDER [--json FILE]

FOLDER has catalogs as `catalog_*.jsonl`, a tool a line with `name`, `description` and `input_schema`. Two
descriptions of tools of one name that share most of their characters stand for a description and its later
wording: forks and releases of one server, and some tools that are merely called alike. So the rate of false
alarms is an upper bound. The rate for texts that were written anew is the worst case: a tool that had no
description gets one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import permutations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.catalog.changed_texts import HARMLESS, MISSED, POISONED

from mcp_toolset.catalog.pins.risky_text import text_gained

ALIKE = 0.6
MOST_OF_A_NAME = 25


def catalog(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("catalog_*.jsonl")):
        yield from map(json.loads, file.read_text().splitlines())


def described(text: str, tool: dict[str, Any] | None = None) -> dict[str, Any]:
    tool = tool or {"name": "read_file", "input_schema": {"type": "object"}}
    return {"name": tool["name"], "description": text, "inputSchema": tool.get("input_schema") or {}}


def later_wordings(tools: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    by_name: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for tool in tools:
        if tool.get("description"):
            by_name[tool["name"]].setdefault(tool["description"], tool)
    for texts in by_name.values():
        for old, new in permutations(list(texts)[:MOST_OF_A_NAME], 2):
            if SequenceMatcher(None, old, new).quick_ratio() > ALIKE:
                yield described(old, texts[old]), described(new, texts[old])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    tools = list(catalog(options.folder))
    pairs = list(later_wordings(tools))
    old = described("Read a file of the workspace.")
    rows = {
        "later wordings of real tools": (sum(bool(text_gained(*pair)) for pair in pairs), len(pairs)),
        "real descriptions written anew": (
            sum(
                bool(text_gained(described("", tool), described(tool["description"], tool)))
                for tool in tools
                if tool.get("description")
            ),
            sum(bool(tool.get("description")) for tool in tools),
        ),
        "harmless rewordings (ours)": (
            sum(bool(text_gained(described(a), described(b))) for a, b in HARMLESS),
            len(HARMLESS),
        ),
        "poisoned texts (ours)": (
            sum(
                bool(text_gained(old, described(f"{old['description']} {text}")))
                for text in POISONED + MISSED
            ),
            len(POISONED + MISSED),
        ),
    }
    print("| texts | held | of | % |\n|---|---|---|---|")
    for name, (held, of) in rows.items():
        print(f"| {name} | {held} | {of} | {100 * held / max(of, 1):.1f} |")
    if options.json:
        options.json.write_text(json.dumps({name: {"held": h, "of": n} for name, (h, n) in rows.items()}))


if __name__ == "__main__":
    main()
