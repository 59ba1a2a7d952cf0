"""How alike a query is to every tool at once, exactly, with or without numpy.

Vectors are kept as small whole numbers, and so is a query. Without numpy, one dimension of all tools lies
in one long integer, sixteen bits a tool: the sum of these integers, each times the query's number for that
dimension, holds all the products, and the interpreter works it out at the speed of memory. With numpy the
same whole numbers go through one matrix product. Both are exact, so both give the same answer to the bit.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from importlib import import_module
from math import sqrt
from operator import mul
from typing import Any, Protocol

_LANE_BYTES = 2
_MIDDLE = 32
_LARGEST = 31
_LEAST, _MOST = _MIDDLE - _LARGEST, _MIDDLE + _LARGEST
_MIDDLE_AND_HALF = _MIDDLE + 0.5
# The values of a unit vector of n dimensions lie around 1/√n; beyond this many times that they are cut.
_REACH = 3.5
# What a query's numbers may sum to, so that no lane of sixteen bits runs over: 1,040 × 63 < 2¹⁶.
_QUERY_SUM = 1_040
_FINER = 0.99
_SET = re.compile(b"\1")


@cache
def numpy_if_present() -> Any:
    """The module, or `None` where it is not installed."""
    try:
        return import_module("numpy")
    except ImportError:
        return None


class Lanes:
    """Directions by name, to be compared with that of a query all at once."""

    def __init__(self, dimensions: int, *, numpy: Any = None) -> None:
        """Start empty. `numpy` is the module itself, or `None` to do without it."""
        self._dimensions = dimensions
        self._numpy = numpy
        self._step = _REACH / sqrt(dimensions) / _LARGEST
        self._vectors: dict[str, bytes] = {}
        self._packed: _Packed | None = None

    def __len__(self) -> int:
        return len(self._vectors)

    def put(self, name: str, vector: Sequence[float]) -> None:
        """Hold a vector of any length under a name; one of length 0 is like nothing."""
        scale = 1 / (_length(vector) * self._step)
        # To round: `int` cuts off the fraction, and is much the quicker.
        numbers = [int(value * scale + _MIDDLE_AND_HALF) for value in vector]
        if max(numbers) > _MOST or min(numbers) < _LEAST:
            numbers = [max(_LEAST, min(_MOST, number)) for number in numbers]
        self._vectors[name] = bytes(numbers)
        self._packed = None

    def drop(self, name: str) -> None:
        """Forget a name; one that is not held is passed over."""
        if self._vectors.pop(name, None) is not None:
            self._packed = None

    def cosines(self, vector: Sequence[float], scale: float = 1.0) -> Cosines:
        """The likeness of a vector of any length to each that is held, times `scale`."""
        packed = self._packed = self._packed or self._pack()
        asked, finer = _whole_numbers(vector)
        products, base = packed.products(asked)
        return Cosines(packed, products, base, scale * self._step / (finer * _length(vector)))

    def _pack(self) -> _Packed:
        if self._numpy is None or not self._vectors:
            return _Columns(self._vectors, self._dimensions)
        return _Matrix(self._vectors, self._dimensions, self._numpy)


class Likeness(Protocol):
    """How alike one query is to every tool."""

    def of(self, names: Iterable[str]) -> dict[str, float]:
        """The cosines of those names that are held."""
        ...

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        """At most `count` names with cosines above 0, best first and like ones by name."""
        ...

    def by_place(self, places: Mapping[str, int], count: int) -> Any:
        """A numpy array to rank by, of so many places; 0 where nothing is held. Only with numpy."""
        ...

    def of_values(self, values: Any) -> Any:
        """The cosines that some values of that array stand for."""
        ...


class Cosines:
    """The outcome of one comparison, read only where somebody looks; see `Likeness`."""

    def __init__(self, packed: _Packed, products: Sequence[int], base: int, unit: float) -> None:
        self._packed = packed
        self._base = base
        self._unit = unit
        self._products = products

    @property
    def names(self) -> Sequence[str]:
        """The names that are held."""
        return self._packed.names

    def by_place(self, places: Mapping[str, int], count: int) -> Any:
        """See `Likeness`."""
        return self._packed.by_place(self._products, places, count)

    def of_values(self, values: Any) -> Any:
        """See `Likeness`."""
        return (values - self._base) * self._unit

    def of(self, names: Iterable[str]) -> dict[str, float]:
        """See `Likeness`."""
        packed = self._packed
        held = [(name, packed.places[name]) for name in names if name in packed.places]
        products = packed.at(self._products, [place for _, place in held])
        return {name: self._cosine(product) for (name, _), product in zip(held, products, strict=True)}

    def best(self, count: int, among: AbstractSet[str] | None = None) -> dict[str, float]:
        """See `Likeness`."""
        packed, products = self._packed, self._products
        if among is None:
            places = packed.highest(products, count, self._base + int(1 / self._unit))
        else:
            places = [packed.places[name] for name in among if name in packed.places]
        least = self._base
        numbers = zip(packed.at(products, places), places, strict=True)
        found = sorted((-product, packed.names[place]) for product, place in numbers if product > least)
        return {name: self._cosine(-product) for product, name in found[:count]}

    def _cosine(self, product: int) -> float:
        return (product - self._base) * self._unit


class _Packed(ABC):
    """All vectors at one moment, by place."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self.places = {name: place for place, name in enumerate(self.names)}

    @abstractmethod
    def products(self, asked: Sequence[int]) -> tuple[Sequence[int], int]:
        """For each place its product with the query, and how a product of 0 is written."""

    @abstractmethod
    def at(self, products: Sequence[int], places: Sequence[int]) -> list[int]:
        """The products at some places."""

    @abstractmethod
    def highest(self, products: Sequence[int], count: int, most: int) -> list[int]:
        """The places of the `count` highest products, with all that equal the last, and perhaps some more.

        `most` is about what a product can reach.
        """

    def by_place(self, products: Any, places: Mapping[str, int], count: int) -> Any:
        """The products at the places that somebody else gives to the names, as a numpy array."""
        raise NotImplementedError("only with numpy")


