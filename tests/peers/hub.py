"""The servers of the configuration file `sys.argv[1]` as one, over HTTP on a free port.

It says where as soon as each server has been reached, so that whoever waits for that sees all tools.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from tests.support.served import served

from mcp_toolset import ToolsetServer, load_toolset


async def main(config: Path) -> None:
    server = ToolsetServer(load_toolset(config), list_timeout=60)
    async with served(server, within=float("inf")) as address:
        await server.settled()
        for name, status in server.statuses().items():
            print(f"{name}: {status.state} {status.reason}")  # noqa: T201
        print(f"at {address}/mcp", flush=True)  # noqa: T201
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
