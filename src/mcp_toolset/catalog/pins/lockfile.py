"""`LockFile`: the pins of servers in a file, to be reviewed and kept under version control.

`canonical` makes the form of a definition that is pinned, `compared` lists the differences of two of them.

Serving only reads it; `mcp-toolset pin` writes it. A file that is broken, or that another program wrote, is
an error that names it, and is left unchanged. Writers replace it in one step, one process at a time. It has
the definitions that servers list, without the secrets of their mounts, in a canonical form, which is equal
for equivalent definitions.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import os
import stat
import threading
import time
import unicodedata
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias, cast

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.atomic_file import locked, opened, replace_file
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.tools.definition import ToolDefinition, texts_in
from mcp_toolset.tools.hidden_text import plain_to_see, visible

SCHEMAS: Final = frozenset(
    (
        "items additionalItems additionalProperties unevaluatedItems unevaluatedProperties contains "
        "propertyNames not if then else contentSchema"
    ).split()
)
"""Keywords whose value is a schema."""

LISTS_OF_SCHEMAS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
"""Keywords whose value is a list of schemas; until 2019-09 `items` was one."""

TABLES_OF_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose value is an object of schemas."""

VALUES: Final = frozenset({"default", "example", "examples"})
"""Keywords that are not enforced, with values that a model may send unchanged."""

_WORDING: Final = frozenset(
    (
        "title description $comment deprecated readOnly writeOnly enumNames enumDescriptions "
        "markdownDescription"
    ).split()
)


@dataclass(frozen=True, slots=True)
class SchemaPart:
    """A part of a schema: a `name` of a parameter, definition or unknown keyword; `wording` is only read."""

    kind: Literal["name", "wording", "pattern", "value"]
    path: str  # its place, from the schema's root
    value: Any  # its value


def is_annotation(key: str) -> bool:
    """True for a keyword that is not enforced; `x-mcp-header` is none: it puts values into headers."""
    return key in _WORDING or key in VALUES or (key.startswith("x-") and key != "x-mcp-header")


def parts(schema: Any, path: str = "") -> Iterator[SchemaPart]:
    if isinstance(schema, list):
        for place, part in enumerate(cast("list[Any]", schema)):
            yield from parts(part, f"{path}[{place}]")
    elif isinstance(schema, Mapping):
        for key, value in cast("Mapping[str, Any]", schema).items():
            yield from _member_parts(path, key, value)


def _member_parts(path: str, key: str, value: Any) -> Iterator[SchemaPart]:
    step = f"{path}.{key}"
    if key in TABLES_OF_SCHEMAS and isinstance(value, Mapping):
        for name, part in cast("Mapping[str, Any]", value).items():
            yield SchemaPart("pattern" if key == "patternProperties" else "name", step, name)
            yield from parts(part, f"{step}.{name}")
    elif key in SCHEMAS or key in LISTS_OF_SCHEMAS:
        yield from parts(value, step)
    elif is_annotation(key) and key not in VALUES:
        yield SchemaPart("wording", step, value)
    else:
        yield SchemaPart("name", path, key)
        yield SchemaPart("pattern" if key == "pattern" else "value", step, value)


_SETS: Final = frozenset({"required", "type", "enum"})
_TABLES_OF_SETS: Final = frozenset({"dependentRequired", "dependencies"})


def canonical(definition: ToolDefinition) -> dict[str, Any]:
    wire = {key: _value(value) for key, value in definition.to_wire().items()}
    for key in ("inputSchema", "outputSchema"):
        if key in wire:
            wire[key] = _schema(wire[key])
    return wire


def digest_of(canonical_value: Any) -> str:
    """SHA-256 over a canonical value, as `sha256:` and hexadecimal digits."""
    return (
        f"sha256:{hashlib.sha256(plain_json(canonical_value).encode('utf-8', 'surrogatepass')).hexdigest()}"
    )


