"""`storing`: the content of a file from an index in memory, made in steps of some milliseconds."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.index_file import PRINT, Parts, Told, coded, starts_of, strings_in
from mcp_toolset.catalog.search.lexical import LexicalScorer
from mcp_toolset.catalog.search.meaning import MeaningScorer
from mcp_toolset.catalog.search.ranking import spellings

_TOOLS: Final = 64
_NUMBERS: Final = 10_000

_T = TypeVar("_T")


def storing(
    entries: Iterable[Told],  # all tools of the index
    leave_out: Callable[[CatalogEntry], bool],  # a tool, with the words of it alone
    words: LexicalScorer,  # the words of all tools
    meaning: MeaningScorer | None,  # the vectors of all tools; `None` for a file of words alone
) -> Generator[None, None, tuple[list[Told], Parts]]:
    """The sections of a file, and its tools; the index must not change between two steps."""
    kept: list[Told] = []
    for some in _slices(entries, _TOOLS):
        kept += [one for one in some if not isinstance(one, CatalogEntry) or not leave_out(one)]
        yield
    kept.sort(key=lambda one: (one.server is not None, one.server or "", one.public_name))
    names = [entry.public_name for entry in kept]
    parts = {"names": json.dumps(names).encode(), "servers": _servers(entry.server for entry in kept)}
    parts |= yield from _records(kept)
    parts |= yield from _postings(words, names)
    if meaning is not None:
        parts |= yield from _vectors(meaning, names)
    return kept, parts


def _servers(servers: Iterable[str | None]) -> bytes:
    ends: dict[str | None, int] = {}
    for ordinal, server in enumerate(servers):
        ends[server] = ordinal + 1
    return json.dumps([*ends.items()]).encode()


def _records(entries: Sequence[Told]) -> Generator[None, None, Parts]:
    records: list[bytes] = []
    prints = bytearray()
    own: dict[str, list[int]] = {}
    spelled: dict[str, list[int]] = {}
    for some in _slices(enumerate(entries), _TOOLS):
        for ordinal, entry in some:
            name = entry.own_name
            said = entry.id, name, entry.server, entry.description_line, entry.signature
            records.append(json.dumps(said).encode())
            prints += entry.fingerprint().ljust(PRINT, b"\0")
            own.setdefault(name, []).append(ordinal)
            for spelling in spellings(entry.public_name, name):
                spelled.setdefault(spelling, []).append(ordinal)
        yield
    parts = {"fingerprints": bytes(prints), **strings_in("records", records)}
    return parts | _names("own names", own) | _names("spellings", spelled)


def _names(section: str, names: Mapping[str, Sequence[int]]) -> Parts:
    order = sorted(names)
    tools = array("I", [ordinal for name in order for ordinal in names[name]])
    starts = starts_of(len(names[name]) for name in order)
    table = {f"{section} tool starts": starts, f"{section} tools": tools.tobytes()}
    return table | strings_in(section, map(coded, order))


def _postings(words: LexicalScorer, names: Sequence[str]) -> Generator[None, None, Parts]:
    ordinals = dict(zip(names, range(len(names)), strict=True))
    held = words.places
    moved = [
        ordinals.get(name, -1) if held.of.get(name) == place else -1 for place, name in enumerate(held.names)
    ]
    terms: list[str] = []
    sizes: list[int] = []
    numbers = array("i")
    own = [array("I") for _ in names]
    done = 0
    for term in sorted(words.postings):
        pairs = sorted(
            (moved[place], impact)
            for places, impacts in words.postings.parts(term)
            for place, impact in zip(places, impacts, strict=True)
            if moved[place] >= 0
        )
        if not pairs:
            continue
        numbers.extend([ordinal for ordinal, _ in pairs])
        numbers.extend([impact for _, impact in pairs])
        sizes.append(len(pairs))
        for ordinal, _ in pairs:
            own[ordinal].append(len(terms))
        terms.append(term)
        done += len(pairs)
        if done > _NUMBERS:
            done = 0
            yield
    return {
        "terms": json.dumps(terms).encode(),
        "posting starts": starts_of(sizes),
        "postings": numbers.tobytes(),
        "term starts": starts_of(map(len, own)),
        "terms of tools": b"".join(each.tobytes() for each in own),
    }


def _vectors(meaning: MeaningScorer, names: Sequence[str]) -> Generator[None, None, Parts]:
    rows = bytearray()
    with_one = array("I")
    for some in _slices(enumerate(names), _TOOLS):
        for ordinal, name in some:
            if (row := meaning.row(name)) is not None:
                rows += row
                with_one.append(ordinal)
        yield
    return {"with a vector": with_one.tobytes(), "vectors": bytes(rows)}


def _slices(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    every = iter(items)
    while some := [*islice(every, size)]:
        yield some
