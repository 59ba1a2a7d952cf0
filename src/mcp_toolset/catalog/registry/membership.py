"""`RegistryMembership`: what the capability `membership` gives of a registry, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Members(Protocol):
    """What is read and changed of a `ToolRegistry`."""

    @property
    def generation(self) -> int:
        """Advances with each change."""
        ...

    def members(self) -> Mapping[str, bool]:
        """Every tool by public name, and whether it is a member now."""
        ...

    def change(self, members: Mapping[str, bool], *, generation: int) -> int:
        """Make tools members or take them out; the new generation."""
        ...


class RegistryMembership:
    """Reads and changes which tools of a registry are members."""

    def __init__(self, registry: Members) -> None:
        """See nothing else of `registry`."""
        self._registry = registry

    @property
    def generation(self) -> int:
        """Advances with each change of the registry."""
        return self._registry.generation

    def members(self) -> Mapping[str, bool]:
        """Every tool by public name, hidden ones left out, and whether it is a member now."""
        return self._registry.members()

    def change(self, members: Mapping[str, bool], *, generation: int) -> int:
        """Make tools members or take them out, all or nothing; the new generation.

        Raises:
            StaleStateError: the registry has changed since that generation; nothing is changed.
            UnknownToolError: there is no such tool, or it is hidden; nothing is changed.
        """
        return self._registry.change(members, generation=generation)
