"""`KeptIndexes`: the indexes of searches in a folder, named by what they were made from.

A name has three digests: of the code and its tables, of the names of the servers, and of the contents of all
tools. If the tools of a start have no file of their own, the newest of the same servers serves, or else the
newest: each tool is compared by its fingerprint, and those that differ are read anew.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from mcp_toolset.catalog.search.index_file import AnyEntry, IndexBase, Parts, copied, made_by, written
from mcp_toolset.concurrency.atomic_file import locked, replace_file, require_private
from mcp_toolset.errors import InvalidStateError, StoreError

if TYPE_CHECKING:
    from mcp_toolset.shared.state import SharedState

MOST_FILES: Final = 16  # the number of indexes in the folder; the oldest are removed first
EDITIONS: Final = 4  # the number of indexes of the same servers; the oldest are removed first
LOCK_TIMEOUT: Final = 5.0  # seconds that a save waits for another process; after that it is skipped
_ENDING: Final = ".index"
_NAME: Final = re.compile(r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]+\.index")
_log = logging.getLogger("mcp_toolset.catalog")


class KeptIndexes:
    """Reads and writes the indexes of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, servers: Iterable[str], prints: Mapping[str, bytes], *, words: bool) -> IndexBase | None:
        """The index of these tools, or else the newest of the same servers, or of any; `None` without one."""
        key, exact = _key(servers, words=words), _digest(prints)
        files = self._files(f"{key.partition('-')[0]}-*")
        files.sort(key=lambda path: (not path.stem.endswith(exact), not path.stem.startswith(key)))
        for path in files:
            base = self._read(path)
            if base is not None:
                _log.debug("the search of %d tools begins with %d of %s", len(prints), len(base), path)
                return base
        return None

    def editions(self) -> list[str]:
        """Prefixes of the names of all files that this version can read."""
        return [_key((), words=words).partition("-")[0] for words in (True, False)]

    def holds(self, name: str) -> bool:
        return _NAME.fullmatch(name) is not None and (self.folder / name).exists()

    def take(self, name: str, content: bytes) -> None:
        """Write a file that another process has made; `save` removes old ones."""
        if _NAME.fullmatch(name) is None:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.folder / name, content, durable=False)
        except OSError as fault:
            _log.warning("%s: the index of another replica cannot be kept: %s", self.folder, fault.strerror)

    def save(
        self, servers: Iterable[str], entries: Iterable[AnyEntry], parts: Parts, *, words: bool
    ) -> Path | None:
        """Write an index of some tools, atomically, and remove old ones; see `find`. Returns the file."""
        key, content = _key(servers, words=words), written(parts)
        prints = {entry.public_name: entry.fingerprint() for entry in entries}
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(self.folder / ".lock", LOCK_TIMEOUT):
                path = self.folder / f"{key}-{_digest(prints)}{_ENDING}"
                replace_file(path, content, durable=False)
                others = [one for one in self._files("*") if one != path]
                editions = [one for one in others if one.name.startswith(f"{key}-")]
                for old in {*others[MOST_FILES - 1 :], *editions[EDITIONS - 1 :]}:
                    old.unlink(missing_ok=True)
            _log.debug("kept the index of %d tools: %s", len(prints), path)
            return path
        except TimeoutError:
            _log.debug("%s: another process holds the lock; the index is not kept this time", self.folder)
        except OSError as fault:
            _log.warning("%s: the index of the search cannot be kept: %s", self.folder, fault.strerror)
        return None

    def _files(self, pattern: str) -> list[Path]:
        found: list[tuple[float, Path]] = []
        for path in self.folder.glob(f"{pattern}{_ENDING}"):
            try:
                found.append((path.stat().st_mtime, path))
            except OSError:
                continue
        return [path for _, path in sorted(found, reverse=True)]

    def _read(self, path: Path) -> IndexBase | None:
        try:
            return IndexBase(copied(path, require_private))
        except FileNotFoundError:
            return None
        except InvalidStateError as fault:
            _log.warning("%s: the kept index of the search is ignored and made anew: %s", path, fault)
        except OSError as fault:
            _log.warning("%s: the kept index of the search cannot be read: %s", path, fault.strerror)
        return None


def _key(servers: Iterable[str], *, words: bool) -> str:
    code = f"{made_by()} {words}", "\0".join(sorted(servers))
    return "-".join(blake2b(one.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest() for one in code)


def _digest(prints: Mapping[str, bytes]) -> str:
    return blake2b(b"".join(prints[name] for name in sorted(prints)), digest_size=16).hexdigest()


KEPT_TTL: Final = 30 * 86_400.0  # seconds for which replicas find an index
MAX_INDEX: Final = 64_000_000  # bytes of an index that is shared
_INDEX: Final = "index"


class SharedIndexes:
    """Finds and gives indexes in what replicas share."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared

    async def newest(self, edition: str) -> str:
        """The name of the newest index of an edition; empty without one."""
        return (await self.content(edition) or b"").decode()

    async def put(self, edition: str, name: str, content: bytes) -> None:
        if len(content) > MAX_INDEX or await self.newest(edition) == name:
            return
        kept, seal = self._shared.kept(_INDEX), partial(self._shared.keys.seal, _INDEX)
        try:
            for key, data in ((name, content), (edition, name.encode())):
                sealed = await anyio.to_thread.run_sync(partial(seal, data, bound=key))
                await kept.put(key, sealed.encode(), ttl=KEPT_TTL)
        except StoreError as fault:
            _log.warning("other replicas do not get the index of the search: %s", fault)

    async def content(self, key: str) -> bytes | None:
        """An index by its name, or the name of the newest one by its edition."""
        try:
            sealed = await self._shared.kept(_INDEX).get(key)
        except StoreError as fault:
            _log.warning("the index of another replica cannot be read: %s", fault)
            return None
        if sealed is None:
            return None
        opened = partial(self._shared.keys.open, _INDEX, sealed.decode(), bound=key)
        return await anyio.to_thread.run_sync(opened)
