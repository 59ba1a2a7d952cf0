"""Where the programs of others are, and why they may not be there."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PINNED = HERE / "package.json"
NODE_PLACE = ROOT / ".cache" / "peers" / "node"
LOOPBACK = HERE / "loopback.cjs"
EVERYTHING = "server-everything/dist/index.js"
INSPECTOR = "inspector/clients/launcher/build/index.js"


def python_program(name: str) -> str:
    """A command of this interpreter's environment, where requirements/dev.txt put it."""
    return str(Path(sys.executable).with_name(name))


def node() -> str:
    """The Node that is pinned with the packages; skips the test where they are not installed."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed, so neither are the packages that this test talks to")
    stamp = NODE_PLACE / ".installed"
    if not stamp.exists() or stamp.read_bytes() != PINNED.read_bytes():
        pytest.skip("the npm packages that this test talks to are not installed; run scripts/peers")
    return str(NODE_PLACE / "node_modules" / "node" / "bin" / "node")


def node_script(path: str) -> str:
    return str(NODE_PLACE / "node_modules" / "@modelcontextprotocol" / path)


def git() -> str:
    found = shutil.which("git")
    if found is None:
        pytest.skip("git is not installed, and mcp-server-git needs it")
    return found
