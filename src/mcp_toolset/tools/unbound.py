"""Names that stand for no tool: told once, and refused where all tools are known (docs/names.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mcp_toolset.errors import UnknownNameError
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.tool_names import EVERY_TOOL, NameUse, ToolNames

if TYPE_CHECKING:
    from mcp_toolset.tools.source import ToolSource
    from mcp_toolset.tools.view import ToolBinding

_log = logging.getLogger("mcp_toolset.names")


@dataclass(frozen=True, slots=True)
class UnboundName:
    """A name that stands for no tool, or for several tools that had it.

    Attributes:
        name: The name as it was given.
        where: What it was given to, such as `hooks.execution`.
        near: The public names that may have been meant.
        waiting: The mounted servers that have not listed their tools, any of which may bring it.
        kind: Whether it is the name of nothing; a pattern that fits nothing, or nothing any more since
            the tools have other names; or ambiguous.
        server: The mounted server that all the tools are of, if there is only one.
    """

    name: str
    where: str
    near: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kind: Literal["unknown", "pattern", "moved", "ambiguous"] = "unknown"
    server: str = ""

    @property
    def reason(self) -> str:
        """What is wrong, and how to mend it."""
        if self.kind == "ambiguous":
            return f"several tools had this name: use {' or '.join(self.near)}, or give the tool itself"
        if self.kind == "moved":
            return f"no tool fits this pattern any more: the names are {', '.join(self.near)} now"
        fault = "no tool fits this pattern" if self.kind == "pattern" else "there is no such tool"
        fault += f" of server {self.server!r}" if self.server else ""
        if self.waiting:
            return f"{fault} so far; not listed yet: {', '.join(self.waiting)}"
        return f"{fault}; did you mean {' or '.join(self.near)}?" if self.near else fault

    def __str__(self) -> str:
        """The name, where it was given, and what is wrong."""
        effect = "" if self.kind == "ambiguous" else " has no effect"
        return f"{self.where}({self.name!r}){effect}: {self.reason}"


@dataclass(frozen=True, slots=True)
class KnownTools:
    """The tools that a name can be held against.

    Attributes:
        everything: Gives every tool, also those that are filtered out or switched off.
        sources: What may bring further tools.
        verbs: Gives the names that verbs were given and that stand for no tool.
        is_part: Whether these are a part of tools that nobody knows here, so that no name is missing.
    """

    everything: Callable[[], Iterable[ToolBinding]]
    sources: Sequence[ToolSource] = ()
    is_part: bool = False
    verbs: Callable[[], Iterable[UnboundName]] = tuple[UnboundName, ...]

    @property
    def waiting(self) -> tuple[str, ...]:
        """The sources that have not listed their tools."""
        return tuple(one.source_name for one in self.sources if one.status.state != "ready")


def unbound(uses: Iterable[NameUse], names: ToolNames, known: KnownTools) -> list[UnboundName]:
    """The names that stand for no tool, each once.

    Args:
        uses: The names.
        names: The tools that are offered.
        known: All tools, asked only about names that are missing among those.
    """
    found: dict[tuple[str, str], UnboundName] = {}
    every: ToolNames | None = None
    for use in uses:
        if use.name == EVERY_TOOL:
            continue
        if names.reached(use):
            if names.is_ambiguous(use):
                near = tuple(sorted(names.reached(use)))
                found[use.where, use.name] = UnboundName(use.name, use.where, near, kind="ambiguous")
            continue
        if moved := names.moved(use):
            found[use.where, use.name] = UnboundName(use.name, use.where, tuple(moved), kind="moved")
            continue
        every = every or ToolNames(known.everything())
        if not every.reached(use):
            kind = "pattern" if use.is_pattern else "unknown"
            found[use.where, use.name] = UnboundName(
                use.name, use.where, tuple(names.near(use) or every.near(use)), known.waiting, kind
            )
    return list(found.values())


@dataclass(slots=True)
class NameReport:
    """Tells about names that stand for no tool: once each, and again after they stood for one.

    Where all tools are known, because nothing is mounted, such a name is an error, and a pattern that
    fits nothing a warning. Mounted servers may bring the tool later: once all have listed, it is a
    warning. A name that once stood for a tool is a warning at most, since tools come and go.

    Attributes:
        strict: `True` has every warning be an error, `False` every error a warning.
        found: What was found last.
    """

    strict: bool | None = None
    found: tuple[UnboundName, ...] = ()
    _told: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    _bound: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def look(
        self,
        uses: Iterable[NameUse],
        names: ToolNames,
        known: KnownTools,
        verbs: Iterable[UnboundName] = (),
    ) -> None:
        """Hold names against the tools as they are now; `verbs` are what was found missing elsewhere.

        Raises:
            UnknownNameError: one of them stands for no tool, and that is an error here.
        """
        if known.is_part:
            return
        uses = list(uses)
        self.take([*unbound(uses, names, known), *verbs], is_closed=not known.sources)
        missing = {(one.where, one.name) for one in self.found}
        self._bound |= {(use.where, use.name) for use in uses} - missing

    def take(self, found: Iterable[UnboundName], *, is_closed: bool) -> None:
        """Tell about names that were found missing; `is_closed` says that no tool can come later.

        Raises:
            UnknownNameError: one of them is an error here.
        """
        self.found = tuple(found)
        errors = [one for one in self.found if self._is_error(one, is_closed)]
        if errors:
            raise UnknownNameError("; ".join(map(str, errors)))
        settled = [one for one in self.found if not one.waiting]
        for one in settled:
            if (one.where, one.name) not in self._told:
                _log.warning("%s", in_log(one))
        self._told = {(one.where, one.name) for one in settled}

    def _is_error(self, one: UnboundName, is_closed: bool) -> bool:
        if self.strict is False or one.waiting or (one.where, one.name) in self._bound:
            return False
        return self.strict is True or (is_closed and one.kind != "pattern")
