"""`CLIENTS`: the programs that `install` supports, their configuration files and the form of their entries.

`Form` makes entries of a client, and reads them. `formats` edits their files.

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
| GitHub Copilot CLI | https://docs.github.com/copilot/reference/copilot-cli-reference/cli-command-reference |
| OpenCode | https://opencode.ai/docs/mcp-servers, its schema https://opencode.ai/config.json |
| Cline | https://docs.cline.bot/mcp/adding-and-configuring-servers |
| Kiro | https://kiro.dev/docs/mcp/configuration |
| JetBrains Junie | https://junie.jetbrains.com/docs/junie-cli-mcp-configuration.html |
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

import click

from mcp_toolset._records import dataclass
from mcp_toolset.cli.formats import JSON, TOML, YAML, Format

Entry = dict[str, Any]


class KeptByClientError(Exception):
    """An entry stays with its client; the message says why."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of one client's entries.

    Attributes:
        ours: Makes an entry of the client from a command and its environment.
        standard: Turns an entry of the client into an entry of an `mcpServers` file, or into `None` if it is
            no server; raises `KeptByClientError` if only the client can start the server.
    """

    ours: Callable[[Sequence[str], Mapping[str, str]], Entry]
    standard: Callable[[Entry], Entry | None] = lambda entry: entry


def _plain(command: Sequence[str], env: Mapping[str, str]) -> Entry:
    program, *args = command
    return {"command": program, "args": args} | ({"env": dict(env)} if env else {})


def _from_zed(entry: Entry) -> Entry:
    if "command" not in entry and "url" not in entry:
        raise KeptByClientError("an extension of Zed starts it")
    standard = _without(entry, "source", "settings", "remote")
    program = entry.get("command")
    if isinstance(program, dict):
        table = cast("Entry", program)
        standard |= {"command": table.get("path"), **_without(table, "path")}
    return standard


def _from_gemini(entry: Entry) -> Entry:
    if "url" in entry and "httpUrl" not in entry and "type" not in entry:
        return {"type": "sse"} | entry
    return entry


_RENAMED_BY_CODEX: Final = {"startup_timeout_sec": "start_timeout", "tool_timeout_sec": "timeout"}
_OF_CODEX: Final = ("bearer_token_env_var", "http_headers", "env_http_headers", "env_vars", "required")


def _from_codex(entry: Entry) -> Entry:
    standard = {_RENAMED_BY_CODEX.get(key, key): value for key, value in _without(entry, *_OF_CODEX).items()}
    headers: Entry = {**entry.get("http_headers", {})}
    headers |= {name: f"${{{variable}}}" for name, variable in entry.get("env_http_headers", {}).items()}
    if variable := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    inherited = {name: f"${{{name}:-}}" for name in entry.get("env_vars", ()) if isinstance(name, str)}
    env = inherited | entry.get("env", {})
    return standard | ({"headers": headers} if headers else {}) | ({"env": env} if env else {})


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


def _from_goose(entry: Entry) -> Entry | None:
    kind = _TYPES_OF_GOOSE.get(str(entry.get("type")))
    if kind is None:
        return None
    if entry.get("env_keys"):
        raise KeptByClientError("Goose keeps its secrets in its own keyring")
    standard = {"type": kind, **_without(entry, *_OF_GOOSE)}
    # Goose writes an empty list where every tool is available.
    if tools := standard.pop("available_tools", None):
        standard["includeTools"] = tools
    if kind == "stdio":
        return standard | {"command": entry.get("cmd"), "env": entry.get("envs") or {}}
    return standard | {"url": entry.get("uri")}


_OF_COPILOT: Final = (
    "deferTools disableToolCache slowConnectionThresholdMs filterMapping source enabled".split()
)
_LOGINS_OF_COPILOT: Final = ("oauthClientId", "oidc")
_BARE_VARIABLE: Final = re.compile(r"(?<!\$)\$([A-Za-z_]\w*)")


def _of_copilot(command: Sequence[str], env: Mapping[str, str]) -> Entry:
    return {"type": "local"} | _plain(command, env) | {"tools": ["*"]}


def _from_copilot(entry: Entry) -> Entry:
    if any(entry.get(key) for key in _LOGINS_OF_COPILOT):
        raise KeptByClientError("Copilot logs in to it with a client or a token of its own")
    standard = _without(entry, *_OF_COPILOT)
    for key in ("env", "headers"):
        if isinstance(values := standard.get(key), dict):
            standard[key] = {name: _braced(value) for name, value in cast("Entry", values).items()}
    return _without(standard, "tools") if standard.get("tools") == ["*"] else standard


def _braced(value: object) -> object:
    """A value with `${NAME}` in place of `$NAME`, which Copilot expands."""
    return _BARE_VARIABLE.sub(r"${\1}", value) if isinstance(value, str) else value


_OF_OPENCODE: Final = "type command environment oauth timeout".split()
_VARIABLE_OF_OPENCODE: Final = re.compile(r"\{env:([^{}]+)\}")
_FILE_OF_OPENCODE: Final = re.compile(r"\{file:[^{}]+\}")


def _of_opencode(command: Sequence[str], env: Mapping[str, str]) -> Entry:
    own: Entry = {"type": "local", "command": [*command], "enabled": True}
    return own | ({"environment": dict(env)} if env else {})


def _from_opencode(entry: Entry) -> Entry | None:
    kind, command = entry.get("type"), entry.get("command")
    if kind not in ("local", "remote"):
        return None
    if _FILE_OF_OPENCODE.search(json.dumps(entry)):
        raise KeptByClientError("it refers to a file that OpenCode reads")
    if entry.get("oauth"):
        raise KeptByClientError("OpenCode logs in to it with a client of its own")
    standard = {key: _expanded(value) for key, value in _without(entry, *_OF_OPENCODE).items()}
    if kind == "remote":
        return {"type": "http"} | standard
    words = cast("list[object]", command) if isinstance(command, list) else []
    program, *args = map(_expanded, words or [None])
    env = _expanded(entry.get("environment") or {})
    return {"type": "stdio", "command": program, "args": args} | standard | ({"env": env} if env else {})


def _expanded(value: Any) -> Any:
    """A value with `${NAME:-}` in place of `{env:NAME}`, which is empty in OpenCode without the variable."""
    if isinstance(value, dict):
        return {key: _expanded(item) for key, item in cast("Entry", value).items()}
    if isinstance(value, list):
        return [_expanded(item) for item in cast("list[Any]", value)]
    return _VARIABLE_OF_OPENCODE.sub(r"${\1:-}", value) if isinstance(value, str) else value


_OF_CLINE: Final = "transport transportType type metadata oauth oauthClient".split()


def _from_cline(entry: Entry) -> Entry:
    if entry.get("oauth") or entry.get("oauthClient"):
        raise KeptByClientError("Cline keeps its login")
    nested = entry.get("transport")
    flat = _without(entry, *_OF_CLINE)
    if isinstance(nested, dict):
        return flat | _without(cast("Entry", nested))
    # Cline uses the older transport for an address without a type.
    kind = entry.get("type") or entry.get("transportType") or ("sse" if "url" in entry else None)
    return ({"type": kind} if kind else {}) | flat


def _without(entry: Entry, *keys: str) -> Entry:
    return {key: value for key, value in entry.items() if key not in keys and value is not None}


PLAIN: Final = Form(_plain)
TYPED: Final = Form(lambda command, env: {"type": "stdio"} | _plain(command, env))
ZED: Final = Form(lambda command, env: {"source": "custom"} | _plain(command, env), _from_zed)
GEMINI: Final = Form(_plain, _from_gemini)
CODEX: Final = Form(_plain, _from_codex)
GOOSE: Final = Form(_of_goose, _from_goose)
COPILOT: Final = Form(_of_copilot, _from_copilot)
OPENCODE: Final = Form(_of_opencode, _from_opencode)
CLINE: Final = Form(lambda command, env: {"type": "stdio"} | _plain(command, env), _from_cline)


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
    "copilot-cli",
    "opencode",
    "cline",
    "cline-cli",
    "kiro",
    "junie",
]
Scope: TypeAlias = Literal["project", "user"]


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts that decide where clients keep their files."""

    home: Path
    platform: str  # as `sys.platform`
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
        return self.config_home

    @property
    def config_home(self) -> Path:
        """The folder of configurations on Linux, which some clients use on every system."""
        return Path(self.environ.get("XDG_CONFIG_HOME") or self.home / ".config")


