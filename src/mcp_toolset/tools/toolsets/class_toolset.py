"""Toolsets declared as classes: `class AppTools(Toolset): search = search_tool`.

Type checkers and editors see attributes that can be called, selected and hooked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from types import FunctionType, UnionType
from typing import Any, Generic, TypeVar, Union, cast, get_args, get_origin

from mcp_toolset._rule import SAYING, is_ours, rules_among
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.binding.binding import ToolBinding
from mcp_toolset.tools.core.names import declared_tool
from mcp_toolset.tools.declare.function import FunctionCall, FunctionTool, tool
from mcp_toolset.tools.declare.signature import is_method
from mcp_toolset.tools.declare.tool import Tool

T = TypeVar("T")

_ASKED = frozenset({"decode", "definitions", "execute", "find", "names", "view"})
"""Methods of toolsets that programs ask; servers list and call tools without them."""

_SAYING_RULES = frozenset({"rules", "hooks", "middleware", "guards", "policy", "permissions"})
"""Names of methods and properties that would say what protects the tools."""


class ClassMembers(Generic[T]):
    """Collects the tools and toolsets that classes below `base` declare."""

    def __init__(self, base: type[T], taken: frozenset[str]) -> None:
        self._base = base
        self._taken = taken

    def of(self, kind: type[T]) -> dict[str, Tool[..., Any] | T]:
        """The members of a class, inherited ones first; any other value than a tool removes one."""
        members: dict[str, Tool[..., Any] | T] = {}
        for declaring in reversed(kind.__mro__):
            is_toolset = declaring is not self._base and issubclass(declaring, self._base)
            for name, value in vars(declaring).items():
                if is_toolset and (member := self._member(name, value)) is not None:
                    members[name] = member
                else:
                    members.pop(name, None)
        return members

    def declares(self, kind: type[T], name: str) -> bool:
        return self._member(name, getattr(kind, name, None)) is not None

    def of_instance(self, instance: T) -> list[Tool[..., Any] | T]:
        found: list[Tool[..., Any] | T] = []
        for name, member in self.of(type(instance)).items():
            if isinstance(member, FunctionTool) and member.unbound:
                own = cast("FunctionTool[..., Any]", member).bound_to(instance)
                vars(instance)[name] = own
                found.append(own)
            else:
                found.append(cast("Tool[..., Any] | T", member))
        return found

    def adopt(self, kind: type[T]) -> None:
        for name, value in [*vars(kind).items()]:
            function: Any = cast("Any", value).__func__ if isinstance(value, staticmethod) else value
            if name.startswith("_") or not isinstance(cast("object", function), FunctionType | partial):
                continue
            if value is not function or not _is_plain_method(function, name, kind):
                setattr(kind, name, _made(function, f"{kind.__qualname__}.{name}"))

    def check(self, kind: type[T]) -> None:
        for name, value in vars(kind).items():
            where = f"{kind.__qualname__}.{name}"
            if self._member(name, value) is not None and (hasattr(self._base, name) or name in self._taken):
                made: Any = value
                is_own = isinstance(value, FunctionTool) and made.function.__name__ == name
                mend = f'@tool(name="{name}") above `def {name}_(…)`' if is_own else f"`{name}_ = …`"
                raise DefinitionError(
                    f"{where} would take the place of Toolset.{name}: write {mend}; the tool is called "
                    f"{getattr(made, 'name', name)!r} all the same"
                )
            is_class = isinstance(value, type) and not name.startswith("_")
            if is_class and not value.__qualname__.startswith(f"{kind.__qualname__}."):
                self._check_class(where, name, value)
            if not name.startswith("_") and self._member(name, value) is None:
                self._check_no_rule(kind, name, value)
        for where, found in self._own_tools(kind):
            if "self" in found.definition.input_schema.get("properties", {}):
                raise DefinitionError(
                    f"{where} takes self, which it would not get: leave it out, or write a bare self and no "
                    "@staticmethod, so that it is a method"
                )

    def _check_class(self, where: str, name: str, value: type) -> None:
        from pydantic import BaseModel

        if issubclass(value, self._base):
            raise DefinitionError(f"{where} is a class; write {name} = {value.__name__}()")
        if issubclass(value, BaseModel) and declared_tool(value) is None:
            raise DefinitionError(
                f"{where} is a model that is no tool: declare {value.__name__} with @tool_input, write "
                f"{name} = InputTool.of({value.__name__}), or _{name} if it is not a tool"
            )

    def _check_no_rule(self, kind: type[T], name: str, value: object) -> None:
        """Refuse what looks as if it protected the tools, and applies to nothing here."""
        where, made = f"{kind.__qualname__}.{name}", f"{kind.__name__}()"
        is_plain = not callable(value) and not hasattr(type(value), "__get__")
        is_asked = name in _ASKED and callable(value) and not is_ours(kind)
        if (is_plain or is_asked) and callable(getattr(self._base, name, None)):
            raise DefinitionError(
                f"{where} would take the place of Toolset.{name}, and has no effect: use {made}.{name}(…)"
            )
        found = next(rules_among(value), "") or (type(value).__name__ if is_plain and name in SAYING else "")
        if found:
            raise DefinitionError(
                f"{where} is a {found}, which applies to no tool as an attribute of a class: give it to "
                f"serve(…) or ToolsetServer(…), or use {made}.carrying(…); name it _{name} if you do so"
            )
        is_method = isinstance(value, FunctionType | property) and self._member(name, value) is None
        if (is_method and name in _SAYING_RULES) or (
            isinstance(value, FunctionType) and (name.endswith("_hook") or "next" in _parameters(value))
        ):
            raise DefinitionError(
                f"{where} is never asked, as methods of a toolset are no rules: put it into a class of its "
                f"own, say Guarding, and use {made}.carrying(Guarding())"
            )

    def _own_tools(self, kind: type[T]) -> Iterator[tuple[str, Tool[..., Any]]]:
        for name, value in vars(kind).items():
            if isinstance(member := self._member(name, value), Tool):
                yield f"{kind.__qualname__}.{name}", member

    def _member(self, name: str, value: object) -> Tool[..., Any] | T | None:
        if name.startswith("_"):
            return None
        if isinstance(value, staticmethod):
            value = cast("object", value.__func__)
        member = declared_tool(value) or value
        if not isinstance(member, Tool | self._base):
            return None
        return cast("Tool[..., Any] | T", member)


def _is_plain_method(function: object, name: str, kind: type) -> bool:
    if not isinstance(function, FunctionType):
        return False
    first = _parameters(function)[:1]
    is_own = function.__qualname__ == f"{kind.__qualname__}.{name}"
    return is_method(function) or (is_own and bool(first) and first[0] not in function.__annotations__)


def _parameters(function: FunctionType) -> tuple[str, ...]:
    return function.__code__.co_varnames[: function.__code__.co_argcount]


def _made(function: Any, where: str) -> Tool[..., Any]:
    try:
        return tool(function)
    except DefinitionError as fault:
        raise DefinitionError(
            f"{where} cannot be a tool: {fault}. If it is not a tool, give it a name like _helper"
        ) from None


def check_calls(kind: type, bindings: Iterable[ToolBinding]) -> None:
    """Refuse a class whose `Toolset[…]` lacks calls of its tools, so that a `match` would not be complete."""
    said = [call for base in getattr(kind, "__orig_bases__", ()) for call in _union(get_args(base))]
    kinds: list[Any] = [get_origin(call) or call for call in said]
    # Calls are told by name: importing `DecodedCall` brings pydantic's models, which take long to import.
    if not said or not {getattr(one, "__name__", "") for one in kinds} <= {"DecodedCall", "FunctionCall"}:
        return
    inputs = {get_args(call)[0]: get_args(call)[-1] for call in said if get_args(call)}
    for binding in bindings:
        tool: Any = binding.origin
        if isinstance(tool, FunctionTool):
            known, made = FunctionCall in kinds, "FunctionCall"
        else:
            declared: Any = tool.declared
            output, written = getattr(tool, "output", None), inputs.get(declared)
            if isinstance(output, type) and isinstance(written, type) and not issubclass(output, written):
                raise DefinitionError(
                    f"{kind.__qualname__}: the output of {binding.name!r} is {output.__name__}, not "
                    f"{written.__name__}: write DecodedCall[{declared.__name__}, {output.__name__}]"
                )
            known, made = declared in inputs, f"DecodedCall[{getattr(declared, '__name__', declared)}, …]"
        if not known:
            raise DefinitionError(
                f"{kind.__qualname__} does not say that it decodes calls of {binding.name!r}: add {made} to "
                "the union in Toolset[…]"
            )


def _union(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    first = arguments[0] if arguments else None
    return get_args(first) if get_origin(first) in (Union, UnionType) else arguments
