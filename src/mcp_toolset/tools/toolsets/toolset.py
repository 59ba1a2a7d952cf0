"""`Toolset`: tools grouped, nested and transformed; each verb returns a new toolset.

A toolset is a recipe. Compiling it (`bindings`, `view`) walks it once and gives flat bindings; a call does
not walk it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast, overload

from mcp_toolset._rule import require_kept, rules_among
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.binding.binding import ToolBinding
from mcp_toolset.tools.core.names import declared_tool
from mcp_toolset.tools.core.source import ToolSource
from mcp_toolset.tools.declare.function import FunctionTool, tool
from mcp_toolset.tools.declare.tool import Tool
from mcp_toolset.tools.toolsets.class_toolset import ClassMembers, check_calls
from mcp_toolset.tools.toolsets.opening import ToolsetLifetime
from mcp_toolset.tools.toolsets.prepare import UNPREPARED, PreparedStep, TurnStep
from mcp_toolset.tools.toolsets.queries import C, ToolsetQueries
from mcp_toolset.tools.toolsets.transform import ArgumentStep, NamedStep
from mcp_toolset.tools.toolsets.verbs import Step, ToolsetVerbs, Transform
from mcp_toolset.tools.view.view import Each, Made, NameReport, ToolView, UnboundName, distinct, same

if TYPE_CHECKING:
    from typing import TypeVar

    from mcp_toolset.tools.binding.selector import InputClass
    from mcp_toolset.tools.declare.input import AnyCall
    from mcp_toolset.tools.declare.prompts import PromptProvider, ResourceProvider
    from mcp_toolset.tools.declare.typed_call import Decodes

    D = TypeVar("D", bound=AnyCall)

__all__ = ["Toolset", "Transform", "Transformed"]


class Toolset(ToolsetQueries[C], ToolsetLifetime, ToolsetVerbs["Toolset[C]"]):
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
        """Check a class toolset where it is defined.

        Raises:
            DefinitionError: an attribute cannot be a member.
            NameConflictError: two local tools have one name.
        """
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
            """Refuse an instance whose class has an `__init__` that forgets that of toolsets."""
            if name in _OF_INSTANCE and "_members" not in vars(self):
                kind = next(one for one in type(self).__mro__ if "__init__" in vars(one))
                raise DefinitionError(
                    f"{kind.__qualname__}.__init__ does not call super().__init__(): add it as its first line"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def __setattr__(self, name: str, value: Any) -> None:
            """Refuse a rule as an attribute, where nothing would apply it."""
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
        """The direct members, in order, without what verbs of this toolset have changed."""
        return iter(self._members)

    def bindings(self) -> list[ToolBinding]:
        """Every tool, flat and in order, not prepared for a turn."""
        return self.compiled(None)

    def compiled(self, turn: object) -> list[ToolBinding]:
        """Every tool for one turn; with `UNPREPARED`, as it is before `.prepared()` is applied."""
        if type(self).bindings is not Toolset.bindings:
            return self.bindings()
        return _flat(self._members, turn, self._bindings_of_tools)

    def compact(self, help_name: str = "tool_help") -> Toolset:
        """The toolset as a compact listing: short stubs, and a tool that returns the full definitions.

        A call of a stub runs the tool. The listing does not change, so a prompt cache stays valid.

        Args:
            help_name: The name of the tool that returns the full definitions.
        """
        # Few toolsets are listed so.
        from mcp_toolset.tools.export.compact import help_text, stubbed

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
        """The toolset with more members; `toolset + other` adds one.

        Raises:
            NameConflictError: a local tool has this name already.
        """
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
        require_kept("toolset", _VERBS, __name__)
        return made

    def __repr__(self) -> str:
        """The names of the tools, for people."""
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
    """The binding of a tool, which never changes: the same object each time."""
    found = known.get(id(tool))
    # The cached binding holds its tool, so that no other tool can get this id.
    if found is None or found.origin is not tool:
        found = known[id(tool)] = tool.bind()
    return found


def _check_names(bindings: Iterable[ToolBinding]) -> None:
    """Refuse two local tools of one name; mounted tools are renamed when they are served."""
    ToolView(binding for binding in bindings if not binding.source)


def offered_by(toolset: Toolset) -> tuple[list[ResourceProvider], list[PromptProvider]]:
    """The resources and the prompts of a toolset and of those nested in it."""
    resources, prompts = toolset._offers  # pyright: ignore[reportPrivateUsage]
    every = ([] if resources is None else [resources], [] if prompts is None else [prompts])
    for member in toolset.members():
        if isinstance(member, Toolset):
            for own, nested in zip(every, offered_by(member), strict=True):
                own.extend(one for one in cast("list[Any]", nested) if one not in own)
    return every


def _member(member: object) -> Tool[..., Any] | Toolset:
    if (declared := declared_tool(member)) is not None:
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

_VERBS = ToolsetVerbs.__module__

_DECLARED = ClassMembers(Toolset, frozenset({"name"}))


def _unmade(binding: ToolBinding) -> ToolBinding | None:
    return binding


class Transformed(Toolset[C]):
    """Another toolset with every binding passed through one step; the result of a verb."""

    def __init__(
        self,
        inner: Toolset[C],
        transform: Step,
        *,
        defers: bool = False,
        extensions: Collection[str] = (),
    ) -> None:
        """Wrap `inner`.

        Args:
            inner: The toolset.
            transform: The step.
            defers: Whether the step puts tools behind search.
            extensions: The keys of the extensions that the step turns on.
        """
        self._inner = inner
        self._transform = transform
        self._defers = defers
        self._extensions = frozenset(extensions)
        self._made = Made(transform if isinstance(transform, Each) else _unmade)
        self._named: tuple[list[ToolBinding], list[ToolBinding]] = ([], [])
        super().__init__(name=inner.name)

    def members(self) -> Iterator[Tool[..., Any] | Toolset]:
        yield self._inner

    def compiled(self, turn: object) -> list[ToolBinding]:
        """The inner bindings, each transformed."""
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
        """The sources of the inner toolset."""
        return self._inner.sources()

    def listing_sources(self) -> list[ToolSource]:
        """Those of the inner toolset, unless this step puts its tools behind search."""
        return [] if self._defers else self._inner.listing_sources()

    def set_aside(self) -> list[tuple[str, str]]:
        """Tools that this step or an inner one had to leave out."""
        inside = self._inner.set_aside()
        if not isinstance(self._transform, ArgumentStep):
            return inside
        return [*inside, *self._transform.refused(self._inner.compiled(UNPREPARED))]

    def unbound(self) -> list[UnboundName]:
        """Names that were given to this step or an inner one and match no tool."""
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
        """Whether this step or an inner one puts tools behind search."""
        return self._defers or self._inner.defers

    @property
    def extension_keys(self) -> frozenset[str]:
        """The keys of the extensions that this step or an inner one turns on."""
        return self._extensions | self._inner.extension_keys
