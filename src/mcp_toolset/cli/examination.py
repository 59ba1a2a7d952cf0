"""`examine`: faults of this machine that stop `mcp-toolset` or its clients, and what to do.

Each examination is one function that yields findings; nothing is changed. `reached` starts the servers.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from mcp_toolset import __version__
from mcp_toolset._index import part
from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.cache_folder import cache_folder
from mcp_toolset.cli.clients import CLIENTS, Machine
from mcp_toolset.cli.install import Discovery, FoundServer, discovered
from mcp_toolset.config import load_config
from mcp_toolset.config.hub import parse_config
from mcp_toolset.config.loops import served_files
from mcp_toolset.config.models import HubConfig, ServerConfig
from mcp_toolset.errors import NEEDS_LOGIN, ConfigError, ToolsetError
from mcp_toolset.security.vault import Vault
from mcp_toolset.serving.serving_log import VARIABLE, LogChoice
from mcp_toolset.tools.screen import counted
from mcp_toolset.tools.source import SourceStatus
from mcp_toolset.upstream.secrets import Secrets

if TYPE_CHECKING:
    from mcp_toolset.server.server import ToolsetServer

State: TypeAlias = Literal["ok", "warning", "error"]

TIMEOUT: Final = 20.0  # seconds that a program may take to tell its version
FEW_FILES: Final = 512
"""A hub of some dozen servers reaches a limit of open files below this number."""

EXTRAS: Final[Mapping[str, tuple[str, str]]] = {
    "code": ("pydantic_monty", "models can run code"),
    "dbos": ("dbos", "loops can resume after a crash"),
    "embeddings": ("sentence_transformers", "search can use models of sentence-transformers"),
    "fast": ("orjson", "JSON is read and written faster"),
    "keyring": ("keyring", "secrets are kept in the system's keyring"),
    "model": ("numpy", "search can use a sentence model"),
    "otel": ("opentelemetry.sdk", "metrics and traces are sent to collectors"),
    "prometheus": ("prometheus_client", "Prometheus can read metrics"),
    "postgres": ("psycopg", "recorded calls can be in PostgreSQL"),
    "redis": ("redis", "replicas can share their state"),
}
_OF_DESKTOP_PROGRAMS: Final = "/usr/bin:/bin:/usr/sbin:/sbin"
"""The `PATH` of programs that macOS starts from the Dock or the Finder."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one examination, with a remedy unless the state is `ok`."""

    about: str
    state: State
    note: str
    server: str = ""


@dataclass(frozen=True, slots=True)
class ExaminedMachine:
    """The examined places; `folder` is `None` if caching is off, and `log` is `None` if no logs are kept."""

    machine: Machine
    vault: Vault
    folder: Path | None
    log: Path | None
    port: int
    program: str
    python: str = sys.executable
    file: Path | None = None

    @classmethod
    def here(cls, port: int, file: Path | None = None) -> ExaminedMachine:
        folder, log = cache_folder(), LogChoice().folder({})
        return cls(Machine.here(), Vault(), folder, log, port, "mcp-toolset", file=file)


def examine(machine: ExaminedMachine) -> Iterator[Finding]:
    for examination in _EXAMINATIONS:
        yield from examination(machine)


def _versions(_: ExaminedMachine) -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("version", "ok", f"mcp-toolset {__version__}, Python {python}, {sys.platform}")
    for package in ("mcp", "anyio", "pydantic"):
        try:
            version(package)
        except PackageNotFoundError:
            yield Finding("version", "error", f"the package {package} is missing; install mcp-toolset again")


def _extras(_: ExaminedMachine) -> Iterator[Finding]:
    there = [name for name, (module, _) in EXTRAS.items() if find_spec(module) is not None]
    rest = [f"{name} ({use})" for name, (_, use) in EXTRAS.items() if name not in there]
    note = f"installed: {', '.join(there) or 'none'}"
    more = f"; pip install 'mcp-toolset[NAME]' adds: {', '.join(rest)}" if rest else ""
    yield Finding("extras", "ok", note + more)


def _program(examined: ExaminedMachine) -> Iterator[Finding]:
    path = examined.machine.environ.get("PATH", "")
    program = shutil.which(examined.program, path=path)
    own = Path(examined.python).parent / examined.program
    if program is None:
        mend = f"add {own.parent} to PATH" if own.is_file() else "install it with pipx or uv tool"
        note = f"{examined.program} is not on PATH, so only full paths start it; {mend}"
        yield Finding("PATH", "warning", note)
    elif own.is_file() and not own.samefile(program):
        note = (
            f"{program} comes before {own}, which runs now; remove one of them, or change the order of PATH"
        )
        yield Finding("PATH", "warning", note)
    else:
        yield Finding("PATH", "ok", f"{examined.program} is {program}")


