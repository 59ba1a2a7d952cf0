"""`NamedSecrets`: secrets by names, in the system's keyring, or in encrypted files where there is none.

`mcp-toolset secret` writes them and `${keyring:NAME}` in a configuration reads them. With `MCP_TOOLSET_KEY`
they are in encrypted files, and so are long ones, which not every keyring takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, cast

from mcp_toolset.concurrency.atomic_file import locked
from mcp_toolset.errors import SecretError
from mcp_toolset.security.secrets.keyring_store import KeyringMissingError
from mcp_toolset.security.secrets.vault import FOLDER_VARIABLE, Vault

if TYPE_CHECKING:
    from mcp_toolset.security.secrets.encrypted_file import EncryptedFiles, SecretFile

IN_KEYRING: Final = "the system's keyring"
NAMES: Final = "letters, digits and _, and after the first also . - / @, at most 100"
"""The characters of a name, for messages."""

LONGEST: Final = 1000
"""Characters of the longest secret that goes into a keyring: Windows takes 1,280."""

_NAME: Final = re.compile(r"\w[\w./@-]{0,99}", re.ASCII)
_INDEX: Final = "keyring-names"
_KIND: Final = "secret"
_PATIENCE: Final = 30.0


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


class NamedSecrets:
    """Secrets by names. All methods may block, and raise `SecretError` if a store cannot be used."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def get(self, name: str) -> str | None:
        kept, failed = self._filed(name) if self._vault.has_own_key else None, None
        if kept is None:
            try:
                kept = self._vault.keyring.get(name)
            except KeyringMissingError:
                pass
            except SecretError as fault:
                failed = fault
        if kept is None:
            kept = self._filed(name)
        if kept is None and failed is not None:
            raise failed
        return kept

    def set(self, name: str, secret: str) -> tuple[str, ...]:
        """Keep a secret, in place of the one before; returns where, and then where the key is."""
        with self._changing() as (files, names):
            if not self._vault.has_own_key and len(secret) <= LONGEST:
                with suppress(KeyringMissingError):
                    self._vault.keyring.set(name, secret)
                    files.remove(_entry(name))
                    names.add(name)
                    return (IN_KEYRING,)
            files.save(_entry(name), {"secret": secret})
            if name in names:
                self._vault.keyring.remove(name)
                names.remove(name)
            return f"an encrypted file in {files.folder.path}", files.key.place

    def remove(self, name: str) -> bool:
        with self._changing() as (files, names):
            found = name in names
            if found or not self._vault.has_own_key:
                with suppress(KeyringMissingError):
                    found = self._vault.keyring.remove(name) or found
            names.discard(name)
            return files.remove(_entry(name)) or found

    def places(self) -> dict[str, str]:
        files = self._files()
        filed = f"an encrypted file in {files.folder.path}"
        found = dict.fromkeys(_index(files), IN_KEYRING) | {name: filed for (name,) in files.entries(_KIND)}
        return dict(sorted(found.items()))

    def _filed(self, name: str) -> str | None:
        files = self._vault.files
        kept = None if files is None else files.load(_entry(name))
        return None if kept is None else str(kept["secret"])

    def _files(self) -> EncryptedFiles:
        if self._vault.files is None:
            raise SecretError(f"nothing is kept, as {FOLDER_VARIABLE} says so", f"unset {FOLDER_VARIABLE}")
        return self._vault.files

    @contextmanager
    def _changing(self) -> Generator[tuple[EncryptedFiles, set[str]]]:
        """The encrypted files and the names in the keyring; changes of the names are kept."""
        files = self._files()
        try:
            files.folder.make()
            with locked(files.folder.path / f".{_INDEX}.lock", _PATIENCE):
                before = _index(files)
                names = set(before)
                yield files, names
                if names != before:
                    files.folder.write(_INDEX, json.dumps(sorted(names)).encode())
        except OSError as fault:
            why = fault.strerror or "another process holds its lock"
            raise SecretError(
                f"secrets cannot be kept in {files.folder.path} ({why})",
                f"mend that, or name another folder in {FOLDER_VARIABLE}",
            ) from None


def _index(files: EncryptedFiles) -> set[str]:
    path = files.folder.path / _INDEX
    try:
        names = json.loads(files.folder.read(_INDEX) or b"[]")
        if isinstance(names, list):
            return {str(name) for name in cast("list[object]", names)}
        why = "no list"
    except (OSError, ValueError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "no JSON"
    raise SecretError(f"{path}, the names in the keyring, cannot be read ({why})", "remove it")


def _entry(name: str) -> SecretFile:
    from mcp_toolset.security.secrets.encrypted_file import SecretFile

    return SecretFile(
        _KIND, (name,), f"the secret {name!r}", f"keep it again with `mcp-toolset secret set {name}`"
    )
