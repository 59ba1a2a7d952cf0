"""Settings of the surface: list, search, or a choice for each client."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.tables import Meaning, key, one_of

Way = Literal["list", "search", "auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceSettings(Settings):
    """Settings of the surface."""

    says: ClassVar = Meaning(
        "How clients see the tools behind search: all on their list, by search, or as [fits each "
        "client](clients.md) (`auto`). `search` and `auto` put all tools there, unless `deferred` says "
        "otherwise.",
        "auto",
    )
    short: ClassVar = "way"

    way: Way = key(
        one_of("list", "search", "auto"),
        "one of list, search and auto",
        "auto",
        meaning="The same as the value of the key itself.",
        example="search",
    )

    @property
    def defers(self) -> bool:
        return self.way != "list"


SETTINGS: Final = SurfaceSettings
