"""`Preflight`: checks that an agent can use the servers and tools that it needs."""

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
"""The exit code of each state; of several states, the highest counts. Only 10 can clear up by itself."""


@dataclass(frozen=True, slots=True)
class Check:
    """The check of one needed server, tool or pattern of tools.

    Attributes:
        needed: The name or pattern, as the caller has written it.
        state: `ok`, or the reason for which an agent cannot use it.
        server: The name of the server; empty if it is unknown, or if the tool belongs to the program.
        tools: The public names of the tools that fit.
        note: The reason of the state, and the remedy; empty if there is neither.
    """

    needed: str
    state: State
    server: str = ""
    tools: tuple[str, ...] = ()
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        facts = {"needed": self.needed, "state": self.state, "exit_code": CODES[self.state]}
        return {**facts, "server": self.server, "tools": list(self.tools), "note": self.note}


def exit_code(checks: Iterable[Check]) -> int:
    return max((CODES[check.state] for check in checks), default=0)


def needed_servers(config: HubConfig, names: Sequence[str]) -> set[str]:
    """The servers that the names refer to; every server, if a name fits none.

    Servers that no name needs are not started: they may be slow or down, which must not fail the check.
    """
    fitting = [{server.name for server in config.servers if server.may_have(name)} for name in names]
    if fitting and all(fitting):
        return set[str]().union(*fitting)
    return {server.name for server in config.servers}


def _is_pattern(text: str) -> bool:
    return any(sign in text for sign in "*?[")


