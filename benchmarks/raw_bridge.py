"""The bridge before `raw_upstream.py`, over stdio: `raw_bridge.py TOOLS UPSTREAMS [prefixed]`."""

from __future__ import annotations

import sys
from pathlib import Path

from bridges import one_hook

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, serve

TOOLS, UPSTREAMS = sys.argv[1], int(sys.argv[2])
COMMAND = [sys.executable, "-S", str(Path(__file__).with_name("raw_upstream.py")), TOOLS]

mounts = [RemoteToolset(COMMAND, name=f"up{number}") for number in range(UPSTREAMS)]
alone = UPSTREAMS == 1 and "prefixed" not in sys.argv
tools = mounts if alone else [mount.prefixed(f"u{n}") for n, mount in enumerate(mounts)]
serve(ToolsetServer(Toolset(*tools), hooks=one_hook()))
