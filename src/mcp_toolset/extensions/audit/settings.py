"""Settings of the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final, Self

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import COUNT, PATH, TEXT, Meaning, Schema, key

_KEY: Final[Schema] = {**TEXT, "min_length": 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings(Settings):
    """The audit log that a file asks for; `AuditLog` says more of each key."""

    says: ClassVar = Meaning(
        "The file of the [audit log](audit.md), or an object with the keys below.", "audit.jsonl"
    )
    short: ClassVar = "path"
    protects: ClassVar = True
    tells: ClassVar = ("max_bytes", "max_files")
    never_null: ClassVar = ("key",)

    path: Path = key(
        PATH, "the path of a file, as a string", required=True, meaning="The file.", example="audit.jsonl"
    )
    max_bytes: int = key(
        COUNT,
        "a positive number of bytes",
        100_000_000,
        meaning="The size at which the log begins a new file.",
        example=100_000_000,
    )
    max_files: int = key(
        COUNT,
        "how many full files are kept, at least 1",
        10,
        meaning="How many full files are kept.",
        example=10,
    )
    key: str | None = key(
        _KEY,
        "at least 16 characters, such as `${AUDIT_KEY}`",
        meaning="The key for the digests that chain the lines; at least 16 characters.",
        example="${AUDIT_KEY}",
        published={"type": "string"},
        secret=True,
    )

    def checked(self, place: Place, servers: Mapping[str, str]) -> Self:
        if self.path.is_dir():
            raise place.error("is a folder, so no line could be written", "name a file in it")
        if self.path.exists() and not self.path.is_file():
            raise place.error("is a device, which keeps no line", "name a file")
        if self.key is not None and not self.key.strip():
            raise place.at("key").error("is empty, so the log would not be keyed", "give it a value")
        return self


SETTINGS: Final = AuditSettings
