"""`mcp-toolset registry` and `add`: find a server in a registry, and write it into a configuration."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mcp_toolset._records import dataclass
from mcp_toolset.cli.options import agreed, dry_run_option, examples, json_option
from mcp_toolset.cli.output import Column, Output, answering, complain, one_line
from mcp_toolset.errors import ConfigError, TargetError
from mcp_toolset.tools.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.extensions.registries.entry import InputValues, InstallOption
    from mcp_toolset.extensions.registries.server_json import Input, ServerJson

__all__ = ["add_command", "registry_command"]

VARIABLE: Final = "MCP_TOOLSET_REGISTRY"
"""The environment variable with the address of a registry."""

_ABOUT: Final = 200
"""Characters that are shown of a description."""

_NEW: Final = '{\n  "mcpServers": {}\n}\n'
_COLUMNS: Final = (
    Column("server"),
    Column("version"),
    Column("ways"),
    Column("description", prose=True, label=False),
)

_registry_option: Final = click.option(
    "--registry",
    "address",
    metavar="URL",
    help=f"The address of the registry; else {VARIABLE}, or `toolset.registry_url` of the file.",
)
_config_option: Final = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The configuration; by default the one of this folder, or a new mcp.json.",
)


@click.command(
    "registry",
    epilog=examples(
        "mcp-toolset registry weather --registry https://registry.example.com",
        "mcp-toolset registry weather --json",
    ),
)
@click.argument("words", nargs=-1, required=True)
@_registry_option
@_config_option
@click.option(
    "--limit",
    type=click.IntRange(1, 100),
    default=20,
    show_default=True,
    help="The largest number of servers.",
)
@json_option
def registry_command(
    words: Sequence[str], address: str | None, config: Path | None, limit: int, as_json: bool
) -> int:
    """Search the servers of a registry by their names; `mcp-toolset add` adds one."""
    from mcp_toolset.extensions.registries.entry import install_options

    registry = _registry(address, _file(config))
    with answering(as_json=as_json) as output:
        servers = registry.search(" ".join(words), limit)
        rows = [
            (server.name, server.version, _ways(install_options(server)), server.description)
            for server in servers
        ]
        if as_json:
            keys = ("name", "version", "ways", "description")
            output.json([dict(zip(keys, row, strict=True)) for row in rows])
        else:
            if rows:
                output.table(_COLUMNS, rows)
            output.say(f"{counted(len(rows), 'server')} of {registry.shown}")
    return 0 if rows else 1


@click.command(
    "add",
    epilog=examples(
        "mcp-toolset add com.example/weather --registry https://registry.example.com",
        "mcp-toolset add ./server.json --set UNITS=metric --yes",
        "mcp-toolset add com.example/weather --via npm --dry-run",
    ),
)
@click.argument("name")
@_registry_option
@_config_option
@click.option("--as", "own", metavar="NAME", help="The server's name in the configuration.")
@click.option("--release", metavar="VERSION", help="The version; by default the latest.")
@click.option(
    "--via", metavar="WAY", help="How to have it: http, sse, npm, pypi or oci; by default the first."
)
@click.option(
    "--set", "given", metavar="NAME=VALUE", multiple=True, help="The value of an input; repeatable."
)
@click.option("--yes", is_flag=True, help="Add it without a question.")
@dry_run_option
@json_option
def add_command(
    name: str,
    address: str | None,
    config: Path | None,
    own: str | None,
    release: str | None,
    via: str | None,
    given: Sequence[str],
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Add the server NAME of a registry, or of a server.json file, to the configuration.

    It shows what would run and what would be sent, and asks. A needed value is asked for,
    or left as a reference to an environment variable; secrets go into the keyring. Nothing is started.
    """
    file = _file(config)
    server, origin = _described(name, address, file, release)
    asks = not (yes or dry_run or as_json) and sys.stdin.isatty()
    addition = _Addition.of(server, own, via, given, asks=asks)
    with answering(as_json=as_json) as output:
        present = _is_present(file, addition)
        if not as_json:
            _show(server, origin, addition, output)
        question = f"Add {addition.name} to {file}?"
        added = not present and not dry_run and agreed(question, yes=yes, as_json=as_json)
        if added:
            _write(file, addition)
        if as_json:
            facts = {"server": server.name, "version": server.version, "from": origin, "file": str(file)}
            facts |= {"name": addition.name, "entry": addition.entry, "unset": dict(addition.answers.unset)}
            output.json({**facts, "added": added})
        elif added:
            _tell_added(file, addition, output)
        else:
            outcome = "is there already" if present else "would be added" if dry_run else "was not added"
            output.say(f"{file}: {addition.name} {outcome}")
    return 0


