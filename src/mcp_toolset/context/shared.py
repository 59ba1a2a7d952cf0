"""`Shared`: what a server needs of the state that its replicas share; `SharedState` is one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from mcp_toolset.catalog.grants.cached_grants import CachedGrants

if TYPE_CHECKING:
    from mcp_toolset.calls.suspended import StoredNames, SuspendedStore
    from mcp_toolset.catalog.registry.state_store import StoredState
    from mcp_toolset.security.key_ring import KeyRing
    from mcp_toolset.stores.redis import StoreHealth
    from mcp_toolset.stores.store import Store


class OtherReplicas(Protocol):
    """The replicas of one server, which ask each other."""

    @property
    def own(self) -> str: ...

    async def lives(self, replica: str) -> bool: ...

    def serve(
        self, method: str, handler: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
    ) -> None: ...

    async def ask(
        self, replica: str, method: str, params: Mapping[str, Any], *, within: float
    ) -> dict[str, Any]: ...

    async def tell(self, replica: str, method: str, params: Mapping[str, Any]) -> None:
        """Send a replica what needs no answer; `""` stands for all, this one included."""


class Ownership(Protocol):
    """Leases, each of which one replica has at a time."""

    async def take(self, name: str, *, ttl: float) -> int:
        """Take a lease, or renew it; its number, which grows with each new holder, or 0 if another has it."""
        ...

    async def release(self, name: str) -> None: ...

    async def holder(self, name: str) -> str: ...


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
    def replicas(self) -> OtherReplicas: ...

    @property
    def leases(self) -> Ownership: ...

    @property
    def health(self) -> StoreHealth: ...

    def grants(self) -> CachedGrants:
        """Grants, with a copy here that follows what other replicas grant and revoke."""
        ...

    def registry_state(self, service: str) -> StoredState: ...

    def store(self, name: str = "") -> Store:
        """The store for what extensions keep in it, which errors call by a name."""
        ...
