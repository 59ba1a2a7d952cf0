"""The registry's state and the leases of replicas, each over a `Store`."""

from __future__ import annotations

from collections.abc import Callable

from mcp_toolset.catalog.registry.state_store import StoredState
from mcp_toolset.shared.topics import Topics
from mcp_toolset.stores.store import ABSENT, Put, Store, hashed

_LEASES = "lease"
_NUMBERS = "lease number"


def shared_registry_state(store: Store, topics: Topics, service: str) -> StoredState:
    """The names and members of the tools of a service, whose replicas follow each other."""
    topic = f"registry {hashed(service)}"

    def follow(told: Callable[[], object]) -> Callable[[], None]:
        stops = (
            topics.subscribe(topic, lambda message: told()),
            topics.on_change(lambda current: told() if current else None),
        )

        def stop() -> None:
            for each in stops:
                each()

        return stop

    return StoredState(store, service, told=f"{topic}\n".encode(), follow=follow)


class Leases:
    """What only one replica may own at a time, until it says so no more."""

    def __init__(self, store: Store, replica: str) -> None:
        """Take leases for a replica."""
        self._store = store
        self._replica = replica

    async def take(self, name: str, *, seconds: float) -> int:
        """Take a lease, or renew it; its number, which grows with each new holder, or 0 if another has it."""
        while True:
            lease, last = await self._store.get((_LEASES, name), (_NUMBERS, name))
            if lease is not None:
                number, _, holder = lease.value.decode().partition(" ")
                if holder != self._replica:
                    return 0
                puts = [Put(_LEASES, name, lease.value, lease.tag, seconds=seconds)]
            else:
                number, known = (str(int(last.value) + 1), last.tag) if last else ("1", ABSENT)
                value = f"{number} {self._replica}".encode()
                puts = [
                    Put(_LEASES, name, value, ABSENT, seconds=seconds),
                    Put(_NUMBERS, name, number.encode(), known),
                ]
            if await self._store.write(*puts) is None:
                return int(number)

    async def release(self, name: str) -> None:
        """Give a lease back, if this replica has it."""
        [lease] = await self._store.get((_LEASES, name))
        if lease is not None and _holder(lease.value) == self._replica:
            await self._store.write(Put(_LEASES, name, None, lease.tag))

    async def holder(self, name: str) -> str:
        """The replica that has a lease; empty if none has."""
        [lease] = await self._store.get((_LEASES, name))
        return "" if lease is None else _holder(lease.value)


def _holder(lease: bytes) -> str:
    return lease.decode().partition(" ")[2]
