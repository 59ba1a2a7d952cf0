"""Settings of skills: the folder that they are served from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final, Self

from mcp_toolset._records import dataclass
from mcp_toolset.config.extensions import Settings
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.tables import PATH, Meaning, key


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsSettings(Settings):
    """The folders of a server's own skills."""

    says: ClassVar = Meaning(
        "Serves the [skills](skills.md) of a folder: its path, or an object. Skills of mounted servers are "
        "carried in any case, unless it is `false`.",
        "skills",
    )
    short: ClassVar = "folder"

    folder: Path | None = key(
        PATH,
        "the path of a folder, as a string",
        meaning="The folder; each folder in it with a `SKILL.md` is a skill.",
        example="skills",
    )

    def checked(self, place: Place, servers: Mapping[str, str]) -> Self:
        if self.folder is not None and not self.folder.is_dir():
            raise place.error(f"there is no folder {self.folder}", "make it, or correct the path")
        return self


SETTINGS: Final = SkillsSettings
