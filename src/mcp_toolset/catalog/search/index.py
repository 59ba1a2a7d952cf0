"""`SearchIndex`: full-text and semantic search over tools, in a catalog that changes.

`DeferredCatalog` and `mcp-toolset search` use it. A query that names a tool puts that tool first
(`name_matching`). The rest are ranked by the query's words (`lexical`) fused with its meaning (`meaning`);
see `ranking`. A query is plain text: it has no operators, and only its first part is read, so no query can
raise or run long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, Literal

import anyio
import anyio.to_thread

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.search.entry import CatalogEntry, entry_of
from mcp_toolset.catalog.search.meaning import MeaningScorer, warn_about_numpy
from mcp_toolset.catalog.search.models.installed import installed_scorer
from mcp_toolset.catalog.search.name_matching import NameTable
from mcp_toolset.catalog.search.ranking import Ranking, ReadingScorer, Scorer, require_scorer
from mcp_toolset.catalog.search.text import is_one_word
from mcp_toolset.tools.core.definition import ToolDefinition

__all__ = ["CatalogEntry", "Scorer", "SearchHit", "SearchIndex"]

MAX_HITS = 100
_RANKED_BELOW = 0.8
_WITHIN_MATCH = 0.02
_READ_AT_ONCE = 16


@dataclass(frozen=True)
class SearchHit:
    """One found tool.

    Attributes:
        id: What to resolve the tool by.
        name: Its public name.
        server: The source it comes from, if any.
        description: One line of at most 160 characters.
        signature: The public name with parameters and their types.
        score: From 0 to 1, 1 for the tool's exact name; comparable within one answer only.
        state: `available`, or why the tool cannot be called now; the deferred catalog sets it.
    """

    id: str
    name: str
    server: str | None
    description: str
    signature: str
    score: float
    state: str = "available"


class SearchIndex:
    """An index over tools. Adding a tool whose content has not changed costs nothing."""

    def __init__(
        self,
        definitions: Iterable[ToolDefinition | CatalogEntry] = (),
        *,
        scorer: Scorer | Literal["built-in"] | None = "built-in",
        numpy: Any = None,
    ) -> None:
        """Index the tools.

        Args:
            definitions: Bare definitions stand under their own names; a later one replaces an earlier
                one of the same name. Use `CatalogEntry` to tell servers apart.
            scorer: The ranking that is fused with the ranking by words: the built-in table of meanings, with
                a sentence model where one is installed, another scorer such as an `EmbeddingScorer`, or
                `None` for the words alone.
            numpy: Deprecated and ignored.

        Raises:
            DefinitionError: the scorer is none of these.
        """
        warn_about_numpy(numpy)
        require_scorer(scorer)
        self._entries: dict[str, CatalogEntry] = {}
        self._servers: dict[str, set[str]] = {}
        self._unread: dict[str, CatalogEntry] = {}
        self._names = NameTable()
        second = installed_scorer() or MeaningScorer() if isinstance(scorer, str) else scorer
        self._reader = second if isinstance(second, ReadingScorer) else None
        self._ranking = Ranking(second)
        self.add(definitions)

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
            later: Whether their words are read by the first search, or by `catch_up`. A sentence model, which
                takes longer, begins at once all the same.
        """
        wanted = {entry.public_name: entry for entry in map(entry_of, entries)}
        fresh = [entry for entry in wanted.values() if not self._holds(entry)]
        self.remove(entry.public_name for entry in fresh)
        for entry in fresh:
            self._entries[entry.public_name] = entry
            if entry.server is not None:
                self._servers.setdefault(entry.server, set()).add(entry.public_name)
        if later and self._reader is None:
            self._unread.update((entry.public_name, entry) for entry in fresh)
        else:
            self._tell_of(fresh)
        return {entry.public_name for entry in fresh}

    def catch_up(self) -> Iterator[None]:
        """Read the words of tools that were added for later, in steps of some milliseconds."""
        while self._unread:
            self._tell_of([self._unread.pop(name) for name in [*islice(self._unread, _READ_AT_ONCE)]])
            yield

    def remove(self, public_names: Iterable[str]) -> set[str]:
        """Remove tools by public name; return the names that were indexed."""
        gone = {name: self._entries.pop(name) for name in set(public_names) if name in self._entries}
        for name, entry in gone.items():
            if entry.server is not None:
                self._forget(entry.server, name)
        read = [name for name in gone if self._unread.pop(name, None) is None]
        if read:
            self._names.remove(read)
            self._ranking.remove(read)
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
            query: What the tool should do, or its name. Any text; no operators.
            server: Only tools of this server; case matters only if two servers differ in nothing else.
            limit: The largest number of hits, 1 to 100.
            exclude: Ids or public names to leave out.
            hidden: Public names of tools that do not exist for the caller; the answer is as without them.
            wait: Whether a sentence model that has not read the query reads it now. In an event loop `await
                index.read(query)` first and pass `False`. The built-in table never waits.

        Raises:
            ValueError: The limit is out of range.
        """
        if not 1 <= limit <= MAX_HITS:
            raise ValueError(f"limit is {limit}; it must be from 1 to {MAX_HITS}")
        if wait and self._reader is not None and self._reader.must_read(query):
            self._reader.read(query)
        for _ in self.catch_up():
            pass
        unwanted = frozenset(exclude)
        among = self._of_server(server)
        if hidden:
            among = (self._entries.keys() if among is None else among) - hidden
        scores = self._scores(query, limit + len(unwanted), among, hidden)
        ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        kept = (
            (self._entries[name], score)
            for name, score in ranked
            if name not in unwanted and self._entries[name].id not in unwanted
        )
        return [_hit(entry, score) for (entry, score), _ in zip(kept, range(limit), strict=False)]

    async def read(self, query: str) -> None:
        """Have a sentence model read a query in a worker thread, for as long as its scorer allows."""
        reader = self._reader
        if reader is not None and reader.must_read(query):
            with anyio.move_on_after(reader.patience):
                await anyio.to_thread.run_sync(reader.read, query, abandon_on_cancel=True)

    def _holds(self, entry: CatalogEntry) -> bool:
        held = self._entries.get(entry.public_name)
        return held is not None and held.same_content(entry)

    def _tell_of(self, fresh: list[CatalogEntry]) -> None:
        if fresh:
            self._names.add(fresh)
            self._ranking.add(fresh)

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

    def _scores(
        self, query: str, count: int, among: AbstractSet[str] | None, hidden: AbstractSet[str]
    ) -> dict[str, float]:
        is_known = is_one_word(query) and self._ranking.knows(query, hidden)
        named = self._names.matches(query, beginnings=not is_known)
        if among is not None:
            named = {name: closeness for name, closeness in named.items() if name in among}
        ranked = self._ranking.best(query, count, among, hidden)
        scores = {name: _RANKED_BELOW * score for name, score in ranked.items()}
        if named:
            within = self._ranking.best(query, len(named), named.keys(), hidden)
            scores |= {name: _placed(closeness, within.get(name, 0.0)) for name, closeness in named.items()}
        return scores


def _hit(entry: CatalogEntry, score: float) -> SearchHit:
    return SearchHit(
        entry.id, entry.public_name, entry.server, entry.description_line, entry.signature, score
    )


def _placed(closeness: float, score: float) -> float:
    """The score of a tool that the query names: the ranking decides among names that are equally close."""
    return closeness if closeness == 1 else closeness + _WITHIN_MATCH * score
