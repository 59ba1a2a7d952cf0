"""`Suspension`: calls that wait for an answer are kept, and go on when the server is started again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from mcp_toolset.calls.suspended import SUSPENDED_TTL, SuspendedStore
from mcp_toolset.extending.extension import Extension
from mcp_toolset.stores.store import users_file

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host
    from mcp_toolset.extensions.suspended.settings import SuspendedSettings
    from mcp_toolset.security.key_ring import KeyRing
    from mcp_toolset.stores.store import StorePlace


class Suspension(Extension):
    """The store of calls that wait, for one server."""

    key: ClassVar = "suspended"
    keeps_calls: ClassVar = True

    def __init__(
        self, place: StorePlace | None = None, *, keys: KeyRing | None = None, ttl: float = SUSPENDED_TTL
    ) -> None:
        """Keep them in a store.

        Args:
            place: The path of a file, the URL of a store, or a `Store`; the user's file unless given.
            keys: Seals the calls. Unless given, one key is made and kept in the store.
            ttl: Seconds for which a call that waits for an answer is kept.
        """
        place = users_file("suspended") if place is None else place
        self.store = SuspendedStore(place, keys=keys, ttl=ttl)  # where they are

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """Build the extension; unless the program names a place, replicas use the store that they share."""
        if said is not None and said is not True:
            return cls(said)
        settings, shared = cast("SuspendedSettings | None", stated), host.shared
        if settings is None:
            return cls()
        made = cls(settings.path, ttl=settings.ttl)
        if said is None and shared is not None:
            made.store = shared.with_ttl(settings.ttl)
        return made

    def bind(self, host: Host) -> Self:
        """Lengthen the life of grants to what the configuration says; a view has a part of the store."""
        settings = cast("SuspendedSettings | None", host.stated(self.key))
        host.grants.lengthen((settings and settings.grant_ttl) or 0)
        bound, outer = super().bind(host), cast("Suspension | None", host.outer(self.key))
        if outer is not None:
            bound.store = outer.store.within(host.view)
        return bound

    def services(self) -> Mapping[type, object]:
        return {SuspendedStore: self.store}

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        return self.store.running()


EXTENSION = Suspension
