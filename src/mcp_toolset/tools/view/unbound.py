"""Names that match no tool: reported once, and refused if all tools are known (docs/names.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal

from mcp_toolset._records import dataclass
from mcp_toolset.errors import UnknownNameError
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.tools.view.tool_names import EVERY_TOOL, NameUse, ToolNames

if TYPE_CHECKING:
    from mcp_toolset.tools.binding.binding import ToolBinding
    from mcp_toolset.tools.core.source import ToolSource

_log = logging.getLogger("mcp_toolset.names")


@dataclass(frozen=True, slots=True)
class UnboundName:
    """A name that matches no tool, or several tools that had it before.

    Attributes:
        name: The name as it was given.
        where: Where it was given, such as `hooks.execution`.
        near: The public names that it may have been meant for.
        waiting: The mounted servers that are not ready and may have the tool.
        starting: Those of them that are still starting.
        kind: Whether the name matches nothing; the pattern matches nothing, or no longer anything because
            the tools were renamed; the name is ambiguous; its server is not mounted; or the tool calls
            another one, which rules are asked about.
        server: The mounted server of all the tools, if there is only one.
    """

    name: str
    where: str
    near: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kind: Literal["unknown", "pattern", "moved", "ambiguous", "server", "caller"] = "unknown"
    server: str = ""
    starting: tuple[str, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether to report it now: no server that may have the tool is starting, and its own is not down."""
        return not self.starting and not (self.server and self.waiting)

    @property
    def reason(self) -> str:
        """What is wrong, and how to correct it."""
        if self.kind == "ambiguous":
            return f"several tools had this name: use {' or '.join(self.near)}, or give the tool itself"
        if self.kind == "moved":
            return f"no tool fits this pattern any more: the names are {', '.join(self.near)} now"
        if self.kind == "caller":
            return "it calls another tool, and rules are asked about that one: name that tool, or `*`"
        if self.kind == "server":
            near = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
            return f"no such server is mounted{near}"
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
    """The tools that names are resolved against.

    Attributes:
        everything: Returns every tool, also those that are filtered out or switched off.
        sources: Sources that may add tools.
        verbs: Returns the names that were given to verbs and match no tool.
        is_part: Whether these tools are a part of a larger toolset, so that no name counts as missing.
    """

    everything: Callable[[], Iterable[ToolBinding]]
    sources: Sequence[ToolSource] = ()
    is_part: bool = False
    verbs: Callable[[], Iterable[UnboundName]] = tuple[UnboundName, ...]

    @property
    def waiting(self) -> tuple[str, ...]:
        """The sources that are not ready."""
        return tuple(one.source_name for one in self.sources if not one.status.is_up)

    @property
    def starting(self) -> tuple[str, ...]:
        """The sources that have neither listed their tools nor failed."""
        return tuple(one.source_name for one in self.sources if one.status.is_starting)

    def missing(self, use: NameUse, near: Iterable[str]) -> UnboundName:
        kind = "pattern" if use.is_pattern else "unknown"
        return UnboundName(use.name, use.where, tuple(near), self.waiting, kind, starting=self.starting)


def unbound(uses: Iterable[NameUse], names: ToolNames, known: KnownTools) -> list[UnboundName]:
    """The names that match no tool, each once.

    Args:
        uses: The names.
        names: The available tools.
        known: All tools, used only for names that match none of the available ones.
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


_DECIDING: Final = ("hooks.execution", "hooks.result", "tool_middleware")


def passed_by(uses: Iterable[NameUse], bindings: Iterable[ToolBinding]) -> list[UnboundName]:
    """The names of tools that call others, such as `call_tool`: rules see the calls of those others."""
    callers = {one.name for one in bindings if one.redirect is not None}
    found = (use for use in uses if use.name in callers and use.where in _DECIDING)
    return [UnboundName(use.name, use.where, kind="caller") for use in found]


@dataclass(slots=True)
class NameReport:
    """Reports names that match no tool: once each, and again after they matched one.

    Where all tools are known, because nothing is mounted, such a name is an error, and a pattern without
    matches is a warning. Mounted servers may add the tool later: once all have started, the name is a
    warning. A rule for a server that is not mounted is an error. A name that matched a
    tool before is a warning at most, since tools may be removed.

    Attributes:
        strict: `True` turns every warning into an error, `False` every error into a warning.
        found: The names that were found last.
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
        """Resolve names against the present tools; `verbs` are names that verbs found missing."""
        if known.is_part:
            return
        uses = list(uses)
        self.take([*unbound(uses, names, known), *verbs], is_closed=not known.sources)
        missing = {(one.where, one.name) for one in self.found}
        self._bound |= {(use.where, use.name) for use in uses} - missing

    def take(self, found: Iterable[UnboundName], *, is_closed: bool) -> None:
        """Report names that were found missing; `is_closed` says that no tools can be added later."""
        self.found = tuple(found)
        errors = [one for one in self.found if self._is_error(one, is_closed)]
        if errors:
            raise UnknownNameError("; ".join(map(str, errors)))
        settled = {_key(one): one for one in self.found if one.is_settled}
        for key, one in settled.items():
            if key not in self._told:
                _log.warning("%s", in_log(one))
        # A server that starts again is no reason to report the same name twice.
        self._told = (self._told | settled.keys()) & set(map(_key, self.found))

    def _is_error(self, one: UnboundName, is_closed: bool) -> bool:
        if self.strict is False or one.waiting or (one.where, one.name) in self._bound:
            return False
        is_slip = one.kind != "pattern" or bool(one.near)
        return self.strict is True or one.kind == "server" or (is_closed and is_slip)


def _key(one: UnboundName) -> tuple[str, str, str]:
    return one.where, one.name, one.server
