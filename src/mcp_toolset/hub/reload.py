"""`Reloads`: replace the configuration of a running server while clients call.

New and changed servers are started first. When all of them have answered, or have failed once, one step
replaces the tables, and clients are notified once of each list that has changed. A removed mount is closed
when none of its calls is in flight. A server whose entry differs only in how its tools are named, chosen or
judged keeps its connection. A configuration that cannot be used changes nothing. `watching` looks at
the files.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import anyio.abc
import anyio.to_thread

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.pins.lockfile import LockFile
from mcp_toolset.config.models import HubConfig
from mcp_toolset.errors import NameConflictError, StateError, ToolsetError
from mcp_toolset.extending.extension import find
from mcp_toolset.hub import toolset
from mcp_toolset.server.mounts import Reload, Reloadable, ReloadReport
from mcp_toolset.tools.source import ToolSource

if TYPE_CHECKING:
    from mcp_toolset.server.server import ToolsetServer


__all__ = ["INTERVAL", "Stamp", "stamp", "watching"]

INTERVAL: Final = 1.0
"""Seconds between two polls of the files."""

_log = logging.getLogger("mcp_toolset.reload")
Stamp: TypeAlias = tuple[int, int, int] | None
"""The facts that change when a file is written: its inode, size and time; `None` if there is no file."""

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
            # It may wait for a keyring or a program, and nothing waits for it when the server ends.
            read = await anyio.to_thread.run_sync(self._configured.read, abandon_on_cancel=True)
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
    """A mark that tells one state of a file from the next."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


_AT_RESTART: Final = ("name", "client_prefix", "list_timeout", "log", "http")


@dataclass(eq=False, slots=True)
class _MountStart:
    """A mount that is being started, and its first attempt."""

    mount: toolset.Mount
    settled: anyio.Event = field(default_factory=anyio.Event)

    def started(self, value: Any = None) -> None:
        """Note that the first attempt has succeeded or failed (`TaskStatus`)."""
        self.settled.set()


