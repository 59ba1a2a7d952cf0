"""`LiveChanges`: what the program that owns a server changes of it while clients call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from mcp_toolset.catalog.registry.registry import SourceHandle
from mcp_toolset.errors import StateError
from mcp_toolset.server.attachments import DRAIN, Attachments
from mcp_toolset.server.interface.parts import ServerParts
from mcp_toolset.server.reloadable import PATIENCE, ReloadReport
from mcp_toolset.tools.binding.selector import ToolSelector
from mcp_toolset.tools.declare.tool import Tool
from mcp_toolset.tools.toolsets.toolset import Toolset

if TYPE_CHECKING:
    from mcp_toolset.config import HubConfig


class LiveChanges(ServerParts):
    """Toolsets that join and leave, another configuration, other members: each without a restart."""

    _attachments: Attachments

    async def attach(self, toolset: Toolset | Tool[..., Any] | Callable[..., Any]) -> SourceHandle:
        """Serve one more toolset from now on; clients are told once that the list has changed.

        It returns when each mounted server of the toolset is connected, or has failed once.

        Raises:
            StateError: the server is not open, or the toolset is open somewhere else.
            NameConflictError: a mount or a local tool has a name that is taken; nothing has changed.
        """
        handle = await self._attachments.join(_toolset_of(toolset))
        await self._rebuild()
        return handle

    async def detach(self, handle: SourceHandle, *, drain: float = DRAIN) -> None:
        """Stop serving a toolset, and close it.

        New calls are refused from this moment on; calls in flight have at most `drain` seconds to end. It
        returns when the toolset is closed.

        Raises:
            StateError: nothing is attached by this handle.
        """
        left = self._attachments.leave(handle)
        try:
            await self._rebuild()
        finally:
            await left.ended(drain)

    async def replace(
        self,
        handle: SourceHandle,
        toolset: Toolset | Tool[..., Any] | Callable[..., Any],
        *,
        drain: float = DRAIN,
        accept: Callable[[], None] | None = None,
    ) -> None:
        """Serve another toolset in the place of an attached one, under the same handle.

        The new toolset is open before the old one leaves, and each call runs on one of them. Tools with the
        same id keep their names and their membership.

        Args:
            handle: What `attach` returned.
            toolset: The new toolset.
            drain: Seconds that calls in flight on the old one may take.
            accept: Called when the new toolset is open. If it raises an error, the new toolset is closed, the
                old one stays, and `replace` raises the error.

        Raises:
            StateError: nothing is attached by this handle, or the toolset is open somewhere else.
            NameConflictError: a name is taken; the old one stays.
        """
        left = await self._attachments.change(handle, _toolset_of(toolset), accept)
        try:
            await self._rebuild()
        finally:
            await left.ended(drain)

    async def reload(
        self, config: HubConfig | None = None, *, drain: float = DRAIN, patience: float = PATIENCE
    ) -> ReloadReport:
        """Read the configuration file again and serve it, without ending any call in flight.

        A server keeps running if its entry has not changed, or only in names, choices of tools or pins. New
        and changed servers are started beside the running ones; then all changes take effect at once, and
        clients are told once. If a changed server does not answer in time, its old connection serves calls
        until the new one answers or fails. `reload` returns when the new configuration is served; removed
        servers are closed when their calls have ended.

        Args:
            config: The configuration; read again from where it came unless given.
            drain: Seconds that calls in flight on removed servers may take.
            patience: Seconds to wait for servers that are starting.

        Raises:
            StateError: the server is not open, or serves no configuration.
            ConfigError: the file cannot be used. The server keeps its configuration, as for the errors below.
            DefinitionError: an entry cannot be served as written.
            NameConflictError: a name is taken.
        """
        if self.configured is None:
            raise StateError(
                "this server serves no configuration; mount one with toolset_from_config, or use attach()"
            )
        if self._reloads is None:
            raise StateError("a configuration is reloaded while the server is open; enter it first")
        report = await self._reloads.reload(config, drain=drain, patience=patience)
        if self.extensions.record is not None:
            self.extensions.record("reloaded", changes=str(report))
        return report

    async def choose(self, members: Mapping[ToolSelector, bool | None]) -> int:
        """Make tools members of the catalog or remove them, and wait until the change is served.

        See `ToolRegistry.choose`; a tool that is taken out is refused at once.

        Raises:
            UnknownToolError: one of them is not there, or is hidden by a policy; nothing has changed.
        """
        generation = self.registry.choose(members)
        await self._rebuild()
        return generation


def _toolset_of(value: Toolset | Tool[..., Any] | Callable[..., Any]) -> Toolset:
    return cast("Toolset", value) if isinstance(value, Toolset) else Toolset(value)
