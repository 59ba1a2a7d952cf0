"""`Vault`: the stores of secrets that the environment names; `References`: secrets by their place.

Each store is opened, and each value of `${keyring:NAME}` and `${file:PATH}` looked up, when it is needed.
Other schemes of references are looked up by extensions; see `LookUp`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from mcp_toolset.errors import SecretError

if TYPE_CHECKING:
    from mcp_toolset.security.credential_store import CredentialStore
    from mcp_toolset.security.encrypted_file import EncryptedFiles
    from mcp_toolset.security.named_secrets import Keyring, NamedSecrets

KEY_VARIABLE: Final = "MCP_TOOLSET_KEY"
"""The environment variable with the key of encrypted files, which are used instead of a keyring then."""

FOLDER_VARIABLE: Final = "MCP_TOOLSET_CREDENTIALS"
"""The environment variable that names another folder; `off` keeps credentials in memory alone."""

RETRY: Final = 60.0
"""Seconds after which a value that an extension could not look up is looked up again, in the same file."""

Lookups: TypeAlias = Literal["run", "skip", "refuse"]
"""The treatment of references of extensions, whose look-up may start a program or reach a host.

`run` is for a file that is served, `skip` for one that is only read, so that a text stands in for the value,
and `refuse` for entries that are started without being served, such as those of a client's own file.
"""


LookUp: TypeAlias = Callable[[str, Path, Mapping[str, str]], str]
"""Looks up the value of `${SCHEME:TEXT}`, given TEXT, the folder that the file configures, the environment.

It may block, for as long as its own deadline says. It raises `SecretError` if there is no value, without a
part of one. Register it in a folder of `extensions` as `REFERENCES = {"SCHEME": look_up}` in the module
`references`, or as an entry point SCHEME of the group `mcp_toolset.references`.
"""

_OFF: Final = frozenset({"off", "0", "false", "no"})


class Vault:
    """The folder of encrypted files, and the system's keyring.

    A program has one of it, so that a keyring is asked for its key once. Nothing is read before it is needed.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ, keyring: Keyring | None = None) -> None:
        self._environ = environ
        self._keyring = keyring
        self._looked_up: dict[tuple[str, str], tuple[object, float, str | SecretError]] = {}

    def looked_up(self, key: tuple[str, str], state: object, look: Callable[[], str]) -> str | SecretError:
        """The value of a reference of an extension: looked up once for each `state` of the file that has it.

        A failure is kept for a minute: a file with one is read again every few seconds.
        """
        before = self._looked_up.get(key)
        if (
            before is not None
            and before[0] == state
            and (isinstance(before[2], str) or monotonic() < before[1])
        ):
            return before[2]
        try:
            value: str | SecretError = look()
        except SecretError as fault:
            value = fault
        self._looked_up[key] = (state, monotonic() + RETRY, value)
        return value

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
        path = self._environ.get(FOLDER_VARIABLE, "")
        if path.casefold() in _OFF:
            return None
        if path:
            return Path(path)
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


class References:
    """The values of the references in one reading of a configuration."""

    def __init__(
        self, vault: Vault | None = None, *, lookups: Lookups = "refuse", state: object = None
    ) -> None:
        """Look in a vault.

        Args:
            vault: The vault, which may outlive many readings; by default the user's.
            lookups: The handling of references that extensions look up.
            state: A key of the file's contents, such as the time of its last change.
        """
        self.vault = vault or Vault()
        self._lookups, self._state = lookups, state
        self._known: dict[str | Path, str | SecretError] = {}
        self.files: list[Path] = []  # the files that were asked for, readable or not
        self.warnings: list[str] = []  # A line for each file that every user of the machine can read

    def secret(self, name: str) -> str:
        return self._once(name, lambda: self._secret(name))

    def text_of(self, path: Path) -> str:
        """The text of a file without the line break at its end; `SecretError` if it cannot be used."""
        return self._once(path, lambda: self._text_of(path))

    def elsewhere(self, scheme: str, text: str, look: Callable[[], str], *, whole: bool = False) -> str:
        """The value of a reference of an extension; `whole` says that the reference is all of a text."""
        if self._lookups == "refuse":
            raise SecretError(
                f"${{{scheme}:…}} is looked up only in a configuration that is served, and not here",
                "serve the file, or write the value or another reference",
            )
        if self._lookups == "skip":
            digest = hashlib.sha256(f"{scheme}:{text}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
            return f"https://unread.invalid/{digest}" if whole else f"unread-{digest}"
        value = self.vault.looked_up((scheme, text), self._state, look)
        if isinstance(value, SecretError):
            raise type(value)(value.cause, value.mend, absent=value.absent)
        return value

    def _once(self, key: str | Path, look: Callable[[], str]) -> str:
        if key not in self._known:
            try:
                self._known[key] = look()
            except SecretError as fault:
                self._known[key] = fault
        known = self._known[key]
        if isinstance(known, SecretError):
            raise type(known)(known.cause, known.mend, absent=known.absent)
        return known

    @cached_property
    def _secrets(self) -> NamedSecrets:
        from mcp_toolset.security.named_secrets import NamedSecrets

        return NamedSecrets(self.vault)

    def _secret(self, name: str) -> str:
        from mcp_toolset.security.named_secrets import NAMES, is_name

        if not is_name(name):
            raise SecretError(f"${{keyring:{name}}} is no name of a secret", f"use {NAMES}")
        secret = self._secrets.get(name)
        if secret is None:
            mend = f"run `mcp-toolset secret set {name}`"
            raise SecretError(f"no secret {name!r} is kept", mend, absent=True)
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
            cause = f"the secret's file {path} cannot be read ({fault.strerror})"
            raise SecretError(cause, mend, absent=isinstance(fault, FileNotFoundError)) from None
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
