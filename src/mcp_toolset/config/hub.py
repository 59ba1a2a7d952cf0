"""`load_config`: read a configuration file into a `HubConfig`, which has a `ServerConfig` for each server.

The servers are the first of `mcpServers`, `servers` (VS Code) and `mcp.servers` (VS Code settings)
that the file has. A project file (`.mcp.json`, `.cursor/mcp.json`, `.vscode/mcp.json`) configures
the folder of the project, and its servers start there; any other file configures the folder that it lies in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, cast

from mcp_toolset._index import owners, section_keys
from mcp_toolset._records import replace
from mcp_toolset.config import placement
from mcp_toolset.config.entries import server_keys, validated
from mcp_toolset.config.jsonc import Place, decode, object_of
from mcp_toolset.config.keys import did_you_mean, is_section, named_servers
from mcp_toolset.config.models import HubConfig, ServerConfig
from mcp_toolset.config.rule_patterns import check_entries, check_permissions, prefixes_of
from mcp_toolset.config.server_entry import FileContext, server_config
from mcp_toolset.config.tables import ServerEntry, ToolsetSection, keys_of
from mcp_toolset.config.variables import Variables
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.security.egress import Egress
from mcp_toolset.security.patterns import Permissions
from mcp_toolset.security.vault import Lookups, References, Vault

_EDITOR_FOLDERS: Final = (".cursor", ".vscode")


def load_config(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] = os.environ,
    vault: Vault | None = None,
    lookups: Lookups = "run",
    needed: Collection[str] | None = None,
) -> HubConfig:
    """Read a configuration file of any of the clients; it may contain comments and trailing commas.

    A server whose entry is wrong has a `fault`; the others can be used.

    Args:
        path: The file.
        environ: The environment variables for `${NAME}`.
        vault: The secrets for references, by default the user's. A vault that is given again does not ask
            again for a secret that it could not open.
        lookups: The handling of references that extensions look up, as by a command.
        needed: The servers to read; the others are read as if the file disabled them. `None` for all.

    Raises:
        ConfigError: The file is missing or broken, or an error concerns more than one server's entry.
    """
    source = os.fspath(path)
    data = decode(placement.config_text(source), source)
    if lookups == "run" and Path(source).absolute().parent.name in _EDITOR_FOLDERS:
        lookups = "refuse"  # `${command:…}` is a command of the editor in these files
    return parse_config(data, source=source, environ=environ, vault=vault, lookups=lookups, needed=needed)


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
    """The models of decoded JSON. Of files, only an `envFile` and `${file:…}` of enabled servers are read.

    Args:
        data: The decoded JSON.
        source: The path that the JSON came from or would be written to.
        environ: The environment variables for `${NAME}`.
        vault: The secrets for references, by default the user's.
        report: Gets the mistake of each server's entry that is wrong.
        lookups: The handling of references that extensions look up.
        needed: The servers to read, as in `load_config`.

    Raises:
        ConfigError: With file, place, cause and mend in one line, and no values.
    """
    root, path = Place(os.fspath(source)), Path(source).absolute()
    at_toolset = root.at("toolset")
    table, warnings = _table(data, root), list[str]()
    section, entries = _server_section(table, root)
    core, of_extensions = _split_section(table.get("toolset", {}))
    options = validated(ToolsetSection, core, at_toolset)
    references = References(vault or Vault(environ), lookups=lookups, state=_file_state(path))
    context = _file_context(path, options, environ, _inputs(table, root), references)
    context = replace(context, needed=needed)
    placement.check_file_keys(table, root, warnings.append)
    check_entries(entries, section)
    egress = _egress(options.egress, at_toolset.at("egress"))
    servers = tuple(
        replace(_server(name, entry, section.at(name), context, warnings.append, report), egress=egress.allow)
        for name, entry in entries.items()
    )
    prefixes = prefixes_of(entries)
    check_permissions(at_toolset, prefixes, options.permissions)
    extensions = _extensions(of_extensions, at_toolset, context.variables, prefixes)
    if "deferred" not in object_of(core) and any(
        one is not None and one.defers for one in extensions.values()
    ):
        servers = tuple(
            server if _decides_deferral(server, entries) else replace(server, deferred=True)
            for server in servers
        )
    rules = _permissions(options.permissions, at_toolset.at("permissions"))
    _check_order(rules, servers, section, at_toolset.at("permissions"))
    config = HubConfig(
        path=path,
        name=options.name,
        servers=servers,
        client_prefix=options.client_prefix,
        lock=_lock(options.lock, path, at_toolset.at("lock")),
        list_timeout=options.list_timeout,
        references=references,
        rules=rules,
        extensions=extensions,
        log=_log(options.log, context.variables, at_toolset.at("log")),
        ready=_ready(options.ready, at_toolset.at("ready")),
        http=_http(options.http, at_toolset.at("http")),
    )
    _check_callers(config, root, section, warnings.append)
    warnings += _idle_settings(servers, entries, extensions, section)
    return replace(config, warnings=(*warnings, *references.warnings))


def _file_state(path: Path) -> tuple[str, int]:
    """A key of the contents of a file: its path and the time of its last change."""
    try:
        return str(path), path.stat().st_mtime_ns
    except OSError:  # the file does not exist yet
        return str(path), 0


def _decides_deferral(server: ServerConfig, entries: Mapping[str, object]) -> bool:
    """True if a server's entry decides by itself if its tools are behind search."""
    return object_of(entries[server.name]).get("deferred") is not None or server.unlisted == "pass"


