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
    from mcp_toolset.extensions.registries.entry import InputValues, InstallWay
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
    from mcp_toolset.extensions.registries.entry import offers

    registry = _registry(address, _file(config))
    with answering(as_json=as_json) as output:
        found = registry.search(" ".join(words), limit)
        rows = [(one.name, one.version, _ways(offers(one)), one.description) for one in found]
        if as_json:
            keys = ("name", "version", "ways", "description")
            output.json([dict(zip(keys, row, strict=True)) for row in rows])
        else:
            if rows:
                output.table(_COLUMNS, rows)
            output.say(f"{counted(len(rows), 'server')} of {registry.shown}")
    return 0 if found else 1


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
    server, place = _found(name, address, file, release)
    asks = not (yes or dry_run or as_json) and sys.stdin.isatty()
    wanted = _Addition.of(server, own, via, given, asks=asks)
    with answering(as_json=as_json) as output:
        there = _is_there(file, wanted)
        if not as_json:
            _show(server, place, file, wanted, output)
        asks_to = f"Add {wanted.name} to {file}?"
        added = not there and not dry_run and agreed(asks_to, yes=yes, as_json=as_json)
        if added:
            _write(file, wanted)
        if as_json:
            told = {"server": server.name, "version": server.version, "from": place, "file": str(file)}
            told |= {"name": wanted.name, "entry": wanted.entry, "unset": dict(wanted.answers.unset)}
            output.json({**told, "added": added})
        else:
            rest = "is there already" if there else "would be added" if dry_run else "was not added"
            _tell(file, wanted, output, "" if added else rest)
    return 0


@dataclass(frozen=True, slots=True)
class _Addition:
    """The entry that a server becomes, with the answers that it was made of."""

    name: str
    offer: InstallWay
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
        offer, name = _offer(server, via), _own_name(own or server.short)
        answers = InputValues(name, _given(given), _ask if asks else None)
        entry = entry_of(offer, answers)
        if unknown := [one for one in answers.given if one not in answers.asked]:
            known = f"it has {', '.join(answers.asked)}" if answers.asked else "it has none"
            raise TargetError(f"--set {unknown[0]}: {server.name} has no such input; {known}")
        for each, one in answers.asked.items():
            if one.is_secret and not all(map(is_reference, answers.given.get(each, ()))):
                kept = answers.keyring_name(each)
                raise TargetError(
                    f"--set {each}: a secret is no argument, as others can read command lines; keep it with "
                    f"`mcp-toolset secret set {kept}`, and write '{each}=${{keyring:{kept}}}'"
                )
        return cls(name, offer, entry, answers)


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
    stated = load_config(file, lookups="skip").extensions.get("registry_url")
    return "" if stated is None else stated.url


def _found(name: str, address: str | None, file: Path, release: str | None) -> tuple[ServerJson, str]:
    """The server of a name, and where it is from."""
    from mcp_toolset.extensions.registries.server_json import MOST_BYTES, ServerJson, decoded

    if name.endswith(".json"):
        try:
            with Path(name).open("rb") as described:
                data = described.read(MOST_BYTES + 1)
        except OSError as fault:
            raise TargetError(f"{name}: cannot be read ({fault.strerror}); check the path") from None
        if len(data) > MOST_BYTES:
            raise TargetError(f"{name}: has more than {MOST_BYTES} bytes, too many for a server.json")
        server = ServerJson.of(decoded(data, name), name)
        if release not in (None, server.version):
            raise TargetError(f"{name}: is of version {server.version or 'none'}, and not {release}")
        return server, name
    registry = _registry(address, file)
    listed = registry.search(name, 100, release or "latest")
    exact = [one for one in listed if one.name == name]
    exact = exact or [one for one in listed if one.name.rpartition("/")[2] == name]
    named = {one.name for one in exact}
    if len(named) > 1:
        raise TargetError(
            f"{name}: {counted(len(named), 'server')} have this name: {', '.join(sorted(named)[:9])}"
        )
    if not exact:
        near = ", ".join(dict.fromkeys(one.name for one in listed[:5]))
        mend = f"it has {near}" if near else "search with `mcp-toolset registry WORDS`"
        raise TargetError(f"{name}: {registry.shown} has no such server; {mend}")
    if release is not None:
        # A registry may not know the parameter, and list others.
        wanted = [one for one in exact if one.version == release]
        if not wanted:
            other = ", ".join(dict.fromkeys(one.version[:80] for one in exact[:5]))
            raise TargetError(f"{name}: {registry.shown} has no version {release} of it, but {other}")
        return wanted[0], registry.shown
    # A registry that does not know `version=latest` lists all of them.
    return next((one for one in exact if one.is_latest), exact[0]), registry.shown


