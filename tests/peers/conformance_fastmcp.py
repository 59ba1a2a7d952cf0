"""FastMCP's proxy over the server at `sys.argv[1]`, over HTTP on a free port; runs in .venv-bench."""

from __future__ import annotations

import socket
import sys

from fastmcp.server import create_proxy  # pyright: ignore[reportMissingImports]

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
print(f"at http://127.0.0.1:{port}/mcp", file=sys.stderr, flush=True)  # noqa: T201
create_proxy(sys.argv[1]).run(transport="http", host="127.0.0.1", port=port, show_banner=False)
