"""Where the programs of others are, and why they may not be there."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PINNED = HERE / "package.json"
NODE_PLACE = ROOT / ".cache" / "peers" / "node"
PYTHON_PINNED = HERE / "python"
PYTHON_PLACE = ROOT / ".cache" / "peers" / "python"
LOOPBACK = HERE / "loopback.cjs"
BROWSERS = "MCP_TOOLSET_TEST_BROWSERS"
"""The variable of the environment that asks for the tests which drive a browser."""
EVERYTHING = "server-everything/dist/index.js"
INSPECTOR = "inspector/clients/launcher/build/index.js"


def python_program(name: str) -> str:
    """A command of this interpreter's environment, where requirements/dev.txt put it."""
    return str(Path(sys.executable).with_name(name))


def python_of(environment: str) -> str:
    """The interpreter of one of the environments that scripts/peers makes."""
    return str(PYTHON_PLACE / environment / "bin" / "python")


def python_environments() -> None:
    """Skips the test where the environments that scripts/peers makes are missing or are other ones."""
    for wanted in PYTHON_PINNED.glob("*.txt"):
        stamp = PYTHON_PLACE / wanted.stem / ".installed"
        if not stamp.exists() or stamp.read_bytes() != wanted.read_bytes():
            pytest.skip(f"the Python environment {wanted.stem!r} of others is missing; run scripts/peers")


def browser() -> str:
    """A Chromium, for those who asked to have one driven; skips the test for the others."""
    if not os.environ.get(BROWSERS):
        pytest.skip(f"a real browser is started only where {BROWSERS} is set: it takes long, and Chromium")
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("Chromium is not installed (on Debian: apt-get install chromium)")
    return found


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
