"""`pack_target`: what a bundle of a target consists of; a secret in it is an error."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

import click

from mcp_toolset import __version__
from mcp_toolset._index import homes
from mcp_toolset._records import dataclass
from mcp_toolset.cli.mount import MountOptions, mount, mount_config, without_fixed
from mcp_toolset.cli.target import ConfigFile, Module, ProgramFile, Target, default_name
from mcp_toolset.concurrency.atomic_file import replace_file
from mcp_toolset.config.entries import known_keys, server_keys, validated
from mcp_toolset.config.jsonc import Place, read_text
from mcp_toolset.config.tables import ServerEntry
from mcp_toolset.config.variables import PLAIN_VARIABLES, parse_env_file, replaced, without_references
from mcp_toolset.errors import ConfigError, TargetError
from mcp_toolset.upstream.secrets import Secrets, secret_arguments, secrets_of_url

_WORKSPACE: Final = "${workspaceFolder}"
_PREDEFINED: Final = frozenset(
    ("workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator", "/")
)
_SECRET_KEY: Final = re.compile(r"(?i)key|token|secret|passw|pwd|credential|cookie")
_WITH_SECRETS: Final = ("auth", "oauth")
_URLS: Final = ("url", "serverUrl", "httpUrl")
_LONGEST_SCHEME: Final = 8
"""Characters beside a reference, as of `Bearer ${TOKEN}`, from which on they may be a secret themselves."""


class PortableConfig:
    """The servers of a file, rewritten, with the `questions`, `files` and `secrets` that were in them."""

    def __init__(
        self,
        table: Mapping[str, Any],
        path: Path,
        folder: Path,
        asked: Mapping[str, Question],
        keep: Sequence[str],
    ) -> None:
        self.questions: dict[str, Question] = {}
        self.files: list[Path] = []
        self.secrets: list[str] = []
        self._asked, self._keep, self._folder = asked, frozenset(keep), folder
        self._given: dict[str, str] = {}
        inputs = cast("list[dict[str, Any]]", table.get("inputs") or [])
        self._inputs = {one["id"]: one for one in inputs}
        section = table.get("mcpServers") or table.get("servers") or table.get("mcp", {}).get("servers", {})
        place = Place(str(path)).at("mcpServers")
        self.servers = {
            name: self._server(name, entry, place.at(name))
            for name, entry in section.items()
            if entry.get("disabled") is not True and entry.get("enabled") is not False
        }
        if not self.servers:
            raise place.error("no server is enabled", "enable one with `mcp-toolset enable`")
        said: dict[str, Any] = table.get("toolset", {})
        self.section = {
            key: self._deep("toolset", key, value, key)
            for key, value in said.items()
            if key not in ("auth", "lock")
        }

    def _server(self, name: str, entry: dict[str, Any], place: Place) -> dict[str, Any]:
        server_keys(entry, place)
        validated(ServerEntry, entry, place)
        made: dict[str, Any] = {}
        env: dict[str, str | None] = dict(entry.get("env") or {})
        if file := entry.get("envFile"):
            env = {**_env_file(self._folder, file, place), **env}
        for key in (key for key in known_keys(ServerEntry) if key in entry):
            value = entry[key]
            match key:
                case "env" | "envFile":
                    pass
                case "headers":
                    made[key] = {header: self._given_as(name, header, text) for header, text in value.items()}
                case "args":
                    made[key] = self._arguments(name, value)
                case "cwd":
                    made[key] = self._path(name, "folder", value)
                case "command":
                    made[key] = _program(value, place)
                case _ if key in _URLS:
                    made[key] = self._address(name, value)
                case _:
                    made[key] = self._deep(name, key, value, key)
        if env:
            made["env"] = {key: self._given_as(name, key, text, own=True) for key, text in env.items()}
        return made

    def _deep(self, name: str, key: str, value: Any, within: str) -> Any:
        """Any other value; in the sections that have secrets, what is under the name of one is asked for."""
        if isinstance(value, dict):
            table = cast("dict[str, Any]", value)
            return {inner: self._deep(name, inner, each, within) for inner, each in table.items()}
        if isinstance(value, list):
            return [self._deep(name, key, each, within) for each in cast("list[Any]", value)]
        if not isinstance(value, str):
            return value
        is_secret = within in (*_WITH_SECRETS, *homes("key")) and _SECRET_KEY.search(key)
        return self._given_as(name, key, value) if is_secret else self._text(name, value)

    def _given_as(self, server: str, name: str, value: str | None, *, own: bool = False) -> str | None:
        """A value of `env` or `headers`, or under the name of a secret: what is written out is asked for."""
        if value is None or (len(without_references(value).strip()) <= _LONGEST_SCHEME and _refers(value)):
            return None if value is None else self._text(server, value)
        path = Path(value)
        if path.is_absolute() and path.exists():
            return self._path(server, name, value)
        if not Secrets.of([value]) or (name in PLAIN_VARIABLES and not path.is_absolute()):
            return value
        variable = name if own and name not in PLAIN_VARIABLES else f"{server}_{name}"
        return self._ask(variable, value, "secret", f"{name} of the server {server}")

    def _arguments(self, server: str, words: Sequence[str]) -> list[str]:
        made: list[str] = []
        secrets = sorted(
            {value for value in secret_arguments(words) if Secrets.of([value])}, key=len, reverse=True
        )
        flag = ""
        for word in words:
            assigned = re.match(r"-*([\w-]+)=", word)
            name = assigned[1] if assigned else flag.strip("-")
            for secret in secrets:
                if secret in word and not _refers(word):
                    about = f"{name or 'A secret'} of the server {server}"
                    word = word.replace(
                        secret, self._ask(f"{server}_{name or 'secret'}", secret, "secret", about)
                    )
            made.append(self._path(server, name or "folder", word))
            flag = word if word.startswith("-") and "=" not in word else ""
        return made

    def _address(self, server: str, url: str) -> str:
        if _refers(url):
            return self._text(server, url)
        if not Secrets.of(secrets_of_url(url)):
            return url
        return self._ask(f"{server}_url", url, "secret", f"The address of the server {server}")

    def _path(self, server: str, name: str, word: str) -> str:
        """A word that may be a path, also after `--option=`."""
        written_as = word
        if word.startswith(_WORKSPACE):
            word = f"{self._folder}{word.removeprefix(_WORKSPACE)}"
        if _refers(word):
            return self._text(server, written_as)
        before, sign, tail = word.rpartition("=") if word.startswith("-") else ("", "", word)
        path = self._folder / tail
        written = (
            tail in (".", "..") or tail.startswith(("./", "../", ".\\", "..\\")) or Path(tail).is_absolute()
        )
        is_here = path.exists() or (word == written_as and Path(tail).is_relative_to(Path.home()))
        if not tail or not is_here or not (written or path.is_file()):
            return written_as
        inside = path.resolve().is_relative_to(self._folder.resolve())
        if path.is_file() and inside:
            self.files.append(path.resolve())
            return (
                f"{before}{sign}{_WORKSPACE}/{path.resolve().relative_to(self._folder.resolve()).as_posix()}"
            )
        kind: Kind = "folder" if path.is_dir() else "file"
        asked = self._ask(f"{server}_{name}", tail, kind, f"A {kind} for the server {server}")
        return f"{before}{sign}{asked}"

    def _text(self, server: str, text: str) -> str:
        return replaced(text, lambda found: self._reference(server, found))

    def _reference(self, server: str, found: re.Match[str]) -> str:
        kind, name, default = found["kind"], found["name"], found["default"]
        about = f"For the server {server}" if server != "toolset" else ""
        if kept := found["secret"] or found["file"]:
            return self._ask(re.split(r"[/\\]", kept)[-1], None, "secret", about)
        if found["scheme"]:
            # Another machine looks it up otherwise, and must not do what a file of this one says.
            return self._ask(f"{server}_{found['scheme']}", None, "secret", about)
        if kind == "input":
            return self._input(name)
        if kind not in (None, "env") or name in _PREDEFINED | PLAIN_VARIABLES:
            return found[0]
        if default is not None and default.startswith((".", "~", "/")):
            home = default.startswith("~")
            return self._ask(
                name, None, "folder", about, default.replace("~", "${HOME}", 1) if home else None
            )
        return self._ask(name, None, "secret" if default is None else "text", about, default)

    def _input(self, name: str) -> str:
        said = self._inputs.get(name, {})
        default = None if said.get("password") else said.get("default")
        about = str(said.get("description") or "")
        return self._ask(f"MCP_INPUT_{name}", None, "secret" if default is None else "text", about, default)

    def _ask(self, name: str, value: str | None, kind: Kind, about: str, default: str | None = None) -> str:
        """The reference to a variable that the user is asked for, or the value if it is to be kept."""
        variable = first = re.sub(r"\W", "_", name).upper()
        if value is not None:
            number = 1
            while self._given.setdefault(variable, value) != value:
                number += 1
                variable = f"{first}_{number}"
            if variable in self._keep:
                return value
            if kind == "secret":
                self.secrets.append(value)
        self.questions[variable] = self._asked.get(variable) or Question(variable, kind, default, about)
        return f"${{{variable}}}"


def _program(command: str, place: Place) -> str:
    if "/" in command or "\\" in command:
        raise place.at("command").error(
            "names a program by a path of this machine",
            "write a program that the users have, such as uvx or npx, or the script that a package of "
            "--requires installs",
        )
    return command


def _env_file(folder: Path, file: str, place: Place) -> dict[str, str | None]:
    path = folder / file.replace(_WORKSPACE, str(folder))
    try:
        return {**parse_env_file(read_text(path, str(path)))}
    except (OSError, ConfigError):
        raise place.at("envFile").error(
            "cannot be read", "correct its path, or ask with --ask NAME"
        ) from None


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
    sys.exit(main(["serve", {arguments}]))
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
    """The content of a bundle."""

    about: Mapping[str, str]
    target: str  # what is served: a file in the folder `server`, or `module:attribute`
    files: Mapping[str, bytes] = field(repr=False)
    questions: Sequence[Question]
    requirements: Sequence[str]
    tools: Sequence[tuple[str, str]] = ()
    more_tools: bool = False  # whether there are more, which are known when it runs
    packages: bool = False
    options: Sequence[str] = ()  # of `serve`
    programs: Sequence[str] = ()  # those that it needs
    unasked: Sequence[str] = ()  # the variables of its code that the user is not asked for

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
            "main.py": _MAIN.format(arguments=", ".join((served, *map(json.dumps, self.options)))),
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


_OURS: Final = "mcp_toolset"
_READS: Final = re.compile(r"\b(?:environ\s*(?:\[|\.get\()|getenv\()\s*['\"](\w+)['\"]")


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of a program, and what its text names: modules from elsewhere, and environment variables."""

    files: tuple[Path, ...]
    foreign: frozenset[str]
    reads: frozenset[str]

    @classmethod
    def of(cls, program: Path, folder: Path) -> Sources:
        """Follow the imports of a program in its folder, those inside of functions too."""
        files: dict[Path, None] = {}
        foreign, reads, todo = set[str](), set[str](), [program]
        while todo:
            file = todo.pop(0)
            if file in files:
                continue
            files[file] = None
            text, names = _read(file, folder)
            reads.update(_READS.findall(text))
            for name in names:
                found = list(_found(folder, name))
                todo.extend(found)
                if not found and not (folder / name.split(".")[0]).is_dir():
                    foreign.add(name.split(".")[0])
        return cls(tuple(files), frozenset(foreign), frozenset(reads))

    def requirements(self) -> list[str]:
        """The installed distributions of the modules that it imports from elsewhere, with their versions."""
        owners = packages_distributions()
        names = self.foreign - sys.stdlib_module_names - {_OURS}
        found = {owner for name in names for owner in owners.get(name, ())}
        return sorted(f"{owner}=={version(owner)}" for owner in found)


