"""`SuspendedStore`: where calls that wait for answers outlive their process, and the keys that seal them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, Protocol

from mcp_toolset._records import dataclass
from mcp_toolset.security.secrets.key_ring import KeyRing

PATIENCE: Final = 86_400.0
"""Seconds for which a call that waits for an answer is kept."""


class Once(Protocol):
    """Names that may be used once by all replicas."""

    async def use(self, name: str, *, seconds: float) -> bool:
        """Use a name; `False` if it was used in the last `seconds`."""
        ...

    async def was_used(self, name: str) -> bool: ...

    async def free(self, name: str) -> None:
        """Let a name be used again."""
        ...


class Kept(Protocol):
    """Data that one replica puts aside, and others read, or one of them takes."""

    async def put(self, name: str, data: bytes, *, seconds: float) -> None: ...

    async def get(self, name: str) -> bytes | None:
        """Data that stays where it is; `None` if there is none."""
        ...

    async def take(self, name: str) -> bytes | None:
        """Take data, which nothing else takes then; `None` if there is none."""
        ...


class SuspendedStore(Protocol):
    """A store for suspended calls: `SuspendedFile`, `SharedState`, or one of yours."""

    @property
    def keys(self) -> KeyRing:
        """Seals suspended calls; known while the store runs."""
        ...

    @property
    def patience(self) -> float:
        """Seconds for which a call that waits for an answer is kept."""
        ...

    def used(self, kind: str) -> Once:
        """Names that may be used once."""
        ...

    def kept(self, kind: str) -> Kept:
        """Data that is put aside."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Open the store for the length of a block."""
        ...


@dataclass(frozen=True, slots=True)
class Patient:
    """Another store's calls, kept for another time; the store itself is opened elsewhere.

    Attributes:
        store: The store.
        patience: Seconds for which a call that waits for an answer is kept.
    """

    store: SuspendedStore
    patience: float

    @property
    def keys(self) -> KeyRing:
        return self.store.keys

    def used(self, kind: str) -> Once:
        return self.store.used(kind)

    def kept(self, kind: str) -> Kept:
        return self.store.kept(kind)

    def running(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()
