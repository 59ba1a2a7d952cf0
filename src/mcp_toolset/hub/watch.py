"""`watching`: reload a server's configuration when its files have changed.

The files are polled, which works on network drives, in mounted folders and when a symbolic link changes its
target. A change is applied once the files are the same in two polls in a row, so that a half-written file is
not read.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import anyio.to_thread

from mcp_toolset.errors import ToolsetError
from mcp_toolset.server.mounts import Reloadable

if TYPE_CHECKING:
    from mcp_toolset.config import HubConfig
    from mcp_toolset.server.server import ToolsetServer

__all__ = ["INTERVAL", "Stamp", "stamp", "watching"]

INTERVAL: Final = 1.0
"""Seconds between two polls of the files."""

_log = logging.getLogger("mcp_toolset.reload")
Stamp: TypeAlias = tuple[int, int, int] | None
"""What changes when a file is written: its inode, size and time; `None` if there is no file."""

_Look: TypeAlias = dict[Path, Stamp]


def _logged(message: str) -> None:
    _log.info("%s", message)


@asynccontextmanager
async def watching(
    server: ToolsetServer, *, every: float = INTERVAL, tell: Callable[[str], None] = _logged
) -> AsyncGenerator[None]:
    """Reload an open server after changes of its configuration, for the length of a block.

    Nothing is watched if the server serves no configuration. A file that cannot be used is logged as an
    error, and the server keeps its configuration.
    """
    configured = server.configured
    if configured is None:
        yield
        return
    async with anyio.create_task_group() as group:
        group.start_soon(_Watch(server, configured, every, tell).run)
        yield
        group.cancel_scope.cancel()


class _Watch:
    """Polls the files of one server's configuration."""

    def __init__(
        self, server: ToolsetServer, configured: Reloadable, every: float, tell: Callable[[str], None]
    ) -> None:
        self._server = server
        self._configured = configured
        self._every = every
        self._tell = tell
        self._unread = ""
        self._refused: HubConfig | None = None

    async def run(self) -> None:
        seen = await self._look()
        # The file may have changed between the start, when it was read, and this poll.
        if await self._read() not in (None, self._configured.config):
            await self._reload()
        while True:
            await anyio.sleep(self._every)
            now = await self._look()
            # A configuration that cannot be used may refer to a file or folder that is not watched yet.
            if now == seen and not self._unread and not self._configured.config.misconfigured:
                continue
            if now != seen and await self._moves(now):
                continue
            read = await self._read()
            if read is not None and (now != seen or read not in (self._configured.config, self._refused)):
                self._refused = None if await self._reload() else read
            # A newly watched file was read before its first poll, so its content may differ: it is read
            # again. so that it is read once more.
            seen = {path: now.get(path) for path in self._configured.watched()}

    async def _moves(self, now: _Look) -> bool:
        """True if the files are still being written."""
        await anyio.sleep(self._every)
        return await self._look() != now

    async def _read(self) -> HubConfig | None:
        """The current configuration; `None` if it cannot be read, which is logged once."""
        try:
            read = await anyio.to_thread.run_sync(self._configured.read)
        except ToolsetError as fault:
            if str(fault) != self._unread:
                self._unread = str(fault)
                _complain(fault)
            return None
        self._unread = ""
        return read

    async def _reload(self) -> bool:
        """Apply the configuration that was read; return whether that succeeded, and log the reason if not."""
        try:
            report = await self._server.reload()
        except ToolsetError as fault:
            _complain(fault)
            return False
        if report:
            self._tell(f"{self._configured.config.path} was read again: {report}")
        return True

    async def _look(self) -> _Look:
        return await anyio.to_thread.run_sync(_looked, self._configured.watched())


def _complain(fault: ToolsetError) -> None:
    _log.error("%s; what is served stays as it was", fault)


def _looked(files: Iterable[Path]) -> _Look:
    return {file: stamp(file) for file in files}


def stamp(file: Path) -> Stamp:
    """What tells one state of a file from the next."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
