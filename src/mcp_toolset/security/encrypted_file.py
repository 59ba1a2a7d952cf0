"""`EncryptedFiles`: one encrypted file for each secret; `MasterKey`, and `FileCredentialStore` on top.

What a file is for is written inside it and compared when it is read, so files that were exchanged are
refused. Names of files are digests with a random key. The key is `MCP_TOOLSET_KEY` if that is set, else an
entry of the system's keyring, else a file in the folder, which protects copies without it alone. Of several
keys in the variable or the entry, the first encrypts and each of them decrypts.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import os
import secrets
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar, cast

import anyio
import anyio.to_thread
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from filelock import BaseFileLock, FileLock, Timeout

from mcp_toolset._index import mend
from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.atomic_file import LOCK_STEP, PRIVATE, is_private, locked, replace_file
from mcp_toolset.errors import SecretError
from mcp_toolset.security.credential_store import LOCK_TIMEOUT, CredentialKey, busy
from mcp_toolset.security.named_secrets import Keyring, KeyringMissingError
from mcp_toolset.security.vault import KEY_VARIABLE

ENTRY: Final = "key of encrypted files"
"""The name of the key in the keyring, which no named secret can have."""

KEY_FILE: Final = "key"
MOST_BYTES: Final = 1024 * 1024
"""The largest file that is read; a credential has some thousand bytes."""

_TIMEOUT: Final = 30.0
_BYTES: Final = 32
_HOW: Final = "give 32 random bytes in base64, such as the output of `openssl rand -base64 32`"


class PrivateFolder:
    """A folder that only its owner can read and write."""

    def __init__(self, path: Path) -> None:
        """Use this folder; it is made when the first file is written."""
        self.path = path

    def read(self, name: str) -> bytes | None:
        try:
            with (self.path / name).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        self.check()
        if len(data) > MOST_BYTES:
            raise OSError(0, f"larger than {MOST_BYTES} bytes")
        return data

    def write(self, name: str, data: bytes) -> None:
        """Replace a file in one step; when this returns, it is on disk."""
        self.make()
        replace_file(self.path / name, data)
        if sys.platform != "win32":
            # The new name is on disk when the folder is.
            folder = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def made_once(self, name: str, make: Callable[[], bytes]) -> bytes:
        """The content of a file; the first process that asks writes it."""
        data = self.read(name)
        if data is None:
            self.make()
            with locked(self.path / ".lock", _TIMEOUT):
                data = self.read(name)
                if data is None:
                    data = make()
                    self.write(name, data)
        return data

    def make(self) -> None:
        """Make the folder, or check that no other user can write to it."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.check()

    def check(self) -> None:
        """Check that no other user can write to the folder: that user could replace a file with its key."""
        if not is_private(self.path.stat()):
            raise PermissionError(0, "another user owns it or can write to it; make it yours, mode 700")


