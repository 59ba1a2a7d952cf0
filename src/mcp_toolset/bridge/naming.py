"""Unique public names over everything that is mounted (F16): a name that is taken never drops a tool."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from mcp_toolset.errors import NameConflictError
from mcp_toolset.tools.names import qualified
from mcp_toolset.tools.source import ToolSource
from mcp_toolset.tools.view import ToolBinding, conflict_message

_log = logging.getLogger("mcp_toolset.server")


def settle_names(bindings: Sequence[ToolBinding], *, reserved: Collection[str] = ()) -> list[ToolBinding]:
    """The bindings under unique names, in order.

    A mounted tool whose name is taken is told apart by its server and a digest of both; what an
    upstream lists can never take a local tool's name, a reserved one, or another tool's
    qualification, and never raises.

    Args:
        bindings: Local and mounted tools.
        reserved: Names that belong to the server itself.

    Raises:
        NameConflictError: two local tools have one name, or a local tool has a reserved one.
    """
    held = _local_names(bindings, reserved)
    wanted = Counter(binding.name for binding in bindings)
    taken = {*wanted, *reserved}
    settled: list[ToolBinding] = []
    for binding in bindings:
        if binding.source and (wanted[binding.name] > 1 or binding.name in held):
            binding = replace(binding, name=_qualified(binding, taken))
            taken.add(binding.name)
            _log.warning("a tool of %s has a name that is taken; it is %s here", binding.place, binding.name)
        settled.append(binding)
    return settled


def sources_by_name(sources: Sequence[ToolSource]) -> dict[str, ToolSource]:
    """The sources by the names they are mounted under.

    Raises:
        NameConflictError: two mounts have one name.
    """
    named: dict[str, ToolSource] = {}
    for source in sources:
        if named.setdefault(source.source_name, source) is not source:
            raise NameConflictError(
                f"two mounts are named {source.source_name!r}; give each a name of its own with name=…"
            )
    return named


def _local_names(bindings: Sequence[ToolBinding], reserved: Collection[str]) -> set[str]:
    local: dict[str, ToolBinding] = {}
    for binding in bindings:
        if binding.source:
            continue
        if local.setdefault(binding.name, binding) is not binding:
            raise NameConflictError(conflict_message(local[binding.name], binding))
        if binding.name in reserved:
            raise NameConflictError(
                f"{binding.place or 'a tool'} is named {binding.name!r}, as a tool of the deferred catalog; "
                "rename it"
            )
    return {*local, *reserved}


def _qualified(binding: ToolBinding, taken: Collection[str]) -> str:
    identity = f"{binding.source}\n{binding.definition.name}"
    name = qualified(f"{binding.source}_{binding.name}", identity)
    while name in taken:
        identity = f"{identity}\n"
        name = qualified(f"{binding.source}_{binding.name}", identity)
    return name
