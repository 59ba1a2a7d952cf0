"""`Members`: which members a JSON object must and may have, and of which types; checked without a model.

The tables of `methods` (parameters) and `inbound` (the envelope) are made of these. Members that a table does
not name pass unread. A member that may be left out may be null too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Final, Protocol, TypeAlias, cast


class Shape(Protocol):
    """What a JSON value may be."""

    @property
    def kinds(self) -> tuple[type, ...]:
        """The Python types of the value."""
        ...

    @property
    def noun(self) -> str:
        """How the value is called, as in "must be a string"."""
        ...

    @property
    def is_plain(self) -> bool:
        """Whether the type alone decides."""
        ...

    def fault(self, value: Any, at: str) -> str | None:
        """What is wrong with a value whose type is right; `at` names its place."""
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """A value of which only the type counts."""

    noun: str
    kinds: tuple[type, ...]
    is_plain: bool = True

    def fault(self, value: Any, at: str) -> str | None:
        """Nothing: the type was right."""
        return None


TEXT: Final = Plain("a string", (str,))
FLAG: Final = Plain("a boolean", (bool,))
NUMBER: Final = Plain("a number", (int, float))
ID: Final = Plain("a string or an integer", (str, int))
OBJECT: Final = Plain("an object", (dict,))


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few texts."""

    values: tuple[str, ...]
    kinds: tuple[type, ...] = (str,)
    is_plain: bool = False

    @property
    def noun(self) -> str:
        """The texts."""
        return f"one of {', '.join(self.values)}"

    def fault(self, value: Any, at: str) -> str | None:
        """What is wrong with a text."""
        return None if value in self.values else f"{at} must be {self.noun}"


@dataclass(frozen=True, slots=True)
class Items:
    """A list, each item of which has the same shape."""

    each: Shape
    noun: str = "a list"
    kinds: tuple[type, ...] = (list,)
    is_plain: bool = False

    def fault(self, value: Any, at: str) -> str | None:
        """What is wrong with an item."""
        return _first_fault(self.each, enumerate(cast("list[Any]", value)), at)


@dataclass(frozen=True, slots=True)
class Values:
    """An object with members of any name, each of which has the same shape."""

    each: Shape
    noun: str = "an object"
    kinds: tuple[type, ...] = (dict,)
    is_plain: bool = False

    def fault(self, value: Any, at: str) -> str | None:
        """What is wrong with a member."""
        return _first_fault(self.each, cast("dict[str, Any]", value).items(), at)


@dataclass(frozen=True, slots=True)
class Tagged:
    """An object whose member `tag` says which shape it has."""

    tag: str
    shapes: Mapping[str, Shape]
    noun: str = "an object"
    kinds: tuple[type, ...] = (dict,)
    is_plain: bool = False

    def fault(self, value: Any, at: str) -> str | None:
        """What is wrong with the object."""
        said: object = cast("dict[str, Any]", value).get(self.tag)
        shape = self.shapes.get(said) if isinstance(said, str) else None
        if shape is None:
            return f"{at}.{self.tag} must be one of {', '.join(self.shapes)}"
        return shape.fault(value, at)


_Row: TypeAlias = tuple[str, bool, tuple[type, ...], Shape, "Shape | None"]
"""Name, whether it is required, types, shape, and the shape once more if the types alone do not decide."""


@dataclass(frozen=True, slots=True)
class Members:
    """An object with members that are named.

    Attributes:
        required: Members that must be there.
        optional: Members that may be absent, or null.
    """

    required: Mapping[str, Shape] = field(default_factory=dict[str, Shape])
    optional: Mapping[str, Shape] = field(default_factory=dict[str, Shape])
    noun: str = "an object"
    kinds: tuple[type, ...] = (dict,)
    is_plain: bool = False
    _rows: tuple[_Row, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows = (
            *(_row(name, shape, required=True) for name, shape in self.required.items()),
            *(_row(name, shape, required=False) for name, shape in self.optional.items()),
        )
        object.__setattr__(self, "_rows", rows)

    def fault(self, value: Any, at: str = "") -> str | None:
        """What is wrong with the members of an object; `None` if nothing is.

        For parameters without nested members this is one function call.
        """
        for name, required, kinds, shape, nested in self._rows:
            if name in value:
                member = value[name]
                if type(member) not in kinds and not _is_of(member, kinds):
                    return f"{_place(at, name)} must be {shape.noun}"
                if nested is not None and member is not None:
                    found = nested.fault(member, _place(at, name))
                    if found is not None:
                        return found
            elif required:
                return f"{_place(at, name)} is missing"
        return None

    def and_optional(self, **members: Shape) -> Members:
        """The same, with further members that may be there."""
        return Members(self.required, {**self.optional, **members})


def _row(name: str, shape: Shape, *, required: bool) -> _Row:
    kinds = shape.kinds if required else (*shape.kinds, NoneType)
    return name, required, kinds, shape, None if shape.is_plain else shape


def _is_of(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether a value is of a subclass of these types, as it may be in process; a boolean is no number."""
    return isinstance(value, kinds) and not isinstance(value, bool)


def _place(at: str, name: object) -> str:
    return f"{at}.{name}" if at else str(name)


def _first_fault(shape: Shape, named: Any, at: str) -> str | None:
    for name, value in named:
        if type(value) not in shape.kinds and not _is_of(value, shape.kinds):
            return f"{_place(at, name)} must be {shape.noun}"
        found = shape.fault(value, _place(at, name))
        if found is not None:
            return found
    return None
