"""`hooks.of(toolset)`: register hooks for the tools of a nested toolset, by their names in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mcp_toolset.tools.toolsets.toolset import Toolset

Register = Callable[[Any], Any]


class RegistersHooks(Protocol):
    """Registers hooks by tool: a `HookSet`."""

    def execution(self, selector: object, /) -> Register:
        """Register an execution hook."""
        ...

    def description(self, selector: object, /) -> Register:
        """Register a description hook."""
        ...

    def result(self, selector: object, /) -> Register:
        """Register a result hook."""
        ...


class NestedHooks:
    """Registers hooks for the tools of one toolset, wherever it is nested."""

    def __init__(self, hooks: RegistersHooks, toolset: Toolset) -> None:
        """Register in `hooks`, for tools of `toolset`."""
        self._hooks = hooks
        self._toolset = toolset

    def execution(self, selector: object = "*") -> Register:
        """Register an execution hook; see `HookSet.execution`.

        Raises:
            UnknownToolError: the toolset has no such tool; the message has close matches.
        """
        return self._hooks.execution(self._selected(selector))

    def description(self, selector: object = "*") -> Register:
        """Register a description hook; see `HookSet.description`, and `execution` here."""
        return self._hooks.description(self._selected(selector))

    def result(self, selector: object = "*") -> Register:
        """Register a result hook; see `HookSet.result`, and `execution` here."""
        return self._hooks.result(self._selected(selector))

    def _selected(self, selector: Any) -> object:
        """The tool itself, which prefixes and renames do not change; for `*` every tool of the toolset."""
        if selector == "*":
            return self._toolset
        found = self._toolset.find(selector)
        return selector if found.origin is None else found.origin
