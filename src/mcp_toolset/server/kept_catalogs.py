"""`KeptCatalogs`: what the last run knew of each mounted server, given to its mount at the start.

Saved whenever a mount has listed something else. Where it is kept: the folder that the server was given,
else `MCP_TOOLSET_CACHE`, else beside the state file, else the user's cache folder of this platform.
`False`, or `off` in the environment, keeps nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, runtime_checkable

import anyio
import anyio.to_thread

from mcp_toolset.catalog.cache_folder import VARIABLE, cache_folder
from mcp_toolset.concurrency.task_set import ThreadEvent, beside
from mcp_toolset.context.shared import Shared
from mcp_toolset.errors import InvalidStateError, StoreError
from mcp_toolset.tools.core.source import ToolSource, fits

if TYPE_CHECKING:
    from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog
    from mcp_toolset.catalog.registry.kept_files import KeptFiles
    from mcp_toolset.catalog.registry.state_store import StateStore

Keeping: TypeAlias = "str | os.PathLike[str] | Literal[False] | None"

KEPT_FOR: Final = 30 * 86_400.0
"""Seconds for which replicas find what a server has listed."""

_PURPOSE: Final = "catalog"
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
    """The kept catalogs of one server's mounts.

    Attributes:
        is_used: Whether mounts get what was kept of them; what they list now is kept in any case.
    """

    def __init__(self, folder: Callable[[], Path | None], shared: Shared | None = None) -> None:
        """Keep catalogs.

        Args:
            folder: The folder of their files, asked for when something is mounted; `None` for no files.
            shared: Where replicas find what the others have listed.
        """
        self._folder = folder
        self._shared = shared
        self._files: KeptFiles | None = None
        self._changed = ThreadEvent()
        self._sources: dict[str, Keepable] = {}
        self._saved: dict[str, KeptCatalog] = {}
        self._stops: list[Callable[[], None]] = []
        self.is_used = True

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
        if not fresh or (files is None and self._shared is None):
            return
        for key, source in fresh.items():
            self._sources[key] = source
            self._stops.append(source.on_change(self._changed.set))
        loaded: dict[str, KeptCatalog | None] = {}
        if files is not None:
            loaded = await anyio.to_thread.run_sync(lambda: {key: files.load(key) for key in fresh})
        for key, source in fresh.items():
            kept = loaded.get(key) or await self._fetched(key)
            if kept is not None:
                self._saved[key] = kept
                if self.is_used:
                    await source.remember(kept)

    async def _fetched(self, key: str) -> KeptCatalog | None:
        """What another replica has listed; `None` without one, or if its text is not of a replica."""
        if self._shared is None:
            return None
        from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog

        try:
            sealed = await self._shared.kept(_PURPOSE).get(key)
            data = sealed and self._shared.keys.open(_PURPOSE, sealed.decode(), bound=key)
            return KeptCatalog.from_json(data) if data else None
        except (StoreError, InvalidStateError, UnicodeDecodeError) as fault:
            _log.warning("what another replica has listed of a server cannot be used: %s", fault)
            return None

    def running(self) -> AbstractAsyncContextManager[None]:
        """Save what changes for the length of a block."""
        return beside(self._follow, last=self._close)

    async def _close(self) -> None:
        for stop in self._stops:
            stop()
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
        changed: dict[str, KeptCatalog] = {}
        for key, source in self._sources.items():
            kept = source.kept()
            if kept is not None and kept != self._saved.get(key):
                self._saved[key] = changed[key] = kept
        if self._files is not None and changed:
            await anyio.to_thread.run_sync(self._save_all, self._files, changed)
        if self._shared is not None:
            await self._put(self._shared, changed)

    def _save_all(self, files: KeptFiles, changed: Mapping[str, KeptCatalog]) -> None:
        for key, kept in changed.items():
            files.save(key, kept)
            _log.debug("kept what a mounted server lists: %s.json", key)

    async def _put(self, shared: Shared, changed: Mapping[str, KeptCatalog]) -> None:
        for key, kept in changed.items():
            sealed = shared.keys.seal(_PURPOSE, kept.to_json().encode(), bound=key)
            try:
                await shared.kept(_PURPOSE).put(key, sealed.encode(), seconds=KEPT_FOR)
            except StoreError as fault:
                _log.warning("other replicas do not get what a server lists: %s", fault)
