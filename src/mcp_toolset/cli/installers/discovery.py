"""`discovered`: the servers of all clients on this machine, and which clients have the same one."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from mcp_toolset.cli.installers.adoption_record import AdoptionRecord
from mcp_toolset.cli.installers.clients import CLIENTS, ClientName, Machine, Scope
from mcp_toolset.cli.installers.forms import KeptByClientError, NotAServerError
from mcp_toolset.cli.installers.install import starts_mcp_toolset
from mcp_toolset.cli.installers.replacing import read_regular
from mcp_toolset.config.jsonc import without_mark
from mcp_toolset.errors import ConfigError

__all__ = ["Discovery", "FoundServer", "discovered", "is_same"]


_SCOPES: Final[tuple[Scope, ...]] = ("project", "user")
_SAME: Final = (
    *("command", "args", "env", "url", "httpUrl", "serverUrl", "headers"),
    *("cmd", "envs", "uri", "http_headers"),
)
"""The keys that are equal in two entries of the same server, as any client writes them."""


@dataclass(frozen=True, slots=True)
class FoundServer:
    """One server of one client.

    Attributes:
        client: The client.
        scope: Whose file it is in.
        path: That file.
        name: Its name there.
        entry: Its entry as an `mcpServers` file has it; `None` if only the client can start it.
        note: Why only the client can start it, that it is disabled, or that it is an mcp-toolset.
        behind: Whether it was adopted, and is behind the one entry.
    """

    client: ClientName
    scope: Scope
    path: Path
    name: str
    entry: Mapping[str, Any] | None = field(repr=False)
    note: str = ""
    behind: bool = False

    @property
    def key(self) -> str | None:
        """What two clients that have the same server have in common."""
        if self.entry is None:
            return None
        told = {name: self.entry.get(name) for name in _SAME}
        return json.dumps(told, sort_keys=True, default=str)


@dataclass(frozen=True, slots=True)
class Discovery:
    """What was found on a machine.

    Attributes:
        servers: The servers, client by client.
        faults: A line for each file that cannot be read.
    """

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
    """Whether two entries start the same program, or are at the same address; options of ours may differ."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one == other
    left, right = cast("dict[str, object]", one), cast("dict[str, object]", other)
    return all(left.get(key) == right.get(key) for key in _SAME)


def discovered(machine: Machine) -> Discovery:
    """Read the files of all clients; nothing is started."""
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
