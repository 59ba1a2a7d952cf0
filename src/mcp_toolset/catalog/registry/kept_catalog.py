"""`KeptCatalog`: the last lists of a mounted server as plain data, to be served at the next start.

As JSON it is an object with `format`, `version`, `server`, `instructions`, `capabilities`, `tools` and
`offers`. It is a cache: if it cannot be read it is ignored, and the next listing replaces it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core import core_schema as core

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.atomic_file import locked, opened, replace_file, require_private
from mcp_toolset.errors import InvalidStateError

FORMAT: Final = "mcp-toolset/catalog"
VERSION: Final = 1

Wire = Mapping[str, Any]


def _nothing() -> Wire:
    return {}


@dataclass(frozen=True, slots=True)
class KeptCatalog:
    """One server's lists and its description of itself, without the secrets of its mount."""

    tools: Sequence[Wire] = ()  # the usable tools in wire form, before pins and policies apply
    server: Wire = field(default_factory=_nothing)  # its description of itself (`serverInfo`)
    instructions: str = ""  # its text for the model
    capabilities: Wire = field(default_factory=_nothing)  # its declared capabilities
    offers: Mapping[str, Sequence[Wire]] = field(default_factory=dict[str, Sequence[Wire]])

    def to_json(self) -> str:
        head = {"format": FORMAT, "version": VERSION, "server": self.server}
        rest = {
            "instructions": self.instructions,
            "capabilities": self.capabilities,
            "tools": self.tools,
            "offers": self.offers,
        }
        return json.dumps({**head, **rest}, ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> KeptCatalog:
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidStateError("it is no JSON") from None
        try:
            read: dict[str, Any] = _DATA.validate_python(data)
        except ValidationError as fault:
            first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
            raise InvalidStateError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        if (read.pop("format"), read.pop("version")) != (FORMAT, VERSION):
            raise InvalidStateError(f"it is of the format {data['format']!r}, version {data['version']}")
        return cls(**read)


def _optional(schema: core.CoreSchema) -> core.TypedDictField:
    return core.typed_dict_field(schema, required=False)


_WIRE: Final = core.dict_schema(core.str_schema())
_WIRES: Final = core.list_schema(_WIRE)
# Of pydantic's core, as a model takes as long to import and build as a server takes to start.
_DATA: Final = SchemaValidator(
    core.typed_dict_schema(
        {
            "format": core.typed_dict_field(core.str_schema()),
            "version": core.typed_dict_field(core.int_schema()),
            "server": _optional(_WIRE),
            "instructions": _optional(core.str_schema()),
            "capabilities": _optional(_WIRE),
            "tools": _optional(_WIRES),
            "offers": _optional(core.dict_schema(core.str_schema(), _WIRES)),
        },
        extra_behavior="ignore",
        strict=True,
    )
)


MOST_BYTES: Final = 64 * 1024 * 1024  # of a file; a larger one is neither read nor written
MOST_FILES: Final = 1000  # the number of files in the folder; the oldest are removed first
LOCK_TIMEOUT: Final = 5.0  # seconds that a save waits for another process; after that it is skipped

_log = logging.getLogger("mcp_toolset.catalog")


class KeptFiles:
    """Reads and writes the files of one folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._warned: set[str] = set()

    def load(self, key: str) -> KeptCatalog | None:
        path = self._path(key)
        try:
            with opened(path) as file:
                _check(os.fstat(file.fileno()))
                return KeptCatalog.from_json(file.read())
        except FileNotFoundError:
            return None
        except InvalidStateError as fault:
            self._warn(key, f"{path}: what was kept of a server is ignored: {fault}")
        except OSError as fault:
            self._warn(key, f"{path}: what was kept of a server cannot be read: {fault.strerror}")
        return None

    def save(self, key: str, catalog: KeptCatalog) -> None:
        text = catalog.to_json().encode()
        if len(text) > MOST_BYTES:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(self.folder / ".lock", LOCK_TIMEOUT):
                replace_file(self._path(key), text, durable=False)
                self._prune()
        except TimeoutError:
            _log.debug("%s: another process holds the lock; nothing was kept this time", self.folder)
        except OSError as fault:
            self._warn(key, f"{self.folder}: the lists of servers cannot be kept: {fault.strerror}")

    def _prune(self) -> None:
        files = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in files[:-MOST_FILES]:
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _warn(self, key: str, message: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            _log.warning("%s", message)


def _check(status: os.stat_result) -> None:
    require_private(status)
    if status.st_size > MOST_BYTES:
        raise InvalidStateError(f"it has {status.st_size} bytes, more than {MOST_BYTES}")
