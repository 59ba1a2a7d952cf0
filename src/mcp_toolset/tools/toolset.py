"""`Toolset`: tools grouped, nested and transformed; each verb returns a new toolset.

A toolset is a recipe: compiling it (`bindings`, `view`) gives flat bindings, and a call does not walk it. The
steps of its verbs run once, from the innermost outward. A verb raises `UnknownToolError` for a selector that
matches no tool of a toolset of local tools.
"""

from __future__ import annotations

import builtins
import logging
import typing
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from inspect import iscoroutinefunction, signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, Unpack, cast, overload

import anyio

from mcp_toolset._index import marked
from mcp_toolset._records import replace
from mcp_toolset._rule import require_kept, rules_among
from mcp_toolset.errors import (
    DefinitionError,
    NameConflictError,
    StateError,
    ToolMismatchError,
    UnknownToolError,
)
from mcp_toolset.tools import definition
from mcp_toolset.tools.binding import (
    EVERY_TOOL,
    Supplies,
    ToolBinding,
    ToolNames,
    ToolSelector,
    identity,
    public_name_of,
    use_of,
)
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.opening import OpeningWait, open_sources, unwind
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.signature import with_injected
from mcp_toolset.tools.source import PromptProvider, ResourceProvider, ToolSource, not_ready
from mcp_toolset.tools.tool import ClassMembers, FunctionTool, Tool, check_calls, tool
from mcp_toolset.tools.transform import (
    UNPREPARED,
    ArgumentStep,
    ArgumentTransform,
    BySelector,
    NamedStep,
    PrepareCall,
    PrepareDefinition,
    PreparedStep,
    TurnOf,
    TurnStep,
    prepared_step,
    turn_step,
)
from mcp_toolset.tools.view import (
    Each,
    KnownTools,
    Made,
    NameReport,
    ToolAvailability,
    ToolView,
    UnboundName,
    distinct,
    rules_of,
    same,
    unbound,
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from mcp_toolset.extensions.keywords import DeferredKeywords
    from mcp_toolset.tools.binding import InputClass
    from mcp_toolset.tools.input import AnyCall, Decodes

    C = TypeVar("C", bound=AnyCall, default=AnyCall, covariant=True)
    D = TypeVar("D", bound=AnyCall)
else:
    C = typing.TypeVar("C", covariant=True)


Transform = Callable[[ToolBinding], ToolBinding | None]  # One step: the changed binding, or `None`.

Step = Transform | Each | PreparedStep | NamedStep[Any] | TurnStep
"""A step, or what makes a step for a turn, or for the present tools."""

V = typing.TypeVar("V")

_log = logging.getLogger("mcp_toolset.names")


_ALL: Final[Sequence[ToolSelector]] = [EVERY_TOOL]
_NONE: Final[Sequence[ToolSelector]] = []


class Toolset(Generic[C]):
    """A group of tools, plain functions and other toolsets.

    Made from values, `Toolset(search, data)`, or declared as a class whose attributes are tools, input
    classes, functions and toolsets; its instances have them in the order of definition, inherited ones
    first:

    ```python
    class AppTools(Toolset):
        search = WebSearchArgs  # declared with @tool_input
        read = read_file  # a function
        data = DataTools().prefixed("data")

        @tool
        def recent(self, limit: int) -> list[str]: ...
    ```

    Methods without `@tool`, and names with an underscore, are not members.

    `AppTools.search` is the tool: it can be called, and it can be given wherever a tool's name can.
    `async with toolset:` opens the servers mounted in it; a toolset of local tools needs no opening.
    """

    instructions: str = ""
    """Text for the model about these tools, which a server adds to its own wherever they are mounted."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        _DECLARED.adopt(cls)
        _DECLARED.check(cls)
        bindings = _flat(_DECLARED.of(cls).values(), UNPREPARED)
        _check_names(bindings)
        check_calls(cls, bindings)

    @overload
    def __init__(
        self,
        *members: Decodes[C],
        name: str | None = None,
        instructions: str = "",
        resources: ResourceProvider | None = None,
        prompts: PromptProvider | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Toolset[AnyCall],
        *members: Tool[..., Any] | Callable[..., Any] | Toolset | InputClass,
        name: str | None = None,
        instructions: str = "",
        resources: ResourceProvider | None = None,
        prompts: PromptProvider | None = None,
    ) -> None: ...
    def __init__(
        self,
        *members: object,
        name: str | None = None,
        instructions: str = "",
        resources: ResourceProvider | None = None,
        prompts: PromptProvider | None = None,
    ) -> None:
        """Group `members`, in this order, after those that the class declares.

        Args:
            *members: Tools, functions (made into tools here), classes declared with `@tool_input`, and
                toolsets. Type checkers infer the type of `decode` from tools and toolsets.
            name: A name for messages.
            instructions: Text for the model about these tools; see `instructions`.
            resources: Resources, such as `Resources`, that a server offers wherever the toolset is nested.
            prompts: Prompts, such as `Prompts`, likewise.

        Raises:
            DefinitionError: a member is none of these, or a function cannot be a tool.
            NameConflictError: two local tools have one name.
        """
        self.name = name
        if instructions:
            self.instructions = instructions
        self._offers = (resources, prompts)
        self._members = (*_DECLARED.of_instance(self), *map(_member, members))
        self._bindings_of_tools: dict[int, ToolBinding] = {}
        self._missing_names = NameReport()
        _check_names(self.compiled(UNPREPARED))

    if not TYPE_CHECKING:  # so that a type checker reports a name that is none

        def __getattr__(self, name: str) -> Any:
            if name in _OF_INSTANCE and "_members" not in vars(self):
                kind = next(one for one in type(self).__mro__ if "__init__" in vars(one))
                raise DefinitionError(
                    f"{kind.__qualname__}.__init__ does not call super().__init__(): add it as its first line"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def __setattr__(self, name: str, value: Any) -> None:
            if not name.startswith("_") and (found := next(rules_among(value), "")):
                raise DefinitionError(
                    f"toolset.{name} = … applies the {found} to no tool: give it to serve(…) or "
                    f"ToolsetServer(…), or use toolset.carrying(…); name it _{name} if you do so"
                )
            if _DECLARED.declares(type(self), name):
                raise DefinitionError(
                    f"toolset.{name} = … leaves the tools of the class as they are: change {name} in a "
                    "subclass, or use a verb, such as toolset.off(…)"
                )
            object.__setattr__(self, name, value)

    def members(self) -> Iterator[Tool[..., Any] | Toolset]:
        """The direct members, in order.

        Raises:
            DefinitionError: the toolset has verbs or rules of its own, which its members are without.
        """
        return iter(self._members)

    def _inside(self) -> Iterator[Tool[..., Any] | Toolset]:
        """The direct members, without what verbs of this toolset have changed."""
        return self.members()

    def bindings(self) -> list[ToolBinding]:
        """Every tool, flat and in order, not prepared for a turn."""
        return self.compiled(None)

    def compiled(self, turn: object) -> list[ToolBinding]:
        """Every tool for one turn; with `UNPREPARED`, as it is before `.prepared()` is applied."""
        if type(self).bindings is not Toolset.bindings:
            return self.bindings()
        return _flat(self._members, turn, self._bindings_of_tools)

    def sources(self) -> list[ToolSource]:
        """Each source in the toolset that must be opened, once."""
        found = [source for member in self._nested() for source in member.sources()]
        return list({id(source): source for source in found}.values())

    def listing_sources(self) -> list[ToolSource]:
        """The sources among `sources` whose tools are listed; the tools of the others are behind search."""
        nested = list(self._nested())
        found = [source for member in nested for source in member.listing_sources()]
        return found if nested else self.sources()

    def set_aside(self) -> list[tuple[str, str]]:
        """Mounted tools that a verb had to leave out, each with the reason."""
        return [found for member in self._nested() for found in member.set_aside()]

    def unbound(self) -> list[UnboundName]:
        """The names given to verbs that match no tool, each with the reason; see docs/names.md."""
        return [found for member in self._nested() for found in member.unbound()]

    def known_tools(self) -> KnownTools:
        """The tools that a name may refer to: every tool, filtered or not, and the sources of more tools."""
        return KnownTools(self.everything, self.sources(), verbs=self.unbound, grows=self.grows)

    @property
    def grows(self) -> bool:
        """True if servers may be mounted in it later."""
        return any(member.grows for member in self._nested())

    def everything(self) -> list[ToolBinding]:
        """Every tool at every level under its name at that level, filtered tools included."""
        found = self.compiled(UNPREPARED)
        return [*found, *(one for member in self._nested() for one in member.everything())]

    @property
    def defers(self) -> bool:
        """True if some tools are behind search, even if a mounted server has not answered yet."""
        return any(member.defers for member in self._nested())

    @property
    def extension_keys(self) -> frozenset[str]:
        """The keys of the extensions that it turns on in its server."""
        return frozenset(key for member in self._nested() for key in member.extension_keys)

    def identities(self) -> Mapping[object, frozenset[str]]:
        """The keys that identify its tools, so that it selects all of them wherever it is nested."""
        found: dict[object, frozenset[str]] = {}
        for one in self.compiled(UNPREPARED):
            found[identity(one)] = found.get(identity(one), frozenset()) | {one.name}
        return found

    def view(
        self, availability: ToolAvailability | None = None, *, turn: object = None, deferred: bool = False
    ) -> ToolView:
        """The tools as a flat, frozen table.

        Args:
            availability: The tools to take; by default those that are on.
            turn: A value for this request, which the functions of `.prepared()` get.
            deferred: True if deferred tools are included, for providers with their own search; by default
                they are left out, because they are found by search, not listed.

        Raises:
            NameConflictError: two tools have one name, or one id that was chosen for one of them.
            UnknownToolError: the availability names an unknown tool; as `ToolNotReadyError`, with the servers
                and their states, while a mounted server that may have it is not ready.
            DefinitionError: a function of `.prepared()` needs a turn of another type.
        """
        self._require_served()
        bindings = self.compiled(turn)
        check_ids(bindings)
        known = self.known_tools()
        if known.sources:
            self._missing_names.take(self.unbound(), is_closed=False)
        hidden = () if deferred else tuple(one.name for one in bindings if one.deferred and one.on)
        shown = (one for one in bindings if deferred or not one.deferred)
        every = ToolView(shown, known=known, left_out=hidden)
        try:
            return every.select(availability or ToolAvailability.default())
        except UnknownToolError as fault:
            raise not_ready(fault, known.sources) from None

    def find(self, selector: ToolSelector) -> ToolBinding:
        """The binding of a tool, by name or by the tool, wherever it is nested; also off or deferred."""
        try:
            return ToolView(self.compiled(UNPREPARED))[selector]
        except UnknownToolError as fault:
            raise not_ready(fault, self.sources()) from None

    def decode(self, call: ToolCall, view: ToolView | None = None) -> C:
        """The typed form of a call, with its input, its handler and the conversion of its result.

        A type checker knows the types of all calls, and reports a `match` that lacks one:

        ```python
        match tools.decode(call):
            case DecodedCall(WebSearch(query=query)) as search:
                done = search.complete(Snippets(snippets=await find(query)))
            case FunctionCall() as other:
                done = other.complete(await other.call())
        ```

        A class toolset names the union: `class App(Toolset[DecodedCall[WebSearch, Snippets]])`. `view` is
        that in which the tool was offered; without it the toolset is compiled for each call.

        Raises:
            ToolMismatchError: the tool has no typed calls: it was made from a schema, or is mounted.
            InvalidArgumentsError: the arguments do not fit.
        """
        # Few toolsets are listed so.
        from mcp_toolset.tools.input import Decodes

        table = ToolView(self.compiled(UNPREPARED)) if view is None else view
        origin = table[call.name].origin
        if not isinstance(origin, Decodes):
            raise ToolMismatchError(
                f"the tool {call.name!r} has no typed calls, as it was made of a schema or is mounted; "
                "read call.arguments"
            )
        return cast("Decodes[C]", origin).decode(call, table)

    def names(self) -> list[str]:
        """The public names of all tools, in order."""
        return [binding.name for binding in self.compiled(UNPREPARED)]

    def definitions(self) -> list[definition.ToolDefinition]:
        """The definitions of all tools, in order."""
        return [binding.definition for binding in self.compiled(UNPREPARED)]

    async def execute(
        self,
        selector: ToolSelector,
        arguments: dict[str, Any] | None = None,
        context: ToolContext = LOCAL_CONTEXT,
        *,
        rules: object = None,
    ) -> ToolResult:
        """Run one tool that is on from JSON arguments, under `rules` if given; see `ToolView.execute`.

        A tool that is off needs a view: `view(ToolAvailability.only("pay")).execute("pay")`. The toolset is
        compiled for each call: for many calls take `view()` once and use `view.execute`.
        """
        view = self.view(ToolAvailability.all())
        try:
            binding = view[selector]
        except UnknownToolError as fault:
            raise not_ready(fault, self.sources()) from None
        if not binding.on:
            raise UnknownToolError(
                binding.name, "; it is switched off: to run it all the same, use a view with this tool"
            )
        return await view.execute(binding.name, arguments, context, rules=rules)

    def _require_served(self) -> None:
        """Raise `DefinitionError` if rules of a toolset within hold only where a server serves it."""
        for nested in self._nested():
            nested._require_served()

    def _nested(self) -> Iterator[Toolset]:
        return (member for member in self._inside() if isinstance(member, Toolset))

    _stack: AsyncExitStack | None = None

    async def __aenter__(self) -> Self:
        await self._open(OpeningWait(tells=True))
        return self

    @asynccontextmanager
    async def opened(self, *, timeout: float | None = None) -> AsyncGenerator[Self]:
        """Open every source for the length of a block, and wait for them at most `timeout` seconds.

        A source that is not ready then continues to start; its tools join when it is. `None` waits for all.
        """
        async with self.opening(OpeningWait(timeout=timeout, tells=True)):
            yield self

    @asynccontextmanager
    async def opening(self, waiting: OpeningWait) -> AsyncGenerator[None]:
        """Open every source for the length of a block, and wait for them as `waiting` says."""
        await self._open(waiting)
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self.__aexit__)
            yield

    async def _open(self, waiting: OpeningWait) -> None:
        if self._stack is not None:
            raise StateError("this toolset is already open; enter it once, or make another")
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            has_local_tools = any(not binding.source for binding in self.bindings())
            await open_sources(group, self.sources(), waiting, has_local_tools=has_local_tools)
            self._stack = stack.pop_all()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await unwind(stack, kind, fault, trace)

    def compact(self, help_name: str = "tool_help") -> Toolset:
        """A compact listing: short stubs, which can be called, and a tool that returns the full definitions.

        The listing does not change, so a prompt cache stays valid.
        """
        # Most programs list their tools in full.
        from mcp_toolset.tools.compact import help_text, stubbed

        async def tool_help(names: list[str]) -> str:
            """Get the full descriptions and schemas of tools, which are listed in short."""
            return help_text(ToolView(self.compiled(UNPREPARED)), names)

        asking = tool(name=help_name, read_only=True, id=f"tool:{help_name}")(tool_help)
        return Toolset(self.through(Each(stubbed)), asking, name=self.name)

    @overload
    def including(self, *members: Decodes[D]) -> Toolset[C | D]: ...
    @overload
    def including(self, *members: Tool[..., Any] | Callable[..., Any] | Toolset | InputClass) -> Toolset: ...
    def including(self, *members: Any) -> Toolset[Any]:
        """The toolset with more members; `toolset + other` adds one."""
        return Toolset(self, *members, name=self.name)

    @overload
    def __add__(self, other: Decodes[D]) -> Toolset[C | D]: ...
    @overload
    def __add__(self, other: Tool[..., Any] | Toolset | InputClass) -> Toolset: ...
    def __add__(self, other: Any) -> Toolset[Any]:
        return self.including(other)

    def through(self, step: Step, *, defers: bool = False, extensions: Collection[str] = ()) -> Toolset[C]:
        """The toolset with every binding passed through a step; every verb uses this."""
        made = Transformed[C](self, step, defers=defers, extensions=extensions)
        require_kept("toolset", __name__)
        return made

    def carrying(self, rules: object) -> Toolset[C]:
        """Add rules to the toolset, which apply to its tools wherever the toolset is mounted.

        `rules` is `Rules`, or one rule of any form: see `Rules.of`. The rules run inside the rules of the
        server or the loop, and use the names of this toolset. In a round they run when its calls run. A tool
        that a carried policy denies to every caller is left out. Observers are for a server or a loop.
        """
        made = rules_of(rules)
        made.check_carried(ToolView(self.compiled(UNPREPARED), known=self.known_tools()))
        # A tool that no caller may call is no tool: it would be listed, found and granted in vain.
        return self.through(
            Each(lambda binding: None if made.denies(binding) else binding.carrying(made), made)
        )

    def prefixed(self, prefix: str) -> Toolset[C]:
        """Rename every tool to `prefix_name`; hooks and middleware for the former names still apply."""
        definition.check_prefix(prefix)
        return self.through(
            Each(lambda binding: binding.called(definition.public_name(binding.name, prefix=prefix)))
        )

    def renamed(self, names: BySelector[str]) -> Toolset[C]:
        """Rename tools: `{"old": "new"}`; all other tools keep their names."""
        new = self._known("renamed", names)
        for before, after in new.items():
            definition.check_name(after, f"renamed({before!r})")
        return self.through(
            NamedStep("renamed", new, lambda binding, name: binding if name is None else binding.called(name))
        )

    def filtered(
        self,
        predicate: Callable[[ToolBinding], bool] | None = None,
        *,
        include: ToolSelector | Iterable[ToolSelector] = _ALL,
        exclude: ToolSelector | Iterable[ToolSelector] = _NONE,
    ) -> Toolset[C]:
        """Keep only some of the tools: by tools, name patterns (`get_*`) and a predicate."""
        if predicate is not None:
            _check_predicate(predicate)
        elif include is _ALL and exclude is _NONE:
            raise DefinitionError("filtered() keeps every tool: give a function, include=… or exclude=…")
        wanted = self._known("include", dict.fromkeys(_several(include), True))
        unwanted = self._known("exclude", dict.fromkeys(_several(exclude), False))
        kept: Any = self
        if EVERY_TOOL not in wanted:
            kept = kept.through(NamedStep("include", wanted, _kept))
        if unwanted:
            kept = kept.through(NamedStep("exclude", unwanted, partial(_kept, by_default=True)))
        if predicate is None:
            return kept.through(Each(lambda binding: binding))
        # The predicate may depend on anything, so it is called each time.
        chosen: Transform = lambda binding: binding if _told(predicate(binding)) else None  # noqa: E731
        return kept.through(chosen)

    def described(self, descriptions: BySelector[str]) -> Toolset[C]:
        """Replace the descriptions of some tools, by a mapping or `Descriptions`."""
        texts = self._known("described", descriptions)
        return self.through(NamedStep("described", texts, redescribed))

    def with_arguments(self, transforms: BySelector[Mapping[str, ArgumentTransform]]) -> Toolset[C]:
        """Hide, rename or describe parameters of some tools, or give them defaults.

        `{"search": {"key": hide(value="…"), "q": rename("query") | describe("What to look for")}}`.
        Hooks see the arguments as the model sends them. If a mounted tool lacks the parameter, the tool is
        left out, because a renamed parameter could reveal a hidden one; `set_aside()` and the log name it.
        """
        known = self._known("with_arguments", transforms)
        return self.through(ArgumentStep({selector: dict(one) for selector, one in known.items()}))

    def prepared(
        self, define: PrepareDefinition | None = None, *, call: PrepareCall | None = None
    ) -> Toolset[C]:
        """Adapt tools and calls to the input of each turn.

        Args:
            define: `(binding[, turn]) -> ToolDefinition | None`, called when a view is made; `None`
                leaves the tool out. If it raises, the tool is hidden and the error is logged.
            call: `(call[, turn]) -> arguments`, called for each call before its arguments are
                validated. If it raises, the call does not run.

        `turn` is the value of `view(turn=…)`. For calls on a server, and without `view(turn=…)`, it is the
        value of `with_turn`, otherwise `None`. A turn of another type than annotated is an error.
        """
        if define is None and call is None:
            raise DefinitionError("prepared() needs a function of the definition, or call=…")
        return self.through(prepared_step(define, call))

    def with_turn(self, turn_of: TurnOf) -> Toolset[C]:
        """Set the turn of each call of these tools, for `.prepared(call=…)` and providers.

        On a server, the function is called for each request that needs the turn: `lambda context:
        Turn(context.principal)`, or `turn_from_meta("example.com/turn", Turn)`. In a loop, the turn of
        `view(turn=…)` wins over it; the innermost `with_turn` wins. It is no check of the caller: use a hook.
        A call that needs the turn does not run if the function raises.
        """
        return self.through(turn_step(turn_of))

    def granting(self, *capabilities: str) -> Toolset[C]:
        """Grant these tools capabilities beyond the default ones."""
        if not capabilities or not all(isinstance(one, str) and one for one in capabilities):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(f"granting() takes names of capabilities, not {capabilities!r}")
        granted = frozenset(capabilities)
        return self.through(
            Each(
                lambda binding: replace(binding, capabilities=granted | (binding.capabilities or frozenset()))
            )
        )

    def tagged(self, *tags: str, metadata: Mapping[str, Any] | None = None) -> Toolset[C]:
        """Add tags and metadata to these tools, also to mounted ones; clients do not see them.

        `tagged("admin")`, the function, selects the tools that have a tag; a policy reads `binding.tags`.
        """
        added, noted = definition.checked_tags(tags, "tagged()"), definition.frozen(dict(metadata or {}))
        return self.through(
            Each(
                lambda binding: replace(
                    binding,
                    tags=binding.tags | added,
                    metadata=definition.frozen({**binding.metadata, **noted}),
                )
            )
        )

    def injecting(self, supplies: Supplies) -> Toolset[C]:
        """Supply values for injected parameters, by name or type, or by a function of a call's context.

        Values of an outer toolset or of the call itself win over them.
        """
        given: object = supplies
        if not isinstance(given, Mapping) and not callable(given):
            kind = type(given).__name__
            raise DefinitionError(f"injecting({kind} …): give values by type, as in {{{kind}: value}}")
        return self.through(Each(lambda binding: with_injected(binding, supplies)))

    def off(self, *selectors: ToolSelector) -> Toolset[C]:
        """Exclude some tools, or all if none is named, from the default availability."""
        if any(isinstance(one, list | tuple | set) for one in cast("tuple[object, ...]", selectors)):
            raise DefinitionError(f"off() takes tools one by one, off('a', 'b'), not {selectors[0]!r}")
        chosen = self._known("off", dict.fromkeys(selectors or (EVERY_TOOL,), True))
        return self.through(
            NamedStep("off", chosen, lambda binding, off: replace(binding, on=False) if off else binding)
        )

    def deferred(self, **extensions: Unpack[DeferredKeywords]) -> Toolset[C]:
        """Defer all tools: a model must search for a tool and resolve it before a call.

        With `code=True`, models may also run code that calls granted tools; see docs/code-mode.md.
        """
        for key in extensions:
            if key not in marked("deferred"):
                raise TypeError(f"deferred() got an unexpected keyword argument {key!r}")
        wanted = [key for key, said in extensions.items() if said]
        step = Each(lambda binding: replace(binding, deferred=True))
        return self.through(step, defers=True, extensions=wanted)

    def _known(self, verb: str, by: BySelector[V]) -> dict[ToolSelector, V]:
        table = dict(cast("Mapping[ToolSelector, V]", by))
        if not set(table) - {EVERY_TOOL}:
            return table
        bindings, known = self.compiled(UNPREPARED), self.known_tools()
        require_known([one for one in table if not isinstance(one, str | definition.Tagged)], bindings)
        if known.is_closed:
            _require_bound(verb, table, bindings, known)
        return table

    def __repr__(self) -> str:
        names = ", ".join(self.names())
        return f"{type(self).__name__}({self.name + ': ' if self.name else ''}{names})"


def _flat(
    members: Iterable[Tool[..., Any] | Toolset], turn: object, bound: dict[int, ToolBinding] | None = None
) -> list[ToolBinding]:
    flat: list[ToolBinding] = []
    for member in members:
        if isinstance(member, Tool):
            flat.append(_bound(member, {} if bound is None else bound))
        else:
            flat.extend(member.compiled(turn))
    return distinct(flat)


def _bound(tool: Tool[..., Any], known: dict[int, ToolBinding]) -> ToolBinding:
    found = known.get(id(tool))
    # The cached binding holds its tool, so that no other tool can get this id.
    if found is None or found.origin is not tool:
        found = known[id(tool)] = tool.bind()
    return found


def _check_names(bindings: Iterable[ToolBinding]) -> None:
    ToolView(binding for binding in bindings if not binding.source)


def inside(toolset: Toolset) -> Iterator[Tool[..., Any] | Toolset]:
    """The direct members of a toolset without what its verbs say: to look into it, not to serve them."""
    return toolset._inside()  # pyright: ignore[reportPrivateUsage]


def offered_by(toolset: Toolset) -> tuple[list[ResourceProvider], list[PromptProvider]]:
    resources, prompts = toolset._offers  # pyright: ignore[reportPrivateUsage]
    every = ([] if resources is None else [resources], [] if prompts is None else [prompts])
    for member in inside(toolset):
        if isinstance(member, Toolset):
            for own, nested in zip(every, offered_by(member), strict=True):
                own.extend(one for one in cast("list[Any]", nested) if one not in own)
    return every


def _member(member: object) -> Tool[..., Any] | Toolset:
    if (declared := definition.declared_tool(member)) is not None:
        return declared
    if callable(member) and not isinstance(member, type | Tool):
        member = tool(member)
    if isinstance(member, FunctionTool) and member.unbound:
        raise DefinitionError(f"tool {member.name!r} is a method; bind it first: give instance.{member.name}")
    if isinstance(member, Tool | Toolset):
        return cast("Tool[..., Any] | Toolset", member)
    raise DefinitionError(f"a toolset takes tools, functions and toolsets, not {member!r}")


_OF_INSTANCE = frozenset(
    {"name", "_members", "_bindings_of_tools", "_missing_names", "_source_name", "_prepared"}
)
"""Attributes that toolsets get in `__init__`."""


_DECLARED = ClassMembers(Toolset, frozenset({"name"}))


class Transformed(Toolset[C]):
    """Another toolset with every binding passed through one step; the result of a verb."""

    def __init__(
        self, inner: Toolset[C], transform: Step, *, defers: bool = False, extensions: Collection[str] = ()
    ) -> None:
        self._inner = inner
        self._transform = transform
        self._defers = defers
        self._extensions = frozenset(extensions)
        self._made = Made(transform if isinstance(transform, Each) else lambda binding: binding)
        self._named: tuple[list[ToolBinding], list[ToolBinding]] = ([], [])
        super().__init__(name=inner.name)

    def members(self) -> Iterator[Tool[..., Any] | Toolset]:
        """Raise `DefinitionError`: the toolset inside is without what the verb says."""
        raise DefinitionError(
            "the members of a toolset with verbs are without what .off(…), .filtered(…), .carrying(…) and "
            "others say: give the toolset itself, Toolset(tools), or look at tools.bindings()"
        )

    def _inside(self) -> Iterator[Tool[..., Any] | Toolset]:
        yield self._inner

    def compiled(self, turn: object) -> list[ToolBinding]:
        transform = self._transform
        if isinstance(transform, TurnStep):
            return [transform(binding) for binding in self._inner.compiled(transform.inside(turn))]
        bindings = self._inner.compiled(turn)
        if isinstance(transform, Each):
            return [done for done in self._made.of(bindings) if done is not None]
        if isinstance(transform, NamedStep):
            return self._as_named(cast("NamedStep[Any]", transform), bindings)
        step = transform.for_turn(turn) if isinstance(transform, PreparedStep) else transform
        return [done for binding in bindings if (done := step(binding)) is not None]

    def _as_named(self, step: NamedStep[Any], bindings: list[ToolBinding]) -> list[ToolBinding]:
        """The result of a step for some tools, which depends on all of them; cached until they change."""
        known, done = self._named
        if not (step.names_only and known and same(known, bindings)):
            act = step.among(bindings)
            done = [made for binding in bindings if (made := act(binding)) is not None]
            self._named = (bindings, done)
        return list(done)

    def sources(self) -> list[ToolSource]:
        return self._inner.sources()

    def listing_sources(self) -> list[ToolSource]:
        return [] if self._defers else self._inner.listing_sources()

    def set_aside(self) -> list[tuple[str, str]]:
        inside = self._inner.set_aside()
        if not isinstance(self._transform, ArgumentStep):
            return inside
        return [*inside, *self._transform.refused(self._inner.compiled(UNPREPARED))]

    def unbound(self) -> list[UnboundName]:
        inside, step = self._inner.unbound(), cast("object", self._transform)
        if isinstance(step, Each) and step.rules is not None:
            known = self._inner.known_tools()
            return [*inside, *step.rules.missing(ToolView(self._inner.compiled(UNPREPARED), known=known))]
        if not isinstance(step, NamedStep):
            return inside
        named = cast("NamedStep[Any]", step)
        if named.is_bound:
            return inside
        return [*inside, *named.unbound(self._inner.compiled(UNPREPARED), self._inner.known_tools())]

    @property
    def defers(self) -> bool:
        return self._defers or self._inner.defers

    @property
    def extension_keys(self) -> frozenset[str]:
        return self._extensions | self._inner.extension_keys


def check_ids(bindings: Iterable[ToolBinding]) -> None:
    """Raise `NameConflictError` if different tools have one id that was chosen for one of them."""
    groups: dict[tuple[str, str], list[ToolBinding]] = defaultdict(list)
    for binding in bindings:
        groups[binding.source, binding.tool_id].append(binding)
    for (_, id), group in groups.items():
        if id and len(group) > 1:
            check_id(id, group)


def check_id(id: str, group: Sequence[ToolBinding]) -> None:
    tools = {builtins.id(one.origin): one for one in group if one.origin is not None}
    if len(tools) > 1 and any(map(chosen_id, tools.values())):
        places = " and ".join(one.place or "one" for one in list(tools.values())[:2])
        raise NameConflictError(f"two tools have the id {id!r}: {places}; give each its own with @tool(id=…)")


def chosen_id(binding: ToolBinding) -> str:
    """The id that the author of a binding's tool chose; empty if the id is the default one."""
    tool = binding.origin
    if not isinstance(tool, Tool) or tool.id in (
        definition.default_id(tool.name, tool.function),
        f"tool:{tool.name}",
    ):
        return ""
    return tool.id


def _check_predicate(predicate: object) -> None:
    said = "filtered() takes a plain function of (binding), or names as include=… or exclude=…"
    if not callable(predicate) or iscoroutinefunction(predicate):
        raise DefinitionError(f"{said}, not {predicate!r}")
    try:
        signature(predicate).bind(None)
    except TypeError:
        raise DefinitionError(f"{said}; this one takes {signature(predicate)}") from None


def _told(kept: object) -> bool:
    """A predicate's answer; `DefinitionError` for one that is neither yes nor no, such as a coroutine."""
    if not isinstance(kept, bool | None):
        raise DefinitionError(f"the function of filtered() returns True or False, not {kept!r}")
    return bool(kept)


def _several(chosen: ToolSelector | Iterable[ToolSelector]) -> Iterable[ToolSelector]:
    """The chosen selectors; a single one may be given by itself. A text would else be split into letters."""
    is_one = isinstance(chosen, str | type) or not isinstance(chosen, Iterable)
    return [cast("ToolSelector", chosen)] if is_one else cast("Iterable[ToolSelector]", chosen)


def _kept(binding: ToolBinding, keep: bool | None, *, by_default: bool = False) -> ToolBinding | None:
    return binding if (by_default if keep is None else keep) else None


def redescribed(binding: ToolBinding, text: str | None) -> ToolBinding:
    return binding if text is None else replace(binding, definition=binding.definition.described(text))


def require_known(selectors: Iterable[object], bindings: Iterable[ToolBinding]) -> None:
    selectors = list(selectors)
    table = {binding.name: binding for binding in bindings} if selectors else {}
    for selector in selectors:
        public_name_of(selector, table)


def _require_bound(
    verb: str, selectors: Iterable[ToolSelector], bindings: Iterable[ToolBinding], known: KnownTools
) -> None:
    uses = [use for one in selectors if (use := use_of(one, verb)) is not None]
    for missing in unbound(uses, ToolNames(bindings), known):
        if missing.kind == "unknown":
            near = f"; did you mean {' or '.join(missing.near)}?" if missing.near else ""
            raise UnknownToolError(missing.name, f" (in {verb}){near}")
        if missing.kind == "ambiguous":
            raise DefinitionError(str(missing))
        _log.warning("%s", in_log(missing))
