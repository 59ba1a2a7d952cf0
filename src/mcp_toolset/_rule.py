"""`Rule`: what decides about calls, such as a `HookSet` or a `Policy`; it acts only where something takes it.

A rule that nothing takes protects nothing, and no other program text tells. So a rule notes that it was
taken, and the places where rules are written by mistake refuse them.
"""

from __future__ import annotations

import dis
import inspect
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from opcode import opmap
from types import CodeType, FunctionType
from typing import Any, ClassVar, Final, Self, cast

from mcp_toolset.errors import DefinitionError

_CACHE: Final = opmap.get("CACHE", 0)
_POP_TOP: Final = opmap["POP_TOP"]
_REGEX: Final = re.compile(r"^\^|\$$|\\|\||\.\+|\(.*\)")
_LETTERS: Final = re.compile(r"[A-Za-z]")
_LONG: Final = 5
"""Letters of a pattern of which one may be mistyped and the rest still tell what is meant."""

_FEW: Final = 3
_NEAR: Final = 0.75
_NEARER: Final = 0.88
"""Thresholds of the similarity of two names of parts of a class, from 0 to 1."""

_OF_CALLS: Final = (["call", "context"], ["result", "call"], ["params", "ctx"])
"""The first parameters of functions that decide about calls, here and in extensions of the MCP SDK."""

