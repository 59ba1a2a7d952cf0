"""Names that stand for no tool: told once, and refused where all tools are known (docs/names.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mcp_toolset.errors import UnknownNameError
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.tools.view.tool_names import EVERY_TOOL, NameUse, ToolNames

if TYPE_CHECKING:
    from mcp_toolset.tools.binding.binding import ToolBinding
    from mcp_toolset.tools.core.source import ToolSource

_log = logging.getLogger("mcp_toolset.names")


@dataclass(frozen=True, slots=True)
class UnboundName:
    """A name that stands for no tool, or for several tools that had it.

    Attributes:
        name: The name as it was given.
        where: What it was given to, such as `hooks.execution`.
        near: The public names that may have been meant.
        waiting: The mounted servers that are not ready, any of which may bring it.
        starting: Those of them that are still starting.
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
    starting: tuple[str, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether it is time to tell: no server is starting that may bring it, nor is its own one down."""
        return not self.starting and not (self.server and self.waiting)

    @property
    def reason(self) -> str:
        """What is wrong, and how to mend it."""
        if self.kind == "ambiguous":
            return f"several tools had this name: use {' or '.join(self.near)}, or give the tool itself"
        if self.kind == "moved":
            return f"no tool fits this pattern any more: the names are {', '.join(self.near)} now"
        fault = "no tool fits this pattern" if self.kind == "pattern" else "there is no such tool"
        fault += f" of server {self.server!r}" if self.server else ""
        if not self.is_settled:
            return f"{fault} so far; not listed yet: {', '.join(self.waiting)}"
        near = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
        away = f" ({', '.join(self.waiting)} cannot be reached now and may have it)" if self.waiting else ""
        return f"{fault}{near}{away}"

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
        """The sources that are not ready."""
        return tuple(one.source_name for one in self.sources if one.status.state != "ready")

    @property
    def starting(self) -> tuple[str, ...]:
        """The sources that have neither listed their tools nor failed."""
        return tuple(one.source_name for one in self.sources if one.status.state in ("closed", "starting"))

    def missing(self, use: NameUse, near: Iterable[str]) -> UnboundName:
        """What is to be told of a name that stands for none of the tools."""
        kind = "pattern" if use.is_pattern else "unknown"
        return UnboundName(use.name, use.where, tuple(near), self.waiting, kind, starting=self.starting)


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
            found[use.where, use.name] = known.missing(use, names.near(use) or every.near(use))
    return list(found.values())


@dataclass(slots=True)
class NameReport:
    """Tells about names that stand for no tool: once each, and again after they stood for one.

    Where all tools are known, because nothing is mounted, such a name is an error, and a pattern that
    fits nothing a warning. Mounted servers may bring the tool later: once none is starting any more, it
    is a warning. A name that once stood for a tool is a warning at most, since tools come and go.

    Attributes:
        strict: `True` has every warning be an error, `False` every error a warning.
        found: What was found last.
    """

    strict: bool | None = None
    found: tuple[UnboundName, ...] = ()
    _told: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
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
        settled = {_key(one): one for one in self.found if one.is_settled}
        for key, one in settled.items():
            if key not in self._told:
                _log.warning("%s", in_log(one))
        # A server that is starting again is no reason to tell the same twice.
        self._told = (self._told | settled.keys()) & set(map(_key, self.found))

    def _is_error(self, one: UnboundName, is_closed: bool) -> bool:
        if self.strict is False or one.waiting or (one.where, one.name) in self._bound:
            return False
        return self.strict is True or (is_closed and one.kind != "pattern")


def _key(one: UnboundName) -> tuple[str, str, str]:
    return one.where, one.name, one.server
