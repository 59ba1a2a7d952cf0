"""Where `mcp-toolset skill` writes (K10)."""

from __future__ import annotations

import json
import os

import pytest
from tests.cli.commandline import CommandLine, line

__all__ = ["line"]

pytestmark = pytest.mark.needs("shell_skill")


# A link that leads nowhere is followed: a file appears outside of the folder of skills.
def test_k10_a_link_of_somebody_else_is_not_followed(line: CommandLine) -> None:
    line.write(
        "mcp.json", json.dumps({"mcpServers": {"k": line.entry("serve", str(line.folder / "calc.py"))}})
    )
    (line.folder / "skills" / "mine").mkdir(parents=True)
    os.symlink(line.folder / "elsewhere.md", line.folder / "skills" / "mine" / "SKILL.md")
    line.run("skill", "mcp.json", "--folder", "skills", "--name", "mine")
    assert not (line.folder / "elsewhere.md").exists()
