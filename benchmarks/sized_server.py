"""The server that `sizing.py` measures: `sized_server.py PORT TOOLS listed|deferred MOUNTS TARGET [STORE]`.

It mounts TARGET so many times: an address, or `stdio` for a server of one tool in a process each. All its
tools but one come from a further server in a process, so that they are mounted tools.
"""

import sys
from pathlib import Path

import anyio

from mcp_toolset import HttpLimits, RemoteToolset, Toolset, ToolsetServer, tool
from mcp_toolset.shared import SharedState
from mcp_toolset.transports.http.app import bound_socket, run_app

RAW = [sys.executable, "-S", str(Path(__file__).with_name("raw_upstream.py"))]


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main(port: int, tools: int, way: str, mounts: int, target: str, store: str = "") -> None:
    many = Toolset(*([RemoteToolset([*RAW, str(tools)], name="many").prefixed("many")] if tools else []))
    place = [*RAW, "1"] if target == "stdio" else target
    others = [RemoteToolset(place, name=f"up{number}").prefixed(f"u{number}") for number in range(mounts)]
    toolset = Toolset(add, many.deferred() if way == "deferred" else many, *others)
    shared = SharedState(store) if store else None
    async with ToolsetServer(toolset, keep=False, shared=shared) as server:
        await server.settled()
        app = server.http_app(limits=HttpLimits(max_sessions=100_000, max_sessions_per_peer=100_000))
        with bound_socket("127.0.0.1", port) as listening:
            await run_app(app, listening)


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), *sys.argv[5:])
