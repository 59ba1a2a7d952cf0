"""`Made`: a cache of what was compiled from tools, valid while the tools are the same objects.

A toolset is compiled again after every change, but most of its tools have not changed. The cache keeps
results by source: unchanged sources are reused as a whole; of a changed source, only the changed tools are
compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from mcp_toolset._records import dataclass, replace

if TYPE_CHECKING:
    from mcp_toolset.tools.binding.binding import ToolBinding
    from mcp_toolset.tools.view.view import AnyRules

M = TypeVar("M")

_SOURCE: Final = attrgetter("source")


@dataclass(frozen=True, slots=True)
class Each:
    """A step that depends on its tool only, so that its result can be cached.

    Attributes:
        step: The step.
        rules: The rules that the step adds, if there are any.
    """

    step: Callable[[ToolBinding], ToolBinding | None]
    rules: AnyRules | None = None

    def __call__(self, binding: ToolBinding) -> ToolBinding | None:
        """The step's result for a tool."""
        return self.step(binding)


def same(ones: Sequence[object], others: Sequence[object]) -> bool:
    """Whether two sequences consist of the same objects."""
    return len(ones) == len(others) and all(map(is_, ones, others))


def distinct(bindings: list[ToolBinding]) -> list[ToolBinding]:
    """The tools; a tool that occurs twice counts as two, like any two tools of one name."""
    if len(set(map(id, bindings))) == len(bindings):
        return bindings
    seen: set[int] = set()
    return [replace(one) if id(one) in seen or seen.add(id(one)) else one for one in bindings]


def by_source(bindings: Iterable[ToolBinding]) -> Iterator[tuple[str, list[ToolBinding]]]:
    """The tools in runs of one source each; a source may have several runs."""
    return ((source, list(run)) for source, run in groupby(bindings, _SOURCE))


class Made(Generic[M]):
    """The result of `make` for each tool."""

    __slots__ = ("_given", "_make", "_runs")

    def __init__(self, make: Callable[[ToolBinding], M]) -> None:
        """Start empty; `make` must depend only on its tool and on the `given` of `of`."""
        self._make = make
        self._given: object = None
        self._runs: dict[tuple[str, int], tuple[list[ToolBinding], list[M]]] = {}

    def of(self, bindings: Iterable[ToolBinding], given: object = None) -> list[M]:
        """The results for the tools, in order; all are made anew if `given`, an input, has changed."""
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
        # Cached results hold their tools, so that no other tool can get the id of one of them.
        kept = dict(zip(map(id, known[0]), known[1], strict=True))
        return [kept[id(tool)] if id(tool) in kept else self._make(tool) for tool in tools]
