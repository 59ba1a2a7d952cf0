"""`Rule`: what decides about calls, such as a `HookSet` or a `Policy`; it acts only where something takes it.

A rule that nothing takes protects nothing, and no other program text tells. So a rule notes that it was
taken, and the places where rules are written by mistake refuse them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from opcode import opmap
from typing import Any, Final, Self, cast

from mcp_toolset.errors import DefinitionError

_CACHE: Final = opmap.get("CACHE", 0)
_POP_TOP: Final = opmap["POP_TOP"]


class Rule:
    """Something that decides about calls, once it is given to a server, a loop or a toolset."""

    __slots__ = ("_is_taken",)

    def taken(self) -> Self:
        """The rule, noted as given to something that applies it."""
        object.__setattr__(self, "_is_taken", True)
        return self

    @property
    def is_taken(self) -> bool:
        """Whether something that applies it has taken it, or it says nothing that could apply."""
        return getattr(self, "_is_taken", False)


def take(*values: object) -> None:
    """Note those of some values that are rules as taken."""
    for value in values:
        if isinstance(value, Rule):
            value.taken()


def rules_among(value: object) -> Iterator[str]:
    """The kinds of the rules that a value is or holds: rules themselves, and objects with hooks."""
    if isinstance(value, Rule) or _is_policy_object(value):
        yield type(value).__name__
    elif isinstance(value, Mapping):
        yield from (kind for one in cast("Mapping[Any, object]", value).values() for kind in rules_among(one))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from (kind for one in cast("list[object]", value) for kind in rules_among(one))


def _is_policy_object(value: object) -> bool:
    """Whether an object has methods named as hooks are, such as `weather_hook`."""
    kind = type(value)
    return kind.__module__ != "builtins" and any(
        name.endswith("_hook") and not name.startswith("_") and inspect.iscoroutinefunction(one)
        for name, one in vars(kind).items()
    )


def idle_rules(space: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The name and the kind of each rule among some variables that nothing has taken.

    A name that begins with an underscore says that the rule is for something else.
    """
    for name, value in space.items():
        if not name.startswith("_") and isinstance(value, Rule) and not value.is_taken:
            yield name, type(value).__name__


def require_kept(new: str, *modules: str) -> None:
    """Refuse a statement that makes something new and throws it away: `toolset.off("pay")` alone.

    Args:
        new: What is made, such as `toolset`.
        modules: The modules that the maker consists of; the first frame outside of them is the statement.

    Raises:
        DefinitionError: the call is a statement by itself.
    """
    frame, made = inspect.currentframe(), ""
    frame = frame and frame.f_back
    while frame is not None and frame.f_globals.get("__name__") in modules:
        frame, made = frame.f_back, frame.f_code.co_name
    # Other interpreters, and compiled code, may have other instructions.
    if frame is None or frame.f_lasti < 0 or sys.implementation.name != "cpython":
        return
    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while at < len(code) and code[at] == _CACHE:
        at += 2
    if at < len(code) and code[at] == _POP_TOP:
        raise DefinitionError(
            f"{made}(…) changes nothing in place: it returns a new {new}, which line {frame.f_lineno} of "
            f"{frame.f_code.co_filename} throws away; write {new} = {new}.{made}(…), and use that one"
        )
