"""`Vocabulary`: the words of an index, and the nearest of them to a misspelt word.

The cost is bounded: single edits are generated, double edits are looked for only among words that share the
first letters, and not at all if those are too many.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from os.path import commonprefix
from string import ascii_lowercase
from typing import Protocol

_HEAD = 3
_SHORTEST = 5
_SHORTEST_FOR_TWO_EDITS = 8
_LONGEST_ENDING = 5
_CROWD = 2_000
_NEAREST = 3
_REMEMBERED = 256
_LAST = "\U0010ffff"
# Up to so many words are put in their places one by one; for more, sorting is faster.
_CHANGED = 500


class Words(Protocol):
    """The words of an index, which may change."""

    def __contains__(self, word: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __and__(self, words: AbstractSet[str], /) -> AbstractSet[str]: ...


class SortedWords:
    """Words in order, kept so at the cost of what has changed."""

    def __init__(self, known: Words, in_order: Iterable[str] | None = None) -> None:
        """Sort `known`, which may change: report that with `note`. `in_order`: the same, if it is sorted."""
        self._known = known
        self._in_order: list[str] = [*(in_order or ())]
        self._changed: set[str] | None = None if in_order is None else set()

    def note(self, words: Iterable[str]) -> None:
        if self._changed is not None:
            self._changed.update(words)
            if len(self._changed) > _CHANGED:
                self._changed = None

    def forget(self) -> None:
        self._changed = None

    def beginning_with(self, head: str, most: int | None = None) -> list[str]:
        """The known words that begin so, in order; the first `most` of them."""
        order = self._sorted()
        start = bisect_left(order, head)
        end = bisect_left(order, head + _LAST, lo=start)
        return order[start : end if most is None else min(end, start + most)]

    def _sorted(self) -> list[str]:
        if self._changed is None:
            self._in_order = sorted(self._known)
        else:
            for word in self._changed:
                self._place(word)
        self._changed = set()
        return self._in_order

    def _place(self, word: str) -> None:
        order = self._in_order
        at = bisect_left(order, word)
        held = order[at : at + 1] == [word]
        if held and word not in self._known:
            del order[at]
        elif not held and word in self._known:
            order.insert(at, word)


class Vocabulary:
    """The words of an index, searched for words similar to another."""

    def __init__(self, known: Words, in_order: Iterable[str] | None = None) -> None:
        """Search `known`, which may change: report that with `note` or `forget_order`; see `SortedWords`."""
        self._known = known
        self._in_order = SortedWords(known, in_order)
        self._nearest: dict[str, list[str]] = {}

    def note(self, terms: Iterable[str]) -> None:
        self._nearest.clear()
        self._in_order.note(terms)

    def forget_order(self) -> None:
        self._nearest.clear()
        self._in_order.forget()

    def nearest(self, term: str) -> list[str]:
        """The known terms that an unknown one most likely means; none for short words and codes."""
        # First those one edit away, else longer words that begin with it, else those two edits away.
        if len(term) < _SHORTEST or not term.isalpha():
            return []
        # The clauses of a query have its words once more.
        found = self._nearest.get(term)
        if found is None:
            if len(self._nearest) >= _REMEMBERED:
                self._nearest.clear()
            found = self._nearest[term] = self._find(term)
        return found

    def _find(self, term: str) -> list[str]:
        found: Collection[str] = self._one_edit_from(term)
        if not found:
            crowd = self._beginning_with(term[:_HEAD])
            found = _longer(term, crowd) or _two_edits(term, crowd)
        return sorted(found, key=lambda known: (abs(len(known) - len(term)), known))[:_NEAREST]

    def _one_edit_from(self, term: str) -> AbstractSet[str]:
        """Edits in the first half are generated; for later edits, words that begin alike are compared."""
        head = len(term) // 2
        found = self._known & {*_edits(term, head)}
        return {*found} | {known for known in self._beginning_with(term[:head]) if _is_one_edit(term, known)}

    def _beginning_with(self, head: str) -> list[str]:
        return self._in_order.beginning_with(head)


def _edits(term: str, places: int) -> Iterator[str]:
    """All insertions, deletions, replacements and swaps of neighbours at the first places of a term."""
    for place in range(places):
        before, after = term[:place], term[place:]
        yield from [before + letter + after for letter in ascii_lowercase]
        yield from [before + letter + after[1:] for letter in ascii_lowercase]
        yield before + after[1:]
        yield before + after[1:2] + after[:1] + after[2:]


def _is_one_edit(one: str, other: str) -> bool:
    """Whether one insertion, deletion, replacement or swap of neighbours turns one word into another."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = len(commonprefix((one, other)))
    rest, facing = one[start:], other[start:]
    if len(rest) != len(facing):
        return rest[1:] == facing or rest == facing[1:]
    return rest[1:] == facing[1:] or (rest[:2] == facing[1::-1] and rest[2:] == facing[2:])


def _longer(term: str, crowd: Iterable[str]) -> list[str]:
    longest = len(term) + _LONGEST_ENDING
    return [known for known in crowd if len(known) <= longest and known.startswith(term)]


def _two_edits(term: str, crowd: Collection[str]) -> list[str]:
    if len(term) < _SHORTEST_FOR_TWO_EDITS or len(crowd) > _CROWD:
        return []
    letters = set(term)
    close = (known for known in crowd if abs(len(known) - len(term)) <= 2 and len(letters ^ set(known)) <= 4)
    return [known for known in close if distance(term, known) <= 2]


def distance(one: str, other: str) -> int:
    """The number of insertions, deletions, replacements and swaps of neighbours between two words."""
    older: list[int] = []
    old = list(range(len(other) + 1))
    for i, letter in enumerate(one):
        row = [i + 1]
        for j, facing in enumerate(other):
            cost = min(old[j] + (letter != facing), old[j + 1] + 1, row[j] + 1)
            if i and j and letter == other[j - 1] and facing == one[i - 1]:
                cost = min(cost, older[j - 1] + 1)
            row.append(cost)
        older, old = old, row
    return old[-1]