@dataclass(frozen=True, slots=True)
class _Addition:
    """The entry of a server, with the option and the answers that it is made of."""

    name: str
    option: InstallOption
    entry: dict[str, Any]
    answers: InputValues

    @classmethod
    def of(
        cls, server: ServerJson, own: str | None, via: str | None, given: Sequence[str], *, asks: bool
    ) -> _Addition:
        from mcp_toolset.extensions.registries.entry import InputValues, entry_of, is_reference

        if server.status == "deleted":
            raise TargetError(f"{server.name}: was deleted from the registry; the server was not added")
        if server.status != "active":
            complain(f"{server.name}: the registry says that it is {server.status}")
        option, name = _option(server, via), _own_name(own or server.short)
        answers = InputValues(name, _given(given), _ask if asks else None)
        entry = entry_of(option, answers)
        if unknown := [key for key in answers.given if key not in answers.asked]:
            known = f"it has {', '.join(answers.asked)}" if answers.asked else "it has none"
            raise TargetError(f"--set {unknown[0]}: {server.name} has no such input; {known}")
        for key, spec in answers.asked.items():
            if spec.is_secret and not all(map(is_reference, answers.given.get(key, ()))):
                keyring_name = answers.keyring_name(key)
                raise TargetError(
                    f"--set {key}: a secret is no argument, as others can read command lines; keep it with "
                    f"`mcp-toolset secret set {keyring_name}`, and write '{key}=${{keyring:{keyring_name}}}'"
                )
        return cls(name, option, entry, answers)


def _file(config: Path | None) -> Path:
    from mcp_toolset.config.keys import USUAL_FILES

    return config or next((path for path in map(Path, USUAL_FILES) if path.is_file()), Path("mcp.json"))


def _registry(address: str | None, file: Path) -> Any:
    from mcp_toolset.extensions.registries.registry_api import Registry

    url = address or os.environ.get(VARIABLE) or _configured(file)
    if not url:
        raise TargetError(
            f"no registry is named; give --registry URL, set {VARIABLE}, or write `registry_url` into the "
            f"section `toolset` of {file}"
        )
    return Registry(url)


def _configured(file: Path) -> str:
    from mcp_toolset.config import load_config

    if not file.is_file():
        return ""
    setting = load_config(file, lookups="skip").extensions.get("registry_url")
    return "" if setting is None else setting.url


def _described(name: str, address: str | None, file: Path, release: str | None) -> tuple[ServerJson, str]:
    """The description of a server, and its origin: a file or a registry."""
    if name.endswith(".json"):
        return _in_file(name, release), name
    registry = _registry(address, file)
    return _in_registry(name, registry, release), registry.shown


def _in_file(path: str, release: str | None) -> ServerJson:
    from mcp_toolset.extensions.registries.server_json import MOST_BYTES, ServerJson, decoded

    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as fault:
        raise TargetError(f"{path}: cannot be read ({fault.strerror}); check the path") from None
    if len(data) > MOST_BYTES:
        raise TargetError(f"{path}: has more than {MOST_BYTES} bytes, too many for a server.json")
    server = ServerJson.of(decoded(data, path), path)
    if release not in (None, server.version):
        raise TargetError(f"{path}: is of version {server.version or 'none'}, and not {release}")
    return server


def _in_registry(name: str, registry: Any, release: str | None) -> ServerJson:
    listed: list[ServerJson] = registry.search(name, 100, release or "latest")
    exact = [server for server in listed if server.name == name]
    exact = exact or [server for server in listed if server.name.rpartition("/")[2] == name]
    names = {server.name for server in exact}
    if len(names) > 1:
        raise TargetError(
            f"{name}: {counted(len(names), 'server')} have this name: {', '.join(sorted(names)[:9])}"
        )
    if not exact:
        near = ", ".join(dict.fromkeys(server.name for server in listed[:5]))
        mend = f"it has {near}" if near else "search with `mcp-toolset registry WORDS`"
        raise TargetError(f"{name}: {registry.shown} has no such server; {mend}")
    if release is None:
        # A registry that ignores the parameter `version=latest` lists every version.
        return next((server for server in exact if server.is_latest), exact[0])
    # A registry may ignore the parameter `version`, and list other versions.
    server = next((server for server in exact if server.version == release), None)
    if server is None:
        others = ", ".join(dict.fromkeys(server.version[:80] for server in exact[:5]))
        raise TargetError(f"{name}: {registry.shown} has no version {release} of it, but {others}")
    return server


