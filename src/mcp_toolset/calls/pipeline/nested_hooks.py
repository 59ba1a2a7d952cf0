"""`hooks.of(toolset)`: hooks for the tools of a nested toolset, by the names that they have in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mcp_toolset.tools.toolsets.toolset import Toolset

Register = Callable[[Any], Any]


class RegistersHooks(Protocol):
    """Where hooks are registered by what they are for: a `HookSet`."""

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
    """Registers hooks in a set, for the tools of one toolset wherever that is nested."""

    def __init__(self, hooks: RegistersHooks, toolset: Toolset) -> None:
        """Register in `hooks`, for tools of `toolset`."""
        self._hooks = hooks
        self._toolset = toolset

    def execution(self, selector: object = "*") -> Register:
        """Register an execution hook; see `HookSet.execution`.

        Raises:
            UnknownToolError: the toolset has no such tool; the message has near matches.
        """
        return self._hooks.execution(self._selected(selector))

    def description(self, selector: object = "*") -> Register:
        """Register a description hook; see `HookSet.description`, and `execution` here."""
        return self._hooks.description(self._selected(selector))

    def result(self, selector: object = "*") -> Register:
        """Register a result hook; see `HookSet.result`, and `execution` here."""
        return self._hooks.result(self._selected(selector))

    def _selected(self, selector: Any) -> object:
        """The tool itself, which no prefix or rename hides; every tool of the toolset for `*`."""
        if selector == "*":
            return self._toolset
        found = self._toolset.find(selector)
        return selector if found.origin is None else found.origin
