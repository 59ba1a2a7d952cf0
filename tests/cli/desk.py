"""A person's machine in a temporary folder: the files of clients, and what our commands plan and write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from mcp_toolset.cli import install as installing
from mcp_toolset.cli.clients import CLIENTS, ClientName, Machine, locate

__all__ = ["CLIENTS", "HUB_NAME", "ClientName", "Desk", "installing"]

HUB_NAME = installing.HUB_NAME
COMMAND = ("/opt/bin/mcp-toolset",)
"""What is installed unless a test is about the launcher itself."""


class Desk:
    """The folders of a person and of a project."""

    def __init__(
        self,
        root: Path,
        client: ClientName = "cursor",
        scope: Literal["user", "project"] | None = "user",
        platform: str = "linux",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.client: ClientName = client
        self.scope: Any = scope
        self.home, self.project = root / "home", root / "project"
        self.machine = Machine(self.home, platform, environ or {}, self.project)

    def folders(self) -> Desk:
        """Make the two folders."""
        for folder in (self.home, self.project):
            folder.mkdir(parents=True, exist_ok=True)
        return self

    def file(self, client: ClientName | None = None) -> Path:
        """The path of a client's file."""
        return locate(CLIENTS[client or self.client], self.scope, self.machine)[1]

    def write(self, text: str, client: ClientName | None = None) -> Path:
        """Write the file of a client as it stands."""
        path = self.file(client)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def entries(self, client: ClientName | None = None) -> dict[str, Any]:
        """The servers in the file of a client, as the client has them."""
        program = CLIENTS[client or self.client]
        text = self.file(client).read_text().removeprefix("\ufeff")
        return cast("dict[str, Any]", program.format.entries(text, program.section, ""))

    def install(
        self, client: ClientName, *target: str, name: str = "hub", **options: Any
    ) -> installing.InstallPlan:
        """What `install` would write; a `command` of None is that of this machine."""
        given = {"command": COMMAND, **options}
        target = target or ("https://host/mcp",)
        return installing.plan_install(client, name, target, machine=self.machine, **given)

    def uninstall(self, client: ClientName, name: str = "hub", **options: Any) -> installing.InstallPlan:
        return installing.plan_uninstall(client, name, machine=self.machine, **options)

    def adopt(self, client: ClientName | None = None) -> installing.Adoption:
        """Move the servers of a client behind one entry; returns what was planned."""
        plan = self.adoption(client)
        installing.adopt(plan, client or self.client, self.machine)
        return plan

    def adoption(self, client: ClientName | None = None) -> installing.Adoption:
        return installing.plan_adoption(client or self.client, self.machine, self.scope)

    def restore(self, client: ClientName | None = None) -> tuple[installing.Restoration, list[str]]:
        """Bring them back; returns what was planned, and the servers that stay in our file."""
        plan = installing.plan_restoration(client or self.client, self.machine, self.scope)
        return plan, installing.restore(plan, self.machine)

    def found(self) -> installing.Discovery:
        """The servers that `list --clients` finds."""
        return installing.discovered(self.machine)

    @property
    def data(self) -> Path:
        """Our own folder on the machine."""
        return self.machine.application_data / "mcp-toolset"