def _option(server: ServerJson, via: str | None) -> InstallOption:
    """The first option that can be installed, of the way that the user has chosen."""
    from mcp_toolset.extensions.registries.entry import install_options

    options = install_options(server)
    chosen = [option for option in options if via in (None, option.way)]
    if usable := next((option for option in chosen if not option.refusal), None):
        return usable
    if chosen:
        raise TargetError(f"{server.name}: {'; '.join(dict.fromkeys(option.refusal for option in chosen))}")
    known = ", ".join(dict.fromkeys(option.way for option in options))
    raise TargetError(
        f"{server.name}: cannot be had by {via or 'any way'}; it has {known or 'neither package nor address'}"
    )


def _ways(options: Sequence[InstallOption]) -> str:
    """The ways of a server; those that are refused are in brackets."""
    return ", ".join(
        dict.fromkeys(option.way if not option.refusal else f"({option.way})" for option in options)
    )


def _own_name(name: str) -> str:
    import re

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise TargetError(
            f"{name[:80]!r} cannot be the name of an entry; give one of letters, digits, _ and - with --as"
        )
    return name


def _given(pairs: Sequence[str]) -> Mapping[str, list[str]]:
    values: dict[str, list[str]] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise click.UsageError("--set: is written as NAME=VALUE")
        values.setdefault(name, []).append(value)
    return values


def _ask(name: str, spec: Input) -> str | None:
    choices = f"[{', '.join(spec.choices)}]" if spec.choices else ""
    about = " ".join(filter(None, (spec.description[:_ABOUT], choices)))
    text = one_line(f"{name} ({about})" if about else name)
    default = "" if spec.default is None or spec.is_secret else one_line(spec.default)
    answer: str = click.prompt(
        text, default=default, hide_input=spec.is_secret, show_default=bool(default), err=True
    )
    # A default is a text of the description, not of the user.
    return None if answer == default else answer


def _is_present(file: Path, addition: _Addition) -> bool:
    """True if the file has this entry already.

    Raises:
        ConfigError: the file has another entry of the same name.
    """
    from mcp_toolset.cli.formats import entries
    from mcp_toolset.cli.replacing import read_regular

    text = read_regular(file)
    present: Mapping[str, object] = (
        {} if text is None else entries(text.removeprefix("\ufeff"), _section(text, file), str(file))
    )
    if addition.name not in present:
        return False
    if present[addition.name] != addition.entry:
        raise ConfigError(
            f"{file}: has another server {addition.name!r}; give this one another name with --as"
        )
    return True


def _section(text: str, file: Path) -> str:
    from mcp_toolset.cli.formats import entries

    plain = text.removeprefix("\ufeff")
    return next((key for key in ("mcpServers", "servers") if entries(plain, key, str(file))), "mcpServers")


def _show(server: ServerJson, origin: str, addition: _Addition, output: Output) -> None:
    # Foreign text is printed on one line, so it cannot imitate the lines below.
    about = one_line(f"{server.version}: {server.title or server.description}")[:_ABOUT]
    output.say(f"{server.name} {about}".rstrip(": "))
    output.say(f"  from {origin}, by {addition.option.way}")
    entry = addition.entry
    if "command" in entry:
        output.say(f"  runs {json.dumps([entry['command'], *entry['args']], ensure_ascii=False)}")
    else:
        output.say(f"  reaches {entry['url']}")
    for key, verb in (("env", "sets"), ("headers", "sends")):
        for name, value in entry.get(key, {}).items():
            output.say(f"  {verb} {name}: {value}")


def _write(file: Path, addition: _Addition) -> None:
    from mcp_toolset.cli.formats import with_entry
    from mcp_toolset.cli.replacing import held, read_regular, replace_text
    from mcp_toolset.config.jsonc import marked_as, without_mark
    from mcp_toolset.security.named_secrets import NamedSecrets
    from mcp_toolset.security.vault import Vault

    with held(file):
        before = read_regular(file)
        text = _NEW if before is None else without_mark(before)
        after = with_entry(text, _section(text, file), addition.name, addition.entry, str(file))
        for name, value in addition.answers.secrets.items():
            NamedSecrets(Vault()).set(name, value)
        replace_text(file, before, marked_as(after, before), 0o600)


def _tell_added(file: Path, addition: _Addition, output: Output) -> None:
    output.say(f"{addition.name} is in {file}; see its tools with: mcp-toolset list {file}")
    for name, description in addition.answers.unset.items():
        about = one_line(description)[:_ABOUT]
        output.say(f"  set the variable {name} first{f' ({about})' if about else ''}")