class MasterKey:
    """The key of the encrypted files; found on first use, and made where there is none."""

    def __init__(self, folder: PrivateFolder, keyring: Keyring, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._keyring = keyring
        self._environ = environ
        self._cipher: MultiFernet | None = None
        self._finding = Lock()
        self.place = ""
        """The place of the key, for people; empty until it is used."""
        self.missing = ""
        """Why the key of the keyring is not among those that decrypt."""

    @property
    def cipher(self) -> MultiFernet:
        """Encrypts with the key, and decrypts with the keys of other places too where these are at hand."""
        with self._finding:
            if self._cipher is None:
                self._cipher = MultiFernet([Fernet(key) for key in self._keys()])
            return self._cipher

    def _keys(self) -> list[bytes]:
        written, filed = self._environ.get(KEY_VARIABLE, "").split(), self._filed()
        if written:
            self.place = f"the variable {KEY_VARIABLE}"
            return [*_checked(written, self.place), *filed]
        try:
            keys = self._of_keyring()
            self.place = "the system's keyring"
            return [*keys, *filed]
        except KeyringMissingError as fault:
            self.missing = fault.cause
        except SecretError as fault:
            # A locked keyring may hold the key. A new one beside it would be the weaker one from then on.
            if not filed:
                raise
            self.missing = fault.cause
        path = self._folder.path / KEY_FILE
        self.place = f"the file {path}, which protects backups without that file, and nothing else"
        return filed or _checked([self._folder.made_once(KEY_FILE, Fernet.generate_key).decode()], str(path))

    def _of_keyring(self) -> list[bytes]:
        found = self._keyring.get(ENTRY)
        if found is None:
            self._folder.make()
            with locked(self._folder.path / ".lock", _TIMEOUT):
                found = self._keyring.get(ENTRY)
                if found is None:
                    found = Fernet.generate_key().decode()
                    self._keyring.set(ENTRY, found)
        return _checked(found.split(), f"the entry {ENTRY!r} of the system's keyring")

    def _filed(self) -> list[bytes]:
        path = self._folder.path / KEY_FILE
        try:
            data, mode = self._folder.read(KEY_FILE), path.stat().st_mode
        except FileNotFoundError:
            return []
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SecretError(f"other users can read the key {path}", f"chmod 600 {path}")
        return _checked((data or b"").decode("ascii", "replace").split(), f"the file {path}")


def _checked(keys: list[str], place: str) -> list[bytes]:
    if not keys:
        raise SecretError(f"{place} holds no key", _HOW)
    return [_checked_key(key, place) for key in keys]


def _checked_key(key: str, place: str) -> bytes:
    try:
        raw = base64.b64decode(key.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _BYTES:
        raise SecretError(f"{place} holds no key of {_BYTES} bytes", _HOW)
    return base64.urlsafe_b64encode(raw)


_SALT: Final = "names"
"""The file with the random key of the names."""

_CREDENTIAL: Final = "credential"
_T = TypeVar("_T")
_log = logging.getLogger("mcp_toolset.security")


@dataclass(frozen=True, slots=True)
class SecretFile:
    """The purpose of one file."""

    kind: str  # the suffix of the file
    parts: tuple[str, ...]  # what tells it from the others of its kind
    what: str
    mend: str  # what to do if it cannot be read


class EncryptedFiles:
    """JSON objects in encrypted files of one folder. All methods block; none takes a lock."""

    def __init__(self, folder: PrivateFolder, key: MasterKey) -> None:
        self.folder = folder
        self.key = key

    def load(self, entry: SecretFile) -> dict[str, Any] | None:
        with _told(entry.what, self.folder.path):
            data = self.folder.read(self._name(entry)) if (self.folder.path / _SALT).exists() else None
            if data is None:
                return None
            parts, kept = self._opened(data, entry.what, entry.mend)
        if parts != [entry.kind, *entry.parts]:
            raise SecretError(f"the file of {entry.what} has the contents of another one", entry.mend)
        return kept

    def save(self, entry: SecretFile, data: Mapping[str, Any]) -> None:
        text = json.dumps({"for": [entry.kind, *entry.parts], "data": dict(data)})
        with _told(entry.what, self.folder.path):
            self.folder.write(self._name(entry), self.key.cipher.encrypt(text.encode()))

    def remove(self, entry: SecretFile) -> bool:
        with _told(entry.what, self.folder.path):
            path = self.folder.path / self._name(entry) if (self.folder.path / _SALT).exists() else None
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

    def lock_file(self, entry: SecretFile) -> Path:
        with _told(entry.what, self.folder.path):
            return self.folder.path / f"{self._name(entry)}.lock"

    def _name(self, entry: SecretFile) -> str:
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
    async def locked(self, key: CredentialKey, timeout: float = LOCK_TIMEOUT) -> AsyncGenerator[None]:
        path = await _in_thread(partial(self._files.lock_file, _entry(key)))
        lock = FileLock(path, mode=PRIVATE, thread_local=False)
        with anyio.move_on_after(timeout):
            # Another process holds it, so there is no event to wait for.
            while not _taken(lock):  # noqa: ASYNC110
                await anyio.sleep(LOCK_STEP)
        if not lock.is_locked:
            raise busy(key, timeout)
        try:
            yield
        finally:
            lock.release()


def _entry(key: CredentialKey) -> SecretFile:
    what = f"the credential of {key.shown!r}"
    again = f"log in again with `{command}`" if (command := mend("login")) else "log in again"
    way = f"{again}, or bring back the key that it was written with"
    return SecretFile(_CREDENTIAL, (key.upstream, key.issuer, key.user), what, way)


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
