"""`SharedState`: what several replicas of one server share, with a face for each kind of state."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from mcp_toolset.calls.suspended import PATIENCE, SuspendedStore
from mcp_toolset.catalog.grants.cached_grants import CachedGrants
from mcp_toolset.catalog.registry.state_store import StoredState
from mcp_toolset.concurrency.tasks import STORE_TIMEOUT
from mcp_toolset.security.secrets.key_ring import KeyRing
from mcp_toolset.shared.grants import shared_grants
from mcp_toolset.shared.replicas import Replicas
from mcp_toolset.shared.small_stores import Leases, shared_registry_state
from mcp_toolset.shared.topics import Topics
from mcp_toolset.stores.connection import StoreConnection, StoreHealth
from mcp_toolset.stores.redis import RedisStore

__all__ = ["KEYS_VARIABLE", "SharedState"]

KEYS_VARIABLE: Final = "MCP_TOOLSET_KEYS"
"""The variable with the keys of all replicas in base64, the current one first."""


class SharedState(SuspendedStore):
    """The state of one namespace in a store.

    Attributes:
        topics: What replicas tell each other.
        replicas: Asks another replica.
        leases: What one replica alone may own.
    """

    def __init__(
        self,
        url: str,
        *,
        keys: KeyRing | None = None,
        timeout: float = STORE_TIMEOUT,
        patience: float = PATIENCE,
    ) -> None:
        """Describe the state; nothing is opened yet.

        Args:
            url: Where Redis 7 or Valkey is: `redis://host:6379/0`, or `rediss://`, `unix://`; with
                `?namespace=` if several services use one store.
            keys: Seals what clients carry from one replica to another. Unless given, one key is made and kept
                in the store: then a program that can read the store can make session ids and request states.
            timeout: Seconds that the store has for one answer.
            patience: Seconds for which a call that waits for an answer is kept.

        Raises:
            ConfigError: the URL cannot be used, or the extra `redis` is not installed.
        """
        self.connection = StoreConnection(url, timeout=timeout)
        self.topics = Topics(self.connection)
        self.replicas = Replicas(self.topics)
        super().__init__(RedisStore(self.connection), keys=keys, patience=patience)
        self.leases = Leases(self._store, self.topics.replica)

    def grants(self) -> CachedGrants:
        """Grants, with a copy here that follows what other replicas grant and revoke."""
        return shared_grants(self._store, self.topics)

    def registry_state(self, service: str) -> StoredState:
        """The names and members of the tools of a server; its replicas give the same name."""
        return shared_registry_state(self._store, self.topics, service)

    def store(self, name: str = "") -> RedisStore:
        """The store for what extensions keep in it, which errors call by a name."""
        return RedisStore(self.connection, name, owned=True)

    @property
    def health(self) -> StoreHealth:
        """True if the store answers."""
        return self.connection.health

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Listen to the other replicas for the length of a block.

        Raises:
            StoreError: the store is down, and has the keys.
        """
        try:
            async with super().running(), self.topics.running(), self.replicas.running():
                yield
        finally:
            await self.connection.aclose()
