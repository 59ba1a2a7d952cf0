"""`SearchLearning`: a search that learns which tools its callers come to use, each tenant by itself.

What counts is a tool that a search has found, that was then resolved, and that was then called with success.
It adds at most `most` to the score of a tool that a search of the same tenant finds anyway. Words are kept as
keyed digests; a tenant's weights are bounded, decay and can be forgotten.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from os import PathLike
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.search.text import stem, telling_words
from mcp_toolset.concurrency.atomic_file import replace_file
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.core.call import ToolContext

MOST: Final = 0.15
"""The default bound on what use adds to a score; a query that names a tool is 0.2 ahead of all others."""

_GAIN: Final = 8.0
_HEAVIEST: Final = 5.0
_TERMS: Final = 24
_ASKED: Final = 200
_QUERY: Final = 2_000
_log = logging.getLogger("mcp_toolset.catalog")

Weight = tuple[float, float]
"""How often a tool was used for a word, and when it was last."""


def principal_of(context: ToolContext) -> str:
    """The authenticated caller; callers who cannot be told apart have no tenant, and nothing is learnt."""
    return context.principal or ""


@dataclass(slots=True)
class _Tenant:
    """What one tenant has used, and what it has found and not used so far."""

    weights: OrderedDict[str, dict[str, Weight]] = field(
        default_factory=OrderedDict[str, "dict[str, Weight]"]
    )
    pairs: int = 0
    found: OrderedDict[str, tuple[str, ...]] = field(default_factory=OrderedDict[str, "tuple[str, ...]"])
    resolved: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])


class _File(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: str
    key: str
    tenants: dict[str, dict[str, dict[str, list[float]]]]


class SearchLearning:
    """What the tenants of a server have used. Give it to `ToolsetServer(…, learn=…)`."""

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        tenant: Callable[[ToolContext], str] = principal_of,
        most: float = MOST,
        tenants: int = 1000,
        pairs: int = 5000,
        half_life: float = 30 * 86_400.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Learn from the searches of one server.

        Args:
            path: A file that is read now and written by `save`; by default nothing is kept.
            tenant: The tenant of a caller, by default the principal; nothing is learnt for an empty one.
            most: What use adds to a score at most, above 0 and below 0.2.
            tenants: Tenants that are remembered; the one that has learnt nothing for longest goes first.
            pairs: Pairs of a word and a tool that are remembered for each tenant, in the same way.
            half_life: Seconds after which a use counts half.
            now: The time in seconds since the epoch.

        Raises:
            DefinitionError: a number is out of range.
        """
        if not (0 < most < 0.2 and tenants > 0 and pairs > 0 and half_life > 0):
            raise DefinitionError("SearchLearning: most is between 0 and 0.2, other numbers are positive")
        self._path = None if path is None else Path(path)
        self._tenant = tenant
        self._most = most
        self._limits = (tenants, pairs)
        self._half_life = half_life
        self._now = now
        self._key = secrets.token_bytes(16)
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        self._load()

    def searched(self, context: ToolContext, query: str, tools: Iterable[str]) -> None:
        """Note what a search has found."""
        if (tenant := self._of(context, adds=True)) is None or not (terms := self._terms(query)):
            return
        for tool in tools:
            tenant.found[tool] = terms
            tenant.found.move_to_end(tool)
        while len(tenant.found) > _ASKED:
            tenant.resolved.pop(tenant.found.popitem(last=False)[0], None)

    def resolved(self, context: ToolContext, tool: str) -> None:
        """Note that a tool was granted; it counts if a search has found it."""
        tenant = self._of(context)
        if tenant is not None and (terms := tenant.found.get(tool)):
            tenant.resolved[tool] = terms

    def called(self, context: ToolContext, tool: str) -> None:
        """Note that a call has succeeded: the first one after a search and a resolution counts."""
        tenant = self._of(context)
        terms = None if tenant is None else tenant.resolved.pop(tool, None)
        if tenant is None or terms is None:
            return
        tenant.found.pop(tool, None)
        now = self._now()
        for term in terms:
            tools = tenant.weights.setdefault(term, {})
            tenant.weights.move_to_end(term)
            tenant.pairs += tool not in tools
            tools[tool] = (min(_HEAVIEST, 1 + self._weight(tools.get(tool, (0.0, now)), now)), now)
        while tenant.pairs > self._limits[1]:
            tenant.pairs -= len(tenant.weights.popitem(last=False)[1])

    def bonus(self, context: ToolContext, query: str) -> Mapping[str, float]:
        """What use adds to the scores of tools for a query, from 0 to `most`."""
        tenant = self._of(context)
        if tenant is None or not tenant.weights or not (terms := self._terms(query)):
            return {}
        now = self._now()
        shares: dict[str, float] = {}
        for term in terms:
            weights = {tool: self._weight(one, now) for tool, one in tenant.weights.get(term, {}).items()}
            every = 1 + sum(weights.values())
            for tool, weight in weights.items():
                shares[tool] = shares.get(tool, 0.0) + weight / every
        return {tool: self._most * min(1.0, _GAIN * share / len(terms)) for tool, share in shares.items()}

    def forget(self, tenant: str | None = None) -> None:
        """Forget a tenant, or all; the file as well."""
        if tenant is None:
            self._tenants.clear()
        else:
            self._tenants.pop(self._digest(tenant), None)
        self.save()

    def save(self) -> None:
        """Write the file, readable for its owner only; nothing without a path. A failure is logged."""
        if self._path is None:
            return
        tenants = {
            name: {
                term: {tool: list(one) for tool, one in tools.items()} for term, tools in each.weights.items()
            }
            for name, each in self._tenants.items()
            if each.weights
        }
        text = json.dumps({"format": "search-learning-1", "key": self._key.hex(), "tenants": tenants})
        try:
            replace_file(self._path, text.encode())
        except OSError as fault:
            _log.warning("what search has learnt could not be saved to %s: %s", self._path, fault)

    def _load(self) -> None:
        if self._path is None or not self._path.exists():
            return
        try:
            if self._path.stat().st_mode & 0o022:
                raise ValueError("others may write it")
            kept = _File.model_validate_json(self._path.read_bytes())
            if kept.format != "search-learning-1":
                raise ValueError(f"its format is {kept.format!r}")
            self._key = bytes.fromhex(kept.key)
            self._tenants.update((name, _tenant(weights)) for name, weights in kept.tenants.items())
        except (OSError, ValueError, ValidationError) as fault:
            self._tenants.clear()
            why = "it is damaged" if isinstance(fault, ValidationError) else str(fault)
            _log.warning("what search has learnt is not used: %s: %s", self._path, why)

    def _of(self, context: ToolContext, *, adds: bool = False) -> _Tenant | None:
        name = self._tenant(context)
        if not name:
            return None
        key = self._digest(name)
        if adds:
            self._tenants.setdefault(key, _Tenant())
            self._tenants.move_to_end(key)
            if len(self._tenants) > self._limits[0]:
                self._tenants.popitem(last=False)
        return self._tenants.get(key)

    def _weight(self, one: Weight, now: float) -> float:
        return one[0] * 0.5 ** (max(0.0, now - one[1]) / self._half_life)

    def _terms(self, query: str) -> tuple[str, ...]:
        words = dict.fromkeys(stem(word) for word in telling_words(query[:_QUERY]))
        return tuple(self._digest(word) for word in list(words)[:_TERMS])

    def _digest(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, key=self._key, digest_size=8).hexdigest()


def _tenant(weights: Mapping[str, Mapping[str, list[float]]]) -> _Tenant:
    """A tenant of a file; what no run has written is an error."""
    made = _Tenant()
    for term, tools in weights.items():
        for weight, when in tools.values():
            if not (0 <= weight <= _HEAVIEST and math.isfinite(when)):
                raise ValueError("a weight is out of range")
        made.weights[term] = {tool: (one[0], one[1]) for tool, one in tools.items()}
        made.pairs += len(tools)
    return made
