"""`IndexFolder`: where the indexes of searches are kept, as an index sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mcp_toolset.catalog.search.stored.base import IndexBase, Told
    from mcp_toolset.catalog.search.stored.index_file import Parts


class IndexFolder(Protocol):
    """Where indexes are read and written."""

    def find(self, servers: Iterable[str], prints: Mapping[str, bytes], *, words: bool) -> IndexBase | None:
        """The index that is nearest to tools with these fingerprints; `None` without any.

        Args:
            servers: The names of all servers.
            prints: The fingerprint of each tool by public name.
            words: Whether the index has words alone.
        """
        ...

    def save(
        self, servers: Iterable[str], entries: Iterable[Told], parts: Parts, *, words: bool
    ) -> Path | None:
        """Write an index of some tools; returns the file, if it could be written."""
        ...
