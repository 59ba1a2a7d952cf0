"""The parts of an extension, and the requests of a server to all of its extensions; see docs/extensions.md.

Nothing here imports an extension: these are found by their key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import ServerSettings, Settings
    from mcp_toolset.config.jsonc import Place
    from mcp_toolset.config.tables import Meaning, key
    from mcp_toolset.extending.extension import Extension, HttpPage
    from mcp_toolset.extending.host import Host

__all__ = ["Extension", "Host", "HttpPage", "Meaning", "Place", "ServerSettings", "Settings", "key"]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
