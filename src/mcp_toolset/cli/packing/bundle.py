"""`Bundle`: the files of an MCP Bundle, its manifest, its questions, and the `.mcpb` file.

The manifest is of version 0.3: https://github.com/modelcontextprotocol/mcpb/blob/main/MANIFEST.md. The server
is started by uv, which installs the packages on the user's machine, or by Python with packages in the bundle.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

import click

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.atomic_file import replace_file
from mcp_toolset.errors import TargetError

Kind: TypeAlias = Literal["secret", "text", "folder", "file"]

_TYPES: Final = {"secret": "string", "text": "string", "folder": "directory", "file": "file"}
_WRITTEN: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)(?::(?P<kind>[a-z]+))?(?:=(?P<default>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Question:
    """A value that the user is asked for, and has to give if there is no default."""

    variable: str
    kind: Kind = "secret"
    default: str | None = None
    about: str = ""

    def option(self) -> dict[str, Any]:
        said: dict[str, Any] = {
            "type": _TYPES[self.kind],
            "title": self.variable.replace("_", " ").strip().capitalize() or self.variable,
            "description": self.about or f"The variable {self.variable} of the server",
            "required": self.default is None,
        }
        if self.kind == "secret":
            said["sensitive"] = True
        return said if self.default is None else {**said, "default": self.default}


def parse_questions(written: Iterable[str]) -> dict[str, Question]:
    found = (_question(text) for text in written)
    return {question.variable: question for question in found}


def _question(text: str) -> Question:
    parts = _WRITTEN.fullmatch(text)
    kind = (parts["kind"] or "secret") if parts else ""
    # The text is not repeated: it may be a secret that was written after the sign of equality.
    if parts is None or kind not in _TYPES:
        kinds = ", ".join(_TYPES)
        name = f" {parts['name']}" if parts else ""
        raise click.UsageError(f"--ask{name}: cannot be read; write NAME or NAME:KIND with one of {kinds}")
    if kind == "secret" and parts["default"] is not None:
        raise click.UsageError(
            f"--ask {parts['name']}: the default of a secret would be in the bundle; leave it out, or write "
            f"{parts['name']}:text=… if it is no secret"
        )
    return Question(parts["name"], cast("Kind", kind), parts["default"])


_FOLDER: Final = "server"
_LIBRARIES: Final = "server/lib"
_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in a bundle, so that equal contents are equal bundles."""

_MAIN: Final = '''"""Serve what is in the folder `server` of this bundle over stdio."""

import sys
from pathlib import Path

from mcp_toolset.cli.main import main

FOLDER = Path(__file__).resolve().parent / "server"

if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER))
    sys.exit(main(["serve", {target}]))
'''
_PROJECT: Final = """[project]
name = {name}
version = {version}
requires-python = ">=3.11"
dependencies = {dependencies}

[tool.uv]
package = false
"""


@dataclass(frozen=True, slots=True)
class Bundle:
    """What goes into a bundle."""

    about: Mapping[str, str]
    target: str  # what is served: a file in the folder `server`, or `module:attribute`
    files: Mapping[str, bytes] = field(repr=False)
    questions: Sequence[Question]
    requirements: Sequence[str]
    tools: Sequence[tuple[str, str]] = ()
    more_tools: bool = False  # whether there are more, which are known when it runs
    packages: bool = False

    def manifest(self) -> dict[str, Any]:
        said: dict[str, Any] = {
            "manifest_version": "0.3",
            **self.about,
            "author": {"name": self.about["author"]},
            "server": {"type": "python", "entry_point": "main.py", "mcp_config": self._start()},
            "tools": [{"name": name, "description": text} for name, text in self.tools],
            "tools_generated": self.more_tools,
            "compatibility": self._compatibility(),
            "user_config": {one.variable.lower(): one.option() for one in self.questions},
        }
        return {key: value for key, value in said.items() if value or key == "tools_generated"}

    def write(self, path: Path) -> int:
        if path.is_file() and path.stat().st_size and not zipfile.is_zipfile(path):
            raise TargetError(f"{path}: is no bundle, and would be lost; choose another -o FILE")
        data = self._zipped()
        try:
            replace_file(path, data, 0o666)
        except OSError as error:
            raise TargetError(
                f"{path}: cannot be written ({error.strerror}); choose another -o FILE"
            ) from None
        return len(data)

    def _start(self) -> dict[str, Any]:
        env = {one.variable: f"${{user_config.{one.variable.lower()}}}" for one in self.questions}
        if not self.packages:
            return {"command": "uv", "args": ["run", "--directory", "${__dirname}", "main.py"], "env": env}
        python = "python" if sys.platform == "win32" else "python3"
        env["PYTHONPATH"] = f"${{__dirname}}/{_LIBRARIES}"
        return {"command": python, "args": ["${__dirname}/main.py"], "env": env}

    def _compatibility(self) -> dict[str, Any]:
        if not self.packages:
            return {"platforms": ["darwin", "linux", "win32"], "runtimes": {"python": ">=3.11"}}
        minor = sys.version_info.minor
        return {"platforms": [sys.platform], "runtimes": {"python": f">=3.{minor},<3.{minor + 1}"}}

    def _zipped(self) -> bytes:
        is_file = self.target.partition(":")[0] in self.files
        served = f"str(FOLDER / {json.dumps(self.target)})" if is_file else json.dumps(self.target)
        texts = {
            "manifest.json": json.dumps(self.manifest(), indent=2, ensure_ascii=False) + "\n",
            "main.py": _MAIN.format(target=served),
            "pyproject.toml": _PROJECT.format(
                name=json.dumps(self.about["name"]),
                version=json.dumps(self.about["version"]),
                dependencies=json.dumps(list(self.requirements)),
            ),
        }
        if self.packages:
            del texts["pyproject.toml"]
        data = {name: text.encode() for name, text in texts.items()}
        data |= {f"{_FOLDER}/{name}": content for name, content in sorted(self.files.items())}
        if self.packages:
            data |= _installed(self.requirements)
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in data.items():
                entry = zipfile.ZipInfo(name, _TIME)
                entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
        return made.getvalue()


def _installed(requirements: Sequence[str]) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "pip", "install", "--quiet", "--no-compile", "--target", folder, *requirements]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
        if done.returncode:
            why = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no message")
            raise TargetError(f"--packages: pip cannot install {', '.join(requirements)} ({why.strip()})")
        root = Path(folder)
        found = (
            path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts
        )
        return {f"{_LIBRARIES}/{path.relative_to(root).as_posix()}": path.read_bytes() for path in found}
