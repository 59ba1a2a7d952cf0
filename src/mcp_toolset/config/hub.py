"""From a file to `HubConfig`: its servers, each a `ServerConfig`, and the project folder that it configures.

The servers are the first of `mcpServers`, `servers` (VS Code) and `mcp.servers` (VS Code settings)
that the file has. A project file (`.mcp.json`, `.cursor/mcp.json`, `.vscode/mcp.json`) configures
the folder of the project, and its servers start there; any other file configures the folder that it lies in.
A server that would serve the same file again is found before any is started.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from mcp_toolset._index import owners, rule_keys, section_keys
from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.chain import DEPTH, ServedFile
from mcp_toolset.config.entries import WRONG_PLACE, known_keys, server_keys, validated
from mcp_toolset.config.jsonc import Place, decode, read_text, without_mark
from mcp_toolset.config.keys import (
    FILE_KEYS,
    NO_VARIABLES,
    OF_ALL_SERVERS,
    buried,
    did_you_mean,
    is_section,
    misplaced,
    named_servers,
    names_a_server,
    nearest,
    switched_off,
    unknown_keys,
)
from mcp_toolset.config.models import PREFIX, HubConfig, ServerConfig
from mcp_toolset.config.tables import ServerEntry, ToolsetSection, Transport, keys_of
from mcp_toolset.config.variables import Variables, parse_env_file
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.security.egress import MEND_ADDRESS, Egress, is_web_address
from mcp_toolset.security.patterns import KINDS, Permissions
from mcp_toolset.security.vault import Lookups, References, Vault

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import ServerSettings
    from mcp_toolset.security.patterns import Section


def check_servers(place: Place, servers: Mapping[str, str], permissions: object) -> None:
    """Refuse a rule for the tools of a server that is not there; wrong types are refused elsewhere."""
    check_patterns(_patterns(permissions, place.at("permissions")), servers)


def check_patterns(patterns: Iterable[tuple[str, Place]], servers: Mapping[str, str]) -> None:
    prefixes = {prefix: name for name, prefix in servers.items() if prefix}
    for pattern, at in patterns:
        # Imported here, because few configurations have rules.
        from mcp_toolset.security.patterns import fault_of, fault_of_public, fault_of_server

        fault = fault_of_server(pattern, servers) or fault_of_public(pattern, prefixes)
        # What is wrong with a pattern by itself is told where it is read.
        if fault and not fault_of(pattern):
            raise at.error(*fault)


def check_own(entries: Mapping[str, object], section: Place) -> None:
    """Refuse a rule in a server's entry that is for the tools of another server of the file."""
    for name, entry in entries.items():
        others, place = {*entries} - {name}, section.at(name)
        table = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        rules = [*_patterns(table.get("permissions"), place.at("permissions"))]
        for key in owners("entry"):
            said = table.get(key)
            named = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
            rules += [(one, place.at(key, one)) for one in named]
        for key in ("include", "exclude", "includeTools", "excludeTools", "disabledTools", "disabled_tools"):
            said = table.get(key)
            rules += [
                (one, place.at(key, at))
                for at, one in enumerate(cast("list[Any]", said) if isinstance(said, list) else [])
                if isinstance(one, str)
            ]
        for pattern, at in rules:
            from mcp_toolset.security.patterns import fault_of, fault_of_server, split_hint

            own = fault_of_server(pattern, [name])
            if own and not fault_of(pattern) and "/" in pattern and not fault_of_server(pattern, others):
                other = next(one for one in others if not fault_of_server(pattern, [one]))
                raise at.error(
                    "is a rule for another server, which would not apply",
                    f"move `{split_hint(pattern)[1]}` into the entry of `{other}`, or into `toolset`",
                )


def prefixes_of(entries: Mapping[str, object]) -> dict[str, str]:
    """The prefix of the tools of each server; empty where it cannot be one."""
    said = (
        (name, cast("dict[str, object]", one).get("prefix") if isinstance(one, dict) else None)
        for name, one in entries.items()
    )
    found = ((name, name if prefix is None else prefix) for name, prefix in said)
    return {
        name: prefix if isinstance(prefix, str) and PREFIX.fullmatch(prefix) else "" for name, prefix in found
    }


def _patterns(said: object, place: Place) -> Iterator[tuple[str, Place]]:
    table = cast("dict[str, object]", said) if isinstance(said, dict) else {}
    for key, listed in table.items():
        for number, one in enumerate(cast("list[object]", listed) if isinstance(listed, list) else []):
            if key == "for":
                yield from _patterns(one, place.at(key, number))
            elif key in KINDS and isinstance(one, str):
                yield one, place.at(key, number)


