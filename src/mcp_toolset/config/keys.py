"""The known keys of an `mcpServers` file, ours and those of the clients, and the close matches of a typo.

A key that is nearly one of these is an error: with a mistyped `exclude`, the tool that it excludes would run.
Any other unknown key is a warning. Keys that begin with `_`, `$`, `#`, `x-` or `//` are comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, cast
from unicodedata import normalize

from mcp_toolset._index import marked, others, owners, rows, rule_keys
from mcp_toolset.config.tables import ServerEntry, ToolsetSection, keys_of

CLIENT_KEYS: Final = frozenset(
    # Claude Code and Claude Desktop: https://code.claude.com/docs/en/mcp
    "type command args env url headers headersHelper scopes alwaysLoad "
    # VS Code: https://code.visualstudio.com/docs/copilot/reference/mcp-configuration
    "envFile cwd dev gallery version sandboxEnabled sandbox inputs "
    # Cursor: https://cursor.com/docs/context/mcp
    "serverUrl icon icons "
    # Cline, Roo Code, Kiro, Windsurf: https://docs.cline.bot/mcp, https://docs.roocode.com/features/mcp
    "alwaysAllow autoApprove disabled disabledTools timeout watchPaths networkTimeout "
    "remoteConfigured registryUrl transportType metadata oauthClient "
    # Gemini CLI, Qwen Code: https://geminicli.com/docs/tools/mcp-server
    "httpUrl trust includeTools excludeTools description authProviderType targetAudience "
    "targetServiceAccount discoveryTimeout tcp extension "
    # GitHub Copilot CLI: https://docs.github.com/copilot/reference/copilot-cli-reference/cli-command-reference
    "deferTools disableToolCache slowConnectionThresholdMs filterMapping oauthClientId oauthScopes "
    "oauthPublicClient oauthGrantType oidc "
    # GitHub Copilot coding agent, Zed, LM Studio, Goose, Continue, LibreChat, opencode, Codex
    "source settings enabled name title id label displayName note notes comment comments "
    "environment startup startupTimeout startup_timeout_sec tool_timeout_sec bearer_token_env_var "
    "required env_keys envs bundled cmd uri "
    "initTimeout chatMenu serverInstructions requiresOAuth customUserVars iconPath "
    # registries and installers
    "package packages registry repository homepage author license tags category "
    "runtimeHint transport runtime_hint installed".split()
)
"""The keys that the clients document, or write, in a server's entry.

Keys that hide tools from a model, and that this package does not obey, are missing here: so they are
reported.
"""

FILE_KEYS: Final = frozenset(
    "mcpServers servers mcp inputs toolset globalShortcut preferences isUsingBuiltInNodeForMcp scale "
    "dxt coworkUserFilesPath sandbox name version description tools $schema".split()
)
"""The other top-level keys in the files of the clients."""

_MEANT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        "allow allowed allowedtools allowtools allowlist whitelist only onlytools availabletools expose "
        "exposetools permit permitted select selected toolallowlist toolnames toolwhitelist".split(),
        "include",
    ),
    **dict.fromkeys(
        "deny denied deniedtools denytools denylist block blocked blockedtools blocklist blacklist hide "
        "hidden hiddentools ignore ignored ignoredtools ignoretools skip without forbid forbidden "
        "forbiddentools restrict restricted filter toolfilter toolsfilter ban banned bannedtools "
        "dangeroustools drop neverallow omit remove skiptools toolblacklist toolblocklist".split(),
        "exclude",
    ),
    **dict.fromkeys("off inactive deactivated paused removed suspended".split(), "disabled"),
}
"""Synonyms of keys that protect, in lower case without separators; ignored, they would be unsafe."""

_PROTECTS: Final = marked("protects")
_BY_PATTERN: Final = marked("by_pattern")
_TELLS: Final = {row["key"]: row["tells"].split() for row in rows().values() if "tells" in row}
"""The keys that nothing but the settings of an extension has, by the extension's key."""

_BELOW: Final = {
    f"toolset.{row['key']}{step and '.' + step}": words.split()
    for row in rows().values()
    for step, words in row.get("below", {}).items()
}
"""By place the keys in the settings of extensions that are told from all others by their names."""

