"""`CLIENTS`: the programs that `install` supports, their configuration files and the form of their entries.

| client | default | other scope | section |
|---|---|---|---|
| Claude Desktop | user: `claude_desktop_config.json` in the user's application data | – | `mcpServers` |
| Claude Code | project: `.mcp.json` | user: `~/.claude.json` | `mcpServers` |
| Cursor | user: `~/.cursor/mcp.json` | project: `.cursor/mcp.json` | `mcpServers` |
| VS Code (and Insiders) | project: `.vscode/mcp.json` | user: `mcp.json` in the profile | `servers` |
| Windsurf | user: `~/.codeium/windsurf/mcp_config.json` | – | `mcpServers` |
| Zed | user: `settings.json` in its own folder | project: `.zed/settings.json` | `context_servers` |
| Gemini CLI | user: `~/.gemini/settings.json` | project: `.gemini/settings.json` | `mcpServers` |
| Codex | user: `~/.codex/config.toml` | project: `.codex/config.toml` | `mcp_servers` |
| Goose | user: `config.yaml` in its own folder | – | `extensions` |
| LM Studio | user: `~/.lmstudio/mcp.json` | – | `mcpServers` |

`forms` says where each client documents its file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal, TypeAlias

import click

from mcp_toolset._records import dataclass
from mcp_toolset.cli.installers.formats import JSON, TOML, YAML, Format
from mcp_toolset.cli.installers.forms import CODEX, GEMINI, GOOSE, PLAIN, TYPED, ZED, Form

__all__ = ["CLIENTS", "Client", "ClientName", "Machine", "Scope", "locate"]

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
        """This machine, and the folder that the command was started in."""
        return cls(Path.home(), sys.platform, os.environ, Path.cwd())

    @property
    def application_data(self) -> Path:
        """The folder where desktop programs keep the user's settings on this platform."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
        return Path(self.environ.get("XDG_CONFIG_HOME") or self.home / ".config")


@dataclass(frozen=True, slots=True)
class Client:
    """One program.

    Attributes:
        title: Its name for people.
        section: The key of the servers in its file.
        locations: Its file by scope, the default scope first.
        form: How its entries are written.
        format: What its file is written in.
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
        """The entry of a server that is started by `command`."""
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


CLIENTS: Mapping[ClientName, Client] = {
    "claude-desktop": Client("Claude Desktop", "mcpServers", {"user": _claude_desktop}, PLAIN),
    "claude-code": Client(
        "Claude Code",
        "mcpServers",
        {"project": lambda machine: machine.project / ".mcp.json", "user": _claude_code_user},
        workspace="${CLAUDE_PROJECT_DIR:-.}",
        always={"alwaysLoad": True},
    ),
    "cursor": Client("Cursor", "mcpServers", _user_or_project(".cursor/mcp.json")),
    "vscode": Client("VS Code", "servers", _vscode("Code")),
    "vscode-insiders": Client("VS Code Insiders", "servers", _vscode("Code - Insiders")),
    "windsurf": Client("Windsurf", "mcpServers", _user(".codeium/windsurf/mcp_config.json"), PLAIN),
    "zed": Client(
        "Zed",
        "context_servers",
        {"user": _zed, "project": lambda machine: machine.project / ".zed" / "settings.json"},
        ZED,
    ),
    "gemini": Client("Gemini CLI", "mcpServers", _user_or_project(".gemini/settings.json"), GEMINI),
    "codex": Client(
        "Codex",
        "mcp_servers",
        {"user": _codex, "project": lambda machine: machine.project / ".codex" / "config.toml"},
        CODEX,
        TOML,
    ),
    "goose": Client("Goose", "extensions", {"user": _goose}, GOOSE, YAML),
    "lmstudio": Client("LM Studio", "mcpServers", _user(".lmstudio/mcp.json"), PLAIN),
}


def locate(client: Client, scope: Scope | None, machine: Machine) -> tuple[Scope, Path]:
    chosen = scope or next(iter(client.locations))
    if chosen not in client.locations:
        raise click.UsageError(
            f"--scope {chosen}: {client.title} has no such scope; use --scope {next(iter(client.locations))}"
        )
    return chosen, client.locations[chosen](machine)
