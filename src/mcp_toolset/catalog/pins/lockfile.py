"""`LockFile`: the pins of servers in a file, to be reviewed and kept under version control.

Serving only reads it; `mcp-toolset pin` writes it. A file that is broken, or that another program wrote, is
an error that names it, and is left unchanged. Writers replace it in one step, one process at a time. It has
the definitions that servers list, without the secrets of their mounts, in a canonical form, which is equal
for equivalent definitions.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.pins.canonical import digest_of
from mcp_toolset.concurrency.atomic_file import locked, opened, replace_file
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.hidden_text import plain_to_see, visible

VERSION: Final = 1
MAX_SIZE: Final = 256 * 1024 * 1024  # the largest size of a lock file in bytes
TIMEOUT: Final = 10.0  # seconds that a writer waits for other writers

_PAUSE: Final = 0.02
_MAGIC: Final = "mcpToolsetLock"
_MEND: Final = "restore it from version control, or remove it and run `mcp-toolset pin` to pin anew"
_log: Final = logging.getLogger("mcp_toolset.pins")

Pinned: TypeAlias = Mapping[str, dict[str, Any]]
"""The canonical definitions of one server's tools, by their own names."""

Servers: TypeAlias = Mapping[str, Pinned]  # the pins of every server in the file, by the server's name there

_Signature: TypeAlias = tuple[int, int, int, int]


def lock_beside(path: Path) -> Path:
    """The path of the lock file of a configuration file: `mcp.json` has `mcp.lock.json`."""
    return path.with_suffix(".lock.json")


making_pins: Final[ContextVar[bool]] = ContextVar("making_pins", default=False)
"""True while `mcp-toolset pin` loads a program, whose lock files need not exist yet."""


class LockFile:
    """The pins in one file, read again whenever the file has changed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file, if it exists; `ConfigError` if `mcp-toolset` did not write it."""
        self.path = Path(path)
        self._turn = threading.Lock()
        self._pause = threading.Event()
        self._signature: _Signature | None = None
        self._servers: Servers = {}
        self._complained: object = None
        self.exists = False
        self.reload()

    def entry(self, server: str) -> LockEntry:
        return LockEntry(self, server)

    def servers(self) -> Servers:
        return self._servers

    def reload(self) -> None:
        with self._turn:
            signature = self._signed()
            if signature == self._signature and self.exists:
                return
            text = self._text()
            self.exists = text is not None
            if text is not None:
                self._servers = _parsed(text, str(self.path))
            self._signature = signature

    def refreshed(self, server: str) -> Pinned | None:
        """The pins of a server as the file has them now; `None` if the server is not pinned."""
        # If the file was broken or removed meanwhile, the last pins stay.
        try:
            self.reload()
        except ConfigError as fault:
            if self._complained != str(fault):
                self._complained = str(fault)
                _log.error("%s; the pins that were read before stay", fault)
        return self._servers.get(server)

    def update(self, change: Callable[[Servers], Servers]) -> None:
        """Replace the pins by the result of `change` for the pins that are in the file now."""
        # One process writes at a time; what another process has written meanwhile is kept.
        with self._locked():
            self.reload()
            servers = change(self._servers)
            if self.exists and servers == self._servers:
                return
            self._replace(_written(servers))
            self.reload()

    def _signed(self) -> _Signature | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error) from None
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{self.path}: not a file; name another one as the lock")
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _text(self) -> str | None:
        try:
            opening = opened(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error) from None
        with opening as file:
            data = file.read(MAX_SIZE + 1)
        if len(data) > MAX_SIZE:
            raise ConfigError(f"{self.path}: more than {MAX_SIZE} bytes, which no lock file has; {_MEND}")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ConfigError(f"{self.path}: not UTF-8 text; {_MEND}") from None

    def _unreadable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self.path}: cannot be read ({error.strerror}); check the path and its permissions"
        )

    def _unwritable(self, error: OSError | RuntimeError) -> ConfigError:
        cause = error.strerror if isinstance(error, OSError) else "a loop of links"
        return ConfigError(
            f"{self.path}: cannot be written ({cause}); check the folder, or name another file with --lock"
        )

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Lock the folder against other writers; no lock file is left in it, not even after a crash."""
        # Where folders cannot be locked (Windows), a lock file next to it is used, which stays.
        if os.name != "posix":
            with self._locked_beside():
                yield
            return
        try:
            descriptor = os.open(self.path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
        except (OSError, RuntimeError) as error:
            raise self._unwritable(error) from None
        try:
            self._wait_for(descriptor)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _locked_beside(self) -> Generator[None]:
        target = self.path.resolve()
        try:
            lock = locked(target.with_name(f".{target.name}.lock"), TIMEOUT, mode=0o644)
        except TimeoutError:
            raise ConfigError(f"{self.path}: another process is writing it; try again") from None
        except OSError as error:
            raise self._unwritable(error) from None
        with lock:
            yield

    def _wait_for(self, descriptor: int) -> None:
        import fcntl

        until = time.monotonic() + TIMEOUT
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ConfigError(f"{self.path}: another process is writing it; try again") from None
            except OSError as error:
                raise self._unwritable(error) from None
            # The wait is in a worker thread, never in an event loop.
            self._pause.wait(_PAUSE)

    def _replace(self, text: str) -> None:
        try:
            target = self.path.resolve()
            mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
            replace_file(target, text.encode(), 0o666 if mode is None else mode, exact=mode is not None)
        except (OSError, RuntimeError) as error:
            raise self._unwritable(error) from None


@dataclass(frozen=True, slots=True)
class LockEntry:
    """One server's part of a lock file."""

    file: LockFile
    server: str

    def refreshed(self) -> Pinned | None:
        return self.file.refreshed(self.server)

    @property
    def is_pinned(self) -> bool:
        return self.server in self.file.servers()