_PLACES: Final[Mapping[str, str]] = {
    **dict.fromkeys("allow ask deny for".split(), "toolset.permissions"),
    **dict.fromkeys("principals roles scopes".split(), "toolset.permissions.for"),
    **{name: place for place, names in _BELOW.items() for name in names},
    "trusted_proxies": "toolset.http",
    "toolset": "",
    **dict.fromkeys("includeTools excludeTools disabledTools".split(), "mcpServers.NAME"),
}


@cache
def places() -> Mapping[str, str]:
    """The place of each key of ours. At another place it would be ignored, and a protection would be off."""
    of_entry, of_section = (
        [one.alias or name for name, one in keys_of(table).items()] for table in (ServerEntry, ToolsetSection)
    )
    of_clients = CLIENT_KEYS | FILE_KEYS
    of_servers = {one: "mcpServers.NAME" for one in (*rule_keys(), *of_entry) if one not in of_clients}
    of_all = dict.fromkeys(of_section, "toolset")
    own = [key for key in marked("stated") if key not in marked("of_clients")]
    told = {
        one: f"toolset.{key}{'.PATTERN' if key in _BY_PATTERN else ''}"
        for key, ones in _TELLS.items()
        for one in ones
    }
    return {**of_servers, **of_all, **_PLACES, **told, **dict.fromkeys(own, "toolset")}


def _synonyms() -> Iterator[tuple[str, str]]:
    """Other words for the keys of extensions, each with the place of its key."""
    for row in rows().values():
        for key, words in row.get("synonyms", {}).items():
            place = f"toolset.{row['key']}" + (f".PATTERN.{key}" if key else "")
            yield from dict.fromkeys(words.split(), place).items()


_OTHER_WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        "approval approve confirm requireapproval requiresapproval "
        "approvalrequired needsapproval alwaysask approvalmode confirmation defaulttoolsapprovalmode "
        "humanintheloop interrupton manualapproval requireconfirmation requiresconfirmation "
        "supervised".split(),
        "toolset.permissions.ask",
    ),
    **dict.fromkeys(
        "denied deniedtools denylist denytools block blocked blockedtools blocklist blacklist forbid "
        "forbidden forbiddentools restricted".split(),
        "toolset.permissions.deny",
    ),
    **dict.fromkeys("allowlist whitelist".split(), "toolset.permissions.allow"),
    **dict.fromkeys(
        "readonly readonlymode readonlyhint".split(), 'toolset.permissions.allow: ["readOnly:*"]'
    ),
    **dict.fromkeys("policies acl guard accesscontrol".split(), "toolset.permissions"),
    **dict(_synonyms()),
    **dict.fromkeys("quarantine pin pinned pinning".split(), "toolset.pins"),
    **dict.fromkeys("lockfile pinfile pinsfile".split(), "toolset.lock"),
    **dict.fromkeys("disabledservers disabledmcpservers".split(), "mcpServers.NAME.disabled"),
}
"""The place of the key that another word means, by the word in lower case without separators."""

GUARDS: Final = (
    *("toolset.permissions", "toolset.pins", "toolset.egress", "toolset.http", "toolset.lock"),
    *(f"toolset.{key}" for key in _PROTECTS),
)
"""The places of rules that would be lost in the entry of a server."""

NO_VARIABLES: Final = frozenset(
    (*"permissions pins new_tools hidden_text exclude include deny ask disabled toolset".split(), *_PROTECTS)
    + marked("with_policy")
)
"""The keys of ours that are no names of environment variables or headers."""

_PROTECTING: Final = frozenset(
    (*"permissions pins new_tools hidden_text required_scopes tokens exclude".split(), *_PROTECTS)
)
"""The keys whose misspelt form is never ignored, and that tell a section `toolset` of another name."""

OF_ALL_SERVERS: Final = frozenset("toolset tokens jwt required_scopes lock".split()).union(
    key for key in _PROTECTS if key not in owners("entry")
)
"""The keys that, in a server's entry, were meant for all servers."""

