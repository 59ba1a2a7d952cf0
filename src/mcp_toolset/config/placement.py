"""Keys at places where they have no effect: a rule there is refused, any other unknown key is a warning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from mcp_toolset._index import rule_keys
from mcp_toolset.config import keys
from mcp_toolset.config.entries import WRONG_PLACE, known_keys
from mcp_toolset.config.jsonc import Place, decode, object_of, read_text, without_mark
from mcp_toolset.config.tables import ServerEntry
from mcp_toolset.errors import ConfigError

_MAX_NAMED: Final = 5  # unknown keys that a warning names
_CLAUDE_CODE_FILES: Final = (".claude/settings.json", ".claude/settings.local.json")

Warn = Callable[[str], None]


def config_text(source: str) -> str:
    """The text of a configuration file."""
    try:
        return without_mark(read_text(Path(source), source))
    except FileNotFoundError:
        problem = Place(source).error("no such file", "check the path")
    raise problem


def check_entry_keys(data: object, place: Place) -> None:
    """Refuse a file in which a server's entry has rules for all servers, or rules that nothing reads."""
    entry = object_of(data)
    for table, at in ((entry, place), (object_of(entry.get("auth")), place.at("auth"))):
        for key in table:
            if key in keys.OF_ALL_SERVERS:
                check_place(key, at)
    known = {*known_keys(ServerEntry)} - {"oauth"}
    for key in entry:
        # A near miss of one of these keys disables its server alone; see `server_keys`.
        if key not in known and keys.nearest(key, ("permissions", *rule_keys())) is None:
            _check_buried(key, entry[key], place)


def check_file_keys(table: dict[str, object], root: Place, warn: Warn) -> None:
    """Refuse rules at wrong places, and a mistyped `toolset` or `inputs`.

    Other unknown keys are ignored: they may be a client's own. If one names a server, this is a warning.
    """
    nested = object_of(table.get("mcp"))
    steps, entries = keys.named_servers(table) or ((), None)
    for key in keys.unknown_keys(table, keys.FILE_KEYS):
        if (meant := keys.nearest(key, ("toolset", "mcpServers", "inputs"))) is not None:
            raise root.at(key).error("unknown key", f"did you mean `{meant}`?")
        check_place(key, root)
    for key in keys.unknown_keys(nested, keys.FILE_KEYS - {"toolset"} | {"excluded"}):
        check_place(key, root.at("mcp"))
    for holder, at in ((table, root), (nested, root.at("mcp"))):
        for key in holder:
            if at.at(key).steps not in (steps, ("toolset",), ("mcp",)):
                _check_buried(key, holder[key], at)
                if key in ("mcpServers", "servers") and holder[key]:
                    warn(str(at.at(key).error(f"is not read, as `{'.'.join(steps)}` is", "keep one of them")))
    servers = object_of(entries)
    enabled = [name for name in servers if not is_disabled(servers[name])]
    _warn_of_project_settings(root, steps, enabled, warn)
    for name, switch in keys.switched_off(table, enabled).items():
        raise root.at(*switch).error(
            f"switches the server `{name}` off in another client, and not here",
            f'write "disabled": true into `{".".join((*steps, name))}`',
        )
    _warn_of_unread_keys(table, root, servers, warn)


def is_disabled(entry: object) -> bool:
    """True if an entry, which may be wrong otherwise, asks not to start its server."""
    table = object_of(entry)
    return table.get("disabled") is True or table.get("enabled") is False


def check_place(key: str, place: Place) -> None:
    """Refuse a key of ours that belongs elsewhere."""
    if (right := keys.misplaced(key)) is not None:
        raise place.at(key).error(WRONG_PLACE, f"move it to `{right}`")


def ignored_keys(unknown: list[str], place: Place) -> str:
    """The warning about unknown keys."""
    named = ", ".join(f"`{key}`" for key in unknown[:_MAX_NAMED])
    more = f" and {len(unknown) - _MAX_NAMED} more" if len(unknown) > _MAX_NAMED else ""
    return str(place.error(f"unknown keys are ignored: {named}{more}", "remove them, or begin them with `_`"))


def _warn_of_project_settings(root: Place, steps: tuple[str, ...], servers: list[str], warn: Warn) -> None:
    """Warn of servers of `.mcp.json` that the settings of Claude Code beside it switch off."""
    path = Path(root.source)
    for file in _CLAUDE_CODE_FILES if path.name == ".mcp.json" else ():
        try:
            settings: Any = decode(config_text(str(path.parent / file)), file)
        except ConfigError:
            continue
        for name, switch in keys.switched_off(object_of(settings), servers).items():
            cause = f"is switched off there, in {'.'.join(switch)} of {file}, and served here"
            warn(str(root.at(*steps, name).error(cause, 'write "disabled": true into it')))


def _warn_of_unread_keys(table: dict[str, object], root: Place, servers: Iterable[str], warn: Warn) -> None:
    """Warn of keys that nothing reads, if they may be meant for this package."""
    unknown = keys.unknown_keys(table, keys.FILE_KEYS)
    if "toolset" in table and unknown:
        warn(ignored_keys(unknown, root))
        unknown = []
    for key in (*unknown, "tools"):
        if keys.names_a_server(table.get(key), servers):
            mend = "write rules into `toolset` or the server's entry, or begin the key with `_`"
            warn(str(root.at(key).error("names a server, and is ignored here", mend)))


def _check_buried(key: str, value: object, place: Place) -> None:
    """Refuse a rule of ours within a value that nothing reads."""
    if (rule := keys.buried(key, value)) is not None:
        steps, right = rule
        raise place.at(*steps).error(WRONG_PLACE, f"move it to `{right}`")
