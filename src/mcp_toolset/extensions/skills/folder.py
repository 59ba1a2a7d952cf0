"""`SkillFolder`: the skills of one folder: their files with digests, and what is read there.

Each folder below it with a `SKILL.md` is a skill. What begins with a dot, `__pycache__` and links belong to
no skill. All functions here block: they read files.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import mimetypes
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from mcp_toolset._records import dataclass
from mcp_toolset.extensions.skills.frontmatter import (
    MAX_BYTES,
    MAX_FILES,
    SCHEME,
    SKILL_FILE,
    fault_of,
    files_fault,
    frontmatter_of,
)
from mcp_toolset.tools.hidden_text import in_log

DIRECTORY: Final = "inode/directory"
MAX_FOLDERS: Final = 10_000  # folders that are looked into

_MARKDOWN: Final = "text/markdown"
_SAFE: Final = "-._~!$&'()*+,;=:@"
_log = logging.getLogger("mcp_toolset.server")


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A file of a skill."""

    uri: str
    path: Path
    size: int  # bytes
    digest: str  # `sha256:…` of the bytes

    def to_wire(self) -> dict[str, Any]:
        return {"uri": self.uri, "digest": self.digest, "size": self.size}


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill of a folder."""

    uri: str  # of its `SKILL.md`
    frontmatter: Mapping[str, Any]
    files: tuple[SkillFile, ...]  # all of them, by address

    @property
    def name(self) -> str:
        return str(self.frontmatter["name"])

    @property
    def description(self) -> str:
        return str(self.frontmatter["description"])

    def to_wire(self) -> dict[str, Any]:
        """The entry of `skills/list`."""
        files = [file.to_wire() for file in self.files]
        return {"uri": self.uri, "frontmatter": dict(self.frontmatter), "resources": files}

    def resource(self) -> dict[str, Any]:
        """The entry of `resources/list`, for its `SKILL.md`."""
        sizes = (file.size for file in self.files if file.uri == self.uri)
        return {
            "uri": self.uri,
            "name": self.name,
            "description": self.description,
            "mimeType": _MARKDOWN,
            "size": next(sizes, 0),
        }


class SkillFolder:
    """The skills in a folder, as they are when asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: dict[Path, tuple[tuple[int, int, int], str]] = {}
        self._frontmatters: dict[bytes, Mapping[str, Any]] = {}
        self._told: set[str] = set()
        self._skills: tuple[Skill, ...] = ()

    @property
    def known(self) -> Sequence[Skill]:
        """The skills as they were last, without a look at the folder."""
        return self._skills

    def skills(self) -> Sequence[Skill]:
        """The skills by address; what breaks the rules is left out, and the log says why."""
        readable: list[Skill] = []
        for place in self._places():
            skill = self._skill(place)
            if isinstance(skill, Skill):
                readable.append(skill)
            elif (warning := f"the skill {in_log(str(place))} is left out: {skill}") not in self._told:
                self._told.add(warning)
                _log.warning("%s", warning)
        self._skills = tuple(sorted(readable, key=lambda one: one.uri))
        return self._skills

    def read(self, uri: str) -> dict[str, Any] | None:
        """The contents at an address; `None` if no skill has a file there."""
        known = {one.uri: one for skill in self._skills for one in skill.files}
        if uri not in known:
            known = {one.uri: one for skill in self.skills() for one in skill.files}
        if (file := known.get(uri)) is None or (content := _bytes_of(file.path)) is None:
            return None
        kind = _kind_of(file.path)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            blob = base64.b64encode(content).decode()
            return {"uri": uri, "mimeType": kind or "application/octet-stream", "blob": blob}
        return {"uri": uri, "mimeType": kind or "text/plain", "text": text}

    def children(self, uri: str) -> list[dict[str, Any]] | None:
        """The direct children of a directory; `None` if no skill has one there."""
        start, found = f"{uri}/", dict[str, dict[str, Any]]()
        for skill in self.skills():
            for file in skill.files:
                if not file.uri.startswith(start):
                    continue
                name, below, _ = file.uri.removeprefix(start).partition("/")
                child, own = f"{start}{name}", file.path
                if below:
                    found[child] = {"uri": child, "name": name, "mimeType": DIRECTORY}
                elif own.name == SKILL_FILE and file.uri == skill.uri:
                    found[child] = skill.resource()
                else:
                    kind = _kind_of(own) or "application/octet-stream"
                    found.setdefault(
                        child, {"uri": child, "name": own.name, "mimeType": kind, "size": file.size}
                    )
        return [found[one] for one in sorted(found)] or None

    def _places(self) -> Iterator[Path]:
        """The folders with a `SKILL.md`."""
        for count, (place, folders, files) in enumerate(os.walk(self._folder)):
            folders[:] = sorted(folder for folder in folders if _counts(folder))
            if SKILL_FILE in files:
                yield Path(place)
            if count >= MAX_FOLDERS:
                _log.warning(
                    "%s has more than %s folders: not all are looked into", self._folder, MAX_FOLDERS
                )
                return

    def _skill(self, place: Path) -> Skill | str:
        """The skill in a folder, or why it is none."""
        try:
            content = _bytes_of(place / SKILL_FILE)
            if content is None:
                return f"its {SKILL_FILE} is no file that can be read"
            frontmatter = self._frontmatter(content)
            if fault := fault_of(frontmatter, place.name):
                return fault
            files = list(self._files(place))
        except UnicodeDecodeError:
            return f"its {SKILL_FILE} is not UTF-8"
        except (OSError, ValueError) as fault:
            return str(fault)
        if fault := files_fault([file.size for file in files]):
            return fault
        return Skill(
            self._uri(place / SKILL_FILE), frontmatter, tuple(sorted(files, key=lambda one: one.uri))
        )

    def _frontmatter(self, content: bytes) -> Mapping[str, Any]:
        """The frontmatter of a `SKILL.md`, which is parsed once for as long as the file stays the same."""
        mark = hashlib.sha256(content).digest()
        known = self._frontmatters.get(mark)
        if known is None:
            if len(self._frontmatters) >= MAX_FOLDERS:
                self._frontmatters.clear()
            known = self._frontmatters[mark] = frontmatter_of(content.decode())
        return known

    def _files(self, place: Path) -> Iterator[SkillFile]:
        count = 0
        for folder, folders, files in os.walk(place):
            folders[:] = sorted(one for one in folders if _counts(one))
            for name in sorted(filter(_counts, files)):
                path = Path(folder, name)
                state = path.lstat()
                if not stat.S_ISREG(state.st_mode):
                    continue
                count += 1
                if count > MAX_FILES or state.st_size > MAX_BYTES:
                    # More are not read, and the skill is refused.
                    yield SkillFile("", path, state.st_size, "")
                    continue
                yield SkillFile(self._uri(path), path, state.st_size, self._digest(path, state))

    def _digest(self, path: Path, state: os.stat_result) -> str:
        mark = (state.st_mtime_ns, state.st_size, state.st_ino)
        known = self._digests.get(path)
        if known is None or known[0] != mark:
            digest = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
            known = self._digests[path] = (mark, digest)
        return known[1]

    def _uri(self, path: Path) -> str:
        # A folder that is a skill itself has its own name in the address.
        base = self._folder.parent if (self._folder / SKILL_FILE).exists() else self._folder
        parts = path.relative_to(base).parts
        return f"{SCHEME}://{'/'.join(quote(one, safe=_SAFE) for one in parts)}"


def _counts(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__"


def _kind_of(path: Path) -> str | None:
    return _MARKDOWN if path.suffix == ".md" else mimetypes.guess_type(path.name)[0]


def _bytes_of(path: Path) -> bytes | None:
    """The bytes of a regular file that is no link and not too large."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(state.st_mode) and state.st_size <= MAX_BYTES else None
