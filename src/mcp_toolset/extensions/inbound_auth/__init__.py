"""Who may call over HTTP, as a file or the command line says it: tokens, and what issuers sign."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from mcp_toolset.extending.extension import Extension

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host


MENDS = {"verifiers": "a StaticTokens, a JWT, or "}


class InboundAuth(Extension):
    """No part of a server: `Settings.callers` says who may call."""

    key: ClassVar = "auth"

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> None:
        """See `Extension`; there is none."""

    @classmethod
    def at_restart(cls, before: Settings | None, now: Settings | None) -> bool:
        return before is not None and now is None


EXTENSION = InboundAuth
