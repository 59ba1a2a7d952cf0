"""`watching`: a server's configuration is read again when its files have changed.

The files are looked at rather than listened to: that works on network drives, in mounted folders and
where a link is turned to another file. A change is taken in once the files have been left alone from one
look to the next, so that a half-written file is not read.
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
from mcp_toolset.server.reloadable import Reloadable

if TYPE_CHECKING:
    from mcp_toolset.config import HubConfig
    from mcp_toolset.server.server import ToolsetServer

__all__ = ["INTERVAL", "watching"]

INTERVAL: Final = 1.0
"""Seconds between one look at the files and the next."""

_log = logging.getLogger("mcp_toolset.reload")
_Look: TypeAlias = dict[Path, tuple[int, int, int] | None]


def _logged(message: str) -> None:
    _log.info("%s", message)


@asynccontextmanager
async def watching(
    server: ToolsetServer, *, every: float = INTERVAL, tell: Callable[[str], None] = _logged
) -> AsyncGenerator[None]:
    """Reload an open server after changes of its configuration, for the length of a block.

    Nothing is watched if the server serves no configuration. A file that cannot be used is an error in
    the log, and what is served stays.

    Args:
        server: What is served.
        every: Seconds between looks.
        tell: Told of each reload that made a difference, in one line.
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
    """Looks at the files of one server's configuration."""

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
        # It may have changed between the start, when it was read, and this look.
        if await self._read() not in (None, self._configured.config):
            await self._reload()
        while True:
            await anyio.sleep(self._every)
            now = await self._look()
            # What cannot be used may want a file or folder that nobody watches yet.
            if now == seen and not self._unread and not self._configured.config.misconfigured:
                continue
            if now != seen and await self._moves(now):
                continue
            read = await self._read()
            if read is not None and (now != seen or read not in (self._configured.config, self._refused)):
                self._refused = None if await self._reload() else read
            # A file that is watched from now on was read before it was looked at: as it was then is unknown,
            # so that it is read once more.
            seen = {path: now.get(path) for path in self._configured.watched()}

    async def _moves(self, now: _Look) -> bool:
        """Whether somebody is still writing."""
        await anyio.sleep(self._every)
        return await self._look() != now

    async def _read(self) -> HubConfig | None:
        """The configuration as it is by now; `None` if it cannot be read, which is told once."""
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
        """Serve what is read now; whether that can be done, of which the log has the reason."""
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
    return {file: _signed(file) for file in files}


def _signed(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
