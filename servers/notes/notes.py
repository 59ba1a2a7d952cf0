"""Serve notes over MCP: `python notes.py [--db PATH] [--transport stdio|http|sse] [--port N]`."""

from __future__ import annotations

import sys

from notes_server.server import default_path, main, note_server
from notes_server.store import NoteStore

server = note_server(NoteStore(default_path()))
"""For `mcp-toolset serve notes.py`: the default database, opened at first use."""

if __name__ == "__main__":
    sys.exit(main())
