"""The registry's state and the leases of replicas, each over a `Store`."""

from __future__ import annotations

from collections.abc import Callable

from mcp_toolset.shared.topics import Topics
from mcp_toolset.stores.store import ABSENT, Put, Store, hashed

_REGISTRIES = "registry"
_LEASES = "lease"
_NUMBERS = "lease number"


class SharedRegistryState:
    """A `FollowedStore`: the names and members of a registry, saved by compare-and-set."""

    def __init__(self, store: Store, topics: Topics, service: str) -> None:
        """Use a store; `service` tells the servers of a namespace apart."""
        self.name = store.name
        self._store = store
        self._topics = topics
        self._service = hashed(service)
        self._topic = f"registry {self._service}"

    async def load(self) -> str | None:
        """The state that was saved last."""
        [found] = await self._store.get((_REGISTRIES, self._service))
        return None if found is None else found.value.decode()

    async def save(self, text: str, before: str | None) -> bool:
        """Save a state if nothing else was saved since `before`."""
        [found] = await self._store.get((_REGISTRIES, self._service))
        if (None if found is None else found.value.decode()) != before:
            return False
        put = Put(_REGISTRIES, self._service, text.encode(), ABSENT if found is None else found.tag)
        return await self._store.write(put, tell=f"{self._topic}\n".encode()) is None

    def on_save(self, told: Callable[[], object]) -> Callable[[], None]:
        """Call `told` whenever a replica has saved, or may have while this one did not hear."""
        stops = (
            self._topics.subscribe(self._topic, lambda message: told()),
            self._topics.on_change(lambda current: told() if current else None),
        )

        def stop() -> None:
            for each in stops:
                each()

        return stop


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