_TRANSPORTS: Mapping[str, Transport] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "sse": "sse",
}
EVERY_TOOL: Final = "*"
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_SSE_ADDRESS = re.compile(r"/sse/?(?:[?#]|$)")
_FORBIDDEN = {"env": re.compile(r"\0"), "headers": re.compile(r"[\r\n\0]")}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Settings that the file gives to each of its servers.

    Attributes:
        defaults: The section `toolset`.
        variables: The values of references.
        start_in: The folder of servers that name none.
        needed: The servers that are read as enabled, unless the file disables them; `None` for all.
    """

    defaults: ToolsetSection
    variables: Variables
    start_in: str | None
    needed: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the fields of one entry. Without variables every reference stays unchanged."""

    place: Place
    variables: Variables | None
    secrets: list[str] = field(default_factory=list[str])

    def text(self, value: str, *steps: str | int) -> str:
        return self._expanded(value, self.place.at(*steps))

    def path(self, value: str | None, key: str) -> str | None:
        if value is None or self.variables is None:
            return value
        return self.variables.path(self._expanded(value, self.place.at(key)))

    def _expanded(self, value: str, place: Place) -> str:
        return self.variables.expand(value, place, self.secrets.append) if self.variables else value

    def table(self, values: Mapping[str, str | None], key: Literal["env", "headers"]) -> dict[str, str]:
        read = {name: self.text(value, key, name) for name, value in values.items() if value is not None}
        for name, value in read.items():
            if name in NO_VARIABLES:
                raise self.place.at(key, name).error(WRONG_PLACE, f"move it out of `{key}`")
            if _FORBIDDEN[key].search(name + value):
                raise self.place.at(key, name).error("holds a line break or a null", "remove it")
        return read


def server_config(
    name: str,
    entry: ServerEntry,
    keys: Sequence[str],
    place: Place,
    surroundings: Surroundings,
    extensions: Mapping[str, ServerSettings] = NOTHING,
) -> ServerConfig:
    """The model of one entry.

    Args:
        name: Its key in the file.
        entry: Its keys of the core.
        keys: The keys as they were written, to guess at misspelt ones.
        place: Where it is, for errors.
        surroundings: What the file gives to each of its servers.
        extensions: What it says of extensions, by their key.
    """
    defaults = surroundings.defaults
    check_servers(place, {name: ""}, entry.permissions)
    _check_own_names(name, entry, place)
    needed = surroundings.needed is None or name in surroundings.needed
    disabled = entry.disabled or not entry.enabled or not needed
    include, exclude = _chosen(entry)
    mounted = _mounted(extensions)
    common = ServerConfig(
        name=name,
        transport=_transport(entry, keys, place, mounted),
        disabled=disabled,
        deferred=defaults.deferred if entry.deferred is None else entry.deferred,
        prefix=False if entry.prefix == "" else entry.prefix,
        names=MappingProxyType(entry.names),
        include=include,
        exclude=exclude,
        timeout=entry.timeout or defaults.timeout,
        start_timeout=entry.start_timeout or defaults.start_timeout,
        start=entry.start or defaults.start,
        idle_timeout=entry.idle_timeout or defaults.idle_timeout,
        task_timeout=entry.task_timeout,
        pins=entry.pins or defaults.pins,
        new_tools=entry.new_tools or defaults.new_tools,
        hidden_text=entry.hidden_text or defaults.hidden_text,
        sessions=entry.sessions,
        declare=tuple(entry.declare),
        protocol=entry.protocol,
        eras=MappingProxyType(entry.eras),
        arguments=entry.arguments or defaults.arguments,
        unlisted=entry.unlisted,
        permissions=_server_permissions(entry.permissions, place.at("permissions")),
    )
    if entry.unlisted == "pass":
        common = _transparent(common, place)
    reader = _Reader(place, None if disabled else surroundings.variables)
    if common.transport == "stdio":
        read = _local(common, entry, reader, surroundings.start_in)
    else:
        read = _remote(common, entry, reader, mounted)
    stated = {key: one.of_entry(read, place, reader.text) for key, one in extensions.items()}
    if mounted:
        read = replace(read, url=next(one.address for one in stated.values() if one.mounts) or None)
    return replace(read, secrets=tuple(dict.fromkeys(reader.secrets)), extensions=stated)


