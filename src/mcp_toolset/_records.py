"""`dataclass` and `replace`: those of the standard library, with a faster start and faster calls.

The standard library compiles six functions for each class, which was a fifth of the start of a hub. Here only
`__init__` is compiled; `==`, `hash`, `repr` and the refusal to assign are closures over the names of the
fields. The other functions of `dataclasses`, such as `fields`, accept these classes. The standard library
makes the classes that inherit from dataclasses, are ordered or have `InitVar`.
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
        return _dataclass(kind, **options) if kind is not None else lambda kind: _dataclass(kind, **options)

    def replace(record: Any, /, **changes: Any) -> Any:
        """A copy of a record with other values in some fields."""
        names, values = _fields_of(type(record))
        return type(record)(**{**dict(zip(names, values(record), strict=True)), **changes})


@lru_cache(maxsize=1024)
def _fields_of(kind: Any) -> tuple[Sequence[str], Callable[[Any], tuple[Any, ...]]]:
    """The names of the fields that `__init__` takes, and a reader of their values."""
    names = [entry.name for entry in fields(kind) if entry.init]
    return names, _values(names)


_set = object.__setattr__
_MANY = 8
"""The number of fields from which on a frozen record is filled as an instance of an unfrozen class.

That takes a third of the time; a call makes several `ToolCall`s.
"""


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _dataclass(
    kind: Any, *, frozen: bool = False, eq: bool = True, repr: bool = True, slots: bool = False, **rest: Any
) -> Any:
    if rest.get("order") or any(hasattr(base, "__dataclass_fields__") for base in kind.__bases__):
        return standard(frozen=frozen, eq=eq, repr=repr, slots=slots, **rest)(kind)
    own: dict[str, Any] = {**vars(kind)}
    has_hash = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
    kind = standard(init=False, eq=False, repr=False, slots=slots, **rest)(kind)
    entries = fields(kind)
    _add(kind, _initializer(kind, entries, frozen=frozen, slots=slots))
    if repr:
        _add(kind, _repr_method([entry.name for entry in entries if entry.repr]))
    if eq:
        values = _values([entry.name for entry in entries if entry.compare])
        _add(kind, _eq_method(values))
        if not has_hash:
            hashed = [
                entry.name for entry in entries if (entry.compare if entry.hash is None else entry.hash)
            ]
            kind.__hash__ = _hash_method(_values(hashed)) if frozen else None
    if frozen:
        _freeze(kind, [entry.name for entry in entries] if slots else None)
    params = kind.__dataclass_params__
    params.init, params.repr, params.eq, params.frozen = True, repr, eq, frozen
    return kind


def _add(kind: Any, method: Any) -> None:
    """Add a method to a class that does not define the method itself."""
    if method.__name__ not in vars(kind):
        method.__qualname__ = f"{kind.__qualname__}.{method.__name__}"
        setattr(kind, method.__name__, method)


def _initializer(
    kind: Any, entries: Sequence[Field[Any]], *, frozen: bool, slots: bool
) -> Callable[..., None]:
    names: dict[str, Any] = {"_set_": _set, "_factory_": _FACTORY}
    positional: list[str] = ["self"]
    keyword_only: list[str] = []
    values: list[tuple[str, str]] = []
    for entry in entries:
        name, value = entry.name, entry.name
        default = _default_source(entry, names)
        if entry.init:
            (keyword_only if entry.kw_only else positional).append(name + default)
        if entry.default_factory is not MISSING:
            made = f"_made_{name}()"
            value = f"{made} if {name} is _factory_ else {name}" if entry.init else made
        elif not entry.init:
            if not slots or entry.default is MISSING:
                continue  # a default is the attribute of the class
            value = f"_default_{name}"
        values.append((name, value))
    lines = [
        f"_set_(self, {name!r}, {value})" if frozen else f"self.{name} = {value}" for name, value in values
    ]
    if frozen and slots and len(values) >= _MANY and kind.__bases__ == (object,):
        names["_kind_"], names["_open_"] = kind, type(kind.__name__, (), {"__slots__": kind.__slots__})
        lines = [
            # A subclass may have other slots.
            "if self.__class__ is _kind_:",
            ' _set_(self, "__class__", _open_)',
            *(f" self.{name} = {value}" for name, value in values),
            " self.__class__ = _kind_",
            "else:",
            *(f" {line}" for line in lines),
        ]
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *keyword_only] if keyword_only else [])])
    exec(f"def __init__({parameters}):\n " + ("\n ".join(lines) or "pass"), names)
    init = names["__init__"]
    init.__module__ = kind.__module__
    init.__annotations__ = {entry.name: entry.type for entry in entries if entry.init} | {"return": None}
    return init


def _default_source(entry: Field[Any], names: dict[str, Any]) -> str:
    """The source of a parameter's default, whose value is added to `names`."""
    if entry.default_factory is not MISSING:
        names[f"_made_{entry.name}"] = entry.default_factory
        return "=_factory_"
    if entry.default is MISSING:
        return ""
    names[f"_default_{entry.name}"] = entry.default
    return f"=_default_{entry.name}"


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that reads attributes of a record into a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda record: ()
    value = attrgetter(*names)
    return lambda record: (value(record),)


def _eq_method(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash_method(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


def _repr_method(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({values})"

    return __repr__


def _freeze(kind: Any, slots: Sequence[str] | None) -> None:
    """Refuse assignments to fields; with `slots`, add the methods for copying and pickling."""

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
        _add(kind, method)
