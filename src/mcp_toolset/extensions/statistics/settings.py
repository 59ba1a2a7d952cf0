"""Settings of statistics: on or off."""

from __future__ import annotations

from typing import ClassVar, Final

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.tables import Meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsSettings(Settings):
    """Statistics have no settings of their own."""

    says: ClassVar = Meaning(
        "Whether calls and tokens are summed for [`mcp-toolset stats`](observing.md#statistics).", False
    )


SETTINGS: Final = StatisticsSettings
