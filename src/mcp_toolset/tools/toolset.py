"""`Toolset`: tools grouped, nested and transformed; each verb returns a new toolset.

A toolset is a recipe: compiling it (`bindings`, `view`) gives flat bindings, and a call does not walk it.
Its sources are opened and closed all at once, and the slow ones reported.
"""

from __future__ import annotations

import builtins
import sys
import typing
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, cast, overload

import anyio
import anyio.abc
import anyio.lowlevel

from mcp_toolset._records import dataclass
from mcp_toolset._rule import require_kept, rules_among
from mcp_toolset.errors import (
    DefinitionError,
    NameConflictError,
    StateError,
    ToolMismatchError,
    UnknownToolError,
    sole,
)
from mcp_toolset.tools.binding import ToolBinding, ToolSelector, identity
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition, declared_tool, default_id
from mcp_toolset.tools.hidden_text import visible
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import PromptProvider, ResourceProvider, ToolSource, not_ready
from mcp_toolset.tools.tool import ClassMembers, FunctionTool, Tool, check_calls, tool
from mcp_toolset.tools.transform import UNPREPARED, ArgumentStep, NamedStep, PreparedStep, TurnStep
from mcp_toolset.tools.verbs import Step, ToolsetVerbs
from mcp_toolset.tools.view import (
    Each,
    KnownTools,
    Made,
    NameReport,
    ToolAvailability,
    ToolView,
    UnboundName,
    distinct,
    same,
)

QUIET: Final = 1.0  # Seconds of waiting before the first line; most servers are ready earlier.


class OpeningReport:
    """Lines on a terminal after `QUIET` seconds: which servers are waited for, and each outcome."""

    def __init__(self, sources: Sequence[ToolSource]) -> None:
        self._all = len(sources)
        self._waiting = list(sources)
        self._speaks = False
        self._done = anyio.Event()
        if not sources:
            self._done.set()

    async def run(self) -> None:
        with anyio.move_on_after(QUIET):
            await self._done.wait()
            return
        self._speaks = sys.stderr.isatty()
        self._say(f"waiting for {self._names()} {self._count()} …")

    def settled(self, source: ToolSource) -> None:
        if source not in self._waiting:
            return
        self._waiting.remove(source)
        status = source.status
        outcome = f"{status.tools} tools" if status.is_up else status.reason
        self._say(f"{source.source_name}: {status.state} ({outcome}) {self._count()}")
        if not self._waiting:
            self._done.set()

    def ended(self) -> None:
        if self._waiting:
            self._say(f"going on without {self._names()}: still starting")

    def _names(self) -> str:
        return ", ".join(source.source_name for source in self._waiting)

    def _count(self) -> str:
        return f"({self._all - len(self._waiting)} of {self._all} servers settled)"

    def _say(self, line: str) -> None:
        if self._speaks:
            sys.stderr.write(f"mcp-toolset: {visible(line)}\n")
            sys.stderr.flush()


PATIENCE: Final = 3.0  # Seconds that an opened server with a usable tool waits for the rest.


MOMENT: Final = 1.0  # Seconds for servers in this process, if nothing else is waited for.


@dataclass(frozen=True, slots=True)
class OpeningWait:
    """How long opening waits for the first attempts of the sources."""

    # Seconds; `None` leaves it to each source's `start_timeout`, 0 waits for this process alone.
    limit: float | None = None
    # Seconds to wait for the rest once something is usable; `None` waits for all.
    patience: float | None = None
    tells: bool = False  # Whether to report on a terminal which sources are waited for.


