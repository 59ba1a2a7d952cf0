"""One server's entry → `ServerConfig`: its transport, its address, and its references expanded."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, cast

from mcp_toolset._index import owners
from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.entries import WRONG_PLACE, ServerEntry, ToolsetSection
from mcp_toolset.config.jsonc import Place, read_text
from mcp_toolset.config.keys import NO_VARIABLES, did_you_mean
from mcp_toolset.config.models import ServerConfig
from mcp_toolset.config.tables import Transport
from mcp_toolset.config.variables import Variables, parse_env_file
from mcp_toolset.security.egress import MEND_ADDRESS, is_web_address
from mcp_toolset.security.policy.patterns import KINDS

if TYPE_CHECKING:
    from mcp_toolset.security.policy.patterns import Section


_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]+")


def check_servers(place: Place, servers: Mapping[str, str], permissions: object) -> None:
    """Refuse a rule for the tools of a server that is not there; wrong types are refused elsewhere."""
    check_patterns(_patterns(permissions, place.at("permissions")), servers)


def check_patterns(patterns: Iterable[tuple[str, Place]], servers: Mapping[str, str]) -> None:
    prefixes = {prefix: name for name, prefix in servers.items() if prefix}
    for pattern, at in patterns:
        # Imported here, because few configurations have rules.
        from mcp_toolset.security.policy.patterns import fault_of, fault_of_public, fault_of_server

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
            from mcp_toolset.security.policy.patterns import fault_of, fault_of_server, split_hint

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
        name: prefix if isinstance(prefix, str) and _PREFIX.fullmatch(prefix) else ""
        for name, prefix in found
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
    """What the file gives to each of its servers; `start_in` is for servers that name no folder."""

    defaults: ToolsetSection
    variables: Variables
    start_in: str | None


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
    extensions: Mapping[str, Any] = NOTHING,
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
    disabled = entry.disabled or not entry.enabled
    common = ServerConfig(
        name=name,
        transport=_transport(entry, keys, place),
        disabled=disabled,
        deferred=defaults.deferred if entry.deferred is None else entry.deferred,
        prefix=False if entry.prefix == "" else entry.prefix,
        names=MappingProxyType(entry.names),
        **_chosen(entry),
        timeout=entry.timeout or defaults.timeout,
        start_timeout=entry.start_timeout or defaults.start_timeout,
        start=entry.start or defaults.start,
        idle_timeout=entry.idle_timeout or defaults.idle_timeout,
        task_wait=entry.task_wait,
        pins=entry.pins or defaults.pins,
        new_tools=entry.new_tools or defaults.new_tools,
        hidden_text=entry.hidden_text or defaults.hidden_text,
        sessions=entry.sessions,
        declare=tuple(entry.declare),
        protocol=entry.protocol,
        eras=MappingProxyType(entry.eras),
        arguments=entry.arguments or defaults.arguments,
        unlisted=entry.unlisted,
        permissions=_permissions(entry.permissions, place.at("permissions")),
    )
    if entry.unlisted == "pass":
        common = _transparent(common, place)
    reader = _Reader(place, None if disabled else surroundings.variables)
    if common.transport == "stdio":
        read = _local(common, entry, reader, surroundings.start_in)
    else:
        read = _remote(common, entry, reader)
    stated = {key: one.of_entry(read, place, reader.text) for key, one in extensions.items()}
    return replace(read, secrets=tuple(dict.fromkeys(reader.secrets)), extensions=stated)


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
        from mcp_toolset.security.policy.patterns import fault_of, fault_of_public, split_hint

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


class _Chosen(TypedDict):
    include: tuple[str, ...]
    exclude: tuple[str, ...]


def _chosen(entry: ServerEntry) -> _Chosen:
    """Which tools to include and exclude, by the keys of any client. An empty list includes none."""
    names = [*(entry.include_tools or ()), *(entry.codex_enabled or ())]
    names += [name for name in entry.copilot_tools or () if name != EVERY_TOOL]
    include = (*(entry.include or ()), *map(glob.escape, names))
    exclude = map(glob.escape, [*entry.exclude_tools, *entry.disabled_tools, *entry.codex_disabled])
    lists = (entry.include, entry.include_tools, entry.codex_enabled, entry.copilot_tools)
    takes_none = (
        not include and EVERY_TOOL not in (entry.copilot_tools or ()) and lists != (None,) * len(lists)
    )
    return _Chosen(include=include, exclude=(*entry.exclude, *exclude, *([EVERY_TOOL] if takes_none else ())))


def _local(common: ServerConfig, entry: ServerEntry, reader: _Reader, start_in: str | None) -> ServerConfig:
    return replace(
        common,
        command=reader.text(entry.command or "", "command"),
        args=tuple(reader.text(arg, "args", index) for index, arg in enumerate(entry.args)),
        env=MappingProxyType(_environment(reader, entry)),
        env_file=None if entry.env_file is None else Path(reader.path(entry.env_file, "envFile") or ""),
        cwd=reader.path(entry.cwd, "cwd") or start_in,
    )


def _remote(common: ServerConfig, entry: ServerEntry, reader: _Reader) -> ServerConfig:
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


def _permissions(said: object, place: Place) -> Section | None:
    if said is None:
        return None
    from mcp_toolset.config.sections import section_at

    return section_at(said, place)


def _addresses(entry: ServerEntry) -> Iterator[tuple[str, str]]:
    written = {"url": entry.url, "httpUrl": entry.http_url, "serverUrl": entry.server_url}
    return ((key, url) for key, url in written.items() if url)


def _transport(entry: ServerEntry, keys: Sequence[str], place: Place) -> Transport:
    said = entry.type or entry.transport
    key, _ = next(_addresses(entry), ("", ""))
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
