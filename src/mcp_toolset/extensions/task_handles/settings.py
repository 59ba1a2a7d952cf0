"""Settings of handles."""

from __future__ import annotations

from typing import ClassVar, Final

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.tables import SECONDS, Meaning, key


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleSettings(Settings):
    """When a slow call is answered with a handle."""

    says: ClassVar = Meaning(
        "Seconds after which a call is answered by a [handle](tasks.md#answer-slow-calls-with-a-handle), "
        "if the client takes no tasks. Left out: it waits.",
        20,
    )
    short: ClassVar = "seconds"

    seconds: float = key(
        {**SECONDS, "strict": False},
        "a positive number of seconds",
        required=True,
        meaning="Seconds after which a call is answered by a handle.",
        example=20,
    )


SETTINGS: Final = HandleSettings