class _Settled(anyio.abc.TaskStatus[None]):
    """Notes that a source's first attempt has succeeded or failed."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    def started(self, value: Any = None) -> None:
        self.event.set()


async def open_sources(
    group: anyio.abc.TaskGroup, sources: Sequence[ToolSource], waiting: OpeningWait, *, has_local_tools: bool
) -> None:
    opened = [(source, _Settled()) for source in sources]
    for source, status in opened:
        group.start_soon(partial(source.run, task_status=status))
    # All sources have started their first attempts by now, and their statuses say so.
    await anyio.lowlevel.checkpoint()
    if waiting.limit == 0:
        opened = [(source, status) for source, status in opened if getattr(source, "at_hand", False)]
    if not opened:
        return
    report = OpeningReport(sources if waiting.tells else ())
    with anyio.CancelScope() as scope:
        if waiting.limit is not None:
            scope.deadline = anyio.current_time() + (waiting.limit or MOMENT)
        if has_local_tools:
            _hurry(scope, waiting.patience)
        async with anyio.create_task_group() as watch:
            for source, status in opened:
                watch.start_soon(_watch, source, status, scope, waiting.patience, report)
            watch.start_soon(report.run)
    report.ended()


async def _watch(
    source: ToolSource,
    status: _Settled,
    scope: anyio.CancelScope,
    patience: float | None,
    report: OpeningReport,
) -> None:
    await status.event.wait()
    report.settled(source)
    if source.status.is_up:
        _hurry(scope, patience)


def _hurry(scope: anyio.CancelScope, patience: float | None) -> None:
    if patience is not None:
        scope.deadline = min(scope.deadline, anyio.current_time() + patience)


async def settled(sources: Sequence[ToolSource]) -> None:
    for source in sources:
        changed = anyio.Event()
        stop = source.on_change(changed.set)
        try:
            while source.status.state == "starting":
                await changed.wait()
                stop()
                changed = anyio.Event()
                stop = source.on_change(changed.set)
        finally:
            stop()


async def unwind(
    stack: AsyncExitStack,
    kind: type[BaseException] | None,
    fault: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Close what a stack holds; an error of the block is raised itself, not in a group of one."""
    try:
        await stack.__aexit__(kind, fault, trace)
    except BaseExceptionGroup as group:
        if sole(group) is not fault:
            raise


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from mcp_toolset.tools.binding import InputClass
    from mcp_toolset.tools.input import AnyCall, Decodes

    C = TypeVar("C", bound=AnyCall, default=AnyCall, covariant=True)
    D = TypeVar("D", bound=AnyCall)
else:
    C = typing.TypeVar("C", covariant=True)


class Toolset(ToolsetVerbs["Toolset[C]"], Generic[C]):
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
        return KnownTools(self.everything, self.sources(), verbs=self.unbound)

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
            availability: Which tools; by default those that are on.
            turn: A value for this request, which the functions of `.prepared()` get.
            deferred: True if deferred tools are included, for providers with their own search; by default
                they are left out, because they are found by search, not listed.

        Raises:
            NameConflictError: two tools have one name, or one id that was chosen for one of them.
            UnknownToolError: the availability names an unknown tool; as `ToolNotReadyError`, with the servers
                and their states, while a mounted server that may have it is not ready.
            DefinitionError: a function of `.prepared()` needs a turn of another type.
        """
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

    def definitions(self) -> list[ToolDefinition]:
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
        """Run one tool from JSON arguments, on or off, under `rules` if given; see `ToolView.execute`.

        The toolset is compiled for it: for many calls take `view()` once and use `view.execute`.
        """
        view = self.view(ToolAvailability.all())
        try:
            name = view[selector].name
        except UnknownToolError as fault:
            raise not_ready(fault, self.sources()) from None
        return await view.execute(name, arguments, context, rules=rules)

    def _nested(self) -> Iterator[Toolset]:
        return (member for member in self.members() if isinstance(member, Toolset))

    _stack: AsyncExitStack | None = None

    async def __aenter__(self) -> Self:
        await self._open(OpeningWait(tells=True))
        return self

    @asynccontextmanager
    async def opened(self, *, patience: float | None = None) -> AsyncGenerator[Self]:
        """Open every source for the length of a block, and wait for them at most `patience` seconds.

        A source that is not ready then continues to start; its tools join when it is. `None` waits for all.
        """
        async with self.opening(OpeningWait(limit=patience, tells=True)):
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
        require_kept("toolset", _VERBS, __name__)
        return made

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


def offered_by(toolset: Toolset) -> tuple[list[ResourceProvider], list[PromptProvider]]:
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
    if not isinstance(tool, Tool) or tool.id in (default_id(tool.name, tool.function), f"tool:{tool.name}"):
        return ""
    return tool.id