def _mounted(extensions: Mapping[str, ServerSettings]) -> str:
    """The key by which an extension says what is mounted; empty if it is a command or a URL."""
    return next((one.mounts for one in extensions.values() if one.mounts), "")


def _check_own_names(name: str, entry: ServerEntry, place: Place) -> None:
    """Refuse what would fit no tool where only the server's own names are looked at."""
    exact = {
        "excludeTools": entry.exclude_tools,
        "disabledTools": entry.disabled_tools,
        "disabled_tools": entry.codex_disabled,
    }
    taken = {
        "include": entry.include,
        "includeTools": entry.include_tools,
        "enabled_tools": entry.codex_enabled,
        "tools": None if entry.copilot_tools == [EVERY_TOOL] else entry.copilot_tools,
    }
    first, *others = [key for key, listed in taken.items() if listed is not None] or [""]
    if others:
        raise place.at(others[0]).error(
            f"is beside `{first}`, and the tools of both would be taken", "keep one of them"
        )
    for key, listed in {"include": entry.include or [], "exclude": entry.exclude, **exact}.items():
        named = ((one, place.at(key, number)) for number, one in enumerate(listed))
        check_own_names(name, named, exact=key in exact)


def check_own_names(server: str, names: Iterable[tuple[str, Place]], *, exact: bool = False) -> None:
    """Refuse what fits no tool where only the server's own names of its tools are looked at."""
    for one, place in names:
        # Imported here, because few configurations choose tools.
        from mcp_toolset.security.patterns import fault_of, fault_of_public, split_hint

        own = one.removeprefix(f"{server}/")
        if own != one:
            fault = "takes the server's own names of its tools", f"write `{own}`"
        elif split_hint(one)[0]:
            fault = "takes names, and no hints", "write it into `deny` or `allow` of `permissions`"
        elif exact and "*" in one:
            fault = "takes exact names", "write the pattern into `exclude`"
        else:
            fault = fault_of(one) or fault_of_public(one, {})
        if fault:
            raise place.error(*fault)


def _transparent(common: ServerConfig, place: Place) -> ServerConfig:
    """The entry of a server whose calls are passed on unseen: nothing in it may choose or rename tools."""
    for key in ("include", "exclude", "names", "prefix", "deferred", "permissions"):
        if getattr(common, key):
            raise place.at("unlisted").error(
                f'"pass" does not go with `{key}`, which cannot judge a tool that is not listed',
                f"remove `{key}`, or leave out `unlisted`",
            )
    return replace(common, prefix=False)


