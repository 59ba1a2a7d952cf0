"""`Pins`: compare what a server lists with the pinned definitions, and quarantine changed tools.

A pin is the canonical definition of a tool. It comes from a lock file, which a person wrote with
`mcp-toolset pin`, or else from the first listing of this process. Later listings are always compared with the
pin, never with the listing before: a definition cannot be changed in small steps, nor by disappearing for a
while.

| on a server | unchanged | can do more, or risky words gained | other words | other changes | a new tool |
|---|---|---|---|---|---|
| in the lock file | served | quarantined | quarantined | served, reported | quarantined |
| seen by this process | served | quarantined | served, reported | served, reported | served |

`accept`, `warn` and `quarantine` decide for the whole row instead. A quarantined tool is not listed, called
or found; its name, its accepted definition and the reason are in the status of its source.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.pins.canonical import canonical, digest_of
from mcp_toolset.catalog.pins.capability_changes import gained
from mcp_toolset.catalog.pins.differences import compared, says_otherwise
from mcp_toolset.catalog.pins.hygiene import Tidied, tidied
from mcp_toolset.catalog.pins.lockfile import LockEntry, Pinned
from mcp_toolset.catalog.snapshot import CatalogSnapshot, ListedTool
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.source import ToolChange
from mcp_toolset.tools.text.hidden_text import HiddenTextPolicy, in_log, visible

__all__ = ["ChangePolicy", "PinPolicy", "Pins"]

ChangePolicy = Literal["accept", "warn", "quarantine"]
"""Serve a changed tool; serve it and report it; or quarantine it until a person accepts it."""

MAX_SEEN: Final = 50_000
"""The number of tools of one server whose first definition is remembered; further names are refused."""

_SHOWN: Final = 300
_LISTED: Final = 3
_MEND: Final = "see it with `mcp-toolset pin`, and accept it there"
_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})


@dataclass(frozen=True, slots=True)
class PinPolicy:
    """The reaction to definitions that change or that have hidden text.

    Attributes:
        changed: For tools that differ from their pin; with `None` the kind of change decides.
        new: For tools that a pinned server did not have; `None` is as `changed`, and quarantines them if
            that is `None` too.
        hidden_text: For invisible, bidirectional and control characters.
    """

    changed: ChangePolicy | None = None
    new: ChangePolicy | None = None
    hidden_text: HiddenTextPolicy = "strip"


@dataclass(frozen=True)
class _Seen:
    """A listed definition without the secrets of its mount; its canonical form is made to compare it."""

    definition: ToolDefinition

    @cached_property
    def canonical(self) -> Mapping[str, Any]:
        return canonical(self.definition)

    @cached_property
    def digest(self) -> str:
        """The digest of the canonical form."""
        return digest_of(self.canonical)


class Pins:
    """The pins of one server; compares the server's lists with them."""

    def __init__(
        self,
        server: str,
        policy: PinPolicy | None = None,
        entry: LockEntry | None = None,
        scrub: Callable[[str], str] | None = None,
    ) -> None:
        """Start without pins.

        Args:
            server: The name of the mount, for messages.
            policy: What is done about changes.
            entry: The server's part of a lock file; without one, pins last as long as the process.
            scrub: Removes the secrets of the mount from a text; `None` if it has none.
        """
        self._server = server
        self._policy = policy or PinPolicy()
        self._entry = entry
        self._scrub = scrub
        self._first: dict[str, _Seen] = {}
        self._listed: dict[str, tuple[str, _Seen]] = {}
        self._told: dict[str, str] = {}
        self._sees = self._live = True
        self._noted: dict[str, str] = {}
        self._tidy: dict[str, tuple[str, Tidied]] = {}
        self._log = logging.getLogger("mcp_toolset.pins")

    @property
    def entry(self) -> LockEntry | None:
        """The server's part of a lock file."""
        return self._entry

    @property
    def decides_by_list(self) -> bool:
        """Whether a tool that the server has not listed may be one to quarantine."""
        pinned = self._entry is not None and self._entry.is_pinned
        return pinned or "quarantine" in (self._policy.changed, self._policy.new)

    def settle(self, policy: PinPolicy, entry: LockEntry | None) -> None:
        """Use another policy and lock file from now on; first definitions stay."""
        if policy.hidden_text != self._policy.hidden_text:
            self._tidy = {}
        self._policy, self._entry = policy, entry

    def remember(self, before: Pins) -> None:
        """Take over the first definitions that another connection has seen."""
        self._first = dict(before._first)

    def listed(self) -> Pinned:
        """The server's last list, canonical and without secrets: what accepting it would pin."""
        listed = self._listed.items() if self._live else ()
        return {name: dict(seen.canonical) for name, (_, seen) in listed}

    @property
    def hidden_text(self) -> HiddenTextPolicy:
        """What is done about hidden characters in the server's lists."""
        return self._policy.hidden_text

    def admit(
        self, snapshot: CatalogSnapshot, *, remembered: bool = False, served_first: bool = False
    ) -> CatalogSnapshot:
        """A snapshot without quarantined tools, and without hidden text in the others.

        Reads the lock file if it has changed; to be called in a worker thread.

        Args:
            snapshot: The server's list.
            remembered: Whether it is the list of the last run. It is compared with the lock file, and counts
                as the first sight of a tool only if every change is quarantined, or if it is `served_first`.
            served_first: Whether clients are served the list of the last run until a call starts the server.
        """
        self._sees = not remembered or served_first or self._policy.changed == "quarantine"
        self._live = not remembered
        locked = self._entry.refreshed() if self._entry is not None else None
        self._listed = {name: self._seen(tool.definition) for name, tool in snapshot.tools.items()}
        found = (self._change(seen, locked) for _, seen in self._listed.values())
        changes = tuple(change for change in found if change is not None)
        self._report(changes)
        held = {change.name: change for change in changes if change.held}
        aside = tuple((change.name, change.reason) for change in held.values())
        open_ = {name: tool for name, tool in snapshot.tools.items() if name not in held}
        return self._tidied(
            replace(snapshot, tools=open_, set_aside=(*snapshot.set_aside, *aside), changes=changes)
        )

    def _seen(self, definition: ToolDefinition) -> tuple[str, _Seen]:
        """The definition in comparable form, computed once for each definition."""
        digest = definition.digest
        known = self._listed.get(definition.name)
        if known is not None and known[0] == digest:
            return known
        shown = definition
        if self._scrub is not None:
            wire = scrubbed(definition.to_wire(), self._scrub)
            shown = ToolDefinition.from_wire(wire | {"name": definition.name})
        return digest, _Seen(shown)

    def _change(self, seen: _Seen, locked: Pinned | None) -> ToolChange | None:
        name = seen.definition.name
        pin: Mapping[str, Any] | None = None if locked is None else locked.get(name)
        is_new = locked is not None and pin is None
        if is_new and self._on_new == "quarantine":
            return _new(seen, held=True)
        if pin is None:
            first = self._remembered(seen)
            if first is None:
                return replace(
                    _new(seen, held=True), reason=f"the server has named more than {MAX_SEEN} tools"
                )
            pin = None if first is seen else first.canonical
        if pin is not None and digest_of(pin) != seen.digest:
            return self._judged(seen, pin, is_locked=locked is not None and not is_new)
        return _new(seen, held=False) if is_new and self._on_new == "warn" else None

    @property
    def _on_new(self) -> ChangePolicy:
        return self._policy.new or self._policy.changed or "quarantine"

    def _remembered(self, seen: _Seen) -> _Seen | None:
        """The first definition of this name, which may be this one; `None` if there were too many names."""
        name = seen.definition.name
        if name not in self._first and len(self._first) >= MAX_SEEN:
            return None
        if not self._sees:
            return self._first.get(name, seen)
        return self._first.setdefault(name, seen)

    def _judged(self, seen: _Seen, pin: Mapping[str, Any], *, is_locked: bool) -> ToolChange | None:
        policy = self._policy.changed
        if policy == "accept":
            return None
        # Its patterns take longer to compile than a server to start; only tools that have changed need them.
        from mcp_toolset.catalog.pins.risky_text import text_gained

        reasons = (*gained(pin, seen.canonical), *text_gained(pin, seen.canonical))
        held = policy == "quarantine"
        if policy is None:
            held = bool(reasons) or (is_locked and says_otherwise(pin, seen.canonical))
        return _changed(seen, pin, reasons, held=held)

    def _tidied(self, snapshot: CatalogSnapshot) -> CatalogSnapshot:
        tools: dict[str, ListedTool] = {}
        self._tidy = {name: done for name, done in self._tidy.items() if name in snapshot.tools}
        aside: list[tuple[str, str]] = []
        flagged: list[tuple[str, str]] = []
        for name, tool in snapshot.tools.items():
            done = self._clean(tool.definition)
            note = _short(self._scrub("; ".join(done.notes)) if self._scrub else "; ".join(done.notes))
            if done.refused:
                aside.append((name, note))
                continue
            if note:
                flagged.append((name, note))
            tools[name] = (
                tool if done.definition is tool.definition else replace(tool, definition=done.definition)
            )
        self._report_texts("set aside", aside)
        self._report_texts("cleaned" if self._policy.hidden_text == "strip" else "served unchanged", flagged)
        return replace(snapshot, tools=tools, set_aside=(*snapshot.set_aside, *aside), flagged=tuple(flagged))

    def _clean(self, definition: ToolDefinition) -> Tidied:
        known = self._tidy.get(definition.name)
        if known is None or known[0] != definition.digest:
            known = definition.digest, tidied(definition, self._policy.hidden_text)
            self._tidy[definition.name] = known
        return known[1]

    def _report(self, changes: Iterable[ToolChange]) -> None:
        """Log each change once, as long as it lasts."""
        told = self._told
        self._told = {change.name: change.offered.digest for change in changes}
        for change in changes:
            if told.get(change.name) != change.offered.digest:
                fate = "held back" if change.held else "served"
                self._log.warning(
                    "%s: %s is %s: %s", self._server, in_log(change.name), fate, in_log(change.reason)
                )

    def _report_texts(self, fate: str, tools: Iterable[tuple[str, str]]) -> None:
        for name, note in tools:
            if self._noted.get(name) != note:
                self._noted[name] = note
                self._log.warning("%s: %s is %s: %s", self._server, in_log(name), fate, in_log(note))


