"""A server whose one tool says numbered things before its result, and a hub that mounts it.

    python benchmarks/chatty.py server stdio|http legacy|modern
    python benchmarks/chatty.py hub stdio|http TARGET stdio|http|memory legacy|modern

Over HTTP either prints its port; the server has `/mcp` and `/sse`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, serve
from mcp_toolset.transports.http.app import bound_socket, run_app

SAID = 5
"""Notifications of one call: log messages and progress in turn, log messages first and last."""

SCHEMA = {"type": "object", "properties": {"first": {"type": "integer"}}, "required": ["first"]}


async def say(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Number everything from `first` on; every second is progress."""
    first = (params.arguments or {})["first"]
    for number in range(first, first + SAID):
        if (number - first) % 2:
            await ctx.session.report_progress(number)
            continue
        told = types.LoggingMessageNotificationParams(level="info", data=number)
        note = types.LoggingMessageNotification(params=told)
        await ctx.session.send_notification(note, related_request_id=ctx.request_id)
    return types.CallToolResult(content=[types.TextContent(type="text", text=str(first))])


async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
    """The one tool."""
    return types.ListToolsResult(tools=[types.Tool(name="say", input_schema=SCHEMA)])


async def set_level(ctx: Any, params: Any) -> types.EmptyResult:
    """Take any level; everything is said anyway."""
    return types.EmptyResult()


def make(era: str = "modern") -> Server[Any]:
    """The server."""
    levels: dict[str, Any] = {} if era == "modern" else {"on_set_logging_level": set_level}
    listen = ListenHandler(InMemorySubscriptionBus())
    return _Changing(
        "chatty", on_list_tools=listed, on_call_tool=say, on_subscriptions_listen=listen, **levels
    )


class _Changing(Server[Any]):
    """Declares that its list changes, so that a request for changes is open beside the calls."""

    def create_initialization_options(
        self, notification_options: Any = None, *more: Any, **named: Any
    ) -> Any:
        return super().create_initialization_options(NotificationOptions(tools_changed=True), *more, **named)


async def over_stdio(era: str) -> None:
    """Serve one client."""
    server = make(era)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def app(era: str) -> Starlette:
    """Streamable HTTP and SSE."""
    server, posts = make(era), SseServerTransport("/messages/")

    async def sse(request: Any) -> Response:
        async with posts.connect_sse(request.scope, request.receive, request._send) as streams:
            await server.run(*streams, server.create_initialization_options())
        return Response()

    whole = server.streamable_http_app()
    whole.router.routes += [Route("/sse", sse), Mount("/messages/", posts.handle_post_message)]
    return whole


async def listening(application: Any, *, ours: bool = False) -> None:
    """Serve on a free port."""
    with bound_socket("127.0.0.1", 0) as bound:
        sys.stdout.write(f"{bound.getsockname()[1]}\n")
        sys.stdout.flush()
        if ours:
            await run_app(application, bound)
        else:
            await uvicorn.Server(uvicorn.Config(application, log_level="error")).serve([bound])


def hub(target: str, era: str) -> ToolsetServer:
    """A hub with the server mounted."""
    mounted: Any = make() if target == "memory" else json.loads(target)
    protocol: Any = "auto" if target == "memory" else era
    return ToolsetServer(Toolset(RemoteToolset(mounted, name="chatty", protocol=protocol)), name="hub")


async def hub_over_http(server: ToolsetServer) -> None:
    """Serve the hub on a free port."""
    async with server:
        await server.settled()
        await listening(server.http_app(), ours=True)


def main() -> None:
    """Run what the command line names."""
    kind, door, *rest = sys.argv[1:]
    if kind == "server":
        anyio.run(over_stdio, rest[0]) if door == "stdio" else anyio.run(listening, app(rest[0]))
    elif door == "stdio":
        serve(hub(*rest))
    else:
        anyio.run(hub_over_http, hub(*rest))


if __name__ == "__main__":
    main()
