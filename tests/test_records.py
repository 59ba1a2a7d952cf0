"""`_records.dataclass` makes what the standard library's `dataclass` makes, of the same classes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from mcp_toolset import _records

Makes = Callable[..., Any]
OPTIONS: list[dict[str, bool]] = [
    {"frozen": frozen, "slots": slots, "eq": eq, "repr": shown, "kw_only": named}
    for frozen in (False, True)
    for slots in (False, True)
    for eq in (False, True)
    for shown in (False, True)
    for named in (False, True)
]


def several(**options: bool) -> list[Any]:
    """The same class, made by us and by the standard library."""
    return [made(each, **options) for each in (_records.dataclass, dataclasses.dataclass)]


def made(dataclass: Makes, **options: bool) -> Any:
    @dataclass(**options)
    class Point:
        """Fields of all kinds."""

        kind: ClassVar[str] = "point"
        x: int
        _: dataclasses.KW_ONLY
        y: float = 0.5
        marks: list[str] = dataclasses.field(default_factory=list)
        note: str = dataclasses.field(default="", repr=False, compare=False)
        more: int = 1
        most: int = 2
        later: int = dataclasses.field(init=False, default=3)
        made: list[int] = dataclasses.field(init=False, default_factory=ones)

    return Point


def ones() -> list[int]:
    return [1]


def single(dataclass: Makes) -> Any:
    @dataclass(frozen=True, slots=True)
    class One:
        """One field."""

        value: Any

    return One


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    """What the standard library makes, for pickling."""

    x: int
    y: list[int]


@_records.dataclass(frozen=True, slots=True)
class Ours:
    """What we make, for pickling."""

    x: int
    y: list[int]


def outcome(act: Callable[[], Any]) -> Any:
    """What an act returns or raises, in words."""
    try:
        return act()
    except (TypeError, AttributeError) as fault:
        return type(fault), str(fault).replace("<locals>", "")


@pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda options: ",".join(k for k, on in options.items() if on)
)
def test_a_class_is_made_as_by_the_standard_library(options: dict[str, bool]) -> None:
    ours, theirs = several(**options)
    for name in ("__match_args__", "__doc__", "__slots__", "__dataclass_params__"):
        assert repr(getattr(ours, name, None)) == repr(getattr(theirs, name, None)), name
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert [repr(each) for each in dataclasses.fields(ours)] == [
        repr(each) for each in dataclasses.fields(theirs)
    ]

    def told(kind: Any) -> list[Any]:
        one = kind(x=1, marks=["a"])
        like, other = kind(x=1, marks=["a"], note="n"), dataclasses.replace(one, x=2, y=1.0)
        return [
            repr(one).partition(".")[2] if options["repr"] else "",
            dataclasses.asdict(one),
            one == like,
            one == other,
            one == 1,
            outcome(lambda: hash(kind(x=1)) == hash(kind(x=1)) if not options["eq"] else hash(one)),
            outcome(lambda: setattr(one, "x", 5)),
            outcome(lambda: delattr(one, "x")),
            # Of a frozen class with slots, the standard library of Python 3.11 breaks here in another way.
            options["frozen"] and options["slots"] or outcome(lambda: setattr(one, "other", 5) or one.other),
            outcome(lambda: kind()),
            outcome(lambda: kind(x=1, nothing=2)),
            copy.deepcopy(one).marks,
            dataclasses.asdict(copy.copy(like)),
            one.kind,
        ]

    assert told(ours) == told(theirs)


def test_equal_records_have_equal_hashes_and_other_classes_are_never_equal() -> None:
    ours, theirs = single(_records.dataclass), single(dataclasses.dataclass)
    nan = float("nan")
    for one in (ours, theirs):
        assert one(nan) == one(nan)
        assert len({one(1), one(1.0), one(2)}) == 2
    assert ours(1) != theirs(1)


def test_a_record_that_contains_itself_can_be_shown() -> None:
    one = made(_records.dataclass)(1)
    one.marks.append(one)
    assert "..." in repr(one)


def test_a_frozen_record_with_slots_is_pickled() -> None:
    for kind in (Ours, Standard):
        one = kind(1, [2])
        assert pickle.loads(pickle.dumps(one)) == one


def test_what_a_class_defines_itself_is_kept_and_it_is_told_when_it_is_made() -> None:
    @_records.dataclass(frozen=True)
    class Own:
        """Its own methods."""

        x: int

        def __post_init__(self) -> None:
            object.__setattr__(self, "x", self.x + 1)

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    assert (Own(1) == 3, hash(Own(1)), repr(Own(1)), Own(1).x) == (True, 7, "own", 2)


@pytest.mark.parametrize("below", [_records.dataclass, dataclasses.dataclass])
def test_a_record_can_be_inherited_from(below: Makes) -> None:
    @_records.dataclass(frozen=True)
    class Base:
        """Above."""

        x: int

    @below(frozen=True)
    class Below(Base):
        """Below."""

        y: int = 2

    assert Below(1) == Below(1, 2) != Below(1, 3)
    assert "x=1, y=2" in repr(Below(1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Below(1).x = 2  # pyright: ignore[reportAttributeAccessIssue]


def test_a_record_of_many_fields_stays_of_the_class_that_is_made_of_it() -> None:
    kind = made(_records.dataclass, frozen=True, slots=True)

    class Below(kind):
        """With attributes of its own, besides slots."""

    one = Below(1, marks=["a"])
    one.own = 5
    assert (type(one), one.x, one.marks, one.made, type(kind(1))) == (Below, 1, ["a"], [1], kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 2


def test_an_ordered_record_can_be_sorted() -> None:
    @_records.dataclass(frozen=True, order=True)
    class Ordered:
        """By its fields."""

        x: int

    assert sorted([Ordered(2), Ordered(1)]) == [Ordered(1), Ordered(2)]


def test_a_record_is_replaced_as_by_the_standard_library() -> None:
    for kind in several(frozen=True, slots=True):
        one = kind(1, y=2.0, marks=["a"])
        other = _records.replace(one, x=5, note="n")
        assert other == dataclasses.replace(one, x=5, note="n")
        assert (other.x, other.y, other.marks is one.marks, other.note) == (5, 2.0, True, "n")
        with pytest.raises(TypeError, match="nothing"):
            _records.replace(one, nothing=1)
    assert _records.replace(Standard(1, [2]), x=3) == Standard(3, [2])
    assert _records.replace(single(_records.dataclass)(1)).value == 1
