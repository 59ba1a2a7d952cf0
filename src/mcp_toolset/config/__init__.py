"""`mcpServers` files as desktop clients and editors write them, and our own settings in them.

Nothing here starts a process or opens a connection: a file becomes frozen models, or one `ConfigError`
whose single line says where, what and how to mend it.
"""

from mcp_toolset.config.hub import load_config, parse_config
from mcp_toolset.config.models import (
    ArgumentRule,
    Asked,
    Era,
    HubConfig,
    ProtocolRule,
    ServerConfig,
    SessionRule,
    Transport,
)

__all__ = [
    "ArgumentRule",
    "Asked",
    "Era",
    "HubConfig",
    "ProtocolRule",
    "ServerConfig",
    "SessionRule",
    "Transport",
    "load_config",
    "parse_config",
]