NEVER_NULL: Final = frozenset(
    "permissions pins new_tools hidden_text include exclude allow ask deny for principals roles "
    "required_scopes tokens jwt audience algorithms roles_claim lock arguments tools disabled "
    "enabled includeTools excludeTools disabledTools enabled_tools disabled_tools".split()
).union(_PROTECTS)
"""The keys that protect. Elsewhere null is the same as no key; here somebody meant to write a rule."""

_SWITCHED_ON: Final = frozenset("active isactive isenabled on use visible".split())
"""Other words for `enabled`, in lower case without separators; they matter where they are false."""

_OFF_BY_NAME: Final = (("mcp", "excluded"), ("excludeMCPServers",), ("disabledMcpjsonServers",))
_ON_BY_NAME: Final = (("mcp", "allowed"), ("allowMCPServers",))
"""Keys of other clients (Gemini CLI, Claude Code) that list the servers that are off, and all that are on."""

_OF_SERVERS: Final = frozenset(
    "type transport command args env url serverUrl httpUrl headers disabled".split()
)
_OF_A_SERVER: Final = frozenset("include exclude permissions pins new_tools hidden_text".split()).union(
    key for key in _PROTECTS if key in owners("entry")
)
_SECTIONS: Final = frozenset("mcpservers servers contextservers extensions".split())
_KINDS_OF_PERMISSIONS: Final = frozenset("allow ask deny for".split())
_KINDS_OF_AUTH: Final = frozenset(_BELOW.get("toolset.auth", ()))

_COMMENT: Final = re.compile(r"_|\$|x-|//|#")
_LEAST_LIKE: Final = 0.8


USUAL_FILES: Final = ("mcp.json", ".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json")
"""Files that commands look for if no configuration is named."""


def named_servers(table: Mapping[str, Any]) -> tuple[tuple[str, ...], object] | None:
    """The place of the servers in a file, and what stands there; `None` if the file has no such section."""
    settings = table.get("mcp")
    nested = cast("dict[str, object]", settings) if isinstance(settings, dict) else {}
    for holder, steps in ((table, ("mcpServers",)), (table, ("servers",)), (nested, ("mcp", "servers"))):
        if steps[-1] in holder:
            return steps, holder[steps[-1]]
    return None


def unknown_keys(keys: Iterable[str], known: Iterable[str]) -> list[str]:
    familiar = frozenset(known)
    return [key for key in keys if key not in familiar and not _COMMENT.match(key)]


def nearest(key: str, known: Iterable[str]) -> str | None:
    """The known key that a mistyped one means: it differs in a letter or two, in case, or in `-` or `_`."""
    plain: dict[str, str] = {}
    for one in known:
        plain.setdefault(_plain(one), one)
    wanted = _plain(key)
    swapped = (one for one in plain if len(one) > 2 and sorted(one) == sorted(wanted))
    close = get_close_matches(wanted, plain, n=1, cutoff=_LEAST_LIKE)
    match = next(iter([*([wanted] if wanted in plain else []), *swapped, *close]), None)
    return None if match is None else plain[match]


def synonym(key: str, value: object = None) -> str | None:
    plain = _plain(key)
    return "enabled" if value is False and plain in _SWITCHED_ON else _MEANT.get(plain)


