"""`Made`: what was made of tools, kept for as long as the tools are the same objects.

A toolset is compiled anew after every change, and most of its tools are as they were. Whoever makes
something of each tool keeps it by source: the sources that have not changed are taken over as they are, and
of a source that has changed, only the tools that are others are made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from mcp_toolset.tools.binding.binding import ToolBinding

M = TypeVar("M")

_SOURCE: Final = attrgetter("source")


@dataclass(frozen=True, slots=True)
class Each:
    """A step that looks at nothing but the tool that it is given: what it makes of one can be kept."""

    step: Callable[[ToolBinding], ToolBinding | None]

    def __call__(self, binding: ToolBinding) -> ToolBinding | None:
        """What the step makes of a tool."""
        return self.step(binding)


def same(ones: Sequence[object], others: Sequence[object]) -> bool:
    """Whether two sequences have the same objects."""
    return len(ones) == len(others) and all(map(is_, ones, others))


def distinct(bindings: list[ToolBinding]) -> list[ToolBinding]:
    """The tools; one that stands there twice is two, to be told apart or refused as any two of one name."""
    if len(set(map(id, bindings))) == len(bindings):
        return bindings
    seen: set[int] = set()
    return [replace(one) if id(one) in seen or seen.add(id(one)) else one for one in bindings]


def by_source(bindings: Iterable[ToolBinding]) -> Iterator[tuple[str, list[ToolBinding]]]:
    """The tools in runs of one source each; a source may have several runs."""
    return ((source, list(run)) for source, run in groupby(bindings, _SOURCE))


class Made(Generic[M]):
    """What `make` gives for each tool."""

    __slots__ = ("_given", "_make", "_runs")

    def __init__(self, make: Callable[[ToolBinding], M]) -> None:
        """Nothing has been made yet; `make` must depend on the tool alone, and on what `of` is given."""
        self._make = make
        self._given: object = None
        self._runs: dict[tuple[str, int], tuple[list[ToolBinding], list[M]]] = {}

    def of(self, bindings: Iterable[ToolBinding], given: object = None) -> list[M]:
        """What each tool gives, in order; all is made anew when `given`, on which it depends, is another."""
        before: dict[Any, tuple[list[ToolBinding], list[M]]] = self._runs if self._given == given else {}
        runs: dict[tuple[str, int], tuple[list[ToolBinding], list[M]]] = {}
        counts: dict[str, int] = {}
        made: list[M] = []
        for source, tools in by_source(bindings):
            counts[source] = place = counts.get(source, 0) + 1
            known = before.get((source, place))
            if known is None or not same(known[0], tools):
                known = (tools, self._anew(tools, known))
            runs[source, place] = known
            made += known[1]
        self._runs, self._given = runs, given
        return made

    def _anew(self, tools: list[ToolBinding], known: tuple[list[ToolBinding], list[M]] | None) -> list[M]:
        if known is None:
            return list(map(self._make, tools))
        # What is known holds its tools, so that no other one can have the id of one of them.
        kept = dict(zip(map(id, known[0]), known[1], strict=True))
        return [kept[id(tool)] if id(tool) in kept else self._make(tool) for tool in tools]