@dataclass(eq=False)
class Reloads:
    """Owns the mounts that were started after the server was opened."""

    configured: toolset.ConfiguredToolset  # the configuration that is served
    _: KW_ONLY
    sources: Callable[[], Mapping[str, ToolSource]]  # all mounts by name
    changed: Callable[[], None]  # called when the tools or the status of a mount have changed
    rebuild: Callable[[], Awaitable[None]]  # compiles the tool table
    _turn: anyio.Lock = field(default_factory=anyio.Lock, init=False)
    _group: anyio.abc.TaskGroup | None = field(default=None, init=False)
    _late: dict[str, _MountStart] = field(default_factory=dict[str, _MountStart], init=False)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Reload]:
        """Allow reloads for the length of a block; then close the mounts that they started."""
        try:
            async with anyio.create_task_group() as self._group:
                yield self.reload
                self._group.cancel_scope.cancel()
        finally:
            self._group = None
            late, self._late = self._late, {}
            if late:
                mounts = {**self.configured.mounts, **{name: one.mount for name, one in late.items()}}
                self.configured.put(self.configured.config, mounts)

    async def reload(self, config: HubConfig | None, *, drain: float, timeout: float) -> ReloadReport:
        self._open()
        # One reload at a time, and each reads the file when its turn comes: the last one wins.
        async with self._turn:
            wanted = await anyio.to_thread.run_sync(self.configured.wanted, config, abandon_on_cancel=True)
            lock = await anyio.to_thread.run_sync(toolset.lock_of, wanted)
            fresh = self._fresh(wanted, lock)
            async with self._opening(fresh) as opening:
                with anyio.move_on_after(timeout):
                    for one in opening.values():
                        await one.settled.wait()
                return await self._take(wanted, lock, opening, drain)

    def _open(self) -> anyio.abc.TaskGroup:
        if self._group is None:
            raise StateError("a configuration is reloaded while the server is open; enter it first")
        return self._group

    def _fresh(self, wanted: HubConfig, lock: LockFile) -> dict[str, toolset.Mount]:
        """The mounts to start; every error of a configuration is found here."""
        mounts = self.configured.mounts
        fresh: dict[str, toolset.Mount] = {}
        for server in toolset.enabled(wanted):
            standing, late = mounts.get(server.name), self._late.get(server.name)
            other = self.sources().get(server.name)
            if standing is None and other is not None and not isinstance(other, toolset.Misconfigured):
                raise NameConflictError(
                    f"{wanted.path}: two mounts are named {server.name!r}; give this one another name"
                )
            if not any(one is not None and one.serves(server) for one in (standing, late and late.mount)):
                fresh[server.name] = toolset.Mount(server, toolset.mounted(server, lock, wanted.path))
                if standing is not None:
                    fresh[server.name].remember(standing)
                if self.configured.shared is not None:
                    fresh[server.name].remote.share(self.configured.shared)
        toolset.shaped(wanted, {**mounts, **fresh})
        return fresh

    @asynccontextmanager
    async def _opening(self, fresh: Mapping[str, toolset.Mount]) -> AsyncGenerator[dict[str, _MountStart]]:
        """Mounts that are being started; they are closed if the block fails."""
        opening = {name: _MountStart(mount) for name, mount in fresh.items()}
        for one in opening.values():
            self._open().start_soon(self._own, one)
        try:
            yield opening
        except BaseException:
            with anyio.CancelScope(shield=True):
                for one in opening.values():
                    await one.mount.remote.connection.end(0)
            raise

    async def _own(self, starting: _MountStart) -> None:
        """Run one mount until it is closed."""
        remote = starting.mount.remote
        stop = remote.on_change(self.changed)
        try:
            await remote.run(task_status=starting)
        finally:
            stop()
            starting.settled.set()

    async def _take(
        self, wanted: HubConfig, lock: LockFile, opening: Mapping[str, _MountStart], drain: float
    ) -> ReloadReport:
        """Replace the configuration: the new mounts that have answered, and the old ones of the rest."""
        before, mounts, late = self.configured.config, self.configured.mounts, self._late
        report = _reported(before, wanted, mounts, opening)
        for server in wanted.misconfigured:
            if server not in before.servers:
                _log.error(
                    "%s is misconfigured: %s", server.name, server.fault, extra={"server": server.name}
                )
        self._late = self._still_late(wanted, mounts, opening)
        now = {
            server.name: mounts[server.name]
            if server.name in self._late or server.name not in opening
            else opening[server.name].mount
            for server in toolset.enabled(wanted)
        }
        with anyio.CancelScope(shield=True):
            try:
                await self._settle(wanted, now, lock)
                await self._swap(wanted, now, drain)
            except BaseException:
                self._late = late
                await self._settle(before, mounts, toolset.lock_of(before))
                raise
        for name, one in late.items():
            if self._late.get(name) is not one:
                self._open().start_soon(one.mount.remote.connection.end, 0)
        for name, one in self._late.items():
            if late.get(name) is not one:
                self._open().start_soon(self._join, name, one, drain)
        return report

    def _still_late(
        self, wanted: HubConfig, mounts: Mapping[str, toolset.Mount], opening: Mapping[str, _MountStart]
    ) -> dict[str, _MountStart]:
        """The new mounts that are to replace a working mount and have not answered yet."""
        late: dict[str, _MountStart] = {}
        for server in toolset.enabled(wanted):
            standing, before = mounts.get(server.name), self._late.get(server.name)
            one = opening.get(server.name)
            if (
                one is not None
                and standing is not None
                and standing.remote.status.is_up
                and not one.settled.is_set()
            ):
                late[server.name] = one
            elif one is None and before is not None and before.mount.serves(server):
                late[server.name] = before
        return late

    async def _settle(self, config: HubConfig, mounts: Mapping[str, toolset.Mount], lock: LockFile) -> None:
        """Apply the new entries to the mounts that keep their connections."""
        for server in toolset.enabled(config):
            late = self._late.get(server.name)
            for mount in (mounts[server.name], late and late.mount):
                if mount is not None:
                    toolset.settle(mount, server, lock)
                    await mount.remote.connection.tools.judged_anew()

    async def _swap(self, wanted: HubConfig, now: Mapping[str, toolset.Mount], drain: float) -> None:
        """Serve other mounts, all at once, and close the removed ones when their calls are done."""
        before, mounts = self.configured.config, self.configured.mounts
        left = {name: mount for name, mount in mounts.items() if now.get(name) is not mount}
        for name, mount in left.items():
            if name in now:
                now[name].remote.connection.follow(mount.remote.connection)
        self.configured.put(wanted, now)
        try:
            await self.rebuild()
        except BaseException:
            self.configured.put(before, mounts)
            raise
        for name, mount in left.items():
            mount.successor = now.get(name)
            self._open().start_soon(_leave, mount, drain)

    async def _join(self, name: str, late: _MountStart, drain: float) -> None:
        """Serve a mount that answered late, unless a later reload has dropped it."""
        await late.settled.wait()
        async with self._turn:
            if self._late.get(name) is late:
                del self._late[name]
                now = {**self.configured.mounts, name: late.mount}
                try:
                    await self._swap(self.configured.config, now, drain)
                except NameConflictError as fault:
                    _log.error("%s; %s stays as it was", fault, name)
                    await late.mount.remote.connection.end(0)


async def _leave(mount: toolset.Mount, drain: float) -> None:
    """Close a mount that is no longer served, once its calls in flight are done."""
    ending, successor = mount.remote.connection, mount.successor
    if successor is not None:
        await successor.remote.connection.watches.follow(ending.watches)
    await ending.end(drain)
    if successor is not None:
        successor.remote.connection.unfollow(ending)


def _reported(
    before: HubConfig,
    wanted: HubConfig,
    mounts: Mapping[str, toolset.Mount],
    opening: Mapping[str, _MountStart],
) -> ReloadReport:
    known = {server.name: server for server in toolset.enabled(before)}
    names = [server.name for server in toolset.enabled(wanted)]
    kept = [
        server for server in toolset.enabled(wanted) if server.name in known and server.name not in opening
    ]
    other_lock = toolset.lock_path(before) != toolset.lock_path(wanted)
    later = [key for key in _AT_RESTART if getattr(before, key) != getattr(wanted, key)]
    now = ["permissions"] if before.permissions != wanted.permissions else []
    for key in sorted({**before.extensions, **wanted.extensions}):
        kind, said, says = find(key), before.extensions.get(key), wanted.extensions.get(key)
        if kind is not None and said != says:
            (later if kind.at_restart(said, says) else now).append(key)
    return ReloadReport(
        added=tuple(name for name in names if name not in mounts),
        removed=tuple(name for name in mounts if name not in names),
        restarted=tuple(name for name in names if name in mounts and name in opening),
        altered=tuple(one.name for one in kept if other_lock or one != known[one.name]),
        starting=tuple(name for name, one in opening.items() if not one.settled.is_set()),
        at_restart=tuple(later),
        settings=tuple(now),
        misconfigured=tuple(one.name for one in wanted.misconfigured if one not in before.servers),
    )