def _offer(server: ServerJson, via: str | None) -> InstallWay:
    from mcp_toolset.extensions.registries.entry import offers

    every = offers(server)
    chosen = [one for one in every if via in (None, one.way)]
    if found := next((one for one in chosen if not one.refusal), None):
        return found
    if chosen:
        raise TargetError(f"{server.name}: {'; '.join(dict.fromkeys(one.refusal for one in chosen))}")
    known = ", ".join(dict.fromkeys(one.way for one in every))
    raise TargetError(
        f"{server.name}: cannot be had by {via or 'any way'}; it has {known or 'neither package nor address'}"
    )


def _ways(found: Sequence[InstallWay]) -> str:
    return ", ".join(dict.fromkeys(one.way if not one.refusal else f"({one.way})" for one in found))


def _own_name(name: str) -> str:
    import re

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise TargetError(
            f"{name[:80]!r} cannot be the name of an entry; give one of letters, digits, _ and - with --as"
        )
    return name


def _given(pairs: Sequence[str]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise click.UsageError("--set: is written as NAME=VALUE")
        found.setdefault(name, []).append(value)
    return found


def _ask(name: str, one: Input) -> str | None:
    about = " ".join(
        part for part in (one.description[:200], f"[{', '.join(one.choices)}]" * bool(one.choices)) if part
    )
    text = one_line(f"{name}{f' ({about})' if about else ''}")
    default = "" if one.default is None or one.is_secret else one_line(one.default)
    answer: str = click.prompt(
        text, default=default, hide_input=one.is_secret, show_default=bool(default), err=True
    )
    # A default is a text of the description, and none of the user.
    return None if answer == default else answer


def _is_there(file: Path, wanted: _Addition) -> bool:
    """True if the file has the entry already; refuses another one of its name."""
    from mcp_toolset.cli.clients import entries
    from mcp_toolset.cli.replacing import read_regular

    text = read_regular(file)
    present: Mapping[str, object] = (
        {} if text is None else entries(text.removeprefix("\ufeff"), _section(text, file), str(file))
    )
    if wanted.name not in present:
        return False
    if present[wanted.name] != wanted.entry:
        raise ConfigError(f"{file}: has another server {wanted.name!r}; give this one another name with --as")
    return True


def _section(text: str, file: Path) -> str:
    from mcp_toolset.cli.clients import entries

    found = (one for one in ("mcpServers", "servers") if entries(text.removeprefix("\ufeff"), one, str(file)))
    return next(found, "mcpServers")


def _show(server: ServerJson, place: str, file: Path, wanted: _Addition, output: Output) -> None:
    # What a stranger has written is one line, and cannot look like the lines below.
    about = one_line(f"{server.version}: {server.title or server.description}")[:_ABOUT]
    output.say(f"{server.name} {about}".rstrip(": "))
    output.say(f"  from {place}, by {wanted.offer.way}")
    entry = wanted.entry
    if "command" in entry:
        output.say(f"  runs {json.dumps([entry['command'], *entry['args']], ensure_ascii=False)}")
    else:
        output.say(f"  reaches {entry['url']}")
    for kind in ("env", "headers"):
        for name, value in entry.get(kind, {}).items():
            output.say(f"  {'sets' if kind == 'env' else 'sends'} {name}: {value}")


def _write(file: Path, wanted: _Addition) -> None:
    from mcp_toolset.cli.clients import with_entry
    from mcp_toolset.cli.replacing import held, read_regular, replace_text
    from mcp_toolset.config.jsonc import marked_as, without_mark
    from mcp_toolset.security.named_secrets import NamedSecrets
    from mcp_toolset.security.vault import Vault

    with held(file):
        before = read_regular(file)
        text = _NEW if before is None else without_mark(before)
        after = with_entry(text, _section(text, file), wanted.name, wanted.entry, str(file))
        for name, value in wanted.answers.secrets.items():
            NamedSecrets(Vault()).set(name, value)
        replace_text(file, before, marked_as(after, before), 0o600)


def _tell(file: Path, wanted: _Addition, output: Output, why_not: str) -> None:
    if why_not:
        output.say(f"{file}: {wanted.name} {why_not}")
        return
    output.say(f"{wanted.name} is in {file}; see its tools with: mcp-toolset list {file}")
    for name, about in wanted.answers.unset.items():
        told = one_line(about)[:_ABOUT]
        output.say(f"  set the variable {name} first{f' ({told})' if told else ''}")
