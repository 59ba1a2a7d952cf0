"""`IndexBase`: an index as a file holds it; what has changed since lies over it, in memory.

A tool is an ordinal: the place of its public name in the order of the file. `LexicalScorer`, `MeaningScorer`
and `NameTable` each take their part. Nothing here is done once per tool except by loops in C.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.search.stored.index_file import NUMBER, Sections, Strings, coded, decoded

if TYPE_CHECKING:
    from mcp_toolset.catalog.search.entry import CatalogEntry

PRINT: Final = 16
"""The number of bytes of a fingerprint."""


class StoredEntry(NamedTuple):
    """A tool of a file, with the names that a `CatalogEntry` has for the same."""

    public_name: str
    id: str
    own_name: str
    server: str | None
    description_line: str
    signature: str
    print: bytes

    def fingerprint(self) -> bytes:
        """What tells its content from others."""
        return self.print


Told: TypeAlias = "CatalogEntry | StoredEntry"
"""A tool in memory or of a file: what a hit shows of it, and what a file says of it."""


@dataclass(frozen=True, slots=True)
class VectorRows:
    """The vectors of some tools, one after another, each as `PackedVectors` holds it."""

    names: Sequence[str]
    rows: memoryview


class NamesBase:
    """Names in a sorted table, each with the tools that have it."""

    def __init__(self, sections: Sections, name: str) -> None:
        self._names = sections.strings(name)
        self._starts = sections.numbers(f"{name} tool starts")
        self._tools = sections.numbers(f"{name} tools")

    def of(self, name: str) -> Sequence[int]:
        """The ordinals of the tools of this name."""
        wanted = coded(name)
        at = bisect_left(self._names, wanted)
        return self._at(at) if at < len(self._names) and self._names[at] == wanted else ()

    def beginning_with(self, head: str) -> Iterator[tuple[str, Sequence[int]]]:
        """The names that begin so, in order, each with its tools."""
        wanted = coded(head)
        for at in range(bisect_left(self._names, wanted), len(self._names)):
            name = self._names[at]
            if not name.startswith(wanted):
                return
            yield decoded(name), self._at(at)

    def _at(self, at: int) -> Sequence[int]:
        return self._tools[self._starts[at] : self._starts[at + 1]]


class TermsBase:
    """The terms of all tools, sorted, each with the tools that have it, and the terms of each tool."""

    def __init__(self, sections: Sections) -> None:
        self._sections = sections
        self._starts = sections.numbers("posting starts")
        self._numbers = sections["postings"]
        self._own_starts = sections.numbers("term starts")
        self._own = sections.numbers("terms of tools")

    @cached_property
    def terms(self) -> list[str]:
        """All terms, sorted."""
        return self._sections.json("terms")

    @cached_property
    def _at(self) -> Mapping[str, int]:
        return dict(zip(self.terms, range(len(self.terms)), strict=True))

    def __contains__(self, term: object) -> bool:
        return term in self._at

    def count(self, term: str) -> int:
        """How many tools of the file have a term that is in the file."""
        at = self._at[term]
        return self._starts[at + 1] - self._starts[at]

    def posting(self, term: str) -> tuple[array[int], array[int]]:
        """The ordinals of the tools that have a term, ascending, and its impact in each of them."""
        at = self._at[term]
        start, end = self._starts[at], self._starts[at + 1]
        places, impacts = array("i"), array("i")
        middle = NUMBER * (start + end)
        places.frombytes(self._numbers[2 * NUMBER * start : middle])
        impacts.frombytes(self._numbers[middle : 2 * NUMBER * end])
        return places, impacts

    def of(self, ordinal: int) -> list[str]:
        own = self._own[self._own_starts[ordinal] : self._own_starts[ordinal + 1]]
        return [self.terms[at] for at in own]


class IndexBase:
    """The content of a file: read-only, and shared by all parts of an index.

    Attributes:
        names: The public names by ordinal: sorted by server, then by name.
        places: The ordinal of each public name.
        own_names: The tools' own names.
        spellings: Public and own names without case and punctuation.
        terms: The words.
        vectors: The vectors of the tools that have one; `None` in a file of words alone.
    """

    def __init__(self, sections: Sections) -> None:
        self._sections = sections
        self.names: list[str] = sections.json("names")
        self.places: dict[str, int] = dict(zip(self.names, range(len(self.names)), strict=True))
        self.own_names = NamesBase(sections, "own names")
        self.spellings = NamesBase(sections, "spellings")
        self.terms = TermsBase(sections)
        self._records: Strings = sections.strings("records")
        self._prints = bytes(sections["fingerprints"])
        self._servers: list[tuple[str | None, int]] = sections.json("servers")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def vectors(self) -> VectorRows | None:
        rows = self._sections.get("vectors")
        if rows is None:
            return None
        with_one = self._sections.numbers("with a vector")
        every = len(with_one) == len(self.names)
        return VectorRows(self.names if every else [self.names[at] for at in with_one], rows)

    def fingerprint(self, ordinal: int) -> bytes:
        return self._prints[PRINT * ordinal : PRINT * (ordinal + 1)]

    def servers(self) -> dict[str, set[str]]:
        """The public names of each server's tools."""
        found: dict[str, set[str]] = {}
        start = 0
        for server, end in self._servers:
            if server is not None:
                found[server] = set(self.names[start:end])
            start = end
        return found

    def entry(self, ordinal: int) -> StoredEntry:
        """What the file says of a tool."""
        id, own, server, line, signature = json.loads(self._records[ordinal])
        return StoredEntry(self.names[ordinal], id, own, server, line, signature, self.fingerprint(ordinal))
