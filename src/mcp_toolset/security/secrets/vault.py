"""`Vault`: the stores of secrets that the environment names, opened on first use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_toolset.security.secrets import KEY_VARIABLE

if TYPE_CHECKING:
    from mcp_toolset.security.secrets.credential_store import CredentialStore
    from mcp_toolset.security.secrets.encrypted_file import EncryptedFiles
    from mcp_toolset.security.secrets.keyring_store import Keyring

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
        from mcp_toolset.security.secrets.keyring_store import Keyring

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
        from mcp_toolset.security.secrets.encrypted_file import EncryptedFiles, MasterKey, PrivateFolder

        folder = PrivateFolder(self.folder)
        return EncryptedFiles(folder, MasterKey(folder, self.keyring, self._environ))

    @cached_property
    def credentials(self) -> CredentialStore:
        from mcp_toolset.security.secrets.credential_store import MemoryCredentialStore

        if self.files is None:
            return MemoryCredentialStore()
        from mcp_toolset.security.secrets.encrypted_file import FileCredentialStore

        return FileCredentialStore(self.files)
