"""`mcpServers` files as desktop clients and editors write them, and our own settings in them.

Nothing here starts a process or opens a connection: a file becomes frozen models, or one `ConfigError`
whose single line says where, what and how to mend it. The name below loads from its module on first use:
what reads files is not needed for a server that is mounted by a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import lazily

if TYPE_CHECKING:
    from mcp_toolset.config.hub import load_config

__all__ = ["load_config"]

_HOMES = {"load_config": "config.hub"}

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, _HOMES)