def _lock(lock: str | None, path: Path, place: Place) -> Path | None:
    if lock is None:
        return None
    if lock != lock.strip() or "$" in lock:
        raise place.error(
            "has blanks at an end or a reference, which is not replaced here", "write the path of a file"
        )
    return path.parent / lock


# The models of sections that few files have are loaded for these files.


def _permissions(permissions: object, place: Place) -> Permissions:
    if permissions is None:
        return Permissions()
    from mcp_toolset.config.sections import permissions_at

    return permissions_at(permissions, place)


def _check_order(rules: Permissions, servers: Iterable[ServerConfig], section: Place, place: Place) -> None:
    """Refuse rules that can never apply because of other rules."""
    by_server = {
        server.name: (server.permissions, section.at(server.name, "permissions")) for server in servers
    }
    if rules.callers or any(permissions is not None for permissions, _ in by_server.values()):
        from mcp_toolset.config.sections import check_order

        check_order(rules, by_server, place)


def _check_callers(config: HubConfig, root: Place, section: Place, warn: placement.Warn) -> None:
    """Check the rules for some callers against the callers that the file allows."""
    if config.callers is None:
        return
    general = [(config.rules.general, root.at("toolset", "permissions"))]
    general += [
        (server.permissions, section.at(server.name, "permissions"))
        for server in config.servers
        if server.permissions is not None
    ]
    config.callers.check(config.for_callers(root), general, warn)


def _split_section(section: object) -> tuple[object, dict[str, object]]:
    """The section `toolset` without the keys of extensions, and these keys."""
    if not isinstance(section, dict):
        return section, {}
    table = cast("dict[str, object]", section)
    keys = section_keys(table, keys_of(ToolsetSection))
    core = {key: value for key, value in table.items() if key not in keys}
    return core, {key: value for key, value in table.items() if key in keys}


def _extensions(
    values: Mapping[str, object], place: Place, variables: Variables, servers: Mapping[str, str]
) -> Mapping[str, Any]:
    if not values:
        return {}
    from mcp_toolset.config.extensions import read_settings

    return read_settings(values, place, variables, servers)


def _idle_settings(
    servers: Iterable[ServerConfig],
    entries: Mapping[str, object],
    extensions: Mapping[str, Any],
    place: Place,
) -> list[str]:
    """Warnings about settings in entries of extensions that the section `toolset` does not turn on."""
    warnings: list[str] = []
    for server in servers:
        for key, settings in server.extensions.items():
            idle = (
                None if extensions.get(key) is not None else settings.idle(cast("Any", entries[server.name]))
            )
            if idle:
                at, mend = place.at(server.name, idle), f'add "{key}": true to `toolset`'
                warnings.append(str(at.error(f"has no effect without `{key}`", mend)))
    return warnings


def _server_extensions(table: Mapping[str, object], place: Place, name: str) -> Mapping[str, Any]:
    """The settings of extensions in an entry, by their key."""
    if not any(key in owners("entry") for key in table):
        return {}
    from mcp_toolset.config.extensions import read_server_settings

    return read_server_settings(table, place, name)


