"""One bridge as a process before a stdio upstream: `bridge_process.py NAME MODE [PORT]`."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import uvicorn
from bridges import OWN, Bridge
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from mcp_toolset import ToolsetServer


def named(name: str) -> Bridge:
    if name in OWN:
        return OWN[name]
    import fastmcp_peers

    return fastmcp_peers.BRIDGES[name]


async def main(name: str, mode: Any, port: int) -> None:
    async with named(name)("stdio", mode) as bridge:
        if isinstance(bridge, ToolsetServer):
            await (bridge.run_http(port=port) if port else bridge.run_stdio())
        elif isinstance(bridge, Server):
            await _sdk(bridge, port)
        elif port:
            await bridge.run_http_async(host="127.0.0.1", port=port, show_banner=False, log_level="error")
        else:
            await bridge.run_stdio_async(show_banner=False)


async def _sdk(server: Server[Any], port: int) -> None:
    if port:
        config = uvicorn.Config(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="error")
        await uvicorn.Server(config).serve()
        return
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
