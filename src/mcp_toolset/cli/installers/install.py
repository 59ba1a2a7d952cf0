"""Add a target to a client's configuration, or remove it: `plan_install`, `plan_uninstall`, `apply`.

Planning only reads: a plan shows its difference, so a dry run is a plan that is not applied. Applying writes
a backup, then replaces the file in one step; the rest of the file is unchanged.

A user's file gets absolute paths, because clients start servers in another folder and with another PATH. A
project's file is made for version control, so nothing in it may depend on one machine: paths are relative to
the project's folder, which each client names in its own way (`ClientProgram.workspace`), and the program is
given by its name.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Final, cast

import click

from mcp_toolset._records import dataclass, replace
from mcp_toolset.cli.installers.clients import CLIENTS, ClientName, ClientProgram, Machine, Scope, locate
from mcp_toolset.cli.installers.replacing import mend_of, read_regular, replace_text
from mcp_toolset.concurrency.atomic_file import replace_file
from mcp_toolset.config.hub import way_back
from mcp_toolset.config.jsonc import marked_as, without_mark
from mcp_toolset.errors import ConfigError, TargetError
from mcp_toolset.security.facts import without_credentials
from mcp_toolset.upstream.secrets import Secrets, secret_arguments

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class AdoptionRecord:
    """One client's file that was adopted. It contains secrets of servers, so only the owner can read it."""

    client: ClientName
    path: str
    original: str = field(repr=False)  # the file's text before the first adoption
    adopted: tuple[str, ...]  # digests of the file's text after each adoption, the last one last
    hub_path: str
    names: Mapping[str, str]
    entries: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(
        cls,
        client: ClientName,
        path: Path,
        before: str,
        after: str,
        hub: Path,
        names: Mapping[str, str],
        entries: Mapping[str, object],
    ) -> AdoptionRecord:
        return cls(client, str(path), before, (_digest(after),), str(hub), names, entries)

    @classmethod
    def read(cls, path: Path, machine: Machine) -> AdoptionRecord | None:
        file = _file(path, machine)
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
    def read_all(cls, machine: Machine) -> list[AdoptionRecord]:
        paths = [_path_in(file) for file in _records(machine)]
        return [record for path in paths if path and (record := cls.read(Path(path), machine)) is not None]

    @property
    def hub(self) -> Path:
        return Path(self.hub_path)

    def is_applied(self, text: str) -> bool:
        return text != self.original

    def is_unchanged(self, text: str) -> bool:
        """True if the client's file is as the only adoption has left it, or as it was before."""
        return text == self.original or (len(self.adopted) == 1 and _digest(text) == self.adopted[-1])

    def extended(self, entries: Mapping[str, object], names: Mapping[str, str], after: str) -> AdoptionRecord:
        """The record with further servers of the same file, whose names are not in it yet."""
        return replace(
            self,
            adopted=(*self.adopted, _digest(after)),
            names={**self.names, **names},
            entries={**self.entries, **entries},
        )

    def write(self, machine: Machine) -> None:
        file = _file(Path(self.path), machine)
        data = json.dumps({"version": _VERSION, **asdict(self)})
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(file, data.encode())
        except OSError as error:
            raise ConfigError(
                f"{file}: cannot be written ({error.strerror}); nothing was changed, {mend_of(error)}"
            ) from None

    def remove(self, machine: Machine) -> None:
        _file(Path(self.path), machine).unlink(missing_ok=True)


def _folder(machine: Machine) -> Path:
    return machine.application_data / "mcp-toolset" / "adopted"


def _records(machine: Machine) -> list[Path]:
    return sorted(_folder(machine).glob("*.json"))