def _ready(section: dict[str, object] | None, place: Place) -> Mapping[str, Any] | None:
    if section is None:
        return None
    from mcp_toolset.config.sections import ReadyEntry

    return asdict(validated(ReadyEntry, section, place))


def _http(section: dict[str, object] | None, place: Place) -> Mapping[str, Any] | None:
    """The limits for clients over HTTP, and the proxies whose forwarded addresses are trusted."""
    if section is None:
        return None
    from mcp_toolset.config.sections import HttpEntry

    options = asdict(validated(HttpEntry, section, place))
    options["trusted_proxies"] = (*options["trusted_proxies"],)
    return {name: value for name, value in options.items() if value is not None}


def _egress(section: dict[str, object] | None, place: Place) -> Egress:
    """The hosts to which mounted servers may send the bridge."""
    if section is None:
        return Egress()
    from mcp_toolset.config.sections import EgressEntry

    entry = validated(EgressEntry, section, place)
    try:
        return Egress(tuple(entry.allow))
    except DefinitionError as fault:
        cause, _, mend = str(fault).partition("; ")
        raise place.at("allow").error(cause, mend) from None


def _log(section: bool | dict[str, object], variables: Variables, place: Place) -> Mapping[str, Any] | None:
    """The log of the process; its folder is in that of the configuration."""
    if isinstance(section, bool):
        return {} if section else None
    from mcp_toolset.config.sections import LogEntry

    entry = validated(LogEntry, section, place)
    folder = None if entry.folder is None else variables.path(entry.folder)
    return {"level": entry.level, "folder": folder}


def _file_context(
    path: Path,
    options: ToolsetSection,
    environ: Mapping[str, str],
    inputs: Mapping[str, str | None],
    references: References,
) -> FileContext:
    in_editor_folder = path.parent.name in _EDITOR_FOLDERS
    folder = path.parent.parent if in_editor_folder else path.parent
    is_project = in_editor_folder or path.name == ".mcp.json"
    variables = Variables(environ, folder, inputs, references)
    return FileContext(options, variables, str(folder) if is_project else None)


def _server(
    name: str,
    data: object,
    place: Place,
    context: FileContext,
    warn: placement.Warn,
    report: Callable[[ConfigError], object] | None,
) -> ServerConfig:
    placement.check_entry_keys(data, place)
    try:
        table = _table(data, place)
        unknown = server_keys(table, place)
        entry = validated(ServerEntry, table, place)
        extensions = _server_extensions(table, place, name)
        config = server_config(name, entry, list(table), place, context, extensions)
    except ConfigError as fault:
        if report is not None:
            report(fault)
        return ServerConfig(name, "stdio", disabled=placement.is_disabled(data), fault=str(fault))
    if unknown:
        warn(placement.ignored_keys(unknown, place))
    if table.get("sandboxEnabled") and not config.disabled:
        cause = "is of another client: here the server runs without a sandbox"
        mend = "leave the server in that client, or remove the key"
        warn(str(place.at("sandboxEnabled").error(cause, mend)))
    return config


def _table(data: object, place: Place) -> dict[str, object]:
    if not isinstance(data, dict):
        raise place.error("must be an object", "write it as { … }")
    return cast("dict[str, object]", data)


def _server_section(table: dict[str, object], root: Place) -> tuple[Place, dict[str, object]]:
    """The place of the servers in a file, and their entries."""
    if (section := named_servers(table)) is None:
        guesses = (did_you_mean(key, ("mcpServers", "servers")) for key in table)
        raise root.error("names no servers", next(filter(None, guesses), 'add `"mcpServers": { … }`'))
    steps, value = section
    place = root.at(*steps)
    entries = _table(value, place)
    blank = next((name for name in entries if not name.strip()), None)
    if blank is not None:
        raise place.at(blank).error("a server needs a name", "write one as its key")
    for name, entry in entries.items():
        if is_section(name, entry):
            placement.check_place(name, place)
    return place, entries


def _inputs(table: dict[str, object], root: Place) -> dict[str, str | None]:
    place = root.at("inputs")
    inputs = table.get("inputs")
    if inputs is None:
        return {}
    if not isinstance(inputs, list):
        raise place.error("must be a list", "write it as [ … ]")
    from mcp_toolset.config.sections import InputEntry

    items = cast("list[object]", inputs)
    entries = [validated(InputEntry, item, place.at(number)) for number, item in enumerate(items)]
    return {entry.id: entry.default for entry in entries}
