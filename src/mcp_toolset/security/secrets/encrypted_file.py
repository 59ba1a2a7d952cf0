"""`EncryptedFiles`: one encrypted file for each secret; `FileCredentialStore` keeps credentials in them.

What a file is for is written inside it and compared when it is read, so files that were exchanged are
refused. Names of files are digests with a random key. A file is replaced in one step, and is on disk when the
write returns.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import anyio
import anyio.to_thread
from cryptography.fernet import InvalidToken
from filelock import BaseFileLock, FileLock, Timeout

from mcp_toolset._index import mend
from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.atomic_file import LOCK_STEP, PRIVATE
from mcp_toolset.errors import SecretError
from mcp_toolset.security.secrets.credential_store import LOCK_PATIENCE, CredentialKey, busy
from mcp_toolset.security.secrets.master_key import MasterKey, PrivateFolder

__all__ = ["EncryptedFiles", "Entry", "FileCredentialStore"]

_SALT: Final = "names"
"""The file with the random key of the names."""

_CREDENTIAL: Final = "credential"
_T = TypeVar("_T")
_log = logging.getLogger("mcp_toolset.security")


@dataclass(frozen=True, slots=True)
class Entry:
    """What one file is for.

    Attributes:
        kind: The suffix of the file.
        parts: What tells it from the others of its kind.
        what: What it is called in an error.
        mend: What to do if it cannot be read.
    """

    kind: str
    parts: tuple[str, ...]
    what: str
    mend: str


class EncryptedFiles:
    """JSON objects in encrypted files of one folder. All methods block; none takes a lock."""

    def __init__(self, folder: PrivateFolder, key: MasterKey) -> None:
        """Use a folder and its key; both are made when the first file is written."""
        self.folder = folder
        self.key = key

    def load(self, entry: Entry) -> dict[str, Any] | None:
        """The object of an entry, or `None`."""
        with _told(entry.what, self.folder.path):
            data = self.folder.read(self._name(entry)) if self._is_used() else None
            if data is None:
                return None
            parts, kept = self._opened(data, entry.what, entry.mend)
        if parts != [entry.kind, *entry.parts]:
            raise SecretError(f"the file of {entry.what} has the contents of another one", entry.mend)
        return kept

    def save(self, entry: Entry, data: Mapping[str, Any]) -> None:
        """Replace the object of an entry."""
        text = json.dumps({"for": [entry.kind, *entry.parts], "data": dict(data)})
        with _told(entry.what, self.folder.path):
            self.folder.write(self._name(entry), self.key.cipher.encrypt(text.encode()))

    def remove(self, entry: Entry) -> bool:
        """Remove the file of an entry, readable or not; whether it was there."""
        with _told(entry.what, self.folder.path):
            path = self.folder.path / self._name(entry) if self._is_used() else None
            is_there = path is not None and path.exists()
            if path is not None:
                path.unlink(missing_ok=True)
            return is_there

    def entries(self, kind: str) -> Iterator[tuple[str, ...]]:
        """The parts of all entries of a kind; a file that cannot be read is logged and left out."""
        with _told("a secret", self.folder.path), suppress(FileNotFoundError):
            self.folder.check()
        for path in self.folder.path.glob(f"*.{kind}"):
            try:
                data = self.folder.read(path.name)
                parts, _ = self._opened(data or b"", str(path), "remove it, and log in again")
            except (OSError, SecretError) as fault:
                _log.warning("%s", fault)
                continue
            if parts[:1] == [kind]:
                yield tuple(parts[1:])

    def lock_file(self, entry: Entry) -> Path:
        """The path of the lock of an entry, in a folder that exists."""
        with _told(entry.what, self.folder.path):
            return self.folder.path / f"{self._name(entry)}.lock"

    def _is_used(self) -> bool:
        return (self.folder.path / _SALT).exists()

    def _name(self, entry: Entry) -> str:
        salt = self.folder.made_once(_SALT, partial(secrets.token_bytes, 32))
        said = json.dumps([entry.kind, *entry.parts]).encode()
        return f"{hmac.new(salt, said, hashlib.sha256).hexdigest()[:40]}.{entry.kind}"

    def _opened(self, data: bytes, what: str, mend: str) -> tuple[list[str], dict[str, Any]]:
        try:
            read = json.loads(self.key.cipher.decrypt(data))
            return cast("list[str]", read["for"]), cast("dict[str, Any]", read["data"])
        except (InvalidToken, ValueError, TypeError, KeyError):
            pass
        why = f" ({self.key.missing})" if self.key.missing else ""
        raise SecretError(f"{what} cannot be decrypted: damaged, or written with another key{why}", mend)


class FileCredentialStore:
    """Keeps each credential in an encrypted file; see `CredentialStore`."""

    def __init__(self, files: EncryptedFiles) -> None:
        self._files = files

    async def load(self, key: CredentialKey) -> Mapping[str, Any] | None:
        return await _in_thread(partial(self._files.load, _entry(key)))

    async def save(self, key: CredentialKey, data: Mapping[str, Any]) -> None:
        await _in_thread(partial(self._files.save, _entry(key), data))

    async def remove(self, key: CredentialKey) -> None:
        await _in_thread(partial(self._files.remove, _entry(key)))

    async def list(self) -> tuple[CredentialKey, ...]:
        parts = await _in_thread(lambda: sorted(self._files.entries(_CREDENTIAL)))
        return tuple(CredentialKey(*part) for part in parts)

    @asynccontextmanager
    async def locked(self, key: CredentialKey, patience: float = LOCK_PATIENCE) -> AsyncGenerator[None]:
        path = await _in_thread(partial(self._files.lock_file, _entry(key)))
        lock = FileLock(path, mode=PRIVATE, thread_local=False)
        with anyio.move_on_after(patience):
            # Another process holds it, so there is no event to wait for.
            while not _taken(lock):  # noqa: ASYNC110
                await anyio.sleep(LOCK_STEP)
        if not lock.is_locked:
            raise busy(key, patience)
        try:
            yield
        finally:
            lock.release()


def _entry(key: CredentialKey) -> Entry:
    what = f"the credential of {key.shown!r}"
    again = f"log in again with `{command}`" if (command := mend("login")) else "log in again"
    way = f"{again}, or bring back the key that it was written with"
    return Entry(_CREDENTIAL, (key.upstream, key.issuer, key.user), what, way)


async def _in_thread(work: Callable[[], _T]) -> _T:
    return await anyio.to_thread.run_sync(work)


def _taken(lock: BaseFileLock) -> bool:
    with suppress(Timeout):
        lock.acquire(blocking=False)
    return lock.is_locked


@contextmanager
def _told(what: str, folder: Path) -> Generator[None]:
    """Turn an error of the file system into one that names what cannot be read or written."""
    try:
        yield
    except OSError as fault:
        # A lock that is not free in time is an OSError without a number.
        why = fault.strerror or "another process holds its lock"
        mend = "mend that, or name another folder in MCP_TOOLSET_CREDENTIALS"
        raise SecretError(f"{what} cannot be written to or read from {folder} ({why})", mend) from None