def _written(servers: Servers) -> str:
    """The text of a file: sorted, a line for each value, with no character that a reader cannot see."""
    table = {
        server: {name: {"digest": digest_of(tool), "definition": tool} for name, tool in tools.items()}
        for server, tools in servers.items()
    }
    text = json.dumps({_MAGIC: VERSION, "servers": table}, indent=2, sort_keys=True, ensure_ascii=False)
    return plain_to_see(text) + "\n"


def _parsed(text: str, source: str) -> Servers:
    try:
        found: Any = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as fault:
        raise ConfigError(f"{source}: not a lock file that can be read ({fault}); {_MEND}") from None
    if not isinstance(found, dict) or _MAGIC not in found:
        raise ConfigError(f"{source}: not a lock file of mcp-toolset; name another file as the lock")
    table = cast("dict[str, Any]", found)
    if table[_MAGIC] != VERSION:
        raise ConfigError(
            f"{source}: a lock file of version {table[_MAGIC]!r}; update mcp-toolset, which reads {VERSION}"
        )
    return {
        server: {name: _tool(server, name, entry, source) for name, entry in _mapping(tools, source).items()}
        for server, tools in _mapping(table.get("servers"), source).items()
    }


def _tool(server: str, name: str, value: Any, source: str) -> dict[str, Any]:
    entry = _mapping(value, source)
    definition = _mapping(entry.get("definition"), source)
    place = f"{source}: {visible(server)}/{visible(name)}"
    if definition.get("name") != name or digest_of(definition) != entry.get("digest"):
        raise ConfigError(f"{place}: the definition does not fit its digest; {_MEND}")
    try:
        ToolDefinition.from_wire(definition)
    except DefinitionError as fault:
        raise ConfigError(f"{place}: no definition of a tool ({fault}); {_MEND}") from None
    return definition


def _mapping(value: Any, source: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{source}: a part of the lock file is not an object; {_MEND}")
    return cast("dict[str, Any]", value)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return table
