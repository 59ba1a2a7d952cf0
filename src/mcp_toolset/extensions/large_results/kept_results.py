"""`KeptResults`: whole results in memory, for the caller that they were made for, within a bound."""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

from pydantic_core import from_json, to_json

from mcp_toolset._records import dataclass
from mcp_toolset.calls.checks import text_of
from mcp_toolset.tools.result import Block, ToolResult

PREFIX: Final = "r_"
"""How the id of a kept result begins."""


@dataclass(frozen=True)
class KeptResult:
    """A result that is kept.

    Attributes:
        id: What stands for it; it cannot be guessed.
        owner: The key of the caller; `None` if callers cannot be told apart, so that the id alone counts.
        result: The whole result.
        size: Characters of text and of JSON.
        ends: When it is forgotten, by the clock of the store.
    """

    id: str
    owner: str | None
    result: ToolResult
    size: int
    ends: float

    @cached_property
    def value(self) -> Any:
        """The value of the text that a model was shown if it is JSON, else the structured content or text."""
        text = _texts(self.result.content)
        if text[:1] in ("{", "["):
            try:
                return from_json(text)
            except ValueError:
                pass
        return self.result.structured if "structuredContent" in self.result.wire else text


class KeptResults:
    """A table of results; of the caller who fills most of it, the least recently used goes first."""

    def __init__(self, most: int, lifetime: float, now: Callable[[], float]) -> None:
        """Keep at most `most` characters, each result for `lifetime` seconds; the newest is always kept."""
        self._most = most
        self._lifetime = lifetime
        self._now = now
        self._kept: OrderedDict[str, KeptResult] = OrderedDict()
        self._sizes: Counter[str | None] = Counter()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, result: ToolResult, owner: str | None, size: int) -> KeptResult:
        ends = self._now() + self._lifetime
        kept = KeptResult(PREFIX + secrets.token_hex(8), owner, result, size, ends)
        self._forget_old()
        self._kept[kept.id] = kept
        self._sizes[owner] += size
        while self._sizes.total() > self._most and len(self._kept) > 1:
            # The newest stays, whoever it is of.
            older = {each.owner: each.id for each in reversed(self._kept.values()) if each is not kept}
            self._forget(older[max(older, key=self._sizes.__getitem__)])
        return kept

    def find(self, id: str, owner: str | None) -> KeptResult | None:
        """The result of an id, if it is this caller's and still kept; counts as a use."""
        kept = self._kept.get(id)
        if kept is None or kept.owner != owner or kept.ends <= self._now():
            return None
        self._kept.move_to_end(id)
        return kept

    def _forget_old(self) -> None:
        now = self._now()
        for id in [id for id, kept in self._kept.items() if kept.ends <= now]:
            self._forget(id)

    def _forget(self, id: str) -> None:
        gone = self._kept.pop(id)
        self._sizes[gone.owner] -= gone.size
        if not self._sizes[gone.owner]:
            del self._sizes[gone.owner]


def _texts(content: Sequence[Block]) -> str:
    texts = (text_of(block) for block in content if block.get("type") != "resource_link")
    return "\n".join(filter(None, texts))


def characters_of(result: ToolResult) -> int:
    """The characters that a model may be shown of a result: its texts or its structured content as JSON.

    Clients show one or the other, and the text of a structured result usually says the same, so the longer of
    both counts. Images and audio are no characters.
    """
    texts = len(_texts(result.content))
    if "structuredContent" not in result.wire:
        return texts
    return max(texts, len(to_json(result.structured)))
