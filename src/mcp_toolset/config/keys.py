"""The known keys of an `mcpServers` file, ours and those of the clients, and the close matches of a typo.

A key that is nearly one of these is an error: with a mistyped `exclude`, the tool that it excludes would run.
Any other unknown key is a warning. Keys that begin with `_`, `$`, `#`, `x-` or `//` are comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, cast

__all__ = [
    "CLIENT_KEYS",
    "FILE_KEYS",
    "USUAL_FILES",
    "did_you_mean",
    "named_servers",
    "nearest",
    "synonym",
    "unknown_keys",
]

CLIENT_KEYS: Final = frozenset(
    # Claude Code and Claude Desktop: https://code.claude.com/docs/en/mcp
    "type command args env url headers headersHelper scopes alwaysLoad "
    # VS Code: https://code.visualstudio.com/docs/copilot/reference/mcp-configuration
    "envFile cwd dev gallery version sandboxEnabled sandbox inputs "
    # Cursor: https://cursor.com/docs/context/mcp
    "serverUrl icon icons "
    # Cline, Roo Code, Kiro, Windsurf: https://docs.cline.bot/mcp, https://docs.roocode.com/features/mcp
    "alwaysAllow autoApprove disabled disabledTools timeout watchPaths networkTimeout "
    "remoteConfigured registryUrl "
    # Gemini CLI, Qwen Code: https://geminicli.com/docs/tools/mcp-server
    "httpUrl trust includeTools excludeTools description authProviderType targetAudience "
    "targetServiceAccount discoveryTimeout tcp extension "
    # GitHub Copilot CLI and coding agent, Zed, LM Studio, Goose, Continue, LibreChat, opencode, Codex
    "source settings enabled name title id label displayName note notes comment comments "
    "environment startup startupTimeout startup_timeout_sec tool_timeout_sec bearer_token_env_var "
    "required env_keys envs bundled cmd uri "
    "initTimeout chatMenu serverInstructions requiresOAuth customUserVars iconPath "
    # registries and installers
    "package packages registry repository homepage author license metadata tags category "
    "runtimeHint transport runtime_hint installed".split()
)
"""The keys that the clients document, or write, in a server's entry.

Keys that hide tools from a model, and that this package does not obey, are missing here: so they are
reported.
"""

FILE_KEYS: Final = frozenset(
    "mcpServers servers mcp inputs toolset globalShortcut preferences isUsingBuiltInNodeForMcp scale "
    "dxt coworkUserFilesPath sandbox name version description $schema".split()
)
"""The other top-level keys in the files of the clients."""

_MEANT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        "allow allowed allowedtools allowtools allowlist whitelist only onlytools".split(), "include"
    ),
    **dict.fromkeys(
        "deny denied deniedtools denytools denylist block blocked blockedtools blocklist blacklist hide "
        "hidden hiddentools ignore ignored ignoredtools ignoretools skip without".split(),
        "exclude",
    ),
}
"""Synonyms of `include` and `exclude`, in lower case without separators; ignored, they would be unsafe."""

_COMMENT: Final = re.compile(r"_|\$|x-|//|#")
_LEAST_LIKE: Final = 0.8


USUAL_FILES: Final = ("mcp.json", ".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json")
"""Where commands look for a configuration that is not named."""


def named_servers(table: Mapping[str, Any]) -> tuple[tuple[str, ...], object] | None:
    """The place of the servers in a file, and what stands there; `None` if the file has no such section."""
    settings = table.get("mcp")
    nested = cast("dict[str, object]", settings) if isinstance(settings, dict) else {}
    for holder, steps in ((table, ("mcpServers",)), (table, ("servers",)), (nested, ("mcp", "servers"))):
        if steps[-1] in holder:
            return steps, holder[steps[-1]]
    return None


def unknown_keys(keys: Iterable[str], known: Iterable[str]) -> list[str]:
    """The keys that are neither known nor comments."""
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
    found = next(iter([*([wanted] if wanted in plain else []), *swapped, *close]), None)
    return None if found is None else plain[found]


def synonym(key: str) -> str | None:
    """The key of ours that a synonym stands for, such as `exclude` for `blockedTools`."""
    return _MEANT.get(_plain(key))


def did_you_mean(key: str, known: Sequence[str]) -> str:
    """A question with the nearest known key, or an empty string."""
    close = get_close_matches(key, known, n=1, cutoff=0.7)
    return f"did you mean `{close[0]}`?" if close else ""


def _plain(key: str) -> str:
    return re.sub(r"[-_\s]", "", key).casefold()
