"""`Members`: which members a JSON object must and may have, and of which types; checked without a model.

The tables of `methods` (parameters) and `inbound` (the envelope) are made of these. Members that a table does
not name pass unread. A member that may be left out may be null too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType, NoneType
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


class Plain:
    """A value of which only the type counts."""

    __slots__ = ("kinds", "noun")
    is_plain = True

    def __init__(self, noun: str, kinds: tuple[type, ...]) -> None:
        self.noun = noun
        self.kinds = kinds

    def fault(self, value: Any, at: str) -> str | None:
        """Nothing: the type was right."""
        return None


TEXT: Final = Plain("a string", (str,))
FLAG: Final = Plain("a boolean", (bool,))
NUMBER: Final = Plain("a number", (int, float))
ID: Final = Plain("a string or an integer", (str, int))
OBJECT: Final = Plain("an object", (dict,))


class OneOf:
    """One of a few texts."""

    __slots__ = ("noun", "values")
    kinds = (str,)
    is_plain = False

    def __init__(self, values: tuple[str, ...]) -> None:
        self.values = values
        self.noun = f"one of {', '.join(values)}"

    def fault(self, value: Any, at: str) -> str | None:
        return None if value in self.values else f"{at} must be {self.noun}"


class Items:
    """A list, each item of which has the same shape."""

    __slots__ = ("each",)
    noun = "a list"
    kinds = (list,)
    is_plain = False

    def __init__(self, each: Shape) -> None:
        self.each = each

    def fault(self, value: Any, at: str) -> str | None:
        return _first_fault(self.each, enumerate(cast("list[Any]", value)), at)


class OneOrMore:
    """An object, or a list of such objects."""

    __slots__ = ("each", "many")
    noun = "an object or a list"
    kinds = (dict, list)
    is_plain = False

    def __init__(self, each: Shape) -> None:
        self.each = each
        self.many = Items(each)

    def fault(self, value: Any, at: str) -> str | None:
        """What is wrong with the object, or with one of the list."""
        return (self.many if isinstance(value, list) else self.each).fault(value, at)


class Values:
    """An object with members of any name, each of which has the same shape."""

    __slots__ = ("each",)
    noun = "an object"
    kinds = (dict,)
    is_plain = False

    def __init__(self, each: Shape) -> None:
        self.each = each

    def fault(self, value: Any, at: str) -> str | None:
        return _first_fault(self.each, cast("dict[str, Any]", value).items(), at)


class Tagged:
    """An object whose member `tag` says which shape it has."""

    __slots__ = ("shapes", "tag")
    noun = "an object"
    kinds = (dict,)
    is_plain = False

    def __init__(self, tag: str, shapes: Mapping[str, Shape]) -> None:
        self.tag = tag
        self.shapes = shapes

    def fault(self, value: Any, at: str) -> str | None:
        said: object = cast("dict[str, Any]", value).get(self.tag)
        shape = self.shapes.get(said) if isinstance(said, str) else None
        if shape is None:
            return f"{at}.{self.tag} must be one of {', '.join(self.shapes)}"
        return shape.fault(value, at)


_Row: TypeAlias = tuple[str, bool, tuple[type, ...], Shape, "Shape | None"]
"""Name, whether it is required, types, shape, and the shape once more if the types alone do not decide."""


_NO_MEMBERS: Final[Mapping[str, Shape]] = MappingProxyType({})


class Members:
    """An object with members that are named.

    Attributes:
        required: Members that must be there.
        optional: Members that may be absent, or null.
    """

    __slots__ = ("_rows", "optional", "required")
    noun = "an object"
    kinds = (dict,)
    is_plain = False

    def __init__(
        self,
        required: Mapping[str, Shape] = _NO_MEMBERS,
        optional: Mapping[str, Shape] = _NO_MEMBERS,
    ) -> None:
        self.required = required
        self.optional = optional
        self._rows: tuple[_Row, ...] = (
            *(_row(name, shape, required=True) for name, shape in required.items()),
            *(_row(name, shape, required=False) for name, shape in optional.items()),
        )

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


def _first_fault(shape: Shape, named: Iterable[tuple[object, Any]], at: str) -> str | None:
    for name, value in named:
        if type(value) not in shape.kinds and not _is_of(value, shape.kinds):
            return f"{_place(at, name)} must be {shape.noun}"
        found = shape.fault(value, _place(at, name))
        if found is not None:
            return found
    return None
