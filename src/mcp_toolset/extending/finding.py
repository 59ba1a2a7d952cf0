"""`find`: the class of an extension by its key, imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from mcp_toolset._index import GROUP, homes, loaded, marked, others
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.extension import Extension

if TYPE_CHECKING:
    from mcp_toolset.extensions.keywords import Keywords


def find(key: str) -> type[Extension] | None:
    """The extension of a key: of this package, else of another distribution; `None` if there is none.

    Raises:
        DefinitionError: another distribution names what is no extension of this key.
    """
    if (home := homes("key").get(key)) is not None:
        return import_module(f"{GROUP}.{home}.extension").EXTENSION
    if (point := others().get(key)) is None:
        return None
    found = loaded(point)
    if not isinstance(found, type) or not issubclass(found, Extension):
        raise DefinitionError(f"{key}: {point.value} is no subclass of mcp_toolset.extending.Extension")
    if found.key != key:
        raise DefinitionError(
            f"{key}: {point.value} has the key {found.key!r}; give the entry point and the class one name"
        )
    return found


def served_keywords(on: bool) -> Keywords:
    """The keywords of the extensions that `serve` turns on unless told otherwise."""
    return cast("Keywords", dict.fromkeys(marked("served"), on))