def _chosen(entry: ServerEntry) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which tools to include and exclude, by the keys of any client. An empty list includes none."""
    names = [*(entry.include_tools or ()), *(entry.codex_enabled or ())]
    names += [name for name in entry.copilot_tools or () if name != EVERY_TOOL]
    include = (*(entry.include or ()), *map(glob.escape, names))
    exclude = map(glob.escape, [*entry.exclude_tools, *entry.disabled_tools, *entry.codex_disabled])
    lists = (entry.include, entry.include_tools, entry.codex_enabled, entry.copilot_tools)
    takes_none = (
        not include and EVERY_TOOL not in (entry.copilot_tools or ()) and lists != (None,) * len(lists)
    )
    return include, (*entry.exclude, *exclude, *([EVERY_TOOL] if takes_none else ()))


def _local(common: ServerConfig, entry: ServerEntry, reader: _Reader, start_in: str | None) -> ServerConfig:
    return replace(
        common,
        command=reader.text(entry.command or "", "command"),
        args=tuple(reader.text(arg, "args", index) for index, arg in enumerate(entry.args)),
        env=MappingProxyType(_environment(reader, entry)),
        env_file=None if entry.env_file is None else Path(reader.path(entry.env_file, "envFile") or ""),
        cwd=reader.path(entry.cwd, "cwd") or start_in,
    )


def _remote(common: ServerConfig, entry: ServerEntry, reader: _Reader, mounted: str) -> ServerConfig:
    if mounted:
        return replace(common, headers=MappingProxyType(reader.table(entry.headers, "headers")))
    key, written = next(_addresses(entry))
    url = reader.text(written, key)
    if not common.disabled and not is_web_address(url):
        raise reader.place.at(key).error("not a web address", MEND_ADDRESS)
    # Files from before streamable HTTP give no type; the path tells, by convention.
    by_path: Transport = "sse" if _SSE_ADDRESS.search(url) else "http"
    return replace(
        common,
        transport=common.transport if entry.type or entry.transport else by_path,
        url=url,
        headers=MappingProxyType(reader.table(entry.headers, "headers")),
    )


# The models of keys that few entries have are loaded for these entries.


def _server_permissions(said: object, place: Place) -> Section | None:
    if said is None:
        return None
    from mcp_toolset.config.sections import section_at

    return section_at(said, place)


def _addresses(entry: ServerEntry) -> Iterator[tuple[str, str]]:
    written = {"url": entry.url, "httpUrl": entry.http_url, "serverUrl": entry.server_url}
    return ((key, url) for key, url in written.items() if url)


def _transport(entry: ServerEntry, keys: Sequence[str], place: Place, mounted: str = "") -> Transport:
    said = entry.type or entry.transport
    key, _ = next(_addresses(entry), ("", ""))
    if mounted:
        others = {"command": entry.command, key: key, "type": entry.type, "transport": entry.transport}
        if other := next((one for one, value in others.items() if value), ""):
            raise place.error(f"has both `{mounted}` and `{other}`", "remove one of them")
        return "http"
    if said is None:
        return _transport_unsaid(entry, key, keys, place)
    transport = _TRANSPORTS.get(said.lower())
    if transport is None:
        raise place.at("type" if entry.type else "transport").error(
            "no transport of that name", did_you_mean(said, list(_TRANSPORTS)) or "use stdio, http or sse"
        )
    if transport == "stdio" and not entry.command:
        raise place.error("a stdio server needs `command`", _misspelt(keys) or "add the program to start")
    if transport != "stdio" and not key:
        raise place.error(f"an {transport} server needs `url`", _misspelt(keys) or "add its address")
    return transport


def _transport_unsaid(entry: ServerEntry, address: str, keys: Sequence[str], place: Place) -> Transport:
    if entry.command and address:
        raise place.error(f"has both `command` and `{address}`", "remove one of them, or add `type`")
    if not entry.command and not address:
        raise place.error("has neither `command` nor `url`", _misspelt(keys) or "add one of them")
    return "stdio" if entry.command else "http"


def _misspelt(keys: Sequence[str]) -> str:
    guesses = (did_you_mean(key, ("command", "url")) for key in keys if key not in ("command", "url"))
    return next(filter(None, guesses), "")


def _environment(reader: _Reader, entry: ServerEntry) -> dict[str, str]:
    file = reader.path(entry.env_file, "envFile")
    if file is None or reader.variables is None:
        return reader.table(entry.env, "env")
    place = reader.place.at("envFile")
    try:
        text = read_text(Path(file), file)
    except FileNotFoundError:
        text = None
    if text is None:
        raise place.error("no such environment file", f"create {entry.env_file} or correct the path")
    loaded = {name: value for name, value in parse_env_file(text).items() if name not in entry.env}
    return loaded | reader.table(entry.env, "env")


_NAMED = 5
_EDITOR_FOLDERS = (".cursor", ".vscode")


def load_config(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] = os.environ,
    vault: Vault | None = None,
    lookups: Lookups = "run",
    needed: Collection[str] | None = None,
) -> HubConfig:
    """Read a configuration file of any of the clients; it may contain comments and trailing commas.

    A server whose entry is wrong has a `fault`; the others can be used. References to secrets are looked up
    in `vault`, by default the user's. A vault that is given again does not ask again for a secret that it
    could not open. `lookups` says what happens with references that extensions look up, as by a command. If
    `needed` names some servers, the others are read as if the file disabled them.

    Raises:
        ConfigError: The file is missing or broken, or an error concerns more than one server's entry.
    """
    source = os.fspath(path)
    data = decode(config_text(source), source)
    if lookups == "run" and Path(source).absolute().parent.name in _EDITOR_FOLDERS:
        lookups = "refuse"  # there `${command:…}` is a command of the editor
    return parse_config(data, source=source, environ=environ, vault=vault, lookups=lookups, needed=needed)


def config_text(source: str) -> str:
    """The text of a configuration file."""
    try:
        return without_mark(read_text(Path(source), source))
    except FileNotFoundError:
        problem = Place(source).error("no such file", "check the path")
    raise problem


def parse_config(
    data: object,
    *,
    source: str | os.PathLike[str],
    environ: Mapping[str, str] = os.environ,
    vault: Vault | None = None,
    report: Callable[[ConfigError], object] | None = None,
    lookups: Lookups = "refuse",
    needed: Collection[str] | None = None,
) -> HubConfig:
    """The models of decoded JSON. `source` is the path that the JSON came from or would be written to.

    `report` is called with the mistake of each server's entry that is wrong. Only an `envFile` and
    `${file:…}` of enabled servers are read from disk.

    Raises:
        ConfigError: With file, place, cause and mend in one line, and no values.
    """
    root, path = Place(os.fspath(source)), Path(source).absolute()
    table, warnings = _table(data, root), list[str]()
    section, entries = _server_section(table, root)
    own, extending = _parted(table.get("toolset", {}))
    defaults = validated(ToolsetSection, own, root.at("toolset"))
    references = References(vault or Vault(environ), lookups=lookups, state=_changed_at(path))
    surroundings = _surroundings(path, defaults, environ, _inputs(table, root), references)
    surroundings = replace(surroundings, needed=needed)
    _check_file_keys(table, root, warnings.append)
    check_own(entries, section)
    egress = _egress(defaults.egress, root.at("toolset", "egress"))
    servers = tuple(
        _server(name, entry, section.at(name), surroundings, warnings.append, report)
        for name, entry in entries.items()
    )
    servers = tuple(replace(one, egress=egress.allow) for one in servers) if egress.allow else servers
    prefixes = prefixes_of(entries)
    check_servers(root.at("toolset"), prefixes, defaults.permissions)
    extensions = _extensions(extending, root.at("toolset"), surroundings.variables, prefixes)
    says = isinstance(own, dict) and "deferred" in own
    if not says and any(one is not None and one.defers for one in extensions.values()):
        servers = tuple(one if _settles(one, entries) else replace(one, deferred=True) for one in servers)
    rules = _permissions(defaults.permissions, root.at("toolset", "permissions"))
    of_servers = ((one.permissions, section.at(one.name, "permissions")) for one in servers)
    others = [(rules.general, root.at("toolset", "permissions"))]
    others += ((said, at) for said, at in of_servers if said is not None)
    if len(others) > 1 or rules.callers:
        # Imported here, because few configurations have permissions.
        from mcp_toolset.config.sections import check_order

        stated = {one.name: (one.permissions, section.at(one.name, "permissions")) for one in servers}
        check_order(rules, stated, root.at("toolset", "permissions"))
    if defaults.lock is not None and (defaults.lock != defaults.lock.strip() or "$" in defaults.lock):
        raise root.at("toolset", "lock").error(
            "has blanks at an end or a reference, which is not replaced here", "write the path of a file"
        )
    lock = None if defaults.lock is None else path.parent / defaults.lock
    made = HubConfig(
        path=path,
        name=defaults.name,
        servers=servers,
        client_prefix=defaults.client_prefix,
        lock=lock,
        list_timeout=defaults.list_timeout,
        references=references,
        rules=rules,
        extensions=extensions,
        log=_log(defaults.log, surroundings.variables, root.at("toolset", "log")),
        ready=_ready(defaults.ready, root.at("toolset", "ready")),
        http=_http(defaults.http, root.at("toolset", "http")),
    )
    if made.callers is not None:
        made.callers.check(made.for_callers(root), others, warnings.append)
    warnings += _idle(servers, entries, extensions, section)
    return replace(made, warnings=(*warnings, *references.warnings))


def _changed_at(path: Path) -> tuple[str, int]:
    """The path and the last change of a file, by which its contents are told apart."""
    try:
        return str(path), path.stat().st_mtime_ns
    except OSError:  # it is not written yet
        return str(path), 0


def _settles(server: ServerConfig, entries: Mapping[str, object]) -> bool:
    """True if a server's entry says itself whether its tools are behind search."""
    entry = entries[server.name]
    said = cast("dict[str, object]", entry).get("deferred") if isinstance(entry, dict) else None
    return said is not None or server.unlisted == "pass"


