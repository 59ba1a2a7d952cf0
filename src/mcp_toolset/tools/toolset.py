"""`Toolset`: tools grouped, nested and transformed; each verb returns a new toolset (L6, P1).

A toolset is a recipe. Compiling it (`bindings`, `view`) walks it once into flat bindings; nothing of
it is walked when a tool is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Any, Self, cast

import anyio

from mcp_toolset.errors import DefinitionError, StateError, sole
from mcp_toolset.tools.availability import ToolAvailability
from mcp_toolset.tools.function import Tool, tool
from mcp_toolset.tools.names import check_name, check_prefix, public_name
from mcp_toolset.tools.opening import open_sources
from mcp_toolset.tools.source import ToolSource
from mcp_toolset.tools.view import ToolBinding, ToolView

Transform = Callable[[ToolBinding], "ToolBinding | None"]
"""One step of a verb: a binding as it should be, or `None` to leave it out."""


class Toolset:
    """A group of tools, plain functions and other toolsets.

    `async with toolset:` opens what is mounted in it; a toolset of local tools needs no opening.
    """

    def __init__(
        self, *members: Tool[..., Any] | Callable[..., Any] | Toolset, name: str | None = None
    ) -> None:
        """Group `members`, in this order.

        Args:
            *members: Tools, functions (made into tools here), and toolsets.
            name: A name for messages.

        Raises:
            DefinitionError: a member is none of these, or a function cannot be a tool.
            NameConflictError: two local tools have one name (L28).
        """
        self.name = name
        self._members = tuple(_member(member) for member in members)
        self._stack: AsyncExitStack | None = None
        ToolView(binding for binding in self.bindings() if not binding.source)

    def members(self) -> Iterator[Tool[..., Any] | Toolset]:
        """The direct members, in order."""
        return iter(self._members)

    def bindings(self) -> list[ToolBinding]:
        """Every tool as it stands now, flat and in order."""
        flat: list[ToolBinding] = []
        for member in self._members:
            flat.extend([member.bind()] if isinstance(member, Tool) else member.bindings())
        return flat

    def sources(self) -> list[ToolSource]:
        """Everything in the toolset that has to be opened, each once."""
        found = [
            source for member in self._members if isinstance(member, Toolset) for source in member.sources()
        ]
        return list({id(source): source for source in found}.values())

    @property
    def defers(self) -> bool:
        """Whether some of it is behind search, even while a mounted server has not answered yet."""
        return any(isinstance(member, Toolset) and member.defers for member in self.members())

    def view(self, availability: ToolAvailability | None = None) -> ToolView:
        """The tools as a flat, frozen table (L10).

        Deferred tools are left out: they are found by search, not listed.

        Raises:
            NameConflictError: two tools have one name.
            UnknownToolError: the availability names a tool that is not here.
        """
        resident = ToolView(binding for binding in self.bindings() if not binding.deferred)
        return resident.select(availability or ToolAvailability.default())

    def prefixed(self, prefix: str) -> Toolset:
        """Every tool as `prefix_name`.

        Raises:
            DefinitionError: the prefix cannot start a tool's name.
        """
        check_prefix(prefix)
        return Transformed(
            self, lambda binding: replace(binding, name=public_name(binding.name, prefix=prefix))
        )

    def renamed(self, names: Mapping[str, str]) -> Toolset:
        """Tools under other names: `{"now": "then"}`; the others keep theirs.

        Raises:
            DefinitionError: a new name is none that the protocol allows.
            NameConflictError: two local tools have one name then.
        """
        new = {before: check_name(after, f"renamed({before!r})") for before, after in names.items()}
        return Transformed(self, lambda binding: replace(binding, name=new.get(binding.name, binding.name)))

    def filtered(
        self,
        predicate: Callable[[ToolBinding], bool] | None = None,
        *,
        include: Iterable[str] = ("*",),
        exclude: Iterable[str] = (),
    ) -> Toolset:
        """Only some of the tools, by name patterns (`get_*`) and a predicate; the rest cannot be called."""
        wanted, unwanted = tuple(include), tuple(exclude)

        def keep(binding: ToolBinding) -> ToolBinding | None:
            chosen = _matches(binding.name, wanted) and not _matches(binding.name, unwanted)
            return binding if chosen and (predicate is None or predicate(binding)) else None

        return Transformed(self, keep)

    def described(self, descriptions: Mapping[str, str]) -> Toolset:
        """Other descriptions for some tools, by name."""
        descriptions = dict(descriptions)

        def describe(binding: ToolBinding) -> ToolBinding:
            text = descriptions.get(binding.name)
            return (
                binding if text is None else replace(binding, definition=binding.definition.described(text))
            )

        return Transformed(self, describe)

    def off(self, *names: str) -> Toolset:
        """Some tools, or all when none is named, outside the default availability (L10)."""
        return Transformed(
            self,
            lambda binding: replace(binding, on=False) if not names or binding.name in names else binding,
        )

    def deferred(self) -> Toolset:
        """All tools behind search: found by meaning, resolved, granted and only then callable (X1)."""
        return Transformed(self, lambda binding: replace(binding, deferred=True), defers=True)

    async def __aenter__(self) -> Self:
        """Open every source concurrently; a slow one does not hold up the others for long (F5, F6)."""
        if self._stack is not None:
            raise StateError("this toolset is already open; enter it once, or make another")
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            has_local_tools = any(not binding.source for binding in self.bindings())
            await open_sources(group, self.sources(), has_local_tools=has_local_tools)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every source, children included."""
        stack, self._stack = self._stack, None
        if stack is None:
            return
        try:
            await stack.__aexit__(kind, fault, trace)
        except BaseExceptionGroup as group:
            # What the block itself raised leaves it as it is, not wrapped in a group of one.
            if sole(group) is not fault:
                raise

    def __repr__(self) -> str:
        """The names of the tools, for people."""
        names = ", ".join(binding.name for binding in self.bindings())
        return f"{type(self).__name__}({self.name + ': ' if self.name else ''}{names})"


class Transformed(Toolset):
    """Another toolset with every binding passed through one step; what a verb returns."""

    def __init__(self, inner: Toolset, transform: Transform, *, defers: bool = False) -> None:
        """Wrap `inner`; `defers` says that the step puts tools behind search."""
        self._inner = inner
        self._transform = transform
        self._defers = defers
        super().__init__(name=inner.name)

    def members(self) -> Iterator[Tool[..., Any] | Toolset]:
        """The toolset that is transformed."""
        yield self._inner

    def bindings(self) -> list[ToolBinding]:
        """The inner bindings, each transformed."""
        return [done for binding in self._inner.bindings() if (done := self._transform(binding)) is not None]

    def sources(self) -> list[ToolSource]:
        """The inner sources."""
        return self._inner.sources()

    @property
    def defers(self) -> bool:
        """Whether this step or anything inside puts tools behind search."""
        return self._defers or self._inner.defers


def _member(member: object) -> Tool[..., Any] | Toolset:
    if isinstance(member, Tool | Toolset):
        return cast("Tool[..., Any] | Toolset", member)
    if callable(member) and not isinstance(member, type):
        return tool(member)
    raise DefinitionError(f"a toolset takes tools, functions and toolsets, not {member!r}")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