def switched_off(table: Mapping[str, Any], servers: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The servers that another client's own keys in its file switch off, and the place of each such key."""
    switches: dict[str, tuple[str, ...]] = {}
    for steps in (*_OFF_BY_NAME, *_ON_BY_NAME):
        listed: object = table
        for step in steps:
            listed = cast("dict[str, object]", listed).get(step) if isinstance(listed, dict) else None
        if isinstance(listed, list):
            is_off = steps in _OFF_BY_NAME
            named = [name for name in servers if (name in cast("list[Any]", listed)) is is_off]
            switches.update((name, steps) for name in named if name not in switches)
    return switches


def names_a_server(value: object, servers: Iterable[str]) -> bool:
    text = json.dumps(value, ensure_ascii=False, default=str).casefold()
    return any(re.search(rf"(?<![^\W_]){re.escape(server.casefold())}(?![^\W_])", text) for server in servers)


def misplaced(key: str, *, holder: str | None = None) -> str | None:
    """The right place of a key of ours, or of nearly one that protects, where no key of ours is known."""
    known = {**dict.fromkeys(others(), "toolset"), **places()}
    plain = {_plain(one): one for one in known}
    word = _plain(key) if _plain(key) in {*plain, *_OTHER_WORDS} else _plain(key).removesuffix("s")
    if (other := _OTHER_WORDS.get(word)) is not None:
        return other
    meant = plain.get(_plain(key)) or nearest(key, _PROTECTING)
    place = known.get(meant) if meant else None
    if place is None or place == holder:
        return None
    return f"{place}.{meant}".removeprefix(".")


def buried(key: str, value: object) -> tuple[tuple[str | int, ...], str] | None:
    """The way to the first rule of ours in a value that nothing reads, and the right place of the rule.

    A rule is told by its look, under any name and at any depth; what is in a comment is none.
    """
    ways: list[tuple[tuple[str | int, ...], object]] = [((key,), value)]
    for steps, one in ways:
        name = str(steps[-1])
        if _COMMENT.match(name):
            continue
        if right := _rule(_plain(name), one):
            return steps, right
        if isinstance(one, dict):
            table = cast("dict[str, object]", one)
            ours = sorted(_OF_A_SERVER & {*table})
            if ours and (_OF_SERVERS & {*table} or _plain(str((key, *steps)[-2])) in _SECTIONS):
                return (*steps, ours[0]), f"mcpServers.{name}.{ours[0]}"
            ways += [((*steps, each), table[each]) for each in table]
        elif isinstance(one, list):
            ways += [((*steps, at), each) for at, each in enumerate(cast("list[object]", one))]
    return None


def _rule(name: str, value: object) -> str | None:
    """The place of the rule that a value is by its look, if it looks like one; `name` is plain."""
    if isinstance(value, str) and re.search(r"[./\\]", value):
        files = (key for key in _TELLS if key not in _BY_PATTERN)
        return next((f"toolset.{key}" for key in files if key in name), None)
    if not isinstance(value, dict) or not value:
        return None
    table = cast("dict[str, object]", value)
    keys = {*table}
    if {"tokens", "jwt"} & keys and (name == "auth" or keys <= _KINDS_OF_AUTH):
        return "toolset.auth"
    if any(isinstance(table.get(one), list | str) for one in ("allow", "ask", "deny")) and (
        name == "permissions" or keys <= _KINDS_OF_PERMISSIONS
    ):
        return "toolset.permissions"
    if all(isinstance(one, str) and one in _KINDS_OF_PERMISSIONS for one in table.values()):
        return "toolset.permissions"
    # Gemini's settings have such a section for tools of its own.
    if name != "tools" and keys <= {"include", "exclude"} and isinstance(table.get("exclude"), list):
        return "mcpServers.NAME.exclude"
    if right := _settings(name, table):
        return right
    core_keys = keys if _rule("auth", table.get("auth")) else keys - {"auth"}
    is_section = core_keys & _PROTECTING and all(places().get(one) == "toolset" for one in keys)
    return "toolset" if is_section else None


def _settings(name: str, table: Mapping[str, object]) -> str | None:
    """The place of the settings of an extension that a table is by the keys that tell them."""
    for key, tells in _TELLS.items():
        if key in _BY_PATTERN:
            alike = sum(
                isinstance(one, dict) and any(each in one for each in tells) for one in table.values()
            )
            is_one = alike and (name == key or alike == len(table))
        else:
            is_one = "path" in table and (key in name or any(each in table for each in tells))
        if is_one:
            return f"toolset.{key}"
    return None


def is_section(name: str, entry: object) -> bool:
    """True if an entry among the servers is a section that belongs elsewhere."""
    keys = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    return places().get(name) in ("", "toolset") and not _OF_SERVERS & {*keys}


def did_you_mean(key: str, known: Sequence[str]) -> str:
    """A question with the nearest known key, or an empty string."""
    close = get_close_matches(key, known, n=1, cutoff=0.7)
    return f"did you mean `{close[0]}`?" if close else ""


def _plain(key: str) -> str:
    """A key without separators, hidden characters and the forms of letters: what a reader takes it for."""
    return re.sub(r"[\W_]", "", normalize("NFKC", key)).casefold()
