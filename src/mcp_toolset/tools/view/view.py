"""`ToolView`: a frozen table from public name to `ToolBinding`; `ToolAvailability`: what a model sees of it.

Names are never parsed at call time: the table maps them back to tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError, NameConflictError
from mcp_toolset.tools.binding.binding import ToolBinding, loaded
from mcp_toolset.tools.binding.selector import ToolGroup, ToolSelector, names_of, public_name_of, resolve_all
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolCall, ToolContext, require_context
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.view.tool_names import ToolNames
from mcp_toolset.tools.view.unbound import KnownTools

if TYPE_CHECKING:
    from mcp_toolset.tools.binding.binding import ToolBinding
    from mcp_toolset.tools.export import Export, Provider
    from mcp_toolset.tools.export.requirement import ToolRequirement


@dataclass(frozen=True, slots=True)
class ToolAvailability:
    """A selection of tools, resolved against a toolset before anything is sent to a model.

    A selector is a public name, a `Tool`, or a nested toolset, which selects all its tools, on or off.
    """

    kind: Literal["default", "all", "only", "default_plus"] = "default"
    selectors: tuple[ToolSelector | ToolGroup, ...] = ()

    @classmethod
    def default(cls) -> ToolAvailability:
        """Every tool that is on."""
        return cls()

    @classmethod
    def all(cls) -> ToolAvailability:
        """Every tool, on or off."""
        return cls("all")

    @classmethod
    def only(cls, *selectors: ToolSelector | ToolGroup) -> ToolAvailability:
        """Only these tools, on or off."""
        return cls("only", selectors)

    @classmethod
    def default_plus(cls, *selectors: ToolSelector | ToolGroup) -> ToolAvailability:
        """Every tool that is on, and then these, each once."""
        return cls("default_plus", selectors)

    def resolve(self, table: Mapping[str, ToolBinding]) -> list[str]:
        """The available public names, given all tools.

        Raises:
            UnknownToolError: a selector matches no tool; the message has close matches.
            DefinitionError: a selector matches more than one tool, or is not a selector.
        """
        picked = resolve_all(self.selectors, table)
        if self.kind == "all":
            return list(table)
        if self.kind == "only":
            return picked
        on = [name for name, binding in table.items() if binding.on]
        return list(dict.fromkeys([*on, *picked]))


__all__ = [
    "Describes",
    "RunsCalls",
    "ToolAvailability",
    "ToolBinding",
    "ToolSelector",
    "ToolView",
    "conflict_message",
    "execute",
]


class Describes(Protocol):
    """Changes the texts of tools: a `HookSet`, `Rules` or `Descriptions`."""

    async def describe(self, view: ToolView, /) -> list[ToolBinding]:
        """The tools of a view with their new texts."""
        ...


class RunsCalls(Protocol):
    """Runs calls under rules: `Rules`."""

    async def run(self, view: ToolView, call: ToolCall, context: ToolContext, /) -> ToolResult: ...


class AnyRules(RunsCalls, Protocol):
    """Rules as toolsets and typed calls use them: `Rules`."""

    @property
    def only_hooks(self) -> Any:
        """The hooks, if the rules have nothing else; raises `DefinitionError` otherwise."""
        ...

    def check_carried(self, view: ToolView) -> None: ...

    def missing(self, view: ToolView) -> list[Any]:
        """The names of carried rules that match no tool."""
        ...

    def denies(self, binding: ToolBinding) -> bool:
        """Whether a policy among them denies a tool to every caller."""
        ...

    def none(self) -> RunsCalls:
        """No rules of a host, for a call under the rules alone that its tool carries."""
        ...


class ToolView(Mapping[str, ToolBinding]):
    """A flat, frozen table of tools by public name, in the order they are listed."""

    __slots__ = ("_known", "_names", "_table", "left_out")

    def __init__(
        self,
        bindings: Iterable[ToolBinding],
        *,
        known: KnownTools | None = None,
        left_out: tuple[str, ...] = (),
    ) -> None:
        """Freeze `bindings`.

        Args:
            bindings: The tools.
            known: All tools that names may refer to, if `bindings` are some of them; by default these.
                Views made from this view have them, too.
            left_out: The deferred tools that were left out, so that an export does not lose them unseen.

        Raises:
            NameConflictError: two tools have the same name; the message names both places.
        """
        table: dict[str, ToolBinding] = {}
        for binding in bindings:
            other = table.setdefault(binding.name, binding)
            if other is not binding:
                raise NameConflictError(conflict_message(other, binding))
        self._table = MappingProxyType(table)
        self._known = known
        self.left_out = left_out
        self._names: ToolNames | None = None

    @property
    def names(self) -> ToolNames:
        """Resolves names to the tools of the view."""
        if self._names is None:
            self._names = ToolNames(self._table.values())
        return self._names

    @property
    def known_tools(self) -> KnownTools:
        """All tools that names may refer to: those of the toolset that the view was made from."""
        return self._known or KnownTools(self._table.values)

    def knows(self, name: str) -> bool:
        """Whether a tool of the view's toolset has this name, also if it is off, deferred or filtered."""
        known = (*self.left_out, *(one.name for one in self.known_tools.everything()))
        return name in self or name in known

    def __getitem__(self, selector: ToolSelector) -> ToolBinding:
        """The binding of a name or a tool; raises `UnknownToolError`, not `KeyError`, if it is missing."""
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
        """The number of tools."""
        return len(self._table)

    def __repr__(self) -> str:
        """The names, for a person."""
        return f"ToolView({', '.join(self._table)})"

    def select(self, availability: ToolAvailability) -> Self:
        """The part of the view that `availability` makes available, in its order.

        Raises:
            UnknownToolError: a selector names a tool that is not in the view.
        """
        chosen = availability.resolve(self._table)
        left_out = () if availability.kind == "only" else self.left_out
        return type(self)((self._table[name] for name in chosen), known=self.known_tools, left_out=left_out)

    def describe(self, selector: ToolSelector, text: str | None) -> Self:
        """The view with another description for one tool; the last description for a tool wins.

        Raises:
            UnknownToolError: the view has no such tool.
        """
        chosen = self[selector]
        described = replace(chosen, definition=chosen.definition.described(text))
        found = (described if binding is chosen else binding for binding in self._table.values())
        return type(self)(found, known=self.known_tools, left_out=self.left_out)

    async def with_texts(self, by: Describes) -> Self:
        """The view with new texts for its tools: from hooks, from rules, or from `Descriptions`.

        A tool whose hook fails is left out, as on a server.

        Raises:
            UnknownNameError: a hook or a description is for a tool that does not exist.
        """
        return type(self)(await by.describe(self), known=self.known_tools, left_out=self.left_out)

    async def execute(
        self,
        selector: ToolSelector,
        arguments: dict[str, Any] | None = None,
        context: ToolContext = LOCAL_CONTEXT,
        *,
        rules: object = None,
    ) -> ToolResult:
        """Run one tool from JSON arguments, which are checked like those of a served call.

        Without rules the tool's own exceptions propagate. With `rules`, or if its toolset carries some, it
        runs as on a server: through their middleware and hooks, and a refusal or a failure is an error
        result.

        Raises:
            UnknownToolError: it is not in the view.
            InvalidArgumentsError: the arguments do not fit; nothing ran.
            UnknownNameError: a rule is for a tool that does not exist.
            DefinitionError: `rules` is not a rule; see `Rules.of`.
        """
        require_context(context)
        binding = self[selector]
        if rules is None and binding.carried:
            rules = binding.carried[0].rules.none()
        if rules is not None:
            return await rules_of(rules).run(self, ToolCall(binding.name, arguments or {}), context)
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
        deferred: bool | None = None,
    ) -> Export:
        """The tools and the tool choice for one request, with the table that decodes its answer.

        Args:
            provider: `openai` (chat completions), `openai_responses`, `anthropic` or `gemini`.
            requirement: Whether the model must call a tool, and which; optional by default.
            strict: Have the provider enforce each schema that its strict mode can express; the tools
                with other schemas are sent unchanged.
            deferred: Deferred tools are offered through the provider's own search, if it has one (Anthropic,
                OpenAI Responses). `False` leaves them out; with `True`, they are left out where there is no
                such search. See docs/provider-search.md.

        Raises:
            DefinitionError: the requirement cannot be met by these tools, the provider is unknown, or
                deferred tools would be lost and `deferred` does not say that this is meant.
        """
        from mcp_toolset.tools.export import export

        return export(
            self,
            provider,
            requirement=requirement,
            strict=strict,
            deferred=deferred,
            left_out=self.left_out,
        )

    def to_openai(self) -> list[Any]:
        """The tools in the form of OpenAI's chat completions.

        Raises:
            DefinitionError: a name must be altered for the provider, or there are deferred tools, which
                it cannot search; the message has the remedy.
        """
        from mcp_toolset.tools.export import to_openai

        return to_openai(self, self.left_out)

    def to_openai_responses(self) -> list[Any]:
        """The tools in the form of OpenAI's Responses, deferred tools behind its tool search.

        Raises:
            DefinitionError: a name must be altered for the provider; the message has the remedy.
        """
        from mcp_toolset.tools.export import to_openai_responses

        return to_openai_responses(self, self.left_out)

    def to_anthropic(self) -> list[Any]:
        """The tools in the form of Anthropic's Messages, deferred tools behind its tool search.

        Raises:
            DefinitionError: a tool or an argument has a name that must be altered for the provider.
        """
        from mcp_toolset.tools.export import to_anthropic

        return to_anthropic(self, self.left_out)

    def to_gemini(self) -> list[Any]:
        """The tools in the form of Gemini's requests.

        Raises:
            DefinitionError: a tool or an argument has a name that must be altered for the provider, or there
                are deferred tools, which it cannot search.
        """
        from mcp_toolset.tools.export import to_gemini

        return to_gemini(self, self.left_out)


