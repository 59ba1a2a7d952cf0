"""Find the servers of all clients, move those of one behind one entry, and bring them back.

The servers go into a configuration file of ours, the hub's file, which the one entry serves. A record keeps
the client's file as it was, byte for byte. The order in which files are written makes an interruption
harmless: first the record, then the hub's file, and the client's file last. At any moment the client's file
is the old one or the new one, and both work.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.cli.installers.clients import (
    CLIENTS,
    ClientName,
    ClientProgram,
    KeptByClientError,
    Machine,
    NotAServerError,
    Scope,
    locate,
)
from mcp_toolset.cli.installers.formats import JSON
from mcp_toolset.cli.installers.install import (
    AdoptionRecord,
    Writing,
    difference,
    launcher,
    starts_mcp_toolset,
)
from mcp_toolset.cli.installers.replacing import read_regular, replace_text
from mcp_toolset.config.jsonc import decode, marked_as, without_mark
from mcp_toolset.config.keys import switched_off
from mcp_toolset.errors import ConfigError

_SCOPES: Final[tuple[Scope, ...]] = ("project", "user")
_SAME: Final = (
    *("command", "args", "env", "url", "httpUrl", "serverUrl", "headers"),
    *("cmd", "envs", "uri", "http_headers"),
)
"""The keys that are equal in two entries of the same server, as any client writes them."""


@dataclass(frozen=True, slots=True)
class FoundServer:
    """One server of one client. Without an `entry`, `note` says why only the client can start it."""

    client: ClientName
    scope: Scope
    path: Path
    name: str
    entry: Mapping[str, Any] | None = field(repr=False)
    note: str = ""
    behind: bool = False

    @property
    def key(self) -> str | None:
        """The same text for the same server of two clients."""
        if self.entry is None:
            return None
        told = {name: self.entry.get(name) for name in _SAME}
        return json.dumps(told, sort_keys=True, default=str)


@dataclass(frozen=True, slots=True)
class Discovery:
    """The servers of a machine, and a line for each file that cannot be read."""

    servers: tuple[FoundServer, ...]
    faults: tuple[str, ...]

    def also_in(self, server: FoundServer) -> list[str]:
        same = self._by_key()[server.key or ""]
        return sorted({CLIENTS[one.client].title for one in same if one.client != server.client})

    def distinct(self) -> dict[str, FoundServer]:
        """The servers that can be started here, each once, by a name that no other of them has."""
        found: dict[str, FoundServer] = {}
        for key, (first, *_) in self._by_key().items():
            if key and not starts_mcp_toolset(first.entry):
                taken = first.name in found
                found[f"{first.name}-{first.client}" if taken else first.name] = first
        return found

    def _by_key(self) -> dict[str, list[FoundServer]]:
        found: dict[str, list[FoundServer]] = defaultdict(list)
        for server in self.servers:
            found[server.key or ""].append(server)
        return found


def is_same(one: object, other: object) -> bool:
    """True if two entries start the same program, or are at the same address; options of ours may differ."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one == other
    left, right = cast("dict[str, object]", one), cast("dict[str, object]", other)
    return all(left.get(key) == right.get(key) for key in _SAME)


def discovered(machine: Machine) -> Discovery:
    servers, faults = list[FoundServer](), list[str]()
    for name, client in CLIENTS.items():
        # In the user's home the file of the project may be the user's own.
        files: dict[Path, Scope] = {
            client.locations[scope](machine): scope for scope in _SCOPES if scope in client.locations
        }
        for path, scope in files.items():
            try:
                servers += _servers(name, scope, path, machine)
            except ConfigError as error:
                faults.append(str(error))
    return Discovery(tuple(servers), tuple(faults))


def _servers(client: ClientName, scope: Scope, path: Path, machine: Machine) -> Iterator[FoundServer]:
    text = read_regular(path)
    if text is None:
        return
    program = CLIENTS[client]
    entries = program.format.entries(without_mark(text), program.section, str(path))
    record = AdoptionRecord.read(path, machine)
    adopted = (
        {} if record is None else {key: one for key, one in record.entries.items() if key not in entries}
    )
    for name, entry in {**entries, **adopted}.items():
        found = _server(client, scope, path, name, entry, behind=name in adopted)
        if found is not None:
            yield found


def _server(
    client: ClientName, scope: Scope, path: Path, name: str, entry: object, *, behind: bool
) -> FoundServer | None:
    if not isinstance(entry, dict):
        return FoundServer(client, scope, path, name, None, "its entry is no object")
    try:
        made = CLIENTS[client].form.standard(cast("dict[str, Any]", entry))
    except NotAServerError:
        return None
    except KeptByClientError as kept:
        return FoundServer(client, scope, path, name, None, str(kept))
    off = made.get("disabled") is True or made.get("enabled") is False
    note = "disabled" if off else "mcp-toolset" if starts_mcp_toolset(made) else ""
    return FoundServer(client, scope, path, name, made, note, behind)


