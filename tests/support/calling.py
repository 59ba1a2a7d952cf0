"""Calls past a server, and tools as a mounted server lists them: here alone tests know how both are made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.support.contexts import OnWire

from mcp_toolset import ToolBinding, ToolDefinition
from mcp_toolset.calls.dispatch import ToolDispatch
from mcp_toolset.tools.result import REPLAY_META_KEY
from mcp_toolset.tools.validation import checks_of


def tool_table(tools: Iterable[ToolBinding], **rules: Any) -> ToolDispatch:
    """The table by which a server calls its tools: `call(call, context)` gives a result."""
    return ToolDispatch(tools, **rules)


def listed(definition: ToolDefinition, execute: Any, *, name: str = "", **more: Any) -> ToolBinding:
    """A tool whose arguments and results are checked by its schemas, and that `execute` runs."""
    arguments, output = checks_of(definition)
    return ToolBinding(name or definition.name, definition, execute, arguments, output, **more)


class Caller(OnWire):
    """Somebody with a session, a login or neither, and the key by which a repeated request is known."""

    def __init__(
        self, session: str | None = None, principal: str | None = None, replay: object = None
    ) -> None:
        super().__init__(session, principal, version=None, meta={REPLAY_META_KEY: replay})

    def __repr__(self) -> str:
        return f"Caller({self.session}, {self.principal})"
