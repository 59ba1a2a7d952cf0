"""Refuse two tools with one chosen id, because grants, switches and saved states identify tools by id."""

from __future__ import annotations

import builtins
from collections import defaultdict
from collections.abc import Iterable, Sequence

from mcp_toolset.errors import NameConflictError
from mcp_toolset.tools.binding.binding import ToolBinding
from mcp_toolset.tools.core.names import default_id
from mcp_toolset.tools.declare.tool import Tool


def check_ids(bindings: Iterable[ToolBinding]) -> None:
    """Refuse two tools with the same id, if it was chosen for one of them.

    One tool may have several names; so may the tools of several instances or of one factory, whose ids
    are made by default.

    Raises:
        NameConflictError: two tools have one id; the message has both places and the remedy.
    """
    groups: dict[tuple[str, str], list[ToolBinding]] = defaultdict(list)
    for binding in bindings:
        groups[binding.source, binding.tool_id].append(binding)
    for (_, id), group in groups.items():
        if id and len(group) > 1:
            check_id(id, group)


def check_id(id: str, group: Sequence[ToolBinding]) -> None:
    """Refuse the bindings of one id if they are different tools and the id was chosen; see `check_ids`."""
    tools = {builtins.id(one.origin): one for one in group if one.origin is not None}
    if len(tools) > 1 and any(map(chosen_id, tools.values())):
        places = " and ".join(one.place or "one" for one in list(tools.values())[:2])
        raise NameConflictError(f"two tools have the id {id!r}: {places}; give each its own with @tool(id=…)")


def chosen_id(binding: ToolBinding) -> str:
    """The id that the author of a binding's tool chose; empty if the id is the default one."""
    tool = binding.origin
    if not isinstance(tool, Tool) or tool.id in (default_id(tool.name, tool.function), f"tool:{tool.name}"):
        return ""
    return tool.id
