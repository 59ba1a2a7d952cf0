"""`References`: the values of `${keyring:NAME}` and `${file:PATH}`, each looked up once and when needed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_toolset.errors import SecretError
from mcp_toolset.security.secrets.vault import Vault

if TYPE_CHECKING:
    from mcp_toolset.security.secrets.named_secrets import NamedSecrets

MOST_BYTES: Final = 64 * 1024
"""The largest file that is taken as a secret."""


class AbsentError(SecretError):
    """What is referred to does not exist, so that a default may stand for it."""


class References:
    """What the references in one reading of a configuration stand for."""

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
        from mcp_toolset.security.secrets.named_secrets import NamedSecrets

        return NamedSecrets(self._vault or Vault())

    def _secret(self, name: str) -> str:
        from mcp_toolset.security.secrets.named_secrets import NAMES, is_name

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
