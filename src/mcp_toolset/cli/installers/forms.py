"""`Form`: how an entry of a server is written in a client's file, and what it is in an `mcpServers` file.

| client | where its entries are documented |
|---|---|
| Claude Desktop, Claude Code | https://code.claude.com/docs/en/mcp |
| Cursor | https://cursor.com/docs/context/mcp |
| VS Code | https://code.visualstudio.com/docs/copilot/reference/mcp-configuration |
| Windsurf | https://docs.windsurf.com/windsurf/cascade/mcp |
| Zed | https://zed.dev/docs/ai/mcp |
| Gemini CLI | https://geminicli.com/docs/tools/mcp-server |
| Codex | https://developers.openai.com/codex/mcp |
| Goose | https://block.github.io/goose/docs/guides/config-files |
| LM Studio | https://lmstudio.ai/docs/app/mcp |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

__all__ = [
    "CODEX",
    "GEMINI",
    "GOOSE",
    "PLAIN",
    "TYPED",
    "ZED",
    "Form",
    "KeptByClientError",
    "NotAServerError",
]

Entry = dict[str, Any]


class KeptByClientError(Exception):
    """An entry stays with its client; the message says why."""


class NotAServerError(Exception):
    """An entry that is no MCP server: a part of the client itself."""


def _standard(entry: Entry) -> Entry:
    return entry


@dataclass(frozen=True, slots=True)
class Form:
    """The entries of one client.

    Attributes:
        ours: The entry of a server that is started by a command with these variables.
        standard: An entry of the client as an `mcpServers` file has it; raises `KeptByClientError` for one
            that only the client can start, and `NotAServerError` for one that is no server.
    """

    ours: Callable[[Sequence[str], Mapping[str, str]], Entry]
    standard: Callable[[Entry], Entry] = _standard


def _plain(command: Sequence[str], env: Mapping[str, str]) -> Entry:
    program, *args = command
    return {"command": program, "args": args} | ({"env": dict(env)} if env else {})


def _typed(command: Sequence[str], env: Mapping[str, str]) -> Entry:
    return {"type": "stdio"} | _plain(command, env)


def _of_zed(command: Sequence[str], env: Mapping[str, str]) -> Entry:
    return {"source": "custom"} | _plain(command, env)


def _from_zed(entry: Entry) -> Entry:
    if "command" not in entry and "url" not in entry:
        raise KeptByClientError("an extension of Zed starts it")
    kept = _without(entry, "source", "settings", "remote")
    program = entry.get("command")
    if isinstance(program, dict):
        table = cast("Entry", program)
        kept |= {"command": table.get("path"), **_without(table, "path")}
    return kept


def _from_gemini(entry: Entry) -> Entry:
    if "url" in entry and "httpUrl" not in entry and "type" not in entry:
        return {"type": "sse"} | entry
    return entry


_RENAMED_BY_CODEX: Final = {"startup_timeout_sec": "start_timeout", "tool_timeout_sec": "timeout"}
_OF_CODEX: Final = ("bearer_token_env_var", "http_headers", "env_http_headers", "env_vars", "required")


def _from_codex(entry: Entry) -> Entry:
    made = {_RENAMED_BY_CODEX.get(key, key): value for key, value in _without(entry, *_OF_CODEX).items()}
    headers: Entry = {**entry.get("http_headers", {})}
    headers |= {name: f"${{{variable}}}" for name, variable in entry.get("env_http_headers", {}).items()}
    if variable := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    passed = {name: f"${{{name}:-}}" for name in entry.get("env_vars", ()) if isinstance(name, str)}
    env = passed | entry.get("env", {})
    return made | ({"headers": headers} if headers else {}) | ({"env": env} if env else {})


_OF_GOOSE: Final = (
    "cmd",
    "envs",
    "env_keys",
    "uri",
    "type",
    "name",
    "bundled",
    "description",
    "display_name",
)
_TYPES_OF_GOOSE: Final = {"stdio": "stdio", "sse": "sse", "streamable_http": "http"}


def _of_goose(command: Sequence[str], env: Mapping[str, str]) -> Entry:
    program, *args = command
    return {
        "name": "mcp-toolset",
        "type": "stdio",
        "enabled": True,
        "cmd": program,
        "args": args,
        "envs": dict(env),
        "timeout": 300,
    }


def _from_goose(entry: Entry) -> Entry:
    kind = _TYPES_OF_GOOSE.get(str(entry.get("type")))
    if kind is None:
        raise NotAServerError
    if entry.get("env_keys"):
        raise KeptByClientError("Goose keeps its secrets in its own keyring")
    made = {"type": kind, **_without(entry, *_OF_GOOSE)}
    # Goose writes an empty list where it takes every tool.
    if taken := made.pop("available_tools", None):
        made["includeTools"] = taken
    if kind == "stdio":
        return made | {"command": entry.get("cmd"), "env": entry.get("envs") or {}}
    return made | {"url": entry.get("uri")}


def _without(entry: Entry, *keys: str) -> Entry:
    return {key: value for key, value in entry.items() if key not in keys and value is not None}


PLAIN: Final = Form(_plain)
TYPED: Final = Form(_typed)
ZED: Final = Form(_of_zed, _from_zed)
GEMINI: Final = Form(_plain, _from_gemini)
CODEX: Final = Form(_plain, _from_codex)
GOOSE: Final = Form(_of_goose, _from_goose)
