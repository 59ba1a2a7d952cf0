"""`ToolBinding`: one tool under its public name, bound to what runs it; views, exports and hooks hold it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from mcp_toolset.errors import InvalidArgumentsError
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.core.source import Provenance
from mcp_toolset.tools.schema.validation import SchemaCheck
from mcp_toolset.tools.text.hidden_text import in_log

Executor = Callable[[ToolCall, ToolContext], Awaitable[ToolResult]]
"""What runs a call once everything before it has agreed."""

Gate = Callable[[ToolCall, ToolContext], None]
"""Refuses a call by raising; runs before anything else and never waits (fails closed)."""

Redirect = Callable[[ToolCall, ToolContext], ToolCall]
"""Turns a call of a calling tool (`call_tool`) into the call that it stands for."""

Prepare = Callable[[ToolCall, ToolContext], ToolCall]
"""Changes a call before anything looks at its arguments; never waits."""

Reads = Callable[[ToolCall], Any]
"""The typed input of a call; raises `InvalidArgumentsError` if the arguments are none."""

Supplies = Mapping[Any, Any] | Callable[[ToolContext], Mapping[Any, Any]]
"""Values by parameter name or type, or a function that has them for the context of one call."""

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_log = logging.getLogger("mcp_toolset.tools")


@dataclass(frozen=True, slots=True)
class ToolBinding:
    """One tool under its public name, bound to what runs it.

    Attributes:
        name: The public name, unique within a view.
        definition: What the tool says of itself, under its own name.
        execute: What runs it.
        source: The name of the source it came from: a mount's name, or empty for local tools.
        place: Where it was defined, for messages.
        on: Whether it is part of the default availability.
        deferred: Whether it is found by search instead of being listed.
        gate: An extra condition on every call, such as a live grant.
        redirect: Set on tools that only stand for a call of another tool.
        manual: Whether its calls wait for the application's result.
        timeout: Seconds that one call may take, if the tool says so.
        tool_id: A stable id apart from the public name, where the source has one.
        origin: The `Tool` that it was made of, whatever verbs have done since; selectors look for it.
        capabilities: What it was granted beyond what every tool has; `None` when nothing was said.
        prepare: Changes a call before its arguments are validated, with the turn's input.
        provenance: Tells what stands behind the tool now, whatever this binding was made of.
        asked: The name that the host's toolset gives it, where it has to be served under another one;
            hooks and middleware for that name go on reaching it.
        former: The names that it had before prefixes and renames, the oldest first; what was given for
            one of them goes on reaching it, see docs/names.md.
        reads: Reads the typed input of a call, for tools that have one; it may refuse what the schema allows.
        supplies: What is supplied to its injected parameters, the innermost first.
        tags: Words of the host's own, for selectors and policies; no client sees them.
        metadata: What else the host notes about it; no client sees it.
        arguments: The compiled input schema.
        output: The compiled output schema, if the tool promises one.
    """

    name: str
    definition: ToolDefinition
    execute: Executor
    arguments: SchemaCheck
    output: SchemaCheck | None = None
    source: str = ""
    place: str = ""
    on: bool = True
    deferred: bool = False
    gate: Gate | None = None
    redirect: Redirect | None = None
    manual: bool = False
    timeout: float | None = None
    tool_id: str = ""
    origin: object = field(default=None, compare=False, repr=False)
    capabilities: frozenset[str] | None = None
    prepare: Prepare | None = field(default=None, compare=False, repr=False)
    provenance: Callable[[], Provenance] | None = field(default=None, compare=False, repr=False)
    asked: str = ""
    former: tuple[str, ...] = ()
    reads: Reads | None = field(default=None, compare=False, repr=False)
    supplies: tuple[Supplies, ...] = field(default=(), compare=False, repr=False)
    tags: frozenset[str] = frozenset()
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, compare=False, repr=False)

    def called(self, name: str) -> ToolBinding:
        """The binding under another public name; what was given for the one before goes on reaching it."""
        return self if name == self.name else replace(self, name=name, former=(*self.former, self.name))

    def supplying(self, context: ToolContext) -> ToolContext:
        """A context with what the toolset supplies to injected parameters; the outermost goes first."""
        for supplies in reversed(self.supplies):
            context = context.injecting(supplies(context) if callable(supplies) else supplies)
        return context

    def misfit(self, call: ToolCall) -> str | None:
        """What is wrong with the arguments of a call, for the model; `None` if they fit."""
        if not self.arguments.is_valid(call.arguments):
            faults = "; ".join(self.arguments.problems(call.arguments))
            return f"Invalid arguments for {call.name}: {faults}"
        try:
            if self.reads is not None:
                self.reads(call)
        except InvalidArgumentsError as fault:
            return str(fault)
        # A validator is the application's code and may raise anything; the model has to try again.
        except Exception:
            _log.exception("the input of %s could not be read", in_log(call.name))
            return f"Invalid arguments for {call.name}: they could not be read"
        return None

    def to_wire(self) -> dict[str, Any]:
        """The binding as a `tools/list` entry."""
        return self.definition.to_wire(self.name)
