"""`ToolView`: a flat, frozen table from public name to binding, compiled once from a toolset.

Nothing is undone by parsing names at call time: the table is the way back.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, runtime_checkable

from mcp_toolset.errors import DefinitionError, InvalidArgumentsError, NameConflictError
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.core.source import Provenance
from mcp_toolset.tools.schema.validation import SchemaCheck
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.tools.view.availability import ToolAvailability
from mcp_toolset.tools.view.selector import ToolSelector, names_of, public_name_of
from mcp_toolset.tools.view.tool_names import ToolNames
from mcp_toolset.tools.view.unbound import KnownTools

if TYPE_CHECKING:
    from mcp_toolset.tools.export import Export, Provider
    from mcp_toolset.tools.export.requirement import ToolRequirement

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


class Describes(Protocol):
    """What re-describes tools: a `HookSet`, `Rules` or `Descriptions`."""

    async def describe(self, view: ToolView, /) -> list[ToolBinding]:
        """The tools of a view with their texts as they are to be."""
        ...


@runtime_checkable
class RunsCalls(Protocol):
    """What a call can be run under: `Rules`."""

    async def run(self, view: ToolView, call: ToolCall, context: ToolContext, /) -> ToolResult:
        """Run a call of a tool of the view."""
        ...


class ToolView(Mapping[str, ToolBinding]):
    """A flat, frozen table of tools by public name, in the order they are listed."""

    __slots__ = ("_known", "_names", "_table")

    def __init__(self, bindings: Iterable[ToolBinding], *, known: KnownTools | None = None) -> None:
        """Freeze `bindings`.

        Args:
            bindings: The tools.
            known: All tools that names may stand for, where `bindings` are some of them; just those
                unless given. What was made of the view has them, too.

        Raises:
            NameConflictError: two of them have one name; the message names both places.
        """
        table: dict[str, ToolBinding] = {}
        for binding in bindings:
            other = table.setdefault(binding.name, binding)
            if other is not binding:
                raise NameConflictError(conflict_message(other, binding))
        self._table = MappingProxyType(table)
        self._known = known
        self._names: ToolNames | None = None

    @property
    def names(self) -> ToolNames:
        """Which tools of the view a name stands for."""
        if self._names is None:
            self._names = ToolNames(self._table.values())
        return self._names

    @property
    def known_tools(self) -> KnownTools:
        """All tools that names may stand for: those of the toolset that the view was made of."""
        return self._known or KnownTools(self._table.values)

    def __getitem__(self, selector: ToolSelector) -> ToolBinding:
        """The binding of a name or a tool; `UnknownToolError` (a `KeyError` to no one) when absent."""
        return self._table[public_name_of(selector, self._table)]

    def get(self, selector: ToolSelector, default: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The binding of a name or a tool, or `default`."""
        return self[selector] if selector in self else default

    def __contains__(self, selector: object) -> bool:
        """Whether the tool of this name, or this tool, is in the view."""
        return bool(names_of(selector, self._table))

    def __iter__(self) -> Iterator[str]:
        """The public names, in order."""
        return iter(self._table)

    def __len__(self) -> int:
        """How many tools there are."""
        return len(self._table)

    def __repr__(self) -> str:
        """The names, for people."""
        return f"ToolView({', '.join(self._table)})"

    def select(self, availability: ToolAvailability) -> Self:
        """The part of the view that `availability` makes available, in its order.

        Raises:
            UnknownToolError: a selector names a tool that is not here.
        """
        chosen = availability.resolve(self._table)
        return type(self)((self._table[name] for name in chosen), known=self.known_tools)

    def describe(self, selector: ToolSelector, text: str | None) -> Self:
        """The view with another description for one tool; the last one for a tool wins.

        Raises:
            UnknownToolError: the selector names no tool of the view.
        """
        chosen = self[selector]
        described = replace(chosen, definition=chosen.definition.described(text))
        found = (described if binding is chosen else binding for binding in self._table.values())
        return type(self)(found, known=self.known_tools)

    async def described(self, by: Describes) -> Self:
        """The view with its tools re-described: by hooks, by rules, or by `Descriptions`.

        A tool whose hook fails is left out, as where it is served.

        Raises:
            UnknownNameError: a hook or a description is for a tool that does not exist.
        """
        return type(self)(await by.describe(self), known=self.known_tools)

    async def execute(
        self,
        selector: ToolSelector,
        arguments: dict[str, Any] | None = None,
        context: ToolContext = LOCAL_CONTEXT,
        *,
        rules: RunsCalls | None = None,
    ) -> ToolResult:
        """Run one tool from JSON arguments, which are checked as those of a served call.

        Without rules the tool's own exceptions propagate. With `rules` it runs as it would be served:
        through their middleware and hooks, and what they refuse or what fails is an error result.

        Raises:
            UnknownToolError: it is not in the view.
            InvalidArgumentsError: the arguments do not fit; nothing ran.
            UnknownNameError: a rule is for a tool that does not exist.
        """
        binding = self[selector]
        if rules is not None:
            if not isinstance(rules, RunsCalls):  # pyright: ignore[reportUnnecessaryIsInstance]
                mend = "make them with Rules(hooks=…, middleware=[…])"
                raise DefinitionError(f"execute(rules=…) takes Rules, not {rules!r}; {mend}")
            return await rules.run(self, ToolCall(binding.name, arguments or {}), context)
        return await execute(binding, arguments or {}, context)

    def definitions(self) -> list[ToolDefinition]:
        """The definitions, in order."""
        return [binding.definition for binding in self._table.values()]

    def export(
        self,
        provider: Provider,
        *,
        requirement: ToolRequirement | None = None,
        strict: bool = False,
        deferred: bool = True,
    ) -> Export:
        """The tools and the tool choice for one request, with the way back from its answer.

        Args:
            provider: `openai` (chat completions), `openai_responses`, `anthropic` or `gemini`.
            requirement: Whether the model must call a tool, and which; optional by default.
            strict: Have the provider enforce each schema that its strict mode can express; the tools
                with other schemas go out as they are.
            deferred: Offer deferred tools through the provider's own search, where it has one
                (Anthropic, OpenAI Responses). Without it, and elsewhere, they are left out.

        Raises:
            DefinitionError: the requirement cannot be met by these tools, or there is no such
                provider.
        """
        from mcp_toolset.tools.export import export

        return export(self, provider, requirement=requirement, strict=strict, deferred=deferred)

    def to_openai(self) -> list[Any]:
        """The tools in the form of OpenAI's chat completions; deferred tools are left out.

        Raises:
            DefinitionError: a name has to be altered for the provider; the message has the mend.
        """
        from mcp_toolset.tools.export import to_openai

        return to_openai(self)

    def to_openai_responses(self) -> list[Any]:
        """The tools in the form of OpenAI's Responses, deferred ones behind its tool search.

        Raises:
            DefinitionError: a name has to be altered for the provider; the message has the mend.
        """
        from mcp_toolset.tools.export import to_openai_responses

        return to_openai_responses(self)

    def to_anthropic(self) -> list[Any]:
        """The tools in the form of Anthropic's Messages, deferred ones behind its tool search.

        Raises:
            DefinitionError: a tool or an argument has a name that has to be altered for the provider.
        """
        from mcp_toolset.tools.export import to_anthropic

        return to_anthropic(self)

    def to_gemini(self) -> list[Any]:
        """The tools in the form of Gemini's requests; deferred tools are left out.

        Raises:
            DefinitionError: a tool or an argument has a name that has to be altered for the provider.
        """
        from mcp_toolset.tools.export import to_gemini

        return to_gemini(self)


async def execute(binding: ToolBinding, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    """Run a binding by itself: gate, preparation and argument check, then the tool.

    Raises:
        InvalidArgumentsError: the arguments do not fit.
    """
    call = ToolCall(binding.name, arguments)
    if binding.gate is not None:
        binding.gate(call, context)
    if binding.prepare is not None:
        call = binding.prepare(call, context)
    if not binding.arguments.is_valid(call.arguments):
        faults = "; ".join(binding.arguments.problems(call.arguments))
        raise InvalidArgumentsError(f"Invalid arguments for {call.name}: {faults}")
    return await binding.execute(call, context)


def conflict_message(first: ToolBinding, second: ToolBinding) -> str:
    """Both places of a name that is taken twice, and how to mend it."""
    places = f"{first.place or 'one toolset'} and {second.place or 'another'}"
    mend = "rename one or give a toolset a prefix with .prefixed()"
    return f"two tools are named {first.name!r}: {places}; {mend}"
