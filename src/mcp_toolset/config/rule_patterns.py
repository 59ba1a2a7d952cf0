"""Checks of the patterns in a file: refuse a pattern that fits no tool of the servers of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mcp_toolset._index import owners
from mcp_toolset.config.jsonc import Place, list_of, object_of
from mcp_toolset.config.models import PREFIX
from mcp_toolset.security.patterns import KINDS

# The functions of `security.patterns` are imported when they are used, because few files have rules.

_TOOL_LISTS: Final = (
    *("include", "exclude", "includeTools", "excludeTools"),
    *("disabledTools", "disabled_tools"),
)


def check_permissions(place: Place, servers: Mapping[str, str], permissions: object) -> None:
    """Refuse a rule of `permissions` for a server that the file does not have.

    Values of wrong types are refused elsewhere.

    Args:
        place: The holder of `permissions`.
        servers: The prefix of each server, by the server's name; empty for none.
        permissions: The value in the file.
    """
    check_patterns(_patterns(permissions, place.at("permissions")), servers)


def check_patterns(patterns: Iterable[tuple[str, Place]], servers: Mapping[str, str]) -> None:
    """Refuse a pattern for a server that the file does not have; `servers` as in `check_permissions`."""
    prefixes = {prefix: name for name, prefix in servers.items() if prefix}
    for pattern, place in patterns:
        from mcp_toolset.security.patterns import fault_of, fault_of_public, fault_of_server

        fault = fault_of_server(pattern, servers) or fault_of_public(pattern, prefixes)
        # A malformed pattern is refused where it is read.
        if fault and not fault_of(pattern):
            raise place.error(*fault)


def check_entries(entries: Mapping[str, object], section: Place) -> None:
    """Refuse a rule in a server's entry that is for the tools of another server of the file."""
    for name, entry in entries.items():
        others = {*entries} - {name}
        for pattern, place in _entry_patterns(object_of(entry), section.at(name)):
            from mcp_toolset.security.patterns import fault_of, fault_of_server, split_hint

            is_foreign = fault_of_server(pattern, [name]) and "/" in pattern and not fault_of(pattern)
            if is_foreign and not fault_of_server(pattern, others):
                owner = next(other for other in others if not fault_of_server(pattern, [other]))
                raise place.error(
                    "is a rule for another server, which would not apply",
                    f"move `{split_hint(pattern)[1]}` into the entry of `{owner}`, or into `toolset`",
                )


def _entry_patterns(entry: Mapping[str, object], place: Place) -> Iterator[tuple[str, Place]]:
    yield from _patterns(entry.get("permissions"), place.at("permissions"))
    for key in owners("entry"):
        yield from ((pattern, place.at(key, pattern)) for pattern in object_of(entry.get(key)))
    for key in _TOOL_LISTS:
        for number, pattern in enumerate(list_of(entry.get(key))):
            if isinstance(pattern, str):
                yield pattern, place.at(key, number)


def _patterns(permissions: object, place: Place) -> Iterator[tuple[str, Place]]:
    for key, value in object_of(permissions).items():
        for number, item in enumerate(list_of(value)):
            if key == "for":
                yield from _patterns(item, place.at(key, number))
            elif key in KINDS and isinstance(item, str):
                yield item, place.at(key, number)


def prefixes_of(entries: Mapping[str, object]) -> dict[str, str]:
    """The prefix of the tools of each server; empty for no valid prefix."""
    prefixes: dict[str, str] = {}
    for name, entry in entries.items():
        prefix = object_of(entry).get("prefix")
        prefix = name if prefix is None else prefix
        prefixes[name] = prefix if isinstance(prefix, str) and PREFIX.fullmatch(prefix) else ""
    return prefixes


def check_own_names(server: str, names: Iterable[tuple[str, Place]], *, exact: bool = False) -> None:
    """Refuse a pattern that fits none of a server's own names of its tools; `exact` refuses all patterns."""
    for name, place in names:
        from mcp_toolset.security.patterns import fault_of, fault_of_public, split_hint

        own = name.removeprefix(f"{server}/")
        if own != name:
            fault = "takes the server's own names of its tools", f"write `{own}`"
        elif split_hint(name)[0]:
            fault = "takes names, and no hints", "write it into `deny` or `allow` of `permissions`"
        elif exact and "*" in name:
            fault = "takes exact names", "write the pattern into `exclude`"
        else:
            fault = fault_of(name) or fault_of_public(name, {})
        if fault:
            raise place.error(*fault)
