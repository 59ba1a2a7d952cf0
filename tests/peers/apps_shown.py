"""Apps of real servers, shown by a host in a browser: directly, and through a hub of both servers.

    scripts/apps [BROWSER]

`apps/host.mjs` is the host, on the SDK of MCP Apps. For each app it compares the page, what stands in it
before and after each of its buttons was pressed, and what it asked the host for. Fails if anything differs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.peers.programs import HERE, ROOT

FOLDER = HERE / "apps"
PLACE = ROOT / ".cache" / "apps"
SERVERS = {"clock": "server-basic-vanillajs", "budget": "server-budget-allocator"}
DEADLINE = 300


def installed() -> None:
    """Install what `apps/package.json` pins, unless that is there, and the host beside it."""
    PLACE.mkdir(parents=True, exist_ok=True)
    stamp, pinned = PLACE / ".installed", (FOLDER / "package.json").read_bytes()
    if not stamp.exists() or stamp.read_bytes() != pinned:
        shutil.rmtree(PLACE / "node_modules", ignore_errors=True)
        (PLACE / "package.json").write_bytes(pinned)
        command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(command, cwd=PLACE, check=True, timeout=DEADLINE, stdout=subprocess.DEVNULL)
        stamp.write_bytes(pinned)
    for script in ("host.mjs", "page.mjs"):
        shutil.copy(FOLDER / script, PLACE / script)


def shown(browser: str, *command: str) -> dict[str, dict[str, Any]]:
    """The apps of the server that a command starts, as the host saw them, by the titles of their tools."""
    host = ["node", str(PLACE / "host.mjs"), browser, *command]
    done = subprocess.run(host, cwd=PLACE, capture_output=True, text=True, timeout=DEADLINE, check=False)
    if done.returncode:
        raise RuntimeError(f"the host failed: {done.stderr[-2000:]}")
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def main() -> int:
    """Compare the apps, and print a line for each; 1 if one differs."""
    browser = (
        sys.argv[1] if len(sys.argv) > 1 else shutil.which("chromium") or shutil.which("chromium-browser")
    )
    if browser is None:
        raise SystemExit("no browser was found: install chromium, or give the path of one")
    installed()
    scripts = {
        name: str(PLACE / "node_modules/@modelcontextprotocol" / package / "dist/index.js")
        for name, package in SERVERS.items()
    }
    direct: dict[str, dict[str, Any]] = {}
    for script in scripts.values():
        direct |= shown(browser, "node", script, "--stdio")
    with tempfile.TemporaryDirectory() as place:
        hub = Path(place) / "hub.json"
        entries = {name: {"command": "node", "args": [script, "--stdio"]} for name, script in scripts.items()}
        hub.write_text(json.dumps({"mcpServers": entries}))
        bridged = shown(browser, sys.executable, "-m", "mcp_toolset", "serve", str(hub))
    sys.stdout.write("| app | asked its host for | direct = bridged |\n|---|---|---|\n")
    same = direct.keys() == bridged.keys()
    for title, seen in direct.items():
        equal = seen == bridged.get(title)
        same = same and equal
        asked = ", ".join(seen["heard"]) or "nothing"
        sys.stdout.write(f"| {title} | {asked} | {'yes' if equal else 'NO'} |\n")
        if not equal:
            sys.stdout.write(f"direct:  {seen}\nbridged: {bridged.get(title)}\n")
    return 0 if same and direct else 1


if __name__ == "__main__":
    sys.exit(main())
