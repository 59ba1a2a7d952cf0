"""Tags: words of the host for its selectors and policies; clients do not see them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mcp_toolset.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class Tagged:
    """Selects every tool that has all of some tags, wherever it is nested.

    Attributes:
        tags: The tags.
    """

    tags: frozenset[str]

    @property
    def name(self) -> str:
        """The selector as source code, for messages."""
        return f"tagged({', '.join(map(repr, sorted(self.tags)))})"

    def __repr__(self) -> str:
        """The selector as source code."""
        return self.name


def tagged(*tags: str) -> Tagged:
    """A selector of every tool that has all of these tags.

    ```python
    tools.off(tagged("admin"))
    hooks.execution(tagged("money"))(ask_first)
    ```

    Raises:
        DefinitionError: a tag is not a non-empty text, or there is no tag.
    """
    if not tags:
        raise DefinitionError("tagged() takes at least one tag")
    return Tagged(checked_tags(tags, "tagged()"))


def checked_tags(tags: Iterable[str], where: str) -> frozenset[str]:
    """The tags, checked.

    Raises:
        DefinitionError: a tag is not a non-empty text, or a text was given instead of a list; the message
            starts with
    """
    found = [tags] if isinstance(tags, str) else list(tags)
    if isinstance(tags, str) or not all(isinstance(tag, str) and tag for tag in found):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(f"{where}: tags are several non-empty texts, such as ['admin'], not {tags!r}")
    return frozenset(found)
