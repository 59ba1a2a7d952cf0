"""`CallerCalls`: a call over the connection of its caller, who logs in first if need be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

from mcp_toolset.catalog.snapshot import ListedTool
from mcp_toolset.errors import (
    NEEDS_LOGIN,
    InvalidArgumentsError,
    LoginRequiredError,
    UnknownToolError,
    UpstreamUnavailableError,
)
from mcp_toolset.extensions.upstream_access.callers.logins import LOG_IN, CallerLogins, CallerTokens
from mcp_toolset.extensions.upstream_access.callers.reach import Reach
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.schema.argument_repair import repaired
from mcp_toolset.upstream.connection import UpstreamConnection
from mcp_toolset.upstream.target import Link

_T = TypeVar("_T")


class Connections(Protocol):
    """The connections of one mount, as `CallerConnections` has them.

    Attributes:
        timeout: Seconds that one call may take.
        start: Starts a task that outlives the call; `None` while the mount is closed.
    """

    timeout: float
    start: Callable[..., object] | None

    def of(self, context: ToolContext) -> UpstreamConnection: ...

    async def arrived(self, context: ToolContext, within: float) -> UpstreamConnection:
        """The connection of a caller, once it has been tried."""
        ...

    def seen(self, context: ToolContext) -> Mapping[str, ListedTool]: ...

    def retire(self, key: str) -> None:
        """Close the connection of a caller, once its calls in flight are done."""
        ...


class CallerCalls:
    """Sends the calls of each caller as that caller, to the tools that the server lists to that caller."""

    def __init__(
        self,
        connections: Connections,
        link: Link,
        reach: Reach,
        logins: CallerLogins | None,
        *,
        lenient: bool,
    ) -> None:
        """Send calls over `connections`.

        Args:
            connections: The connection of each caller.
            link: How the server is reached without a caller.
            reach: Tells callers apart.
            logins: The logins of callers, if each caller logs in.
            lenient: Whether arguments are repaired.
        """
        self._connections = connections
        self._link = link
        self._reach = reach
        self._logins = logins
        self._lenient = lenient

    async def call(self, definition: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolResult:
        """Send one call over the connection of its caller, who logs in first if need be.

        See `UpstreamConnection.call` and `CallerLogins.log_in` for what it raises.
        """
        if self.is_login(definition):
            await self._logged_in(context)
            return ToolResult.of_text(f"You are logged in to {self._link.name}. List its tools again.")

        async def send(connection: UpstreamConnection) -> ToolResult:
            return await self._called(connection, definition, call, context)

        return await self.sent(context, send)

    async def sent(self, context: ToolContext, send: Callable[[UpstreamConnection], Awaitable[_T]]) -> _T:
        """Send a request as its caller, who logs in first if need be, or again for more scopes.

        See `CallerLogins.log_in` for what it raises besides.
        """
        connection = await self._logged_in(context)
        try:
            return await send(connection)
        except UpstreamUnavailableError as fault:
            tokens = connection.link.credentials
            # The server has refused this request, so it did not run; of others it is not known.
            refused = isinstance(fault, LoginRequiredError)
            more = refused and fault.for_more
            if not isinstance(tokens, CallerTokens) or not (tokens.needed or more):
                raise
            if more:
                await self._log_in(context, tokens, more=True)
            elif self._connections.of(context) is connection:
                self._connections.retire(self._reach.key(context))
            again = await self._logged_in(context)
            if not refused:
                raise
        return await send(again)

    async def log_in(self, context: ToolContext) -> bool:
        """Have a caller log in who has to; whether that was so."""
        if self._logins is None:
            return False
        connection = await self._connections.arrived(context, self._connections.timeout)
        if not needs_login(connection):
            return False
        await self._logged_in(context)
        return True

    async def _logged_in(self, context: ToolContext) -> UpstreamConnection:
        connection = await self._connections.arrived(context, self._connections.timeout)
        tokens = connection.link.credentials
        if not needs_login(connection) or not isinstance(tokens, CallerTokens):
            return connection
        await self._log_in(context, tokens, more=not tokens.needed)
        return await self._connections.arrived(context, self._connections.timeout)

    async def _log_in(self, context: ToolContext, tokens: CallerTokens, *, more: bool) -> None:
        start = self._connections.start
        if self._logins is not None and start is not None:
            await self._logins.log_in(self._link, context, start, tokens.refused, more=more)

    async def _called(
        self, connection: UpstreamConnection, definition: ToolDefinition, call: ToolCall, context: ToolContext
    ) -> ToolResult:
        own = self._connections.seen(context).get(definition.name)
        if own is None:
            raise UnknownToolError(call.name)
        if own.definition.digest != definition.digest:
            call = self._fitting(own, call)
        return await UpstreamConnection.call(connection, own.definition, call, context)

    def is_login(self, definition: ToolDefinition) -> bool:
        return self._logins is not None and definition is self._logins.offer.tools[LOG_IN].definition

    def _fitting(self, own: ListedTool, call: ToolCall) -> ToolCall:
        """The call, checked by the definition of its tool that its caller is listed."""
        if self._lenient:
            call = repaired(own.definition.input_schema, own.arguments, call)
        if not own.arguments.is_valid(call.arguments):
            raise InvalidArgumentsError(own.arguments.misfit(call.name, call.arguments))
        return call


def needs_login(connection: UpstreamConnection) -> bool:
    """Whether the caller whose connection this is has to log in before it can be used."""
    tokens = connection.link.credentials
    if not isinstance(tokens, CallerTokens) or connection.status.state == "ready":
        return False
    asked = tokens.refused is not None and connection.status.reason.startswith(NEEDS_LOGIN)
    return tokens.needed or asked