_ATTRIBUTES: Final = frozenset(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD"))


class Rule:
    """Something that decides about calls, once it is given to a server, a loop or a toolset."""

    __slots__ = ("_is_taken",)

    _decides: ClassVar[Collection[str]] = ()
    """Methods that a subclass outside of the package cannot replace: calls are decided without them."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Refuse rules as attributes of a class that is itself a rule, where nothing would apply them."""
        super().__init_subclass__(**keywords)
        if not is_ours(cls):
            refuse_rules_in(cls, "give it to the object, when it is made")
            refuse_replaced(cls, cls._decides, "write a hook or middleware")
            _refuse_unasked(cls)

    def taken(self) -> Self:
        """The rule, noted as given to something that applies it."""
        object.__setattr__(self, "_is_taken", True)
        take(*self._parts())
        return self

    def _parts(self) -> Sequence[object]:
        """Its parts, such as the functions of a set of hooks; they are taken with it."""
        return ()

    @property
    def is_taken(self) -> bool:
        """True if something that applies it has taken it, or it says nothing that could apply."""
        return getattr(self, "_is_taken", False)


SAYING: Final = frozenset(
    ("rules", "hooks", "middleware", "tool_middleware", "guards", "policy", "permissions", "limits", "auth")
    + ("allow", "ask", "deny", "include", "exclude")
)
"""Names of attributes by which a class would say what protects its tools."""


def refuse_rules_in(kind: type, mend: str) -> None:
    """Raise `DefinitionError` for a rule that a class has as an attribute, or a method named as a hook.

    A class with an `__init__` of its own may pass its attributes on.
    """
    own = _of_application(kind)
    if any("__init__" in vars(one) for one in own):
        return
    base = next(one for one in kind.__mro__ if one not in own)
    known = {"middleware", *inspect.signature(base).parameters}
    for name, value in vars(kind).items():
        is_plain = not callable(value) and not hasattr(cast("object", type(value)), "__get__")
        found = next(rules_among(value), "") or (type(value).__name__ if is_plain and name in known else "")
        if _is_hook(name, value):
            found = "hook"
        if found and not name.startswith("_"):
            raise DefinitionError(
                f"{kind.__qualname__}.{name} is a {found}, which applies to nothing as an attribute of a "
                f"class: {mend}"
            )


def refuse_replaced(kind: type, names: Collection[str], mend: str) -> None:
    """Raise `DefinitionError` for a method of a subclass that nothing asks in the place of the base's."""
    for name in vars(kind):
        if name in names:
            base = next(one for one in kind.__mro__ if is_ours(one) and hasattr(one, name))
            raise DefinitionError(
                f"{kind.__qualname__}.{name} takes the place of {base.__name__}.{name}, by which calls "
                f"are not decided, so it would protect nothing: {mend}, or give the method another name"
            )


def _refuse_unasked(kind: type) -> None:
    """Raise `DefinitionError` for methods of a rule that would decide about calls, if nothing asks them.

    A class that replaces a method, such as `__call__` or `__init__`, may ask its other methods itself.
    """
    is_async = inspect.iscoroutinefunction
    own = {name: one for name, one in vars(kind).items() if isinstance(one, FunctionType)}
    for name, one in own.items():
        found = next((vars(base)[name] for base in kind.__mro__[1:] if name in vars(base)), None)
        is_common = name != "__init__" and found is vars(object).get(name)
        if found is not None and not is_common and (is_async(found) or not is_async(one)):
            return
    for name, one in own.items():
        takes_call = one.__code__.co_varnames[1 : one.__code__.co_argcount][:1] == ("call",)
        is_public = not name.startswith("_") or name == "__call__"
        if is_public and (takes_call or is_async(one)):
            raise DefinitionError(
                f"{kind.__qualname__}.{name} is asked by no call, so it would protect nothing: write a hook "
                f"or middleware; if {name} has another use, begin its name with an underscore"
            )


def refuse_unasked_in(given: object, base: type) -> None:
    """Raise `DefinitionError` for a part of an object that looks like one of `base`, or like a rule.

    No call asks for it. What the code of the class names itself has a use, and so has what begins with an
    underscore.
    """
    kind = type(given)
    slots = {name: _parameters(one) for name, one in vars(base).items() if not name.startswith("_")}
    if late := [one for one in vars(given) if slots.get(one) is not None]:
        raise DefinitionError(
            f"{kind.__qualname__}.{late[0]} is set on the object, where no call asks for it: define "
            f"{late[0]} in the class"
        )
    own = _of_application(kind)
    parts = {name: value for one in reversed(own) for name, value in vars(one).items()}
    used = {name for one in own for value in vars(one).values() for name in _attributes_in(_code_of(value))}
    for name, value in parts.items():
        if name.startswith("_") or name in used or hasattr(base, name):
            continue
        taken = _parameters(value)
        near = (
            ""
            if taken is None
            else _near(name, taken, {one: slots[one] for one in slots if one not in parts})
        )
        says = name in SAYING and (bool(value) if taken is None else not taken)
        is_rule = says or any(rules_among(value)) or _is_hook(name, value) or (taken or [])[:2] in _OF_CALLS
        if near or is_rule:
            mend = f"did you mean `{near}`?" if near else "return a rule from `guard`, or write `sent`"
            raise DefinitionError(
                f"{kind.__qualname__}.{name} is asked by no call, so it would protect nothing: {mend}; if "
                f"{name} has another use, begin its name with an underscore"
            )


def _near(name: str, taken: Sequence[str], slots: Mapping[str, list[str] | None]) -> str:
    """The method that is meant by a name: a close one with the same parameters, or as many of them."""
    from difflib import get_close_matches

    for one in get_close_matches(name, slots, 3, _NEAR):
        asked = slots[one]
        is_same = asked is not None and len(asked) == len(taken)
        if is_same and (asked == [*taken] or get_close_matches(name, [one], 1, _NEARER)):
            return one
    return ""


def _code_of(member: object) -> CodeType | None:
    """The code of a method or a property."""
    function = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
    return function.__code__ if isinstance(function, FunctionType) else None


def _parameters(member: object) -> list[str] | None:
    """The names of what a method takes, beside the object; `None` for what is no method."""
    code = _code_of(member)
    if code is None:
        return None
    return [*code.co_varnames[0 if isinstance(member, staticmethod) else 1 : code.co_argcount]]


def _attributes_in(code: CodeType | None) -> Iterator[str]:
    """The names of attributes in some code, and in the functions in it."""
    for one in () if code is None else dis.get_instructions(code):
        if one.opname in _ATTRIBUTES:
            yield str(one.argval)
        elif isinstance(one.argval, CodeType):
            yield from _attributes_in(one.argval)


def _of_application(kind: type) -> list[type]:
    """The classes of the application that a class consists of."""
    return [one for one in kind.__mro__ if not is_ours(one) and one is not object]


def is_ours(kind: type) -> bool:
    """True if a class is of this package."""
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def take(*values: object) -> None:
    """Note those of some values that are rules as taken."""
    for value in values:
        if isinstance(value, Rule):
            Rule.taken(value)  # a subclass of the application may have an attribute of this name
        elif getattr(value, "_is_taken", True) is False:
            cast("Any", value)._is_taken = True


def rules_among(value: object) -> Iterator[str]:
    """The kinds of the rules that a value is or holds: rules themselves, and objects with hooks."""
    if isinstance(value, Rule) or _has_hooks(type(value)):
        yield type(value).__name__
    elif is_middleware(value):
        yield "layer of middleware"
    elif isinstance(value, Mapping):
        yield from (kind for one in cast("Mapping[Any, object]", value).values() for kind in rules_among(one))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from (kind for one in cast("list[object]", value) for kind in rules_among(one))


def is_middleware(value: object) -> bool:
    """True if a value is a function that can only be middleware."""
    if not isinstance(value, FunctionType) or not inspect.iscoroutinefunction(value):
        return False
    return value.__code__.co_varnames[: value.__code__.co_argcount] == ("call", "context", "next")


@lru_cache(maxsize=256)
def _has_hooks(kind: type) -> bool:
    """True if a class of the application has methods named as hooks are, such as `weather_hook`."""
    if kind.__module__ == "builtins" or is_ours(kind):
        return False
    return any(_is_hook(name, one) for name, one in vars(kind).items())


def _is_hook(name: str, member: object) -> bool:
    """True if a member of a class is named and made as a hook, such as `async def weather_hook`."""
    return name.endswith("_hook") and not name.startswith("_") and inspect.iscoroutinefunction(member)


def require_one_form(rule: object) -> None:
    """Raise `DefinitionError` for hook, middleware or guard with methods that are named as hooks are."""
    kind = type(rule)
    for name in () if is_ours(kind) else dir(kind):
        method = inspect.getattr_static(kind, name)
        if _is_hook(name, getattr(method, "__func__", method)):
            raise DefinitionError(
                f"{kind.__qualname__} decides itself, so no call asks {kind.__qualname__}.{name}: give them "
                "apart, as two objects, or begin the name with an underscore"
            )


def idle_rules(space: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The name and the kind of each rule among some variables that nothing has taken.

    A name that begins with an underscore says that the rule is for something else.
    """
    sets = [one for value in space.values() for one in _held(value) if isinstance(one, Rule)]
    named = {id(function) for one in sets for function in one._parts()}  # pyright: ignore[reportPrivateUsage]
    for name, value in space.items():
        for one in _held(value) if not name.startswith("_") else ():
            if isinstance(one, FunctionType) and getattr(one, "_is_taken", True) is False:
                is_hook = hasattr(one, "_is_hook")
                if not is_hook:
                    yield name, "middleware"
                elif id(one) not in named and one.__module__ == space.get("__name__"):
                    yield name, "hook of a HookSet"
            elif isinstance(one, Rule) and not one.is_taken:
                yield name, type(one).__name__


def _held(value: object) -> Iterator[object]:
    """A value, or the values in it, in dictionaries and lists of any depth."""
    if isinstance(value, dict):
        value = [*cast("dict[Any, object]", value).values()]
    if isinstance(value, list | tuple):
        yield from (inner for one in cast("list[object]", value) for inner in _held(one))
    else:
        yield value


def fault_of_syntax(pattern: str) -> tuple[str, str] | None:
    """The fault of a pattern of tools in another notation, which would fit nothing; and the remedy."""
    if pattern.startswith("!") or pattern.startswith("not "):
        return "excludes nothing here", "write the names that it is for; of characters, `[!x]` is all but x"
    if "[^" in pattern:
        return "has `[^`, which stands for itself here", f"write `{pattern.replace('[^', '[!')}`"
    if _REGEX.search(pattern):
        return (
            "is a regular expression",
            "write `*` for any characters, `?` for one and `[abc]` for one of these",
        )
    if "," in pattern or "{" in pattern:
        return "is several names in one", "write each by itself"
    return None


def slip_in(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern would fit but for a slip: another case, blanks, letters swapped or doubled.

    `.*` may be written for `*`, and `%` too.
    """
    plain = pattern.strip()
    ways = [plain.lower(), re.sub(r"\.\*|%", "*", plain).lower()]
    if len(_LETTERS.findall(plain)) >= _LONG:
        low = plain.lower()
        spots = [at for at in range(1, len(low)) if low[at - 1].isalpha() and low[at].isalpha()]
        ways += [low[: at - 1] + low[at] + low[at - 1] + low[at + 1 :] for at in spots]
        ways += [low[:at] + low[at + 1 :] for at in spots]
        ways += [f"{low[:at]}?{low[at:]}" for at in spots]
    ways = [way for way in ways if way.strip("*?")]
    return [name for name in dict.fromkeys(names) if any(fnmatchcase(name.lower(), way) for way in ways)][
        :_FEW
    ]


def require_kept(new: str, *modules: str) -> None:
    """Refuse a statement that makes something new and throws it away: `toolset.off("pay")` alone.

    Args:
        new: The result, such as `toolset`.
        modules: The modules that the maker consists of; the first frame outside of them is the statement.

    Raises:
        DefinitionError: the call is a statement by itself.
    """
    if at := _thrown_away(modules):
        line, made = at
        raise DefinitionError(
            f"{made}(…) changes nothing in place: it returns a new {new}, which {line} throws away; write "
            f"{new} = {new}.{made}(…), and use that one"
        )


def require_given(what: str, *modules: str) -> None:
    """Refuse a statement that makes a decision and throws it away: `Reject("no")` without `return`.

    Raises:
        DefinitionError: the call is a statement by itself.
    """
    if at := _thrown_away(modules):
        raise DefinitionError(f"{what}(…) decides nothing, as {at[0]} throws it away; write return {what}(…)")


def _is_of_record(code: CodeType) -> bool:
    """True if code is the `__init__` that was made for a dataclass."""
    return (code.co_filename, code.co_name) == ("<string>", "__init__")


def _thrown_away(modules: tuple[str, ...]) -> tuple[str, str] | None:
    """The line that throws away what code of some modules makes, and the function that it calls there."""
    frame, made = inspect.currentframe(), ""
    frame = frame and frame.f_back
    frame = frame and frame.f_back
    while frame is not None and (frame.f_globals.get("__name__") in modules or _is_of_record(frame.f_code)):
        if frame.f_code.co_name == "<module>":  # what is outside is the import of the module
            return None
        frame, made = frame.f_back, frame.f_code.co_name
    # Other interpreters, and compiled code, may have other instructions.
    if frame is None or frame.f_lasti < 0 or sys.implementation.name != "cpython":
        return None
    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while at < len(code) and code[at] == _CACHE:
        at += 2
    if at < len(code) and code[at] == _POP_TOP:
        return f"line {frame.f_lineno} of {frame.f_code.co_filename}", made
    return None
