"""The revisions of the protocol, and the keys of `_meta` that the protocol itself uses.

*Legacy* revisions begin with a handshake; *modern* ones carry an envelope in the `_meta` of each request
(2026-07-28, basic/versioning). A new revision is a line in one of the two tuples.
"""

from __future__ import annotations

from typing import Final

HANDSHAKE_PROTOCOL_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions of the legacy era, the oldest first."""

MODERN_PROTOCOL_VERSIONS: Final = ("2026-07-28",)
"""The revisions of the modern era, the oldest first."""

KNOWN_PROTOCOL_VERSIONS: Final = (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)
LATEST_HANDSHAKE_VERSION: Final = HANDSHAKE_PROTOCOL_VERSIONS[-1]
LATEST_MODERN_VERSION: Final = MODERN_PROTOCOL_VERSIONS[-1]

PROTOCOL_VERSION_META_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_META_KEY: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES_META_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_META_KEY: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO_META_KEY: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_META_KEY: Final = "io.modelcontextprotocol/subscriptionId"


def is_modern(version: str | None) -> bool:
    return version in MODERN_PROTOCOL_VERSIONS


def is_version_at_least(version: str, minimum: str) -> bool:
    """Whether a revision is known and not older than another; of one that is not known, `False`."""
    if version not in KNOWN_PROTOCOL_VERSIONS:
        return False
    return KNOWN_PROTOCOL_VERSIONS.index(version) >= KNOWN_PROTOCOL_VERSIONS.index(minimum)