def _file(path: Path, machine: Machine) -> Path:
    """The record of a client's file, found by the real path; by the path if a link was replaced since."""
    name = hashlib.sha256(os.path.realpath(path).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    usual = _folder(machine) / f"{name}.json"
    if usual.exists():
        return usual
    return next((file for file in _records(machine) if _path_in(file) == str(path)), usual)


def _path_in(file: Path) -> str | None:
    """The path of the client's file that a record is of; `None` if the record is damaged."""
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
class Writing:
    """How paths are written in one file: absolute, or relative to the project's folder (`workspace`)."""

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
        """TARGET and what follows it, and the variables that they need.

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


def launcher(machine: Machine, *, portable: bool = False, python: str = sys.executable) -> tuple[str, ...]:
    """The command of this installation: absolute, or, if portable, a name that other machines may have."""
    script = "mcp-toolset.exe" if machine.platform == "win32" else "mcp-toolset"
    path = machine.environ.get("PATH", "")
    if portable:
        return ("mcp-toolset",)
    beside = Path(python).parent / script
    if beside.is_file():
        return (os.path.abspath(beside),)
    found = shutil.which(script, path=path)
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
    client: ClientName,
    name: str,
    target_args: Sequence[str],
    *,
    machine: Machine,
    scope: Scope | None = None,
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
    chosen, path = locate(CLIENTS[client], scope, machine)
    _check_no_loop(Writing(folder), target_args, path)
    writing = Writing(folder, project, CLIENTS[client].workspace) if chosen == "project" else Writing(folder)
    arguments, needed = writing.target(target_args)
    program = command or launcher(machine, portable=chosen == "project")
    start = (*program, "serve", *writing.options(options), *arguments)
    entry = CLIENTS[client].entry(start, {**needed, **(env or {})})
    section, before, form = CLIENTS[client].section, read_regular(path), CLIENTS[client].format
    text = without_mark(before or "")
    present = form.entries(text, section, str(path)).get(name)
    if present == entry:
        return _plan(path, before, before, CLIENTS[client], name, chosen)
    if present is not None and not force:
        raise ConfigError(f"{path}: {section}.{name}: another server; choose another name, or use --force")
    after = form.with_entry(text, section, name, entry, str(path))
    return _plan(path, before, marked_as(after, before), CLIENTS[client], name, chosen)


def plan_uninstall(
    client: ClientName, name: str, *, machine: Machine, scope: Scope | None = None, force: bool = False
) -> InstallPlan:
    chosen, path = locate(CLIENTS[client], scope, machine)
    section, before, form = CLIENTS[client].section, read_regular(path), CLIENTS[client].format
    text = without_mark(before or "")
    present = form.entries(text, section, str(path))
    if name not in present:
        _check_not_adopted(client, name, path, machine)
    if before is None or name not in present:
        return _plan(path, before, before, CLIENTS[client], name, chosen)
    if not force and not starts_mcp_toolset(present[name]):
        raise ConfigError(f"{path}: {section}.{name}: not a server of mcp-toolset; use --force to remove it")
    after = form.without_entry(text, section, name, str(path))
    return _plan(path, before, marked_as(after, before), CLIENTS[client], name, chosen)


def _check_not_adopted(client: ClientName, name: str, path: Path, machine: Machine) -> None:
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


def _check_no_loop(writing: Writing, target_args: Sequence[str], path: Path) -> None:
    """Refuse a target that would serve the file it is installed into, directly or through other files."""
    arguments, _ = writing.target(target_args)
    way = way_back(("mcp-toolset", "serve", *arguments), str(writing.folder), path)
    if way:
        raise ConfigError(
            f"{path}: the entry would serve the file that contains it ({' → '.join([str(path), *way])}), "
            "and each level would start the next; move the servers to a file of their own and install that"
        )


def starts_mcp_toolset(entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    table = cast("dict[str, object]", entry)
    words = [table.get("command") or table.get("cmd"), *cast("list[object]", table.get("args") or [])]
    program = re.split(r"[/\\]", str(words[0]))[-1]
    return program.startswith("mcp-toolset") or "mcp_toolset.cli.main" in words[:3]


def _plan(
    path: Path, before: str | None, after: str | None, client: ClientProgram, name: str, scope: Scope
) -> InstallPlan:
    return InstallPlan(path, before, after, difference(path, before, after, client, name), scope == "user")


def difference(path: Path, before: str | None, after: str | None, client: ClientProgram, name: str) -> str:
    """The unified difference of a client's file, with what may be secret of other entries hidden."""
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


def _secrets_of(text: str | None, client: ClientProgram, name: str) -> Iterator[str]:
    """The arguments of entries that may be secret, and of other entries the variables."""
    for server, entry in client.format.entries(without_mark(text or ""), client.section, "").items():
        table = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
        arguments = table.get("args")
        words = cast("list[object]", arguments) if isinstance(arguments, list) else []
        yield from secret_arguments([str(word) for word in words])
        for key in () if server == name else ("env", "envs", "headers"):
            given = table.get(key)
            yield from map(str, cast("dict[str, object]", given).values()) if isinstance(given, dict) else ()