HUB_NAME: Final = "mcp-toolset"  # the name of the one entry
_SERVERS: Final = "mcpServers"
_NEW_HUB: Final = '{\n  "mcpServers": {},\n  "toolset": {\n    "deferred": true\n  }\n}\n'
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_OF_CLIENT: Final = {
    "${input:": "it refers to an input that only the client asks for",
    "${command:": "it refers to a command of the editor",
    "${workspaceFolder": "it refers to the folder that is open in the client",
}


@dataclass(frozen=True, slots=True)
class Adoption:
    """What adopting changes. The texts contain secrets, so `repr` omits them."""

    path: Path
    before: str = field(repr=False)
    after: str = field(repr=False)
    diff: str = field(repr=False)
    hub: Path
    hub_before: str | None = field(repr=False)
    hub_after: str = field(repr=False)
    names: Mapping[str, str]  # the names of the servers in the hub's file, by their names in the client
    left: Mapping[str, str]  # why servers stay in the client's file, by name
    entries: Mapping[str, object] = field(repr=False)


def plan_adoption(client: ClientName, machine: Machine, scope: Scope | None = None) -> Adoption:
    program = CLIENTS[client]
    chosen, path = locate(program, scope, machine)
    before = read_regular(path)
    if before is None:
        why = f"no such file; {program.title} has no servers there to adopt"
        raise ConfigError(f"{path}: {why}; see mcp-toolset list --clients")
    text = without_mark(before)
    # The user's own file, or one beside the project's other files.
    own = machine.application_data / "mcp-toolset" / f"{client}.json"
    hub = machine.project / "mcp-toolset.json" if chosen == "project" else own
    taken, left = _sorted_out(program, text, path, chosen)
    entries = program.format.entries(text, program.section, str(path))
    if not taken:
        why = "; ".join(f"{name} stays: {reason}" for name, reason in left.items())
        known = HUB_NAME in entries
        cause = (
            "its servers are adopted already" if known else f"has no server to adopt{f' ({why})' * bool(why)}"
        )
        mend = (
            f"`mcp-toolset uninstall {client} --adopted` brings them back"
            if known
            else "add one in the client first"
        )
        raise ConfigError(f"{path}: {cause}; {mend}")
    hub_before = read_regular(hub)
    hub_after, names = _with_servers(hub_before or _NEW_HUB, taken, hub)
    after = text
    for name in taken:
        after = program.format.without_entry(after, program.section, name, str(path))
    ours = program.entry(_command(chosen, machine, program, hub), {}) | dict(program.always)
    after = marked_as(program.format.with_entry(after, program.section, HUB_NAME, ours, str(path)), before)
    return Adoption(
        path=path,
        before=before,
        after=after,
        diff=difference(path, before, after, program, HUB_NAME),
        hub=hub,
        hub_before=hub_before,
        hub_after=hub_after,
        names=names,
        left=left,
        entries={name: entries[name] for name in taken},
    )


def adopt(plan: Adoption, client: ClientName, machine: Machine) -> None:
    earlier = AdoptionRecord.read(plan.path, machine)
    if earlier is not None and earlier.is_applied(plan.before):
        # The client has got servers since it was adopted: what it was before both stays known.
        known = _names_beside(earlier.entries, plan.entries)
        entries = {known[name]: entry for name, entry in plan.entries.items()}
        names = {known[name]: own for name, own in plan.names.items()}
        record = earlier.extended(entries, names, plan.after)
    else:
        record = AdoptionRecord.of(
            client, plan.path, plan.before, plan.after, plan.hub, plan.names, plan.entries
        )
    record.write(machine)
    if plan.hub_after != plan.hub_before:
        replace_text(plan.hub, plan.hub_before, plan.hub_after, 0o600)
    replace_text(plan.path, plan.before, plan.after, 0o600)


@dataclass(frozen=True, slots=True)
class Restoration:
    """Changes of a restoration; if `exact`, the client's file becomes what it was, byte for byte."""

    path: Path
    before: str | None = field(repr=False)
    after: str = field(repr=False)
    exact: bool
    diff: str = field(repr=False)
    record: AdoptionRecord = field(repr=False)


def plan_restoration(client: ClientName, machine: Machine, scope: Scope | None = None) -> Restoration:
    program = CLIENTS[client]
    _, path = locate(program, scope, machine)
    record = AdoptionRecord.read(path, machine)
    if record is None:
        why = "its servers were not adopted, so nothing can be restored"
        raise ConfigError(f"{path}: {why}; see mcp-toolset list --clients")
    before = read_regular(path)
    exact = before is None or record.is_unchanged(before)
    after = record.original if exact else _put_back(program, before or "", record, path)
    return Restoration(path, before, after, exact, difference(path, before, after, program, HUB_NAME), record)


def restore(plan: Restoration, machine: Machine) -> list[str]:
    """Carry out a plan; return the servers that stay in the hub's file, because they were edited there."""
    if plan.after != plan.before:
        replace_text(plan.path, plan.before, plan.after, 0o600)
    stay = _empty_hub(plan.record, machine)
    plan.record.remove(machine)
    return stay


