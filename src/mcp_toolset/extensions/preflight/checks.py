"""`Preflight`: compares the servers and tools that an agent needs with those that are there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from mcp_toolset._records import dataclass
from mcp_toolset.errors import NEEDS_LOGIN, REFUSES_CREDENTIALS, WANTS_CREDENTIALS
from mcp_toolset.tools.binding import near_names
from mcp_toolset.tools.source import ToolChange

if TYPE_CHECKING:
    from mcp_toolset.config.models import HubConfig
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.tools.call import Identity
    from mcp_toolset.tools.view import ToolBinding

State: TypeAlias = Literal["ok", "down", "login", "missing", "changed", "refused", "misconfigured"]

CODES: Final[Mapping[State, int]] = {
    "ok": 0,
    "down": 10,
    "login": 11,
    "missing": 12,
    "changed": 13,
    "refused": 14,
    "misconfigured": 15,
}
"""The exit code of each state; of several, the highest holds. Only 10 may pass by itself."""


@dataclass(frozen=True, slots=True)
class Check:
    """One server or tool that is needed, or a pattern of tools.

    Attributes:
        needed: Its name, as it was asked for.
        state: `ok`, or the reason for which an agent cannot use it.
        server: The name of its server; empty if that is unknown, or the tool is a program's own.
        tools: The public names of the tools that it stands for.
        note: The reason of the state, and what to do; empty if there is nothing to say.
    """

    needed: str
    state: State
    server: str = ""
    tools: tuple[str, ...] = ()
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        told = {"needed": self.needed, "state": self.state, "exit_code": CODES[self.state]}
        return {**told, "server": self.server, "tools": list(self.tools), "note": self.note}


def exit_code(checks: Iterable[Check]) -> int:
    return max((CODES[one.state] for one in checks), default=0)


def needed_servers(config: HubConfig, names: Sequence[str]) -> set[str]:
    """The servers that the names are about; all, if a name fits none.

    A server that nobody needs is not started: it may be slow, and is no reason to fail.
    """
    every = {server.name for server in config.servers}
    found = [{server.name for server in config.servers if server.may_have(name)} for name in names]
    return set[str]().union(*found) if found and all(found) else every


def _has_joker(text: str) -> bool:
    return any(sign in text for sign in "*?[")


class Preflight:
    """The checks of one server for one caller."""

    def __init__(
        self,
        server: ToolsetServer,
        caller: Identity | None = None,
        unattended: bool = False,
        config: HubConfig | None = None,
        own: Collection[str] | None = None,
    ) -> None:
        """Check an open server.

        Args:
            server: The server, after its mounts have settled.
            caller: The agent; `None` for a client on stdio.
            unattended: True if no person can approve calls, so that a tool which asks is refused.
            config: The configuration, with the servers that are disabled.
            own: The servers of which the open view of the server may have tools; `None` without a view.
        """
        from mcp_toolset.cli.mount import without_fixed

        view = None if own is None else next(iter(server.views), None)
        self._server = server if view is None else view
        self._caller = caller
        self._unattended = unattended
        self._statuses = self._server.statuses()
        entries = () if config is None else config.servers
        if own is not None:
            # A view has no server that has listed no tool of it; one that is down may have some.
            away = {name: one for name, one in server.statuses().items() if name in own and not one.is_up}
            self._statuses = {**self._statuses, **away}
            entries = [
                one for one in entries if one.name in self._statuses or (one.name in own and one.disabled)
            ]
        self._entries = {one.name: one for one in entries}
        self._bindings = without_fixed(self._server.bindings())

    def checks(self, names: Sequence[str]) -> list[Check]:
        """A check for each name; without names for each server, and each tool that differs from its pin."""
        if names:
            return [self._needed(name) for name in names]
        found = [self._of_server(name) for name in self._statuses]
        return [*found, *(one for name in self._statuses for one in self._changed(name))]

    def _needed(self, name: str) -> Check:
        if name in self._statuses:
            return self._of_server(name)
        if name in self._entries:
            return Check(name, "missing", name, note=_disabled(name))
        return self._of_tools(name)

    def _of_server(self, name: str) -> Check:
        status = self._statuses[name]
        tools = tuple(one.name for one in self._bindings if one.source == name)
        note = "" if status.is_up else status.reason or status.state
        return Check(name, self._state(name), name, tools, note)

    def _changed(self, server: str) -> Iterator[Check]:
        """A check for each tool of a server that is not as it was accepted."""
        for change in self._statuses[server].changes:
            if not change.is_new:
                yield Check(f"{server}/{change.name}", "changed", server, note=_of_change(change))
        for name in self._gone(server):
            yield Check(f"{server}/{name}", "missing", server, note=_GONE)

    def _gone(self, server: str) -> list[str]:
        """The tools that are pinned in a lock file, and that the server has no more."""
        from mcp_toolset.upstream.toolset import RemoteToolset

        for source in self._server.toolset.sources():
            if (
                not isinstance(source, RemoteToolset)
                or source.source_name != server
                or not source.status.is_up
            ):
                continue
            entry, listed = source.connection.tools.pins.entry, source.connection.tools.pins.listed()
            pinned = None if entry is None else entry.file.servers().get(entry.server)
            if pinned and source.connection.snapshot.complete:
                return [name for name in pinned if name not in listed]
        return []

    def _of_tools(self, name: str) -> Check:
        fitting = [one for one in self._bindings if any(_fits(known, name) for known in _names(one))]
        away = [] if fitting and not _has_joker(name) else self._set_aside(name, bool(fitting))
        if away:
            return away[0]
        if not fitting:
            return self._missing(name)
        judged = [self._judged(name, one) for one in fitting]
        worst = max(judged, key=lambda one: CODES[one.state])
        sources = {one.source for one in fitting}
        tools = tuple(one.name for one in fitting)
        notes = list(dict.fromkeys(one.note for one in judged if one.note and one.state == worst.state))
        server = sources.pop() if len(sources) == 1 else ""
        return Check(name, worst.state, server, tools, "; ".join(notes))

    def _judged(self, name: str, tool: ToolBinding) -> Check:
        status = self._statuses.get(tool.source)
        if status is not None and not status.is_up:
            return Check(name, self._state(tool.source), tool.source, note=f"{tool.source}: {status.reason}")
        for change in () if status is None else status.changes:
            if change.name == tool.definition.name:
                return Check(name, "changed", tool.source, note=_of_change(change))
        policy = self._server.policy
        if policy is None:
            return Check(name, "ok")
        verdict = policy.decide(tool, self._caller)
        if verdict.kind == "deny" or (verdict.kind == "ask" and self._unattended):
            does = "denies it" if verdict.kind == "deny" else "asks a person before each call"
            return Check(name, "refused", tool.source, note=f"{tool.name}: {verdict.rule or 'a rule'} {does}")
        return Check(name, "ok", note=f"{tool.name} asks a person before each call" * (verdict.kind == "ask"))

    def _set_aside(self, name: str, found: bool) -> list[Check]:
        """The check of a name that fits a tool which is held, or cannot be used."""
        told: list[Check] = []
        for server, status in self._statuses.items():
            held = {one.name: one for one in status.changes if one.held and not (found and one.is_new)}
            for own, reason in status.set_aside:
                if any(_fits(known, name) for known in self._public(server, own)):
                    if (change := held.get(own)) is not None:
                        told.insert(0, Check(name, "changed", server, note=_of_change(change)))
                    elif not found:
                        told.append(Check(name, "missing", server, note=f"{own} is set aside: {reason}"))
        return told

    def _public(self, server: str, own: str) -> list[str]:
        """The names by which a tool can be asked for that has no public name now."""
        entry = self._entries.get(server)
        prefix = server if entry is None or entry.prefix is None else entry.prefix
        public = own if entry is None else entry.names.get(own, own)
        return [f"{server}/{own}", f"{prefix}_{own}" if prefix else own, public if public != own else ""]

    def _missing(self, name: str) -> Check:
        known = (one for one in (*self._statuses, *self._entries) if name.startswith(f"{one}/"))
        server, sign, _ = name.partition("/")
        server = next(known, server)
        away = {one: status for one, status in self._statuses.items() if not status.is_up}
        of_name = [one for one in away if one == server] if sign else [*self._which_may_have(name, away)]
        if of_name:
            status = away[of_name[0]]
            reason = status.reason or status.state
            return Check(name, self._state(of_name[0]), of_name[0], note=f"{of_name[0]}: {reason}")
        entry = self._entries.get(server) if sign else None
        if entry is not None and entry.disabled:
            return Check(name, "missing", server, note=_disabled(server))
        near = near_names(name.partition("/")[2] or name, {one.name: one for one in self._bindings})
        mend = f"did you mean {' or '.join(near)}?" if near else "`mcp-toolset search` finds tools"
        return Check(
            name, "missing", server if server in self._statuses else "", note=f"no such tool; {mend}"
        )

    def _state(self, name: str) -> State:
        from mcp_toolset.cli.examination import start_fault

        status, entry = self._statuses[name], self._entries.get(name)
        if status.is_up:
            return "ok"
        # A program that is not installed does not come by itself.
        if status.state == "misconfigured" or (entry is not None and start_fault(entry)):
            return "misconfigured"
        return "login" if status.reason.startswith(_OF_LOGIN) else "down"

    def _which_may_have(self, name: str, servers: Iterable[str]) -> Iterator[str]:
        for one in servers:
            entry = self._entries.get(one)
            # A target that is no file has one server, whose tools have its own names.
            if not self._entries if entry is None else entry.may_have(name):
                yield one


_OF_LOGIN: Final = (NEEDS_LOGIN, REFUSES_CREDENTIALS, WANTS_CREDENTIALS)

_GONE: Final = "it is pinned, and the server has it no more"


def _names(tool: ToolBinding) -> tuple[str, ...]:
    if not tool.source:
        return (tool.name,)
    own = f"{tool.source}/{tool.definition.name}"
    return tool.name, own, f"{tool.source}/{tool.name}"


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _of_change(change: ToolChange) -> str:
    told = change.reason or "it differs from its pin; see it with `mcp-toolset pin`"
    return told if change.held else f"{told}; it is served as it is now"


def _disabled(server: str) -> str:
    return f"it is disabled; `mcp-toolset enable FILE {server}` switches it on"
