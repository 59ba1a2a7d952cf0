"""`wants_log`: whether a log message is severe enough for a client (server/utilities/logging)."""

from __future__ import annotations

from typing import cast

from mcp_toolset.protocol.methods import LOG_LEVELS


def wants_log(wanted: str | None, level: object) -> bool:
    """Whether a log message is severe enough for a client; one that has not said takes all."""
    if wanted is None:
        return True
    known = wanted in LOG_LEVELS and level in LOG_LEVELS
    return known and LOG_LEVELS.index(cast("str", level)) >= LOG_LEVELS.index(wanted)
