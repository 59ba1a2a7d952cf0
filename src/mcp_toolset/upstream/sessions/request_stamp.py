"""`RequestStamp`: what a request to an upstream carries besides its parameters: `_meta` and headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types

from mcp_toolset.context.request import WireContext
from mcp_toolset.protocol.dispatch import CallOptions
from mcp_toolset.protocol.eras import forwarded_meta, is_modern, modern_envelope
from mcp_toolset.protocol.header_schemas import header_map
from mcp_toolset.protocol.http_headers import routing_headers
from mcp_toolset.protocol.revisions import CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.upstream.target import Link

CLIENT: Final = types.Implementation(name="mcp-toolset", version="0.1.0")
_CLIENT_WIRE: Final = CLIENT.model_dump(by_alias=True, exclude_none=True)

_NO_HEADERS: Final[Mapping[tuple[str, ...], str]] = {}

HEARD_BY_DEFAULT: Final = "info"
"""What a modern upstream sends to a legacy client that has set no level: there the server decides."""


def _asked(context: ToolContext) -> Mapping[str, Any]:
    """The keys of a modern envelope that are the caller's own: what it answers, what it wants to hear."""
    if not isinstance(context, WireContext):
        return context.meta
    if context.modern:
        return {**context.meta, CLIENT_CAPABILITIES_META_KEY: context.carried}
    return {
        CLIENT_CAPABILITIES_META_KEY: context.carried,
        LOG_LEVEL_META_KEY: context.log_level or HEARD_BY_DEFAULT,
    }


class RequestStamp:
    """Puts `_meta` and headers on the requests of one session."""

    def __init__(self, link: Link, *, shows: Mapping[str, Any], forwards_credentials: bool) -> None:
        """Stamp requests of a session.

        Args:
            link: How the upstream is reached: whether requests have headers of their own.
            shows: What requests of the bridge itself declare.
            forwards_credentials: Whether callers' own credentials are sent on.
        """
        self._link = link
        self._shown: Mapping[str, Any] = {CLIENT_CAPABILITIES_META_KEY: shows}
        self._forwards_credentials = forwards_credentials

    def put(
        self,
        version: str,
        method: str,
        params: dict[str, Any],
        context: ToolContext | None,
        opts: CallOptions,
        tool: ToolDefinition | None,
        token: str | None,
    ) -> None:
        """Put into the parameters and headers of a request what the revision wants to see in it."""
        meta = forwarded_meta(context.meta) if context is not None else {}
        if is_modern(version):
            meta.update(
                modern_envelope(version, _CLIENT_WIRE, self._shown if context is None else _asked(context))
            )
        if token is not None:
            meta["progressToken"] = token
        if meta:
            params["_meta"] = meta
        if self._link.facts.carries_headers:
            opts["headers"] = self._headers(version, method, params, context, tool)

    def _headers(
        self,
        version: str,
        method: str,
        params: Mapping[str, Any],
        context: ToolContext | None,
        tool: ToolDefinition | None,
    ) -> dict[str, str]:
        annotated = header_map(tool.input_schema) if tool is not None else _NO_HEADERS
        headers = routing_headers(version, method, params, annotated)
        if self._forwards_credentials and isinstance(context, WireContext) and context.authorization:
            headers["authorization"] = context.authorization
        return headers
