"""`ToolMembers`: which tools of a toolset are members, changed while it is in use (H4, H7).

Membership is the gate for execution: what is no member is neither listed nor called. Each change
advances the generation, and is refused if it was made of an older one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from mcp_toolset.errors import StateError, UnknownToolError
from mcp_toolset.tools.selector import near_names
from mcp_toolset.tools.view import ToolBinding


class ToolMembers:
    """Which tools are members, by public name, with the generation of that answer."""

    def __init__(self) -> None:
        """Know no tool yet; `update` tells which there are."""
        self._bindings: dict[str, ToolBinding] = {}
        self._chosen: dict[str, bool] = {}
        self._generation = 0
        self._listeners: list[Callable[[], None]] = []

    @property
    def generation(self) -> int:
        """How often membership was changed."""
        return self._generation

    def members(self) -> Mapping[str, bool]:
        """Every tool that there is, and whether it is a member now."""
        return MappingProxyType({name: self._is_member(one) for name, one in self._bindings.items()})

    def change(self, members: Mapping[str, bool], *, generation: int) -> int:
        """Make tools members or take them out, all or nothing; the new generation.

        Args:
            members: `True` or `False` by public name; the others stay as they are.
            generation: The generation that this was decided on.

        Raises:
            StateError: membership has changed since; nothing is changed.
            UnknownToolError: there is no such tool; nothing is changed.
        """
        if generation != self._generation:
            raise StateError(
                f"membership is at generation {self._generation} and this change was made of {generation}; "
                "read members() again and decide anew"
            )
        for name in members:
            if name not in self._bindings:
                near = near_names(name, self._bindings)
                raise UnknownToolError(name, f"; did you mean {' or '.join(near)}?" if near else "")
        self._chosen.update(members)
        self._generation += 1
        for listener in tuple(self._listeners):
            listener()
        return self._generation

    def update(self, bindings: Iterable[ToolBinding]) -> None:
        """Take over which tools there are; what was chosen by name stays."""
        self._bindings = {binding.name: binding for binding in bindings}

    def applied(self, bindings: Sequence[ToolBinding]) -> list[ToolBinding]:
        """The bindings, on or off as was chosen by name."""
        if not self._chosen:
            return list(bindings)
        return [replace(binding, on=self._is_member(binding)) for binding in bindings]

    def removed(self) -> frozenset[str]:
        """The names that were taken out."""
        return frozenset(name for name, on in self._chosen.items() if not on)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change, until the function that this returns is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _is_member(self, binding: ToolBinding) -> bool:
        return self._chosen.get(binding.name, binding.on)
