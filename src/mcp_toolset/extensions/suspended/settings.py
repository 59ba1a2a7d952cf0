"""Settings of calls that wait for an answer."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

from mcp_toolset._records import dataclass
from mcp_toolset.calls.suspended import SUSPENDED_TTL
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.tables import PATH, SECONDS, Meaning, key

_SECONDS: Final = "a positive number of seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendedSettings(Settings):
    """Settings of calls that wait; `Suspension` describes each key in full."""

    says: ClassVar = Meaning(
        "Keeps [calls that wait for an answer](suspended.md) when the server is started again: `true`, or an "
        "object.",
        True,
    )

    ttl: float = key(
        SECONDS,
        _SECONDS,
        SUSPENDED_TTL,
        meaning="Seconds for which a call waits for its answer.",
        example=604_800,
    )
    path: Path | None = key(
        PATH,
        "the path of a file, as a string",
        meaning="The file; one in the user's folder for state if left out.",
        example="suspended.sqlite3",
    )
    grant_ttl: float | None = key(
        {**SECONDS, "strict": False},
        _SECONDS,
        meaning="Seconds for which [grants](grants.md) hold at least, so that runs of code can wait as long.",
        example=604_800,
    )


SETTINGS: Final = SuspendedSettings
