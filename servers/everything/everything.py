"""Serve one of everything over MCP: `python everything.py [--transport stdio|http|sse] [--port N]`."""

from __future__ import annotations

import sys

from everything_server.server import everything_server, main

server = everything_server()
"""For `mcp-toolset serve everything.py`."""

if __name__ == "__main__":
    sys.exit(main())
