"""`SuspendedStore`: where calls that wait for answers outlive their process, and the keys that seal them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

from mcp_toolset._records import dataclass
from mcp_toolset.security.secrets.key_ring import KeyRing

if TYPE_CHECKING:
    from mcp_toolset.calls.suspended.stored import StoredNames

PATIENCE: Final = 86_400.0
"""Seconds for which a call that waits for an answer is kept."""


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

    def used(self, kind: str) -> StoredNames:
        """Names that may be used once."""
        ...

    def kept(self, kind: str) -> StoredNames:
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

    def used(self, kind: str) -> StoredNames:
        return self.store.used(kind)

    def kept(self, kind: str) -> StoredNames:
        return self.store.kept(kind)

    def running(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()
