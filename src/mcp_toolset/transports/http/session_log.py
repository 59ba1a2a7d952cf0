"""`shorten_session_ids`: the SDK's log records show the first characters of a session id, and not all of it.

Who knows a session's id can use the session where clients do not log in. Logs are kept and passed on.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from mcp_toolset.tools.text.hidden_text import in_log

SHOWN: Final = 8
"""Characters of a session id that are shown: enough to tell sessions apart."""

_LOGGERS: Final = (
    "mcp.client.sse",
    "mcp.client.streamable_http",
    "mcp.server.sse",
    "mcp.server.streamable_http",
    "mcp.server.streamable_http_manager",
)
_ID: Final = re.compile(r"(?i)(?<![0-9a-f])([0-9a-f]{8})-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}(?![0-9a-f])")
_GIVEN: Final = re.compile(r"(?is)(?<=\bID: )(.+)")


class _Shortening(logging.Filter):
    """Shortens the ids in each record, whatever the client has put in the place of one."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        short = _GIVEN.sub(lambda found: _cut(found[1]), _ID.sub(r"\1…", said))
        if short != said:
            record.msg, record.args = short, ()
        return True


_SHORTENING: Final = _Shortening()


def shorten_session_ids() -> None:
    """Have the loggers of the SDK's transports shorten session ids, from now on."""
    for name in _LOGGERS:
        # A filter that is there already is not added again.
        logging.getLogger(name).addFilter(_SHORTENING)


def _cut(given: str) -> str:
    return in_log(given if len(given) <= SHOWN + 1 else f"{given[:SHOWN].rstrip('…')}…")
