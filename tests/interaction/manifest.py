"""`crossings.toml` read, and written as the page that publishes it (X4)."""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = Path(__file__).with_name("crossings.toml")
PAGE = ROOT / "docs" / "crossings.md"
ERAS = ("legacy", "modern")

HEAD = """# What crosses the bridge

A client that calls a server through `mcp-toolset` sees almost the same as a client that calls the server
directly. Calls go to the server. Results, progress and log messages come back. For example, if the server
asks a question during a call (elicitation), the question goes to the client that made the call, and to no
other client.

![What passes the bridge, in which direction](images/concept-crossings.svg)

| what | how |
|---|---|
| tools, resources, prompts, completions | with titles, icons, annotations and `_meta` |
| results | text, images, audio, links, structured content |
| progress, log messages, `list_changed`, subscriptions | in order, none after the result |
| questions: elicitation, sampling, roots | to the client of the call |
| cancellation | from the client to the server |
| errors | to the client of the call, with code, data and the name of the server |

## Between which transports and eras

The table shows which MCP features work through the bridge, for every pair of client and server. Look here
if a feature works without the bridge and not with it. `scripts/crossings` writes this page from
`tests/interaction/crossings.toml`.

*Legacy* is a revision up to 2025-11-25, *modern* is 2026-07-28. A column is a pair of eras: client →
server. A cell such as `12 of 12` counts the pairs of transports for which the feature works. Clients use
memory, stdio, SSE or streamable HTTP. Servers use the same transports, but memory only in the modern era. A
test runs every counted pair in `scripts/doors`, and half of them in each run of all tests; the row links to
the test. A number in brackets leads to the reason for the pairs that are missing.
"""


@dataclass(frozen=True)
class Exception_:
    """Pairs where a feature does not cross, and why."""

    client: str
    upstream: str
    reason: str

    def covers(self, client: str, upstream: str) -> bool:
        return fnmatchcase(client, self.client) and fnmatchcase(upstream, self.upstream)


@dataclass(frozen=True)
class Feature:
    """One row: what crosses, and the test that shows it."""

    name: str
    test: str
    exceptions: tuple[Exception_, ...]

    def reason(self, client: str, upstream: str) -> str | None:
        """Why it does not cross between these two; `None` where it does."""
        return next((each.reason for each in self.exceptions if each.covers(client, upstream)), None)


@dataclass(frozen=True)
class Detail:
    """A detail, how far it crosses, and the test that shows it, if it can be shown."""

    name: str
    state: str
    test: str = ""

    def line(self) -> str:
        shown = f"[{self.name}](../{self.test.partition('::')[0]})" if self.test else self.name
        return f"| {shown} | {self.state} |"


@dataclass(frozen=True)
class Crossings:
    """The whole table."""

    clients: tuple[str, ...]
    upstreams: tuple[str, ...]
    features: tuple[Feature, ...]
    details: tuple[Detail, ...]

    def pairs(self, client_era: str, upstream_era: str) -> Iterator[tuple[str, str]]:
        for client in self.clients:
            for upstream in self.upstreams:
                if client.endswith(client_era) and upstream.endswith(upstream_era):
                    yield client, upstream


def crossings() -> Crossings:
    read = tomllib.loads(MANIFEST.read_text())
    features = [
        Feature(row["name"], row["test"], tuple(Exception_(**each) for each in row.get("except", ())))
        for row in read["feature"]
    ]
    details = tuple(Detail(**row) for row in read["detail"])
    return Crossings(
        tuple(read["clients"]["names"]), tuple(read["upstreams"]["names"]), tuple(features), details
    )


def page(table: Crossings) -> str:
    columns = [(client, upstream) for client in ERAS for upstream in ERAS]
    notes: dict[str, int] = {}
    lines = ["| | " + " | ".join(f"{client} → {upstream}" for client, upstream in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for feature in table.features:
        cells = [_cell(table, feature, *column, notes) for column in columns]
        file = feature.test.partition("::")[0]
        lines.append(f"| [{feature.name}](../{file}) | " + " | ".join(cells) + " |")
    reasons = [f"{number}. {reason}" for reason, number in notes.items()]
    details = ["", "## Details", "", "| | |", "|---|---|", *(each.line() for each in table.details)]
    return "\n".join([HEAD, *lines, "", *reasons, *details, ""])


def _cell(
    table: Crossings, feature: Feature, client_era: str, upstream_era: str, notes: dict[str, int]
) -> str:
    found: defaultdict[str | None, int] = defaultdict(int)
    for pair in table.pairs(client_era, upstream_era):
        found[feature.reason(*pair)] += 1
    crossed = found.pop(None, 0)
    marks = "".join(f" [{notes.setdefault(reason, len(notes) + 1)}]" for reason in found if reason)
    return f"{crossed} of {crossed + sum(found.values())}{marks}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Write docs/crossings.md from tests/interaction/crossings.toml."
    )
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    made = page(crossings())
    if parser.parse_args().check:
        return 0 if PAGE.read_text() == made else 1
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