# The models of sections that few files have are loaded for these files.


def _permissions(said: object, place: Place) -> Permissions:
    if said is None:
        return Permissions()
    from mcp_toolset.config.sections import permissions_at

    return permissions_at(said, place)


def _parted(said: object) -> tuple[object, dict[str, object]]:
    """The section `toolset` without the keys of extensions, and these."""
    if not isinstance(said, dict):
        return said, {}
    section = cast("dict[str, object]", said)
    if not (found := section_keys(section, keys_of(ToolsetSection))):
        return section, {}
    return {key: section[key] for key in section if key not in found}, {key: section[key] for key in found}


def _extensions(
    said: Mapping[str, object], place: Place, variables: Variables, servers: Mapping[str, str]
) -> Mapping[str, Any]:
    if not said:
        return {}
    from mcp_toolset.config.extensions import read_settings

    return read_settings(said, place, variables, servers)


def _idle(
    servers: Iterable[ServerConfig],
    entries: Mapping[str, object],
    extensions: Mapping[str, Any],
    place: Place,
) -> list[str]:
    """The faults of entries that name extensions which the section `toolset` does not turn on."""
    return [
        str(
            place.at(one.name, named).error(
                f"has no effect without `{key}`", f'add "{key}": true to `toolset`'
            )
        )
        for one in servers
        for key, stated in one.extensions.items()
        if extensions.get(key) is None and (named := stated.idle(cast("Any", entries[one.name])))
    ]


