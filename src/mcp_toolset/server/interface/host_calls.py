"""`HostCalls`: the methods for the program that owns a server: its tools, calls, answers, and serving."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mcp_toolset.concurrency.deadlines import REQUEST_TIMEOUT
from mcp_toolset.context.logins import LoginSource, PendingLogin
from mcp_toolset.errors import StateError
from mcp_toolset.server.interface.client_side import ClientSide
from mcp_toolset.server.interface.parts import authenticator
from mcp_toolset.server.manual_calls import ManualCalls, PendingCall
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.core.identity import Identity
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.core.source import SourceStatus
from mcp_toolset.tools.toolsets.opening import settled
from mcp_toolset.tools.view.unbound import UnboundName
from mcp_toolset.tools.view.view import ToolBinding

_log = logging.getLogger("mcp_toolset.policy")

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from mcp_toolset.catalog.search.index import SearchHit
    from mcp_toolset.security.authentication.authenticator import Auth, Authenticator
    from mcp_toolset.security.policy.limits import Limit
    from mcp_toolset.security.policy.policy import Policy
    from mcp_toolset.server.interface.monitor import Monitor, Ready
    from mcp_toolset.transports.http.limits import HttpLimits


class HostCalls(ClientSide):
    """The side of a server that its own program calls, without a wire."""

    _auth: Authenticator | None
    _manual: ManualCalls
    _offering: Offering

    @property
    def auth(self) -> Authenticator | None:
        """Who may call over HTTP, by the argument `auth`, otherwise by the configuration; `None`: any client.

        Raises:
            ConfigError: what the configuration says cannot be used.
        """
        configured = self.configured if self._auth is None else None
        return self._auth if configured is None else configured.authenticator()

    def rely_on_callers(self, auth: Auth | None = None, *, stdio: bool = False) -> None:
        """Refuse rules of a configuration for some callers, if neither it nor `auth` says who calls.

        Such rules of the program are a warning: it may call its tools for callers that it knows.

        Args:
            auth: Who may call over HTTP.
            stdio: Whether a client on standard input is served, of which nothing is known.

        Raises:
            ConfigError: there are such rules.
        """
        if self.configured is not None:
            self.configured.rely_on_callers(bool(auth or self._auth))
        is_known = not stdio and (auth or self.auth) is not None
        if not is_known and not self._is_told and self._visibility.is_for_some():
            self._is_told = True
            mend = "serve over HTTP" if stdio else "give auth=…"
            _log.warning("rules for callers by name, role or scope match nobody here: %s", mend)

    def tools(self) -> list[dict[str, Any]]:
        """The entries of `tools/list` for a client without grants, in wire form."""
        return list(self._served.wire)

    @property
    def offering(self) -> Offering:
        """The prompts and resources of all that is served, under their public names."""
        return self._offering

    def bindings(self) -> list[ToolBinding]:
        """Everything that can be called, resident and deferred, under its public name."""
        return list(self._served.table.values())

    @property
    def policy(self) -> Policy | None:
        """The policy that applies now: the program's and the configuration's together; `None` for none."""
        return self._visibility.policy

    def limits_of(self, binding: ToolBinding, identity: Identity | None = None) -> list[Limit]:
        """How much a caller may use of a tool: each limit with its place; without a caller, those for all."""
        return self._visibility.limits_of(binding, identity)

    def statuses(self) -> dict[str, SourceStatus]:
        """The status of each mounted server, by its name."""
        return self._served.statuses()

    async def settled(self) -> None:
        """Wait until every mounted server has been reached or has failed once.

        Opening a server does not wait for slow mounts. Use this before listing all tools.
        """
        await settled(list(self.registry.sources().values()))
        await self._rebuild()

    def unbound(self) -> tuple[UnboundName, ...]:
        """The names in hooks, middleware and verbs that match no tool so far."""
        return self._served.report.found

    def search(
        self, query: str, *, server: str | None = None, limit: int = 10, context: ToolContext | None = None
    ) -> list[SearchHit]:
        """Search the deferred tools, as `search_tools` does for a model: all, or those for a caller."""
        if not self._served.defers:
            return []
        return self._served.catalog.search(query, server=server, limit=limit, context=context)

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *, context: ToolContext = LOCAL_CONTEXT
    ) -> ToolResult:
        """Call a tool in process, with the same checks, middleware and hooks as a client's call.

        Raises:
            UnknownToolError: no such tool for this caller.
            UpstreamProtocolError: a mounted server answered with a protocol error.
            StateError: the server is not open.
        """
        self._require_open()
        return await self.call(ToolCall(name, arguments or {}), context)

    async def call_as_host(
        self, name: str, arguments: dict[str, Any] | None = None, *, context: ToolContext = LOCAL_CONTEXT
    ) -> ToolResult:
        """Call any tool, listed or deferred, as the program that owns the server: no grant is needed.

        Middleware, hooks and checks apply as to every call.

        Raises:
            UnknownToolError: no such tool.
            StateError: the server is not open.
        """
        self._require_open()
        return await self._served.call_ungranted(ToolCall(name, arguments or {}), context)

    def _require_open(self) -> None:
        if self._stack is None:
            raise StateError(f"server {self.name!r} is not open; call its tools inside `async with server:`")

    @property
    def pending_calls(self) -> list[PendingCall]:
        """The calls of manual tools that wait for the application, the oldest first."""
        return self._manual.pending()

    async def next_pending(self) -> PendingCall:
        """Wait for a manual call that was not handed out yet; several readers share the calls.

        Raises:
            StateError: the server was closed meanwhile.
        """
        return await self._manual.next()

    def submit_result(self, call_id: str, output: Any) -> None:
        """Answer a pending call: with a value, a `ToolResult`, `AskUser` or `Halt`; see `ManualCalls`."""
        self._manual.submit(call_id, output)

    def fail(self, call_id: str, message: str) -> None:
        """End a pending call with an error that the model can read; see `ManualCalls`."""
        self._manual.fail(call_id, message)

    def serves_one_user(self) -> None:
        """Treat all callers without authentication as the same user, as over stdio."""
        self.extensions.alone()

    async def run_stdio(self, *, drain: float = 1.0) -> None:
        """Serve one client on standard input and output, until it closes them.

        Args:
            drain: Seconds that requests in flight may take after the client has closed its output: the client
                may still read the answers.
        """
        from mcp_toolset.transports.stdio_server import serve_stdio

        self.serves_one_user()
        self.rely_on_callers(stdio=True)
        await serve_stdio(self.answers, drain=drain)

    def http_app(
        self,
        *,
        allowed_hosts: Sequence[str] = (),
        allowed_origins: Sequence[str] = (),
        json_response: bool = False,
        request_timeout: float = REQUEST_TIMEOUT,
        limits: HttpLimits | None = None,
        trusted_proxies: Sequence[str] | None = None,
        auth: Auth | None = None,
    ) -> Starlette:
        """A Starlette application with `/mcp` (streamable HTTP) and `/sse`; see `transports.http.app`.

        `auth` says who may call this application; by default the server's `auth` decides. `limits` and
        `trusted_proxies` are by default those of the configuration.
        """
        from mcp_toolset.transports.http.app import http_app
        from mcp_toolset.transports.http.limits import HttpLimits

        stated = {} if self.configured is None else dict(self.configured.config.http or {})
        proxies: Sequence[str] = stated.pop("trusted_proxies", ())
        own = authenticator(auth)
        self.rely_on_callers(own)
        return http_app(
            self.answers,
            self.monitor,
            self.extensions.http_pages(),
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            json_response=json_response,
            request_timeout=request_timeout,
            limits=limits or HttpLimits(**stated),
            trusted_proxies=proxies if trusted_proxies is None else trusted_proxies,
            auth=lambda: own or self.auth,
            logins=self._login_of,
            told=self.extensions.record,
            shared=self._shared,
        )

    @cached_property
    def monitor(self) -> Monitor:
        """How the server is doing, for the pages that monitoring asks."""
        # What serves one client by pipes is not asked.
        from mcp_toolset.server.interface.monitor import Monitor

        return Monitor(self._required, self.statuses, self._visibility.hides_server, self._shared)

    def _required(self) -> Ready:
        """What must work for the server to be ready, as told here, or in the configuration."""
        if (told := self._own.get("ready")) is not None:
            return told
        from mcp_toolset.server.interface.monitor import Ready

        stated = None if self.configured is None else self.configured.config.ready
        return Ready(**(stated or {}))

    def _login_of(self, ticket: str) -> PendingLogin | None:
        """The login at a mounted server that has this ticket."""
        sources = [one for one in self.registry.sources().values() if isinstance(one, LoginSource)]
        return next((login for one in sources if (login := one.login_of(ticket)) is not None), None)

    async def run_http(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        request_timeout: float = REQUEST_TIMEOUT,
        insecure: bool = False,
    ) -> None:
        """Serve `/mcp` and `/sse` until cancelled; see `transports.http.app`.

        Raises:
            ToolsetError: the address cannot be used, or other machines reach it without authentication.
        """
        from mcp_toolset.transports.http.app import serve_http

        await serve_http(self, host=host, port=port, request_timeout=request_timeout, insecure=insecure)
