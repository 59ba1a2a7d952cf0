"""`ClientHandshake`: which revision a client speaks with a server: what is sent, and what its answers mean.

A server of 2026-07-28 answers `server/discover`, an older one `initialize`; which it is shows only in what it
answers. The handshake says which request is next, until it is settled; a session sends it and says what came:

    handshake = ClientHandshake(client, capabilities)
    while (request := handshake.request) is not None:
        try:
            result = await send(request.method, request.params, request.headers)
        except MCPError as error:    # an answer, or none in time; not that the connection has ended
            handshake.refused(error)             # raises if no other request is left to try
        else:
            handshake.answered(result)
    handshake.server        # an `Introduction`; a legacy server is then told `notifications/initialized`

(2026-07-28, basic/versioning, "Backward Compatibility"; up to 2025-11-25, basic/lifecycle, "Initialization".)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias, cast

from mcp_toolset._records import dataclass
from mcp_toolset.protocol import json_rpc, methods
from mcp_toolset.protocol.server_machine import METHOD_HEADER, VERSION_HEADER

Eras: TypeAlias = Literal["auto", "legacy", "modern"]
"""The eras in which a server may be spoken to."""

DISCOVER: Final = "server/discover"
INITIALIZE: Final = "initialize"

NOT_MODERN: Final = "it does not speak 2026-07-28; protocol: auto takes an older revision"
NOT_LEGACY: Final = "it speaks no revision up to 2025-11-25; protocol: auto takes a newer one"

_OF_MODERN: Final = frozenset((json_rpc.HEADER_MISMATCH, json_rpc.MISSING_REQUIRED_CLIENT_CAPABILITY))
"""Errors that servers of 2026-07-28 alone have (its transports/streamable-http, "Backward Compatibility")."""

_CAPABILITIES: Final = methods.Members(
    optional={
        "tools": methods.Members(optional={"listChanged": methods.FLAG}),
        "prompts": methods.Members(optional={"listChanged": methods.FLAG}),
        "resources": methods.Members(optional={"listChanged": methods.FLAG, "subscribe": methods.FLAG}),
        "logging": methods.OBJECT,
        "completions": methods.OBJECT,
        "experimental": methods.map_of(methods.OBJECT),
        "extensions": methods.map_of(methods.OBJECT),
        "tasks": methods.OBJECT,
    }
)
_INITIALIZED: Final = methods.Members(
    {"protocolVersion": methods.TEXT, "capabilities": _CAPABILITIES, "serverInfo": methods.IMPLEMENTATION},
    {"instructions": methods.TEXT, "_meta": methods.OBJECT},
)
_DISCOVERED: Final = methods.Members(
    {"supportedVersions": methods.list_of(methods.TEXT), "capabilities": _CAPABILITIES},
    {"instructions": methods.TEXT, "_meta": methods.OBJECT},
)


class NoVerdictError(json_rpc.MCPError):
    """The server, or what stands before it, has not come to the method: the error says nothing of its era."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """A server's description of itself, as it wrote it."""

    protocol_version: str
    capabilities: Mapping[str, Any]
    server_info: Mapping[str, Any] | None = None  # `name`, `version` and more; `None` if it has not said
    instructions: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_modern(self) -> bool:
        return methods.is_modern(self.protocol_version)


@dataclass(frozen=True, slots=True)
class HandshakeRequest:
    """A request that is to be sent to the server."""

    method: str
    params: dict[str, Any]
    headers: Mapping[str, str]