def plain_json(value: Any) -> str:
    """JSON with sorted keys and without spaces; equal for equal canonical values, and only for those."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _value(value: Any) -> Any:
    match value:
        case float():
            return int(value) if value.is_integer() else value
        case Mapping():
            table = cast("Mapping[str, Any]", value)
            return {str(key): _value(item) for key, item in table.items()}
        case list() | tuple():
            return [_value(item) for item in cast("Iterable[Any]", value)]
        case _:
            return value


def _schema(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    table = cast("dict[str, Any]", value)
    return {key: _member(key, item) for key, item in table.items()}


def _member(key: str, value: Any) -> Any:
    if key in _SETS and isinstance(value, list):
        return _sorted(cast("list[Any]", value))
    if isinstance(value, dict) and key in (TABLES_OF_SCHEMAS | _TABLES_OF_SETS):
        table = cast("dict[str, Any]", value)
        return {name: _sorted_names(key, item) for name, item in table.items()}
    if isinstance(value, list) and key in LISTS_OF_SCHEMAS:
        return [_schema(item) for item in cast("list[Any]", value)]
    if key in SCHEMAS:
        return _schema(value)
    return cast("Any", value)


def _sorted_names(key: str, value: Any) -> Any:
    if key in _TABLES_OF_SETS and isinstance(value, list):
        return _sorted(cast("list[Any]", value))
    return _schema(value)


def _sorted(values: list[Any]) -> list[Any]:
    return sorted(values, key=plain_json)


_MAX_ALIGNED: Final = 500
"""The number of lines that are compared line by line; longer texts are shown whole, old and new."""

_MAX_SHOWN: Final = 5
_LONGEST: Final = 160  # characters of a value in `in_one_line`

_READ_BY_MODELS: Final = ("title", "description", "annotations", "outputSchema")
"""The texts that a model reads and that do not restrict its calls."""

_PROPOSED: Final = tuple(f".{key}" for key in VALUES)
_TYPES: Final = ("null", "boolean", "object", "array", "number", "integer", "string")
_NARROWING: Final = tuple(
    (
        "type enum required additionalProperties minimum maximum exclusiveMinimum exclusiveMaximum minLength "
        "maxLength minItems maxItems uniqueItems multipleOf"
    ).split()
)
"""Keywords that add no words to a schema."""


ABSENT: Final = object()  # the value of a missing member; `null` is a value


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two canonical definitions differ."""

    path: str  # the keys that lead to it, joined by dots, as `visible` writes them
    before: Any  # the accepted value, or `ABSENT`
    after: Any  # the new value, or `ABSENT`

    def lines(self) -> Iterator[str]:
        """The difference as `-` and `+` lines, with nothing hidden and nothing left out."""
        before, after = _lines(self.before), _lines(self.after)
        if _look_alike(before, after):
            before, after = ([ascii(line)[1:-1] for line in side] for side in (before, after))
        if len(before) + len(after) > _MAX_ALIGNED:
            yield from (f"- {line}" for line in before)
            yield from (f"+ {line}" for line in after)
            return
        for line in difflib.ndiff(before, after):
            if line[0] in "-+":
                yield line.rstrip("\n")

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["path"], data.get("before", ABSENT), data.get("after", ABSENT))

    def to_json(self) -> dict[str, Any]:
        sides = {"before": self.before, "after": self.after}
        return {"path": self.path, **{key: side for key, side in sides.items() if side is not ABSENT}}


def compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    return [*_differences("", old, new)]


