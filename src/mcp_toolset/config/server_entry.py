"""`server_config`: the `ServerConfig` of one entry of a file."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.entries import WRONG_PLACE
from mcp_toolset.config.jsonc import Place, read_text
from mcp_toolset.config.keys import NO_VARIABLES, did_you_mean
from mcp_toolset.config.models import ServerConfig
from mcp_toolset.config.rule_patterns import check_own_names, check_permissions
from mcp_toolset.config.tables import ServerEntry, ToolsetSection, Transport
from mcp_toolset.config.variables import Variables, parse_env_file
from mcp_toolset.security.egress import MEND_ADDRESS, is_web_address

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import ServerSettings
    from mcp_toolset.security.patterns import Section


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
class FileContext:
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
    context: FileContext,
    extensions: Mapping[str, ServerSettings] = NOTHING,
) -> ServerConfig:
    """The model of one entry.

    Args:
        name: The key of the entry.
        entry: The keys of the core.
        keys: The keys as they were written, to guess at misspelt ones.
        place: The place of the entry, for errors.
        context: Settings that the file gives to each of its servers.
        extensions: The settings of extensions in the entry, by their key.
    """
    defaults = context.defaults
    check_permissions(place, {name: ""}, entry.permissions)
    _check_own_names(name, entry, place)
    needed = context.needed is None or name in context.needed
    disabled = entry.disabled or not entry.enabled or not needed
    include, exclude = _chosen(entry)
    mounted = _mounted(extensions)
    config = ServerConfig(
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
        config = _transparent(config, place)
    reader = _Reader(place, None if disabled else context.variables)
    if config.transport == "stdio":
        config = _local(config, entry, reader, context.start_in)
    else:
        config = _remote(config, entry, reader, mounted)
    settings = {key: value.of_entry(config, place, reader.text) for key, value in extensions.items()}
    if mounted:
        address = next(value.address for value in settings.values() if value.mounts)
        config = replace(config, url=address or None)
    return replace(config, secrets=tuple(dict.fromkeys(reader.secrets)), extensions=settings)


def _mounted(extensions: Mapping[str, ServerSettings]) -> str:
    """The key of the extension that mounts the server; empty for a server with a command or a URL."""
    return next((settings.mounts for settings in extensions.values() if settings.mounts), "")


def _check_own_names(name: str, entry: ServerEntry, place: Place) -> None:
    """Refuse lists of tools that exclude each other, and names that fit none of the server's own names."""
    exact = {
        "excludeTools": entry.exclude_tools,
        "disabledTools": entry.disabled_tools,
        "disabled_tools": entry.codex_disabled,
    }
    included = {
        "include": entry.include,
        "includeTools": entry.include_tools,
        "enabled_tools": entry.codex_enabled,
        "tools": None if entry.copilot_tools == [EVERY_TOOL] else entry.copilot_tools,
    }
    first, *others = [key for key, listed in included.items() if listed is not None] or [""]
    if others:
        raise place.at(others[0]).error(
            f"is beside `{first}`, and the tools of both would be taken", "keep one of them"
        )
    for key, listed in {"include": entry.include or [], "exclude": entry.exclude, **exact}.items():
        named = ((tool, place.at(key, number)) for number, tool in enumerate(listed))
        check_own_names(name, named, exact=key in exact)


def _transparent(config: ServerConfig, place: Place) -> ServerConfig:
    """The configuration of a server whose unlisted tools can be called; it may not choose or rename tools."""
    for key in ("include", "exclude", "names", "prefix", "deferred", "permissions"):
        if getattr(config, key):
            raise place.at("unlisted").error(
                f'"pass" does not go with `{key}`, which cannot judge a tool that is not listed',
                f"remove `{key}`, or leave out `unlisted`",
            )
    return replace(config, prefix=False)


def _chosen(entry: ServerEntry) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Patterns of tools to include and to exclude, by the keys of any client; an empty list includes none."""
    names = [*(entry.include_tools or ()), *(entry.codex_enabled or ())]
    names += [name for name in entry.copilot_tools or () if name != EVERY_TOOL]
    include = (*(entry.include or ()), *map(glob.escape, names))
    exclude = map(glob.escape, [*entry.exclude_tools, *entry.disabled_tools, *entry.codex_disabled])
    lists = (entry.include, entry.include_tools, entry.codex_enabled, entry.copilot_tools)
    has_list = any(listed is not None for listed in lists)
    takes_none = has_list and not include and EVERY_TOOL not in (entry.copilot_tools or ())
    return include, (*entry.exclude, *exclude, *([EVERY_TOOL] if takes_none else ()))


def _local(config: ServerConfig, entry: ServerEntry, reader: _Reader, start_in: str | None) -> ServerConfig:
    return replace(
        config,
        command=reader.text(entry.command or "", "command"),
        args=tuple(reader.text(arg, "args", index) for index, arg in enumerate(entry.args)),
        env=MappingProxyType(_environment(reader, entry)),
        env_file=None if entry.env_file is None else Path(reader.path(entry.env_file, "envFile") or ""),
        cwd=reader.path(entry.cwd, "cwd") or start_in,
    )


def _remote(config: ServerConfig, entry: ServerEntry, reader: _Reader, mounted: str) -> ServerConfig:
    if mounted:
        return replace(config, headers=MappingProxyType(reader.table(entry.headers, "headers")))
    key, written = next(_addresses(entry))
    url = reader.text(written, key)
    if not config.disabled and not is_web_address(url):
        raise reader.place.at(key).error("not a web address", MEND_ADDRESS)
    # Files from before streamable HTTP give no type; the path tells, by convention.
    by_path: Transport = "sse" if _SSE_ADDRESS.search(url) else "http"
    return replace(
        config,
        transport=config.transport if entry.type or entry.transport else by_path,
        url=url,
        headers=MappingProxyType(reader.table(entry.headers, "headers")),
    )


def _server_permissions(permissions: object, place: Place) -> Section | None:
    if permissions is None:
        return None
    # Loaded for few files.
    from mcp_toolset.config.sections import section_at

    return section_at(permissions, place)


def _addresses(entry: ServerEntry) -> Iterator[tuple[str, str]]:
    written = {"url": entry.url, "httpUrl": entry.http_url, "serverUrl": entry.server_url}
    return ((key, url) for key, url in written.items() if url)


def _transport(entry: ServerEntry, keys: Sequence[str], place: Place, mounted: str = "") -> Transport:
    named = entry.type or entry.transport
    key, _ = next(_addresses(entry), ("", ""))
    if mounted:
        others = {"command": entry.command, key: key, "type": entry.type, "transport": entry.transport}
        if other := next((name for name, value in others.items() if value), ""):
            raise place.error(f"has both `{mounted}` and `{other}`", "remove one of them")
        return "http"
    if named is None:
        return _default_transport(entry, key, keys, place)
    transport = _TRANSPORTS.get(named.lower())
    if transport is None:
        raise place.at("type" if entry.type else "transport").error(
            "no transport of that name", did_you_mean(named, list(_TRANSPORTS)) or "use stdio, http or sse"
        )
    if transport == "stdio" and not entry.command:
        raise place.error("a stdio server needs `command`", _misspelt(keys) or "add the program to start")
    if transport != "stdio" and not key:
        raise place.error(f"an {transport} server needs `url`", _misspelt(keys) or "add its address")
    return transport


def _default_transport(entry: ServerEntry, address: str, keys: Sequence[str], place: Place) -> Transport:
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
