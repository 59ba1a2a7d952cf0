"""`SearchIndex`: full-text and semantic search over tools, in a catalog that changes.

`DeferredCatalog` and `mcp-toolset search` use it. A query that names a tool puts that tool first
(`name_matching`). The rest are ranked by the query's words (`lexical`) fused with its meaning (`meaning`);
see `ranking`. A query is plain text: it has no operators, and only its first part is read, so no query can
raise or run long. An index can begin with a file that an earlier one has written (`index_file`).
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TypeVar, cast

from mcp_toolset._index import part
from mcp_toolset.catalog.search import index_file, ranking
from mcp_toolset.catalog.search.entry import CatalogEntry, entry_of
from mcp_toolset.catalog.search.lexical import LexicalScorer
from mcp_toolset.catalog.search.meaning import MeaningScorer
from mcp_toolset.errors import DefinitionError, InvalidStateError
from mcp_toolset.tools.call import SearchHit
from mcp_toolset.tools.definition import ToolDefinition

_TOOLS: Final = 64
_NUMBERS: Final = 10_000

_T = TypeVar("_T")


def storing(
    entries: Iterable[index_file.AnyEntry],  # all tools of the index
    leave_out: Callable[[CatalogEntry], bool],  # a tool, with the words of it alone
    words: LexicalScorer,  # the words of all tools
    meaning: MeaningScorer | None,  # the vectors of all tools; `None` for a file of words alone
) -> Generator[None, None, tuple[list[index_file.AnyEntry], index_file.Parts]]:
    """The sections of a file, and its tools; the index must not change between two steps."""
    kept: list[index_file.AnyEntry] = []
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


def _records(entries: Sequence[index_file.AnyEntry]) -> Generator[None, None, index_file.Parts]:
    records: list[bytes] = []
    prints = bytearray()
    own: dict[str, list[int]] = {}
    spelled: dict[str, list[int]] = {}
    for some in _slices(enumerate(entries), _TOOLS):
        for ordinal, entry in some:
            name = entry.own_name
            said = entry.id, name, entry.server, entry.description_line, entry.signature
            records.append(json.dumps(said).encode())
            prints += entry.fingerprint().ljust(index_file.PRINT, b"\0")
            own.setdefault(name, []).append(ordinal)
            for spelling in ranking.spellings(entry.public_name, name):
                spelled.setdefault(spelling, []).append(ordinal)
        yield
    parts = {"fingerprints": bytes(prints), **index_file.strings_in("records", records)}
    return parts | _names("own names", own) | _names("spellings", spelled)


def _names(section: str, names: Mapping[str, Sequence[int]]) -> index_file.Parts:
    order = sorted(names)
    tools = array("I", [ordinal for name in order for ordinal in names[name]])
    starts = index_file.starts_of(len(names[name]) for name in order)
    table = {f"{section} tool starts": starts, f"{section} tools": tools.tobytes()}
    return table | index_file.strings_in(section, map(index_file.coded, order))


def _postings(words: LexicalScorer, names: Sequence[str]) -> Generator[None, None, index_file.Parts]:
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
        "posting starts": index_file.starts_of(sizes),
        "postings": numbers.tobytes(),
        "term starts": index_file.starts_of(map(len, own)),
        "terms of tools": b"".join(each.tobytes() for each in own),
    }


def _vectors(meaning: MeaningScorer, names: Sequence[str]) -> Generator[None, None, index_file.Parts]:
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


MAX_HITS = 100
_READ_AT_ONCE = 16
_COMPARED_AT_ONCE = 256
# With fewer tools than this, reading them is as fast as a file.
_STORED = 100
# A file is written anew when more than one of so many tools were read since.
_PART_STORED = 16


class SearchIndex:
    """An index over tools. Adding a tool whose content has not changed costs nothing."""

    def __init__(
        self,
        definitions: Iterable[ToolDefinition | CatalogEntry] = (),
        *,
        scorer: ranking.Scorer | Literal["built-in"] | None = "built-in",
    ) -> None:
        """Index the tools.

        Args:
            definitions: The tools. A later definition replaces an earlier one with the same name. Use
                `CatalogEntry` if several servers have tools.
            scorer: The second ranking beside the words: by default the built-in table of meanings, with a
                sentence model if one is installed. Or another scorer, such as an `EmbeddingScorer`, or
                `None` for words alone.

        Raises:
            DefinitionError: the scorer is none of these.
        """
        ranking.require_scorer(scorer)
        # A tool, or its ordinal in the file that the index was opened from.
        self._entries: dict[str, CatalogEntry | int] = {}
        self._base: index_file.IndexBase | None = None
        self._beginning: Iterator[None] = iter(())
        self._read = self._unstored = self._changes = 0
        self._servers: dict[str, set[str]] = {}
        self._unread: dict[str, CatalogEntry] = {}
        second = _built_in() if isinstance(scorer, str) else scorer
        self._reader = second if isinstance(second, ranking.ReadingScorer) else None
        self._meaning = second if isinstance(second, MeaningScorer) and second.is_built_in else None
        self._is_storable = second is self._meaning
        self._matcher = ranking.Matcher(second)
        self.add(definitions)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, scorer: Literal["built-in"] | None = "built-in"
    ) -> SearchIndex:
        """The index that `save` has written, without reading its tools: the file is mapped into memory.

        The index searches and changes like any other; the file does not change. No sentence model is used.

        Args:
            path: The file. It may be replaced while the index is open, but not changed in place.
            scorer: `None` searches by words alone.

        Raises:
            InvalidStateError: the file is damaged, or another version of this package wrote it: index the
                tools and save them again.
            OSError: the file cannot be read.
        """
        try:
            base = index_file.IndexBase(index_file.mapped(path))
        except InvalidStateError as fault:
            raise InvalidStateError(f"{path}: {fault}; index the tools again and save them there") from None
        if scorer is not None and base.vectors is None:
            raise InvalidStateError(f"{path}: it was saved without vectors; open it with scorer=None")
        index = cls(scorer=None if scorer is None else MeaningScorer())
        index._entries = {**base.places}
        index._servers = base.servers()
        index._begin_with(base)
        return index

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a file for `open`, in one step; only this user may read it.

        Raises:
            DefinitionError: the scorer is neither the built-in table nor `None`.
            OSError: the file cannot be written.
        """
        if not self._is_storable:
            raise DefinitionError("only an index with the built-in table, or with scorer=None, can be saved")

        from mcp_toolset.concurrency.atomic_file import replace_file

        index_file.run_to_end(self.catch_up())
        replace_file(Path(path), index_file.written(index_file.run_to_end(self._storing())[1]), durable=False)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, public_name: object) -> bool:
        return public_name in self._entries

    def servers(self) -> list[str]:
        """The names of the servers that have tools here, sorted."""
        return sorted(self._servers)

    def add(self, entries: Iterable[ToolDefinition | CatalogEntry], *, later: bool = False) -> set[str]:
        """Add tools, or replace those of the same public names; return the names that had changed.

        Args:
            entries: The tools.
            later: True if their words are indexed by the first search, or by `catch_up`; so are the words of
                tools that are added before that. A sentence model, which takes longer, begins at once.
        """
        wanted = {entry.public_name: entry for entry in map(entry_of, entries)}
        fresh = [entry for entry in wanted.values() if not self._holds(entry)]
        self.remove(entry.public_name for entry in fresh)
        self._changes += 1
        for entry in fresh:
            self._entries[entry.public_name] = entry
            if entry.server is not None:
                self._servers.setdefault(entry.server, set()).add(entry.public_name)
        if (later or self._unread) and self._reader is None:
            self._unread.update((entry.public_name, entry) for entry in fresh)
        else:
            self._tell_of(fresh)
        return {entry.public_name for entry in fresh}

    def catch_up(self) -> Generator[None]:
        """Read the words of tools that were added for later, in steps of some milliseconds."""
        # Several searches may come to this at once; they take its steps in turn.
        for _ in self._beginning:
            yield
        while self._unread:
            self._tell_of([self._unread.pop(name) for name in [*islice(self._unread, _READ_AT_ONCE)]])
            yield

    def remove(self, public_names: Iterable[str]) -> set[str]:
        """Remove tools by public name; return the names that were indexed."""
        gone = {name: self._entry(name) for name in set(public_names) if name in self._entries}
        self._changes += 1
        for name, entry in gone.items():
            del self._entries[name]
            if entry.server is not None:
                self._forget(entry.server, name)
        read = [name for name in gone if self._unread.pop(name, None) is None]
        self._leave(read)
        return set(gone)

    def replace(self, server: str, entries: Iterable[ToolDefinition | CatalogEntry]) -> set[str]:
        """Make these the only tools of a server; return the public names that were added, changed or removed.

        Raises:
            ValueError: An entry belongs to another server; the index is unchanged.
        """
        wanted = [entry_of(entry, server) for entry in entries]
        strangers = [entry.public_name for entry in wanted if entry.server != server]
        if strangers:
            raise ValueError(f"replace({server!r}, …): {strangers[0]!r} is of another server; use add()")
        left = self._servers.get(server, set()) - {entry.public_name for entry in wanted}
        return self.remove(left) | self.add(wanted)

    def search(
        self,
        query: str,
        *,
        server: str | None = None,
        limit: int = 10,
        exclude: Iterable[str] = (),
        hidden: AbstractSet[str] = frozenset(),
        wait: bool = True,
    ) -> list[SearchHit]:
        """The tools that match a query, best first; empty if no tool matches well enough.

        Name the server in the query if you know it: that helps more than any other word.

        Args:
            query: The task of the tool, or its name. Any text; no operators.
            server: Only tools of this server; case matters only if two servers differ in nothing else.
            limit: The largest number of hits, 1 to 100.
            exclude: Ids or public names to leave out.
            hidden: Public names of tools that are hidden from the caller; they have no effect on the answer.
            wait: True if a sentence model that has not read the query reads it now. In an event loop `await
                index.read(query)` first and pass `False`. The built-in table never waits.

        Raises:
            ValueError: The limit is out of range.
        """
        if not 1 <= limit <= MAX_HITS:
            raise ValueError(f"limit is {limit}; it must be from 1 to {MAX_HITS}")
        if wait and self._reader is not None and self._reader.must_read(query):
            self._reader.read(query)
        index_file.run_to_end(self.catch_up())
        unwanted = frozenset(exclude)
        among = self._of_server(server)
        if hidden:
            among = (self._entries.keys() if among is None else among) - hidden
        found = self._matcher.best(query, limit + len(unwanted), among, hidden)
        ranked = sorted(found.scores.items(), key=lambda item: (-item[1], item[0]))
        known = ((self._entry(name), score) for name, score in ranked if name not in unwanted)
        kept = (_hit_of(entry, score, found.fits) for entry, score in known if entry.id not in unwanted)
        return list(islice(kept, limit if found.fits else min(limit, ranking.NEAREST)))

    async def read(self, query: str) -> None:
        """Let a sentence model read a query in a worker thread, for as long as its scorer allows."""
        reader = self._reader
        if reader is not None and reader.must_read(query):
            # A program that searches without a model needs no event loop.
            import anyio.to_thread

            with anyio.move_on_after(reader.timeout):
                await anyio.to_thread.run_sync(reader.read, query, abandon_on_cancel=True)

    def rest_on(self, kept: Callable[[], index_file.IndexFolder | None]) -> None:
        """Begin the first search with a kept file, which is asked for if the file is worth its time."""
        if self._is_storable:
            self._beginning = self._begin(kept)

    @property
    def is_worth_storing(self) -> bool:
        """True if enough tools were read that are not in a file."""
        many = len(self._entries) >= _STORED and not self._unread
        return self._is_storable and many and self._unstored > len(self._entries) // _PART_STORED

    def saving(
        self, kept: index_file.IndexFolder, leave_out: Callable[[CatalogEntry], bool]
    ) -> Generator[None, None, Callable[[], Path | None] | None]:
        """Prepare a file in steps; return what writes it, in any thread. `None` if the tools have changed.

        Args:
            kept: The store to write to.
            leave_out: True if a tool must not be in a file.
        """
        changes, steps = self._changes, self._storing(leave_out)
        while self._changes == changes:
            try:
                next(steps)
            except StopIteration as end:
                self._unstored = 0
                entries, parts = end.value
                return partial(kept.save, self.servers(), entries, parts, words=self._meaning is None)
            yield
        return None

    def _storing(
        self, leave_out: Callable[[CatalogEntry], bool] = lambda entry: False
    ) -> Generator[None, None, tuple[list[index_file.AnyEntry], index_file.Parts]]:
        entries = [self._entry(name) for name in self._entries]
        return storing(entries, leave_out, self._matcher.ranking.words, self._meaning)

    def _begin(self, asked: Callable[[], index_file.IndexFolder | None]) -> Iterator[None]:
        """Begin with the kept file of these tools, if none was read yet; compare each tool with it."""
        if self._read or len(self._unread) < _STORED or (kept := asked()) is None:
            return
        told, seen = dict[str, bytes](), self._unread.copy()
        every = iter(seen)
        while some := [*islice(every, _COMPARED_AT_ONCE)]:
            told.update((name, seen[name].fingerprint()) for name in some)
            yield
        base = kept.find(self.servers(), told, words=self._meaning is None)
        yield
        if base is None or self._read:
            return
        told = {name: one for name, one in told.items() if self._unread.get(name) is seen[name]}
        left = [name for at, name in enumerate(base.names) if told.get(name) != base.fingerprint(at)]
        if 2 * len(left) < len(base):
            self._begin_with(base)
            self._leave(left)
            for name in base.places.keys() - set(left):
                del self._unread[name]

    def _begin_with(self, base: index_file.IndexBase) -> None:
        self._base, self._read = base, len(base)
        self._matcher.rest_on(base)

    def _entry(self, name: str) -> index_file.AnyEntry:
        entry = self._entries[name]
        return cast("index_file.IndexBase", self._base).entry(entry) if isinstance(entry, int) else entry

    def _holds(self, entry: CatalogEntry) -> bool:
        held = self._entries.get(entry.public_name)
        if isinstance(held, int):
            return self._base is not None and self._base.fingerprint(held) == entry.fingerprint()
        return held is not None and held.same_content(entry)

    def _tell_of(self, fresh: list[CatalogEntry]) -> None:
        if fresh:
            self._read += len(fresh)
            self._unstored += len(fresh)
            self._matcher.add(fresh)

    def _leave(self, read: list[str]) -> None:
        if read:
            self._unstored += len(read)
            self._matcher.remove(read)

    def _forget(self, server: str, name: str) -> None:
        self._servers[server].discard(name)
        if not self._servers[server]:
            del self._servers[server]

    def _of_server(self, server: str | None) -> AbstractSet[str] | None:
        if server is None:
            return None
        if server in self._servers:
            return self._servers[server]
        alike = [names for name, names in self._servers.items() if name.casefold() == server.casefold()]
        return frozenset[str]().union(*alike)


def _built_in() -> ranking.Scorer:
    installed = part("scorer")
    return (installed and installed()) or MeaningScorer()


def _hit_of(entry: index_file.AnyEntry, score: float, fits: bool) -> SearchHit:
    name, line = entry.public_name, entry.description_line
    return SearchHit(entry.id, name, entry.server, line, entry.signature, score, fits=fits)
