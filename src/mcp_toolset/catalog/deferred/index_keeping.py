"""`IndexKeeping`: what keeps the index of a search from one start to the next, as a catalog sees it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mcp_toolset.catalog.search.entry import CatalogEntry
    from mcp_toolset.catalog.search.index import SearchIndex


class IndexKeeping(Protocol):
    """Keeps the index of one server's search."""

    def rest(self, index: SearchIndex, leave_out: Callable[[CatalogEntry], bool]) -> None:
        """Have an index, which is empty so far, begin with its file, and write that.

        Args:
            index: The index.
            leave_out: Whether a tool must not be in a file.
        """
        ...

    def look(self) -> None:
        """Write the index later, if that is worth it; it has read its tools by now."""
        ...

    async def fetch(self) -> None:
        """Take what another replica has made, so that the first search begins with it."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Write for the length of a block; what is worth it by then is written at its end."""
        ...