def _clients(examined: ExaminedMachine) -> Iterator[Finding]:
    clients = discovered(examined.machine)
    yield from (Finding("client", "error", fault) for fault in clients.faults)
    for server in _startable(clients):
        also = f"; also in {', '.join(others)}" if (others := clients.also_in(server)) else ""
        for one in _entry(server, server.entry or {}, examined):
            yield replace(one, note=one.note + also)


def _startable(found: Discovery) -> Iterator[FoundServer]:
    """The servers that clients start, each once, also if several clients have it."""
    seen = set[str | None]()
    for server in found.servers:
        if server.key and not server.behind and server.note != "disabled" and server.key not in seen:
            seen.add(server.key)
            yield server


def reached(examined: ExaminedMachine, known: Iterable[Finding], seconds: float | None) -> Iterator[Finding]:
    """Start each server of clients and configurations that has no error yet, and say how it answers."""
    from mcp_toolset.cli.mount import read_once

    fit, tools = part("fit"), dict[str, list[dict[str, Any]]]()
    faulty = {(one.about, one.server) for one in known if one.state == "error"}
    for about, read in _groups(examined, faulty):
        try:
            statuses, found = read_once(read(), seconds, _seen)
        except ToolsetError as fault:
            if (about, "") not in faulty:
                yield Finding(about, "error", str(fault))
            continue
        for name, status in statuses.items():
            if (about, name) not in faulty:
                yield _answered(about, name, status)
        for source, wires in found.items():
            tools.setdefault((about or source).partition(": ")[0], []).extend(wires)
    titles = [client.title for client in CLIENTS.values() if client.title in tools]
    if fit is None:
        return
    for title in titles:
        yield Finding(title, "ok", fit.told(title, tools[title]).removeprefix(f"{title}: "))


def _seen(server: ToolsetServer) -> tuple[Mapping[str, SourceStatus], Mapping[str, list[dict[str, Any]]]]:
    """The status of each server of a hub, and the definitions of its tools."""
    found: dict[str, list[dict[str, Any]]] = {}
    for binding in server.bindings():
        found.setdefault(binding.source, []).append(binding.to_wire())
    return dict(server.statuses()), found


def _groups(
    examined: ExaminedMachine, faulty: Collection[tuple[str, str]]
) -> list[tuple[str, Callable[[], HubConfig]]]:
    """The servers of clients together, and each configuration that is served or named, with its title."""
    of_clients: dict[str, Any] = {}
    files: dict[Path, str] = {}
    if examined.file is not None:
        files[examined.file.resolve()] = str(examined.file)
    for server in _startable(discovered(examined.machine)):
        if (about := _about(server), "") in faulty:
            continue
        if server.note == "mcp-toolset":
            for served in served_files(_words(server.entry or {}), Path.cwd()):
                files.setdefault(served.resolve(), about)
        elif not server.note:
            of_clients[about] = server.entry
    together = partial(parse_config, {"mcpServers": of_clients}, source=Path.cwd() / "the clients")
    configurations = ((path, about) for path, about in files.items() if path.suffix == ".json")
    return [("", together), *((about, partial(load_config, path)) for path, about in configurations)]


def _answered(about: str, name: str, status: SourceStatus) -> Finding:
    prefix = f"{name}: " if about else ""
    if status.is_up:
        return Finding(about or name, "ok", f"{prefix}answers, with {counted(status.tools, 'tool')}", name)
    state: State = "warning" if status.reason.startswith(NEEDS_LOGIN) else "error"
    return Finding(about or name, state, f"{prefix}{status.reason or status.state}", name)


def _about(server: FoundServer) -> str:
    return f"{CLIENTS[server.client].title}: {server.name}"


def _words(entry: Mapping[str, Any]) -> list[str]:
    return [str(entry.get("command", "")), *map(str, entry.get("args") or ())]


def _file(examined: ExaminedMachine) -> Iterator[Finding]:
    if examined.file is not None:
        yield from _configuration(str(examined.file), examined.file)


def _entry(server: FoundServer, entry: Mapping[str, Any], examined: ExaminedMachine) -> Iterator[Finding]:
    command = entry.get("command")
    if not isinstance(command, str) or "${" in command:
        return
    about = _about(server)
    environ = examined.machine.environ
    env: dict[str, Any] = entry.get("env") or {}
    path = str(env.get("PATH") or environ.get("PATH", ""))
    program = shutil.which(command, path=path)
    if program is None:
        mend = f"install it, or write its full path into {server.path}"
        yield Finding(about, "error", f"command not found: {command}; {mend}")
        return
    if examined.machine.platform == "darwin" and shutil.which(command, path=_OF_DESKTOP_PROGRAMS) is None:
        mend = f"write {program} into {server.path}"
        note = f"a program that is started from the Dock does not find {command}; {mend}"
        yield Finding(about, "warning", note)
    if server.note == "mcp-toolset":
        yield from _own_entry(about, [program, *_words(entry)[1:]], server.path, examined.file)


