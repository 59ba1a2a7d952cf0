"""Large results: only the beginning of a long result is shown; see docs/large-results.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Self

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import COUNT, SECONDS, Meaning, key

_CHARACTERS: Final = "a positive number of characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeResultsSettings(Settings):
    """Settings for results that are too long for a model."""

    says: ClassVar = Meaning(
        "Shows only the beginning of [long results](large-results.md), and stores the rest: `true`, a "
        "number of characters from which a result is long, or an object.",
        20_000,
    )
    short: ClassVar = "max_length"

    max_length: int = key(
        COUNT,
        _CHARACTERS,
        20_000,
        meaning="Characters from which a result is stored, and only its beginning shown.",
        example=20_000,
    )
    preview: int | None = key(
        COUNT, _CHARACTERS, meaning="Characters of the beginning that is shown.", example=1_500
    )
    max_stored: int = key(
        COUNT,
        _CHARACTERS,
        64_000_000,
        meaning="Characters of all stored results together.",
        example=64_000_000,
    )
    ttl: float = key(
        SECONDS,
        "a positive number of seconds",
        3600.0,
        meaning="Seconds for which a result is stored.",
        example=3600,
    )

    def checked(self, place: Place, servers: Mapping[str, str]) -> Self:
        if self.preview is not None and self.preview > self.max_length:
            raise place.at("preview").error(
                f"is longer than max_length, {self.max_length}", "choose a smaller number"
            )
        return self


SETTINGS: Final = LargeResultsSettings
