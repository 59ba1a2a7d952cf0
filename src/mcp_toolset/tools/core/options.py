"""`ToolOptions`: the options that every way to define a tool takes; and the tags among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypedDict

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class Tagged:
    """Selects every tool that has all of some tags, wherever it is nested."""

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


_HINTS: Final = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


class ToolOptions(TypedDict, total=False):
    """Keyword arguments that every way to define a tool takes.

    Attributes:
        title: A name for people.
        description: What the tool does, for the model.
        meta: The definition's `_meta`.
        manual: Whether the application answers its calls, even if it has a handler.
        timeout: Seconds that one call may take.
        id: The stable id of the tool, independent of its name.
        tags: The application's words for selectors and policies; clients do not see them.
        metadata: The application's notes about it, JSON data; clients do not see them.
        read_only: The behaviour annotation `readOnlyHint`.
        destructive: The behaviour annotation `destructiveHint`.
        idempotent: The behaviour annotation `idempotentHint`.
        open_world: The behaviour annotation `openWorldHint`.
        task: Whether a client that takes tasks gets one in place of the result (`execution.taskSupport`):
            `optional`, or `required` if it is refused to other clients of 2026-07-28. See docs/tasks.md.
    """

    title: str | None
    description: str | None
    meta: Mapping[str, Any] | None
    manual: bool
    timeout: float | None
    id: str
    tags: Iterable[str]
    metadata: Mapping[str, Any]
    read_only: bool | None
    destructive: bool | None
    idempotent: bool | None
    open_world: bool | None
    task: Literal["optional", "required"] | None


def checked(maker: str, options: ToolOptions) -> ToolOptions:
    """The options, if there are no others among them; `TypeError` of `maker` if there are."""
    unknown = sorted(options.keys() - ToolOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"{maker} got an unexpected keyword argument {unknown[0]!r}")
    return options


def annotations_of(options: ToolOptions) -> dict[str, Any] | None:
    """The behaviour annotations in wire form; `DefinitionError` for one that is neither true nor false."""
    for key in _HINTS:
        if not isinstance(said := options.get(key), bool | None):
            raise DefinitionError(f"{key} is True, False or None, not {said!r}")
    return {wire: options[key] for key, wire in _HINTS.items() if options.get(key) is not None} or None


def execution_of(options: ToolOptions) -> dict[str, Any]:
    """What a definition says of how the tool runs, in wire form."""
    task = options.get("task")
    if task is None:
        return {}
    if task not in ("optional", "required"):  # pyright: ignore[reportUnnecessaryContains]
        raise DefinitionError(f"task is 'optional', 'required' or None, not {task!r}")
    return {"execution": {"taskSupport": task}}


class Private(TypedDict):
    """What is never sent to a client."""

    tags: frozenset[str]
    metadata: Mapping[str, Any]


def private(options: ToolOptions) -> Private:
    """The tags and the metadata among the options."""
    return {"tags": checked_tags(options.get("tags", ()), "tool"), "metadata": options.get("metadata") or {}}
