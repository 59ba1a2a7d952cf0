"""`Suspension`: calls that wait for an answer are kept, and go on when the server is started again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from mcp_toolset.calls.suspended import Patient, SuspendedStore
from mcp_toolset.context.shared import Shared
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.suspended.suspended_file import SuspendedFile

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host
    from mcp_toolset.extensions.suspended.settings import SuspendedSettings


class Suspension(Extension):
    """What one server keeps of calls that wait."""

    key: ClassVar = "suspended"
    keeps_calls: ClassVar = True

    def __init__(self, store: SuspendedStore | str | PathLike[str] | None = None) -> None:
        """Keep them in a store, or in the file of this path; in the user's file unless given."""
        is_path = isinstance(store, str | PathLike | None)
        self.store: SuspendedStore = SuspendedFile(store) if is_path else store  # where they are

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """See `Extension`; unless the program says where, replicas keep them in what they share."""
        if said is not None and said is not True:
            return cls(said)
        settings, shared = cast("SuspendedSettings | None", stated), host.need(Shared)
        if settings is None:
            return cls()
        if said is None and shared is not None:
            return cls(Patient(shared, settings.patience))
        return cls(SuspendedFile(settings.path, patience=settings.patience))

    def bind(self, host: Host) -> Self:
        """Have grants hold for as long as the configuration says."""
        settings = cast("SuspendedSettings | None", host.stated(self.key))
        host.grants.lengthen((settings and settings.grants) or 0)
        return super().bind(host)

    def services(self) -> Mapping[type, object]:
        """See `Extension`."""
        return {SuspendedStore: self.store}

    def lifespan(self) -> AbstractAsyncContextManager[None] | None:
        """See `Extension`; what replicas share is open already."""
        return None if self.store is self.host.need(Shared) else self.store.running()


EXTENSION = Suspension
