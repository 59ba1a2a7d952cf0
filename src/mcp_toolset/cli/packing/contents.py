"""`pack_target`: what a bundle of a target consists of; a secret in it is an error."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any, Final, cast

from mcp_toolset import __version__
from mcp_toolset._records import dataclass
from mcp_toolset.cli.mount import MountOptions, mount, without_fixed
from mcp_toolset.cli.packing.bundle import Bundle, Question, parse_questions
from mcp_toolset.cli.target import ConfigFile, Module, ProgramFile, Target, default_name
from mcp_toolset.errors import TargetError
from mcp_toolset.upstream.secrets import Secrets

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
"""What has the form of a key of a well-known service."""
_ADDRESS: Final = "https://host.example/"
"""An answer with which a configuration is tried: one that can be an address too."""

_SKIPPED: Final = frozenset(("__pycache__", "node_modules", "venv"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The options of `pack`."""

    name: str | None = None
    version: str | None = None
    description: str | None = None
    author: str | None = None
    include: Sequence[Path] = ()
    requires: Sequence[str] = ()
    ask: Sequence[str] = ()
    keep: Sequence[str] = ()
    packages: bool = False


@dataclass(frozen=True, slots=True)
class PackedBundle:
    """A bundle, the programs that it needs, and the variables of its code that the user is not asked for."""

    bundle: Bundle
    programs: Sequence[str] = ()
    unasked: Sequence[str] = ()


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


def pack_target(target: Target, text: str, wishes: Wishes) -> PackedBundle:
    asked = parse_questions(wishes.ask)
    match target:
        case ConfigFile():
            content = _of_configuration(target, asked, wishes.keep)
        case ProgramFile() | Module():
            content = _of_python(target, asked)
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
    bundle = Bundle(
        _about(text, content, wishes),
        content.target,
        files,
        tuple(content.questions.values()),
        _requirements(content.sources.requirements(), wishes.requires),
        content.tools,
        content.more_tools,
        wishes.packages,
    )
    unasked = content.sources.reads - set(content.questions) - set(wishes.keep)
    return PackedBundle(bundle, content.programs, sorted(unasked))


def _of_python(target: ProgramFile | Module, asked: Mapping[str, Question]) -> _Content:
    server = mount(target, MountOptions().looking)
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
    generated = bool(server.toolset.sources()) or server.toolset.defers
    return _Content(
        folder,
        served,
        sources,
        asked,
        description=_first_line(server.toolset.instructions),
        tools=[] if server.toolset.defers else tools,
        more_tools=generated,
    )


def _of_configuration(target: ConfigFile, asked: Mapping[str, Question], keep: Sequence[str]) -> _Content:
    from mcp_toolset.cli.packing.configuration import PortableConfig
    from mcp_toolset.config import load_config
    from mcp_toolset.config.jsonc import decode, read_text, without_mark
    from mcp_toolset.hub.toolset import check_lock, lock_path

    path = Path(target.path)
    config = load_config(path)
    table = cast("dict[str, Any]", decode(without_mark(read_text(path, str(path))), str(path)))
    folder = path.absolute().parent
    if folder.name in (".cursor", ".vscode"):
        folder = folder.parent
    folder = folder.resolve()
    made = PortableConfig(table, path, folder, asked, keep)
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
    _check_served(served, made.questions, folder)
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


def _check_served(served: Mapping[str, Any], questions: Mapping[str, Question], folder: Path) -> None:
    """The configuration of the bundle, with an answer to each question, must be one that can be served."""
    from mcp_toolset.config.hub import parse_config

    answers = {
        name: str(folder) if one.kind in ("folder", "file") else _ADDRESS for name, one in questions.items()
    }
    config = parse_config(served, source=folder / "mcp.json", environ={**os.environ, **answers})
    if config.misconfigured:
        raise TargetError(config.misconfigured[0].fault or "")


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