def _read(file: Path, folder: Path) -> tuple[str, list[str]]:
    try:
        data = file.read_bytes()
        tree = ast.parse(data)
    except (OSError, SyntaxError, ValueError) as error:
        raise TargetError(
            f"{file}: cannot be read as Python ({error}); correct it, or leave it out"
        ) from None
    return data.decode("utf-8", "replace"), list(_imported(tree, file.parent.relative_to(folder).parts))


def _imported(tree: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    """The dotted names that are imported; each may be a module, or a name in one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = [*above, *((node.module or "").split(".") if node.module else ())]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def _found(folder: Path, name: str) -> Iterator[Path]:
    """The files that importing a dotted name loads from a folder: its packages and its module."""
    path = folder
    for part in name.split("."):
        module, path = path / f"{part}.py", path / part
        yield from (file for file in (path / "__init__.py", module) if file.is_file())
        if not path.is_dir():
            return


_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(?:[-+][\w.+-]+)?")
_PRIVATE: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY: Final = re.compile(rb"\b(?:gh[opsu]_\w{16,}|sk-[\w-]{20,}|xox[abp]-[\w-]{16,}|AKIA[0-9A-Z]{16}\b)")
"""Texts in the form of a key of a well-known service."""
_ADDRESS: Final = "https://host.example/"
"""An answer with which a configuration is tried: one that can be an address too."""

_SKIPPED: Final = frozenset(("__pycache__", "node_modules", "venv"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The options of `pack`; `serving` are those of `serve` in the bundle, which name `views`."""

    name: str | None = None
    version: str | None = None
    description: str | None = None
    author: str | None = None
    include: Sequence[Path] = ()
    requires: Sequence[str] = ()
    ask: Sequence[str] = ()
    keep: Sequence[str] = ()
    packages: bool = False
    views: Mapping[str, str] = field(default_factory=dict[str, str])
    serving: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Content:
    folder: Path
    target: str
    sources: Sources
    questions: Mapping[str, Question]
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    secrets: Sequence[str] = ()
    description: str = ""
    tools: Sequence[tuple[str, str]] = ()
    more_tools: bool = False
    programs: Sequence[str] = ()


def pack_target(target: Target, text: str, wishes: Wishes) -> Bundle:
    asked = parse_questions(wishes.ask)
    match target:
        case ConfigFile():
            content = _of_configuration(target, asked, wishes)
        case ProgramFile() | Module():
            content = _of_python(target, asked, wishes.views)
        case _:
            raise TargetError(
                f"{text or 'a command'}: pack takes a Python file, module:attribute or a configuration file; "
                "write the server into a configuration, and pack that"
            )
    files = dict(content.files)
    for path in (*content.sources.files, *_included(wishes.include, content.folder)):
        files[path.relative_to(content.folder).as_posix()] = path.read_bytes()
    secrets = [
        *content.secrets,
        *(os.environ.get(one.variable, "") for one in content.questions.values() if one.kind == "secret"),
    ]
    _check_no_secret(files, secrets)
    unasked = content.sources.reads - set(content.questions) - set(wishes.keep)
    return Bundle(
        _about(text, content, wishes),
        content.target,
        files,
        tuple(content.questions.values()),
        _requirements(content.sources.requirements(), wishes.requires),
        content.tools,
        content.more_tools,
        wishes.packages,
        wishes.serving,
        content.programs,
        sorted(unasked),
    )


def _of_python(
    target: ProgramFile | Module, asked: Mapping[str, Question], views: Mapping[str, str]
) -> _Content:
    server = mount(target, MountOptions(extensions=views).looking)
    if isinstance(target, ProgramFile):
        folder = Path(target.path).resolve().parent
        sources = Sources.of(Path(target.path).resolve(), folder)
        served = Path(target.path).name
    else:
        folder = Path.cwd().resolve()
        parts = target.module.split(".")
        found = [folder.joinpath(*parts, "__init__.py"), folder.joinpath(*parts[:-1], f"{parts[-1]}.py")]
        files = [path for path in found if path.is_file()]
        sources = Sources.of(files[0], folder) if files else Sources((), frozenset(parts[:1]), frozenset())
        served = str(target)
    if isinstance(target, ProgramFile) and target.attribute is not None:
        served += f":{target.attribute}"
    tools = [
        (one.name, _first_line(one.definition.description))
        for one in without_fixed(server.toolset.bindings())
    ]
    # A view, or a search, may have others.
    hides = server.toolset.defers or bool(views)
    generated = hides or bool(server.toolset.sources())
    return _Content(
        folder,
        served,
        sources,
        asked,
        description=_first_line(server.toolset.instructions),
        tools=[] if hides else tools,
        more_tools=generated,
    )


def _of_configuration(target: ConfigFile, asked: Mapping[str, Question], wishes: Wishes) -> _Content:
    from mcp_toolset.config import load_config
    from mcp_toolset.config.jsonc import decode, read_text, without_mark
    from mcp_toolset.hub.toolset import check_lock, lock_path

    path = Path(target.path)
    config = load_config(path, lookups="skip")
    table = cast("dict[str, Any]", decode(without_mark(read_text(path, str(path))), str(path)))
    folder = path.absolute().parent
    if folder.name in (".cursor", ".vscode"):
        folder = folder.parent
    folder = folder.resolve()
    made = PortableConfig(table, path, folder, asked, wishes.keep)
    parts = [
        Sources.of(file, folder) if file.suffix == ".py" else Sources((file,), frozenset(), frozenset())
        for file in made.files
    ]
    served: dict[str, Any] = {"mcpServers": made.servers}
    if made.section:
        served["toolset"] = made.section
    files = {"mcp.json": (json.dumps(served, indent=2, ensure_ascii=False) + "\n").encode()}
    check_lock(config)
    if (lock := lock_path(config)).is_file():
        files["mcp.lock.json"] = lock.read_bytes()
    if unused := sorted(set(asked) - set(made.questions)):
        raise TargetError(
            f"--ask {unused[0]}: no server of {path} reads it; write ${{{unused[0]}}} into the server's entry"
        )
    _check_served(served, made.questions, folder, wishes.views)
    return _Content(
        folder,
        "mcp.json",
        _together(parts),
        made.questions,
        files,
        made.secrets,
        f"The servers {', '.join(made.servers)}",
        more_tools=True,
        programs=sorted({entry["command"] for entry in made.servers.values() if "command" in entry}),
    )


def _together(parts: Sequence[Sources]) -> Sources:
    return Sources(
        tuple(dict.fromkeys(file for part in parts for file in part.files)),
        frozenset[str]().union(*(part.foreign for part in parts)),
        # Each server gets the variables of its entry, and no others.
        frozenset(),
    )


def _check_served(
    served: Mapping[str, Any], questions: Mapping[str, Question], folder: Path, views: Mapping[str, str]
) -> None:
    """The configuration of the bundle, with an answer to each question, must be one that can be served."""
    from mcp_toolset.config.hub import parse_config

    answers = {
        name: str(folder) if one.kind in ("folder", "file") else _ADDRESS for name, one in questions.items()
    }
    config = parse_config(
        served, source=folder / "mcp.json", environ={**os.environ, **answers}, lookups="skip"
    )
    if config.misconfigured:
        raise TargetError(config.misconfigured[0].fault or "")
    config.check_callers()
    mount_config(config, MountOptions(extensions=views).looking)


def _refers(text: str) -> bool:
    return without_references(text) != text


def _included(paths: Iterable[Path], folder: Path) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = path.resolve()
        if not inside.exists():
            raise TargetError(f"--include {path}: no such file; check the path")
        if not inside.is_relative_to(folder):
            raise TargetError(
                f"--include {path}: is not in {folder}, the folder of the target; move it there"
            )
        files = sorted(inside.rglob("*")) if inside.is_dir() else [inside]
        found += [file for file in files if file == inside or _is_plain(file, folder)]
    return found


def _is_plain(file: Path, folder: Path) -> bool:
    """True if a file is copied with its folder: none that is hidden, compiled, installed, or elsewhere."""
    parts = file.relative_to(folder).parts
    if any(part.startswith(".") or part in _SKIPPED for part in parts) or file.suffix in (".pyc", ".mcpb"):
        return False
    return file.is_file() and file.resolve().is_relative_to(folder)


def _check_no_secret(files: Mapping[str, bytes], secrets: Sequence[str]) -> None:
    hidden = Secrets.of(secrets)
    for name, data in files.items():
        text = data.decode("utf-8", "replace")
        if (
            _PRIVATE.search(data)
            or _KEY.search(data)
            or Path(name).name.startswith(".env")
            or hidden.scrubbed(text) != text
        ):
            raise TargetError(
                f"{name}: contains a secret, and would be in the bundle; read it from an environment "
                "variable, and ask the user for that with --ask NAME"
            )


def _requirements(found: Sequence[str], asked: Sequence[str]) -> list[str]:
    named = {re.split(r"[^\w.-]", one)[0].lower().replace("_", "-") for one in asked}
    own = [f"mcp-toolset=={__version__}", *found]
    return [*(one for one in own if one.split("==")[0].lower().replace("_", "-") not in named), *asked]


def _about(text: str, content: _Content, wishes: Wishes) -> dict[str, str]:
    project = _project(content.folder)
    authors = [one["name"] for one in project.get("authors", ()) if "name" in one]
    name = wishes.name or project.get("name") or default_name(text)
    version = wishes.version or project.get("version") or "0.1.0"
    if not _VERSION.fullmatch(version):
        raise TargetError(
            f"{version!r} is no version of a bundle; write --version with three numbers, such as 1.0.0"
        )
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", name):
        raise TargetError(
            f"{name!r} cannot name a bundle; write --name with up to 64 letters, digits, - and _"
        )
    said = wishes.description or project.get("description") or content.description or f"The tools of {name}"
    author = wishes.author or ", ".join(authors) or name
    return {"name": name, "version": version, "description": said, "author": author}


def _project(folder: Path) -> dict[str, Any]:
    """The section `project` of the folder's `pyproject.toml`; empty without one."""
    file = folder / "pyproject.toml"
    try:
        return tomllib.loads(file.read_text(encoding="utf-8")).get("project", {}) if file.is_file() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TargetError(f"{file}: cannot be read ({error}); correct it") from None


def _first_line(text: str | None) -> str:
    return next(iter((text or "").strip().splitlines()), "")
