"""Quarantined tools: searchable by their pinned definition, not callable."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from mcp_toolset.errors import GrantError
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.core.source import SourceStatus
from mcp_toolset.tools.schema.validation import SchemaCheck
from mcp_toolset.tools.view.view import ToolBinding


def held_tools(
    statuses: Mapping[str, SourceStatus], *, listing: Container[str]
) -> Iterator[tuple[ToolBinding, str]]:
    """The quarantined tools of the deferred servers, which are not in `listing`, each with the reason.

    Their names are `server/tool`, which no public name can be. They have the accepted definition, nothing
    that the server lists now.
    """
    for source, status in statuses.items():
        for change in status.changes if source not in listing else ():
            if change.held and change.pinned is not None:
                name = f"{source}/{change.name}"
                check = SchemaCheck({}, tool=name, part="inputSchema")
                yield ToolBinding(name, change.pinned, _refused, check, source=source), change.reason


async def _refused(call: ToolCall, context: ToolContext) -> ToolResult:
    raise GrantError(f"{call.name} has changed and is quarantined until a person accepts it")