class Preflight:
    """The checks of one server for one caller."""

    def __init__(
        self,
        server: ToolsetServer,
        caller: Identity | None = None,
        unattended: bool = False,
        config: HubConfig | None = None,
        of_view: Collection[str] | None = None,
    ) -> None:
        """Check an open server.

        Args:
            server: The server, after its mounts have settled.
            caller: The agent; `None` for a client on stdio.
            unattended: True if no person can approve calls: tools that ask for approval are refused then.
            config: The configuration, including disabled servers.
            of_view: The servers whose tools the open view may have; `None` without a view.
        """
        from mcp_toolset.cli.mount import without_fixed

        view = None if of_view is None else next(iter(server.views), None)
        self._server = server if view is None else view
        self._caller = caller
        self._unattended = unattended
        self._statuses = self._server.statuses()
        entries = () if config is None else config.servers
        if of_view is not None:
            # The statuses of a view lack servers without tools in it; a server that is down may have some.
            down = {
                name: status
                for name, status in server.statuses().items()
                if name in of_view and not status.is_up
            }
            self._statuses = {**self._statuses, **down}
            entries = [
                entry
                for entry in entries
                if entry.name in self._statuses or (entry.name in of_view and entry.disabled)
            ]
        self._entries = {entry.name: entry for entry in entries}
        self._bindings = without_fixed(self._server.bindings())

    def checks(self, names: Sequence[str]) -> list[Check]:
        """A check for each name; without names for each server, and each tool that differs from its pin."""
        if names:
            return [self._of_name(name) for name in names]
        servers = [self._of_server(name) for name in self._statuses]
        return [*servers, *(check for name in self._statuses for check in self._of_pins(name))]

    def _of_name(self, name: str) -> Check:
        if name in self._statuses:
            return self._of_server(name)
        if name in self._entries:
            return Check(name, "missing", name, note=_disabled(name))
        return self._of_tools(name)

    def _of_server(self, name: str) -> Check:
        status = self._statuses[name]
        tools = tuple(tool.name for tool in self._bindings if tool.source == name)
        note = "" if status.is_up else status.reason or status.state
        return Check(name, self._state(name), name, tools, note)

    def _of_pins(self, server: str) -> Iterator[Check]:
        """A check for each tool of a server that differs from its pin."""
        for change in self._statuses[server].changes:
            if not change.is_new:
                yield Check(f"{server}/{change.name}", "changed", server, note=_of_change(change))
        for name in self._removed(server):
            yield Check(f"{server}/{name}", "missing", server, note=_REMOVED)

    def _removed(self, server: str) -> list[str]:
        """The tools that a lock file pins and that the server does not list any more."""
        from mcp_toolset.upstream.toolset import RemoteToolset

        for source in self._server.toolset.sources():
            if (
                not isinstance(source, RemoteToolset)
                or source.source_name != server
                or not source.status.is_up
            ):
                continue
            pins = source.connection.tools.pins
            pinned = None if pins.entry is None else pins.entry.file.servers().get(pins.entry.server)
            if pinned and source.connection.snapshot.complete:
                listed = pins.listed()
                return [name for name in pinned if name not in listed]
        return []

    def _of_tools(self, name: str) -> Check:
        fitting = [tool for tool in self._bindings if any(_fits(known, name) for known in _names(tool))]
        if not fitting or _is_pattern(name):
            held = self._of_held(name, is_listed=bool(fitting))
            if held is not None:
                return held
        if not fitting:
            return self._missing(name)
        checks = [self._of_tool(name, tool) for tool in fitting]
        worst = max(checks, key=lambda check: CODES[check.state])
        sources = {tool.source for tool in fitting}
        notes = dict.fromkeys(check.note for check in checks if check.note and check.state == worst.state)
        server = sources.pop() if len(sources) == 1 else ""
        return Check(name, worst.state, server, tuple(tool.name for tool in fitting), "; ".join(notes))

    def _of_tool(self, name: str, tool: ToolBinding) -> Check:
        status = self._statuses.get(tool.source)
        if status is not None and not status.is_up:
            return Check(name, self._state(tool.source), tool.source, note=f"{tool.source}: {status.reason}")
        for change in () if status is None else status.changes:
            if change.name == tool.definition.name:
                return Check(name, "changed", tool.source, note=_of_change(change))
        policy = self._server.policy
        verdict = None if policy is None else policy.decide(tool, self._caller)
        if verdict is None or verdict.kind not in ("deny", "ask"):
            return Check(name, "ok")
        if verdict.kind == "ask" and not self._unattended:
            return Check(name, "ok", note=f"{tool.name} asks a person before each call")
        does = "denies it" if verdict.kind == "deny" else "asks a person before each call"
        return Check(name, "refused", tool.source, note=f"{tool.name}: {verdict.rule or 'a rule'} {does}")

    def _of_held(self, name: str, *, is_listed: bool) -> Check | None:
        """The check of a name that fits a tool which pins hold back, or which cannot be used."""
        changed: Check | None = None
        unusable: Check | None = None
        for server, status in self._statuses.items():
            held = {
                change.name: change
                for change in status.changes
                if change.held and not (is_listed and change.is_new)
            }
            for own, reason in status.set_aside:
                if not any(_fits(known, name) for known in self._public(server, own)):
                    continue
                if (change := held.get(own)) is not None:
                    changed = Check(name, "changed", server, note=_of_change(change))
                elif not is_listed and unusable is None:
                    unusable = Check(name, "missing", server, note=f"{own} is set aside: {reason}")
        return changed or unusable

    def _public(self, server: str, own: str) -> list[str]:
        """The names that ask for a tool which has no public name at present."""
        entry = self._entries.get(server)
        prefix = server if entry is None or entry.prefix is None else entry.prefix
        public = own if entry is None else entry.names.get(own, own)
        return [f"{server}/{own}", f"{prefix}_{own}" if prefix else own, public if public != own else ""]

    def _missing(self, name: str) -> Check:
        servers = (server for server in (*self._statuses, *self._entries) if name.startswith(f"{server}/"))
        before, sign, tool = name.partition("/")
        server = next(servers, before)
        down = [known for known, status in self._statuses.items() if not status.is_up]
        suspects = [known for known in down if known == server] if sign else self._may_have(name, down)
        if suspects:
            suspect = suspects[0]
            status = self._statuses[suspect]
            return Check(
                name, self._state(suspect), suspect, note=f"{suspect}: {status.reason or status.state}"
            )
        entry = self._entries.get(server) if sign else None
        if entry is not None and entry.disabled:
            return Check(name, "missing", server, note=_disabled(server))
        near = near_names(tool or name, {binding.name: binding for binding in self._bindings})
        mend = f"did you mean {' or '.join(near)}?" if near else "`mcp-toolset search` finds tools"
        return Check(
            name, "missing", server if server in self._statuses else "", note=f"no such tool; {mend}"
        )

    def _state(self, name: str) -> State:
        from mcp_toolset.cli.examination import start_fault

        status, entry = self._statuses[name], self._entries.get(name)
        if status.is_up:
            return "ok"
        # No retry helps where the program of the server is not installed.
        if status.state == "misconfigured" or (entry is not None and start_fault(entry)):
            return "misconfigured"
        return "login" if status.reason.startswith(_OF_LOGIN) else "down"

    def _may_have(self, name: str, servers: Iterable[str]) -> list[str]:
        # A target that is no file has one server and no entries: its tools have their own names.
        entries = [(server, self._entries.get(server)) for server in servers]
        return [
            server
            for server, entry in entries
            if (not self._entries if entry is None else entry.may_have(name))
        ]


_OF_LOGIN: Final = (NEEDS_LOGIN, REFUSES_CREDENTIALS, WANTS_CREDENTIALS)

_REMOVED: Final = "it is pinned, and the server has it no more"


def _names(tool: ToolBinding) -> tuple[str, ...]:
    if not tool.source:
        return (tool.name,)
    own = f"{tool.source}/{tool.definition.name}"
    return tool.name, own, f"{tool.source}/{tool.name}"


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _of_change(change: ToolChange) -> str:
    reason = change.reason or "it differs from its pin; see it with `mcp-toolset pin`"
    return reason if change.held else f"{reason}; it is served as it is now"


def _disabled(server: str) -> str:
    return f"it is disabled; `mcp-toolset enable FILE {server}` switches it on"
