"""`ToolDefinition`: a tool as plain data; the frozen JSON that it consists of; and `ToolOptions`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Self, TypedDict, TypeGuard, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError

MAX_DEPTH: Final = 200  # Levels that are frozen; deeper schemas are refused when compiled.

_LEAVES: Final = frozenset({str, int, float, bool, type(None)})


def _refused(self: object, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        "the definition of a tool cannot be changed in place, as its schemas are compiled once; make a copy "
        "with copy.deepcopy() and another tool, or change it with a verb such as .with_arguments()"
    )


class FrozenObject(dict[str, Any]):
    """A JSON object that cannot be changed."""

    __slots__ = ()

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __ior__ = _refused
        clear = pop = popitem = setdefault = update = _refused

    def copy(self) -> dict[str, Any]:
        return dict(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return cast("dict[str, Any]", thawed(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


class FrozenArray(list[Any]):
    """A JSON array that cannot be changed."""

    __slots__ = ()

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __iadd__ = __imul__ = _refused
        append = extend = insert = remove = pop = clear = sort = reverse = _refused

    def copy(self) -> list[Any]:
        return list(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return cast("list[Any]", thawed(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self),)


def frozen(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A frozen copy of the value; a frozen value is returned itself."""
    kind = cast("type[object]", type(value))
    if kind in _LEAVES or kind is FrozenObject or kind is FrozenArray or not depth:
        return value
    if kind is dict or isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return FrozenObject({key: frozen(one, depth - 1) for key, one in members.items()})
    if isinstance(value, list | tuple):
        items = [frozen(one, depth - 1) for one in cast("list[Any]", value)]
        return FrozenArray(items) if isinstance(value, list) else tuple(items)
    return value


