"""`dataclass` and `replace`, as in the standard library, for a start and calls that take less time.

The standard library compiles six functions for a class, which was a fifth of the start of a hub. Here only
`__init__` is compiled; `==`, `hash`, `repr` and the refusal to assign are closures over the names of
the fields. What else the standard library has for dataclasses takes these classes as its own.
Classes that inherit from dataclasses, are ordered or have `InitVar` are left to the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from dataclasses import dataclass as standard
from functools import lru_cache
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:

    def dataclass(kind: type | None = None, /, **options: Any) -> Any:
        """Make a dataclass of a class; the options are `frozen`, `slots`, `eq`, `repr` and `kw_only`."""
        return _made(kind, **options) if kind is not None else lambda kind: _made(kind, **options)

    def replace(record: Any, /, **changes: Any) -> Any:
        """A record like this one, with other values in some fields."""
        names, values = _parts(type(record))
        return type(record)(**{**dict(zip(names, values(record), strict=True)), **changes})


@lru_cache(maxsize=1024)
def _parts(kind: Any) -> tuple[Sequence[str], Callable[[Any], tuple[Any, ...]]]:
    """The names of the fields of a new record, and the readers of their values."""
    names = [each.name for each in fields(kind) if each.init]
    return names, _values(names)


_set = object.__setattr__
_MANY = 8
"""Fields of a frozen record from which on it is filled while it is of a class that is not frozen.

That takes a third of the time; a call makes several `ToolCall`s.
"""


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _made(
    kind: Any, *, frozen: bool = False, eq: bool = True, repr: bool = True, slots: bool = False, **rest: Any
) -> Any:
    if rest.get("order") or any(hasattr(base, "__dataclass_fields__") for base in kind.__bases__):
        return standard(frozen=frozen, eq=eq, repr=repr, slots=slots, **rest)(kind)
    own: dict[str, Any] = {**vars(kind)}
    hashes = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
    kind = standard(init=False, eq=False, repr=False, slots=slots, **rest)(kind)
    found = fields(kind)
    _put(kind, _initializer(kind, found, frozen=frozen, slots=slots))
    if repr:
        _put(kind, _shown([each.name for each in found if each.repr]))
    if eq:
        values = _values([each.name for each in found if each.compare])
        _put(kind, _equal(values))
        if not hashes:
            hashed = [each.name for each in found if (each.compare if each.hash is None else each.hash)]
            kind.__hash__ = _hash(_values(hashed)) if frozen else None
    if frozen:
        _freeze(kind, [each.name for each in found] if slots else None)
    said = kind.__dataclass_params__
    said.init, said.repr, said.eq, said.frozen = True, repr, eq, frozen
    return kind


def _put(kind: Any, method: Any) -> None:
    """Give a class a method, unless it defines that itself."""
    if method.__name__ not in vars(kind):
        method.__qualname__ = f"{kind.__qualname__}.{method.__name__}"
        setattr(kind, method.__name__, method)


def _initializer(kind: Any, found: Sequence[Field[Any]], *, frozen: bool, slots: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"_set_": _set, "_factory_": _FACTORY}
    taken: list[str] = ["self"]
    named: list[str] = []
    filled: list[tuple[str, str]] = []
    for each in found:
        name, value = each.name, each.name
        preset = _preset(each, names)
        if each.init:
            (named if each.kw_only else taken).append(name + preset)
        if each.default_factory is not MISSING:
            made = f"_made_{name}()"
            value = f"{made} if {name} is _factory_ else {name}" if each.init else made
        elif not each.init:
            if not slots or each.default is MISSING:
                continue  # a default is the attribute of the class
            value = f"_default_{name}"
        filled.append((name, value))
    lines = [
        f"_set_(self, {name!r}, {value})" if frozen else f"self.{name} = {value}" for name, value in filled
    ]
    if frozen and slots and len(filled) >= _MANY and kind.__bases__ == (object,):
        names["_kind_"], names["_open_"] = kind, type(kind.__name__, (), {"__slots__": kind.__slots__})
        lines = [
            # A class that inherits it may have other slots.
            "if self.__class__ is _kind_:",
            ' _set_(self, "__class__", _open_)',
            *(f" self.{name} = {value}" for name, value in filled),
            " self.__class__ = _kind_",
            "else:",
            *(f" {line}" for line in lines),
        ]
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join([*taken, *(["*", *named] if named else [])])
    exec(f"def __init__({parameters}):\n " + ("\n ".join(lines) or "pass"), names)
    made = names["__init__"]
    made.__module__ = kind.__module__
    made.__annotations__ = {each.name: each.type for each in found if each.init} | {"return": None}
    return made


def _preset(each: Field[Any], names: dict[str, Any]) -> str:
    """The default of a parameter, as its source."""
    if each.default_factory is not MISSING:
        names[f"_made_{each.name}"] = each.default_factory
        return "=_factory_"
    if each.default is MISSING:
        return ""
    names[f"_default_{each.name}"] = each.default
    return f"=_default_{each.name}"


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads these attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    one = attrgetter(*names) if names else None
    return lambda record: () if one is None else (one(record),)


def _equal(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


def _shown(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        said = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({said})"

    return __repr__


def _freeze(kind: Any, slots: Sequence[str] | None) -> None:
    """Refuse to assign to fields; with `slots`, copying and pickling need methods for that too."""

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is kind or name in kind.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        cast("Any", super(kind, self)).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is kind or name in kind.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        cast("Any", super(kind, self)).__delattr__(name)

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in slots or ()]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(slots or (), state, strict=True):
            _set(self, name, value)

    for method in (__setattr__, __delattr__, *((__getstate__, __setstate__) if slots is not None else ())):
        _put(kind, method)
