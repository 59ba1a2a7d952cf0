"""Toolsets declared as classes: `class AppTools(Toolset): search = search_tool` (L6, L7).

The attributes are the tools themselves, so a type checker and an editor know them as what can be
called, selected and hooked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.tool import Tool

T = TypeVar("T")


class ClassMembers(Generic[T]):
    """Reads the tools and toolsets that classes below `base` declare."""

    def __init__(self, base: type[T], taken: frozenset[str]) -> None:
        """Read for subclasses of `base`; `taken` are further names that its instances use."""
        self._base = base
        self._taken = taken

    def of(self, kind: type[T]) -> list[Tool[..., Any] | T]:
        """The members of a class: inherited ones first, then its own, in the order of definition.

        A subclass that gives an inherited name to another tool puts it in the same place; one that
        gives it to anything else, such as `None`, takes the tool out.
        """
        members: dict[str, Tool[..., Any] | T] = {}
        for declaring in reversed(kind.__mro__):
            if declaring is not self._base and issubclass(declaring, self._base):
                for name, value in vars(declaring).items():
                    if (member := self._member(name, value)) is not None:
                        members[name] = member
                    else:
                        members.pop(name, None)
        return list(members.values())

    def check(self, kind: type[T]) -> None:
        """Refuse what a class declares and cannot mean.

        Raises:
            DefinitionError: a member has the name of a method of toolsets, is a class instead of a
                toolset, or is a method that is not bound.
        """
        for name, value in vars(kind).items():
            where = f"{kind.__qualname__}.{name}"
            if self._member(name, value) is not None and (hasattr(self._base, name) or name in self._taken):
                raise DefinitionError(
                    f"{where} would take the place of Toolset.{name}; give the attribute another name: "
                    "the tool's own name stays as it is"
                )
            if isinstance(value, type) and issubclass(value, self._base) and not _is_inside(value, kind):
                raise DefinitionError(f"{where} is a class; write {name} = {value.__name__}()")
        for where, tool in self._own_tools(kind):
            if "self" in tool.definition.input_schema.get("properties", {}):
                raise DefinitionError(
                    f"{where} takes self, which nobody gives it: leave it out, or bind the method with "
                    f"Toolset(instance.{tool.__name__})"
                )

    def _own_tools(self, kind: type[T]) -> Iterator[tuple[str, Tool[..., Any]]]:
        for name, value in vars(kind).items():
            if isinstance(member := self._member(name, value), Tool):
                yield f"{kind.__qualname__}.{name}", member

    def _member(self, name: str, value: object) -> Tool[..., Any] | T | None:
        if isinstance(value, staticmethod):
            value = cast("object", value.__func__)
        if name.startswith("_") or not isinstance(value, Tool | self._base):
            return None
        return cast("Tool[..., Any] | T", value)


def _is_inside(inner: type, outer: type) -> bool:
    return inner.__qualname__.startswith(f"{outer.__qualname__}.")
