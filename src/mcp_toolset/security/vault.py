"""`Vault`: the stores of secrets that the environment names; `References`: secrets by their place.

Each store is opened, and each value of `${keyring:NAME}` and `${file:PATH}` looked up, when it is needed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_toolset.errors import SecretError

if TYPE_CHECKING:
    from mcp_toolset.security.credential_store import CredentialStore
    from mcp_toolset.security.encrypted_file import EncryptedFiles
    from mcp_toolset.security.named_secrets import Keyring, NamedSecrets

KEY_VARIABLE: Final = "MCP_TOOLSET_KEY"
"""The environment variable with the key of encrypted files, which are used instead of a keyring then."""

FOLDER_VARIABLE: Final = "MCP_TOOLSET_CREDENTIALS"
"""The environment variable that names another folder; `off` keeps credentials in memory alone."""

_OFF: Final = frozenset({"off", "0", "false", "no"})


class Vault:
    """The folder of encrypted files, and the system's keyring.

    A program has one of it, so that a keyring is asked for its key once. Nothing is read before it is needed.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ, keyring: Keyring | None = None) -> None:
        self._environ = environ
        self._keyring = keyring

    @cached_property
    def keyring(self) -> Keyring:
        """The keyring, which is asked when a secret is needed."""
        if self._keyring is not None:
            return self._keyring
        from mcp_toolset.security.named_secrets import Keyring

        return Keyring()

    @property
    def has_own_key(self) -> bool:
        """True if the environment has the key, so that encrypted files come before the keyring."""
        return bool(self._environ.get(KEY_VARIABLE))

    @cached_property
    def folder(self) -> Path | None:
        """The folder of encrypted files; `None` if the environment says that nothing is kept."""
        said = self._environ.get(FOLDER_VARIABLE, "")
        if said.casefold() in _OFF:
            return None
        if said:
            return Path(said)
        from platformdirs import user_data_path

        return user_data_path("mcp-toolset", appauthor=False) / "credentials"

    @cached_property
    def files(self) -> EncryptedFiles | None:
        if self.folder is None:
            return None
        # What encrypts takes its time to import.
        from mcp_toolset.security.encrypted_file import EncryptedFiles, MasterKey, PrivateFolder

        folder = PrivateFolder(self.folder)
        return EncryptedFiles(folder, MasterKey(folder, self.keyring, self._environ))

    @cached_property
    def credentials(self) -> CredentialStore:
        from mcp_toolset.security.credential_store import MemoryCredentialStore

        if self.files is None:
            return MemoryCredentialStore()
        from mcp_toolset.security.encrypted_file import FileCredentialStore

        return FileCredentialStore(self.files)


MOST_BYTES: Final = 64 * 1024
"""The largest file that is taken as a secret."""


class AbsentError(SecretError):
    """The target of a reference does not exist, so that a default may stand for it."""


class References:
    """The values of the references in one reading of a configuration."""

    def __init__(self, vault: Vault | None = None) -> None:
        """Look in this vault, or in the user's; a vault may outlive many readings."""
        self._vault = vault
        self._known: dict[str | Path, str | SecretError] = {}
        self.files: list[Path] = []  # the files that were asked for, readable or not
        self.warnings: list[str] = []  # A line for each file that every user of the machine can read

    def secret(self, name: str) -> str:
        return self._once(name, lambda: self._secret(name))

    def text_of(self, path: Path) -> str:
        """The text of a file without the line break at its end; `SecretError` if it cannot be used."""
        return self._once(path, lambda: self._text_of(path))

    def _once(self, key: str | Path, look: Callable[[], str]) -> str:
        if key not in self._known:
            try:
                self._known[key] = look()
            except SecretError as fault:
                self._known[key] = fault
        known = self._known[key]
        if isinstance(known, SecretError):
            raise type(known)(known.cause, known.mend)
        return known

    @cached_property
    def _secrets(self) -> NamedSecrets:
        from mcp_toolset.security.named_secrets import NamedSecrets

        return NamedSecrets(self._vault or Vault())

    def _secret(self, name: str) -> str:
        from mcp_toolset.security.named_secrets import NAMES, is_name

        if not is_name(name):
            raise SecretError(f"${{keyring:{name}}} is no name of a secret", f"use {NAMES}")
        secret = self._secrets.get(name)
        if secret is None:
            raise AbsentError(f"no secret {name!r} is kept", f"run `mcp-toolset secret set {name}`")
        return secret

    def _text_of(self, path: Path) -> str:
        self.files.append(path)
        mend = "correct the path, or write the secret into that file"
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise SecretError(f"{path} is no regular file", mend)
            with path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except OSError as fault:
            kind = AbsentError if isinstance(fault, FileNotFoundError) else SecretError
            raise kind(f"the secret's file {path} cannot be read ({fault.strerror})", mend) from None
        if len(data) > MOST_BYTES:
            raise SecretError(f"{path} has more than {MOST_BYTES} bytes, too many for a secret", mend)
        if os.name == "posix" and status.st_mode & stat.S_IROTH:
            self.warnings.append(f"{path}: every user can read it, and it holds a secret; chmod 600 it")
        try:
            text = data.decode("utf-8").removeprefix("\ufeff").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise SecretError(f"{path} is not UTF-8 text", mend) from None
        if not text:
            raise SecretError(f"{path} is empty", mend)
        return text
