"""`CLIENTS`: the programs that `install` supports, their configuration files and the form of an entry.

| client | default | other scope | section |
|---|---|---|---|
| Claude Desktop | user: `claude_desktop_config.json` in the user's application data | – | `mcpServers` |
| Claude Code | project: `.mcp.json` | user: `~/.claude.json` | `mcpServers` |
| Cursor | user: `~/.cursor/mcp.json` | project: `.cursor/mcp.json` | `mcpServers` |
| VS Code | project: `.vscode/mcp.json` | user: `mcp.json` in the default profile | `servers` |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal, TypeAlias

from mcp_toolset._records import dataclass
from mcp_toolset.errors import ConfigError

__all__ = ["CLIENTS", "Client", "ClientName", "Machine", "Scope", "locate"]

ClientName: TypeAlias = Literal["claude-desktop", "claude-code", "cursor", "vscode"]
Scope: TypeAlias = Literal["project", "user"]


@dataclass(frozen=True, slots=True)
class Machine:
    """The places where clients keep files: home, `sys.platform`, the environment, the project's folder."""

    home: Path
    platform: str
    environ: Mapping[str, str] = field(repr=False)
    project: Path

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
    """One program: the section of its file, and its file by scope, the default scope first."""

    title: str
    section: str
    locations: Mapping[Scope, Callable[[Machine], Path]]
    typed: bool = True
    workspace: str = "${workspaceFolder}"
    """How the project's folder is written in the client's project file; see `portable`."""

    def entry(self, command: Sequence[str], env: Mapping[str, str]) -> dict[str, object]:
        """The entry of a server that is started by `command`."""
        program, *args = command
        entry: dict[str, object] = {"type": "stdio"} if self.typed else {}
        return entry | {"command": program, "args": args} | ({"env": dict(env)} if env else {})


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
    "claude-desktop": Client("Claude Desktop", "mcpServers", {"user": _claude_desktop}, typed=False),
    "claude-code": Client(
        "Claude Code",
        "mcpServers",
        {"project": lambda machine: machine.project / ".mcp.json", "user": _claude_code_user},
        workspace="${CLAUDE_PROJECT_DIR:-.}",
    ),
    "cursor": Client(
        "Cursor",
        "mcpServers",
        {
            "user": lambda machine: machine.home / ".cursor" / "mcp.json",
            "project": lambda machine: machine.project / ".cursor" / "mcp.json",
        },
    ),
    "vscode": Client(
        "VS Code",
        "servers",
        {
            "project": lambda machine: machine.project / ".vscode" / "mcp.json",
            "user": lambda machine: machine.application_data / "Code" / "User" / "mcp.json",
        },
    ),
}


def locate(client: Client, scope: Scope | None, machine: Machine) -> tuple[Scope, Path]:
    """The scope (the client's default for None) and its file.

    Raises:
        ConfigError: The client has no such scope.
    """
    chosen = scope or next(iter(client.locations))
    if chosen not in client.locations:
        raise ConfigError(f"{client.title} has no {chosen} scope; use --scope {next(iter(client.locations))}")
    return chosen, client.locations[chosen](machine)
