"""`CLIENTS`: the programs that `install` supports, their configuration files and the form of their entries.

| client | where its file is documented |
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

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

import click

from mcp_toolset._records import dataclass
from mcp_toolset.cli.installers.formats import JSON, TOML, YAML, Format

Entry = dict[str, Any]


class KeptByClientError(Exception):
    """An entry stays with its client; the message says why."""


class NotAServerError(Exception):
    """An entry that is no MCP server: a part of the client itself."""


@dataclass(frozen=True, slots=True)
class Form:
    """The entries of one client.

    Attributes:
        ours: The entry of a server that is started by a command with these variables.
        standard: An entry of the client as an `mcpServers` file has it; raises `KeptByClientError` for one
            that only the client can start, and `NotAServerError` for one that is no server.
    """

    ours: Callable[[Sequence[str], Mapping[str, str]], Entry]
    standard: Callable[[Entry], Entry] = lambda entry: entry


def _plain(command: Sequence[str], env: Mapping[str, str]) -> Entry:
    program, *args = command
    return {"command": program, "args": args} | ({"env": dict(env)} if env else {})


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


_OF_GOOSE: Final = "cmd envs env_keys uri type name bundled description display_name".split()
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
TYPED: Final = Form(lambda command, env: {"type": "stdio"} | _plain(command, env))
ZED: Final = Form(lambda command, env: {"source": "custom"} | _plain(command, env), _from_zed)
GEMINI: Final = Form(_plain, _from_gemini)
CODEX: Final = Form(_plain, _from_codex)
GOOSE: Final = Form(_of_goose, _from_goose)


ClientName: TypeAlias = Literal[
    "claude-desktop",
    "claude-code",
    "cursor",
    "vscode",
    "vscode-insiders",
    "windsurf",
    "zed",
    "gemini",
    "codex",
    "goose",
    "lmstudio",
]
Scope: TypeAlias = Literal["project", "user"]


@dataclass(frozen=True, slots=True)
class Machine:
    """The places where clients keep files: home, `sys.platform`, the environment, the project's folder."""

    home: Path
    platform: str
    environ: Mapping[str, str] = field(repr=False)
    project: Path

    @classmethod
    def here(cls) -> Machine:
        return cls(Path.home(), sys.platform, os.environ, Path.cwd())

    @property
    def application_data(self) -> Path:
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
        return Path(self.environ.get("XDG_CONFIG_HOME") or self.home / ".config")


@dataclass(frozen=True, slots=True)
class ClientProgram:
    """One program.

    Attributes:
        locations: Its file by scope, the default scope first.
        workspace: How the project's folder is written in its project file; see `portable`.
        always: Keys of an entry whose tools it is to show at once, where it defers tools itself.
    """

    title: str
    section: str
    locations: Mapping[Scope, Callable[[Machine], Path]]
    form: Form = TYPED
    format: Format = JSON
    workspace: str = "${workspaceFolder}"
    always: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)

    def entry(self, command: Sequence[str], env: Mapping[str, str]) -> dict[str, object]:
        return self.form.ours(command, env)


def _user(path: str) -> Mapping[Scope, Callable[[Machine], Path]]:
    return {"user": lambda machine: machine.home / path}


def _user_or_project(path: str) -> Mapping[Scope, Callable[[Machine], Path]]:
    return {"user": lambda machine: machine.home / path, "project": lambda machine: machine.project / path}


def _vscode(folder: str) -> Mapping[Scope, Callable[[Machine], Path]]:
    return {
        "project": lambda machine: machine.project / ".vscode" / "mcp.json",
        "user": lambda machine: machine.application_data / folder / "User" / "mcp.json",
    }


def _zed(machine: Machine) -> Path:
    if machine.platform == "win32":
        return machine.application_data / "Zed" / "settings.json"
    return Path(machine.environ.get("XDG_CONFIG_HOME") or machine.home / ".config") / "zed" / "settings.json"


def _codex(machine: Machine) -> Path:
    return Path(machine.environ.get("CODEX_HOME") or machine.home / ".codex") / "config.toml"


def _goose(machine: Machine) -> Path:
    if machine.platform == "win32":
        return machine.application_data / "Block" / "goose" / "config" / "config.yaml"
    return Path(machine.environ.get("XDG_CONFIG_HOME") or machine.home / ".config") / "goose" / "config.yaml"


def _claude_desktop(machine: Machine) -> Path:
    folder = machine.application_data / "Claude"
    if machine.platform == "win32":
        # The packaged build (MSIX) never sees %APPDATA%: Windows gives it a private copy of that folder.
        local = Path(machine.environ.get("LOCALAPPDATA") or machine.home / "AppData" / "Local")
        packaged = sorted(local.glob("Packages/Claude_*/LocalCache/Roaming/Claude"))
        folder = packaged[0] if packaged else folder
    return folder / "claude_desktop_config.json"


def _claude_code_user(machine: Machine) -> Path:
    return Path(machine.environ.get("CLAUDE_CONFIG_DIR") or machine.home) / ".claude.json"


CLIENTS: Mapping[ClientName, ClientProgram] = {
    "claude-desktop": ClientProgram("Claude Desktop", "mcpServers", {"user": _claude_desktop}, PLAIN),
    "claude-code": ClientProgram(
        "Claude Code",
        "mcpServers",
        {"project": lambda machine: machine.project / ".mcp.json", "user": _claude_code_user},
        workspace="${CLAUDE_PROJECT_DIR:-.}",
        always={"alwaysLoad": True},
    ),
    "cursor": ClientProgram("Cursor", "mcpServers", _user_or_project(".cursor/mcp.json")),
    "vscode": ClientProgram("VS Code", "servers", _vscode("Code")),
    "vscode-insiders": ClientProgram("VS Code Insiders", "servers", _vscode("Code - Insiders")),
    "windsurf": ClientProgram("Windsurf", "mcpServers", _user(".codeium/windsurf/mcp_config.json"), PLAIN),
    "zed": ClientProgram(
        "Zed",
        "context_servers",
        {"user": _zed, "project": lambda machine: machine.project / ".zed" / "settings.json"},
        ZED,
    ),
    "gemini": ClientProgram("Gemini CLI", "mcpServers", _user_or_project(".gemini/settings.json"), GEMINI),
    "codex": ClientProgram(
        "Codex",
        "mcp_servers",
        {"user": _codex, "project": lambda machine: machine.project / ".codex" / "config.toml"},
        CODEX,
        TOML,
    ),
    "goose": ClientProgram("Goose", "extensions", {"user": _goose}, GOOSE, YAML),
    "lmstudio": ClientProgram("LM Studio", "mcpServers", _user(".lmstudio/mcp.json"), PLAIN),
}


def locate(client: ClientProgram, scope: Scope | None, machine: Machine) -> tuple[Scope, Path]:
    chosen = scope or next(iter(client.locations))
    if chosen not in client.locations:
        raise click.UsageError(
            f"--scope {chosen}: {client.title} has no such scope; use --scope {next(iter(client.locations))}"
        )
    return chosen, client.locations[chosen](machine)
