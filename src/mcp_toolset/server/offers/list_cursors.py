"""`cursor_at` and `start_of`: the cursors between the pages of lists of resources, templates and prompts."""

from __future__ import annotations

import base64
import binascii

from mcp_toolset.errors import InvalidArgumentsError


def cursor_at(start: int) -> str:
    """The cursor of the page that begins with this entry."""
    return base64.urlsafe_b64encode(f"from {start}".encode()).decode()


def start_of(cursor: str | None) -> int:
    """The entry that the page of a cursor begins with; 0 without a cursor."""
    if cursor is None:
        return 0
    try:
        word, _, number = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        start = int(number)
    except (ValueError, binascii.Error):
        word, start = "", 0
    if word != "from" or start <= 0:
        raise InvalidArgumentsError("Unknown cursor: it is none of this server's")
    return start
