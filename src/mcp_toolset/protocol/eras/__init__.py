"""What the two protocol eras do differently in messages: `_meta`, results, log levels.

*Legacy* means revisions up to 2025-11-25 (a handshake and sessions); *modern* means 2026-07-28 (every
request carries its own envelope in `_meta`).
"""

from mcp_toolset.protocol.eras.log_levels import wants_log
from mcp_toolset.protocol.eras.meta import (
    forwarded_meta,
    is_reserved,
    joint_meta,
    meta_of,
    modern_envelope,
    own_meta,
    round_trip,
)
from mcp_toolset.protocol.eras.results import list_for, lowered_block, lowered_tool, relayed, result_for
from mcp_toolset.protocol.http_headers import SESSION
from mcp_toolset.protocol.methods import LOG_LEVELS
from mcp_toolset.protocol.revisions import is_modern

__all__ = [
    "LOG_LEVELS",
    "SESSION",
    "forwarded_meta",
    "is_modern",
    "is_reserved",
    "joint_meta",
    "list_for",
    "lowered_block",
    "lowered_tool",
    "meta_of",
    "modern_envelope",
    "own_meta",
    "relayed",
    "result_for",
    "round_trip",
    "wants_log",
]
