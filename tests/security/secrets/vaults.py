"""Vaults for tests: a folder of their own, and a keyring in memory or none."""

from __future__ import annotations

import base64
from pathlib import Path

from mcp_toolset.security.named_secrets import Backend, Keyring, KeyringMissingError
from mcp_toolset.security.vault import Vault


def key(number: int = 1) -> str:
    return base64.b64encode(bytes([number]) * 32).decode()


class MemoryBackend:
    """A stand-in for the system's keyring. The real one is in test_system_keyring.py."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.asked = 0

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        return self.kept.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[username]


def missing() -> Backend:
    raise KeyringMissingError("there is none", "start one")


def vault(folder: Path, backend: Backend | None = None, keys: str = "") -> Vault:
    """A vault in a folder, as a process sees it that starts now."""
    environ = {"MCP_TOOLSET_CREDENTIALS": str(folder), "MCP_TOOLSET_KEY": keys}
    return Vault(environ, Keyring(missing if backend is None else lambda: backend))
