"""`CredentialStore`: where the credentials for mounted servers are kept, and one that keeps them in memory.

A credential is a JSON object under a `CredentialKey`. A store gives it back for this key and no other.
`encrypted_file.FileCredentialStore` keeps credentials on disk.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.errors import SecretError

LOCK_TIMEOUT: Final = 60.0
"""Seconds to wait for the lock of a credential: its holder may be renewing the credential over a network."""


@dataclass(frozen=True, slots=True, order=True)
class CredentialKey:
    """The server and the user of a credential."""

    upstream: str  # the address of the mounted server, or its name
    issuer: str  # the authorization server that issued the credential
    user: str = ""  # the key of the caller whom it belongs to; empty for the one that all callers share

    @property
    def shown(self) -> str:
        """The upstream without what may be secret in its address."""
        parts = urlsplit(self.upstream)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}/…" if host else self.upstream


class CredentialStore(Protocol):
    """Keeps one credential for each key.

    Every method raises `SecretError` if the store cannot be read or written; the message names the upstream.
    """

    async def load(self, key: CredentialKey) -> Mapping[str, Any] | None: ...

    async def save(self, key: CredentialKey, data: Mapping[str, Any]) -> None:
        """Keep a credential; when this returns, it is on disk."""

    async def remove(self, key: CredentialKey) -> None: ...

    async def list(self) -> tuple[CredentialKey, ...]: ...

    def locked(self, key: CredentialKey, timeout: float = LOCK_TIMEOUT) -> AbstractAsyncContextManager[None]:
        """Hold the lock of a key, against other tasks and processes; `load` and `save` do not take it.

        A task that renews a credential holds the lock from before the request until the answer is saved, and
        loads the credential again first: another process may just have renewed it.
        """
        ...


class MemoryCredentialStore:
    """Keeps credentials in memory, until the process ends."""

    def __init__(self) -> None:
        self._kept: dict[CredentialKey, Mapping[str, Any]] = {}
        self._locks: dict[CredentialKey, anyio.Lock] = {}

    async def load(self, key: CredentialKey) -> Mapping[str, Any] | None:
        return copy.deepcopy(self._kept.get(key))

    async def save(self, key: CredentialKey, data: Mapping[str, Any]) -> None:
        self._kept[key] = copy.deepcopy(dict(data))

    async def remove(self, key: CredentialKey) -> None:
        self._kept.pop(key, None)

    async def list(self) -> tuple[CredentialKey, ...]:
        return tuple(sorted(self._kept))

    @asynccontextmanager
    async def locked(self, key: CredentialKey, timeout: float = LOCK_TIMEOUT) -> AsyncGenerator[None]:
        lock = self._locks.setdefault(key, anyio.Lock())
        with anyio.move_on_after(timeout) as waiting:
            await lock.acquire()
        if waiting.cancelled_caught:
            raise busy(key, timeout)
        try:
            yield
        finally:
            lock.release()


def busy(key: CredentialKey, timeout: float) -> SecretError:
    return SecretError(
        f"the credential of {key.shown!r} has been in use elsewhere for {timeout:g} s",
        "try again, or end the process that holds it",
    )
