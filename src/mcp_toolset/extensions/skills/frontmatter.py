"""The frontmatter of a `SKILL.md` as JSON, and the rules for skills (agentskills.io, SEP-2640)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

MAX_FILES: Final = 512  # files of one skill, `SKILL.md` included
MAX_BYTES: Final = 16 * 1024 * 1024  # bytes of all files of one skill
SCHEME: Final = "skill"
SKILL_FILE: Final = "SKILL.md"

_MAX_FRONTMATTER: Final = 64 * 1024  # characters
_MAX_VALUES: Final = 10_000  # values that a frontmatter may stand for, with what its aliases repeat
_BLOCK: Final = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_NAME: Final = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


def frontmatter_of(text: str) -> dict[str, Any]:
    """The frontmatter of a `SKILL.md`; a date is the text that stands there.

    Raises:
        ValueError: there is none, or it has no form in JSON.
    """
    match = _BLOCK.match(text)
    if match is None:
        raise ValueError(
            "SKILL.md does not begin with frontmatter: write name and description between two ---"
        )
    if len(match[1]) > _MAX_FRONTMATTER:
        raise ValueError(f"the frontmatter is longer than {_MAX_FRONTMATTER:,} characters")
    # Servers that have no folder of skills never load this.
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import SafeConstructor
    from ruamel.yaml.error import YAMLError

    class Constructor(SafeConstructor):
        """One that leaves dates as they stand."""

    known: Any = Constructor
    known.add_constructor(_TIMESTAMP, known.construct_yaml_str)
    yaml: Any = YAML(typ="safe", pure=True)
    yaml.Constructor = Constructor
    try:
        value: Any = yaml.load(match[1])
    except (YAMLError, ValueError, RecursionError) as fault:
        problem = str(getattr(fault, "problem", None) or fault).partition("\n")[0]
        raise ValueError(f"the frontmatter is no YAML: {problem}") from None
    if not isinstance(value, dict):
        raise ValueError("the frontmatter is no mapping: write `name: …` and `description: …`")
    return cast("dict[str, Any]", _Json().of(value))


class _Json:
    """Turns YAML into JSON, and refuses aliases that grow without end."""

    def __init__(self) -> None:
        self._seen = 0

    def of(self, value: Any, depth: int = 0) -> Any:
        self._seen += 1
        if self._seen > _MAX_VALUES or depth > 32:
            raise ValueError(f"the frontmatter has more than {_MAX_VALUES:,} values, or more than 32 levels")
        if isinstance(value, dict):
            table = cast("dict[Any, Any]", value)
            return {self._key(key): self.of(one, depth + 1) for key, one in table.items()}
        if isinstance(value, list):
            return [self.of(one, depth + 1) for one in cast("list[Any]", value)]
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"the frontmatter has the number {value}, which JSON has not")
        if value is None or isinstance(value, str | int | float):
            return value
        raise ValueError(
            f"the frontmatter has a value of the kind {type(value).__name__}, which JSON has not"
        )

    def _key(self, key: Any) -> str:
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise ValueError(f"the frontmatter has the key {key!r}, which is no text")
        return str(key)


def fault_of(frontmatter: Mapping[str, Any], folder: str) -> str:
    """Why a skill in a folder of a name breaks the rules for skills; empty if it does not."""
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        return f"its name is {name!r}: 1 to 64 lower-case letters, digits and single hyphens are allowed"
    if name != folder:
        return f"its name is {name!r} and its folder {folder!r}: rename one of them"
    if not isinstance(description, str) or not description.strip():
        return "it has no description: say in the frontmatter when it is used"
    return ""


def files_fault(sizes: Sequence[int]) -> str:
    """Why a skill has too many or too large files; empty if it has not."""
    if len(sizes) > MAX_FILES:
        return f"it has {len(sizes)} files: {MAX_FILES} are allowed"
    if (total := sum(sizes)) > MAX_BYTES:
        return f"its files have {total:,} bytes: {MAX_BYTES:,} are allowed"
    return ""
