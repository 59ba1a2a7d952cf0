"""`SearchLearning`: a search that learns which tools its callers come to use, each tenant by itself.

What counts is a tool that a search has found, that was then resolved, and that was then called with success.
It adds at most `most` to the score of a tool that a search of the same tenant finds anyway. Words are kept as
keyed digests; a tenant's weights are bounded, decay and can be forgotten. Processes share a file: each adds
its uses to what the others have saved.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import field
from functools import partial
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, cast

import anyio
import anyio.to_thread
from pydantic import BaseModel, ConfigDict, ValidationError

from mcp_toolset._numbers import require_positive
from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.search.entry import SearchListener
from mcp_toolset.catalog.search.text import stem, telling_words
from mcp_toolset.concurrency.atomic_file import is_private, locked, read_regular, replace_file
from mcp_toolset.concurrency.tasks import beside
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.learning.settings import (
    HALF_LIFE,
    MAX_BONUS,
    MAX_CALLERS,
    MAX_PAIRS,
    LearningSettings,
    learning_path,
)
from mcp_toolset.tools.call import ToolContext

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host


Weights = Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]]
"""By tenant, word and tool: how often the tool was used for the word, and when it was last."""

EVERYONE: Final = "*"
"""The name that stands for all tenants; no digest is that."""

_FORMAT: Final = "search-learning-1"
_HEAVIEST: Final = 5.0
_TIMEOUT: Final = 5.0
"""Seconds to wait for another process."""

_REMEMBERED: Final = 86_400.0
"""Seconds for which a file says what was forgotten: running processes save much more often."""

_log = logging.getLogger("mcp_toolset.catalog")


class _File(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: str
    key: str
    tenants: dict[str, dict[str, dict[str, list[float]]]]
    forgotten: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class LearningKept:
    """The content of a file.

    Attributes:
        key: The key of the digests.
        tenants: The weights; the tenant that has learnt nothing for longest comes first.
        forgotten: When tenants were forgotten, by their digests.
    """

    key: bytes
    tenants: Weights
    forgotten: Mapping[str, float] = field(default_factory=dict[str, float])

    def without(self, tenant: str | None, now: float) -> LearningKept:
        """The same without a tenant, or without all."""
        recent = {name: when for name, when in self.forgotten.items() if when > now - _REMEMBERED}
        left = {} if tenant is None else {name: one for name, one in self.tenants.items() if name != tenant}
        return replace(self, tenants=left, forgotten={**recent, tenant or EVERYONE: now})

    def forgotten_until(self, tenant: str) -> float:
        """The time up to which uses of a tenant do not count."""
        return max(self.forgotten.get(name, -math.inf) for name in (tenant, EVERYONE))


class LearningFile:
    """One file; private to its owner, and not read if other users may write to it."""

    def __init__(self, path: Path) -> None:
        self.path = path  # where it is
        self._read: tuple[int, int, int] | None = None

    def begin(self, key: bytes) -> LearningKept | None:
        """Load the file; one that does not exist is made, so that all processes have its key.

        A file that cannot be used is left as it is until something is saved, and there is a warning.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked():
                if self.path.exists():
                    return self._load()
                self._write(LearningKept(key, {}))
        except OSError as fault:
            _log.warning("what search learns cannot be kept in %s: %s", self.path, fault)
        return None

    def update(self, own: LearningKept, change: Callable[[LearningKept], LearningKept]) -> LearningKept:
        """Replace what is kept by what `change` makes of it, and return that.

        Args:
            own: The knowledge of this process: saved in place of a file that cannot be used. If there is no
                file, it was removed, and all is forgotten.
            change: Gets the stored knowledge.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            gone = not self.path.exists()
            kept = LearningKept(own.key, {}) if gone else self._load() or own
            changed = change(kept)
            if gone or changed != kept:
                self._write(changed)
            return changed

    def has_changed(self) -> bool:
        """True if it is not as this process has last read or written it."""
        return self._stamp() != self._read

    def _locked(self) -> AbstractContextManager[object]:
        return locked(self.path.with_name(f".{self.path.name}.lock"), _TIMEOUT)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _load(self) -> LearningKept | None:
        """The content of the file; `None` with a warning if the file cannot be trusted."""
        self._read = self._stamp()
        try:
            if not is_private(self.path.stat()):
                raise ValueError("other users may write to it")
            found = _File.model_validate_json(read_regular(self.path))
            if found.format != _FORMAT:
                raise ValueError(f"its format is {found.format!r}")
            tenants = {name: _checked(weights) for name, weights in found.tenants.items()}
            return LearningKept(bytes.fromhex(found.key), tenants, found.forgotten)
        except (OSError, ValueError) as fault:
            why = "it is damaged" if isinstance(fault, ValidationError) else str(fault)
            _log.warning("what search has learnt is not used: %s: %s", self.path, why)
            return None

    def _write(self, kept: LearningKept) -> None:
        content = {
            "format": _FORMAT,
            "key": kept.key.hex(),
            "tenants": kept.tenants,
            "forgotten": kept.forgotten,
        }
        replace_file(self.path, json.dumps(content).encode())
        self._read = self._stamp()


def _checked(
    weights: Mapping[str, Mapping[str, list[float]]],
) -> Mapping[str, Mapping[str, tuple[float, float]]]:
    """The weights of a tenant; what no run has written is an error."""
    return {term: {tool: _weight(one) for tool, one in tools.items()} for term, tools in weights.items()}


def _weight(one: list[float]) -> tuple[float, float]:
    if len(one) != 2 or not (0 <= one[0] <= _HEAVIEST and math.isfinite(one[1])):
        raise ValueError("a weight is out of range")
    return one[0], one[1]


_GAIN: Final = 8.0
_TERMS: Final = 24
_ASKED: Final = 200
_QUERY: Final = 2_000
_UNSAVED: Final = 1_000

SAVED_EVERY: Final = 30.0
"""Seconds between two saves, and so until a process knows what others have learnt or forgotten."""

Weight = tuple[float, float]
"""The number of uses of a tool for a word, and the time of the last one."""

ONE_USER: Final = "the user of this process"
"""The tenant of a process that serves one user, over stdio."""


def principal_of(context: ToolContext) -> str:
    """The authenticated caller; callers who cannot be told apart have no tenant, and nothing is learnt."""
    return context.principal or ""


@dataclass(slots=True)
class _Tenant:
    """Weights of one tenant, and its search results that are not used so far."""

    weights: OrderedDict[str, dict[str, Weight]] = field(
        default_factory=OrderedDict[str, "dict[str, Weight]"]
    )
    pairs: int = 0
    found: OrderedDict[str, tuple[str, ...]] = field(default_factory=OrderedDict[str, "tuple[str, ...]"])
    resolved: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])


class _Use(NamedTuple):
    """A call that counts."""

    tenant: str
    terms: tuple[str, ...]
    tool: str
    when: float


class SearchLearning(Extension, SearchListener):
    """The tools that each tenant of a server has used. Give it to `ToolsetServer(…, learning=…)`.

    Attributes:
        serves_one: True if all callers without a tenant are one user, as over stdio.
    """

    key: ClassVar = "learning"
    in_views: ClassVar = "none"

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        tenant: Callable[[ToolContext], str] = principal_of,
        max_bonus: float = MAX_BONUS,
        max_callers: int = MAX_CALLERS,
        max_pairs: int = MAX_PAIRS,
        half_life: float = HALF_LIFE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Learn from the searches of one server.

        Args:
            path: The file, which is created now and written by `save`. Several processes can share it. By
                default nothing is kept.
            tenant: The tenant of a caller, by default the principal; nothing is learnt for an empty one.
            max_bonus: The most that uses add to a score, above 0 and below 0.2.
            max_callers: The number of tenants to keep; the tenant with the oldest last use is removed first.
            max_pairs: The number of pairs of a word and a tool to keep for each tenant; the oldest go first.
            half_life: Seconds after which a use counts half.
            clock: The time in seconds since the epoch.

        Raises:
            DefinitionError: a number is out of range.
        """
        require_positive(
            "SearchLearning",
            max_bonus=max_bonus,
            max_callers=max_callers,
            max_pairs=max_pairs,
            half_life=half_life,
        )
        if not max_bonus < 0.2:
            raise DefinitionError(f"SearchLearning: max_bonus is below 0.2, not {max_bonus}")
        self.serves_one = False
        self._file = None if path is None else LearningFile(Path(path))
        self._tenant = tenant
        self._max_bonus = max_bonus
        self._limits = (max_callers, max_pairs)
        self._half_life = half_life
        self._now = clock
        self._key = secrets.token_bytes(16)
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        self._unsaved: deque[_Use] = deque(maxlen=_UNSAVED)
        self._saving = Lock()
        if self._file is not None and (kept := self._file.begin(self._key)) is not None:
            self._key = kept.key
            self._tenants = self._held(kept.tenants)

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """Build the extension from its keyword, which may be the path of a file."""
        if isinstance(said, str | PathLike):
            return cls(cast("str | PathLike[str]", said))
        if said is not None and said is not True:
            raise DefinitionError(f"learning takes True, a path or SearchLearning(…), not {said!r}")
        found = LearningSettings() if stated is None else cast("LearningSettings", stated)
        return cls.stated(found, host.served_as)

    @classmethod
    def stated(cls, settings: LearningSettings, served_as: str) -> Self:
        """The extension for a configuration; it has its own file unless the settings name one."""
        path = settings.path or learning_path(served_as)
        return cls(
            path,
            max_bonus=settings.max_bonus,
            max_callers=settings.max_callers,
            max_pairs=settings.max_pairs,
            half_life=settings.half_life,
        )

    def listener(self) -> Self:
        return self

    def alone(self) -> None:
        self.serves_one = True

    def searched(self, context: ToolContext, query: str, tools: Iterable[str]) -> None:
        """Note the tools that a search has found."""
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
        use = _Use(self._digest(self._name(context)), terms, tool, self._now())
        self._count(tenant, use)
        if self._file is not None:
            self._unsaved.append(use)

    def _count(self, tenant: _Tenant, use: _Use) -> None:
        for term in use.terms:
            tools = tenant.weights.setdefault(term, {})
            tenant.weights.move_to_end(term)
            tenant.pairs += use.tool not in tools
            before = self._weight(tools.get(use.tool, (0.0, use.when)), use.when)
            tools[use.tool] = (min(_HEAVIEST, 1 + before), use.when)
        while tenant.pairs > self._limits[1]:
            tenant.pairs -= len(tenant.weights.popitem(last=False)[1])

    def bonus(self, context: ToolContext, query: str) -> Mapping[str, float]:
        """The amounts that uses add to the scores of tools for a query, from 0 to `most`."""
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
        return {
            tool: self._max_bonus * min(1.0, _GAIN * share / len(terms)) for tool, share in shares.items()
        }

    def forget(self, tenant: str | None = None) -> None:
        """Forget a tenant, or all tenants, also in the file. Other processes forget when they save next."""
        name = None if tenant is None else self._digest(tenant)
        if name is None:
            self._tenants.clear()
            self._unsaved.clear()
        else:
            self._tenants.pop(name, None)
        if self._file is not None:
            self._save(lambda kept: kept.without(name, self._now()))

    def save(self) -> None:
        """Add the uses since the last save to the file, and read the uses that other processes have added.

        Nothing happens without a path. A failure is logged. It may run in a worker thread.
        """
        if self._file is not None and (self._unsaved or self._file.has_changed()):
            self._save(lambda kept: kept)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Save from time to time for the length of a block, and at its end."""
        return beside(self._save_again, last=partial(anyio.to_thread.run_sync, self.save))

    async def _save_again(self) -> None:
        # What other processes save sets no event here.
        while self._file is not None:
            await anyio.sleep(SAVED_EVERY)
            await anyio.to_thread.run_sync(self.save)

    @property
    def learnt(self) -> tuple[int, int]:
        """The number of tenants with uses, and of known pairs of a word and a tool."""
        pairs = [tenant.pairs for tenant in self._tenants.values() if tenant.pairs]
        return len(pairs), sum(pairs)

    def _save(self, change: Callable[[LearningKept], LearningKept]) -> None:
        assert self._file is not None
        with self._saving:
            uses = tuple(self._unsaved)
            own = LearningKept(self._key, _weights(self._tenants))
            try:
                saved = self._file.update(own, lambda kept: self._merged(change(kept), uses))
            except OSError as fault:
                _log.warning("what search has learnt could not be saved to %s: %s", self._file.path, fault)
                return
            for use in uses:
                # Others may be dropped or forgotten meanwhile.
                if self._unsaved and self._unsaved[0] is use:
                    self._unsaved.popleft()
            before, self._tenants = self._tenants, self._held(saved.tenants)
            if saved.key != self._key:
                # Another file has taken its place: what was found so far is in words of the old key.
                self._key = saved.key
                return
            for name, tenant in before.items():
                if tenant.found:
                    held = self._tenants.setdefault(name, _Tenant())
                    held.found, held.resolved = tenant.found, tenant.resolved

    def _merged(self, kept: LearningKept, uses: Iterable[_Use]) -> LearningKept:
        """The kept weights, with the uses that were made under their key and have not been forgotten."""
        tenants = self._held(kept.tenants)
        for use in uses if kept.key == self._key else ():
            if use.when > kept.forgotten_until(use.tenant):
                self._count(tenants.setdefault(use.tenant, _Tenant()), use)
                tenants.move_to_end(use.tenant)
        while len(tenants) > self._limits[0]:
            tenants.popitem(last=False)
        return LearningKept(kept.key, _weights(tenants), kept.forgotten)

    def _held(self, tenants: Weights) -> OrderedDict[str, _Tenant]:
        return OrderedDict((name, _tenant(weights)) for name, weights in tenants.items())

    def _name(self, context: ToolContext) -> str:
        return self._tenant(context) or (ONE_USER if self.serves_one else "")

    def _of(self, context: ToolContext, *, adds: bool = False) -> _Tenant | None:
        name = self._name(context)
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


def _tenant(weights: Mapping[str, Mapping[str, Weight]]) -> _Tenant:
    made = _Tenant()
    for term, tools in weights.items():
        made.weights[term] = dict(tools)
        made.pairs += len(tools)
    return made


def _weights(tenants: Mapping[str, _Tenant]) -> Weights:
    """The weights to keep: those of tenants that have used something."""
    return {
        name: {term: dict(tools) for term, tools in tenant.weights.items()}
        for name, tenant in tenants.items()
        if tenant.weights
    }


EXTENSION = SearchLearning
