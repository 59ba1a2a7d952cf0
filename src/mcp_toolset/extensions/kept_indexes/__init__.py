"""The indexes of searches, from one start to the next and from one replica to the others.

The task of `IndexKeeper` begins after a search has read the tools, and pauses between its steps, so that
calls go on. What it writes is thrown away if a tool changes meanwhile; the next search asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from mcp_toolset.concurrency.tasks import ThreadEvent, beside

if TYPE_CHECKING:
    from mcp_toolset.catalog.search.entry import CatalogEntry
    from mcp_toolset.catalog.search.index import SearchIndex
    from mcp_toolset.extensions.kept_indexes.kept_indexes import KeptIndexes, SharedIndexes
    from mcp_toolset.shared.state import SharedState


PAUSE: Final = 0.005  # seconds between two steps, each of which takes about as long
CLOSING: Final = 1.0  # seconds that a server which closes goes on writing


class IndexKeeper:
    """Writes the index of one server's search whenever it has read much that its file does not have."""

    def __init__(self, folder: Callable[[], Path | None], shared: SharedState | None = None) -> None:
        """Keep indexes in a folder, asked for by the first search; `None` keeps nothing."""
        self._folder = folder
        self._shared = shared
        self._asked = ThreadEvent()
        self._index: SearchIndex | None = None
        self._leave_out: Callable[[CatalogEntry], bool] = lambda entry: False

    def rest(self, index: SearchIndex, leave_out: Callable[[CatalogEntry], bool]) -> None:
        """Make an empty index begin with its file, and write that file without the tools to `leave_out`."""
        self._index, self._leave_out = index, leave_out
        index.rest_on(self._kept)

    def look(self) -> None:
        """Write the index later, if that is worth it; it has read its tools by now."""
        if self._index is not None and self._index.is_worth_storing:
            self._asked.set()

    async def fetch(self) -> None:
        """Take what another replica has made, so that the first search begins with it."""
        if (others := self._others()) is None or (kept := self._kept()) is None:
            return
        for edition in await anyio.to_thread.run_sync(kept.editions):
            name = await others.newest(edition)
            if name and not kept.holds(name) and (content := await others.content(name)):
                await anyio.to_thread.run_sync(kept.take, name, content)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Write for the length of a block; what is worth it by then is written within `CLOSING`."""
        self._asked.attach()
        return beside(self._follow, last=self._finish)

    async def _finish(self) -> None:
        with anyio.move_on_after(CLOSING):
            await self._write(0)

    def _others(self) -> SharedIndexes | None:
        if self._shared is None:
            return None
        from mcp_toolset.extensions.kept_indexes.kept_indexes import SharedIndexes

        return SharedIndexes(self._shared)

    def _kept(self) -> KeptIndexes | None:
        # Most servers hold fewer tools than a file is for.
        from mcp_toolset.extensions.kept_indexes.kept_indexes import KeptIndexes

        folder = self._folder()
        return None if folder is None else KeptIndexes(folder)

    async def _follow(self) -> None:
        while True:
            await self._asked.wait()
            await self._write(PAUSE)

    async def _write(self, pause: float) -> None:
        index = self._index
        if index is None or not index.is_worth_storing or (kept := self._kept()) is None:
            return
        steps, write = index.saving(kept, self._leave_out), None
        while write is None:
            try:
                next(steps)
            except StopIteration as end:
                if end.value is None:
                    return
                write = end.value
            await anyio.sleep(pause)
        path = await anyio.to_thread.run_sync(write)
        if path is not None and (others := self._others()) is not None:
            content = await anyio.to_thread.run_sync(path.read_bytes)
            await others.put(path.name.partition("-")[0], path.name, content)


NAME, PART = "indexes", IndexKeeper