def _own_entry(about: str, command: list[str], file: Path, examined: Path | None) -> Iterator[Finding]:
    if fault := _fault_of_program(command[0]):
        yield Finding(about, "error", f"{command[0]} {fault}; install it again, and run mcp-toolset install")
        return
    at = command.index("serve") + 1 if "serve" in command else len(command)
    for target in command[at : at + 1]:
        if target.endswith((".json", ".py")) and Path(target).is_absolute() and not Path(target).is_file():
            yield Finding(about, "error", f"serves {target}, which is missing; correct {file}")
            return
    files = [
        served_file
        for served_file in served_files(command, Path.cwd())
        if examined is None or served_file.resolve() != examined.resolve()
    ]
    findings = [finding for served in files for finding in _configuration(about, served)]
    yield from findings or [Finding(about, "ok", f"starts {command[0]}")]


def _configuration(about: str, served: Path) -> Iterator[Finding]:
    from mcp_toolset.hub.mistakes import mistakes_in

    if served.suffix != ".json":
        return
    try:
        mistakes = mistakes_in(served)
    except ConfigError as error:
        yield Finding(about, "error", str(error))
        return
    further = (told for each in mistakes.further.values() for told in each)
    yield from (Finding(about, "error", told) for told in (*mistakes.sections, *further))
    for server in mistakes.config.misconfigured:
        yield Finding(about, "error", server.fault, server.name)
    for server in mistakes.config.servers:
        if fault := start_fault(server):
            yield Finding(about, "error", f"{server.name}: {fault}", server.name)


def start_fault(server: ServerConfig) -> str:
    """Why the program of a configured server cannot be started here; empty if it can, or needs none."""
    from mcp_toolset.upstream.target import program_fault

    if server.disabled or server.fault or not server.command:
        return ""
    return Secrets.of(server.secrets).scrubbed(program_fault(server.command, server.env, server.cwd))


def _fault_of_program(program: str) -> str:
    if Path(program).name.removesuffix(".exe") != "mcp-toolset":
        return ""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=TIMEOUT, check=False)
    except OSError as error:
        return f"cannot be started ({error.strerror})"
    except subprocess.TimeoutExpired:
        return f"did not tell its version in {TIMEOUT:g} s"
    return "" if done.returncode == 0 else f"ended with exit code {done.returncode}"


def _folders(examined: ExaminedMachine) -> Iterator[Finding]:
    if examined.folder is None:
        yield Finding("cache", "ok", "nothing is cached on disk, as MCP_TOOLSET_CACHE says")
    else:
        yield _folder("cache", examined.folder)
    if (folder := examined.vault.folder) is not None:
        yield _folder("secrets", folder, private=True)
    if examined.log is None:
        yield Finding("log", "ok", f"no log is kept, as {VARIABLE} says")
    else:
        finding = _folder("log", examined.log)
        shown = "; mcp-toolset logs shows it" if finding.state == "ok" else ""
        yield replace(finding, note=f"{finding.note}{shown}")


def _folder(about: str, folder: Path, *, private: bool = False) -> Finding:
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding(about, "error", f"{folder} cannot be written; change the owner or the mode of {there}")
    open_to_others = folder.exists() and folder.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    if private and open_to_others and os.name == "posix":
        return Finding(about, "error", f"other users can read {folder}; run: chmod 700 {folder}")
    return Finding(about, "ok", str(folder))


def _keyring(examined: ExaminedMachine) -> Iterator[Finding]:
    vault = examined.vault
    if vault.has_own_key:
        yield Finding("keyring", "ok", "secrets are in encrypted files, with the key of the environment")
    elif vault.keyring.is_there:
        yield Finding("keyring", "ok", "secrets are in the system's keyring")
    else:
        note = "secrets are in encrypted files: there is no keyring, or the extra `keyring` is not installed"
        yield Finding("keyring", "ok", note)


def _port(examined: ExaminedMachine) -> Iterator[Finding]:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", examined.port))
        except OSError as error:
            mend = "end the program that listens there, or choose another --port"
            yield Finding("port", "warning", f"{examined.port} cannot be taken ({error.strerror}); {mend}")
            return
    yield Finding("port", "ok", f"{examined.port} is free for serve --transport http")


def _open_files(_: ExaminedMachine) -> Iterator[Finding]:
    if sys.platform == "win32":
        return
    import resource

    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 < soft < FEW_FILES:
        note = f"{soft} files may be open at once, too few for many servers; run: ulimit -n 4096"
        yield Finding("open files", "warning", note)
    else:
        yield Finding("open files", "ok", "no limit" if soft <= 0 else f"{soft} may be open at once")


_EXAMINATIONS: Final[tuple[Callable[[ExaminedMachine], Iterator[Finding]], ...]] = (
    _versions,
    _extras,
    _program,
    _file,
    _clients,
    _folders,
    _keyring,
    _port,
    _open_files,
)
