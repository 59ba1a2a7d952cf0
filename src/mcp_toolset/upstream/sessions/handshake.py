"""`Negotiation`: which revision is spoken with an upstream, and what the server says of itself.

A server of 2026-07-28 answers `server/discover`, an older one the handshake `initialize`; which it is
shows only in what it answers. A mount may say which one it wants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import anyio

from mcp_toolset.config import Era, ProtocolRule
from mcp_toolset.protocol.dispatch import Dispatcher
from mcp_toolset.protocol.eras import meta_of, modern_envelope
from mcp_toolset.protocol.http_headers import routing_headers
from mcp_toolset.protocol.json_rpc import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    MCPError,
)
from mcp_toolset.protocol.methods import IMPLEMENTATION
from mcp_toolset.protocol.revisions import (
    CLIENT_CAPABILITIES_META_KEY,
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
    SERVER_INFO_META_KEY,
)
from mcp_toolset.protocol.shapes import FLAG, OBJECT, TEXT, Items, Members, Values
from mcp_toolset.upstream.server_info import ServerInfo

CLIENT_INFO: Final[Mapping[str, Any]] = {"name": "mcp-toolset", "version": "0.1.0"}
"""What the bridge says that it is."""

PROBE_DEADLINE: Final = 10.0
"""Seconds that a silent server may leave `server/discover` unanswered before the handshake is tried."""

_NOT_MODERN: Final = "it does not speak 2026-07-28; protocol: auto takes an older revision"
_NOT_LEGACY: Final = "it speaks no revision up to 2025-11-25; protocol: auto takes a newer one"

_CHANGES: Final = Members(optional={"listChanged": FLAG})
_CAPABILITIES: Final = Members(
    optional={
        "tools": _CHANGES,
        "prompts": _CHANGES,
        "resources": _CHANGES.and_optional(subscribe=FLAG),
        "logging": OBJECT,
        "completions": OBJECT,
        "experimental": Values(OBJECT),
        "extensions": Values(OBJECT),
        "tasks": OBJECT,
    }
)
_INITIALIZED: Final = Members(
    {"protocolVersion": TEXT, "capabilities": _CAPABILITIES, "serverInfo": IMPLEMENTATION},
    {"instructions": TEXT},
)
_DISCOVERED: Final = Members(
    {"supportedVersions": Items(TEXT), "capabilities": _CAPABILITIES}, {"instructions": TEXT}
)


@dataclass(frozen=True, slots=True)
class Agreement:
    """What was settled with a server.

    Attributes:
        era: The era that is spoken, to be remembered for the next connection to the same server.
        version: The revision.
        capabilities: What the server declares that it offers, in wire form.
        server: What it says that it is.
        instructions: What it tells models.
    """

    era: Era
    version: str
    capabilities: Mapping[str, Any]
    server: ServerInfo | None
    instructions: str


class Negotiation:
    """The first requests on one connection."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        closed: anyio.Event,
        declares: Mapping[str, Any],
        shows: Mapping[str, Any],
    ) -> None:
        """Say nothing yet.

        Args:
            dispatcher: The connection.
            closed: Set when it has ended.
            declares: What is declared in the handshake of a legacy revision.
            shows: What a modern request of the bridge itself declares.
        """
        self._dispatcher = dispatcher
        self._closed = closed
        self._declares = declares
        self._shows = shows

    async def settle(self, era: str | None, protocol: ProtocolRule = "auto") -> Agreement:
        """Settle the revision; the modern era is tried first unless `era` is known.

        Raises:
            MCPError: the server refused what it was offered, or the connection broke.
        """
        if protocol == "modern":
            return await self._modern_only()
        if protocol == "legacy":
            return await self._legacy_only()
        if era != "legacy":
            discovered = await self._probed()
            if discovered is not None:
                return discovered
        try:
            return await self._initialized()
        except MCPError as fault:
            if era == "legacy" or fault.code != UNSUPPORTED_PROTOCOL_VERSION:
                raise
            # It knows the modern era alone, and was only slow to say so.
            return _required(_modern(await self._discovered()))

    async def _modern_only(self) -> Agreement:
        try:
            return _required(_modern(await self._discovered()))
        except MCPError as fault:
            if fault.code == CONNECTION_CLOSED or fault.message == _NOT_MODERN:
                raise
            raise MCPError(fault.code, f"{fault.message} ({_NOT_MODERN})", fault.data) from None

    async def _legacy_only(self) -> Agreement:
        try:
            return await self._initialized()
        except MCPError as fault:
            if fault.code not in (UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND):
                raise
            raise MCPError(fault.code, f"{fault.message} ({_NOT_LEGACY})", fault.data) from None

    async def _probed(self) -> Agreement | None:
        """What a modern server answers; `None` for all that an older one may answer, or leave unanswered."""
        with anyio.move_on_after(PROBE_DEADLINE):
            try:
                return _modern(await self._discovered())
            except MCPError:
                if self._closed.is_set():
                    raise
        return None

    async def _discovered(self) -> dict[str, Any]:
        """Ask for the newest revision; once more for the newest that the server names instead."""
        try:
            return await self._discover(LATEST_MODERN_VERSION)
        except MCPError as fault:
            if fault.code != UNSUPPORTED_PROTOCOL_VERSION:
                raise
            data: Any = fault.data
            found: Any = (
                cast("Mapping[str, Any]", data).get("supported") if isinstance(data, Mapping) else None
            )
            version = _newest_in(found)
            if version is None:
                raise
            return await self._discover(version)

    async def _discover(self, version: str) -> dict[str, Any]:
        envelope = modern_envelope(version, CLIENT_INFO, {CLIENT_CAPABILITIES_META_KEY: self._shows})
        return await self._dispatcher.send_raw_request(
            "server/discover",
            {"_meta": envelope},
            {
                "timeout": PROBE_DEADLINE,
                "cancel_on_abandon": False,
                "headers": routing_headers(version, "server/discover", {}, {}),
            },
        )

    async def _initialized(self) -> Agreement:
        params = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": self._declares,
            "clientInfo": CLIENT_INFO,
        }
        found = await self._dispatcher.send_raw_request("initialize", params, {"cancel_on_abandon": False})
        problem = _INITIALIZED.fault(found)
        if problem is not None:
            raise MCPError(INTERNAL_ERROR, f"its answer does not follow the protocol: {problem}")
        version = found["protocolVersion"]
        if version not in HANDSHAKE_PROTOCOL_VERSIONS:
            known = ", ".join(HANDSHAKE_PROTOCOL_VERSIONS)
            raise MCPError(INTERNAL_ERROR, f"it wants to speak {version!r}, which is none of {known}")
        headers = routing_headers(version, "notifications/initialized", {}, {})
        await self._dispatcher.notify("notifications/initialized", None, {"headers": headers})
        return _agreement("legacy", version, found, found["serverInfo"])


def _modern(found: dict[str, Any]) -> Agreement | None:
    """What the answer to `server/discover` settles; `None` for one that no modern server gives."""
    version = None if _DISCOVERED.fault(found) else _newest_in(found["supportedVersions"])
    if version is None:
        return None
    return _agreement("modern", version, found, meta_of(found).get(SERVER_INFO_META_KEY))


def _agreement(era: Era, version: str, found: Mapping[str, Any], server: object) -> Agreement:
    said = {key: value for key, value in found["capabilities"].items() if value is not None}
    return Agreement(era, version, said, ServerInfo.of(server), found.get("instructions") or "")


def _required(agreed: Agreement | None) -> Agreement:
    if agreed is None:
        raise MCPError(INVALID_REQUEST, _NOT_MODERN)
    return agreed


def _newest_in(supported: object) -> str | None:
    """The newest modern revision among those that a server names."""
    named = cast("list[object]", supported) if isinstance(supported, list) else []
    return next((version for version in reversed(MODERN_PROTOCOL_VERSIONS) if version in named), None)
