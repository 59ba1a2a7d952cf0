"""`ClientSurface`: what each client sees of the tools behind search."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args

from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.surface.clients import CLIENTS, UNKNOWN, Decision, client_of, decided
from mcp_toolset.extensions.surface.settings import Way
from mcp_toolset.tools.binding import DEFERRED_CATALOG
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.screen import counted, tokens_of

if TYPE_CHECKING:
    from mcp_toolset.tools.binding import ToolBinding
    from mcp_toolset.tools.call import Identity, ToolContext

_log: Final = logging.getLogger("mcp_toolset.surface")
_MOST_COUNTED: Final = 256  # callers whose tools are counted at once


def size_of(wires: Sequence[Mapping[str, Any]]) -> int:
    """The tokens of definitions, as `mcp-toolset list --servers` estimates them."""
    text = json.dumps(wires, ensure_ascii=False, separators=(",", ":"))
    return tokens_of(len(text.encode("utf-8", "surrogatepass")))


class ClientSurface(Extension):
    """Lists the tools behind search to some clients, or to all: `list`, `search`, or `auto` for each client.

    `auto` decides by the client's name and version and by the number and size of the tools that it may see:
    a legacy client when it connects, a modern one at each request. See docs/clients.md.
    """

    key: ClassVar[str] = "surface"

    def __init__(self, way: Way = "auto") -> None:
        """Choose a way for all clients, or `auto`.

        Raises:
            DefinitionError: there is no such way.
        """
        if way not in get_args(Way):
            raise DefinitionError(f"surface: {way!r} is no way; use list, search or auto")
        self.way: Way = way
        self._counted: tuple[object, dict[str, tuple[int, int]]] = (None, {})
        self._told: Decision | None = None

    def lists_all(self, context: ToolContext) -> bool | None:
        if self.way != "auto":
            return self.way == "list"
        if any(status.is_starting and not status.tools for status in self.host.statuses().values()):
            return None  # how many tools there will be is not known yet
        info = context.client_info
        name, version = str(info.get("name", "")), str(info.get("version", ""))
        return self.decision(name, version, context.identity).way == "list"

    def decision(self, name: str, version: str = "", identity: Identity | None = None) -> Decision:
        """The decision of `auto` for a client; the log has each decision that differs from the last one."""
        made = decided(client_of(name, version), *self.size(identity))
        if made != self._told and _log.isEnabledFor(logging.INFO):
            self._told = made
            who = in_log(f"{name} {version}".strip()) or "a client without a name"
            _log.info("%s: %s, as %s", who, made.way, made.why)
        return made

    def size(self, identity: Identity | None = None) -> tuple[int, int]:
        """The number of tools that a caller may see, and the tokens of their definitions."""
        table = self.host.table
        if self._counted[0] is not table or len(self._counted[1]) >= _MOST_COUNTED:
            self._counted = (table, {})
        key = "" if identity is None else identity.key
        known = self._counted[1].get(key)
        if known is None:
            seen = [one for one in table.values() if self._shows(one, identity)]
            known = self._counted[1][key] = (len(seen), size_of([one.to_wire() for one in seen]))
        return known

    def _shows(self, tool: ToolBinding, identity: Identity | None) -> bool:
        return tool.place != DEFERRED_CATALOG and not self.host.hides(tool, identity)

    def facts(self) -> Mapping[str, str]:
        tools, tokens = self.size()
        facts_of_view = {
            "way": self.way,
            "all tools": f"{counted(tools, 'tool')}, about {tokens:,} tokens listed",
        }
        if self.way != "auto":
            return facts_of_view
        made = {one.title: decided(one, tools, tokens) for one in reversed((*CLIENTS, UNKNOWN))}
        return facts_of_view | {title: f"{one.way}: {one.why}" for title, one in sorted(made.items())}


EXTENSION: Final = ClientSurface
