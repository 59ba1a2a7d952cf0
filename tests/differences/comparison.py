"""Compares `ours` and `sdk` behind every door: `scripts/differences` shows the table and its counts.

A cell is one odd request behind one door in one era. `differences.toml` argues each cell in which the two
servers differ; an entry stands for the product of its requests and doors.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tests.differences.lines import LineDoor, Nursery, Streams, nursery
from tests.differences.odd_messages import odd_messages
from tests.differences.odd_posts import OddPost, odd_posts
from tests.differences.requests import ERAS, OddRequest
from tests.differences.web import EventWire, WebDoor

TABLE = Path(__file__).with_name("differences.toml")
SERVERS = ("ours", "sdk")
DOORS = ("stdio", "memory", "sse", "http")
COLUMNS = tuple(f"{door} {era}" for door in DOORS for era in ERAS)

Cell = tuple[str, str]
"""The name of a request, and one of `COLUMNS`."""

Answers = tuple[str, str]
"""What comes of a request at `ours` and at `sdk`."""


@dataclass(frozen=True)
class Argued:
    """Differences of one kind, with the reason for them.

    Attributes:
        kind: `stricter` or `looser` than the SDK's server, or `other`.
        state: `argued`, or `open` where our server is to change.
    """

    cells: dict[Cell, Answers]
    kind: str
    state: str
    section: str
    why: str


class Door(Protocol):
    """A way in to one server, in one era."""

    def outcome(self, request: Any, /) -> str: ...
    def takes(self, request: Any, /) -> bool: ...
    def close(self) -> None: ...


def argued(text: str | None = None) -> list[Argued]:
    """The entries of `differences.toml`."""
    entries = tomllib.loads(TABLE.read_text() if text is None else text).get("difference", [])
    return [
        Argued(
            {
                (request, door): (answers["ours"], answers["sdk"])
                for answers in entry["answers"]
                for door in answers["doors"]
                for request in entry["requests"]
            },
            entry["kind"],
            entry.get("state", "argued"),
            entry["section"],
            entry["why"],
        )
        for entry in entries
    ]


def requests_of(column: str) -> Iterable[OddRequest | OddPost]:
    """What is sent in a column."""
    door, era = column.split()
    posts = odd_posts() if door == "http" else []
    messages = [each for each in odd_messages() if each.framing or not _is_dear(door, each)]
    return (request for request in (*messages, *posts) if era in request.eras)


@contextmanager
def both_servers() -> Generator[Servers]:
    """Both servers, as long as they are needed."""
    with nursery() as born, ExitStack() as leaving:
        yield Servers(born, leaving)


def measured() -> dict[Cell, Answers]:
    """What comes of every request behind every door that takes it."""
    with both_servers() as servers:
        return {cell: both for column in COLUMNS for cell, both in servers.cells(column).items()}


def _is_dear(door: str, request: OddRequest) -> bool:
    """True if a request that is not about framing costs much there: over SSE, or a process of its own."""
    return door == "sse" or (door == "stdio" and request.fresh)


class Servers:
    """Both servers, behind all doors."""

    def __init__(self, born: Nursery, leaving: ExitStack) -> None:
        self._born = born
        self._http = {server: leaving.enter_context(closing(born.born(server, "http"))) for server in SERVERS}
        self._ports = {server: int(pipes.line() or b"0") for server, pipes in self._http.items()}
        self._memory = {
            server: leaving.enter_context(closing(born.born(server, "memory"))) for server in SERVERS
        }

    def cells(self, column: str) -> dict[Cell, Answers]:
        """What comes of the requests of a column."""
        found: dict[Cell, Answers] = {}
        with closing(self._door("ours", column)) as ours, closing(self._door("sdk", column)) as sdk:
            for request in requests_of(column):
                if ours.takes(request):
                    found[request.name, column] = ours.outcome(request), sdk.outcome(request)
        return found

    def _door(self, server: str, column: str) -> Door:
        match column.split():
            case "http", era:
                return WebDoor(self._ports[server], era)
            case "sse", era:
                return LineDoor(partial(EventWire, self._ports[server]), era)
            case "memory", era:
                return LineDoor(partial(Streams, self._memory[server]), era, models=True)
            case door, era:
                return LineDoor(partial(self._born.born, server, door), era)
        raise ValueError(column)


def faults_of(cells: dict[Cell, Answers], entries: Iterable[Argued]) -> list[str]:
    """What the entries do not say of the cells, or say wrongly: an empty list if all is argued."""
    entries = list(entries)
    seen = Counter(cell for entry in entries for cell in entry.cells)
    told = {cell: answers for entry in entries for cell, answers in entry.cells.items()}
    faults = [f"argued twice: {cell}" for cell, count in seen.items() if count > 1]
    faults += [f"argued, but not sent: {cell}" for cell in told if cell not in cells]
    for cell, (ours, sdk) in cells.items():
        if ours != sdk and told.get(cell) != (ours, sdk):
            faults.append(f"a new difference: {cell}: ours {ours!r}, sdk {sdk!r}; argued {told.get(cell)}")
        if ours == sdk and cell in told:
            faults.append(f"a difference that is gone: {cell}: both {ours!r}; argued {told[cell]}")
    return faults


def within(column: str, entries: Iterable[Argued]) -> list[Argued]:
    """The entries as far as they are about one column."""
    found = [
        replace(entry, cells={cell: both for cell, both in entry.cells.items() if cell[1] == column})
        for entry in entries
    ]
    return [entry for entry in found if entry.cells]


def as_entries(cells: dict[Cell, Answers]) -> str:
    """Differing cells as entries to argue: requests with the same answers behind the same doors together."""
    by_request: defaultdict[str, dict[str, Answers]] = defaultdict(dict)
    for (request, column), (ours, sdk) in cells.items():
        if ours != sdk:
            by_request[request][column] = ours, sdk
    alike: defaultdict[tuple[tuple[str, Answers], ...], list[str]] = defaultdict(list)
    for request, answers in by_request.items():
        alike[tuple(answers.items())].append(request)
    return "\n".join(_entry(requests, dict(answers)) for answers, requests in alike.items())


def _entry(requests: list[str], answers: dict[str, Answers]) -> str:
    columns: defaultdict[Answers, list[str]] = defaultdict(list)
    for column, both in answers.items():
        columns[both].append(column)
    lines = ["[[difference]]", f"requests = {_listed(requests)}", "answers = ["]
    for (ours, sdk), doors in columns.items():
        lines.append(
            f"    {{ doors = {_listed(doors)}, ours = {json.dumps(ours)}, sdk = {json.dumps(sdk)} }},"
        )
    return "\n".join([*lines, "]", 'kind = ""', 'section = ""', 'why = ""', ""])


def _listed(names: list[str]) -> str:
    rows = "".join(f"\n    {json.dumps(name)}," for name in names)
    return json.dumps(names) if len(names) < 9 else f"[{rows}\n]"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="scripts/differences", description=main.__doc__)
    parser.add_argument("--new", action="store_true", help="print what is not argued as entries to argue")
    options = parser.parse_args()
    cells, entries = measured(), argued()
    differing = {cell: both for cell, both in cells.items() if both[0] != both[1]}
    told = {cell: entry for entry in entries for cell in entry.cells}
    if options.new:
        sys.stdout.write(as_entries({cell: both for cell, both in differing.items() if cell not in told}))
        return 0
    rows: list[str] = []
    for (request, column), (ours, sdk) in differing.items():
        entry = told.get((request, column))
        rows.append(f"{column:14} {request:42} {ours:40} | {sdk:40} | {entry.why if entry else 'NOT ARGUED'}")
    faults = faults_of(cells, entries)
    sys.stdout.write("\n".join([*rows, "", summary(cells, entries), *faults, ""]))
    return 1 if faults else 0


def summary(cells: dict[Cell, Answers], entries: Iterable[Argued]) -> str:
    """The counts."""
    kinds = Counter((entry.kind, entry.state) for entry in entries for _ in entry.cells)
    differ = sum(ours != sdk for ours, sdk in cells.values())
    requests = len({request for request, _ in cells})
    counted = ", ".join(f"{count} {kind} ({state})" for (kind, state), count in sorted(kinds.items()))
    return f"{requests} requests, {len(cells)} cells, {differ} differ: {counted}"


if __name__ == "__main__":
    raise SystemExit(main())
