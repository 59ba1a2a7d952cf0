"""The patterns of tools in a configuration: each is for a server that is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from mcp_toolset._index import owners
from mcp_toolset.config.jsonc import Place
from mcp_toolset.security.policy.patterns import KINDS

_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]+")


def check_servers(place: Place, servers: Mapping[str, str], permissions: object) -> None:
    """Refuse a rule for the tools of a server that is not there; wrong types are refused elsewhere.

    Args:
        place: What has the rules.
        servers: The names of the servers, each with the prefix of its tools, if it is known.
        permissions: Rules of who may use what.

    Raises:
        ConfigError: with the place of the first such pattern.
    """
    check_patterns(_patterns(permissions, place.at("permissions")), servers)


def check_patterns(patterns: Iterable[tuple[str, Place]], servers: Mapping[str, str]) -> None:
    """Refuse a pattern, each with its place, for the tools of a server that is not there.

    Args:
        patterns: The patterns with their places.
        servers: As for `check_servers`.

    Raises:
        ConfigError: with the place of the first such pattern.
    """
    prefixes = {prefix: name for name, prefix in servers.items() if prefix}
    for pattern, at in patterns:
        # Imported here, because few configurations have rules.
        from mcp_toolset.security.policy.patterns import fault_of, fault_of_public, fault_of_server

        fault = fault_of_server(pattern, servers) or fault_of_public(pattern, prefixes)
        # What is wrong with a pattern by itself is told where it is read.
        if fault and not fault_of(pattern):
            raise at.error(*fault)


def check_own(entries: Mapping[str, object], section: Place) -> None:
    """Refuse a rule in a server's entry that is for the tools of another server of the file.

    Raises:
        ConfigError: with the place of the first such pattern.
    """
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
    """The patterns of permissions, each with its place."""
    table = cast("dict[str, object]", said) if isinstance(said, dict) else {}
    for key, listed in table.items():
        for number, one in enumerate(cast("list[object]", listed) if isinstance(listed, list) else []):
            if key == "for":
                yield from _patterns(one, place.at(key, number))
            elif key in KINDS and isinstance(one, str):
                yield one, place.at(key, number)