class ClientHandshake:
    """The requests that settle the revision with one server."""

    def __init__(
        self,
        client: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        *,
        eras: Eras = "auto",
        known_legacy: bool = False,
    ) -> None:
        self._client = client
        self._capabilities = capabilities
        self._eras = eras
        self._known_legacy = known_legacy
        self._asked_again = False
        self._is_late = False
        self.server: Introduction | None = None
        self.request: HandshakeRequest | None  # what is to be sent next; `None` once it is settled
        if eras == "legacy" or (eras == "auto" and known_legacy):
            self.request = self._initialize()
        else:
            self.request = self._discover(methods.LATEST_MODERN_VERSION)

    @property
    def falls_back(self) -> bool:
        """True if the legacy era is tried if the server leaves `server/discover` unanswered."""
        return self._eras == "auto" and not self._is_late

    def answered(self, result: Mapping[str, Any]) -> None:
        if self._asked().method == INITIALIZE:
            self._settle(_initialized(result))
            return
        try:
            self._settle(_discovered(result))
        except json_rpc.MCPError as fault:
            if self._eras == "modern":
                raise json_rpc.MCPError(fault.code, NOT_MODERN) from None
            self._try_legacy(fault)

    def refused(self, error: json_rpc.MCPError) -> None:
        """Take the error of the request: the answer of the server, or that none came in time."""
        if self._asked().method == INITIALIZE:
            self._refused_handshake(error)
            return
        if error.code in _OF_MODERN or isinstance(error, NoVerdictError):
            raise error
        mutual = _mutual(error)
        if mutual is not None and not self._asked_again:
            self._asked_again = True
            self.request = self._discover(mutual)
        elif self._eras == "modern" and error.code != json_rpc.CONNECTION_CLOSED:
            raise json_rpc.MCPError(error.code, f"{error.message} ({NOT_MODERN})", error.data)
        else:
            self._try_legacy(error)

    def _refused_handshake(self, error: json_rpc.MCPError) -> None:
        if self._eras == "legacy":
            if error.code in (json_rpc.UNSUPPORTED_PROTOCOL_VERSION, json_rpc.METHOD_NOT_FOUND):
                raise json_rpc.MCPError(error.code, f"{error.message} ({NOT_LEGACY})", error.data)
            raise error
        if self._known_legacy or error.code != json_rpc.UNSUPPORTED_PROTOCOL_VERSION:
            raise error
        # It knows the modern era alone, and was only slow to say so.
        self._is_late, self._asked_again = True, False
        self.request = self._discover(methods.LATEST_MODERN_VERSION)

    def _try_legacy(self, fault: json_rpc.MCPError) -> None:
        if not self.falls_back:
            raise fault
        self.request = self._initialize()

    def _settle(self, server: Introduction) -> None:
        self.request, self.server = None, server

    def _asked(self) -> HandshakeRequest:
        assert self.request is not None, "the handshake is settled"
        return self.request

    def _initialize(self) -> HandshakeRequest:
        params = {
            "protocolVersion": methods.LATEST_HANDSHAKE_VERSION,
            "capabilities": dict(self._capabilities),
            "clientInfo": dict(self._client),
        }
        return HandshakeRequest(INITIALIZE, params, {})

    def _discover(self, version: str) -> HandshakeRequest:
        envelope = {
            methods.PROTOCOL_VERSION_META_KEY: version,
            methods.CLIENT_INFO_META_KEY: dict(self._client),
            methods.CLIENT_CAPABILITIES_META_KEY: dict(self._capabilities),
        }
        headers = {VERSION_HEADER: version, METHOD_HEADER: DISCOVER}
        return HandshakeRequest(DISCOVER, {"_meta": envelope}, headers)


def _initialized(result: Mapping[str, Any]) -> Introduction:
    _require(INITIALIZE, _INITIALIZED, result)
    version = result["protocolVersion"]
    if version not in methods.HANDSHAKE_PROTOCOL_VERSIONS:
        raise json_rpc.MCPError(
            json_rpc.INTERNAL_ERROR, f"it answered the handshake with a revision that is not known: {version}"
        )
    return _introduction(version, result, result["serverInfo"])


def _discovered(result: Mapping[str, Any]) -> Introduction:
    _require(DISCOVER, _DISCOVERED, result)
    version = _newest(result["supportedVersions"])
    if version is None:
        raise json_rpc.MCPError(json_rpc.UNSUPPORTED_PROTOCOL_VERSION, NOT_MODERN)
    meta: Mapping[str, Any] = result.get("_meta") or {}
    info: Any = meta.get(methods.SERVER_INFO_META_KEY)
    named = isinstance(info, dict) and methods.IMPLEMENTATION.fault(info) is None
    return _introduction(version, result, cast("dict[str, Any]", info) if named else None)


def _introduction(version: str, result: Mapping[str, Any], info: Mapping[str, Any] | None) -> Introduction:
    return Introduction(
        version, result["capabilities"], info, result.get("instructions"), result.get("_meta") or {}
    )


def _require(method: str, members: methods.Members, result: Mapping[str, Any]) -> None:
    fault = members.fault(result)
    if fault is not None:
        raise json_rpc.MCPError(
            json_rpc.INTERNAL_ERROR, f"its answer to {method} does not follow the protocol: {fault}"
        )


def _mutual(error: json_rpc.MCPError) -> str | None:
    data: Any = error.data
    if error.code != json_rpc.UNSUPPORTED_PROTOCOL_VERSION or not isinstance(data, Mapping):
        return None
    supported: object = cast("Mapping[str, Any]", data).get("supported")
    return _newest(cast("list[Any]", supported)) if isinstance(supported, list) else None


def _newest(supported: list[Any]) -> str | None:
    return next(
        (version for version in reversed(methods.MODERN_PROTOCOL_VERSIONS) if version in supported), None
    )
