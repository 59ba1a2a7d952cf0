"""`RegistryMembership`: the view of a registry that the capability `membership` gives to tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Members(Protocol):
    """The methods of a `ToolRegistry` that are used here."""

    @property
    def generation(self) -> int:
        """The generation, which grows with each change."""
        ...

    def members(self) -> Mapping[str, bool]:
        """Every tool by public name, and whether it is a member."""
        ...

    def change(self, members: Mapping[str, bool], *, generation: int) -> int:
        """Add tools to the members or remove them; return the new generation."""
        ...


class RegistryMembership:
    """Reads and changes the members of a registry."""

    def __init__(self, registry: Members) -> None:
        """Give access to the members of `registry` only."""
        self._registry = registry

    @property
    def generation(self) -> int:
        """The generation, which grows with each change of the registry."""
        return self._registry.generation

    def members(self) -> Mapping[str, bool]:
        """Every tool by public name, without hidden tools, and whether it is a member."""
        return self._registry.members()

    def change(self, members: Mapping[str, bool], *, generation: int) -> int:
        """Add tools to the members or remove them, all or nothing; return the new generation.

        Raises:
            StaleStateError: the registry has changed since that generation; nothing is changed.
            UnknownToolError: a tool does not exist, or is hidden; nothing is changed.
        """
        return self._registry.change(members, generation=generation)
