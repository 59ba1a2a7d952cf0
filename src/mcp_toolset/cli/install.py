"""Install servers in clients, find the servers of all clients, and adopt a client's servers.

`plan_install` adds one entry to a client's file. `plan_adoption` moves a client's servers into the hub's
file, a configuration file that one new entry serves. `plan_restoration` brings them back from a record, which
has the client's file byte for byte. An interruption is harmless: the record is written first, then the hub's
file, and the client's file last. At any moment that file is the old one or the new one, and both work.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Final, cast

import click

from mcp_toolset._index import part
from mcp_toolset._records import dataclass, replace
from mcp_toolset.cli import clients, formats
from mcp_toolset.cli.replacing import mend_of, read_regular, replace_text
from mcp_toolset.concurrency.atomic_file import replace_file
from mcp_toolset.config import load_config
from mcp_toolset.config.jsonc import decode, marked_as, without_mark
from mcp_toolset.config.keys import switched_off
from mcp_toolset.config.loops import files_back
from mcp_toolset.errors import ConfigError, TargetError
from mcp_toolset.security.facts import without_credentials
from mcp_toolset.upstream.secrets import Secrets, secret_arguments

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class AdoptionRecord:
    """One client's file that was adopted. It contains secrets of servers, so only the owner can read it."""

    client: clients.ClientName
    path: str
    original: str = field(repr=False)  # the file's text before the first adoption
    adopted: tuple[str, ...]  # digests of the file's text after each adoption, the last one last
    hub_path: str
    names: Mapping[str, str]
    entries: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, path: Path, machine: clients.Machine) -> AdoptionRecord | None:
        file = _record_file(path, machine)
        try:
            data = _table_in(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise _damaged(file, path, str(error)) from None
        if data.pop("version", _VERSION) != _VERSION:
            raise ConfigError(f"{file}: written by another version of mcp-toolset; use that version")
        try:
            data["adopted"] = tuple(data["adopted"])
            return cls(**data)
        except (KeyError, TypeError) as error:
            raise _damaged(file, path, f"{type(error).__name__}: {error}") from None

    @classmethod
    def read_all(cls, machine: clients.Machine) -> list[AdoptionRecord]:
        paths = [_path_in(file) for file in _records(machine)]
        return [record for path in paths if path and (record := cls.read(Path(path), machine)) is not None]

    @property
    def hub(self) -> Path:
        return Path(self.hub_path)

    def is_applied(self, text: str) -> bool:
        return text != self.original

    def is_unchanged(self, text: str) -> bool:
        """True if the client's file is as its only adoption left it, or as before that."""
        return text == self.original or (len(self.adopted) == 1 and _digest(text) == self.adopted[-1])

    def extended(self, entries: Mapping[str, object], names: Mapping[str, str], after: str) -> AdoptionRecord:
        """The record with more servers of the same file, under names that are not in it yet."""
        return replace(
            self,
            adopted=(*self.adopted, _digest(after)),
            names={**self.names, **names},
            entries={**self.entries, **entries},
        )

    def write(self, machine: clients.Machine) -> None:
        file = _record_file(Path(self.path), machine)
        data = json.dumps({"version": _VERSION, **asdict(self)})
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(file, data.encode())
        except OSError as error:
            raise ConfigError(
                f"{file}: cannot be written ({error.strerror}); nothing was changed, {mend_of(error)}"
            ) from None

    def remove(self, machine: clients.Machine) -> None:
        _record_file(Path(self.path), machine).unlink(missing_ok=True)


def _records_folder(machine: clients.Machine) -> Path:
    return machine.application_data / "mcp-toolset" / "adopted"


def _records(machine: clients.Machine) -> list[Path]:
    return sorted(_records_folder(machine).glob("*.json"))


def _record_file(path: Path, machine: clients.Machine) -> Path:
    """The path of the record of a client's file, by its real path, or by its path if a link was replaced."""
    name = hashlib.sha256(os.path.realpath(path).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    usual = _records_folder(machine) / f"{name}.json"
    if usual.exists():
        return usual
    return next((file for file in _records(machine) if _path_in(file) == str(path)), usual)


def _path_in(file: Path) -> str | None:
    """The path of the client's file in a record; `None` if the record is damaged."""
    try:
        return _table_in(file).get("path")
    except (OSError, ValueError):
        return None


def _table_in(file: Path) -> dict[str, Any]:
    data: object = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise ValueError("no object")
    return cast("dict[str, Any]", data)


def _damaged(file: Path, path: Path, why: str) -> ConfigError:
    copies = f"the copies {path}.*.bak are the file as it was"
    return ConfigError(f"{file}: cannot be read ({why}); {copies}; take one of them, and remove this file")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class PathWriter:
    """Writes paths for one file: absolute, or relative to the project's folder (`workspace`)."""

    folder: Path
    project: Path | None = None
    workspace: str = ""

    def path(self, word: str | Path) -> str:
        found = os.path.abspath(self.folder / word)
        if self.project is None:
            return found
        try:
            inside = os.path.relpath(found, os.path.abspath(self.project))
        except ValueError:
            raise ConfigError(
                f"{found}: on another drive than the project, so that a project file cannot name it; use "
                "--scope user"
            ) from None
        return self.workspace if inside == "." else f"{self.workspace}/{inside.replace(os.sep, '/')}"

    def options(self, options: Sequence[str | Path]) -> list[str]:
        """Options of `serve`, with the files among them as paths."""
        return [self.path(each) if isinstance(each, Path) else each for each in options]

    def target(self, arguments: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """TARGET and the arguments after it, and the environment variables that they need.

        Of a command after `--`, the program and the arguments that are paths here are written as paths. If a
        `module:attribute` is found in the folder, the entry sets `PYTHONPATH` to it.
        """
        if not arguments or tuple(arguments) == ("--",):
            raise TargetError(
                "no target to install; name a file, module:attribute, URL, or a command after --"
            )
        first, *rest = arguments
        if first == "--":
            return ("--", *self._command(rest)), {}
        file, colon, name = first.rpartition(":")
        file, attribute = (file, colon + name) if file.endswith(".py") else (first, "")
        if (self.folder / file).exists():
            return (self.path(file) + attribute, *rest), {}
        if file.endswith((".json", ".jsonc", ".py")) and "://" not in first:
            raise TargetError(f"{self.folder / file}: no such file; check the target's path")
        return tuple(arguments), self._python_path(first)

    def _command(self, command: Sequence[str]) -> list[str]:
        # A bare program name is looked up on PATH even if a file here has that name; an argument may be a
        # file.
        program, *arguments = command
        paths = {word for word in command if word in (".", "..") or "/" in word or os.sep in word}
        paths |= {word for word in arguments if (self.folder / word).is_file() and word != program}
        return [
            self.path(word)
            if word in paths and (self.folder / word).exists() and not self._is_system(word)
            else word
            for word in command
        ]

    def _is_system(self, word: str) -> bool:
        """True if a word is an absolute path outside the project, which stays absolute."""
        return (
            self.project is not None
            and Path(word).is_absolute()
            and not Path(word).is_relative_to(os.path.abspath(self.project))
        )

    def _python_path(self, target: str) -> dict[str, str]:
        module = re.match(r"([A-Za-z_]\w*)[\w.]*:[A-Za-z_]", target)
        if module is None:
            return {}
        here = (self.folder / module[1]).is_dir() or (self.folder / f"{module[1]}.py").is_file()
        return {"PYTHONPATH": self.path(self.folder)} if here else {}


def launcher(
    machine: clients.Machine, *, portable: bool = False, python: str = sys.executable
) -> tuple[str, ...]:
    """The command of this installation: absolute, or, if portable, a name that other machines may have."""
    if portable:
        return ("mcp-toolset",)
    script = "mcp-toolset.exe" if machine.platform == "win32" else "mcp-toolset"
    beside = Path(python).parent / script
    if beside.is_file():
        return (os.path.abspath(beside),)
    found = shutil.which(script, path=machine.environ.get("PATH", ""))
    return (os.path.abspath(found),) if found else (python, "-m", "mcp_toolset.cli.main")


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """The change of one file. The texts contain other servers' secrets, so `repr` omits them."""

    path: Path
    before: str | None = field(repr=False)
    after: str | None = field(repr=False)
    diff: str = field(repr=False)
    private: bool = True

    @property
    def changed(self) -> bool:
        return self.before != self.after


def plan_install(
    client: clients.ClientName,
    name: str,
    target_args: Sequence[str],
    *,
    machine: clients.Machine,
    scope: clients.Scope | None = None,
    env: Mapping[str, str] | None = None,
    force: bool = False,
    command: Sequence[str] | None = None,
    cwd: Path | None = None,
    options: Sequence[str | Path] = (),
) -> InstallPlan:
    """Plan that `client` starts `mcp-toolset serve TARGET …` under `name`.

    `target_args` is TARGET, or `--` and a command, relative to `cwd` else to `project`. `options` are those
    of `serve`, with files as paths. `command` starts mcp-toolset; it is found if left out.
    """
    if not _NAME.fullmatch(name):
        raise click.UsageError(
            f"--name: {name!r} cannot name a server; use up to 64 letters, digits, _ and -"
        )
    project, folder = machine.project, (cwd or machine.project).absolute()
    chosen, path = clients.locate(clients.CLIENTS[client], scope, machine)
    _check_no_loop(PathWriter(folder), target_args, path)
    writing = (
        PathWriter(folder, project, clients.CLIENTS[client].workspace)
        if chosen == "project"
        else PathWriter(folder)
    )
    arguments, needed = writing.target(target_args)
    program = command or launcher(machine, portable=chosen == "project")
    start = (*program, "serve", *writing.options(options), *arguments)
    entry = clients.CLIENTS[client].form.ours(start, {**needed, **(env or {})})
    if clients.CLIENTS[client].always and _defers_all(folder, target_args, options):
        entry |= clients.CLIENTS[client].always
    section, before, form = (
        clients.CLIENTS[client].section,
        read_regular(path),
        clients.CLIENTS[client].format,
    )
    text = without_mark(before or "")
    present = form.entries(text, section, str(path)).get(name)
    if present == entry:
        return _plan(path, before, before, clients.CLIENTS[client], name, chosen)
    if present is not None and not force:
        raise ConfigError(f"{path}: {section}.{name}: another server; choose another name, or use --force")
    after = form.with_entry(text, section, name, entry, str(path))
    return _plan(path, before, marked_as(after, before), clients.CLIENTS[client], name, chosen)


def _defers_all(folder: Path, target_args: Sequence[str], options: Sequence[str | Path]) -> bool:
    """True if all tools of a target are behind search, as far as is known without starting it."""
    for option, said in (("--deferred", True), ("--no-deferred", False)):
        if option in options:
            return said
    target = folder / target_args[0]
    if target.suffix not in (".json", ".jsonc") or not target.is_file():
        return False
    try:
        servers = [one for one in load_config(target).servers if not one.disabled]
    except ConfigError:
        return False
    return bool(servers) and all(one.deferred for one in servers)


def plan_uninstall(
    client: clients.ClientName,
    name: str,
    *,
    machine: clients.Machine,
    scope: clients.Scope | None = None,
    force: bool = False,
) -> InstallPlan:
    chosen, path = clients.locate(clients.CLIENTS[client], scope, machine)
    section, before, form = (
        clients.CLIENTS[client].section,
        read_regular(path),
        clients.CLIENTS[client].format,
    )
    text = without_mark(before or "")
    present = form.entries(text, section, str(path))
    if name not in present:
        _check_not_adopted(client, name, path, machine)
    if before is None or name not in present:
        return _plan(path, before, before, clients.CLIENTS[client], name, chosen)
    if not force and not starts_mcp_toolset(present[name]):
        raise ConfigError(f"{path}: {section}.{name}: not a server of mcp-toolset; use --force to remove it")
    after = form.without_entry(text, section, name, str(path))
    return _plan(path, before, marked_as(after, before), clients.CLIENTS[client], name, chosen)


def _check_not_adopted(client: clients.ClientName, name: str, path: Path, machine: clients.Machine) -> None:
    record = AdoptionRecord.read(path, machine)
    if record is not None and name in record.names:
        raise ConfigError(
            f"{path}: {name} is behind mcp-toolset; remove {record.names[name]} from {record.hub}, or bring "
            f"all servers back with `mcp-toolset uninstall {client} --adopted`"
        )


def apply(plan: InstallPlan) -> Path | None:
    """Carry out a plan; return the path of the backup, None if there was no file."""
    if not plan.changed or plan.after is None:
        return None
    return replace_text(plan.path, plan.before, plan.after, 0o600 if plan.private else 0o666)


def _check_no_loop(writing: PathWriter, target_args: Sequence[str], path: Path) -> None:
    """Refuse a target that would serve the file it is installed into, directly or through other files."""
    arguments, _ = writing.target(target_args)
    way = files_back(("mcp-toolset", "serve", *arguments), str(writing.folder), path)
    if way:
        raise ConfigError(
            f"{path}: the entry would serve the file that contains it ({' → '.join([str(path), *way])}), "
            "and each level would start the next; move the servers to a file of their own and install that"
        )


def starts_mcp_toolset(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    table = cast("dict[str, object]", entry)
    words = [*_program(table), *cast("list[object]", table.get("args") or [])]
    program = re.split(r"[/\\]", str(words[0]))[-1]
    return program.startswith("mcp-toolset") or "mcp_toolset.cli.main" in words[:3]


def _program(table: Mapping[str, object]) -> list[object]:
    """The program of an entry; for OpenCode with its arguments."""
    command = table.get("command") or table.get("cmd")
    return cast("list[object]", command) if isinstance(command, list) else [command]


def _plan(
    path: Path,
    before: str | None,
    after: str | None,
    client: clients.ClientProgram,
    name: str,
    scope: clients.Scope,
) -> InstallPlan:
    return InstallPlan(path, before, after, difference(path, before, after, client, name), scope == "user")


def difference(
    path: Path, before: str | None, after: str | None, client: clients.ClientProgram, name: str
) -> str:
    """The unified difference of a client's file; possible secrets of other entries are hidden."""
    if before == after:
        return ""
    section = client.section
    old, new = (
        client.format.concealed(without_mark(text or ""), section, name).splitlines(keepends=True)
        for text in (before, after)
    )
    lines = list(difflib.unified_diff(old, new, str(path) if before is not None else os.devnull, str(path)))
    if not lines:
        lines = [f"--- {path}\n", f"+++ {path}\n", f"@@ {section}.{name}.env @@ (values not shown)\n"]
    shown = "".join(line if line.endswith("\n") else line + "\n" for line in lines)
    secrets = Secrets.of(secret for text in (before, after) for secret in _secrets_of(text, client, name))
    return without_credentials(secrets.scrubbed(shown))


def _secrets_of(text: str | None, client: clients.ClientProgram, name: str) -> Iterator[str]:
    """The arguments of all entries that may be secret, and the variables and headers of other entries."""
    for server, entry in client.format.entries(without_mark(text or ""), client.section, "").items():
        table = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
        arguments = table.get("args")
        words = cast("list[object]", arguments) if isinstance(arguments, list) else _program(table)[1:]
        yield from secret_arguments([str(word) for word in words])
        for key in () if server == name else ("env", "envs", "environment", "headers"):
            given = table.get(key)
            yield from map(str, cast("dict[str, object]", given).values()) if isinstance(given, dict) else ()


_SCOPES: Final[tuple[clients.Scope, ...]] = ("project", "user")
_SAME: Final = (
    *("command", "args", "env", "url", "httpUrl", "serverUrl", "headers"),
    *("cmd", "envs", "uri", "http_headers"),
)
"""The keys by which two entries are of the same server, in the spelling of each client."""


@dataclass(frozen=True, slots=True)
class FoundServer:
    """One server of one client. Without an `entry`, `note` says why only the client can start it."""

    client: clients.ClientName
    scope: clients.Scope
    path: Path
    name: str
    entry: Mapping[str, Any] | None = field(repr=False)
    note: str = ""
    behind: bool = False

    @property
    def key(self) -> str | None:
        """A text that is equal for the same server in two clients."""
        if self.entry is None:
            return None
        told = {name: self.entry.get(name) for name in _SAME}
        return json.dumps(told, sort_keys=True, default=str)


@dataclass(frozen=True, slots=True)
class Discovery:
    """The servers of a machine, and a line for each file that cannot be read."""

    servers: tuple[FoundServer, ...]
    faults: tuple[str, ...]

    def also_in(self, server: FoundServer) -> list[str]:
        same = self._by_key()[server.key or ""]
        return sorted({clients.CLIENTS[one.client].title for one in same if one.client != server.client})

    def distinct(self) -> dict[str, FoundServer]:
        """The servers that can be started here, each once, by a unique name."""
        found: dict[str, FoundServer] = {}
        for key, (first, *_) in self._by_key().items():
            if key and not starts_mcp_toolset(first.entry):
                taken = first.name in found
                found[f"{first.name}-{first.client}" if taken else first.name] = first
        return found

    def _by_key(self) -> dict[str, list[FoundServer]]:
        found: dict[str, list[FoundServer]] = defaultdict(list)
        for server in self.servers:
            found[server.key or ""].append(server)
        return found


def is_same(one: object, other: object) -> bool:
    """True if two entries start the same program, or are at the same address; options of ours may differ."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one == other
    left, right = cast("dict[str, object]", one), cast("dict[str, object]", other)
    return all(left.get(key) == right.get(key) for key in _SAME)


def discovered(machine: clients.Machine) -> Discovery:
    servers, faults = list[FoundServer](), list[str]()
    for name, client in clients.CLIENTS.items():
        # If the project is the home folder, both scopes may have the same file.
        files: dict[Path, clients.Scope] = {
            client.locations[scope](machine): scope for scope in _SCOPES if scope in client.locations
        }
        for path, scope in files.items():
            try:
                servers += _servers(name, scope, path, machine)
            except ConfigError as error:
                faults.append(str(error))
    return Discovery(tuple(servers), tuple(faults))


def _servers(
    client: clients.ClientName, scope: clients.Scope, path: Path, machine: clients.Machine
) -> Iterator[FoundServer]:
    text = read_regular(path)
    if text is None:
        return
    program = clients.CLIENTS[client]
    entries = program.format.entries(without_mark(text), program.section, str(path))
    record = AdoptionRecord.read(path, machine)
    adopted = (
        {} if record is None else {key: one for key, one in record.entries.items() if key not in entries}
    )
    off = _off_by_name(program, path, entries, machine, strict=False)
    for name, entry in {**entries, **adopted}.items():
        if name in off and isinstance(entry, dict):
            entry = {**cast("dict[str, object]", entry), "disabled": True}
        found = _server(client, scope, path, name, entry, behind=name in adopted)
        if found is not None:
            yield found


def _off_by_name(
    client: clients.ClientProgram,
    path: Path,
    entries: Mapping[str, object],
    machine: clients.Machine,
    *,
    strict: bool,
) -> dict[str, str]:
    """The servers of a client's file that its keys, in this file or another, switch off, and each place.

    Raises:
        ConfigError: a file cannot be read; only if `strict`.
    """
    found: dict[str, str] = {}
    others = (*(where(machine) for where in client.locations.values()), *client.settings(machine))
    for file in dict.fromkeys((path, *others)) if client.format is formats.JSON else ():
        try:
            table = decode(without_mark(read_regular(file) or "{}"), str(file))
        except ConfigError:
            if strict:
                raise
            continue
        for name, place in _named_off(table, entries, machine):
            found.setdefault(name, place + (f" of {file}" if file != path else ""))
    return found


def _named_off(
    table: object, servers: Mapping[str, object], machine: clients.Machine
) -> Iterator[tuple[str, str]]:
    """The servers that a file of a client switches off by name: Claude Code for a project, Copilot CLI."""
    known: dict[str, Any] = _typed(table, dict)
    yield from ((name, ".".join(steps)) for name, steps in switched_off(known, servers).items())
    denied: list[Any] = _typed(known.get("deniedMcpServers"), list)
    listed = [
        ("deniedMcpServers", [_typed(one, dict).get("serverName") for one in denied]),
        ("disabledMcpServers", _typed(known.get("disabledMcpServers"), list)),
    ]
    for folder in {str(machine.project), os.path.realpath(machine.project)}:
        own: dict[str, Any] = _typed(_typed(known.get("projects"), dict).get(folder), dict)
        keys = ("disabledMcpServers", "disabledMcpjsonServers")
        listed += [(f"projects.{folder}.{key}", _typed(own.get(key), list)) for key in keys]
    yield from ((name, place) for place, names in listed for name in servers if name in names)


def _typed(value: object, kind: type[Any]) -> Any:
    return value if isinstance(value, kind) else kind()


def _server(
    client: clients.ClientName, scope: clients.Scope, path: Path, name: str, entry: object, *, behind: bool
) -> FoundServer | None:
    if not isinstance(entry, dict):
        return FoundServer(client, scope, path, name, None, "its entry is no object")
    try:
        made = clients.CLIENTS[client].form.standard(cast("dict[str, Any]", entry))
    except clients.KeptByClientError as kept:
        return FoundServer(client, scope, path, name, None, str(kept))
    if made is None:
        return None
    off = made.get("disabled") is True or made.get("enabled") is False
    note = "disabled" if off else "mcp-toolset" if starts_mcp_toolset(made) else ""
    return FoundServer(client, scope, path, name, made, note, behind)


HUB_NAME: Final = "mcp-toolset"  # the name of the one entry
_SERVERS: Final = "mcpServers"
_DEFERRED: Final = {"deferred": True}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_OF_CLIENT: Final = {
    "${input:": "it refers to an input that only the client asks for",
    "${command:": "it refers to a command of the editor",
    "${workspaceFolder": "it refers to the folder that is open in the client",
}


def _new_hub() -> str:
    """The text of a hub without servers."""
    fit = part("fit")
    return json.dumps({_SERVERS: {}, "toolset": _DEFERRED if fit is None else fit.SECTION}, indent=2) + "\n"


@dataclass(frozen=True, slots=True)
class Adoption:
    """The plan to adopt a client's servers. The texts contain secrets, so `repr` omits them."""

    path: Path
    before: str = field(repr=False)
    after: str = field(repr=False)
    diff: str = field(repr=False)
    hub: Path
    hub_before: str | None = field(repr=False)
    hub_after: str = field(repr=False)
    names: Mapping[str, str]  # the names of the servers in the hub's file, by their names in the client
    left: Mapping[str, str]  # why servers stay in the client's file, by name
    entries: Mapping[str, object] = field(repr=False)


def plan_adoption(
    client: clients.ClientName, machine: clients.Machine, scope: clients.Scope | None = None
) -> Adoption:
    program = clients.CLIENTS[client]
    chosen, path = clients.locate(program, scope, machine)
    before = read_regular(path)
    if before is None:
        why = f"no such file; {program.title} has no servers there to adopt"
        raise ConfigError(f"{path}: {why}; see mcp-toolset list --clients")
    text = without_mark(before)
    # The user's own file, or one beside the project's other files.
    own = machine.application_data / "mcp-toolset" / f"{client}.json"
    hub = machine.project / "mcp-toolset.json" if chosen == "project" else own
    entries = program.format.entries(text, program.section, str(path))
    off = _off_by_name(program, path, entries, machine, strict=True)
    taken, left = _adoptable(program, entries, off, chosen)
    if not taken:
        why = "; ".join(f"{name} stays: {reason}" for name, reason in left.items())
        known = HUB_NAME in entries
        cause = (
            "its servers are adopted already" if known else f"has no server to adopt{f' ({why})' * bool(why)}"
        )
        mend = (
            f"`mcp-toolset uninstall {client} --adopted` brings them back"
            if known
            else "add one in the client first"
        )
        raise ConfigError(f"{path}: {cause}; {mend}")
    hub_before = read_regular(hub)
    hub_after, names = _with_servers(hub_before or _new_hub(), taken, hub)
    after = text
    for name in taken:
        after = program.format.without_entry(after, program.section, name, str(path))
    ours = program.form.ours(_command(chosen, machine, program, hub), {}) | dict(program.always)
    after = marked_as(program.format.with_entry(after, program.section, HUB_NAME, ours, str(path)), before)
    return Adoption(
        path=path,
        before=before,
        after=after,
        diff=difference(path, before, after, program, HUB_NAME),
        hub=hub,
        hub_before=hub_before,
        hub_after=hub_after,
        names=names,
        left=left,
        entries={name: entries[name] for name in taken},
    )


def adopt(plan: Adoption, client: clients.ClientName, machine: clients.Machine) -> None:
    earlier = AdoptionRecord.read(plan.path, machine)
    if earlier is not None and earlier.is_applied(plan.before):
        # Servers were added to the client after its first adoption; the record keeps the first original.
        known = _names_beside(earlier.entries, plan.entries)
        entries = {known[name]: entry for name, entry in plan.entries.items()}
        names = {known[name]: own for name, own in plan.names.items()}
        record = earlier.extended(entries, names, plan.after)
    else:
        adopted = (_digest(plan.after),)
        record = AdoptionRecord(
            client, str(plan.path), plan.before, adopted, str(plan.hub), plan.names, plan.entries
        )
    record.write(machine)
    if plan.hub_after != plan.hub_before:
        replace_text(plan.hub, plan.hub_before, plan.hub_after, 0o600)
    replace_text(plan.path, plan.before, plan.after, 0o600)


@dataclass(frozen=True, slots=True)
class Restoration:
    """The plan to bring adopted servers back; if `exact`, the client's file is restored byte for byte."""

    path: Path
    before: str | None = field(repr=False)
    after: str = field(repr=False)
    exact: bool
    diff: str = field(repr=False)
    record: AdoptionRecord = field(repr=False)


def plan_restoration(
    client: clients.ClientName, machine: clients.Machine, scope: clients.Scope | None = None
) -> Restoration:
    program = clients.CLIENTS[client]
    _, path = clients.locate(program, scope, machine)
    record = AdoptionRecord.read(path, machine)
    if record is None:
        why = "its servers were not adopted, so nothing can be restored"
        raise ConfigError(f"{path}: {why}; see mcp-toolset list --clients")
    before = read_regular(path)
    exact = before is None or record.is_unchanged(before)
    after = record.original if exact else _put_back(program, before or "", record, path)
    return Restoration(path, before, after, exact, difference(path, before, after, program, HUB_NAME), record)


def restore(plan: Restoration, machine: clients.Machine) -> list[str]:
    """Carry out a plan; return the servers that stay in the hub's file, because they were edited there."""
    if plan.after != plan.before:
        replace_text(plan.path, plan.before, plan.after, 0o600)
    stay = _empty_hub(plan.record, machine)
    plan.record.remove(machine)
    return stay


def _empty_hub(record: AdoptionRecord, machine: clients.Machine) -> list[str]:
    """Remove the servers of a record from the hub's file, and the file itself if nothing else is in it."""
    hub = record.hub
    before = read_regular(hub)
    if before is None:
        return []
    try:
        formats.JSON.entries(before, _SERVERS, str(hub))
    except ConfigError:
        return list(record.names.values())  # the client's file is as it was; this file is the user's to mend
    text, stay = before, list[str]()
    shared = {
        name
        for other in AdoptionRecord.read_all(machine)
        if other.hub == hub and other.path != record.path
        for name in other.names.values()
    }
    for name, own in record.names.items():
        present = formats.JSON.entries(text, _SERVERS, str(hub)).get(own)
        if present is None or own in shared:
            continue
        if present == clients.CLIENTS[record.client].form.standard(record.entries[name]):
            text = formats.JSON.without_entry(text, _SERVERS, own, str(hub))
        else:
            stay.append(own)
    if decode(text, str(hub)) in ({_SERVERS: {}, "toolset": _DEFERRED}, decode(_new_hub(), str(hub))):
        hub.unlink(missing_ok=True)
    elif text != before:
        replace_text(hub, before, text, 0o600)
    return stay


def _command(
    scope: clients.Scope, machine: clients.Machine, client: clients.ClientProgram, hub: Path
) -> tuple[str, ...]:
    portable = scope == "project"
    writing = PathWriter(machine.project, machine.project if portable else None, client.workspace)
    return (*launcher(machine, portable=portable), "serve", writing.path(hub))


def _adoptable(
    client: clients.ClientProgram, entries: Mapping[str, object], off: Mapping[str, str], scope: clients.Scope
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The entries to adopt, in the form of an `mcpServers` file, and the reasons why others stay."""
    taken: dict[str, dict[str, Any]] = {}
    left: dict[str, str] = {}
    for name, entry in entries.items():
        if not name.strip():
            left[name] = "it has no name"
            continue
        if not isinstance(entry, dict):
            left[name] = "its entry is no object"
            continue
        try:
            made = client.form.standard(cast("dict[str, Any]", entry))
        except clients.KeptByClientError as kept:
            left[name] = str(kept)
            continue
        if made is None:
            continue
        if starts_mcp_toolset(made):
            if name != HUB_NAME:
                left[name] = "it is an mcp-toolset already"
        elif reason := _protected(made, off.get(name)) or _why_kept({name: made}, scope):
            left[name] = reason
        else:
            taken[name] = made
    return taken, left


def _protected(entry: Mapping[str, object], off: str | None) -> str:
    """The protection of the client that would be lost; `off` is the place that switches the server off."""
    if off:
        return f"the client has switched it off, in {off}"
    return "the client runs it in a sandbox" if entry.get("sandboxEnabled") else ""


def _why_kept(entry: object, scope: clients.Scope) -> str:
    words = list(_texts(entry))
    if any(_SURROGATE.search(word) for word in words):
        return "it has half of a character (a lone surrogate), which no file can hold"
    for reference, reason in _OF_CLIENT.items():
        if scope == "project" and reference == "${workspaceFolder":
            continue
        if any(reference in word for word in words):
            return reason
    return ""


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        value = [*table, *table.values()]
    inside = cast("list[object]", value) if isinstance(value, list) else []
    return [text for each in inside for text in _texts(each)]


def _with_servers(text: str, taken: Mapping[str, dict[str, Any]], hub: Path) -> tuple[str, dict[str, str]]:
    names: dict[str, str] = {}
    for name, entry in taken.items():
        present = formats.JSON.entries(text, _SERVERS, str(hub))
        own = _free_name(name, entry, present)
        names[name] = own
        if own not in present:
            text = formats.JSON.with_entry(text, _SERVERS, own, entry, str(hub))
    return text, names


def _names_beside(present: Mapping[str, object], added: Mapping[str, object]) -> dict[str, str]:
    taken, names = dict(present), dict[str, str]()
    for name, entry in added.items():
        names[name] = _free_name(name, entry, taken)
        taken[names[name]] = entry
    return names


def _free_name(name: str, entry: object, present: Mapping[str, object]) -> str:
    wanted, number = name, 1
    while wanted in present and not is_same(present[wanted], entry):
        number += 1
        wanted = f"{name}-{number}"
    return wanted


def _put_back(client: clients.ClientProgram, text: str, record: AdoptionRecord, path: Path) -> str:
    plain = without_mark(text)
    plain = client.format.without_entry(plain, client.section, HUB_NAME, str(path))
    present = client.format.entries(plain, client.section, str(path))
    for name, own in _names_beside(present, record.entries).items():
        if own not in present:
            plain = client.format.with_entry(plain, client.section, own, record.entries[name], str(path))
    return marked_as(plain, text)
