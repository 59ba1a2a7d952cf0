"""`ToolDefinition`: a tool as plain data, the frozen JSON that it consists of, `ToolOptions`, and names.

The protocol allows 128 of `[A-Za-z0-9_.-]`; widely used clients accept 64 of `[A-Za-z0-9_-]`. A name that
must be altered gets a short digest of the original, so that two names never become one, whichever servers are
up (docs/decisions/0008-names-that-depend-on-nobody-else.md). Names are mapped back through a view, never by
parsing.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import field
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Self, TypedDict, TypeGuard, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError

MAX_NAME_LENGTH: Final = 64

REACHES_META_KEY: Final = "toolset/reaches"
"""The key in `_meta` of a definition for the target of calls, such as a host, a path and a method.

A mount whose calls leave for elsewhere than a server of MCP says it, as an object. A change of it is held
back like any change that makes a tool more powerful; see `catalog.pins.policy`.
"""

_DIGEST_LENGTH: Final = 7
_OUTSIDE: Final = re.compile(r"[^A-Za-z0-9_-]")
_ALLOWED: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_PUBLIC: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DIGESTED: Final = re.compile(r"_[0-9a-f]{7}$")
_SEPARATED: Final = re.compile(r"[./:]")
_SEPARATORS: Final = "_-./:"
_SHORTEST: Final = 24


def public_name(name: str, *, prefix: str = "", limit: int = MAX_NAME_LENGTH) -> str:
    """A name that every client accepts: `prefix_name`, or its legal characters, cut, with a digest."""
    whole = f"{prefix}_{name}" if prefix else name
    legal = _OUTSIDE.sub("_", whole)
    if legal == whole and len(legal) <= limit:
        return whole
    return qualified(legal, whole, limit)


def mounted_name(prefix: str, name: str) -> str:
    """The name of a server's tool in a hub, which depends on these two only.

    `git` and `log` make `git_log`; so do `git` and `git_log`, since a prefix that the name has already is
    not doubled. A name without digest can be read in one way only: up to its first `__`, or else its
    first `_`, it is the prefix. So a prefix with an underscore is followed by two (`my_git__log`),
    and `a` + `b_c` and `a_b` + `c` are `a_b_c` and `a_b__c`. A pair for which neither is clear gets a
    digest, and so does a name that looks as if it had one.
    """
    rest = _without(prefix, name)
    legal = _OUTSIDE.sub("_", rest)
    for joint in ("_", "__"):
        whole = f"{prefix}{joint}{rest}"
        parts = whole.partition("__" if "__" in whole else "_")
        clear = parts[::2] == (prefix, rest) and not _DIGESTED.search(whole)
        if clear and legal == rest and len(whole) <= MAX_NAME_LENGTH:
            return whole
    return qualified(f"{prefix}{'__' if '_' in prefix else '_'}{legal}", f"{prefix}\n{rest}")


def qualified(name: str, identity: str, limit: int = MAX_NAME_LENGTH) -> str:
    """`name`, cut as needed, with a digest of `identity`, which keeps names apart that would be equal."""
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: limit - _DIGEST_LENGTH - 1]}_{digest}"


def readable_name(name: str, own: str) -> str | None:
    """A name without its digest, if only the separators in `own`, the tool's name at its server, caused it.

    `quiet.note` becomes `quiet_note_0a1b2c3`, so that it never collides with `quiet_note`. If no tool is
    named `quiet_note`, that name is used: see `catalog.registry.state`.
    """
    if not _DIGESTED.search(name):
        return None
    plain, stem = _SEPARATED.sub("_", own), name[: -_DIGEST_LENGTH - 1]
    altered = plain != own and not _OUTSIDE.search(plain) and "__" not in plain
    return stem if altered and stem.endswith(plain) and not _DIGESTED.search(stem) else None


def limit_beside(client_prefix: str) -> int:
    """The number of characters left for a name beside a client's prefix, such as `mcp__SERVER__`."""
    limit = MAX_NAME_LENGTH - len(client_prefix)
    if limit < _SHORTEST:
        raise DefinitionError(
            f"client prefix {client_prefix!r} leaves {limit} of {MAX_NAME_LENGTH} characters for a tool's "
            f"name; choose one of at most {MAX_NAME_LENGTH - _SHORTEST}"
        )
    return limit


def check_public_name(name: str, place: str) -> str:
    """A name to serve a tool under; `DefinitionError` unless it is 1 to 64 of `[A-Za-z0-9_-]`."""
    if not _PUBLIC.fullmatch(name):
        raise DefinitionError(
            f"{place}: a tool cannot be served as {name!r}; choose a name of 1 to 64 of A-Z a-z 0-9 _ -"
        )
    return name