def _empty_hub(record: AdoptionRecord, machine: Machine) -> list[str]:
    """Take the servers of a record out of the hub's file, and remove a file in which nothing else is left."""
    hub = record.hub
    before = read_regular(hub)
    if before is None:
        return []
    try:
        JSON.entries(before, _SERVERS, str(hub))
    except ConfigError:
        return list(record.names.values())  # the client's file is as it was; this file is the user's to mend
    text, stay = before, list[str]()
    shared = {
        name
        for other in AdoptionRecord.read_all(machine)
        if other.hub == hub and other.path != record.path
        for name in other.names.values()
    }
    for name, own in record.names.items():
        present = JSON.entries(text, _SERVERS, str(hub)).get(own)
        if present is None or own in shared:
            continue
        if present == CLIENTS[record.client].form.standard(record.entries[name]):
            text = JSON.without_entry(text, _SERVERS, own, str(hub))
        else:
            stay.append(own)
    if decode(text, str(hub)) == decode(_NEW_HUB, str(hub)):
        hub.unlink(missing_ok=True)
    elif text != before:
        replace_text(hub, before, text, 0o600)
    return stay


def _command(scope: Scope, machine: Machine, client: ClientProgram, hub: Path) -> tuple[str, ...]:
    portable = scope == "project"
    writing = Writing(machine.project, machine.project if portable else None, client.workspace)
    return (*launcher(machine, portable=portable), "serve", writing.path(hub))


def _sorted_out(
    client: ClientProgram, text: str, path: Path, scope: Scope
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The entries to adopt as an `mcpServers` file has them, and why others stay."""
    taken: dict[str, dict[str, Any]] = {}
    left: dict[str, str] = {}
    table = decode(text, str(path)) if client.format is JSON else None
    known = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
    off = switched_off(known, client.format.entries(text, client.section, str(path)))
    for name, entry in client.format.entries(text, client.section, str(path)).items():
        if not name.strip():
            left[name] = "it has no name"
            continue
        if not isinstance(entry, dict):
            left[name] = "its entry is no object"
            continue
        try:
            made = client.form.standard(cast("dict[str, Any]", entry))
        except NotAServerError:
            continue
        except KeptByClientError as kept:
            left[name] = str(kept)
            continue
        if starts_mcp_toolset(made):
            if name != HUB_NAME:
                left[name] = "it is an mcp-toolset already"
        elif reason := _protected(made, off.get(name, ())) or _why_kept({name: made}, scope):
            left[name] = reason
        else:
            taken[name] = made
    return taken, left


def _protected(entry: Mapping[str, object], off: Sequence[str]) -> str:
    """Which protection of the client would be lost; `off` is where the client switches the server off."""
    if off:
        return f"the client has switched it off, in {'.'.join(off)}"
    return "the client runs it in a sandbox" if entry.get("sandboxEnabled") else ""


def _why_kept(entry: object, scope: Scope) -> str:
    words = list(_texts(entry))
    if any(_SURROGATE.search(word) for word in words):
        return "it has half of a character, which no file can hold"
    for reference, reason in _OF_CLIENT.items():
        if scope == "project" and reference == "${workspaceFolder":
            continue
        if any(reference in word for word in words):
            return reason
    return ""


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        value = [*table, *table.values()]
    inside = cast("list[object]", value) if isinstance(value, list) else []
    return [text for each in inside for text in _texts(each)]


def _with_servers(text: str, taken: Mapping[str, dict[str, Any]], hub: Path) -> tuple[str, dict[str, str]]:
    names: dict[str, str] = {}
    for name, entry in taken.items():
        present = JSON.entries(text, _SERVERS, str(hub))
        own = _free_name(name, entry, present)
        names[name] = own
        if own not in present:
            text = JSON.with_entry(text, _SERVERS, own, entry, str(hub))
    return text, names


def _names_beside(present: Mapping[str, object], added: Mapping[str, object]) -> dict[str, str]:
    taken, names = dict(present), dict[str, str]()
    for name, entry in added.items():
        names[name] = _free_name(name, entry, taken)
        taken[names[name]] = entry
    return names


def _free_name(name: str, entry: object, present: Mapping[str, object]) -> str:
    wanted, number = name, 1
    while wanted in present and not is_same(present[wanted], entry):
        number += 1
        wanted = f"{name}-{number}"
    return wanted


def _put_back(client: ClientProgram, text: str, record: AdoptionRecord, path: Path) -> str:
    plain = without_mark(text)
    plain = client.format.without_entry(plain, client.section, HUB_NAME, str(path))
    present = client.format.entries(plain, client.section, str(path))
    for name, own in _names_beside(present, record.entries).items():
        if own not in present:
            plain = client.format.with_entry(plain, client.section, own, record.entries[name], str(path))
    return marked_as(plain, text)
