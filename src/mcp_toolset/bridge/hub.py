"""From a configuration file to a toolset: every server of an `mcpServers` file, mounted."""

from __future__ import annotations

from mcp_toolset.bridge.remote import DEFAULT_START_TIMEOUT, DEFAULT_TIMEOUT, RemoteToolset
from mcp_toolset.config import HubConfig, ServerConfig
from mcp_toolset.tools.names import prefix_from
from mcp_toolset.tools.toolset import Toolset


def toolset_from_config(config: HubConfig) -> Toolset:
    """Mount every server that is not disabled: filtered, prefixed and deferred as the file says (P3).

    A server's tools carry its name as a prefix unless the file gives another one, or `false` for
    none: two servers often have a tool of the same name.

    Raises:
        DefinitionError: a server's target or prefix cannot be used.
    """
    mounted = [_mounted(server) for server in config.servers if not server.disabled]
    return Toolset(*mounted, name=config.name)


def _mounted(server: ServerConfig) -> Toolset:
    tools: Toolset = _remote(server)
    if server.include or server.exclude:
        tools = tools.filtered(include=server.include or ("*",), exclude=server.exclude)
    if server.prefix is not False:
        tools = tools.prefixed(server.prefix or prefix_from(server.name))
    return tools.deferred() if server.deferred else tools


def _remote(server: ServerConfig) -> RemoteToolset:
    target = server.url if server.url is not None else [server.command or "", *server.args]
    return RemoteToolset(
        target,
        name=server.name,
        transport=server.transport,
        headers=server.headers,
        env=server.env,
        cwd=server.cwd,
        timeout=server.timeout or DEFAULT_TIMEOUT,
        start_timeout=server.start_timeout or DEFAULT_START_TIMEOUT,
        sessions=server.sessions,
        forward_authorization=server.forward_authorization,
    )
