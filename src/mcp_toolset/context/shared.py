"""`Shared`: what a server needs of the state that its replicas share; `SharedState` is one."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from mcp_toolset.catalog.grants.cached_grants import CachedGrants

if TYPE_CHECKING:
    from mcp_toolset.calls.suspended import StoredNames, SuspendedStore
    from mcp_toolset.catalog.registry.state_store import StoredState
    from mcp_toolset.security.key_ring import KeyRing
    from mcp_toolset.shared.state import Leases, Replicas
    from mcp_toolset.stores.redis import StoreHealth
    from mcp_toolset.stores.store import Store


class Shared(Protocol):
    """The state that the replicas of a server share."""

    @property
    def keys(self) -> KeyRing:
        """Seals what clients carry from one replica to another; known while it runs."""
        ...

    def with_ttl(self, ttl: float) -> SuspendedStore: ...

    def used(self, kind: str) -> StoredNames: ...

    def kept(self, kind: str) -> StoredNames: ...

    def running(self) -> AbstractAsyncContextManager[None]: ...

    @property
    def replicas(self) -> Replicas: ...

    @property
    def leases(self) -> Leases: ...

    @property
    def health(self) -> StoreHealth: ...

    def grants(self) -> CachedGrants:
        """Grants, with a copy here that follows what other replicas grant and revoke."""
        ...

    def registry_state(self, service: str) -> StoredState: ...

    def store(self, name: str = "") -> Store:
        """The store for what extensions keep in it, which errors call by a name."""
        ...