def _of_server(table: Mapping[str, object], place: Place, name: str) -> Mapping[str, Any]:
    """The settings of extensions in an entry, by their key."""
    if not any(key in owners("entry") for key in table):
        return {}
    from mcp_toolset.config.extensions import read_server_settings

    return read_server_settings(table, place, name)


def _ready(said: dict[str, object] | None, place: Place) -> Mapping[str, Any] | None:
    """The section `ready`."""
    if said is None:
        return None
    from mcp_toolset.config.sections import ReadyEntry

    return asdict(validated(ReadyEntry, said, place))


def _http(said: dict[str, object] | None, place: Place) -> Mapping[str, Any] | None:
    """The limits for clients over HTTP, and the proxies that say who they are."""
    if said is None:
        return None
    from mcp_toolset.config.sections import HttpEntry

    found = asdict(validated(HttpEntry, said, place))
    found["trusted_proxies"] = (*found["trusted_proxies"],)
    return {name: value for name, value in found.items() if value is not None}


def _egress(said: dict[str, object] | None, place: Place) -> Egress:
    """The hosts to which mounted servers may send the bridge."""
    if said is None:
        return Egress()
    from mcp_toolset.config.sections import EgressEntry

    entry = validated(EgressEntry, said, place)
    try:
        return Egress(tuple(entry.allow))
    except DefinitionError as fault:
        cause, _, mend = str(fault).partition("; ")
        raise place.at("allow").error(cause, mend) from None


def _log(said: bool | dict[str, object], variables: Variables, place: Place) -> Mapping[str, Any] | None:
    """The log of the process; its folder is in that of the configuration."""
    if isinstance(said, bool):
        return {} if said else None
    from mcp_toolset.config.sections import LogEntry

    entry = validated(LogEntry, said, place)
    folder = None if entry.folder is None else variables.path(entry.folder)
    return {"level": entry.level, "folder": folder}


def _surroundings(
    path: Path,
    defaults: ToolsetSection,
    environ: Mapping[str, str],
    inputs: Mapping[str, str | None],
    references: References,
) -> Surroundings:
    in_editor_folder = path.parent.name in _EDITOR_FOLDERS
    folder = path.parent.parent if in_editor_folder else path.parent
    is_projects = in_editor_folder or path.name == ".mcp.json"
    variables = Variables(environ, folder, inputs, references)
    return Surroundings(defaults, variables, str(folder) if is_projects else None)


def _server(
    name: str,
    data: object,
    place: Place,
    surroundings: Surroundings,
    warn: Callable[[str], None],
    report: Callable[[ConfigError], object] | None,
) -> ServerConfig:
    _check_sections(data, place)
    try:
        table = _table(data, place)
        unknown = server_keys(table, place)
        entry = validated(ServerEntry, table, place)
        extensions = _of_server(table, place, name)
        read = server_config(name, entry, list(table), place, surroundings, extensions)
    except ConfigError as fault:
        if report is not None:
            report(fault)
        return ServerConfig(name, "stdio", disabled=_is_disabled(data), fault=str(fault))
    if unknown:
        warn(_ignored(unknown, place))
    if table.get("sandboxEnabled") and not read.disabled:
        warn(
            str(
                place.at("sandboxEnabled").error(
                    "is of another client: here the server runs without a sandbox",
                    "leave the server in that client, or remove the key",
                )
            )
        )
    return read


