"""Mounted servers that one replica alone may have at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import ServerSettings
from mcp_toolset.config.tables import BOOL, key

if TYPE_CHECKING:
    from mcp_toolset.config.tables import SessionRule


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleOfServer(ServerSettings):
    """The leases of replicas for servers."""

    reaches: ClassVar = "single"
    protects: ClassVar = False
    common: ClassVar = ("single",)

    single: bool = key(
        BOOL,
        "true or false",
        False,
        meaning="Whether [one replica alone](replicas.md#servers-that-must-be-single) may have the server.",
        example=True,
    )

    def linked(self, link: Any, sessions: SessionRule, *, forwards: bool) -> Any:
        if not self.single:
            return None
        from mcp_toolset.extensions.single_mounts.single_link import single_link

        return single_link(link, sessions, forwards=forwards)


SERVER_SETTINGS: Final = SingleOfServer