def thawed(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A plain copy of the value; levels deeper than those that are frozen are not copied."""
    given: object = value
    if isinstance(given, dict) and depth:
        members = cast("dict[str, Any]", given)
        return {k: one if type(one) is str else thawed(one, depth - 1) for k, one in members.items()}
    if isinstance(given, list) and depth:
        items = cast("list[Any]", given)
        return [one if type(one) is str else thawed(one, depth - 1) for one in items]
    return value


def copied(arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return _copied_object(arguments)
    except RecursionError:
        raise InvalidArgumentsError(
            "the arguments are nested too deeply to be copied; flatten them"
        ) from None


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield key
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in cast("list[Any] | tuple[Any, ...]", value):
            yield from texts_in(item)


def _copied_object(given: dict[str, Any]) -> dict[str, Any]:
    return {key: value if type(value) in _LEAVES else _copied(value) for key, value in given.items()}


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return _copied_object(cast("dict[str, Any]", value))
    if type(value) is list:
        items = cast("list[Any]", value)
        return [item if type(item) in _LEAVES else _copied(item) for item in items]
    return deepcopy(value)


_WIRE_KEYS = frozenset(
    {"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta"}
)

_SAID = ("input_schema", "output_schema", "annotations", "icons", "meta", "extra")


@dataclass(frozen=True)
class ToolDefinition:
    """The definition of one tool. It copies its arguments and cannot be changed in place.

    Attributes:
        name: The tool's own name, before any prefix (specification, server/tools, "Tool Names").
        description: What the tool does, for the model; may be absent.
        input_schema: JSON Schema of the arguments; always an object schema.
        output_schema: JSON Schema of the structured result, if the tool promises one.
        title: A name for people.
        annotations: Behaviour hints in wire form (`readOnlyHint`, `destructiveHint`, …).
        icons: Icons in wire form.
        meta: The `_meta` of the definition in wire form.
        extra: Keys of later protocol revisions, kept unread.
    """

    name: str
    description: str | None = None
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    output_schema: Mapping[str, Any] | None = None
    title: str | None = None
    annotations: Mapping[str, Any] | None = None
    icons: tuple[Mapping[str, Any], ...] | None = None
    meta: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(
                f"ToolDefinition({self.name!r}): a tool has a name, a text that is not empty"
            )
        for part in _SAID:
            if (said := getattr(self, part)) is not None:
                object.__setattr__(self, part, frozen(said))

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """A definition from an entry of a `tools/list` answer, or a `DefinitionError` with tool and key."""
        name = wire.get("name")
        if not isinstance(name, str) or not name:
            raise DefinitionError(
                f"a tool without a usable name: {name!r}; every tool needs a non-empty string"
            )
        _expect(name, wire, "inputSchema", Mapping, required=True)
        _expect(name, wire, "outputSchema", Mapping)
        _expect(name, wire, "description", str)
        _expect(name, wire, "title", str)
        _expect(name, wire, "annotations", Mapping)
        _expect(name, wire, "icons", list)
        _expect(name, wire, "_meta", Mapping)
        if not all(isinstance(icon, Mapping) for icon in wire.get("icons") or ()):
            raise DefinitionError(f"tool {name!r}: icons must be a list of objects (server/tools)")
        if wire["inputSchema"].get("type") != "object":
            raise DefinitionError(f'tool {name!r}: inputSchema must have "type": "object" (server/tools)')
        icons = wire.get("icons")
        return cls(
            name=name,
            description=wire.get("description"),
            input_schema=wire["inputSchema"],
            output_schema=wire.get("outputSchema"),
            title=wire.get("title"),
            annotations=wire.get("annotations"),
            icons=None if icons is None else tuple(icons),
            meta=wire.get("_meta"),
            extra={key: value for key, value in wire.items() if key not in _WIRE_KEYS},
        )

    @property
    def read_only(self) -> bool:
        """True if the tool is annotated as read-only; without the hint it may change things."""
        return self.annotations is not None and self.annotations.get("readOnlyHint") is True

    @property
    def repeatable(self) -> bool:
        """True if the tool is annotated so that a second run does no more than the first."""
        hints = self.annotations or {}
        return hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the whole definition in canonical JSON; equal exactly if the definitions are equal."""
        canonical = json.dumps(self.to_wire(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()

    def to_wire(self, name: str | None = None) -> dict[str, Any]:
        """The definition as a `tools/list` entry, under `name` if given: a plain copy."""
        wire: dict[str, Any] = {"name": name or self.name}
        if self.title is not None:
            wire["title"] = self.title
        if self.description is not None:
            wire["description"] = self.description
        wire["inputSchema"] = thawed(self.input_schema)
        if self.output_schema is not None:
            wire["outputSchema"] = thawed(self.output_schema)
        if self.annotations:
            wire["annotations"] = thawed(self.annotations)
        if self.icons:
            wire["icons"] = [thawed(icon) for icon in self.icons]
        if self.meta:
            wire["_meta"] = thawed(self.meta)
        return {**thawed(self.extra), **wire} if self.extra else wire

    def __hash__(self) -> int:
        return hash(self.name)

    def described(self, description: str | None) -> Self:
        """A copy with another description."""
        return replace(self, description=description)


def task_support(definition: ToolDefinition) -> str:
    """True if a tool runs as a task: `optional`, `required`, or empty (`execution.taskSupport`)."""
    execution: object = definition.extra.get("execution") if definition.extra else None
    found = (
        cast("Mapping[str, Any]", execution).get("taskSupport") if isinstance(execution, Mapping) else None
    )
    return found if found in ("optional", "required") else ""


def _expect(tool: str, wire: Mapping[str, Any], key: str, kind: type, *, required: bool = False) -> None:
    value = wire.get(key)
    if value is None and not required:
        return
    if not isinstance(value, kind):
        found = "nothing" if value is None else type(value).__name__
        wanted = {"Mapping": "an object", "str": "a string", "list": "a list"}[kind.__name__]
        raise DefinitionError(f"tool {tool!r}: {key} must be {wanted}, found {found}")


MAX_LINES: Final = 8  # The number of differences that are listed; the rest are counted.
MAX_VALUE: Final = 100  # The number of characters shown of one value.

_ABSENT: Final = object()
_Wire = Mapping[str, Any]


def difference(old: _Wire, new: _Wire) -> list[str]:
    """The differing parts of two definitions, each as `path: before → after`, cut and in JSON: safe lines."""
    lines: list[str] = []
    found = _walk(old, new, "")
    for line in found:
        if len(lines) == MAX_LINES:
            lines.append(f"and {1 + sum(1 for _ in found)} more")
            break
        lines.append(line)
    return lines


def _walk(old: object, new: object, path: str) -> Iterator[str]:
    if _is_object(old) and _is_object(new):
        for key in dict.fromkeys([*old, *new]):
            inner = f"{path}.{key}" if path else str(key)
            yield from _walk(old.get(key, _ABSENT), new.get(key, _ABSENT), inner)
    elif old is _ABSENT or new is _ABSENT or json.dumps(old) != json.dumps(new):
        yield f"{_cut(json.dumps(path)[1:-1])}: {_shown(old)} → {_shown(new)}"


def _is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _shown(value: object) -> str:
    return "absent" if value is _ABSENT else _cut(json.dumps(value, ensure_ascii=True))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


@dataclass(frozen=True, slots=True)
class Tagged:
    """Selects every tool that has all of some tags, wherever it is nested."""

    tags: frozenset[str]

    @property
    def name(self) -> str:
        return f"tagged({', '.join(map(repr, sorted(self.tags)))})"

    def __repr__(self) -> str:
        return self.name


def tagged(*tags: str) -> Tagged:
    """A selector of every tool that has all of these tags: `tools.off(tagged("admin"))`."""
    if not tags:
        raise DefinitionError("tagged() takes at least one tag")
    return Tagged(checked_tags(tags, "tagged()"))


def checked_tags(tags: Iterable[str], where: str) -> frozenset[str]:
    """The tags; `DefinitionError` if one is no non-empty text, or one text was given instead of a list."""
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
    """Keyword arguments that every way to define a tool takes."""

    title: str | None  # A name for people.
    description: str | None  # What the tool does, for the model.
    meta: Mapping[str, Any] | None  # The definition's `_meta`.
    manual: bool  # True if the application answers its calls, even if it has a handler.
    timeout: float | None  # Seconds that one call may take.
    id: str  # The stable id of the tool, independent of its name.
    tags: Iterable[str]  # The application's words for selectors and policies; clients do not see them.
    metadata: Mapping[str, Any]  # The application's notes about it, JSON data; clients do not see them.
    # The annotation `readOnlyHint`; likewise `destructive`, `idempotent`, `open_world`.
    read_only: bool | None
    destructive: bool | None
    idempotent: bool | None
    open_world: bool | None
    # True if a client that takes tasks gets one in place of the result (`execution.taskSupport`): `optional`,
    # or `required` if it is refused to other clients of 2026-07-28. See docs/tasks.md.
    task: Literal["optional", "required"] | None


def checked(maker: str, options: ToolOptions) -> ToolOptions:
    unknown = sorted(options.keys() - ToolOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"{maker} got an unexpected keyword argument {unknown[0]!r}")
    return options


def annotations_of(options: ToolOptions) -> dict[str, Any] | None:
    for key in _HINTS:
        if not isinstance(said := options.get(key), bool | None):
            raise DefinitionError(f"{key} is True, False or None, not {said!r}")
    return {wire: options[key] for key, wire in _HINTS.items() if options.get(key) is not None} or None


def execution_of(options: ToolOptions) -> dict[str, Any]:
    task = options.get("task")
    if task is None:
        return {}
    if task not in ("optional", "required"):  # pyright: ignore[reportUnnecessaryContains]
        raise DefinitionError(f"task is 'optional', 'required' or None, not {task!r}")
    return {"execution": {"taskSupport": task}}


class ToolFields(TypedDict):
    """The fields of a `Tool` that its options give."""

    manual: bool
    timeout: float | None
    id: str
    tags: frozenset[str]
    metadata: Mapping[str, Any]


def fields_of(options: ToolOptions) -> ToolFields:
    return {
        "manual": options.get("manual", False),
        "timeout": options.get("timeout"),
        "id": options.get("id", ""),
        "tags": checked_tags(options.get("tags", ()), "tool"),
        "metadata": options.get("metadata") or {},
    }


def definition_of(
    name: str,
    description: str | None,
    input_schema: Mapping[str, Any],
    output_schema: Mapping[str, Any] | None,
    options: ToolOptions,
) -> ToolDefinition:
    """The definition that a declaration and its options make; an option's description wins."""
    return ToolDefinition(
        name=name,
        description=options.get("description") or description,
        input_schema=input_schema,
        output_schema=output_schema,
        title=options.get("title"),
        annotations=annotations_of(options),
        meta=options.get("meta"),
        extra=execution_of(options),
    )