def in_one_line(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    found = compared(old, new)
    shown = [f"{each.path}: {_brief(each.before)} → {_brief(each.after)}" for each in found[:_MAX_SHOWN]]
    return "; ".join(shown) + (f" and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else "")


def _brief(value: Any) -> str:
    text = "absent" if value is ABSENT else visible(plain_json(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def has_new_text(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """True if a model would read text that it did not read before."""
    # Of the arguments' schema only additions and rewritten texts count, names and values of `enum` included:
    # a removal adds no words to a model's context.
    if any(plain_json(old.get(key)) != plain_json(new.get(key)) for key in _READ_BY_MODELS):
        return True
    before, after = old.get("inputSchema"), new.get("inputSchema")
    if not _texts_by_path(after).items() <= _texts_by_path(before).items():
        return True
    return not set(texts_in(after)) <= {*texts_in(before), *_TYPES, *_NARROWING}


def _differences(path: str, old: Any, new: Any) -> Iterator[Difference]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        before, after = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", new)
        for key in sorted(before.keys() | after.keys()):
            step = f"{path}.{visible(key)}" if path else visible(key)
            yield from _differences(step, before.get(key, ABSENT), after.get(key, ABSENT))
    elif _is_aligned(old, new):
        for place, (before, after) in enumerate(
            zip(cast("list[Any]", old), cast("list[Any]", new), strict=True)
        ):
            yield from _differences(f"{path}[{place}]", before, after)
    elif old is ABSENT or new is ABSENT or plain_json(old) != plain_json(new):
        yield Difference(path, old, new)


def _is_aligned(old: Any, new: Any) -> bool:
    """True if two lists hold objects; lists of plain values are shown whole."""
    if not isinstance(old, list) or not isinstance(new, list):
        return False
    before, after = cast("list[Any]", old), cast("list[Any]", new)
    return len(before) == len(after) and any(isinstance(item, dict) for item in before)


def _texts_by_path(schema: Any) -> dict[str, str]:
    read = (part for part in parts(schema) if part.kind == "wording" or part.path.endswith(_PROPOSED))
    return {part.path: plain_json(part.value) for part in read if part.kind != "name"}


def _lines(value: Any) -> list[str]:
    if value is ABSENT:
        return []
    text = value if isinstance(value, str) else plain_json(value)
    return [visible(line) for line in text.split("\n")]


def _look_alike(before: list[str], after: list[str]) -> bool:
    """True if a reader could mistake two texts for each other: equal but for Unicode."""
    one, other = ("\n".join(side) for side in (before, after))
    if unicodedata.normalize("NFKC", one) == unicodedata.normalize("NFKC", other):
        return True
    if len(one) != len(other):
        return False
    changed = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
    return all(not a.isascii() or not b.isascii() for a, b in changed)


VERSION: Final = 1
MAX_SIZE: Final = 256 * 1024 * 1024  # the largest size of a lock file in bytes
TIMEOUT: Final = 10.0  # seconds that a writer waits for other writers

_PAUSE: Final = 0.02
_MAGIC: Final = "mcpToolsetLock"
_MEND: Final = "restore it from version control, or remove it and run `mcp-toolset pin` to pin anew"
_log: Final = logging.getLogger("mcp_toolset.pins")

Pinned: TypeAlias = Mapping[str, dict[str, Any]]
"""The canonical definitions of one server's tools, by their own names."""

Servers: TypeAlias = Mapping[str, Pinned]  # the pins of every server in the file, by the server's name there

_Signature: TypeAlias = tuple[int, int, int, int]


def lock_beside(path: Path) -> Path:
    """The path of the lock file of a configuration file: `mcp.json` has `mcp.lock.json`."""
    return path.with_suffix(".lock.json")


making_pins: Final[ContextVar[bool]] = ContextVar("making_pins", default=False)
"""True while `mcp-toolset pin` loads a program, whose lock files need not exist yet."""


class LockFile:
    """The pins in one file, read again whenever the file has changed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the file, if it exists; `ConfigError` if `mcp-toolset` did not write it."""
        self.path = Path(path)
        self._turn = threading.Lock()
        self._pause = threading.Event()
        self._signature: _Signature | None = None
        self._servers: Servers = {}
        self._complained: object = None
        self.exists = False
        self.reload()

    def entry(self, server: str) -> LockEntry:
        return LockEntry(self, server)

    def servers(self) -> Servers:
        return self._servers

    def reload(self) -> None:
        with self._turn:
            signature = self._signed()
            if signature == self._signature and self.exists:
                return
            text = self._text()
            self.exists = text is not None
            if text is not None:
                self._servers = _parsed(text, str(self.path))
            self._signature = signature

    def refreshed(self, server: str) -> Pinned | None:
        """The pins of a server as the file has them now; `None` if the server is not pinned."""
        # If the file was broken or removed meanwhile, the last pins stay.
        try:
            self.reload()
        except ConfigError as fault:
            if self._complained != str(fault):
                self._complained = str(fault)
                _log.error("%s; the pins that were read before stay", fault)
        return self._servers.get(server)

    def update(self, change: Callable[[Servers], Servers]) -> None:
        """Replace the pins by the result of `change` for the pins that are in the file now."""
        # One process writes at a time; what another process has written meanwhile is kept.
        with self._locked():
            self.reload()
            servers = change(self._servers)
            if self.exists and servers == self._servers:
                return
            self._replace(_written(servers))
            self.reload()

    def _signed(self) -> _Signature | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error) from None
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{self.path}: not a file; name another one as the lock")
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _text(self) -> str | None:
        try:
            opening = opened(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error) from None
        with opening as file:
            data = file.read(MAX_SIZE + 1)
        if len(data) > MAX_SIZE:
            raise ConfigError(f"{self.path}: more than {MAX_SIZE} bytes, which no lock file has; {_MEND}")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ConfigError(f"{self.path}: not UTF-8 text; {_MEND}") from None

    def _unreadable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self.path}: cannot be read ({error.strerror}); check the path and its permissions"
        )

    def _unwritable(self, error: OSError | RuntimeError) -> ConfigError:
        cause = error.strerror if isinstance(error, OSError) else "a loop of links"
        return ConfigError(
            f"{self.path}: cannot be written ({cause}); check the folder, or name another file with --lock"
        )

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Lock the folder against other writers; no lock file is left in it, not even after a crash."""
        # Where folders cannot be locked (Windows), a lock file next to it is used, which stays.
        if os.name != "posix":
            with self._locked_beside():
                yield
            return
        try:
            descriptor = os.open(self.path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
        except (OSError, RuntimeError) as error:
            raise self._unwritable(error) from None
        try:
            self._wait_for(descriptor)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _locked_beside(self) -> Generator[None]:
        target = self.path.resolve()
        try:
            lock = locked(target.with_name(f".{target.name}.lock"), TIMEOUT, mode=0o644)
        except TimeoutError:
            raise ConfigError(f"{self.path}: another process is writing it; try again") from None
        except OSError as error:
            raise self._unwritable(error) from None
        with lock:
            yield

    def _wait_for(self, descriptor: int) -> None:
        import fcntl

        until = time.monotonic() + TIMEOUT
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ConfigError(f"{self.path}: another process is writing it; try again") from None
            except OSError as error:
                raise self._unwritable(error) from None
            # The wait is in a worker thread, never in an event loop.
            self._pause.wait(_PAUSE)

    def _replace(self, text: str) -> None:
        try:
            target = self.path.resolve()
            mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
            replace_file(target, text.encode(), 0o666 if mode is None else mode, exact=mode is not None)
        except (OSError, RuntimeError) as error:
            raise self._unwritable(error) from None


@dataclass(frozen=True, slots=True)
class LockEntry:
    """One server's part of a lock file."""

    file: LockFile
    server: str

    def refreshed(self) -> Pinned | None:
        return self.file.refreshed(self.server)

    @property
    def is_pinned(self) -> bool:
        return self.server in self.file.servers()


def _written(servers: Servers) -> str:
    """The text of a file: sorted, a line for each value, with no character that a reader cannot see."""
    table = {
        server: {name: {"digest": digest_of(tool), "definition": tool} for name, tool in tools.items()}
        for server, tools in servers.items()
    }
    text = json.dumps({_MAGIC: VERSION, "servers": table}, indent=2, sort_keys=True, ensure_ascii=False)
    return plain_to_see(text) + "\n"


def _parsed(text: str, source: str) -> Servers:
    try:
        found: Any = json.loads(text, object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as fault:
        raise ConfigError(f"{source}: not a lock file that can be read ({fault}); {_MEND}") from None
    if not isinstance(found, dict) or _MAGIC not in found:
        raise ConfigError(f"{source}: not a lock file of mcp-toolset; name another file as the lock")
    table = cast("dict[str, Any]", found)
    if table[_MAGIC] != VERSION:
        raise ConfigError(
            f"{source}: a lock file of version {table[_MAGIC]!r}; update mcp-toolset, which reads {VERSION}"
        )
    return {
        server: {name: _tool(server, name, entry, source) for name, entry in _mapping(tools, source).items()}
        for server, tools in _mapping(table.get("servers"), source).items()
    }


def _tool(server: str, name: str, value: Any, source: str) -> dict[str, Any]:
    entry = _mapping(value, source)
    definition = _mapping(entry.get("definition"), source)
    place = f"{source}: {visible(server)}/{visible(name)}"
    if definition.get("name") != name or digest_of(definition) != entry.get("digest"):
        raise ConfigError(f"{place}: the definition does not fit its digest; {_MEND}")
    try:
        ToolDefinition.from_wire(definition)
    except DefinitionError as fault:
        raise ConfigError(f"{place}: no definition of a tool ({fault}); {_MEND}") from None
    return definition


def _mapping(value: Any, source: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{source}: a part of the lock file is not an object; {_MEND}")
    return cast("dict[str, Any]", value)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return table
