"""The server, and the command that starts it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mcp_toolset import ToolsetError, ToolsetServer, serve

from .resources import NoteResources
from .store import NoteStore
from .tools import note_toolset

__all__ = ["default_path", "main", "note_server"]

_INSTRUCTIONS = (
    "Notes that outlive the conversation. Look with search_notes before you add_note, so that one "
    "matter has one note; file notes under tags and connect them with link_notes. Before you replace "
    "a body, read the note and pass the revision you read as if_revision."
)


def default_path() -> Path:
    """Where notes are kept unless told otherwise, by the XDG base directory specification."""
    told = Path(os.environ.get("XDG_DATA_HOME", ""))
    home = told if told.is_absolute() else Path.home() / ".local" / "share"
    return home / "mcp-toolset" / "notes.db"


def note_server(store: NoteStore) -> ToolsetServer:
    """The tools and resources of one store as a server."""
    return ToolsetServer(
        note_toolset(store), name="notes", instructions=_INSTRUCTIONS, resources=NoteResources(store)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the client leaves; 1 with one line on stderr if the database or the port cannot be used."""
    options = _parser().parse_args(arguments)
    store = NoteStore(options.db)
    try:
        with store:
            serve(note_server(store), transport=options.transport, host=options.host, port=options.port)
    except ToolsetError as error:
        sys.stderr.write(f"notes: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="notes.py", description="Notes in SQLite as an MCP server.")
    parser.add_argument(
        "--db", type=Path, default=default_path(), metavar="PATH", help="the database (default: %(default)s)"
    )
    parser.add_argument("--transport", choices=["stdio", "http", "sse"], default="stdio")
    parser.add_argument("--host", default="127.0.0.1", help="for http and sse (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="for http and sse (default: %(default)s)")
    return parser