def _check_sections(data: object, place: Place) -> None:
    """Refuse the file if an entry has what protects all servers, for it would take down its server alone."""
    entry = cast("dict[str, object]", data) if isinstance(data, dict) else {}
    auth = entry.get("auth")
    inner = cast("dict[str, object]", auth) if isinstance(auth, dict) else {}
    for holder, at in ((entry, place), (inner, place.at("auth"))):
        for key in holder:
            if key in OF_ALL_SERVERS:
                _check_place(key, at)
    read = {*known_keys(ServerEntry)} - {"oauth"}
    for key in entry:
        # What is nearly one of these stops its server alone; see `server_keys`.
        if key not in read and nearest(key, ("permissions", *rule_keys())) is None:
            _check_buried(key, entry[key], place)


def _is_disabled(data: object) -> bool:
    table = cast("dict[str, object]", data) if isinstance(data, dict) else {}
    return table.get("disabled") is True or table.get("enabled") is False


def _check_file_keys(table: dict[str, object], root: Place, warn: Callable[[str], None]) -> None:
    """Refuse what protects at the wrong place, and a mistyped `toolset` or `inputs`.

    Other unknown keys are ignored: they may be a client's own. If one names a server, this is a warning.
    """
    mcp = table.get("mcp")
    nested = cast("dict[str, object]", mcp) if isinstance(mcp, dict) else {}
    read, _ = named_servers(table) or ((), None)
    for key in unknown_keys(table, FILE_KEYS):
        if (meant := nearest(key, ("toolset", "mcpServers", "inputs"))) is not None:
            raise root.at(key).error("unknown key", f"did you mean `{meant}`?")
        _check_place(key, root)
    for key in unknown_keys(nested, FILE_KEYS - {"toolset"} | {"excluded"}):
        _check_place(key, root.at("mcp"))
    for holder, at in ((table, root), (nested, root.at("mcp"))):
        for key in holder:
            if at.at(key).steps not in (read, ("toolset",), ("mcp",)):
                _check_buried(key, holder[key], at)
                if key in ("mcpServers", "servers") and holder[key]:
                    warn(str(at.at(key).error(f"is not read, as `{'.'.join(read)}` is", "keep one of them")))
    _, entries = named_servers(table) or ((), None)
    named = cast("dict[str, object]", entries) if isinstance(entries, dict) else {}
    served = [one for one in named if not _is_disabled(named[one])]
    _tell_off_elsewhere(root, read, served, warn)
    for name, steps in switched_off(table, served).items():
        raise root.at(*steps).error(
            f"switches the server `{name}` off in another client, and not here",
            f'write "disabled": true into `{".".join((*read, name))}`',
        )
    _tell_unread(table, root, named, warn)


_OF_CLAUDE_CODE: Final = (".claude/settings.json", ".claude/settings.local.json")


def _tell_off_elsewhere(
    root: Place, read: tuple[str, ...], servers: list[str], warn: Callable[[str], None]
) -> None:
    """Warn of servers of a project that the settings of Claude Code beside its `.mcp.json` switch off."""
    path = Path(root.source)
    for file in _OF_CLAUDE_CODE if path.name == ".mcp.json" else ():
        try:
            table = decode(config_text(str(path.parent / file)), file)
        except ConfigError:
            continue
        known = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
        for name, steps in switched_off(known, servers).items():
            told = f"is switched off there, in {'.'.join(steps)} of {file}, and served here"
            warn(str(root.at(*read, name).error(told, 'write "disabled": true into it')))


def _tell_unread(
    table: dict[str, object], root: Place, servers: Iterable[str], warn: Callable[[str], None]
) -> None:
    """Warn of keys that nothing reads, where they may be meant for us."""
    unknown = unknown_keys(table, FILE_KEYS)
    if "toolset" in table and unknown:
        warn(_ignored(unknown, root))
        unknown = []
    for key in (*unknown, "tools"):
        if names_a_server(table.get(key), servers):
            mend = "write rules into `toolset` or the server's entry, or begin the key with `_`"
            warn(str(root.at(key).error("names a server, and is ignored here", mend)))


def _check_place(key: str, place: Place) -> None:
    if (right := misplaced(key)) is not None:
        raise place.at(key).error(WRONG_PLACE, f"move it to `{right}`")


def _check_buried(key: str, value: object, place: Place) -> None:
    """Refuse a rule of ours within a value that nothing reads."""
    if (found := buried(key, value)) is not None:
        raise place.at(*found[0]).error(WRONG_PLACE, f"move it to `{found[1]}`")


