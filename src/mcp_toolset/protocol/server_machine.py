"""`ServerMachine`: the served side of one client's connection; it decides about each message when it comes.

A door (stdio, SSE, an HTTP session, in process) has one machine for each client and asks it about every
request and notification **in the order in which they come**, before anything is started for them:

    machine = ServerMachine()                           # the first request decides the era
    envelope = machine.receive_request(method, params)  # or MCPError: the answer; nothing is to be started
    envelope.protocol_version, envelope.client_capabilities, envelope.is_modern

    ServerMachine("legacy")          # of an HTTP session: the transport tells the era
    ServerMachine("modern")          # of an endpoint: one will do for the modern POSTs of all clients
        .receive_request(method, params, headers)       # names in lower case; they agree with the body

So a `tools/list` that a client sends right behind `initialize` is accepted, and one sent right before it
refused, however long the handler of either takes. A refused request leaves the machine unchanged, but for
the era, which the first request decides whatever comes of it (2025-11-25, basic/lifecycle; 2026-07-28,
basic/versioning).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast

from mcp_toolset.protocol.codec import held_by
from mcp_toolset.protocol.http_headers import check_routing
from mcp_toolset.protocol.inbound import (
    Envelope,
    check_envelope,
    check_meta,
    has_envelope,
    malformed,
    read_envelope,
    unsupported_version,
)
from mcp_toolset.protocol.json_rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    MCPError,
)
from mcp_toolset.protocol.methods import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    LOG_LEVEL_META_KEY,
    NOTIFICATION_METHODS,
    NOTIFICATIONS,
    PROTOCOL_VERSION_META_KEY,
    REQUEST_METHODS,
    REQUESTS,
    Method,
)

Era: TypeAlias = Literal["legacy", "modern"]

INITIALIZE: Final = "initialize"
INITIALIZED: Final = "notifications/initialized"
MAX_CLIENT: Final = 128 * 1024
"""Bytes that a client may say about itself, as `held_by` counts them."""

_ENVELOPE_KEYS: Final = (
    PROTOCOL_VERSION_META_KEY,
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
)
_NOTHING: Final[Mapping[str, Any]] = {}


def negotiated_version(requested: str) -> str:
    """The revision that a handshake agrees upon: the one asked for, else the newest of the legacy era."""
    return requested if requested in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION


class ServerMachine:
    """What one client has said so far, and what it may say next.

    Attributes:
        era: `None` before the first request.
        envelope: What the client said last of itself: in the handshake, or with the last modern request.
        initialize_accepted: Whether a handshake has come, or a client that sends none says that it is done;
            legacy requests other than `ping` are refused before.
        initialized: Whether the client has said that its side of the handshake is done.
    """

    __slots__ = (
        "_era_is_given",
        "_methods",
        "_said",
        "envelope",
        "era",
        "initialize_accepted",
        "initialized",
    )

    def __init__(
        self,
        era: Era | None = None,
        *,
        version: str = LATEST_HANDSHAKE_VERSION,
        initialize_accepted: bool = False,
    ) -> None:
        self.era: Era | None = era
        self._know(Envelope(version))
        self.initialize_accepted = initialize_accepted
        self.initialized = initialize_accepted
        self._era_is_given = era is not None
        self._said: Mapping[str, Any] | None = None

    def receive_request(
        self, method: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Envelope:
        """Decide about a request that has come."""
        params = params or _NOTHING
        meta: Any = params["_meta"] if "_meta" in params else None
        if self.era is None:
            self.era = "modern" if method != INITIALIZE and has_envelope(params) else "legacy"
        if self.era == "modern":
            # A client says the same of itself in each request: it is looked at when that has changed.
            if method == INITIALIZE or self._said is None or _has_changed(meta, self._said):
                return self._receive_envelope(method, params, headers)
            if headers is not None:
                check_routing(self.envelope.protocol_version, method, params, headers)
        elif not self.initialize_accepted or method == INITIALIZE:
            return self._receive_early(method, params, meta)
        elif meta is not None and not self._era_is_given and has_envelope(params):
            raise _no_envelope()
        _check(method, params, meta, self._methods)
        return self.envelope

    def receive_notification(self, method: str, params: Mapping[str, Any] | None = None) -> bool:
        """True if a notification that has come is to be handled; a malformed or early one is dropped."""
        params = params or {}
        version = LATEST_MODERN_VERSION if self.era == "modern" else self.envelope.protocol_version
        if method in NOTIFICATION_METHODS:
            known = NOTIFICATIONS[version].get(method)
            if known is None or known.params.fault(params) is not None:
                return False
            if not (params.get("_meta") is None or isinstance(params["_meta"], Mapping)):
                return False
        if method == INITIALIZED:
            self.initialized = self.initialize_accepted = True
        return self.era == "modern" or self.initialize_accepted

    def _receive_early(self, method: str, params: Mapping[str, Any], meta: Any) -> Envelope:
        if method == INITIALIZE:
            _check(method, params, meta, self._methods)
            _check_size(params["clientInfo"], params["capabilities"])
            version = negotiated_version(params["protocolVersion"])
            self._know(Envelope(version, params["clientInfo"], params["capabilities"]))
            self.initialize_accepted = True
        elif not self._era_is_given and has_envelope(params):
            raise _no_envelope()
        elif method not in self._methods:
            raise _not_found(method)
        elif method != "ping":
            raise MCPError(INVALID_PARAMS, "Invalid request parameters: initialize first", "")
        else:
            _check(method, params, meta, self._methods)
        return self.envelope

    def _receive_envelope(
        self, method: str, params: Mapping[str, Any], headers: Mapping[str, str] | None
    ) -> Envelope:
        """Decide about a modern request whose envelope is not that of the last one."""
        if method == INITIALIZE and not self._era_is_given:
            served = unsupported_version(params.get("protocolVersion")).data
            raise MCPError(
                UNSUPPORTED_PROTOCOL_VERSION,
                "this connection speaks 2026-07-28 and takes no handshake",
                served,
            )
        envelope = read_envelope(method, params, headers)
        meta, methods = cast("dict[str, Any]", params["_meta"]), REQUESTS[envelope.protocol_version]
        if method in REQUEST_METHODS and method not in methods:
            raise _not_found(method)
        check_envelope(meta)
        _check(method, params, meta, methods)
        if headers is None:
            # The endpoint of modern POSTs keeps that of one client alone.
            _check_size(envelope.client_info, envelope.client_capabilities)
        self._know(envelope)
        self._said = {key: meta[key] for key in _ENVELOPE_KEYS if key in meta}
        return envelope

    def _know(self, envelope: Envelope) -> None:
        self.envelope, self._methods = envelope, REQUESTS[envelope.protocol_version]


def _has_changed(meta: Any, said: Mapping[str, Any]) -> bool:
    if type(meta) is not dict:
        return True
    for key in _ENVELOPE_KEYS:
        if key in meta:
            if key not in said or meta[key] != said[key]:
                return True
        elif key in said:
            return True
    return False


def _check(
    method: str, params: Mapping[str, Any], meta: dict[str, Any] | None, methods: Mapping[str, Method]
) -> None:
    """Refuse malformed parameters, and a method that the protocol has, but not in this revision."""
    is_known = method in methods
    if not is_known and method in REQUEST_METHODS:
        raise _not_found(method)
    if meta is not None and (
        type(meta) is not dict or ("progressToken" in meta and type(meta["progressToken"]) is not int)
    ):
        check_meta(params)
    if is_known:
        fault = methods[method].params.fault(params)
        if fault is not None:
            raise malformed(fault)


def _check_size(*said: object) -> None:
    if held_by(json.dumps(said, separators=(",", ":")).encode()) > MAX_CLIENT:
        told = "clientInfo and capabilities are too long to be kept; send shorter ones"
        raise MCPError(INVALID_PARAMS, f"Invalid request parameters: {told}", "")


def _not_found(method: str) -> MCPError:
    return MCPError(METHOD_NOT_FOUND, "Method not found", method)


def _no_envelope() -> MCPError:
    return MCPError(
        INVALID_REQUEST,
        "the first request of this connection had no envelope: requests with the one of 2026-07-28 are not "
        "accepted on it",
    )
