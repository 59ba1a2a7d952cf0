"""`KnownEras`: a file of the protocol eras that each server was found to speak, kept between runs.

`server/discover` lists modern revisions only, so whether a server has the legacy era too shows only when
it is tried, and the other way round a silent server takes 10 s to be found not to be modern. What was
found is kept in one small file of the user's cache folder for a day, as servers are updated.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from mcp_toolset.catalog.registry.kept_files import cache_folder
from mcp_toolset.concurrency.atomic_file import locked, replace_file
from mcp_toolset.config import Era

KEPT: Final = 24 * 3600.0
"""Seconds for which a finding holds."""

MAX_KNOWN: Final = 1000
"""Servers that are remembered; the oldest findings go first."""

_PATIENCE: Final = 2.0
"""Seconds that writing waits for another process that writes."""

_log = logging.getLogger("mcp_toolset.upstream")


def default_place() -> Path | None:
    """Where findings are kept, in the cache folder; `None` if nothing is kept."""
    folder = cache_folder()
    return None if folder is None else folder / "eras.json"


class KnownEras:
    """The findings about one server; a file that cannot be read or written is as good as none."""

    def __init__(self, identity: str, place: Path | None = None) -> None:
        """Look up and note findings of the server with this identity."""
        self._identity = identity
        self._place = place or default_place()

    def recall(self) -> dict[Era, bool]:
        """The eras that the server is known to speak, or not to speak. Reads a file."""
        known = self._recalled()
        eras: tuple[Era, Era] = ("legacy", "modern")
        return {era: value for era in eras if isinstance(value := known.get(era), bool)}

    def _recalled(self) -> Mapping[str, Any]:
        found: Any = {} if self._place is None else _read(self._place).get(self._identity)
        return cast("Mapping[str, Any]", found) if _is_fresh(found) else {}

    def recall_same(self) -> frozenset[str]:
        """The capability sets whose clients were listed what everybody is. Reads a file."""
        same: Any = self._recalled().get("same")
        return frozenset(cast("list[str]", same)) if isinstance(same, list) else frozenset()

    def note_same(self, capability_sets: frozenset[str]) -> None:
        """Keep for which capability sets a server lists what it lists to everybody. Writes a file."""
        self.note({}, same=capability_sets)

    def note(self, findings: Mapping[Era, bool], *, same: frozenset[str] | None = None) -> None:
        """Keep what was found, beside what was known before. Writes a file."""
        if self._place is None:
            return
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            with locked(f"{self._place}.lock", _PATIENCE):
                kept = self.recall_same() if same is None else same
                self._write(self._place, {**self.recall(), **findings, "same": sorted(kept)})
        except OSError as fault:
            _log.debug("%s is not written: %s", self._place, fault)

    def _write(self, place: Path, findings: Mapping[str, Any]) -> None:
        held = {name: each for name, each in _read(place).items() if _is_fresh(each)}
        held.pop(self._identity, None)
        recent = dict(list(held.items())[-MAX_KNOWN + 1 :])
        recent[self._identity] = {**findings, "at": int(time.time())}
        replace_file(place, json.dumps(recent, indent=1).encode(), durable=False)


def _read(place: Path) -> dict[str, Any]:
    try:
        found: Any = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _is_fresh(entry: object) -> bool:
    at: Any = cast("Mapping[str, Any]", entry).get("at") if isinstance(entry, Mapping) else None
    return isinstance(at, int) and 0 <= time.time() - at < KEPT
