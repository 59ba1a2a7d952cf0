"""`LearningFile`: the file in which processes share what search has learnt; one of them writes at a time."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from mcp_toolset._records import dataclass, replace
from mcp_toolset.concurrency.atomic_file import is_private, locked, read_regular, replace_file

Weights = Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]]
"""By tenant, word and tool: how often the tool was used for the word, and when it was last."""

EVERYONE: Final = "*"
"""What stands for all tenants; no digest is that."""

_FORMAT: Final = "search-learning-1"
_HEAVIEST: Final = 5.0
_PATIENCE: Final = 5.0
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
    """What is in a file.

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
        """What is kept; a file that does not exist is made, so that all processes have its key.

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
            own: What this process knows: saved in place of a file that cannot be used. If there is no file,
                it was removed, and all is forgotten.
            change: Given what is kept now.
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
        return locked(self.path.with_name(f".{self.path.name}.lock"), _PATIENCE)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _load(self) -> LearningKept | None:
        """What is kept; `None` with a warning if the file cannot be trusted."""
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
