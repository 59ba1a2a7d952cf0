"""`LoginRecord`: the lines of `login` and `logout` in the audit log of the configuration."""

from __future__ import annotations

import getpass
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from mcp_toolset._records import dataclass
from mcp_toolset.config.models import AuditConfig
from mcp_toolset.errors import ToolsetError


@dataclass(frozen=True, slots=True)
class LoginRecord:
    """Records what is done with the login to one server.

    Attributes:
        audit: The audit log; `None` for none.
        server: The name of the server.
        caller: The key of the caller whose login it is; empty for the one that all share.
    """

    audit: AuditConfig | None
    server: str
    caller: str = ""

    @contextmanager
    def failing(self, event: str) -> Generator[None]:
        try:
            yield
        except ToolsetError as fault:
            self.note(event, "failed", reason=str(fault))
            raise

    def note(self, event: str, outcome: str, **facts: Any) -> None:
        said = self.audit
        if said is None:
            return
        from mcp_toolset.security.audit.audit_log import AuditLog

        log = AuditLog(said.path, max_bytes=said.max_bytes, keep=said.keep, key=said.key)
        log.hand_over(
            event, server=self.server, outcome=outcome, key=self.caller, user=system_user(), **facts
        )


def system_user() -> str:
    """Who runs the command, as the system says."""
    try:
        return getpass.getuser()
    # A user without a name, as in some containers.
    except (KeyError, OSError):
        return ""
