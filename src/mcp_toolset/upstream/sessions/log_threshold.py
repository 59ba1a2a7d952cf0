"""`LogThreshold`: the least severe log message that a legacy session sends, lowered for its callers.

A session keeps one level for all of its callers (`logging/setLevel`); each caller is passed on its share.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import UpstreamProtocolError
from mcp_toolset.protocol.methods import LOG_LEVELS
from mcp_toolset.tools.core.call import ToolContext

Request = Callable[[str, dict[str, Any]], Awaitable[object]]


class LogThreshold:
    """The log level of one session with a server.

    Attributes:
        applies: Whether the session has a level: the server speaks a legacy revision and declares logging.
    """

    __slots__ = ("_level", "applies")

    def __init__(self) -> None:
        """Apply to no session yet."""
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