@dataclass(frozen=True, slots=True)
class ClientProgram:
    """One MCP client.

    Attributes:
        section: The key of its servers in its file.
        locations: Its file by scope, the default scope first.
        workspace: The reference to the project's folder in its project file; see `portable`.
        always: Keys of an entry that make a client which defers tools list those of our server at once.
        settings: Further files that can disable servers.
    """

    title: str
    section: str
    locations: Mapping[Scope, Callable[[Machine], Path]]
    form: Form = TYPED
    format: Format = JSON
    workspace: str = "${workspaceFolder}"
    always: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)
    settings: Callable[[Machine], Sequence[Path]] = lambda machine: ()


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
    return machine.config_home / "zed" / "settings.json"


def _codex(machine: Machine) -> Path:
    return Path(machine.environ.get("CODEX_HOME") or machine.home / ".codex") / "config.toml"


def _goose(machine: Machine) -> Path:
    if machine.platform == "win32":
        return machine.application_data / "Block" / "goose" / "config" / "config.yaml"
    return machine.config_home / "goose" / "config.yaml"


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


def _settings_of_claude_code(machine: Machine) -> Sequence[Path]:
    own = Path(machine.environ.get("CLAUDE_CONFIG_DIR") or machine.home / ".claude")
    managed = {
        "darwin": Path("/Library/Application Support/ClaudeCode"),
        "win32": Path(machine.environ.get("PROGRAMFILES") or "C:/Program Files") / "ClaudeCode",
    }
    return (
        machine.project / ".claude" / "settings.json",
        machine.project / ".claude" / "settings.local.json",
        own / "settings.json",
        managed.get(machine.platform, Path("/etc/claude-code")) / "managed-settings.json",
    )


