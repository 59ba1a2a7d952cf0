"""`ServerHost`: what the extensions of a server may know of it; see `Host`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mcp_toolset.server.reloadable import Reloadable, toolsets_in
from mcp_toolset.tools.core.names import FIXED_TOOLS

if TYPE_CHECKING:
    from pathlib import Path

    from mcp_toolset.catalog.grants.ledger import GrantLedger
    from mcp_toolset.config import HubConfig
    from mcp_toolset.config.extensions import ServerSettings, Settings
    from mcp_toolset.extending.joined import Extensions
    from mcp_toolset.server.tool_table import ServedTools
    from mcp_toolset.server.visibility import Visibility
    from mcp_toolset.tools.binding.binding import ToolBinding
    from mcp_toolset.tools.core.call import Identity, ToolCall, ToolContext
    from mcp_toolset.tools.core.result import ToolResult
    from mcp_toolset.tools.core.source import SourceStatus
    from mcp_toolset.tools.toolsets.toolset import Toolset

_S = TypeVar("_S")


class ServerHost:
    """The server as its extensions see it, before its parts are made and after."""

    def __init__(
        self,
        name: str,
        version: str,
        configured: Reloadable | None,
        services: Mapping[type, object],
        grants: GrantLedger,
        *,
        toolsets: Callable[[], Iterable[Toolset]],
        extensions: Callable[[], Extensions],
        served: Callable[[], ServedTools],
        visibility: Callable[[], Visibility],
        lowlevel: Callable[[], Any],
    ) -> None:
        """Know the parts of a server that are there, and how to reach those that are not made yet."""
        self.name = name
        self.version = version
        self.grants = grants
        self._configured = configured
        self._services = services
        self._toolsets = toolsets
        self._extensions = extensions
        self._served = served
        self._visibility = visibility
        self._lowlevel = lowlevel

    @property
    def configuration(self) -> Path | None:
        """See `Host`."""
        return None if (config := self._config) is None else config.path

    @property
    def served_as(self) -> str:
        """See `Host`."""
        return self.name if (config := self._config) is None else str(config.path)

    @property
    def identified(self) -> str:
        """See `Host`."""
        return self.name if (config := self._config) is None else f"{self.name} {config.path}"

    @property
    def table(self) -> Mapping[str, ToolBinding]:
        """See `Host`."""
        return self._served().table

    def stated(self, key: str) -> Settings | None:
        """See `Host`."""
        return None if (config := self._config) is None else config.extensions.get(key)

    def stated_by_server(self, key: str) -> Mapping[str, ServerSettings]:
        """See `Host`."""
        return {} if (config := self._config) is None else _by_server(config, key)

    def stated_by_file(self, key: str) -> Sequence[tuple[Settings | None, Mapping[str, ServerSettings]]]:
        """See `Host`."""
        every = (each for one in self._toolsets() for each in toolsets_in(one))
        files = [each.config for each in every if isinstance(each, Reloadable)]
        return [(file.extensions.get(key), _by_server(file, key)) for file in files]

    def preview(self, identity: Identity | None) -> str | None:
        """See `Host`."""
        return self._served().preview(identity)

    def hides(self, binding: ToolBinding, identity: Identity | None) -> bool:
        """See `Host`."""
        return self._visibility().hides(binding, identity)

    def statuses(self) -> Mapping[str, SourceStatus]:
        """See `Host`."""
        return self._served().statuses()

    def seen_by(self, identity: Identity | None) -> Callable[[str, str], bool]:
        """See `Host`."""
        visible, seen = self._visibility(), set[tuple[str, str]]()
        for name, binding in self.table.items():
            if not visible.hides(binding, identity):
                seen |= {(binding.source, name), (binding.source, binding.definition.name)}

        def sees(server: str, tool: str) -> bool:
            if visible.policy is None:
                return True
            return not visible.hides_server(server, identity) and (not tool or (server, tool) in seen)

        return sees

    @property
    def catalog_names(self) -> Collection[str]:
        """See `Host`."""
        return (*FIXED_TOOLS, *(one.name for one in self._extensions().catalog_tools))

    @property
    def reshapes(self) -> bool:
        """See `Host`."""
        return self._extensions().reshapes

    @property
    def lowlevel(self) -> Any:
        """See `Host`."""
        return self._lowlevel()

    async def in_scope(self, references: Sequence[str] | None, context: ToolContext) -> Mapping[str, str]:
        """See `Host`."""
        return await self._served().catalog.in_scope(references, context)

    async def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """See `Host`."""
        sent = self._extensions().sent
        return await self._served().call(call if sent is None else sent(call, context), context)

    def need(self, kind: type[_S]) -> _S | None:
        """See `Host`."""
        return cast("Any", self._services.get(kind))

    @property
    def _config(self) -> HubConfig | None:
        return None if self._configured is None else self._configured.config


def _by_server(file: HubConfig, key: str) -> Mapping[str, ServerSettings]:
    enabled = (one for one in file.servers if not one.disabled)
    return {one.name: one.extensions[key] for one in enabled if key in one.extensions}