class _Matrix(_Packed):
    def __init__(self, vectors: Mapping[str, bytes], dimensions: int, numpy: Any) -> None:
        super().__init__(vectors)
        self._numpy = numpy
        self._there: Any = None
        numbers = numpy.frombuffer(b"".join(vectors.values()), dtype=numpy.int8)
        self._rows = numpy.ascontiguousarray(numbers.reshape(-1, dimensions).T) - numpy.int8(_MIDDLE)

    def products(self, asked: Sequence[int]) -> tuple[Sequence[int], int]:
        # Sixteen bits hold every product, 1,040 × 31 being the largest; rows are widened as they are read.
        query = self._numpy.array(asked, dtype=self._numpy.int16)
        # `query @ rows` may wake the threads of a BLAS, and on a busy machine wait for them a hundredfold.
        return self._numpy.einsum("ji,j->i", self._rows, query), 0

    def by_place(self, products: Any, places: Mapping[str, int], count: int) -> Any:
        numpy = self._numpy
        # Names keep their places for as long as they are held, and this lives no longer.
        if self._there is None:
            self._there = numpy.array([places.get(name, -1) for name in self.names], dtype=numpy.intp)
        # One place more, the last, for names that have none.
        laid = numpy.zeros(count + 1, dtype=numpy.int16)
        laid[self._there] = products
        return laid[:-1]

    def at(self, products: Any, places: Sequence[int]) -> list[int]:
        return products[places].tolist() if places else []

    def highest(self, products: Any, count: int, most: int) -> list[int]:
        if len(products) <= count:
            return list(range(len(products)))
        return self._numpy.flatnonzero(products >= self._numpy.partition(products, -count)[-count]).tolist()


class _Columns(_Packed):
    def __init__(self, vectors: Mapping[str, bytes], dimensions: int) -> None:
        super().__init__(vectors)
        whole = b"".join(vectors.values())
        self._columns = [_spread(whole[dimension::dimensions]) for dimension in range(dimensions)]
        self._one = _spread(b"\1" * len(vectors))

    def products(self, asked: Sequence[int]) -> tuple[Sequence[int], int]:
        # As much as the negative numbers can take away is added to every lane, so that none is below 0.
        credit = -(_MIDDLE + _LARGEST) * sum(number for number in asked if number < 0)
        total = credit * self._one
        for number, columns in self._by_size(asked).items():
            total += number * columns
        lanes = array("H", total.to_bytes(_LANE_BYTES * len(self.names), "little"))
        if sys.byteorder == "big":
            lanes.byteswap()
        return lanes, credit + _MIDDLE * sum(asked)

    def at(self, products: Sequence[int], places: Sequence[int]) -> list[int]:
        return [products[place] for place in places]

    def _by_size(self, asked: Sequence[int]) -> dict[int, int]:
        """The columns that are to be multiplied by one number, added up: adding is the cheaper of the two."""
        sums: dict[int, int] = {}
        for number, column in zip(asked, self._columns, strict=True):
            if number:
                size = abs(number)
                sums[size] = sums.get(size, 0) + (column if number > 0 else -column)
        return sums

    def highest(self, products: Sequence[int], count: int, most: int) -> list[int]:
        # Counting bytes costs next to nothing, and the upper halves of the lanes leave most places out.
        upper = array("H", products).tobytes()[sys.byteorder == "little" :: _LANE_BYTES]
        bar, found = min(256, (most >> 8) + 2), 0
        while bar and found < count:
            bar -= 1
            found += upper.count(bar)
        high = upper.translate(bytes(bar) + b"\1" * (256 - bar))
        return [match.start() for match in _SET.finditer(high)]


def _spread(numbers: bytes) -> int:
    lanes = bytearray(_LANE_BYTES * len(numbers))
    lanes[::_LANE_BYTES] = numbers
    return int.from_bytes(lanes, "little")


def _length(vector: Sequence[float]) -> float:
    return sqrt(sum(map(mul, vector, vector))) or 1.0


def _whole_numbers(vector: Sequence[float]) -> tuple[list[int], float]:
    """The vector in whole numbers whose sizes sum to `_QUERY_SUM` at most, and how many of them make 1."""
    scale = _QUERY_SUM / (sum(map(abs, vector)) or 1.0)
    while True:
        numbers = [round(value * scale) for value in vector]
        if sum(map(abs, numbers)) <= _QUERY_SUM:
            return numbers, scale
        scale *= _FINER
