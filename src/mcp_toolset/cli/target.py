"""Parse TARGET of the command line by its spelling alone; nothing is loaded or opened.

| written | names |
|---|---|
| `mcp.json` | a configuration file |
| `module:attribute` | a toolset, tool, function or server in an importable module |
| `file.py`, `file.py:attribute` | the same in a file |
| `https://host/mcp` | a server that is running |
| `-- program argument …` | a server to start |
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from mcp_toolset._records import dataclass
from mcp_toolset.errors import TargetError, ToolsetError

if TYPE_CHECKING:
    from mcp_toolset.catalog.registry.kept_catalog import KeptFiles
    from mcp_toolset.server.server import ToolsetServer

FORMS: Final = "a configuration file (.json), file.py, module:attribute, a URL, or a command after --"

SEPARATED: Final = "mcp_toolset.separated"  # whether a command line has `--`, in the `meta` of its context
_PROGRAM: Final = re.compile(r"(?P<file>.+\.pyw?)(?::(?P<attribute>[A-Za-z_][\w.]*))?")
_MODULE: Final = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<attribute>[A-Za-z_][\w.]*)")
_ADDRESS: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")
_RUNNERS: Final = re.compile(
    r"(?:npx|bunx|uvx|pipx|uv|npm|pnpm|yarn|bun|deno|node|python[\d.]*|docker|env|[A-Za-z_]\w*=.*)(?:\.exe)?"
)
_RUNNERS_VERBS: Final = ("run", "exec", "x", "dlx", "tool", "start")
_VALUED: Final = {"python": ("-W", "-X"), "env": ("-u", "-C"), "node": ("-r", "--require", "--import")}
"""Options of programs that start others, each followed by its value."""

_RUNNER_STEM: Final = re.compile(r"[\d.]*(?:\.exe)?$")
_LONGEST_NAME: Final = 32


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file of any client, which names servers."""

    path: str


