"""The extensions by name: the index of those that come with this package, and the entry points of others.

Nothing of an extension is imported here but by `loaded`.
"""

from __future__ import annotations

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


@cache
def index() -> Any:
    """The tables of the extensions that come with this package."""
    return import_module(GROUP)


@cache
def others() -> Mapping[str, EntryPoint]:
    """The entry points of other distributions by key; asked for only where a key is not in the index."""
    return {name: point for name, point in _points(GROUP).items() if name not in index().KEYS}


@cache
def commands_of_others() -> Mapping[str, EntryPoint]:
    """The entry points of commands of other distributions by name."""
    return {name: point for name, point in _points(_COMMANDS).items() if name not in index().COMMANDS}


def _points(group: str) -> Mapping[str, EntryPoint]:
    # All servers start, and few have extensions of others.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}


def loaded(point: EntryPoint) -> Any:
    """What an entry point names.

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


def part(name: str) -> Any:
    """What the core asks for by a name of its own; `None` if its folder is not there."""
    home = index().PARTS.get(name)
    return None if home is None else import_module(f"{GROUP}.{home}.part").PART


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
    found = rest & {*_stated()}
    return found | (rest & {*others()}) if rest - found else found


def every_key() -> list[str]:
    """The keys of all extensions in the section `toolset`."""
    return [*_stated(), *others()]


def _stated() -> list[str]:
    """The keys of this package's extensions that a file can name."""
    return [key for key in index().KEYS if key not in index().UNSTATED]
