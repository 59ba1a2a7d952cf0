"""`ToolsetQueries`: what can be asked of a toolset: its tools, view, sources, names and typed calls.

`Toolset` inherits it. Everything here follows from the direct members and the flat bindings.
"""

from __future__ import annotations

import builtins
import typing
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, cast

from mcp_toolset.errors import NameConflictError, ToolMismatchError, UnknownToolError
from mcp_toolset.tools.binding.binding import ToolBinding
from mcp_toolset.tools.binding.selector import ToolSelector, identity
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.names import default_id
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.core.source import ToolSource, not_ready
from mcp_toolset.tools.declare.tool import Tool
from mcp_toolset.tools.toolsets.prepare import UNPREPARED
from mcp_toolset.tools.view.view import KnownTools, NameReport, ToolAvailability, ToolView, UnboundName

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from mcp_toolset.tools.declare.input import AnyCall
    from mcp_toolset.tools.declare.typed_call import Decodes

    C = TypeVar("C", bound=AnyCall, default=AnyCall, covariant=True)
else:
    C = typing.TypeVar("C", covariant=True)


class ToolsetQueries(Generic[C]):
    """The questions that a toolset answers; its members and bindings come from the subclass."""

    _missing_names: NameReport

    def members(self) -> Iterator[Tool[..., Any] | ToolsetQueries]:
        """The direct members, in order."""
        raise NotImplementedError

    def compiled(self, turn: object) -> list[ToolBinding]:
        """Every tool for one turn; with `UNPREPARED`, as it is before `.prepared()` is applied."""
        raise NotImplementedError

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
        """Whether some tools are behind search, even if a mounted server has not answered yet."""
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
            deferred: Whether deferred tools are included, for providers with their own search; by default
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

        A class toolset names the union: `class App(Toolset[DecodedCall[WebSearch, Snippets]])`.

        Args:
            call: A call, such as one of `plan.pending`.
            view: The view in which the tool was offered; without it the toolset is compiled for each call.

        Raises:
            UnknownToolError: the tool does not exist.
            ToolMismatchError: the tool has no typed calls: it was made from a schema, or is mounted.
            InvalidArgumentsError: the arguments do not fit.
        """
        from mcp_toolset.tools.declare.typed_call import Decodes

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

    def _nested(self) -> Iterator[ToolsetQueries]:
        return (member for member in self.members() if isinstance(member, ToolsetQueries))


def check_ids(bindings: Iterable[ToolBinding]) -> None:
    """Raise `NameConflictError` if two tools have one id that was chosen for one of them.

    One tool may have several names; so may the tools of several instances or of one factory.
    """
    groups: dict[tuple[str, str], list[ToolBinding]] = defaultdict(list)
    for binding in bindings:
        groups[binding.source, binding.tool_id].append(binding)
    for (_, id), group in groups.items():
        if id and len(group) > 1:
            check_id(id, group)


def check_id(id: str, group: Sequence[ToolBinding]) -> None:
    """Refuse the bindings of one id if they are different tools and the id was chosen; see `check_ids`."""
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
