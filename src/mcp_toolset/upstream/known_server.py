"""`KnownServer`: what a mounted server has said about itself, also while it is away.

A connection takes it from the handshake; before that it is what the last run kept.
"""

from __future__ import annotations

from mcp_toolset.catalog.deferred.preview import one_line
from mcp_toolset.catalog.instructions import clean_instructions
from mcp_toolset.tools.text.hidden_text import HiddenTextPolicy
from mcp_toolset.upstream.server_info import ServerInfo
from mcp_toolset.upstream.target import Link


class KnownServer:
    """What one server has said about itself.

    Attributes:
        info: Its name, version and description; `None` before anything is known of it.
        instructions: What it tells models, as it came.
        about: One line about it for people.
    """

    def __init__(self, link: Link) -> None:
        """Nothing is known yet; `link` knows the secrets that are not shown."""
        self.info: ServerInfo | None = None
        self.instructions = self.about = ""
        self._link = link

    def take(self, server: ServerInfo | None, instructions: str) -> None:
        """Note what the server says now."""
        self.info, self.instructions = server, instructions
        said = "" if server is None else server.description or server.title or ""
        self.about = self._link.scrubbed(one_line(said or instructions))

    def shown_instructions(self, policy: HiddenTextPolicy) -> str:
        """What it tells models, without secrets and as the policy lets it through."""
        return clean_instructions(self._link.scrubbed(self.instructions), policy)

    def identity(self, live: ServerInfo | None) -> str:
        """Which server this is: its address, and the name that it gave itself when it was reached."""
        server = live or self.info
        return f"{self._link.identity}:{server.name if server else ''}"
