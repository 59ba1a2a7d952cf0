"""`PrivateFolder` and `MasterKey`: where encrypted files are, and the key that they are encrypted with.

The key is `MCP_TOOLSET_KEY` if that is set, else an entry of the system's keyring, else a file in the folder.
Of several keys in the variable or the entry, the first encrypts and each of them decrypts.
A key in a file beside what it encrypts protects copies of the other files alone, such as backups without it.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from cryptography.fernet import Fernet, MultiFernet

from mcp_toolset.concurrency.atomic_file import is_private, locked, replace_file
from mcp_toolset.errors import SecretError
from mcp_toolset.security.secrets import KEY_VARIABLE
from mcp_toolset.security.secrets.keyring_store import Keyring, KeyringMissingError

__all__ = ["MasterKey", "PrivateFolder"]

ENTRY: Final = "key of encrypted files"
"""The name of the key in the keyring, which no named secret can have."""

KEY_FILE: Final = "key"
MOST_BYTES: Final = 1024 * 1024
"""The largest file that is read; a credential has some thousand bytes."""

_PATIENCE: Final = 30.0
_BYTES: Final = 32
_HOW: Final = "give 32 random bytes in base64, such as the output of `openssl rand -base64 32`"


class PrivateFolder:
    """A folder that only its owner can read and write."""

    def __init__(self, path: Path) -> None:
        """Use this folder; it is made when the first file is written."""
        self.path = path

    def read(self, name: str) -> bytes | None:
        """The content of a file, or `None`."""
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
            with locked(self.path / ".lock", _PATIENCE):
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
        """Check that no other user can write to the folder, as that user could replace a file with its key.

        Raises:
            OSError: the folder is not private, or is not there.
        """
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
        """Where the key is, for people; empty until it is used."""
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
            with locked(self._folder.path / ".lock", _PATIENCE):
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
