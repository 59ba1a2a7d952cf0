"""`RequestStamp`: the `_meta` and headers that a session adds to requests, and the log level that it sets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mcp_toolset.context.client import with_extensions
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import UpstreamProtocolError
from mcp_toolset.protocol.dispatch import CallOptions
from mcp_toolset.protocol.eras import forwarded_meta, modern_envelope
from mcp_toolset.protocol.http_headers import header_map, routing_headers
from mcp_toolset.protocol.methods import LOG_LEVELS
from mcp_toolset.protocol.revisions import CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY, is_modern
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.upstream.sessions.handshake import CLIENT_INFO
from mcp_toolset.upstream.sessions.stand_in import StandIn, carried_to
from mcp_toolset.upstream.target import Link

_NO_HEADERS: Final[Mapping[tuple[str, ...], str]] = {}

OWN_EXTENSIONS: Final = "mcp-toolset/extensions"
"""In the `_meta` of a request before it is sent: `OwnExtensions`. A value of a client's is left out."""


class OwnExtensions(dict[str, Any]):
    """The extensions that the bridge itself takes, by name, whether the caller has declared them or not."""


HEARD_BY_DEFAULT: Final = "info"
"""What a modern upstream sends to a legacy client that has set no level: there the server decides."""


def _asked(context: ToolContext, stand_in: StandIn | None) -> Mapping[str, Any]:
    """The keys of a modern envelope that are the caller's own: what it answers, what it wants to hear."""
    if not isinstance(context, WireContext):
        if stand_in is None:
            return context.meta
        return {**context.meta, CLIENT_CAPABILITIES_META_KEY: {stand_in.capability: {}}}
    declared = carried_to(stand_in, context.carried)
    if context.modern:
        return {**context.meta, CLIENT_CAPABILITIES_META_KEY: declared}
    return {
        CLIENT_CAPABILITIES_META_KEY: declared,
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
        self._stand_in: StandIn | None = link.stand_in
        self._shown: Mapping[str, Any] = {CLIENT_CAPABILITIES_META_KEY: shows}
        self._forwards_credentials = forwards_credentials
        self._version = ""
        self._modern = False
        self._annotated: dict[str, tuple[ToolDefinition, Mapping[tuple[str, ...], str]]] = {}

    def begin(self, version: str) -> None:
        self._version, self._modern = version, is_modern(version)

    def put(
        self,
        method: str,
        params: dict[str, Any],
        context: ToolContext | None,
        opts: CallOptions,
        tool: ToolDefinition | None = None,
        token: str | None = None,
    ) -> None:
        """Put into the parameters and headers of a request what the revision wants to see in it.

        Args:
            method: The method of the request.
            params: Its parameters, which gain `_meta`.
            context: Whose request it is; `None` for one of the bridge itself.
            opts: What is said with it, which gains headers.
            tool: The tool that is called.
            token: What its progress comes with.
        """
        meta = forwarded_meta(context.meta) if context is not None else {}
        if "_meta" in params:
            meta |= params["_meta"]
        if self._modern:
            asked = self._shown if context is None else _asked(context, self._stand_in)
            meta.update(modern_envelope(self._version, CLIENT_INFO, asked))
            if OWN_EXTENSIONS in meta:
                _declare(meta, meta.pop(OWN_EXTENSIONS))
            if self._link.declared:
                declared = self._link.declares(meta[CLIENT_CAPABILITIES_META_KEY])
                meta[CLIENT_CAPABILITIES_META_KEY] = declared
        if token is not None:
            meta["progressToken"] = token
        if meta:
            params["_meta"] = meta
        if self._link.facts.carries_headers:
            opts["headers"] = self._headers(method, params, context, tool)

    def of_notification(self, method: str) -> CallOptions:
        if not self._link.facts.carries_headers:
            return {}
        return {"headers": routing_headers(self._version, method, {}, _NO_HEADERS)}

    def _headers(
        self,
        method: str,
        params: Mapping[str, Any],
        context: ToolContext | None,
        tool: ToolDefinition | None,
    ) -> dict[str, str]:
        annotated = _NO_HEADERS if tool is None or not self._modern else self._annotations(tool)
        headers = routing_headers(self._version, method, params, annotated)
        if self._forwards_credentials and isinstance(context, WireContext) and context.authorization:
            headers["authorization"] = context.authorization
        return headers

    def _annotations(self, tool: ToolDefinition) -> Mapping[tuple[str, ...], str]:
        """The arguments of a tool that travel in headers too, looked for once for each definition."""
        known = self._annotated.get(tool.name)
        if known is None or known[0] is not tool:
            known = self._annotated[tool.name] = (tool, header_map(tool.input_schema))
        return known[1]


Request = Callable[[str, dict[str, Any]], Awaitable[object]]


class LogThreshold:
    """The least severe log message that a legacy session sends (`logging/setLevel`), lowered for its callers.

    Attributes:
        applies: Whether the session has a level: the server speaks a legacy revision and declares logging.
    """

    __slots__ = ("_level", "applies")

    def __init__(self) -> None:
        self.applies = False
        self._level: str | None = None

    def begin(self, capabilities: Mapping[str, Any], *, modern: bool) -> None:
        """Start with the level that the server has by itself."""
        self.applies = not modern and "logging" in capabilities
        self._level = None

    def wanted_by(self, context: ToolContext) -> str | None:
        """The level to set before a request of this caller; `None` if the server sends enough."""
        if not self.applies or not isinstance(context, WireContext):
            return None
        wanted, level = context.log_level, self._level
        if wanted not in LOG_LEVELS or (level and LOG_LEVELS.index(level) <= LOG_LEVELS.index(wanted)):
            return None
        return wanted

    async def lower(self, level: str, request: Request) -> None:
        """Have the server send messages from this level on; one that refuses stays as it is."""
        self._level = level
        try:
            await request("logging/setLevel", {"level": level})
        except UpstreamProtocolError:
            return


def _declare(meta: dict[str, Any], own: object) -> None:
    if isinstance(own, OwnExtensions):
        meta[CLIENT_CAPABILITIES_META_KEY] = with_extensions(meta[CLIENT_CAPABILITIES_META_KEY], own)
