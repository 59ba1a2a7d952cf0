"""The extensions by name: what those of this package declare, and the entry points of others.

Nothing of an extension is imported here but by `loaded`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from mcp_toolset.errors import DefinitionError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "mcp_toolset.extensions"
"""The package with an extension in each folder, and the group of entry points of other distributions."""

_COMMANDS: Final = "mcp_toolset.commands"
"""The group of entry points of commands."""

_REFERENCES: Final = "mcp_toolset.references"
"""The group of entry points of schemes of references."""


@cache
def rows() -> Mapping[str, Mapping[str, Any]]:
    """The declarations of the extensions of this package that can be imported, by folder."""
    index = import_module(GROUP)
    there = {*os.listdir(os.path.dirname(index.__file__ or ""))}
    found: dict[str, Mapping[str, Any]] = index.TABLE
    return {name: one for name, one in found.items() if there.issuperset((name, *_words(one, "needs")))}


def _words(row: Mapping[str, Any], kind: str) -> list[str]:
    return row.get(kind, "").split()


@cache
def homes(kind: str) -> Mapping[str, str]:
    """The folder of each name of a kind, such as `key`, `mount`, `part`, `commands`, `carries`."""
    return {name: home for home, row in rows().items() for name in _words(row, kind)}


@cache
def owners(kind: str) -> Mapping[str, str]:
    """The key of the extension of each key of a server's `entry`, or of each of the `keywords` of a mount."""
    return {
        name: row.get("key") or row.get("reach", home)
        for home, row in rows().items()
        for name in _words(row, kind)
    }


@cache
def rule_keys() -> tuple[str, ...]:
    """The keys of a server's entry that no other client knows: they are missed where they stand elsewhere."""
    return tuple(name for name in owners("entry") if name not in owners("common"))


def missing_keys() -> set[str]:
    """The keys without which a server would be reached otherwise, and whose folder is not there."""
    every = import_module(GROUP).TABLE.values()
    return {name for row in every if "reach" in row for name in _words(row, "entry")} - {*owners("entry")}


@cache
def marked(mark: str) -> tuple[str, ...]:
    """The keys of the extensions with a mark, in order.

    - `always`: each server has them unless it is told otherwise.
    - `served`: `serve` and the command line turn them on unless told otherwise.
    - `keeps_calls`: calls that wait are kept in them; turned off, what replicas share keeps none either.
    - `stated`: a file can name them.
    - `adds`: a file, or an entry alone, turns them on at any time. They have no slot but `guard`, and their
      guards stand before those of others, as they refuse calls.
    - `protects`: a misspelt key is never ignored, and a program that asks for one is not served without.
    - `by_pattern`: what a file says of them is a table by patterns.
    - `of_clients`: clients have the key in their files as well, for something else.
    - `stays`: they are told of calls, in the process that stays while a program is loaded again in others.
    - `deferred`: they are for tools behind search; `Toolset.deferred` can turn them on.
    - `carries`: a mounted server that declares an extension of the protocol turns them on; see
      `Extension.carries`. Of what is asked when a server is made, such extensions have nothing to say then.
    - `with_policy`: a server has them as soon as it has a policy, unless told otherwise; see `guard_of`.
    - `option`, `serve_option`, `caller_option`: `serve` has an option for them; the first is one of
      `install`, too, the last says who may call.
    - `view_option`: `serve`, `install` and the commands that look at a target have an option for them.
    - `search_option`: `search` has an option for them.
    """
    return tuple(row["key"] for row in rows().values() if mark in row.get("marks", "").split())


def mend(error: str, otherwise: str = "") -> str:
    """The mends of an extension for errors of the core, by the core's names for the errors."""
    found = (row["mends"][error] for row in rows().values() if error in row.get("mends", ()))
    return next(found, otherwise)


@cache
def others() -> Mapping[str, EntryPoint]:
    """The entry points of other distributions by key; asked for only where a key is not in the index."""
    return {name: point for name, point in _points(GROUP).items() if name not in homes("key")}


@cache
def commands_of_others() -> Mapping[str, EntryPoint]:
    """The entry points of commands of other distributions by name."""
    return {name: point for name, point in _points(_COMMANDS).items() if name not in homes("commands")}


@cache
def reference(scheme: str) -> Any:
    """The function (`security.vault.LookUp`) that looks up `${SCHEME:TEXT}`; `None` if no extension does."""
    if (home := homes("references").get(scheme)) is not None:
        return declaring(home, "references").REFERENCES[scheme]
    point = _points(_REFERENCES).get(scheme)
    return None if point is None else loaded(point)


def _points(group: str) -> Mapping[str, EntryPoint]:
    # All servers start, and few have extensions of others.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}


def loaded(point: EntryPoint) -> Any:
    """The target of an entry point.

    Raises:
        DefinitionError: it cannot be imported.
    """
    try:
        return point.load()
    except (ImportError, AttributeError) as fault:
        package = "" if point.dist is None else f" of {point.dist.name}"
        raise DefinitionError(
            f"{point.name}{package}: {point.value} cannot be imported: {fault}; repair or uninstall it"
        ) from fault


def declaring(home: str, kind: str) -> Any:
    """The module in which a folder declares something: that of this name, unless the index says another."""
    name = rows()[home].get("modules", {}).get(kind, kind)
    return import_module(f"{GROUP}.{home}.{name}".rstrip("."))


def part(name: str) -> Any:
    """A part that the core asks for by name; `None` if its folder is not there."""
    home = homes("part").get(name)
    return None if home is None else declaring(home, "part").PART


def needed(name: str, what: str) -> Any:
    """The same, where nothing can be done without it; `what` begins the error: `… are`.

    Raises:
        DefinitionError: its folder is not there.
    """
    if (found := part(name)) is None:
        raise DefinitionError(f"{what} not part of this installation; install mcp-toolset again")
    return found


def section_keys(names: Collection[str], core: Collection[str]) -> set[str]:
    """Those of the names that are keys of extensions in the section `toolset`; `core` has the core's."""
    rest = {name for name in names if name not in core}
    found = rest & {*marked("stated")}
    return found | (rest & {*others()}) if rest - found else found


def every_key() -> list[str]:
    """The keys of all extensions in the section `toolset`."""
    return [*marked("stated"), *others()]
