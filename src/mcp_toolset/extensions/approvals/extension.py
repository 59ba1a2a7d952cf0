"""`WaitingCalls`: calls that a policy asks about wait in a file where the client cannot ask its user."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.approvals.approvals import Approvals, approvals_path
from mcp_toolset.extensions.approvals.guard import PolicyGuard

if TYPE_CHECKING:
    from mcp_toolset.calls.permissions import EventRecorder
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host
    from mcp_toolset.security.policy import Policy


class WaitingCalls(Extension):
    """Where the calls of a server wait for an approval."""

    key: ClassVar = "approvals"

    def __init__(self, approvals: Approvals | str | PathLike[str] | None = None) -> None:
        """Let calls wait in this file; unless given, in the one that `mcp-toolset approvals` shows."""
        self._said = approvals

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """See `Extension`."""
        if not isinstance(cast("object", said), Approvals | str | PathLike | None):
            raise DefinitionError(f"approvals takes Approvals, the path of its file or False, not {said!r}")
        return cls(said)

    def guard_of(self, policy: Policy, record: EventRecorder | None) -> PolicyGuard:
        """See `Extension`."""
        place = approvals_path() if self._said is None else self._said
        approvals = Approvals(place) if isinstance(place, str | PathLike) else place
        return PolicyGuard(policy, approvals=approvals, served=self.host.identified, record=record)


EXTENSION = WaitingCalls
