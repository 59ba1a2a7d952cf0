"""`plan_install`, `plan_uninstall`, `apply`: add a target to a client's configuration, or remove it.

Planning only reads: a plan shows its difference, so a dry run is a plan that is not applied. Applying writes
a backup, then replaces the file in one step; the rest of the file is unchanged.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import cast

import click

from mcp_toolset._records import dataclass
from mcp_toolset.cli.installers.adoption_record import AdoptionRecord
from mcp_toolset.cli.installers.clients import CLIENTS, Client, ClientName, Machine, Scope, locate
from mcp_toolset.cli.installers.entry import Writing, launcher
from mcp_toolset.cli.installers.replacing import read_regular, replace_text
from mcp_toolset.config.jsonc import marked_as, without_mark
from mcp_toolset.config.loops import way_back
from mcp_toolset.errors import ConfigError
from mcp_toolset.security.facts import without_credentials
from mcp_toolset.upstream.secrets import Secrets, secret_arguments

__all__ = ["InstallPlan", "apply", "difference", "plan_install", "plan_uninstall", "starts_mcp_toolset"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """The change of one file. The texts contain other servers' secrets, so `repr` omits them.

    Attributes:
        path: The client's file.
        before: The file's text; None if the file does not exist.
        after: The text after the change; None if the file does not exist then either.
        diff: The unified difference to show, with what may be secret hidden.
        private: Whether only the owner may read the file, if it is created.
    """

    path: Path
    before: str | None = field(repr=False)
    after: str | None = field(repr=False)
    diff: str = field(repr=False)
    private: bool = True

    @property
    def changed(self) -> bool:
        """Whether applying the plan would write anything."""
        return self.before != self.after


def plan_install(
    client: ClientName,
    name: str,
    target_args: Sequence[str],
    *,
    home: Path,
    platform: str,
    environ: Mapping[str, str],
    project: Path,
    scope: Scope | None = None,
    env: Mapping[str, str] | None = None,
    force: bool = False,
    command: Sequence[str] | None = None,
    cwd: Path | None = None,
    options: Sequence[str | Path] = (),
) -> InstallPlan:
    """Plan that `client` starts `mcp-toolset serve TARGET …` under `name`.

    Args:
        client: The program whose file is changed.
        name: The key of the entry: letters, digits, `_` and `-`, as the strictest client requires.
        target_args: TARGET first, then the options of `serve`; or `--` and a command.
        home: The user's home folder.
        platform: As `sys.platform` has it.
        environ: The environment, for the places that depend on it.
        project: The folder whose file the project scope means.
        scope: `project` or `user`; None is the client's default.
        env: Variables for the server, written into the file.
        force: Replace a different entry of the same name.
        command: The command that starts mcp-toolset; found if None.
        cwd: What relative paths in `target_args` are relative to; the project if None.
        options: Options of `serve` for the entry; files among them as paths.
    """
    if not _NAME.fullmatch(name):
        raise click.UsageError(
            f"--name: {name!r} cannot name a server; use up to 64 letters, digits, _ and -"
        )
    machine, folder = Machine(home, platform, environ, project), (cwd or project).absolute()
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
    client: ClientName,
    name: str,
    *,
    home: Path,
    platform: str,
    environ: Mapping[str, str],
    project: Path,
    scope: Scope | None = None,
    force: bool = False,
) -> InstallPlan:
    """Plan to remove `name` from the client's file; no change if it is missing. See `plan_install`."""
    chosen, path = locate(CLIENTS[client], scope, Machine(home, platform, environ, project))
    section, before, form = CLIENTS[client].section, read_regular(path), CLIENTS[client].format
    text = without_mark(before or "")
    present = form.entries(text, section, str(path))
    if name not in present:
        _check_not_adopted(client, name, path, Machine(home, platform, environ, project))
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
            f"all servers back with `mcp-toolset restore {client}`"
        )


def apply(plan: InstallPlan) -> Path | None:
    """Carry out a plan; return the path of the backup, None if there was no file.

    The file is replaced in one step and keeps its mode; of a symbolic link, the target is replaced.
    """
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
    """Whether an entry was made by `install`."""
    if not isinstance(entry, dict):
        return False
    table = cast("dict[str, object]", entry)
    words = [table.get("command") or table.get("cmd"), *cast("list[object]", table.get("args") or [])]
    program = re.split(r"[/\\]", str(words[0]))[-1]
    return program.startswith("mcp-toolset") or "mcp_toolset.cli.main" in words[:3]


def _plan(
    path: Path, before: str | None, after: str | None, client: Client, name: str, scope: Scope
) -> InstallPlan:
    return InstallPlan(path, before, after, difference(path, before, after, client, name), scope == "user")


def difference(path: Path, before: str | None, after: str | None, client: Client, name: str) -> str:
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


def _secrets_of(text: str | None, client: Client, name: str) -> Iterator[str]:
    """The arguments of entries that may be secret, and of other entries the variables."""
    for server, entry in client.format.entries(without_mark(text or ""), client.section, "").items():
        table = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
        arguments = table.get("args")
        words = cast("list[object]", arguments) if isinstance(arguments, list) else []
        yield from secret_arguments([str(word) for word in words])
        for key in () if server == name else ("env", "envs", "headers"):
            given = table.get(key)
            yield from map(str, cast("dict[str, object]", given).values()) if isinstance(given, dict) else ()
