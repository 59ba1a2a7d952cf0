"""`negotiate`: which revision of the protocol is spoken with an upstream.

A server of 2026-07-28 answers `server/discover`, an older one the handshake `initialize`; which it is
shows only in what it answers. A mount may say which one it wants.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import anyio
import mcp_types as types
from pydantic import ValidationError

from mcp_toolset.config import ProtocolRule
from mcp_toolset.protocol.json_rpc import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    MCPError,
)
from mcp_toolset.protocol.revisions import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from mcp_toolset.sdk.dispatch import ObservedDispatcher
from mcp_toolset.sdk.models import ClientSession

PROBE_DEADLINE: Final = 10.0
"""Seconds that a silent server may leave `server/discover` unanswered before the handshake is tried."""

_NOT_MODERN: Final = "it does not speak 2026-07-28; protocol: auto takes an older revision"
_NOT_LEGACY: Final = "it speaks no revision up to 2025-11-25; protocol: auto takes a newer one"


async def negotiate(
    session: ClientSession, dispatcher: ObservedDispatcher, era: str | None, protocol: ProtocolRule = "auto"
) -> str:
    """Settle the protocol version with an upstream; probes for the modern era unless `era` is known.

    Returns:
        `"modern"` or `"legacy"`, to be remembered for the next connection to the same server.

    Raises:
        MCPError: the server refused what it was offered, or the connection broke.
    """
    if protocol == "modern":
        return await _modern_only(session)
    if protocol == "legacy":
        return await _legacy_only(session)
    if era != "legacy":
        discovered = await _probe(session, dispatcher)
        if discovered is not None:
            session.adopt(discovered)
            return "modern"
    try:
        await session.initialize()
    except MCPError as fault:
        if era == "legacy" or fault.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        # It knows the modern era alone, and was only slow to say so.
        session.adopt(types.DiscoverResult.model_validate(await _discovered(session)))
        return "modern"
    return "legacy"


async def _modern_only(session: ClientSession) -> str:
    try:
        found = types.DiscoverResult.model_validate(await _discovered(session))
    except MCPError as fault:
        if fault.code == CONNECTION_CLOSED:
            raise
        raise MCPError(fault.code, f"{fault.message} ({_NOT_MODERN})", fault.data) from None
    except ValidationError:
        raise MCPError(INVALID_REQUEST, _NOT_MODERN) from None
    if not _is_modern(found):
        raise MCPError(UNSUPPORTED_PROTOCOL_VERSION, _NOT_MODERN)
    session.adopt(found)
    return "modern"


async def _legacy_only(session: ClientSession) -> str:
    try:
        await session.initialize()
    except MCPError as fault:
        if fault.code not in (UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND):
            raise
        raise MCPError(fault.code, f"{fault.message} ({_NOT_LEGACY})", fault.data) from None
    return "legacy"


def _is_modern(found: types.DiscoverResult) -> bool:
    return any(version in MODERN_PROTOCOL_VERSIONS for version in found.supported_versions)


async def _probe(session: ClientSession, dispatcher: ObservedDispatcher) -> types.DiscoverResult | None:
    with anyio.move_on_after(PROBE_DEADLINE):
        try:
            raw = await _discovered(session)
            found = types.DiscoverResult.model_validate(raw)
        except MCPError:
            if dispatcher.closed.is_set():
                raise
            return None
        except ValidationError:
            return None
        return found if _is_modern(found) else None
    return None


async def _discovered(session: ClientSession) -> dict[str, Any]:
    """Ask for the newest revision; once more for the newest that the server names instead."""
    try:
        return await session.send_discover(LATEST_MODERN_VERSION)
    except MCPError as fault:
        data: Any = fault.data
        supported: Any = (
            cast("Mapping[str, Any]", data).get("supported") if isinstance(data, Mapping) else None
        )
        if fault.code != UNSUPPORTED_PROTOCOL_VERSION or not isinstance(supported, list):
            raise
        mutual = [version for version in MODERN_PROTOCOL_VERSIONS if version in supported]
        if not mutual:
            raise
        return await session.send_discover(mutual[-1])