def scrubbed(value: Any, scrub: Callable[[str], str]) -> Any:
    """A JSON value without secrets, in keys and texts; JSON's own type names are never secrets.

    Keys that become equal are kept apart: every part of a definition must count in its digest.
    """
    if isinstance(value, str):
        return value if value in _TYPES else scrub(value)
    if isinstance(value, list | tuple):
        return [scrubbed(item, scrub) for item in cast("Iterable[Any]", value)]
    if not isinstance(value, Mapping):
        return value
    table: dict[str, Any] = {}
    for key, item in sorted(cast("Mapping[str, Any]", value).items()):
        clean = scrub(key) if key not in _TYPES else key
        while clean in table:
            clean += "*"
        table[clean] = scrubbed(item, scrub)
    return table


def _new(seen: _Seen, *, held: bool) -> ToolChange:
    reason = f"it is new since the server was pinned; {_MEND}"
    return ToolChange(seen.definition.name, held, None, seen.definition, reason=reason)


def _changed(seen: _Seen, pin: Mapping[str, Any], reasons: Sequence[str], *, held: bool) -> ToolChange:
    gains = tuple(map(_short, reasons))
    places = tuple(_short(difference.path) for difference in compared(pin, seen.canonical))
    said = [*gains, *(f"{place} differs" for place in places)]
    more = f" and {len(said) - _LISTED} more" if len(said) > _LISTED else ""
    reason = f"its definition has changed since it was pinned: {'; '.join(said[:_LISTED])}{more}; {_MEND}"
    pinned = ToolDefinition.from_wire(pin)
    return ToolChange(seen.definition.name, held, pinned, seen.definition, gains, places, reason)


def _short(text: str) -> str:
    line = visible(text.replace("\n", " "))
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