def required_view(given: object, where: str) -> ToolView:
    """The view that was given.

    Raises:
        DefinitionError: it is something else, such as a toolset; the message has the mend.
    """
    if isinstance(given, ToolView):
        return given
    kind = type(given).__name__
    mend = (
        "give toolset.view()" if hasattr(given, "view") and hasattr(given, "bindings") else "give a ToolView"
    )
    if hasattr(given, "provider"):
        mend = "use ToolRound.of(message, export)"
    raise DefinitionError(f"{where} takes the view of the tools that were offered, not a {kind}: {mend}")


def rules_of(rule: object) -> AnyRules:
    """`Rules.of`, which knows every form of a rule; its room is above this one and is loaded at first use."""
    return import_module("mcp_toolset.calls.pipeline.rules").Rules.of(rule)


async def execute(binding: ToolBinding, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    """Run one binding: gate, preparation and argument check, then the tool.

    Raises:
        InvalidArgumentsError: the arguments do not fit.
    """
    require_context(context)
    call = ToolCall(binding.name, arguments)
    if binding.gate is not None:
        await loaded(partial(binding.gate, call, context))
    if binding.prepare is not None:
        call = binding.prepare(call, context)
    if not binding.arguments.is_valid(call.arguments):
        raise InvalidArgumentsError(binding.arguments.misfit(call.name, call.arguments))
    return await binding.execute(call, context)


def conflict_message(first: ToolBinding, second: ToolBinding) -> str:
    """Both places of a duplicate name, and how to correct it."""
    places = f"{first.place or 'one toolset'} and {second.place or 'another'}"
    mend = "rename one or give a toolset a prefix with .prefixed()"
    return f"two tools are named {first.name!r}: {places}; {mend}"