def _copilot(machine: Machine) -> Path:
    return Path(machine.environ.get("COPILOT_HOME") or machine.home / ".copilot")


def _opencode_in(folder: Path) -> Path:
    """The file to which OpenCode adds servers itself, in a folder."""
    names = ("opencode.json", "opencode.jsonc")
    return next((folder / name for name in names if (folder / name).exists()), folder / names[-1])


def _opencode(machine: Machine) -> Path:
    return _opencode_in(machine.config_home / "opencode")


def _cline(machine: Machine) -> Path:
    folder = machine.application_data / "Code" / "User" / "globalStorage" / "saoudrizwan.claude-dev"
    return folder / "settings" / "cline_mcp_settings.json"


def _cline_cli(machine: Machine) -> Path:
    if given := machine.environ.get("CLINE_MCP_SETTINGS_PATH"):
        return Path(given)
    data = machine.environ.get("CLINE_DATA_DIR") or machine.home / ".cline" / "data"
    return Path(data) / "settings" / "cline_mcp_settings.json"


CLIENTS: Mapping[ClientName, ClientProgram] = {
    "claude-desktop": ClientProgram("Claude Desktop", "mcpServers", {"user": _claude_desktop}, PLAIN),
    "claude-code": ClientProgram(
        "Claude Code",
        "mcpServers",
        {"project": lambda machine: machine.project / ".mcp.json", "user": _claude_code_user},
        workspace="${CLAUDE_PROJECT_DIR:-.}",
        always={"alwaysLoad": True},
        settings=_settings_of_claude_code,
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
    "copilot-cli": ClientProgram(
        "GitHub Copilot CLI",
        "mcpServers",
        {
            "user": lambda machine: _copilot(machine) / "mcp-config.json",
            "project": lambda machine: machine.project / ".github" / "mcp.json",
        },
        COPILOT,
        workspace=".",
        always={"deferTools": "never"},
        settings=lambda machine: (_copilot(machine) / "settings.json",),
    ),
    "opencode": ClientProgram(
        "OpenCode",
        "mcp",
        {"user": _opencode, "project": lambda machine: _opencode_in(machine.project)},
        OPENCODE,
        workspace=".",
    ),
    "cline": ClientProgram("Cline", "mcpServers", {"user": _cline}, CLINE),
    "cline-cli": ClientProgram("Cline CLI", "mcpServers", {"user": _cline_cli}, CLINE),
    "kiro": ClientProgram(
        "Kiro", "mcpServers", _user_or_project(".kiro/settings/mcp.json"), PLAIN, workspace="."
    ),
    "junie": ClientProgram(
        "JetBrains Junie", "mcpServers", _user_or_project(".junie/mcp/mcp.json"), PLAIN, workspace="."
    ),
}


def locate(client: ClientProgram, scope: Scope | None, machine: Machine) -> tuple[Scope, Path]:
    chosen = scope or next(iter(client.locations))
    if chosen not in client.locations:
        raise click.UsageError(
            f"--scope {chosen}: {client.title} has no such scope; use --scope {next(iter(client.locations))}"
        )
    return chosen, client.locations[chosen](machine)
