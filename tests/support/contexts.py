"""Contexts of callers, as a door makes them of what a client has sent."""

from __future__ import annotations

from typing import Any

from mcp_toolset import Identity, ToolContext


class OnWire(ToolContext):
    """The context of a client: by its session or its principal, or by neither."""

    def __init__(
        self,
        session: str | None = None,
        principal: str | None = None,
        *,
        identity: Identity | None = None,
        version: str | None = "2025-11-25",
        client: dict[str, Any] | None = None,
        meta: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None,
    ) -> None:
        self.session, self.identity, self.protocol_version = session, identity, version
        self.principal = principal if identity is None else identity.key
        self._client, self._meta, self._params = client or {}, meta or {}, params or {}

    @property
    def client_info(self) -> dict[str, Any]:
        return self._client

    @property
    def meta(self) -> dict[str, Any]:
        return self._meta

    @property
    def params(self) -> dict[str, Any]:
        return self._params
