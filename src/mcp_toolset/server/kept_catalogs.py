"""`KeptCatalogs`: what the last run knew of each mounted server, given to its mount at the start.

Saved whenever a mount has listed something else. Where it is kept: the folder that the server was given,
else `MCP_TOOLSET_CACHE`, else beside the state file, else the user's cache folder of this platform.
`False`, or `off` in the environment, keeps nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

import anyio
import anyio.to_thread

from mcp_toolset.catalog.cache_folder import VARIABLE, cache_folder
from mcp_toolset.concurrency.thread_event import ThreadEvent
from mcp_toolset.tools.core.source import ToolSource, fits

if TYPE_CHECKING:
    from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog
    from mcp_toolset.catalog.registry.kept_files import KeptFiles
    from mcp_toolset.catalog.registry.state_store import StateStore

Keeping: TypeAlias = "str | os.PathLike[str] | Literal[False] | None"

_log = logging.getLogger("mcp_toolset.catalog")


@runtime_checkable
class Keepable(Protocol):
    """A source whose lists can be kept from one run to the next."""

    @property
    def keep_key(self) -> str | None:
        """What its lists are kept under; `None` for a source that nothing tells apart later."""
        ...

    def kept(self) -> KeptCatalog | None:
        """What is to be kept of it now; `None` while it is not ready."""
        ...

    async def remember(self, kept: KeptCatalog) -> None:
        """Serve what the last run knew, until the source has listed."""
        ...


def folder_for(keep: Keeping, state: str | os.PathLike[str] | StateStore | None) -> Path | None:
    """Where catalogs are kept; `None` for nowhere."""
    if keep is False:
        return None
    if keep is not None:
        return Path(keep)
    if isinstance(state, str | os.PathLike) and VARIABLE not in os.environ:
        path = Path(state)
        return path.with_name(f"{path.name}.catalogs")
    folder = cache_folder()
    return None if folder is None else folder / "catalogs"


class KeptCatalogs:
    """The kept catalogs of one server's mounts."""

    def __init__(self, folder: Callable[[], Path | None]) -> None:
        """Use the files of a folder, which is asked for when something is mounted; of none, keep nothing."""
        self._folder = folder
        self._files: KeptFiles | None = None
        self._changed = ThreadEvent()
        self._sources: dict[str, Keepable] = {}
        self._saved: dict[str, KeptCatalog] = {}
        self._stops: list[Callable[[], None]] = []

    async def restore(self, sources: Iterable[ToolSource]) -> None:
        """Give each source what is kept of it, and keep what it lists from now on."""
        self._changed.attach()
        fresh = {
            key: source
            for source in sources
            if fits(source, Keepable)
            and (key := source.keep_key) is not None
            and self._sources.get(key) is not source
        }
        files = self._opened() if fresh else None
        if files is None:
            return
        for key, source in fresh.items():
            self._sources[key] = source
            self._stops.append(source.on_change(self._changed.set))
        loaded = await anyio.to_thread.run_sync(lambda: {key: files.load(key) for key in fresh})
        for key, kept in loaded.items():
            if kept is not None:
                self._saved[key] = kept
                await fresh[key].remember(kept)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Save what changes for the length of a block."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
                for stop in self._stops:
                    stop()
                with anyio.CancelScope(shield=True):
                    await self._save()
                self._sources, self._stops = {}, []

    def _opened(self) -> KeptFiles | None:
        """The files of the folder; their libraries are loaded when something is mounted."""
        if self._files is None and (folder := self._folder()) is not None:
            from mcp_toolset.catalog.registry.kept_files import KeptFiles

            self._files = KeptFiles(folder)
        return self._files

    async def _follow(self) -> None:
        while True:
            await self._save()
            await self._changed.wait()

    async def _save(self) -> None:
        if self._files is not None and self._sources:
            await anyio.to_thread.run_sync(self._save_all, self._files, dict(self._sources))

    def _save_all(self, files: KeptFiles, sources: Mapping[str, Keepable]) -> None:
        for key, source in sources.items():
            kept = source.kept()
            if kept is not None and kept != self._saved.get(key):
                self._saved[key] = kept
                files.save(key, kept)
                _log.debug("kept what a mounted server lists: %s.json", key)
