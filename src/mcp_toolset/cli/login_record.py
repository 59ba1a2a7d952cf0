"""`LoginRecord`: what the extensions of a configuration are told of `login` and `logout`."""

from __future__ import annotations

import getpass
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import Settings
from mcp_toolset.errors import ToolsetError
from mcp_toolset.extending.finding import find


@dataclass(frozen=True, slots=True)
class LoginRecord:
    """Records what is done with the login to one server.

    Attributes:
        stated: What the configuration says of extensions, by key.
        server: The name of the server.
        caller: The key of the caller whose login it is; empty for the one that all share.
    """

    stated: Mapping[str, Settings | None]
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
        told = {"server": self.server, "outcome": outcome, "key": self.caller, "user": system_user(), **facts}
        for key, settings in self.stated.items():
            if settings is not None and (kind := find(key)) is not None:
                kind.event_elsewhere(settings, event, **told)


def system_user() -> str:
    """Who runs the command, as the system says."""
    try:
        return getpass.getuser()
    # A user without a name, as in some containers.
    except (KeyError, OSError):
        return ""