@dataclass(frozen=True, slots=True)
class Module:
    """An attribute of an importable module."""

    module: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A Python file; without an attribute, the server it serves or the tools it defines."""

    path: str
    attribute: str | None = None

    def __str__(self) -> str:
        return self.path if self.attribute is None else f"{self.path}:{self.attribute}"


@dataclass(frozen=True, slots=True)
class Url:
    """The address of a running server."""

    url: str


@dataclass(frozen=True, slots=True)
class Command:
    """A program to start, with its arguments."""

    argv: tuple[str, ...]


Target: TypeAlias = ConfigFile | Module | ProgramFile | Url | Command
Headers: TypeAlias = tuple[tuple[str, str], ...]


def parse_target(text: str | None, command: Sequence[str] = ()) -> Target:
    """Parse the target that was written, or the command after `--`."""
    if command:
        return Command(tuple(command))
    text = text or ""
    if address := _ADDRESS.match(text):
        return _url(text, address["scheme"])
    if program := _PROGRAM.fullmatch(text):
        return ProgramFile(_file(program["file"]), program["attribute"])
    if text.endswith((".json", ".jsonc")) or Path(text).is_file():
        return ConfigFile(_file(text))
    if module := _MODULE.fullmatch(text):
        return Module(module["module"], module["attribute"])
    if Path(text).is_dir():
        raise TargetError(f"{text}: a folder; name a file in it")
    raise TargetError(f"{text!r} names nothing to serve; give {FORMS}")


def _url(text: str, scheme: str) -> Url:
    from mcp_toolset.security.egress import MEND_ADDRESS, is_web_address
    from mcp_toolset.upstream.secrets import shown_url

    if scheme.lower() not in ("http", "https"):
        raise TargetError(
            f"{shown_url(text)}: a server cannot be reached by {scheme}; write its address as https://host/path"
        )
    if not is_web_address(text):
        raise TargetError(f"{shown_url(text)}: not a web address; {MEND_ADDRESS}")
    return Url(text)


def _file(path: str) -> str:
    if Path(path).is_dir():
        raise TargetError(f"{path}: a folder; name a file in it")
    if not Path(path).is_file():
        raise TargetError(f"{path}: no such file; check the path")
    return path


def configuration_file(file: str, command: str) -> str:
    """The path of a configuration, for a command that reads no other target."""
    target = parse_target(file)
    if not isinstance(target, ConfigFile):
        raise TargetError(f"{file}: {command} reads configuration files; use `mcp-toolset list {file}`")
    return target.path


def served_as(target: Target) -> str:
    """The served target, without secrets."""
    match target:
        case ConfigFile() | ProgramFile():
            return str(Path(target.path).absolute())
        case Url():
            return default_name(target.url)
        case Command():
            return default_name(None, target.argv)
        case _:
            return str(target)


def default_name(text: str | None, command: Sequence[str] = ()) -> str:
    """A short name of letters, digits, `_` and `-` for a target, made from its path, module or host."""
    raw = _command_name(command) if command else _text_name(text or "")
    return _NOT_IN_A_NAME.sub("-", raw).strip("-")[:_LONGEST_NAME].strip("-") or "tools"


def _text_name(text: str) -> str:
    if _ADDRESS.match(text):
        return _host_of(text)
    if program := _PROGRAM.fullmatch(text):
        return Path(program["file"]).stem
    if module := _MODULE.fullmatch(text):
        return module["module"].rpartition(".")[2]
    path = Path(text).absolute()
    # `.mcp.json` and `.cursor/mcp.json` have the same name everywhere, so the project's folder is used.
    if path.name in (".mcp.json", "mcp.json"):
        folder = path.parent.parent if path.parent.name in (".cursor", ".vscode") else path.parent
        return folder.name
    return path.stem


def _host_of(url: str) -> str:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    if re.fullmatch(r"[\d.]+|[0-9a-f:.]*:[0-9a-f:.]*", host):
        # An address says where a server is and not what it is.
        return "server"
    labels = [label for label in host.split(".") if label not in ("www", "mcp", "api")]
    return host if len(labels) < 2 else labels[-2]


def _command_name(command: Sequence[str]) -> str:
    valued = _VALUED.get(_RUNNER_STEM.sub("", re.split(r"[/\\]", command[0])[-1]), ())
    pairs = zip(("", *command), command, strict=False)
    words = [
        re.split(r"[/\\]", word)[-1] for before, word in pairs if before not in valued and word[:1] != "-"
    ]
    while len(words) > 1 and (_RUNNERS.fullmatch(words[0]) or words[0] in _RUNNERS_VERBS):
        words = words[1:]
    return re.sub(r"(?<=.)@.*|\.(?:py|js|mjs|exe)$", "", words[0]) if words else ""


_FOLDER: Final = "names"
_LONGEST: Final = 80  # characters of what a shell shows beside a name


@dataclass(frozen=True, slots=True)
class SeenTool:
    """One tool by its name on the command line, with its server's own name for it (`tool`)."""

    name: str
    tool: str
    server: str = ""
    about: str = ""


def seen(target: str) -> list[SeenTool]:
    """The tools that a command has last found in the target; none before the first."""
    try:
        place = parse_target(target)
    except ToolsetError:
        return []
    kept = None if (files := _files()) is None else files.load(_key(place))
    return [] if kept is None else [SeenTool(**tool) for tool in kept.tools]


def remember(target: Target, server: ToolsetServer) -> None:
    from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog

    files = None if isinstance(target, Command) else _files()
    if files is None:
        return
    tools = [
        {
            "name": binding.name,
            "tool": binding.definition.name,
            "server": binding.source,
            "about": " ".join((binding.definition.description or "").split())[:_LONGEST],
        }
        for binding in server.bindings()
    ]
    kept = KeptCatalog(tools)
    if tools and files.load(_key(target)) != kept:
        files.save(_key(target), kept)


def _files() -> KeptFiles | None:
    from mcp_toolset.catalog.cache_folder import cache_folder
    from mcp_toolset.catalog.registry.kept_catalog import KeptFiles

    folder = cache_folder()
    return None if folder is None else KeptFiles(folder / _FOLDER)


def _key(target: Target) -> str:
    """A digest of the target; relative paths name the same file as absolute ones."""
    match target:
        case ConfigFile(path):
            where = os.path.realpath(path)
        case ProgramFile(path, attribute):
            where = f"{os.path.realpath(path)}:{attribute or ''}"
        case Url(url):
            where = url
        case _:
            where = f"{os.getcwd()} {target}"
    return hashlib.sha256(where.encode()).hexdigest()[:32]
