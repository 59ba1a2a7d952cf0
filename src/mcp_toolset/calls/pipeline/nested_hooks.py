"""`hooks.of(toolset)`: register hooks for the tools of a nested toolset, by their names in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mcp_toolset.calls.pipeline.hook_adapters import HookSelector, is_bare
from mcp_toolset.calls.pipeline.policy import HookKind
from mcp_toolset.tools.toolsets.toolset import Toolset

Register = Callable[[Any], Any]


class RegistersHooks(Protocol):
    """Registers hooks by tool: a `HookSet`."""

    def execution(self, selector: HookSelector, /) -> Register: ...

    def description(self, selector: HookSelector, /) -> Register: ...

    def result(self, selector: HookSelector, /) -> Register: ...


class NestedHooks:
    """Registers hooks for the tools of one toolset, wherever it is nested."""

    def __init__(self, hooks: RegistersHooks, toolset: Toolset) -> None:
        """Register in `hooks`, for tools of `toolset`."""
        self._hooks = hooks
        self._toolset = toolset

    def execution(self, selector: HookSelector = "*") -> Register:
        """Register an execution hook; see `HookSet.execution`."""
        return self._hooks.execution(self._selected(selector, "execution"))

    def description(self, selector: HookSelector = "*") -> Register:
        """Register a description hook; see `HookSet.description`, and `execution` here."""
        return self._hooks.description(self._selected(selector, "description"))

    def result(self, selector: HookSelector = "*") -> Register:
        """Register a result hook; see `HookSet.result`, and `execution` here."""
        return self._hooks.result(self._selected(selector, "result"))

    def _selected(self, selector: Any, kind: HookKind) -> Any:
        """The tool itself, which prefixes and renames do not change; for `*` every tool of the toolset."""
        if is_bare(selector, kind):
            return selector
        if selector == "*":
            return self._toolset
        found = self._toolset.find(selector)
        return selector if found.origin is None else found.origin
