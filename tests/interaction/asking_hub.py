"""A hub of upstreams, as a process: `python asking_hub.py '{"NAME": TARGET, …}' stdio|http [library]`.

Over HTTP it prints its port; `memory` stands for a server of its own process, one that asks unless it is
to be a library.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
from tests.interaction import asker, library
from tests.support.served import listening, port_of

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, serve


def hub(targets: dict[str, Any], made: asker.Made = asker.make, **options: Any) -> ToolsetServer:
    """Every upstream under its name; those of this process are made by `made`.

    A server that is called modern is spoken to in that era alone, whatever its clients speak.
    """

    def mounted(name: str, target: Any) -> Toolset:
        said: dict[str, Any] = {"protocol": "modern" if name.endswith("modern") else "auto", **options}
        return RemoteToolset(made() if target == "memory" else target, name=name, **said).prefixed(name)

    mounts = [mounted(name, target) for name, target in targets.items()]
    return ToolsetServer(Toolset(*mounts), name="asking-hub", list_timeout=60)


async def over_http(server: ToolsetServer) -> None:
    async with server:
        await server.settled()
        async with listening(server.http_app()) as url:
            sys.stdout.write(f"{port_of(url)}\n")
            sys.stdout.flush()
            await anyio.sleep_forever()


if __name__ == "__main__":
    made = hub(json.loads(sys.argv[1]), library.make if "library" in sys.argv else asker.make)
    if sys.argv[2] == "http":
        anyio.run(over_http, made)
    else:
        serve(made)
