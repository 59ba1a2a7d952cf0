"""Settings of learning from use; `SearchLearning` describes each key in full."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import ClassVar, Final

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.tables import COUNT, PATH, SECONDS, Meaning, Schema, key


def learning_path(served_as: str) -> Path:
    """The file of what is served, in the user's folder for data."""
    from platformdirs import user_data_path

    name = hashlib.sha256(served_as.encode()).hexdigest()[:16]
    return user_data_path("mcp-toolset", appauthor=False) / "learning" / f"{name}.json"


MAX_BONUS: Final = 0.15
"""The default bound on what use adds to a score; a query that names a tool is 0.2 ahead of all others."""

MAX_CALLERS: Final = 100
MAX_PAIRS: Final = 2_000
HALF_LIFE: Final = 30 * 86_400.0

_SHARE: Final[Schema] = {"type": "float", "gt": 0, "lt": 0.2}


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings(Settings):
    """Settings of learning from use."""

    says: ClassVar = Meaning(
        "Whether search [learns](search.md#learn-from-use) which tools each caller uses; an object sets the "
        "limits.",
        True,
    )

    path: Path | None = key(
        PATH,
        "the path of a file, as a string",
        meaning="The file; if left out, a file in the user's data folder.",
        example="learnt.json",
    )
    max_bonus: float = key(
        _SHARE,
        "a number above 0 and below 0.2",
        MAX_BONUS,
        meaning="The most that earlier calls add to the score of a hit; above 0 and below 0.2.",
        example=0.1,
    )
    half_life: float = key(
        SECONDS,
        "a positive number of seconds",
        HALF_LIFE,
        meaning="Seconds after which an earlier call counts half.",
        example=604_800,
    )
    max_callers: int = key(
        COUNT,
        "a positive whole number",
        MAX_CALLERS,
        meaning="The number of callers that are stored; the caller that was idle longest is removed first.",
        example=20,
    )
    max_pairs: int = key(
        {**COUNT, "le": 5_000},
        "a whole number from 1 to 5000",
        MAX_PAIRS,
        meaning="Pairs of a word and a tool that are stored for each caller.",
        example=500,
    )


SETTINGS: Final = LearningSettings
