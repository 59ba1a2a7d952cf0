"""`ToolManifest`: what a provider lists of a tool whose schemas are fetched when a caller wants the tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.core.definition import ToolDefinition, frozen

ANY_ARGUMENTS: Final[Mapping[str, Any]] = frozen({"type": "object", "additionalProperties": True})
"""The input schema in the definition of a manifest, shared by all of them."""

_WORST: Final = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""What a missing hint stands for (specification, server/tools)."""


@dataclass(frozen=True, slots=True)
class ToolManifest:
    """A tool without its schemas: its name and summary for search, and its annotations for policies.

    Attributes:
        name: The tool's own name.
        summary: What the tool does; search reads it, and a hit shows its first line.
        id: A stable id; by default the name of the source and of the tool.
        tags: Tags for selectors and policies; clients do not see them.
        annotations: Behaviour hints in wire form. Policies use them before the contract is fetched.
    """

    name: str
    summary: str = ""
    id: str = ""
    tags: tuple[str, ...] = ()
    annotations: Mapping[str, Any] | None = None

    def listed(self) -> ToolDefinition:
        """The definition that is used until the contract is fetched."""
        return ToolDefinition(
            self.name, self.summary or None, input_schema=ANY_ARGUMENTS, annotations=self.annotations
        )


def merged(listed: ToolDefinition, contract: ToolDefinition) -> ToolDefinition:
    """The definition that is shown: the contract, with the hints by which policies have judged the tool."""
    if contract.name != listed.name:
        raise DefinitionError(f"the provider gave the contract of {contract.name!r}")
    said, known = contract.annotations or {}, listed.annotations or {}
    for hint, worst in _WORST.items():
        if said.get(hint, not worst) is worst and known.get(hint, worst) is not worst:
            raise DefinitionError(
                f"its contract says {hint} {worst}, and its manifest {known[hint]}; "
                "a provider must list it with the annotations of its contract"
            )
    # Arguments of a dataclass are copied: the digest must be of what is shown.
    return ToolDefinition(
        name=contract.name,
        description=contract.description or listed.description,
        input_schema=contract.input_schema,
        output_schema=contract.output_schema,
        title=contract.title,
        annotations=listed.annotations,
        icons=contract.icons,
        meta=contract.meta,
        extra=contract.extra,
    )