def _ignored(unknown: list[str], place: Place) -> str:
    named = ", ".join(f"`{key}`" for key in unknown[:_NAMED])
    more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
    return str(place.error(f"unknown keys are ignored: {named}{more}", "remove them, or begin them with `_`"))


def _table(data: object, place: Place) -> dict[str, object]:
    if not isinstance(data, dict):
        raise place.error("must be an object", "write it as { … }")
    return cast("dict[str, object]", data)


def _server_section(table: dict[str, object], root: Place) -> tuple[Place, dict[str, object]]:
    if (found := named_servers(table)) is not None:
        place = root.at(*found[0])
        return place, _named(_table(found[1], place), place)
    guesses = (did_you_mean(key, ("mcpServers", "servers")) for key in table)
    raise root.error("names no servers", next(filter(None, guesses), 'add `"mcpServers": { … }`'))


def _named(entries: dict[str, object], place: Place) -> dict[str, object]:
    blank = next((name for name in entries if not name.strip()), None)
    if blank is not None:
        raise place.at(blank).error("a server needs a name", "write one as its key")
    for name, entry in entries.items():
        if is_section(name, entry):
            _check_place(name, place)
    return entries


def _inputs(table: dict[str, object], root: Place) -> dict[str, str | None]:
    place = root.at("inputs")
    listed = table.get("inputs")
    if listed is None:
        return {}
    if not isinstance(listed, list):
        raise place.error("must be a list", "write it as [ … ]")
    from mcp_toolset.config.sections import InputEntry

    items = cast("list[object]", listed)
    entries = [validated(InputEntry, item, place.at(index)) for index, item in enumerate(items)]
    return {entry.id: entry.default for entry in entries}


_PROGRAM: Final = re.compile(
    r"(?i)(?:^|.*[/\\])mcp[-_]toolset(?:\.exe|\.cmd|\.bat)?(?:\[[^\]]*\])?(?:[@=<>~!].*)?"
)
_MODULE: Final = re.compile(r"mcp_toolset(?:\.[\w.]+)?|.*[/\\]mcp_toolset[/\\](?:__main__|cli[/\\]main)\.py")


def check_no_loop(server: ServerConfig, path: Path) -> None:
    """Refuse a server that would serve the file that configures it."""
    if server.command is None:
        return
    way = way_back((server.command, *server.args), server.cwd, path)
    if way:
        shown = " → ".join([str(path), *way])
        raise ConfigError(
            f"{path}: server {server.name!r} serves the file that contains it ({shown}), and "
            "each level would start the next; remove it, or have it serve another file"
        )


def way_back(command: Sequence[str], cwd: str | None, path: Path) -> list[str]:
    """The files through which a command leads back to serving `path`, which is last; empty if it does not."""
    home = ServedFile.at(path)
    return [] if home is None else _way(command, Path(cwd or "."), home, [])


def served_files(command: Sequence[str], folder: Path) -> Iterator[Path]:
    """The files that a command line makes mcp-toolset serve, as far as its words show."""
    words = [each for word in command for each in (_split(word) if re.search(r"\s", word) else [word])]
    for at, word in enumerate(words):
        rest = words[at + 1 :]
        if (_PROGRAM.fullmatch(word) or _MODULE.fullmatch(word)) and "serve" in rest:
            for target in rest[rest.index("serve") + 1 :]:
                if (folder / target).is_file():
                    yield folder / target


def _split(word: str) -> list[str]:
    """The words of a shell's command line; a word with a space in it is also kept whole."""
    try:
        return [word, *shlex.split(word)]
    except ValueError:
        return [word]


def _way(command: Sequence[str], folder: Path, home: ServedFile, seen: list[ServedFile]) -> list[str]:
    for file in served_files(command, folder):
        one = ServedFile.at(file)
        if one is None or any(one.is_same(other) for other in seen) or len(seen) >= DEPTH:
            continue
        shown = os.path.normpath(file)
        if one.is_same(home):
            return [shown]
        for server in _servers(file):
            way = _way((server.command or "", *server.args), Path(server.cwd or "."), home, [*seen, one])
            if way:
                return [shown, *way]
    return []


def _servers(file: Path) -> list[ServerConfig]:
    if file.suffix not in (".json", ".jsonc"):
        return []
    try:
        config = load_config(file, lookups="skip")
    except ConfigError:
        # The error of that file is reported by its own bridge.
        return []
    return [server for server in config.servers if server.command and not server.disabled]