def check_name(name: str, place: str) -> str:
    """A name that the protocol allows (server/tools, "Tool Names"); `DefinitionError` otherwise."""
    if not _ALLOWED.fullmatch(name):
        raise DefinitionError(
            f"{place}: a tool cannot be named {name!r}; choose a name of 1 to 128 of A-Z a-z 0-9 _ . -"
        )
    return name


def check_prefix(prefix: str) -> str:
    """The prefix, if it can start a tool's name; `DefinitionError` otherwise."""
    if not _PREFIX.fullmatch(prefix):
        raise DefinitionError(f"prefix {prefix!r} cannot start a tool's name: use 1 to 32 of A-Z a-z 0-9 _ -")
    return prefix


def plain_prefix(prefix: str) -> str:
    return check_prefix(re.sub("_+", "_", check_prefix(prefix)).rstrip("_"))


@lru_cache(1_000)
def prefix_from(name: str) -> str:
    legal = re.sub("_+", "_", _OUTSIDE.sub("_", name)).rstrip("_")
    if legal == name and _PREFIX.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{legal[:24].rstrip('_')}_{digest}"


def _without(prefix: str, name: str) -> str:
    head, joint, rest = name[: len(prefix)], name[len(prefix) : len(prefix) + 1], name[len(prefix) + 1 :]
    return rest if head.lower() == prefix.lower() and joint and joint in _SEPARATORS and rest else name


DECLARED: Final = "__mcp_toolset_tool__"  # The attribute of a class with `@tool_input` that has its tool.


def declared_tool(model: object) -> Any:
    return vars(model).get(DECLARED) if isinstance(model, type) else None


def default_id(name: str, function: object) -> str:
    """The default id of a tool, whatever its prefix: `module:function` for a function, else `tool:name`."""
    path = _path_of(function)
    if path is None:
        return f"tool:{name}"
    return path if path.rsplit(":", 1)[-1].split(".")[-1] == name else f"{path}#{name}"


def handler_name(handler: object) -> str | None:
    if handler is None or isinstance(handler, str):
        return handler
    path = _path_of(handler)
    if path is None or "<" in path or path.startswith("__main__:"):
        return None
    module, _, steps = path.partition(":")
    target: Any = sys.modules.get(module)
    for step in steps.split("."):
        target = getattr(target, step, None)
    return path if target is handler or getattr(target, "function", None) is handler else None


def _path_of(function: object) -> str | None:
    inner: Any = inspect.unwrap(cast("Callable[..., Any]", function)) if callable(function) else function
    while isinstance(inner, partial):
        inner = inner.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    module, name = getattr(inner, "__module__", None), getattr(inner, "__qualname__", None)
    return f"{module}:{name}" if isinstance(module, str) and isinstance(name, str) else None


FIXED_TOOLS: Final = ("search_tools", "resolve_tools", "call_tool", "call_read_only_tool")
"""In the order they are listed."""

ALWAYS_LOADED: Final[Mapping[str, Any]] = MappingProxyType({"anthropic/alwaysLoad": True})
"""The `_meta` of tools that find other tools: clients with a search of their own list these at once.

Claude Code reads it (https://code.claude.com/docs/en/mcp).
"""


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
        return FrozenObject({key: frozen(member, depth - 1) for key, member in members.items()})
    if isinstance(value, list | tuple):
        items = [frozen(one, depth - 1) for one in cast("list[Any]", value)]
        return FrozenArray(items) if isinstance(value, list) else tuple(items)
    return value


def thawed(value: Any, depth: int = MAX_DEPTH) -> Any:
    """A plain copy of the value; levels deeper than those that are frozen are not copied."""
    given: object = value
    if isinstance(given, dict) and depth:
        members = cast("dict[str, Any]", given)
        return {
            k: member if type(member) is str else thawed(member, depth - 1) for k, member in members.items()
        }
    if isinstance(given, list) and depth:
        items = cast("list[Any]", given)
        return [item if type(item) is str else thawed(item, depth - 1) for item in items]
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
        description: A description of the tool for the model; may be absent.
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
    differences = _walk(old, new, "")
    for line in differences:
        if len(lines) == MAX_LINES:
            lines.append(f"and {1 + sum(1 for _ in differences)} more")
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


HINTS: Final = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""Options of a tool, with their names among the annotations of a definition (server/tools)."""


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
    for key in HINTS:
        if not isinstance(said := options.get(key), bool | None):
            raise DefinitionError(f"{key} is True, False or None, not {said!r}")
    return {wire: options[key] for key, wire in HINTS.items() if options.get(key) is not None} or None


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
